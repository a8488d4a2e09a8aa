//! Creates, reserves, deallocates and deletes resource claims (pkg/controller/resourceclaim).
//!
//! A pod that names a template gets a claim of its own. An allocated claim is reserved for a pod that was bound without
//! a reservation. Reservations of pods that have ended or are gone are removed; with the last one, the claim loses its
//! allocation and its finalizer. The claim of a pod that has ended or is gone is deleted.
//!
//! Differences from Kubernetes: there are no events and no claims of pod groups, and this controller also plays the
//! garbage collector of claims.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{delete, has_ended, is_deleted, text};
use crate::patch::PatchKind;
use crate::resources;
use crate::store::{Key, Object, Store};
use crate::verbs::{self, Part, finalizers};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// The maximum length of the part of a claim's name that names the pod and the entry.
const LONGEST_PREFIX: usize = 57;

/// Which pods and claims concern each other.
#[derive(Debug, Default)]
pub(super) struct PodClaims {
    /// The claims that name a pod as their owner or consumer, by pod.
    claims_of: BTreeMap<Key, BTreeSet<Key>>,
    /// The pods that a claim names, by claim.
    pods_of: BTreeMap<Key, BTreeSet<Key>>,
    /// The pods that wait for a template, or are bound and wait for an allocation.
    waiting: BTreeSet<Key>,
}

/// The claim of a pod's entry that names a template.
enum Generated {
    /// The status says that the pod needs none.
    Unneeded,
    /// The status names this claim, which belongs to the pod.
    Claim(String),
    Missing,
}

impl PodClaims {
    /// Reconciles the pods and claims that changed, and those that they concern. O(changed + waiting).
    pub(super) fn reconcile(
        &mut self,
        store: &Store,
        changed_pods: &BTreeSet<Key>,
        changed_claims: &BTreeSet<Key>,
        templates_changed: bool,
    ) {
        let (mut pods, mut claims) = (changed_pods.clone(), changed_claims.clone());
        for key in changed_claims {
            pods.extend(self.note(store, key));
        }
        if templates_changed || !changed_claims.is_empty() {
            pods.append(&mut self.waiting);
        }
        for key in changed_pods {
            claims.extend(self.claims_of.get(key).into_iter().flatten().cloned());
        }
        for key in &pods {
            match self.sync_pod(store, key) {
                true => drop(self.waiting.remove(key)),
                false => drop(self.waiting.insert(key.clone())),
            }
        }
        claims.iter().for_each(|key| sync_claim(store, key));
    }

    /// Records the pods that a claim names. Returns them, with those that it named before.
    fn note(&mut self, store: &Store, key: &Key) -> BTreeSet<Key> {
        let claim = store.of(resources::resource_claims()).get(key);
        let now = claim.map(|claim| named_pods(&claim)).unwrap_or_default();
        let before = match now.is_empty() {
            true => self.pods_of.remove(key),
            false => self.pods_of.insert(key.clone(), now.clone()),
        };
        let before = before.unwrap_or_default();
        for pod in before.difference(&now) {
            if let Some(claims) = self.claims_of.get_mut(pod) {
                claims.remove(key);
                if claims.is_empty() {
                    self.claims_of.remove(pod);
                }
            }
        }
        for pod in now.difference(&before) {
            self.claims_of.entry(pod.clone()).or_default().insert(key.clone());
        }
        now.union(&before).cloned().collect()
    }

