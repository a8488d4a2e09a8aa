//! Edits that remove a reason for which nodes reject the pod. This module does not check whether they help.

use std::collections::{BTreeMap, BTreeSet};

use portolan::model::{
    Name, Node, Operator, Pod, PodAffinity, Requirement, Taint, TaintEffect, UnsatisfiableAction,
};

use super::edit::{Edit, Spread};
use super::labels::{self, Labels};
use super::trial::{RejectedNodes, Trial};

/// The edits that may help, those of nodes for all nodes that they may help. O(nodes).
pub(super) fn edits(trial: Trial<'_>, rejected: &[RejectedNodes<'_>]) -> Vec<Edit> {
    let plugins: BTreeSet<&str> =
        rejected.iter().flat_map(|found| &found.statuses).map(|status| status.plugin).collect();
    let is_rejected_by = |plugin: &str| plugins.contains(plugin);
    let mut edits = Vec::new();
    if is_rejected_by("TaintToleration") || is_rejected_by("NodeUnschedulable") {
        taints(trial, &objects(rejected), &mut edits);
    }
    // Nodes that PreFilter excludes have a status without a plugin.
    if is_rejected_by("NodeAffinity") || is_rejected_by("") {
        node_affinity(trial, &objects(rejected), &mut edits);
    }
    if is_rejected_by("PodTopologySpread") {
        spread(trial.pod, &mut edits);
    }
    if is_rejected_by("InterPodAffinity") {
        pod_affinity(trial.pod, &mut edits);
    }
    if is_rejected_by("NodePorts") {
        let ports: BTreeSet<_> =
            trial.pod.template.host_ports.iter().map(|it| (it.port, it.protocol)).collect();
        edits.extend(ports.into_iter().map(|(port, protocol)| Edit::Port { port, protocol }));
    }
    edits
}

/// The objects of the rejecting nodes, sorted by name.
fn objects<'a>(rejected: &[RejectedNodes<'a>]) -> Vec<&'a Node> {
    let nodes = rejected.iter().flat_map(|found| &found.nodes).filter_map(|node| node.node());
    let mut nodes: Vec<&Node> = nodes.map(|node| &**node).collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}

/// Maximum number of sets of taints, the most frequent ones, for which tolerations are tried.
const TAINTS: usize = 20;

/// The taints that Kubernetes removes when a node recovers. A pod that tolerates them would not
/// run there.
const CONDITIONS: [&str; 7] = [
    Taint::NOT_READY,
    Taint::UNREACHABLE,
    Taint::MEMORY_PRESSURE,
    Taint::DISK_PRESSURE,
    Taint::PID_PRESSURE,
    Taint::NETWORK_UNAVAILABLE,
    "node.cloudprovider.kubernetes.io/uninitialized",
];

/// Tolerations of taints; for cordoned nodes, uncordoning; for nodes with a bad condition, its end.
fn taints(trial: Trial<'_>, nodes: &[&Node], edits: &mut Vec<Edit>) {
    let mut tolerable: BTreeMap<Vec<Taint>, usize> = BTreeMap::new();
    let mut cordoned: Vec<Name> = Vec::new();
    let mut conditions: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    let tolerations = &trial.pod.template.tolerations;
    for node in nodes {
        let is_rejected = |taint: &&Taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !tolerations.iter().any(|toleration| toleration.tolerates(taint))
        };
        let mut others: BTreeSet<Taint> = BTreeSet::new();
        let mut is_cordoned = node.unschedulable;
        for taint in node.taints.iter().filter(is_rejected) {
            match &*taint.key {
                Taint::UNSCHEDULABLE => is_cordoned = true,
                key if CONDITIONS.contains(&key) => {
                    let nodes = conditions.entry(taint.key.clone()).or_default();
                    if nodes.last() != Some(&node.name) {
                        nodes.push(node.name.clone());
                    }
                }
                _ => drop(others.insert(taint.clone())),
            }
        }
        if is_cordoned {
            cordoned.push(node.name.clone());
        }
        if !others.is_empty() {
            *tolerable.entry(others.into_iter().collect()).or_default() += 1;
        }
    }
    let mut tolerable: Vec<_> = tolerable.into_iter().collect();
    tolerable.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
    edits.extend(tolerable.into_iter().take(TAINTS).map(|(taints, _)| Edit::Tolerate(taints)));
    if !cordoned.is_empty() {
        edits.push(Edit::Uncordon(cordoned));
    }
    edits.extend(conditions.into_iter().map(|(key, nodes)| Edit::Repair { key, nodes }));
}

