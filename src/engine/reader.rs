//! Readers: versions, and what is true right now.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use crate::model::{Generation, Uid};
use crate::publish::live::LiveReader;
use crate::publish::{self, Pinned, Subscription, WaitError};
use crate::snapshot::{NodeSlot, Snapshot};

/// Where a pod is, in 4 bytes: its node's slot and whether it is assumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whereabouts(u32);

impl Whereabouts {
    pub(super) fn new(slot: NodeSlot, assumed: bool) -> Whereabouts {
        // Slots stay below 2^31: the table of nodes is full long before.
        Whereabouts(slot.0 << 1 | u32::from(assumed))
    }
}

/// A pod as the live index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePod {
    /// The node that it is on; see [`Cluster::node_by_slot`](crate::Cluster).
    pub slot: NodeSlot,
    /// Whether it is assumed.
    pub assumed: bool,
}

/// Why a wait for a generation ended without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The deadline passed first.
    #[error(
        "the generation was not published before the deadline: wait longer or take an older one"
    )]
    Timeout,
    /// The engine is gone.
    #[error("the engine is gone and never published this generation: take the last one")]
    Closed,
    /// The thread that waits is the one that would have to publish.
    #[error("this thread is the writer: publish before waiting for what was written")]
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

/// A [`Future`] that is ready when a generation is published: see [`Reader::reached`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Reached(publish::Reached);

impl Future for Reached {
    type Output = Result<(), ReadError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(ReadError::from)
    }
}

/// Which thread writes, so that it does not wait for itself.
#[derive(Clone, Debug)]
pub(super) struct WriterThread {
    /// The number of the thread; 0 if it is not known.
    number: Arc<AtomicUsize>,
    /// The writer is the thread that used it last. Of a shared engine it is the one within
    /// [`Engine::with_writer`](super::Engine::with_writer).
    is_inline: bool,
}

thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number that no other live thread has: an address of its own.
fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl WriterThread {
    pub(super) fn new(is_inline: bool) -> WriterThread {
        WriterThread { number: Arc::new(AtomicUsize::new(0)), is_inline }
    }

    /// Notes that the inline writer runs on this thread.
    pub(super) fn is_here(&self) {
        // Relaxed, as in all of these: a thread that compares the number with its own wrote it itself.
        if self.is_inline && self.number.load(Ordering::Relaxed) != here() {
            self.number.store(here(), Ordering::Relaxed);
        }
    }

    /// Notes that this thread is within the writer, until the answer is dropped.
    pub(super) fn enter(&self) -> WithinWriter {
        self.number.store(here(), Ordering::Relaxed);
        WithinWriter(self.clone())
    }

    fn is_this(&self) -> bool {
        self.number.load(Ordering::Relaxed) == here()
    }
}

/// A thread is within the writer of a shared engine.
pub(super) struct WithinWriter(WriterThread);

impl Drop for WithinWriter {
    fn drop(&mut self) {
        self.0.number.store(0, Ordering::Relaxed);
    }
}

/// Takes versions from an engine. One a thread: `Send`, not `Sync`; a clone is
/// another one.
///
/// ```
/// fn send<T: Send + Clone>() {}
/// send::<portolan::Reader>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<portolan::Reader>();
/// ```
#[derive(Clone)]
pub struct Reader {
    versions: Subscription<Snapshot>,
    live: Option<LiveReader<Uid, Whereabouts>>,
    writer: WriterThread,
    /// The generation of the newest answer to [`Reader::get_pod`].
    answered: Cell<u64>,
}

impl Reader {
    pub(super) fn new(
        versions: Subscription<Snapshot>,
        live: Option<LiveReader<Uid, Whereabouts>>,
        writer: WriterThread,
    ) -> Reader {
        Reader { versions, live, writer, answered: Cell::new(0) }
    }

    /// The current version, for a moment: a bounded number of steps, no lock,
    /// no allocation, no shared reference count. Guards may nest; they stay on
    /// their thread. A reader that pins one version again and again keeps it
    /// until its next pin that finds a newer one, or until [`Reader::release`].
    #[must_use]
    pub fn pin(&self) -> Pinned<'_, Snapshot> {
        self.versions.pin()
    }

    /// The current version, to be held as long as one likes.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.versions.snapshot()
    }

    /// The current version, kept: one load and one compare when nothing changed.
    /// It is never older than what this reader has pinned or taken before. What
    /// it kept stays in memory until a later call finds a newer one.
    pub fn refresh(&mut self) -> &Arc<Snapshot> {
        self.versions.refresh()
    }

    /// Gives up what pins and [`Reader::refresh`] kept: for a reader that will be
    /// idle, so that what it saw last does not stay in memory with it.
    pub fn release(&mut self) {
        self.versions.release();
    }

    /// The published generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.versions.published())
    }

    /// A version that contains `generation`, waiting for it: read your writes.
    ///
    /// # Errors
    ///
    /// The deadline passed, the engine is gone, or this thread is the inline
    /// writer's own and would wait for itself.
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
    /// On the writer's own thread the future is pending and not an error, because the thread is not blocked and can
    /// still publish.
    ///
    /// # Errors
    ///
    /// The future returns `Closed` if the engine is gone and never published `generation`, and no other error.
    ///
    /// ```
    /// # use portolan::model::node;
    /// # use portolan::{Config, Engine};
    /// use std::task::{Context, Poll, Waker};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// let generation = writer.add_node(node("n1").build())?;
    /// let mut task = std::pin::pin!(async {
    ///     reader.reached(generation).await.map(|()| reader.snapshot().node_count())
    /// });
    /// let context = &mut Context::from_waker(Waker::noop()); // an executor's, which wakes the task
    /// assert!(task.as_mut().poll(context).is_pending());
    /// writer.publish();
    /// assert_eq!(task.as_mut().poll(context), Poll::Ready(Ok(1)));
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    pub fn reached(&self, generation: Generation) -> Reached {
        Reached(self.versions.reached(generation.0))
    }

    /// Where a pod is now, with the generation up to which that is known: it
    /// never goes back for one reader, and is the published one or, if that
    /// changes meanwhile, one of those published since the call. From the live
    /// index; from the published version if the engine has no such index, if it
    /// is gone, or if the index is behind because readers were in the way of
    /// its writer.
    #[must_use]
    pub fn get_pod(&self, uid: &Uid) -> (Generation, Option<LivePod>) {
        // A version can be pinned before its number is published, so the last answer counts, too.
        let least = self.versions.published().max(self.answered.get());
        if let Some(Ok(answer)) = self.live.as_ref().map(|live| live.get(uid))
            && answer.version >= least
        {
            self.answered.set(answer.version);
            let pod = answer.value.map(|Whereabouts(bits)| LivePod {
                slot: NodeSlot(bits >> 1),
                assumed: bits & 1 == 1,
            });
            return (Generation(answer.version), pod);
        }
        let version = self.pin();
        self.answered.set(version.generation().0);
        let pod = version.pod(uid);
        let pod = pod.map(|p| LivePod { slot: p.node().slot(), assumed: p.is_assumed() });
        (version.generation(), pod)
    }

    /// Whether a pod is assumed now; see [`Reader::get_pod`].
    #[must_use]
    pub fn is_assumed_pod(&self, uid: &Uid) -> (Generation, bool) {
        let (generation, pod) = self.get_pod(uid);
        (generation, pod.is_some_and(|pod| pod.assumed))
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
