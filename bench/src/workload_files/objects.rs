//! The objects that operations create, with scheduler_perf's defaults (util.go, executor.go, node_util.go) and those of
//! test/utils/runners.go.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use portolan_cli::CommandError;

use super::sources::Sources;
use super::steps::{CreateNodes, CreatePods};
use super::target::metadata;
use super::template::Place;

/// Generates the last part of names.
#[derive(Debug, Default)]
pub(super) struct Names(AtomicU64);

impl Names {
    /// Replaces `generateName` by a name, which is not used again.
    pub(super) fn name(&self, object: &mut Value) {
        if !metadata(object, "name").is_empty() {
            return;
        }
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        // Relaxed: each number is taken once, and orders no other memory.
        let mut number = self.0.fetch_add(1, Ordering::Relaxed);
        let mut suffix = Vec::new();
        while number > 0 || suffix.len() < 5 {
            suffix.push(DIGITS[(number % 36) as usize]);
            number /= 36;
        }
        let suffix: String = suffix.into_iter().rev().map(char::from).collect();
        let name = format!("{}{suffix}", metadata(object, "generateName"));
        object["metadata"]["name"] = name.into();
    }
}

/// Sets the type of an object, which its template may omit.
fn typed(mut object: Value, kind: &str) -> Value {
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    object
}

/// The nodes of `createNodes`, each followed by its CSINode if the operation has one.
pub(super) fn nodes(
    sources: &Sources,
    names: &Names,
    prefix: &str,
    operation: &CreateNodes,
) -> Result<Vec<Value>, CommandError> {
    let count = operation.count;
    let mut made = Vec::with_capacity(count);
    for index in 0..count {
        let mut node = match &operation.template {
            Some(path) => typed(sources.get(path)?.object(Place { index, count })?, "Node"),
            None => base_node(prefix),
        };
        names.name(&mut node);
        let name = metadata(&node, "name").to_owned();
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name.clone().into();
        let csi_node = prepare_node(&mut node, &name, index, operation);
        made.push(node);
        made.extend(csi_node);
    }
    Ok(made)
}

fn base_node(prefix: &str) -> Value {
    let amounts = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": prefix},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Changes a node, and returns its CSINode if there is one.
fn prepare_node(
    node: &mut Value,
    name: &str,
    index: usize,
    operation: &CreateNodes,
) -> Option<Value> {
    let Some(allocatable) = &operation.allocatable else {
        let labels = &mut node["metadata"]["labels"];
        if let Some(label) = &operation.label {
            labels[&label.key] = label.values[index % label.values.len()].clone().into();
        } else if let Some(label) = &operation.unique_label {
            // Names are unique.
            labels[&label.key] = name.into();
        }
        return None;
    };
    let status = &mut node["status"];
    if status["allocatable"].is_null() {
        // The default of the API server.
        status["allocatable"] = status["capacity"].clone();
    }
    for (resource, amount) in &allocatable.amounts {
        status["allocatable"][resource] = amount.clone().into();
    }
    let drivers = allocatable.drivers.iter().map(|(driver, limit)| {
        let allocatable = limit.count.map(|count| json!({"count": count}));
        json!({"name": driver, "nodeID": name, "allocatable": allocatable})
    });
    let migrated = allocatable.migrated.join(",");
    Some(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name, "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated},
        },
        "spec": {"drivers": drivers.collect::<Vec<_>>()},
    }))
}

/// A namespace, from a template if there is one.
pub(super) fn namespace(
    sources: &Sources,
    name: &str,
    template: Option<&str>,
) -> Result<Value, CommandError> {
    let mut namespace = match template {
        Some(path) => sources.get(path)?.object(Place { index: 0, count: 1 })?,
        None => json!({}),
    };
    namespace["metadata"]["name"] = name.into();
    Ok(typed(namespace, "Namespace"))
}

/// The pods of `createPods`, each after its claim and its volume if the operation has any.
pub(super) fn pods(
    sources: &Sources,
    names: &Names,
    namespace: &str,
    operation: &CreatePods,
    template: Option<&str>,
) -> Result<Vec<Value>, CommandError> {
    let count = operation.count;
    let mut made = Vec::with_capacity(count);
    for index in 0..count {
        let place = Place { index, count };
        let mut pod = match template {
            Some(path) => typed(sources.get(path)?.object(place)?, "Pod"),
            None => base_pod(),
        };
        correct_case(&mut pod);
        names.name(&mut pod);
        pod["metadata"]["namespace"] = namespace.into();
        if let Some((volume, claim)) = operation.volumes() {
            let claim_name = format!("pvc-{index}");
            pod["spec"]["volumes"] =
                json!([{"name": "vol", "persistentVolumeClaim": {"claimName": claim_name}}]);
            made.extend(bound_volume(sources, namespace, index, volume, claim)?);
        }
        made.push(pod);
    }
    Ok(made)
}

