//! Evicts the victims of preemption through the API server (`framework/preemption/executor.go`).
//!
//! An eviction first clears the nominations of lower priority. Then each victim gets the condition `DisruptionTarget`,
//! is deleted, and gets the event `Preempted`. The last victim is evicted only if all others were. If a step fails, the
//! last victim stays and the preemptor is retried, which decides again.
//!
//! If an event requeues the preemptor before the last deletion, for example the deletion of another victim, the
//! preemptor preempts again. It is therefore gated until then. A gate does not stop an event that the queue processes
//! after the preemptor is ungated, so the queue processes all waiting events first ([`ApiEvictor::set_queue`]). As in
//! kube-scheduler, two events may still requeue it: one that the watch delivers later, and one that was processed while
//! the preemptor was in flight.
//!
//! Victims count as terminating from the decision until the watch reports their end ([`Eviction::new`]), since most
//! attempts are faster than the watch. The scheduler is told how many evictions have begun ([`ApiEvictor::on_change`]),
//! so that it can decide on no further pods while many wait.
//!
//! If the node belongs to the shard of another replica, the preemptor is nominated to it after the last deletion: the
//! other replica then finds the victims terminating and waits for them. If the nomination came earlier, that replica
//! would preempt again. A preemptor that was handed over a short time ago stays here until the victims are gone.
//!
//! Differences from kube-scheduler 1.36:
//!
//! - Each victim is read before its condition is patched, since the conditions of placed pods are not kept. A victim
//!   with another uid is gone.
//! - The patch has `metadata.uid`, and the deletion `preconditions.uid`, so that neither can reach a pod of the same
//!   name that was created meanwhile.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use portolan::Evictor;
use portolan::model::{self, Pod};
use portolan::plugin::Eviction;
use portolan::scheduler::queue::QueueFront;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::bind::Waits;
use super::bodies::{ConditionType, PodAnswer, StatusChange, delete_options, is_gone, pod_path};
use super::condition::Wanted;
use super::events::EventRecorder;
use super::occurrence::Occurrence;
use super::status::{StatusWriter, Target};
use super::{Fence, HandOver};
use crate::api::{Api, ApiError};
use crate::lock::lock;
use crate::seldom::warn_seldom;

const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The number of victims of one eviction that are evicted at once (`parallelism`).
const VICTIMS_AT_ONCE: usize = 16;

/// Evicts victims through an API server, on tasks of the runtime. Never blocks the caller.
#[derive(Clone)]
pub(crate) struct ApiEvictor {
    runtime: Handle,
    shared: Arc<Shared>,
}

struct Shared {
    api: Api,
    fence: Fence,
    status: StatusWriter,
    events: EventRecorder,
    /// Hands preemptors over, if there are several shards.
    hand_over: Option<HandOver>,
    at_once: Semaphore,
    queue: OnceLock<Queue>,
    begun: Mutex<usize>,
    on_change: OnceLock<OnChange>,
}

/// A function that gets the number of evictions that have begun and not ended.
type OnChange = Box<dyn Fn(usize) + Send + Sync>;

/// An eviction that has begun.
struct InFlight(Arc<Shared>);

impl InFlight {
    fn new(shared: &Arc<Shared>) -> InFlight {
        shared.count(|begun| begun + 1);
        InFlight(shared.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.count(|begun| begun - 1);
    }
}

/// The queue to which preemptors return. Weak, because its profiles own the evictor.
struct Queue {
    front: Weak<QueueFront>,
    clock: fn() -> model::Timestamp,
}

impl ApiEvictor {
    /// The number of evictions at once. Others wait.
    pub(crate) const AT_ONCE: usize = 16;

    pub(super) fn new(
        runtime: Handle,
        api: Api,
        fence: Fence,
        status: StatusWriter,
        events: EventRecorder,
        hand_over: Option<HandOver>,
    ) -> ApiEvictor {
        let at_once = Semaphore::new(ApiEvictor::AT_ONCE);
        let (queue, begun, on_change) = (OnceLock::new(), Mutex::new(0), OnceLock::new());
        let shared =
            Shared { api, fence, status, events, hand_over, at_once, queue, begun, on_change };
        let shared = Arc::new(shared);
        ApiEvictor { runtime, shared }
    }

    /// Sets the queue to which preemptors return, and its clock, for all clones of this evictor. Only the first call
    /// has an effect. Without a queue, a preemptor is more often tried before its last victim is deleted, and then
    /// preempts again. The evictor does not keep the queue alive.
    pub(crate) fn set_queue(&self, queue: &Arc<QueueFront>, clock: fn() -> model::Timestamp) {
        let _ = self.shared.queue.set(Queue { front: Arc::downgrade(queue), clock });
    }

