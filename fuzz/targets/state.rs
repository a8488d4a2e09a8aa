//! The target's body, mounted by the fuzzer and by `tests/fuzz_corpus.rs`:
//! random events against the naive fold, with held snapshots, forks and an
//! audit.

use arbitrary::{Arbitrary, Unstructured};

use super::events::Op;
use super::machine::{Compare, Machine};

/// Most events of one input.
const STEPS: usize = 200;

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    // When to compare follows from the input, so that a failure repeats.
    let end = data.iter().rev().take(8).fold(0, |end, byte| end << 8 | u64::from(*byte));
    run_comparing(data, Compare::Sometimes(end));
}

/// The same, compared after each event, to see which one makes a difference.
#[allow(dead_code, reason = "for inputs that fail")]
pub(crate) fn run_closely(data: &[u8]) {
    run_comparing(data, Compare::Often);
}

fn run_comparing(data: &[u8], compare: Compare) {
    let mut input = Unstructured::new(data);
    let mut machine = Machine::new(compare);
    let mut steps = 0;
    while !input.is_empty() && steps < STEPS {
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        steps += 1;
        if !machine.step(&op) {
            return;
        }
    }
    machine.finish();
}
