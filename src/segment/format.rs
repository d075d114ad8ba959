//! The parts of a segment file that are fixed by the format: header, META, and the layout of sections that follows
//! from META. `FORMAT.md` has the byte diagrams.
//!
//! META determines every section's place and length, so writer and reader share one function, [`Layout::of`]: the
//! writer follows it, the reader demands it. A file is accepted only if its section table is that layout, which
//! settles alignment, order, overlap and bounds at once.

use crate::error::{Error, Result};
use crate::metric::{MAX_DIMENSION, Metric};
use crate::storage::MAX_ROWS;
use std::fmt;
use std::str::FromStr;

/// The first eight bytes of every segment file.
pub const MAGIC: [u8; 8] = [0x89, b'T', b'W', b'X', 0x0D, 0x0A, 0x1A, 0x0A];

/// The format version this build writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// The largest `m`: links a node may have on the upper levels (twice as many on level 0).
pub const MAX_M: usize = 256;

/// The largest `ef` and `ef_construction`.
pub const MAX_EF: usize = 1 << 20;

/// The highest level a node may have.
pub const MAX_LEVEL: usize = 63;

/// Bytes under one checksum.
pub const BLOCK: usize = 64 * 1024;

pub(crate) const HEADER_LEN: usize = 64;
pub(crate) const ALIGN: u64 = 64;
pub(crate) const ENTRY_LEN: usize = 32;
/// The two checksums behind the entries of the section table.
pub(crate) const TAIL_LEN: usize = 8;
/// Behind the codes of a quantized row: two `f32`.
const QUANTIZED_FACTORS: usize = 8;
/// Rows that share one record of LINK_OFFSETS.
pub(crate) const GROUP: usize = 64;
/// A record of LINK_OFFSETS: the index of the group's first link, then 64 starts relative to it.
pub(crate) const GROUP_RECORD: usize = 8 + 2 * GROUP;

const META_FIXED: usize = 128;
const META_LEVEL: usize = 16;
pub(crate) const META_MAX: usize = META_FIXED + META_LEVEL * MAX_LEVEL;
const META_RESERVED: usize = 48;
const HEADER_RESERVED: usize = 24;
/// The encoding is another than `f32`. A reader that knows only `f32` refuses such a file by this flag.
const FLAG_ENCODED: u32 = 1;
const KNOWN_FLAGS: u32 = FLAG_ENCODED;
const QUANTIZER_ROTATED: u8 = 1;
const QUANTIZER_CENTRED: u8 = 2;
const NO_ENTRY: u32 = u32::MAX;

/// How a segment is searched unless an exact scan is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexKind {
    /// Rows only: every search scans them all.
    Flat,
    /// Rows and the links of a hierarchical navigable small-world graph.
    Hnsw,
}

impl IndexKind {
    /// Both kinds, in the order of their tags.
    pub const ALL: [IndexKind; 2] = [IndexKind::Flat, IndexKind::Hnsw];

    /// The name used by the command line, JavaScript and in messages: `flat` or `hnsw`.
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::Flat => "flat",
            IndexKind::Hnsw => "hnsw",
        }
    }

    fn tag(self) -> u8 {
        match self {
            IndexKind::Flat => 0,
            IndexKind::Hnsw => 1,
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        IndexKind::ALL.into_iter().find(|k| k.name() == s).ok_or_else(|| Error::InvalidParameter {
            name: "kind",
            expected: "flat or hnsw",
            got: format!("{s:?}"),
        })
    }
}

