//! The encodings `int8`, `int4` and `bits1`: a code of 8, 4 or 1 bits a component, and two factors a row.
//!
//! ```text
//! x ──▶ r = H(x − μ) ──▶ code c, scale Δ ──▶ row: ├─ c, packed ─┤ f │ o │
//!         │      │              │
//!   centre μ   rotation H     the grid g(c) = c − (2ᵇ − 1)/2 in steps of Δ, Δ chosen for each row
//! ```
//!
//! **Encoding.** The centre is taken off (under cosine, from the normalised vector), the rest rotated, so that its
//! components are alike and near normal. A row's grid is the one, of some two dozen widths tried, whose point g nearest
//! to r has the largest cosine with r. What is kept besides the code are two f32:
//!
//! - f = ‖r‖² / ⟨r, g⟩: f·g is the reconstruction whose inner product with r itself is exact, which makes the
//!   estimate unbiased: Gao and Long, "RaBitQ" (2024), §3.2, and with several bits "Practical and Asymptotically
//!   Optimal Quantization of High-Dimensional Vectors" (2024), §3; the search for the width is theirs too, made
//!   cheaper.
//! - o, the metric's own: ‖r‖² for L2, ⟨μ, x − μ⟩ otherwise.
//!
//! **Distance.** A query q is centred and rotated likewise, and rounded to integers u of more bits than rows have, in
//! steps of s. With the integer inner product Σ uᵢcᵢ (a kernel) there is ⟨u, g⟩ without rounding, and
//!
//! | metric | estimate |
//! |---|---|
//! | L2 | ‖q − μ‖² + o − 2·f·s·⟨u, g⟩, at least 0 |
//! | inner product | −(⟨q, μ⟩ + o + f·s·⟨u, g⟩) |
//! | cosine | 1 − (⟨q, μ⟩ + o + f·s·⟨u, g⟩), within 0 and 2 |
//!
//! **Error.** With θ the angle between r and g, the inner product's error has the standard deviation
//! ‖q − μ‖·‖r‖·tan θ / √d for a random rotation. Rotated rows of dimensions beyond 100 have tan θ of about 0.008 with
//! int8, 0.106 with int4 and 0.75 with bits1. The rounding of the query adds some hundredths of that.
//!
//! Everything is done in an order that is fixed, in f32 and f64 without fused operations: the same vector has the same
//! row, and the same query the same distances, on every machine.

mod bits1;
mod int4;
mod int8;

pub use bits1::Bits1;
pub use int4::Int4;
pub use int8::Int8;

use super::rotation::Rotation;
use super::sieve::{Group, OfQuery, OfRow, SLACK, U, underflow};
use super::{Codec, checked_vector_norm, squared_norm, sum};
use crate::error::{Error, Result};
use crate::kernel::sieve::{SIEVE_ROWS, Sieve};
use crate::kernel::{Kernels, LANES};
use crate::metric::Metric;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// Bytes of the two factors behind a code.
pub const FACTOR_BYTES: usize = 2 * size_of::<f32>();

/// The largest norm of a vector that is not normalised first, and of a centre: differences of two such vectors, too,
/// have squares that sums of a few of them keep finite.
pub(crate) fn norm_limit() -> f64 {
    f64::from(f32::MAX).sqrt() / 8.0
}

/// How a component becomes a few bits: the grid, its packing and its kernels.
pub trait Grid: Debug + Default {
    /// Components of a query, rounded; twice the grid value of a row's component fits too.
    type Value: Copy + Debug + Default;
    /// A query as the kernels want it.
    type Arranged: Debug + Default;

    /// Points of the grid: c = 0 .. LEVELS, with the values c − (LEVELS − 1)/2.
    const LEVELS: i32;
    /// The largest magnitude of a query's component.
    const QUERY_MAX: i32;
    /// The grid's half-widths tried, as shares of the row's largest magnitude: from, to, how many.
    const WIDTHS: (f32, f32, usize);
    /// What a row, taken as a query, loses in length: the mean of cos²θ for a rotated row.
    const COSINE_SQUARED: f32;
    /// What the sieve divides a query's components by, to have 8 bits of them.
    const STEP: i32;
    /// Twice the grid value of code 0 (of a byte of 0): what Σu counts in [`product`](Grid::product).
    const BETA: f64;

