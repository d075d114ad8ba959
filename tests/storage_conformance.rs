//! Every storage and every kind of rows through the one suite of its seam, and what is particular to each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use proptest::prelude::*;
use twindex::storage::conformance::{rows_suite, sample_bytes, storage_suite};
use twindex::storage::{
    ChunkOptions, ChunkedCells, ChunkedRows, CopyingStorage, GAP_BYTES, RowBuf, Rows, Section, SectionRows, Storage,
    WINDOW_BYTES,
};
use twindex::{Error, Result};

#[path = "suites/far_offsets.rs"]
mod far_offsets;

far_offsets::stamp!(test);

macro_rules! storage_conforms {
    ($($name:ident: $make:expr;)*) => {
        mod storage_conforms {
            use super::*;
            $(#[test]
            fn $name() {
                println!("{}", storage_suite(stringify!($name), $make));
            })*
        }
    };
}

storage_conforms! {
    vec: |bytes: &[u8]| bytes.to_vec();
    boxed_slice: |bytes: &[u8]| bytes.to_vec().into_boxed_slice();
    arc_slice: |bytes: &[u8]| Arc::<[u8]>::from(bytes);
    borrowed_slice: |bytes: &[u8]| &*bytes.to_vec().leak();
    arc_dyn: |bytes: &[u8]| Arc::new(bytes.to_vec()) as Arc<dyn Storage + Send + Sync>;
    boxed_dyn_copying: |bytes: &[u8]| Box::new(CopyingStorage::new(bytes.to_vec())) as Box<dyn Storage>;
    copying: |bytes: &[u8]| CopyingStorage::new(bytes.to_vec());
}

#[cfg(feature = "mmap")]
mod mapped {
    use super::*;
    use std::io::Write;
    use twindex::storage::MmapStorage;

    fn map(bytes: &[u8]) -> MmapStorage {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        MmapStorage::open(file.path()).unwrap()
    }

    #[test]
    fn storage_conforms() {
        println!("{}", storage_suite("mmap", map));
        let read = storage_suite("a file read into memory", |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            MmapStorage::read(file.path()).unwrap()
        });
        println!("{read}");
        let of_open_file = storage_suite("mmap of an open file", |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            MmapStorage::from_file(&file).unwrap()
        });
        println!("{of_open_file}");
    }

    #[test]
    fn rows_conform() {
        println!("{}", rows_suite("rows in a map", &[1024], |stride, bytes| section_rows(map(bytes), stride)));
    }

    #[test]
    fn advice_changes_no_bytes() {
        for bytes in [vec![], sample_bytes(10_000)] {
            let storage = map(&bytes);
            storage.advise_willneed();
            storage.advise_random();
            assert_eq!(storage.as_slice(), Some(&bytes[..]));
        }
    }

    #[test]
    fn a_missing_file_is_an_io_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(MmapStorage::open(dir.path().join("none")), Err(Error::Io(_))));
        assert!(matches!(MmapStorage::read(dir.path().join("none")), Err(Error::Io(_))));
    }
}

fn section_rows<S: Storage>(storage: S, stride: usize) -> SectionRows<S> {
    let len = storage.len();
    SectionRows::new(Section::new(Arc::new(storage), 0, len).unwrap(), stride).unwrap()
}

/// Rows in the middle of something longer.
fn inner_rows(stride: usize, bytes: &[u8]) -> SectionRows<CopyingStorage> {
    let mut all = vec![0xee; 100];
    all.extend_from_slice(bytes);
    all.extend_from_slice(&[0xee; 100]);
    let section = Section::new(Arc::new(CopyingStorage::new(all)), 100, bytes.len() as u64).unwrap();
    SectionRows::new(section, stride).unwrap()
}

fn of_rows(rows: u32) -> ChunkOptions {
    ChunkOptions { rows_per_chunk: Some(rows), ..ChunkOptions::default() }
}

fn of_bytes(chunk_bytes: usize) -> ChunkOptions {
    ChunkOptions { chunk_bytes, rows_per_chunk: None }
}

fn chunked(stride: usize, options: &ChunkOptions, bytes: &[u8]) -> ChunkedRows {
    let rows = ChunkedRows::new(stride, options).unwrap();
    for row in bytes.chunks_exact(stride) {
        rows.push(row).unwrap();
    }
    rows
}

