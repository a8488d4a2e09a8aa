//! Loading a cluster at once equals adding its objects one by one, in every observable respect.

use std::collections::HashSet;
use std::sync::Arc;

use portolan::cache::{
    Applied, Cluster, Config, Engine, Event, Follower, GodelConfig, Reader, Relist, Writer,
};
use portolan::model::{Generation, Node, Object, Pod, Quantity, Uid, node, pod};
use portolan_testkit::draw::Draw;
use proptest::prelude::*;

/// More than the pods of the first run, which looks its nodes up in the cluster.
const NODES: usize = if cfg!(miri) { 4 } else { 300 };
const PODS: usize = if cfg!(miri) { 300 } else { 3_000 };
const CASES: u32 = if cfg!(miri) { 1 } else { 24 };

/// An engine with everything that observes events.
struct Side {
    writer: Writer,
    reader: Reader,
    follower: Follower,
}

impl Side {
    fn new(godel: Option<GodelConfig>) -> Side {
        let config = Config { pod_names: true, godel, ..Config::default() };
        let (mut writer, reader) = Engine::inline(config);
        let follower = writer.follow();
        Side { writer, reader, follower }
    }

    /// Applies the events, and returns their outcomes.
    fn apply(&mut self, events: &[Event]) -> Vec<String> {
        events.iter().map(|event| format!("{:?}", self.writer.apply(event))).collect()
    }

    /// Publishes, and returns the notes since the last call.
    fn notes(&mut self) -> Vec<String> {
        self.writer.publish();
        std::iter::from_fn(|| self.follower.try_next().ok())
            .map(|note| format!("{note:?}"))
            .collect()
    }
}

/// Everything that the numbers of a cluster show beyond its dump: which node was touched when, the order of its pods,
/// and the numbers of their templates.
fn details(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.nodes().map(|node| {
        let pods: Vec<String> =
            node.pods().map(|pod| format!("{} {:?}", pod.uid(), pod.is_assumed())).collect();
        format!("{} {:?} {:?} {pods:?}", node.name(), node.slot(), node.generation())
    });
    nodes.collect()
}

/// A list of pods, most of which are new and on known nodes.
fn pods(seed: u64, trouble: u64) -> Vec<Arc<Pod>> {
    let mut draw = Draw::from(seed);
    let mut templates: Vec<Pod> = Vec::new();
    (0..PODS)
        .map(|n| {
            if templates.is_empty() || draw.one_in(4) {
                templates.push(draw.pod(n));
            }
            let at = draw.below(templates.len() as u64) as usize;
            let name = format!("p{n}");
            let mut pod = Pod {
                uid: Uid::new(&format!("uid-{n}")),
                name: name.as_str().into(),
                resource_version: n as u64,
                node_name: Some(format!("n{}", draw.below(NODES as u64)).into()),
                ..templates[at].clone()
            };
            if draw.one_in(3) {
                // Equal to the template, and not the same allocation.
                pod.template = Arc::new((*pod.template).clone());
            }
            if trouble > 0 && draw.one_in(trouble) {
                match draw.below(6) {
                    0 => pod.uid = Uid::new(""),
                    1 => pod.uid = Uid::new(&format!("uid-{}", draw.below(n as u64 + 1))),
                    2 => pod.node_name = None,
                    3 => pod.node_name = Some(format!("ghost-{}", draw.below(5)).into()),
                    4 => pod.uid = Uid::new(&format!("early-{}", draw.below(20))),
                    _ => pod.name = "x".repeat(70_000).into(),
                }
            }
            Arc::new(pod)
        })
        .collect()
}

fn nodes(seed: u64) -> Vec<Arc<Node>> {
    let mut draw = Draw::from(seed ^ 1);
    // Some pods are on nodes that do not exist.
    let mut nodes: Vec<Arc<Node>> = (0..NODES - 1).map(|n| Arc::new(draw.node(n))).collect();
    nodes.insert(1, Arc::new(node("").build()));
    nodes
}

