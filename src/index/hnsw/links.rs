//! The links of a growing index: slots of atomics that readers copy without a lock.
//!
//! ```text
//! level 0       one slot a row        [ level, count | id id id … 2m ]
//! levels 1 …    one list a (row, level), in the order of rows
//!               lists   [ count | id id … m ]     index  [ row | first list ]   ascending rows: binary search
//! ```
//!
//! A writer changes one row's list at a time, under that row's lock: ids first, then their number (Release). A reader
//! takes the number first (Acquire), so that every place below it has been written. It may still meet a list half
//! rewritten: then it sees old neighbours, new ones, or one of them twice. All of them are rows on that level, and a
//! search visits each once, so nothing worse than a slightly different walk comes of it.

use super::Graph;
use super::params::HnswParams;
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::segment::LinksView;
use crate::storage::{ChunkOptions, ChunkedCells, reserve};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks for rewriting lists; a row takes the one its id falls on.
const STRIPES: usize = 1024;
/// The first cell of a slot on level 0: the row's level above, the number of links below.
const LEVEL_SHIFT: u32 = 16;
const COUNT: u32 = (1 << LEVEL_SHIFT) - 1;
/// Cache lines prefetched of a slot: all of one where m is 16.
const LINES: usize = 3;
/// `entry` before there is one.
const NO_ENTRY: u64 = u64::MAX;

/// The links of an index that can be added to.
#[derive(Debug)]
pub struct GrowingLinks {
    params: HnswParams,
    base: ChunkedCells<AtomicU32>,
    upper: ChunkedCells<AtomicU32>,
    upper_index: ChunkedCells<AtomicU32>,
    /// Rows in `upper_index`, published after their entries are written.
    upper_rows: AtomicU32,
    /// Entry point and its level: id · 256 + level.
    entry: AtomicU64,
    /// Held while a row above the top level is inserted.
    top: Mutex<()>,
    stripes: Box<[Mutex<()>]>,
}

impl GrowingLinks {
    /// An empty graph.
    pub fn new(params: HnswParams, chunks: &ChunkOptions) -> Result<Self> {
        Ok(GrowingLinks {
            params,
            base: ChunkedCells::new(1 + params.max_links(0), chunks)?,
            upper: ChunkedCells::new(1 + params.max_links(1), chunks)?,
            upper_index: ChunkedCells::new(2, chunks)?,
            upper_rows: AtomicU32::new(0),
            entry: AtomicU64::new(NO_ENTRY),
            top: Mutex::new(()),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        })
    }

    /// The parameters of the graph.
    pub fn params(&self) -> &HnswParams {
        &self.params
    }

    /// Makes room for rows from `first` on, of the levels given, with empty lists. Callers take turns; readers go on.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::TooLarge`] for more than 2³² lists above level 0. What was there stays.
    pub fn grow(&self, first: u32, levels: &[u8]) -> Result<()> {
        // Rows of a call that failed further on are met again with the same ids: their entries are written again.
        let mut rows = self.upper_rows.load(Ordering::Relaxed);
        while rows > 0 && self.index_entry(rows - 1).0 >= first {
            rows -= 1;
        }
        let mut lists = match rows.checked_sub(1).map(|last| self.index_entry(last)) {
            Some((row, list)) => list + u32::from(self.level(row)),
            None => 0,
        };
        let all = u64::from(lists) + levels.iter().map(|&level| u64::from(level)).sum::<u64>();
        let refused = Error::TooLarge { what: "lists above level 0", limit: u32::MAX.into(), got: all };
        let all = u32::try_from(all).map_err(|_| refused)?;
        let entries = levels.iter().filter(|&&level| level > 0).count() as u32;
        self.base.grow_to(first + levels.len() as u32)?;
        self.upper.grow_to(all)?;
        self.upper_index.grow_to(rows + entries)?;
        for (id, &level) in (first..).zip(levels) {
            if let Some([head, ..]) = self.base.row(id) {
                head.store(u32::from(level) << LEVEL_SHIFT, Ordering::Relaxed);
            }
            if level > 0 {
                if let Some([row, list, ..]) = self.upper_index.row(rows) {
                    row.store(id, Ordering::Relaxed);
                    list.store(lists, Ordering::Relaxed);
                }
                rows += 1;
                lists += u32::from(level);
            }
        }
        self.upper_rows.store(rows, Ordering::Release);
        Ok(())
    }

