//! What codes, originals and reranking take: nothing twice, nothing by the row that need not be.

use crate::random::Random;
use crate::{least, measure, turn};
use std::collections::BTreeSet;
use std::sync::Arc;
use twindex::storage::{ChunkOptions, CopyingStorage, Storage};
use twindex::{
    Encoding, Filter, Index, IndexBuilder, IndexKind, Metric, OpenOptions, Originals, Residency, SearchParams, Source,
    VectorFile,
};

type Shared = dyn Storage + Send + Sync;

const CODED: [Encoding; 4] = [Encoding::F16, Encoding::Int8, Encoding::Int4, Encoding::Bits1];

fn top(k: usize) -> SearchParams<'static> {
    SearchParams::new(k)
}

/// Uniform in [−1, 1): cheaper than normal ones.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Chunks that the allocator sees, and that are none too large for few rows.
fn builder(
    kind: IndexKind,
    metric: Metric,
    dimension: usize,
    encoding: Encoding,
    originals: Originals,
) -> IndexBuilder {
    let chunks = ChunkOptions { chunk_bytes: 64 << 10, ..ChunkOptions::default() };
    let builder = Index::builder(dimension, metric).kind(kind).m(8).ef_construction(24).threads(1);
    builder.encoding(encoding).originals(originals).chunks(chunks)
}

fn keys(rows: usize) -> Vec<u64> {
    (0..rows as u64).collect()
}

fn filled(kind: IndexKind, metric: Metric, d: usize, encoding: Encoding, originals: Originals, rows: &[f32]) -> Index {
    let index = builder(kind, metric, d, encoding, originals).build().unwrap();
    index.add_batch(&keys(rows.len() / d), rows).unwrap();
    index
}

/// Bytes a row has on the heap: code, originals or fingerprint, key, life span, key map, links.
fn row_bytes(kind: IndexKind, metric: Metric, d: usize, encoding: Encoding, originals: Originals) -> usize {
    let cosine = if metric == Metric::Cosine { 4 } else { 0 };
    let factors = if encoding == Encoding::F16 { cosine } else { 0 };
    let kept = match originals {
        Originals::None => 4,
        Originals::F16 => 2 * d + cosine,
        _ => 4 * d + cosine,
    };
    let links = if kind == IndexKind::Hnsw { 4 * (1 + 16) + 8 } else { 0 };
    encoding.stride(d) + factors + kept + 8 + 8 + 2 * 5 + links
}

#[test]
fn originals_exist_once_whatever_looks_at_them() {
    let _turn = turn();
    let (rows, d) = (4000, 64);
    let vectors = numbers(1, rows * d);
    let query = &numbers(2, d);
    for encoding in CODED {
        for (kind, metric) in [(IndexKind::Flat, Metric::L2), (IndexKind::Hnsw, Metric::Cosine)] {
            for originals in Originals::ALL.into_iter().filter(|originals| originals.suits(encoding)) {
                let at = format!("{encoding} {kind} {originals}");
                let (index, used) = measure(|| {
                    let index = builder(kind, metric, d, encoding, originals).build().unwrap();
                    for (key, row) in (0..).zip(vectors.chunks(d)) {
                        index.add(key, row).unwrap();
                    }
                    // Each way to look at the vectors.
                    for params in [top(10), top(10).exact(true), top(10).filter(Filter::keys(&[1, 2, 3]))] {
                        index.search(query, &params).unwrap();
                        if originals != Originals::None {
                            index.search(query, &params.rerank(5.0)).unwrap();
                        }
                    }
                    index
                });
                let source = if originals == Originals::None { Source::Code } else { Source::Original };
                assert_eq!(index.get(0).unwrap().unwrap().source, source);
                let stored = rows * row_bytes(kind, metric, d, encoding, originals) + 9 * (64 << 10) + (256 << 10);
                assert!(used.kept as usize <= stored, "{at}: {} bytes kept, {stored} expected", used.kept);
                // While the first rows wait as f32, and for the moment in which they are encoded.
                assert!(used.peak <= stored + 1024 * d * 4, "{at}: {used:?}, {stored} expected");
                let counted = index.stats().unwrap().resident_bytes as f64;
                assert!((counted / used.kept as f64 - 1.0).abs() < 0.15, "{at}: {counted} in stats, {used:?}");
            }
        }
    }
}

