//! One query over one view of an index: exact scan or graph, whichever the query asks for or the numbers favour.

use super::hnsw::Graph;
use super::hnsw::search::{Admits, SearchScratch, Walk};
use super::topk::{Keyed, Near, TopK, distance, ordered, sort_ids};
use super::{Candidate, Filter, SearchParams};
use crate::error::Result;
use crate::scorer::Scorer;
use crate::storage::reserve;

/// Rows a graph search scores for each of its `ef`, roughly: what an exact scan is weighed against.
const SCORED_PER_EF: u64 = 8;
/// Rows on which a predicate is tried before the way to search is chosen.
const SAMPLE: u32 = 256;

/// What is the same for every row store: which rows there are and which of them count.
pub struct View<'a> {
    /// Ids below it exist.
    pub rows: u32,
    /// Rows visible to this reader.
    pub live: u32,
    /// `None` where every row is visible.
    pub visible: Admits<'a>,
    /// Key of a row.
    pub key: &'a dyn Fn(u32) -> u64,
    /// The row a key has now: perhaps one that came after this reader, and that it does not see.
    pub find: &'a dyn Fn(u64) -> Option<u32>,
    /// The graph, where there is one.
    pub graph: Option<&'a dyn Graph>,
}

impl View<'_> {
    /// Whether this reader sees row `id`: what `find` gives may have come after it.
    #[inline]
    fn sees(&self, id: u32) -> bool {
        id < self.rows && self.visible.is_none_or(|visible| visible(id))
    }
}

/// What queries reuse.
#[derive(Debug, Default)]
pub struct QueryScratch {
    graph: SearchScratch,
    starts: Vec<Near>,
    found: Vec<Near>,
    top: TopK,
    ids: Vec<u32>,
    distances: Vec<f32>,
    allowed: Vec<u64>,
    keys: Vec<u64>,
    matches: Vec<u32>,
    /// What was found, nearest first.
    pub candidates: Vec<Candidate>,
}

/// A filter, ready to be asked about ids.
enum Matching<'a> {
    All,
    /// These ids, ascending, all visible.
    Ids(&'a [u32]),
    By(&'a (dyn Fn(u64) -> bool + Sync)),
}

/// Finds the `k` rows nearest to the query, which `scorer` has already, and leaves them in `scratch.candidates`,
/// nearest first.
pub fn search(
    view: &View<'_>,
    scorer: &mut dyn Scorer,
    params: &SearchParams<'_>,
    k: usize,
    default_ef: usize,
    scratch: &mut QueryScratch,
) -> Result<()> {
    scratch.candidates.clear();
    let k = k.min(view.live as usize);
    if k == 0 {
        return Ok(());
    }
    let mut matches = std::mem::take(&mut scratch.matches);
    let mut listed = Vec::new();
    let is_listed;
    let matching = match params.filter {
        None => Matching::All,
        Some(Filter::Keys(keys)) => {
            matches.clear();
            matches.extend(keys.iter().filter_map(|&key| (view.find)(key)));
            if matches.iter().all(|&id| view.sees(id)) {
                sort_ids(&mut matches, &mut scratch.keys);
                Matching::Ids(&matches)
            } else {
                // A key was updated since this reader started: the row it sees is the one before, which only a walk
                // over the rows finds.
                listed.extend_from_slice(keys);
                listed.sort_unstable();
                is_listed = |key: u64| listed.binary_search(&key).is_ok();
                Matching::By(&is_listed)
            }
        }
        Some(Filter::By(predicate)) => Matching::By(predicate),
    };
    let ef = params.ef.unwrap_or(default_ef).max(k);
    let found = find(view, scorer, &matching, params.exact, k, ef, scratch);
    scratch.matches = matches;
    found?;
    keep_one_a_key(scratch);
    Ok(())
}

fn find(
    view: &View<'_>,
    scorer: &mut dyn Scorer,
    matching: &Matching<'_>,
    exact: bool,
    k: usize,
    ef: usize,
    scratch: &mut QueryScratch,
) -> Result<()> {
    if let Some(graph) = view.graph
        && !exact
        && graph_pays(view, matching, ef)
    {
        let wanted = match matching {
            Matching::Ids(ids) => k.min(ids.len()),
            _ => k,
        };
        search_graph(view, graph, scorer, matching, k, ef, scratch)?;
        // Rows the graph does not lead to, or a filter that lets few pass: only a scan knows.
        if scratch.candidates.len() >= wanted {
            return Ok(());
        }
    }
    scan(view, scorer, matching, k, scratch)
}

/// In a damaged file two live rows may have one key: the first one is kept, which is the nearer where they are sorted.
pub fn keep_one_a_key(scratch: &mut QueryScratch) {
    let QueryScratch { candidates, keys: seen, .. } = scratch;
    seen.clear();
    seen.extend(candidates.iter().map(|found| found.key));
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        seen.clear();
        candidates.retain(|found| match seen.binary_search(&found.key) {
            Ok(_) => false,
            Err(at) => {
                seen.insert(at, found.key);
                true
            }
        });
    }
}

