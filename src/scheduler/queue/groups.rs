//! Keeps the pods of a group together: they are popped at once, returned at once, and wait for each other.
//!
//! The queue counts the pods of each group that has a pod in the queue, both here and on nodes, and reports the counts
//! to the plugin that gates the pods ([`PodGroups`](crate::framework::PodGroups)). When a group becomes complete, for
//! whatever reason, its gated pods are checked again. A group is popped as a whole, so no other thread can hold a part
//! of it: a pod that arrives while other pods of its group are in flight is gated until they return. Pods that fail
//! together back off together, for a time that grows with the failures of their group, in the error backoff queue, from
//! which no pod is popped early.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::framework::{Actions, EventResource, GroupStatus, Hold, PluginSet, QueuedPod};
use crate::model::{Name, Pod, PodGroup, PodGroupState, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::backoff::nanoseconds;
use super::figures::Cause;
use super::heap::Slot;
use super::moves::Strategy;
use super::pods::Membership;
use super::{Place, SchedulingQueue};

/// A popped pod with the siblings of its group that were popped with it.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped {
    /// The pod that was first in the queue.
    pub first: QueuedPod,
    /// The pods that must be placed together with it. Empty if the pod has no group, or if its group has enough pods on
    /// nodes.
    pub siblings: Vec<QueuedPod>,
}

impl Popped {
    /// Returns all pods in the order in which they must be tried: by priority, and then by the time of their first
    /// attempt (1.36).
    #[doc(hidden)]
    pub fn into_members(self) -> Vec<QueuedPod> {
        let mut members = self.siblings;
        members.insert(0, self.first);
        members.sort_by_key(|member| {
            (std::cmp::Reverse(member.pod.template.priority), member.first_attempt)
        });
        members
    }
}

/// A pod that returns with its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Returned {
    /// The pod.
    pub uid: Uid,
    /// The plugins that rejected the pod; empty if only its group failed.
    pub unschedulable: PluginSet,
    /// The plugins that wait for something.
    pub pending: PluginSet,
}

/// The status of a pod group in a queue.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGroupStatus {
    /// The group's state.
    pub state: PodGroupState,
    /// How many of the group's pods must be placed at once.
    pub min_members: u32,
    /// How many pods are on nodes, including assumed pods.
    pub placed: usize,
    /// How many pods wait in the queue.
    pub waiting: usize,
    /// How many pods are in flight.
    pub in_flight: usize,
    /// Since when the group has been tried, by the queue's clock. `None` until the group and one of its pods are known,
    /// and once the group needs no more pods.
    pub since: Option<Timestamp>,
    /// When a group that timed out is tried again if nothing about it changes.
    pub held_until: Option<Timestamp>,
}

/// All groups that have pods in the queue.
#[derive(Default)]
pub(super) struct Groups {
    groups: Vec<Option<Group>>,
    free: Vec<u32>,
    ids: HashMap<Name, HashMap<Name, u32>>,
    /// Groups whose gated pods must be checked again, and the cause.
    dirty: Vec<(u32, Cause)>,
    /// When groups that timed out are tried again.
    retries: BTreeSet<(Timestamp, u32)>,
}

struct Group {
    namespace: Name,
    name: Name,
    members: Vec<Slot>,
    waiting: usize,
    in_flight: usize,
    /// The arrival of the group's first pod, which is the rank of all of its pods.
    first: Timestamp,
    since: Option<Timestamp>,
    /// The number of consecutive failed attempts.
    failures: u32,
    held_until: Option<Timestamp>,
    object: Option<Arc<PodGroup>>,
    placed: usize,
    /// How many of the placed pods are not in the queue.
    elsewhere: usize,
    /// The status last reported to the plugin.
    reported: GroupStatus,
}

impl Group {
    fn new(namespace: &Name, name: &Name, first: Timestamp) -> Group {
        Group {
            namespace: namespace.clone(),
            name: name.clone(),
            members: Vec::new(),
            waiting: 0,
            in_flight: 0,
            first,
            since: None,
            failures: 0,
            held_until: None,
            object: None,
            placed: 0,
            elsewhere: 0,
            reported: GroupStatus::default(),
        }
    }

