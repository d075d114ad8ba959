#!/usr/bin/env python3
"""Twindex beside hnswlib: the same vectors, queries and settings, in turn A B A B, by CPU time.

    python3 benches/peers/run.py DATA [--rounds 5] [--builds 3] [--csv FILE]

DATA holds base.npy (or base.f16.npy), queries likewise, and truth_ip_top100.i32.npy, for the inner product. The peers are
installed into a virtual environment of their own (target/peers). Each round loads each index in a process of its own and
sweeps `ef`; queries per CPU second at a recall are interpolated between the `ef` on either side (log-linear) and the
medians over rounds are compared, so that a machine busy with other things does the ratio little harm.
"""

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "peers"
M, EF_CONSTRUCTION, K = 16, 200, 10
EFS = [16, 24, 32, 48, 64, 96, 128, 192]


def in_environment():
    """Starts this script again with the peers' Python."""
    python = WORK / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(WORK / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "numpy", "hnswlib"], check=True)
    if Path(sys.prefix) != WORK / "venv":
        os.execv(python, [str(python), __file__, *sys.argv[1:]])


def load(folder, name):
    import numpy as np

    for file in (f"{name}.npy", f"{name}.f16.npy"):
        if (folder / file).exists():
            return np.load(folder / file).astype(np.float32)
    sys.exit(f"{folder}: no {name}.npy")


# ---- One contender, one task; each run in a process of its own, printing a line of JSON


def hnswlib_task(task, folder):
    import time

    import hnswlib
    import numpy as np

    queries = load(folder, "queries")
    index = hnswlib.Index("ip", queries.shape[1])
    path = str(WORK / "hnswlib.bin")
    if task == "build":
        base = load(folder, "base")
        start = time.process_time()
        index.init_index(len(base), M=M, ef_construction=EF_CONSTRUCTION)
        index.add_items(base, num_threads=1)
        print(json.dumps({"cpu_seconds": time.process_time() - start}))
        index.save_index(path)
        return
    truth = np.load(folder / "truth_ip_top100.i32.npy")[:, :K]
    index.load_index(path)
    results = []
    for ef in EFS:
        index.set_ef(ef)
        index.knn_query(queries[:100], k=K, num_threads=1)
        start = time.process_time()
        found = index.knn_query(queries, k=K, num_threads=1)[0]
        seconds = time.process_time() - start
        hits = sum(len(np.intersect1d(a, b)) for a, b in zip(found, truth))
        results.append({"ef": ef, "recall": hits / truth.size, "cpu_qps": len(queries) / seconds})
    print(json.dumps({"results": results}))


def hnswlib(task, folder):
    command = [sys.executable, __file__, str(folder), "--task", task]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def twindex(task, folder):
    binary, path, report = ROOT / "target" / "release" / "twindex", WORK / "twindex.twx", WORK / "twindex.json"
    files = {name: WORK / f"{name}.npy" for name in ("base", "queries")}
    if task == "build":
        options = ["build", "--input", files["base"], "--output", path, "--metric", "ip", "--threads", "1"]
        options += ["--m", M, "--ef-construction", EF_CONSTRUCTION]
    else:
        truth = folder / "truth_ip_top100.i32.npy"
        options = ["bench", path, "--queries", files["queries"], "--truth", truth, "--k", K, "--rounds", 1]
        options += ["--ef", ",".join(map(str, EFS)), "--resident"]
    subprocess.run([binary, *map(str, options), "--json", report], check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())


# ---- The comparison


def at_recall(results, recall):
    """Queries per CPU second at `recall`, between the two settings around it."""
    points = sorted((r["recall"], r["cpu_qps"]) for r in results)
    for (r0, q0), (r1, q1) in zip(points, points[1:]):
        if r0 < recall <= r1:
            return math.exp(math.log(q0) + (recall - r0) / (r1 - r0) * (math.log(q1) - math.log(q0)))
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    in_environment()
    if args.task:
        return hnswlib_task(args.task, args.data)

    import numpy as np

    subprocess.run(["cargo", "build", "--release", "--features", "cli"], cwd=ROOT, check=True)
    for name in ("base", "queries"):
        np.save(WORK / f"{name}.npy", load(args.data, name))

    contenders = {"hnswlib": hnswlib, "twindex": twindex}
    rows, builds, sweeps = [], {name: [] for name in contenders}, {name: [] for name in contenders}
    for turn in range(args.builds):
        for name, run in contenders.items():
            seconds = run("build", args.data)["cpu_seconds"]
            builds[name].append(seconds)
            rows.append({"contender": name, "round": turn, "build_cpu_s": round(seconds, 2)})
    for turn in range(args.rounds):
        for name, run in contenders.items():
            results = run("search", args.data)["results"]
            sweeps[name].append(results)
            rows += [{"contender": name, "round": turn, **{k: r[k] for k in ("ef", "recall", "cpu_qps")}} for r in results]

    print(f"\nbuild, CPU seconds on one thread (medians of {args.builds})")
    build = {name: statistics.median(seconds) for name, seconds in builds.items()}
    for name, seconds in build.items():
        print(f"  {name:8} {seconds:8.1f}")
    print(f"  ratio    {build['twindex'] / build['hnswlib']:8.3f}")
    for recall in (0.90, 0.95, 0.97, 0.99):
        print(f"queries per CPU second at recall@{K} = {recall} (medians of {args.rounds})")
        median = {}
        for name, rounds in sweeps.items():
            values = [q for q in (at_recall(results, recall) for results in rounds) if q]
            median[name] = statistics.median(values) if values else math.nan
            print(f"  {name:8} {median[name]:8.0f}")
        print(f"  ratio    {median['twindex'] / median['hnswlib']:8.3f}")
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["contender", "round", "build_cpu_s", "ef", "recall", "cpu_qps"])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
