//! Runs portolan's schedulers on a Kubernetes cluster.
//!
//! [`mirror`] keeps an engine equal to an API server, and [`mod@write`] reports what a scheduler decided: bindings,
//! conditions, nominations, events, evictions and volumes. [`process`] runs a scheduler with both, [`shadow`] compares the
//! decisions of a running scheduler with portolan's and writes nothing, and [`api`] is the client that all use.
//! [`extender`] calls scheduler extenders, and answers as one.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod api;
pub mod extender;
pub mod mirror;
pub mod process;
pub mod shadow;
pub mod write;
