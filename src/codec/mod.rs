//! How a vector becomes a row of bytes, and how far a query is from such a row.
//!
//! A [`Codec`] knows the metric and the encoding, and nothing of where rows live: it is handed the bytes. Cosine needs
//! one *factor* a row (1/‖x‖) for floats, kept beside the rows and not in them, so that an `f32` row is the vector as
//! it came. A quantized row carries its two factors itself, behind its code.
//!
//! | module | encoding | row | distances |
//! |---|---|---|---|
//! | [`f32`](mod@f32) | `f32` | the components, little-endian | exact |
//! | [`f16`](mod@f16) | `f16` | the components in half precision | exact for what the row holds |
//! | [`quantized`] | `int8`, `int4`, `bits1` | a code of 8, 4 or 1 bits a component, two factors | estimates |
//!
//! [`rotation`] is what quantized vectors go through first, [`any`] chooses among the codecs at run time.

pub mod any;
pub mod f16;
pub mod f32;
pub mod quantized;
pub mod rotation;
pub mod sieve;

pub use any::AnyCodec;

use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::kernel::sieve::{SIEVE_ROWS, Sieve};
use crate::metric::Metric;

/// Encodes vectors, and measures distances from a query to encoded rows. See the [module docs](self).
pub trait Codec {
    /// A query prepared for many distances. Its buffers are reused from one query to the next.
    type Query: Default + std::fmt::Debug;

    /// Bytes in a row.
    fn stride(&self) -> usize;

    /// Whether rows come with a factor.
    fn has_factors(&self) -> bool;

    /// Whether `vector` can become a row: what [`encode`](Codec::encode) asks first.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::NotFinite`], [`Error::ZeroVector`], [`Error::NormTooLarge`],
    /// [`Error::OutOfRange`].
    fn check(&self, vector: &[f32]) -> Result<()>;

    /// Checks `vector`, writes its row and returns its factor (1 where the metric has none).
    ///
    /// # Errors
    /// As [`check`](Codec::check).
    fn encode(&self, vector: &[f32], row: &mut [u8], work: &mut Vec<f32>) -> Result<f32>;

    /// Checks a row and factor that came from outside, as [`encode`](Codec::encode) checks a vector.
    ///
    /// # Errors
    /// As [`encode`](Codec::encode); [`Error::Corrupt`] for a factor that no row has.
    fn validate(&self, row: &[u8], factor: f32) -> Result<()>;

    /// The factor of a row, computed from the row itself: 1 where there is none.
    fn factor_of(&self, row: &[u8]) -> f32;

    /// The vector a row stands for.
    fn decode(&self, row: &[u8], vector: &mut [f32]);

    /// Checks `vector` and prepares it as a query for `kernels`.
    ///
    /// # Errors
    /// As [`check`](Codec::check).
    fn query(&self, kernels: &Kernels, vector: &[f32], query: &mut Self::Query) -> Result<()>;

    /// Prepares a stored row as a query for `kernels`.
    fn query_from_row(&self, kernels: &Kernels, row: &[u8], factor: f32, query: &mut Self::Query);

    /// Distance from the query to a row.
    fn distance(&self, kernels: &Kernels, query: &Self::Query, row: &[u8], factor: f32) -> f32;

    /// Distances from the query to four rows, each with the bits [`distance`](Codec::distance) gives.
    fn distance_x4(&self, kernels: &Kernels, query: &Self::Query, rows: [&[u8]; 4], factors: [f32; 4]) -> [f32; 4];

    /// Packs queries, at most [`GROUP`](crate::kernel::sieve::GROUP), for a scan together; `None` where the sieve is
    /// not for such rows.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn group(&self, sieve: Sieve, queries: &[Self::Query]) -> Result<Option<sieve::Group>>;

    /// Estimates for six rows, and what the bound takes of them, into `group`. See [`sieve`].
    fn estimate(&self, group: &mut sieve::Group, rows: [&[u8]; SIEVE_ROWS], factors: [f32; SIEVE_ROWS]);
}

/// A [`Group`](sieve::Group) of float queries, for rows of floats of either precision.
fn group_floats(sieve: Sieve, metric: Metric, dimension: usize, queries: &[Vec<f32>]) -> Result<Option<sieve::Group>> {
    use sieve::{SLACK, U, underflow};
    let n = dimension as f64;
    let gamma = float_gamma(dimension);
    let of = |query: &Vec<f32>| {
        let squared = squared_norm(query.len(), |i| query[i]);
        let norm = squared.sqrt() * (1.0 + SLACK);
        let (error, offset) = match metric {
            Metric::InnerProduct => (2.02 * gamma * norm, 2.0 * n * underflow()),
            Metric::L2 => (4.04 * gamma * norm, 4.0 * n * underflow() - squared * (1.0 - SLACK)),
            Metric::Cosine => ((2.02 * gamma + 2.02 * U) * norm, 4.0 * U - 1.0),
        };
        sieve::OfQuery { scale: 1.0, base: 0.0, error, offset }
    };
    let (stretch, cap) = match metric {
        Metric::L2 => (1.0 + 2.02 * gamma, f32::MAX),
        Metric::InnerProduct => (1.0, f32::MAX),
        Metric::Cosine => (1.0, 2.0),
    };
    let mut group = sieve::Group::new(sieve, queries.iter().map(of).collect(), stretch, cap);
    group.pack_floats(dimension, queries.iter().map(|query| &query[..]))?;
    Ok(Some(group))
}

