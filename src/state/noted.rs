//! What events do, noted for those who follow the log: each object before and
//! after. Nothing is looked up and nothing copied where nobody takes notes.

use std::sync::Arc;

use crate::log::Fact;
use crate::model::{
    Change, CustomEvent, Diff, EventError, Generation, Name, Node, Object, ObjectKind, Pod, Uid,
};
use crate::snapshot::PodRef;
use crate::snapshot::draft::{Draft, check_amounts};

use super::lifecycle::{Observer, State};

impl State {
    fn now(&self) -> Generation {
        self.cluster().generation()
    }

    fn pod_at(&self, spot: PodRef) -> Option<(Arc<Pod>, bool)> {
        self.draft.pod_at(spot).map(|pod| (Arc::new(pod.to_pod()), pod.is_assumed()))
    }

    /// A pod is about to be on a node, for good.
    pub(super) fn note_placed(&self, pod: &Pod, observer: &mut impl Observer) {
        if observer.takes_notes() {
            let change = Change::Pod(Diff { old: None, new: Some(Arc::new(pod.clone())) });
            observer.note(self.now(), Fact::Changed(change));
        }
    }

    /// Another object of a pod is about to take its place. Whoever knew it as
    /// assumed was not told of it yet, so it appears.
    pub(super) fn note_revised(&self, spot: PodRef, pod: &Pod, observer: &mut impl Observer) {
        if observer.takes_notes() {
            let old = self.pod_at(spot).filter(|(_, assumed)| !assumed).map(|(old, _)| old);
            let change = Change::Pod(Diff { old, new: Some(Arc::new(pod.clone())) });
            observer.note(self.now(), Fact::Changed(change));
        }
    }

    /// A pod is about to go; an assumed one, too: its room is free again.
    pub(super) fn note_displaced(&self, spot: PodRef, observer: &mut impl Observer) {
        if observer.takes_notes() {
            let old = self.pod_at(spot).map(|(old, _)| old);
            let change = Change::Pod(Diff { old, new: None });
            observer.note(self.now(), Fact::Changed(change));
        }
    }

    /// Whether a pod can be one that is on no node.
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

    /// A pod that is on no node appears or changes. One that is assumed or placed is
    /// not to be scheduled, whatever an older view of it says.
    pub(super) fn put_pending(
        &self,
        pod: &Arc<Pod>,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        self.check_pending(pod)?;
        if observer.takes_notes() && self.draft.pod(&pod.uid).is_none() {
            observer.note(self.now(), Fact::Pending(pod.clone()));
        }
        Ok(())
    }

    /// A pod that is on no node, or only assumed on one, is deleted.
    pub(super) fn not_pending(&self, uid: &Uid, observer: &mut impl Observer) {
        if observer.takes_notes() {
            observer.note(self.now(), Fact::NotPending(uid.clone()));
        }
    }

    /// Puts a node that was checked; says whether there was a Node of its name.
    pub(super) fn put_node(&mut self, node: &Arc<Node>, observer: &mut impl Observer) -> bool {
        let is_new = || self.cluster().node(&node.name)?.kubelet_node().map(|_| ());
        // A Node that joins an NMNode is one that comes: pods may have waited for it.
        let is_new = observer.takes_notes() && is_new().is_none();
        self.change_node(&node.name, is_new, observer, |draft| draft.put_node(node.clone()))
    }

    /// Removes a node that is known.
    pub(super) fn remove_node(&mut self, name: &Name, observer: &mut impl Observer) {
        self.change_node(name, false, observer, |draft| draft.remove_node(name));
    }

    /// Changes which scheduler instance the Node and the NMNode of a node name.
    pub(super) fn assign_node(
        &mut self,
        name: &Name,
        observer: &mut impl Observer,
        change: impl Fn(&mut Option<Name>),
    ) -> Result<(), EventError> {
        self.draft.check_assign(name)?;
        self.change_node(name, false, observer, |draft| draft.assign_node(name, change));
        Ok(())
    }

    /// Changes a node or what it is made of, and notes it as it was and as it is;
    /// one that is new was not.
    fn change_node<R>(
        &mut self,
        name: &str,
        is_new: bool,
        observer: &mut impl Observer,
        change: impl FnOnce(&mut Draft) -> R,
    ) -> R {
        if !observer.takes_notes() {
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
            observer.note(self.now(), Fact::Changed(change));
        }
        done
    }

    /// Puts an object of another kind; says whether there was one of its name.
    pub(super) fn put_object(
        &mut self,
        object: &Object,
        observer: &mut impl Observer,
    ) -> Result<bool, EventError> {
        let old = observer
            .takes_notes()
            .then(|| self.cluster().object(object.kind(), object.namespace(), object.name()));
        let known = self.change_object(object.kind(), object.name(), observer, |draft| {
            draft.put_object(object)
        })?;
        if let Some(old) = old {
            let diff = Diff { old, new: Some(object.clone()) };
            observer.note(self.now(), Fact::Changed(Change::Object(diff)));
        }
        Ok(known)
    }

    /// Removes an object of another kind.
    pub(super) fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        let old = observer.takes_notes().then(|| self.cluster().object(kind, namespace, name));
        self.change_object(kind, name, observer, |draft| {
            draft.delete_object(kind, namespace, name)
        })?;
        if let Some(old) = old {
            let diff = Diff { old, new: None };
            observer.note(self.now(), Fact::Changed(Change::Object(diff)));
        }
        Ok(())
    }

    /// Changes a store of a user's own.
    pub(super) fn change_store(
        &mut self,
        event: &CustomEvent,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        self.draft.change_store(event)?;
        if observer.takes_notes() {
            observer.note(self.now(), Fact::Changed(Change::Custom(event.clone())));
        }
        Ok(())
    }

    /// Changes an object; one that nodes are made of changes its node, too.
    fn change_object<R>(
        &mut self,
        kind: ObjectKind,
        name: &str,
        observer: &mut impl Observer,
        change: impl FnOnce(&mut Draft) -> R,
    ) -> R {
        match kind.is_node_part() {
            true => self.change_node(name, false, observer, change),
            false => change(&mut self.draft),
        }
    }
}
