//! Inserting a row, choosing its neighbours, and mending the graph after rows are gone.

use super::Graph;
use super::links::GrowingLinks;
use super::search::{SearchScratch, Walk};
use crate::error::Result;
use crate::index::topk::{Near, sort_ids};
use crate::index::visited::Visited;
use crate::mix::mix;
use crate::scorer::Scorer;
use crate::storage::reserve;

/// What insertion reuses from one row to the next.
#[derive(Debug, Default)]
pub struct BuildScratch {
    search: SearchScratch,
    starts: Vec<Near>,
    found: Vec<Near>,
    chooser: Chooser,
    list: Vec<u32>,
    beyond: Vec<u32>,
    /// The new row's neighbours, level after level from the top, and where each level's begin.
    chosen: Vec<u32>,
    bounds: Vec<usize>,
}

#[cfg(feature = "parallel")]
impl BuildScratch {
    /// The row nearest to the one that [`settle`] has just dealt with.
    pub fn nearest(&self) -> Option<u32> {
        self.starts.first().map(|near| near.id())
    }
}

/// Chooses the neighbours of row `id` on level 0 anew, from those it has and `more`.
#[cfg(feature = "parallel")]
pub fn widen(
    links: &GrowingLinks,
    scorer: &mut dyn Scorer,
    id: u32,
    more: impl Iterator<Item = u32>,
    scratch: &mut BuildScratch,
) -> Result<()> {
    let BuildScratch { chooser, list, .. } = scratch;
    links.links(id, 0, list);
    list.extend(more);
    chooser.load(scorer, id, list)?;
    links.set(id, 0, chooser.choose(scorer, id, links.params().m)?);
    Ok(())
}

/// Buffers of [`Chooser::choose`].
#[derive(Debug, Default)]
struct Chooser {
    candidates: Vec<Near>,
    kept: Vec<Near>,
    order: Vec<u64>,
    chosen: Vec<u32>,
    distances: Vec<f32>,
}

impl Chooser {
    /// Keeps, nearest first, the candidates that are nearer to row `row` than to any neighbour kept before, at most `m`
    /// of them: neighbours in all directions (Algorithm 4). `candidates` are sorted by distance from the row.
    ///
    /// Of copies of `row`'s vector, which are all at one distance from it and from each other, Algorithm 4 would keep
    /// as many as fit, and the copies would be an island. Here two are kept, the next in number before and after `row`:
    /// the copies form a chain, and their lists have room for the ways out. Of copies of another vector one is kept,
    /// which one is left to chance, so that the ways in spread over the chain.
    fn choose(&mut self, scorer: &mut dyn Scorer, row: u32, m: usize) -> Result<&[u32]> {
        for ties in self.candidates.chunk_by_mut(|a, b| a.distance() == b.distance()) {
            if let [first, second, ..] = *ties {
                let mut between = [0.0];
                scorer.score_from(first.id(), &[second.id()], &mut between)?;
                let copies = between[0] == first.distance();
                let rank = |id: u32| match copies {
                    true => id.abs_diff(row),
                    false => (mix(u64::from(id) << 32 | u64::from(row)) >> 32) as u32,
                };
                self.order.clear();
                self.order.extend(ties.iter().map(|near| u64::from(rank(near.id())) << 32 | u64::from(near.id())));
                self.order.sort_unstable();
                for (near, &entry) in ties.iter_mut().zip(&self.order) {
                    *near = near.with_id(entry as u32);
                }
            }
        }
        self.kept.clear();
        for i in 0..self.candidates.len() {
            if self.kept.len() == m {
                break;
            }
            let near = self.candidates[i];
            if self.is_apart(scorer, row, near)? {
                self.kept.push(near);
            }
        }
        self.chosen.clear();
        self.chosen.extend(self.kept.iter().map(|near| near.id()));
        Ok(&self.chosen)
    }

