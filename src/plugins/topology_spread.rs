//! Pods spread over topology domains (podtopologyspread/{filtering,scoring}.go).

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, Point, PreFilter, PreScore, Score, Status, each_lane,
};
use crate::model::{
    Generation, HOSTNAME, LabelSelector, Name, Operator, Pod, Requirement,
    TopologySpreadConstraint, UnsatisfiableAction,
};
use crate::snapshot::{Chunk, Cluster, Column, LANES, NodeInfo, Store, lanes};

use super::hints::topology_spread::Counts;
use super::hints::{self, ClusterEvent, Hint, Interest};
use super::ledger::{Ledger, Part, Remembered};
use super::node_affinity::Required;
use super::taint_toleration::Tolerated;
use super::topology::{Decided, Domain, Keys, Sums, Topology, each_run, each_set};

/// Rejects nodes on which the pod would make its hard spread constraints fail,
/// and prefers those that its soft ones prefer.
#[derive(Clone, Debug, Default)]
pub struct PodTopologySpread {
    defaults: Defaults,
    counted: Remembered<ForTemplate>,
}

/// What is counted for pods of one template.
#[derive(Default)]
struct ForTemplate {
    hard: Ledger,
    soft: Ledger,
}

/// Constraints of pods that have none.
#[derive(Clone, Debug, Default)]
enum Defaults {
    /// Kube-scheduler's own.
    #[default]
    System,
    /// These; their selectors are made from services and owners.
    List(Vec<TopologySpreadConstraint>),
}

const NAME: &str = "PodTopologySpread";
const TOO_MANY: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";
const ZONE: &str = "topology.kubernetes.io/zone";

impl PodTopologySpread {
    /// With these constraints for pods that have none (`defaultingType: List`).
    #[must_use]
    pub fn with_default_constraints(constraints: Vec<TopologySpreadConstraint>) -> Self {
        PodTopologySpread { defaults: Defaults::List(constraints), counted: Remembered::default() }
    }

    /// The constraints of one action that hold for the pod.
    fn constraints<'a>(
        &'a self,
        cluster: &Cluster,
        pod: &'a Pod,
        action: UnsatisfiableAction,
    ) -> Vec<Constraint<'a>> {
        let own = &pod.template.topology_spread;
        if !own.is_empty() {
            let wanted = own.iter().filter(|constraint| constraint.when_unsatisfiable == action);
            return wanted.map(|constraint| Constraint::new(constraint, pod)).collect();
        }
        let default =
            |constraint: &'a TopologySpreadConstraint, selector: &LabelSelector| Constraint {
                selector: Cow::Owned(selector.clone()),
                ..Constraint::new(constraint, pod)
            };
        let defaults = match &self.defaults {
            Defaults::System if action == UnsatisfiableAction::DoNotSchedule => return Vec::new(),
            Defaults::System => system_defaults(),
            Defaults::List(list) => list,
        };
        let mut wanted = defaults.iter().filter(|c| c.when_unsatisfiable == action).peekable();
        if wanted.peek().is_none() {
            return Vec::new();
        }
        match default_selector(cluster, pod) {
            None => Vec::new(),
            Some(selector) => wanted.map(|constraint| default(constraint, &selector)).collect(),
        }
    }
}

/// Spread softly over hosts and zones (plugin.go `systemDefaultConstraints`).
fn system_defaults() -> &'static [TopologySpreadConstraint] {
    static DEFAULTS: OnceLock<[TopologySpreadConstraint; 2]> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        [(HOSTNAME, 3), (ZONE, 5)].map(|(key, max_skew)| TopologySpreadConstraint {
            max_skew,
            topology_key: key.into(),
            when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
            selector: LabelSelector::Nothing,
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        })
    })
}

