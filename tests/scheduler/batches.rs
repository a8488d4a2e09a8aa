//! Batches: the same decisions as one by one, the same state, and no overcommitted node beside other writers.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use portolan::Unplaced;
use portolan::cache::{
    Cluster, CommitCheck, CommitPolicy, Config, Engine, Event, NodeInfo, NodeSlot, Recheck,
};
use portolan::model::{
    EventError, LabelSelector, Name, Pod, PodAffinity, PodAffinityTerm, Taint, TaintEffect,
    Timestamp, Uid, WeightedPodAffinityTerm, node, pod,
};
use portolan::plugin::{
    Code, Cycle, Diagnosis, Feasible, Filter, Handle, Partition, Plugin, PluginInfo, Point,
    PreFilter, PreScore, Status, default_plugins,
};
use portolan::scheduler::{FilterCheck, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Failure, Framework, Placement, Profiles, Scheduler,
    Schedulers,
};
use portolan_testkit::draw::Draw;
use portolan_testkit::plugin;
use portolan_testkit::random::Random;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(0);

fn submit(engine: &Engine, event: Event) -> Result<(), EventError> {
    engine.submit(event).unwrap().wait().unwrap().map(drop)
}

fn scheduler(engine: &Engine, framework: Framework, config: AlgorithmConfig) -> Scheduler {
    with_partition(engine, framework, config, None)
}

fn with_partition(
    engine: &Engine,
    framework: Framework,
    config: AlgorithmConfig,
    partition: Option<Partition>,
) -> Scheduler {
    let mut algorithm = Algorithm::new(framework, config, None);
    if let Some(partition) = partition {
        algorithm = algorithm.with_partition(partition);
    }
    Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap()
}

/// An engine with a random cluster, and a scheduler that preempts.
struct World {
    engine: Engine,
    scheduler: Scheduler,
}

impl World {
    fn new(
        draw: &mut Draw<'_>,
        nodes: usize,
        config: AlgorithmConfig,
        partition: Option<Partition>,
    ) -> World {
        let check = FilterCheck::new(Profiles::one(Arc::new(Framework::default_profile())));
        let engine = Engine::shared(Config { commit_check: check.into(), ..Config::default() });
        for n in 0..nodes {
            submit(&engine, Event::add_node(draw.node(n))).unwrap();
        }
        for _ in 0..draw.below(24) {
            submit(&engine, Event::PutObject(draw.object())).unwrap();
        }
        for n in 0..nodes {
            let _ = submit(&engine, Event::add_pod(draw.pod(n).on(format!("n{n}"))));
        }
        let handle = Handle::default().with_evictor(Arc::new(InMemoryEvictor::new(engine.clone())));
        let framework = Framework::default_profile_with(&handle);
        World { scheduler: with_partition(&engine, framework, config, partition), engine }
    }
}

/// Leaves the pod assumed, and returns its node.
fn kept(placed: Placement) -> Name {
    placed.keep_assumed().node_name.clone().unwrap()
}

/// What a scheduler decided for each pod.
fn decisions<'a>(
    results: impl IntoIterator<Item = &'a Result<Placement, Failure>>,
) -> Vec<Result<portolan::Decision, Failure>> {
    let decision = |result: &'a Result<Placement, Failure>| match result {
        Ok(placement) => Ok(placement.decision.clone()),
        Err(error) => Err(error.clone()),
    };
    results.into_iter().map(decision).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_decides_as_its_pods_do_one_by_one(
        bits in any::<u64>(),
        nodes in 1..160_usize,
        batch in 2..24_usize,
        percentage in prop_oneof![Just(0_u8), Just(30), Just(100)],
        share in prop::option::of(0..3_u32),
    ) {
        let of = NonZeroU32::new(3).unwrap();
        let partition = || share.map(|index| Partition::Share { index, of });
        let config = || AlgorithmConfig { percentage_of_nodes: percentage, seed: bits };
        let mut draw = Draw::from(bits);
        let mut alone = World::new(&mut draw.clone(), nodes, config(), partition());
        let mut together = World::new(&mut draw, nodes, config(), partition());
        let plain = |cpu| pod("plain").cpu(cpu).memory(1 << 28).build();
        let templates = [draw.pod(0), draw.pod(1), plain(100), plain(500)];
        let mut template = &templates[2];
        for round in 0..6 {
            let pods: Vec<Arc<Pod>> = (0..batch).map(|n| {
                let uid = Uid::new(&format!("default/new-{round}-{n}"));
                // Mostly several pods of a template in a row.
                if draw.one_in(4) {
                    template = &templates[draw.below(4) as usize];
                }
                Arc::new(Pod { uid, node_name: None, ..template.clone() })
            }).collect();
            let one_by_one: Vec<_> =
                pods.iter().map(|pod| alone.scheduler.schedule(pod, NOW)).collect();
            let in_batch = together.scheduler.schedule_batch(&pods, NOW);
            prop_assert_eq!(decisions(&one_by_one), decisions(&in_batch));
            prop_assert_eq!(alone.scheduler.figures(), together.scheduler.figures());
            let event = match draw.below(5) {
                0 => Some(Event::PutObject(draw.object())),
                1 => Some(Event::update_node(draw.node(round))),
                2 => in_batch.iter().flatten().next().map(|placed| Event::forget(&placed.pod)),
                3 => in_batch.iter().flatten().last().map(|placed| Event::add_pod(placed.pod.clone())),
                _ => None,
            };
            if let Some(event) = event {
                let outcomes = [&alone, &together].map(|world| submit(&world.engine, event.clone()));
                prop_assert_eq!(&outcomes[0], &outcomes[1]);
            }
            one_by_one.into_iter().chain(in_batch).flatten().for_each(|placed| drop(kept(placed)));
        }
        let ends = [&alone, &together].map(|world| world.engine.reader().unwrap().snapshot());
        prop_assert_eq!(ends[0].generation(), ends[1].generation());
        prop_assert_eq!(ends[0].dump(), ends[1].dump());
        prop_assert_eq!(ends[1].audit(), vec![]);
        let rebuilt = together.engine.with_writer(|writer| writer.rebuild().differences).unwrap();
        prop_assert_eq!(rebuilt, vec![]);
    }
}

