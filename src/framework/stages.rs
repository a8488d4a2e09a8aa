//! The stages of a search. The search ends with the first stage that finds a feasible node.
//!
//! 1. The node that the pod is nominated to (schedule_one.go `evaluateNominatedNode`).
//! 2. The nodes that Gödel's reservations and movements prefer.
//! 3. The nodes that PreFilter plugins name (`PreFilterResult`). If they name none: the algorithm's lists of nodes one
//!    after another, beginning with that of its own partition.
//!
//! A node that the first two stages find is chosen without scoring; the feasible nodes of the last stage are scored.
//! The stages end with the extenders, if there are any: a node that they reject is not feasible.
//!
//! Deciding over chunks ([`Algorithm::decide`](super::Algorithm::decide)) and node by node
//! ([`Algorithm::decide_by_nodes`](super::Algorithm::decide_by_nodes)) use the same stages.

use crate::snapshot::NodeInfo;

use super::extender::ExtenderVerdicts;
use super::filters::Filters;
use super::godel::SubCluster;
use super::godel::preferred::preferred;
use super::sampling::{Found, num_feasible_nodes_to_find};
use super::{Cycle, Decision, Framework, Point, Status};

/// The stages of one pod's search.
pub(super) struct Stages<'a> {
    pub(super) framework: &'a Framework,
    pub(super) cycle: Cycle<'a>,
    pub(super) filters: &'a Filters<'a>,
    /// The sub-cluster that the search is restricted to, if any.
    pub(super) sub_cluster: Option<&'a SubCluster>,
    /// `percentageOfNodesToScore`.
    pub(super) percentage_of_nodes: u8,
}

/// A set of nodes that the last stage searches.
pub(super) enum Pool<'a> {
    /// The existing nodes that PreFilter plugins named.
    Named(Vec<NodeInfo<'a>>),
    /// The algorithm's list with this index.
    List(usize),
}

impl<'a> Stages<'a> {
    /// Returns the decision of the first two stages, if they find a node.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin fails.
    pub(super) fn unscored(
        &self,
        verdicts: &mut ExtenderVerdicts,
    ) -> Result<Option<Decision>, Status> {
        if let Some(node) = self.nominated().filter(|node| self.passes_extenders(*node, verdicts)) {
            return Ok(Some(Decision::of(node, 0, 1, 1)));
        }
        let found =
            preferred(self.framework, self.cycle, self.filters, |node| self.includes(node))?;
        if self.framework.handle().extenders().is_empty() {
            return Ok(found);
        }
        Ok(found.filter(|decision| {
            let node = self.cycle.cluster.node(&decision.node);
            node.is_some_and(|node| self.passes_extenders(node, verdicts))
        }))
    }

    /// Returns whether all extenders pass a node that is chosen without scoring.
    fn passes_extenders(&self, node: NodeInfo<'_>, verdicts: &mut ExtenderVerdicts) -> bool {
        let handle = self.framework.handle();
        handle.extenders().is_empty() || verdicts.passes(handle, self.cycle.pod, node)
    }

    /// Returns the nodes of the last stage that all extenders pass, or `None` if no extender filters nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if an extender fails that is not ignorable.
    pub(super) fn filter_by_extenders(
        &self,
        verdicts: &mut ExtenderVerdicts,
        nodes: impl FnOnce() -> Vec<NodeInfo<'a>>,
    ) -> Result<Option<Vec<NodeInfo<'a>>>, Status> {
        let handle = self.framework.handle();
        if !handle.extenders().iter().any(|extender| extender.is_filter()) {
            return Ok(None);
        }
        verdicts.filter(handle, self.cycle.pod, nodes()).map(Some)
    }

    /// Returns the feasible nodes of the last stage. `search` finds them in a set of nodes.
    ///
    /// # Errors
    ///
    /// Those of `search`.
    pub(super) fn scored<T>(
        &self,
        lists: usize,
        mut search: impl FnMut(Pool<'a>) -> Result<Found<T>, Status>,
    ) -> Result<Found<T>, Status> {
        if let Some(names) = self.filters.names() {
            let nodes = names.iter().filter_map(|name| self.cycle.cluster.node(name));
            return search(Pool::Named(nodes.filter(|node| self.includes(node)).collect()));
        }
        let mut found = Found::default();
        for list in 0..lists {
            let looked_at = found.looked_at;
            found = search(Pool::List(list))?;
            found.looked_at += looked_at;
            if found.feasible > 0 {
                break;
            }
        }
        Ok(found)
    }

    /// Returns how many feasible nodes end the search of `nodes` nodes. One is enough if nodes are not scored and no
    /// extender filters them.
    pub(super) fn enough(&self, nodes: usize) -> usize {
        let mut extenders = self.framework.handle().extenders().iter();
        match self.framework.has_plugins_at(Point::Score)
            || extenders.any(|extender| extender.is_filter() || extender.weight().is_some())
        {
            true => num_feasible_nodes_to_find(nodes, self.percentage_of_nodes),
            false => 1,
        }
    }

    /// Returns the node that the pod is nominated to, if it passes. If a plugin fails, the node does not pass.
    fn nominated(&self) -> Option<NodeInfo<'a>> {
        let name = self.cycle.pod.nominated_node_name.as_ref()?;
        let node = self.cycle.cluster.node(name).filter(|node| self.includes(node))?;
        self.filters.filter_with_nominated(node).is_none().then_some(node)
    }

    fn includes(&self, node: &NodeInfo<'_>) -> bool {
        self.sub_cluster.is_none_or(|of| of.includes(*node))
    }
}
