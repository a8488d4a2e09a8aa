//! The cluster of a scenario: an engine, and an API server that holds claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use portolan::cache::{Config, Engine, Reader, Snapshot, Writer};
use portolan::model::{Pod, Timestamp};
use portolan::plugin::{PodInPreBind, Snapshots};
use portolan_dra::model::{AllocatedDeviceStatus, Condition, ResourceClaim};
use portolan_dra::plugin::{ApiError, Backend, ExtendedClaimStatus};
use portolan_dra::store::{DeviceEvent, Devices};
use serde_json::Value;

pub struct World {
    writer: Mutex<Writer>,
    reader: Mutex<Reader>,
    claims: Mutex<BTreeMap<String, ResourceClaim>>,
    pub driver: Mutex<String>,
    created: AtomicUsize,
    version: AtomicUsize,
    pub pod_status: Mutex<Option<Value>>,
}

impl World {
    pub fn new() -> World {
        let (writer, reader) = Engine::inline(Config::default().with_store(Devices::default()));
        World {
            writer: Mutex::new(writer),
            reader: Mutex::new(reader),
            claims: Mutex::default(),
            driver: Mutex::default(),
            created: AtomicUsize::new(0),
            version: AtomicUsize::new(0),
            pod_status: Mutex::default(),
        }
    }

    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap()
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.writer().publish();
        self.reader.lock().unwrap().snapshot()
    }

    pub fn claims(&self) -> BTreeMap<String, ResourceClaim> {
        self.claims.lock().unwrap().clone()
    }

    /// Stores a claim with the next resource version, and returns it.
    pub fn put_claim(&self, mut claim: ResourceClaim) -> ResourceClaim {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        claim.metadata.resource_version = version.to_string().into();
        self.claims.lock().unwrap().insert(claim.key(), claim.clone());
        self.submit(DeviceEvent::PutClaim(claim.clone().into())).unwrap();
        claim
    }

    /// Returns the stored claim if the given one is not outdated.
    fn stored(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let stored = self.get(claim.namespace(), claim.name())?;
        match stored.metadata.resource_version == claim.metadata.resource_version {
            true => Ok(stored),
            false => Err(ApiError::Conflict("the object has been modified".to_owned())),
        }
    }

    pub fn delete_claim(&self, namespace: &str, name: &str) {
        self.claims.lock().unwrap().remove(&format!("{namespace}/{name}"));
        let (namespace, name) = (namespace.into(), name.into());
        self.submit(DeviceEvent::DeleteClaim { namespace, name }).unwrap();
    }

    /// Returns the claims that differ from `before`, and those that no longer exist.
    pub fn changes(
        &self,
        before: &BTreeMap<String, ResourceClaim>,
    ) -> (BTreeMap<String, ResourceClaim>, BTreeSet<String>) {
        let after = self.claims();
        let gone = before.keys().filter(|key| !after.contains_key(*key)).cloned().collect();
        let changed = after.into_iter().filter(|(key, claim)| before.get(key) != Some(claim));
        (changed.collect(), gone)
    }

    /// What drivers do when the allocation of a claim with binding conditions is stored.
    fn drive(&self, claim: &mut ResourceClaim) {
        let Some(allocation) = claim.status.allocation.clone() else { return };
        let driver = self.driver.lock().unwrap().clone();
        for result in &allocation.devices.results {
            if result.binding_conditions.is_empty() {
                continue;
            }
            let condition = |kind: &Arc<str>, reason: &str, message: &str| Condition {
                kind: kind.clone(),
                status: "True".into(),
                reason: reason.into(),
                message: message.into(),
                rest: [("lastTransitionTime".to_owned(), "2026-01-01T00:00:00Z".into())].into(),
            };
            let conditions: Vec<Condition> = match &*driver {
                "ready" => result
                    .binding_conditions
                    .iter()
                    .map(|of| condition(of, "Attached", ""))
                    .collect(),
                "failed" => (result.binding_failure_conditions.first().into_iter())
                    .map(|of| condition(of, "AttachFailed", "fabric says no"))
                    .collect(),
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
        World::snapshot(self)
    }
}

impl Backend for World {
    fn submit(&self, event: DeviceEvent) -> Result<(), String> {
        let mut writer = self.writer();
        writer.change::<Devices>(event).map_err(|error| error.to_string())?;
        writer.publish();
        Ok(())
    }

    fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        let key = format!("{namespace}/{name}");
        let found = self.claims.lock().unwrap().get(&key).cloned();
        found.ok_or(ApiError::NotFound(key))
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let mut claim = claim.clone();
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        claim.metadata.name = format!("{}{number:05}", claim.metadata.generate_name).into();
        claim.metadata.uid =
            format!("uid-{}-{}", claim.metadata.namespace, claim.metadata.name).into();
        Ok(self.put_claim(claim))
    }

    fn update(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let mut stored = self.stored(claim)?;
        stored.metadata = claim.metadata.clone();
        Ok(self.put_claim(stored))
    }

    fn update_status(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let mut stored = self.stored(claim)?;
        let is_new = stored.status.allocation.is_none();
        stored.status = claim.status.clone();
        if is_new {
            self.drive(&mut stored);
        }
        Ok(self.put_claim(stored))
    }

    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        pod: &Pod,
    ) -> Result<ResourceClaim, ApiError> {
        let mut stored = self.get(claim.namespace(), claim.name())?;
        stored.status.reserved_for.retain(|of| *of.uid != *pod.uid.to_string());
        Ok(self.put_claim(stored))
    }

    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError> {
        self.delete_claim(claim.namespace(), claim.name());
        Ok(())
    }

    fn set_extended_status(&self, _: &Pod, status: &ExtendedClaimStatus) -> Result<(), ApiError> {
        let status = serde_json::json!({ "extendedResourceClaimStatus": status });
        *self.pod_status.lock().unwrap() = Some(status);
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(4_000_000_000)
    }

    fn wait(&self, _: Duration, _: &PodInPreBind) -> Result<(), String> {
        Ok(())
    }
}
