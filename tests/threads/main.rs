//! Stress tests of threads on one engine.
//!
//! A binary of their own: `ci/sanitizers.sh` builds it with an instrumented compiler, `ci/cost.sh` runs it at full size,
//! and its threads share the cores with no other tests.

mod shared;
mod shared_readers;
