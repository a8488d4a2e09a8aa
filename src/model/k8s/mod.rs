//! Kubernetes JSON and YAML in.
mod error;
mod wire;
mod wire_objects;
mod wire_pod;
pub use error::{Cause, ReadError};
