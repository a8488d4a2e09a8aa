//! Decides on a node for a pod: filter, score, choose (schedule_one.go `schedulePod`).
//!
//! The nominated node comes first, then preferred nodes, and then the list of nodes: round robin over zones, from the
//! position after the previous sample. That position is a field of the [`Algorithm`] and not of a version, so schedulers
//! that share an engine do not disturb each other. With a thread pool and 64 chunks or more, chunks are evaluated in
//! parallel and combined in list order, so the decision does not depend on threads.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::model::Pod;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::choose::Choice;
use super::decision::{Decision, ScheduleError};
use super::extender::ExtenderVerdicts;
use super::godel::sub_cluster::Admission;
use super::godel::{Partition, SubCluster};
use super::memo::{Keep, Memo};
use super::parallel::Threads;
use super::preemption::has_terminating_victim;
use super::recorder::{Step, timed_step};
use super::sampling::{Order, Section};
use super::search::{Chosen, Search};
use super::stages::Stages;
use super::status::code;
use super::{Cycle, CycleState, Diagnosis, Framework, Handle, Nomination, Point};

/// The configuration of an [`Algorithm`].
#[derive(Clone, Debug, Default)]
pub struct AlgorithmConfig {
    /// The search stops once this percentage of all nodes is feasible (`percentageOfNodesToScore`). 0 adapts the
    /// percentage to the number of nodes. A profile may have its own
    /// ([`Framework::with_percentage_of_nodes`]).
    pub percentage_of_nodes: u8,
    /// The seed for breaking ties. The same seed gives the same decisions, whatever the number of threads.
    pub seed: u64,
}

/// Decides on a node for one pod after another.
///
/// Which nodes are examined, their scores and the choice among nodes of equal score depend only on the cluster, the
/// pods decided before, the seed and the section ([`Algorithm::set_section`]), never on the number of threads.
pub struct Algorithm {
    framework: Arc<Framework>,
    config: AlgorithmConfig,
    pool: Option<Arc<rayon::ThreadPool>>,
    /// The number of cycles so far.
    cycles: u64,
    memo: Memo,
    partition: Option<Partition>,
    admission: Option<Admission>,
    /// One list of all nodes, or of those of the sub-cluster. With a partition, two lists: the partition's own nodes,
    /// and the other nodes.
    orders: Vec<Order>,
    section: Section,
}

