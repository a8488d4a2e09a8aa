//! The promises of publication.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use portolan_testkit::random::Random;

use super::*;

/// `count`, reduced under Miri.
const fn many(count: u64) -> u64 {
    if cfg!(miri) { count / 500 } else { count }
}

/// A version that knows whether it is whole, and reports when and on which thread it is freed.
struct Version {
    number: u64,
    /// Atomic, so that an access after the free fails an assertion instead of racing, if the memory still exists.
    check: AtomicU64,
    freed: Option<mpsc::Sender<(u64, thread::ThreadId)>>,
}

impl Version {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, check: AtomicU64::new(!number), freed: None })
    }

    fn watched(number: u64, freed: &mpsc::Sender<(u64, thread::ThreadId)>) -> Arc<Self> {
        Arc::new(Self { number, check: AtomicU64::new(!number), freed: Some(freed.clone()) })
    }
}

impl Versioned for Version {
    fn version(&self) -> u64 {
        assert_eq!(self.check.load(Ordering::Relaxed), !self.number, "a torn or freed version");
        self.number
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.check.store(self.number, Ordering::Relaxed);
        if let Some(freed) = &self.freed {
            let _ = freed.send((self.number, thread::current().id()));
        }
    }
}

fn publish(publisher: &mut Publisher<Version>, number: u64) {
    publisher.publish(Version::new(number)).expect("the number is newer");
}

#[test]
fn held_snapshot_survives_two_publishes() {
    let mut publisher = Publisher::new(Version::new(1));
    let reader = publisher.subscribe();
    let (held, pinned) = (reader.snapshot(), reader.pin());
    publish(&mut publisher, 2);
    publish(&mut publisher, 3);
    assert_eq!((held.version(), pinned.version(), reader.pin().version()), (1, 1, 3));
}

#[test]
fn reclaiming_some_ends_after_a_round_that_finds_nothing() {
    let mut publisher = Publisher::new(Version::new(0));
    let reader = publisher.subscribe();
    let mut held: Vec<_> = (1..=30)
        .map(|number| {
            let before = reader.snapshot();
            publish(&mut publisher, number);
            before
        })
        .collect();
    drop(reader);
    // The held versions come first, then those that nobody holds.
    for kept in [20, 10, 0] {
        held.truncate(kept);
        while publisher.reclaim_some(3) {}
        assert_eq!(publisher.figures().retired, kept);
        let freed = publisher.figures().freed;
        // Once more, from wherever the last round ended.
        while publisher.reclaim_some(1) {}
        assert_eq!(publisher.figures().freed, freed);
    }
}

#[test]
fn a_version_that_is_not_newer_is_returned() {
    let mut publisher = Publisher::new(Version::new(5));
    let error = publisher.publish(Version::new(5)).expect_err("not newer");
    assert_eq!((error.version.version(), error.published, publisher.published()), (5, 5, 5));
    assert_eq!(error.to_string(), "publish a version newer than 5, not 5");
}

#[test]
fn guards_nest_beyond_the_fast_slots() {
    let mut publisher = Publisher::new(Version::new(0));
    let reader = publisher.subscribe();
    let mut guards = Vec::new();
    for number in 1..=24 {
        guards.push(reader.pin());
        publish(&mut publisher, number);
    }
    assert!(guards.iter().enumerate().all(|(number, guard)| guard.version() == number as u64));
    drop(guards);
    assert_eq!(publisher.reclaim(), publisher.figures().freed as usize);
    assert_eq!(publisher.figures().retired, 0);
}

#[test]
fn a_reader_that_only_pins_holds_nothing() {
    let mut publisher = Publisher::new(Version::new(1));
    let reader = publisher.subscribe();
    assert_eq!(reader.pin().version(), 1);
    publish(&mut publisher, 2);
    assert_eq!(publisher.figures().retired, 0);
}

#[test]
fn refresh_keeps_one_version_until_there_is_a_newer_one() {
    let mut publisher = Publisher::new(Version::new(1));
    let mut reader = publisher.subscribe();
    let first = Arc::clone(reader.refresh());
    assert!(Arc::ptr_eq(&first, reader.refresh()));
    publish(&mut publisher, 2);
    assert_eq!(reader.refresh().version(), 2);
    drop(first);
    assert_eq!(publisher.reclaim(), 1);
}

