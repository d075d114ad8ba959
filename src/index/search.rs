//! One query over one view of an index: exact scan or graph, whichever the query asks for or the numbers favour.

use super::hnsw::Graph;
use super::hnsw::search::{Admits, SearchScratch, Walk};
use super::topk::{Near, TopK, ordered};
use super::{Filter, Hit, SearchParams};
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
}

/// A filter, ready to be asked about ids.
enum Matching<'a> {
    All,
    /// These ids, ascending, all visible.
    Ids(Vec<u32>),
    By(&'a (dyn Fn(u64) -> bool + Sync)),
}

/// The hits of one query; `scorer` has the query already.
pub fn search(
    view: &View<'_>,
    scorer: &mut dyn Scorer,
    params: &SearchParams<'_>,
    default_ef: usize,
    scratch: &mut QueryScratch,
) -> Result<Vec<Hit>> {
    params.validate()?;
    let k = params.k.min(view.live as usize);
    if k == 0 {
        return Ok(Vec::new());
    }
    let mut listed = Vec::new();
    let is_listed;
    let matching = match params.filter {
        None => Matching::All,
        Some(Filter::Keys(keys)) => {
            let mut ids: Vec<u32> = keys.iter().filter_map(|&key| (view.find)(key)).collect();
            if ids.iter().all(|&id| view.sees(id)) {
                ids.sort_unstable();
                ids.dedup();
                Matching::Ids(ids)
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
    if let Some(graph) = view.graph
        && !params.exact
        && graph_pays(view, &matching, ef)
    {
        let wanted = match &matching {
            Matching::Ids(ids) => k.min(ids.len()),
            _ => k,
        };
        let hits = search_graph(view, graph, scorer, &matching, k, ef, scratch)?;
        // Rows the graph does not lead to, or a filter that lets few pass: only a scan knows.
        if hits.len() >= wanted {
            return Ok(finish(hits, params.radius, scratch));
        }
    }
    let hits = scan(view, scorer, &matching, k, scratch)?;
    Ok(finish(hits, params.radius, scratch))
}

fn finish(mut hits: Vec<Hit>, radius: Option<f32>, scratch: &mut QueryScratch) -> Vec<Hit> {
    // In a damaged file two live rows may have one key: the nearer one is kept.
    let seen = &mut scratch.keys;
    seen.clear();
    seen.extend(hits.iter().map(|hit| hit.key));
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        seen.clear();
        hits.retain(|hit| match seen.binary_search(&hit.key) {
            Ok(_) => false,
            Err(at) => {
                seen.insert(at, hit.key);
                true
            }
        });
    }
    if let Some(radius) = radius {
        hits.truncate(hits.partition_point(|hit| hit.distance <= radius));
    }
    hits
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
) -> Result<Vec<Hit>> {
    let QueryScratch { graph: buffers, starts, found, allowed, top, .. } = scratch;
    let Some(entry) = graph.entry() else { return Ok(Vec::new()) };
    if let Matching::Ids(ids) = matching {
        let words = view.rows.div_ceil(64) as usize;
        allowed.clear();
        reserve(allowed, words)?;
        allowed.resize(words, 0);
        for &id in ids {
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
        top.push(near.ordered(), (view.key)(near.id()));
    }
    Ok(top_hits(top))
}

/// The hits of a full list, which is empty afterwards.
fn top_hits(top: &mut TopK) -> Vec<Hit> {
    let mut hits = Vec::with_capacity(top.len());
    top.drain_sorted(|distance, key| hits.push(Hit { key, distance }));
    hits
}

/// The exact answer: every row that counts is scored, and only the best k are kept.
fn scan(
    view: &View<'_>,
    scorer: &mut dyn Scorer,
    matching: &Matching<'_>,
    k: usize,
    scratch: &mut QueryScratch,
) -> Result<Vec<Hit>> {
    let QueryScratch { top, ids, distances, .. } = scratch;
    top.reset(k);
    let batch = scorer.batch();
    let mut score = |ids: &[u32]| -> Result<()> {
        distances.resize(ids.len(), 0.0);
        scorer.score(ids, distances)?;
        for (&id, &distance) in ids.iter().zip(distances.iter()) {
            if let Some(ordered) = ordered(distance)
                && top.admits(ordered)
            {
                top.push(ordered, (view.key)(id));
            }
        }
        Ok(())
    };
    if let Matching::Ids(matches) = matching {
        matches.chunks(batch).try_for_each(&mut score)?;
    } else {
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
                    score(ids)?;
                    ids.clear();
                }
            }
        }
        score(ids)?;
    }
    Ok(top_hits(top))
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
            let hits = search(&view, &mut Numbers, &params, 1, &mut QueryScratch::default()).unwrap();
            assert_eq!(hits.iter().map(|hit| hit.key).collect::<Vec<_>>(), keys);
            assert!(hits.iter().all(|hit| hit.distance == hit.key as f32));
            let params = SearchParams::new(1).filter(Filter::keys(&keys));
            assert_eq!(search(&view, &mut Numbers, &params, 1, &mut QueryScratch::default()).unwrap()[0].key, 0);
        }
    }
}
