//! The interface of plugins (kube-scheduler `framework/`): extension points, filters and scores; and kube-scheduler's
//! own plugins.
//!
//! The runtime asks each plugin once per pod for a filter ([`Plugin::pre_filter`]) and for a score
//! ([`Plugin::pre_score`]). These then judge nodes, either one at a time or 64 at a time. Both ways give the same
//! results; the runtime uses the second.
//!
//! # The steps of scheduling a pod
//!
//! | step | called by | plugins decide |
//! |---|---|---|
//! | [`Framework::pre_enqueue`], [`Plugin::compare`] | the queue | whether the pod may enter the queue; which pod is tried first |
//! | [`Framework::pre_filter`], [`Filters::filter`] | [`Algorithm::decide`] | which nodes are feasible |
//! | [`Plugin::after_filter`] | [`Algorithm::decide`], in every cycle, for plugins with [`PluginInfo::after_filter`] | nothing: they observe the feasible nodes |
//! | [`Plugin::post_filter`] | [`Algorithm::decide`], if no node is feasible | how to make a node feasible |
//! | [`Framework::pre_score`], [`Scores::score`] | [`Algorithm::decide`], if several nodes are feasible | which node is best |
//! | [`Framework::reserve`], `Framework::unreserve` | the code that assumes the pod | what to reserve on the node |
//! | `Framework::permit`, `Framework::wait_on_permit` | the code that assumes the pod | whether the pod may be bound now |
//! | `Framework::pre_bind_pre_flight`, `Framework::pre_bind`, `Framework::bind`, `Framework::post_bind` | the code that binds the pod | how to bind the pod |
//!
//! The steps up to the scores can be called on their own. One [`CycleState`] accompanies the pod from PreFilter to
//! PostBind. A status whose code is a rejection ([`Code::is_rejection`]) rejects the pod. Any other status ends the
//! cycle with an error that names the plugin and the step in kube-scheduler's words. If filters fail on several nodes,
//! the cycle reports the error of the chunk that the search reaches first, whatever the number of threads.
//!
//! # Plugins that panic
//!
//! A panic in a plugin is caught at the call, at every extension point, and fails the current pod as an error status
//! would. The status names the plugin, the step and the panic's message. The pod's reservations are undone, and the pod
//! is forgotten and requeued; other pods and their events are not affected. Calls that return no status have a default:
//! two pods compare equal, a hint is [`Hint::Queue`], and Unreserve and PostBind continue with the next plugin.
//! [`Handle::panics`] counts all panics and holds the latest ones. A build with `panic = "abort"` cannot catch panics.
//!
//! # From kube-scheduler's framework
//!
//! | kube-scheduler | portolan |
//! |---|---|
//! | `PreFilterPlugin`, `FilterPlugin` | [`Plugin::pre_filter`] returns a [`Filter`], or skips |
//! | `PreFilterExtensions` | [`Filter::extend`], [`Filter::add_pod`], [`Filter::remove_pod`]; for all plugins, [`Filters::extend`] |
//! | `PreFilterResult` | [`PreFilter::Only`] |
//! | `RunFilterPluginsWithNominatedPods` | [`Filters::filter_with_nominated`], with the handle's [`Nominator`] |
//! | `PostFilterPlugin`, `NominatingInfo` | [`Plugin::post_filter`], [`Nomination`] |
//! | `PreScorePlugin`, `ScorePlugin`, `ScoreExtensions` | [`Plugin::pre_score`] returns a [`Score`], or skips; [`Score::normalize`] |
//! | `EnqueueExtensions`, `QueueingHintFn` | [`PluginInfo::events`], [`Plugin::queueing_hint`] |
//! | `ReservePlugin`, `PermitPlugin`, `PreBindPlugin`, `BindPlugin`, `PostBindPlugin` | the methods of [`Plugin`] with these names |
//! | `Extender`, `Handle.Extenders` | [`Extender`], [`Handle::extenders`] |
//! | `CycleState` | [`CycleState`]; filters and scores hold their own data |
//! | `ShouldRecordPluginMetrics`, `SetRecordPluginMetrics` | `CycleState::records_plugin_metrics`, `CycleState::set_records_plugin_metrics` |
//! | `Handle.ClientSet`, `KubeConfig` | a field of the plugin |
//! | `Handle`, `SnapshotSharedLister` | [`Handle`]; the snapshot and its listers are [`Cycle::cluster`], and outside a cycle [`Handle::snapshot`] |
//! | `SharedInformerFactory` | [`Handle::follow`]; state that follows pods is a [`Store`](crate::cache::Store) |
//! | `MinNodeScore`, `MaxNodeScore`, `MaxTotalScore`, `NodeScoreList` | [`MIN_NODE_SCORE`], [`MAX_NODE_SCORE`], `i64::MAX`, [`ScoredNodes`] with the scores |
//! | `SharedLister`, informers' listers | [`Cluster::nodes`](crate::cache::Cluster::nodes), [`Cluster::objects`](crate::cache::Cluster::objects) |
//! | `WaitingPod`, `IterateOverWaitingPods` | [`WaitingPod`], [`WaitingPods::all`] |
//! | `PodInPreBind` | [`PodInPreBind`] |
//! | `Registry`, `NewFramework` | [`Framework::new`], [`Framework::with_points`]; from a configuration `Registry` and `Configuration` of `portolan-k8s` |
//!
//! The framework of Kubernetes 1.17 (`v1alpha1`) had different interfaces:
//!
//! | Kubernetes 1.17 | portolan |
//! |---|---|
//! | `QueueSortPlugin.Less(*PodInfo, *PodInfo)` | [`Plugin::compare`] |
//! | `PreFilterPlugin.PreFilter`, which returns only a status | [`Plugin::pre_filter`]: `Ok` with the filter, `Err` with the status |
//! | `PostFilterPlugin`, which observes the feasible nodes and cannot change them | [`Plugin::after_filter`], called in every cycle if [`PluginInfo::after_filter`] is set |
//! | `ScorePlugin.Score(nodeName)` | [`Score::score`], which receives the node itself |
//! | `ReservePlugin` and `UnreservePlugin`, two plugins | [`Plugin::reserve`] and [`Plugin::unreserve`]; both have defaults |
//! | `PermitPlugin.Permit` with a timeout | [`Permit::Wait`] with a timeout |
//! | `PreBindPlugin`, `BindPlugin`, `PostBindPlugin` | the same; a plugin without a pre-flight always has work to do |
//! | `CycleState.Lock`, `RLock` | single reads and writes are safe from any thread; wrap a value that changes in a lock |
//! | `CycleState.ShouldRecordFrameworkMetrics`, `SetRecordFrameworkMetrics` | `CycleState::records_plugin_metrics`, `CycleState::set_records_plugin_metrics`; durations of extension points are always recorded |
//! | `WaitingPod.Allow() bool`, `Reject() bool` | [`WaitingPod::allow`], [`WaitingPod::reject`] |
//!
//! # Writing a plugin
//!
//! For each pod, a plugin decides whether it has anything to filter or score, and if so returns a value that judges
//! nodes. That value holds whatever the plugin computes once per pod. Any number of threads may read it, and it is
//! dropped at the end of the cycle. The following plugin reserves nodes for the pods of one team:
//!
//! ```
//! use portolan::cache::{Config, Engine, NodeInfo};
//! use portolan::model::{node, pod};
//! use portolan::plugin::{
//!     Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Score, Status,
//! };
//! use portolan::{Algorithm, AlgorithmConfig, Framework};
//!
//! struct Teams;
//! struct Team<'a>(Option<&'a str>);
//!
//! impl Plugin for Teams {
//!     // Local: a verdict depends only on the node and the pod's template, so
//!     // the scheduler may cache it until the node changes.
//!     fn info(&self) -> PluginInfo {
//!         PluginInfo::new("Teams", &[Point::Filter, Point::Score]).local()
//!     }
//!
//!     fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
//!         let team = cycle.pod.template.labels.get("team");
//!         Ok(PreFilter::Filter(Box::new(Team(team))))
//!     }
//!
//!     fn pre_score<'a>(
//!         &'a self, cycle: Cycle<'a>, _: &'a Feasible<'a>,
//!     ) -> Result<PreScore<'a>, Status> {
//!         Ok(match cycle.pod.template.labels.get("team") {
//!             Some(team) => PreScore::Score(Box::new(Team(Some(team)))),
//!             None => PreScore::Skip,
//!         })
//!     }
//! }
//!
//! impl Team<'_> {
//!     fn of<'n>(node: NodeInfo<'n>) -> Option<&'n str> {
//!         node.node().and_then(|node| node.labels.get("reserved-for"))
//!     }
//! }
//!
//! impl Filter for Team<'_> {
//!     fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
//!         let team = Team::of(node)?;
//!         (self.0 != Some(team)).then(|| {
//!             let reason = format!("node(s) reserved for team {team}");
//!             Status::new(Code::UnschedulableAndUnresolvable, "Teams", reason)
//!         })
//!     }
//! }
//!
//! impl Score for Team<'_> {
//!     /// From 0 to 100: prefers a team's own nodes.
//!     fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
//!         Ok(if Team::of(node) == self.0 { 100 } else { 0 })
//!     }
//! }
//!
//! let (mut writer, reader) = Engine::inline(Config::default());
//! writer.add_node(node("red").label("reserved-for", "red").cpu(1_000).build())?;
//! writer.add_node(node("free").cpu(8_000).build())?;
//! writer.publish();
//!
//! let framework = Framework::new(vec![(Box::new(Teams), 1)])?;
//! let mut scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
//! let red = pod("a").label("team", "red").build();
//! let blue = pod("b").label("team", "blue").build();
//! assert_eq!(&*scheduler.schedule(&reader.snapshot(), &red)?.node, "red");
//! assert_eq!(&*scheduler.schedule(&reader.snapshot(), &blue)?.node, "free");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Filter::filter_chunk`] and [`Score::score_chunk`] judge the 64 nodes of a [`Chunk`](crate::cache::Chunk) at
//! once, over its columns. They are worth writing for plugins that judge every node of a large cluster.
//!
//! `examples/gpu_sharing` shows a plugin that also reserves, on a real cluster and next to the default profile: its
//! pods share single GPUs, and are placed so that they split as few whole GPUs as possible.

