//! Filters and scores over a version: which node for this pod, and why not the
//! others (kube-scheduler framework/).
//!
//! A plugin is asked once per pod what it has to say ([`Plugin::pre_filter`],
//! [`Plugin::pre_score`]); what it answers then judges nodes, one by one or 64
//! at a time. Both ways give the same answers; the runtime takes the second.
//!
//! # The way of a pod
//!
//! | step | who calls it | plugins say |
//! |---|---|---|
//! | [`Framework::pre_enqueue`], [`Framework::compare`] | the queue | may it queue; which is first |
//! | [`Framework::pre_filter`], [`Filters::filter`] | [`Algorithm::decide`] | which nodes will do |
//! | `after_filter` | the same, in every cycle | observes the feasible nodes; changes nothing |
//! | [`Framework::post_filter`] | the same, where none will do | can that be changed |
//! | [`Framework::pre_score`], [`Scores::score`] | the same, where several will do | which is best |
//! | [`Framework::reserve`], [`Framework::unreserve`] | whoever assumes the pod | what its node sets aside |
//! | [`Framework::permit`], [`Framework::wait_on_permit`] | the same | may it be bound now |
//! | [`Framework::pre_bind_pre_flight`], [`Framework::pre_bind`], [`Framework::bind`], [`Framework::post_bind`] | whoever binds | it is bound |
//!
//! Each step can be called alone. A [`CycleState`] goes along from PreFilter to
//! PostBind. A status is a rejection of the pod if its code is one
//! ([`Code::is_rejection`]); any other ends the cycle as an error that says which
//! step of which plugin it was, in kube-scheduler's words. On two nodes with errors
//! it is that of the chunk that comes first in the list, with any number of threads.
//!
//! # Plugins that panic
//!
//! A panic in a plugin is caught at the call, at every extension point, and fails the pod
//! that it was asked about like an error status does: the status names the plugin, the
//! step and the panic's text. What the pod had reserved is undone, the pod is forgotten
//! and requeued, and other pods and their events are not affected. Calls that return no
//! status have a default: two pods compare equal, a hint is [`Hint::Queue`], and
//! Unreserve and PostBind go on with the next plugin. [`Handle::panics`] counts all
//! panics and holds the latest ones. A build with `panic = "abort"` catches nothing.
//!
//! # From kube-scheduler's framework
//!
//! | there | here |
//! |---|---|
//! | `PreFilterPlugin`, `FilterPlugin` | [`Plugin::pre_filter`] gives a [`Filter`], or skips |
//! | `PreFilterExtensions` | [`Incremental::extend`], [`Incremental::add_pod`], [`Incremental::remove_pod`]; all plugins' by [`Filters::extend`] |
//! | `PreFilterResult` | [`PreFilter::Only`] |
//! | `RunFilterPluginsWithNominatedPods` | [`Filters::filter_with_nominated`], over the handle's [`Nominator`] |
//! | `PostFilterPlugin`, `NominatingInfo` | [`Plugin::post_filter`], [`Nomination`] |
//! | `PreScorePlugin`, `ScorePlugin`, `ScoreExtensions` | [`Plugin::pre_score`] gives a [`Score`], or skips; [`Score::normalize`] |
//! | `EnqueueExtensions`, `QueueingHintFn` | [`Plugin::events`], [`Plugin::queueing_hint`] |
//! | `ReservePlugin`, `PermitPlugin`, `PreBindPlugin`, `BindPlugin`, `PostBindPlugin` | the methods of [`Plugin`] with those names |
//! | `CycleState` | [`CycleState`]; filters and scores keep what they need for themselves |
//! | `Handle`, `SnapshotSharedLister` | [`Handle`]; the snapshot with its listers is [`Cycle::cluster`], and outside of a cycle [`Handle::snapshot`] |
//! | `MinNodeScore`, `MaxNodeScore`, `NodeScoreList` | [`MIN_NODE_SCORE`], [`MAX_NODE_SCORE`], [`ScoredNodes`] with the scores |
//! | `SharedLister`, informers' listers | [`Cluster::nodes`](crate::Cluster::nodes), [`Cluster::objects`](crate::Cluster::objects) |
//! | `WaitingPod`, `IterateOverWaitingPods` | [`WaitingPod`], [`WaitingPods::all`] |
//! | `Registry`, `NewFramework` | `Registry`, `config::Configuration` (feature `k8s`), [`Framework::new`] |
//!
//! The framework of Kubernetes 1.17 (`v1alpha1`) had other cuts:
//!
//! | there | here |
//! |---|---|
//! | `QueueSortPlugin.Less(*PodInfo, *PodInfo)` | [`Plugin::compare`] |
//! | `PreFilterPlugin.PreFilter`, a status alone | [`Plugin::pre_filter`]: `Ok` with the filter, `Err` with the status |
//! | `PostFilterPlugin`, which is told of the feasible nodes and cannot change them | [`Plugin::after_filter`], in every cycle |
//! | `ScorePlugin.Score(nodeName)` | [`Score::score`] with the node itself |
//! | `ReservePlugin` and `UnreservePlugin`, two plugins | [`Plugin::reserve`] and [`Plugin::unreserve`]; either may be left as it is |
//! | `PermitPlugin.Permit` with a timeout | [`Permit::Wait`] with one |
//! | `PreBindPlugin`, `BindPlugin`, `PostBindPlugin` | the same; without a pre-flight there is always work |
//! | `CycleState.Lock`, `RLock` | [`CycleState::update`]; reading and writing alone is safe from any thread |
//! | `WaitingPod.Allow() bool`, `Reject() bool` | [`WaitingPod::allow`], [`WaitingPod::reject`]: whether the call decided |
//!
//! # Writing a plugin
//!
//! A plugin says once a pod whether it has anything to filter or to score, and
//! hands out what judges nodes. What is computed for the pod as a whole lives in
//! there, is read by any number of threads, and ends with the cycle. One that
//! keeps nodes for the pods of one team:
//!
//! ```
//! use portolan::framework::{
//!     Code, Cycle, Feasible, Filter, Framework, Plugin, Point, PreFilter, PreScore,
//!     Algorithm, AlgorithmConfig, Score, Status,
//! };
//! use portolan::model::{node, pod};
//! use portolan::{Config, Engine, NodeInfo};
//!
//! struct Teams;
//! struct Team<'a>(Option<&'a str>);
//!
//! impl Plugin for Teams {
//!     fn name(&self) -> &'static str { "Teams" }
//!
//!     fn points(&self) -> &'static [Point] { &[Point::Filter, Point::Score] }
//!
//!     // A verdict follows from the node and the pod's template alone, so the
//!     // scheduler may keep it until the node changes.
//!     fn is_local(&self) -> bool { true }
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
//!     /// From 0 to 100: a team's own nodes first.
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
//! [`Filter::filter_chunk`] and [`Score::score_chunk`] do the same for the 64
//! nodes of a [`Chunk`](crate::snapshot::Chunk) at once, over columns: for what is
//! asked of every node of a large cluster, it is worth writing them.
//!
//! A plugin that also reserves, on a real cluster and beside the default profile, is
//! in `examples/gpu_sharing`: pods share single GPUs, and go where they break the
//! fewest whole ones.

