//! The queue for threads: one takes pods, another tells it of events, and nobody waits
//! for anybody's work.
//!
//! Popping takes what is active now. Events wait in the follower's channel, and whoever
//! holds the queue acts on a few of them, in steps of so few pods that holding it takes
//! microseconds: [`QueueFront::pop`] before it pops, so that a thread that pops all day
//! keeps up with the log, and [`QueueFront::tend`] for a thread that does nothing else.
//!
//! # No wake-up is lost
//!
//! There is no parking protocol here: a thread that found nothing waits for either of two
//! channels to be ready, the follower's and a bell that has room for one ring. Being
//! ready is not receiving, so all that wait see it, and a ring or a note that comes
//! between letting the queue go and waiting is there when the wait begins. The one
//! danger is a ring that the first thread takes, and does not answer in full: whoever
//! leaves something behind (a pod, work on an event, a time that comes sooner than those
//! who sleep know), while others are asleep by their own count under the lock, rings
//! again. The time that they know is that of the last thread that fell asleep. When any
//! thread wakes, it is unknown: the thread may have been that one, and the others may
//! rely on it.

use std::fmt;
use std::time::{Duration, Instant};

use crate::engine::Reader;
use crate::framework::QueuedPod;
use crate::log::{Bell, Follower, NoNote};
use crate::model::{Pod, Timestamp};
use crate::snapshot::Snapshot;
use crate::sync::{Mutex, MutexGuard, lock, mutated};

use super::{Place, PodGroupStatus, Popped, QueueError, SchedulingQueue};

/// So many pods are asked about an event, or flushed, while the queue is held.
const STEP: usize = 32;

/// So many notes are taken in while the queue is held.
const NOTES: usize = 16;

/// A [`SchedulingQueue`] that threads share, fed by an engine's log.
///
/// ```
/// use portolan::framework::Framework;
/// use portolan::log::Event;
/// use portolan::model::{Timestamp, node, pod};
/// use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
/// use portolan::{Config, Engine};
///
/// let engine = Engine::shared(Config::default());
/// let queue = SchedulingQueue::new(Framework::default_profile(), QueueConfig::default());
/// let queue = QueueFront::new(queue, engine.follow()?, engine.reader()?);
///
/// engine.submit(Event::add_node(node("n1").cpu(4_000).build()))?;
/// engine.submit(Event::put_pending(pod("web-0").cpu(250).build()))?;
///
/// let popped = queue.pop(None, || Timestamp::from_secs(1))?;
/// let snapshot = engine.reader()?.snapshot();
/// assert!(snapshot.generation() >= popped.generation);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct QueueFront {
    shared: Mutex<Shared>,
    /// The follower's end, to wait on without the lock.
    notes: Follower,
    bell: Bell,
}

struct Shared {
    queue: SchedulingQueue,
    follower: Follower,
    reader: Reader,
    /// How many threads wait, or are about to.
    asleep: usize,
    /// When one of those that wait will wake by itself, if that is known.
    alarm: Option<Timestamp>,
    closed: bool,
    /// The engine is gone: its channel is always ready, and never has anything.
    unfed: bool,
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
    /// Does some of what is due, and says whether there is more.
    fn work(&mut self, now: Timestamp) -> bool {
        self.queue.tick(STEP, now);
        let Shared { queue, follower, reader, unfed, .. } = self;
        let mut left = NOTES;
        loop {
            // A note comes after its version: what is read from here on has it.
            let version: &Snapshot = reader.refresh();
            if queue.step(STEP, version, now) {
                return true;
            }
            if left == 0 {
                return !follower.is_empty();
            }
            left -= 1;
            match follower.try_next() {
                // A pod without uid is refused by the log already.
                Ok(note) => drop(queue.take(&note, reader.refresh(), now)),
                Err(NoNote::Empty) => return false,
                // One with a limit that lost notes feeds a queue no more than one whose engine is gone.
                Err(NoNote::Closed | NoNote::Overflowed) => {
                    *unfed = true;
                    return false;
                }
            }
        }
    }
}

impl QueueFront {
    /// Shares a queue, and feeds it from the log. The reader is to be one of the engine
    /// that is followed, and the follower one without a limit: a queue whose follower
    /// lost notes gives out what it has and then closes.
    #[must_use]
    pub fn new(queue: SchedulingQueue, follower: Follower, reader: Reader) -> QueueFront {
        let notes = follower.clone();
        let shared =
            Shared { queue, follower, reader, asleep: 0, alarm: None, closed: false, unfed: false };
        QueueFront { shared: Mutex::new(shared), notes, bell: Bell::new() }
    }

    /// The pod to be tried next, waiting for one until `deadline`. It is to be given
    /// back, see [`SchedulingQueue::pop`]. `clock` tells the time of the queue, and is
    /// taken to run as fast as that of the deadline.
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

