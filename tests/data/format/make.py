#!/usr/bin/env python3
"""Writes v1-hnsw.twx by hand, from src/segment/FORMAT.md alone: a check on the crate's writer and reader.

Run in this folder: python3 make.py. The file holds three rows under cosine (one of them removed, its key taken over by
a live one), level 0 with m = 2 and one upper level.
"""

import struct
import zlib

ROWS = [(3.0, 4.0), (0.0, 2.0), (-1.0, 0.0)]
KEYS = [7, 5, 7]
REMOVED = 0b001
FACTORS = [0.2, 0.5, 1.0]
LISTS = [[1, 2], [0], [1, 0]]
LEVEL1 = {1: [2], 2: [1]}


def crc(data):
    return zlib.crc32(data) & 0xFFFFFFFF


def words(values):
    return b"".join(struct.pack("<I", v) for v in values)


links = [link for links in LISTS for link in links]
starts = [sum(map(len, LISTS[:i])) for i in range(3)] + [len(links)] * 61
nodes = sorted(LEVEL1)
upper = [LEVEL1[node] for node in nodes]
offsets = [sum(map(len, upper[:i])) for i in range(len(nodes) + 1)]
upper_links = [link for links in upper for link in links]

meta = struct.pack("<IBBBB", 2, 2, 0, 1, 1)  # dimension, cosine, f32, hnsw, one upper level
meta += struct.pack("<QQII", 3, 1, 8, 50)  # rows, tombstones, stride, ef
meta += struct.pack("<IIQIIQ", 2, 100, 42, 2, 0, len(links))  # m, ef_construction, seed, entry point, links
meta += bytes(64)
meta += struct.pack("<IIQ", len(nodes), 0, len(upper_links))

sections = [
    (1, 1, meta),
    (2, 8, b"".join(struct.pack("<Q", key) for key in KEYS)),
    (3, 4, words([1, 0, 2])),
    (4, 8, b"".join(struct.pack("<2f", *row) for row in ROWS)),
    (5, 4, struct.pack("<3f", *FACTORS)),
    (7, 1, bytes([REMOVED])),
    (8, 8, struct.pack("<Q64HQ", 0, *starts, len(links))),
    (9, 4, words(links)),
    (10, 4, words(nodes + offsets + upper_links)),
    (11, 4, bytes(4)),
]

table = b""
at = 64
places = []
for tag, element, data in sections:
    at = -(-at // 64) * 64
    places.append(at)
    table += struct.pack("<IIQQQ", tag, element, at, len(data), len(data) // element)
    at += len(data)
table_offset = -(-at // 64) * 64
file_len = table_offset + len(table) + 8

header = b"\x89TWX\r\n\x1a\n" + struct.pack("<IIQQI", 1, 0, file_len, table_offset, len(sections)) + bytes(24)
header += struct.pack("<I", crc(header))

body = bytearray(table_offset)
body[:64] = header
for offset, (_, _, data) in zip(places, sections):
    body[offset : offset + len(data)] = data
checksums = struct.pack("<I", crc(bytes(body[: places[-1]])))
body[places[-1] : places[-1] + 4] = checksums
tail = struct.pack("<I", crc(checksums))
tail += struct.pack("<I", crc(header + meta + table + tail))

with open("v1-hnsw.twx", "wb") as out:
    out.write(bytes(body) + table + tail)
