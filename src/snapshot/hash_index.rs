//! A persistent index from hashes to numbers, for lookups by name.
//!
//! The index stores 32 bits of each hash and a number, 8 bytes per entry, and no keys: the caller compares the
//! candidates. A branch dispatches on three bits of the entry, and bits that all of its entries have in common are
//! skipped. A leaf is a sorted run of at most [`LEAF`] entries, which is copied as a whole when it changes. Many
//! numbers under one hash therefore form an ordinary tree, sorted by number, and a change touches one leaf and the
//! branches above it, however many numbers there are. Only more than [`LEAF`] copies of the same entry make a leaf
//! longer than that.

use triomphe::Arc;

use crate::freeing::{self, Counted};

use super::cost;

const BITS: u32 = 3;
const WIDTH: usize = 1 << BITS;
/// Maximum number of entries of a leaf, unless all of them are equal.
const LEAF: usize = 96;

/// A persistent multimap from hashes to `u32`.
#[derive(Clone, Default)]
pub(crate) struct HashIndex {
    root: Option<Node>,
}

#[derive(Clone)]
enum Node {
    Branch(Arc<Branch>),
    Leaf(Arc<Leaf>),
}

struct Branch {
    /// An entry whose leading bits, up to this level, all entries below share.
    prefix: u64,
    /// The level on which the branch dispatches; each level is three bits.
    level: u32,
    children: [Option<Node>; WIDTH],
    counted: Counted<WIDTH>,
}

/// Entries in sorted order: the hash in the upper half, the number in the lower.
struct Leaf(Vec<u64>);

impl Clone for Branch {
    fn clone(&self) -> Branch {
        cost::copied::<Branch>(WIDTH);
        // Plain reads fetch all of these cache lines at once; increments would wait for each.
        let counts = self.children.iter().flatten().fold(0, |sum, node| {
            sum ^ match node {
                Node::Branch(branch) => Arc::strong_count(branch),
                Node::Leaf(leaf) => Arc::strong_count(leaf),
            }
        });
        std::hint::black_box(counts);
        let children = self.children.clone();
        Branch { prefix: self.prefix, level: self.level, children, counted: self.counted.clone() }
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        freeing::drop_children(&mut self.children);
    }
}

impl Clone for Leaf {
    /// Reserves room for one more entry, because a copied leaf is about to change.
    fn clone(&self) -> Leaf {
        cost::copied_bytes(8 * self.0.len(), 0);
        let mut entries = Vec::with_capacity(self.0.len() + 1);
        entries.extend_from_slice(&self.0);
        Leaf(entries)
    }
}

fn short(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Returns the position of the first entry with this hash or a greater one, in a leaf below `level` levels. Hashes are
/// distributed evenly, so the search starts at the position that interpolation predicts; a binary search would touch
/// more cache lines.
fn first_of(entries: &[u64], hash: u32, level: u32) -> usize {
    let low = u64::from(hash) << 32;
    let below = hash.checked_shl(BITS * level).unwrap_or(0);
    let mut at = ((u64::from(below) * entries.len() as u64) >> 32) as usize;
    // If the hashes are clustered, a binary search takes over below.
    let near = entries.len().min(at + 24);
    while at < near && entries[at] < low {
        at += 1;
    }
    let far = at.saturating_sub(24);
    while at > far && entries[at - 1] >= low {
        at -= 1;
    }
    let found = (at == 0 || entries[at - 1] < low) && entries.get(at).is_none_or(|e| *e >= low);
    if found { at } else { entries.partition_point(|entry| *entry < low) }
}

fn child(entry: u64, level: u32) -> usize {
    (entry.rotate_left(BITS * (level + 1))) as usize & (WIDTH - 1)
}

/// Returns the level at which two entries diverge.
fn divergence(one: u64, other: u64) -> u32 {
    (one ^ other).leading_zeros() / BITS
}

fn least(hash: u64) -> u64 {
    u64::from(short(hash)) << 32
}

/// An iterator over the numbers under a hash, see [`HashIndex::numbers`].
pub(crate) struct Numbers<'a> {
    leaf: std::slice::Iter<'a, u64>,
    /// The greatest entry with this hash.
    last: u64,
    /// The branches above the leaf with their next children. Usually empty, because all entries of a hash are in one
    /// leaf.
    above: Vec<(&'a Branch, usize)>,
}

impl Iterator for Numbers<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            match self.leaf.next() {
                Some(entry) if *entry <= self.last => return Some(*entry as u32),
                Some(_) => self.above.clear(),
                None => {}
            }
            let (branch, at) = self.above.last_mut()?;
            let node = branch.children.get(*at);
            *at += 1;
            match node {
                None => drop(self.above.pop()),
                Some(None) => {}
                Some(Some(Node::Leaf(leaf))) => self.leaf = leaf.0.iter(),
                Some(Some(Node::Branch(branch))) => self.above.push((branch, 0)),
            }
        }
    }
}

