//! Opens a segment in O(header) and answers from it; [`Segment::verify`] reads the rest.
//!
//! Opening judges header, META and section table before anything is allocated. What those three cannot vouch for —
//! keys, order, links — is judged when it is read: every view checks bounds, so damage gives wrong or missing
//! answers, never a panic, an id out of range or a walk without end.

use super::format::{
    ENTRY_LEN, GROUP, GROUP_RECORD, HEADER_LEN, Header, Layout, META_MAX, Meta, Place, SectionKind, TAIL_LEN,
};
use crate::error::{Error, Result};
use crate::storage::{Section, SectionRows, Storage, reserve};
use std::fmt;
use std::sync::Arc;

/// A segment in a [`Storage`].
///
/// Keys, factors, tombstones and links are resident: borrowed where the storage is, copied in at open where it is
/// not. Rows, originals and fingerprints stay where they are. Views ([`keys`](Self::keys), [`links`](Self::links), …)
/// are cheap: make one for a search, not one for an access.
pub struct Segment<S: ?Sized> {
    pub(super) storage: Arc<S>,
    pub(super) meta: Meta,
    pub(super) layout: Layout,
    /// Of the section CHECKSUMS.
    pub(super) checksums_crc: u32,
    keys: Section<S>,
    key_order: Section<S>,
    centre: Option<Section<S>>,
    codes: SectionRows<S>,
    factors: Option<Section<S>>,
    tombstones: Option<Section<S>>,
    graph: Option<GraphSections<S>>,
    fingerprints: Option<SectionRows<S>>,
    originals: Option<SectionRows<S>>,
}

struct GraphSections<S: ?Sized> {
    offsets: Section<S>,
    links: Section<S>,
    upper: Option<Section<S>>,
    spans: Vec<LevelSpan>,
}

/// Where the three arrays of a level lie in UPPER, in 4-byte words.
#[derive(Debug, Clone, Copy)]
struct LevelSpan {
    nodes: usize,
    offsets: usize,
    links: usize,
    end: usize,
}

impl<S: Storage + ?Sized> Segment<S> {
    /// Reads header, META and section table and refuses a file that is not exactly what they must say. Where
    /// `storage` is not resident, keys, factors, tombstones and links are then copied into memory; rows, originals and
    /// fingerprints are not.
    ///
    /// # Errors
    /// [`Error::NotASegment`], [`Error::UnsupportedVersion`], [`Error::UnsupportedFeatures`], [`Error::Truncated`],
    /// [`Error::ChecksumMismatch`] or [`Error::Corrupt`] by what is wrong; [`Error::OutOfMemory`] where a copy is
    /// refused; whatever the storage says.
    pub fn open(storage: Arc<S>) -> Result<Self> {
        let len = storage.len();
        let mut header_bytes = [0; HEADER_LEN];
        if len < HEADER_LEN as u64 {
            return Err(refuse_stub(&*storage, len)?);
        }
        storage.read_into(0, &mut header_bytes)?;
        let header = Header::decode(&header_bytes)?;
        let table = read_table(&*storage, &header)?;
        let (entries, tail) = table.split_at(table.len() - TAIL_LEN);
        let meta_bytes = read_meta(&*storage, entries)?;

        let (checksums_crc, expected) = (word(tail, 0), word(tail, 1));
        let mut crc = super::crc::Hasher::new();
        crc.update(&header_bytes);
        crc.update(&meta_bytes);
        crc.update(&table[..table.len() - 4]);
        let got = crc.finalize();
        if expected != got {
            return Err(Error::ChecksumMismatch { offset: header.table_offset, expected, got });
        }

        let meta = Meta::decode(&meta_bytes)?;
        let layout = Layout::of(&meta)?;
        layout.check_table(entries)?;
        let implied = Header::of(&meta, &layout)?;
        if implied != header {
            let places = |header: &Header| format!("sections up to {} of {}", header.table_offset, header.file_len);
            let reason = format!("{} in the header, META implies {}", places(&header), places(&implied));
            return Err(Error::Corrupt { section: "HEADER", reason });
        }
        Self::with_layout(storage, meta, layout, checksums_crc)
    }