macro_rules! rows_conform {
    ($($name:ident: at $edges:expr, $make:expr;)*) => {
        mod rows_conform {
            use super::*;
            $(#[test]
            fn $name() {
                println!("{}", rows_suite(stringify!($name), $edges, $make));
            })*
        }
    };
}

// Edges: where chunks end. With 1536 bytes a row, the first chunks end at 8, 16, 32 … rows and full ones of 16 KiB
// have 8; rows of 3 and 1 bytes have the first end at 4,096 and 16,384.
rows_conform! {
    chunked_default: at &[8, 16, 4096, 16384], |stride, bytes| chunked(stride, &ChunkOptions::default(), bytes);
    chunked_small: at &[8, 16, 64, 4096], |stride, bytes| chunked(stride, &of_bytes(16 << 10), bytes);
    chunked_by_1: at &[7], |stride, bytes| chunked(stride, &of_rows(1), bytes);
    chunked_by_2: at &[4, 6], |stride, bytes| chunked(stride, &of_rows(2), bytes);
    chunked_by_1024: at &[1024, 2048], |stride, bytes| chunked(stride, &of_rows(1024), bytes);
    section_resident: at &[1024], |stride, bytes: &[u8]| section_rows(bytes.to_vec(), stride);
    section_copying: at &[682, 5000], inner_rows;
    section_made_resident: at &[1024], |stride, bytes| {
        let mut rows = inner_rows(stride, bytes);
        rows.make_resident().unwrap();
        rows
    };
    section_behind_dyn: at &[5], |stride, bytes: &[u8]| {
        let storage: Arc<dyn Storage> = Arc::new(bytes.to_vec());
        SectionRows::new(Section::new(storage, 0, bytes.len() as u64).unwrap(), stride).unwrap()
    };
}

#[test]
fn runs_give_the_rows_and_no_more() {
    for stride in [1, 3, 1536, 1537] {
        for options in [of_rows(1), of_rows(2), of_rows(1024), of_bytes(16 << 10), ChunkOptions::default()] {
            for count in [0, 1, 7, 8, 9, 1023, 1024, 1025] {
                let bytes = sample_bytes(stride * count);
                let rows = chunked(stride, &options, &bytes);
                assert!(rows.runs().all(|run| !run.is_empty() && run.len().is_multiple_of(stride)));
                assert!(rows.runs().collect::<Vec<_>>().concat() == bytes, "{count} rows of {stride}, {options:?}");
            }
        }
    }
}

#[test]
fn one_large_chunk_is_one_run() {
    let rows = chunked(3, &of_rows(1 << 20), &sample_bytes(3000));
    assert_eq!(rows.runs().count(), 1);
}

#[test]
fn growth_moves_no_row() {
    let rows = ChunkedRows::new(16, &of_bytes(4 << 10)).unwrap();
    let cells = ChunkedCells::<AtomicU64>::new(2, &of_bytes(4 << 10)).unwrap();
    let fill = |i: u32, row: &mut [u8]| {
        row.fill(i as u8);
        Ok(())
    };
    rows.append(10, fill).unwrap();
    cells.grow_to(10).unwrap();
    let before: Vec<_> = (0..10).map(|id| (rows.resident(id).unwrap(), cells.row(id).unwrap())).collect();
    rows.append(100_000, fill).unwrap();
    cells.grow_to(100_000).unwrap();
    for (id, (row, cell)) in (0..10).zip(before) {
        assert_eq!(row.as_ptr(), rows.resident(id).unwrap().as_ptr());
        assert_eq!(row, [id as u8; 16]);
        assert_eq!(cell.as_ptr(), cells.row(id).unwrap().as_ptr());
    }
}

#[test]
fn a_failed_append_leaves_no_trace() {
    let rows = chunked(100, &of_rows(8), &sample_bytes(900));
    let before = rows.allocated_bytes();
    for fails_at in [0, 1, 7, 4999] {
        let failed = rows.append(5000, |i, row| {
            row.fill(0xff);
            if i == fails_at { Err(Error::ZeroVector { row: i as usize }) } else { Ok(()) }
        });
        assert!(matches!(failed, Err(Error::ZeroVector { row }) if row == fails_at as usize));
        assert_eq!(rows.count(), 9);
        assert_eq!(rows.resident(9), None);
        // 625 chunks were given back; their 8-byte slots may stay.
        assert!(rows.allocated_bytes() <= before + 8 * 1024);
    }
    assert_eq!(rows.push(&[7; 100]).unwrap(), 9);
    assert_eq!(rows.resident(9), Some(&[7; 100][..]));
    assert_eq!(rows.runs().collect::<Vec<_>>().concat()[..900], sample_bytes(900));
}

