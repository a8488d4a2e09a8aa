//! Binds pods through the API server.
//!
//! A binding is sent until its outcome is known:
//!
//! | answer | result |
//! |---|---|
//! | success | bound |
//! | 409, the pod is assigned to this node already | bound: the answer to an earlier try was lost |
//! | another 409, or 404 | [`BinderError::Conflict`] |
//! | 429 | repeated after the time in `Retry-After`, or after a growing wait if that is longer |
//! | any other 4xx | [`BinderError::Failed`] |
//! | 5xx, a timeout or a broken connection | the pod is read, see below |
//! | the server cannot be reached | repeated with growing waits, since nothing was sent |
//! | none: the gate of the shards refuses it | [`BinderError::Refused`] |
//! | none: the fence is closed, or a name does not fit in a path | [`BinderError::Failed`], since nothing is sent |
//!
//! After an answer that leaves the outcome open, the pod is read until it can be read. If it is on this node, it is
//! bound. If it is on another node, is terminating or no longer exists, that is a conflict. If it has no node, the
//! binding is repeated twice and then fails. If the fence closes before the pod can be read, the result is
//! [`BinderError::Unknown`]. A request without an answer may still be applied after the last read; the watch then
//! reports the pod as bound.
//!
//! kube-scheduler does not retry, and forgets the pod after any error.

use std::sync::Arc;
use std::time::Duration;

use portolan::model::{Name, Pod};
use portolan::plugin::BindingFuture;
use portolan::{Binder, BinderError};
use tokio::sync::watch;

use super::blocking::{Blocking, RuntimeEnded};
use super::bodies::{Binding, PodAnswer, is_gone, pod_path};
use super::events::EventRecorder;
use super::occurrence::Occurrence;
use super::shard_gate::{ShardGate, Turn};
use super::status::StatusWriter;
use super::{Fence, LONGEST_WAIT, NO_SHARD};
use crate::api::{Api, ApiError, NO_LEASE};
use crate::seldom::warn_seldom;

/// How often a binding is sent again after the pod was found without a node.
const REPEATS: u32 = 2;

/// Binds pods through an API server, and records the event `Scheduled`.
///
/// Call [`Binder::bind`] on threads of its own and not on threads of the runtime, where blocking panics. Clones share
/// their client.
///
/// If the runtime ends, a binding fails, or is [`BinderError::Unknown`] if it had begun.
#[derive(Clone)]
pub(crate) struct ApiBinder {
    pub(super) blocking: Blocking,
    pub(super) api: Api,
    pub(super) fence: Fence,
    pub(super) status: StatusWriter,
    pub(super) events: EventRecorder,
    /// The nodes to which this process may bind, if there are several shards.
    pub(super) gate: Option<ShardGate>,
    pub(super) waits: Waits,
    /// The number of pods that are being bound.
    pub(super) active: watch::Sender<usize>,
}

/// A pod that is being bound.
struct Active<'a>(&'a watch::Sender<usize>);

impl<'a> Active<'a> {
    fn new(active: &'a watch::Sender<usize>) -> Active<'a> {
        active.send_modify(|active| *active += 1);
        Active(active)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|active| *active -= 1);
    }
}

/// The waits between tries, which double up to a maximum. The server may ask for longer waits.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    pub(super) first: Duration,
    pub(super) longest: Duration,
    /// The longest wait that the server may ask for.
    pub(super) asked: Duration,
}

impl Waits {
    pub(super) const DEFAULT: Waits = Waits {
        first: Duration::from_millis(100),
        longest: Duration::from_secs(5),
        asked: LONGEST_WAIT,
    };

    /// Returns the wait after this error.
    pub(super) fn after(&mut self, error: &ApiError) -> Duration {
        let wait = self.first;
        self.first = self.longest.min(wait * 2);
        error.wait(wait, self.asked)
    }
}

/// The meaning of an answer to a binding.
enum Verdict {
    Bound,
    Conflict,
    Refused,
    /// Not bound, or not sent. Send it again.
    Again,
    /// Perhaps bound.
    Unknown,
}

