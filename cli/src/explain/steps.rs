//! Changes of the pod's spec or of nodes that remove a reason for which nodes reject the pod. This module does not
//! check whether a change helps.

use std::collections::{BTreeMap, BTreeSet};

use portolan::Fork;
use portolan::model::{
    Name, Node, NodeSelector, Pod, PodAffinity, PodSpec, Taint, TaintEffect, Template, Toleration,
    TolerationOperator, UnsatisfiableAction,
};

use super::trial::{Rejection, Trial};
use crate::text::{requirement, selector};

/// A change and its effect.
pub(super) struct Step {
    /// The kind of change: toleration, uncordon, condition, label, node-affinity, spread,
    /// pod-affinity or port.
    pub(super) kind: &'static str,
    what: What,
    pub(super) effect: Effect,
}

/// The change as an instruction.
enum What {
    /// The same for all nodes.
    Fixed(String),
    /// An instruction that ends before the name of a node.
    PerNode(String),
}

/// The result of a change.
pub(super) enum Effect {
    /// This pod.
    Pod(Box<Pod>),
    /// This cluster.
    Cluster(Box<Fork>),
}

impl Step {
    fn of_pod(kind: &'static str, what: String, pod: Pod) -> Step {
        Step { kind, what: What::Fixed(what), effect: Effect::Pod(Box::new(pod)) }
    }

    /// The instruction if the change helps on these nodes.
    pub(super) fn what(&self, nodes: &[Name]) -> String {
        match (&self.what, nodes) {
            (What::Fixed(what), _) => what.clone(),
            (What::PerNode(what), [node]) => format!("{what} node {node}"),
            (What::PerNode(what), _) => format!("{what} a node"),
        }
    }

    /// The trial after the change.
    pub(super) fn apply<'s>(&'s self, trial: Trial<'s>) -> Trial<'s> {
        match &self.effect {
            Effect::Pod(pod) => Trial { pod, ..trial },
            Effect::Cluster(cluster) => Trial { cluster, ..trial },
        }
    }
}

/// The pod with a modified spec.
pub(super) fn changed(pod: &Pod, change: impl FnOnce(&mut PodSpec)) -> Pod {
    let mut spec: PodSpec = (**pod.template).clone();
    change(&mut spec);
    Pod { template: Template::new(spec), ..pod.clone() }
}

/// The changes that may help. O(rejections).
pub(super) fn steps(trial: Trial<'_>, rejections: &[Rejection<'_>]) -> Vec<Step> {
    let plugins: BTreeSet<&str> =
        rejections.iter().flat_map(|found| &found.statuses).map(|status| status.plugin).collect();
    let is_rejected_by = |plugin: &str| plugins.contains(plugin);
    let mut steps = Vec::new();
    if is_rejected_by("TaintToleration") || is_rejected_by("NodeUnschedulable") {
        taints(trial, rejections, &mut steps);
    }
    // Nodes that PreFilter excludes have a status without a plugin.
    if is_rejected_by("NodeAffinity") || is_rejected_by("") {
        node_affinity(trial.pod, &mut steps);
    }
    if is_rejected_by("PodTopologySpread") {
        spread(trial.pod, &mut steps);
    }
    if is_rejected_by("InterPodAffinity") {
        pod_affinity(trial.pod, &mut steps);
    }
    if is_rejected_by("NodePorts") {
        ports(trial.pod, &mut steps);
    }
    steps
}

/// Maximum number of sets of taints, the most frequent ones, for which tolerations are tried.
const TAINTS: usize = 20;

/// The taint of cordoned nodes.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// The taints that Kubernetes removes when a node recovers. A pod that tolerates them would not
/// run there.
const CONDITIONS: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
];

/// Tolerations of taints; for cordoned nodes, uncordoning; for nodes with a bad condition, its end.
fn taints(trial: Trial<'_>, rejections: &[Rejection<'_>], steps: &mut Vec<Step>) {
    let mut tolerable: BTreeMap<Vec<(&str, &str, &str)>, usize> = BTreeMap::new();
    let mut cordoned: Vec<&Node> = Vec::new();
    let mut conditions: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    let tolerations = &trial.pod.template.tolerations;
    for node in rejections.iter().filter_map(|found| found.node.node()) {
        let is_rejected = |taint: &&Taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !tolerations.iter().any(|toleration| toleration.tolerates(taint))
        };
        let mut others: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
        let mut is_cordoned = node.unschedulable;
        for taint in node.taints.iter().filter(is_rejected) {
            match &*taint.key {
                CORDONED => is_cordoned = true,
                key if CONDITIONS.contains(&key) => conditions.entry(key).or_default().push(node),
                key => drop(others.insert((key, &taint.value, effect(taint.effect)))),
            }
        }
        if is_cordoned {
            cordoned.push(node);
        }
        if !others.is_empty() {
            *tolerable.entry(others.into_iter().collect()).or_default() += 1;
        }
    }
    let mut tolerable: Vec<_> = tolerable.into_iter().collect();
    tolerable.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
    let most = tolerable.iter().take(TAINTS);
    steps.extend(most.map(|(taints, _)| tolerate(trial.pod, taints)));
    let without = |nodes: Vec<&Node>, key: &str| {
        let mut fork = trial.cluster.fork();
        for node in nodes {
            let taints = node.taints.iter().filter(|taint| *taint.key != *key).cloned().collect();
            let unschedulable = node.unschedulable && key != CORDONED;
            // A node that the engine has accepted is also accepted with fewer taints.
            let _ = fork.add_node(Node { taints, unschedulable, ..node.clone() });
        }
        Effect::Cluster(Box::new(fork))
    };
    if !cordoned.is_empty() {
        let what = What::PerNode("uncordon".to_owned());
        steps.push(Step { kind: "uncordon", what, effect: without(cordoned, CORDONED) });
    }
    for (key, nodes) in conditions {
        let what = What::PerNode(format!("resolve the cause of the taint {key} on"));
        steps.push(Step { kind: "condition", what, effect: without(nodes, key) });
    }
}

fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoExecute => "NoExecute",
        _ => "NoSchedule",
    }
}

fn tolerate(pod: &Pod, taints: &[(&str, &str, &str)]) -> Step {
    let tolerant = changed(pod, |spec| {
        let more = taints.iter().map(|(key, _, _)| Toleration {
            key: Some((*key).into()),
            operator: TolerationOperator::Exists,
            ..Toleration::default()
        });
        spec.tolerations = spec.tolerations.iter().cloned().chain(more).collect();
    });
    let texts = taints.iter().map(|(key, value, effect)| match value.is_empty() {
        true => format!("{key}:{effect}"),
        false => format!("{key}={value}:{effect}"),
    });
    let what = format!("tolerate {}", texts.collect::<Vec<_>>().join(" and "));
    Step::of_pod("toleration", what, tolerant)
}

/// Each label that the pod requires; each expression of the only term; and all together.
fn node_affinity(pod: &Pod, steps: &mut Vec<Step>) {
    let labels = &pod.template.node_selector;
    for (key, value) in labels.iter() {
        let without = changed(pod, |spec| {
            spec.node_selector = labels.iter().filter(|(known, _)| *known != key).collect();
        });
        let what = format!("label a node {key}={value}, or remove {key} from the nodeSelector");
        steps.push(Step::of_pod("label", what, without));
    }
    let affinity = pod.template.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let expressions = match required.map(|required| &*required.terms) {
        Some([term]) if term.match_expressions.len() + term.match_fields.len() > 1 => {
            &*term.match_expressions
        }
        _ => &[],
    };
    for (at, expression) in expressions.iter().enumerate() {
        let without = changed(pod, |spec| {
            let affinity = spec.node_affinity.as_mut();
            if let Some(NodeSelector { terms }) = affinity.and_then(|it| it.required.as_mut()) {
                for term in terms.iter_mut() {
                    let mut left = std::mem::take(&mut term.match_expressions).into_vec();
                    left.remove(at);
                    term.match_expressions = left.into();
                }
            }
        });
        let what = format!(
            "give a node labels with {0}, or remove this from the required node affinity",
            requirement(expression)
        );
        steps.push(Step::of_pod("label", what, without));
    }
    let parts = [
        (!labels.is_empty(), "the nodeSelector"),
        (required.is_some(), "the required node affinity"),
    ];
    let parts: Vec<&str> = parts.into_iter().filter_map(|(is, part)| is.then_some(part)).collect();
    if !parts.is_empty() && (labels.len() != 1 || required.is_some()) {
        let without = changed(pod, |spec| {
            spec.node_selector = Default::default();
            if let Some(affinity) = &mut spec.node_affinity {
                affinity.required = None;
            }
        });
        let what = format!("remove {}", parts.join(" and "));
        steps.push(Step::of_pod("node-affinity", what, without));
    }
}

fn spread(pod: &Pod, steps: &mut Vec<Step>) {
    for (at, constraint) in pod.template.topology_spread.iter().enumerate() {
        if constraint.when_unsatisfiable != UnsatisfiableAction::DoNotSchedule {
            continue;
        }
        let soft = changed(pod, |spec| {
            spec.topology_spread[at].when_unsatisfiable = UnsatisfiableAction::ScheduleAnyway;
        });
        let what = format!(
            "set whenUnsatisfiable: ScheduleAnyway in the topology spread constraint for {}",
            constraint.topology_key
        );
        steps.push(Step::of_pod("spread", what, soft));
    }
}

fn pod_affinity(pod: &Pod, steps: &mut Vec<Step>) {
    type Part = fn(&mut PodSpec) -> &mut Option<Box<PodAffinity>>;
    let kinds: [(&str, &Option<Box<PodAffinity>>, Part); 2] = [
        ("pod affinity", &pod.template.pod_affinity, |spec| &mut spec.pod_affinity),
        ("pod anti-affinity", &pod.template.pod_anti_affinity, |spec| &mut spec.pod_anti_affinity),
    ];
    for (name, affinity, part) in kinds {
        let required = affinity.as_ref().map_or(&[][..], |affinity| &affinity.required);
        for (at, term) in required.iter().enumerate() {
            let without = changed(pod, |spec| {
                if let Some(affinity) = part(spec) {
                    let mut left = std::mem::take(&mut affinity.required).into_vec();
                    left.remove(at);
                    affinity.required = left.into();
                }
            });
            let what = format!(
                "remove the required {name} to pods with {} in the same {}",
                selector(&term.selector),
                term.topology_key
            );
            steps.push(Step::of_pod("pod-affinity", what, without));
        }
    }
}

fn ports(pod: &Pod, steps: &mut Vec<Step>) {
    for (at, port) in pod.template.host_ports.iter().enumerate() {
        let without = changed(pod, |spec| {
            let mut left = std::mem::take(&mut spec.host_ports).into_vec();
            left.remove(at);
            spec.host_ports = left.into();
        });
        let what = format!("use another host port than {}", port.port);
        steps.push(Step::of_pod("port", what, without));
    }
}
