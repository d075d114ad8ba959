//! Damaging files on purpose: patches at known places, with the checksums put right again if wanted. Reads the file as
//! FORMAT.md describes it, not by the crate's code.

use std::ops::Range;

/// A segment file under the knife.
#[derive(Clone)]
pub struct Patient {
    pub bytes: Vec<u8>,
    table: usize,
    sections: usize,
}

/// Tags of sections.
pub const META: u64 = 1;
pub const KEYS: u64 = 2;
pub const CODES: u64 = 4;
pub const FACTORS: u64 = 5;
pub const TOMBSTONES: u64 = 7;
pub const LINK_OFFSETS: u64 = 8;
pub const LINKS: u64 = 9;
pub const UPPER: u64 = 10;
const CHECKSUMS: u64 = 11;
pub const CENTRE: u64 = 12;
const BLOCK: usize = 64 * 1024;
const ENTRY: usize = 32;

impl Patient {
    pub fn new(bytes: Vec<u8>) -> Self {
        let number = |at: usize, width: usize| read(&bytes, at, width) as usize;
        let (table, sections) = (number(24, 8), number(32, 4));
        Patient { bytes, table, sections }
    }

    pub fn get(&self, at: usize, width: usize) -> u64 {
        read(&self.bytes, at, width)
    }

    pub fn put(&mut self, at: usize, width: usize, value: u64) {
        self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// Where a section lies.
    pub fn section(&self, tag: u64) -> Range<usize> {
        self.find(tag).expect("the file has this section")
    }

    /// Where a section lies, if there is one.
    pub fn find(&self, tag: u64) -> Option<Range<usize>> {
        let mut entries = (0..self.sections).map(|i| self.table + i * ENTRY);
        let entry = entries.find(|&at| self.get(at, 4) == tag)?;
        let from = self.get(entry + 8, 8) as usize;
        Some(from..from + self.get(entry + 16, 8) as usize)
    }

    /// Puts every checksum right: of the blocks, of the checksums, of the header, of the table.
    pub fn reseal(mut self) -> Vec<u8> {
        let header = crc32fast::hash(&self.bytes[..60]);
        self.put(60, 4, header.into());
        let checksums = self.section(CHECKSUMS);
        for (i, at) in checksums.clone().step_by(4).enumerate() {
            let block = i * BLOCK..checksums.start.min((i + 1) * BLOCK);
            let crc = crc32fast::hash(&self.bytes[block]);
            self.put(at, 4, crc.into());
        }
        let tail = self.table + self.sections * ENTRY;
        let crc = crc32fast::hash(&self.bytes[checksums]);
        self.put(tail, 4, crc.into());
        let parts = [0..64, self.section(META), self.table..tail + 4].map(|part| self.bytes[part].to_vec()).concat();
        self.put(tail + 4, 4, crc32fast::hash(&parts).into());
        self.bytes
    }

    /// A copy with one value patched and the checksums put right.
    pub fn patched(&self, at: usize, width: usize, value: u64) -> Vec<u8> {
        let mut patient = self.clone();
        patient.put(at, width, value);
        patient.reseal()
    }
}

fn read(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut number = [0; 8];
    number[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(number)
}
