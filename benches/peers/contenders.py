"""Who is measured: one class for each peer, Twindex through its command line, and the suites they enter.

A peer builds an index over unit vectors for the inner product, saves it, opens it and answers queries with the ids of
rows. `Peer` measures that within its own process; `Twindex` starts a process of its binary and takes over what that
reports. Both give figures named like the columns of the CSV.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET / "peers"
BINARY = TARGET / "release" / "twindex"

# Rows that a quantizer which learns from a sample learns from.
SAMPLE = 20_000
MB = 1e6


@dataclasses.dataclass(frozen=True)
class Graph:
    """The settings of a graph; None in its place means a flat index."""

    m: int
    ef_construction: int


@dataclasses.dataclass
class Ask:
    """One way to search: `batch` queries a call, or as many as the library takes where it is None."""

    k: int
    ef: int | None = None
    rerank: float | None = None
    threads: int = 1
    batch: int | None = None


def memory(name):
    """A size in MB among what Linux tells of this process."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1]) * 1024 / MB for line in status if line.startswith(name + ":")), 0.0)


def size(path):
    """Bytes of a file or of all files in a folder."""
    path = Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def recall(found, truth, k):
    return sum(len(np.intersect1d(ids[:k], row[:k])) for ids, row in zip(found, truth)) / (len(truth) * k)


class Clock:
    """CPU and wall seconds since it was started, less those it was paused."""

    def __init__(self):
        self.cpu, self.wall = -time.process_time(), -time.perf_counter()

    def stop(self):
        self.cpu += time.process_time()
        self.wall += time.perf_counter()
        return self.cpu, self.wall

    def __enter__(self):
        self.stop()

    def __exit__(self, *_):
        self.cpu -= time.process_time()
        self.wall -= time.perf_counter()


# ---- Peers


class Peer:
    """A library of the Python world. Subclasses know its calls; this class measures them."""

    package = None
    threads = (1, 2)  # What its search can be told to use.
    reranks = (None,)

    def __init__(self, family, form=""):
        self.family, self.form = family, form
        self.name = f"{family}:{form}" if form else family

    # What a subclass brings

    def build(self, base, graph, threads, clock):
        """Timed. Work that is no part of indexing belongs into `with clock:`."""
        raise NotImplementedError

    def save(self, path):
        raise NotImplementedError

    def open(self, path, dimension, threads):
        raise NotImplementedError

    def search(self, queries, ask):
        """Timed. Whatever the library gives for these queries."""
        raise NotImplementedError

    def ids(self, found):
        """Not timed. The ids in what `search` gave, a list for each query."""
        return found

    def bytes_a_row(self, path, rows, dimension):
        """Of the index, without originals that it keeps to rerank."""
        return size(path) / rows

    # What is measured of it

    @property
    def index_name(self):
        """Contenders of the same index name share the file."""
        return self.name.replace(":", "-")

    def measure_build(self, data, path, graph, threads):
        base = np.load(data / "base.npy", mmap_mode="r")
        np.add.reduce(base, axis=None)  # The file is in the page cache.
        before = memory("RssAnon")
        self.path = path
        clock = Clock()
        self.build(base, graph, threads, clock)
        cpu, wall = clock.stop()
        after = memory("RssAnon")
        peak = memory("VmHWM")
        self.save(str(path))
        return {"build_cpu_s": cpu, "build_wall_s": wall, "peak_rss_mb": peak, "anon_mb": after - before}

    def measure_search(self, data, path, asks, suffix):
        queries, truth = np.load(data / f"queries{suffix}.npy"), np.load(data / f"truth{suffix}.npy")
        before = memory("RssAnon"), memory("VmRSS")
        start = time.perf_counter()
        self.open(str(path), queries.shape[1], max(ask.threads for ask in asks))
        about = {"open_ms": (time.perf_counter() - start) * 1e3}
        about |= {"anon_mb": memory("RssAnon") - before[0], "open_rss_mb": memory("VmRSS") - before[1]}
        rows = []
        for ask in asks:
            # Finding the recall is the warming-up, as it is in `twindex bench`.
            found = [ids for part in self.answers(queries, ask) for ids in self.ids(part)]
            clock = Clock()
            self.answers(queries, ask)
            cpu, wall = clock.stop()
            figures = {"recall": recall(found, truth, ask.k)}
            figures |= {"cpu_qps": len(queries) / max(cpu, 1e-9), "wall_qps": len(queries) / wall}
            rows.append(dataclasses.asdict(ask) | figures | about)
        for row in rows:
            row["peak_rss_mb"] = memory("VmHWM")
        return rows

    def answers(self, queries, ask):
        batch = ask.batch or len(queries)
        return [self.search(queries[i : i + batch], ask) for i in range(0, len(queries), batch)]


