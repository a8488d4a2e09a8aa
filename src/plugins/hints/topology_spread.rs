//! PodTopologySpread: pods that the pod's constraints count, and nodes that change domains.

use crate::model::{LabelSelector, Launcher, Node, Pod, Taint};

use super::{
    Actions, ClusterEvent, EventResource, Hint, Interest, NM_NODE, NODE, any, has_node, itself, on,
};

pub(in crate::plugins) const EVENTS: &[Interest] = &[
    on(EventResource::PODS, any(&[Actions::ADD, Actions::DELETE, Actions::UPDATE_POD_LABEL])),
    on(
        NODE,
        any(&[
            Actions::ADD,
            Actions::DELETE,
            Actions::UPDATE_NODE_LABEL,
            Actions::UPDATE_NODE_TAINT,
        ]),
    ),
    on(NM_NODE, any(&[Actions::ADD, Actions::DELETE, Actions::UPDATE])),
];

/// The parts of a constraint that determine which pods it counts.
pub(in crate::plugins) struct Counts<'a> {
    pub(in crate::plugins) key: &'a str,
    pub(in crate::plugins) selector: &'a LabelSelector,
    pub(in crate::plugins) honor_taints: bool,
}

pub(in crate::plugins) fn hint(pod: &Pod, event: &ClusterEvent<'_>, hard: &[Counts<'_>]) -> Hint {
    if event.resource == EventResource::NmNode {
        // Its labels and taints decide whether the node counts, if the constraint's policies honour them.
        return Hint::queue_if(pod.template.launcher == Launcher::NodeManager);
    }
    if let Some(node) = event.node() {
        return Hint::queue_if(after_node(pod, node.old.as_deref(), node.new.as_deref(), hard));
    }
    let Some(other) = event.pod() else { return Hint::Skip };
    if itself(pod, event).is_some() {
        return Hint::Queue;
    }
    let is_counted =
        |other: &Pod| has_node(other) && other.template.namespace == pod.template.namespace;
    if !other.last().is_some_and(|other| is_counted(other)) {
        return Hint::Skip;
    }
    let counted = |other: Option<&Pod>| {
        other.map(|other| {
            let labels = &other.template.labels;
            hard.iter().map(|counts| counts.selector.matches(labels)).collect::<Vec<_>>()
        })
    };
    let none = || vec![false; hard.len()];
    let was = counted(other.old.as_deref()).unwrap_or_else(none);
    let is = counted(other.new.as_deref()).unwrap_or_else(none);
    Hint::queue_if(was != is)
}

/// Returns whether a node gained or lost a domain of all constraints, changed its domains, or, if a constraint honours
/// taints, became tolerated or untolerated.
fn after_node(pod: &Pod, old: Option<&Node>, new: Option<&Node>, hard: &[Counts<'_>]) -> bool {
    let has_all = |node: Option<&Node>| {
        node.is_some_and(|node| hard.iter().all(|c| node.labels.get(c.key).is_some()))
    };
    let (was, is) = (has_all(old), has_all(new));
    if was != is {
        return true;
    }
    let (Some(old), Some(new), true) = (old, new, is) else { return false };
    let tolerated = |node: &Node| {
        let of_effect =
            |taint: &&Taint| taint.effect != crate::model::TaintEffect::PreferNoSchedule;
        let mut taints = node.taints.iter().filter(of_effect);
        taints.all(|taint| pod.template.tolerations.iter().any(|t| t.tolerates(taint)))
    };
    hard.iter().any(|c| old.labels.get(c.key) != new.labels.get(c.key))
        || (hard.iter().any(|c| c.honor_taints) && tolerated(old) != tolerated(new))
}
