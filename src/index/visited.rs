//! Marks on ids, cleared at the cost of what was marked.

use crate::error::Result;
use crate::storage::reserve;

/// A set of ids below a bound: one bit an id, so that the marks of 100,000 rows stay in the first-level cache.
#[derive(Debug, Default)]
pub struct Visited {
    words: Vec<u64>,
    /// Words that are not zero, so that clearing costs what was visited and not what there is.
    touched: Vec<u32>,
    bound: u32,
}

impl Visited {
    /// Empties the set and makes room for ids below `bound`.
    pub fn reset(&mut self, bound: u32) -> Result<()> {
        let words = bound.div_ceil(64) as usize;
        if words > self.words.len() {
            // Nothing in the old marks is worth copying.
            self.words = Vec::new();
            self.touched.clear();
            reserve(&mut self.words, words)?;
            self.words.resize(words, 0);
        } else {
            for &word in &self.touched {
                self.words[word as usize] = 0;
            }
        }
        self.touched.clear();
        self.bound = bound;
        Ok(())
    }

    /// Marks `id`; `true` if it is within bounds and was not marked yet.
    #[inline]
    pub fn insert(&mut self, id: u32) -> bool {
        if id >= self.bound {
            return false;
        }
        let (at, bit) = (id / 64, 1u64 << (id % 64));
        let word = &mut self.words[at as usize];
        if *word & bit != 0 {
            return false;
        }
        if *word == 0 {
            self.touched.push(at);
        }
        *word |= bit;
        true
    }

    /// Whether `id` is marked.
    #[inline]
    pub fn contains(&self, id: u32) -> bool {
        id < self.bound && self.words[(id / 64) as usize] & (1 << (id % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_seen_once_and_cleared() {
        let mut visited = Visited::default();
        for bound in [0, 1, 63, 64, 65, 1000, 10] {
            visited.reset(bound).unwrap();
            for id in 0..bound {
                assert!(!visited.contains(id));
                assert!(visited.insert(id));
                assert!(!visited.insert(id));
                assert!(visited.contains(id));
            }
            assert!(!visited.insert(bound), "the bound itself is out of range");
            assert!(!visited.insert(u32::MAX));
            assert!(!visited.contains(u32::MAX));
        }
    }
}
