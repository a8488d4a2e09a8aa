//! The traits that plugins implement (k8s.io/kube-scheduler/framework `interface.go`).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{CustomEvent, Name, Pod};
use crate::snapshot::{Chunk, Cluster, Column, Freed, NodeInfo, Victims, lanes};

use super::{
    BindingFuture, ClusterEvent, Code, Cycle, Diagnosis, Hint, Interest, Point, QueuedPod, Reasons,
    Status, dispatch,
};

/// The result of [`Plugin::pre_filter`]: how a plugin filters nodes for one pod.
pub enum PreFilter<'a> {
    /// The plugin accepts every node for this pod, so no filter is called (`Skip`).
    Skip,
    /// The plugin judges each node with this filter.
    Filter(Box<dyn Filter + 'a>),
    /// The plugin judges these nodes with this filter and excludes all other nodes (`PreFilterResult`). Duplicates, and
    /// names of nodes that do not exist, are ignored.
    Only(Vec<Name>, Box<dyn Filter + 'a>),
}

/// The result of [`Plugin::pre_score`]: how a plugin scores nodes for one pod.
pub enum PreScore<'a> {
    /// The plugin does not score this pod: its score is left out (`Skip`).
    Skip,
    /// All feasible nodes have this score, which is already normalized.
    All(i64),
    /// The plugin scores each node with this score.
    Score(Box<dyn Score + 'a>),
}

/// The change to a pod's nomination that [`Plugin::post_filter`] requests (`NominatingInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nomination {
    /// The pod keeps its nominated node, if it has one (`ModeNoop`).
    #[default]
    Keep,
    /// The pod is no longer nominated to a node.
    Clear,
    /// The pod is nominated to this node.
    Node(Name),
}

/// The result of [`Plugin::permit`]: whether a pod may be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The pod may be bound as far as this plugin is concerned.
    Allow,
    /// The pod waits until the plugin allows it, and is rejected after this time, which is capped at 15 minutes; see
    /// [`WaitingPods`](super::WaitingPods).
    Wait(Duration),
}

/// The result of [`Plugin::pre_bind_pre_flight`]: whether a plugin has work to do before a pod is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreFlight {
    /// [`Plugin::pre_bind`] is called.
    Work,
    /// [`Plugin::pre_bind`] is not called.
    Skip,
}

/// The result of [`Plugin::bind`]: whether a plugin bound a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bind {
    /// The plugin bound the pod.
    Bound,
    /// The plugin leaves the pod to the next Bind plugin.
    Skip,
    /// The pod is not bound, because it has changed since the decision or no longer exists. The placement is undone.
    Conflict(String),
    /// It is not known whether the pod is bound. The placement is not undone: the pod stays assumed, and counts on its
    /// node, until the cluster reports the pod or its deletion.
    Unknown(String),
    /// This scheduler may not bind the pod to the node now, and has not tried. The placement is undone. It
    /// is not reported as a failure.
    Refused(String),
}

/// The constants of a plugin, which [`Plugin::info`] returns.
///
/// ```
/// use portolan::plugin::{Actions, EventResource, Interest, PluginInfo, Point};
///
/// const INFO: PluginInfo = PluginInfo::new("Racks", &[Point::Filter])
///     .events(&[Interest { resources: &[EventResource::Node], actions: Actions::ADD }])
///     .local();
/// assert!(INFO.name() == "Racks" && INFO.extends(Point::Filter));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PluginInfo {
    pub(super) name: &'static str,
    points: &'static [Point],
    pub(super) events: &'static [Interest],
    pub(super) is_local: bool,
    pub(super) has_after_filter: bool,
    pub(crate) gathers_groups: bool,
}

impl PluginInfo {
    /// Creates the description of a plugin with this name and these extension points, and with the defaults of the
    /// other constants.
    ///
    /// The name is unique within a framework. Configurations, statuses and metrics refer to the plugin by it
    /// (`Plugin.Name`). The framework enables the plugin at its points unless it is
    /// [configured](super::Framework::with_points) otherwise. A plugin at [`Point::Filter`] is asked for its filter by
    /// [`Plugin::pre_filter`], even if it is not at [`Point::PreFilter`]. The same holds for [`Point::Score`] and
    /// [`Plugin::pre_score`].
    #[must_use]
    pub const fn new(name: &'static str, points: &'static [Point]) -> PluginInfo {
        PluginInfo {
            name,
            points,
            events: Interest::EVERYTHING,
            is_local: false,
            has_after_filter: false,
            gathers_groups: false,
        }
    }

