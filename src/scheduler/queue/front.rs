//! Shares the queue between threads: some pop pods, others feed it events, and no thread waits for another thread's
//! work.
//!
//! A pop takes a pod that is active now. Events wait in the follower's channel, and the thread that holds the queue
//! processes a few of them in steps small enough to hold the queue only for microseconds. [`QueueFront::pop`] does so
//! before it pops, and a batch before it takes further pods, so that threads that only pop keep up with the log.
//! [`QueueFront::tend`] is for a thread that does nothing else, and [`QueueFront::catch_up`] for one that must not act
//! before the queue has processed all events so far.
//!
//! # No wake-up is lost
//!
//! There is no parking protocol. A thread that found no pod waits until either of two channels is ready: the follower's
//! channel, or a bell, which is a channel with a capacity of one ring. Waiting for readiness does not receive, so all
//! waiting threads see it, and a ring or a note that arrives between releasing the queue and waiting is still there
//! when the wait begins. The only danger is a ring that one thread consumes without doing all the work that the ring
//! announced. A thread therefore rings again when it leaves work behind (a pod, an unprocessed event, or a due time
//! earlier than the sleeping threads know) while other threads are asleep, by a count kept under the lock. The due time
//! that sleeping threads know is the one that the last thread to fall asleep computed. When any thread wakes, that time
//! becomes unknown, because the thread may be the one that would have woken at that time and on which the others rely.

use std::fmt;
use std::time::{Duration, Instant};

use crate::engine::Reader;
use crate::framework::QueuedPod;
use crate::log::{Bell, Follower};
use crate::model::{NoNote, Pod, Timestamp};
use crate::snapshot::Snapshot;
use crate::sync::{Mutex, MutexGuard, lock, mutated};

use super::{Place, PodGroupStatus, Popped, QueueError, SchedulingQueue};

/// The largest number of pods checked against an event, or flushed, while the queue is held.
const STEP: usize = 32;

/// The largest number of notes taken in while the queue is held.
const NOTES: usize = 16;

/// A [`SchedulingQueue`] that threads share, fed by an engine's log.
///
/// Methods call their clocks and closures while they hold the queue's lock, so a monotonic clock stays monotonic for
/// the queue. A closure that calls the same `QueueFront` deadlocks, and one that blocks delays all threads.
///
/// ```
/// use portolan::cache::{Config, Engine, Event};
/// use portolan::model::{Timestamp, node, pod};
/// use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
/// use portolan::Framework;
///
/// let engine = Engine::shared(Config::default());
/// let queue = SchedulingQueue::new(Framework::default_profile(), QueueConfig::default());
/// let queue = QueueFront::new(queue, engine.follow()?, engine.reader()?);
///
/// engine.submit(Event::add_node(node("n1").cpu(4_000).build()))?.wait()??;
/// engine.submit(Event::put_pending(pod("web-0").cpu(250).build()))?.wait()??;
///
/// let popped = queue.pop(None, || Timestamp::from_secs(1))?;
/// let snapshot = engine.reader()?.snapshot();
/// assert!(snapshot.generation() >= popped.generation);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct QueueFront {
    shared: Mutex<Shared>,
    /// A clone of the follower, to wait on without the lock.
    notes: Follower,
    bell: Bell,
}

struct Shared {
    queue: SchedulingQueue,
    follower: Follower,
    reader: Reader,
    /// The number of threads that wait or are about to wait.
    asleep: usize,
    /// When a waiting thread will wake by itself, if that is known.
    alarm: Option<Timestamp>,
    closed: bool,
    /// The engine is gone: its channel is always ready and always empty.
    disconnected: bool,
}

/// Why no pod was popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PopError {
    /// None was ready before the deadline.
    #[error("no pod was ready before the deadline")]
    Timeout,
    /// The queue is closed.
    #[error("scheduling queue is closed")]
    Closed,
}

