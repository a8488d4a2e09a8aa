//! The data about each pod that the engine does not keep.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use portolan::model::{Name, Uid};

use super::table::Table;
use crate::debug::debug_by;

/// A pod of the cluster, as the API server last reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: u64,
    /// `metadata.generation`, which conditions repeat as `observedGeneration`.
    pub generation: i64,
    /// `spec.nodeName`.
    pub node: Option<Name>,
    /// Whether the pod has a deletion timestamp.
    pub is_terminating: bool,
    /// The status of a pod without a node.
    pub pending: Option<Box<PendingStatus>>,
}

/// The part of a pending pod's status that a scheduler writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingStatus {
    /// `status.nominatedNodeName`.
    pub nominated: Option<Name>,
    /// The condition `PodScheduled`.
    pub scheduled: Option<Condition>,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: Box<str>,
    /// The machine-readable reason.
    pub reason: Box<str>,
    /// The message for people.
    pub message: Box<str>,
    /// When `status` last changed, as the API writes times.
    pub last_transition_time: Option<Box<str>>,
    /// The generation of the pod that was judged.
    pub observed_generation: Option<i64>,
}

/// The pods of the cluster. The mirror writes it, and the writers of bindings, conditions and events read it.
///
/// A pod is in the index before the engine receives its event. A pod with a node takes about 120 bytes plus its name.
#[derive(Default)]
pub struct PodIndex {
    table: RwLock<Table>,
}

impl PodIndex {
    /// Returns a pod, or `None` if the cluster does not have it. Allocates the name. O(1).
    #[must_use]
    pub fn get(&self, uid: &Uid) -> Option<KnownPod> {
        let table = self.read();
        table.known(table.find(uid)?)
    }

    /// Returns the number of pods, in any state and of any scheduler.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Returns whether the index has no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Marks this version of a pod as unseen, so that its next version, or the next list, adds it again.
    pub(super) fn distrust(&self, uid: &Uid, version: u64) {
        let mut table = self.write();
        let number = table.find(uid);
        if let Some(entry) = number.and_then(|number| table.get_mut(number))
            && entry.passed_on == version
        {
            (entry.resource_version, entry.digest) = (0, None);
        }
    }

    #[cfg(test)]
    pub(crate) fn put(&self, pod: KnownPod) {
        self.write().put(pod, true, None);
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Table> {
        // No method of the table panics between two related changes.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

debug_by!(PodIndex, it, pods: it.len());