/// For each label that the pod requires: a label that nodes have instead, no requirement, and the label on the nodes.
fn node_affinity(trial: Trial<'_>, nodes: &[&Node], edits: &mut Vec<Edit>) {
    let of_cluster = Labels::of(trial.cluster);
    let selected = &trial.pod.template.node_selector;
    for (key, value) in selected.iter() {
        let from = (Name::from(key), Name::from(value));
        let known = of_cluster.values(key);
        let similar = of_cluster.instead_of(key, value, known.as_ref()).into_iter();
        edits.extend(similar.map(|to| Edit::Select { from: from.clone(), to: Some(to) }));
        edits.push(Edit::Select { from, to: None });
        label(key, value, nodes, edits);
    }
    let affinity = trial.pod.template.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    if let Some([term]) = required.map(|required| &*required.terms) {
        let is_one_of_several = term.match_expressions.len() + term.match_fields.len() > 1;
        for from in &term.match_expressions {
            edits.extend(instead(from, &of_cluster));
            if is_one_of_several {
                edits.push(Edit::Expression { from: from.clone(), to: None });
            }
            match (from.operator, from.values.first()) {
                (Operator::In, Some(value)) => label(&from.key, value, nodes, edits),
                (Operator::Exists, _) => label(&from.key, "true", nodes, edits),
                _ => {}
            }
        }
    }
    // The controller of a daemon set pins each of its pods to a node by node affinity.
    let is_pinned = trial.pod.template.controller().is_some_and(|of| &*of.kind == "DaemonSet");
    let affinity = required.is_some() && !is_pinned;
    if affinity {
        edits.push(Edit::NodeAffinity { selector: false, affinity });
    }
    if selected.len() > 1 {
        edits.push(Edit::NodeAffinity { selector: true, affinity: false });
    }
    if affinity && !selected.is_empty() {
        edits.push(Edit::NodeAffinity { selector: true, affinity });
    }
}

/// An expression with values that nodes have, in place of similar ones that none has.
fn instead(from: &Requirement, of_cluster: &Labels<'_>) -> Option<Edit> {
    let known = of_cluster.values(&from.key);
    let is_met = |value: &Name| known.as_ref().is_some_and(|known| known.contains(&**value));
    if from.operator != Operator::In || from.values.iter().any(is_met) {
        return None;
    }
    let instead_of = |value| of_cluster.instead_of(&from.key, value, known.as_ref());
    let values = from.values.iter().map(|value| instead_of(value));
    let (keys, values): (BTreeSet<Name>, BTreeSet<Name>) = values.flatten().unzip();
    let [key] = &keys.into_iter().collect::<Vec<_>>()[..] else { return None };
    let to = Requirement::new(key.clone(), Operator::In, values);
    Some(Edit::Expression { from: from.clone(), to: Some(to) })
}

/// The label on the nodes without it, and on those with another value, unless a component of the cluster sets it.
fn label(key: &str, value: &str, nodes: &[&Node], edits: &mut Vec<Edit>) {
    if labels::is_owned(key) {
        return;
    }
    let mut by_value: BTreeMap<Option<&str>, Vec<Name>> = BTreeMap::new();
    for node in nodes {
        match node.labels.get(key) {
            Some(known) if known == value => {}
            known => by_value.entry(known).or_default().push(node.name.clone()),
        }
    }
    // Nodes without the label come first.
    edits.extend(by_value.into_iter().take(2).map(|(from, nodes)| Edit::Label {
        key: key.into(),
        value: value.into(),
        from: from.map(Name::from),
        nodes,
    }));
}

fn spread(pod: &Pod, edits: &mut Vec<Edit>) {
    let all = &pod.template.topology_spread;
    for (at, constraint) in all.iter().enumerate() {
        if constraint.when_unsatisfiable != UnsatisfiableAction::DoNotSchedule {
            continue;
        }
        let key = &constraint.topology_key;
        let is_ambiguous = all.iter().filter(|other| other.topology_key == *key).count() > 1;
        let has_min_domains = constraint.min_domains.is_some();
        let hows = [
            (!constraint.honor_node_taints, Spread::HonorTaints),
            (has_min_domains, Spread::NoMinDomains),
            (true, Spread::ScheduleAnyway { has_min_domains }),
        ];
        let hows = hows.into_iter().filter_map(|(is_possible, how)| is_possible.then_some(how));
        edits.extend(hows.map(|how| Edit::Spread { at, key: key.clone(), is_ambiguous, how }));
    }
}

fn pod_affinity(pod: &Pod, edits: &mut Vec<Edit>) {
    let kinds: [(bool, &Option<Box<PodAffinity>>); 2] =
        [(false, &pod.template.pod_affinity), (true, &pod.template.pod_anti_affinity)];
    for (is_anti, affinity) in kinds {
        for term in affinity.iter().flat_map(|affinity| affinity.required.iter()) {
            let (term, namespace) = (Box::new(term.clone()), pod.namespace().clone());
            let edit = Edit::PodAffinity { is_anti, term, namespace };
            if !edits.contains(&edit) {
                edits.push(edit);
            }
        }
    }
}
