//! Pods with resource claims (dynamicresources/dynamicresources.go): not scheduled here.
//!
//! The plugin refuses such pods with a message that says so. For other pods it behaves like kube-scheduler's plugin for
//! a pod without claims. This has one visible effect: its PostFilter runs before preemption and finds nothing to
//! deallocate, so its message precedes that of preemption in the condition of every pod that could not be placed.

use crate::framework::{
    Code, Cycle, Diagnosis, Nomination, Plugin, PluginInfo, Point, PreFilter, Status,
};
use crate::model::Pod;

/// Refuses pods with resource claims. Not in the [default profile](crate::Framework::default_profile): an
/// engine refuses such pods by itself, and without an API server there are no conditions.
#[derive(Clone, Copy, Debug, Default)]
pub struct DynamicResources;

const NAME: &str = "DynamicResources";

impl Plugin for DynamicResources {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter, Point::PostFilter])
    }

    fn treats_template_alike(&self, _: &Pod) -> bool {
        true
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        cycle.state.write(NAME, ());
        match cycle.pod.template.resource_claims.is_empty() {
            true => Ok(PreFilter::Skip),
            false => Err(Status::new(
                Code::UnschedulableAndUnresolvable,
                NAME,
                "pods with resource claims are not supported",
            )),
        }
    }

    /// If an earlier plugin has ended PreFilter, kube-scheduler's plugin does not find its state. This error ends
    /// PostFilter, so preemption is not tried.
    fn post_filter(&self, cycle: Cycle<'_>, _: &Diagnosis<'_>) -> (Nomination, Option<Status>) {
        let status = match cycle.state.read::<()>(NAME) {
            Some(_) => Status::new(Code::Unschedulable, NAME, "no new claims to deallocate"),
            None => Status::error(NAME, "not found"),
        };
        (Nomination::Keep, Some(status))
    }
}