/// What selects the pods that belong with this one: the selectors of all
/// services that select it, and of the workload that owns it
/// (helper/spread.go `DefaultSelector`). `None` where there is nothing.
fn default_selector(cluster: &Cluster, pod: &Pod) -> Option<LabelSelector> {
    let template = &pod.template;
    let namespace = &template.namespace;
    let mut labels = std::collections::BTreeMap::new();
    let mut services: Vec<_> = cluster
        .objects()
        .services
        .iter()
        .filter(|service| service.namespace == *namespace && !service.selector.is_empty())
        .filter(|service| service.selector.iter().all(|(k, v)| template.labels.get(k) == Some(v)))
        .collect();
    // They all agree with the pod's labels, so with each other; their order
    // does not matter.
    services.sort_by(|a, b| a.name.cmp(&b.name));
    for service in services {
        labels.extend(service.selector.iter().map(|(k, v)| (k.to_owned(), v.to_owned())));
    }
    let mut more: Vec<Requirement> = Vec::new();
    let owner = template.owners.iter().find(|owner| owner.controller);
    let workload = owner.and_then(|owner| {
        let objects = cluster.objects();
        let store = match (&*owner.api_version, &*owner.kind) {
            ("v1", "ReplicationController") => &objects.replication_controllers,
            ("apps/v1", "ReplicaSet") => &objects.replica_sets,
            ("apps/v1", "StatefulSet") => &objects.stateful_sets,
            _ => return None,
        };
        store.get(namespace, &owner.name)
    });
    if let Some(workload) = workload
        && let LabelSelector::All(requirements) = &workload.selector
    {
        more.extend(requirements.iter().cloned());
    }
    let mut all: Vec<Requirement> =
        labels.into_iter().map(|(k, v)| Requirement::new(k, Operator::In, [v])).collect();
    all.extend(more);
    (!all.is_empty()).then(|| LabelSelector::All(all.into()))
}

/// A constraint as it holds for one pod.
struct Constraint<'a> {
    key: &'a Name,
    max_skew: i64,
    min_domains: usize,
    selector: Cow<'a, LabelSelector>,
    honor_node_affinity: bool,
    honor_node_taints: bool,
}

impl<'a> Constraint<'a> {
    fn new(constraint: &'a TopologySpreadConstraint, pod: &Pod) -> Constraint<'a> {
        let labels = &pod.template.labels;
        let keys = constraint.match_label_keys.iter();
        let values: Vec<Requirement> = keys
            .filter_map(|key| Some((key, labels.get(key)?)))
            .map(|(key, value)| Requirement::new(key.clone(), Operator::In, [value]))
            .collect();
        let selector = match &constraint.selector {
            LabelSelector::All(requirements) if !values.is_empty() => {
                Cow::Owned(LabelSelector::All(requirements.iter().cloned().chain(values).collect()))
            }
            selector => Cow::Borrowed(selector),
        };
        Constraint {
            key: &constraint.topology_key,
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.map_or(1, |n| usize::try_from(n).unwrap_or(1)),
            selector,
            honor_node_affinity: constraint.honor_node_affinity,
            honor_node_taints: constraint.honor_node_taints,
        }
    }

    /// Which nodes' pods count for the pod.
    fn policy<'p>(&self, pod: &'p Pod) -> Policy<'p> {
        let affinity = self.honor_node_affinity.then(|| Required::of(&pod.template)).flatten();
        let taints = self.honor_node_taints.then(|| Tolerated::of(&pod.template));
        Policy { affinity, taints }
    }
}

/// Which nodes' pods count (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
struct Policy<'p> {
    affinity: Option<Required<'p>>,
    taints: Option<Tolerated<'p>>,
}

impl Policy<'_> {
    fn includes(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        let affine = self.affinity.as_ref().map_or(mask, |a| a.matching(cluster, chunk, mask));
        self.taints.as_ref().map_or(affine, |t| t.tolerating(cluster, chunk, affine))
    }
}

/// When an object last changed that the constraints of pods without any of their
/// own are made from.
fn reads(cluster: &Cluster, pod: &Pod) -> Generation {
    if !pod.template.topology_spread.is_empty() {
        return Generation::ZERO;
    }
    let objects = cluster.objects();
    let workloads =
        [&objects.replication_controllers, &objects.replica_sets, &objects.stateful_sets];
    let newest = workloads.iter().map(|store| store.generation()).max().unwrap_or_default();
    newest.max(objects.services.generation())
}

/// Which constraints count pods: a bit for each, by the number of the pods' labels.
struct Matched<'c> {
    namespace: Name,
    constraints: &'c [Constraint<'c>],
    decided: Decided<u64>,
}

