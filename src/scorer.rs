//! Ids in, distances out: the seam between the graph, which knows no vectors, and the rows, which know no graph.
//!
//! ```text
//! Scorer ── a list of ids ──▶ RowScorer ┬─ a tile of ids ──▶ Rows, Factors: where they lie
//!                                       └─ a tile of rows ─▶ Target: the codec, with the query
//! ```
//!
//! Each arrow is a virtual call: one for a list of ids, three for a tile of 32, none for a row; a scan makes one for
//! all the rows that lie one after the other. So there is one scorer, whatever the codec and the rows, and what a row
//! takes is compiled once for a codec. A batch of ids leaves room for what makes scoring quick: addresses are resolved
//! first, rows ahead are prefetched, four rows share one pass over the query, and rows that are not resident are read
//! sorted and coalesced.

use crate::codec::any::each_codec;
use crate::codec::quantized::{Bits1, Int4, Int8, QuantizedQuery};
use crate::codec::sieve::Group;
use crate::codec::{AnyCodec, Codec};
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::kernel::sieve::SIEVE_ROWS;
use crate::storage::window::WINDOW_BYTES;
use crate::storage::{RowBuf, Rows};

/// Distances from the current query, or from a stored row, to rows given by id.
pub trait Scorer {
    /// Distances from the query to the rows `ids`, into `out` (same length). Damaged rows may give a distance that is
    /// not finite; callers drop it.
    ///
    /// # Errors
    /// Whatever the storage says; never for resident rows in range.
    fn score(&mut self, ids: &[u32], out: &mut [f32]) -> Result<()>;

    /// Distances from the query to the rows from `first` on, as many as `out` has places.
    ///
    /// # Errors
    /// As [`score`](Scorer::score).
    fn score_run(&mut self, first: u32, out: &mut [f32]) -> Result<()>;

    /// Distances from the stored row `from` to the rows `ids`: for choosing neighbours.
    ///
    /// # Errors
    /// As [`score`](Scorer::score).
    fn score_from(&mut self, from: u32, ids: &[u32], out: &mut [f32]) -> Result<()>;

    /// How many ids in a row a scan should ask for at once: enough for a window, where rows have to be read.
    fn batch(&self) -> usize;
}

/// One factor a row, where the metric has them.
pub trait Factors {
    /// The factor of row `id`; 1 where there is none.
    fn factor(&self, id: u32) -> f32;

    /// The factors of the rows `ids`, into as many places of `out`.
    fn gather(&self, ids: &[u32], out: &mut [f32]) {
        ids.iter().zip(out).for_each(|(&id, factor)| *factor = self.factor(id));
    }

    /// The factors of the rows from `first` on.
    fn gather_run(&self, first: u32, out: &mut [f32]) {
        (first..).zip(out).for_each(|(id, factor)| *factor = self.factor(id));
    }
}

impl<F: Factors> Factors for Option<F> {
    #[inline]
    fn factor(&self, id: u32) -> f32 {
        self.as_ref().map_or(1.0, |factors| factors.factor(id))
    }
}

impl<F: Factors> Factors for &F {
    #[inline]
    fn factor(&self, id: u32) -> f32 {
        (**self).factor(id)
    }
}

/// Which query is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The one the scorer was made for.
    Query,
    /// A stored row, for [`Scorer::score_from`].
    From,
}

/// Prepared queries of one codec, and the distances from them.
trait Target {
    /// Makes a stored row a query.
    fn take(&mut self, which: Which, row: &[u8], factor: f32);

    /// Distances to as many rows as `out` has places. `scattered`: worth prefetching.
    fn score(&self, which: Which, rows: &[&[u8]], scattered: bool, factors: &[f32], out: &mut [f32]);

    /// Distances from the query to the rows that `run` begins with, as many as `out` has places; what lies behind them
    /// is prefetched. `first` is the id of the first.
    fn score_run(&self, run: &[u8], first: u32, factors: &dyn Factors, out: &mut [f32]);
}

/// What a [`Target`] reuses.
#[derive(Debug, Default)]
struct Queries<Q> {
    query: Q,
    from: Q,
}

/// The one [`Target`].
struct Prepared<'a, C: Codec> {
    codec: &'a C,
    kernels: &'static Kernels,
    queries: &'a mut Queries<C::Query>,
}

