//! Queueing hints: which events may make a rejected pod schedulable, after each plugin's `EventsToRegister` and
//! `isSchedulableAfter…` functions.
//!
//! A hint may return `Queue` unnecessarily, which costs one scheduling cycle. It must not return `Skip` for an event
//! that helps, which would delay the pod by five minutes. Kube-scheduler's hints do so in some known cases; the hints
//! here do not, and their comments name the difference.

pub(super) mod fit;
pub(super) mod gangs;
pub(super) mod inter_pod_affinity;
pub(super) mod nodes;
pub(super) mod topology_spread;
pub(super) mod volumes;

pub(super) use crate::framework::{Actions, ClusterEvent, EventResource, Hint, Interest};

use crate::model::Pod;

const NODE: &[EventResource] = &[EventResource::Node];

/// Pods of a node manager see the labels and taints of NMNodes.
const NM_NODE: &[EventResource] = &[EventResource::NmNode];

const ADD_OR_UPDATE: Actions = any(&[Actions::ADD, Actions::UPDATE]);

const fn on(resources: &'static [EventResource], actions: Actions) -> Interest {
    Interest { resources, actions }
}

/// Returns the union of these actions, because `|` is not available in constants.
const fn any(actions: &[Actions]) -> Actions {
    let mut all = Actions::NONE;
    let mut at = 0;
    while at < actions.len() {
        all = all.or(actions[at]);
        at += 1;
    }
    all
}

/// Returns whether a pod is on a node or is nominated to one, because other pods are judged as if a nominated pod were
/// on its node.
fn has_node(pod: &Pod) -> bool {
    let names = [&pod.node_name, &pod.nominated_node_name];
    names.into_iter().flatten().any(|name| !name.is_empty())
}

/// Returns the removed pod if the event is that a pod left its node.
fn gone<'a>(event: &ClusterEvent<'a>) -> Option<&'a Pod> {
    let pod = event.pod()?;
    match &pod.new {
        None => pod.old.as_deref().filter(|old| has_node(old)),
        Some(_) => None,
    }
}

/// Returns the new object if the event is a change of this very pod.
fn itself<'a>(pod: &Pod, event: &ClusterEvent<'a>) -> Option<&'a Pod> {
    let new = event.pod()?.new.as_deref()?;
    (new.uid == pod.uid).then_some(new)
}
