//! The decision for one pod, from top to bottom (schedule_one.go `schedulePod`):
//!
//! 1. PreFilter may reject the pod, or name the only candidates.
//! 2. The node that the pod is nominated to (`evaluateNominatedNode`), and then the nodes that Gödel's reservations and
//!    movements prefer. If one passes, it is chosen without scores.
//! 3. Filter. Candidates are the nodes that PreFilter plugins name (`PreFilterResult`), or else the nodes of the
//!    algorithm's lists, one list after another until one has a feasible node.
//! 4. Extenders: a node that they reject is not feasible.
//! 5. Score, and the choice among the best nodes.
//! 6. PostFilter, if no node is feasible.
//!
//! [`Algorithm::decide_by_nodes`](super::Algorithm::decide_by_nodes) takes the same stages node by node.

use crate::model::{Name, Pod};
use crate::snapshot::{Chunk, Cluster, NodeInfo, NodeSlot};

use super::choose::Choice;
use super::extender::ExtenderVerdicts;
use super::filters::Filters;
use super::godel::preferred::preferred;
use super::godel::{Partition, SubCluster};
use super::memo::Keep;
use super::parallel::Threads;
use super::preemption::has_terminating_victim;
use super::recorder::{Step, timed_step};
use super::sampling::{Order, num_feasible_nodes_to_find};
use super::search::{Chosen, FoundChunks, Search};
use super::status::code;
use super::{Algorithm, Cycle, Diagnosis, Failure, Framework, Handle, Nomination, Point, Status};

