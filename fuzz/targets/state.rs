//! The body of the fuzz target, shared by the fuzzer and `tests/fuzz_corpus.rs`: applies random events and compares the
//! engine with the naive fold, with held snapshots, forks and an audit.

use arbitrary::{Arbitrary, Unstructured};
use portolan_testkit::machine::{Compare, Machine, Step};

/// The maximum number of events per input.
const STEPS: usize = 200;

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    // The input determines when to compare, so failures are reproducible.
    let end = data.iter().rev().take(8).fold(0, |end, byte| end << 8 | u64::from(*byte));
    run_comparing(data, Compare::Sometimes(end));
}

/// Runs one input and compares after each event, to find the event that causes a difference.
#[allow(dead_code, reason = "used by hand to investigate failing inputs")]
pub(crate) fn run_closely(data: &[u8]) {
    run_comparing(data, Compare::Often);
}

fn run_comparing(data: &[u8], compare: Compare) {
    let mut input = Unstructured::new(data);
    let mut machine = Machine::new(compare);
    let mut steps = 0;
    while !input.is_empty() && steps < STEPS {
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        steps += 1;
        if !machine.step(&step) {
            return;
        }
    }
    machine.finish();
}
