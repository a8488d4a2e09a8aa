//! The readers' slots: one word each, in which a reader announces what it may reach. The writer scans them.
//!
//! The slots are in a list of blocks that only grows. Readers claim and leave slots without a lock while the writer
//! walks the blocks, and no block is freed before the cell itself. The cost: a cell retains the maximum number of
//! readers it ever had at once, and each scan covers that many words.

use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, ordering};

/// The slot is unclaimed.
pub(super) const FREE: usize = 0;
/// The slot's reader reaches no version.
pub(super) const NONE: usize = 1;
/// The slot's reader may reach any version.
pub(super) const ALL: usize = 2;
// Any other even value is the address of the one version that the reader may reach. No version has an odd address or
// one of those above: an `Arc` stores its contents after its two counts, each a word.

/// The greatest index: one bit of a word marks an index. All later versions share it, and a reader may keep them longer
/// than necessary.
pub(super) const LAST: usize = usize::MAX >> 1;

/// The word of a reader that may reach any version with this index or a greater one.
pub(super) fn since(index: usize) -> usize {
    // An index of 0 would be encoded as `NONE`, and covers all versions anyway.
    if index == 0 { ALL } else { index << 1 | 1 }
}

/// What a word announces.
pub(super) enum Announced {
    Nothing,
    Since(usize),
    Address(usize),
}

impl Announced {
    pub(super) fn of(word: usize) -> Announced {
        match word {
            FREE | NONE => Announced::Nothing,
            ALL => Announced::Since(0),
            odd if odd & 1 == 1 => Announced::Since(odd >> 1),
            address => Announced::Address(address),
        }
    }
}

/// Slots per block. One in models, so that they reach the second block.
const PER_BLOCK: usize = if cfg!(loom) { 1 } else { 8 };

/// All slots of a cell.
#[derive(Debug)]
pub(super) struct Slots {
    first: Block,
}

#[derive(Debug)]
struct Block {
    /// Each on its own cache line, because its reader writes it.
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
        // Pairs with the exchange in `grow`: a thread that sees a block sees its words initialized.
        let next = self.next.load(ordering!("rcu-next-block", Acquire => Relaxed));
        // SAFETY: `next` is null or came from the `Box` in `grow`, which only the drop of `Slots` frees; `self` is
        // borrowed from those `Slots`.
        unsafe { next.as_ref() }
    }

    /// Adds a block after this one, unless another reader does so first.
    fn grow(&self) {
        let made = Box::into_raw(Box::new(Self::new()));
        // Pairs with the load in `next`. Relaxed if another reader was faster: the link is loaded again before use.
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

    /// Claims a slot and sets its word to `NONE`. Lock-free; O(slots), and allocates if all are taken.
    pub(super) fn claim(&self) -> NonNull<AtomicUsize> {
        let mut block = &self.first;
        loop {
            for word in &block.words {
                // Pairs with the store of `FREE` by the previous reader: its accesses to versions happen before our
                // announcements, and so before the frees that the writer derives from those.
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

    /// The words of all slots. Includes every slot whose claim happens before this call.
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicUsize> {
        std::iter::successors(Some(&self.first), |block| block.next())
            .flat_map(|block| block.words.iter().map(|word| &**word))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Relaxed, here and below: the cell has one owner left, and its drop happens after all other accesses.
        let mut next = self.first.next.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: every non-null link came from the `Box` in `grow`, and each is visited once.
            let block = unsafe { Box::from_raw(next) };
            next = block.next.load(Ordering::Relaxed);
        }
    }
}
