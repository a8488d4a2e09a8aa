//! Choosing a node for a pod: the plugin framework with its extension points, filters and scores (kube-scheduler
//! `framework/`). `src/plugin.rs` describes it for the authors of plugins.

mod activations;
mod algorithm;
mod being_evicted;
mod bind;
mod by_template;
mod choose;
mod cycle;
mod decision;
mod diagnosis;
pub(crate) mod dispatch;
mod evaluations;
mod events;
mod eviction;
mod extender;
mod failure;
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
mod pre_bind;
pub mod preemption;
mod queued_pod;
mod recorder;
mod rejections;
mod runtime;
mod sampling;
mod scores;
mod search;
mod series;
mod shards;
mod status;
mod volumes;
mod waiting;

pub(crate) use activations::Activation;
pub use algorithm::{Algorithm, AlgorithmConfig};
pub(crate) use bind::BindRequest;
pub(crate) use by_template::ByTemplate;
pub use cycle::{Cycle, CycleState};
pub use decision::{Decision, Preferred};
pub use diagnosis::{Evaluation, FitError, Verdict};
pub use evaluations::Evaluations;
pub use events::{Actions, ClusterEvent, EventResource, Hint, Interest};
pub(crate) use eviction::PREEMPTION;
pub use eviction::{Eviction, Evictor};
pub use extender::{
    EXTENDER, Extender, ExtenderError, ExtenderFilter, ExtenderVictims, MAX_EXTENDER_SCORE,
};
pub use failure::Failure;
pub use filters::Filters;
pub(crate) use filters::{Sums, Without};
pub use godel::{Partition, SubCluster};
pub(crate) use handle::Follow;
pub use handle::{Binder, BinderError, BindingFuture, Handle, Notes, Snapshots};
pub use hints::QueueingHints;
pub use nominator::Nominator;
pub use panics::{Panicked, Panics};
pub use plugin::{
    Bind, Feasible, Filter, Nomination, Permit, Plugin, PluginInfo, PreFilter, PreFlight, PreScore,
    Reads, Score, ScoredNodes,
};
pub(crate) use plugin::{ScoreKernel, each_lane, each_run, each_same, normalize_to_largest};
pub use pod_groups::PodGroups;
pub(crate) use pod_groups::{GroupStatus, Hold};
pub use point::Point;
pub(crate) use pre_bind::InPreBind;
pub use pre_bind::PodInPreBind;
pub use queued_pod::{PluginSet, QueuedPod};
pub use recorder::{AttemptResult, Measurement, Recorder, Step};
pub use rejections::Diagnosis;
pub use runtime::{Framework, FrameworkError};
pub use sampling::num_feasible_nodes_to_find;
pub use scores::{MAX_NODE_SCORE, MIN_NODE_SCORE, NodeScore, Scores};
pub(crate) use series::Planned;
pub use shards::ShardSet;
pub use status::{Code, Reasons, Status};
pub use volumes::{Assumed, PodVolumes, VolumeBinder};
pub(crate) use waiting::{CLOSED_QUEUE, go_duration};
pub use waiting::{WaitingPod, WaitingPods};
