//! Preemption: room for a pod that fits nowhere, by evicting pods of lower
//! priority (plugins/defaultpreemption, framework/preemption).
//!
//! Each node that would do with fewer pods is tried: by sums of what they take where
//! that alone is in question, on a fork of its own otherwise. Of the
//! candidates the one is chosen whose victims matter least. Which nodes are
//! tried first, where not all are, follows from the pod's uid, so that a replay
//! takes the same ones; kube-scheduler starts at random.

mod candidate;
mod eviction;
mod pick;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::framework::{
    Code, Cycle, Diagnosis, Evictor, FitError, Handle, Interest, Nomination, Plugin, Point,
    Reasons, Status,
};
use crate::model::{Pod, PreemptionPolicy, Uid, stable_hash_of};
use crate::snapshot::{NodeInfo, lanes};

pub use candidate::{Candidate, DryRun};
pub(crate) use pick::best_found;
pub use pick::{best, pick};

const NAME: &str = "DefaultPreemption";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const GOING_ON: &str = "waiting for the preemption for this pod to be finished";

/// Nominates a pod that fits nowhere to a node where pods of lower priority make
/// room for it, and has those evicted: by its handle's
/// [`Evictor`]. Without one it nominates, and evicts nobody.
#[derive(Clone)]
pub struct DefaultPreemption {
    /// Of how many in a hundred nodes that may do candidates are looked for; 10
    /// by default.
    pub min_candidate_nodes_percentage: u32,
    /// And of how many at least; 100 by default.
    pub min_candidate_nodes_absolute: u32,
    handle: Handle,
    going_on: Arc<GoingOn>,
}

/// The pods for which others are being evicted.
#[derive(Debug, Default)]
struct GoingOn(Mutex<HashSet<Uid>>);

impl GoingOn {
    fn set(&self) -> std::sync::MutexGuard<'_, HashSet<Uid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who may make room for whom, and why not (`PodEligibleToPreemptOthers`).
///
/// # Errors
///
/// Why this pod may not have others evicted, in kube-scheduler's words.
pub fn eligible(cycle: Cycle<'_>, diagnosis: &Diagnosis<'_>) -> Result<(), &'static str> {
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
    let mut pods = node.pods();
    let leaves = pods.any(|other| {
        let template = other.template();
        template.priority < pod.template.priority
            && template.is_preempted
            && other.deletion_time().is_some()
    });
    match leaves {
        true => Err("not eligible due to a terminating pod on the nominated node."),
        false => Ok(()),
    }
}

impl DefaultPreemption {
    /// Evicts through this handle's [`Evictor`], and looks at its nominated pods.
    #[must_use]
    pub fn new(handle: &Handle) -> DefaultPreemption {
        DefaultPreemption {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
            handle: handle.clone(),
            going_on: Arc::default(),
        }
    }

    /// How many candidates are enough, of so many nodes that may do
    /// (`calculateNumCandidates`).
    fn enough(&self, nodes: usize) -> usize {
        let share = nodes * self.min_candidate_nodes_percentage as usize / 100;
        share.max(self.min_candidate_nodes_absolute as usize).min(nodes)
    }

    /// The best candidate of those that are found, and why the other nodes that were
    /// tried are none.
    fn candidate(
        &self,
        cycle: Cycle<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> Result<(Option<Candidate>, Reasons, usize), Status> {
        let mut reasons = Reasons::default();
        let (nodes, mut rejected) = with_lower(cycle, diagnosis);
        reasons.add(NO_VICTIMS, rejected);
        let run = DryRun::new(cycle, diagnosis.filters());
        let enough = self.enough(nodes.len() + rejected);
        let offset = stable_hash_of(&cycle.pod.uid.stable_key()) as usize % nodes.len().max(1);
        let (mut free, mut violating) = (Vec::new(), Vec::new());
        for at in 0..nodes.len() {
            match run.find(nodes[(offset + at) % nodes.len()]) {
                Ok(found) if found.is_free() => free.push(found),
                Ok(found) => violating.push(found),
                Err(status) if status.code.is_rejection() => {
                    rejected += 1;
                    status.reasons.into_iter().for_each(|reason| reasons.add(reason, 1));
                }
                Err(status) => return Err(status),
            }
            if !free.is_empty() && free.len() + violating.len() >= enough {
                break;
            }
        }
        Ok((best_found(free.into_iter().chain(violating)), reasons, rejected))
    }
}

/// The nodes that other pods' going may help and that may have pods of lower
/// priority, and how many of the former have none for certain.
fn with_lower<'a>(cycle: Cycle<'a>, diagnosis: &Diagnosis<'a>) -> (Vec<NodeInfo<'a>>, usize) {
    let (cluster, priority) = (cycle.cluster, cycle.pod.template.priority);
    let (mut nodes, mut without) = (Vec::new(), 0);
    for (chunk, mask) in diagnosis.resolvable().filter(|(_, mask)| *mask != 0) {
        if chunk.tally(cluster).lowest_priority() >= priority {
            without += mask.count_ones() as usize;
            continue;
        }
        nodes.extend(lanes(mask).filter_map(|lane| cluster.node_in(chunk, lane)));
    }
    (nodes, without)
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue, Point::PostFilter]
    }

    fn events(&self) -> &'static [Interest] {
        super::hints::nodes::VICTIMS
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        match self.going_on.set().contains(&pod.uid) {
            true => Err(Status::new(Code::UnschedulableAndUnresolvable, NAME, GOING_ON)),
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
        if let Err(why) = eligible(cycle, diagnosis) {
            return (Nomination::Keep, rejected(why.to_owned()));
        }
        let (best, mut reasons, tried) = match self.candidate(cycle, diagnosis) {
            Ok(found) => found,
            Err(status) => return (Nomination::Keep, Some(status)),
        };
        let Some(best) = best else {
            let nodes = cycle.cluster.len();
            reasons.add(NOT_HELPFUL, nodes - tried);
            let error = FitError { reasons: reasons.into_map(), ..FitError::new(nodes) };
            return (Nomination::Clear, rejected(error.to_string()));
        };
        let node = best.node.clone();
        self.evict(cycle.pod, best);
        (Nomination::Node(node), None)
    }
}

impl DefaultPreemption {
    /// Has the victims evicted, and those nominated to the node before whose
    /// priority is lower told to look elsewhere.
    fn evict(&self, preemptor: &Pod, candidate: Candidate) {
        let Some(evictor) = self.handle.evictor() else { return };
        let nominator = self.handle.nominator();
        let lower = |pod: &Pod| pod.template.priority < preemptor.template.priority;
        let mut cleared = nominator.pods_on(&candidate.node);
        cleared.retain(lower);
        cleared.iter().for_each(|pod| drop(nominator.remove(&pod.uid)));
        let eviction = eviction::start(self, preemptor, candidate, cleared);
        Evictor::evict(&**evictor, eviction);
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
