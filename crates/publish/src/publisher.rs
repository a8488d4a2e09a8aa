//! The writer's end of publication: replaces the current version, keeps the replaced ones until nobody uses them.
//!
//! There is one publisher and it is not `Clone`, so "one writer" is a matter of types and not of a lock.

use std::fmt;

use super::cell::Cell;
use super::cell::sealed::WriteEnd;
use super::replaced::Pins;
use super::retired::Retired;
use super::signal::Signal;
use super::{DefaultCell, NotNewer, Subscription, Versioned};
use crate::freeing::{Backlog, IN_PLACE};
use crate::sync::{self, mutated};

/// The writer's end; see the [module](super) for what it promises.
///
/// It can be sent to another thread, but there is never a second one:
///
/// ```
/// # use portolan_publish::{Publisher, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn send<T: Send>() {}
/// send::<Publisher<V>>();
/// ```
///
/// ```compile_fail,E0277
/// # use portolan_publish::{Publisher, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn clone<T: Clone>() {}
/// clone::<Publisher<V>>();
/// ```
pub struct Publisher<T: Versioned, C: Cell<T> = DefaultCell<T>> {
    cell: C::Writer,
    signal: sync::Arc<Signal>,
    retired: Retired<T>,
    /// Parts of versions that nobody holds.
    backlog: Backlog,
    /// [`Versioned::made`] of the current version.
    made: u64,
    /// What the last look at the pins found; kept for its memory.
    pins: Pins,
}

/// References that a publish drops beside those that its change replaces: tens of microseconds where each is the last
/// reference to something, and nothing where there is nothing to free.
const STEPS: u64 = 64;

/// What the writer's side still keeps of the versions it published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of the current version.
    pub published: u64,
    /// Versions replaced and not freed: somebody holds them, or no publish has looked at them since.
    pub retired: usize,
    /// Versions freed by the writer's side since the start.
    pub freed: u64,
    /// Parts of such versions that still take memory; a part may be large. The next publishes free them, and
    /// [`Publisher::reclaim_some`] does.
    pub backlog: usize,
    /// The number of the oldest version that is replaced and not freed.
    pub oldest_held: Option<u64>,
    /// The number of the oldest version that is replaced and that a reader's pin may reach, in use or kept for its next
    /// pin. What is retired beyond that is held by owned handles. `None` where pins are counted as handles.
    pub oldest_pinned: Option<u64>,
}

impl<T: Versioned, C: Cell<T>> Publisher<T, C> {
    /// Starts with `first` as the current version.
    pub fn new(first: std::sync::Arc<T>) -> Self {
        let signal = sync::Arc::new(Signal::new(first.version()));
        Self {
            made: first.made(),
            cell: C::start(first),
            signal,
            retired: Retired::new(),
            backlog: Backlog::default(),
            pins: Pins::default(),
        }
    }

    /// A reader of its own. May allocate, so not for a hot path; keep it, or clone it, once a thread.
    pub fn subscribe(&self) -> Subscription<T, C> {
        Subscription::new(self.cell.reader(), sync::Arc::clone(&self.signal))
    }

    /// Makes `next` the version that readers take from now on, wakes those who wait for it, and looks at a constant
    /// number of replaced versions to free them.
    ///
    /// What it frees of them follows the change, see [`Versioned::made`]; the rest waits for the next publishes.
    ///
    /// Never waits for a reader. Without waiters it costs one replacement of the cell, two fences and a load for each
    /// reader. A version that is not newer than the published one is given back and changes nothing.
    pub fn publish(&mut self, next: std::sync::Arc<T>) -> Result<(), NotNewer<T>> {
        let version = next.version();
        let published = self.published();
        if version <= published {
            return Err(NotNewer { version: next, published });
        }
        let made = next.made();
        // More than was allocated, so the backlog shrinks; see `freeing`.
        let mut steps = STEPS + made.saturating_sub(self.made);
        self.made = made;
        // The order matters: who finds the version in the cell must not think an older one current, and who is told
        // of the number must find its version in the cell.
        self.signal.expect(version);
        let replaced = self.cell.replace(next);
        self.signal.announce(version);
        self.retired.retire(replaced);
        self.cell.look(&mut self.pins);
        let backlog = &mut self.backlog;
        self.retired.collect_some(&self.pins, &mut |version| backlog.free(version, &mut steps));
        backlog.work_off(&mut steps);
        Ok(())
    }

    /// Frees every replaced version that nobody holds, and the backlog, and says how many versions there were.
    /// O(versions retired + what only they had), so not for a thread that may not be late.
    pub fn reclaim(&mut self) -> usize {
        self.cell.look(&mut self.pins);
        let backlog = &mut self.backlog;
        let mut steps = u64::MAX;
        let freed =
            self.retired.collect_all(&self.pins, &mut |version| backlog.free(version, &mut steps));
        backlog.work_off(&mut steps);
        freed
    }

    /// The same in bounded steps: examines at most `steps` replaced versions, and drops at most `steps` references.
    /// Returns whether to call it again: `false` once the backlog is empty, and all replaced versions were examined since
    /// the last publish or free and somebody held each of them. Then the next call starts another round.
    ///
    /// For an idle publisher. A step takes between 5 ns and some 500 ns.
    pub fn reclaim_some(&mut self, steps: usize) -> bool {
        self.cell.look(&mut self.pins);
        let backlog = &mut self.backlog;
        let mut left = steps as u64;
        let all_held = self
            .retired
            .collect_round(steps, &self.pins, &mut |version| backlog.free(version, &mut left));
        backlog.work_off(&mut left);
        !all_held || backlog.len() > 0
    }

    /// Runs a step of the writer. Forks and versions that it drops are freed here as far as it allocated as many tree
    /// nodes, and a constant more; the rest goes to the backlog. So the step takes no lock for them and starts no thread.
    pub fn defer_frees<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let mut steps = IN_PLACE;
        self.backlog.during(&mut steps, step)
    }

    /// The number of the current version.
    pub fn published(&self) -> u64 {
        self.signal.version()
    }

    /// The number of the oldest version that somebody may still look at: a retired one, or else the current one.
    ///
    /// What was given up before it may be used again: no version in which it had its old meaning exists any more.
    pub fn oldest_held(&self) -> u64 {
        let held = self.retired.oldest().filter(|_| !mutated!("horizon-forgets-held"));
        held.unwrap_or_else(|| self.published())
    }

    /// What is still kept. O(versions retired + readers), and allocates.
    pub fn figures(&self) -> Figures {
        let mut pins = Pins::default();
        self.cell.look(&mut pins);
        Figures {
            published: self.published(),
            retired: self.retired.len(),
            freed: self.retired.freed(),
            backlog: self.backlog.len(),
            oldest_held: self.retired.oldest(),
            oldest_pinned: self.retired.oldest_reached(&pins),
        }
    }
}

impl<T: Versioned, C: Cell<T>> Drop for Publisher<T, C> {
    /// Waiters get [`WaitError::Closed`](super::WaitError::Closed); the current version stays readable. What only
    /// others still hold, they free; what is pinned is freed with the last reader.
    fn drop(&mut self) {
        self.signal.close();
        self.cell.look(&mut self.pins);
        if mutated!("publisher-frees-pinned") {
            self.pins.clear();
        }
        self.cell.leave(self.retired.give_up(&self.pins));
    }
}

impl<T: Versioned, C: Cell<T>> fmt::Debug for Publisher<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