/// Calls a function before each decision.
struct Meddler(Arc<dyn Fn() + Send + Sync>);

impl Plugin for Meddler {
    plugin!("Meddler", PreFilter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        (self.0)();
        Ok(PreFilter::Skip)
    }
}

fn with_plugin(plugin: impl Plugin + 'static) -> Framework {
    let mut plugins = default_plugins(&Handle::default());
    plugins.push((Box::new(plugin), 0));
    Framework::new(plugins).unwrap()
}

/// Three nodes in as many zones, and therefore chunks.
fn three_nodes() -> Engine {
    let engine = Engine::shared(Config::default());
    for name in ["n1", "n2", "n3"] {
        let node = node(name).zone(name).cpu(1_000).pods(10).build();
        submit(&engine, Event::add_node(node)).unwrap();
    }
    engine
}

fn pods(names: impl IntoIterator<Item = usize>, cpu: i64) -> Vec<Arc<Pod>> {
    names.into_iter().map(|n| Arc::new(pod(format!("p{n}")).cpu(cpu).build())).collect()
}

/// Schedules three pods of 600 millicores in a batch while `event` happens during the second decision.
fn meddle(engine: &Engine, event: Event) -> (Scheduler, Vec<Result<String, Failure>>) {
    let (calls, submitter) = (AtomicUsize::new(0), engine.clone());
    let meddler = Meddler(Arc::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            submit(&submitter, event.clone()).unwrap();
        }
    }));
    let framework = with_plugin(meddler);
    let mut scheduler = scheduler(engine, framework, AlgorithmConfig::default());
    let placed = scheduler.schedule_batch(&pods(0..3, 600), NOW);
    let nodes = placed.into_iter().map(|placed| placed.map(|placed| kept(placed).to_string()));
    let nodes = nodes.collect();
    (scheduler, nodes)
}

#[test]
fn only_the_pod_whose_placement_no_longer_holds_is_decided_again() {
    // Where the three pods go if nothing happens.
    let engine = three_nodes();
    let (_, undisturbed) = meddle(&engine, Event::put_pending(pod("other").build()));
    let undisturbed: Vec<String> = undisturbed.into_iter().map(Result::unwrap).collect();
    // The node of the second pod is taken, and another one is added.
    let engine = three_nodes();
    submit(
        &engine,
        Event::add_node(node("n4").zone("n4").cpu(1_000).pods(10).unschedulable(true).build()),
    )
    .unwrap();
    let taken = pod("taken").cpu(600).on(undisturbed[1].clone()).build();
    let (scheduler, nodes) = meddle(&engine, Event::add_pod(taken));
    assert_eq!(nodes[0].as_ref(), Ok(&undisturbed[0]));
    assert!(matches!(&nodes[1], Err(Failure::Fit(_))), "{nodes:?}");
    assert_eq!(nodes[2].as_ref(), Ok(&undisturbed[2]));
    let figures = scheduler.figures();
    assert_eq!((figures.placed, figures.failed, figures.conflicts), (2, 1, 1));
    let end = engine.reader().unwrap().snapshot();
    assert_eq!((end.pod_count(), end.audit()), (3, vec![]));
}

