//! Keys: all of them valid, each of them at most once, and always with the vector they came with.

use crate::common::oracle::{assert_well_formed, distance, nearest, recall};
use crate::common::random::Random;
use crate::common::stored;
use crate::common::{builder, kinds_and_metrics, top};
use std::collections::BTreeMap;
use twindex::{Error, Filter, Index, IndexKind, Metric, OpenOptions, Residency};

const BORDERS: [u64; 9] = [0, 1, (1 << 32) - 1, 1 << 32, (1 << 53) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, u64::MAX];

// B59
#[test]
fn every_u64_is_a_key() {
    for (kind, metric) in kinds_and_metrics() {
        let index = builder(kind, metric, 3).build().unwrap();
        let rows = Random::new(59).normals(BORDERS.len() * 3);
        index.add_batch(&BORDERS, &rows).unwrap();
        let opened = |residency| OpenOptions::new().residency(residency).from_bytes(index.to_bytes().unwrap()).unwrap();
        for index in [&index, &opened(Residency::Mapped), &opened(Residency::Owned)] {
            assert_eq!(index.keys(), BORDERS);
            let mut found: Vec<u64> = index.search(&[1.0; 3], &top(100)).unwrap().iter().map(|hit| hit.key).collect();
            found.sort_unstable();
            assert_eq!(found, BORDERS);
            for (&key, row) in BORDERS.iter().zip(rows.chunks(3)) {
                assert!(index.contains(key));
                assert_eq!(stored(index, key).as_deref(), Some(row));
                let only = index.search(row, &top(10).filter(Filter::keys(&[key]))).unwrap();
                assert_eq!(only.iter().map(|hit| hit.key).collect::<Vec<_>>(), [key]);
            }
            for key in [2, (1 << 32) + 1, u64::MAX - 1] {
                assert!(!index.contains(key) && index.get(key).unwrap().is_none());
            }
        }
        for (left, &key) in (0..BORDERS.len()).rev().zip(&BORDERS) {
            assert!(index.remove(key).unwrap());
            assert!(!index.contains(key));
            assert_eq!(index.search(&[1.0; 3], &top(100)).unwrap().len(), left);
        }
    }
}

/// A key made of the vector, so that it can be told whether the two have stayed together.
fn key_of(vector: &[f32], copy: u64) -> u64 {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    u64::from(crc32fast::hash(&bytes)) << 8 | copy
}

// B61
#[test]
fn key_and_vector_stay_together_through_parallel_builds() {
    let rows = Random::new(61).normals(2500 * 8);
    let mut order: Vec<(usize, u64)> = (0..2500).flat_map(|row| [(row, 0), (row, 1)]).collect();
    Random::new(62).shuffle(&mut order);
    let row = |i: usize| &rows[i * 8..][..8];
    let keys: Vec<u64> = order.iter().map(|&(i, copy)| key_of(row(i), copy)).collect();
    let vectors: Vec<f32> = order.iter().flat_map(|&(i, _)| row(i)).copied().collect();
    for threads in [2, 5, 16] {
        let index = builder(IndexKind::Hnsw, Metric::L2, 8).ef_construction(32).threads(threads).build().unwrap();
        let (first, second) = (1700, keys.len());
        index.add_batch(&keys[..first], &vectors[..first * 8]).unwrap();
        index.add_batch(&keys[first..second], &vectors[first * 8..]).unwrap();
        assert_eq!(index.keys(), keys);
        for i in (0..2500).step_by(9) {
            for hit in index.search(row(i), &top(10)).unwrap() {
                let vector = stored(&index, hit.key).unwrap();
                assert_eq!(key_of(&vector, hit.key & 0xff), hit.key);
                assert_eq!(hit.distance == 0.0, vector == row(i));
            }
        }
        index.verify().unwrap();
    }
}

// B62
#[test]
fn a_key_twice_is_refused_and_the_first_stays() {
    let (a, b) = ([1.0, 2.0], [-3.0, 5.0]);
    for (kind, metric) in kinds_and_metrics() {
        let index = builder(kind, metric, 2).build().unwrap();
        index.add(7, &a).unwrap();
        assert!(matches!(index.add(7, &b), Err(Error::DuplicateKey { key: 7 })));
        assert_eq!((index.len(), stored(&index, 7)), (1, Some(a.to_vec())));
        for keys in [[1, 2, 1], [2, 1, 1], [1, 2, 7], [7, 1, 2]] {
            let vectors = [1.0, 1.0, 2.0, 1.0, 3.0, 1.0];
            let repeated = if keys.contains(&7) { 7 } else { 1 };
            let refused = index.add_batch(&keys, &vectors);
            assert!(matches!(refused, Err(Error::DuplicateKey { key }) if key == repeated), "{refused:?}");
            assert_eq!(index.keys(), [7]);
        }
        index.update(7, &b).unwrap();
        assert_eq!((index.len(), stored(&index, 7)), (1, Some(b.to_vec())));
        assert_eq!(index.search(&b, &top(5)).unwrap().len(), 1);
    }
}

