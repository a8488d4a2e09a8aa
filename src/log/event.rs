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
/// Most kinds have a constructor, such as [`Event::add_node`], that lists the reasons for which the event is
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
    /// Assumes a pod. See [`Event::assume`].
    AssumePod {
        /// The pod, with its node name.
        pod: Arc<Pod>,
        /// The published version on which the placement was decided. Never pass the generation of a fork, because forks
        /// count their own generations. If this is `None` or not the current version, the placement is checked against
        /// the current state ([`CommitPolicy`](crate::cache::CommitPolicy)).
        decided_on: Option<Generation>,
        /// The scheduler's own placement of the pod, if it prepared one.
        #[cfg_attr(feature = "serde", serde(skip))]
        prepared: Prepared,
    },
    /// Assumes several pods atomically. See [`Event::assume_all`].
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
        /// The scheduler's plan of these placements, if it has one.
        #[cfg_attr(feature = "serde", serde(skip))]
        prepared: Prepared,
    },
    /// Preempts pods and assumes the preemptor on their node, atomically. See [`Event::preempt`].
    ///
    /// The event removes the victims. With [`Config::godel`](crate::cache::Config::godel), as in the cache of Gödel's
    /// schedulers, the victims instead remain on their node and are counted there until their own objects are deleted.
    /// The preemptor is assumed as a pod that is nominated to the node with these victims, and the preemption store
    /// marks them. A fork removes the victims in both cases ([`Fork::preempt`](crate::cache::Fork::preempt)).
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
    FinishBinding {
        /// The uid of the pod.
        uid: Uid,
        /// The time at which the binding finished.
        now: Timestamp,
    },
    /// Forgets an assumed pod, for example because its binding failed. See [`Event::forget`].
    ForgetPod {
        /// The uid of the pod.
        uid: Uid,
        /// The node on which the pod was assumed, or `None` to skip the comparison.
        node: Option<Name>,
    },
    /// Adds a pod that is bound to a node, or confirms an assumed one, which moves if it is bound to another node. See
    /// [`Event::add_pod`].
    AddPod(Arc<Pod>),
    /// Applies a pod as a watch reports it, whatever the engine knows about it. See [`Event::put_pod`].
    PutPod(Arc<Pod>),
    /// Replaces the object of an added pod. With [`Config::godel`](crate::cache::Config::godel), a pod in any state can
    /// be updated to any other. See [`Event::update_pod`].
    UpdatePod {
        /// The uid of the pod before the update.
        old: Uid,
        /// The new object.
        pod: Arc<Pod>,
    },
    /// Removes a pod, assumed or added, from its node. See [`Event::remove_pod`].
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
    /// node.
    PutPending(Arc<Pod>),
    /// Announces that a pod whose object names no node was deleted.
    ///
    /// Followers are notified. If the pod is assumed, it is removed, and its resources are free immediately. For a pod
    /// that has been bound, submit [`Event::AddPod`] instead. Rejected if the uid is empty (`EmptyUid`).
    RemovePending(Uid),
    /// Adds a node, or replaces the node with the same name. See [`Event::add_node`].
    AddNode(Arc<Node>),
    /// Replaces a node, or adds it if it is unknown. See [`Event::update_node`].
    UpdateNode(Arc<Node>),
    /// Removes a node. A node that still has pods remains as a ghost until its last pod is removed. Rejected if the node
    /// is unknown (`NodeNotFound`).
    RemoveNode(Name),
    /// Assigns a node to the partition of a scheduler instance
    /// ([`Partition::Scheduler`](crate::plugin::Partition::Scheduler)). See [`Event::assign_node`].
    ///
    /// The assignment overrides the scheduler that the Node and the NMNode name, each until that object is next updated
    /// or relisted.
    AssignNode {
        /// The name of the node.
        node: Name,
        /// The name of the scheduler instance.
        scheduler: Name,
    },
    /// Removes a node from the partition of a scheduler instance. See [`Event::unassign_node`].
    ///
    /// Like [`Event::AssignNode`], this lasts until the Node and the NMNode are next updated or relisted.
    UnassignNode {
        /// The name of the node.
        node: Name,
        /// The name of the scheduler instance.
        scheduler: Name,
    },
    /// Adds or replaces an object other than a pod or a Node.
    ///
    /// An object that is part of a node ([`ObjectKind::is_node_part`]) changes the node with the same name. Rejected if
    /// the object has no name (`EmptyName`); a part of a node also for the reasons of [`Event::add_node`], and a
    /// Reservation if its pod is not a placeholder (`NoPlaceholder`), is already on a node (`AlreadyAdded`), or cannot
    /// be placed.
    PutObject(Object),
    /// Sets the scheduling status of a pod group, as Gödel's binder does when it has bound the group's pods
    /// (`SetUnitSchedulingStatus`).
    ///
    /// The phase applies until the group is next put, relisted or deleted. Rejected if the group is unknown
    /// (`ObjectNotFound`).
    SetGroupPhase {
        /// The namespace of the group.
        namespace: Name,
        /// The name of the group.
        name: Name,
        /// The new phase.
        phase: PodGroupPhase,
    },
    /// Removes an object other than a pod or a Node. See [`Event::delete_object`].
    DeleteObject(Arc<ObjectKey>),
    /// Marks a bound pod as about to be deleted by a preemptor ([`DeletionMarks`](crate::cache::DeletionMarks)). See
    /// [`Event::mark_for_deletion`].
    ///
    /// The mark expires after ten minutes, and it replaces the mark of another preemptor.
    MarkForDeletion {
        /// The uid of the pod to be deleted.
        victim: Uid,
        /// The uid of the preemptor.
        preemptor: Uid,
        /// The time at which the lifetime of the mark starts.
        now: Timestamp,
    },
    /// Removes the mark of a pod that will not be deleted after all. See [`Event::unmark_for_deletion`].
    UnmarkForDeletion {
        /// The uid of the marked pod.
        victim: Uid,
        /// The uid of the preemptor that set the mark.
        preemptor: Uid,
    },
    /// Advances the clock, and removes the assumed pods, reservations and deletion marks that have expired. Never
    /// rejected.
    Expire(Timestamp),
    /// Replaces all objects of one kind with a list from the API server, and removes the objects that are not in the
    /// list.
    ///
    /// Never rejected as a whole: [`Applied::rejected`] contains the objects that were, also if they are listed twice
    /// (`ListedTwice`).
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

/// The state that results from the placements of an [`Event::AssumePod`] or [`Event::AssumeEach`], if its sender has
/// computed it. It saves work in the writer and never changes an
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