#[test]
fn placements_that_still_hold_are_taken_over_with_their_templates() {
    let engine = three_nodes();
    let calls = AtomicUsize::new(0);
    let submitter = engine.clone();
    // Another writer uses the numbers that the plan gives to its templates.
    let meddler = Meddler(Arc::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed) == 2 {
            let other = pod("other").cpu(70).label("app", "other").on("n3").build();
            submit(&submitter, Event::add_pod(other)).unwrap();
        }
    }));
    let framework = with_plugin(meddler);
    let mut scheduler = scheduler(&engine, framework, AlgorithmConfig::default());
    let pods: Vec<Arc<Pod>> = (0..6)
        .map(|n| Arc::new(pod(format!("p{n}")).cpu(100 + n).label("app", &n.to_string()).build()))
        .collect();
    let placed = scheduler.schedule_batch(&pods, NOW);
    assert!(placed.iter().all(Result::is_ok) && scheduler.figures().conflicts == 0);
    let end = engine.reader().unwrap().snapshot();
    for (pod, placed) in pods.iter().zip(&placed) {
        let known = end.pod(&pod.uid).unwrap();
        assert_eq!(known.node().name(), placed.as_ref().unwrap().node());
        assert_eq!(*known.template(), pod.template);
        assert!(known.is_assumed());
    }
    assert_eq!((end.pod_count(), end.audit()), (7, vec![]));
    assert_eq!(end.generation().0, 3 + 1 + 6);
    let differences = engine.with_writer(|writer| writer.rebuild().differences).unwrap();
    assert_eq!(differences, vec![]);
}

#[test]
fn batches_and_single_cycles_agree_on_pods_that_name_their_nodes() {
    let new = |name: &str| pod(name).cpu(100);
    let pods = [
        new("a").on("n2").build(),
        new("b").build(),
        new("c").on("n2").build(),
        new("d").on("missing").build(),
        new("e").build(),
        new("f").build(),
        new("f").build(),
        new("g").on("n1").build(),
    ];
    let pods = pods.map(Arc::new);
    let engines = [three_nodes(), three_nodes()];
    let [mut alone, mut together] = [0, 1].map(|n: usize| {
        let framework = Framework::default_profile();
        scheduler(&engines[n], framework, AlgorithmConfig::default())
    });
    let node = |placed: Result<Placement, Failure>| placed.ok().map(kept);
    let expected: Vec<_> = pods.iter().map(|pod| node(alone.schedule(pod, NOW))).collect();
    let found: Vec<_> = together.schedule_batch(&pods, NOW).into_iter().map(node).collect();
    assert_eq!(found, expected);
    assert_eq!((found[0].as_deref(), found[3].as_deref()), (Some("n2"), None));
    assert_eq!((found[6].as_deref(), found[7].as_deref()), (None, Some("n1")));
    let generation = |engine: &Engine| engine.reader().unwrap().snapshot().generation();
    assert_eq!(generation(&engines[0]), generation(&engines[1]));
}

/// A pod that shares a rack with no other pod of its kind.
fn apart(name: &str) -> Arc<Pod> {
    Arc::new(pod(name).cpu(100).label("app", "x").pod_anti_affinity(in_rack()).build())
}

#[test]
fn a_placement_that_depends_on_other_nodes_is_checked_even_if_its_own_node_did_not_change() {
    let framework = Arc::new(Framework::default_profile());
    let check = FilterCheck::new(Profiles::one(framework));
    let engine = Engine::shared(Config { commit_check: check.into(), ..Config::default() });
    // Only the last node, which is full, shares a rack with another one.
    for (name, rack, pods) in [("n1", "r1", 10), ("n2", "r2", 10), ("n3", "r2", 0)] {
        let node = node(name).zone(name).label("rack", rack).cpu(1_000).pods(pods).build();
        submit(&engine, Event::add_node(node)).unwrap();
    }
    let (calls, submitter) = (AtomicUsize::new(0), engine.clone());
    let meddler = Meddler(Arc::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            let other = pod("other").label("app", "x").on("n3").build();
            submit(&submitter, Event::add_pod(other)).unwrap();
        }
    }));
    let framework = with_plugin(meddler);
    let mut scheduler = scheduler(&engine, framework, AlgorithmConfig::default());
    let placed = scheduler.schedule_batch(&[apart("a"), apart("b")], NOW);
    assert_eq!(placed.iter().filter(|placed| placed.is_ok()).count(), 1, "{placed:?}");
    assert_eq!(scheduler.figures().conflicts, 1);
    let end = engine.reader().unwrap().snapshot();
    assert_eq!(end.node("n2").unwrap().pod_count(), 0);
}

/// Counts the placements that [`FilterCheck`] checks one by one.
struct Counting(FilterCheck, Arc<AtomicUsize>);

impl CommitCheck for Counting {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.check(cluster, pod, node)
    }

    fn check_unchanged(&self, cluster: &Cluster, pod: &Pod, nodes: &[NodeSlot]) -> Recheck {
        self.0.check_unchanged(cluster, pod, nodes)
    }
}

