//! Deployments and ReplicaSets, and the garbage collection of the objects they own.
//!
//! A Deployment whose template changes scales its old ReplicaSets to zero at once: there are no rolling updates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{delete, has_ended, is_deleted, is_ready, text, write};
use crate::clock::{ALPHABET, now};
use crate::random::mix;
use crate::resources::{self, Resource};
use crate::store::{Key, Store};
use crate::verbs::{self, Part};

/// The keys that changed.
pub(super) struct Changes<'a> {
    pub(super) pods: &'a BTreeSet<Key>,
    pub(super) deployments: BTreeSet<Key>,
    pub(super) replica_sets: BTreeSet<Key>,
}

/// The owning controllers of objects, by uid.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    pods: Owned,
    replica_sets: Owned,
    /// The uids of Deployments and ReplicaSets, by plural and key.
    owners: BTreeMap<(&'static str, Key), String>,
}

/// Objects by the uid of their controller.
#[derive(Debug, Default)]
struct Owned {
    by_owner: BTreeMap<String, BTreeSet<Key>>,
    owner_of: BTreeMap<Key, String>,
}

impl Owned {
    /// Records the object's current controller. Returns the uids of the current and the previous controller.
    fn update(&mut self, key: &Key, object: Option<&Value>) -> Vec<String> {
        let owner = object.and_then(controller_of);
        let before = match &owner {
            Some(owner) => self.owner_of.insert(key.clone(), owner.clone()),
            None => self.owner_of.remove(key),
        };
        if let Some(before) = before.as_ref().filter(|before| Some(*before) != owner.as_ref())
            && let Some(keys) = self.by_owner.get_mut(before)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_owner.remove(before);
            }
        }
        if let Some(owner) = &owner {
            self.by_owner.entry(owner.clone()).or_default().insert(key.clone());
        }
        owner.into_iter().chain(before).collect()
    }

    fn of(&self, owner: &str) -> Vec<Key> {
        self.by_owner.get(owner).into_iter().flatten().cloned().collect()
    }
}

fn controller_of(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str().map(str::to_owned)
}

impl Workloads {
    pub(super) fn reconcile(&mut self, store: &Store, changes: &Changes<'_>) {
        let mut dirty = BTreeSet::new();
        for key in changes.pods {
            let pod = store.of(resources::pods()).get(key);
            dirty.extend(self.pods.update(key, pod.as_ref().map(|pod| &*pod.value)));
        }
        for key in &changes.replica_sets {
            let set = store.of(resources::replica_sets()).get(key);
            dirty.extend(self.replica_sets.update(key, set.as_ref().map(|set| &*set.value)));
        }
        for (resource, keys) in [
            (resources::deployments(), &changes.deployments),
            (resources::replica_sets(), &changes.replica_sets),
        ] {
            for key in keys {
                let object = store.of(resource).get(key);
                let uid = object.map(|object| text(&object.value["metadata"], "uid").to_owned());
                let before = match &uid {
                    Some(uid) => self.owners.insert((resource.plural, key.clone()), uid.clone()),
                    None => self.owners.remove(&(resource.plural, key.clone())),
                };
                if let Some(before) = before.filter(|before| Some(before) != uid.as_ref()) {
                    self.collect(store, &before);
                }
                dirty.extend(uid);
            }
        }
        let owners = std::mem::take(&mut self.owners);
        for ((plural, key), uid) in owners.iter().filter(|(_, uid)| dirty.contains(*uid)) {
            if *plural == "deployments" {
                self.deployment(store, key, uid);
            } else {
                self.replicas(store, key, uid);
            }
        }
        self.owners = owners;
    }

    /// Deletes the dependents of a removed owner.
    fn collect(&self, store: &Store, owner: &str) {
        self.pods.of(owner).iter().for_each(|key| delete(store, resources::pods(), key));
        self.replica_sets
            .of(owner)
            .iter()
            .for_each(|key| delete(store, resources::replica_sets(), key));
    }

