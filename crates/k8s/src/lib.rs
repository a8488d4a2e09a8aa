//! Reads Kubernetes objects and scheduler configurations for portolan.
//!
//! The crate reads three kinds of input:
//!
//! - Single objects from an API server are already in their stored form. [`pod_from_slice`], [`node_from_slice`] and
//!   [`object_from_slice`] read their bytes and fill nothing in.
//! - Files are written by people or by `kubectl get`. [`read`], or a [`Reader`] for several files, accepts lists and
//!   documents of all kinds and fills in the defaults that the API server and its admission plugins would have filled
//!   in. [`Objects::defaulted`] lists those defaults, and [`Objects::skipped`] counts the objects of other kinds.
//! - Configurations of kube-scheduler are read as frameworks, see [`config`].
//!
//! With the feature `strict`, [`check`] finds what an API server would reject.
//!
//! ```
//! let objects = portolan_k8s::read(b"
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: web-0}
//! spec:
//!   containers:
//!   - name: web
//!     resources: {limits: {cpu: 2}}
//! ")?;
//! assert_eq!(objects.pods[0].template.resources.incoming.cpu.0, 2_000);
//! assert!(objects.defaulted.iter().any(|d| d.field == "spec.priority"));
//!
//! let error = portolan_k8s::read(br#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
//!     "spec": {"overhead": {"cpu": "4x"}}}"#).unwrap_err();
//! assert_eq!(error.path(), "spec.overhead.cpu");
//! # Ok::<(), portolan_k8s::ReadError>(())
//! ```
//!
//! Fields that scheduling does not read are not validated, so the crate accepts objects that an API server would
//! reject. A field that scheduling reads and that cannot be interpreted is an error; its value is never guessed.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod admission;
mod affinity;
mod budgets;
mod checks;
mod collect;
pub mod config;
mod controllers;
mod copies;
mod daemons;
mod defaults;
mod devices;
mod digest;
mod error;
mod expand;
mod framing;
mod generated;
mod godel;
mod limit_range;
mod movement;
mod node;
mod objects;
mod own_labels;
mod pod;
mod pod_group;
#[cfg(test)]
mod pod_tests;
mod prerequisite;
mod read;
#[cfg(test)]
mod read_tests;
mod reservation;
mod resolve;
mod rollout;
mod scan;
mod selector;
mod set_parts;
mod sets;
mod single;
mod slice;
#[cfg(test)]
mod slice_tests;
mod storage;
#[cfg(feature = "strict")]
mod strict;
#[cfg(test)]
mod testing;
mod time;
mod tree;
mod typed;
mod versions;
mod volume;
mod wire;
mod wire_objects;
mod wire_pod;
mod wire_storage;
mod workloads;
pub mod yaml;

pub use admission::Admission;
pub use budgets::{
    BudgetLimit, FactChanges, Health, IntOrPercent, Limit, PodCounts, PodFacts, Scaled, Scales,
};
pub use copies::Mark;
pub use defaults::Defaulted;
pub use devices::DeviceObjects;
pub use digest::{Digest, node_digest, pod_digest};
pub use error::{Cause, ReadError};
pub use expand::TooManyPods;
pub use objects::{PriorityClass, RuntimeClass};
pub use prerequisite::Prerequisite;
pub use read::{Reader, is_json, read, read_json, read_yaml};
pub use resolve::{Missing, Objects};
pub use rollout::{Job, UpdateStrategy};
pub use slice::{node_from_slice, object_from_slice, pod_from_slice};
#[cfg(feature = "strict")]
pub use strict::{Problem, check, is_read, line_of, lines_of_object};
pub use workloads::{ControllerKind, PodController};

/// Runs the examples of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
