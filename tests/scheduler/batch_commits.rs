//! Commits of batches beside other writers. A plan saves the writer work, but the outcome is the same as for pods that
//! are scheduled one by one.

use std::sync::{Arc, Mutex};

use portolan::cache::{Cluster, CommitCheck, Config, Engine, Event, PlacedPod, Store};
use portolan::model::{
    AccessMode, EventError, Generation, LabelSelector, Labels, Name, Namespace, Object,
    PersistentVolumeClaim, Pod, PodAffinity, PodAffinityTerm, PodBuilder, Quantity, Template,
    Timestamp, TopologySpreadConstraint, Uid, UnsatisfiableAction, node, pod,
};
use portolan::plugin::{
    Cycle, Handle, NodeResourcesFit, Plugin, PreFilter, Status, default_plugins,
};
use portolan::scheduler::{CycleFigures, FilterCheck};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework, Placement, Profiles, Scheduler};
use portolan_testkit::draw::Draw;
use portolan_testkit::in_tree;
use portolan_testkit::plugin;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(0);

fn submit(engine: &Engine, event: Event) -> Result<(), EventError> {
    engine.submit(event).unwrap().wait().unwrap().map(drop)
}

/// Calls a function before each decision.
struct Meddler(Box<dyn Fn() + Send + Sync>);

impl Plugin for Meddler {
    plugin!("Meddler", PreFilter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        (self.0)();
        Ok(PreFilter::Skip)
    }

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }
}

/// Checks placements with the filters of the default profile, and never reports that a check depends on the node alone.
struct NeverLocal(FilterCheck);

impl CommitCheck for NeverLocal {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.0.check(cluster, pod, node)
    }
}

fn filter_check() -> FilterCheck {
    FilterCheck::new(Profiles::one(Arc::new(Framework::default_profile())))
}

/// Supplies the resource `example.com/unknown` after [`Supply`] events of `true`, and counts the pods of two apps.
#[derive(Clone, Default)]
struct Supplier {
    supplies: bool,
    changed: Generation,
    pods: usize,
}

struct Supply(bool);

const SUPPLIED: &str = "example.com/unknown";

impl Store for Supplier {
    type Event = Supply;

    const NAME: &'static str = "supplier";

    fn check(&self, _: &Supply, _: &Cluster) -> Result<(), String> {
        Ok(())
    }

    fn apply(&mut self, Supply(supplies): &Supply, generation: Generation) {
        (self.supplies, self.changed) = (*supplies, generation);
    }

    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        pod.template.labels.get("app").is_some()
    }

    fn pod_placed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.pods += 1;
    }

    fn pod_removed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.pods -= 1;
    }

    fn supplies(&self, resource: &str) -> bool {
        self.supplies && resource == SUPPLIED
    }

    fn concerns(&self, template: &Template, since: Generation) -> bool {
        let requests = template.resources.incoming.scalars.get(SUPPLIED).is_some();
        requests && (self.supplies || self.changed > since)
    }

    fn without_pods(&self) -> Option<Supplier> {
        Some(Supplier { pods: 0, ..self.clone() })
    }

    fn dump(&self) -> String {
        self.pods.to_string()
    }
}

/// A scheduler with other events submitted during its decisions.
struct Meddled {
    engine: Engine,
    scheduler: Scheduler,
    /// How many more decisions begin before these events are submitted.
    events: Arc<Mutex<(usize, Vec<Event>)>>,
}

impl Meddled {
    fn new(takes_over: bool, config: AlgorithmConfig) -> Meddled {
        let commit_check = match takes_over {
            true => filter_check().into(),
            false => NeverLocal(filter_check()).into(),
        };
        let engine = Engine::shared(
            Config { commit_check, pod_names: true, ..Config::default() }
                .with_store(Supplier::default()),
        );
        let events = Arc::new(Mutex::new((0, Vec::new())));
        let (submitter, due) = (engine.clone(), events.clone());
        let meddler = Meddler(Box::new(move || {
            let mut due = due.lock().unwrap();
            match due.0 {
                0 => due.1.drain(..).for_each(|event| drop(submit(&submitter, event))),
                _ => due.0 -= 1,
            }
        }));
        let mut plugins = default_plugins(&Handle::default());
        plugins.push((Box::new(meddler), 0));
        let framework = Framework::new(plugins).unwrap();
        let algorithm = Algorithm::new(framework, config, None);
        let scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
        Meddled { engine, scheduler, events }
    }