/// Whether the graph is expected to score fewer rows than a scan would. With a share s of n rows matching, a scan
/// scores s·n rows and the graph about c·ef/s: the graph pays once (s·n)² > c·ef·n.
fn graph_pays(view: &View<'_>, matching: &Matching<'_>, ef: usize) -> bool {
    let rows = u64::from(view.rows);
    let matches = match matching {
        Matching::All => u64::from(view.live),
        Matching::Ids(ids) => ids.len() as u64,
        Matching::By(predicate) => {
            let step = (view.rows / SAMPLE).max(1);
            let sample = (0..view.rows).step_by(step as usize);
            let sampled = sample.len() as u64;
            let passed = sample.filter(|&id| predicate((view.key)(id))).count() as u64;
            rows * passed / sampled.max(1)
        }
    };
    matches.saturating_mul(matches) > SCORED_PER_EF.saturating_mul(ef as u64).saturating_mul(rows)
}

fn search_graph(
    view: &View<'_>,
    graph: &dyn Graph,
    scorer: &mut dyn Scorer,
    matching: &Matching<'_>,
    k: usize,
    ef: usize,
    scratch: &mut QueryScratch,
) -> Result<()> {
    let QueryScratch { graph: buffers, starts, found, allowed, top, candidates, .. } = scratch;
    let Some(entry) = graph.entry() else { return Ok(()) };
    if let Matching::Ids(ids) = matching {
        let words = view.rows.div_ceil(64) as usize;
        allowed.clear();
        reserve(allowed, words)?;
        allowed.resize(words, 0);
        for &id in *ids {
            allowed[id as usize / 64] |= 1 << (id % 64);
        }
    }
    let admits = |id: u32| match matching {
        Matching::All => view.sees(id),
        Matching::Ids(_) => allowed.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1),
        Matching::By(predicate) => view.sees(id) && predicate((view.key)(id)),
    };
    let admits: Admits<'_> = match (matching, view.visible) {
        (Matching::All, None) => None,
        _ => Some(&admits),
    };
    starts.clear();
    let mut walk = Walk { graph, scorer, bound: view.rows };
    starts.extend(walk.descend(entry, 0, buffers)?);
    walk.search_level(0, starts, ef, admits, buffers, found)?;
    // Sorted by id where distances tie, but hits are sorted by key.
    top.reset(k);
    for near in found.iter() {
        top.push(Keyed { ordered: near.ordered(), key: (view.key)(near.id()), id: near.id() });
    }
    hand_over(top, candidates);
    Ok(())
}

/// The best of a list, which is empty afterwards.
pub fn hand_over(top: &mut TopK, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    top.drain_sorted(|Keyed { ordered, key, id }| candidates.push(Candidate { id, key, distance: distance(ordered) }));
}

/// The best `k` of `candidates`, whose distances have changed.
pub fn sort_again(k: usize, scratch: &mut QueryScratch) {
    let QueryScratch { top, candidates, .. } = scratch;
    top.reset(k);
    for found in candidates.iter() {
        if let Some(ordered) = ordered(found.distance) {
            top.push(Keyed { ordered, key: found.key, id: found.id });
        }
    }
    hand_over(top, candidates);
}