/// Compares with what ought to be there.
fn compare(index: &Index, model: &BTreeMap<u64, Vec<f32>>, metric: Metric, query: &[f32]) {
    assert_eq!(index.len(), model.len());
    for params in [top(10), top(10).exact(true), top(usize::MAX)] {
        let hits = index.search(query, &params).unwrap();
        assert_well_formed(&hits);
        for hit in &hits {
            let vector = model.get(&hit.key).expect("a live key");
            let off = (distance(metric, query, vector) - f64::from(hit.distance)).abs();
            assert!(off < 1e-4, "{hit:?} is off by {off}");
        }
    }
    assert_eq!(index.search(query, &top(10)).unwrap().len(), model.len().min(10));
    assert_eq!(index.search(query, &top(usize::MAX)).unwrap().len(), model.len());
}

// B35
#[test]
fn thousands_of_changes_over_few_keys_keep_to_the_model() {
    for (kind, metric) in kinds_and_metrics() {
        let mut index = builder(kind, metric, 6).m(4).ef_construction(16).build().unwrap();
        let mut model = BTreeMap::new();
        let mut random = Random::new(35);
        for step in 0..2500 {
            let (key, vector) = (random.below(300) as u64, random.normals(6));
            match (random.below(5), model.contains_key(&key)) {
                (0 | 1, false) | (3, false) => {
                    index.add(key, &vector).unwrap();
                    model.insert(key, vector);
                }
                (0..=2, true) => {
                    index.update(key, &vector).unwrap();
                    model.insert(key, vector);
                }
                (3, true) => assert!(matches!(index.add(key, &vector), Err(Error::DuplicateKey { .. }))),
                (_, there) => {
                    assert_eq!(index.remove(key).unwrap(), there);
                    model.remove(&key);
                }
            }
            if step % 100 == 99 {
                compare(&index, &model, metric, &random.normals(6));
                let mut keys = index.keys();
                keys.sort_unstable();
                assert_eq!(keys, model.keys().copied().collect::<Vec<_>>());
            }
            if step % 900 == 899 {
                index.compact().unwrap();
                assert_eq!(index.stats().unwrap().tombstones, 0);
                compare(&index, &model, metric, &random.normals(6));
            }
        }
        index.verify().unwrap();
    }
}

// B32
#[test]
fn an_index_that_lost_everything_is_as_good_as_new() {
    for kind in IndexKind::ALL {
        let mut index = builder(kind, Metric::L2, 8).build().unwrap();
        let mut sizes = Vec::new();
        for cycle in 0..12u64 {
            let keys: Vec<u64> = (cycle * 200..cycle * 200 + 200).collect();
            let rows = Random::new(cycle).normals(200 * 8);
            index.add_batch(&keys, &rows).unwrap();
            assert_eq!(index.len(), 200);
            for (&key, row) in keys.iter().zip(rows.chunks(8)) {
                assert_eq!(index.search(row, &top(1)).unwrap()[0].key, key);
            }
            sizes.push(index.to_bytes().unwrap().len());
            for key in keys {
                assert!(index.remove(key).unwrap());
            }
            assert!(index.is_empty() && index.keys().is_empty());
            assert!(index.search(&rows[..8], &top(10)).unwrap().is_empty());
            let reopened =
                OpenOptions::new().residency(Residency::Owned).from_bytes(index.to_bytes().unwrap()).unwrap();
            assert!(reopened.is_empty() && reopened.search(&rows[..8], &top(1)).unwrap().is_empty());
            if cycle % 2 == 1 {
                index.compact().unwrap();
            } else {
                index.clear().unwrap();
            }
            index.verify().unwrap();
        }
        assert!(sizes[11] * 10 <= sizes[1] * 13, "{sizes:?}");
    }
}

