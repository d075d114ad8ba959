//! What users of other libraries met with quantized vectors: outliers, constants, half bytes, shifted and scaled data,
//! rows that are not like those the centre was learned from.

use crate::common::mutate::{CENTRE, CODES, Patient};
use crate::common::oracle::{assert_well_formed, distance, nearest};
use crate::common::random::Random;
use crate::common::{CODED, builder, clustered, top};
use twindex::{Encoding, Error, Index, IndexKind, Metric, OpenOptions, Originals, Residency, SearchParams};

const QUANTIZED: [Encoding; 3] = [Encoding::Int8, Encoding::Int4, Encoding::Bits1];

fn flat(metric: Metric, encoding: Encoding, originals: Originals, rows: &[f32], d: usize) -> Index {
    let index = builder(IndexKind::Flat, metric, d).encoding(encoding).originals(originals).build().unwrap();
    index.add_batch(&(0..(rows.len() / d) as u64).collect::<Vec<_>>(), rows).unwrap();
    index.to_bytes().unwrap();
    index
}

/// The share of the ten nearest of `rows`, by keys, that the searches find.
fn recall(index: &Index, rows: &[(u64, &[f32])], queries: &[f32], params: &SearchParams<'_>) -> f64 {
    let d = index.dimension();
    let lists = index.search_batch(queries, params).unwrap();
    let found = queries.chunks(d).zip(&lists).map(|(query, hits)| {
        assert_well_formed(hits);
        let truth = nearest(index.metric(), query, rows.iter().copied(), 10);
        hits.iter().filter(|hit| truth.iter().any(|&(_, key)| key == hit.key)).count()
    });
    found.sum::<usize>() as f64 / (lists.len() * 10) as f64
}

fn keyed(rows: &[f32], d: usize) -> Vec<(u64, &[f32])> {
    (0..).zip(rows.chunks(d)).collect()
}

fn uniform(seed: u64, n: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| (random.uniform() * 2.0 - 1.0) as f32).collect()
}

/// The row of an id in a file, factors included.
fn row_of(bytes: &[u8], encoding: Encoding, d: usize, id: usize) -> Vec<u8> {
    let patient = Patient::new(bytes.to_vec());
    let stride = encoding.stride(d);
    let at = patient.section(CODES).start + id * stride;
    patient.bytes[at..at + stride].to_vec()
}

/// Component i of a code, as FORMAT.md packs it: 0 .. levels.
fn component(encoding: Encoding, row: &[u8], d: usize, i: usize) -> usize {
    match encoding {
        Encoding::Int8 => (i32::from(row[i] as i8) + 128) as usize,
        Encoding::Int4 if i < d.div_ceil(2) => usize::from(row[i] & 15),
        Encoding::Int4 => usize::from(row[i - d.div_ceil(2)] >> 4),
        _ => usize::from(row[i / 8] >> (i % 8) & 1),
    }
}

fn levels(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Int8 => 256,
        Encoding::Int4 => 16,
        _ => 2,
    }
}

// B113. One component fifty times the others: rotation spreads it.
#[test]
fn a_component_that_stands_out_does_not_drown_the_others() {
    let d = 96;
    let stretch = |mut rows: Vec<f32>| {
        rows.chunks_mut(d).for_each(|row| row[0] *= 50.0);
        rows
    };
    let (rows, queries) = (stretch(uniform(113, 3000 * d)), stretch(uniform(114, 50 * d)));
    for metric in [Metric::Cosine, Metric::L2] {
        // One bit has so large an error that it takes more candidates.
        for (encoding, oversample) in
            [(Encoding::F16, 2.0), (Encoding::Int8, 5.0), (Encoding::Int4, 20.0), (Encoding::Bits1, 100.0)]
        {
            let index = flat(metric, encoding, Originals::F32, &rows, d);
            let found = recall(&index, &keyed(&rows, d), &queries, &top(10).rerank(oversample));
            let plain = recall(&index, &keyed(&rows, d), &queries, &top(10));
            eprintln!("B113 {metric} {encoding}: {found:.3} with {oversample}, {plain:.3} by codes");
            assert!(found >= 0.9, "{metric} {encoding}: {found}");
        }
    }
}

