//! Linking rows in rounds: on any number of threads, with the same outcome.
//!
//! The rows of a round all search the graph as it was before the round. Then come steps, each of which ends before the
//! next begins; within one, no task reads a list that another writes, so that it does not matter who does what when.
//!
//! | step | a task | reads | writes |
//! |---|---|---|---|
//! | settle | a row of the round | the graph before the round | the row's own lists, to which no link leads yet |
//! | widen | a row of the round | its own list | its own list on level 0 |
//! | link back | a list | that list | that list; rows that chose it are taken in the order of ids |
//!
//! Rows of one round do not find one another by searching. Where many of them lie close together (copies of one vector,
//! at worst) they would choose the same neighbours, whose lists keep few of them, and the others would be lost. So
//! rows of a round whose nearest row is the same are told of one another: each may take those before it as neighbours.

use super::Graph;
use super::build::{self, BuildScratch};
use super::links::GrowingLinks;
use crate::error::Result;
use crate::index::pool::{Pool, Threads};
use crate::scorer::Scorer;
use crate::storage::reserve;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rows of a new graph that are inserted one after the other.
const ROWS_ALONE: u32 = 256;
/// A round is at most this part of the rows there are …
const SHARE: u32 = 16;
/// … and no more rows than these: what a round needs besides the graph stays small.
const MAX_ROUND: u32 = 2048;
/// Links back that a task takes at a time.
const BLOCK: usize = 128;
/// No row.
const NOBODY: u32 = u32::MAX;
/// Where a link back says its level: row · 2³² + level · 2²⁴ + number of the new row in its round.
const LEVEL_SHIFT: u32 = 24;

/// What rounds reuse. Held by whoever links, so that batches take turns.
#[derive(Debug, Default)]
pub struct Round {
    /// Rows linked so far. Fewer than a batch's first id says, where batches take turns out of order.
    linked: u32,
    /// The row nearest to each row of the round.
    nearest: Vec<AtomicU32>,
    /// Rows of the round by their nearest row: nearest · 2³² + number in the round.
    peers: Vec<u64>,
    /// The links back: see [`LEVEL_SHIFT`].
    back: Vec<u64>,
}

/// Hands a closure a scorer whose query is the row given, and a writer's buffers.
pub trait Score<T>: Sync {
    /// Calls `f` once.
    fn with(
        &self,
        row: u32,
        scratch: &mut T,
        f: &mut dyn FnMut(&mut dyn Scorer, &mut BuildScratch) -> Result<()>,
    ) -> Result<()>;

    /// How many rows exist.
    fn rows(&self) -> u32;
}

/// Links the rows `ids` into the graph, which nobody else changes meanwhile.
pub fn link<T: Default + Send>(
    links: &GrowingLinks,
    score: &impl Score<T>,
    ids: Range<u32>,
    threads: &Threads,
    pool: &Pool<T>,
    round: &mut Round,
) -> Result<()> {
    let mut at = ids.start;
    while at < ids.end {
        let end = end_of_round(links, round.linked, at..ids.end);
        if end - at > 1 {
            round.link(links, score, at..end, threads, pool)?;
        } else {
            score.with(at, &mut pool.lend(), &mut |scorer, build| {
                build::insert(links, scorer, at, &|| score.rows(), build)
            })?;
        }
        round.linked = round.linked.saturating_add(end - at);
        at = end;
    }
    Ok(())
}

/// Where the round ends that begins with the first of the rows `ids`, `linked` others being in the graph: before the
/// next row above the top level, since such a row becomes the entry point; it is inserted alone.
fn end_of_round(links: &GrowingLinks, linked: u32, ids: Range<u32>) -> u32 {
    let first = ids.start;
    let Some((_, top)) = links.entry().filter(|_| linked >= ROWS_ALONE) else { return first + 1 };
    let size = (linked / SHARE).clamp(1, MAX_ROUND).min(ids.end - first);
    let rises = (first..first + size).find(|&id| links.level(id) > top);
    rises.map_or(first + size, |id| id.max(first + 1))
}

impl Round {
    /// The graph was opened or compacted: it has so many rows.
    pub fn start_from(&mut self, rows: u32) {
        self.linked = rows;
    }

