//! Marks on ids, cleared at the cost of what was marked.

use crate::error::Result;
use crate::storage::reserve;

/// A set of ids below a bound: one bit an id, so that the marks of 100,000 rows stay in the first-level cache.
#[derive(Debug, Default)]
pub struct Visited {
    words: Vec<u64>,
    /// The ids in the set, so that clearing costs what was visited and not what there is.
    ids: Vec<u32>,
    bound: u32,
}

impl Visited {
    /// Empties the set and makes room for ids below `bound`.
    pub fn reset(&mut self, bound: u32) -> Result<()> {
        let words = bound.div_ceil(64) as usize;
        if words > self.words.len() {
            // Nothing in the old marks is worth copying.
            self.words = Vec::new();
            self.ids.clear();
            reserve(&mut self.words, words)?;
            self.words.resize(words, 0);
        } else {
            for &id in &self.ids {
                self.words[id as usize / 64] = 0;
            }
        }
        self.ids.clear();
        self.bound = bound;
        Ok(())
    }

    /// Marks `id`; `true` if it is within bounds and was not marked yet.
    #[inline]
    pub fn insert(&mut self, id: u32) -> bool {
        let is_new = id < self.bound && !self.contains(id);
        if is_new {
            self.words[id as usize / 64] |= 1 << (id % 64);
            self.ids.push(id);
        }
        is_new
    }

    /// Marks `ids`, and leaves in `fresh` those that [`insert`](Self::insert) would say `true` of.
    ///
    /// Without a branch that depends on the marks: whether a neighbour was met before nobody can foretell.
    #[inline]
    pub fn insert_all(&mut self, ids: &[u32], fresh: &mut Vec<u32>) {
        fresh.resize(ids.len(), 0);
        let mut count = 0;
        for &id in ids {
            if id >= self.bound {
                continue;
            }
            let (word, bit) = (&mut self.words[id as usize / 64], 1 << (id % 64));
            fresh[count] = id;
            count += usize::from(*word & bit == 0);
            *word |= bit;
        }
        fresh.truncate(count);
        self.ids.extend_from_slice(fresh);
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
            visited.reset(bound).unwrap();
            let mut fresh = vec![7];
            visited.insert_all(&[bound, 3, 1, 3, u32::MAX, 1], &mut fresh);
            let mut wanted = vec![3, 1];
            wanted.retain(|&id| id < bound);
            assert_eq!(fresh, wanted);
            visited.insert_all(&[2, 1, 3], &mut fresh);
            assert_eq!(fresh, if bound > 2 { vec![2] } else { vec![] });
        }
    }
}