impl<'c> Matched<'c> {
    fn new(pod: &Pod, constraints: &'c [Constraint<'c>]) -> Matched<'c> {
        let namespace = pod.namespace().clone();
        Matched { namespace, constraints, decided: Decided::default() }
    }

    fn bits(&mut self, cluster: &Cluster, number: u32) -> u64 {
        let Matched { namespace, constraints, decided } = self;
        *decided.get(number, || {
            let of = cluster.pod_labels(number);
            let Some((_, labels)) = of.filter(|(its, _)| *its == namespace) else { return 0 };
            // An empty selector counts no pod.
            let counts = |c: &Constraint<'_>| !c.selector.is_empty() && c.selector.matches(labels);
            let counts = constraints.iter().map(|constraint| u64::from(counts(constraint)));
            counts.enumerate().fold(0, |bits, (at, bit)| bits | bit << at)
        })
    }

    /// Tells of each lane of the chunk that has living pods that are counted: the
    /// bits, the lane, how many there are.
    fn each(&mut self, cluster: &Cluster, chunk: &Chunk, mut tell: impl FnMut(u64, usize, i64)) {
        for (number, lanes) in chunk.tally(cluster).groups() {
            let bits = self.bits(cluster, number);
            if bits != 0 {
                let living = lanes.iter().filter(|of| of.living > 0);
                living.for_each(|of| tell(bits, usize::from(of.lane), i64::from(of.living)));
            }
        }
    }
}

/// Counts pods by domain, each constraint that `wanted` names in the sums at its
/// position: on nodes that it includes, and that have all keys if `all_keys` says
/// so. After the sums of pods come those of nodes, one for each constraint, too.
struct Counting<'c> {
    cycle: Cycle<'c>,
    matched: Matched<'c>,
    policies: Vec<Policy<'c>>,
    wanted: u64,
    all_keys: bool,
}

impl<'c> Counting<'c> {
    fn new(
        cycle: Cycle<'c>,
        constraints: &'c [Constraint<'c>],
        (all_keys, wanted): (bool, u64),
    ) -> Counting<'c> {
        Counting {
            cycle,
            matched: Matched::new(cycle.pod, constraints),
            policies: constraints.iter().map(|c| c.policy(cycle.pod)).collect(),
            wanted,
            all_keys,
        }
    }

    fn start(cluster: &Cluster, constraints: &[Constraint<'_>], keys: &mut Keys) {
        let topology = |c: &Constraint<'_>| Sums::new(Arc::new(Topology::new(cluster, c.key)));
        keys.0.extend(constraints.iter().map(topology));
        let nodes: Vec<Sums> = keys.0.iter().map(|sums| Sums::new(sums.topology.clone())).collect();
        keys.0.extend(nodes);
    }

    fn count(&mut self, keys: &Keys, chunk: &Chunk, part: &mut Part) {
        let cluster = self.cycle.cluster;
        let constraints = self.policies.len();
        let topology = |at: usize| &keys.0[at].topology;
        let mut live = chunk.live();
        if self.all_keys {
            live = (0..constraints).fold(live, |live, at| topology(at).having(chunk, live));
        }
        let mut masks = vec![0; constraints];
        for at in lanes(self.wanted) {
            let included = self.policies[at].includes(cluster, chunk, live);
            masks[at] = topology(at).having(chunk, included);
            topology(at).each(chunk, masks[at], |domain, lanes| {
                if let Some(domain) = domain {
                    part.add(constraints + at, domain, i64::from(lanes.count_ones()));
                }
            });
        }
        self.matched.each(cluster, chunk, |bits, lane, pods| {
            for at in lanes(bits & self.wanted) {
                if masks[at] >> lane & 1 == 1
                    && let Some(domain) = topology(at).domain_in(chunk, lane)
                {
                    part.add(at, domain, pods);
                }
            }
        });
    }
}

/// Most constraints of a pod: more are refused by no rule, and by no need.
const MOST: usize = 64;

/// One hard constraint with what is counted for it.
#[derive(Clone)]
struct Hard<'a> {
    constraint: Arc<Constraint<'a>>,
    sums: Sums,
    /// How many nodes each domain has: those without any are not there.
    nodes: Sums,
    /// The two of them with the smallest counts.
    smallest: [Option<(Domain, i64)>; 2],
    /// The smallest count, 0 where there are too few domains.
    least: i64,
    /// Whether the constraint counts the pod itself.
    itself: i64,
}

