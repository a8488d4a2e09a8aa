//! Movements: a rescheduler's decisions about which pods to evict and where their replacements should run.

use crate::model::{Name, OwnerKey, Timestamp, Uid};

/// A pod referenced by a movement (`TaskInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MovementTask {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid.
    pub uid: Uid,
    /// The node; empty if the movement names none.
    pub node: Name,
}

/// The number of pods of an owner that a node should get (`RecommendedNode`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RecommendedNode {
    /// The name of the node.
    pub node: Name,
    /// `desiredPodCount`.
    pub desired: u64,
    /// `actualPods`: the pods that are known to have been placed there.
    pub actual: Box<[MovementTask]>,
}

/// The recommended nodes for the pods of one owner (`status.owners`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MovementOwner {
    /// The owner of the pods.
    pub owner: OwnerKey,
    /// `recommendedNodes`. If several entries name one node, the last one applies.
    pub nodes: Box<[RecommendedNode]>,
}

/// A round of rescheduling (`Movement` of scheduling.godel.kubewharf.io): the pods that a rescheduler evicts, and the
/// nodes that it recommends for their replacements. A pod that uses a recommendation records it in the annotation
/// `movement-name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Movement {
    /// The name; movements are not namespaced.
    pub name: Name,
    /// `spec.creator`: the algorithm that made the decisions.
    pub creator: Name,
    /// `metadata.creationTimestamp`: the start of the period for which nodes wait for evicted pods to leave.
    pub creation_time: Option<Timestamp>,
    /// `spec.generation`: the number of the round.
    pub round: u64,
    /// `spec.deletedTasks`: the pods to evict.
    pub deleted: Box<[MovementTask]>,
    /// `status.owners`.
    pub owners: Box<[MovementOwner]>,
}
