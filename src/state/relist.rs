//! Relists: a complete list of one kind of object is compared with the known objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::log::{Applied, Relist};
use crate::model::{EventError, Name, Node, Object, ObjectKind, Pod, Uid};
use crate::snapshot::draft::{Generations, Threads, node_of};
use crate::snapshot::godel::Leaving;
use crate::snapshot::{NodeSlot, PodInfo};

use super::lifecycle::State;

impl State {
    /// Adds, confirms or replaces the listed objects, and removes those that are not listed, except assumed pods. A
    /// refused object still counts as listed, and the known object is kept. Of several objects with one key, the first
    /// counts, and the others are refused. An object without a usable key (a pod without a uid, a node without a name,
    /// an object of another kind) could be any of the apparently missing ones; if the list contains such an object,
    /// nothing is removed. With Gödel's pod states, a listed pod may be on no node, which is treated as an update to
    /// that state.
    pub(super) fn relist(&mut self, relist: &Relist, applied: &mut Applied) {
        match relist {
            Relist::Pods(pods) => self.relist_pods(pods, applied),
            Relist::Nodes(nodes) => self.relist_nodes(nodes, applied),
            Relist::Objects(kind, objects) => self.relist_objects(*kind, objects, applied),
        }
    }

    fn relist_pods(&mut self, pods: &[Pod], applied: &mut Applied) {
        let mut first: HashMap<&Uid, usize> = HashMap::with_capacity(pods.len());
        for (at, pod) in pods.iter().enumerate() {
            first.entry(&pod.uid).or_insert(at);
        }
        let generation = Generations::One(self.generation);
        // The fold waits for no other thread.
        let mut load = self.begin_load(Threads::One);
        let mut at = 0;
        while let Some(listed) = pods.get(at) {
            // A run ends before a pod whose uid occurred in it.
            let placed = self.place_run(&pods[at..], generation, &mut load);
            if placed > 0 {
                (at, applied.added) = (at + placed, applied.added + placed);
                continue;
            }
            load.filling.count(listed);
            let is_repeated = !listed.uid.is_empty() && first[&listed.uid] < at;
            at += 1;
            let pod = &*self.draft.as_placed(listed);
            let outcome = match node_of(pod) {
                _ if is_repeated => Err(listed_twice("Pod", listed.uid.to_string())),
                Err(_) if self.has_pod_states() => {
                    self.unplace(&listed.uid, &Arc::new(listed.clone()), applied).map(|()| None)
                }
                _ => self.relist_pod(pod),
            };
            match outcome {
                Ok(Some(true)) => applied.added += 1,
                Ok(Some(false)) => applied.updated += 1,
                Ok(None) => {}
                Err(why) => {
                    applied.rejected.push((pod.key().to_string(), why));
                }
            }
        }
        if pods.iter().any(|pod| pod.uid.is_empty()) {
            return;
        }
        let missing: Vec<Uid> = self
            .cluster()
            .everything()
            .flat_map(|node| node.pods())
            .filter(|pod| !pod.is_assumed() && !self.draft.holds(pod))
            .map(|pod| pod.uid())
            .filter(|uid| !first.contains_key(uid))
            .collect();
        for uid in &missing {
            if let Some(pod_ref) = self.draft.pod(uid).map(|pod| pod.pod_ref()) {
                self.displace(uid, pod_ref, Leaving::Deleted);
            }
        }
        applied.removed += missing.len();
    }

    /// Returns `Some(true)` if the pod was added, `Some(false)` if it was changed, and `None` if it already equals the
    /// listed one.
    pub(super) fn relist_pod(&mut self, pod: &Pod) -> Result<Option<bool>, EventError> {
        let node = node_of(pod)?;
        match self.draft.pod(&pod.uid) {
            Some(known) if self.draft.holds(&known) => {
                Err(EventError::HoldsPlace { uid: pod.uid.clone() })
            }
            Some(known) if known.is_assumed() => {
                self.add_pod(pod)?;
                Ok(Some(false))
            }
            Some(known) if is_as_listed(&known, pod) => Ok(None),
            // The listed pod may be on another node: the list is authoritative.
            Some(known) => {
                let pod_ref = known.pod_ref();
                self.draft.check_place(pod, node, Some(pod_ref))?;
                self.revise(pod_ref, pod);
                Ok(Some(false))
            }
            None => {
                self.add_pod(pod)?;
                Ok(Some(true))
            }
        }
    }

