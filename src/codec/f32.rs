//! The `f32` encoding: a row is the vector as it was given, little-endian.

use super::sieve::Group;
use super::{Codec, checked_norm, checked_vector_norm, finish, norm_limit, squared_norm};
use crate::error::{Error, Result, Scientific};
use crate::kernel::Kernels;
use crate::kernel::sieve::{SIEVE_ROWS, Sieve};
use crate::metric::Metric;

/// Rows of plain `f32`. Under [`Metric::Cosine`] the factor of a row is 1/‖x‖, computed in `f64`.
#[derive(Debug, Clone, Copy)]
pub struct F32Codec {
    dimension: usize,
    metric: Metric,
}

impl F32Codec {
    /// A codec for vectors of `dimension` components.
    pub fn new(dimension: usize, metric: Metric) -> Self {
        F32Codec { dimension, metric }
    }

    /// Components of a vector.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    fn norm(&self, vector: &[f32]) -> Result<f64> {
        checked_vector_norm(vector, self.dimension, self.metric, norm_limit(self.metric))
    }
}

impl Codec for F32Codec {
    /// The query vector; of norm 1 under Cosine.
    type Query = Vec<f32>;

    fn stride(&self) -> usize {
        self.dimension * 4
    }

    fn has_factors(&self) -> bool {
        self.metric == Metric::Cosine
    }

    fn check(&self, vector: &[f32]) -> Result<()> {
        self.norm(vector).map(|_| ())
    }

    fn encode(&self, vector: &[f32], row: &mut [u8], _: &mut Vec<f32>) -> Result<f32> {
        let norm = self.norm(vector)?;
        for (bytes, x) in row.as_chunks_mut::<4>().0.iter_mut().zip(vector) {
            *bytes = x.to_le_bytes();
        }
        Ok(if self.has_factors() { (1.0 / norm) as f32 } else { 1.0 })
    }

    fn validate(&self, row: &[u8], factor: f32) -> Result<()> {
        let components = row.as_chunks::<4>().0;
        let component = |i: usize| f32::from_le_bytes(components[i]);
        let norm = checked_norm(components.len(), component, self.dimension, self.metric, norm_limit(self.metric))?;
        if self.has_factors() && factor != (1.0 / norm) as f32 {
            return Err(Error::Corrupt {
                section: "FACTORS",
                reason: format!("{} where 1/norm is {}", Scientific(factor.into()), Scientific(1.0 / norm)),
            });
        }
        Ok(())
    }

    fn factor_of(&self, row: &[u8]) -> f32 {
        let components = row.as_chunks().0;
        match self.has_factors() {
            true => {
                let norm = squared_norm(components.len(), |i| f32::from_le_bytes(components[i])).sqrt();
                (1.0 / norm) as f32
            }
            false => 1.0,
        }
    }

