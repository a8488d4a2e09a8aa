//! A lower bound on the number of nodes on which the pods fit, however they are scheduled.
//!
//! For each resource, the largest nodes are added up until all requests fit. The same is done
//! for each group of pods that may run on some nodes only, because of their node selectors,
//! affinities and tolerations. Disjoint groups need the sum of their nodes. Pods with anti-affinity
//! to each other by hostname need at least as many nodes as they are on now. Nodes that cannot be
//! emptied count in any case.

use std::collections::HashMap;
use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{
    HOSTNAME, Labels, Name, Node, NodeSelector, Pod, Resources, TaintEffect, Template, Toleration,
};
use portolan::scheduler::drain::{self, DrainOptions};
use serde::Serialize;

/// A lower bound.
#[derive(Serialize)]
pub(in super::super) struct Bound {
    pub(in super::super) nodes: usize,
    /// The resource or the constraint that it follows from.
    pub(in super::super) by: String,
}

/// The size of a node as a vector, in the order of `Demand::resources`.
type Amounts = Vec<i64>;

/// The pods of one template.
struct OfTemplate {
    /// Their group.
    group: usize,
    /// Whether they have anti-affinity to each other by hostname.
    avoids_itself: bool,
    /// The number of nodes that they are on, as far as the nodes have been counted.
    nodes: usize,
    /// The last of these nodes.
    last_node: Option<usize>,
}

/// Where pods may run: node selector, required node affinity, and tolerations.
type Placement = (Labels, Option<NodeSelector>, Box<[Toleration]>);

/// A set of nodes.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Nodes(Box<[u64]>);

impl Nodes {
    fn none(nodes: usize) -> Nodes {
        Nodes(vec![0; nodes.div_ceil(64)].into())
    }

    fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn contains(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn is_within(&self, other: &Nodes) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }

    fn meets(&self, other: &Nodes) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn unite(&mut self, other: &Nodes) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// Pods that may run on the same nodes.
struct Group {
    nodes: Nodes,
    pods: i64,
    requested: Amounts,
    /// The largest number of its pods that must be on different nodes.
    apart: usize,
}

/// The demand of pods, and the capacity of nodes.
pub(super) struct Demand {
    resources: Vec<Name>,
    /// The capacity of each node for pods that can move.
    capacities: Vec<Amounts>,
    fixed: Vec<bool>,
    placements: HashMap<Placement, usize>,
    groups: Vec<Group>,
    average: Average,
}

/// The size of an average node.
#[derive(Clone)]
pub(super) struct Average {
    cpu: f64,
    memory: f64,
    scalars: HashMap<Name, f64>,
}

pub(super) fn average(cluster: &Cluster) -> Average {
    let nodes = cluster.len().max(1) as f64;
    let mut average = Average { cpu: 0.0, memory: 0.0, scalars: HashMap::new() };
    for info in cluster.nodes() {
        let of = info.allocatable();
        average.cpu += of.cpu.0 as f64 / nodes;
        average.memory += of.memory.0 as f64 / nodes;
        for (name, amount) in of.scalars.iter() {
            *average.scalars.entry(name.clone()).or_default() += amount as f64 / nodes;
        }
    }
    average
}

impl Average {
    /// The largest share of a resource.
    pub(super) fn share(&self, of: &Resources) -> f64 {
        let share = |amount: i64, whole: f64| {
            if whole > 0.0 { amount as f64 / whole } else { 0.0 }
        };
        let scalars = of.scalars.iter().map(|(name, amount)| {
            share(amount, self.scalars.get(name).copied().unwrap_or_default())
        });
        let first = share(of.cpu.0, self.cpu).max(share(of.memory.0, self.memory));
        scalars.fold(first, f64::max)
    }
}

const PODS: usize = 3;

impl Demand {
    /// O(pods + placements × nodes).
    pub(super) fn of(cluster: &Cluster, fixed: &[bool]) -> Demand {
        let mut resources: Vec<Name> =
            ["cpu", "memory", "ephemeral-storage", "pods"].map(Name::from).into();
        for info in cluster.nodes() {
            for (name, _) in info.allocatable().scalars.iter() {
                if !resources.contains(name) {
                    resources.push(name.clone());
                }
            }
        }
        let amounts = |of: &Resources, pods: i64| -> Amounts {
            let fields = [of.cpu.0, of.memory.0, of.ephemeral_storage.0, pods];
            let scalars = resources[4..].iter().map(|name| of.scalars.get(name).unwrap_or(0));
            fields.into_iter().chain(scalars).collect()
        };
        let infos: Vec<_> = cluster.nodes().filter(|info| info.node().is_some()).collect();
        let mut demand = Demand {
            capacities: Vec::with_capacity(infos.len()),
            fixed: fixed.to_vec(),
            placements: HashMap::new(),
            groups: Vec::new(),
            average: average(cluster),
            resources: Vec::new(),
        };
        let nodes: Vec<&Arc<Node>> = infos.iter().filter_map(|info| info.node()).collect();
        let mut by_template: HashMap<*const Template, OfTemplate> = HashMap::new();
        let all = DrainOptions { force: true, delete_local_data: true };
        for (at, info) in infos.iter().enumerate() {
            let mut free = amounts(&info.allocatable(), info.allowed_pods());
            let mut moves: Amounts = vec![0; resources.len()];
            for pod in info.pods() {
                let template = pod.template();
                let needs = amounts(&template.resources.placed, 1);
                if drain::stays(template, all).is_some() {
                    free.iter_mut().zip(&needs).for_each(|(free, needs)| *free -= needs);
                    continue;
                }
                moves.iter_mut().zip(&needs).for_each(|(moves, needs)| *moves += needs);
                let known =
                    by_template.entry(Arc::as_ptr(template)).or_insert_with(|| OfTemplate {
                        group: demand.group(template, &nodes),
                        avoids_itself: avoids_itself(cluster, template),
                        nodes: 0,
                        last_node: None,
                    });
                let group = &mut demand.groups[known.group];
                // A pod may stay where it is.
                group.nodes.insert(at);
                group.pods += 1;
                group.requested.resize(resources.len(), 0);
                group.requested.iter_mut().zip(&needs).for_each(|(sum, needs)| *sum += needs);
                // Pods that are on one node although they avoid each other may stay there.
                if known.avoids_itself && known.last_node.replace(at) != Some(at) {
                    known.nodes += 1;
                    group.apart = group.apart.max(known.nodes);
                }
            }
            // A node may have more pods than fit on it; they may stay.
            free.iter_mut().zip(&moves).for_each(|(free, moves)| *free = (*free).max(*moves));
            demand.capacities.push(free);
        }
        demand.resources = resources;
        // Any number of pods that avoid each other by hostname may run on a node without one, so such a group gives no
        // bound by anti-affinity.
        let has_none = |at: &usize| nodes[*at].labels.hostname().is_none();
        let without_hostname: Vec<usize> = (0..nodes.len()).filter(has_none).collect();
        for group in &mut demand.groups {
            if without_hostname.iter().any(|at| group.nodes.contains(*at)) {
                group.apart = 0;
            }
        }
        demand
    }

    /// The number of the group of pods with this template.
    fn group(&mut self, template: &Template, nodes: &[&Arc<Node>]) -> usize {
        let placement = placement(template);
        if let Some(known) = self.placements.get(&placement) {
            return *known;
        }
        let mut set = Nodes::none(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            if may_run(&placement, node) {
                set.insert(at);
            }
        }
        self.groups.push(Group { nodes: set, pods: 0, requested: Vec::new(), apart: 0 });
        self.placements.insert(placement, self.groups.len() - 1);
        self.groups.len() - 1
    }

    /// Whether the pod's selectors and tolerations allow the node.
    pub(super) fn may_run(&self, pod: &Pod, at: usize) -> bool {
        let group = self.placements.get(&placement(&pod.template));
        group.is_none_or(|group| self.groups[*group].nodes.contains(at))
    }

    /// Large pods first.
    pub(super) fn rank(&self, pod: &Pod) -> (std::cmp::Reverse<u64>, Name, Name) {
        let share = self.average.share(&pod.template.resources.incoming);
        let share = std::cmp::Reverse((share * 1e9) as u64);
        (share, pod.namespace().clone(), pod.name.clone())
    }

