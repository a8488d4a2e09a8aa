//! A lock-free concurrent data-structure engine for cluster schedulers.
#![deny(missing_docs)]

pub mod log;
pub mod model;
pub mod publish;
pub mod snapshot;
pub mod state;
mod sync;
