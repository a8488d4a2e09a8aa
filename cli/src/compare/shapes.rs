//! The request shapes of a workload's pods, and the capacity that a cluster has left for them.
//!
//! The pods of a shape request the same amounts. The first pod with the fewest node rules represents them, with its
//! node selector, node affinity and tolerations. Rules about other pods, and volumes, are left out, because they limit
//! the pods of an application and not the capacity of the cluster. Pods with resource claims have no shape: which devices
//! they take is in their claims. All runs are measured with the filters of the default profile.

use std::collections::HashMap;
use std::sync::Arc;

use portolan::cache::{NodeInfo, Snapshot};
use portolan::model::{Name, Pod, PodSpec, Resources, Template};
use portolan::plugin::{Cycle, CycleState};
use portolan::{AlgorithmConfig, Framework, WhatIf};

use crate::error::CommandError;
use crate::policy;
use crate::replay::Workload;
use crate::text::{Rounding, amounts};

/// The number of groups by size.
const GROUPS: usize = 5;
/// Copies are counted up to this number.
pub(super) const MOST_COPIES: usize = 10_000;

/// Pods with equal requests.
pub(super) struct Shape {
    pod: Pod,
    /// The requests, such as `cpu 2, memory 4Gi`.
    pub(super) name: String,
    /// The number of pods of this shape.
    pub(super) pods: usize,
}

/// The shapes of a workload.
pub(super) struct Shapes {
    /// All shapes, the largest first.
    all: Vec<Shape>,
    /// The shapes that represent all, the largest first: indices and numbers of pods.
    groups: Vec<(usize, usize)>,
}

/// The capacity that is left.
pub(super) struct Left {
    /// The largest shape of which another pod fits.
    pub(super) largest: Option<String>,
    /// How many more pods of each group fit.
    pub(super) copies: Vec<usize>,
    /// The free amounts on nodes on which no shape fits, with their shares of the allocatable amounts.
    pub(super) stranded: Vec<(String, i64, f64)>,
}

impl Shapes {
    pub(super) fn of(workload: &Workload) -> Shapes {
        let mut known: HashMap<&Resources, (&Pod, usize)> = HashMap::new();
        let has_claims = |pod: &Pod| !pod.template.resource_claims.is_empty();
        for arrival in workload.arrivals.iter().filter(|arrival| !has_claims(&arrival.pod)) {
            let resources = &arrival.pod.template.resources.incoming;
            let (first, pods) = known.entry(resources).or_insert((&arrival.pod, 0));
            *pods += 1;
            if rules(&arrival.pod) < rules(first) {
                *first = &arrival.pod;
            }
        }
        let mut totals: HashMap<String, f64> = HashMap::new();
        for node in &workload.nodes {
            for (name, amount) in requests(&node.allocatable) {
                *totals.entry(name).or_default() += amount as f64;
            }
        }
        // The largest share of a resource of the cluster (dominant share).
        let size = |shape: &Resources| {
            let shares = requests(shape).into_iter().map(|(name, amount)| {
                amount as f64 / totals.get(&name).copied().unwrap_or(1.0).max(1.0)
            });
            shares.fold(0.0, f64::max)
        };
        let mut all: Vec<(f64, Shape)> = known
            .into_iter()
            .map(|(resources, (pod, pods))| {
                (size(resources), Shape { pod: alone(pod), name: named(resources), pods })
            })
            .collect();
        all.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.name.cmp(&y.name)));
        let all: Vec<Shape> = all.into_iter().map(|(_, shape)| shape).collect();
        let groups = groups(&all);
        Shapes { all, groups }
    }

    /// The shapes for which copies are counted, with the numbers of pods that they represent.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&Shape, usize)> {
        self.groups.iter().map(|(at, pods)| (&self.all[*at], *pods))
    }

    /// Measures the capacity that is left. O(shapes × nodes + copies × decision).
    pub(super) fn left(&self, end: &Arc<Snapshot>) -> Result<Left, CommandError> {
        let framework = Arc::new(policy::default_framework()?);
        let mut what_if = WhatIf::new(end, framework.clone(), AlgorithmConfig::default());
        let copies = self.groups().map(|(shape, _)| {
            let fit = what_if.fit_more(&shape.pod, MOST_COPIES);
            fit.into_values().sum::<usize>().min(MOST_COPIES)
        });
        let copies = copies.collect();
        let largest = self.all.iter().find(|shape| what_if.can_schedule(&shape.pod).is_ok());
        Ok(Left {
            largest: largest.map(|shape| shape.name.clone()),
            copies,
            stranded: self.stranded(&framework, end),
        })
    }

    fn stranded(&self, framework: &Framework, end: &Snapshot) -> Vec<(String, i64, f64)> {
        let mut full: Vec<NodeInfo<'_>> = end.nodes().collect();
        // Most nodes with free capacity accept the smallest shape.
        for shape in self.all.iter().rev() {
            let state = CycleState::default();
            let filters = framework.pre_filter(Cycle::new(end, &shape.pod, &state));
            full.retain(|node| filters.filter(*node).is_some());
        }
        let mut sums: Vec<(String, i64, i64)> = Vec::new();
        for node in end.nodes() {
            for (name, has) in requests(&node.allocatable()) {
                match sums.iter_mut().find(|(known, ..)| *known == name) {
                    Some(sum) => sum.2 = sum.2.saturating_add(has),
                    None => sums.push((name, 0, has)),
                }
            }
        }
        for node in full {
            let takes = node.requested();
            for (name, has) in requests(&node.allocatable()) {
                let free = has.saturating_sub(takes.amount(&name)).max(0);
                let sum = sums.iter_mut().find(|(known, ..)| *known == name);
                sum.into_iter().for_each(|sum| sum.1 = sum.1.saturating_add(free));
            }
        }
        let share = |(name, free, has): (String, i64, i64)| {
            let share = free as f64 * 100.0 / has as f64;
            (name, free, share)
        };
        sums.into_iter().map(share).collect()
    }
}