impl Shared {
    /// Processes a limited amount of due work, and returns whether more is left.
    fn work(&mut self, now: Timestamp) -> bool {
        self.queue.tick(STEP, now);
        let Shared { queue, follower, reader, disconnected, .. } = self;
        let mut left = NOTES;
        loop {
            // A note is sent after its version is published, so a version loaded from here on contains the note's
            // event.
            let version: &Snapshot = reader.refresh();
            if queue.step(STEP, version, now) {
                return true;
            }
            if left == 0 {
                return !follower.is_empty();
            }
            left -= 1;
            match follower.try_next() {
                // Errors can be dropped: the log has refused pods without a uid already.
                Ok(note) => drop(queue.take(&note, reader.refresh(), now)),
                Err(NoNote::Empty) => return false,
                // A limited follower that lost notes cannot feed the queue any more than one whose engine is gone.
                Err(NoNote::Closed | NoNote::Overflowed) => {
                    *disconnected = true;
                    return false;
                }
            }
        }
    }
}

impl QueueFront {
    /// Shares a queue and feeds it from the log. The reader must belong to the engine that the follower follows, and
    /// the follower must be unlimited: if it loses notes, the queue returns the pods that it has and then closes.
    #[must_use]
    pub fn new(queue: SchedulingQueue, follower: Follower, reader: Reader) -> QueueFront {
        let notes = follower.clone();
        let shared = Shared {
            queue,
            follower,
            reader,
            asleep: 0,
            alarm: None,
            closed: false,
            disconnected: false,
        };
        QueueFront { shared: Mutex::new(shared), notes, bell: Bell::new() }
    }

    /// Pops the pod to be tried next, waiting for one until `deadline`. The caller must return the pod as described at
    /// [`SchedulingQueue::pop`]. `clock` is the queue's clock, and must run at the same rate as the deadline's.
    ///
    /// # Errors
    ///
    /// The deadline passed, or the queue was closed.
    pub fn pop(
        &self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<QueuedPod, PopError> {
        self.wait_for(deadline, clock, SchedulingQueue::pop)
    }

    /// Pops a pod together with the siblings that must be tried with it: see `SchedulingQueue::pop_together`.
    ///
    /// # Errors
    ///
    /// Those of [`QueueFront::pop`].
    #[doc(hidden)]
    pub fn pop_together(
        &self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<Popped, PopError> {
        self.wait_for(deadline, clock, SchedulingQueue::pop_together)
    }

    /// Pops up to `most` more pods that are ready, each with its siblings, and appends them to `popped`. First takes in
    /// about as many waiting events, which may add pods. Does not wait, and pops nothing if the queue is closed.
    pub(crate) fn pop_ready(
        &self,
        most: usize,
        clock: impl Fn() -> Timestamp,
        popped: &mut Vec<Popped>,
    ) {
        if most == 0 {
            return;
        }
        let mut shared = lock(&self.shared);
        for _ in 0..most.div_ceil(NOTES) {
            if !shared.work(clock()) {
                break;
            }
            // Releases the lock so that other threads can return pods.
            drop(shared);
            shared = lock(&self.shared);
        }
        let end = popped.len().saturating_add(most);
        while popped.len() < end && !shared.closed {
            let (now, start) = (clock(), popped.len());
            let step = NOTES.min(end - start);
            popped.extend(std::iter::from_fn(|| shared.queue.pop_together(now)).take(step));
            if popped.len() - start < step {
                break;
            }
            drop(shared);
            shared = lock(&self.shared);
        }
        self.wake_others(&shared);
    }

    fn wait_for<T>(
        &self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
        pop: fn(&mut SchedulingQueue, Timestamp) -> Option<T>,
    ) -> Result<T, PopError> {
        let mut shared = lock(&self.shared);
        loop {
            // Earlier rings announced work that this iteration sees.
            self.bell.silence();
            if shared.closed {
                self.wake_others(&shared);
                return Err(PopError::Closed);
            }
            let now = clock();
            let more = shared.work(now);
            if let Some(popped) = pop(&mut shared.queue, now) {
                self.wake_others(&shared);
                return Ok(popped);
            }
            if more {
                // Releases the lock so that other threads can return pods.
                drop(shared);
                shared = lock(&self.shared);
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.wake_others(&shared);
                return Err(PopError::Timeout);
            }
            shared = self.sleep(shared, deadline, now);
        }
    }

    /// Releases the queue, and waits until work arrives or becomes due.
    fn sleep<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        deadline: Option<Instant>,
        now: Timestamp,
    ) -> MutexGuard<'a, Shared> {
        shared.alarm = shared.queue.next_due();
        let due = shared.alarm.map(|due| {
            let nanoseconds = due.0.saturating_sub(now.0).max(0);
            Instant::now() + Duration::from_nanos(nanoseconds.unsigned_abs())
        });
        let disconnected = shared.disconnected;
        if mutated!("front-counts-late") {
            drop(shared);
            shared = lock(&self.shared);
        }
        shared.asleep += 1;
        drop(shared);
        if mutated!("front-silence-unlocked") {
            self.bell.silence();
        }
        let notes = (!disconnected).then(|| self.notes.notes());
        self.bell.wait(notes, [deadline, due].into_iter().flatten().min());
        let mut shared = lock(&self.shared);
        shared.asleep -= 1;
        // The alarm may have been this thread's, and other threads may rely on it.
        shared.alarm = None;
        shared
    }

