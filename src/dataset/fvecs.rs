//! `.fvecs`: every row carries its dimension.

use super::dense::{Element, Type};
use super::source::Source;
use crate::error::Result;
use std::io::Read;

const F32: Element = Element { kind: Type::F32, big_endian: false };

#[derive(Debug)]
pub(super) struct Fvecs<R> {
    source: Source<R>,
    dimension: usize,
    rows: Option<u64>,
    /// Rows read so far.
    next: u64,
    /// The dimension in front of the next row is read already: true at the very beginning.
    announced: bool,
}

impl<R: Read> Fvecs<R> {
    pub(super) fn new(mut source: Source<R>) -> Result<Self> {
        if source.at_end()? {
            return Err(source.error("empty: there is no row to tell the dimension"));
        }
        let Some(bytes) = source.array()? else {
            return Err(source.error_in_row(0, "truncated: the dimension in front of the row is cut short"));
        };
        let dimension = i32::from_le_bytes(bytes);
        match usize::try_from(dimension) {
            Ok(dimension) if dimension > 0 => Ok(Fvecs { source, dimension, rows: None, next: 0, announced: true }),
            _ => Err(source.error_in_row(0, format!("the dimension in front of the row is {dimension}"))),
        }
    }

    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// Learns the number of rows from the length of the file, if whole rows fill it.
    #[cfg(feature = "mmap")]
    pub(super) fn infer_rows(&mut self, length: u64) {
        let row = 4 + 4 * self.dimension as u64;
        self.rows = length.is_multiple_of(row).then_some(length / row);
    }

    pub(super) fn next_batch(&mut self, out: &mut Vec<f32>, max_rows: usize) -> Result<usize> {
        for done in 0..max_rows {
            if !self.next_row(out)? {
                return Ok(done);
            }
        }
        Ok(max_rows)
    }

    fn next_row(&mut self, out: &mut Vec<f32>) -> Result<bool> {
        if !std::mem::take(&mut self.announced) {
            if self.source.at_end()? {
                return Ok(false);
            }
            let Some(bytes) = self.source.array()? else {
                let reason = "truncated: the dimension in front of the row is cut short";
                return Err(self.source.error_in_row(self.next, reason));
            };
            let dimension = i32::from_le_bytes(bytes);
            if usize::try_from(dimension) != Ok(self.dimension) {
                let reason = format!("ragged: {dimension} components here, {} in the rows before", self.dimension);
                return Err(self.source.error_in_row(self.next, reason));
            }
        }
        match self.source.elements(self.dimension as u64, 4, out, |bytes| F32.to_f32(bytes))? {
            Ok(count) if count < self.dimension as u64 => {
                let reason = format!("truncated: the data end in component {count} of {}", self.dimension);
                Err(self.source.error_in_row(self.next, reason))
            }
            Ok(_) => {
                self.next += 1;
                Ok(true)
            }
            Err((at, reason)) => Err(self.source.error_in_row(self.next, format!("component {at} {reason}"))),
        }
    }
}