/// Requires the pods of one kind to be in one rack, or to be in different racks as anti-affinity.
fn in_rack() -> PodAffinity {
    let term = PodAffinityTerm {
        topology_key: "rack".into(),
        selector: LabelSelector::from_labels([("app", "x")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    PodAffinity { required: Box::new([term]), ..PodAffinity::default() }
}

/// A pod that must share a rack with another one of its kind.
fn near(name: &str) -> Pod {
    pod(name).cpu(100).label("app", "x").pod_affinity(in_rack()).build()
}

/// Schedules two pods, which must be in a rack with others of their kind, in a batch. The nodes n1 and n2 are in one
/// rack and n3 in another one; `before` happens first, and `meanwhile` during the second decision. Returns the racks of
/// the pods, the number of conflicts and the number of placements that were checked one by one.
fn near_others(before: &[Event], meanwhile: Vec<Event>) -> (Vec<Option<String>>, u64, usize) {
    near_others_checked_by(Framework::default_profile(), before, meanwhile)
}

fn near_others_checked_by(
    framework: Framework,
    before: &[Event],
    meanwhile: Vec<Event>,
) -> (Vec<Option<String>>, u64, usize) {
    let checked = Arc::new(AtomicUsize::new(0));
    let check = FilterCheck::new(Profiles::one(Arc::new(framework)));
    let commit_check = CommitPolicy::from(Counting(check, checked.clone()));
    let engine = Engine::shared(Config { commit_check, ..Config::default() });
    for (name, rack) in [("n1", "r1"), ("n2", "r1"), ("n3", "r2")] {
        let node = node(name).zone(name).label("rack", rack).cpu(1_000).pods(10);
        submit(&engine, Event::add_node(node.build())).unwrap();
    }
    for event in before {
        submit(&engine, event.clone()).unwrap();
    }
    let (calls, submitter) = (AtomicUsize::new(0), engine.clone());
    let meddler = Meddler(Arc::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            meanwhile.iter().for_each(|event| submit(&submitter, event.clone()).unwrap());
        }
    }));
    let mut scheduler = scheduler(&engine, with_plugin(meddler), AlgorithmConfig::default());
    let placed = scheduler.schedule_batch(&[near("a"), near("b")].map(Arc::new), NOW);
    let end = engine.reader().unwrap().snapshot();
    assert_eq!(end.audit(), vec![]);
    let rack = |node: &str| end.node(node)?.node()?.labels.get("rack").map(str::to_owned);
    let racks = placed.iter().map(|placed| rack(placed.as_ref().ok()?.node()));
    (racks.collect(), scheduler.figures().conflicts, checked.load(Ordering::Relaxed))
}

#[test]
fn placements_near_other_pods_are_taken_over_if_they_are_still_near() {
    let on = |name: &str, node: &str| Event::add_pod(pod(name).label("app", "x").on(node).build());
    // A template with affinity that the writer does not know yet is not taken over.
    let first = [Event::add_pod(near("first").on("n1"))];
    let gone = || Event::RemovePod { uid: Uid::new("default/first"), node: None };
    let (r1, r2) = (Some("r1".to_owned()), Some("r2".to_owned()));

    // Another pod of the kind, elsewhere.
    let (racks, conflicts, checked) = near_others(&first, vec![on("other", "n3")]);
    assert_eq!((racks, conflicts, checked), (vec![r1.clone(), r1.clone()], 0, 0));
    // The kind is in the other rack only.
    let (racks, conflicts, _) = near_others(&first, vec![gone(), on("other", "n3")]);
    assert_eq!((racks, conflicts), (vec![r2.clone(), r2.clone()], 2));
    // Pods without others of their kind fit on every node, but no longer after one of them has been placed.
    let (racks, conflicts, checked) = near_others(&first, vec![gone()]);
    assert_eq!((&racks[0], conflicts), (&racks[1], 0));
    assert!(checked > 0);
    // Such a pod was placed on a node that is not in the rack of another one that has been placed since.
    for (node, rack) in [("n1", &r1), ("n3", &r2)] {
        let (racks, _, _) = near_others(&[], vec![on("other", node)]);
        assert_eq!(racks, [rack.clone(), rack.clone()]);
    }
    // A pod that shares its rack with none of the kind.
    let alone = pod("alone").pod_anti_affinity(in_rack()).on("n2").build();
    let (racks, conflicts, _) = near_others(&first, vec![Event::add_pod(alone)]);
    assert_eq!((racks, conflicts), (vec![None, None], 2));
}

#[test]
fn placements_are_checked_one_by_one_if_more_than_the_template_matters() {
    let other = |node: &str| pod("other").label("app", "x").on(node).build();
    let first = [Event::add_pod(near("first").on("n1"))];
    let checked = |framework| {
        let (racks, conflicts, checked) =
            near_others_checked_by(framework, &first, vec![Event::add_pod(other("n3"))]);
        assert_eq!((&racks[0], conflicts), (&Some("r1".to_owned()), 0));
        checked
    };
    assert_eq!(checked(Framework::default_profile()), 0);
    // A plugin of which it is not known whether it treats all pods of a template alike.
    assert_eq!(checked(with_plugin(Meddler(Arc::new(|| ())))), 2);
    // A pod that takes precedence is nominated to a node.
    let handle = Handle::default();
    handle.nominator().add(pod("nominated").priority(1).cpu(100).build(), "n2".into());
    assert_eq!(checked(Framework::default_profile_with(&handle)), 2);
}

