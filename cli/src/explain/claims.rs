//! The state of the pod's persistent volume claims, which the reasons of nodes do not name.

use portolan::cache::Cluster;
use portolan::model::{NodeSelector, PersistentVolumeClaim, Pod, VolumeBindingMode};

use crate::text::requirement;

/// The plugins whose rejections depend on claims.
pub(super) const PLUGINS: [&str; 4] =
    ["VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"];

/// The state of each claim.
pub(super) fn facts(cluster: &Cluster, pod: &Pod) -> Vec<String> {
    let mut facts = Vec::new();
    for source in pod.template.volumes.iter() {
        let Some(claim) = source.claim(&pod.name) else { continue };
        let found = cluster.objects().persistent_volume_claims.get(pod.namespace(), &claim);
        let state = match found {
            None => "does not exist".to_owned(),
            Some(found) => state(cluster, found),
        };
        facts.push(format!("claim {}/{claim} {state}", pod.namespace()));
    }
    facts
}

fn state(cluster: &Cluster, claim: &PersistentVolumeClaim) -> String {
    let volume = &claim.volume;
    if claim.is_lost {
        return format!("is lost: its volume {volume} no longer exists");
    }
    if claim.is_deleting {
        return "is being deleted".to_owned();
    }
    if !volume.is_empty() {
        return match cluster.objects().persistent_volumes.get("", volume) {
            None => format!("is bound to volume {volume}, which does not exist"),
            Some(found) => match &found.node_affinity {
                None => format!("is bound to volume {volume}"),
                Some(nodes) => {
                    format!("is bound to volume {volume}, only for nodes with {}", terms(nodes))
                }
            },
        };
    }
    if claim.class.is_empty() {
        return "is not bound, and has no storage class: a volume without a class must fit it"
            .to_owned();
    }
    let class = &claim.class;
    match cluster.objects().storage_classes.get("", class) {
        None => format!("is not bound, and its storage class {class} does not exist"),
        Some(found) if found.binding_mode == VolumeBindingMode::Immediate => format!(
            "is not bound yet: storage class {class} binds claims before pods are scheduled"
        ),
        Some(found) => {
            let volumes = match &*found.provisioner {
                "kubernetes.io/no-provisioner" => "provisions no volumes".to_owned(),
                provisioner if found.allowed_topologies.terms.is_empty() => {
                    format!("provisions volumes with {provisioner}")
                }
                provisioner => format!(
                    "provisions volumes with {provisioner} only for nodes with {}",
                    terms(&found.allowed_topologies)
                ),
            };
            format!("is bound when its pod is scheduled: storage class {class} {volumes}")
        }
    }
}

/// A node selector in one line.
fn terms(selector: &NodeSelector) -> String {
    let term = |term: &portolan::model::NodeSelectorTerm| {
        let all = term.match_expressions.iter().chain(&term.match_fields);
        all.map(requirement).collect::<Vec<_>>().join(",")
    };
    selector.terms.iter().map(term).collect::<Vec<_>>().join(" or ")
}
