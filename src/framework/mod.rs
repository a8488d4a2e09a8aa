//! Filters and scores over a version: which node for this pod, and why not the
//! others (kube-scheduler framework/).
//!
//! A plugin is asked once per pod what it has to say ([`Plugin::pre_filter`],
//! [`Plugin::pre_score`]); what it answers then judges nodes, one by one or 64
//! at a time. Both ways give the same answers; the runtime takes the second.

#[cfg(feature = "k8s")]
pub mod config;
pub(crate) mod dispatch;
mod memo;
mod plugin;
mod runtime;
mod sampling;
mod status;

pub use plugin::{Feasible, Filter, Plugin, PreFilter, PreScore, Score};
pub(crate) use plugin::{each_lane, normalize_to_largest};
pub use runtime::{
    Decision, Evaluation, FitError, Framework, NodeScore, ScheduleError, Scheduler,
    SchedulerConfig, Verdict,
};
pub use sampling::num_feasible_nodes_to_find;
pub use status::{Code, Reasons, Status};
