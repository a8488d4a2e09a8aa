//! Constructors of events, which any engine accepts: `engine.submit(Event::add_node(node))`.
//!
//! Each names the reasons to refuse it. Every event that places a pod is refused if the pod has no uid
//! ([`EventError::EmptyUid`](crate::model::EventError)), requests a negative amount (`Negative`), or would overflow a
//! sum of its node (`Overflow`). An engine whose tables are full refuses what would need a new number (`Full`).

use std::sync::Arc;

use crate::model::{
    Generation, Name, Node, Object, ObjectKind, Pod, PodGroupPhase, Timestamp, Uid,
};

use super::{Event, ObjectKey, Relist};

impl Event {
    /// Places a pod on the node that it names, ahead of the API server ([`Event::AssumePod`]). The placement is checked
    /// ([`Config::commit_check`](crate::Config::commit_check)), unless [`Event::decided_on`] names the current version.
    ///
    /// Refused if the pod is known (`AlreadyInCache`), names no node (`NoNodeName`), has resource claims
    /// (`Unsupported`), or no longer fits (`Conflict`).
    #[must_use]
    pub fn assume(pod: impl Into<Arc<Pod>>) -> Event {
        Event::AssumePod { pod: pod.into(), decided_on: None }
    }

    /// The same for several pods: all of them, or none ([`Event::AssumeAll`]).
    ///
    /// Refused with `Together`, which has the reason of the first pod that cannot be assumed.
    #[must_use]
    pub fn assume_all(pods: impl Into<Arc<[Pod]>>) -> Event {
        Event::AssumeAll { pods: pods.into(), decided_on: None }
    }

    /// Places a pod on the node that it names and preempts pods there, in one step ([`Event::Preempt`]).
    ///
    /// Refused as [`Event::assume`] is; or if a victim is not known or named twice (`NotFound`), is on another node
    /// (`OtherNode`), or holds a reserved place (`HoldsPlace`).
    #[must_use]
    pub fn preempt(pod: impl Into<Arc<Pod>>, victims: impl Into<Arc<[Uid]>>) -> Event {
        Event::Preempt { pod: pod.into(), victims: victims.into(), decided_on: None }
    }

