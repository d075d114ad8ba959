//! Whether the graph leads everywhere, on data that has broken graphs of other libraries: chunks of documents, late
//! outliers, norms that differ, sorted insertion, very long vectors. Truth is the exact scan of the same index, which
//! other tests compare with the oracle.

use crate::common::oracle::{assert_well_formed, numbered};
use crate::common::random::Random;
use crate::common::{clustered, top};
use twindex::{Encoding, Hit, Index, IndexBuilder, IndexKind, Metric, Originals};

/// An index of the rows in the order of `keys`, each under its number, on all cores.
fn built(builder: IndexBuilder, rows: &[f32], keys: &[u64]) -> Index {
    let index = builder.build().unwrap();
    let d = index.dimension();
    let ordered: Vec<f32> = keys.iter().flat_map(|&key| &rows[key as usize * d..][..d]).copied().collect();
    index.add_batch(keys, &ordered).unwrap();
    index
}

fn in_order(rows: &[f32], d: usize) -> Vec<u64> {
    numbered(rows, d).map(|(key, _)| key).collect()
}

fn truth(index: &Index, queries: &[f32], k: usize) -> Vec<Vec<Hit>> {
    index.search_batch(queries, &top(k).exact(true)).unwrap()
}

/// The share of the true nearest that a search at `ef` finds: as many as there are in each list of `truth`.
fn recall_at(index: &Index, queries: &[f32], truth: &[Vec<Hit>], ef: usize) -> f64 {
    let k = truth[0].len();
    let lists = index.search_batch(queries, &top(k).ef(ef)).unwrap();
    let found = lists.iter().zip(truth).map(|(hits, truth)| {
        assert_well_formed(hits);
        assert_eq!(hits.len(), k);
        hits.iter().filter(|hit| hit.distance <= truth[k - 1].distance).count()
    });
    found.sum::<usize>() as f64 / (k * truth.len()) as f64
}

/// `place` and noise around it.
fn around(random: &mut Random, place: &[f32], spread: f32) -> Vec<f32> {
    place.iter().map(|x| x + spread * random.normal()).collect()
}

/// Documents of some topics, cut into chunks that are nearly copies: 40 × 25 × 20 rows, those of a document together.
fn chunks_of_documents(d: usize) -> Vec<f32> {
    let mut random = Random::new(93);
    let mut rows = Vec::new();
    for _ in 0..40 {
        let topic = around(&mut random, &vec![0.0; d], 4.0);
        for _ in 0..25 {
            let document = around(&mut random, &topic, 1.0);
            (0..20).for_each(|_| rows.extend(around(&mut random, &document, 0.05)));
        }
    }
    rows
}

// B93. Neighbours chosen by nearness alone make an island of each document, and no `ef` leads off it.
#[test]
fn chunks_of_documents_are_no_islands() {
    let d = 64;
    let rows = chunks_of_documents(d);
    let mut random = Random::new(94);
    let queries: Vec<f32> = (0..200)
        .flat_map(|_| {
            let row = random.below(rows.len() / d);
            around(&mut random, &rows[row * d..][..d], 0.05)
        })
        .collect();
    let sorted = in_order(&rows, d);
    let mut shuffled = sorted.clone();
    random.shuffle(&mut shuffled);
    let mut nearest = Vec::new();
    // hnswlib finds 0.946 and 0.999 of it.
    for (order, keys, floor) in [("sorted", sorted, 0.93), ("shuffled", shuffled, 0.99)] {
        let index = built(Index::builder(d, Metric::L2).seed(1), &rows, &keys);
        if nearest.is_empty() {
            nearest = truth(&index, &queries, 10);
        }
        let [at_200, at_800, at_2000] = [200, 800, 2000].map(|ef| recall_at(&index, &queries, &nearest, ef));
        let unreachable = index.stats().unwrap().unreachable;
        eprintln!(
            "{order}: {at_200:.4} at ef 200, {at_800:.4} at 800, {at_2000:.4} at 2000; {unreachable} unreachable"
        );
        assert!(at_200 >= floor, "{order}: {at_200}");
        assert!(
            at_800 >= at_200 - 0.002 && at_2000 >= at_800 - 0.002 && at_2000 >= 0.95,
            "{order}: more ef, no more found"
        );
    }
}

/// How many of the last `late` rows find themselves at the largest `ef` at which the graph is walked at all; and how
/// many rows are out of the graph's reach. An `ef` of everything finds all of them: by a scan.
fn late_rows_found(metric: Metric, m: usize, seed: u64, cluster: usize, late: usize) -> (usize, u64) {
    let d = 32;
    let mut random = Random::new(seed);
    let mut rows = Vec::new();
    (0..cluster).for_each(|_| rows.extend(around(&mut random, &vec![1.0; d], 1e-3)));
    (0..late).for_each(|_| rows.extend(around(&mut random, &vec![-20.0; d], 5.0)));
    let index = built(Index::builder(d, metric).m(m).seed(seed).threads(1), &rows, &in_order(&rows, d));
    let found = |ef: usize| {
        let last = numbered(&rows, d).skip(cluster);
        last.filter(|&(key, row)| index.search(row, &top(1).ef(ef)).unwrap()[0].key == key).count()
    };
    let n = cluster + late;
    assert_eq!(found(n), late, "{metric} m {m} seed {seed}: by a scan");
    // A scan is taken for cheaper where n ≤ 8 · ef.
    (found((n - 1) / 8), index.stats().unwrap().unreachable)
}

