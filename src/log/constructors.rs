//! Constructors of events: `engine.submit(Event::add_node(node))`.
//!
//! Each constructor lists the reasons for which its event is rejected, with the variant of
//! [`EventError`](crate::model::EventError) in parentheses. In addition, every event that places a pod is rejected if
//! the pod has no uid (`EmptyUid`), requests a negative amount (`Negative`), has a name or a list that is too long
//! (`TooLong`), or would make a sum of its node exceed 64 bits (`Overflow`). An event that needs a new 32-bit
//! identifier is rejected if all are in use (`Full`).

use std::sync::Arc;

use crate::model::{Generation, Name, Node, ObjectKind, Pod, Timestamp, Uid};

use super::{Event, ObjectKey, Prepared};

impl Event {
    /// Assumes a pod: places it on the node that it names, before the API server confirms the binding
    /// ([`Event::AssumePod`]). The placement is checked according to
    /// [`Config::commit_check`](crate::cache::Config::commit_check), unless [`Event::decided_on`] names the current
    /// version.
    ///
    /// Rejected if the pod is already known (`AlreadyInCache`), names no node (`NoNodeName`), has resource claims
    /// (`Unsupported`), or no longer fits (`Conflict`).
    #[must_use]
    pub fn assume(pod: impl Into<Arc<Pod>>) -> Event {
        Event::AssumePod { pod: pod.into(), decided_on: None, prepared: Prepared::default() }
    }

    /// Assumes several pods atomically: all of them or none ([`Event::AssumeAll`]). Each pod is checked on top of the
    /// pods before it.
    ///
    /// Rejected if any pod cannot be assumed (`Together`, which contains the reason for the first such pod).
    #[must_use]
    pub fn assume_all(pods: impl Into<Arc<[Pod]>>) -> Event {
        Event::AssumeAll { pods: pods.into(), decided_on: None }
    }