    /// Sets a function that gets the number of evictions that have begun and not ended, whenever it changes. Only the
    /// first call has an effect. The function must be fast, must not block, and must not call the evictor.
    pub(crate) fn on_change(&self, on_change: impl Fn(usize) + Send + Sync + 'static) {
        let _ = self.shared.on_change.set(Box::new(on_change));
    }

    /// Returns whether no eviction is running or about to run.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        *lock(&self.shared.begun) == 0
    }
}

impl Evictor for ApiEvictor {
    fn evict(&self, eviction: Eviction) {
        let shared = self.shared.clone();
        let in_flight = InFlight::new(&shared);
        self.runtime.spawn(async move {
            let _in_flight = in_flight;
            // The semaphore is never closed.
            let _slot = shared.at_once.acquire().await;
            shared.clear(&eviction).await;
            let evicted = shared.evict(&eviction).await;
            eviction.finish(evicted.as_ref().map(drop));
            match evicted {
                Ok(()) => shared.hand_over(&eviction).await,
                Err(error) => {
                    let (preemptor, node) = (&eviction.preemptor().name, eviction.node());
                    warn_seldom!(%preemptor, %node, %error, "victims not evicted");
                }
            }
        });
    }
}

impl Shared {
    fn count(&self, change: impl FnOnce(usize) -> usize) {
        let mut begun = lock(&self.begun);
        *begun = change(*begun);
        // Within the lock, so that the last call has the last number.
        if let Some(on_change) = self.on_change.get() {
            on_change(*begun);
        }
    }

    /// Evicts all victims but the last one at once, and then the last one.
    async fn evict(&self, eviction: &Eviction) -> Result<(), String> {
        let Some((last, others)) = eviction.begin() else { return Ok(()) };
        let others: Vec<_> = others.iter().map(|victim| self.evict_one(eviction, victim)).collect();
        let mut others = stream::iter(others).buffer_unordered(VICTIMS_AT_ONCE);
        // All are evicted even if one fails, since a request that was sent cannot be taken back.
        let mut first = Ok(());
        while let Some(evicted) = others.next().await {
            first = first.and(evicted);
        }
        first?;
        let is_left = self.prepare(eviction, last).await?;
        self.catch_up().await;
        eviction.ungate();
        if is_left { self.delete(eviction, last).await } else { Ok(()) }
    }

    /// Lets the queue process all waiting events, on a thread that may block.
    async fn catch_up(&self) {
        let Some(Queue { front, clock }) = self.queue.get() else { return };
        let (front, clock) = (front.clone(), *clock);
        let caught_up = spawn_blocking(move || {
            if let Some(front) = front.upgrade() {
                front.catch_up(clock);
            }
        });
        // It fails if the runtime ends. The preemptor is then ungated all the same.
        let _ = caught_up.await;
    }

    async fn evict_one(&self, eviction: &Eviction, victim: &Pod) -> Result<(), String> {
        let is_left = self.prepare(eviction, victim).await?;
        if is_left { self.delete(eviction, victim).await } else { Ok(()) }
    }

    /// Clears the nominations of lower priority to the node. A nomination that stays only delays its pod.
    async fn clear(&self, eviction: &Eviction) {
        for pod in eviction.cleared() {
            if let Err(error) = self.status.clear(pod, eviction.node()).await {
                warn_seldom!(pod = %pod.name, %error, "nomination not cleared");
            }
        }
    }

    /// Nominates the preemptor to a node of another replica.
    async fn hand_over(&self, eviction: &Eviction) {
        if let Some(to) = self.hand_over.as_ref().filter(|to| to.is_foreign(eviction.node())) {
            to.nominate(eviction.preemptor(), eviction.node()).await;
        }
    }

    /// Gives a victim its condition. Returns `false` if nothing has to be deleted: it was not bound yet, or it is
    /// gone.
    async fn prepare(&self, eviction: &Eviction, victim: &Pod) -> Result<bool, String> {
        if eviction.withdraw(victim) {
            let (preemptor, node) = (eviction.preemptor(), eviction.node());
            self.events.record(Occurrence::preempted_in_memory(victim, preemptor, node));
            return Ok(false);
        }
        let uid = victim.uid.to_string();
        let path = pod_path(victim.namespace(), &victim.name, "");
        let found = self.find(&path, &uid).await.map_err(|error| error.to_string())?;
        let Some(found) = found else { return Ok(gone(eviction, victim)) };
        let found = pod_of(&found).map_err(|error| error.to_string())?;
        let message = eviction.message();
        if let Some(change) = disruption(&found, &message) {
            match self.status.patch(&Target::of(victim), change).await {
                Ok(_) => {}
                Err(error) => {
                    self.refused(&path, &uid, error).await?;
                    return Ok(gone(eviction, victim));
                }
            }
        }
        Ok(true)
    }