/// The γ of [`sieve`] for floats.
fn float_gamma(dimension: usize) -> f64 {
    let nu = (dimension + 16) as f64 * sieve::U;
    nu / (1.0 - nu)
}

/// Estimates for six rows of `f32`.
fn estimate_floats(
    metric: Metric,
    dimension: usize,
    group: &mut sieve::Group,
    rows: [&[u8]; SIEVE_ROWS],
    factors: [f32; SIEVE_ROWS],
) {
    /// 2¹²⁶ and what rounding adds: no sum overflows below.
    const LARGEST: f32 = 8.6e37;
    let squares = group.estimate_floats(rows);
    let (gamma, small) = (float_gamma(dimension), dimension as f64 * sieve::underflow());
    for ((row, square), factor) in group.rows.iter_mut().zip(squares).zip(factors) {
        let (squared, factor) = (f64::from(square), f64::from(factor));
        let norm = match square <= LARGEST {
            true => ((squared + small) * (1.0 + 2.02 * gamma)).sqrt(),
            false => f64::INFINITY,
        };
        *row = match metric {
            Metric::InnerProduct => sieve::OfRow { offset: 0.0, factor: -1.0, shift: 0.0, error: norm },
            Metric::L2 => {
                let offset = (squared - small) * (1.0 - 2.02 * gamma);
                sieve::OfRow { offset, factor: -2.0, shift: 0.0, error: norm }
            }
            Metric::Cosine => {
                let offset = -2.0 * small * factor.abs();
                sieve::OfRow { offset, factor: -factor, shift: 0.0, error: norm * factor.abs() }
            }
        };
    }
}

/// The largest norm a vector may have: no distance within it can overflow `f32`, rounding included.
pub(crate) fn norm_limit(metric: Metric) -> f64 {
    match metric {
        Metric::L2 | Metric::InnerProduct => (f64::from(f32::MAX) / 4.0).sqrt(),
        // The normalised query has norm 1, so partial sums stay below the row's norm.
        Metric::Cosine => f64::from(f32::MAX) * (1.0 - 1.0 / 256.0),
    }
}

/// [`checked_norm`] of a vector that is one already.
#[inline(never)]
pub(crate) fn checked_vector_norm(vector: &[f32], dimension: usize, metric: Metric, limit: f64) -> Result<f64> {
    checked_norm(vector.len(), |i| vector[i], dimension, metric, limit)
}

/// The norm of a vector in `f64`, once it is known to be fit for `metric` and no longer than `limit`. `component(i)`
/// gives component i of `len`.
///
/// Errors name row 0; a batch puts the right row in.
pub(crate) fn checked_norm(
    len: usize,
    component: impl Fn(usize) -> f32,
    dimension: usize,
    metric: Metric,
    limit: f64,
) -> Result<f64> {
    if len != dimension {
        return Err(Error::DimensionMismatch { expected: dimension, got: len });
    }
    let norm = squared_norm(len, &component).sqrt();
    // An f64 sum of squared f32 is finite exactly when every component is.
    if !norm.is_finite() {
        let component = (0..len).find(|&i| !component(i).is_finite()).unwrap_or(0);
        return Err(Error::NotFinite { row: 0, component });
    }
    if metric == Metric::Cosine && !((1.0 / norm) as f32).is_finite() {
        return Err(Error::ZeroVector { row: 0 });
    }
    if norm > limit {
        return Err(Error::NormTooLarge { row: 0, norm, limit });
    }
    Ok(norm)
}

/// Σxᵢ²: see [`sum`].
#[inline]
pub(crate) fn squared_norm(len: usize, component: impl Fn(usize) -> f32) -> f64 {
    sum(len, |i| {
        let x = f64::from(component(i));
        x * x
    })
}

/// The sum of `len` terms in eight fixed lanes, so that every target gets the same bits.
#[inline]
fn sum(len: usize, term: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0f64; 8];
    let whole = len - len % 8;
    for block in (0..whole).step_by(8) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane += term(block + i);
        }
    }
    for (lane, i) in lanes.iter_mut().zip(whole..len) {
        *lane += term(i);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// A distance of floats from its raw form: Σ(qᵢ − xᵢ)² for L2, the inner product otherwise.
#[inline]
fn finish(metric: Metric, raw: f32, factor: f32) -> f32 {
    match metric {
        // Within rounding of the norm limit the sum may reach infinity; NaN (damaged bytes) stays NaN.
        Metric::L2 if raw > f32::MAX => f32::MAX,
        Metric::L2 => raw,
        // 0 − x, not −x: an inner product of zero is the distance +0.
        Metric::InnerProduct => 0.0 - raw,
        Metric::Cosine => (1.0 - raw * factor).clamp(0.0, 2.0),
    }
}
