//! DefaultPreemption: which pods may preempt others, and the eviction of the victims (plugins/defaultpreemption). The
//! search for victims is in [`framework::preemption`](crate::framework::preemption).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::framework::preemption::{Candidate, Search, has_terminating_victim};
use crate::framework::{
    Code, Cycle, Diagnosis, Eviction, FitError, Handle, Nomination, PREEMPTION as NAME, Plugin,
    PluginInfo, Point, Status,
};
use crate::model::{EventError, Pod, PreemptionPolicy, Uid};
use crate::snapshot::draft::{check_pod, check_supported};
use crate::snapshot::{PodInfo, Snapshot};

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_CANDIDATE: &str = "no candidate node for preemption";
const IN_PROGRESS: &str = "waiting for the preemption for this pod to be finished";

/// Preempts pods of lower priority for a pod that fits on no node: nominates the pod to the best candidate node, and
/// evicts the victims there through the handle's [`Evictor`](crate::Evictor). Without an evictor, it only
/// nominates.
#[derive(Clone)]
pub struct DefaultPreemption {
    /// The search stops once this percentage of the possible nodes are candidates (`minCandidateNodesPercentage`); 10
    /// by default.
    pub min_candidate_nodes_percentage: u32,
    /// The search does not stop before this number of candidates is found (`minCandidateNodesAbsolute`); 100 by
    /// default.
    pub min_candidate_nodes_absolute: u32,
    handle: Handle,
    in_progress: Arc<InProgress>,
}

/// The preemptors whose victims are being evicted.
#[derive(Debug, Default)]
struct InProgress(Mutex<HashSet<Uid>>);

impl InProgress {
    fn set(&self) -> std::sync::MutexGuard<'_, HashSet<Uid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks whether a pod may preempt others (`PodEligibleToPreemptOthers`). Victims that are being evicted through the
/// handle count as terminating.
///
/// # Errors
///
/// Returns why the pod may not preempt others, in kube-scheduler's words.
#[doc(hidden)]
pub fn eligible(
    cycle: Cycle<'_>,
    diagnosis: &Diagnosis<'_>,
    handle: &Handle,
) -> Result<(), &'static str> {
    let pod = cycle.pod;
    if pod.template.preemption_policy == PreemptionPolicy::Never {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod.nominated_node_name.as_ref().and_then(|name| cycle.cluster.node(name));
    let Some(node) = nominated.filter(|node| node.node().is_some()) else { return Ok(()) };
    let never = |status: Status| status.code == Code::UnschedulableAndUnresolvable;
    if diagnosis.status(node).is_some_and(never) {
        return Ok(());
    }
    match has_terminating_victim(cycle, node, handle) {
        true => Err("not eligible due to a terminating pod on the nominated node."),
        false => Ok(()),
    }
}

/// Checks that the engine accepts the pod on some node.
fn accepted(cycle: Cycle<'_>) -> Result<(), EventError> {
    let Cycle { cluster, pod, .. } = cycle;
    check_pod(pod)?;
    check_supported(cluster, pod)?;
    match cluster.pod(&pod.uid) {
        None => Ok(()),
        Some(_) => Err(EventError::AlreadyInCache { uid: pod.uid.clone() }),
    }
}

impl DefaultPreemption {
    /// Creates the plugin with kube-scheduler's defaults. It uses the handle's
    /// [`Evictor`](crate::Evictor) and nominator.
    #[must_use]
    pub fn new(handle: &Handle) -> DefaultPreemption {
        DefaultPreemption {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
            handle: handle.clone(),
            in_progress: Arc::default(),
        }
    }

