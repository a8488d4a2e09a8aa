//! Preemption: replacing victims by a pod in one event.

use crate::model::{EventError, Name, Pod, Uid};
use crate::snapshot::draft::Draft;
use crate::snapshot::draft::node_of;
use crate::snapshot::godel::Leaving;

use super::lifecycle::{Age, State, other_node};

impl State {
    /// Checks the placement on a fork without the victims, then applies it, and returns the number of victims removed.
    /// In Gödel's cache no victim is removed: `AssumePod` removes victims only from snapshots
    /// (scheduler/cache/commonstores/node_store), and the preemptor's annotation marks them (preemption_store). O((1 +
    /// victims) × log n).
    pub(super) fn preempt(
        &mut self,
        pod: &Pod,
        victims: &[Uid],
        age: Age,
    ) -> Result<usize, EventError> {
        let node = node_of(pod)?;
        if self.draft.pod(&pod.uid).is_some() {
            return Err(EventError::AlreadyInCache { uid: pod.uid.clone() });
        }
        let mut trial = Draft::fork(self.cluster());
        for victim in victims {
            take_victim(&mut trial, victim, node)?;
        }
        let pod = &*self.draft.nominated(pod, node, victims);
        self.check_assume(&trial, pod, age)?;
        if self.has_pod_states() {
            // The pod is counted in addition to its victims.
            self.draft.check_place(pod, node, None)?;
            self.place(pod, None, true);
            return Ok(0);
        }
        for victim in victims {
            if let Some(pod_ref) = self.draft.pod(victim).map(|known| known.pod_ref()) {
                self.displace(victim, pod_ref, Leaving::Deleted);
            }
        }
        self.place(pod, None, true);
        Ok(victims.len())
    }
}

/// Removes a victim from the trial. A victim that is listed twice is not found the second time.
fn take_victim(trial: &mut Draft, victim: &Uid, node: &Name) -> Result<(), EventError> {
    if victim.is_empty() {
        return Err(EventError::EmptyUid);
    }
    let Some(known) = trial.pod(victim) else {
        return Err(EventError::NotFound { uid: victim.clone() });
    };
    if trial.holds(&known) {
        return Err(EventError::HoldsPlace { uid: victim.clone() });
    }
    let actual = known.node().name();
    if actual != node {
        return Err(other_node(victim, actual, node));
    }
    let pod_ref = known.pod_ref();
    trial.displace(pod_ref);
    Ok(())
}
