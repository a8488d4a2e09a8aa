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
    /// How far its controller has seen it come (`status.phase` of coscheduling and of
    /// Gödel); none where that has said nothing yet, and for a group of
    /// scheduling.k8s.io, which has no phase.
    pub phase: Option<PodGroupPhase>,
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

    /// How many of its pods have to be placed before one of them may stay: none once
    /// it was scheduled, whatever became of its pods since (Gödel's `EverScheduled`).
    ///
    /// ```
    /// use portolan::model::{PodGroup, PodGroupPhase};
    ///
    /// let mut group = PodGroup::new("default", "training", 8);
    /// assert_eq!(group.wanted(), 8);
    /// group.phase = Some(PodGroupPhase::Running);
    /// assert_eq!(group.wanted(), 0);
    /// ```
    #[must_use]
    pub fn wanted(&self) -> u32 {
        let was_scheduled = self.phase.is_some_and(PodGroupPhase::is_scheduled);
        if was_scheduled { 0 } else { self.min_members }
    }

    /// How many more of its pods have to be placed before one of them may stay, if so many are placed.
    #[must_use]
    pub fn lacking(&self, placed: usize) -> usize {
        (self.wanted() as usize).saturating_sub(placed)
    }

    /// How long a pod waits for the others to be placed: 5 minutes if the group does not limit it.
    #[must_use]
    pub fn permit_timeout(&self) -> Duration {
        self.schedule_timeout.unwrap_or(Duration::from_secs(300))
    }

    /// How it stands with so many of its pods placed, to who has no clock (Gödel:
    /// util/unitstatus `ParsePodGroupSchedulingStatus`): of a phase that says it timed
    /// out or is unknown and pods that say it is placed, the pods are right. O(1).
    #[must_use]
    pub fn state(&self, placed: usize) -> PodGroupState {
        match self.phase {
            _ if self.lacking(placed) == 0 => PodGroupState::Scheduled,
            Some(PodGroupPhase::Timeout) => PodGroupState::Timeout,
            Some(PodGroupPhase::Unknown) => PodGroupState::Unknown,
            _ => PodGroupState::Pending,
        }
    }

    /// Whether the pod says that it is of this group.
    #[must_use]
    pub fn has(&self, pod: &Pod) -> bool {
        pod.group() == Some((&self.namespace, &self.name))
    }
}

/// What the controller of a pod group says of it (`status.phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodGroupPhase {
    /// It does not know, or says what nobody else does.
    Unknown,
    /// Not all of the pods that have to be placed are there.
    Pending,
    /// They are there, and not all placed (coscheduling: `Scheduling`).
    PreScheduling,
    /// They are placed.
    Scheduled,
    /// They run.
    Running,
    /// They have ended.
    Finished,
    /// One of them has failed.
    Failed,
    /// They were not placed in time, and are not going to be.
    Timeout,
}

impl PodGroupPhase {
    /// Whether as many pods as have to be were placed once.
    #[must_use]
    pub fn is_scheduled(self) -> bool {
        use PodGroupPhase::{Failed, Finished, Running, Scheduled};
        matches!(self, Scheduled | Running | Finished | Failed)
    }
}

/// How a pod group stands (Gödel's unit status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodGroupState {
    /// There is no such group, though there may be pods that say they are of it; or its
    /// phase is unknown, and fewer of its pods are placed than have to be.
    Unknown,
    /// Fewer of its pods are placed than have to be.
    Pending,
    /// As many of its pods are placed as have to be, or more; or they were, as its
    /// phase says. Its further pods are placed one by one.
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