    /// Returns how many more of its pods must be placed together.
    fn lacking(&self) -> usize {
        self.object.as_ref().map_or(0, |group| group.lacking(self.placed))
    }

    fn status(&self) -> GroupStatus {
        let object = self.object.as_ref();
        // A group that lacks no pod does not wait for its pods in flight.
        let is_tried = self.in_flight > 0 && self.lacking() > 0;
        let in_flight = is_tried.then_some(Hold::InFlight);
        let timeout = object.and_then(|group| group.schedule_timeout);
        let timed_out = self.held_until.and(timeout).map(Hold::TimedOut);
        // The object's phase reports the timeout, and only a new phase ends it.
        let over = object.filter(|group| group.state(self.placed) == PodGroupState::Timeout);
        let is_over = over.map(|group| Hold::TimedOut(group.permit_timeout()));
        let timed_out = is_over.or(timed_out);
        GroupStatus {
            wanted: object.map(|group| group.wanted()),
            members: self.members.len() + self.elsewhere,
            hold: timed_out.or(in_flight),
        }
    }

    /// Returns when the group's schedule timeout passes.
    fn deadline(&self) -> Option<Timestamp> {
        let timeout = self.object.as_ref()?.schedule_timeout?;
        Some(Timestamp(self.since?.0.saturating_add(nanoseconds(timeout))))
    }
}

fn is_waiting(place: Place) -> bool {
    Place::QUEUES.contains(&place)
}

impl Groups {
    fn find(&self, namespace: &str, name: &str) -> Option<u32> {
        self.ids.get(namespace)?.get(name).copied()
    }

