//! Tells background threads of a workload to end.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A flag that sleeping threads notice at once.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Sleeps until a time, or until the flag is set. Returns whether it is set.
    pub(super) fn sleep_until(&self, until: Instant) -> bool {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(stopped, left);
            stopped = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Calls `work` with 0, 1, 2 and so on, once per interval, until it returns false or the flag is set.
    pub(super) fn tick(&self, every: Duration, mut work: impl FnMut(usize) -> bool) {
        let start = Instant::now();
        let mut number = 0;
        while !self.sleep_until(start + every.saturating_mul(number + 1)) {
            if !work(number as usize) {
                return;
            }
            number += 1;
        }
    }
}