    /// Wakes other threads if this thread leaves work behind.
    fn wake_others(&self, shared: &Shared) {
        let Shared { queue, alarm, asleep, closed, .. } = shared;
        let sooner = || match (queue.next_due(), alarm) {
            (Some(due), Some(alarm)) => due < *alarm,
            (due, None) => due.is_some(),
            (None, _) => false,
        };
        let is_work_left = || {
            !mutated!("front-leaves-behind")
                && (queue.is_ready()
                    || queue.has_dirty_groups()
                    || queue.figures().backlog > 0
                    || sooner())
        };
        if *asleep > 0 && (*closed || is_work_left()) {
            self.ring();
        }
    }

    fn ring(&self) {
        self.bell.ring();
    }

    /// Does all due work: processes waiting events, and moves pods whose backoff is over or that waited for too long.
    /// Releases the queue between steps. Meant for a dedicated thread, so that popping threads have less to do.
    pub fn tend(&self, clock: impl Fn() -> Timestamp) {
        loop {
            let mut shared = lock(&self.shared);
            let more = shared.work(clock());
            self.wake_others(&shared);
            if !more {
                return;
            }
        }
    }

    /// Processes the events of the newest published version, and moves pods that are due, as [`QueueFront::tend`] does.
    /// Unlike that method, it ends even if new events arrive without pause. Blocks for as long as the waiting events
    /// take.
    pub fn catch_up(&self, clock: impl Fn() -> Timestamp) {
        let target = lock(&self.shared).reader.refresh().generation();
        loop {
            let mut shared = lock(&self.shared);
            let more = shared.work(clock());
            self.wake_others(&shared);
            // The moves of an event end before the next note is taken in.
            if !more || shared.queue.generation > target {
                return;
            }
        }
    }

    /// Runs `work` on the queue, for example to return pods, activate them or read figures. `work` also receives the
    /// version that events are judged against. It should be short, because all other threads wait for it.
    pub fn with<R>(&self, work: impl FnOnce(&mut SchedulingQueue, &Snapshot) -> R) -> R {
        let mut shared = lock(&self.shared);
        let Shared { queue, reader, .. } = &mut *shared;
        let done = work(queue, reader.refresh());
        self.wake_others(&shared);
        done
    }

    /// Returns the status of a pod group in the newest version. Does not process waiting events first.
    #[doc(hidden)]
    #[must_use]
    pub fn group_status(&self, namespace: &str, name: &str, now: Timestamp) -> PodGroupStatus {
        self.with(|queue, version| queue.group_status(namespace, name, version, now))
    }

