//! Plugins that panic.
//!
//! A panic in a plugin must not cost other pods anything: the pod that was asked
//! about fails like one for which the plugin returned an error, and everything else
//! goes on. So each call of a plugin, at every extension point, is made through
//! [`Panics::guard`], or with others through [`Panics::guard_all`]. The rule is the same
//! at all points:
//!
//! - If the call returns a status, the panic becomes a status with
//!   [`Code::Error`](super::Code::Error) that names the plugin, the step and the
//!   panic's text.
//! - If it returns none, the plugin has no answer, and the runtime uses its default: pods
//!   compare equal (QueueSort), a hint is `Queue`, and Unreserve and PostBind go on
//!   with the next plugin.
//! - Either way the panic is kept in [`Handle::panics`](super::Handle::panics), which
//!   counts all panics and holds the latest ones.
//!
//! Catching costs a few nanoseconds, since the compiler cannot inline through it, and
//! a cycle asks plugins some sixty times: those calls are guarded together. It needs a
//! build that unwinds: with `panic = "abort"` the process ends as it does at any panic.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Status;

/// How many panics are kept.
const MOST: usize = 64;

/// A panic of a plugin, or of the [`Recorder`](super::Recorder).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plugin {plugin:?} panicked in {step}: {text}")]
pub struct Panicked {
    /// The plugin; `Recorder` for a recorder.
    pub plugin: &'static str,
    /// The step in which it panicked.
    pub step: &'static str,
    /// The panic's message; empty if its payload is not a string.
    pub text: String,
}

/// The panics of plugins. Shared by threads.
#[derive(Default)]
pub struct Panics(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    count: u64,
    latest: VecDeque<Panicked>,
}

impl Panics {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many panics were caught so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.noted().count
    }

    /// The latest panics, at most 64, the oldest first.
    #[must_use]
    pub fn latest(&self) -> Vec<Panicked> {
        self.noted().latest.iter().cloned().collect()
    }

    /// Calls a plugin. A panic is kept, and becomes an error status.
    ///
    /// The plugin's own state may be left half changed by it, as after an error. The
    /// runtime drops everything that the call was about to return.
    pub(super) fn guard<T>(
        &self,
        plugin: &'static str,
        step: &'static str,
        work: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        // Unwind safe: what `work` changes belongs to the plugin, or is dropped with the
        // error.
        catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|panic| Err(self.note(plugin, step, &*panic)))
    }

    /// Calls plugins one after another; `work` notes the name of each in the cell before
    /// it calls it. A panic ends the calls, is kept, and becomes an error status of the
    /// plugin that was noted last.
    pub(super) fn guard_all<R>(
        &self,
        step: &'static str,
        work: impl FnOnce(&Cell<&'static str>) -> R,
    ) -> Result<R, Status> {
        let plugin = Cell::new("");
        // Unwind safe: as above.
        catch_unwind(AssertUnwindSafe(|| work(&plugin)))
            .map_err(|panic| self.note(plugin.get(), step, &*panic))
    }

    /// Calls a plugin whose answer is not a status. After a panic, which is kept, the
    /// answer is `default`.
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
    fn note(&self, plugin: &'static str, step: &'static str, panic: &dyn Any) -> Status {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        let status = Status::error(plugin, format!("panicked in {step}: {text}"));
        let mut noted = self.noted();
        noted.count += 1;
        if noted.latest.len() == MOST {
            noted.latest.pop_front();
        }
        noted.latest.push_back(Panicked { plugin, step, text: text.to_owned() });
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
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_that_names_plugin_step_and_text() {
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

    #[test]
    fn of_several_the_one_that_panics_is_named() {
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
    fn only_the_latest_panics_are_kept_and_all_are_counted() {
        let panics = Panics::default();
        for at in 0..MOST + 3 {
            panics.guard_or("Mine", "Filter", (), || panic!("{at}"));
        }
        assert_eq!(panics.count(), MOST as u64 + 3);
        assert_eq!((panics.latest().len(), panics.latest()[0].text.as_str()), (MOST, "3"));
    }
}