// B32 again, with the tombstones left in.
#[test]
fn rows_added_behind_nothing_but_tombstones_are_found() {
    let index = builder(IndexKind::Hnsw, Metric::L2, 4).build().unwrap();
    let rows = Random::new(320).normals(600 * 4);
    for (key, row) in (0..600).zip(rows.chunks(4)) {
        index.add(key, row).unwrap();
    }
    for key in 0..600 {
        index.remove(key).unwrap();
    }
    for (key, row) in (1000..1600).zip(rows.chunks(4)) {
        index.add(key, row).unwrap();
        assert_eq!(index.search(row, &top(1)).unwrap()[0].key, key);
        assert_eq!(index.search(row, &top(10).ef(10)).unwrap().len(), index.len().min(10));
    }
}

// B31. From so far away few candidates find the nearest of a cluster; with the dead in the graph it is no worse.
#[test]
fn tombstones_around_the_query_do_not_hide_the_living() {
    let mut random = Random::new(31);
    let rows: Vec<f32> =
        (0..3000 * 16).map(|i| random.normal() * 0.1 + if i < 1500 * 16 { 0.0 } else { 10.0 }).collect();
    let living: Vec<(u64, &[f32])> = (0..).zip(rows.chunks(16)).skip(1500).collect();
    let index = builder(IndexKind::Hnsw, Metric::L2, 16).build().unwrap();
    index.add_batch(&(0..3000).collect::<Vec<_>>(), &rows).unwrap();
    for key in 0..1500 {
        index.remove(key).unwrap();
    }
    let unspoilt = builder(IndexKind::Hnsw, Metric::L2, 16).build().unwrap();
    unspoilt.add_batch(&(1500..3000).collect::<Vec<_>>(), &rows[1500 * 16..]).unwrap();
    let found = |index: &Index, ef: usize| {
        let of = |query: &[f32]| {
            let hits = index.search(query, &top(10).ef(ef)).unwrap();
            assert_eq!(hits.len(), 10);
            assert_well_formed(&hits);
            assert!(hits.iter().all(|hit| hit.key >= 1500));
            recall(&hits, &nearest(Metric::L2, query, living.iter().copied(), 10))
        };
        rows.chunks(16).take(1500).step_by(15).map(of).sum::<f64>() / 100.0
    };
    for ef in [10, 32, 100] {
        let (with, without) = (found(&index, ef), found(&unspoilt, ef));
        assert!(with >= without - 0.05, "ef {ef}: recall {with} with tombstones, {without} without");
    }
    assert!(found(&index, 100) >= 0.9, "recall {}", found(&index, 100));
    for key in 1503..3000 {
        index.remove(key).unwrap();
    }
    let mut left: Vec<u64> = index.search(&rows[..16], &top(10)).unwrap().iter().map(|hit| hit.key).collect();
    left.sort_unstable();
    assert_eq!(left, [1500, 1501, 1502]);
}

/// The row that searches start from: the entry point recorded in the file, as a key.
fn entry_key(index: &Index) -> u64 {
    use crate::common::mutate::{KEYS, META, Patient};
    let patient = Patient::new(index.to_bytes().unwrap());
    let entry = patient.get(patient.section(META).start + 48, 4);
    patient.get(patient.section(KEYS).start + 8 * entry as usize, 8)
}

// B33
#[test]
fn the_entry_point_may_go() {
    let mut random = Random::new(33);
    for update in [false, true] {
        let (mut index, rows) = crate::common::normal_index(IndexKind::Hnsw, Metric::L2, 800, 8, 33);
        let mut live: BTreeMap<u64, Vec<f32>> = (0..).zip(rows.chunks(8).map(<[f32]>::to_vec)).collect();
        for round in 0..40 {
            let entry = entry_key(&index);
            if update && live.contains_key(&entry) {
                let vector = random.normals(8);
                index.update(entry, &vector).unwrap();
                live.insert(entry, vector);
            } else {
                index.remove(entry).unwrap();
                live.remove(&entry);
            }
            if round % 3 == 0 {
                index.compact().unwrap();
                assert!(live.contains_key(&entry_key(&index)), "compact leaves a live entry point");
                assert_eq!(index.stats().unwrap().unreachable, 0);
            }
            if round % 7 == 6 {
                index = OpenOptions::new()
                    .threads(1)
                    .residency(Residency::Owned)
                    .from_bytes(index.to_bytes().unwrap())
                    .unwrap();
            }
            for _ in 0..20 {
                let (&key, vector) = live.iter().nth(random.below(live.len())).unwrap();
                assert_eq!(index.search(vector, &top(1)).unwrap()[0].key, key, "round {round}");
            }
        }
    }
}

