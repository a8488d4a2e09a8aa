//! Numbers under keys: a persistent map of which each key may have as many values as
//! there are. A [`HashIndex`](super::hash_index::HashIndex) alone keeps what has one hash
//! in one place, and copies all of it with every change.

use std::hash::Hash;
use std::sync::Arc;

use crate::model::hash_of;

use super::cost;
use super::dense::{Dense, Known};
use super::table::Table;

/// Numbers under keys.
pub(crate) struct Groups<K>(Dense<Group<K>>);

/// The numbers under one key: in a tree, of which a change copies a path.
#[derive(Clone)]
struct Group<K> {
    key: K,
    members: Table<()>,
    len: u32,
}

impl<K: Hash> Known for Group<K> {
    fn hash64(&self) -> u64 {
        hash_of(&self.key)
    }
}

impl<K> Clone for Groups<K> {
    fn clone(&self) -> Groups<K> {
        Groups(self.0.clone())
    }
}

impl<K> Default for Groups<K> {
    fn default() -> Groups<K> {
        Groups(Dense::default())
    }
}

impl<K> Groups<K> {
    /// Reference counts that a clone bumps.
    pub(crate) const COUNTS: usize = Dense::<Group<K>>::COUNTS;
}

impl<K: Hash + Clone> Groups<K> {
    /// The numbers under a key, which `is` accepts and has this hash, in their order.
    /// O(numbers that are taken × log n).
    pub(crate) fn members(&self, hash: u64, is: impl Fn(&K) -> bool) -> impl Iterator<Item = u32> {
        let group = self.find(hash, is).and_then(|at| self.0.get(at));
        group.into_iter().flat_map(|group| group.members.iter().map(|(number, ())| number))
    }

    /// Puts a number that is not there yet under a key, which is made where nothing is
    /// under it. O(log n).
    pub(crate) fn insert(
        &mut self,
        number: u32,
        hash: u64,
        is: impl Fn(&K) -> bool,
        key: impl FnOnce() -> K,
    ) {
        match self.find(hash, is) {
            Some(at) => self.change(at, |group| {
                group.members.set(number, ());
                group.len += 1;
            }),
            None => {
                let mut members = Table::default();
                members.set(number, ());
                self.0.push(Arc::new(Group { key: key(), members, len: 1 }));
            }
        }
    }

    /// Takes a number that is there from under a key. O(log n).
    pub(crate) fn remove(&mut self, number: u32, hash: u64, is: impl Fn(&K) -> bool) {
        let Some(at) = self.find(hash, is) else { return };
        if self.0.get(at).is_some_and(|group| group.len == 1) {
            self.0.remove(at);
            return;
        }
        self.change(at, |group| {
            group.members.remove(number);
            group.len -= 1;
        });
    }

    /// Whether there is no number.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn find(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<u32> {
        self.0.find(hash, |group| is(&group.key))
    }

    fn change(&mut self, at: u32, change: impl FnOnce(&mut Group<K>)) {
        let Some(known) = self.0.get(at) else { return };
        // The names of a key, and the root of the tree.
        cost::copied::<Group<K>>(4);
        let mut group = Group::clone(known);
        change(&mut group);
        self.0.replace(at, Arc::new(group));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_map_of_sets_and_old_clones_never_change(
            ops in prop::collection::vec((0..6_u8, 0..40_u32), 1..200),
        ) {
            let mut groups = Groups::<u8>::default();
            let mut map = BTreeMap::<u8, Vec<u32>>::new();
            let mut held = Vec::new();
            for (key, number) in ops {
                let of = map.entry(key).or_default();
                match of.binary_search(&number) {
                    Ok(at) => {
                        of.remove(at);
                        groups.remove(number, hash_of(&key), |found| *found == key);
                    }
                    Err(at) => {
                        of.insert(at, number);
                        groups.insert(number, hash_of(&key), |found| *found == key, || key);
                    }
                }
                held.push((groups.clone(), map.clone()));
            }
            for (groups, map) in held {
                for key in 0..6 {
                    let found = groups.members(hash_of(&key), |found| *found == key);
                    let expected = map.get(&key).cloned().unwrap_or_default();
                    prop_assert_eq!(found.collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