#[test]
fn the_writer_frees_and_the_horizon_follows() {
    let (freed, seen) = mpsc::channel();
    let mut publisher = Publisher::new(Version::watched(0, &freed));
    let mut reader = publisher.subscribe();
    assert_eq!(reader.refresh().version(), 0);
    // The subscription keeps version 0 and the test keeps 2. So 1 and 3 are free, and 1 is in the middle.
    let mut held = None;
    for number in 1..=4 {
        publisher.publish(Version::watched(number, &freed)).expect("newer");
        if number == 2 {
            held = Some(reader.snapshot());
        }
    }
    publisher.reclaim();
    assert_eq!(seen.try_iter().map(|(number, _)| number).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(publisher.figures().oldest_held, Some(0));
    reader.release();
    publisher.reclaim();
    assert_eq!((publisher.oldest_held(), publisher.figures().retired), (2, 1));
    drop(held);
    publisher.reclaim();
    assert_eq!((publisher.oldest_held(), publisher.figures().oldest_held), (4, None));
    assert_eq!(publisher.figures().freed, 4);
}

#[test]
fn readers_never_free_while_the_publisher_lives() {
    let (freed, seen) = mpsc::channel();
    let mut publisher = Publisher::new(Version::watched(0, &freed));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = publisher.subscribe();
            let stop = &stop;
            scope.spawn(move || {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let pinned = reader.pin().version();
                    let owned = reader.snapshot().version();
                    for version in [pinned, owned, reader.refresh().version()] {
                        assert!(version >= last, "{version} after {last}");
                        last = version;
                    }
                }
            });
        }
        for number in 1..=many(20_000) {
            publisher.publish(Version::watched(number, &freed)).expect("newer");
        }
        stop.store(true, Ordering::Relaxed);
    });
    publisher.reclaim();
    assert_eq!(publisher.figures().retired, 0);
    let me = thread::current().id();
    let mut count = 0;
    for (_, freer) in seen.try_iter() {
        assert_eq!(freer, me);
        count += 1;
    }
    assert_eq!(count, many(20_000));
}