// B94. What is added behind a dense cluster larger than m keeps a way in.
#[test]
fn late_outliers_are_found() {
    let sums = |metric, m, seeds, cluster, late| {
        let each = (0..seeds).map(|seed| late_rows_found(metric, m, seed, cluster, late));
        let sums = each.fold((0, 0), |sums, each| (sums.0 + each.0, sums.1 + each.1));
        eprintln!(
            "{metric} m {m}, {cluster} and {late}: {} of {} found, {} rows out of reach",
            sums.0,
            seeds as usize * late,
            sums.1
        );
        sums
    };
    // An `ef` of 4, 8, 20 for m 4 (3 of 31 rows), 8, 48 leaves little to choose from. hnswlib finds 199, 200, 200, 200
    // of 200 by L2 and 198, 199, 193, 176 by cosine, where all of the cluster is about as far from the outliers.
    for (metric, floors) in [(Metric::L2, [196, 196, 196, 196]), (Metric::Cosine, [194, 194, 188, 166])] {
        for (m, floor) in [4, 8, 16, 48].into_iter().zip(floors) {
            let (found, unreachable) = sums(metric, m, 10, 3 * m, 20);
            assert!(found >= floor && unreachable == 0, "{metric} m {m}: {found}, {unreachable} out of reach");
        }
        // Of the rows out of reach at m 4 most are of the cluster: eight links are few in 32 dimensions. hnswlib finds
        // 591 and 600 of 600 by L2, 594 and 599 by cosine.
        for (m, floor, most) in [(4, 585, 0.03), (16, 597, 0.001)] {
            let (found, unreachable) = sums(metric, m, 3, 2000, 200);
            assert!(found >= floor, "{metric} m {m}: {found} of 600");
            assert!(unreachable as f64 <= most * 6600.0, "{metric} m {m}: {unreachable} of 6600 rows out of reach");
        }
    }
}

// B97. Inner products of rows whose norms differ by factors of hundreds: long rows are near every query.
#[test]
fn inner_products_of_rows_of_many_lengths() {
    let (d, n) = (64, 10_000);
    let mut random = Random::new(97);
    let mut rows: Vec<f32> = Vec::new();
    for _ in 0..n {
        let row = random.normals(d);
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        let wanted = random.normal().exp();
        rows.extend(row.iter().map(|x| x * wanted / norm));
    }
    let queries = random.normals(200 * d);
    let norm = |key: u64| rows[key as usize * d..][..d].iter().map(|x| x * x).sum::<f32>();
    let mixed = in_order(&rows, d);
    let mut long_first = mixed.clone();
    long_first.sort_by(|&a, &b| norm(b).total_cmp(&norm(a)));
    let long_last: Vec<u64> = long_first.iter().rev().copied().collect();
    let found: Vec<f64> = [mixed, long_first, long_last]
        .iter()
        .map(|keys| {
            let index = built(Index::builder(d, Metric::InnerProduct).ef_construction(100).seed(1), &rows, keys);
            recall_at(&index, &queries, &truth(&index, &queries, 10), 64)
        })
        .collect();
    eprintln!("{found:?} mixed, long ones first, long ones last");
    // With the long ones first a third of the rows is out of reach, the short ones: they are nearest to no such query.
    assert!(found[0] >= 0.95, "{found:?}");
    assert!((found[1] - found[2]).abs() < 0.05, "{found:?}");
}

// B97. Queries that point away from all rows: the nearest are the rows of the smallest inner products with the others,
// to which few links lead. What is found of them is small and no promise (a tenth at an `ef` of 256; hnswlib's way of
// linking is the same); how many come back is, and that a scan finds them all.
#[test]
fn queries_pointing_away_from_all_rows_get_as_many_hits() {
    let (d, n) = (128, 5000);
    let mut random = Random::new(98);
    let rows: Vec<f32> = (0..n * d).map(|_| 1.0 + random.normal()).collect();
    let queries: Vec<f32> = (0..50 * d).map(|_| -1.0 - random.normal()).collect();
    let index = built(Index::builder(d, Metric::InnerProduct).seed(1), &rows, &in_order(&rows, d));
    let nearest = truth(&index, &queries, 10);
    let [at_10, at_64, at_256, by_scan] = [10, 64, 256, n].map(|ef| recall_at(&index, &queries, &nearest, ef));
    eprintln!("{at_10} at ef 10, {at_64} at 64, {at_256} at 256, {by_scan} at {n}");
    assert!(at_10 <= at_64 && at_64 <= at_256, "more ef, less found");
    assert_eq!(by_scan, 1.0);
}

