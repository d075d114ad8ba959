//! Where bytes live: the seams [`Storage`] (immutable bytes) and [`Rows`] (fixed-stride rows), and who implements them.
//!
//! | implementation | bytes | resident |
//! |---|---|---|
//! | `[u8]`, `Vec<u8>`, `&S`, `Box<S>`, `Arc<S>` | in this process | yes |
//! | [`MmapStorage`] | a memory-mapped file | yes |
//! | [`CopyingStorage`] | hidden behind copies, as a JavaScript handle is; for tests | no |
//! | `JsStorage` (in `wasm`) | an ArrayBuffer, file descriptor or callback in JavaScript | no |
//! | [`ChunkedRows`] | rows that grow, in chunks that never move | yes |
//! | [`SectionRows`] | rows in a range of a `Storage` | as the storage |
//!
//! Storage knows no vectors: a row is `stride` bytes.

pub mod chunked;
#[cfg(feature = "mmap")]
pub mod mmap;
pub mod window;

pub use chunked::{ChunkedCells, ChunkedRows, ChunkOptions};
#[cfg(feature = "mmap")]
pub use mmap::MmapStorage;
pub use window::SectionRows;

use crate::error::{Error, Result};
use std::sync::Arc;

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

    /// Copies the rows `ids` into `out`, in their order (reading sorted and coalesced where that pays).
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an id out of range; whatever the storage says otherwise.
    fn fetch(&self, ids: &[u32], out: &mut RowBuf) -> Result<()>;
}

/// A reusable buffer of rows copied out of a [`Rows`].
#[derive(Debug, Default)]
pub struct RowBuf {
    bytes: Vec<u8>,
    stride: usize,
}