    /// Sets the events that may make a pod schedulable that the plugin rejected, or ungate a pod that it gated
    /// (`EnqueueExtensions.EventsToRegister`). No other event requeues such a pod on behalf of the plugin. The default
    /// is every event.
    #[must_use]
    pub const fn events(self, events: &'static [Interest]) -> PluginInfo {
        PluginInfo { events, ..self }
    }

    /// Declares that the plugin's verdict on a node depends only on the node and the pod's template: not on other
    /// nodes, other objects or the time. If its PreFilter rejects pods or names nodes, that depends on the template
    /// alone, and so do the answers of its PreScore.
    ///
    /// The scheduler caches the verdicts of local plugins until the node changes, and their scores too if these need no
    /// normalization. Pods that name their node are not cached. If the verdicts depend on other data nevertheless,
    /// decisions are wrong. Kube-scheduler has no counterpart.
    #[must_use]
    pub const fn local(self) -> PluginInfo {
        PluginInfo { is_local: true, ..self }
    }

    /// Requires that [`Plugin::after_filter`] be called.
    #[must_use]
    pub const fn after_filter(self) -> PluginInfo {
        PluginInfo { has_after_filter: true, ..self }
    }

    /// Requires that the pods of a [`PodGroup`](crate::model::PodGroup) be scheduled together: the queue pops them
    /// together, and reports the status of each group in [`Handle::pod_groups`](super::Handle::pod_groups).
    #[must_use]
    pub(crate) const fn gathers_groups(self) -> PluginInfo {
        PluginInfo { gathers_groups: true, ..self }
    }

    /// Returns the plugin's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the plugin implements this extension point.
    #[must_use]
    pub fn extends(&self, point: Point) -> bool {
        self.points.contains(&point)
    }
}

