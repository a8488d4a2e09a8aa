//! A change as a value: the text of a proposal and its effect are both derived from it, so they cannot differ.

use std::fmt;

use portolan::cache::{Cluster, Fork};
use portolan::model::{
    Name, Node, NodeLabels, Pod, PodAffinity, PodAffinityTerm, PodSpec, Protocol, Requirement,
    Taint, Template, Toleration, TolerationOperator, UnsatisfiableAction,
};

use super::requests::Lower;
use super::trial::Trial;
use crate::columns::taint;
use crate::text::{count, requirement, selector};

/// An edit of the pod's manifest, or of the cluster.
///
/// Edits of nodes are proposed for one node; several nodes are only edited in a search for those that help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Adds a toleration with the key, the value and the effect of each taint.
    Tolerate(Vec<Taint>),
    Uncordon(Vec<Name>),
    /// Ends the condition for which Kubernetes has added a taint.
    Repair {
        key: Name,
        nodes: Vec<Name>,
    },
    /// Sets a label, which has another value on the nodes if `from` is set.
    Label {
        key: Name,
        value: Name,
        from: Option<Name>,
        nodes: Vec<Name>,
    },
    /// Replaces or removes a label of the nodeSelector.
    Select {
        from: (Name, Name),
        to: Option<(Name, Name)>,
    },
    /// Replaces or removes an expression of the only term of the required node affinity.
    Expression {
        from: Requirement,
        to: Option<Requirement>,
    },
    /// Removes the nodeSelector, the required node affinity, or both.
    NodeAffinity {
        selector: bool,
        affinity: bool,
    },
    Spread {
        at: usize,
        key: Name,
        is_ambiguous: bool,
        how: Spread,
    },
    /// Removes a required term.
    PodAffinity {
        is_anti: bool,
        term: Box<PodAffinityTerm>,
        namespace: Name,
    },
    Port {
        port: u16,
        protocol: Protocol,
    },
    Lower(Vec<Lower>),
    /// Evicts pods from a node on which others are already terminating.
    Evict {
        node: Name,
        pods: Vec<Pod>,
        terminating: Vec<Pod>,
    },
}

/// A change of a topology spread constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// The API server refuses `minDomains` beside it.
    ScheduleAnyway {
        has_min_domains: bool,
    },
    HonorTaints,
    NoMinDomains,
}

/// The pod or the cluster after an edit.
pub(super) enum Edited {
    Pod(Box<Pod>),
    Cluster(Box<Fork>),
}

impl Edited {
    pub(super) fn trial<'s>(&'s self, trial: Trial<'s>) -> Trial<'s> {
        match self {
            Edited::Pod(pod) => Trial { pod, ..trial },
            Edited::Cluster(cluster) => Trial { cluster, ..trial },
        }
    }
}

/// The pod with a modified spec.
pub(super) fn changed(pod: &Pod, change: impl FnOnce(&mut PodSpec)) -> Pod {
    let mut spec: PodSpec = (**pod.template).clone();
    change(&mut spec);
    Pod { template: Template::new(spec), ..pod.clone() }
}

fn without<T: Clone>(list: &[T], is_removed: impl Fn(&T) -> bool) -> Box<[T]> {
    list.iter().filter(|it| !is_removed(it)).cloned().collect()
}

