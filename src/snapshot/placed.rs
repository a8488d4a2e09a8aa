//! A chunk with one more pod, computed by the thread that decided on the pod's node.
//!
//! Placing a pod copies the columns and the pods of its node's chunk. The scheduler's thread does that in advance, from
//! the version that it decided on. If nothing has changed the chunk since, the writer takes over the copy, and writes only
//! the path to it and the pod's index entries. Otherwise the writer places the pod itself.

use std::sync::Arc;

use crate::freeing;
use crate::model::{Generation, Pod, Template};
use crate::sync::mutated;

use super::chunk::{Chunk, NodeSlot, ResourceId};
use super::cluster::{Cluster, Lineage};
use super::draft::{
    Draft, amounts, check_pod, check_supported, fits_in_64_bits, node_of, put_in_lane,
};
use super::lane::TemplateId;

/// The chunk of a node after a pod was placed there.
pub(crate) struct PlacedChunk {
    /// The pod without a node.
    undecided: Arc<Pod>,
    /// The version on which the pod was placed.
    lineage: Lineage,
    since: Generation,
    layout: u64,
    slot: NodeSlot,
    lane: usize,
    /// The pod's template in the version, with its number, unless it is new.
    template: Option<(TemplateId, Arc<Template>)>,
    /// The version's numbers of the scalar resources that the pod requests.
    resources: Vec<ResourceId>,
    /// The number of the chunk, and the chunk until the writer takes it.
    id: u32,
    chunk: Option<triomphe::Arc<Chunk>>,
    /// The number of child slots in the tree nodes that were allocated for it.
    made: u64,
}

impl PlacedChunk {
    /// Places a pod on the node that it names, which has this slot; `undecided` is the pod without a node. `None` if the
    /// writer has to do it: because it would refuse the pod, because a resource of the pod has no number yet, because the
    /// version is a fork's, or with Gödel semantics, where placing a pod has further consequences. O(log n).
    pub(crate) fn new(
        base: &Cluster,
        (pod, undecided): (&Pod, &Arc<Pod>),
        slot: NodeSlot,
    ) -> Option<PlacedChunk> {
        if base.branch != 0 || base.plan.is_some() || base.godel.is_some() {
            return None;
        }
        let name = node_of(pod).ok()?;
        let node = base.node_by_slot(slot).filter(|node| node.name() == name)?;
        check_supported(base, pod).and_then(|()| check_pod(pod)).ok()?;
        if !fits_in_64_bits(base, node, None, &pod.template) {
            return None;
        }
        let place = *base.rest.places.get(slot.0)?;
        let (id, lane) = (place.chunk, place.lane());
        let number = base.template_number(&pod.template);
        let template = number.and_then(|number| Some((number, base.template(number)?.clone())));
        let amounts = amounts(&base.rest.resources, &pod.template);
        let resources = amounts.resources()?;
        let since = base.generation();
        let made = freeing::made();
        let mut chunk = base.chunks.get_shared(id)?.0.clone();
        let own = triomphe::Arc::make_mut(&mut chunk);
        let placed = (pod, number.unwrap_or_default(), true);
        put_in_lane(own, lane, since.next(), placed, &amounts);
        Some(PlacedChunk {
            undecided: undecided.clone(),
            lineage: base.lineage(),
            since,
            layout: base.layout(),
            slot,
            lane,
            template,
            resources,
            id,
            chunk: Some(chunk),
            made: freeing::made().wrapping_sub(made),
        })
    }

    /// Returns whether the resources of the pod have the same numbers in the writer's state. The chunk stores amounts by
    /// number.
    fn has_numbers_of(&self, own: &Cluster, pod: &Pod) -> bool {
        let names = pod.template.resources.placed.scalars.iter().map(|(name, _)| name);
        self.resources.iter().zip(names).all(|(id, name)| own.resource_id(name) == Some(*id))
    }

