//! Amounts of resources that enter the engine: resources of every name count, negative amounts are refused on every
//! path, and no sum overflows 64 bits.

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Cluster, Config, Engine, Event, GodelConfig, Relist, Writer};
use portolan::model::{
    Bytes, Container, ContainerKind, ContainerStatus, CustomNodeResource, EventError, GroupMetric,
    MilliCpu, NmNode, Node, NodeMetrics, Object, ObjectKind, Pod, PodClass, Quantity, Requests,
    Reservation, ResourceList, Resources, Template, Usage, node, pod,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use proptest::prelude::*;

fn writer(is_godel: bool) -> Writer {
    let stores =
        || GodelConfig { reservations: Some(Duration::from_secs(60)), ..GodelConfig::new("godel") };
    Engine::inline(Config { godel: is_godel.then(stores), ..Config::default() }).0
}

fn schedule(cluster: &Cluster, pod: &Pod) -> Result<String, String> {
    let framework = Framework::default_profile();
    let mut scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let decision = scheduler.schedule(&cluster.fork().snapshot(), pod);
    decision.map(|decision| decision.node.to_string()).map_err(|error| error.to_string())
}

#[test]
fn resources_of_any_name_are_counted() {
    for name in ["gpu", "licence", "Example.com/GPU", "requests.example.com/x", "a/b/c", "storage"]
    {
        let mut writer = writer(false);
        let wants = |name: &str, of: &str, amount| pod(name).request(of, Quantity::whole(amount));
        writer.add_node(node("n").cpu(4_000).resource(name, Quantity::whole(5)).build()).unwrap();
        writer.add_pod(wants("a", name, 4).on("n").build()).unwrap();
        assert_eq!(schedule(writer.cluster(), &wants("b", name, 1).build()), Ok("n".to_owned()));
        for pod in [wants("c", name, 2).build(), wants("d", "other", 1).build()] {
            let refused = schedule(writer.cluster(), &pod).expect_err("the pod fits on no node");
            assert!(refused.contains("Insufficient "), "{name}: {refused}");
        }
        let taken = writer.cluster().node("n").unwrap().requested();
        assert_eq!(taken.scalars.get(name), Some(4), "{name}");
        assert_eq!(writer.cluster().audit(), vec![]);
    }
}

#[test]
fn resources_of_an_nm_node_are_counted_whatever_their_names() {
    let mut writer = writer(true);
    writer.add_node(node("n").resource("gpu", Quantity::whole(8)).build()).unwrap();
    let list = |amount| ResourceList::new([("gpu", Quantity::whole(amount))]);
    writer.put_object(NmNode::new("n").with_resources(list(8), list(5))).unwrap();
    let merged = writer.cluster().node("n").unwrap().allocatable();
    assert_eq!(merged.scalars.get("gpu"), Some(5));
}

#[test]
fn a_negative_request_is_refused() {
    let mut writer = writer(false);
    writer.add_node(node("n").cpu(1_000).build()).unwrap();
    let refused = writer.add_pod(pod("a").cpu(-4_000).on("n").build()).unwrap_err();
    assert!(matches!(refused, EventError::Negative { .. }), "{refused}");
    let expected = "cpu of pod default/a is negative: set it to 0 or more, or leave it out";
    assert_eq!(refused.to_string(), expected);
    assert!(schedule(writer.cluster(), &pod("b").cpu(4_500).build()).is_err());
    assert_eq!(writer.cluster().audit(), vec![]);
}

/// A negative part that is outweighed by others would reduce their request.
#[test]
fn a_negative_part_of_a_request_is_refused_even_if_the_sum_is_positive() {
    let mut writer = writer(false);
    let list = |cpu| ResourceList::new([("cpu", Quantity::milli(cpu))]);
    let container = |kind, cpu| Container { kind, requests: list(cpu), ..Container::default() };
    let main = || container(ContainerKind::Main, 1_000);
    let resized = |requests, allocated| {
        let status = Some(ContainerStatus { requests, allocated });
        Container { status, ..main() }
    };
    let all = |containers: Vec<Container>| Requests { containers, ..Requests::default() };
    let bad = [
        all(vec![main(), container(ContainerKind::Main, -1)]),
        all(vec![main(), container(ContainerKind::Init, -1)]),
        all(vec![main(), container(ContainerKind::Sidecar, -1)]),
        all(vec![resized(list(-1), list(0))]),
        all(vec![resized(list(0), list(-1))]),
        Requests { overhead: list(-1), ..all(vec![main()]) },
        Requests { pod_level: Some(list(-1)), ..all(vec![main()]) },
        Requests {
            pod_level: Some(list(5_000)),
            pod_level_status: Some(ContainerStatus { requests: list(-1), allocated: list(1) }),
            ..all(vec![main()])
        },
    ];
    for requests in bad {
        let pod = pod("a").requests(requests.clone()).on("n").build();
        let refused = writer.add_pod(pod);
        assert!(matches!(refused, Err(EventError::Negative { .. })), "{requests:?}");
    }
}

#[test]
fn nodes_and_their_parts_need_names() {
    let mut writer = writer(true);
    let nameless = |kind: &'static str| EventError::EmptyName { kind: kind.into() };
    assert_eq!(writer.add_node(node("").build()).unwrap_err(), nameless("Node"));
    let part = writer.put_object(NmNode::new("")).unwrap_err();
    assert_eq!(part, nameless("NMNode"));
    let part = writer.put_object(CustomNodeResource::new("", &ResourceList::default()));
    assert_eq!(part.unwrap_err(), nameless("CustomNodeResource"));
    assert_eq!(writer.cluster().fork().add_node(node("").build()), Err(nameless("Node")));
    assert_eq!(writer.cluster().node_count(), 0);
}

/// Generates amounts near every limit, some of them negative.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => prop::sample::select(vec![0, 1, 4_000, 1 << 46, 1 << 53]),
        3 => prop::sample::select(vec![i64::MAX, i64::MAX - 1, i64::MAX / 2, i64::MAX / 100 + 1]),
        1 => prop::sample::select(vec![-1, -4_000, i64::MIN, i64::MIN + 1]),
    ]
}

