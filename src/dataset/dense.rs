//! Rows of one element type, one after the other behind a header: `.npy` and `.fbin`.

use super::VectorLayout;
use super::npy;
use super::source::Source;
use crate::error::Result;
use half::f16;
use std::io::Read;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    F16,
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
}

/// A type of number and its byte order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    pub(super) kind: Type,
    pub(super) big_endian: bool,
}

/// `bytes` as a `$t`, which is exactly as long.
macro_rules! number {
    ($t:ty, $element:expr, $bytes:expr) => {{
        let mut bytes = [0; size_of::<$t>()];
        bytes.copy_from_slice($bytes);
        if $element.big_endian { <$t>::from_be_bytes(bytes) } else { <$t>::from_le_bytes(bytes) }
    }};
}

impl Element {
    pub(super) fn size(self) -> usize {
        match self.kind {
            Type::F16 => 2,
            Type::F32 | Type::I32 | Type::U32 => 4,
            Type::F64 | Type::I64 | Type::U64 => 8,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self.kind {
            Type::F16 => "f2",
            Type::F32 => "f4",
            Type::F64 => "f8",
            Type::I32 => "i4",
            Type::I64 => "i8",
            Type::U32 => "u4",
            Type::U64 => "u8",
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self.kind, Type::F16 | Type::F32 | Type::F64)
    }

    /// The finite `f32` in `bytes`, which are [`size`](Self::size) long.
    pub(super) fn to_f32(self, bytes: &[u8]) -> Result<f32, String> {
        match self.kind {
            Type::F16 => finite(number!(f16, self, bytes).to_f32()),
            Type::F32 => finite(number!(f32, self, bytes)),
            Type::F64 => narrow(number!(f64, self, bytes)),
            Type::I32 | Type::I64 | Type::U32 | Type::U64 => Err(format!("is an integer ({})", self.name())),
        }
    }

    /// The non-negative integer in `bytes`, which are [`size`](Self::size) long.
    pub(super) fn to_u64(self, bytes: &[u8]) -> Result<u64, String> {
        let signed = match self.kind {
            Type::U32 => return Ok(number!(u32, self, bytes).into()),
            Type::U64 => return Ok(number!(u64, self, bytes)),
            Type::I32 => number!(i32, self, bytes).into(),
            Type::I64 => number!(i64, self, bytes),
            Type::F16 | Type::F32 | Type::F64 => return Err(format!("is not an integer ({})", self.name())),
        };
        u64::try_from(signed).map_err(|_| format!("is {signed}; keys and row numbers are not negative"))
    }
}

fn finite(value: f32) -> Result<f32, String> {
    if value.is_finite() { Ok(value) } else { Err(format!("is {value}; only finite values can be compared")) }
}

/// `value` rounded to the nearest `f32`, if that is finite.
pub(super) fn narrow(value: f64) -> Result<f32, String> {
    let narrowed = value as f32;
    if value.is_finite() && narrowed.is_infinite() {
        return Err(format!("is {value:e}, which is beyond the range of f32"));
    }
    finite(narrowed)
}

#[derive(Debug)]
pub(super) struct Dense<R> {
    source: Source<R>,
    element: Element,
    columns: usize,
    two_dimensional: bool,
    rows: u64,
    /// Rows read so far.
    next: u64,
    /// Bytes the whole file should have, header included.
    length: u64,
}

impl<R: Read> Dense<R> {
    pub(super) fn npy(mut source: Source<R>) -> Result<Self> {
        let (header, header_length) = npy::read(&mut source)?;
        let (rows, columns, two_dimensional) = match header.shape[..] {
            [rows] => (rows, 1, false),
            [rows, columns] => (rows, columns, true),
            _ => {
                let reason = format!("the array has {} dimensions, one or two are expected", header.shape.len());
                return Err(source.error(reason));
            }
        };
        Self::new(source, header.element, rows, columns, two_dimensional, header_length)
    }

