//! Plans: the state that follows from a version if the placements that a scheduler has decided on are accepted.
//!
//! A scheduler that decides on several pods one after the other shows each of them the pods before it. It does so on a
//! plan, which is a fork that the writer can adopt: if no other event came in between, the plan's tree is the next
//! version, and the writer does not place the pods again. Each placement of a plan takes the generation that its event
//! will take, so an adopted plan equals the version that the same events lead to one by one, generations included.
//!
//! If other events did come in between, the writer takes over the chunks of the plan that these events left alone, and
//! places the other pods again.
//!
//! Two schedulers may plan from one version, so a generation of a plan is not unique until the plan is adopted. Caches
//! of values that depend on a chunk and its generation therefore note which plan they follow. When it has ended, they
//! renumber the values of the chunks that were taken over, and drop those of the others
//! ([`PerChunk`](super::PerChunk)).

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::freeing;
use crate::model::{EventError, Generation, Pod, Template};
use crate::sync::mutated;

use super::chunk::{Chunk, NodeSlot};
use super::cluster::{Cluster, Snapshot};
use super::draft::{Draft, node_of};
use super::lane::TemplateId;

/// The result of [`CommitCheck::check_unchanged`](crate::cache::CommitCheck::check_unchanged).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recheck {
    /// All placements are still valid, because the check reads only the node and the pod's template.
    Valid,
    /// Whether the placement on each node is still valid, in order. A valid placement must remain valid when pods for
    /// which the check returns this or [`Recheck::Valid`] are placed on other nodes.
    Each(Vec<bool>),
    /// Each placement must be checked after those before it.
    OneByOne,
}

/// Identifies a plan, and records its outcome.
#[derive(Debug)]
pub(crate) struct PlanId {
    /// The generation of the version that the plan starts at.
    pub(crate) since: Generation,
    outcome: OnceLock<PlanOutcome>,
}

/// The outcome of a plan in the writer.
#[derive(Debug)]
enum PlanOutcome {
    /// The generations of the plan are the writer's.
    Adopted,
    /// These chunks were taken over, in order of their numbers.
    Grafted(Vec<Grafted>),
}

/// A chunk that was taken over from a plan.
#[derive(Clone, Copy, Debug)]
struct Grafted {
    chunk: u32,
    /// The generation that last touched the chunk, in the plan and in the version that took it over.
    planned: Generation,
    now: Generation,
}

impl PlanId {
    /// Returns whether the plan's generations are those of the writer.
    pub(crate) fn is_adopted(&self) -> bool {
        matches!(self.outcome.get(), Some(PlanOutcome::Adopted))
    }

    /// Returns the writer's generation of a chunk that was last touched by the plan at `planned` and that was taken
    /// over in this state.
    pub(crate) fn renumbered(&self, chunk: u32, planned: Generation) -> Option<Generation> {
        let Some(PlanOutcome::Grafted(grafted)) = self.outcome.get() else { return None };
        let at = grafted.binary_search_by_key(&chunk, |of| of.chunk).ok()?;
        Some(grafted[at]).filter(|of| of.planned == planned).map(|of| of.now)
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
        let id = Arc::new(PlanId { since, outcome: OnceLock::new() });
        let mut draft = Draft::fork(base);
        draft.cluster.branch = base.branch;
        draft.cluster.plan = Some(id.clone());
        Some(Plan { draft, id, placed: Vec::new(), made: 0 })
    }

    /// Returns the current state of the plan. O(1).
    pub(crate) fn freeze(&self) -> Snapshot {
        self.draft.freeze()
    }

    /// Assumes a pod on the node that it names. `expected` is probably that node's slot; if it is not, the node is
    /// looked up by name. O(log n).
    ///
    /// # Errors
    ///
    /// Returns the reasons of [`Draft::check_assume`]. The plan is unchanged then.
    pub(crate) fn assume(&mut self, pod: &Pod, expected: NodeSlot) -> Result<(), EventError> {
        let slot = self.draft.check_assume(pod, Some(expected))?;
        let node = node_of(pod)?;
        let made = freeing::made();
        self.draft.begin(self.draft.cluster.generation().next());
        self.placed.extend(self.draft.place(pod, node, slot, true));
        self.made += freeing::made().wrapping_sub(made);
        Ok(())
    }
}

