//! The scheduling cycle: filter, score, choose (schedule_one.go).

use std::sync::Arc;

use crate::model::Pod;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::choose::Choice;
use super::decision::{Decision, ScheduleError};
use super::filters::Filters;
use super::godel::workflow::Admission;
use super::godel::{Partition, SubCluster};
use super::memo::Memo;
use super::parallel::Threads;
use super::recorder::{Step, timed_step};
use super::sampling::Order;
use super::search::{Chosen, Search};
use super::stages::Stages;
use super::status::code;
use super::{Cycle, CycleState, Diagnosis, Framework, Point};

/// How an [`Algorithm`] decides.
#[derive(Clone, Debug, Default)]
pub struct AlgorithmConfig {
    /// `percentageOfNodesToScore`; 0 adapts to the number of nodes.
    pub percentage_of_nodes: u8,
    /// Breaks ties: the same seed gives the same choice, whatever the threads.
    pub seed: u64,
}

/// Decides for one pod after another.
///
/// Which nodes are looked at, their scores and the choice among equals depend
/// on the cluster, the pods before and the seed, never on the number of
/// threads.
pub struct Algorithm {
    framework: Arc<Framework>,
    config: AlgorithmConfig,
    pool: Option<Arc<rayon::ThreadPool>>,
    /// How many cycles there were.
    cycles: u64,
    memo: Memo,
    partition: Option<Partition>,
    admission: Option<Admission>,
    /// All nodes, or those of the sub-cluster; where there is a partition its own, and the others.
    orders: Vec<Order>,
}

