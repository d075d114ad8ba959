//! Ranges of a storage: bytes that are borrowed where they are resident, copied in once where that is asked for, and
//! otherwise read in few, sorted, bounded reads.
//!
//! ```text
//! storage   ├──────────────┤ section ├───────────────────────────────┤
//!                          row 0│row 1│row 2│ …
//! fetch     ids 7 2 90 3   →   sorted 2 3 7 90   →   read 2..=7, read 90   →   rows 7 2 90 3
//! ```
//!
//! Residency is decided section by section: [`Section::make_resident`] copies the vectors' codes and the links of an
//! index into memory, while its originals stay where they are and are read row by row.

use super::{MAX_ROWS, RowBuf, Rows, Storage, fetch_resident, no_such_row, range_of, reserve, resize};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The largest read, and the memory a sequential reader needs: 1 MiB. Only a row longer than that is read at once.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Bytes between two rows that are read along with them rather than skipped by a second read: 4 KiB, which a copy
/// out of JavaScript or a page cache passes in less time than another call takes.
pub const GAP_BYTES: usize = 4 << 10;

/// A range of a storage. Cloning shares the bytes.
pub struct Section<S: ?Sized> {
    storage: Arc<S>,
    offset: u64,
    len: u64,
    copy: Option<Arc<Vec<u8>>>,
}

impl<S: Storage + ?Sized> Section<S> {
    /// The bytes `offset..offset + len` of `storage`.
    ///
    /// # Errors
    /// [`Error::Truncated`] where the range reaches past the end.
    pub fn new(storage: Arc<S>, offset: u64, len: u64) -> Result<Self> {
        let got = storage.len();
        match offset.checked_add(len) {
            Some(end) if end <= got => Ok(Self { storage, offset, len, copy: None }),
            end => Err(Error::Truncated { expected: end.unwrap_or(u64::MAX), got }),
        }
    }

    /// The storage it is a range of.
    pub fn storage(&self) -> &Arc<S> {
        &self.storage
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, when they are resident: in the storage itself, or as a copy.
    #[inline]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.copy {
            Some(copy) => Some(copy),
            None => self.storage.slice(self.offset, self.len),
        }
    }

    /// Fills `out` with the bytes from `offset` (within the section) on.
    ///
    /// # Errors
    /// [`Error::Truncated`] where the range reaches past the section; whatever the storage says otherwise.
    pub fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if let Some(bytes) = self.as_slice() {
            out.copy_from_slice(range_of(bytes, offset, out.len())?);
            return Ok(());
        }
        match offset.checked_add(out.len() as u64) {
            Some(end) if end <= self.len => self.storage.read_into(self.offset + offset, out),
            end => Err(Error::Truncated { expected: end.unwrap_or(u64::MAX), got: self.len }),
        }
    }

    /// Copies the bytes into memory, unless they are resident already. They are read in pieces of [`WINDOW_BYTES`]
    /// into their final place: at no moment is there a second copy. Clones made before keep reading the storage.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the allocator refuses; whatever the storage says. The section is then unchanged.
    pub fn make_resident(&mut self) -> Result<()> {
        if self.as_slice().is_some() {
            return Ok(());
        }
        let refused = Error::OutOfMemory { bytes: self.len };
        let Ok(len) = usize::try_from(self.len) else { return Err(refused) };
        let mut copy = Vec::new();
        copy.try_reserve_exact(len).map_err(|_| refused)?;
        while copy.len() < len {
            let from = copy.len();
            copy.resize(len.min(from + WINDOW_BYTES), 0);
            self.storage.read_into(self.offset + from as u64, &mut copy[from..])?;
        }
        self.copy = Some(Arc::new(copy));
        Ok(())
    }

    /// Whether [`make_resident`](Self::make_resident) had to make a copy.
    pub fn is_copied(&self) -> bool {
        self.copy.is_some()
    }

    /// Memory the copy takes, in bytes; 0 without one. Clones share it.
    pub fn owned_bytes(&self) -> u64 {
        self.copy.as_ref().map_or(0, |copy| copy.capacity() as u64)
    }
}

