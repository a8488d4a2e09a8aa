//! Deletion marks: which bound pods are about to be deleted, and for which preemptor.
//!
//! Gödel's binder marks the victims of a pod before it deletes them, so that no other unit preempts them as well
//! (binder/cache/commonstores/deleted_marker_store). Unlike preemption marks, these are not derived from the placed
//! pods: events set and remove them. A mark is removed when its pod is removed or no longer bound, when its preemptor
//! removes it, or when it expires.
//!
//! Marks are stored in a dense table: the last mark moves into the slot of a removed one, so numbers never run out.

use crate::model::{Generation, Timestamp, Uid, hash_of};

use super::super::hash_index::HashIndex;
use super::super::table::Table;

/// A pod that is about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionMark {
    /// The pod to be deleted.
    pub victim: Uid,
    /// The pod that preempts it. Only this pod may remove the mark.
    pub preemptor: Uid,
    /// The last moment at which the mark is valid, by the clock that events carry.
    pub until: Timestamp,
}

/// All deletion marks.
#[derive(Clone, Default)]
pub struct DeletionMarks {
    /// Marks by number, from 0 to `len`.
    marks: Table<DeletionMark>,
    by_victim: HashIndex,
    len: u32,
    generation: Generation,
}

impl DeletionMarks {
    /// Number of reference counts that a clone increments.
    pub(crate) const COUNTS: usize = 2;

    /// Returns the mark of a pod. O(log n).
    #[must_use]
    pub fn get(&self, victim: &Uid) -> Option<&DeletionMark> {
        self.marks.get(self.number(victim)?)
    }

    /// Returns whether a pod is marked (`IsPodMarkedToDelete`). O(log n).
    #[must_use]
    pub fn is_marked(&self, victim: &Uid) -> bool {
        self.number(victim).is_some()
    }

    /// Returns all marks, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeletionMark> {
        self.marks.iter().map(|(_, mark)| mark)
    }

    /// Returns the number of marks.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are no marks.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the generation in which a mark was last added, removed or replaced.
    #[doc(hidden)]
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns whether another mark can be added.
    pub(crate) fn has_room(&self) -> bool {
        self.len < u32::MAX
    }

    /// Adds a mark, or replaces the one of the same pod. O(log n).
    pub(crate) fn mark(&mut self, mark: DeletionMark, generation: Generation) {
        let number = self.number(&mark.victim).unwrap_or_else(|| {
            self.by_victim.insert(hash_of(&mark.victim), self.len);
            self.len += 1;
            self.len - 1
        });
        self.marks.set(number, mark);
        self.generation = generation;
    }

    /// Removes a mark. O(log n).
    pub(crate) fn unmark(&mut self, victim: &Uid, generation: Generation) {
        let Some(number) = self.number(victim) else { return };
        let last = self.len - 1;
        self.by_victim.remove(hash_of(victim), number);
        if let Some(moved) = self.marks.get(last).filter(|_| last != number).cloned() {
            let hash = hash_of(&moved.victim);
            self.by_victim.remove(hash, last);
            self.by_victim.insert(hash, number);
            self.marks.set(number, moved);
        }
        self.marks.remove(last);
        self.len = last;
        self.generation = generation;
    }

    fn number(&self, victim: &Uid) -> Option<u32> {
        let is_match = |number| self.marks.get(number).is_some_and(|mark| mark.victim == *victim);
        self.by_victim.find(hash_of(victim), is_match)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks are removed in an order unrelated to their insertion.
    #[test]
    fn every_mark_is_found_until_removed_and_the_index_ends_up_empty() {
        const MARKS: u32 = 200;
        let uid = |n: u32| Uid::new(&format!("v{n}"));
        let mut marks = DeletionMarks::default();
        for n in 0..MARKS {
            let (victim, preemptor) = (uid(n), uid(MARKS + n));
            let until = Timestamp::from_secs(i64::from(n));
            marks.mark(DeletionMark { victim, preemptor, until }, Generation(1));
        }
        let held = marks.clone();
        // 77 and 200 are coprime, so this permutes the numbers.
        for (gone, n) in (0..MARKS).map(|n| n * 77 % MARKS).enumerate() {
            assert_eq!(marks.get(&uid(n)).map(|mark| &mark.preemptor), Some(&uid(MARKS + n)));
            marks.unmark(&uid(n), Generation(2));
            assert!(!marks.is_marked(&uid(n)));
            assert_eq!((marks.len(), marks.iter().count()), (199 - gone, 199 - gone));
        }
        assert!(marks.is_empty() && marks.by_victim.is_empty());
        assert!((0..MARKS).all(|n| held.is_marked(&uid(n))));
    }
}