    fn relist_nodes(&mut self, nodes: &[Arc<Node>], applied: &mut Applied) {
        let mut listed = Slots::default();
        let mut names: HashSet<&Name> = HashSet::with_capacity(nodes.len());
        for node in nodes {
            if !node.name.is_empty() && !names.insert(&node.name) {
                let name = node.name.to_string();
                applied.rejected.push((name.clone(), listed_twice("Node", name)));
                continue;
            }
            let known = self.cluster().any_node(&node.name);
            let slot = known.map(|info| info.slot());
            let known = known.filter(|info| !info.is_ghost()).and_then(|info| info.kubelet_node());
            let is_as_listed = known == Some(node);
            let is_known = known.is_some();
            if let Some(slot) = slot {
                listed.insert(slot);
            }
            if let Err(why) = self.draft.check_node(node) {
                applied.rejected.push((node.name.to_string(), why));
                continue;
            }
            if is_as_listed {
                continue;
            }
            if is_known {
                applied.updated += 1;
            } else {
                applied.added += 1;
            }
            self.put_node(node);
            if slot.is_none()
                && let Some(info) = self.cluster().any_node(&node.name)
            {
                listed.insert(info.slot());
            }
        }
        if nodes.iter().any(|node| node.name.is_empty()) {
            return;
        }
        let missing: Vec<Name> = self
            .cluster()
            .nodes()
            .filter(|node| !listed.contains(node.slot()) && node.kubelet_node().is_some())
            .map(|node| node.name().clone())
            .collect();
        for name in &missing {
            self.remove_node(name);
        }
        applied.removed += missing.len();
    }

    fn relist_objects(&mut self, kind: ObjectKind, objects: &[Object], applied: &mut Applied) {
        let mut missing: BTreeMap<(String, String), ()> =
            self.cluster().object_keys(kind).into_iter().map(|key| (key, ())).collect();
        let mut listed = HashSet::with_capacity(objects.len());
        for object in objects {
            let key = (object.namespace().to_owned(), object.name().to_string());
            let is_of_kind = object.kind() == kind;
            let is_known = is_of_kind && missing.remove(&key).is_some();
            let put = if is_of_kind && !listed.insert((object.namespace(), object.name())) {
                Err(listed_twice(kind.as_str(), format!("{}/{}", key.0, key.1)))
            } else if is_of_kind {
                self.put_object(object)
            } else {
                Err(EventError::ObjectNotFound {
                    kind: kind.as_str().into(),
                    key: format!("{}/{}", key.0, key.1),
                })
            };
            match put {
                Ok(_) if is_known => applied.updated += 1,
                Ok(_) => applied.added += 1,
                Err(why) => applied.rejected.push((format!("{}/{}", key.0, key.1), why)),
            }
        }
        let has_key = |object: &Object| object.kind() == kind && !object.name().is_empty();
        if objects.iter().all(has_key) {
            for (namespace, name) in missing.keys() {
                if self.delete_object(kind, namespace, name).is_ok() {
                    applied.removed += 1;
                }
            }
        }
    }
}

fn listed_twice(kind: &'static str, key: String) -> EventError {
    EventError::ListedTwice { kind: kind.into(), key }
}

/// A set of nodes.
#[derive(Default)]
struct Slots(Vec<u64>);

impl Slots {
    fn insert(&mut self, slot: NodeSlot) {
        let word = slot.0 as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot.0 % 64);
    }

    fn contains(&self, slot: NodeSlot) -> bool {
        self.0.get(slot.0 as usize / 64).is_some_and(|word| word >> (slot.0 % 64) & 1 == 1)
    }
}

fn is_as_listed(known: &PodInfo<'_>, pod: &Pod) -> bool {
    known.resource_version() == pod.resource_version
        && Some(known.node().name()) == pod.node_name.as_ref()
        && known.name() == &*pod.name
        && known.start_time() == pod.start_time
        && known.deletion_time() == pod.deletion_time
        && *known.template() == pod.template
}
