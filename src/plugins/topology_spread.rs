//! Pods spread over topology domains (podtopologyspread/{filtering,scoring}.go).

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, Point, PreFilter, PreScore, Score, Status, each_lane,
};
use crate::model::{
    HOSTNAME, LabelSelector, Name, Node, Operator, Pod, Requirement, TopologySpreadConstraint,
    UnsatisfiableAction,
};
use crate::snapshot::{Chunk, Cluster, NodeInfo, lanes};

use super::node_affinity::is_required;
use super::taint_toleration::has_untolerated;
use super::topology::{Domain, Sums, Topology};

/// Rejects nodes on which the pod would make its hard spread constraints fail,
/// and prefers those that its soft ones prefer.
#[derive(Clone, Debug, Default)]
pub struct PodTopologySpread {
    defaults: Defaults,
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
        PodTopologySpread { defaults: Defaults::List(constraints) }
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
    key: &'a str,
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

    /// Whether the node's pods count for the pod.
    fn includes(&self, pod: &Pod, node: &Node) -> bool {
        let template = &pod.template;
        let required = template.node_affinity.as_ref().and_then(|a| a.required.as_ref());
        (!self.honor_node_affinity
            || is_required(&template.node_selector, required, &node.name, &node.labels))
            && !(self.honor_node_taints && has_untolerated(&template.tolerations, &node.taints))
    }
}

/// Which pods a set of constraints counts: a bit for each constraint, found when
/// a template is first met.
struct Counted<'a> {
    cluster: &'a Cluster,
    namespace: &'a Name,
    selectors: Vec<LabelSelector>,
    known: Vec<OnceLock<u64>>,
}

impl<'a> Counted<'a> {
    fn new(cluster: &'a Cluster, pod: &'a Pod, constraints: &[Constraint<'_>]) -> Counted<'a> {
        // An empty selector counts no pod.
        let selector = |constraint: &Constraint<'_>| match constraint.selector.is_empty() {
            true => LabelSelector::Nothing,
            false => LabelSelector::clone(&constraint.selector),
        };
        let mut known = Vec::new();
        known.resize_with(cluster.most_templates(), OnceLock::new);
        Counted {
            cluster,
            namespace: pod.namespace(),
            selectors: constraints.iter().map(selector).collect(),
            known,
        }
    }

    fn bits(&self, id: u32) -> u64 {
        *self.known[id as usize].get_or_init(|| {
            let template = self.cluster.template(id);
            let Some(template) = template.filter(|t| t.namespace == *self.namespace) else {
                return 0;
            };
            let counts = self.selectors.iter().map(|s| u64::from(s.matches(&template.labels)));
            counts.enumerate().fold(0, |bits, (at, bit)| bits | bit << at)
        })
    }

    /// How many of the node's pods each constraint counts.
    fn on(&self, node: NodeInfo<'_>, counts: &mut [i64]) {
        counts.fill(0);
        let (chunk, at) = node.place();
        for template in chunk.living_templates_on(at) {
            let mut bits = self.bits(template);
            while bits != 0 {
                counts[bits.trailing_zeros() as usize] += 1;
                bits &= bits - 1;
            }
        }
    }
}

/// All nodes, chunk by chunk, which is quicker than in their order.
fn unordered(cluster: &Cluster) -> impl Iterator<Item = NodeInfo<'_>> {
    cluster.chunk_list().flat_map(move |(_, _, chunk)| {
        lanes(chunk.live()).filter_map(move |at| cluster.node_in(chunk, at))
    })
}

/// Most constraints of a pod: more are refused by no rule, and by no need.
const MOST: usize = 64;

/// One hard constraint with what is counted for it.
struct Hard<'a> {
    constraint: Constraint<'a>,
    sums: Sums<'a>,
    /// The smallest count of a domain, 0 where there are too few domains.
    least: i64,
    /// Whether the constraint counts the pod itself.
    itself: i64,
}

struct Skew<'a>(Vec<Hard<'a>>);

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let mut constraints = self.constraints(cluster, pod, UnsatisfiableAction::DoNotSchedule);
        constraints.truncate(MOST);
        if constraints.is_empty() {
            return Ok(PreFilter::Skip);
        }
        let counted = Counted::new(cluster, pod, &constraints);
        let mut sums: Vec<Sums<'_>> =
            constraints.iter().map(|c| Sums::new(Topology::new(cluster, c.key))).collect();
        let mut seen: Vec<Vec<bool>> =
            sums.iter().map(|sums| vec![false; sums.topology.len()]).collect();
        let mut counts = vec![0; constraints.len()];
        for node in unordered(cluster) {
            let Some(object) = node.node() else { continue };
            let domains: Option<Vec<Domain>> =
                sums.iter().map(|sums| sums.topology.domain(node)).collect();
            // A node that lacks any of the keys counts for none of them.
            let Some(domains) = domains else { continue };
            counted.on(node, &mut counts);
            for (at, constraint) in constraints.iter().enumerate() {
                if constraint.includes(pod, object) {
                    sums[at].add(domains[at], counts[at]);
                    seen[at][domains[at] as usize] = true;
                }
            }
        }
        let hard = constraints.into_iter().zip(sums).zip(seen).map(|((constraint, sums), seen)| {
            let domains = || seen.iter().enumerate().filter(|(_, seen)| **seen);
            let least = match domains().count() < constraint.min_domains {
                true => 0,
                false => domains().map(|(at, _)| sums.get(at as Domain)).min().unwrap_or(0),
            };
            let itself = i64::from(constraint.selector.matches(&pod.template.labels));
            Hard { constraint, sums, least, itself }
        });
        Ok(PreFilter::Filter(Box::new(Skew(hard.collect()))))
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
        Ok(PreScore::Score(Box::new(Spread::new(cluster, pod, feasible, constraints, all_keys))))
    }
}