    fn link<T: Default + Send>(
        &mut self,
        links: &GrowingLinks,
        score: &impl Score<T>,
        ids: Range<u32>,
        threads: &Threads,
        pool: &Pool<T>,
    ) -> Result<()> {
        let Some(entry) = links.entry() else { return Ok(()) };
        let (first, count) = (ids.start, ids.len());
        let bound = score.rows();
        self.nearest.clear();
        reserve(&mut self.nearest, count)?;
        self.nearest.resize_with(count, || AtomicU32::new(NOBODY));
        let nearest = &self.nearest;
        threads.for_each(0..count, pool, |scratch, i| {
            let id = first + i as u32;
            score.with(id, scratch, &mut |scorer, build| {
                build::settle(links, scorer, id, entry, bound, build)?;
                nearest[i].store(build.nearest().unwrap_or(NOBODY), Ordering::Relaxed);
                Ok(())
            })
        })?;

        self.peers.clear();
        reserve(&mut self.peers, count)?;
        self.peers.extend((0..).zip(nearest).map(|(i, near)| u64::from(near.load(Ordering::Relaxed)) << 32 | i));
        self.peers.sort_unstable();
        let (peers, most) = (&self.peers, links.params().m);
        threads.for_each(0..count, pool, |scratch, i| {
            let is_peer = |&&other: &&u64| other >> 32 == peers[i] >> 32;
            // The latest first: the next in number before a copy is the one it is chained to.
            let before = || peers[..i].iter().rev().take(most).take_while(is_peer).map(|&peer| first + peer as u32);
            if before().next().is_none() {
                return Ok(());
            }
            let id = first + peers[i] as u32;
            score.with(id, scratch, &mut |scorer, build| build::widen(links, scorer, id, before(), build))
        })?;

        self.collect(links, ids, entry.1)?;
        let back = &self.back;
        let list_of = |i: usize| back[i] >> LEVEL_SHIFT;
        threads.for_each(0..back.len().div_ceil(BLOCK), pool, |scratch, block| {
            // A block has the lists that begin in it, to their end.
            let is_within = |i: usize| i > 0 && list_of(i) == list_of(i - 1);
            let start = (block * BLOCK..back.len()).find(|&i| !is_within(i)).unwrap_or(back.len());
            let end = ((block + 1) * BLOCK..back.len()).find(|&i| !is_within(i)).unwrap_or(back.len());
            let Some(entries) = back.get(start..end).filter(|entries| !entries.is_empty()) else { return Ok(()) };
            score.with((entries[0] >> 32) as u32, scratch, &mut |scorer, build| {
                for &entry in entries {
                    let (row, level) = ((entry >> 32) as u32, (entry >> LEVEL_SHIFT) as u8);
                    let new = first + (entry as u32 & ((1 << LEVEL_SHIFT) - 1));
                    build::link_back(links, scorer, row, level, new, build)?;
                }
                Ok(())
            })
        })
    }

    /// Gathers the links back to the rows `ids`, list by list, the rows of each in order.
    fn collect(&mut self, links: &GrowingLinks, ids: Range<u32>, top: u8) -> Result<()> {
        self.back.clear();
        let mut list = Vec::new();
        for (i, id) in (0u64..).zip(ids) {
            for level in 0..=links.level(id).min(top) {
                links.links(id, level, &mut list);
                let room = self.back.len() + list.len();
                reserve(&mut self.back, room)?;
                let at = u64::from(level) << LEVEL_SHIFT | i;
                self.back.extend(list.iter().map(|&row| u64::from(row) << 32 | at));
            }
        }
        self.back.sort_unstable();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::hnsw::params::HnswParams;
    use crate::storage::ChunkOptions;

    #[test]
    fn rounds_grow_with_the_rows_linked_and_end_before_one_that_rises() {
        let links = GrowingLinks::new(HnswParams::default(), &ChunkOptions::default()).unwrap();
        let mut levels = vec![0; 60_000];
        (levels[0], levels[50_100]) = (1, 2);
        links.grow(0, &levels).unwrap();
        assert_eq!(end_of_round(&links, 50_000, 40_000..60_000), 40_001, "there is no entry point");
        links.set_entry(Some((0, 1)));
        for (linked, ids, end) in [
            (255, 255..1000, 256),
            (256, 256..1000, 272),
            (256, 256..260, 260),
            (40_000, 40_000..60_000, 42_048),
            // Batches whose turn came before that of the rows below them.
            (1, 40_000..60_000, 40_001),
            (320, 40_000..60_000, 40_020),
            (50_000, 50_000..60_000, 50_100),
            (50_100, 50_100..60_000, 50_101),
            (50_101, 50_101..60_000, 52_149),
        ] {
            assert_eq!(end_of_round(&links, linked, ids.clone()), end, "{linked} linked, {ids:?}");
        }
    }
}
