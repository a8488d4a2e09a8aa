//! Models of the bare publication cell: a pinned version is consistent and not freed; any other is freed once.
#![cfg(loom)]

use std::mem::ManuallyDrop;

use loom::thread;
use loom_tests::{Bound, Canaries, Canary, explore};
use portolan_publish::__model::{CellReader, CellWriter};

fn cell() -> (Canaries, CellWriter<Canary>) {
    let mut canaries = Canaries::default();
    let writer = CellWriter::new(canaries.next());
    (canaries, writer)
}

/// Replaces the current version, and frees what it can.
fn publish(canaries: &mut Canaries, writer: &mut CellWriter<Canary>) {
    writer.replace(canaries.next());
    writer.free();
}

/// Explores a model at whose end only the current version exists, beside what the model returns.
#[track_caller]
fn story<R>(
    name: &str,
    bound: Bound,
    model: impl Fn(&mut Canaries, &mut CellWriter<Canary>) -> R + Send + Sync + 'static,
) {
    explore(name, bound, move || {
        let (mut canaries, mut writer) = cell();
        let _beside = model(&mut canaries, &mut writer);
        writer.free();
        assert_eq!((writer.retired(), canaries.alive()), (0, 1));
    });
}

/// Creates a reader that keeps the current version between pins.
fn keeper(writer: &CellWriter<Canary>) -> CellReader<Canary> {
    let reader = writer.reader();
    (0..2).for_each(|_| assert!(reader.pin().check() > 0));
    reader
}

#[test]
fn a_pinned_version_is_consistent_and_stays() {
    story("a_pinned_version_is_consistent_and_stays", Bound::Exhaustive, |canaries, writer| {
        let reader = writer.reader();
        let pinner = thread::spawn(move || {
            let pinned = reader.pin();
            let first = pinned.check();
            drop(pinned);
            assert!(reader.pin().check() >= first);
        });
        publish(canaries, writer);
        pinner.join().unwrap();
    });
}

#[test]
fn versions_since_an_announcement_stay() {
    story("versions_since_an_announcement_stay", Bound::Exhaustive, |canaries, writer| {
        // From the second version on, a reader announces its index.
        publish(canaries, writer);
        let reader = writer.reader();
        let pinner = thread::spawn(move || {
            let first = reader.pin().check();
            assert!(reader.pin().check() >= first);
        });
        publish(canaries, writer);
        pinner.join().unwrap();
    });
}

#[test]
fn a_pin_survives_two_publishes() {
    story("a_pin_survives_two_publishes", Bound::Exhaustive, |canaries, writer| {
        let reader = writer.reader();
        let pinner = thread::spawn(move || {
            let pinned = reader.pin();
            assert_eq!(pinned.check(), pinned.check());
        });
        publish(canaries, writer);
        publish(canaries, writer);
        pinner.join().unwrap();
    });
}

#[test]
fn a_kept_version_stays_until_the_next_pin() {
    story("a_kept_version_stays_until_the_next_pin", Bound::Exhaustive, |canaries, writer| {
        let reader = keeper(writer);
        let pinner = thread::spawn(move || {
            let first = reader.pin().check();
            assert!(reader.pin().check() >= first);
            reader
        });
        publish(canaries, writer);
        let reader = pinner.join().unwrap();
        writer.free();
        assert_eq!(reader.pin().check(), 2);
        reader
    });
}

#[test]
fn a_resting_reader_keeps_no_version() {
    story("a_resting_reader_keeps_no_version", Bound::Exhaustive, |canaries, writer| {
        let mut reader = keeper(writer);
        let pinner = thread::spawn(move || {
            reader.pin().check();
            reader.rest();
            reader
        });
        publish(canaries, writer);
        pinner.join().unwrap()
    });
}

#[test]
fn a_handle_releases_the_kept_version() {
    story("a_handle_releases_the_kept_version", Bound::Exhaustive, |canaries, writer| {
        let reader = keeper(writer);
        let holder = thread::spawn(move || {
            let held = reader.load();
            let number = held.check();
            (held, number, reader)
        });
        publish(canaries, writer);
        let (held, number, reader) = holder.join().unwrap();
        writer.free();
        if number == 2 {
            assert_eq!((writer.retired(), canaries.alive()), (0, 1));
        }
        drop(held);
        // A handle to a kept version leaves it kept; the reader's next access to another version releases it.
        assert_eq!(reader.pin().check(), 2);
        reader
    });
}

#[test]
fn a_forgotten_guard_keeps_its_version_until_the_reader_rests() {
    let name = "a_forgotten_guard_keeps_its_version_until_the_reader_rests";
    story(name, Bound::Exhaustive, |canaries, writer| {
        let mut reader = writer.reader();
        let pinner = thread::spawn(move || {
            let forgotten = ManuallyDrop::new(reader.pin());
            let first = forgotten.check();
            assert!(reader.pin().check() >= first);
            // Later events have not freed it.
            assert_eq!(forgotten.check(), first);
            reader.rest();
            reader
        });
        publish(canaries, writer);
        pinner.join().unwrap()
    });
}

#[test]
fn guards_on_two_versions_hold_both() {
    story("guards_on_two_versions_hold_both", Bound::Exhaustive, |canaries, writer| {
        let reader = writer.reader();
        let pinner = thread::spawn(move || {
            let outer = reader.pin();
            let inner = reader.pin();
            assert!(outer.check() <= inner.check());
            drop(inner);
            outer.check();
        });
        publish(canaries, writer);
        writer.free();
        pinner.join().unwrap();
    });
}

