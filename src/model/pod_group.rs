//! Pods that are to be placed together: the group, and how it stands.

use std::fmt;
use std::time::Duration;

use super::{Name, Pod, Timestamp};

/// Pods of which a number is to be placed together or none (`PodGroup` of
/// scheduling.k8s.io, of coscheduling and of Gödel). A pod says by
/// [`PodSpec::scheduling_group`](super::PodSpec::scheduling_group) that it is of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodGroup {
    /// Namespace: its pods are in the same.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// How many of its pods have to be placed at once (`minCount`, `minMember`); 0
    /// where each is placed for itself (policy `basic`).
    pub min_members: u32,
    /// How long it may be tried before it is left alone, and how long a pod waits
    /// for the others (`scheduleTimeoutSeconds`); none where no limit is given.
    pub schedule_timeout: Option<Duration>,
    /// Its priority as a whole, where its kind has one. The queue goes by those of
    /// its pods, as kube-scheduler's does.
    pub priority: Option<i32>,
    /// `metadata.creationTimestamp`.
    pub creation_time: Option<Timestamp>,
}

impl PodGroup {
    /// A group without limits.
    ///
    /// ```
    /// use portolan::model::{PodGroup, pod};
    ///
    /// let group = PodGroup::new("default", "training", 8);
    /// assert!(group.has(&pod("worker-0").group("training").build()));
    /// ```
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>, min_members: u32) -> PodGroup {
        let (namespace, name) = (namespace.into(), name.into());
        PodGroup { namespace, name, min_members, ..PodGroup::default() }
    }

    /// Whether the pod says that it is of this group.
    #[must_use]
    pub fn has(&self, pod: &Pod) -> bool {
        pod.group() == Some((&self.namespace, &self.name))
    }
}

/// How a pod group stands (Gödel's unit status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodGroupState {
    /// There is no such group, though there may be pods that say they are of it.
    Unknown,
    /// Fewer of its pods are placed than have to be.
    Pending,
    /// As many of its pods are placed as have to be, or more.
    Scheduled,
    /// Pending for longer than it may be.
    Timeout,
}

impl PodGroupState {
    /// As Gödel writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PodGroupState::Unknown => "Unknown",
            PodGroupState::Pending => "Pending",
            PodGroupState::Scheduled => "Scheduled",
            PodGroupState::Timeout => "Timeout",
        }
    }
}

impl fmt::Display for PodGroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