fn objects(seed: u64) -> Vec<Object> {
    let mut draw = Draw::from(seed ^ 2);
    (0..20).map(|_| draw.object()).collect()
}

/// Events that leave assumed pods, ghosts and released numbers behind.
fn before(seed: u64) -> Vec<Event> {
    let mut draw = Draw::from(seed ^ 3);
    let mut events: Vec<Event> = (0..NODES / 3).map(|n| Event::add_node(draw.node(n))).collect();
    for n in 0..20_u64 {
        let on = format!("n{}", draw.below(NODES as u64));
        let early = pod(format!("early-{n}")).claim(format!("c{n}")).uid(format!("early-{n}"));
        let early = early.on(on).build();
        match n % 4 {
            0 => events.push(Event::assume(early)),
            1 => {
                events.push(Event::add_pod(early.clone()));
                events.push(Event::remove_pod(&early));
            }
            _ => events.push(Event::add_pod(early)),
        }
    }
    events
}

/// Events that use, release and assign numbers again.
fn after(pods: &[Arc<Pod>]) -> Vec<Event> {
    let mut events = Vec::new();
    for (n, pod) in pods.iter().enumerate().step_by(7) {
        match n % 5 {
            0 => events.push(Event::update_pod(&pod.uid, pod.clone())),
            1 => events.push(Event::forget(pod)),
            _ => events.push(Event::remove_pod(pod)),
        }
    }
    for n in 0..NODES / 4 {
        events.push(Event::RemoveNode(format!("n{n}").into()));
    }
    let late = pods
        .iter()
        .step_by(11)
        .enumerate()
        .map(|(n, pod)| Pod { uid: Uid::new(&format!("late-{n}")), ..Pod::clone(pod) });
    events.extend(late.map(Event::add_pod));
    events
}

/// Adds everything one by one, as the documentation of [`Writer::load`] specifies.
fn one_by_one(
    writer: &mut Writer,
    objects: Vec<Object>,
    nodes: Vec<Arc<Node>>,
    pods: &[Arc<Pod>],
) -> Applied {
    let mut all = Applied::default();
    let objects = objects.into_iter().map(|object| {
        let name = format!("{} {}/{}", object.kind().as_str(), object.namespace(), object.name());
        (name, Event::PutObject(object))
    });
    let nodes =
        nodes.into_iter().map(|node| (format!("node {}", node.name), Event::add_node(node)));
    let pods = pods
        .iter()
        .map(|pod| (format!("pod {}/{}", pod.namespace(), pod.name), Event::add_pod(pod.clone())));
    for (name, event) in objects.chain(nodes).chain(pods) {
        match writer.apply(&event) {
            Ok(one) => {
                all.added += one.added;
                all.updated += one.updated;
            }
            Err(why) => all.rejected.push((name, why)),
        }
    }
    all.generation = writer.cluster().generation();
    all
}

fn assert_equal(one: &mut Side, other: &mut Side, at: &str) {
    assert_eq!(one.notes(), other.notes(), "{at}");
    assert_eq!(one.writer.cluster().generation(), other.writer.cluster().generation(), "{at}");
    assert_eq!(one.writer.cluster().dump(), other.writer.cluster().dump(), "{at}");
    assert_eq!(details(one.writer.cluster()), details(other.writer.cluster()), "{at}");
    assert_eq!(other.writer.cluster().audit(), [], "{at}");
    let since = Generation(one.writer.cluster().generation().0 / 2);
    let changes = |side: &Side| format!("{:?}", side.writer.cluster().changed_since(since));
    assert_eq!(changes(one), changes(other), "{at}");
}

