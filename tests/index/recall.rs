//! How much of the truth the graph finds, on the bundled real embeddings.

use crate::common::oracle::{assert_well_formed, nearest, numbered, recall};
use crate::common::random::Random;
use crate::common::top;
use half::f16;
use std::path::Path;
use twindex::{Encoding, Index, IndexKind, Metric, OpenOptions, Originals, Residency};

const DIMENSION: usize = 384;

/// The numbers of a two-dimensional `.npy` file, each of `N` bytes.
pub fn npy<const N: usize, T>(name: &str, number: impl Fn([u8; N]) -> T) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wordnet").join(name);
    let bytes = std::fs::read(path).expect("the bundled data set");
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[header..].as_chunks::<N>().0.iter().map(|&bytes| number(bytes)).collect()
}

/// Mean recall@10 at `ef`.
fn recall_at(index: &Index, queries: &[f32], truth: &[Vec<(f64, u64)>], ef: usize) -> f64 {
    let lists = index.search_batch(queries, &top(10).ef(ef)).unwrap();
    lists
        .iter()
        .zip(truth)
        .map(|(hits, truth)| {
            assert_well_formed(hits);
            assert_eq!(hits.len(), 10);
            recall(hits, truth)
        })
        .sum::<f64>()
        / truth.len() as f64
}

#[test]
fn the_graph_finds_the_truth_in_real_embeddings() {
    let rows: Vec<f32> = npy("base.f16.npy", |bytes| f16::from_le_bytes(bytes).to_f32());
    let queries: Vec<f32> = npy("queries.f16.npy", |bytes| f16::from_le_bytes(bytes).to_f32());
    let ids: Vec<i32> = npy("truth.i32.npy", i32::from_le_bytes);
    let products: Vec<f32> = npy("truth.f32.npy", f32::from_le_bytes);
    let best = |ids: &[i32], products: &[f32]| -> Vec<(f64, u64)> {
        ids.iter().zip(products).take(10).map(|(&id, &p)| (-f64::from(p), id as u64)).collect()
    };
    let truth: Vec<_> = ids.chunks(100).zip(products.chunks(100)).map(|(ids, p)| best(ids, p)).collect();
    assert_eq!((rows.len(), queries.len(), truth.len()), (10_000 * DIMENSION, 200 * DIMENSION, 200));

    let built = Index::builder(DIMENSION, Metric::InnerProduct).m(16).ef_construction(200).build().unwrap();
    built.add_batch(&(0..10_000).collect::<Vec<_>>(), &rows).unwrap();
    let exact = built.search_batch(&queries, &top(10).exact(true)).unwrap();
    assert!(exact.iter().zip(&truth).all(|(hits, truth)| recall(hits, truth) == 1.0));
    let bytes = built.to_bytes().unwrap();
    drop(built);

    let mut index = OpenOptions::new().residency(Residency::Owned).from_bytes(bytes).unwrap();
    let check = |index: &Index, truth: &[Vec<(f64, u64)>], when: &str, floors: [f64; 2]| {
        let [at_64, at_128] = [64, 128].map(|ef| recall_at(index, &queries, truth, ef));
        eprintln!("recall@10 {when}: {at_64:.4} at ef 64, {at_128:.4} at ef 128");
        assert!(at_64 >= floors[0] && at_128 >= floors[1], "{when}: {at_64} at ef 64, {at_128} at ef 128");
        assert!(at_128 >= at_64 - 0.002, "{when}: a larger ef finds less");
    };
    check(&index, &truth, "as built", [0.96, 0.98]);
    assert_eq!(index.stats().unwrap().unreachable, 0);

    let gone = |key: u64| key * 7 % 10 < 3;
    for key in (0..10_000).filter(|&key| gone(key)) {
        assert!(index.remove(key).unwrap());
    }
    let left = || numbered(&rows, DIMENSION).filter(|&(key, _)| !gone(key));
    let truth: Vec<_> = queries.chunks(DIMENSION).map(|q| nearest(Metric::InnerProduct, q, left(), 10)).collect();
    check(&index, &truth, "with 30 % removed", [0.96, 0.98]);
    index.compact().unwrap();
    assert_eq!(index.len(), 7000);
    check(&index, &truth, "compacted", [0.96, 0.98]);
    let stats = index.stats().unwrap();
    assert_eq!((stats.rows, stats.tombstones, stats.unreachable), (7000, 0, 0));
    index.verify().unwrap();
}

/// The share of the true `k` nearest, by keys, in lists of hits.
pub fn share(lists: &[Vec<twindex::Hit>], truth: &[Vec<u64>], k: usize) -> f64 {
    let found = lists.iter().zip(truth).map(|(hits, truth)| {
        assert_well_formed(hits);
        assert_eq!(hits.len(), k);
        hits.iter().filter(|hit| truth[..k].contains(&hit.key)).count()
    });
    found.sum::<usize>() as f64 / (k * truth.len()) as f64
}

