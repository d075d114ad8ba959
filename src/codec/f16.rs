//! The `f16` encoding: a row is the components in half precision (IEEE 754 binary16), little-endian.
//!
//! Half precision keeps 11 bits and reaches from 6.1·10⁻⁵ to 65,504. What lies below is stored as zero (subnormal
//! numbers would slow every kernel that widens in software), what lies beyond is refused. Under [`Metric::Cosine`] a
//! row is normalised first, so that its scale does not matter; its factor is 1/norm of what was stored.

use super::sieve::Group;
use super::{Codec, checked_norm, checked_vector_norm, finish, norm_limit, squared_norm};
use crate::error::{Error, Result, Scientific};
use crate::kernel::Kernels;
use crate::kernel::scalar::widen;
use crate::kernel::sieve::{SIEVE_ROWS, Sieve};
use crate::metric::Metric;
use half::f16;

/// Rows of f16.
#[derive(Debug, Clone, Copy)]
pub struct F16Codec {
    dimension: usize,
    metric: Metric,
}

impl F16Codec {
    /// A codec for vectors of `dimension` components.
    pub fn new(dimension: usize, metric: Metric) -> Self {
        F16Codec { dimension, metric }
    }

    /// What a component is divided by before it is stored.
    fn divisor(&self, vector: &[f32]) -> Result<f64> {
        let norm = checked_vector_norm(vector, self.dimension, self.metric, norm_limit(self.metric))?;
        if self.has_factors() {
            return Ok(norm);
        }
        match vector.iter().position(|&x| f16::from_f32(x).is_infinite()) {
            Some(component) => {
                Err(Error::OutOfRange { row: 0, component, value: vector[component].into(), limit: f16::MAX.into() })
            }
            None => Ok(1.0),
        }
    }
}

#[inline]
fn narrow(x: f32) -> f16 {
    let narrow = f16::from_f32(x);
    if narrow.is_normal() { narrow } else { f16::ZERO }
}

impl Codec for F16Codec {
    /// The query vector, in single precision; of norm 1 under Cosine.
    type Query = Vec<f32>;

    fn stride(&self) -> usize {
        self.dimension * 2
    }

    fn has_factors(&self) -> bool {
        self.metric == Metric::Cosine
    }

    fn check(&self, vector: &[f32]) -> Result<()> {
        self.divisor(vector).map(|_| ())
    }

    fn encode(&self, vector: &[f32], row: &mut [u8], _: &mut Vec<f32>) -> Result<f32> {
        let divisor = self.divisor(vector)?;
        for (bytes, &x) in row.as_chunks_mut::<2>().0.iter_mut().zip(vector) {
            *bytes = narrow((f64::from(x) / divisor) as f32).to_le_bytes();
        }
        Ok(self.factor_of(row))
    }

    fn validate(&self, row: &[u8], factor: f32) -> Result<()> {
        let components = row.as_chunks().0;
        // What is no number has all bits of the exponent set.
        let component = |i: usize| match u16::from_le_bytes(components[i]) & 0x7c00 {
            0x7c00 => f32::NAN,
            _ => widen(components[i]),
        };
        checked_norm(components.len(), component, self.dimension, self.metric, norm_limit(self.metric))?;
        let expected = self.factor_of(row);
        if self.has_factors() && factor != expected {
            let reason = format!("{} where 1/norm is {}", Scientific(factor.into()), Scientific(expected.into()));
            return Err(Error::Corrupt { section: "FACTORS", reason });
        }
        Ok(())
    }

    fn factor_of(&self, row: &[u8]) -> f32 {
        let components = row.as_chunks().0;
        match self.has_factors() {
            true => (1.0 / squared_norm(components.len(), |i| widen(components[i])).sqrt()) as f32,
            false => 1.0,
        }
    }

    fn decode(&self, row: &[u8], vector: &mut [f32]) {
        for (x, bytes) in vector.iter_mut().zip(row.as_chunks().0) {
            *x = widen(*bytes);
        }
    }

    fn query(&self, _: &Kernels, vector: &[f32], query: &mut Vec<f32>) -> Result<()> {
        let norm = checked_vector_norm(vector, self.dimension, self.metric, norm_limit(self.metric))?;
        let divisor = if self.has_factors() { norm } else { 1.0 };
        query.clear();
        query.extend(vector.iter().map(|&x| (f64::from(x) / divisor) as f32));
        Ok(())
    }