    /// The same with the pods that are to be tried together with it, see
    /// [`SchedulingQueue::pop_together`].
    ///
    /// # Errors
    ///
    /// As of [`QueueFront::pop`].
    pub fn pop_together(
        &self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<Popped, PopError> {
        self.wait_for(deadline, clock, SchedulingQueue::pop_together)
    }

    fn wait_for<T>(
        &self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
        pop: fn(&mut SchedulingQueue, Timestamp) -> Option<T>,
    ) -> Result<T, PopError> {
        let mut shared = lock(&self.shared);
        loop {
            // The rings so far were for what is seen from here on.
            self.bell.silence();
            if shared.closed {
                self.pass_on(&shared);
                return Err(PopError::Closed);
            }
            let now = clock();
            let more = shared.work(now);
            if let Some(popped) = pop(&mut shared.queue, now) {
                self.pass_on(&shared);
                return Ok(popped);
            }
            if more {
                // Others may have a pod to give back.
                drop(shared);
                shared = lock(&self.shared);
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.pass_on(&shared);
                return Err(PopError::Timeout);
            }
            shared = self.sleep(shared, deadline, now);
        }
    }

    /// Lets the queue go, and waits until something happened or is due.
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
        let unfed = shared.unfed;
        if mutated!("front-counts-late") {
            drop(shared);
            shared = lock(&self.shared);
        }
        shared.asleep += 1;
        drop(shared);
        if mutated!("front-silence-unlocked") {
            self.bell.silence();
        }
        let notes = (!unfed).then(|| self.notes.notes());
        self.bell.wait(notes, [deadline, due].into_iter().flatten().min());
        let mut shared = lock(&self.shared);
        shared.asleep -= 1;
        // The alarm may have been this thread's, and the others may rely on it.
        shared.alarm = None;
        shared
    }

    /// Wakes the others for what this thread leaves behind.
    fn pass_on(&self, shared: &Shared) {
        let Shared { queue, alarm, asleep, closed, .. } = shared;
        let sooner = || match (queue.next_due(), alarm) {
            (Some(due), Some(alarm)) => due < *alarm,
            (due, None) => due.is_some(),
            (None, _) => false,
        };
        let is_left = || {
            !mutated!("front-leaves-behind")
                && (queue.is_ready()
                    || queue.is_stirred()
                    || queue.figures().backlog > 0
                    || sooner())
        };
        if *asleep > 0 && (*closed || is_left()) {
            self.ring();
        }
    }

    fn ring(&self) {
        self.bell.ring();
    }

    /// Does what is due: events that wait, backoff that is over, pods that waited for
    /// too long; letting go of the queue again and again. For a thread that does nothing
    /// else, where those that pop should not.
    pub fn tend(&self, clock: impl Fn() -> Timestamp) {
        loop {
            let mut shared = lock(&self.shared);
            let more = shared.work(clock());
            self.pass_on(&shared);
            if !more {
                return;
            }
        }
    }

    /// Does something with the queue: gives pods back, activates them, reads figures.
    /// It is given the version to judge events by. Keep it short: all others wait.
    pub fn with<R>(&self, work: impl FnOnce(&mut SchedulingQueue, &Snapshot) -> R) -> R {
        let mut shared = lock(&self.shared);
        let Shared { queue, reader, .. } = &mut *shared;
        let done = work(queue, reader.refresh());
        self.pass_on(&shared);
        done
    }

    /// How a pod group stands in the newest version. Events that wait for the queue are
    /// not taken in by this.
    #[must_use]
    pub fn group_status(&self, namespace: &str, name: &str, now: Timestamp) -> PodGroupStatus {
        self.with(|queue, version| queue.group_status(namespace, name, version, now))
    }

    /// Adds a pod past the log. What was submitted and published before is in every
    /// version that a reader takes from now on, so the published generation is that of
    /// the pod; what was submitted and not waited for may come after it. Where that
    /// matters, [`Event::put_pending`](crate::log::Event::put_pending) gives the pod a place
    /// in the log.
    ///
    /// # Errors
    ///
    /// As of [`SchedulingQueue::add`].
    pub fn add(&self, pod: Pod, now: Timestamp) -> Result<Place, QueueError> {
        self.with(|queue, version| queue.add(pod, version.generation(), version, now))
    }

    /// Pops nothing any more, and wakes who waits.
    pub fn close(&self) {
        lock(&self.shared).closed = true;
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
    use super::*;
    use crate::framework::{Framework, PluginSet};
    use crate::model::{Uid, pod};
    use crate::scheduler::queue::QueueConfig;
    use crate::{Config, Engine};

    /// A queue with a pod in backoff, and one thread asleep that knows of no time.
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
    fn a_thread_that_wakes_and_leaves_rings_for_the_time_that_it_had_slept_to() {
        let front = front();
        front.ring();
        let shared = front.sleep(lock(&front.shared), None, Timestamp::from_secs(1));
        front.bell.silence();
        front.pass_on(&shared);
        assert!(front.bell.is_rung());
    }

    #[test]
    fn a_thread_that_never_slept_leaves_those_asleep_to_their_alarm() {
        let front = front();
        let mut shared = lock(&front.shared);
        shared.alarm = shared.queue.next_due();
        front.bell.silence();
        front.pass_on(&shared);
        assert!(!front.bell.is_rung());
    }
}
