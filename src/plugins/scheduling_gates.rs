//! Pods that are held back (schedulinggates/scheduling_gates.go).

use crate::framework::{Code, Plugin, Point, Status};
use crate::model::Pod;

/// Keeps pods with scheduling gates from queueing.
#[derive(Clone, Copy, Debug)]
pub struct SchedulingGates;

const NAME: &str = "SchedulingGates";

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue]
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
