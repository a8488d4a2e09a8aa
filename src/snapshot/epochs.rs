//! Epochs tell the writer which versions somebody still needs, without making it wait for anybody.
//!
//! All versions share one index of pods (see `pod_index.rs`). The writer must not remove an entry that a version or a
//! fork needs, and a fork outlives the version that it starts at.
//!
//! The writer's versions are divided into *epochs*: runs of consecutive versions, each with a reference count of its
//! own. Each version holds its epoch, and so does each fork of it, each fork of that fork, and each of their versions.
//! So nobody needs a version of an epoch whose count only the writer holds. Holding and leaving an epoch is one atomic
//! addition each.
//!
//! A version begins an epoch if pods departed since the last one began, since it needs fewer entries. There are at most
//! [`EPOCHS`] of them. If that many are held, the newest continues until the oldest ends, which costs precision and not
//! correctness: while the oldest is held, no later entry could be removed anyway. Once it ends, the epoch that grew long
//! retains its entries until nobody holds it.

use std::collections::VecDeque;

use crate::model::Generation;
use crate::sync::{Arc, mutated};

/// Maximum number of epochs that have not ended. Under checkers the number is small, so that they reach the limit.
const EPOCHS: usize = if cfg!(loom) {
    2
} else if cfg!(test) {
    3
} else {
    64
};

/// Keeps the index entries that versions of an epoch need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch(Arc<()>);

/// The epochs that have not ended, as the one writer knows them.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// Each epoch with its first generation, in order.
    running: VecDeque<(Generation, Epoch)>,
    /// Whether pods departed since the newest epoch began.
    pub(super) is_due: bool,
}

impl Epochs {
    /// Returns the epoch of the version `now`, which is about to be frozen. O(1).
    pub(crate) fn turn(&mut self, now: Generation) -> Epoch {
        let may_begin = self.is_due && self.running.len() < EPOCHS;
        match self.running.back() {
            Some((_, newest)) if !may_begin => newest.clone(),
            _ => {
                let begins = if mutated!("epoch-begins-late") { now.next() } else { now };
                let epoch = Epoch::default();
                self.running.push_back((begins, epoch.clone()));
                self.is_due = false;
                epoch
            }
        }
    }

    /// Returns the oldest generation whose version somebody may need, or the greatest if there is no version. O(epochs
    /// that end).
    pub(crate) fn horizon(&mut self) -> Generation {
        // The newest epoch never ends: the next version may belong to it.
        while self.running.len() > 1 {
            let Some((_, Epoch(oldest))) = self.running.front_mut() else { break };
            // `get_mut` also ensures that what the holders read happens before the writer changes it.
            if Arc::get_mut(oldest).is_none() && !mutated!("epoch-ignored") {
                break;
            }
            self.running.pop_front();
        }
        self.running.front().map_or(Generation(u64::MAX), |(begin, _)| *begin)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Begins an epoch at this generation if there may be another one.
    fn turn(epochs: &mut Epochs, now: u64) -> Epoch {
        epochs.is_due = true;
        epochs.turn(Generation(now))
    }

    #[test]
    fn the_oldest_epoch_that_is_held_is_the_horizon() {
        let mut epochs = Epochs::default();
        assert_eq!(epochs.horizon(), Generation(u64::MAX));
        let first = turn(&mut epochs, 3);
        let second = turn(&mut epochs, 7);
        let third = turn(&mut epochs, 9);
        let fork = first.clone();
        drop(first);
        assert_eq!(epochs.horizon(), Generation(3));
        drop(fork);
        assert_eq!(epochs.horizon(), Generation(7));
        drop((second, third));
        assert_eq!(epochs.horizon(), Generation(9));
    }

    #[test]
    fn versions_share_an_epoch_until_a_pod_departs() {
        let mut epochs = Epochs::default();
        let first = turn(&mut epochs, 1);
        let second = epochs.turn(Generation(2));
        turn(&mut epochs, 3);
        drop(first);
        assert_eq!(epochs.horizon(), Generation(1));
        drop(second);
        assert_eq!(epochs.horizon(), Generation(3));
    }

    #[test]
    fn an_epoch_held_forever_lets_a_constant_number_of_later_ones_begin() {
        let mut epochs = Epochs::default();
        let first = turn(&mut epochs, 1);
        for now in 2..1_000 {
            turn(&mut epochs, now);
            assert_eq!(epochs.horizon(), Generation(1));
            assert!(epochs.running.len() <= EPOCHS);
        }
        let last = epochs.turn(Generation(1_000));
        drop(first);
        // All versions after the last epoch that could begin are in it.
        let begin = epochs.horizon();
        assert!(begin > Generation(1) && begin <= Generation(999));
        // A pod departed since, so that the next version begins an epoch.
        let next = epochs.turn(Generation(2_000));
        assert_eq!(epochs.horizon(), begin);
        drop((last, next));
        assert_eq!(epochs.horizon(), Generation(2_000));
    }
}