impl Edit {
    /// The kind of the change in JSON.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Edit::Tolerate(_) => "toleration",
            Edit::Uncordon(_) => "uncordon",
            Edit::Repair { .. } => "condition",
            Edit::Label { .. } => "label",
            Edit::Select { .. } => "node-selector",
            Edit::Expression { .. } | Edit::NodeAffinity { .. } => "node-affinity",
            Edit::Spread { .. } => "spread",
            Edit::PodAffinity { .. } => "pod-affinity",
            Edit::Port { .. } => "port",
            Edit::Lower(_) => "request",
            Edit::Evict { pods, .. } if pods.is_empty() => "wait",
            Edit::Evict { .. } => "evict",
        }
    }

    /// How much the edit changes: the smaller, the less.
    pub(super) fn cost(&self) -> usize {
        match self {
            Edit::Select { from, to: Some(to) } if is_same_but_for_case(&from.1, &to.1) => 1,
            Edit::Expression { from, to: Some(to) } if is_case_mended(from, to) => 1,
            Edit::Tolerate(taints) => 2 * taints.len(),
            Edit::Uncordon(_) | Edit::Port { .. } => 2,
            Edit::Spread { how: Spread::HonorTaints, .. } => 2,
            Edit::Label { from: None, .. } | Edit::Spread { .. } => 3,
            Edit::Select { to: Some(_), .. } | Edit::Expression { to: Some(_), .. } => 3,
            Edit::Repair { .. } | Edit::Label { .. } | Edit::PodAffinity { .. } => 4,
            Edit::Select { .. } | Edit::Expression { .. } => 4,
            Edit::NodeAffinity { selector, affinity } => {
                5 + usize::from(*selector) + usize::from(*affinity)
            }
            Edit::Lower(all) => 1 + all.iter().map(Lower::eighths).max().unwrap_or(0),
            Edit::Evict { pods, .. } if pods.is_empty() => 0,
            Edit::Evict { pods, .. } => 10 + pods.len(),
        }
    }

    /// Whether the other edit is a part of this one.
    pub(super) fn includes(&self, other: &Edit) -> bool {
        let Edit::NodeAffinity { selector, affinity } = self else { return false };
        match other {
            Edit::Select { .. } => *selector,
            Edit::Expression { .. } => *affinity,
            Edit::NodeAffinity { .. } => *selector && *affinity,
            _ => false,
        }
    }

    /// The nodes that are edited, one of several that could be chosen; `None` for an edit of the pod.
    pub(super) fn nodes(&self) -> Option<&[Name]> {
        match self {
            Edit::Uncordon(nodes) | Edit::Repair { nodes, .. } | Edit::Label { nodes, .. } => {
                Some(nodes)
            }
            _ => None,
        }
    }

    /// The same edit of these nodes alone; an edit of the pod as it is.
    pub(super) fn of(&self, only: &[Name]) -> Edit {
        let only = only.to_vec();
        match self {
            Edit::Uncordon(_) => Edit::Uncordon(only),
            Edit::Repair { key, .. } => Edit::Repair { key: key.clone(), nodes: only },
            Edit::Label { key, value, from, .. } => Edit::Label {
                key: key.clone(),
                value: value.clone(),
                from: from.clone(),
                nodes: only,
            },
            of_pod => of_pod.clone(),
        }
    }

    /// The pod or the cluster after the edit, or `None` if there is nothing to edit.
    pub(super) fn apply(&self, trial: Trial<'_>) -> Option<Edited> {
        let of_pod = |pod: Pod| Some(Edited::Pod(Box::new(pod)));
        let of_spec =
            |change: &dyn Fn(&mut PodSpec)| of_pod(changed(trial.pod, |spec| change(spec)));
        match self {
            Edit::Tolerate(taints) => of_spec(&|spec| tolerate(spec, taints)),
            Edit::Select { from: (key, value), to } => of_spec(&|spec| {
                let others = spec.node_selector.iter().filter(|it| *it != (&**key, &**value));
                let to = to.iter().map(|(key, value)| (&**key, &**value));
                spec.node_selector = others.chain(to).collect();
            }),
            Edit::Expression { from, to } => of_spec(&|spec| expression(spec, from, to.as_ref())),
            Edit::NodeAffinity { selector, affinity } => of_spec(&|spec| {
                if *selector {
                    spec.node_selector = Default::default();
                }
                if let Some(of_spec) = spec.node_affinity.as_mut().filter(|_| *affinity) {
                    of_spec.required = None;
                }
            }),
            Edit::Spread { at, how, .. } => of_spec(&|spec| {
                let Some(constraint) = spec.topology_spread.get_mut(*at) else { return };
                match how {
                    Spread::ScheduleAnyway { .. } => {
                        constraint.when_unsatisfiable = UnsatisfiableAction::ScheduleAnyway;
                        constraint.min_domains = None;
                    }
                    Spread::HonorTaints => constraint.honor_node_taints = true,
                    Spread::NoMinDomains => constraint.min_domains = None,
                }
            }),
            Edit::PodAffinity { is_anti, term, .. } => of_spec(&|spec| {
                let part: &mut Option<Box<PodAffinity>> = match is_anti {
                    true => &mut spec.pod_anti_affinity,
                    false => &mut spec.pod_affinity,
                };
                if let Some(affinity) = part {
                    affinity.required = without(&affinity.required, |it| *it == **term);
                }
            }),
            Edit::Port { port, protocol } => of_spec(&|spec| {
                let is_meant =
                    |it: &portolan::model::HostPort| (it.port, it.protocol) == (*port, *protocol);
                spec.host_ports = without(&spec.host_ports, is_meant);
            }),
            Edit::Lower(all) => {
                let mut requests = trial.requests?.clone();
                all.iter().for_each(|lower| lower.apply(&mut requests));
                let resources = requests.compute();
                of_pod(changed(trial.pod, |spec| spec.resources = resources))
            }
            Edit::Evict { pods, terminating, .. } => {
                without_pods(trial.cluster, pods.iter().chain(terminating))
                    .map(|fork| Edited::Cluster(Box::new(fork)))
            }
            Edit::Uncordon(nodes) => {
                of_nodes(trial.cluster, nodes, |node| without_taint(node, Taint::UNSCHEDULABLE))
            }
            Edit::Repair { key, nodes } => {
                of_nodes(trial.cluster, nodes, |node| without_taint(node, key))
            }
            Edit::Label { key, value, nodes, .. } => of_nodes(trial.cluster, nodes, |node| {
                let others = node.labels.iter().filter(|(known, _)| *known != &**key);
                let labels = others.chain([(&**key, &**value)]).collect();
                Node { labels: NodeLabels::new(&labels, &node.name), ..node.clone() }
            }),
        }
    }
}

