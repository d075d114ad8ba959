//! Reading what is held whole: queries and ground truth; and opening an index, with originals beside it.

use crate::failure::Failure;
use crate::output;
use std::path::Path;
use twindex::dataset::{DEFAULT_FIELD, IntegerReader, VectorReader};
use twindex::{Error, Index, OpenOptions, VectorFile};

/// Rows read at once.
pub const BATCH: usize = 4096;

pub fn open(path: &Path, options: OpenOptions) -> Result<Index, Failure> {
    options.open(path).map_err(|e| Failure::of(path.display(), e))
}

/// The index to search, with the vectors of `originals` attached to it.
pub fn open_to_search(
    path: &Path,
    options: OpenOptions,
    originals: Option<&Path>,
    rerank: Option<f32>,
) -> Result<Index, Failure> {
    let mut index = open(path, options)?;
    if let Some(originals) = originals {
        let attached = VectorFile::open(originals).and_then(|file| index.attach_originals(file));
        attached.map_err(|e| match e {
            // About the index: it has its originals.
            Error::InvalidParameter { .. } => Failure::of(path.display(), e),
            Error::LengthMismatch { expected, got, .. } => {
                let (vectors, rows) = (output::count(got as u64), output::count(expected as u64));
                Failure::of(originals.display(), format!("{vectors} vectors for the {rows} rows of the index"))
            }
            // Names what it is about, but not the file.
            Error::Dataset { reason, .. } => Failure::of(originals.display(), reason),
            other => Failure::of(originals.display(), other),
        })?;
    }
    if rerank.is_some() && !index.has_originals() {
        let reason =
            "the index keeps no originals to rerank against; say --originals FILE, or build it with --originals";
        return Err(Failure::of(path.display(), reason));
    }
    Ok(index)
}

/// All vectors of a file, row-major, each of `dimension` components.
pub fn vectors(path: &Path, dimension: usize) -> Result<Vec<f32>, Failure> {
    let mut reader = VectorReader::open(path, DEFAULT_FIELD)?;
    check_dimension(path, reader.dimension(), dimension)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch, BATCH)? > 0 {
        all.extend_from_slice(&batch);
    }
    Ok(all)
}

pub fn check_dimension(path: &Path, got: usize, expected: usize) -> Result<(), Failure> {
    if got == expected {
        return Ok(());
    }
    Err(Failure::of(path.display(), format!("the vectors have dimension {got}, those of the index have {expected}")))
}

/// Rows of integers, held whole.
pub struct Table {
    pub columns: usize,
    pub values: Vec<u64>,
}

impl Table {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let mut reader = IntegerReader::open(path)?;
        let (mut values, mut batch) = (Vec::new(), Vec::new());
        while reader.next_batch(&mut batch, BATCH)? > 0 {
            values.extend_from_slice(&batch);
        }
        Ok(Table { columns: reader.columns(), values })
    }
}