// B34
#[test]
fn keys_come_back_with_their_new_vectors_only() {
    let (mut index, rows) = crate::common::normal_index(IndexKind::Hnsw, Metric::L2, 1000, 8, 34);
    let mut vectors: Vec<Vec<f32>> = rows.chunks(8).map(<[f32]>::to_vec).collect();
    let mut random = Random::new(340);
    for round in 0..8 {
        let mut keys: Vec<u64> = (0..1000).collect();
        random.shuffle(&mut keys);
        keys.truncate(100);
        for &key in &keys {
            assert!(index.remove(key).unwrap());
        }
        random.shuffle(&mut keys);
        for &key in &keys {
            let (old, new) = (std::mem::take(&mut vectors[key as usize]), random.normals(8));
            index.add(key, &new).unwrap();
            assert_eq!(index.search(&new, &top(1)).unwrap()[0].key, key);
            let at_old = index.search(&old, &top(10)).unwrap();
            assert!(at_old.iter().all(|hit| hit.key != key || hit.distance > 0.0));
            vectors[key as usize] = new;
        }
        assert_eq!(index.len(), 1000);
        if round % 3 == 2 {
            index = OpenOptions::new()
                .threads(1)
                .residency(Residency::Owned)
                .from_bytes(index.to_bytes().unwrap())
                .unwrap();
        }
    }
    for (key, vector) in (0..).zip(&vectors) {
        assert_eq!(stored(&index, key).as_ref(), Some(vector));
        assert_eq!(index.search(vector, &top(1)).unwrap()[0].key, key);
    }
}

// B36
#[test]
fn an_updated_row_moves_house() {
    let mut random = Random::new(36);
    let cluster = |random: &mut Random, at: f32| -> Vec<f32> { (0..16).map(|_| random.normal() + at).collect() };
    let index = builder(IndexKind::Hnsw, Metric::L2, 16).build().unwrap();
    let mut rows: Vec<Vec<f32>> = (0..3000).map(|i| cluster(&mut random, if i < 1500 { 0.0 } else { 40.0 })).collect();
    for (key, row) in (0..).zip(&rows) {
        index.add(key, row).unwrap();
    }
    for (key, row) in (0..300).zip(&mut rows) {
        *row = cluster(&mut random, 40.0);
        index.update(key, row).unwrap();
    }
    assert!(index.len() == 3000 && index.stats().unwrap().tombstones == 300);
    let found = (0..300).filter(|&key| index.search(&rows[key], &top(1)).unwrap()[0].key == key as u64).count();
    assert!(found >= 297, "{found} of 300 found at their new place");
    for _ in 0..50 {
        let query = cluster(&mut random, 0.0);
        let hits = index.search(&query, &top(10)).unwrap();
        assert!(hits.iter().all(|hit| (300..1500).contains(&hit.key)), "{hits:?}");
    }
}

#[test]
fn one_key_updated_without_end_stays_one_row_to_see() {
    for (kind, metric) in kinds_and_metrics() {
        let (index, _) = crate::common::normal_index(kind, metric, 20, 5, 1);
        for (i, vector) in (1..).zip(Random::new(2).normals(400 * 5).chunks(5)) {
            index.update(7, vector).unwrap();
            assert_eq!(stored(&index, 7).as_deref(), Some(vector));
            let hits = index.search(vector, &top(100)).unwrap();
            assert_well_formed(&hits);
            assert_eq!((hits.len(), index.len()), (20, 20));
            assert_eq!(index.stats().unwrap().tombstones, i);
        }
    }
}

// B95. Groups of copies larger than `ef_construction` may become islands: then the count still is right.
#[test]
fn copies_by_the_hundred_are_all_found() {
    for (copies, all_right) in [(2, true), (20, true), (50, true), (100, true), (300, false)] {
        let vectors = Random::new(95).normals(5 * 16);
        let index = Index::builder(16, Metric::L2).build().unwrap();
        for key in 0..5 * copies {
            index.add(key as u64, &vectors[key / copies * 16..][..16]).unwrap();
        }
        for (group, vector) in vectors.chunks(16).enumerate() {
            let k = copies.min(10);
            let hits = index.search(vector, &top(k).ef(50)).unwrap();
            assert_well_formed(&hits);
            assert_eq!(hits.len(), k);
            assert!(hits.iter().all(|hit| (hit.distance == 0.0) == (hit.key as usize / copies == group)));
            assert!(!all_right || hits.iter().all(|hit| hit.distance == 0.0), "{copies} copies: {hits:?}");
            let all = index.search(vector, &top(copies).exact(true)).unwrap();
            let keys: Vec<usize> = all.iter().map(|hit| hit.key as usize).collect();
            assert_eq!(keys, (group * copies..(group + 1) * copies).collect::<Vec<_>>());
        }
    }
}