/// A fault of the commit check's plugin. The scheduler's profile lacks the plugin.
#[derive(Clone, Copy, Debug)]
enum Fault {
    RejectsPods,
    AllowsOnlyN3,
    MayReject,
    RejectsNodes,
    Panics,
}

impl Plugin for Fault {
    plugin!("Fault", PreFilter, Filter);

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        match self {
            Fault::RejectsPods => Err(Status::new(Code::Unschedulable, "Fault", "rejected")),
            Fault::AllowsOnlyN3 => Ok(PreFilter::Only(vec!["n3".into()], Box::new(*self))),
            _ => Ok(PreFilter::Filter(Box::new(*self))),
        }
    }
}

impl Filter for Fault {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        match self {
            Fault::RejectsNodes => Some(Status::new(Code::Unschedulable, "Fault", "rejected")),
            Fault::Panics => panic!("a fault"),
            _ => None,
        }
    }

    fn stays_feasible(&self) -> bool {
        !matches!(self, Fault::MayReject)
    }
}

#[test]
fn each_filter_takes_part_when_placements_are_checked_together() {
    let first = [Event::add_pod(near("first").on("n1"))];
    let other = || Event::add_pod(pod("other").on("n3").build());
    for (fault, conflicts) in [
        (Fault::RejectsPods, 2),
        (Fault::AllowsOnlyN3, 2),
        (Fault::MayReject, 0),
        (Fault::RejectsNodes, 2),
        (Fault::Panics, 2),
    ] {
        let (racks, found, checked) =
            near_others_checked_by(with_plugin(fault), &first, vec![other()]);
        assert_eq!((found, checked), (conflicts, 2), "{fault:?}");
        // Decided again on the current version, the placements are not checked.
        assert!(racks.iter().all(|rack| rack.as_deref() == Some("r1")), "{fault:?}: {racks:?}");
    }
}

/// Refuses a node, once it is set.
#[derive(Clone, Default)]
struct Refusing(Arc<OnceLock<String>>);

impl CommitCheck for Refusing {
    fn check(&self, _: &Cluster, _: &Pod, node: &str) -> Result<(), String> {
        match self.0.get() {
            Some(refused) if *refused == *node => Err("refused".to_owned()),
            _ => Ok(()),
        }
    }

    fn check_unchanged(&self, cluster: &Cluster, pod: &Pod, nodes: &[NodeSlot]) -> Recheck {
        let nodes = nodes.iter().map(|slot| cluster.node_by_slot(*slot).unwrap().name());
        Recheck::Each(nodes.map(|node| self.check(cluster, pod, node).is_ok()).collect())
    }
}

#[test]
fn each_placement_has_its_own_result() {
    // The cpu request of each pod, by which pods share a template, and the pod whose node another event changes.
    for (cpu, changed) in [([600, 601, 601], None), ([600; 3], Some(0)), ([600; 3], None)] {
        let run = |event: Option<String>, refused: Option<&str>| {
            let check = Refusing::default();
            let engine =
                Engine::shared(Config { commit_check: check.clone().into(), ..Config::default() });
            for name in ["n1", "n2", "n3"] {
                let node = node(name).zone(name).cpu(1_000).pods(10).build();
                submit(&engine, Event::add_node(node)).unwrap();
            }
            let (calls, submitter) = (AtomicUsize::new(0), engine.clone());
            let meddler = Meddler(Arc::new(move || {
                if calls.fetch_add(1, Ordering::Relaxed) == 1 {
                    let event = event.as_ref().map_or_else(
                        || Event::put_pending(pod("pending").build()),
                        |node| Event::add_pod(pod("beside").on(node.clone()).build()),
                    );
                    submit(&submitter, event).unwrap();
                }
            }));
            if let Some(refused) = refused {
                check.0.set(refused.to_owned()).unwrap();
            }
            let mut scheduler =
                scheduler(&engine, with_plugin(meddler), AlgorithmConfig::default());
            let pods: Vec<Arc<Pod>> = (0..3).flat_map(|n| pods([n], cpu[n])).collect();
            let placed = scheduler.schedule_batch(&pods, NOW);
            let nodes = placed.iter().map(|placed| placed.as_ref().unwrap().node().to_string());
            (nodes.collect::<Vec<_>>(), scheduler.figures().conflicts)
        };
        let (nodes, conflicts) = run(None, None);
        assert_eq!(conflicts, 0);
        let event = changed.map(|pod: usize| nodes[pod].clone());
        let (_, conflicts) = run(event, Some(&nodes[1]));
        assert_eq!(conflicts, 1, "{cpu:?}, {changed:?}");
    }
}

#[test]
fn a_pod_that_another_scheduler_has_placed_is_refused_alone() {
    let engine = three_nodes();
    let placed = pod("p1").cpu(600).on("n3").build();
    let (scheduler, nodes) = meddle(&engine, Event::assume(placed));
    let known = EventError::AlreadyInCache { uid: Uid::new("default/p1") };
    assert_eq!(nodes[1], Err(Failure::Refused(known)));
    assert_eq!(scheduler.figures().failed, 1);
    let end = engine.reader().unwrap().snapshot();
    assert_eq!((end.pod_count(), end.audit()), (3, vec![]));
    assert!(end.nodes().all(|node| node.requested().cpu.0 == 600));
}

