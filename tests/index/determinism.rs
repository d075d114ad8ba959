//! The same input gives the same bytes, and the same file the same answers to the last bit, however it is opened.

#[path = "../suites/on_record.rs"]
mod on_record;

use crate::common::oracle::bits;
use crate::common::random::Random;
use crate::common::{builder, kinds_and_metrics, normal_index, top};
use std::sync::Arc;
use twindex::storage::CopyingStorage;
use twindex::{Filter, Index, IndexKind, Level, Metric, OpenOptions, Residency, SearchParams};

// The other encodings, at every level.
on_record::stamp!(test);

/// An index that has seen every kind of change.
fn eventful(kind: IndexKind, metric: Metric, level: Level, seed: u64) -> Index {
    let mut random = Random::new(89);
    let mut index = builder(kind, metric, 21).level(level).seed(seed).build().unwrap();
    index.add_batch(&(0..700).collect::<Vec<_>>(), &random.normals(700 * 21)).unwrap();
    for key in (0..700).step_by(7) {
        index.remove(key).unwrap();
    }
    index.compact().unwrap();
    for key in 1000..1300 {
        index.add(key, &random.normals(21)).unwrap();
    }
    for key in 1000..1050 {
        index.update(key, &random.normals(21)).unwrap();
    }
    for key in 1100..1150 {
        index.remove(key).unwrap();
    }
    index
}

// B89, B91
#[test]
fn the_same_input_and_seed_give_the_same_bytes_at_every_level() {
    for (kind, metric) in kinds_and_metrics() {
        let bytes = eventful(kind, metric, Level::Scalar, 1).to_bytes().unwrap();
        for level in Level::available() {
            assert!(eventful(kind, metric, level, 1).to_bytes().unwrap() == bytes, "{kind} {metric} {level}");
        }
        let other = eventful(kind, metric, Level::Scalar, 2);
        assert_eq!(other.to_bytes().unwrap() == bytes, kind == IndexKind::Flat, "the seed decides the graph");
        Index::from_bytes(bytes).unwrap().verify().unwrap();
    }
}

// B65, B91. The same numbers with and without threads, on every platform: small integers, so that nothing is rounded.
#[test]
fn the_bytes_are_the_ones_on_record() {
    let mut random = Random::new(91);
    for (kind, expected) in [(IndexKind::Flat, FLAT), (IndexKind::Hnsw, HNSW)] {
        let index = builder(kind, Metric::L2, 32).m(16).ef_construction(100).build().unwrap();
        let rows: Vec<f32> = (0..1000 * 32).map(|_| random.below(9) as f32 - 4.0).collect();
        index.add_batch(&(0..1000).collect::<Vec<_>>(), &rows).unwrap();
        index.remove(5).unwrap();
        let bytes = index.to_bytes().unwrap();
        let got = (bytes.len(), crc32fast::hash(&bytes));
        assert_eq!(got, expected, "{kind}: if the format or the building of graphs changed on purpose, record this");
    }
}

const FLAT: (usize, u32) = (140_616, 498_464_822);
const HNSW: (usize, u32) = (222_248, 47_326_760);

// B65, B91. Numbers that do round, in every metric: the same file, keys and distance bits on every platform.
#[test]
fn the_bits_are_the_ones_on_record() {
    let mut random = Random::new(65);
    let mut numbers =
        |n: usize| -> Vec<f32> { (0..n).map(|_| random.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0).collect() };
    let (rows, queries) = (numbers(2000 * 37), numbers(50 * 37));
    for (metric, file, answers) in ON_RECORD {
        let index = builder(IndexKind::Hnsw, metric, 37).m(16).ef_construction(100).build().unwrap();
        index.add_batch(&(0..2000).collect::<Vec<_>>(), &rows).unwrap();
        let mut hits = Vec::new();
        for query in queries.chunks(37) {
            for exact in [false, true] {
                for hit in index.search(query, &top(10).exact(exact)).unwrap() {
                    hits.extend(hit.key.to_le_bytes());
                    hits.extend(hit.distance.to_bits().to_le_bytes());
                }
            }
        }
        let got = (crc32fast::hash(&index.to_bytes().unwrap()), crc32fast::hash(&hits));
        assert_eq!(got, (file, answers), "{metric}: if the building of graphs changed on purpose, record this");
    }
}

const ON_RECORD: [(Metric, u32, u32); 3] = [
    (Metric::L2, 510_888_346, 451_167_821),
    (Metric::InnerProduct, 3_542_626_933, 3_452_820_902),
    (Metric::Cosine, 1_610_739_137, 691_147_923),
];