    pub(super) fn fbin(mut source: Source<R>) -> Result<Self> {
        let Some([r0, r1, r2, r3, d0, d1, d2, d3]) = source.array()? else {
            return Err(source.error("truncated: the header (rows and dimension, 8 bytes) is cut short"));
        };
        let rows = u32::from_le_bytes([r0, r1, r2, r3]);
        let dimension = u32::from_le_bytes([d0, d1, d2, d3]);
        let element = Element { kind: Type::F32, big_endian: false };
        Self::new(source, element, rows.into(), dimension.into(), true, 8)
    }

    fn new(
        source: Source<R>,
        element: Element,
        rows: u64,
        columns: u64,
        two_dimensional: bool,
        header_length: u64,
    ) -> Result<Self> {
        if columns == 0 {
            return Err(source.error("the header says that rows have 0 components"));
        }
        let length = columns
            .checked_mul(element.size() as u64)
            .filter(|&row| isize::try_from(row).is_ok())
            .and_then(|row| row.checked_mul(rows))
            .and_then(|bytes| bytes.checked_add(header_length))
            .ok_or_else(|| source.error(format!("the header says {rows} × {columns}, more than memory can address")))?;
        Ok(Dense { source, element, columns: columns as usize, two_dimensional, rows, next: 0, length })
    }

    pub(super) fn require_vectors(&self) -> Result<()> {
        if !self.element.is_float() {
            return Err(self
                .source
                .error(format!("holds integers ({}), vectors are f2, f4 or f8", self.element.name())));
        }
        if !self.two_dimensional {
            return Err(self.source.error("the array has one dimension, vectors need two: rows × components"));
        }
        Ok(())
    }

    /// Where the vectors lie, if they can be taken as they are.
    pub(super) fn layout(&self) -> Result<VectorLayout> {
        let is_half = match self.element {
            Element { kind: Type::F32, big_endian: false } => false,
            Element { kind: Type::F16, big_endian: false } => true,
            _ => {
                let reason = format!(
                    "{} is read as a stream only; rows in place are little-endian f4 or f2",
                    self.element.name()
                );
                return Err(self.source.error(reason));
            }
        };
        let bytes = self.rows * (self.columns * self.element.size()) as u64;
        Ok(VectorLayout { offset: self.length - bytes, rows: self.rows, dimension: self.columns, is_half })
    }

    pub(super) fn require_integers(&self) -> Result<()> {
        if self.element.is_float() {
            let reason = format!("holds floats ({}), keys and row numbers are i4, i8, u4 or u8", self.element.name());
            return Err(self.source.error(reason));
        }
        Ok(())
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Compares what the header promises with what there is, before hours are spent on the rows.
    #[cfg(feature = "mmap")]
    pub(super) fn check_length(&self, got: u64) -> Result<()> {
        if got == self.length {
            return Ok(());
        }
        let what = if got < self.length { "truncated" } else { "trailing bytes" };
        Err(self.source.error(format!(
            "{what}: {} × {} of {} take {} bytes, the file has {got}",
            self.rows,
            self.columns,
            self.element.name(),
            self.length,
        )))
    }

    pub(super) fn next_batch<T>(
        &mut self,
        out: &mut Vec<T>,
        max_rows: usize,
        decode: impl Fn(Element, &[u8]) -> Result<T, String>,
    ) -> Result<usize> {
        let element = self.element;
        let columns = self.columns as u64;
        let rows = (self.rows - self.next).min(max_rows as u64);
        // No overflow: `new` has checked the product for all rows.
        match self.source.elements(rows * columns, element.size(), out, |bytes| decode(element, bytes))? {
            Ok(count) if count < rows * columns => {
                let reason = format!(
                    "truncated: the header promises {} rows, {} bytes in all, the data end in this row",
                    self.rows, self.length
                );
                return Err(self.source.error_in_row(self.next + count / columns, reason));
            }
            Ok(_) => {}
            Err((at, reason)) => {
                let reason = format!("component {} {reason}", at % columns);
                return Err(self.source.error_in_row(self.next + at / columns, reason));
            }
        }
        self.next += rows;
        if self.next == self.rows && !self.source.at_end()? {
            return Err(self
                .source
                .error(format!("trailing bytes: the data go on after the {} rows promised", self.rows)));
        }
        Ok(rows as usize)
    }
}
