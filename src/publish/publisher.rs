//! The writer's end of publication: replaces the current version, keeps the replaced ones until nobody uses them.
//!
//! There is one publisher and it is not `Clone`, so "one writer" is a matter of types and not of a lock.

use std::fmt;

use super::cell::Cell;
use super::retired::Retired;
use super::signal::Signal;
use super::{DefaultCell, NotNewer, Subscription, Versioned};
use crate::sync;

/// What publisher and subscriptions share.
pub(super) struct Shared<C> {
    /// The current version. On a line of its own: it is all that a pin reads.
    pub(super) cell: crossbeam_utils::CachePadded<C>,
    pub(super) signal: Signal,
}

/// The writer's end; see the [module](super) for what it promises.
///
/// It can be sent to another thread, but there is never a second one:
///
/// ```
/// # use portolan::publish::{Publisher, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn send<T: Send>() {}
/// send::<Publisher<V>>();
/// ```
///
/// ```compile_fail,E0277
/// # use portolan::publish::{Publisher, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn clone<T: Clone>() {}
/// clone::<Publisher<V>>();
/// ```
pub struct Publisher<T: Versioned, C: Cell<T> = DefaultCell<T>> {
    shared: sync::Arc<Shared<C>>,
    retired: Retired<T>,
}

/// What the writer's side still keeps of the versions it published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The number of the current version.
    pub published: u64,
    /// Versions replaced and not freed: somebody holds them, or no publish has looked at them since.
    pub retired: usize,
    /// Versions freed by the writer's side since the start.
    pub freed: u64,
    /// The number of the oldest version that is replaced and not freed.
    pub oldest_held: Option<u64>,
}

impl<T: Versioned, C: Cell<T>> Publisher<T, C> {
    /// Starts with `first` as the current version.
    pub fn new(first: std::sync::Arc<T>) -> Self {
        let signal = Signal::new(first.version());
        let cell = crossbeam_utils::CachePadded::new(C::new(first));
        Self { shared: sync::Arc::new(Shared { cell, signal }), retired: Retired::new() }
    }

    /// A reader of its own. May take a lock, so not for a hot path; keep it, or clone it, once a thread.
    pub fn subscribe(&self) -> Subscription<T, C> {
        Subscription::new(sync::Arc::clone(&self.shared))
    }

    /// Makes `next` the version that readers take from now on, wakes those who wait for it, and looks at a constant
    /// number of replaced versions to free them.
    ///
    /// Never waits for a reader. Without waiters it costs one replacement of the cell, one fence and one load. A
    /// version that is not newer than the published one is given back and changes nothing.
    pub fn publish(&mut self, next: std::sync::Arc<T>) -> Result<(), NotNewer<T>> {
        let version = next.version();
        let published = self.published();
        if version <= published {
            return Err(NotNewer { version: next, published });
        }
        // The order matters: who finds the version in the cell must not think an older one current, and who is told
        // of the number must find its version in the cell.
        self.shared.signal.expect(version);
        let replaced = self.shared.cell.replace(next);
        self.shared.signal.announce(version);
        self.retired.retire(replaced);
        self.retired.collect_some(self.shared.cell.quiet());
        Ok(())
    }

    /// Frees every replaced version that nobody holds, and says how many there were. O(versions retired).
    pub fn reclaim(&mut self) -> usize {
        self.retired.collect_all(self.shared.cell.quiet())
    }

    /// The number of the current version.
    pub fn published(&self) -> u64 {
        self.shared.signal.version()
    }

    /// The number of the oldest version that somebody may still look at: a retired one, or else the current one.
    ///
    /// What was given up before it may be used again: no version in which it had its old meaning exists any more.
    pub fn oldest_held(&self) -> u64 {
        self.retired.oldest().unwrap_or_else(|| self.published())
    }

    /// What is still kept.
    pub fn figures(&self) -> Figures {
        Figures {
            published: self.published(),
            retired: self.retired.len(),
            freed: self.retired.freed(),
            oldest_held: self.retired.oldest(),
        }
    }
}

impl<T: Versioned, C: Cell<T>> Drop for Publisher<T, C> {
    /// Waiters get [`WaitError::Closed`](super::WaitError::Closed); the current version stays readable, and what
    /// only others still hold, they free.
    fn drop(&mut self) {
        self.shared.signal.close();
    }
}

impl<T: Versioned, C: Cell<T>> fmt::Debug for Publisher<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
