//! Binds claims to volumes as kube-controller-manager does. Volumes are not provisioned.
//!
//! A claim whose class binds immediately takes the smallest volume that satisfies it. A claim whose class waits for its
//! first consumer is bound once a scheduler has named the claim in a volume (`spec.claimRef`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{has_ended, is_deleted, text, write};
use crate::defaults::quantity;
use crate::resources;
use crate::selectors::label_selector_matches;
use crate::store::{Key, Object, Store};
use crate::verbs::Part;

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// Whether a claim is being deleted. The end of a pod may then release it.
pub(super) fn releasing(store: &Store, claims: &BTreeSet<Key>) -> bool {
    claims.iter().any(|key| {
        store.of(resources::claims()).get(key).is_some_and(|claim| is_deleted(&claim.value))
    })
}

/// Reconciles all claims and volumes. O(claims × volumes) for claims without a volume.
pub(super) fn reconcile(store: &Store) {
    for volume in store.of(resources::volumes()).objects().1 {
        volume_phase(store, &volume);
    }
    for claim in store.of(resources::claims()).objects().1 {
        if is_deleted(&claim.value) {
            release(store, &claim);
        } else if claim.value["status"]["phase"] != "Bound" {
            bind(store, &claim);
        }
    }
}

/// Sets the phase to Available, Bound or Released, depending on the claim that the volume references.
fn volume_phase(store: &Store, volume: &Object) {
    let volumes = resources::volumes();
    let key = &volume.version.key;
    let object = &*volume.value;
    let reference = &object["spec"]["claimRef"];
    let claim = store
        .of(resources::claims())
        .get(&Key::new(text(reference, "namespace"), text(reference, "name")));
    let phase = if reference.is_null() || text(reference, "uid").is_empty() {
        "Available"
    } else if claim.is_some_and(|claim| claim.value["metadata"]["uid"] == reference["uid"]) {
        // `complete` sets the phase Bound.
        if object["status"]["phase"] == "Bound" { "Bound" } else { "Available" }
    } else {
        "Released"
    };
    if object["status"]["phase"] != phase {
        write(store, volumes, key, Part::Status, &json!({"status": {"phase": phase}}));
    }
    if is_deleted(object) && phase != "Bound" {
        remove_finalizer(store, volumes, volume, "kubernetes.io/pv-protection");
    }
}

fn remove_finalizer(
    store: &Store,
    resource: &resources::Resource,
    object: &Object,
    finalizer: &str,
) {
    let present = object.value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let rest: Vec<&Value> = present.iter().filter(|present| *present != finalizer).collect();
    if rest.len() < present.len() {
        write(
            store,
            resource,
            &object.version.key,
            Part::Main,
            &json!({"metadata": {"finalizers": rest}}),
        );
    }
}

/// Removes the finalizer of a claim that is being deleted, once no pod uses the claim.
fn release(store: &Store, claim: &Object) {
    let key = &claim.version.key;
    let uses = |pod: &Object| {
        let volumes = pod.value["spec"]["volumes"].as_array().into_iter().flatten();
        pod.version.key.namespace == key.namespace
            && !has_ended(&pod.value)
            && volumes
                .into_iter()
                .any(|volume| volume["persistentVolumeClaim"]["claimName"] == key.name.as_str())
    };
    if !store.of(resources::pods()).objects().1.iter().any(uses) {
        remove_finalizer(store, resources::claims(), claim, "kubernetes.io/pvc-protection");
    }
}

fn bind(store: &Store, claim: &Object) {
    let object = &*claim.value;
    let class_name = text(&object["spec"], "storageClassName");
    let class = store.of(resources::storage_classes()).get(&Key::new("", class_name));
    let waits = class
        .as_ref()
        .is_some_and(|class| class.value["volumeBindingMode"] == "WaitForFirstConsumer");
    let (_, volumes) = store.of(resources::volumes()).objects();
    let named = text(&object["spec"], "volumeName");
    // The volume that the claim references, or that references the claim.
    let chosen = volumes.iter().find(|volume| {
        let reference = &volume.value["spec"]["claimRef"];
        if named.is_empty() {
            names(reference, claim)
        } else {
            volume.version.key.name == named && free(reference, claim)
        }
    });
    let fitting = || {
        let fits = volumes.iter().filter(|volume| {
            free(&volume.value["spec"]["claimRef"], claim) && satisfies(volume, object)
        });
        fits.min_by(|a, b| capacity(a).total_cmp(&capacity(b)))
    };
    let volume = match chosen {
        None if named.is_empty() && !waits => fitting(),
        chosen => chosen,
    };
    match volume {
        Some(volume) => complete(store, claim, volume),
        None => announce_provisioner(store, claim, class.as_ref(), waits),
    }
}

