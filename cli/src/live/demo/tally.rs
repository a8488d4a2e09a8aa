//! What the record of the API server's writes shows of each pod, in memory that does not grow with the number of
//! writes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use hdrhistogram::Histogram;
use portolan_apiserver::Write;
use serde_json::Value;

use super::number;

/// The pods that exist, and counts of all others.
pub(super) struct Tally {
    /// The number of the first pod whose wait counts.
    first: usize,
    /// The pods that were created and are not bound, with the time of their creation.
    waiting: HashMap<usize, Duration>,
    /// The nodes of the pods that are bound and not deleted.
    nodes: HashMap<usize, Value>,
    /// The names of the recorded events that were not passed to [`Tally::old_events`].
    events: VecDeque<String>,
    twice: HashSet<usize>,
    waits: Histogram<u64>,
    bound: usize,
    recorded: usize,
}

impl Tally {
    pub(super) fn new(first: usize) -> Tally {
        let waits = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are valid"));
        Tally {
            first,
            waiting: HashMap::new(),
            nodes: HashMap::new(),
            events: VecDeque::new(),
            twice: HashSet::new(),
            waits,
            bound: 0,
            recorded: 0,
        }
    }

    pub(super) fn add(&mut self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            match (write.verb, &*write.resource, number(&write.name)) {
                // Of two writes at once, the later one may be recorded first.
                ("create", "pods", Some(n)) if write.applied && !self.nodes.contains_key(&n) => {
                    self.waiting.insert(n, write.at);
                }
                ("create", "pods/binding", Some(n)) => self.bind(n, &write),
                ("delete", "pods", Some(n)) if write.applied => drop(self.nodes.remove(&n)),
                ("create", "events", _) if write.applied => {
                    self.recorded += 1;
                    self.events.push_back(write.name);
                }
                _ => {}
            }
        }
    }

    /// Counts a binding. A pod that is sent to another node after it was bound counts as bound twice, although the API
    /// server refuses the second binding: another server, or another moment, would not.
    fn bind(&mut self, n: usize, write: &Write) {
        let node = &write.body["target"]["name"];
        if let Some(bound) = self.nodes.get(&n) {
            if write.applied || bound != node {
                self.twice.insert(n);
            }
        } else if write.applied {
            self.bound += 1;
            self.nodes.insert(n, node.clone());
            if let Some(created) = self.waiting.remove(&n).filter(|_| n >= self.first) {
                let wait = write.at.saturating_sub(created).as_micros();
                // The histogram grows up to hours.
                let _ = self.waits.record(u64::try_from(wait).unwrap_or(u64::MAX));
            }
        }
    }

    pub(super) fn is_bound(&self, n: usize) -> bool {
        self.nodes.contains_key(&n)
    }

    /// The number of pods that were created and are not bound.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of pods that were bound.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// The number of pods that were bound twice.
    pub(super) fn twice(&self) -> usize {
        self.twice.len()
    }

    /// The number of events that were recorded.
    pub(super) fn recorded(&self) -> usize {
        self.recorded
    }

    /// The names of the oldest events, all but the last `kept`. Each is returned once.
    pub(super) fn old_events(&mut self, kept: usize) -> impl Iterator<Item = String> + '_ {
        let old = self.events.len().saturating_sub(kept);
        self.events.drain(..old)
    }

    /// The times from creation to binding, in microseconds.
    pub(super) fn waits(&self) -> &Histogram<u64> {
        &self.waits
    }
}
