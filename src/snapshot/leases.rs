//! Leases: how the writer knows which versions forks still need, and waits for no fork to know it.
//!
//! A fork outlives the version that it starts at, and goes on looking up pods in the index that all versions share
//! (see `pod_index.rs`). The writer must not remove an entry that a fork needs, and it must not wait for a thread that is
//! making or dropping a fork.
//!
//! The writer's versions are divided into *epochs*: stretches of consecutive versions, each with a counter. A version
//! carries the number of its epoch's counter and nothing else, so publishing costs nothing for it. A fork holds a
//! [`Lease`], which is one count in that counter. The writer keeps the first generation of each epoch, reads the
//! counter of the oldest epoch, and drops the epoch when nobody can need a version of it.
//!
//! # Cost
//!
//! Taking and dropping a lease is one atomic addition each: no lock, no loop. The writer reads at most one counter an
//! epoch, of which there are at most [`EPOCHS`], however many forks exist and wherever their threads are stopped.
//!
//! When every counter is in use, the current epoch goes on until the oldest one ends. This costs precision, not
//! correctness: nothing behind the oldest fork could be removed anyway, and when that fork is gone, an epoch that
//! became long holds its entries until its own forks are gone.
//!
//! # Why no fork is missed
//!
//! The writer asks in this order: first which versions are held, then which leases are taken. A thread that forks a
//! version holds it, by a pin or by a handle, until its lease is taken. So for the version of any fork:
//!
//! - The writer found it held. Then nothing that the version needs is removed, whatever its counter says.
//! - The writer found that it is not held any more. Then it has synchronized with the end of each holding: the free of
//!   a version acquires what the drops of its handles release, and the look at the pins acquires what the withdrawal
//!   of a pin releases. The count of the fork comes before that end, so the writer's read of the counter, which comes
//!   after, finds it.
//!
//! A fork of a fork, or a version of a fork, counts itself while the lease that it is cloned from is counted.
//!
//! # Why a counter can be used again
//!
//! An epoch is dropped when no version of it is held and its counter is zero. Only a holder of such a version or of
//! such a lease can count itself there, so the counter stays zero until the writer gives it to another epoch.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::model::Generation;
use crate::sync::{AtomicUsize, Ordering, mutated, ordering};

/// Most epochs that are not over. A few are enough, see above; few under checkers, to reach the edge.
const EPOCHS: usize = if cfg!(loom) {
    2
} else if cfg!(test) {
    3
} else {
    64
};

/// The counters of an engine's epochs, as a ring: one for each epoch that is not over.
#[derive(Debug)]
pub(crate) struct Leases([CachePadded<AtomicUsize>; EPOCHS]);

impl Default for Leases {
    fn default() -> Leases {
        Leases(std::array::from_fn(|_| CachePadded::new(AtomicUsize::new(0))))
    }
}

/// The counter of a version's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(usize);

/// Keeps the entries that versions of an epoch need. A clone counts for itself.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: Arc<Leases>,
    epoch: Epoch,
}

impl Lease {
    /// A lease on the versions of `epoch`, one of which the caller holds at that moment. Wait-free.
    pub(crate) fn take(leases: &Arc<Leases>, epoch: Epoch) -> Lease {
        // Relaxed: what brings the count to the writer in time is the end of the caller's holding, which comes after.
        leases.0[epoch.0].fetch_add(1, Ordering::Relaxed);
        Lease { leases: leases.clone(), epoch }
    }
}

impl Clone for Lease {
    fn clone(&self) -> Lease {
        Lease::take(&self.leases, self.epoch)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Pairs with the load in `are_taken`: what the fork looked up happens before the writer overwrites it. The
        // additions and subtractions of others between the two do not break the pairing: each is a read-modify-write.
        let order = ordering!("lease-drop", Release => Relaxed);
        self.leases.0[self.epoch.0].fetch_sub(1, order);
    }
}

impl Leases {
    /// Whether a lease of this epoch exists. The writer's alone.
    fn are_taken(&self, epoch: Epoch) -> bool {
        // Pairs with the subtraction in `Lease::drop`. Zero means that every lease of the epoch was dropped.
        let taken = self.0[epoch.0].load(ordering!("lease-look", Acquire => Relaxed));
        taken > 0 && !mutated!("lease-ignored")
    }
}

/// The epochs that are not over, as their one writer knows them. In a fork they are unused.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// The counter of the oldest epoch; those of the later ones follow it in the ring.
    oldest: Epoch,
    /// The generation that the oldest epoch begins with.
    begin: Generation,
    /// The same of the later ones.
    later: VecDeque<Generation>,
    /// Whether pods went since the last of them began, so that forks of later versions need less.
    is_due: bool,
}

impl Epochs {
    fn counter(&self, later: usize) -> Epoch {
        Epoch((self.oldest.0 + later) % EPOCHS)
    }

