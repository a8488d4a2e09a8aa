//! The changes from one set of facts to another, which take less memory than the facts of all pods.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use portolan::model::{Name, Requests, Uid};

use super::PodFacts;

/// What changes in the facts of pods: see [`PodFacts::changes_since`].
#[derive(Clone, Debug, Default)]
pub struct FactChanges {
    not_ready: Changes<Uid, ()>,
    not_started: Changes<Uid, ()>,
    deletion_costs: Changes<Uid, i32>,
    stays: Changes<Uid, Option<i64>>,
    requests: Changes<Uid, Requests>,
    finished: Changes<(Name, Name), Name>,
}

/// The entries of a map that are gone, and those that are new or differ.
#[derive(Clone, Debug)]
struct Changes<K, V> {
    gone: Box<[K]>,
    put: Box<[(K, V)]>,
}

impl<K, V> Default for Changes<K, V> {
    fn default() -> Changes<K, V> {
        Changes { gone: Box::default(), put: Box::default() }
    }
}

/// A map, or a set as a map without values.
trait Entries<K, V> {
    fn entries<'e>(&'e self) -> impl Iterator<Item = (&'e K, &'e V)>
    where
        K: 'e,
        V: 'e;
    fn find(&self, key: &K) -> Option<&V>;
    fn put(&mut self, key: K, value: V);
    fn take(&mut self, key: &K);
}

impl<K: Eq + Hash> Entries<K, ()> for HashSet<K> {
    fn entries<'e>(&'e self) -> impl Iterator<Item = (&'e K, &'e ())>
    where
        K: 'e,
    {
        self.iter().map(|key| (key, &()))
    }

    fn find(&self, key: &K) -> Option<&()> {
        self.contains(key).then_some(&())
    }

    fn put(&mut self, key: K, (): ()) {
        self.insert(key);
    }

    fn take(&mut self, key: &K) {
        self.remove(key);
    }
}

impl<K: Eq + Hash, V> Entries<K, V> for HashMap<K, V> {
    fn entries<'e>(&'e self) -> impl Iterator<Item = (&'e K, &'e V)>
    where
        K: 'e,
        V: 'e,
    {
        self.iter()
    }

    fn find(&self, key: &K) -> Option<&V> {
        self.get(key)
    }

    fn put(&mut self, key: K, value: V) {
        self.insert(key, value);
    }

    fn take(&mut self, key: &K) {
        self.remove(key);
    }
}

impl<K: Ord, V> Entries<K, V> for BTreeMap<K, V> {
    fn entries<'e>(&'e self) -> impl Iterator<Item = (&'e K, &'e V)>
    where
        K: 'e,
        V: 'e,
    {
        self.iter()
    }

    fn find(&self, key: &K) -> Option<&V> {
        self.get(key)
    }

    fn put(&mut self, key: K, value: V) {
        self.insert(key, value);
    }

    fn take(&mut self, key: &K) {
        self.remove(key);
    }
}

impl<K: Clone, V: Clone + PartialEq> Changes<K, V> {
    fn between<M: Entries<K, V>>(before: &M, after: &M) -> Changes<K, V> {
        let gone = before.entries().filter(|(key, _)| after.find(key).is_none());
        let differs = |(key, value): &(&K, &V)| before.find(key) != Some(value);
        let put = after.entries().filter(differs);
        Changes {
            gone: gone.map(|(key, _)| key.clone()).collect(),
            put: put.map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }

    fn apply(&self, to: &mut impl Entries<K, V>) {
        self.gone.iter().for_each(|key| to.take(key));
        self.put.iter().cloned().for_each(|(key, value)| to.put(key, value));
    }

    fn len(&self) -> usize {
        self.gone.len() + self.put.len()
    }
}

impl FactChanges {
    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        let FactChanges { not_ready, not_started, deletion_costs, stays, requests, finished } =
            self;
        let of_sets = not_ready.len() + not_started.len();
        of_sets + deletion_costs.len() + stays.len() + requests.len() + finished.len()
    }

    /// Returns `true` if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PodFacts {
    /// Returns what changed since other facts, except the pods of classes. O(facts).
    #[must_use]
    pub fn changes_since(&self, before: &PodFacts) -> FactChanges {
        FactChanges {
            not_ready: Changes::between(&before.not_ready, &self.not_ready),
            not_started: Changes::between(&before.not_started, &self.not_started),
            deletion_costs: Changes::between(&before.deletion_costs, &self.deletion_costs),
            stays: Changes::between(&before.stays, &self.stays),
            requests: Changes::between(&before.requests, &self.requests),
            finished: Changes::between(&before.finished, &self.finished),
        }
    }

    /// Applies the changes since these facts. O(changes).
    pub fn apply(&mut self, changes: &FactChanges) {
        changes.not_ready.apply(&mut self.not_ready);
        changes.not_started.apply(&mut self.not_started);
        changes.deletion_costs.apply(&mut self.deletion_costs);
        changes.stays.apply(&mut self.stays);
        changes.requests.apply(&mut self.requests);
        changes.finished.apply(&mut self.finished);
    }

    /// Returns the facts without the pods of classes.
    #[must_use]
    pub fn without_classes(&self) -> PodFacts {
        let mut facts = self.clone();
        facts.classes.clear();
        facts
    }
}
