//! Evicts the victims of preemption through the API server (`framework/preemption/executor.go`).
//!
//! An eviction first clears the nominations of lower priority. Then each victim gets the condition `DisruptionTarget`,
//! is deleted, and gets the event `Preempted`. The last victim is evicted only if all others were. If a step fails, the
//! rest of the eviction is left out and the preemptor is retried, which decides again.
//!
//! Differences from kube-scheduler 1.36:
//!
//! - Each victim is read before its condition is patched, since the conditions of placed pods are not kept. A victim
//!   with another uid is gone.
//! - The patch has `metadata.uid`, and the deletion `preconditions.uid`, so that neither can reach a pod of the same
//!   name that was created meanwhile.
//! - Victims are evicted one after the other, where kube-scheduler evicts up to 16 at once.
//! - A victim that waits for a permit is rejected without an event.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use portolan::framework::{Eviction, Evictor};
use portolan::model::Pod;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::blocking::{Blocking, RuntimeEnded};
use super::bodies::{ConditionType, DeleteOptions, PodAnswer, StatusChange, is_gone, pod_path};
use super::condition::Wanted;
use super::events::EventRecorder;
use super::occurrence::Occurrence;
use super::status::{StatusWriter, Target};
use super::{Fence, NO_LEASE};
use crate::api::{Api, ApiError};

const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Evictions at once. More wait without a thread.
const AT_ONCE: usize = 16;

/// Evicts victims through an API server, on threads of the runtime that may block. Never blocks the caller.
#[derive(Clone)]
pub struct ApiEvictor {
    runtime: Handle,
    blocking: Blocking,
    shared: Arc<Shared>,
}

struct Shared {
    api: Api,
    fence: Fence,
    status: StatusWriter,
    events: EventRecorder,
    at_once: Semaphore,
}

impl ApiEvictor {
    pub(super) fn new(
        (runtime, blocking): (Handle, Blocking),
        api: Api,
        fence: Fence,
        status: StatusWriter,
        events: EventRecorder,
    ) -> ApiEvictor {
        let at_once = Semaphore::new(AT_ONCE);
        let shared = Arc::new(Shared { api, fence, status, events, at_once });
        ApiEvictor { runtime, blocking, shared }
    }

    /// Returns whether no eviction is running or about to run.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.shared.at_once.available_permits() == AT_ONCE
    }
}

impl Evictor for ApiEvictor {
    fn evict(&self, eviction: Eviction) {
        let (blocking, shared) = (self.blocking.clone(), self.shared.clone());
        self.runtime.spawn(async move {
            // The semaphore is never closed.
            let _slot = shared.at_once.acquire().await;
            let working = shared.clone();
            let run = move || {
                let ended = |ended: RuntimeEnded| ended.to_string();
                // If the runtime has ended, so do the steps that follow.
                let _ = blocking.run(working.clear(&eviction));
                let is_gone = Cell::new(false);
                let prepare = |victim: &Pod| {
                    is_gone.set(!blocking.run(working.prepare(&eviction, victim)).map_err(ended)??);
                    Ok(())
                };
                let evicted = eviction.run_prepared(prepare, |victim| {
                    let is_deleted = !is_gone.get()
                        && blocking.run(working.delete(&eviction, victim)).map_err(ended)??;
                    if !is_deleted {
                        eviction.retry();
                    }
                    Ok(())
                });
                if let Err(error) = evicted {
                    let (preemptor, node) = (&eviction.preemptor().name, eviction.node());
                    tracing::warn!(%preemptor, %node, %error, "victims not evicted");
                }
            };
            // The thread does not panic, and a runtime that shuts down drops the eviction.
            let _ = tokio::task::spawn_blocking(run).await;
        });
    }
}

impl Shared {
    /// Clears the nominations of lower priority. A nomination that stays only delays its pod.
    async fn clear(&self, eviction: &Eviction) {
        for pod in eviction.cleared() {
            if let Err(error) = self.status.nominate(pod, None).await {
                tracing::warn!(pod = %pod.name, %error, "nomination not cleared");
            }
        }
    }

    /// Gives a victim its condition. Returns `false` if it was gone.
    async fn prepare(&self, eviction: &Eviction, victim: &Pod) -> Result<bool, String> {
        let uid = victim.uid.to_string();
        let path = pod_path(victim.namespace(), &victim.name, "");
        let Some(found) = self.find(&path, &uid).await? else { return Ok(false) };
        let found: PodAnswer<'_> =
            serde_json::from_slice(&found).map_err(|error| format!("reading a victim: {error}"))?;
        let message = eviction.message();
        if let Some(change) = disruption(&found, &message) {
            match self.status.patch(&Target::of(victim), change).await {
                Ok(_) => {}
                Err(error) => return self.refused(&path, &uid, &error).await,
            }
        }
        Ok(true)
    }

    /// Deletes a victim. Returns `false` if it was gone.
    async fn delete(&self, eviction: &Eviction, victim: &Pod) -> Result<bool, String> {
        let uid = victim.uid.to_string();
        let path = pod_path(victim.namespace(), &victim.name, "");
        if !self.fence.may_write() {
            return Err(NO_LEASE.to_owned());
        }
        match self.api.delete(&path, &DeleteOptions::of(&uid)).await {
            Ok(_) => {}
            Err(error) => return self.refused(&path, &uid, &error).await,
        }
        let occurrence = Occurrence::preempted(victim, eviction.preemptor(), eviction.node());
        self.events.record(occurrence);
        Ok(true)
    }

    /// Reads a victim, or returns `None` if it is gone or another pod has taken its name.
    async fn find(&self, path: &str, uid: &str) -> Result<Option<Bytes>, String> {
        let found = match self.api.get(path).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let answer: PodAnswer<'_> =
            serde_json::from_slice(&found).map_err(|error| format!("reading a victim: {error}"))?;
        let is_victim = answer.metadata.uid == uid;
        Ok(is_victim.then_some(found))
    }

    /// Judges the refusal of a write to a victim. A conflict may also come from a concurrent update, after which the
    /// victim still exists: the preemptor would wait for a deletion that nobody asked for.
    async fn refused(&self, path: &str, uid: &str, error: &ApiError) -> Result<bool, String> {
        let is_gone =
            is_gone(error) || (error.is_conflict() && self.find(path, uid).await?.is_none());
        if is_gone { Ok(false) } else { Err(error.to_string()) }
    }
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
    let known = victim.condition(DISRUPTION_TARGET);
    let difference = wanted.compare(known.as_ref(), Timestamp::now());
    let change = difference.change.filter(|_| difference.matters)?;
    let known = victim.status.conditions.as_deref().unwrap_or_default();
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

impl fmt::Debug for ApiEvictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiEvictor").field("fence", &self.shared.fence).finish_non_exhaustive()
    }
}
