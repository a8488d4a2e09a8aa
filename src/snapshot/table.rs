//! Tables of small values by number: a [`Tree`] of blocks of eight values, and tables that intern equal values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::freeing::{self, Counted, Part};
use crate::model::Generation;

use super::cost;
use super::hash_index::HashIndex;
use super::tree::{Marked, Tree};

const BITS: u32 = 3;
const BLOCK: usize = 1 << BITS;

/// A persistent sparse array of small values.
pub(crate) struct Table<V: Part> {
    blocks: Tree<Block<V>>,
}

struct Block<V: Part>([Option<V>; BLOCK], Counted<BLOCK>);

impl<V: Part + Clone> Clone for Block<V> {
    fn clone(&self) -> Block<V> {
        cost::copied::<Block<V>>(if std::mem::needs_drop::<V>() { BLOCK } else { 0 });
        Block(self.0.clone(), self.1.clone())
    }
}

impl<V: Part> Drop for Block<V> {
    fn drop(&mut self) {
        freeing::drop_children(&mut self.0);
    }
}

impl<V: Part> Marked for Block<V> {}

impl<V: Part> Clone for Table<V> {
    fn clone(&self) -> Table<V> {
        Table { blocks: self.blocks.clone() }
    }
}

impl<V: Part> Default for Table<V> {
    fn default() -> Table<V> {
        Table { blocks: Tree::default() }
    }
}

impl<V: Part + Clone> Table<V> {
    /// Returns the value at `index`. O(log n).
    pub(crate) fn get(&self, index: u32) -> Option<&V> {
        self.blocks.get(index >> BITS)?.0[index as usize % BLOCK].as_ref()
    }

    /// Stores a value at `index`. O(log n).
    pub(crate) fn set(&mut self, index: u32, value: V) {
        let at = index as usize % BLOCK;
        let block = index >> BITS;
        if self.blocks.get(block).is_some() {
            self.blocks.update(block, Generation::ZERO, |block| block.0[at] = Some(value));
        } else {
            let mut new = Block([const { None }; BLOCK], Counted::new());
            new.0[at] = Some(value);
            self.blocks.insert(block, new, Generation::ZERO);
        }
    }

    /// Changes the value at `index`, if there is one. O(log n).
    pub(crate) fn update<R>(&mut self, index: u32, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.get(index)?;
        let at = index as usize % BLOCK;
        self.blocks
            .update(index >> BITS, Generation::ZERO, |block| block.0[at].as_mut().map(change))?
    }

    /// Removes the value at `index`. O(log n).
    pub(crate) fn remove(&mut self, index: u32) {
        if self.get(index).is_none() {
            return;
        }
        let at = index as usize % BLOCK;
        let empty = self.blocks.update(index >> BITS, Generation::ZERO, |block| {
            block.0[at] = None;
            block.0.iter().all(Option::is_none)
        });
        if empty == Some(true) {
            self.blocks.remove(index >> BITS, Generation::ZERO);
        }
    }

    /// Returns all values with their indexes, in index order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &V)> + Clone {
        self.blocks.iter().flat_map(|(block, values)| {
            values.0.iter().enumerate().filter_map(move |(at, value)| {
                value.as_ref().map(|value| (block << BITS | at as u32, value))
            })
        })
    }

    /// Returns the first value after `index`. O(log n).
    pub(crate) fn after(&self, index: u32) -> Option<(u32, &V)> {
        let next = index.checked_add(1)?;
        let in_block = |block: u32, from: usize| {
            let values = self.blocks.get(block)?;
            (from..BLOCK)
                .find_map(|at| values.0[at].as_ref().map(|v| (block << BITS | at as u32, v)))
        };
        in_block(next >> BITS, next as usize % BLOCK).or_else(|| {
            let (block, _) = self.blocks.at_or_after((next >> BITS).checked_add(1)?)?;
            in_block(block, 0)
        })
    }

    /// Returns the last value before `index`. O(log n).
    pub(crate) fn before(&self, index: u32) -> Option<(u32, &V)> {
        let last = index.checked_sub(1)?;
        let in_block = |block: u32, to: usize| {
            let values = self.blocks.get(block)?;
            (0..=to)
                .rev()
                .find_map(|at| values.0[at].as_ref().map(|v| (block << BITS | at as u32, v)))
        };
        in_block(last >> BITS, last as usize % BLOCK).or_else(|| {
            let (block, _) = self.blocks.at_or_before((last >> BITS).checked_sub(1)?)?;
            in_block(block, BLOCK - 1)
        })
    }
}

/// The generations that decide which numbers an event may reuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The event's own generation.
    pub(crate) now: Generation,
    /// Nobody holds a version before this one.
    pub(crate) horizon: Generation,
}

