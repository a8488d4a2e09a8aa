//! The threads of a scheduler, and the state that they share: whether they should stop, whether one of them has ended
//! unexpectedly, and whether too many placed pods wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use portolan::model::Timestamp;
use tokio::sync::watch;

use super::pressure::Pressure;
use crate::lock::lock;

/// Signals that the scheduler has failed, unless it is stopping, and that too many placed pods wait. Clones share their
/// state.
#[derive(Clone)]
pub(super) struct Alarm {
    /// Relaxed: the flag guards no data, and each thread reads it again after a short time at the latest.
    stops: Arc<AtomicBool>,
    has_failed: watch::Sender<bool>,
    pressure: Pressure,
}

impl Alarm {
    pub(super) fn new() -> Alarm {
        Alarm {
            stops: Arc::default(),
            has_failed: watch::Sender::new(false),
            pressure: Pressure::default(),
        }
    }

    /// The lists of placed pods that are full.
    pub(super) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Whether the scheduler is stopping.
    pub(super) fn stops(&self) -> &Arc<AtomicBool> {
        &self.stops
    }

    pub(super) fn is_stopping(&self) -> bool {
        // Pairs with nothing, see the field.
        self.stops.load(Ordering::Relaxed)
    }

    /// Tells the threads to end. Nothing that ends from now on is a failure.
    pub(super) fn stop(&self) {
        // Pairs with nothing, see the field.
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Reports a failure, unless the scheduler is stopping.
    pub(super) fn sound(&self) {
        if !self.is_stopping() {
            self.has_failed.send_replace(true);
        }
    }

    /// Waits for a failure.
    pub(super) async fn sounded(&self) {
        // The sender lives as long as `self`.
        let _ = self.has_failed.subscribe().wait_for(|has_failed| *has_failed).await;
    }
}

/// When a thread may end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// When the scheduler stops.
    AtStop,
    /// At any time.
    Freely,
}

/// The running threads. Clones share the list.
#[derive(Clone)]
pub(super) struct Threads {
    alarm: Alarm,
    handles: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Threads {
    pub(super) fn new(alarm: Alarm) -> Threads {
        Threads { alarm, handles: Arc::default() }
    }

    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Starts a thread. The alarm sounds if it panics, or if it ends although it must not.
    pub(super) fn spawn(
        &self,
        name: &str,
        ends: Ends,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let end = End { alarm: self.alarm.clone(), ends };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _end = end;
            work();
        })?;
        let mut handles = lock(&self.handles);
        handles.retain(|handle| !handle.is_finished());
        handles.push(thread);
        Ok(())
    }

    /// Waits until all threads have ended, including threads that are started meanwhile.
    pub(super) fn join(&self) {
        loop {
            let handles = std::mem::take(&mut *lock(&self.handles));
            if handles.is_empty() {
                return;
            }
            // A panic has been reported by the panic hook.
            handles.into_iter().for_each(|handle| drop(handle.join()));
        }
    }
}

/// The end of a thread.
struct End {
    alarm: Alarm,
    ends: Ends,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.ends == Ends::AtStop || thread::panicking() {
            self.alarm.sound();
        }
    }
}

/// The time of the scheduler's clock.
pub(super) fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn sounds(alarm: &Alarm) -> bool {
        *alarm.has_failed.borrow()
    }

    #[test]
    fn a_thread_that_ends_although_nothing_told_it_to_is_a_failure() {
        for (ends, panics, fails) in [
            (Ends::AtStop, false, true),
            (Ends::AtStop, true, true),
            (Ends::Freely, false, false),
            (Ends::Freely, true, true),
        ] {
            for stops in [false, true] {
                let threads = Threads::new(Alarm::new());
                if stops {
                    threads.alarm().stop();
                }
                let work = move || assert!(!panics, "expected by the test");
                threads.spawn("test", ends, work).expect("a thread");
                threads.join();
                assert_eq!(sounds(threads.alarm()), fails && !stops);
            }
        }
    }

    #[test]
    fn threads_that_are_started_while_others_are_joined_are_joined_too() {
        let threads = Threads::new(Alarm::new());
        let (sender, receiver) = mpsc::channel();
        let more = threads.clone();
        let first = move || {
            let last = move || sender.send(()).expect("received");
            more.spawn("last", Ends::Freely, last).expect("a thread");
        };
        threads.spawn("first", Ends::Freely, first).expect("a thread");
        threads.join();
        assert_eq!(receiver.try_recv(), Ok(()));
    }
}
