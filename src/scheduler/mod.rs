//! From decisions to a scheduler.

mod volumes;

pub use volumes::InMemoryVolumeBinder;