// B113. One row a thousand times the others, among those the centre is learned from.
#[test]
fn a_row_that_stands_out_does_not_spoil_the_rest() {
    let d = 96;
    let rows = clustered(115, 2000, d);
    let queries = clustered(116, 50, d);
    for metric in [Metric::L2, Metric::Cosine] {
        for encoding in CODED {
            let mut outlier = rows.clone();
            outlier[77 * d..78 * d].iter_mut().for_each(|x| *x *= 1000.0);
            let rest: Vec<_> = keyed(&rows, d).into_iter().filter(|&(key, _)| key != 77).collect();
            let rest_only = |key: u64| key != 77;
            let params = top(10).filter(twindex::Filter::by(&rest_only));
            let found = [&rows, &outlier]
                .map(|rows| recall(&flat(metric, encoding, Originals::None, rows, d), &rest, &queries, &params));
            eprintln!("B113 {metric} {encoding}: {found:?}");
            assert!(found[1] >= found[0] - 0.02, "{metric} {encoding}: {found:?}");
        }
    }
}

// B114
#[test]
fn constant_rows_are_as_good_as_exact() {
    for metric in Metric::ALL {
        for encoding in CODED {
            for d in [1, 4, 37] {
                for n in [1, 2, 50, 1030] {
                    for c in [0.0f32, 0.1, -3.0, 1e-40, 3e38] {
                        let at = format!("{metric} {encoding} {d} {n} rows of {c:e}");
                        let index = builder(IndexKind::Flat, metric, d).encoding(encoding).build().unwrap();
                        let row = vec![c; d];
                        let added = index.add_batch(&(0..n).collect::<Vec<_>>(), &row.repeat(n as usize));
                        if let Err(e) = added {
                            let fits = match e {
                                Error::ZeroVector { .. } => metric == Metric::Cosine && c.abs() < 1e-38,
                                Error::NormTooLarge { .. } => c > 1e38,
                                Error::OutOfRange { .. } => encoding == Encoding::F16 && c > 65_504.0,
                                _ => false,
                            };
                            assert!(fits, "{at}: {e}");
                            continue;
                        }
                        index.to_bytes().unwrap();
                        let decoded = index.get(0).unwrap().unwrap().vector;
                        // Under cosine what is decoded has norm 1; of f16 what is below 6.1e-5 is zero.
                        let c = if metric == Metric::Cosine { c.signum() / (d as f32).sqrt() } else { c };
                        let tiny = if encoding == Encoding::F16 { 6.2e-5 } else { 0.0 };
                        for x in decoded {
                            assert!((x - c).abs() <= c.abs() * 1e-2 + tiny, "{at}: {x} for {c:e}");
                        }
                        let hits = index.search(&row, &top(usize::MAX)).unwrap();
                        assert_eq!(hits.len() as u64, n, "{at}");
                        assert_well_formed(&hits);
                        let exact = distance(metric, &row, &row);
                        for hit in hits {
                            let off = (f64::from(hit.distance) - exact).abs();
                            assert!(off <= 1e-2 * exact.abs().min(1.0) + 1e-5, "{at}: {hit:?} for {exact}");
                            assert!(metric == Metric::InnerProduct || hit.distance >= 0.0, "{at}: {hit:?}");
                        }
                        index.verify().unwrap();
                    }
                }
            }
        }
    }
}

// B114
#[test]
fn a_component_that_never_changes_is_kept() {
    let d = 16;
    let mut rows = clustered(117, 1500, d);
    rows.chunks_mut(d).for_each(|row| row[5] = 7.25);
    for encoding in QUANTIZED {
        for centre in [true, false] {
            let index = builder(IndexKind::Flat, Metric::L2, d).encoding(encoding).centre(centre).build().unwrap();
            index.add_batch(&(0..1500).collect::<Vec<_>>(), &rows).unwrap();
            let off = |key: u64| (index.get(key).unwrap().unwrap().vector[5] - 7.25).abs();
            let worst = (0..1500).map(off).fold(0.0, f32::max);
            // The rotation shares the error of the other components out: some per cent with 8 bits, much with one.
            let most = match encoding {
                Encoding::Int8 => 0.15,
                Encoding::Int4 => 2.0,
                _ => 8.0,
            };
            eprintln!("B114 {encoding} centre {centre}: {worst}");
            assert!(worst <= most, "{encoding} centre {centre}: {worst}");
        }
    }
}

