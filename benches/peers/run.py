#!/usr/bin/env python3
"""Twindex beside its peers: the same vectors, queries and settings, in turn A B C A B C, on CPU and wall time.

    python3 benches/peers/run.py DATA… [--suite graph|flat|seeds|all] [--only NAME,…] [--rounds 5] [--builds 3]
                                 [--csv FILE] [--rows N] [--queries N]

DATA is a folder with base.npy (or base.f16.npy), queries likewise, and the row numbers of the 100 nearest by inner
product in truth_ip_top100.i32.npy or gt100.npy. Vectors have unit length: some peers know no inner product.

Suites: graph (m 16, ef_construction 200: builds on one and two threads, then a sweep of `ef`), flat (scans, one query
at a time and 64, with and without reranking) and seeds (m 50, ef_construction 500, ef 300, k 100).

Each build and each round of searches is a process of its own, so that its memory is its own, and everyone takes a turn
before anyone takes the next. The peers, of pinned versions, are installed into an environment of their own; one that
does not install, or fails, is reported and left out. Indexes are kept: --builds 0 searches those of the last run. A
search finds what the last build on most threads made. --only takes names of contenders or families (twindex, faiss).
--rows and --queries measure a part of the data, for a quick look, into a CSV of their own.

The CSV gets a row for each measurement; earlier rows of the contenders, suite and stage that are measured again are
replaced. Sizes are in MB of 10⁶ bytes. anon_mb is the memory no file backs that the index took, built or just opened;
peak_rss_mb the peak of the whole process, with pages of mapped files (and, for a peer, Python); bytes_row what the file
takes a row, less originals kept for reranking. report.py makes tables of it.
"""

import argparse
import csv
import dataclasses
import json
import os
import platform
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "peers"
PYTHON = WORK / "venv" / "bin" / "python"
RESULTS = ROOT / "benches" / "results" / "peers.csv"
TRUTHS = ("truth_ip_top100.i32.npy", "gt100.npy")
PACKAGES = {
    "numpy": "2.3.5",
    "hnswlib": "0.8.0",
    "faiss-cpu": "1.15.1",
    "usearch": "2.26.6",
    "zvec": "0.8.0",
    "rabitqlib": "0.7.1",
    "scalable-vs": "0.5.0",
}
# Idle threads of OpenBLAS and OpenMP spin, and count as CPU time of searches they have no part in.
QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
COLUMNS = (
    "dataset suite stage contender version m ef_construction k ef rerank threads batch round recall cpu_qps wall_qps "
    "build_cpu_s build_wall_s peak_rss_mb anon_mb open_rss_mb open_ms file_mb bytes_row rows dimension machine started"
).split()
DIGITS = {"recall": 5, "cpu_qps": 1, "wall_qps": 1, "build_cpu_s": 2, "build_wall_s": 2, "open_ms": 2, "bytes_row": 1}


# ---- The environment


def install():
    """Makes the environment where it is not there, and gives what failed to install: package → reason."""
    state = WORK / "installed.json"
    known = json.loads(state.read_text()) if state.exists() and PYTHON.exists() else {}
    if known.get("packages") != PACKAGES:
        print("installing the peers", file=sys.stderr)
        venv.create(WORK / "venv", with_pip=True)
        failed = {}
        for package, version in PACKAGES.items():
            command = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{package}=={version}"]
            run = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if run.returncode:
                failed[package] = f"{package} {version} does not install: {last_line(run.stderr)}"
        known = {"packages": PACKAGES, "failed": failed}
        state.write_text(json.dumps(known, indent=1))
    return known["failed"]


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing said"


# ---- The data