impl Algorithm {
    /// Creates an algorithm that evaluates nodes on the calling thread, and also on `pool` if there are many nodes.
    ///
    /// ```
    /// use portolan::framework::{Algorithm, AlgorithmConfig, Framework};
    /// use portolan::model::{node, pod};
    /// use portolan::{Config, Engine};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// writer.add_node(node("small").cpu(1_000).memory(1 << 30).build())?;
    /// writer.add_node(node("large").cpu(8_000).memory(8 << 30).build())?;
    /// writer.publish();
    ///
    /// let mut scheduler =
    ///     Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
    /// let pod = pod("web-0").cpu(2_000).memory(1 << 20).build();
    /// let decision = scheduler.schedule(&reader.snapshot(), &pod)?;
    /// writer.assume_pod(pod.on(decision.node))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(
        framework: impl Into<Arc<Framework>>,
        config: AlgorithmConfig,
        pool: Option<Arc<rayon::ThreadPool>>,
    ) -> Algorithm {
        let framework = framework.into();
        let percentage_of_nodes =
            framework.percentage_of_nodes().unwrap_or(config.percentage_of_nodes);
        Algorithm {
            framework,
            config: AlgorithmConfig { percentage_of_nodes, ..config },
            pool,
            cycles: 0,
            memo: Memo::default(),
            partition: None,
            admission: None,
            orders: vec![Order::default()],
            section: Section::default(),
        }
    }

    /// Sets the position, from 0, of this algorithm's scheduler among the `of` schedulers of an engine. Each scheduler
    /// begins its searches in its own section of the node list. [`Scheduler`](crate::scheduler::Scheduler) calls this
    /// by itself.
    ///
    /// A search that ends when enough nodes are feasible examines the nodes after those of the search before it, and
    /// leaves the section only if too few of its nodes are feasible. Schedulers without sections examine and change the
    /// same nodes, so that their placements conflict and their caches are of little use. The sections change hands
    /// after one to two events for each node, so that all nodes are used if one scheduler places most of the pods. A
    /// search that examines all nodes is not affected, nor are the nodes of a [`Partition::Share`].
    pub fn set_section(&mut self, index: u32, of: NonZeroU32) {
        self.section = Section { index: index % of, of };
    }

    /// Returns the section of the list with this index.
    pub(super) fn section(&self, list: usize) -> Section {
        match self.partition {
            Some(Partition::Share { .. }) if list == 0 => Section::default(),
            _ => self.section,
        }
    }

    /// Sets the partition, whose nodes are searched before all other nodes.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use portolan::framework::{Algorithm, AlgorithmConfig, Framework, Partition};
    ///
    /// // Two schedulers on one engine.
    /// let of = NonZeroU32::new(2).ok_or("two")?;
    /// let schedulers = [0, 1].map(|index| {
    ///     Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
    ///         .with_partition(Partition::Share { index, of })
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_partition(mut self, partition: Partition) -> Algorithm {
        self.partition = Some(partition);
        self.orders = vec![Order::default(), Order::default()];
        self
    }

    /// Restricts the algorithm to the nodes of a sub-cluster, as if every pod's node selector required it. The profile
    /// must include NodeAffinity; otherwise plugins that examine all nodes (preemption, topology spread) ignore the
    /// restriction. A pod whose selector requires another sub-cluster has no nodes.
    #[must_use]
    pub fn with_sub_cluster(mut self, sub_cluster: SubCluster) -> Algorithm {
        self.admission = Some(Admission::new(sub_cluster));
        // An earlier cycle may have listed the nodes without this restriction.
        self.orders.fill_with(Order::default);
        self
    }

    /// Returns the framework.
    #[must_use]
    pub fn framework(&self) -> &Arc<Framework> {
        &self.framework
    }

    /// Returns the configuration.
    pub(super) fn config(&self) -> &AlgorithmConfig {
        &self.config
    }

    /// Returns the partition whose nodes are searched first.
    pub(super) fn partition(&self) -> Option<&Partition> {
        self.partition.as_ref()
    }

    /// Returns the sub-cluster that the algorithm is restricted to, or `None` if it uses all nodes.
    pub(super) fn sub_cluster(&self) -> Option<&SubCluster> {
        self.admission.as_ref().map(|admission| &admission.sub_cluster)
    }

    /// Returns the lists of nodes in the order in which they are searched.
    pub(super) fn orders(&self) -> &[Order] {
        &self.orders
    }

    /// Returns what a search needs: `percentageOfNodesToScore`, the caches and the lists of nodes.
    pub(super) fn search_state(&mut self) -> (u8, &mut Memo, &mut [Order]) {
        (self.config.percentage_of_nodes, &mut self.memo, &mut self.orders)
    }

    /// Creates the state of a new cycle, for [`Algorithm::decide`].
    pub fn state(&mut self) -> CycleState {
        self.cycles += 1;
        self.framework.state(self.cycles)
    }

    /// Returns the progress of the algorithm: the number of cycles, and where in each list the next search starts.
    pub(crate) fn progress(&self) -> Progress {
        let mut starts = [0; 2];
        starts.iter_mut().zip(&self.orders).for_each(|(start, order)| *start = order.next());
        Progress { cycles: self.cycles, starts }
    }

    /// Restores an earlier progress. Later decisions are then the same as if the cycles after it had not run.
    pub(crate) fn go_back(&mut self, to: &Progress) {
        self.cycles = to.cycles;
        self.orders.iter_mut().zip(&to.starts).for_each(|(order, next)| order.start_at(*next));
    }

    /// Decides on a node for the pod on this version. The cycle's state is dropped when the call returns. If plugins
    /// reserve and bind, use [`Algorithm::decide`], which leaves the state to the caller.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster has no nodes, if no node is feasible (with the number of nodes for each reason),
    /// or if a plugin fails.
    pub fn schedule(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Decision, ScheduleError> {
        let state = self.state();
        self.decide(Cycle::new(cluster, pod, &state))
    }

    /// Decides on a node for the pod of a cycle. If the pod is nominated to a node that passes, returns that node. If
    /// no node is feasible, asks plugins to make one feasible ([`Framework::post_filter`]).
    ///
    /// With [`Partition::Shards`], a pod that fits nowhere and cannot preempt others loses its nomination, which may
    /// come from a hand-over. The pod then belongs to its own shard again. In kube-scheduler it keeps the nomination.
    ///
    /// # Errors
    ///
    /// Those of [`Algorithm::schedule`].
    pub fn decide(&mut self, cycle: Cycle<'_>) -> Result<Decision, ScheduleError> {
        let mut decided = self.decide_or(cycle, post_filter);
        if let (Some(Partition::Shards(_)), Err(ScheduleError::Fit(fit))) =
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
    pub fn decide_as_it_is(&mut self, cycle: Cycle<'_>) -> Result<Decision, ScheduleError> {
        self.decide_or(cycle, |_, _, diagnosis| ScheduleError::Fit(Box::new(diagnosis.fit_error())))
    }

    /// Updates the lists of nodes to this version.
    pub(super) fn refresh(&mut self, cluster: &Cluster) {
        let partition = self.partition.as_ref();
        // Read once, so that each node is in exactly one of the lists.
        let selection = partition.map_or(0, Partition::selection);
        let sub_cluster = self.admission.as_ref().map(|admission| &admission.sub_cluster);
        let sections = [self.section(0), self.section(1)];
        for (at, (order, section)) in self.orders.iter_mut().zip(sections).enumerate() {
            order.refresh(cluster, section, selection, |chunk| {
                let live = chunk.live();
                let all = sub_cluster.map_or(live, |of| of.lanes(cluster, chunk, live));
                let Some(own) = partition else { return all };
                let own = own.lanes(cluster, chunk, all, selection);
                if at == 0 { own } else { all & !own }
            });
        }
    }

    fn decide_or(
        &mut self,
        cycle: Cycle<'_>,
        fits_nowhere: fn(&Framework, Cycle<'_>, &Diagnosis<'_>) -> ScheduleError,
    ) -> Result<Decision, ScheduleError> {
        self.refresh(cycle.cluster);
        if self.orders.iter().all(|order| order.nodes() == 0)
            || self.sub_cluster().is_some_and(|of| of.excludes(cycle.pod))
        {
            return Err(ScheduleError::NoNodes);
        }
        let Algorithm { framework, config, pool, memo, admission, orders, .. } = self;
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
        let keep = match cycle.pod.node_name.is_none() && filters.names().is_none() {
            true => Keep::FromSecondPod,
            false => Keep::Never,
        };
        let (of, template) = ((cycle.cluster, chunks), &cycle.pod.template);
        let cache = memo.cache(of, template, keep);
        let (recorder, threads) = (framework.recorder(), Threads::new(pool.as_deref()));
        let found = timed_step(recorder, Step::Filter, code, || {
            Search::new(cycle, filters, threads, cache).find(&stages, orders, &mut verdicts)
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

/// The progress of an [`Algorithm`].
pub(crate) struct Progress {
    cycles: u64,
    /// There are at most two lists.
    starts: [usize; 2],
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
fn post_filter(
    framework: &Framework,
    cycle: Cycle<'_>,
    diagnosis: &Diagnosis<'_>,
) -> ScheduleError {
    let mut error = diagnosis.fit_error();
    if framework.has_plugins_at(Point::PostFilter) {
        let (nomination, status) = framework.post_filter(cycle, diagnosis);
        (error.nomination, error.post_filter) = (nomination, status);
    }
    ScheduleError::Fit(Box::new(error))
}
