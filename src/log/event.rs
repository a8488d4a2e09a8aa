//! Events, which are the changes that can be submitted to the log, and their outcomes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::model::{
    CustomEvent, EventError, Generation, Name, Node, Object, ObjectKind, Pod, PodGroupPhase,
    Timestamp, Uid,
};
use crate::sync::{Mutex, lock};

/// A change to the cluster, which the engine folds into its state.
///
/// Each kind of event has a constructor, such as [`Event::add_node`], that lists the reasons for which the event is
/// rejected. A rejected event changes nothing, but it still takes a generation. Readers see an accepted event in the
/// next published version and never see a part of it.
///
/// An event is at most 64 bytes, because its objects are shared. An object is hashed and its requests are summed by the
/// thread that creates it, not by the writer. An event that depends on the time carries a timestamp, so that
/// replaying a log yields the same versions. The feature `serde` serializes events: see
/// [`model`](crate::model#serialization).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub enum Event {
    /// Assumes a pod: places it on the node that it names, before the API server confirms the binding. See
    /// [`Event::assume`].
    ///
    /// Rejected if the pod is already known, names no node, has resource claims, or does not pass the commit check.
    AssumePod {
        /// The pod, with its node name.
        pod: Arc<Pod>,
        /// The published version on which the placement was decided. Never pass the generation of a fork, because forks
        /// count their own generations. If this is `None` or not the current version, the placement is checked against
        /// the current state ([`CommitPolicy`](crate::cache::CommitPolicy)).
        decided_on: Option<Generation>,
    },
    /// Assumes several pods atomically: all of them or none. See [`Event::assume_all`].
    ///
    /// Rejected if any of the pods would be rejected on top of the pods before it.
    AssumeAll {
        /// The pods, each with its node name.
        pods: Arc<[Pod]>,
        /// The published version on which the placements were decided, as for [`Event::AssumePod`].
        decided_on: Option<Generation>,
    },
    /// Assumes pods one after the other. See [`Event::assume_each`].
    ///
    /// The event stands for as many events as it has pods: each pod takes a generation, and is accepted or rejected as
    /// if it came in an [`Event::AssumePod`] of its own. They share one entry of the log and one publish. Never
    /// rejected as a whole: [`Applied::rejected`] contains the pods that were, by uid.
    AssumeEach {
        /// The pods, each with its node name.
        pods: Arc<[Arc<Pod>]>,
        /// The published version on which the first placement was decided, as for [`Event::AssumePod`]. The others
        /// were decided on top of the pods before them.
        decided_on: Option<Generation>,
        /// What the scheduler has computed already.
        #[cfg_attr(feature = "serde", serde(skip))]
        prepared: Prepared,
    },
    /// Preempts pods and assumes the preemptor on their node, atomically. See [`Event::preempt`].
    ///
    /// The event removes the victims. With [`Config::godel`](crate::cache::Config::godel), as in the cache of Gödel's
    /// schedulers, the victims instead remain on their node and are counted there until their own objects are deleted.
    /// The preemptor is assumed as a pod that is nominated to the node with these victims, and the preemption store
    /// marks them. A fork removes the victims in both cases ([`Fork::preempt`](crate::cache::Fork::preempt)).
    ///
    /// Rejected if the preemptor could not be assumed without the victims, or if a victim is unknown, listed twice, on
    /// another node, or a placeholder pod.
    Preempt {
        /// The preemptor, with its node name.
        pod: Arc<Pod>,
        /// The uids of the victims, which are on the same node.
        victims: Arc<[Uid]>,
        /// The published version on which the preemption was decided, as for [`Event::AssumePod`]. The placement is
        /// checked against the current state without the victims.
        decided_on: Option<Generation>,
    },
    /// Records that the binding of an assumed pod has finished, which starts its time to live
    /// ([`Config::assumed_ttl`](crate::cache::Config::assumed_ttl)). See [`Event::finish_binding`].
    ///
    /// Rejected only if the uid is empty. A pod that is not assumed is left unchanged.
    FinishBinding {
        /// The uid of the pod.
        uid: Uid,
        /// The time at which the binding finished.
        now: Timestamp,
    },
    /// Forgets an assumed pod, for example because its binding failed. See [`Event::forget`].
    ///
    /// Rejected if the pod is not assumed or is on another node. An unknown pod is ignored.
    ForgetPod {
        /// The uid of the pod.
        uid: Uid,
        /// The node on which the pod was assumed, or `None` to skip the comparison.
        node: Option<Name>,
    },
    /// Adds a pod that is bound to a node, or confirms an assumed one. See [`Event::add_pod`].
    ///
    /// Rejected if the pod has already been added or names no node. An assumed pod that is bound to another node moves
    /// to that node.
    AddPod(Arc<Pod>),
    /// Applies a pod as a watch reports it, whatever the engine knows about it. See [`Event::put_pod`].
    ///
    /// Rejected if the object is older than the known one, or cannot be placed.
    PutPod(Arc<Pod>),
    /// Replaces the object of an added pod. See [`Event::update_pod`].
    ///
    /// Rejected if the pod is unknown, assumed, or a placeholder pod, or if the new object names another node. With
    /// [`Config::godel`](crate::cache::Config::godel), a pod in any state can be updated to any other.
    UpdatePod {
        /// The uid of the pod before the update.
        old: Uid,
        /// The new object.
        pod: Arc<Pod>,
    },
    /// Removes a pod, assumed or added, from its node. See [`Event::remove_pod`].
    ///
    /// Rejected if the pod is unknown, on another node, or a placeholder pod.
    RemovePod {
        /// The uid of the pod.
        uid: Uid,
        /// The node on which the pod was, or `None` to skip the comparison. Ignored with
        /// [`Config::godel`](crate::cache::Config::godel).
        node: Option<Name>,
    },
    /// Announces a new or changed pod that is not bound to a node. See [`Event::put_pending`].
    ///
    /// Versions do not contain pending pods. The event is passed to followers in log order
    /// ([`Follower`](super::Follower)), unless the pod is assumed or placed. With
    /// [`Config::godel`](crate::cache::Config::godel), a pod that another scheduler has assumed is removed from its
    /// node. Rejected if the pod names a node.
    PutPending(Arc<Pod>),
    /// Announces that a pod whose object names no node was deleted. See [`Event::remove_pending`].
    ///
    /// Followers are notified. If the pod is assumed, it is removed, and its resources are free immediately. Rejected
    /// only if the uid is empty. For a pod that has been bound, submit [`Event::AddPod`] instead.
    RemovePending(Uid),
    /// Adds a node, or replaces the node with the same name. See [`Event::add_node`].
    ///
    /// Rejected if the node has no name, a negative amount, or too many images or resources.
    AddNode(Arc<Node>),
    /// Replaces a node, or adds it if it is unknown. See [`Event::update_node`].
    ///
    /// Rejected for the same reasons as [`Event::AddNode`].
    UpdateNode(Arc<Node>),
    /// Removes a node. See [`Event::remove_node`].
    ///
    /// A node that still has pods remains as a ghost until its last pod is removed. Rejected if the node is unknown.
    RemoveNode(Name),
    /// Assigns a node to the partition of a scheduler instance
    /// ([`Partition::Scheduler`](crate::plugin::Partition::Scheduler)). See [`Event::assign_node`].
    ///
    /// The assignment overrides the scheduler that the Node and the NMNode name, each until that object is next updated
    /// or relisted. Rejected if the node is unknown or a ghost.
    AssignNode {
        /// The name of the node.
        node: Name,
        /// The name of the scheduler instance.
        scheduler: Name,
    },
    /// Removes a node from the partition of a scheduler instance. See [`Event::unassign_node`].
    ///
    /// A node in another partition is left unchanged. Like [`Event::AssignNode`], this lasts until the Node and the
    /// NMNode are next updated or relisted, and it is rejected for the same reasons.
    UnassignNode {
        /// The name of the node.
        node: Name,
        /// The name of the scheduler instance.
        scheduler: Name,
    },
    /// Adds or replaces an object other than a pod or a Node. See [`Event::put_object`].
    ///
    /// An object that is part of a node ([`ObjectKind::is_node_part`]) changes the node with the same name. Rejected if
    /// the object has no name, or if a Reservation cannot reserve what it claims.
    PutObject(Object),
    /// Sets the scheduling status of a pod group, as Gödel's binder does when it has bound the group's pods
    /// (`SetUnitSchedulingStatus`). See [`Event::set_group_phase`].
    ///
    /// The phase applies until the group is next put, relisted or deleted. Rejected if the group is unknown.
    SetGroupPhase {
        /// The namespace of the group.
        namespace: Name,
        /// The name of the group.
        name: Name,
        /// The new phase.
        phase: PodGroupPhase,
    },
    /// Removes an object other than a pod or a Node. See [`Event::delete_object`].
    ///
    /// Rejected if the object is unknown.
    DeleteObject(Arc<ObjectKey>),
    /// Marks a bound pod as about to be deleted by a preemptor ([`DeletionMarks`](crate::cache::DeletionMarks)). See
    /// [`Event::mark_for_deletion`].
    ///
    /// The mark expires after ten minutes, and it replaces the mark of another preemptor. Rejected if the victim is not
    /// bound or is a placeholder pod, or if the engine does not store marks.
    MarkForDeletion {
        /// The uid of the pod to be deleted.
        victim: Uid,
        /// The uid of the preemptor.
        preemptor: Uid,
        /// The time at which the lifetime of the mark starts.
        now: Timestamp,
    },
    /// Removes the mark of a pod that will not be deleted after all. See [`Event::unmark_for_deletion`].
    ///
    /// An unmarked pod is left unchanged. Rejected if another preemptor set the mark, or if the engine does not store
    /// marks.
    UnmarkForDeletion {
        /// The uid of the marked pod.
        victim: Uid,
        /// The uid of the preemptor that set the mark.
        preemptor: Uid,
    },
    /// Advances the clock, and removes the assumed pods, reservations and deletion marks that have expired. See
    /// [`Event::expire`].
    ///
    /// Never rejected.
    Expire(Timestamp),
    /// Replaces all objects of one kind with a list from the API server, and removes the objects that are not in the
    /// list. See [`Event::relist`].
    ///
    /// Never rejected as a whole: [`Applied::rejected`] contains the objects that were.
    Relist(Arc<Relist>),
    /// Changes a store that was registered with [`Config::with_store`](crate::cache::Config::with_store). See
    /// [`Event::custom`].
    ///
    /// Rejected if the store is not registered, rejects the event, panics, or has already failed. The feature `serde`
    /// cannot serialize this event, because the engine does not know its type.
    #[cfg_attr(feature = "serde", serde(skip))]
    Custom(CustomEvent),
}