#[test]
fn a_panic_while_filling_leaves_no_trace() {
    let rows = chunked(3, &of_rows(2), b"abc");
    let fill = |i, _: &mut [u8]| if i == 5 { panic!("on purpose") } else { Ok(()) };
    assert!(catch_unwind(AssertUnwindSafe(|| rows.append(9, fill))).is_err());
    assert_eq!((rows.count(), rows.push(b"def").unwrap()), (1, 1));
    assert_eq!(rows.runs().collect::<Vec<_>>().concat(), b"abcdef");
}

#[test]
fn what_cannot_be_is_refused() {
    for rows in [0, 3, 1000, u32::MAX] {
        let refused = ChunkedRows::new(4, &of_rows(rows));
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "rows_per_chunk", .. })));
    }
    for bytes in [0, 4095, (1 << 30) + 1] {
        let refused = ChunkedCells::<AtomicU32>::new(4, &of_bytes(bytes));
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "chunk_bytes", .. })));
    }
    let options = ChunkOptions::default();
    assert!(matches!(ChunkedRows::new(0, &options), Err(Error::InvalidParameter { name: "stride", .. })));
    for width in [0, usize::MAX] {
        let refused = ChunkedCells::<AtomicU32>::new(width, &options);
        assert!(matches!(refused, Err(Error::InvalidParameter { name: "width", .. })));
    }
    let rows = chunked(4, &options, b"abcd");
    assert!(matches!(rows.push(b"abc"), Err(Error::LengthMismatch { expected: 4, got: 3, .. })));
    assert!(matches!(rows.append(u32::MAX - 1, |_, _| Ok(())), Err(Error::TooLarge { got: 0xffff_ffff, .. })));
    assert_eq!(rows.count(), 1);
    let cells = ChunkedCells::<AtomicU8>::new(1, &options).unwrap();
    assert!(matches!(cells.grow_to(u32::MAX), Err(Error::TooLarge { .. })));
    assert_eq!((cells.count(), cells.allocated_bytes()), (0, 0));
}

#[test]
fn memory_that_is_refused_is_an_error() {
    let rows = ChunkedRows::new(1 << 40, &of_rows(1 << 31)).unwrap();
    assert!(matches!(rows.append(1, |_, _| Ok(())), Err(Error::OutOfMemory { .. })));
    assert_eq!(rows.count(), 0);
    let cells = ChunkedCells::<AtomicU64>::new(1 << 40, &of_rows(1 << 31)).unwrap();
    assert!(matches!(cells.grow_to(1), Err(Error::OutOfMemory { .. })));
    assert!(matches!(RowBuf::new().reset(usize::MAX, 2), Err(Error::OutOfMemory { .. })));
    assert!(matches!(RowBuf::new().reset(usize::MAX / 4, 1), Err(Error::OutOfMemory { .. })));
}

