//! Rows that grow where they are: chunks that are added and never moved.
//!
//! An index that keeps its rows in one block has two choices when the block is full: refuse (a capacity declared in
//! advance, hnswlib's `max_elements`), or allocate a larger block and copy, with up to three times the memory at that
//! moment and every reader shut out while addresses change (its `resizeIndex`). Here nothing is ever copied:
//!
//! ```text
//!               small zone: sizes double                      full zone: all alike
//! chunk     0    1      2          3                    4                    5
//!         ┌────┬────┬────────┬────────────────┬────────────────────┬────────────────────┬─ ─ ─
//! ids     0    F   2F       4F               8F = R               2R                   3R
//!         └────┴────┴────────┴────────────────┴────────────────────┴────────────────────┴─ ─ ─
//!
//! memory    ├────┼────┼────────┼──────── one block from S on ────────┼────────────────────┼─ ─ ─
//!
//! s = min(max(⌊log2 id⌋, log2 F), log2 R)      chunk = s − log2 F + (id >> s)      row in chunk = id mod 2^s
//!
//! directory   bucket b holds the chunks 2^b − 1 .. 2^(b+1) − 1
//!   [0] → [c0]
//!   [1] → [c1][c2]                          buckets and slots are written once, by the one writer;
//!   [2] → [c3][c4][c5][c6]                  nothing that readers may look at is ever moved
//!   …  32 buckets in all
//! ```
//!
//! F and R are powers of two: finding a row takes shifts, masks and two dependent loads (bucket, slot), and no branch.
//! That is 2 ns more than indexing a slice (measured on rows of 16 bytes in cache, AVX2), and no more for many chunks
//! than for one. No row straddles chunks. An index of ten rows takes 16 KiB, and at any size the part of the last chunk
//! that is not used yet is the whole overhead (of which the operating system has only handed out the pages that were
//! touched).
//!
//! **Huge pages.** With the feature `mmap`, on Linux, chunks of 2 MiB and more are mapped at a multiple of 2 MiB with
//! the advice to use huge pages. It pays: reading rows of 384 `f32` at random from 150 MB, inner product included,
//! took 210 ns a row, against 334 ns on 4 KiB pages (x86-64, AVX2). A chunk's last piece below 2 MiB has small pages,
//! which is why full chunks of 8 MiB (211 ns) are better than of 4 MiB (244 ns), where 16 and 64 MiB gain no more. The
//! chunks of the small zone from 256 KiB on (S) are therefore one block of memory: with 2 MiB of them on small pages a
//! graph search took 2 to 3 % longer than on one block for all rows.
//!
//! **Publication.** Writers hold a mutex, fill rows beyond `count`, and then store the new `count` (Release). A reader
//! loads `count` (Acquire) and looks at rows below it only. So whatever it sees is complete, it waits for nobody, and
//! what it has borrowed stays valid for as long as it borrows the container: rows below `count` are written, and
//! chunks freed, only through `&mut self`.

#![expect(unsafe_code, reason = "rows beyond the published count are written while others are read")]

use super::{RowBuf, Rows, fetch_resident, no_such_row, reserve};
use crate::error::{Error, Result};
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most rows a container holds: 2³² − 2, which keeps `u32::MAX` free to mean "none".
pub const MAX_ROWS: u32 = u32::MAX - 1;

/// The least alignment of a chunk: a cache line, and the widest vector register.
const ALIGN: usize = 64;

/// Bytes the first chunk aims at.
const FIRST_BYTES: usize = 16 << 10;

/// Where the chunks of the small zone begin to share a block, and the size of a full chunk from which on they do: where
/// it is worth a huge page.
const SHARED_BYTES: usize = 256 << 10;
const SHARED_FROM: usize = if cfg!(all(feature = "mmap", target_os = "linux")) { 4 << 20 } else { usize::MAX };

/// Enough for 2³² − 1 chunks.
const BUCKETS: usize = 32;

/// How a growing container cuts its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkOptions {
    /// Bytes in a full chunk, 4 KiB to 1 GiB: it has the largest power of two of rows that fits, at least one. The
    /// first chunks are smaller, from 16 KiB on.
    pub chunk_bytes: usize,
    /// Rows in every chunk, the first included: a power of two. It takes the place of `chunk_bytes`. A value as large
    /// as the number of rows to come makes one block of them all.
    pub rows_per_chunk: Option<u32>,
}

