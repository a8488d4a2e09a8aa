//! The filters' verdicts on a pod and a cluster, either of which may be changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::Framework;
use portolan::cache::{Cluster, NodeInfo};
use portolan::model::{Name, Pod, Requests};
use portolan::plugin::{Cycle, CycleState, Evaluation, Status, Verdict};
use portolan_k8s::Scales;
use rayon::prelude::*;

use super::INSUFFICIENT;

/// A pod, and the cluster in which it is tried.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) framework: &'a Framework,
    pub(super) cluster: &'a Cluster,
    pub(super) pod: &'a Pod,
    /// The requests of the pod's containers, if the pod's manifest is known.
    pub(super) requests: Option<&'a Requests>,
    /// The controllers of the cluster.
    pub(super) scales: &'a Scales,
    /// The only node to evaluate, or `None` for all nodes.
    pub(super) only: Option<&'a str>,
    /// The node that preemption would choose for the pod.
    pub(super) nominated: Option<&'a Name>,
}

/// Nodes that the same plugins reject for the same reasons.
#[derive(Clone)]
pub(super) struct RejectedNodes<'a> {
    /// The statuses of these plugins; not empty.
    pub(super) statuses: Vec<Status>,
    /// Sorted by name.
    pub(super) nodes: Vec<NodeInfo<'a>>,
}

impl<'a> RejectedNodes<'a> {
    /// The nodes that reject the pod. O(nodes × log nodes).
    pub(super) fn of(trial: Trial<'a>, evaluation: &Evaluation) -> Vec<RejectedNodes<'a>> {
        let mut all: Vec<RejectedNodes<'a>> = Vec::new();
        // Nodes with equal verdicts share one, so its address identifies it.
        let mut known: BTreeMap<*const Verdict, usize> = BTreeMap::new();
        let found = evaluation.nodes.par_iter().filter_map(|(name, verdict)| {
            let node = trial.cluster.node(name).filter(|node| trial.is_meant(node))?;
            verdict.status.is_some().then_some((node, verdict))
        });
        for (node, verdict) in found.collect::<Vec<_>>() {
            let at = *known.entry(Arc::as_ptr(verdict)).or_insert_with(|| {
                let statuses = verdict.status.iter().chain(&verdict.further).cloned().collect();
                all.push(RejectedNodes { statuses, nodes: Vec::new() });
                all.len() - 1
            });
            all[at].nodes.push(node);
        }
        all
    }

    /// The same with the statuses of a scheduling attempt, which asks no filter after a rejection by PreFilter.
    pub(super) fn in_attempt<'r>(
        evaluation: &Evaluation,
        all: &'r [RejectedNodes<'a>],
    ) -> Cow<'r, [RejectedNodes<'a>]> {
        match evaluation.rejected.as_ref().and_then(|fit| fit.pre_filter.as_ref()) {
            None => all.into(),
            Some(_) => {
                let first = |it: &RejectedNodes<'a>| RejectedNodes {
                    statuses: vec![it.statuses[0].clone()],
                    nodes: it.nodes.clone(),
                };
                all.iter().map(first).collect()
            }
        }
    }

    /// The resources of which the nodes have too little.
    pub(super) fn insufficient(&self) -> impl Iterator<Item = &str> {
        let reasons = self.statuses.iter().flat_map(|status| &status.reasons);
        reasons.filter_map(|reason| reason.strip_prefix(INSUFFICIENT))
    }

    /// Whether only these plugins reject the nodes.
    pub(super) fn is_only_by(&self, plugins: &[&str]) -> bool {
        self.statuses.iter().all(|status| plugins.contains(&status.plugin))
    }
}

impl<'a> Trial<'a> {
    fn is_meant(self, node: &NodeInfo<'_>) -> bool {
        self.only.is_none_or(|only| **node.name() == *only)
    }

    /// The nodes that accept the pod.
    pub(super) fn fitting(self) -> Vec<Name> {
        let state = CycleState::default();
        let filters = self.framework.pre_filter(Cycle::new(self.cluster, self.pod, &state));
        let nodes = filters.feasible().into_iter().filter(|node| self.is_meant(node));
        nodes.map(|node| node.name().clone()).collect()
    }

    /// Whether the node accepts the pod.
    pub(super) fn fits_on(self, node: &str) -> bool {
        let found = self.cluster.node(node);
        found.is_some_and(|node| self.framework.filter(self.cluster, self.pod, node).is_none())
    }

    /// The amount of a resource that the pod requests.
    pub(super) fn requested(self, resource: &str) -> i64 {
        self.pod.template.resources.incoming.amount(resource)
    }

    /// The amount of a resource that the node has left for the pod, beside the pods on the node and those that are
    /// nominated to it and take precedence.
    pub(super) fn free(self, resource: &str, node: NodeInfo<'_>) -> i64 {
        let class = self.pod.template.class;
        let nominated = self.framework.handle().nominator().pods_on(node.name());
        let before = nominated.iter().filter(|other| {
            other.uid != self.pod.uid && other.template.priority >= self.pod.template.priority
        });
        let taken = before.map(|other| other.template.resources.placed.amount(resource));
        let taken = taken.fold(node.requested_of(class).amount(resource), i64::saturating_add);
        node.allocatable_of(class).amount(resource).saturating_sub(taken)
    }
}
