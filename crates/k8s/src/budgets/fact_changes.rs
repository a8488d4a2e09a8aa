//! The changes from one set of facts to another, which take less memory than the facts of all pods.

use std::collections::HashMap;
use std::hash::Hash;

use portolan::model::{Name, Uid};

use super::{Facts, PodFacts};

/// What changes in the facts of pods: see [`PodFacts::changes_since`].
#[derive(Clone, Debug)]
pub struct FactChanges {
    pods: Changes<Uid, Facts>,
    finished: Changes<(Name, Name), Name>,
}

/// The entries of a map that are gone, and those that are new or differ.
#[derive(Clone, Debug)]
struct Changes<K, V> {
    gone: Vec<K>,
    put: Vec<(K, V)>,
}

impl<K: Clone + Eq + Hash, V: Clone + PartialEq> Changes<K, V> {
    fn between<'m>(
        before: impl IntoIterator<Item = (&'m K, &'m V)>,
        after: impl IntoIterator<Item = (&'m K, &'m V)>,
    ) -> Changes<K, V>
    where
        K: 'm,
        V: 'm,
    {
        let mut gone: HashMap<&K, &V> = before.into_iter().collect();
        let put = after.into_iter().filter(|(key, value)| gone.remove(key) != Some(value));
        let mut put: Vec<(K, V)> = put.map(|(key, value)| (key.clone(), value.clone())).collect();
        put.shrink_to_fit();
        Changes { gone: gone.into_keys().cloned().collect(), put }
    }

    fn len(&self) -> usize {
        self.gone.len() + self.put.len()
    }
}

impl FactChanges {
    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len() + self.finished.len()
    }

    /// Returns `true` if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PodFacts {
    /// Returns what changed since other facts, except [`PodFacts::classes`]. O(facts).
    #[must_use]
    pub fn changes_since(&self, before: &PodFacts) -> FactChanges {
        FactChanges {
            pods: Changes::between(&before.pods, &self.pods),
            finished: Changes::between(&before.finished, &self.finished),
        }
    }

    /// Returns the facts after changes, without [`PodFacts::classes`]. O(facts + changes).
    #[must_use]
    pub fn after<'c>(&self, changes: impl IntoIterator<Item = &'c FactChanges>) -> PodFacts {
        let mut facts = PodFacts {
            pods: self.pods.clone(),
            finished: self.finished.clone(),
            ..PodFacts::default()
        };
        for FactChanges { pods, finished } in changes {
            pods.gone.iter().for_each(|pod| drop(facts.pods.remove(pod)));
            facts.pods.extend(pods.put.iter().cloned());
            finished.gone.iter().for_each(|name| drop(facts.finished.remove(name)));
            facts.finished.extend(finished.put.iter().cloned());
        }
        facts
    }
}
