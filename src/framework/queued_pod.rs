//! A pod in the scheduling queue (`framework/types.go` `QueuedPodInfo`).

use crate::model::{Generation, Pod, Timestamp};

/// A set of plugins of one framework, as 64 bits indexed by the plugins' positions.
///
/// All plugins from the 64th on share one position. A framework with that many plugins treats each of these as if every
/// event concerned it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PluginSet(pub(super) u64);

impl PluginSet {
    /// The empty set.
    #[doc(hidden)]
    pub const EMPTY: PluginSet = PluginSet(0);

    /// Returns whether the set is empty.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of plugins in the set.
    #[doc(hidden)]
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the plugins in either set.
    #[doc(hidden)]
    #[must_use]
    pub const fn union(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 | other.0)
    }

    /// Returns the plugins in both sets.
    #[doc(hidden)]
    #[must_use]
    pub const fn intersection(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 & other.0)
    }

    /// Iterates over the plugins, each as a set of its own.
    pub(crate) fn iter(self) -> impl Iterator<Item = PluginSet> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let first = left & left.wrapping_neg();
            left ^= first;
            (first != 0).then_some(PluginSet(first))
        })
    }
}

/// A pod in the queue, with the queue's record of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPod {
    /// The pod.
    pub pod: Pod,
    /// When the pod was last added or returned to the queue.
    pub queued: Timestamp,
    /// The number of scheduling attempts.
    pub attempts: u32,
    /// When the pod first became ready to be tried.
    pub first_attempt: Option<Timestamp>,
    /// The number of attempts that ended with a rejection.
    pub unschedulable_count: u32,
    /// The number of consecutive attempts that ended with an error.
    pub consecutive_errors: u32,
    /// For a pod of a group, when the group's first pod was queued. It determines the pod's rank.
    pub group_first: Option<Timestamp>,
    /// While the pod waits after a failed attempt of its group, the number of the group's consecutive failures;
    /// otherwise 0.
    pub group_failures: u32,
    /// When the backoff ends, or `None` if the pod has not been in backoff since its last attempt.
    pub backoff_expiration: Option<Timestamp>,
    /// The plugins that rejected the pod in the last attempt.
    pub unschedulable_plugins: PluginSet,
    /// The plugins that wait for an external component before the pod can be tried again.
    pub pending_plugins: PluginSet,
    /// Whether the pod was last queued because it had waited for an event for too long.
    pub was_flushed: bool,
    /// The plugin that keeps the pod out of the queue, or the empty set.
    pub gating_plugin: PluginSet,
    /// The generation of the event that queued the pod. The pod must be scheduled on a version that contains this
    /// event.
    pub generation: Generation,
}

impl QueuedPod {
    /// Creates the record of a pod that has not been tried yet.
    #[must_use]
    pub(crate) fn new(pod: Pod, queued: Timestamp, generation: Generation) -> QueuedPod {
        QueuedPod {
            pod,
            queued,
            attempts: 0,
            first_attempt: None,
            unschedulable_count: 0,
            consecutive_errors: 0,
            group_first: None,
            group_failures: 0,
            backoff_expiration: None,
            unschedulable_plugins: PluginSet::EMPTY,
            pending_plugins: PluginSet::EMPTY,
            was_flushed: false,
            gating_plugin: PluginSet::EMPTY,
            generation,
        }
    }

    /// Records a failed attempt, after which the pod returns to the queue.
    pub(crate) fn failed(&mut self, unschedulable: PluginSet, pending: PluginSet, now: Timestamp) {
        self.unschedulable_plugins = unschedulable;
        self.pending_plugins = pending;
        self.gating_plugin = PluginSet::EMPTY;
        self.was_flushed = false;
        if self.rejectors().is_empty() {
            self.consecutive_errors = self.consecutive_errors.saturating_add(1);
        } else {
            self.unschedulable_count = self.unschedulable_count.saturating_add(1);
            self.consecutive_errors = 0;
        }
        self.queued = now;
    }

    /// Returns the time that ranks the pod in the queue: when it was queued, or for a pod of a group, when the group's
    /// first pod was queued.
    #[must_use]
    pub(crate) fn ranked(&self) -> Timestamp {
        self.group_first.unwrap_or(self.queued)
    }

    /// Returns all plugins that rejected the pod in the last attempt.
    #[must_use]
    pub(crate) fn rejectors(&self) -> PluginSet {
        self.unschedulable_plugins.union(self.pending_plugins)
    }

    /// Lets the pod wait as after an error: no event ends its backoff.
    pub(crate) fn forget_rejectors(&mut self) {
        (self.unschedulable_plugins, self.pending_plugins) = (PluginSet::EMPTY, PluginSet::EMPTY);
    }

    /// Returns whether a plugin keeps the pod out of the queue.
    #[must_use]
    pub(crate) fn is_gated(&self) -> bool {
        !self.gating_plugin.is_empty()
    }
}