// B89
#[test]
fn reopened_and_saved_again_the_bytes_stay() {
    for (kind, metric) in kinds_and_metrics() {
        for rows in [0, 1, 300] {
            let (index, _) = normal_index(kind, metric, rows, 9, 8);
            for key in 0..rows as u64 / 3 {
                index.remove(key * 2).unwrap();
            }
            let bytes = index.to_bytes().unwrap();
            for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                let opened = OpenOptions::new().residency(residency).from_bytes(bytes.clone()).unwrap();
                assert!(opened.to_bytes().unwrap() == bytes, "{kind} {metric} {rows} rows, {residency:?}");
            }
            let storage = Arc::new(CopyingStorage::new(bytes.clone()));
            for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                let opened = OpenOptions::new().residency(residency).from_storage(storage.clone()).unwrap();
                assert!(opened.to_bytes().unwrap() == bytes, "{kind} {metric} {rows} rows, copied, {residency:?}");
            }
        }
    }
}

// B89
#[test]
fn building_goes_on_after_a_reopening_as_if_nothing_had_been() {
    for (kind, metric) in kinds_and_metrics() {
        let rows = Random::new(890).normals(600 * 9);
        let whole = builder(kind, metric, 9).build().unwrap();
        let mut pieces = builder(kind, metric, 9).build().unwrap();
        for (key, row) in (0..).zip(rows.chunks(9)) {
            whole.add(key, row).unwrap();
            if key % 150 == 149 {
                let bytes = pieces.to_bytes().unwrap();
                pieces = OpenOptions::new().threads(1).residency(Residency::Owned).from_bytes(bytes).unwrap();
            }
            pieces.add(key, row).unwrap();
        }
        assert!(whole.to_bytes().unwrap() == pieces.to_bytes().unwrap(), "{kind} {metric}");
    }
}

// B89
#[test]
fn one_by_one_or_in_batches_makes_no_difference_on_one_thread() {
    for (kind, metric) in kinds_and_metrics() {
        let rows = Random::new(891).normals(500 * 6);
        let keys: Vec<u64> = (0..500).rev().collect();
        let build = |batch: usize| {
            let index = builder(kind, metric, 6).build().unwrap();
            for (keys, rows) in keys.chunks(batch).zip(rows.chunks(batch * 6)) {
                index.add_batch(keys, rows).unwrap();
            }
            index.to_bytes().unwrap()
        };
        let alone = build(1);
        assert!([7, 256, 500].into_iter().all(|batch| build(batch) == alone), "{kind} {metric}");
    }
}

// B91, B92
#[test]
fn every_way_to_open_gives_the_same_hits_and_bits_at_every_level() {
    let odd = |key: u64| key % 2 == 1;
    let some: Vec<u64> = (0..1300).step_by(3).collect();
    let paths: [SearchParams<'_>; 6] = [
        top(10),
        top(7).ef(20),
        top(25).exact(true),
        top(10).radius(20.0),
        top(10).filter(Filter::by(&odd)),
        top(10).filter(Filter::keys(&some)),
    ];
    let queries = Random::new(92).normals(12 * 21);
    for (kind, metric) in kinds_and_metrics() {
        let growing = eventful(kind, metric, Level::Scalar, 1);
        let bytes = growing.to_bytes().unwrap();
        let storage = Arc::new(CopyingStorage::new(bytes.clone()));
        for params in &paths {
            let expected: Vec<_> = queries.chunks(21).map(|q| bits(&growing.search(q, params).unwrap())).collect();
            for level in Level::available() {
                for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                    let options = OpenOptions::new().threads(2).level(level).residency(residency);
                    let opened = options.from_bytes(bytes.clone()).unwrap();
                    let copied = options.from_storage(storage.clone()).unwrap();
                    assert_eq!(opened.level(), level);
                    for (query, expected) in queries.chunks(21).zip(&expected) {
                        let at = format!("{kind} {metric} {level} {residency:?} {params:?}");
                        assert_eq!(&bits(&opened.search(query, params).unwrap()), expected, "{at}");
                        assert_eq!(&bits(&copied.search(query, params).unwrap()), expected, "{at}, copied");
                    }
                    let batch = opened.search_batch(&queries, params).unwrap();
                    assert_eq!(batch.iter().map(|hits| bits(hits)).collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}

// B92
#[test]
fn answers_depend_on_nothing_asked_before() {
    for rows in [150, 1500] {
        let (index, _) = normal_index(IndexKind::Hnsw, Metric::Cosine, rows, 10, 92);
        let bytes = index.to_bytes().unwrap();
        let queries = Random::new(93).normals(50 * 10);
        let ask = |index: &Index, query: &[f32]| bits(&index.search(query, &top(10).ef(16)).unwrap());
        let expected: Vec<_> = queries.chunks(10).map(|query| ask(&index, query)).collect();
        for _ in 0..20 {
            let opened = Index::from_bytes(bytes.clone()).unwrap();
            for (query, expected) in queries.chunks(10).zip(&expected).rev() {
                assert_eq!(&ask(&opened, query), expected);
                opened.search(query, &top(3).ef(700)).unwrap();
                assert_eq!(&ask(&opened, query), expected);
            }
        }
    }
}
