//! Measures requested resources and waiting pods over time.

use std::collections::{BTreeMap, HashMap};

use portolan::cache::{Cluster, NodeInfo};
use portolan::model::{Name, Pod, Resources};
use serde::Serialize;

use crate::replacement::is_of_node;

use super::samples::Samples;

/// One resource over the whole cluster.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Usage {
    #[serde(skip)]
    pub(crate) resource: String,
    pub(crate) requested: i64,
    pub(crate) allocatable: i64,
    /// The largest amount requested at any time.
    pub(crate) peak: i64,
    /// The mean from the first arrival until no pod arrives or waits any more, or `None` if the
    /// replay has no times.
    pub(crate) mean: Option<f64>,
}

/// Numbers of waiting pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Pods in the queue that wait for a node.
    pub(crate) unschedulable: usize,
    /// Pods that PreEnqueue keeps out of the queue.
    pub(crate) gated: usize,
    /// Pods assumed on a node that wait for a permit.
    pub(crate) permit: usize,
}

/// How long a node has been in use.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    pods: usize,
    /// Since when, if the node was in use at the last measurement.
    since: Option<f64>,
    /// The seconds in use before that.
    seconds: f64,
}

/// Sums over all pods, updated as pods are placed and removed in O(resources) per pod.
pub(super) struct Meter {
    resources: Vec<Usage>,
    samples: Option<Samples>,
    /// The time of the last measurement, and for each resource the amount since then and the
    /// sum of amounts times seconds before.
    since: f64,
    held: Vec<(i64, f64)>,
    busy: HashMap<Name, Busy>,
    /// The number of nodes in use, and those that changed since the last measurement.
    used: usize,
    changed: Vec<Name>,
}

/// The requested and allocatable amounts of the cluster, by resource.
pub(super) fn usage(cluster: &Cluster) -> Vec<Usage> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut add = |name: &str, requested: i64, allocatable: i64| {
        let sum = sums.entry(name.to_owned()).or_default();
        sum.0 = sum.0.saturating_add(requested);
        sum.1 = sum.1.saturating_add(allocatable);
    };
    for node in cluster.nodes() {
        let (requested, allocatable) = (node.requested(), node.allocatable());
        add("cpu", requested.cpu.0, allocatable.cpu.0);
        add("memory", requested.memory.0, allocatable.memory.0);
        // Traces have no ephemeral storage; a row of zeros would be noise.
        if allocatable.ephemeral_storage.0 > 0 {
            let requested = requested.ephemeral_storage.0;
            add("ephemeral-storage", requested, allocatable.ephemeral_storage.0);
        }
        add("pods", node.pod_count() as i64, node.allowed_pods());
        for (name, amount) in allocatable.scalars.iter() {
            add(name, requested.scalars.get(name).unwrap_or(0), amount);
        }
    }
    sums.into_iter()
        .map(|(resource, (requested, allocatable))| Usage {
            resource,
            requested,
            allocatable,
            peak: requested,
            mean: None,
        })
        .collect()
}

/// The requested and the allocatable amount of a resource on a node.
pub(super) fn usage_of(node: NodeInfo<'_>, resource: &str) -> (i64, i64) {
    match resource {
        "pods" => (node.pod_count() as i64, node.allowed_pods()),
        name => (node.requested().amount(name), node.allocatable().amount(name)),
    }
}

fn amount(of: &Resources, resource: &str) -> i64 {
    match resource {
        "pods" => 1,
        name => of.amount(name),
    }
}

impl Meter {
    /// Starts with the cluster's current sums.
    pub(super) fn new(cluster: &Cluster, keeps_samples: bool) -> Meter {
        let resources = usage(cluster);
        let held = resources.iter().map(|of| (of.requested, 0.0)).collect();
        let in_use = cluster.nodes().filter_map(|node| {
            let pods = node.pods().filter(|pod| !is_of_node(pod.template())).count();
            let busy = Busy { pods, since: Some(0.0), seconds: 0.0 };
            (pods > 0).then(|| (node.name().clone(), busy))
        });
        let busy: HashMap<Name, Busy> = in_use.collect();
        let samples = keeps_samples.then(|| Samples::of(cluster, &resources));
        let used = busy.len();
        Meter { resources, samples, since: 0.0, held, busy, used, changed: Vec::new() }
    }

