//! Writes a segment strictly forward: no seeking, and no memory beyond one block of 64 KiB and its checksums.
//!
//! Everything's size is known from [`Meta`] beforehand, so [`SegmentWriter`] is a list of promises to be kept in
//! order. A section that comes out of turn, too short, too long or with values outside the format is an error, and
//! after an error nothing but errors follows: [`finish`](SegmentWriter::finish) never seals a file that breaks a
//! promise.

use super::format::{BLOCK, GROUP, Header, Layout, Meta, Place, SectionKind};
use crate::error::{Error, Result, Scientific};
use crate::storage::reserve;
use std::io;

/// The ids `0..rows` sorted by (key, id): the contents of KEY_ORDER. O(n) for n rows: ids are dealt out by one byte of
/// their keys after another, the lowest first, leaving out those that are the same in all.
///
/// # Errors
/// [`Error::OutOfMemory`] where the allocator refuses 4 bytes a row, or 8 where keys are not in order already.
pub fn order_by_key(rows: u32, key: &dyn Fn(u32) -> u64) -> Result<Vec<u32>> {
    let count = rows as usize;
    let (mut order, mut dealt) = (Vec::new(), Vec::new());
    reserve(&mut order, count)?;
    order.extend(0..rows);
    let (mut differing, mut ordered, first) = (0, true, if rows > 0 { key(0) } else { 0 });
    let mut before = first;
    for id in 0..rows {
        let key = key(id);
        differing |= key ^ first;
        ordered &= before <= key;
        before = key;
    }
    if ordered {
        return Ok(order);
    }
    reserve(&mut dealt, count)?;
    dealt.resize(count, 0);
    for shift in (0..64).step_by(8).filter(|shift| (differing >> shift) as u8 != 0) {
        let digit = |id: u32| usize::from((key(id) >> shift) as u8);
        let mut next = [0; 256];
        order.iter().for_each(|&id| next[digit(id)] += 1);
        let mut end = 0;
        for place in &mut next {
            end += std::mem::replace(place, end);
        }
        for &id in &order {
            let place = &mut next[digit(id)];
            dealt[*place] = id;
            *place += 1;
        }
        std::mem::swap(&mut order, &mut dealt);
    }
    Ok(order)
}

/// Writes one segment, section by section in the order of the file.
///
/// | call | when |
/// |---|---|
/// | [`keys`](Self::keys), [`key_order`](Self::key_order) | always |
/// | [`centre`](Self::centre) | the quantizer is centred and there are rows |
/// | [`codes`](Self::codes) | always |
/// | [`factors`](Self::factors) | metric is cosine and the encoding `f32` or `f16` |
/// | [`tombstones`](Self::tombstones) | `meta.tombstones` > 0 |
/// | [`links`](Self::links) | there is a graph |
/// | [`upper`](Self::upper) | once for each level above 0, from 1 up |
/// | [`fingerprints`](Self::fingerprints) | the encoding is not `f32` and there are no originals |
/// | [`try_originals`](Self::try_originals) | there are originals |
///
/// ```
/// use std::sync::Arc;
/// use twindex::Metric;
/// use twindex::segment::{Encoding, IndexKind, Meta, Originals, Segment, SegmentWriter, order_by_key};
///
/// let meta = Meta {
///     dimension: 2,
///     metric: Metric::L2,
///     encoding: Encoding::F32,
///     kind: IndexKind::Flat,
///     rows: 3,
///     tombstones: 0,
///     stride: 8,
///     ef: 64,
///     originals: Originals::None,
///     quantizer: None,
///     graph: None,
/// };
/// let keys = [30, 10, 20];
/// let rows = [[0.0_f32, 1.0], [1.0, 0.0], [0.5, 0.5]];
/// let mut writer = SegmentWriter::begin(Vec::new(), &meta)?;
/// writer.keys(keys)?;
/// writer.key_order(order_by_key(3, &|id| keys[id as usize])?)?;
/// writer.codes(rows.map(|row| row.map(f32::to_le_bytes).concat()))?;
/// let (bytes, len) = writer.finish()?;
/// assert_eq!(bytes.len() as u64, len);
///
/// let segment = Segment::open(Arc::new(bytes))?;
/// segment.verify()?;
/// assert_eq!(segment.keys().find(20).collect::<Vec<_>>(), [2]);
/// # Ok::<(), twindex::Error>(())
/// ```
#[derive(Debug)]
pub struct SegmentWriter<W> {
    out: Blocks<W>,
    meta: Meta,
    layout: Layout,
    /// The next section, as an index into the layout; `None` once something failed.
    next: Option<usize>,
    /// Upper levels written.
    levels: usize,
    /// Over META, the header in front of it.
    head_crc: super::crc::Hasher,
}