const NAMES: [&str; 6] = ["cpu", "memory", "ephemeral-storage", "pods", "gpu", "example.com/x"];

fn list() -> impl Strategy<Value = ResourceList> {
    prop::collection::vec((0..NAMES.len(), amount()), 0..4).prop_map(|amounts| {
        let quantity = |name: &str, amount| match name {
            "cpu" => Quantity::milli(amount),
            _ => Quantity::whole(amount),
        };
        let named = amounts.into_iter().map(|(at, n)| (NAMES[at], quantity(NAMES[at], n)));
        ResourceList::new(named)
    })
}

fn is_bad(list: &ResourceList) -> bool {
    list.iter().any(|(_, quantity)| quantity.is_negative())
}

/// Like [`is_bad`] for a pod, whose "pods" are not a request.
fn is_bad_request(list: &ResourceList) -> bool {
    list.iter().any(|(name, quantity)| **name != *"pods" && quantity.is_negative())
}

/// An object of a cluster, and whether its content must be refused.
#[derive(Clone, Debug)]
enum Thing {
    Pod(Pod, bool),
    Node(Node, bool),
    Part(Object, bool),
    Reservation(Pod, bool),
}

fn any_pod() -> impl Strategy<Value = (Pod, bool)> {
    let container = (0..3_u8, list(), prop::option::of((list(), list())));
    let containers = prop::collection::vec(container, 1..4);
    let shape = (0..6_u8, 0..3_u8, any::<[bool; 2]>());
    let sums = prop::option::of((amount(), 0..6_usize));
    (containers, list(), prop::option::of((list(), list())), shape, sums).prop_map(
        |(containers, overhead, pod_level, (uid, on, [infeasible, best_effort]), sums)| {
            let mut bad = is_bad_request(&overhead);
            let mut requests =
                Requests { overhead, resize_infeasible: infeasible, ..Requests::default() };
            for (kind, list, status) in containers {
                bad |= is_bad_request(&list);
                let status = status.map(|(requests, allocated)| {
                    bad |= is_bad_request(&requests) || is_bad_request(&allocated);
                    ContainerStatus { requests, allocated }
                });
                let kinds = [ContainerKind::Main, ContainerKind::Init, ContainerKind::Sidecar];
                let kind = kinds[usize::from(kind)];
                let container = Container { kind, requests: list, status, ..Container::default() };
                requests.containers.push(container);
            }
            if let Some((level, reported)) = pod_level {
                bad |= is_bad_request(&level) || is_bad_request(&reported);
                let allocated = ResourceList::default();
                requests.pod_level = Some(level);
                requests.pod_level_status = Some(ContainerStatus { requests: reported, allocated });
            }
            let mut made = pod(format!("p{uid}")).requests(requests);
            if best_effort {
                made = made.spec(|spec| spec.class = PodClass::BestEffort);
            }
            let mut made = made.on(format!("n{on}")).build();
            if let Some((amount, which)) = sums {
                let mut spec = (**made.template).clone();
                let sums = &mut spec.resources;
                match which {
                    0 => sums.placed.cpu = MilliCpu(amount),
                    1 => sums.incoming.memory = Bytes(amount),
                    2 => sums.scored.ephemeral_storage = Bytes(amount),
                    3 => sums.placed_non_zero.cpu = MilliCpu(amount),
                    4 => sums.placed_non_zero.memory = Bytes(amount),
                    _ => {
                        let scalars = [("other".into(), amount)];
                        sums.placed.scalars = portolan::model::Scalars::new(scalars);
                    }
                }
                // The replaced sum may have been the negative one.
                bad = [&sums.placed, &sums.incoming, &sums.scored].iter().any(|r| {
                    r.cpu.0 < 0
                        || r.memory.0 < 0
                        || r.ephemeral_storage.0 < 0
                        || r.scalars.iter().any(|(_, n)| n < 0)
                }) || sums.placed_non_zero.cpu.0 < 0
                    || sums.placed_non_zero.memory.0 < 0;
                made.template = Template::new(spec);
            }
            (made, bad)
        },
    )
}

