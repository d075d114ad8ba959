//! The nearest so far: total orders on distances, and the bounded lists that searches keep.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A finite distance as an unsigned integer of the same order; `None` for what is not finite (damaged bytes).
#[inline]
pub fn ordered(distance: f32) -> Option<u32> {
    if !distance.is_finite() {
        return None;
    }
    // −0 and +0 are the same distance.
    let bits = (distance + 0.0).to_bits();
    Some(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
}

/// The distance that [`ordered`] made an integer of.
#[inline]
pub fn distance(ordered: u32) -> f32 {
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

/// Sorts ids and keeps each once. By way of `spare`, since 64-bit numbers have to be sorted anyway: a second sort would
/// be another percent of the WebAssembly module.
pub fn sort_ids(ids: &mut Vec<u32>, spare: &mut Vec<u64>) {
    spare.clear();
    spare.extend(ids.iter().map(|&id| u64::from(id)));
    spare.sort_unstable();
    spare.dedup();
    ids.clear();
    ids.extend(spare.iter().map(|&id| id as u32));
}

/// A row at a distance. Orders by distance, then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near(u64);

impl Near {
    /// `None` where the distance is not finite.
    #[inline]
    pub fn new(distance: f32, id: u32) -> Option<Self> {
        Some(Near(u64::from(ordered(distance)?) << 32 | u64::from(id)))
    }

    /// The row.
    #[inline]
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// Another row at the same distance.
    #[inline]
    pub fn with_id(self, id: u32) -> Self {
        Near(self.0 & !0xffff_ffff | u64::from(id))
    }

    /// Its distance as [`ordered`] tells it.
    #[inline]
    pub fn ordered(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its distance.
    #[inline]
    pub fn distance(self) -> f32 {
        distance(self.ordered())
    }
}

/// A row with its key, at a distance. Orders by distance, then by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keyed {
    /// The distance, as [`ordered`] tells it.
    pub ordered: u32,
    /// The row's key.
    pub key: u64,
    /// The row.
    pub id: u32,
}

/// The `k` best hits of a scan: by distance, then by key.
#[derive(Debug, Default)]
pub struct TopK {
    k: usize,
    heap: BinaryHeap<Keyed>,
}

impl TopK {
    /// Empties the list; from now on it keeps the best `k`.
    pub fn reset(&mut self, k: usize) {
        self.k = k;
        self.heap.clear();
    }

    /// The largest distance at which a hit could still get in, whatever its key.
    #[inline]
    pub fn limit(&self) -> f32 {
        if self.heap.len() < self.k {
            f32::MAX
        } else {
            self.heap.peek().map_or(f32::MAX, |worst| distance(worst.ordered))
        }
    }

    /// Offers a hit.
    #[inline]
    pub fn push(&mut self, hit: Keyed) {
        if self.heap.len() < self.k {
            self.heap.push(hit);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && hit < *worst
        {
            *worst = hit;
        }
    }

    /// Hands over the hits, nearest first; the list is empty afterwards, its memory kept.
    pub fn drain_sorted(&mut self, hit: impl FnMut(Keyed)) {
        let mut hits = std::mem::take(&mut self.heap).into_sorted_vec();
        hits.drain(..).for_each(hit);
        self.heap = BinaryHeap::from(hits);
    }
}

/// What a graph search needs of its list of candidates.
pub trait Candidates {
    /// Offers a row. `admitted`: whether it may be a result (else it only leads on).
    fn push(&mut self, near: Near, admitted: bool);
    /// The nearest row not expanded yet, unless it can no longer improve the results.
    fn pop(&mut self) -> Option<Near>;
    /// The row that [`pop`](Self::pop) gives if no nearer one is offered before.
    fn upcoming(&self) -> Option<Near>;
}

/// The `ef` nearest, sorted, each marked once expanded. Best while `ef` is small and every row may be a result.
#[derive(Debug, Default)]
pub struct Pool {
    ef: usize,
    /// `Near` shifted left by one, the lowest bit set once expanded: ids stay below 2³¹.
    entries: Vec<u64>,
    /// Everything before it is expanded.
    cursor: usize,
}

impl Pool {
    /// Empties the pool; from now on it keeps the best `ef`.
    pub fn reset(&mut self, ef: usize) {
        self.ef = ef;
        self.entries.clear();
        self.cursor = 0;
    }

    /// The rows in the pool, nearest first.
    pub fn iter(&self) -> impl Iterator<Item = Near> + '_ {
        self.entries.iter().map(|&entry| unpack(entry))
    }
}

/// Distance, id, expanded: 32 + 31 + 1 bits.
#[inline]
fn pack(near: Near) -> u64 {
    near.0 & !0xffff_ffff | (near.0 & 0x7fff_ffff) << 1
}

#[inline]
fn unpack(entry: u64) -> Near {
    Near(entry & !0xffff_ffff | (entry & 0xffff_ffff) >> 1)
}

impl Candidates for Pool {
    #[inline]
    fn push(&mut self, near: Near, _admitted: bool) {
        let entry = pack(near);
        if self.entries.len() == self.ef {
            match self.entries.last() {
                Some(&worst) if entry < worst => self.entries.pop(),
                _ => return,
            };
        }
        let at = self.entries.partition_point(|&other| other < entry);
        self.entries.insert(at, entry);
        self.cursor = self.cursor.min(at);
    }

    #[inline]
    fn pop(&mut self) -> Option<Near> {
        while let Some(entry) = self.entries.get_mut(self.cursor) {
            self.cursor += 1;
            if *entry & 1 == 0 {
                *entry |= 1;
                return Some(unpack(*entry));
            }
        }
        None
    }

    #[inline]
    fn upcoming(&self) -> Option<Near> {
        self.entries.get(self.cursor..)?.iter().find(|&&entry| entry & 1 == 0).map(|&entry| unpack(entry))
    }
}

/// A frontier of any length beside the `ef` best admitted: for filters, tombstones and large `ef`.
#[derive(Debug, Default)]
pub struct Frontier {
    ef: usize,
    open: BinaryHeap<Reverse<Near>>,
    best: BinaryHeap<Near>,
}

impl Frontier {
    /// Empties both lists; from now on `ef` results are kept.
    pub fn reset(&mut self, ef: usize) {
        self.ef = ef;
        self.open.clear();
        self.best.clear();
    }

    /// The results, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Near> + '_ {
        self.best.iter().copied()
    }
}

impl Candidates for Frontier {
    #[inline]
    fn push(&mut self, near: Near, admitted: bool) {
        let full = self.best.len() == self.ef;
        if full && self.best.peek().is_none_or(|&worst| near >= worst) {
            return;
        }
        self.open.push(Reverse(near));
        if admitted {
            if full {
                self.best.pop();
            }
            self.best.push(near);
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Near> {
        let Reverse(near) = self.open.pop()?;
        if self.best.len() == self.ef && self.best.peek().is_some_and(|&worst| near > worst) {
            return None;
        }
        Some(near)
    }

    #[inline]
    fn upcoming(&self) -> Option<Near> {
        self.open.peek().map(|&Reverse(near)| near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> impl Iterator<Item = u64> {
        let mut x = 1u64;
        std::iter::repeat_with(move || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            x >> 33
        })
    }

    #[test]
    fn distances_keep_their_order_and_value_as_integers() {
        let values = [f32::MIN, -2.5, -1e-40, -0.0, 1e-45, 1.0, 1.0f32.next_up(), f32::MAX];
        for pair in values.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]), "{pair:?}");
        }
        for value in values {
            assert_eq!(distance(ordered(value).unwrap()), value);
        }
        assert_eq!(ordered(-0.0), ordered(0.0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(ordered(bad), None);
        }
    }

    #[test]
    fn top_k_keeps_the_best_by_distance_then_key() {
        let all: Vec<(u32, u64)> =
            numbers().take(500).map(|x| (ordered((x % 7) as f32 - 3.0).unwrap(), x >> 3)).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        for k in [0, 1, 10, 499, 500, 501, usize::MAX] {
            let mut top = TopK::default();
            top.reset(k);
            for &(ordered, key) in &all {
                assert!(distance(ordered) <= top.limit() || !sorted[..k.min(500)].contains(&(ordered, key)));
                top.push(Keyed { ordered, key, id: 7 });
            }
            let mut got = Vec::new();
            top.drain_sorted(|hit| got.push((hit.ordered, hit.key)));
            assert_eq!(got, sorted[..k.min(500)]);
        }
    }

    #[test]
    fn pool_and_frontier_agree_where_all_is_admitted() {
        for ef in [1, 2, 17, 64] {
            let (mut pool, mut frontier) = (Pool::default(), Frontier::default());
            pool.reset(ef);
            frontier.reset(ef);
            let mut source = numbers();
            for round in 0..200u32 {
                for i in 0..7 {
                    let near = Near::new((source.next().unwrap() % 1000) as f32 - 500.0, round * 7 + i).unwrap();
                    pool.push(near, true);
                    frontier.push(near, true);
                }
                let upcoming = pool.upcoming();
                assert_eq!(pool.pop(), upcoming);
                assert_eq!(frontier.pop(), upcoming);
            }
            let mut best: Vec<Near> = frontier.iter().collect();
            best.sort_unstable();
            assert_eq!(pool.iter().collect::<Vec<_>>(), best);
        }
    }

    #[test]
    fn what_is_not_admitted_leads_on_but_is_no_result() {
        let mut frontier = Frontier::default();
        frontier.reset(2);
        for id in 0..10 {
            frontier.push(Near::new(id as f32, id).unwrap(), id % 3 == 0);
        }
        let mut best: Vec<u32> = frontier.iter().map(Near::id).collect();
        best.sort_unstable();
        assert_eq!(best, [0, 3]);
        let expanded: Vec<u32> = std::iter::from_fn(|| frontier.pop()).map(Near::id).collect();
        assert_eq!(expanded, [0, 1, 2, 3]);
    }
}