/// Retraining has two codes of every row for a while, and one at the end.
#[test]
fn retraining_leaves_nothing_behind() {
    let _turn = turn();
    let (rows, d) = (3000, 64);
    for originals in [Originals::None, Originals::F32] {
        let mut index = filled(IndexKind::Flat, Metric::L2, d, Encoding::Int8, originals, &numbers(3, rows * d));
        index.retrain().unwrap();
        let ((), used) = measure(|| index.retrain().unwrap());
        let codes = rows * Encoding::Int8.stride(d);
        assert!(used.kept.abs() < 64 << 10 && used.peak <= codes + (192 << 10), "{originals}: {used:?}, {codes}");
    }
}

#[test]
fn a_scan_needs_memory_for_its_hits_and_a_window() {
    let _turn = turn();
    let d = 512;
    let vectors = numbers(4, 24_000 * d);
    let query = &numbers(5, d);
    for encoding in Encoding::ALL {
        // Rows of a megabyte and more, in either file.
        let counts = match encoding {
            Encoding::F32 | Encoding::F16 | Encoding::Int8 => [2500, 5000],
            _ => [16_000, 24_000],
        };
        let mut peaks = Vec::new();
        for rows in counts {
            let bytes = filled(IndexKind::Flat, Metric::L2, d, encoding, Originals::None, &vectors[..rows * d]);
            let bytes = bytes.to_bytes().unwrap();
            let resident = Index::from_bytes(bytes.clone()).unwrap();
            let copied = OpenOptions::new().from_storage(Arc::new(CopyingStorage::new(bytes))).unwrap();
            let (hits, first) = measure(|| resident.search(query, &top(10)).unwrap());
            let (other, windowed) = measure(|| copied.search(query, &top(10)).unwrap());
            assert_eq!(hits, other);
            assert_eq!(hits.len(), 10);
            assert!(first.peak <= 128 << 10, "{encoding} {rows} rows, resident: {first:?}");
            // The window, ids and distances of its rows, and what the query takes.
            let in_window = (1 << 20) / encoding.stride(d) * 16;
            let limit = (1 << 20) + in_window + (128 << 10);
            let limit = if rows * encoding.stride(d) < 1 << 20 { limit } else { limit + (1 << 20) };
            assert!(windowed.peak <= limit, "{encoding} {rows} rows, copied: {windowed:?}, at most {limit}");
            peaks.push((first.peak, windowed.peak));
            let all = |key: u64| key < 1 << 40;
            for params in [top(10).filter(Filter::by(&all)), top(10)] {
                let warm = least(|| drop(copied.search(query, &params).unwrap()));
                assert!(warm.calls <= 1 && warm.kept == 0, "{encoding} {params:?}: {warm:?}");
            }
        }
        let (few, many) = (peaks[0], peaks[1]);
        assert!(many.0 <= few.0 + 1024, "{encoding}: {peaks:?} for {counts:?} rows, resident");
        assert!(many.1 <= few.1 + (64 << 10), "{encoding}: {peaks:?} for {counts:?} rows, copied");
    }
}

