//! Decides on a node for one pod after another, on any version of a cluster. [`decision`](super::decision) has the
//! steps.
//!
//! A search begins after the nodes that the search before it examined, in a list of all nodes: round robin over zones.
//! That position is a field of the [`Algorithm`] and not of a version, so schedulers that share an engine do not
//! disturb each other. Work that takes long enough is shared with a thread pool (`src/framework/parallel.rs`), and its
//! results are combined in list order, so the decision does not depend on threads.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::snapshot::Cluster;

use super::godel::sub_cluster::Admission;
use super::godel::{Partition, SubCluster};
use super::memo::Memo;
use super::parallel::Workers;
use super::sampling::{Order, Section};
use super::{CycleState, Framework};

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
    pub(super) framework: Arc<Framework>,
    pub(super) config: AlgorithmConfig,
    pub(super) workers: Option<Workers>,
    /// The number of cycles so far.
    cycles: u64,
    pub(super) memo: Memo,
    pub(super) partition: Option<Partition>,
    pub(super) admission: Option<Admission>,
    /// One list of all nodes, or of those of the sub-cluster. With a partition, two lists: the partition's own nodes,
    /// and the other nodes.
    pub(super) orders: Vec<Order>,
    section: Section,
}

impl Algorithm {
    /// Creates an algorithm that evaluates nodes on the calling thread. The threads of `pool` join in if plugins judge or
    /// score many nodes whose verdicts are not cached, or take long for each node. They are additional threads: a pool of
    /// one thread makes two. They spin while work is left, and for another millisecond, so that the next decision can
    /// begin at once; with several schedulers on one pool, each keeps them awake. A plugin is then called on these
    /// threads, and should not wait for rayon there: it might execute another scheduler's work meanwhile. On a thread of
    /// the pool itself nothing is shared.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::{node, pod};
    /// use portolan::{Algorithm, AlgorithmConfig, Framework};
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
            workers: pool.map(Workers::new),
            cycles: 0,
            memo: Memo::default(),
            partition: None,
            admission: None,
            orders: vec![Order::default()],
            section: Section::default(),
        }
    }

    /// Sets the position, from 0, of this algorithm's scheduler among the `of` schedulers of an engine. Each scheduler
    /// begins its searches in its own section of the node list. [`Scheduler`](crate::Scheduler) calls this
    /// by itself.
    ///
    /// A search that ends when enough nodes are feasible examines the nodes after those of the search before it, and
    /// leaves the section only if too few of its nodes are feasible. Schedulers without sections examine and change the
    /// same nodes, so that their placements conflict and their caches are of little use. The sections change hands
    /// after one to two events for each node, so that all nodes are used if one scheduler places most of the pods. A
    /// search that examines all nodes is not affected, nor are the nodes of a [`Partition::Share`].
    #[doc(hidden)]
    pub fn set_section(&mut self, index: u32, of: NonZeroU32) {
        self.section = Section { index: index % of, of };
    }

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
    /// use portolan::plugin::Partition;
    /// use portolan::{Algorithm, AlgorithmConfig, Framework};
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

    /// Returns the sub-cluster that the algorithm is restricted to, or `None` if it uses all nodes.
    pub(super) fn sub_cluster(&self) -> Option<&SubCluster> {
        self.admission.as_ref().map(|admission| &admission.sub_cluster)
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
}

pub(crate) struct Progress {
    cycles: u64,
    /// There are at most two lists.
    starts: [usize; 2],
}
