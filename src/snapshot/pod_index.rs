//! Finds pods by uid and by name through one index that all versions share.
//!
//! A version stores its pods only in its lanes. This index is a hint: for the hash of a uid or of a name, it returns
//! the slots of nodes that may have the pod, and the caller searches those lanes of its own version. A superfluous
//! entry therefore costs one more search and never yields a wrong answer. For this reason all versions can share one
//! index that the writer changes in place, and no placement copies a path of it.
//!
//! Readers rely on the index never lacking an entry:
//!
//! - An entry is inserted before the version that needs it is published, and publication orders the insertion before
//!   all reads through that version.
//! - An entry is removed only when nobody needs a version from before the removal of its pod ([`Departures`]): each
//!   version, and each fork of it, holds an [`Epoch`].
//! - An entry never moves within its segment, and no cell before it on its probe path becomes empty. A full segment is
//!   replaced by new ones; older versions keep the old segment with all the entries that they need.

use triomphe::Arc;

use crate::freeing;
use crate::model::Generation;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, mutated};

use super::cost;
use super::departures::Departures;
use super::epochs::Epoch;
use super::hash_index::HashIndex;

/// Maximum number of cells of a segment, unless its entries cannot be distinguished by their hashes.
const CELLS: usize = if cfg!(loom) {
    4
} else if cfg!(test) {
    64
} else {
    1024
};
/// Number of cells of the first segment, and the minimum for any segment.
const FEWEST: usize = if cfg!(loom) { 4 } else { 16 };
/// Number of segments in a group.
const GROUP: usize = 64;

/// An empty cell, which ends probe paths.
const EMPTY: u64 = u64::MAX;
/// A cell whose entry was removed, and which does not end probe paths.
const FREED: u64 = u64::MAX - 1;
/// The bit set in an entry whose pod is absent from the latest version.
const DEPARTED: u64 = 1 << 31;

/// Exclusive upper bound of slots, which ensures that an entry never equals one of the marks above.
pub(crate) const MAX_SLOTS: u32 = (1 << 31) - (1 << 18);

/// The pod index of one version.
#[derive(Clone)]
pub(crate) struct PodIndex(Arc<Directory>);

/// Segments by the leading bits of the hash (extendible hashing).
struct Directory {
    /// Number of leading bits.
    depth: u32,
    /// Number of segments that can only be distinguished by all of these bits.
    deepest: usize,
    /// `1 << depth` segments, in groups. A segment that needs fewer bits occurs several times.
    groups: Vec<Arc<Group>>,
}

/// Adjacent segments of the directory.
struct Group(Vec<Arc<Segment>>);

impl Group {
    fn new(segments: Vec<Arc<Segment>>) -> Arc<Group> {
        freeing::count(segments.len());
        Arc::new(Group(segments))
    }
}

impl Clone for Group {
    fn clone(&self) -> Group {
        freeing::count(self.0.len());
        Group(self.0.clone())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        freeing::drop_children(&mut self.0);
    }
}

impl Clone for Directory {
    fn clone(&self) -> Directory {
        freeing::count(self.groups.len());
        Directory { groups: self.groups.clone(), ..*self }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        freeing::drop_children(&mut self.groups);
    }
}

/// A hash table with linear probing.
struct Segment {
    /// Number of leading bits that the hashes of all entries have in common.
    depth: u32,
    /// `used` counts the cells that are not empty, `entries` those of them that hold entries. Only the writer accesses
    /// either.
    used: AtomicUsize,
    entries: AtomicUsize,
    /// Entries: the hash in the upper half, the slot in the lower.
    cells: Box<[AtomicU64]>,
}

