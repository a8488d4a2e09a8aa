//! Reads reservations (scheduling.godel.kubewharf.io/v1alpha1).

use std::time::Duration;

use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};
use super::node::optional;
use super::objects::named;
use super::wire::Annotations;
use super::wire_objects as wire;
use super::wire_pod;
use portolan::model::{GodelPod, Labels, Reservation, ReservationPhase, Uid};

/// Reads a reservation with its placeholder pod, which has the requests of the template's containers and ignores the
/// rest of the template (`ConvertReservationToPod`).
pub(super) fn read(
    wire: &wire::Reservation<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Reservation, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let status = wire.status.clone().unwrap_or_default();
    let annotations = meta.annotations.clone().unwrap_or_default();
    let own_name = named(&meta.name, path)?;
    let namespace = rules.namespace(&meta.namespace);
    rules.about("Reservation", &namespace, &own_name);
    let placeholder = optional(&annotations.reservation_index).ok_or_else(|| {
        let path = path.key("metadata");
        let path = path.key("annotations");
        ReadError::new(&path.key("godel.bytedance.com/reservation-index"), Cause::Missing)
    })?;
    let template = spec.template.clone().unwrap_or_default().spec.unwrap_or_default();
    let template = wire_pod::PodSpec {
        node_name: spec.nodename.clone(),
        init_containers: template.init_containers,
        containers: template.containers,
        priority: template.priority,
        scheduler_name: template.scheduler_name,
        ..wire_pod::PodSpec::default()
    };
    let path_spec = path.key("spec");
    let path_template = path_spec.key("template");
    let mut draft =
        super::pod::template(&meta, &template, namespace.clone(), &path_template, rules)?;
    draft.uid = uid(&annotations, &namespace, &own_name);
    draft.name = format!("{own_name}-placeholder").into();
    draft.spec.labels = Labels::EMPTY;
    draft.spec.owners = Box::default();
    draft.spec.scheduling_group = None;
    draft.spec.tolerations = Box::default();
    draft.spec.godel = Some(Box::new(GodelPod {
        is_placeholder: true,
        reservation_index: Some(placeholder),
        ..GodelPod::default()
    }));
    let ttl = spec.ttl.map(|ttl| {
        let seconds = u64::try_from(ttl).map(Duration::from_secs);
        seconds.map_err(|_| {
            ReadError::value(&path_spec.key("ttl"), &ttl.to_string(), "seconds, 0 or more")
        })
    });
    let owner = status.current_owners.as_ref().filter(|owner| !owner.uid.is_empty());
    Ok(Reservation {
        namespace,
        name: own_name,
        pod: draft.finish(),
        phase: phase(&status.phase, &path.key("status").key("phase"))?,
        owner: owner.map(|owner| Uid::new(&owner.uid)),
        ttl: ttl.transpose()?,
    })
}

/// Returns the uid of the placeholder, which is derived from the pod that left the reservation if the annotations name
/// it. Otherwise it is derived from the reservation's name, whereas Gödel gives all such placeholders the same uid.
fn uid(annotations: &Annotations<'_>, namespace: &str, own_name: &str) -> String {
    match &*annotations.placeholder_uid {
        "" => format!("{namespace}/{own_name}-placeholder"),
        uid => format!("{uid}-placeholder"),
    }
}

fn phase(text: &str, path: &Path<'_>) -> Result<ReservationPhase, ReadError> {
    match text {
        "" | "Pending" => Ok(ReservationPhase::Pending),
        "Reserved" => Ok(ReservationPhase::Reserved),
        "Matched" => Ok(ReservationPhase::Matched),
        "TimeOut" => Ok(ReservationPhase::TimeOut),
        other => Err(ReadError::value(path, other, "one of Pending, Reserved, Matched, TimeOut")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::object;
    use portolan::model::{MilliCpu, Object, Reservation, ReservationPhase};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    fn read(status: Value, annotations: Value) -> Result<Arc<Reservation>, String> {
        let value = json!({
            "apiVersion": "scheduling.godel.kubewharf.io/v1alpha1", "kind": "Reservation",
            "metadata": { "name": "web-0", "namespace": "n", "annotations": annotations },
            "spec": {
                "nodename": "n1", "ttl": 30,
                "template": { "spec": { "priority": 7, "containers": [{
                    "name": "c", "resources": { "requests": { "cpu": "500m" } },
                    "ports": [{ "hostPort": 80, "protocol": "TCP" }],
                }] } },
            },
            "status": status,
        });
        match object("Reservation", &value) {
            Ok(Object::Reservation(reservation)) => Ok(reservation),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn annotations() -> Value {
        json!({
            "godel.bytedance.com/reservation-index": "web",
            "godel.bytedance.com/placeholder-uid": "u",
        })
    }

    #[test]
    fn a_reservation_has_the_requests_of_its_template() {
        let reservation = read(json!({ "phase": "Reserved" }), annotations()).unwrap();
        let pod = &reservation.pod;
        assert_eq!((&*pod.name, &*pod.uid.to_string()), ("web-0-placeholder", "u-placeholder"));
        assert_eq!(pod.template.resources.placed.cpu, MilliCpu(500));
        assert_eq!((pod.template.host_ports.len(), pod.template.priority), (1, 7));
        assert!(reservation.occupies() && pod.template.is_placeholder());
        assert_eq!(reservation.node().map(|node| &**node), Some("n1"));
        assert_eq!(
            (reservation.placeholder(), reservation.ttl),
            ("web", Some(Duration::from_secs(30)))
        );
    }

    #[test]
    fn a_matched_reservation_names_its_owner() {
        let status = json!({ "phase": "Matched", "currentOwners": { "uid": "owner" } });
        let reservation = read(status, annotations()).unwrap();
        assert_eq!(reservation.phase, ReservationPhase::Matched);
        assert_eq!(reservation.owner.as_ref().map(|uid| uid.to_string()).as_deref(), Some("owner"));
    }

    #[test]
    fn invalid_values_are_refused_with_their_path() {
        let error = read(json!({ "phase": "Gone" }), annotations()).unwrap_err();
        assert!(error.contains("status.phase"), "{error}");
        let error = read(json!({}), json!({})).unwrap_err();
        assert!(error.contains("reservation-index"), "{error}");
    }

    #[test]
    fn reservations_without_a_uid_get_distinct_uids() {
        let index = json!({ "godel.bytedance.com/reservation-index": "web" });
        let reservation = read(json!({}), index).unwrap();
        assert_eq!(reservation.pod.uid.to_string(), "n/web-0-placeholder");
    }
}