/// How a vector became the bytes of a row in CODES.
///
/// | | row of d components | bytes | d = 768 |
/// |---|---|---|---|
/// | [`F32`](Self::F32) | 32-bit floats | 4·d | 3,072 |
/// | [`F16`](Self::F16) | 16-bit floats | 2·d | 1,536 |
/// | [`Int8`](Self::Int8) | 8-bit codes, then two `f32` factors | d + 8 | 776 |
/// | [`Int4`](Self::Int4) | 4-bit codes, then two `f32` factors | ⌈d / 2⌉ + 8 | 392 |
/// | [`Bits1`](Self::Bits1) | 1-bit codes, then two `f32` factors | ⌈d / 8⌉ + 8 | 104 |
///
/// ```
/// use twindex::segment::Encoding;
///
/// assert_eq!(Encoding::ALL.map(|encoding| encoding.stride(15)), [60, 30, 23, 16, 10]);
/// assert_eq!("int4".parse::<Encoding>()?, Encoding::Int4);
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// The components themselves, 32-bit little-endian floats: 4 bytes a component.
    F32,
    /// The components narrowed to 16-bit little-endian floats: 2 bytes a component. Under cosine they are those of the
    /// normalised vector.
    F16,
    /// 1 byte a component, a signed integer, and 8 bytes of factors a row.
    Int8,
    /// 4 bits a component, two to a byte, and 8 bytes of factors a row.
    Int4,
    /// 1 bit a component, eight to a byte, and 8 bytes of factors a row.
    Bits1,
}

impl Encoding {
    /// All encodings, in the order of their tags: from the largest rows to the smallest.
    pub const ALL: [Encoding; 5] = [Encoding::F32, Encoding::F16, Encoding::Int8, Encoding::Int4, Encoding::Bits1];

    /// The name used by the command line, JavaScript and in messages: `f32`, `f16`, `int8`, `int4` or `bits1`.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::F32 => "f32",
            Encoding::F16 => "f16",
            Encoding::Int8 => "int8",
            Encoding::Int4 => "int4",
            Encoding::Bits1 => "bits1",
        }
    }

    /// Bytes in a row of `dimension` components, factors included; `usize::MAX` where that is more than a `usize`
    /// holds, which no dimension up to [`MAX_DIMENSION`] comes near.
    pub const fn stride(self, dimension: usize) -> usize {
        let factors = if self.is_quantized() { QUANTIZED_FACTORS } else { 0 };
        self.code_bytes(dimension).saturating_add(factors)
    }

    /// Bytes of the components' codes in a row, without the factors behind them; at most `usize::MAX`, as
    /// [`stride`](Self::stride).
    pub const fn code_bytes(self, dimension: usize) -> usize {
        match self {
            Encoding::F32 => dimension.saturating_mul(4),
            Encoding::F16 => dimension.saturating_mul(2),
            Encoding::Int8 => dimension,
            Encoding::Int4 => dimension.div_ceil(2),
            Encoding::Bits1 => dimension.div_ceil(8),
        }
    }

    /// Whether rows are integer codes on a grid of their own scale, with two factors behind the codes, rather than
    /// floats: all but `f32` and `f16`.
    pub const fn is_quantized(self) -> bool {
        match self {
            Encoding::F32 | Encoding::F16 => false,
            Encoding::Int8 | Encoding::Int4 | Encoding::Bits1 => true,
        }
    }

    pub(crate) fn tag(self) -> u8 {
        match self {
            Encoding::F32 => 0,
            Encoding::F16 => 1,
            Encoding::Int8 => 2,
            Encoding::Int4 => 3,
            Encoding::Bits1 => 4,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        Encoding::ALL.into_iter().find(|e| e.tag() == tag)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Encoding {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Encoding::ALL.into_iter().find(|e| e.name() == s).ok_or_else(|| Error::InvalidParameter {
            name: "encoding",
            expected: "f32, f16, int8, int4 or bits1",
            got: format!("{s:?}"),
        })
    }
}

/// What of the vectors is kept beside their codes, in ORIGINALS: what reranking reads.
///
/// Where the encoding is [`Encoding::F32`], the codes are the originals, and this is [`None`](Self::None). Where it is
/// [`Encoding::F16`], the codes are the originals in f16, and this is not [`F16`](Self::F16).
///
/// ```
/// use twindex::segment::Originals;
///
/// assert_eq!(Originals::ALL.map(|originals| originals.stride(15)), [0, 30, 60]);
/// assert_eq!("f16".parse::<Originals>()?, Originals::F16);
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Originals {
    /// Nothing. Where the codes are not `f32`, a fingerprint of 4 bytes a row tells whether a vector that is handed in
    /// is the one a row came from.
    None,
    /// The vectors narrowed to 16-bit floats: 2 bytes a component.
    F16,
    /// The vectors as they were given: 4 bytes a component.
    F32,
}

impl Originals {
    /// All kinds, in the order of their tags.
    pub const ALL: [Originals; 3] = [Originals::None, Originals::F16, Originals::F32];

    /// The name used by the command line, JavaScript and in messages: `none`, `f16` or `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Originals::None => "none",
            Originals::F16 => "f16",
            Originals::F32 => "f32",
        }
    }

    /// Whether they hold more than the codes do: codes in `f32` are the originals, and codes in f16 are those in f16.
    pub fn suits(self, encoding: Encoding) -> bool {
        match (self, encoding) {
            (Originals::None, _) => true,
            (Originals::F16, Encoding::F16) => false,
            (_, encoding) => encoding != Encoding::F32,
        }
    }

    /// Bytes an original of `dimension` components takes: 0 for [`None`](Self::None), and at most `usize::MAX`, as
    /// [`Encoding::stride`].
    pub const fn stride(self, dimension: usize) -> usize {
        match self {
            Originals::None => 0,
            Originals::F16 => Encoding::F16.stride(dimension),
            Originals::F32 => Encoding::F32.stride(dimension),
        }
    }

    fn tag(self) -> u8 {
        match self {
            Originals::None => 0,
            Originals::F16 => 1,
            Originals::F32 => 2,
        }
    }

    fn from_tag(tag: u8) -> Option<Self> {
        Originals::ALL.into_iter().find(|o| o.tag() == tag)
    }
}

