//! Watches the mirror's events for bindings, on the thread that submits them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use portolan::cache::{Event, Reader, Snapshot};
use portolan::model::{Name, Pod, Uid};

use crate::mirror::{Condition, Observer, PodIndex};

use super::counts::Counts;

/// The nominated pods with their nodes.
pub(super) type Nominated = Arc<Vec<(Arc<Pod>, Name)>>;

/// A pod's position in a scheduler's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) priority: Reverse<i32>,
    pub(super) since: Since,
}

/// When a pod entered the queue, or returned to it after a failed attempt. Pods that were pending when the shadow
/// started come first, in the order of their last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Since {
    /// The number of pending pods and their updates before it, or `None` before the start, which sorts first.
    seen: Option<u64>,
    resource_version: u64,
}

/// A binding of the other scheduler.
#[derive(Debug)]
pub(super) struct Binding {
    /// The pod without its node, as the scheduler saw it.
    pub(super) pod: Arc<Pod>,
    /// The pod with its node.
    pub(super) bound: Arc<Pod>,
    pub(super) node: Name,
    pub(super) scheduler: Name,
    /// When the binding was seen.
    pub(super) at: Instant,
    /// When the pending pod was seen, if that was after the start.
    pub(super) appeared: Option<Instant>,
    pub(super) rank: Rank,
    /// Whether the pod had its nomination before the attempt that placed it, from one that failed.
    pub(super) was_nominated: bool,
    /// The version right before the binding.
    pub(super) version: Arc<Snapshot>,
    pub(super) nominated: Nominated,
}

impl Binding {
    /// The time from the first sight of the pending pod.
    pub(super) fn waited(&self) -> Option<Duration> {
        Some(self.at.saturating_duration_since(self.appeared?))
    }
}

/// An entry that the judge receives. Entries have the order of the mirror's events.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// A binding of a pod of one of the schedulers.
    Binding(Arc<Binding>),
    /// Another change that may affect decisions, with the version before it.
    Change {
        /// When the change was seen.
        at: Instant,
        /// The version before the change.
        version: Arc<Snapshot>,
    },
}

impl Seen {
    pub(super) fn at(&self) -> Instant {
        match self {
            Seen::Binding(binding) => binding.at,
            Seen::Change { at, .. } => *at,
        }
    }

    /// The version right before it.
    pub(super) fn version(&self) -> &Arc<Snapshot> {
        match self {
            Seen::Binding(binding) => &binding.version,
            Seen::Change { version, .. } => version,
        }
    }
}

/// A pod that waits for one of the schedulers.
struct Waiting {
    pod: Arc<Pod>,
    appeared: Option<Instant>,
    rank: Rank,
    /// The condition `PodScheduled`, if it is known.
    condition: Option<Condition>,
    was_nominated: bool,
}

/// Returns the condition `PodScheduled` of exactly this version of a pending pod: `None` if it is not known, and
/// `Some(None)` if the pod does not have it.
type Statuses = Box<dyn Fn(&Pod) -> Option<Option<Condition>> + Send>;

/// Reads conditions from a mirror's index. The index may be ahead of the events, and then does not have the version.
pub(super) fn statuses(pods: Arc<PodIndex>) -> Statuses {
    Box::new(move |pod| {
        let known = pods.get(&pod.uid)?;
        let is_same = known.resource_version == pod.resource_version;
        Some(known.pending.filter(|_| is_same)?.scheduled)
    })
}

/// Sends bindings to the judge.
pub(super) struct Recorder {
    reader: Reader,
    schedulers: Arc<[Name]>,
    statuses: Statuses,
    /// Whether the mirror is synced. Earlier bindings are not judged. Relaxed: one binding more or less may be judged.
    is_synced: Arc<AtomicBool>,
    waiting: HashMap<Uid, Waiting>,
    nominated: Nominated,
    /// The number of pending pods and their updates so far.
    pending: u64,
    seen: Sender<Seen>,
    counts: Arc<Counts>,
}

/// The number of bindings and changes that may wait for the judge. Each holds a version.
const BACKLOG: usize = 10_000;

impl Recorder {
    pub(super) fn new(
        reader: Reader,
        schedulers: Arc<[Name]>,
        statuses: Statuses,
        is_synced: Arc<AtomicBool>,
        seen: Sender<Seen>,
        counts: Arc<Counts>,
    ) -> Recorder {
        let (waiting, nominated, pending) = (HashMap::new(), Nominated::default(), 0);
        Recorder {
            reader,
            schedulers,
            statuses,
            is_synced,
            waiting,
            nominated,
            pending,
            seen,
            counts,
        }
    }