    fn decode(&self, row: &[u8], vector: &mut [f32]) {
        for (x, bytes) in vector.iter_mut().zip(row.as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
    }

    fn query(&self, _: &Kernels, vector: &[f32], query: &mut Vec<f32>) -> Result<()> {
        let norm = self.norm(vector)?;
        query.clear();
        if self.has_factors() {
            query.extend(vector.iter().map(|&x| (f64::from(x) / norm) as f32));
        } else {
            query.extend_from_slice(vector);
        }
        Ok(())
    }

    fn query_from_row(&self, _: &Kernels, row: &[u8], factor: f32, query: &mut Vec<f32>) {
        query.clear();
        let components = row.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        if self.has_factors() {
            query.extend(components.map(|x| x * factor));
        } else {
            query.extend(components);
        }
    }

    #[inline]
    fn distance(&self, kernels: &Kernels, query: &Vec<f32>, row: &[u8], factor: f32) -> f32 {
        let raw = match self.metric {
            Metric::L2 => kernels.l2_f32(query, row),
            Metric::InnerProduct | Metric::Cosine => kernels.dot_f32(query, row),
        };
        finish(self.metric, raw, factor)
    }

    #[inline]
    fn distance_x4(&self, kernels: &Kernels, query: &Vec<f32>, rows: [&[u8]; 4], factors: [f32; 4]) -> [f32; 4] {
        let raw = match self.metric {
            Metric::L2 => kernels.l2_f32_x4(query, rows),
            Metric::InnerProduct | Metric::Cosine => kernels.dot_f32_x4(query, rows),
        };
        std::array::from_fn(|i| finish(self.metric, raw[i], factors[i]))
    }

    fn group(&self, sieve: Sieve, queries: &[Vec<f32>]) -> Result<Option<Group>> {
        super::group_floats(sieve, self.metric, self.dimension, queries)
    }

    fn estimate(&self, group: &mut Group, rows: [&[u8]; SIEVE_ROWS], factors: [f32; SIEVE_ROWS]) {
        super::estimate_floats(self.metric, self.dimension, group, rows, factors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(metric: Metric, q: &[f32], x: &[f32]) -> Result<f32> {
        let codec = F32Codec::new(q.len(), metric);
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
        assert!((distance(Metric::Cosine, &[3.0, 4.0], &[4.0, 3.0]).unwrap() - 0.04).abs() < 1e-6);
        assert_eq!(distance(Metric::InnerProduct, &[1.0], &[0.0]).unwrap().to_bits(), 0);
    }

    #[test]
    fn cosine_is_free_of_scale_from_tiny_to_huge() {
        for c in [1e-36f32, 1e-30, 1e-10, 1.0, 1e10, 1e30, 3e38] {
            let d = distance(Metric::Cosine, &[0.0, c / 2.0, 0.0], &[0.0, c, 0.0]).unwrap();
            assert!((0.0..1e-5).contains(&d), "scale {c:e}: {d}");
            let d = distance(Metric::Cosine, &[c, 0.0, 0.0], &[-c, 0.0, 0.0]).unwrap();
            assert!((2.0 - 1e-5..=2.0).contains(&d), "scale {c:e}: {d}");
        }
    }

    #[test]
    fn unfit_vectors_are_refused_with_their_evidence() {
        use Error::*;
        assert!(matches!(distance(Metric::L2, &[1.0, f32::NAN], &[1.0, 1.0]), Err(NotFinite { row: 0, component: 1 })));
        assert!(matches!(
            distance(Metric::L2, &[1.0, 1.0], &[f32::NEG_INFINITY, 1.0]),
            Err(NotFinite { row: 0, component: 0 })
        ));
        assert!(matches!(distance(Metric::Cosine, &[1.0], &[0.0]), Err(ZeroVector { row: 0 })));
        assert!(matches!(distance(Metric::Cosine, &[-0.0], &[1.0]), Err(ZeroVector { row: 0 })));
        for metric in [Metric::L2, Metric::InnerProduct] {
            assert!(matches!(distance(metric, &[1.0], &[1e19]), Err(NormTooLarge { .. })));
            assert!(matches!(distance(metric, &[-1e19], &[1.0]), Err(NormTooLarge { .. })));
        }
        assert!(matches!(distance(Metric::Cosine, &[1.0, 0.0], &[3e38, 3e38]), Err(NormTooLarge { .. })));
    }

    #[test]
    fn nothing_overflows_at_the_norm_limit() {
        let edge = f64::from(f32::MAX) / 4.0;
        for dimension in [1usize, 7, 1000] {
            let mut x = (edge / dimension as f64).sqrt() as f32;
            while f64::from(x).powi(2) * dimension as f64 > edge {
                x = x.next_down();
            }
            let (plus, minus) = (vec![x; dimension], vec![-x; dimension]);
            for metric in [Metric::L2, Metric::InnerProduct] {
                assert!(distance(metric, &plus, &minus).unwrap().is_finite());
                assert!(distance(metric, &plus, &plus).unwrap().is_finite());
            }
        }
    }
}
