//! The persistent volume claims of new pods.

use portolan::cache::Cluster;
use portolan::model::{Name, PersistentVolumeClaim, Pod};
use portolan_k8s::PodController;

/// The claims that are created with a new pod of a controller, and do not exist yet. If the controller is not in the
/// input, they are copied from the claims of another of its pods.
pub(super) fn claims(
    controller: Option<&PodController>,
    like: Option<&Pod>,
    pod: &Pod,
    cluster: &Cluster,
) -> Vec<PersistentVolumeClaim> {
    let known = &cluster.objects().persistent_volume_claims;
    let mut claims: Vec<PersistentVolumeClaim> = match (controller, like) {
        (Some(controller), _) => controller.claims(pod).collect(),
        (None, Some(like)) => {
            let of = |claim: &str| {
                let found = known.get(like.namespace(), claim)?;
                Some(PersistentVolumeClaim {
                    name: renamed(claim, like, &pod.name)?,
                    owner: if found.owner.is_empty() {
                        Name::default()
                    } else {
                        pod.uid.to_string().into()
                    },
                    uid: Name::default(),
                    volume: Name::default(),
                    selected_node: Name::default(),
                    is_bound: false,
                    is_lost: false,
                    is_deleting: false,
                    ..(**found).clone()
                })
            };
            let used = like.template.volumes.iter().filter_map(|volume| volume.claim(&like.name));
            used.filter_map(|claim| of(&claim)).collect()
        }
        (None, None) => Vec::new(),
    };
    claims.retain(|claim| known.get(&claim.namespace, &claim.name).is_none());
    claims
}

/// The name of a claim for another pod of the controller, if each pod has one of its own.
pub(super) fn renamed(claim: &str, like: &Pod, name: &str) -> Option<Name> {
    // Of a stateful set or an ephemeral volume.
    let of_set = claim.strip_suffix(&*like.name).filter(|rest| rest.ends_with('-'));
    let of_volume = claim.strip_prefix(&*like.name).filter(|rest| rest.starts_with('-'));
    of_set
        .map(|rest| format!("{rest}{name}"))
        .or_else(|| of_volume.map(|rest| format!("{name}{rest}")))
        .map(Name::from)
}
