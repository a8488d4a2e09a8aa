//! The operations on pods: add, update, delete, pop and return.

use std::sync::Arc;

use crate::framework::{ClusterEvent, Nomination, PluginSet, QueuedPod};
use crate::model::{Change, Diff, Generation, Name, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::feed::is_nominated;
use super::figures::Cause;
use super::heap::Slot;
use super::in_flight::QueueEvent;
use super::moves::Strategy;
use super::pods::{Entry, NONE, hash};
use super::{Place, QueueError, SchedulingQueue};

impl SchedulingQueue {
    /// Adds a pod that is on no node, by the event of this generation. If the pod is known, updates it. O(log n).
    ///
    /// # Errors
    ///
    /// The pod has no uid, or belongs to another scheduler or scheduler instance.
    #[doc(hidden)]
    pub fn add(
        &mut self,
        pod: Pod,
        generation: Generation,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<Place, QueueError> {
        self.put(pod, generation, cluster, now, Cause::PodAdd)
    }

    /// Updates a pod that is on no node, or adds it if it is not known. A pod in a heap moves to the position of its
    /// new rank. An unschedulable pod is requeued if a plugin that rejected it reports that the change may help. For a
    /// pod in flight this is decided when it returns.
    ///
    /// # Errors
    ///
    /// The pod has no uid, or belongs to another scheduler or scheduler instance.
    #[doc(hidden)]
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
        let slot = self.insert(QueuedPod::new(pod.clone(), now, generation), hash, profile);
        self.join_group(slot, now);
        // The pod may complete its group.
        self.pod_changed(&pod, cluster, now);
        Ok(self.make_active(slot, cause, now))
    }

    fn insert(&mut self, queued: QueuedPod, hash: u64, profile: usize) -> Slot {
        let arrival = self.arrival();
        self.pods.insert(Entry {
            queued,
            // A placeholder until the pod enters a place.
            place: Place::Active,
            hash,
            profile,
            arrival,
            joined: 0,
            since: 0,
            before: NONE,
            after: NONE,
            deleted: false,
            on_node: false,
            is_nomination_unconfirmed: false,
            member: None,
        })
    }

    fn replace(
        &mut self,
        slot: Slot,
        mut pod: Pod,
        profile: usize,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Place {
        let kept = self.nominator().remove(&pod.uid);
        let Some(entry) = self.pods.get_mut(slot) else { return Place::Active };
        let place = entry.place;
        // An object without a nomination may be older than the nomination that an attempt recorded. A preemptor of
        // higher priority, or an assumption, may have withdrawn that nomination from the nominator since.
        entry.is_nomination_unconfirmed &=
            !is_nominated(&pod) && is_nominated(&entry.queued.pod) && kept.is_some();
        if entry.is_nomination_unconfirmed {
            pod.nominated_node_name.clone_from(&kept);
        }
        (entry.deleted, entry.on_node) = (false, false);
        if std::mem::replace(&mut entry.profile, profile) != profile {
            // The rejections by plugins of the old profile no longer apply.
            let queued = &mut entry.queued;
            queued.unschedulable_plugins = PluginSet::EMPTY;
            queued.pending_plugins = PluginSet::EMPTY;
            queued.gating_plugin = PluginSet::EMPTY;
        }
        let new = Arc::new(pod.clone());
        let old = std::mem::replace(&mut entry.queued.pod, pod);
        self.renominate(kept, &old, &new);
        if old.group() != new.group() {
            self.count_place(slot, place, -1);
            self.leave_group(slot, false);
            self.join_group(slot, now);
            self.count_place(slot, place, 1);
        }
        self.pod_changed(&new, cluster, now);
        // The update may have completed the pod's group and moved the pod.
        let place = self.pods.get(slot).map_or(place, |entry| entry.place);
        let change = Change::Pod(Diff { old: Some(Arc::new(old)), new: Some(new) });
        match place {
            Place::Active | Place::Backoff | Place::ErrorBackoff => {
                // The pod is entered again to apply its new rank. `leave` finds it by its position, not by its key.
                self.leave(slot);
                self.enter(slot, place);
            }
            Place::InFlight => {
                for event in ClusterEvent::of(&change) {
                    self.note_in_flight(now, || QueueEvent::of(&event));
                }
            }
            Place::Binding => {}
            Place::Unschedulable | Place::Gated => {
                for event in ClusterEvent::of(&change) {
                    let strategy = self.strategy_for(slot, &event, cluster);
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

    /// Removes a pod that was deleted or is on a node. A pod in flight is removed when it returns. Returns the pod's
    /// last object. O(log n).
    #[doc(hidden)]
    pub fn delete(&mut self, uid: &Uid) -> Option<Pod> {
        self.end(uid, false)
    }

    /// Like [`SchedulingQueue::delete`], for a caller that knows whether the pod is on a node.
    pub(super) fn end(&mut self, uid: &Uid, on_node: bool) -> Option<Pod> {
        self.nominator().remove(uid);
        let slot = self.pods.find(uid)?;
        let entry = self.pods.get_mut(slot)?;
        if matches!(entry.place, Place::InFlight | Place::Binding) {
            entry.on_node = on_node;
            let known = !std::mem::replace(&mut entry.deleted, true);
            return known.then(|| entry.queued.pod.clone());
        }
        self.leave(slot);
        self.leave_group(slot, on_node);
        self.pods.remove(slot).map(|entry| entry.queued.pod)
    }

    /// Pops the pod to be tried next and marks it as in flight, or returns `None` if no pod is ready. The caller must
    /// return the pod by [`SchedulingQueue::done`] or [`SchedulingQueue::add_unschedulable_if_not_present`], and must
    /// decide on a version that contains the pod's [`generation`](QueuedPod::generation). O(log n), without allocation.
    #[doc(hidden)]
    pub fn pop(&mut self, now: Timestamp) -> Option<QueuedPod> {
        self.update_groups(now);
        let slot = self.take_first()?;
        self.start_flight(slot, now)
    }

    /// Marks a pod that is in no place as in flight, and counts the attempt.
    pub(super) fn start_flight(&mut self, slot: Slot, now: Timestamp) -> Option<QueuedPod> {
        self.enter(slot, Place::InFlight);
        let queued = &mut self.pods.get_mut(slot)?.queued;
        queued.attempts = queued.attempts.saturating_add(1);
        queued.backoff_expiration = None;
        queued.group_failures = 0;
        queued.first_attempt.get_or_insert(now);
        Some(queued.clone())
    }

    /// Marks a popped pod as binding: events are no longer recorded for it (kube-scheduler's `Done` before PreBind).
    /// The pod must still be returned, and backs off if its binding fails.
    #[doc(hidden)]
    pub fn release(&mut self, uid: &Uid) {
        if let Some(slot) = self.pods.find(uid)
            && self.pods.get(slot).is_some_and(|entry| entry.place == Place::InFlight)
        {
            self.leave(slot);
            self.enter(slot, Place::Binding);
        }
    }

    /// Removes a popped pod that needs no retry. Does nothing for any other pod.
    #[doc(hidden)]
    pub fn done(&mut self, uid: &Uid) {
        if let Some(slot) = self.pods.find(uid)
            && let Some(entry) = self.pods.get(slot)
            && matches!(entry.place, Place::InFlight | Place::Binding)
        {
            // A pod that is done and was not deleted is on a node.
            let is_placed = !entry.deleted || entry.on_node;
            self.leave(slot);
            self.leave_group(slot, is_placed);
            self.pods.remove(slot);
        }
    }

    /// Returns a popped pod to the queue after a failed attempt, with the plugins that rejected it and those that wait
    /// for something. Both sets are empty after an error. The pod waits for an event that may help, or backs off if
    /// such an event occurred during the attempt. Returns `None` if the pod was deleted meanwhile. O(events since the
    /// pop + log n).
    ///
    /// # Errors
    ///
    /// The pod was not popped, or is not known.
    #[doc(hidden)]
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
            // Events are not recorded for a pod that is binding.
            Place::Binding => Strategy::AfterBackoff,
            _ => self.strategy_since(slot, since, cluster, now),
        };
        self.leave(slot);
        self.recount(slot, cluster, now);
        Ok(Some(self.requeue(slot, strategy, Cause::AttemptFailure, now)))
    }

    /// Requests an attempt for a pod. An unschedulable pod or one in backoff becomes active unless a PreEnqueue plugin
    /// gates it. A pod in flight is treated on its return as if an event had helped. Returns whether the pod became
    /// active.
    #[doc(hidden)]
    pub fn activate(&mut self, uid: &Uid, now: Timestamp) -> bool {
        let Some(slot) = self.pods.find(uid) else { return false };
        match self.pods.get(slot).map(|entry| entry.place) {
            Some(Place::Backoff | Place::ErrorBackoff | Place::Unschedulable | Place::Gated) => {
                self.leave(slot);
                self.make_active(slot, Cause::Activate, now) == Place::Active
            }
            Some(Place::InFlight) => {
                self.note_in_flight(now, || QueueEvent::Activated(uid.clone()));
                false
            }
            _ => false,
        }
    }

    /// Nominates a pod to a node, or clears its nomination (`AddNominatedPod`). The nominated node reserves resources
    /// for the pod. Does nothing for a deleted pod.
    #[doc(hidden)]
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

    /// Records the nomination that a failed attempt made or cleared, before the API server's object shows it. A node
    /// stays until an object of the pod names a node.
    pub(crate) fn record_nomination(&mut self, uid: &Uid, node: Option<Name>) {
        let Some(slot) = self.pods.find(uid) else { return };
        let Some(entry) = self.pods.get_mut(slot).filter(|entry| !entry.deleted) else { return };
        let pod = &mut entry.queued.pod;
        if pod.nominated_node_name == node {
            return;
        }
        entry.is_nomination_unconfirmed = true;
        let old = pod.clone();
        pod.nominated_node_name = node;
        let new = pod.clone();
        let kept = self.nominator().remove(uid);
        self.renominate(kept, &old, &new);
        if is_nominated(&old) {
            self.plan_release(old);
        }
    }

    /// Updates a pod's nomination after an update of its object. The node that the new object names is used. If neither
    /// object names a node, the existing nomination, which the caller has removed, stays.
    fn renominate(&self, kept: Option<Name>, old: &Pod, new: &Pod) {
        let named = |pod: &Pod| pod.nominated_node_name.clone().filter(|node| !node.is_empty());
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
