//! Pods in Gödel's four states: the meaning of events for pods that may be on a node without naming it.
//!
//! An assumed pod is counted on its node, whichever scheduler assumed it. Only pods assumed by this scheduler are
//! distinguished: they can be forgotten, and they expire. A pod assumed by another scheduler is treated as added until
//! its object changes (scheduler/cache/cache.go, `UpdatePod`).

use std::sync::Arc;

use crate::log::Applied;
use crate::model::{EventError, Name, Pod, PodState, Uid};
use crate::snapshot::godel::Leaving;

use crate::snapshot::draft::node_of;
use crate::state::lifecycle::{State, other_node};

impl State {
    /// Returns `true` if pods may be in the states given by Gödel's annotations.
    pub(in crate::state) fn has_pod_states(&self) -> bool {
        self.cluster().godel.is_some()
    }

    /// Applies an update of a pod to or from any state. The pod may be unknown, because pending pods are not stored
    /// here. If the uid changed, the pod with the old uid is removed, and followers that know it as pending are
    /// notified.
    pub(in crate::state) fn update_in_state(
        &mut self,
        old: &Uid,
        pod: &Arc<Pod>,
        applied: &mut Applied,
    ) -> Result<(), EventError> {
        let placed = self.draft.as_placed(pod);
        let Ok(node) = node_of(&placed) else {
            return self.unplace(old, pod, applied);
        };
        if old.is_empty() {
            return Err(EventError::EmptyUid);
        }
        if placed.uid != *old {
            self.supersede(old, &placed, node, applied)?;
            self.not_pending(old);
            return Ok(());
        }
        match self.draft.pod(old) {
            None => {
                self.add_pod(&placed)?;
                applied.added = 1;
                return Ok(());
            }
            Some(known) if known.is_assumed() => {
                self.add_pod(&placed)?;
            }
            // Another scheduler assumed the pod, and the binder's choice of node is authoritative.
            Some(known) if known.state() == PodState::Assumed => {
                let pod_ref = known.pod_ref();
                self.draft.check_place(&placed, node, Some(pod_ref))?;
                self.revise(pod_ref, &placed);
            }
            Some(_) => self.update_pod(old, &placed)?,
        }
        applied.updated = 1;
        Ok(())
    }

    /// Removes the pod with the old uid, whichever scheduler assumed it and wherever it was, and places `pod`, which
    /// has another uid, on `node`.
    fn supersede(
        &mut self,
        old: &Uid,
        pod: &Pod,
        node: &Name,
        applied: &mut Applied,
    ) -> Result<(), EventError> {
        let (gone, known) = (self.draft.pod(old), self.draft.pod(&pod.uid));
        for (uid, held) in [(old, gone), (&pod.uid, known)] {
            if held.is_some_and(|held| self.draft.holds(&held)) {
                return Err(EventError::HoldsPlace { uid: uid.clone() });
            }
        }
        if let Some(known) = known.filter(|known| known.state() == PodState::Bound)
            && known.node().name() != node
        {
            return Err(other_node(&pod.uid, known.node().name(), node));
        }
        let (gone, known) = (gone.map(|gone| gone.pod_ref()), known.map(|known| known.pod_ref()));
        // A new reservation takes over the resources of the pod.
        let leaves = gone.filter(|gone| !self.draft.is_succeeded(*gone));
        self.draft.check_place(pod, node, known.or(leaves))?;
        if let Some(gone) = gone {
            self.displace(old, gone, Leaving::Deleted);
        }
        // The removal may have moved the pod within the list of its node's pods.
        match self.draft.pod(&pod.uid).map(|known| known.pod_ref()) {
            Some(known) => {
                self.clear_deadline(&pod.uid);
                self.revise(known, pod);
            }
            None => self.place(pod, None, false),
        }
        if gone.is_some() || known.is_some() {
            applied.updated = 1;
        } else {
            applied.added = 1;
        }
        Ok(())
    }

    /// Applies an object whose pod is not on a node. An object that is older than this scheduler's own assume is
    /// ignored, and a bound pod stays bound. An object with another uid is not older: the pod with the old uid no
    /// longer exists.
    pub(in crate::state) fn unplace(
        &mut self,
        old: &Uid,
        pod: &Arc<Pod>,
        applied: &mut Applied,
    ) -> Result<(), EventError> {
        if old.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.check_pending(pod)?;
        let is_renewed = pod.uid != *old;
        let known = self.draft.pod(old).filter(|known| !self.draft.holds(known));
        let is_known = known.is_some();
        let leaves = known.filter(|known| {
            is_renewed || (!known.is_assumed() && known.state() == PodState::Assumed)
        });
        if let Some(pod_ref) = leaves.map(|known| known.pod_ref()) {
            let leaving = if is_renewed { Leaving::Deleted } else { Leaving::Withdrawn };
            self.displace(old, pod_ref, leaving);
            applied.removed += 1;
        }
        if is_known {
            // A bound pod stays bound here, but its deletion mark is removed (deleted_marker_store.go `UpdatePod`).
            self.draft.unmark(&pod.uid);
        }
        if is_renewed {
            self.not_pending(old);
        }
        self.put_pending(pod)
    }
}
