//! Hands pods over to the replicas that hold the shards of their nodes.
//!
//! A hand-over is one patch of `status.nominatedNodeName`, without a condition or an event. The pod returns to the
//! queue and backs off, so it is not scheduled again before the watch shows the nomination, which parks it. If the
//! patch fails, or if the pod was handed over a short time ago, the pod is scheduled again after its backoff.
//!
//! Replicas may disagree on the free resources of a node, because each knows only its own pods in flight and
//! nominations. A pod could then bounce between replicas as fast as watches deliver events. Therefore a replica hands a
//! pod over again only after a pause that doubles each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::model::{Name, Pod, Uid};
use portolan::plugin::{Nomination, ShardSet};

use super::failure::FailureReport;
use super::status::StatusWriter;
use crate::lock::lock;
use crate::seldom::warn_seldom;

/// The pause before the second hand-over of a pod.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause between two hand-overs of a pod.
const LONGEST: Duration = Duration::from_secs(60);
/// The time after which a hand-over is forgotten.
const KEPT: Duration = Duration::from_secs(120);

/// Hands pods over. Clones share their state.
#[derive(Clone)]
pub(crate) struct HandOver {
    /// The shards that this replica holds.
    shards: ShardSet,
    status: StatusWriter,
    recent: Arc<Mutex<Recent>>,
}

/// The pods that were handed over recently.
#[derive(Debug, Default)]
struct Recent {
    by_uid: HashMap<Uid, Last>,
    /// The size after the last removal of old entries.
    kept: usize,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    pause: Duration,
}

impl HandOver {
    pub(super) fn new(shards: ShardSet, status: StatusWriter) -> HandOver {
        HandOver { shards, status, recent: Arc::default() }
    }

    /// Returns whether another replica, or none, holds the node's shard.
    pub(crate) fn is_foreign(&self, node: &str) -> bool {
        !self.shards.holds_node(node)
    }

    /// Returns whether the pod belongs to a shard that this replica does not hold.
    pub(crate) fn is_foreign_pod(&self, pod: &Pod) -> bool {
        !self.shards.holds_pod(pod)
    }

    /// Removes the nomination to a node of another replica from a preemptor's report. The evictor writes it when the
    /// victims are terminating: if the other replica received the pod earlier, it would preempt, too. If the victims
    /// were terminating already, the pod is handed over when they are gone.
    pub(crate) fn withhold(&self, failure: &mut FailureReport) {
        if matches!(&failure.nomination, Nomination::Node(node) if self.is_foreign(node)) {
            failure.nomination = Nomination::Keep;
        }
    }

    /// Nominates the pod to the node, unless that was done a short time ago. Returns whether the API server has
    /// accepted the nomination.
    pub(super) async fn nominate(&self, pod: &Pod, node: &Name) -> bool {
        if !lock(&self.recent).try_acquire(&pod.uid, Instant::now()) {
            tracing::debug!(pod = %pod.name, %node, "not handed over again yet");
            return false;
        }
        match self.status.nominate(pod, node).await {
            Ok(()) => {
                tracing::debug!(pod = %pod.name, %node, "handed over to the replica of the node");
                true
            }
            Err(error) => {
                warn_seldom!(pod = %pod.name, %node, %error, "not handed over");
                false
            }
        }
    }
}

impl Recent {
    /// Returns whether the pod may be handed over now, and records the hand-over.
    fn try_acquire(&mut self, uid: &Uid, now: Instant) -> bool {
        let pause = match self.by_uid.get(uid) {
            Some(last) if now.duration_since(last.at) < last.pause => return false,
            Some(last) if now.duration_since(last.at) <= KEPT => (last.pause * 2).min(LONGEST),
            _ => FIRST,
        };
        self.by_uid.insert(uid.clone(), Last { at: now, pause });
        if self.by_uid.len() > 1_024 + 2 * self.kept {
            self.by_uid.retain(|_, last| now.duration_since(last.at) <= KEPT);
            self.kept = self.by_uid.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_hand_overs_of_a_pod_double() {
        let (mut recent, began) = (Recent::default(), Instant::now());
        let mut due =
            |uid: &str, ms: u64| recent.try_acquire(&uid.into(), began + Duration::from_millis(ms));
        let found = [0, 999, 1_000, 2_999, 3_000, 6_999, 7_000].map(|ms| due("a", ms));
        assert_eq!(found, [true, false, true, false, true, false, true]);
        assert!(due("b", 7_000), "another pod");
    }

    #[test]
    fn pods_that_were_not_handed_over_lately_are_forgotten() {
        let (mut recent, began) = (Recent::default(), Instant::now());
        for n in 0..1_024 {
            assert!(recent.try_acquire(&(*format!("u-{n}")).into(), began));
        }
        assert!(recent.try_acquire(&"new".into(), began + KEPT * 2));
        assert_eq!(recent.by_uid.len(), 1);
    }
}