    fn with_layout(storage: Arc<S>, meta: Meta, layout: Layout, checksums_crc: u32) -> Result<Self> {
        let optional = |kind| {
            let section = |place: Place| -> Result<Section<S>> {
                let mut section = Section::new(Arc::clone(&storage), place.offset, place.len)?;
                if !on_demand(kind) {
                    section.make_resident()?;
                }
                Ok(section)
            };
            layout.get(kind).map(section).transpose()
        };
        let required = |kind: SectionKind| {
            let missing = || Error::Corrupt { section: kind.name(), reason: "missing".into() };
            optional(kind)?.ok_or_else(missing)
        };
        let rows = |kind: SectionKind, stride: usize| {
            optional(kind)?.map(|section| SectionRows::new(section, stride)).transpose()
        };
        let graph = match &meta.graph {
            None => None,
            Some(graph) => {
                let mut spans = Vec::with_capacity(graph.levels.len());
                let mut at = 0;
                for level in &graph.levels {
                    let nodes = level.nodes as usize;
                    let span = usize::try_from(level.links).ok().and_then(|links| {
                        let (offsets, first) =
                            (nodes.checked_add(at)?, nodes.checked_mul(2)?.checked_add(at.checked_add(1)?)?);
                        Some(LevelSpan { nodes: at, offsets, links: first, end: first.checked_add(links)? })
                    });
                    let too_large = || Error::TooLarge { what: "links", limit: usize::MAX as u64, got: level.links };
                    let span = span.ok_or_else(too_large)?;
                    at = span.end;
                    spans.push(span);
                }
                Some(GraphSections {
                    offsets: required(SectionKind::LinkOffsets)?,
                    links: required(SectionKind::Links)?,
                    upper: optional(SectionKind::Upper)?,
                    spans,
                })
            }
        };
        Ok(Segment {
            keys: required(SectionKind::Keys)?,
            key_order: required(SectionKind::KeyOrder)?,
            centre: optional(SectionKind::Centre)?,
            codes: SectionRows::new(required(SectionKind::Codes)?, meta.stride as usize)?,
            factors: optional(SectionKind::Factors)?,
            tombstones: optional(SectionKind::Tombstones)?,
            graph,
            fingerprints: rows(SectionKind::Fingerprints, 4)?,
            originals: rows(SectionKind::Originals, meta.originals.stride(meta.dimension as usize))?,
            checksums_crc,
            storage: Arc::clone(&storage),
            meta,
            layout: layout.clone(),
        })
    }

    /// What the segment is.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The storage it lies in.
    pub fn storage(&self) -> &Arc<S> {
        &self.storage
    }

    /// Length of the file, in bytes.
    pub fn file_len(&self) -> u64 {
        self.layout.file_len
    }

    /// Bytes up to where fingerprints and originals begin: what searches touch lies before, if they do not rerank. The
    /// whole file, where there are neither.
    pub fn searched_len(&self) -> u64 {
        let beyond = [SectionKind::Fingerprints, SectionKind::Originals];
        beyond
            .into_iter()
            .filter_map(|kind| self.layout.get(kind))
            .map(|place| place.offset)
            .min()
            .unwrap_or(self.file_len())
    }

    /// Name and length in bytes of each section, in the order of the file; header and section table are named too.
    /// Only padding is missing from the sum.
    pub fn section_bytes(&self) -> Vec<(&'static str, u64)> {
        let sections = self.layout.places.iter().map(|p| (p.kind.name(), p.len));
        let table = self.layout.file_len - self.layout.table_offset;
        [("HEADER", HEADER_LEN as u64)].into_iter().chain(sections).chain([("TABLE", table)]).collect()
    }

    /// Memory taken by copies of sections, in bytes: 0 where the storage is resident.
    pub fn owned_bytes(&self) -> u64 {
        let graph = self.graph.iter().flat_map(|g| [Some(&g.offsets), Some(&g.links), g.upper.as_ref()]);
        let rest = [Some(&self.keys), Some(&self.key_order), Some(self.codes.section())];
        let rows = [&self.fingerprints, &self.originals].map(|rows| rows.as_ref().map(SectionRows::section));
        let optional = [self.centre.as_ref(), self.factors.as_ref(), self.tombstones.as_ref(), rows[0], rows[1]];
        graph.chain(rest).chain(optional).flatten().map(Section::owned_bytes).sum()
    }