#[test]
fn truncating_frees_chunks_and_growing_again_gives_zeroes() {
    let mut cells = ChunkedCells::<AtomicU32>::new(3, &of_rows(4)).unwrap();
    cells.grow_to(100).unwrap();
    let full = cells.allocated_bytes();
    for id in 0..100 {
        cells.row_mut(id).unwrap().iter_mut().for_each(|cell| *cell.get_mut() = id + 1);
    }
    cells.truncate(200);
    assert_eq!((cells.count(), cells.allocated_bytes()), (100, full));
    // 10 rows: two chunks whole, half of the third, whose other half must come back as zeroes.
    cells.truncate(10);
    assert!(cells.allocated_bytes() < full);
    assert!(cells.row(10).is_none() && cells.row_mut(10).is_none());
    cells.grow_to(5).unwrap();
    assert_eq!(cells.count(), 10);
    cells.grow_to(50).unwrap();
    for id in 0..50 {
        let expected = if id < 10 { id + 1 } else { 0 };
        assert!(cells.row(id).unwrap().iter().all(|cell| cell.load(Ordering::Relaxed) == expected), "row {id}");
    }
    cells.truncate(0);
    assert_eq!(cells.count(), 0);
    cells.grow_to(1).unwrap();
    assert_eq!(cells.row(0).unwrap()[0].load(Ordering::Relaxed), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Append(u32),
    Fail(u32),
    Truncate(u32),
    Copy(u32, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u32..40).prop_map(Step::Append),
        1 => (1u32..40).prop_map(Step::Fail),
        1 => (0u32..120).prop_map(Step::Truncate),
        2 => (0u32..120, 0u32..120).prop_map(|(from, to)| Step::Copy(from, to)),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunked_rows_do_what_a_vector_of_rows_does(steps in steps(), log in 0u32..6, stride in 1usize..70) {
        let mut rows = ChunkedRows::new(stride, &of_rows(1 << log)).unwrap();
        let mut model: Vec<Vec<u8>> = Vec::new();
        let mut next = 0u8;
        for step in steps {
            let count = model.len() as u32;
            match step {
                Step::Append(n) => {
                    let first = rows.append(n, |_, row| {
                        next = next.wrapping_add(1);
                        row.fill(next);
                        model.push(row.to_vec());
                        Ok(())
                    });
                    prop_assert_eq!(first.unwrap(), count);
                }
                Step::Fail(n) => {
                    let failed = rows.append(n, |i, row| {
                        row.fill(0xff);
                        if i + 1 == n { Err(Error::ZeroVector { row: 0 }) } else { Ok(()) }
                    });
                    prop_assert!(failed.is_err());
                }
                Step::Truncate(n) => {
                    rows.truncate(n);
                    model.truncate(n as usize);
                }
                Step::Copy(from, to) => {
                    let copied = rows.copy_row(from, to);
                    prop_assert_eq!(copied.is_ok(), from < count && to < count);
                    if copied.is_ok() {
                        model[to as usize] = model[from as usize].clone();
                    }
                }
            }
            prop_assert_eq!(rows.count() as usize, model.len());
            prop_assert_eq!(rows.runs().collect::<Vec<_>>().concat(), model.concat());
        }
        for (id, row) in (0..).zip(&model) {
            prop_assert_eq!(rows.resident(id), Some(&row[..]));
        }
    }

    #[test]
    fn fetching_without_residency_gives_what_borrowing_gives(
        stride in prop_oneof![1usize..20, 900usize..5000],
        count in 1u32..600,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..50),
    ) {
        let bytes = sample_bytes(stride * count as usize);
        let ids: Vec<u32> = picks.iter().map(|pick| pick.index(count as usize) as u32).collect();
        let mut buf = RowBuf::new();
        inner_rows(stride, &bytes).fetch(&ids, &mut buf).unwrap();
        let expected: Vec<u8> = ids.iter().flat_map(|&id| &bytes[id as usize * stride..][..stride]).copied().collect();
        prop_assert_eq!(buf.as_slice(), expected);
    }
}

/// What row `id` holds, so that a reader can tell a row that is not complete.
fn pattern(id: u32, stride: usize) -> impl Iterator<Item = u8> {
    (0..stride as u32).map(move |i| (id.wrapping_mul(0x9e37_79b9).wrapping_add(i) >> 7) as u8)
}

/// Reads rows and cells at random until `done`, and says how often.
fn read_along(seed: u32, rows: &ChunkedRows, cells: &ChunkedCells<AtomicU32>, done: &AtomicBool) -> u32 {
    let stride = rows.stride();
    let mut state = seed;
    let mut checked = 0;
    let mut first: Option<&[u8]> = None;
    while !done.load(Ordering::Acquire) || checked == 0 {
        let Some(last) = rows.count().checked_sub(1) else {
            thread::yield_now();
            continue;
        };
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        for id in [state % (last + 1), last] {
            assert!(rows.resident(id).unwrap().iter().copied().eq(pattern(id, stride)), "row {id}");
            assert!(cells.row(id).unwrap().iter().all(|cell| cell.load(Ordering::Relaxed) == id + 1), "cells {id}");
        }
        first.get_or_insert_with(|| rows.resident(0).unwrap());
        checked += 1;
    }
    assert!(first.unwrap().iter().copied().eq(pattern(0, stride)));
    checked
}