/// Scans of codes, and with the exact distances of some more: recall@100 against the bundled truth.
#[test]
fn codes_find_the_truth_in_real_embeddings() {
    let rows: Vec<f32> = npy("base.f16.npy", |bytes| f16::from_le_bytes(bytes).to_f32());
    let queries: Vec<f32> = npy("queries.f16.npy", |bytes| f16::from_le_bytes(bytes).to_f32());
    let ids: Vec<i32> = npy("truth.i32.npy", i32::from_le_bytes);
    let truth: Vec<Vec<u64>> = ids.chunks(100).map(|ids| ids.iter().map(|&id| id as u64).collect()).collect();
    for (encoding, by_code, oversample, reranked) in [
        (Encoding::F16, 0.999, 1.0, 0.999),
        (Encoding::Int8, 0.994, 1.2, 0.9995),
        (Encoding::Int4, 0.95, 1.2, 0.994),
        (Encoding::Bits1, 0.68, 10.0, 0.995),
    ] {
        let index = Index::builder(DIMENSION, Metric::InnerProduct).kind(IndexKind::Flat);
        let index = index.encoding(encoding).originals(Originals::F32).build().unwrap();
        index.add_batch(&(0..10_000).collect::<Vec<_>>(), &rows).unwrap();
        let ask = |params| share(&index.search_batch(&queries, &params).unwrap(), &truth, 100);
        let (codes, exact) = (ask(top(100)), ask(top(100).rerank(oversample)));
        eprintln!("{encoding}: recall@100 {codes:.4} by codes, {exact:.4} reranked at {oversample}");
        assert!(codes >= by_code && exact >= reranked, "{encoding}: {codes} by codes, {exact} reranked");
        assert!(exact >= codes, "{encoding}: reranking loses hits");
    }
}

/// Graphs built on codes lead to the truth as those built on the vectors do.
#[test]
fn graphs_on_codes_lose_little_on_real_embeddings() {
    const ROWS: usize = 3000;
    let rows: Vec<f32> = npy("base.f16.npy", |bytes| f16::from_le_bytes(bytes).to_f32());
    let rows = &rows[..ROWS * DIMENSION];
    let queries: Vec<f32> = npy("queries.f16.npy", |bytes| f16::from_le_bytes(bytes).to_f32());
    let mut found = Vec::new();
    let mut truth: Vec<Vec<u64>> = Vec::new();
    for encoding in Encoding::ALL {
        let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
        let index = Index::builder(DIMENSION, Metric::InnerProduct).m(16).ef_construction(80).originals(originals);
        let index = index.encoding(encoding).build().unwrap();
        index.add_batch(&(0..ROWS as u64).collect::<Vec<_>>(), rows).unwrap();
        if encoding == Encoding::F32 {
            let exact = index.search_batch(&queries, &top(10).exact(true)).unwrap();
            truth = exact.iter().map(|hits| hits.iter().map(|hit| hit.key).collect()).collect();
        }
        let ask = |params| share(&index.search_batch(&queries, &params).unwrap(), &truth, 10);
        let (codes, exact) = (ask(top(10).ef(64)), ask(top(10).ef(64).rerank(4.0)));
        eprintln!("{encoding}: recall@10 {codes:.4} at ef 64, {exact:.4} reranked");
        found.push((encoding, codes, exact));
        index.verify().unwrap();
    }
    let floats = found[0].1;
    assert!(floats >= 0.95, "{found:?}");
    // One query in two hundred is half a per cent.
    for ((encoding, _, exact), less) in found.iter().zip([0.0, 0.005, 0.005, 0.01, 0.06]) {
        assert!(*exact >= floats - less, "{encoding}: {found:?}");
    }
}

// B95. A hundred copies of one vector, and rows around it: neither an island nor a wall.
#[test]
fn copies_leave_the_ways_around_them_open() {
    const ROWS: usize = 6000;
    for metric in [Metric::L2, Metric::Cosine] {
        let mut random = Random::new(101);
        let place = random.normals(16);
        let rows: Vec<f32> = (0..ROWS)
            .flat_map(|row| {
                let noise = random.normals(16);
                let apart = if row % 60 == 0 {
                    0.0
                } else if row % 20 == 1 {
                    0.2
                } else {
                    2.0
                };
                place.iter().zip(noise).map(|(x, noise)| x + apart * noise).collect::<Vec<_>>()
            })
            .collect();
        let index = Index::builder(16, metric).threads(1).build().unwrap();
        index.add_batch(&(0..ROWS as u64).collect::<Vec<_>>(), &rows).unwrap();
        assert_eq!(index.stats().unwrap().unreachable, 0, "{metric}");
        let found: usize = (0..100)
            .map(|_| {
                let query: Vec<f32> = place.iter().zip(random.normals(16)).map(|(x, noise)| x + 0.2 * noise).collect();
                let exact = index.search(&query, &top(10).exact(true)).unwrap();
                let hits = index.search(&query, &top(10)).unwrap();
                hits.iter().filter(|hit| hit.distance <= exact[9].distance).count()
            })
            .sum();
        assert!(found >= 900, "{metric}: {found} of 1000");
    }
}
