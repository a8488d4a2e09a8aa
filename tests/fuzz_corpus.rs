//! Replays the committed fuzz corpus on the stable toolchain.

use portolan_testkit::corpus::replay;

#[path = "../fuzz/targets/quantity.rs"]
mod quantity;
#[path = "../fuzz/targets/scheduler.rs"]
mod scheduler;
#[path = "../fuzz/targets/state.rs"]
mod state;

#[test]
fn state_corpus_finds_nothing() {
    replay("state", state::run, state::run_closely);
}

#[test]
fn scheduler_corpus_finds_nothing() {
    replay("scheduler", scheduler::run_closely, scheduler::run_closely);
}

#[test]
fn quantity_corpus_finds_nothing() {
    replay("quantity", quantity::run, quantity::run);
}
