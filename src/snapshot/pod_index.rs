//! Where pods are, by uid: one index in place of one per version.
//!
//! A version knows its pods by its lanes alone. This index only says where to
//! look: for a hash, the slots of nodes that may have the pod. Who asks looks
//! into those lanes of their own version, so an entry too many costs a look and
//! is never a wrong answer. That is why all versions can share one index that
//! its writer changes in place: no placement copies a path of it.
//!
//! What a reader relies on is that no entry is missing:
//!
//! - An entry is put in before the version that needs it is published, and the
//!   publication orders the one before the other.
//! - An entry is taken out only when nobody holds a version from before the
//!   removal of its pod ([`Departures`]). Forks outlive the versions that they
//!   start at, and take a [`Lease`] on them.
//! - An entry never moves within its segment, and no cell before it on its
//!   probe path becomes empty. A segment that is full is replaced by others;
//!   older versions keep the one that they have, with all that they need.

use triomphe::Arc;

use crate::freeing;
use crate::model::Generation;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, mutated};

use super::cost;
use super::departures::Departures;
use super::hash_index::HashIndex;
use super::leases::{Epoch, Lease, Leases};

/// Most cells of a segment, unless its entries cannot be told apart.
const CELLS: usize = if cfg!(loom) {
    4
} else if cfg!(test) {
    64
} else {
    1024
};
/// Cells of the first segment.
const FEWEST: usize = if cfg!(loom) { 4 } else { 16 };
/// Segments to a group.
const GROUP: usize = 64;

/// A cell that ends probe paths.
const EMPTY: u64 = u64::MAX;
/// A cell that was in use, and does not end probe paths.
const FREED: u64 = u64::MAX - 1;
/// Set in an entry whose pod is gone from the latest version.
const DEPARTED: u64 = 1 << 31;

/// Slots are below this, so that an entry is never one of the marks above.
pub(crate) const MOST_SLOTS: u32 = (1 << 31) - (1 << 18);

/// The index as a version has it.
#[derive(Clone)]
pub(crate) struct PodIndex(Arc<Directory>);

/// Segments by the first bits of the hash (extendible hashing).
struct Directory {
    /// How many bits.
    depth: u32,
    /// How many segments need all of these bits to be told apart.
    deepest: usize,
    /// `1 << depth` segments, in groups; one that is told apart by fewer bits
    /// is there several times.
    groups: Vec<Arc<Group>>,
}

/// Neighbours among the segments.
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
    /// How many of the hash's bits all its entries have in common.
    depth: u32,
    /// Cells that are not empty, and those of them that hold entries; both are
    /// the writer's alone.
    used: AtomicUsize,
    entries: AtomicUsize,
    /// Entries: hash above, slot below.
    cells: Box<[AtomicU64]>,
}

fn short(hash: u64) -> u32 {
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

    /// The cells of a hash's probe path, with what they hold, up to the first
    /// empty one.
    fn path(&self, hash: u32) -> impl Iterator<Item = (usize, u64)> {
        let mask = self.cells.len() - 1;
        (0..self.cells.len()).map_while(move |step| {
            let at = (hash as usize).wrapping_add(step) & mask;
            let cell = self.get(at);
            (cell != EMPTY).then_some((at, cell))
        })
    }

    fn get(&self, at: usize) -> u64 {
        // Relaxed: a cell is its own content, nothing is reached through it.
        // That a version's entries are seen is what its publication orders.
        self.cells[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, cell: u64) {
        // Relaxed: as for `get`.
        self.cells[at].store(cell, Ordering::Relaxed);
    }

    /// How many entries there are, departed ones too.
    fn len(&self) -> usize {
        // Relaxed: the writer's own number.
        self.entries.load(Ordering::Relaxed)
    }

    /// Counts what a change of a cell did to both numbers.
    fn count(&self, used: isize, entries: isize) {
        // Relaxed: the writer's own numbers.
        self.used
            .store(self.used.load(Ordering::Relaxed).wrapping_add_signed(used), Ordering::Relaxed);
        self.entries.store(self.len().wrapping_add_signed(entries), Ordering::Relaxed);
    }

    /// Puts an entry in, in the place of its departed like if there is one
    /// (`Some(true)`); `None` where the segment is full.
    fn insert(&self, entry: u64) -> Option<bool> {
        if self.replace(entry | DEPARTED, entry).is_some() {
            return Some(true);
        }
        self.add(entry).then_some(false)
    }

    /// Puts an entry in, whatever there is already; `false` where the segment is
    /// full.
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
        // Some cells stay empty, to end every path soon.
        if self.used.load(Ordering::Relaxed) >= self.cells.len() - self.cells.len() / 8 {
            return false;
        }
        self.set(last.wrapping_add(1) & mask, entry);
        self.count(1, 1);
        true
    }

    /// Replaces an entry by another mark or entry of the same hash.
    fn replace(&self, entry: u64, by: u64) -> Option<usize> {
        let (at, _) = self.path(hash_of_entry(entry)).find(|(_, cell)| *cell == entry)?;
        self.set(at, by);
        Some(at)
    }

    /// Takes an entry out. Where nothing follows on its path, its cell ends
    /// paths again, and so do freed ones before it.
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

    /// One segment with all of the entries and room for more.
    fn with(depth: u32, entries: &[u64]) -> Segment {
        let cells = (entries.len() * 2 + 1).next_power_of_two().max(FEWEST);
        let segment = Segment::new(depth, cells);
        for entry in entries {
            // Half of the cells are free. Pods whose hashes are equal have equal
            // entries, some of them departed: each stays one of its own.
            segment.add(*entry);
        }
        segment
    }
}

