//! What a rescheduler wants moved, and where to.

use super::{Name, OwnerKey, Timestamp, Uid};

/// A pod as a movement names it (`TaskInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MovementTask {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Uid,
    /// Its node; empty where the movement names none.
    pub node: Name,
}

/// How many pods of an owner a node should get (`RecommendedNode`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RecommendedNode {
    /// The node.
    pub node: Name,
    /// `desiredPodCount`.
    pub desired: u64,
    /// `actualPods`: those that are known to have come.
    pub actual: Box<[MovementTask]>,
}

/// Where the pods of one owner should go (`status.owners`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MovementOwner {
    /// Whose pods.
    pub owner: OwnerKey,
    /// `recommendedNodes`. Of several entries for one node the last is what counts.
    pub nodes: Box<[RecommendedNode]>,
}

/// A round of rescheduling (`Movement` of scheduling.godel.kubewharf.io): pods that a
/// rescheduler evicts, and nodes that it suggests for those that replace them. A pod
/// that uses a suggestion says so by the annotation `movement-name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Movement {
    /// Name; movements are of no namespace.
    pub name: Name,
    /// `spec.creator`: the algorithm.
    pub creator: Name,
    /// `metadata.creationTimestamp`: how long nodes wait for evicted pods to go counts
    /// from here.
    pub creation_time: Option<Timestamp>,
    /// `spec.generation`: which round of decisions it is.
    pub round: u64,
    /// `spec.deletedTasks`: the pods that are evicted.
    pub deleted: Box<[MovementTask]>,
    /// `status.owners`.
    pub owners: Box<[MovementOwner]>,
}