impl Deref for Plan {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.draft.cluster
    }
}

/// The chunks of a plan that no other event has changed. They replace the draft's chunks.
pub(crate) struct Grafts {
    plan: Box<Plan>,
    /// The chunk numbers, sorted. Once a chunk is taken over, its last generation in the plan is stored beside it.
    chunks: Vec<(u32, Option<Generation>)>,
}

impl Grafts {
    /// Records the outcome of the plan, and returns it for its owner to drop. `draft` has taken the chunks over.
    pub(crate) fn finish(self, draft: &Draft) -> Box<Plan> {
        let taken = self.chunks.iter().filter_map(|(chunk, planned)| {
            let (_, now) = draft.cluster.chunks.get_newest(*chunk)?;
            Some(Grafted { chunk: *chunk, planned: (*planned)?, now })
        });
        let _ = self.plan.id.outcome.set(PlanOutcome::Grafted(taken.collect()));
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
        own.lineage() == other.lineage()
            && (plan.id.since.next() == own.generation() || mutated!("plan-adopted-late"))
            && plan.placed.len() == pods.len()
            && !pods.is_empty()
            // A plan does not know which numbers are free, so it takes new ones.
            && (triomphe::Arc::ptr_eq(&own.rest, &other.rest) || self.has_no_free_numbers())
    }

    /// Makes a plan the current state, without placing its pods again.
    /// This draft must be at the first generation of the plan and otherwise in the state that the plan starts at. Every
    /// pod is entered in the index of pods; nothing else is done again. O(pods).
    ///
    /// # Errors
    ///
    /// Returns the plan if it is for another state or for other pods.
    pub(crate) fn adopt(&mut self, plan: Box<Plan>, pods: &[Arc<Pod>]) -> Result<(), Box<Plan>> {
        if !self.can_adopt(&plan, pods) {
            return Err(plan);
        }
        let Plan { draft, id, placed: places, made } = *plan;
        let mut planned = draft.cluster;
        // The writer may have allocated since the version was frozen, when it moved the horizon.
        planned.made = self.cluster.made + made;
        // Only the writer changes the index of pods that all versions share.
        std::mem::swap(&mut planned.lookup, &mut self.cluster.lookup);
        planned.plan = None;
        self.cluster = planned;
        for (pod, (slot, template)) in pods.iter().zip(places) {
            self.index_pod(pod, slot);
            self.use_template(template);
        }
        let _ = id.outcome.set(PlanOutcome::Adopted);
        Ok(())
    }

    /// Finds the chunks of a plan that can be taken over after other events. These events must not have changed the
    /// chunk, its pods must be unknown and still fit, and no check of an earlier pod may read it. Pods that concern a
    /// custom store are checked individually. The plan must be for
    /// these pods. `check` checks the placements of pods of one template. O(pods × log n).
    pub(crate) fn grafts(
        &self,
        plan: Box<Plan>,
        pods: &[Arc<Pod>],
        mut check: impl FnMut(&Pod, &[NodeSlot]) -> Recheck,
    ) -> Result<Grafts, Box<Plan>> {
        let (own, other) = (&self.cluster, &plan.draft.cluster);
        let is_same_line = own.lineage() == other.lineage()
            && own.layout() == other.layout()
            && plan.placed.len() == pods.len();
        // Taking a chunk over must not fail halfway because no numbers are left.
        if !is_same_line || self.check_room().is_err() {
            return Err(plan);
        }
        let is_unchanged = |chunk| {
            let newest = own.chunks.get_newest(chunk).map(|(_, newest)| newest);
            newest.is_some_and(|newest| newest <= plan.id.since || mutated!("graft-over-changes"))
        };
        let is_new = |uid| self.pod(uid).is_none() || mutated!("graft-twice");
        let mut candidates: Vec<Candidate> = Vec::with_capacity(pods.len());
        let mut placed = plan.placed.iter();
        let mut nodes = Vec::with_capacity(pods.len());
        // Once one pod has to be checked individually, so do all pods after it.
        let mut is_one_by_one = false;
        for run in pods.chunk_by(|a, b| a.template == b.template) {
            let template = &run[0].template;
            let has_numbers = has_equal_numbers(own, other, template);
            // A store may have changed since the plan began.
            is_one_by_one |= own.concerns_stores(template, plan.id.since);
            let start = candidates.len();
            nodes.clear();
            for (pod, (slot, number)) in run.iter().zip(&mut placed) {
                let Some(place) = own.rest.places.get(slot.0) else { return Err(plan) };
                let can_be_taken = has_numbers
                    && is_unchanged(place.chunk)
                    && is_new(&pod.uid)
                    && !could_be_mistaken(own, other, place.chunk, *number, &pod.template);
                // The node itself is not read: that would cost a cache miss for each pod.
                nodes.extend(can_be_taken.then_some(*slot));
                candidates.push(Candidate {
                    chunk: place.chunk,
                    last: candidates.len(),
                    first_dependent: usize::MAX,
                    can_be_taken,
                });
            }
            let result = match is_one_by_one {
                true => Recheck::OneByOne,
                false => check(&run[0], &nodes),
            };
            let valid = match result {
                Recheck::Valid => continue,
                Recheck::Each(valid) => valid,
                Recheck::OneByOne => {
                    is_one_by_one = true;
                    Vec::new()
                }
            };
            let mut valid = valid.into_iter();
            for pod in &mut candidates[start..] {
                pod.first_dependent = pod.last;
                pod.can_be_taken = pod.can_be_taken && valid.next() == Some(true);
            }
        }
        let chunks = Candidate::chosen(candidates).into_iter().map(|chunk| (chunk, None));
        Ok(Grafts { plan, chunks: chunks.collect() })
    }