impl ChunkOptions {
    /// The default of [`chunk_bytes`](Self::chunk_bytes): 8 MiB with the feature `mmap`, where unused pages cost
    /// nothing and huge pages gain, 1 MiB without it.
    pub const DEFAULT_CHUNK_BYTES: usize = if cfg!(feature = "mmap") { 8 << 20 } else { 1 << 20 };
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self { chunk_bytes: Self::DEFAULT_CHUNK_BYTES, rows_per_chunk: None }
    }
}

/// The arithmetic of the picture above: F = 2^`first`, S = 2^`shared`, R = 2^`full`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    first: u32,
    shared: u32,
    full: u32,
}

impl Plan {
    fn new(stride: usize, options: &ChunkOptions) -> Result<Self> {
        if let Some(rows) = options.rows_per_chunk {
            if !rows.is_power_of_two() {
                return Err(Error::InvalidParameter {
                    name: "rows_per_chunk",
                    expected: "a power of two",
                    got: rows.to_string(),
                });
            }
            return Ok(Self { first: rows.ilog2(), shared: rows.ilog2(), full: rows.ilog2() });
        }
        if !(4 << 10..=1 << 30).contains(&options.chunk_bytes) {
            return Err(Error::InvalidParameter {
                name: "chunk_bytes",
                expected: "4 KiB to 1 GiB",
                got: options.chunk_bytes.to_string(),
            });
        }
        let rows_in = |bytes: usize| (bytes / stride).max(1).ilog2();
        let (first, full) = (rows_in(FIRST_BYTES.min(options.chunk_bytes)), rows_in(options.chunk_bytes));
        let shared = if (stride << full) < SHARED_FROM { full } else { rows_in(SHARED_BYTES).clamp(first, full) };
        Ok(Self { first, shared, full })
    }

    /// The chunk of row `id`, and the row's number within it.
    #[inline(always)]
    fn locate(self, id: u32) -> (u32, u32) {
        let size = (id | 1 << self.first).ilog2().min(self.full);
        (size - self.first + (id >> size), id & ((1 << size) - 1))
    }

    /// The first id of a chunk, and how many rows it has.
    fn span(self, chunk: u32) -> (u64, u64) {
        match chunk.checked_sub(self.full - self.first) {
            Some(n @ 1..) => (u64::from(n) << self.full, 1 << self.full),
            _ if chunk == 0 => (0, 1 << self.first),
            _ => (1 << (self.first + chunk - 1), 1 << (self.first + chunk - 1)),
        }
    }

    /// The first chunk of a block of memory, and how many chunks it has: one, but for the block from S on.
    fn chunks_of(self, block: u32) -> (u32, u32) {
        let alone = self.shared - self.first + 1;
        match self.full - self.shared {
            together @ 2.. if block == alone => (block, together),
            together @ 2.. if block > alone => (block + together - 1, 1),
            _ => (block, 1),
        }
    }

    /// The block a chunk lies in.
    fn block_of(self, chunk: u32) -> u32 {
        let alone = self.shared - self.first + 1;
        let together = (self.full - self.shared).max(1);
        if chunk < alone + together { chunk.min(alone) } else { chunk - (together - 1) }
    }

    /// The first id of a block, and the id behind its last one.
    fn block_span(self, block: u32) -> (u64, u64) {
        let (chunk, chunks) = self.chunks_of(block);
        let (last, rows) = self.span(chunk + chunks - 1);
        (self.span(chunk).0, last + rows)
    }
}

/// The bucket of a chunk and the slot in it.
#[inline(always)]
fn bucket_of(chunk: u32) -> (usize, usize) {
    let n = chunk + 1;
    let bucket = n.ilog2();
    (bucket as usize, (n ^ (1 << bucket)) as usize)
}

/// The memory of one chunk, or of several in a row: zeroed, aligned to [`ALIGN`] at least, given back when dropped.
struct Block {
    start: NonNull<u8>,
    owned: u64,
    memory: Memory,
}

