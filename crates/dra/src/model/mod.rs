//! The objects of `resource.k8s.io/v1`, as far as the scheduler reads or writes them.
//!
//! All types are read from and written as Kubernetes JSON. Defaults are those that the API server applies, so that
//! objects from files need no admission.

mod amount;
mod claim;
mod class;
mod metadata;
mod read;
mod selector;
mod slice;
mod template;

pub use amount::Amount;
pub use claim::{
    AllocatedDeviceStatus, AllocationMode, AllocationResult, CapacityRequirements, Condition,
    ConfigSource, Constraint, ConsumerReference, DeviceAllocation, DeviceClaim, DeviceConfig,
    DeviceRequest, DeviceResult, DeviceToleration, ExactRequest, Opaque, ResourceClaim,
    ResourceClaimSpec, ResourceClaimStatus, SubRequest,
};
pub(crate) use class::IMPLICIT_PREFIX;
pub use class::{ClassConfig, DeviceClass, DeviceClassSpec};
pub use metadata::{Metadata, OwnerReference};
pub use read::{ReadError, needs_upgrade, read, upgrade};
pub use selector::{CelSelector, NodeSelector, NodeSelectorTerm, Requirement, Selector};
pub use slice::{
    Attribute, Capacity, Counter, CounterConsumption, CounterSet, Device, DeviceTaint, Pool,
    RequestPolicy, ResourceSlice, SliceSpec, ValidRange,
};
pub use template::{ResourceClaimTemplate, ResourceClaimTemplateSpec};

use serde::{Deserialize, Deserializer};

/// Reads a value, or its default if it is null, as Kubernetes does for lists and maps.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