fn base_pod() -> Value {
    let amounts = json!({"cpu": "100m", "memory": "500Mi"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-"},
        "spec": {"containers": [{
            "name": "pause",
            "image": "registry.k8s.io/pause",
            "ports": [{"containerPort": 80}],
            "resources": {"limits": amounts, "requests": amounts},
        }]},
    })
}

/// A claim and a volume that are bound to each other.
fn bound_volume(
    sources: &Sources,
    namespace: &str,
    index: usize,
    volume: &str,
    claim: &str,
) -> Result<[Value; 2], CommandError> {
    let place = Place { index: 0, count: 1 };
    let mut volume = typed(sources.get(volume)?.object(place)?, "PersistentVolume");
    let mut claim = typed(sources.get(claim)?.object(place)?, "PersistentVolumeClaim");
    let claim_name = format!("pvc-{index}");
    let volume_name = format!("{namespace}-vol-{index}");
    claim["metadata"]["name"] = claim_name.clone().into();
    claim["metadata"]["namespace"] = namespace.into();
    claim["spec"]["volumeName"] = volume_name.clone().into();
    claim["status"]["phase"] = "Bound".into();
    let spec = &mut volume["spec"];
    if !spec["csi"].is_null() {
        spec["csi"]["volumeHandle"] = volume_name.clone().into();
    } else if !spec["awsElasticBlockStore"].is_null() {
        spec["awsElasticBlockStore"]["volumeID"] = format!("vol-{index}").into();
    }
    spec["claimRef"] = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name,
    });
    volume["metadata"]["name"] = volume_name.into();
    volume["status"]["phase"] = "Bound".into();
    Ok([claim, volume])
}

/// The fields of a topology spread constraint.
const SPREAD: [&str; 8] = [
    "labelSelector",
    "matchLabelKeys",
    "maxSkew",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "topologyKey",
    "whenUnsatisfiable",
];

/// Corrects the case of field names. scheduler_perf reads pods with Go's parser, which ignores the case, and a template
/// of Kubernetes has `NodeTaintsPolicy`.
fn correct_case(pod: &mut Value) {
    let constraints = pod["spec"]["topologySpreadConstraints"].as_array_mut();
    for constraint in constraints.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in SPREAD {
            let other = constraint.keys().find(|key| key.eq_ignore_ascii_case(field)).cloned();
            if let Some(value) = other.and_then(|other| constraint.remove(&other)) {
                constraint.insert(field.to_owned(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_differ_and_given_names_stay() {
        let names = Names::default();
        let made = |metadata: Value| {
            let mut object = json!({"metadata": metadata});
            names.name(&mut object);
            metadata_name(&object)
        };
        assert_eq!(made(json!({"generateName": "pod-"})), "pod-00000");
        assert_eq!(made(json!({"generateName": "pod-"})), "pod-00001");
        assert_eq!(made(json!({"generateName": "pod-", "name": "a"})), "a");
    }

    fn metadata_name(object: &Value) -> String {
        metadata(object, "name").to_owned()
    }

    #[test]
    fn nodes_get_their_allocatable_amounts_labels_and_drivers() {
        let sources = Sources::of(std::path::Path::new("."));
        let made = |strategy: Value| {
            let operation = serde_json::from_value(strategy).expect("an operation");
            let operation = CreateNodes { count: 3, ..operation };
            nodes(&sources, &Names::default(), "n-", &operation).expect("nodes")
        };
        let label =
            json!({"labelNodePrepareStrategy": {"labelKey": "zone", "labelValues": ["a", "b"]}});
        let zones: Vec<Value> =
            made(label).iter().map(|node| node["metadata"]["labels"]["zone"].clone()).collect();
        assert_eq!(zones, ["a", "b", "a"]);

        let made = made(json!({"nodeAllocatableStrategy": {
            "nodeAllocatable": {"example.com/gpu": "8"},
            "csiNodeAllocatable": {"csi.example.com": {"count": 39}},
            "migratedPlugins": ["kubernetes.io/aws-ebs"],
        }}));
        assert_eq!(made.len(), 6);
        assert_eq!(made[0]["status"]["allocatable"]["example.com/gpu"], "8");
        assert_eq!(made[0]["status"]["allocatable"]["cpu"], "4");
        assert_eq!(made[0]["metadata"]["labels"]["kubernetes.io/hostname"], "n-00000");
        assert_eq!(made[1]["metadata"]["name"], "n-00000");
        assert_eq!(made[1]["spec"]["drivers"][0]["allocatable"]["count"], 39);
    }

    #[test]
    fn the_case_of_spread_fields_is_corrected() {
        let mut pod = json!({"spec": {"topologySpreadConstraints": [{"NodeTaintsPolicy": "Honor", "maxSkew": 1}]}});
        correct_case(&mut pod);
        let expected = json!([{"nodeTaintsPolicy": "Honor", "maxSkew": 1}]);
        assert_eq!(pod["spec"]["topologySpreadConstraints"], expected);
    }
}