    /// The highest level row `id` is on.
    #[inline]
    pub fn level(&self, id: u32) -> u8 {
        match self.base.row(id) {
            Some([head, ..]) => (head.load(Ordering::Relaxed) >> LEVEL_SHIFT) as u8,
            _ => 0,
        }
    }

    fn index_entry(&self, at: u32) -> (u32, u32) {
        match self.upper_index.row(at) {
            Some([row, list, ..]) => (row.load(Ordering::Relaxed), list.load(Ordering::Relaxed)),
            _ => (u32::MAX, 0),
        }
    }

    /// The slot of row `id` on `level`: count (level 0: with the row's level), then ids.
    #[inline]
    fn slot(&self, id: u32, level: u8) -> Option<&[AtomicU32]> {
        if level == 0 {
            return self.base.row(id);
        }
        let (mut low, mut high) = (0, self.upper_rows.load(Ordering::Acquire));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.index_entry(middle).0 < id {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (row, list) = self.index_entry(low);
        if row != id || level > self.level(id) {
            return None;
        }
        self.upper.row(list + u32::from(level) - 1)
    }

    fn read(slot: &[AtomicU32], out: &mut Vec<u32>) {
        out.clear();
        if let Some((count, ids)) = slot.split_first() {
            let count = ((count.load(Ordering::Acquire) & COUNT) as usize).min(ids.len());
            out.extend(ids[..count].iter().map(|id| id.load(Ordering::Relaxed)));
            // Of a place rewritten since: what was written before its id was linked (its row, its own links) is visible
            // from here on.
            fence(Ordering::Acquire);
        }
    }

    fn write(slot: &[AtomicU32], neighbours: &[u32]) {
        if let Some((count, ids)) = slot.split_first() {
            let n = neighbours.len().min(ids.len());
            for (id, &neighbour) in ids.iter().zip(&neighbours[..n]) {
                id.store(neighbour, Ordering::Release);
            }
            Self::set_count(count, n);
        }
    }

    /// Keeps the level, which shares the cell.
    fn set_count(count: &AtomicU32, n: usize) {
        let level = count.load(Ordering::Relaxed) & !COUNT;
        count.store(level | n as u32, Ordering::Release);
    }

    /// Replaces the list of row `id` on `level`, cut to what fits.
    pub fn set(&self, id: u32, level: u8, neighbours: &[u32]) {
        if let Some(slot) = self.slot(id, level) {
            let _lock = self.lock(id);
            Self::write(slot, neighbours);
        }
    }

    /// Adds `new` to the list of row `id` on `level`. A full list is handed to `prune` with `new` at its end, which
    /// leaves in it what shall be kept.
    pub fn add(
        &self,
        id: u32,
        level: u8,
        new: u32,
        list: &mut Vec<u32>,
        prune: impl FnOnce(&mut Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        let Some(slot) = self.slot(id, level) else { return Ok(()) };
        let _lock = self.lock(id);
        Self::read(slot, list);
        if list.contains(&new) {
            return Ok(());
        }
        list.push(new);
        if list.len() > self.params.max_links(level) {
            prune(list)?;
            Self::write(slot, list);
        } else if let Some((count, ids)) = slot.split_first() {
            ids[list.len() - 1].store(new, Ordering::Release);
            Self::set_count(count, list.len());
        }
        Ok(())
    }

    fn lock(&self, id: u32) -> MutexGuard<'_, ()> {
        // The lock guards no data of its own that a panic could leave half done.
        self.stripes[id as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while a row that rises above the entry point is inserted, so that such rows see one another.
    pub fn lock_top(&self) -> MutexGuard<'_, ()> {
        self.top.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes row `id` the entry point, with its level.
    pub fn set_entry(&self, entry: Option<(u32, u8)>) {
        let packed = entry.map_or(NO_ENTRY, |(id, level)| u64::from(id) << 8 | u64::from(level));
        self.entry.store(packed, Ordering::Release);
    }

    /// Copies the links of a segment with `rows` rows into this, an empty graph. Links that no sound file has are left
    /// out: to the row itself, to one row twice, to a row that is not on the level.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub fn load(&self, from: &LinksView<'_>, rows: u32) -> Result<()> {
        let mut levels = Vec::new();
        reserve(&mut levels, rows as usize)?;
        levels.resize(rows as usize, 0u8);
        for level in 1..=from.max_level().min(usize::from(u8::MAX)) {
            for id in from.nodes(level) {
                levels[id as usize] = level as u8;
            }
        }
        self.grow(0, &levels)?;
        let (mut list, mut kept) = (Vec::new(), Vec::new());
        for (id, &level) in (0..).zip(&levels) {
            for level in 0..=level {
                from.list(id, usize::from(level), &mut list);
                kept.clear();
                for &other in &list {
                    let there = levels.get(other as usize).is_some_and(|&top| top >= level);
                    if other != id && there && !kept.contains(&other) {
                        kept.push(other);
                    }
                }
                self.set(id, level, &kept);
            }
        }
        self.set_entry(from.entry().map(|id| (id, levels.get(id as usize).copied().unwrap_or(0))));
        Ok(())
    }

    /// Keeps the rows that `renumbered` gives a new id, in their order. Their lists lead to such rows only.
    pub fn compact(&mut self, renumbered: impl Fn(u32) -> Option<u32>, chunks: &ChunkOptions) -> Result<()> {
        let mut list = Vec::new();
        let renumber = |list: &mut Vec<u32>| {
            list.retain_mut(|id| renumbered(*id).map(|new| *id = new).is_some());
        };
        // The upper levels are few: they are written anew. Level 0 moves down in place, a row never behind one not yet
        // read.
        let mut compacted = GrowingLinks::new(self.params, chunks)?;
        let rows = self.upper_rows.load(Ordering::Relaxed);
        let mut levels: Vec<(u32, u32, u8)> = Vec::new();
        reserve(&mut levels, rows as usize)?;
        levels.extend((0..rows).filter_map(|at| {
            let (row, first) = self.index_entry(at);
            Some((renumbered(row)?, first, self.level(row)))
        }));
        let lists: u32 = levels.iter().map(|&(.., level)| u32::from(level)).sum();
        compacted.upper.grow_to(lists)?;
        compacted.upper_index.grow_to(levels.len() as u32)?;
        // Nothing can fail from here on.
        std::mem::swap(&mut compacted.base, &mut self.base);
        let mut at = 0;
        for (i, &(row, first, level)) in (0..).zip(&levels) {
            if let Some([to_row, to_list, ..]) = compacted.upper_index.row(i) {
                to_row.store(row, Ordering::Relaxed);
                to_list.store(at, Ordering::Relaxed);
            }
            for above in 0..u32::from(level) {
                if let (Some(from), Some(to)) = (self.upper.row(first + above), compacted.upper.row(at)) {
                    Self::read(from, &mut list);
                    renumber(&mut list);
                    Self::write(to, &list);
                }
                at += 1;
            }
        }
        compacted.upper_rows = AtomicU32::new(levels.len() as u32);
        let mut kept = 0;
        for id in 0..compacted.base.count() {
            let Some(new) = renumbered(id) else { continue };
            if let (Some(from), Some(to)) = (compacted.base.row(id), compacted.base.row(new)) {
                Self::read(from, &mut list);
                renumber(&mut list);
                to[0].store(from[0].load(Ordering::Relaxed), Ordering::Relaxed);
                Self::write(to, &list);
            }
            kept = new + 1;
        }
        compacted.base.truncate(kept);
        let entry = self.entry().and_then(|(id, level)| Some((renumbered(id)?, level)));
        compacted.set_entry(entry);
        *self = compacted;
        Ok(())
    }

    /// Bytes of memory the links take.
    pub fn allocated_bytes(&self) -> u64 {
        self.base.allocated_bytes() + self.upper.allocated_bytes() + self.upper_index.allocated_bytes()
    }
}

impl Graph for GrowingLinks {
    #[inline]
    fn entry(&self) -> Option<(u32, u8)> {
        match self.entry.load(Ordering::Acquire) {
            NO_ENTRY => None,
            packed => Some(((packed >> 8) as u32, packed as u8)),
        }
    }

    #[inline]
    fn links(&self, id: u32, level: u8, out: &mut Vec<u32>) {
        out.clear();
        if let Some(slot) = self.slot(id, level) {
            Self::read(slot, out);
        }
    }

    #[inline]
    fn prefetch(&self, id: u32) {
        Kernels::best().prefetch(self.base.row(id).unwrap_or_default(), LINES);
    }
}