impl<C: Codec> Target for Prepared<'_, C> {
    fn take(&mut self, which: Which, row: &[u8], factor: f32) {
        let query = match which {
            Which::Query => &mut self.queries.query,
            Which::From => &mut self.queries.from,
        };
        self.codec.query_from_row(self.kernels, row, factor, query);
    }

    fn score(&self, which: Which, rows: &[&[u8]], scattered: bool, factors: &[f32], out: &mut [f32]) {
        let (codec, kernels) = (self.codec, self.kernels);
        let query = match which {
            Which::Query => &self.queries.query,
            Which::From => &self.queries.from,
        };
        let ahead = if scattered { AHEAD } else { 0 };
        for row in rows.iter().take(ahead) {
            kernels.prefetch(row, LINES);
        }
        let (fours, tail) = rows.as_chunks::<4>();
        let (out, out_tail) = out.as_chunks_mut::<4>();
        let (factors, factors_tail) = factors.as_chunks::<4>();
        for (i, ((four, factors), out)) in fours.iter().zip(factors).zip(out).enumerate() {
            for row in rows.iter().skip(i * 4 + AHEAD).take(ahead) {
                kernels.prefetch(row, LINES);
            }
            *out = codec.distance_x4(kernels, query, *four, *factors);
        }
        for ((row, &factor), out) in tail.iter().zip(factors_tail).zip(out_tail) {
            *out = codec.distance(kernels, query, row, factor);
        }
    }

    fn score_run(&self, run: &[u8], first: u32, factors: &dyn Factors, out: &mut [f32]) {
        let (codec, kernels, query) = (self.codec, self.kernels, &self.queries.query);
        let (stride, has_factors) = (codec.stride(), codec.has_factors());
        let count = out.len();
        let (fours, tail) = out.as_chunks_mut::<4>();
        for (i, (out, four)) in fours.iter_mut().zip(run.chunks_exact(4 * stride)).enumerate() {
            if let Some(next) = run.get(4 * i * stride + SCAN_AHEAD..).and_then(|next| next.get(..4 * stride)) {
                kernels.prefetch(next, usize::MAX);
            }
            let mut of_four = [1.0; 4];
            if has_factors {
                factors.gather_run(first + 4 * i as u32, &mut of_four);
            }
            let rows = std::array::from_fn(|j| &four[j * stride..][..stride]);
            *out = codec.distance_x4(kernels, query, rows, of_four);
        }
        let at = count - tail.len();
        for (i, (out, row)) in (at..).zip(tail.iter_mut().zip(run.chunks_exact(stride).skip(at))) {
            *out = codec.distance(kernels, query, row, factors.factor(first + i as u32));
        }
    }
}

/// What a [`RowScorer`] reuses from one query to the next.
#[derive(Debug, Default)]
struct Buffers {
    fetched: RowBuf,
    ids: Vec<u32>,
}

/// The one [`Scorer`].
struct RowScorer<'a> {
    target: &'a mut dyn Target,
    rows: &'a dyn Rows,
    factors: &'a dyn Factors,
    buffers: &'a mut Buffers,
}

/// Addresses resolved at a time: one neighbour list of an index with m = 16.
const TILE: usize = 32;
/// Resident rows a scan asks for at a time.
const SCAN: usize = 256;
/// Rows prefetched ahead of the ones being scored.
const AHEAD: usize = 4;
/// Bytes prefetched ahead in a run of rows: the hardware alone, which stops at each page, leaves a fifth to a third of
/// the memory's speed unused where rows are small (measured: f16 79 → 59 ns a row of 384 components, int4 21 → 16).
const SCAN_AHEAD: usize = 4096;
/// Cache lines prefetched of each row; the hardware follows the rest.
const LINES: usize = 8;

impl RowScorer<'_> {
    /// Makes the stored row `id` a query.
    fn take(&mut self, which: Which, id: u32) -> Result<()> {
        let factor = self.factors.factor(id);
        if let Some(row) = self.rows.resident(id) {
            self.target.take(which, row, factor);
        } else {
            self.rows.fetch(&[id], &mut self.buffers.fetched)?;
            self.target.take(which, self.buffers.fetched.row(0), factor);
        }
        Ok(())
    }

    fn score_ids(&mut self, which: Which, ids: &[u32], out: &mut [f32]) -> Result<()> {
        if ids.len() != out.len() {
            return Err(Error::LengthMismatch { what: "distances", expected: ids.len(), got: out.len() });
        }
        // Rows are resident all or none.
        let is_read = ids.first().is_some_and(|&id| self.rows.resident(id).is_none());
        let fetched = &mut self.buffers.fetched;
        if is_read {
            self.rows.fetch(ids, fetched)?;
        }
        for (tile, (ids, out)) in ids.chunks(TILE).zip(out.chunks_mut(TILE)).enumerate() {
            let mut rows: [&[u8]; TILE] = [&[]; TILE];
            let found = if is_read {
                (tile * TILE..).zip(&mut rows[..ids.len()]).for_each(|(i, row)| *row = fetched.row(i));
                ids.len()
            } else {
                self.rows.resolve(ids, &mut rows)
            };
            let mut factors = [1.0; TILE];
            self.factors.gather(&ids[..found], &mut factors);
            self.target.score(which, &rows[..found], !is_read, &factors[..found], &mut out[..found]);
            // One that is not there is at no distance.
            out[found..].fill(f32::NAN);
        }
        Ok(())
    }
}