    /// Assumes pods one after the other, each accepted or rejected on its own ([`Event::AssumeEach`]). Cheaper than as
    /// many events of [`Event::assume`], because it is one entry of the log, has one outcome and one publish.
    ///
    /// Never rejected as a whole. A pod is rejected for the reasons of [`Event::assume`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portolan::cache::{Config, Engine, Event};
    /// use portolan::model::{node, pod};
    ///
    /// let engine = Engine::shared(Config::default());
    /// engine.submit(Event::add_node(node("n1").cpu(1_000).build()))?.wait()??;
    /// let pods = ["a", "b", "c"].map(|name| Arc::new(pod(name).cpu(400).on("n1").build()));
    /// let applied = engine.submit(Event::assume_each(pods))?.wait()??;
    /// assert_eq!((applied.added, applied.rejected.len()), (2, 1));
    /// assert_eq!(applied.rejected[0].0, "default/c");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn assume_each(pods: impl Into<Arc<[Arc<Pod>]>>) -> Event {
        Event::AssumeEach { pods: pods.into(), decided_on: None, prepared: Prepared::default() }
    }

    /// Preempts pods and assumes the preemptor on the node that it names, atomically ([`Event::Preempt`]).
    ///
    /// Rejected for the same reasons as [`Event::assume`], or if a victim is unknown or listed twice (`NotFound`), on
    /// another node (`OtherNode`), or a placeholder pod (`HoldsPlace`).
    #[must_use]
    pub fn preempt(pod: impl Into<Arc<Pod>>, victims: impl Into<Arc<[Uid]>>) -> Event {
        Event::Preempt { pod: pod.into(), victims: victims.into(), decided_on: None }
    }

    /// Sets the published version on which an [`assume`](Event::assume), [`assume_all`](Event::assume_all),
    /// [`assume_each`](Event::assume_each) or [`preempt`](Event::preempt) was decided. If no event has been folded
    /// since that version, the commit check is skipped (see also [`CommitPolicy`](crate::cache::CommitPolicy)). Other
    /// events are returned unchanged.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine, Event};
    /// use portolan::model::{node, pod};
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
        | Event::AssumeEach { decided_on, .. }
        | Event::Preempt { decided_on, .. } = &mut self
        {
            *decided_on = Some(version);
        }
        self
    }

    /// Records that the binding of an assumed pod has finished, which starts its time to live
    /// ([`Event::FinishBinding`]). A pod that is not assumed is left unchanged.
    ///
    /// Rejected if the uid is empty (`EmptyUid`).
    #[must_use]
    pub fn finish_binding(uid: &Uid, now: Timestamp) -> Event {
        Event::FinishBinding { uid: uid.clone(), now }
    }

    /// Forgets an assumed pod, whose resources become free ([`Event::ForgetPod`]). An unknown pod is ignored.
    ///
    /// Rejected if the pod is on a node other than the one it names (`OtherNode`), has been added (`NotAssumed`), or
    /// has no uid (`EmptyUid`).
    #[must_use]
    pub fn forget(pod: &Pod) -> Event {
        Event::ForgetPod { uid: pod.uid.clone(), node: pod.node_name.clone() }
    }

    /// Adds a pod that is bound to a node, or confirms an assumed one ([`Event::AddPod`]). The node need not be known:
    /// an unknown node becomes a ghost. The placement is not checked, because the API server has already accepted it.
    ///
    /// Rejected if the pod has already been added (`AlreadyAdded`) or names no node (`NoNodeName`).
    #[must_use]
    pub fn add_pod(pod: impl Into<Arc<Pod>>) -> Event {
        Event::AddPod(pod.into())
    }

    /// Applies a pod as a watch reports it, added or modified ([`Event::PutPod`]). Unlike [`Event::add_pod`] and
    /// [`Event::update_pod`], which are the operations of kube-scheduler's cache, it depends on nothing that the sender
    /// must know:
    ///
    /// | pod | effect |
    /// |---|---|
    /// | on a node | is added there; confirms an assumed pod; replaces the known object, also if that is on another node |
    /// | without a node | is pending ([`Event::put_pending`]); a bound pod leaves its node, an assumed one stays |
    /// | without a node, terminating | is no longer pending, and no longer assumed |
    /// | finished or deleted ([`Pod::finished`](field@Pod::finished)) | is removed, or is no longer pending |
    ///
    /// With [`Config::pod_names`](crate::cache::Config::pod_names), placed pods with the same namespace and name and
    /// another uid are removed: their deletion was missed. With [`Config::godel`](crate::cache::Config::godel), a bound
    /// pod stays bound.
    ///
    /// An object that equals the known one changes nothing. Only pods that have been added have a known object, so
    /// older versions of pending, assumed and removed pods are not recognized: a watch reports each pod in order.
    ///
    /// Rejected if the resource version is smaller than that of the known object (`Stale`), unless it is 0, or if the
    /// uid is that of a placeholder pod (`HoldsPlace`).
    ///
    /// ```
    /// use portolan::cache::{Config, Engine, Event};
    /// use portolan::model::{EventError, pod};
    ///
    /// let (mut writer, _) = Engine::inline(Config::default());
    /// let version = |version| pod("web-0").cpu(100).resource_version(version);
    /// writer.apply(&Event::put_pod(version(5).build()))?;
    /// writer.apply(&Event::put_pod(version(7).on("n1").build()))?;
    /// let stale = writer.apply(&Event::put_pod(version(5).build()));
    /// assert!(matches!(stale, Err(EventError::Stale { known: 7, given: 5, .. })));
    /// writer.apply(&Event::put_pod(version(9).on("n1").finished().build()))?;
    /// assert_eq!(writer.cluster().pod_count(), 0);
    /// # Ok::<(), EventError>(())
    /// ```
    #[must_use]
    pub fn put_pod(pod: impl Into<Arc<Pod>>) -> Event {
        Event::PutPod(pod.into())
    }

    /// Replaces the object of the added pod with uid `old` ([`Event::UpdatePod`]).
    ///
    /// Rejected if the pod is unknown (`NotAdded`), assumed (`AssumedNotUpdated`), or a placeholder pod (`HoldsPlace`),
    /// or if the new object names no node (`NoNodeName`), another node (`OtherNode`), or the uid of another known pod
    /// (`AlreadyAdded`).
    #[must_use]
    pub fn update_pod(old: &Uid, pod: impl Into<Arc<Pod>>) -> Event {
        Event::UpdatePod { old: old.clone(), pod: pod.into() }
    }

    /// Removes a pod, assumed or added ([`Event::RemovePod`]).
    ///
    /// Rejected if the pod is unknown (`NotFound`), on a node other than the one it names (`OtherNode`), or a
    /// placeholder pod (`HoldsPlace`), or if it has no uid (`EmptyUid`).
    #[must_use]
    pub fn remove_pod(pod: &Pod) -> Event {
        Event::RemovePod { uid: pod.uid.clone(), node: pod.node_name.clone() }
    }

    /// Notifies followers, such as a scheduling queue, of a new or changed pod that is not bound to a node
    /// ([`Event::PutPending`]).
    ///
    /// Rejected if the pod names a node (`HasNodeName`), has no uid (`EmptyUid`), or requests a negative amount
    /// (`Negative`).
    #[must_use]
    pub fn put_pending(pod: impl Into<Arc<Pod>>) -> Event {
        Event::PutPending(pod.into())
    }

    /// Adds a node, or replaces the node with the same name ([`Event::AddNode`]).
    ///
    /// Rejected if the node has no name (`EmptyName`), has a negative amount (`Negative`), or has more than 65,535
    /// image names or extended resources (`TooLong`).
    #[must_use]
    pub fn add_node(node: impl Into<Arc<Node>>) -> Event {
        Event::AddNode(node.into())
    }

    /// Replaces a node, or adds it if it is unknown ([`Event::UpdateNode`]).
    ///
    /// Rejected for the same reasons as [`Event::add_node`].
    #[must_use]
    pub fn update_node(node: impl Into<Arc<Node>>) -> Event {
        Event::UpdateNode(node.into())
    }

    /// Removes a node. Its pods stay until their own events ([`Event::RemoveNode`]).
    ///
    /// Rejected if the node is unknown or a ghost (`NodeNotFound`).
    #[must_use]
    pub fn remove_node(name: impl Into<Name>) -> Event {
        Event::RemoveNode(name.into())
    }

    /// Assigns a node to the partition of a scheduler instance ([`Event::AssignNode`]).
    ///
    /// Rejected if the node is unknown or a ghost (`NodeNotFound`).
    #[must_use]
    pub fn assign_node(node: impl Into<Name>, scheduler: impl Into<Name>) -> Event {
        Event::AssignNode { node: node.into(), scheduler: scheduler.into() }
    }

    /// Removes a node from the partition of a scheduler instance ([`Event::UnassignNode`]). A node in another partition
    /// is left unchanged.
    ///
    /// Rejected if the node is unknown or a ghost (`NodeNotFound`).
    #[must_use]
    pub fn unassign_node(node: impl Into<Name>, scheduler: impl Into<Name>) -> Event {
        Event::UnassignNode { node: node.into(), scheduler: scheduler.into() }
    }

    /// Removes an object other than a pod or a Node ([`Event::DeleteObject`]). The namespace of a cluster-scoped object
    /// is empty.
    ///
    /// Rejected if the object is unknown (`ObjectNotFound`).
    #[must_use]
    pub fn delete_object(
        kind: ObjectKind,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Event {
        let key = ObjectKey { kind, namespace: namespace.into(), name: name.into() };
        Event::DeleteObject(Arc::new(key))
    }

    /// Marks a bound pod as about to be deleted by a preemptor ([`Event::MarkForDeletion`]).
    ///
    /// Rejected if the victim is unknown or not bound (`NotBound`), if it is a placeholder pod (`HoldsPlace`), if a uid
    /// is empty (`EmptyUid`), or if the engine does not store deletion marks (`NotKept`).
    #[must_use]
    pub fn mark_for_deletion(victim: &Uid, preemptor: &Uid, now: Timestamp) -> Event {
        Event::MarkForDeletion { victim: victim.clone(), preemptor: preemptor.clone(), now }
    }

    /// Removes the deletion mark that this preemptor has set ([`Event::UnmarkForDeletion`]). An unmarked pod is left
    /// unchanged.
    ///
    /// Rejected if another preemptor has set the mark (`MarkedByAnother`), if a uid is empty (`EmptyUid`), or if the
    /// engine does not store deletion marks (`NotKept`).
    #[must_use]
    pub fn unmark_for_deletion(victim: &Uid, preemptor: &Uid) -> Event {
        Event::UnmarkForDeletion { victim: victim.clone(), preemptor: preemptor.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{node, pod};

    #[test]
    fn only_placements_record_the_version_they_were_decided_on() {
        let placed = || pod("p").on("n").build();
        let version = Generation(7);
        for event in [
            Event::assume(placed()),
            Event::assume_all([placed()]),
            Event::assume_each([Arc::new(placed())]),
            Event::preempt(placed(), [placed().uid]),
        ] {
            let (Event::AssumePod { decided_on, .. }
            | Event::AssumeAll { decided_on, .. }
            | Event::AssumeEach { decided_on, .. }
            | Event::Preempt { decided_on, .. }) = event.decided_on(version)
            else {
                panic!("not a placement");
            };
            assert_eq!(decided_on, Some(version));
        }
        let added = Event::add_node(node("n").build()).decided_on(version);
        assert!(matches!(added, Event::AddNode(node) if *node.name == *"n"));
    }

    #[test]
    fn removals_name_the_pod_and_its_node() {
        let placed = pod("p").on("n").build();
        for event in [Event::forget(&placed), Event::remove_pod(&placed)] {
            let (Event::ForgetPod { uid, node } | Event::RemovePod { uid, node }) = event else {
                panic!("not a removal");
            };
            assert_eq!((uid, node.as_deref()), (placed.uid.clone(), Some("n")));
        }
    }
}