fn is_same_but_for_case(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn is_case_mended(from: &Requirement, to: &Requirement) -> bool {
    let values = from.values.iter().zip(&to.values);
    from.key == to.key && values.into_iter().all(|(from, to)| is_same_but_for_case(from, to))
}

fn tolerate(spec: &mut PodSpec, taints: &[Taint]) {
    let more = taints.iter().map(|taint| Toleration {
        key: Some(taint.key.clone()),
        operator: TolerationOperator::Equal,
        value: Some(taint.value.clone()),
        effect: Some(taint.effect),
    });
    spec.tolerations = spec.tolerations.iter().cloned().chain(more).collect();
}

fn expression(spec: &mut PodSpec, from: &Requirement, to: Option<&Requirement>) {
    let affinity = spec.node_affinity.as_mut();
    let Some(required) = affinity.and_then(|it| it.required.as_mut()) else { return };
    for term in &mut required.terms {
        let all = term.match_expressions.iter();
        let all = all.flat_map(|it| if it == from { to.cloned() } else { Some(it.clone()) });
        term.match_expressions = all.collect();
    }
}

/// A node without a taint, and not cordoned if the taint is that of cordoned nodes.
fn without_taint(node: &Node, key: &str) -> Node {
    Node {
        taints: without(&node.taints, |taint| *taint.key == *key),
        unschedulable: node.unschedulable && key != Taint::UNSCHEDULABLE,
        ..node.clone()
    }
}

fn of_nodes(cluster: &Cluster, nodes: &[Name], edit: impl Fn(&Node) -> Node) -> Option<Edited> {
    let mut fork = cluster.fork();
    for node in nodes {
        let node = cluster.node(node)?.node()?;
        fork.add_node(edit(node)).ok()?;
    }
    Some(Edited::Cluster(Box::new(fork)))
}

/// The cluster without these pods.
pub(super) fn without_pods<'p>(
    cluster: &Cluster,
    pods: impl IntoIterator<Item = &'p Pod>,
) -> Option<Fork> {
    let mut fork = cluster.fork();
    for pod in pods {
        fork.remove_pod(&pod.uid).ok()?;
    }
    Some(fork)
}

/// Names of pods in a sentence.
pub(super) fn names<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> String {
    pods.into_iter().map(|pod| pod.key().to_string()).collect::<Vec<_>>().join(", ")
}

fn on(nodes: &[Name]) -> String {
    match nodes {
        [node] => format!("node {node}"),
        nodes => count(nodes.len(), "node"),
    }
}