#[derive(Clone)]
struct Skew<'a> {
    cycle: Cycle<'a>,
    hard: Vec<Hard<'a>>,
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn events(&self) -> &'static [Interest] {
        hints::topology_spread::EVENTS
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Result<Hint, Status> {
        let hard = self.constraints(cluster, pod, UnsatisfiableAction::DoNotSchedule);
        let counts = hard.iter().map(|constraint| Counts {
            key: constraint.key,
            selector: &constraint.selector,
            honor_taints: constraint.honor_node_taints,
        });
        Ok(hints::topology_spread::hint(pod, event, &counts.collect::<Vec<_>>()))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let mut constraints = self.constraints(cluster, pod, UnsatisfiableAction::DoNotSchedule);
        constraints.truncate(MOST);
        if constraints.is_empty() {
            return Ok(PreFilter::Skip);
        }
        // A node that lacks any of the keys counts for none of them.
        let keys = self.counted.with(&pod.template, |counted| {
            let mut counting = Counting::new(cycle, &constraints, (true, all(&constraints)));
            let start = |keys: &mut Keys| Counting::start(cluster, &constraints, keys);
            let count = |keys: &mut Keys, chunk: &Chunk, part: &mut Part| {
                counting.count(keys, chunk, part);
            };
            counted.hard.follow(cluster, reads(cluster, pod), start, count).0.clone()
        });
        let (pods, nodes) = keys.0.split_at(constraints.len());
        let sums = pods.iter().zip(nodes);
        let hard = constraints.into_iter().zip(sums).map(|(constraint, (sums, nodes))| {
            let itself = i64::from(constraint.selector.matches(&pod.template.labels));
            let mut hard = Hard {
                constraint: Arc::new(constraint),
                sums: sums.clone(),
                nodes: nodes.clone(),
                smallest: smallest(sums, nodes),
                least: 0,
                itself,
            };
            hard.find_least();
            hard
        });
        Ok(PreFilter::Filter(Box::new(Skew { cycle, hard: hard.collect() })))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let mut constraints = self.constraints(cluster, pod, UnsatisfiableAction::ScheduleAnyway);
        constraints.truncate(MOST);
        if constraints.is_empty() {
            return Ok(PreScore::Skip);
        }
        let all_keys =
            !pod.template.topology_spread.is_empty() || !matches!(self.defaults, Defaults::System);
        Ok(PreScore::Score(Box::new(self.spread(cycle, feasible, constraints, all_keys))))
    }
}

/// A bit for each constraint.
fn all(constraints: &[Constraint<'_>]) -> u64 {
    u64::MAX >> (MOST - constraints.len())
}

/// The two domains that are there with the smallest sums.
fn smallest(sums: &Sums, nodes: &Sums) -> [Option<(Domain, i64)>; 2] {
    let mut smallest: [Option<(Domain, i64)>; 2] = [None, None];
    for domain in (0..nodes.topology.len() as Domain).filter(|domain| nodes.get(*domain) > 0) {
        let found = Some((domain, sums.get(domain)));
        let is_below = |known: &Option<(Domain, i64)>| {
            known.is_none_or(|known| found.is_some_and(|found| found.1 < known.1))
        };
        if is_below(&smallest[0]) {
            smallest = [found, smallest[0]];
        } else if is_below(&smallest[1]) {
            smallest[1] = found;
        }
    }
    smallest
}

impl Hard<'_> {
    fn find_least(&mut self) {
        let all = 0..self.nodes.topology.len() as Domain;
        let domains = all.filter(|domain| self.nodes.get(*domain) > 0).count();
        self.least = match domains < self.constraint.min_domains {
            true => 0,
            false => self.smallest[0].map_or(0, |(_, sum)| sum),
        };
    }

    /// Why the domain will not do.
    fn reject(&self, domain: Option<Domain>) -> Option<(Code, &'static str)> {
        let Some(domain) = domain else {
            return Some((Code::UnschedulableAndUnresolvable, NO_LABEL));
        };
        let skew = self.sums.get(domain) + self.itself - self.least;
        (skew > self.constraint.max_skew).then_some((Code::Unschedulable, TOO_MANY))
    }
}

