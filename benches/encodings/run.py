#!/usr/bin/env python3
"""Every encoding, flat and HNSW, with and without reranking: recall, speed, bytes, into one CSV.

    python3 benches/encodings/run.py DATA… [--rounds 5] [--encodings int8,int4] [--kinds flat] [--resident] [--csv FILE]

DATA holds base, queries and exact truth (the row numbers of the 100 nearest by inner product) as .npy files whose
names say so: base.npy or base.f16.npy, queries likewise, truth*.i32.npy. Indexes are built without originals, on one
thread; reranking reads the base vectors where they lie. Flat indexes are asked for 100 neighbours, graphs for 10 at
several `ef`, which is at least the number of rows reranked.

Each search is a process of its own (`twindex bench`, one thread, the index mapped or, with --resident, read), so that
its peak memory is that of a reader alone: the program, queries, truth, and what was touched of index and originals.
All of them take turns, round after round; speeds are medians of queries per CPU second.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = TARGET / "release" / "twindex"
WORK = TARGET / "encodings"
RESULTS = ROOT / "benches" / "results" / "encodings.csv"

M, EF_CONSTRUCTION = 16, 200
EFS = [16, 32, 64, 128, 256]
K = {"flat": 100, "hnsw": 10}
RERANKS = {
    "f32": [None],
    "f16": [None, 1.2, 2, 3],
    "int8": [None, 1.2, 2, 3],
    "int4": [None, 1.2, 2, 3],
    "bits1": [None, 1.2, 2, 3, 10],
}
# What a row takes in CODES: bits a component, and bytes of factors.
THEORY = {"f32": (32, 0), "f16": (16, 0), "int8": (8, 8), "int4": (4, 8), "bits1": (1, 8)}
COLUMNS = (
    "data rows dimension metric encoding kind m ef_construction k ef rerank residency recall@10 recall@100 cpu_qps "
    "p50_us peak_rss_bytes file_bytes_per_row code_bytes_per_row code_bytes_per_row_expected build_seconds "
    "build_cpu_seconds "
    "queries rounds cpu cores kernels version commit"
).split()


def find(folder, name, suffix=".npy"):
    """The one file of the folder with `name` in its name."""
    files = sorted(folder.glob(f"*{name}*{suffix}"))
    if len(files) != 1:
        sys.exit(f"{folder}: one *{name}*{suffix} is expected, {len(files)} are there")
    return files[0]


def rows_of(path):
    """Rows of an .npy file, from its header."""
    with path.open("rb") as file:
        header = file.read(4096)
    shape = header[header.index(b"'shape'") :]
    return int(shape[shape.index(b"(") + 1 : shape.index(b",", shape.index(b"("))])


def twindex(*arguments):
    """Runs a command of the binary and gives its JSON."""
    command = [str(BINARY), *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def machine():
    def said(*command):
        return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
        cpu = names[0] if names else cpu
    commit = said("git", "rev-parse", "--short=12", "HEAD")
    if said("git", "status", "--porcelain", "--untracked-files=no"):
        commit += "+"
    return {"cpu": cpu, "cores": os.cpu_count(), "version": said(BINARY, "--version").split()[-1], "commit": commit}


class Contender:
    """An index of one encoding and kind, and what was measured of it."""

    def __init__(self, folder, encoding, kind, residency):
        self.folder, self.residency = folder, residency
        self.path = WORK / f"{folder.name}-{encoding}-{kind}.twx"
        self.samples = {}  # (rerank, ef) → a result of bench and the peak memory of its process, for each round
        self.about = {"data": folder.name, "metric": "ip", "encoding": encoding, "kind": kind, "residency": residency}
        if kind == "hnsw":
            self.about |= {"m": M, "ef_construction": EF_CONSTRUCTION}

    def build(self):
        about, options = self.about, ["--threads", 1]
        if about["kind"] == "hnsw":
            options += ["--m", M, "--ef-construction", EF_CONSTRUCTION]
        base = find(self.folder, "base")
        options += ["--input", base, "--output", self.path, "--metric", about["metric"], "--json", "-"]
        report = twindex("build", "--index", about["kind"], "--encoding", about["encoding"], *options)
        info = twindex("info", self.path, "--json")
        codes = next(section for section in info["sections"] if section["name"] == "CODES")
        bits, factors = THEORY[about["encoding"]]
        about |= {
            "rows": report["rows"],
            "dimension": report["dimension"],
            "kernels": info["level"],
            "file_bytes_per_row": round(report["file_bytes"] / report["rows"], 1),
            "code_bytes_per_row": codes["bytes_per_row"],
            "code_bytes_per_row_expected": (bits * report["dimension"] + 7) // 8 + factors,
            "build_seconds": round(report["seconds"], 2),
            "build_cpu_seconds": round(report["cpu_seconds"], 2),
        }

    def search(self):
        """One round: a process for each way to rerank."""
        about = self.about
        for rerank in RERANKS[about["encoding"]]:
            options = ["--queries", find(self.folder, "queries"), "--truth", find(self.folder, "truth", ".i32.npy")]
            options += ["--k", K[about["kind"]], "--rounds", 1, "--json", "-"]
            if about["kind"] == "hnsw":
                options += ["--ef", ",".join(map(str, EFS))]
            if self.residency == "resident":
                options += ["--resident"]
            if rerank:
                options += ["--rerank", rerank, "--originals", find(self.folder, "base")]
            report = twindex("bench", self.path, *options)
            for result in report["results"]:
                self.samples.setdefault((rerank, result["ef"]), []).append((result, report["peak_rss_bytes"]))

    def rows(self):
        for (rerank, ef), samples in self.samples.items():
            result = samples[0][0]
            yield self.about | {
                "k": result["k"],
                "ef": ef,
                "rerank": rerank,
                f"recall@{result['k']}": round(result["recall"], 6),
                "cpu_qps": round(statistics.median(sample["cpu_qps"] for sample, _ in samples), 1),
                "p50_us": round(statistics.median(sample["p50_us"] for sample, _ in samples), 1),
                "peak_rss_bytes": max(peak for _, peak in samples),
                "queries": rows_of(find(self.folder, "queries")),
                "rounds": len(samples),
            }


def main():
    listed = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encodings", type=listed, default=list(RERANKS))
    parser.add_argument("--kinds", type=listed, default=list(K))
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    args = parser.parse_args()
    for given, known in ((args.encodings, RERANKS), (args.kinds, K)):
        if unknown := set(given) - set(known):
            parser.error(f"{', '.join(unknown)}: not one of {', '.join(known)}")

    subprocess.run(["cargo", "build", "--release", "--features", "cli"], cwd=ROOT, check=True)
    WORK.mkdir(parents=True, exist_ok=True)
    args.csv.parent.mkdir(parents=True, exist_ok=True)
    about = machine()
    residency = "resident" if args.resident else "mapped"
    contenders = [
        Contender(folder.resolve(), encoding, kind, residency)
        for folder in args.data
        for encoding in args.encodings
        for kind in args.kinds
    ]
    for contender in contenders:
        print(f"building {contender.path.name}", file=sys.stderr)
        contender.build()
    for turn in range(args.rounds):
        print(f"round {turn + 1} of {args.rounds}", file=sys.stderr)
        for contender in contenders:
            contender.search()

    rows = [row | about for contender in contenders for row in contender.rows()]
    with args.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    shown = ["data", "encoding", "kind", "ef", "rerank", "recall@10", "recall@100", "cpu_qps"]
    shown += ["file_bytes_per_row", "peak_rss_bytes", "build_cpu_seconds"]
    widths = [max(len(name), 9) for name in shown]
    for row in [dict(zip(shown, shown)), *rows]:
        cells = ["" if row.get(name) is None else str(row[name]) for name in shown]
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths)))


if __name__ == "__main__":
    main()
