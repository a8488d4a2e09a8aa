//! A persistent index from hashes to numbers, for what is found by a name.
//!
//! The index keeps 32 bits of each hash and the number of a slot, 8 bytes an
//! entry, never a key: who asks compares the candidates itself. Branches take
//! three bits of the hash each; a leaf is a sorted run of at most
//! [`LEAF`] entries, copied whole when it changes. No operation ever rehashes
//! more than one leaf, so none is O(n).

use triomphe::Arc;

use super::cost;

const BITS: u32 = 3;
const WIDTH: usize = 1 << BITS;
/// Most entries of a leaf, unless all of a hash's bits are used up.
const LEAF: usize = 96;
/// Levels after which the 32 bits are used up.
const DEEPEST: u32 = u32::BITS / BITS;

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

struct Branch([Option<Node>; WIDTH]);

/// Entries in order: the hash above, the number below.
struct Leaf(Vec<u64>);

impl Clone for Branch {
    fn clone(&self) -> Branch {
        cost::copied::<Branch>(WIDTH);
        let counts = self.0.iter().flatten().fold(0, |sum, node| {
            sum ^ match node {
                Node::Branch(branch) => Arc::strong_count(branch),
                Node::Leaf(leaf) => Arc::strong_count(leaf),
            }
        });
        std::hint::black_box(counts);
        Branch(self.0.clone())
    }
}

impl Clone for Leaf {
    /// With room for one more, since a copied leaf is about to change.
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

/// Where a hash's entries begin, or would. Hashes are spread evenly, so the place
/// is near the share of the leaf's range that is below the hash; halving would
/// look at more lines of memory.
fn first_of(entries: &[u64], hash: u32, depth: u32) -> usize {
    let low = u64::from(hash) << 32;
    let below = hash.checked_shl(BITS * depth).unwrap_or(0);
    let mut at = ((u64::from(below) * entries.len() as u64) >> 32) as usize;
    // Against hashes that are all alike, halving it is.
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

fn child(hash: u32, depth: u32) -> usize {
    (hash.rotate_left(BITS * (depth + 1))) as usize & (WIDTH - 1)
}

impl HashIndex {
    /// The first number under `hash` that `is` accepts. O(log n).
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = short(hash);
        let mut node = self.root.as_ref()?;
        let mut depth = 0;
        loop {
            match node {
                Node::Branch(branch) => {
                    node = branch.0[child(hash, depth)].as_ref()?;
                    depth += 1;
                }
                Node::Leaf(leaf) => {
                    let start = first_of(&leaf.0, hash, depth);
                    return leaf.0[start..]
                        .iter()
                        .take_while(|entry| (**entry >> 32) as u32 == hash)
                        .map(|entry| *entry as u32)
                        .find(|number| is(*number));
                }
            }
        }
    }

    /// Adds `number` under `hash`. O(log n).
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        let hash = short(hash);
        let entry = u64::from(hash) << 32 | u64::from(number);
        let mut place = &mut self.root;
        let mut depth = 0;
        loop {
            if let Some(Node::Leaf(leaf)) = place
                && leaf.0.len() >= LEAF
                && depth < DEEPEST
            {
                *place = Some(Node::Branch(split(&leaf.0, depth)));
            }
            match place {
                None => {
                    *place = Some(Node::Leaf(Arc::new(Leaf(vec![entry]))));
                    return;
                }
                Some(Node::Branch(branch)) => {
                    place = &mut Arc::make_mut(branch).0[child(hash, depth)];
                    depth += 1;
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

    /// Whether it has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Calls `each` with all numbers, in no particular order. O(n).
    pub(crate) fn for_each(&self, mut each: impl FnMut(u32)) {
        let mut left: Vec<&Node> = self.root.iter().collect();
        while let Some(node) = left.pop() {
            match node {
                Node::Branch(branch) => left.extend(branch.0.iter().flatten()),
                Node::Leaf(leaf) => leaf.0.iter().for_each(|entry| each(*entry as u32)),
            }
        }
    }

    /// Takes `number` away from under `hash`. O(log n).
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let hash = short(hash);
        let entry = u64::from(hash) << 32 | u64::from(number);
        if self.find(u64::from(hash) << 32, |n| n == number).is_some() {
            remove(&mut self.root, hash, entry, 0);
        }
    }
}

fn split(entries: &[u64], depth: u32) -> Arc<Branch> {
    let mut parts: [Vec<u64>; WIDTH] = Default::default();
    for entry in entries {
        parts[child((entry >> 32) as u32, depth)].push(*entry);
    }
    Arc::new(Branch(parts.map(|mut part| {
        part.shrink_to_fit();
        (!part.is_empty()).then(|| Node::Leaf(Arc::new(Leaf(part))))
    })))
}

fn remove(place: &mut Option<Node>, hash: u32, entry: u64, depth: u32) {
    let empty = match place {
        None => return,
        Some(Node::Branch(branch)) => {
            let branch = Arc::make_mut(branch);
            remove(&mut branch.0[child(hash, depth)], hash, entry, depth + 1);
            branch.0.iter().all(Option::is_none)
        }
        Some(Node::Leaf(leaf)) => {
            let entries = &mut Arc::make_mut(leaf).0;
            if let Ok(at) = entries.binary_search(&entry) {
                entries.remove(at);
            }
            entries.is_empty()
        }
    };
    if empty {
        *place = None;
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
            ops in prop::collection::vec((any::<bool>(), 0..40_u64, 0..60_u32), 1..600),
            spread in 0..2_u64,
        ) {
            // Spread 0: few hashes, so leaves overflow; 1: many.
            let hash = |h: u64| if spread == 0 { h } else { h.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
            let mut index = HashIndex::default();
            let mut set = BTreeSet::new();
            let mut held = Vec::new();
            for (i, (insert, h, n)) in ops.into_iter().enumerate() {
                let h = hash(h) ;
                if insert {
                    if set.insert((h, n)) { index.insert(h, n); }
                } else {
                    // Only what was put in is ever taken out.
                    if set.remove(&(h, n)) { index.remove(h, n); }
                }
                if i % 50 == 0 { held.push((index.clone(), set.clone())); }
            }
            held.push((index, set));
            for (index, set) in held {
                let mut numbers = Vec::new();
                index.for_each(|number| numbers.push(number));
                numbers.sort_unstable();
                let mut expected: Vec<u32> = set.iter().map(|(_, n)| *n).collect();
                expected.sort_unstable();
                prop_assert_eq!(numbers, expected);
                prop_assert_eq!(index.is_empty(), set.is_empty());
                for h in 0..40 {
                    let h = hash(h);
                    for n in 0..60 {
                        let found = index.find(h, |m| m == n).is_some();
                        let short_equal = set.iter().any(|(k, m)| *m == n && short(*k) == short(h));
                        prop_assert_eq!(found, short_equal);
                    }
                }
            }
        }
    }

    #[test]
    fn a_million_entries_come_and_go() {
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