#[cfg(doc)]
use crate::{Algorithm, Framework};

#[doc(hidden)]
pub use crate::framework::preemption;
pub use crate::framework::{
    Actions, Assumed, AttemptResult, Bind, BindingFuture, ClusterEvent, Code, Cycle, CycleState,
    Diagnosis, EXTENDER, Evaluation, Evaluations, EventResource, Eviction, Extender, ExtenderError,
    ExtenderFilter, ExtenderVictims, Feasible, Filter, Filters, Handle, Hint, Interest,
    MAX_EXTENDER_SCORE, MAX_NODE_SCORE, MIN_NODE_SCORE, Measurement, NodeScore, Nomination,
    Nominator, Notes, Panicked, Panics, Partition, Permit, Plugin, PluginInfo, PluginSet,
    PodGroups, PodInPreBind, PodVolumes, Point, PreFilter, PreFlight, PreScore, Preferred,
    QueuedPod, QueueingHints, Reads, Reasons, Recorder, Score, ScoredNodes, Scores, ShardSet,
    Snapshots, Status, Step, SubCluster, Verdict, VolumeBinder, WaitingPod, WaitingPods,
    num_feasible_nodes_to_find,
};
pub use crate::plugins::{
    DefaultPreemption, InterPodAffinity, LoadAware, Measured, NodeAffinity,
    NodeResourcesBalancedAllocation, NodeResourcesFit, Percent, PodTopologySpread, ResourceWeight,
    ScoringStrategy, VolumeBinding, default_plugin, default_plugins, eligible,
};
