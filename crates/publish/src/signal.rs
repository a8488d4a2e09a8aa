//! The number of the published version, and waiting until it is reached.
//!
//! This is separate from the cell because most readers need only this. One word shows whether anything changed
//! (`refresh`), and a publish without waiters pays one fence and one load for the possibility of a waiter (`at_least`).
//! The number and the closed flag ("the publisher is gone") share a word, so no reader can see one without the other.
//!
//! Threads wait on a condition variable and tasks leave a waker ([`Reached`]); both are counted in one word, so the
//! publisher looks for both at once. The wakers are sorted by version: a publish takes the lock once per task that it
//! wakes and once more, and does not touch tasks that wait for later versions.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::WaitError;
use crate::sync::{
    Arc, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fenced, lock, mutated, ordering,
    spin_until, wait, wake,
};

/// The lowest bit of the word. Set permanently when the publisher is gone.
const CLOSED: u64 = 1;

/// The published number, the closed flag, and the waiters.
#[derive(Debug)]
pub(crate) struct Signal {
    published: CachePadded<Published>,
    /// The number of threads in the slow path of [`Signal::wait`] and of tasks in `tasks`. On its own cache line,
    /// because waiters write it.
    waiting: CachePadded<AtomicUsize>,
    tasks: Mutex<Tasks>,
    changed: Condvar,
}

/// The tasks that wait.
#[derive(Debug, Default)]
struct Tasks {
    /// Their wakers, by the version that each waits for and its number. Each entry is counted in `Signal::waiting`.
    wakers: BTreeMap<Place, Waker>,
    /// The number of the next task.
    next: u64,
}

/// A task's place among those that wait: the version that it waits for, and the task's number.
type Place = (u64, u64);

/// Two words on one cache line. Only the publisher writes them, so it needs no read-modify-writes.
#[derive(Debug)]
struct Published {
    /// The number that the cell already holds or will hold next. Never behind the cell.
    coming: AtomicU64,
    /// `version << 1 | closed`, where the cell holds `version`. Never ahead of the cell.
    word: AtomicU64,
}

