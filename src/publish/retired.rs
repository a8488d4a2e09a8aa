//! The versions that were replaced and may still be in use, kept by the writer so that no reader pays for freeing one.
//!
//! Freeing a version means freeing all of the tree that no other version shares. Whoever drops the last handle pays,
//! so the writer keeps one handle to each replaced version until it is the only one left. It must look for such
//! versions without ever looking at all of them at once: a publish may not cost more because many versions are held.
//!
//! A held version can stay for ever while younger ones come free, so looking at the oldest alone is not enough. Each
//! publish looks at the oldest (so that the horizon moves at once in the common case) and at the next two under a hand
//! that goes round. Two, because one is not enough: while the hand goes round `n` versions, `n / looks` new ones come, so
//! with one look a round the free ones behind it pile up without end, with two there are never more of them than
//! about as many as are really held.
//!
//! Versions stand in a doubly linked list in the order of their numbers, whose links are indices into one `Vec`: the
//! oldest is the first, and one in the middle leaves in a constant number of steps.

use std::sync::Arc;

use super::Versioned;

/// The index of the link that joins the newest to the oldest.
const RING: u32 = 0;

/// How many versions under the hand a publish looks at; see the module's text for why two.
const LOOKS: usize = 2;

/// One place in the list.
#[derive(Debug)]
struct Link<T> {
    older: u32,
    newer: u32,
    retired: Option<RetiredVersion<T>>,
}

#[derive(Debug)]
struct RetiredVersion<T> {
    version: Arc<T>,
    /// The how-manieth replaced version this is, from 0; see [`Cell::quiet`](super::cell::Cell::quiet).
    ordinal: u64,
}

/// Replaced versions that are not freed yet.
#[derive(Debug)]
pub(crate) struct Retired<T> {
    links: Vec<Link<T>>,
    vacant: Vec<u32>,
    hand: u32,
    len: usize,
    ordinals: u64,
    freed: u64,
}

impl<T: Versioned> Retired<T> {
    pub(crate) fn new() -> Self {
        let ring = Link { older: RING, newer: RING, retired: None };
        Self { links: vec![ring], vacant: Vec::new(), hand: RING, len: 0, ordinals: 0, freed: 0 }
    }

