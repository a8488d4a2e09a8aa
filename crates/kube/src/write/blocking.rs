//! Waits for futures on threads that are not the runtime's, even if the runtime ends meanwhile.
//!
//! Timers and sockets of a runtime that has ended panic when they are used. A task that lives as long as the runtime
//! therefore holds one end of a channel: the runtime drops its tasks before it ends its timers.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::runtime::Handle;
use tokio::sync::watch;

/// The tokio runtime that sends requests has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tokio runtime of the API server's client has ended: keep it until the scheduler has stopped"
)]
pub(crate) struct RuntimeEnded;

/// Runs futures of a runtime on threads that may block.
#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    runtime: Handle,
    ended: watch::Receiver<()>,
}

impl Blocking {
    pub(crate) fn new(runtime: &Handle) -> Blocking {
        let (alive, ended) = watch::channel(());
        runtime.spawn(async move {
            tokio::select! {
                // All users are gone.
                () = alive.closed() => {}
                () = pending() => {}
            }
        });
        Blocking { runtime: runtime.clone(), ended }
    }

    /// Returns an error if the runtime has ended.
    pub(crate) fn check(&self) -> Result<(), RuntimeEnded> {
        self.ended.has_changed().map(drop).map_err(|_| RuntimeEnded)
    }

    /// Waits for a future.
    ///
    /// # Errors
    ///
    /// The runtime has ended, before the future was first polled or after. The future is dropped.
    pub(crate) fn run<F: Future>(&self, work: F) -> Result<F::Output, RuntimeEnded> {
        let mut ended = self.ended.clone();
        let guarded = async {
            tokio::select! {
                biased;
                // Nothing is ever sent, so this is the end of the channel.
                _ = ended.changed() => Err(RuntimeEnded),
                output = work => Ok(output),
            }
        };
        let run = AssertUnwindSafe(|| self.runtime.block_on(guarded));
        match catch_unwind(run) {
            Ok(output) => output,
            // The runtime ended between the check of the channel and the use of a timer.
            Err(_) if self.check().is_err() => Err(RuntimeEnded),
            Err(panic) => resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::time::sleep;

    #[test]
    fn a_runtime_that_ends_is_an_error_and_not_a_panic() {
        for threads in [1, 2] {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(threads).enable_all().build().expect("a runtime");
            let blocking = Blocking::new(runtime.handle());
            assert_eq!(blocking.run(async { 7 }), Ok(7));
            let (started, has_started) = std::sync::mpsc::channel();
            let waiting = blocking.clone();
            let waiter = std::thread::spawn(move || {
                waiting.run(async move {
                    started.send(()).expect("received");
                    sleep(Duration::from_secs(3_600)).await;
                })
            });
            has_started.recv().expect("started");
            drop(runtime);
            assert_eq!(waiter.join().expect("no panic"), Err(RuntimeEnded));
            assert_eq!(blocking.check(), Err(RuntimeEnded));
            assert_eq!(blocking.run(async { sleep(Duration::ZERO).await }), Err(RuntimeEnded));
            let late = Blocking::new(&blocking.runtime);
            assert_eq!(late.run(async { sleep(Duration::ZERO).await }), Err(RuntimeEnded));
        }
    }

    #[test]
    fn other_panics_are_not_hidden() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let blocking = Blocking::new(runtime.handle());
        let run = || blocking.run(async { panic!("of the work") });
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }
}
