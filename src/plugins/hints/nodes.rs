//! Plugins whose verdicts depend only on the node (cordons, taints, affinity, ports, features), and scheduling gates.

use std::sync::Arc;

use crate::model::{Diff, HostPort, Launcher, Node, Object, Pod, Taint, Toleration};

use super::{
    ADD_OR_UPDATE, Actions, ClusterEvent, EventResource, Hint, Interest, NM_NODE, NODE, any, gone,
    itself, on,
};

const POD: &[EventResource] = EventResource::PODS;

/// Returns the node before and after an event as pods of the launcher see it, or `None` if the event concerns no node.
/// Pods of a node manager also see the NMNode.
pub(in crate::plugins) fn seen(
    launcher: Launcher,
    event: &ClusterEvent<'_>,
) -> Option<Diff<Arc<Node>>> {
    if let Some(node) = event.node() {
        return Some(node.clone());
    }
    if launcher != Launcher::NodeManager || event.resource != EventResource::NmNode {
        return None;
    }
    let node = |object: Option<&Object>| match object {
        Some(Object::NmNode(nm_node)) => Some(Arc::new(nm_node.node(None))),
        _ => None,
    };
    let (old, new) = event.object();
    Some(Diff { old: node(old), new: node(new) })
}

/// SchedulingGates: the pod's own gates were removed.
pub(in crate::plugins) const GATES: &[Interest] =
    &[on(POD, Actions::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)];

pub(in crate::plugins) fn gates(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    Hint::queue_if(itself(pod, event).is_some())
}

/// NodeName: the named node may be added.
pub(in crate::plugins) const NODE_NAME: &[Interest] = &[on(NODE, Actions::ADD)];

/// NodeUnschedulable and TaintToleration: changes of nodes and their taints, and of the pod's tolerations.
pub(in crate::plugins) const TAINTS: &[Interest] = &[
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_TAINT])),
    on(NM_NODE, ADD_OR_UPDATE),
    on(POD, Actions::UPDATE_POD_TOLERATION),
];

/// NodeUnschedulable: queues the pod if a node is schedulable now and was not before, or if the pod now tolerates the
/// taint.
pub(in crate::plugins) fn uncordoned(pod: &Pod, event: &ClusterEvent<'_>, cordon: &Taint) -> Hint {
    let Some(node) = seen(pod.template.launcher, event) else {
        let tolerates = |new: &Pod| new.template.tolerations.iter().any(|t| t.tolerates(cordon));
        return Hint::queue_if(itself(pod, event).is_some_and(tolerates));
    };
    let is_schedulable = |node: &Node| !node.unschedulable;
    Hint::queue_if(starts_to_match(&node, is_schedulable))
}

/// TaintToleration: queues the pod if it tolerates a node's taints now and did not before, or if its own tolerations
/// changed.
pub(in crate::plugins) fn tolerated(
    pod: &Pod,
    event: &ClusterEvent<'_>,
    has_untolerated: impl Fn(&[Toleration], &[Taint]) -> bool,
) -> Hint {
    let Some(node) = seen(pod.template.launcher, event) else {
        return Hint::queue_if(itself(pod, event).is_some());
    };
    let tolerations = &pod.template.tolerations;
    let tolerated = |node: &Node| !has_untolerated(tolerations, &node.taints);
    Hint::queue_if(starts_to_match(&node, tolerated))
}

/// PodLauncher: Nodes and NMNodes that are added.
pub(in crate::plugins) const LAUNCHERS: &[Interest] =
    &[on(&[EventResource::Node, EventResource::NmNode], Actions::ADD)];

/// PodLauncher: queues the pod if an object that its launcher needs was added. A node that is added with only an NMNode
/// is reported as a Node, too, which costs one unnecessary cycle.
pub(in crate::plugins) fn launched(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    let needs = match pod.template.launcher {
        Launcher::Kubelet => EventResource::Node,
        Launcher::NodeManager => EventResource::NmNode,
        Launcher::Unknown => return Hint::Skip,
    };
    Hint::queue_if(event.resource == needs)
}

/// LoadAware: nodes that are added, their allocatable resources, and their measurements.
pub(in crate::plugins) const LOADS: &[Interest] = &[
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_ALLOCATABLE])),
    on(&[EventResource::CustomNodeResource], any(&[Actions::ADD, Actions::UPDATE])),
];

/// NodeAffinity: nodes and their labels.
pub(in crate::plugins) const LABELS: &[Interest] =
    &[on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_LABEL])), on(NM_NODE, ADD_OR_UPDATE)];

/// NodeDeclaredFeatures: nodes and their features, and changes of the pod, which may require fewer.
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
    Hint::queue_if(starts_to_match(node, has_all))
}

/// Returns whether a node matches now and did not before. An added node did not match before.
pub(in crate::plugins) fn starts_to_match(
    node: &Diff<Arc<Node>>,
    holds: impl Fn(&Node) -> bool,
) -> bool {
    node.new.as_deref().is_some_and(&holds) && !node.old.as_deref().is_some_and(holds)
}

/// DefaultPreemption: victims that leave.
pub(in crate::plugins) const VICTIMS: &[Interest] = &[on(POD, Actions::DELETE)];

/// NodePorts: pods that leave, and nodes that are added.
pub(in crate::plugins) const PORTS: &[Interest] =
    &[on(POD, Actions::DELETE), on(NODE, Actions::ADD)];

/// NodePorts: queues the pod if a port that it needs was freed, or if a node was added.
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