    /// Places the `n`-th pod of the plan by taking over its chunk. Returns `false` if the chunk cannot be taken over,
    /// or if no number is left for the pod's template. O(log n).
    pub(crate) fn graft(&mut self, grafts: &mut Grafts, n: usize, pod: &Pod) -> bool {
        self.try_graft(grafts, n, pod).is_some()
    }

    fn try_graft(&mut self, grafts: &mut Grafts, n: usize, pod: &Pod) -> Option<()> {
        let (slot, planned) = *grafts.plan.placed.get(n)?;
        let place = *self.cluster.rest.places.get(slot.0)?;
        let (chunk, lane) = (place.chunk, place.lane());
        let at = grafts.position(chunk)?;
        let template = self.acquire_template(&pod.template)?;
        let generation = self.cluster.generation();
        let enter = |chunk: &mut Chunk| {
            chunk.requested_mut().generation[lane] = generation;
            // The plan or the check of another pod may have counted this one under other numbers. Its labels may have
            // another number even if its template has not.
            chunk.forget_counts(lane);
            if template != planned {
                let (key, text) = pod.uid.key();
                let pods = &mut chunk.lane_mut(lane).pods;
                if let Some(index) = pods.find(key, text) {
                    pods.set_template(index, template);
                }
            }
        };
        if grafts.chunks[at].1.is_none() {
            self.cluster.made += std::mem::take(&mut grafts.plan.made);
            let others = &mut grafts.plan.draft.cluster.chunks;
            grafts.chunks[at].1 = others.get_newest(chunk).map(|(_, newest)| newest);
            self.cluster.chunks.exchange(others, chunk, generation, enter);
        } else {
            self.cluster.chunks.update(chunk, generation, enter);
        }
        self.count_placed(pod, slot, true);
        self.notify_placed(pod);
        Some(())
    }
}

/// The pods of a plan in one chunk, which may be taken over together. Pods are identified by their position in the
/// plan.
#[derive(Clone, Copy)]
struct Candidate {
    chunk: u32,
    /// The last pod that was placed in the chunk.
    last: usize,
    /// The first pod whose check also reads other chunks, or `usize::MAX`.
    first_dependent: usize,
    can_be_taken: bool,
}