    fn is_apart(&mut self, scorer: &mut dyn Scorer, row: u32, near: Near) -> Result<bool> {
        let Chooser { kept, distances, chosen, .. } = self;
        // Four at a time: what speaks against a candidate is mostly among the nearest kept.
        for kept in kept.chunks(4) {
            chosen.clear();
            chosen.extend(kept.iter().map(|other| other.id()));
            distances.resize(kept.len(), 0.0);
            scorer.score_from(near.id(), chosen, distances)?;
            let stands_for = |(other, &between): (&Near, &f32)| {
                let copies = between == near.distance() && other.distance() == near.distance();
                between < near.distance() || (copies && (near.id() < row) == (other.id() < row))
            };
            if kept.iter().zip(distances.iter()).any(stands_for) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The list `ids` of row `row`, ready for [`choose`](Self::choose).
    fn load(&mut self, scorer: &mut dyn Scorer, row: u32, ids: &[u32]) -> Result<()> {
        self.distances.resize(ids.len(), 0.0);
        scorer.score_from(row, ids, &mut self.distances)?;
        self.candidates.clear();
        self.candidates.extend(ids.iter().zip(&self.distances).filter_map(|(&id, &d)| Near::new(d, id)));
        self.candidates.sort_unstable();
        Ok(())
    }
}

/// Links row `id` into the graph (Algorithm 1). `scorer`'s query is that row; `rows` says how many rows exist by now.
pub fn insert(
    links: &GrowingLinks,
    scorer: &mut dyn Scorer,
    id: u32,
    rows: &dyn Fn() -> u32,
    scratch: &mut BuildScratch,
) -> Result<()> {
    let level = links.level(id);
    // A row above the top level becomes the entry point: one such at a time.
    let rises = |links: &GrowingLinks| links.entry().is_none_or(|(_, top)| level > top);
    let _top = rises(links).then(|| links.lock_top());
    let rises = rises(links);
    let Some(entry) = links.entry() else {
        links.set_entry(Some((id, level)));
        return Ok(());
    };
    // Asked after the entry point is known, so that it is one of them: it may have come after row `id`.
    let top = settle(links, scorer, id, entry, rows(), scratch)?;
    let at = |level: u8| usize::from(top - level);
    for level in 0..=top {
        for i in scratch.bounds[at(level)]..scratch.bounds[at(level) + 1] {
            let neighbour = scratch.chosen[i];
            link_back(links, scorer, neighbour, level, id, scratch)?;
        }
    }
    if rises {
        links.set_entry(Some((id, level)));
    }
    Ok(())
}

/// Finds neighbours for row `id` on each level it shares with the graph, writes its own lists, and gives the highest of
/// these levels. Nobody is led to the row by that. Leaves what was chosen in `scratch`, and of level 0 what was found.
pub fn settle(
    links: &GrowingLinks,
    scorer: &mut dyn Scorer,
    id: u32,
    entry: (u32, u8),
    bound: u32,
    scratch: &mut BuildScratch,
) -> Result<u8> {
    let top = links.level(id).min(entry.1);
    let params = links.params();
    scratch.starts.clear();
    let mut walk = Walk { graph: links, scorer, bound };
    scratch.starts.extend(walk.descend(entry, top, &mut scratch.search)?);
    scratch.chosen.clear();
    scratch.bounds.clear();
    for level in (0..=top).rev() {
        let BuildScratch { search, starts, found, chooser, chosen, bounds, .. } = &mut *scratch;
        walk.search_level(level, starts, params.ef_construction, None, search, found)?;
        found.retain(|near| near.id() != id);
        chooser.candidates.clone_from(found);
        bounds.push(chosen.len());
        chosen.extend_from_slice(chooser.choose(walk.scorer, id, params.m)?);
        std::mem::swap(starts, found);
    }
    scratch.bounds.push(scratch.chosen.len());
    // The row's own lists first, then the links to it from the bottom up: whoever meets it finds the way on.
    let at = |level: u8| usize::from(top - level);
    for level in 0..=top {
        let list = &scratch.chosen[scratch.bounds[at(level)]..scratch.bounds[at(level) + 1]];
        links.set(id, level, list);
    }
    Ok(top)
}

/// Adds `new` to the list of row `neighbour` on `level`; a full list keeps the best of all by the usual choice.
pub fn link_back(
    links: &GrowingLinks,
    scorer: &mut dyn Scorer,
    neighbour: u32,
    level: u8,
    new: u32,
    scratch: &mut BuildScratch,
) -> Result<()> {
    let BuildScratch { chooser, list, .. } = scratch;
    links.add(neighbour, level, new, list, |list| {
        chooser.load(scorer, neighbour, list)?;
        let kept = chooser.choose(scorer, neighbour, links.params().max_links(level))?;
        list.clear();
        list.extend_from_slice(kept);
        Ok(())
    })
}

/// Takes the dead rows out of every live row's lists. A row that loses a neighbour may take over that neighbour's
/// neighbours, the best of them by the usual choice, so that no way leads through a dead row any more. Alone with the
/// graph.
pub fn detach(
    links: &GrowingLinks,
    scorer: &mut dyn Scorer,
    live: &dyn Fn(u32) -> bool,
    rows: u32,
    scratch: &mut BuildScratch,
) -> Result<()> {
    let params = *links.params();
    let BuildScratch { chooser, list, chosen, beyond, .. } = scratch;
    for id in (0..rows).filter(|&id| live(id)) {
        for level in 0..=links.level(id) {
            links.links(id, level, list);
            if list.iter().all(|&id| live(id)) {
                continue;
            }
            chosen.clear();
            for &neighbour in list.iter() {
                if live(neighbour) {
                    chosen.push(neighbour);
                } else {
                    links.links(neighbour, level, beyond);
                    chosen.extend(beyond.iter().filter(|&&other| other != id && live(other)));
                }
            }
            sort_ids(chosen, &mut chooser.order);
            chooser.load(scorer, id, chosen)?;
            links.set(id, level, chooser.choose(scorer, id, params.max_links(level))?);
        }
    }
    // The entry point: of the live rows the lowest id on the highest level.
    let entry = (0..rows).filter(|&id| live(id)).map(|id| (id, links.level(id)));
    links.set_entry(entry.reduce(|best, next| if next.1 > best.1 { next } else { best }));
    Ok(())
}

/// The rows below `rows` that no search can reach, in order: those not met on level 0 by following links from the rows
/// of the upper levels that the entry point leads to. Reads every list.
pub fn unreachable(graph: &dyn Graph, rows: u32) -> Result<Vec<u32>> {
    let mut reached = Visited::default();
    reached.reset(rows)?;
    let entry = graph.entry();
    let (mut here, mut list) = (Vec::from_iter(entry.map(|(id, _)| id)), Vec::new());
    for level in entry.into_iter().flat_map(|(_, top)| (0..=top).rev()) {
        reached.reset(rows)?;
        here.retain(|&id| reached.insert(id));
        let mut at = 0;
        while at < here.len() {
            graph.links(here[at], level, &mut list);
            let room = here.len() + list.len();
            reserve(&mut here, room)?;
            here.extend(list.iter().copied().filter(|&id| reached.insert(id)));
            at += 1;
        }
    }
    let mut lost = Vec::new();
    reserve(&mut lost, (0..rows).filter(|&id| !reached.contains(id)).count())?;
    lost.extend((0..rows).filter(|&id| !reached.contains(id)));
    Ok(lost)
}
