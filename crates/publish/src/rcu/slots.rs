//! The readers' slots: one word each, in which a reader announces what it may reach and the writer looks.
//!
//! A list of blocks that only grows: readers come and go by claiming and leaving slots, without a lock, while the
//! writer walks over the blocks; nothing is taken away from under it before the cell itself ends. What it costs: a cell
//! remembers the largest number of readers that it ever had at once, and each look passes over that many words.

use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, ordering};

/// The slot is nobody's.
pub(super) const FREE: usize = 0;
/// The slot's reader reaches no version.
pub(super) const NONE: usize = 1;
/// The slot's reader may reach any version.
pub(super) const ALL: usize = 2;
// Anything else is the address of the one version that the reader may reach. No version has one of the addresses
// above: the content of an `Arc` stands behind its two counts.

/// Slots to a block: one in models, so that they come to the second block.
const PER_BLOCK: usize = if cfg!(loom) { 1 } else { 8 };

/// All slots of a cell.
#[derive(Debug)]
pub(super) struct Slots {
    first: Block,
}

#[derive(Debug)]
struct Block {
    /// Each on a line of its own: its reader writes it.
    words: [CachePadded<AtomicUsize>; PER_BLOCK],
    /// The next block, or null; set once.
    next: AtomicPtr<Block>,
}

impl Block {
    fn new() -> Self {
        Self {
            words: std::array::from_fn(|_| CachePadded::new(AtomicUsize::new(FREE))),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&Self> {
        // Pairs with the exchange in `grow`: who sees a block sees its words made.
        let next = self.next.load(ordering!("rcu-next-block", Acquire => Relaxed));
        // SAFETY: `next` is null or came from the `Box` in `grow`, which is freed by the drop of `Slots` alone; `self`
        // is borrowed from those `Slots`.
        unsafe { next.as_ref() }
    }

    /// Adds a block after this one, unless another reader does first.
    fn grow(&self) {
        let made = Box::into_raw(Box::new(Self::new()));
        // Pairs with the load in `next`. Relaxed where another reader was faster: the link is loaded again before use.
        let order = ordering!("rcu-add-block", Release => Relaxed);
        if self.next.compare_exchange(ptr::null_mut(), made, order, Ordering::Relaxed).is_err() {
            // SAFETY: from the `Box` above; the exchange failed, so nobody else has it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { first: Block::new() }
    }

    /// Claims a slot, whose word is `NONE` from now on. Lock-free; O(slots), and allocates when all are taken.
    pub(super) fn claim(&self) -> NonNull<AtomicUsize> {
        let mut block = &self.first;
        loop {
            for word in &block.words {
                // Pairs with the store of `FREE` by the reader that left: what it did with versions happens before
                // what we announce, and so before the frees that the writer concludes from our announcements.
                let order = ordering!("rcu-claim", Acquire => Relaxed);
                if word.compare_exchange(FREE, NONE, order, Ordering::Relaxed).is_ok() {
                    return NonNull::from(&**word);
                }
            }
            match block.next() {
                Some(next) => block = next,
                None => block.grow(),
            }
        }
    }

    /// The words of all slots. A word that was claimed before this is among them, if the claim happens before.
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicUsize> {
        std::iter::successors(Some(&self.first), |block| block.next())
            .flat_map(|block| block.words.iter().map(|word| &**word))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Relaxed, here and below: the cell has one owner left, who happens after all others.
        let mut next = self.first.next.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: every link that is not null came from the `Box` in `grow`, and each is met once.
            let block = unsafe { Box::from_raw(next) };
            next = block.next.load(Ordering::Relaxed);
        }
    }
}