    fn query_from_row(&self, _: &Kernels, row: &[u8], factor: f32, query: &mut Vec<f32>) {
        let factor = if self.has_factors() { factor } else { 1.0 };
        query.clear();
        query.extend(row.as_chunks().0.iter().map(|bytes| widen(*bytes) * factor));
    }

    #[inline]
    fn distance(&self, kernels: &Kernels, query: &Vec<f32>, row: &[u8], factor: f32) -> f32 {
        let raw = match self.metric {
            Metric::L2 => kernels.l2_f16(query, row),
            Metric::InnerProduct | Metric::Cosine => kernels.dot_f16(query, row),
        };
        finish(self.metric, raw, factor)
    }

    #[inline]
    fn distance_x4(&self, kernels: &Kernels, query: &Vec<f32>, rows: [&[u8]; 4], factors: [f32; 4]) -> [f32; 4] {
        let raw = match self.metric {
            Metric::L2 => kernels.l2_f16_x4(query, rows),
            Metric::InnerProduct | Metric::Cosine => kernels.dot_f16_x4(query, rows),
        };
        std::array::from_fn(|i| finish(self.metric, raw[i], factors[i]))
    }

    fn group(&self, sieve: Sieve, queries: &[Vec<f32>]) -> Result<Option<Group>> {
        super::group_floats(sieve, self.metric, self.dimension, queries)
    }

    fn estimate(&self, group: &mut Group, rows: [&[u8]; SIEVE_ROWS], factors: [f32; SIEVE_ROWS]) {
        let stride = 4 * self.dimension;
        let mut wide = std::mem::take(&mut group.wide);
        wide.resize(SIEVE_ROWS * stride, 0);
        for (row, wide) in rows.iter().zip(wide.chunks_exact_mut(stride)) {
            for (half, wide) in row.as_chunks().0.iter().zip(wide.as_chunks_mut().0) {
                *wide = widen(*half).to_le_bytes();
            }
        }
        let rows = std::array::from_fn(|i| &wide[i * stride..][..stride]);
        super::estimate_floats(self.metric, self.dimension, group, rows, factors);
        group.wide = wide;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(metric: Metric, q: &[f32], x: &[f32]) -> Result<f32> {
        let codec = F16Codec::new(q.len(), metric);
        let mut row = vec![0; codec.stride()];
        let factor = codec.encode(x, &mut row, &mut Vec::new())?;
        codec.validate(&row, factor)?;
        let mut query = Vec::new();
        codec.query(Kernels::best(), q, &mut query)?;
        Ok(codec.distance(Kernels::best(), &query, &row, factor))
    }

    #[test]
    fn distances_follow_the_documented_formulas() {
        assert_eq!(distance(Metric::L2, &[3.0, 4.0], &[0.0, 0.0]).unwrap(), 25.0);
        assert_eq!(distance(Metric::InnerProduct, &[3.0, 4.0], &[4.0, 3.0]).unwrap(), -24.0);
        assert!((distance(Metric::Cosine, &[3.0, 4.0], &[4.0, 3.0]).unwrap() - 0.04).abs() < 1e-3);
    }

    #[test]
    fn cosine_is_free_of_scale() {
        for c in [1e-36f32, 1e-10, 1.0, 1e10, 3e38] {
            let d = distance(Metric::Cosine, &[0.0, c / 2.0, 0.0], &[0.0, c, 0.0]).unwrap();
            assert!((0.0..1e-5).contains(&d), "scale {c:e}: {d}");
        }
    }

    #[test]
    fn what_half_precision_cannot_hold_is_refused_and_what_is_too_small_is_zero() {
        let limit = f16::MAX.to_f32();
        assert!(distance(Metric::L2, &[0.0, 0.0], &[limit, -limit]).unwrap().is_finite());
        for metric in [Metric::L2, Metric::InnerProduct] {
            let error = distance(metric, &[0.0, 0.0], &[1.0, -65_520.0]).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { row: 0, component: 1, .. }), "{error}");
        }
        assert_eq!(distance(Metric::InnerProduct, &[1.0], &[6e-5]).unwrap(), 0.0);
        assert_eq!(distance(Metric::InnerProduct, &[1.0], &[6.2e-5]).unwrap(), -f16::from_f32(6.2e-5).to_f32());
    }
}