    /// The rows.
    pub fn codes(&self) -> &SectionRows<S> {
        &self.codes
    }

    /// Copies the rows into memory, unless they are resident already.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; whatever the storage says. The segment is then as it was.
    pub fn make_codes_resident(&mut self) -> Result<()> {
        self.codes.make_resident()
    }

    /// The keys.
    pub fn keys(&self) -> KeysView<'_> {
        KeysView { keys: chunks(&self.keys), order: chunks(&self.key_order) }
    }

    /// What was subtracted from the vectors before they were rounded to their codes; only a quantized segment with
    /// rows may have it. Read anew at each call, O(dimension).
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a component is not finite, [`Error::OutOfMemory`]; whatever the storage says.
    pub fn centre(&self) -> Result<Option<Vec<f32>>> {
        let Some(section) = &self.centre else { return Ok(None) };
        let (mut bytes, mut centre) = (Vec::new(), Vec::new());
        let dimension = self.meta.dimension as usize;
        reserve(&mut bytes, 4 * dimension)?;
        reserve(&mut centre, dimension)?;
        bytes.resize(4 * dimension, 0);
        section.read_into(0, &mut bytes)?;
        let components: Words<'_> = bytes.as_chunks().0;
        centre.extend(components.iter().map(|b| f32::from_le_bytes(*b)));
        match centre.iter().position(|x| !x.is_finite()) {
            None => Ok(Some(centre)),
            Some(at) => {
                let reason = format!("component {at} is not finite");
                Err(Error::Corrupt { section: SectionKind::Centre.name(), reason })
            }
        }
    }

    /// The vectors as they were given or nearly so: [`Meta::originals`] says which. `None` where the file keeps none.
    pub fn originals(&self) -> Option<&SectionRows<S>> {
        self.originals.as_ref()
    }

    /// For each row the CRC-32 of the vector it came from, in rows of 4 bytes, little-endian: there where the codes
    /// are not `f32` and the file keeps no originals. They are what the writer was given; nothing in the file says
    /// whether they are right.
    pub fn fingerprints(&self) -> Option<&SectionRows<S>> {
        self.fingerprints.as_ref()
    }

    /// The factors; only a cosine segment whose rows are floats has them.
    pub fn factors(&self) -> Option<FactorsView<'_>> {
        self.factors.as_ref().map(|section| FactorsView { factors: chunks(section) })
    }

    /// The removed rows.
    pub fn tombstones(&self) -> TombstonesView<'_> {
        TombstonesView { bits: self.tombstones.as_ref().and_then(Section::as_slice).unwrap_or_default() }
    }

    /// The graph, where there is one.
    pub fn links(&self) -> Option<LinksView<'_>> {
        let (sections, graph) = (self.graph.as_ref()?, self.meta.graph.as_ref()?);
        let (groups, last) = sections.offsets.as_slice().unwrap_or_default().as_chunks();
        Some(LinksView {
            rows: self.meta.rows,
            m: graph.m as usize,
            entry: graph.entry,
            groups,
            last: last.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)),
            links: chunks(&sections.links),
            upper: sections.upper.as_ref().map(chunks).unwrap_or_default(),
            spans: &sections.spans,
        })
    }
}

impl<S: ?Sized> fmt::Debug for Segment<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("meta", &self.meta)
            .field("file_len", &self.layout.file_len)
            .finish_non_exhaustive()
    }
}

/// Why something shorter than a header is no segment.
fn refuse_stub<S: Storage + ?Sized>(storage: &S, len: u64) -> Result<Error> {
    let mut start = [0; 8];
    let start = &mut start[..len.min(8) as usize];
    storage.read_into(0, start)?;
    Ok(match super::format::MAGIC.starts_with(start) {
        true => Error::Truncated { expected: HEADER_LEN as u64, got: len },
        false => Error::NotASegment,
    })
}

