//! Readers of vector files, streaming: a batch of rows at a time, never the whole file.
//!
//! | format | layout | elements |
//! |---|---|---|
//! | `.npy` | NumPy, header version 1 to 3, C order, either byte order | 2-D `f2`, `f4`, `f8` |
//! | `.fvecs` | every row: dimension as `i32`, then its components, little-endian | `f32` |
//! | `.fbin` | rows and dimension as `u32`, then all components, little-endian | `f32` |
//! | `.jsonl` | a JSON object (or a bare array) a line (feature `cli`) | numbers |
//!
//! [`VectorReader`] reads these; [`IntegerReader`] reads keys and ground truth from 1-D or 2-D `.npy` of `i4`, `i8`,
//! `u4` or `u8`.
//!
//! Components come out as finite `f32`: NaN, infinities and values that `f32` cannot hold are refused, and so are rows
//! of different lengths, files that end early and bytes after the end. Every refusal is an [`Error::Dataset`] that
//! names the file, the row (from 0) or line (from 1), and what is wrong with it. Nothing is allocated on the word of a
//! header: memory grows only with bytes that have come.
//!
//! ```
//! use twindex::dataset::VectorReader;
//!
//! // Two rows of three components, as .fbin.
//! let mut file = Vec::new();
//! file.extend(2u32.to_le_bytes());
//! file.extend(3u32.to_le_bytes());
//! file.extend([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()));
//!
//! let mut reader = VectorReader::fbin("two.fbin", &file[..])?;
//! assert_eq!((reader.dimension(), reader.rows()), (3, Some(2)));
//! let mut batch = Vec::new();
//! while reader.next_batch(&mut batch, 4096)? > 0 {
//!     assert_eq!(batch, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! }
//! # Ok::<(), twindex::Error>(())
//! ```

mod dense;
mod fvecs;
#[cfg(feature = "cli")]
mod json;
mod npy;
mod source;

use crate::error::{Error, Result};
use dense::Dense;
use fvecs::Fvecs;
use source::Source;
use std::io::Read;

/// The field of a JSON line that holds the vector, unless another one is named.
pub const DEFAULT_FIELD: &str = "embedding";

/// Where the vectors lie in a file of plain rows: for those who want some of them, not a stream of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorLayout {
    /// Bytes before the first vector.
    pub offset: u64,
    /// Vectors in the file, by its own word.
    pub rows: u64,
    /// Components of a vector.
    pub dimension: usize,
    /// Whether components are f16, not `f32`; little-endian in any case.
    pub is_half: bool,
}

impl VectorLayout {
    /// Reads the header of an `.npy` file.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a header that is damaged or describes anything but little-endian `f4` or `f2`.
    pub fn npy(name: impl Into<String>, input: impl Read) -> Result<Self> {
        let dense = Dense::npy(Source::new(name, input))?;
        dense.require_vectors()?;
        dense.layout()
    }

    /// Reads the header of an `.fbin` file.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a header that is cut short or gives dimension 0.
    pub fn fbin(name: impl Into<String>, input: impl Read) -> Result<Self> {
        Dense::fbin(Source::new(name, input))?.layout()
    }
}

/// A stream of vectors from any [`Read`], in one of the formats of [this module](self).
#[derive(Debug)]
pub struct VectorReader<R> {
    body: Body<R>,
}

#[derive(Debug)]
enum Body<R> {
    Dense(Dense<R>),
    Fvecs(Fvecs<R>),
    #[cfg(feature = "cli")]
    Json(json::JsonLines<R>),
}

impl<R: Read> VectorReader<R> {
    /// Reads a two-dimensional `.npy` array of `f2`, `f4` or `f8`, a row a vector. `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a header that is damaged or describes anything else.
    pub fn npy(name: impl Into<String>, input: R) -> Result<Self> {
        let dense = Dense::npy(Source::new(name, input))?;
        dense.require_vectors()?;
        Ok(VectorReader { body: Body::Dense(dense) })
    }