/// A scheduling plugin.
///
/// A plugin has a name, lists the extension points that it implements, and overrides the corresponding methods. All
/// other methods have defaults. A [`Framework`](super::Framework) calls its plugins from any number of threads; a
/// plugin that keeps state between pods must synchronize it. Data for a single pod belongs in the [`Filter`] or
/// [`Score`] that the plugin returns for the pod, or in the cycle's [`CycleState`](super::CycleState).
///
/// Success is `Ok`. A status whose code is a rejection ([`Code::is_rejection`]) rejects the pod. Any other status
/// ends the cycle with an error. A panic counts as an error ([`Panics`](super::Panics)).
///
/// In kube-scheduler each extension point is an interface of its own, such as `FilterPlugin`; the
/// [module](crate::plugin) has a table of the counterparts.
///
/// # Examples
///
/// A plugin that keeps pods away from cordoned racks:
///
/// ```
/// use portolan::cache::{Config, Engine, NodeInfo};
/// use portolan::model::{node, pod};
/// use portolan::plugin::{Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Status};
/// use portolan::{Algorithm, AlgorithmConfig, Framework};
///
/// struct CordonedRacks(Vec<&'static str>);
///
/// impl Plugin for CordonedRacks {
///     fn info(&self) -> PluginInfo {
///         PluginInfo::new("CordonedRacks", &[Point::Filter])
///     }
///
///     fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
///         if self.0.is_empty() {
///             return Ok(PreFilter::Skip);
///         }
///         Ok(PreFilter::Filter(Box::new(Racks(&self.0))))
///     }
/// }
///
/// struct Racks<'a>(&'a [&'static str]);
///
/// impl Filter for Racks<'_> {
///     fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
///         let rack = node.node()?.labels.get("rack")?;
///         self.0.contains(&rack).then(|| {
///             let reason = "node(s) in a cordoned rack";
///             Status::new(Code::UnschedulableAndUnresolvable, "CordonedRacks", reason)
///         })
///     }
/// }
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// writer.add_node(node("n1").label("rack", "r1").build())?;
/// writer.add_node(node("n2").label("rack", "r2").build())?;
/// writer.publish();
///
/// let framework = Framework::new(vec![(Box::new(CordonedRacks(vec!["r1"])), 0)])?;
/// let mut scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
/// let decision = scheduler.schedule(&reader.snapshot(), &pod("web-0").build())?;
/// assert_eq!(&*decision.node, "n2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Plugin: Send + Sync {
    /// Returns the plugin's name, its extension points and its other constants. A framework reads them once, when it is
    /// built.
    fn info(&self) -> PluginInfo;

    /// Decides whether a pod may enter the active queue (`PreEnqueuePlugin`). Called whenever the queue is about to
    /// make the pod active, so it must be fast.
    ///
    /// # Errors
    ///
    /// Any status gates the pod: it stays out of the active queue until an event that the plugin
    /// [registered](PluginInfo::events) for occurs.
    fn pre_enqueue(&self, _pod: &Pod) -> Result<(), Status> {
        Ok(())
    }

    /// Compares two pods of the queue, and returns `Less` if `one` is scheduled first (`QueueSortPlugin.Less`). The
    /// order must be transitive. Pods that compare equal are scheduled in order of arrival. Only one plugin of a
    /// framework can be enabled at [`Point::QueueSort`].
    fn compare(&self, _one: &QueuedPod, _other: &QueuedPod) -> Ordering {
        Ordering::Equal
    }

    /// Returns a key that orders pods exactly as [`Plugin::compare`] does, or `None` if there is no such key. With
    /// keys, the queue compares numbers instead of calling the plugin.
    ///
    /// A plugin must return a key for every pod or for none, and equal keys for exactly those pods that compare equal.
    fn sort_key(&self, _pod: &QueuedPod) -> Option<[i64; 2]> {
        None
    }

    /// Returns whether an event that the plugin [registered](PluginInfo::events) for may make this pod schedulable
    /// (`QueueingHintFn`). `cluster` is a version that contains the event.
    ///
    /// Called for each pod that the plugin rejected and that still waits, so it should be O(1). The default is
    /// [`Hint::Queue`].
    ///
    /// # Errors
    ///
    /// The plugin cannot decide. The pod is then requeued as if the hint were [`Hint::Queue`].
    fn queueing_hint(
        &self,
        _pod: &Pod,
        _event: &ClusterEvent<'_>,
        _cluster: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(Hint::Queue)
    }

    /// Prepares the plugin's filter for one pod (`PreFilterPlugin.PreFilter`). Called before any node is examined,
    /// usually once per scheduling cycle; commit checks and what-if questions call it as well. Compute data that all
    /// verdicts share here, and keep it in the returned filter. Any number of threads may read the filter, and it is
    /// dropped at the end of the cycle.
    ///
    /// The default is [`PreFilter::Skip`], so a plugin must override this method to reject any node at
    /// [`Point::Filter`]. A plugin that is enabled at [`Point::PreFilter`] but not at [`Point::Filter`] can reject the
    /// pod and restrict its nodes ([`PreFilter::Only`]), but its filter is not called.
    ///
    /// # Errors
    ///
    /// The status applies to all nodes. After [`Code::UnschedulableAndUnresolvable`] no other plugin is called. After
    /// [`Code::Unschedulable`] the remaining plugins are called, because preemption needs their filters. Any other code
    /// ends the cycle with an error.
    fn pre_filter<'a>(&'a self, _cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Skip)
    }

    /// Observes the nodes that passed all filters, if the plugin [requires it](PluginInfo::after_filter). Called in
    /// every cycle, whether or not any node passed and whether or not nodes are scored afterwards, and before
    /// [`Plugin::post_filter`] and [`Plugin::pre_score`]. This is the `PostFilter` of Kubernetes 1.17 and of Gödel's
    /// framework, which cannot change the nodes.
    ///
    /// `feasible` contains the nodes that were found before the search stopped: only the nominated or preferred node if
    /// that one passed, and otherwise as many nodes as suffice. `diagnosis` computes the status of a node on demand,
    /// even if the search did not examine the node.
    ///
    /// # Errors
    ///
    /// Returns a status if the plugin fails. The cycle then ends with an error, even if the status is a rejection.
    fn after_filter(
        &self,
        _cycle: Cycle<'_>,
        _feasible: &Feasible<'_>,
        _diagnosis: &Diagnosis<'_>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Tries to make a node feasible if none is, for example by preemption (`PostFilterPlugin.PostFilter`). Returns the
    /// change to the pod's nomination, and a status unless the plugin succeeded.
    ///
    /// Plugins are called in order. Success, [`Code::UnschedulableAndUnresolvable`] and failures end the step; after
    /// [`Code::Unschedulable`] the next plugin is called.
    fn post_filter(
        &self,
        _cycle: Cycle<'_>,
        _diagnosis: &Diagnosis<'_>,
    ) -> (Nomination, Option<Status>) {
        (Nomination::Keep, None)
    }

    /// Prepares the plugin's score for one pod (`PreScorePlugin.PreScore`). Called after filtering if several nodes are
    /// feasible, with all of these nodes.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle with an error.
    fn pre_score<'a>(
        &'a self,
        _cycle: Cycle<'a>,
        _feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Skip)
    }

    /// Prepares the plugin's score if the plugin is enabled at [`Point::Score`] but disabled at [`Point::PreScore`]. In
    /// kube-scheduler, `Score` then finds no state of its PreScore: most plugins compute the state during `Score`, and
    /// a plugin whose PreScore would return `Skip` scores 0. The default calls [`Plugin::pre_score`].
    ///
    /// # Errors
    ///
    /// Returns a status if the plugin cannot score without its PreScore. Any status ends the cycle with an error.
    fn score_alone<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        self.pre_score(cycle, feasible)
    }

    /// Reserves resources for the pod that the cluster does not account for itself (`ReservePlugin.Reserve`). Called
    /// after the pod was assumed on the node.
    ///
    /// # Errors
    ///
    /// Any status undoes the placement: the remaining plugins are not called, and [`Plugin::unreserve`] is called on
    /// all Reserve plugins. The pod is then forgotten and requeued.
    fn reserve(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<(), Status> {
        Ok(())
    }

    /// Returns whether [`Plugin::reserve`] or [`Plugin::permit`] does anything for this pod in this cluster. A pod for
    /// which they do nothing may be decided in a [batch](crate::Scheduler::schedule_batch), that is, before they are
    /// called for the pods before it. The default is `true`. Only plugins at [`Point::Reserve`] or [`Point::Permit`]
    /// are asked.
    fn acts_at_reserve(&self, _pod: &Pod, _cluster: &Cluster) -> bool {
        true
    }

    /// Returns the events of [stores](crate::cache::Store) that show what [`Plugin::reserve`] would reserve. Gangs and
    /// what-if questions place pods in a fork one after the other, without reserving anything, and apply the events there
    /// for the next pods. Called after a node was chosen, before the pod is placed in the fork. None by default. Only
    /// plugins at [`Point::Reserve`] are asked.
    ///
    /// # Errors
    ///
    /// Any status means that the pod is not placed in the fork.
    fn reserve_in_fork(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<Vec<CustomEvent>, Status> {
        Ok(Vec::new())
    }

    /// Returns whether the plugin treats all pods of this pod's template alike. For pods that name no node, its answers
    /// at PreFilter and PreScore then depend on no property of the pod but the template, and it writes nothing to the
    /// cycle's state that it reads after the node is chosen.
    ///
    /// An answer `Skip` or [`PreScore::All`], and every answer of a [local](PluginInfo::local) plugin, also holds after
    /// more pods of the template were placed, and for other feasible nodes. If all plugins do, a
    /// [batch](crate::Scheduler::schedule_batch) prepares them once for pods of one template in a row. The
    /// default is `false`; local plugins are not asked. The answer depends on the cluster and the pod's template alone.
    fn treats_template_alike(&self, _pod: &Pod, _cluster: &Cluster) -> bool {
        false
    }

    /// Releases the resources that [`Plugin::reserve`] reserved, because the pod will not be bound to the node
    /// (`ReservePlugin.Unreserve`). Called in reverse order of the plugins. Must be idempotent, and must do nothing if
    /// `reserve` was not called before.
    fn unreserve(&self, _cycle: Cycle<'_>, _node: &Name) {}

    /// Decides whether the pod may be bound now, must wait, or is rejected (`PermitPlugin.Permit`). Called after
    /// [`Plugin::reserve`].
    ///
    /// # Errors
    ///
    /// Any status undoes the placement, as for [`Plugin::reserve`].
    fn permit(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<Permit, Status> {
        Ok(Permit::Allow)
    }

    /// Called after the pod was added to the [waiting pods](super::WaitingPods), because this plugin or another one
    /// returned [`Permit::Wait`]. Only plugins at [`Point::Permit`] are called.
    ///
    /// The version may be newer than that of [`Plugin::permit`]. A plugin that waits for a change of the cluster must
    /// look for the change here once, since it may have happened between the two calls.
    fn waits(&self, _cycle: Cycle<'_>) {}

    /// Returns whether [`Plugin::pre_bind`] has work to do for this pod (`PreBindPreFlight`). Must be fast and must not
    /// change anything. The default is [`PreFlight::Work`].
    ///
    /// # Errors
    ///
    /// Returns a status with [`Code::Error`] if the plugin failed. Other codes are not allowed and also count as
    /// failures. The pod is not bound.
    fn pre_bind_pre_flight(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<PreFlight, Status> {
        Ok(PreFlight::Work)
    }

    /// Prepares what the pod needs on its node, such as volumes, before it is bound (`PreBindPlugin.PreBind`). May
    /// block. Skipped if [`Plugin::pre_bind_pre_flight`] returned [`PreFlight::Skip`].
    ///
    /// Preemption may cancel the pod meanwhile ([`Handle::pod_in_pre_bind`](super::Handle::pod_in_pre_bind)). The pod
    /// is then not bound, whatever this method returns, but its resources are freed only after it has returned.
    ///
    /// # Errors
    ///
    /// Any status prevents the binding: the placement is undone and the pod is requeued.
    fn pre_bind(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<(), Status> {
        Ok(())
    }

    /// Binds the pod to the node (`BindPlugin.Bind`). Plugins are called in order until one does not return
    /// [`Bind::Skip`]. May block.
    ///
    /// # Errors
    ///
    /// Any status means that the pod is not bound: the placement is undone and the pod is requeued.
    fn bind(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<Bind, Status> {
        Ok(Bind::Skip)
    }

    /// Returns the same binding as a future, which needs no thread of its own, or `None` (the default) if the plugin
    /// may skip the pod or supports [`Plugin::bind`] only. Must be fast and must not block; nothing may be sent before
    /// the future is polled. Called only for the first Bind plugin, if no extender binds the pod.
    fn request_bind(&self, _pod: &Arc<Pod>, _node: &Name) -> Option<BindingFuture> {
        None
    }

    /// Observes that the pod was bound, for example to clean up (`PostBindPlugin.PostBind`).
    fn post_bind(&self, _cycle: Cycle<'_>, _node: &Name) {}
}

/// The examined nodes that passed all filters.
pub struct Feasible<'a> {
    cluster: &'a Cluster,
    chunks: Vec<(&'a Chunk, u64)>,
}

impl<'a> Feasible<'a> {
    pub(crate) fn new(cluster: &'a Cluster, chunks: Vec<(&'a Chunk, u64)>) -> Feasible<'a> {
        Feasible { cluster, chunks }
    }

    /// Creates the set of these nodes of the cluster. O(nodes).
    #[must_use]
    pub fn of(cluster: &'a Cluster, nodes: impl IntoIterator<Item = NodeInfo<'a>>) -> Feasible<'a> {
        let mut chunks = Vec::new();
        let mut indexes: HashMap<*const Chunk, usize> = HashMap::new();
        for (chunk, lane) in nodes.into_iter().map(|node| node.place()) {
            let at = *indexes.entry(chunk).or_insert_with(|| {
                chunks.push((chunk, 0));
                chunks.len() - 1
            });
            chunks[at].1 |= 1 << lane;
        }
        Feasible { cluster, chunks }
    }

    /// Returns whether no node passed.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.iter().all(|(_, mask)| *mask == 0)
    }

    /// Iterates over the chunks that contain such nodes, each with the mask of their lanes.
    pub fn chunks(&self) -> impl Iterator<Item = (&'a Chunk, u64)> + Clone {
        self.chunks.iter().copied()
    }

    /// Iterates over the nodes, chunk by chunk.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        let nodes = self
            .chunks
            .iter()
            .flat_map(|(chunk, mask)| lanes(*mask).map(|lane| self.cluster.node_in(chunk, lane)));
        nodes.flatten()
    }
}

/// The nodes whose scores are normalized, in the order of the scores. Nodes are looked up on demand.
pub struct ScoredNodes<'a>(Source<'a>);

enum Source<'a> {
    Feasible(&'a Feasible<'a>),
    Listed(&'a [NodeInfo<'a>]),
}

