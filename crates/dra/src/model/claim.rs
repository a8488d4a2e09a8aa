//! Resource claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Pod;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Amount, Metadata, NodeSelector, Selector, nullable};

/// A request for devices, and the devices that were allocated for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// The metadata.
    pub metadata: Metadata,
    /// The specification.
    pub spec: ResourceClaimSpec,
    /// The status.
    #[serde(deserialize_with = "nullable")]
    pub status: ResourceClaimStatus,
}

/// The specification of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaimSpec {
    /// What is requested.
    #[serde(deserialize_with = "nullable")]
    pub devices: DeviceClaim,
}

/// What a claim requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// The requests.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub requests: Vec<DeviceRequest>,
    /// The constraints between the devices of several requests.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub constraints: Vec<Constraint>,
    /// The configuration of the allocated devices.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub config: Vec<DeviceConfig>,
}

/// A request for devices, either exact or as a list of alternatives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// The name.
    pub name: Arc<str>,
    /// The only choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<ExactRequest>,
    /// The choices, of which the first that can be satisfied is used.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub first_available: Vec<SubRequest>,
}

/// How many devices a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationMode {
    /// A number of devices.
    #[default]
    ExactCount,
    /// All devices of a node that match.
    All,
    /// A mode that is not known here.
    #[serde(other)]
    Unknown,
}

/// A request for devices of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactRequest {
    /// The class.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub device_class_name: Arc<str>,
    /// The selectors that a device must match, in addition to those of the class.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub selectors: Vec<Selector>,
    /// Whether a number of devices or all devices are requested.
    #[serde(deserialize_with = "mode")]
    pub allocation_mode: AllocationMode,
    /// The number of devices; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Whether devices in use may be allocated, for administration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// The tolerations of device taints.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub tolerations: Vec<DeviceToleration>,
    /// The requested capacities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
}

/// A choice of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubRequest {
    /// The name within the request.
    pub name: Arc<str>,
    /// What is requested. `admin_access` is never set.
    #[serde(flatten)]
    pub exactly: ExactRequest,
}

fn mode<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<AllocationMode, D::Error> {
    let text: Option<Arc<str>> = Option::deserialize(deserializer)?;
    Ok(match text.as_deref() {
        None | Some("" | "ExactCount") => AllocationMode::ExactCount,
        Some("All") => AllocationMode::All,
        Some(_) => AllocationMode::Unknown,
    })
}

/// The capacities that a request requires.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacityRequirements {
    /// The amounts by qualified name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub requests: BTreeMap<Arc<str>, Amount>,
}

/// A toleration of device taints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToleration {
    /// The key; empty matches every key.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub key: Arc<str>,
    /// `Exists` or `Equal`; empty means `Equal`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub operator: Arc<str>,
    /// The value.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: Arc<str>,
    /// The effect; empty matches every effect.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub effect: Arc<str>,
    /// How long a taint is tolerated after the allocation. The scheduler ignores it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// A constraint between the devices of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraint {
    /// The requests, as `request` or `request/subrequest`; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub requests: Vec<Arc<str>>,
    /// The attribute whose value must be the same for all devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_attribute: Option<Arc<str>>,
    /// The attribute whose value must differ between devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_attribute: Option<Arc<str>>,
}

/// Configuration of allocated devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceConfig {
    /// Where the configuration comes from. Set in allocation results only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ConfigSource>,
    /// The requests to which the configuration applies, as `request` or `request/subrequest`; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub requests: Vec<Arc<str>>,
    /// Parameters for a driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Opaque>,
}

/// Where configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigSource {
    /// From the device class.
    FromClass,
    /// From the claim.
    FromClaim,
}

/// Parameters for a driver, which the scheduler does not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Opaque {
    /// The driver.
    pub driver: Arc<str>,
    /// The parameters.
    pub parameters: Value,
}

/// The status of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The allocated devices, if they have been allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Arc<AllocationResult>>,
    /// The consumers of the claim.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub reserved_for: Vec<ConsumerReference>,
    /// What drivers report of the allocated devices.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub devices: Vec<AllocatedDeviceStatus>,
}

/// The devices that were allocated for a claim, and where they can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// The devices.
    #[serde(deserialize_with = "nullable")]
    pub devices: DeviceAllocation,
    /// The nodes on which the devices can be used; all nodes if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// The time of the allocation (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_timestamp: Option<Arc<str>>,
}

/// The devices of an allocation and their configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceAllocation {
    /// The devices.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub results: Vec<DeviceResult>,
    /// The configuration.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub config: Vec<DeviceConfig>,
}

/// A device that was allocated for a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResult {
    /// The request, as `request` or `request/subrequest`.
    pub request: Arc<str>,
    /// The driver.
    pub driver: Arc<str>,
    /// The pool.
    pub pool: Arc<str>,
    /// The device.
    pub device: Arc<str>,
    /// Whether the device is used for administration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// The tolerations of the request.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub tolerations: Vec<DeviceToleration>,
    /// The conditions that must be true before a pod is bound.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub binding_conditions: Vec<Arc<str>>,
    /// The conditions of which none may be true.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// The id of this share of a device that several requests may use.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<Arc<str>>,
    /// The capacity that this share consumes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub consumed_capacity: BTreeMap<Arc<str>, Amount>,
}

/// A consumer of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_group: Arc<str>,
    /// The resource, such as `pods`.
    pub resource: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The uid.
    pub uid: Arc<str>,
}

/// What a driver reports of an allocated device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDeviceStatus {
    /// The driver.
    pub driver: Arc<str>,
    /// The pool.
    pub pool: Arc<str>,
    /// The device.
    pub device: Arc<str>,
    /// The id of the share.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<Arc<str>>,
    /// The conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// A condition of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// The type.
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Arc<str>,
    /// The reason.
    pub reason: Arc<str>,
    /// The message.
    pub message: Arc<str>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

impl ResourceClaim {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.metadata.name
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &Arc<str> {
        &self.metadata.namespace
    }

    /// Returns `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// Returns whether the claim is reserved for the pod.
    #[must_use]
    pub fn is_reserved_for(&self, pod: &Pod) -> bool {
        let uid = pod.uid.to_string();
        self.status.reserved_for.iter().any(|consumer| *consumer.uid == *uid)
    }
}