#[test]
fn readers_see_complete_rows_while_a_writer_appends() {
    const STRIDE: usize = 24;
    const ROWS: u32 = 60_000;
    for options in [of_rows(1), of_rows(64), of_bytes(4 << 10), ChunkOptions::default()] {
        let rows = ChunkedRows::new(STRIDE, &options).unwrap();
        let cells = ChunkedCells::<AtomicU32>::new(2, &options).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers = [1, 2].map(|seed| {
                let (rows, cells, done) = (&rows, &cells, &done);
                scope.spawn(move || read_along(seed, rows, cells, done))
            });
            let mut next = 0;
            while next < ROWS {
                // Batches of 1 to 7, so that they end at the edges of chunks and across them.
                let n = 1 + next % 7;
                cells.grow_to(next + n).unwrap();
                for id in next..next + n {
                    cells.row(id).unwrap().iter().for_each(|cell| cell.store(id + 1, Ordering::Relaxed));
                }
                let first = rows.append(n, |i, row| {
                    row.iter_mut().zip(pattern(next + i, STRIDE)).for_each(|(to, byte)| *to = byte);
                    Ok(())
                });
                assert_eq!(first.unwrap(), next);
                next += n;
            }
            done.store(true, Ordering::Release);
            for reader in readers {
                assert!(reader.join().unwrap() > 0);
            }
        });
    }
}

#[test]
fn writers_take_turns() {
    let rows = ChunkedRows::new(8, &of_bytes(4 << 10)).unwrap();
    let cells = ChunkedCells::<AtomicU8>::new(1, &of_rows(2)).unwrap();
    thread::scope(|scope| {
        for writer in 1..=4u8 {
            let (rows, cells) = (&rows, &cells);
            scope.spawn(move || {
                for _ in 0..1000 {
                    let first = rows.append(3, |_, row| {
                        row.fill(writer);
                        Ok(())
                    });
                    let first = first.unwrap();
                    cells.grow_to(first + 3).unwrap();
                    for id in first..first + 3 {
                        assert_eq!(rows.resident(id), Some(&[writer; 8][..]));
                        assert_eq!(cells.row(id).unwrap()[0].swap(writer, Ordering::Relaxed), 0);
                    }
                }
            });
        }
    });
    assert_eq!((rows.count(), cells.count()), (12_000, 12_000));
    for writer in 1..=4u8 {
        let of_it = (0..12_000).filter(|&id| rows.resident(id) == Some(&[writer; 8][..])).count();
        assert_eq!(of_it, 3000);
    }
}

/// Remembers each read, and fails from the read number `fails_from` on.
struct Recorder {
    bytes: Vec<u8>,
    reads: Mutex<Vec<(u64, usize)>>,
    fails_from: usize,
}

impl Recorder {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, reads: Mutex::default(), fails_from: usize::MAX }
    }
}

impl Storage for Recorder {
    fn len(&self) -> u64 {
        Storage::len(&self.bytes)
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut reads = self.reads.lock().unwrap();
        if reads.len() >= self.fails_from {
            return Err(Error::Storage { reason: "on purpose".into() });
        }
        reads.push((offset, out.len()));
        self.bytes.read_into(offset, out)
    }
}

fn recorded(stride: usize, count: usize) -> SectionRows<Recorder> {
    section_rows(Recorder::new(sample_bytes(stride * count)), stride)
}

fn reads_of(rows: &SectionRows<Recorder>) -> Vec<(u64, usize)> {
    rows.section().storage().reads.lock().unwrap().clone()
}

fn reads_to_fetch(stride: usize, count: usize, ids: &[u32]) -> Vec<(u64, usize)> {
    let rows = recorded(stride, count);
    rows.fetch(ids, &mut RowBuf::new()).unwrap();
    reads_of(&rows)
}

#[test]
fn near_rows_are_read_together() {
    let fetch = |ids: &[u32]| reads_to_fetch(1024, 100, ids);
    assert_eq!(fetch(&[]), []);
    assert_eq!(fetch(&[7]), [(7 * 1024, 1024)]);
    assert_eq!(fetch(&[7, 7, 7]), [(7 * 1024, 1024)]);
    assert_eq!(fetch(&[9, 7, 8, 7]), [(7 * 1024, 3 * 1024)]);
    let gap = (GAP_BYTES / 1024) as u32;
    assert_eq!(fetch(&[10 + gap + 1, 10]), [(10 * 1024, (gap as usize + 2) * 1024)]);
    assert_eq!(fetch(&[10 + gap + 2, 10]), [(10 * 1024, 1024), ((12 + u64::from(gap)) * 1024, 1024)]);
}