mod algorithm;
mod by_template;
mod choose;
#[cfg(feature = "k8s")]
pub mod config;
mod cycle;
mod decision;
mod diagnosis;
pub(crate) mod dispatch;
mod events;
mod eviction;
mod filters;
mod godel;
mod handle;
mod hints;
mod memo;
mod nominator;
mod panics;
mod parallel;
mod plain;
mod plugin;
mod pod_groups;
mod point;
pub mod preemption;
mod queued_pod;
mod recorder;
#[cfg(feature = "k8s")]
mod registry;
mod runtime;
mod sampling;
mod scores;
mod search;
mod stages;
mod status;
mod volumes;
mod waiting;

pub use algorithm::{Algorithm, AlgorithmConfig};
pub(crate) use by_template::ByTemplate;
pub use cycle::{Cycle, CycleState, StateError};
pub use decision::{Decision, Preferred, ScheduleError};
pub use diagnosis::{Evaluation, FitError, Verdict};
pub use events::{Actions, ClusterEvent, EventResource, Hint, Interest};
pub(crate) use eviction::PREEMPTION;
pub use eviction::{Eviction, Evictor};
pub use filters::{Diagnosis, Filters};
pub(crate) use filters::{Sums, Without};
pub use godel::{Partition, SubCluster, SubClusters, SwitchType, Workflow};
pub use handle::{Binder, Handle, Snapshots};
pub use hints::QueueingHints;
pub use nominator::Nominator;
pub use panics::{Panicked, Panics};
pub use plugin::{
    Bind, Feasible, Filter, Incremental, Nomination, Permit, Plugin, PreFilter, PreFlight,
    PreScore, Reads, Score, ScoredNodes,
};
pub(crate) use plugin::{each_lane, each_same, normalize_to_largest};
pub use pod_groups::{GroupStatus, Hold, PodGroups};
pub use point::Point;
pub use queued_pod::{PluginSet, QueuedPod};
pub use recorder::{AttemptResult, Recorder, Step};
#[cfg(feature = "k8s")]
pub use registry::{Factory, Registry, RegistryError};
pub use runtime::{Framework, FrameworkError};
pub use sampling::num_feasible_nodes_to_find;
pub use scores::{MAX_NODE_SCORE, MIN_NODE_SCORE, NodeScore, Scores};
pub use status::{Code, Reasons, Status};
pub use volumes::{Assumed, PodVolumes, VolumeBinder};
pub(crate) use waiting::go_duration;
pub use waiting::{WaitingPod, WaitingPods};