    /// Scales the ReplicaSet of the current template to the Deployment's replicas, and all others to zero.
    fn deployment(&mut self, store: &Store, key: &Key, uid: &str) {
        let Some(deployment) = store.of(resources::deployments()).get(key) else { return };
        let deployment = &*deployment.value;
        if is_deleted(deployment) {
            return;
        }
        let spec = &deployment["spec"];
        let hash = template_hash(&spec["template"]);
        let current = Key::new(&key.namespace, &format!("{}-{hash}", key.name));
        let sets = resources::replica_sets();
        let replicas = &spec["replicas"];
        let mut owned = self.replica_sets.of(uid);
        if !owned.contains(&current) {
            let mut template = spec["template"].clone();
            template["metadata"]["labels"]["pod-template-hash"] = hash.clone().into();
            let mut selector = spec["selector"].clone();
            selector["matchLabels"]["pod-template-hash"] = hash.into();
            let object = json!({
                "metadata": {
                    "name": current.name, "labels": template["metadata"]["labels"],
                    "ownerReferences": [reference(resources::deployments(), key, uid)],
                },
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            });
            if let Ok(created) = verbs::create(store, sets, &key.namespace, object) {
                self.replica_sets.update(&current, Some(&created.value));
                owned.push(current.clone());
            }
        }
        let mut counts = Counts::default();
        for set_key in owned {
            let Some(set) = store.of(sets).get(&set_key) else { continue };
            let wanted = if set_key == current { replicas.clone() } else { json!(0) };
            if set.value["spec"]["replicas"] != wanted {
                write(store, sets, &set_key, Part::Main, &json!({"spec": {"replicas": wanted}}));
            }
            let status = &set.value["status"];
            let count = |field: &str| status[field].as_u64().unwrap_or(0);
            counts.all += count("replicas");
            counts.ready += count("readyReplicas");
            if set_key == current {
                counts.updated += count("replicas");
            }
        }
        let wanted = replicas.as_u64().unwrap_or(0);
        let available = if counts.ready >= wanted { "True" } else { "False" };
        let mut status = json!({
            "observedGeneration": deployment["metadata"]["generation"], "replicas": counts.all,
            "updatedReplicas": counts.updated, "readyReplicas": counts.ready, "availableReplicas": counts.ready,
            "unavailableReplicas": wanted.saturating_sub(counts.ready),
        });
        let present = &deployment["status"]["conditions"];
        status["conditions"] = if present[0]["status"] == available {
            present.clone()
        } else {
            json!([{"type": "Available", "status": available, "lastUpdateTime": now(), "lastTransitionTime": now()}])
        };
        if deployment["status"] != status {
            write(store, resources::deployments(), key, Part::Status, &json!({"status": status}));
        }
    }

    /// Creates or deletes pods until the number of active pods equals the replicas.
    fn replicas(&mut self, store: &Store, key: &Key, uid: &str) {
        let resource = resources::replica_sets();
        let Some(owner) = store.of(resource).get(key) else { return };
        let owner = &*owner.value;
        if is_deleted(owner) {
            return;
        }
        let pods = resources::pods();
        let mut active = Vec::new();
        for pod_key in self.pods.of(uid) {
            if let Some(pod) = store
                .of(pods)
                .get(&pod_key)
                .filter(|pod| !is_deleted(&pod.value) && !has_ended(&pod.value))
            {
                active.push(pod);
            }
        }
        let wanted =
            usize::try_from(owner["spec"]["replicas"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        let template = &owner["spec"]["template"];
        while active.len() < wanted {
            let mut metadata = template["metadata"].clone();
            metadata["generateName"] = format!("{}-", key.name).into();
            metadata["ownerReferences"] = json!([reference(resource, key, uid)]);
            let object = json!({"metadata": metadata, "spec": template["spec"]});
            match verbs::create(store, pods, &key.namespace, object) {
                Ok(pod) => {
                    self.pods.update(&pod.version.key, Some(&pod.value));
                    active.push(pod);
                }
                // The generated name is taken; the next attempt generates another.
                Err(error) if error.reason == "AlreadyExists" => {}
                // The template is invalid or the namespace is terminating.
                Err(_) => break,
            }
        }
        // Unassigned pods are deleted first, then those that are not ready.
        active.sort_by_key(|pod| {
            (!text(&pod.value["spec"], "nodeName").is_empty(), is_ready(&pod.value))
        });
        for pod in active.drain(..active.len().saturating_sub(wanted)) {
            delete(store, pods, &pod.version.key);
        }
        let ready = active.iter().filter(|pod| is_ready(&pod.value)).count();
        let status = json!({
            "observedGeneration": owner["metadata"]["generation"], "replicas": active.len(),
            "fullyLabeledReplicas": active.len(), "readyReplicas": ready, "availableReplicas": ready,
        });
        if owner["status"] != status {
            write(store, resource, key, Part::Status, &json!({"status": status}));
        }
    }
}

#[derive(Default)]
struct Counts {
    all: u64,
    updated: u64,
    ready: u64,
}

fn reference(resource: &Resource, key: &Key, uid: &str) -> Value {
    json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "name": key.name, "uid": uid, "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Ten characters that identify a template. The hash differs from the one in Kubernetes.
fn template_hash(template: &Value) -> String {
    let mut hash = template.to_string().bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    let letter = |_| {
        let letter = ALPHABET[(hash % ALPHABET.len() as u64) as usize] as char;
        hash /= ALPHABET.len() as u64;
        letter
    };
    (0..10).map(letter).collect()
}
