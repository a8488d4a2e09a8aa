//! Panics in plugins.
//!
//! A panic in a plugin must not affect other pods. The current pod fails as if the plugin had returned an error, and
//! everything else continues. Each call of a plugin, at every extension point, therefore goes through
//! [`Panics::guard`], or together with others through [`Panics::guard_all`]. The rule is the same at all points:
//!
//! - If the call returns a status, the panic becomes a status with [`Code::Error`](super::Code::Error) that names the
//!   plugin, the step and the panic's message.
//! - If the call returns no status, the runtime uses a default: pods compare equal (QueueSort), a hint is `Queue`, and
//!   Unreserve and PostBind continue with the next plugin.
//! - In both cases [`Handle::panics`](super::Handle::panics) counts the panic and holds it among the latest ones.
//!
//! Destructors of filters and scores are guarded as well. Destructors of plugins and of the data that they store in a
//! [`CycleState`](super::CycleState) are not, and must not panic.
//!
//! Catching a panic costs a few nanoseconds per call, since the compiler cannot inline through it. A cycle calls
//! plugins about sixty times, so these calls are guarded together. Catching requires a build that unwinds: with `panic
//! = "abort"`, a panic in a plugin aborts the process.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Status;
use crate::sync::panic_message;

/// The maximum number of panics that are held.
const MAX_LATEST: usize = 64;

/// A panic of a plugin, or of the [`Recorder`](super::Recorder).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plugin {plugin:?} panicked in {step}: {text}")]
pub struct Panicked {
    /// The name of the plugin, or `Recorder`.
    pub plugin: &'static str,
    /// The step in which it panicked.
    pub step: &'static str,
    /// The panic's message, or an empty string if its payload is not a string.
    pub text: String,
}

/// The panics of plugins. Shared between threads.
#[derive(Default)]
pub struct Panics(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    count: u64,
    latest: VecDeque<Panicked>,
}

impl Panics {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of panics caught so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.recorded().count
    }

    /// Returns the latest panics, at most 64, the oldest first.
    #[must_use]
    pub fn latest(&self) -> Vec<Panicked> {
        self.recorded().latest.iter().cloned().collect()
    }

    /// Calls a plugin. Records a panic and converts it to an error status.
    ///
    /// As after an error, the plugin's own state may be inconsistent after a panic. The runtime drops everything that
    /// the call was about to return.
    pub(super) fn guard<T>(
        &self,
        plugin: &'static str,
        step: &'static str,
        work: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        // Unwind safe: `work` changes only data of the plugin, or data that is dropped with the error.
        catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|panic| Err(self.record(plugin, step, panic)))
    }

    /// Calls several plugins. `work` stores each plugin's name in the cell before it calls the plugin. A panic ends the
    /// calls, is recorded, and becomes an error status of the plugin whose name was stored last.
    pub(super) fn guard_all<R>(
        &self,
        step: &'static str,
        work: impl FnOnce(&Cell<&'static str>) -> R,
    ) -> Result<R, Status> {
        let plugin = Cell::new("");
        // Unwind safe for the same reason.
        catch_unwind(AssertUnwindSafe(|| work(&plugin)))
            .map_err(|panic| self.record(plugin.get(), step, panic))
    }

    /// Calls a plugin that does not return a status. Records a panic and returns `default` instead.
    pub(super) fn guard_or<T>(
        &self,
        plugin: &'static str,
        step: &'static str,
        default: T,
        work: impl FnOnce() -> T,
    ) -> T {
        self.guard(plugin, step, || Ok(work())).unwrap_or(default)
    }

    #[cold]
    fn record(
        &self,
        plugin: &'static str,
        step: &'static str,
        panic: Box<dyn Any + Send>,
    ) -> Status {
        let text = panic_message(panic);
        let status = Status::error(plugin, format!("panicked in {step}: {text}"));
        let mut recorded = self.recorded();
        recorded.count += 1;
        if recorded.latest.len() == MAX_LATEST {
            recorded.latest.pop_front();
        }
        recorded.latest.push_back(Panicked { plugin, step, text });
        status
    }
}

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panics").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    #[test]
    fn panic_becomes_an_error_that_names_plugin_step_and_message() {
        let panics = Panics::default();
        let status = panics.guard::<()>("Mine", "Reserve", || panic!("{} left", 0)).unwrap_err();
        assert_eq!(status, Status::error("Mine", "panicked in Reserve: 0 left"));
        assert_eq!(panics.guard_or("Mine", "QueueSort", 7, || panic!("no order")), 7);
        let latest: Vec<String> = panics.latest().iter().map(ToString::to_string).collect();
        assert_eq!(
            latest,
            [
                "plugin \"Mine\" panicked in Reserve: 0 left",
                "plugin \"Mine\" panicked in QueueSort: no order"
            ]
        );
    }

    /// A payload whose destructor panics, and so does that of the next payload.
    struct Bomb(u8);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if let Some(left) = self.0.checked_sub(1) {
                panic_any(Bomb(left));
            }
        }
    }

    #[test]
    fn panic_of_dropping_the_payload_does_not_leave_the_guard() {
        let panics = Panics::default();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let one = panics.guard::<()>("Mine", "Reserve", || panic_any(Bomb(2)));
            (one, panics.guard_all("Filter", |_| panic_any(Bomb(2))))
        }));
        let caught: Result<(_, Result<(), _>), ()> = caught.map_err(std::mem::forget);
        let is_error = |(one, all): &(Result<(), _>, Result<(), _>)| one.is_err() && all.is_err();
        assert!(caught.is_ok_and(|both| is_error(&both)));
        assert_eq!(panics.count(), 2);
    }

    #[test]
    fn panic_among_several_plugins_names_the_right_one() {
        let panics = Panics::default();
        let mut called = Vec::new();
        let caught = panics.guard_all("Filter", |plugin| {
            for name in ["First", "Second", "Third"] {
                plugin.set(name);
                called.push(name);
                assert!(name != "Second", "no node");
            }
        });
        assert_eq!(caught, Err(Status::error("Second", "panicked in Filter: no node")));
        assert_eq!((called, panics.count()), (vec!["First", "Second"], 1));
        assert_eq!(panics.guard_all("Filter", |_| 7), Ok(7));
    }

    #[test]
    fn all_panics_are_counted_and_only_the_latest_are_kept() {
        let panics = Panics::default();
        for at in 0..MAX_LATEST + 3 {
            panics.guard_or("Mine", "Filter", (), || panic!("{at}"));
        }
        assert_eq!(panics.count(), MAX_LATEST as u64 + 3);
        assert_eq!((panics.latest().len(), panics.latest()[0].text.as_str()), (MAX_LATEST, "3"));
    }
}
