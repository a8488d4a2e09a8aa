//! The changes from one set of facts to another, which take less memory than the facts of all pods.

use std::collections::HashMap;
use std::hash::Hash;

use portolan::model::{Name, Uid};

use super::{Facts, PodFacts};

/// What changes in the facts of pods: see [`PodFacts::changes_since`].
#[derive(Clone, Debug)]
pub struct FactChanges {
    gone: Box<[Uid]>,
    /// Most pods have the facts of many others.
    put: Box<[(Facts, Box<[Uid]>)]>,
    gone_finished: Box<[(Name, Name)]>,
    put_finished: Box<[((Name, Name), Name)]>,
}

/// The keys of a map that are gone, and the entries that are new or differ.
fn between<'m, K: Eq + Hash, V: PartialEq>(
    before: impl IntoIterator<Item = (&'m K, &'m V)>,
    after: impl IntoIterator<Item = (&'m K, &'m V)>,
) -> (Vec<&'m K>, Vec<(&'m K, &'m V)>) {
    let mut gone: HashMap<&K, &V> = before.into_iter().collect();
    let put = after.into_iter().filter(|(key, value)| gone.remove(key) != Some(value)).collect();
    (gone.into_keys().collect(), put)
}

impl FactChanges {
    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        let put: usize = self.put.iter().map(|(_, pods)| pods.len()).sum();
        self.gone.len() + put + self.gone_finished.len() + self.put_finished.len()
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
        let (gone, mut put) = between(&before.pods, &self.pods);
        put.sort_unstable_by_key(|(_, it)| {
            (it.is_ready, it.has_started, it.deletion_cost, it.stays, it.requests.is_some())
        });
        let alike = put.chunk_by(|(_, one), (_, other)| one == other);
        let alike = alike.map(|of| (of[0].1.clone(), of.iter().map(|it| it.0.clone()).collect()));
        let put = alike.collect();
        let (gone_finished, put_finished) = between(&before.finished, &self.finished);
        FactChanges {
            gone: gone.into_iter().cloned().collect(),
            put,
            gone_finished: gone_finished.into_iter().cloned().collect(),
            put_finished: put_finished.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
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
        for FactChanges { gone, put, gone_finished, put_finished } in changes {
            gone.iter().for_each(|pod| drop(facts.pods.remove(pod)));
            for (of_each, pods) in put {
                facts.pods.extend(pods.iter().map(|pod| (pod.clone(), of_each.clone())));
            }
            gone_finished.iter().for_each(|name| drop(facts.finished.remove(name)));
            facts.finished.extend(put_finished.iter().cloned());
        }
        facts
    }
}
