//! Requests to a Kubernetes API server, and the meaning of its answers.

mod client;
mod connect;
mod credentials;
mod error;
mod lines;
mod pace;
mod requests;
mod resource;

pub use client::{Api, ConnectError, Limits, Patch, Permission};
pub use connect::Connection;
pub use error::{ApiError, Refusal};
pub(crate) use error::{is_unsent, reasons};
pub use lines::Lines;
pub(crate) use requests::register_metrics;
pub use resource::Resource;