impl HashIndex {
    /// Returns the first number under `hash` that `is` accepts. O(log n + candidates).
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.numbers(hash).find(|number| is(*number))
    }

    /// Returns all numbers under `hash`, sorted, including those under other hashes with the same upper 32 bits.
    /// O(log n + numbers taken).
    pub(crate) fn numbers(&self, hash: u64) -> Numbers<'_> {
        let first = least(hash);
        let last = first | u64::from(u32::MAX);
        let mut numbers = Numbers { leaf: [].iter(), last, above: Vec::new() };
        let mut node = self.root.as_ref();
        let mut level = 0;
        loop {
            match node {
                None => return numbers,
                Some(Node::Branch(branch)) => {
                    let parts = divergence(first, branch.prefix);
                    level = branch.level + 1;
                    if BITS * level <= u32::BITS && parts >= branch.level {
                        node = branch.children[child(first, branch.level)].as_ref();
                        continue;
                    }
                    // The branch dispatches on bits of the number, or its entries do not have this hash.
                    if parts >= branch.level {
                        numbers.above.push((branch, child(first, branch.level)));
                    } else if short(branch.prefix) == short(hash) {
                        numbers.above.push((branch, 0));
                    }
                    return numbers;
                }
                Some(Node::Leaf(leaf)) => {
                    let start = first_of(&leaf.0, short(hash), level);
                    numbers.leaf = leaf.0[start..].iter();
                    return numbers;
                }
            }
        }
    }

    /// Returns whether the index is empty.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Adds `number` under `hash`. An entry that already exists is added once more. O(log n).
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        let entry = least(hash) | u64::from(number);
        let mut place = &mut self.root;
        loop {
            if let Some(Node::Leaf(leaf)) = place
                && leaf.0.len() >= LEAF
                && leaf.0.first() != leaf.0.last()
            {
                *place = Some(Node::Branch(split(&leaf.0)));
            }
            match place {
                None => {
                    *place = Some(Node::Leaf(Arc::new(Leaf(vec![entry]))));
                    return;
                }
                Some(Node::Branch(branch)) if divergence(entry, branch.prefix) < branch.level => {
                    let other = branch.prefix;
                    let mut above = Branch::new(entry, divergence(entry, other));
                    above.children[child(other, above.level)] = place.take();
                    above.children[child(entry, above.level)] =
                        Some(Node::Leaf(Arc::new(Leaf(vec![entry]))));
                    *place = Some(Node::Branch(Arc::new(above)));
                    return;
                }
                Some(Node::Branch(branch)) => {
                    let branch = Arc::make_mut(branch);
                    place = &mut branch.children[child(entry, branch.level)];
                }
                Some(Node::Leaf(leaf)) => {
                    let entries = &mut Arc::make_mut(leaf).0;
                    if entries.len() == entries.capacity() {
                        entries.reserve_exact(entries.len() / 4 + 2);
                    }
                    let at = entries.partition_point(|e| *e < entry);
                    entries.insert(at, entry);
                    return;
                }
            }
        }
    }

    /// Removes one copy of `number` under `hash`. O(log n).
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let entry = least(hash) | u64::from(number);
        if self.contains(entry) {
            remove(&mut self.root, entry);
        }
    }

    fn contains(&self, entry: u64) -> bool {
        let mut node = self.root.as_ref();
        loop {
            match node {
                None => return false,
                Some(Node::Branch(branch)) => {
                    node = branch.children[child(entry, branch.level)].as_ref();
                }
                Some(Node::Leaf(leaf)) => return leaf.0.binary_search(&entry).is_ok(),
            }
        }
    }
}

impl Branch {
    fn new(prefix: u64, level: u32) -> Branch {
        Branch { prefix, level, children: Default::default(), counted: Counted::new() }
    }
}

/// Splits sorted entries, which must not all be equal, into leaves under a branch.
fn split(entries: &[u64]) -> Arc<Branch> {
    let (first, last) = (entries[0], entries[entries.len() - 1]);
    let mut branch = Branch::new(first, divergence(first, last));
    for part in entries.chunk_by(|a, b| child(*a, branch.level) == child(*b, branch.level)) {
        branch.children[child(part[0], branch.level)] =
            Some(Node::Leaf(Arc::new(Leaf(part.to_vec()))));
    }
    Arc::new(branch)
}

