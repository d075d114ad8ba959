//! Arguments out of range, vectors that cannot be compared: refused with their evidence, and nothing has happened.

use crate::common::mutate::{CODES, Patient};
use crate::common::oracle::{assert_well_formed, bits, distance, nearest, numbered, tolerance};
use crate::common::random::Random;
use crate::common::{builder, kinds_and_metrics, normal_index, stored, top};
use twindex::storage::ChunkOptions;
use twindex::{
    Error, Filter, Index, IndexKind, Level, MAX_DIMENSION, MAX_EF, MAX_M, Metric, OpenOptions, Residency, SearchParams,
};

/// One of each way in which a vector of dimension 4 may be unfit, with the code of its error.
fn unfit(metric: Metric) -> Vec<(Vec<f32>, &'static str)> {
    let mut all = vec![
        (vec![], "DIMENSION_MISMATCH"),
        (vec![1.0; 3], "DIMENSION_MISMATCH"),
        (vec![1.0; 5], "DIMENSION_MISMATCH"),
        (vec![f32::NAN, 1.0, 1.0, 1.0], "NOT_FINITE"),
        (vec![1.0, 1.0, 1.0, f32::NAN], "NOT_FINITE"),
        (vec![1.0, f32::INFINITY, 1.0, 1.0], "NOT_FINITE"),
        (vec![1.0, 1.0, f32::NEG_INFINITY, 1.0], "NOT_FINITE"),
        (vec![1e39f64 as f32, 0.0, 0.0, 0.0], "NOT_FINITE"),
        (vec![f32::MAX; 4], "NORM_TOO_LARGE"),
    ];
    match metric {
        Metric::Cosine => all.extend([(vec![0.0; 4], "ZERO_VECTOR"), (vec![-0.0; 4], "ZERO_VECTOR")]),
        _ => all.push((vec![1e19, 0.0, 0.0, 0.0], "NORM_TOO_LARGE")),
    }
    all
}

fn code<T: std::fmt::Debug>(result: twindex::Result<T>) -> &'static str {
    result.expect_err("this was to be refused").code()
}

// B02, B13
#[test]
fn a_refused_vector_leaves_no_trace() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, vectors) = normal_index(kind, metric, 10, 4, 3);
        let before = index.to_bytes().unwrap();
        for (vector, expected) in unfit(metric) {
            assert_eq!(code(index.add(77, &vector)), expected, "{kind} {metric} add {vector:?}");
            assert_eq!(code(index.update(3, &vector)), expected, "{kind} {metric} update {vector:?}");
            assert_eq!(code(index.search(&vector, &top(1))), expected, "{kind} {metric} search {vector:?}");
            if vector.len() == 4 {
                let batch = [&[1.0; 4][..], &vector, &[2.0; 4]].concat();
                let refused = index.add_batch(&[77, 78, 79], &batch);
                assert!(matches!(
                    refused,
                    Err(Error::NotFinite { row: 1, .. }
                        | Error::NormTooLarge { row: 1, .. }
                        | Error::ZeroVector { row: 1 })
                ));
            }
            assert!([77, 78, 79].iter().all(|&key| !index.contains(key)));
        }
        assert_eq!(code(index.add_batch(&[77, 78], &[1.0; 7])), "LENGTH_MISMATCH");
        assert_eq!(code(index.add_batch(&[77], &[1.0; 8])), "DIMENSION_MISMATCH");
        assert_eq!(code(index.add_batch(&[], &[1.0])), "LENGTH_MISMATCH");
        assert_eq!(code(index.add(3, &[1.0; 4])), "DUPLICATE_KEY");
        assert_eq!(code(index.update(77, &[1.0; 4])), "KEY_NOT_FOUND");
        index.add_batch(&[], &[]).unwrap();
        assert_eq!((index.len(), index.keys()), (10, (0..10).collect()));
        assert_eq!(stored(&index, 3).as_deref(), Some(&vectors[12..16]));
        assert!(index.to_bytes().unwrap() == before, "{kind} {metric}: the bytes have changed");
        // And it goes on as if nothing had been tried.
        let (other, _) = normal_index(kind, metric, 10, 4, 3);
        for index in [&index, &other] {
            (100..400).zip(Random::new(4).normals(1200).chunks(4)).for_each(|(key, v)| index.add(key, v).unwrap());
        }
        assert!(index.to_bytes().unwrap() == other.to_bytes().unwrap(), "{kind} {metric}: what follows is different");
    }
}

