//! Victims whose eviction has begun, until the log reports their end.
//!
//! The log learns of a deletion later than the scheduler requests it. An attempt in between finds the victim running:
//! it would evict the victim again, or preempt other pods on a second node for the same preemptor. A victim that is
//! being evicted therefore counts as terminating.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Uid;
use crate::sync::{AtomicUsize, Ordering};

/// The victims, each with the other preemptors that need its end. Shared between threads.
#[derive(Debug, Default)]
pub(crate) struct BeingEvicted {
    victims: Mutex<HashMap<Uid, Vec<Uid>>>,
    /// The number of victims. Attempts ask for many pods, and victims are rare. Relaxed suffices: an attempt of a
    /// preemptor comes after its eviction through the queue's lock, and for others a victim that is missed is one that
    /// is evicted later.
    count: AtomicUsize,
}

impl BeingEvicted {
    /// Begins the eviction of a victim. Returns `false` if another eviction of it has begun, which this preemptor then
    /// needs.
    pub(super) fn begin(&self, victim: &Uid, preemptor: &Uid) -> bool {
        let mut victims = self.lock();
        match victims.entry(victim.clone()) {
            Entry::Vacant(new) => {
                new.insert(Vec::new());
                self.count.store(victims.len(), Ordering::Relaxed);
                true
            }
            Entry::Occupied(mut known) => {
                wait_for(known.get_mut(), preemptor);
                false
            }
        }
    }

    /// Returns whether the pod is being evicted, and the log does not know it yet. If so, `preemptor` needs its end
    /// from now on.
    pub(super) fn awaits(&self, victim: &Uid, preemptor: &Uid) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut victims = self.lock();
        let known = victims.get_mut(victim);
        known.map(|preemptors| wait_for(preemptors, preemptor)).is_some()
    }

    /// Ends the eviction: the pod is terminating in the log, is gone or returns to the queue, or the eviction has
    /// failed. Returns the other preemptors that needed its end.
    pub(crate) fn end(&self, victim: &Uid) -> Vec<Uid> {
        // Without looking at the count first: an eviction that begins reads the newest version after it has added its
        // victims, and the lock orders the two, so either this finds the victim or the eviction finds the new version.
        let mut victims = self.lock();
        let others = victims.remove(victim).unwrap_or_default();
        self.count.store(victims.len(), Ordering::Relaxed);
        others
    }

    /// Returns whether the pod is being evicted, and the log does not know it yet.
    pub(crate) fn contains(&self, uid: &Uid) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.lock().contains_key(uid)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uid, Vec<Uid>>> {
        // Every critical section leaves a valid map.
        self.victims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a preemptor that needs a victim's end. It may ask in each of its attempts.
fn wait_for(preemptors: &mut Vec<Uid>, preemptor: &Uid) {
    if !preemptors.contains(preemptor) {
        preemptors.push(preemptor.clone());
    }
}
