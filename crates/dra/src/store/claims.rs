//! Claims, and the allocations that are not stored yet.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::model::{AllocationResult, ResourceClaim};

use super::{Log, Usage};

/// An allocation for a claim that is reserved, but not stored in the claim yet.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The claim.
    pub claim: Arc<ResourceClaim>,
    /// The allocation.
    pub allocation: Arc<AllocationResult>,
}

type Key = (Arc<str>, Arc<str>);

/// A reservation. The object of its claim may not exist yet.
#[derive(Clone)]
struct Pending {
    of: InFlight,
    /// The uids of the claims of the namespace that were deleted meanwhile, if the object does not exist: one of them
    /// may be the object that was created for this reservation.
    deleted: Vec<Arc<str>>,
}

/// The claims by namespace and name, with the devices that they use.
#[derive(Clone, Default)]
pub struct Claims {
    claims: imbl::OrdMap<Key, Arc<ResourceClaim>>,
    /// By the uid of the claim.
    in_flight: imbl::HashMap<Arc<str>, Pending>,
    usage: Usage,
    /// The newest version of each claim that freed devices.
    freed: imbl::HashMap<Arc<str>, Arc<ResourceClaim>>,
    /// The claim that was deleted last, and whether it used devices.
    deleted: Option<(Key, bool)>,
}

