//! Values that are found by what they are known by, under numbers without gaps.
//!
//! A [`Table`] of values and a [`HashIndex`] of what they are known by. A value that
//! goes leaves its number to the last one, so numbers stay below the count, nothing is
//! ever searched for a free one, and a tide of values leaves nothing behind. Who keeps a
//! number must hear of that one move.

use std::sync::Arc;

use crate::freeing::Part;

use super::hash_index::HashIndex;
use super::table::Table;

/// A value that is known by a part of it.
pub(crate) trait Known: Part {
    /// The hash of what it is known by, which never changes.
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
    /// Reference counts that a clone bumps.
    pub(crate) const COUNTS: usize = 2;
}

impl<T: Known> Dense<T> {
    /// The number of the value with this hash that `is` accepts. O(log n).
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.index.find(hash, |number| self.get(number).is_some_and(|value| is(value)))
    }

    /// The value with this number. O(log n).
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.values.get(number)
    }

    /// All values, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.values.iter().map(|(_, value)| value)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Adds a value that there is none of yet: its number. O(log n).
    pub(crate) fn push(&mut self, value: Arc<T>) -> u32 {
        let number = self.len;
        self.index.insert(value.hash64(), number);
        self.values.set(number, value);
        self.len += 1;
        number
    }

    /// Puts a value in the place of another that is known by the same. O(log n).
    pub(crate) fn replace(&mut self, number: u32, value: Arc<T>) {
        self.values.set(number, value);
    }

    /// Takes a value away: the number that the one under this number had until now, if
    /// one has come there. O(log n).
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
            // Some collide.
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