    /// Reads `.fbin`: `u32` rows, `u32` dimension, then the components as `f32`, all little-endian.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a header that is cut short or gives dimension 0.
    pub fn fbin(name: impl Into<String>, input: R) -> Result<Self> {
        Ok(VectorReader { body: Body::Dense(Dense::fbin(Source::new(name, input))?) })
    }

    /// Reads `.fvecs`: before every row its dimension as `i32`, all little-endian. The first row decides the dimension.
    ///
    /// # Errors
    /// [`Error::Dataset`] for an empty file or a dimension below 1.
    pub fn fvecs(name: impl Into<String>, input: R) -> Result<Self> {
        Ok(VectorReader { body: Body::Fvecs(Fvecs::new(Source::new(name, input))?) })
    }

    /// Reads JSON lines: every line an object whose `field` is an array of numbers, or that array itself.
    /// The first line decides the dimension; blank lines are passed over; a line may be 64 MiB long.
    ///
    /// # Errors
    /// [`Error::Dataset`] if there is no first vector or it is not one.
    #[cfg(feature = "cli")]
    pub fn json_lines(name: impl Into<String>, input: R, field: &str) -> Result<Self> {
        Ok(VectorReader { body: Body::Json(json::JsonLines::new(Source::new(name, input), field)?) })
    }

    /// Components in every row; at least 1.
    pub fn dimension(&self) -> usize {
        match &self.body {
            Body::Dense(dense) => dense.columns(),
            Body::Fvecs(fvecs) => fvecs.dimension(),
            #[cfg(feature = "cli")]
            Body::Json(json) => json.dimension(),
        }
    }

    /// Rows in the whole file, where it says so itself (`.npy`, `.fbin`) or its length does (an `.fvecs` file opened by
    /// path). No more than a promise until the last row is read.
    pub fn rows(&self) -> Option<u64> {
        match &self.body {
            Body::Dense(dense) => Some(dense.rows()),
            Body::Fvecs(fvecs) => fvecs.rows(),
            #[cfg(feature = "cli")]
            Body::Json(_) => None,
        }
    }

    /// Replaces the contents of `out` by the next rows, at most `max_rows`, row-major; returns how many rows they are.
    /// 0 says that all rows have been read and nothing follows them.
    ///
    /// # Errors
    /// [`Error::Dataset`] as [this module](self) describes; `out` is empty then, and the reader of no further use.
    /// [`Error::InvalidParameter`] if `max_rows` is 0.
    pub fn next_batch(&mut self, out: &mut Vec<f32>, max_rows: usize) -> Result<usize> {
        out.clear();
        require_some(max_rows)?;
        let read = match &mut self.body {
            Body::Dense(dense) => dense.next_batch(out, max_rows, dense::Element::to_f32),
            Body::Fvecs(fvecs) => fvecs.next_batch(out, max_rows),
            #[cfg(feature = "cli")]
            Body::Json(json) => json.next_batch(out, max_rows),
        };
        read.inspect_err(|_| out.clear())
    }
}

/// A stream of rows of non-negative integers from an `.npy` array: keys (1-D) or row numbers of a ground truth (2-D).
///
/// ```
/// use twindex::dataset::IntegerReader;
///
/// let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }\n";
/// let mut file = b"\x93NUMPY\x01\x00".to_vec();
/// file.extend((header.len() as u16).to_le_bytes());
/// file.extend(header.bytes());
/// file.extend([7i32, 8, 9].iter().flat_map(|x| x.to_le_bytes()));
///
/// let mut keys = IntegerReader::npy("keys.npy", &file[..])?;
/// assert_eq!((keys.rows(), keys.columns()), (3, 1));
/// let mut batch = Vec::new();
/// assert_eq!(keys.next_batch(&mut batch, 2)?, 2);
/// assert_eq!(batch, [7, 8]);
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug)]
pub struct IntegerReader<R> {
    dense: Dense<R>,
}

