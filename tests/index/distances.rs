//! What a distance is: one documented formula for each metric, the same on every path, nearest first.

use crate::common::oracle::{assert_well_formed, bits, distance, nearest, numbered, tolerance};
use crate::common::random::Random;
use crate::common::stored;
use crate::common::{builder, kinds_and_metrics, normal_index, top};
use twindex::{Encoding, Filter, Hit, Index, IndexKind, Level, Metric, OpenOptions, Residency};

/// The index, and the same opened in each way.
fn all_states(index: Index) -> Vec<Index> {
    let bytes = index.to_bytes().unwrap();
    let residencies = [Residency::Mapped, Residency::Resident, Residency::Owned];
    let open = |residency| OpenOptions::new().threads(1).residency(residency).from_bytes(bytes.clone()).unwrap();
    let opened: Vec<Index> = residencies.into_iter().map(open).collect();
    std::iter::once(index).chain(opened).collect()
}

// B17
#[test]
fn cosine_stays_within_its_bounds_for_parallel_vectors() {
    let mut random = Random::new(17);
    let prototypes = random.normals(20 * 384);
    let mut vectors = Vec::new();
    for i in 0..2000 {
        let scale = (0.001 + random.uniform() * 1000.0) as f32;
        vectors.extend(prototypes[i % 20 * 384..][..384].iter().map(|x| x * scale));
    }
    let index = Index::builder(384, Metric::Cosine).build().unwrap();
    index.add_batch(&(0..2000).collect::<Vec<_>>(), &vectors).unwrap();
    for row in vectors.chunks(384).step_by(13) {
        for params in [top(10), top(2000)] {
            let hits = index.search(row, &params).unwrap();
            assert!(hits.iter().all(|hit| (0.0..=2.0).contains(&hit.distance)));
            assert!(hits[0].distance < 1e-5, "{:?}", hits[0]);
        }
    }
}

// B18
#[test]
fn the_first_vector_is_as_good_as_any_and_comes_back_as_given() {
    for kind in IndexKind::ALL {
        let index = builder(kind, Metric::Cosine, 2).build().unwrap();
        index.add(5, &[3.0, 4.0]).unwrap();
        assert_eq!(bits(&index.search(&[3.0, 4.0], &top(1)).unwrap()).len(), 1);
        assert!(index.search(&[3.0, 4.0], &top(1)).unwrap()[0].distance < 1e-6);
        assert_eq!(stored(&index, 5), Some(vec![3.0, 4.0]));
        let index = builder(kind, Metric::Cosine, 2).build().unwrap();
        index.add_batch(&[1, 2], &[3.0, 4.0, -0.6, 0.8]).unwrap();
        for (key, query) in [(1, [3.0, 4.0]), (2, [-0.6, 0.8])] {
            let hits = index.search(&query, &top(1)).unwrap();
            assert!(hits[0].key == key && hits[0].distance < 1e-6, "{hits:?}");
        }
    }
}

// B19
#[test]
fn the_nearest_comes_first_under_every_metric_in_every_state() {
    for (kind, metric) in kinds_and_metrics() {
        let index = builder(kind, metric, 2).build().unwrap();
        index.add_batch(&[1, 2], &[1.0, 0.0, 0.0, 1.0]).unwrap();
        if metric != Metric::Cosine {
            index.add(3, &[0.0, 0.0]).unwrap();
        }
        assert_eq!(index.search(&[1.0, 0.0], &top(1)).unwrap()[0].key, 1, "{kind} {metric}");

        let (index, rows) = normal_index(kind, metric, 200, 12, 19);
        for index in all_states(index) {
            for query in Random::new(20).normals(20 * 12).chunks(12) {
                let hits = index.search(query, &top(200)).unwrap();
                assert_well_formed(&hits);
                for (hit, (expected, _)) in hits.iter().zip(nearest(metric, query, numbered(&rows, 12), 200)) {
                    assert!((f64::from(hit.distance) - expected).abs() < 1e-4, "{kind} {metric}: {hit:?}, {expected}");
                }
            }
        }
    }
}

