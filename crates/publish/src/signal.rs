//! The number of the published version, and waiting until it is reached.
//!
//! This is separate from the cell because most readers need only this. One word shows whether anything changed
//! (`refresh`), and a publish without waiters pays one fence and one load for the possibility of a waiter (`at_least`).
//! The number and the closed flag ("the publisher is gone") share a word, so no reader can see one without the other.

use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::WaitError;
use crate::sync::{
    AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fenced, lock, mutated, ordering, spin_until,
    wait,
};

/// The lowest bit of the word. Set permanently when the publisher is gone.
const CLOSED: u64 = 1;

/// The published number, the closed flag, and the waiters.
#[derive(Debug)]
pub(crate) struct Signal {
    published: CachePadded<Published>,
    /// The number of threads in the slow path of [`Signal::wait`]. On its own cache line, because waiters write it.
    waiting: CachePadded<AtomicUsize>,
    lock: Mutex<()>,
    changed: Condvar,
}

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
            lock: Mutex::new(()),
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
        // Pairs with the fence in `wait`. In the single total order of such fences, either
        // 1. this fence comes first: the waiter's check of the word, after its fence, sees our store; or
        // 2. the waiter's fence comes first: our check of `waiting`, below, sees its increment, and we take the lock.
        //    2a. The waiter holds the lock or has yet to take it. Our store happened before we wait for the lock, so
        //        either the waiter checks after our store, or it is asleep by the time we get the lock.
        //    2b. The waiter is asleep: `notify_all` wakes it.
        // So no waiter sleeps through a word that satisfies it.
        fenced!("signal-set-fence");
        // Relaxed: the fence above orders it.
        if self.waiting.load(Ordering::Relaxed) > 0 && !mutated!("signal-no-notify") {
            // Locked and unlocked before the call: a waiter that checked before our store is asleep now.
            drop(lock(&self.lock));
            self.changed.notify_all();
        }
    }

    /// Waits until `version` is published. `Closed` if it never will be, `Timeout` if the deadline passes first.
    pub(crate) fn wait(&self, version: u64, deadline: Option<Instant>) -> Result<(), WaitError> {
        let look = || {
            let word = self.word();
            match word >> 1 >= version {
                true => Some(Ok(())),
                false => (word & CLOSED != 0).then_some(Err(WaitError::Closed)),
            }
        };
        let mut answer = None;
        spin_until(|| {
            answer = look();
            answer.is_some()
        });
        if let Some(answer) = answer {
            return answer;
        }

        // Relaxed: the fence below orders it before our checks of the word.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `set`; the cases are argued there.
        fenced!("signal-wait-fence");
        // The lock guards no data, so a panic cannot have left it inconsistent.
        let mut guard = lock(&self.lock);
        let answer = loop {
            if let Some(answer) = look() {
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
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

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
