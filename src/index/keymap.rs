//! From a user's key to the id of its live row, in a growing index.
//!
//! Only ids are stored; the keys are compared where they lie. The table is split into shards that grow one at a time, so
//! that growth copies a 256th of it and holds up readers of that part alone.

use super::hnsw::params::mix;
use crate::error::{Error, Result};
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

    /// Makes room in `key`'s shard for `more` keys, so that [`insert`](Self::insert) cannot fail.
    pub fn reserve(&self, key: u64, more: usize, key_of: impl Fn(u32) -> u64) -> Result<()> {
        self.write(mix(key))
            .try_reserve(more, |&id| mix(key_of(id)))
            .map_err(|_| Error::OutOfMemory { bytes: more as u64 * 5 })
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

    /// Forgets all keys.
    pub fn clear(&mut self) {
        *self = KeyMap::new();
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
        let map = KeyMap::new();
        for (id, &key) in (0..).zip(&keys) {
            assert_eq!(map.get(key, key_of), None);
            map.reserve(key, 1, key_of).unwrap();
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
    }
}
