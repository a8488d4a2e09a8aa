//! Runs portolan's schedulers on a Kubernetes cluster.
//!
//! [`mirror`] keeps an engine equal to an API server, and [`mod@write`] writes a scheduler's decisions: bindings,
//! conditions, nominations, events, evictions and volumes. [`process`] runs a scheduler with both, [`shadow`] compares
//! the decisions of a running scheduler with portolan's and writes nothing, and [`api`] is the client that they share.
//! [`extender`] calls scheduler extenders, and serves as one. [`feature_gates`] lists the gates of kube-scheduler.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod api;
mod component_metrics;
mod debug;
pub mod extender;
pub mod feature_gates;
mod fence;
mod lock;
pub mod mirror;
pub mod process;
mod seldom;
pub mod shadow;
#[cfg(test)]
mod testing;
pub mod write;
