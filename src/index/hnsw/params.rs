//! The parameters of the graph and how a row's level is drawn.

use crate::error::{Error, Result};
use crate::mix::mix;
use crate::segment::{MAX_EF, MAX_M};

/// The highest level a new row is drawn.
pub const MAX_LEVEL: u8 = 15;

/// How the graph is built. Malkov & Yashunin 2018, "Efficient and robust approximate nearest neighbor search using
/// Hierarchical Navigable Small World graphs", sections 4 and 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HnswParams {
    /// Neighbours a row has on the upper levels, at most; twice as many on level 0. 2 ..= [`MAX_M`].
    pub m: usize,
    /// Candidates considered when a row is inserted. 1 ..= [`MAX_EF`].
    pub ef_construction: usize,
    /// Decides the rows' levels.
    pub seed: u64,
}

impl Default for HnswParams {
    fn default() -> Self {
        HnswParams { m: 16, ef_construction: 200, seed: 0 }
    }
}

impl HnswParams {
    /// Refuses what is out of range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |name, expected, got: usize| Err(Error::InvalidParameter { name, expected, got: got.to_string() });
        if !(2..=MAX_M).contains(&self.m) {
            return refuse("m", "2 to 256", self.m);
        }
        if !(1..=MAX_EF).contains(&self.ef_construction) {
            return refuse("ef_construction", "1 to 1048576", self.ef_construction);
        }
        Ok(())
    }

    /// The most links a row has on `level`.
    #[inline]
    pub fn max_links(&self, level: u8) -> usize {
        if level == 0 { 2 * self.m } else { self.m }
    }

    /// The level of row `id`: level l or higher with probability m⁻ˡ, decided by comparing a hash of seed and id with
    /// 2⁶⁴·m⁻ˡ, so that every target draws the same.
    pub fn level(&self, id: u32) -> u8 {
        let draw = mix(self.seed ^ mix(u64::from(id).wrapping_add(1)));
        let mut threshold = u64::MAX;
        let mut level = 0;
        while level < MAX_LEVEL {
            threshold /= self.m as u64;
            if draw >= threshold {
                break;
            }
            level += 1;
        }
        level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_fall_off_by_m_and_depend_on_the_seed() {
        for m in [2, 16, 256] {
            let params = HnswParams { m, ..HnswParams::default() };
            let n = 200_000u32;
            for level in 1..=2u8 {
                let expected = f64::from(n) / (m as f64).powi(i32::from(level));
                let got = (0..n).filter(|&id| params.level(id) >= level).count() as f64;
                let deviation = (got - expected).abs() / expected.sqrt();
                assert!(deviation < 5.0, "m {m} level {level}: {got} of {expected} expected");
            }
        }
        let (a, b) = (HnswParams::default(), HnswParams { seed: 1, ..HnswParams::default() });
        assert!((0..1000).any(|id| a.level(id) != b.level(id)));
    }

    #[test]
    fn out_of_range_is_refused() {
        let default = HnswParams::default();
        assert!(default.validate().is_ok());
        for m in [0, 1, 257, usize::MAX] {
            assert!(HnswParams { m, ..default }.validate().is_err());
        }
        for ef_construction in [0, MAX_EF + 1, usize::MAX] {
            assert!(HnswParams { ef_construction, ..default }.validate().is_err());
        }
    }
}