impl fmt::Display for Originals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Originals {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Originals::ALL.into_iter().find(|o| o.name() == s).ok_or_else(|| Error::InvalidParameter {
            name: "originals",
            expected: "none, f16 or f32",
            got: format!("{s:?}"),
        })
    }
}

/// What a segment is: the contents of META. Every length in the file follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Components of a vector, 1 ..= [`MAX_DIMENSION`].
    pub dimension: u32,
    /// How vectors are compared.
    pub metric: Metric,
    /// How rows are encoded.
    pub encoding: Encoding,
    /// Flat or HNSW; HNSW exactly if `graph` is there.
    pub kind: IndexKind,
    /// Rows, the removed ones included; at most [`MAX_ROWS`].
    pub rows: u32,
    /// Removed rows among them.
    pub tombstones: u32,
    /// Bytes in a row of CODES: what `encoding` says for `dimension`.
    pub stride: u32,
    /// The `ef` of a search that names none, 1 ..= [`MAX_EF`].
    pub ef: u32,
    /// What is kept of the vectors beside the codes: nothing where the encoding is `f32`.
    pub originals: Originals,
    /// How vectors were prepared for their codes; there exactly if the encoding is quantized.
    pub quantizer: Option<QuantizerMeta>,
    /// The graph, where there is one.
    pub graph: Option<GraphMeta>,
}

/// What was done to a vector before it was rounded to a quantized encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizerMeta {
    /// Whether it was rotated, by a rotation that follows from `seed`.
    pub rotated: bool,
    /// Whether a centre was subtracted: section CENTRE has it, unless there are no rows.
    pub centred: bool,
    /// Where the rotation came from.
    pub seed: u64,
}

/// Settings and sizes of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphMeta {
    /// Links a node may have on levels 1 and up, 2 ..= [`MAX_M`]; twice as many on level 0.
    pub m: u32,
    /// Candidates kept while the graph was built, 1 ..= [`MAX_EF`].
    pub ef_construction: u32,
    /// Where the levels came from.
    pub seed: u64,
    /// The node searches start from; `None` exactly if there are no rows.
    pub entry: Option<u32>,
    /// Links on level 0, all rows together.
    pub links: u64,
    /// The levels above: `levels[0]` is level 1. None is empty.
    pub levels: Vec<LevelMeta>,
}

/// Sizes of one level above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelMeta {
    /// Nodes that reach this level.
    pub nodes: u32,
    /// Their links, all together; at most `u32::MAX`.
    pub links: u64,
}

