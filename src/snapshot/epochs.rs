//! Epochs tell the writer which versions are still needed, without making it wait for a reader or a fork.
//!
//! All versions share one index of pods (see `pod_index.rs`). The writer must not remove an entry that a version or a
//! fork needs, and a fork outlives the version that it starts at.
//!
//! The writer's versions are divided into *epochs*: runs of consecutive versions, each with a reference count of its
//! own. Each version holds its epoch, and so does each fork of it, each fork of that fork, and each of their versions.
//! Holding and leaving an epoch is one atomic addition each. A version begins another epoch if pods have departed in
//! the meantime, because it needs fewer entries than the versions before it.
//!
//! An epoch ends when only the writer holds it. No holder is missed: a count of one cannot grow, because only a holder
//! can add to it. A pin is not counted, but the pinned version is, and the writer drops that version only after a scan
//! that finds no pin.
//!
//! At most [`EPOCHS`] epochs are held. If that many are, the newest continues until one of them ends, and retains its
//! entries until all of its versions and their forks are gone, which costs memory and not correctness.

use std::collections::VecDeque;

use crate::model::Generation;
use crate::sync::{Arc, mutated};

/// Maximum number of epochs. Under checkers it is small, so that they reach it.
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
    /// Returns the epoch of the version `now`, which is about to be frozen. O(1), or O([`EPOCHS`]) if there are that
    /// many.
    pub(crate) fn turn(&mut self, now: Generation) -> Epoch {
        if self.is_due && self.running.len() == EPOCHS {
            self.running.retain_mut(|(_, epoch)| epoch.is_held());
        }
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

    /// Returns the oldest generation whose version may be needed, or zero before the first call of [`Epochs::turn`].
    /// O(epochs that end).
    pub(crate) fn horizon(&mut self) -> Generation {
        // The newest epoch never ends: the next version may belong to it.
        while self.running.len() > 1
            && self.running.front_mut().is_some_and(|(_, oldest)| !oldest.is_held())
        {
            self.running.pop_front();
        }
        self.running.front().map_or(Generation::ZERO, |(begin, _)| *begin)
    }
}

impl Epoch {
    /// Returns whether another handle exists. Only the writer may call this.
    fn is_held(&mut self) -> bool {
        // Unlike the strong count, `get_mut` also ensures that what the holders of dropped handles have read happens
        // before the writer overwrites it.
        Arc::get_mut(&mut self.0).is_none() && !mutated!("epoch-ignored")
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
        assert_eq!(epochs.horizon(), Generation::ZERO);
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
    fn an_epoch_held_forever_does_not_delay_the_end_of_later_ones() {
        let mut epochs = Epochs::default();
        let first = turn(&mut epochs, 1);
        for now in 2..1_000 {
            turn(&mut epochs, now);
            assert_eq!(epochs.horizon(), Generation(1));
            assert!(epochs.running.len() <= EPOCHS);
        }
        drop(first);
        assert_eq!(epochs.horizon(), Generation(999));
    }

    #[test]
    fn if_all_epochs_are_held_the_newest_continues_until_one_ends() {
        let mut epochs = Epochs::default();
        let mut held: VecDeque<Epoch> = (1..4).map(|now| turn(&mut epochs, now)).collect();
        let long = turn(&mut epochs, 4);
        held.remove(1);
        // Pods departed before version 4, so that the next version begins an epoch.
        let next = epochs.turn(Generation(5));
        held.clear();
        assert_eq!(epochs.horizon(), Generation(3));
        drop(long);
        assert_eq!(epochs.horizon(), Generation(5));
        drop(next);
    }
}
