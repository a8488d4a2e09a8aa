//! Notes for the followers of the log, which contain each object before and after an event.
//!
//! Without followers, no object is looked up or copied.

use std::sync::Arc;

use crate::model::{
    Change, CustomEvent, Diff, EventError, Fact, Name, Node, Object, ObjectKind, Pod, Uid,
};
use crate::snapshot::PodRef;
use crate::snapshot::draft::{Draft, check_amounts};

use super::lifecycle::State;

impl State {
    pub(super) fn note(&mut self, fact: Fact) {
        self.followers.note(self.draft.cluster.generation(), fact);
    }

    fn pod_at(&self, pod_ref: PodRef) -> Option<(Arc<Pod>, bool)> {
        self.draft.pod_at(pod_ref).map(|pod| (Arc::new(pod.to_pod()), pod.is_assumed()))
    }

    /// Notes that a pod is about to be added to a node.
    pub(super) fn note_placed(&mut self, pod: &Pod) {
        if self.followers.is_followed() {
            let change = Change::Pod(Diff { old: None, new: Some(Arc::new(pod.clone())) });
            self.note(Fact::Changed(change));
        }
    }

    /// Notes that another object of a pod is about to replace it. An assumed pod was not reported before, so it is
    /// reported as new.
    pub(super) fn note_revised(&mut self, pod_ref: PodRef, pod: &Pod) {
        if self.followers.is_followed() {
            let old = self.pod_at(pod_ref).filter(|(_, assumed)| !assumed).map(|(old, _)| old);
            let change = Change::Pod(Diff { old, new: Some(Arc::new(pod.clone())) });
            self.note(Fact::Changed(change));
        }
    }

    /// Notes that a pod is about to be removed. This includes assumed pods, because their resources become free.
    pub(super) fn note_displaced(&mut self, pod_ref: PodRef) {
        if self.followers.is_followed() {
            let old = self.pod_at(pod_ref).map(|(old, _)| old);
            let change = Change::Pod(Diff { old, new: None });
            self.note(Fact::Changed(change));
        }
    }

    pub(super) fn check_pending(&self, pod: &Pod) -> Result<(), EventError> {
        if pod.uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        check_amounts(pod)?;
        match pod.node_name.as_ref().filter(|node| !node.is_empty()) {
            Some(node) => Err(EventError::HasNodeName { uid: pod.uid.clone(), node: node.clone() }),
            None => Ok(()),
        }
    }

    /// Notes that a pending or assumed pod appeared or changed. An assumed pod must not be scheduled again, but its
    /// next attempt, if it cannot be bound, must see the new object. A placed pod is not noted: the object is older.
    pub(super) fn put_pending(&mut self, pod: &Arc<Pod>) -> Result<(), EventError> {
        self.check_pending(pod)?;
        if self.followers.is_followed() {
            match self.draft.pod(&pod.uid).map(|known| known.is_assumed()) {
                None => self.note(Fact::Pending(pod.clone())),
                Some(true) => self.note(Fact::Assumed(pod.clone())),
                Some(false) => {}
            }
        }
        Ok(())
    }

    /// Notes that a pod that was pending or assumed was deleted.
    pub(super) fn not_pending(&mut self, uid: &Uid) {
        if self.followers.is_followed() {
            self.note(Fact::NotPending(uid.clone()));
        }
    }

    /// Adds or replaces a node that was checked. Returns whether a Node with its name existed.
    pub(super) fn put_node(&mut self, node: &Arc<Node>) -> bool {
        let is_new = || self.cluster().node(&node.name)?.kubelet_node().map(|_| ());
        // A Node that joins an existing NMNode is reported as new, because pods may be waiting for it.
        let is_new = self.followers.is_followed() && is_new().is_none();
        self.change_node(&node.name, is_new, |draft| draft.put_node(node.clone()))
    }

    /// Removes a known node.
    pub(super) fn remove_node(&mut self, name: &Name) {
        self.change_node(name, false, |draft| draft.remove_node(name));
    }

    /// Changes the scheduler instance that the Node and the NMNode of a node name.
    pub(super) fn assign_node(
        &mut self,
        name: &Name,
        change: impl Fn(&mut Option<Name>),
    ) -> Result<(), EventError> {
        self.draft.check_assign(name)?;
        self.change_node(name, false, |draft| draft.assign_node(name, change));
        Ok(())
    }

    /// Changes a node or one of its parts, and notes the node before and after. If `is_new`, the node is noted as new.
    fn change_node<R>(
        &mut self,
        name: &str,
        is_new: bool,
        change: impl FnOnce(&mut Draft) -> R,
    ) -> R {
        if !self.followers.is_followed() {
            return change(&mut self.draft);
        }
        let listed = |state: &State| state.cluster().node(name)?.node().cloned();
        let old = listed(self).filter(|_| !is_new);
        let done = change(&mut self.draft);
        let new = listed(self);
        let same = match (&old, &new) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        };
        if !same {
            let change = Change::Node(Diff { old, new });
            self.note(Fact::Changed(change));
        }
        done
    }

    /// Adds or replaces an object other than a pod or a Node. Returns whether it replaced one.
    pub(super) fn put_object(&mut self, object: &Object) -> Result<bool, EventError> {
        let old = self
            .followers
            .is_followed()
            .then(|| self.cluster().object(object.kind(), object.namespace(), object.name()));
        let known =
            self.change_object(object.kind(), object.name(), |draft| draft.put_object(object))?;
        if let Some(old) = old {
            let diff = Diff { old, new: Some(object.clone()) };
            self.note(Fact::Changed(Change::Object(diff)));
        }
        Ok(known)
    }

    /// Removes an object other than a pod or a Node.
    pub(super) fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), EventError> {
        let old =
            self.followers.is_followed().then(|| self.cluster().object(kind, namespace, name));
        self.change_object(kind, name, |draft| draft.delete_object(kind, namespace, name))?;
        if let Some(old) = old {
            let diff = Diff { old, new: None };
            self.note(Fact::Changed(Change::Object(diff)));
        }
        Ok(())
    }

    pub(super) fn change_store(&mut self, event: &CustomEvent) -> Result<(), EventError> {
        self.draft.change_store(event)?;
        if self.followers.is_followed() {
            self.note(Fact::Changed(Change::Custom(event.clone())));
        }
        Ok(())
    }

    /// Changes an object. If it is part of a node, the change to the node is noted as well.
    fn change_object<R>(
        &mut self,
        kind: ObjectKind,
        name: &str,
        change: impl FnOnce(&mut Draft) -> R,
    ) -> R {
        match kind.is_node_part() {
            true => self.change_node(name, false, change),
            false => change(&mut self.draft),
        }
    }
}
