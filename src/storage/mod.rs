//! Where bytes live: the seams [`Storage`] (immutable bytes) and [`Rows`] (fixed-stride rows), and who implements them.
//!
//! | implementation | bytes | resident |
//! |---|---|---|
//! | `[u8]`, `Vec<u8>`, `&S`, `Box<S>`, `Arc<S>` | in this process | yes |
//! | `MmapStorage` | a memory-mapped file | yes |
//! | [`CopyingStorage`] | hidden behind copies, as a JavaScript handle is; for tests | no |
//! | `JsStorage` (in `wasm`) | an ArrayBuffer, file descriptor or callback in JavaScript | no |
//! | [`ChunkedRows`] | rows that grow, in chunks that never move | yes |
//! | [`SectionRows`] | rows in a [`Section`], a range of a `Storage` | as the storage, or once copied |
//!
//! Storage knows no vectors: a row is `stride` bytes.

pub mod chunked;
#[doc(hidden)]
pub mod conformance;
#[cfg(feature = "mmap")]
pub mod mmap;
pub mod window;

pub use chunked::{Cell, ChunkOptions, ChunkedCells, ChunkedRows, MAX_ROWS};
#[cfg(feature = "mmap")]
pub use mmap::MmapStorage;
pub use window::{GAP_BYTES, Section, SectionRows, WINDOW_BYTES};

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Immutable bytes, wherever they live.
///
/// There is no `Send`/`Sync` bound here: a JavaScript handle has neither. The native index asks for
/// `Storage + Send + Sync`.
pub trait Storage {
    /// Length in bytes. It never changes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes from `offset` on, or fails and says why; never fills in part and returns `Ok`.
    ///
    /// # Errors
    /// [`Error::Truncated`] where the range reaches past the end; whatever the source says otherwise.
    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// The whole as one slice, when it is resident.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// The bytes `offset..offset + len` as one slice, when they are resident: of a storage that is resident in parts,
    /// one of the parts.
    fn slice(&self, offset: u64, len: u64) -> Option<&[u8]> {
        self.as_slice()?.get(usize::try_from(offset).ok()?..)?.get(..usize::try_from(len).ok()?)
    }
}

/// Rows of `stride` bytes, addressed by id.
pub trait Rows {
    /// Rows there are: ids are `0..count`. It may grow while it is read, never shrink.
    fn count(&self) -> u32;

    /// Bytes in a row.
    fn stride(&self) -> usize;

    /// The row, where it can be borrowed. The hot path: no copy, no lock.
    /// `None` if the id is out of range or the bytes are not resident.
    fn resident(&self, id: u32) -> Option<&[u8]>;

    /// Borrows the rows `ids`, into as many places of `out`, up to the first that [`resident`](Rows::resident) does not
    /// give; says how many. One call for a few tens of rows, where the rows are behind `dyn`.
    fn resolve<'a>(&'a self, ids: &[u32], out: &mut [&'a [u8]]) -> usize {
        let mut found = 0;
        for (&id, row) in ids.iter().zip(out) {
            let Some(bytes) = self.resident(id) else { break };
            *row = bytes;
            found += 1;
        }
        found
    }

    /// Rows from `first` on that can be borrowed and lie one after the other: at least one and at most `max` (but not
    /// 0). `None` where [`resident`](Rows::resident) gives none.
    fn run(&self, first: u32, max: u32) -> Option<&[u8]> {
        let _ = max;
        self.resident(first)
    }

    /// Copies the rows `ids` into `out`, in their order (reading sorted and coalesced where that pays).
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an id out of range; whatever the storage says otherwise.
    fn fetch(&self, ids: &[u32], out: &mut RowBuf) -> Result<()>;
}

/// A reusable buffer of rows copied out of a [`Rows`].
///
/// It keeps its memory from one [`Rows::fetch`] to the next.
///
/// ```
/// use twindex::storage::{ChunkOptions, ChunkedRows, RowBuf, Rows};
///
/// let rows = ChunkedRows::new(2, &ChunkOptions::default())?;
/// for row in [b"ab", b"cd", b"ef"] {
///     rows.push(row)?;
/// }
/// let mut buf = RowBuf::new();
/// rows.fetch(&[2, 0, 2], &mut buf)?;
/// assert_eq!((buf.rows(), buf.row(1), buf.as_slice()), (3, &b"ab"[..], &b"efabef"[..]));
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct RowBuf {
    bytes: Vec<u8>,
    stride: usize,
    /// Ids and their places, as one number each.
    order: Vec<u64>,
    window: Vec<u8>,
}