    /// The lower bound. O(sets² + sets × nodes × log nodes).
    pub(super) fn bound(&self) -> Bound {
        let count = self.capacities.len();
        let mut all = Nodes::none(count);
        (0..count).for_each(|at| all.insert(at));
        let mut sets: Vec<&Nodes> = vec![&all];
        for group in &self.groups {
            if !sets.contains(&&group.nodes) {
                sets.push(&group.nodes);
            }
        }
        let mut needs: Vec<(Bound, &Nodes)> =
            sets.into_iter().map(|set| (self.need(set), set)).collect();
        let whole = needs.remove(0).0;
        // Disjoint sets, those that need the most nodes first.
        needs.sort_by_key(|(need, _)| std::cmp::Reverse(need.nodes));
        let mut covered = Nodes::none(count);
        let (mut sum, mut parts): (usize, Vec<String>) = (0, Vec::new());
        for (need, set) in needs {
            if need.nodes > 0 && !set.meets(&covered) {
                covered.unite(set);
                sum += need.nodes;
                parts.push(format!("{} ({})", need.nodes, need.by));
            }
        }
        let outside = (0..count).filter(|at| self.fixed[*at] && !covered.contains(*at)).count();
        if outside > 0 {
            parts.push(format!("{outside} (cannot be emptied)"));
        }
        sum += outside;
        if sum > whole.nodes {
            let more = if parts.len() > 4 { " + …" } else { "" };
            parts.truncate(4);
            return Bound { nodes: sum, by: format!("{}{more}", parts.join(" + ")) };
        }
        whole
    }

    /// The number of nodes of a set that the pods which may run nowhere else need.
    fn need(&self, set: &Nodes) -> Bound {
        let groups = self.groups.iter().filter(|group| group.nodes.is_within(set));
        let mut requested: Amounts = vec![0; self.resources.len()];
        let (mut apart, mut pods) = (0, 0);
        for group in groups {
            requested.iter_mut().zip(&group.requested).for_each(|(sum, of)| *sum += of);
            apart = apart.max(group.apart);
            pods += group.pods;
        }
        let members: Vec<usize> =
            (0..self.capacities.len()).filter(|at| set.contains(*at)).collect();
        let fixed = members.iter().filter(|at| self.fixed[**at]).count();
        let of = if members.len() == self.capacities.len() {
            String::new()
        } else {
            let pods = crate::text::count(usize::try_from(pods).unwrap_or(0), "pod");
            format!(" of {pods} restricted to {}", crate::text::count(members.len(), "node"))
        };
        let mut need = Bound { nodes: fixed, by: "nodes that cannot be emptied".to_owned() };
        for (at, wanted) in requested.iter().enumerate() {
            let mut wanted = *wanted;
            members.iter().filter(|it| self.fixed[**it]).for_each(|it| {
                wanted -= self.capacities[*it][at];
            });
            let free = members.iter().filter(|it| !self.fixed[**it]);
            let mut free: Vec<i64> = free.map(|it| self.capacities[*it][at]).collect();
            free.sort_unstable_by(|a, b| b.cmp(a));
            let mut nodes = fixed;
            for capacity in free {
                if wanted <= 0 {
                    break;
                }
                wanted -= capacity;
                nodes += 1;
            }
            if nodes > need.nodes {
                let what = if at == PODS { "the number of pods" } else { &*self.resources[at] };
                need = Bound { nodes, by: format!("{what}{of}") };
            }
        }
        if apart > need.nodes {
            need = Bound { nodes: apart, by: format!("anti-affinity{of}") };
        }
        need
    }
}

fn placement(template: &Template) -> Placement {
    let affinity = template.node_affinity.as_ref();
    (
        template.node_selector.clone(),
        affinity.and_then(|affinity| affinity.required.clone()),
        template.tolerations.clone(),
    )
}

fn may_run((selector, affinity, tolerations): &Placement, node: &Node) -> bool {
    selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && affinity.as_ref().is_none_or(|it| it.matches(&node.name, &node.labels))
        && node.taints.iter().all(|taint| {
            taint.effect == TaintEffect::PreferNoSchedule
                || tolerations.iter().any(|toleration| toleration.tolerates(taint))
        })
}

/// Whether pods of this template must be on different nodes.
fn avoids_itself(cluster: &Cluster, template: &Template) -> bool {
    let namespace = cluster.objects().namespaces.get("", &template.namespace);
    let labels = namespace.map_or(&Labels::EMPTY, |namespace| &namespace.labels);
    let terms = template.pod_anti_affinity.iter().flat_map(|affinity| affinity.required.iter());
    terms.into_iter().any(|term| {
        &*term.topology_key == HOSTNAME
            && term.matches(&template.namespace, labels, &template.labels)
    })
}
