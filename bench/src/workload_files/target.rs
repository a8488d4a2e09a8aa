//! Where a workload runs: an engine in this process, or an API server with a live scheduler.

use serde_json::Value;

use super::board::Board;

/// Why a target did not change an object.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0} already exists")]
    Exists(String),
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{0}")]
    Other(String),
}

/// How an object is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// The whole object, then its status.
    Whole,
    /// The resources of a pod's containers, then its status.
    Resize,
}

/// An object that was read in advance, so that creating it costs little.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) object: Value,
    /// A pod as the engine stores it.
    pub(super) pod: Option<portolan::model::Pod>,
}

/// A cluster that a workload creates objects in. Names are given, and namespaces of namespaced objects are set.
pub(super) trait Target: Sync {
    /// The pods of the cluster.
    fn board(&self) -> &Board;

    /// Reads objects before they are created.
    ///
    /// # Errors
    ///
    /// An object is invalid.
    fn prepare(&self, objects: Vec<Value>) -> Result<Vec<Prepared>, Refused>;

    /// Creates an object, with its status.
    fn create(&self, object: Prepared) -> Result<(), Refused>;

    /// Updates an object that has no resourceVersion.
    fn update(&self, object: Value, how: Update) -> Result<(), Refused>;

    /// Deletes an object by its kind, namespace and name. `grace` overrides the grace period of a pod, in seconds.
    fn delete(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Result<(), Refused>;
}

/// Whether objects of a kind have a namespace, or `None` if neither target has the kind.
pub(super) fn is_namespaced(kind: &str) -> Option<bool> {
    match kind {
        "Pod"
        | "Service"
        | "PersistentVolumeClaim"
        | "ReplicationController"
        | "ReplicaSet"
        | "StatefulSet"
        | "PodDisruptionBudget"
        | "CSIStorageCapacity"
        | "ConfigMap"
        | "Secret"
        | "ServiceAccount" => Some(true),
        "Node" | "Namespace" | "PersistentVolume" | "StorageClass" | "CSINode" | "CSIDriver"
        | "VolumeAttachment" | "PriorityClass" => Some(false),
        _ => None,
    }
}

/// A text in the metadata of an object.
pub(super) fn metadata<'o>(object: &'o Value, field: &str) -> &'o str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The labels of an object.
pub(super) fn labels_of(object: &Value) -> super::steps::Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let label = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    labels.filter_map(label).collect()
}

/// `Pod ns/name`, for messages.
pub(super) fn shown(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Whether a pod has scheduling gates: the API server gives it the condition PodScheduled at once.
pub(super) fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}