// B115
#[test]
fn odd_dimensions_lose_no_component_and_take_no_neighbours() {
    for encoding in QUANTIZED {
        for d in [1, 3, 5, 7, 15, 33, 127, 385] {
            let n = 1100;
            let base = Random::new(d as u64).normals(d);
            let rows: Vec<f32> = (0..n)
                .flat_map(|i| {
                    let mut row = base.clone();
                    row[d - 1] += i as f32 * 0.5;
                    row
                })
                .collect();
            let index = flat(Metric::L2, encoding, Originals::None, &rows, d);
            let bytes = index.to_bytes().unwrap();
            let code = match encoding {
                Encoding::Int8 => d,
                Encoding::Int4 => d.div_ceil(2),
                _ => d.div_ceil(8),
            };
            assert_eq!(Patient::new(bytes.clone()).section(CODES).len(), n * (code + 8), "{encoding} {d}");
            // Seen from beyond either end they come one after the other. Their codes are nearly alike, and the query's
            // rounding puts neighbours the wrong way round; if the last component were lost, all would be in disorder.
            for (end, rank) in [(-2000.0, 0), (n as f32 + 2000.0, n - 1)] {
                let mut query = base.clone();
                query[d - 1] += end * 0.5;
                let hits = index.search(&query, &top(n)).unwrap();
                let off = |(i, key): (usize, u64)| (key as usize).abs_diff(rank.abs_diff(i));
                let worst = (0..).zip(&hits).map(|(i, hit)| off((i, hit.key))).max().unwrap();
                assert!(hits.len() == n && worst <= 12, "{encoding} {d}: out of place by {worst} of {n}");
            }
            // Another first byte in the next row: this row's distances stay.
            let patient = Patient::new(bytes.clone());
            let next = patient.section(CODES).start + 501 * encoding.stride(d);
            let used = if encoding == Encoding::Bits1 && d < 8 { (1 << d) - 1 } else { 0x0F };
            let other = Index::from_bytes(patient.patched(next, 1, patient.get(next, 1) ^ used)).unwrap();
            let query = Random::new(9).normals(d);
            let of = |index: &Index, key: u64| {
                let hits = index.search(&query, &top(1).filter(twindex::Filter::keys(&[key]))).unwrap();
                hits[0].distance.to_bits()
            };
            let same = Index::from_bytes(bytes).unwrap();
            assert!([499, 500, 502].into_iter().all(|key| of(&same, key) == of(&other, key)), "{encoding} {d}");
            assert_ne!(of(&same, 501), of(&other, 501), "{encoding} {d}");
        }
    }
}

// B116. A row's grid is the one that loses least, which may cut its ends off; so these have no code of their own, and
// are off by a step at most, where the recipe has half a step. All levels are used all the same, rotated or not.
#[test]
fn every_level_is_used() {
    let d = 16;
    let rows = uniform(116, 10_000 * d);
    for encoding in QUANTIZED {
        for rotate in [false, true] {
            let index = builder(IndexKind::Flat, Metric::L2, d).encoding(encoding).rotate(rotate).centre(false);
            let index = index.build().unwrap();
            index.add_batch(&(0..10_000).collect::<Vec<_>>(), &rows).unwrap();
            let bytes = index.to_bytes().unwrap();
            let patient = Patient::new(bytes);
            let stride = encoding.stride(d);
            let mut used = vec![0usize; levels(encoding)];
            for row in patient.bytes[patient.section(CODES)].chunks(stride) {
                (0..d).for_each(|i| used[component(encoding, row, d, i)] += 1);
            }
            let inner = &used[1..used.len() - 1];
            let mean = inner.iter().sum::<usize>() as f64 / inner.len().max(1) as f64;
            let ends = [used[0], used[used.len() - 1]];
            eprintln!("B116 {encoding} rotate {rotate}: ends {ends:?}, inner mean {mean}");
            assert!(used.iter().all(|&n| n > 0), "{encoding} rotate {rotate}: {used:?}");
            let skew = ends[0] as f64 / ends[1] as f64;
            assert!((0.8..1.25).contains(&skew), "{encoding} rotate {rotate}: ends are not alike: {ends:?}");
            if !rotate && encoding == Encoding::Int4 {
                assert!(ends.iter().all(|&end| end as f64 >= 0.8 * mean), "{ends:?} at the ends, {mean} within");
            }
            if rotate || encoding == Encoding::Bits1 {
                continue;
            }
            for key in 0..500u64 {
                let row = &rows[key as usize * d..][..d];
                let largest = row.iter().fold(0f32, |max, x| max.max(x.abs()));
                let step = 2.0 * largest / (levels(encoding) - 1) as f32;
                let decoded = index.get(key).unwrap().unwrap().vector;
                for (x, y) in row.iter().zip(&decoded) {
                    assert!((x - y).abs() <= 1.6 * step, "{encoding}: {x} became {y}, steps of {step}");
                }
            }
        }
    }
}