    /// Unpacks a code to signed bytes, one a component.
    fn spread(bytes: &[u8], wide: &mut [u8]);

    /// Bytes of a code.
    fn code_bytes(dimension: usize) -> usize;
    /// Packs codes (component i is `code(i)`, 0 .. LEVELS) into bytes.
    fn pack(dimension: usize, code: impl Fn(usize) -> i32, bytes: &mut [u8]);
    /// Code of component i.
    fn unpack(dimension: usize, bytes: &[u8], i: usize) -> i32;
    /// Appends twice the grid value of each component: whole numbers.
    fn doubled(dimension: usize, bytes: &[u8], values: &mut Vec<Self::Value>);
    /// The sum of what [`doubled`](Grid::doubled) appends.
    fn sum_of_doubled(dimension: usize, bytes: &[u8]) -> i64;
    /// Whether bits that belong to no component are zero.
    fn is_padded(dimension: usize, bytes: &[u8]) -> bool;
    /// From a number within ± QUERY_MAX.
    fn value(rounded: i32) -> Self::Value;
    /// As a number.
    fn number(value: Self::Value) -> i32;
    /// Arranges a query.
    fn arrange(kernels: &Kernels, values: &[Self::Value], arranged: &mut Self::Arranged);
    /// 2·⟨u, g⟩ for a code, where `sum` is Σu.
    fn product(kernels: &Kernels, arranged: &Self::Arranged, sum: i64, code: &[u8]) -> i64;
    /// The same for four.
    fn product_x4(kernels: &Kernels, arranged: &Self::Arranged, sum: i64, codes: [&[u8]; 4]) -> [i64; 4];
}

/// Rows of quantized vectors. See the [module docs](self).
#[derive(Debug, Clone)]
pub struct QuantizedCodec<G> {
    dimension: usize,
    metric: Metric,
    rotation: Option<Arc<Rotation>>,
    /// Empty where rows are not centred.
    centre: Vec<f32>,
    centre_squared: f32,
    grid: PhantomData<G>,
}

/// A query for [`QuantizedCodec`].
#[derive(Debug, Default)]
pub struct QuantizedQuery<G: Grid> {
    arranged: G::Arranged,
    /// Σu.
    sum: i64,
    /// s / 2: products come doubled.
    scale: f32,
    /// ‖q − μ‖² for L2, ⟨q, μ⟩ otherwise.
    offset: f32,
    rotated: Vec<f32>,
    values: Vec<G::Value>,
}

impl<G: Grid> QuantizedCodec<G> {
    /// A codec for vectors of `dimension` components, rotated by the seed where there is one, not centred.
    pub fn new(dimension: usize, metric: Metric, seed: Option<u64>) -> Self {
        let rotation = seed.map(|seed| Arc::new(Rotation::new(dimension, seed)));
        QuantizedCodec { dimension, metric, rotation, centre: Vec::new(), centre_squared: 0.0, grid: PhantomData }
    }

    /// The same codec, centred on `centre`, of `dimension` components; not centred where that is empty.
    pub fn centred(&self, centre: Vec<f32>) -> Self {
        let centre_squared = squared(&centre) as f32;
        QuantizedCodec { rotation: self.rotation.clone(), centre, centre_squared, ..*self }
    }

    /// What vectors are centred on; empty where they are not.
    pub fn centre(&self) -> &[f32] {
        &self.centre
    }

    /// What components are divided by first: the norm under cosine, 1 otherwise.
    fn divisor(&self, vector: &[f32]) -> Result<f64> {
        let limit = match self.metric {
            Metric::L2 | Metric::InnerProduct => norm_limit(),
            Metric::Cosine => super::norm_limit(self.metric),
        };
        let norm = checked_vector_norm(vector, self.dimension, self.metric, limit)?;
        Ok(if self.metric == Metric::Cosine { norm } else { 1.0 })
    }

