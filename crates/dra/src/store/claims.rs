//! Claims, and the allocations that are not stored yet.

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

/// The claims by namespace and name, with the devices that they use.
#[derive(Clone, Default)]
pub struct Claims {
    claims: imbl::OrdMap<Key, Arc<ResourceClaim>>,
    /// By the uid of the claim.
    in_flight: imbl::HashMap<Arc<str>, InFlight>,
    usage: Usage,
    /// The claims whose last change removed their allocation.
    freed: imbl::HashMap<Arc<str>, Arc<ResourceClaim>>,
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
        self.in_flight.get(uid)
    }

    /// Returns whether this version of a claim is the one that removed the allocation, or if that is not known because
    /// the claim has changed since.
    #[must_use]
    pub fn was_freed(&self, claim: &ResourceClaim) -> bool {
        let is_known = |known: &Arc<ResourceClaim>| std::ptr::eq(&**known, claim);
        let newest = self.get(claim.namespace(), claim.name());
        self.freed.get(&claim.metadata.uid).is_some_and(is_known) || !newest.is_some_and(is_known)
    }

    /// Returns the devices in use.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Adds or replaces a claim. Its devices are in use from its allocation to the removal of the allocation. An
    /// allocation cannot change, so another one is not counted.
    pub(super) fn put(&mut self, claim: Arc<ResourceClaim>, log: &mut Log) {
        let key = (claim.namespace().clone(), claim.name().clone());
        let old = self.claims.get(&key).cloned();
        let (known, new) =
            (old.as_ref().map_or(0, |old| old.metadata.version()), claim.metadata.version());
        if known != 0 && new != 0 && new <= known {
            return;
        }
        let before = old.as_ref().and_then(|old| old.status.allocation.as_deref());
        match (before, claim.status.allocation.as_deref()) {
            (None, Some(new)) => self.usage.add(new, log),
            (Some(old), None) => {
                self.usage.remove(old, log);
                self.freed.insert(claim.metadata.uid.clone(), claim.clone());
            }
            _ => drop(self.freed.remove(&claim.metadata.uid)),
        }
        self.claims.insert(key, claim);
    }

    pub(super) fn delete(&mut self, namespace: &Arc<str>, name: &Arc<str>, log: &mut Log) {
        let old = self.claims.remove(&(namespace.clone(), name.clone()));
        if let Some(old) = &old {
            self.freed.remove(&old.metadata.uid);
        }
        if let Some(allocation) = old.as_ref().and_then(|old| old.status.allocation.as_deref()) {
            self.usage.remove(allocation, log);
        }
    }

    pub(super) fn reserve(&mut self, pending: InFlight, log: &mut Log) {
        let uid = &pending.claim.metadata.uid;
        self.usage.reserve(uid, &pending.allocation, log);
        self.in_flight.insert(uid.clone(), pending);
    }

    pub(super) fn release(&mut self, uid: &Arc<str>, log: &mut Log) {
        if let Some(pending) = self.in_flight.remove(uid) {
            self.usage.release(uid, &pending.allocation, log);
        }
    }
}