class Hnswlib(Peer):
    package = "hnswlib"

    def build(self, base, graph, threads, clock):
        import hnswlib

        self.index = hnswlib.Index("ip", base.shape[1])
        self.index.init_index(len(base), M=graph.m, ef_construction=graph.ef_construction)
        self.index.add_items(base, num_threads=threads)

    def save(self, path):
        self.index.save_index(path)

    def open(self, path, dimension, threads):
        import hnswlib

        self.index = hnswlib.Index("ip", dimension)
        self.index.load_index(path)

    def search(self, queries, ask):
        self.index.set_ef(ask.ef)
        return self.index.knn_query(queries, k=ask.k, num_threads=ask.threads)[0]


class Faiss(Peer):
    """HNSW and flat. OpenMP's threads are set before each call, so that one thread is one thread."""

    package = "faiss-cpu"
    HNSW = {"f32": "HNSW{m},Flat", "f16": "HNSW{m},SQfp16", "sq8": "HNSW{m},SQ8"}
    FLAT = {"f32": "Flat", "f16": "SQfp16", "sq8": "SQ8", "sq4": "SQ4", "rabitq": "RaBitQ"}

    def build(self, base, graph, threads, clock):
        import faiss

        faiss.omp_set_num_threads(threads)
        form = self.HNSW[self.form].format(m=graph.m) if graph else self.FLAT[self.form]
        self.index = faiss.index_factory(base.shape[1], form, faiss.METRIC_INNER_PRODUCT)
        if graph:
            self.index.hnsw.efConstruction = graph.ef_construction
        self.index.train(np.ascontiguousarray(base[:SAMPLE]))
        self.index.add(np.ascontiguousarray(base))

    def save(self, path):
        import faiss

        faiss.write_index(self.index, path)

    def open(self, path, dimension, threads):
        import faiss

        self.index = faiss.read_index(path)

    def search(self, queries, ask):
        import faiss

        faiss.omp_set_num_threads(ask.threads)
        # By matrix products, which are faster, from 20 queries on: this version's default waits for far more.
        faiss.cvar.distance_compute_blas_threshold = 20
        if ask.ef:
            self.index.hnsw.efSearch = ask.ef
        return self.index.search(queries, ask.k)[1]


class Usearch(Peer):
    """HNSW and flat. Whole batches are scanned by the function that takes matrices, single queries by an index."""

    package = "usearch"

    def index_of(self, dimension, graph):
        from usearch.index import Index

        # A flat index has next to no graph: its exact search asks for none.
        settings = (graph.m, graph.ef_construction) if graph else (2, 2)
        return Index(ndim=dimension, metric="ip", dtype=self.form, connectivity=settings[0], expansion_add=settings[1])

    def build(self, base, graph, threads, clock):
        self.index = self.index_of(base.shape[1], graph)
        self.index.add(np.arange(len(base)), base, threads=threads)

    def save(self, path):
        self.index.save(path)

    def open(self, path, dimension, threads):
        self.index = self.index_of(dimension, None)
        self.index.load(path)
        self.matrix = None

    def search(self, queries, ask):
        if ask.ef:
            self.index.expansion_search = ask.ef
            return self.index.search(queries, ask.k, threads=ask.threads).keys
        if ask.batch == 1:
            return [self.index.search(queries[0], ask.k, exact=True, threads=ask.threads).keys]
        from usearch.index import MetricKind, search

        if self.matrix is None:
            rows = self.index.get(np.arange(len(self.index)))
            self.matrix = np.ascontiguousarray(rows)
        queries = queries if self.form == "f32" else np.rint(queries * 127).astype(np.int8)
        return search(self.matrix, queries, ask.k, MetricKind.IP, exact=True, threads=ask.threads).keys


