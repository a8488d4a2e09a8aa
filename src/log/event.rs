//! What can be written to the log.

use std::sync::Arc;

use crate::model::{
    CustomEvent, EventError, Generation, Name, Node, Object, ObjectKind, Pod, PodGroupPhase,
    Timestamp, Uid,
};

/// A change of the cluster, as it happened. Small: objects are built, and their
/// requests computed and hashed, by whoever submits it.
///
/// An event carries its own clock where it needs one, so that a replay of the
/// log gives the same versions. The feature `serde` writes and reads events:
/// see [`model`](crate::model#serialization).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub enum Event {
    /// A scheduler places a pod on the node that the pod names, ahead of the
    /// API server.
    AssumePod {
        /// The pod, with its node name.
        pod: Arc<Pod>,
        /// The published version on which this was decided, and never the generation of a
        /// fork, whose numbers are its own. If it is not the current one, or
        /// none is named, the placement is checked against the state as it is
        /// ([`CommitPolicy`](crate::state::CommitPolicy)).
        decided_on: Option<Generation>,
    },
    /// The same for several pods: all of them, or none.
    AssumeAll {
        /// The pods, each with its node name.
        pods: Arc<[Pod]>,
        /// The version on which this was decided.
        decided_on: Option<Generation>,
    },
    /// A scheduler places a pod on the node that the pod names and preempts pods there,
    /// in one step: all of it, or nothing.
    ///
    /// The victims leave with this event. With [`Config::godel`](crate::Config::godel)
    /// they stay and count on their node until their own objects are gone, as in the
    /// cache of Gödel's schedulers: the pod is assumed as one that is nominated to its
    /// node and preempts them, and the store of preemption marks marks them. A fork
    /// takes victims away in both cases ([`Fork::preempt`](crate::Fork::preempt)).
    Preempt {
        /// The pod, with its node name.
        pod: Arc<Pod>,
        /// The pods that it preempts, each once and on the same node.
        victims: Arc<[Uid]>,
        /// The version on which this was decided. With it the placement is checked
        /// against the state without the victims.
        decided_on: Option<Generation>,
    },
    /// The binding of an assumed pod is done: its time to live starts.
    FinishBinding {
        /// The pod.
        uid: Uid,
        /// When.
        now: Timestamp,
    },
    /// An assumed pod is not placed after all.
    ForgetPod {
        /// The pod.
        uid: Uid,
        /// The node that it was assumed on, if the caller knows it.
        node: Option<Name>,
    },
    /// A placed pod appears; an assumed one is confirmed.
    AddPod(Arc<Pod>),
    /// A placed pod changes.
    UpdatePod {
        /// Its uid before.
        old: Uid,
        /// The pod as it is now.
        pod: Arc<Pod>,
    },
    /// A placed pod is gone.
    RemovePod {
        /// The pod.
        uid: Uid,
        /// The node that it was on, if the caller knows it.
        node: Option<Name>,
    },
    /// A pod that is on no node appears or changes. It is no part of any version:
    /// followers are told, in the order of the log ([`Follower`](super::Follower)).
    /// Of a pod that is assumed or placed nothing is told.
    PutPending(Arc<Pod>),
    /// A pod whose object names no node is deleted; followers are told. If it is assumed,
    /// that ends: its room is free at once. A pod that is bound is not deleted: submit
    /// [`Event::AddPod`] for it, and not this.
    RemovePending(Uid),
    /// A node appears.
    AddNode(Arc<Node>),
    /// A node changes.
    UpdateNode(Arc<Node>),
    /// A node is gone.
    RemoveNode(Name),
    /// A node is in the partition of a scheduler instance
    /// ([`Partition::Scheduler`](crate::framework::Partition::Scheduler)), whatever its
    /// Node and its NMNode name. This holds for each of the two until it is next
    /// updated or listed.
    AssignNode {
        /// The node.
        node: Name,
        /// The scheduler instance.
        scheduler: Name,
    },
    /// A node is in the partition of a scheduler instance no longer, likewise.
    UnassignNode {
        /// The node.
        node: Name,
        /// The scheduler instance.
        scheduler: Name,
    },
    /// An object of another kind appears or changes; one that nodes are made of
    /// ([`ObjectKind::is_node_part`]) changes the node of its name.
    PutObject(Object),
    /// The scheduling status of a pod group is set, as Gödel's binder does when it has
    /// bound its pods (`SetUnitSchedulingStatus`). It is the group's phase until the
    /// group is next put, listed or deleted.
    SetGroupPhase {
        /// The group's namespace.
        namespace: Name,
        /// The group.
        name: Name,
        /// Its phase from now on.
        phase: PodGroupPhase,
    },
    /// An object of another kind is gone.
    DeleteObject(Arc<ObjectKey>),
    /// A bound pod is about to be deleted for another one: it is marked
    /// ([`DeletionMarks`](crate::snapshot::DeletionMarks)) for ten minutes. A mark of
    /// another preemptor is replaced.
    MarkForDeletion {
        /// The pod that is about to be deleted.
        victim: Uid,
        /// The pod that preempts it.
        preemptor: Uid,
        /// When.
        now: Timestamp,
    },
    /// A pod is not deleted for a preemptor after all. Nothing happens if it is not
    /// marked.
    UnmarkForDeletion {
        /// The pod that was to be deleted.
        victim: Uid,
        /// The pod that it is marked for.
        preemptor: Uid,
    },
    /// The clock moves: assumed pods, places and marks whose time has passed are removed.
    Expire(Timestamp),
    /// All there is of one kind, as a list from the API server says.
    Relist(Arc<Relist>),
    /// A store that was registered with [`Config::with_store`](crate::Config::with_store) changes: `Event::custom`. The
    /// feature `serde` cannot write it, since its type is not known.
    #[cfg_attr(feature = "serde", serde(skip))]
    Custom(CustomEvent),
}

const _: () = assert!(size_of::<Event>() <= 64);

/// Names an object of a kind other than pod and node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ObjectKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace; empty for an object of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// All objects of one kind: what is missing here is gone.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Relist {
    /// All placed pods. With [`Config::godel`](crate::Config::godel) all pods in any
    /// state: a pod that is neither bound nor assumed is treated as an update to that
    /// state is.
    Pods(Vec<Pod>),
    /// All nodes.
    Nodes(Vec<Arc<Node>>),
    /// All objects of another kind.
    Objects(ObjectKind, Vec<Object>),
}

/// What became of an event that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Applied {
    /// The event's number: the first generation that contains it.
    pub generation: Generation,
    /// How many objects it added.
    pub added: usize,
    /// How many it changed.
    pub updated: usize,
    /// How many it removed; for [`Event::Expire`] the pods that expired.
    pub removed: usize,
    /// The objects of a relist that were refused, with the reason for each. If one of them had no usable key (a pod
    /// without uid, a node without name), nothing of that kind was removed.
    pub rejected: Vec<(String, EventError)>,
}

/// The answer to an event.
pub type Outcome = Result<Applied, EventError>;
