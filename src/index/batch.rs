//! Many queries at once: scans in which each row is read once for a group of queries.
//!
//! The hits are those of single searches, to the last bit: every row that may be one is scored by the same kernels, and
//! which rows those are has a proof ([`codec::sieve`](crate::codec::sieve)). What this is not for — graph searches,
//! filters by keys, rows that are not in memory, levels without a sieve — goes query by query.

use super::search::{self, View};
use super::topk::{Keyed, TopK, ordered};
use super::{Filter, Hit, Index, Scratch, SearchParams, State, VectorSettings};
use crate::error::{Error, Result};
use crate::kernel::sieve::{GROUP, SIEVES};
use crate::scorer::{Offers, Scorable};
use crate::segment::{Encoding, Originals};
use crate::storage::{Storage, reserve};
use std::sync::OnceLock;

/// Fewer queries are answered one by one.
const LEAST: usize = 4;

/// The best of each query of a group.
struct Best<'a> {
    view: &'a View<'a>,
    filter: Option<&'a (dyn Fn(u64) -> bool + Sync)>,
    tops: &'a mut [TopK],
}

impl Offers for Best<'_> {
    fn counts(&self, id: u32) -> bool {
        self.view.visible.is_none_or(|visible| visible(id))
            && self.filter.is_none_or(|passes| passes((self.view.key)(id)))
    }

    fn offer(&mut self, q: usize, id: u32, distance: f32) -> f32 {
        let top = &mut self.tops[q];
        // As in a scan for one query.
        if distance <= top.limit()
            && let Some(ordered) = ordered(distance)
        {
            top.push(Keyed { ordered, key: (self.view.key)(id), id });
        }
        top.limit()
    }
}

impl<S: Storage + ?Sized> Index<S> {
    /// Into how large groups `count` queries are split: into more of them than need be where threads would have nothing
    /// to do; 1 where they are searched for one by one.
    pub(super) fn group_size(&self, count: usize, params: &SearchParams<'_>) -> usize {
        let scans = params.exact || self.config.graph.is_none();
        if !SIEVES || !scans || matches!(params.filter, Some(Filter::Keys(_))) || count < LEAST {
            return 1;
        }
        let groups = count.div_ceil(GROUP).max(self.config.threads.count().min(count.div_ceil(LEAST)));
        count.div_ceil(groups)
    }

    /// Searches for a group of queries, given one after the other, the first of which is number `first` of the batch,
    /// and fills `hits`. `false` where they cannot be searched for together; then nothing was done.
    pub(super) fn search_group(
        &self,
        queries: &[f32],
        first: usize,
        params: &SearchParams<'_>,
        hits: &[OnceLock<Vec<Hit>>],
        scratch: &mut Scratch,
    ) -> Result<bool> {
        params.validate()?;
        if params.rerank.is_some() && !self.has_originals() {
            return Err(Error::NoOriginals);
        }
        let VectorSettings { dimension, encoding, originals, .. } = self.config.vectors;
        let kernels = self.config.kernels;
        let mut tops = Vec::new();
        reserve(&mut tops, hits.len())?;
        tops.resize_with(hits.len(), TopK::default);
        let filter = match params.filter {
            Some(Filter::By(predicate)) => Some(predicate),
            _ => None,
        };
        let is_exact = match &self.state {
            State::Growing(growing) => {
                let at = growing.snapshot();
                let visible = |id| growing.is_visible(id, &at);
                // After the snapshot: whatever that shows is among them.
                let current = growing.vectors().current();
                let view = View {
                    rows: at.rows,
                    live: at.live,
                    visible: if at.sees_all() { None } else { Some(&visible) },
                    key: &|id| growing.key(id),
                    find: &|key| growing.find(key),
                    graph: None,
                };
                if !scan(&view, filter, current.scorable(kernels), queries, dimension, first, params, &mut tops)? {
                    return Ok(false);
                }
                encoding == Encoding::F32 || current.is_staged() && originals != Originals::F16
            }
            State::Frozen(frozen) => {
                let segment = frozen.segment();
                let (keys, tombstones) = (segment.keys(), segment.tombstones());
                let visible = |id| !tombstones.contains(id);
                let view = View {
                    rows: segment.meta().rows,
                    live: frozen.live(),
                    visible: if tombstones.is_empty() { None } else { Some(&visible) },
                    key: &|id| keys.get(id).unwrap_or(u64::MAX),
                    find: &|key| keys.find(key).find(|&id| visible(id)),
                    graph: None,
                };
                let (codec, rows, factors) = (frozen.codec(), segment.codes(), segment.factors());
                let scorable = Scorable { codec, kernels, rows, factors };
                if !scan(&view, filter, scorable, queries, dimension, first, params, &mut tops)? {
                    return Ok(false);
                }
                encoding == Encoding::F32
            }
        };
        for (i, (query, top)) in queries.chunks_exact(dimension).zip(&mut tops).enumerate() {
            search::hand_over(top, &mut scratch.query.candidates);
            search::keep_one_a_key(&mut scratch.query);
            let found = self.hits(query, params, is_exact, scratch).map_err(|e| e.for_row(first + i))?;
            hits[i].get_or_init(|| found);
        }
        Ok(true)
    }
}

#[expect(clippy::too_many_arguments, reason = "all of them differ from call to call")]
fn scan<R: crate::storage::Rows, F: crate::scorer::Factors>(
    view: &View<'_>,
    filter: Option<&(dyn Fn(u64) -> bool + Sync)>,
    rows: Scorable<'_, R, F>,
    queries: &[f32],
    dimension: usize,
    first: usize,
    params: &SearchParams<'_>,
    tops: &mut [TopK],
) -> Result<bool> {
    let k = params.candidates_wanted().min(view.live as usize);
    tops.iter_mut().for_each(|top| top.reset(k));
    let count = if k == 0 { 0 } else { view.rows };
    rows.scan_group(queries, dimension, first, count, &mut Best { view, filter, tops })
}
