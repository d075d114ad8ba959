//! Ids in, distances out: the seam between the graph, which knows no vectors, and the rows, which know no graph.
//!
//! Below [`Scorer`] everything is static (codec × rows); at it there is one virtual call for each list of ids. A batch
//! of ids leaves room for what makes scoring quick: all addresses are resolved first, rows ahead are prefetched, four
//! rows share one pass over the query, and rows that are not resident are read sorted and coalesced.

use crate::codec::any::each_codec;
use crate::codec::quantized::{Bits1, Int4, Int8, QuantizedQuery};
use crate::codec::{AnyCodec, Codec};
use crate::error::{Error, Result};
use crate::kernel::Kernels;
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

/// What a [`RowScorer`] reuses from one query to the next.
#[derive(Debug, Default)]
pub struct ScorerScratch<Q> {
    query: Q,
    from: Q,
    fetched: RowBuf,
    ids: Vec<u32>,
}

/// The one [`Scorer`]: a codec over rows.
#[derive(Debug)]
pub struct RowScorer<'a, C: Codec, R, F> {
    codec: &'a C,
    kernels: &'static Kernels,
    rows: &'a R,
    factors: F,
    scratch: &'a mut ScorerScratch<C::Query>,
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

impl<'a, C: Codec, R: Rows, F: Factors> RowScorer<'a, C, R, F> {
    /// A scorer for `query`, which is checked.
    pub fn for_vector(
        codec: &'a C,
        kernels: &'static Kernels,
        rows: &'a R,
        factors: F,
        query: &[f32],
        scratch: &'a mut ScorerScratch<C::Query>,
    ) -> Result<Self> {
        codec.query(kernels, query, &mut scratch.query)?;
        Ok(RowScorer { codec, kernels, rows, factors, scratch })
    }

    /// A scorer whose query is the stored row `id`.
    pub fn for_row(
        codec: &'a C,
        kernels: &'static Kernels,
        rows: &'a R,
        factors: F,
        id: u32,
        scratch: &'a mut ScorerScratch<C::Query>,
    ) -> Result<Self> {
        let mut scorer = RowScorer { codec, kernels, rows, factors, scratch };
        let mut query = std::mem::take(&mut scorer.scratch.query);
        scorer.read_query(id, &mut query)?;
        scorer.scratch.query = query;
        Ok(scorer)
    }

    fn read_query(&mut self, id: u32, query: &mut C::Query) -> Result<()> {
        let factor = self.factors.factor(id);
        if let Some(row) = self.rows.resident(id) {
            self.codec.query_from_row(self.kernels, row, factor, query);
        } else {
            self.rows.fetch(&[id], &mut self.scratch.fetched)?;
            self.codec.query_from_row(self.kernels, self.scratch.fetched.row(0), factor, query);
        }
        Ok(())
    }

    /// `query` lies outside `self.scratch` here, so that the scratch can be borrowed.
    fn score_query(&mut self, query: &C::Query, ids: &[u32], out: &mut [f32]) -> Result<()> {
        if ids.len() != out.len() {
            return Err(Error::LengthMismatch { what: "distances", expected: ids.len(), got: out.len() });
        }
        // Rows are resident all or none.
        if ids.first().is_some_and(|&id| self.rows.resident(id).is_none()) {
            let mut fetched = std::mem::take(&mut self.scratch.fetched);
            let scored = self.rows.fetch(ids, &mut fetched).map(|()| {
                self.score_tiles(query, ids, out, |i| Some(fetched.row(i)));
            });
            self.scratch.fetched = fetched;
            return scored;
        }
        self.score_tiles(query, ids, out, |i| self.rows.resident(ids[i]));
        Ok(())
    }

    /// Scores the rows that `row(i)` finds for `ids[i]`; one that is not there is at no distance.
    fn score_tiles<'r>(&self, query: &C::Query, ids: &[u32], out: &mut [f32], row: impl Fn(usize) -> Option<&'r [u8]>) {
        for (tile, (ids, out)) in ids.chunks(TILE).zip(out.chunks_mut(TILE)).enumerate() {
            let mut rows: [&[u8]; TILE] = [&[]; TILE];
            let mut found = 0;
            while let Some(bytes) = (found < ids.len()).then(|| row(tile * TILE + found)).flatten() {
                rows[found] = bytes;
                found += 1;
            }
            self.score_tile(query, &ids[..found], &rows[..found], &mut out[..found]);
            out[found..].fill(f32::NAN);
        }
    }

    fn score_tile(&self, query: &C::Query, ids: &[u32], rows: &[&[u8]], out: &mut [f32]) {
        for row in rows.iter().take(AHEAD) {
            self.kernels.prefetch(row, LINES);
        }
        let (fours, tail) = rows.as_chunks::<4>();
        for (i, four) in fours.iter().enumerate() {
            let at = i * 4;
            for row in rows.iter().skip(at + AHEAD).take(4) {
                self.kernels.prefetch(row, LINES);
            }
            let factors = std::array::from_fn(|j| self.factors.factor(ids[at + j]));
            let distances = self.codec.distance_x4(self.kernels, query, *four, factors);
            out[at..at + 4].copy_from_slice(&distances);
        }
        let at = rows.len() - tail.len();
        for (i, row) in tail.iter().enumerate() {
            out[at + i] = self.codec.distance(self.kernels, query, row, self.factors.factor(ids[at + i]));
        }
    }
}

