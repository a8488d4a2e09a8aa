//! Replaced versions that may still be in use. The writer keeps them, so that no reader pays for freeing one.
//!
//! Freeing a version frees the whole part of its tree that no other version shares. The thread that drops the last
//! handle pays for that, so the writer keeps one handle to each replaced version until that handle is the only one. The
//! writer must find such versions without ever examining all of them at once: a publish must not cost more because many
//! versions are held.
//!
//! A version can be held forever while younger ones are released, so examining only the oldest is not enough. Each
//! publish examines the oldest version (so that the horizon advances at once in the common case) and the next two at a
//! cursor, the *hand*, that goes round the list. One is not enough: while the hand goes round `n` versions, `n / looks`
//! new ones arrive, so with one look per publish the free versions behind the hand accumulate without limit. With two,
//! there are at most about as many of them as versions that are really held.
//!
//! The versions are in a doubly linked list, ordered by number, whose links are indices into one `Vec`. The oldest
//! comes first, and removing one from the middle takes a constant number of steps.
#![allow(unsafe_code)]

use super::Versioned;
use super::replaced::{Pins, Replaced};

/// The index of the link that joins the newest to the oldest.
const RING: u32 = 0;

/// The number of versions at the hand that a publish examines; see the module documentation for why two.
const LOOKS: usize = 2;

/// A node of the list.
#[derive(Debug)]
struct Link<T> {
    older: u32,
    newer: u32,
    retired: Option<Replaced<T>>,
}

/// Replaced versions that are not freed yet.
#[derive(Debug)]
pub(crate) struct Retired<T> {
    links: Vec<Link<T>>,
    vacant: Vec<u32>,
    hand: u32,
    /// How many versions in a row the hand found held since a version was last retired or freed, or a round ended.
    found_held: usize,
    len: usize,
    freed: u64,
}

impl<T: Versioned> Retired<T> {
    pub(crate) fn new() -> Self {
        let ring = Link { older: RING, newer: RING, retired: None };
        Self { links: vec![ring], vacant: Vec::new(), hand: RING, found_held: 0, len: 0, freed: 0 }
    }

