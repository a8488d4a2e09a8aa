//! The store of devices and claims, which is part of every version of the cluster.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Devices`] and its events |
//! | `classes.rs` | device classes, and the extended resources that they supply |
//! | `slices.rs` | resource slices by pool and node |
//! | `pools.rs` | pools as nodes see them |
//! | `claims.rs` | claims, and allocations in flight |
//! | `log.rs` | the changes since an earlier state |
//! | `usage.rs` | the devices of each pool that are in use |
//! | `reserve.rs`, `counters.rs` | the limits that reservations must not exceed |
//!
//! All parts are persistent maps, so a clone costs a few reference counts.

mod claims;
mod classes;
pub(crate) mod counters;
mod log;
mod pools;
mod reserve;
mod slices;
mod usage;

use std::sync::Arc;

use portolan::cache::{Cluster, PlacedPod, Store};
use portolan::model::{Generation, Template};

use crate::model::{DeviceClass, IMPLICIT_PREFIX, ResourceClaim, ResourceSlice};

pub use claims::{Claims, InFlight};
pub use classes::Classes;
pub use log::Log;
pub use pools::{NodePool, PoolState};
pub use slices::{PoolId, PoolSlices, Slices};
pub use usage::{PoolUsage, Usage};

/// Device classes, resource slices, claims, and the devices in use.
#[derive(Clone, Default)]
pub struct Devices {
    classes: Classes,
    slices: Slices,
    claims: Claims,
    log: Log,
    /// When a device class was last put or deleted.
    classes_changed: Generation,
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
    /// Adds or replaces a claim, as a watch reports it. Ignored if the known object has the same uid and the same or a
    /// newer resource version.
    PutClaim(Arc<ResourceClaim>),
    /// Replaces a claim by the object that the API server returned after a write. Ignored if the claim with this uid is
    /// not known: it has been deleted meanwhile.
    UpdateClaim(Arc<ResourceClaim>),
    /// Removes a claim.
    DeleteClaim {
        /// The namespace.
        namespace: Arc<str>,
        /// The name.
        name: Arc<str>,
        /// The uid of the claim, so that a later claim of this name stays, or `None` for any claim.
        uid: Option<Arc<str>>,
    },
    /// Reserves devices for claims until their allocations are stored: all or none. Rejected if a claim is already in
    /// flight or allocated, if a device is in use, or if shared capacity or counters do not suffice.
    Reserve(Vec<InFlight>),
    /// Ends the reservation of the claim with this uid, whose allocation was not stored. Ignored if it is not in
    /// flight.
    Release(Arc<str>),
    /// Stores the claim that the API server returned, and ends its reservation. A claim that was deleted meanwhile is
    /// not stored.
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

    /// Returns whether devices are allocated for pods of this template: they have claims, or request an extended
    /// resource that a class supplies.
    #[must_use]
    pub fn serves(&self, template: &Template) -> bool {
        let mut scalars = template.resources.incoming.scalars.iter();
        !template.resource_claims.is_empty() || scalars.any(|(resource, _)| self.supplies(resource))
    }

    /// Returns the changes that verdicts on nodes depend on.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
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
            DeviceEvent::PutClaim(claim)
            | DeviceEvent::UpdateClaim(claim)
            | DeviceEvent::Allocated { claim, .. } => {
                has_name(claim.name()).and_then(|()| has_uid(claim))
            }
            DeviceEvent::Reserve(pending) => reserve::check(self, pending),
            DeviceEvent::DeleteClass(_)
            | DeviceEvent::DeleteSlice(_)
            | DeviceEvent::DeleteClaim { .. }
            | DeviceEvent::Release(_) => Ok(()),
        }
    }

    fn apply(&mut self, event: &DeviceEvent, generation: Generation) {
        let log = &mut self.log;
        match event {
            DeviceEvent::PutClass(_)
            | DeviceEvent::DeleteClass(_)
            | DeviceEvent::PutSlice(_)
            | DeviceEvent::DeleteSlice(_) => log.add_other(),
            _ => {}
        }
        if let DeviceEvent::PutClass(_) | DeviceEvent::DeleteClass(_) = event {
            self.classes_changed = generation;
        }
        match event {
            DeviceEvent::PutClass(class) => self.classes.put(class.clone()),
            DeviceEvent::DeleteClass(name) => self.classes.delete(name),
            DeviceEvent::PutSlice(slice) => self.slices.put(slice.clone()),
            DeviceEvent::DeleteSlice(name) => self.slices.delete(name),
            DeviceEvent::PutClaim(claim) => self.claims.put(claim.clone(), log),
            DeviceEvent::UpdateClaim(claim) => self.claims.update(claim.clone(), log),
            DeviceEvent::DeleteClaim { namespace, name, uid } => {
                let known = self.claims.get(namespace, name).map(|claim| &claim.metadata.uid);
                if uid.is_none() || known == uid.as_ref() {
                    self.claims.delete(namespace, name, log);
                }
            }
            DeviceEvent::Reserve(pending) => {
                pending.iter().for_each(|pending| self.claims.reserve(pending.clone(), log));
            }
            DeviceEvent::Release(uid) => self.claims.release(uid, log),
            DeviceEvent::Allocated { claim, reserved } => {
                self.claims.allocated(claim.clone(), reserved, log);
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

    fn may_supply(event: &DeviceEvent, resource: &str) -> bool {
        let DeviceEvent::PutClass(class) = event else { return false };
        match resource.strip_prefix(IMPLICIT_PREFIX) {
            Some(name) => name == &**class.name(),
            None => class.spec.extended_resource_name.as_deref() == Some(resource),
        }
    }

    fn concerns(&self, template: &Template, since: Generation) -> bool {
        let has_scalars = template.resources.incoming.scalars.iter().next().is_some();
        self.serves(template) || (has_scalars && self.classes_changed > since)
    }
}

/// Refuses a claim without uid, because allocations in flight are kept by uid.
fn has_uid(claim: &ResourceClaim) -> Result<(), String> {
    match claim.metadata.uid.is_empty() {
        true => Err(format!("claim {} has no uid", claim.key())),
        false => Ok(()),
    }
}