impl Meta {
    /// What contradicts the format, if anything does.
    fn fault(&self) -> Option<String> {
        let (rows, ef_max) = (u64::from(self.rows), MAX_EF as u64);
        if !(1..=MAX_DIMENSION as u64).contains(&u64::from(self.dimension)) {
            return Some(format!("dimension {} is not in 1 ..= {MAX_DIMENSION}", self.dimension));
        }
        if self.rows > MAX_ROWS {
            return Some(format!("{rows} rows are beyond the limit of {MAX_ROWS}"));
        }
        if self.tombstones > self.rows {
            return Some(format!("{} tombstones for {rows} rows", self.tombstones));
        }
        let stride = self.encoding.stride(self.dimension as usize);
        if self.stride as usize != stride {
            return Some(format!("stride {} where {} rows have {stride}", self.stride, self.encoding));
        }
        if !(1..=ef_max).contains(&u64::from(self.ef)) {
            return Some(format!("ef {} is not in 1 ..= {MAX_EF}", self.ef));
        }
        if !self.originals.suits(self.encoding) {
            return Some(format!("{} originals beside {} codes, which are the same", self.originals, self.encoding));
        }
        match (&self.quantizer, self.encoding.is_quantized()) {
            (None, true) => return Some(format!("{} without a quantizer", self.encoding)),
            (Some(_), false) => return Some(format!("{} with settings of a quantizer", self.encoding)),
            _ => {}
        }
        match (&self.graph, self.kind) {
            (None, IndexKind::Flat) => None,
            (Some(graph), IndexKind::Hnsw) => graph.fault(self.rows),
            (None, IndexKind::Hnsw) => Some("hnsw without a graph".into()),
            (Some(_), IndexKind::Flat) => Some("flat with a graph".into()),
        }
    }

    /// Whether there is a section CENTRE.
    pub(crate) fn has_centre(&self) -> bool {
        self.rows > 0 && self.quantizer.is_some_and(|q| q.centred)
    }

    /// Whether there is a section FACTORS: quantized rows have their factors behind their codes.
    pub(crate) fn has_factors(&self) -> bool {
        self.metric == Metric::Cosine && !self.encoding.is_quantized()
    }

    /// Whether there is a section FINGERPRINTS: for rows whose vector is not in the file.
    pub(crate) fn has_fingerprints(&self) -> bool {
        self.encoding != Encoding::F32 && self.originals == Originals::None
    }

    /// Refuses what the format cannot hold.
    pub(crate) fn validate(&self) -> Result<()> {
        self.fault().map_or(Ok(()), |got| {
            Err(Error::InvalidParameter { name: "meta", expected: "values within the limits of the format", got })
        })
    }