impl Claims {
    /// Returns the claim with this namespace and name.
    #[must_use]
    pub fn get(&self, namespace: &Arc<str>, name: &Arc<str>) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(&(namespace.clone(), name.clone()))
    }

    /// Returns all claims, in the order of their namespaces and names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.values()
    }

    /// Returns the claims of a namespace, in the order of their names.
    pub fn of_namespace(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        let first = (namespace.clone(), Arc::from(""));
        let claims = self.claims.range(first..);
        let namespace = namespace.clone();
        claims.take_while(move |((of, _), _)| *of == namespace).map(|(_, claim)| claim)
    }

    /// Returns the allocation in flight of the claim with this uid.
    #[must_use]
    pub fn in_flight(&self, uid: &str) -> Option<&InFlight> {
        self.in_flight.get(uid).map(|pending| &pending.of)
    }

    /// Returns whether this version of a claim is the one that freed devices: the allocation was removed or replaced, or
    /// a claim of this name that had one. Also `true` if the claim has no allocation and no longer exists. An older
    /// version that freed devices is forgotten: the newer one counts for it.
    #[must_use]
    pub fn was_freed(&self, claim: &ResourceClaim) -> bool {
        let is_known = |known: &Arc<ResourceClaim>| std::ptr::eq(&**known, claim);
        let uid = &claim.metadata.uid;
        let newest = self.get(claim.namespace(), claim.name());
        let is_gone = newest.is_none_or(|newest| newest.metadata.uid != *uid);
        self.freed.get(uid).is_some_and(is_known) || claim.status.allocation.is_none() && is_gone
    }

    /// Returns whether the deletion of a claim freed devices, or if that is not known because another claim has been
    /// deleted since.
    #[must_use]
    pub fn was_freed_by_deletion(&self, namespace: &Arc<str>, name: &Arc<str>) -> bool {
        let is_of = |(of, _): &&(Key, bool)| of.0 == *namespace && of.1 == *name;
        self.deleted.as_ref().filter(is_of).is_none_or(|(_, used_devices)| *used_devices)
    }

    /// Returns the devices in use.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Adds or replaces a claim that a watch reports, unless the known object is as new. A claim with another uid is
    /// another object, whatever its resource version, and ends the known one.
    pub(super) fn put(&mut self, claim: Arc<ResourceClaim>, log: &mut Log) {
        let (namespace, name) = (claim.namespace(), claim.name());
        let mut is_freed = false;
        match self.get(namespace, name) {
            Some(known) if known.metadata.uid != claim.metadata.uid => {
                self.delete(namespace, name, log);
                is_freed = self.was_freed_by_deletion(namespace, name);
            }
            Some(known) => {
                let age = claim.metadata.compare_version(&known.metadata);
                if age.is_some_and(Ordering::is_le) {
                    return;
                }
            }
            None => {}
        }
        self.replace(claim.clone(), log);
        if is_freed {
            self.freed.insert(claim.metadata.uid.clone(), claim);
        }
    }

    /// Replaces a claim by what the API server answered to a write, unless the claim has been deleted or changed
    /// meanwhile.
    pub(super) fn update(&mut self, claim: Arc<ResourceClaim>, log: &mut Log) {
        let known = self.get(claim.namespace(), claim.name());
        let is_current = known.is_some_and(|known| {
            known.metadata.uid == claim.metadata.uid
                && claim.metadata.compare_version(&known.metadata) != Some(Ordering::Less)
        });
        if is_current {
            self.replace(claim, log);
        }
    }

    /// Adds or replaces a claim, whose devices are then in use. An allocation cannot change, but a watch may miss that
    /// a claim was freed and allocated again.
    fn replace(&mut self, claim: Arc<ResourceClaim>, log: &mut Log) {
        let key = (claim.namespace().clone(), claim.name().clone());
        let old = self.claims.get(&key).cloned();
        let before = old.as_ref().and_then(|old| old.status.allocation.as_deref());
        let now = claim.status.allocation.as_deref();
        let is_changed = before.map(|of| &of.devices.results) != now.map(|of| &of.devices.results);
        let uid = &claim.metadata.uid;
        if let Some(old) = before.filter(|_| is_changed) {
            self.usage.remove(old, log);
            self.freed.insert(uid.clone(), claim.clone());
        }
        if let Some(new) = now.filter(|_| is_changed) {
            self.usage.add(new, log);
        }
        self.claims.insert(key, claim);
    }

    /// Ends the reservation under the uid `reserved`, and stores its claim, unless that has been deleted meanwhile.
    pub(super) fn allocated(
        &mut self,
        claim: Arc<ResourceClaim>,
        reserved: &Arc<str>,
        log: &mut Log,
    ) {
        let pending = self.in_flight.get(reserved);
        // The object of the claim may have been created after the reservation, and not be known yet.
        let is_new = *reserved != claim.metadata.uid
            && pending.is_some_and(|pending| !pending.deleted.contains(&claim.metadata.uid));
        self.release(reserved, log);
        match is_new {
            true => self.put(claim, log),
            false => self.update(claim, log),
        }
    }

    /// Removes a claim, and the reservation for it.
    pub(super) fn delete(&mut self, namespace: &Arc<str>, name: &Arc<str>, log: &mut Log) {
        let key = (namespace.clone(), name.clone());
        let Some(old) = self.claims.remove(&key) else {
            self.deleted = Some((key, false));
            return;
        };
        let uid = &old.metadata.uid;
        let used_devices = old.status.allocation.is_some() || self.in_flight(uid).is_some();
        self.deleted = Some((key, used_devices));
        self.freed.remove(uid);
        if let Some(allocation) = old.status.allocation.as_deref() {
            self.usage.remove(allocation, log);
        }
        self.release(uid, log);
        let is_concerned =
            |of: &InFlight| of.claim.namespace() == namespace && !self.is_stored(&of.claim);
        let pending = self.in_flight.iter().filter(|(_, pending)| is_concerned(&pending.of));
        let reserved: Vec<Arc<str>> = pending.map(|(reserved, _)| reserved.clone()).collect();
        for reserved in reserved {
            if let Some(pending) = self.in_flight.get_mut(&reserved) {
                pending.deleted.push(uid.clone());
            }
        }
    }

    /// Returns whether the object of this claim, by its uid, is known.
    fn is_stored(&self, claim: &ResourceClaim) -> bool {
        let known = self.get(claim.namespace(), claim.name());
        known.is_some_and(|known| known.metadata.uid == claim.metadata.uid)
    }

    pub(super) fn reserve(&mut self, of: InFlight, log: &mut Log) {
        let uid = of.claim.metadata.uid.clone();
        self.usage.reserve(&uid, &of.allocation, log);
        self.in_flight.insert(uid, Pending { of, deleted: Vec::new() });
    }

    pub(super) fn release(&mut self, uid: &Arc<str>, log: &mut Log) {
        if let Some(pending) = self.in_flight.remove(uid) {
            self.usage.release(uid, &pending.of.allocation, log);
        }
    }
}
