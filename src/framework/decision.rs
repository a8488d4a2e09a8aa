//! The outcome of a scheduling cycle: a node, or why there is none.

use crate::model::Name;
use crate::snapshot::{NodeInfo, NodeSlot};

use super::{FitError, Status};

/// A node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub node: Name,
    /// Its number.
    pub slot: NodeSlot,
    /// Its total score; 0 where it was the only one.
    pub score: i64,
    /// How many nodes would do, of those looked at.
    pub feasible: usize,
    /// How many were looked at.
    pub looked_at: usize,
    /// Why it came before all others, if it did.
    pub preferred: Option<Preferred>,
}

/// Why a pod cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The cluster has no node.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// No node will do.
    #[error(transparent)]
    Fit(Box<FitError>),
    /// A plugin failed, and nothing is decided.
    #[error(transparent)]
    Plugin(#[from] Status),
}

/// Why a node came before others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preferred {
    /// A place is held there for pods like it, by this pod (`namespace/name`).
    Place(Name),
    /// This movement wants a pod of its owner there.
    Movement(Name),
}

impl Decision {
    /// A node that no stage preferred.
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