/// Whether `reference` refers to this claim.
fn names(reference: &Value, claim: &Object) -> bool {
    let key = &claim.version.key;
    let uid = text(reference, "uid");
    text(reference, "namespace") == key.namespace
        && text(reference, "name") == key.name
        && (uid.is_empty() || claim.value["metadata"]["uid"] == uid)
}

fn free(reference: &Value, claim: &Object) -> bool {
    reference.is_null() || names(reference, claim)
}

fn capacity(volume: &Object) -> f64 {
    quantity(&volume.value["spec"]["capacity"]["storage"])
}

fn satisfies(volume: &Object, claim: &Value) -> bool {
    let (spec, wanted) = (&volume.value["spec"], &claim["spec"]);
    let modes = spec["accessModes"].as_array().map(Vec::as_slice).unwrap_or_default();
    text(spec, "storageClassName") == text(wanted, "storageClassName")
        && spec["volumeMode"] == wanted["volumeMode"]
        && capacity(volume) >= quantity(&wanted["resources"]["requests"]["storage"])
        && wanted["accessModes"].as_array().into_iter().flatten().all(|mode| modes.contains(mode))
        && (wanted["selector"].is_null()
            || label_selector_matches(&wanted["selector"], &volume.value["metadata"]["labels"]))
        && !is_deleted(&volume.value)
}

/// Binds the volume to the claim and the claim to the volume.
fn complete(store: &Store, claim: &Object, volume: &Object) {
    let (claims, volumes) = (resources::claims(), resources::volumes());
    let key = &claim.version.key;
    let object = &*claim.value;
    if !names(&volume.value["spec"]["claimRef"], claim)
        || text(&volume.value["spec"]["claimRef"], "uid").is_empty()
    {
        let reference = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": key.namespace, "name": key.name,
            "uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"],
        });
        let patch = json!({
            "metadata": {
                "annotations": {BOUND_BY_CONTROLLER: "yes"},
                "resourceVersion": volume.value["metadata"]["resourceVersion"],
            },
            "spec": {"claimRef": reference},
        });
        if !write(store, volumes, &volume.version.key, Part::Main, &patch) {
            return;
        }
    }
    write(
        store,
        volumes,
        &volume.version.key,
        Part::Status,
        &json!({"status": {"phase": "Bound"}}),
    );
    let mut annotations = json!({BIND_COMPLETED: "yes"});
    if text(&object["spec"], "volumeName").is_empty() {
        annotations[BOUND_BY_CONTROLLER] = "yes".into();
    }
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.version.key.name}});
    write(store, claims, key, Part::Main, &patch);
    let capacity = &volume.value["spec"]["capacity"];
    let status = json!({"phase": "Bound", "accessModes": volume.value["spec"]["accessModes"], "capacity": capacity});
    write(store, claims, key, Part::Status, &json!({"status": status}));
}

/// Annotates a claim for an external provisioner.
fn announce_provisioner(store: &Store, claim: &Object, class: Option<&Object>, waits: bool) {
    let annotations = &claim.value["metadata"]["annotations"];
    let provisioner = class.map(|class| text(&class.value, "provisioner")).unwrap_or_default();
    if provisioner.is_empty()
        || provisioner == "kubernetes.io/no-provisioner"
        || (waits && annotations[SELECTED_NODE].is_null())
        || annotations[PROVISIONER] == provisioner
    {
        return;
    }
    let patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner, BETA_PROVISIONER: provisioner}}});
    write(store, resources::claims(), &claim.version.key, Part::Main, &patch);
}