// B117
#[test]
fn scaling_and_shifting_change_no_order() {
    let d = 48;
    let (rows, queries) = (clustered(118, 2500, d), clustered(119, 40, d));
    let scaled =
        |by: f32, plus: f32| [&rows, &queries].map(|rows| rows.iter().map(|x| x * by + plus).collect::<Vec<f32>>());
    for encoding in CODED {
        let keys = |metric: Metric, [rows, queries]: &[Vec<f32>; 2]| -> Vec<Vec<u64>> {
            let index = flat(metric, encoding, Originals::None, rows, d);
            let lists = index.search_batch(queries, &top(10)).unwrap();
            lists.iter().map(|hits| hits.iter().map(|hit| hit.key).collect()).collect()
        };
        let overlap = |a: &[Vec<u64>], b: &[Vec<u64>]| {
            let common = a.iter().zip(b).map(|(a, b)| a.iter().filter(|key| b.contains(key)).count());
            common.sum::<usize>() as f64 / (10 * a.len()) as f64
        };
        let plain = scaled(1.0, 0.0);
        for metric in Metric::ALL {
            let as_is = keys(metric, &plain);
            // 100 more leaves half precision steps of 1/16: that is not the vectors' order any more.
            let changes: &[(f32, f32)] = match metric {
                Metric::L2 if encoding == Encoding::F16 => &[(3.0, 0.0), (1e3, 0.0), (1e-2, 0.0)],
                Metric::L2 => &[(3.0, 0.0), (1.0, 100.0), (1e3, 0.0), (1e-3, 0.0), (1e-15, 0.0), (1e15, 0.0)],
                _ if encoding == Encoding::F16 => &[(3.0, 0.0)],
                _ => &[(3.0, 0.0), (1e-15, 0.0), (1e15, 0.0)],
            };
            for &(by, plus) in changes {
                let common = overlap(&as_is, &keys(metric, &scaled(by, plus)));
                eprintln!("B117 {encoding} {metric} x {by:e} + {plus}: {common:.3}");
                // Half a step's worth of rounding decides otherwise here and there: more often with one bit.
                let least = if plus == 0.0 { 0.97 } else { 0.9 };
                assert!(common >= least, "{encoding} {metric} x {by:e} + {plus}: {common}");
            }
        }
    }
}