impl<'a> ScoredNodes<'a> {
    pub(super) fn feasible(nodes: &'a Feasible<'a>) -> ScoredNodes<'a> {
        ScoredNodes(Source::Feasible(nodes))
    }

    pub(super) fn listed(nodes: &'a [NodeInfo<'a>]) -> ScoredNodes<'a> {
        ScoredNodes(Source::Listed(nodes))
    }

    /// Iterates over the nodes, one for each score.
    pub fn iter(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        let (feasible, listed) = match self.0 {
            Source::Feasible(nodes) => (Some(nodes), &[][..]),
            Source::Listed(nodes) => (None, nodes),
        };
        feasible.into_iter().flat_map(Feasible::nodes).chain(listed.iter().copied())
    }
}

/// Which data of a node's pods a filter's verdict depends on. Determines how preemption computes the verdict on a node
/// without some of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// None: the verdict does not depend on the node's pods.
    Node,
    /// The number of pods and the sums of their requests: see [`Filter::filter_without`].
    Amounts,
    /// Other data of the pods, which is visible on a fork. [`Filter::add_pod`] and [`Filter::remove_pod`]
    /// must not fail, because they are not called for the pods of a node that other filters reject.
    Pods,
    /// Unknown data: preemption tries every node on a fork.
    Anything,
}

