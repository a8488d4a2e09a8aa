//! The evictions after which the pod would fit, regardless of the victims' priorities, and the pods whose end it waits
//! for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use portolan::cache::{Cluster, NodeInfo, PodInfo};
use portolan::model::{Pod, Template};
use portolan::plugin::preemption::DryRun;
use portolan::plugin::{Cycle, CycleState};
use portolan::scheduler::drain::{self, Budgets, DrainOptions, Stays};
use portolan_k8s::Scaled;
use rayon::prelude::*;

use super::changes::{Change, try_edits};
use super::edit::{Edit, changed, without_pods};
use super::trial::{RejectedNodes, Trial};

/// The plugins whose rejections evictions can resolve.
const HELPED: [&str; 6] = [
    "NodeResourcesFit",
    "NodePorts",
    "InterPodAffinity",
    "PodTopologySpread",
    "NodeVolumeLimits",
    "VolumeRestrictions",
];

/// Victims, those that terminate already, and objections to the eviction of the others, one text each.
struct Victims {
    pods: Vec<Pod>,
    terminating: Vec<Pod>,
    objections: Vec<String>,
}

impl Victims {
    fn of(cluster: &Cluster, pods: Vec<Pod>, budgets: Budgets) -> Victims {
        let (terminating, pods): (Vec<Pod>, Vec<Pod>) =
            pods.into_iter().partition(|pod| pod.deletion_time.is_some());
        let objections = objections(cluster, &pods, budgets);
        Victims { pods, terminating, objections }
    }

    /// The smaller, the better.
    fn cost(&self) -> (usize, usize, i64) {
        let priorities = self.pods.iter().map(|pod| i64::from(pod.template.priority)).sum();
        (self.objections.len(), self.pods.len(), priorities)
    }
}

/// A node on which evictions may help.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    node: NodeInfo<'a>,
    /// The least number of pods to evict so that the node has enough of the resources that it lacks.
    least: usize,
    /// The lowest priority of a pod on the node.
    lowest: i64,
    /// Of equal evictions, those on the node with the lowest rank are proposed.
    rank: usize,
}