    /// Returns the pod as the commit check sees it, without a node, and the slot of its node.
    pub(crate) fn placement(&self) -> (&Pod, NodeSlot) {
        (&self.undecided, self.slot)
    }
}

impl Draft {
    /// Returns whether [`Draft::take_over`] may replace the placement of this pod: nothing has changed the chunk, the
    /// pod is unknown, and there are numbers left. O(log n).
    pub(crate) fn can_take_over(&self, placed: &PlacedChunk, pod: &Pod) -> bool {
        let own = &self.cluster;
        let is_unchanged = || {
            let newest = own.chunks.get_newest(placed.id).map(|(_, newest)| newest);
            newest.is_some_and(|newest| newest <= placed.since || mutated!("placed-over-changes"))
        };
        placed.lineage == own.lineage()
            && own.layout() == placed.layout
            && is_unchanged()
            && placed.has_numbers_of(own, pod)
            && self.pod(&pod.uid).is_none()
            && self.check_room().is_ok()
    }

    /// Places a pod by taking over its chunk, which [`Draft::can_take_over`] has accepted. Returns `false` and leaves the
    /// draft unchanged if no number is left for the pod's template. O(log n).
    pub(crate) fn take_over(&mut self, placed: &mut PlacedChunk, pod: &Pod) -> bool {
        let Some(chunk) = placed.chunk.take() else { return false };
        let known = placed.template.as_ref().filter(|(number, template)| {
            self.cluster.template(*number).is_some_and(|known| Arc::ptr_eq(known, template))
        });
        let number = match known {
            Some((number, _)) => {
                self.use_template(*number);
                Some(*number)
            }
            None => self.acquire_template(&pod.template),
        };
        let Some(number) = number else { return false };
        let (generation, lane) = (self.cluster.generation(), placed.lane);
        self.cluster.made += placed.made;
        self.cluster.chunks.replace(placed.id, generation, chunk, |chunk| {
            chunk.requested_mut().generation[lane] = generation;
            if known.is_none() {
                let pods = &mut chunk.lane_mut(lane).pods;
                pods.set_template(pods.len() - 1, number);
            }
        });
        self.count_placed(pod, placed.slot, true);
        self.notify_placed(pod);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::Count;
    use super::super::{Plan, Recheck};
    use super::*;
    use crate::cache::{
        CommitCheck, CommitPolicy, Config, Engine, Event, GodelConfig, Outcome, Writer,
    };
    use crate::log::Prepared;
    use crate::model::{EventError, PodAffinity, Quantity, node, pod};

    /// A writer with a node in each of two zones, and therefore chunks.
    fn writer(config: Config) -> Writer {
        let (mut writer, _) = Engine::inline(config);
        for name in ["a", "b"] {
            let node = node(name).zone(name).cpu(1_000).memory(1 << 30).pods(110).build();
            writer.add_node(node).unwrap();
        }
        writer
    }

    fn small(name: &str) -> Pod {
        pod(name).cpu(100).label("app", name).build()
    }

    /// A pod and its node, decided on a version of a writer.
    struct Decided {
        pod: Arc<Pod>,
        since: Generation,
        placed: PlacedChunk,
        /// The address of the chunk.
        chunk: *const Chunk,
    }

    fn decide(writer: &Writer, pod: Pod, node: &str) -> Decided {
        let cluster = writer.cluster();
        let undecided = Arc::new(pod);
        let pod = Pod::clone(&undecided).on(node);
        let slot = cluster.node(node).unwrap().slot();
        let placed = PlacedChunk::new(cluster, (&pod, &undecided), slot).unwrap();
        let chunk = triomphe::Arc::as_ptr(placed.chunk.as_ref().unwrap());
        Decided { pod: Arc::new(pod), since: cluster.generation(), placed, chunk }
    }

    /// Assumes the pod. Returns the outcome, and whether its chunk was taken over.
    fn commit(writer: &mut Writer, decided: Decided) -> (Outcome, bool) {
        let Decided { pod, since, placed, chunk } = decided;
        let prepared = Prepared::new(placed);
        let event = Event::AssumePod {
            pod: pod.clone(),
            decided_on: Some(since),
            prepared: prepared.clone(),
        };
        let outcome = writer.apply(&event);
        let cluster = writer.cluster();
        assert_eq!(cluster.audit(), vec![]);
        assert!(prepared.take::<PlacedChunk>().is_some(), "the sender drops what is left");
        let node = cluster.node(pod.node_name.as_deref().unwrap());
        (outcome, node.is_some_and(|node| std::ptr::eq(node.place().0, chunk)))
    }

    fn cpu(writer: &Writer, node: &str) -> i64 {
        writer.cluster().node(node).unwrap().requested().cpu.0
    }

    #[test]
    fn a_chunk_is_taken_over_unless_it_has_changed() {
        for (change_on, is_taken) in [(None, true), (Some("b"), true), (Some("a"), false)] {
            let mut writer = writer(Config::default());
            writer.add_pod(small("earlier").on("a")).unwrap();
            let decided = decide(&writer, small("p"), "a");
            let since = decided.since.0;
            let others = change_on.map(|node| writer.add_pod(small("other").on(node)).unwrap());
            let (outcome, taken) = commit(&mut writer, decided);
            let generation = since + 1 + u64::from(others.is_some());
            assert_eq!(outcome.map(|applied| applied.generation.0), Ok(generation));
            assert_eq!(taken, is_taken, "{change_on:?}");
            let node = writer.cluster().node("a").unwrap();
            assert_eq!(node.generation().0, generation);
            let on_a = 2 + usize::from(change_on == Some("a"));
            assert_eq!((node.pod_count(), node.requested().cpu.0), (on_a, 100 * on_a as i64));
            // The last pod of a template removes it, as usual.
            let p = writer.cluster().pod(&small("p").uid).unwrap();
            assert!(p.is_assumed() && *p.template() == small("p").template);
            writer.apply(&Event::forget(&small("p").on("a"))).unwrap();
            let templates = writer.cluster().rest.templates.table.iter().count();
            assert_eq!(templates, 1 + usize::from(others.is_some()));
        }
    }

    #[test]
    fn of_two_placements_in_a_chunk_the_second_is_made_by_the_writer() {
        let mut writer = writer(Config::default());
        let first = decide(&writer, small("p"), "a");
        writer.add_pod(small("other").on("b")).unwrap();
        // Decided on a newer version than the first one, and before its commit.
        let second = decide(&writer, small("q"), "a");
        assert!(commit(&mut writer, first).1);
        let (outcome, taken) = commit(&mut writer, second);
        assert!(outcome.is_ok() && !taken);
        let node = writer.cluster().node("a").unwrap();
        assert_eq!((node.pod_count(), node.requested().cpu.0), (2, 200));
    }

    #[test]
    fn the_last_pod_of_a_template_removes_it() {
        let mut writer = writer(Config::default());
        let pods = ["p", "q"].map(|uid| Pod { uid: uid.into(), ..small("p") });
        for pod in &pods {
            let decided = decide(&writer, pod.clone(), "a");
            assert!(commit(&mut writer, decided).1);
        }
        for (pod, left) in pods.into_iter().zip([1, 0]) {
            writer.apply(&Event::forget(&pod.on("a"))).unwrap();
            assert_eq!(writer.cluster().audit(), vec![]);
            assert_eq!(writer.cluster().rest.templates.table.iter().count(), left);
        }
    }

    #[test]
    fn allocations_for_a_chunk_are_counted_if_it_is_taken_over() {
        for is_taken in [true, false] {
            let mut writer = writer(Config::default());
            // The version shares all memory, so each change allocates.
            writer.publish();
            let (before, here) = (writer.cluster().made, freeing::made());
            let Decided { pod, since, placed, .. } = decide(&writer, small("p"), "a");
            let unused = if is_taken { 0 } else { placed.made };
            if !is_taken {
                writer.add_pod(small("other").on("a")).unwrap();
            }
            assert!(placed.made > 0);
            let prepared = Prepared::new(placed);
            writer.apply(&Event::AssumePod { pod, decided_on: Some(since), prepared }).unwrap();
            let made = freeing::made().wrapping_sub(here) - unused;
            assert_eq!(writer.cluster().made - before, made);
        }
    }

    #[test]
    fn a_pod_that_has_become_known_is_refused() {
        let mut writer = writer(Config::default());
        let decided = decide(&writer, small("p"), "a");
        writer.assume_pod(small("p").on("b")).unwrap();
        let (outcome, taken) = commit(&mut writer, decided);
        assert!(matches!(outcome, Err(EventError::AlreadyInCache { .. })) && !taken);
        assert_eq!((cpu(&writer, "a"), cpu(&writer, "b")), (0, 100));
    }

    #[test]
    fn a_chunk_of_another_engine_or_layout_is_not_taken_over() {
        let (one, mut two) = (writer(Config::default()), writer(Config::default()));
        assert!(!commit(&mut two, decide(&one, small("p"), "a")).1);
        let decided = decide(&two, small("q"), "a");
        two.add_node(node("c").zone("b").cpu(1_000).build()).unwrap();
        let (outcome, taken) = commit(&mut two, decided);
        assert!(outcome.is_ok() && !taken);
        assert_eq!(cpu(&two, "a"), 200);
    }

    #[test]
    fn a_chunk_is_taken_over_only_if_resources_have_the_numbers_it_uses() {
        let unchecked = Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
        let mut writer = writer(unchecked);
        let needs =
            |name: &str, resource: &str| pod(name).request(resource, Quantity::whole(3)).build();
        let earlier = needs("earlier", "example.com/a").on("b");
        writer.add_pod(earlier.clone()).unwrap();
        writer.publish();
        let decided = decide(&writer, needs("p", "example.com/a"), "a");
        writer.remove_pod(&earlier).unwrap();
        writer.publish();
        writer.publish();
        writer.add_pod(needs("other", "example.com/b").on("b")).unwrap();
        let (outcome, taken) = commit(&mut writer, decided);
        assert!(outcome.is_ok() && !taken);
        let requested = writer.cluster().node("a").unwrap().requested();
        assert_eq!(requested.scalars.get("example.com/a"), Some(3));
        assert_eq!(requested.scalars.get("example.com/b").unwrap_or(0), 0);
        // A resource without a number is left to the writer.
        let (cluster, new) = (writer.cluster(), Arc::new(needs("q", "example.com/new")));
        let slot = cluster.node("a").unwrap().slot();
        let placed = Pod::clone(&new).on("a");
        assert!(PlacedChunk::new(cluster, (&placed, &new), slot).is_none());
    }

    #[test]
    fn a_template_gets_the_number_that_it_has_at_the_commit() {
        let mut writer = writer(Config::default());
        let leaving = small("p").on("b");
        let decided = |writer: &Writer| {
            let pod = Pod { uid: "new".into(), ..small("p") };
            decide(writer, pod, "a")
        };
        writer.add_pod(leaving.clone()).unwrap();
        writer.publish();
        let decided = decided(&writer);
        // Its number goes to another template.
        writer.remove_pod(&leaving).unwrap();
        writer.publish();
        writer.publish();
        writer.add_pod(small("other").on("b")).unwrap();
        assert!(commit(&mut writer, decided).1);
        let cluster = writer.cluster();
        assert_eq!(*cluster.pod(&"new".into()).unwrap().template(), small("p").template);
        let labels = cluster.node("a").unwrap().place().0.tally(cluster).by_labels();
        let apps = labels.map(|(labels, _)| cluster.pod_labels(labels).unwrap().1.get("app"));
        assert_eq!(apps.map(|app| app.unwrap().to_string()).collect::<Vec<_>>(), ["p"]);
    }

    /// Answers all checks of placements on nodes that have not changed, and refuses all others.
    #[derive(Clone)]
    struct Answers(Recheck);

    impl CommitCheck for Answers {
        fn check(&self, _: &Cluster, _: &Pod, _: &str) -> Result<(), String> {
            Err("no".to_owned())
        }

        fn check_unchanged(&self, _: &Cluster, pod: &Pod, nodes: &[NodeSlot]) -> Recheck {
            assert_eq!((pod.node_name.as_deref(), nodes.len()), (None, 1));
            self.0.clone()
        }
    }

    #[test]
    fn a_chunk_is_taken_over_only_if_the_check_finds_the_placement_valid() {
        let answers = [
            (Recheck::Valid, true),
            (Recheck::Each(vec![true]), true),
            (Recheck::Each(vec![false]), false),
            (Recheck::OneByOne, false),
        ];
        for (answer, is_valid) in answers {
            let mut writer =
                writer(Config { commit_check: Answers(answer).into(), ..Config::default() });
            let decided = decide(&writer, small("p"), "a");
            writer.add_pod(small("other").on("b")).unwrap();
            let (outcome, taken) = commit(&mut writer, decided);
            assert_eq!((outcome.is_ok(), taken), (is_valid, is_valid));
            // A decision on the current version is not checked.
            let decided = decide(&writer, small("q"), "a");
            assert!(commit(&mut writer, decided).1);
        }
    }

    #[test]
    fn the_default_check_covers_resources_that_a_scheduler_has_not_checked() {
        let mut writer = writer(Config::default());
        let decided = decide(&writer, pod("p").cpu(2_000).build(), "a");
        writer.add_pod(small("other").on("b")).unwrap();
        let (outcome, taken) = commit(&mut writer, decided);
        assert!(matches!(outcome, Err(EventError::Conflict { .. })) && !taken);
    }

    #[test]
    fn stores_are_notified_and_their_changes_lead_to_a_check() {
        let commit_check = Answers(Recheck::Valid).into();
        let config = Config { commit_check, ..Config::default() };
        let mut writer = writer(config.with_store(Count::<false>::default()));
        let count = |writer: &Writer| writer.cluster().store::<Count<false>>().unwrap().0;
        let decided = decide(&writer, small("p"), "a");
        assert!(commit(&mut writer, decided).1);
        assert_eq!(count(&writer), 1);
        let decided = decide(&writer, small("q"), "a");
        writer.add_pod(small("other").on("b")).unwrap();
        // The check is not told that the node is unchanged, because the verdict may depend on the store.
        let (outcome, taken) = commit(&mut writer, decided);
        assert!(matches!(outcome, Err(EventError::Conflict { .. })) && !taken);
        assert_eq!(count(&writer), 2);
    }

    #[test]
    fn the_writer_places_pods_that_it_would_refuse_and_pods_on_forks() {
        let writer = writer(Config::default());
        let cluster = writer.cluster();
        let slot = |node: &str| cluster.node(node).unwrap().slot();
        let place = |cluster: &Cluster, pod: &Pod, slot| {
            PlacedChunk::new(cluster, (pod, &Arc::new(small("p"))), slot).is_some()
        };
        assert!(place(cluster, &small("p").on("a"), slot("a")));
        assert!(!place(cluster, &small("p").on("a"), slot("b")), "the slot of another node");
        assert!(!place(cluster, &small("p"), slot("a")), "no node");
        let nameless = Pod { uid: "".into(), ..small("p").on("a") };
        assert!(!place(cluster, &nameless, slot("a")));
        let needs =
            |spec: &mut crate::model::PodSpec| spec.resource_claims = [Default::default()].into();
        let claims = pod("p").spec(needs).on("a").build();
        assert!(!place(cluster, &claims, slot("a")));
        assert!(!place(&cluster.fork(), &small("p").on("a"), slot("a")));
        assert!(!place(&Plan::new(cluster).unwrap(), &small("p").on("a"), slot("a")));
        let godel = Config { godel: Some(GodelConfig::new("godel")), ..Config::default() };
        assert!(!place(self::writer(godel).cluster(), &small("p").on("a"), slot("a")));
        let huge = pod("p").cpu(i64::MAX).on("a").build();
        assert!(place(cluster, &huge, slot("a")));
        let mut full = self::writer(Config::default());
        full.add_pod(huge).unwrap();
        assert!(!place(full.cluster(), &small("q").on("a"), slot("a")), "the sum overflows");
    }

    /// A number below `n`; advances the state of a generator.
    fn below(state: &mut u64, n: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % n
    }

    #[test]
    fn prepared_placements_lead_to_the_same_states() {
        for seed in 1..=6 {
            let random = &mut u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15);
            let unchecked =
                || Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
            let [mut one, mut other] = [(); 2].map(|()| writer(unchecked()));
            let (mut decided, mut versions, mut taken) = (Vec::new(), Vec::new(), 0);
            for step in 0..150 {
                let n = below(random, 20);
                let mut new =
                    pod(format!("p{n}")).cpu(1).label("app", &below(random, 3).to_string());
                if below(random, 2) == 0 {
                    let resource = format!("example.com/{}", below(random, 3));
                    new = new.request(resource, Quantity::whole(below(random, 3) as i64));
                }
                if below(random, 4) == 0 {
                    new = new.claim("c").group("g").pod_affinity(PodAffinity::default());
                }
                let (new, on) = (new.build(), ["a", "b"][below(random, 2) as usize]);
                let event = match below(random, 8) {
                    0..3 => {
                        let (cluster, template) = (one.cluster(), new.template.clone());
                        let is_known = |name: &str| cluster.resource_id(name).is_some();
                        let is_known = template
                            .resources
                            .placed
                            .scalars
                            .iter()
                            .all(|(name, _)| is_known(name));
                        if is_known && cluster.node(on).is_some() {
                            decided.push(decide(&one, new, on));
                        }
                        continue;
                    }
                    3..5 if !decided.is_empty() => {
                        let at = below(random, decided.len() as u64) as usize;
                        let of: Decided = decided.swap_remove(at);
                        let event = Event::assume(of.pod.clone()).decided_on(of.since);
                        let (outcome, is_taken) = commit(&mut one, of);
                        assert_eq!(outcome, other.apply(&event), "seed {seed}, step {step}");
                        taken += usize::from(is_taken);
                        continue;
                    }
                    5 => Event::add_pod(new.on(on)),
                    6 => Event::RemovePod { uid: new.uid, node: None },
                    _ if step % 7 == 0 => Event::RemoveNode(on.into()),
                    _ => Event::update_node(
                        node(on).zone(on).cpu(1_000).memory(n as i64).pods(110).build(),
                    ),
                };
                assert_eq!(one.apply(&event), other.apply(&event), "seed {seed}, step {step}");
                if n < 8 {
                    one.publish();
                    other.publish();
                    versions.push((one.snapshot(), other.snapshot()));
                    versions.truncate(n as usize / 2);
                }
                let [a, b] = [one.cluster(), other.cluster()];
                assert_eq!((a.audit(), a.dump()), (vec![], b.dump()), "seed {seed}, step {step}");
                let chunks = |of: &Cluster| -> Vec<_> {
                    of.chunk_list().map(|(id, at, _)| (id, at)).collect()
                };
                assert_eq!(chunks(a), chunks(b), "seed {seed}, step {step}");
            }
            assert!(taken > 0, "seed {seed}");
        }
    }
}