impl Algorithm {
    /// Decides on a node for the pod on this version. The cycle's state is dropped when the call returns. If plugins
    /// reserve and bind, use [`Algorithm::decide`], which leaves the state to the caller.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster has no nodes, if no node is feasible (with the number of nodes for each reason),
    /// or if a plugin fails.
    pub fn schedule(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Decision, Failure> {
        let state = self.state();
        self.decide(Cycle::new(cluster, pod, &state))
    }

    /// Decides on a node for the pod of a cycle. If the pod is nominated to a node that passes, returns that node. If
    /// no node is feasible, asks plugins to make one feasible (`Framework::post_filter`).
    ///
    /// With [`Partition::Shards`], a pod that fits nowhere and cannot preempt others loses its nomination, which may
    /// come from a hand-over. The pod then belongs to its own shard again. In kube-scheduler it keeps the nomination.
    ///
    /// # Errors
    ///
    /// Those of [`Algorithm::schedule`].
    pub fn decide(&mut self, cycle: Cycle<'_>) -> Result<Decision, Failure> {
        let mut decided = self.decide_or(cycle, post_filter);
        if let (Some(Partition::Shards(_)), Err(Failure::Fit(fit))) =
            (&self.partition, &mut decided)
            && fit.nomination == Nomination::Keep
            // After a failure it is not known whether preemption is possible.
            && fit.post_filter.as_ref().is_none_or(|status| status.code.is_rejection())
            && is_nominated_without_terminating_victims(cycle, self.framework.handle())
        {
            fit.nomination = Nomination::Clear;
        }
        decided
    }

    /// Like [`Algorithm::decide`], but without PostFilter, so no pod is preempted.
    ///
    /// # Errors
    ///
    /// Those of [`Algorithm::schedule`].
    pub fn decide_without_preemption(&mut self, cycle: Cycle<'_>) -> Result<Decision, Failure> {
        self.decide_or(cycle, |_, _, diagnosis| Failure::Fit(Box::new(diagnosis.fit_error())))
    }

    fn decide_or(
        &mut self,
        cycle: Cycle<'_>,
        fits_nowhere: fn(&Framework, Cycle<'_>, &Diagnosis<'_>) -> Failure,
    ) -> Result<Decision, Failure> {
        self.refresh(cycle.cluster);
        if self.orders.iter().all(|order| order.nodes() == 0)
            || self.sub_cluster().is_some_and(|of| of.excludes(cycle.pod))
        {
            return Err(Failure::NoNodes);
        }
        let Algorithm { framework, config, workers, memo, admission, orders, .. } = self;
        let admitted = admission.as_mut().and_then(|admission| admission.admit(cycle.pod));
        let cycle = Cycle { pod: admitted.as_ref().unwrap_or(cycle.pod), ..cycle };
        let filters = &framework.pre_filter(cycle);
        match filters.rejected() {
            Some(status) if !status.code.is_rejection() => return Err(status.clone().into()),
            Some(_) => {
                let diagnosis = Diagnosis::new(filters);
                framework.after_filter(cycle, &diagnosis, Vec::new)?;
                return Err(fits_nowhere(framework, cycle, &diagnosis));
            }
            None => {}
        }
        let sub_cluster = admission.as_ref().map(|admission| &admission.sub_cluster);
        let percentage_of_nodes = config.percentage_of_nodes;
        let stages = Stages { framework, cycle, filters, sub_cluster, percentage_of_nodes };
        let mut verdicts = ExtenderVerdicts::default();
        if let Some(decision) = stages.unscored(&mut verdicts)? {
            let node = || cycle.cluster.node(&decision.node);
            framework.after_filter(cycle, &Diagnosis::new(filters), || {
                node().map_or_else(Vec::new, lane_of)
            })?;
            return Ok(decision);
        }
        let chunks = orders.iter().map(|order| order.chunks().len()).sum();
        let is_kept = cycle.pod.node_name.is_none()
            && filters.names().is_none()
            && !is_supplied(cycle.cluster, cycle.pod);
        let keep = match is_kept {
            true => Keep::FromSecondPod,
            false => Keep::Never,
        };
        let (of, template) = ((cycle.cluster, chunks), &cycle.pod.template);
        let cache = memo.cache(of, template, keep);
        let (recorder, threads) = (framework.recorder(), Threads::new(workers.as_ref()));
        let found = timed_step(recorder, Step::Filter, code, || {
            let search = &mut Search::new(cycle, filters, threads, cache);
            stages.feasible(search, orders, &mut verdicts)
        })?;
        let diagnosis = Diagnosis::with_extenders(filters, &verdicts);
        framework.after_filter(cycle, &diagnosis, || found.lanes())?;
        let chosen = match found.feasible {
            0 | 1 => found.first(),
            _ => timed_step(recorder, Step::Score, code, || {
                Choice { framework, cycle, threads, seed: config.seed, found: &found }.choose(cache)
            })?,
        };
        if found.feasible == 0 && keep == Keep::FromSecondPod {
            // The pod will be retried.
            memo.keep(of, template);
        }
        let chosen = chosen.and_then(|of| Some((cycle.cluster.node_in(of.chunk, of.lane)?, of)));
        let Some((node, Chosen { score, .. })) = chosen else {
            return Err(fits_nowhere(framework, cycle, &diagnosis));
        };
        Ok(Decision::of(node, score, found.feasible, found.looked_at))
    }
}

/// Returns whether a store supplies a resource that the pod requests. That does not depend on the node, so verdicts on
/// the pod cannot be kept.
pub(super) fn is_supplied(cluster: &Cluster, pod: &Pod) -> bool {
    let mut scalars = pod.template.resources.incoming.scalars.iter();
    scalars.any(|(name, _)| cluster.supplies(name))
}

/// The stages of one pod's decision after PreFilter.
pub(super) struct Stages<'a> {
    pub(super) framework: &'a Framework,
    pub(super) cycle: Cycle<'a>,
    pub(super) filters: &'a Filters<'a>,
    /// The sub-cluster that the search is restricted to, if any.
    pub(super) sub_cluster: Option<&'a SubCluster>,
    /// `percentageOfNodesToScore`.
    pub(super) percentage_of_nodes: u8,
}

impl<'a> Stages<'a> {
    /// Returns the decision for the node that the pod is nominated to, or for a preferred one, if one of them passes.
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