fn any_node() -> impl Strategy<Value = (Node, bool)> {
    (0..3_u8, list(), prop::option::of(list()), prop::option::of(amount())).prop_map(
        |(name, allocatable, capacity, image)| {
            let bad = is_bad(&allocatable)
                || capacity.as_ref().is_some_and(is_bad)
                || image.is_some_and(|size| size < 0);
            let mut made = node(format!("n{name}")).allocatable(allocatable);
            if let Some(capacity) = capacity {
                made = made.capacity(capacity);
            }
            if let Some(size) = image {
                made = made.image(["img"], size).image(["other"], size);
            }
            (made.build(), bad)
        },
    )
}

fn any_part() -> impl Strategy<Value = (Object, bool)> {
    let custom = (0..3_u8, list(), amount()).prop_map(|(name, offered, used)| {
        let bad = is_bad(&offered) || used < 0;
        let mut custom = CustomNodeResource::new(format!("n{name}"), &offered);
        let usage = Usage { cpu: MilliCpu(used), memory: Bytes(1) };
        let pods = vec!["default/p1".into()];
        let group = GroupMetric { class: PodClass::Guaranteed, usage, pods };
        let again = GroupMetric { usage: Usage { cpu: MilliCpu(0), ..usage }, ..group.clone() };
        custom.metrics = Some(Box::new(NodeMetrics::new(None, [group, again])));
        (custom.into(), bad)
    });
    let nm_node = (0..3_u8, list(), list()).prop_map(|(name, capacity, allocatable)| {
        let bad = is_bad(&capacity) || is_bad(&allocatable);
        let made = NmNode::new(format!("n{name}")).with_resources(capacity, allocatable);
        (made.into(), bad)
    });
    prop_oneof![custom, nm_node]
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        5 => any_pod().prop_map(|(pod, bad)| Thing::Pod(pod, bad)),
        3 => any_node().prop_map(|(node, bad)| Thing::Node(node, bad)),
        2 => any_part().prop_map(|(part, bad)| Thing::Part(part, bad)),
        1 => any_pod()
            .prop_map(|(pod, bad)| Thing::Reservation(pod, bad)),
    ]
}