    /// Schedules the pods in a batch, and submits the events before the decision after the first `decisions` ones.
    fn batch(
        &mut self,
        pods: &[Arc<Pod>],
        decisions: usize,
        events: Vec<Event>,
    ) -> Vec<Result<Name, Failure>> {
        *self.events.lock().unwrap() = (decisions, events);
        let placed = self.scheduler.schedule_batch(pods, NOW);
        self.events.lock().unwrap().1.drain(..).for_each(|event| drop(submit(&self.engine, event)));
        let kept = |placed: Placement| placed.keep_assumed().node_name.clone().unwrap();
        placed.into_iter().map(|placed| placed.map(kept)).collect()
    }

    fn figures(&self) -> CycleFigures {
        self.scheduler.figures()
    }
}

/// A pod that only fits on this node.
fn only_on(name: &str, node: &str) -> PodBuilder {
    pod(name).cpu(100).node_selector(Labels::new([("kubernetes.io/hostname", node)]))
}

fn one_rack(namespace_selector: LabelSelector) -> PodAffinity {
    let term = PodAffinityTerm {
        topology_key: "rack".into(),
        selector: LabelSelector::from_labels([("app", "x")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector,
    };
    PodAffinity { required: Box::new([term]), ..PodAffinity::default() }
}

/// An engine with three nodes in one rack, but in as many zones and therefore chunks.
fn one_rack_of_nodes() -> Meddled {
    let meddled = Meddled::new(true, AlgorithmConfig::default());
    for name in ["n1", "n2", "n3"] {
        let node = node(name).hostname().zone(name).label("rack", "r").cpu(1_000).pods(10).build();
        submit(&meddled.engine, Event::add_node(node)).unwrap();
    }
    meddled
}

#[test]
fn a_pod_is_not_checked_beside_pods_that_come_after_it() {
    let mut meddled = one_rack_of_nodes();
    let seed = pod("seed").label("app", "x").on("n3").build();
    submit(&meddled.engine, Event::add_pod(seed.clone())).unwrap();
    // The affinity of the second pod requires the seed. The third pod, which also matches, is placed after the second.
    let pods = [
        only_on("first", "n1").build(),
        only_on("near", "n2").pod_affinity(one_rack(LabelSelector::Nothing)).build(),
        only_on("late", "n1").label("app", "x").build(),
    ];
    // A pod on a node without a rack keeps the template of the third pod in use.
    let elsewhere = node("n4").zone("n4").cpu(1_000).pods(10).build();
    submit(&meddled.engine, Event::add_node(elsewhere)).unwrap();
    let identical = Pod { uid: Uid::new("default/identical"), ..pods[2].clone() }.on("n4");
    submit(&meddled.engine, Event::add_pod(identical)).unwrap();
    let gone = Event::remove_pod(&seed);
    let placed = meddled.batch(&pods.map(Arc::new), 2, vec![gone]);
    assert_eq!(placed, ["n1", "n2", "n1"].map(|node| Ok(node.into())));
    // The second pod is scheduled again, after the third one.
    assert_eq!(meddled.figures().conflicts, 1);
}

/// Nodes n1 and n2 in one rack and n3 in another one, each in a zone of its own, and a pod of the app x on n2 and on
/// n3.
fn two_racks(takes_over: bool) -> Meddled {
    let meddled = Meddled::new(takes_over, AlgorithmConfig::default());
    for (name, rack) in [("n1", "r1"), ("n2", "r1"), ("n3", "r2")] {
        let node = node(name).hostname().zone(name).label("rack", rack).cpu(10_000).pods(100);
        submit(&meddled.engine, Event::add_node(node.build())).unwrap();
    }
    for (name, node) in [("seed", "n2"), ("elsewhere", "n3")] {
        let pod = pod(name).label("app", "x").on(node).build();
        submit(&meddled.engine, Event::add_pod(pod)).unwrap();
    }
    meddled
}

/// Pods on n3, each of another template. They get the numbers that a plan gives to its templates.
fn numbered(template: impl Fn(PodBuilder) -> PodBuilder) -> impl Iterator<Item = Event> {
    (0..6).map(move |n| {
        let other = pod(format!("other-{n}")).label("n", &n.to_string());
        Event::add_pod(template(other).on("n3").build())
    })
}

/// Schedules the pods in a batch, with these events before the decision after the first `decisions` ones, with and
/// without taking chunks over. Returns the results, which must be equal.
fn either_way(
    pods: [PodBuilder; 3],
    decisions: usize,
    events: &[Event],
) -> Vec<Result<Name, Failure>> {
    beside_nodes(&[], pods, decisions, events)
}

fn beside_nodes(
    nodes: &[Event],
    pods: [PodBuilder; 3],
    decisions: usize,
    events: &[Event],
) -> Vec<Result<Name, Failure>> {
    let pods = pods.map(|pod| Arc::new(pod.build()));
    let ways = [true, false].map(|takes_over| {
        let mut meddled = two_racks(takes_over);
        nodes.iter().for_each(|node| submit(&meddled.engine, node.clone()).unwrap());
        let placed = meddled.batch(&pods, decisions, events.to_vec());
        let end = meddled.engine.reader().unwrap().snapshot();
        assert_eq!(end.audit(), vec![]);
        (placed, meddled.figures(), end.dump())
    });
    assert_eq!(ways[0], ways[1]);
    let [(placed, ..), _] = ways;
    placed
}

#[test]
fn a_check_sees_no_later_pod_of_the_batch_that_could_be_taken_over() {
    let near = || one_rack(LabelSelector::Nothing);
    let gone = || Event::RemovePod { uid: Uid::new("default/seed"), node: None };
    let late = |app: &str| only_on("late", "n1").label("app", app);

    // The only pod that meets the affinity comes after the check.
    let pods = [only_on("first", "n1"), only_on("near", "n2").pod_affinity(near()), late("x")];
    let known = Pod { uid: Uid::new("default/known"), ..late("x").build() };
    either_way(pods, 2, &[Event::add_pod(known.on("n3")), gone()]);

    // A later pod has the number of a template that meets the affinity.
    let pods = [only_on("first", "n1"), only_on("near", "n2").pod_affinity(near()), late("y")];
    let events: Vec<Event> =
        std::iter::once(gone()).chain(numbered(|pod| pod.label("app", "x"))).collect();
    let placed = either_way(pods, 2, &events);
    assert!(matches!(&placed[1], Err(Failure::Fit(_))), "{placed:?}");

    // A later pod has the number of a template whose anti-affinity excludes the checked pod.
    let plain = only_on("plain", "n2").label("app", "x");
    let pods = [only_on("first", "n1"), plain, late("y").pod_affinity(near())];
    let beside = Event::add_pod(pod("beside").on("n2").build());
    let apart = numbered(|pod| pod.pod_anti_affinity(one_rack(LabelSelector::Nothing)));
    let placed = either_way(pods.clone(), 1, &[vec![beside.clone()], apart.collect()].concat());
    assert!(placed.iter().all(Result::is_ok), "{placed:?}");
    // The same, but pods of that template are only on a node without a rack, so that they exclude nothing.
    let node = Event::add_node(node("n4").zone("n4").cpu(1_000).pods(10).build());
    let apart = (0..6).map(|n| {
        let other = pod(format!("other-{n}")).label("n", &n.to_string()).on("n4");
        Event::add_pod(other.pod_anti_affinity(one_rack(LabelSelector::Nothing)).build())
    });
    let placed = beside_nodes(
        std::slice::from_ref(&node),
        pods,
        1,
        &[vec![beside.clone()], apart.clone().collect()].concat(),
    );
    assert!(placed.iter().all(Result::is_ok), "{placed:?}");

    // The same, but the later pod has no affinity itself. Another pod of its node has.
    let resident = pod("resident").label("app", "x").pod_affinity(near()).on("n1").build();
    let plain = only_on("plain", "n2").label("app", "x");
    let pods = [only_on("first", "n1"), plain, late("y")];
    let nodes = [node, Event::add_pod(resident)];
    let placed = beside_nodes(&nodes, pods, 1, &[vec![beside], apart.collect()].concat());
    assert!(placed.iter().all(Result::is_ok), "{placed:?}");
}

#[test]
fn a_pod_is_checked_if_a_store_that_it_concerned_has_changed() {
    let supply = |supplies| Event::custom::<Supplier>(Supply(supplies));
    let pods = ["a", "b", "c"].map(|name| pod(name).request(SUPPLIED, Quantity::whole(1)));
    let placed = beside_nodes(&[supply(true)], pods, 0, &[supply(false)]);
    assert!(placed.iter().all(Result::is_err), "{placed:?}");
    // A single placement is also checked by local plugins, although its node has not changed.
    let engine = two_racks(true).engine;
    submit(&engine, supply(true)).unwrap();
    let decided = engine.reader().unwrap().generation();
    let assume = |node: &str| {
        let pod = pod(node).request(SUPPLIED, Quantity::whole(1)).on(node).build();
        submit(&engine, Event::assume(pod).decided_on(decided))
    };
    assert_eq!(assume("n1"), Ok(()));
    submit(&engine, supply(false)).unwrap();
    assert!(matches!(assume("n2"), Err(EventError::Conflict { .. })));
}

#[test]
fn a_pod_is_checked_against_the_anti_affinity_of_pods_before_it_in_the_batch() {
    let mut meddled = one_rack_of_nodes();
    let red = LabelSelector::from_labels([("team", "red")]);
    let pods = [
        only_on("apart", "n1").pod_anti_affinity(one_rack(red)).build(),
        only_on("other", "n2").namespace("other").label("app", "x").build(),
    ];
    // From now on, the first pod's term selects the second one.
    let labels = Labels::new([("team", "red")]);
    let labelled = Event::PutObject(Object::from(Namespace { name: "other".into(), labels }));
    let placed = meddled.batch(&pods.map(Arc::new), 1, vec![labelled]);
    assert_eq!(placed[0], Ok("n1".into()));
    assert!(matches!(&placed[1], Err(Failure::Fit(_))), "{placed:?}");
    assert_eq!(meddled.engine.reader().unwrap().snapshot().pod_count(), 1);
}

/// An engine that checks filters, with nodes that are each a rack of its own, in these zones.
fn racks(zones: [&str; 3]) -> Meddled {
    let meddled = Meddled::new(true, AlgorithmConfig::default());
    for (name, zone) in ["n1", "n2", "n3"].into_iter().zip(zones) {
        let node = node(name).zone(zone).label("rack", name).cpu(1_000).pods(10).build();
        submit(&meddled.engine, Event::add_node(node)).unwrap();
    }
    meddled
}

/// Assumes the pods on engines of their own: one by one, in one event, and all or none of them. Returns how many were
/// accepted each time.
fn accepted(zones: [&str; 3], pods: &[Arc<Pod>]) -> [usize; 3] {
    let assume = |pod: &Arc<Pod>| Event::assume(pod.clone());
    let each = Event::assume_each(pods.to_vec());
    let all = Event::assume_all(pods.iter().map(|pod| Pod::clone(pod)).collect::<Vec<_>>());
    let ways = [pods.iter().map(assume).collect(), vec![each], vec![all]];
    ways.map(|events| {
        let engine = racks(zones).engine;
        let added = |event| engine.submit(event).unwrap().wait().unwrap().map_or(0, |of| of.added);
        events.into_iter().map(added).sum()
    })
}

#[test]
fn a_check_counts_the_pods_that_were_checked_before() {
    // The first pod may be anywhere, and the others belong to its rack.
    let together = |node: &str| {
        let near = one_rack(LabelSelector::Nothing);
        Arc::new(pod(node).label("app", "x").pod_affinity(near).on(node).build())
    };
    let pods = ["n1", "n2", "n3"].map(together);
    assert_eq!(accepted(["a", "b", "c"], &pods), [1, 1, 0]);
    assert_eq!(accepted(["a"; 3], &pods), [1, 1, 0]);
}

/// Spreads the pods of the app x over racks.
fn spread_over_racks(pod: PodBuilder, max_skew: i32) -> PodBuilder {
    let constraint = TopologySpreadConstraint {
        max_skew,
        topology_key: "rack".into(),
        when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
        selector: LabelSelector::from_labels([("app", "x")]),
        min_domains: None,
        honor_node_affinity: true,
        honor_node_taints: false,
        match_label_keys: Box::default(),
    };
    pod.spec(|spec| spec.topology_spread = Box::new([constraint]))
}

#[test]
fn a_check_counts_all_pods_of_a_node_that_were_checked_before() {
    let on = |name: String, node: &str| {
        Arc::new(spread_over_racks(pod(name).label("app", "x"), 2).on(node).build())
    };
    let crowd: Vec<Arc<Pod>> = (0..4).map(|n| on(format!("p{n}"), "n1")).collect();
    let spread: Vec<Arc<Pod>> =
        (0..6).map(|n| on(format!("p{n}"), ["n1", "n2", "n3"][n % 3])).collect();
    for zones in [["a", "b", "c"], ["a"; 3]] {
        assert_eq!(accepted(zones, &crowd), [2, 2, 0]);
        assert_eq!(accepted(zones, &spread), [6, 6, 6]);
    }
}

#[test]
fn a_check_counts_the_pods_before_it_in_the_batch() {
    let mut meddled = one_rack_of_nodes();
    let red = LabelSelector::from_labels([("team", "red")]);
    let pods = [
        only_on("other", "n2").namespace("other").label("app", "x").build(),
        only_on("apart", "n1").pod_anti_affinity(one_rack(red)).build(),
    ];
    let labels = Labels::new([("team", "red")]);
    let labelled = Event::PutObject(Object::from(Namespace { name: "other".into(), labels }));
    let placed = meddled.batch(&pods.map(Arc::new), 1, vec![labelled]);
    assert_eq!(placed[0], Ok("n2".into()));
    assert!(matches!(&placed[1], Err(Failure::Fit(_))), "{placed:?}");
    assert_eq!(meddled.engine.reader().unwrap().snapshot().pod_count(), 1);
}

#[test]
fn only_one_pod_of_a_series_gets_a_claim_for_one_pod() {
    let engine = Engine::shared(Config::default());
    for name in ["n1", "n2"] {
        submit(&engine, Event::add_node(node(name).cpu(1_000).pods(10).build())).unwrap();
    }
    let claim = PersistentVolumeClaim {
        namespace: "default".into(),
        name: "disk".into(),
        volume: "v".into(),
        is_bound: true,
        access_modes: Box::new([AccessMode::ReadWriteOncePod]),
        ..PersistentVolumeClaim::default()
    };
    submit(&engine, Event::PutObject(claim.into())).unwrap();
    // Without the plugins that check where the volume is accessible.
    let plugins: Vec<(Box<dyn Plugin>, i64)> =
        vec![(in_tree("VolumeRestrictions"), 0), (Box::new(NodeResourcesFit::default()), 1)];
    let framework = Framework::new(plugins).unwrap();
    let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let mut scheduler = Scheduler::new(engine, Profiles::one(algorithm)).unwrap();
    let pods = ["a", "b", "c"].map(|name| Arc::new(pod(name).cpu(100).claim("disk").build()));
    let placed = scheduler.schedule_batch(&pods, NOW);
    assert_eq!(placed.iter().filter(|placed| placed.is_ok()).count(), 1, "{placed:?}");
}

/// Compares an engine that takes over chunks of plans with one that checks each placement. A chunk is taken over from a
/// plan only if the checks of its pods would succeed.
fn takes_over_as_it_checks(
    bits: u64,
    nodes: usize,
    batch: usize,
    zones: u64,
    percentage: u8,
) -> Result<(), TestCaseError> {
    let config = || AlgorithmConfig { percentage_of_nodes: percentage, seed: bits };
    let mut draw = Draw::from(bits);
    draw.zones = zones;
    let mut worlds = [true, false].map(|takes_over| Meddled::new(takes_over, config()));
    let everywhere = |worlds: &[Meddled; 2], event: &Event| {
        let outcomes = worlds.each_ref().map(|world| submit(&world.engine, event.clone()));
        assert_eq!(outcomes[0], outcomes[1]);
    };
    for n in 0..nodes {
        everywhere(&worlds, &Event::add_node(draw.node(n)));
    }
    for _ in 0..draw.below(12) {
        everywhere(&worlds, &Event::PutObject(draw.object()));
    }
    let mut known: Vec<Pod> = (0..nodes.min(20)).map(|n| draw.pod(n).on(format!("n{n}"))).collect();
    for pod in &known {
        everywhere(&worlds, &Event::add_pod(pod.clone()));
    }
    let mut templates: Vec<Pod> = (0..4).map(|n| draw.pod(n)).collect();
    templates.extend(
        [100, 500].map(|cpu| pod("plain").cpu(cpu).memory(1 << 28).label("app", "a").build()),
    );
    templates.push(pod("supplied").request(SUPPLIED, Quantity::whole(1)).build());
    for round in 0..6 {
        let mut template = templates[0].clone();
        let pods: Vec<Arc<Pod>> = (0..batch)
            .map(|n| {
                if draw.one_in(3) {
                    template = templates[draw.below(7) as usize].clone();
                }
                let uid = Uid::new(&format!("default/new-{round}-{n}"));
                Arc::new(Pod { uid, node_name: None, ..template.clone() })
            })
            .collect();
        let events: Vec<Event> = (0..1 + draw.below(3))
            .map(|_| match draw.below(9) {
                0 | 1 => Event::PutObject(draw.object()),
                8 => Event::custom::<Supplier>(Supply(draw.one_in(2))),
                2 => {
                    let n = draw.below(nodes as u64) as usize;
                    Event::update_node(draw.node(n))
                }
                3 => Event::RemoveNode(format!("n{}", draw.below(nodes as u64)).into()),
                4 | 5 if !known.is_empty() => {
                    Event::remove_pod(&known.swap_remove(draw.below(known.len() as u64) as usize))
                }
                _ => {
                    let n = draw.below(nodes as u64);
                    let uid = Uid::new(&format!("default/beside-{round}-{}", known.len()));
                    let pod = Pod { uid, ..draw.pod(0).on(format!("n{n}")) };
                    known.push(pod.clone());
                    Event::add_pod(pod)
                }
            })
            .collect();
        // An early change leaves more pods to be checked in the current state.
        let decisions = if draw.one_in(2) { batch as u64 } else { 3.min(batch as u64) };
        let after = draw.below(decisions) as usize;
        let placed = worlds.each_mut().map(|world| world.batch(&pods, after, events.clone()));
        prop_assert_eq!(&placed[0], &placed[1]);
        prop_assert_eq!(worlds[0].figures(), worlds[1].figures());
        let ends = worlds.each_ref().map(|world| world.engine.reader().unwrap().snapshot());
        prop_assert_eq!(ends[0].generation(), ends[1].generation());
        prop_assert_eq!(ends[0].dump(), ends[1].dump());
        prop_assert_eq!(ends[0].audit(), vec![]);
    }
    let rebuilt = worlds[0].engine.with_writer(|writer| writer.rebuild().differences).unwrap();
    prop_assert_eq!(rebuilt, vec![]);
    Ok(())
}

/// The check of a pod between two pods of a chunk counts the chunk's pods while the numbers of some are not known yet.
#[test]
fn counts_of_a_partly_taken_over_chunk_are_discarded() {
    takes_over_as_it_checks(3_964_132_250_934_566_802, 80, 13, 3, 0).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn placements_that_are_taken_over_would_have_passed_their_checks(
        bits in any::<u64>(),
        nodes in 1..100_usize,
        batch in 2..16_usize,
        zones in prop_oneof![Just(3_u64), Just(40)],
        percentage in prop_oneof![Just(0_u8), Just(30), Just(100)],
    ) {
        takes_over_as_it_checks(bits, nodes, batch, zones, percentage)?;
    }
}

/// A pod whose labels, affinity, anti-affinity and spread are about the pods of two apps.
fn related(draw: &mut Draw, name: &str) -> Pod {
    let mut new = pod(name).cpu(100 * (1 + draw.below(3) as i64));
    if !draw.one_in(3) {
        new = new.label("app", ["x", "y"][draw.below(2) as usize]);
    }
    let term = |draw: &mut Draw| {
        let app = ["x", "y"][draw.below(2) as usize];
        let key = ["rack", "rack", "topology.kubernetes.io/zone", "kubernetes.io/hostname"];
        let term = PodAffinityTerm {
            topology_key: key[draw.below(4) as usize].into(),
            selector: LabelSelector::from_labels([("app", app)]),
            namespaces: Box::new(["default".into()]),
            namespace_selector: LabelSelector::Nothing,
        };
        PodAffinity { required: Box::new([term]), ..PodAffinity::default() }
    };
    match draw.below(8) {
        0..=2 => new.pod_affinity(term(draw)),
        3 => new.pod_anti_affinity(term(draw)),
        4 => spread_over_racks(new, 1),
        _ => new,
    }
    .build()
}

/// A node of one of three racks, or of none, in a zone and therefore a chunk of few nodes.
fn racked(draw: &mut Draw, n: usize) -> portolan::model::Node {
    let new = node(format!("n{n}")).hostname().zone(format!("z{}", n % 6)).cpu(1_000).pods(20);
    match draw.below(4) {
        0 => new.build(),
        rack => new.label("rack", format!("r{rack}")).build(),
    }
}

/// Like [`takes_over_as_it_checks`], for pods that are all related to each other.
fn takes_over_related_pods_as_it_checks(
    bits: u64,
    nodes: usize,
    batch: usize,
) -> Result<(), TestCaseError> {
    let mut draw = Draw::from(bits);
    let config = || AlgorithmConfig { percentage_of_nodes: 100, seed: bits };
    let mut worlds = [true, false].map(|takes_over| Meddled::new(takes_over, config()));
    let everywhere = |worlds: &[Meddled; 2], event: &Event| {
        let outcomes = worlds.each_ref().map(|world| submit(&world.engine, event.clone()));
        assert_eq!(outcomes[0], outcomes[1]);
    };
    for n in 0..nodes {
        everywhere(&worlds, &Event::add_node(racked(&mut draw, n)));
    }
    let mut known: Vec<Pod> = Vec::new();
    for round in 0..8 {
        let templates: Vec<Pod> = (0..4).map(|n| related(&mut draw, &format!("t{n}"))).collect();
        let pods: Vec<Arc<Pod>> = (0..batch)
            .map(|n| {
                let template = templates[draw.below(4) as usize].clone();
                Arc::new(Pod { uid: Uid::new(&format!("default/new-{round}-{n}")), ..template })
            })
            .collect();
        let events: Vec<Event> = (0..1 + draw.below(3))
            .map(|_| match draw.below(8) {
                0 => Event::update_node({
                    let n = draw.below(nodes as u64) as usize;
                    racked(&mut draw, n)
                }),
                1 if !known.is_empty() => {
                    Event::remove_pod(&known.swap_remove(draw.below(known.len() as u64) as usize))
                }
                _ => {
                    let uid = format!("default/beside-{round}-{}", known.len());
                    let other = match draw.one_in(2) {
                        true => templates[draw.below(4) as usize].clone(),
                        false => related(&mut draw, "beside"),
                    };
                    let node = format!("n{}", draw.below(nodes as u64));
                    let pod = Pod { uid: Uid::new(&uid), ..other }.on(node);
                    known.push(pod.clone());
                    Event::add_pod(pod)
                }
            })
            .collect();
        let after = draw.below(batch as u64) as usize;
        let placed = worlds.each_mut().map(|world| world.batch(&pods, after, events.clone()));
        prop_assert_eq!(&placed[0], &placed[1]);
        prop_assert_eq!(worlds[0].figures(), worlds[1].figures());
        let ends = worlds.each_ref().map(|world| world.engine.reader().unwrap().snapshot());
        prop_assert_eq!(ends[0].generation(), ends[1].generation());
        prop_assert_eq!(ends[0].dump(), ends[1].dump());
        prop_assert_eq!(ends[0].audit(), vec![]);
        // Room for the next round.
        for (pod, placed) in pods.iter().zip(&placed[0]) {
            if placed.is_ok() && draw.one_in(2) {
                let gone = Event::RemovePod { uid: pod.uid.clone(), node: None };
                everywhere(&worlds, &gone);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn related_pods_are_taken_over_only_if_they_would_have_passed_their_checks(
        bits in any::<u64>(),
        nodes in 3..20_usize,
        batch in 2..12_usize,
    ) {
        takes_over_related_pods_as_it_checks(bits, nodes, batch)?;
    }
}
