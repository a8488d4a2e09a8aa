//! The metadata of objects.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Pod;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::nullable;

/// An object's `metadata`. Fields that the scheduler does not read are kept, so that an update does not remove them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// The prefix from which the API server generates the name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub generate_name: Arc<str>,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    /// The uid.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Arc<str>,
    /// The resource version, a decimal number.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: Arc<str>,
    /// The time of creation (RFC 3339); empty if unknown.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "nullable")]
    pub creation_timestamp: Arc<str>,
    /// The time of deletion (RFC 3339); empty if the object is not being deleted.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "nullable")]
    pub deletion_timestamp: Arc<str>,
    /// The annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// The owners.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
    /// The finalizers.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub finalizers: Vec<Arc<str>>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

impl OwnerReference {
    /// Returns the reference to a pod that controls an object.
    #[must_use]
    pub fn to_pod(pod: &Pod) -> OwnerReference {
        OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.name.clone(),
            uid: pod.uid.to_string().into(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}

impl Metadata {
    /// Returns whether the pod is the controller of the object.
    #[must_use]
    pub fn is_controlled_by(&self, pod: &Pod) -> bool {
        let controller = self.owner_references.iter().find(|owner| owner.controller == Some(true));
        controller.is_some_and(|owner| pod.uid.to_string() == *owner.uid)
    }

    /// Returns the resource version, or `None` if it is absent or not a number.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }

    /// Compares the resource version with that of another state of the object. Returns `None` if one of them is unknown.
    #[must_use]
    pub(crate) fn compare_version(&self, other: &Metadata) -> Option<Ordering> {
        Some(self.version()?.cmp(&other.version()?))
    }
}

/// A reference to an object's owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// The API group and version.
    pub api_version: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The uid.
    pub uid: Arc<str>,
    /// Whether the owner is the managing controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner cannot be deleted before the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}
