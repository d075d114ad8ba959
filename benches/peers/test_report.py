"""The maths of report.py: python3 -m unittest discover benches/peers"""

import math
import unittest

import report


def search(contender, round, recall, qps, **more):
    row = dict.fromkeys("suite stage contender k ef rerank threads batch round recall cpu_qps wall_qps".split(), "")
    row |= {"suite": "graph", "stage": "search", "k": "10", "threads": "1", "dataset": "set", "dimension": "768"}
    row |= {"contender": contender, "round": str(round), "recall": str(recall), "cpu_qps": str(qps)}
    return row | more


class Maths(unittest.TestCase):
    def test_the_frontier_leaves_out_what_is_beaten_in_both(self):
        points = [(0.9, 100), (0.95, 80), (0.94, 70), (0.99, 20), (0.95, 60), (0.8, 90)]
        self.assertEqual(report.frontier(points), [(0.9, 100), (0.95, 80), (0.99, 20)])
        self.assertEqual(report.frontier([]), [])

    def test_between_two_points_the_logarithm_is_linear(self):
        points = [(0.9, 400), (1.0, 100)]
        self.assertAlmostEqual(report.at_recall(points, 0.95), 200)
        self.assertAlmostEqual(report.at_recall(points, 0.925), math.exp(math.log(400) - 0.25 * math.log(4)))
        self.assertAlmostEqual(report.at_recall(points, 1.0), 100)

    def test_a_recall_below_the_sweep_is_had_at_its_greatest_speed_and_one_above_not_at_all(self):
        points = [(0.9, 400), (0.98, 100)]
        self.assertEqual(report.at_recall(points, 0.5), 400)
        self.assertIsNone(report.at_recall(points, 0.99))
        self.assertIsNone(report.at_recall([], 0.9))

    def test_of_several_reranks_the_best_curve_counts(self):
        rows = [search("a", 0, recall, qps, ef=str(ef)) for ef, (recall, qps) in enumerate([(0.90, 500), (0.93, 300)])]
        sweep = enumerate([(0.92, 450), (0.97, 150)])
        rows += [search("a", 0, recall, qps, ef=str(ef), rerank="2") for ef, (recall, qps) in sweep]
        data = report.Measured(rows)
        self.assertAlmostEqual(data.speed("a", 10, 0.90), 500)
        self.assertAlmostEqual(data.speed("a", 10, 0.93), 450 * 3**-0.2)
        self.assertIsNone(data.speed("a", 10, 0.98))

    def test_medians_over_rounds_come_before_the_curve(self):
        rows = [search("a", i, 0.95, qps, ef="40") for i, qps in enumerate((100, 900, 110))]
        rows += [search("a", 0, 0.95, 5000, ef="40", threads="2")]
        data = report.Measured(rows)
        self.assertEqual(data.points(contender="a", threads=1), {("10", "40", "", "1", ""): (0.95, 110)})
        self.assertEqual(data.speed("a", 10, 0.95), 110)
        self.assertIsNone(data.speed("b", 10, 0.95))

    def test_two_threads_are_compared_at_the_settings_both_have(self):
        rows = [search("a", 0, 0.9, 100, ef="40"), search("a", 0, 0.9, 80, ef="40", threads="2")]
        rows += [search("a", 0, 0.95, 10, ef="80")]
        self.assertAlmostEqual(report.threads_ratio(report.Measured(rows), "a", "cpu_qps"), 1.25)

    def test_goals_are_ticked_by_their_own_sign(self):
        rows = []
        for name, speed, seconds in (("hnswlib", 100, 10), ("twindex:f32", 130, 6)):
            rows.append(search(name, 0, 0.95, speed, ef="40"))
            build = {"stage": "build", "threads": "2", "build_cpu_s": str(seconds), "build_wall_s": "1"}
            rows.append(search(name, 0, "", "", **build))
        for row in rows:
            row["bytes_row"] = "3200"
        found = {row[0]: row for row in report.goals(report.Measured(rows))[1]}
        expected = ["1.30 ✓", "twindex:f32 130", "hnswlib 100"]
        self.assertEqual(found["f32, recall@10 0.95, ÷ best f32 graph"][2:], expected)
        self.assertEqual(found["build on 2 threads, CPU s, ÷ hnswlib"][1:3], ["≤ 0.5", "0.60 ✗"])
        self.assertNotIn("compact, recall@10 0.95, ÷ hnswlib", found)

    def test_the_page_is_changed_between_its_markers_only(self):
        begin, end = report.MARKERS
        page = f"before\n{begin}\nold\n{end}\nafter"
        self.assertEqual(report.between_markers(page, "new"), f"before\n{begin}\n\nnew\n\n{end}\nafter")
        with self.assertRaises(SystemExit):
            report.between_markers("no markers", "new")


if __name__ == "__main__":
    unittest.main()
