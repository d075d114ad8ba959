//! What the answers ought to be: brute force in f64, ties by key.

use twindex::{Hit, Metric};

/// The distance as `Metric` documents it.
pub fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let sum = |f: fn(f64, f64) -> f64| a.iter().zip(b).map(|(&a, &b)| f(a.into(), b.into())).sum::<f64>();
    match metric {
        Metric::L2 => sum(|a, b| (a - b) * (a - b)),
        // Not −x: zero shall be +0.
        Metric::InnerProduct => 0.0 - sum(|a, b| a * b),
        Metric::Cosine => {
            let norm = |v: &[f32]| v.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
            (1.0 - sum(|a, b| a * b) / norm(a) / norm(b)).clamp(0.0, 2.0)
        }
        _ => panic!("the oracle does not know {metric}"),
    }
}

/// What an f32 distance may be off by: a share of the sum of the absolute terms.
pub fn tolerance(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let terms = a.iter().zip(b).map(|(&a, &b)| f64::from(a * b).abs()).sum::<f64>();
    match metric {
        Metric::L2 => 1e-5 * distance(metric, a, b),
        Metric::InnerProduct => 1e-5 * terms,
        _ => 1e-5,
    }
}

/// The `k` nearest of `rows`: distance and key.
pub fn nearest<'a>(
    metric: Metric,
    query: &[f32],
    rows: impl IntoIterator<Item = (u64, &'a [f32])>,
    k: usize,
) -> Vec<(f64, u64)> {
    let mut all: Vec<(f64, u64)> = rows.into_iter().map(|(key, row)| (distance(metric, query, row), key)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.truncate(k);
    all
}

/// The rows of a row-major buffer, under the keys 0, 1, 2, ….
pub fn numbered(rows: &[f32], dimension: usize) -> impl Iterator<Item = (u64, &[f32])> {
    (0..).zip(rows.chunks(dimension))
}

/// The share of `truth` that `hits` found: a hit counts if it is no farther than the last of `truth`.
pub fn recall(hits: &[Hit], truth: &[(f64, u64)]) -> f64 {
    let Some(&(worst, _)) = truth.last() else { return 1.0 };
    let limit = worst + 1e-6 * worst.abs();
    let right = hits.iter().filter(|hit| f64::from(hit.distance) <= limit).count();
    right.min(truth.len()) as f64 / truth.len() as f64
}

/// What is promised of every list of hits: unique, nearest first, ties by key, finite.
pub fn assert_well_formed(hits: &[Hit]) {
    for hit in hits {
        assert!(hit.distance.is_finite(), "{hit:?}");
    }
    for pair in hits.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        assert!((a.distance, a.key) < (b.distance, b.key), "{a:?} before {b:?}");
    }
    let mut keys: Vec<u64> = hits.iter().map(|hit| hit.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), hits.len(), "a key twice in {hits:?}");
}

/// Keys and the bits of distances: for comparing answers that shall be the same to the last bit.
pub fn bits(hits: &[Hit]) -> Vec<(u64, u32)> {
    hits.iter().map(|hit| (hit.key, hit.distance.to_bits())).collect()
}