#[test]
fn a_warm_query_allocates_the_hits_it_returns() {
    let _turn = turn();
    let (rows, d) = (2500, 24);
    let vectors: Vec<f32> = numbers(6, rows * d);
    let query = &numbers(7, d);
    let even = |key: u64| key.is_multiple_of(2);
    let some: Vec<u64> = (0..rows as u64).step_by(2).collect();
    let few: Vec<u64> = (0..rows as u64).step_by(100).collect();
    let file: Vec<u8> = vectors.iter().flat_map(|x| x.to_le_bytes()).collect();
    fn check<S: Storage + Send + Sync + ?Sized>(at: &str, index: &Index<S>, query: &[f32], params: &SearchParams<'_>) {
        let search = || assert_eq!(index.search(query, params).unwrap().len(), 10);
        (0..3).for_each(|_| search());
        let used = least(search);
        assert!(used.calls <= 1 && used.kept == 0, "{at} {params:?}: {used:?}");
        // Less where the harness's own thread frees something meanwhile.
        assert!(used.peak <= 10 * size_of::<twindex::Hit>(), "{at} {params:?}: {used:?}");
    }
    for encoding in CODED {
        for kind in IndexKind::ALL {
            let metric = if encoding == Encoding::Int4 { Metric::L2 } else { Metric::Cosine };
            for kept in [true, false] {
                let originals = if kept { Originals::F32 } else { Originals::None };
                let growing = filled(kind, metric, d, encoding, originals, &vectors);
                let bytes = growing.to_bytes().unwrap();
                let mut mapped = Index::from_bytes(bytes.clone()).unwrap();
                let storage = Arc::new(CopyingStorage::new(bytes));
                let mut copied = OpenOptions::new().from_storage(storage).unwrap();
                growing.remove(5).unwrap();
                if !kept {
                    let outside: Arc<Shared> = Arc::new(file.clone());
                    mapped.attach_originals(VectorFile::raw(outside, Encoding::F32, d).unwrap()).unwrap();
                    let outside = Arc::new(CopyingStorage::new(file.clone()));
                    copied.attach_originals(VectorFile::raw(outside, Encoding::F32, d).unwrap()).unwrap();
                }
                let plain = [
                    top(10),
                    top(10).exact(true),
                    top(10).radius(1e9),
                    top(10).filter(Filter::by(&even)),
                    top(10).filter(Filter::keys(&some)),
                    top(10).filter(Filter::keys(&few)),
                ];
                for params in plain {
                    let at = |state: &str| format!("{encoding} {kind} {originals} {state}");
                    check(&at("growing"), &growing, query, &params);
                    if kept {
                        check(&at("growing"), &growing, query, &params.rerank(4.0));
                    }
                    for params in [params, params.rerank(4.0)] {
                        check(&at("mapped"), &mapped, query, &params);
                        check(&at("copied"), &copied, query, &params);
                    }
                }
            }
        }
    }
}

#[cfg(feature = "mmap")]
mod mapped {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    #[test]
    fn opening_read_only_and_the_first_query_take_next_to_nothing() {
        let _turn = turn();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        // Long vectors have long queries and centres, and more to rotate.
        for (kind, rows, d) in
            [(IndexKind::Flat, 20_000, 16), (IndexKind::Hnsw, 3000, 64), (IndexKind::Flat, 300, 4096)]
        {
            let vectors = numbers(8, rows * d);
            let query = numbers(9, d);
            for encoding in Encoding::ALL {
                let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
                filled(kind, Metric::Cosine, d, encoding, originals, &vectors).save(&path).unwrap();
                let at = format!("{encoding} {kind} {rows} x {d}");
                let limit = (256 << 10) + rows / 8;
                let (index, opening) = measure(|| Index::open(&path).unwrap());
                assert!(opening.peak <= limit, "{at}: {opening:?}");
                assert_eq!(index.stats().unwrap().resident_bytes, 0, "{at}");
                let (hits, first) = measure(|| index.search(&query, &top(10).rerank(4.0)).unwrap());
                assert_eq!(hits.len(), 10);
                let taken = opening.kept as usize + first.peak;
                eprintln!("{at}: {} bytes to open, {} with the first query", opening.peak, taken);
                assert!(taken <= limit, "{at}: {opening:?} and {first:?}");
            }
        }
    }

    /// Hits, vectors and keys are copies: the index may be closed, and the file gone.
    #[test]
    fn what_is_handed_out_is_the_callers_own() {
        let _turn = turn();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        let vectors = numbers(10, 1200 * 8);
        for encoding in CODED {
            filled(IndexKind::Flat, Metric::L2, 8, encoding, Originals::F32, &vectors).save(&path).unwrap();
            let index = Index::open(&path).unwrap();
            let hits = index.search(&vectors[..8], &top(5).rerank(2.0)).unwrap();
            let candidates = index.candidates(&vectors[..8], &top(5)).unwrap();
            let (stored, keys) = (index.get(3).unwrap().unwrap(), index.keys());
            drop(index);
            std::fs::remove_file(&path).unwrap();
            assert_eq!((hits.len(), hits[0].key, candidates.len(), keys.len()), (5, 0, 5, 1200), "{encoding}");
            assert_eq!(stored.vector, vectors[24..32]);
        }
    }