class Zvec(Peer):
    """HNSW and flat, with rotation where "+rotate" asks for it, in contiguous memory and through the call that gives
    ids without documents; its search uses one thread. Quantized graphs rerank by the originals the collection keeps."""

    package = "zvec"
    threads = (1,)
    TYPES = {"f32": "UNDEFINED", "fp16": "FP16", "int8": "INT8", "int4": "INT4"}

    def __init__(self, family, form, reranks=(None,)):
        super().__init__(family, form)
        self.reranks = reranks

    def init(self, threads):
        import zvec

        zvec.init(query_threads=threads, optimize_threads=threads, log_level=zvec.LogLevel.WARN)
        return zvec

    def build(self, base, graph, threads, clock):
        with clock:
            zvec = self.init(threads)
            shutil.rmtree(self.path, ignore_errors=True)
        form, _, rotate = self.form.partition("+")
        settings = {
            "metric_type": zvec.MetricType.IP,
            "quantize_type": getattr(zvec.QuantizeType, self.TYPES[form]),
            "quantizer_param": zvec.QuantizerParam(enable_rotate=bool(rotate)),
            "use_contiguous_memory": True,
        }
        if graph:
            index = zvec.HnswIndexParam(m=graph.m, ef_construction=graph.ef_construction, **settings)
        else:
            index = zvec.FlatIndexParam(**settings)
        vectors = zvec.VectorSchema("v", zvec.DataType.VECTOR_FP32, base.shape[1], index_param=index)
        self.collection = zvec.create_and_open(str(self.path), zvec.CollectionSchema(name="base", vectors=vectors))
        for first in range(0, len(base), 1000):
            with clock:
                rows = base[first : first + 1000]
                documents = [zvec.Doc(id=str(first + i), vectors={"v": row}) for i, row in enumerate(rows)]
            self.collection.insert(documents)
        self.collection.flush()
        self.collection.optimize()

    def save(self, path):
        self.collection.flush()

    def open(self, path, dimension, threads):
        zvec = self.init(threads)
        self.collection = zvec.open(path, zvec.CollectionOption(read_only=True, enable_mmap=True))

    def search(self, queries, ask):
        import zvec

        refine = {"is_using_refiner": True, "scale_factor": ask.rerank} if ask.rerank else {}
        param = zvec.HnswQueryParam(ef=ask.ef, **refine) if ask.ef else None
        find = self.collection.query_internal_ids
        return [find(zvec.Query("v", vector=query, param=param), topk=ask.k) for query in queries]

    def ids(self, found):
        resolve = self.collection.resolve_internal_ids
        return [[int(id) for id in resolve(ids) if id is not None] for ids in found]

    def bytes_a_row(self, path, rows, dimension):
        codes = [file for file in Path(path).rglob("*") if ".qindex." in file.name]
        originals = [file for file in Path(path).rglob("*") if ".index." in file.name] if codes else []
        return (size(path) - sum(map(size, originals))) / rows


