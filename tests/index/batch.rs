//! Batches of scans: the hits of single searches, to the last bit.

use crate::common::random::Random;
use crate::common::{builder, clustered};
use twindex::{Encoding, Filter, Hit, Index, IndexKind, Level, Metric, Originals, SearchParams};

#[track_caller]
fn assert_as_single(index: &Index, queries: &[f32], params: &SearchParams<'_>, what: &str) {
    let bits =
        |hits: &[Hit]| hits.iter().map(|hit| (hit.key, hit.distance.to_bits(), hit.reranked)).collect::<Vec<_>>();
    let batch = index.search_batch(queries, params).unwrap();
    assert_eq!(batch.len(), queries.len() / index.dimension(), "{what}");
    for (i, (hits, query)) in batch.iter().zip(queries.chunks_exact(index.dimension())).enumerate() {
        let single = index.search(query, params).unwrap();
        assert_eq!(bits(hits), bits(&single), "{what}, query {i}");
    }
}

fn flat(metric: Metric, encoding: Encoding, dimension: usize, level: Level, vectors: &[f32]) -> Index {
    let index = builder(IndexKind::Flat, metric, dimension).encoding(encoding).level(level).build().unwrap();
    let keys: Vec<u64> = (0..(vectors.len() / dimension) as u64).map(|i| i ^ 5).collect();
    index.add_batch(&keys, vectors).unwrap();
    index
}

/// Lane edges of every kernel, odd for nibbles, whole and broken bytes of bits, beyond a block; enough rows to leave
/// the staging of quantized ones, and no multiple of six.
#[test]
fn hits_are_those_of_single_searches() {
    for level in Level::available() {
        for dimension in [1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 384, 768, 2048] {
            let rows = if dimension > 100 { 1100 } else { 1301 };
            // Copies, so that distances tie.
            let mut vectors = clustered(3, rows, dimension);
            vectors.copy_within(0..40 * dimension, 700 * dimension);
            let mut queries = clustered(4, 60, dimension);
            queries.extend_from_slice(&vectors[..10 * dimension]);
            for (metric, encoding) in
                Metric::ALL.into_iter().flat_map(|metric| Encoding::ALL.into_iter().map(move |e| (metric, e)))
            {
                let index = flat(metric, encoding, dimension, level, &vectors);
                let sizes: &[usize] = if dimension == 33 { &[1, 2, 5, 17, 63, 64, 65, 70] } else { &[70] };
                for &size in sizes {
                    for k in [1, 10, rows + 5] {
                        if k > 10 && dimension > 100 {
                            continue;
                        }
                        let what = format!("{level} {metric:?} {encoding} {dimension} x {rows}, {size} queries, k {k}");
                        let params = SearchParams::new(k).exact(true);
                        assert_as_single(&index, &queries[..size * dimension], &params, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn removed_rows_filters_radius_and_reranking() {
    let (dimension, rows) = (48, 1400);
    let vectors = clustered(5, rows, dimension);
    let queries = clustered(6, 67, dimension);
    for encoding in Encoding::ALL {
        for threads in [1, 3] {
            let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
            let mut index = builder(IndexKind::Flat, Metric::L2, dimension)
                .encoding(encoding)
                .originals(originals)
                .threads(threads)
                .build()
                .unwrap();
            index.add_batch(&(0..rows as u64).collect::<Vec<_>>(), &vectors).unwrap();
            (0..rows as u64).filter(|key| key % 3 == 0).for_each(|key| assert!(index.remove(key).unwrap()));
            let keys: Vec<u64> = (0..rows as u64).filter(|key| key % 7 == 0).collect();
            let even = |key: u64| key.is_multiple_of(2);
            for state in ["growing", "frozen"] {
                let what = format!("{encoding}, {threads} threads, {state}");
                assert_as_single(&index, &queries, &SearchParams::new(10), &what);
                assert_as_single(&index, &queries, &SearchParams::new(10).filter(Filter::keys(&keys)), &what);
                assert_as_single(&index, &queries, &SearchParams::new(10).filter(Filter::by(&even)), &what);
                assert_as_single(&index, &queries, &SearchParams::new(10).filter(Filter::by(&|_| false)), &what);
                assert_as_single(&index, &queries, &SearchParams::new(50).radius(8.0), &what);
                assert_as_single(&index, &queries, &SearchParams::new(10).rerank(2.0), &what);
                index = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
            }
        }
    }
}

/// Zeros, subnormals, and norms near the limit: what overflows or underflows in an estimate.
#[test]
fn odd_values() {
    let dimension = 20;
    let mut random = Random::new(8);
    for metric in Metric::ALL {
        for scale in [1e-45f32, 1e-40, 1e-30, 1e-22, 1e-19, 1.0, 1e15, 1e18, 1e25, 3e36] {
            if metric != Metric::Cosine && scale > 1e18 || metric == Metric::Cosine && scale < 1e-36 {
                continue;
            }
            let mut vectors: Vec<f32> = random.normals(150 * dimension).iter().map(|x| x * scale).collect();
            vectors.extend(random.normals(150 * dimension));
            if metric != Metric::Cosine {
                vectors.extend(vec![0.0; 3 * dimension]);
            }
            let mut queries = vectors[140 * dimension..160 * dimension].to_vec();
            queries.extend_from_slice(&vectors[vectors.len() - dimension..]);
            for level in Level::available() {
                for encoding in [Encoding::F32, Encoding::Int8, Encoding::Int4, Encoding::Bits1] {
                    if scale == 1e18 && encoding != Encoding::F32 {
                        continue;
                    }
                    let index = flat(metric, encoding, dimension, level, &vectors);
                    for k in [1, 30] {
                        let what = format!("{level} {metric:?} {encoding} scale {scale:e}, k {k}");
                        assert_as_single(&index, &queries, &SearchParams::new(k), &what);
                    }
                }
            }
        }
    }
}

/// The query that is refused is named by its number in the batch, not in its group.
#[test]
fn errors_name_the_query() {
    let dimension = 4;
    let vectors = clustered(1, 100, dimension);
    let index = flat(Metric::L2, Encoding::F32, dimension, Level::available().pop().unwrap(), &vectors);
    let mut queries = clustered(2, 130, dimension);
    queries[90 * dimension + 2] = f32::NAN;
    let error = index.search_batch(&queries, &SearchParams::new(3)).unwrap_err();
    assert!(matches!(error, twindex::Error::NotFinite { row: 90, component: 2 }), "{error}");
}