impl<S: ?Sized> Clone for Section<S> {
    fn clone(&self) -> Self {
        Self { storage: Arc::clone(&self.storage), copy: self.copy.clone(), ..*self }
    }
}

impl<S: ?Sized> fmt::Debug for Section<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .field("copied", &self.copy.is_some())
            .finish_non_exhaustive()
    }
}

/// The rows in a [`Section`]: borrowed where it is resident, fetched with few reads where it is not.
///
/// ```
/// use std::sync::Arc;
/// use twindex::storage::{CopyingStorage, RowBuf, Rows, Section, SectionRows};
///
/// let storage = Arc::new(CopyingStorage::new((0..=255).collect()));
/// let mut rows = SectionRows::new(Section::new(Arc::clone(&storage), 16, 40)?, 4)?;
/// let mut buf = RowBuf::new();
/// rows.fetch(&[9, 1, 2], &mut buf)?;
/// assert_eq!(buf.row(0), [52, 53, 54, 55]);
/// assert_eq!(storage.reads(), 1);
///
/// rows.make_resident()?;
/// assert_eq!(rows.resident(1), Some(&[20, 21, 22, 23][..]));
/// # Ok::<(), twindex::Error>(())
/// ```
pub struct SectionRows<S: ?Sized> {
    section: Section<S>,
    stride: usize,
    count: u32,
}

impl<S: Storage + ?Sized> SectionRows<S> {
    /// Takes the section as rows of `stride` bytes, without padding between them.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a stride of 0, [`Error::Corrupt`] where the section's length is no multiple of
    /// the stride, [`Error::TooLarge`] for more than [`MAX_ROWS`] rows.
    pub fn new(section: Section<S>, stride: usize) -> Result<Self> {
        if stride == 0 {
            return Err(Error::InvalidParameter { name: "stride", expected: "at least 1", got: "0".into() });
        }
        let len = section.len();
        if !len.is_multiple_of(stride as u64) {
            let reason = format!("{len} bytes are not a whole number of rows of {stride} bytes");
            return Err(Error::Corrupt { section: "rows", reason });
        }
        match u32::try_from(len / stride as u64) {
            Ok(count) if count <= MAX_ROWS => Ok(Self { section, stride, count }),
            _ => Err(Error::TooLarge { what: "rows", limit: u64::from(MAX_ROWS), got: len / stride as u64 }),
        }
    }

    /// The section the rows are in.
    pub fn section(&self) -> &Section<S> {
        &self.section
    }

    /// All rows in one slice, when they are resident. Where the storage is behind `dyn`, ask once for a batch of ids
    /// rather than [`Rows::resident`] for each.
    #[inline]
    pub fn as_slice(&self) -> Option<&[u8]> {
        self.section.as_slice()
    }

    /// As [`Section::make_resident`].
    ///
    /// # Errors
    /// As there.
    pub fn make_resident(&mut self) -> Result<()> {
        self.section.make_resident()
    }

    /// Hands all rows to `f` in order, in windows of whole rows of at most [`WINDOW_BYTES`] (or of one longer row),
    /// with the id of the window's first row. Resident bytes are handed over as they are, others through one reused
    /// buffer.
    ///
    /// # Errors
    /// The first error of `f` or of the storage; [`Error::OutOfMemory`] when the buffer is refused.
    pub fn for_each_window(&self, f: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        self.for_each_window_in(0..self.count, f)
    }

    /// As [`for_each_window`](Self::for_each_window), for the rows `ids`.
    ///
    /// # Errors
    /// As there; [`Error::Corrupt`] for a range that is not within the rows.
    pub fn for_each_window_in(&self, ids: Range<u32>, mut f: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        if ids.end > self.count {
            return Err(no_such_row(ids.end - 1, self.count));
        }
        let per_window = u32::try_from((WINDOW_BYTES / self.stride).max(1)).unwrap_or(u32::MAX);
        let mut buffer = Vec::new();
        let mut first = ids.start;
        while first < ids.end {
            let rows = per_window.min(ids.end - first);
            let (from, len) = (self.offset_of(first), rows as usize * self.stride);
            match self.as_slice() {
                Some(bytes) => f(first, range_of(bytes, from, len)?)?,
                None => {
                    resize(&mut buffer, len)?;
                    buffer.truncate(len);
                    self.section.read_into(from, &mut buffer)?;
                    f(first, &buffer)?;
                }
            }
            first += rows;
        }
        Ok(())
    }

