//! Vector search written once: exact and HNSW search over one file format, natively and in WebAssembly.

pub mod error;
pub mod kernel;
pub mod metric;
pub mod segment;
pub mod storage;

pub use error::{Error, Result};
pub use kernel::{Kernels, Level};
pub use metric::{MAX_DIMENSION, Metric};
