//! InterPodAffinity: pods that are added, removed or relabelled, and changes of nodes' topology domains.
//!
//! If a pod is rejected by one of its anti-affinity terms, the removal of one pod that matches any of the terms may be
//! enough. Kube-scheduler's hint waits for a pod that matches all terms. If a pod without terms is rejected by the
//! anti-affinity of existing pods, no term can be checked, so it is queued whenever nodes are added or relabelled.

use crate::model::{Labels, Node, Pod, PodAffinityTerm, PodSpec};
use crate::snapshot::Cluster;

use super::{
    Actions, ClusterEvent, EventResource, Hint, Interest, NODE, any, has_node, itself, on,
};

pub(in crate::plugins) const EVENTS: &[Interest] = &[
    on(EventResource::PODS, any(&[Actions::ADD, Actions::DELETE, Actions::UPDATE_POD_LABEL])),
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_LABEL])),
];

/// The required terms of a pod.
struct Terms<'a> {
    near: &'a [PodAffinityTerm],
    apart: &'a [PodAffinityTerm],
}

impl<'a> Terms<'a> {
    fn of(spec: &'a PodSpec) -> Terms<'a> {
        Terms {
            near: spec.pod_affinity.as_ref().map_or(&[], |affinity| &affinity.required),
            apart: spec.pod_anti_affinity.as_ref().map_or(&[], |affinity| &affinity.required),
        }
    }
}

/// A pod that terms may select, with the labels of its namespace.
struct Candidate<'a>(&'a PodSpec, &'a Labels);

impl<'a> Candidate<'a> {
    fn new(cluster: &'a Cluster, pod: &'a Pod) -> Candidate<'a> {
        let labels =
            cluster.objects().namespaces.get("", pod.namespace()).map(|found| &found.labels);
        Candidate(&pod.template, labels.unwrap_or(const { &Labels::EMPTY }))
    }

    fn selected_by_all(&self, terms: &[PodAffinityTerm]) -> bool {
        !terms.is_empty() && terms.iter().all(|term| self.selected_by(term))
    }

    fn selected_by_any(&self, terms: &[PodAffinityTerm]) -> bool {
        terms.iter().any(|term| self.selected_by(term))
    }

    fn selected_by(&self, term: &PodAffinityTerm) -> bool {
        term.matches(&self.0.namespace, self.1, &self.0.labels)
    }
}

pub(in crate::plugins) fn hint(pod: &Pod, event: &ClusterEvent<'_>, cluster: &Cluster) -> Hint {
    let terms = Terms::of(&pod.template);
    if let Some(node) = event.node() {
        return match (node.old.as_deref(), node.new.as_deref()) {
            (_, None) => Hint::Skip,
            (old, Some(new)) => Hint::queue_if(after_node(&terms, old, new)),
        };
    }
    let Some(other) = event.pod() else { return Hint::Skip };
    if itself(pod, event).is_some() {
        return Hint::Queue;
    }
    if !other.last().is_some_and(|other| has_node(other)) {
        return Hint::Skip;
    }
    let selected = |other: &'_ Pod| {
        let selected = Candidate::new(cluster, other);
        (selected.selected_by_all(terms.near), selected.selected_by_any(terms.apart))
    };
    Hint::queue_if(match (other.old.as_deref(), other.new.as_deref()) {
        (Some(old), Some(new)) => {
            let (was, is) = (selected(old), selected(new));
            (is.0 && !was.0) || (was.1 && !is.1)
        }
        (None, Some(new)) => selected(new).0,
        (Some(old), None) => {
            let keeps_away =
                Candidate::new(cluster, pod).selected_by_any(Terms::of(&old.template).apart);
            selected(old).1 || keeps_away
        }
        (None, None) => false,
    })
}

fn after_node(terms: &Terms<'_>, old: Option<&Node>, new: &Node) -> bool {
    let value = |node: &Node, term: &PodAffinityTerm| {
        node.labels.get(&term.topology_key).map(str::to_owned)
    };
    let comes_near = |term: &PodAffinityTerm| {
        let is = value(new, term);
        is.is_some() && old.is_none_or(|old| value(old, term) != is)
    };
    let parts = |term: &PodAffinityTerm| {
        old.is_none_or(|old| {
            let was = value(old, term);
            was.is_some() && was != value(new, term)
        })
    };
    (terms.near.is_empty() && terms.apart.is_empty())
        || terms.near.iter().any(comes_near)
        || terms.apart.iter().any(parts)
}
