//! The bodies of requests, and the fields of answers that are read. They have only the fields that a scheduler writes.
//! Those of bindings and statuses are serialized in one pass over a small struct.

use std::borrow::Cow;
use std::collections::BTreeMap;

use portolan::model::{ClaimReference, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::{ApiError, Resource};
use crate::mirror::PodStatus;

/// Serialized as `null`.
type Null = ();

/// Returns the path of a pod, or of its subresource.
pub(super) fn pod_path(namespace: &str, name: &str, subresource: &str) -> String {
    let path = Resource::PODS.object(namespace, name);
    if subresource.is_empty() { path } else { format!("{path}/{subresource}") }
}

/// `v1.Binding`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: BindingMetadata<'a>,
    target: Target<'a>,
}

#[derive(Serialize)]
struct BindingMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
struct Target<'a> {
    kind: &'static str,
    name: &'a str,
}

impl<'a> Binding<'a> {
    /// Binds the pod with this uid to a node.
    pub(super) fn new(pod: &'a Pod, uid: &'a str, node: &'a str) -> Binding<'a> {
        Binding {
            kind: "Binding",
            api_version: "v1",
            metadata: BindingMetadata { name: &pod.name, namespace: pod.namespace(), uid },
            target: Target { kind: "Node", name: node },
        }
    }
}

/// `metav1.DeleteOptions` with a precondition.
pub(super) fn delete_options(uid: &str) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}})
}

/// A uid alone. In the metadata of a patch it is a precondition: the API server answers 422 if the object has another
/// one, since the field is immutable. See [`is_gone`].
#[derive(Serialize)]
pub(super) struct Uid<'a> {
    pub(super) uid: &'a str,
}

/// A strategic merge patch of a pod's status.
#[derive(Serialize)]
pub(super) struct StatusPatch<'a> {
    pub(super) metadata: Uid<'a>,
    pub(super) status: StatusChange<'a>,
}

/// The changed fields of a pod's status.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusChange<'a> {
    /// The types of all conditions in their new order, if the pod has conditions already.
    #[serde(rename = "$setElementOrder/conditions", skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<Vec<ConditionType<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conditions: Option<[ConditionChange<'a>; 1]>,
    /// `Some(None)` clears the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nominated_node_name: Option<Option<&'a str>>,
}

#[derive(Serialize)]
pub(super) struct ConditionType<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
}

/// A new condition, or the changed fields of a known one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConditionChange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_probe_time: Option<Null>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'a str>,
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
}

/// A JSON merge patch of a volume or claim with this metadata, which sets an annotation, if there is one. The API server
/// refuses it if the object has another uid or version.
pub(super) fn volume_patch(object: &Metadata<'_>, annotation: Option<(&str, &str)>) -> Value {
    let mut metadata = json!({"uid": object.uid, "resourceVersion": object.resource_version});
    if let Some((name, value)) = annotation {
        metadata["annotations"] = json!({ name: value });
    }
    json!({ "metadata": metadata })
}

/// The claim of a volume, which has this version.
pub(super) fn claim_ref(claim: &ClaimReference, version: &str) -> Value {
    let ClaimReference { namespace, name, uid } = claim;
    json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": &**namespace,
        "name": &**name, "uid": &**uid, "resourceVersion": version,
    })
}

/// Returns whether a patch with a uid was refused because its object no longer exists. Another object may have its
/// name.
pub(super) fn is_gone(error: &ApiError) -> bool {
    match error {
        ApiError::Refused(refusal) if refusal.code == 422 => {
            refusal.message.contains("metadata.uid")
        }
        error => error.is_not_found(),
    }
}

/// The fields of a pod that its writers read from answers.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PodAnswer<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow)]
    pub(super) spec: PodSpecAnswer<'a>,
    #[serde(borrow)]
    pub(super) status: PodStatus<'a>,
}

/// The metadata of an answer.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) resource_version: Cow<'a, str>,
    pub(super) generation: i64,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpecAnswer<'a> {
    #[serde(borrow)]
    pub(super) node_name: Option<Cow<'a, str>>,
}

impl PodAnswer<'_> {
    /// Returns the node that the pod is bound to.
    pub(super) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }
}
