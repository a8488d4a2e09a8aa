//! A heap of pods in the order in which they are tried, with removal from any position.
//!
//! The heap stores the compared values inline: with 100,000 pods each step down would otherwise miss the cache for
//! every pod it passes. Four children per node halve the number of steps, and the children are adjacent in memory. All
//! heaps share one table of positions by slot, because a pod is in at most one of them.

use std::cmp::Ordering;

/// The number of a pod in the queue, reused after the pod is removed.
pub(super) type Slot = u32;

/// A pod in a heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// When the pod's backoff ends, in nanoseconds; 0 in the active queue.
    pub(super) expires: i64,
    /// The queue sort plugin's key.
    pub(super) key: [i64; 2],
    /// The order of arrival, by which equal pods are tried.
    pub(super) arrival: u64,
    pub(super) slot: Slot,
}

/// The order in which pods are tried.
pub(super) trait Order {
    fn compare(&self, one: &Item, other: &Item) -> Ordering;
}

/// A four-ary heap with the first pod at the root.
#[derive(Debug, Default)]
pub(super) struct Heap(Vec<Item>);

const CHILDREN: usize = 4;

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<&Item> {
        self.0.first()
    }

    /// Iterates over the pods in no particular order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.0.iter().map(|item| item.slot)
    }

    /// O(log n).
    pub(super) fn push(&mut self, item: Item, positions: &mut [u32], order: &impl Order) {
        self.0.push(item);
        self.up(self.0.len() - 1, item, positions, order);
    }

    /// Removes and returns the first pod. O(log n).
    pub(super) fn pop(&mut self, positions: &mut [u32], order: &impl Order) -> Option<Slot> {
        let first = self.0.first()?.slot;
        self.remove(0, positions, order);
        Some(first)
    }

    /// Removes the pod at this position. O(log n).
    pub(super) fn remove(&mut self, at: usize, positions: &mut [u32], order: &impl Order) {
        let Some(last) = self.0.pop() else { return };
        if at < self.0.len() {
            let at = self.down(at, last, positions, order);
            self.up(at, last, positions, order);
        }
    }

    fn put(&mut self, at: usize, item: Item, positions: &mut [u32]) {
        self.0[at] = item;
        positions[item.slot as usize] = at as u32;
    }

    /// Moves an item from this position towards the root until the heap order holds.
    fn up(&mut self, mut at: usize, item: Item, positions: &mut [u32], order: &impl Order) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            let above = self.0[parent];
            if order.compare(&item, &above) != Ordering::Less {
                break;
            }
            self.put(at, above, positions);
            at = parent;
        }
        self.put(at, item, positions);
    }

    /// Moves an item from this position towards the leaves, and returns its new position.
    fn down(
        &mut self,
        mut at: usize,
        item: Item,
        positions: &mut [u32],
        order: &impl Order,
    ) -> usize {
        loop {
            let first = at * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.0.len());
            let least = children.reduce(|least, child| {
                match order.compare(&self.0[child], &self.0[least]) {
                    Ordering::Less => child,
                    _ => least,
                }
            });
            let Some(least) = least else { break };
            let below = self.0[least];
            if order.compare(&below, &item) != Ordering::Less {
                break;
            }
            self.put(at, below, positions);
            at = least;
        }
        self.put(at, item, positions);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ByKey;

    impl Order for ByKey {
        fn compare(&self, one: &Item, other: &Item) -> Ordering {
            (one.key, one.arrival).cmp(&(other.key, other.arrival))
        }
    }

    proptest::proptest! {
        #[test]
        fn pods_are_popped_in_order_despite_arbitrary_removals(
            ops in proptest::collection::vec((0..3_u8, 0..8_i64, 0..64_usize), 0..200),
        ) {
            let mut heap = Heap::default();
            let mut positions = vec![u32::MAX; ops.len()];
            let mut model: Vec<(i64, u64)> = Vec::new();
            for (n, (op, key, at)) in ops.into_iter().enumerate() {
                match op {
                    0 | 1 => {
                        let item = Item {
                            expires: 0, key: [key, 0], arrival: n as u64, slot: n as Slot,
                        };
                        heap.push(item, &mut positions, &ByKey);
                        model.push((key, n as u64));
                        model.sort_unstable();
                    }
                    _ if at % 2 == 0 => {
                        let first = (!model.is_empty()).then(|| model.remove(0).1 as Slot);
                        assert_eq!(heap.pop(&mut positions, &ByKey), first);
                    }
                    _ if !model.is_empty() => {
                        let (_, taken) = model.remove(at % model.len());
                        heap.remove(positions[taken as usize] as usize, &mut positions, &ByKey);
                    }
                    _ => {}
                }
                assert!(heap.slots().all(|slot| {
                    heap.0[positions[slot as usize] as usize].slot == slot
                }));
            }
            let rest: Vec<Slot> =
                std::iter::from_fn(|| heap.pop(&mut positions, &ByKey)).collect();
            assert_eq!(rest, model.iter().map(|(_, n)| *n as Slot).collect::<Vec<_>>());
        }
    }
}
