//! A named, buffered stream of bytes, whose errors say where they happened.

use crate::error::{Error, Result};
use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Bytes read at once. A multiple of every element size.
const BLOCK: usize = 64 << 10;

pub(super) struct Source<R> {
    input: BufReader<R>,
    name: String,
    block: Vec<u8>,
}

impl<R> fmt::Debug for Source<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R> Source<R> {
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        Error::Dataset { at: self.name.clone(), reason: reason.into() }
    }

    pub(super) fn error_in_row(&self, row: u64, reason: impl fmt::Display) -> Error {
        Error::Dataset { at: format!("{}, row {row}", self.name), reason: reason.to_string() }
    }

    #[cfg(feature = "cli")]
    pub(super) fn error_in_line(&self, line: u64, reason: impl fmt::Display) -> Error {
        Error::Dataset { at: format!("{}, line {line}", self.name), reason: reason.to_string() }
    }
}

impl<R: Read> Source<R> {
    pub(super) fn new(name: impl Into<String>, input: R) -> Self {
        Source { input: BufReader::with_capacity(BLOCK, input), name: name.into(), block: Vec::new() }
    }

    /// Fills `out` as far as the stream goes; returns how many bytes came.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < out.len() {
            match self.input.read(&mut out[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(e.to_string())),
            }
        }
        Ok(got)
    }

    /// The next `N` bytes, or `None` if the stream ends before.
    pub(super) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        Ok((self.fill(&mut bytes)? == N).then_some(bytes))
    }

    /// Decodes `count` elements of `size` bytes into the end of `out`, a block at a time: memory grows only with bytes
    /// that have come. Returns how many whole elements there were. A fault is reported with its element's position.
    pub(super) fn elements<T>(
        &mut self,
        count: u64,
        size: usize,
        out: &mut Vec<T>,
        decode: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<Result<u64, (u64, String)>> {
        let mut block = std::mem::take(&mut self.block);
        block.resize(BLOCK, 0);
        let mut done = 0;
        let outcome = loop {
            let wanted = (count - done).min((BLOCK / size) as u64) as usize;
            if wanted == 0 {
                break Ok(Ok(done));
            }
            let got = match self.fill(&mut block[..wanted * size]) {
                Ok(bytes) => bytes / size,
                Err(e) => break Err(e),
            };
            if out.try_reserve(got).is_err() {
                break Err(Error::OutOfMemory { bytes: (got * size_of::<T>()) as u64 });
            }
            let mut fault = None;
            for (i, bytes) in block[..got * size].chunks_exact(size).enumerate() {
                match decode(bytes) {
                    Ok(value) => out.push(value),
                    Err(reason) => {
                        fault = Some((done + i as u64, reason));
                        break;
                    }
                }
            }
            if let Some(fault) = fault {
                break Ok(Err(fault));
            }
            done += got as u64;
            if got < wanted {
                break Ok(Ok(done));
            }
        };
        self.block = block;
        outcome
    }

    /// Whether the stream ends here.
    pub(super) fn at_end(&mut self) -> Result<bool> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::Dataset { at: self.name.clone(), reason: e.to_string() }),
            }
        }
    }

    /// Replaces `out` by the bytes up to the next `\n`, at most `limit + 1` of them; `false` at the end of the stream.
    #[cfg(feature = "cli")]
    pub(super) fn line(&mut self, out: &mut Vec<u8>, limit: u64) -> Result<bool> {
        out.clear();
        match (&mut self.input).take(limit + 1).read_until(b'\n', out) {
            Ok(n) => Ok(n > 0),
            Err(e) => Err(self.error(e.to_string())),
        }
    }
}
