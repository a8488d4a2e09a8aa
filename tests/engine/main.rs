//! Tests of the engine: its state, versions, forks, stores and handles.
//!
//! The tests share one binary, because each binary links the whole library. A test has a binary of its own if other
//! tests would change its result:
//!
//! - `cost_law`, `freeing`, `memory` and `read_path` replace the allocator by one that counts for each thread;
//! - `engine_end` replaces it by one that counts for the process, and contains a single test;
//! - `threads` has the stress tests of threads, which sanitizers run and which need the cores for themselves;
//! - `fuzz_corpus` includes the bodies of the fuzz targets and runs under a name that `ci/fuzz-replay.sh` shares
//!   between packages.
//!
//! Tests of plugins and of the scheduling cycle are in `framework`, those of queues and schedulers in `scheduler`.

mod amounts;
mod begun;
mod changes;
mod commit;
mod fold;
mod forks;
mod load;
mod movements;
mod node_order;
mod node_parts;
mod ownership;
mod pod_states;
mod preemption_marks;
mod rebuild;
mod relists;
mod reservations;
#[cfg(feature = "serde")]
mod serialized;
mod state_machine;
mod stores_failing;
mod stores_own;
mod tasks;
mod upserts;
mod victims;
