//! A pod in the queue (framework/types.go `QueuedPodInfo`).

use crate::model::{Generation, Pod, Timestamp};

/// Plugins of one framework, by their positions in it: 64 bits.
///
/// From the 64th on plugins share one position: a framework of so many treats each
/// of these as if any event concerned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PluginSet(pub(super) u64);

impl PluginSet {
    /// No plugin.
    pub const EMPTY: PluginSet = PluginSet(0);

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Those in either.
    #[must_use]
    pub const fn union(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub const fn intersection(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 & other.0)
    }

    /// Each of them for itself.
    pub fn iter(self) -> impl Iterator<Item = PluginSet> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let first = left & left.wrapping_neg();
            left ^= first;
            (first != 0).then_some(PluginSet(first))
        })
    }
}

/// A pod in the queue, with what the queue knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPod {
    /// The pod.
    pub pod: Pod,
    /// When it was put into the queue, or came back to it, the last time.
    pub queued: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was first ready to be tried.
    pub first_attempt: Option<Timestamp>,
    /// How often it was rejected.
    pub unschedulable_count: u32,
    /// How often in a row trying it ended in an error.
    pub consecutive_errors: u32,
    /// Of a pod group: when the first of its pods came, which is their rank.
    pub group_first: Option<Timestamp>,
    /// How often in a row its pod group was tried in vain, while it waits for that.
    pub group_failures: u32,
    /// When it may be tried again; none before it was put into backoff.
    pub backoff_expiration: Option<Timestamp>,
    /// The plugins that rejected it the last time.
    pub unschedulable_plugins: PluginSet,
    /// The plugins that wait for something outside before it can be tried.
    pub pending_plugins: PluginSet,
    /// The plugin that keeps it from queueing, if one does.
    pub gating_plugin: PluginSet,
    /// The event that queued it: it is to be decided on a version that contains
    /// this one.
    pub generation: Generation,
}

impl QueuedPod {
    /// A pod that was never tried.
    #[must_use]
    pub fn new(pod: Pod, queued: Timestamp, generation: Generation) -> QueuedPod {
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
            gating_plugin: PluginSet::EMPTY,
            generation,
        }
    }

    /// It was tried in vain, and comes back.
    pub(crate) fn failed(&mut self, unschedulable: PluginSet, pending: PluginSet, now: Timestamp) {
        self.unschedulable_plugins = unschedulable;
        self.pending_plugins = pending;
        self.gating_plugin = PluginSet::EMPTY;
        if self.rejectors().is_empty() {
            self.consecutive_errors = self.consecutive_errors.saturating_add(1);
        } else {
            self.unschedulable_count = self.unschedulable_count.saturating_add(1);
            self.consecutive_errors = 0;
        }
        self.queued = now;
    }

    /// Since when it is in the queue, to whoever orders pods: those of a pod group
    /// since the first of them was.
    #[must_use]
    pub fn ranked(&self) -> Timestamp {
        self.group_first.unwrap_or(self.queued)
    }

    /// All plugins that rejected it the last time.
    #[must_use]
    pub fn rejectors(&self) -> PluginSet {
        self.unschedulable_plugins.union(self.pending_plugins)
    }

    /// Whether a plugin keeps it from queueing.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        !self.gating_plugin.is_empty()
    }
}
