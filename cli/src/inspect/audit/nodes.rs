//! Findings about nodes: the sums of their pods, their host ports, and pods of nodes that do not exist.

use std::collections::{BTreeMap, BTreeSet};

use portolan::cache::{Cluster, NodeInfo, PodInfo, Store};
use portolan::model::{HostPort, Name, Pod, PodClass, Resources};
use portolan_dra::Devices;

use super::finding::{Findings, Kind};
use crate::text::{Rounding, amounts, count, first_names};

/// A pod of the input that is on a node or ghost.
pub(super) type Placed<'a> = (&'a Pod, PodInfo<'a>);

/// O(pods), plus the pairs of host ports of each node.
pub(super) fn check(
    cluster: &Cluster,
    placed: &[Placed<'_>],
    is_godel: bool,
    findings: &mut Findings,
) {
    for node in cluster.nodes() {
        if has_allocatable(node) {
            check_sums(node, is_godel, findings);
        } else {
            let pods = count(node.pod_count(), "pod");
            let problem = format!("has no allocatable resources, so no pod fits; it has {pods}");
            findings.add(Kind::NoAllocatable, format!("node {}", node.name()), problem);
        }
        check_ports(node, findings);
    }
    let mut missing: BTreeMap<&Name, BTreeSet<String>> = BTreeMap::new();
    for (pod, info) in placed {
        let node = info.node();
        if node.node().is_none() {
            missing.entry(node.name()).or_default().insert(pod.key().to_string());
        }
    }
    for (node, pods) in missing {
        let gone = format!("{} on it ({})", count(pods.len(), "pod"), first_names(&pods));
        let problem = format!("does not exist: the pod garbage collector deletes {gone}");
        findings.add(Kind::MissingNode, format!("node {node}"), problem).pods = pods;
    }
}

const CLASSES: [PodClass; 2] = [PodClass::Guaranteed, PodClass::BestEffort];

fn has_allocatable(node: NodeInfo<'_>) -> bool {
    CLASSES.into_iter().any(|class| {
        let has = node.allocatable_of(class);
        has.cpu.0 > 0 || has.memory.0 > 0 || node.allowed_pods_of(class) > 0
    })
}

fn check_sums(node: NodeInfo<'_>, is_godel: bool, findings: &mut Findings) {
    let subject = || format!("node {}", node.name());
    for class in CLASSES {
        if !node.pods().any(|pod| pod.template().class == class) {
            continue;
        }
        // Kubernetes has one class of node resources.
        let of = if is_godel { format!("{} ", class.as_str()) } else { String::new() };
        for (resource, [takes, has]) in overcommitted(node, class) {
            let problem = format!("{of}pods request {takes} {resource}, allocatable {has}");
            findings.add(Kind::Overcommitted, subject(), problem);
        }
        let allowed = node.allowed_pods_of(class);
        if node.pod_count() as i64 > allowed {
            let problem = format!("has {}, allowed {allowed}", count(node.pod_count(), "pod"));
            findings.add(Kind::Overcommitted, subject(), problem);
        }
    }
}

/// The overcommitted resources of a pod class: name, requested and allocatable amounts.
fn overcommitted(node: NodeInfo<'_>, class: PodClass) -> Vec<(String, [String; 2])> {
    let (takes, has) = (node.requested_of(class), node.allocatable_of(class));
    let native = |of: &Resources| [of.cpu.0, of.memory.0, of.ephemeral_storage.0];
    let names = ["cpu", "memory", "ephemeral-storage"].into_iter();
    let native = names.zip(native(&takes).into_iter().zip(native(&has)));
    // Device classes supply resources that the node does not offer.
    let devices = node.cluster().store::<Devices>();
    let is_supplied = |name: &Name| devices.as_ref().is_ok_and(|devices| devices.supplies(name));
    let scalars = takes.scalars.iter().map(|(name, takes)| (name, takes, has.scalars.get(name)));
    let scalars = scalars.filter(|(name, _, has)| has.is_some() || !is_supplied(name));
    let scalars = scalars.map(|(name, takes, has)| (&**name, (takes, has.unwrap_or_default())));
    let over = native.chain(scalars).filter(|(_, (takes, has))| takes > has);
    over.map(|(name, (takes, has))| (name.to_owned(), amounts(name, [takes, has], Rounding::Down)))
        .collect()
}

fn check_ports(node: NodeInfo<'_>, findings: &mut Findings) {
    let used: Vec<&HostPort> = node.used_ports().map(|(port, _)| port).collect();
    for (port, users) in node.used_ports() {
        let conflicts = |other: &&&HostPort| port.conflicts(other);
        if users < 2 && used.iter().filter(conflicts).count() < 2 {
            continue;
        }
        let uses =
            |pod: &PodInfo<'_>| pod.template().host_ports.iter().any(|it| port.conflicts(it));
        let pods =
            node.pods().filter(uses).map(|pod| format!("{}/{}", pod.namespace(), pod.name()));
        let pods: BTreeSet<String> = pods.collect();
        if pods.len() > 1 {
            let what = format!("{}/{}", port.port, port.protocol.as_str());
            let problem = format!(
                "{} use host port {what} ({}): only one can start",
                count(pods.len(), "pod"),
                first_names(&pods)
            );
            findings.add(Kind::HostPort, format!("node {}", node.name()), problem).pods = pods;
        }
    }
}