    /// The bytes of META.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let graph = self.graph.as_ref();
        let levels = graph.map_or(&[][..], |g| &g.levels);
        let mut out = Vec::with_capacity(META_FIXED + META_LEVEL * levels.len());
        out.extend_from_slice(&self.dimension.to_le_bytes());
        let level_count = u8::try_from(levels.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&[self.metric.tag(), self.encoding.tag(), self.kind.tag(), level_count]);
        out.extend_from_slice(&u64::from(self.rows).to_le_bytes());
        out.extend_from_slice(&u64::from(self.tombstones).to_le_bytes());
        out.extend_from_slice(&self.stride.to_le_bytes());
        out.extend_from_slice(&self.ef.to_le_bytes());
        out.extend_from_slice(&graph.map_or(0, |g| g.m).to_le_bytes());
        out.extend_from_slice(&graph.map_or(0, |g| g.ef_construction).to_le_bytes());
        out.extend_from_slice(&graph.map_or(0, |g| g.seed).to_le_bytes());
        out.extend_from_slice(&graph.and_then(|g| g.entry).unwrap_or(NO_ENTRY).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&graph.map_or(0, |g| g.links).to_le_bytes());
        let quantizer = self.quantizer.unwrap_or(QuantizerMeta::NONE);
        out.extend_from_slice(&[self.originals.tag(), quantizer.flags()]);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&quantizer.seed.to_le_bytes());
        out.resize(out.len() + META_RESERVED, 0);
        for level in levels {
            out.extend_from_slice(&level.nodes.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&level.links.to_le_bytes());
        }
        out
    }

    /// Reads and judges META.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut f = Fields { rest: bytes, section: "META" };
        let dimension = f.u32()?;
        let [metric, encoding, kind, level_count] = f.take()?;
        let metric = Metric::from_tag(metric).ok_or_else(|| f.corrupt(format!("unknown metric tag {metric}")))?;
        let encoding =
            Encoding::from_tag(encoding).ok_or_else(|| f.corrupt(format!("unknown encoding tag {encoding}")))?;
        let kind = IndexKind::ALL
            .into_iter()
            .find(|k| k.tag() == kind)
            .ok_or_else(|| f.corrupt(format!("unknown index kind tag {kind}")))?;
        let rows = f.u64()?;
        let tombstones = f.u64()?;
        let rows = u32::try_from(rows).map_err(|_| f.corrupt(format!("{rows} rows are beyond {MAX_ROWS}")))?;
        let tombstones =
            u32::try_from(tombstones).map_err(|_| f.corrupt(format!("{tombstones} tombstones for {rows} rows")))?;
        let stride = f.u32()?;
        let ef = f.u32()?;
        let m = f.u32()?;
        let ef_construction = f.u32()?;
        let seed = f.u64()?;
        let entry = Some(f.u32()?).filter(|&id| id != NO_ENTRY);
        f.zeros(4)?;
        let links = f.u64()?;
        let [originals, flags] = f.take()?;
        f.zeros(6)?;
        let quantizer_seed = f.u64()?;
        f.zeros(META_RESERVED)?;
        let originals =
            Originals::from_tag(originals).ok_or_else(|| f.corrupt(format!("unknown originals tag {originals}")))?;
        let quantizer = QuantizerMeta::from_flags(flags, quantizer_seed)
            .ok_or_else(|| f.corrupt(format!("unknown quantizer flags {flags:#04x}")))?;
        let quantizer = match encoding.is_quantized() {
            true => Some(quantizer),
            false if quantizer == QuantizerMeta::NONE => None,
            false => return Err(f.corrupt(format!("{encoding} with settings of a quantizer"))),
        };
        let level_count = usize::from(level_count);
        if f.rest.len() != META_LEVEL * level_count {
            return Err(f.corrupt(format!("{} bytes for {level_count} upper levels", f.rest.len())));
        }
        let mut levels = Vec::with_capacity(level_count);
        for _ in 0..level_count {
            let nodes = f.u32()?;
            f.zeros(4)?;
            levels.push(LevelMeta { nodes, links: f.u64()? });
        }
        let graph = GraphMeta { m, ef_construction, seed, entry, links, levels };
        let graph = match kind {
            IndexKind::Hnsw => Some(graph),
            IndexKind::Flat if graph == GraphMeta::NONE => None,
            IndexKind::Flat => return Err(f.corrupt("flat with settings of a graph")),
        };
        let meta =
            Meta { dimension, metric, encoding, kind, rows, tombstones, stride, ef, originals, quantizer, graph };
        match meta.fault() {
            None => Ok(meta),
            Some(reason) => Err(f.corrupt(reason)),
        }
    }
}

impl QuantizerMeta {
    /// What the fields of a segment that is not quantized say.
    const NONE: QuantizerMeta = QuantizerMeta { rotated: false, centred: false, seed: 0 };

    fn flags(self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.rotated, QUANTIZER_ROTATED) | flag(self.centred, QUANTIZER_CENTRED)
    }

    fn from_flags(flags: u8, seed: u64) -> Option<Self> {
        let known = flags & !(QUANTIZER_ROTATED | QUANTIZER_CENTRED) == 0;
        known.then_some(QuantizerMeta {
            rotated: flags & QUANTIZER_ROTATED != 0,
            centred: flags & QUANTIZER_CENTRED != 0,
            seed,
        })
    }
}

