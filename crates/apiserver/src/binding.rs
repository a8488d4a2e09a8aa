//! Binding a pod to a node.
//!
//! The messages of conflicts are those of Kubernetes (registry/core/pod/storage), because schedulers parse them.

use serde_json::{Value, json};

use crate::admission;
use crate::clock;
use crate::defaults::section;
use crate::error::ApiError;
use crate::resources;
use crate::store::{Change, Key, Store};
use crate::verbs::{is_deleted, uid_precondition};

/// Binds the pod at `key` by a `Binding` object. One write sets the node, the condition PodScheduled and the binding's
/// labels and annotations, and clears the nomination.
pub(crate) fn bind(store: &Store, key: &Key, binding: &Value) -> Result<(), ApiError> {
    let pods = resources::pods();
    admission::namespace_accepts(store, pods, key)?;
    let metadata = &binding["metadata"];
    if metadata["name"].as_str().is_some_and(|name| name != key.name) {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    if metadata["namespace"]
        .as_str()
        .is_some_and(|namespace| !namespace.is_empty() && namespace != key.namespace)
    {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    let target = &binding["target"];
    if let Some(kind) = target["kind"].as_str().filter(|kind| !["", "Node"].contains(kind)) {
        let message = format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        );
        return Err(ApiError::new(500, "", message));
    }
    let node = target["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::new(500, "", "target.name: Required value"));
    }
    let topology = admission::topology_labels(store, node);
    let refused = |why: String| Err(ApiError::conflict("pods/binding", "", &key.name, why));
    store.of(pods).change(key, |pod| {
        let pod = pod.ok_or_else(|| ApiError::not_found(pods, &key.name))?;
        let present = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        if let Some(uid) = metadata["uid"].as_str().filter(|uid| !uid.is_empty() && *uid != present("uid")) {
            return Err(uid_precondition(pods, key, uid, present("uid")));
        }
        if let Some(version) =
            metadata["resourceVersion"].as_str().filter(|it| !it.is_empty() && *it != present("resourceVersion"))
        {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{}/{}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: {version}, \
                 ResourceVersion in object meta: {}",
                key.namespace,
                key.name,
                present("resourceVersion")
            );
            return Err(ApiError::conflict("pods", "", &key.name, why));
        }
        if is_deleted(pod) {
            return refused(format!("pod {} is being deleted, cannot be assigned to a host", key.name));
        }
        if let Some(assigned) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            return refused(format!("pod {} is already assigned to node {assigned:?}", key.name));
        }
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return refused(format!("pod {} has non-empty .spec.schedulingGates", key.name));
        }
        let mut bound = pod.clone();
        bound["spec"]["nodeName"] = node.into();
        for field in ["annotations", "labels"] {
            for (name, value) in metadata[field].as_object().into_iter().flatten() {
                section(&mut bound["metadata"], field).insert(name.clone(), value.clone());
            }
        }
        for (label, value) in topology {
            if metadata["labels"].get(&label).is_none() {
                section(&mut bound["metadata"], "labels").insert(label, value);
            }
        }
        set_scheduled(&mut bound);
        section(&mut bound, "status").remove("nominatedNodeName");
        Ok(Change::Put(bound))
    })?;
    Ok(())
}

fn set_scheduled(pod: &mut Value) {
    let mut condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": clock::now(),
    });
    let conditions = section(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|present| present["type"] == "PodScheduled") {
        Some(present) => {
            if present["status"] == "True" {
                condition["lastTransitionTime"] = present["lastTransitionTime"].take();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}

/// The response to a binding.
pub(crate) fn bound() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
