//! One error type for the whole crate: every variant carries the evidence, and a stable code.

use std::fmt;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with what was expected and what came.
///
/// After an error the index is as it was before the call. [`Error::code`] gives a stable identifier, the same one
/// JavaScript finds in `error.code`.
#[non_exhaustive]
#[derive(Debug)]
pub enum Error {
    /// A vector has another number of components than the index.
    DimensionMismatch {
        /// Components the index holds in each row.
        expected: usize,
        /// Components that came.
        got: usize,
    },
    /// A component is NaN or infinite (after narrowing to `f32`).
    NotFinite {
        /// Which vector of the call (0 for a single one).
        row: usize,
        /// Which component.
        component: usize,
    },
    /// A vector of norm zero has no direction: [`Metric::Cosine`](crate::Metric::Cosine) refuses it.
    ZeroVector {
        /// Which vector of the call (0 for a single one).
        row: usize,
    },
    /// A vector so long that a distance to it could overflow `f32`.
    NormTooLarge {
        /// Which vector of the call (0 for a single one).
        row: usize,
        /// Its Euclidean norm.
        norm: f64,
        /// The largest norm accepted under this metric.
        limit: f64,
    },
    /// A component beyond what half precision holds: as code or as original.
    OutOfRange {
        /// Which vector of the call (0 for a single one).
        row: usize,
        /// Which component.
        component: usize,
        /// The component.
        value: f64,
        /// The largest magnitude it holds.
        limit: f64,
    },
    /// The key is in the index already (or twice in the batch); `update` replaces a vector.
    DuplicateKey {
        /// The key.
        key: u64,
    },
    /// The key is not in the index.
    KeyNotFound {
        /// The key.
        key: u64,
    },
    /// A buffer or list has another length than its companion asks for.
    LengthMismatch {
        /// Which argument.
        what: &'static str,
        /// Length expected.
        expected: usize,
        /// Length that came.
        got: usize,
    },
    /// An option or argument outside its documented range.
    InvalidParameter {
        /// The parameter's name.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// A file was opened with an expectation that it contradicts.
    Mismatch {
        /// Which property.
        what: &'static str,
        /// What the caller expects.
        expected: String,
        /// What the file says.
        got: String,
    },
    /// The index was opened read-only.
    ReadOnly {
        /// The operation that was refused.
        operation: &'static str,
    },
    /// A count beyond what the format or this platform can hold.
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What came.
        got: u64,
    },
    /// The allocator refused.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The bytes are not a Twindex segment.
    NotASegment,
    /// The segment was written by a newer version of Twindex.
    UnsupportedVersion {
        /// The newest version this build reads.
        supported: u32,
        /// The version of the file.
        got: u32,
    },
    /// The segment uses features this version does not know.
    UnsupportedFeatures {
        /// The unknown feature bits.
        flags: u32,
    },
    /// The bytes end before the segment does.
    Truncated {
        /// Bytes the header promises.
        expected: u64,
        /// Bytes there are.
        got: u64,
    },
    /// A value in the file contradicts the format.
    Corrupt {
        /// Which section.
        section: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The bytes of a block are not those that were written.
    ChecksumMismatch {
        /// Where the block begins, in bytes from the start of the file.
        offset: u64,
        /// The checksum on record.
        expected: u32,
        /// The checksum of the bytes.
        got: u32,
    },
    /// A vector given as an original is not the one the index was built from.
    FingerprintMismatch {
        /// Which row of the index.
        row: u32,
        /// The fingerprint on record.
        expected: u32,
        /// The fingerprint of the vector that came.
        got: u32,
    },
    /// Reranking was asked for, and there is nothing to rerank against.
    NoOriginals,
    /// A vector file (`.npy`, `.fvecs`, `.fbin`, JSON lines) could not be read.
    Dataset {
        /// Where: a file, a line, a row.
        at: String,
        /// What is wrong.
        reason: String,
    },
    /// Bytes outside this process's memory could not be read (a detached ArrayBuffer, a failing callback).
    Storage {
        /// What the source said.
        reason: String,
    },
    /// The target file is mapped by some process and the operating system refuses to replace it.
    FileInUse {
        /// The file.
        path: String,
    },
    /// The operating system refused.
    Io(std::io::Error),
}

impl Error {
    /// A stable identifier for this kind of error, in UPPER_SNAKE_CASE; `error.code` in JavaScript.
    pub fn code(&self) -> &'static str {
        match self {
            Error::DimensionMismatch { .. } => "DIMENSION_MISMATCH",
            Error::NotFinite { .. } => "NOT_FINITE",
            Error::ZeroVector { .. } => "ZERO_VECTOR",
            Error::NormTooLarge { .. } => "NORM_TOO_LARGE",
            Error::OutOfRange { .. } => "OUT_OF_RANGE",
            Error::DuplicateKey { .. } => "DUPLICATE_KEY",
            Error::KeyNotFound { .. } => "KEY_NOT_FOUND",
            Error::LengthMismatch { .. } => "LENGTH_MISMATCH",
            Error::InvalidParameter { .. } => "INVALID_PARAMETER",
            Error::Mismatch { .. } => "MISMATCH",
            Error::ReadOnly { .. } => "READ_ONLY",
            Error::TooLarge { .. } => "TOO_LARGE",
            Error::OutOfMemory { .. } => "OUT_OF_MEMORY",
            Error::NotASegment => "NOT_A_SEGMENT",
            Error::UnsupportedVersion { .. } => "UNSUPPORTED_VERSION",
            Error::UnsupportedFeatures { .. } => "UNSUPPORTED_FEATURES",
            Error::Truncated { .. } => "TRUNCATED",
            Error::Corrupt { .. } => "CORRUPT",
            Error::ChecksumMismatch { .. } => "CHECKSUM_MISMATCH",
            Error::FingerprintMismatch { .. } => "FINGERPRINT_MISMATCH",
            Error::NoOriginals => "NO_ORIGINALS",
            Error::Dataset { .. } => "DATASET",
            Error::Storage { .. } => "STORAGE",
            Error::FileInUse { .. } => "FILE_IN_USE",
            Error::Io(_) => "IO",
        }
    }

