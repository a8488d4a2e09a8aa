//! A placement: a pod that is assumed on a node, until its binding cycle has ended.
//!
//! A placement owns what the pod holds: its assumption, its reservations, its permit and its entry in the queue. A
//! thread that panics, or returns early, drops its placements, and no other thread knows these pods. So a placement
//! that is dropped is withdrawn, as after a failed binding: an attempt is lost, and not the resources of a node. The
//! exception is a pod that may be bound, because a request was sent for it. Freeing its resources could overcommit the
//! node.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use crate::engine::{Engine, WeakEngine};
use crate::framework::{
    Cycle, CycleState, Decision, Framework, PluginSet, PreFlight, Snapshots, Status,
};
use crate::log::{Event, TryWaitError, Unavailable};
use crate::model::{Name, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;
use crate::sync::contain;

use super::SharedReader;
use super::queue::{Place, QueueFront};

/// A pod that is assumed on a node with its resources reserved: the input of a binding cycle.
///
/// A placement that is dropped before its cycle has begun is withdrawn: its reservations are released, the engine
/// forgets the pod, and the pod returns to the queue of its [`SchedulingLoop`](super::SchedulingLoop), if it has one,
/// as after an error. This may wait for the engine's writer and for the queue, so do not drop a placement inside
/// [`QueueFront::with`]. If a request to bind the pod was sent, the pod stays assumed, as after
/// [`BindError::Unknown`](super::BindError::Unknown).
#[must_use = "a placement that is dropped is withdrawn: run a binding cycle for it"]
pub struct Placement {
    /// The pod, with its node name set.
    pub pod: Arc<Pod>,
    /// The decision.
    pub decision: Decision,
    /// The cycle state of the plugins.
    pub state: CycleState,
    /// Whether the pod has to wait for a permit.
    pub waits: bool,
    pub(super) framework: Arc<Framework>,
    /// Whether PreBind has work to do, if that was asked.
    pub(super) flight: Option<Result<PreFlight, Status>>,
    home: Arc<Home>,
    /// The time of the scheduling cycle.
    at: Timestamp,
    /// One of the constants below. Relaxed suffices: of the threads that claim the placement, one succeeds, and the
    /// stage guards no other data.
    stage: AtomicU8,
}

/// The binding cycle has not begun.
const ASSUMED: u8 = 0;
/// A binding cycle or a withdrawal has begun, and no request was sent.
const CLAIMED: u8 = 1;
/// The pod may be bound.
const SENT: u8 = 2;
/// The binding cycle has ended, or the placement was withdrawn.
const ENDED: u8 = 3;

/// Where the placements of a scheduler are withdrawn. Keeps neither the engine nor the queue alive.
pub(super) struct Home {
    engine: WeakEngine,
    versions: SharedReader,
    queue: Option<Weak<QueueFront>>,
}

impl Home {
    pub(super) fn new(
        engine: &Engine,
        queue: Option<&Arc<QueueFront>>,
    ) -> Result<Arc<Home>, Unavailable> {
        let versions = SharedReader::new(engine.reader()?);
        Ok(Arc::new(Home {
            engine: engine.downgrade(),
            versions,
            queue: queue.map(Arc::downgrade),
        }))
    }
}

impl Placement {
    pub(super) fn assumed(
        pod: Arc<Pod>,
        (decision, state): (Decision, CycleState),
        framework: Arc<Framework>,
        home: Arc<Home>,
        at: Timestamp,
    ) -> Placement {
        Placement {
            pod,
            decision,
            state,
            waits: false,
            framework,
            flight: None,
            home,
            at,
            stage: AtomicU8::new(ASSUMED),
        }
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Name {
        &self.decision.node
    }

    /// Leaves the pod assumed on its node, takes it from the queue and returns it, for callers that bind pods without a
    /// binding cycle. They submit [`Event::finish_binding`] when the pod is bound, or [`Event::forget`] if it will not
    /// be. The plugins' reservations stay.
    pub fn keep_assumed(self) -> Arc<Pod> {
        self.may_be_bound();
        self.pod.clone()
    }

    /// Claims the placement for one binding cycle or withdrawal. Returns `false` if it was claimed before: a placement
    /// may be shared by threads, and only one of them may bind the pod or give its node away.
    pub(super) fn claim(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        self.stage.compare_exchange(ASSUMED, CLAIMED, relaxed, relaxed).is_ok()
    }

    /// Records that a request to bind the pod may be sent from now on.
    pub(super) fn may_be_bound(&self) {
        self.stage.store(SENT, Ordering::Relaxed);
    }

    /// Records that the request was answered, and that the pod is not bound.
    pub(super) fn is_not_bound(&self) {
        self.stage.store(CLAIMED, Ordering::Relaxed);
    }

    /// Records that nothing is left to do for this placement.
    pub(super) fn end(&self) {
        self.stage.store(ENDED, Ordering::Relaxed);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == ENDED
    }

    /// Ends the placement: releases the pod's permit and reservations, and forgets the pod.
    pub(super) fn undo(
        &self,
        version: &Cluster,
        engine: Option<&Engine>,
        now: Timestamp,
    ) -> Result<(), Unavailable> {
        self.end();
        let Placement { pod, state, framework, .. } = self;
        let handle = framework.handle();
        let in_pre_bind = handle.enter_pre_bind(&pod.uid);
        // The outcome of the permit is decided in any case, so this call does not block. A sibling may have allowed the
        // pod already.
        handle.waiting_pods().reject(&pod.uid);
        let _ = framework.wait_on_permit(pod, || now);
        framework.unreserve(Cycle::new(version, pod, state), self.node());
        in_pre_bind.begin_forget();
        let engine = engine.ok_or(Unavailable::Closed(()))?;
        let ticket = engine.submit(Event::forget(pod)).map_err(|why| why.map(drop))?;
        match ticket.wait() {
            // Forgetting fails if the pod was deleted or confirmed meanwhile; then there is nothing to forget. Inside
            // the writer, the pod is forgotten when the writer is released.
            Ok(_) | Err(TryWaitError::OwnThread(_)) => Ok(()),
            Err(TryWaitError::Closed | TryWaitError::Pending(_)) => Err(Unavailable::Closed(())),
        }
    }

    /// Withdraws the placement: undoes it, and returns the pod to the queue.
    fn withdraw(&self) {
        let (uid, queue) = (&self.pod.uid, self.queue());
        trace_event!(DEBUG, pod = %self.pod.key(), node = %self.node(), "placement dropped");
        if let Some(queue) = &queue {
            queue.with(|queue, _| queue.release(uid));
        }
        let engine = self.home.engine.upgrade();
        let undone = self.undo(&self.home.versions.snapshot(), engine.as_ref(), self.at);
        let Some(queue) = queue else { return };
        match undone {
            Ok(()) => drop(requeue(&queue, uid, PluginSet::EMPTY, PluginSet::EMPTY, self.at)),
            Err(_) => queue.with(|queue, _| queue.done(uid)),
        }
    }

    fn queue(&self) -> Option<Arc<QueueFront>> {
        self.home.queue.as_ref()?.upgrade()
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        match *self.stage.get_mut() {
            ENDED => {}
            SENT => {
                if let Some(queue) = self.queue() {
                    queue.with(|queue, _| queue.done(&self.pod.uid));
                }
            }
            // A panic of a callback that runs in the writer has closed the engine, and the thread may be panicking
            // already.
            _ => contain(|| self.withdraw()),
        }
    }
}

/// Returns a pod to the queue, unless it was deleted meanwhile.
pub(super) fn requeue(
    queue: &QueueFront,
    uid: &Uid,
    rejected: PluginSet,
    waits: PluginSet,
    now: Timestamp,
) -> Option<Place> {
    queue.with(|queue, version| {
        queue.add_unschedulable_if_not_present(uid, rejected, waits, version, now).ok()?
    })
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement")
            .field("pod", &self.pod.uid)
            .field("node", self.node())
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