    /// Deletes a victim.
    async fn delete(&self, eviction: &Eviction, victim: &Pod) -> Result<(), String> {
        let uid = victim.uid.to_string();
        let path = pod_path(victim.namespace(), &victim.name, "");
        if let Err(error) = self.api.delete(&path, &delete_options(&uid)).await {
            let is_left = match error.may_have_been_done() {
                true => self.is_left(&path, &uid, error).await?,
                false => self.refused(&path, &uid, error).await.map(|()| false)?,
            };
            if !is_left {
                gone(eviction, victim);
                return Ok(());
            }
        }
        eviction.report_deleting(victim);
        let occurrence = Occurrence::preempted(victim, eviction.preemptor(), eviction.node());
        self.events.record(occurrence);
        Ok(())
    }

    /// Reads a victim, or returns `None` if it is gone or another pod has taken its name.
    async fn find(&self, path: &str, uid: &str) -> Result<Option<Bytes>, ApiError> {
        let found = match self.api.get(path).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_victim = pod_of(&found)?.metadata.uid == uid;
        Ok(is_victim.then_some(found))
    }

    /// Returns whether a victim is terminating after a deletion without a certain answer, or `false` if it is gone. If
    /// it still runs, or nobody knows because the lease was lost, the deletion has failed.
    async fn is_left(&self, path: &str, uid: &str, error: ApiError) -> Result<bool, String> {
        let mut waits = Waits::DEFAULT;
        let found = loop {
            match self.find(path, uid).await {
                Ok(found) => break found,
                Err(again)
                    if again.may_be_temporary() && self.fence.pause(waits.after(&again)).await => {}
                Err(_) => return Err(error.to_string()),
            }
        };
        let Some(found) = found else { return Ok(false) };
        let found = pod_of(&found).map_err(|error| error.to_string())?;
        let is_terminating = found.metadata.deletion_timestamp.is_some();
        if is_terminating { Ok(true) } else { Err(error.to_string()) }
    }

    /// Interprets the refusal of a write to a victim: it is not an error if the victim is gone. A conflict may also
    /// come from a concurrent update, after which the victim still exists: the preemptor would then wait for a deletion
    /// that was never requested.
    async fn refused(&self, path: &str, uid: &str, error: ApiError) -> Result<(), String> {
        if is_gone(&error) {
            return Ok(());
        }
        let is_replaced = error.is_conflict()
            && self.find(path, uid).await.map_err(|error| error.to_string())?.is_none();
        if is_replaced { Ok(()) } else { Err(error.to_string()) }
    }
}

fn pod_of(answer: &Bytes) -> Result<PodAnswer<'_>, ApiError> {
    serde_json::from_slice(answer)
        .map_err(|error| ApiError::Malformed(format!("reading a victim: {error}")))
}

/// Requests an attempt for the preemptor: a victim is gone, and its deletion may have been reported too early to
/// requeue the preemptor. Until the watch reports its end, the victim counts as terminating. Returns `false`.
fn gone(eviction: &Eviction, victim: &Pod) -> bool {
    eviction.report_deleting(victim);
    eviction.retry();
    false
}

/// Returns the change that gives a victim its condition, or `None` if it has the condition.
fn disruption<'a>(victim: &'a PodAnswer<'a>, message: &'a str) -> Option<StatusChange<'a>> {
    let wanted = Wanted {
        kind: DISRUPTION_TARGET,
        status: "True",
        reason: "PreemptionByScheduler",
        message,
        generation: victim.metadata.generation,
    };
    let known = victim.status.condition(DISRUPTION_TARGET);
    let difference = wanted.compare(known.as_ref(), Timestamp::now());
    let change = difference.change.filter(|_| difference.matters)?;
    let known = victim.status.conditions();
    let mut order: Vec<_> =
        known.iter().map(|condition| ConditionType { kind: &condition.kind }).collect();
    if !difference.is_known {
        order.push(ConditionType { kind: DISRUPTION_TARGET });
    }
    Some(StatusChange {
        order: (!known.is_empty()).then_some(order),
        conditions: Some([change]),
        nominated_node_name: None,
    })
}