def prepare(folder, rows, queries, suites):
    """The files every contender reads, in a folder of the data set's name."""
    import numpy as np

    def vectors(name):
        found = [folder / file for file in (f"{name}.npy", f"{name}.f16.npy") if (folder / file).exists()]
        if not found:
            sys.exit(f"{folder}: no {name}.npy")
        return np.load(found[0], mmap_mode="r")

    truths = [folder / file for file in TRUTHS if (folder / file).exists()]
    if not truths:
        sys.exit(f"{folder}: none of {', '.join(TRUTHS)}")
    base, asked = vectors("base")[:rows], vectors("queries")[:queries].astype(np.float32)
    whole = rows is None or len(vectors("base")) <= rows
    data = WORK / "data" / (folder.resolve().name if whole else f"{folder.resolve().name}-{rows}")
    data.mkdir(parents=True, exist_ok=True)
    base = base.astype(np.float32)
    if np.abs(np.linalg.norm(base, axis=1) - 1).max() > 1e-2:
        sys.exit(f"{folder}: the vectors are not of unit length")
    truth = np.load(truths[0])[:queries, :100] if whole else np.argsort(-(asked @ base.T), axis=1)[:, :100]
    np.save(data / "base.npy", base)
    np.save(data / "queries.npy", asked)
    np.save(data / "truth.npy", truth.astype(np.int32))
    for count in {suite.queries for suite in suites if suite.queries}:
        np.save(data / f"queries{count}.npy", asked[:count])
        np.save(data / f"truth{count}.npy", truth[:count].astype(np.int32))
    return data, base.shape


# ---- A task: one build or one round of searches, in a process of its own


@dataclasses.dataclass
class Task:
    suite: str
    contender: str
    stage: str
    data: str
    threads: int | None
    path: str
    answer: str


def perform(task):
    """What the process of a task does."""
    from contenders import SUITES

    suite, data = SUITES[task.suite], Path(task.data)
    contender = next(contender for contender in suite.contenders if contender.name == task.contender)
    if task.stage == "build":
        rows = [contender.measure_build(data, Path(task.path), suite.graph, task.threads) | {"threads": task.threads}]
    else:
        asks = list(suite.asks(contender))
        rows = contender.measure_search(data, Path(task.path), asks, suite.queries or "")
    Path(task.answer).write_text(json.dumps(rows))


def measure(task):
    """Runs a task and gives its rows, or the reason why there are none."""
    log, answer = WORK / "log.txt", Path(task.answer)
    answer.unlink(missing_ok=True)
    with log.open("w+") as file:
        command = [str(PYTHON), __file__, "--task", json.dumps(dataclasses.asdict(task))]
        run = subprocess.run(command, stdout=file, stderr=file, env=os.environ | QUIET)
        file.seek(0)
        said = file.read()
    # A library may well crash while its process ends, after the work is done.
    if answer.exists():
        return json.loads(answer.read_text()), None
    return [], f"{task.stage} failed ({run.returncode}): {last_line(said)}"


# ---- All tasks, in turn


