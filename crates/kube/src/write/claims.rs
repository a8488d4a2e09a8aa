//! Writes resource claims through the API server, for the plugin DynamicResources (dynamicresources.go).
//!
//! Nothing is repeated here: the plugin tries again after a conflict, and the next attempt to schedule the pod finds
//! what an earlier one has written.
//!
//! Differences from kube-scheduler 1.36:
//!
//! - JSON merge patches with `metadata.uid` and `metadata.resourceVersion` replace the updates of whole objects, so
//!   fields of later Kubernetes versions are kept. The API server refuses them for the same conflicts.
//! - The finalizer of a claim is removed by a strategic merge patch, whichever version the claim has.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use portolan::cache::{Event, WeakEngine};
use portolan::model::{Pod, Timestamp};
use portolan::plugin::PodInPreBind;
use portolan_dra::Devices;
use portolan_dra::model::{AllocationResult, ConsumerReference, ResourceClaim};
use portolan_dra::plugin::{ApiError, Backend, ExtendedClaimStatus, FINALIZER};
use portolan_dra::store::DeviceEvent;
use serde::Serialize;
use tokio::time::sleep;

use super::blocking::Blocking;
use super::bodies::{DeleteOptions, Uid, is_gone, pod_path};
use super::claim_counts;
use super::events::EventRecorder;
use super::{Fence, Occurrence};
use crate::api::{self, Api, NO_LEASE, Patch, Resource};
use crate::debug::debug_by;

const NO_ENGINE: &str = "the engine does not exist";

/// Writes resource claims through an API server, and devices in use to the engine.
///
/// The methods of [`Backend`] block. Call them on threads that may block and not on threads of the runtime, where
/// blocking panics. Does not keep the engine alive. Clones share the engine.
#[derive(Clone)]
pub(crate) struct ApiClaims {
    blocking: Blocking,
    api: Api,
    fence: Fence,
    events: EventRecorder,
    engine: Arc<OnceLock<WeakEngine>>,
}

/// Metadata of a patch that applies to one version of a claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimMetadata<'a> {
    uid: &'a str,
    resource_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalizers: Option<&'a [Arc<str>]>,
}

impl<'a> ClaimMetadata<'a> {
    fn of(claim: &'a ResourceClaim) -> ClaimMetadata<'a> {
        let metadata = &claim.metadata;
        let (uid, resource_version) = (&*metadata.uid, &*metadata.resource_version);
        ClaimMetadata { uid, resource_version, finalizers: None }
    }
}

/// A patch of an object with this metadata.
#[derive(Serialize)]
struct Change<M, S> {
    metadata: M,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<S>,
}

impl<M> Change<M, ()> {
    fn of(metadata: M) -> Change<M, ()> {
        Change { metadata, status: None }
    }
}

/// The fields of a claim's status that a scheduler writes, in a JSON merge patch, where `null` removes a field.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimStatus<'a> {
    allocation: Option<&'a AllocationResult>,
    reserved_for: Option<&'a [ConsumerReference]>,
    /// `Some(())` removes the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<()>,
}

/// The status of an allocated claim in a JSON merge patch that replaces its consumers only.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Consumers<'a> {
    reserved_for: &'a [ConsumerReference],
}

/// A strategic merge patch of a claim's status that removes a consumer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Removal<'a> {
    reserved_for: [RemovedConsumer<'a>; 1],
}

#[derive(Serialize)]
struct RemovedConsumer<'a> {
    #[serde(rename = "$patch")]
    directive: &'static str,
    uid: &'a str,
}

/// Metadata of a strategic merge patch that removes a finalizer.
#[derive(Serialize)]
struct Unprotected<'a> {
    uid: &'a str,
    #[serde(rename = "$deleteFromPrimitiveList/finalizers")]
    finalizers: [&'static str; 1],
}

/// The field of a pod's status that a scheduler writes for extended resources.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodStatusChange<'a> {
    extended_resource_claim_status: &'a ExtendedClaimStatus,
}

/// A new claim.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewClaim<'a> {
    kind: &'static str,
    api_version: &'static str,
    #[serde(flatten)]
    claim: &'a ResourceClaim,
}

impl ApiClaims {
    pub(super) fn new(
        blocking: Blocking,
        api: Api,
        fence: Fence,
        events: EventRecorder,
    ) -> ApiClaims {
        ApiClaims { blocking, api, fence, events, engine: Arc::default() }
    }

    /// Sets the engine, whose store [`Devices`] gets the events. A second call changes nothing.
    pub(crate) fn set_engine(&self, engine: &WeakEngine) {
        // An error means that the engine is set already.
        let _ = self.engine.set(engine.clone());
    }

    /// Sends a request and reads the claim in the answer.
    fn read(
        &self,
        request: impl Future<Output = Result<Bytes, api::ApiError>>,
    ) -> Result<ResourceClaim, ApiError> {
        let answer = self.run(request)?;
        serde_json::from_slice(&answer)
            .map_err(|error| failed(api::ApiError::Malformed(format!("a resource claim: {error}"))))
    }