#[test]
fn the_inner_guard_may_outlive_the_outer() {
    story("the_inner_guard_may_outlive_the_outer", Bound::Preemptions(3), |canaries, writer| {
        let reader = writer.reader();
        let outer = reader.pin();
        publish(canaries, writer);
        assert_eq!((outer.check(), writer.retired()), (1, 1));
        drop(outer);
        let pinner = thread::spawn(move || {
            let outer = reader.pin();
            let inner = reader.pin();
            let first = outer.check();
            drop(outer);
            let innermost = reader.pin();
            assert!(first <= inner.check() && inner.check() <= innermost.check());
        });
        publish(canaries, writer);
        publish(canaries, writer);
        pinner.join().unwrap();
    });
}

#[test]
fn held_handle_survives_two_publishes() {
    explore("held_handle_survives_two_publishes", Bound::Exhaustive, || {
        let (mut canaries, mut writer) = cell();
        let reader = writer.reader();
        let holder = thread::spawn(move || {
            let held = reader.load();
            held.check();
            (held, reader)
        });
        publish(&mut canaries, &mut writer);
        publish(&mut canaries, &mut writer);
        let (held, _reader) = holder.join().unwrap();
        let number = held.check();
        writer.free();
        // The handle holds its version, and nothing else does.
        assert_eq!((writer.retired(), canaries.alive()), (0, if number == 3 { 1 } else { 2 }));
        drop(held);
        assert_eq!(canaries.alive(), 1);
    });
}

#[test]
fn a_handle_may_be_taken_while_a_guard_exists() {
    story("a_handle_may_be_taken_while_a_guard_exists", Bound::Exhaustive, |canaries, writer| {
        let reader = writer.reader();
        let holder = thread::spawn(move || {
            let pinned = reader.pin();
            let held = reader.load();
            assert!(pinned.check() <= held.check());
            held
        });
        publish(canaries, writer);
        writer.free();
        holder.join().unwrap().check();
    });
}

#[test]
fn a_reader_may_register_during_a_publish() {
    story("a_reader_may_register_during_a_publish", Bound::Exhaustive, |canaries, writer| {
        let reader = writer.reader();
        let registrant = thread::spawn(move || {
            // The new reader takes a slot in a block that this thread must add.
            let another = reader.another();
            another.pin().check();
        });
        publish(canaries, writer);
        registrant.join().unwrap();
    });
}

#[test]
fn a_released_slot_may_be_claimed() {
    story("a_released_slot_may_be_claimed", Bound::Exhaustive, |canaries, writer| {
        let reader = writer.reader();
        let leaver = thread::spawn(move || {
            reader.pin().check();
            drop(reader);
        });
        writer.replace(canaries.next());
        // This takes the first reader's slot if that reader has released it.
        let next = writer.reader();
        assert_eq!(next.pin().check(), 2);
        writer.free();
        leaver.join().unwrap();
        next
    });
}

#[test]
fn a_slot_may_change_owners_twice() {
    // A reader that claims a slot and never uses it passes on the previous reader's accesses to versions.
    story("a_slot_may_change_owners_twice", Bound::Preemptions(3), |canaries, writer| {
        let (reader, other) = (writer.reader(), writer.reader());
        let leaver = thread::spawn(move || {
            reader.pin().check();
            drop(reader);
        });
        let passer = thread::spawn(move || drop(other.another()));
        publish(canaries, writer);
        leaver.join().unwrap();
        passer.join().unwrap();
    });
}

#[test]
fn the_writer_may_end_while_a_reader_reads() {
    explore("the_writer_may_end_while_a_reader_reads", Bound::Exhaustive, || {
        let (mut canaries, mut writer) = cell();
        let reader = writer.reader();
        let pinner = thread::spawn(move || {
            let pinned = reader.pin();
            let first = pinned.check();
            assert!(reader.pin().check() >= first);
        });
        writer.replace(canaries.next());
        drop(writer);
        pinner.join().unwrap();
        // The last owner has freed all versions.
        assert_eq!(canaries.alive(), 0);
    });
}

#[test]
fn a_reader_may_register_while_the_writer_ends() {
    explore("a_reader_may_register_while_the_writer_ends", Bound::Exhaustive, || {
        let (mut canaries, mut writer) = cell();
        let reader = writer.reader();
        let registrant = thread::spawn(move || {
            let another = reader.another();
            drop(reader);
            another.pin().check();
        });
        writer.replace(canaries.next());
        drop(writer);
        registrant.join().unwrap();
        assert_eq!(canaries.alive(), 0);
    });
}

#[test]
fn two_readers_and_a_writer() {
    story("two_readers_and_a_writer", Bound::Preemptions(2), |canaries, writer| {
        let readers = [keeper(writer), writer.reader()];
        let pinners = readers.map(|reader| {
            thread::spawn(move || {
                let first = reader.pin().check();
                assert!(reader.pin().check() >= first);
            })
        });
        publish(canaries, writer);
        publish(canaries, writer);
        for pinner in pinners {
            pinner.join().unwrap();
        }
    });
}

#[test]
fn two_readers_may_register_at_once() {
    story("two_readers_may_register_at_once", Bound::Preemptions(2), |canaries, writer| {
        let reader = writer.reader();
        let others = [reader.another(), reader];
        let registrants = others.map(|reader| {
            thread::spawn(move || {
                let another = reader.another();
                drop(reader);
                another.pin().check();
            })
        });
        publish(canaries, writer);
        for registrant in registrants {
            registrant.join().unwrap();
        }
    });
}
