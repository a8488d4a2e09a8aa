#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! | module | what it is |
//! |---|---|
//! | [`model`] | cluster objects as the engine keeps them |
//! | [`log`] | events, their order, and the writer token |
//! | [`snapshot`] | one version of the cluster, and forks |
//! | [`state`] | the fold of events: lifecycles, relists, the audit |
//! | [`publish`] | how versions get from the writer to readers |
//! | [`framework`], [`plugins`] | filters and scores over a version |
//! | [`scheduler`] | from decisions to a scheduler |
//! | `metrics` (feature `metrics`) | what became of pods and how long it took, for Prometheus |
#![deny(missing_docs)]

mod engine;
pub mod framework;
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod model;
pub mod plugins;
pub mod scheduler;
pub mod snapshot;
pub mod state;

use portolan_publish::{freeing, hash, sync};

#[doc(inline)]
pub use portolan_publish as publish;

pub use engine::{
    Config, Engine, Figures, LivePod, ReadError, Reader, Rebuilt, SweepObserver, WeakEngine, Writer,
};
pub use model::Generation;
pub use snapshot::{Cluster, Fork, GodelConfig, NodeInfo, PodInfo, Snapshot};
pub use state::CommitPolicy;

/// What the loom models reach beyond the public face. Not for anybody else.
#[cfg(loom)]
#[doc(hidden)]
pub mod __model {
    pub use crate::snapshot::model::*;
    pub use portolan_publish::__model::*;
}
