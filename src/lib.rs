//! A lock-free concurrent data-structure engine for cluster schedulers.
#![deny(missing_docs)]

mod engine;
pub mod framework;
pub mod log;
pub mod model;
pub mod plugins;
pub mod publish;
pub mod snapshot;
pub mod state;
mod sync;

pub use engine::{Config, Engine, Figures, LivePod, ReadError, Reader, Writer};
pub use model::Generation;
pub use snapshot::{Cluster, Fork, NodeInfo, PodInfo, Snapshot};
