//! Taking a version neither allocates nor frees, whatever the writer does in the meantime.

use std::sync::Arc;

use portolan::cache::{Config, Engine};
use portolan::model::{node, pod};
use portolan_publish::{Publisher, Subscription, Versioned};
use portolan_testkit::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Returns the number of allocations and deallocations of `work`.
fn touched(work: impl FnOnce()) -> u64 {
    ALLOCATOR.take();
    work();
    let counts = ALLOCATOR.take();
    counts.allocations + counts.frees
}

struct Version(u64);

impl Versioned for Version {
    fn version(&self) -> u64 {
        self.0
    }
}

#[test]
fn the_allocator_counts() {
    assert_eq!(touched(|| drop(std::hint::black_box(Box::new(1)))), 2);
}

#[test]
fn taking_a_version_does_not_allocate() {
    let mut publisher: Publisher<Version> = Publisher::new(Arc::new(Version(0)));
    let mut reader: Subscription<Version> = publisher.subscribe();
    let mut sum = 0;
    let mut allocations = 0;
    for number in 1..=1_000 {
        allocations += touched(|| {
            // This includes the first version that a thread takes: nothing was pinned before the first round.
            (0..3).for_each(|_| sum += reader.pin().0);
            sum += reader.snapshot().0 + reader.refresh().0;
        });
        let outer = reader.pin();
        publisher.publish(Arc::new(Version(number))).map_err(drop).expect("newer");
        allocations += touched(|| {
            let inner = reader.pin();
            let innermost = reader.pin();
            sum += inner.0 + innermost.0 - outer.0;
            drop(outer);
            drop((inner, innermost));
        });
        if number % 3 == 0 {
            allocations += touched(|| reader.release());
        }
    }
    assert!(sum > 0);
    assert_eq!(allocations, 0);
}

#[test]
fn a_reader_of_the_engine_does_not_allocate() {
    let (mut writer, mut reader) = Engine::inline(Config::default());
    writer.add_node(node("n0").build()).expect("a node");
    writer.publish();
    let mut allocations = 0;
    for i in 0..200 {
        writer.add_pod(pod(format!("p{i}")).on("n0").build()).expect("a pod");
        writer.publish();
        allocations += touched(|| {
            (0..3).for_each(|_| assert_eq!(reader.pin().pod_count(), i + 1));
            assert_eq!(reader.snapshot().pod_count(), i + 1);
            assert_eq!(reader.refresh().pod_count(), i + 1);
        });
    }
    assert_eq!(allocations, 0);
}
