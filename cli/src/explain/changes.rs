//! The smallest changes that would make a pod fit, each verified by running the filters.

use std::collections::{BTreeMap, BTreeSet};

use portolan::framework::{Evaluation, Framework, Verdict};
use portolan::model::{
    Bytes, MilliCpu, Pod, PodSpec, Taint, TaintEffect, Template, Toleration, TolerationOperator,
};
use portolan::{Cluster, Fork};

use super::{INSUFFICIENT, of, passes, resource};
use crate::text::amount;

/// A change, and the number of nodes that the pod then fits on.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The kind of change: toleration, affinity, request, label or evict.
    pub(super) kind: &'static str,
    /// The change as an instruction.
    pub(super) what: String,
    /// The number of nodes that the pod fits on after the change.
    pub(super) nodes: usize,
}

/// Maximum number of nodes on which evictions are tried.
const TRIED: usize = 50;
/// Maximum number of reported changes per kind.
const REPORTED: usize = 3;

pub(super) fn find(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    evaluation: &Evaluation,
) -> Vec<Change> {
    let mut changes = Vec::new();
    changes.extend(tolerations(framework, cluster, pod, evaluation));
    changes.extend(affinity(framework, cluster, pod, evaluation));
    changes.extend(requests(framework, cluster, pod, evaluation));
    changes.extend(evictions(framework, cluster, pod, evaluation));
    changes
}

/// The nodes that only these plugins reject.
fn only_by<'e>(
    evaluation: &'e Evaluation,
    plugins: &'e [&'e str],
) -> impl Iterator<Item = (&'e str, &'e Verdict)> {
    let nodes = evaluation.nodes.iter().map(|(name, verdict)| (&**name, verdict));
    nodes.filter(move |(_, verdict)| {
        let mut statuses = verdict.status.iter().chain(&verdict.further);
        verdict.status.is_some() && statuses.all(|status| plugins.contains(&status.plugin))
    })
}

/// The pod with a modified spec.
fn changed(pod: &Pod, change: impl FnOnce(&mut PodSpec)) -> Pod {
    let mut spec: PodSpec = (**pod.template).clone();
    change(&mut spec);
    Pod { template: Template::new(spec), ..pod.clone() }
}

fn count<'e>(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    nodes: impl Iterator<Item = &'e str>,
) -> usize {
    nodes.filter(|node| passes(framework, cluster, pod, node)).count()
}

/// Tolerations for nodes that reject the pod only because of taints.
fn tolerations(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    evaluation: &Evaluation,
) -> Vec<Change> {
    let plugins = ["TaintToleration", "NodeUnschedulable"];
    let mut by_taints: BTreeMap<Vec<(String, String, String)>, Vec<&str>> = BTreeMap::new();
    for (name, _) in only_by(evaluation, &plugins) {
        let Some(node) = cluster.node(name) else { continue };
        let Some(object) = node.node() else { continue };
        let cordoned = object
            .unschedulable
            .then(|| Taint::new("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule));
        let taints = object.taints.iter().chain(&cordoned).filter(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !pod.template.tolerations.iter().any(|t| t.tolerates(taint))
        });
        let key: BTreeSet<_> = taints
            .map(|t| (t.key.to_string(), t.value.to_string(), format!("{:?}", t.effect)))
            .collect();
        by_taints.entry(key.into_iter().collect()).or_default().push(name);
    }
    let mut changes: Vec<Change> = Vec::new();
    for (taints, nodes) in by_taints {
        let tolerant = changed(pod, |spec| {
            let mut all = spec.tolerations.to_vec();
            all.extend(taints.iter().map(|(key, _, _)| Toleration {
                key: Some(key.as_str().into()),
                operator: TolerationOperator::Exists,
                ..Toleration::default()
            }));
            spec.tolerations = all.into();
        });
        let fits = count(framework, cluster, &tolerant, nodes.into_iter());
        if fits > 0 {
            let taints: Vec<String> = taints
                .iter()
                .map(|(key, value, effect)| match value.is_empty() {
                    true => format!("{key}:{effect}"),
                    false => format!("{key}={value}:{effect}"),
                })
                .collect();
            let what = format!("tolerate {}", taints.join(" and "));
            changes.push(Change { kind: "toleration", what, nodes: fits });
        }
    }
    best(changes)
}

fn best(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.what.cmp(&b.what)));
    changes.truncate(REPORTED);
    changes
}

/// Missing node labels; if no single label helps, the node affinity as a whole.
fn affinity(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    evaluation: &Evaluation,
) -> Vec<Change> {
    let names: Vec<&str> = only_by(evaluation, &["NodeAffinity", ""]).map(|(n, _)| n).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let mut changes = Vec::new();
    for (key, value) in pod.template.node_selector.iter() {
        let without = changed(pod, |spec| {
            spec.node_selector = spec.node_selector.iter().filter(|(k, _)| *k != key).collect();
        });
        let nodes = count(framework, cluster, &without, names.iter().copied());
        if nodes > 0 {
            let what = format!("label a node {key}={value}, or remove {key} from the nodeSelector");
            changes.push(Change { kind: "label", what, nodes });
        }
    }
    let without = changed(pod, |spec| {
        spec.node_selector = Default::default();
        if let Some(affinity) = &mut spec.node_affinity {
            affinity.required = None;
        }
    });
    let nodes = count(framework, cluster, &without, names.iter().copied());
    if changes.is_empty() && nodes > 0 {
        let what = "remove the nodeSelector and the required node affinity".to_owned();
        changes.push(Change { kind: "affinity", what, nodes });
    }
    best(changes)
}