/// The free numbers of a table.
///
/// A number is reused only when every version that could refer to it has been freed: numbers released at generation g
/// wait until nobody holds a version before g. Free numbers are stored as ranges. A range that reaches up to the first
/// number never assigned is dropped, and its numbers count as never assigned again, so a temporary surge leaves nothing
/// behind. No operation moves more than a constant number of entries.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Released numbers, by the generation of their release.
    waiting: BTreeSet<(Generation, u32)>,
    /// Free numbers, as the first and last number of each range.
    free: BTreeMap<u32, u32>,
}

/// How many waiting numbers an operation processes. It adds at most one, so the queue drains soon after the version
/// that blocked it is dropped.
const SETTLE_LIMIT: usize = 64;

impl Numbers {
    /// Returns a number that no held version refers to, or else `next`, which is then incremented. `None` if all 32-bit
    /// numbers are in use.
    pub(crate) fn take(&mut self, next: &mut u32, span: Span) -> Option<u32> {
        self.settle(span);
        if let Some((first, last)) = self.free.last_key_value()
            && last.checked_add(1) == Some(*next)
        {
            *next = *first;
            self.free.pop_last();
        }
        if let Some((first, last)) = self.free.pop_first() {
            if first < last {
                self.free.insert(first + 1, last);
            }
            return Some(first);
        }
        let number = *next;
        *next = next.checked_add(1)?;
        Some(number)
    }

    /// Returns whether no number is free. Numbers that held versions may still refer to are not.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Releases a number that no version from `span.now` on refers to.
    pub(crate) fn release(&mut self, number: u32, span: Span) {
        self.waiting.insert((span.now, number));
        self.settle(span);
    }

    fn settle(&mut self, span: Span) {
        for _ in 0..SETTLE_LIMIT {
            match self.waiting.first() {
                Some((released, number)) if *released <= span.horizon => {
                    let number = *number;
                    self.waiting.pop_first();
                    self.free(number);
                }
                _ => break,
            }
        }
    }

    fn free(&mut self, number: u32) {
        let (mut first, mut last) = (number, number);
        if let Some((below, end)) = self.free.range(..number).next_back()
            && end + 1 == number
        {
            first = *below;
        }
        if let Some(end) = number.checked_add(1).and_then(|above| self.free.remove(&above)) {
            last = end;
        }
        self.free.insert(first, last);
    }
}

/// A value that can be interned, see [`Interned`].
pub(crate) trait Internable: Part + Clone {
    fn hash64(&self) -> u64;
    /// Returns whether both are the same value.
    fn same(&self, other: &Self) -> bool;
}

/// Interned values: each distinct value is stored once, under a number, with the count of its users.
pub(crate) struct Interned<V: Part> {
    values: Table<Entry<V>>,
    index: HashIndex,
    next: u32,
    len: usize,
    /// See [`Interned::stamp`].
    stamp: u64,
}

/// Returns a number that is greater than all numbers that the process got before, and is not 0.
pub(crate) fn next_stamp() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: the additions to one atomic have one order, so the numbers grow; they order no other data.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    users: u32,
}

impl<V: Part> Clone for Interned<V> {
    fn clone(&self) -> Interned<V> {
        Interned { values: self.values.clone(), index: self.index.clone(), ..*self }
    }
}

impl<V: Part> Default for Interned<V> {
    fn default() -> Interned<V> {
        let (values, index) = (Table::default(), HashIndex::default());
        Interned { values, index, next: 0, len: 0, stamp: 0 }
    }
}

impl<V: Internable> Interned<V> {
    pub(crate) fn get(&self, number: u32) -> Option<&V> {
        self.values.get(number).map(|entry| &entry.value)
    }

