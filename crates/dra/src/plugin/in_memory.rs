//! Backends without an API server.
//!
//! In a simulation, the claims in the store are the only ones. Drivers prepare devices at once: all binding conditions
//! of a device are true as soon as it is allocated.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portolan::cache::{Engine, Event, Snapshot, WeakEngine};
use portolan::model::{Pod, Timestamp};
use portolan::plugin::PodInPreBind;

use crate::model::{AllocatedDeviceStatus, Condition, ResourceClaim};
use crate::store::{DeviceEvent, Devices};

use super::backend::{ApiError, Backend, ClaimPart, ExtendedClaimStatus};

/// Writes claims to an engine's store, for replays, simulations and tests. Does not keep the engine alive.
pub struct InMemoryBackend {
    engine: WeakEngine,
    /// In nanoseconds.
    now: AtomicI64,
    /// Held while a claim is changed.
    changing: Mutex<()>,
}

impl InMemoryBackend {
    /// Creates a backend for this engine. Its time is 0.
    #[must_use]
    pub fn new(engine: &Engine) -> InMemoryBackend {
        InMemoryBackend {
            engine: engine.downgrade(),
            now: AtomicI64::new(0),
            changing: Mutex::default(),
        }
    }

    /// Sets the time. Relaxed: nothing else depends on it.
    pub fn set_time(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::Relaxed);
    }

    fn engine(&self) -> Result<Engine, String> {
        self.engine.upgrade().ok_or_else(|| "the engine is gone".to_owned())
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        let reader = self.engine().map_err(ApiError::Other)?.reader();
        Ok(reader.map_err(|closed| ApiError::Other(closed.to_string()))?.snapshot())
    }

    /// Changes a claim and increments its version.
    ///
    /// # Errors
    ///
    /// The claim is not the newest version, or does not exist.
    fn change(
        &self,
        claim: &ResourceClaim,
        change: impl FnOnce(&mut ResourceClaim),
    ) -> Result<ResourceClaim, ApiError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stored = self.get(claim.namespace(), claim.name())?;
        if stored.metadata.resource_version != claim.metadata.resource_version {
            let reason = format!("resourceclaims \"{}\" has been modified", claim.name());
            return Err(ApiError::Conflict(reason));
        }
        change(&mut stored);
        self.put(stored)
    }

    fn put(&self, mut claim: ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let version = claim.metadata.version().unwrap_or(0);
        claim.metadata.resource_version = version.saturating_add(1).to_string().into();
        self.submit(DeviceEvent::PutClaim(claim.clone().into())).map_err(ApiError::Other)?;
        Ok(claim)
    }
}

impl Backend for InMemoryBackend {
    fn submit(&self, event: DeviceEvent) -> Result<(), String> {
        let submitted = self.engine()?.submit(Event::custom::<Devices>(event));
        let outcome = submitted.map_err(|closed| closed.to_string())?.wait();
        outcome.map_err(|closed| closed.to_string())?.map(drop).map_err(|error| error.to_string())
    }

    fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        let snapshot = self.snapshot()?;
        let devices = snapshot.store::<Devices>();
        let devices = devices.map_err(|failure| ApiError::Other(failure.to_string()))?;
        let found = devices.claims().get(&namespace.into(), &name.into());
        let missing = || ApiError::NotFound(format!("resourceclaims \"{name}\" not found"));
        found.map(|claim| ResourceClaim::clone(claim)).ok_or_else(missing)
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        let mut claim = claim.clone();
        let metadata = &mut claim.metadata;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut number = 0_u64;
        metadata.name = format!("{}{number}", metadata.generate_name).into();
        while self.get(&metadata.namespace, &metadata.name).is_ok() {
            number += 1;
            metadata.name = format!("{}{number}", metadata.generate_name).into();
        }
        metadata.uid = format!("{}/{}", metadata.namespace, metadata.name).into();
        self.put(claim)
    }

    fn update(&self, claim: &ResourceClaim, part: ClaimPart) -> Result<ResourceClaim, ApiError> {
        let ResourceClaim { metadata, status, .. } = claim.clone();
        self.change(claim, |stored| match part {
            ClaimPart::Metadata => stored.metadata = metadata,
            ClaimPart::Consumers => stored.status.reserved_for = status.reserved_for,
            ClaimPart::Status => {
                let is_new = stored.status.allocation.is_none();
                stored.status = status;
                if is_new {
                    prepare(stored);
                }
            }
        })
    }

    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        pod: &Pod,
    ) -> Result<ResourceClaim, ApiError> {
        let uid = pod.uid.to_string();
        let newest = self.get(claim.namespace(), claim.name())?;
        self.change(&newest, |stored| {
            stored.status.reserved_for.retain(|consumer| *consumer.uid != *uid);
        })
    }

    fn delete(&self, claim: &ResourceClaim) -> Result<(), ApiError> {
        let (namespace, name) = (claim.namespace().clone(), claim.name().clone());
        let uid = Some(claim.metadata.uid.clone());
        self.submit(DeviceEvent::DeleteClaim { namespace, name, uid }).map_err(ApiError::Other)
    }

    fn set_extended_status(&self, _: &Pod, _: &ExtendedClaimStatus) -> Result<(), ApiError> {
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Relaxed))
    }

    /// Advances the time, since nothing changes while a pod waits.
    fn wait(&self, duration: Duration, _: &PodInPreBind) -> Result<(), String> {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        self.set_time(Timestamp(self.now().0.saturating_add(nanos)));
        Ok(())
    }
}