class Run:
    def __init__(self, args, failed):
        self.args, self.csv = args, args.csv
        self.skipped = {}  # (data set, suite, contender) → reason
        self.failed = failed
        self.machine, self.started = machine(), time.strftime("%Y-%m-%dT%H:%M:%S")
        self.rows, self.fresh = [], set()
        if self.csv.exists():
            with self.csv.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def record(self, about, rows):
        """Adds rows to the CSV; the first ones of a contender's stage replace those of earlier runs."""
        key = {name: about[name] for name in ("dataset", "suite", "stage", "contender")}
        if tuple(key.values()) not in self.fresh:
            self.fresh.add(tuple(key.values()))
            self.rows = [row for row in self.rows if any(row[name] != value for name, value in key.items())]
        for row in rows:
            row = about | row | {"machine": self.machine, "started": self.started}
            shown = {name: cell(name, row.get(name)) for name in COLUMNS}
            self.rows.append(shown)
        self.csv.parent.mkdir(parents=True, exist_ok=True)
        with self.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def suite(self, name, suite, data, shape):
        place = WORK / "index" / data.name / name
        place.mkdir(parents=True, exist_ok=True)
        contenders = []
        for contender in suite.contenders:
            if contender.package in self.failed:
                self.skip(data, name, contender, self.failed[contender.package])
            elif chosen(contender, self.args.only):
                contenders.append(contender)
        threads = suite.build_threads

        def path(contender):
            return place / contender.index_name

        # What is built under another contender's name, or is there already, is not built again.
        builders = {contender.index_name: contender for contender in reversed(contenders)}
        builders = [contender for contender in contenders if contender in builders.values()]
        for turn in range(max(self.args.builds, 1)):
            for count in threads:
                for contender in builders:
                    is_last = turn == max(self.args.builds, 1) - 1 and count == max(threads)
                    wanted = turn < self.args.builds or (is_last and not path(contender).exists())
                    if wanted:
                        self.one(name, suite, contender, "build", data, shape, path(contender), turn, count)
        for turn in range(self.args.rounds):
            for contender in contenders:
                self.one(name, suite, contender, "search", data, shape, path(contender), turn, None)

    def skip(self, data, suite, contender, reason):
        if self.skipped.setdefault((data.name, suite, contender.name), reason) is reason:
            print(f"  {contender.name} is left out: {reason}", file=sys.stderr)

    def one(self, suite_name, suite, contender, stage, data, shape, path, turn, threads):
        if (data.name, suite_name, contender.name) in self.skipped:
            return
        began = time.time()
        task = Task(suite_name, contender.name, stage, str(data), threads, str(path), str(WORK / "answer.json"))
        rows, reason = measure(task)
        if reason:
            return self.skip(data, suite_name, contender, reason)
        at = f"{data.name} {suite_name} {stage} {turn + 1}" + (f" on {threads}" if threads else "")
        print(f"  {at:48} {contender.name:24} {time.time() - began:6.1f} s", file=sys.stderr)
        from contenders import size

        about = {"dataset": data.name, "suite": suite_name, "stage": stage, "contender": contender.name, "round": turn}
        about |= {"rows": shape[0], "dimension": shape[1], "version": version(contender)}
        if suite.graph:
            about |= dataclasses.asdict(suite.graph)
        about |= {"file_mb": size(path) / 1e6, "bytes_row": contender.bytes_a_row(path, *shape)}
        self.record(about, rows)


def cell(name, value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}" if name == "rerank" else f"{value:.{DIGITS.get(name, 1)}f}"
    return str(value)


def chosen(contender, only):
    return not only or contender.name in only or contender.family in only


def version(contender):
    return PACKAGES[contender.package] if contender.package else twindex_version()


def twindex_version():
    def said(*command):
        return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    from contenders import BINARY

    changed = "+" if said("git", "status", "--porcelain", "--untracked-files=no") else ""
    return said(str(BINARY), "--version").split()[-1] + " " + said("git", "rev-parse", "--short=12", "HEAD") + changed


def machine():
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return f"{cpu}, {os.cpu_count()} cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="*")
    parser.add_argument("--suite", choices=["graph", "flat", "seeds", "all"], default="all")
    parser.add_argument("--only", type=lambda text: set(text.split(",")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        return perform(Task(**json.loads(args.task)))
    if not args.data:
        parser.error("a folder of data is expected")

    WORK.mkdir(parents=True, exist_ok=True)
    failed = install()
    if Path(sys.prefix).resolve() != (WORK / "venv").resolve():
        os.execv(PYTHON, [str(PYTHON), __file__, *sys.argv[1:]])
    from contenders import SUITES
    import report

    names = list(SUITES) if args.suite == "all" else [args.suite]
    everyone = [contender for name in names for contender in SUITES[name].contenders]
    for name in args.only or ():
        if not any(chosen(contender, {name}) for contender in everyone):
            parser.error(f"{name}: none of {', '.join(contender.name for contender in everyone)}")
    args.csv = args.csv or (WORK / "part.csv" if args.rows or args.queries else RESULTS)
    subprocess.run(["cargo", "build", "--release", "--features", "cli"], cwd=ROOT, check=True)
    run = Run(args, failed)
    for folder in args.data:
        data, shape = prepare(folder, args.rows, args.queries, [SUITES[name] for name in names])
        for name in names:
            run.suite(name, SUITES[name], data, shape)
    print(report.text(run.rows))
    for (dataset, suite, contender), reason in run.skipped.items():
        print(f"left out: {contender} ({dataset}, {suite}): {reason}")


if __name__ == "__main__":
    main()