    /// How many versions are retired and not freed.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many versions have been freed here since the start.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// The number of the oldest version not freed yet.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let oldest = self.links[RING as usize].newer;
        self.links[oldest as usize].retired.as_ref().map(|retired| retired.version.version())
    }

    /// Keeps `version`, which is newer than all kept ones, until nobody else holds it.
    pub(crate) fn retire(&mut self, version: Arc<T>) {
        let retired = Some(RetiredVersion { version, ordinal: self.ordinals });
        self.ordinals += 1;
        self.len += 1;
        let newest = self.links[RING as usize].older;
        let link = Link { older: newest, newer: RING, retired };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.links[index as usize] = link;
                index
            }
            None => {
                self.links.push(link);
                (self.links.len() - 1) as u32
            }
        };
        self.links[newest as usize].newer = index;
        self.links[RING as usize].older = index;
    }

    /// Looks at a constant number of versions and frees those that nobody else holds; `quiet` is the cell's.
    pub(crate) fn collect_some(&mut self, quiet: u64) {
        self.free_if_unheld(self.links[RING as usize].newer, quiet);
        for _ in 0..LOOKS {
            if self.hand == RING {
                self.hand = self.links[RING as usize].newer;
            }
            // `free_if_unheld` moves the hand off a version that it frees.
            let under_hand = self.hand;
            if !self.free_if_unheld(under_hand, quiet) {
                self.hand = self.links[under_hand as usize].newer;
            }
        }
    }

    /// Looks at all versions, frees those that nobody else holds, and says how many. O(versions retired).
    pub(crate) fn collect_all(&mut self, quiet: u64) -> usize {
        let before = self.len;
        let mut index = self.links[RING as usize].newer;
        while index != RING {
            let newer = self.links[index as usize].newer;
            self.free_if_unheld(index, quiet);
            index = newer;
        }
        if self.len == 0 {
            // A burst of held versions should not leave its table behind for ever.
            self.links.truncate(1);
            self.links.shrink_to(64);
            self.vacant = Vec::new();
            self.hand = RING;
        }
        before - self.len
    }

    fn free_if_unheld(&mut self, index: u32, quiet: u64) -> bool {
        let link = &mut self.links[index as usize];
        let unheld = |retired: &RetiredVersion<T>| {
            retired.ordinal < quiet && Arc::strong_count(&retired.version) == 1
        };
        // The count is a relaxed load and need not be more: if it says one, no other handle exists and none can come
        // to be (the cell let go of this version, rule 5 of its contract). What the former holders did with the
        // version happens before its memory is freed because `Arc`'s own drop orders that.
        if !link.retired.as_ref().is_some_and(unheld) {
            return false;
        }
        let (older, newer) = (link.older, link.newer);
        let retired = link.retired.take();
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
        if self.hand == index {
            self.hand = newer;
        }
        self.vacant.push(index);
        self.len -= 1;
        self.freed += 1;
        // Last, so that the list is whole whatever the payload's own drop does.
        drop(retired);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Numbered(u64);

    impl Versioned for Numbered {
        fn version(&self) -> u64 {
            self.0
        }
    }

    fn retired_up_to(count: u64) -> (Retired<Numbered>, Vec<Arc<Numbered>>) {
        let mut retired = Retired::new();
        let held: Vec<_> = (0..count).map(|number| Arc::new(Numbered(number))).collect();
        held.iter().for_each(|version| retired.retire(Arc::clone(version)));
        (retired, held)
    }

    #[test]
    fn a_version_in_the_middle_is_freed_while_an_older_one_is_held() {
        let (mut retired, mut held) = retired_up_to(5);
        let middle = Arc::downgrade(&held.remove(2));
        for _ in 0..3 {
            retired.collect_some(u64::MAX);
        }
        assert!(middle.upgrade().is_none());
        assert_eq!(retired.len(), 4);
        assert_eq!(retired.oldest(), Some(0));
    }

    #[test]
    fn the_oldest_moves_on_by_one_look() {
        let (mut retired, mut held) = retired_up_to(5);
        held.remove(0);
        retired.collect_some(u64::MAX);
        assert_eq!(retired.oldest(), Some(1));
    }

    #[test]
    fn what_a_pin_may_still_reach_is_kept() {
        let (mut retired, held) = retired_up_to(3);
        drop(held);
        assert_eq!(retired.collect_all(1), 1);
        assert_eq!(retired.oldest(), Some(1));
        assert_eq!(retired.collect_all(u64::MAX), 2);
        assert_eq!(retired.oldest(), None);
        assert_eq!(retired.freed(), 3);
    }

    #[test]
    fn versions_held_for_ever_do_not_let_the_free_ones_pile_up() {
        let (mut retired, _held) = retired_up_to(100);
        for number in 100..20_000 {
            retired.retire(Arc::new(Numbered(number)));
            retired.collect_some(u64::MAX);
            assert!(retired.len() <= 2 * 100 + 4, "{} after {number}", retired.len());
        }
    }

    #[test]
    fn any_order_of_release_frees_everything_and_keeps_the_order() {
        // A fixed multiplicative walk visits every residue: a seeded shuffle without a generator.
        let count = 257;
        let (mut retired, held) = retired_up_to(count);
        let mut held: Vec<_> = held.into_iter().map(Some).collect();
        for step in 0..count {
            held[(step * 101 % count) as usize] = None;
            retired.collect_all(u64::MAX);
            let oldest_held = held.iter().position(Option::is_some).map(|position| position as u64);
            assert_eq!(retired.oldest(), oldest_held);
            assert_eq!(retired.len(), held.iter().flatten().count());
        }
        assert_eq!(retired.links.len(), 1);
    }
}