impl Hard<'_> {
    /// Why the domain will not do.
    fn reject(&self, domain: Option<Domain>) -> Option<(Code, &'static str)> {
        let Some(domain) = domain else {
            return Some((Code::UnschedulableAndUnresolvable, NO_LABEL));
        };
        let skew = self.sums.get(domain) + self.itself - self.least;
        (skew > self.constraint.max_skew).then_some((Code::Unschedulable, TOO_MANY))
    }
}

impl Filter for Skew<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let mut verdicts =
            self.0.iter().filter_map(|hard| hard.reject(hard.sums.topology.domain(node)));
        verdicts.next().map(|(code, reason)| Status::new(code, NAME, reason))
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(each_lane(mask, |lane| {
            self.0.iter().all(|hard| {
                hard.reject(hard.sums.topology.domain_in(cluster, chunk, lane)).is_none()
            })
        }))
    }
}

/// One soft constraint with what is counted for it.
struct Soft<'a> {
    constraint: Constraint<'a>,
    sums: Sums<'a>,
    weight: f64,
}

struct Spread<'a> {
    soft: Vec<Soft<'a>>,
    counted: Counted<'a>,
    /// Whether nodes that lack a key are left out.
    all_keys: bool,
}

impl<'a> Spread<'a> {
    fn new(
        cluster: &'a Cluster,
        pod: &'a Pod,
        feasible: &Feasible<'_>,
        constraints: Vec<Constraint<'a>>,
        all_keys: bool,
    ) -> Spread<'a> {
        let counted = Counted::new(cluster, pod, &constraints);
        let mut soft: Vec<Soft<'_>> = constraints
            .into_iter()
            .map(|constraint| {
                let sums = Sums::new(Topology::new(cluster, constraint.key));
                Soft { constraint, sums, weight: 0.0 }
            })
            .collect();
        // Which values are met among the feasible nodes; the last one is that
        // of the nodes that lack the key.
        let mut seen: Vec<Vec<bool>> =
            soft.iter().map(|soft| vec![false; soft.sums.topology.len() + 1]).collect();
        let mut left_out = 0;
        for node in feasible.nodes() {
            let lacks = |soft: &Soft<'_>| soft.sums.topology.domain(node).is_none();
            if all_keys && soft.iter().any(lacks) {
                left_out += 1;
                continue;
            }
            for (soft, seen) in soft.iter().zip(&mut seen) {
                let none = soft.sums.topology.len();
                let domain = soft.sums.topology.domain(node).map_or(none, |d| d as usize);
                seen[domain] = true;
            }
        }
        for (soft, seen) in soft.iter_mut().zip(&seen) {
            let size = match soft.constraint.key == HOSTNAME {
                true => feasible.len() - left_out,
                false => seen.iter().filter(|seen| **seen).count(),
            };
            soft.weight = ((size + 2) as f64).ln();
        }
        let mut counts = vec![0; soft.len()];
        // Hosts are counted when they are scored.
        if soft.iter().any(|soft| soft.constraint.key != HOSTNAME) {
            for node in unordered(cluster) {
                let Some(object) = node.node() else { continue };
                let lacks = |soft: &Soft<'_>| soft.sums.topology.domain(node).is_none();
                if all_keys && soft.iter().any(lacks) {
                    continue;
                }
                counted.on(node, &mut counts);
                for (at, (soft, seen)) in soft.iter_mut().zip(&seen).enumerate() {
                    if let Some(domain) = soft.sums.topology.domain(node)
                        && soft.constraint.key != HOSTNAME
                        && seen[domain as usize]
                        && soft.constraint.includes(pod, object)
                    {
                        soft.sums.add(domain, counts[at]);
                    }
                }
            }
        }
        Spread { soft, counted, all_keys }
    }
}

/// What a node scores that is left out.
const LEFT_OUT: i64 = -1;

impl Score for Spread<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let lacks = |soft: &Soft<'_>| soft.sums.topology.domain(node).is_none();
        if self.all_keys && self.soft.iter().any(lacks) {
            return Ok(LEFT_OUT);
        }
        let mut counts = [0; MOST];
        let counts = &mut counts[..self.soft.len()];
        if self.soft.iter().any(|soft| soft.constraint.key == HOSTNAME) {
            self.counted.on(node, counts);
        }
        let mut score = 0.0;
        for (at, soft) in self.soft.iter().enumerate() {
            let Some(domain) = soft.sums.topology.domain(node) else { continue };
            let count = match soft.constraint.key == HOSTNAME {
                true => counts[at],
                false => soft.sums.get(domain),
            };
            score += count as f64 * soft.weight + (soft.constraint.max_skew - 1) as f64;
        }
        Ok(score.round() as i64)
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [i64]) -> Result<(), Status> {
        let counted = || scores.iter().copied().filter(|score| *score != LEFT_OUT);
        let most = counted().max().unwrap_or(0).max(0);
        let least = counted().min().unwrap_or(0);
        for score in scores {
            *score = match (*score, most) {
                (LEFT_OUT, _) => 0,
                (_, 0) => 100,
                (score, most) => 100 * (most + least - score) / most,
            };
        }
        Ok(())
    }
}
