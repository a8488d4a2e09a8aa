//! Writes a scheduler's reports to the status of pods: the condition `PodScheduled` and the nominated node.
//!
//! Reports are written by background tasks and never block the scheduling thread. Requests of one pod never overlap,
//! and a newer report replaces one that still waits: see [`StatusWriter::report_failure`].
//!
//! Differences from kube-scheduler 1.36:
//!
//! - The patch has `metadata.uid` as a precondition, so that it cannot reach a pod of the same name that was created
//!   meanwhile.
//! - The patch is made against the newest known status of the pod, not against the status that the attempt saw. It is
//!   omitted if the status already matches the report.
//! - `$setElementOrder/conditions` lists `PodScheduled` alone, since other conditions of pending pods are not kept. The
//!   API server keeps conditions that the list does not name.
//! - Nothing is written if the pod is known to be gone, or to have a node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use portolan::model::{Name, Pod, Uid};
use portolan::plugin::Nomination;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::bodies::{
    ConditionType, PodAnswer, StatusChange, StatusPatch, Uid as UidBody, pod_path,
};
use super::condition::Wanted;
use super::events::EventRecorder;
use super::failure::FailureReport;
use super::gate::{Gate, Held, Put};
use super::occurrence::Occurrence;
use super::{Fence, LONGEST_WAIT};
use crate::api::{Api, ApiError, Patch};
use crate::debug::debug_by;
use crate::lock::lock;
use crate::mirror::{KnownPod, PendingStatus, PodIndex};
use crate::seldom::warn_seldom;