/// Returns the part of a hash that the index uses.
pub(super) fn short(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn hash_of_entry(entry: u64) -> u32 {
    (entry >> 32) as u32
}

impl Segment {
    fn new(depth: u32, cells: usize) -> Segment {
        cost::copied_bytes(8 * cells, 0);
        Segment {
            depth,
            used: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            cells: (0..cells).map(|_| AtomicU64::new(EMPTY)).collect(),
        }
    }

    /// Returns the cells on a hash's probe path with their contents, up to the first empty cell.
    fn path(&self, hash: u32) -> impl Iterator<Item = (usize, u64)> {
        let mask = self.cells.len() - 1;
        (0..self.cells.len()).map_while(move |step| {
            let at = (hash as usize).wrapping_add(step) & mask;
            let cell = self.get(at);
            (cell != EMPTY).then_some((at, cell))
        })
    }

    fn get(&self, at: usize) -> u64 {
        // Relaxed: a cell is its own content, and no other memory is reached through it. The publication of a version
        // orders its entries before the reads through it.
        self.cells[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, cell: u64) {
        // Relaxed: see `get`.
        self.cells[at].store(cell, Ordering::Relaxed);
    }

    /// Returns the number of entries, departed ones included.
    fn len(&self) -> usize {
        // Relaxed: only the writer accesses this count.
        self.entries.load(Ordering::Relaxed)
    }

    /// Adds the effect of a changed cell to both counts.
    fn count(&self, used: isize, entries: isize) {
        // Relaxed: only the writer accesses these counts.
        self.used
            .store(self.used.load(Ordering::Relaxed).wrapping_add_signed(used), Ordering::Relaxed);
        self.entries.store(self.len().wrapping_add_signed(entries), Ordering::Relaxed);
    }

    /// Inserts an entry. Returns `Some(true)` if it replaced an equal entry that was marked as departed, and `None` if
    /// the segment is full.
    fn insert(&self, entry: u64) -> Option<bool> {
        if self.replace(entry | DEPARTED, entry).is_some() {
            return Some(true);
        }
        self.add(entry).then_some(false)
    }

    /// Inserts an entry without looking for an equal one. Returns `false` if the segment is full.
    fn add(&self, entry: u64) -> bool {
        let mask = self.cells.len() - 1;
        let hash = hash_of_entry(entry);
        let (mut freed, mut last) = (None, (hash as usize).wrapping_sub(1));
        for (at, cell) in self.path(hash) {
            if cell == FREED {
                freed = freed.or(Some(at));
            }
            last = at;
        }
        if let Some(at) = freed {
            self.set(at, entry);
            self.count(0, 1);
            return true;
        }
        // Some cells must stay empty, so that every path ends soon.
        if self.used.load(Ordering::Relaxed) >= self.cells.len() - self.cells.len() / 8 {
            return false;
        }
        self.set(last.wrapping_add(1) & mask, entry);
        self.count(1, 1);
        true
    }

    /// Replaces an entry by a mark, or by another entry with the same hash.
    fn replace(&self, entry: u64, by: u64) -> Option<usize> {
        let (at, _) = self.path(hash_of_entry(entry)).find(|(_, cell)| *cell == entry)?;
        self.set(at, by);
        Some(at)
    }

    /// Removes an entry. If no cell follows on its path, its cell becomes empty and ends paths again, and so do freed
    /// cells before it.
    fn remove(&self, entry: u64) {
        let mask = self.cells.len() - 1;
        let freed = if mutated!("pod-index-end-paths") { EMPTY } else { FREED };
        let Some(mut at) = self.replace(entry, freed) else { return };
        let mut emptied = 0;
        while self.get(at) == FREED && self.get((at + 1) & mask) == EMPTY {
            self.set(at, EMPTY);
            emptied += 1;
            at = at.wrapping_sub(1) & mask;
        }
        self.count(-emptied, -1);
    }

    fn to_vec(&self) -> Vec<u64> {
        let cells = (0..self.cells.len()).map(|at| self.get(at));
        cells.filter(|cell| !matches!(*cell, EMPTY | FREED)).collect()
    }

    /// Builds a segment with all of the entries and room for more.
    fn with(depth: u32, entries: &[u64]) -> Segment {
        let cells = (entries.len() * 2 + 1).next_power_of_two().max(FEWEST);
        let segment = Segment::new(depth, cells);
        for entry in entries {
            // Half of the cells are free, so this never fails. Pods on one node with equal hashes have equal entries,
            // some of them departed; each entry must remain a separate one.
            segment.add(*entry);
        }
        segment
    }
}

impl Directory {
    fn position(&self, hash: u32) -> usize {
        // Two shifts, because a single shift by 32 bits would overflow.
        (hash >> 1 >> (31 - self.depth)) as usize
    }

    fn segment(&self, hash: u32) -> &Arc<Segment> {
        let at = self.position(hash);
        &self.groups[at / GROUP].0[at % GROUP]
    }

    fn len(&self) -> usize {
        1 << self.depth
    }

    /// Stores a segment at all positions that share its leading bits.
    fn put(&mut self, first: usize, segment: &Arc<Segment>) {
        let copies = 1 << (self.depth - segment.depth);
        let first = first / copies * copies;
        for at in first..first + copies {
            let group = Arc::make_mut(&mut self.groups[at / GROUP]);
            group.0[at % GROUP] = segment.clone();
        }
    }

    fn double(&mut self) {
        let segments: Vec<&Arc<Segment>> =
            self.groups.iter().flat_map(|group| group.0.iter()).flat_map(|s| [s, s]).collect();
        cost::copied_bytes(8 * segments.len(), segments.len());
        let groups = segments
            .chunks(GROUP)
            .map(|group| Group::new(group.iter().copied().cloned().collect()));
        self.groups = groups.collect();
        freeing::count(self.groups.len());
        self.depth += 1;
        self.deepest = 0;
    }

    /// Halves the directory until some segment needs all of its bits.
    fn halve(&mut self) {
        while self.depth > 0 && self.deepest == 0 {
            let segments = self.groups.iter().flat_map(|group| group.0.iter());
            let segments: Vec<&Arc<Segment>> = segments.step_by(2).collect();
            cost::copied_bytes(8 * segments.len(), segments.len());
            self.depth -= 1;
            self.deepest = segments.iter().filter(|segment| segment.depth == self.depth).count();
            let groups = segments
                .chunks(GROUP)
                .map(|group| Group::new(group.iter().copied().cloned().collect()));
            self.groups = groups.collect();
            freeing::count(self.groups.len());
        }
    }

    /// Makes room in a full segment: replaces it by two segments, or by a larger one if its entries have too many
    /// leading bits in common.
    fn grow_segment(&mut self, hash: u32) {
        cost::copied_bytes(8 * self.groups.len() + 8 * GROUP, self.groups.len() + GROUP);
        let full = self.segment(hash).clone();
        let mut entries = full.to_vec();
        if mutated!("pod-index-split-forgets") {
            entries.retain(|entry| entry & DEPARTED == 0);
        }
        let first = self.position(hash);
        // If most segments are nearly empty, the hashes have a common prefix, and a larger directory would not help.
        let may_split = full.depth < self.depth || self.depth < 3 || {
            let some = (0..64).map(|i| i * self.len() / 64);
            let entries = |at: usize| self.groups[at / GROUP].0[at % GROUP].len();
            self.depth < 31 && some.map(entries).sum::<usize>() > 64 * CELLS / 16
        };
        if entries.len() < CELLS / 2 || !may_split {
            let segment = Arc::new(Segment::with(full.depth, &entries));
            return self.put(first, &segment);
        }
        if full.depth == self.depth {
            self.double();
        }
        let depth = full.depth + 1;
        self.deepest += if depth == self.depth { 2 } else { 0 };
        let is_right = |entry: &u64| hash_of_entry(*entry) >> (32 - depth) & 1 == 1;
        let (right, left): (Vec<u64>, Vec<u64>) = entries.iter().partition(|e| is_right(e));
        let copies = 1 << (self.depth - depth);
        let first = self.position(hash) / (2 * copies) * (2 * copies);
        self.put(first, &Arc::new(Segment::with(depth, &left)));
        self.put(first + copies, &Arc::new(Segment::with(depth, &right)));
    }

    /// Shrinks a sparse segment: merges it with the segment that differs only in the last bit, or replaces it by a
    /// smaller one.
    fn shrink_segment(&mut self, hash: u32) {
        let sparse = self.segment(hash).clone();
        let copies = 1 << (self.depth - sparse.depth);
        let first = self.position(hash) / copies * copies;
        let other = first ^ copies;
        let twin = (sparse.depth > 0).then(|| self.groups[other / GROUP].0[other % GROUP].clone());
        cost::copied_bytes(8 * self.groups.len() + 8 * GROUP, self.groups.len() + GROUP);
        match twin.filter(|twin| twin.depth == sparse.depth && twin.len() <= CELLS / 8) {
            Some(twin) => {
                let entries = [sparse.to_vec(), twin.to_vec()].concat();
                self.deepest -= if sparse.depth == self.depth { 2 } else { 0 };
                self.put(first.min(other), &Arc::new(Segment::with(sparse.depth - 1, &entries)));
                self.halve();
            }
            None if sparse.cells.len() > FEWEST => {
                self.put(first, &Arc::new(Segment::with(sparse.depth, &sparse.to_vec())));
            }
            None => {}
        }
    }
}

impl Default for PodIndex {
    fn default() -> PodIndex {
        let segment = Arc::new(Segment::new(0, FEWEST));
        freeing::count(1);
        PodIndex(Arc::new(Directory {
            depth: 0,
            deepest: 1,
            groups: vec![Group::new(vec![segment])],
        }))
    }
}

impl PodIndex {
    /// Returns the first slot under `hash` that `is` accepts. O(1) expected.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = short(hash);
        let cells = self.0.segment(hash).path(hash).map(|(_, cell)| cell);
        cells
            .filter(|cell| hash_of_entry(*cell) == hash && *cell != FREED)
            .map(|cell| (cell & !DEPARTED) as u32)
            .find(|slot| is(*slot))
    }

    /// Records that a pod with this hash is on the node with this slot. O(1) amortized.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, departures: &mut Departures) {
        let hash = short(hash);
        let entry = u64::from(hash) << 32 | u64::from(slot);
        loop {
            match self.0.segment(hash).insert(entry) {
                Some(true) => return departures.mark_returned(entry),
                Some(false) => return,
                None => Arc::make_mut(&mut self.0).grow_segment(hash),
            }
        }
    }

    /// Records that the pod with this hash left the node with this slot in version `now`. O(1) expected.
    pub(crate) fn depart(
        &mut self,
        hash: u64,
        slot: u32,
        now: Generation,
        departures: &mut Departures,
    ) {
        let hash = short(hash);
        let entry = u64::from(hash) << 32 | u64::from(slot);
        if self.0.segment(hash).replace(entry, entry | DEPARTED).is_some() {
            departures.push(now, entry);
        }
    }

    /// Removes at most `most` entries that no version or fork needs any more. O(entries removed) expected.
    pub(crate) fn settle(&mut self, departures: &mut Departures, most: usize) {
        if departures.is_empty() {
            return;
        }
        let horizon = departures.epochs.horizon();
        for _ in 0..most {
            let Some(entry) = departures.take_first(horizon) else { break };
            if departures.take_returned(entry) {
                continue;
            }
            let hash = hash_of_entry(entry);
            let segment = self.0.segment(hash);
            segment.remove(entry | DEPARTED);
            let (len, cells) = (segment.len(), segment.cells.len());
            if len < cells / 8 && (cells > FEWEST || segment.depth > 0) {
                Arc::make_mut(&mut self.0).shrink_segment(hash);
            }
        }
    }
}