// B98. The order of insertion costs a bounded share of what is found.
#[test]
fn the_order_of_insertion_costs_little() {
    let (d, n, places) = (32, 20_000, 100);
    let mut random = Random::new(98);
    let centres: Vec<f32> = random.normals(places * d);
    let rows: Vec<f32> = (0..n).flat_map(|row| around(&mut random, &centres[row % places * d..][..d], 0.5)).collect();
    let queries: Vec<f32> = (0..200)
        .flat_map(|_| {
            let at = random.below(places);
            around(&mut random, &centres[at * d..][..d], 0.5)
        })
        .collect();
    let mut by_chance = in_order(&rows, d);
    random.shuffle(&mut by_chance);
    let mut by_first = by_chance.clone();
    by_first.sort_by(|&a, &b| rows[a as usize * d].total_cmp(&rows[b as usize * d]));
    let mut by_cluster = by_chance.clone();
    by_cluster.sort_by_key(|&key| key as usize % places);
    let reversed = by_first.iter().rev().copied().collect();
    let mut nearest = Vec::new();
    let mut found = Vec::new();
    for keys in [by_chance, by_first, by_cluster, reversed] {
        let index = built(Index::builder(d, Metric::L2).m(12).ef_construction(60).seed(1), &rows, &keys);
        if nearest.is_empty() {
            nearest = truth(&index, &queries, 10);
        }
        found.push(recall_at(&index, &queries, &nearest, 100));
    }
    eprintln!("{found:?} by chance, by the first component, by cluster, from the last to the first");
    let (worst, best) = found.iter().fold((1.0f64, 0.0f64), |(low, high), &x| (low.min(x), high.max(x)));
    assert!(worst >= best - 0.06, "{found:?}");
}

// B100. As much as the reference implementation finds, at the same parameters.
#[test]
fn uniform_data_is_found_as_by_hnswlib() {
    let (d, n) = (128, 10_000);
    let mut random = Random::new(100);
    let mut draw = |rows: usize| (0..rows * d).map(|_| random.uniform() as f32).collect::<Vec<_>>();
    let (rows, queries) = (draw(n), draw(200));
    let index = built(Index::builder(d, Metric::L2).m(16).ef_construction(200).seed(1), &rows, &in_order(&rows, d));
    let nearest = truth(&index, &queries, 10);
    let found = [16, 64, 256].map(|ef| recall_at(&index, &queries, &nearest, ef));
    eprintln!("{found:?} at ef 16, 64, 256");
    // hnswlib 0.8, on these numbers, one thread: 0.358 to 0.371, 0.725 to 0.726, 0.969 to 0.970 with the seeds 1, 2, 3.
    for (found, hnswlib) in found.iter().zip([0.364, 0.726, 0.969]) {
        assert!(*found >= hnswlib - 0.02, "{found} where hnswlib finds {hnswlib}");
    }
    assert!(found.is_sorted(), "more ef, less found: {found:?}");
}

// B101. A stored vector finds itself, however long.
#[test]
fn long_vectors_find_themselves() {
    const ROWS: usize = 2000;
    for d in [2048, 4096] {
        let rows = Random::new(101).normals(ROWS * d);
        let alike = if d == 2048 { clustered(101, ROWS, d) } else { Vec::new() };
        for encoding in [Encoding::F32, Encoding::F16, Encoding::Int8] {
            let is_f32 = encoding == Encoding::F32;
            let originals = if is_f32 { Originals::None } else { Originals::F32 };
            let params = if is_f32 { top(1) } else { top(1).rerank(4.0) };
            let share = |kind, rows: &[f32], step: usize| {
                let builder = Index::builder(d, Metric::L2).kind(kind).encoding(encoding).originals(originals);
                let index = built(builder.m(16).ef_construction(40).seed(1), rows, &in_order(rows, d));
                let asked: Vec<_> = numbered(rows, d).step_by(step).collect();
                let itself = |&&(key, row): &&(u64, &[f32])| index.search(row, &params).unwrap()[0].key == key;
                let found = asked.iter().filter(itself).count();
                found as f64 / asked.len() as f64
            };
            let scanned = share(IndexKind::Flat, &rows, 10);
            assert_eq!(scanned, 1.0, "{encoding} {d}: by a scan");
            if d == 2048 {
                let clusters = share(IndexKind::Hnsw, &alike, 1);
                assert!(clusters >= 0.99, "{encoding} {d}: {clusters} of clusters");
            }
            if d == 2048 && is_f32 {
                // Of random vectors, all about equally far from each other, hnswlib's graph leads to 0.967 with these
                // parameters (0.980 with an `ef_construction` of 200).
                let random = share(IndexKind::Hnsw, &rows, 1);
                assert!(random >= 0.95, "{encoding} {d}: {random} of random vectors");
            }
        }
    }
}
