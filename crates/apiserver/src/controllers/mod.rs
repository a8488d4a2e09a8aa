//! The controllers of kube-controller-manager that tests of schedulers need, as one task.
//!
//! Each controller compares the desired with the current state and writes the difference. A controller keeps an index
//! only if a scan of all pods for each change would be too slow.

mod budgets;
mod resource_claims;
mod volumes;
mod workloads;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::follower::Follower;
use crate::patch::PatchKind;
use crate::resources::{self, Resource};
use crate::server::Shared;
use crate::store::{Key, Store};
use crate::verbs::{self, Part, has_ended, is_deleted, is_ready};

/// Runs the controllers for as long as the server lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    let store = &shared.store;
    let follow = |resource| Follower::new(store, resource);
    let mut pods = follow(resources::pods());
    let mut deployments = follow(resources::deployments());
    let mut replica_sets = follow(resources::replica_sets());
    let mut claims = follow(resources::claims());
    let mut volumes = follow(resources::volumes());
    let mut classes = follow(resources::storage_classes());
    let mut disruption_budgets = follow(resources::budgets());
    let mut resource_claims = follow(resources::resource_claims());
    let mut claim_templates = follow(resources::resource_claim_templates());
    let mut workloads = workloads::Workloads::default();
    let mut pod_claims = resource_claims::PodClaims::default();
    loop {
        let changed_pods = pods.changed(store);
        workloads.reconcile(
            store,
            &workloads::Changes {
                pods: &changed_pods,
                deployments: deployments.changed(store),
                replica_sets: replica_sets.changed(store),
            },
        );
        let changed_volumes =
            [claims.changed(store), volumes.changed(store), classes.changed(store)]
                .iter()
                .any(|set| !set.is_empty());
        // The end of a pod may release a claim that is being deleted.
        if changed_volumes
            || (!changed_pods.is_empty() && volumes::releasing(store, claims.known()))
        {
            volumes::reconcile(store);
        }
        pod_claims.reconcile(
            store,
            &changed_pods,
            &resource_claims.changed(store),
            !claim_templates.changed(store).is_empty(),
        );
        let changed_budgets = disruption_budgets.changed(store);
        budgets::reconcile(store, &changed_budgets, disruption_budgets.known(), &changed_pods);
        tokio::select! {
            () = pods.wait() => {}
            () = deployments.wait() => {}
            () = replica_sets.wait() => {}
            () = claims.wait() => {}
            () = volumes.wait() => {}
            () = classes.wait() => {}
            () = disruption_budgets.wait() => {}
            () = resource_claims.wait() => {}
            () = claim_templates.wait() => {}
        }
    }
}

/// Applies a merge patch and returns whether it succeeded. A refused patch needs no retry: the object has changed or
/// was deleted, and either causes another reconciliation.
fn write(store: &Store, resource: &Resource, key: &Key, part: Part, patch: &Value) -> bool {
    verbs::patch(store, resource, key, part, PatchKind::Merge, patch).is_ok()
}

/// Deletes an object in the background. The object may have been deleted already.
fn delete(store: &Store, resource: &Resource, key: &Key) {
    let _ = crate::delete::delete(store, resource, key, &Value::Null);
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The namespaces of some keys.
fn namespaces_of(keys: &BTreeSet<Key>) -> BTreeSet<&str> {
    keys.iter().map(|key| key.namespace.as_str()).collect()
}
