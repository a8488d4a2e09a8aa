//! The pods of the queue, by slot and uid, with their positions in heaps and pools.

use hashbrown::HashTable;

use crate::framework::QueuedPod;
use crate::model::{Uid, key_hash};

use super::heap::Slot;

/// Marks the absence of a slot or a position.
pub(super) const NONE: u32 = u32::MAX;

/// The part of the queue that a pod is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Ready to be tried (`activeQ`).
    Active,
    /// Backing off after a rejection (`podBackoffQ`).
    Backoff,
    /// Backing off after an error, or with a group that was not placed (`podErrorBackoffQ`).
    ErrorBackoff,
    /// Rejected, and waiting for an event that may make the pod schedulable (`unschedulablePods`).
    Unschedulable,
    /// Kept out of the queue by a PreEnqueue plugin (`unschedulablePods`, gated).
    Gated,
    /// Popped, with its attempt in progress.
    InFlight,
    /// Popped and placed, with its binding in progress. Events are no longer recorded for the pod, but its binding may
    /// still fail.
    Binding,
}

impl Place {
    /// The places in which a pod waits.
    pub const QUEUES: [Place; 5] =
        [Place::Active, Place::Backoff, Place::ErrorBackoff, Place::Unschedulable, Place::Gated];

    /// Returns the label that kube-scheduler's metrics use.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
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

/// A pod's group, and its position among the members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) group: u32,
    pub(super) at: u32,
}

/// A pod with the queue's bookkeeping.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queued: QueuedPod,
    pub(super) place: Place,
    /// The hash of the pod's uid, computed once.
    pub(super) hash: u64,
    /// The index of the pod's profile.
    pub(super) profile: usize,
    /// Orders equal pods: the lowest number is tried first.
    pub(super) arrival: u64,
    /// The number of events begun when the pod entered its current place.
    pub(super) joined: u64,
    /// In flight: the number of the first event after the pop.
    pub(super) since: u64,
    /// In flight: the slots of the pods popped just before and just after this one.
    pub(super) before: Slot,
    pub(super) after: Slot,
    /// In flight: the pod was deleted, and is removed when it returns.
    pub(super) deleted: bool,
    /// In flight: the pod counts as deleted because it is on a node.
    pub(super) on_node: bool,
    /// An attempt of this scheduler changed the object's nomination, and no object from the API server shows it yet.
    pub(super) is_nomination_unconfirmed: bool,
    /// The pod's membership in its group, if it has one.
    pub(super) member: Option<Membership>,
}

/// All pods that the queue knows, by slot and by uid.
#[derive(Default)]
pub(super) struct Pods {
    entries: Vec<Option<Entry>>,
    /// The position of each slot in its heap or pool.
    pub(super) positions: Vec<u32>,
    free: Vec<Slot>,
    slots: HashTable<Slot>,
}

/// Returns the hash by which pods are looked up.
pub(super) fn hash(uid: &Uid) -> u64 {
    key_hash(uid.key().0)
}

fn at(entries: &[Option<Entry>], slot: Slot) -> Option<&Entry> {
    entries.get(slot as usize)?.as_ref()
}

impl Pods {
    /// Returns the upper bound of the slots in use, exclusive.
    pub(super) fn slot_bound(&self) -> Slot {
        self.entries.len() as Slot
    }

    /// Returns the slot of the pod with this uid. O(1), one hash.
    pub(super) fn find(&self, uid: &Uid) -> Option<Slot> {
        self.find_hashed(uid, hash(uid))
    }

    /// Like [`Pods::find`], for a caller that knows the hash.
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

    /// Borrows the entries and the position table separately, so that positions can be updated while entries are read.
    pub(super) fn split(&mut self) -> (&[Option<Entry>], &mut [u32]) {
        (&self.entries, &mut self.positions)
    }

    /// Inserts a pod whose uid is not known yet.
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

    /// Removes a pod.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let hash = at(&self.entries, slot)?.hash;
        if let Ok(found) = self.slots.find_entry(hash, |known| *known == slot) {
            found.remove();
        }
        self.free.push(slot);
        self.entries[slot as usize].take()
    }
}

/// An unordered set of pods with O(1) removal.
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
