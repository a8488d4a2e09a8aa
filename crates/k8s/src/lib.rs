//! Kubernetes objects and scheduler configurations for portolan.
//!
//! Three ways, for three kinds of input. The bytes of one object that an API server sends are stored form already:
//! [`pod_from_slice`], [`node_from_slice`] and [`object_from_slice`] read them and add nothing; [`pod`], [`node`] and
//! [`object`] do the same for a [`serde_json::Value`]. Files were written by people or by `kubectl get`: [`read`], or a
//! [`Reader`] for several files, takes lists and documents of all kinds, fills in what the API server and its
//! admission would have filled in, and reports that in [`Objects::defaulted`], beside the kinds that it skipped.
//! Configurations of kube-scheduler become frameworks: see [`config`].
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
//! What it does not do: it does not validate what scheduling does not read, so it
//! takes objects that an API server would refuse. What scheduling reads and
//! cannot make sense of is an error, never a guess.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod affinity;
mod collect;
pub mod config;
mod defaults;
mod error;
mod godel;
mod movement;
mod node;
mod objects;
#[cfg(feature = "k8s-openapi")]
mod openapi;
mod pod;
mod pod_group;
#[cfg(test)]
mod pod_tests;
mod read;
#[cfg(test)]
mod read_tests;
mod reservation;
mod resolve;
mod selector;
mod single;
mod slice;
mod storage;
mod time;
#[cfg(test)]
mod vector_tests;
mod volume;
mod wire;
mod wire_objects;
mod wire_pod;
mod wire_storage;
mod workloads;
mod yaml;

pub use defaults::Defaulted;
pub use error::{Cause, ReadError};
pub use objects::{PriorityClass, RuntimeClass};
#[cfg(feature = "k8s-openapi")]
pub use openapi::ToModel;
pub use read::{Reader, is_json, read, read_json, read_yaml};
pub use resolve::Objects;
pub use single::{node, node_affinity, object, pod};
pub use slice::{node_from_slice, object_from_slice, pod_from_slice};
pub use workloads::{ControllerKind, PodController};

/// Tests the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
