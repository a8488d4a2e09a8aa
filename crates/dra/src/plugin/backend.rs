//! How the plugin acts on the cluster.

use std::sync::Arc;
use std::time::Duration;

use portolan::model::{Pod, Timestamp};
use portolan::plugin::PodInPreBind;
use serde::{Deserialize, Serialize};

use crate::model::ResourceClaim;
use crate::store::DeviceEvent;

/// Why the API server did not do what was requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The object has changed since it was read (409).
    #[error("{0}")]
    Conflict(String),
    /// The object does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

/// The API server, the engine and the clock, as the plugin uses them. The plugin calls the methods outside of the
/// writer, and they may block. Each method about a claim returns the object as it is stored afterwards.
pub trait Backend: Send + Sync {
    /// Submits an event of the store and waits until published versions contain it.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the store rejects the event, or an error if the engine has ended.
    fn submit(&self, event: DeviceEvent) -> Result<(), String>;

    /// Reads a claim.
    ///
    /// # Errors
    ///
    /// The claim does not exist, or the request failed.
    fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError>;

    /// Creates a claim, whose name is generated from `generateName`.
    ///
    /// # Errors
    ///
    /// The request failed.
    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError>;

    /// Replaces a part of a claim.
    ///
    /// # Errors
    ///
    /// The claim has changed or does not exist, or the request failed.
    fn update(&self, claim: &ResourceClaim, part: ClaimPart) -> Result<ResourceClaim, ApiError>;

    /// Removes the pod from the consumers of a claim, by its uid: a strategic merge patch of the status, with the uid
    /// of the claim.
    ///
    /// # Errors
    ///
    /// The claim does not exist, or the request failed.
    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        pod: &Pod,
    ) -> Result<ResourceClaim, ApiError>;

    /// Deletes a claim. A finalizer is removed before.
    ///
    /// # Errors
    ///
    /// The request failed.
    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError>;

    /// Sets `status.extendedResourceClaimStatus` of a pod.
    ///
    /// # Errors
    ///
    /// The request failed.
    fn set_extended_status(&self, pod: &Pod, status: &ExtendedClaimStatus) -> Result<(), ApiError>;

    /// Records an event about a pod.
    fn record(&self, pod: &Pod, reason: &'static str, message: &str) {
        let _ = (pod, reason, message);
    }

    /// Counts the wait of a pod for the binding conditions of a driver's devices. The status is `success`, `timeout`,
    /// `failed` or `error`, as in kube-scheduler's metrics.
    fn count_wait(&self, pod: &Pod, driver: &str, status: &'static str, waited: Duration) {
        let _ = (pod, driver, status, waited);
    }

    /// Returns the time.
    fn now(&self) -> Timestamp;

    /// Waits for this time, or until claims have changed.
    ///
    /// # Errors
    ///
    /// The pod will not be bound, so there is nothing to wait for: it was cancelled, or the scheduler stops.
    fn wait(&self, duration: Duration, pod: &PodInPreBind) -> Result<(), String>;
}

/// The part of a claim that a write replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPart {
    /// The metadata.
    Metadata,
    /// The status.
    Status,
    /// The consumers of an allocated claim. The stored allocation is not written again: the API server refuses any
    /// change of it, also the loss of fields that the model does not have.
    Consumers,
}

/// A pod's `status.extendedResourceClaimStatus`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedClaimStatus {
    /// The requests of the claim that belong to the containers.
    pub request_mappings: Vec<ContainerExtendedRequest>,
    /// The claim.
    pub resource_claim_name: Arc<str>,
}

/// A container's extended resource, and the request of the claim that supplies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExtendedRequest {
    /// The container.
    pub container_name: Arc<str>,
    /// The extended resource.
    pub resource_name: Arc<str>,
    /// The request.
    pub request_name: Arc<str>,
}