impl Signal {
    pub(crate) fn new(version: u64) -> Self {
        Self {
            published: CachePadded::new(Published {
                coming: AtomicU64::new(version),
                word: AtomicU64::new(version << 1),
            }),
            waiting: CachePadded::new(AtomicUsize::new(0)),
            tasks: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The published number. A reader that sees it and then takes the current version gets that version or a later one.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.word() >> 1
    }

    #[inline]
    fn word(&self) -> u64 {
        // Pairs with the store in `set`: the cell was replaced before the number was stored.
        self.published.word.load(ordering!("signal-load", Acquire => Relaxed))
    }

    /// Whether the cell may hold a version newer than `version`.
    ///
    /// Never wrongly `false`: a reader that has taken a version from the cell, or has seen its number, learns here that
    /// older versions are old. So a reader that mixes kept and freshly taken versions never goes back. `true` may be
    /// early by the duration of a publish.
    #[inline]
    pub(crate) fn may_be_newer_than(&self, version: u64) -> bool {
        // Relaxed: `expect` stored it before the cell was replaced with release and before the number was announced
        // with release, so a thread that acquired either sees it.
        self.published.coming.load(Ordering::Relaxed) > version
    }

    /// Records that the cell is about to hold `version`. Only the publisher calls this.
    pub(crate) fn expect(&self, version: u64) {
        if !mutated!("signal-expect-nothing") {
            self.published.coming.store(version, Ordering::Relaxed);
        }
    }

    /// Announces `version`, which the cell already holds. Only the publisher calls this.
    pub(crate) fn announce(&self, version: u64) {
        self.set(version << 1);
    }

    /// Announces that no more versions follow. Only the publisher calls this.
    pub(crate) fn close(&self) {
        // Relaxed: only this thread writes the word, so it reads its own last store.
        self.set(self.published.word.load(Ordering::Relaxed) | CLOSED);
    }

    fn set(&self, word: u64) {
        // Pairs with the load in `word`.
        self.published.word.store(word, ordering!("signal-store", Release => Relaxed));
        // Pairs with the fences in `wait` and `poll`. In the single total order of such fences, either
        // 1. this fence comes first: the waiter's check of the word, after its fence, sees our store; or
        // 2. the waiter's fence comes first: our check of `waiting`, below, sees its increment, and we take the lock.
        //    2a. The waiter holds the lock or has yet to take it. Our store happened before we wait for the lock, so
        //        either the waiter checks after our store, or it is asleep by the time we get the lock.
        //    2b. The waiter is asleep: `notify_all` wakes it.
        // So no waiter sleeps through a word that satisfies it. A task is asleep when its waker is entered, and it is
        // counted until the waker is removed; its fence is in `poll`.
        fenced!("signal-set-fence");
        // Relaxed: the fence above orders it.
        if self.waiting.load(Ordering::Relaxed) > 0 && !mutated!("signal-no-notify") {
            self.wake(word);
        }
    }

    #[cold]
    fn wake(&self, word: u64) {
        // The loop ends: a task that registers now finds the word under the lock, so it does not enter its waker.
        while let Some(waker) = self.take_reached(word) {
            // Outside the lock: a waker may poll.
            if !mutated!("signal-no-wake") {
                wake(waker);
            }
        }
        // The lock was taken and released before the call: a thread that checked before our store is asleep now.
        self.changed.notify_all();
    }

    /// Removes a task whose wait ends with `word`, and returns its waker.
    fn take_reached(&self, word: u64) -> Option<Waker> {
        let mut tasks = lock(&self.tasks);
        let first = tasks.wakers.first_entry()?;
        if first.key().0 > word >> 1 && word & CLOSED == 0 {
            return None;
        }
        let waker = first.remove();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(waker)
    }

    /// Returns the answer to a wait for `version`, if it is known.
    fn look(&self, version: u64) -> Option<Result<(), WaitError>> {
        let word = self.word();
        match word >> 1 >= version {
            true => Some(Ok(())),
            false => (word & CLOSED != 0).then_some(Err(WaitError::Closed)),
        }
    }

    /// Waits until `version` is published. `Closed` if it never will be, `Timeout` if the deadline passes first.
    pub(crate) fn wait(&self, version: u64, deadline: Option<Instant>) -> Result<(), WaitError> {
        let mut answer = None;
        spin_until(|| {
            answer = self.look(version);
            answer.is_some()
        });
        if let Some(answer) = answer {
            return answer;
        }

        // Relaxed: the fence below orders it before our checks of the word.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `set`; the cases are argued there.
        fenced!("signal-wait-fence");
        // No code that may panic runs under the lock, so its data is consistent.
        let mut guard = lock(&self.tasks);
        let answer = loop {
            if let Some(answer) = self.look(version) {
                break answer;
            }
            let limit =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    Some(left) if left.is_zero() => break Err(WaitError::Timeout),
                    limit => limit,
                };
            guard = wait(&self.changed, guard, limit);
        };
        drop(guard);
        // Relaxed: a publisher that still counts us takes the lock once more than needed.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Returns the answer to a wait for `version` if it is known, and enters `waker` otherwise. `place` is the task's
    /// place, once it has one.
    fn poll(
        &self,
        version: u64,
        place: &mut Option<Place>,
        waker: &Waker,
    ) -> Poll<Result<(), WaitError>> {
        if let Some(answer) = self.look(version) {
            self.withdraw(place);
            return Poll::Ready(answer);
        }
        // A waker's clone and drop are the executor's code, so they run outside the lock.
        let waker = waker.clone();
        // Counted before the check under the lock, as a thread is; see `wait`.
        if place.is_none() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        // Pairs with the fence in `set`; the cases are argued there.
        fenced!("signal-poll-fence");
        let mut tasks = lock(&self.tasks);
        if let Some(answer) = self.look(version) {
            drop(tasks);
            match place {
                None => drop(self.waiting.fetch_sub(1, Ordering::Relaxed)),
                Some(_) => self.withdraw(place),
            }
            return Poll::Ready(answer);
        }
        let next = &mut tasks.next;
        let place = *place.get_or_insert_with(|| {
            *next += 1;
            (version, *next)
        });
        // An entry is removed only when the wait ends or by `withdraw`, so one that was made is still there.
        let replaced =
            match mutated!("signal-keeps-first-waker") && tasks.wakers.contains_key(&place) {
                true => Some(waker),
                false => tasks.wakers.insert(place, waker),
            };
        drop(tasks);
        drop(replaced);
        Poll::Pending
    }

    /// Removes a task that no longer waits, unless the publisher has already removed it.
    fn withdraw(&self, place: &mut Option<Place>) {
        let Some(place) = place.take() else { return };
        let removed = lock(&self.tasks).wakers.remove(&place);
        if removed.is_some() {
            // Relaxed: as in `wait`.
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A [`Future`] that is ready when a version or a newer one is current: see
/// [`Subscription::reached`](crate::Subscription::reached).
///
/// It holds no version and borrows nothing, so it can be sent to another thread. Dropping it ends the wait. If it is
/// leaked instead, its waker is kept until the version is published.
#[must_use = "a future does nothing unless it is polled"]
pub struct Reached {
    signal: Arc<Signal>,
    version: u64,
    /// Its place among the tasks that wait, from the first poll that was not ready.
    place: Option<Place>,
}

impl Reached {
    pub(crate) fn new(signal: Arc<Signal>, version: u64) -> Self {
        Self { signal, version, place: None }
    }
}

impl Future for Reached {
    type Output = Result<(), WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { signal, version, place } = self.get_mut();
        signal.poll(*version, place, context.waker())
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        self.signal.withdraw(&mut self.place);
    }
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reached")
            .field("version", &self.version)
            .field("published", &self.signal.version())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sync::wakers::{Panics, Woken};

    #[test]
    fn waiting_for_a_published_version_returns_at_once() {
        let signal = Signal::new(7);
        assert_eq!(signal.wait(7, None), Ok(()));
        assert_eq!(signal.version(), 7);
    }

    #[test]
    fn a_deadline_in_the_past_is_a_timeout_at_once() {
        let signal = Signal::new(7);
        let past = Instant::now() - Duration::from_secs(1);
        assert_eq!(signal.wait(8, Some(past)), Err(WaitError::Timeout));
        assert_eq!(signal.waiting.load(Ordering::Relaxed), 0);
    }

    fn poll(reached: &mut Reached, woken: &std::sync::Arc<Woken>) -> Poll<Result<(), WaitError>> {
        let waker = Waker::from(std::sync::Arc::clone(woken));
        Pin::new(reached).poll(&mut Context::from_waker(&waker))
    }

    fn waiting(signal: &Signal) -> usize {
        let waiting = signal.waiting.load(Ordering::Relaxed);
        assert_eq!(lock(&signal.tasks).wakers.len(), waiting);
        waiting
    }

    #[test]
    fn a_publish_wakes_only_the_tasks_that_it_satisfies() {
        let signal = Arc::new(Signal::new(7));
        let woken = [(); 4].map(|()| std::sync::Arc::new(Woken::default()));
        let mut tasks = [9, 8, 10, 7].map(|version| Reached::new(Arc::clone(&signal), version));
        let ready = std::array::from_fn(|n| poll(&mut tasks[n], &woken[n]).is_ready());
        assert_eq!(ready, [false, false, false, true]);
        assert_eq!(waiting(&signal), 3);
        signal.announce(9);
        assert_eq!(woken.each_ref().map(|woken| woken.count()), [1, 1, 0, 0]);
        assert_eq!(waiting(&signal), 1);
        signal.close();
        assert_eq!(woken.each_ref().map(|woken| woken.count()), [1, 1, 1, 0]);
        assert_eq!(waiting(&signal), 0);
        assert_eq!(poll(&mut tasks[0], &woken[0]), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut tasks[2], &woken[2]), Poll::Ready(Err(WaitError::Closed)));
    }

    #[test]
    fn a_task_is_woken_by_its_latest_waker() {
        let signal = Arc::new(Signal::new(7));
        let mut reached = Reached::new(Arc::clone(&signal), 8);
        let woken = [(); 2].map(|()| std::sync::Arc::new(Woken::default()));
        assert!(poll(&mut reached, &woken[0]).is_pending());
        assert!(poll(&mut reached, &woken[1]).is_pending());
        assert_eq!(waiting(&signal), 1);
        signal.announce(8);
        assert_eq!(woken.each_ref().map(|woken| woken.count()), [0, 1]);
    }

    #[test]
    fn a_dropped_task_is_not_counted() {
        let signal = Arc::new(Signal::new(7));
        let mut reached = Reached::new(Arc::clone(&signal), 8);
        let woken = std::sync::Arc::new(Woken::default());
        assert!(poll(&mut reached, &woken).is_pending());
        drop(reached);
        assert_eq!(waiting(&signal), 0);
        signal.announce(8);
        assert_eq!((woken.count(), std::sync::Arc::strong_count(&woken)), (0, 1));
    }

    #[test]
    fn a_panicking_waker_does_not_keep_other_tasks_asleep() {
        let signal = Arc::new(Signal::new(7));
        let mut first = Reached::new(Arc::clone(&signal), 8);
        let waker = Waker::from(std::sync::Arc::new(Panics));
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        let mut second = Reached::new(Arc::clone(&signal), 8);
        let woken = std::sync::Arc::new(Woken::default());
        assert!(poll(&mut second, &woken).is_pending());
        signal.announce(8);
        assert_eq!((woken.count(), waiting(&signal)), (1, 0));
        assert_eq!(poll(&mut first, &woken), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_published_version_outlives_the_end() {
        let signal = Signal::new(7);
        signal.announce(9);
        signal.close();
        assert_eq!(signal.version(), 9);
        assert_eq!(signal.wait(9, None), Ok(()));
        assert_eq!(signal.wait(10, None), Err(WaitError::Closed));
    }
}