    /// Queries go on in other threads while whoever opened the index lets go of it, and another takes the file's place.
    #[test]
    fn a_reader_keeps_its_mapping_alive() {
        let _turn = turn();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.twx");
        let d = 16;
        let vectors = numbers(11, 2000 * d);
        let other = numbers(12, 2000 * d);
        for encoding in Encoding::ALL {
            let originals = if encoding == Encoding::F32 { Originals::None } else { Originals::F32 };
            let build = |vectors: &[f32]| filled(IndexKind::Hnsw, Metric::L2, d, encoding, originals, vectors);
            let (old, new) = (build(&vectors), build(&other));
            old.save(&path).unwrap();
            let opened = Arc::new(Index::open(&path).unwrap());
            let params = top(10).rerank(3.0);
            let queries = numbers(13, 8 * d);
            let expected: Vec<_> = queries.chunks(d).map(|query| old.search(query, &params).unwrap()).collect();
            let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|scope| {
                for _ in 0..3 {
                    let index = opened.clone();
                    let (stop, rounds, queries, expected, params) = (&stop, &rounds, &queries, &expected, &params);
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            for (query, expected) in queries.chunks(d).zip(expected) {
                                assert_eq!(&index.search(query, params).unwrap(), expected);
                            }
                            assert_eq!(&index.search_batch(queries, params).unwrap(), expected);
                            rounds.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                let more = |n: u64| {
                    let from = rounds.load(Ordering::Relaxed);
                    while rounds.load(Ordering::Relaxed) < from + n {
                        thread::yield_now();
                    }
                };
                more(1);
                drop(opened);
                more(3);
                for replacement in [&new, &old, &new] {
                    replacement.save(&path).unwrap();
                    more(3);
                }
                std::fs::remove_file(&path).unwrap();
                more(3);
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// A code that no vector has, and originals that say otherwise: whoever encoded again at opening or saving would put
/// the code right.
#[test]
fn nothing_is_encoded_again_when_opened_or_saved() {
    let _turn = turn();
    let d = 16;
    let vectors = numbers(14, 1200 * d);
    for encoding in [Encoding::Int8, Encoding::Int4, Encoding::Bits1] {
        for (kind, metric) in [(IndexKind::Flat, Metric::L2), (IndexKind::Hnsw, Metric::Cosine)] {
            let mut bytes = filled(kind, metric, d, encoding, Originals::F32, &vectors).to_bytes().unwrap();
            // The first byte of a row's code; checksums of blocks are looked at by `verify` only.
            let codes = crate::section(&bytes, 4);
            let at = codes.start + 600 * encoding.stride(d);
            bytes[at] ^= 0x55;
            let storage = Arc::new(CopyingStorage::new(bytes.clone()));
            for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                let options = OpenOptions::new().threads(1).residency(residency);
                let opened = options.from_bytes(bytes.clone()).unwrap();
                let copied = options.from_storage(storage.clone()).unwrap();
                for (name, saved) in [("opened", opened.to_bytes().unwrap()), ("copied", copied.to_bytes().unwrap())] {
                    let codes_of = |bytes: &[u8]| bytes[codes.clone()].to_vec();
                    assert!(codes_of(&saved) == codes_of(&bytes), "{encoding} {kind} {name} {residency:?}");
                }
            }
            // Nor does saving an index that grows change a row, or what it is searched by.
            let growing = filled(kind, metric, d, encoding, Originals::F32, &vectors);
            let first = growing.to_bytes().unwrap();
            growing.add(9999, &vectors[..d]).unwrap();
            let second = growing.to_bytes().unwrap();
            let [first_codes, second_codes] = [&first, &second].map(|bytes| bytes[crate::section(bytes, 4)].to_vec());
            assert!(second_codes.starts_with(&first_codes), "{encoding} {kind}");
        }
    }
}

// B124
#[test]
fn doing_a_thing_a_thousand_times_leaves_nothing_behind() {
    let _turn = turn();
    let d = 12;
    let vectors = numbers(15, 1100 * d);
    let mut query = numbers(16, d);
    let even = |key: u64| key.is_multiple_of(2);
    for encoding in Encoding::ALL {
        let suiting = [Originals::F16, Originals::F32, Originals::None].into_iter().find(|o| o.suits(encoding));
        let originals = suiting.expect("none suits all");
        let index = filled(IndexKind::Hnsw, Metric::L2, d, encoding, originals, &vectors);
        let bytes = index.to_bytes().unwrap();
        let storage = Arc::new(CopyingStorage::new(bytes.clone()));
        let damaged = Arc::new(CopyingStorage::new(bytes[..bytes.len() - 1].to_vec()));
        let outside = Arc::new(CopyingStorage::new(vec![0; 1200 * d * 4]));
        let mut step = |i: usize| {
            query[0] = i as f32 / 1000.0;
            index.search(&query, &top(10).rerank(3.0)).unwrap();
            index.search(&query, &top(10).filter(Filter::by(&even))).unwrap();
            index.search(&query, &top(10).filter(Filter::keys(&[1, 2, 3, 5000]))).unwrap();
            index.search(&[f32::NAN; 12], &top(1)).unwrap_err();
            index.add(7, &query).unwrap_err();
            index.add(7000, &query[1..]).unwrap_err();
            index.add_batch(&[7000, 7001], &[&query[..], &[f32::INFINITY; 12]].concat()).unwrap_err();
            index.update(9000, &query).unwrap_err();
            OpenOptions::new().from_storage(damaged.clone()).unwrap_err();
            if i.is_multiple_of(20) {
                index.to_bytes().unwrap();
                for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                    let mut opened = OpenOptions::new().residency(residency).from_storage(storage.clone()).unwrap();
                    opened.search(&query, &top(3)).unwrap();
                    let file = VectorFile::raw(outside.clone(), Encoding::F32, d).unwrap();
                    opened.attach_originals(file).unwrap_err();
                }
            }
        };
        (0..40).for_each(&mut step);
        let used = least(|| (0..340).for_each(&mut step));
        assert!(used.kept.unsigned_abs() < 340, "{encoding}: {used:?}");
    }
}

// B125
#[test]
fn a_large_batch_keeps_no_more_than_single_rows_do() {
    let _turn = turn();
    let (rows, d) = (12_000, 64);
    let vectors = numbers(17, rows * d);
    for encoding in CODED {
        for originals in [Originals::None, Originals::F32] {
            let at = format!("{encoding} {originals}");
            let build = || builder(IndexKind::Flat, Metric::L2, d, encoding, originals).threads(2).build().unwrap();
            let (single, alone) = measure(|| {
                let index = build();
                (0..).zip(vectors.chunks(d)).for_each(|(key, row)| index.add(key, row).unwrap());
                index
            });
            drop(single);
            let (keys, index) = (keys(rows), build());
            let ((), batch) = measure(|| index.add_batch(&keys, &vectors).unwrap());
            assert!(batch.kept as f64 <= alone.kept as f64 * 1.05, "{at}: {batch:?}, one by one {alone:?}");
            let staged = 1024 * d * 4;
            assert!(batch.peak <= batch.kept as usize + rows * 9 + staged + (128 << 10), "{at}: {batch:?}");
        }
    }
}

// B128
#[test]
fn keys_are_listed_once_each() {
    let _turn = turn();
    let d = 4;
    for encoding in Encoding::ALL {
        for rows in [0, 1, 10_000] {
            let vectors = numbers(18, rows * d);
            let index = filled(IndexKind::Flat, Metric::L2, d, encoding, Originals::None, &vectors);
            let gone = |key: u64| key * 7 % 10 < 3 && rows > 1;
            (0..rows as u64).filter(|&key| gone(key)).for_each(|key| assert!(index.remove(key).unwrap()));
            let expected: Vec<u64> = (0..rows as u64).filter(|&key| !gone(key)).collect();
            let bytes = index.to_bytes().unwrap();
            let mapped = Index::from_bytes(bytes.clone()).unwrap();
            let copied = OpenOptions::new().from_storage(Arc::new(CopyingStorage::new(bytes))).unwrap();
            for (len, keys) in
                [(index.len(), index.keys()), (mapped.len(), mapped.keys()), (copied.len(), copied.keys())]
            {
                assert_eq!((len, &keys), (expected.len(), &expected), "{encoding} {rows} rows");
                assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), len);
            }
            #[cfg(feature = "mmap")]
            {
                let directory = tempfile::tempdir().unwrap();
                index.save(directory.path().join("x.twx")).unwrap();
                let opened = Index::open(directory.path().join("x.twx")).unwrap();
                assert_eq!((opened.len(), opened.keys()), (expected.len(), expected), "{encoding} {rows} rows");
            }
        }
    }
}
