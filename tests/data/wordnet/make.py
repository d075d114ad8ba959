#!/usr/bin/env python3
"""Makes the bundled set from the full one: `make.py SOURCE OUT` (needs numpy).

SOURCE holds base.f16.npy, texts.txt, queries.f16.npy and queries.txt of the full set (see README.md). The result is
deterministic: the first ROWS rows, every (queries / QUERIES)-th query, and the exact top K of each, computed in
float64 over the values widened from float16, ties going to the smaller row number.
"""

import sys
from pathlib import Path

import numpy as np

ROWS, QUERIES, K = 10_000, 200, 100


def lines(path):
    return path.read_bytes().decode("utf-8").rstrip("\n").split("\n")


def write_lines(path, texts):
    path.write_bytes(("\n".join(texts) + "\n").encode("utf-8"))


def main(source, out):
    out.mkdir(parents=True, exist_ok=True)
    base = np.load(source / "base.f16.npy", mmap_mode="r")[:ROWS].copy()
    texts = lines(source / "texts.txt")[:ROWS]
    all_queries = np.load(source / "queries.f16.npy")
    chosen = np.arange(QUERIES) * len(all_queries) // QUERIES
    queries = all_queries[chosen].copy()
    query_texts = lines(source / "queries.txt")
    query_texts = [query_texts[i] for i in chosen]
    assert base.dtype == queries.dtype == np.float16
    assert len(base) == len(texts) == ROWS and len(queries) == len(query_texts) == QUERIES

    products = queries.astype(np.float64) @ base.astype(np.float64).T
    # lexsort: the last key is the first criterion.
    order = np.stack([np.lexsort((np.arange(ROWS), -p))[:K] for p in products])

    np.save(out / "base.f16.npy", base)
    np.save(out / "queries.f16.npy", queries)
    np.save(out / "truth.i32.npy", order.astype(np.int32))
    np.save(out / "truth.f32.npy", np.take_along_axis(products, order, axis=1).astype(np.float32))
    write_lines(out / "texts.txt", texts)
    write_lines(out / "queries.txt", query_texts)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: make.py SOURCE OUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
