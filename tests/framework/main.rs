//! The framework: extension points, plugins and the scheduling cycle over a version. `tests/engine/main.rs` lists which
//! tests have a binary of their own, and why.

mod chunk_paths;
mod extension_points;
mod panics;
mod preferred;
mod queueing_hints;
mod scores_alone;
mod volumes;