impl Scorer for RowScorer<'_> {
    fn score(&mut self, ids: &[u32], out: &mut [f32]) -> Result<()> {
        self.score_ids(Which::Query, ids, out)
    }

    fn score_run(&mut self, first: u32, out: &mut [f32]) -> Result<()> {
        let stride = self.rows.stride();
        let mut at = 0;
        while at < out.len() {
            let id = first + at as u32;
            let wanted = out.len() - at;
            // With some rows beyond, to be prefetched for the call that follows.
            let Some(run) = self.rows.run(id, (wanted + SCAN_AHEAD.div_ceil(stride) + 4) as u32) else { break };
            let n = wanted.min(run.len() / stride);
            self.target.score_run(run, id, self.factors, &mut out[at..at + n]);
            at += n;
        }
        if at < out.len() {
            // Rows that have to be read, as one window; or none, beyond the last.
            let mut ids = std::mem::take(&mut self.buffers.ids);
            ids.clear();
            ids.extend((first..).take(out.len()).skip(at));
            let scored = self.score(&ids, &mut out[at..]);
            self.buffers.ids = ids;
            return scored;
        }
        Ok(())
    }

    fn score_from(&mut self, from: u32, ids: &[u32], out: &mut [f32]) -> Result<()> {
        self.take(Which::From, from)?;
        self.score_ids(Which::From, ids, out)
    }

    fn batch(&self) -> usize {
        match self.rows.resident(0) {
            Some(_) => SCAN,
            None => (WINDOW_BYTES / self.rows.stride().max(1)).max(1),
        }
    }
}

/// What scorers of any codec reuse: only the part in use has memory.
#[derive(Debug, Default)]
pub struct AnyScratch {
    floats: Queries<Vec<f32>>,
    int8: Queries<QuantizedQuery<Int8>>,
    int4: Queries<QuantizedQuery<Int4>>,
    bits1: Queries<QuantizedQuery<Bits1>>,
    buffers: Buffers,
}

/// The part of [`AnyScratch`] for queries of one type.
trait ScratchFor<Q> {
    fn parts(&mut self) -> (&mut Queries<Q>, &mut Buffers);
}

macro_rules! parts {
    ($($query:ty: $field:ident),*) => {$(
        impl ScratchFor<$query> for AnyScratch {
            fn parts(&mut self) -> (&mut Queries<$query>, &mut Buffers) {
                (&mut self.$field, &mut self.buffers)
            }
        }
    )*};
}

parts!(Vec<f32>: floats, QuantizedQuery<Int8>: int8, QuantizedQuery<Int4>: int4, QuantizedQuery<Bits1>: bits1);

/// Rows and all it takes to compare them.
#[derive(Debug)]
pub struct Scorable<'a, R, F> {
    /// How they are encoded.
    pub codec: &'a AnyCodec,
    /// What compares them.
    pub kernels: &'static Kernels,
    /// The rows.
    pub rows: &'a R,
    /// Their factors.
    pub factors: F,
}

/// What a scorer is made for.
enum Start<'a> {
    Vector(&'a [f32]),
    Row(u32),
}

impl<R: Rows, F: Factors> Scorable<'_, R, F> {
    /// Hands `f` a scorer for `query`, which is checked.
    ///
    /// # Errors
    /// As [`Codec::query`]; those of `f`.
    pub fn with_vector(
        self,
        query: &[f32],
        scratch: &mut AnyScratch,
        mut f: impl FnMut(&mut dyn Scorer) -> Result<()>,
    ) -> Result<()> {
        with_scorer(self.codec, self.kernels, self.rows, &self.factors, Start::Vector(query), scratch, &mut f)
    }

    /// Hands `f` a scorer whose query is the stored row `id`.
    ///
    /// # Errors
    /// Whatever the storage says; those of `f`.
    pub fn with_row(
        self,
        id: u32,
        scratch: &mut AnyScratch,
        mut f: impl FnMut(&mut dyn Scorer) -> Result<()>,
    ) -> Result<()> {
        with_scorer(self.codec, self.kernels, self.rows, &self.factors, Start::Row(id), scratch, &mut f)
    }
}

