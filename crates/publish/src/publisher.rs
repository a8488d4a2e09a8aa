//! The writer's end of publication: replaces the current version, and keeps replaced versions until nobody uses them.
//!
//! There is one publisher and it is not `Clone`: types, not a lock, ensure that there is one writer.

use std::fmt;

use super::rcu::RcuWriter;
use super::replaced::Pins;
use super::retired::Retired;
use super::signal::Signal;
use super::{NotNewer, Subscription, Versioned};
use crate::freeing::{Backlog, IN_PLACE};
use crate::sync::{self, mutated};

/// The writer's end; see the [module](super) for its guarantees.
///
/// It can be sent to another thread, but it cannot be duplicated:
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
pub struct Publisher<T: Versioned> {
    cell: RcuWriter<T>,
    signal: sync::Arc<Signal>,
    retired: Retired<T>,
    /// Parts of versions that nobody holds.
    backlog: Backlog,
    /// [`Versioned::made`] of the current version.
    made: u64,
    /// The references that the next [`Publisher::free_replaced`] may drop.
    steps: u64,
    /// The pins found by the last scan. Kept to reuse its allocation.
    pins: Pins,
}

/// References that each publish drops in addition to those that its change replaces. Costs tens of microseconds if each
/// is the last reference to an object, and nothing if there is nothing to free.
const STEPS: u64 = 64;

/// Counts of the versions that the writer's side still keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of the current version.
    pub published: u64,
    /// Replaced versions that are not freed: they are held, or no publish has examined them since they were released.
    pub retired: usize,
    /// Versions freed by the writer's side so far.
    pub freed: u64,
    /// Parts of freed versions that still occupy memory; a part may be large. Later publishes and
    /// [`Publisher::reclaim_some`] free them.
    pub backlog: usize,
    /// The number of the oldest version that is replaced and not freed.
    pub oldest_held: Option<u64>,
    /// The number of the oldest replaced version that a reader's pin may reach, whether in use or kept for the next
    /// pin. Owned handles hold the other retired versions.
    pub oldest_pinned: Option<u64>,
}

impl<T: Versioned> Publisher<T> {
    /// Creates a publisher whose current version is `first`.
    pub fn new(first: std::sync::Arc<T>) -> Self {
        let signal = sync::Arc::new(Signal::new(first.version()));
        Self {
            made: first.made(),
            steps: 0,
            cell: RcuWriter::new(first),
            signal,
            retired: Retired::new(),
            backlog: Backlog::default(),
            pins: Pins::default(),
        }
    }

    /// Creates a reader. May allocate, so keep it off hot paths: create or clone one per thread, and keep it.
    pub fn subscribe(&self) -> Subscription<T> {
        Subscription::new(self.cell.reader(), sync::Arc::clone(&self.signal))
    }

    /// Makes `next` the current version and wakes the threads and tasks that wait for it. The wakers of tasks are
    /// called on this thread; see [`Subscription::reached`].
    ///
    /// Never waits for a reader. Without waiters the cost is one replacement of the cell, two fences, and a load for
    /// each reader. It also examines a constant number of replaced versions, and frees references in proportion to the
    /// change ([`Versioned::made`]); later publishes free the rest.
    ///
    /// # Errors
    ///
    /// Returns `next` and changes nothing if it is not newer than the current version.
    pub fn publish(&mut self, next: std::sync::Arc<T>) -> Result<(), NotNewer<T>> {
        self.replace(next)?;
        self.free_replaced();
        Ok(())
    }