impl Skew<'_> {
    /// A pod comes to a node, or goes from it (`updateWithPod`). It counts also
    /// where it is being deleted, or where the selector is empty: so does
    /// kube-scheduler.
    fn change(&mut self, pod: &Pod, node: NodeInfo<'_>, by: i64) {
        if pod.namespace() != self.cycle.pod.namespace()
            || self.hard.iter().any(|hard| hard.sums.topology.domain(node).is_none())
        {
            return;
        }
        for hard in &mut self.hard {
            let policy = hard.constraint.policy(self.cycle.pod);
            let (chunk, lane) = node.place();
            let Some(domain) = hard.sums.topology.domain(node) else { continue };
            if !hard.constraint.selector.matches(&pod.template.labels)
                || policy.includes(node.cluster(), chunk, 1 << lane) == 0
            {
                continue;
            }
            hard.sums.add(domain, by);
            // While all changes are in one domain, another one stands for the rest.
            let others = hard.sums.changed().all(|changed| changed == domain);
            let rest = hard.smallest.iter().flatten().find(|(other, _)| *other != domain);
            hard.smallest = match (others, rest) {
                (true, rest) if hard.nodes.get(domain) > 0 => {
                    let mine = (domain, hard.sums.get(domain));
                    match rest {
                        Some(rest) if rest.1 < mine.1 => [Some(*rest), Some(mine)],
                        rest => [Some(mine), rest.copied()],
                    }
                }
                _ => smallest(&hard.sums, &hard.nodes),
            };
            hard.find_least();
        }
    }
}

impl Filter for Skew<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let mut verdicts =
            self.hard.iter().filter_map(|hard| hard.reject(hard.sums.topology.domain(node)));
        verdicts.next().map(|(code, reason)| Status::new(code, NAME, reason))
    }

    fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let passes = |lane| {
            let rejected = |hard: &Hard<'_>| hard.reject(hard.sums.topology.domain_in(chunk, lane));
            self.hard.iter().all(|hard| rejected(hard).is_none())
        };
        if self.hard.iter().any(|hard| hard.sums.topology.is_of_hosts()) {
            return Ok(each_lane(mask, passes));
        }
        Ok(each_set(chunk, mask, |lane, all| if passes(lane) { all } else { 0 }))
    }

    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        Some(Box::new(self.clone()))
    }

    fn add_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        self.change(pod, node, 1);
        Ok(())
    }

    fn remove_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        self.change(pod, node, -1);
        Ok(())
    }
}

/// One soft constraint with what is counted for it.
struct Soft {
    max_skew: i64,
    sums: Sums,
    weight: f64,
}

struct Spread<'a> {
    cluster: &'a Cluster,
    soft: Vec<Soft>,
    /// Which constraints count pods, by the number of their labels.
    matched: Decided<u64>,
    /// The constraints over single nodes: their pods are counted when the node is
    /// scored, whether or not the constraint includes it.
    of_hosts: u64,
    /// Whether nodes that lack a key are left out.
    all_keys: bool,
}

