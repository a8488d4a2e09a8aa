//! The pods of the queue: where each is kept, and where it stands.

use hashbrown::HashTable;

use crate::framework::QueuedPod;
use crate::model::{Uid, key_hash};

use super::heap::Slot;

/// No slot, no position.
pub(super) const NONE: u32 = u32::MAX;

/// Where a pod of the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Ready to be tried (`activeQ`).
    Active,
    /// Left alone for a while after it was rejected (`podBackoffQ`).
    Backoff,
    /// Left alone for a while after an error, or with a group that was not placed
    /// (`podErrorBackoffQ`).
    ErrorBackoff,
    /// Rejected, and waiting for an event that may change that
    /// (`unschedulablePods`).
    Unschedulable,
    /// Kept from queueing by a plugin (`unschedulablePods`, gated).
    Gated,
    /// Popped, and being tried.
    InFlight,
    /// Popped and decided: events do not concern it any more, but it may fail.
    Binding,
}

impl Place {
    /// Those in which a pod waits.
    pub const QUEUES: [Place; 5] =
        [Place::Active, Place::Backoff, Place::ErrorBackoff, Place::Unschedulable, Place::Gated];

    /// As kube-scheduler labels its metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Active => "active",
            Place::Backoff | Place::ErrorBackoff => "backoff",
            Place::Unschedulable => "unschedulable",
            Place::Gated => "gated",
            Place::InFlight => "in flight",
            Place::Binding => "binding",
        }
    }
}

/// Where a pod stands among those of its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) group: u32,
    pub(super) at: u32,
}

/// A pod with what the queue needs to find it again.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queued: QueuedPod,
    pub(super) place: Place,
    /// The hash of its uid, computed once.
    pub(super) hash: u64,
    /// The framework that it is for.
    pub(super) profile: usize,
    /// Among equals of the order the first goes first.
    pub(super) arrival: u64,
    /// How many events were begun when it joined the pool.
    pub(super) joined: u64,
    /// In flight: the number of the first event since it was popped.
    pub(super) since: u64,
    /// In flight: the pods that were popped before and after it.
    pub(super) before: Slot,
    pub(super) after: Slot,
    /// In flight: it was deleted, and is not to come back.
    pub(super) deleted: bool,
    /// In flight: it was, because it is on a node.
    pub(super) landed: bool,
    /// Where it stands in its group, if it is of one.
    pub(super) member: Option<Membership>,
}

/// All pods that the queue knows, by slot and by uid.
#[derive(Default)]
pub(super) struct Pods {
    entries: Vec<Option<Entry>>,
    /// Where each stands in its heap or pool.
    pub(super) positions: Vec<u32>,
    free: Vec<Slot>,
    slots: HashTable<Slot>,
}

/// By what a pod is found.
pub(super) fn hash(uid: &Uid) -> u64 {
    key_hash(uid.key().0)
}

fn at(entries: &[Option<Entry>], slot: Slot) -> Option<&Entry> {
    entries.get(slot as usize)?.as_ref()
}

impl Pods {
    /// Slots are below this.
    pub(super) fn most(&self) -> Slot {
        self.entries.len() as Slot
    }

    /// Where the pod with this uid is kept. O(1), one hash.
    pub(super) fn find(&self, uid: &Uid) -> Option<Slot> {
        self.find_hashed(uid, hash(uid))
    }

    /// The same, where the hash is known.
    pub(super) fn find_hashed(&self, uid: &Uid, hash: u64) -> Option<Slot> {
        let is_it = |slot: &Slot| {
            at(&self.entries, *slot).is_some_and(|entry| entry.queued.pod.uid == *uid)
        };
        self.slots.find(hash, is_it).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// The entries beside the table of positions, to change that meanwhile.
    pub(super) fn split(&mut self) -> (&[Option<Entry>], &mut [u32]) {
        (&self.entries, &mut self.positions)
    }

    /// Keeps a pod whose uid is not known.
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        let hash = entry.hash;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                self.positions.push(NONE);
                (self.entries.len() - 1) as Slot
            }
        };
        let entries = &self.entries;
        self.slots.insert_unique(hash, slot, |slot| at(entries, *slot).map_or(0, |e| e.hash));
        slot
    }

    /// Forgets a pod.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let hash = at(&self.entries, slot)?.hash;
        if let Ok(found) = self.slots.find_entry(hash, |known| *known == slot) {
            found.remove();
        }
        self.free.push(slot);
        self.entries[slot as usize].take()
    }
}

/// Pods in no order, from which any can be taken.
#[derive(Debug, Default)]
pub(super) struct Pool(Vec<Slot>);

impl Pool {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<Slot> {
        self.0.get(at).copied()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.0.iter().copied()
    }

    pub(super) fn push(&mut self, slot: Slot, positions: &mut [u32]) {
        positions[slot as usize] = self.0.len() as u32;
        self.0.push(slot);
    }

    pub(super) fn remove(&mut self, at: usize, positions: &mut [u32]) {
        if at < self.0.len() {
            self.0.swap_remove(at);
            if let Some(moved) = self.0.get(at) {
                positions[*moved as usize] = at as u32;
            }
        }
    }
}