/// The smallest reductions of requests that make the pod fit on a node.
fn requests(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    evaluation: &Evaluation,
) -> Vec<Change> {
    // By the set of insufficient resources: the node with the smallest relative shortfall.
    let mut least: BTreeMap<Vec<&str>, (f64, Vec<i64>)> = BTreeMap::new();
    for (name, verdict) in only_by(evaluation, &["NodeResourcesFit"]) {
        let Some(status) = &verdict.status else { continue };
        let short: Option<Vec<&str>> =
            status.reasons.iter().map(|reason| reason.strip_prefix(INSUFFICIENT)).collect();
        let (Some(short), Some(node)) = (short, cluster.node(name)) else { continue };
        let amounts: Vec<(i64, i64)> = short
            .iter()
            .map(|resource_name| {
                let (wanted, _, left) = resource(resource_name, pod, node);
                (wanted, wanted.saturating_sub(left.max(0)))
            })
            .collect();
        let worst = amounts
            .iter()
            .map(|(wanted, by)| *by as f64 / (*wanted).max(1) as f64)
            .fold(0.0, f64::max);
        let by = amounts.iter().map(|(_, by)| *by).collect();
        match least.get(&short) {
            Some((known, _)) if *known <= worst => {}
            _ => drop(least.insert(short, (worst, by))),
        }
    }
    let mut changes: Vec<(f64, Change)> = Vec::new();
    for (names, (worst, by)) in least {
        if worst >= 1.0 {
            continue;
        }
        let lower = changed(pod, |spec| {
            for (name, by) in names.iter().zip(&by) {
                let incoming = &mut spec.resources.incoming;
                match *name {
                    "cpu" => incoming.cpu = MilliCpu(incoming.cpu.0 - by),
                    "memory" => incoming.memory = Bytes(incoming.memory.0 - by),
                    "ephemeral-storage" => {
                        incoming.ephemeral_storage = Bytes(incoming.ephemeral_storage.0 - by);
                    }
                    name => {
                        let scalars = incoming.scalars.iter().map(|(known, amount)| {
                            let less = if **known == *name { *by } else { 0 };
                            (known.clone(), amount - less)
                        });
                        incoming.scalars =
                            portolan::model::Scalars::new(scalars.collect::<Vec<_>>());
                    }
                }
            }
        });
        let rejected = only_by(evaluation, &["NodeResourcesFit"]).map(|(name, _)| name);
        let nodes = count(framework, cluster, &lower, rejected);
        if nodes == 0 {
            continue;
        }
        let parts: Vec<String> = names
            .iter()
            .zip(&by)
            .map(|(name, by)| {
                let left = of(&pod.template.resources.incoming, name) - by;
                format!("the {name} request by {} to {}", amount(name, *by), amount(name, left))
            })
            .collect();
        let what = format!("lower {}", parts.join(" and "));
        changes.push((worst, Change { kind: "request", what, nodes }));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    changes.into_iter().take(REPORTED).map(|(_, change)| change).collect()
}

/// The node that needs the fewest evictions, and the victims, the most important first.
fn evictions(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    evaluation: &Evaluation,
) -> Vec<Change> {
    let helps = ["NodeResourcesFit", "NodePorts", "InterPodAffinity", "PodTopologySpread"];
    let names = only_by(evaluation, &helps).map(|(name, _)| name);
    let mut nodes: Vec<(usize, &str)> = names
        .filter_map(|name| Some((cluster.node(name)?.pod_count(), name)))
        .filter(|(pods, _)| *pods > 0)
        .collect();
    nodes.sort_unstable();
    nodes.truncate(TRIED);
    let mut fewest: Option<(usize, i64, String)> = None;
    for (_, name) in nodes {
        let Some(victims) = victims(framework, cluster, pod, name) else { continue };
        let priorities = victims.iter().map(|(priority, _)| i64::from(*priority)).sum();
        let listed: Vec<&str> = victims.iter().map(|(_, pod)| &**pod).collect();
        let what = format!("evict {} from node {name}", listed.join(", "));
        let better = fewest
            .as_ref()
            .is_none_or(|(count, sum, _)| (victims.len(), priorities) < (*count, *sum));
        if better {
            fewest = Some((victims.len(), priorities, what));
        }
    }
    let change = |(_, _, what)| Change { kind: "evict", what, nodes: 1 };
    fewest.map(change).into_iter().collect()
}

/// The priority and name of each pod that must be evicted from the node.
fn victims(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    name: &str,
) -> Option<Vec<(i32, String)>> {
    let mut there: Vec<Pod> = cluster.node(name)?.pods().map(|pod| pod.to_pod()).collect();
    there.sort_by_key(|pod| (pod.template.priority, std::cmp::Reverse(pod.start_time)));
    let mut fork: Fork = cluster.fork();
    let mut gone: Vec<Pod> = Vec::new();
    for victim in there {
        fork.remove_pod(&victim.uid).ok()?;
        gone.push(victim);
        if passes(framework, &fork, pod, name) {
            break;
        }
    }
    if !passes(framework, &fork, pod, name) {
        return None;
    }
    // Restore the pods that need not be evicted, the most important first.
    let mut victims = Vec::new();
    for back in gone.into_iter().rev() {
        fork.add_pod(&back).ok()?;
        if !passes(framework, &fork, pod, name) {
            fork.remove_pod(&back.uid).ok()?;
            let label = format!("{}/{}", back.namespace(), back.name);
            victims.push((back.template.priority, label));
        }
    }
    Some(victims)
}
