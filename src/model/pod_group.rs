//! Pod groups, whose pods are placed together, and their scheduling state.

use std::fmt;
use std::time::Duration;

use super::{Name, Pod, Timestamp};

/// A group of pods of which a minimum number is placed together or not at all (`PodGroup` of scheduling.k8s.io, of
/// coscheduling and of Gödel). A pod joins a group by naming it in
/// [`PodSpec::scheduling_group`](super::PodSpec::scheduling_group).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodGroup {
    /// The namespace, which the group's pods share.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The number of pods that must be placed together (`minCount`, `minMember`), or 0 if each pod is placed
    /// independently (policy `basic`).
    pub min_members: u32,
    /// The time after which attempts to place the group stop, and for which a pod waits for the other members
    /// (`scheduleTimeoutSeconds`); `None` means no limit.
    pub schedule_timeout: Option<Duration>,
    /// The priority of the whole group, if its kind has one. Like kube-scheduler, the queue orders by the priorities of
    /// the pods instead.
    pub priority: Option<i32>,
    /// `metadata.creationTimestamp`.
    pub creation_time: Option<Timestamp>,
    /// The phase that the group's controller reports (`status.phase` of coscheduling and of Gödel). `None` if the
    /// controller has not reported one yet, and for groups of scheduling.k8s.io, which have no phase.
    pub phase: Option<PodGroupPhase>,
}

impl PodGroup {
    /// Creates a group without a timeout.
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

    /// Returns the number of pods that must be placed before any of them may stay. It is 0 once the group has been
    /// scheduled, whatever has happened to its pods since (Gödel's `EverScheduled`).
    ///
    /// ```
    /// use portolan::model::{PodGroup, PodGroupPhase};
    ///
    /// let mut group = PodGroup::new("default", "training", 8);
    /// assert_eq!(group.wanted(), 8);
    /// group.phase = Some(PodGroupPhase::Running);
    /// assert_eq!(group.wanted(), 0);
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub fn wanted(&self) -> u32 {
        let was_scheduled = self.phase.is_some_and(PodGroupPhase::is_scheduled);
        if was_scheduled { 0 } else { self.min_members }
    }

    /// Returns how many more pods must be placed before any may be bound, if `placed` are placed.
    #[must_use]
    pub(crate) fn lacking(&self, placed: usize) -> usize {
        (self.wanted() as usize).saturating_sub(placed)
    }

    /// Returns how long a pod waits for the rest of its group: 5 minutes if the group sets no timeout.
    #[must_use]
    pub(crate) fn permit_timeout(&self) -> Duration {
        self.schedule_timeout.unwrap_or(Duration::from_secs(300))
    }

    /// Returns the state of the group when `placed` of its pods are placed, without regard to the time (Gödel:
    /// util/unitstatus `ParsePodGroupSchedulingStatus`). If enough pods are placed, the group counts as scheduled even
    /// if its phase is `Timeout` or `Unknown`. O(1).
    #[doc(hidden)]
    #[must_use]
    pub fn state(&self, placed: usize) -> PodGroupState {
        match self.phase {
            _ if self.lacking(placed) == 0 => PodGroupState::Scheduled,
            Some(PodGroupPhase::Timeout) => PodGroupState::Timeout,
            Some(PodGroupPhase::Unknown) => PodGroupState::Unknown,
            _ => PodGroupState::Pending,
        }
    }

    /// Returns `true` if the pod belongs to this group.
    #[doc(hidden)]
    #[must_use]
    pub fn has(&self, pod: &Pod) -> bool {
        pod.group() == Some((&self.namespace, &self.name))
    }
}

/// The phase that the controller of a pod group reports (`status.phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum PodGroupPhase {
    /// The controller reports the phase as unknown, or reports an unrecognized phase.
    Unknown,
    /// Fewer pods than the minimum exist.
    Pending,
    /// Enough pods exist, but not all of them are placed (coscheduling: `Scheduling`).
    PreScheduling,
    /// The pods are placed.
    Scheduled,
    /// The pods are running.
    Running,
    /// The pods have finished.
    Finished,
    /// At least one of the pods has failed.
    Failed,
    /// The pods were not placed in time, and scheduling has been given up.
    Timeout,
}

impl PodGroupPhase {
    /// Returns `true` if the minimum number of pods has been placed at some time.
    #[must_use]
    pub(crate) fn is_scheduled(self) -> bool {
        use PodGroupPhase::{Failed, Finished, Running, Scheduled};
        matches!(self, Scheduled | Running | Finished | Failed)
    }
}

/// The scheduling state of a pod group (Gödel's unit status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum PodGroupState {
    /// The group does not exist, although pods may name it; or its phase is `Unknown` and fewer pods than the minimum
    /// are placed.
    Unknown,
    /// Fewer pods than the minimum are placed.
    Pending,
    /// At least the minimum number of pods is placed, or was placed according to the phase. Further pods are placed
    /// individually.
    Scheduled,
    /// The group has been pending for longer than its timeout allows.
    Timeout,
}

impl PodGroupState {
    /// Returns the name used by Gödel.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
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