impl<R: Read> IntegerReader<R> {
    /// Reads an `.npy` array of `i4`, `i8`, `u4` or `u8`, of one dimension or two. `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a header that is damaged or describes anything else.
    pub fn npy(name: impl Into<String>, input: R) -> Result<Self> {
        let dense = Dense::npy(Source::new(name, input))?;
        dense.require_integers()?;
        Ok(IntegerReader { dense })
    }

    /// Numbers in a row; 1 for a one-dimensional array.
    pub fn columns(&self) -> usize {
        self.dense.columns()
    }

    /// Rows the header promises.
    pub fn rows(&self) -> u64 {
        self.dense.rows()
    }

    /// Replaces the contents of `out` by the next rows, at most `max_rows`, row-major; returns how many rows they are,
    /// 0 at the end.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a negative number, an early end or bytes after the end; `out` is empty then, and the
    /// reader of no further use. [`Error::InvalidParameter`] if `max_rows` is 0.
    pub fn next_batch(&mut self, out: &mut Vec<u64>, max_rows: usize) -> Result<usize> {
        out.clear();
        require_some(max_rows)?;
        self.dense.next_batch(out, max_rows, dense::Element::to_u64).inspect_err(|_| out.clear())
    }
}

fn require_some(max_rows: usize) -> Result<()> {
    if max_rows == 0 {
        return Err(Error::InvalidParameter { name: "max_rows", expected: "at least 1", got: "0".into() });
    }
    Ok(())
}

#[cfg(feature = "mmap")]
mod open {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    impl VectorReader<File> {
        /// Opens a file; its extension tells the format. `field` is where a JSON line keeps its vector
        /// ([`DEFAULT_FIELD`] is the usual one); the other formats have no use for it.
        ///
        /// The length of a regular file is compared with what its header promises here already.
        ///
        /// # Errors
        /// [`Error::Dataset`] if it cannot be opened, the extension is unknown, or the header is refused.
        pub fn open(path: impl AsRef<Path>, field: &str) -> Result<Self> {
            let path = path.as_ref();
            let name = path.display().to_string();
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
            let (file, length) = open_file(path, &name)?;
            let mut reader = match extension.as_str() {
                "npy" => Self::npy(name, file),
                "fbin" => Self::fbin(name, file),
                "fvecs" => Self::fvecs(name, file),
                #[cfg(feature = "cli")]
                "jsonl" | "ndjson" => Self::json_lines(name, file, field),
                _ => {
                    let _ = field;
                    return Err(Error::Dataset {
                        at: name,
                        reason: "unknown extension; .npy, .fvecs, .fbin and .jsonl are read".into(),
                    });
                }
            }?;
            match (&mut reader.body, length) {
                (Body::Dense(dense), Some(length)) => dense.check_length(length)?,
                (Body::Fvecs(fvecs), Some(length)) => fvecs.infer_rows(length),
                _ => {}
            }
            Ok(reader)
        }
    }

    impl IntegerReader<File> {
        /// Opens an `.npy` file.
        ///
        /// # Errors
        /// [`Error::Dataset`] if it cannot be opened, its header is refused, or its length is not what that promises.
        pub fn open(path: impl AsRef<Path>) -> Result<Self> {
            let path = path.as_ref();
            let name = path.display().to_string();
            let (file, length) = open_file(path, &name)?;
            let reader = Self::npy(name, file)?;
            if let Some(length) = length {
                reader.dense.check_length(length)?;
            }
            Ok(reader)
        }
    }

    /// The file, and its length where that means something: not for a pipe.
    fn open_file(path: &Path, name: &str) -> Result<(File, Option<u64>)> {
        let refuse = |reason: String| Error::Dataset { at: name.to_owned(), reason };
        let file = File::open(path).map_err(|e| refuse(e.to_string()))?;
        let metadata = file.metadata().map_err(|e| refuse(e.to_string()))?;
        if metadata.is_dir() {
            return Err(refuse("is a directory".into()));
        }
        Ok((file, metadata.is_file().then_some(metadata.len())))
    }
}

#[cfg(test)]
mod tests;