    /// The part of [`publish`](Self::publish) that readers see. Call [`free_replaced`](Self::free_replaced) afterwards,
    /// for example once the threads that wait for the version are awake.
    ///
    /// # Errors
    ///
    /// See [`publish`](Self::publish).
    pub fn replace(&mut self, next: std::sync::Arc<T>) -> Result<(), NotNewer<T>> {
        let version = next.version();
        let published = self.published();
        if version <= published {
            return Err(NotNewer { version: next, published });
        }
        let made = next.made();
        // More than was allocated, so the backlog shrinks; see `freeing`.
        self.steps += STEPS + made.saturating_sub(self.made);
        self.made = made;
        // The order matters. A reader that finds the new version in the cell must not consider an older one current,
        // and a reader that sees the new number must find its version in the cell.
        self.signal.expect(version);
        let replaced = self.cell.replace(next);
        self.signal.announce(version);
        self.retired.retire(replaced);
        Ok(())
    }

    /// The part of [`publish`](Self::publish) that frees replaced versions. Returns `false`, and does nothing, if no
    /// version was replaced since the last call.
    pub fn free_replaced(&mut self) -> bool {
        let mut steps = std::mem::take(&mut self.steps);
        if steps == 0 {
            return false;
        }
        self.cell.scan(&mut self.pins);
        let backlog = &mut self.backlog;
        self.retired.collect_some(&self.pins, &mut |version| backlog.free(version, &mut steps));
        backlog.work_off(&mut steps);
        true
    }

    /// Frees every replaced version that nobody holds, and the backlog. Returns the number of versions freed.
    ///
    /// O(versions retired + nodes that only they had), so unsuitable for latency-sensitive threads.
    pub fn reclaim(&mut self) -> usize {
        self.cell.scan(&mut self.pins);
        let backlog = &mut self.backlog;
        let mut steps = u64::MAX;
        let freed =
            self.retired.collect_all(&self.pins, &mut |version| backlog.free(version, &mut steps));
        backlog.work_off(&mut steps);
        freed
    }

    /// Like [`reclaim`](Self::reclaim), in bounded steps. Meant for an idle publisher.
    ///
    /// Examines at most `steps` replaced versions and drops at most `steps` references. A step takes from 5 ns to about
    /// 500 ns.
    ///
    /// Returns whether to call it again. It returns `false` once the backlog is empty and every replaced version was
    /// examined, and found held, since the last publish or free. The next call then starts another round.
    pub fn reclaim_some(&mut self, steps: usize) -> bool {
        self.cell.scan(&mut self.pins);
        let backlog = &mut self.backlog;
        let mut left = steps as u64;
        let all_held = self
            .retired
            .collect_round(steps, &self.pins, &mut |version| backlog.free(version, &mut left));
        backlog.work_off(&mut left);
        !all_held || backlog.len() > 0
    }

    /// Runs a step of the writer, and frees what it drops in bounded steps.
    ///
    /// Of the forks and versions that `step` drops, this frees as many references as `step` allocated child slots, plus
    /// a constant. The backlog takes the rest. So freeing them takes no lock and starts no thread.
    pub fn defer_frees<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let mut steps = IN_PLACE;
        self.backlog.during(&mut steps, step)
    }

    /// The number of the current version.
    pub fn published(&self) -> u64 {
        self.signal.version()
    }

    /// The number of the oldest version that may still be in use: the oldest retired one, or else the current one.
    ///
    /// Anything given up before this version can be reused: no version in which it had its old meaning still exists.
    pub fn oldest_held(&self) -> u64 {
        let held = self.retired.oldest().filter(|_| !mutated!("horizon-forgets-held"));
        held.unwrap_or_else(|| self.published())
    }

    /// Returns the figures. O(versions retired + readers), and allocates.
    pub fn figures(&self) -> Figures {
        let mut pins = Pins::default();
        self.cell.scan(&mut pins);
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

impl<T: Versioned> Drop for Publisher<T> {
    /// Waiters get [`WaitError::Closed`](super::WaitError::Closed); the current version stays readable. Versions held
    /// by handles are freed by their last holders, and pinned versions with the last reader.
    fn drop(&mut self) {
        self.signal.close();
        self.cell.scan(&mut self.pins);
        if mutated!("publisher-frees-pinned") {
            self.pins.clear();
        }
        self.cell.leave(self.retired.give_up(&self.pins));
    }
}

impl<T: Versioned> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