const POD_SCHEDULED: &str = "PodScheduled";
/// The waits between tries of a patch (client-go `retry.DefaultBackoff`).
const WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Limits of a [`StatusWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusLimits {
    /// The number of statuses in flight at once. Far lower than the client's limit, so that bindings have priority.
    pub(crate) in_flight: usize,
    /// The number of pods whose status may wait. A report of a further pod is dropped; the pod's next attempt reports
    /// again.
    pub(crate) waiting: usize,
}

impl Default for StatusLimits {
    fn default() -> StatusLimits {
        StatusLimits { in_flight: 16, waiting: 65_536 }
    }
}

/// Counts the reports of a [`StatusWriter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusFigures {
    /// Patches that the API server accepted.
    pub(crate) sent: u64,
    /// Reports that were left out: the pod has the status already, has a node, or is gone.
    pub(crate) unchanged: u64,
    /// Reports that a newer report of the same pod replaced.
    pub(crate) replaced: u64,
    /// Reports that were dropped because too many pods waited.
    pub(crate) dropped: u64,
    /// Patches that failed, including patches of nominations and of victims' conditions.
    pub(crate) failed: u64,
    /// Reports that wait now.
    pub(crate) waiting: u64,
}

/// Reports failed attempts in pods' statuses. Clones share their queue.
#[derive(Clone)]
pub(crate) struct StatusWriter(Arc<Shared>);

struct Shared {
    api: Api,
    pods: Arc<PodIndex>,
    fence: Fence,
    events: EventRecorder,
    gate: Gate<Report>,
    /// The written statuses that the mirror may not have seen yet.
    written: Mutex<Written>,
    /// Without `waiting`.
    figures: Mutex<StatusFigures>,
}

#[derive(Default)]
struct Written {
    by_uid: HashMap<Uid, (u64, PendingStatus)>,
    /// The size after the last removal of statuses that the mirror has seen.
    kept: usize,
}

/// A report that waits.
pub(super) struct Report {
    pod: Target,
    failure: FailureReport,
}

/// The pod of a patch.
pub(super) struct Target {
    namespace: Name,
    name: Name,
    uid: Uid,
}

impl Target {
    pub(super) fn of(pod: &Pod) -> Target {
        Target { namespace: pod.namespace().clone(), name: pod.name.clone(), uid: pod.uid.clone() }
    }
}

impl StatusWriter {
    /// Starts a writer, whose tasks run until the fence is closed for good.
    pub(super) fn start(
        runtime: &Handle,
        api: Api,
        pods: Arc<PodIndex>,
        fence: Fence,
        events: EventRecorder,
        limits: StatusLimits,
    ) -> StatusWriter {
        let gate = Gate::new(limits.waiting);
        let (written, figures) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { api, pods, fence, events, gate, written, figures });
        for _ in 0..limits.in_flight.max(1) {
            let shared = shared.clone();
            runtime.spawn(async move {
                tokio::select! {
                    () = shared.fence.lost() => {}
                    () = shared.work() => {}
                }
            });
        }
        StatusWriter(shared)
    }

    /// Reports that an attempt to schedule a pod failed: records the event `FailedScheduling`, and patches the
    /// condition `PodScheduled` and the nominated node where they differ. Requeue the pod and record its nomination
    /// first. Never blocks.
    ///
    /// A report replaces an older one of the same pod that still waits, but keeps its nomination if it has none of its
    /// own. A binding of the pod discards both. If more pods wait than [`StatusLimits::waiting`], the report is
    /// dropped, but not its event.
    pub(crate) fn report_failure(&self, pod: &Pod, failure: FailureReport) {
        let shared = &*self.0;
        shared.events.record(Occurrence::failed_scheduling(pod, &failure.message));
        let report = Report { pod: Target::of(pod), failure };
        let merge = |older: Report, mut newer: Report| {
            if newer.failure.nomination == Nomination::Keep {
                newer.failure.nomination = older.failure.nomination;
            }
            newer
        };
        match shared.gate.put(&pod.uid, report, merge) {
            Put::Waits => {}
            Put::Replaced => lock(&shared.figures).replaced += 1,
            Put::Dropped => {
                lock(&shared.figures).dropped += 1;
                warn_seldom!(pod = %pod.name, "status dropped: too many pods wait for theirs");
            }
        }
    }

    /// Nominates a pod to a node once the pod's request in flight has ended. A report that waits keeps its condition
    /// and loses its nomination. Does nothing if the pod is known to have this nomination, or a node.
    pub(super) async fn nominate(&self, pod: &Pod, node: &Name) -> Result<(), ApiError> {
        self.change_nomination(pod, Some(node), |_| true).await
    }

    /// Clears a pod's nomination to a node once the pod's request in flight has ended. A nomination to another node,
    /// which is newer, stays.
    pub(super) async fn clear(&self, pod: &Pod, node: &Name) -> Result<(), ApiError> {
        self.change_nomination(pod, None, |nominated| nominated == node).await
    }

    /// Changes the nomination if the present one is `outdated`, or if there is none.
    async fn change_nomination(
        &self,
        pod: &Pod,
        node: Option<&Name>,
        outdated: impl Fn(&Name) -> bool,
    ) -> Result<(), ApiError> {
        let shared = &*self.0;
        let strip = |mut report: Report| {
            let stays = match &report.failure.nomination {
                Nomination::Node(waiting) => !outdated(waiting),
                // The report clears any nomination, even a newer one that stays now.
                Nomination::Clear => node.is_none(),
                _ => false,
            };
            if !stays {
                report.failure.nomination = Nomination::Keep;
            }
            Some(report)
        };
        let held = shared.gate.hold(&pod.uid, strip).await;
        let known = shared.latest(&pod.uid);
        if known.as_ref().is_some_and(|known| known.node.is_some()) {
            return Ok(());
        }
        let nominated = match known.as_ref().and_then(|known| known.pending.as_deref()) {
            Some(status) => &status.nominated,
            None => &pod.nominated_node_name,
        };
        let is_newer = nominated.as_ref().is_some_and(|nominated| !outdated(nominated));
        if nominated.as_ref() == node || is_newer {
            return Ok(());
        }
        let nominated_node_name = Some(node.map(|node| &**node));
        let change = StatusChange { nominated_node_name, ..StatusChange::default() };
        let answer = shared.patch(&Target::of(pod), change, Some(&held)).await?;
        shared.keep(&pod.uid, &answer);
        Ok(())
    }

    /// Patches a pod's status at once, even if a report of the pod waits.
    pub(super) async fn patch(
        &self,
        pod: &Target,
        status: StatusChange<'_>,
    ) -> Result<Bytes, ApiError> {
        self.0.patch(pod, status, None).await
    }

    /// Discards the pod's waiting report, waits until its request in flight has ended, and keeps others from passing
    /// until the result is dropped.
    pub(super) async fn hold(&self, uid: &Uid) -> Held<'_, Report> {
        self.0.gate.hold(uid, |_| None).await
    }

    /// Waits until no report waits or is being written.
    pub(super) async fn flush(&self) {
        self.0.gate.idle().await;
    }

    /// The reports that wait or are being written.
    pub(super) fn unwritten(&self) -> usize {
        self.0.gate.unended()
    }

    /// Counts the reports so far.
    pub(crate) fn figures(&self) -> StatusFigures {
        StatusFigures { waiting: self.0.gate.waiting() as u64, ..*lock(&self.0.figures) }
    }
}

impl Shared {
    async fn work(&self) {
        loop {
            let (report, held) = self.gate.next().await;
            self.send(&report, &held).await;
        }
    }

