//! The fuzzer's events and its oracle under proptest, which shrinks failures: an engine with readers, held versions and
//! forks beside the naive fold.

use portolan_testkit::machine::{Compare, Machine, Step};
use proptest::prelude::*;

/// Few and short cases under an interpreter.
const CASES: u32 = if cfg!(miri) { 2 } else { 128 };
const STEPS: usize = if cfg!(miri) { 12 } else { 120 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_does_what_the_naive_fold_does(
        steps in prop::collection::vec(any::<Step>(), 1..STEPS),
        make in prop::sample::select(vec![Machine::of_godel, Machine::new, Machine::checked]),
    ) {
        let mut machine = make(Compare::Often);
        if steps.iter().all(|step| machine.step(step)) {
            machine.finish();
        }
    }
}
