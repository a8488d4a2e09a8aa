//! Readers, which take versions from the engine.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use portolan_publish::{Pinned, Subscription, WaitError};

use crate::model::Generation;
use crate::snapshot::Snapshot;

/// The reasons for which a wait for a generation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The deadline passed before the generation was published.
    #[error(
        "the generation was not published before the deadline: wait longer or use an older version"
    )]
    Timeout,
    /// The engine was dropped.
    #[error("the engine was dropped without publishing this generation: use the last version")]
    Closed,
    /// The calling thread is inside the writer and would have to publish the version itself.
    #[error("this thread is inside the writer: return from it and publish before you wait")]
    OwnThread,
}

impl From<WaitError> for ReadError {
    fn from(why: WaitError) -> ReadError {
        match why {
            WaitError::Timeout => ReadError::Timeout,
            WaitError::Closed => ReadError::Closed,
        }
    }
}

/// The thread that is inside the writer, which must not wait for a version: it would have to publish it.
///
/// An inline writer is a value that may move to another thread or be dropped at any time. So no thread is inside it
/// between two calls, whichever thread has called it last.
#[derive(Clone, Debug, Default)]
pub(super) struct WriterThread(Arc<AtomicUsize>);

thread_local! {
    static HERE: u8 = const { 0 };
}

/// Returns an identifier that no other live thread has: the address of a thread-local variable.
fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl WriterThread {
    /// Records that this thread is inside the writer until the returned guard is dropped. Guards may nest.
    pub(super) fn enter(&self) -> WithinWriter<'_> {
        // Relaxed suffices for every access: only the thread that has the writer stores, and if the value equals the
        // current thread's identifier, this thread stored it itself.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(here(), Ordering::Relaxed);
        WithinWriter { thread: self, before }
    }

    fn is_this(&self) -> bool {
        self.0.load(Ordering::Relaxed) == here()
    }
}

/// Guard of a thread inside the writer.
pub(super) struct WithinWriter<'a> {
    thread: &'a WriterThread,
    before: usize,
}

impl Drop for WithinWriter<'_> {
    fn drop(&mut self) {
        self.thread.0.store(self.before, Ordering::Relaxed);
    }
}

/// Takes published versions from an engine.
///
/// No call blocks the writer or another reader. A version is immutable, and each call returns the current one, so
/// consecutive calls can return different versions: take one version per decision. For one reader, versions never go
/// back in time.
///
/// | method | returns | cost |
/// |---|---|---|
/// | [`pin`](Reader::pin) | a guard, for short reads on this thread | a few loads and a store, wait-free |
/// | [`snapshot`](Reader::snapshot) | a handle to keep or to send to another thread | a pin and a reference count |
/// | [`refresh`](Reader::refresh) | this reader's cached version, brought up to date | one load and one comparison |
/// | [`at_least`](Reader::at_least) | a version that contains a generation | waits until it is published |
///
/// Each thread uses its own reader: the type is `Send` but not `Sync`, and a clone is an independent reader. A clone
/// searches the slots of all readers for a free one, O(readers), and may allocate, so keep readers instead of creating
/// one per read. A reader still works after its engine was dropped,
/// and returns the last version.
///
/// ```
/// fn send<T: Send + Clone>() {}
/// send::<portolan::cache::Reader>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<portolan::cache::Reader>();
/// ```
#[derive(Clone)]
pub struct Reader {
    versions: Subscription<Snapshot>,
    writer: WriterThread,
}

impl Reader {
    pub(super) fn new(versions: Subscription<Snapshot>, writer: WriterThread) -> Reader {
        Reader { versions, writer }
    }

    /// Pins the current version for a short time: a bounded number of steps, without locks, allocation or a shared
    /// reference count. Guards may nest, and they cannot leave their thread. A reader that pins the same version
    /// repeatedly keeps that version in memory until a later pin finds a newer one, or until [`Reader::release`].
    #[must_use]
    pub fn pin(&self) -> Pinned<'_, Snapshot> {
        self.versions.pin()
    }

    /// Returns a handle to the current version, which may be held for any length of time.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.versions.snapshot()
    }

    /// Updates the version that this reader caches and returns it; one load and one comparison if nothing has changed.
    /// It is never older than any version that this reader has pinned or taken before. The cached version stays in
    /// memory until a later call finds a newer one.
    pub fn refresh(&mut self) -> &Arc<Snapshot> {
        self.versions.refresh()
    }

    /// Drops the version that the reader keeps for its next call, after [`Reader::refresh`] or after several
    /// [pins](Reader::pin) of one version. Call this before a reader becomes idle. Otherwise that version stays in
    /// memory.
    pub fn release(&mut self) {
        self.versions.release();
    }

    /// Returns the generation of the published version. One load.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.versions.published())
    }

    /// Waits for a version that contains `generation` and returns it, which lets callers read their own writes.
    ///
    /// The thread that owns an inline [`Writer`](super::Writer) must publish before it waits. Without a deadline it
    /// would wait for ever: nothing shows that no other thread will get the writer.
    ///
    /// # Errors
    ///
    /// Returns an error if the deadline passes, if the engine is dropped, or if the calling thread is inside the
    /// writer: in [`Engine::with_writer`](super::Engine::with_writer), or in a callback of the writer such as a commit
    /// check.
    pub fn at_least(
        &self,
        generation: Generation,
        deadline: Option<Instant>,
    ) -> Result<Arc<Snapshot>, ReadError> {
        if generation > self.generation() && self.writer.is_this() {
            return Err(ReadError::OwnThread);
        }
        self.versions.at_least(generation.0, deadline).map_err(ReadError::from)
    }

    /// Waits for a version that contains `generation` in a task: like [`Reader::at_least`], but the thread is not
    /// blocked. When the future is ready, [`Reader::pin`] and [`Reader::snapshot`] return such a version.
    ///
    /// It needs no particular executor, and can be sent to another thread. For a deadline, use the executor's timer
    /// and drop the future. The writer calls the waker, as it does for [`Ticket`](crate::log::Ticket): it should do no
    /// more than schedule its task. Costs: see [`Subscription::reached`].
    ///
    /// Inside the writer the future is pending and not an error, because the thread is not blocked and can still
    /// publish.
    ///
    /// # Errors
    ///
    /// The future returns `Closed` if the engine is gone and never published `generation`, and no other error.
    ///
    /// ```
    /// # use portolan::cache::{Config, Engine};
    /// # use portolan::model::node;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// let generation = writer.add_node(node("n1").build())?.generation();
    /// let mut task = std::pin::pin!(async {
    ///     reader.reached(generation).await.map(|()| reader.snapshot().node_count())
    /// });
    /// let context = &mut Context::from_waker(Waker::noop()); // an executor's, which wakes the task
    /// assert!(task.as_mut().poll(context).is_pending());
    /// writer.publish();
    /// assert_eq!(task.as_mut().poll(context), Poll::Ready(Ok(1)));
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    pub fn reached(
        &self,
        generation: Generation,
    ) -> impl Future<Output = Result<(), ReadError>> + Send + Unpin + use<> {
        let mut reached = self.versions.reached(generation.0);
        poll_fn(move |task| Pin::new(&mut reached).poll(task).map_err(ReadError::from))
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
