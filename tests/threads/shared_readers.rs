//! Readers on their own threads while the writer publishes: versions are monotone, each version is consistent, and held
//! versions do not change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Reader, Snapshot, Writer};
use portolan::model::{Generation, Pod, node, pod};

const NODES: usize = 200;
const PODS: usize = 400;
const MOVES: usize = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
/// All requests differ, so that a mixture of two versions has a different sum.
const CPU_OF_ALL: i64 = (PODS * (PODS + 1) / 2) as i64;

fn placed(i: usize, node: usize) -> Pod {
    pod(format!("p{i}")).cpu(i as i64 + 1).on(format!("n{}", node % NODES)).build()
}

fn filled() -> (Writer, Reader) {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..NODES {
        writer.add_node(node(format!("n{n}")).zone(format!("z{}", n % 3)).build()).unwrap();
    }
    for i in 0..PODS {
        writer.add_pod(placed(i, i)).unwrap();
    }
    writer.publish();
    (writer, reader)
}

/// Moves pods from node to node. Each version contains all pods.
fn write(writer: &mut Writer, mut between: impl FnMut(&mut Writer, usize)) -> Generation {
    let mut last = Generation::ZERO;
    for step in 0..MOVES {
        let i = step % PODS;
        let times = step / PODS;
        writer.remove_pod(&placed(i, i + times * 7)).unwrap();
        writer.add_pod(placed(i, i + (times + 1) * 7)).unwrap();
        last = writer.publish();
        between(writer, step);
    }
    last
}

fn assert_whole(snapshot: &Snapshot) {
    assert_eq!(snapshot.pod_count(), PODS, "a pod is missing or counted twice");
    let requested: i64 = snapshot.nodes().map(|node| node.requested().cpu.0).sum();
    assert_eq!(requested, CPU_OF_ALL, "columns of different versions");
}

/// Stops the other threads when a thread panics, so that the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn read(mut reader: Reader, stop: &AtomicBool, last: &AtomicU64) -> usize {
    let _stop = Stop(stop);
    let (mut pinned, mut kept, mut versions) = (Generation::ZERO, Generation::ZERO, 0);
    let mut held: Vec<(Arc<Snapshot>, portolan::cache::Dump)> = Vec::new();
    loop {
        let end = Generation(last.load(Ordering::Acquire));
        {
            let outer = reader.pin();
            let inner = reader.pin();
            assert!(outer.generation() >= pinned, "a pin is older than the previous one");
            assert!(
                inner.generation() >= outer.generation(),
                "a nested pin is older than the outer one"
            );
            pinned = inner.generation();
        }
        let snapshot = reader.snapshot();
        assert!(snapshot.generation() >= pinned, "a snapshot is older than the pinned version");
        versions += usize::from(snapshot.generation() > pinned);
        pinned = snapshot.generation();
        let refreshed = reader.refresh();
        assert!(refreshed.generation() >= kept, "the refreshed version is older than the kept one");
        assert_eq!(refreshed.pod_count(), PODS);
        kept = refreshed.generation();
        versions += 1;
        assert_whole(&snapshot);
        if versions % 64 == 0 {
            assert_eq!(snapshot.audit(), vec![]);
        }
        if versions % 100 == 0 {
            held.push((snapshot.clone(), snapshot.dump()));
            if held.len() > 4 {
                held.remove(versions / 100 % 4);
            }
        }
        if end > Generation::ZERO && kept >= end || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    for (snapshot, dump) in &held {
        assert_eq!(&snapshot.dump(), dump, "a held snapshot changed");
        assert_eq!(snapshot.audit(), vec![]);
    }
    versions
}

#[test]
fn readers_see_consistent_monotone_versions_while_the_writer_publishes() {
    let (mut writer, reader) = filled();
    let (stop, last) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let reader = reader.clone();
            scope.spawn(move || assert!(read(reader, stop, last) > 0));
        }
        let end = write(&mut writer, |writer, step| {
            if step % 512 == 0 {
                writer.reclaim();
            }
            if step % 16 == 0 {
                std::thread::yield_now();
            }
        });
        last.store(end.0, Ordering::Release);
    });
    assert_eq!(writer.cluster().audit(), vec![]);
    drop(reader);
    writer.reclaim();
    assert_eq!(writer.figures().retired, 0, "all readers have ended");
}

#[test]
fn a_reader_that_waits_for_each_version_gets_it() {
    let (mut writer, reader) = filled();
    let first = reader.generation();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let deadline = Some(Instant::now() + Duration::from_secs(120));
            for step in 1..=MOVES as u64 {
                let wanted = Generation(first.0 + 2 * step);
                let snapshot = reader.at_least(wanted, deadline).unwrap();
                assert!(snapshot.generation() >= wanted);
                assert_eq!(snapshot.pod_count(), PODS);
            }
        });
        write(&mut writer, |_, _| ());
        waiting.join().unwrap();
    });
}

#[test]
fn a_version_pinned_by_a_thread_outlives_the_engine() {
    let (mut writer, reader) = filled();
    let pinned = reader.pin();
    let held = reader.snapshot();
    let dump = held.dump();
    let last = write(&mut writer, |_, _| ());
    drop(writer);
    assert_whole(&pinned);
    assert_eq!(pinned.dump(), dump);
    assert_eq!(held.dump(), dump);
    assert_eq!(reader.snapshot().generation(), last);
}

#[test]
fn a_reader_on_another_thread_neither_blocks_the_writer_nor_keeps_later_versions() {
    let (mut writer, reader) = filled();
    let held = reader.snapshot();
    write(&mut writer, |writer, _| {
        let retired = writer.figures().retired;
        assert!(retired <= 8, "{retired} versions are retired, although only one is held");
    });
    assert_eq!(writer.figures().oldest_held, held.generation());
    drop((held, reader));
    writer.reclaim();
    assert_eq!(writer.figures().retired, 0);
}

#[test]
fn a_version_from_a_weak_handle_has_all_of_its_pods() {
    let (mut writer, reader) = filled();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2_usize {
            let reader = reader.clone();
            scope.spawn(move || {
                let _stop = Stop(stop);
                let mut i = seed;
                while !stop.load(Ordering::Relaxed) {
                    let weak = Arc::downgrade(&reader.snapshot());
                    // Continue until the writer frees the version.
                    while let Some(snapshot) = weak.upgrade() {
                        for _ in 0..8 {
                            i = (i + 7) % PODS;
                            let uid = &placed(i, 0).uid;
                            assert!(
                                snapshot.pod(uid).is_some(),
                                "{uid} is missing from its version"
                            );
                        }
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        let _stop = Stop(stop);
        write(&mut writer, |_, step| {
            if step % 16 == 0 {
                std::thread::yield_now();
            }
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(writer.cluster().audit(), vec![]);
}
