//! A random rotation that costs O(d log d) and no padding: sign flips and fast Walsh–Hadamard transforms.
//!
//! A rotation changes no distance. It spreads what is concentrated in a few components over all of them, so that one
//! grid fits every component of a row. A Hadamard transform needs a power of two, p; other dimensions are covered by
//! two windows of p components, at the head and at the tail, in turn:
//!
//! ```text
//! d = 768, p = 512     ├─────────── head ───────────┤
//!                      0             256            512            768
//!                                    ├─────────── tail ────────────┤
//!
//! a round   flip signs · transform a window · mix the halves (xᵢ, xₕ₊ᵢ → (xᵢ ± xₕ₊ᵢ)/√2)
//! rounds    head, tail, head, tail;   where p = d, two over the whole, without mixing
//! ```
//!
//! Rounds of sign flips and Hadamard transforms: Ailon and Chazelle, "The Fast Johnson–Lindenstrauss Transform" (2009),
//! §2; several rounds behave as a uniformly random rotation does (Yu et al., "Orthogonal Random Features", 2016, §4).
//!
//! Every step is an addition, a subtraction or a product of two f32 in an order that is fixed, so that the same vector
//! gives the same bits everywhere.

use crate::mix::numbers;
use std::f32::consts::FRAC_1_SQRT_2;

/// An orthogonal transform of `dimension` components, determined by its seed.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// The sign bits of each round, one after the other.
    signs: Vec<u32>,
    dimension: usize,
    /// The largest power of two that is not beyond `dimension`.
    window: usize,
}

impl Rotation {
    /// The rotation of this seed; the same on every target.
    pub fn new(dimension: usize, seed: u64) -> Self {
        let window = if dimension == 0 { 0 } else { 1 << dimension.ilog2() };
        let rounds = if window == dimension { 2 } else { 4 };
        let mut words = numbers(seed);
        let mut signs = Vec::with_capacity(rounds * dimension);
        for _ in 0..rounds {
            for first in (0..dimension).step_by(64) {
                let word = words.next().unwrap_or_default();
                signs.extend((0..64.min(dimension - first)).map(|bit| ((word >> bit) as u32) << 31));
            }
        }
        Rotation { signs, dimension, window }
    }

    /// Rotates `x`, of `dimension` components, in place.
    pub fn apply(&self, x: &mut [f32]) {
        for (round, signs) in self.signs.chunks_exact(self.dimension).enumerate() {
            flip(x, signs);
            hadamard(self.window_of(round, x));
            self.mix(x);
        }
    }

    /// Undoes [`apply`](Self::apply), up to rounding: every step is its own inverse.
    pub fn invert(&self, x: &mut [f32]) {
        for (round, signs) in self.signs.chunks_exact(self.dimension).enumerate().rev() {
            self.mix(x);
            hadamard(self.window_of(round, x));
            flip(x, signs);
        }
    }

    fn window_of<'a>(&self, round: usize, x: &'a mut [f32]) -> &'a mut [f32] {
        let from = if round.is_multiple_of(2) { 0 } else { self.dimension - self.window };
        &mut x[from..from + self.window]
    }

    fn mix(&self, x: &mut [f32]) {
        if self.window < self.dimension {
            // Of an odd number the one in the middle stays.
            let (head, tail) = x.split_at_mut(self.dimension.div_ceil(2));
            for (a, b) in head.iter_mut().zip(tail) {
                (*a, *b) = ((*a + *b) * FRAC_1_SQRT_2, (*a - *b) * FRAC_1_SQRT_2);
            }
        }
    }
}

fn flip(x: &mut [f32], signs: &[u32]) {
    for (x, sign) in x.iter_mut().zip(signs) {
        *x = f32::from_bits(x.to_bits() ^ sign);
    }
}

/// The Walsh–Hadamard transform of a power of two of components, scaled to be orthogonal.
fn hadamard(x: &mut [f32]) {
    let butterflies = |a: f32, b: f32, c: f32, d: f32| {
        let (ab, a_b, cd, c_d) = (a + b, a - b, c + d, c - d);
        (ab + cd, a_b + c_d, ab - cd, a_b - c_d)
    };
    let mut half = 1;
    // The halves of the innermost are shorter than a register.
    for four in x.as_chunks_mut::<4>().0 {
        let [a, b, c, d] = *four;
        *four = butterflies(a, b, c, d).into();
        half = 4;
    }
    // Two steps at once: half the reading and writing.
    while 4 * half <= x.len() {
        for block in x.chunks_exact_mut(4 * half) {
            let (low, high) = block.split_at_mut(2 * half);
            let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                (*a, *b, *c, *d) = butterflies(*a, *b, *c, *d);
            }
        }
        half *= 4;
    }
    while half < x.len() {
        let (low, high) = x.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(high) {
            (*a, *b) = (*a + *b, *a - *b);
        }
        half *= 2;
    }
    let scale = (1.0 / (x.len() as f64).sqrt()) as f32;
    x.iter_mut().for_each(|x| *x *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(dimension: usize, seed: u64) -> Vec<f32> {
        numbers(seed).take(dimension).map(|x| (x >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    fn dot(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    }

    /// Powers of two and their neighbours; 3 and 5 have windows that overlap in one; embeddings' sizes.
    const DIMENSIONS: [usize; 16] = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 127, 385, 768, 1023, 1024, 1536];

    #[test]
    fn inner_products_stay_and_inverting_restores() {
        for d in DIMENSIONS {
            let rotation = Rotation::new(d, 7);
            let (x, y) = (vector(d, 1), vector(d, 2));
            let (mut rx, mut ry) = (x.clone(), y.clone());
            rotation.apply(&mut rx);
            rotation.apply(&mut ry);
            let tolerance = 1e-6 * d as f64;
            assert!((dot(&rx, &ry) - dot(&x, &y)).abs() < tolerance, "{d}");
            assert!((dot(&rx, &rx) - dot(&x, &x)).abs() < tolerance, "{d}");
            rotation.invert(&mut rx);
            assert!(x.iter().zip(&rx).all(|(a, b)| (a - b).abs() < 1e-5), "{d}");
        }
    }

    #[test]
    fn a_single_component_is_spread_over_all() {
        for d in DIMENSIONS.into_iter().filter(|&d| d >= 127) {
            for at in [0, d / 2, d - 1] {
                let mut x = vec![0.0; d];
                x[at] = 1.0;
                Rotation::new(d, 3).apply(&mut x);
                let largest = x.iter().fold(0f32, |max, x| max.max(x.abs()));
                // A random direction has a largest component of about √(2 ln d / d).
                let expected = (2.0 * (d as f32).ln() / d as f32).sqrt();
                assert!(largest < 2.5 * expected, "{d}, component {at}: {largest} where {expected} is usual");
            }
        }
    }

    #[test]
    fn the_seed_decides() {
        let rotated = |seed| {
            let mut x = vector(100, 1);
            Rotation::new(100, seed).apply(&mut x);
            x
        };
        assert_eq!(rotated(1), rotated(1));
        assert_ne!(rotated(1), rotated(2));
    }
}