#[test]
fn a_closed_engine_fails_each_pod_of_a_batch() {
    let engine = three_nodes();
    let framework = Framework::default_profile();
    let mut scheduler = scheduler(&engine, framework, AlgorithmConfig::default());
    engine.close();
    let failed = scheduler.schedule_batch(&pods(0..3, 100), NOW);
    assert_eq!(decisions(&failed), [(); 3].map(|()| Err(Failure::Closed)));
    assert_eq!(scheduler.figures().failed, 3);
}

/// Schedules the pods one by one on an engine of their own, and in a batch on another one. Both have these nodes, and
/// the framework that `framework` makes. Returns the results, which must be equal.
fn both_ways(
    nodes: &[portolan::model::Node],
    framework: impl Fn() -> Framework,
    config: &AlgorithmConfig,
    pods: &[Arc<Pod>],
) -> Vec<Result<String, Failure>> {
    let run = |in_batch: bool| -> Vec<_> {
        let engine = Engine::shared(Config::default());
        for node in nodes {
            submit(&engine, Event::add_node(node.clone())).unwrap();
        }
        let mut scheduler = scheduler(&engine, framework(), config.clone());
        let results = match in_batch {
            true => scheduler.schedule_batch(pods, NOW),
            false => pods.iter().map(|pod| scheduler.schedule(pod, NOW)).collect(),
        };
        let nodes = results.into_iter().map(|placed| placed.map(|of| of.node().to_string()));
        nodes.collect()
    };
    let (one_by_one, in_batch) = (run(false), run(true));
    assert_eq!(one_by_one, in_batch);
    in_batch
}

#[test]
fn pods_that_prefer_each_other_see_the_pods_before_them_in_the_batch() {
    let nodes = ["n1", "n2", "n3"]
        .map(|name| node(name).hostname().zone(name).cpu(64_000).memory(64 << 30).pods(10).build());
    let term = PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".into(),
        selector: LabelSelector::from_labels([("app", "x")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    let preferred = Box::new([WeightedPodAffinityTerm { weight: 100, term }]);
    let affinity = PodAffinity { preferred, ..PodAffinity::default() };
    let build = |n| pod(format!("p{n}")).cpu(100).label("app", "x");
    let near: Vec<Arc<Pod>> =
        (0..6).map(|n| Arc::new(build(n).pod_affinity(affinity.clone()).build())).collect();
    let placed = both_ways(&nodes, Framework::default_profile, &AlgorithmConfig::default(), &near);
    assert!(placed.iter().all(|node| *node == placed[0]), "{placed:?}");
    let apart: Vec<Arc<Pod>> =
        (0..6).map(|n| Arc::new(build(n).pod_anti_affinity(affinity.clone()).build())).collect();
    let placed = both_ways(&nodes, Framework::default_profile, &AlgorithmConfig::default(), &apart);
    let on = |name: &str| placed.iter().flatten().filter(|node| *node == name).count();
    assert_eq!(["n1", "n2", "n3"].map(on), [2; 3]);
}

/// A large node that every pod prefers, and two smaller ones.
fn large_and_small() -> [portolan::model::Node; 3] {
    [("large", 1_300), ("small", 650), ("smaller", 620)]
        .map(|(name, cpu)| node(name).zone(name).cpu(cpu).memory(64 << 30).pods(10).build())
}

/// Keeps one unit per node for itself at Reserve.
#[derive(Default)]
struct Units(Mutex<Vec<String>>);

impl Plugin for Units {
    plugin!("Units", Filter, Reserve);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(Free(self))))
    }

    fn reserve(&self, _: Cycle<'_>, node: &portolan::model::Name) -> Result<(), Status> {
        self.0.lock().unwrap().push(node.to_string());
        Ok(())
    }
}

struct Free<'a>(&'a Units);

impl portolan::plugin::Filter for Free<'_> {
    fn filter(&self, node: portolan::cache::NodeInfo<'_>) -> Option<Status> {
        let taken = self.0.0.lock().unwrap().iter().any(|taken| *taken == **node.name());
        taken.then(|| Status::new(Code::Unschedulable, "Units", "no unit left"))
    }
}

#[test]
fn a_decision_sees_what_plugins_reserved_for_the_pods_before_it() {
    let framework = || with_plugin(Units::default());
    let config = AlgorithmConfig::default();
    let placed = both_ways(&large_and_small(), framework, &config, &pods(0..3, 100));
    assert_eq!(placed, ["large", "small", "smaller"].map(|node| Ok(node.to_string())));
}