// B119. The estimate is unbiased, and so made not of the code's own norm but of the vector's: the distance by decoding
// that is comparable is ‖q − μ‖² + ‖x − μ‖² − 2⟨q − μ, decoded − μ⟩, and its like.
#[test]
fn norms_and_codes_agree() {
    let d = 50;
    let (rows, queries) = (clustered(120, 1200, d), clustered(121, 4, d));
    for encoding in QUANTIZED {
        for metric in Metric::ALL {
            let index = flat(metric, encoding, Originals::None, &rows, d);
            let patient = Patient::new(index.to_bytes().unwrap());
            let centre: Vec<f64> = patient.bytes[patient.section(CENTRE)]
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                .collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let off = |x: &[f32]| -> Vec<f64> {
                let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
                let by = if metric == Metric::Cosine { dot(&x, &x).sqrt() } else { 1.0 };
                x.iter().zip(&centre).map(|(x, centre)| x / by - centre).collect()
            };
            let max = match encoding {
                Encoding::Int8 => 4095.0,
                Encoding::Int4 => 127.0,
                _ => 15.0,
            };
            let check = |query: &[f32], key: u64, got: f32| {
                let row = &rows[key as usize * d..][..d];
                let decoded: Vec<f64> = index.get(key).unwrap().unwrap().vector.iter().map(|&x| x.into()).collect();
                let code: Vec<f64> = decoded.iter().zip(&centre).map(|(x, centre)| x - centre).collect();
                let (q, r) = (off(query), off(row));
                let whole = |off: &[f64]| off.iter().zip(&centre).map(|(x, centre)| x + centre).collect::<Vec<f64>>();
                let inner = dot(&whole(&q), &centre) + dot(&r, &centre) + dot(&q, &code);
                let expected = match metric {
                    Metric::L2 => (dot(&q, &q) + dot(&r, &r) - 2.0 * dot(&q, &code)).max(0.0),
                    Metric::InnerProduct => -inner,
                    _ => (1.0 - inner).clamp(0.0, 2.0),
                };
                // What the query's rounding may do at the worst.
                let step = q.iter().fold(0.0, |max: f64, x| max.max(x.abs())).max(dot(&q, &q).sqrt()) / max;
                let bound = step * (d as f64).sqrt() * dot(&code, &code).sqrt();
                let error = (f64::from(got) - expected).abs();
                let scale = dot(&whole(&q), &whole(&q)).sqrt() * dot(&whole(&r), &whole(&r)).sqrt();
                assert!(error <= bound + 1e-5 * scale, "{encoding} {metric}: {got} for {expected}");
                dot(&whole(&r), &whole(&r))
            };
            for query in queries.chunks(d) {
                for hit in index.search(query, &top(usize::MAX)).unwrap() {
                    check(query, hit.key, hit.distance);
                }
            }
            // A vector's distance from its own row: the row's rounding falls out, the query's remains.
            let mut worst = 0f64;
            for key in 0..1000u64 {
                let row = &rows[key as usize * d..][..d];
                let hits = index.search(row, &top(1).filter(twindex::Filter::keys(&[key]))).unwrap();
                let squared = check(row, key, hits[0].distance);
                if metric != Metric::InnerProduct {
                    assert!(hits[0].distance >= 0.0);
                    worst = worst.max(f64::from(hits[0].distance) / squared);
                }
            }
            eprintln!("B119 {encoding} {metric}: own distance at most {worst:.2e} of the squared norm");
            let most = match encoding {
                Encoding::Int8 => 2e-4,
                Encoding::Int4 => 0.01,
                _ => 0.3,
            };
            assert!(worst <= most, "{encoding} {metric}: {worst}");
        }
    }
}

// B120. Rows of another kind come after the centre is learned; `retrain` learns it anew.
#[test]
fn later_rows_that_are_unlike_the_first_are_found() {
    let d = 64;
    let first = Random::new(122).normals(2000 * d);
    let later: Vec<f32> = Random::new(123).normals(2000 * d).iter().map(|x| 5.0 + 3.0 * x).collect();
    let rows = [&first[..], &later].concat();
    let mut random = Random::new(124);
    let queries: Vec<f32> =
        [random.normals(20 * d), random.normals(20 * d).iter().map(|x| 5.0 + 3.0 * x).collect()].concat();
    for metric in Metric::ALL {
        for (encoding, plain, reranked, own) in [
            (Encoding::F16, 0.97, 0.99, 0.99),
            (Encoding::Int8, 0.8, 0.97, 0.99),
            (Encoding::Int4, 0.4, 0.85, 0.99),
            (Encoding::Bits1, 0.0, 0.3, 0.9),
        ] {
            let index = flat(metric, encoding, Originals::F32, &first, d);
            let owned = OpenOptions::new().residency(Residency::Owned).from_bytes(index.to_bytes().unwrap());
            let mut index = owned.unwrap();
            index.add_batch(&(2000..4000).collect::<Vec<_>>(), &later).unwrap();
            for when in ["as added", "retrained"] {
                let all = keyed(&rows, d);
                let by_code = recall(&index, &all, &queries, &top(10));
                let exact = recall(&index, &all, &queries, &top(10).rerank(5.0));
                let found = (2000..4000u64).step_by(13).filter(|&key| {
                    let row = &rows[key as usize * d..][..d];
                    index.search(row, &top(1)).unwrap()[0].key == key
                });
                // By inner product a row is not its own nearest.
                let found = if metric == Metric::InnerProduct { 1.0 } else { found.count() as f64 / 154.0 };
                eprintln!(
                    "B120 {metric} {encoding} {when}: {by_code:.3}, {exact:.3} reranked, {found:.3} of the later rows"
                );
                assert!(by_code >= plain && exact >= reranked && found >= own, "{metric} {encoding} {when}");
                index.retrain().unwrap();
            }
        }
    }
}

