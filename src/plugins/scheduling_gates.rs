//! Pods with scheduling gates (schedulinggates/scheduling_gates.go).

use super::hints::{self, ClusterEvent, Hint};
use crate::framework::{Code, Plugin, PluginInfo, Point, Status};
use crate::model::Pod;
use crate::snapshot::Cluster;

/// Gates pods in the queue until all their scheduling gates are removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulingGates;

const NAME: &str = "SchedulingGates";

impl Plugin for SchedulingGates {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreEnqueue]).events(hints::nodes::GATES)
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::gates(pod, event))
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        let gates = &pod.template.scheduling_gates;
        if gates.is_empty() {
            return Ok(());
        }
        let reason = format!("waiting for scheduling gates: [{}]", gates.join(" "));
        Err(Status::new(Code::UnschedulableAndUnresolvable, NAME, reason))
    }
}