const _: () = assert!(size_of::<Event>() <= 64);

impl Event {
    /// Returns the time that the event carries, or `None` if it does not depend on time.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        match self {
            Event::FinishBinding { now, .. }
            | Event::MarkForDeletion { now, .. }
            | Event::Expire(now) => Some(*now),
            _ => None,
        }
    }
}

/// The state that results from the placements of an [`Event::AssumeEach`], if its sender knows it: a scheduler that
/// decided on them one after the other has computed it already. It saves work in the writer and never changes an
/// outcome. It is empty by default and after deserialization.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Prepared(Option<Arc<Mutex<AnyState>>>);

/// A state of any type, until it is taken.
type AnyState = Option<Box<dyn Any + Send>>;

impl Prepared {
    /// Contains `state` until it is taken. The log does not know its type.
    pub(crate) fn new<T: Any + Send>(state: T) -> Prepared {
        Prepared(Some(Arc::new(Mutex::new(Some(Box::new(state))))))
    }

    /// Takes the state, if it is of this type and has not been taken yet.
    pub(crate) fn take<T: Any + Send>(&self) -> Option<Box<T>> {
        lock(self.0.as_ref()?).take()?.downcast().ok()
    }

    /// Returns a state that was taken, so that the sender's thread drops it.
    pub(crate) fn put_back<T: Any + Send>(&self, state: Box<T>) {
        if let Some(place) = &self.0 {
            *lock(place) = Some(state);
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Prepared(..)" } else { "Prepared(None)" })
    }
}

/// Identifies an object other than a pod or a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ObjectKey {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The namespace of the object; empty if the object is cluster-scoped.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

/// A complete list of the objects of one kind. A known object that is not in the list has been deleted. Of several
/// objects with one key, the first counts.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Relist {
    /// All pods that are bound to a node. Assumed pods that are not in the list stay. With
    /// [`Config::godel`](crate::cache::Config::godel), all pods in any state: a pod that is neither bound nor assumed
    /// is treated like an update to that state.
    Pods(Vec<Pod>),
    /// All nodes.
    Nodes(Vec<Arc<Node>>),
    /// All objects of the given kind.
    Objects(ObjectKind, Vec<Object>),
}

/// The result of an event that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Applied {
    /// The first generation that contains the whole event. Pass it to
    /// [`Reader::at_least`](crate::cache::Reader::at_least) to read your own write.
    pub generation: Generation,
    /// The number of objects that the event added.
    pub added: usize,
    /// The number of objects that the event changed.
    pub updated: usize,
    /// The number of objects that the event removed. For [`Event::Expire`], the number of pods that expired.
    pub removed: usize,
    /// The pods of an [`Event::AssumeEach`] that were rejected, each with its uid and the reason, in order; or the
    /// objects of a relist that were rejected, each with its key and the reason. If one of the latter has no usable key
    /// (a pod without a uid, a node without a name), the relist removed no objects.
    pub rejected: Vec<(String, EventError)>,
}

impl Applied {
    /// Counts an object that was added, or changed if it was known.
    pub(crate) fn put(&mut self, known: bool) {
        self.updated = usize::from(known);
        self.added = usize::from(!known);
    }
}

/// The outcome of an event: the result, or the reason for which the event was rejected.
pub type Outcome = Result<Applied, EventError>;
