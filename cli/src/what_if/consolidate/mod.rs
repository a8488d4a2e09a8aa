//! Finds a small set of nodes on which all pods fit, so that the other nodes can be removed.
//!
//! The smallest set is a packing problem, so the search is a heuristic with a time limit, and the lower bound limits
//! how far the answer can be from the smallest set.
//!
//! The search begins with the number of nodes that the bound leaves. All of them are cordoned at once, so no pod moves
//! twice, and drained one after the other. The scheduler itself decides where each pod goes, so every constraint of its
//! profile holds. When a pod fits nowhere, one of the cordoned nodes that are not drained yet is uncordoned. At the end
//! each node that remains is tried once more on its own.
//!
//! The result is the outcome of a last run, in which exactly the found nodes are cordoned and
//! drained in the printed order. Pods move one at a time, so a budget that allows one disruption
//! holds; nodes with other pods, which kubectl would not evict, are never candidates.

mod bound;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::cache::{Cluster, Fork, Snapshot};
use portolan::model::{Name, Node, Pod};
use portolan::plugin::Cycle;
use portolan::scheduler::drain::{self, DrainOptions, Stays};
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles};
use rayon::prelude::*;
use serde::Serialize;

use crate::resource_claims::uses_devices;
use crate::text::count;

use super::budgets::Limits;
use super::record::Record;

use self::bound::{Bound, Demand};

/// The profiles of the schedulers.
type Schedulers = Profiles<(Arc<Framework>, AlgorithmConfig)>;

/// The result.
pub(super) struct Consolidation {
    /// The nodes that can be removed, in the order in which they are drained.
    pub(super) emptied: Vec<Emptied>,
    /// The nodes that remain.
    pub(super) remaining: Vec<Kept>,
    /// The pods that move: old and new node.
    pub(super) moves: Vec<(Pod, Name, Name)>,
    pub(super) bound: Bound,
    /// Whether the search ended before its time was over.
    pub(super) is_complete: bool,
    pub(super) spent: Duration,
}

impl Consolidation {
    /// The numbers of nodes, at this moment.
    pub(super) fn headline(&self, when: Option<&str>) -> String {
        let Consolidation { emptied, remaining, bound, is_complete, .. } = self;
        format!(
            "{} of {} can be removed{}, {} {}; at least {} needed: {}{}",
            emptied.len(),
            count(emptied.len() + remaining.len(), "node"),
            when.map_or(String::new(), |when| format!(" {when}")),
            remaining.len(),
            if remaining.len() == 1 { "remains" } else { "remain" },
            bound.nodes,
            bound.by,
            if *is_complete { "" } else { "; the time ran out: raise --time-limit" }
        )
    }
}

/// A node that can be removed.
#[derive(Serialize)]
pub(super) struct Emptied {
    #[serde(rename = "node")]
    pub(super) name: Name,
    /// The pods that move to other nodes.
    pub(super) pods: usize,
}

/// A node that remains.
#[derive(Serialize)]
pub(super) struct Kept {
    #[serde(rename = "node")]
    pub(super) name: Name,
    pub(super) why: String,
}

/// The labels of control plane nodes, which are not removed.
const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The maximum number of nodes that are uncordoned for one pod.
const MOST_OPENED: usize = 2;

/// A node of the search.
struct Candidate {
    node: Arc<Node>,
    /// The pods that must leave it, large ones first.
    pods: Vec<Pod>,
    /// Why it can never be emptied.
    fixed: Option<String>,
    /// The largest share of a resource of an average node that its pods need.
    used: f64,
    /// The same as a share of the node itself.
    size: f64,
}

/// The search.
struct Search<'c> {
    from: &'c Cluster,
    schedulers: &'c Schedulers,
    nodes: Vec<Candidate>,
    demand: Demand,
    deadline: Instant,
}

/// A run: which nodes were emptied, in their order.
struct Run {
    fork: Fork,
    emptied: Vec<usize>,
    /// Why nodes could not be emptied.
    why: Vec<Option<String>>,
    is_complete: bool,
}