    /// Returns the number of a value with this hash that `is` accepts. O(log n).
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&V) -> bool) -> Option<u32> {
        self.index.find(hash, |number| self.get(number).is_some_and(&is))
    }

    /// Returns how many users the value with this number has.
    pub(crate) fn users(&self, number: u32) -> u32 {
        self.values.get(number).map_or(0, |entry| entry.users)
    }

    /// Returns the first number that was never assigned.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Identifies the set of values: two tables with the same stamp have the same values under the same numbers,
    /// whatever versions, plans or engines they belong to.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Returns all values with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &V)> + Clone {
        self.values.iter().map(|(number, entry)| (number, &entry.value))
    }

    /// Adds one user to a value, and inserts the value if it is new. `None` if no number is left. O(log n).
    pub(crate) fn acquire(&mut self, value: &V, numbers: &mut Numbers, span: Span) -> Option<u32> {
        let hash = value.hash64();
        if let Some(number) = self.find(hash, |known| known.same(value)) {
            self.values.update(number, |entry| entry.users += 1);
            return Some(number);
        }
        let number = numbers.take(&mut self.next, span)?;
        self.values.set(number, Entry { value: value.clone(), users: 1 });
        self.index.insert(hash, number);
        self.len += 1;
        self.stamp = next_stamp();
        Some(number)
    }

    /// Replaces the value with this number by another that is `same`, to update fields that are not part of its
    /// identity. O(log n).
    pub(crate) fn revise(&mut self, number: u32, value: V) {
        self.values.update(number, |entry| entry.value = value);
    }

    /// Removes one user from a value, and removes the value with its last user. O(log n).
    pub(crate) fn release(&mut self, number: u32, numbers: &mut Numbers, span: Span) {
        let left = self.values.update(number, |entry| {
            entry.users = entry.users.saturating_sub(1);
            (entry.users == 0).then(|| entry.value.hash64())
        });
        if let Some(Some(hash)) = left {
            self.index.remove(hash, number);
            self.values.remove(number);
            self.len -= 1;
            self.stamp = next_stamp();
            numbers.release(number, span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Internable for String {
        fn hash64(&self) -> u64 {
            self.len() as u64
        }
        fn same(&self, other: &String) -> bool {
            self == other
        }
    }

    fn span(now: u64, horizon: u64) -> Span {
        Span { now: Generation(now), horizon: Generation(horizon) }
    }

    #[test]
    fn a_number_is_reused_only_past_the_horizon() {
        let mut interned = Interned::<String>::default();
        let mut numbers = Numbers::default();
        let a = interned.acquire(&"a".into(), &mut numbers, span(1, 0)).unwrap();
        let again = interned.acquire(&"a".into(), &mut numbers, span(2, 0)).unwrap();
        assert_eq!(a, again);
        interned.release(a, &mut numbers, span(5, 0));
        assert_eq!(interned.users(a), 1);
        interned.release(a, &mut numbers, span(6, 0));
        assert_eq!(interned.get(a), None);
        let b = interned.acquire(&"b".into(), &mut numbers, span(7, 5)).unwrap();
        assert_ne!(a, b);
        assert_eq!(interned.acquire(&"c".into(), &mut numbers, span(8, 6)), Some(a));
        assert_eq!(interned.find(1, |v| v == "c"), Some(a));
    }

    #[test]
    fn the_stamp_changes_with_the_set_of_values_only() {
        let mut interned = Interned::<String>::default();
        let mut numbers = Numbers::default();
        let mut stamps = vec![interned.stamp()];
        let mut is_new = |stamp: u64| {
            let is_new = !stamps.contains(&stamp);
            stamps.push(stamp);
            is_new
        };
        let a = interned.acquire(&"a".into(), &mut numbers, span(1, 0)).unwrap();
        assert!(is_new(interned.stamp()));
        let copy = interned.clone();
        interned.acquire(&"a".into(), &mut numbers, span(2, 0)).unwrap();
        interned.release(a, &mut numbers, span(3, 0));
        assert_eq!(interned.stamp(), copy.stamp(), "another user of a known value");
        interned.release(a, &mut numbers, span(4, 0));
        assert!(is_new(interned.stamp()), "the last user is gone");
        interned.acquire(&"b".into(), &mut numbers, span(5, 4)).unwrap();
        assert!(is_new(interned.stamp()), "the number is reused");
    }

    #[test]
    fn a_surge_of_numbers_leaves_nothing_behind() {
        let (mut numbers, mut next) = (Numbers::default(), 0);
        for i in 0..1000 {
            assert_eq!(numbers.take(&mut next, span(i, 0)), Some(i as u32));
        }
        // 7 and 1000 are coprime, so this permutes the numbers.
        for i in 0..1000 {
            numbers.release(i * 7 % 1000, span(1001, 0));
        }
        assert_eq!(numbers.waiting.len(), 1000);
        for i in 0..1000 {
            let number = numbers.take(&mut next, span(1002, 1001)).unwrap();
            assert!(number <= 8, "{number} is not the lowest free one, {i}");
            numbers.release(number, span(1001, 1001));
        }
        assert_eq!((numbers.waiting.len(), numbers.free.len()), (0, 1));
        assert_eq!(numbers.take(&mut next, span(1003, 1003)), Some(0));
        assert_eq!(next, 1);
        assert!(numbers.free.is_empty());
    }

    #[test]
    fn neighbours_are_found_across_gaps() {
        let mut table = Table::default();
        for i in [3, 40, 5000] {
            table.set(i, i);
        }
        assert_eq!(table.after(3), Some((40, &40)));
        assert_eq!(table.after(5000), None);
        assert_eq!(table.before(5000), Some((40, &40)));
        assert_eq!(table.before(3), None);
    }
}
