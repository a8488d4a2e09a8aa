//! Leases tell the writer which versions forks still need, without making it wait for a fork.
//!
//! A fork outlives the version that it starts at, and keeps looking up pods in the index that all versions share (see
//! `pod_index.rs`). The writer must not remove an entry that a fork needs, nor wait for a thread that is creating or
//! dropping a fork.
//!
//! The writer's versions are divided into *epochs*: runs of consecutive versions, each with a counter. A version
//! carries the number of its epoch's counter and nothing else, so leases add no cost to publishing. A fork holds a
//! [`Lease`], which is one count in that counter. The writer stores the first generation of each epoch, reads the
//! counter of the oldest epoch, and ends the epoch when nobody can need any of its versions.
//!
//! # Cost
//!
//! Taking and dropping a lease is one atomic addition each, without a lock or a loop. The writer reads at most one
//! counter per epoch, of which there are at most [`EPOCHS`], regardless of how many forks exist and where their threads
//! are stopped.
//!
//! If all counters are in use, the current epoch continues until the oldest one ends. This costs precision, not
//! correctness: while the oldest fork exists, no later entry could be removed anyway. Once that fork is dropped, the
//! epoch that grew long retains its entries until its own forks are dropped.
//!
//! # Why no fork is missed
//!
//! The writer first determines which versions are held, and then which leases are taken. A thread that forks a version
//! holds it, by a pin or by a handle, until the lease is taken. So for the version of any fork, one of two cases
//! applies:
//!
//! - The writer finds the version held. Then it removes nothing that the version needs, whatever its counter says.
//! - The writer finds the version no longer held. Then it has synchronized with the end of every hold: freeing a
//!   version acquires what the drops of its handles release, and scanning the pins acquires what the withdrawal of a
//!   pin releases. The fork's count precedes that end, and the writer reads the counter after it, so the writer sees
//!   the count.
//!
//! A fork of a fork, or of a fork's version, is counted while the lease that it is cloned from is still counted.
//!
//! # Why a counter can be reused
//!
//! An epoch ends when none of its versions is held and its counter is zero. Only a holder of such a version or of such
//! a lease can increment the counter, so it stays zero until the writer assigns it to another epoch.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::model::Generation;
use crate::sync::{AtomicUsize, Ordering, mutated, ordering};

/// Maximum number of epochs that have not ended. A few suffice, see above; under checkers the number is small, so that
/// they reach the limit.
const EPOCHS: usize = if cfg!(loom) {
    2
} else if cfg!(test) {
    3
} else {
    64
};

/// The counters of an engine's epochs, as a ring: one for each epoch that has not ended.
#[derive(Debug)]
pub(crate) struct Leases([CachePadded<AtomicUsize>; EPOCHS]);

impl Default for Leases {
    fn default() -> Leases {
        Leases(std::array::from_fn(|_| CachePadded::new(AtomicUsize::new(0))))
    }
}

/// The index of the counter of a version's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(usize);

/// Preserves the index entries that versions of an epoch need. Each clone is counted separately.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: Arc<Leases>,
    epoch: Epoch,
}

impl Lease {
    /// Takes a lease on the versions of `epoch`, one of which the caller must be holding. Wait-free.
    pub(crate) fn take(leases: &Arc<Leases>, epoch: Epoch) -> Lease {
        // Relaxed: the end of the caller's hold, which comes later, makes the count visible to the writer in time.
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
        // Pairs with the load in `are_taken`: the fork's lookups happen before the writer overwrites their entries.
        // Additions and subtractions by other forks between the two do not break the pairing, because each is a
        // read-modify-write.
        let order = ordering!("lease-drop", Release => Relaxed);
        self.leases.0[self.epoch.0].fetch_sub(1, order);
    }
}