/// The end of pods that are terminating, if that suffices on a node. Otherwise the evictions with the fewest objections
/// and victims, on the node that preemption would choose or else on that with the fewest pods. Nodes are tried until the
/// deadline, those that may need the fewest victims first; `false` if some were not tried.
pub(super) fn change(
    trial: Trial<'_>,
    rejected: &[RejectedNodes<'_>],
    deadline: Instant,
) -> (Option<Change>, bool) {
    let mut nodes: Vec<(NodeInfo<'_>, Estimate)> = Vec::new();
    for found in rejected.iter().filter(|found| found.is_only_by(&HELPED)) {
        let lacking: Vec<&str> = found.insufficient().collect();
        let amounts = || Amounts { of: &lacking, by_template: Vec::new() };
        let with_pods = found.nodes.par_iter().filter(|node| node.pod_count() > 0);
        nodes.par_extend(
            with_pods
                .map_init(amounts, |amounts, node| (*node, Estimate::of(trial, *node, amounts))),
        );
    }
    // The nodes of a group are sorted by name, and names take longer to compare.
    nodes.sort_by_key(|(node, _)| node.name());
    nodes.sort_by_key(|(node, _)| (Some(node.name()) != trial.nominated, node.pod_count()));
    let in_time = |_: &&NodeInfo<'_>| Instant::now() < deadline;
    let waiting = nodes.iter().filter(|(_, of)| of.some_terminate).map(|(node, _)| node);
    if let Some(change) = waiting.take_while(in_time).find_map(|node| wait(trial, *node)) {
        return (Some(change), true);
    }
    let candidates = nodes.iter().enumerate();
    let candidates = candidates.filter_map(|(rank, (node, Estimate { least, lowest, .. }))| {
        Some(Candidate { node: *node, least: (*least)?, lowest: *lowest, rank })
    });
    let mut candidates: Vec<Candidate<'_>> = candidates.collect();
    candidates.sort_by_key(|it| (it.least, it.rank));
    let (best, is_complete) = cheapest(trial, candidates, deadline);
    let change = best.and_then(|(Victims { pods, terminating, objections }, of)| {
        let edit = Edit::Evict { node: of.node.name().clone(), pods, terminating };
        let change = try_edits(trial, vec![edit])?;
        Some(Change { notes: objections, is_complete, ..change })
    });
    (change, is_complete)
}

/// The evictions with the lowest cost, and whether all candidates were tried before the deadline. The candidates are
/// sorted by the least number of victims.
fn cheapest<'a>(
    trial: Trial<'a>,
    candidates: Vec<Candidate<'a>>,
    deadline: Instant,
) -> (Option<(Victims, Candidate<'a>)>, bool) {
    // All pods of a node are candidates: those of lower priority than the highest one.
    let above = changed(trial.pod, |spec| spec.priority = i32::MAX);
    let state = CycleState::default();
    let cycle = Cycle::new(trial.cluster, &above, &state);
    let filters = trial.framework.pre_filter(cycle);
    let dry_run = DryRun::new(cycle, &filters);
    let budgets = Budgets::of(trial.cluster);
    let own = trial.scales.scaled(&trial.pod.template);
    // Many pods share a template. The cluster holds the templates, so no address is reused.
    let mut known: HashMap<*const Template, bool> = HashMap::new();
    let mut is_evictable = |template: &Arc<Template>| {
        let judge = || is_victim(trial, own.as_ref(), template);
        *known.entry(Arc::as_ptr(template)).or_insert_with(judge)
    };
    let mut is_complete = true;
    let mut best: Option<(Victims, Candidate<'_>)> = None;
    let is_better = |best: Option<&(Victims, Candidate<'_>)>, cost, rank| {
        best.is_none_or(|(best, on)| (cost, rank) < (best.cost(), on.rank))
    };
    for candidate @ Candidate { node, least, lowest, rank } in candidates {
        // Later nodes need no fewer victims.
        let is_enough =
            |(best, _): &(Victims, _)| best.objections.is_empty() && best.pods.len() < least;
        if best.as_ref().is_some_and(is_enough) {
            break;
        }
        let least_cost = (0, least, lowest.saturating_mul(least as i64));
        if !is_better(best.as_ref(), least_cost, rank) {
            continue;
        }
        if Instant::now() >= deadline {
            is_complete = false;
            break;
        }
        let Ok(found) = dry_run.victims_on(node) else { continue };
        let evicted = found.iter().filter(|pod| !is_terminating(pod));
        let pods: Vec<Pod> = match evicted.clone().all(|pod| is_evictable(pod.template())) {
            true => {
                // Objections only add to the cost, so a node that is no better without any is not tried.
                let priorities = evicted.clone().map(|pod| i64::from(pod.template().priority));
                let cost = (0, evicted.clone().count(), priorities.sum());
                if !is_better(best.as_ref(), cost, rank) {
                    continue;
                }
                found.iter().map(|pod| pod.to_pod()).collect()
            }
            false => {
                let is_candidate =
                    |pod: &PodInfo<'_>| is_terminating(pod) || is_evictable(pod.template());
                let Some(pods) = victims(trial, node, is_candidate) else { continue };
                pods
            }
        };
        let victims = Victims::of(trial.cluster, pods, budgets.clone());
        let all = || victims.pods.iter().chain(&victims.terminating);
        if is_better(best.as_ref(), victims.cost(), rank) && fits_without(trial, node, all()) {
            best = Some((victims, candidate));
        }
    }
    (best, is_complete)
}

/// What is known of evictions on a node before any is tried.
#[derive(Default)]
struct Estimate {
    /// The least number of pods to evict, beside those that are terminating, so that the node has enough of each
    /// resource that it lacks. `None` if all of its pods are not enough.
    least: Option<usize>,
    /// The lowest priority of a pod on the node.
    lowest: i64,
    some_terminate: bool,
}

/// The priorities of templates, and their amounts of some resources: many pods share a template.
struct Amounts<'r> {
    of: &'r [&'r str],
    /// The priority and the amounts of each template, by its number.
    by_template: Vec<i64>,
}

impl Amounts<'_> {
    /// The priority of the pod, and its amounts.
    fn of(&mut self, pod: &PodInfo<'_>) -> (i64, &[i64]) {
        /// No priority is as low.
        const UNKNOWN: i64 = i64::MIN;
        let width = 1 + self.of.len();
        let at = pod.template_id() as usize * width;
        if self.by_template.len() < at + width {
            self.by_template.resize(at + width, UNKNOWN);
        }
        let row = &mut self.by_template[at..at + width];
        if row[0] == UNKNOWN {
            let template = pod.template();
            row[0] = i64::from(template.priority);
            for (amount, resource) in row[1..].iter_mut().zip(self.of) {
                *amount = template.resources.placed.amount(resource);
            }
        }
        (row[0], &row[1..])
    }
}