impl Verdict {
    fn of(error: &ApiError, node: &str) -> Verdict {
        match error {
            ApiError::Unreachable(_) => Verdict::Again,
            ApiError::Invalid(_) | ApiError::NotPermitted => Verdict::Refused,
            ApiError::Refused(refusal) => match refusal.code {
                409 if is_assigned_to(&refusal.message, node) => Verdict::Bound,
                404 | 409 => Verdict::Conflict,
                429 => Verdict::Again,
                ..500 => Verdict::Refused,
                _ => Verdict::Unknown,
            },
            _ => Verdict::Unknown,
        }
    }
}

/// Returns whether a refusal says that the pod is on this node. The API server compares the uid before it says so.
fn is_assigned_to(message: &str, node: &str) -> bool {
    message.ends_with(&format!("is already assigned to node \"{node}\""))
}

/// Why another component did not bind a pod.
pub(crate) enum Unbound {
    /// The pod is not bound.
    Refused(String),
    /// Perhaps bound.
    Unknown(String),
}

impl ApiBinder {
    /// Begins a binding, unless the gate refuses it.
    fn enter(&self, pod: &Pod, node: &str) -> Result<Option<Turn>, BinderError> {
        let Some(gate) = &self.gate else { return Ok(None) };
        let turn =
            gate.enter(&pod.uid, node).ok_or_else(|| BinderError::Refused(NO_SHARD.to_owned()))?;
        Ok(Some(turn))
    }

    /// Binds a pod by these requests, beside no other write to it, and records the event.
    async fn bind_by(
        &self,
        pod: &Pod,
        node: &Name,
        requests: impl Future<Output = Result<(), BinderError>>,
    ) -> Result<(), BinderError> {
        let _active = Active::new(&self.active);
        let turn = self.enter(pod, node)?;
        // A failure that is reported after the binding would contradict it.
        let _held = self.status.hold(&pod.uid).await;
        settled(turn, requests.await)?;
        self.events.record(Occurrence::scheduled(pod, node));
        Ok(())
    }

    /// Lets another component bind the pod: polling `bind` sends the request. If the outcome is unknown, the pod is
    /// read.
    pub(crate) async fn bind_through(
        &self,
        pod: &Pod,
        node: &Name,
        bind: impl Future<Output = Result<(), Unbound>>,
    ) -> Result<(), BinderError> {
        let requests = async {
            if !self.fence.may_write() {
                return Err(BinderError::Failed(NO_LEASE.to_owned()));
            }
            match bind.await {
                Ok(()) => Ok(()),
                Err(Unbound::Refused(why)) => Err(BinderError::Failed(why)),
                Err(Unbound::Unknown(why)) => {
                    match self.is_bound(pod, &pod.uid.to_string(), node).await? {
                        true => Ok(()),
                        false => Err(BinderError::Failed(why)),
                    }
                }
            }
        };
        self.bind_by(pod, node, requests).await
    }

    /// Binds a pod for another scheduler, which records the event itself.
    ///
    /// # Errors
    ///
    /// Those of [`Binder::bind`].
    pub(crate) fn bind_for_another(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        self.outcome(self.send(pod, node))
    }

    /// Waits for the outcome of a binding, which is unknown if the runtime ends.
    pub(crate) fn outcome(
        &self,
        binding: impl Future<Output = Result<(), BinderError>>,
    ) -> Result<(), BinderError> {
        let failed = |ended: RuntimeEnded| BinderError::Failed(ended.to_string());
        self.blocking.check().map_err(failed)?;
        // The binding may have been sent.
        let unknown = |ended: RuntimeEnded| Err(BinderError::Unknown(ended.to_string()));
        self.blocking.run(binding).unwrap_or_else(unknown)
    }