    /// The counter of the versions from `now` on, the one that is being written. If pods went since the current epoch
    /// began, another begins, as soon as a counter is free. O(1).
    pub(crate) fn turn(&mut self, pods_went: bool, now: Generation) -> Epoch {
        self.is_due |= pods_went;
        if self.is_due && self.later.len() + 1 < EPOCHS {
            self.later.push_back(now);
            self.is_due = false;
        }
        self.counter(self.later.len())
    }

    /// The oldest version that somebody needs, by holding it or through a fork: `held`, the oldest that is held, or an
    /// older one. `held` must have been found before this call, see above. O(epochs that are over), wait-free.
    pub(crate) fn horizon(&mut self, leases: &Leases, held: Generation) -> Generation {
        loop {
            if leases.are_taken(self.oldest) {
                return self.begin.min(held);
            }
            // The version with which the next epoch began may have been published before that.
            let is_held = |next: &Generation| *next >= held && !mutated!("lease-epoch-held");
            match self.later.front() {
                Some(next) if !is_held(next) => {
                    self.begin = *next;
                    self.later.pop_front();
                    self.oldest = self.counter(1);
                }
                _ => return held,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn epochs() -> (Arc<Leases>, Epochs) {
        (Arc::new(Leases::default()), Epochs::default())
    }

    #[test]
    fn the_oldest_lease_is_the_horizon() {
        let (leases, mut epochs) = epochs();
        let first = Lease::take(&leases, epochs.turn(true, Generation(3)));
        let second = Lease::take(&leases, epochs.turn(true, Generation(7)));
        let again = first.clone();
        drop(first);
        assert_eq!(epochs.horizon(&leases, Generation(9)), Generation(3));
        drop(again);
        assert_eq!(epochs.horizon(&leases, Generation(9)), Generation(7));
        drop(second);
        assert_eq!(epochs.horizon(&leases, Generation(9)), Generation(9));
    }

    #[test]
    fn a_held_version_is_the_horizon_and_keeps_its_epoch() {
        let (leases, mut epochs) = epochs();
        let epoch = epochs.turn(true, Generation(3));
        epochs.turn(true, Generation(7));
        // Version 7 was frozen before the epoch that it begins: whoever forks it counts in the first.
        for held in [5, 7] {
            assert_eq!(epochs.horizon(&leases, Generation(held)), Generation(held));
            let fork = Lease::take(&leases, epoch);
            assert_eq!(epochs.horizon(&leases, Generation(8)), Generation(3), "{held}");
            drop(fork);
        }
        assert_eq!(epochs.horizon(&leases, Generation(8)), Generation(8));
    }

    #[test]
    fn a_fork_that_is_held_for_ever_costs_a_constant_number_of_epochs() {
        let (leases, mut epochs) = epochs();
        let first = Lease::take(&leases, epochs.turn(true, Generation(1)));
        let mut last = None;
        for now in 2..1_000 {
            last = Some(Lease::take(&leases, epochs.turn(true, Generation(now))));
            assert_eq!(epochs.horizon(&leases, Generation(now)), Generation(1));
            assert!(epochs.later.len() < EPOCHS);
        }
        drop(first);
        // All that came after the last free counter is one epoch.
        let begin = epochs.horizon(&leases, Generation(2_000));
        assert!(begin > Generation(1) && begin <= Generation(999));
        drop(last);
        assert_eq!(epochs.horizon(&leases, Generation(2_000)), Generation(2_000));
    }

    #[test]
    fn an_epoch_that_was_put_off_begins_as_soon_as_a_counter_is_free() {
        let (leases, mut epochs) = epochs();
        let old = Lease::take(&leases, epochs.turn(true, Generation(1)));
        for now in 2..100 {
            epochs.turn(true, Generation(now));
        }
        let long = Lease::take(&leases, epochs.turn(false, Generation(100)));
        drop(old);
        epochs.horizon(&leases, Generation(100));
        // No pod went since then, and many did before.
        let new = Lease::take(&leases, epochs.turn(false, Generation(101)));
        drop(long);
        assert_eq!(epochs.horizon(&leases, Generation(102)), Generation(101));
        drop(new);
    }

    #[test]
    fn a_counter_is_given_to_another_epoch_only_when_nobody_counts_in_it() {
        let (leases, mut epochs) = epochs();
        // Every fourth fork stays for ten epochs.
        let mut forks = VecDeque::new();
        for now in 1..500_u64 {
            let lease = Lease::take(&leases, epochs.turn(true, Generation(now)));
            if now % 4 == 0 {
                forks.push_back((now, lease));
            }
            while forks.front().is_some_and(|(since, _)| since + 10 < now) {
                forks.pop_front();
            }
            let horizon = epochs.horizon(&leases, Generation(now));
            assert!(forks.front().is_none_or(|(since, _)| horizon <= Generation(*since)));
        }
        forks.clear();
        assert_eq!(epochs.horizon(&leases, Generation(500)), Generation(500));
    }
}