/// A resource that a node lacks.
struct Lacking {
    /// How much is lacking when the terminating pods have ended.
    short: i64,
    /// The amounts of the other pods.
    amounts: Vec<i64>,
}

impl Estimate {
    /// O(pods of the node × resources that it lacks), or O(resources) if the node is too small without pods.
    fn of(trial: Trial<'_>, node: NodeInfo<'_>, amounts: &mut Amounts<'_>) -> Estimate {
        let lacking = amounts.of.iter().map(|resource| {
            let requested = trial.requested(resource);
            let has = node.allocatable_of(trial.pod.template.class).amount(resource);
            let short = || requested.saturating_sub(trial.free(resource, node));
            (requested <= has)
                .then(|| Lacking { short: short(), amounts: Vec::with_capacity(node.pod_count()) })
        });
        let Some(mut lacking) = lacking.collect::<Option<Vec<Lacking>>>() else {
            return Estimate::default();
        };
        let (mut lowest, mut some_terminate) = (i64::MAX, false);
        for pod in node.pods() {
            let terminates = is_terminating(&pod);
            let (priority, amounts) = amounts.of(&pod);
            lowest = lowest.min(priority);
            some_terminate |= terminates;
            for (of, amount) in lacking.iter_mut().zip(amounts) {
                match terminates {
                    true => of.short = of.short.saturating_sub(*amount),
                    false => of.amounts.push(*amount),
                }
            }
        }
        let mut least = lacking.into_iter().map(Lacking::least_victims);
        let least = least.try_fold(0, |most, of_resource| Some(of_resource?.max(most)));
        Estimate { least, lowest, some_terminate }
    }
}

impl Lacking {
    /// The least number of pods that have the amount. `None` if all have less.
    fn least_victims(mut self) -> Option<usize> {
        let (mut short, mut leaving) = (self.short, 0);
        self.amounts.sort_unstable();
        while short > 0 {
            short = short.saturating_sub(self.amounts.pop()?);
            leaving += 1;
        }
        Some(leaving)
    }
}

/// The end of the pods that are terminating on the node, if the pod fits after it.
fn wait(trial: Trial<'_>, node: NodeInfo<'_>) -> Option<Change> {
    node.pods().find(is_terminating)?;
    let terminating = victims(trial, node, is_terminating)?;
    let node = node.name().clone();
    try_edits(trial, vec![Edit::Evict { node, pods: Vec::new(), terminating }])
}

fn is_terminating(pod: &PodInfo<'_>) -> bool {
    pod.deletion_time().is_some()
}

/// Whether evicting a pod of this template frees its resources: pods of daemon sets return, and mirror pods stay. A
/// replica of the pod's own controller would only take its turn.
fn is_victim(trial: Trial<'_>, own: Option<&Scaled>, template: &Template) -> bool {
    let is_sibling = own.is_some() && trial.scales.scaled(template).as_ref() == own;
    let stays = matches!(stays(template), Some(Stays::DaemonSet | Stays::Mirror));
    !(stays || is_sibling)
}

fn stays(template: &Template) -> Option<Stays> {
    drain::stays(template, DrainOptions::default())
}

