//! Small hand-made segments, and a mutator of files that can put the checksums right again.
//!
//! The mutator reads the file by the description in FORMAT.md, not by the crate's code.

use std::io;
use twindex::segment::{
    Encoding, GraphMeta, IndexKind, LevelMeta, Meta, Originals, QuantizerMeta, SegmentWriter, order_by_key,
};
use twindex::{Metric, Result};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[derive(Clone)]
pub struct Sample {
    pub meta: Meta,
    pub keys: Vec<u64>,
    pub centre: Vec<f32>,
    pub codes: Vec<u8>,
    pub factors: Vec<f32>,
    pub removed: Vec<bool>,
    pub lists: Vec<Vec<u32>>,
    /// Level 1 first: nodes with their lists.
    pub upper: Vec<Vec<(u32, Vec<u32>)>>,
    pub fingerprints: Vec<u32>,
    pub originals: Vec<u8>,
}

/// `m` of every sample.
pub const M: usize = 4;

impl Sample {
    /// With `removed`, every third row is, and shares its key with the row before it.
    pub fn new(rows: u32, dimension: u32, metric: Metric, kind: IndexKind, removed: bool, seed: u64) -> Self {
        let mut random = Random(seed);
        let n = rows as usize;
        let mut keys: Vec<u64> = (0..n).map(|i| (random.next() << 16) | i as u64).collect();
        let removed: Vec<bool> = (0..n).map(|i| removed && i % 3 == 1).collect();
        for i in (1..n).filter(|&i| removed[i]) {
            keys[i] = keys[i - 1];
        }
        let codes = floats(n * dimension as usize, &mut random);
        let factors = (0..n).map(|_| 0.25 + (random.next() >> 40) as f32 / 1e7).collect();
        let nodes: Vec<u32> = (0..rows).collect();
        let lists = nodes.iter().map(|&id| some_of(&nodes, id, 2 * M, &mut random)).collect();
        let mut upper = Vec::new();
        for step in [5, 25] {
            let nodes: Vec<u32> = (0..rows).step_by(step).collect();
            let level = nodes.iter().map(|&id| (id, some_of(&nodes, id, M, &mut random)));
            upper.push(level.collect::<Vec<_>>());
        }
        upper.retain(|level| !level.is_empty());
        let mut sample = Sample {
            meta: Meta {
                dimension,
                metric,
                encoding: Encoding::F32,
                kind,
                rows,
                tombstones: removed.iter().filter(|&&r| r).count() as u32,
                stride: 4 * dimension,
                ef: 64,
                originals: Originals::None,
                quantizer: None,
                graph: None,
            },
            keys,
            centre: Vec::new(),
            codes,
            factors,
            removed,
            lists,
            upper,
            fingerprints: Vec::new(),
            originals: Vec::new(),
        };
        if kind == IndexKind::Hnsw {
            sample.meta.graph = Some(sample.graph_meta(seed));
        }
        sample
    }

    /// The one most tests damage: every section of an f32 file is there, and two groups of links.
    pub fn full(seed: u64) -> Self {
        Sample::new(67, 3, Metric::Cosine, IndexKind::Hnsw, true, seed)
    }

    /// The same with rows of another encoding, rotated and centred where it is quantized.
    pub fn encoded(self, encoding: Encoding, originals: Originals) -> Self {
        let seed = self.meta.dimension.into();
        self.quantized(encoding, originals, QuantizerMeta { rotated: true, centred: true, seed })
    }

