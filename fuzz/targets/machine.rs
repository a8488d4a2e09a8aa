//! An engine and the naive fold side by side: they agree whenever they are compared,
//! what is held does not change, and in the end nothing is left.
//!
//! Writing both out costs a hundred times as much as an event does. A fuzzer therefore
//! compares now and then and in the end ([`Compare::Sometimes`]); a difference stays
//! until then, or is found by an input that ends earlier. Whoever looks for the event
//! that made it compares after each ([`Compare::Often`]).

use std::sync::Arc;
use std::time::Duration;

use portolan::log::Outcome;
use portolan::model::EventError;
use portolan::snapshot::{Dump, Fork, Snapshot};
use portolan::state::CommitPolicy;
use portolan::state::naive::Naive;
use portolan::{Config, Engine, GodelConfig, Reader, Writer};

use super::events::{Op, event, make_pod, uid};

/// When an engine is compared with its oracle, besides in the end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compare {
    /// After each of the first events, and after one in eight from then on.
    #[allow(dead_code, reason = "fuzzers compare sometimes")]
    Often,
    /// After about one event in 32, and with one publish in sixteen: which ones
    /// follows from the number.
    #[allow(dead_code, reason = "proptest compares often")]
    Sometimes(u64),
}

impl Compare {
    /// Whether to compare at this step, with the odds `1 / n` if not often.
    fn is_due(self, step: i64, n: u64) -> bool {
        let Compare::Sometimes(seed) = self else { return true };
        // SplitMix64 of the step: successive numbers give unrelated ones.
        let mut z = (step as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).is_multiple_of(n)
    }
}

/// An engine beside its oracle.
pub(crate) struct Machine {
    compare: Compare,
    writer: Writer,
    reader: Reader,
    naive: Naive,
    held: Vec<(Arc<Snapshot>, Dump)>,
    forks: Vec<(Fork, Dump)>,
    step: i64,
}

/// The dump without what the naive fold has no columns for.
fn comparable(mut dump: Dump) -> Dump {
    for node in dump.nodes.values_mut() {
        node.columns.clear();
    }
    dump
}

/// Whether the event was refused because a sum would leave 64 bits: the naive
/// fold sums without a bound.
fn is_beyond(outcome: &Outcome) -> bool {
    match outcome {
        Err(EventError::Overflow { .. }) => true,
        Err(EventError::Together(why)) => matches!(**why, EventError::Overflow { .. }),
        Ok(_) | Err(_) => false,
    }
}

impl Machine {
    pub(crate) fn new(compare: Compare) -> Machine {
        Machine::with(compare, None, CommitPolicy::Unchecked)
    }

    /// One that checks placements before it assumes pods, as engines do by default.
    #[allow(dead_code, reason = "the fuzzer itself has no input that asks for it")]
    pub(crate) fn checked(compare: Compare) -> Machine {
        Machine::with(compare, None, CommitPolicy::default())
    }

    /// One that keeps what pods and Movements say.
    pub(crate) fn of_godel(compare: Compare) -> Machine {
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
        let config =
            Config { assumed_ttl: ttl, live_index: true, godel, commit_check, ..Config::default() };
        let (writer, reader) = Engine::inline(config);
        Machine { compare, writer, reader, naive, held: Vec::new(), forks: Vec::new(), step: 0 }
    }

    /// Takes one step; whether the oracle can follow further.
    pub(crate) fn step(&mut self, op: &Op) -> bool {
        self.step += 1;
        match (op, event(op, self.step)) {
            (_, Some(event)) => {
                let outcome = self.writer.apply(&event);
                if outcome.as_ref().is_ok_and(|applied| !applied.rejected.is_empty()) {
                    // Of a list some went in.
                    return false;
                }
                if !is_beyond(&outcome) {
                    assert_eq!(outcome.is_ok(), self.naive.apply(&event), "{event:?}");
                }
                if self.is_to_be_compared() {
                    let dump = comparable(self.writer.dump());
                    assert_eq!(dump, self.naive.dump(), "after {event:?}");
                }
                if self.step % 4 == 0 {
                    self.publish();
                }
            }
            (Op::Hold, _) => {
                self.publish();
                self.held.push((self.reader.snapshot(), self.writer.dump()));
            }
            (Op::Drop, _) if !self.held.is_empty() => {
                drop(self.held.remove(0));
                self.writer.reclaim();
            }
            (Op::Fork(seeds), _) if self.forks.len() < 4 => {
                let mut fork = self.writer.cluster().fork();
                for seed in seeds {
                    // Refusals are part of the input.
                    drop(fork.add_pod(&make_pod(seed)));
                }
                if self.compare.is_due(self.step, 4) {
                    assert_eq!(fork.audit(), vec![]);
                }
                let dump = fork.dump();
                self.forks.push((fork, dump));
            }
            (Op::Godel, _) if self.step == 1 => {
                *self = Machine::of_godel(self.compare);
            }
            (Op::Godel, _) => assert_eq!(self.writer.rebuild().differences, vec![]),
            _ => {}
        }
        true
    }

    fn is_to_be_compared(&self) -> bool {
        match self.compare {
            // Long runs cost most of their time here.
            Compare::Often => self.step <= 32 || self.step % 8 == 0,
            Compare::Sometimes(_) => self.compare.is_due(self.step, 32),
        }
    }

    /// Readers see what was written, whole, and the live index with them.
    fn publish(&mut self) {
        let generation = self.writer.publish();
        let version = self.reader.pin();
        assert_eq!(version.generation(), generation);
        if !self.compare.is_due(self.step, 16) {
            return;
        }
        assert_eq!(version.dump(), self.writer.dump());
        for uid in (0..16).map(uid) {
            let (known, live) = self.reader.get_pod(&uid);
            assert_eq!(known, generation, "no reader was in the way");
            let pod = version.pod(&uid).map(|pod| (pod.node().slot(), pod.is_assumed()));
            assert_eq!(live.map(|pod| (pod.slot, pod.assumed)), pod, "{uid}");
        }
    }

    /// What is asserted in the end.
    pub(crate) fn finish(mut self) {
        assert_eq!(comparable(self.writer.dump()), self.naive.dump());
        assert_eq!(self.writer.cluster().audit(), vec![]);
        for (snapshot, dump) in self.held.drain(..) {
            assert_eq!(snapshot.dump(), dump, "a held snapshot changed");
        }
        for (fork, dump) in self.forks.drain(..) {
            assert_eq!(fork.dump(), dump, "a fork changed");
        }
        self.reader.release();
        self.writer.reclaim();
        assert_eq!(self.writer.figures().retired, 0, "nobody holds a version");
    }
}