impl<W: io::Write> SegmentWriter<W> {
    /// Writes header and META.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a META outside the format's limits, [`Error::TooLarge`] for a file no length
    /// can express, [`Error::Io`] from `out`.
    pub fn begin(out: W, meta: &Meta) -> Result<Self> {
        meta.validate()?;
        let layout = Layout::of(meta)?;
        let header = Header::of(meta, &layout)?.encode();
        let encoded = meta.encode();
        let mut head_crc = super::crc::Hasher::new();
        head_crc.update(&header);
        head_crc.update(&encoded);
        let mut out =
            Blocks { out, block: Vec::with_capacity(BLOCK), crcs: Vec::new(), written: 0, limit: 0, what: "" };
        out.limit = header.len() as u64;
        out.put(&header)?;
        let mut writer = SegmentWriter { out, meta: meta.clone(), layout, next: Some(0), levels: 0, head_crc };
        writer.section(SectionKind::Meta, |out| out.put(&encoded))?;
        Ok(writer)
    }

    /// The key of each row, in the order of ids.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for another number than META promises, [`Error::InvalidParameter`] where this
    /// section is not the next one, [`Error::Io`] from the output. The same for all sections.
    pub fn keys(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<()> {
        self.section(SectionKind::Keys, |out| keys.into_iter().try_for_each(|key| out.put(&key.to_le_bytes())))
    }

    /// The ids sorted by (key, id), as [`order_by_key`] gives them.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); [`Error::InvalidParameter`] for an id beyond the rows.
    pub fn key_order(&mut self, ids: impl IntoIterator<Item = u32>) -> Result<()> {
        let rows = self.meta.rows;
        self.section(SectionKind::KeyOrder, |out| {
            ids.into_iter().try_for_each(|id| match id < rows {
                true => out.put(&id.to_le_bytes()),
                false => Err(invalid("key order", "ids of rows", id)),
            })
        })
    }

    /// What was subtracted from the vectors before they were rounded to their codes.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); [`Error::InvalidParameter`] for a component that is not finite.
    pub fn centre(&mut self, centre: &[f32]) -> Result<()> {
        self.section(SectionKind::Centre, |out| {
            centre.iter().try_for_each(|x| match x.is_finite() {
                true => out.put(&x.to_le_bytes()),
                false => Err(invalid("centre", "finite components", Scientific((*x).into()))),
            })
        })
    }

    /// The rows, in runs of any length.
    ///
    /// # Errors
    /// As [`keys`](Self::keys).
    pub fn codes<R: AsRef<[u8]>>(&mut self, runs: impl IntoIterator<Item = R>) -> Result<()> {
        self.try_codes(runs.into_iter().map(Ok))
    }

    /// As [`codes`](Self::codes), from a source that may fail.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); the first error of `runs`.
    pub fn try_codes<R: AsRef<[u8]>>(&mut self, runs: impl IntoIterator<Item = Result<R>>) -> Result<()> {
        self.section(SectionKind::Codes, |out| runs.into_iter().try_for_each(|run| out.put(run?.as_ref())))
    }

    /// One factor a row: 1 / norm.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); [`Error::InvalidParameter`] for a factor that is not finite and positive.
    pub fn factors(&mut self, factors: impl IntoIterator<Item = f32>) -> Result<()> {
        self.section(SectionKind::Factors, |out| {
            factors.into_iter().try_for_each(|factor| match factor.is_finite() && factor > 0.0 {
                true => out.put(&factor.to_le_bytes()),
                false => Err(invalid("factor", "a finite positive number", Scientific(factor.into()))),
            })
        })
    }

    /// For each row, whether it is removed.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); [`Error::LengthMismatch`] for another number of removed rows than META promises.
    pub fn tombstones(&mut self, removed: impl IntoIterator<Item = bool>) -> Result<()> {
        let (rows, promised) = (u64::from(self.meta.rows), u64::from(self.meta.tombstones));
        self.section(SectionKind::Tombstones, |out| {
            let (mut seen, mut set, mut byte) = (0_u64, 0_u64, 0_u8);
            for removed in removed {
                byte |= u8::from(removed) << (seen % 8);
                set += u64::from(removed);
                seen += 1;
                if seen > rows {
                    return Err(mismatch("removed flags", rows, seen));
                }
                if seen.is_multiple_of(8) || seen == rows {
                    out.put(&[byte])?;
                    byte = 0;
                }
            }
            expect("removed flags", rows, seen)?;
            expect("removed rows", promised, set)
        })
    }

    /// The links of level 0: `list` replaces the contents of its buffer with those of a row. It is called twice for
    /// each row, in the order of ids, and has to give the same both times.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); [`Error::LengthMismatch`] for another number of links than META promises or for
    /// lists that changed; [`Error::InvalidParameter`] for a list longer than 2·m or a link that is no other row.
    pub fn links(&mut self, mut list: impl FnMut(u32, &mut Vec<u32>)) -> Result<()> {
        let Some((m, links)) = self.meta.graph.as_ref().map(|g| (u64::from(g.m), g.links)) else {
            return self.out_of_turn(SectionKind::LinkOffsets);
        };
        let rows = self.meta.rows;
        let mut buffer = Vec::new();
        let mut degrees = super::crc::Hasher::new();
        self.section(SectionKind::LinkOffsets, |out| {
            let (mut total, mut base) = (0_u64, 0_u64);
            for id in 0..rows {
                if (id as usize).is_multiple_of(GROUP) {
                    base = total;
                    out.put(&base.to_le_bytes())?;
                }
                let start =
                    u16::try_from(total - base).map_err(|_| invalid("links", "at most 2·m a row", total - base))?;
                out.put(&start.to_le_bytes())?;
                let degree = get_list(&mut list, id, &mut buffer, 2 * m, rows)?;
                degrees.update(&degree.to_le_bytes());
                total += degree;
            }
            expect("links on level 0", links, total)?;
            if !(rows as usize).is_multiple_of(GROUP) {
                let end =
                    u16::try_from(total - base).map_err(|_| invalid("links", "at most 2·m a row", total - base))?;
                (rows as usize % GROUP..GROUP).try_for_each(|_| out.put(&end.to_le_bytes()))?;
            }
            out.put(&total.to_le_bytes())
        })?;
        let mut again = super::crc::Hasher::new();
        self.section(SectionKind::Links, |out| {
            for id in 0..rows {
                let degree = get_list(&mut list, id, &mut buffer, 2 * m, rows)?;
                again.update(&degree.to_le_bytes());
                buffer.iter().try_for_each(|link| out.put(&link.to_le_bytes()))?;
            }
            match again.finalize() == degrees.finalize() {
                true => Ok(()),
                false => Err(invalid("links", "the same lists in both passes", "others")),
            }
        })
    }

    /// A level above 0: its nodes in ascending order, and their lists as in [`links`](Self::links).
    ///
    /// # Errors
    /// As [`links`](Self::links), with at most m links; [`Error::InvalidParameter`] for nodes out of order or a level
    /// out of turn.
    pub fn upper(&mut self, level: usize, nodes: &[u32], mut list: impl FnMut(u32, &mut Vec<u32>)) -> Result<()> {
        let level_count = self.meta.graph.as_ref().map_or(0, |g| g.levels.len());
        let promised = self.meta.graph.as_ref().and_then(|g| Some((u64::from(g.m), *g.levels.get(self.levels)?)));
        let Some((m, sizes)) = promised.filter(|_| level == self.levels + 1) else {
            return self.out_of_turn(SectionKind::Upper);
        };
        let rows = self.meta.rows;
        let mut buffer = Vec::new();
        let body = |out: &mut Blocks<W>| {
            expect("nodes of a level", u64::from(sizes.nodes), nodes.len() as u64)?;
            let ascending = nodes.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascending || nodes.last().is_some_and(|&id| id >= rows) {
                return Err(invalid("nodes of a level", "ids of rows in ascending order", format!("level {level}")));
            }
            nodes.iter().try_for_each(|id| out.put(&id.to_le_bytes()))?;
            let (mut total, mut degrees) = (0_u64, super::crc::Hasher::new());
            for &id in nodes {
                out.put(&narrow(total)?.to_le_bytes())?;
                let degree = get_list(&mut list, id, &mut buffer, m, rows)?;
                degrees.update(&degree.to_le_bytes());
                total += degree;
            }
            expect("links of a level", sizes.links, total)?;
            out.put(&narrow(total)?.to_le_bytes())?;
            let mut again = super::crc::Hasher::new();
            for &id in nodes {
                let degree = get_list(&mut list, id, &mut buffer, m, rows)?;
                again.update(&degree.to_le_bytes());
                buffer.iter().try_for_each(|link| out.put(&link.to_le_bytes()))?;
            }
            match again.finalize() == degrees.finalize() {
                true => Ok(()),
                false => Err(invalid("links", "the same lists in both passes", "others")),
            }
        };
        self.part(SectionKind::Upper, level == 1, level == level_count, body)?;
        self.levels = level;
        Ok(())
    }

    /// The fingerprint of each row: the CRC-32 of the vector as it was given, its components little-endian `f32`.
    ///
    /// # Errors
    /// As [`keys`](Self::keys).
    pub fn fingerprints(&mut self, fingerprints: impl IntoIterator<Item = u32>) -> Result<()> {
        self.section(SectionKind::Fingerprints, |out| {
            fingerprints.into_iter().try_for_each(|crc| out.put(&crc.to_le_bytes()))
        })
    }

    /// The originals, in runs of any length, from a source that may fail.
    ///
    /// # Errors
    /// As [`keys`](Self::keys); the first error of `runs`.
    pub fn try_originals<R: AsRef<[u8]>>(&mut self, runs: impl IntoIterator<Item = Result<R>>) -> Result<()> {
        self.section(SectionKind::Originals, |out| runs.into_iter().try_for_each(|run| out.put(run?.as_ref())))
    }

    /// Writes checksums and section table, flushes, and gives back the output and the length of the file in bytes.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] where a promised section is missing or an earlier call failed; [`Error::Io`] from
    /// the output.
    pub fn finish(mut self) -> Result<(W, u64)> {
        let Some(place) = self.layout.get(SectionKind::Checksums) else {
            return Err(invalid("section", "CHECKSUMS in every layout", "none"));
        };
        self.check_turn(SectionKind::Checksums)?;
        self.out.pad_to(place.offset)?;
        self.out.flush_block()?;
        let checksums: Vec<u8> = self.out.crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        expect("bytes of CHECKSUMS", place.len, checksums.len() as u64)?;
        let checksums_crc = super::crc::hash(&checksums).to_le_bytes();
        let table = self.layout.encode_table();
        let mut tail_crc = self.head_crc;
        tail_crc.update(&table);
        tail_crc.update(&checksums_crc);

        self.out.limit = self.layout.file_len;
        self.out.put(&checksums)?;
        self.out.pad_to(self.layout.table_offset)?;
        self.out.put(&table)?;
        self.out.put(&checksums_crc)?;
        self.out.put(&tail_crc.finalize().to_le_bytes())?;
        expect("bytes of the file", self.layout.file_len, self.out.position())?;
        self.out.flush_block()?;
        self.out.out.flush()?;
        Ok((self.out.out, self.layout.file_len))
    }

    fn section(&mut self, kind: SectionKind, body: impl FnOnce(&mut Blocks<W>) -> Result<()>) -> Result<()> {
        self.part(kind, true, true, body)
    }

    /// Writes the next section or, where it comes in several calls, its next part.
    fn part(
        &mut self,
        kind: SectionKind,
        first: bool,
        last: bool,
        body: impl FnOnce(&mut Blocks<W>) -> Result<()>,
    ) -> Result<()> {
        let turn = self.check_turn(kind);
        self.next = None;
        let (at, place) = turn?;
        if first {
            self.out.pad_to(place.offset)?;
            self.out.limit = place.end();
            self.out.what = kind.name();
        }
        body(&mut self.out)?;
        if last {
            expect(kind.name(), place.len, self.out.position() - place.offset)?;
        }
        self.next = Some(at + usize::from(last));
        Ok(())
    }

    fn check_turn(&self, kind: SectionKind) -> Result<(usize, Place)> {
        let Some(at) = self.next else {
            return Err(invalid("section", "nothing after an error", kind.name()));
        };
        match self.layout.places.get(at) {
            Some(place) if place.kind == kind => Ok((at, *place)),
            Some(place) => Err(invalid("section", place.kind.name(), kind.name())),
            None => Err(invalid("section", "the end", kind.name())),
        }
    }

    fn out_of_turn(&mut self, kind: SectionKind) -> Result<()> {
        let refusal = self.check_turn(kind).err();
        self.next = None;
        Err(refusal.unwrap_or_else(|| invalid("section", "the level that is next", kind.name())))
    }
}

/// Fills `buffer` with the list of `id`, judges it and gives its length.
fn get_list(
    list: &mut impl FnMut(u32, &mut Vec<u32>),
    id: u32,
    buffer: &mut Vec<u32>,
    cap: u64,
    rows: u32,
) -> Result<u64> {
    buffer.clear();
    list(id, buffer);
    let degree = buffer.len() as u64;
    if degree > cap {
        return Err(invalid("links", "no more than the level's limit", format!("{degree} from row {id}")));
    }
    match buffer.iter().find(|&&to| to >= rows || to == id) {
        Some(to) => Err(invalid("links", "ids of other rows", format!("{to} from row {id} of {rows}"))),
        None => Ok(degree),
    }
}

fn narrow(total: u64) -> Result<u32> {
    u32::try_from(total).map_err(|_| Error::TooLarge {
        what: "links of a level",
        limit: u64::from(u32::MAX),
        got: total,
    })
}

fn invalid(name: &'static str, expected: &'static str, got: impl ToString) -> Error {
    Error::InvalidParameter { name, expected, got: got.to_string() }
}

fn mismatch(what: &'static str, expected: u64, got: u64) -> Error {
    let clamp = |n| usize::try_from(n).unwrap_or(usize::MAX);
    Error::LengthMismatch { what, expected: clamp(expected), got: clamp(got) }
}

fn expect(what: &'static str, expected: u64, got: u64) -> Result<()> {
    if expected == got { Ok(()) } else { Err(mismatch(what, expected, got)) }
}

/// Output in blocks of 64 KiB, each with its checksum. The blocks lie on the file's own grid: block i starts at
/// i · 64 KiB.
#[derive(Debug)]
struct Blocks<W> {
    out: W,
    block: Vec<u8>,
    crcs: Vec<u32>,
    /// Bytes handed to `out`.
    written: u64,
    /// Where the current section ends: no byte may pass.
    limit: u64,
    /// The current section's name.
    what: &'static str,
}

impl<W: io::Write> Blocks<W> {
    fn position(&self) -> u64 {
        self.written + self.block.len() as u64
    }

    #[inline]
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        let end = self.position() + bytes.len() as u64;
        if end > self.limit {
            return Err(mismatch(self.what, self.limit, end));
        }
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(head);
            bytes = rest;
            if self.block.len() == BLOCK {
                self.flush_block()?;
            }
        }
        Ok(())
    }

    /// Zeros up to `offset`, which is less than an alignment away.
    fn pad_to(&mut self, offset: u64) -> Result<()> {
        self.limit = self.limit.max(offset);
        while self.position() < offset {
            self.put(&[0])?;
        }
        Ok(())
    }

    fn flush_block(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.out.write_all(&self.block)?;
            self.crcs.push(super::crc::hash(&self.block));
            self.written += self.block.len() as u64;
            self.block.clear();
        }
        Ok(())
    }
}