impl GraphMeta {
    /// What the fields of a flat segment say.
    const NONE: GraphMeta = GraphMeta { m: 0, ef_construction: 0, seed: 0, entry: None, links: 0, levels: Vec::new() };

    fn fault(&self, rows: u32) -> Option<String> {
        if !(2..=MAX_M as u64).contains(&u64::from(self.m)) {
            return Some(format!("m {} is not in 2 ..= {MAX_M}", self.m));
        }
        if !(1..=MAX_EF as u64).contains(&u64::from(self.ef_construction)) {
            return Some(format!("ef_construction {} is not in 1 ..= {MAX_EF}", self.ef_construction));
        }
        match self.entry {
            Some(entry) if entry >= rows => return Some(format!("entry point {entry} of {rows} rows")),
            None if rows > 0 => return Some(format!("no entry point for {rows} rows")),
            _ => {}
        }
        let m = u64::from(self.m);
        if self.links > 2 * m * u64::from(rows) {
            return Some(format!("{} links on level 0, more than {rows} rows may have", self.links));
        }
        if self.levels.len() > MAX_LEVEL {
            return Some(format!("level {} is beyond the limit of {MAX_LEVEL}", self.levels.len()));
        }
        let mut below = rows;
        for (level, &LevelMeta { nodes, links }) in (1..).zip(&self.levels) {
            if nodes == 0 || nodes > below {
                return Some(format!("{nodes} nodes on level {level}, {below} on the level below"));
            }
            if links > m * u64::from(nodes) || links > u64::from(u32::MAX) {
                return Some(format!("{links} links on level {level}, more than its {nodes} nodes may have"));
            }
            below = nodes;
        }
        None
    }
}

/// The sections, in the order in which they lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Meta,
    Keys,
    KeyOrder,
    Centre,
    Codes,
    Factors,
    Tombstones,
    LinkOffsets,
    Links,
    Upper,
    Fingerprints,
    Originals,
    Checksums,
}

impl SectionKind {
    const ALL: [SectionKind; 13] = [
        SectionKind::Meta,
        SectionKind::Keys,
        SectionKind::KeyOrder,
        SectionKind::Centre,
        SectionKind::Codes,
        SectionKind::Factors,
        SectionKind::Tombstones,
        SectionKind::LinkOffsets,
        SectionKind::Links,
        SectionKind::Upper,
        SectionKind::Fingerprints,
        SectionKind::Originals,
        SectionKind::Checksums,
    ];

    /// The most entries a section table can have.
    pub(crate) const COUNT: usize = SectionKind::ALL.len();

    pub(crate) fn name(self) -> &'static str {
        match self {
            SectionKind::Meta => "META",
            SectionKind::Keys => "KEYS",
            SectionKind::KeyOrder => "KEY_ORDER",
            SectionKind::Centre => "CENTRE",
            SectionKind::Codes => "CODES",
            SectionKind::Factors => "FACTORS",
            SectionKind::Tombstones => "TOMBSTONES",
            SectionKind::LinkOffsets => "LINK_OFFSETS",
            SectionKind::Links => "LINKS",
            SectionKind::Upper => "UPPER",
            SectionKind::Fingerprints => "FINGERPRINTS",
            SectionKind::Originals => "ORIGINALS",
            SectionKind::Checksums => "CHECKSUMS",
        }
    }

    fn tag(self) -> u32 {
        match self {
            SectionKind::Meta => 1,
            SectionKind::Keys => 2,
            SectionKind::KeyOrder => 3,
            SectionKind::Codes => 4,
            SectionKind::Factors => 5,
            SectionKind::Originals => 6,
            SectionKind::Tombstones => 7,
            SectionKind::LinkOffsets => 8,
            SectionKind::Links => 9,
            SectionKind::Upper => 10,
            SectionKind::Checksums => 11,
            SectionKind::Centre => 12,
            SectionKind::Fingerprints => 13,
        }
    }
}

/// Where one section lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub kind: SectionKind,
    /// Bytes in one element.
    pub element: u32,
    pub offset: u64,
    pub len: u64,
}