impl<C: Codec, R: Rows, F: Factors> Scorer for RowScorer<'_, C, R, F> {
    fn score(&mut self, ids: &[u32], out: &mut [f32]) -> Result<()> {
        let query = std::mem::take(&mut self.scratch.query);
        let result = self.score_query(&query, ids, out);
        self.scratch.query = query;
        result
    }

    fn score_run(&mut self, first: u32, out: &mut [f32]) -> Result<()> {
        let (codec, kernels, stride) = (self.codec, self.kernels, self.rows.stride());
        let mut at = 0;
        while at < out.len() {
            let id = first + at as u32;
            let wanted = out.len() - at;
            // With some rows beyond, to be prefetched for the call that follows.
            let Some(run) = self.rows.run(id, (wanted + SCAN_AHEAD.div_ceil(stride) + 4) as u32) else { break };
            let n = wanted.min(run.len() / stride);
            let (out, beyond) = (&mut out[at..at + n], run);
            let run = &run[..n * stride];
            let query = &self.scratch.query;
            let (mut rows, mut ids) = (run.chunks_exact(4 * stride), id..);
            let (fours, tail) = out.as_chunks_mut::<4>();
            for (i, (out, four)) in fours.iter_mut().zip(&mut rows).enumerate() {
                if let Some(next) = beyond.get(4 * i * stride + SCAN_AHEAD..).and_then(|next| next.get(..4 * stride)) {
                    kernels.prefetch(next, usize::MAX);
                }
                let rows = std::array::from_fn(|j| &four[j * stride..][..stride]);
                let factors = std::array::from_fn(|_| self.factors.factor(ids.next().unwrap_or(id)));
                *out = codec.distance_x4(kernels, query, rows, factors);
            }
            let rest = run[run.len() - tail.len() * stride..].chunks_exact(stride);
            for ((out, row), id) in tail.iter_mut().zip(rest).zip(ids) {
                *out = codec.distance(kernels, query, row, self.factors.factor(id));
            }
            at += n;
        }
        if at < out.len() {
            // Rows that have to be read, as one window; or none, beyond the last.
            let mut ids = std::mem::take(&mut self.scratch.ids);
            ids.clear();
            ids.extend((first..).take(out.len()).skip(at));
            let scored = self.score(&ids, &mut out[at..]);
            self.scratch.ids = ids;
            return scored;
        }
        Ok(())
    }

    fn score_from(&mut self, from: u32, ids: &[u32], out: &mut [f32]) -> Result<()> {
        let mut query = std::mem::take(&mut self.scratch.from);
        let result = self.read_query(from, &mut query).and_then(|()| self.score_query(&query, ids, out));
        self.scratch.from = query;
        result
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
    floats: ScorerScratch<Vec<f32>>,
    int8: ScorerScratch<QuantizedQuery<Int8>>,
    int4: ScorerScratch<QuantizedQuery<Int4>>,
    bits1: ScorerScratch<QuantizedQuery<Bits1>>,
}

/// The part of [`AnyScratch`] for queries of one type.
trait ScratchFor<Q> {
    fn part(&mut self) -> &mut ScorerScratch<Q>;
}

macro_rules! parts {
    ($($query:ty: $field:ident),*) => {$(
        impl ScratchFor<$query> for AnyScratch {
            fn part(&mut self) -> &mut ScorerScratch<$query> {
                &mut self.$field
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

impl<R: Rows, F: Factors> Scorable<'_, R, F> {
    /// Hands `f` a scorer for `query`, which is checked.
    ///
    /// # Errors
    /// As [`Codec::query`]; those of `f`.
    pub fn with_vector<T>(
        self,
        query: &[f32],
        scratch: &mut AnyScratch,
        f: impl FnOnce(&mut dyn Scorer) -> Result<T>,
    ) -> Result<T> {
        let Scorable { codec, kernels, rows, factors } = self;
        each_codec!(codec, codec => {
            f(&mut RowScorer::for_vector(codec, kernels, rows, factors, query, scratch.part())?)
        })
    }

    /// Hands `f` a scorer whose query is the stored row `id`.
    ///
    /// # Errors
    /// Whatever the storage says; those of `f`.
    pub fn with_row<T>(
        self,
        id: u32,
        scratch: &mut AnyScratch,
        f: impl FnOnce(&mut dyn Scorer) -> Result<T>,
    ) -> Result<T> {
        let Scorable { codec, kernels, rows, factors } = self;
        each_codec!(codec, codec => f(&mut RowScorer::for_row(codec, kernels, rows, factors, id, scratch.part())?))
    }
}

/// A query for rows of floats that are looked at one by one, with factors computed as they come.
#[derive(Debug, Default)]
pub struct Exact {
    query: Vec<f32>,
}

impl Exact {
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