    /// The same with rows of another encoding; `quantizer` counts where that is quantized. Codes are drawn at random,
    /// within what a file may hold.
    pub fn quantized(mut self, encoding: Encoding, originals: Originals, quantizer: QuantizerMeta) -> Self {
        let mut random = Random(u64::from(self.meta.rows) << 32 | u64::from(encoding.name().len() as u32));
        let (n, d) = (self.meta.rows as usize, self.meta.dimension as usize);
        self.codes = match encoding {
            Encoding::F32 => floats(n * d, &mut random),
            Encoding::F16 => halves(n * d, &mut random),
            Encoding::Int8 => codes(n, d, 0xFF, &mut random),
            Encoding::Int4 => codes(n, d.div_ceil(2), if d % 2 == 1 { 0x0F } else { 0xFF }, &mut random),
            Encoding::Bits1 => codes(n, d.div_ceil(8), [0xFF, 1, 3, 7, 15, 31, 63, 127][d % 8], &mut random),
            other => panic!("no sample of {other}"),
        };
        self.originals = match originals {
            Originals::None => Vec::new(),
            Originals::F16 => halves(n * d, &mut random),
            Originals::F32 => floats(n * d, &mut random),
            other => panic!("no sample of {other} originals"),
        };
        let quantized = matches!(encoding, Encoding::Int8 | Encoding::Int4 | Encoding::Bits1);
        self.centre = (0..d).map(|i| 0.5 - i as f32 / 64.0).collect();
        self.centre.truncate(if quantized && quantizer.centred && n > 0 { d } else { 0 });
        self.fingerprints = (0..n).map(|_| random.next() as u32).collect();
        self.fingerprints.truncate(if encoding == Encoding::F32 || !self.originals.is_empty() { 0 } else { n });
        self.meta = Meta {
            encoding,
            stride: stride_of(encoding, d) as u32,
            originals,
            quantizer: quantized.then_some(quantizer),
            ..self.meta
        };
        self
    }

    pub fn has_factors(&self) -> bool {
        self.meta.metric == Metric::Cosine && self.meta.quantizer.is_none()
    }

    fn graph_meta(&self, seed: u64) -> GraphMeta {
        let levels = self.upper.iter().map(|level| LevelMeta {
            nodes: level.len() as u32,
            links: level.iter().map(|(_, list)| list.len() as u64).sum(),
        });
        GraphMeta {
            m: M as u32,
            ef_construction: 100,
            seed,
            entry: self.upper.last().and_then(|level| level.last()).map(|&(id, _)| id),
            links: self.lists.iter().map(|list| list.len() as u64).sum(),
            levels: levels.collect(),
        }
    }

    pub fn write<W: io::Write>(&self, out: W) -> Result<(W, u64)> {
        let mut writer = SegmentWriter::begin(out, &self.meta)?;
        writer.keys(self.keys.iter().copied())?;
        writer.key_order(order_by_key(self.meta.rows, &|id| self.keys[id as usize])?)?;
        if !self.centre.is_empty() {
            writer.centre(&self.centre)?;
        }
        writer.codes(self.codes.chunks(19))?;
        if self.has_factors() {
            writer.factors(self.factors.iter().copied())?;
        }
        if self.meta.tombstones > 0 {
            writer.tombstones(self.removed.iter().copied())?;
        }
        if self.meta.kind == IndexKind::Hnsw {
            writer.links(|id, out| out.extend_from_slice(&self.lists[id as usize]))?;
            for (level, lists) in (1..).zip(&self.upper) {
                let nodes: Vec<u32> = lists.iter().map(|&(id, _)| id).collect();
                writer.upper(level, &nodes, |id, out| {
                    let at = nodes.binary_search(&id).unwrap();
                    out.extend_from_slice(&lists[at].1);
                })?;
            }
        }
        if self.meta.encoding != Encoding::F32 && self.meta.originals == Originals::None {
            writer.fingerprints(self.fingerprints.iter().copied())?;
        }
        if self.meta.originals != Originals::None {
            writer.try_originals(self.originals.chunks(23).map(Ok))?;
        }
        writer.finish()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (bytes, len) = self.write(Vec::new()).unwrap();
        assert_eq!(bytes.len() as u64, len);
        bytes
    }
}

/// Bytes in a row, as FORMAT.md has them.
pub fn stride_of(encoding: Encoding, dimension: usize) -> usize {
    match encoding {
        Encoding::F32 => 4 * dimension,
        Encoding::F16 => 2 * dimension,
        Encoding::Int8 => dimension + 8,
        Encoding::Int4 => dimension.div_ceil(2) + 8,
        Encoding::Bits1 => dimension.div_ceil(8) + 8,
        other => panic!("no stride of {other}"),
    }
}

fn floats(n: usize, random: &mut Random) -> Vec<u8> {
    (0..n).flat_map(|_| ((random.next() >> 40) as f32 / 1e6 - 8.0).to_le_bytes()).collect()
}

/// Any f16 but those that are infinite or not a number.
fn halves(n: usize, random: &mut Random) -> Vec<u8> {
    let mut half = || match random.next() as u16 {
        half if half & 0x7C00 == 0x7C00 => half & !0x4000,
        half => half,
    };
    (0..n).flat_map(|_| half().to_le_bytes()).collect()
}

