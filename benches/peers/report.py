#!/usr/bin/env python3
"""Tables of what run.py measured: queries a second at equal recall, builds, scans, and how far the goals are reached.

    python3 benches/peers/report.py [CSV] [--readme]

At equal recall: the medians over rounds at each `ef` are points of recall and speed; those that no other point beats in
both are the curve, and between two of them the logarithm of the speed is linear in the recall. Where there are several
`rerank`, each has its curve, and the best of them counts.
--readme writes the part of README.md between its markers anew.
"""

import argparse
import csv
import math
import statistics
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results" / "peers.csv"
MARKERS = "<!-- peers:begin -->", "<!-- peers:end -->"
TARGETS = [(10, 0.95), (10, 0.98), (10, 0.99), (100, 0.95), (100, 0.975)]

FULL_PEERS = ["hnswlib", "faiss:f32", "usearch:f32", "zvec:f32", "svs:f32"]
COMPACT_PEERS = ["rabitq:7", "rabitq:4", "faiss:f16", "faiss:sq8", "usearch:i8", "zvec:fp16", "zvec:int8"]
LVQ_PEERS = ["svs:lvq8", "svs:lvq4x8", "svs:lvq4x4"]
NEIGHBOUR_CODES = ["symqg", "symqg:8"]
FLAT_F32 = ["faiss-flat:f32", "usearch-flat:f32", "zvec-flat:f32"]
FLAT_WIDTHS = {
    "int8": ["faiss-flat:sq8", "usearch-flat:i8", "zvec-flat:int8", "zvec-flat:int8+rotate"],
    "int4": ["faiss-flat:sq4", "zvec-flat:int4", "zvec-flat:int4+rotate"],
}
# A row of a compact index takes at most so much for each dimension.
COMPACT_BYTES = 1024 / 768


# ---- The maths


def frontier(points):
    """Of (recall, speed) those that no other beats in both, by rising recall."""
    kept, fastest = [], -math.inf
    for recall, speed in sorted(points, reverse=True):
        if speed > fastest:
            kept.append((recall, speed))
            fastest = speed
    return kept[::-1]


def at_recall(points, target):
    """The speed at a recall; None where it is not reached."""
    curve = frontier(points)
    if not curve or curve[-1][0] < target:
        return None
    if target <= curve[0][0]:
        return curve[0][1]
    for (r0, s0), (r1, s1) in zip(curve, curve[1:]):
        if r0 < target <= r1:
            part = (target - r0) / (r1 - r0)
            return math.exp(math.log(s0) + part * (math.log(s1) - math.log(s0)))
    return None


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ratio(value, other):
    return value / other if value and other else None


def best(named, reverse=True):
    """The name and value of the greatest (or least) value that there is."""
    known = {name: value for name, value in named.items() if value}
    if not known:
        return None, None
    name = (max if reverse else min)(known, key=known.get)
    return name, known[name]


# ---- The measurements of one data set


class Measured:
    def __init__(self, rows):
        self.rows = rows

    def of(self, **wanted):
        """Rows with these values; None stands for an empty cell."""
        text = {name: "" if value is None else str(value) for name, value in wanted.items()}
        return [row for row in self.rows if all(row[name] == value for name, value in text.items())]

    def contenders(self, suite):
        return list(dict.fromkeys(row["contender"] for row in self.of(suite=suite)))

    def points(self, figure="cpu_qps", **wanted):
        """Setting → (recall, speed), the median over rounds."""
        rounds = defaultdict(list)
        for row in self.of(stage="search", **wanted):
            setting = tuple(row[name] for name in ("k", "ef", "rerank", "threads", "batch"))
            rounds[setting].append((float(row["recall"]), float(row[figure])))
        return {key: tuple(map(statistics.median, zip(*seen))) for key, seen in rounds.items()}

    def speed(self, contender, k, target, suite="graph"):
        """The best of the curves, one for each `rerank`."""
        curves = defaultdict(list)
        for (_, _, rerank, _, _), point in self.points(suite=suite, contender=contender, k=k, threads=1).items():
            curves[rerank].append(point)
        return best({rerank: at_recall(points, target) for rerank, points in curves.items()})[1]

    def speeds(self, contenders, k, target):
        return {name: self.speed(name, k, target) for name in contenders}

    def built(self, suite, contender, figure, threads):
        rows = self.of(suite=suite, stage="build", contender=contender, threads=threads)
        return median(float(row[figure]) for row in rows if row[figure])

    def searched(self, suite, contender, figure):
        rows = self.of(suite=suite, stage="search", contender=contender)
        return median(float(row[figure]) for row in rows if row[figure])

    def bytes_row(self, suite, contender):
        rows = self.of(suite=suite, contender=contender)
        return float(rows[-1]["bytes_row"]) if rows else None

    def scan(self, contender, k, batch, rerank=None):
        """(recall, speed) of a flat index."""
        points = self.points(suite="flat", contender=contender, k=k, batch=batch)
        wanted = "" if rerank is None else f"{rerank:g}"
        return next((point for key, point in points.items() if key[2] == wanted), (None, None))

    @property
    def compact(self):
        dimension = float(self.rows[0]["dimension"])
        ours = [name for name in self.contenders("graph") if name.startswith("twindex") and "mapped" not in name]
        return [name for name in ours if (self.bytes_row("graph", name) or math.inf) <= COMPACT_BYTES * dimension]

    @property
    def ours(self):
        return [name for name in self.contenders("graph") if name.startswith("twindex") and "mapped" not in name]