class RabitqHnsw(Peer):
    """HNSW over extended RaBitQ codes of `form` bits, around 16 centroids."""

    package = "rabitqlib"
    CENTROIDS = 16

    def build(self, base, graph, threads, clock):
        import rabitqlib

        base = np.ascontiguousarray(base)
        means = rabitqlib.RaBitQKMeans(base.shape[1], self.CENTROIDS, niter=10, seed=1, num_threads=threads)
        means.train(base)
        centroids = np.ascontiguousarray(means.centroids, dtype=np.float32)
        nearest = np.asarray(means.assignments, dtype=np.uint32)
        settings = (graph.m, graph.ef_construction, int(self.form))
        self.index = rabitqlib.HnswIndex(base.shape[1], len(base), *settings, "ip")
        self.index.build(base, centroids, nearest, threads, True)

    def save(self, path):
        self.index.save(path)

    def open(self, path, dimension, threads):
        import rabitqlib

        self.index = rabitqlib.HnswIndex.load(path)

    def search(self, queries, ask):
        return self.index.search(queries, ask.k, ask.ef, ask.threads)[0]


class SymphonyQG(Peer):
    """Neighbours' 1-bit codes in each node; the node's own vector as it is, or in `form` bits. By squared distance,
    which orders unit vectors as the inner product does: built for the inner product its recall is poor."""

    package = "rabitqlib"

    def build(self, base, graph, threads, clock):
        import rabitqlib

        self.index = rabitqlib.SymqgIndex(base.shape[1], 2 * graph.m, "l2", int(self.form or 0))
        self.index.build(np.ascontiguousarray(base), graph.ef_construction, threads)

    def save(self, path):
        self.index.save(path)

    def open(self, path, dimension, threads):
        import rabitqlib

        self.index = rabitqlib.SymqgIndex.load(path)

    def search(self, queries, ask):
        return self.index.search(queries, ask.k, ask.ef, ask.threads)[0]


class Svs(Peer):
    """Vamana of degree 2 m over f32 rows, or over LVQ codes: lvq8, or lvq4x8, 4 bits and a residual of 8."""

    package = "scalable-vs"

    def build(self, base, graph, threads, clock):
        import svs

        with clock:
            vectors = WORK / f"{os.getpid()}.fvecs"
            data = np.ascontiguousarray(base)
            if self.form != "f32":
                svs.write_vecs(data, str(vectors))
        if self.form != "f32":
            bits, _, residual = self.form.removeprefix("lvq").partition("x")
            loader = svs.VectorDataLoader(str(vectors), svs.DataType.float32, dims=base.shape[1])
            strategy = svs.LVQStrategy.Turbo
            data = svs.LVQLoader(loader, primary=int(bits), residual=int(residual or 0), strategy=strategy)
        degree, window = 2 * graph.m, graph.ef_construction
        settings = svs.VamanaBuildParameters(graph_max_degree=degree, window_size=window, alpha=0.95)
        self.index = svs.Vamana.build(settings, data, svs.DistanceType.MIP, num_threads=threads)
        vectors.unlink(missing_ok=True)

    def parts(self, path):
        return [str(Path(path) / part) for part in ("config", "graph", "data")]

    def save(self, path):
        shutil.rmtree(path, ignore_errors=True)
        Path(path).mkdir()
        self.index.save(*self.parts(path))

    def open(self, path, dimension, threads):
        import svs

        config, graph, data = self.parts(path)
        if self.form == "f32":
            data = svs.VectorDataLoader(data, svs.DataType.float32, dims=dimension)
        else:
            data = svs.LVQLoader(data, strategy=svs.LVQStrategy.Turbo)
        self.index = svs.Vamana(config, svs.GraphLoader(graph), data, svs.DistanceType.MIP, num_threads=threads)

    def search(self, queries, ask):
        self.index.num_threads = ask.threads
        self.index.search_window_size = ask.ef
        return self.index.search(queries, ask.k)[0]


# ---- Twindex


