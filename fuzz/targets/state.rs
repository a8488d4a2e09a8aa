//! The target's body, mounted by the fuzzer and by `tests/fuzz_corpus.rs`:
//! random events against the naive fold, with held snapshots, forks and an
//! audit.

use arbitrary::{Arbitrary, Unstructured};

use super::events::Op;
use super::machine::Machine;

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut machine = Machine::new();
    let mut steps = 0;
    while !input.is_empty() && steps < 400 {
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        steps += 1;
        if !machine.step(&op) {
            return;
        }
    }
    machine.finish();
}