impl Place {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }

    fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        out[0..4].copy_from_slice(&self.kind.tag().to_le_bytes());
        out[4..8].copy_from_slice(&self.element.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.len.to_le_bytes());
        out[24..32].copy_from_slice(&(self.len / u64::from(self.element)).to_le_bytes());
        out
    }
}

/// Where everything lies: a function of META alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub places: Vec<Place>,
    pub table_offset: u64,
    pub file_len: u64,
}

impl Layout {
    /// The layout of a segment with this (valid) META.
    pub(crate) fn of(meta: &Meta) -> Result<Self> {
        let rows = u64::from(meta.rows);
        let mut layout = Layout { places: Vec::with_capacity(SectionKind::COUNT), table_offset: 0, file_len: 0 };
        let levels = meta.graph.as_ref().map_or(&[][..], |g| &g.levels);
        layout.place(SectionKind::Meta, 1, (META_FIXED + META_LEVEL * levels.len()) as u64)?;
        layout.place(SectionKind::Keys, 8, rows)?;
        layout.place(SectionKind::KeyOrder, 4, rows)?;
        if meta.has_centre() {
            layout.place(SectionKind::Centre, 4, u64::from(meta.dimension))?;
        }
        layout.place(SectionKind::Codes, meta.stride, rows)?;
        if meta.has_factors() {
            layout.place(SectionKind::Factors, 4, rows)?;
        }
        if meta.tombstones > 0 {
            layout.place(SectionKind::Tombstones, 1, rows.div_ceil(8))?;
        }
        if let Some(graph) = &meta.graph {
            let groups = rows.div_ceil(GROUP as u64);
            layout.place(SectionKind::LinkOffsets, 8, groups * (GROUP_RECORD as u64 / 8) + 1)?;
            layout.place(SectionKind::Links, 4, graph.links)?;
            if !levels.is_empty() {
                let words = levels
                    .iter()
                    .try_fold(0_u64, |sum, l| sum.checked_add(2 * u64::from(l.nodes) + 1)?.checked_add(l.links));
                layout.place(SectionKind::Upper, 4, words.ok_or_else(too_large)?)?;
            }
        }
        if meta.has_fingerprints() {
            layout.place(SectionKind::Fingerprints, 4, rows)?;
        }
        if meta.originals != Originals::None {
            let stride = meta.originals.stride(meta.dimension as usize);
            layout.place(SectionKind::Originals, u32::try_from(stride).map_err(|_| too_large())?, rows)?;
        }
        let blocks = align(layout.end())?.div_ceil(BLOCK as u64);
        layout.place(SectionKind::Checksums, 4, blocks)?;
        layout.table_offset = align(layout.end())?;
        let table_len = (ENTRY_LEN * layout.places.len() + TAIL_LEN) as u64;
        layout.file_len = layout.table_offset.checked_add(table_len).ok_or_else(too_large)?;
        Ok(layout)
    }

    fn place(&mut self, kind: SectionKind, element: u32, count: u64) -> Result<()> {
        let offset = align(self.end())?;
        let len = count.checked_mul(u64::from(element)).ok_or_else(too_large)?;
        offset.checked_add(len).ok_or_else(too_large)?;
        self.places.push(Place { kind, element, offset, len });
        Ok(())
    }

    fn end(&self) -> u64 {
        self.places.last().map_or(HEADER_LEN as u64, Place::end)
    }

    pub(crate) fn get(&self, kind: SectionKind) -> Option<Place> {
        self.places.iter().copied().find(|p| p.kind == kind)
    }

    pub(crate) fn encode_table(&self) -> Vec<u8> {
        self.places.iter().flat_map(Place::encode).collect()
    }