    /// The same error, naming vector `at` of the batch it came from.
    pub(crate) fn for_row(mut self, at: usize) -> Self {
        match &mut self {
            Error::NotFinite { row, .. }
            | Error::ZeroVector { row }
            | Error::NormTooLarge { row, .. }
            | Error::OutOfRange { row, .. } => *row = at,
            _ => {}
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::DimensionMismatch { expected, got } => {
                write!(f, "the index holds vectors of dimension {expected}, this one has {got} components")
            }
            Error::NotFinite { row, component } => {
                write!(
                    f,
                    "vector {row}: component {component} is NaN or infinite as f32; only finite values can be compared"
                )
            }
            Error::ZeroVector { row } => {
                write!(
                    f,
                    "vector {row} has norm zero, which has no direction under the cosine metric; leave it out or use another metric"
                )
            }
            Error::NormTooLarge { row, norm, limit } => {
                write!(
                    f,
                    "vector {row} has norm {}, the limit under this metric is {}; scale the vectors down",
                    Scientific(*norm),
                    Scientific(*limit)
                )
            }
            Error::OutOfRange { row, component, value, limit } => {
                write!(
                    f,
                    "vector {row}: component {component} is {}, half precision holds magnitudes up to {}; scale the vectors down, or store them otherwise",
                    Scientific(*value),
                    Scientific(*limit)
                )
            }
            Error::DuplicateKey { key } => {
                write!(f, "key {key} is in the index already, or twice in the batch; use update to replace a vector")
            }
            Error::KeyNotFound { key } => write!(f, "key {key} is not in the index"),
            Error::LengthMismatch { what, expected, got } => write!(f, "{what}: expected length {expected}, got {got}"),
            Error::InvalidParameter { name, expected, got } => write!(f, "{name}: expected {expected}, got {got}"),
            Error::Mismatch { what, expected, got } => write!(f, "{what}: expected {expected}, but the file has {got}"),
            Error::ReadOnly { operation } => {
                write!(f, "{operation}: the index was opened read-only; open it for changes to make any")
            }
            Error::TooLarge { what, limit, got } => write!(f, "{what}: {got} is beyond the limit of {limit}"),
            Error::OutOfMemory { bytes } => write!(f, "out of memory: {bytes} bytes were refused"),
            Error::NotASegment => write!(f, "not a Twindex file: the magic bytes are missing"),
            Error::UnsupportedVersion { supported, got } => write!(
                f,
                "the file has format version {got}, this build reads versions 1 to {supported}; upgrade twindex or write the file again"
            ),
            Error::UnsupportedFeatures { flags } => {
                write!(f, "the file uses features this version does not know (bits {flags:#x}); upgrade twindex")
            }
            Error::Truncated { expected, got } => {
                write!(f, "the file is truncated: {expected} bytes expected, {got} there; fetch or copy it again")
            }
            Error::Corrupt { section, reason } => write!(f, "the file is corrupt, section {section}: {reason}"),
            Error::ChecksumMismatch { offset, expected, got } => write!(
                f,
                "the file is corrupt: the block at byte {offset} has checksum {got:#010x}, {expected:#010x} was written"
            ),
            Error::FingerprintMismatch { row, expected, got } => write!(
                f,
                "row {row} of the originals is another vector than the index was built from (fingerprint {got:#010x}, {expected:#010x} expected); attach those, in the order of addition"
            ),
            Error::NoOriginals => write!(
                f,
                "the index has no originals to rerank against; build it with originals, or attach the file they are in"
            ),
            Error::Dataset { at, reason } => write!(f, "{at}: {reason}"),
            Error::Storage { reason } => write!(f, "reading from storage failed: {reason}"),
            Error::FileInUse { path } => write!(f, "{path} is in use (mapped) and cannot be replaced; close it first"),
            Error::Io(e) => write!(f, "{e}"),
        }
    }
}

/// A number to four digits, as in 9.223e18. The standard library's exact formatting would be a tenth of the WebAssembly
/// module.
pub(crate) struct Scientific(pub f64);

impl fmt::Display for Scientific {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scientific(number) = *self;
        let (mut digits, mut exponent) = (number.abs(), 0);
        if number == 0.0 || !number.is_finite() {
            return f.write_str(if number == 0.0 { "0" } else { "a number that is not finite" });
        }
        while digits >= 9.9995 {
            digits /= 10.0;
            exponent += 1;
        }
        while digits < 0.99995 {
            digits *= 10.0;
            exponent -= 1;
        }
        let thousandths = (digits * 1000.0 + 0.5) as u32;
        let sign = if number < 0.0 { "-" } else { "" };
        write!(f, "{sign}{}.{:03}e{exponent}", thousandths / 1000, thousandths % 1000)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::Io(e)
    }
}

#[cfg(test)]
mod tests {
    use super::Scientific;

    #[test]
    fn numbers_are_told_to_four_digits() {
        for (number, text) in [
            (9.223e18, "9.223e18"),
            (-1.0, "-1.000e0"),
            (0.0, "0"),
            (9.99949, "9.999e0"),
            (9.99951, "1.000e1"),
            (2.9387e-39, "2.939e-39"),
            (f64::MAX, "1.798e308"),
            (5e-324, "4.941e-324"),
            (f64::NAN, "a number that is not finite"),
        ] {
            assert_eq!(Scientific(number).to_string(), text);
        }
    }
}
