//! Nodes for programs and the page: their places, and the amounts of their resources, in one order for all nodes.

use std::collections::{BTreeMap, BTreeSet};

use portolan::cache::{NodeInfo, Snapshot};
use portolan::model::{Name, Node, Resources, Taint};
use serde_json::{Value, json};

use crate::selection::zones;

/// The most kinds of resources with columns of their own: a node may name any number.
const MOST_RESOURCES: usize = 12;

/// The labels by which providers name the pool of a node, and those by which people do.
const POOL_LABELS: [&str; 7] = [
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "pool",
    "node.kubernetes.io/instance-type",
];

/// The resources that nodes have, each with a column in the lists of nodes and pods.
pub(crate) struct Columns {
    /// The names of the scalar resources.
    scalars: Vec<Name>,
}

const GIB: f64 = (1_u64 << 30) as f64;

impl Columns {
    /// The resources of the nodes. O(nodes).
    pub(crate) fn of(cluster: &Snapshot) -> Columns {
        let mut scalars: BTreeMap<Name, usize> = BTreeMap::new();
        for node in cluster.nodes() {
            for (name, amount) in node.allocatable().scalars.iter() {
                if amount > 0 && !name.starts_with("hugepages-") {
                    *scalars.entry(name.clone()).or_default() += 1;
                }
            }
        }
        let mut scalars: Vec<(Name, usize)> = scalars.into_iter().collect();
        scalars.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
        scalars.truncate(MOST_RESOURCES - 3);
        Columns { scalars: scalars.into_iter().map(|(name, _)| name).collect() }
    }

    /// The names and units of the resources.
    pub(crate) fn json(&self) -> Vec<Value> {
        let fixed = [("cpu", "cores"), ("memory", "GiB"), ("pods", "")];
        let scalars = self.scalars.iter().map(|name| (&**name, ""));
        let columns = fixed.into_iter().chain(scalars);
        columns.map(|(name, unit)| json!({ "name": name, "unit": unit })).collect()
    }

    /// The amounts in the units of the columns.
    pub(crate) fn amounts(&self, of: &Resources, pods: i64) -> Vec<f64> {
        let fixed = [of.cpu.0 as f64 / 1000.0, of.memory.0 as f64 / GIB, pods as f64];
        let scalars = self.scalars.iter().map(|name| of.scalars.get(name).unwrap_or(0) as f64);
        fixed.into_iter().chain(scalars).collect()
    }

    pub(crate) fn allocatable(&self, node: NodeInfo<'_>) -> Vec<f64> {
        let pods = node.node().map_or(0, |node| node.allowed_pods);
        self.amounts(&node.allocatable(), pods)
    }

    pub(crate) fn requested(&self, node: NodeInfo<'_>) -> Vec<f64> {
        let pods = i64::try_from(node.pod_count()).unwrap_or(i64::MAX);
        self.amounts(&node.requested(), pods)
    }

    /// All nodes of a cluster, with the resources and the pools. O(nodes).
    pub(crate) fn nodes(&self, cluster: &Snapshot) -> Value {
        let nodes = cluster.nodes().map(|node| self.node(node));
        json!({
            "resources": self.json(),
            "pools": pools(cluster),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }

    /// A node with its amounts.
    pub(crate) fn node(&self, info: NodeInfo<'_>) -> Listed {
        let node = info.node();
        let taints = node.into_iter().flat_map(|node| node.taints.iter()).map(taint);
        Listed {
            name: info.name().to_string(),
            zone: node.and_then(|node| zones(node).next()).map(str::to_owned),
            pool: node.and_then(|node| pool(node)).map(str::to_owned),
            is_cordoned: node.is_some_and(|node| node.unschedulable),
            taints: taints.collect(),
            pods: info.pod_count(),
            allocatable: self.allocatable(info),
            requested: self.requested(info),
        }
    }
}

/// A node as lists and maps show it.
#[derive(PartialEq, serde::Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    zone: Option<String>,
    pool: Option<String>,
    is_cordoned: bool,
    taints: Vec<String>,
    pods: usize,
    allocatable: Vec<f64>,
    requested: Vec<f64>,
}

/// A taint as `kubectl taint` writes it.
pub(crate) fn taint(taint: &Taint) -> String {
    let Taint { key, value, effect } = taint;
    let equals = if value.is_empty() { "" } else { "=" };
    format!("{key}{equals}{value}:{effect:?}")
}

/// The pool of a node, by the first of the labels for it.
pub(crate) fn pool(node: &Node) -> Option<&str> {
    pool_labels(node).next().map(|(_, value)| value)
}

fn pool_labels(node: &Node) -> impl Iterator<Item = (&'static str, &str)> {
    POOL_LABELS.into_iter().filter_map(|key| Some((key, node.labels.get(key)?)))
}

/// The pools by name, each with a selector of its nodes. O(nodes).
fn pools(cluster: &Snapshot) -> Vec<Value> {
    let mut sizes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    // A node of one pool may have the label of another one as well, such as its instance type.
    let mut others: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    for node in cluster.nodes().filter_map(|info| info.node()) {
        let mut labels = pool_labels(node);
        let Some((first, name)) = labels.next() else { continue };
        *sizes.entry((name, first)).or_default() += 1;
        others.extend(labels.map(|(key, name)| (name, key, first)));
    }
    let pools = sizes.into_iter().map(|((name, key), nodes)| {
        let mut selector = format!("{key}={name}");
        for (_, _, first) in
            others.range((name, key, "")..).take_while(|of| (of.0, of.1) == (name, key))
        {
            selector.push_str(&format!(",!{first}"));
        }
        json!({ "name": name, "selector": selector, "nodes": nodes })
    });
    pools.collect()
}
