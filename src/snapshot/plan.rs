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
use crate::model::{EventError, Generation, Pod, Template, key_hash};
use crate::sync::{AtomicBool, Ordering};

use super::chunk::{NodeSlot, Place};
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
    /// The number of child slots in the tree nodes that were allocated for the plan.
    made: u64,
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
        Some(Plan { draft, id, placed: Vec::new(), made: 0 })
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
        let made = freeing::made().wrapping_sub(made);
        self.made += made;
        self.draft.cluster.made += made;
        Ok(())
    }
}

impl Deref for Plan {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.draft.cluster
    }
}

/// The chunks of a plan in which nothing but the plan has happened, to be taken over in place of the draft's own.
pub(crate) struct Grafts {
    plan: Box<Plan>,
    /// The numbers of the chunks, sorted, each with whether it was taken over.
    chunks: Vec<(u32, bool)>,
}

impl Grafts {
    /// Returns the plan, for its owner to drop.
    pub(crate) fn into_plan(self) -> Box<Plan> {
        self.plan
    }

    fn position(&self, chunk: u32) -> Option<usize> {
        self.chunks.binary_search_by_key(&chunk, |(chunk, _)| *chunk).ok()
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
        let Plan { draft, id, placed: places, .. } = *plan;
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

    /// Finds the chunks of a plan that can be taken over, although other events came in between: those that these events
    /// did not change, and all of whose pods are unknown and of templates for which `is_local` returns `true`. The
    /// plan must be for these pods. O(pods × log n).
    pub(crate) fn grafts(
        &self,
        plan: Box<Plan>,
        pods: &[Arc<Pod>],
        mut is_local: impl FnMut(&Pod) -> bool,
    ) -> Result<Grafts, Box<Plan>> {
        let (own, other) = (&self.cluster, &plan.draft.cluster);
        let is_same_line = Arc::ptr_eq(&own.rest.leases, &other.rest.leases)
            && own.layout() == other.layout()
            && plan.placed.len() == pods.len();
        // Taking a chunk over must not fail halfway for want of numbers.
        if !is_same_line || own.custom.is_some() || self.check_room().is_err() {
            return Err(plan);
        }
        let is_unchanged = |chunk| {
            let newest = own.chunks.get_newest(chunk).map(|(_, newest)| newest);
            newest.is_some_and(|newest| newest <= plan.id.since)
        };
        // Pods of one template are mostly next to each other.
        let mut last: Option<(&Arc<Template>, bool)> = None;
        let mut chunks: Vec<(u32, bool)> = Vec::with_capacity(pods.len());
        for (pod, (slot, _)) in pods.iter().zip(&plan.placed) {
            let Some(place) = own.rest.places.get(slot.0) else { return Err(plan) };
            let known = last.filter(|(template, _)| **template == pod.template);
            let (_, is_local) = known.unwrap_or_else(|| (&pod.template, is_local(pod)));
            last = Some((&pod.template, is_local));
            let can_be_taken =
                is_local && is_unchanged(place.chunk) && self.pod(&pod.uid).is_none();
            chunks.push((place.chunk, !can_be_taken));
        }
        // A chunk is taken over with all of its pods or not at all.
        chunks.sort_unstable_by_key(|(chunk, is_excluded)| (*chunk, !is_excluded));
        chunks.dedup_by_key(|(chunk, _)| *chunk);
        chunks.retain(|(_, is_excluded)| !is_excluded);
        Ok(Grafts { plan, chunks })
    }

    /// Places the `n`-th pod of the plan by taking over its chunk, and returns its node. `None` if the chunk cannot be
    /// taken over, or if no number is left for the pod's template. O(log n).
    pub(crate) fn graft(&mut self, grafts: &mut Grafts, n: usize, pod: &Pod) -> Option<NodeSlot> {
        let (slot, planned) = *grafts.plan.placed.get(n)?;
        let Place { chunk, lane } = *self.cluster.rest.places.get(slot.0)?;
        let at = grafts.position(chunk)?;
        let template = self.acquire_template(&pod.template)?;
        let generation = self.cluster.generation();
        let is_taken = std::mem::replace(&mut grafts.chunks[at].1, true);
        if !is_taken {
            self.cluster.made += std::mem::take(&mut grafts.plan.made);
            let others = &mut grafts.plan.draft.cluster.chunks;
            self.cluster.chunks.exchange(others, chunk, generation);
        }
        self.cluster.chunks.update(chunk, generation, |chunk| {
            chunk.requested_mut().generation[lane] = generation;
            if template != planned {
                let (key, text) = pod.uid.key();
                let pods = &mut chunk.lane_mut(lane).pods;
                if let Some(index) = pods.find(key, text) {
                    pods.set_template(index, template);
                }
            }
        });
        self.count_placed(pod, slot, true);
        Some(slot)
    }
}