    fn run(
        &self,
        request: impl Future<Output = Result<Bytes, api::ApiError>>,
    ) -> Result<Bytes, ApiError> {
        let answer = self.blocking.run(request);
        answer.map_err(|ended| ApiError::Other(ended.to_string()))?.map_err(failed)
    }
}

/// Returns the plugin's error for a failed request. A claim that was created again under its name is not found.
fn failed(error: api::ApiError) -> ApiError {
    let text = error.to_string();
    match error {
        error if is_gone(&error) => ApiError::NotFound(text),
        api::ApiError::Refused(refusal)
            if refusal.code == 409 && refusal.reason != "AlreadyExists" =>
        {
            ApiError::Conflict(text)
        }
        _ => ApiError::Other(text),
    }
}

fn path(claim: &ResourceClaim, subresource: &str) -> String {
    let path = Resource::RESOURCE_CLAIMS.object(claim.namespace(), claim.name());
    if subresource.is_empty() { path } else { format!("{path}/{subresource}") }
}

impl Backend for ApiClaims {
    fn submit(&self, event: DeviceEvent) -> Result<(), String> {
        let engine = self.engine.get().and_then(WeakEngine::upgrade).ok_or(NO_ENGINE)?;
        let ticket = engine.submit(Event::custom::<Devices>(event));
        let outcome = ticket.map_err(|error| error.to_string())?.wait();
        outcome.map_err(|error| error.to_string())?.map(drop).map_err(|error| error.to_string())
    }

    fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        self.read(self.api.get(&Resource::RESOURCE_CLAIMS.object(namespace, name)))
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let Resource { kind, api_version, .. } = Resource::RESOURCE_CLAIMS;
        let path = Resource::RESOURCE_CLAIMS.collection(Some(claim.namespace()));
        let created = self.read(self.api.create(&path, &NewClaim { kind, api_version, claim }));
        claim_counts::count_creation(created.is_ok());
        created
    }

    /// Replaces the finalizers, the only metadata that the plugin changes.
    fn update(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let finalizers = Some(&*claim.metadata.finalizers);
        let metadata = ClaimMetadata { finalizers, ..ClaimMetadata::of(claim) };
        let change = Change::of(metadata);
        self.read(self.api.patch(&path(claim, ""), Patch::Merge, &change))
    }

    /// Replaces the allocation and the consumers. Reports of drivers stay, unless the allocation is removed.
    fn update_status(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let allocation = claim.status.allocation.as_deref();
        let status = ClaimStatus {
            allocation,
            reserved_for: Some(&*claim.status.reserved_for).filter(|list| !list.is_empty()),
            devices: allocation.is_none().then_some(()),
        };
        let change = Change { metadata: ClaimMetadata::of(claim), status: Some(status) };
        self.read(self.api.patch(&path(claim, "status"), Patch::Merge, &change))
    }

    fn update_consumers(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let status = Consumers { reserved_for: &claim.status.reserved_for };
        let change = Change { metadata: ClaimMetadata::of(claim), status: Some(status) };
        self.read(self.api.patch(&path(claim, "status"), Patch::Merge, &change))
    }

    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        pod: &Pod,
    ) -> Result<ResourceClaim, ApiError> {
        let uid = pod.uid.to_string();
        let consumer = RemovedConsumer { directive: "delete", uid: &uid };
        let metadata = Uid { uid: &claim.metadata.uid };
        let change = Change { metadata, status: Some(Removal { reserved_for: [consumer] }) };
        self.read(self.api.patch(&path(claim, "status"), Patch::Strategic, &change))
    }

    /// A claim that does not exist any more is deleted.
    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError> {
        let (path, uid) = (path(claim, ""), &*claim.metadata.uid);
        let change = Change::of(Unprotected { uid, finalizers: [FINALIZER] });
        let deleted = self.run(async {
            self.api.patch(&path, Patch::Strategic, &change).await?;
            self.api.delete(&path, &DeleteOptions::of(uid)).await
        });
        match deleted {
            // After a conflict, another object has its name.
            Ok(_) | Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn set_extended_status(&self, pod: &Pod, status: &ExtendedClaimStatus) -> Result<(), ApiError> {
        let uid = pod.uid.to_string();
        let status = PodStatusChange { extended_resource_claim_status: status };
        let change = Change { metadata: Uid { uid: &uid }, status: Some(status) };
        let path = pod_path(pod.namespace(), &pod.name, "status");
        self.run(self.api.patch(&path, Patch::Strategic, &change)).map(drop)
    }

    fn record(&self, pod: &Pod, reason: &'static str, message: &str) {
        self.events.record(Occurrence::by_plugin(pod, reason, message));
    }

    fn count_wait(&self, pod: &Pod, driver: &str, status: &'static str, waited: Duration) {
        claim_counts::count_wait(pod.scheduler_name(), driver, status, waited);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }

    fn wait(&self, duration: Duration, pod: &PodInPreBind) -> Result<(), String> {
        let waited = self.blocking.run(async {
            tokio::select! {
                () = self.fence.lost() => Err(NO_LEASE.to_owned()),
                _ = pod.cancelled() => Err("context canceled".to_owned()),
                () = sleep(duration) => Ok(()),
            }
        });
        waited.map_err(|ended| ended.to_string())?
    }
}

debug_by!(ApiClaims, it, fence: it.fence);
