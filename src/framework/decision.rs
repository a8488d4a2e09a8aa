//! The outcome of a scheduling decision: a node, or why there is none.

use crate::model::Name;
use crate::snapshot::{NodeInfo, NodeSlot};

use super::{FitError, Status};

/// The decision to place a pod on a node (schedule_one.go `ScheduleResult`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub node: Name,
    /// The node's slot.
    pub slot: NodeSlot,
    /// The node's total score; 0 if the node was the only feasible one.
    pub score: i64,
    /// The number of feasible nodes among the examined ones.
    pub feasible: usize,
    /// The number of nodes examined.
    pub looked_at: usize,
    /// Why the node took precedence over all others, if it did.
    pub preferred: Option<Preferred>,
}

/// Why a pod cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The cluster has no nodes.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// No node is feasible.
    #[error(transparent)]
    Fit(Box<FitError>),
    /// A plugin failed, so no decision was made.
    #[error(transparent)]
    Plugin(#[from] Status),
}

/// Why a node took precedence over others (Gödel).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preferred {
    /// The pod uses a reservation on the node, which this placeholder pod (`namespace/name`) holds.
    Place(Name),
    /// The movement of this name requests a pod of the same owner on the node.
    Movement(Name),
}

impl Decision {
    /// Creates a decision for a node that took no precedence.
    pub(super) fn of(
        node: NodeInfo<'_>,
        score: i64,
        feasible: usize,
        looked_at: usize,
    ) -> Decision {
        let (node, slot) = (node.name().clone(), node.slot());
        Decision { node, slot, score, feasible, looked_at, preferred: None }
    }
}