/// The section table with its two checksums; its place has to be what the header says, to the byte.
fn read_table<S: Storage + ?Sized>(storage: &S, header: &Header) -> Result<Vec<u8>> {
    let corrupt = |reason: String| Error::Corrupt { section: "HEADER", reason };
    let got = storage.len();
    if header.file_len > got {
        return Err(Error::Truncated { expected: header.file_len, got });
    }
    if header.file_len < got {
        return Err(corrupt(format!("{} bytes behind the end of the segment", got - header.file_len)));
    }
    let count = header.table_count as usize;
    if !(1..=SectionKind::COUNT).contains(&count) {
        return Err(corrupt(format!("a table of {count} sections")));
    }
    let len = ENTRY_LEN * count + TAIL_LEN;
    if header.table_offset.checked_add(len as u64) != Some(header.file_len) {
        let reason = format!("a section table of {len} bytes at {} of {got}", header.table_offset);
        return Err(corrupt(reason));
    }
    let mut table = vec![0; len];
    storage.read_into(header.table_offset, &mut table)?;
    Ok(table)
}

/// META, which is the first entry of the table and lies right behind the header.
fn read_meta<S: Storage + ?Sized>(storage: &S, entries: &[u8]) -> Result<Vec<u8>> {
    let len = (u64::from(word(entries, 5)) << 32) | u64::from(word(entries, 4));
    let len = usize::try_from(len).ok().filter(|&len| len <= META_MAX);
    let Some(len) = len else {
        return Err(Error::Corrupt { section: "TABLE", reason: "the first section is too long to be META".into() });
    };
    let mut meta = vec![0; len];
    storage.read_into(HEADER_LEN as u64, &mut meta)?;
    Ok(meta)
}

/// Whether the section stays in its storage: rows, which may be most of the file, and what is read at most once for
/// a row that is found, or once for all of them.
fn on_demand(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::Codes | SectionKind::Centre | SectionKind::Fingerprints | SectionKind::Originals)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.as_chunks().0.get(at).map_or(0, |b| u32::from_le_bytes(*b))
}

/// The elements of a section that is resident (as all are that [`on_demand`] does not name).
fn chunks<S: Storage + ?Sized, const N: usize>(section: &Section<S>) -> &[[u8; N]] {
    section.as_slice().unwrap_or_default().as_chunks().0
}

/// Keys by id, and ids by key.
#[derive(Debug, Clone, Copy)]
pub struct KeysView<'a> {
    keys: &'a [[u8; 8]],
    order: &'a [[u8; 4]],
}

impl<'a> KeysView<'a> {
    /// The key of a row; `None` beyond the rows.
    #[inline]
    pub fn get(&self, id: u32) -> Option<u64> {
        self.keys.get(id as usize).map(|b| u64::from_le_bytes(*b))
    }

    /// All keys, in the order of ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.keys.iter().map(|b| u64::from_le_bytes(*b))
    }

    /// The ids in the order of their keys, as stored.
    pub(super) fn order(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.order.iter().map(|b| u32::from_le_bytes(*b))
    }

    /// The rows with this key, ascending: at most one that is not removed. O(log n) by binary search; where the order
    /// is damaged some may be missed, but all that come have the key.
    pub fn find(&self, key: u64) -> impl Iterator<Item = u32> + 'a {
        let view = *self;
        let first = self.order.partition_point(|b| view.get(u32::from_le_bytes(*b)).is_some_and(|k| k < key));
        let ids = self.order.get(first..).unwrap_or_default().iter().map(|b| u32::from_le_bytes(*b));
        ids.take_while(move |&id| view.get(id) == Some(key))
    }
}

/// One factor a row.
#[derive(Debug, Clone, Copy)]
pub struct FactorsView<'a> {
    factors: &'a [[u8; 4]],
}

impl<'a> FactorsView<'a> {
    /// The factor of a row; `None` beyond the rows. Damaged ones may be any number, NaN included.
    #[inline]
    pub fn get(&self, id: u32) -> Option<f32> {
        self.factors.get(id as usize).map(|b| f32::from_le_bytes(*b))
    }

    /// All factors, in the order of ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f32> + 'a {
        self.factors.iter().map(|b| f32::from_le_bytes(*b))
    }

    /// The bytes, four to a factor, little-endian.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.factors.as_flattened()
    }
}

/// Which rows are removed.
#[derive(Debug, Clone, Copy)]
pub struct TombstonesView<'a> {
    bits: &'a [u8],
}

impl<'a> TombstonesView<'a> {
    /// Whether the row is removed.
    #[inline]
    pub fn contains(&self, id: u32) -> bool {
        self.bits.get(id as usize / 8).is_some_and(|byte| byte >> (id % 8) & 1 == 1)
    }

