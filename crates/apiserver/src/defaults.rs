//! The values that the API server fills in when a field is absent, kind by kind.
//!
//! Only fields that schedulers, kubelets and controllers read are filled in. Token volumes, probes and service
//! addresses are not.

use serde_json::{Map, Value, json};

use crate::devices;
use crate::resources::Resource;

/// Fields that Kubernetes serializes as null.
const WRITTEN_AS_NULL: &[&str] = &[
    "creationTimestamp",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
    "firstTimestamp",
    "lastProbeTime",
    "lastTimestamp",
    "lastTransitionTime",
    "topologyKeys",
];

/// Fills in absent fields of an object that a client sent, and drops its nulls.
pub(crate) fn fill(resource: &Resource, object: &mut Value) {
    drop_nulls(object);
    if let Some((part, Value::Object(defaults))) = constants(resource) {
        let part =
            if part.is_empty() { object.as_object_mut() } else { Some(section(object, part)) };
        if let Some(part) = part {
            defaults.iter().for_each(|(field, value)| absent(part, field, value.clone()));
        }
    }
    match (resource.group, resource.kind) {
        ("storage.k8s.io", "CSINode") => {
            for driver in maps(object.pointer_mut("/spec/drivers")) {
                absent(driver, "topologyKeys", Value::Null);
            }
        }
        ("", "Pod") => pod(object),
        ("", "Node") => {
            section(object, "spec");
            let status = section(object, "status");
            if let (None, Some(capacity)) =
                (status.get("allocatable"), status.get("capacity").cloned())
            {
                status.insert("allocatable".into(), capacity);
            }
        }
        ("", "Service") => {
            for port in maps(object.pointer_mut("/spec/ports")) {
                absent(port, "protocol", json!("TCP"));
                if let Some(number) = port.get("port").cloned() {
                    absent(port, "targetPort", number);
                }
            }
        }
        ("", "ReplicationController") => {
            let spec = section(object, "spec");
            template(spec);
            if !spec.contains_key("selector") {
                let labels =
                    spec.get("template").map(|template| template["metadata"]["labels"].clone());
                absent(spec, "selector", labels.unwrap_or_default());
            }
        }
        ("apps", _) => template(section(object, "spec")),
        ("resource.k8s.io", kind) => devices::fill(kind, object),
        _ => {}
    }
}

/// The fields with constant defaults of a kind, and the part of its objects that has them.
fn constants(resource: &Resource) -> Option<(&'static str, Value)> {
    Some(match (resource.group, resource.kind) {
        (_, "Event") => (
            "",
            json!({
                "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null, "deprecatedSource": {},
            }),
        ),
        ("", "PersistentVolume") => {
            ("spec", json!({"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}))
        }
        ("", "PersistentVolumeClaim") => ("spec", json!({"volumeMode": "Filesystem"})),
        ("", "Service") => (
            "spec",
            json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}),
        ),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => ("spec", json!({"replicas": 1})),
        ("apps", "Deployment") => (
            "spec",
            json!({
                "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                },
            }),
        ),
        ("apps", "StatefulSet") => (
            "spec",
            json!({
                "replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            }),
        ),
        ("storage.k8s.io", "StorageClass") => {
            ("", json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}))
        }
        ("storage.k8s.io", "CSIDriver") => (
            "spec",
            json!({
                "attachRequired": true, "podInfoOnMount": false, "volumeLifecycleModes": ["Persistent"],
                "storageCapacity": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": false,
                "seLinuxMount": false,
            }),
        ),
        ("scheduling.k8s.io", "PriorityClass") => {
            ("", json!({"preemptionPolicy": "PreemptLowerPriority"}))
        }
        _ => return None,
    })
}

fn pod(object: &mut Value) {
    for [part, field] in [["spec", "schedulingGates"], ["status", "conditions"]] {
        // An empty list is not written.
        if object[part][field].as_array().is_some_and(Vec::is_empty) {
            section(object, part).remove(field);
        }
    }
    pod_spec(section(object, "spec"));
    for condition in maps(object.pointer_mut("/status/conditions")) {
        for field in ["lastProbeTime", "lastTransitionTime"] {
            absent(condition, field, Value::Null);
        }
    }
}

/// The maps in a list.
pub(crate) fn maps(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let items = list.and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(Value::as_object_mut)
}

/// The map under `name`, which is created if it is absent.
pub(crate) fn section<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object[name].is_object() {
        object[name] = Value::Object(Map::new());
    }
    object[name].as_object_mut().expect("the line above made it a map")
}