    /// The number of versions that are retired and not freed.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of versions freed here so far.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// The number of the oldest version not freed yet.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.iter().next().map(|retired| retired.version())
    }

    /// The number of the oldest version that one of `pins` may reach. O(versions retired).
    pub(crate) fn oldest_reached(&self, pins: &Pins) -> Option<u64> {
        self.iter().find(|retired| pins.reach(retired)).map(|retired| retired.version())
    }

    /// The versions not freed yet, the oldest first.
    fn iter(&self) -> impl Iterator<Item = &Replaced<T>> {
        let link = |index: u32| &self.links[index as usize];
        std::iter::successors(Some(link(link(RING).newer)), move |at| Some(link(at.newer)))
            .map_while(|at| at.retired.as_ref())
    }

    /// Keeps a version until nobody else holds it. It must be newer than all versions already kept.
    pub(crate) fn retire(&mut self, replaced: Replaced<T>) {
        let retired = Some(replaced);
        self.found_held = 0;
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

    /// Examines a constant number of versions, and passes those that nobody else holds to `free`.
    ///
    /// `pins` must come from a scan that began after all of the versions were retired.
    pub(crate) fn collect_some(&mut self, pins: &Pins, free: &mut impl FnMut(T)) {
        self.free_if_unheld(self.links[RING as usize].newer, pins, free);
        self.collect_next(LOOKS, pins, free);
        // Only consecutive calls of `collect_round` make up a round.
        self.found_held = 0;
    }

    /// Examines the next `looks` versions at the hand, or all if there are fewer, and passes those that nobody else
    /// holds to `free`. Returns whether a round has ended: all versions were examined, and found held, since the last
    /// one was retired or freed. The next call starts another round.
    ///
    /// `pins` as for [`collect_some`](Self::collect_some).
    pub(crate) fn collect_round(
        &mut self,
        looks: usize,
        pins: &Pins,
        free: &mut impl FnMut(T),
    ) -> bool {
        self.collect_next(looks, pins, free);
        let has_ended = self.found_held >= self.len;
        if has_ended {
            self.found_held = 0;
        }
        has_ended
    }

    /// Like [`collect_round`](Self::collect_round), without the result.
    fn collect_next(&mut self, looks: usize, pins: &Pins, free: &mut impl FnMut(T)) {
        for _ in 0..looks.min(self.len) {
            if self.hand == RING {
                self.hand = self.links[RING as usize].newer;
            }
            // `free_if_unheld` moves the hand off a version that it frees.
            let under_hand = self.hand;
            if !self.free_if_unheld(under_hand, pins, free) {
                self.hand = self.links[under_hand as usize].newer;
                self.found_held += 1;
            }
        }
    }

    /// Examines all versions, passes those nobody else holds to `free`, and returns their number. O(versions retired).
    ///
    /// `pins` as for [`collect_some`](Self::collect_some).
    pub(crate) fn collect_all(&mut self, pins: &Pins, free: &mut impl FnMut(T)) -> usize {
        let before = self.len;
        let mut index = self.links[RING as usize].newer;
        while index != RING {
            let newer = self.links[index as usize].newer;
            self.free_if_unheld(index, pins, free);
            index = newer;
        }
        if self.len == 0 {
            // A burst of held versions must not leave its table behind forever.
            self.links.truncate(1);
            self.links.shrink_to(64);
            self.vacant = Vec::new();
            self.hand = RING;
        }
        before - self.len
    }

    /// Gives up the handles to all versions, even held ones. Returns the versions that one of `pins` may reach.
    ///
    /// `pins` as for [`collect_some`](Self::collect_some).
    pub(crate) fn give_up(&mut self, pins: &Pins) -> Vec<Replaced<T>> {
        let links = std::mem::take(&mut self.links);
        *self = Self::new();
        let (reached, free): (Vec<_>, Vec<_>) = links
            .into_iter()
            .filter_map(|link| link.retired)
            .partition(|version| pins.reach(version));
        for version in free {
            // SAFETY: the caller's `pins` were collected after it was retired, and none reaches it.
            unsafe { version.free() };
        }
        reached
    }

    fn free_if_unheld(&mut self, index: u32, pins: &Pins, free: &mut impl FnMut(T)) -> bool {
        let link = &mut self.links[index as usize];
        let Some(retired) = link.retired.take_if(|retired| !pins.reach(retired)) else {
            return false;
        };
        // In this order: a reader that loads a handle announces the version first, so once no pin reaches it, the count
        // includes every holder except later clones of counted handles, strong or weak.
        //
        // SAFETY: the caller's `pins` were collected after it was retired, and none reaches it.
        let version = match unsafe { retired.into_last() } {
            Ok(version) => version,
            Err(held) => {
                link.retired = Some(held);
                return false;
            }
        };
        let (older, newer) = (link.older, link.newer);
        self.links[older as usize].newer = newer;
        self.links[newer as usize].older = older;
        if self.hand == index {
            self.hand = newer;
        }
        self.vacant.push(index);
        self.len -= 1;
        self.freed += 1;
        self.found_held = 0;
        // Last, so that the list is consistent whatever the version's own drop does.
        free(version);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

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
        held.iter().for_each(|version| retired.retire(Replaced::new(Arc::clone(version), 0)));
        (retired, held)
    }

    #[test]
    fn a_version_in_the_middle_is_freed_while_an_older_one_is_held() {
        let (mut retired, mut held) = retired_up_to(5);
        let middle = Arc::downgrade(&held.remove(2));
        for _ in 0..3 {
            retired.collect_some(&Pins::default(), &mut drop);
        }
        assert!(middle.upgrade().is_none());
        assert_eq!(retired.len(), 4);
        assert_eq!(retired.oldest(), Some(0));
    }

    #[test]
    fn a_weak_handle_that_is_upgraded_at_the_last_moment_keeps_its_version() {
        let (mut retired, mut held) = retired_up_to(2);
        let weak = Arc::downgrade(&held.remove(0));
        // Nobody has a handle at first, but one exists by the time of the decision.
        let revived = weak.upgrade().expect("the writer's side keeps it");
        assert_eq!(retired.collect_all(&Pins::default(), &mut drop), 0);
        assert_eq!((retired.len(), retired.oldest(), revived.0), (2, Some(0), 0));
        drop(revived);
        let mut freed = Vec::new();
        retired.collect_some(&Pins::default(), &mut |version: Numbered| {
            // Decided: from now on nobody gets another handle, not even while the version is being freed.
            assert!(weak.upgrade().is_none());
            freed.push(version.0);
        });
        assert_eq!((freed, retired.oldest()), (vec![0], Some(1)));
    }

    #[test]
    fn the_list_is_whole_while_a_version_is_freed_and_when_that_panics() {
        let (mut retired, held) = retired_up_to(3);
        drop(held);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            retired.collect_all(&Pins::default(), &mut |_| std::panic::panic_any(()));
        }));
        assert!(caught.is_err());
        assert_eq!((retired.len(), retired.oldest(), retired.freed()), (2, Some(1), 1));
        assert_eq!(retired.collect_all(&Pins::default(), &mut drop), 2);
    }

    #[test]
    fn one_look_advances_the_oldest() {
        let (mut retired, mut held) = retired_up_to(5);
        held.remove(0);
        retired.collect_some(&Pins::default(), &mut drop);
        assert_eq!(retired.oldest(), Some(1));
    }

    #[test]
    fn versions_that_a_pin_may_reach_are_kept() {
        let (mut retired, held) = retired_up_to(3);
        let mut pins = Pins::default();
        pins.add(Arc::as_ptr(&held[1]).addr());
        drop(held);
        assert_eq!(retired.collect_all(&pins, &mut drop), 2);
        assert_eq!((retired.oldest(), retired.oldest_reached(&pins)), (Some(1), Some(1)));
        pins.clear();
        assert_eq!((retired.oldest(), retired.oldest_reached(&pins)), (Some(1), None));
        pins.add_since(0);
        assert_eq!(retired.collect_all(&pins, &mut drop), 0);
        pins.clear();
        assert_eq!(retired.collect_all(&pins, &mut drop), 1);
        assert_eq!(retired.oldest(), None);
        assert_eq!(retired.freed(), 3);
    }

    #[test]
    fn giving_up_frees_every_version_that_is_not_pinned() {
        let (mut retired, held) = retired_up_to(3);
        let weak: Vec<_> = held.iter().map(Arc::downgrade).collect();
        let mut pins = Pins::default();
        pins.add(weak[2].as_ptr().addr());
        let counted = Arc::clone(&held[0]);
        drop(held);
        let left = retired.give_up(&pins);
        assert_eq!(left.iter().map(|version| version.version()).collect::<Vec<_>>(), [2]);
        assert_eq!(Arc::strong_count(&counted), 1);
        assert!(weak[1].upgrade().is_none());
        assert_eq!((retired.len(), retired.oldest()), (0, None));
        // SAFETY: the pin is fictitious.
        left.into_iter().for_each(|version| unsafe { version.free() });
        assert!(weak[2].upgrade().is_none());
    }

    #[test]
    fn free_versions_do_not_pile_up_behind_held_ones() {
        let (mut retired, _held) = retired_up_to(100);
        for number in 100..if cfg!(miri) { 500 } else { 20_000 } {
            retired.retire(Replaced::new(Arc::new(Numbered(number)), 0));
            retired.collect_some(&Pins::default(), &mut drop);
            assert!(retired.len() <= 2 * 100 + 4, "{} after {number}", retired.len());
        }
    }

    #[test]
    fn any_order_of_release_frees_everything_and_keeps_the_order() {
        // A fixed multiplicative walk visits every residue: a deterministic shuffle without a generator.
        let count = if cfg!(miri) { 37 } else { 257 };
        let (mut retired, held) = retired_up_to(count);
        let mut held: Vec<_> = held.into_iter().map(Some).collect();
        for step in 0..count {
            held[(step * 101 % count) as usize] = None;
            retired.collect_all(&Pins::default(), &mut drop);
            let oldest_held = held.iter().position(Option::is_some).map(|position| position as u64);
            assert_eq!(retired.oldest(), oldest_held);
            assert_eq!(retired.len(), held.iter().flatten().count());
        }
        assert_eq!(retired.links.len(), 1);
    }
}
