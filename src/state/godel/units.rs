//! The scheduling status of pod groups, as Gödel's binder sets it.
//!
//! A status that is set becomes the phase of the group in the store. The next update of the group's object replaces it,
//! as in unit_status_store.go `UpdatePodGroup`, and it is removed together with the group.

use std::collections::BTreeMap;

use crate::model::{EventError, Name, Object, ObjectKind, Pod, PodGroup, PodGroupPhase, Uid};

use crate::state::lifecycle::State;

/// The namespace and name of a pod group.
type Group = (Name, Name);

/// The members of pod groups that are on a node but not bound yet.
#[derive(Default)]
pub(in crate::state) struct UnboundMembers {
    groups: BTreeMap<Uid, Group>,
    counts: BTreeMap<Group, usize>,
}

impl UnboundMembers {
    /// Returns `true` if the pod is an unbound member. O(log n).
    fn contains(&self, uid: &Uid) -> bool {
        self.groups.contains_key(uid)
    }

    /// Returns the number of unbound members of a group. O(log n).
    fn of(&self, group: &Group) -> usize {
        self.counts.get(group).copied().unwrap_or(0)
    }

    /// Adds a pod that is not a member yet. O(log n).
    fn insert(&mut self, uid: &Uid, group: Group) {
        *self.counts.entry(group.clone()).or_insert(0) += 1;
        self.groups.insert(uid.clone(), group);
    }

    /// Removes the members that do not satisfy `stays`. O(n log n).
    pub(in crate::state) fn retain(&mut self, stays: impl Fn(&Uid) -> bool) {
        let gone: Vec<Uid> = self.groups.keys().filter(|uid| !stays(uid)).cloned().collect();
        gone.iter().for_each(|uid| self.remove(uid));
    }

    /// Removes a pod if it is a member. O(log n).
    pub(in crate::state) fn remove(&mut self, uid: &Uid) {
        let Some(group) = self.groups.remove(uid) else { return };
        if let Some(count) = self.counts.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&group);
            }
        }
    }
}

impl State {
    /// Sets the phase of a known pod group.
    pub(in crate::state) fn set_group_phase(
        &mut self,
        namespace: &str,
        name: &str,
        phase: PodGroupPhase,
    ) -> Result<(), EventError> {
        let Some(known) = self.cluster().objects().pod_groups.get(namespace, name) else {
            return Err(EventError::ObjectNotFound {
                kind: ObjectKind::PodGroup.as_str().into(),
                key: format!("{namespace}/{name}"),
            });
        };
        let group = PodGroup { phase: Some(phase), ..PodGroup::clone(known) };
        self.put_object(&Object::from(group)).map(drop)
    }

    fn keeps_unit_status(&self) -> bool {
        self.cluster().godel().is_some_and(|config| config.unit_status)
    }

    /// Updates the pod's group when the pod's binding finishes: the group is scheduled if at least the minimum number
    /// of its members is bound, and stays scheduled when they are removed (godel_binder.go
    /// `DeleteVictimsAndBindTasks`). O(log n).
    pub(in crate::state) fn schedule_unit_of(&mut self, uid: &Uid) -> Result<(), EventError> {
        if !self.keeps_unit_status() {
            return Ok(());
        }
        let Some(pod) = self.draft.pod(uid) else { return Ok(()) };
        let Some(name) = pod.template().scheduling_group.clone() else { return Ok(()) };
        let group = (pod.namespace().clone(), name);
        // A pod whose own object says that it is assumed does not become bound by this.
        let is_bound_now = pod.is_assumed() && self.unbound_members.contains(uid);
        let cluster = self.cluster();
        let known = cluster.objects().pod_groups.get(&group.0, &group.1);
        let required = known.map_or(0, |known| known.wanted() as usize);
        let unbound = self.unbound_members.of(&group) - usize::from(is_bound_now);
        let bound = cluster.placed_members(&group.0, &group.1).saturating_sub(unbound);
        if required == 0 || bound < required {
            return Ok(());
        }
        self.set_group_phase(&group.0, &group.1, PodGroupPhase::Scheduled)
    }

    /// Records whether a pod that is on a node, or whose object changed there, is an unbound member of a group.
    pub(in crate::state) fn count_member(&mut self, pod: &Pod, assumed: bool) {
        if !self.keeps_unit_status() {
            return;
        }
        let is_unbound =
            assumed || pod.template.godel.as_ref().is_some_and(|godel| godel.is_unbound());
        self.unbound_members.remove(&pod.uid);
        if let Some((namespace, name)) = pod.group().filter(|_| is_unbound) {
            self.unbound_members.insert(&pod.uid, (namespace.clone(), name.clone()));
        }
    }
}
