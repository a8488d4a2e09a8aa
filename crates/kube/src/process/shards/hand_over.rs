//! Hands pods over to the replicas that hold the shards of their nodes.
//!
//! A hand-over is one patch of `status.nominatedNodeName`, without a condition or an event. The pod returns to the
//! queue and backs off, so it is not scheduled again before the watch shows the nomination, which parks it. If the
//! patch fails, or if the pod was handed over a short time ago, the pod is scheduled again after its backoff.

use portolan::model::{Name, Pod};
use portolan::plugin::Nomination;

use crate::seldom::warn_seldom;
use crate::write::{ApiBinder, FailureReport, HandOverPace};

/// Hands pods over. Clones share their state.
#[derive(Clone)]
pub(in crate::process) struct HandOver {
    pace: HandOverPace,
    binder: ApiBinder,
}

impl HandOver {
    pub(in crate::process) fn new(pace: HandOverPace, binder: ApiBinder) -> HandOver {
        HandOver { pace, binder }
    }

    /// Returns whether another replica, or none, holds the node's shard.
    pub(in crate::process) fn is_foreign(&self, node: &str) -> bool {
        self.pace.is_foreign(node)
    }

    /// Returns whether the pod belongs to a shard that this replica does not hold.
    pub(in crate::process) fn is_foreign_pod(&self, pod: &Pod) -> bool {
        !self.pace.shards().holds_pod(pod)
    }

    /// Removes the nomination to a node of another replica from a preemptor's report. The evictor writes it when the
    /// victims are terminating: if the other replica received the pod earlier, it would preempt, too. If the victims
    /// were terminating already, the pod is handed over when they are gone.
    pub(in crate::process) fn withhold(&self, failure: &mut FailureReport) {
        if matches!(&failure.nomination, Nomination::Node(node) if self.is_foreign(node)) {
            failure.nomination = Nomination::Keep;
        }
    }

    /// Nominates the pod to the node, unless that was done a short time ago. Returns whether the API server has
    /// accepted the nomination. Blocks.
    pub(in crate::process) fn nominate(&self, pod: &Pod, node: &Name) -> bool {
        if !self.pace.try_acquire(&pod.uid) {
            tracing::debug!(pod = %pod.name, %node, "not handed over again yet");
            return false;
        }
        match self.binder.hand_over(pod, node) {
            Ok(()) => {
                tracing::debug!(pod = %pod.name, %node, "handed over to the replica of the node");
                true
            }
            Err(error) => {
                warn_seldom!(pod = %pod.name, %node, error, "not handed over");
                false
            }
        }
    }
}
