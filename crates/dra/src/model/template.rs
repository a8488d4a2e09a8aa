//! Templates of resource claims.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Metadata, ResourceClaimSpec};

/// A template from which a claim is created for each pod that refers to it. Schedulers do not read it: the controller
/// of claims does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// The metadata.
    pub metadata: Metadata,
    /// The specification.
    pub spec: ResourceClaimTemplateSpec,
}

/// The claim of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplateSpec {
    /// The labels and annotations of the claims.
    pub metadata: Metadata,
    /// The specification of the claims.
    pub spec: ResourceClaimSpec,
}

impl ResourceClaimTemplate {
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
}
