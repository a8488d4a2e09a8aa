//! Runs the program and checks what it prints.
//!
//! One binary, because each binary links the whole library. Two tests have one of their own: `hostile` replaces the
//! allocator by one that counts, and `fuzz_corpus` mounts sources of the program and of the fuzz targets at the root of
//! its crate, and runs under a name that `ci/fuzz-replay.sh` shares between packages.

mod claims;
mod common;
mod compare;
mod configurations;
mod conformance;
mod consolidate;
mod corpus;
mod dropped;
mod errors;
mod explain;
mod explain_answers;
mod explain_changes;
mod explain_property;
mod failures;
mod inputs;
mod inspect;
mod invalid;
mod live;
mod manners;
mod messages;
mod perf;
mod queued_replay;
mod replay;
mod replay_traces;
mod scheduler_perf;
mod shadow;
mod what_if;
mod what_if_changes;
