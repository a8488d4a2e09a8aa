//! Models of the pod index: a held version and a fork find all their pods, whatever the writer does meanwhile.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, Looked, explore};
use portolan::__model::{PodIndexVersion, PodIndexWriter};

/// Selects one bucket of a segment of four cells.
const HASH: u32 = 7;

#[test]
fn a_held_version_finds_a_pod_that_is_removed() {
    explore("a_held_version_finds_a_pod_that_is_removed", Bound::Exhaustive, || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        writer.insert(HASH, 2);
        let held = writer.version(1);
        let reader = thread::spawn(move || {
            assert!(held.finds(HASH, 1));
            assert!(held.finds(HASH, 2));
        });
        writer.depart(HASH, 1, 2);
        writer.version(2);
        writer.settle();
        writer.insert(HASH, 3);
        reader.join().unwrap();
        writer.settle();
        assert_eq!(writer.waiting(), 0);
        let last = writer.version(3);
        assert!(!last.finds(HASH, 1) && last.finds(HASH, 2) && last.finds(HASH, 3));
    });
}

#[test]
fn a_removed_entry_hides_no_later_entry() {
    explore("a_removed_entry_hides_no_later_entry", Bound::Exhaustive, || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        writer.insert(HASH, 2);
        writer.depart(HASH, 1, 1);
        let held = writer.version(1);
        let reader = thread::spawn(move || assert!(held.finds(HASH, 2)));
        // Nobody holds a version that contains the first pod.
        writer.settle();
        reader.join().unwrap();
    });
}

#[test]
fn a_held_version_finds_its_pods_while_segments_are_replaced() {
    explore(
        "a_held_version_finds_its_pods_while_segments_are_replaced",
        Bound::Preemptions(3),
        || {
            let mut writer = PodIndexWriter::default();
            (1..=2).for_each(|slot| writer.insert(HASH, slot));
            let held = writer.version(1);
            let reader = thread::spawn(move || {
                // Reads all cells that the writer writes.
                assert!(!held.finds(HASH, 9));
                (1..=2).all(|slot| held.finds(HASH, slot))
            });
            // More than the version's four cells, in both halves of the hash range.
            (3..=4).for_each(|slot| writer.insert(HASH, slot));
            writer.insert(u32::MAX, 5);
            writer.insert(u32::MAX - 1, 6);
            assert!(reader.join().unwrap());
            let last = writer.version(2);
            assert!((1..=4).all(|slot| last.finds(HASH, slot)));
            assert!(last.finds(u32::MAX, 5) && last.finds(u32::MAX - 1, 6));
        },
    );
}

#[test]
fn every_version_finds_a_pod_that_returns() {
    explore("every_version_finds_a_pod_that_returns", Bound::Exhaustive, || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        let first = writer.version(1);
        let reader = thread::spawn(move || assert!(first.finds(HASH, 1)));
        writer.depart(HASH, 1, 2);
        writer.insert(HASH, 1);
        let second = writer.version(3);
        reader.join().unwrap();
        // The pod departs again. The first version is gone; the second is held and contains the pod.
        writer.depart(HASH, 1, 4);
        writer.settle();
        assert!(second.finds(HASH, 1));
        drop(second);
        writer.version(5);
        writer.settle();
        assert!(!writer.version(6).finds(HASH, 1));
    });
}

#[test]
fn every_version_finds_a_pod_that_returns_after_a_split() {
    explore("every_version_finds_a_pod_that_returns_after_a_split", Bound::Preemptions(3), || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        writer.depart(HASH, 1, 2);
        // More than the four existing cells.
        (2..=4).for_each(|slot| writer.insert(HASH, slot));
        writer.insert(u32::MAX, 5);
        writer.insert(HASH, 1);
        let held = writer.version(8);
        let reader = thread::spawn(move || {
            assert!(held.finds(HASH, 1));
            held
        });
        writer.depart(HASH, 1, 9);
        writer.version(9);
        // No version from before the first departure is held, but the one in between is.
        writer.settle();
        let held = reader.join().unwrap();
        assert!(held.finds(HASH, 1));
        drop(held);
        writer.settle();
        assert!(!writer.version(10).finds(HASH, 1));
    });
}

