//! Plugins that look at the node alone: cordons, taints, affinity, ports, features;
//! and scheduling gates.

use crate::model::{HostPort, Launcher, Node, Pod, Taint, Toleration};

use super::{Actions, ClusterEvent, EventResource, Hint, Interest, NODE, any, gone, itself, on};

const POD: &[EventResource] = EventResource::PODS;

/// SchedulingGates: a pod's own gates are gone.
pub(in crate::plugins) const GATES: &[Interest] =
    &[on(POD, Actions::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)];

pub(in crate::plugins) fn gates(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    Hint::queue_if(itself(pod, event).is_some())
}

/// NodeName: the node may be one that comes.
pub(in crate::plugins) const NODE_NAME: &[Interest] = &[on(NODE, Actions::ADD)];

/// NodeUnschedulable and TaintToleration: nodes and their taints, and what the pod
/// tolerates.
pub(in crate::plugins) const TAINTS: &[Interest] = &[
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_TAINT])),
    on(POD, Actions::UPDATE_POD_TOLERATION),
];

/// NodeUnschedulable: a node that can be had and could not before.
pub(in crate::plugins) fn uncordoned(pod: &Pod, event: &ClusterEvent<'_>, cordon: &Taint) -> Hint {
    let Some(node) = event.node() else {
        let tolerates = |new: &Pod| new.template.tolerations.iter().any(|t| t.tolerates(cordon));
        return Hint::queue_if(itself(pod, event).is_some_and(tolerates));
    };
    let can_be_had = |node: &Node| !node.unschedulable;
    Hint::queue_if(came_true(node.old.as_deref(), node.new.as_deref(), can_be_had))
}

/// TaintToleration: a node whose taints the pod tolerates, and did not before; or
/// another toleration of the pod.
pub(in crate::plugins) fn tolerated(
    pod: &Pod,
    event: &ClusterEvent<'_>,
    has_untolerated: impl Fn(&[Toleration], &[Taint]) -> bool,
) -> Hint {
    let Some(node) = event.node() else {
        return Hint::queue_if(itself(pod, event).is_some());
    };
    let tolerations = &pod.template.tolerations;
    let tolerated = |node: &Node| !has_untolerated(tolerations, &node.taints);
    Hint::queue_if(came_true(node.old.as_deref(), node.new.as_deref(), tolerated))
}

/// PodLauncher: Nodes and NMNodes that come.
pub(in crate::plugins) const LAUNCHERS: &[Interest] =
    &[on(&[EventResource::Node, EventResource::NmNode], Actions::ADD)];

/// PodLauncher: an object that the pod's launcher needs. A node that is new with an
/// NMNode alone is told of as a Node, too: that costs a cycle in vain.
pub(in crate::plugins) fn launched(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    let needs = match pod.template.launcher {
        Launcher::Kubelet => EventResource::Node,
        Launcher::NodeManager => EventResource::NmNode,
        Launcher::Unknown => return Hint::Skip,
    };
    Hint::queue_if(event.resource == needs)
}

/// LoadAware: nodes that come, what there is on them, and what was measured there.
pub(in crate::plugins) const LOADS: &[Interest] = &[
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_ALLOCATABLE])),
    on(&[EventResource::CustomNodeResource], any(&[Actions::ADD, Actions::UPDATE])),
];

/// NodeAffinity: nodes and their labels.
pub(in crate::plugins) const LABELS: &[Interest] =
    &[on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_LABEL]))];

/// NodeDeclaredFeatures: nodes and their features; a pod that changed may need fewer.
pub(in crate::plugins) const FEATURES: &[Interest] = &[
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_DECLARED_FEATURE])),
    on(POD, Actions::UPDATE),
];

pub(in crate::plugins) fn features(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    let Some(node) = event.node() else {
        return Hint::queue_if(itself(pod, event).is_some());
    };
    let needed = &pod.template.required_node_features;
    let has_all = |node: &Node| needed.iter().all(|name| node.declared_features.contains(name));
    Hint::queue_if(came_true(node.old.as_deref(), node.new.as_deref(), has_all))
}

/// A node matches now and did not before: one that appeared did not.
pub(in crate::plugins) fn came_true(
    old: Option<&Node>,
    new: Option<&Node>,
    holds: impl Fn(&Node) -> bool,
) -> bool {
    new.is_some_and(&holds) && !old.is_some_and(holds)
}

/// DefaultPreemption: its victims leave.
pub(in crate::plugins) const VICTIMS: &[Interest] = &[on(POD, Actions::DELETE)];

/// NodePorts: pods that leave, and nodes that come.
pub(in crate::plugins) const PORTS: &[Interest] =
    &[on(POD, Actions::DELETE), on(NODE, Actions::ADD)];

/// NodePorts: a port is free that the pod wants.
pub(in crate::plugins) fn ports(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    if event.node().is_some() {
        return Hint::Queue;
    }
    let wanted: &[HostPort] = &pod.template.host_ports;
    let frees = |gone: &Pod| {
        let mut freed = gone.template.host_ports.iter();
        freed.any(|freed| wanted.iter().any(|port| port.conflicts(freed)))
    };
    Hint::queue_if(gone(event).is_some_and(frees))
}
