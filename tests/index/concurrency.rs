//! Searches, changes and saves at the same time: every answer is one that some moment in between would have given.

use crate::common::oracle::{assert_well_formed, bits, nearest, numbered, recall};
use crate::common::random::Random;
use crate::common::stored;
use crate::common::{builder, kinds_and_metrics, normal_index, top};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use twindex::{Error, Filter, Hit, Index, IndexKind, Metric, OpenOptions, Residency};

const DIMENSION: usize = 6;
/// Keys below it are updated all the time and never removed; the rest come and go.
const STEADY: u64 = 150;
/// Vectors a key takes turns with.
const TURNS: u64 = 4;

/// The vector of a key at its `turn`-th update: small integers, so that distances are exact.
fn vector(key: u64, turn: u64) -> Vec<f32> {
    let mut random = Random::new(key * TURNS + turn % TURNS);
    (0..DIMENSION).map(|_| random.below(21) as f32 - 10.0).collect()
}

fn distance(query: &[f32], key: u64, turn: u64) -> f32 {
    query.iter().zip(vector(key, turn)).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// No key twice, every key one that was added, every distance that of one of its vectors.
fn assert_possible(query: &[f32], hits: &[Hit], highest: u64) {
    assert_well_formed(hits);
    for hit in hits {
        assert!(hit.key < highest, "{hit:?}: no such key was ever added");
        assert!((0..TURNS).any(|turn| distance(query, hit.key, turn) == hit.distance), "{hit:?}: no such distance");
    }
}

// B81
#[test]
fn searches_saves_and_changes_get_along() {
    for (kind, time) in [(IndexKind::Flat, 600), (IndexKind::Hnsw, 1500)] {
        let index = builder(kind, Metric::L2, DIMENSION).m(6).ef_construction(20).threads(2).build().unwrap();
        for key in 0..STEADY {
            index.add(key, &vector(key, 0)).unwrap();
        }
        let highest = AtomicU64::new(STEADY);
        // Keys below it may be removed: whoever added them has found them.
        let settled = AtomicU64::new(STEADY);
        let (removed, searches, saves) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let start = Instant::now();
        // On a busy machine longer, until enough has happened.
        let on = || {
            let little = searches.load(Ordering::Relaxed) < 20 || saves.load(Ordering::Relaxed) < 3;
            start.elapsed() < Duration::from_millis(if little { 20_000 } else { time })
        };
        thread::scope(|scope| {
            // Adds, one by one and in batches; what is complete is found at once.
            scope.spawn(|| {
                while on() {
                    let first = highest.load(Ordering::Relaxed);
                    let n = 1 + first % 7;
                    let keys: Vec<u64> = (first..first + n).collect();
                    highest.store(first + n, Ordering::SeqCst);
                    let rows: Vec<f32> = keys.iter().flat_map(|&key| vector(key, 0)).collect();
                    index.add_batch(&keys, &rows).unwrap();
                    let hits = index.search(&rows[..DIMENSION], &top(1).filter(Filter::keys(&keys))).unwrap();
                    assert_eq!(hits[0].distance, 0.0);
                    settled.store(first + n, Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                let mut turn = 0;
                while on() {
                    turn += 1;
                    for key in (0..STEADY).step_by(1 + turn as usize % 3) {
                        index.update(key, &vector(key, turn)).unwrap();
                    }
                }
            });
            scope.spawn(|| {
                let mut random = Random::new(1);
                while on() {
                    let span = settled.load(Ordering::Relaxed) - STEADY;
                    if span > 0 && index.remove(STEADY + random.next() % span).unwrap() {
                        removed.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::yield_now();
                }
            });
            scope.spawn(|| {
                while on() {
                    let saved = Index::from_bytes(index.to_bytes().unwrap()).unwrap();
                    saved.verify().unwrap();
                    let keys = saved.keys();
                    let unique: BTreeSet<u64> = keys.iter().copied().collect();
                    assert_eq!((unique.len(), saved.len()), (keys.len(), keys.len()));
                    assert!((0..STEADY).all(|key| unique.contains(&key)));
                    let query = vector(7, 1);
                    let hits = saved.search(&query, &top(usize::MAX)).unwrap();
                    assert_eq!(hits.len(), keys.len());
                    assert_possible(&query, &hits, highest.load(Ordering::SeqCst));
                    saves.fetch_add(1, Ordering::Relaxed);
                }
            });
            for reader in 0..3u64 {
                let (index, highest, searches, on) = (&index, &highest, &searches, &on);
                scope.spawn(move || {
                    let steady: Vec<u64> = (0..STEADY).collect();
                    let is_steady = |key: u64| key < STEADY;
                    let mut seed = reader << 32;
                    while on() {
                        seed += 1;
                        let query = vector(seed, 0);
                        let (k, all) = (10, usize::MAX);
                        for params in [top(k), top(k).ef(100), top(k).exact(true), top(all)] {
                            let hits = index.search(&query, &params).unwrap();
                            assert_possible(&query, &hits, highest.load(Ordering::SeqCst));
                            assert!(hits.len() >= k, "{} hits of {params:?}", hits.len());
                        }
                        // An updated key is there with its old vector or its new one.
                        for filter in [Filter::by(&is_steady), Filter::keys(&steady)] {
                            let hits = index.search(&query, &top(all).filter(filter)).unwrap();
                            assert_possible(&query, &hits, STEADY);
                            assert_eq!(hits.len() as u64, STEADY, "{filter:?}");
                            let near = index.search(&query, &top(k).ef(16).filter(filter)).unwrap();
                            assert_possible(&query, &near, STEADY);
                            assert_eq!(near.len(), k, "{filter:?}");
                        }
                        let key = seed % STEADY;
                        assert!(index.contains(key));
                        let got = stored(index, key).unwrap();
                        assert!((0..TURNS).any(|turn| got == vector(key, turn)), "{got:?} is no vector of {key}");
                        let keys = index.keys();
                        assert_eq!(keys.iter().filter(|&&key| is_steady(key)).count() as u64, STEADY);
                        assert!(index.len() as u64 >= STEADY);
                        searches.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let live = highest.into_inner() - removed.into_inner();
        assert_eq!((index.len() as u64, index.keys().len() as u64), (live, live));
        index.verify().unwrap();
        let (searches, saves) = (searches.into_inner(), saves.into_inner());
        assert!(searches >= 20 && saves >= 3, "{searches} searches, {saves} saves: too little happened to tell");
    }
}

// B81
#[test]
fn what_is_complete_is_found_while_more_is_added() {
    let rows = Random::new(81).normals(4000 * 8);
    let index = builder(IndexKind::Hnsw, Metric::L2, 8).ef_construction(32).build().unwrap();
    let complete = AtomicU64::new(0);
    let (mut looked, mut missed) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (key, row) in numbered(&rows, 8) {
                index.add(key, row).unwrap();
                complete.store(key + 1, Ordering::SeqCst);
            }
        });
        let readers: Vec<_> = (0..3u64)
            .map(|seed| {
                let (index, rows, complete) = (&index, &rows, &complete);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let (mut looked, mut missed) = (0, 0);
                    loop {
                        let n = complete.load(Ordering::SeqCst) as usize;
                        if n == 4000 {
                            return (looked, missed);
                        }
                        if n > 0 {
                            let key = random.below(n);
                            let hits = index.search(&rows[key * 8..][..8], &top(1)).unwrap();
                            looked += 1;
                            missed += usize::from(hits[0].key != key as u64);
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            let (l, m) = reader.join().unwrap();
            (looked, missed) = (looked + l, missed + m);
        }
    });
    assert!(looked > 100, "{looked} searches: too few to tell");
    assert!(missed * 100 <= looked, "{missed} of {looked} missed");
}

// B62
#[test]
fn many_threads_adding_one_key_make_one_row() {
    for (kind, metric) in kinds_and_metrics() {
        for round in 0..20 {
            let index = builder(kind, metric, 4).build().unwrap();
            let barrier = Barrier::new(8);
            let winners: Vec<u64> = thread::scope(|scope| {
                let threads: Vec<_> = (0..8u64)
                    .map(|i| {
                        let (index, barrier) = (&index, &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            let added = match round % 2 {
                                0 => index.add(7, &[i as f32 + 1.0; 4]),
                                _ => index.add_batch(&[100 + i, 7], &[i as f32 + 1.0; 8]),
                            };
                            match added {
                                Ok(()) => Some(i),
                                Err(Error::DuplicateKey { key: 7 }) => None,
                                Err(e) => panic!("{e}"),
                            }
                        })
                    })
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(winners.len(), 1, "{winners:?}");
            let i = winners[0];
            assert_eq!(stored(&index, 7), Some(vec![i as f32 + 1.0; 4]));
            let keys: Vec<u64> = if round % 2 == 0 { vec![7] } else { vec![100 + i, 7] };
            assert_eq!(index.keys(), keys);
            assert_eq!(index.search(&[1.0; 4], &top(100)).unwrap().len(), keys.len());
            index.verify().unwrap();
        }
    }
}

#[test]
fn two_removals_or_an_update_and_a_removal_have_one_outcome() {
    for kind in IndexKind::ALL {
        let index = builder(kind, Metric::L2, 2).build().unwrap();
        for round in 0..200 {
            index.add(round, &[1.0, 2.0]).unwrap();
            let barrier = Barrier::new(3);
            let run = |f: &(dyn Fn() -> bool + Sync)| {
                barrier.wait();
                f()
            };
            let (first, second) = thread::scope(|scope| {
                let first = scope.spawn(|| run(&|| index.remove(round).unwrap()));
                let second = scope.spawn(|| run(&|| index.remove(round).unwrap()));
                let update = scope.spawn(|| {
                    run(&|| match index.update(round, &[3.0, 4.0]) {
                        Ok(()) => true,
                        Err(Error::KeyNotFound { .. }) => false,
                        Err(e) => panic!("{e}"),
                    })
                });
                update.join().unwrap();
                (first.join().unwrap(), second.join().unwrap())
            });
            assert!(first != second, "one of two removals removes");
            assert!(!index.contains(round) && index.is_empty() && index.keys().is_empty());
        }
        index.verify().unwrap();
    }
}

// B82
#[test]
fn the_first_row_may_be_raced_for() {
    for round in 0..400 {
        let index = builder(IndexKind::Hnsw, Metric::L2, 4).seed(round).build().unwrap();
        let barrier = Barrier::new(16);
        thread::scope(|scope| {
            for i in 0..16u64 {
                let (index, barrier) = (&index, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    index.add(i, &[i as f32; 4]).unwrap();
                });
            }
        });
        index.verify().unwrap();
        let stats = index.stats().unwrap();
        assert_eq!((stats.live, stats.unreachable), (16, 0), "round {round}");
    }
}

// B82. Every row can be reached, whoever linked it; a narrow search misses next to none.
#[test]
fn small_graphs_built_by_many_threads_lose_no_row() {
    let (mut asked, mut found) = (0, 0);
    for round in 0..40 {
        let rows = Random::new(round).normals(320 * 4);
        let index = Index::builder(4, Metric::L2).ef_construction(64).seed(round).build().unwrap();
        thread::scope(|scope| {
            for first in 0..8 {
                let (index, rows) = (&index, &rows);
                scope.spawn(move || {
                    for (key, row) in numbered(rows, 4).skip(first).step_by(8) {
                        index.add(key, row).unwrap();
                    }
                });
            }
        });
        let stats = index.stats().unwrap();
        assert_eq!((stats.live, stats.unreachable), (320, 0), "round {round}");
        for (key, row) in numbered(&rows, 4).step_by(7) {
            asked += 1;
            found += usize::from(index.search(row, &top(1).ef(32)).unwrap()[0].key == key);
        }
    }
    assert!(found * 100 >= asked * 99, "{found} of {asked} rows found by their own vector");
}

// B82
#[test]
fn graphs_built_on_many_threads_are_as_good_as_on_one() {
    let rows = Random::new(82).normals(3000 * 16);
    let queries = Random::new(83).normals(100 * 16);
    let truth: Vec<_> = queries.chunks(16).map(|q| nearest(Metric::L2, q, numbered(&rows, 16), 10)).collect();
    let mut found = Vec::new();
    for threads in [1, 2, 8] {
        let index = builder(IndexKind::Hnsw, Metric::L2, 16).threads(threads).build().unwrap();
        index.add_batch(&(0..3000).collect::<Vec<_>>(), &rows).unwrap();
        let hits = index.search_batch(&queries, &top(10).ef(64)).unwrap();
        found.push(hits.iter().zip(&truth).map(|(hits, truth)| recall(hits, truth)).sum::<f64>() / 100.0);
        index.verify().unwrap();
    }
    assert!(found.iter().all(|&f| f >= found[0] - 0.015), "recall on 1, 2, 8 threads: {found:?}");
}

// B85
#[test]
fn parallel_searches_give_the_answers_of_serial_ones() {
    let (index, _) = normal_index(IndexKind::Hnsw, Metric::Cosine, 1500, 12, 85);
    let bytes = index.to_bytes().unwrap();
    let queries = Random::new(86).normals(60 * 12);
    let odd = |key: u64| key % 2 == 1;
    let paths = [top(10), top(10).ef(20).filter(Filter::by(&odd)), top(30).exact(true)];
    for residency in [Residency::Mapped, Residency::Owned] {
        let index = OpenOptions::new().threads(4).residency(residency).from_bytes(bytes.clone()).unwrap();
        let ask = |i: usize| {
            let query = &queries[i % 60 * 12..][..12];
            bits(&index.search(query, &paths[i % 3]).unwrap())
        };
        let serial: Vec<_> = (0..180).map(ask).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for offset in 0..8 {
                let (ask, serial, stop) = (&ask, &serial, &stop);
                scope.spawn(move || {
                    for i in (0..180).map(|i| (i * 7 + offset * 31) % 180) {
                        assert_eq!(ask(i), serial[i]);
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let lists = index.search_batch(&queries, &paths[0]).unwrap();
                    assert!(lists.iter().enumerate().all(
                        |(i, hits)| bits(hits) == bits(&index.search(&queries[i * 12..][..12], &paths[0]).unwrap())
                    ));
                }
            });
        });
    }
}

#[test]
fn an_index_can_be_shared_and_sent() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Index>();
    shared::<Error>();
    let index = std::sync::Arc::new(builder(IndexKind::Hnsw, Metric::L2, 2).build().unwrap());
    let other = index.clone();
    thread::spawn(move || other.add(1, &[1.0, 2.0]).unwrap()).join().unwrap();
    assert_eq!(index.len(), 1);
}