    fn get(&self, id: u32) -> Option<&Group> {
        self.groups.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut Group> {
        self.groups.get_mut(id as usize)?.as_mut()
    }

    fn find_or_make(&mut self, namespace: &Name, name: &Name, now: Timestamp) -> u32 {
        if let Some(known) = self.find(namespace, name) {
            return known;
        }
        let group = Some(Group::new(namespace, name, now));
        let id = match self.free.pop() {
            Some(id) => {
                self.groups[id as usize] = group;
                id
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        };
        self.ids.entry(namespace.clone()).or_default().insert(name.clone(), id);
        id
    }

    fn remove(&mut self, id: u32) -> Option<Group> {
        let group = self.groups.get_mut(id as usize)?.take()?;
        if let Some(ids) = self.ids.get_mut(&group.namespace) {
            ids.remove(&group.name);
            if ids.is_empty() {
                self.ids.remove(&group.namespace);
            }
        }
        if let Some(until) = group.held_until {
            self.retries.remove(&(until, id));
        }
        self.dirty.retain(|(dirty, _)| *dirty != id);
        self.free.push(id);
        Some(group)
    }

    fn mark_dirty(&mut self, id: u32, cause: Cause) {
        if !self.dirty.iter().any(|(known, _)| *known == id) {
            self.dirty.push((id, cause));
        }
    }

    /// Returns when the next group that timed out is tried again.
    pub(super) fn next_retry(&self) -> Option<Timestamp> {
        self.retries.first().map(|(at, _)| *at)
    }
}

/// The event by which the other pods of a group learn that one of its pods has changed.
const POD_CHANGED: Cause = Cause::Event(EventResource::UnscheduledPod, Actions::ADD);

impl SchedulingQueue {
    /// Returns the status of a pod group in the version `cluster`. O(pods of the group).
    #[must_use]
    pub(crate) fn group_status(
        &self,
        namespace: &str,
        name: &str,
        cluster: &Cluster,
        now: Timestamp,
    ) -> PodGroupStatus {
        let group = self.groups.find(namespace, name).and_then(|id| self.groups.get(id));
        let object = cluster.objects().pod_groups.get(namespace, name);
        let held_until = group.and_then(|group| group.held_until);
        let is_late = || {
            let deadline = group.and_then(Group::deadline);
            held_until.is_some() || deadline.is_some_and(|deadline| deadline <= now)
        };
        let state = match cluster.group_state(namespace, name) {
            PodGroupState::Pending if is_late() => PodGroupState::Timeout,
            state => state,
        };
        PodGroupStatus {
            state,
            min_members: object.map_or(0, |group| group.min_members),
            placed: cluster.placed_members(namespace, name),
            waiting: group.map_or(0, |group| group.waiting),
            in_flight: group.map_or(0, |group| group.in_flight),
            since: group.and_then(|group| group.since),
            held_until,
        }
    }

    /// Pops the pod to be tried next and, as long as its group lacks pods on nodes, all pods of the group that can be
    /// tried. All of them are in flight afterwards and must be returned like other popped pods. If the group as a whole
    /// failed, they must be returned at once by `SchedulingQueue::return_group`. O((1 + siblings) log n).
    pub(crate) fn pop_together(&mut self, now: Timestamp) -> Option<Popped> {
        self.update_groups(now);
        loop {
            let slot = self.take_first()?;
            let group =
                self.pods.get(slot).and_then(|entry| entry.member).map(|member| member.group);
            // The group may have lost a pod or timed out since the pod was checked.
            let is_closed = |id| self.groups.get(id).is_some_and(|group| !group.status().is_open());
            if group.is_some_and(is_closed) && self.run_gates(slot) {
                self.settle(slot, Place::Gated, Cause::Activate);
                continue;
            }
            let wants_more = |id| self.groups.get(id).filter(|group| group.lacking() > 0);
            let siblings = group.and_then(wants_more).map(|group| group.members.clone());
            let mut siblings = siblings.unwrap_or_default();
            siblings.retain(|sibling| *sibling != slot && self.can_be_tried(*sibling));
            let first = self.start_flight(slot, now)?;
            let siblings = siblings.into_iter().filter_map(|sibling| {
                self.leave(sibling);
                self.start_flight(sibling, now)
            });
            return Some(Popped { first, siblings: siblings.collect() });
        }
    }

    /// Returns whether a pod waits and no plugin gates it. A pod that is not active is checked again, and gated if a
    /// plugin rejects it.
    fn can_be_tried(&mut self, slot: Slot) -> bool {
        let Some(place) = self.pods.get(slot).map(|entry| entry.place) else { return false };
        match place {
            Place::Active => true,
            place if !is_waiting(place) => false,
            place => {
                let is_gated = self.run_gates(slot);
                if is_gated && place != Place::Gated {
                    self.leave(slot);
                    self.settle(slot, Place::Gated, Cause::Activate);
                }
                !is_gated
            }
        }
    }

    /// Returns the pods of a group that was not placed, all at once. They back off for a time that grows with each
    /// failure of the group, whatever events occur (1.36). If the group's schedule timeout has passed, they are gated
    /// until something about the group changes or [`QueueConfig::group_retry`](super::QueueConfig::group_retry) has
    /// passed. Returns the place of each pod, or `None` for a pod that was deleted meanwhile or is not in flight.
    /// O(pods of the group × log n).
    pub(crate) fn return_group(
        &mut self,
        returned: &[Returned],
        cluster: &Cluster,
        now: Timestamp,
    ) -> Vec<Option<Place>> {
        let slots: Vec<Option<Slot>> =
            returned.iter().map(|member| self.end_flight(member, now)).collect();
        let failed: BTreeSet<u32> =
            slots.iter().flatten().filter_map(|s| self.group_of(*s)).collect();
        for id in failed {
            self.group_failed(id, cluster, now);
        }
        let places = slots.into_iter().map(|slot| {
            let slot = slot?;
            let failures =
                self.group_of(slot).and_then(|id| self.groups.get(id)).map(|g| g.failures);
            let entry = self.pods.get_mut(slot)?;
            entry.queued.group_failures = failures.unwrap_or_default();
            let place = match self.run_gates(slot) {
                true => self.settle(slot, Place::Gated, Cause::AttemptFailure),
                false => self.requeue(slot, Strategy::AfterBackoff, Cause::AttemptFailure, now),
            };
            Some(place)
        });
        let places = places.collect();
        self.update_groups(now);
        places
    }

    fn group_of(&self, slot: Slot) -> Option<u32> {
        self.pods.get(slot)?.member.map(|member| member.group)
    }

    /// Ends the flight of a pod that is about to enter another place.
    fn end_flight(&mut self, member: &Returned, now: Timestamp) -> Option<Slot> {
        let slot = self.pods.find(&member.uid)?;
        let arrival = self.arrival();
        let entry = self.pods.get_mut(slot)?;
        if !matches!(entry.place, Place::InFlight | Place::Binding) {
            return None;
        }
        if entry.deleted {
            self.done(&member.uid);
            return None;
        }
        let queued = &mut entry.queued;
        queued.failed(member.unschedulable, member.pending, now);
        entry.arrival = arrival;
        self.leave(slot);
        Some(slot)
    }

    fn group_failed(&mut self, id: u32, cluster: &Cluster, now: Timestamp) {
        let retry = Timestamp(now.0.saturating_add(nanoseconds(self.config.group_retry)));
        self.count_group(id, cluster, now);
        let Some(group) = self.groups.get_mut(id) else { return };
        group.failures = group.failures.saturating_add(1);
        let is_late = group.deadline().is_some_and(|deadline| deadline <= now);
        if is_late && group.lacking() > 0 && group.held_until.is_none() {
            group.held_until = Some(retry);
            self.groups.retries.insert((retry, id));
        }
        self.report(id, Cause::AttemptFailure);
    }

    /// Adds a pod that is new to the queue to its group, if its profile schedules groups.
    pub(super) fn join_group(&mut self, slot: Slot, now: Timestamp) {
        let Some(entry) = self.pods.get(slot) else { return };
        if !self.profiles[entry.profile].has_groups {
            return;
        }
        let Some((namespace, name)) = entry.queued.pod.group() else { return };
        let id = self.groups.find_or_make(&namespace.clone(), &name.clone(), now);
        let Some(group) = self.groups.get_mut(id) else { return };
        let at = group.members.len() as u32;
        group.members.push(slot);
        let first = group.first;
        if let Some(entry) = self.pods.get_mut(slot) {
            entry.member = Some(Membership { group: id, at });
            entry.queued.group_first = Some(first);
        }
    }

    /// Removes a pod that is in no place any more from its group. `is_placed` is `true` if the pod is on a node.
    pub(super) fn leave_group(&mut self, slot: Slot, is_placed: bool) {
        let Some(entry) = self.pods.get_mut(slot) else { return };
        entry.queued.group_first = None;
        let Some(Membership { group: id, at }) = entry.member.take() else { return };
        let Some(group) = self.groups.get_mut(id) else { return };
        group.members.swap_remove(at as usize);
        group.elsewhere += usize::from(is_placed);
        let moved = group.members.get(at as usize).copied();
        if group.members.is_empty() {
            if let Some(group) = self.groups.remove(id) {
                self.pod_groups().remove(&group.namespace, &group.name);
            }
            return;
        }
        let moved = moved.and_then(|moved| self.pods.get_mut(moved));
        if let Some(member) = moved.and_then(|entry| entry.member.as_mut()) {
            member.at = at;
        }
        self.report(id, POD_CHANGED);
    }

    /// Counts a pod that enters (`by` 1) or leaves (`by` -1) a place.
    pub(super) fn count_place(&mut self, slot: Slot, place: Place, by: isize) {
        let Some(id) = self.group_of(slot) else { return };
        let Some(group) = self.groups.get_mut(id) else { return };
        match place {
            Place::InFlight => group.in_flight = group.in_flight.wrapping_add_signed(by),
            Place::Binding => {}
            _ => group.waiting = group.waiting.wrapping_add_signed(by),
        }
        if place == Place::InFlight {
            self.report(id, POD_CHANGED);
        }
    }

    /// Reports a changed group status to the plugin. If the group's pods may be queued now and could not before, its
    /// gated pods are marked to be checked again.
    fn report(&mut self, id: u32, cause: Cause) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let status = group.status();
        let before = std::mem::replace(&mut group.reported, status);
        if before == status {
            return;
        }
        let (namespace, name) = (group.namespace.clone(), group.name.clone());
        self.pod_groups().set(&namespace, &name, status);
        if status.is_open() && !before.is_open() {
            self.groups.mark_dirty(id, cause);
        }
    }

    /// Recounts the pods of a group in a version. O(pods of the group that are in flight or binding).
    fn count_group(&mut self, id: u32, cluster: &Cluster, now: Timestamp) {
        let Some(group) = self.groups.get(id) else { return };
        let (namespace, name) = (&group.namespace, &group.name);
        let object = cluster.objects().pod_groups.get(namespace, name).cloned();
        let placed = cluster.placed_members(namespace, name);
        let on_the_way = group.members.len() - group.waiting;
        // Assumed pods of the queue are counted both here and on nodes.
        let is_placed = |slot: &&Slot| {
            let entry = self.pods.get(**slot).filter(|entry| !is_waiting(entry.place));
            entry.is_some_and(|entry| cluster.pod(&entry.queued.pod.uid).is_some())
        };
        let both = match on_the_way.min(placed) {
            0 => 0,
            _ => group.members.iter().filter(is_placed).count(),
        };
        let Some(group) = self.groups.get_mut(id) else { return };
        group.object = object;
        group.placed = placed;
        group.elsewhere = placed - both;
        group.since = match group.lacking() > 0 {
            true => group.since.or(Some(now)),
            false => None,
        };
        if group.since.is_none() {
            group.failures = 0;
        }
    }

    /// Recounts the group of a pod, and reports its status to the plugin.
    pub(super) fn recount(&mut self, slot: Slot, cluster: &Cluster, now: Timestamp) {
        if let Some(id) = self.group_of(slot) {
            self.count_group(id, cluster, now);
            self.report(id, POD_CHANGED);
        }
    }

    /// Recounts a group after an event changed it, and lets it be tried again if it had timed out. Does nothing if no
    /// pod of the group is in the queue.
    pub(super) fn group_changed(
        &mut self,
        (namespace, name): (&str, &str),
        cause: Cause,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        let Some(id) = self.groups.find(namespace, name) else { return };
        self.count_group(id, cluster, now);
        self.resume(id, now);
        self.report(id, cause);
        self.update_groups(now);
    }

    /// Like [`SchedulingQueue::group_changed`], for the group of a pod.
    pub(super) fn pod_changed(&mut self, pod: &Pod, cluster: &Cluster, now: Timestamp) {
        if let Some((namespace, name)) = pod.group() {
            self.group_changed((namespace, name), POD_CHANGED, cluster, now);
        }
    }

    /// Ends the hold of a group that timed out, and restarts its timeout.
    fn resume(&mut self, id: u32, now: Timestamp) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if let Some(until) = group.held_until.take() {
            group.since = group.since.and(Some(now));
            group.failures = 0;
            self.groups.retries.remove(&(until, id));
        }
    }

