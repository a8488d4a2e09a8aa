//! The store of devices and claims, which is part of every version of the cluster.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Devices`] and its events |
//! | `classes.rs` | device classes, and the extended resources that they supply |
//! | `slices.rs` | resource slices by pool and node |
//! | `claims.rs` | claims, and allocations in flight |
//! | `log.rs` | the changes since an earlier state |
//! | `usage.rs` | the devices of each pool that are in use |
//!
//! All parts are persistent maps, so a clone costs a few reference counts.

mod claims;
mod classes;
mod log;
mod slices;
mod usage;

use std::sync::Arc;

use portolan::cache::{Cluster, PlacedPod, Store};
use portolan::model::Generation;

use crate::model::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};

pub use claims::{Claims, InFlight};
pub use classes::Classes;
pub use log::Log;
pub use slices::{PoolId, PoolSlices, Slices};
pub use usage::{PoolUsage, Usage};

/// Device classes, resource slices, claims, and the devices in use.
#[derive(Clone, Default)]
pub struct Devices {
    classes: Classes,
    slices: Slices,
    claims: Claims,
    log: Log,
}

/// A change of [`Devices`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// Adds or replaces a device class.
    PutClass(Arc<DeviceClass>),
    /// Removes a device class by name.
    DeleteClass(Arc<str>),
    /// Adds or replaces a resource slice.
    PutSlice(Arc<ResourceSlice>),
    /// Removes a resource slice by name.
    DeleteSlice(Arc<str>),
    /// Adds or replaces a claim. Ignored if the known object has the same or a newer resource version.
    PutClaim(Arc<ResourceClaim>),
    /// Removes a claim.
    DeleteClaim {
        /// The namespace.
        namespace: Arc<str>,
        /// The name.
        name: Arc<str>,
    },
    /// Reserves devices for claims until their allocations are stored: all or none. Rejected if a claim is already in
    /// flight or allocated, or if a device that is allocated as a whole is in use.
    Reserve(Vec<InFlight>),
    /// Ends the reservation of the claim with this uid, whose allocation was not stored. Ignored if it is not in
    /// flight.
    Release(Arc<str>),
    /// Stores the claim that the API server returned, and ends its reservation.
    Allocated {
        /// The claim.
        claim: Arc<ResourceClaim>,
        /// The uid of the claim for which the devices were reserved. It differs from that of `claim` if the claim was
        /// created after the reservation.
        reserved: Arc<str>,
    },
}

impl Devices {
    /// Returns the device classes.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Returns the resource slices.
    #[must_use]
    pub fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Returns the claims.
    #[must_use]
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Returns the changes that verdicts on nodes depend on.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the reason for which devices cannot be reserved.
    fn check_reserve(&self, pending: &[InFlight]) -> Result<(), String> {
        for InFlight { claim, allocation, .. } in pending {
            let key = claim.key();
            if self.claims.in_flight(&claim.metadata.uid).is_some() {
                return Err(format!("claim {key} is in the process of being allocated"));
            }
            let known = self.claims.get(claim.namespace(), claim.name());
            if known.is_some_and(|known| known.status.allocation.is_some()) {
                return Err(format!("claim {key} is allocated"));
            }
            if let Some(device) = self.conflict(allocation) {
                return Err(format!("claim {key}: device {device} is in use"));
            }
        }
        Ok(())
    }

    /// Returns a device of the allocation that another claim uses alone.
    fn conflict(&self, allocation: &AllocationResult) -> Option<String> {
        let results = allocation.devices.results.iter();
        let mut exclusive =
            results.filter(|of| of.admin_access != Some(true) && of.share_id.is_none());
        let taken = exclusive.find(|of| {
            let pool = PoolId { driver: of.driver.clone(), pool: of.pool.clone() };
            self.claims.usage().pool(&pool).is_some_and(|usage| usage.is_dedicated(&of.device))
        })?;
        Some(format!("{}/{}/{}", taken.driver, taken.pool, taken.device))
    }
}

impl Store for Devices {
    type Event = DeviceEvent;

    const NAME: &'static str = "Devices";

    fn check(&self, event: &DeviceEvent, _: &Cluster) -> Result<(), String> {
        let has_name = |name: &str| match name.is_empty() {
            true => Err("an object has no name".to_owned()),
            false => Ok(()),
        };
        match event {
            DeviceEvent::PutClass(class) => has_name(class.name()),
            DeviceEvent::PutSlice(slice) => has_name(slice.name()),
            DeviceEvent::PutClaim(claim) | DeviceEvent::Allocated { claim, .. } => {
                has_name(claim.name())
            }
            DeviceEvent::Reserve(pending) => self.check_reserve(pending),
            DeviceEvent::DeleteClass(_)
            | DeviceEvent::DeleteSlice(_)
            | DeviceEvent::DeleteClaim { .. }
            | DeviceEvent::Release(_) => Ok(()),
        }
    }

    fn apply(&mut self, event: &DeviceEvent, _: Generation) {
        let log = &mut self.log;
        match event {
            DeviceEvent::PutClass(_)
            | DeviceEvent::DeleteClass(_)
            | DeviceEvent::PutSlice(_)
            | DeviceEvent::DeleteSlice(_) => log.add_other(),
            _ => {}
        }
        match event {
            DeviceEvent::PutClass(class) => self.classes.put(class.clone()),
            DeviceEvent::DeleteClass(name) => self.classes.delete(name),
            DeviceEvent::PutSlice(slice) => self.slices.put(slice.clone()),
            DeviceEvent::DeleteSlice(name) => self.slices.delete(name),
            DeviceEvent::PutClaim(claim) => self.claims.put(claim.clone(), log),
            DeviceEvent::DeleteClaim { namespace, name } => {
                self.claims.delete(namespace, name, log);
            }
            DeviceEvent::Reserve(pending) => {
                pending.iter().for_each(|pending| self.claims.reserve(pending.clone(), log));
            }
            DeviceEvent::Release(uid) => self.claims.release(uid, log),
            DeviceEvent::Allocated { claim, reserved } => {
                self.claims.release(reserved, log);
                self.claims.put(claim.clone(), log);
            }
        }
    }

    fn tracks(&self, _: &PlacedPod<'_>) -> bool {
        false
    }

    fn allocates_claims(&self) -> bool {
        true
    }

    fn supplies(&self, resource: &str) -> bool {
        self.classes.supplier(resource).is_some()
    }
}