enum Memory {
    Heap {
        base: NonNull<u8>,
        layout: Layout,
    },
    #[cfg(all(feature = "mmap", target_os = "linux"))]
    Map(#[expect(dead_code, reason = "kept to be unmapped on drop")] memmap2::MmapMut),
}

// SAFETY: a block owns its memory alone (a heap allocation, which any thread may free, or a `MmapMut`, which is Send),
// and `start` points into that memory.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: u64) -> Result<Self> {
        let refused = Error::OutOfMemory { bytes };
        let Ok(len) = usize::try_from(bytes) else { return Err(refused) };
        #[cfg(all(feature = "mmap", target_os = "linux"))]
        if len >= HUGE_PAGE {
            return Self::map(len).ok_or(refused);
        }
        Self::heap(len).ok_or(refused)
    }

    /// From the allocator, with the small alignment for which `alloc_zeroed` gets fresh pages from the operating
    /// system without touching them.
    fn heap(len: usize) -> Option<Self> {
        const NATURAL: usize = align_of::<usize>();
        let layout = Layout::from_size_align(len.checked_add(ALIGN - NATURAL)?, NATURAL).ok()?;
        // SAFETY: the layout's size is at least ALIGN − NATURAL > 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let skip = base.addr().get().wrapping_neg() % ALIGN;
        // SAFETY: `base` is a multiple of NATURAL, hence `skip` ≤ ALIGN − NATURAL, and `skip + len` lies within the
        // allocation.
        let start = unsafe { base.add(skip) };
        Some(Self { start, owned: layout.size() as u64, memory: Memory::Heap { base, layout } })
    }

    /// From the operating system, aligned to a huge page, with the advice to use them. The address space passed over
    /// for the alignment is never touched and so takes no memory.
    #[cfg(all(feature = "mmap", target_os = "linux"))]
    fn map(len: usize) -> Option<Self> {
        let mut map = memmap2::MmapMut::map_anon(len.checked_add(HUGE_PAGE)?).ok()?;
        let base = NonNull::new(map.as_mut_ptr())?;
        let skip = base.addr().get().wrapping_neg() % HUGE_PAGE;
        // Without huge pages, rows are only slower to reach.
        let _ = map.advise_range(memmap2::Advice::HugePage, skip, len);
        // SAFETY: `skip` < HUGE_PAGE, so that `skip + len` lies within the map.
        let start = unsafe { base.add(skip) };
        Some(Self { start, owned: len as u64, memory: Memory::Map(map) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.memory {
            // SAFETY: allocated in `heap` with this layout, and freed only here.
            Memory::Heap { base, layout } => unsafe { std::alloc::dealloc(base.as_ptr(), layout) },
            #[cfg(all(feature = "mmap", target_os = "linux"))]
            Memory::Map(_) => {}
        }
    }
}

#[cfg(all(feature = "mmap", target_os = "linux"))]
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed rows of bytes in chunks, of which `count` are published: what [`ChunkedRows`] and [`ChunkedCells`] share.
///
/// Invariants, which the proofs below refer to:
/// 1. `blocks[b]` is the memory of the rows `plan.block_span(b)`, one after the other, and the slot of each chunk in it
///    points to the chunk's first row.
/// 2. The rows `0..count` lie in the blocks `0..blocks.len()`.
/// 3. Slots, buckets and `blocks` change only under the mutex or through `&mut self`. Under the mutex, slots of chunks
///    with rows below `count` do not change. Buckets, once set, stay until drop.
/// 4. Under the mutex, `count` only grows; it is stored (Release) after the slots of its rows.
struct Chunks {
    plan: Plan,
    stride: usize,
    count: AtomicU32,
    allocated: AtomicU64,
    buckets: [AtomicPtr<AtomicPtr<u8>>; BUCKETS],
    blocks: Mutex<Vec<Block>>,
}

impl Chunks {
    fn new(stride: usize, options: &ChunkOptions) -> Result<Self> {
        Ok(Self {
            plan: Plan::new(stride, options)?,
            stride,
            count: AtomicU32::new(0),
            allocated: AtomicU64::new(0),
            buckets: [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS],
            blocks: Mutex::default(),
        })
    }

    #[inline(always)]
    fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The address of row `id`.
    ///
    /// # Safety
    /// `id` lies in an allocated chunk, and the caller knows so by having loaded a `count` above `id` or by holding
    /// the mutex or `&mut self`.
    #[inline(always)]
    unsafe fn address(&self, id: u32) -> NonNull<u8> {
        let (chunk, row) = self.plan.locate(id);
        let (bucket, slot) = bucket_of(chunk);
        // Relaxed: the Acquire of `count` or the mutex has ordered these loads after the stores (invariant 4).
        let bucket = self.buckets[bucket].load(Ordering::Relaxed);
        // SAFETY: the chunk is allocated, so its bucket was set to an array that has this slot and lives until drop
        // (invariants 1, 3).
        let start = unsafe { &*bucket.add(slot) }.load(Ordering::Relaxed);
        // SAFETY: the slot points to the block of the chunk, which has this row (invariant 1); blocks are not null.
        unsafe { NonNull::new_unchecked(start.add(row as usize * self.stride)) }
    }

    /// The address of a published row.
    #[inline(always)]
    fn published(&self, id: u32) -> Option<NonNull<u8>> {
        // SAFETY: `count` was loaded and is above `id`.
        (id < self.count()).then(|| unsafe { self.address(id) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Block>> {
        // A panic in a `fill` leaves rows that are not published: nothing to repair.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `n` rows, which `fill` writes, told the first id. Gives that id.
    fn append(&self, n: u32, fill: impl FnOnce(&Self, u32) -> Result<()>) -> Result<u32> {
        let blocks = self.lock();
        let first = self.count.load(Ordering::Relaxed);
        self.extend(blocks, u64::from(first) + u64::from(n), |chunks| fill(chunks, first))?;
        Ok(first)
    }

    /// Makes it `rows` rows, of which the new ones are zero, unless there are as many.
    fn grow_to(&self, rows: u32) -> Result<()> {
        let blocks = self.lock();
        let first = self.count.load(Ordering::Relaxed);
        if rows <= first {
            return Ok(());
        }
        self.extend(blocks, u64::from(rows), |_| Ok(()))
    }

    /// The common part of the two, under the lock: makes room for `rows` rows, lets `fill` write, publishes. Whatever
    /// fails, the chunks are then those there were before.
    fn extend(
        &self,
        mut blocks: MutexGuard<'_, Vec<Block>>,
        rows: u64,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let count = u32::try_from(rows).ok().filter(|&count| count <= MAX_ROWS).ok_or(Error::TooLarge {
            what: "rows",
            limit: u64::from(MAX_ROWS),
            got: rows,
        })?;
        let had = blocks.len();
        if let Err(e) = self.make_room(&mut blocks, count).and_then(|()| fill(self)) {
            self.release(&mut blocks, had);
            return Err(e);
        }
        self.count.store(count, Ordering::Release);
        Ok(())
    }

    /// Adds chunks until there is room for `rows` rows.
    fn make_room(&self, blocks: &mut Vec<Block>, rows: u32) -> Result<()> {
        loop {
            // There are at most as many blocks as rows.
            let block = blocks.len() as u32;
            let (start, end) = self.plan.block_span(block);
            if start >= u64::from(rows) {
                return Ok(());
            }
            let bytes = (end - start).checked_mul(self.stride as u64).ok_or(Error::OutOfMemory { bytes: u64::MAX })?;
            let (first, chunks) = self.plan.chunks_of(block);
            for chunk in first..first + chunks {
                self.slot(chunk)?;
            }
            reserve(blocks, block as usize + 1)?;
            let memory = Block::new(bytes)?;
            for chunk in first..first + chunks {
                // Below `bytes`, which is a length in memory.
                let skip = (self.plan.span(chunk).0 - start) as usize * self.stride;
                // SAFETY: the chunk begins within the block, which has `bytes` bytes.
                let at = unsafe { memory.start.add(skip) };
                self.slot(chunk)?.store(at.as_ptr(), Ordering::Relaxed);
            }
            self.allocated.fetch_add(memory.owned, Ordering::Relaxed);
            blocks.push(memory);
        }
    }

    /// The slot of a chunk; the caller holds the lock.
    fn slot(&self, chunk: u32) -> Result<&AtomicPtr<u8>> {
        let (b, slot) = bucket_of(chunk);
        let mut bucket = self.buckets[b].load(Ordering::Relaxed);
        if bucket.is_null() {
            let bytes = (size_of::<AtomicPtr<u8>>() as u64) << b;
            let mut slots = Vec::<AtomicPtr<u8>>::new();
            slots.try_reserve_exact(1 << b).map_err(|_| Error::OutOfMemory { bytes })?;
            slots.resize_with(1 << b, AtomicPtr::default);
            bucket = Box::into_raw(slots.into_boxed_slice()).cast();
            self.buckets[b].store(bucket, Ordering::Relaxed);
            self.allocated.fetch_add(bytes, Ordering::Relaxed);
        }
        // SAFETY: bucket b is an array of 2^b slots, `slot` < 2^b, and buckets live until drop (invariant 3).
        Ok(unsafe { &*bucket.add(slot) })
    }

    /// Frees all blocks but the first `keep`. The caller holds the lock or `&mut self`, and no block beyond has a row
    /// below `count`.
    fn release(&self, blocks: &mut Vec<Block>, keep: usize) {
        for block in blocks.drain(keep.min(blocks.len())..) {
            self.allocated.fetch_sub(block.owned, Ordering::Relaxed);
        }
    }

    fn truncate(&mut self, rows: u32) {
        let count = rows.min(*self.count.get_mut());
        *self.count.get_mut() = count;
        let keep = if count == 0 { 0 } else { self.plan.block_of(self.plan.locate(count - 1).0) as usize + 1 };
        let mut blocks = self.lock();
        self.release(&mut blocks, keep);
    }

    /// Zeroes the rows from `rows` on that share a block with the row before, and so survive `truncate(rows)`.
    fn wipe(&mut self, rows: u32) {
        let count = *self.count.get_mut();
        if rows == 0 || rows >= count {
            return;
        }
        let (_, end) = self.plan.block_span(self.plan.block_of(self.plan.locate(rows - 1).0));
        let end = end.min(u64::from(count));
        let bytes = (end - u64::from(rows)) as usize * self.stride;
        if bytes > 0 {
            // SAFETY: `rows` < `count`; the rows up to `end` follow in the same block, and nothing is borrowed.
            unsafe { self.address(rows).write_bytes(0, bytes) };
        }
    }

    /// Address and number of the published rows of each chunk.
    fn runs(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        let count = self.count();
        (0..).map_while(move |chunk| {
            let (start, rows) = self.plan.span(chunk);
            let first = u32::try_from(start).ok().filter(|&first| first < count)?;
            // SAFETY: `first` < `count`, which was loaded.
            Some((unsafe { self.address(first) }, rows.min(u64::from(count - first)) as usize))
        })
    }

    fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("count", &self.count())
            .field("stride", &self.stride)
            .field("rows_per_chunk", &(1u64 << self.plan.full))
            .field("allocated_bytes", &self.allocated.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        for (b, bucket) in self.buckets.iter_mut().enumerate() {
            let slots = *bucket.get_mut();
            if !slots.is_null() {
                // SAFETY: it came from a boxed slice of 2^b slots, in `slot`, and is freed only here.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(slots, 1 << b)) });
            }
        }
    }
}

/// Rows of bytes that grow in chunks: written once by [`append`](Self::append), then immutable and borrowed by any
/// number of threads, also while more are appended.
///
/// ```
/// use twindex::storage::{ChunkOptions, ChunkedRows, Rows};
///
/// let rows = ChunkedRows::new(4, &ChunkOptions::default())?;
/// rows.push(&[1, 2, 3, 4])?;
/// let row = rows.resident(0);
/// let first = rows.append(1000, |i, row| Ok(row.copy_from_slice(&i.to_le_bytes())))?;
/// assert_eq!(row, Some(&[1, 2, 3, 4][..]));
/// assert_eq!((first, rows.count()), (1, 1001));
/// assert_eq!(rows.runs().map(|run| run.len()).sum::<usize>(), 4 * 1001);
/// # Ok::<(), twindex::Error>(())
/// ```
pub struct ChunkedRows {
    chunks: Chunks,
}

impl ChunkedRows {
    /// No rows yet, of `stride` bytes each. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a stride of 0 and for options outside their range.
    pub fn new(stride: usize, options: &ChunkOptions) -> Result<Self> {
        if stride == 0 {
            return Err(Error::InvalidParameter { name: "stride", expected: "at least 1", got: "0".into() });
        }
        Ok(Self { chunks: Chunks::new(stride, options)? })
    }

    /// Appends `n` rows and gives the id of the first. `fill` writes them in order, told the number of the row within
    /// this call; what the bytes hold before is unspecified. The rows appear to readers together, at the end.
    ///
    /// Appends wait for each other. `fill` must not append to the same container: that would wait forever.
    ///
    /// # Errors
    /// The first error of `fill`, [`Error::OutOfMemory`], or [`Error::TooLarge`] beyond [`MAX_ROWS`] rows. Rows and
    /// chunks are then those there were before.
    pub fn append(&self, n: u32, mut fill: impl FnMut(u32, &mut [u8]) -> Result<()>) -> Result<u32> {
        self.chunks.append(n, |chunks, first| {
            (0..n).try_for_each(|i| {
                // SAFETY: the mutex is held and the row's chunk was allocated.
                let row = unsafe { chunks.address(first + i) };
                // SAFETY: the row has `stride` initialised (zeroed or once written) bytes and is not published, so
                // that readers do not look at it; other writers are kept out by the mutex.
                fill(i, unsafe { NonNull::slice_from_raw_parts(row, chunks.stride).as_mut() })
            })
        })
    }

    /// Appends one row and gives its id.
    ///
    /// # Errors
    /// As [`append`](Self::append), and [`Error::LengthMismatch`] unless `row` is `stride` bytes long.
    pub fn push(&self, row: &[u8]) -> Result<u32> {
        let expected = self.chunks.stride;
        if row.len() != expected {
            return Err(Error::LengthMismatch { what: "row", expected, got: row.len() });
        }
        self.append(1, |_, to| {
            to.copy_from_slice(row);
            Ok(())
        })
    }

    /// Rows there are.
    #[inline]
    pub fn count(&self) -> u32 {
        self.chunks.count()
    }

    /// All rows there are at this moment, in order, as contiguous pieces: one a chunk, whole rows only.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.runs().map(|(start, rows)| {
            // SAFETY: `rows` published rows lie here one after the other; none is written while `self` is borrowed.
            unsafe { NonNull::slice_from_raw_parts(start, rows * self.chunks.stride).as_ref() }
        })
    }

    /// Copies row `from` over row `to`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an id out of range.
    pub fn copy_row(&mut self, from: u32, to: u32) -> Result<()> {
        let count = self.count();
        let row = |id| self.chunks.published(id).ok_or_else(|| no_such_row(id, count));
        let (from, to) = (row(from)?, row(to)?);
        // SAFETY: both rows have `stride` bytes (equal or apart: `copy` allows both), and `&mut self` says that
        // nothing is borrowed.
        unsafe { from.copy_to(to, self.chunks.stride) };
        Ok(())
    }

    /// Keeps the first `rows` rows (all, where there are fewer) and frees the chunks no longer needed.
    pub fn truncate(&mut self, rows: u32) {
        self.chunks.truncate(rows);
    }

    /// Memory asked for, in bytes: chunks and directory. Pages of a chunk that were never touched count here, though
    /// the operating system has not handed them out.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.allocated.load(Ordering::Relaxed)
    }
}

impl Rows for ChunkedRows {
    #[inline]
    fn count(&self) -> u32 {
        self.chunks.count()
    }

    #[inline]
    fn stride(&self) -> usize {
        self.chunks.stride
    }

    #[inline]
    fn resident(&self, id: u32) -> Option<&[u8]> {
        self.chunks.published(id).map(|row| {
            // SAFETY: the row is published and has `stride` bytes; neither are they written nor is their chunk freed
            // while `self` is borrowed.
            unsafe { NonNull::slice_from_raw_parts(row, self.chunks.stride).as_ref() }
        })
    }

    fn run(&self, first: u32, max: u32) -> Option<&[u8]> {
        let count = self.count();
        if first >= count {
            return None;
        }
        // The rest of the chunk, as far as it is published.
        let (start, rows) = self.chunks.plan.span(self.chunks.plan.locate(first).0);
        let end = (start + rows).min(u64::from(count)).min(u64::from(first) + u64::from(max.max(1)));
        let n = (end - u64::from(first)) as usize;
        // SAFETY: `first` < `count`, which was loaded.
        let row = unsafe { self.chunks.address(first) };
        // SAFETY: `n` published rows lie in this chunk one after the other; none is written while `self` is borrowed.
        Some(unsafe { NonNull::slice_from_raw_parts(row, n * self.chunks.stride).as_ref() })
    }

    fn fetch(&self, ids: &[u32], out: &mut RowBuf) -> Result<()> {
        fetch_resident(self, ids, out)
    }
}

impl fmt::Debug for ChunkedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chunks.debug("ChunkedRows", f)
    }
}

