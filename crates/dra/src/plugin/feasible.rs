//! Which nodes can satisfy claims: verdicts that are kept from one pod to the next.
//!
//! Pods of one workload have claims with equal requests. Between two of them, usually only the devices of one node have
//! been allocated, so the verdicts on all other nodes still hold. They are kept by the requests of the claims and by
//! node, and dropped as the store's [`Log`] says.

use std::sync::{Arc, Mutex, PoisonError};

use portolan::cache::{Chunk, Cluster, NodeInfo};
use portolan::model::Node;

use crate::model::DeviceClaim;
use crate::store::{Devices, Log};

use super::state::ClaimState;

/// The number of lists of claims whose verdicts are kept.
const MOST: usize = 16;

/// The verdicts of all lists of claims, the latest used list last.
#[derive(Default)]
pub(super) struct Feasibility(Mutex<Vec<Arc<OfClaims>>>);

/// The verdicts for a list of claims.
pub(super) struct OfClaims {
    claims: Vec<DeviceClaim>,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    /// The state of the store in which the verdicts hold.
    log: Option<Log>,
    /// By the slot of the node: the node, and whether the claims can be allocated there.
    verdicts: Vec<Option<(Arc<Node>, bool)>>,
}

impl Feasibility {
    /// Returns the verdicts for claims with these requests.
    pub(super) fn of(&self, claims: &[ClaimState]) -> Arc<OfClaims> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |of: &Arc<OfClaims>| {
            of.claims.len() == claims.len()
                && of.claims.iter().zip(claims).all(|(a, b)| *a == b.claim.spec.devices)
        };
        let of = match lists.iter().rposition(is_same) {
            Some(at) => lists.remove(at),
            None => {
                let claims = claims.iter().map(|of| of.claim.spec.devices.clone()).collect();
                Arc::new(OfClaims { claims, nodes: Mutex::default() })
            }
        };
        if lists.len() >= MOST {
            lists.remove(0);
        }
        lists.push(of.clone());
        of
    }
}

impl OfClaims {
    /// Drops the verdicts that do not hold in this version.
    pub(super) fn follow(&self, devices: &Devices, cluster: &Cluster) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let Nodes { log, verdicts } = &mut *nodes;
        let newest = devices.log();
        if log.as_ref().is_some_and(|log| log.is_same(newest)) {
            return;
        }
        let changed = log.as_ref().and_then(|log| newest.since(log));
        let mut forget_all = changed.is_none();
        for pool in changed.into_iter().flatten() {
            let Some(pool) = devices.slices().pool(pool) else { continue };
            let names = pool.slices().iter().map(|slice| slice.spec.node_name.as_ref());
            for name in names {
                let Some(name) = name.filter(|_| !pool.is_shared()) else {
                    forget_all = true;
                    break;
                };
                let slot = cluster.node(name).map(|node| node.slot().0 as usize);
                if let Some(verdict) = slot.and_then(|slot| verdicts.get_mut(slot)) {
                    *verdict = None;
                }
            }
        }
        if forget_all {
            verdicts.clear();
        }
        *log = Some(newest.clone());
    }

    /// Returns the nodes of a chunk that pass and those whose verdict is not known, of the lanes in `mask`.
    pub(super) fn known(
        &self,
        devices: &Devices,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
    ) -> (u64, u64) {
        let of = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if !of.log.as_ref().is_some_and(|log| log.is_same(devices.log())) {
            return (0, mask);
        }
        let (mut passed, mut unknown, mut left) = (0, 0, mask);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let Some(info) = cluster.node_in(chunk, bit.trailing_zeros() as usize) else {
                continue;
            };
            let verdict = of.verdicts.get(info.slot().0 as usize).and_then(Option::as_ref);
            match (info.node(), verdict) {
                (Some(now), Some((node, passes))) if Arc::ptr_eq(now, node) => {
                    passed |= if *passes { bit } else { 0 };
                }
                _ => unknown |= bit,
            }
        }
        (passed, unknown)
    }

    /// Keeps verdicts on nodes of this version.
    pub(super) fn keep(&self, devices: &Devices, verdicts: &[(NodeInfo<'_>, bool)]) {
        let mut of = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if !of.log.as_ref().is_some_and(|log| log.is_same(devices.log())) {
            return;
        }
        for (info, passes) in verdicts {
            let (slot, Some(node)) = (info.slot().0 as usize, info.node()) else { continue };
            if of.verdicts.len() <= slot {
                of.verdicts.resize(slot + 1, None);
            }
            of.verdicts[slot] = Some((node.clone(), *passes));
        }
    }
}
