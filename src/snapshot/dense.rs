//! A set of values with hash lookup and contiguous numbers.
//!
//! It combines a [`Table`] of values and a [`HashIndex`] over their keys. When a value is removed, the last value takes
//! over its number. Numbers therefore stay below the count, no search for a free number is needed, and a temporary
//! surge of values leaves nothing behind. A caller that stores numbers must update the one that moved.

use std::sync::Arc;

use crate::freeing::Part;

use super::hash_index::HashIndex;
use super::table::Table;

/// A value that is identified by a part of itself, its key.
pub(crate) trait Known: Part {
    /// Returns the hash of the key, which never changes.
    fn hash64(&self) -> u64;
}

/// A persistent set of values.
pub(crate) struct Dense<T: Part> {
    values: Table<Arc<T>>,
    index: HashIndex,
    len: u32,
}

impl<T: Part> Clone for Dense<T> {
    fn clone(&self) -> Dense<T> {
        Dense { values: self.values.clone(), index: self.index.clone(), len: self.len }
    }
}

impl<T: Part> Default for Dense<T> {
    fn default() -> Dense<T> {
        Dense { values: Table::default(), index: HashIndex::default(), len: 0 }
    }
}

impl<T: Part> Dense<T> {
    /// Number of reference counts that a clone increments.
    pub(crate) const COUNTS: usize = 2;
}

impl<T: Known> Dense<T> {
    /// Returns the number of the value with this hash that `is` accepts. O(log n).
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.index.find(hash, |number| self.get(number).is_some_and(|value| is(value)))
    }

    /// Returns the value with this number. O(log n).
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.values.get(number)
    }

    /// Returns all values, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.values.iter().map(|(_, value)| value)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Adds a value whose key is not in the set yet, and returns its number. O(log n).
    pub(crate) fn push(&mut self, value: Arc<T>) -> u32 {
        let number = self.len;
        self.index.insert(value.hash64(), number);
        self.values.set(number, value);
        self.len += 1;
        number
    }

    /// Replaces a value by another with the same key. O(log n).
    pub(crate) fn replace(&mut self, number: u32, value: Arc<T>) {
        self.values.set(number, value);
    }

    /// Removes a value. If the last value moved to `number`, returns the number that it had before. O(log n).
    pub(crate) fn remove(&mut self, number: u32) -> Option<u32> {
        let gone = self.values.get(number)?.hash64();
        self.index.remove(gone, number);
        let last = self.len.saturating_sub(1);
        self.len = last;
        let moves = self.values.get(last).filter(|_| last != number).cloned();
        self.values.remove(last);
        let value = moves?;
        let hash = value.hash64();
        self.index.remove(hash, last);
        self.index.insert(hash, number);
        self.values.set(number, value);
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl Known for (u8, u8) {
        fn hash64(&self) -> u64 {
            // Some hashes collide.
            u64::from(self.0 % 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    proptest! {
        #[test]
        fn equals_a_map_without_gaps_and_old_clones_never_change(
            ops in prop::collection::vec((0..20_u8, any::<u8>(), any::<bool>()), 1..200),
        ) {
            let mut dense = Dense::<(u8, u8)>::default();
            let mut map = BTreeMap::new();
            let mut held = Vec::new();
            for (key, value, put) in ops {
                let known = dense.find((key, 0).hash64(), |found| found.0 == key);
                prop_assert_eq!(known.is_some(), map.contains_key(&key));
                match (known, put) {
                    (Some(number), true) => dense.replace(number, Arc::new((key, value))),
                    (None, true) => drop(dense.push(Arc::new((key, value)))),
                    (Some(number), false) => {
                        let last = dense.len() as u32 - 1;
                        let moved = dense.remove(number);
                        prop_assert_eq!(moved, (number != last).then_some(last));
                    }
                    (None, false) => {}
                }
                if put { map.insert(key, value); } else { map.remove(&key); }
                held.push((dense.clone(), map.clone()));
            }
            for (dense, map) in held {
                let found: BTreeMap<u8, u8> = dense.iter().map(|value| **value).collect();
                prop_assert_eq!(&found, &map);
                prop_assert_eq!(dense.len(), map.len());
                prop_assert!((0..dense.len() as u32).all(|number| dense.get(number).is_some()));
                for (key, value) in &map {
                    let number = dense.find((*key, 0).hash64(), |found| found.0 == *key).unwrap();
                    prop_assert_eq!(dense.get(number).unwrap().1, *value);
                }
            }
        }
    }
}
