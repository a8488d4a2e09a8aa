//! Pods that went, and that older versions may still look for.

use std::collections::{HashMap, VecDeque};

use crate::model::Generation;
use crate::sync::mutated;

use super::leases::Epochs;

/// Entries whose pods are gone, in the order in which they went.
#[derive(Default)]
pub(crate) struct Departures {
    pub(super) waiting: Waiting,
    /// How many of an entry's departures, the oldest ones, are void: its pod
    /// came back.
    pub(super) stayed: HashMap<u64, u32>,
    /// How many waited when they were last looked at.
    pub(super) settled: usize,
    /// The versions whose forks may need them.
    pub(super) epochs: Epochs,
}

/// A queue whose memory follows its length, block by block: a version that is held for
/// long makes it long, and it is hardly ever empty afterwards.
#[derive(Default)]
pub(super) struct Waiting {
    blocks: VecDeque<Vec<(Generation, u64)>>,
    /// How many of the first block are gone.
    gone: usize,
    len: usize,
}

impl Waiting {
    const BLOCK: usize = 512;

    pub(super) fn push(&mut self, entry: (Generation, u64)) {
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

    pub(super) fn first(&self) -> Option<(Generation, u64)> {
        self.blocks.front()?.get(self.gone).copied()
    }

    pub(super) fn drop_first(&mut self) {
        let is_last = self.blocks.len() == 1;
        let Some(first) = self.blocks.front_mut() else { return };
        self.gone += 1;
        self.len -= 1;
        if self.gone < first.len() {
            return;
        }
        self.gone = 0;
        if is_last {
            // The next pod that goes needs one again.
            first.clear();
        } else {
            self.blocks.pop_front();
        }
    }
}

impl Departures {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len
    }

    /// How many went since they were last looked at.
    pub(super) fn come(&self) -> usize {
        self.len().saturating_sub(self.settled)
    }

    /// How many to forget with a publish: more than came, so that a long queue gets shorter.
    pub(crate) fn at_once(&self) -> usize {
        64 + 2 * self.come()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len == 0
    }

    pub(super) fn stay(&mut self, entry: u64) {
        if !mutated!("pod-index-forget-return") {
            *self.stayed.entry(entry).or_insert(0) += 1;
        }
    }

    pub(super) fn has_stayed(&mut self, entry: u64) -> bool {
        let Some(times) = self.stayed.get_mut(&entry) else { return false };
        *times -= 1;
        if *times == 0 {
            self.stayed.remove(&entry);
            if self.stayed.is_empty() {
                self.stayed = HashMap::new();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_in_order_and_leaves_its_memory() {
        let mut waiting = Waiting::default();
        for n in 0..100_000 {
            waiting.push((Generation(n), n));
        }
        for n in 0..99_990 {
            assert_eq!(waiting.first(), Some((Generation(n), n)));
            waiting.drop_first();
        }
        assert_eq!((waiting.len, waiting.blocks.len()), (10, 1));
        // Never empty, and never more than a block or two.
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
    fn a_queue_fills_its_blocks_and_makes_none_larger() {
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