/// Quantized rows of `len` bytes, of whose last only the bits `used` are set, and their factors.
fn codes(n: usize, len: usize, used: u8, random: &mut Random) -> Vec<u8> {
    let mut rows = Vec::new();
    for i in 0..n {
        rows.extend((0..len).map(|_| random.next() as u8));
        *rows.last_mut().expect("a row has a byte") &= used;
        rows.extend((i as f32 / 8.0).to_le_bytes());
        rows.extend((4.0 - i as f32).to_le_bytes());
    }
    rows
}

/// Up to `most` others of `nodes`; the first node gets as many as there are.
fn some_of(nodes: &[u32], id: u32, most: usize, random: &mut Random) -> Vec<u32> {
    let mut others: Vec<u32> = nodes.iter().copied().filter(|&other| other != id).collect();
    let most = most.min(others.len());
    let degree = if id == 0 { most } else { random.below(most + 1) };
    (0..degree).map(|_| others.swap_remove(random.below(others.len()))).collect()
}

pub const META: u32 = 1;
pub const KEYS: u32 = 2;
pub const KEY_ORDER: u32 = 3;
pub const CODES: u32 = 4;
pub const FACTORS: u32 = 5;
pub const ORIGINALS: u32 = 6;
pub const TOMBSTONES: u32 = 7;
pub const LINK_OFFSETS: u32 = 8;
pub const LINKS: u32 = 9;
pub const UPPER: u32 = 10;
pub const CHECKSUMS: u32 = 11;
pub const CENTRE: u32 = 12;
pub const FINGERPRINTS: u32 = 13;

/// Where the parts of an undamaged file lie.
#[derive(Clone)]
pub struct Map {
    /// Tag, offset and length.
    pub sections: Vec<(u32, usize, usize)>,
    pub table: usize,
}

pub fn get(bytes: &[u8], offset: usize, width: usize) -> u64 {
    bytes[offset..offset + width].iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b))
}

pub fn put(bytes: &mut [u8], offset: usize, width: usize, value: u64) {
    bytes[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

impl Map {
    pub fn of(bytes: &[u8]) -> Self {
        let table = get(bytes, 24, 8) as usize;
        let entry = |i: usize| {
            let at = table + 32 * i;
            (get(bytes, at, 4) as u32, get(bytes, at + 8, 8) as usize, get(bytes, at + 16, 8) as usize)
        };
        Map { sections: (0..get(bytes, 32, 4) as usize).map(entry).collect(), table }
    }

    pub fn section(&self, tag: u32) -> (usize, usize) {
        let found = self.sections.iter().find(|s| s.0 == tag).unwrap_or_else(|| panic!("no section {tag}"));
        (found.1, found.2)
    }

    /// Computes every checksum anew, from the inside out.
    pub fn reseal(&self, bytes: &mut [u8]) {
        let (checksums, len) = self.section(CHECKSUMS);
        let header = crc32(&bytes[..60]);
        put(bytes, 60, 4, header.into());
        for block in 0..len / 4 {
            let from = block << 16;
            let crc = crc32(&bytes[from..checksums.min(from + (1 << 16))]);
            put(bytes, checksums + 4 * block, 4, crc.into());
        }
        let tail = bytes.len() - 8;
        let crc = crc32(&bytes[checksums..checksums + len]);
        put(bytes, tail, 4, crc.into());
        // As long as the table says, as a reader has to take it.
        let meta = self.section(META).0;
        let meta_len = get(bytes, self.table + 16, 8).min((self.table - meta) as u64) as usize;
        let head = [&bytes[..64], &bytes[meta..meta + meta_len], &bytes[self.table..tail + 4]].concat();
        put(bytes, tail + 4, 4, crc32(&head).into());
    }

    /// A copy of `bytes` with one value changed and the checksums right.
    pub fn patched(&self, bytes: &[u8], offset: usize, width: usize, value: u64) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        put(&mut bytes, offset, width, value);
        self.reseal(&mut bytes);
        bytes
    }
}

/// CRC-32 of IEEE 802.3, by a table of bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &b| crc >> 8 ^ TABLE[(crc as u8 ^ b) as usize])
}
