//! Runs an engine next to the naive fold. Both agree whenever they are compared, held snapshots and forks do not
//! change, and finally all memory is released.
//!
//! Dumping both states costs a hundred times as much as an event. A fuzzer therefore compares occasionally and at the
//! end ([`Compare::Sometimes`]); a difference persists until then, or is found by an input that ends earlier. To find
//! the event that causes a difference, compare after each event ([`Compare::Often`]).

use std::sync::Arc;
use std::time::Duration;

use portolan::log::Outcome;
use portolan::model::EventError;
use portolan::snapshot::{Dump, Fork, Snapshot};
use portolan::state::CommitPolicy;
use portolan::state::naive::Naive;
use portolan::{Config, Engine, GodelConfig, Reader, Writer};

use super::events::{Op, event, make_pod, uid};

/// When to compare an engine with its oracle, other than at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compare {
    /// After each of the first 32 events, and then after one event in 8.
    #[allow(dead_code, reason = "fuzzers compare sometimes")]
    Often,
    /// After about one event in 32, and at one publish in 16, selected by this number.
    #[allow(dead_code, reason = "proptest compares often")]
    Sometimes(u64),
}

impl Compare {
    /// Returns whether to compare at this step. With [`Compare::Sometimes`], the probability is `1 / n`.
    fn is_due(self, step: i64, n: u64) -> bool {
        let Compare::Sometimes(seed) = self else { return true };
        // SplitMix64 of the step: consecutive steps give unrelated numbers.
        let mut z = (step as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).is_multiple_of(n)
    }
}

/// An engine and its oracle.
pub(crate) struct Machine {
    compare: Compare,
    writer: Writer,
    reader: Reader,
    naive: Naive,
    held: Vec<(Arc<Snapshot>, Dump)>,
    forks: Vec<(Fork, Dump)>,
    step: i64,
}

/// Removes the parts of a dump that the naive fold does not compute.
fn comparable(mut dump: Dump) -> Dump {
    for node in dump.nodes.values_mut() {
        node.columns.clear();
    }
    dump
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
    pub(crate) fn new(compare: Compare) -> Machine {
        Machine::with(compare, None, CommitPolicy::Unchecked)
    }

    /// Creates a machine whose engine checks placements before it assumes pods, as engines do by default.
    #[allow(dead_code, reason = "the fuzzer's inputs cannot select it")]
    pub(crate) fn checked(compare: Compare) -> Machine {
        Machine::with(compare, None, CommitPolicy::default())
    }

    /// Creates a machine with Gödel semantics, which evaluates annotations of pods and Movements.
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

    /// Applies one operation. Returns whether the oracle can continue.
    pub(crate) fn step(&mut self, op: &Op) -> bool {
        self.step += 1;
        match (op, event(op, self.step)) {
            (_, Some(event)) => {
                let outcome = self.writer.apply(&event);
                if outcome.as_ref().is_ok_and(|applied| !applied.rejected.is_empty()) {
                    // A relist was applied only in part, which the oracle cannot represent.
                    return false;
                }
                if !is_overflow(&outcome) {
                    assert_eq!(outcome.is_ok(), self.naive.apply(&event), "{event:?}");
                }
                if self.should_compare() {
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
                    // A refusal is a valid outcome.
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

    fn should_compare(&self) -> bool {
        match self.compare {
            // In long runs, comparing takes most of the time.
            Compare::Often => self.step <= 32 || self.step % 8 == 0,
            Compare::Sometimes(_) => self.compare.is_due(self.step, 32),
        }
    }

    /// Publishes, and asserts that readers and the live index see exactly the published version.
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
            assert_eq!(known, generation, "no reader blocks the live index");
            let pod = version.pod(&uid).map(|pod| (pod.node().slot(), pod.is_assumed()));
            assert_eq!(live.map(|pod| (pod.slot, pod.assumed)), pod, "{uid}");
        }
    }

    /// Asserts the invariants that hold at the end of a run.
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
        assert_eq!(self.writer.figures().retired, 0, "no version is held");
    }
}