#[test]
fn no_read_is_longer_than_a_window() {
    let all: Vec<u32> = (0..2500).rev().collect();
    let lengths: Vec<_> = reads_to_fetch(1024, 2500, &all).iter().map(|read| read.1).collect();
    assert_eq!(lengths, [WINDOW_BYTES, WINDOW_BYTES, 452 * 1024]);
    // A row longer than a window is one read all the same.
    assert_eq!(reads_to_fetch(WINDOW_BYTES + 1, 3, &[1, 2]).len(), 2);
}

#[test]
fn windows_cover_the_rows_in_order() {
    // None; less than a window; odd, one window and a part; exactly one window; one row more; longer than a window.
    for (stride, count) in [(3, 0), (3, 10), (1537, 1000), (1024, 1024), (1024, 1025), (WINDOW_BYTES + 1, 3)] {
        let bytes = sample_bytes(stride * count);
        let copying = recorded(stride, count);
        let resident = section_rows(bytes.clone(), stride);
        let mut seen = [Vec::new(), Vec::new()];
        let mut take = |which: usize, first: u32, window: &[u8]| {
            assert_eq!(first as usize * stride, seen[which].len());
            assert!(
                window.len().is_multiple_of(stride) && window.len() <= WINDOW_BYTES.max(stride) && !window.is_empty()
            );
            seen[which].extend_from_slice(window);
            Ok(())
        };
        copying.for_each_window(|first, window| take(0, first, window)).unwrap();
        resident.for_each_window(|first, window| take(1, first, window)).unwrap();
        assert!(seen[0] == bytes && seen[1] == bytes, "{count} rows of {stride}");
        assert_eq!(reads_of(&copying).len(), count.div_ceil((WINDOW_BYTES / stride).max(1)));
    }
}

#[test]
fn windows_of_a_range_and_errors_in_between() {
    let rows = recorded(1024, 3000);
    let mut windows = Vec::new();
    let seen = rows.for_each_window_in(5..2000, |first, window| {
        windows.push((first, window.len() / 1024));
        Ok(())
    });
    seen.unwrap();
    assert_eq!(windows, [(5, 1024), (1029, 971)]);
    assert!(matches!(rows.for_each_window_in(0..3001, |_, _| Ok(())), Err(Error::Corrupt { .. })));
    let mut calls = 0;
    let stopped = rows.for_each_window(|_, _| {
        calls += 1;
        Err(Error::NotASegment)
    });
    assert!(matches!(stopped, Err(Error::NotASegment)));
    assert_eq!(calls, 1);
}

#[test]
fn a_section_is_within_its_storage() {
    let bytes = sample_bytes(100);
    let resident: Arc<dyn Storage> = Arc::new(bytes.clone());
    let copying: Arc<dyn Storage> = Arc::new(CopyingStorage::new(bytes.clone()));
    for (storage, is_resident) in [(resident, true), (copying, false)] {
        for (offset, len) in [(0, 101), (101, 0), (100, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let section = Section::new(Arc::clone(&storage), offset, len);
            assert!(matches!(section, Err(Error::Truncated { got: 100, expected: 101.. })), "{offset} + {len}");
        }
        let section = Section::new(storage, 10, 80).unwrap();
        assert_eq!((section.len(), section.is_empty(), section.as_slice().is_some()), (80, false, is_resident));
        let mut out = [0; 30];
        section.read_into(50, &mut out).unwrap();
        assert_eq!(out, bytes[60..90]);
        // One byte more would be there in the storage, but not in the section.
        for (offset, len) in [(51, 30), (80, 1), (81, 0), (u64::MAX, 1)] {
            let read = section.read_into(offset, &mut vec![0; len]);
            assert!(matches!(read, Err(Error::Truncated { got: 80, .. })), "{offset} + {len}: {read:?}");
        }
    }
}

/// Longer than any memory.
struct Vast;

impl Storage for Vast {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_into(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::Storage { reason: "vast".into() })
    }
}