/// Hands `f` a scorer over rows of any codec.
fn with_scorer(
    codec: &AnyCodec,
    kernels: &'static Kernels,
    rows: &dyn Rows,
    factors: &dyn Factors,
    start: Start<'_>,
    scratch: &mut AnyScratch,
    f: &mut dyn FnMut(&mut dyn Scorer) -> Result<()>,
) -> Result<()> {
    each_codec!(codec, codec => {
        let (queries, buffers) = scratch.parts();
        if let Start::Vector(vector) = start {
            codec.query(kernels, vector, &mut queries.query)?;
        }
        let target = &mut Prepared { codec, kernels, queries };
        let mut scorer = RowScorer { target, rows, factors, buffers };
        if let Start::Row(id) = start {
            scorer.take(Which::Query, id)?;
        }
        f(&mut scorer)
    })
}

/// Who takes the hits of a group of queries.
pub trait Offers {
    /// Whether row `id` counts.
    fn counts(&self, id: u32) -> bool;

    /// Row `id` is at this distance from query `q`; gives the largest distance at which another could be a hit of it.
    fn offer(&mut self, q: usize, id: u32, distance: f32) -> f32;
}

impl<R: Rows, F: Factors> Scorable<'_, R, F> {
    /// Offers, of the rows below `count`, all that may be hits of a group of queries, given one after the other, with
    /// the distances that a [`Scorer`] gives. `false` where a group cannot be scanned for together: nothing was
    /// offered. The first query is number `first` of those whose errors are named.
    ///
    /// # Errors
    /// As [`Codec::query`], naming the query; [`Error::OutOfMemory`].
    pub fn scan_group(
        self,
        queries: &[f32],
        dimension: usize,
        first: usize,
        count: u32,
        offers: &mut dyn Offers,
    ) -> Result<bool> {
        let Some(sieve) = self.kernels.sieve() else { return Ok(false) };
        if count > 0 && self.rows.resident(0).is_none() {
            return Ok(false);
        }
        let kernels = self.kernels;
        each_codec!(self.codec, codec => {
            let mut prepared = Vec::new();
            for (i, vector) in queries.chunks_exact(dimension).enumerate() {
                let mut query = Default::default();
                codec.query(kernels, vector, &mut query).map_err(|e| e.for_row(first + i))?;
                prepared.push(query);
            }
            let Some(mut group) = codec.group(sieve, &prepared)? else { return Ok(false) };
            scan_group(codec, kernels, &prepared, &mut group, self.rows, &self.factors, count, offers)
        })
    }
}

/// The rows of [`Scorable::scan_group`], six at a time: estimated for all queries, scored for those they may be hits of.
#[expect(clippy::too_many_arguments, reason = "all of them differ from call to call")]
fn scan_group<C: Codec>(
    codec: &C,
    kernels: &'static Kernels,
    queries: &[C::Query],
    group: &mut Group,
    rows: &dyn Rows,
    factors: &dyn Factors,
    count: u32,
    offers: &mut dyn Offers,
) -> Result<bool> {
    let stride = codec.stride();
    let mut first = 0;
    while first < count {
        let Some(run) = rows.run(first, count - first) else { return Ok(true) };
        for six in run.chunks(SIEVE_ROWS * stride) {
            let n = six.len() / stride;
            // Where there are fewer, the last counts for the rest.
            let rows: [&[u8]; SIEVE_ROWS] = std::array::from_fn(|i| &six[i.min(n - 1) * stride..][..stride]);
            let mut of_six = [1.0; SIEVE_ROWS];
            if codec.has_factors() {
                factors.gather_run(first, &mut of_six[..n]);
            }
            codec.estimate(group, rows, of_six);
            for (r, id) in (0..n).zip(first..) {
                let mut passing = group.passing(r);
                if passing == 0 || !offers.counts(id) {
                    continue;
                }
                while passing != 0 {
                    let q = passing.trailing_zeros() as usize;
                    passing &= passing - 1;
                    let distance = codec.distance(kernels, &queries[q], rows[r], of_six[r]);
                    let limit = offers.offer(q, id, distance);
                    group.limit(q, limit);
                }
            }
            first += n as u32;
        }
    }
    Ok(true)
}

/// A query for rows of floats that are looked at one by one, with factors computed as they come.
#[derive(Debug, Default)]
pub struct FloatQuery {
    query: Vec<f32>,
}

