//! Runs an engine and the naive fold side by side, and asserts that both agree whenever they are compared, that held
//! snapshots and forks never change, and that no version is retained at the end.
//!
//! Dumping both states costs a hundred times as much as an event. A fuzzer therefore compares occasionally and at the
//! end ([`Compare::Sometimes`]). A difference usually persists until then; one that does not is found by a shorter
//! input. To find the event that causes a difference, compare more often ([`Compare::Often`]).

mod bytes;

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{
    CommitPolicy, Config, Dump, Engine, Event, Fork, GodelConfig, Outcome, Reader, Snapshot, Writer,
};
use portolan::model::EventError;
#[cfg(feature = "proptest")]
use proptest::prelude::*;

use crate::events::{Op, PodSeed};
use crate::naive::{Naive, comparable};
use crate::random::Random;

/// A step of a [`Machine`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub enum Step {
    /// Applies an event.
    #[cfg_attr(feature = "proptest", proptest(weight = 16, strategy = "write()"))]
    Write(Op),
    /// Publishes a version and holds it.
    Hold,
    /// Drops the oldest of the held versions.
    Drop,
    /// Forks, and adds these pods to the fork.
    Fork(
        #[cfg_attr(
            feature = "proptest",
            proptest(strategy = "prop::collection::vec(maybe_huge(), 0..12)")
        )]
        Vec<PodSeed>,
    ),
    /// Enables Gödel semantics if this is the first step, and otherwise rebuilds the engine.
    Godel,
}

/// Generates pods, one in 8 of them with huge amounts.
#[cfg(feature = "proptest")]
fn maybe_huge() -> impl Strategy<Value = PodSeed> {
    (any::<PodSeed>(), prop::bool::weighted(0.125)).prop_map(|(mut pod, is_huge)| {
        pod.shape |= if is_huge { PodSeed::HUGE } else { 0 };
        pod
    })
}

/// Generates events, one in 8 of them with pods of huge amounts.
#[cfg(feature = "proptest")]
fn write() -> impl Strategy<Value = Step> {
    (any::<Op>(), prop::bool::weighted(0.125)).prop_map(|(mut op, is_huge)| {
        let pods = op.pods_mut().iter_mut().filter(|_| is_huge);
        pods.for_each(|pod| pod.shape |= PodSeed::HUGE);
        Step::Write(op)
    })
}

/// When to compare an engine with its oracle, other than at the end.
#[derive(Clone, Copy, Debug)]
pub enum Compare {
    /// After each of the first 32 events, and then after one event in 8.
    Often,
    /// After about one event in 32, and at one publish in 16, selected by this number.
    Sometimes(u64),
}

impl Compare {
    /// Returns whether to compare at this step: with [`Compare::Sometimes`] at one step in `n` on average, otherwise
    /// always.
    fn is_due(self, step: u64, n: u64) -> bool {
        let Compare::Sometimes(seed) = self else { return true };
        Random::nth(seed, step).is_multiple_of(n)
    }
}

/// An engine and its oracle.
#[derive(Debug)]
pub struct Machine {
    compare: Compare,
    writer: Writer,
    reader: Reader,
    naive: Naive,
    held: Vec<(Arc<Snapshot>, Dump)>,
    forks: Vec<(Fork, Dump)>,
    step: u64,
}

/// Returns whether the event was refused because a sum would overflow 64 bits. The naive fold's sums are unbounded.
fn is_overflow(outcome: &Outcome) -> bool {
    match outcome {
        Err(EventError::Overflow { .. }) => true,
        Err(EventError::Together(why)) => matches!(**why, EventError::Overflow { .. }),
        Ok(_) | Err(_) => false,
    }
}

impl Machine {
    /// Creates a machine whose engine assumes pods without a check.
    pub fn new(compare: Compare) -> Machine {
        Machine::with(compare, None, CommitPolicy::Unchecked)
    }

    /// Creates a machine whose engine checks placements before it assumes pods, as engines do by default.
    pub fn checked(compare: Compare) -> Machine {
        Machine::with(compare, None, CommitPolicy::default())
    }

    /// Creates a machine with Gödel semantics, which evaluates annotations of pods and Movements.
    pub fn of_godel(compare: Compare) -> Machine {
        let godel = GodelConfig::new("godel");
        let godel = GodelConfig { movements: true, preemption_marks: true, ..godel };
        Machine::with(compare, Some(godel), CommitPolicy::Unchecked)
    }

