//! Filters and scores over a version: which node for this pod, and why not the
//! others (kube-scheduler framework/).
//!
//! A plugin is asked once per pod what it has to say ([`Plugin::pre_filter`],
//! [`Plugin::pre_score`]); what it answers then judges nodes, one by one or 64
//! at a time. Both ways give the same answers; the runtime takes the second.
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
//!     Scheduler, SchedulerConfig, Score, Status,
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
//! let framework = Framework::new(vec![(Box::new(Teams), 1)]);
//! let mut scheduler = Scheduler::new(framework, SchedulerConfig::default(), None);
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

#[cfg(feature = "k8s")]
pub mod config;
mod cycle;
mod diagnosis;
pub(crate) mod dispatch;
mod filters;
mod handle;
mod memo;
mod nominator;
mod plugin;
mod point;
mod recorder;
#[cfg(feature = "k8s")]
mod registry;
mod runtime;
mod sampling;
mod scheduler;
mod scores;
mod status;
mod waiting;

pub use cycle::{Cycle, CycleState, StateError};
pub use diagnosis::{Evaluation, FitError, Verdict};
pub use filters::{Diagnosis, Filters};
pub use handle::{Binder, Handle};
pub use nominator::Nominator;
pub use plugin::{
    Bind, Feasible, Filter, Nomination, Permit, Plugin, PreFilter, PreFlight, PreScore, QueuedPod,
    Score,
};
pub(crate) use plugin::{each_lane, normalize_to_largest};
pub use point::Point;
pub use recorder::{Recorder, Step};
#[cfg(feature = "k8s")]
pub use registry::{Factory, Registry, RegistryError};
pub use runtime::{Framework, FrameworkError};
pub use sampling::num_feasible_nodes_to_find;
pub use scheduler::{Decision, ScheduleError, Scheduler, SchedulerConfig};
pub use scores::{NodeScore, Scores};
pub use status::{Code, Reasons, Status};
pub use waiting::{WaitingPod, WaitingPods};
