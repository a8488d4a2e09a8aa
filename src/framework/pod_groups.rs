//! The status of pod groups in a queue, for the PreEnqueue plugins that decide whether the groups' pods may be queued.
//! These plugins are called without a version of the cluster, and a part of their input, the waiting pods, is in no
//! version.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::model::{Name, Pod};
use crate::snapshot::Cluster;

/// The state of a pod group in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupStatus {
    /// The number of its pods that must be placed at once, or `None` if the group does not exist.
    pub wanted: Option<u32>,
    /// The number of its pods, in the queue or on nodes.
    pub members: usize,
    /// Why its pods are currently kept out of the queue although the group is complete.
    pub hold: Option<Hold>,
}

impl GroupStatus {
    /// Returns whether the group has as many pods as must be placed together.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.wanted.is_some_and(|wanted| self.members >= wanted as usize)
    }

    /// Returns whether its pods may queue: the group is complete, and nothing holds it back.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.hold.is_none() && self.is_complete()
    }
}

/// Why the pods of a group are kept out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Hold {
    /// Other pods of the group are being scheduled, and the result is awaited.
    InFlight,
    /// The group could not be placed within this time.
    TimedOut(Duration),
}

/// The pod groups of the pods in a queue. Shared between threads: the queue writes, and plugins read.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct PodGroups {
    known: RwLock<HashMap<Name, HashMap<Name, GroupStatus>>>,
    called: Mutex<Vec<(Name, Name)>>,
}

impl PodGroups {
    /// Returns the state of a group, or `None` if none of its pods is in the queue.
    #[must_use]
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<GroupStatus> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(namespace)?.get(name).copied()
    }

    pub(crate) fn set(&self, namespace: &Name, name: &Name, status: GroupStatus) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(namespace) {
            Some(groups) => drop(groups.insert(name.clone(), status)),
            None => drop(known.insert(namespace.clone(), [(name.clone(), status)].into())),
        }
    }

    /// Sets the status of each group that the `waiting` pods belong to, as a queue with these pods would. For callers
    /// that use plugins without a queue. O(pods).
    #[doc(hidden)]
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

    /// Removes a group when its last pod leaves the queue.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(groups) = known.get_mut(namespace) {
            groups.remove(name);
            if groups.is_empty() {
                known.remove(namespace);
            }
        }
    }

    /// Activates a group whose waiting pods need its other pods (kube-scheduler's `Activate`). The queue tries the
    /// other pods when it is next called.
    pub(crate) fn call(&self, namespace: &Name, name: &Name) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if !called.iter().any(|(of, known)| of == namespace && known == name) {
            called.push((namespace.clone(), name.clone()));
        }
    }

    /// Takes the groups that were activated since the last call.
    pub(crate) fn take_called(&self) -> Vec<(Name, Name)> {
        std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_different_namespaces_are_distinct() {
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
    fn calling_a_group_twice_activates_it_once() {
        let groups = PodGroups::default();
        let [a, g]: [Name; 2] = ["a".into(), "g".into()];
        groups.call(&a, &g);
        groups.call(&a, &g);
        assert_eq!(groups.take_called(), [(a, g)]);
        assert!(groups.take_called().is_empty());
    }
}
