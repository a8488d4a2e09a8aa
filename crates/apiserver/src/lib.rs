//! An in-memory Kubernetes API server over real sockets, for tests and demonstrations of schedulers.
//!
//! A real control plane is slow to start and does not fail on demand. This server implements the rules that schedulers
//! depend on: bindings and their conflicts, status patches, preconditions, graceful deletion, priorities, and list and
//! watch with bookmarks and 410. It stores objects in memory and injects faults.
//!
//! - [`ApiServer`] serves HTTP on a port of 127.0.0.1 with its own threads. A plain `#[test]` can use it.
//! - [`Fault`] and [`Effect`] inject errors, lost responses and broken streams.
//! - [`Kubelet`] simulates the kubelets of hollow nodes.
//! - [`ApiServer::writes`] returns the writes of clients.
//!
//! ```
//! use portolan_apiserver::{ApiServer, Options};
//! use serde_json::json;
//!
//! let server = ApiServer::start(Options::default())?;
//! server.create(&json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}))?;
//! server.create(&json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"},
//!     "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1"}]}}))?;
//! server.bind("default", "a", "n1")?;
//! let error = server.bind("default", "a", "n2").unwrap_err();
//! assert_eq!(error.message,
//!     r#"Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1""#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The server has no authentication, server-side apply, protobuf or webhooks, and validates few fields. The README
//! lists the differences from kube-apiserver.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod admission;
mod audit;
mod binding;
mod call;
mod clock;
mod connection;
mod controllers;
mod defaults;
mod delete;
mod devices;
mod direct;
mod error;
mod events;
mod faults;
mod follower;
mod history;
mod kubelet;
mod list;
mod patch;
mod perform;
mod random;
mod resources;
mod reviews;
mod routes;
mod selectors;
mod server;
mod store;
mod verbs;
mod watch;

pub use audit::Write;
pub use error::ApiError;
pub use faults::{Effect, Fault};
pub use kubelet::Kubelet;
pub use patch::PatchKind;
pub use server::{ApiServer, Options, User};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