/// Every row that counts is scored, and only the best k are kept.
fn scan(
    view: &View<'_>,
    scorer: &mut dyn Scorer,
    matching: &Matching<'_>,
    k: usize,
    scratch: &mut QueryScratch,
) -> Result<()> {
    let QueryScratch { top, ids, distances, candidates, .. } = scratch;
    top.reset(k);
    let batch = scorer.batch();
    let mut limit = top.limit();
    let mut offer = |id: u32, distance: f32| {
        // NaN (damaged bytes) is no distance, and neither is what lies beyond all.
        if distance <= limit
            && let Some(ordered) = ordered(distance)
        {
            top.push(Keyed { ordered, key: (view.key)(id), id });
            limit = top.limit();
        }
    };
    let mut score = |scorer: &mut dyn Scorer, ids: &[u32]| -> Result<()> {
        distances.resize(ids.len(), 0.0);
        scorer.score(ids, distances)?;
        ids.iter().zip(distances.iter()).for_each(|(&id, &distance)| offer(id, distance));
        Ok(())
    };
    match matching {
        Matching::Ids(matches) => matches.chunks(batch).try_for_each(|ids| score(scorer, ids))?,
        Matching::All if view.visible.is_none() => {
            for first in (0..view.rows).step_by(batch) {
                let n = batch.min((view.rows - first) as usize);
                distances.resize(n, 0.0);
                scorer.score_run(first, distances)?;
                (first..).zip(distances.iter()).for_each(|(id, &distance)| offer(id, distance));
            }
        }
        _ => {
            ids.clear();
            for id in 0..view.rows {
                let counts = view.sees(id)
                    && match matching {
                        Matching::By(predicate) => predicate((view.key)(id)),
                        _ => true,
                    };
                if counts {
                    ids.push(id);
                    if ids.len() == batch {
                        score(scorer, ids)?;
                        ids.clear();
                    }
                }
            }
            score(scorer, ids)?;
        }
    }
    hand_over(top, candidates);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row i lies at distance i.
    struct Numbers;

    impl Scorer for Numbers {
        fn score(&mut self, ids: &[u32], out: &mut [f32]) -> Result<()> {
            out.iter_mut().zip(ids).for_each(|(distance, &id)| *distance = id as f32);
            Ok(())
        }

        fn score_run(&mut self, first: u32, out: &mut [f32]) -> Result<()> {
            out.iter_mut().zip(first..).for_each(|(distance, id)| *distance = id as f32);
            Ok(())
        }

        fn score_from(&mut self, from: u32, ids: &[u32], out: &mut [f32]) -> Result<()> {
            out.iter_mut().zip(ids).for_each(|(distance, &id)| *distance = id.abs_diff(from) as f32);
            Ok(())
        }

        fn batch(&self) -> usize {
            7
        }
    }

    /// Every row leads to the next.
    struct Path;

    impl Graph for Path {
        fn entry(&self) -> Option<(u32, u8)> {
            Some((0, 0))
        }

        fn links(&self, id: u32, _: u8, out: &mut Vec<u32>) {
            out.clear();
            out.push(id + 1);
        }

        fn prefetch(&self, _: u32) {}
    }

    #[test]
    fn a_key_whose_row_came_after_the_reader_is_found_at_the_row_the_reader_sees() {
        // As many rows as bits in a word of marks, so that the id after the last lies in another word.
        let rows = 64;
        for graph in [None, Some(&Path as &dyn Graph)] {
            let view = View {
                rows,
                live: rows,
                visible: None,
                key: &|id| u64::from(id % 64),
                // Key 3 was updated: its row is now one that this reader does not know.
                find: &|key| Some(if key == 3 { rows } else { key as u32 }),
                graph,
            };
            let keys: Vec<u64> = (0..64).collect();
            let params = SearchParams::new(100).filter(Filter::keys(&keys));
            let mut scratch = QueryScratch::default();
            search(&view, &mut Numbers, &params, 100, 1, &mut scratch).unwrap();
            let hits = &scratch.candidates;
            assert_eq!(hits.iter().map(|hit| hit.key).collect::<Vec<_>>(), keys);
            assert!(hits.iter().all(|hit| hit.distance == hit.key as f32));
            let params = SearchParams::new(1).filter(Filter::keys(&keys));
            search(&view, &mut Numbers, &params, 1, 1, &mut scratch).unwrap();
            assert_eq!(scratch.candidates[0].key, 0);
        }
    }
}