    /// Creates the claims that a pod lacks, and reserves its claims if it is bound. Returns whether nothing is left to
    /// do.
    fn sync_pod(&mut self, store: &Store, key: &Key) -> bool {
        let Some(pod) = store.of(resources::pods()).get(key) else { return true };
        let pod = &*pod.value;
        let entries = list(&pod["spec"]["resourceClaims"]);
        if entries.is_empty() || is_deleted(pod) || has_ended(pod) {
            return true;
        }
        let (mut statuses, mut is_done) = (Vec::new(), true);
        for entry in entries {
            let template = text(entry, "resourceClaimTemplateName");
            let claim = if template.is_empty() {
                Some(text(entry, "resourceClaimName").to_owned())
            } else {
                match generated(store, key, pod, entry) {
                    Generated::Unneeded => continue,
                    Generated::Claim(name) => Some(name),
                    Generated::Missing => {
                        let orphan = self.orphan(store, key, pod, entry);
                        let name = orphan.or_else(|| self.create(store, key, pod, entry, template));
                        statuses.extend(
                            name.as_ref().map(
                                |name| json!({"name": entry["name"], "resourceClaimName": name}),
                            ),
                        );
                        name
                    }
                }
            };
            let is_bound = !text(&pod["spec"], "nodeName").is_empty();
            is_done &= match claim {
                Some(claim) if is_bound => {
                    reserve(store, &Key::new(&key.namespace, &claim), key, pod)
                }
                claim => claim.is_some(),
            };
        }
        if !statuses.is_empty() {
            let patch = json!({
                "metadata": {"uid": pod["metadata"]["uid"]},
                "status": {"resourceClaimStatuses": statuses},
            });
            let how = PatchKind::StrategicMerge;
            // A pod that was deleted meanwhile needs no status.
            let _ = verbs::patch(store, resources::pods(), key, Part::Status, how, &patch);
        }
        is_done
    }

    /// The claim that was created for an entry whose status was not written.
    fn orphan(&self, store: &Store, key: &Key, pod: &Value, entry: &Value) -> Option<String> {
        let claims = self.claims_of.get(key)?;
        let claim = claims.iter().find(|claim| {
            store.of(resources::resource_claims()).get(claim).is_some_and(|claim| {
                let annotation = &claim.value["metadata"]["annotations"][POD_CLAIM];
                is_owned_by(&claim, pod) && *annotation == entry["name"]
            })
        });
        claim.map(|claim| claim.name.clone())
    }

