//! Drains nodes as `kubectl drain` does: all are cordoned first; then each is emptied in
//! turn. A pod whose budget allows no eviction is tried again when replacements of pods that
//! were evicted before it are placed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use portolan::log::Event;
use portolan::model::{Name, Node, Pod, Uid};
use portolan::scheduler::drain::{self, Budgets, DrainOptions, Stays};
use portolan::{Cluster, Engine, PodInfo};
use portolan_k8s::Scales;

use crate::error::Failure;
use crate::names::did_you_mean;
use crate::simulation::{Simulation, closed, event, recreated, refused};

use super::budgets::{Limits, Unready};
use super::record::Record;
use super::{Answer, enter, key};

/// The outcome of a node's drain.
#[derive(Default)]
pub(super) struct Outcome {
    /// The pods that were evicted.
    pub(super) evicted: usize,
    /// How often the drain waited until replacements of evicted pods were placed, because a
    /// budget allowed no further eviction.
    pub(super) waits: usize,
    /// The pods that block the drain.
    pub(super) blocked: Vec<(Pod, Stays)>,
}

/// The effect of a budget on the drains.
#[derive(Default)]
pub(super) struct BudgetUse {
    /// How often a drain waited for the budget and went on.
    pub(super) waits: usize,
    /// The pods that it keeps from being evicted.
    pub(super) blocked: Vec<Pod>,
    /// Evicted pods of the budget whose replacements are not placed.
    pub(super) missing: usize,
}

/// Drains that share the budgets.
pub(super) struct Drains<'c> {
    options: DrainOptions,
    limits: &'c Limits<'c>,
    scales: &'c Scales,
    budgets: Budgets,
    /// Evicted pods whose replacements are not placed yet, and their budgets.
    charged: Vec<(Pod, Option<String>)>,
    pub(super) uses: BTreeMap<String, BudgetUse>,
    /// The evicted pods without a controller.
    pub(super) bare: usize,
    /// Whether daemon set pods, pods without a controller and pods with local data were found.
    met: [bool; 3],
}

/// The options that kubectl needs, in the order of [`Drains::met`].
const FLAGS: [&str; 3] = ["--ignore-daemonsets", "--force", "--delete-emptydir-data"];

/// The node, or an error with similar names.
pub(super) fn known(cluster: &Cluster, option: &str, name: &str) -> Result<Arc<Node>, Failure> {
    let found = cluster.node(name).and_then(|info| info.node().cloned());
    found.ok_or_else(|| {
        let near = did_you_mean(name, cluster.nodes().map(|node| &**node.name()));
        Failure::Usage(format!("{option} {name}: node {name} does not exist: {near}"))
    })
}

/// The names without repetitions.
pub(super) fn once(names: &[String]) -> Vec<String> {
    let mut known = HashSet::new();
    names.iter().filter(|name| known.insert(*name)).cloned().collect()
}

/// Replaces a node's object.
pub(super) fn update(engine: &Engine, node: Node) -> Result<(), Failure> {
    let object = format!("node {}", node.name);
    event(engine, Event::UpdateNode(Arc::new(node)))?
        .map_err(|error| Failure::Refused { object, error })
        .map(drop)
}

/// Cordons or uncordons the node.
pub(super) fn cordon(engine: &Engine, node: &Node, unschedulable: bool) -> Result<(), Failure> {
    update(engine, Node { unschedulable, ..node.clone() })
}

/// Cordons and drains the nodes of `--drain`, and places the evicted pods elsewhere.
pub(super) fn drain(
    names: &[String],
    drains: &mut Drains<'_>,
    simulation: &mut Simulation,
    record: &mut Record,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    let names = once(names);
    for name in &names {
        let node = known(reader.refresh(), "--drain", name)?;
        cordon(&simulation.engine, &node, true)?;
    }
    for name in names {
        let node: Name = name.as_str().into();
        let done = drains.run(&node, simulation, record)?;
        let blocked = done.blocked.into_iter().map(|(pod, why)| (pod, node.clone(), why));
        answer.blocked.extend(blocked);
        answer.drained.push(super::Drained { node: name.clone(), waits: done.waits });
    }
    Ok(())
}

