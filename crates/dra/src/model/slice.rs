//! Resource slices: the devices that drivers publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Node;
use serde::{Deserialize, Serialize};

use super::{Amount, Metadata, NodeSelector, nullable};

/// A part of a pool of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// The metadata.
    pub metadata: Metadata,
    /// The specification.
    pub spec: SliceSpec,
}

/// The specification of a resource slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceSpec {
    /// The driver.
    pub driver: Arc<str>,
    /// The pool.
    pub pool: Pool,
    /// The node whose devices these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Arc<str>>,
    /// The nodes that can use the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Whether all nodes can use the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Whether each device names its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// The devices.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub devices: Vec<Device>,
    /// The counters that devices of the pool share.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub shared_counters: Vec<CounterSet>,
}

/// The pool of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    /// The name, which is unique within the driver.
    pub name: Arc<str>,
    /// The generation. Slices of older generations are outdated.
    pub generation: i64,
    /// The number of slices of the pool in this generation.
    pub resource_slice_count: i64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// The name, which is unique within the pool.
    pub name: Arc<str>,
    /// The attributes by qualified name. A name without a domain belongs to the driver's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub attributes: BTreeMap<Arc<str>, Attribute>,
    /// The capacities by qualified name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub capacity: BTreeMap<Arc<str>, Capacity>,
    /// The shared counters that the device consumes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub consumes_counters: Vec<CounterConsumption>,
    /// The taints.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub taints: Vec<DeviceTaint>,
    /// Whether several requests may use the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_multiple_allocations: Option<bool>,
    /// Whether a claim for the device can be used on the chosen node only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds_to_node: Option<bool>,
    /// The conditions that must be true before a pod is bound.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub binding_conditions: Vec<Arc<str>>,
    /// The conditions of which none may be true.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// The node of the device, in slices with `perDeviceNodeSelection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Arc<str>>,
    /// The nodes that can use the device, in slices with `perDeviceNodeSelection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// Whether all nodes can use the device, in slices with `perDeviceNodeSelection`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attribute {
    /// A number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(Arc<str>),
    /// A semantic version.
    Version(Arc<str>),
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// The amount.
    pub value: Amount,
    /// How requests consume the capacity of a device that allows several allocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<RequestPolicy>,
}

/// How requests consume a capacity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestPolicy {
    /// The amount that a request without its own amount consumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Amount>,
    /// The amounts that may be consumed, in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub valid_values: Vec<Amount>,
    /// The range of amounts that may be consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<ValidRange>,
}

/// A range of amounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValidRange {
    /// The least amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Amount>,
    /// The largest amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Amount>,
    /// The step from `min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Amount>,
}

/// Counters that devices share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterSet {
    /// The name.
    pub name: Arc<str>,
    /// The counters by name.
    #[serde(deserialize_with = "nullable")]
    pub counters: BTreeMap<Arc<str>, Counter>,
}

/// The amount of a counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// The amount.
    pub value: Amount,
}

/// What a device consumes of a set of counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterConsumption {
    /// The name of the set.
    pub counter_set: Arc<str>,
    /// The amounts by counter.
    #[serde(deserialize_with = "nullable")]
    pub counters: BTreeMap<Arc<str>, Counter>,
}

/// A taint of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaint {
    /// The key.
    pub key: Arc<str>,
    /// The value.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: Arc<str>,
    /// `NoSchedule`, `NoExecute` or `None`.
    pub effect: Arc<str>,
    /// The time at which the taint was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Arc<str>>,
}

impl ResourceSlice {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.metadata.name
    }

    /// Returns whether the devices, or some of them, belong to the node.
    #[must_use]
    pub(crate) fn concerns(&self, node: &Node) -> bool {
        let spec = &self.spec;
        if !spec.shared_counters.is_empty() {
            return true;
        }
        match spec.per_device_node_selection {
            Some(true) => spec.devices.iter().any(|device| device.is_on(node)),
            _ => is_on(node, &spec.node_name, spec.all_nodes, spec.node_selector.as_ref()),
        }
    }
}

impl Device {
    /// Returns whether a device of a slice with `perDeviceNodeSelection` belongs to the node.
    #[must_use]
    pub fn is_on(&self, node: &Node) -> bool {
        is_on(node, &self.node_name, self.all_nodes, self.node_selector.as_ref())
    }

    /// Returns whether several requests may use the device.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.allow_multiple_allocations == Some(true)
    }
}

fn is_on(
    node: &Node,
    name: &Option<Arc<str>>,
    all: Option<bool>,
    selector: Option<&NodeSelector>,
) -> bool {
    match name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => *name == *node.name,
        None if all == Some(true) => true,
        None => selector.is_some_and(|selector| selector.matches(node)),
    }
}