/// The pod lookup of a version: the index that all of the writer's versions share, and in a fork also an index of the
/// fork's own.
pub(crate) struct PodLookup {
    index: PodIndex,
    /// Keeps the entries that this version of the writer needs, or in a fork, the one that it starts at.
    epoch: Epoch,
    /// The index of a fork's own pods.
    own: Option<HashIndex>,
    has_names: bool,
}

impl PodLookup {
    /// Creates an empty lookup, by uid and, with `has_names`, also by name.
    pub(crate) fn new(has_names: bool) -> PodLookup {
        PodLookup { index: PodIndex::default(), epoch: Epoch::default(), own: None, has_names }
    }

    /// Returns whether pods can be looked up by name, too.
    pub(crate) fn has_names(&self) -> bool {
        self.has_names
    }

    /// Returns the lookup for another version of the same lineage. O(1), wait-free.
    pub(crate) fn share(&self) -> PodLookup {
        PodLookup {
            index: self.index.clone(),
            epoch: self.epoch.clone(),
            own: self.own.clone(),
            has_names: self.has_names,
        }
    }

    /// Starts a new lineage at this version. O(1).
    pub(crate) fn fork_off(&mut self) {
        self.own.get_or_insert_default();
    }

    /// Enters the epoch of the version `now`, which the writer is about to freeze. O(1).
    pub(crate) fn turn(&mut self, departures: &mut Departures, now: Generation) {
        if self.own.is_none() {
            self.epoch = departures.epochs.turn(now);
        }
    }