    /// Writes H(x/divisor − μ) to `rotated` and returns ⟨x/divisor, μ⟩.
    fn transform(&self, vector: &[f32], divisor: f64, rotated: &mut Vec<f32>) -> f64 {
        rotated.clear();
        if divisor == 1.0 {
            rotated.extend_from_slice(vector);
        } else {
            rotated.extend(vector.iter().map(|&x| (f64::from(x) / divisor) as f32));
        }
        let along = sum(self.centre.len(), |i| f64::from(rotated[i]) * f64::from(self.centre[i]));
        for (x, centre) in rotated.iter_mut().zip(&self.centre) {
            *x -= centre;
        }
        if let Some(rotation) = &self.rotation {
            rotation.apply(rotated);
        }
        along
    }

    /// A row's code and factors; NaN for those of something shorter than a row.
    #[inline]
    fn parts<'a>(&self, row: &'a [u8]) -> (&'a [u8], f32, f32) {
        match row.split_last_chunk::<FACTOR_BYTES>() {
            Some((code, &[a, b, c, d, e, f, g, h])) => {
                (code, f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]))
            }
            None => (row, f32::NAN, f32::NAN),
        }
    }

    /// From 2·⟨u, g⟩ and a row's factors.
    #[inline]
    fn finish(&self, query: &QuantizedQuery<G>, product: i64, f: f32, offset: f32) -> f32 {
        let inner = query.scale * product as f32 * f;
        match self.metric {
            // NaN (damaged factors) stays NaN.
            Metric::L2 => {
                let squared = (query.offset + offset) - 2.0 * inner;
                if squared < 0.0 { 0.0 } else { squared }
            }
            Metric::InnerProduct => 0.0 - ((query.offset + offset) + inner),
            Metric::Cosine => (1.0 - ((query.offset + offset) + inner)).clamp(0.0, 2.0),
        }
    }

    /// Rounds `query.rotated` to integers.
    fn round(&self, kernels: &Kernels, query: &mut QuantizedQuery<G>) {
        let largest = largest_magnitude(&query.rotated);
        let max = G::QUERY_MAX as f32;
        query.values.clear();
        if largest > 0.0 {
            query.values.extend(query.rotated.iter().map(|x| G::value(round(x / largest * max) as i32)));
        } else {
            query.values.resize(self.dimension, G::Value::default());
        }
        query.scale = largest / max * 0.5;
        // Within 32 bits: QUERY_MAX · MAX_DIMENSION is.
        query.sum = query.values.iter().map(|&u| G::number(u)).sum::<i32>().into();
        G::arrange(kernels, &query.values, &mut query.arranged);
    }
}

/// 1.5 · 2²³: added and taken off again it rounds a number of magnitude below 2²² to the nearest integer, half to even.
const ROUNDING: f32 = 12_582_912.0;

#[inline]
fn round(x: f32) -> f32 {
    (x + ROUNDING) - ROUNDING
}

/// In lanes, since each comparison would wait for the one before.
fn largest_magnitude(x: &[f32]) -> f32 {
    let larger = |max: &mut f32, x: f32| *max = if x.abs() > *max { x.abs() } else { *max };
    let mut lanes = [0f32; LANES];
    let (blocks, tail) = x.as_chunks::<LANES>();
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(max, &x)| larger(max, x));
    }
    lanes.iter_mut().zip(tail).for_each(|(max, &x)| larger(max, x));
    lanes.into_iter().fold(0.0, |mut max, x| {
        larger(&mut max, x);
        max
    })
}

/// The grid point of `x`, where the grid's step is 1 and the outermost points are ±`edge`.
#[inline]
fn snap(x: f32, edge: f32) -> f32 {
    let within = if x < -edge { -edge } else { x };
    let within = if within > edge { edge } else { within };
    round(within - 0.5) + 0.5
}

