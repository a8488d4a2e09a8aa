//! Plans: what follows from a version if the placements that a scheduler has decided on are accepted.
//!
//! A scheduler that decides on several pods in turn shows each of them the pods before it. It does so on a plan, which
//! is a fork that the writer can adopt: if no other event came in between, the plan's tree is the next version, and the
//! writer does not place the pods again. Each placement of a plan takes the generation that its event will take, so an
//! adopted plan equals the version that the same events lead to one by one, generations included.
//!
//! Two schedulers may plan from one version, so a generation of a plan is not unique until the plan is adopted. Caches
//! of values that depend on a chunk and its generation therefore note which plan they follow, and drop the newer values
//! of a plan that came to nothing ([`PerChunk`](super::PerChunk)).

use std::ops::Deref;
use std::sync::Arc;

use crate::freeing;
use crate::model::{EventError, Generation, Pod, key_hash};
use crate::sync::{AtomicBool, Ordering};

use super::chunk::NodeSlot;
use super::cluster::{Cluster, Snapshot};
use super::draft::{Draft, node_of};
use super::lane::TemplateId;

/// Identifies a plan, and says what became of it.
#[derive(Debug)]
pub(crate) struct PlanId {
    /// The generation of the version that the plan starts at.
    pub(crate) since: Generation,
    is_adopted: AtomicBool,
}

impl PlanId {
    /// Returns whether the plan's generations are those of the writer.
    pub(crate) fn is_adopted(&self) -> bool {
        // Relaxed: who reads a version that contains the plan has synchronized with its publication, which comes after
        // the store in `Draft::adopt`. For anybody else the answer `false` is correct, too.
        self.is_adopted.load(Ordering::Relaxed)
    }
}

/// Placements on top of a version, in order.
pub(crate) struct Plan {
    draft: Draft,
    id: Arc<PlanId>,
    /// The node and the template of each placed pod.
    placed: Vec<(NodeSlot, TemplateId)>,
}

impl Plan {
    /// Starts a plan at a version of the writer. `None` for a fork, and with Gödel semantics, where placing a pod has
    /// consequences that only the writer knows. O(1).
    pub(crate) fn new(base: &Cluster) -> Option<Plan> {
        if base.branch != 0 || base.plan.is_some() || base.godel.is_some() {
            return None;
        }
        let since = base.generation();
        let id = Arc::new(PlanId { since, is_adopted: AtomicBool::new(false) });
        let mut draft = Draft::fork(base);
        draft.cluster.branch = base.branch;
        draft.cluster.plan = Some(id.clone());
        Some(Plan { draft, id, placed: Vec::new() })
    }

    /// Returns the current state of the plan. O(1).
    pub(crate) fn freeze(&self) -> Snapshot {
        self.draft.freeze()
    }

    /// Assumes a pod on the node that it names. O(log n).
    ///
    /// # Errors
    ///
    /// Returns the reasons of [`Draft::check_assume`]. The plan is unchanged then.
    pub(crate) fn assume(&mut self, pod: &Pod) -> Result<(), EventError> {
        let slot = self.draft.check_assume(pod)?;
        let node = node_of(pod)?;
        let made = freeing::made();
        self.draft.begin(self.draft.cluster.generation().next());
        if let Some(slot) = self.draft.place(pod, node, slot, true) {
            let last =
                self.draft.cluster.at_slot(slot).and_then(|node| node.lane().pods.records().last());
            self.placed.extend(last.map(|record| (slot, record.template)));
        }
        self.draft.cluster.made += freeing::made().wrapping_sub(made);
        Ok(())
    }
}

impl Deref for Plan {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.draft.cluster
    }
}

impl Draft {
    /// Returns whether the plan is for this state and for these pods, and whether adopting it wastes no numbers.
    fn can_adopt(&self, plan: &Plan, pods: &[Arc<Pod>]) -> bool {
        let (own, other) = (&self.cluster, &plan.draft.cluster);
        Arc::ptr_eq(&own.rest.leases, &other.rest.leases)
            && plan.id.since.next() == own.generation()
            && plan.placed.len() == pods.len()
            // A plan does not know which numbers are free, so it takes new ones.
            && (triomphe::Arc::ptr_eq(&own.rest, &other.rest) || self.has_no_free_numbers())
    }

    /// Makes a plan the current state, without placing its pods again, and calls `placed` with each pod and its node.
    /// This draft must be at the first generation of the plan and otherwise in the state that the plan starts at. Every
    /// pod is entered in the index of uids; nothing else is done again. O(pods).
    ///
    /// # Errors
    ///
    /// Returns the plan if it is for another state or for other pods.
    pub(crate) fn adopt(
        &mut self,
        plan: Box<Plan>,
        pods: &[Arc<Pod>],
        mut placed: impl FnMut(&Pod, NodeSlot),
    ) -> Result<(), Box<Plan>> {
        if !self.can_adopt(&plan, pods) {
            return Err(plan);
        }
        let Plan { draft, id, placed: places } = *plan;
        let mut planned = draft.cluster;
        // Only the writer changes the index of uids that all versions share.
        std::mem::swap(&mut planned.uids, &mut self.cluster.uids);
        planned.plan = None;
        self.cluster = planned;
        for (pod, (slot, template)) in pods.iter().zip(places) {
            let (key, _) = pod.uid.key();
            self.cluster.uids.insert(key_hash(key), slot.0, &mut self.departures);
            self.use_template(template);
            placed(pod, slot);
        }
        // Relaxed: see `PlanId::is_adopted`.
        id.is_adopted.store(true, Ordering::Relaxed);
        Ok(())
    }
}