class Twindex:
    """An encoding, its codes and links read into memory or mapped. Reranking reads the originals that the index file
    has behind them, which stay mapped; or, where `originals` is "none", those of the file it was built from."""

    QUANTIZED = ("int8", "int4", "bits1")

    package = None
    threads = (1, 2)

    def __init__(self, family, encoding, reranks=(None,), residency="resident", originals=None):
        self.family, self.encoding, self.reranks = family, encoding, reranks
        self.residency, self.originals = residency, originals or ("f32" if encoding in self.QUANTIZED else "none")
        kept = f"+{originals}" if originals else ""
        self.index_name = f"{family}-{encoding}{kept}"
        self.name = f"{family}:{encoding}{kept}" + ("" if residency == "resident" else f"-{residency}")

    def run(self, *arguments):
        report = WORK / f"{os.getpid()}.json"
        subprocess.run([BINARY, *map(str, arguments), "--json", report], check=True, stdout=subprocess.DEVNULL)
        try:
            return json.loads(report.read_text())
        finally:
            report.unlink()

    def measure_build(self, data, path, graph, threads):
        options = ["--metric", "ip", "--encoding", self.encoding, "--originals", self.originals, "--threads", threads]
        if graph:
            options += ["--index", "hnsw", "--m", graph.m, "--ef-construction", graph.ef_construction]
        else:
            options += ["--index", "flat"]
        report = self.run("build", "--input", data / "base.npy", "--output", path, *options)
        return {
            "build_cpu_s": report["cpu_seconds"],
            "build_wall_s": report["seconds"],
            "peak_rss_mb": (report["peak_rss_bytes"] or 0) / MB,
            "anon_mb": (report["anonymous_bytes"] or 0) / MB,
        }

    def measure_search(self, data, path, asks, suffix):
        """A process for each k, rerank, threads and batch; each sweeps its ef."""
        sweeps = {}
        for ask in asks:
            key = (ask.k, ask.rerank, ask.threads, ask.batch if ask.ef is None else None)
            sweeps.setdefault(key, []).append(ask.ef)
        rows = []
        for (k, rerank, threads, batch), efs in sweeps.items():
            options = ["--queries", data / f"queries{suffix}.npy", "--truth", data / f"truth{suffix}.npy"]
            options += ["--k", k, "--threads", threads, "--rounds", 1, "--batch", batch or 1]
            options += ["--exact"] if efs == [None] else ["--ef", ",".join(map(str, efs))]
            options += ["--resident"] if self.residency == "resident" else ["--mmap"]
            if rerank:
                options += ["--rerank", rerank]
                options += ["--originals", data / "base.npy"] if self.originals == "none" else []
            report = self.run("bench", path, *options)
            about = {
                "threads": threads,
                "batch": batch,
                "open_ms": report["open_ms"],
                "peak_rss_mb": (report["peak_rss_bytes"] or 0) / MB,
                "anon_mb": (report["open_anonymous_bytes"] or 0) / MB,
                "open_rss_mb": (report["open_rss_bytes"] or 0) / MB,
            }
            for result in report["results"]:
                figures = {name: result[name] for name in ("k", "ef", "rerank", "recall", "cpu_qps")}
                rows.append(figures | {"wall_qps": result["qps"]} | about)
        return rows

    def bytes_a_row(self, path, rows, dimension):
        run = subprocess.run([BINARY, "info", path, "--json"], check=True, stdout=subprocess.PIPE)
        sections = json.loads(run.stdout)["sections"]
        kept = [section["bytes_per_row"] for section in sections if section["name"] == "ORIGINALS"]
        return size(path) / rows - sum(kept)


# ---- Suites


@dataclasses.dataclass
class Suite:
    graph: Graph | None
    build_threads: tuple
    contenders: list
    queries: int | None  # How many of them; None: all.
    asks: object  # Of a contender: the ways it is asked.