    fn with(compare: Compare, godel: Option<GodelConfig>, commit_check: CommitPolicy) -> Machine {
        let ttl = Some(Duration::from_secs(30));
        let mut naive = Naive::new(ttl);
        if matches!(commit_check, CommitPolicy::Unchecked) {
            naive = naive.unchecked();
        }
        if let Some(godel) = &godel {
            naive = naive.with_godel(godel.clone());
        }
        let config = Config { assumed_ttl: ttl, godel, commit_check, ..Config::default() };
        let (writer, reader) = Engine::inline(config);
        Machine { compare, writer, reader, naive, held: Vec::new(), forks: Vec::new(), step: 0 }
    }

    /// Performs one step. Returns whether the oracle can continue.
    ///
    /// # Panics
    ///
    /// Panics if the engine and its oracle differ.
    pub fn step(&mut self, step: &Step) -> bool {
        self.step += 1;
        match step {
            Step::Write(op) => {
                let event = op.event(self.step, self.naive.generation());
                let outcome = self.writer.apply(&event);
                let rejected = outcome.as_ref().map_or(&[][..], |applied| &applied.rejected);
                let is_overflow_in_part =
                    rejected.iter().any(|(_, why)| matches!(why, EventError::Overflow { .. }));
                if is_overflow_in_part
                    || !rejected.is_empty() && !matches!(event, Event::AssumeEach { .. })
                {
                    // The engine applied only a part of a relist, and the oracle applies a relist as a whole and knows
                    // no overflow.
                    return false;
                }
                if is_overflow(&outcome) {
                    self.naive.skip();
                } else {
                    assert_eq!(outcome.is_ok(), self.naive.apply(&event), "{event:?}");
                }
                if self.should_compare() {
                    let dump = comparable(self.writer.cluster().dump());
                    assert_eq!(dump, self.naive.dump(), "after {event:?}");
                    assert_eq!(self.writer.cluster().generation(), self.naive.generation());
                }
                if self.step.is_multiple_of(4) {
                    self.publish();
                }
            }
            Step::Hold => {
                self.publish();
                self.held.push((self.reader.snapshot(), self.writer.cluster().dump()));
            }
            Step::Drop if !self.held.is_empty() => {
                drop(self.held.remove(0));
                self.writer.reclaim();
            }
            Step::Fork(seeds) if self.forks.len() < 4 => {
                let mut fork = self.writer.cluster().fork();
                for seed in seeds {
                    // A refusal is a valid outcome.
                    drop(fork.add_pod(&seed.pod()));
                }
                if self.compare.is_due(self.step, 4) {
                    assert_eq!(fork.audit(), vec![]);
                }
                let dump = fork.dump();
                self.forks.push((fork, dump));
            }
            Step::Godel if self.step == 1 => {
                *self = Machine::of_godel(self.compare);
            }
            Step::Godel => {
                assert_eq!(self.writer.rebuild().differences, vec![]);
                self.naive.skip();
            }
            Step::Drop | Step::Fork(_) => {}
        }
        true
    }

    fn should_compare(&self) -> bool {
        match self.compare {
            // Comparing would take most of the time of a long run.
            Compare::Often => self.step <= 32 || self.step.is_multiple_of(8),
            Compare::Sometimes(_) => self.compare.is_due(self.step, 32),
        }
    }

    /// Publishes, and asserts that readers see exactly the published version.
    fn publish(&mut self) {
        let generation = self.writer.publish();
        let version = self.reader.pin();
        assert_eq!(version.generation(), generation);
        if self.compare.is_due(self.step, 16) {
            assert_eq!(version.dump(), self.writer.cluster().dump());
        }
    }

    /// Asserts the invariants at the end of a run: the engine equals its oracle, held versions and forks are unchanged,
    /// and no version is retained once its holders are dropped.
    ///
    /// # Panics
    ///
    /// Panics if an invariant does not hold.
    pub fn finish(mut self) {
        assert_eq!(comparable(self.writer.cluster().dump()), self.naive.dump());
        assert_eq!(self.writer.cluster().audit(), vec![]);
        for (snapshot, dump) in self.held.drain(..) {
            assert_eq!(snapshot.dump(), dump, "a held snapshot changed");
        }
        for (fork, dump) in self.forks.drain(..) {
            assert_eq!(fork.dump(), dump, "a fork changed");
        }
        self.reader.release();
        self.writer.reclaim();
        assert_eq!(self.writer.figures().retired, 0, "no version is held");
    }
}