#[test]
fn a_nominated_pod_is_placed_on_its_node() {
    let mut pods = pods(0..3, 100);
    Arc::make_mut(&mut pods[1]).nominated_node_name = Some("small".into());
    let framework = Framework::default_profile;
    let placed = both_ways(&large_and_small(), framework, &AlgorithmConfig::default(), &pods);
    assert_eq!(placed, ["large", "small", "large"].map(|node| Ok(node.to_string())));
}

/// Schedules the pods while `nominated` is nominated to the node `to`.
fn beside_nominated(pods: &[Arc<Pod>], nominated: &Pod, to: &str) -> Vec<String> {
    let framework = || {
        let handle = Handle::default();
        handle.nominator().add(nominated.clone(), to.into());
        Framework::default_profile_with(&handle)
    };
    let placed = both_ways(&large_and_small(), framework, &AlgorithmConfig::default(), pods);
    placed.into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_placed_pod_no_longer_counts_as_nominated() {
    let pods = pods(0..3, 600);
    assert_eq!(beside_nominated(&pods, &pods[1], "small"), ["large", "large", "small"]);
}

#[test]
fn no_pod_of_a_batch_gets_the_resources_of_a_nominated_pod() {
    let other = pod("other").cpu(600).build();
    assert_eq!(beside_nominated(&pods(0..2, 600), &other, "large"), ["large", "small"]);
}

/// Fails when it is asked to score nodes for the pod `p1`.
struct Faulty;

impl Plugin for Faulty {
    plugin!("Faulty", PreScore);

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        match &*cycle.pod.name {
            "p1" => Err(Status::new(Code::Error, "Faulty", "the scores cannot be read")),
            _ => Ok(PreScore::Skip),
        }
    }
}

#[test]
fn a_cycle_that_fails_after_its_search_counts_once() {
    let nodes: Vec<_> = (0..300)
        .map(|n| node(format!("n{n}")).cpu(1_000 + n).memory(1 << 30).pods(10).build())
        .collect();
    let config = AlgorithmConfig { percentage_of_nodes: 40, ..AlgorithmConfig::default() };
    // Each search starts where the last one ended.
    let pods = pods(0..4, 100);
    let framework = || with_plugin(Faulty);
    let placed = both_ways(&nodes, framework, &config, &pods);
    assert_eq!(placed.iter().filter(|placed| placed.is_err()).count(), 1);
}

#[test]
fn each_search_of_a_series_starts_where_the_last_one_ended() {
    let nodes: Vec<_> = (0..300)
        .map(|n| node(format!("n{n}")).cpu(1_000 + n * 7 % 300).memory(1 << 30).pods(10).build())
        .collect();
    let config = AlgorithmConfig { percentage_of_nodes: 40, ..AlgorithmConfig::default() };
    let placed = both_ways(&nodes, Framework::default_profile, &config, &pods(0..6, 100));
    assert!(placed.iter().all(Result::is_ok), "{placed:?}");
}

/// Several threads place and forget pods in batches of random sizes.
fn storm(threads: u64) {
    const ROOM: usize = 6 * 10;
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    for n in 0..6 {
        submit(engine, Event::add_node(node(format!("n{n}")).cpu(1_000).pods(20).build())).unwrap();
    }
    let placed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (engine, placed) = (engine.clone(), &placed);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let framework = Framework::default_profile();
                let mut scheduler = scheduler(&engine, framework, AlgorithmConfig::default());
                for round in 0..40 {
                    let size = 1 + random.index(12);
                    let name = |n| pod(format!("p-{thread}-{round}-{n}")).cpu(100).build();
                    let batch: Vec<Arc<Pod>> = (0..size).map(|n| Arc::new(name(n))).collect();
                    for placement in scheduler.schedule_batch(&batch, NOW).into_iter().flatten() {
                        placed.fetch_add(1, Ordering::Relaxed);
                        let pod = placement.keep_assumed();
                        if random.one_in(2) {
                            submit(&engine, Event::forget(&pod)).unwrap();
                            placed.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    let snapshot = scheduler.reader().snapshot();
                    assert!(snapshot.nodes().all(|node| node.requested().cpu.0 <= 1_000));
                }
            });
        }
    });
    let end = engine.reader().unwrap().snapshot();
    assert_eq!(end.pod_count(), placed.into_inner());
    assert!(end.pod_count() <= ROOM);
    assert_eq!(end.audit(), vec![]);
    let differences = engine.with_writer(|writer| writer.rebuild().differences).unwrap();
    assert_eq!(differences, vec![]);
}

#[test]
fn batches_on_several_threads_overcommit_no_node() {
    [2, 4, 8].into_iter().for_each(storm);
}

