//! Device classes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Metadata, Opaque, Selector, nullable};

/// The prefix of the extended resource name that every device class has implicitly.
pub(crate) const IMPLICIT_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// A class of devices: selectors and configuration that requests refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClass {
    /// The metadata.
    pub metadata: Metadata,
    /// The specification.
    pub spec: DeviceClassSpec,
}

/// The specification of a device class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// The selectors that a device must match.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub selectors: Vec<Selector>,
    /// The configuration that each allocated device receives.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub config: Vec<ClassConfig>,
    /// The extended resource that the class supplies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_name: Option<Arc<str>>,
}

/// The configuration of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassConfig {
    /// Parameters for a driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Opaque>,
}

impl DeviceClass {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.metadata.name
    }
}
