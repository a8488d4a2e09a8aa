//! A Kubernetes scheduler engine: one writer applies events to the state of a cluster, and any number of threads read,
//! hold and fork consistent versions of it without taking a lock.
//!
//! ```
//! use portolan::cache::{Config, Engine};
//! use portolan::model::{node, pod};
//! use portolan::{Algorithm, AlgorithmConfig, Framework};
//!
//! let (mut writer, reader) = Engine::inline(Config::default());
//! writer.add_node(node("n1").cpu(4_000).memory(16 << 30).build())?;
//! writer.publish();
//! let snapshot = reader.snapshot();
//! let mut scheduler = Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
//! let pod = pod("web-0").cpu(250).memory(1 << 28).build();
//! let decision = scheduler.schedule(&snapshot, &pod)?;
//! writer.assume_pod(pod.on(decision.node))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The cookbook in the directory `docs` has more tasks; the design and the limits are there too.
//!
//! # Layers
//!
//! | layer | items | purpose |
//! |---|---|---|
//! | a scheduler | [`Schedulers`], [`SchedulingLoop`], [`Attempt`], [`Placement`], [`Failure`] | takes pods from a queue, places and binds them |
//! | | [`Scheduler`], [`Profiles`] | the scheduling cycle alone, for an engine and pods of your own |
//! | | [`Framework`], [`Algorithm`], [`Decision`], [`WhatIf`] | a profile; one decision; what-if questions on forks |
//! | | [`Binder`], [`Evictor`] | act outside the process |
//! | | [`scheduler`] | the parts, for a scheduler of your own: queue, cycles, commit checks, drains |
//! | the cache alone | [`cache`] | events, versions, readers, forks and stores |
//! | plugins | [`plugin`] | the interface of filters and scores, and kube-scheduler's plugins |
//!
//! All layers share the objects of [`model`]. With the feature `metrics`, `metrics` has kube-scheduler's metrics. The
//! crate `portolan-k8s` reads Kubernetes JSON and YAML and configurations of kube-scheduler.
//!
//! # Features
//!
//! All are off by default.
//!
//! | feature | contents |
//! |---|---|
//! | `metrics` | kube-scheduler's metrics, encoded alone or in a registry of your own: `metrics` |
//! | `serde` | `Serialize` and `Deserialize` for [`model`] and [`cache::Event`], to record events and replay them |
//! | `tracing` | spans and events, see below |
//!
//! Async code needs no feature: [`cache::Ticket`] is a future, and so is [`cache::Reader::reached`].
//!
//! # Tracing
//!
//! With the feature `tracing`, the engine and schedulers emit spans and events with targets that begin with `portolan`:
//!
//! | level | spans and events |
//! |---|---|
//! | debug | spans `scheduling_attempt`, `scheduling_cycle`, `batch`, `gang`, `binding_cycle`; events for pods that are assumed, refused and bound, gangs, relists, rebuilds, evictions, conflicts, and the start and end of an engine |
//! | trace | events for each batch (events, refused) and each publish (generation, retired versions) |
//!
//! The writer calls the subscriber for its own events, so a subscriber should not block, and its panic in the writer
//! closes the engine. Texts and fields may change with any version.
#![deny(missing_docs)]

#[macro_use]
mod trace;

pub mod cache;
mod engine;
mod framework;
mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod model;
pub mod plugin;
mod plugins;
pub mod scheduler;
mod snapshot;
mod state;

use portolan_publish::{freeing, hash, sync};

pub use framework::{
    Algorithm, AlgorithmConfig, Binder, BinderError, Decision, Evictor, Failure, FitError,
    Framework, FrameworkError,
};
pub use scheduler::builder::{BuildError, Schedulers, SchedulersBuilder};
pub use scheduler::cycle::Scheduler;
pub use scheduler::placement::Placement;
pub use scheduler::profiles::Profiles;
pub use scheduler::scheduling_loop::{Attempt, SchedulingLoop, Unplaced};
pub use scheduler::what_if::WhatIf;

/// Items that only the loom models use. Not part of the public API.
#[cfg(loom)]
#[doc(hidden)]
pub mod __model {
    pub use crate::snapshot::model::*;
    pub use portolan_publish::__model::*;
}

/// Tests the code of the README, whose images and links would be broken in the crate's documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Tests the code of the cookbook.
#[cfg(doctest)]
#[doc = include_str!("../docs/cookbook.md")]
struct Cookbook;

/// Tests the code of the guide to plugins.
#[cfg(doctest)]
#[doc = include_str!("../docs/plugins.md")]
struct Plugins;
