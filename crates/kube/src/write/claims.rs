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
use portolan_dra::model::{ResourceClaim, ResourceClaimStatus};
use portolan_dra::plugin::{ApiError, Backend, ClaimPart, ExtendedClaimStatus, FINALIZER};
use portolan_dra::store::DeviceEvent;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::blocking::Blocking;
use super::bodies::{delete_options, is_gone, pod_path};
use super::claim_counts;
use super::events::EventRecorder;
use super::{Fence, Occurrence};
use crate::api::{self, Api, NO_LEASE, Patch, Resource};

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

/// The metadata of a patch that applies to one version of a claim.
fn version_of(claim: &ResourceClaim) -> Value {
    let metadata = &claim.metadata;
    json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version})
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
        let mut body = json!(claim);
        (body["kind"], body["apiVersion"]) = (kind.into(), api_version.into());
        let created = self.read(self.api.create(&path, &body));
        claim_counts::count_creation(created.is_ok());
        created
    }

    /// Of the metadata, replaces the finalizers alone: the plugin changes nothing else. Of the status, replaces the
    /// allocation and the consumers. Reports of drivers stay, unless the allocation is removed. `null` removes a field.
    fn update(&self, claim: &ResourceClaim, part: ClaimPart) -> Result<ResourceClaim, ApiError> {
        let ResourceClaimStatus { allocation, reserved_for, .. } = &claim.status;
        let mut change = json!({ "metadata": version_of(claim) });
        match part {
            ClaimPart::Metadata => {
                change["metadata"]["finalizers"] = json!(claim.metadata.finalizers);
            }
            ClaimPart::Consumers => change["status"] = json!({ "reservedFor": reserved_for }),
            ClaimPart::Status => {
                let consumers = Some(reserved_for).filter(|list| !list.is_empty());
                change["status"] = json!({"allocation": allocation, "reservedFor": consumers});
                if allocation.is_none() {
                    change["status"]["devices"] = Value::Null;
                }
            }
        }
        let subresource = if part == ClaimPart::Metadata { "" } else { "status" };
        self.read(self.api.patch(&path(claim, subresource), Patch::Merge, &change))
    }

    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        pod: &Pod,
    ) -> Result<ResourceClaim, ApiError> {
        let removed = json!([{"$patch": "delete", "uid": pod.uid.to_string()}]);
        let metadata = json!({"uid": claim.metadata.uid});
        let change = json!({"metadata": metadata, "status": {"reservedFor": removed}});
        self.read(self.api.patch(&path(claim, "status"), Patch::Strategic, &change))
    }

    /// A claim that does not exist any more is deleted.
    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError> {
        let (path, uid) = (path(claim, ""), &*claim.metadata.uid);
        let metadata = json!({"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]});
        let change = json!({ "metadata": metadata });
        let deleted = self.run(async {
            self.api.patch(&path, Patch::Strategic, &change).await?;
            self.api.delete(&path, &delete_options(uid)).await
        });
        match deleted {
            // After a conflict, another object has its name.
            Ok(_) | Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn set_extended_status(&self, pod: &Pod, status: &ExtendedClaimStatus) -> Result<(), ApiError> {
        let status = json!({ "extendedResourceClaimStatus": status });
        let change = json!({"metadata": {"uid": pod.uid.to_string()}, "status": status});
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