#[test]
fn a_fork_finds_its_pods_while_the_writer_continues() {
    explore("a_fork_finds_its_pods_while_the_writer_continues", Bound::Exhaustive, || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        let fork = writer.version(1).fork();
        let looked = Arc::new(Looked::default());
        let by_fork = Arc::clone(&looked);
        let forker = thread::spawn(move || {
            assert!(fork.finds(HASH, 1));
            by_fork.look();
            drop(fork);
        });
        // Nobody holds a version from before the departure, but the fork needs one.
        writer.depart(HASH, 1, 2);
        writer.version(2);
        writer.settle();
        if writer.waiting() == 0 {
            // The cells that the fork read are overwritten, so its read must be over.
            looked.end();
        }
        forker.join().unwrap();
        writer.settle();
        assert_eq!(writer.waiting(), 0);
        assert!(!writer.version(3).finds(HASH, 1));
    });
}

#[test]
fn a_fork_of_a_fork_keeps_the_entries_of_the_first() {
    explore("a_fork_of_a_fork_keeps_the_entries_of_the_first", Bound::Exhaustive, || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        let first = writer.version(1).fork();
        let looked = Arc::new(Looked::default());
        let by_fork = Arc::clone(&looked);
        let forker = thread::spawn(move || {
            let second = first.fork();
            drop(first);
            assert!(second.finds(HASH, 1));
            by_fork.look();
        });
        writer.depart(HASH, 1, 2);
        writer.version(2);
        writer.settle();
        if writer.waiting() == 0 {
            looked.end();
        }
        forker.join().unwrap();
        writer.settle();
        assert_eq!(writer.waiting(), 0);
    });
}

#[test]
fn a_version_that_is_forked_and_released_keeps_its_epoch() {
    explore("a_version_that_is_forked_and_released_keeps_its_epoch", Bound::Exhaustive, || {
        let mut writer = PodIndexWriter::default();
        writer.insert(HASH, 1);
        writer.insert(HASH, 2);
        let version = writer.version(1);
        let forker = thread::spawn(move || {
            let fork = version.fork();
            drop(version);
            assert!(fork.finds(HASH, 1) && fork.finds(HASH, 2));
        });
        for (slot, now) in [(1, 2), (2, 3)] {
            writer.depart(HASH, slot, now);
            writer.version(now);
            writer.settle();
        }
        forker.join().unwrap();
        writer.settle();
        // The second departure may have found no epoch free.
        writer.version(4);
        writer.settle();
        assert_eq!(writer.waiting(), 0);
    });
}

#[test]
fn forks_of_two_epochs_keep_the_pods_of_each() {
    explore("forks_of_two_epochs_keep_the_pods_of_each", Bound::Preemptions(3), || {
        let mut writer = PodIndexWriter::default();
        (1..=3).for_each(|slot| writer.insert(HASH, slot));
        let fork_of = |version: PodIndexVersion, slots: std::ops::RangeInclusive<u32>| {
            let fork = version.fork();
            thread::spawn(move || slots.for_each(|slot| assert!(fork.finds(HASH, slot), "{slot}")))
        };
        let mut forkers = Vec::new();
        for slot in 1..=3 {
            if slot != 2 {
                forkers.push(fork_of(writer.version(u64::from(slot)), slot..=3));
            }
            writer.depart(HASH, slot, u64::from(slot) + 1);
            writer.settle();
        }
        for forker in forkers {
            forker.join().unwrap();
        }
        writer.settle();
        writer.version(5);
        writer.settle();
        assert_eq!(writer.waiting(), 0);
    });
}
