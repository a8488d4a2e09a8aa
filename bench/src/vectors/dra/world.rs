//! The cluster of a scenario: an engine, and an API server that holds claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portolan::cache::{Config, Engine, Reader, Snapshot, Writer};
use portolan::model::{Pod, Timestamp};
use portolan::plugin::{PodInPreBind, Snapshots};
use portolan_dra::Devices;
use portolan_dra::model::{AllocatedDeviceStatus, Condition, ResourceClaim};
use portolan_dra::plugin::{ApiError, Backend, ClaimPart, ExtendedClaimStatus};
use portolan_dra::store::DeviceEvent;
use serde_json::{Value, json};

/// Claims by namespace and name.
pub(super) type Claims = BTreeMap<String, ResourceClaim>;

pub(super) struct World {
    engine: Mutex<(Writer, Reader)>,
    claims: Mutex<Claims>,
    /// What drivers do with devices that have binding conditions.
    driver: Mutex<String>,
    /// The status of the pod that is bound.
    pod_status: Mutex<Option<Value>>,
    created: AtomicUsize,
    version: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(super) fn new() -> World {
        World {
            engine: Mutex::new(Engine::inline(Config::default().with_store(Devices::default()))),
            claims: Mutex::default(),
            driver: Mutex::default(),
            pod_status: Mutex::default(),
            created: AtomicUsize::new(0),
            version: AtomicUsize::new(0),
        }
    }

    /// Begins a step.
    pub(super) fn begin(&self, driver: &str) {
        *lock(&self.driver) = driver.to_owned();
        *lock(&self.pod_status) = None;
    }

    pub(super) fn write<T, E: ToString>(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<T, E>,
    ) -> Result<T, String> {
        change(&mut lock(&self.engine).0).map_err(|error| error.to_string())
    }

    pub(super) fn claims(&self) -> Claims {
        lock(&self.claims).clone()
    }

    pub(super) fn pod_status(&self) -> Value {
        lock(&self.pod_status).clone().unwrap_or_default()
    }

    /// Stores a claim with the next resource version, and returns it.
    pub(super) fn put_claim(&self, mut claim: ResourceClaim) -> Result<ResourceClaim, String> {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        claim.metadata.resource_version = version.to_string().into();
        lock(&self.claims).insert(claim.key(), claim.clone());
        self.submit(DeviceEvent::PutClaim(claim.clone().into()))?;
        Ok(claim)
    }

    /// Returns the stored claim if the given one is not outdated.
    fn stored(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let stored = self.get(claim.namespace(), claim.name())?;
        match stored.metadata.resource_version == claim.metadata.resource_version {
            true => Ok(stored),
            false => Err(ApiError::Conflict("the object has been modified".to_owned())),
        }
    }

    pub(super) fn delete_claim(&self, namespace: &str, name: &str) -> Result<(), String> {
        lock(&self.claims).remove(&format!("{namespace}/{name}"));
        let (namespace, name) = (namespace.into(), name.into());
        self.submit(DeviceEvent::DeleteClaim { namespace, name, uid: None })
    }

    /// Returns the claims that differ from `before`, and those that no longer exist.
    pub(super) fn changes(&self, before: &Claims) -> (Claims, BTreeSet<String>) {
        let after = self.claims();
        let gone = before.keys().filter(|key| !after.contains_key(*key)).cloned().collect();
        let changed = after.into_iter().filter(|(key, claim)| before.get(key) != Some(claim));
        (changed.collect(), gone)
    }

    /// What drivers do when the allocation of a claim with binding conditions is stored.
    fn drive(&self, claim: &mut ResourceClaim) {
        let Some(allocation) = claim.status.allocation.clone() else { return };
        let driver = lock(&self.driver).clone();
        let results = allocation.devices.results.iter();
        for result in results.filter(|result| !result.binding_conditions.is_empty()) {
            let condition = |kind: &Arc<str>, reason: &str, message: &str| Condition {
                kind: kind.clone(),
                status: "True".into(),
                reason: reason.into(),
                message: message.into(),
                rest: [("lastTransitionTime".to_owned(), "2026-01-01T00:00:00Z".into())].into(),
            };
            let ready = result.binding_conditions.iter();
            let failed = result.binding_failure_conditions.first().into_iter();
            let conditions = match &*driver {
                "ready" => ready.map(|of| condition(of, "Attached", "")).collect(),
                "failed" => {
                    failed.map(|of| condition(of, "AttachFailed", "fabric says no")).collect()
                }
                _ => return,
            };
            claim.status.devices.push(AllocatedDeviceStatus {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
                share_id: result.share_id.clone(),
                conditions,
                ..AllocatedDeviceStatus::default()
            });
        }
    }
}

impl Snapshots for World {
    fn snapshot(&self) -> Arc<Snapshot> {
        let (writer, reader) = &mut *lock(&self.engine);
        writer.publish();
        reader.snapshot()
    }
}

impl Backend for World {
    fn submit(&self, event: DeviceEvent) -> Result<(), String> {
        self.write(|writer| writer.change::<Devices>(event).map(drop))
    }

    fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        let key = format!("{namespace}/{name}");
        let found = lock(&self.claims).get(&key).cloned();
        found.ok_or(ApiError::NotFound(key))
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let mut claim = claim.clone();
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        let metadata = &mut claim.metadata;
        metadata.name = format!("{}{number:05}", metadata.generate_name).into();
        metadata.uid = format!("uid-{}-{}", metadata.namespace, metadata.name).into();
        self.put_claim(claim).map_err(ApiError::Other)
    }

    fn update(&self, claim: &ResourceClaim, part: ClaimPart) -> Result<ResourceClaim, ApiError> {
        let mut stored = self.stored(claim)?;
        let ResourceClaim { metadata, status, .. } = claim.clone();
        match part {
            ClaimPart::Metadata => stored.metadata = metadata,
            ClaimPart::Consumers => stored.status.reserved_for = status.reserved_for,
            ClaimPart::Status => {
                let is_new = stored.status.allocation.is_none();
                stored.status = status;
                if is_new {
                    self.drive(&mut stored);
                }
            }
        }
        self.put_claim(stored).map_err(ApiError::Other)
    }

    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        pod: &Pod,
    ) -> Result<ResourceClaim, ApiError> {
        let mut stored = self.get(claim.namespace(), claim.name())?;
        stored.status.reserved_for.retain(|of| *of.uid != *pod.uid.to_string());
        self.put_claim(stored).map_err(ApiError::Other)
    }

    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError> {
        self.delete_claim(claim.namespace(), claim.name()).map_err(ApiError::Other)
    }

    fn set_extended_status(&self, _: &Pod, status: &ExtendedClaimStatus) -> Result<(), ApiError> {
        *lock(&self.pod_status) = Some(json!({ "extendedResourceClaimStatus": status }));
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(4_000_000_000)
    }

    fn wait(&self, _: Duration, _: &PodInPreBind) -> Result<(), String> {
        Ok(())
    }
}