impl Directory {
    fn position(&self, hash: u32) -> usize {
        // Twice, since a shift by all bits is none.
        (hash >> 1 >> (31 - self.depth)) as usize
    }

    fn segment(&self, hash: u32) -> &Arc<Segment> {
        let at = self.position(hash);
        &self.groups[at / GROUP].0[at % GROUP]
    }

    fn len(&self) -> usize {
        1 << self.depth
    }

    /// Puts a segment at all positions of its bits.
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

    /// Half as many positions, as often as no segment needs them all.
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

    /// Gives the entries of a full segment more room: two segments in its
    /// place, or a larger one where they have too many bits in common for that.
    fn make_room(&mut self, hash: u32) {
        cost::copied_bytes(8 * self.groups.len() + 8 * GROUP, self.groups.len() + GROUP);
        let full = self.segment(hash).clone();
        let mut entries = full.to_vec();
        if mutated!("pod-index-split-forgets") {
            entries.retain(|entry| entry & DEPARTED == 0);
        }
        let first = self.position(hash);
        // A directory of many more segments than there can be full ones does
        // not help against hashes that are all alike.
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

    /// Gives room back where a segment has few entries: one segment in the place
    /// of two that differ in their last bit alone, or a smaller one.
    fn give_back(&mut self, hash: u32) {
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
    /// The first slot under `hash` that `is` accepts. O(1), expected.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = short(hash);
        let cells = self.0.segment(hash).path(hash).map(|(_, cell)| cell);
        cells
            .filter(|cell| hash_of_entry(*cell) == hash && *cell != FREED)
            .map(|cell| (cell & !DEPARTED) as u32)
            .find(|slot| is(*slot))
    }

    /// A pod with this hash is on the node with this slot. O(1), amortised.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, departures: &mut Departures) {
        let hash = short(hash);
        let entry = u64::from(hash) << 32 | u64::from(slot);
        loop {
            match self.0.segment(hash).insert(entry) {
                Some(true) => return departures.stay(entry),
                Some(false) => return,
                None => Arc::make_mut(&mut self.0).make_room(hash),
            }
        }
    }

    /// The pod with this hash is gone from the node with this slot, from
    /// version `now` on. O(1), expected.
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
            departures.waiting.push((now, entry));
        }
    }

    /// Takes out what nobody needs who holds no version before `horizon`: at
    /// most `most` entries. O(entries), expected.
    pub(crate) fn settle(&mut self, departures: &mut Departures, horizon: Generation, most: usize) {
        for _ in 0..most {
            match departures.waiting.first() {
                Some((gone, entry)) if gone <= horizon || mutated!("pod-index-settle-at-once") => {
                    departures.waiting.drop_first();
                    if departures.has_stayed(entry) {
                        continue;
                    }
                    let hash = hash_of_entry(entry);
                    let segment = self.0.segment(hash);
                    segment.remove(entry | DEPARTED);
                    let (len, cells) = (segment.len(), segment.cells.len());
                    if len < cells / 8 && (cells > FEWEST || segment.depth > 0) {
                        Arc::make_mut(&mut self.0).give_back(hash);
                    }
                }
                _ => break,
            }
        }
    }
}

/// How a version finds its pods: by the index that all versions of the writer
/// share, and in a fork also by one of its own.
pub(crate) struct Uids {
    index: PodIndex,
    /// Where forks of this version count themselves.
    epoch: Epoch,
    own: Option<Own>,
}

/// What a fork adds.
#[derive(Clone)]
struct Own {
    /// On the writer's version that the fork started at.
    _lease: Lease,
    index: HashIndex,
}

impl Uids {
    pub(crate) fn new() -> Uids {
        Uids { index: PodIndex::default(), epoch: Epoch::default(), own: None }
    }

    /// The same, for another version of the same line.
    pub(crate) fn share(&self) -> Uids {
        Uids { index: self.index.clone(), epoch: self.epoch, own: self.own.clone() }
    }

    /// Starts a line of versions of its own at this one, which the caller holds
    /// at that moment. O(1), wait-free.
    pub(crate) fn fork_off(&mut self, leases: &std::sync::Arc<Leases>) {
        self.own.get_or_insert_with(|| Own {
            _lease: Lease::take(leases, self.epoch),
            index: HashIndex::default(),
        });
    }

