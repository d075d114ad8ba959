//! What an index and its searches take of the heap, counted by the allocator itself.
//!
//! The counts are of the whole process, so the tests take turns.

#![expect(unsafe_code, reason = "a global allocator is unsafe by nature")]

mod encodings;
#[path = "../common/random.rs"]
mod random;

use random::Random;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twindex::storage::{ChunkOptions, CopyingStorage};
use twindex::{Filter, Index, IndexBuilder, IndexKind, Metric, OpenOptions, Residency, SearchParams};

/// The system's allocator, with counts.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call is handed on to `System` as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one `System` asks for.
        let at = unsafe { System.alloc(layout) };
        if !at.is_null() {
            grown(layout.size());
        }
        at
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let at = unsafe { System.alloc_zeroed(layout) };
        if !at.is_null() {
            grown(layout.size());
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let new = unsafe { System.realloc(at, layout, size) };
        if !new.is_null() {
            // For a moment old and new may both be there.
            grown(size);
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        new
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call did to the heap.
#[derive(Debug, Clone, Copy)]
struct Use {
    /// Bytes more at the worst moment than before.
    peak: usize,
    /// Bytes more at the end than before.
    kept: isize,
    /// Allocations.
    calls: usize,
}

fn measure<T>(f: impl FnOnce() -> T) -> (T, Use) {
    let (before, calls) = (LIVE.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
    PEAK.store(before, Ordering::Relaxed);
    let value = f();
    let after = LIVE.load(Ordering::Relaxed);
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    (value, Use { peak, kept: after as isize - before as isize, calls: CALLS.load(Ordering::Relaxed) - calls })
}

/// The least of three measurements: the test harness may allocate or free something in between.
fn least(mut f: impl FnMut()) -> Use {
    let uses: [Use; 3] = std::array::from_fn(|_| measure(&mut f).1);
    Use {
        peak: uses.iter().map(|u| u.peak).min().unwrap_or(0),
        kept: uses.iter().map(|u| u.kept).min_by_key(|kept| kept.abs()).unwrap_or(0),
        calls: uses.iter().map(|u| u.calls).min().unwrap_or(0),
    }
}

fn builder(kind: IndexKind, metric: Metric, dimension: usize) -> IndexBuilder {
    Index::builder(dimension, metric).kind(kind).m(8).ef_construction(24).threads(1)
}

fn filled(kind: IndexKind, metric: Metric, rows: usize, dimension: usize) -> Index {
    let index = builder(kind, metric, dimension).build().unwrap();
    let mut random = Random::new(1);
    for key in 0..rows as u64 {
        index.add(key, &random.normals(dimension)).unwrap();
    }
    index
}

#[test]
fn growing_from_empty_peaks_where_it_ends() {
    let _turn = turn();
    for (kind, metric, rows, dimension) in [
        (IndexKind::Flat, Metric::L2, 20_000, 64),
        (IndexKind::Flat, Metric::Cosine, 60_000, 4),
        (IndexKind::Hnsw, Metric::L2, 5000, 64),
    ] {
        let chunks = ChunkOptions { chunk_bytes: 64 << 10, ..ChunkOptions::default() };
        let mut random = Random::new(1);
        let mut vector = vec![0.0; dimension];
        let (index, grown) = measure(|| {
            let index = builder(kind, metric, dimension).chunks(chunks).build().unwrap();
            for key in 0..rows as u64 {
                vector.iter_mut().for_each(|x| *x = random.normal());
                index.add(key, &vector).unwrap();
            }
            index
        });
        let ratio = grown.peak as f64 / grown.kept as f64;
        eprintln!("{kind} {rows} x {dimension}: {} bytes, peak / final {ratio:.4}", grown.kept);
        assert!(ratio <= 1.10, "{kind} {rows} x {dimension}: {grown:?}");
        // And what stays is what is stored: row, key, life span, place in the key map, links, partly filled chunks.
        let links = if kind == IndexKind::Hnsw { 4 * (1 + 16) + 8 } else { 0 };
        let stored = rows * (dimension * 4 + 8 + 8 + 4 + links + 5 * 2) + 6 * (64 << 10) + (256 << 10);
        assert!(grown.kept as usize <= stored, "{kind}: {} bytes kept, {stored} expected", grown.kept);
        let counted = index.stats().unwrap().resident_bytes as f64;
        assert!((counted / grown.kept as f64 - 1.0).abs() < 0.1, "{counted} in stats, {} on the heap", grown.kept);
        drop(index);
    }
}

#[test]
fn a_batch_needs_little_beside_its_rows() {
    let _turn = turn();
    let (rows, dimension) = (20_000, 32);
    let vectors = Random::new(2).normals(rows * dimension);
    let mut keys: Vec<u64> = (0..rows as u64).collect();
    Random::new(3).shuffle(&mut keys);
    let chunks = ChunkOptions { chunk_bytes: 64 << 10, ..ChunkOptions::default() };
    let index = builder(IndexKind::Flat, Metric::L2, dimension).chunks(chunks).build().unwrap();
    let ((), grown) = measure(|| index.add_batch(&keys, &vectors).unwrap());
    assert!(grown.peak as f64 <= grown.kept as f64 * 1.10, "{grown:?}");
}

#[test]
fn a_warm_search_allocates_its_result_only() {
    let _turn = turn();
    let even = |key: u64| key.is_multiple_of(2);
    for (kind, metric) in
        [(IndexKind::Flat, Metric::L2), (IndexKind::Hnsw, Metric::L2), (IndexKind::Hnsw, Metric::Cosine)]
    {
        let growing = filled(kind, metric, 3000, 16);
        let frozen = Index::from_bytes(growing.to_bytes().unwrap()).unwrap();
        growing.remove(5).unwrap();
        let query = Random::new(3).normals(16);
        for index in [&growing, &frozen] {
            for params in [
                SearchParams::new(10),
                SearchParams::new(10).exact(true),
                SearchParams::new(10).radius(1e9),
                SearchParams::new(10).filter(Filter::by(&even)),
            ] {
                let search = || assert_eq!(index.search(&query, &params).unwrap().len(), 10);
                (0..3).for_each(|_| search());
                let used = least(search);
                assert!(used.calls <= 2, "{kind} {metric} {params:?}: {used:?}");
                assert!(used.peak <= 64 * 16 && used.kept == 0, "{kind} {metric} {params:?}: {used:?}");
            }
        }
    }
}

// B29
#[test]
fn an_enormous_k_or_ef_costs_what_the_rows_do() {
    let _turn = turn();
    for kind in IndexKind::ALL {
        let index = filled(kind, Metric::L2, 1000, 8);
        let query = vec![0.5; 8];
        for huge in [1 << 31, 1 << 32, 1 << 53, usize::MAX] {
            for params in [
                SearchParams::new(huge),
                SearchParams::new(huge).ef(huge),
                SearchParams::new(1).ef(huge),
                SearchParams::new(huge).exact(true).filter(Filter::keys(&[1, 2])),
            ] {
                let used = least(|| drop(index.search(&query, &params).unwrap()));
                assert!(used.peak < 256 << 10, "{kind} {params:?}: {used:?}");
            }
        }
    }
}

#[cfg(feature = "mmap")]
#[test]
fn opening_a_mapped_file_takes_no_memory_for_its_rows() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.twx");
    for kind in IndexKind::ALL {
        let mut peaks = Vec::new();
        for rows in [100, 4000] {
            filled(kind, Metric::Cosine, rows, 32).save(&path).unwrap();
            let (index, used) = measure(|| Index::open(&path).unwrap());
            assert!(used.peak < 256 << 10, "{kind} {rows} rows: {used:?}");
            assert_eq!((index.len(), index.stats().unwrap().resident_bytes), (rows, 0));
            peaks.push(used.peak);
        }
        assert!(peaks[1] < peaks[0] + 4096, "{kind}: {peaks:?} bytes for 100 and 4000 rows");
    }
}

/// Where a section lies in a file, by its tag.
fn section(bytes: &[u8], tag: u32) -> std::ops::Range<usize> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let table = number(24);
    let entries = (table..bytes.len() - 8).step_by(32);
    let entry = entries.into_iter().find(|&at| bytes[at..at + 4] == tag.to_le_bytes()).expect("the file has it");
    let from = number(entry + 8);
    from..from + number(entry + 16)
}

/// Sets a number in a file's META and puts the checksums of the head right.
fn hostile(bytes: &[u8], patches: &[(usize, usize, u64)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for &(at, width, value) in patches {
        bytes[64 + at..64 + at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (table, meta_len) = (number(24), number(number(24) + 16));
    let end = bytes.len();
    let crc = crc32fast::hash(&[&bytes[..64], &bytes[64..64 + meta_len], &bytes[table..end - 4]].concat());
    bytes[end - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

// B78
#[test]
fn a_hostile_head_allocates_nothing_to_speak_of() {
    let _turn = turn();
    for kind in IndexKind::ALL {
        let bytes = filled(kind, Metric::Cosine, 500, 8).to_bytes().unwrap();
        for patches in [
            vec![(8, 8, (1 << 31) - 1)],
            vec![(8, 8, (1 << 32) - 2)],
            vec![(8, 8, u64::MAX)],
            vec![(0, 4, 65_536), (24, 4, 4 * 65_536)],
            vec![(0, 4, 65_536), (24, 4, 4 * 65_536), (8, 8, (1 << 32) - 2)],
            vec![(56, 8, 1 << 40)],
            vec![(7, 1, 255)],
        ] {
            let bytes = hostile(&bytes, &patches);
            let storage = Arc::new(CopyingStorage::new(bytes.clone()));
            for residency in [Residency::Mapped, Residency::Resident, Residency::Owned] {
                let options = OpenOptions::new().residency(residency);
                let bytes = bytes.clone();
                let (opened, used) = measure(|| options.from_bytes(bytes));
                assert!(opened.is_err() && used.peak < 64 << 10, "{kind} {patches:?}: {used:?}");
                let (opened, used) = measure(|| options.from_storage(storage.clone()));
                assert!(opened.is_err() && used.peak < 64 << 10, "{kind} {patches:?}, copied: {used:?}");
            }
        }
    }
}

#[test]
fn a_scan_of_rows_that_are_elsewhere_works_in_a_window() {
    let _turn = turn();
    let (rows, dimension) = (20_000, 64);
    let bytes = filled(IndexKind::Flat, Metric::Cosine, rows, dimension).to_bytes().unwrap();
    let storage = Arc::new(CopyingStorage::new(bytes));
    let index = OpenOptions::new().from_storage(storage.clone()).unwrap();
    let query = Random::new(4).normals(dimension);
    let search = || index.search(&query, &SearchParams::new(10)).unwrap();
    storage.reset_counts();
    let (hits, used) = measure(search);
    assert_eq!(hits.len(), 10);
    let (codes, read) = ((rows * dimension * 4) as u64, storage.bytes_read());
    assert!(used.peak <= 5 << 19, "{used:?} for a scan of {codes} bytes");
    assert!((codes..codes + codes / 50).contains(&read), "{read} bytes read of {codes}");
    let warm = least(|| drop(search()));
    assert!(warm.calls <= 2, "{warm:?}");
}

#[test]
fn opening_in_memory_holds_one_copy() {
    let _turn = turn();
    let bytes = filled(IndexKind::Hnsw, Metric::L2, 4000, 32).to_bytes().unwrap();
    let size = bytes.len();
    // The buffer is taken over, not copied.
    let copy = bytes.clone();
    let (index, used) = measure(|| Index::from_bytes(copy).unwrap());
    assert!(used.peak < 64 << 10, "{used:?}");
    drop(index);
    // From elsewhere: links and keys, and with `Resident` the rows, each once.
    let storage = Arc::new(CopyingStorage::new(bytes));
    for (residency, limit) in [(Residency::Mapped, size - 4000 * 128), (Residency::Resident, size)] {
        let (index, used) = measure(|| OpenOptions::new().residency(residency).from_storage(storage.clone()).unwrap());
        assert!(used.peak <= limit + (64 << 10), "{residency:?}: {used:?}, {size} bytes in the file");
        assert!((index.stats().unwrap().resident_bytes as usize) <= limit);
    }
}

#[test]
fn opening_to_change_holds_no_second_copy_of_keys_and_links() {
    let _turn = turn();
    let storage = Arc::new(CopyingStorage::new(filled(IndexKind::Hnsw, Metric::L2, 10_000, 8).to_bytes().unwrap()));
    // Chunks of which none is mapped: the allocator sees them all.
    let chunks = ChunkOptions { chunk_bytes: 1 << 20, ..ChunkOptions::default() };
    let options = OpenOptions::new().residency(Residency::Owned).chunks(chunks);
    let (_index, used) = measure(|| options.from_storage(storage.clone()).unwrap());
    // What there is for a moment only is the rows' window; the copies take nearly twice that.
    assert!(used.peak <= used.kept as usize + 10_000 * 32 + (64 << 10), "{used:?}");
}

#[cfg(feature = "mmap")]
#[test]
fn saving_needs_a_buffer_and_four_bytes_a_row() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    for kind in IndexKind::ALL {
        let rows = 6000;
        let index = filled(kind, Metric::L2, rows, 64);
        let path = directory.path().join("x.twx");
        let used = least(|| index.save(&path).unwrap());
        assert!(used.peak <= (3 << 19) + 16 * rows && used.kept == 0, "{kind}: {used:?}");
    }
}
