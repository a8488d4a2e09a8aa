//! Turns changes of pods into events of the engine, by the rules of kube-scheduler's event handlers
//! (pkg/scheduler/eventhandlers.go, 1.36).
//!
//! | pod | event |
//! |---|---|
//! | on a node, of any scheduler | `PutPod`, which confirms an assumed pod |
//! | waits for one of our schedulers | `PutPod`, by which an assumed pod stays so |
//! | waits for one of our schedulers and terminates | `PutPod`, once: leaves the queue, or ends the assumption |
//! | waits for another scheduler | none, or `RemovePod` or `RemovePending` if the engine knew it |
//! | deleted, or missing from a list | `RemovePod` or `RemovePending` |
//!
//! A version of a pod on a node that differs from the known one only in fields that scheduling does not read causes no
//! event. Such versions, mostly written by kubelets, are recognized by their digests without being parsed.
//!
//! A version that is not newer than the known one of the same uid is ignored. A list is compared with the index, pod by
//! pod, so it costs one event for each difference, and the pods of a large cluster are never all in memory at once.
//!
//! # Deviations
//!
//! kube-scheduler keeps a terminating pod in its queue and skips it when it is popped. Here the pod leaves the queue at
//! once, by the same event that ends its assumption, so it cannot remain assumed, whichever comes first.
//!
//! kube-scheduler replaces its object of a pod with each version. Here the engine keeps the resource version of the
//! last event, so that of a pod on a node may be older than the server's; the index has the server's. Versions of
//! pending pods always cause an event, because the queue and the writers of conditions depend on them.

use std::sync::Arc;

use portolan::cache::Event;
use portolan::model::{Name, Pod, Uid};
use portolan_k8s::Digest;

use super::pods::{KnownPod, PendingStatus, PodIndex};
use super::table::{Number, Standing, Table};

/// The rules, with the index that they read and write.
pub(super) struct PodRules {
    index: Arc<PodIndex>,
    /// The names of our schedulers.
    schedulers: Arc<[Name]>,
}

impl PodRules {
    pub(super) fn new(index: Arc<PodIndex>, schedulers: Arc<[Name]>) -> PodRules {
        PodRules { index, schedulers }
    }

    pub(super) fn index(&self) -> &Arc<PodIndex> {
        &self.index
    }

    /// Begins a list of all pods.
    pub(super) fn begin_list(&self) {
        self.index.write().begin_list();
    }

    /// Records a version of a pod without its object. Returns `false` if the object must be [put](PodRules::put).
    /// Returns `true` if no event follows, because the version is not newer than the known one, or has the digest of
    /// the last one that was put. O(1).
    pub(super) fn is_known(
        &self,
        uid: &Uid,
        version: u64,
        generation: i64,
        digest: Option<Digest>,
    ) -> bool {
        let mut table = self.index.write();
        let Some(number) = table.find(uid).filter(|_| version != 0) else { return false };
        let list = table.list();
        let Some(entry) = table.get_mut(number) else { return false };
        let is_newer = version > entry.resource_version;
        if is_newer && (digest.is_none() || digest != entry.digest) {
            return false;
        }
        entry.seen = list;
        if is_newer {
            (entry.resource_version, entry.generation) = (version, generation);
        }
        true
    }

    /// Records a pod and appends the events that follow. `digest` is that of the text from which the pod was parsed.
    /// `status` is called for a pod without a node. O(1).
    pub(super) fn put(
        &self,
        pod: Pod,
        generation: i64,
        digest: Option<Digest>,
        status: impl FnOnce() -> PendingStatus,
        events: &mut Vec<Event>,
    ) {
        let node = pod.node_name.as_ref().filter(|node| !node.is_empty());
        let is_ours = self.is_ours(&pod);
        let is_terminating = pod.deletion_time.is_some();
        let standing = match (node, is_ours, is_terminating) {
            (Some(_), _, _) => Standing::Placed,
            (None, false, _) => Standing::Foreign,
            (None, true, true) => Standing::Ending,
            (None, true, false) => Standing::Pending,
        };
        let pending = node.is_none().then(|| Box::new(status()));
        let mut table = self.index.write();
        let known = table.find(&pod.uid);
        if let Some(number) = known {
            table.see(number);
            let version = table.get(number).map_or(0, |entry| entry.resource_version);
            if pod.resource_version != 0 && pod.resource_version <= version {
                return;
            }
        } else if let Some(other) = table.find_name(pod.namespace(), &pod.name) {
            // Another pod has taken the name, and the deletion of the first was missed.
            remove(&mut table, other, events);
        }
        let before = known.and_then(|number| table.get(number)).map(|entry| entry.standing());
        let known = KnownPod {
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version,
            generation,
            node: node.cloned(),
            is_terminating,
            pending,
        };
        table.put(known, is_ours, digest);
        drop(table);
        match (before, standing) {
            (Some(Standing::Ending), Standing::Ending) => {}
            (Some(before), Standing::Foreign) => events.extend(removal(pod.uid, before)),
            (None, Standing::Foreign) => {}
            _ => events.push(Event::put_pod(pod)),
        }
    }

    /// Records that the pod exists in a version that cannot be read, so that the end of a list does not remove it.
    pub(super) fn keep(&self, uid: &Uid) {
        let mut table = self.index.write();
        if let Some(number) = table.find(uid) {
            table.see(number);
        }
    }

    /// Records the deletion of a pod. O(1).
    pub(super) fn delete(&self, uid: &Uid, version: u64, events: &mut Vec<Event>) {
        let mut table = self.index.write();
        match table.find(uid) {
            Some(number) => {
                let known = table.get(number).map_or(0, |entry| entry.resource_version);
                if version == 0 || version >= known {
                    remove(&mut table, number, events);
                }
            }
            // The engine may know a pod whose later versions could not be read.
            None if !uid.is_empty() => {
                events.push(Event::RemovePod { uid: uid.clone(), node: None });
                events.push(Event::RemovePending(uid.clone()));
            }
            None => {}
        }
    }

    /// Ends a list: removes the pods that were not put since it began. O(pods).
    pub(super) fn end_list(&self, events: &mut Vec<Event>) {
        let mut table = self.index.write();
        for number in table.unseen() {
            remove(&mut table, number, events);
        }
    }

    /// Returns whether the pod names one of our schedulers. The API server sets the default's name.
    fn is_ours(&self, pod: &Pod) -> bool {
        let name = pod.scheduler_name();
        self.schedulers.iter().any(|ours| **ours == *name)
    }
}

fn remove(table: &mut Table, number: Number, events: &mut Vec<Event>) {
    let standing = table.get(number).map(|entry| entry.standing());
    let removed = table.take(number).zip(standing);
    events.extend(removed.and_then(|(uid, standing)| removal(uid, standing)));
}

fn removal(uid: Uid, standing: Standing) -> Option<Event> {
    match standing {
        Standing::Placed => Some(Event::RemovePod { uid, node: None }),
        // A cycle that was in flight may have assumed a pod that is ending.
        Standing::Pending | Standing::Ending => Some(Event::RemovePending(uid)),
        Standing::Foreign => None,
    }
}