    /// Records a pod that waits. A changed condition reports a failed attempt, which puts the pod at the end of the
    /// queue among the pods of its priority. It keeps its place with other updates.
    ///
    /// kube-scheduler writes the nomination for a preemption together with the condition. It also writes the node that
    /// it has chosen before it waits for permission or binds volumes, without the condition, and such a nomination is
    /// the decision itself.
    fn wait(&mut self, pod: &Arc<Pod>) {
        let is_synced = self.is_synced.load(Ordering::Relaxed);
        let known = self.waiting.get(&pod.uid);
        self.pending += 1;
        let seen = is_synced.then_some(self.pending);
        let status = (self.statuses)(pod);
        let is_changed =
            |known: &Waiting| status.as_ref().is_some_and(|now| *now != known.condition);
        let has_returned = known.is_none_or(is_changed);
        let since = match known {
            Some(known) if !has_returned => known.rank.since,
            _ => Since { seen, resource_version: pod.resource_version },
        };
        let has_failed =
            has_returned && status.iter().flatten().any(|condition| &*condition.status == "False");
        let had_it = known.is_some_and(|known| {
            known.was_nominated && known.pod.nominated_node_name == pod.nominated_node_name
        });
        let was_nominated = pod.nominated_node_name.is_some() && (has_failed || had_it);
        let condition = status.unwrap_or_else(|| known.and_then(|known| known.condition.clone()));
        let rank = Rank { priority: Reverse(pod.template.priority), since };
        let appeared = match known {
            Some(known) => known.appeared,
            None => is_synced.then(Instant::now),
        };
        let before = known.and_then(|known| known.pod.nominated_node_name.clone());
        let waiting = Waiting { pod: pod.clone(), appeared, rank, condition, was_nominated };
        self.waiting.insert(pod.uid.clone(), waiting);
        if before != pod.nominated_node_name {
            self.nominate(&pod.uid, pod.nominated_node_name.clone().map(|node| (pod, node)));
        }
    }

    /// Records that a pod no longer waits.
    fn leave(&mut self, uid: &Uid) -> Option<Waiting> {
        let left = self.waiting.remove(uid)?;
        if left.pod.nominated_node_name.is_some() {
            self.nominate(uid, None);
        }
        Some(left)
    }

    fn nominate(&mut self, uid: &Uid, nominated: Option<(&Arc<Pod>, Name)>) {
        let all = Arc::make_mut(&mut self.nominated);
        all.retain(|(pod, _)| pod.uid != *uid);
        all.extend(nominated.map(|(pod, node)| (pod.clone(), node)));
    }

    fn bound(&mut self, pod: &Arc<Pod>) {
        let nominated = self.nominated.clone();
        let waited = self.leave(&pod.uid);
        if !self.is_synced.load(Ordering::Relaxed) {
            return;
        }
        let scheduler = pod.scheduler_name();
        let scheduler = self.schedulers.iter().find(|name| ***name == *scheduler).cloned();
        let (Some(scheduler), Some(node)) = (scheduler, pod.node_name.clone()) else {
            return self.change();
        };
        let Some(Waiting { pod: pending, appeared, rank, was_nominated, .. }) = waited else {
            self.counts.appeared();
            return self.change();
        };
        if self.seen.len() >= BACKLOG {
            self.counts.skipped();
            return;
        }
        let binding = Binding {
            pod: pending,
            bound: pod.clone(),
            node,
            scheduler,
            at: Instant::now(),
            appeared,
            rank,
            was_nominated,
            version: self.version(),
            nominated,
        };
        self.send(Seen::Binding(Arc::new(binding)));
    }

    /// Returns whether the pod is already on the node that it names.
    fn is_placed(&mut self, pod: &Pod) -> bool {
        let version = self.version();
        let known = version.pod(&pod.uid).filter(|known| !known.is_assumed());
        known.is_some_and(|known| Some(known.node().name()) == pod.node_name.as_ref())
    }

    fn change(&mut self) {
        if self.is_synced.load(Ordering::Relaxed) && self.seen.len() < BACKLOG {
            let version = self.version();
            self.send(Seen::Change { at: Instant::now(), version });
        }
    }

    fn version(&mut self) -> Arc<Snapshot> {
        let version = self.reader.snapshot();
        self.reader.release();
        version
    }

    fn send(&self, seen: Seen) {
        // The judge ends only after this thread, unless it has panicked.
        let _ = self.seen.send(seen);
    }
}

impl Observer for Recorder {
    fn before(&mut self, event: &Event) {
        match event {
            Event::PutPod(pod) if pod.node_name.is_some() => {
                if !self.is_placed(pod) {
                    self.bound(pod);
                } else if pod.deletion_time.is_some() {
                    self.change();
                }
                // Other updates of placed pods are mostly the kubelet's reports, which decisions do not depend on.
            }
            Event::PutPod(pod) if pod.deletion_time.is_some() => drop(self.leave(&pod.uid)),
            Event::PutPod(pod) => self.wait(pod),
            Event::RemovePending(uid) => drop(self.leave(uid)),
            _ => self.change(),
        }
    }
}
