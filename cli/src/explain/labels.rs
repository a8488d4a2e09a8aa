//! The labels that nodes have, those that the pod requires and no node has, and those that users do not set.

use std::collections::BTreeSet;

use portolan::cache::Cluster;
use portolan::model::{Name, NodeLabels, Operator, Pod};

use crate::names;
use crate::text::requirement;

/// The labels that kubelets set, or only let the cluster's components set (NodeRestriction).
const OF_KUBELET: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
];

/// The domains of labels that kubelets, cloud providers, provisioners of nodes and detectors of features set.
const DOMAINS: [&str; 14] = [
    "node.kubernetes.io",
    "kubelet.kubernetes.io",
    "cloud.google.com",
    "gke.io",
    "amazonaws.com",
    "k8s.aws",
    "azure.com",
    "karpenter.sh",
    "karpenter.azure.com",
    "oraclecloud.com",
    "digitalocean.com",
    "alibabacloud.com",
    "openshift.io",
    "nvidia.com",
];

/// Whether a component of the cluster sets the label: a user's value would be wrong, or overwritten.
pub(super) fn is_owned(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    let is_in = |of: &&str| {
        domain.strip_suffix(*of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    // Drivers of volumes name the domains of their topologies after themselves.
    let is_topology = domain.split('.').any(|part| part == "topology");
    OF_KUBELET.contains(&key) || is_topology || DOMAINS.iter().any(is_in)
}

/// Similar names. Short ones, such as hdd and ssd, must be equal but for their case.
fn near<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut near = names::near(name, known);
    near.retain(|it| name.len() > 3 || it.eq_ignore_ascii_case(name));
    near
}

/// The labels of a cluster's nodes.
pub(super) struct Labels<'c> {
    nodes: Vec<&'c NodeLabels>,
    keys: BTreeSet<&'c str>,
}

impl<'c> Labels<'c> {
    /// O(labels of nodes).
    pub(super) fn of(cluster: &'c Cluster) -> Labels<'c> {
        let nodes = cluster.nodes().filter_map(|node| node.node());
        let nodes: Vec<&NodeLabels> = nodes.map(|node| &node.labels).collect();
        let mut keys = BTreeSet::new();
        let mut last = Vec::new();
        for node in &nodes {
            // Most nodes have the keys of the node before.
            if !node.iter().map(|(key, _)| key).eq(last.iter().copied()) {
                last = node.iter().map(|(key, _)| key).collect();
                keys.extend(&last);
            }
        }
        Labels { nodes, keys }
    }

    /// The values of a label, if a node has its key. O(nodes).
    pub(super) fn values(&self, key: &str) -> Option<BTreeSet<&'c str>> {
        let values = || self.nodes.iter().filter_map(|of| of.get(key)).collect();
        self.keys.contains(key).then(values)
    }

    /// The labels that nodes have and that are similar to one that no node has: the key with similar values, or similar
    /// keys with the value. `known` has the values of the key.
    pub(super) fn instead_of(
        &self,
        key: &str,
        value: &str,
        known: Option<&BTreeSet<&str>>,
    ) -> Vec<(Name, Name)> {
        match known {
            Some(values) if values.contains(value) => Vec::new(),
            Some(values) => {
                let near = near(value, values.iter().copied());
                near.into_iter().map(|it| (key.into(), it.into())).collect()
            }
            None => {
                let labels = self.nodes.iter().flat_map(|of| of.iter());
                let with_value: BTreeSet<&str> =
                    labels.filter(|(_, it)| *it == value).map(|(key, _)| key).collect();
                let near = near(key, with_value);
                near.into_iter().map(|it| (it.into(), value.into())).collect()
            }
        }
    }

    /// The labels that nodes have, for each required label that no node has.
    fn alternatives(&self, key: &str, values: &[&str]) -> Option<String> {
        /// Maximum number of values that are listed.
        const LISTED: usize = 5;
        let Some(known) = self.values(key) else {
            let near = near(key, self.keys.iter().copied());
            return (!near.is_empty()).then(|| near.join(", "));
        };
        let near = values.iter().flat_map(|value| near(value, known.iter().copied()));
        let near: Vec<&str> = near.collect();
        let others = known.iter().copied().filter(|value| !near.contains(value));
        let mut listed: Vec<&str> = near.iter().copied().chain(others).collect();
        let more = if listed.len() > LISTED { ", …" } else { "" };
        listed.truncate(LISTED);
        Some(format!("{key}={}{more}", listed.join(", ")))
    }
}

/// The labels that the pod requires of its node and that no node has, each with those that the cluster has.
pub(super) fn facts(cluster: &Cluster, pod: &Pod) -> Vec<String> {
    let labels = Labels::of(cluster);
    let mut facts = Vec::new();
    let mut add = |what: String, key: &str, values: &[&str]| {
        facts.push(match labels.alternatives(key, values) {
            Some(has) => format!("no node has {what}; the cluster has {has}"),
            None => format!("no node has {what}"),
        });
    };
    let has = |key: &str, value: &str| labels.values(key).is_some_and(|it| it.contains(value));
    let absent = pod.template.node_selector.iter().filter(|(key, it)| !has(key, it));
    absent.for_each(|(key, value)| add(format!("{key}={value}"), key, &[value]));
    let affinity = pod.template.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let Some([term]) = required.map(|required| &*required.terms) else { return facts };
    for it in &term.match_expressions {
        let is_absent = match it.operator {
            Operator::In => {
                let known = labels.values(&it.key).unwrap_or_default();
                !it.values.iter().any(|value| known.contains(&**value))
            }
            Operator::Exists => !labels.keys.contains(&*it.key),
            _ => false,
        };
        if is_absent {
            let values: Vec<&str> = it.values.iter().map(|value| &**value).collect();
            add(requirement(it), &it.key, &values);
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::is_owned;

    #[test]
    fn labels_of_kubelets_and_clouds_are_not_the_users() {
        for key in [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "topology.ebs.csi.aws.com/zone",
            "node.kubernetes.io/instance-type",
            "eks.amazonaws.com/nodegroup",
            "karpenter.k8s.aws/instance-family",
            "cloud.google.com/gke-nodepool",
            "nvidia.com/gpu.product",
        ] {
            assert!(is_owned(key), "{key}");
        }
        for key in [
            "disktype",
            "zone",
            "example.com/pool",
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/team",
        ] {
            assert!(!is_owned(key), "{key}");
        }
    }
}