impl Candidate {
    /// Returns the numbers of the chunks to take over, sorted. A chunk is taken over with all of its pods, at the turn
    /// of the first one. If a pod is checked at its own turn and its check reads other chunks, it must not see the pods
    /// after it, so their chunks are not taken over. O(pods × log pods).
    fn chosen(mut pods: Vec<Candidate>) -> Vec<u32> {
        pods.sort_unstable_by_key(|pod| pod.chunk);
        pods.dedup_by(|pod, all| {
            let is_same = pod.chunk == all.chunk;
            if is_same {
                all.last = all.last.max(pod.last);
                all.first_dependent = all.first_dependent.min(pod.first_dependent);
                all.can_be_taken &= pod.can_be_taken;
            }
            is_same
        });
        let mut chunks = pods;
        let dependent = chunks.iter().filter(|of| !of.can_be_taken).map(|of| of.first_dependent);
        let mut first_checked = dependent.min().unwrap_or(usize::MAX);
        // A chunk that is not taken over may contain an earlier pod whose check reads other chunks, so the latest
        // chunks come first.
        chunks.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.last));
        for chunk in &mut chunks {
            if chunk.last <= first_checked {
                break;
            }
            chunk.can_be_taken = false;
            first_checked = first_checked.min(chunk.first_dependent);
        }
        let mut chosen: Vec<u32> =
            chunks.iter().filter(|of| of.can_be_taken).map(|of| of.chunk).collect();
        chosen.sort_unstable();
        chosen
    }
}

/// Returns whether another pod's check could mistake a pod of this template, in this chunk, for a pod of another one. A
/// plan numbers templates by itself, and a chunk that is taken over has the plan's numbers until each pod's turn.
/// Checks look up only the templates of pods on nodes that have a pod with affinity.
fn could_be_mistaken(
    own: &Cluster,
    plan: &Cluster,
    chunk: u32,
    number: TemplateId,
    template: &Arc<Template>,
) -> bool {
    own.template(number).is_none_or(|known| known != template)
        && plan.chunks.get(chunk).is_some_and(|chunk| chunk.with_affinity() != 0)
}

