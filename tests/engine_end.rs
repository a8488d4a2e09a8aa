//! A dropped engine leaves no memory behind, whichever of its parts is dropped last.
//!
//! The allocator counts the live bytes of all threads, because a separate thread frees the remainder of large
//! structures. The file therefore has a single test.

mod own_pods;

use std::time::Instant;

use portolan_testkit::alloc::{Counting, OfProcess};

use own_pods::{engine, own};

#[global_allocator]
static ALLOCATOR: Counting<OfProcess> = Counting::of_process();

/// Creates an engine, its snapshots and its forks, and drops them in an order that depends on `round`.
fn live_and_end(round: usize) {
    let mut writer = engine();
    let reader = writer.reader();
    let mut kept = Vec::new();
    let mut forks = Vec::new();
    for i in 0..2_000 {
        writer.add_pod(own(i)).unwrap();
        writer.publish();
        if i % 50 == 0 {
            let mut fork = reader.snapshot().fork();
            fork.add_pod(&own(1_000_000 + i)).unwrap();
            fork.remove_pod(&own(i / 2).uid).unwrap();
            forks.push(fork.fork());
            kept.push(reader.snapshot());
        }
    }
    let weak = std::sync::Arc::downgrade(&kept[0]);
    match round % 3 {
        0 => drop((writer, reader, kept, forks)),
        1 => drop((forks, kept, writer, reader)),
        _ => drop((kept, writer, forks, reader)),
    }
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_dropped_engine_with_forks_and_snapshots_frees_everything() {
    // The reader state of a thread is allocated at its first use and stays with the thread, like all thread-local data.
    drop((engine().reader().snapshot(), engine()));
    live_and_end(0);
    let settled = |at_most: i64| {
        let start = Instant::now();
        let mut live = ALLOCATOR.live();
        while live > at_most && start.elapsed().as_secs() < 60 {
            std::thread::yield_now();
            live = ALLOCATOR.live();
        }
        live
    };
    // Wait until the freeing thread is idle.
    let before = settled(256 << 10);
    for round in 0..6 {
        live_and_end(round);
    }
    let grown = settled(before + (8 << 10)) - before;
    assert!(grown <= 8 << 10, "{grown} bytes left");
}