fn compare(seed: u64, trouble: u64, godel: Option<GodelConfig>) {
    let (mut one, mut other) = (Side::new(godel.clone()), Side::new(godel));
    let before = before(seed);
    assert_eq!(one.apply(&before), other.apply(&before));
    assert_equal(&mut one, &mut other, "before");
    // A version that is held must not change.
    let (held, dump) = (other.reader.snapshot(), other.writer.cluster().dump());
    let pods = pods(seed, trouble);
    let expected = one_by_one(&mut one.writer, objects(seed), nodes(seed), &pods);
    let loaded = other.writer.load(objects(seed), nodes(seed), pods.iter().cloned());
    assert_eq!(loaded, expected);
    assert_equal(&mut one, &mut other, "loaded");
    assert_eq!(held.dump(), dump);
    for pod in &pods {
        let known = other.writer.cluster().pod(&pod.uid).is_some();
        assert_eq!(known, one.writer.cluster().pod(&pod.uid).is_some());
    }
    let after = after(&pods);
    assert_eq!(one.apply(&after), other.apply(&after));
    assert_equal(&mut one, &mut other, "after");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_load_equals_adding_one_by_one(
        seed in any::<u64>(),
        trouble in prop::sample::select(vec![0, 3, 40, 400, 2_000]),
    ) {
        compare(seed, trouble, None);
    }

    #[test]
    fn a_relist_of_new_pods_equals_adding_them(
        seed in any::<u64>(),
        trouble in prop::sample::select(vec![0, 400, 2_000]),
    ) {
        let (mut one, mut other) = (Side::new(None), Side::new(None));
        let pods = pods(seed, trouble);
        for side in [&mut one, &mut other] {
            nodes(seed).into_iter().for_each(|node| drop(side.writer.add_node(node)));
        }
        let (mut added, mut uids) = (0, HashSet::new());
        // Of several pods with one uid, a relist takes the first, even if it is rejected.
        for pod in pods.iter().filter(|pod| uids.insert(&pod.uid)) {
            added += usize::from(one.writer.add_pod(pod.clone()).is_ok());
        }
        let listed = pods.iter().map(|pod| Pod::clone(pod)).collect();
        let applied = other.writer.relist(Relist::Pods(listed)).unwrap();
        prop_assert_eq!(applied.added, added);
        prop_assert_eq!(other.writer.cluster().audit(), []);
        // A relist is one event.
        prop_assert_eq!(other.writer.cluster().dump(), one.writer.cluster().dump());
        if trouble == 0 {
            let generations: Vec<Generation> =
                other.writer.cluster().nodes().filter(|node| node.pods().next().is_some())
                    .map(|node| node.generation()).collect();
            prop_assert!(generations.iter().all(|at| *at == other.writer.cluster().generation()));
        }
        // Relisting the same pods changes nothing.
        let known = other.writer.cluster().pod_count();
        let listed = pods.iter().filter(|pod| other.writer.cluster().pod(&pod.uid).is_some());
        let listed: Vec<Pod> = listed.map(|pod| Pod::clone(pod)).collect();
        let again = other.writer.relist(Relist::Pods(listed)).unwrap();
        prop_assert_eq!((again.added, again.removed), (0, 0));
        prop_assert_eq!(other.writer.cluster().pod_count(), known);
    }
}

#[test]
fn a_load_with_goedels_pod_states_equals_adding_one_by_one() {
    compare(7, 100, Some(GodelConfig::new("godel")));
}

#[test]
fn sums_that_overflow_are_rejected_as_one_by_one() {
    let (mut one, mut other) = (Side::new(None), Side::new(None));
    let nodes = || (0..3).map(|n| Arc::new(node(format!("n{n}")).build())).collect::<Vec<_>>();
    let huge = |n: usize| {
        let memory = if n.is_multiple_of(100) { i64::MAX / 3 } else { 1 };
        Arc::new(pod(format!("p{n}")).memory(memory).on(format!("n{}", n % 3)).build())
    };
    let pods: Vec<Arc<Pod>> = (0..PODS).map(huge).collect();
    let expected = one_by_one(&mut one.writer, Vec::new(), nodes(), &pods);
    let loaded = other.writer.load([], nodes(), pods);
    assert!(!expected.rejected.is_empty() || cfg!(miri));
    assert_eq!(loaded, expected);
    assert_equal(&mut one, &mut other, "loaded");
}