// B20
#[test]
fn every_path_returns_the_documented_value() {
    let (a, b) = ([3.0, 4.0], [4.0, 3.0]);
    for (kind, metric) in kinds_and_metrics() {
        let expected = match metric {
            Metric::L2 => 2.0,
            Metric::InnerProduct => -24.0,
            _ => 0.04,
        };
        let index = builder(kind, metric, 2).build().unwrap();
        index.add(1, &b).unwrap();
        for index in all_states(index) {
            let all = |_: u64| true;
            let paths = [
                top(1),
                top(1).exact(true),
                top(1).radius(100.0),
                top(1).filter(Filter::keys(&[1])),
                top(1).filter(Filter::by(&all)),
            ];
            for params in paths {
                let alone = index.search(&a, &params).unwrap();
                let batch = index.search_batch(&a, &params).unwrap();
                assert!((alone[0].distance - expected).abs() < 1e-6, "{kind} {metric}: {alone:?}");
                assert_eq!(bits(&batch[0]), bits(&alone));
            }
        }
    }
}

// B20, B21
#[test]
fn graph_and_scan_give_a_row_the_same_bits() {
    for metric in Metric::ALL {
        let (flat, _) = normal_index(IndexKind::Flat, metric, 1500, 19, 20);
        let (hnsw, _) = normal_index(IndexKind::Hnsw, metric, 1500, 19, 20);
        for query in Random::new(21).normals(20 * 19).chunks(19) {
            let exact = bits(&flat.search(query, &top(1500)).unwrap());
            assert_eq!(exact, bits(&hnsw.search(query, &top(1500).exact(true)).unwrap()));
            let graph = bits(&hnsw.search(query, &top(32).ef(64)).unwrap());
            assert!(graph.iter().all(|hit| exact.contains(hit)), "{metric}: {graph:?}");
        }
    }
}

// B21
#[test]
fn the_radius_includes_its_edge_and_nothing_beyond() {
    let mut random = Random::new(210);
    let rows: Vec<f32> = (0..4000 * 6).map(|_| random.below(3) as f32 - 1.0).collect();
    let keys: Vec<u64> = (0..4000).collect();
    for metric in [Metric::L2, Metric::InnerProduct] {
        let build = |kind| {
            let index = builder(kind, metric, 6).build().unwrap();
            index.add_batch(&keys, &rows).unwrap();
            index
        };
        let (flat, hnsw) = (build(IndexKind::Flat), build(IndexKind::Hnsw));
        let query = [1.0, 0.0, -1.0, 1.0, 0.0, 1.0];
        let distances: Vec<f64> = rows.chunks(6).map(|row| distance(metric, &query, row)).collect();
        for radius in [-4.0f32, -3.0, -1.0, 0.0, 1.0, 2.0, 5.0, 9.0] {
            let at = |r: f32| flat.search(&query, &top(4000).radius(r)).unwrap();
            let within = distances.iter().filter(|&&d| d <= radius.into()).count();
            let ties = distances.iter().filter(|&&d| d == f64::from(radius)).count();
            assert_eq!(at(radius).len(), within, "{metric} {radius}");
            assert_eq!(at(radius.next_down()).len(), within - ties, "{metric} just below {radius}");
            let exact = at(radius);
            for k in [10, 100, 4000] {
                let hits: Vec<Hit> = hnsw.search(&query, &top(k).radius(radius)).unwrap();
                assert!(hits.iter().all(|hit| exact.contains(hit)));
                if k == 4000 {
                    assert_eq!(hits, exact);
                }
            }
        }
    }
}

// B133, B136. Cosine too, and all that lies between kernels and hits. Nothing here is built for more than the baseline of
// its target: the level is picked at run time, and each one this machine has is forced in turn.
#[test]
fn distances_of_every_level_are_those_of_the_oracle() {
    const ROWS: usize = 12;
    let mut random = Random::new(133);
    for d in 1..=200 {
        let (rows, query) = (random.normals(ROWS * d), random.normals(d));
        for (encoding, metric) in [Encoding::F32, Encoding::F16].into_iter().flat_map(|e| Metric::ALL.map(|m| (e, m))) {
            let answer = |level: Level| {
                let index = builder(IndexKind::Flat, metric, d).encoding(encoding).level(level).build().unwrap();
                index.add_batch(&(0..ROWS as u64).collect::<Vec<_>>(), &rows).unwrap();
                let hits = index.search(&query, &top(ROWS)).unwrap();
                (index, hits)
            };
            let (index, scalar) = answer(Level::Scalar);
            assert_eq!(scalar.len(), ROWS);
            for hit in &scalar {
                let row = stored(&index, hit.key).unwrap();
                let exact = distance(metric, &query, &row);
                let error = (f64::from(hit.distance) - exact).abs();
                assert!(error <= tolerance(metric, &query, &row), "{encoding} {metric} {d}: {hit:?} for {exact}");
            }
            for level in Level::available() {
                assert_eq!(bits(&answer(level).1), bits(&scalar), "{encoding} {metric} {d} {level}");
            }
        }
    }
}
