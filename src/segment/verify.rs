//! The whole truth about a file: every byte against its checksum, every value against the format.
//!
//! Checksums show damage; the checks behind them show files that were made wrong, whatever their checksums say.

use super::format::{BLOCK, Encoding, GROUP, Originals, SectionKind};
use super::reader::{LinksView, Segment, Words};
use crate::error::{Error, Result};
use crate::storage::{Rows, SectionRows, Storage};

impl<S: Storage + ?Sized> Segment<S> {
    /// Reads every byte and every link: checksums, padding, key order, tombstones, centre, factors, components, codes,
    /// originals, lists and levels. O(file) time, and memory for one window of it (1 MiB).
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`] for the first block that is not as it was written, [`Error::Corrupt`] for the
    /// first value that contradicts the format; whatever the storage says.
    pub fn verify(&self) -> Result<()> {
        self.verify_bytes()?;
        self.verify_keys()?;
        self.verify_rows()?;
        match self.links() {
            Some(links) => verify_graph(&links, self.meta.rows, self.meta.graph.as_ref().map_or(0, |g| g.m)),
            None => Ok(()),
        }
    }

    fn verify_bytes(&self) -> Result<()> {
        let checksums = self.layout.get(SectionKind::Checksums);
        let checksums = checksums.ok_or_else(|| corrupt(SectionKind::Checksums, "missing"))?;
        let mut buffer = Vec::new();
        let mut crc = super::crc::Hasher::new();
        self.for_each_block(checksums.offset, checksums.end(), &mut buffer, |_, bytes| {
            crc.update(bytes);
            Ok(())
        })?;
        let (expected, got) = (self.checksums_crc, crc.finalize());
        if expected != got {
            return Err(Error::ChecksumMismatch { offset: checksums.offset, expected, got });
        }
        self.for_each_block(0, checksums.offset, &mut buffer, |offset, bytes| {
            let mut recorded = [0; 4];
            self.storage.read_into(checksums.offset + offset / BLOCK as u64 * 4, &mut recorded)?;
            let (expected, got) = (u32::from_le_bytes(recorded), super::crc::hash(bytes));
            if expected == got { Ok(()) } else { Err(Error::ChecksumMismatch { offset, expected, got }) }
        })?;
        let next = self.layout.places.iter().skip(1).map(|p| p.offset).chain([self.layout.table_offset]);
        for (place, next) in self.layout.places.iter().zip(next) {
            self.for_each_block(place.end(), next, &mut buffer, |_, padding| match padding.iter().all(|&b| b == 0) {
                true => Ok(()),
                false => Err(corrupt(place.kind, "the padding behind it is not zero")),
            })?;
        }
        Ok(())
    }

    /// Hands the bytes `from..to` to `f` with their offset, in pieces of one block.
    fn for_each_block(
        &self,
        from: u64,
        to: u64,
        buffer: &mut Vec<u8>,
        mut f: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at).map_or(BLOCK, |left| left.min(BLOCK));
            let resident = self.storage.as_slice().and_then(|all| all.get(usize::try_from(at).ok()?..)?.get(..len));
            match resident {
                Some(bytes) => f(at, bytes)?,
                None => {
                    buffer.resize(len, 0);
                    self.storage.read_into(at, buffer)?;
                    f(at, buffer)?;
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// A strictly ascending sequence of n pairs (key, id) with ids below n holds every id once.
    fn verify_keys(&self) -> Result<()> {
        let (keys, tombstones) = (self.keys(), self.tombstones());
        let mut before: Option<(u64, u32)> = None;
        let mut live = false;
        for id in keys.order() {
            let key = keys.get(id);
            let key = key.ok_or_else(|| corrupt(SectionKind::KeyOrder, format!("row {id} of {}", self.meta.rows)))?;
            if before.is_some_and(|before| before >= (key, id)) {
                return Err(corrupt(SectionKind::KeyOrder, format!("row {id}, key {key} is out of order")));
            }
            live &= before.is_some_and(|(before, _)| before == key);
            if !tombstones.contains(id) {
                if live {
                    return Err(corrupt(SectionKind::Keys, format!("two live rows with key {key}")));
                }
                live = true;
            }
            before = Some((key, id));
        }
        let bits = tombstones.as_bytes();
        let count: u64 = bits.iter().map(|b| u64::from(b.count_ones())).sum();
        if count != u64::from(self.meta.tombstones) {
            return Err(corrupt(SectionKind::Tombstones, format!("{count} set, META says {}", self.meta.tombstones)));
        }
        let spare = match self.meta.rows % 8 {
            0 => 0,
            used => bits.last().map_or(0, |last| last >> used),
        };
        if spare != 0 {
            return Err(corrupt(SectionKind::Tombstones, "bits behind the last row are set"));
        }
        Ok(())
    }

    fn verify_rows(&self) -> Result<()> {
        if let Some(factors) = self.factors() {
            let bad = factors.iter().position(|f| !(f.is_finite() && f > 0.0));
            if let Some(row) = bad {
                return Err(corrupt(SectionKind::Factors, format!("row {row}: not finite and positive")));
            }
        }
        self.centre()?;
        let (encoding, dimension) = (self.meta.encoding, self.meta.dimension as usize);
        each_row(self.codes(), SectionKind::Codes, |row| match encoding {
            Encoding::F32 => fault_of_f32(row),
            Encoding::F16 => fault_of_f16(row),
            Encoding::Int8 | Encoding::Int4 | Encoding::Bits1 => fault_of_code(row, encoding, dimension),
        })?;
        match self.originals() {
            Some(rows) => each_row(rows, SectionKind::Originals, |row| match self.meta.originals {
                Originals::None => None,
                Originals::F16 => fault_of_f16(row),
                Originals::F32 => fault_of_f32(row),
            }),
            None => Ok(()),
        }
    }
}

/// Refuses the first row of which `fault` has something to say.
fn each_row<S: Storage + ?Sized>(
    rows: &SectionRows<S>,
    section: SectionKind,
    fault: impl Fn(&[u8]) -> Option<String>,
) -> Result<()> {
    rows.for_each_window(|first, window| {
        let faults = window.chunks_exact(rows.stride()).zip(u64::from(first)..);
        match faults.filter_map(|(row, id)| Some((id, fault(row)?))).next() {
            None => Ok(()),
            Some((id, fault)) => Err(corrupt(section, format!("row {id}, {fault}"))),
        }
    })
}

fn fault_of_f32(row: &[u8]) -> Option<String> {
    let components: Words<'_> = row.as_chunks().0;
    let at = components.iter().position(|b| !f32::from_le_bytes(*b).is_finite())?;
    Some(format!("component {at} is not finite"))
}

/// An f16 of the highest exponent is infinite or not a number.
fn fault_of_f16(row: &[u8]) -> Option<String> {
    let components: &[[u8; 2]] = row.as_chunks().0;
    let at = components.iter().position(|b| u16::from_le_bytes(*b) & 0x7C00 == 0x7C00)?;
    Some(format!("component {at} is not finite"))
}

fn fault_of_code(row: &[u8], encoding: Encoding, dimension: usize) -> Option<String> {
    let (codes, factors) = row.split_at_checked(encoding.code_bytes(dimension))?;
    let spare = match encoding {
        Encoding::Int4 if !dimension.is_multiple_of(2) => 0xF0,
        Encoding::Bits1 if !dimension.is_multiple_of(8) => 0xFF << (dimension % 8),
        _ => 0_u8,
    };
    if codes.last().is_some_and(|last| last & spare != 0) {
        return Some("bits behind the last component are set".into());
    }
    let factors: Words<'_> = factors.as_chunks().0;
    match *factors {
        [scale, other] => {
            let (scale, other) = (f32::from_le_bytes(scale), f32::from_le_bytes(other));
            if !(scale.is_finite() && scale >= 0.0) {
                return Some("the first factor is not finite and at least 0".into());
            }
            (!other.is_finite()).then(|| "the second factor is not finite".into())
        }
        _ => Some("not two factors".into()),
    }
}

fn verify_graph(links: &LinksView<'_>, rows: u32, m: u32) -> Result<()> {
    let bad = |id: u32, reason: &str| corrupt(SectionKind::LinkOffsets, format!("row {id}: {reason}"));
    let mut list = Vec::new();
    let mut next = 0;
    for id in 0..rows {
        let (start, end) = links.base_bounds(id).ok_or_else(|| bad(id, "no such record"))?;
        if start != next || end < start || end > links.links.len() as u64 {
            return Err(bad(id, "its list does not follow the one before"));
        }
        if end - start > 2 * u64::from(m) {
            return Err(bad(id, "more than 2·m links"));
        }
        next = end;
        links.list(id, 0, &mut list);
        if list.len() as u64 != end - start {
            return Err(corrupt(SectionKind::Links, format!("row {id}: a link beyond the rows")));
        }
        verify_list(SectionKind::Links, id, &list)?;
    }
    if next != links.last || next != links.links.len() as u64 {
        return Err(corrupt(SectionKind::LinkOffsets, "the lists do not end where LINKS does"));
    }
    let spare = rows.checked_sub(1).map(|last| rows..=last | (GROUP as u32 - 1));
    if spare.into_iter().flatten().any(|id| links.base_bounds(id) != Some((next, next))) {
        return Err(corrupt(SectionKind::LinkOffsets, "the last group is not filled up with the end"));
    }
    (1..=links.max_level()).try_for_each(|level| verify_level(links, level, rows, m as usize))?;
    match (links.entry(), links.level(links.max_level())) {
        (Some(entry), Some((nodes, ..))) if !has(nodes, entry) => {
            Err(corrupt(SectionKind::Upper, format!("the entry point {entry} is not on the highest level")))
        }
        _ => Ok(()),
    }
}

fn verify_level(links: &LinksView<'_>, level: usize, rows: u32, m: usize) -> Result<()> {
    let bad = |reason: String| corrupt(SectionKind::Upper, format!("level {level}: {reason}"));
    let (nodes, offsets, targets) = links.level(level).ok_or_else(|| bad("no such arrays".into()))?;
    let below = links.level(level - 1).map(|(nodes, ..)| nodes);
    let word = |b: &[u8; 4]| u32::from_le_bytes(*b);
    let mut before = None;
    let mut next = 0;
    let mut list = Vec::new();
    for (id, bounds) in nodes.iter().map(word).zip(offsets.windows(2)) {
        if id >= rows || before.is_some_and(|before| before >= id) {
            return Err(bad(format!("node {id} is out of order")));
        }
        if below.is_some_and(|below| !has(below, id)) {
            return Err(bad(format!("node {id} is not on the level below")));
        }
        before = Some(id);
        let (start, end) = (word(&bounds[0]) as usize, word(&bounds[1]) as usize);
        if start != next || end < start || end > targets.len() || end - start > m {
            return Err(bad(format!("node {id}: its list is misplaced or longer than m")));
        }
        next = end;
        list.clear();
        list.extend(targets[start..end].iter().map(word));
        if let Some(to) = list.iter().find(|&&to| !has(nodes, to)) {
            return Err(bad(format!("node {id}: link to {to}, which is not on the level")));
        }
        verify_list(SectionKind::Upper, id, &list)?;
    }
    if next == targets.len() { Ok(()) } else { Err(bad("the lists do not end where the links do".into())) }
}

/// No link to itself, none twice.
fn verify_list(section: SectionKind, id: u32, list: &[u32]) -> Result<()> {
    if list.contains(&id) {
        return Err(corrupt(section, format!("row {id} links to itself")));
    }
    match list.iter().enumerate().find(|&(i, to)| list[..i].contains(to)) {
        Some((_, to)) => Err(corrupt(section, format!("row {id} links to {to} twice"))),
        None => Ok(()),
    }
}

fn has(nodes: Words<'_>, id: u32) -> bool {
    nodes.binary_search_by_key(&id, |b| u32::from_le_bytes(*b)).is_ok()
}

fn corrupt(section: SectionKind, reason: impl Into<String>) -> Error {
    Error::Corrupt { section: section.name(), reason: reason.into() }
}