/// Readers downgrade and upgrade handles to versions that are being freed at the same time.
#[test]
fn weak_handles_never_make_a_reader_free() {
    let (freed, seen) = mpsc::channel();
    let mut publisher = Publisher::new(Version::watched(0, &freed));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let reader = publisher.subscribe();
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let weak = Arc::downgrade(&reader.snapshot());
                    while let Some(version) = weak.upgrade() {
                        look(&version);
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        let mut horizon = 0;
        for number in 1..=many(20_000) {
            publisher.publish(Version::watched(number, &freed)).expect("newer");
            assert!(publisher.oldest_held() >= horizon);
            horizon = publisher.oldest_held();
            if number % 64 == 0 {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    publisher.reclaim();
    assert_eq!(publisher.figures().retired, 0);
    let me = thread::current().id();
    let freers: Vec<_> = seen.try_iter().map(|(_, freer)| freer).collect();
    assert_eq!(freers.iter().filter(|freer| **freer != me).count(), 0, "freed by readers");
    assert_eq!(freers.len() as u64, many(20_000));
}

#[test]
fn at_least_reads_ones_own_writes() {
    let mut publisher = Publisher::new(Version::new(0));
    let (asked, asks) = mpsc::channel::<u64>();
    let reader = publisher.subscribe();
    let waiter = thread::spawn(move || {
        for number in 1..=many(2_000) {
            asked.send(number).expect("the writer lives");
            let got = reader.at_least(number, None).expect("it will be published");
            assert!(got.version() >= number);
        }
    });
    for number in asks {
        publish(&mut publisher, number);
    }
    waiter.join().expect("every wait ended");
}

#[test]
fn at_least_ends_by_the_deadline_or_with_the_publisher() {
    let publisher = Publisher::new(Version::new(3));
    let reader = publisher.subscribe();
    let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now);
    assert_eq!(reader.at_least(4, Some(past)).err(), Some(WaitError::Timeout));
    assert_eq!(reader.at_least(3, Some(past)).map(|version| version.version()), Ok(3));
    let waiting = reader.clone();
    let waiter = thread::spawn(move || waiting.at_least(4, None).map(|version| version.version()));
    drop(publisher);
    assert_eq!(waiter.join().expect("the waiter ends"), Err(WaitError::Closed));
    assert_eq!(reader.at_least(3, None).map(|version| version.version()), Ok(3));
    assert_eq!(reader.pin().version(), 3);
}

#[test]
fn the_last_holder_frees_when_the_publisher_is_gone() {
    let (freed, seen) = mpsc::channel();
    let mut publisher = Publisher::new(Version::watched(0, &freed));
    let reader = publisher.subscribe();
    let held = reader.snapshot();
    publisher.publish(Version::watched(1, &freed)).expect("newer");
    drop(publisher);
    drop(reader);
    assert_eq!(seen.try_iter().map(|(number, _)| number).collect::<Vec<_>>(), [1]);
    drop(held);
    assert_eq!(seen.try_iter().count(), 1);
}

#[test]
fn readers_may_be_created_and_dropped_during_publishes() {
    let mut publisher = Publisher::new(Version::new(0));
    let rounds = AtomicUsize::new(0);
    thread::scope(|scope| {
        let reader = publisher.subscribe();
        let rounds = &rounds;
        scope.spawn(move || {
            for _ in 0..many(10_000) / 20 {
                let another = reader.clone();
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    let _pinned = another.pin();
                    std::panic::panic_any(());
                }));
                assert!(panicked.is_err());
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut number = 0;
        while rounds.load(Ordering::Relaxed) < many(10_000) as usize / 20 {
            number += 1;
            publish(&mut publisher, number);
        }
    });
    publisher.reclaim();
    assert_eq!(publisher.figures().retired, 0);
}

#[test]
fn a_pin_outlives_the_publisher() {
    let (freed, seen) = mpsc::channel();
    let mut publisher = Publisher::new(Version::watched(0, &freed));
    let reader = publisher.subscribe();
    let (outer, other) = (reader.pin(), publisher.subscribe());
    publisher.publish(Version::watched(1, &freed)).expect("newer");
    let inner = reader.pin();
    drop(publisher);
    assert_eq!((outer.version(), inner.version(), other.pin().version()), (0, 1, 1));
    drop((outer, inner));
    drop(reader);
    drop(other);
    let mut freed: Vec<u64> = seen.try_iter().map(|(number, _)| number).collect();
    freed.sort_unstable();
    assert_eq!(freed, [0, 1]);
}

#[test]
fn readers_on_many_versions_each_hold_their_own() {
    let mut publisher = Publisher::new(Version::new(0));
    let readers: Vec<_> = (0..40).map(|_| publisher.subscribe()).collect();
    let mut guards = Vec::new();
    for (number, reader) in (1..).zip(&readers) {
        guards.push(Some(reader.pin()));
        publish(&mut publisher, number);
    }
    publisher.reclaim();
    assert_eq!(publisher.figures().retired, 40);
    for at in (0..40).step_by(2) {
        guards[at] = None;
    }
    publisher.reclaim();
    assert_eq!((publisher.figures().retired, publisher.oldest_held()), (20, 1));
    assert!((0..).zip(&guards).all(|(at, guard)| guard.as_ref().is_none_or(|g| g.version() == at)));
    drop(guards);
    drop(readers);
    publisher.reclaim();
    assert_eq!(publisher.figures().retired, 0);
}

/// Fails unless the version is whole.
fn look(version: &Version) {
    std::hint::black_box(version.version());
}

/// Does everything a reader can do, in an order determined by `seed`.
fn do_anything(mut reader: Subscription<Version>, seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut below = move |n: u64| random.below(n);
    let (mut last, mut held) = (0, Vec::<Arc<Version>>::new());
    let mut newer = |version: u64| {
        assert!(version >= last, "{version} after {last}");
        last = version;
    };
    while !stop.load(Ordering::Relaxed) {
        match below(8) {
            0..3 => (0..below(6)).for_each(|_| newer(reader.pin().version())),
            3 => {
                let mut guards: [_; 3] = std::array::from_fn(|_| None);
                for _ in 0..12 {
                    let at = below(3) as usize;
                    guards[at] = (below(4) > 0).then(|| reader.pin());
                    guards[at].iter().for_each(|guard| newer(guard.version()));
                    if below(8) == 0 {
                        newer(reader.snapshot().version());
                    }
                    guards.iter().flatten().for_each(|guard| look(guard));
                }
            }
            4 => {
                held.push(reader.snapshot());
                newer(held.last().map_or(0, |version| version.version()));
                if held.len() > 4 {
                    held.swap_remove(below(5) as usize);
                }
            }
            5 => newer(reader.refresh().version()),
            6 => reader.release(),
            _ => {
                let another = reader.clone();
                newer(another.pin().version());
                // Sometimes the clone is dropped, sometimes the original.
                if below(2) == 0 {
                    reader = another;
                }
            }
        }
        held.iter().for_each(|version| look(version));
    }
}

#[test]
fn stress() {
    const VERSIONS: u64 = many(30_000);
    let (freed, seen) = mpsc::channel();
    let mut publisher = Publisher::new(Version::watched(0, &freed));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        for seed in 1..=3 {
            let reader = publisher.subscribe();
            scope.spawn(move || do_anything(reader, seed, stop));
        }
        for number in 1..=VERSIONS {
            publisher.publish(Version::watched(number, &freed)).expect("newer");
            if number % 1_000 == 0 {
                publisher.reclaim();
            }
            if number % 64 == 0 {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    publisher.reclaim();
    assert_eq!(publisher.figures().retired, 0);
    drop(publisher);
    let mut freed: Vec<u64> = seen.try_iter().map(|(number, _)| number).collect();
    freed.sort_unstable();
    assert!(freed.into_iter().eq(0..=VERSIONS), "each is freed, once");
}

fn figures(publisher: &Publisher<Version>) -> (usize, Option<u64>) {
    let figures = publisher.figures();
    (figures.retired, figures.oldest_pinned)
}

#[test]
fn a_version_pinned_twice_is_kept_until_the_reader_is_released() {
    let mut publisher = Publisher::new(Version::new(0));
    let mut reader = publisher.subscribe();
    (0..2).for_each(|_| assert_eq!(reader.pin().version(), 0));
    (1..10).for_each(|number| publish(&mut publisher, number));
    assert_eq!(figures(&publisher), (1, Some(0)));
    reader.release();
    assert_eq!((publisher.reclaim(), figures(&publisher)), (1, (0, None)));
}

#[test]
fn the_next_pin_releases_a_kept_version() {
    let mut publisher = Publisher::new(Version::new(0));
    let reader = publisher.subscribe();
    (0..2).for_each(|_| assert_eq!(reader.pin().version(), 0));
    publish(&mut publisher, 1);
    assert_eq!(reader.pin().version(), 1);
    assert_eq!((publisher.reclaim(), figures(&publisher)), (1, (0, None)));
}

#[test]
fn the_next_snapshot_releases_a_kept_version() {
    let mut publisher = Publisher::new(Version::new(0));
    let reader = publisher.subscribe();
    (0..2).for_each(|_| assert_eq!(reader.pin().version(), 0));
    publish(&mut publisher, 1);
    assert_eq!(reader.snapshot().version(), 1);
    assert_eq!((publisher.reclaim(), figures(&publisher)), (1, (0, None)));
}

#[test]
fn a_guard_holds_one_version_and_two_guards_hold_all_versions_in_between() {
    let mut publisher = Publisher::new(Version::new(0));
    let reader = publisher.subscribe();
    let outer = reader.pin();
    (1..5).for_each(|number| publish(&mut publisher, number));
    publisher.reclaim();
    assert_eq!(figures(&publisher), (1, Some(0)));
    let inner = reader.pin();
    (5..10).for_each(|number| publish(&mut publisher, number));
    assert_eq!(figures(&publisher), (6, Some(0)));
    drop(inner);
    assert_eq!((publisher.reclaim(), figures(&publisher)), (5, (1, Some(0))));
    drop(outer);
    assert_eq!((publisher.reclaim(), figures(&publisher)), (1, (0, None)));
}

#[test]
fn a_forgotten_guard_holds_one_version_until_the_reader_is_released() {
    let mut publisher = Publisher::new(Version::new(0));
    let mut reader = publisher.subscribe();
    std::mem::forget(reader.pin());
    for number in 1..100 {
        publish(&mut publisher, number);
        assert_eq!(reader.pin().version(), number);
    }
    publisher.reclaim();
    assert_eq!(figures(&publisher), (1, Some(0)));
    reader.release();
    assert_eq!((publisher.reclaim(), figures(&publisher)), (1, (0, None)));
}

#[test]
fn a_forgotten_reader_costs_one_version_and_blocks_no_thread() {
    let mut publisher = Publisher::new(Version::new(0));
    let reader = publisher.subscribe();
    std::mem::forget(reader.pin());
    std::mem::forget(reader);
    (1..1_000).for_each(|number| publish(&mut publisher, number));
    publisher.reclaim();
    assert_eq!(figures(&publisher), (1, Some(0)));
    assert_eq!(publisher.subscribe().pin().version(), 999);
}

#[test]
fn a_version_held_by_a_handle_is_not_pinned() {
    let mut publisher = Publisher::new(Version::new(0));
    let held = publisher.subscribe().snapshot();
    publish(&mut publisher, 1);
    assert_eq!(figures(&publisher), (1, None));
    drop(held);
}
