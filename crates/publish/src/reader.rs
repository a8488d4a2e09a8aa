//! The reader's end of publication: pins, owned versions, a kept version, and waiting for a version.
//!
//! One subscription is for one thread at a time: what a cell may keep for a reader (the slot in which pins are
//! announced) is then written by one thread only, and a kept version needs no lock.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use super::cell::Cell;
use super::cell::sealed::ReadEnd;
use super::signal::Signal;
use super::{DefaultCell, Versioned, WaitError};
use crate::sync;

/// A registered reader; see the [module](super) for what it promises.
///
/// It may be sent to another thread, and cloned for one:
///
/// ```
/// # use portolan_publish::{Subscription, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn send<T: Send + Clone>() {}
/// send::<Subscription<V>>();
/// ```
///
/// but not shared between threads:
///
/// ```compile_fail,E0277
/// # use portolan_publish::{Subscription, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn sync<T: Sync>() {}
/// sync::<Subscription<V>>();
/// ```
pub struct Subscription<T: Versioned, C: Cell<T> = DefaultCell<T>> {
    cell: C::Reader,
    /// What `refresh` gave last, and its number. Nothing before the first time: a reader that only pins holds nothing.
    kept: Option<Arc<T>>,
    kept_version: u64,
    signal: sync::Arc<Signal>,
    _one_thread_at_a_time: PhantomData<std::cell::Cell<()>>,
}

/// What keeps a guard on its thread.
type NotSend<T> = (*const (), fn() -> T);

/// A version pinned for a short look. Dereferences to it; ends the pin when dropped.
///
/// It cannot go to another thread, since a pin is announced in the name of the thread that made it:
///
/// ```compile_fail,E0277
/// # use portolan_publish::{Pinned, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn send<T: Send>() {}
/// send::<Pinned<'static, V>>();
/// ```
///
/// An owned version can:
///
/// ```
/// # struct V(u64);
/// fn send<T: Send>() {}
/// send::<std::sync::Arc<V>>();
/// ```
pub struct Pinned<'a, T: Versioned, C: Cell<T> + 'a = DefaultCell<T>> {
    guard: <C::Reader as ReadEnd<T>>::Guard<'a>,
    _thread: PhantomData<NotSend<T>>,
}

impl<T: Versioned, C: Cell<T>> Deref for Pinned<'_, T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: Versioned + fmt::Debug, C: Cell<T>> fmt::Debug for Pinned<'_, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&**self).finish()
    }
}

impl<T: Versioned, C: Cell<T>> Subscription<T, C> {
    pub(super) fn new(cell: C::Reader, signal: sync::Arc<Signal>) -> Self {
        Self { cell, kept: None, kept_version: 0, signal, _one_thread_at_a_time: PhantomData }
    }

    /// The current version, for a short look: bounded steps, no lock, no allocation, no count that others write.
    ///
    /// Guards nest, and two of them may see two versions: take one a decision. A nanosecond or two for who pins the same
    /// version again and again; such a reader may keep that version until its next pin that finds a newer one, until
    /// [`release`](Self::release), or until it is dropped. One that pins now and then keeps nothing.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, T, C> {
        Pinned { guard: self.cell.pin(), _thread: PhantomData }
    }

    /// The current version, to be held as long as one likes: costs one shared count more than [`pin`](Self::pin).
    #[inline]
    pub fn snapshot(&self) -> Arc<T> {
        self.cell.load()
    }

    /// The version this reader keeps, replaced by the current one if there is a newer: one load and one compare if
    /// there is not.
    ///
    /// It is never older than what this reader has [pinned](Self::pin), taken or been told of before. The kept version
    /// stays in memory until the next call that finds a newer one, until [`release`](Self::release), or until this
    /// reader is dropped.
    #[inline]
    pub fn refresh(&mut self) -> &Arc<T> {
        if self.kept.is_none() || self.signal.may_be_newer_than(self.kept_version) {
            self.renew();
        }
        // There is one now; to say so by a panic would cost as much as this.
        self.kept.get_or_insert_with(
            #[cold]
            || self.cell.load(),
        )
    }

    #[cold]
    #[inline(never)]
    fn renew(&mut self) {
        // First, so that the old one can be freed before there is a new one.
        self.kept = None;
        let current = self.cell.load();
        // Its own number, not the one that is expected: the cell may not hold that yet.
        self.kept_version = current.version();
        self.kept = Some(current);
    }

    /// Gives up what [`refresh`](Self::refresh) or pins kept: for a reader that will be idle and should hold nothing.
    pub fn release(&mut self) {
        self.kept = None;
        self.cell.rest();
    }

    /// A version that is `version` or newer: waits for it until `deadline`, or for ever where there is none.
    ///
    /// This is how one reads one's own writes. When the publisher is gone and `version` was never published, the
    /// answer is `Closed`. The thread that publishes must not call this for a version it has not published yet.
    pub fn at_least(&self, version: u64, deadline: Option<Instant>) -> Result<Arc<T>, WaitError> {
        self.signal.wait(version, deadline)?;
        Ok(self.snapshot())
    }

    /// The number of the last version whose publishing is over, or nearly so: what is pinned next is that one or newer.
    ///
    /// A pin before it may have seen a version that is being published this moment and that is not counted yet.
    #[inline]
    pub fn published(&self) -> u64 {
        self.signal.version()
    }
}

impl<T: Versioned, C: Cell<T>> Clone for Subscription<T, C> {
    /// Registers another reader.
    fn clone(&self) -> Self {
        Self::new(self.cell.another(), sync::Arc::clone(&self.signal))
    }
}

impl<T: Versioned, C: Cell<T>> fmt::Debug for Subscription<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("published", &self.published())
            .field("kept", &self.kept.as_ref().map(|kept| kept.version()))
            .finish_non_exhaustive()
    }
}