    /// Returns the first slot under `hash` that `is` accepts. The lookup may offer slots of other pods as well. O(1)
    /// expected, O(log n) in a fork.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let own = self.own.as_ref().and_then(|own| own.find(hash, &mut is));
        own.or_else(|| self.index.find(hash, is))
    }

    /// Records that a pod was placed. `departures` are those of the writer.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, departures: &mut Departures) {
        match &mut self.own {
            Some(own) => own.insert(hash, slot),
            None => self.index.insert(hash, slot, departures),
        }
    }

    /// Records that a pod was removed. `departures` are those of the writer.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        slot: u32,
        now: Generation,
        departures: &mut Departures,
    ) {
        match &mut self.own {
            // A pod placed before the fork has no entry here. If the removed entry belongs to another pod that replaced
            // it, the shared index still leads to that pod.
            Some(own) => own.remove(hash, slot),
            None => self.index.depart(hash, slot, now, departures),
        }
    }

    /// Removes the entries of at most `most` departed pods that no version or fork needs any more. O(`most`).
    pub(crate) fn settle(&mut self, departures: &mut Departures, most: usize) {
        self.index.settle(departures, most);
        departures.settled = departures.len();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use std::collections::VecDeque;

    use super::*;

    /// Keys with their slots.
    type Entries = BTreeSet<(u32, u32)>;

    fn spread(i: u32) -> u64 {
        u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn slots(index: &PodIndex, hash: u64) -> Vec<u32> {
        let mut slots = Vec::new();
        index.find(hash, |slot| {
            slots.push(slot);
            false
        });
        slots
    }

    proptest! {
        #[test]
        fn every_held_version_finds_all_of_its_pods(
            ops in prop::collection::vec((any::<bool>(), 0..2000_u32, 0..4_u32), 1..1500),
            holds in prop::collection::vec(0..40_usize, 4),
            common_prefix in any::<bool>(),
        ) {
            // The leading bits of all hashes may be equal.
            let hash = |key: u32| if common_prefix { u64::from(key % 7) << 32 } else { spread(key) };
            let mut index = PodIndex::default();
            let mut departures = Departures::default();
            let mut now = Entries::new();
            let mut held: VecDeque<(Epoch, PodIndex, Entries)> = VecDeque::new();
            for (i, (add, key, slot)) in ops.into_iter().enumerate() {
                let generation = Generation(i as u64 + 1);
                if add {
                    if now.insert((key, slot)) {
                        index.insert(hash(key), slot, &mut departures);
                    }
                } else if now.remove(&(key, slot)) {
                    index.depart(hash(key), slot, generation, &mut departures);
                }
                let epoch = departures.epochs.turn(generation);
                held.push_back((epoch, index.clone(), now.clone()));
                while held.len() > holds[i % 4] + 1 {
                    held.pop_front();
                }
                index.settle(&mut departures, 3);
                if i % 97 == 0 {
                    for (_, index, now) in [&held[0], &held[held.len() / 2]] {
                        for (key, slot) in now {
                            prop_assert!(index.find(hash(*key), |s| s == *slot).is_some());
                        }
                    }
                }
            }
            held.clear();
            departures.epochs.turn(Generation(u64::MAX));
            index.settle(&mut departures, usize::MAX);
            prop_assert_eq!(departures.len(), 0);
            prop_assert!(departures.returned.is_empty());
            let directory = &index.0;
            let mut entries = 0;
            for at in 0..directory.len() {
                let segment = &directory.groups[at / GROUP].0[at % GROUP];
                let first = 1 << (directory.depth - segment.depth);
                if at % first == 0 {
                    entries += segment.len();
                }
            }
            prop_assert_eq!(entries, now.len());
        }
    }

    #[test]
    fn pods_with_equal_entries_stay_separate_when_segments_are_replaced() {
        let mut index = PodIndex::default();
        let mut departures = Departures::default();
        // Two pods share one entry. One departs, the segment grows, and the other departs.
        index.insert(0, 1, &mut departures);
        index.insert(0, 1, &mut departures);
        index.depart(0, 1, Generation(2), &mut departures);
        for i in 1..200 {
            index.insert(spread(i), 7, &mut departures);
        }
        // A version that still has the second pod is held.
        let held = departures.epochs.turn(Generation(5));
        index.depart(0, 1, Generation(9), &mut departures);
        departures.epochs.turn(Generation(9));
        index.settle(&mut departures, usize::MAX);
        assert!(slots(&index, 0).contains(&1));
        drop(held);
        index.settle(&mut departures, usize::MAX);
        assert!(!slots(&index, 0).contains(&1));
    }

    #[test]
    fn a_million_entries_can_be_added_and_removed() {
        const ENTRIES: u32 = if cfg!(miri) { 1_000 } else { 1_000_000 };
        let mut index = PodIndex::default();
        let mut departures = Departures::default();
        for i in 0..ENTRIES {
            index.insert(spread(i), i % 5000, &mut departures);
        }
        for i in 0..ENTRIES {
            assert!(slots(&index, spread(i)).contains(&(i % 5000)));
            index.depart(spread(i), i % 5000, Generation(1), &mut departures);
        }
        departures.epochs.turn(Generation(1));
        index.settle(&mut departures, usize::MAX);
        assert!((0..ENTRIES).all(|i| slots(&index, spread(i)).is_empty()));
        assert_eq!((index.0.depth, index.0.len()), (0, 1));
    }
}
