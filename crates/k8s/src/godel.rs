//! Reads Gödel's annotations of pods (util/pod/podstate.go).

use super::error::{Cause, Path, ReadError};
use super::node::{name, optional};
use super::wire::{Annotations, List, Metadata, Text, wire};
use portolan::model::{GodelPod, NominatedNode, PodClass, Victim};

/// Reads the annotations of a pod. Returns `None` if it has none that matter. For a `bound` pod, annotations that only
/// matter while it is being scheduled are left out.
pub(super) fn of_pod(
    meta: &Metadata<'_>,
    bound: bool,
    path: &Path<'_>,
) -> Result<Option<Box<GodelPod>>, ReadError> {
    let Some(annotations) = &meta.annotations else { return Ok(None) };
    let Annotations { pod_state, reservation, reservation_of_tce, is_placeholder, .. } =
        annotations;
    let read = GodelPod {
        state: name(pod_state),
        selected_scheduler: optional(&annotations.selected_scheduler),
        assumed_node: optional(&annotations.assumed_node),
        nominated_node: nominated_node(&annotations.nominated_node, path)?,
        reserves: **reservation == *"true" || **reservation_of_tce == *"true",
        reservation_index: optional(&annotations.reservation_index),
        matched_placeholder: optional(&annotations.matched_placeholder),
        is_placeholder: **is_placeholder == *"true",
        movement: optional(&annotations.movement_name),
        request_template: optional(&annotations.request_template),
        has_unknown_class: !PodClass::is_known(
            annotations.qos_level.as_deref(),
            annotations.resource_type.as_deref(),
        ),
    };
    Ok(if bound { read.bound() } else { (read != GodelPod::default()).then(|| Box::new(read)) })
}

wire! {
    struct Nominated<'a> {
        node: Text<'a>,
        victims: List<WireVictim<'a>>,
    }

    struct WireVictim<'a> {
        name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
    }
}

fn nominated_node(text: &str, path: &Path<'_>) -> Result<Option<NominatedNode>, ReadError> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = path.key("metadata");
    let path = path.key("annotations");
    let path = path.key("godel.bytedance.com/nominated-node");
    let wire: Nominated<'_> = serde_json::from_str(text)
        .map_err(|error| ReadError::new(&path, Cause::Syntax(error.to_string())))?;
    if wire.node.is_empty() {
        return Err(ReadError::new(&path.key("node"), Cause::Missing));
    }
    let victim = |wire: &WireVictim<'_>| Victim {
        namespace: name(&wire.namespace),
        name: name(&wire.name),
        uid: name(&wire.uid),
    };
    let victims = wire.victims.iter().map(victim).collect();
    Ok(Some(NominatedNode { node: name(&wire.node), victims }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::pod;
    use portolan::model::{Pod, PodState};
    use serde_json::{Value, json};

    fn read(annotations: Value, node: &str) -> Result<Pod, String> {
        let mut metadata = json!({ "name": "p", "namespace": "n", "uid": "u", "annotations": {} });
        for (key, value) in annotations.as_object().unwrap() {
            metadata["annotations"][format!("godel.bytedance.com/{key}")] = value.clone();
        }
        pod(&json!({ "metadata": metadata, "spec": { "nodeName": node } }))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_assumed_pod_names_its_scheduler_and_its_node() {
        let annotations = json!({
            "pod-state": "assumed", "selected-scheduler": "s-1", "assumed-node": "n1",
            "other": "is skipped",
        });
        let pod = read(annotations, "").unwrap();
        assert_eq!(pod.state(), Ok(PodState::Assumed));
        assert_eq!((pod.node_name.as_deref(), pod.placed_on().map(|n| &**n)), (None, Some("n1")));
        let godel = pod.template.godel.as_ref().unwrap();
        assert_eq!(godel.selected_scheduler.as_deref(), Some("s-1"));
    }

    #[test]
    fn a_pod_with_an_unknown_class_or_launcher_is_for_no_scheduler_until_it_is_bound() {
        for unknown in [json!({ "pod-resource-type": "x" }), json!({ "pod-launcher": "docker" })] {
            assert!(!read(unknown, "").unwrap().is_for("godel"));
        }
        for known in [json!({}), json!({ "pod-resource-type": "best-effort" })] {
            assert!(read(known, "").unwrap().is_for("godel"));
        }
        let bound = read(json!({ "pod-resource-type": "x" }), "n1").unwrap();
        assert_eq!(bound.template, read(json!({}), "n1").unwrap().template);
    }

    #[test]
    fn a_nominated_pod_names_its_victims() {
        let nominated = r#"{"node":"n1","victims":[{"name":"v","namespace":"ns","uid":"vu"}]}"#;
        let annotations = json!({
            "pod-state": "assumed", "selected-scheduler": "s", "nominated-node": nominated,
        });
        let pod = read(annotations, "").unwrap();
        assert_eq!(pod.placed_on().map(|n| &**n), Some("n1"));
        let nominated = pod.template.godel.as_ref().unwrap().nominated_node.clone().unwrap();
        let victim = &nominated.victims[0];
        assert_eq!((&*victim.namespace, &*victim.name, &*victim.uid), ("ns", "v", "vu"));
    }

    #[test]
    fn an_invalid_nomination_is_refused_with_its_path() {
        for (text, why) in [("{", "EOF"), (r#"{"node":""}"#, "required"), ("{} x", "trailing")] {
            let error = read(json!({ "nominated-node": text }), "").unwrap_err();
            assert!(error.contains("metadata.annotations"), "{error}");
            assert!(error.contains("nominated-node"), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn bound_pods_of_one_workload_share_a_template_across_schedulers() {
        let bound = |scheduler: &str, node: &str| {
            let annotations = json!({
                "pod-state": "assumed", "selected-scheduler": scheduler, "assumed-node": node,
            });
            read(annotations, node).unwrap()
        };
        assert_eq!(bound("s-1", "n1").template, bound("s-2", "n2").template);
        assert_eq!(bound("s-1", "n1").template, read(json!({}), "n3").unwrap().template);
    }

    #[test]
    fn reservations_and_movements_are_read() {
        let annotations = json!({
            "reservation": "true", "reservation-index": "web", "movement-name": "m",
            "matched-reservation-placeholder": "n/p-0-placeholder", "request-template": "t",
        });
        let pod = read(annotations, "n1").unwrap();
        let godel = pod.template.godel.as_ref().unwrap();
        assert!(godel.reserves && !godel.is_placeholder);
        assert_eq!(pod.template.reservation_placeholder(), Some("web"));
        assert_eq!(godel.matched_placeholder.as_deref(), Some("n/p-0-placeholder"));
        assert_eq!(godel.movement.as_deref(), Some("m"));
        assert_eq!(pod.template.owner_key().unwrap().to_string(), "RequestTemplate/n/t/");
    }
}