pub(crate) fn absent(map: &mut Map<String, Value>, field: &str, value: Value) {
    map.entry(field).or_insert(value);
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| !value.is_null() || WRITTEN_AS_NULL.contains(&key.as_str()));
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(template) = spec.get_mut("template").filter(|template| template.is_object()) {
        absent(section(template, "metadata"), "creationTimestamp", Value::Null);
        pod_spec(section(template, "spec"));
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    absent(spec, "restartPolicy", json!("Always"));
    absent(spec, "dnsPolicy", json!("ClusterFirst"));
    absent(spec, "terminationGracePeriodSeconds", json!(30));
    absent(spec, "schedulerName", json!("default-scheduler"));
    absent(spec, "securityContext", json!({}));
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for field in ["containers", "initContainers"] {
        maps(spec.get_mut(field)).for_each(|container| default_container(container, host_network));
    }
    for volume in maps(spec.get_mut("volumes")) {
        if volume.keys().all(|key| key == "name") {
            volume.insert("emptyDir".into(), json!({}));
        }
        for (source, field, value) in [
            ("configMap", "defaultMode", json!(420)),
            ("secret", "defaultMode", json!(420)),
            ("hostPath", "type", json!("")),
        ] {
            if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
                absent(source, field, value);
            }
        }
    }
}

fn default_container(container: &mut Map<String, Value>, host_network: bool) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if moving_tag(image) { "Always" } else { "IfNotPresent" };
    absent(container, "imagePullPolicy", json!(policy));
    absent(container, "terminationMessagePath", json!("/dev/termination-log"));
    absent(container, "terminationMessagePolicy", json!("File"));
    absent(container, "resources", json!({}));
    if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) {
        // An absent request defaults to the limit.
        if let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() {
            let requests = resources.entry("requests").or_insert_with(|| json!({}));
            if let Some(requests) = requests.as_object_mut() {
                limits.into_iter().for_each(|(name, limit)| absent(requests, &name, limit));
            }
        }
    }
    for port in maps(container.get_mut("ports")) {
        absent(port, "protocol", json!("TCP"));
        if let (true, Some(number)) = (host_network, port.get("containerPort").cloned()) {
            absent(port, "hostPort", number);
        }
    }
}

/// The image has no tag or the tag `latest`, and no digest.
fn moving_tag(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// The class of a pod's quality of service.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|field| spec[field].as_array())
        .flatten();
    let (mut guaranteed, mut best_effort) = (true, true);
    for container in containers {
        let resources = &container["resources"];
        for resource in ["cpu", "memory"] {
            let request = quantity(&resources["requests"][resource]);
            let limit = quantity(&resources["limits"][resource]);
            best_effort &= request == 0.0 && limit == 0.0;
            guaranteed &= limit > 0.0 && request == limit;
        }
    }
    match (best_effort, guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

/// The approximate value of a quantity. 0 if it is absent or invalid.
pub(crate) fn quantity(value: &Value) -> f64 {
    let text = match value {
        Value::Number(number) => return number.as_f64().unwrap_or(0.0),
        Value::String(text) => text.as_str(),
        _ => return 0.0,
    };
    const SUFFIXES: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let suffix =
        SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (digits, factor) = suffix.unwrap_or((text, 1.0));
    digits.parse::<f64>().unwrap_or(0.0) * factor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    #[test]
    fn an_absent_request_defaults_to_the_limit() {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "a/b:1",
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}]}});
        fill(resources::pods(), &mut pod);
        let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(*requests, json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(qos_class(&pod["spec"]), "Burstable");
    }

    #[test]
    fn quality_of_service_follows_from_requests_and_limits() {
        let class =
            |resources: Value| qos_class(&json!({"containers": [{"resources": resources}]}));
        assert_eq!(class(json!({})), "BestEffort");
        assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(
            class(json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": both})),
            "Guaranteed"
        );
    }

    #[test]
    fn images_without_a_fixed_tag_are_always_pulled() {
        for (image, moves) in [
            ("pause", true),
            ("r:5000/pause", true),
            ("pause:latest", true),
            ("r/pause:1", false),
            ("p@sha256:0", false),
        ] {
            assert_eq!(moving_tag(image), moves, "{image}");
        }
    }

    #[test]
    fn nulls_are_dropped_except_those_that_kubernetes_writes() {
        let mut object = json!({"a": null, "lastProbeTime": null, "b": [{"c": null, "d": 1}]});
        drop_nulls(&mut object);
        assert_eq!(object, json!({"lastProbeTime": null, "b": [{"d": 1}]}));
    }
}
