//! Pods of a group stay together: they are handed out at once, come back at once,
//! and wait for each other.
//!
//! The queue counts the pods of each group that any of its pods is of, here and on
//! nodes, and tells the plugin that gates them ([`PodGroups`](crate::framework::PodGroups)).
//! That is asked again about the pods that it keeps when a group is complete, whoever
//! completed it. A group is handed out whole, so nobody else can hold a part of it:
//! a pod that comes while others of its group are being tried is kept until these are
//! back. What fails together backs off together, for as long as the group failed, in
//! the queue for errors, from which nothing is popped before its time.

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

/// A pod that was popped, and others of its group that were popped with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped {
    /// The pod whose turn it was.
    pub first: QueuedPod,
    /// The pods that are to be placed with it: empty for a pod of no group, and for one
    /// of a group that has as many pods on nodes as it wants.
    pub siblings: Vec<QueuedPod>,
}

impl Popped {
    /// All of them, in the order in which they are to be tried: by priority, and then
    /// by when each was first ready (1.36).
    pub fn into_members(self) -> Vec<QueuedPod> {
        let mut members = self.siblings;
        members.insert(0, self.first);
        members.sort_by_key(|member| {
            (std::cmp::Reverse(member.pod.template.priority), member.first_attempt)
        });
        members
    }
}

/// A pod that comes back with its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The pod.
    pub uid: Uid,
    /// The plugins that rejected it; none where only its group failed.
    pub unschedulable: PluginSet,
    /// The plugins that wait for something.
    pub pending: PluginSet,
}

/// How a pod group stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGroupStatus {
    /// Its state.
    pub state: PodGroupState,
    /// How many of its pods have to be placed at once.
    pub min_members: u32,
    /// How many are on nodes, the assumed ones included.
    pub placed: usize,
    /// How many wait in the queue.
    pub waiting: usize,
    /// How many are being tried.
    pub in_flight: usize,
    /// Since when it is tried, by the clock of the queue; none before the group and one
    /// of its pods are known, or where it wants no pod any more.
    pub since: Option<Timestamp>,
    /// Until when it is left alone after it timed out, if nothing of it changes.
    pub held_until: Option<Timestamp>,
}

/// All groups that pods of the queue are of.
#[derive(Default)]
pub(super) struct Groups {
    groups: Vec<Option<Group>>,
    free: Vec<u32>,
    ids: HashMap<Name, HashMap<Name, u32>>,
    /// Groups whose kept pods are to be asked about again, and why.
    stirred: Vec<(u32, Cause)>,
    /// When groups that timed out are tried again.
    retries: BTreeSet<(Timestamp, u32)>,
}

struct Group {
    namespace: Name,
    name: Name,
    members: Vec<Slot>,
    waiting: usize,
    in_flight: usize,
    /// When the first of its pods came: the rank of all of them.
    first: Timestamp,
    since: Option<Timestamp>,
    /// How often in a row it was tried in vain.
    failures: u32,
    held_until: Option<Timestamp>,
    object: Option<Arc<PodGroup>>,
    placed: usize,
    /// How many of the placed ones are not in the queue.
    elsewhere: usize,
    /// What the plugin knows.
    told: GroupStatus,
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
            told: GroupStatus::default(),
        }
    }

    /// How many more of its pods have to be placed at once.
    fn lacking(&self) -> usize {
        self.object.as_ref().map_or(0, |group| group.lacking(self.placed))
    }

    fn status(&self) -> GroupStatus {
        let object = self.object.as_ref();
        // A group that lacks no pod has nothing to wait for.
        let is_tried = self.in_flight > 0 && self.lacking() > 0;
        let in_flight = is_tried.then_some(Hold::InFlight);
        let timeout = object.and_then(|group| group.schedule_timeout);
        let timed_out = self.held_until.and(timeout).map(Hold::TimedOut);
        // Its phase says so: nothing but another phase changes that.
        let over = object.filter(|group| group.state(self.placed) == PodGroupState::Timeout);
        let is_over = over.map(|group| Hold::TimedOut(group.permit_timeout()));
        let timed_out = is_over.or(timed_out);
        GroupStatus {
            wanted: object.map(|group| group.wanted()),
            members: self.members.len() + self.elsewhere,
            hold: timed_out.or(in_flight),
        }
    }

    /// When it will have been tried for as long as it may be.
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
        self.stirred.retain(|(stirred, _)| *stirred != id);
        self.free.push(id);
        Some(group)
    }

    fn stir(&mut self, id: u32, cause: Cause) {
        if !self.stirred.iter().any(|(known, _)| *known == id) {
            self.stirred.push((id, cause));
        }
    }

    /// When the next group that timed out is tried again.
    pub(super) fn next_retry(&self) -> Option<Timestamp> {
        self.retries.first().map(|(at, _)| *at)
    }
}