# ---- Tables: a header and rows of cells


def shown(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def graph_table(data):
    header = ["graph", *(f"recall@{k} {target:g}" for k, target in TARGETS), "bytes/row", "file MB", "open ms"]
    header += ["anonymous MB", "peak MB"]
    rows = []
    for name in data.contenders("graph"):
        speeds = [data.speed(name, k, target) for k, target in TARGETS]
        sizes = [data.bytes_row("graph", name), data.searched("graph", name, "file_mb")]
        memory = [data.searched("graph", name, figure) for figure in ("open_ms", "anon_mb", "peak_rss_mb")]
        rows.append((speeds, [name, *map(shown, speeds + sizes), shown(memory[0], 1), *map(shown, memory[1:])]))
    rows.sort(key=lambda row: [-(speed or 0) for speed in row[0]])
    return header, [cells for _, cells in rows]


def build_table(data, suite):
    figures = [("build_cpu_s", 1), ("build_wall_s", 1), ("build_cpu_s", 2), ("build_wall_s", 2)]
    header = ["build", "CPU s, 1 thread", "wall s", "CPU s, 2 threads", "wall s", "peak MB", "anonymous MB"]
    header += ["recall@10 at ef 40", "at 160"] if suite == "graph" else []
    rows = []
    for name in data.contenders(suite):
        if not data.of(suite=suite, stage="build", contender=name):
            continue
        cells = [name, *(shown(data.built(suite, name, figure, threads), 1) for figure, threads in figures)]
        cells += [shown(data.built(suite, name, figure, 2)) for figure in ("peak_rss_mb", "anon_mb")]
        for ef in (40, 160) if suite == "graph" else ():
            points = data.points(suite=suite, contender=name, k=10, ef=ef, threads=1).values()
            cells.append(shown(max((recall for recall, _ in points), default=None), 4))
        rows.append(cells)
    return header, rows


def flat_table(data):
    header = ["flat", "rerank", "recall@10", "scans/s, k 10", "recall@100", "scans/s, k 100", "64 at a time"]
    header += ["bytes/row"]
    rows = []
    for name in data.contenders("flat"):
        for rerank in dict.fromkeys(row["rerank"] for row in data.of(suite="flat", stage="search", contender=name)):
            rerank = float(rerank) if rerank else None
            tens, hundreds, batch = (data.scan(name, k, b, rerank) for k, b in ((10, 1), (100, 1), (100, 64)))
            cells = [name, "" if rerank is None else f"{rerank:g}", shown(tens[0], 4), shown(tens[1], 1)]
            cells += [shown(hundreds[0], 4), shown(hundreds[1], 1), shown(batch[1], 1)]
            rows.append([*cells, shown(data.bytes_row("flat", name))])
    return header, rows


def seeds_table(data):
    header = ["m 50, ef_construction 500", "ef", "rerank", "recall@100", "queries/s"]
    rows = []
    for name in data.contenders("seeds"):
        for (_, ef, rerank, threads, _), (recall, speed) in data.points(suite="seeds", contender=name).items():
            if threads == "1":
                rows.append([name, ef, rerank, shown(recall, 4), shown(speed)])
    return header, rows


def threads_table(data):
    """How much more CPU a query and an inserted row take on two threads, and how much less time."""
    header = ["2 threads ÷ 1", "CPU a query", "wall a query", "CPU a row built", "wall a row built"]
    rows = []
    for name in data.contenders("graph"):
        cells = [shown(threads_ratio(data, name, figure), 2) for figure in ("cpu_qps", "wall_qps")]
        for figure in ("build_cpu_s", "build_wall_s"):
            built = ratio(data.built("graph", name, figure, 2), data.built("graph", name, figure, 1))
            cells.append(shown(built, 2))
        if set(cells) != {"–"}:
            rows.append([name, *cells])
    return header, rows


def threads_ratio(data, name, figure):
    """Time a query on two threads ÷ on one: the median over the settings that both have."""
    one, two = (data.points(figure, suite="graph", contender=name, threads=threads) for threads in (1, 2))
    both = {key: (k, ef, rerank, "1", batch) for key in two for k, ef, rerank, _, batch in [key]}
    return median(ratio(one[key][1], two[other][1]) for other, key in both.items() if key in one)


# ---- The goals


def goals(data):
    header = ["goal", "wanted", "ratio", "Twindex", "beside"]
    rows = []

    def add(text, wanted, ours, theirs, smaller=False):
        """`ours` and `theirs` are (name, value)."""
        value = ratio(ours[1], theirs[1])
        reached = ""
        if value and wanted:
            reached = " ✓" if (value <= wanted if smaller else value >= wanted) else " ✗"
        sign = ("≤ " if smaller else "≥ ") + f"{wanted:g}" if wanted else "report"
        rows.append([text, sign, shown(value, 2) + reached, *(named(*side) for side in (ours, theirs))])

    for target in (0.95, 0.99):
        ours = ("twindex:f32", data.speed("twindex:f32", 10, target))
        add(f"f32, recall@10 {target}, ÷ best f32 graph", 1.2, ours, best(data.speeds(FULL_PEERS, 10, target)))
    for target, wanted in ((0.95, 4), (0.99, 3.5)):
        ours = best(data.speeds(data.compact, 10, target))
        add(f"compact, recall@10 {target}, ÷ hnswlib", wanted, ours, ("hnswlib", data.speed("hnswlib", 10, target)))
    for k, targets, wanted in ((10, (0.95, 0.99), 1.3), (100, (0.95, 0.975), 1.2)):
        for target in targets:
            ours = best(data.speeds(data.compact if k == 10 else data.ours, k, target))
            which = "compact" if k == 10 else "best encoding"
            for group, goal, peers in (
                ("best compact peer", wanted, COMPACT_PEERS),
                ("best of SVS LVQ", None, LVQ_PEERS),
                ("SymphonyQG", None, NEIGHBOUR_CODES),
            ):
                theirs = best(data.speeds(peers, k, target))
                add(f"{which}, recall@{k} {target}, ÷ {group}", goal, ours, theirs)
    for figure, word in (("build_cpu_s", "CPU"), ("build_wall_s", "wall")):
        for name in data.ours:
            ours, theirs = ((who, data.built("graph", who, figure, 2)) for who in (name, "hnswlib"))
            add(f"build on 2 threads, {word} s, ÷ hnswlib", 0.5, ours, theirs, smaller=True)
    for peer in ("zvec:f32", "zvec:int8", "hnswlib"):
        asked = data.points(suite="seeds", contender=peer, threads=1)
        recall, speed = next(iter(asked.values()), (None, None))
        names = [name for name in data.contenders("seeds") if name.startswith("twindex")]
        if recall is not None:
            ours = best({name: data.speed(name, 100, recall, "seeds") for name in names})
            add(f"m 50, ef 300, k 100: queries/s ÷ {peer} at its recall {recall:.4f}", 1.5, ours, (peer, speed))
        for figure, word in (("build_cpu_s", "CPU"), ("build_wall_s", "wall")):
            ours = best({name: data.built("seeds", name, figure, 2) for name in names}, reverse=False)
            theirs = (peer, data.built("seeds", peer, figure, 2))
            add(f"m 50, ef_construction 500: build, {word} s, ÷ {peer}", 0.5, ours, theirs, smaller=True)
    for name in data.ours:
        value = threads_ratio(data, name, "cpu_qps")
        add("2 threads ÷ 1: CPU a query", 1.08, (name, value), ("", 1.0), smaller=True)
        value = ratio(data.built("graph", name, "build_cpu_s", 2), data.built("graph", name, "build_cpu_s", 1))
        add("2 threads ÷ 1: CPU a row built", 1.08, (name, value), ("", 1.0), smaller=True)
    for mapped in (name for name in data.contenders("graph") if name.endswith("-mapped")):
        one, other = (data.points(suite="graph", contender=name, k=10, threads=1) for name in (mapped, mapped[:-7]))
        value = median(ratio(one[key][1], other[key][1]) for key in one if key in other)
        add("mapped ÷ resident, queries/s at the same settings", 0.7, (mapped, value), ("", 1.0))
    for width, peers, wanted in (("int8", FLAT_WIDTHS["int8"], 1.8), ("int4", FLAT_WIDTHS["int4"], 3)):
        name = f"twindex-flat:{width}"
        recall, speed = data.scan(name, 100, 1)
        # Twindex may be reranked where a peer finds more than its codes do.
        for peer, (theirs, their_speed) in [best_scan(data, peers)] if recall else []:
            points = data.points(suite="flat", contender=name, k=100, batch=1).values()
            ours = max((s for r, s in points if r >= theirs), default=None)
            text = f"flat {width}, one query, ÷ best peer ({theirs:.4f} recall@100)"
            add(text, wanted, (name, ours), (peer, their_speed))
    f32, int8, faiss = (
        (name, data.scan(name, 100, 64)[1]) for name in ("twindex-flat:f32", "twindex-flat:int8", "faiss-flat:f32")
    )
    add("flat f32, 64 queries, ÷ faiss", 1.0, f32, faiss)
    add("flat int8, 64 queries, ÷ f32", 1.4, int8, f32)
    sure = {}
    for name in (name for name in data.contenders("flat") if name.startswith("twindex")):
        points = data.points(suite="flat", contender=name, k=100, batch=1)
        for (_, _, rerank, _, _), (recall, speed) in points.items():
            if rerank and recall >= 0.999:
                sure[f"{name} × {rerank}"] = speed
    exact = best({name: data.scan(name, 100, 1)[1] for name in FLAT_F32})
    add("flat, two stages, recall@100 ≥ 0.999, ÷ best exact f32 scan", 6, best(sure), exact)
    return header, [row for row in rows if row[2] != "–"]


def named(name, value):
    return "–" if value is None else f"{name} {shown(value, 0 if value >= 100 else 2)}"


def best_scan(data, peers):
    """The fastest peer's name and (recall, speed), 100 neighbours, one query at a time."""
    scans = {peer: data.scan(peer, 100, 1) for peer in peers}
    name, _ = best({peer: speed for peer, (_, speed) in scans.items()})
    return name, scans.get(name)


# ---- Text


def aligned(table):
    header, rows = table
    widths = [max(len(cells[i]) for cells in [header, *rows]) for i in range(len(header))]
    lines = []
    for cells in [header, *rows]:
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
        lines.append("  ".join([cells[0].ljust(widths[0]), *rest]).rstrip())
    return "\n".join(lines)


def markdown(table):
    header, rows = table
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def datasets(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["dataset"]].append(row)
    return {name: Measured(rows) for name, rows in found.items()}


def about(data):
    """What was measured, on what, and whether in one run."""
    row = data.rows[0]
    rounds = 1 + max(int(row["round"]) for row in data.rows)
    runs = len({(row["suite"], row["started"]) for row in data.rows}) - len({row["suite"] for row in data.rows})
    text = f"{int(row['rows']):,} × {row['dimension']}, {row['machine']}, medians of {rounds} rounds"
    return text + (", not all of them in one run" if runs else "")


def text(rows):
    parts = []
    for name, data in datasets(rows).items():
        parts.append(f"{name}: {about(data)}; queries per CPU second on one thread")
        tables = [("graph", graph_table), ("graph", lambda d: build_table(d, "graph")), ("graph", threads_table)]
        tables += [("flat", flat_table), ("seeds", seeds_table), ("seeds", lambda d: build_table(d, "seeds"))]
        made = [table(data) for suite, table in tables if data.of(suite=suite)] + [goals(data)]
        parts += [aligned(table) for table in made if table[1]]
    return "\n\n".join(parts)


def readme_table(data):
    """Graphs whose codes are in memory, in short."""
    targets = [(10, 0.95), (10, 0.99), (100, 0.95)]
    header = ["", *(f"recall@{k} = {target:g}" for k, target in targets), "build, CPU s", "bytes a row"]
    rows = []
    for name in (name for name in data.contenders("graph") if not name.endswith("-mapped")):
        speeds = [data.speed(name, k, target) for k, target in targets]
        built = data.built("graph", name, "build_cpu_s", 1)
        label = f"**{name}**" if name.startswith("twindex") else name
        rows.append((speeds, [label, *map(shown, [*speeds, built, data.bytes_row("graph", name)])]))
    rows.sort(key=lambda row: [-(speed or 0) for speed in row[0]])
    return header, [cells for _, cells in rows]


def readme(rows):
    parts = []
    for name, data in datasets(rows).items():
        if data.of(suite="graph"):
            parts.append(f"{name}, {about(data)}:")
            parts.append(markdown(readme_table(data)))
    return "\n\n".join(parts)


def between_markers(page, content):
    begin, end = MARKERS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"README.md has not one {begin} and one {end}")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--readme", action="store_true")
    args = parser.parse_args()
    with args.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if args.readme:
        page = ROOT / "README.md"
        page.write_text(between_markers(page.read_text(), readme(rows)))
    else:
        print(text(rows))


if __name__ == "__main__":
    main()
