//! Back-pressure: scheduling threads pop no further pod while many placed pods wait for their bindings, or many
//! preemptors for their evictions.
//!
//! The scheduling queue orders pods by priority, and placed pods are bound in the order of their placement. Without a
//! limit, a backlog of placed pods would delay an urgent pod, and the end of the process; and a pod would be nominated
//! long before its victims are deleted. A list of such pods is full once it has as many pods as its limit, until half
//! of them are gone: otherwise each binding would wake a scheduling thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::lock::lock;

/// Counts the lists that are full. Clones share the count.
#[derive(Clone, Default)]
pub(super) struct Pressure(Arc<Shared>);

#[derive(Default)]
struct Shared {
    full: Mutex<usize>,
    /// Notified when no list is full any more.
    eased: Condvar,
}

/// The fill level of one list. Dropping it counts the list as empty.
pub(super) struct Level {
    pressure: Pressure,
    most: usize,
    is_full: bool,
}

impl Pressure {
    /// Adds an empty list that is full once it contains `most` pods.
    pub(super) fn level(&self, most: usize) -> Level {
        Level { pressure: self.clone(), most, is_full: false }
    }

    /// Waits until no list is full, or until the deadline. Returns whether no list is full.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let full = lock(&self.0.full);
        let waited = self.0.eased.wait_timeout_while(full, left, |full| *full > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Level {
    /// Sets the number of pods in the list. Never blocks for long.
    pub(super) fn set(&mut self, waiting: usize) {
        let is_full = match self.is_full {
            true => waiting > self.most / 2,
            false => waiting >= self.most,
        };
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        let mut full = lock(&self.pressure.0.full);
        if is_full {
            *full += 1;
            return;
        }
        *full -= 1;
        if *full == 0 {
            drop(full);
            self.pressure.0.eased.notify_all();
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        if self.is_full {
            self.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn is_eased(pressure: &Pressure) -> bool {
        pressure.wait(Instant::now())
    }

    #[test]
    fn a_full_list_remains_full_until_half_of_it_is_gone() {
        for (most, eased_at) in [(1, 0), (2, 1), (5, 2), (64, 32)] {
            let pressure = Pressure::default();
            let mut level = pressure.level(most);
            level.set(most - 1);
            assert!(is_eased(&pressure));
            for waiting in (eased_at + 1..=most).rev() {
                level.set(waiting);
                assert!(!is_eased(&pressure), "{waiting} of {most}");
            }
            level.set(eased_at);
            assert!(is_eased(&pressure), "{most}");
        }
    }

    #[test]
    fn a_thread_waits_for_all_lists() {
        let pressure = Pressure::default();
        let (mut one, mut two) = (pressure.level(4), pressure.level(4));
        one.set(4);
        two.set(4);
        one.set(0);
        assert!(!is_eased(&pressure));
        thread::scope(|scope| {
            let waits = scope.spawn(|| pressure.wait(Instant::now() + Duration::from_secs(3_600)));
            drop(two);
            assert!(waits.join().expect("no panic"));
        });
    }
}
