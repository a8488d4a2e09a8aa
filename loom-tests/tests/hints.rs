//! Models of the index of pods: a version that is held finds all its pods, whatever its writer does meanwhile.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Bound, explore};
use portolan::__model::HintsWriter;

/// One bucket of a segment of four cells.
const HASH: u32 = 7;

#[test]
fn a_held_version_finds_a_pod_that_goes() {
    explore("a_held_version_finds_a_pod_that_goes", Bound::Exhaustive, || {
        let mut writer = HintsWriter::default();
        writer.insert(HASH, 1);
        writer.insert(HASH, 2);
        let held = writer.version();
        let reader = thread::spawn(move || {
            assert!(held.finds(HASH, 1));
            assert!(held.finds(HASH, 2));
        });
        writer.depart(HASH, 1, 2);
        // The held version is the first.
        writer.settle(1);
        writer.insert(HASH, 3);
        reader.join().unwrap();
        writer.settle(2);
        let last = writer.version();
        assert!(!last.finds(HASH, 1) && last.finds(HASH, 2) && last.finds(HASH, 3));
    });
}

#[test]
fn what_is_taken_out_hides_nothing_behind_it() {
    explore("what_is_taken_out_hides_nothing_behind_it", Bound::Exhaustive, || {
        let mut writer = HintsWriter::default();
        writer.insert(HASH, 1);
        writer.insert(HASH, 2);
        writer.depart(HASH, 1, 1);
        let held = writer.version();
        let reader = thread::spawn(move || assert!(held.finds(HASH, 2)));
        // Nobody holds a version that has the first pod.
        writer.settle(1);
        reader.join().unwrap();
    });
}

#[test]
fn a_held_version_finds_its_pods_while_segments_are_replaced() {
    explore(
        "a_held_version_finds_its_pods_while_segments_are_replaced",
        Bound::Preemptions(3),
        || {
            let mut writer = HintsWriter::default();
            (1..=2).for_each(|slot| writer.insert(HASH, slot));
            let held = writer.version();
            let reader = thread::spawn(move || {
                // Looks at all cells that the writer writes.
                assert!(!held.finds(HASH, 9));
                (1..=2).all(|slot| held.finds(HASH, slot))
            });
            // More than the four cells that the version has, in both halves of the hashes.
            (3..=4).for_each(|slot| writer.insert(HASH, slot));
            writer.insert(u32::MAX, 5);
            writer.insert(u32::MAX - 1, 6);
            assert!(reader.join().unwrap());
            let last = writer.version();
            assert!((1..=4).all(|slot| last.finds(HASH, slot)));
            assert!(last.finds(u32::MAX, 5) && last.finds(u32::MAX - 1, 6));
        },
    );
}

#[test]
fn a_pod_that_comes_back_is_found_by_all_who_have_it() {
    explore("a_pod_that_comes_back_is_found_by_all_who_have_it", Bound::Exhaustive, || {
        let mut writer = HintsWriter::default();
        writer.insert(HASH, 1);
        let first = writer.version();
        let reader = thread::spawn(move || assert!(first.finds(HASH, 1)));
        writer.depart(HASH, 1, 2);
        writer.insert(HASH, 1);
        let second = writer.version();
        reader.join().unwrap();
        // It goes again. The first version is gone; the second is held and has the pod.
        writer.depart(HASH, 1, 4);
        writer.settle(3);
        assert!(second.finds(HASH, 1));
        writer.settle(4);
        assert!(!writer.version().finds(HASH, 1));
    });
}