impl Algorithm {
    /// A scheduler that evaluates on the calling thread, and on `pool` where
    /// there is much to evaluate.
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
        Algorithm {
            framework,
            config,
            pool,
            cycles: 0,
            memo: Memo::default(),
            partition: None,
            admission: None,
            orders: vec![Order::default()],
        }
    }

    /// With a part of the nodes that is tried before the others.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use portolan::framework::{Algorithm, AlgorithmConfig, Framework, Partition};
    ///
    /// // Two schedulers of one engine.
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

    /// For the nodes of a sub-cluster: pods go there alone, as if their node selectors
    /// said it; so the profile has to have NodeAffinity, or what looks at all nodes
    /// (preemption, spread) does not know of it. A pod whose selector asks for another
    /// sub-cluster has no nodes.
    #[must_use]
    pub fn with_sub_cluster(mut self, sub_cluster: SubCluster) -> Algorithm {
        self.admission = Some(Admission::new(sub_cluster));
        self
    }

    /// The framework.
    #[must_use]
    pub fn framework(&self) -> &Arc<Framework> {
        &self.framework
    }

    /// How it decides.
    pub(super) fn config(&self) -> &AlgorithmConfig {
        &self.config
    }

    /// Which nodes are tried first.
    pub(super) fn partition(&self) -> Option<&Partition> {
        self.partition.as_ref()
    }

    /// The nodes that it has to do with; all where there is none.
    pub(super) fn sub_cluster(&self) -> Option<&SubCluster> {
        self.admission.as_ref().map(|admission| &admission.sub_cluster)
    }

    /// The lists of nodes, those that are tried first before the others.
    pub(super) fn orders(&self) -> &[Order] {
        &self.orders
    }

    /// The state of a new cycle, for [`Algorithm::decide`].
    pub fn state(&mut self) -> CycleState {
        self.cycles += 1;
        self.framework.state(self.cycles)
    }

    /// A node for the pod, by the version given. What plugins kept for the pod is
    /// gone with the call: see [`Algorithm::decide`] where they reserve and bind.
    ///
    /// # Errors
    ///
    /// There is no node, or none will do, with the reasons counted; or a plugin
    /// failed.
    pub fn schedule(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Decision, ScheduleError> {
        let state = self.state();
        self.decide(Cycle::new(cluster, pod, &state))
    }

    /// A node for the pod of a cycle. A pod that is nominated to a node goes
    /// there if that node will do. Where none will do, plugins are asked to change
    /// that ([`Framework::post_filter`]).
    ///
    /// # Errors
    ///
    /// As of [`Algorithm::schedule`].
    pub fn decide(&mut self, cycle: Cycle<'_>) -> Result<Decision, ScheduleError> {
        self.decide_or(cycle, post_filter)
    }

    /// The same without PostFilter: nobody makes room for the pod.
    ///
    /// # Errors
    ///
    /// As of [`Algorithm::schedule`].
    pub fn decide_as_it_is(&mut self, cycle: Cycle<'_>) -> Result<Decision, ScheduleError> {
        let fits_nowhere = |_: &Framework, _: Cycle<'_>, filters: &Filters<'_>| {
            ScheduleError::Fit(Box::new(filters.fit_error()))
        };
        self.decide_or(cycle, fits_nowhere)
    }

    /// Brings the lists of nodes up to date.
    fn refresh(&mut self, cluster: &Cluster) {
        let partition = self.partition.as_ref();
        let sub_cluster = self.admission.as_ref().map(|admission| &admission.sub_cluster);
        for (at, order) in self.orders.iter_mut().enumerate() {
            order.refresh(cluster, |chunk| {
                let live = chunk.live();
                let all = sub_cluster.map_or(live, |of| of.lanes(cluster, chunk, live));
                let Some(own) = partition else { return all };
                let own = own.lanes(cluster, chunk, all);
                if at == 0 { own } else { all & !own }
            });
        }
    }

    fn decide_or(
        &mut self,
        cycle: Cycle<'_>,
        fits_nowhere: fn(&Framework, Cycle<'_>, &Filters<'_>) -> ScheduleError,
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
                framework.after_filter(cycle, filters, Vec::new)?;
                return Err(fits_nowhere(framework, cycle, filters));
            }
            None => {}
        }
        let sub_cluster = admission.as_ref().map(|admission| &admission.sub_cluster);
        let percentage_of_nodes = config.percentage_of_nodes;
        let stages = Stages { framework, cycle, filters, sub_cluster, percentage_of_nodes };
        if let Some(decision) = stages.unscored()? {
            let node = || cycle.cluster.node(&decision.node);
            framework.after_filter(cycle, filters, || node().map_or_else(Vec::new, lane_of))?;
            return Ok(decision);
        }
        let chunks = orders.iter().map(|order| order.chunks().len()).sum();
        let keep = cycle.pod.node_name.is_none() && filters.names().is_none();
        let cache = memo.cache((cycle.cluster, chunks), &cycle.pod.template, keep);
        let (recorder, threads) = (framework.recorder(), Threads::new(pool.as_deref()));
        let found = timed_step(recorder, Step::Filter, code, || {
            Search { cycle, filters, threads, cache }.find(&stages, orders)
        })?;
        framework.after_filter(cycle, filters, || found.lanes())?;
        let chosen = match found.feasible {
            0 | 1 => found.first(),
            _ => timed_step(recorder, Step::Score, code, || {
                Choice { framework, cycle, threads, seed: config.seed, found: &found }.choose(cache)
            })?,
        };
        let chosen = chosen.and_then(|of| Some((cycle.cluster.node_in(of.chunk, of.lane)?, of)));
        let Some((node, Chosen { score, .. })) = chosen else {
            return Err(fits_nowhere(framework, cycle, filters));
        };
        Ok(Decision::of(node, score, found.feasible, found.looked_at))
    }
}

/// A node as the only feasible one.
fn lane_of(node: NodeInfo<'_>) -> Vec<(&Chunk, u64)> {
    let (chunk, lane) = node.place();
    vec![(chunk, 1 << lane)]
}

/// The error of a pod for which no node will do, after plugins tried to change
/// that.
fn post_filter(framework: &Framework, cycle: Cycle<'_>, filters: &Filters<'_>) -> ScheduleError {
    let mut error = filters.fit_error();
    if framework.has_plugins_at(Point::PostFilter) {
        let (nomination, status) = framework.post_filter(cycle, &Diagnosis::new(filters));
        (error.nomination, error.post_filter) = (nomination, status);
    }
    ScheduleError::Fit(Box::new(error))
}
