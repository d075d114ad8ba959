//! Shared by the tests of the index.

pub mod mutate;
pub mod oracle;
pub mod random;

use random::Random;
use twindex::{Encoding, Index, IndexBuilder, IndexKind, Metric, SearchParams};

/// Flat and HNSW, under each metric.
pub fn kinds_and_metrics() -> impl Iterator<Item = (IndexKind, Metric)> {
    IndexKind::ALL.into_iter().flat_map(|kind| Metric::ALL.into_iter().map(move |metric| (kind, metric)))
}

/// All encodings but `f32`.
pub const CODED: [Encoding; 4] = [Encoding::F16, Encoding::Int8, Encoding::Int4, Encoding::Bits1];

/// One thread and a modest graph, so that tests are quick and repeatable.
pub fn builder(kind: IndexKind, metric: Metric, dimension: usize) -> IndexBuilder {
    Index::builder(dimension, metric).kind(kind).m(8).ef_construction(48).seed(1).threads(1)
}

/// Standard normal rows under the keys 0, 1, 2, …, and the rows.
pub fn normal_index(kind: IndexKind, metric: Metric, rows: usize, dimension: usize, seed: u64) -> (Index, Vec<f32>) {
    let vectors = Random::new(seed).normals(rows * dimension);
    let index = builder(kind, metric, dimension).build().unwrap();
    index.add_batch(&(0..rows as u64).collect::<Vec<_>>(), &vectors).unwrap();
    (index, vectors)
}

/// A plain search for `k`.
pub fn top(k: usize) -> SearchParams<'static> {
    SearchParams::new(k)
}

/// The vector of a key.
pub fn stored(index: &Index, key: u64) -> Option<Vec<f32>> {
    index.get(key).unwrap().map(|stored| stored.vector)
}

/// Rows around forty places, none of them near zero: what embeddings are like. The places depend on the dimension
/// alone.
pub fn clustered(seed: u64, rows: usize, dimension: usize) -> Vec<f32> {
    let places: Vec<f32> = Random::new(dimension as u64).normals(40 * dimension);
    let mut random = Random::new(seed << 32 | 7);
    let mut row = || {
        let place = random.below(40) * dimension;
        let noise = random.normals(dimension);
        let near = places[place..place + dimension].iter().zip(noise);
        near.map(|(x, noise)| 0.7 + x + 0.3 * noise).collect::<Vec<f32>>()
    };
    (0..rows).flat_map(|_| row()).collect()
}