fn spread(
    f: &mut fmt::Formatter<'_>,
    (at, key, is_ambiguous): (usize, &Name, bool),
    how: Spread,
) -> fmt::Result {
    f.write_str(match how {
        Spread::ScheduleAnyway { has_min_domains: false } => {
            "set whenUnsatisfiable: ScheduleAnyway in"
        }
        Spread::ScheduleAnyway { has_min_domains: true } => {
            "set whenUnsatisfiable: ScheduleAnyway, and remove minDomains, in"
        }
        Spread::HonorTaints => "set nodeTaintsPolicy: Honor in",
        Spread::NoMinDomains => "remove minDomains from",
    })?;
    write!(f, " the topology spread constraint for {key}")?;
    match is_ambiguous {
        true => write!(f, " (topologySpreadConstraints[{at}])"),
        false => Ok(()),
    }
}

/// The namespaces of the pods that a term selects, unless they are the pod's own.
fn namespaces(term: &PodAffinityTerm, own: &Name) -> String {
    let names = match &*term.namespaces {
        [only] if only == own => None,
        [] => None,
        all => Some(format!("in the namespaces {}", all.join(", "))),
    };
    let selected = match &term.namespace_selector {
        portolan::model::LabelSelector::Nothing => None,
        selected => Some(format!("in namespaces with {}", selector(selected))),
    };
    let all: Vec<String> = names.into_iter().chain(selected).collect();
    if all.is_empty() { String::new() } else { format!(" {}", all.join(" and ")) }
}

impl fmt::Display for Edit {
    /// Writes the edit as an instruction, which can be followed to the letter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Tolerate(taints) => {
                let taints: Vec<String> = taints.iter().map(taint).collect();
                write!(f, "tolerate {}", taints.join(" and "))
            }
            Edit::Uncordon(nodes) => write!(f, "uncordon {}", on(nodes)),
            Edit::Repair { key, nodes } => {
                write!(f, "resolve the cause of the taint {key} on {}", on(nodes))
            }
            Edit::Label { key, value, from, nodes } => {
                write!(f, "label {} {key}={value}", on(nodes))?;
                match from {
                    Some(from) => write!(f, " instead of {key}={from}"),
                    None => Ok(()),
                }
            }
            Edit::Select { from: (key, value), to: Some((to, new)) } => {
                write!(f, "in the nodeSelector, change {key}={value} to {to}={new}")
            }
            Edit::Select { from: (key, value), to: None } => {
                write!(f, "remove {key}={value} from the nodeSelector")
            }
            Edit::Expression { from, to: Some(to) } => {
                let (from, to) = (requirement(from), requirement(to));
                write!(f, "in the required node affinity, change {from} to {to}")
            }
            Edit::Expression { from, to: None } => {
                write!(f, "remove {} from the required node affinity", requirement(from))
            }
            Edit::NodeAffinity { selector, affinity } => {
                let parts =
                    [(selector, "the nodeSelector"), (affinity, "the required node affinity")];
                let parts = parts.iter().filter_map(|(is, part)| is.then_some(*part));
                write!(f, "remove {}", parts.collect::<Vec<_>>().join(" and "))
            }
            Edit::Spread { at, key, is_ambiguous, how } => {
                spread(f, (*at, key, *is_ambiguous), *how)
            }
            Edit::PodAffinity { is_anti, term, namespace } => write!(
                f,
                "remove the required pod {} to pods with {}{} in the same {}",
                if *is_anti { "anti-affinity" } else { "affinity" },
                selector(&term.selector),
                namespaces(term, namespace),
                term.topology_key
            ),
            Edit::Port { port, protocol: Protocol::Tcp } => {
                write!(f, "use another host port than {port}")
            }
            Edit::Port { port, protocol } => {
                write!(f, "use another host port than {port}/{}", protocol.as_str())
            }
            Edit::Lower(all) => {
                let all: Vec<String> = all.iter().map(Lower::to_string).collect();
                write!(f, "lower {}", all.join(" and "))
            }
            Edit::Evict { node, pods, terminating } if pods.is_empty() => {
                let has = if terminating.len() == 1 { "has" } else { "have" };
                write!(f, "wait: frees {node} when {} {has} terminated", names(terminating))
            }
            Edit::Evict { node, pods, terminating } => {
                write!(f, "evict {} from node {node}", names(pods))?;
                match terminating.len() {
                    0 => Ok(()),
                    1 => write!(f, ", when {} has terminated", names(terminating)),
                    _ => write!(f, ", when {} have terminated", names(terminating)),
                }
            }
        }
    }
}
