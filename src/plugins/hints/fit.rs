//! NodeResourcesFit: nodes with more allocatable resources, pods with smaller requests, and stores that supply extended
//! resources.

use crate::model::{Node, Object, Pod, PodClass, Resources};

use super::{
    Actions, ClusterEvent, EventResource, Hint, Interest, NODE, any, gone, has_node, itself, on,
};

pub(in crate::plugins) const EVENTS: &[Interest] = &[
    on(EventResource::PODS, any(&[Actions::DELETE, Actions::UPDATE_POD_SCALE_DOWN])),
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_ALLOCATABLE])),
    on(&[EventResource::CustomNodeResource], any(&[Actions::ADD, Actions::UPDATE_OTHER])),
    on(&[EventResource::Custom], Actions::UPDATE_OTHER),
];

/// `ignores` returns whether the filter ignores a resource. Kube-scheduler's hint checks ignored resources too, and
/// skips pods that would fit on the node.
pub(in crate::plugins) fn hint(
    pod: &Pod,
    event: &ClusterEvent<'_>,
    ignores: impl Fn(&str) -> bool,
) -> Hint {
    let wanted = &pod.template.resources.incoming;
    let is_best_effort = pod.template.class == PodClass::BestEffort;
    if let Some(event) = event.any_custom() {
        let mut requested = wanted.scalars.iter().filter(|(_, amount)| *amount > 0);
        return Hint::queue_if(requested.any(|(name, _)| event.may_supply(name)));
    }
    if let (_, Some(new)) = event.object() {
        let Object::CustomNodeResource(new) = new else { return Hint::Skip };
        let offered = &new.allocatable;
        return Hint::queue_if(
            is_best_effort && fits(wanted, &offered.resources, offered.pods, ignores),
        );
    }
    if let Some(node) = event.node() {
        // A Node does not report what it offers to best-effort pods, but a new Node may make an existing
        // CustomNodeResource count for the first time.
        if is_best_effort {
            return Hint::queue_if(event.action == Actions::ADD);
        }
        let Some(new) = node.new.as_deref() else { return Hint::Skip };
        let more = node.old.as_deref().is_none_or(|old| has_more(old, new, wanted));
        return Hint::queue_if(more && fits(wanted, &new.allocatable, new.allowed_pods, ignores));
    }
    let Some(other) = event.pod() else { return Hint::Skip };
    match other.both() {
        None => Hint::queue_if(gone(event).is_some()),
        Some(_) if itself(pod, event).is_some() => Hint::Queue,
        Some((old, new)) => {
            let less = |of: &Pod| of.template.resources.placed.clone();
            Hint::queue_if(has_node(new) && takes_less(&less(old), &less(new), wanted))
        }
    }
}

/// Returns whether the pod would fit on the node if it were empty (`isFit`).
fn fits(wanted: &Resources, has: &Resources, pods: i64, ignores: impl Fn(&str) -> bool) -> bool {
    pods >= 1
        && (wanted.cpu.0 == 0 || wanted.cpu <= has.cpu)
        && (wanted.memory.0 == 0 || wanted.memory <= has.memory)
        && (wanted.ephemeral_storage.0 == 0 || wanted.ephemeral_storage <= has.ephemeral_storage)
        && wanted
            .scalars
            .iter()
            .filter(|(name, amount)| *amount > 0 && !ignores(name))
            .all(|(name, amount)| has.scalars.get(name).is_some_and(|has| amount <= has))
}

/// Returns whether the node offers more of any resource that the pod requests (`haveAnyRequestedResourcesIncreased`).
fn has_more(old: &Node, new: &Node, wanted: &Resources) -> bool {
    let (was, is) = (&old.allocatable, &new.allocatable);
    new.allowed_pods > old.allowed_pods
        || (wanted.cpu.0 > 0 && is.cpu > was.cpu)
        || (wanted.memory.0 > 0 && is.memory > was.memory)
        || (wanted.ephemeral_storage.0 > 0 && is.ephemeral_storage > was.ephemeral_storage)
        || wanted.scalars.iter().any(|(name, amount)| {
            amount > 0 && is.scalars.get(name).unwrap_or(0) > was.scalars.get(name).unwrap_or(0)
        })
}

/// Returns whether another pod requests less of any resource that this pod requests (`isSchedulableAfterPodScaleDown`).
fn takes_less(was: &Resources, is: &Resources, wanted: &Resources) -> bool {
    (wanted.cpu.0 > 0 && is.cpu < was.cpu)
        || (wanted.memory.0 > 0 && is.memory < was.memory)
        || (wanted.ephemeral_storage.0 > 0 && is.ephemeral_storage < was.ephemeral_storage)
        || wanted.scalars.iter().any(|(name, amount)| {
            amount > 0 && is.scalars.get(name).unwrap_or(0) < was.scalars.get(name).unwrap_or(0)
        })
}