impl<'c> Drains<'c> {
    pub(super) fn new(
        cluster: &Cluster,
        options: DrainOptions,
        limits: &'c Limits<'c>,
        scales: &'c Scales,
    ) -> Drains<'c> {
        Drains {
            options,
            limits,
            scales,
            budgets: Budgets::of(cluster),
            charged: Vec::new(),
            uses: BTreeMap::new(),
            bare: 0,
            met: [false; 3],
        }
    }

    /// The options that `kubectl drain` needs for the same drains.
    pub(super) fn kubectl_flags(&self) -> Vec<&'static str> {
        FLAGS.into_iter().zip(self.met).filter_map(|(flag, met)| met.then_some(flag)).collect()
    }

    /// Evicts the pods of a cordoned node as far as possible.
    pub(super) fn run(
        &mut self,
        node: &Name,
        simulation: &mut Simulation,
        record: &mut Record,
    ) -> Result<Outcome, Failure> {
        let mut reader = simulation.engine.reader().map_err(closed)?;
        let mut outcome = Outcome::default();
        let mut held: HashMap<Uid, Stays> = HashMap::new();
        self.note_kinds(reader.refresh(), node);
        loop {
            self.refund(reader.refresh());
            let (going, blocked) = self.round(reader.refresh(), node, record);
            if going.is_empty() {
                self.note_blocked(&blocked);
                outcome.blocked = blocked;
                return Ok(outcome);
            }
            let waited = going.iter().filter_map(|pod| Some((pod, held.get(&pod.uid)?)));
            let mut budgets: Vec<String> = waited.filter_map(budget_of).collect();
            outcome.waits += usize::from(!budgets.is_empty());
            budgets.sort();
            budgets.dedup();
            for budget in budgets {
                self.uses.entry(budget).or_default().waits += 1;
            }
            held = blocked.into_iter().map(|(pod, why)| (pod.uid, why)).collect();
            outcome.evicted += going.len();
            for pod in &going {
                let gone = event(&simulation.engine, Event::remove_pod(pod))?;
                gone.map_err(|error| refused(pod, error))?;
                self.bare += usize::from(is_bare(pod));
            }
            for pod in going {
                enter(simulation, record, recreated(pod), Some(node.clone()))?;
            }
            simulation.expire_permits(record)?;
        }
    }

    /// Refunds the charges for pods whose replacements are placed.
    fn refund(&mut self, now: &Cluster) {
        let budgets = &mut self.budgets;
        self.charged.retain(|(pod, _)| {
            let is_ready = now.pod(&pod.uid).is_some();
            if is_ready {
                budgets.refund(pod);
            }
            !is_ready
        });
    }

    /// The pods that may be evicted now, and those that block the drain. Pods whose budget was
    /// charged are added to `charged`.
    fn round(
        &mut self,
        cluster: &Cluster,
        node: &Name,
        record: &Record,
    ) -> (Vec<Pod>, Vec<(Pod, Stays)>) {
        let (mut going, mut blocked) = (Vec::new(), Vec::new());
        let Some(info) = cluster.node(node) else { return (going, blocked) };
        let mut pods: Vec<_> = info.pods().collect();
        pods.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        for info in pods {
            let pod = info.to_pod();
            match drain::stays(&info, self.options) {
                Some(why) if why.is_in_the_way() => blocked.push((pod, why)),
                Some(_) => {}
                None if !self.is_charged(&info, cluster, record) => going.push(pod),
                None => match self.take(&info, cluster) {
                    Ok(budget) => {
                        self.charged.push((pod.clone(), budget));
                        going.push(pod);
                    }
                    Err(why) => blocked.push((pod, why)),
                },
            }
        }
        (going, blocked)
    }

    /// Charges the pod's eviction to its budget. Returns the budget, or why the pod stays.
    fn take(&mut self, pod: &PodInfo<'_>, cluster: &Cluster) -> Result<Option<String>, Stays> {
        let budgets = cluster.budgets_for(pod.namespace(), &pod.template().labels);
        if budgets.len() > 1 {
            return Err(Stays::SeveralBudgets);
        }
        self.budgets.charge(pod).map_err(Stays::Budget)?;
        Ok(budgets.first().map(|budget| format!("{}/{}", budget.namespace, budget.name)))
    }

    /// Whether the eviction of the pod is charged to its budget. A terminating pod, and one that
    /// has not started, is always evicted.
    fn is_charged(&self, pod: &PodInfo<'_>, cluster: &Cluster, record: &Record) -> bool {
        let uid = pod.uid();
        if pod.deletion_time().is_some() || !self.limits.is_protected(&uid, record) {
            return false;
        }
        if self.limits.is_ready(&uid, record) {
            return true;
        }
        match &cluster.budgets_for(pod.namespace(), &pod.template().labels)[..] {
            [budget] => {
                let permitted = self.limits.unready(budget, self.scales, cluster, record);
                permitted == Unready::IsCharged
            }
            _ => true,
        }
    }

    fn note_blocked(&mut self, blocked: &[(Pod, Stays)]) {
        for (pod, why) in blocked {
            let Some(budget) = budget_of((pod, why)) else { continue };
            let charged = self.charged.iter();
            let missing = charged.filter(|(_, of)| of.as_ref() == Some(&budget)).count();
            let noted = self.uses.entry(budget).or_default();
            noted.missing = noted.missing.max(missing);
            noted.blocked.push(pod.clone());
        }
    }

    fn note_kinds(&mut self, cluster: &Cluster, node: &Name) {
        for pod in cluster.node(node).iter().flat_map(|info| info.pods()) {
            let stays = drain::stays(&pod, DrainOptions::default());
            self.met[0] |= stays == Some(Stays::DaemonSet);
            self.met[1] |= stays == Some(Stays::Bare);
            let goes = !matches!(stays, Some(Stays::DaemonSet | Stays::Mirror));
            self.met[2] |= goes && pod.template().has_local_storage;
        }
    }
}

/// Whether no controller would recreate the pod.
pub(super) fn is_bare(pod: &Pod) -> bool {
    !pod.template.owners.iter().any(|owner| owner.controller)
}

/// The budget that keeps a pod on its node.
fn budget_of((pod, why): (&Pod, &Stays)) -> Option<String> {
    match why {
        Stays::Budget(name) => Some(format!("{}/{name}", pod.namespace())),
        _ => None,
    }
}

/// Why a budget blocks a drain, and the remedy.
pub(super) fn why_blocked(of: &BudgetUse) -> String {
    let pods: Vec<String> = of.blocked.iter().take(3).map(key).collect();
    let more = if of.blocked.len() > 3 { ", …" } else { "" };
    let reason = match of.missing {
        0 => "it allows no disruption: add replicas, wait until pods are ready, or relax it",
        _ => "the replacements of pods that were evicted find no node: add nodes or free resources",
    };
    format!("{}{more}: {reason}", pods.join(", "))
}
