//! SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): where chance is needed, the
//! same chance on every target.

/// What the state grows by from one number to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that follows state `x`: a bijection that mixes all bits.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(STEP);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The numbers that follow `seed`.
pub fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |i: u64| mix(seed.wrapping_add(i.wrapping_mul(STEP))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // Of the authors' own implementation, seed 1234567.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers(1_234_567).take(3).collect::<Vec<_>>(), expected);
    }
}
