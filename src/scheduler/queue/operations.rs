//! What callers do with pods: add, update, delete, pop, and bring back.

use std::sync::Arc;

use crate::framework::{ClusterEvent, Nomination, PluginSet, QueuedPod};
use crate::model::{Change, Diff, Generation, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::figures::Cause;
use super::heap::Slot;
use super::in_flight::Happening;
use super::moves::Strategy;
use super::pods::{Entry, NONE, hash};
use super::{Place, QueueError, SchedulingQueue};

impl SchedulingQueue {
    /// A pod that is on no node appears, by the event of this generation. One that is
    /// known is updated. O(log n).
    ///
    /// # Errors
    ///
    /// The pod has no uid, or belongs to another scheduler, workflow or scheduler instance.
    pub fn add(
        &mut self,
        pod: Pod,
        generation: Generation,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<Place, QueueError> {
        self.put(pod, generation, cluster, now, Cause::PodAdd)
    }

    /// A pod that is on no node changes. In a heap it takes the place that it has now,
    /// in the pool it is tried again if its rejectors say that what changed may help,
    /// and in flight that question is left until it comes back. One that is not known
    /// is added.
    ///
    /// # Errors
    ///
    /// The pod has no uid, or belongs to another scheduler, workflow or scheduler instance.
    pub fn update(
        &mut self,
        pod: Pod,
        generation: Generation,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<Place, QueueError> {
        self.put(pod, generation, cluster, now, Cause::PodUpdate)
    }

    fn put(
        &mut self,
        pod: Pod,
        generation: Generation,
        cluster: &Cluster,
        now: Timestamp,
        cause: Cause,
    ) -> Result<Place, QueueError> {
        if pod.uid.is_empty() {
            return Err(QueueError::EmptyUid { name: pod.name });
        }
        let Some(profile) = self.profile_of(&pod) else {
            let scheduler = pod.template.scheduler_name.clone().unwrap_or_default();
            return Err(QueueError::OtherScheduler { uid: pod.uid, scheduler });
        };
        if self.is_elsewhere(&pod) {
            return Err(QueueError::OtherWorkflow { uid: pod.uid });
        }
        if let Some(component) = self.not_dispatched(&pod, cluster).cloned() {
            return Err(QueueError::NotDispatched { uid: pod.uid, component });
        }
        self.generation = self.generation.max(generation);
        let hash = hash(&pod.uid);
        if let Some(slot) = self.pods.find_hashed(&pod.uid, hash) {
            return Ok(self.replace(slot, pod, profile, cluster, now));
        }
        let node = pod.nominated_node_name.clone();
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            self.nominator().add(pod.clone(), node);
        }
        let slot = self.keep(QueuedPod::new(pod.clone(), now, generation), hash, profile);
        self.join(slot, now);
        // It may be the one that its group lacked.
        self.pod_changed(&pod, cluster, now);
        Ok(self.make_active(slot, cause, now))
    }

    fn keep(&mut self, queued: QueuedPod, hash: u64, profile: usize) -> Slot {
        let arrival = self.arrival();
        self.pods.insert(Entry {
            queued,
            // It is nowhere until it is put somewhere.
            place: Place::Active,
            hash,
            profile,
            arrival,
            joined: 0,
            since: 0,
            before: NONE,
            after: NONE,
            deleted: false,
            landed: false,
            member: None,
        })
    }

    fn replace(
        &mut self,
        slot: Slot,
        pod: Pod,
        profile: usize,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Place {
        let Some(entry) = self.pods.get_mut(slot) else { return Place::Active };
        let place = entry.place;
        (entry.deleted, entry.landed) = (false, false);
        if std::mem::replace(&mut entry.profile, profile) != profile {
            // Whoever rejected it has no say any more.
            let queued = &mut entry.queued;
            queued.unschedulable_plugins = PluginSet::EMPTY;
            queued.pending_plugins = PluginSet::EMPTY;
            queued.gating_plugin = PluginSet::EMPTY;
        }
        let new = Arc::new(pod.clone());
        let old = std::mem::replace(&mut entry.queued.pod, pod);
        self.renominate(&old, &new);
        if old.group() != new.group() {
            self.count_place(slot, place, -1);
            self.part(slot, false);
            self.join(slot, now);
            self.count_place(slot, place, 1);
        }
        self.pod_changed(&new, cluster, now);
        // Its group may have become complete by it.
        let place = self.pods.get(slot).map_or(place, |entry| entry.place);
        let change = Change::Pod(Diff { old: Some(Arc::new(old)), new: Some(new) });
        match place {
            Place::Active | Place::Backoff | Place::ErrorBackoff => {
                // With its own rank: `leave` goes by where it stands, not by its key.
                self.leave(slot);
                self.enter(slot, place);
            }
            Place::InFlight => {
                for event in ClusterEvent::of(&change) {
                    self.in_flight.note(|| Happening::of(&event));
                }
            }
            Place::Binding => {}
            Place::Unschedulable | Place::Gated => {
                for event in ClusterEvent::of(&change) {
                    let strategy = self.worth(slot, &event, cluster);
                    if strategy != Strategy::Skip {
                        self.leave(slot);
                        let cause = Cause::Event(event.resource, event.action);
                        let place = self.requeue(slot, strategy, cause, now);
                        if !matches!(place, Place::Unschedulable | Place::Gated) {
                            return place;
                        }
                    }
                }
            }
        }
        self.pods.get(slot).map_or(place, |entry| entry.place)
    }

    /// A pod is gone, or is on a node: it is not tried any more. One in flight is
    /// forgotten when it comes back. Says what was known of it. O(log n).
    pub fn delete(&mut self, uid: &Uid) -> Option<Pod> {
        self.end(uid, false)
    }

    /// The same, where it is known whether the pod is on a node.
    pub(super) fn end(&mut self, uid: &Uid, landed: bool) -> Option<Pod> {
        self.nominator().remove(uid);
        let slot = self.pods.find(uid)?;
        let entry = self.pods.get_mut(slot)?;
        if matches!(entry.place, Place::InFlight | Place::Binding) {
            entry.landed = landed;
            let known = !std::mem::replace(&mut entry.deleted, true);
            return known.then(|| entry.queued.pod.clone());
        }
        self.leave(slot);
        self.part(slot, landed);
        self.pods.remove(slot).map(|entry| entry.queued.pod)
    }

    /// The pod to be tried next, in flight from now on: it is to be given back by
    /// [`SchedulingQueue::done`] or
    /// [`SchedulingQueue::add_unschedulable_if_not_present`]. None where none is
    /// ready. It is to be decided on a version that contains its
    /// [`generation`](QueuedPod::generation). O(log n), and allocates nothing.
    pub fn pop(&mut self, now: Timestamp) -> Option<QueuedPod> {
        self.rally(now);
        let slot = self.take_first()?;
        self.fly(slot, now)
    }

    /// Puts a pod in flight that is nowhere.
    pub(super) fn fly(&mut self, slot: Slot, now: Timestamp) -> Option<QueuedPod> {
        self.enter(slot, Place::InFlight);
        let queued = &mut self.pods.get_mut(slot)?.queued;
        queued.attempts = queued.attempts.saturating_add(1);
        queued.backoff_expiration = None;
        queued.group_failures = 0;
        queued.first_attempt.get_or_insert(now);
        Some(queued.clone())
    }

    /// A popped pod is decided and on its way to its node: what happens does not
    /// concern it any more (kube-scheduler's `Done` before PreBind). It still is to be
    /// given back, and comes back with backoff if it fails.
    pub fn release(&mut self, uid: &Uid) {
        if let Some(slot) = self.pods.find(uid)
            && self.pods.get(slot).is_some_and(|entry| entry.place == Place::InFlight)
        {
            self.leave(slot);
            self.enter(slot, Place::Binding);
        }
    }

    /// A popped pod needs not to be tried again; nothing for any other pod.
    pub fn done(&mut self, uid: &Uid) {
        if let Some(slot) = self.pods.find(uid)
            && let Some(entry) = self.pods.get(slot)
            && matches!(entry.place, Place::InFlight | Place::Binding)
        {
            // What is done and was not deleted is on a node.
            let is_placed = !entry.deleted || entry.landed;
            self.leave(slot);
            self.part(slot, is_placed);
            self.pods.remove(slot);
        }
    }

    /// A popped pod comes back, rejected by these plugins and waiting for those, or
    /// without any because of an error. It waits for an event that may help, or goes
    /// to backoff if such an event happened while it was tried. None where the pod was
    /// deleted meanwhile. O(events since it was popped + log n).
    ///
    /// # Errors
    ///
    /// The pod was not popped, or is not known.
    pub fn add_unschedulable_if_not_present(
        &mut self,
        uid: &Uid,
        unschedulable: PluginSet,
        pending: PluginSet,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<Option<Place>, QueueError> {
        let not_found = || QueueError::NotFound { uid: uid.clone() };
        let slot = self.pods.find(uid).ok_or_else(not_found)?;
        let arrival = self.arrival();
        let entry = self.pods.get_mut(slot).ok_or_else(not_found)?;
        let place = entry.place;
        if !matches!(place, Place::InFlight | Place::Binding) {
            return Err(QueueError::AlreadyQueued { uid: uid.clone(), place });
        }
        if entry.deleted {
            self.done(uid);
            return Ok(None);
        }
        entry.queued.failed(unschedulable, pending, now);
        entry.arrival = arrival;
        let since = entry.since;
        let strategy = match place {
            // Nobody noted for it what happened.
            Place::Binding => Strategy::AfterBackoff,
            _ => self.worth_since(slot, since, cluster),
        };
        self.leave(slot);
        self.recount(slot, cluster, now);
        Ok(Some(self.requeue(slot, strategy, Cause::AttemptFailure, now)))
    }

    /// Somebody wants this pod to be tried: out of the pool or backoff it becomes
    /// active, unless a plugin keeps it; in flight it comes back as after an event that
    /// helps. Says whether it became active.
    pub fn activate(&mut self, uid: &Uid, now: Timestamp) -> bool {
        let Some(slot) = self.pods.find(uid) else { return false };
        match self.pods.get(slot).map(|entry| entry.place) {
            Some(Place::Backoff | Place::ErrorBackoff | Place::Unschedulable | Place::Gated) => {
                self.leave(slot);
                self.make_active(slot, Cause::Activate, now) == Place::Active
            }
            Some(Place::InFlight) => {
                self.in_flight.note(|| Happening::Activated(uid.clone()));
                false
            }
            _ => false,
        }
    }

    /// A pod is nominated to a node, or to none (`AddNominatedPod`): room is kept for it
    /// there. Nothing for one that is gone.
    pub fn nominate(&mut self, uid: &Uid, nomination: &Nomination) {
        let Some(slot) = self.pods.find(uid) else { return };
        let Some(entry) = self.pods.get(slot).filter(|entry| !entry.deleted) else { return };
        let pod = entry.queued.pod.clone();
        match nomination {
            Nomination::Keep => {
                let node = pod.nominated_node_name.clone();
                if let Some(node) = node.filter(|node| !node.is_empty()) {
                    self.nominator().add(pod, node);
                }
            }
            Nomination::Clear => drop(self.nominator().remove(uid)),
            Nomination::Node(node) => self.nominator().add(pod, node.clone()),
        }
    }

    /// Another object of a pod: it is nominated where that says so, and where neither
    /// the old nor the new one says anything, to the node that room is kept on already.
    fn renominate(&self, old: &Pod, new: &Pod) {
        let named = |pod: &Pod| pod.nominated_node_name.clone().filter(|node| !node.is_empty());
        let kept = self.nominator().remove(&new.uid);
        let node = match (named(old), named(new)) {
            (_, Some(node)) => Some(node),
            (None, None) => kept,
            (Some(_), None) => None,
        };
        if let Some(node) = node {
            self.nominator().add(new.clone(), node);
        }
    }
}