impl RowBuf {
    /// An empty buffer, without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `rows` rows of `stride` bytes and gives the bytes to fill; what they hold is unspecified.
    /// The rows held before are gone, also after an error.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the allocator refuses.
    pub fn reset(&mut self, stride: usize, rows: usize) -> Result<&mut [u8]> {
        self.stride = stride;
        let len = stride.checked_mul(rows).ok_or(Error::OutOfMemory { bytes: u64::MAX });
        if let Err(e) = len.and_then(|len| resize(&mut self.bytes, len)) {
            self.bytes.clear();
            return Err(e);
        }
        Ok(&mut self.bytes)
    }

    /// The `i`-th row of the last fetch.
    ///
    /// # Panics
    /// As slice indexing does, unless `i < rows()`.
    #[inline]
    pub fn row(&self, i: usize) -> &[u8] {
        &self.bytes[i * self.stride..][..self.stride]
    }

    /// Rows it holds.
    pub fn rows(&self) -> usize {
        self.bytes.len().checked_div(self.stride).unwrap_or(0)
    }

    /// Bytes in a row.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All rows, one after the other.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

/// Sets the length of `bytes`; bytes that were there stay.
fn resize(bytes: &mut Vec<u8>, len: usize) -> Result<()> {
    reserve(bytes, len)?;
    bytes.resize(len, 0);
    Ok(())
}

/// Makes room for `len` elements in all, or says [`Error::OutOfMemory`] where the allocator would end the process.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    vec.try_reserve(len.saturating_sub(vec.len()))
        .map_err(|_| Error::OutOfMemory { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) })
}

/// The bytes `offset..offset + len` of `bytes`.
fn range_of(bytes: &[u8], offset: u64, len: usize) -> Result<&[u8]> {
    usize::try_from(offset)
        .ok()
        .and_then(|from| bytes.get(from..)?.get(..len))
        .ok_or(Error::Truncated { expected: offset.saturating_add(len as u64), got: bytes.len() as u64 })
}

/// The error for an id that `rows` does not have.
fn no_such_row(id: u32, count: u32) -> Error {
    Error::Corrupt { section: "rows", reason: format!("row {id} was asked for, there are {count}") }
}

/// [`Rows::fetch`] where every row can be borrowed.
fn fetch_resident<R: Rows + ?Sized>(rows: &R, ids: &[u32], out: &mut RowBuf) -> Result<()> {
    let stride = rows.stride();
    let bytes = out.reset(stride, ids.len())?;
    for (&id, to) in ids.iter().zip(bytes.chunks_exact_mut(stride)) {
        to.copy_from_slice(rows.resident(id).ok_or_else(|| no_such_row(id, rows.count()))?);
    }
    Ok(())
}

impl Storage for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(range_of(self, offset, out.len())?);
        Ok(())
    }

    #[inline]
    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl Storage for Vec<u8> {
    fn len(&self) -> u64 {
        Storage::len(&**self)
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        (**self).read_into(offset, out)
    }

    #[inline]
    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

macro_rules! storage_behind {
    ($($pointer:ty),*) => {$(
        impl<S: Storage + ?Sized> Storage for $pointer {
            fn len(&self) -> u64 {
                (**self).len()
            }

            fn is_empty(&self) -> bool {
                (**self).is_empty()
            }

            fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
                (**self).read_into(offset, out)
            }

            #[inline]
            fn as_slice(&self) -> Option<&[u8]> {
                (**self).as_slice()
            }

            #[inline]
            fn slice(&self, offset: u64, len: u64) -> Option<&[u8]> {
                (**self).slice(offset, len)
            }
        }
    )*};
}

storage_behind!(&S, Box<S>, Arc<S>);

/// Bytes that can only be copied out, as those behind a JavaScript handle, with counts of what was read.
///
/// For tests of what happens where bytes are not resident: how often is read, and how much.
///
/// ```
/// use twindex::storage::{CopyingStorage, Storage};
///
/// let storage = CopyingStorage::new(vec![1, 2, 3]);
/// let mut out = [0; 2];
/// storage.read_into(1, &mut out)?;
/// assert_eq!((out, storage.as_slice()), ([2, 3], None));
/// assert_eq!((storage.reads(), storage.bytes_read()), (1, 2));
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct CopyingStorage {
    bytes: Vec<u8>,
    reads: AtomicU64,
    bytes_read: AtomicU64,
}

impl CopyingStorage {
    /// Hides `bytes` behind copies.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Calls of [`Storage::read_into`] that succeeded.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Bytes those calls copied.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Sets both counts to zero.
    pub fn reset_counts(&self) {
        self.reads.store(0, Ordering::Relaxed);
        self.bytes_read.store(0, Ordering::Relaxed);
    }
}

impl Storage for CopyingStorage {
    fn len(&self) -> u64 {
        Storage::len(&self.bytes)
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.bytes.read_into(offset, out)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(out.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