    /// Returns the feasible nodes among the candidates.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin fails, or an extender that is not ignorable.
    pub(super) fn feasible(
        &self,
        search: &mut Search<'a, '_>,
        orders: &mut [Order],
        verdicts: &mut ExtenderVerdicts,
    ) -> Result<FoundChunks<'a>, Status> {
        let mut found = FoundChunks::default();
        if let Some(named) = self.named() {
            found = search.find_named(&named, self.enough(named.len()))?;
            // As in kube-scheduler, this moves the start of the next pod's search in the list of all nodes.
            orders[0].go_on(found.looked_at);
            self.keep_by_extenders(&mut found, verdicts)?;
            return Ok(found);
        }
        for order in orders {
            let before = found.looked_at;
            found = search.find_listed(order, self.enough(order.nodes()))?;
            order.go_on(found.looked_at);
            self.keep_by_extenders(&mut found, verdicts)?;
            found.looked_at += before;
            if found.feasible > 0 {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the existing nodes that PreFilter plugins named, or `None` if they named none.
    pub(super) fn named(&self) -> Option<Vec<NodeInfo<'a>>> {
        let nodes = self.filters.names()?.iter().filter_map(|name| self.cycle.cluster.node(name));
        Some(nodes.filter(|node| self.includes(node)).collect())
    }

    fn keep_by_extenders(
        &self,
        found: &mut FoundChunks<'a>,
        verdicts: &mut ExtenderVerdicts,
    ) -> Result<(), Status> {
        let nodes = || found.nodes(self.cycle.cluster);
        if let Some(passed) = self.filter_by_extenders(verdicts, nodes)? {
            found.keep(&passed);
        }
        Ok(())
    }

    /// Returns the candidates that all extenders pass, or `None` if no extender filters nodes.
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

/// Returns the chunk and lane of the only feasible node.
fn lane_of(node: NodeInfo<'_>) -> Vec<(&Chunk, u64)> {
    let (chunk, lane) = node.place();
    vec![(chunk, 1 << lane)]
}

/// Returns whether the pod is nominated to a node on which no victims are terminating.
fn is_nominated_without_terminating_victims(cycle: Cycle<'_>, handle: &Handle) -> bool {
    let Cycle { cluster, pod, .. } = cycle;
    let Some(name) = pod.nominated_node_name.as_ref().filter(|name| !name.is_empty()) else {
        return false;
    };
    !cluster.node(name).is_some_and(|node| has_terminating_victim(cycle, node, handle))
}

/// Runs PostFilter and returns the error of a pod for which no node is feasible.
fn post_filter(framework: &Framework, cycle: Cycle<'_>, diagnosis: &Diagnosis<'_>) -> Failure {
    let mut error = diagnosis.fit_error();
    if framework.has_plugins_at(Point::PostFilter) {
        let (nomination, status) = framework.post_filter(cycle, diagnosis);
        (error.nomination, error.post_filter) = (nomination, status);
    }
    Failure::Fit(Box::new(error))
}

/// The decision to place a pod on a node (schedule_one.go `ScheduleResult`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub node: Name,
    /// The node's slot.
    pub slot: NodeSlot,
    /// The node's total score; 0 if the node was the only feasible one.
    pub score: i64,
    /// The number of feasible nodes among the examined ones.
    pub feasible: usize,
    /// The number of nodes examined.
    pub looked_at: usize,
    /// Why the node took precedence over all others, if it did.
    pub preferred: Option<Preferred>,
}

/// Why a node took precedence over others (Gödel).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preferred {
    /// The pod uses a reservation on the node, which this placeholder pod (`namespace/name`) holds.
    Place(Name),
    /// The movement of this name requests a pod of the same owner on the node.
    Movement(Name),
}

impl Decision {
    /// Creates a decision for a node that took no precedence.
    pub(super) fn of(
        node: NodeInfo<'_>,
        score: i64,
        feasible: usize,
        looked_at: usize,
    ) -> Decision {
        let (node, slot) = (node.name().clone(), node.slot());
        Decision { node, slot, score, feasible, looked_at, preferred: None }
    }
}