/// Removes an existing entry. A branch that is left with one child is replaced by that child.
fn remove(place: &mut Option<Node>, entry: u64) {
    match place {
        None => {}
        Some(Node::Branch(branch)) => {
            let branch = Arc::make_mut(branch);
            let below = &mut branch.children[child(entry, branch.level)];
            remove(below, entry);
            if below.is_none() {
                let mut left = branch.children.iter_mut().filter(|child| child.is_some());
                if let (Some(only), None) = (left.next(), left.next()) {
                    *place = only.take();
                }
            }
        }
        Some(Node::Leaf(leaf)) => {
            let entries = &mut Arc::make_mut(leaf).0;
            if let Ok(at) = entries.binary_search(&entry) {
                entries.remove(at);
            }
            if entries.is_empty() {
                *place = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_set_and_old_clones_never_change(
            ops in prop::collection::vec((any::<bool>(), 0..40_u64, 0..300_u32), 1..1_500),
            spread in 0..3_u64,
            base in prop::sample::select(vec![0, 1_000, 1 << 31, u32::MAX - 300]),
        ) {
            // Spread 0: few hashes with many numbers each. Spread 1: many hashes. Spread 2: hashes that differ only in
            // their last bits.
            let hash = |h: u64| match spread {
                0 => (h % 3) << 32,
                1 => h.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                _ => h << 32,
            };
            let number = |n: u32| if base == 0 && n % 2 == 1 { u32::MAX - n } else { base + n };
            let mut index = HashIndex::default();
            let mut set = BTreeSet::new();
            let mut held = Vec::new();
            for (i, (insert, h, n)) in ops.into_iter().enumerate() {
                let (h, n) = (hash(h), number(n));
                if insert {
                    if set.insert((short(h), n)) { index.insert(h, n); }
                } else {
                    set.remove(&(short(h), n));
                    index.remove(h, n);
                }
                if i % 50 == 0 { held.push((index.clone(), set.clone())); }
            }
            held.push((index, set));
            for (index, set) in held {
                prop_assert_eq!(index.root.is_none(), set.is_empty());
                for h in 0..40 {
                    let h = hash(h);
                    let expected: Vec<u32> =
                        set.range((short(h), 0)..=(short(h), u32::MAX)).map(|(_, n)| *n).collect();
                    for n in &expected {
                        prop_assert_eq!(index.find(h, |m| m == *n), Some(*n));
                    }
                    prop_assert_eq!(index.find(h, |_| false), None);
                    let numbers: Vec<u32> = index.numbers(h).collect();
                    prop_assert_eq!(numbers, expected);
                }
            }
        }
    }

    /// Entries under one hash share leading bits beyond the hash.
    #[test]
    fn many_adjacent_numbers_under_one_hash_are_found() {
        let mut index = HashIndex::default();
        (1 << 31..(1 << 31) + 200).for_each(|n| index.insert(7 << 32, n));
        assert!(index.numbers(7 << 32).eq(1 << 31..(1 << 31) + 200));
        assert_eq!(index.numbers(6 << 32).chain(index.numbers(8 << 32)).next(), None);
    }

    #[test]
    fn an_entry_exists_as_often_as_it_was_added() {
        let mut index = HashIndex::default();
        (0..3 * LEAF).for_each(|_| index.insert(7 << 32, 5));
        index.insert(7 << 32, 6);
        assert_eq!(index.numbers(7 << 32).filter(|n| *n == 5).count(), 3 * LEAF);
        (0..3 * LEAF).for_each(|_| index.remove(7 << 32, 5));
        assert!(index.numbers(7 << 32).eq([6]));
    }

    #[test]
    fn a_change_under_a_crowded_hash_costs_no_more_than_others() {
        const ENTRIES: u32 = if cfg!(miri) { 1_000 } else { 100_000 };
        let mut index = HashIndex::default();
        for n in 0..ENTRIES {
            index.insert(7 << 32, n);
        }
        let held = index.clone();
        cost::take();
        index.insert(7 << 32, ENTRIES);
        let cost = cost::take();
        assert!(cost.bytes < 2_048 && cost.counts < 64, "{cost:?}");
        index.remove(7 << 32, 5);
        assert_eq!(index.numbers(7 << 32).take(6).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 6]);
        assert!(held.numbers(7 << 32).eq(0..ENTRIES));
    }

    #[test]
    fn a_million_entries_can_be_added_and_removed() {
        const ENTRIES: u32 = if cfg!(miri) { 1_000 } else { 1_000_000 };
        let hash = |i: u32| u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut index = HashIndex::default();
        for i in 0..ENTRIES {
            index.insert(hash(i), i);
        }
        for i in (0..ENTRIES).step_by(997) {
            assert_eq!(index.find(hash(i), |n| n == i), Some(i));
        }
        for i in 0..ENTRIES {
            index.remove(hash(i), i);
        }
        assert!(index.root.is_none());
    }
}