    /// Creates the claim of an entry. Returns its name, or `None` if the template does not exist or is refused.
    fn create(
        &mut self,
        store: &Store,
        key: &Key,
        pod: &Value,
        entry: &Value,
        template: &str,
    ) -> Option<String> {
        let template = Key::new(&key.namespace, template);
        let template = store.of(resources::resource_claim_templates()).get(&template)?;
        let template = &template.value["spec"];
        let mut annotations = template["metadata"]["annotations"].clone();
        annotations[POD_CLAIM] = entry["name"].clone();
        let owner = json!({
            "apiVersion": "v1", "kind": "Pod", "name": key.name, "uid": pod["metadata"]["uid"], "controller": true,
        });
        let claim = json!({
            "metadata": {
                "generateName": prefix(&key.name, text(entry, "name")), "annotations": annotations,
                "labels": template["metadata"]["labels"], "ownerReferences": [owner],
            },
            "spec": template["spec"],
        });
        let claims = resources::resource_claims();
        let created = verbs::create(store, claims, &key.namespace, claim).ok()?.version.key.clone();
        self.note(store, &created);
        Some(created.name)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The part of a generated name before the random characters. Both names are cut in proportion to their lengths.
fn prefix(pod: &str, entry: &str) -> String {
    let length = pod.len() + entry.len() + 2;
    if length <= LONGEST_PREFIX {
        return format!("{pod}-{entry}-");
    }
    let cut = |name: &str| -> String {
        let bytes = name.bytes().take(name.len() * LONGEST_PREFIX / length);
        bytes.map(char::from).collect()
    };
    format!("{}-{}", cut(pod), cut(entry))
}

fn generated(store: &Store, key: &Key, pod: &Value, entry: &Value) -> Generated {
    let statuses = list(&pod["status"]["resourceClaimStatuses"]);
    let Some(status) = statuses.iter().find(|status| status["name"] == entry["name"]) else {
        return Generated::Missing;
    };
    let name = text(status, "resourceClaimName");
    if name.is_empty() {
        return Generated::Unneeded;
    }
    let claim = store.of(resources::resource_claims()).get(&Key::new(&key.namespace, name));
    match claim.is_some_and(|claim| is_owned_by(&claim, pod)) {
        true => Generated::Claim(name.to_owned()),
        false => Generated::Missing,
    }
}

/// The reference to the pod that controls a claim.
fn owner(claim: &Object) -> Option<&Value> {
    let owners = list(&claim.value["metadata"]["ownerReferences"]);
    owners.iter().find(|owner| {
        owner["controller"] == true && owner["apiVersion"] == "v1" && owner["kind"] == "Pod"
    })
}

fn is_owned_by(claim: &Object, pod: &Value) -> bool {
    owner(claim).is_some_and(|owner| owner["uid"] == pod["metadata"]["uid"])
}

fn is_pod(consumer: &Value) -> bool {
    text(consumer, "apiGroup").is_empty() && consumer["resource"] == "pods"
}

fn named_pods(claim: &Object) -> BTreeSet<Key> {
    let consumers = list(&claim.value["status"]["reservedFor"]).iter().filter(|of| is_pod(of));
    let named = consumers.chain(owner(claim));
    named.map(|of| Key::new(&claim.version.key.namespace, text(of, "name"))).collect()
}

/// Whether a pod will not run any more.
fn is_over(pod: &Value) -> bool {
    has_ended(pod) || (is_deleted(pod) && text(&pod["spec"], "nodeName").is_empty())
}

/// Reserves an allocated claim for a bound pod. Returns whether nothing is left to do.
fn reserve(store: &Store, claim: &Key, key: &Key, pod: &Value) -> bool {
    let Some(claim) = store.of(resources::resource_claims()).get(claim) else { return false };
    let status = &claim.value["status"];
    let uid = &pod["metadata"]["uid"];
    let consumers = list(&status["reservedFor"]);
    if consumers.iter().any(|consumer| consumer["uid"] == *uid) {
        return true;
    }
    if status["allocation"].is_null() {
        return false;
    }
    let consumer = json!({"resource": "pods", "name": key.name, "uid": uid});
    let consumers: Vec<&Value> = consumers.iter().chain([&consumer]).collect();
    change(store, &claim, Part::Status, json!({"status": {"reservedFor": consumers}})).is_some()
}

/// Applies a merge patch to this version of a claim. Returns the new version, or `None` if the claim has changed.
fn change(store: &Store, claim: &Object, part: Part, mut patch: Value) -> Option<Object> {
    patch["metadata"]["resourceVersion"] = claim.value["metadata"]["resourceVersion"].clone();
    let (claims, key) = (resources::resource_claims(), &claim.version.key);
    verbs::patch(store, claims, key, part, PatchKind::Merge, &patch).ok()
}

/// Removes what pods leave behind: reservations, allocations that nobody uses, and generated claims.
fn sync_claim(store: &Store, key: &Key) {
    let Some(mut claim) = store.of(resources::resource_claims()).get(key) else { return };
    let pod = |reference: &Value| {
        let pod =
            store.of(resources::pods()).get(&Key::new(&key.namespace, text(reference, "name")));
        pod.filter(|pod| pod.value["metadata"]["uid"] == reference["uid"])
    };
    let object = claim.value.clone();
    let consumers = list(&object["status"]["reservedFor"]);
    let is_kept = |of: &&Value| !is_pod(of) || pod(of).is_some_and(|pod| !is_over(&pod.value));
    let remaining: Vec<&Value> = consumers.iter().filter(is_kept).collect();
    let (is_unused, is_protected) = (remaining.is_empty(), is_protected(&claim));
    let is_released = remaining.len() < consumers.len();
    let deallocates = is_unused && is_protected && (is_released || is_deleted(&object));
    let mut status = json!({});
    if is_released {
        status["reservedFor"] = json!(remaining);
    }
    if deallocates {
        status["allocation"] = Value::Null;
    }
    // A claim that has changed meanwhile is reconciled again.
    if is_released || (deallocates && !object["status"]["allocation"].is_null()) {
        let changed = change(store, &claim, Part::Status, json!({"status": status}));
        let Some(changed) = changed else { return };
        claim = changed;
    }
    if deallocates {
        let rest: Vec<&Value> =
            finalizers(&claim.value).iter().filter(|present| *present != FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        if change(store, &claim, Part::Main, patch).is_none() {
            return;
        }
    }
    let Some(owner) = owner(&claim) else { return };
    let is_left = match pod(owner) {
        None => true,
        Some(pod) => is_unused && is_over(&pod.value),
    };
    if is_left && !is_deleted(&object) {
        delete(store, resources::resource_claims(), key);
    }
}

fn is_protected(claim: &Object) -> bool {
    finalizers(&claim.value).iter().any(|finalizer| finalizer == FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_in_proportion() {
        assert_eq!(prefix("web", "gpu"), "web-gpu-");
        let (pod, entry) = ("p".repeat(80), "e".repeat(38));
        assert_eq!(prefix(&pod, &entry), format!("{}-{}", "p".repeat(38), "e".repeat(18)));
    }
}