    /// Returns how many candidates are enough, out of `nodes` possible nodes (`calculateNumCandidates`).
    fn enough(&self, nodes: usize) -> usize {
        let share = nodes * self.min_candidate_nodes_percentage as usize / 100;
        share.max(self.min_candidate_nodes_absolute as usize).min(nodes)
    }
}

impl Plugin for DefaultPreemption {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreEnqueue, Point::PostFilter])
            .events(super::hints::nodes::VICTIMS)
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        match self.in_progress.set().contains(&pod.uid) {
            true => Err(Status::new(Code::UnschedulableAndUnresolvable, NAME, IN_PROGRESS)),
            false => Ok(()),
        }
    }

    fn post_filter(
        &self,
        cycle: Cycle<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> (Nomination, Option<Status>) {
        let rejected = |why: String| {
            Some(Status::new(Code::Unschedulable, NAME, format!("preemption: {why}")))
        };
        if let Err(why) = eligible(cycle, diagnosis, &self.handle) {
            return (Nomination::Keep, rejected(why.to_owned()));
        }
        // No victim may be evicted for a pod that the engine refuses on every node.
        if let Err(error) = accepted(cycle) {
            return (Nomination::Clear, rejected(format!("not eligible: {error}")));
        }
        let search = match Search::run(cycle, diagnosis, &self.handle, |nodes| self.enough(nodes)) {
            Ok(search) => search,
            Err(status) => {
                let reason = format!("preemption: {status}");
                return (Nomination::Keep, Some(Status { reasons: vec![reason], ..status }));
            }
        };
        let Search { best, is_emptied, mut reasons, rejected: tried } = search;
        if is_emptied {
            return (Nomination::Keep, rejected(NO_CANDIDATE.to_owned()));
        }
        let Some(best) = best else {
            let nodes = cycle.cluster.len();
            reasons.add(NOT_HELPFUL, nodes - tried);
            let error = FitError { reasons: reasons.into_map(), ..FitError::new(nodes) };
            return (Nomination::Clear, rejected(error.to_string()));
        };
        let node = best.node.clone();
        self.evict(cycle, best);
        (Nomination::Node(node), None)
    }
}

impl DefaultPreemption {
    /// Evicts the victims, and clears the nominations of pods of lower priority to the node. If all victims are
    /// terminating already, their deletions queue the preemptor, and nothing has to be done.
    fn evict(&self, Cycle { cluster, pod: preemptor, .. }: Cycle<'_>, candidate: Candidate) {
        let Some(evictor) = self.handle.evictor() else { return };
        if candidate.victims.iter().all(|victim| victim.deletion_time.is_some()) {
            return;
        }
        let nominator = self.handle.nominator();
        let lower = |pod: &Pod| pod.template.priority < preemptor.template.priority;
        let mut cleared = nominator.pods_on(&candidate.node);
        cleared.retain(lower);
        cleared.iter().for_each(|pod| drop(nominator.remove(&pod.uid)));
        let eviction = self.eviction(preemptor, candidate, cleared);
        let newer = |now: &Arc<Snapshot>| {
            now.branch() == cluster.branch() && now.generation() > cluster.generation()
        };
        if let Some(now) = self.handle.snapshot().filter(newer) {
            let is_running = |pod: PodInfo<'_>| pod.deletion_time().is_none();
            let ended = |victim: &&Pod| !now.pod(&victim.uid).is_some_and(is_running);
            for victim in eviction.victims().iter().filter(ended) {
                eviction.report_gone(victim);
                eviction.retry();
            }
        }
        evictor.evict(eviction);
    }

    /// Creates the eviction of a candidate's victims. The preemptor is gated until the eviction is dropped.
    fn eviction(&self, preemptor: &Pod, candidate: Candidate, cleared: Vec<Pod>) -> Eviction {
        let (in_progress, uid) = (self.in_progress.clone(), preemptor.uid.clone());
        in_progress.set().insert(uid.clone());
        let end = move || {
            in_progress.set().remove(&uid);
        };
        let Candidate { node, victims, .. } = candidate;
        Eviction::new(&self.handle, preemptor.clone(), node, victims, end).clearing(cleared)
    }
}

impl std::fmt::Debug for DefaultPreemption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(NAME)
            .field("min_candidate_nodes_percentage", &self.min_candidate_nodes_percentage)
            .field("min_candidate_nodes_absolute", &self.min_candidate_nodes_absolute)
            .finish_non_exhaustive()
    }
}