    /// Adds a pod without going through the log. The pod gets the generation of the published version, which contains
    /// all events that were published before the call; an event that was submitted but not waited for may be ordered
    /// after the pod. If the order matters, use [`Event::put_pending`](crate::cache::Event::put_pending), which orders
    /// the pod within the log.
    ///
    /// # Errors
    ///
    /// Those of [`SchedulingQueue::add`].
    #[doc(hidden)]
    pub fn add(&self, pod: Pod, now: Timestamp) -> Result<Place, QueueError> {
        self.with(|queue, version| queue.add(pod, version.generation(), version, now))
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.shared).closed
    }

    /// Closes the queue: later pops fail, and the threads that wait for a pod or for the permit of a placed pod wake
    /// up. Without its permit a pod is not bound, and it returns to the queue.
    pub fn close(&self) {
        let mut shared = lock(&self.shared);
        shared.closed = true;
        shared.queue.waiting_pods().close_all();
        drop(shared);
        if !mutated!("front-closes-unheard") {
            self.ring();
        }
    }
}

impl fmt::Debug for QueueFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueFront").field("notes", &self.notes.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cache::{Config, Engine};
    use crate::framework::{Framework, PluginSet};
    use crate::log::Event;
    use crate::model::{Uid, pod};
    use crate::scheduler::queue::QueueConfig;

    /// Returns a queue with a pod in backoff, and one sleeping thread that knows no due time.
    fn front() -> QueueFront {
        let (mut writer, reader) = Engine::inline(Config::default());
        let config = QueueConfig { pop_from_backoff: false, ..QueueConfig::default() };
        let queue = SchedulingQueue::new(Framework::default_profile(), config);
        let front = QueueFront::new(queue, writer.follow(), reader);
        let now = Timestamp::from_secs(1);
        front.add(pod("p").build(), now).unwrap();
        front.with(|queue, version| {
            queue.pop(now).unwrap();
            let none = PluginSet::EMPTY;
            let uid = Uid::new("default/p");
            queue.add_unschedulable_if_not_present(&uid, none, none, version, now).unwrap();
        });
        lock(&front.shared).asleep = 1;
        front
    }

    #[test]
    fn a_waking_thread_that_returns_rings_for_its_own_due_time() {
        let front = front();
        front.ring();
        let shared = front.sleep(lock(&front.shared), None, Timestamp::from_secs(1));
        front.bell.silence();
        front.wake_others(&shared);
        assert!(front.bell.is_rung());
    }

    #[test]
    fn catching_up_ends_beside_events_without_pause() {
        let engine = Engine::shared(Config::default());
        let queue = SchedulingQueue::new(Framework::default_profile(), QueueConfig::default());
        let front = QueueFront::new(queue, engine.follow().unwrap(), engine.reader().unwrap());
        let add =
            |name: String| drop(engine.submit(Event::put_pending(pod(name).build())).unwrap());
        (0..100).for_each(|n| add(format!("before-{n}")));
        let rounds = Cell::new(0);
        front.catch_up(|| {
            rounds.set(rounds.get() + 1);
            assert!(rounds.get() < 100, "it does not end");
            // More than the queue takes in until the clock is read again.
            (0..2 * NOTES).for_each(|n| add(format!("meanwhile-{}-{n}", rounds.get())));
            Timestamp::from_secs(1)
        });
        let is_known = |n| {
            front.with(|queue, _| queue.get(&Uid::new(&format!("default/before-{n}"))).is_some())
        };
        assert!((0..100).all(is_known));
    }

    #[test]
    fn a_thread_that_never_slept_does_not_ring_before_the_alarm() {
        let front = front();
        let mut shared = lock(&front.shared);
        shared.alarm = shared.queue.next_due();
        front.bell.silence();
        front.wake_others(&shared);
        assert!(!front.bell.is_rung());
    }

    #[test]
    fn a_thread_that_takes_a_batch_rings_for_the_pods_that_it_leaves() {
        let front = front();
        let now = Timestamp::from_secs(1);
        for name in ["q", "r"] {
            front.add(pod(name).build(), now).unwrap();
        }
        for is_left in [true, false] {
            lock(&front.shared).alarm = Some(now);
            front.bell.silence();
            let mut popped = Vec::new();
            front.pop_ready(1, || now, &mut popped);
            assert_eq!((popped.len(), front.bell.is_rung()), (1, is_left));
        }
    }
}
