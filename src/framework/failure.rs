//! Why a pod, or a gang, was not placed.

use crate::model::EventError;

use super::{AttemptResult, FitError, Nomination, Status};

/// Why a pod, or a gang of pods, was not placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The cluster has no nodes.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// No node is feasible, or Reserve or Permit rejected the node that was chosen.
    #[error(transparent)]
    Fit(Box<FitError>),
    /// A plugin failed, so no decision was made.
    #[error(transparent)]
    Plugin(#[from] Status),
    /// The engine refused the pod on its node, or too many attempts ended in conflicts.
    #[error(transparent)]
    Refused(EventError),
    /// The pod names a scheduler that has no profile here.
    #[error("no profile for scheduler {0:?}: add one, or leave the pod to that scheduler")]
    NoProfile(String),
    /// The pod itself is feasible, but its pod group was not placed. Carries what the group waits for.
    #[error("pod group is unschedulable, {0}")]
    PodGroup(String),
    /// Too few members of a gang fit on a node.
    #[error("{found} of {wanted} members find a node{}", because(.first))]
    TooFew {
        /// The number of members that fit on a node.
        found: usize,
        /// The number of members required.
        wanted: usize,
        /// The failure of the first member that does not fit.
        first: Option<Box<Failure>>,
    },
    /// A gang has fewer members than must be placed.
    #[error("waiting for minCount pods from a gang to appear in scheduling queue: {0} of {1}")]
    Incomplete(usize, usize),
    /// The members of a gang name different schedulers.
    #[error(
        "members name the schedulers {0:?} and {1:?}: give all pods of a group the same \
         schedulerName"
    )]
    SeveralSchedulers(String, String),
    /// No decision could be made for a member of a gang, or a plugin did not permit it.
    #[error("pod {name:?}: {failure}")]
    Member {
        /// The member's index among the given pods.
        position: usize,
        /// The member's namespace and name.
        name: String,
        /// The member's failure.
        failure: Box<Failure>,
    },
    /// The engine is closed.
    #[error("the engine is closed: no more pods can be placed")]
    Closed,
    /// The calling thread is inside `Engine::with_writer`.
    #[error("this thread holds the writer and would wait for itself: schedule after releasing it")]
    OwnThread,
}

impl Failure {
    /// Creates the failure of a pod that a plugin rejected on its node, or for which the plugin failed.
    pub(crate) fn rejected(status: Status) -> Failure {
        match status.code.is_rejection() {
            // Kube-scheduler clears the nomination of a pod that Reserve or Permit rejects.
            true => Failure::Fit(Box::new(FitError {
                nomination: Nomination::Clear,
                ..FitError::of_node(status)
            })),
            false => Failure::Plugin(status),
        }
    }

    /// Returns the attempt's result as kube-scheduler's metrics label it.
    #[must_use]
    pub(crate) fn result(&self) -> AttemptResult {
        match self {
            Failure::Fit(_)
            | Failure::NoNodes
            | Failure::TooFew { .. }
            | Failure::Incomplete(..) => AttemptResult::Unschedulable,
            Failure::Member { failure, .. } => failure.result(),
            _ => AttemptResult::Error,
        }
    }

    /// Returns the reasons by number of nodes if no node was feasible, or if Reserve or Permit rejected the chosen one.
    #[must_use]
    pub fn fit(&self) -> Option<&FitError> {
        match self {
            Failure::Fit(error) => Some(error),
            _ => None,
        }
    }
}

fn because(first: &Option<Box<Failure>>) -> String {
    first.as_ref().map(|first| format!(": {first}")).unwrap_or_default()
}
