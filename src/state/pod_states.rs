//! Pods in Gödel's four states: what an event means where a pod may be on a node
//! without naming it.
//!
//! An assumed pod counts on its node, whoever assumed it. Only what was assumed here
//! is told apart: it can be forgotten and expires; what another scheduler assumed is
//! as good as added, until its object says otherwise (scheduler/cache/cache.go,
//! `UpdatePod`).

use std::sync::Arc;

use crate::log::Applied;
use crate::model::{EventError, Pod, PodState, Uid};
use crate::snapshot::godel::Leaving;

use super::lifecycle::{Observer, State, node_of};

impl State {
    /// Whether pods may be in states that Gödel's annotations say.
    pub(super) fn has_pod_states(&self) -> bool {
        self.cluster().godel.is_some()
    }

    /// A pod changed, to or from any state. It may appear by that: as pending it was
    /// told to nobody here.
    pub(super) fn update_in_state(
        &mut self,
        old: &Uid,
        pod: &Arc<Pod>,
        applied: &mut Applied,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        let placed = self.draft.as_placed(pod);
        if placed.node_name.as_ref().is_none_or(|node| node.is_empty()) {
            return self.unplace(old, pod, applied, observer);
        }
        let known = if old.is_empty() { None } else { self.draft.pod(old) };
        match known {
            None if placed.uid == *old => {
                self.add_pod(&placed, observer)?;
                applied.added = 1;
                return Ok(());
            }
            Some(known) if known.is_assumed() && placed.uid == *old => {
                self.add_pod(&placed, observer)?;
            }
            // It was assumed elsewhere, and the binder's node is what is true.
            Some(known) if known.state() == PodState::Assumed && placed.uid == *old => {
                let spot = known.spot();
                self.draft.check_place(&placed, node_of(&placed)?, Some(spot))?;
                self.revise(spot, &placed, observer);
            }
            _ => self.update_pod(old, &placed, observer)?,
        }
        applied.updated = 1;
        Ok(())
    }

    /// A pod is on no node, its object says. An object that is older than our own
    /// assume is not believed, and nor is one of a bound pod, which stays bound.
    pub(super) fn unplace(
        &mut self,
        old: &Uid,
        pod: &Arc<Pod>,
        applied: &mut Applied,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        if old.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.check_pending(pod)?;
        let known = self.draft.pod(old).filter(|known| !self.draft.holds(known));
        let rejected = known.is_some_and(|known| {
            !known.is_assumed() && (known.state() == PodState::Assumed || pod.uid != *old)
        });
        if let (true, Some(spot)) = (rejected, known.map(|known| known.spot())) {
            let leaving = if pod.uid == *old { Leaving::Withdrawn } else { Leaving::Deleted };
            self.displace(old, spot, leaving, observer);
            applied.removed = 1;
        }
        self.put_pending(pod, observer)
    }
}
