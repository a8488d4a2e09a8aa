//! Findings about devices and resource claims (dynamic resource allocation).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::Pod;
use portolan_dra::Devices;
use portolan_dra::model::{ResourceClaim, ResourceSlice};
use portolan_dra::store::{PoolId, PoolSlices};
use portolan_k8s::DeviceObjects;

use super::finding::{Findings, Kind};
use crate::resource_claims::claim_names;
use crate::text::{count, first_names};

/// Pools and allocated claims. O(devices + allocated devices × log n).
pub(super) fn check(
    cluster: &Cluster,
    objects: &DeviceObjects,
    pods: &[Pod],
    findings: &mut Findings,
) {
    let Ok(devices) = cluster.store::<Devices>() else { return };
    let ids: BTreeSet<PoolId> = objects.slices.iter().map(|slice| PoolId::of(slice)).collect();
    for id in &ids {
        check_pool(id, devices, findings);
    }
    let claims = objects.claims.iter();
    let claims = claims.filter_map(|it| devices.claims().get(it.namespace(), it.name()));
    let claims: BTreeMap<String, &Arc<ResourceClaim>> =
        claims.map(|claim| (claim.key(), claim)).collect();
    let uids: HashSet<String> = pods.iter().map(|pod| pod.uid.to_string()).collect();
    // By the names of driver, pool and device.
    let mut users: BTreeMap<[&str; 3], BTreeSet<&str>> = BTreeMap::new();
    for (key, claim) in &claims {
        let consumers = claim.status.reserved_for.iter();
        let consumers = consumers.filter(|of| &*of.resource == "pods" && of.api_group.is_empty());
        for pod in consumers.filter(|of| !uids.contains(&*of.uid)) {
            let problem = format!(
                "is reserved for pod {}/{}, which does not exist or has finished: its devices stay in use",
                claim.namespace(),
                pod.name
            );
            findings.add(Kind::MissingConsumer, format!("resource claim {key}"), problem);
        }
        let results = claim.status.allocation.iter().flat_map(|of| &of.devices.results);
        for result in results {
            let id = PoolId { driver: result.driver.clone(), pool: result.pool.clone() };
            let pool = devices.slices().pool(&id);
            // The files may have been fetched without slices.
            if !ids.is_empty() && !pool.is_some_and(|pool| has_device(pool, &result.device)) {
                let problem = format!(
                    "is allocated device {} of pool {} ({}), which no slice has",
                    result.device, result.pool, result.driver
                );
                findings.add(Kind::MissingDevice, format!("resource claim {key}"), problem);
            }
            if result.share_id.is_none() && result.admin_access != Some(true) {
                let device = [&*result.driver, &result.pool, &result.device];
                users.entry(device).or_default().insert(key);
            }
        }
    }
    // The files may have been fetched without claims.
    for pod in pods.iter().filter(|pod| pod.node_name.is_some() && !claims.is_empty()) {
        for name in
            claim_names(pod).filter(|it| devices.claims().get(pod.namespace(), it).is_none())
        {
            let problem = format!("resource claim {name} does not exist: the pod cannot start");
            findings.add_pod(Kind::MissingClaim, pod, pod.node_name.as_deref(), problem);
        }
    }
    for ([driver, pool, device], claims) in users.into_iter().filter(|(_, of)| of.len() > 1) {
        let problem = format!(
            "is allocated to {} claims ({}): it may have one only",
            claims.len(),
            first_names(&claims)
        );
        let device = format!("device {device} of pool {pool} ({driver})");
        findings.add(Kind::SharedDevice, device, problem);
    }
}

fn has_device(pool: &PoolSlices, device: &str) -> bool {
    let mut devices = pool.slices().iter().flat_map(|slice| &slice.spec.devices);
    devices.any(|of| *of.name == *device)
}

/// A pool that lacks slices of its newest generation.
fn check_pool(id: &PoolId, devices: &Devices, findings: &mut Findings) {
    let Some(pool) = devices.slices().pool(id) else { return };
    let generation = pool.slices().iter().map(|slice| slice.spec.pool.generation).max();
    let is_newest = |slice: &&Arc<ResourceSlice>| Some(slice.spec.pool.generation) == generation;
    let newest: Vec<_> = pool.slices().iter().filter(is_newest).collect();
    let Some(expected) = newest.first().map(|slice| slice.spec.pool.resource_slice_count) else {
        return;
    };
    if i64::try_from(newest.len()).is_ok_and(|found| found < expected) {
        let problem = format!(
            "has {} of {expected} in generation {}: its devices cannot be allocated",
            count(newest.len(), "slice"),
            generation.unwrap_or(0)
        );
        let pool = format!("pool {} ({})", id.pool, id.driver);
        findings.add(Kind::IncompletePool, pool, problem);
    }
}
