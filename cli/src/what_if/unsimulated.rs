//! The parts of the input that change the answer and are not simulated.

use std::collections::BTreeSet;

use portolan::cache::{Cluster, PodInfo};
use portolan::model::{Node, Pod, Taint, TaintEffect};
use portolan_k8s::{Admission, PodController};

use crate::replacement::is_of_node;
use crate::resource_claims::uses_devices;
use crate::text::first_names;

/// The fields that change the pods of these controllers and are not simulated.
pub(super) fn controllers(controllers: &[PodController]) -> Vec<String> {
    let fields = controllers.iter().filter_map(|it| {
        let owner = it.owners.iter().find(|owner| owner.controller)?;
        Some(format!("{} of {} {}/{}", it.unsimulated?, owner.kind, it.namespace, owner.name))
    });
    fields.collect::<BTreeSet<String>>().into_iter().collect()
}

/// The nodes whose kubelets do not respond, except those that fail in the simulation. Their pods are evicted, but do
/// not end.
pub(super) fn unresponsive(cluster: &Cluster, failing: &[String]) -> Option<String> {
    let is_tainted = |node: &Node| {
        let mut taints = node.taints.iter().filter(|it| it.effect == TaintEffect::NoExecute);
        taints.any(|it| [Taint::NOT_READY, Taint::UNREACHABLE].contains(&&*it.key))
    };
    let is_evicted =
        |pod: &PodInfo<'_>| pod.deletion_time().is_none() && !is_of_node(pod.template());
    let nodes = cluster.nodes().filter(|info| {
        info.node().is_some_and(|node| is_tainted(node))
            && !failing.iter().any(|failing| **failing == **info.name())
            && info.pods().any(|pod| is_evicted(&pod))
    });
    let names: Vec<String> = nodes.map(|info| info.name().to_string()).collect();
    (!names.is_empty()).then(|| {
        let noun = if names.len() == 1 { "node" } else { "nodes" };
        format!("evictions from {noun} {}: no kubelet responds", first_names(&names))
    })
}

/// What `--consolidate` does not move.
pub(super) fn moves(cluster: &Cluster) -> Option<String> {
    let mut pods = cluster.nodes().flat_map(|node| node.pods());
    let is_used = pods.any(|pod| uses_devices(pod.template(), cluster));
    is_used.then(|| "moves of pods with resource claims".to_owned())
}

/// What limits the number of pods and is not simulated for the copies of `--fit-more`.
pub(super) fn admission(admission: &Admission) -> Option<String> {
    (!admission.is_empty()).then(|| "limit ranges and quotas of --fit-more".to_owned())
}

/// The parts of a pod that its copies of `--fit-more` are simulated without.
pub(super) fn copies(like: &Pod, cluster: &Cluster) -> Option<String> {
    let known = &cluster.objects().persistent_volume_claims;
    let mut claims = like.template.volumes.iter().filter_map(|volume| volume.claim(&like.name));
    let is_new = claims.any(|claim| known.get(like.namespace(), &claim).is_none());
    let parts = [
        (is_new, "new claims"),
        (!like.template.scheduling_gates.is_empty(), "scheduling gates"),
        (like.node_name.is_some(), "nodeName"),
        (like.group().is_some(), "the pod group"),
    ];
    let parts: Vec<&str> =
        parts.into_iter().filter_map(|(has, what)| has.then_some(what)).collect();
    (!parts.is_empty()).then(|| format!("{} of --fit-more", parts.join(", ")))
}