    /// Sends a binding until its outcome is known.
    async fn send(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        let uid = pod.uid.to_string();
        let path = pod_path(pod.namespace(), &pod.name, "binding");
        let binding = Binding::new(pod, &uid, node);
        let (mut waits, mut repeats) = (self.waits, REPEATS);
        loop {
            let Err(error) = self.api.create(&path, &binding).await else { break };
            match Verdict::of(&error, node) {
                Verdict::Bound => break,
                Verdict::Conflict => return Err(BinderError::Conflict(error.to_string())),
                Verdict::Refused => return Err(BinderError::Failed(error.to_string())),
                Verdict::Again => {}
                Verdict::Unknown => {
                    warn_seldom!(pod = %pod.name, %node, %error, "outcome of a binding unknown");
                    if self.is_bound(pod, &uid, node).await? {
                        break;
                    }
                    if repeats == 0 {
                        return Err(BinderError::Failed(error.to_string()));
                    }
                    repeats -= 1;
                }
            }
            if !self.fence.pause(waits.after(&error)).await {
                return Err(BinderError::Failed(error.to_string()));
            }
        }
        Ok(())
    }

    /// Reads a pod until the API server answers. Returns whether it is on the node, or `false` if it has none.
    async fn is_bound(&self, pod: &Pod, uid: &str, node: &str) -> Result<bool, BinderError> {
        let path = pod_path(pod.namespace(), &pod.name, "");
        let mut waits = self.waits;
        loop {
            let error = match self.api.get(&path).await {
                Ok(answer) => match serde_json::from_slice::<PodAnswer<'_>>(&answer) {
                    Ok(found) => return is_here(&found, uid, node).map_err(BinderError::Conflict),
                    Err(error) => ApiError::Malformed(error.to_string()),
                },
                Err(error) if error.is_not_found() => {
                    return Err(BinderError::Conflict(error.to_string()));
                }
                Err(error) => error,
            };
            if !self.fence.pause(waits.after(&error)).await {
                return Err(BinderError::Unknown(error.to_string()));
            }
        }
    }
}

/// Ends the turn of a binding. After an error other than a conflict, a try without an answer may still be applied.
fn settled(turn: Option<Turn>, bound: Result<(), BinderError>) -> Result<(), BinderError> {
    if let (Some(mut turn), Ok(()) | Err(BinderError::Conflict(_))) = (turn, &bound) {
        turn.settle();
    }
    bound
}

fn is_here(found: &PodAnswer<'_>, uid: &str, node: &str) -> Result<bool, String> {
    if found.metadata.uid != uid {
        return Err("the pod was replaced by another one of its name".to_owned());
    }
    match found.node() {
        Some(here) if here == node => Ok(true),
        Some(other) => Err(format!("the pod is already assigned to node \"{other}\"")),
        None if found.metadata.deletion_timestamp.is_some() => {
            Err("the pod is being deleted".to_owned())
        }
        None => Ok(false),
    }
}

impl Binder for ApiBinder {
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        self.outcome(self.bind_by(pod, node, self.send(pod, node)))
    }

    /// The future must be polled on the runtime of the client. If the fence is closed meanwhile, it ends by itself.
    fn request(&self, pod: &Arc<Pod>, node: &Name) -> Option<BindingFuture> {
        let (binder, pod, node) = (self.clone(), pod.clone(), node.clone());
        // Boxed again, so that requests that wait for their turn are small.
        Some(Box::pin(async move {
            Box::pin(binder.bind_by(&pod, &node, binder.send(&pod, &node))).await
        }))
    }

    /// Patches `status.nominatedNodeName`. As in kube-scheduler, the binding cycle continues if this fails, unless the
    /// pod no longer exists.
    fn nominate(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        let nominated = self.blocking.run(self.status.nominate(pod, node));
        match nominated.map_err(|ended| BinderError::Failed(ended.to_string()))? {
            Err(error) if is_gone(&error) => Err(BinderError::Conflict(error.to_string())),
            Err(error) => {
                warn_seldom!(pod = %pod.name, %node, %error, "nomination not written");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