    pub(super) fn add_pod(&mut self, pod: &Pod, node: &Name) {
        for (at, of) in self.resources.iter_mut().enumerate() {
            let takes = amount(&pod.template.resources.placed, &of.resource);
            of.requested = of.requested.saturating_add(takes);
            of.peak = of.peak.max(of.requested);
            if let Some(samples) = &mut self.samples {
                samples.add(node, at, takes);
            }
        }
        if !is_of_node(&pod.template) {
            let busy = self.busy.entry(node.clone()).or_default();
            busy.pods += 1;
            if busy.pods == 1 {
                self.used += 1;
                self.changed.push(node.clone());
            }
        }
    }

    pub(super) fn remove_pod(&mut self, pod: &Pod, node: &Name) {
        for (at, of) in self.resources.iter_mut().enumerate() {
            let took = amount(&pod.template.resources.placed, &of.resource);
            of.requested = of.requested.saturating_sub(took);
            if let Some(samples) = &mut self.samples {
                samples.add(node, at, took.saturating_neg());
            }
        }
        if !is_of_node(&pod.template)
            && let Some(busy) = self.busy.get_mut(node)
            && busy.pods > 0
        {
            busy.pods -= 1;
            if busy.pods == 0 {
                self.used -= 1;
                self.changed.push(node.clone());
            }
        }
    }

    /// Counts the current amounts from this time on, in seconds.
    pub(super) fn advance(&mut self, at: f64) {
        for ((held, sum), of) in self.held.iter_mut().zip(&self.resources) {
            *sum += *held as f64 * (at - self.since);
            *held = of.requested;
        }
        for node in std::mem::take(&mut self.changed) {
            let Some(busy) = self.busy.get_mut(&node) else { continue };
            match (busy.pods > 0, busy.since) {
                (true, None) => busy.since = Some(at),
                (false, Some(since)) => {
                    busy.seconds += at - since;
                    busy.since = None;
                }
                _ => {}
            }
        }
        self.since = at;
    }

    /// The share of the time in which each node was in use, until the last time that was measured. `None` if the replay
    /// has no times.
    pub(super) fn busy(&self) -> Option<HashMap<Name, f64>> {
        let share = |(node, busy): (&Name, &Busy)| {
            let current = busy.since.map_or(0.0, |since| self.since - since);
            (node.clone(), (busy.seconds + current) / self.since)
        };
        (self.since > 0.0).then(|| self.busy.iter().map(share).collect())
    }

    /// The mean amount of a resource until the last time that was measured.
    pub(super) fn mean(&self, resource: &str) -> Option<f64> {
        let at = self.resources.iter().position(|of| of.resource == resource)?;
        (self.since > 0.0).then(|| self.held[at].1 / self.since)
    }

    /// Records a sample, if samples are kept.
    pub(super) fn sample(&mut self, at: f64, waiting: impl FnOnce() -> Waiting) {
        if let Some(samples) = &mut self.samples {
            samples.take(at, self.used, waiting());
        }
    }

    /// Notes why a pod of the workload waits, if samples are kept. `None` ends the wait.
    pub(super) fn wait(&mut self, pod: usize, reasons: Option<&[String]>) {
        if let Some(samples) = &mut self.samples {
            samples.wait(pod, reasons);
        }
    }

    /// The largest requested amount of a resource at any time.
    pub(super) fn peak(&self, resource: &str) -> i64 {
        self.resources.iter().find(|of| of.resource == resource).map_or(0, |of| of.peak)
    }

    pub(super) fn into_samples(self) -> Option<Samples> {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use portolan::cache::{Config, Engine};
    use portolan::model::{Quantity, node, pod};

    use super::*;

    const STORAGE: &str = "ephemeral-storage";

    #[test]
    fn ephemeral_storage_is_measured_if_a_node_has_it() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("without").cpu(1_000).build()).unwrap();
        assert!(usage(writer.cluster()).iter().all(|of| of.resource != STORAGE));
        writer.add_node(node("with").resource(STORAGE, Quantity::whole(100)).build()).unwrap();
        let mut meter = Meter::new(writer.cluster(), false);
        let pod = pod("p").request(STORAGE, Quantity::whole(30)).build();
        meter.add_pod(&pod, &"with".into());
        let of = meter.resources.iter().find(|of| of.resource == STORAGE).unwrap();
        assert_eq!((of.requested, of.allocatable, of.peak), (30, 100, 30));
    }
}