/// Returns whether the resources that pods of this template request have the same numbers in both states. A chunk
/// stores amounts by resource number.
fn has_equal_numbers(own: &Cluster, other: &Cluster, template: &Template) -> bool {
    let mut names = template.resources.placed.scalars.iter().map(|(name, _)| name);
    names.all(|name| own.resource_id(name).is_some_and(|id| other.resource_id(name) == Some(id)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Followed, PerChunk, PlacedPod, cost};
    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::log::{Applied, Event, Prepared};
    use crate::model::{Quantity, node, pod};
    use crate::state::CommitPolicy;

    /// A writer with a node in each of two zones, and therefore chunks.
    fn writer() -> Writer {
        writer_with(CommitPolicy::default())
    }

    fn writer_with(commit_check: CommitPolicy) -> Writer {
        let (mut writer, _) = Engine::inline(Config { commit_check, ..Config::default() });
        for name in ["a", "b"] {
            let node = node(name).zone(name).cpu(1_000).memory(1 << 30).pods(110).build();
            writer.add_node(node).unwrap();
        }
        writer
    }

    /// Plans pods of 100 millicores on these nodes.
    fn plan(writer: &Writer, nodes: &[&str]) -> (Plan, Vec<Arc<Pod>>) {
        let mut plan = Plan::new(writer.cluster()).unwrap();
        let pods = nodes.iter().enumerate().map(|(n, node)| {
            let pod = pod(format!("p{n}")).cpu(100).label("n", &n.to_string()).on(*node).build();
            plan.assume(&pod, NodeSlot::default()).unwrap();
            Arc::new(pod)
        });
        let pods = pods.collect();
        (plan, pods)
    }

    /// Commits a plan, and returns what is left of it, and how many bytes the writer copied.
    fn commit(
        writer: &mut Writer,
        since: Generation,
        (plan, pods): (Plan, Vec<Arc<Pod>>),
    ) -> (Applied, Option<Box<Plan>>, u64) {
        let prepared = Prepared::new(plan);
        let event = Event::AssumeEach {
            pods: pods.into(),
            decided_on: Some(since),
            prepared: prepared.clone(),
        };
        cost::take();
        let applied = writer.apply(&event).unwrap();
        let copied = cost::take().bytes;
        assert_eq!(writer.cluster().audit(), vec![]);
        (applied, prepared.take::<Plan>(), copied)
    }

    /// Returns the number of the node's chunk and the generation of its last change.
    fn chunk_of(cluster: &Cluster, node: &str) -> (u32, Generation) {
        let (chunk, newest, _) = cluster.chunk_of(cluster.node(node).unwrap()).unwrap();
        (chunk, newest)
    }

    /// Returns the chosen chunks. Each pod is given with its chunk, whether its check reads other chunks, and whether
    /// it can be taken over.
    fn chosen(pods: &[(u32, bool, bool)]) -> Vec<u32> {
        let candidates = pods.iter().enumerate().map(|(n, (chunk, is_dependent, can_be_taken))| {
            let first_dependent = if *is_dependent { n } else { usize::MAX };
            Candidate { chunk: *chunk, last: n, first_dependent, can_be_taken: *can_be_taken }
        });
        Candidate::chosen(candidates.collect())
    }

    #[test]
    fn no_chunk_is_chosen_that_has_a_pod_after_one_that_is_checked_and_reads_other_chunks() {
        let (local, dependent) = (false, true);
        assert_eq!(chosen(&[(2, local, true), (1, dependent, true), (2, local, true)]), [1, 2]);
        assert_eq!(chosen(&[(1, local, true), (1, local, false), (2, dependent, true)]), [2]);
        assert_eq!(chosen(&[(1, local, true), (2, dependent, false), (3, local, true)]), [1]);
        assert_eq!(chosen(&[(1, local, true), (2, dependent, false), (1, local, true)]), []);
        let pods = [(2, local, false), (1, local, true), (2, dependent, true), (1, local, true)];
        assert_eq!(chosen(&pods), []);
        // Chunk 2 has a pod after the checked one, so its earlier pod is checked, too, and chunk 1 has one after that.
        let pods =
            [(1, local, true), (2, dependent, true), (1, local, true), (3, dependent, false)];
        assert_eq!(chosen(&pods), [1, 2]);
        assert_eq!(chosen(&[&pods[..], &[(2, local, true)]].concat()), []);
    }

    #[test]
    fn a_plan_is_adopted_unchanged_if_nothing_else_happened() {
        let mut writer = writer();
        let since = writer.cluster().generation();
        let (plan, pods) = plan(&writer, &["a", "b", "a"]);
        let (id, chunks) = (plan.id.clone(), plan.draft.cluster.chunks.clone());
        let (applied, left, copied) = commit(&mut writer, since, (plan, pods.clone()));
        assert_eq!(copied, 0);
        assert_eq!((applied.added, applied.generation.0), (3, since.0 + 3));
        assert!(left.is_none() && id.is_adopted());
        assert!(writer.cluster().chunks.same(&chunks), "the pods were placed again");
        assert!(
            pods.iter()
                .all(|pod| writer.cluster().pod(&pod.uid).is_some_and(|pod| pod.is_assumed()))
        );
        // Templates are reference-counted as usual: removing the last pod removes the template.
        for pod in &pods {
            writer.apply(&Event::forget(pod)).unwrap();
        }
        assert_eq!(writer.cluster().rest.templates.table.iter().count(), 0);
        assert_eq!(writer.cluster().audit(), vec![]);
    }

    #[test]
    fn chunks_without_other_changes_are_taken_over_with_the_values_computed_from_them() {
        let mut writer = writer();
        let since = writer.cluster().generation();
        let (plan, pods) = plan(&writer, &["a", "b"]);
        let mut values = PerChunk::default();
        values.follow(&plan);
        for name in ["a", "b"] {
            let (chunk, at) = chunk_of(&plan, name);
            values.renew(chunk, at, || name);
        }
        let id = plan.id.clone();
        let taken: *const _ = plan.node("a").unwrap().place().0;
        writer.add_pod(pod("other").cpu(100).on("b").build()).unwrap();
        let (applied, left, _) = commit(&mut writer, since, (plan, pods));
        assert_eq!((applied.added, applied.generation.0), (2, since.0 + 3));
        assert!(left.is_some() && !id.is_adopted());
        let cluster = writer.cluster();
        assert!(std::ptr::eq(cluster.node("a").unwrap().place().0, taken));
        let (b, _) = chunk_of(cluster, "b");
        assert_eq!(values.follow(cluster), Followed::Until(since, vec![b]));
        let (a, at) = chunk_of(cluster, "a");
        assert_eq!((at.0, values.get(a, at)), (since.0 + 2, Some(&"a")));
        assert_eq!(values.get(b, chunk_of(cluster, "b").1), None);
        assert_eq!(cluster.node("a").unwrap().generation().0, since.0 + 2);
        let since_then = cluster.chunks_newer_than(Generation(since.0 + 1)).count();
        assert_eq!(since_then, 2);
    }

    #[test]
    fn a_chunk_with_a_pod_that_has_become_known_is_not_taken_over() {
        let mut writer = writer();
        let since = writer.cluster().generation();
        let (plan, pods) = plan(&writer, &["a", "a"]);
        let elsewhere = Pod { node_name: Some("b".into()), ..Pod::clone(&pods[1]) };
        writer.assume_pod(elsewhere).unwrap();
        let (applied, ..) = commit(&mut writer, since, (plan, pods.clone()));
        assert_eq!((applied.added, applied.rejected.len()), (1, 1));
        assert_eq!(applied.rejected[0].0, pods[1].uid.to_string());
        assert_eq!((writer.cluster().pod_count(), writer.cluster().assumed_count()), (2, 2));
    }

    #[test]
    fn a_plan_of_another_engine_or_without_pods_is_not_adopted() {
        let (mut one, other) = (writer(), writer());
        let since = one.cluster().generation();
        let (applied, left, _) = commit(&mut one, since, plan(&other, &["a"]));
        assert!(applied.added == 1 && left.is_some());
        // Nor is one of the engine whose version this one begins with.
        let since = other.cluster().generation();
        let mut begun = Draft::fork(other.cluster());
        begun.begin(since.next());
        let (of_other, pods) = plan(&other, &["a"]);
        assert!(!begun.can_adopt(&of_other, &pods));
        assert!(begun.grafts(of_other.into(), &pods, |_, _| Recheck::Valid).is_err());
        let since = one.cluster().generation();
        let empty = plan(&one, &[]);
        let (applied, left, _) = commit(&mut one, since, empty);
        assert_eq!((applied.added, applied.generation), (0, since.next()));
        assert!(left.is_some());
    }

    #[test]
    fn a_plan_from_before_an_adopted_plan_sees_none_of_its_values() {
        let mut writer = writer();
        let since = writer.cluster().generation();
        let (old, _) = plan(&writer, &["b"]);
        let (adopted, pods) = plan(&writer, &["a"]);
        let mut values = PerChunk::default();
        values.follow(writer.cluster());
        values.follow(&adopted);
        let (a, at) = chunk_of(&adopted, "a");
        values.renew(a, at, || "adopted");
        commit(&mut writer, since, (adopted, pods));
        assert_eq!(values.follow(writer.cluster()), Followed::All);
        assert_eq!(values.get(a, at), Some(&"adopted"));
        let mut later = Plan::new(writer.cluster()).unwrap();
        later.assume(&pod("q").cpu(100).on("b").build(), NodeSlot::default()).unwrap();
        assert_eq!(values.follow(&later), Followed::Until(since.next(), vec![]));
        let (b, planned) = chunk_of(&later, "b");
        values.renew(b, planned, || "planned");
        // The generation is also that of the old plan's pod.
        assert_eq!(chunk_of(&old, "b").1, at);
        assert_eq!(values.follow(&old), Followed::Until(since, vec![b, a]));
        assert_eq!((values.get(a, at), values.get(b, planned)), (None, None));
    }

    /// Counts the pods that are placed. No verdict depends on it if it is `APART`.
    #[derive(Clone, Default)]
    pub(in crate::snapshot) struct Count<const APART: bool>(pub(in crate::snapshot) usize);

    impl<const APART: bool> super::super::Store for Count<APART> {
        type Event = ();

        const NAME: &'static str = "count";

        fn check(&self, (): &(), _: &Cluster) -> Result<(), String> {
            Ok(())
        }

        fn apply(&mut self, (): &(), _: Generation) {}

        fn pod_placed(&mut self, _: &PlacedPod<'_>, _: Generation) {
            self.0 += 1;
        }

        fn pod_removed(&mut self, _: &PlacedPod<'_>, _: Generation) {
            self.0 -= 1;
        }

        fn concerns(&self, _: &Template, _: Generation) -> bool {
            !APART
        }
    }

    /// Returns how many pods the store counts after another event came before a plan of two pods, and whether the
    /// plan's chunk was taken over.
    fn counted<const APART: bool>() -> (usize, bool) {
        let config = Config::default().with_store(Count::<APART>::default());
        let (mut writer, _) = Engine::inline(config);
        for name in ["a", "b"] {
            let node = node(name).zone(name).cpu(1_000).memory(1 << 30).pods(110).build();
            writer.add_node(node).unwrap();
        }
        let since = writer.cluster().generation();
        let (plan, pods) = plan(&writer, &["a", "a"]);
        let taken: *const _ = plan.node("a").unwrap().place().0;
        writer.add_pod(pod("other").on("b").build()).unwrap();
        let (applied, ..) = commit(&mut writer, since, (plan, pods));
        assert_eq!(applied.added, 2);
        let cluster = writer.cluster();
        let chunk: *const _ = cluster.node("a").unwrap().place().0;
        (cluster.store::<Count<APART>>().unwrap().0, chunk == taken)
    }

    #[test]
    fn custom_stores_track_the_pods_of_a_plan_beside_other_events() {
        assert_eq!(counted::<false>(), (3, false));
        assert_eq!(counted::<true>(), (3, true));
    }

    #[test]
    fn a_plan_for_more_pods_is_neither_adopted_nor_taken_over() {
        for is_changed in [false, true] {
            let mut writer = writer();
            let since = writer.cluster().generation();
            let (plan, mut pods) = plan(&writer, &["a", "a"]);
            pods.pop();
            if is_changed {
                writer.add_pod(pod("other").on("b").build()).unwrap();
            }
            let (applied, left, _) = commit(&mut writer, since, (plan, pods));
            assert!(applied.added == 1 && left.is_some());
            let node = writer.cluster().node("a").unwrap();
            assert_eq!((node.pod_count(), node.requested().cpu.0), (1, 100));
        }
    }

    #[test]
    fn amounts_of_a_chunk_that_is_taken_over_belong_to_the_resources_of_its_pods() {
        // The nodes need not have what the pods request.
        let mut writer = writer_with(CommitPolicy::Unchecked);
        let since = writer.cluster().generation();
        let mut plan = Plan::new(writer.cluster()).unwrap();
        let needs = |name: &str, resource: &str, node: &str| {
            pod(name).request(resource, Quantity::whole(3)).on(node).build()
        };
        let planned = needs("p", "example.com/a", "a");
        plan.assume(&planned, NodeSlot::default()).unwrap();
        // The number that the plan has given to its resource gets another one.
        writer.add_pod(needs("other", "example.com/b", "b")).unwrap();
        let (applied, ..) = commit(&mut writer, since, (plan, vec![Arc::new(planned)]));
        assert_eq!(applied.added, 1);
        let requested = writer.cluster().node("a").unwrap().requested();
        assert_eq!(requested.scalars.get("example.com/a").unwrap_or(0), 3);
        assert_eq!(requested.scalars.get("example.com/b").unwrap_or(0), 0);
    }

    #[test]
    fn counts_of_a_chunk_that_is_taken_over_have_the_labels_of_its_pods() {
        let mut writer = writer();
        let of_app = |name: &str, app: &str, cpu| pod(name).label("app", app).cpu(cpu);
        // The first template leaves its number. Its labels are those of the second one, and keep theirs.
        let leaving = of_app("leaving", "x", 1).on("b").build();
        writer.add_pod(leaving.clone()).unwrap();
        writer.add_pod(of_app("stays", "x", 2).on("b").build()).unwrap();
        writer.remove_pod(&leaving).unwrap();
        writer.publish();
        writer.publish();
        let since = writer.cluster().generation();
        let mut plan = Plan::new(writer.cluster()).unwrap();
        let planned = of_app("p", "planned", 3).on("a").build();
        plan.assume(&planned, NodeSlot::default()).unwrap();
        // A plugin counts the pods of the plan.
        let counted = |cluster: &Cluster, node: &str| -> Vec<String> {
            let node = cluster.node(node).unwrap();
            let groups = node.place().0.tally(cluster).by_labels().map(|(labels, _)| labels);
            let groups = groups.map(|labels| match cluster.pod_labels(labels) {
                Some((_, labels)) => labels.get("app").unwrap().to_string(),
                None => "unknown".to_owned(),
            });
            groups.collect()
        };
        assert_eq!(counted(&plan, "a"), ["planned"]);
        // Another pod takes the free number, and the labels that are new in the plan.
        writer.add_pod(of_app("other", "other", 4).on("b").build()).unwrap();
        commit(&mut writer, since, (plan, vec![Arc::new(planned)]));
        assert_eq!(counted(writer.cluster(), "a"), ["planned"]);
    }

    /// A thread may follow a plan that starts within another one, which has been taken over meanwhile. It has seen no
    /// change of the writer between both starts.
    #[test]
    fn between_a_plan_that_was_taken_over_and_a_later_one_no_value_counts_as_known() {
        let mut writer = writer();
        let since = writer.cluster().generation();
        let (planned, pods) = plan(&writer, &["a"]);
        let mut values = PerChunk::default();
        values.follow(&planned);
        let (a, at) = chunk_of(&planned, "a");
        values.renew(a, at, || ());
        writer.add_pod(pod("other").on("b").build()).unwrap();
        let (later, _) = plan(&writer, &["b"]);
        commit(&mut writer, since, (planned, pods));
        assert_eq!(values.follow(&later), Followed::Until(since, vec![a]));
    }

    #[test]
    fn allocations_of_plans_and_of_moving_the_horizon_before_them_are_counted() {
        for is_changed in [false, true] {
            let mut writer = writer();
            let (before, here) = (writer.cluster().made, freeing::made());
            let many = |n: usize| pod(format!("many{n}")).on("b").build();
            for n in 0..500 {
                writer.add_pod(many(n)).unwrap();
            }
            for n in 0..500 {
                writer.remove_pod(&many(n)).unwrap();
            }
            // Moves the horizon once the version is frozen.
            writer.publish();
            let version = writer.snapshot();
            assert!(writer.cluster().made > version.made, "moving the horizon allocated nothing");
            let mut plan = Plan::new(&version).unwrap();
            let pods = [pod("p").on("a").build(), pod("q").on("b").build()];
            pods.iter().for_each(|pod| plan.assume(pod, NodeSlot::default()).unwrap());
            if is_changed {
                writer.add_pod(pod("other").on("b").build()).unwrap();
            }
            let (id, pods) = (plan.id.clone(), pods.map(Arc::new));
            let event = Event::AssumeEach {
                pods: pods.into(),
                decided_on: Some(version.generation()),
                prepared: Prepared::new(plan),
            };
            assert_eq!(writer.apply(&event).unwrap().added, 2);
            assert_eq!(id.is_adopted(), !is_changed);
            assert_eq!(writer.cluster().made - before, freeing::made().wrapping_sub(here));
        }
    }

    #[test]
    fn numbers_of_removed_templates_are_reused() {
        let mut writer = writer();
        for round in 0..40 {
            writer.publish();
            let since = writer.cluster().generation();
            let mut plan = Plan::new(writer.cluster()).unwrap();
            let pods = (0..3).map(|n| {
                let pod = pod("p").uid(format!("u{n}")).cpu(round * 3 + n).on("a").build();
                plan.assume(&pod, NodeSlot::default()).unwrap();
                Arc::new(pod)
            });
            let pods: Vec<Arc<Pod>> = pods.collect();
            commit(&mut writer, since, (plan, pods.clone()));
            for pod in &pods {
                writer.apply(&Event::forget(pod)).unwrap();
            }
        }
        let next = writer.cluster().rest.templates.next;
        assert!(next < 20, "{next} numbers for 3 templates at a time");
    }

    #[test]
    fn forks_and_versions_with_godel_semantics_have_no_plans() {
        let writer = writer();
        assert!(Plan::new(&writer.cluster().fork()).is_none());
        assert!(Plan::new(&plan(&writer, &["a"]).0).is_none());
        let godel = crate::cache::GodelConfig::new("godel");
        let (writer, _) = Engine::inline(Config { godel: Some(godel), ..Config::default() });
        assert!(Plan::new(writer.cluster()).is_none());
    }
}