mod sealed {
    /// # Safety
    /// All bytes zero is a valid value, equal to the default, that needs no drop; the alignment is at most 64.
    pub unsafe trait Zero {}
}

/// What [`ChunkedCells`] holds: an atomic integer.
pub trait Cell: Default + Send + Sync + sealed::Zero {}

macro_rules! cells {
    ($($atomic:ty),*) => {$(
        // SAFETY: an atomic integer is laid out as the integer, for which zero bytes are 0, its default.
        unsafe impl sealed::Zero for $atomic {}
        impl Cell for $atomic {}
    )*};
}

cells!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

/// Rows of `width` atomic integers that grow in chunks, all zero at first and changed in place by any thread.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use twindex::storage::{ChunkOptions, ChunkedCells};
///
/// let cells = ChunkedCells::<AtomicU32>::new(33, &ChunkOptions::default())?;
/// cells.grow_to(100)?;
/// let row = cells.row(99).unwrap();
/// row[32].store(7, Ordering::Relaxed);
/// cells.grow_to(100_000)?;
/// assert_eq!(row[32].load(Ordering::Relaxed), 7);
/// # Ok::<(), twindex::Error>(())
/// ```
pub struct ChunkedCells<T> {
    chunks: Chunks,
    width: usize,
    cells: PhantomData<T>,
}

