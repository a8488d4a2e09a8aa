//! Pods that were removed but that older versions may still look up.

use std::collections::{HashMap, VecDeque};

use crate::model::Generation;
use crate::sync::mutated;

use super::epochs::Epochs;

/// Index entries of departed pods, in the order of departure.
#[derive(Default)]
pub(crate) struct Departures {
    waiting: Waiting,
    /// For each entry, how many of its oldest departures are void because a pod with an equal entry returned.
    pub(super) returned: HashMap<u64, u32>,
    /// Number of waiting departures after the last settling.
    pub(super) settled: usize,
    /// The epochs of the versions that may need the entries.
    pub(super) epochs: Epochs,
}

/// A queue that frees its memory block by block as it shrinks. A version that is held for long makes the queue long,
/// and it is rarely empty afterwards.
#[derive(Default)]
struct Waiting {
    blocks: VecDeque<Vec<(Generation, u64)>>,
    /// Number of elements of the first block that are already removed.
    removed: usize,
    len: usize,
}

impl Waiting {
    const BLOCK: usize = 512;

    fn push(&mut self, entry: (Generation, u64)) {
        match self.blocks.back_mut().filter(|block| block.len() < Waiting::BLOCK) {
            Some(block) => block.push(entry),
            None => {
                let mut block = Vec::with_capacity(Waiting::BLOCK);
                block.push(entry);
                self.blocks.push_back(block);
            }
        }
        self.len += 1;
    }

    fn first(&self) -> Option<(Generation, u64)> {
        self.blocks.front()?.get(self.removed).copied()
    }

    fn drop_first(&mut self) {
        let is_last = self.blocks.len() == 1;
        let Some(first) = self.blocks.front_mut() else { return };
        self.removed += 1;
        self.len -= 1;
        if self.removed < first.len() {
            return;
        }
        self.removed = 0;
        if is_last {
            // The block is reused, because the next departure needs one.
            first.clear();
        } else {
            self.blocks.pop_front();
        }
    }
}

impl Departures {
    /// Adds an entry whose pod left in version `now`.
    pub(super) fn push(&mut self, now: Generation, entry: u64) {
        self.waiting.push((now, entry));
        self.epochs.is_due = true;
    }

    /// Takes the oldest entry out if its pod had left at `horizon`.
    pub(super) fn take_first(&mut self, horizon: Generation) -> Option<u64> {
        let (gone, entry) = self.waiting.first()?;
        let is_needed = gone > horizon && !mutated!("pod-index-settle-at-once");
        (!is_needed).then(|| {
            self.waiting.drop_first();
            entry
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len
    }

    /// Returns the number of departures since the last settling.
    pub(super) fn added(&self) -> usize {
        self.len().saturating_sub(self.settled)
    }

    /// Returns how many entries to remove with one publish: more than were added, so that a long queue shrinks.
    pub(crate) fn settle_limit(&self) -> usize {
        64 + 2 * self.added()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len == 0
    }

    pub(super) fn mark_returned(&mut self, entry: u64) {
        if !mutated!("pod-index-forget-return") {
            *self.returned.entry(entry).or_insert(0) += 1;
        }
    }

    pub(super) fn take_returned(&mut self, entry: u64) -> bool {
        let Some(times) = self.returned.get_mut(&entry) else { return false };
        *times -= 1;
        if *times == 0 {
            self.returned.remove(&entry);
            if self.returned.is_empty() {
                self.returned = HashMap::new();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_leave_in_order_and_their_memory_is_freed() {
        let mut waiting = Waiting::default();
        for n in 0..100_000 {
            waiting.push((Generation(n), n));
        }
        for n in 0..99_990 {
            assert_eq!(waiting.first(), Some((Generation(n), n)));
            waiting.drop_first();
        }
        assert_eq!((waiting.len, waiting.blocks.len()), (10, 1));
        // The queue is never empty, and never has more than two blocks.
        for n in 100_000..200_000 {
            waiting.push((Generation(n), n));
            assert_eq!(waiting.first().unwrap().1, n - 10);
            waiting.drop_first();
            assert!(waiting.blocks.len() <= 2);
        }
        (0..10).for_each(|_| waiting.drop_first());
        assert_eq!((waiting.first(), waiting.len), (None, 0));
    }

    #[test]
    fn blocks_are_filled_and_never_grow() {
        let mut waiting = Waiting::default();
        for n in 0..3 * Waiting::BLOCK as u64 {
            waiting.push((Generation(n), n));
        }
        let blocks: Vec<(usize, usize)> =
            waiting.blocks.iter().map(|block| (block.len(), block.capacity())).collect();
        assert_eq!(blocks, [(Waiting::BLOCK, Waiting::BLOCK); 3]);
        for n in 0..3 * Waiting::BLOCK as u64 {
            assert_eq!(waiting.first(), Some((Generation(n), n)));
            waiting.drop_first();
        }
        assert_eq!(waiting.first(), None);
    }
}