impl PodTopologySpread {
    fn spread<'a>(
        &self,
        cycle: Cycle<'a>,
        feasible: &Feasible<'_>,
        constraints: Vec<Constraint<'_>>,
        all_keys: bool,
    ) -> Spread<'a> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let is_of_hosts = |constraint: &Constraint<'_>| **constraint.key == *HOSTNAME;
        let of_hosts = constraints
            .iter()
            .enumerate()
            .fold(0, |bits, (at, of)| bits | u64::from(is_of_hosts(of)) << at);
        let keys = self.counted.with(&pod.template, |counted| {
            let wanted = !of_hosts & all(&constraints);
            let mut counting = Counting::new(cycle, &constraints, (all_keys, wanted));
            let start = |keys: &mut Keys| Counting::start(cluster, &constraints, keys);
            let count = |keys: &mut Keys, chunk: &Chunk, part: &mut Part| {
                if wanted != 0 {
                    counting.count(keys, chunk, part);
                }
            };
            counted.soft.follow(cluster, reads(cluster, pod), start, count).0.clone()
        });
        let sums = &keys.0[..constraints.len()];
        // Which values are met among the feasible nodes; the last one is that
        // of the nodes that lack the key.
        let mut seen: Vec<Vec<bool>> = sums
            .iter()
            .map(|sums| match sums.topology.is_of_hosts() {
                true => Vec::new(),
                false => vec![false; sums.topology.len() + 1],
            })
            .collect();
        let mut matched = Matched::new(pod, &constraints);
        let mut scored = 0;
        for (chunk, mut mask) in feasible.chunks() {
            for sums in sums.iter().filter(|_| all_keys) {
                mask = sums.topology.having(chunk, mask);
            }
            scored += mask.count_ones() as usize;
            for (sums, seen) in sums.iter().zip(&mut seen).filter(|(_, seen)| !seen.is_empty()) {
                let none = sums.topology.len();
                sums.topology.each(chunk, mask, |domain, _| {
                    seen[domain.map_or(none, |domain| domain as usize)] = true;
                });
            }
            if of_hosts != 0 {
                for (number, _) in chunk.tally(cluster).groups() {
                    matched.bits(cluster, number);
                }
            }
        }
        let matched = matched.decided;
        let soft = constraints.iter().zip(sums).zip(&seen).map(|((constraint, sums), seen)| {
            let size = match sums.topology.is_of_hosts() {
                true => scored,
                false => seen.iter().filter(|seen| **seen).count(),
            };
            let weight = ((size + 2) as f64).ln();
            Soft { max_skew: constraint.max_skew, sums: sums.clone(), weight }
        });
        Spread { cluster, soft: soft.collect(), matched, of_hosts, all_keys }
    }
}

impl Spread<'_> {
    /// The pods that constraints over single nodes count in each lane.
    fn on_hosts(&self, chunk: &Chunk, mask: u64) -> Vec<Column<i64>> {
        let mut counts = vec![[0; LANES]; self.soft.len()];
        if self.of_hosts != 0 {
            for (number, in_lanes) in chunk.tally(self.cluster).groups() {
                let bits = self.matched.known(number).copied().unwrap_or(0) & self.of_hosts;
                for of in in_lanes.iter().filter(|of| bits != 0 && mask >> of.lane & 1 == 1) {
                    let (lane, living) = (usize::from(of.lane), i64::from(of.living));
                    lanes(bits).for_each(|at| counts[at][lane] += living);
                }
            }
        }
        counts
    }

    fn lane(&self, chunk: &Chunk, lane: usize, on_hosts: &[Column<i64>]) -> i64 {
        let domain = |soft: &Soft| soft.sums.topology.domain_in(chunk, lane);
        if self.all_keys && self.soft.iter().any(|soft| domain(soft).is_none()) {
            return LEFT_OUT;
        }
        let mut score = 0.0;
        for (at, soft) in self.soft.iter().enumerate() {
            let Some(domain) = domain(soft) else { continue };
            let count = match self.of_hosts >> at & 1 {
                1 => on_hosts[at][lane],
                _ => soft.sums.get(domain),
            };
            score += count as f64 * soft.weight + (soft.max_skew - 1) as f64;
        }
        score.round() as i64
    }
}

/// What a node scores that is left out.
const LEFT_OUT: i64 = -1;

impl Score for Spread<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let (chunk, lane) = node.place();
        Ok(self.lane(chunk, lane, &self.on_hosts(chunk, 1 << lane)))
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        let on_hosts = self.on_hosts(chunk, mask);
        if self.of_hosts == 0 {
            each_set(chunk, mask, |lane, all| {
                let score = self.lane(chunk, lane, &on_hosts);
                lanes(all).for_each(|lane| scores[lane] = score);
                0
            });
        } else {
            lanes(mask).for_each(|lane| scores[lane] = self.lane(chunk, lane, &on_hosts));
        }
        Ok(())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [i64]) -> Result<(), Status> {
        let counted = || scores.iter().copied().filter(|score| *score != LEFT_OUT);
        let most = counted().max().unwrap_or(0).max(0);
        let least = counted().min().unwrap_or(0);
        each_run(scores, |score| match (score, most) {
            (LEFT_OUT, _) => 0,
            (_, 0) => 100,
            (score, most) => 100 * (most + least - score) / most,
        });
        Ok(())
    }
}