/// The sum of `term`, at most 255, of each byte: in 16 bits as long as that goes, which is as many at once as can be.
#[inline]
fn sum_of_bytes(bytes: &[u8], term: impl Fn(u8) -> u16) -> i64 {
    let block_sum = |block: &[u8]| {
        let mut lanes = [0u16; LANES];
        let (whole, tail) = block.as_chunks::<LANES>();
        for bytes in whole {
            lanes.iter_mut().zip(bytes).for_each(|(lane, &byte)| *lane += term(byte));
        }
        lanes.iter_mut().zip(tail).for_each(|(lane, &byte)| *lane += term(byte));
        lanes.into_iter().map(u32::from).sum::<u32>()
    };
    bytes.chunks(256 * LANES).map(block_sum).map(i64::from).sum()
}

/// ‖r‖².
#[inline(never)]
fn squared(r: &[f32]) -> f64 {
    squared_norm(r.len(), |i| r[i])
}

/// Puts r's grid points in its place, on the best of the widths tried, and gives f = ‖r‖²/⟨r, g⟩.
#[inline(never)]
fn fit(r: &mut [f32], squared: f64, (from, to, steps): (f32, f32, usize), edge: f32) -> f32 {
    let largest = largest_magnitude(r);
    if largest <= 0.0 {
        r.fill(0.5);
        return 0.0;
    }
    // Magnitudes up to 1, whatever the row's scale.
    r.iter_mut().for_each(|r| *r /= largest);
    let width = |step: usize| from + (to - from) * (step as f32 / (steps - 1).max(1) as f32);
    let inverse_of = |step| (edge + 0.5) / width(step);
    let mut best = (f32::NEG_INFINITY, inverse_of(0));
    for inverse in (0..steps).map(inverse_of) {
        let quality = quality(r, inverse, edge);
        if quality > best.0 {
            best = (quality, inverse);
        }
    }
    let along = sum(r.len(), |i| f64::from(r[i]) * f64::from(snap(r[i] * best.1, edge)));
    r.iter_mut().for_each(|r| *r = snap(*r * best.1, edge));
    (squared / (along * f64::from(largest))) as f32
}

/// cos²θ of r and its grid point, times ‖r‖², where the grid's step is 1/`inverse`.
fn quality(r: &[f32], inverse: f32, edge: f32) -> f32 {
    let (mut along, mut squared) = ([0f32; LANES], [0f32; LANES]);
    let (blocks, tail) = r.as_chunks::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            let g = snap(block[i] * inverse, edge);
            along[i] += block[i] * g;
            squared[i] += g * g;
        }
    }
    for (i, &r) in tail.iter().enumerate() {
        let g = snap(r * inverse, edge);
        along[i] += r * g;
        squared[i] += g * g;
    }
    let total = |lanes: [f32; LANES]| lanes.into_iter().sum::<f32>();
    let along = total(along);
    along * along / total(squared)
}

/// The part of a query's component that the sieve looks at, of 8 bits: see [`super::sieve`].
#[inline]
fn high<G: Grid>(value: G::Value) -> i32 {
    let u = G::number(value);
    ((u + G::STEP / 2).div_euclid(G::STEP)).clamp(-128, 127)
}

impl<G: Grid> Codec for QuantizedCodec<G> {
    type Query = QuantizedQuery<G>;

    fn stride(&self) -> usize {
        G::code_bytes(self.dimension) + FACTOR_BYTES
    }

    fn has_factors(&self) -> bool {
        false
    }

    fn check(&self, vector: &[f32]) -> Result<()> {
        self.divisor(vector).map(|_| ())
    }

    fn encode(&self, vector: &[f32], row: &mut [u8], work: &mut Vec<f32>) -> Result<f32> {
        let divisor = self.divisor(vector)?;
        let along = self.transform(vector, divisor, work);
        let squared = squared(work);
        let edge = (G::LEVELS - 1) as f32 / 2.0;
        let f = fit(work, squared, G::WIDTHS, edge);
        let (code, factors) = row.split_at_mut(G::code_bytes(self.dimension));
        G::pack(self.dimension, |i| (work[i] + edge) as i32, code);
        let offset = match self.metric {
            Metric::L2 => squared as f32,
            Metric::InnerProduct | Metric::Cosine => (along - f64::from(self.centre_squared)) as f32,
        };
        factors[..4].copy_from_slice(&f.to_le_bytes());
        factors[4..].copy_from_slice(&offset.to_le_bytes());
        Ok(1.0)
    }

