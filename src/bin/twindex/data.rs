//! Reading what is held whole: queries and ground truth; and opening an index.

use crate::failure::Failure;
use std::path::Path;
use twindex::dataset::{DEFAULT_FIELD, IntegerReader, VectorReader};
use twindex::{Index, OpenOptions, Residency};

/// Rows read at once.
pub const BATCH: usize = 4096;

pub fn open(path: &Path, residency: Residency) -> Result<Index, Failure> {
    OpenOptions::new().residency(residency).open(path).map_err(|e| Failure::of(path.display(), e))
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
