//! What a queue knows of pod groups, for the plugins that decide whether their pods
//! may queue: those are asked without a version, and half of what they need (which
//! pods wait) is in none.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::model::{Name, Pod};
use crate::snapshot::Cluster;

/// A pod group as a queue knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// How many of its pods have to be placed at once; none where there is no such
    /// group.
    pub wanted: Option<u32>,
    /// How many of its pods there are, in the queue or on nodes.
    pub members: usize,
    /// Why its pods are kept from queueing for now, though they could.
    pub hold: Option<Hold>,
}

impl GroupStatus {
    /// Whether there are as many pods as have to be placed at once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.members >= wanted as usize)
    }

    /// Whether its pods may queue: it is complete, and nothing keeps them.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.hold.is_none() && self.is_complete()
    }
}

/// Why pods of a group are kept from queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Others of the group are being tried: what comes of that is awaited.
    InFlight,
    /// The group was not placed in this time.
    TimedOut(Duration),
}

/// The pod groups that pods of a queue are of. Shared by threads; the queue writes,
/// plugins read.
#[derive(Debug, Default)]
pub struct PodGroups {
    known: RwLock<HashMap<Name, HashMap<Name, GroupStatus>>>,
    called: Mutex<Vec<(Name, Name)>>,
}

impl PodGroups {
    /// What is known of a group; none where no pod of it is in the queue.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<GroupStatus> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(namespace)?.get(name).copied()
    }

    /// Notes what is known of a group now.
    pub fn set(&self, namespace: &Name, name: &Name, status: GroupStatus) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(namespace) {
            Some(groups) => drop(groups.insert(name.clone(), status)),
            None => drop(known.insert(namespace.clone(), [(name.clone(), status)].into())),
        }
    }

    /// Notes the groups of these pods as a queue would in which they wait: for whoever
    /// asks plugins without a queue. O(pods).
    pub fn fill<'a>(&self, cluster: &Cluster, waiting: impl IntoIterator<Item = &'a Pod>) {
        let mut seen = HashSet::new();
        for pod in waiting {
            let Some((namespace, name)) = pod.group() else { continue };
            if cluster.pod(&pod.uid).is_some() || !seen.insert(&pod.uid) {
                continue;
            }
            let group = cluster.objects().pod_groups.get(namespace, name);
            let placed = || cluster.placed_members(namespace, name);
            let others = self.get(namespace, name).map_or_else(placed, |known| known.members);
            let wanted = group.map(|group| group.wanted());
            self.set(namespace, name, GroupStatus { wanted, members: others + 1, hold: None });
        }
    }

    /// No pod of the group is in the queue any more.
    pub fn remove(&self, namespace: &str, name: &str) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(groups) = known.get_mut(namespace) {
            groups.remove(name);
            if groups.is_empty() {
                known.remove(namespace);
            }
        }
    }

    /// A pod of the group waits for the others: the queue is to have them tried
    /// (kube-scheduler's `Activate`), which it does when it is next asked for anything.
    pub fn call(&self, namespace: &Name, name: &Name) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if !called.iter().any(|(of, known)| of == namespace && known == name) {
            called.push((namespace.clone(), name.clone()));
        }
    }

    /// The groups that were called since the last time.
    pub(crate) fn take_called(&self) -> Vec<(Name, Name)> {
        std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_one_name_are_told_apart_by_their_namespaces() {
        let groups = PodGroups::default();
        let status = |members| GroupStatus { members, ..GroupStatus::default() };
        let [a, b, g]: [Name; 3] = ["a".into(), "b".into(), "g".into()];
        groups.set(&a, &g, status(1));
        groups.set(&b, &g, status(2));
        assert_eq!(groups.get("a", "g"), Some(status(1)));
        groups.remove("a", "g");
        assert_eq!((groups.get("a", "g"), groups.get("b", "g")), (None, Some(status(2))));
    }

    #[test]
    fn a_group_that_is_called_twice_is_called_once() {
        let groups = PodGroups::default();
        let [a, g]: [Name; 2] = ["a".into(), "g".into()];
        groups.call(&a, &g);
        groups.call(&a, &g);
        assert_eq!(groups.take_called(), [(a, g)]);
        assert!(groups.take_called().is_empty());
    }
}