/// Sets all binding conditions of the allocated devices.
fn prepare(claim: &mut ResourceClaim) {
    let results = claim.status.allocation.iter().flat_map(|of| &of.devices.results);
    let conditional = results.filter(|result| !result.binding_conditions.is_empty());
    let prepared = conditional.map(|result| AllocatedDeviceStatus {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
        share_id: result.share_id.clone(),
        conditions: (result.binding_conditions.iter())
            .map(|kind| Condition {
                kind: kind.clone(),
                status: "True".into(),
                ..Condition::default()
            })
            .collect(),
        ..AllocatedDeviceStatus::default()
    });
    let prepared: Vec<_> = prepared.collect();
    claim.status.devices.extend(prepared);
}

/// Accepts every write and stores nothing, to decide on pods that are never placed and to check configurations. No
/// claim can be read, and the time is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct DryRunBackend;

impl Backend for DryRunBackend {
    fn submit(&self, _: DeviceEvent) -> Result<(), String> {
        Ok(())
    }

    fn get(&self, _: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        Err(ApiError::NotFound(format!("resourceclaims \"{name}\" not found")))
    }

    fn create(&self, claim: &ResourceClaim) -> Result<ResourceClaim, ApiError> {
        Ok(claim.clone())
    }

    fn update(&self, claim: &ResourceClaim, _: ClaimPart) -> Result<ResourceClaim, ApiError> {
        Ok(claim.clone())
    }

    fn remove_reservation(
        &self,
        claim: &ResourceClaim,
        _: &Pod,
    ) -> Result<ResourceClaim, ApiError> {
        Ok(claim.clone())
    }

    fn delete(&self, _: &ResourceClaim) -> Result<(), ApiError> {
        Ok(())
    }

    fn set_extended_status(&self, _: &Pod, _: &ExtendedClaimStatus) -> Result<(), ApiError> {
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn wait(&self, _: Duration, _: &PodInPreBind) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use portolan::cache::Config;
    use serde_json::json;

    use super::*;

    fn claim(version: &str) -> ResourceClaim {
        serde_json::from_value(json!({
            "metadata": {"namespace": "d", "name": "c", "uid": "u", "resourceVersion": version},
            "status": {"allocation": {"devices": {"results": [
                {"request": "r", "driver": "x", "pool": "p", "device": "0", "bindingConditions": ["ready"]},
            ]}}},
        }))
        .unwrap()
    }

    fn backend() -> (Engine, InMemoryBackend) {
        let engine = Engine::shared(Config::default().with_store(Devices::default()));
        let backend = InMemoryBackend::new(&engine);
        let free = ResourceClaim { status: Default::default(), ..claim("1") };
        backend.submit(DeviceEvent::PutClaim(free.into())).unwrap();
        (engine, backend)
    }

    #[test]
    fn allocated_devices_are_prepared_at_once() {
        let (_engine, backend) = backend();
        let stored = backend.update(&claim("1"), ClaimPart::Status).unwrap();
        assert_eq!(&*stored.metadata.resource_version, "2");
        assert_eq!(&*stored.status.devices[0].conditions[0].kind, "ready");
        assert_eq!(backend.get("d", "c"), Ok(stored));
    }

    #[test]
    fn outdated_claims_are_refused() {
        let (_engine, backend) = backend();
        backend.update(&claim("1"), ClaimPart::Status).unwrap();
        assert!(matches!(
            backend.update(&claim("1"), ClaimPart::Status),
            Err(ApiError::Conflict(_))
        ));
        backend.delete(&claim("2")).unwrap();
        assert!(matches!(
            backend.update(&claim("2"), ClaimPart::Status),
            Err(ApiError::NotFound(_))
        ));
    }

    #[test]
    fn waiting_takes_time() {
        let (_engine, backend) = backend();
        backend.set_time(Timestamp::from_secs(5));
        backend.wait(Duration::from_secs(2), &PodInPreBind::default()).unwrap();
        assert_eq!(backend.now(), Timestamp::from_secs(7));
    }
}
