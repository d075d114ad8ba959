//! What growing rows cost in memory: a counting allocator, and what the operating system has handed out.
//!
//! One test, in a process of its own: others at the same time would be counted too.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use twindex::storage::{ChunkOptions, ChunkedCells, ChunkedRows, CopyingStorage, Section};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came. (`realloc` is the default: a new block and a copy.)
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` made, the bytes it holds, and the most that were allocated in between.
fn measure<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let made = work();
    (made, NOW.load(Ordering::Relaxed) - before, PEAK.load(Ordering::Relaxed) - before)
}

#[test]
fn growth_costs_one_chunk_at_most() {
    const STRIDE: usize = 1536;
    // Chunks of 1 MiB at most come from the allocator, where they can be counted.
    const CHUNK: usize = 1 << 20;
    let options = ChunkOptions { chunk_bytes: CHUNK, rows_per_chunk: None };
    let before_all = NOW.load(Ordering::Relaxed);

    for rows in [1u32, 8, 9, 500, 5000, 20_000] {
        let payload = rows as usize * STRIDE;
        let (grown, held, peak) = measure(|| {
            let grown = ChunkedRows::new(STRIDE, &options).unwrap();
            for i in 0..rows {
                grown.push(&[i as u8; STRIDE]).unwrap();
            }
            grown
        });
        assert_eq!(grown.count(), rows);
        assert!(held >= payload, "{rows} rows: {held} bytes hold {payload}");
        assert!(peak <= payload + CHUNK, "{rows} rows: {peak} bytes at the worst moment, {payload} of payload");
        // What is not told: the list of chunks, some 50 bytes each.
        let told = grown.allocated_bytes() as usize;
        assert!(told <= held && held - told < 4096, "{rows} rows: {told} bytes told, {held} counted");
    }

    let (cells, _, peak) = measure(|| {
        let cells = ChunkedCells::<AtomicU32>::new(33, &options).unwrap();
        (1..=50_000).for_each(|rows| cells.grow_to(rows).unwrap());
        cells
    });
    let payload = 50_000 * 33 * 4;
    assert!(peak <= payload + CHUNK, "{peak} bytes at the worst moment, {payload} of payload");
    drop(cells);

    let len = 10 << 20;
    let storage = Arc::new(CopyingStorage::new(vec![1; len]));
    let mut section = Section::new(storage, 0, len as u64).unwrap();
    let ((), held, peak) = measure(|| section.make_resident().unwrap());
    assert!(peak < len + 1024 && held >= len, "{peak} bytes at the worst moment for a copy of {len}");
    drop(section);

    let left = NOW.load(Ordering::Relaxed).saturating_sub(before_all);
    assert!(left < 4096, "{left} bytes were not given back");

    untouched_memory_is_not_handed_out();
}

#[cfg(target_os = "linux")]
fn untouched_memory_is_not_handed_out() {
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
    let options = ChunkOptions { rows_per_chunk: Some(1 << 17), ..ChunkOptions::default() };
    let before = resident();
    let rows = ChunkedRows::new(1536, &options).unwrap();
    rows.push(&[1; 1536]).unwrap();
    assert!(rows.allocated_bytes() >= 192 << 20);
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "one row in a chunk of 192 MiB made the process {grown} bytes larger");
}

#[cfg(not(target_os = "linux"))]
fn untouched_memory_is_not_handed_out() {
    println!("skipped: untouched memory (no /proc here)");
}
