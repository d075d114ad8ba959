//! CRC-32 (ISO-HDLC: the polynomial of zlib and PNG).
//!
//! With the feature `crc32fast` that crate computes it, by the CPU's own instructions where it has them. Without it,
//! where the size of the program counts (in a browser), `tables` does: sixteen tables of 256 entries, made when first
//! asked for, since in the program they would be 16 KiB that don't compress. Slicing by 16 after Kounavis and Berry, "A
//! Systematic Approach to Building High Performance, Software-based, CRC Generators" (2005).

#[cfg(feature = "crc32fast")]
pub use crc32fast::{Hasher, hash};
#[cfg(not(feature = "crc32fast"))]
pub use tables::{Hasher, hash};

#[cfg(any(test, not(feature = "crc32fast")))]
mod tables {
    use std::sync::OnceLock;

    const POLYNOMIAL: u32 = 0xEDB8_8320;

    type Tables = [[u32; 256]; 16];

    fn tables() -> &'static Tables {
        static TABLES: OnceLock<Box<Tables>> = OnceLock::new();
        TABLES.get_or_init(|| {
            let mut tables = Box::new([[0; 256]; 16]);
            for byte in 0..256 {
                let bits = (0..8).fold(byte as u32, |crc, _| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 });
                tables[0][byte] = bits;
            }
            for at in 1..16 {
                for byte in 0..256 {
                    let before = tables[at - 1][byte];
                    tables[at][byte] = (before >> 8) ^ tables[0][usize::from(before as u8)];
                }
            }
            tables
        })
    }

    /// The checksum of bytes that come in parts.
    #[derive(Debug, Clone, Default)]
    pub struct Hasher(u32);

    impl Hasher {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn update(&mut self, bytes: &[u8]) {
            let tables = tables();
            let (blocks, rest) = bytes.as_chunks::<16>();
            let mut crc = !self.0;
            for block in blocks {
                let head = crc.to_le_bytes();
                let mut next = 0;
                for (i, &byte) in block.iter().enumerate() {
                    let byte = if i < 4 { byte ^ head[i] } else { byte };
                    next ^= tables[15 - i][usize::from(byte)];
                }
                crc = next;
            }
            for &byte in rest {
                crc = (crc >> 8) ^ tables[0][usize::from(crc as u8 ^ byte)];
            }
            self.0 = !crc;
        }

        pub fn finalize(self) -> u32 {
            self.0
        }
    }

    /// The checksum of `bytes`.
    pub fn hash(bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::tables::{Hasher, hash};

    /// The definition.
    fn bit_by_bit(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 })
        })
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(hash(b"123456789"), 0xCBF4_3926);
        assert_eq!(hash(b""), 0);
    }

    #[test]
    fn parts_of_any_length_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        assert_eq!(super::hash(&bytes), bit_by_bit(&bytes));
        for at in 0..=bytes.len() {
            let mut hasher = Hasher::new();
            hasher.update(&bytes[..at]);
            hasher.update(&bytes[at..]);
            assert_eq!(hasher.finalize(), bit_by_bit(&bytes), "split at {at}");
        }
    }
}