impl<T: Cell> ChunkedCells<T> {
    /// No rows yet, of `width` cells each. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a width of 0 and for options outside their range.
    pub fn new(width: usize, options: &ChunkOptions) -> Result<Self> {
        let stride = width
            .checked_mul(size_of::<T>())
            .filter(|&stride| stride > 0)
            .ok_or_else(|| Error::InvalidParameter { name: "width", expected: "at least 1", got: width.to_string() })?;
        Ok(Self { chunks: Chunks::new(stride, options)?, width, cells: PhantomData })
    }

    /// Makes `rows` rows of them, the new ones zero; nothing where there are as many already. Readers of the rows
    /// there are go on meanwhile.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or [`Error::TooLarge`] beyond [`MAX_ROWS`] rows; all is then as before.
    pub fn grow_to(&self, rows: u32) -> Result<()> {
        self.chunks.grow_to(rows)
    }

    /// Rows there are.
    #[inline]
    pub fn count(&self) -> u32 {
        self.chunks.count()
    }

    /// Cells in a row.
    #[inline]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The cells of a row.
    #[inline]
    pub fn row(&self, id: u32) -> Option<&[T]> {
        self.chunks.published(id).map(|row| {
            // SAFETY: the row is published and has `width` cells, zero at first, which is a valid `T`, and shared
            // only as `&T`; chunks and stride are multiples of the alignment of `T`. The chunk is not freed while
            // `self` is borrowed.
            unsafe { NonNull::slice_from_raw_parts(row.cast::<T>(), self.width).as_ref() }
        })
    }

