//! Findings about Gödel's objects and annotations, and pod groups.

use std::collections::BTreeSet;

use portolan::cache::Cluster;
use portolan::model::ObjectKind;

use super::finding::{Findings, Kind};
use crate::pod_list::PodList;
use crate::text::count;

/// The pending pods' groups and states, and the nodes of reservations and movements.
pub(super) fn check(cluster: &Cluster, pending: &PodList, findings: &mut Findings) {
    for pod in pending.iter() {
        if let Err(abnormal) = pod.state() {
            findings.add(Kind::InvalidState, format!("pod {}", pod.key()), abnormal.to_string());
        }
        if let Some((namespace, name)) = pod.group()
            && !cluster.contains_object(ObjectKind::PodGroup, namespace, name)
        {
            let problem = format!("pod group {name} does not exist: the pod is not scheduled");
            findings.add_pod(Kind::MissingPodGroup, pod, None, problem);
        }
    }
    check_reservations(cluster, findings);
    check_movements(cluster, findings);
}

fn check_reservations(cluster: &Cluster, findings: &mut Findings) {
    for place in cluster.reservations().into_iter().flat_map(|places| places.iter()) {
        let object = format!("reservation of {}", place.pod.key());
        if cluster.node(place.node()).is_none() {
            findings.add(
                Kind::MissingReservedNode,
                object,
                format!("node {} does not exist", place.node()),
            );
        } else if !place.confirmed {
            findings.add(Kind::UnconfirmedReservation, object, "no Reservation object confirms it");
        }
    }
}

fn check_movements(cluster: &Cluster, findings: &mut Findings) {
    for of in cluster.movements().into_iter().flat_map(|movements| movements.iter()) {
        let object = || format!("movement {}", of.movement);
        if of.desired > 0 && cluster.node(&of.node).is_none() {
            let what = format!("node {} does not exist, but pods are suggested for it", of.node);
            findings.add(Kind::MissingReservedNode, object(), what);
        }
        let used = of.actual().iter().chain(of.assumed()).collect::<BTreeSet<_>>().len();
        if used as u64 > of.desired {
            let (owner, desired, pods) = (&of.owner, of.desired, count(used, "pod"));
            let what = format!("{pods} of {owner} on node {}, limit {desired}", of.node);
            findings.add(Kind::ExcessMovement, object(), what);
        }
    }
}