// B120. No scale is assumed: un-normalised vectors under every metric.
#[test]
fn every_metric_takes_vectors_of_any_length() {
    let d = 64;
    for scale in [1.0f32, 100.0] {
        let draw =
            |seed: u64, n: usize| -> Vec<f32> { Random::new(seed).normals(n * d).iter().map(|x| x * scale).collect() };
        let (rows, queries) = (draw(125, 2000), draw(126, 30));
        for metric in Metric::ALL {
            for (encoding, oversample) in
                [(Encoding::F16, 1.0), (Encoding::Int8, 1.0), (Encoding::Int4, 2.0), (Encoding::Bits1, 20.0)]
            {
                let index = flat(metric, encoding, Originals::F32, &rows, d);
                let found = recall(&index, &keyed(&rows, d), &queries, &top(10).rerank(oversample));
                eprintln!("B120 {metric} {encoding} N(0, {scale}): {found:.3}");
                assert!(found >= 0.9, "{metric} {encoding} N(0, {scale}): {found}");
            }
        }
    }
}

// B121. A row's bytes depend on its vector and the centre alone.
#[test]
fn nothing_leaks_from_row_to_row() {
    for encoding in CODED {
        for d in [1, 7, 9, 33, 127] {
            let rows = clustered(127, 1024 + 40, d);
            let special = clustered(128, 1, d);
            let base = || {
                let index = builder(IndexKind::Flat, Metric::L2, d).encoding(encoding).threads(4).build().unwrap();
                index.add_batch(&(0..1024).collect::<Vec<_>>(), &rows[..1024 * d]).unwrap();
                index
            };
            let after = |first: usize| rows[(1024 + first) * d..][..d].to_vec();
            let code = |index: &Index, id: usize| row_of(&index.to_bytes().unwrap(), encoding, d, id);
            let alone = base();
            alone.add(5000, &special).unwrap();
            let expected = code(&alone, 1024);
            let at = format!("{encoding} {d}");
            for first in 0..4 {
                let index = base();
                index.add(4000, &after(first)).unwrap();
                index.add(5000, &special).unwrap();
                assert_eq!(code(&index, 1025), expected, "{at}");
            }
            let updated = base();
            updated.update(3, &special).unwrap();
            assert_eq!(code(&updated, 1024), expected, "{at}");
            let batch = base();
            let many = [&rows[1024 * d..1064 * d], &special, &rows[1024 * d..1064 * d]].concat();
            batch.add_batch(&(5000..5081).collect::<Vec<_>>(), &many).unwrap();
            assert_eq!(code(&batch, 1064), expected, "{at}");
            assert_eq!(code(&batch, 1024), code(&batch, 1065), "{at}");
            let mut compacted = batch;
            (0..500).for_each(|key| assert!(compacted.remove(key).unwrap()));
            compacted.compact().unwrap();
            assert_eq!(code(&compacted, 564), expected, "{at}");
            // Unused bits are zero: `verify` asks for that.
            compacted.verify().unwrap();
        }
    }
}

/// Threads share a batch: its bytes are those of one thread.
#[test]
fn threads_change_no_code() {
    let d = 19;
    let rows = clustered(129, 2500, d);
    for encoding in CODED {
        let build = |threads: usize| {
            let index =
                builder(IndexKind::Flat, Metric::Cosine, d).encoding(encoding).threads(threads).build().unwrap();
            index.add_batch(&(0..2500).collect::<Vec<_>>(), &rows).unwrap();
            index.to_bytes().unwrap()
        };
        assert!(build(1) == build(4), "{encoding}");
    }
}
