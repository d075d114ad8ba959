#!/usr/bin/env python3
"""Writes segment files by hand, from src/segment/FORMAT.md alone: a check on the crate's writer and reader.

Run in this folder: python3 make.py.

    v1-hnsw.twx   three rows under cosine (one of them removed, its key taken over by a live one), level 0 with m = 2
                  and one upper level
    v1-int4.twx   the same graph and keys over 4-bit rows of odd dimension, centred, with originals in f16
    v1-f16.twx    two f16 rows under L2, without a graph and without originals: with fingerprints
"""

import math
import struct
import zlib

NO_ENTRY = 0xFFFFFFFF


def crc(data):
    return zlib.crc32(data) & 0xFFFFFFFF


def words(values):
    return b"".join(struct.pack("<I", v) for v in values)


def floats(values):
    return b"".join(struct.pack("<f", v) for v in values)


def halves(values):
    return b"".join(struct.pack("<e", v) for v in values)


def segment(name, flags, meta, sections):
    """Puts header, META, sections and what follows from them into a file. `sections`: (tag, bytes an element, data)."""
    sections = [(1, 1, meta)] + sections
    table = b""
    at = 64
    places = []
    for tag, element, data in sections + [(11, 4, None)]:
        at = -(-at // 64) * 64
        places.append(at)
        if data is None:
            data = bytes(4 * -(-at // 65536))
        table += struct.pack("<IIQQQ", tag, element, at, len(data), len(data) // element)
        at += len(data)
    table_offset = -(-at // 64) * 64
    file_len = table_offset + len(table) + 8

    header = b"\x89TWX\r\n\x1a\n"
    header += struct.pack("<IIQQI", 1, flags, file_len, table_offset, len(places)) + bytes(24)
    header += struct.pack("<I", crc(header))

    body = bytearray(table_offset)
    body[:64] = header
    for offset, (_, _, data) in zip(places, sections):
        body[offset : offset + len(data)] = data
    end = places[-1]
    checksums = words(crc(bytes(body[i : min(i + 65536, end)])) for i in range(0, end, 65536))
    body[end : end + len(checksums)] = checksums
    tail = struct.pack("<I", crc(checksums))
    tail += struct.pack("<I", crc(header + meta + table + tail))

    with open(name, "wb") as out:
        out.write(bytes(body) + table + tail)


KEYS = [7, 5, 7]
KEYS_OF_THREE = [(2, 8, b"".join(struct.pack("<Q", key) for key in KEYS)), (3, 4, words([1, 0, 2]))]
REMOVED = (7, 1, bytes([0b001]))

LISTS = [[1, 2], [0], [1, 0]]
LEVEL1 = {1: [2], 2: [1]}
LINKS = [link for links in LISTS for link in links]
STARTS = [sum(map(len, LISTS[:i])) for i in range(3)] + [len(LINKS)] * 61
NODES = sorted(LEVEL1)
UPPER = [LEVEL1[node] for node in NODES]
OFFSETS = [sum(map(len, UPPER[:i])) for i in range(len(NODES) + 1)]
UPPER_LINKS = [link for links in UPPER for link in links]
GRAPH = [
    (8, 8, struct.pack("<Q64HQ", 0, *STARTS, len(LINKS))),
    (9, 4, words(LINKS)),
    (10, 4, words(NODES + OFFSETS + UPPER_LINKS)),
]


def graph_meta(dimension, metric, encoding, stride, originals, quantizer_flags, quantizer_seed):
    meta = struct.pack("<IBBBB", dimension, metric, encoding, 1, 1)  # hnsw, one upper level
    meta += struct.pack("<QQII", 3, 1, stride, 50)  # rows, tombstones, stride, ef
    meta += struct.pack("<IIQIIQ", 2, 100, 42, 2, 0, len(LINKS))  # m, ef_construction, seed, entry point, links
    meta += struct.pack("<BBHIQ", originals, quantizer_flags, 0, 0, quantizer_seed)
    meta += bytes(48)
    return meta + struct.pack("<IIQ", len(NODES), 0, len(UPPER_LINKS))


def f32_hnsw():
    rows = [(3.0, 4.0), (0.0, 2.0), (-1.0, 0.0)]
    meta = graph_meta(2, 2, 0, 8, 0, 0, 0)
    codes = (4, 8, b"".join(map(floats, rows)))
    factors = (5, 4, floats([0.2, 0.5, 1.0]))
    segment("v1-hnsw.twx", 0, meta, KEYS_OF_THREE + [codes, factors, REMOVED] + GRAPH)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def int4_row(vector, centre):
    """Under cosine, without rotation: component j in the low, component j + half in the high nibble of byte j."""
    norm = math.sqrt(dot(vector, vector))
    residual = [x / norm - c for x, c in zip(vector, centre)]
    step = max(map(abs, residual)) / 7.5
    codes = [min(15, max(0, round(r / step + 7.5))) for r in residual]
    scale = dot(residual, residual) / dot(residual, [c - 7.5 for c in codes])
    half = -(-len(codes) // 2)
    high = codes[half:] + [0] * (2 * half - len(codes))
    return bytes(l | h << 4 for l, h in zip(codes, high)) + floats([scale, dot(centre, residual)])


def int4_hnsw():
    rows = [(3.0, 4.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 0.0, 0.0)]
    centre = [-0.125, 0.25, 0.375]
    meta = graph_meta(3, 2, 3, 10, 1, 2, 77)
    codes = (4, 10, b"".join(int4_row(row, centre) for row in rows))
    originals = (6, 6, b"".join(map(halves, rows)))
    segment("v1-int4.twx", 1, meta, KEYS_OF_THREE + [(12, 4, floats(centre)), codes, REMOVED] + GRAPH + [originals])


def f16_flat():
    rows = [(0.1, -2.0, 1e-7), (1.0, 0.5, 300.0)]
    meta = struct.pack("<IBBBBQQII", 3, 0, 1, 0, 0, 2, 0, 6, 30)
    meta += struct.pack("<IIQIIQ", 0, 0, 0, NO_ENTRY, 0, 0) + bytes(64)
    keys = [(2, 8, struct.pack("<QQ", 9, 4)), (3, 4, words([1, 0]))]
    flushed = [[x if abs(x) >= 2.0**-14 else 0.0 for x in row] for row in rows]
    codes = (4, 6, b"".join(map(halves, flushed)))
    fingerprints = (13, 4, words(crc(floats(row)) for row in rows))
    segment("v1-f16.twx", 1, meta, keys + [codes, fingerprints])


f32_hnsw()
int4_hnsw()
f16_flat()
