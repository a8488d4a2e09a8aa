//! What may make a pod schedulable that a plugin rejected: each plugin's
//! `EventsToRegister` and `isSchedulableAfter…` functions.
//!
//! A hint may say `Queue` in vain, which costs a cycle, and must not say `Skip` where
//! the event helps, which costs a pod five minutes. Where kube-scheduler's is known to
//! do the latter, the one here does not, and says so.

pub(super) mod fit;
pub(super) mod gangs;
pub(super) mod inter_pod_affinity;
pub(super) mod nodes;
pub(super) mod topology_spread;
pub(super) mod volumes;

pub(super) use crate::framework::{Actions, ClusterEvent, EventResource, Hint, Interest};

use crate::model::Pod;

const NODE: &[EventResource] = &[EventResource::Node];

const fn on(resources: &'static [EventResource], actions: Actions) -> Interest {
    Interest { resources, actions }
}

/// Those of these actions; `|` is not for constants.
const fn any(actions: &[Actions]) -> Actions {
    let mut all = Actions::NONE;
    let mut at = 0;
    while at < actions.len() {
        all = all.or(actions[at]);
        at += 1;
    }
    all
}

/// Whether a pod is on a node, or room is kept for it there: others are judged as if
/// it were.
fn has_node(pod: &Pod) -> bool {
    let names = [&pod.node_name, &pod.nominated_node_name];
    names.into_iter().flatten().any(|name| !name.is_empty())
}

/// The pod as it was, where the event is that it left a node.
fn gone<'a>(event: &ClusterEvent<'a>) -> Option<&'a Pod> {
    let pod = event.pod()?;
    match &pod.new {
        None => pod.old.as_deref().filter(|old| has_node(old)),
        Some(_) => None,
    }
}

/// The pod as it is, where the event is a change of this very pod.
fn itself<'a>(pod: &Pod, event: &ClusterEvent<'a>) -> Option<&'a Pod> {
    let new = event.pod()?.new.as_deref()?;
    (new.uid == pod.uid).then_some(new)
}