#[test]
fn rows_of_a_section_must_fit_it() {
    let section = Section::new(Arc::new(sample_bytes(100)), 0, 100).unwrap();
    assert!(matches!(SectionRows::new(section.clone(), 0), Err(Error::InvalidParameter { name: "stride", .. })));
    assert!(matches!(SectionRows::new(section.clone(), 3), Err(Error::Corrupt { .. })));
    assert_eq!(SectionRows::new(section, 25).unwrap().count(), 4);
    let mut vast = Section::new(Arc::new(Vast), 0, u64::MAX).unwrap();
    assert!(matches!(SectionRows::new(vast.clone(), 1), Err(Error::TooLarge { .. })));
    assert!(matches!(vast.make_resident(), Err(Error::OutOfMemory { bytes: u64::MAX })));
}

#[test]
fn made_resident_once_in_pieces() {
    let len = 2 * WINDOW_BYTES + 77;
    let bytes = sample_bytes(len + 20);
    let mut section = Section::new(Arc::new(Recorder::new(bytes.clone())), 13, len as u64).unwrap();
    let before = section.clone();
    assert_eq!((section.is_copied(), section.owned_bytes()), (false, 0));
    section.make_resident().unwrap();
    section.make_resident().unwrap();
    let pieces: Vec<_> = section.storage().reads.lock().unwrap().iter().map(|read| read.1).collect();
    assert_eq!(pieces, [WINDOW_BYTES, WINDOW_BYTES, 77]);
    assert!(section.as_slice() == Some(&bytes[13..13 + len]));
    assert_eq!((section.is_copied(), section.owned_bytes()), (true, len as u64));
    assert_eq!(section.clone().as_slice().map(<[u8]>::as_ptr), section.as_slice().map(<[u8]>::as_ptr));
    assert!(!before.is_copied() && before.as_slice().is_none());

    let mut resident = Section::new(Arc::new(sample_bytes(10)), 0, 10).unwrap();
    resident.make_resident().unwrap();
    assert_eq!((resident.is_copied(), resident.owned_bytes()), (false, 0));
}

#[test]
fn a_failing_storage_leaves_the_section_as_it_was() {
    let mut storage = Recorder::new(sample_bytes(2 * WINDOW_BYTES));
    storage.fails_from = 1;
    let mut rows = section_rows(storage, 1024);
    assert!(matches!(rows.make_resident(), Err(Error::Storage { .. })));
    assert!(rows.as_slice().is_none() && !rows.section().is_copied());
    assert!(matches!(rows.fetch(&[1], &mut RowBuf::new()), Err(Error::Storage { .. })));
    assert!(matches!(rows.for_each_window(|_, _| Ok(())), Err(Error::Storage { .. })));
}

#[test]
fn copying_storage_counts() {
    let storage = CopyingStorage::new(sample_bytes(10));
    storage.read_into(0, &mut [0; 4]).unwrap();
    storage.read_into(9, &mut [0; 1]).unwrap();
    assert!(storage.read_into(9, &mut [0; 2]).is_err());
    assert_eq!((storage.reads(), storage.bytes_read()), (2, 5));
    storage.reset_counts();
    assert_eq!((storage.reads(), storage.bytes_read()), (0, 0));
}

#[test]
fn a_row_buffer_reuses_its_memory() {
    let mut buf = RowBuf::new();
    assert_eq!((buf.rows(), buf.stride(), buf.as_slice()), (0, 0, &[][..]));
    let at = buf.reset(8, 100).unwrap().as_ptr();
    let again = buf.reset(3, 5).unwrap();
    assert_eq!(again.as_ptr(), at);
    again.copy_from_slice(&sample_bytes(15));
    assert_eq!((buf.rows(), buf.stride(), buf.row(4)), (5, 3, &sample_bytes(15)[12..]));
}

#[test]
fn what_is_shared_may_be_shared() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<ChunkedRows>();
    shared::<ChunkedCells<AtomicU32>>();
    shared::<CopyingStorage>();
    shared::<SectionRows<dyn Storage + Send + Sync>>();
    let text = format!("{:?}", chunked(3, &of_rows(2), b"abcdef"));
    assert!(text.contains("count: 2") && text.contains("stride: 3"), "{text}");
}
