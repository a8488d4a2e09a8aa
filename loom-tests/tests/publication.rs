//! Models of publication: what readers see while a publisher keeps publishing.
#![cfg(loom)]

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use loom::thread;
use loom_tests::{Bound, Watched, block_on, explore};
use portolan_publish::__model::{release, upgrade};
use portolan_publish::{Publisher, Versioned, WaitError};

#[test]
fn held_snapshot_survives_two_publishes() {
    explore("held_snapshot_survives_two_publishes", Bound::ExhaustiveAtNight(3), || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let holder = thread::spawn(move || {
            let held = reader.snapshot();
            let first = held.check();
            let second = reader.pin().check();
            assert!(second >= first);
            assert_eq!(held.check(), first);
        });
        publisher.publish(Watched::new(2)).unwrap();
        publisher.publish(Watched::new(3)).unwrap();
        holder.join().unwrap();
    });
}

/// A version that must be freed by the thread that created it.
struct FreedAtHome {
    version: Arc<Watched>,
    home: thread::ThreadId,
}

impl FreedAtHome {
    fn new(version: u64) -> Arc<Self> {
        Arc::new(Self { version: Watched::new(version), home: thread::current().id() })
    }
}

impl Versioned for FreedAtHome {
    fn version(&self) -> u64 {
        self.version.version()
    }
}

impl Drop for FreedAtHome {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(thread::current().id(), self.home, "freed by a reader");
        }
    }
}

#[test]
fn a_weak_handle_never_makes_a_reader_free_a_version() {
    explore("a_weak_handle_never_makes_a_reader_free_a_version", Bound::Exhaustive, || {
        let mut publisher: Publisher<FreedAtHome> = Publisher::new(FreedAtHome::new(1));
        let weak = Arc::downgrade(&publisher.subscribe().snapshot());
        let holder = thread::spawn(move || {
            if let Some(revived) = upgrade(&weak) {
                assert_eq!(revived.version.check(), 1);
                release(revived);
            }
        });
        publisher.publish(FreedAtHome::new(2)).unwrap();
        publisher.publish(FreedAtHome::new(3)).unwrap();
        // Nobody ever holds the second version. The first stays on the list as long as somebody holds it.
        let figures = publisher.figures();
        let left = (figures.freed, figures.retired, figures.oldest_held);
        assert!(matches!(left, (2, 0, None) | (1, 1, Some(1))), "{figures:?}");
        holder.join().unwrap();
        publisher.reclaim();
        assert_eq!(publisher.figures().freed, 2);
    });
}

#[test]
fn versions_of_one_reader_are_monotone() {
    explore("versions_of_one_reader_are_monotone", Bound::Exhaustive, || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let mut reader = publisher.subscribe();
        let holder = thread::spawn(move || {
            let kept = reader.refresh().check();
            let pinned = reader.pin().check();
            let refreshed = reader.refresh().check();
            assert!(kept <= pinned && pinned <= refreshed, "{kept}, {pinned}, {refreshed}");
        });
        publisher.publish(Watched::new(2)).unwrap();
        holder.join().unwrap();
    });
}

#[test]
fn an_announced_number_is_in_the_cell() {
    explore("an_announced_number_is_in_the_cell", Bound::Exhaustive, || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let mut reader = publisher.subscribe();
        reader.refresh();
        let holder = thread::spawn(move || {
            let announced = reader.published();
            assert!(reader.refresh().check() >= announced);
            assert!(reader.pin().check() >= announced);
        });
        publisher.publish(Watched::new(2)).unwrap();
        holder.join().unwrap();
    });
}

#[test]
fn at_least_has_no_lost_wake_up() {
    // A lost wake-up is a deadlock, which loom reports.
    explore("at_least_has_no_lost_wake_up", Bound::Exhaustive, || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let waiter = thread::spawn(move || assert!(reader.at_least(2, None).unwrap().check() >= 2));
        publisher.publish(Watched::new(2)).unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn reached_has_no_lost_wake_up() {
    explore("reached_has_no_lost_wake_up", Bound::Exhaustive, || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let task = thread::spawn(move || {
            block_on(reader.reached(2)).unwrap();
            assert!(reader.snapshot().check() >= 2);
        });
        publisher.publish(Watched::new(2)).unwrap();
        task.join().unwrap();
    });
}

#[test]
fn a_task_waits_with_its_latest_waker() {
    explore("a_task_waits_with_its_latest_waker", Bound::Exhaustive, || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let task = thread::spawn(move || {
            let mut reached = reader.reached(2);
            // This waker belongs to an executor that has passed the task on.
            let _ = Pin::new(&mut reached).poll(&mut Context::from_waker(Waker::noop()));
            block_on(reached).unwrap();
        });
        publisher.publish(Watched::new(2)).unwrap();
        task.join().unwrap();
    });
}

#[test]
fn a_task_and_a_thread_are_both_woken() {
    explore("a_task_and_a_thread_are_both_woken", Bound::Preemptions(2), || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let (reader, other) = (publisher.subscribe(), publisher.subscribe());
        let task = thread::spawn(move || block_on(reader.reached(2)).unwrap());
        let waiter = thread::spawn(move || assert!(other.at_least(2, None).is_ok()));
        publisher.publish(Watched::new(2)).unwrap();
        task.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn dropping_the_publisher_ends_a_task() {
    explore("dropping_the_publisher_ends_a_task", Bound::Exhaustive, || {
        let publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let task = thread::spawn(move || {
            assert_eq!(block_on(reader.reached(2)), Err(WaitError::Closed));
        });
        drop(publisher);
        task.join().unwrap();
    });
}

#[test]
fn two_waiters_are_both_woken() {
    explore("two_waiters_are_both_woken", Bound::Preemptions(2), || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let waiters = [2, 3].map(|version| {
            let reader = publisher.subscribe();
            thread::spawn(move || {
                assert!(reader.at_least(version, None).unwrap().check() >= version)
            })
        });
        publisher.publish(Watched::new(2)).unwrap();
        publisher.publish(Watched::new(3)).unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn dropping_the_publisher_ends_every_wait() {
    explore("dropping_the_publisher_ends_every_wait", Bound::Preemptions(3), || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let waiter = thread::spawn(move || {
            // Published before the end, so the end must not hide it.
            assert_eq!(reader.at_least(2, None).map(|version| version.check()), Ok(2));
            assert_eq!(
                reader.at_least(3, None).map(|version| version.check()),
                Err(WaitError::Closed)
            );
        });
        publisher.publish(Watched::new(2)).unwrap();
        drop(publisher);
        waiter.join().unwrap();
    });
}

#[test]
fn reclaiming_never_frees_a_version_that_a_reader_takes() {
    // Here std frees the versions. The model shows that no interleaving breaks the list of retired versions.
    explore("reclaiming_never_frees_a_version_that_a_reader_takes", Bound::Exhaustive, || {
        let mut publisher: Publisher<Watched> = Publisher::new(Watched::new(1));
        let reader = publisher.subscribe();
        let holder = thread::spawn(move || {
            let held: Arc<Watched> = reader.snapshot();
            held.check()
        });
        publisher.publish(Watched::new(2)).unwrap();
        publisher.reclaim();
        let held = holder.join().unwrap();
        assert!((1..=2).contains(&held));
        assert!(publisher.oldest_held() <= 2);
    });
}