// B04
#[test]
fn every_dimension_counts_all_its_components_and_no_others() {
    let dimensions = (1..=130).chain([255, 256, 257, 383, 385, 767, 769, 1535, 1537]);
    for dimension in dimensions {
        let mut random = Random::new(dimension as u64);
        let (rows, queries) = (random.normals(64 * dimension), random.normals(4 * dimension));
        for metric in Metric::ALL {
            for level in Level::available() {
                let index = builder(IndexKind::Flat, metric, dimension).level(level).build().unwrap();
                index.add_batch(&(0..64).collect::<Vec<_>>(), &rows).unwrap();
                for query in queries.chunks(dimension) {
                    let hits = index.search(query, &top(64)).unwrap();
                    assert_eq!(hits.len(), 64);
                    for hit in hits {
                        let row = &rows[hit.key as usize * dimension..][..dimension];
                        let off = (f64::from(hit.distance) - distance(metric, query, row)).abs();
                        assert!(off <= tolerance(metric, query, row), "{dimension} {metric} {level}: off by {off}");
                    }
                }
                // Two rows that differ in their last component alone.
                let mut twin = rows[..dimension].to_vec();
                twin[dimension - 1] += if dimension == 1 { -2.0 * twin[0] } else { 3.0 };
                index.add(64, &twin).unwrap();
                let hits = index.search(&rows[..dimension], &top(65)).unwrap();
                let of = |key| hits.iter().find(|hit| hit.key == key).unwrap().distance;
                assert_ne!(of(0), of(64), "{dimension} {metric} {level}");
            }
        }
    }
}

// B06
#[test]
fn settings_out_of_range_are_refused_and_all_others_work() {
    let refused = |builder: twindex::IndexBuilder, parameter: &str| match builder.build() {
        Err(Error::InvalidParameter { name, .. }) => assert_eq!(name, parameter),
        other => panic!("{parameter}: {other:?}"),
    };
    let plain = |dimension| Index::builder(dimension, Metric::L2);
    for dimension in [0, MAX_DIMENSION + 1, 1 << 31, usize::MAX] {
        refused(plain(dimension), "dimension");
    }
    for m in [0, 1, MAX_M + 1, 4096, 1 << 40, usize::MAX] {
        refused(plain(4).m(m), "m");
    }
    for ef in [0, MAX_EF + 1, 1 << 40, usize::MAX] {
        refused(plain(4).ef_construction(ef), "ef_construction");
        refused(plain(4).ef(ef), "ef");
    }
    for threads in [1025, 1 << 16, usize::MAX] {
        refused(plain(4).threads(threads), "threads");
        let bytes = plain(4).build().unwrap().to_bytes().unwrap();
        assert_eq!(code(twindex::OpenOptions::new().threads(threads).from_bytes(bytes)), "INVALID_PARAMETER");
    }
    for chunk_bytes in [0, 1, (1 << 30) + 1, usize::MAX] {
        refused(plain(4).chunks(ChunkOptions { chunk_bytes, rows_per_chunk: None }), "chunk_bytes");
    }
    for rows in [0, 3] {
        let chunks = ChunkOptions { rows_per_chunk: Some(rows), ..ChunkOptions::default() };
        refused(plain(4).chunks(chunks), "rows_per_chunk");
    }
    for level in Level::ALL.iter().copied().filter(|level| !level.is_available()) {
        refused(plain(4).level(level), "level");
    }
    for name in ["", "L2", "euclid", "ip ", "cos"] {
        assert_eq!(code(name.parse::<Metric>()), "INVALID_PARAMETER");
        assert_eq!(code(name.parse::<IndexKind>()), "INVALID_PARAMETER");
    }

    let rows = Random::new(6).normals(500 * 4);
    for (m, ef_construction, ef) in [(2, 1, 1), (100, 200, 64), (101, 1, MAX_EF), (MAX_M, MAX_EF, 1), (2, MAX_EF, 64)] {
        let index = plain(4).m(m).ef_construction(ef_construction).ef(ef).build().unwrap();
        assert_eq!((index.m(), index.ef_construction(), index.ef()), (m, ef_construction, ef));
        for (key, row) in numbered(&rows, 4) {
            index.add(key, row).unwrap();
        }
        index.verify().unwrap();
        for (key, row) in numbered(&rows, 4) {
            assert_eq!(index.search(row, &top(1).ef(500)).unwrap()[0].key, key, "m {m} efc {ef_construction}");
        }
    }
    let index = plain(MAX_DIMENSION).build().unwrap();
    for key in 0..3 {
        index.add(key, &vec![key as f32; MAX_DIMENSION]).unwrap();
    }
    let hits = index.search(&vec![2.0; MAX_DIMENSION], &top(2)).unwrap();
    assert_eq!(bits(&hits), [(2, 0f32.to_bits()), (1, (MAX_DIMENSION as f32).to_bits())]);
}