/// The objections to the evictions that `kubectl drain` would raise.
fn objections(cluster: &Cluster, victims: &[Pod], mut budgets: Budgets) -> Vec<String> {
    let mut objections = Vec::new();
    for victim in victims {
        let name = victim.key();
        match stays(&victim.template) {
            Some(Stays::Bare) => {
                objections.push(format!("{name} has no controller: nothing recreates it"));
            }
            Some(Stays::LocalStorage) => {
                objections.push(format!("{name} has local storage, which is lost"));
            }
            _ => {}
        }
        if let Some(pod) = cluster.pod(&victim.uid)
            && let Err(budget) = budgets.charge(&pod)
        {
            objections.push(format!("{name}: disruption budget {budget} allows no eviction now"));
        }
    }
    objections
}

fn fits_without<'p>(
    trial: Trial<'_>,
    node: NodeInfo<'_>,
    pods: impl IntoIterator<Item = &'p Pod>,
) -> bool {
    let fork = without_pods(trial.cluster, pods);
    fork.is_some_and(|fork| Trial { cluster: &fork, ..trial }.fits_on(node.name()))
}

/// The node's pods among the candidates whose removal makes it accept the pod: all are removed, and then pods return
/// while the pod still fits, those that are not terminating and the most important first.
fn victims(
    trial: Trial<'_>,
    node: NodeInfo<'_>,
    is_candidate: impl FnMut(&PodInfo<'_>) -> bool,
) -> Option<Vec<Pod>> {
    let candidates = node.pods().filter(is_candidate);
    let mut pods: Vec<Pod> = candidates.map(|pod| pod.to_pod()).collect();
    pods.sort_by_key(|pod| {
        let priority = std::cmp::Reverse(pod.template.priority);
        (pod.deletion_time.is_some(), priority, pod.start_time)
    });
    let mut fork = without_pods(trial.cluster, &pods)?;
    if !(Trial { cluster: &fork, ..trial }).fits_on(node.name()) {
        return None;
    }
    let mut victims = Vec::new();
    for pod in pods {
        fork.add_pod(&pod).ok()?;
        if !(Trial { cluster: &fork, ..trial }).fits_on(node.name()) {
            fork.remove_pod(&pod.uid).ok()?;
            victims.push(pod);
        }
    }
    Some(victims)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portolan::Framework;
    use portolan::cache::{Config, Engine};
    use portolan::model::{
        LabelSelector, Name, OwnerReference, PodDisruptionBudget, Timestamp, node, pod,
    };
    use portolan_k8s::Scales;

    use super::*;

    fn rejected_by(trial: Trial<'_>) -> Vec<RejectedNodes<'_>> {
        RejectedNodes::of(trial, &trial.framework.evaluate(trial.cluster, trial.pod))
    }

    /// The proposal is the one with the lowest cost on any node, the first of several in order of the number of pods.
    #[test]
    fn no_node_needs_fewer_evictions_than_the_proposed_one() {
        let (framework, scales) = (Framework::default_profile(), Scales::default());
        let owner = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "r".into(),
            uid: "r".into(),
            controller: true,
        };
        let (mut proposed, mut free) = (0, 0);
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut writer, _) = Engine::inline(Config::default());
            let allowed = random.i32(0..2);
            let budget = PodDisruptionBudget {
                namespace: "default".into(),
                name: "web".into(),
                selector: LabelSelector::from_labels([("app", "web")]),
                disruptions_allowed: allowed,
                ..PodDisruptionBudget::default()
            };
            writer.put_object(budget).expect("accepted");
            for n in 0..6 {
                let made = node(format!("n{n}")).cpu(4_000).memory(8 << 30).pods(20);
                writer.add_node(made.build()).expect("accepted");
                for p in 0..random.usize(2..8) {
                    let made =
                        pod(format!("p{n}-{p}")).label("app", ["web", "db"][random.usize(..2)]);
                    let made = made.cpu(random.i64(1..9) * 250).memory(random.i64(1..5) << 29);
                    let made = made.priority(random.i32(0..3)).on(format!("n{n}"));
                    let ends = random.u8(..8) == 0;
                    let made = if ends { made.deleted(Timestamp(1)) } else { made };
                    let is_bare = random.u8(..8) == 0;
                    let owners = if is_bare { vec![] } else { vec![owner.clone()] };
                    let made = made.spec(|spec| spec.owners = owners.into());
                    // Some nodes have no capacity left.
                    drop(writer.add_pod(made.build()));
                }
            }
            let new = pod("new").cpu(random.i64(9..17) * 250).memory(random.i64(1..12) << 29);
            let (cluster, new) = (writer.cluster(), new.build());
            let trial = Trial {
                framework: &framework,
                cluster,
                pod: &new,
                requests: None,
                scales: &scales,
                only: None,
                nominated: None,
            };
            let rejected = rejected_by(trial);
            if rejected.iter().map(|it| it.nodes.len()).sum::<usize>() < cluster.len() {
                continue;
            }
            let late = Instant::now() + Duration::from_secs(600);
            let found = change(trial, &rejected, late);
            assert!(found.1);
            let Some(found) = found.0 else { continue };
            let [Edit::Evict { node, pods, terminating }] = &found.edits[..] else {
                panic!("{found:?}")
            };
            if pods.is_empty() {
                continue;
            }
            let above = changed(&new, |spec| spec.priority = i32::MAX);
            let state = CycleState::default();
            let cycle = Cycle::new(cluster, &above, &state);
            let filters = framework.pre_filter(cycle);
            let dry_run = DryRun::new(cycle, &filters);
            let cost = |on: NodeInfo<'_>| {
                let pods = dry_run.on(on).ok()?.victims;
                let of = Victims::of(cluster, pods, Budgets::of(cluster));
                Some((of.cost(), on.pod_count(), on.name().clone()))
            };
            let best = cluster.nodes().filter_map(cost).min().expect("some node is helped");
            let all = pods.iter().chain(terminating).cloned().collect();
            let of = Victims::of(cluster, all, Budgets::of(cluster));
            let on = cluster.node(node).expect("it exists");
            let proposal = (of.cost(), on.pod_count(), node.clone());
            assert_eq!(proposal, best, "seed {seed}");
            proposed += 1;
            free += usize::from(of.objections.is_empty());
        }
        assert!(proposed > 150 && free > 50 && free < proposed, "{free} of {proposed}");
    }

    #[test]
    fn a_terminating_pod_anywhere_on_the_node_is_waited_for() {
        let (framework, scales) = (Framework::default_profile(), Scales::default());
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("a").cpu(4_000).pods(20).build()).expect("accepted");
        let ends = pod("ends").cpu(2_000).priority(5).deleted(Timestamp(1)).on("a");
        writer.add_pod(ends.build()).expect("accepted");
        writer.add_pod(pod("stays").cpu(2_000).on("a").build()).expect("accepted");
        let new = pod("new").cpu(2_000).build();
        let trial = Trial {
            framework: &framework,
            cluster: writer.cluster(),
            pod: &new,
            requests: None,
            scales: &scales,
            only: None,
            nominated: None,
        };
        let late = Instant::now() + Duration::from_secs(600);
        let (found, _) = change(trial, &rejected_by(trial), late);
        let [Edit::Evict { pods, terminating, .. }] = &found.expect("the end of a pod").edits[..]
        else {
            panic!("not the end of a pod")
        };
        assert_eq!((pods.len(), terminating.len()), (0, 1));
    }

    #[test]
    fn of_equal_evictions_those_of_preemption_are_proposed() {
        let (framework, scales) = (Framework::default_profile(), Scales::default());
        let (mut writer, _) = Engine::inline(Config::default());
        for name in ["a", "b", "c"] {
            writer.add_node(node(name).cpu(1_000).pods(20).build()).expect("accepted");
            writer.add_pod(pod(name).cpu(1_000).on(name).build()).expect("accepted");
        }
        let new = pod("new").cpu(1_000).priority(1).build();
        for nominated in ["a", "b", "c"].map(Name::from) {
            let trial = Trial {
                framework: &framework,
                cluster: writer.cluster(),
                pod: &new,
                requests: None,
                scales: &scales,
                only: None,
                nominated: Some(&nominated),
            };
            let late = Instant::now() + Duration::from_secs(600);
            let (found, _) = change(trial, &rejected_by(trial), late);
            let [Edit::Evict { node, .. }] = &found.expect("an eviction").edits[..] else {
                panic!("not an eviction")
            };
            assert_eq!(*node, nominated);
        }
    }
}