    /// Whether `table` (entries only) is the table of this layout; if not, what is wrong with it.
    pub(crate) fn check_table(&self, table: &[u8]) -> Result<()> {
        let mut f = Fields { rest: table, section: "TABLE" };
        for at in 0..table.len() / ENTRY_LEN {
            let tag = f.u32()?;
            let got = (u64::from(f.u32()?), f.u64()?, f.u64()?, f.u64()?);
            let kind = SectionKind::ALL
                .into_iter()
                .find(|k| k.tag() == tag)
                .ok_or_else(|| f.corrupt(format!("entry {at} has unknown kind {tag}")))?;
            let Some(place) = self.places.get(at).filter(|p| p.kind == kind) else {
                let wanted = self.places.get(at).map_or("the end of the table", |p| p.kind.name());
                return Err(f.corrupt(format!("entry {at} is {}, META asks for {wanted}", kind.name())));
            };
            let wanted = (u64::from(place.element), place.offset, place.len, place.len / u64::from(place.element));
            for (what, got, wanted) in [
                ("element size", got.0, wanted.0),
                ("offset", got.1, wanted.1),
                ("length", got.2, wanted.2),
                ("count", got.3, wanted.3),
            ] {
                if got != wanted {
                    let reason = format!("{what} {got} in the section table, META implies {wanted}");
                    return Err(Error::Corrupt { section: kind.name(), reason });
                }
            }
        }
        if table.len() != ENTRY_LEN * self.places.len() {
            let got = table.len() / ENTRY_LEN;
            return Err(f.corrupt(format!("{got} sections, META asks for {}", self.places.len())));
        }
        Ok(())
    }
}

fn align(offset: u64) -> Result<u64> {
    offset.checked_next_multiple_of(ALIGN).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::TooLarge { what: "segment, in bytes", limit: u64::MAX, got: u64::MAX }
}

/// What the first 64 bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub flags: u32,
    pub file_len: u64,
    pub table_offset: u64,
    pub table_count: u32,
}

impl Header {
    /// The header of a segment with this META, whose layout is `layout`.
    pub(crate) fn of(meta: &Meta, layout: &Layout) -> Result<Self> {
        let table_count = u32::try_from(layout.places.len()).map_err(|_| too_large())?;
        let flags = if meta.encoding == Encoding::F32 { 0 } else { FLAG_ENCODED };
        Ok(Header { flags, file_len: layout.file_len, table_offset: layout.table_offset, table_count })
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.flags.to_le_bytes());
        out[16..24].copy_from_slice(&self.file_len.to_le_bytes());
        out[24..32].copy_from_slice(&self.table_offset.to_le_bytes());
        out[32..36].copy_from_slice(&self.table_count.to_le_bytes());
        let crc = super::crc::hash(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Judges the version before the checksum, so that a newer file is called newer, not damaged.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self> {
        let mut f = Fields { rest: bytes, section: "HEADER" };
        if f.take::<8>()? != MAGIC {
            return Err(Error::NotASegment);
        }
        match f.u32()? {
            0 => return Err(f.corrupt("format version 0")),
            VERSION => {}
            got => return Err(Error::UnsupportedVersion { supported: VERSION, got }),
        }
        let flags = f.u32()?;
        let header = Header { flags, file_len: f.u64()?, table_offset: f.u64()?, table_count: f.u32()? };
        let mut reserved = Fields { rest: f.bytes(HEADER_RESERVED)?, section: "HEADER" };
        let (expected, got) = (f.u32()?, super::crc::hash(&bytes[..60]));
        if expected != got {
            return Err(Error::ChecksumMismatch { offset: 0, expected, got });
        }
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Error::UnsupportedFeatures { flags: flags & !KNOWN_FLAGS });
        }
        reserved.zeros(HEADER_RESERVED)?;
        Ok(header)
    }
}

/// Takes little-endian fields off the front of a slice.
struct Fields<'a> {
    rest: &'a [u8],
    section: &'static str,
}

impl<'a> Fields<'a> {
    fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::Corrupt { section: self.section, reason: reason.into() }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.corrupt("too short"))?;
        self.rest = rest;
        Ok(*head)
    }

    fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.corrupt("too short"))?;
        self.rest = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn zeros(&mut self, n: usize) -> Result<()> {
        match self.bytes(n)?.iter().all(|&b| b == 0) {
            true => Ok(()),
            false => Err(self.corrupt("reserved bytes are not zero")),
        }
    }
}
