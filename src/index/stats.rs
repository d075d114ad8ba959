//! What an index is made of.

use super::hnsw::{Graph, build};
use super::{Index, State};
use crate::error::Result;
use crate::storage::Storage;

/// Bytes of one part of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SectionBytes {
    /// The part's name, as in the file.
    pub name: &'static str,
    /// Bytes in the file; for an index that can be changed, bytes of memory.
    pub bytes: u64,
}

/// What an index is made of; see [`Index::stats`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Rows, tombstones included.
    pub rows: u64,
    /// Rows that can be found.
    pub live: u64,
    /// Rows removed or replaced, still taking space.
    pub tombstones: u64,
    /// Bytes of each part.
    pub sections: Vec<SectionBytes>,
    /// Bytes this process holds in its own memory for the index: all of it while it can be changed, what was copied out
    /// of the storage otherwise.
    pub resident_bytes: u64,
    /// `levels[l]` rows have l as their highest level. Empty without a graph.
    pub levels: Vec<u64>,
    /// `degrees[d]` live rows have d links on level 0. Empty without a graph.
    pub degrees: Vec<u64>,
    /// Live rows no graph search can reach; a scan finds them, `compact` links them in again. 0 while the first rows
    /// are kept as they came: all are scanned, until they are encoded and linked.
    pub unreachable: u64,
}

impl<S: Storage + ?Sized> Index<S> {
    /// Counts what the index is made of. Reads all links: O(rows · m).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) for the marks of the rows (one bit each).
    pub fn stats(&self) -> Result<Stats> {
        let section = |(name, bytes)| SectionBytes { name, bytes };
        let mut stats;
        match &self.state {
            State::Growing(growing) => {
                let at = growing.snapshot();
                let sections: Vec<_> = growing.bytes().into_iter().map(section).collect();
                let resident_bytes = sections.iter().map(|section| section.bytes).sum();
                stats = Stats::new(at.rows, at.live, sections, resident_bytes);
                if let Some(links) = growing.links() {
                    stats.levels(at.rows, &|id| links.level(id));
                    stats.count(links, at.rows, &|id| growing.is_visible(id, &at))?;
                    if growing.vectors().current().is_staged() {
                        stats.unreachable = 0;
                    }
                }
            }
            State::Frozen(frozen) => {
                let segment = frozen.segment();
                let (rows, tombstones) = (segment.meta().rows, segment.tombstones());
                let sections = segment.section_bytes().into_iter().map(section).collect();
                stats = Stats::new(rows, frozen.live(), sections, segment.owned_bytes());
                if let Some(links) = segment.links() {
                    let graph = segment.meta().graph.as_ref();
                    let nodes = graph.iter().flat_map(|graph| &graph.levels).map(|level| u64::from(level.nodes));
                    // Rows on a level, without those that go higher.
                    let at_least: Vec<u64> = std::iter::once(u64::from(rows)).chain(nodes).chain([0]).collect();
                    stats.levels = at_least.windows(2).map(|pair| pair[0].saturating_sub(pair[1])).collect();
                    stats.count(&links, rows, &|id| !tombstones.contains(id))?;
                }
            }
        }
        Ok(stats)
    }
}

impl Stats {
    fn new(rows: u32, live: u32, sections: Vec<SectionBytes>, resident_bytes: u64) -> Self {
        Stats {
            rows: rows.into(),
            live: live.into(),
            tombstones: rows.saturating_sub(live).into(),
            sections,
            resident_bytes,
            levels: Vec::new(),
            degrees: Vec::new(),
            unreachable: 0,
        }
    }

    fn levels(&mut self, rows: u32, level: &dyn Fn(u32) -> u8) {
        for id in 0..rows {
            raise(&mut self.levels, usize::from(level(id)));
        }
    }

    #[inline(never)]
    fn count(&mut self, graph: &dyn Graph, rows: u32, live: &dyn Fn(u32) -> bool) -> Result<()> {
        let mut list = Vec::new();
        for id in (0..rows).filter(|&id| live(id)) {
            graph.links(id, 0, &mut list);
            raise(&mut self.degrees, list.len());
        }
        self.unreachable = build::unreachable(graph, rows)?.into_iter().filter(|&id| live(id)).count() as u64;
        Ok(())
    }
}

fn raise(histogram: &mut Vec<u64>, at: usize) {
    if histogram.len() <= at {
        histogram.resize(at + 1, 0);
    }
    histogram[at] += 1;
}
