//! Places the pods of a group together (gangscheduling/gangscheduling.go).
//!
//! A pod may be queued once its group exists with the minimum number of pods, and may be bound once that many pods are
//! placed. The queue and the scheduler do the rest: if this plugin is in a profile, the queue pops a group's pods
//! together ([`PluginInfo::gathers_groups`]), and the scheduler decides on them as a unit.
//!
//! The plugin is part of the default profile here, whereas kube-scheduler enables it by a feature gate. It does not
//! affect pods that name no group. The queue counts the pods of a group, so without a queue every pod of a group is
//! gated. Pods of a group whose phase shows that it was scheduled before are scheduled individually, and a group whose
//! phase is `Timeout` is not scheduled (Gödel: coscheduling.go).

use super::hints::{self, ClusterEvent, Hint};
use crate::framework::{
    Code, Cycle, Handle, Hold, Permit, Plugin, PluginInfo, Point, Status, go_duration,
};
use crate::model::{Name, Pod};
use crate::snapshot::Cluster;

/// Gates the pods of groups until their groups are complete, and permits them to be bound when enough of them are
/// placed.
#[derive(Clone, Debug)]
pub(crate) struct GangScheduling {
    handle: Handle,
}

const NAME: &str = "GangScheduling";

const TOO_FEW: &str = "waiting for minCount pods from a gang to appear in scheduling queue";
const IN_FLIGHT: &str = "waiting for other pods of the pod group that are being scheduled";

/// The reason, taken from the permit's message, for a pod whose group is not placed as a whole.
pub(crate) const WAITING: &str = "waiting for minCount pods from a gang to be scheduled, one or \
    more plugins asked to wait and no plugin rejected pod";

/// Returns the status for a pod whose group does not exist.
pub(crate) fn unknown(name: &str) -> Status {
    let reason = format!("waiting for pods's pod group {name:?} to appear in scheduling queue");
    Status::new(Code::UnschedulableAndUnresolvable, NAME, reason)
}

impl GangScheduling {
    /// Creates the plugin for a framework with this handle.
    #[must_use]
    pub(crate) fn new(handle: &Handle) -> GangScheduling {
        GangScheduling { handle: handle.clone() }
    }

    /// Allows the waiting pods of a group to be bound.
    fn allow_all(&self, group: (&Name, &Name)) {
        let waiting = self.handle.waiting_pods().all();
        for waiting in waiting.iter().filter(|waiting| waiting.pod().group() == Some(group)) {
            waiting.allow(NAME);
        }
    }
}

impl Plugin for GangScheduling {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreEnqueue, Point::Permit])
            .events(hints::gangs::EVENTS)
            .gathers_groups()
    }

    fn acts_at_reserve(&self, pod: &Pod, _: &Cluster) -> bool {
        pod.group().is_some()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::gangs::completed(pod, event))
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        let Some((namespace, name)) = pod.group() else { return Ok(()) };
        let status = self.handle.pod_groups().get(namespace, name).unwrap_or_default();
        if status.wanted.is_none() {
            return Err(unknown(name));
        }
        let reason = match status.hold {
            _ if !status.is_complete() => TOO_FEW.to_owned(),
            None => return Ok(()),
            Some(Hold::InFlight) => IN_FLIGHT.to_owned(),
            Some(Hold::TimedOut(after)) => {
                format!("pod group {name:?} was not scheduled within {}", go_duration(after))
            }
        };
        Err(Status::new(Code::UnschedulableAndUnresolvable, NAME, reason))
    }

    /// Counts the pod itself, whether or not the version contains it.
    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        let Some((namespace, name)) = cycle.pod.group() else { return Ok(Permit::Allow) };
        let Some(group) = cycle.cluster.objects().pod_groups.get(namespace, name) else {
            return Err(unknown(name));
        };
        let itself = usize::from(cycle.cluster.pod(&cycle.pod.uid).is_none());
        if group.lacking(cycle.cluster.placed_members(namespace, name) + itself) == 0 {
            self.allow_all((namespace, name));
            return Ok(Permit::Allow);
        }
        self.handle.pod_groups().call(namespace, name);
        Ok(Permit::Wait(group.permit_timeout()))
    }

    /// Another scheduler may have placed the last pod of the group after this pod's version, when this pod was not
    /// waiting yet.
    fn waits(&self, cycle: Cycle<'_>) {
        let Some((namespace, name)) = cycle.pod.group() else { return };
        let group = cycle.cluster.objects().pod_groups.get(namespace, name);
        let placed = cycle.cluster.placed_members(namespace, name);
        if group.is_none_or(|group| group.lacking(placed) == 0) {
            self.allow_all((namespace, name));
        }
    }
}
