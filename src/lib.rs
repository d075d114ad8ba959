//! Vector search written once: exact and HNSW search over one file format, natively and in WebAssembly.

pub mod codec;
pub mod dataset;
pub mod error;
pub mod index;
pub mod kernel;
pub mod metric;
pub mod scorer;
pub mod segment;
pub mod storage;

pub use error::{Error, Result};
pub use index::{
    Filter, Hit, Index, IndexBuilder, MAX_ROWS, OpenOptions, Residency, SearchParams, SectionBytes, Stats,
};
pub use kernel::{Kernels, Level};
pub use metric::{MAX_DIMENSION, Metric};
pub use segment::{IndexKind, MAX_EF, MAX_M};