/// Two pods whose sum overflows, on one node: the first one is assumed before the load, or confirmed with another
/// amount at its start, or is in its first run. The second one is in a later run.
#[test]
fn load_and_single_events_accept_the_same_pods_if_sums_overflow() {
    let sized = |name: &str, resource: &str, is_huge: bool| {
        let amount = if is_huge { i64::MAX / 2 + 1 } else { 1 };
        let new = pod(name).on("n0");
        let new = match resource {
            "memory" => new.memory(amount),
            _ => new.request(resource, Quantity::whole(amount)),
        };
        Arc::new(new.build())
    };
    for resource in ["memory", "example.com/a"] {
        for (before, in_load) in [(true, false), (false, true)] {
            for is_known in [true, false] {
                let pods: Vec<Arc<Pod>> = (0..2_000)
                    .map(|n| {
                        let is_huge = n == 0 && in_load || n == 1_000;
                        sized(&format!("p{n}"), resource, is_huge)
                    })
                    .collect();
                let (mut one, mut other) = (Side::new(None), Side::new(None));
                let known = sized(if is_known { "p0" } else { "known" }, resource, before);
                for side in [&mut one, &mut other] {
                    let vast = Quantity::whole(i64::MAX);
                    let node = node("n0").memory(i64::MAX).pods(1).resource("example.com/a", vast);
                    side.writer.add_node(node.build()).unwrap();
                    side.writer.assume_pod(Pod::clone(&known)).unwrap();
                }
                let expected = one_by_one(&mut one.writer, Vec::new(), Vec::new(), &pods);
                let loaded = other.writer.load([], Vec::<Node>::new(), pods);
                assert_eq!(loaded, expected);
                assert_equal(&mut one, &mut other, "loaded");
            }
        }
    }
}

#[test]
fn a_load_counts_no_claims_of_pods_whose_node_is_known_only_by_its_pods() {
    let (mut one, mut other) = (Side::new(None), Side::new(None));
    for side in [&mut one, &mut other] {
        side.writer.add_pod(pod("first").on("ghost").build()).unwrap();
    }
    let pods = (0..300).map(|n| {
        let on = if n % 100 == 50 { "ghost" } else { "n0" };
        Arc::new(pod(format!("p{n}")).claim(format!("c{n}")).on(on).build())
    });
    let pods: Vec<Arc<Pod>> = pods.collect();
    let nodes = || (0..NODES).map(|n| Arc::new(node(format!("n{n}")).build())).collect::<Vec<_>>();
    let expected = one_by_one(&mut one.writer, Vec::new(), nodes(), &pods);
    assert_eq!(other.writer.load([], nodes(), pods), expected);
    assert_equal(&mut one, &mut other, "loaded");
}

#[test]
fn each_loaded_object_takes_a_generation_although_nobody_follows() {
    let (mut writer, _) = Engine::inline(Config::default());
    let loaded = writer.load([], nodes(3), pods(3, 0));
    assert_eq!(loaded.generation, Generation((NODES + PODS) as u64));
    assert_eq!(writer.cluster().generation(), loaded.generation);
}

#[test]
fn a_load_of_known_pods_changes_nothing_but_the_generation() {
    let mut side = Side::new(None);
    let pods = pods(3, 0);
    side.writer.load([], nodes(3), pods.iter().cloned());
    side.notes();
    let (dump, generation) = (side.writer.cluster().dump(), side.writer.cluster().generation());
    let again = side.writer.load([], Vec::<Node>::new(), pods);
    assert_eq!((again.added, again.updated, again.rejected.len()), (0, 0, PODS));
    assert_eq!(again.generation, Generation(generation.0 + PODS as u64));
    let found = side.writer.cluster().dump();
    assert_eq!((&found.nodes, &found.order), (&dump.nodes, &dump.order));
}