    /// The first slot under `hash` that `is` accepts; others may be told too.
    /// O(1) expected, O(log n) in a fork.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let own = self.own.as_ref().and_then(|own| own.index.find(hash, &mut is));
        own.or_else(|| self.index.find(hash, is))
    }

    /// A pod came; `departures` are the writer's.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, departures: &mut Departures) {
        match &mut self.own {
            Some(own) => own.index.insert(hash, slot),
            None => self.index.insert(hash, slot, departures),
        }
    }

    /// A pod went; `departures` are the writer's.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        slot: u32,
        now: Generation,
        departures: &mut Departures,
    ) {
        match &mut self.own {
            // A pod from before the fork has no entry here. One that another pod has
            // in its place goes with it, and the shared index still leads to that pod.
            Some(own) => own.index.remove(hash, slot),
            None => self.index.depart(hash, slot, now, departures),
        }
    }

    /// Tells the writer's line that nobody holds a version before `held`, while `now` is being written, and forgets at
    /// most `most` of the pods that went. O(`most`).
    pub(crate) fn set_horizon(
        &mut self,
        departures: &mut Departures,
        leases: &Leases,
        held: Generation,
        now: Generation,
        most: usize,
    ) {
        let come = departures.come();
        self.settle(departures, leases, held, most);
        // Forks of later versions do not need the entries of the pods that went.
        self.epoch = departures.epochs.turn(come > 0, now);
    }

    /// See [`PodIndex::settle`]; for the writer's line, with what its forks need.
    pub(crate) fn settle(
        &mut self,
        departures: &mut Departures,
        leases: &Leases,
        held: Generation,
        most: usize,
    ) {
        if !departures.is_empty() {
            let horizon = departures.epochs.horizon(leases, held);
            self.index.settle(departures, horizon, most);
        }
        departures.settled = departures.len();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use std::collections::VecDeque;

    use super::*;

    /// Keys, each with a slot.
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
        fn every_version_finds_what_it_has_while_it_is_held(
            ops in prop::collection::vec((any::<bool>(), 0..2000_u32, 0..4_u32), 1..1500),
            holds in prop::collection::vec(0..40_usize, 4),
            alike in any::<bool>(),
        ) {
            // Alike: all hashes have their first bits in common.
            let hash = |key: u32| if alike { u64::from(key % 7) << 32 } else { spread(key) };
            let mut index = PodIndex::default();
            let mut departures = Departures::default();
            let mut now = Entries::new();
            let mut held: VecDeque<(Generation, PodIndex, Entries)> = VecDeque::new();
            for (i, (add, key, slot)) in ops.into_iter().enumerate() {
                let generation = Generation(i as u64 + 1);
                if add {
                    if now.insert((key, slot)) {
                        index.insert(hash(key), slot, &mut departures);
                    }
                } else if now.remove(&(key, slot)) {
                    index.depart(hash(key), slot, generation, &mut departures);
                }
                held.push_back((generation, index.clone(), now.clone()));
                while held.len() > holds[i % 4] + 1 {
                    held.pop_front();
                }
                index.settle(&mut departures, held[0].0, 3);
                if i % 97 == 0 {
                    for (_, index, now) in [&held[0], &held[held.len() / 2]] {
                        for (key, slot) in now {
                            prop_assert!(index.find(hash(*key), |s| s == *slot).is_some());
                        }
                    }
                }
            }
            let last = held.pop_back().expect("there was an event").0;
            index.settle(&mut departures, last, usize::MAX);
            prop_assert_eq!(departures.len(), 0);
            prop_assert!(departures.stayed.is_empty());
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
    fn pods_with_one_hash_on_one_node_stay_apart_when_segments_are_replaced() {
        let mut index = PodIndex::default();
        let mut departures = Departures::default();
        // Two with one entry; one goes, the segment grows, the other goes.
        index.insert(0, 1, &mut departures);
        index.insert(0, 1, &mut departures);
        index.depart(0, 1, Generation(2), &mut departures);
        for i in 1..200 {
            index.insert(spread(i), 7, &mut departures);
        }
        index.depart(0, 1, Generation(9), &mut departures);
        // A version of generation 5 is held, and has the second one.
        index.settle(&mut departures, Generation(5), usize::MAX);
        assert!(slots(&index, 0).contains(&1));
        index.settle(&mut departures, Generation(9), usize::MAX);
        assert!(!slots(&index, 0).contains(&1));
    }

    #[test]
    fn a_million_entries_come_and_go() {
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
        index.settle(&mut departures, Generation(1), usize::MAX);
        assert!((0..ENTRIES).all(|i| slots(&index, spread(i)).is_empty()));
        assert_eq!((index.0.depth, index.0.len()), (0, 1));
    }
}
