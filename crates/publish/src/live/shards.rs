//! One copy of the live index: a map split into thousands of small tables, each of which grows quickly.
//!
//! A table that grows moves all its entries. One table of thirty million entries stops its writer for seconds; a shard
//! of a few thousand moves in tens of microseconds. So the hash selects one of a fixed number of shards, and each shard
//! is a separate hash table that allocates nothing until its first entry.
//!
//! The shards have *unequal* widths on purpose. A table's size is a power of two. Equal shards would all double at
//! nearly the same number of entries, in one burst, and then each would be half empty: memory per key would swing by a
//! factor of two. Widths that spread over a factor of two put the shards at all stages of filling at every size. So
//! growth is spread evenly over the inserts, and memory per key stays near its mean.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Key, Value};

/// The number of shards, as a power of two; a shard takes 32 bytes per copy. Few under a checker, so that shards grow
/// and shrink, and so that a fuzzer that creates an engine every millisecond does not spend that time here.
const SHARD_BITS: u32 = if cfg!(any(loom, fuzzing)) { 2 } else { 12 };

/// A change to the index, applied to both copies one after the other.
#[derive(Clone, Debug)]
pub(super) enum Change<K, V> {
    Insert { hash: u64, key: K, value: V },
    Remove { hash: u64, key: K },
    Version(u64),
}

/// The hash of a key: the same in both copies, different in each process.
#[inline]
pub(super) fn hash_of<K: Key>(key: &K) -> u64 {
    crate::hash::hash_of(key)
}

/// The shard of a hash. Uses bits that the inner tables do not use (they take the position from the lowest bits and the
/// tag from the highest seven). Shard widths spread over a factor of two.
#[inline]
fn shard_of(hash: u64) -> usize {
    // x is uniform in [0, 1) as a 32-bit fraction. x + x (1 - x) / 3 also runs from 0 to 1, with a slope that falls
    // from 4/3 to 2/3. A shard's width is one over the slope, so it runs from 3/4 to 3/2. This is a cheap stand-in for
    // the logarithm, which would spread the widths evenly on a log scale.
    let x = (hash >> 25) & 0xffff_ffff;
    let bend = (x * (0xffff_ffff - x)) >> 32;
    let y = x + bend / 3;
    (y >> (32 - SHARD_BITS)) as usize
}

/// One copy.
#[derive(Clone)]
pub(super) struct Shards<K, V> {
    tables: Box<[HashTable<(K, V)>]>,
    len: usize,
    version: u64,
}

impl<K: Key, V: Value> Shards<K, V> {
    pub(super) fn new() -> Self {
        let tables = (0..1 << SHARD_BITS).map(|_| HashTable::new()).collect();
        Self { tables, len: 0, version: 0 }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, hash: u64, key: &K) -> Option<V> {
        self.tables[shard_of(hash)].find(hash, |entry| entry.0 == *key).map(|entry| entry.1)
    }

    /// Applies a change. Cannot fail, and has the same effect on equal copies.
    pub(super) fn apply(&mut self, change: Change<K, V>) {
        match change {
            Change::Version(version) => self.version = version,
            Change::Insert { hash, key, value } => {
                let table = &mut self.tables[shard_of(hash)];
                match table.entry(hash, |entry| entry.0 == key, |entry| hash_of(&entry.0)) {
                    Entry::Occupied(mut entry) => entry.get_mut().1 = value,
                    Entry::Vacant(entry) => {
                        entry.insert((key, value));
                        self.len += 1;
                    }
                }
            }
            Change::Remove { hash, key } => {
                let table = &mut self.tables[shard_of(hash)];
                let Ok(entry) = table.find_entry(hash, |entry| entry.0 == key) else { return };
                entry.remove();
                self.len -= 1;
                // A shard that lost most of its entries returns the memory. The removals have paid for the move.
                if table.is_empty() {
                    *table = HashTable::new();
                } else if table.len() * 8 < table.capacity() && table.capacity() > 32 {
                    table.shrink_to(table.len() * 2, |entry| hash_of(&entry.0));
                }
            }
        }
    }

    /// Bytes that the tables occupy.
    #[cfg(all(test, not(loom)))]
    pub(super) fn allocated(&self) -> usize {
        self.tables.iter().map(HashTable::allocation_size).sum::<usize>()
            + size_of_val(&*self.tables)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Id = [u64; 2];

    fn filled(count: u64) -> Shards<Id, u64> {
        let mut shards = Shards::new();
        for number in 0..count {
            let key = [number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
            shards.apply(Change::Insert { hash: hash_of(&key), key, value: number });
        }
        shards
    }

    #[test]
    fn the_shard_of_every_hash_exists_and_both_ends_are_used() {
        assert_eq!(shard_of(0), 0);
        assert_eq!(shard_of(u64::MAX), (1 << SHARD_BITS) - 1);
        for step in 0..100_000_u64 {
            assert!(shard_of(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)) < 1 << SHARD_BITS);
        }
    }

    #[test]
    fn memory_per_key_stays_near_its_mean_at_every_size() {
        // Both copies together, with entries of 24 bytes. An equal split would swing between 57 and 114.
        for count in [250_000, 300_000, 360_000, 430_000, 500_000] {
            let bytes = 2.0 * filled(count).allocated() as f64 / count as f64;
            assert!((70.0..=88.0).contains(&bytes), "{bytes:.1} bytes a key at {count}");
        }
    }

    #[test]
    fn the_widest_shard_has_about_twice_the_entries_of_the_narrowest() {
        let shards = filled(400_000);
        let largest = shards.tables.iter().map(HashTable::len).max().unwrap_or(0);
        let empty = shards.tables.iter().filter(|table| table.is_empty()).count();
        assert_eq!(empty, 0);
        assert!(largest < 250, "{largest}");
    }

    #[test]
    fn a_shard_that_empties_returns_its_memory() {
        let mut shards = filled(400_000);
        let full = shards.allocated();
        for number in 0..400_000_u64 {
            let key = [number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
            shards.apply(Change::Remove { hash: hash_of(&key), key });
        }
        assert_eq!(shards.len(), 0);
        assert!(shards.allocated() < full / 100, "{} of {full}", shards.allocated());
    }
}