    /// Whether no row is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// One bit a row, least significant first; empty where no row is removed.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bits
    }
}

/// Little-endian 32-bit words.
pub(super) type Words<'a> = &'a [[u8; 4]];

/// The graph's lists.
#[derive(Debug, Clone, Copy)]
pub struct LinksView<'a> {
    rows: u32,
    m: usize,
    entry: Option<u32>,
    groups: &'a [[u8; GROUP_RECORD]],
    /// Behind the last group: the number of links.
    pub(super) last: u64,
    pub(super) links: Words<'a>,
    upper: Words<'a>,
    spans: &'a [LevelSpan],
}

impl<'a> LinksView<'a> {
    /// The node a search starts from.
    #[inline]
    pub fn entry(&self) -> Option<u32> {
        self.entry
    }

    /// The highest level.
    #[inline]
    pub fn max_level(&self) -> usize {
        self.spans.len()
    }

    /// Replaces `out` with the neighbours of `id` on `level`: none where the node is not on that level. At most 2·m
    /// on level 0 and m above, every one the id of a row; where the file is damaged they may repeat or be `id`
    /// itself. O(1) on level 0, O(log n) above.
    #[inline]
    pub fn list(&self, id: u32, level: usize, out: &mut Vec<u32>) {
        out.clear();
        let list = if level == 0 { self.base_list(id) } else { self.upper_list(id, level) };
        let Some(list) = list else { return };
        out.extend(list.iter().map(|b| u32::from_le_bytes(*b)));
        if out.iter().fold(false, |beyond, &to| beyond | (to >= self.rows)) {
            out.retain(|&to| to < self.rows);
        }
    }

    /// The nodes of a level above 0, ascending; empty for other levels.
    pub fn nodes(&self, level: usize) -> impl Iterator<Item = u32> + 'a {
        let rows = self.rows;
        let nodes = self.level(level).map_or(&[][..], |(nodes, ..)| nodes);
        nodes.iter().map(|b| u32::from_le_bytes(*b)).filter(move |&id| id < rows)
    }

    /// The list of `id` on level 0, as it lies in the file.
    #[inline]
    pub fn base_list(&self, id: u32) -> Option<Words<'a>> {
        let (start, end) = self.base_bounds(id)?;
        let list = self.links.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
        list.get(..list.len().min(2 * self.m))
    }

    /// Where in LINKS the list of `id` starts and ends, as recorded. Ids up to the end of the last group have one.
    #[inline]
    pub(super) fn base_bounds(&self, id: u32) -> Option<(u64, u64)> {
        let (group, lane) = (id as usize / GROUP, id as usize % GROUP);
        let record = self.groups.get(group)?;
        let base = u64::from_le_bytes(*record.first_chunk()?);
        let starts: &[[u8; 2]] = record.get(8..)?.as_chunks().0;
        let start = u64::from(u16::from_le_bytes(*starts.get(lane)?));
        let start = base.checked_add(start)?;
        let end = match starts.get(lane + 1) {
            Some(end) => base.checked_add(u64::from(u16::from_le_bytes(*end)))?,
            None => {
                self.groups.get(group + 1).and_then(|r| r.first_chunk()).map_or(self.last, |b| u64::from_le_bytes(*b))
            }
        };
        Some((start, end))
    }

    fn upper_list(&self, id: u32, level: usize) -> Option<Words<'a>> {
        let (nodes, offsets, links) = self.level(level)?;
        let at = nodes.binary_search_by_key(&id, |b| u32::from_le_bytes(*b)).ok()?;
        let offset = |at: usize| offsets.get(at).map(|b| u32::from_le_bytes(*b) as usize);
        let list = links.get(offset(at)?..offset(at + 1)?)?;
        list.get(..list.len().min(self.m))
    }

    /// Nodes, offsets and links of a level above 0.
    pub(super) fn level(&self, level: usize) -> Option<(Words<'a>, Words<'a>, Words<'a>)> {
        let span = self.spans.get(level.checked_sub(1)?)?;
        Some((
            self.upper.get(span.nodes..span.offsets)?,
            self.upper.get(span.offsets..span.links)?,
            self.upper.get(span.links..span.end)?,
        ))
    }
}
