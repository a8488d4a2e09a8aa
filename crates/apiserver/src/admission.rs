//! Admission: the plugins of kube-apiserver that affect schedulers, and the initial status of each kind.

use serde_json::{Value, json};

use crate::clock::now;
use crate::defaults::{qos_class, section};
use crate::error::ApiError;
use crate::resources::{self, Resource};
use crate::store::{Key, Store};

/// Refuses new content in a namespace that does not exist (NamespaceLifecycle).
pub(crate) fn namespace_accepts(
    store: &Store,
    resource: &Resource,
    key: &Key,
) -> Result<(), ApiError> {
    if !resource.namespaced {
        return Ok(());
    }
    let namespace = &key.namespace;
    let namespaces = resources::namespaces();
    match store.of(namespaces).get(&Key::new("", namespace)) {
        Some(_) => Ok(()),
        None => Err(ApiError::not_found(namespaces, namespace)),
    }
}

/// Completes a new object, whose defaults are filled in, and sets its initial status.
pub(crate) fn admit(
    store: &Store,
    resource: &Resource,
    key: &Key,
    object: &mut Value,
) -> Result<(), ApiError> {
    match (resource.group, resource.kind) {
        ("", "Pod") => admit_pod(store, resource, key, object)?,
        ("", "Node") => {
            section(object, "status");
        }
        ("", "Namespace") => {
            object["status"] = json!({"phase": "Active"});
            let labels = section(&mut object["metadata"], "labels");
            labels.insert("kubernetes.io/metadata.name".into(), key.name.clone().into());
        }
        ("", "PersistentVolume") => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now()});
            add_finalizer(object, "kubernetes.io/pv-protection");
        }
        ("", "PersistentVolumeClaim") => {
            object["status"] = json!({"phase": "Pending"});
            add_finalizer(object, "kubernetes.io/pvc-protection");
            if object["spec"]["storageClassName"].is_null() {
                let (_, classes) = store.of(resources::storage_classes()).objects();
                let default = classes.iter().find(|class| {
                    class.value["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
                });
                if let Some(class) = default {
                    object["spec"]["storageClassName"] = class.version.key.name.clone().into();
                }
            }
        }
        ("storage.k8s.io", "VolumeAttachment") => object["status"] = json!({"attached": false}),
        _ if resource.status => object["status"] = json!({}),
        _ => {}
    }
    Ok(())
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = section(object, "metadata").entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut().filter(|list| !list.contains(&finalizer.into())) {
        list.push(finalizer.into());
    }
}

fn admit_pod(
    store: &Store,
    resource: &Resource,
    key: &Key,
    pod: &mut Value,
) -> Result<(), ApiError> {
    let spec = section(pod, "spec");
    spec.entry("enableServiceLinks").or_insert(json!(true));
    let account = spec.get("serviceAccountName").cloned().unwrap_or_else(|| json!("default"));
    spec.insert("serviceAccount".into(), account.clone());
    spec.insert("serviceAccountName".into(), account);
    if store.admits_priorities {
        set_priority(store, resource, key, pod)?;
    }
    add_default_tolerations(pod);
    if let Some(node) =
        pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_owned)
    {
        for (label, value) in topology_labels(store, &node) {
            section(&mut pod["metadata"], "labels").entry(label).or_insert(value);
        }
    }
    let qos = qos_class(&pod["spec"]);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos});
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "message": "Scheduling is blocked due to non-empty scheduling gates", "lastTransitionTime": now(),
        }]);
    }
    Ok(())
}

/// Completes the new form of a pod that a client updates: the plugins Priority and DefaultTolerationSeconds.
pub(crate) fn admit_update(store: &Store, resource: &Resource, old: &Value, new: &mut Value) {
    if resource.kind != "Pod" {
        return;
    }
    let spec = section(new, "spec");
    spec.entry("enableServiceLinks").or_insert(json!(true));
    if store.admits_priorities {
        for field in ["priority", "preemptionPolicy"] {
            if spec.get(field).is_none_or(Value::is_null) && !old["spec"][field].is_null() {
                spec.insert(field.into(), old["spec"][field].clone());
            }
        }
    }
    add_default_tolerations(new);
}

/// The plugin Priority: sets the priority of the named class, of the default class, or 0.
fn set_priority(
    store: &Store,
    resource: &Resource,
    key: &Key,
    pod: &mut Value,
) -> Result<(), ApiError> {
    let classes = store.of(resources::priority_classes());
    let spec = section(pod, "spec");
    let name = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (priority, policy) = match name.as_str() {
        "" => {
            let (_, all) = classes.objects();
            let default = all.iter().find(|class| class.value["globalDefault"] == true);
            if let Some(class) = default {
                spec.insert("priorityClassName".into(), class.version.key.name.clone().into());
            }
            let of = |field: &str| default.map(|class| class.value[field].clone());
            (of("value").unwrap_or(json!(0)), of("preemptionPolicy").unwrap_or_default())
        }
        name => match classes.get(&Key::new("", name)) {
            Some(class) => (class.value["value"].clone(), class.value["preemptionPolicy"].clone()),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(ApiError::forbidden(resource, &key.name, why));
            }
        },
    };
    if spec.get("priority").is_some_and(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name",
            spec["priority"]
        );
        return Err(ApiError::forbidden(resource, &key.name, why));
    }
    spec.insert("priority".into(), priority);
    let policy = if policy.is_null() { json!("PreemptLowerPriority") } else { policy };
    if spec.get("preemptionPolicy").is_some_and(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            spec["preemptionPolicy"].as_str().unwrap_or_default(),
            policy.as_str().unwrap_or_default()
        );
        return Err(ApiError::forbidden(resource, &key.name, why));
    }
    spec.insert("preemptionPolicy".into(), policy);
    Ok(())
}

/// The plugin DefaultTolerationSeconds: adds tolerations of 5 minutes for nodes that are not ready or unreachable.
fn add_default_tolerations(pod: &mut Value) {
    let tolerations = section(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let of = |field: &str| toleration[field].as_str().unwrap_or_default();
            (of("key") == taint || of("key").is_empty())
                && (of("effect") == "NoExecute" || of("effect").is_empty())
        });
        if !tolerated {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}

/// The plugin PodTopologyLabels: returns the labels that a pod inherits from its node.
pub(crate) fn topology_labels(store: &Store, node: &str) -> Vec<(String, Value)> {
    let Some(node) = store.of(resources::nodes()).get(&Key::new("", node)) else {
        return Vec::new();
    };
    let labels = &node.value["metadata"]["labels"];
    ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"]
        .into_iter()
        .filter(|label| labels[*label].is_string())
        .map(|label| (label.to_owned(), labels[label].clone()))
        .collect()
}
