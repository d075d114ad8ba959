//! How a vector becomes a row of bytes, and how far a query is from such a row.
//!
//! A [`Codec`] knows the metric and the encoding, and nothing of where rows live: it is handed the bytes. Cosine needs
//! one *factor* a row (1/‖x‖), kept beside the rows and not in them, so that an `f32` row is the vector as it came.
//!
//! | module | encoding | row |
//! |---|---|---|
//! | [`f32`](mod@f32) | `f32` | the components, little-endian |

pub mod f32;

use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::metric::Metric;

/// Encodes vectors, and measures distances from a query to encoded rows. See the [module docs](self).
pub trait Codec {
    /// A query prepared for many distances. Its buffers are reused from one query to the next.
    type Query: Default + std::fmt::Debug;

    /// Bytes in a row.
    fn stride(&self) -> usize;

    /// Whether rows come with a factor.
    fn has_factors(&self) -> bool;

    /// Checks `vector`, writes its row and returns its factor (1 where the metric has none).
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::NotFinite`], [`Error::ZeroVector`], [`Error::NormTooLarge`].
    fn encode(&self, vector: &[f32], row: &mut [u8]) -> Result<f32>;

    /// Checks a row and factor that came from outside, as [`encode`](Codec::encode) checks a vector.
    ///
    /// # Errors
    /// As [`encode`](Codec::encode); [`Error::Corrupt`] for a factor that no row has.
    fn validate(&self, row: &[u8], factor: f32) -> Result<()>;

    /// The vector a row stands for.
    fn decode(&self, row: &[u8], vector: &mut [f32]);

    /// Checks `vector` and prepares it as a query.
    ///
    /// # Errors
    /// As [`encode`](Codec::encode).
    fn query(&self, vector: &[f32], query: &mut Self::Query) -> Result<()>;

    /// Prepares a stored row as a query.
    fn query_from_row(&self, row: &[u8], factor: f32, query: &mut Self::Query);

    /// Distance from the query to a row.
    fn distance(&self, kernels: &Kernels, query: &Self::Query, row: &[u8], factor: f32) -> f32;

    /// Distances from the query to four rows, each with the bits [`distance`](Codec::distance) gives.
    fn distance_x4(&self, kernels: &Kernels, query: &Self::Query, rows: [&[u8]; 4], factors: [f32; 4]) -> [f32; 4];
}

/// The largest norm a vector may have: no distance within it can overflow `f32`, rounding included.
pub(crate) fn norm_limit(metric: Metric) -> f64 {
    match metric {
        Metric::L2 | Metric::InnerProduct => (f64::from(f32::MAX) / 4.0).sqrt(),
        // The normalised query has norm 1, so partial sums stay below the row's norm.
        Metric::Cosine => f64::from(f32::MAX) * (1.0 - 1.0 / 256.0),
    }
}

/// The norm of a vector in `f64`, once it is known to be fit for `metric`. `component(i)` gives component i of `len`.
///
/// Errors name row 0; a batch puts the right row in.
pub(crate) fn checked_norm(
    len: usize,
    component: impl Fn(usize) -> f32,
    dimension: usize,
    metric: Metric,
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
    let limit = norm_limit(metric);
    if norm > limit {
        return Err(Error::NormTooLarge { row: 0, norm, limit });
    }
    Ok(norm)
}

/// Σxᵢ² in eight fixed lanes, so that every target gets the same bits.
#[inline]
fn squared_norm(len: usize, component: impl Fn(usize) -> f32) -> f64 {
    let mut lanes = [0f64; 8];
    let whole = len - len % 8;
    for block in (0..whole).step_by(8) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            let x = f64::from(component(block + i));
            *lane += x * x;
        }
    }
    for (lane, i) in lanes.iter_mut().zip(whole..len) {
        let x = f64::from(component(i));
        *lane += x * x;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
