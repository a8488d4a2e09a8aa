//! The filters' verdicts on a pod and a cluster, either of which may be changed.

use std::borrow::Cow;
use std::collections::HashSet;

use portolan::cache::{Cluster, NodeInfo};
use portolan::model::{Name, Pod, Requests};
use portolan::plugin::{Cycle, CycleState, Evaluation, Status};
use portolan::{FitError, Framework};
use portolan_k8s::Scales;

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

/// A node that rejects the pod.
pub(super) struct Rejection<'a> {
    pub(super) node: NodeInfo<'a>,
    /// The statuses of all plugins that reject it; not empty.
    pub(super) statuses: Vec<Cow<'a, Status>>,
}

impl Rejection<'_> {
    /// Whether only these plugins reject the node.
    pub(super) fn is_only_by(&self, plugins: &[&str]) -> bool {
        self.statuses.iter().all(|status| plugins.contains(&status.plugin))
    }
}

impl<'a> Trial<'a> {
    fn nodes(self) -> impl Iterator<Item = NodeInfo<'a>> {
        self.cluster.nodes().filter(move |node| self.is_meant(node))
    }

    fn is_meant(self, node: &NodeInfo<'_>) -> bool {
        self.only.is_none_or(|only| **node.name() == *only)
    }

    /// The nodes that reject the pod according to its evaluation, unless PreFilter rejected the pod: the verdicts are then
    /// not those of a scheduling attempt.
    pub(super) fn rejections_of<'e>(self, evaluation: &'e Evaluation) -> Option<Vec<Rejection<'e>>>
    where
        'a: 'e,
    {
        let is_of_nodes = |fit: &FitError| fit.pre_filter.is_none();
        let rejection = |node: NodeInfo<'e>| {
            let of = evaluation.nodes.get(node.name())?;
            let statuses = of.status.iter().chain(&of.further).map(Cow::Borrowed);
            let statuses: Vec<Cow<'e, Status>> = statuses.collect();
            (!statuses.is_empty()).then_some(Rejection { node, statuses })
        };
        let is_known = evaluation.rejected.as_ref().is_some_and(is_of_nodes);
        is_known.then(|| self.nodes().filter_map(rejection).collect())
    }

    /// The nodes that reject the pod. O(rejecting nodes × plugins).
    pub(super) fn rejections(self) -> Vec<Rejection<'a>> {
        let state = CycleState::default();
        let filters = self.framework.pre_filter(Cycle::new(self.cluster, self.pod, &state));
        let fitting: HashSet<&Name> = filters.feasible().iter().map(|node| node.name()).collect();
        let rejecting = self.nodes().filter(|node| !fitting.contains(node.name()));
        let statuses = |node| filters.filter_all(node).into_iter().map(Cow::Owned).collect();
        rejecting.map(|node| Rejection { node, statuses: statuses(node) }).collect()
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