    /// The cells of a row, for this thread alone.
    #[inline]
    pub fn row_mut(&mut self, id: u32) -> Option<&mut [T]> {
        self.chunks.published(id).map(|row| {
            // SAFETY: as in `row`; and `&mut self` is borrowed for as long as the result.
            unsafe { NonNull::slice_from_raw_parts(row.cast::<T>(), self.width).as_mut() }
        })
    }

    /// Keeps the first `rows` rows (all, where there are fewer) and frees the chunks no longer needed.
    pub fn truncate(&mut self, rows: u32) {
        self.chunks.wipe(rows);
        self.chunks.truncate(rows);
    }

    /// Memory asked for, in bytes, as [`ChunkedRows::allocated_bytes`].
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.allocated.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for ChunkedCells<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chunks.debug("ChunkedCells", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strides: a byte, odd, more than the first chunk, more than a full chunk.
    fn plans() -> Vec<Plan> {
        let mut plans = Vec::new();
        for stride in [1, 3, 1536, 20_000, 9 << 20] {
            for chunk_bytes in [4 << 10, 1 << 20, 8 << 20] {
                plans.push(Plan::new(stride, &ChunkOptions { chunk_bytes, rows_per_chunk: None }).unwrap());
            }
        }
        for rows in [1, 2, 1024, 1 << 31] {
            plans.push(Plan::new(4, &ChunkOptions { rows_per_chunk: Some(rows), ..Default::default() }).unwrap());
        }
        plans
    }

    #[test]
    fn chunks_follow_each_other_and_locate_finds_them() {
        for plan in plans() {
            let mut next = 0;
            for chunk in (0..1000).take_while(|&chunk| plan.span(chunk).0 < u64::from(MAX_ROWS)) {
                let (start, rows) = plan.span(chunk);
                assert_eq!(start, next, "{plan:?}: chunk {chunk} does not begin where the one before ends");
                next = start + rows;
                let last = (next - 1).min(u64::from(MAX_ROWS)) as u32;
                let start = start as u32;
                assert_eq!(plan.locate(start), (chunk, 0), "{plan:?}: first row");
                assert_eq!(plan.locate(last), (chunk, last - start), "{plan:?}: last row");
                let middle = start + (last - start) / 2;
                assert_eq!(plan.locate(middle), (chunk, middle - start), "{plan:?}: a row between");
            }
            let (chunk, row) = plan.locate(MAX_ROWS - 1);
            assert_eq!(plan.span(chunk).0 + u64::from(row), u64::from(MAX_ROWS - 1), "{plan:?}: the last id");
        }
    }

    #[test]
    fn blocks_follow_each_other_and_hold_their_chunks() {
        for plan in plans() {
            let (mut next_row, mut next_chunk) = (0, 0);
            for block in 0..100 {
                let (start, end) = plan.block_span(block);
                let (first, chunks) = plan.chunks_of(block);
                assert_eq!((start, first), (next_row, next_chunk), "{plan:?}: block {block}");
                for chunk in first..first + chunks {
                    assert_eq!(plan.block_of(chunk), block, "{plan:?}: chunk {chunk}");
                }
                (next_row, next_chunk) = (end, first + chunks);
            }
        }
    }

    #[test]
    fn cells_that_come_back_after_truncation_are_zero() {
        // 16 KiB to 8 MiB and beyond: over the edges of chunks and of the block that several share.
        let mut cells = ChunkedCells::<AtomicU32>::new(256, &ChunkOptions::default()).unwrap();
        for keep in [0, 1, 15, 16, 17, 255, 256, 300, 511, 512, 5000, 8191, 8192, 8200] {
            cells.grow_to(9000).unwrap();
            for id in 0..9000 {
                for cell in cells.row(id).unwrap() {
                    assert_eq!(cell.swap(0, Ordering::Relaxed), 0, "row {id} after {keep}");
                }
                cells.row(id).unwrap()[255].store(1, Ordering::Relaxed);
            }
            cells.truncate(keep);
            for id in 0..keep {
                cells.row(id).unwrap()[255].store(0, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn chunks_fill_the_sizes_asked_for() {
        let plan = Plan::new(1536, &ChunkOptions { chunk_bytes: 8 << 20, rows_per_chunk: None }).unwrap();
        assert_eq!((plan.span(0).1, plan.span(1).1, plan.span(2).1), (8, 8, 16));
        assert_eq!(plan.span(1000).1, 4096);
        let plan = Plan::new(1536, &ChunkOptions { rows_per_chunk: Some(1024), ..Default::default() }).unwrap();
        assert!((0..100).all(|chunk| plan.span(chunk).1 == 1024));
    }

    #[test]
    fn buckets_hold_all_chunks_once() {
        let mut next = (0, 0);
        for chunk in 0..5000 {
            assert_eq!(bucket_of(chunk), next);
            next = if next.1 + 1 == 1 << next.0 { (next.0 + 1, 0) } else { (next.0, next.1 + 1) };
        }
        assert_eq!(bucket_of(u32::MAX - 1), (BUCKETS - 1, (1 << (BUCKETS - 1)) - 1));
    }

    #[test]
    fn blocks_are_zeroed_and_aligned() {
        // Below and from the size of a huge page on.
        for bytes in [1, 63, 16 << 10, (2 << 20) - 1, 2 << 20, (6 << 20) + 5] {
            let block = Block::new(bytes).unwrap();
            let align =
                if cfg!(all(feature = "mmap", target_os = "linux")) && bytes >= 2 << 20 { 2 << 20 } else { ALIGN };
            assert_eq!(block.start.addr().get() % align, 0, "{bytes} bytes");
            // SAFETY: the block has that many initialised bytes, lives, and nothing else refers to them.
            let memory = unsafe { NonNull::slice_from_raw_parts(block.start, bytes as usize).as_mut() };
            assert!(memory.iter().all(|&byte| byte == 0), "{bytes} bytes");
            memory.fill(0xff);
        }
    }

    #[test]
    fn a_refused_block_is_an_error() {
        for bytes in [u64::MAX, i64::MAX as u64, 1 << 60] {
            assert!(matches!(Block::new(bytes), Err(Error::OutOfMemory { bytes: b }) if b == bytes));
        }
    }
}