    /// Names the published version on which an [`assume`](Event::assume), [`assume_all`](Event::assume_all) or
    /// [`preempt`](Event::preempt) was decided; other events stay as they are. If nothing has happened since, the
    /// placement is not checked again.
    ///
    /// ```
    /// use portolan::log::Event;
    /// use portolan::model::{node, pod};
    /// use portolan::{Config, Engine};
    ///
    /// let engine = Engine::shared(Config::default());
    /// engine.submit(Event::add_node(node("n1").cpu(1_000).build()))?.wait()??;
    /// let version = engine.reader()?.generation();
    /// let event = Event::assume(pod("web-0").cpu(250).on("n1").build()).decided_on(version);
    /// engine.submit(event)?.wait()??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn decided_on(mut self, version: Generation) -> Event {
        if let Event::AssumePod { decided_on, .. }
        | Event::AssumeAll { decided_on, .. }
        | Event::Preempt { decided_on, .. } = &mut self
        {
            *decided_on = Some(version);
        }
        self
    }

    /// The binding of an assumed pod is done, and its time to live starts ([`Event::FinishBinding`]). Nothing happens
    /// to any other pod.
    ///
    /// Refused if the uid is empty.
    #[must_use]
    pub fn finish_binding(uid: &Uid, now: Timestamp) -> Event {
        Event::FinishBinding { uid: uid.clone(), now }
    }

    /// Takes an assumed pod back ([`Event::ForgetPod`]). Nothing happens if the pod is not known.
    ///
    /// Refused if the pod is on another node than it names (`OtherNode`), or was added (`NotAssumed`).
    #[must_use]
    pub fn forget(pod: &Pod) -> Event {
        Event::ForgetPod { uid: pod.uid.clone(), node: pod.node_name.clone() }
    }

    /// Adds a placed pod, or confirms an assumed one ([`Event::AddPod`]).
    ///
    /// Refused if the pod was added before (`AlreadyAdded`), or names no node (`NoNodeName`).
    #[must_use]
    pub fn add_pod(pod: impl Into<Arc<Pod>>) -> Event {
        Event::AddPod(pod.into())
    }

    /// Replaces the added pod with uid `old`, on its node ([`Event::UpdatePod`]).
    ///
    /// Refused if no such pod is known (`NotAdded`), if it is assumed (`AssumedNotUpdated`), or if the new object is on
    /// another node (`OtherNode`).
    #[must_use]
    pub fn update_pod(old: &Uid, pod: impl Into<Arc<Pod>>) -> Event {
        Event::UpdatePod { old: old.clone(), pod: pod.into() }
    }

    /// Removes a pod, assumed or added ([`Event::RemovePod`]).
    ///
    /// Refused if the pod is not known (`NotFound`), is on another node than it names (`OtherNode`), or holds a
    /// reserved place (`HoldsPlace`).
    #[must_use]
    pub fn remove_pod(pod: &Pod) -> Event {
        Event::RemovePod { uid: pod.uid.clone(), node: pod.node_name.clone() }
    }

    /// A pod that is on no node appears or changes ([`Event::PutPending`]): followers, such as a queue, are told.
    ///
    /// Refused if the pod names a node (`HasNodeName`), has no uid, or requests a negative amount.
    #[must_use]
    pub fn put_pending(pod: impl Into<Arc<Pod>>) -> Event {
        Event::PutPending(pod.into())
    }

    /// A pod that was on no node is deleted ([`Event::RemovePending`]).
    ///
    /// Refused if the uid is empty.
    #[must_use]
    pub fn remove_pending(uid: &Uid) -> Event {
        Event::RemovePending(uid.clone())
    }

    /// Adds a node, or replaces the one of its name ([`Event::AddNode`]).
    ///
    /// Refused if the node has no name (`EmptyName`), offers a negative amount (`Negative`), or has more images or
    /// resources than the engine holds (`TooLong`).
    #[must_use]
    pub fn add_node(node: impl Into<Arc<Node>>) -> Event {
        Event::AddNode(node.into())
    }

    /// Replaces a node; one that is not known is added ([`Event::UpdateNode`]).
    ///
    /// Refused as [`Event::add_node`] is.
    #[must_use]
    pub fn update_node(node: impl Into<Arc<Node>>) -> Event {
        Event::UpdateNode(node.into())
    }

    /// Removes a node ([`Event::RemoveNode`]). While pods remain on it, it is a ghost.
    ///
    /// Refused if the node is not known (`NodeNotFound`).
    #[must_use]
    pub fn remove_node(name: impl Into<Name>) -> Event {
        Event::RemoveNode(name.into())
    }

    /// Puts a node in the partition of a scheduler instance ([`Event::AssignNode`]).
    ///
    /// Refused if the node is not known, or only as a ghost (`NodeNotFound`).
    #[must_use]
    pub fn assign_node(node: impl Into<Name>, scheduler: impl Into<Name>) -> Event {
        Event::AssignNode { node: node.into(), scheduler: scheduler.into() }
    }

    /// Takes a node out of the partition of a scheduler instance ([`Event::UnassignNode`]).
    ///
    /// Refused as [`Event::assign_node`] is.
    #[must_use]
    pub fn unassign_node(node: impl Into<Name>, scheduler: impl Into<Name>) -> Event {
        Event::UnassignNode { node: node.into(), scheduler: scheduler.into() }
    }

    /// Adds or replaces an object of another kind ([`Event::PutObject`]), plain, shared, or as an [`Object`].
    ///
    /// Refused if the object has no name (`EmptyName`); a part of a node as [`Event::add_node`] is; and a Reservation
    /// if its pod is no placeholder (`NoPlaceholder`) or cannot be placed.
    #[must_use]
    pub fn put_object(object: impl Into<Object>) -> Event {
        Event::PutObject(object.into())
    }

    /// Removes an object of another kind ([`Event::DeleteObject`]). The namespace of an object of the cluster is empty.
    ///
    /// Refused if the object is not known (`ObjectNotFound`).
    #[must_use]
    pub fn delete_object(
        kind: ObjectKind,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Event {
        let key = ObjectKey { kind, namespace: namespace.into(), name: name.into() };
        Event::DeleteObject(Arc::new(key))
    }

    /// Sets the scheduling status of a pod group, until its object is next put ([`Event::SetGroupPhase`]).
    ///
    /// Refused if the group is not known (`ObjectNotFound`).
    #[must_use]
    pub fn set_group_phase(
        namespace: impl Into<Name>,
        name: impl Into<Name>,
        phase: PodGroupPhase,
    ) -> Event {
        Event::SetGroupPhase { namespace: namespace.into(), name: name.into(), phase }
    }

    /// Marks a bound pod as one that is about to be deleted for another ([`Event::MarkForDeletion`]).
    ///
    /// Refused if the victim is not known as bound (`NotBound`), if it holds a reserved place (`HoldsPlace`), if a uid
    /// is empty, or if the engine keeps no such marks (`NotKept`).
    #[must_use]
    pub fn mark_for_deletion(victim: &Uid, preemptor: &Uid, now: Timestamp) -> Event {
        Event::MarkForDeletion { victim: victim.clone(), preemptor: preemptor.clone(), now }
    }

    /// Removes a mark that this preemptor has set ([`Event::UnmarkForDeletion`]).
    ///
    /// Refused if another preemptor has set the mark (`MarkedByAnother`), if a uid is empty, or if the engine keeps no
    /// such marks (`NotKept`).
    #[must_use]
    pub fn unmark_for_deletion(victim: &Uid, preemptor: &Uid) -> Event {
        Event::UnmarkForDeletion { victim: victim.clone(), preemptor: preemptor.clone() }
    }

    /// It is `now`: removes the assumed pods, places and marks whose time has passed ([`Event::Expire`]). Never
    /// refused.
    #[must_use]
    pub fn expire(now: Timestamp) -> Event {
        Event::Expire(now)
    }

    /// All there is of one kind; what is missing is gone ([`Event::Relist`]). Never refused: the answer lists the
    /// objects that were ([`Applied::rejected`](super::Applied::rejected)).
    #[must_use]
    pub fn relist(relist: Relist) -> Event {
        Event::Relist(Arc::new(relist))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{node, pod};

    #[test]
    fn decided_on_is_kept_by_placements_alone() {
        let placed = || pod("p").on("n").build();
        let version = Generation(7);
        for event in [
            Event::assume(placed()),
            Event::assume_all([placed()]),
            Event::preempt(placed(), [placed().uid]),
        ] {
            let (Event::AssumePod { decided_on, .. }
            | Event::AssumeAll { decided_on, .. }
            | Event::Preempt { decided_on, .. }) = event.decided_on(version)
            else {
                panic!("a placement stays one");
            };
            assert_eq!(decided_on, Some(version));
        }
        let added = Event::add_node(node("n").build()).decided_on(version);
        assert!(matches!(added, Event::AddNode(node) if *node.name == *"n"));
    }

    #[test]
    fn a_pod_that_is_taken_away_is_named_with_its_node() {
        let placed = pod("p").on("n").build();
        for event in [Event::forget(&placed), Event::remove_pod(&placed)] {
            let (Event::ForgetPod { uid, node } | Event::RemovePod { uid, node }) = event else {
                panic!("a pod is taken away");
            };
            assert_eq!((uid, node.as_deref()), (placed.uid.clone(), Some("n")));
        }
    }
}