    fn offset_of(&self, id: u32) -> u64 {
        u64::from(id) * self.stride as u64
    }

    /// Reads the rows of `run` (ids and their places in `out`, sorted by id) at once.
    fn fetch_run(&self, run: &[(u32, u32)], window: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        let stride = self.stride;
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let place = |at: u32| at as usize * stride..(at as usize + 1) * stride;
        if first == last {
            let row = place(run[0].1);
            self.section.read_into(self.offset_of(first), &mut out[row.clone()])?;
            for &(_, at) in &run[1..] {
                out.copy_within(row.clone(), at as usize * stride);
            }
            return Ok(());
        }
        let len = (last - first + 1) as usize * stride;
        let at = run[0].1;
        // As a scan asks for them: already in their places.
        if (first..=last).zip(at..).eq(run.iter().copied()) {
            return self.section.read_into(self.offset_of(first), &mut out[at as usize * stride..][..len]);
        }
        if window.len() < len {
            resize(window, len)?;
        }
        self.section.read_into(self.offset_of(first), &mut window[..len])?;
        for &(id, at) in run {
            out[place(at)].copy_from_slice(&window[(id - first) as usize * stride..][..stride]);
        }
        Ok(())
    }
}

impl<S: Storage + ?Sized> Rows for SectionRows<S> {
    fn count(&self) -> u32 {
        self.count
    }

    fn stride(&self) -> usize {
        self.stride
    }

    #[inline]
    fn resident(&self, id: u32) -> Option<&[u8]> {
        let bytes = self.as_slice()?;
        if id >= self.count {
            return None;
        }
        bytes.get(id as usize * self.stride..)?.get(..self.stride)
    }

    fn run(&self, first: u32, max: u32) -> Option<&[u8]> {
        let bytes = self.as_slice()?;
        let rows = max.clamp(1, self.count.checked_sub(first).filter(|&left| left > 0)?);
        bytes.get(first as usize * self.stride..)?.get(..rows as usize * self.stride)
    }

    /// Non-resident rows are read in the order of their ids; rows with gaps of at most [`GAP_BYTES`] between them
    /// are read together, in reads of at most [`WINDOW_BYTES`]. O(n log n) for n ids.
    fn fetch(&self, ids: &[u32], out: &mut RowBuf) -> Result<()> {
        if self.as_slice().is_some() {
            return fetch_resident(self, ids, out);
        }
        if let Some(&id) = ids.iter().find(|&&id| id >= self.count) {
            return Err(no_such_row(id, self.count));
        }
        let stride = self.stride;
        if u32::try_from(ids.len()).is_err() {
            return Err(Error::TooLarge { what: "ids", limit: u32::MAX.into(), got: ids.len() as u64 });
        }
        out.reset(stride, ids.len())?;
        let RowBuf { bytes, order, window, .. } = out;
        order.clear();
        reserve(order, ids.len())?;
        order.extend(ids.iter().zip(0..).map(|(&id, at)| (id, at)));
        order.sort_unstable();

        let mut rest = &order[..];
        while let Some(&(first, _)) = rest.first() {
            let joined = rest.windows(2).take_while(|pair| {
                let (a, b) = (u64::from(pair[0].0), u64::from(pair[1].0));
                let gap = b.saturating_sub(a + 1) * stride as u64;
                let whole = (b - u64::from(first) + 1) * stride as u64;
                a == b || gap <= GAP_BYTES as u64 && whole <= WINDOW_BYTES as u64
            });
            let (run, next) = rest.split_at(joined.count() + 1);
            self.fetch_run(run, window, bytes)?;
            rest = next;
        }
        Ok(())
    }
}

impl<S: ?Sized> Clone for SectionRows<S> {
    fn clone(&self) -> Self {
        Self { section: self.section.clone(), ..*self }
    }
}

impl<S: ?Sized> fmt::Debug for SectionRows<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionRows")
            .field("section", &self.section)
            .field("stride", &self.stride)
            .field("count", &self.count)
            .finish()
    }
}