/// Returns the event that submits the object on one of the paths into an engine, and whether it must be refused.
fn event(thing: &Thing, way: u8) -> (Event, bool) {
    let relist = |relist| Event::Relist(Arc::new(relist));
    match thing {
        Thing::Pod(pod, bad) => {
            let uid = pod.uid.clone();
            let pod = pod.clone();
            let event = match way % 7 {
                0 => Event::assume(pod),
                1 => Event::AssumeAll { pods: [pod].into(), decided_on: None },
                2 => Event::UpdatePod { old: uid, pod: Arc::new(pod) },
                3 => Event::PutPending(Arc::new(Pod { node_name: None, ..pod })),
                4 => relist(Relist::Pods(vec![pod])),
                _ => Event::AddPod(Arc::new(pod)),
            };
            (event, *bad)
        }
        Thing::Node(node, bad) => {
            let node = Arc::new(node.clone());
            let event = match way % 3 {
                0 => Event::UpdateNode(node),
                1 => relist(Relist::Nodes(vec![node])),
                _ => Event::AddNode(node),
            };
            (event, *bad)
        }
        Thing::Part(object, bad) => match way % 3 {
            0 => (relist(Relist::Objects(object.kind(), vec![object.clone()])), *bad),
            _ => (Event::PutObject(object.clone()), *bad),
        },
        Thing::Reservation(pod, bad) => {
            let object = Object::from(Reservation::of(pod));
            match way % 3 {
                0 => (relist(Relist::Objects(ObjectKind::Reservation, vec![object])), *bad),
                _ => (Event::PutObject(object), *bad),
            }
        }
    }
}

/// Sums the resources of a node's pods of a class, without overflow.
fn exact(cluster: &Cluster, node: &str, class: PodClass) -> [i128; 6] {
    let info = cluster.node(node).expect("the node is listed");
    info.pods().filter(|pod| pod.template().class == class).fold([0; 6], |mut sums, pod| {
        let resources = &pod.template().resources;
        let amounts = [
            resources.placed.cpu.0,
            resources.placed.memory.0,
            resources.placed.ephemeral_storage.0,
            resources.placed_non_zero.cpu.0,
            resources.placed_non_zero.memory.0,
            resources.placed.scalars.get("gpu").unwrap_or(0),
        ];
        sums.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += i128::from(amount));
        sums
    })
}

fn check(cluster: &Cluster) {
    assert_eq!(cluster.audit(), vec![]);
    for info in cluster.nodes() {
        for class in [PodClass::Guaranteed, PodClass::BestEffort] {
            let (taken, non_zero) = (info.requested_of(class), info.non_zero_requested_of(class));
            let Resources { cpu, memory, ephemeral_storage, scalars } = &taken;
            let sums = [
                cpu.0,
                memory.0,
                ephemeral_storage.0,
                non_zero.cpu.0,
                non_zero.memory.0,
                scalars.get("gpu").unwrap_or(0),
            ];
            assert_eq!(sums.map(i128::from), exact(cluster, info.name(), class));
            let load = info.load(class).total();
            assert!(load.cpu.0 >= 0 && load.memory.0 >= 0);
        }
        let _ = (info.victims().freed(), info.victims().occupiable());
        assert!(info.allocatable().cpu.0 >= 0 && info.allowed_pods() >= 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn extreme_amounts_are_refused_without_a_trace_or_summed_exactly(
        steps in prop::collection::vec((thing(), any::<u8>()), 1..16),
        is_godel in any::<bool>(),
    ) {
        let mut writer = writer(is_godel);
        for (thing, way) in &steps {
            let (event, bad) = event(thing, *way);
            let before = writer.cluster().dump();
            let mut fork = writer.cluster().fork();
            let outcome = writer.apply(&event);
            let is_refused = match (&event, &outcome) {
                (Event::Relist(_), Ok(applied)) => !applied.rejected.is_empty(),
                (_, outcome) => outcome.is_err(),
            };
            prop_assert!(is_refused || !bad, "{:?} was accepted", event);
            if is_refused && !matches!(event, Event::Relist(_)) {
                prop_assert_eq!(before, writer.cluster().dump());
            }
            check(writer.cluster());
            let forked = match thing {
                Thing::Pod(pod, _) => fork.add_pod(pod),
                Thing::Node(node, _) => fork.add_node(node.clone()),
                Thing::Part(object, _) => fork.put_object(object.clone()),
                Thing::Reservation(pod, _) => fork.put_object(Reservation::of(pod)),
            };
            prop_assert!(forked.is_err() || !bad, "a fork accepted {:?}", thing);
            check(&fork);
            if let Thing::Pod(pod, false) = thing {
                // Scores are sums, too. This build panics on overflow.
                let _ = schedule(writer.cluster(), &Pod { node_name: None, ..pod.clone() });
            }
        }
    }
}