#[test]
fn a_loop_takes_what_is_ready_and_waits_only_for_the_first_pod() {
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    submit(engine, Event::add_node(node("n1").cpu(1_000).pods(20).build())).unwrap();
    for n in 0..5 {
        let cpu = if n == 3 { 2_000 } else { 100 };
        submit(engine, Event::put_pending(pod(format!("p{n}")).cpu(cpu).build())).unwrap();
    }
    let clock = || Timestamp::from_secs(1);
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let most = NonZeroUsize::new(4).unwrap();
    let mut seen = Vec::new();
    for expected in [4, 1] {
        let attempts = scheduling.schedule_batch(most, None, clock).unwrap();
        assert_eq!(attempts.len(), expected);
        for attempt in attempts {
            seen.push(match attempt {
                Attempt::Placed(placement) => (placement.keep_assumed().name.to_string(), true),
                Attempt::Failed(Unplaced { pod, .. }) => (pod.name.to_string(), false),
                Attempt::Gang { .. } => panic!("there is no gang"),
                _ => panic!("an unknown attempt"),
            });
        }
    }
    let expected = (0..5).map(|n| (format!("p{n}"), n != 3));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    let past = Some(std::time::Instant::now());
    assert!(scheduling.schedule_batch(most, past, clock).is_err());
}

#[test]
fn a_batch_within_the_writer_places_nothing() {
    let engine = Engine::shared(Config::default());
    submit(&engine, Event::add_node(node("n1").cpu(1_000).pods(20).build())).unwrap();
    let mut scheduler =
        scheduler(&engine, Framework::default_profile(), AlgorithmConfig::default());
    let pods = ["a", "b"].map(|name| Arc::new(pod(name).cpu(100).build()));
    let results = engine.with_writer(|_| scheduler.schedule_batch(&pods, NOW)).unwrap();
    assert!(results.iter().all(|result| matches!(result, Err(Failure::OwnThread))));
    assert_eq!(engine.reader().unwrap().snapshot().pod_count(), 0);
}

#[test]
fn each_pod_of_a_batch_is_decided_by_its_own_profile() {
    let handle = Handle::default();
    let tolerant = default_plugins(&handle)
        .into_iter()
        .filter(|(plugin, _)| plugin.info().name() != "TaintToleration")
        .collect();
    let algorithm =
        |framework: Framework| Algorithm::new(framework, AlgorithmConfig::default(), None);
    let profiles = Profiles::by_name([
        ("tolerant".to_owned(), algorithm(Framework::new(tolerant).unwrap())),
        ("default-scheduler".to_owned(), algorithm(Framework::default_profile())),
    ]);
    let engine = Engine::shared(Config::default());
    let taint = Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule };
    submit(&engine, Event::add_node(node("n1").cpu(1_000).pods(20).taint(taint).build())).unwrap();
    let mut scheduler = Scheduler::new(engine, profiles).unwrap();
    let of = |name: &str, scheduler: &str| {
        let built = pod(name).cpu(100);
        Arc::new(built.scheduler_name(scheduler).build())
    };
    let pods = [of("a", "tolerant"), of("b", "default-scheduler"), of("c", "default-scheduler")];
    let placed = scheduler.schedule_batch(&pods, NOW);
    assert_eq!(placed.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false]);
}

/// Counts how often it observes a cycle, if it does, and how often it is asked whether it reserves.
struct Observing {
    observes: bool,
    observed: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Plugin for Observing {
    fn info(&self) -> PluginInfo {
        let info = PluginInfo::new("Observing", &[Point::Reserve]);
        if self.observes { info.after_filter() } else { info }
    }

    fn after_filter(
        &self,
        _: Cycle<'_>,
        _: &Feasible<'_>,
        _: &Diagnosis<'_>,
    ) -> Result<(), Status> {
        self.observed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn acts_at_reserve(&self, _: &Pod, _: &Cluster) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        false
    }
}

/// Schedules pods in one batch on a node with room for five. Returns how many were placed, how often the plugin
/// observed a cycle, and how often it was asked whether it reserves.
fn counted(pods: usize, observes: bool) -> [usize; 3] {
    let engine = Engine::shared(Config::default());
    submit(&engine, Event::add_node(node("n").cpu(500).memory(1 << 30).build())).unwrap();
    let [observed, asked] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let observing = Observing { observes, observed: observed.clone(), asked: asked.clone() };
    let mut plugins = default_plugins(&Handle::default());
    plugins.push((Box::new(observing), 0));
    let framework = Framework::new(plugins).unwrap();
    let mut scheduler = scheduler(&engine, framework, AlgorithmConfig::default());
    let pods: Vec<Arc<Pod>> =
        (0..pods).map(|n| Arc::new(pod(format!("p{n}")).cpu(100).build())).collect();
    let placed = scheduler.schedule_batch(&pods, NOW).iter().filter(|of| of.is_ok()).count();
    [placed, observed.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)]
}

#[test]
fn a_plugin_that_observes_cycles_observes_the_cycle_of_each_pod_of_a_batch() {
    assert_eq!(counted(7, true)[..2], [5, 7]);
    assert_eq!(counted(7, false)[..2], [5, 0]);
}

#[test]
fn pods_that_fit_nowhere_are_not_examined_again_for_each_other() {
    let [placed, _, asked] = counted(900, false);
    assert_eq!(placed, 5);
    assert!(asked < 12 * 900, "{asked}");
}
