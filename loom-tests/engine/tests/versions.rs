//! Models of publisher, horizon and shared index together, with the writer and the readers of a whole engine.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Bound, Canaries, Canary, explore};
use portolan::cache::{Cluster, Config, Engine, Reader, Writer};
use portolan::model::{Generation, Pod, Uid, node, pod};
use portolan_publish::Publisher;

fn placed(name: &str) -> Pod {
    pod(name.to_owned()).on("n").build()
}

/// Creates an engine that has published a node with two pods, "p" and "q", as generation 3.
fn engine() -> (Writer, Reader) {
    let (mut writer, reader) = Engine::inline(Config::default());
    writer.add_node(node("n").build()).unwrap();
    writer.add_pod(placed("p")).unwrap();
    writer.add_pod(placed("q")).unwrap();
    writer.publish();
    (writer, reader)
}

/// Checks a version, or an unmodified fork: "p" was removed in generation 4, "q" in generation 5.
fn check(cluster: &Cluster) {
    let has = |name| cluster.pod(&Uid::new(name)).is_some();
    assert_eq!(has("default/p"), cluster.generation() < Generation(4));
    assert_eq!(has("default/q"), cluster.generation() < Generation(5));
}

/// Removes both pods, with a publish after each.
fn remove_both(writer: &mut Writer) {
    for name in ["p", "q"] {
        writer.remove_pod(&placed(name)).unwrap();
        writer.publish();
    }
}

#[test]
fn a_pinned_version_finds_its_pods_until_it_is_released() {
    explore("a_pinned_version_finds_its_pods_until_it_is_released", Bound::Preemptions(3), || {
        let (mut writer, reader) = engine();
        let pinner = thread::spawn(move || check(&reader.pin()));
        remove_both(&mut writer);
        pinner.join().unwrap();
        writer.reclaim();
        check(&writer.reader().pin());
    });
}

#[test]
fn a_fork_of_a_pinned_version_finds_its_pods_after_the_pin() {
    explore(
        "a_fork_of_a_pinned_version_finds_its_pods_after_the_pin",
        Bound::Preemptions(3),
        || {
            let (mut writer, reader) = engine();
            let forker = thread::spawn(move || {
                // The pin ends with the statement.
                let fork = reader.pin().fork();
                check(&fork);
            });
            remove_both(&mut writer);
            forker.join().unwrap();
            writer.reclaim();
            check(&writer.reader().pin());
        },
    );
}

#[test]
fn an_owned_version_finds_its_pods_while_it_is_held() {
    explore("an_owned_version_finds_its_pods_while_it_is_held", Bound::Preemptions(3), || {
        let (mut writer, reader) = engine();
        // Loom does not see the count of this handle, so the handle returns to the thread that frees.
        let holder = thread::spawn(move || {
            let held = reader.snapshot();
            check(&held);
            held
        });
        remove_both(&mut writer);
        let held = holder.join().unwrap();
        check(&held);
        assert!(writer.figures().oldest_held <= held.generation());
        check(&held.fork());
        drop(held);
        writer.reclaim();
        check(&writer.reader().pin());
    });
}

#[test]
fn a_fork_outlives_the_writer() {
    explore("a_fork_outlives_the_writer", Bound::Preemptions(3), || {
        let (mut writer, reader) = engine();
        let forker = thread::spawn(move || {
            let fork = reader.pin().fork();
            drop(reader);
            check(&fork);
        });
        remove_both(&mut writer);
        drop(writer);
        forker.join().unwrap();
    });
}

#[test]
fn a_pinned_version_survives_the_publisher() {
    explore("a_pinned_version_survives_the_publisher", Bound::Preemptions(3), || {
        let mut canaries = Canaries::default();
        let mut publisher: Publisher<Canary> = Publisher::new(canaries.next());
        let reader = publisher.subscribe();
        let pinner = thread::spawn(move || {
            let pinned = reader.pin();
            let first = pinned.check();
            assert_eq!(pinned.check(), first);
        });
        publisher.publish(canaries.next()).unwrap();
        drop(publisher);
        pinner.join().unwrap();
        // The last owner freed the rest.
        assert_eq!(canaries.alive(), 0);
    });
}