def sweep(efs, few, own_efs={}):
    """One thread at every ef, two at a few."""

    def asks(contender):
        for rerank in contender.reranks:
            for k, values in (own_efs.get(contender.family) or efs).items():
                yield from (Ask(k, ef, rerank) for ef in values)
        for threads in contender.threads[1:]:
            middle = contender.reranks[len(contender.reranks) // 2]
            for k, values in few.items():
                yield from (Ask(k, ef, middle, threads) for ef in values)

    return asks


def scans(contender):
    """One query a call, and 64."""
    for rerank in contender.reranks:
        yield from (Ask(k, None, rerank, 1, 1) for k in (10, 100))
        yield Ask(100, None, rerank, 1, 64)


SUITES = {
    "graph": Suite(
        graph=Graph(m=16, ef_construction=200),
        build_threads=(1, 2),
        queries=None,
        asks=sweep(
            efs={10: [10, 14, 20, 28, 40, 56, 80, 112, 160, 240], 100: [100, 140, 200, 280, 400, 600]},
            few={10: [40, 160], 100: [200]},
        ),
        contenders=[
            Hnswlib("hnswlib"),
            Faiss("faiss", "f32"),
            Twindex("twindex", "f32"),
            Usearch("usearch", "f32"),
            Zvec("zvec", "f32"),
            Svs("svs", "f32"),
            Twindex("twindex", "f32", residency="mapped"),
            Faiss("faiss", "f16"),
            Twindex("twindex", "f16"),
            Zvec("zvec", "fp16"),
            Faiss("faiss", "sq8"),
            Twindex("twindex", "int8", reranks=(None, 1.2, 1.5, 2)),
            Usearch("usearch", "i8"),
            Zvec("zvec", "int8", reranks=(None, 1.5)),
            Twindex("twindex", "int8", reranks=(1.5,), residency="mapped"),
            Svs("svs", "lvq8"),
            RabitqHnsw("rabitq", "7"),
            Svs("svs", "lvq4x8"),
            Twindex("twindex", "int4", reranks=(1.5, 2, 3)),
            RabitqHnsw("rabitq", "4"),
            Svs("svs", "lvq4x4"),
            Twindex("twindex", "int4", reranks=(2,), residency="mapped"),
            SymphonyQG("symqg"),
            Twindex("twindex", "bits1", reranks=(3, 5, 10)),
            SymphonyQG("symqg", "8"),
        ],
    ),
    "flat": Suite(
        graph=None,
        build_threads=(1,),
        queries=192,
        asks=scans,
        contenders=[
            Faiss("faiss-flat", "f32"),
            Twindex("twindex-flat", "f32"),
            Usearch("usearch-flat", "f32"),
            Zvec("zvec-flat", "f32"),
            Faiss("faiss-flat", "f16"),
            Twindex("twindex-flat", "f16"),
            Zvec("zvec-flat", "fp16"),
            Faiss("faiss-flat", "sq8"),
            Twindex("twindex-flat", "int8", reranks=(None, 1.2, 2)),
            Usearch("usearch-flat", "i8"),
            Zvec("zvec-flat", "int8"),
            Zvec("zvec-flat", "int8+rotate"),
            Faiss("faiss-flat", "sq4"),
            Twindex("twindex-flat", "int4", reranks=(None, 1.5, 2, 3)),
            Zvec("zvec-flat", "int4"),
            Zvec("zvec-flat", "int4+rotate"),
            Faiss("faiss-flat", "rabitq"),
            Twindex("twindex-flat", "bits1", reranks=(None, 5, 10, 20)),
        ],
    ),
    "seeds": Suite(
        graph=Graph(m=50, ef_construction=500),
        build_threads=(2,),
        queries=None,
        asks=sweep(efs={100: [300]}, few={100: [300]}, own_efs={"twindex": {100: [150, 200, 250, 300, 400]}}),
        contenders=[
            Hnswlib("hnswlib"),
            Twindex("twindex", "f32"),
            Zvec("zvec", "f32"),
            Twindex("twindex", "int8", reranks=(None, 1.2, 1.5, 2)),
            Zvec("zvec", "int8"),
            Twindex("twindex", "int4", reranks=(1.2, 1.5, 2)),
        ],
    ),
}