impl FloatQuery {
    /// Prepares `query` for rows of `codec`.
    ///
    /// # Errors
    /// As [`Codec::query`]; [`Error::InvalidParameter`] for a codec of estimates.
    pub fn prepare(&mut self, codec: &AnyCodec, kernels: &Kernels, query: &[f32]) -> Result<()> {
        match codec {
            AnyCodec::F32(codec) => codec.query(kernels, query, &mut self.query),
            AnyCodec::F16(codec) => codec.query(kernels, query, &mut self.query),
            _ => {
                Err(Error::InvalidParameter { name: "codec", expected: "one of floats", got: "a quantized one".into() })
            }
        }
    }

    /// The distance to a row; NaN for a codec of estimates.
    pub fn distance(&self, codec: &AnyCodec, kernels: &Kernels, row: &[u8]) -> f32 {
        match codec {
            AnyCodec::F32(codec) => codec.distance(kernels, &self.query, row, codec.factor_of(row)),
            AnyCodec::F16(codec) => codec.distance(kernels, &self.query, row, codec.factor_of(row)),
            _ => f32::NAN,
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::storage::{ChunkOptions, ChunkedRows};

    /// Keeps the ten least distances of each query, and counts what it is offered.
    struct Ten {
        best: Vec<Vec<f32>>,
        offered: usize,
    }

    impl Offers for Ten {
        fn counts(&self, _: u32) -> bool {
            true
        }

        fn offer(&mut self, q: usize, _: u32, distance: f32) -> f32 {
            self.offered += 1;
            let best = &mut self.best[q];
            best.push(distance);
            best.sort_by(f32::total_cmp);
            best.truncate(10);
            if best.len() < 10 { f32::MAX } else { best[9] }
        }
    }

    /// A bound that is sound but useless would let all rows pass, and no other test would notice. In a random order
    /// some 10 · (1 + ln(rows / 10)) of them have to pass.
    #[test]
    fn few_rows_pass_the_sieve() {
        let (dimension, rows, queries) = (96, 6000, 16);
        let mut state = 1u64;
        let mut number = || {
            let mut sum = 0.0;
            for _ in 0..4 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sum += (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
            }
            sum
        };
        let vectors: Vec<f32> = (0..rows * dimension).map(|_| number()).collect();
        let asked: Vec<f32> = (0..queries * dimension).map(|_| number()).collect();
        let kernels = Kernels::best();
        let Some(sieve) = kernels.sieve() else { return };
        for metric in Metric::ALL {
            let codecs = [
                (AnyCodec::f32(dimension, metric), 1.05),
                (AnyCodec::f16(dimension, metric), 1.05),
                (AnyCodec::Int8(crate::codec::quantized::QuantizedCodec::new(dimension, metric, Some(1))), 2.0),
                (AnyCodec::Int4(crate::codec::quantized::QuantizedCodec::new(dimension, metric, Some(1))), 1.05),
                (AnyCodec::Bits1(crate::codec::quantized::QuantizedCodec::new(dimension, metric, Some(1))), 1.6),
            ];
            for (codec, share) in codecs {
                let is_whole = !matches!(codec, AnyCodec::F32(_) | AnyCodec::F16(_));
                if is_whole && !sieve.has_bytes() {
                    continue;
                }
                let stored = ChunkedRows::new(codec.stride(), &ChunkOptions::default()).unwrap();
                let (mut factors, mut work) = (Vec::new(), Vec::new());
                let fill = |i: u32, row: &mut [u8]| {
                    factors.push(codec.encode(&vectors[i as usize * dimension..][..dimension], row, &mut work)?);
                    Ok(())
                };
                stored.append(rows as u32, fill).unwrap();
                let mut ten = Ten { best: vec![Vec::new(); queries], offered: 0 };
                let scorable = Scorable { codec: &codec, kernels, rows: &stored, factors: OfAll(&factors) };
                assert!(scorable.scan_group(&asked, dimension, 0, rows as u32, &mut ten).unwrap());
                let expected = 10.0 * (1.0 + (rows as f64 / 10.0).ln()) * queries as f64;
                let passed = ten.offered as f64 / expected;
                assert!(passed < 1.2 * share, "{metric:?} {codec:?}: {passed} times as many as had to");
            }
        }
    }

    struct OfAll<'a>(&'a [f32]);

    impl Factors for OfAll<'_> {
        fn factor(&self, id: u32) -> f32 {
            self.0[id as usize]
        }
    }
}
