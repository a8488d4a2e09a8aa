//! Kubernetes JSON and YAML in.

mod affinity;
mod collect;
mod defaults;
mod error;
mod node;
mod objects;
mod pod;
mod read;
#[cfg(test)]
mod read_tests;
mod resolve;
mod selector;
mod single;
mod time;
#[cfg(test)]
mod vector_tests;
mod volume;
mod wire;
mod wire_objects;
mod wire_pod;
mod workloads;
mod yaml;

pub use defaults::Defaulted;
pub use error::{Cause, ReadError};
pub use objects::{PriorityClass, RuntimeClass};
pub use read::{Reader, is_json, read, read_json, read_yaml};
pub use resolve::Objects;
pub use single::{node, object, pod};
pub use workloads::{ControllerKind, PodController};