    fn validate(&self, row: &[u8], _: f32) -> Result<()> {
        let corrupt = |reason: &str| Error::Corrupt { section: "CODES", reason: reason.into() };
        if row.len() != self.stride() {
            return Err(Error::LengthMismatch { what: "row", expected: self.stride(), got: row.len() });
        }
        let (code, f, offset) = self.parts(row);
        if !(f.is_finite() && f >= 0.0 && offset.is_finite()) {
            return Err(corrupt("factors that no row has"));
        }
        match G::is_padded(self.dimension, code) {
            true => Ok(()),
            false => Err(corrupt("bits behind the last component are set")),
        }
    }

    fn factor_of(&self, _: &[u8]) -> f32 {
        1.0
    }

    fn decode(&self, row: &[u8], vector: &mut [f32]) {
        let (code, f, _) = self.parts(row);
        let middle = (G::LEVELS - 1) as f32 / 2.0;
        for (i, x) in vector.iter_mut().enumerate() {
            *x = f * (G::unpack(self.dimension, code, i) as f32 - middle);
        }
        if let Some(rotation) = &self.rotation {
            rotation.invert(vector);
        }
        for (x, centre) in vector.iter_mut().zip(&self.centre) {
            *x += centre;
        }
    }

    fn query(&self, kernels: &Kernels, vector: &[f32], query: &mut QuantizedQuery<G>) -> Result<()> {
        let divisor = self.divisor(vector)?;
        let along = self.transform(vector, divisor, &mut query.rotated);
        query.offset = match self.metric {
            Metric::L2 => squared(&query.rotated) as f32,
            Metric::InnerProduct | Metric::Cosine => along as f32,
        };
        self.round(kernels, query);
        Ok(())
    }

    /// The row's reconstruction of least error, which is f·g shortened by cos²θ: with it a row's estimated distance to
    /// itself is 0, where the metric lets cos²θ be known.
    fn query_from_row(&self, kernels: &Kernels, row: &[u8], _: f32, query: &mut QuantizedQuery<G>) {
        let (code, f, offset) = self.parts(row);
        query.values.clear();
        G::doubled(self.dimension, code, &mut query.values);
        query.sum = G::sum_of_doubled(self.dimension, code);
        G::arrange(kernels, &query.values, &mut query.arranged);
        // ‖g‖²: what a kernel gives is 2·⟨2g, g⟩.
        let grid = |query: &QuantizedQuery<G>| G::product(kernels, &query.arranged, query.sum, code) as f32 / 4.0;
        // ‖r‖², where the row tells it.
        let norm = match self.metric {
            Metric::L2 => Some(offset),
            Metric::Cosine => Some((1.0 - self.centre_squared) - 2.0 * offset),
            Metric::InnerProduct => None,
        };
        let shortened = match norm {
            Some(norm) if f > 0.0 => norm / (f * grid(query)),
            Some(_) => 0.0,
            None => f * G::COSINE_SQUARED,
        };
        // Products are doubled, and so are the values.
        query.scale = shortened * 0.25;
        query.offset = match self.metric {
            Metric::L2 => offset,
            Metric::InnerProduct | Metric::Cosine => self.centre_squared + offset,
        };
    }

    #[inline]
    fn distance(&self, kernels: &Kernels, query: &QuantizedQuery<G>, row: &[u8], _: f32) -> f32 {
        let (code, f, offset) = self.parts(row);
        let product = G::product(kernels, &query.arranged, query.sum, code);
        self.finish(query, product, f, offset)
    }

