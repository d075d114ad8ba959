//! Walking the graph: greedy descent through the upper levels, best-first search of one level.
//!
//! Each neighbour list is handled in two passes: the ids not visited yet are collected, then scored as one batch. So
//! the scorer can resolve all addresses, prefetch, and take four rows at a time.

use super::Graph;
use crate::error::Result;
use crate::index::topk::{Candidates, Frontier, Near, Pool};
use crate::index::visited::Visited;
use crate::scorer::Scorer;

/// Beyond this `ef`, keeping the pool sorted costs more than heaps do.
const POOL_EF: usize = 1024;

/// What a search reuses from one query to the next.
#[derive(Debug, Default)]
pub struct SearchScratch {
    visited: Visited,
    pool: Pool,
    frontier: Frontier,
    list: Vec<u32>,
    fresh: Vec<u32>,
    distances: Vec<f32>,
}

/// Rows that may be results, decided row by row; `None` admits all.
pub type Admits<'a> = Option<&'a dyn Fn(u32) -> bool>;

/// A query on its way through a graph.
pub struct Walk<'a> {
    /// Where the ways are.
    pub graph: &'a dyn Graph,
    /// Knows the query.
    pub scorer: &'a mut dyn Scorer,
    /// Rows from here on are ignored: they came after the walk began.
    pub bound: u32,
}

impl Walk<'_> {
    /// The row found by walking down from `entry`, on every level above `target`, until no neighbour is nearer to the
    /// query.
    pub fn descend(&mut self, entry: (u32, u8), target: u8, scratch: &mut SearchScratch) -> Result<Option<Near>> {
        let SearchScratch { visited, list, fresh, distances, .. } = scratch;
        visited.reset(self.bound)?;
        if !visited.insert(entry.0) {
            return Ok(None);
        }
        let mut distance = [0.0];
        self.scorer.score(&[entry.0], &mut distance)?;
        let Some(mut nearest) = Near::new(distance[0], entry.0) else { return Ok(None) };
        for level in (target + 1..=entry.1).rev() {
            loop {
                self.graph.links(nearest.id(), level, list);
                // A row scored before, here or on a level above, was not nearer then and is not now.
                visited.insert_all(list, fresh);
                distances.resize(fresh.len(), 0.0);
                self.scorer.score(fresh, distances)?;
                let best = fresh.iter().zip(distances.iter()).filter_map(|(&id, &d)| Near::new(d, id)).min();
                match best {
                    // Strictly nearer each time: the walk ends whatever the links are.
                    Some(near) if near < nearest => nearest = near,
                    _ => break,
                }
            }
        }
        Ok(Some(nearest))
    }

    /// Best-first search of one level from `starts`: the `ef` nearest rows found that `admits` lets pass, in `found`,
    /// nearest first.
    pub fn search_level(
        &mut self,
        level: u8,
        starts: &[Near],
        ef: usize,
        admits: Admits<'_>,
        scratch: &mut SearchScratch,
        found: &mut Vec<Near>,
    ) -> Result<()> {
        found.clear();
        scratch.visited.reset(self.bound)?;
        // Never more candidates than rows: an `ef` of billions costs nothing.
        let ef = ef.min(self.bound as usize);
        if admits.is_none() && ef <= POOL_EF {
            let mut pool = std::mem::take(&mut scratch.pool);
            pool.reset(ef);
            let walked = self.walk(level, starts, admits, scratch, &mut pool);
            found.extend(pool.iter());
            scratch.pool = pool;
            walked
        } else {
            let mut frontier = std::mem::take(&mut scratch.frontier);
            frontier.reset(ef);
            let walked = self.walk(level, starts, admits, scratch, &mut frontier);
            found.extend(frontier.iter());
            found.sort_unstable();
            scratch.frontier = frontier;
            walked
        }
    }

    fn walk<C: Candidates>(
        &mut self,
        level: u8,
        starts: &[Near],
        admits: Admits<'_>,
        scratch: &mut SearchScratch,
        candidates: &mut C,
    ) -> Result<()> {
        let SearchScratch { visited, list, fresh, distances, .. } = scratch;
        let admitted = |id| admits.is_none_or(|admits| admits(id));
        for &near in starts {
            if visited.insert(near.id()) {
                candidates.push(near, admitted(near.id()));
            }
        }
        while let Some(near) = candidates.pop() {
            self.graph.links(near.id(), level, list);
            visited.insert_all(list, fresh);
            // Most often it is the one whose neighbours are wanted next.
            if let (0, Some(next)) = (level, candidates.upcoming()) {
                self.graph.prefetch(next.id());
            }
            distances.resize(fresh.len(), 0.0);
            self.scorer.score(fresh, distances)?;
            for (&id, &distance) in fresh.iter().zip(distances.iter()) {
                if let Some(near) = Near::new(distance, id) {
                    candidates.push(near, admitted(id));
                }
            }
        }
        Ok(())
    }
}