    /// Does the pending work on groups: resumes those whose hold has ended, activates the pods of groups for which
    /// plugins requested it, and checks gated pods of changed groups again. O(1) if there is no such work.
    pub(super) fn update_groups(&mut self, now: Timestamp) {
        if !self.has_groups {
            return;
        }
        while let Some((at, id)) = self.groups.retries.first().copied()
            && at <= now
        {
            self.resume(id, now);
            self.report(id, Cause::Timeout);
        }
        for (namespace, name) in self.pod_groups().take_called() {
            if let Some(id) = self.groups.find(&namespace, &name) {
                self.activate_group(id, now);
            }
        }
        while let Some((id, cause)) = self.groups.dirty.pop() {
            let members = self.groups.get(id).map(|group| group.members.clone());
            for slot in members.unwrap_or_default() {
                let Some(entry) = self.pods.get(slot) else { continue };
                let gates = self.profiles[entry.profile].group_gates;
                let is_theirs = !entry.queued.gating_plugin.intersection(gates).is_empty();
                if entry.place == Place::Gated && is_theirs {
                    self.leave(slot);
                    self.requeue(slot, Strategy::AfterBackoff, cause, now);
                }
            }
        }
    }

    fn activate_group(&mut self, id: u32, now: Timestamp) {
        let members = self.groups.get(id).map(|group| group.members.clone());
        for slot in members.unwrap_or_default() {
            let Some(entry) = self.pods.get(slot) else { continue };
            if is_waiting(entry.place) && entry.place != Place::Active {
                let uid = entry.queued.pod.uid.clone();
                self.activate(&uid, now);
            }
        }
    }

    /// Returns whether [`SchedulingQueue::update_groups`] has gated pods to check again.
    pub(super) fn has_dirty_groups(&self) -> bool {
        !self.groups.dirty.is_empty()
    }
}