/// Judges nodes for one pod (`FilterPlugin.Filter`). Returned by [`Plugin::pre_filter`], read by any number of threads,
/// and dropped at the end of the cycle.
///
/// Only [`Filter::filter`] is required. The other methods make filtering of large clusters and preemption faster, and
/// must agree with it.
///
/// # Examples
///
/// A filter that judges a single node by the node's pod count, and a chunk by the column of its nodes' pod counts:
///
/// ```
/// use portolan::cache::{Chunk, Cluster, Config, Engine, LANES, NodeInfo};
/// use portolan::model::{node, pod};
/// use portolan::plugin::{Code, Filter, Status};
///
/// struct FewerPodsThan(usize);
///
/// impl Filter for FewerPodsThan {
///     fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
///         (node.pod_count() >= self.0)
///             .then(|| Status::new(Code::Unschedulable, "FewerPods", "node(s) had too many pods"))
///     }
///
///     fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
///         let pods = chunk.pods();
///         let passes = |lane: &usize| (pods[*lane] as usize) < self.0;
///         let passed = (0..LANES).filter(passes).fold(0, |passed, lane| passed | 1 << lane);
///         Ok(mask & passed)
///     }
/// }
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// writer.add_node(node("n1").build())?;
/// writer.add_node(node("n2").build())?;
/// writer.add_pod(pod("web-0").on("n1").build())?;
/// writer.publish();
///
/// let (snapshot, filter) = (reader.snapshot(), FewerPodsThan(1));
/// assert_eq!(snapshot.nodes().filter(|node| filter.filter(*node).is_none()).count(), 1);
/// for chunk in snapshot.zones().flat_map(|zone| zone.chunks()) {
///     assert_eq!(filter.filter_chunk(&snapshot, chunk, chunk.live())?.count_ones(), 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Filter: Send + Sync {
    /// Returns why the node is rejected, or `None` if it passes. A status whose code is not a rejection ends the cycle
    /// with an error.
    ///
    /// [`Code::Unschedulable`] means that the node may pass without some of its pods, so preemption tries it.
    /// [`Code::UnschedulableAndUnresolvable`] excludes the node from preemption.
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status>;

    /// Returns the lanes of `mask` that pass: judges up to 64 nodes at once, with the same verdicts as
    /// [`Filter::filter`]. The default calls `filter` on each lane.
    ///
    /// # Errors
    ///
    /// Returns the status of the first lane whose status is not a rejection.
    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let mut passed = mask;
        for lane in lanes(mask) {
            if let Some(status) = cluster.node_in(chunk, lane).and_then(|node| self.filter(node)) {
                if !status.code.is_rejection() {
                    return Err(status);
                }
                passed &= !(1 << lane);
            }
        }
        Ok(passed)
    }

    /// Returns the reason for all rejections if there is only one possible reason. Reasons are then counted without
    /// calling [`Filter::filter`] again.
    fn only_reason(&self) -> Option<&'static str> {
        None
    }

    /// Returns the lanes of `mask` that pass, as [`Filter::filter_chunk`] does, and adds the reasons of the rejected
    /// lanes to `reasons`. Called only for the error of a pod that fits on no node.
    ///
    /// # Errors
    ///
    /// Those of [`Filter::filter_chunk`].
    fn count_reasons(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        reasons: &mut Reasons,
    ) -> Result<u64, Status> {
        let passed = self.filter_chunk(cluster, chunk, mask)?;
        let rejected = mask & !passed;
        match self.only_reason() {
            Some(reason) => reasons.add(reason, rejected.count_ones() as usize),
            None => {
                let nodes = lanes(rejected).filter_map(|lane| cluster.node_in(chunk, lane));
                for reason in nodes.filter_map(|node| self.filter(node)).flat_map(|s| s.reasons) {
                    reasons.add(reason, 1);
                }
            }
        }
        Ok(passed)
    }

    /// Returns whether a node that passes still passes after pods are placed on other nodes, if each of these pods has
    /// only local filters and filters that return `true` here. The default is `false`. Not called for
    /// [local](PluginInfo::local) plugins, for which it always holds.
    ///
    /// The writer then need not check the placements of a batch one by one
    /// ([`FilterCheck`](crate::scheduler::FilterCheck)). Kube-scheduler has no counterpart.
    fn stays_feasible(&self) -> bool {
        false
    }

    /// Returns a number that identifies the state that the verdicts depend on, apart from the node itself and the pod's
    /// template. Labels and the existence of other nodes are part of that state if the verdicts depend on them. If any
    /// filter that is not [local](PluginInfo::local) returns `None` (the default), all of these filters are
    /// called in every cycle. Called at most once per cycle, after PreFilter, and not for local plugins.
    ///
    /// If all numbers equal those of the template's last cycle, a node that has not changed since gets the same
    /// verdict, without a call. One number must never identify two states, in any thread, cluster or fork. For example,
    /// keep a map in the plugin whose keys are the values that PreFilter computes, and give each new key the next
    /// number. The map may forget keys, but must not reuse numbers. Kube-scheduler has no counterpart.
    fn version(&self) -> Option<u64> {
        None
    }

    /// Returns which data of a node's pods the verdicts depend on. The default is [`Reads::Anything`].
    fn reads(&self) -> Reads {
        Reads::Anything
    }

    /// Returns why the node would be rejected without some pods that request `freed` in total, or `None` if it would
    /// pass: the result of [`Filter::filter`] on a fork without these pods. Called only if [`Filter::reads`]
    /// returns [`Reads::Node`] or [`Reads::Amounts`]. The default ignores `freed`, which is right for [`Reads::Node`].
    fn filter_without(&self, node: NodeInfo<'_>, _freed: &Freed<'_>) -> Option<Status> {
        self.filter(node)
    }

    /// Returns whether [`Filter::filter_without`] returns `None`. Override it if that is faster than creating a
    /// status.
    fn passes_without(&self, node: NodeInfo<'_>, freed: &Freed<'_>) -> bool {
        self.filter_without(node, freed).is_none()
    }

    /// Returns whether [`Filter::filter_without`] returns `None`, and adds the reasons to `reasons` if it does
    /// not. Override it if that is faster than creating a status: preemption calls it on each node that may pass.
    ///
    /// # Errors
    ///
    /// Returns the status if it is not a rejection.
    fn count_without(
        &self,
        node: NodeInfo<'_>,
        freed: &Freed<'_>,
        reasons: &mut Reasons,
    ) -> Result<bool, Status> {
        match self.filter_without(node, freed) {
            None => Ok(true),
            Some(status) if status.code.is_rejection() => {
                status.reasons.into_iter().for_each(|reason| reasons.add(reason, 1));
                Ok(false)
            }
            Some(status) => Err(status),
        }
    }

    /// Returns how many pods like this one the node accepts one after the other, or `None`, the default, if that is not
    /// known. Called only if [`Filter::reads`] returns [`Reads::Amounts`], by [`WhatIf::fit_more`].
    ///
    /// [`WhatIf::fit_more`]: crate::WhatIf::fit_more
    fn copies(&self, _node: NodeInfo<'_>) -> Option<usize> {
        None
    }

    /// Returns why the node of these pods would be rejected without them, or `None` if it would pass or if that is not
    /// known: the result of [`Filter::filter`] on a fork. Called only if [`Filter::reads`] returns
    /// [`Reads::Pods`], before a node is tried on a fork. The default is `None`.
    fn rejection_without(&self, _victims: Victims<'_>) -> Option<Status> {
        None
    }

    /// Returns a copy of the filter that [`Filter::add_pod`] and [`Filter::remove_pod`] may change
    /// (`CycleState.Clone`). Returns `None` if verdicts depend only on the node passed to [`Filter::filter`], so that
    /// the filter need not follow changes. The default is `None`.
    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        None
    }

    /// Updates the copy for a pod that is added to a node (`PreFilterExtensions.AddPod`). The node belongs to a fork
    /// that already contains the pod.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle with an error.
    fn add_pod(&mut self, _pod: &Pod, _node: NodeInfo<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Updates the copy for a pod that is removed from a node (`PreFilterExtensions.RemovePod`). The node belongs to a
    /// fork that no longer contains the pod.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle with an error.
    fn remove_pod(&mut self, _pod: &Pod, _node: NodeInfo<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Returns the lanes of `rejected`, all of which the filter rejects, that may pass without some of their pods:
    /// those whose status is [`Code::Unschedulable`]. With [`Reads::Node`] there are none.
    fn resolvable(&self, cluster: &Cluster, chunk: &Chunk, rejected: u64) -> u64 {
        if self.reads() == Reads::Node {
            return 0;
        }
        each_lane(rejected, |lane| {
            let status = cluster.node_in(chunk, lane).and_then(|node| self.filter(node));
            status.is_some_and(|status| status.code == Code::Unschedulable)
        })
    }
}

/// Scores nodes for one pod (`ScorePlugin.Score`). Returned by [`Plugin::pre_score`], read by any number of threads,
/// and dropped at the end of the cycle.
pub trait Score: Send + Sync {
    /// Returns the node's score. Higher is better. The score must be between [`MIN_NODE_SCORE`](super::MIN_NODE_SCORE)
    /// and [`MAX_NODE_SCORE`](super::MAX_NODE_SCORE), unless it is normalized afterwards; otherwise the cycle ends with
    /// an error.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle with an error.
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status>;

    /// Writes the scores of the lanes in `mask` to `scores`: up to 64 nodes at once, with the same scores as
    /// [`Score::score`]. Other lanes of `scores` may be overwritten with any value. The default calls `score` on each
    /// lane.
    ///
    /// # Errors
    ///
    /// Returns the status of the first lane that has one.
    fn score_chunk(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        for lane in lanes(mask) {
            if let Some(node) = cluster.node_in(chunk, lane) {
                scores[lane] = self.score(node)?;
            }
        }
        Ok(())
    }

    /// Returns what a kernel needs to add these scores to those of another plugin in one pass, if there is such a kernel.
    #[doc(hidden)]
    fn kernel(&self) -> Option<ScoreKernel> {
        None
    }

    /// Returns whether [`Score::normalize`] must be called (`ScorePlugin.ScoreExtensions` is not nil). The default is
    /// `false`.
    fn needs_normalize(&self) -> bool {
        false
    }

    /// Maps the scores of all feasible nodes to the range from [`MIN_NODE_SCORE`](super::MIN_NODE_SCORE) to
    /// [`MAX_NODE_SCORE`](super::MAX_NODE_SCORE) (`NormalizeScore` with its `NodeScoreList`). `scores` is in the order
    /// of `nodes`. Called only if [`Score::needs_normalize`] returns `true`.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle with an error.
    fn normalize(&self, _nodes: &ScoredNodes<'_>, _scores: &mut [i64]) -> Result<(), Status> {
        Ok(())
    }
}

/// A score that `dispatch::allocation_scores` computes, of this cpu and memory.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ScoreKernel {
    pub(crate) is_balance: bool,
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
}

