//! From a user's key to the id of its live row, in a growing index.
//!
//! Only ids are stored; the keys are compared where they lie. The table is split into shards that grow one at a time,
//! so that growth copies a 256th of it and holds up readers of that part alone.

use crate::error::{Error, Result};
use crate::mix::mix;
use hashbrown::HashTable;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SHARDS: usize = 256;

/// Key → id. The caller says what key a stored id has.
#[derive(Debug)]
pub struct KeyMap {
    shards: Box<[RwLock<HashTable<u32>>]>,
}

impl KeyMap {
    /// An empty map.
    pub fn new() -> Self {
        KeyMap { shards: (0..SHARDS).map(|_| RwLock::new(HashTable::new())).collect() }
    }

    /// Low bits choose the shard, the table takes the high ones.
    fn shard(hash: u64) -> usize {
        hash as usize % SHARDS
    }

    fn read(&self, hash: u64) -> RwLockReadGuard<'_, HashTable<u32>> {
        self.shards[Self::shard(hash)].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, hash: u64) -> RwLockWriteGuard<'_, HashTable<u32>> {
        self.shards[Self::shard(hash)].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of `key`.
    pub fn get(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = mix(key);
        self.read(hash).find(hash, |&id| key_of(id) == key).copied()
    }

    /// Makes room for all of `keys`, so that [`insert`](Self::insert) cannot fail.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the map is then as it was.
    pub fn reserve(&self, keys: &[u64], key_of: impl Fn(u32) -> u64) -> Result<()> {
        let mut more = [0u32; SHARDS];
        for &key in keys {
            more[Self::shard(mix(key))] += 1;
        }
        for (shard, &more) in self.shards.iter().zip(&more).filter(|&(_, &more)| more > 0) {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard
                .try_reserve(more as usize, |&id| mix(key_of(id)))
                .map_err(|_| Error::OutOfMemory { bytes: u64::from(more) * 5 })?;
        }
        Ok(())
    }

    /// Maps `key` to `id`, and returns the id it was mapped to before.
    pub fn insert(&self, key: u64, id: u32, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = mix(key);
        let mut shard = self.write(hash);
        match shard.find_mut(hash, |&other| key_of(other) == key) {
            Some(slot) => Some(std::mem::replace(slot, id)),
            None => {
                shard.insert_unique(hash, id, |&id| mix(key_of(id)));
                None
            }
        }
    }

    /// Forgets `key`, and returns the id it had.
    pub fn remove(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = mix(key);
        let mut shard = self.write(hash);
        let entry = shard.find_entry(hash, |&id| key_of(id) == key).ok()?;
        Some(entry.remove().0)
    }

    /// Gives every id its new number, by which `key_of` knows it, and memory back that is mostly empty.
    pub fn renumber(&mut self, new: impl Fn(u32) -> u32, key_of: impl Fn(u32) -> u64) {
        let hash = |&id: &u32| mix(key_of(id));
        for shard in &mut self.shards {
            let table = shard.get_mut().unwrap_or_else(PoisonError::into_inner);
            // Keys stay where they are: only they decide the place.
            table.iter_mut().for_each(|id| *id = new(*id));
            let mut smaller = HashTable::new();
            // Where memory is refused, the larger table does as well.
            if table.capacity() > 2 * table.len() && smaller.try_reserve(table.len(), hash).is_ok() {
                for id in table.iter() {
                    smaller.insert_unique(hash(id), *id, hash);
                }
                *table = smaller;
            }
        }
    }

    /// Bytes of memory the map takes.
    pub fn allocated_bytes(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).allocation_size() as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_map() {
        let keys: Vec<u64> = (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 60)).collect();
        let key_of = |id: u32| keys[id as usize];
        let mut map = KeyMap::new();
        for (id, &key) in (0..).zip(&keys) {
            assert_eq!(map.get(key, key_of), None);
            map.reserve(&[key], key_of).unwrap();
            assert_eq!(map.insert(key, id, key_of), None);
        }
        for (id, &key) in (0..).zip(&keys) {
            assert_eq!(map.get(key, key_of), Some(id));
            if id % 3 == 0 {
                assert_eq!(map.remove(key, key_of), Some(id));
                assert_eq!(map.remove(key, key_of), None);
                assert_eq!(map.get(key, key_of), None);
            }
        }
        assert!(map.allocated_bytes() < 10_000 * 12);
        let key_of = |id: u32| keys[id as usize - 1];
        map.renumber(|id| id + 1, key_of);
        for (id, &key) in (0..).zip(&keys) {
            assert_eq!(map.get(key, key_of), (id % 3 != 0).then_some(id + 1));
            if id % 100 != 1 {
                map.remove(key, key_of);
            }
        }
        let before = map.allocated_bytes();
        map.renumber(|id| id, key_of);
        assert!(map.allocated_bytes() < before / 4, "{} of {before} bytes", map.allocated_bytes());
        for (id, &key) in (0..).zip(&keys) {
            assert_eq!(map.get(key, key_of), (id % 100 == 1 && id % 3 != 0).then_some(id + 1));
        }
    }

    #[test]
    fn what_was_reserved_is_inserted_without_growing() {
        let keys: Vec<u64> = (0..20_000).collect();
        let key_of = |id: u32| keys[id as usize];
        let map = KeyMap::new();
        for batch in keys.chunks(7_000) {
            map.reserve(batch, key_of).unwrap();
            let before = map.allocated_bytes();
            for &key in batch {
                assert_eq!(map.insert(key, key as u32, key_of), None);
            }
            assert_eq!(map.allocated_bytes(), before);
        }
    }
}