    #[inline]
    fn distance_x4(&self, kernels: &Kernels, query: &QuantizedQuery<G>, rows: [&[u8]; 4], _: [f32; 4]) -> [f32; 4] {
        // Written out: mapped arrays are not inlined, which at 56 bytes a row is a quarter of the time.
        let [a, b, c, d] = rows;
        let (a, b, c, d) = (self.parts(a), self.parts(b), self.parts(c), self.parts(d));
        let [pa, pb, pc, pd] = G::product_x4(kernels, &query.arranged, query.sum, [a.0, b.0, c.0, d.0]);
        [
            self.finish(query, pa, a.1, a.2),
            self.finish(query, pb, b.1, b.2),
            self.finish(query, pc, c.1, c.2),
            self.finish(query, pd, d.1, d.2),
        ]
    }

    fn group(&self, sieve: Sieve, queries: &[QuantizedQuery<G>]) -> Result<Option<Group>> {
        if !sieve.has_bytes() {
            return Ok(None);
        }
        let of = |query: &QuantizedQuery<G>| {
            let (mut whole, mut rest) = (0.0, 0.0);
            for &value in &query.values {
                let u = f64::from(G::number(value));
                let low = u - f64::from(G::STEP * high::<G>(value));
                whole += u * u;
                rest += low * low;
            }
            let twice = if self.metric == Metric::L2 { 2.0 } else { 1.0 };
            let scale = twice * f64::from(query.scale);
            let beta = G::BETA * query.sum as f64;
            let error = scale * 2.0 * (rest.sqrt() + 8.0 * U * whole.sqrt()) * (1.0 + SLACK);
            let rounding = 8.0 * U * f64::from(query.offset).abs() + 8.0 * underflow();
            let offset = match self.metric {
                Metric::L2 => rounding - f64::from(query.offset),
                Metric::InnerProduct => rounding + f64::from(query.offset),
                Metric::Cosine => rounding + f64::from(query.offset) - 1.0 + 8.0 * U,
            };
            OfQuery { scale: -scale * 2.0 * f64::from(G::STEP), base: -scale * beta, error, offset }
        };
        let cap = if self.metric == Metric::Cosine { 2.0 } else { f32::MAX };
        let mut group = Group::new(sieve, queries.iter().map(of).collect(), 1.0, cap);
        for (q, query) in queries.iter().enumerate() {
            group.pack_bytes(q, query.values.iter().map(|&value| high::<G>(value) as i8))?;
        }
        Ok(Some(group))
    }

    fn estimate(&self, group: &mut Group, rows: [&[u8]; SIEVE_ROWS], _: [f32; SIEVE_ROWS]) {
        let parts = rows.map(|row| self.parts(row));
        let codes = parts.map(|(code, _, _)| code);
        let moments = if G::code_bytes(self.dimension) == self.dimension {
            group.estimate_bytes(codes)
        } else {
            let mut wide = std::mem::take(&mut group.wide);
            wide.resize(SIEVE_ROWS * self.dimension, 0);
            for (code, wide) in codes.iter().zip(wide.chunks_exact_mut(self.dimension)) {
                G::spread(code, wide);
            }
            let rows = std::array::from_fn(|i| &wide[i * self.dimension..][..self.dimension]);
            let moments = group.estimate_bytes(rows);
            group.wide = wide;
            moments
        };
        // ‖g‖ ≤ ‖c‖ + |g − c|·√n.
        let beyond = G::BETA.abs() / 2.0 * (self.dimension as f64).sqrt();
        for ((row, [sum, square]), (_, f, o)) in group.rows.iter_mut().zip(moments).zip(parts) {
            let (f, o) = (f64::from(f), f64::from(o));
            let long = (f64::from(square).sqrt() + beyond) * (1.0 + SLACK);
            let offset = if self.metric == Metric::L2 { o } else { -o };
            *row = OfRow {
                offset: offset - 8.0 * U * o.abs() - 8.0 * f.abs() * underflow(),
                factor: f,
                shift: 128.0 * f64::from(sum),
                error: f.abs() * long,
            };
        }
    }
}

#[cfg(test)]
mod tests;