impl Leases {
    /// Returns whether a lease of this epoch exists. Only the writer may call this.
    fn are_taken(&self, epoch: Epoch) -> bool {
        // Pairs with the subtraction in `Lease::drop`. Zero means that every lease of the epoch has been dropped.
        let taken = self.0[epoch.0].load(ordering!("lease-look", Acquire => Relaxed));
        taken > 0 && !mutated!("lease-ignored")
    }
}

/// The epochs that have not ended, as the one writer knows them. A fork does not use this.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// The counter of the oldest epoch; the counters of the later ones follow it in the ring.
    oldest: Epoch,
    /// The first generation of the oldest epoch.
    begin: Generation,
    /// The first generations of the later epochs, in order.
    later: VecDeque<Generation>,
    /// Whether pods departed since the newest epoch began, so that forks of later versions need fewer entries.
    is_due: bool,
}

impl Epochs {
    fn counter(&self, later: usize) -> Epoch {
        Epoch((self.oldest.0 + later) % EPOCHS)
    }

    /// Returns the counter for the version `now`, which is being written, and those after it. If pods departed since
    /// the current epoch began, a new epoch begins as soon as a counter is free. O(1).
    pub(crate) fn turn(&mut self, pods_departed: bool, now: Generation) -> Epoch {
        self.is_due |= pods_departed;
        if self.is_due && self.later.len() + 1 < EPOCHS {
            self.later.push_back(now);
            self.is_due = false;
        }
        self.counter(self.later.len())
    }

    /// Returns the oldest version that is needed by a holder or a fork, or an older one. `held` is the oldest version
    /// that is held, and must have been determined before this call, see above. O(epochs that end), wait-free.
    pub(crate) fn horizon(&mut self, leases: &Leases, held: Generation) -> Generation {
        loop {
            if leases.are_taken(self.oldest) {
                return self.begin.min(held);
            }
            // The version with which the next epoch began may have been published before the epoch began.
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
        // Version 7 was frozen before the epoch that it begins, so forks of it count in the first epoch.
        for held in [5, 7] {
            assert_eq!(epochs.horizon(&leases, Generation(held)), Generation(held));
            let fork = Lease::take(&leases, epoch);
            assert_eq!(epochs.horizon(&leases, Generation(8)), Generation(3), "{held}");
            drop(fork);
        }
        assert_eq!(epochs.horizon(&leases, Generation(8)), Generation(8));
    }

    #[test]
    fn a_fork_held_forever_costs_a_constant_number_of_epochs() {
        let (leases, mut epochs) = epochs();
        let first = Lease::take(&leases, epochs.turn(true, Generation(1)));
        let mut last = None;
        for now in 2..1_000 {
            last = Some(Lease::take(&leases, epochs.turn(true, Generation(now))));
            assert_eq!(epochs.horizon(&leases, Generation(now)), Generation(1));
            assert!(epochs.later.len() < EPOCHS);
        }
        drop(first);
        // All versions after the last free counter was taken form one epoch.
        let begin = epochs.horizon(&leases, Generation(2_000));
        assert!(begin > Generation(1) && begin <= Generation(999));
        drop(last);
        assert_eq!(epochs.horizon(&leases, Generation(2_000)), Generation(2_000));
    }

    #[test]
    fn a_delayed_epoch_begins_as_soon_as_a_counter_is_free() {
        let (leases, mut epochs) = epochs();
        let old = Lease::take(&leases, epochs.turn(true, Generation(1)));
        for now in 2..100 {
            epochs.turn(true, Generation(now));
        }
        let long = Lease::take(&leases, epochs.turn(false, Generation(100)));
        drop(old);
        epochs.horizon(&leases, Generation(100));
        // No pod departed since then, but many did before.
        let new = Lease::take(&leases, epochs.turn(false, Generation(101)));
        drop(long);
        assert_eq!(epochs.horizon(&leases, Generation(102)), Generation(101));
        drop(new);
    }

    #[test]
    fn a_counter_is_reused_only_when_no_lease_counts_in_it() {
        let (leases, mut epochs) = epochs();
        // Every fourth fork is held for ten epochs.
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
