//! The reader's end of publication: pins, owned versions, a kept version, and waiting for a version.
//!
//! One thread uses a subscription at a time. So only one thread writes the state that the cell keeps for a reader (the
//! slot in which pins are announced), and a kept version needs no lock.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use super::rcu::{Pinned, RcuReader};
use super::signal::{Reached, Signal};
use super::{Versioned, WaitError};
use crate::sync;

/// A registered reader; see the [module](super) for its guarantees.
///
/// It can be sent to another thread, or cloned for one:
///
/// ```
/// # use portolan_publish::{Subscription, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn send<T: Send + Clone>() {}
/// send::<Subscription<V>>();
/// ```
///
/// but it cannot be shared between threads:
///
/// ```compile_fail,E0277
/// # use portolan_publish::{Subscription, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn sync<T: Sync>() {}
/// sync::<Subscription<V>>();
/// ```
pub struct Subscription<T: Versioned> {
    cell: RcuReader<T>,
    /// The last version that `refresh` returned, and its number. `None` before the first call: pins hold nothing here.
    kept: Option<Arc<T>>,
    kept_version: u64,
    signal: sync::Arc<Signal>,
    _one_thread_at_a_time: PhantomData<std::cell::Cell<()>>,
}

impl<T: Versioned> Subscription<T> {
    pub(super) fn new(cell: RcuReader<T>, signal: sync::Arc<Signal>) -> Self {
        Self { cell, kept: None, kept_version: 0, signal, _one_thread_at_a_time: PhantomData }
    }

    /// Pins the current version for brief access.
    ///
    /// Takes a bounded number of steps without a lock, an allocation, or a count that other threads write: a nanosecond
    /// or two if this reader pins the same version repeatedly. Guards nest, and two of them may see two versions, so
    /// use one per decision.
    ///
    /// A reader that pins one version repeatedly may keep it until a pin finds a newer one, until
    /// [`release`](Self::release), or until the reader is dropped. A reader that pins only occasionally keeps nothing.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, T> {
        self.cell.pin()
    }

    /// Returns an owned handle to the current version. Costs one shared count more than [`pin`](Self::pin).
    #[inline]
    pub fn snapshot(&self) -> Arc<T> {
        self.cell.load()
    }

    /// Returns the version this reader keeps, replaced by the current one if that is newer.
    ///
    /// Costs one load and one compare if nothing changed. The result is never older than a version this reader has
    /// [pinned](Self::pin), taken or learned the number of. The kept version stays in memory until a call finds a newer
    /// one, until [`release`](Self::release), or until this reader is dropped.
    #[inline]
    pub fn refresh(&mut self) -> &Arc<T> {
        if self.kept.is_none() || self.signal.may_be_newer_than(self.kept_version) {
            self.renew();
        }
        // `kept` is `Some` here; asserting that with a panic would cost as much.
        self.kept.get_or_insert_with(
            #[cold]
            || self.cell.load(),
        )
    }

    #[cold]
    #[inline(never)]
    fn renew(&mut self) {
        // First, so that the old version can be freed before there is a new one.
        self.kept = None;
        let current = self.cell.load();
        // The loaded version's number, not the announced one: the cell may not hold that version yet.
        self.kept_version = current.version();
        self.kept = Some(current);
    }

    /// Releases versions kept by [`refresh`](Self::refresh) or by pins. Call it before this reader goes idle.
    pub fn release(&mut self) {
        self.kept = None;
        self.cell.rest();
    }

    /// Waits until `version` or a newer one is current, and returns the current version.
    ///
    /// This lets a thread read its own writes. Without a `deadline` it may wait forever. The publishing thread must not
    /// call this for a version that it has not published yet.
    ///
    /// # Errors
    ///
    /// `Timeout` if `deadline` passes first. `Closed` if the publisher is gone and never published `version`.
    pub fn at_least(&self, version: u64, deadline: Option<Instant>) -> Result<Arc<T>, WaitError> {
        self.signal.wait(version, deadline)?;
        Ok(self.snapshot())
    }

    /// Waits for `version` in a task: like [`at_least`](Self::at_least), but the thread is not blocked.
    ///
    /// The future is ready when `version` or a newer one is current; then take it with [`pin`](Self::pin) or
    /// [`snapshot`](Self::snapshot). It needs no particular executor and does not borrow this reader, which cannot be
    /// shared between threads. For a deadline, use the executor's timer and drop the future.
    ///
    /// The publisher calls the waker, after the version is current. A waker should do no more than schedule its task,
    /// because [`publish`](super::Publisher::publish) returns only after it. If a waker panics, the panic hook runs,
    /// the publisher and the other tasks continue, and this task may not be woken. A publish without waiters still pays
    /// one fence and one load; with waiters it takes a lock once per task that it wakes and once more. A poll that is
    /// not ready takes the lock and O(log waiting tasks).
    ///
    /// # Errors
    ///
    /// The future returns `Closed` if the publisher is gone and never published `version`. Never `Timeout`.
    ///
    /// # Example
    ///
    /// An executor for one task, which parks its thread:
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::sync::Arc;
    /// use std::task::{Context, Poll, Wake, Waker};
    /// use std::thread::{self, Thread};
    /// use portolan_publish::{Publisher, Subscription, Versioned};
    ///
    /// struct Unpark(Thread);
    /// impl Wake for Unpark {
    ///     fn wake(self: Arc<Self>) { self.0.unpark() }
    /// }
    ///
    /// fn block_on<F: Future>(task: F) -> F::Output {
    ///     let mut task = pin!(task);
    ///     let waker = Waker::from(Arc::new(Unpark(thread::current())));
    ///     loop {
    ///         match task.as_mut().poll(&mut Context::from_waker(&waker)) {
    ///             Poll::Ready(output) => return output,
    ///             Poll::Pending => thread::park(),
    ///         }
    ///     }
    /// }
    ///
    /// struct Chart(u64);
    /// impl Versioned for Chart {
    ///     fn version(&self) -> u64 { self.0 }
    /// }
    ///
    /// let mut publisher: Publisher<Chart> = Publisher::new(Arc::new(Chart(1)));
    /// let reader: Subscription<Chart> = publisher.subscribe();
    /// let task = thread::spawn(move || block_on(async move {
    ///     reader.reached(2).await?;
    ///     Ok::<_, portolan_publish::WaitError>(reader.pin().0)
    /// }));
    /// publisher.publish(Arc::new(Chart(2)))?;
    /// assert_eq!(task.join().unwrap(), Ok(2));
    /// # Ok::<(), portolan_publish::NotNewer<Chart>>(())
    /// ```
    pub fn reached(&self, version: u64) -> Reached {
        Reached::new(sync::Arc::clone(&self.signal), version)
    }

    /// Returns the number of the last announced version. The next pin sees that version or a newer one.
    ///
    /// An earlier pin may already have seen a newer version whose publish has not announced its number yet.
    #[inline]
    pub fn published(&self) -> u64 {
        self.signal.version()
    }
}

impl<T: Versioned> Clone for Subscription<T> {
    /// Registers another reader.
    fn clone(&self) -> Self {
        Self::new(self.cell.another(), sync::Arc::clone(&self.signal))
    }
}

impl<T: Versioned> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("published", &self.published())
            .field("kept", &self.kept.as_ref().map(|kept| kept.version()))
            .finish_non_exhaustive()
    }
}
