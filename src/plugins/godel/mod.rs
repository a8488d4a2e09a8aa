//! The plugins of Gödel.

mod load_aware;
mod pod_launcher;

pub use load_aware::{LoadAware, Measured, Percent};
pub(crate) use pod_launcher::PodLauncher;