// B06
#[test]
fn memory_that_is_refused_is_an_error_and_no_trace_stays() {
    // 2³¹ rows of 256 KiB: more than any address space.
    let chunks = ChunkOptions { rows_per_chunk: Some(1 << 31), ..ChunkOptions::default() };
    for kind in IndexKind::ALL {
        let index = builder(kind, Metric::L2, MAX_DIMENSION).chunks(chunks.clone()).build().unwrap();
        let refused = index.add(1, &vec![1.0; MAX_DIMENSION]);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        assert!(index.is_empty() && !index.contains(1) && index.keys().is_empty());
        assert!(index.search(&vec![1.0; MAX_DIMENSION], &top(1)).unwrap().is_empty());
    }
}

// B10
#[test]
fn a_query_that_is_not_finite_is_an_error_on_every_path() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, _) = normal_index(kind, metric, 1000, 16, 10);
        let keys: Vec<u64> = (0..500).collect();
        let even = |key: u64| key.is_multiple_of(2);
        let paths = [
            top(10),
            top(10).exact(true),
            top(10).radius(3.0),
            top(10).filter(Filter::by(&even)),
            top(10).filter(Filter::keys(&keys)),
            top(0),
        ];
        let good = vec![0.5; 16];
        for at in [&[0][..], &[7], &[15], &(0..16).collect::<Vec<_>>()] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut query = good.clone();
                at.iter().for_each(|&at| query[at] = bad);
                for params in &paths {
                    let alone = index.search(&query, params);
                    assert!(matches!(alone, Err(Error::NotFinite { row: 0, component }) if component == at[0]));
                    let batch = index.search_batch(&[&good[..], &good, &query, &good].concat(), params);
                    assert!(matches!(batch, Err(Error::NotFinite { row: 2, component }) if component == at[0]));
                }
            }
        }
        assert_eq!(index.search(&good, &top(10)).unwrap().len(), 10);
    }
}

#[test]
fn search_options_out_of_range_are_refused() {
    for kind in IndexKind::ALL {
        let (index, _) = normal_index(kind, Metric::L2, 20, 2, 1);
        let refused = |params: SearchParams<'_>, parameter: &str| match index.search(&[0.0, 0.0], &params) {
            Err(Error::InvalidParameter { name, .. }) => assert_eq!(name, parameter),
            other => panic!("{parameter}: {other:?}"),
        };
        refused(top(5).ef(0), "ef");
        refused(top(0).ef(0), "ef");
        refused(top(5).exact(true).ef(0), "ef");
        refused(top(5).radius(f32::NAN), "radius");
        assert_eq!(index.search(&[0.0, 0.0], &top(50).radius(f32::INFINITY)).unwrap().len(), 20);
        assert_eq!(index.search(&[0.0, 0.0], &top(50).radius(f32::NEG_INFINITY)).unwrap().len(), 0);
        assert_eq!(code(index.search_batch(&[0.0; 3], &top(1))), "LENGTH_MISMATCH");
        assert_eq!(index.search_batch(&[], &top(1)).unwrap().len(), 0);
    }
}

