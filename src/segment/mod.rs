//! The file: a segment's sections, written forward in one pass and opened without reading them.
//!
//! [`SegmentWriter`] writes what [`Meta`] promises; [`Segment`] opens it in O(header) over any
//! [`Storage`](crate::storage::Storage) and hands out views that check bounds; [`Segment::verify`] reads every byte
//! and every link. This is the level below `Index`, public for tools that look into files.
#![doc = include_str!("FORMAT.md")]

mod crc;
mod format;
mod reader;
#[cfg(feature = "mmap")]
mod save;
mod verify;
mod writer;

pub use format::{
    BLOCK, Encoding, GraphMeta, IndexKind, LevelMeta, MAGIC, MAX_EF, MAX_LEVEL, MAX_M, Meta, Originals, QuantizerMeta,
    VERSION,
};
pub use reader::{FactorsView, KeysView, LinksView, Segment, TombstonesView};
#[cfg(feature = "mmap")]
pub use save::save_atomic;
pub use writer::{SegmentWriter, order_by_key};

/// The fingerprint of a vector: the CRC-32 of its components as little-endian `f32`.
///
/// ```
/// use twindex::segment::fingerprint;
///
/// assert_ne!(fingerprint(&[1.0, 2.0]), fingerprint(&[2.0, 1.0]));
/// ```
pub fn fingerprint(vector: &[f32]) -> u32 {
    let mut crc = crc::Hasher::new();
    // A few hundred bytes at a time: a checksum of four is a call of its own.
    let mut bytes = [[0; 4]; 64];
    for components in vector.chunks(bytes.len()) {
        for (bytes, x) in bytes.iter_mut().zip(components) {
            *bytes = x.to_le_bytes();
        }
        crc.update(bytes[..components.len()].as_flattened());
    }
    crc.finalize()
}
