//! DefaultPreemption: which pods may preempt others, and the eviction of the victims (plugins/defaultpreemption). The
//! search for victims is in [`framework::preemption`](crate::framework::preemption).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::framework::preemption::{Candidate, Search};
use crate::framework::{
    Code, Cycle, Diagnosis, Eviction, Evictor, FitError, Handle, Interest, Nomination,
    PREEMPTION as NAME, Plugin, Point, Status,
};
use crate::model::{Pod, PreemptionPolicy, Uid};

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
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
        let search = match Search::run(cycle, diagnosis, |nodes| self.enough(nodes)) {
            Ok(search) => search,
            Err(status) => return (Nomination::Keep, Some(status)),
        };
        let Search { best, mut reasons, rejected: tried } = search;
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
        Evictor::evict(&**evictor, self.eviction(preemptor, candidate, cleared));
    }

    /// The eviction of a candidate's victims. Until it is dropped the preemptor does not queue.
    fn eviction(&self, preemptor: &Pod, candidate: Candidate, cleared: Vec<Pod>) -> Eviction {
        let (going_on, uid) = (self.going_on.clone(), preemptor.uid.clone());
        going_on.set().insert(uid.clone());
        let end = move || {
            going_on.set().remove(&uid);
        };
        let Candidate { node, victims, .. } = candidate;
        Eviction::new(&self.handle, preemptor.clone(), node, (victims, cleared), end)
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