// B12
#[test]
fn huge_and_tiny_values_are_ordered_rightly_or_refused() {
    let scales = [1e-30f32, 1e-18, 1.0, 1e18, 2e18, 4e18, 9e18, 1e19, 1e20, 1e30, 3e38];
    let axis = |c: f32| [c, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    for (kind, metric) in kinds_and_metrics() {
        let index = builder(kind, metric, 8).build().unwrap();
        let mut stored: Vec<(u64, [f32; 8])> = Vec::new();
        for (key, &c) in (0..).zip(&scales) {
            for (key, c) in [(2 * key, c), (2 * key + 1, -c)] {
                match index.add(key, &axis(c)) {
                    Ok(()) => stored.push((key, axis(c))),
                    Err(Error::NormTooLarge { limit, .. }) => {
                        assert!(f64::from(c.abs()) > limit && metric != Metric::Cosine, "{metric} {c:e}");
                    }
                    other => panic!("{metric} {c:e}: {other:?}"),
                }
            }
        }
        assert!(stored.len() >= 14, "{metric}: only {} stored", stored.len());
        for query in scales.iter().flat_map(|&c| [axis(c), axis(-c)]) {
            let Ok(hits) = index.search(&query, &top(100)) else {
                assert!(query[0].abs() > 9.2e18 && metric != Metric::Cosine);
                continue;
            };
            assert_eq!(hits.len(), stored.len());
            assert_well_formed(&hits);
            let rows = stored.iter().map(|(key, row)| (*key, &row[..]));
            for (hit, (expected, _)) in hits.iter().zip(nearest(metric, &query, rows, 100)) {
                let off = (f64::from(hit.distance) - expected).abs();
                let cosine = if metric == Metric::Cosine { 1e-5 } else { 0.0 };
                assert!(
                    off <= 1e-5 * expected.abs() + cosine + 1e-30,
                    "{metric} {query:?}: {hit:?}, {expected} expected"
                );
            }
        }
    }
}

// B13
#[test]
fn values_that_are_not_finite_do_not_come_in_through_a_file() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, vectors) = normal_index(kind, metric, 700, 5, 13);
        let patient = Patient::new(index.to_bytes().unwrap());
        let codes = patient.section(CODES);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
            let row = 350;
            let bytes = patient.patched(codes.start + row * 20 + 8, 4, bad.to_bits().into());
            let owned = OpenOptions::new().residency(Residency::Owned).from_bytes(bytes.clone());
            assert!(owned.is_err(), "{kind} {metric} {bad}: owned");
            let mapped = Index::from_bytes(bytes).unwrap();
            if !bad.is_finite() {
                assert_eq!(code(mapped.verify()), "CORRUPT", "{kind} {metric} {bad}");
            }
            for query in vectors.chunks(5).step_by(20) {
                for (k, params) in [(10, top(10)), (10, top(10).exact(true)), (700, top(700))] {
                    let hits = mapped.search(query, &params).unwrap();
                    assert_well_formed(&hits);
                    assert!(hits.len() >= k.min(699), "{kind} {metric} {bad}: {}", hits.len());
                }
            }
        }
    }
}

// B41
#[test]
fn unknown_keys_are_not_found_anywhere() {
    for (kind, metric) in kinds_and_metrics() {
        let empty = builder(kind, metric, 3).build().unwrap();
        let (filled, _) = normal_index(kind, metric, 30, 3, 41);
        for index in [&empty, &filled] {
            let len = index.len();
            assert!(!index.remove(1000).unwrap());
            assert_eq!(code(index.update(1000, &[1.0; 3])), "KEY_NOT_FOUND");
            assert!(!index.contains(1000) && index.get(1000).unwrap().is_none());
            assert_eq!(index.len(), len);
        }
        assert!(filled.remove(7).unwrap());
        assert!(!filled.remove(7).unwrap());
        assert_eq!(code(filled.update(7, &[1.0; 3])), "KEY_NOT_FOUND");
        assert_eq!(filled.len(), 29);
    }
}

#[test]
fn a_read_only_index_refuses_changes_by_name() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, vectors) = normal_index(kind, metric, 30, 3, 5);
        let mut frozen = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
        assert!(frozen.is_read_only() && !index.is_read_only());
        let named = |result: twindex::Result<()>, name: &str| {
            assert!(matches!(result, Err(Error::ReadOnly { operation }) if operation == name), "{name}");
        };
        named(frozen.add(99, &[1.0; 3]), "add");
        named(frozen.add_batch(&[99], &[1.0; 3]), "add_batch");
        named(frozen.update(1, &[1.0; 3]), "update");
        named(frozen.remove(1).map(drop), "remove");
        named(frozen.compact(), "compact");
        named(frozen.clear(), "clear");
        assert_eq!((frozen.len(), stored(&frozen, 1).as_deref()), (30, Some(&vectors[3..6])));
    }
}
