//! Tests of the framework: extension points, plugins and the scheduling cycle over a version. `tests/engine/main.rs`
//! lists the tests that have binaries of their own, and the reasons.

mod affinity_cache;
mod chunk_paths;
mod chunk_scores;
mod extenders;
mod extension_points;
mod panics;
mod preferred;
mod queueing_hints;
mod rejections;
mod scores_alone;
mod threads;
mod verdicts;
mod volumes;