/// How many rules exclude nodes for the pod.
fn rules(pod: &Pod) -> usize {
    let required = pod.template.node_affinity.as_ref().and_then(|it| it.required.as_ref());
    pod.template.node_selector.iter().count() + usize::from(required.is_some())
}

/// Divides the shapes, which are sorted by size, into groups of about the same number of pods that request the same
/// scalar resources. The most frequent shape represents its group.
fn groups(all: &[Shape]) -> Vec<(usize, usize)> {
    let total: usize = all.iter().map(|shape| shape.pods).sum();
    let mut groups: Vec<(usize, usize)> = Vec::new();
    let mut known: HashMap<(Vec<&Name>, usize), usize> = HashMap::new();
    let mut before = 0;
    for (at, shape) in all.iter().enumerate() {
        let scalars = shape.pod.template.resources.incoming.scalars.iter().map(|(name, _)| name);
        // Few shapes are groups of their own.
        let part = if all.len() <= GROUPS { at } else { before * GROUPS / total.max(1) };
        before += shape.pods;
        let group = *known.entry((scalars.collect(), part)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some((first, pods)) => {
                *pods += shape.pods;
                if shape.pods > all[*first].pods {
                    *first = at;
                }
            }
            None => groups.push((at, shape.pods)),
        }
    }
    groups
}

/// The pod without a node, rules about other pods, and volumes.
fn alone(pod: &Pod) -> Pod {
    let of: &PodSpec = &pod.template;
    let spec = PodSpec {
        namespace: of.namespace.clone(),
        resources: of.resources.clone(),
        container_requests: of.container_requests.clone(),
        node_selector: of.node_selector.clone(),
        node_affinity: of.node_affinity.clone(),
        tolerations: of.tolerations.clone(),
        class: of.class,
        launcher: of.launcher,
        ..PodSpec::default()
    };
    let template = Template::new(spec);
    Pod { template, node_name: None, nominated_node_name: None, deletion_time: None, ..pod.clone() }
}

/// The positive amounts by name.
pub(super) fn requests(of: &Resources) -> Vec<(String, i64)> {
    let native =
        [("cpu", of.cpu.0), ("memory", of.memory.0), ("ephemeral-storage", of.ephemeral_storage.0)];
    let native = native.into_iter().map(|(name, amount)| (name.to_owned(), amount));
    let scalars = of.scalars.iter().map(|(name, amount)| (name.to_string(), amount));
    native.chain(scalars).filter(|(_, amount)| *amount > 0).collect()
}

fn named(of: &Resources) -> String {
    let requests = requests(of).into_iter().map(|(name, value)| {
        let [value] = amounts(&name, [value], Rounding::Down);
        format!("{name} {value}")
    });
    let requests: Vec<String> = requests.collect();
    if requests.is_empty() { "no requests".to_owned() } else { requests.join(", ") }
}