/// Searches for at most this time, except that the last run always completes.
pub(super) fn run(
    from: &Snapshot,
    (limits, record): (&mut Limits<'_>, &Record),
    options: DrainOptions,
    time: Duration,
) -> Consolidation {
    let started = Instant::now();
    let schedulers = &record.profiles;
    let nodes = candidates(from, limits, record, options);
    let fixed: Vec<bool> = nodes.iter().map(|node| node.fixed.is_some()).collect();
    let demand = Demand::of(from, &fixed);
    let bound = demand.bound();
    // The last run takes about as long as the search, which it repeats without its errors.
    let deadline = started + time / 2;
    let search = Search { from, schedulers, nodes, demand, deadline };
    let found = search.best(&bound);
    let last = search.attempt(&found.emptied, None);
    let moved = last.emptied.iter().flat_map(|at| {
        let node = &search.nodes[*at];
        node.pods.iter().map(move |pod| (pod, &node.node.name))
    });
    let moves = moved.filter_map(|(pod, was)| {
        let is = last.fork.pod(&pod.uid)?.node().name().clone();
        (is != *was).then(|| (pod.clone(), was.clone(), is))
    });
    let moves = moves.collect();
    let mut is_emptied = vec![false; search.nodes.len()];
    last.emptied.iter().for_each(|at| is_emptied[*at] = true);
    let emptied = last.emptied.iter().map(|at| {
        let node = &search.nodes[*at];
        Emptied { name: node.node.name.clone(), pods: node.pods.len() }
    });
    let remaining = search.nodes.iter().enumerate().filter(|(at, _)| !is_emptied[*at]);
    let remaining = remaining.map(|(at, node)| {
        let why = node.fixed.clone().or_else(|| last.why[at].clone());
        let why = why.or_else(|| found.why[at].clone());
        let why = why.unwrap_or_else(|| "needed for its pods or those of other nodes".to_owned());
        Kept { name: node.node.name.clone(), why }
    });
    Consolidation {
        emptied: emptied.collect(),
        remaining: remaining.collect(),
        moves,
        bound,
        is_complete: found.is_complete,
        spent: started.elapsed(),
    }
}

/// All nodes in the cluster's order.
fn candidates(
    from: &Cluster,
    limits: &mut Limits<'_>,
    record: &Record,
    options: DrainOptions,
) -> Vec<Candidate> {
    let average = bound::average(from);
    let nodes = from.nodes().filter_map(|info| Some((info, info.node()?.clone())));
    let candidates = nodes.map(|(info, node)| {
        let is_control_plane = CONTROL_PLANE.iter().any(|label| node.labels.get(label).is_some());
        let mut fixed = is_control_plane.then(|| "it is a control plane node".to_owned());
        let mut pods = Vec::new();
        for info in info.pods() {
            let pod = info.to_pod();
            let why = match drain::stays(info.template(), options) {
                Some(Stays::DaemonSet | Stays::Mirror) => continue,
                Some(why) => Some(why.to_string()),
                None if !record.is_scheduled(&pod) => {
                    Some(format!("no profile has its schedulerName {:?}", pod.scheduler_name()))
                }
                // One at a time: the next is evicted when the replacement is ready.
                None => match limits.evict(&info, from, record, &mut HashMap::new()) {
                    Ok(()) => None,
                    Err(refused) => Some(limits.stays(&refused).to_string()),
                },
            };
            if let (Some(why), None) = (why, &fixed) {
                fixed = Some(format!("pod {} is blocked: {why}", pod.key()));
            }
            pods.push(pod);
        }
        let share = |pod: &Pod| average.share(&pod.template.resources.incoming);
        pods.sort_by(|a, b| {
            let by_size = share(b).total_cmp(&share(a));
            by_size.then_with(|| (a.namespace(), &a.name).cmp(&(b.namespace(), &b.name)))
        });
        let used = pods.iter().map(share).sum();
        let size = average.share(&info.allocatable());
        Candidate { node, pods, fixed, used, size }
    });
    candidates.collect()
}

impl Search<'_> {
    /// The best of several runs, which differ in the order of the nodes.
    fn best(&self, bound: &Bound) -> Run {
        let mut free: Vec<usize> =
            (0..self.nodes.len()).filter(|at| self.nodes[*at].fixed.is_none()).collect();
        free.sort_by(|a, b| self.nodes[*a].used.total_cmp(&self.nodes[*b].used));
        let mut small_first = free.clone();
        small_first.sort_by(|a, b| self.nodes[*a].size.total_cmp(&self.nodes[*b].size));
        let most = self.nodes.len().saturating_sub(bound.nodes);
        let mut orders = vec![free];
        if small_first != orders[0] {
            orders.push(small_first);
        }
        let runs = orders.into_par_iter().map(|order| {
            let goal = &order[..most.min(order.len())];
            let mut run = self.attempt(goal, Some(self.deadline));
            self.improve(&mut run, &order, most);
            run
        });
        let runs: Vec<Run> = runs.collect();
        // Of equal runs, the first.
        let best = runs
            .into_iter()
            .reduce(|one, other| if other.emptied.len() > one.emptied.len() { other } else { one });
        best.unwrap_or_else(|| self.attempt(&[], None))
    }

    /// Cordons these nodes and drains them in this order, as far as their pods fit elsewhere.
    fn attempt(&self, order: &[usize], deadline: Option<Instant>) -> Run {
        let mut run = Run {
            fork: self.from.fork(),
            emptied: Vec::new(),
            why: vec![None; self.nodes.len()],
            is_complete: true,
        };
        let mut algorithms = self.algorithms();
        for at in order {
            self.cordon(&mut run.fork, *at, true);
        }
        let mut waiting: VecDeque<usize> = order.iter().copied().collect();
        while let Some(at) = waiting.pop_front() {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                run.is_complete = false;
                self.cordon(&mut run.fork, at, false);
                waiting.drain(..).for_each(|at| self.cordon(&mut run.fork, at, false));
                break;
            }
            match self.empty(at, &mut run.fork, &mut algorithms, &mut waiting) {
                Ok(()) => run.emptied.push(at),
                Err(why) => run.why[at] = Some(why),
            }
        }
        run
    }

    /// Tries the nodes that remain, each on its own.
    fn improve(&self, run: &mut Run, order: &[usize], most: usize) {
        let mut algorithms = self.algorithms();
        let mut is_emptied = vec![false; self.nodes.len()];
        run.emptied.iter().for_each(|at| is_emptied[*at] = true);
        for at in order {
            if is_emptied[*at] || run.emptied.len() >= most {
                continue;
            }
            if Instant::now() > self.deadline {
                run.is_complete = false;
                return;
            }
            self.cordon(&mut run.fork, *at, true);
            match self.empty(*at, &mut run.fork, &mut algorithms, &mut VecDeque::new()) {
                Ok(()) => run.emptied.push(*at),
                Err(why) => run.why[*at] = Some(why),
            }
        }
    }

    /// Moves all pods of a cordoned node. If one fits nowhere, nodes that are not drained yet are uncordoned for it. If
    /// that does not help, the node itself is uncordoned, with its pods.
    fn empty(
        &self,
        at: usize,
        fork: &mut Fork,
        algorithms: &mut Profiles<Algorithm>,
        waiting: &mut VecDeque<usize>,
    ) -> Result<(), String> {
        let name = &self.nodes[at].node.name;
        let pods = fork.node(name).into_iter().flat_map(|info| info.pods());
        let options = DrainOptions { force: true, delete_local_data: true };
        let movable =
            |it: &portolan::cache::PodInfo<'_>| drain::stays(it.template(), options).is_none();
        // The node may have received pods from others while it was open.
        let mut pods: Vec<Pod> = pods.filter(movable).map(|info| info.to_pod()).collect();
        pods.sort_by_cached_key(|pod| self.demand.rank(pod));
        let before = fork.fork();
        let mut opened = Vec::new();
        for pod in pods {
            let why = loop {
                let why = match place(&pod, fork, algorithms) {
                    Ok(()) => break None,
                    Err(why) => why,
                };
                let helps = |at: &usize| self.demand.may_run(&pod, *at);
                let last = waiting.iter().rposition(helps).filter(|_| opened.len() < MOST_OPENED);
                let Some(last) = last.and_then(|last| waiting.remove(last)) else {
                    break Some(why);
                };
                self.cordon(fork, last, false);
                opened.push(last);
            };
            if let Some(why) = why {
                *fork = before;
                opened.iter().for_each(|at| self.cordon(fork, *at, false));
                self.cordon(fork, at, false);
                return Err(format!("pod {} is unschedulable: {why}", pod.key()));
            }
        }
        Ok(())
    }

    fn algorithms(&self) -> Profiles<Algorithm> {
        self.schedulers
            .map(|(framework, config)| Algorithm::new(framework.clone(), config.clone(), None))
    }

    /// Cordons a node, or restores its original state.
    fn cordon(&self, fork: &mut Fork, at: usize, cordon: bool) {
        let node = &self.nodes[at].node;
        let unschedulable = cordon || node.unschedulable;
        // The engine has accepted the same node before.
        let _ = fork.add_node(Node { unschedulable, ..Node::clone(node) });
    }
}

/// Moves the pod to the node that the scheduler chooses. If there is none, nothing changes.
fn place(pod: &Pod, fork: &mut Fork, algorithms: &mut Profiles<Algorithm>) -> Result<(), String> {
    if uses_devices(&pod.template, fork) {
        return Err("it has resource claims, and --consolidate does not move them".to_owned());
    }
    let Some(algorithm) = algorithms.get_mut(pod) else {
        return Err(format!("no profile has schedulerName {:?}", pod.scheduler_name()));
    };
    fork.remove_pod(&pod.uid).map_err(|error| error.to_string())?;
    let moved = crate::replacement::recreated(pod.clone());
    let state = algorithm.state();
    let decided = algorithm.decide_without_preemption(Cycle::new(fork, &moved, &state));
    let placed = match decided {
        Ok(decision) => fork.add_pod(&decision.place(moved)).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if placed.is_err() {
        fork.add_pod(pod).map_err(|error| error.to_string())?;
    }
    placed
}