/// Returns the lanes of `mask` for which `holds` returns true.
pub(crate) fn each_lane(mask: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    let mut left = mask;
    let mut held = 0;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        held |= u64::from(holds(lane)) << lane;
    }
    held
}

/// Calls `answer` once for each distinct number in the lanes of `mask`, with the first lane that has the number and the
/// mask of all of these lanes, and returns the union of the answers. The nodes of a chunk are in one zone, and most of
/// them are of the same type, so there are few distinct numbers.
pub(crate) fn each_same(
    numbers: &Column<u32>,
    mask: u64,
    mut answer: impl FnMut(usize, u64) -> u64,
) -> u64 {
    let (mut left, mut answers) = (mask, 0);
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let same = dispatch::same_number(numbers, numbers[first]) & left;
        answers |= answer(first, same);
        left &= !same;
    }
    answers
}

/// Replaces each score by `map(score)`. Calls `map` once for neighbours with equal scores: most nodes of a chunk are in
/// one domain and of one type.
pub(crate) fn each_run(mut scores: &mut [i64], map: impl Fn(i64) -> i64) {
    while let [score, rest @ ..] = &*scores {
        let equal = match rest.first() == Some(score) {
            true => dispatch::equal_prefix(scores, *score),
            false => 1,
        };
        let mapped = map(*score);
        let (run, others) = scores.split_at_mut(equal);
        run.fill(mapped);
        scores = others;
    }
}

/// Scales scores so that the largest becomes 100; `reverse` subtracts the result from 100 (kube-scheduler
/// plugins/helper/normalize_score.go).
pub(crate) fn normalize_to_largest(scores: &mut [i64], reverse: bool) {
    let (_, largest) = dispatch::extremes(scores);
    each_run(scores, |score| match (reverse, largest) {
        (true, 0) => 100,
        (true, _) => 100 - score * 100 / largest,
        (false, 0) => score,
        (false, _) => score * 100 / largest,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_to_the_largest() {
        for (scores, expected, reversed) in [
            ([0, 0, 0], [0, 0, 0], [100, 100, 100]),
            ([1, 1, 4], [25, 25, 100], [75, 75, 0]),
            ([3, 2, 3], [100, 66, 100], [0, 34, 0]),
        ] {
            for (reverse, expected) in [(false, expected), (true, reversed)] {
                let mut normalized = scores;
                normalize_to_largest(&mut normalized, reverse);
                assert_eq!(normalized, expected);
            }
        }
    }
}
