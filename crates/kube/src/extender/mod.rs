//! Scheduler extenders over HTTP (k8s.io/kube-scheduler/extender/v1), in both roles.
//!
//! `HttpExtender` is the client: it calls the `extenders` of a configuration, as kube-scheduler does.
//! [`extender_routes`] is the server: it lets a kube-scheduler ask portolan's plugins.
//!
//! # The client
//!
//! A call blocks the deciding thread for up to the timeout. An extender that is not `nodeCacheCapable` gets whole nodes
//! and victims, which the mirror then keeps as JSON (`mirror/raw.rs`).
//!
//! Deviations from kube-scheduler:
//!
//! - If the outcome of a binding is unknown, the pod is read from the API server before anything else is tried.
//! - An answer may have at most 256 MiB.
//! - Redirects and the proxies of the environment are not followed, and certificates are read once.
//! - An address or a certificate that cannot be used is an error at the start, even for an ignorable extender.

mod address;
mod client;
mod service;
mod wire;

pub(crate) use client::HttpExtender;
pub use client::HttpExtenderError;
pub use service::{ExtenderOptions, ExtenderServiceError, extender_routes};