    async fn send(&self, report: &Report, held: &Held<'_, Report>) {
        let Report { pod, failure } = report;
        let known = self.latest(&pod.uid);
        let known = known.as_ref().filter(|known| known.node.is_none());
        let Some((status, known)) =
            known.and_then(|known| Some((known.pending.as_deref()?, known)))
        else {
            lock(&self.figures).unchanged += 1;
            return;
        };
        let wanted = Wanted {
            kind: POD_SCHEDULED,
            status: "False",
            reason: failure.reason.as_str(),
            message: &failure.message,
            generation: known.generation,
        };
        let difference = wanted.compare(status.scheduled.as_ref(), Timestamp::now());
        let nomination = match &failure.nomination {
            Nomination::Clear => Some(None),
            Nomination::Node(node) => Some(Some(node)),
            _ => None,
        };
        let nomination = nomination.filter(|node| *node != status.nominated.as_ref());
        if !difference.matters && nomination.is_none() {
            lock(&self.figures).unchanged += 1;
            return;
        }
        let order = || vec![ConditionType { kind: POD_SCHEDULED }];
        let change = StatusChange {
            order: (difference.is_known && difference.change.is_some()).then(order),
            conditions: difference.change.map(|change| [change]),
            nominated_node_name: nomination.map(|node| node.map(|node| &**node)),
        };
        match self.patch(pod, change, Some(held)).await {
            Ok(answer) => self.keep(&pod.uid, &answer),
            Err(error) => {
                let Target { namespace, name, .. } = pod;
                let pod = format_args!("{namespace}/{name}");
                warn_seldom!(%pod, %error, "status not written");
            }
        }
    }

    /// Sends a patch, and repeats it if it failed for a reason that may pass, unless someone waits for the turn that it
    /// holds.
    async fn patch(
        &self,
        pod: &Target,
        status: StatusChange<'_>,
        held: Option<&Held<'_, Report>>,
    ) -> Result<Bytes, ApiError> {
        let uid = pod.uid.to_string();
        let path = pod_path(&pod.namespace, &pod.name, "status");
        let body = StatusPatch { metadata: UidBody { uid: &uid }, status };
        let mut waits = WAITS.into_iter();
        let patched = loop {
            let error = match self.api.patch(&path, Patch::Strategic, &body).await {
                Ok(answer) => break Ok(answer),
                Err(error) => error,
            };
            let wait = waits.next().filter(|_| may_pass(&error));
            let Some(wait) = wait else { break Err(error) };
            let wait = error.wait(wait, LONGEST_WAIT);
            let Some(held) = held else {
                sleep(wait).await;
                continue;
            };
            tokio::select! {
                () = held.wanted() => break Err(error),
                () = sleep(wait) => {}
            }
        };
        let mut figures = lock(&self.figures);
        *(if patched.is_ok() { &mut figures.sent } else { &mut figures.failed }) += 1;
        drop(figures);
        patched
    }

    /// Returns the pod as the mirror knows it, or as a later answer to one of our patches showed it.
    fn latest(&self, uid: &Uid) -> Option<KnownPod> {
        let mut known = self.pods.get(uid)?;
        let mut written = lock(&self.written);
        if let Some((version, status)) = written.by_uid.get(uid) {
            if *version <= known.resource_version {
                written.by_uid.remove(uid);
            } else if known.pending.is_some() {
                known.pending = Some(Box::new(status.clone()));
            }
        }
        Some(known)
    }

    /// Remembers the status that a patch returned until the mirror has seen it.
    fn keep(&self, uid: &Uid, answer: &Bytes) {
        let Ok(answer) = serde_json::from_slice::<PodAnswer<'_>>(answer) else { return };
        let Ok(version) = answer.metadata.resource_version.parse::<u64>() else { return };
        let status = answer.status.pending();
        let mut written = lock(&self.written);
        written.by_uid.insert(uid.clone(), (version, status));
        if written.by_uid.len() > 1_024 + 2 * written.kept {
            let is_newer = |uid: &Uid, version: u64| {
                self.pods.get(uid).is_some_and(|known| known.resource_version < version)
            };
            written.by_uid.retain(|uid, (version, _)| is_newer(uid, *version));
            written.kept = written.by_uid.len();
        }
    }
}

/// Returns whether a patch may succeed if it is repeated (`util.Retriable`, a server that asks to wait or gave up, and
/// a lost connection, which kube-scheduler does not repeat after). A repeated patch changes nothing.
fn may_pass(error: &ApiError) -> bool {
    let is_lost = matches!(error, ApiError::Unreachable(_) | ApiError::NoAnswer(_));
    is_lost || matches!(error.code(), Some(409 | 429 | 500 | 502..=504))
}

debug_by!(StatusWriter, it, figures: it.figures());