/// What an event of a pod is, to the others of its group.
const POD_CAME: Cause = Cause::Event(EventResource::UnscheduledPod, Actions::ADD);

impl SchedulingQueue {
    /// How a pod group stands. Cluster is the version to go by. O(pods of the group).
    #[must_use]
    pub fn group_status(
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

    /// The pod to be tried next, and with it all pods of its group that can be tried, as
    /// long as the group lacks pods on nodes. All of them are in flight from now on, and
    /// to be given back as popped pods are; where the group as a whole failed, at once,
    /// by [`SchedulingQueue::return_group`]. O((1 + siblings) log n).
    pub fn pop_together(&mut self, now: Timestamp) -> Option<Popped> {
        self.rally(now);
        loop {
            let slot = self.take_first()?;
            let group = self.pods.get(slot).and_then(|entry| entry.member).map(|of| of.group);
            // Its group may have lost a pod, or time out, since it was asked about.
            let is_closed = |id| self.groups.get(id).is_some_and(|of| !of.status().is_open());
            if group.is_some_and(is_closed) && self.is_kept(slot) {
                self.settle(slot, Place::Gated, Cause::Activate);
                continue;
            }
            let wants_more = |id| self.groups.get(id).filter(|of| of.lacking() > 0);
            let siblings = group.and_then(wants_more).map(|of| of.members.clone());
            let mut siblings = siblings.unwrap_or_default();
            siblings.retain(|sibling| *sibling != slot && self.can_be_tried(*sibling));
            let first = self.fly(slot, now)?;
            let siblings = siblings.into_iter().filter_map(|sibling| {
                self.leave(sibling);
                self.fly(sibling, now)
            });
            return Some(Popped { first, siblings: siblings.collect() });
        }
    }

    /// Whether a pod waits, and no plugin keeps it. Those that were not asked for long
    /// are asked again, and kept if that is the answer.
    fn can_be_tried(&mut self, slot: Slot) -> bool {
        let Some(place) = self.pods.get(slot).map(|entry| entry.place) else { return false };
        match place {
            Place::Active => true,
            place if !is_waiting(place) => false,
            place => {
                let is_kept = self.is_kept(slot);
                if is_kept && place != Place::Gated {
                    self.leave(slot);
                    self.settle(slot, Place::Gated, Cause::Activate);
                }
                !is_kept
            }
        }
    }

    /// The pods of a group that was not placed come back, all at once: they are left
    /// alone for a while, longer with each time, whatever happens (1.36). If the group
    /// was tried for as long as it may be, they are kept until something of it changes,
    /// or [`QueueConfig::group_retry`](super::QueueConfig::group_retry) has passed. Says
    /// where each pod is; none for one that was deleted meanwhile, or is not in flight.
    /// O(pods of the group × log n).
    pub fn return_group(
        &mut self,
        returned: &[Returned],
        cluster: &Cluster,
        now: Timestamp,
    ) -> Vec<Option<Place>> {
        let slots: Vec<Option<Slot>> =
            returned.iter().map(|member| self.land(member, now)).collect();
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
            let place = match self.is_kept(slot) {
                true => self.settle(slot, Place::Gated, Cause::AttemptFailure),
                false => self.requeue(slot, Strategy::AfterBackoff, Cause::AttemptFailure, now),
            };
            Some(place)
        });
        let places = places.collect();
        self.rally(now);
        places
    }

    fn group_of(&self, slot: Slot) -> Option<u32> {
        self.pods.get(slot)?.member.map(|member| member.group)
    }

    /// Takes a pod out of flight that is to go somewhere else.
    fn land(&mut self, member: &Returned, now: Timestamp) -> Option<Slot> {
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
        self.tell(id, Cause::AttemptFailure);
    }

    /// A pod that is new to the queue joins its group, if its profile has groups.
    pub(super) fn join(&mut self, slot: Slot, now: Timestamp) {
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

    /// A pod that is in no place any more leaves its group. `is_placed` says that it is
    /// on a node.
    pub(super) fn part(&mut self, slot: Slot, is_placed: bool) {
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
        self.tell(id, POD_CAME);
    }

    /// A pod goes to a place (`by` 1), or leaves it (-1).
    pub(super) fn count_place(&mut self, slot: Slot, place: Place, by: isize) {
        let Some(id) = self.group_of(slot) else { return };
        let Some(group) = self.groups.get_mut(id) else { return };
        match place {
            Place::InFlight => group.in_flight = group.in_flight.wrapping_add_signed(by),
            Place::Binding => {}
            _ => group.waiting = group.waiting.wrapping_add_signed(by),
        }
        if place == Place::InFlight {
            self.tell(id, POD_CAME);
        }
    }

    /// Lets the plugin know how a group stands. Its pods that are kept are asked about
    /// again if they may queue now, and might not before.
    fn tell(&mut self, id: u32, cause: Cause) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let status = group.status();
        let before = std::mem::replace(&mut group.told, status);
        if before == status {
            return;
        }
        let (namespace, name) = (group.namespace.clone(), group.name.clone());
        self.pod_groups().set(&namespace, &name, status);
        if status.is_open() && !before.is_open() {
            self.groups.stir(id, cause);
        }
    }

    /// Counts the pods of a group anew, by a version. O(pods of the group on their way).
    fn count_group(&mut self, id: u32, cluster: &Cluster, now: Timestamp) {
        let Some(group) = self.groups.get(id) else { return };
        let (namespace, name) = (&group.namespace, &group.name);
        let object = cluster.objects().pod_groups.get(namespace, name).cloned();
        let placed = cluster.placed_members(namespace, name);
        let on_the_way = group.members.len() - group.waiting;
        // Pods of the queue that are assumed are in both.
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

    /// The same for the group of a pod of the queue, which the plugin is told.
    pub(super) fn recount(&mut self, slot: Slot, cluster: &Cluster, now: Timestamp) {
        if let Some(id) = self.group_of(slot) {
            self.count_group(id, cluster, now);
            self.tell(id, POD_CAME);
        }
    }

    /// Something of a group changed, the event being this: it is counted anew, and one
    /// that timed out may be tried again. Nothing where no pod of it is in the queue.
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
        self.tell(id, cause);
        self.rally(now);
    }

    /// The same for the group of a pod, if it is of one.
    pub(super) fn pod_changed(&mut self, pod: &Pod, cluster: &Cluster, now: Timestamp) {
        if let Some((namespace, name)) = pod.group() {
            self.group_changed((namespace, name), POD_CAME, cluster, now);
        }
    }

    /// A group that timed out is not held any more, and its time starts again.
    fn resume(&mut self, id: u32, now: Timestamp) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if let Some(until) = group.held_until.take() {
            group.since = group.since.and(Some(now));
            group.failures = 0;
            self.groups.retries.remove(&(until, id));
        }
    }

    /// Resumes the groups whose time has come, and does what was asked for groups since
    /// the last time: asks again about pods that were kept, and has those tried whose
    /// siblings wait for them. O(1) where there is nothing.
    pub(super) fn rally(&mut self, now: Timestamp) {
        if !self.has_groups {
            return;
        }
        while let Some((at, id)) = self.groups.retries.first().copied()
            && at <= now
        {
            self.resume(id, now);
            self.tell(id, Cause::Timeout);
        }
        for (namespace, name) in self.pod_groups().take_called() {
            if let Some(id) = self.groups.find(&namespace, &name) {
                self.activate_group(id, now);
            }
        }
        while let Some((id, cause)) = self.groups.stirred.pop() {
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

    /// Whether [`SchedulingQueue::rally`] has something to do.
    pub(super) fn is_stirred(&self) -> bool {
        !self.groups.stirred.is_empty()
    }
}
