//! Stress tests of threads on one engine.
//!
//! They have a binary of their own: `ci/sanitizers.sh` builds it with an instrumented compiler, `ci/cost.sh` runs it at
//! full size, and its threads do not share the cores with other tests.

mod shared;
mod shared_readers;
