//! How many hits: k and ef from nothing to the largest number there is, on indexes from empty to all tied.

use crate::common::oracle::{assert_well_formed, bits, nearest, numbered, recall};
use crate::common::random::Random;
use crate::common::{builder, kinds_and_metrics, normal_index, top};
use std::sync::LazyLock;
use twindex::{Filter, Index, IndexKind, Metric};

static MIDDLING: LazyLock<(Index, Vec<f32>)> =
    LazyLock::new(|| normal_index(IndexKind::Hnsw, Metric::L2, 5000, 32, 26));

// B22
#[test]
fn there_are_as_many_hits_as_asked_for_or_as_there_are_rows() {
    for (kind, metric) in kinds_and_metrics() {
        for n in [0usize, 1, 2, 3, 17, 300] {
            let (index, rows) = normal_index(kind, metric, n, 7, n as u64);
            let queries = Random::new(22).normals(4 * 7);
            for k in [1, n, n + 1, 10 * n + 5] {
                let lists = index.search_batch(&queries, &top(k)).unwrap();
                assert_eq!(lists.len(), 4);
                for (query, hits) in queries.chunks(7).zip(lists) {
                    assert_eq!(hits.len(), k.min(n), "{kind} {metric} n {n} k {k}");
                    assert_well_formed(&hits);
                    assert!(hits.iter().all(|hit| hit.key < n as u64));
                    assert_eq!(bits(&hits), bits(&index.search(query, &top(k)).unwrap()));
                    let first = nearest(metric, query, numbered(&rows, 7), 1).first().map(|&(_, key)| key);
                    if k >= n {
                        assert_eq!(hits.first().map(|hit| hit.key), first);
                    }
                }
            }
        }
    }
}

// B23
#[test]
fn no_hits_asked_for_are_no_hits() {
    for (kind, metric) in kinds_and_metrics() {
        for n in [0, 1, 100] {
            let (index, _) = normal_index(kind, metric, n, 3, 23);
            let all = |_: u64| true;
            let paths = [
                top(0),
                top(0).exact(true),
                top(0).ef(1),
                top(0).radius(1.0),
                top(0).filter(Filter::by(&all)),
                top(0).filter(Filter::keys(&[0])),
            ];
            for params in paths {
                assert!(index.search(&[1.0; 3], &params).unwrap().is_empty());
                assert!(index.search_batch(&[1.0; 6], &params).unwrap().iter().all(Vec::is_empty));
            }
        }
    }
}

// B26
#[test]
fn ef_below_k_still_gives_k() {
    let (index, rows) = &*MIDDLING;
    let (mut low, mut high) = (0.0, 0.0);
    for query in Random::new(260).normals(50 * 32).chunks(32) {
        let truth = nearest(Metric::L2, query, numbered(rows, 32), 50);
        let of = |k, ef| {
            let hits = index.search(query, &top(k).ef(ef)).unwrap();
            assert_eq!(hits.len(), k);
            assert_well_formed(&hits);
            recall(&hits, &truth)
        };
        of(1, 1);
        low += of(50, 5);
        high += of(50, 50);
    }
    assert!(low >= high - 0.5, "recall {} with ef 5, {} with ef 50", low / 50.0, high / 50.0);
    assert!(high / 50.0 > 0.6, "recall {} with ef 50", high / 50.0);
}

// B27
#[test]
fn as_many_as_there_are_finds_every_row() {
    for (n, dimension) in [(101, 16), (1000, 256), (3000, 64), (3000, 4)] {
        for m in [8, 16] {
            let index = builder(IndexKind::Hnsw, Metric::L2, dimension).m(m).ef_construction(24).build().unwrap();
            let keys: Vec<u64> = (0..n as u64).collect();
            index.add_batch(&keys, &Random::new(27).normals(n * dimension)).unwrap();
            for query in Random::new(28).normals(3 * dimension).chunks(dimension) {
                let hits = index.search(query, &top(n).ef(n)).unwrap();
                assert_well_formed(&hits);
                let mut found: Vec<u64> = hits.iter().map(|hit| hit.key).collect();
                found.sort_unstable();
                assert_eq!(found, keys, "{n} x {dimension}, m {m}");
            }
        }
    }
}

// B27: the graph itself leads to every row, or a scan makes up for it.
#[test]
fn large_ef_through_the_graph_gives_k_hits() {
    let (index, _) = &*MIDDLING;
    for query in Random::new(270).normals(10 * 32).chunks(32) {
        // 5000 > 8 · 600: the graph is walked.
        let hits = index.search(query, &top(600).ef(600)).unwrap();
        assert_eq!(hits.len(), 600);
        assert_well_formed(&hits);
    }
}

// B29 (what it costs is measured in the memory tests)
#[test]
fn enormous_k_and_ef_mean_all_rows() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, _) = normal_index(kind, metric, 1000, 4, 29);
        let all = index.search(&[1.0; 4], &top(1000)).unwrap();
        assert_eq!(all.len(), 1000);
        for huge in [1 << 31, 1 << 32, (1 << 32) + 1, 1 << 53, usize::MAX] {
            assert_eq!(index.search(&[1.0; 4], &top(huge)).unwrap(), all);
            assert_eq!(index.search(&[1.0; 4], &top(huge).ef(huge)).unwrap(), all);
            assert_eq!(index.search(&[1.0; 4], &top(10).ef(huge)).unwrap(), all[..10]);
        }
    }
}

// B30
#[test]
fn searches_cross_plateaus_of_equal_distances() {
    const SIDE: usize = 20;
    let rows: Vec<f32> =
        (0..SIDE.pow(3)).flat_map(|i| [i % SIDE, i / SIDE % SIDE, i / SIDE / SIDE].map(|x| x as f32)).collect();
    let mut keys: Vec<u64> = (0..SIDE.pow(3) as u64).collect();
    let mut random = Random::new(30);
    random.shuffle(&mut keys);
    let index = builder(IndexKind::Hnsw, Metric::L2, 3).m(16).ef_construction(100).build().unwrap();
    index.add_batch(&keys, &rows).unwrap();
    let mut right = 0;
    for round in 0..500 {
        let half = (round % 2) as f32 / 2.0;
        let query: [f32; 3] = std::array::from_fn(|_| random.below(SIDE - 1) as f32 + half);
        let hits = index.search(&query, &top(8).ef(32)).unwrap();
        assert_eq!(hits.len(), 8);
        assert_well_formed(&hits);
        let truth = nearest(Metric::L2, &query, keys.iter().copied().zip(rows.chunks(3)), 8);
        right += usize::from(hits.iter().zip(&truth).all(|(hit, &(d, _))| f64::from(hit.distance) == d));
        let exact = index.search(&query, &top(8).exact(true)).unwrap();
        let keyed: Vec<(f64, u64)> = exact.iter().map(|hit| (hit.distance.into(), hit.key)).collect();
        assert_eq!(keyed, truth, "ties go to the smaller key");
    }
    assert!(right >= 495, "{right} of 500 right");
}
