//! The cost law, measured without a clock: the amount that a publish copies depends on the change, not on the size of
//! the cluster.
//!
//! Each change and its publish are measured in three ways: the tree nodes count the bytes copied and the reference
//! counts incremented, and the allocator counts all bytes allocated, so that nothing escapes that the trees fail to
//! count. Each measure has a limit for every cluster size, and a limit on its growth per additional level of the trees,
//! which have eight children per node.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Config, Engine, Event, GodelConfig, Writer, cost};
use portolan::model::{
    CustomNodeResource, EventError, Generation, GodelPod, LabelSelector, Labels, Movement,
    MovementOwner, NmNode, NominatedNode, ObjectKind, Operator, OwnerKey, Pod, PodAffinity,
    PodAffinityTerm, PodDisruptionBudget, PodGroup, Quantity, RecommendedNode, Requirement,
    Reservation, ResourceList, Template, Timestamp, Victim, Workload, node, pod,
};
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
use portolan_testkit::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The cost of one change and its publish.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    copied: u64,
    counts: u64,
    allocated: u64,
}

/// The number of samples of one law that may split a segment of the pod index. A split happens about once in 500 pods,
/// and the pods that cause it depend on the key of the process's hashes.
const SPLITS: usize = 2;

/// Returns the highest cost of the samples, without those that may be splits.
fn ordinary(samples: &[Cost]) -> Cost {
    let nth = |measure: fn(&Cost) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(measure).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all[SPLITS.min(all.len() - 1)]
    };
    Cost { copied: nth(|c| c.copied), counts: nth(|c| c.counts), allocated: nth(|c| c.allocated) }
}

/// The sizes to measure. Debug builds measure smaller clusters; `ci/cost.sh` measures the full sizes.
const SIZES: &[usize] =
    if cfg!(debug_assertions) { &[5_000, 40_000] } else { &[5_000, 100_000, 1_000_000] };

const SAMPLES: usize = 64;

/// One node in `SHARE` is suggested by a movement of its own, and has a pod that preempts others. One node in `SHARE`
/// is suggested by a movement that they share. One node in `16 * SHARE` has a reservation. All reservations are for the
/// same pods.
const SHARE: usize = 4;

/// The number of disruption budgets and of workloads. They all are in one namespace other than that of the pods,
/// because otherwise each would match thousands of pods.
const OBJECTS: usize = 10_000;
const SPACE: &str = "budgeted";

/// A cluster of which every version is published and none is held.
struct Bed {
    writer: Writer,
    nodes: usize,
    template: Arc<Template>,
}

impl Bed {
    /// Creates a cluster of `nodes` nodes in three zones, with two pods per node, or one in a cluster of a million
    /// nodes.
    fn new(nodes: usize) -> Bed {
        let godel = GodelConfig {
            reservations: Some(Duration::from_secs(60)),
            movements: true,
            preemption_marks: true,
            ..GodelConfig::new("godel")
        };
        let (mut writer, _) = Engine::inline(Config { godel: Some(godel), ..Config::default() });
        let template = pod("t").cpu(100).label("app", "web").build().template;
        let per_node = if nodes > 200_000 { 1 } else { 2 };
        for n in 0..nodes {
            writer.add_node(make_node(n)).unwrap();
            for i in 0..per_node {
                let mut pod = pod(format!("p{n}-{i}")).on(format!("n{n}")).build();
                pod.template = template.clone();
                if i == 0 && n % SHARE == 0 {
                    pod = following_and_preempting(format!("p{n}-{i}"), n, format!("m{n}"));
                }
                writer.add_pod(pod).unwrap();
            }
            if n % (16 * SHARE) == 1 {
                let place = Reservation::of(&reserving(n, n));
                writer.put_object(place).unwrap();
            }
            if n % SHARE == 0 {
                writer.put_object(movement(format!("m{n}"), [n])).unwrap();
            }
            if n % 512 == 0 {
                writer.publish();
            }
        }
        writer.put_object(movement("all".into(), (1..nodes).step_by(SHARE))).unwrap();
        for i in 0..OBJECTS {
            writer.put_object(budget(i, i)).unwrap();
            writer.put_object(owner(i, "web")).unwrap();
            if i % 512 == 0 {
                writer.publish();
            }
        }
        writer.publish();
        writer.reclaim();
        Bed { writer, nodes, template }
    }

    /// Returns the `i`th node of a walk spread over all nodes.
    fn spread(&self, i: usize) -> usize {
        (i * 7_919 + 13) % self.nodes
    }

    fn pod(&self, name: String, node: usize) -> Pod {
        let mut pod = pod(name).on(format!("n{node}")).build();
        pod.template = self.template.clone();
        pod
    }

    /// Measures `change` and its publish.
    fn cost(&mut self, change: impl FnOnce(&mut Writer) -> Result<Generation, EventError>) -> Cost {
        self.writer.publish();
        cost::take();
        let before = ALLOCATOR.counts().allocated;
        change(&mut self.writer).unwrap();
        self.writer.publish();
        let cost::Cost { bytes, counts, .. } = cost::take();
        Cost { copied: bytes, counts, allocated: ALLOCATOR.counts().allocated - before }
    }
}

fn make_node(n: usize) -> portolan::model::Node {
    node(format!("n{n}")).hostname().zone(format!("z{}", n % 3)).cpu(64_000).build()
}

/// Creates a movement that suggests each node for ten pods of the one owner.
fn movement(name: String, nodes: impl IntoIterator<Item = usize>) -> Movement {
    let owner = OwnerKey {
        kind: "PodGroup".into(),
        namespace: "default".into(),
        name: "moved".into(),
        uid: "".into(),
    };
    let to = |n| RecommendedNode { node: format!("n{n}").into(), desired: 10, actual: [].into() };
    let nodes = nodes.into_iter().map(to).collect();
    let owners = Box::new([MovementOwner { owner, nodes }]);
    Movement { name: name.into(), owners, ..Movement::default() }
}

/// Creates a pod of that owner that follows a movement.
fn following(name: String, node: usize, movement: String) -> Pod {
    let godel = GodelPod { movement: Some(movement.into()), ..GodelPod::default() };
    let builder = pod(name).group("moved").on(format!("n{node}"));
    builder.spec(|spec| spec.godel = Some(Box::new(godel))).build()
}

/// Creates a pod that preempts two others.
fn preempting(name: String, node: usize) -> Pod {
    let victim = |i| Victim {
        namespace: "default".into(),
        name: "v".into(),
        uid: format!("{name}-v{i}").into(),
    };
    let victims = [0, 1].map(victim).into();
    let nominated_node = Some(NominatedNode { node: format!("n{node}").into(), victims });
    let godel = GodelPod { nominated_node, ..GodelPod::default() };
    let builder = pod(&*name).on(format!("n{node}"));
    builder.spec(|spec| spec.godel = Some(Box::new(godel))).build()
}

/// Creates a pod that leaves a reservation when it is deleted.
fn reserving(i: usize, node: usize) -> Pod {
    let godel = GodelPod { reserves: true, ..GodelPod::default() };
    let builder = pod(format!("kept-{i}")).label("name", "web").on(format!("n{node}"));
    builder.spec(|spec| spec.godel = Some(Box::new(godel))).build()
}

/// Creates the pod that consumes that reservation.
fn succeeding(i: usize, node: usize) -> Pod {
    let matched_placeholder = Some(format!("default/kept-{i}-placeholder").into());
    let godel = GodelPod { matched_placeholder, ..GodelPod::default() };
    let builder = pod(format!("next-{i}")).label("name", "web").on(format!("n{node}"));
    builder.spec(|spec| spec.godel = Some(Box::new(godel))).build()
}

fn amounts(cpu: i64) -> ResourceList {
    ResourceList::new([("cpu", Quantity::milli(cpu)), ("pods", Quantity::whole(100))])
}

/// Creates a pod that follows a movement and preempts two others.
fn following_and_preempting(name: String, node: usize, movement: String) -> Pod {
    let marks = preempting(name.clone(), node).template.godel.clone();
    let mut pod = following(name, node, movement);
    let mut spec = (**pod.template).clone();
    let movement = spec.godel.take().and_then(|godel| godel.movement);
    spec.godel = marks.map(|godel| Box::new(GodelPod { movement, ..*godel }));
    pod.template = Template::new(spec);
    pod
}

/// Creates a budget that requires a label of its own, a label that thousands require, or no label in particular. It
/// matches none of the workloads.
fn budget(i: usize, shape: usize) -> PodDisruptionBudget {
    let own = format!("app-{i}");
    let selector = match shape % 8 {
        0..4 => LabelSelector::from_labels([("own", &*own)]),
        4..7 => LabelSelector::from_labels([("shared", "yes")]),
        _ => LabelSelector::All([Requirement::new("shared", Operator::Exists, [""; 0])].into()),
    };
    PodDisruptionBudget {
        namespace: SPACE.into(),
        name: format!("b{i}").into(),
        selector,
        ..PodDisruptionBudget::default()
    }
}

fn owner(i: usize, app: &str) -> Workload {
    Workload {
        kind: ObjectKind::ReplicaSet,
        namespace: SPACE.into(),
        name: format!("r{i}").into(),
        labels: Labels::new([("app", app)]),
        selector: LabelSelector::from_labels([("app", app)]),
    }
}

fn with_affinity(name: String, node: usize) -> Pod {
    let term = PodAffinityTerm {
        topology_key: "topology.kubernetes.io/zone".into(),
        selector: LabelSelector::from_labels([("app", "web")]),
        namespaces: ["default".into()].into(),
        namespace_selector: LabelSelector::Nothing,
    };
    let anti = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
    pod(name).pod_anti_affinity(anti).on(format!("n{node}")).build()
}

/// A kind of change, with the limits of its cost at any size and of the growth per additional level.
struct Law {
    name: &'static str,
    limit: Cost,
    level: Cost,
}

const fn law(name: &'static str, limit: [u64; 3], level: [u64; 3]) -> Law {
    let [copied, counts, allocated] = limit;
    let limit = Cost { copied, counts, allocated };
    let [copied, counts, allocated] = level;
    Law { name, limit, level: Cost { copied, counts, allocated } }
}

/// The limits of the bytes copied, the counts incremented and the bytes allocated, each as an absolute limit and as a
/// limit per level.
const LAWS: &[Law] = &[
    law("pod assumed", [16_384, 256, 24_576], [1_024, 32, 1_536]),
    law("pod removed", [16_384, 256, 24_576], [1_024, 32, 1_536]),
    law("pod assumed, labels of its own", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("pod removed, labels of its own", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("affinity flip on", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("affinity flip off", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("claim used", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("claim released", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("first pod of a group placed", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("last pod of a group removed", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("movement put", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("movement changed", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("movement deleted", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("pod follows a movement", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("pod that followed a movement removed", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("preemptor placed", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("preemptor removed", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("reservation created", [49_152, 1_024, 65_536], [3_072, 96, 4_096]),
    law("reservation confirmed", [16_384, 768, 24_576], [3_072, 96, 4_096]),
    law("reservation consumed", [49_152, 1_024, 65_536], [3_072, 96, 4_096]),
    law("reservation released", [49_152, 1_024, 65_536], [3_072, 96, 4_096]),
    law("NMNode of a node", [49_152, 768, 65_536], [3_072, 96, 4_096]),
    law("CustomNodeResource of a node", [16_384, 512, 24_576], [1_024, 64, 1_536]),
    law("pod group added", [8_192, 256, 12_288], [1_024, 32, 1_536]),
    law("budget added", [16_384, 512, 24_576], [1_024, 32, 1_536]),
    law("budget with another selector", [16_384, 512, 24_576], [1_024, 32, 1_536]),
    law("budget removed", [16_384, 512, 24_576], [1_024, 32, 1_536]),
    law("owner added", [8_192, 256, 12_288], [1_024, 32, 1_536]),
    law("owner with other labels", [8_192, 256, 12_288], [1_024, 32, 1_536]),
    law("node added", [49_152, 768, 65_536], [3_072, 96, 4_096]),
    law("node updated", [49_152, 768, 65_536], [3_072, 96, 4_096]),
    law("node moved to another zone", [65_536, 1_024, 98_304], [4_096, 128, 6_144]),
    law("node removed, pods left", [65_536, 1_024, 98_304], [4_096, 128, 6_144]),
    law("node removed", [131_072, 2_048, 196_608], [32_768, 1_024, 49_152]),
];

/// Measures several samples of each kind of change, and returns the highest ordinary cost of each, in the order of
/// [`LAWS`].
fn measure(nodes: usize) -> Vec<Cost> {
    let mut bed = Bed::new(nodes);
    let mut samples: Vec<Vec<Cost>> = vec![Vec::new(); LAWS.len()];
    let at = |name: &str| LAWS.iter().position(|law| law.name == name).expect(name);
    let mut note = |name: &str, cost: Cost| samples[at(name)].push(cost);
    for i in 0..SAMPLES {
        let n = bed.spread(i);
        let plain = bed.pod(format!("plain-{i}"), n);
        let own = pod(format!("own-{i}")).label("own", &format!("{i}")).on(format!("n{n}")).build();
        let affine = with_affinity(format!("affine-{i}"), n);
        let claiming = pod(format!("c-{i}")).claim(format!("c-{i}")).on(format!("n{n}")).build();
        let grouped = pod(format!("g-{i}")).group(format!("g-{i}")).on(format!("n{n}")).build();
        let suggested = n / SHARE * SHARE + 1;
        let following = following(format!("f-{i}"), suggested, "all".into());
        let preempting = preempting(format!("v-{i}"), n);
        for (on, off, pod) in [
            ("pod assumed", "pod removed", plain),
            ("pod assumed, labels of its own", "pod removed, labels of its own", own),
            ("affinity flip on", "affinity flip off", affine),
            ("claim used", "claim released", claiming),
            ("first pod of a group placed", "last pod of a group removed", grouped),
            ("pod follows a movement", "pod that followed a movement removed", following),
            ("preemptor placed", "preemptor removed", preempting),
        ] {
            let coming = Arc::new(pod.clone());
            note(on, bed.cost(|writer| writer.assume_pod(coming)));
            note(off, bed.cost(|writer| writer.remove_pod(&pod)));
        }
        let put = movement(format!("new-{i}"), [n, nodes / 2]);
        note("movement put", bed.cost(|writer| writer.put_object(put)));
        let put = movement(format!("new-{i}"), [n, nodes / 3]);
        note("movement changed", bed.cost(|writer| writer.put_object(put)));
        let (kind, name) = (ObjectKind::Movement, format!("new-{i}"));
        note("movement deleted", bed.cost(|writer| writer.delete_object(kind, "", &name)));
        // Budgets of every shape, and changes from every shape to every other.
        let (known, new) = (bed.spread(i) % OBJECTS, OBJECTS + i);
        note("budget added", bed.cost(|writer| writer.put_object(budget(new, i))));
        let changed = budget(known, known + 1 + i % 7);
        note("budget with another selector", bed.cost(|writer| writer.put_object(changed)));
        let kind = ObjectKind::PodDisruptionBudget;
        let name = format!("b{new}");
        note("budget removed", bed.cost(|writer| writer.delete_object(kind, SPACE, &name)));
        note("owner added", bed.cost(|writer| writer.put_object(owner(new, "web"))));
        note("owner with other labels", bed.cost(|writer| writer.put_object(owner(known, "db"))));
        let kept = nodes + i;
        bed.writer.add_pod(reserving(kept, n)).unwrap();
        note("reservation created", bed.cost(|writer| writer.remove_pod(&reserving(kept, n))));
        let place = Reservation::of(&reserving(kept, n));
        note("reservation confirmed", bed.cost(|writer| writer.put_object(place)));
        let successor = succeeding(kept, n);
        note("reservation consumed", bed.cost(|writer| writer.assume_pod(successor.clone())));
        bed.writer.apply(&Event::forget(&successor)).unwrap();
        let (kind, name) = (ObjectKind::Reservation, format!("kept-{kept}"));
        let cost = bed.cost(|writer| writer.delete_object(kind, "default", &name));
        note("reservation released", cost);
        let nm_node = NmNode::new(format!("n{n}")).with_resources(amounts(8_000), amounts(6_000));
        note("NMNode of a node", bed.cost(|writer| writer.put_object(nm_node)));
        bed.writer.delete_object(ObjectKind::NmNode, "", &format!("n{n}")).unwrap();
        let custom = CustomNodeResource::new(format!("n{n}"), &amounts(1_000));
        note("CustomNodeResource of a node", bed.cost(|writer| writer.put_object(custom)));
        let kind = ObjectKind::CustomNodeResource;
        bed.writer.delete_object(kind, "", &format!("n{n}")).unwrap();
        let group = PodGroup::new("default", format!("group-{i}"), 3);
        note("pod group added", bed.cost(|writer| writer.put_object(group)));
        let new = Arc::new(make_node(nodes + i));
        note("node added", bed.cost(|writer| writer.add_node(new).map(|node| node.generation())));
        let same = Arc::new(node(format!("n{n}")).zone(format!("z{}", n % 3)).cpu(1).build());
        note(
            "node updated",
            bed.cost(|writer| writer.update_node(same).map(|node| node.generation())),
        );
        let moved = Arc::new(node(format!("n{n}")).zone(format!("z{}", (n + 1) % 3)).build());
        let cost = bed.cost(|writer| writer.update_node(moved).map(|node| node.generation()));
        note("node moved to another zone", cost);
        let name: Arc<str> = format!("n{n}").into();
        note("node removed, pods left", bed.cost(|writer| writer.remove_node(name)));
    }
    // Neighbours in one zone are removed, so that chunks become sparse and are merged.
    for i in 0..256 {
        let n = nodes / 2 / 3 * 3 + i * 3;
        // Delete the reservation on the node, if there is one.
        let (kind, place) = (ObjectKind::Reservation, format!("kept-{n}"));
        drop(bed.writer.delete_object(kind, "default", &place));
        let Some(info) = bed.writer.cluster().node(&format!("n{n}")) else { continue };
        let pods: Vec<Pod> = info.pods().map(|pod| pod.to_pod()).collect();
        for pod in &pods {
            bed.writer.remove_pod(pod).unwrap();
        }
        let name: Arc<str> = format!("n{n}").into();
        note("node removed", bed.cost(|writer| writer.remove_node(name)));
    }
    assert_eq!(bed.writer.cluster().audit().len(), 0);
    samples.iter().map(|samples| ordinary(samples)).collect()
}

#[test]
fn the_cost_of_a_publish_depends_on_the_change_alone() {
    let costs: Vec<Vec<Cost>> = SIZES.iter().map(|nodes| measure(*nodes)).collect();
    let mut report = String::new();
    let mut broken: Vec<String> = Vec::new();
    for (i, Law { name, limit, level }) in LAWS.iter().enumerate() {
        for (nodes, costs_here) in SIZES.iter().zip(&costs) {
            // A larger cluster may have one more level in each tree.
            let levels = (*nodes as f64 / SIZES[0] as f64).log(8.0).ceil() as u64;
            let (here, least) = (costs_here[i], costs[0][i]);
            for (what, cost, least, limit, level) in [
                ("bytes copied", here.copied, least.copied, limit.copied, level.copied),
                ("counts incremented", here.counts, least.counts, limit.counts, level.counts),
                (
                    "bytes allocated",
                    here.allocated,
                    least.allocated,
                    limit.allocated,
                    level.allocated,
                ),
            ] {
                writeln!(report, "{name}, {nodes} nodes: {cost} {what}").unwrap();
                if cost > limit {
                    broken.push(format!("{name}, {nodes} nodes: {cost} {what}, limit {limit}"));
                }
                let grown = least + levels * level;
                if cost > grown {
                    let growth = format!("{least} plus {levels} levels of {level}");
                    broken.push(format!("{name}, {nodes} nodes: {cost} {what}, limit {growth}"));
                }
            }
        }
    }
    println!("{report}");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn disabled_stores_cost_nothing() {
    let costs = [None, Some(GodelConfig::new("godel"))].map(|godel| {
        let (mut writer, _) = Engine::inline(Config { godel, ..Config::default() });
        for n in 0..64 {
            writer.add_node(make_node(n)).unwrap();
            writer.add_pod(following_and_preempting(format!("p{n}"), n, "m".into())).unwrap();
        }
        writer.publish();
        cost::take();
        let before = ALLOCATOR.counts().allocated;
        let pod = Arc::new(following_and_preempting("new".into(), 7, "m".into()));
        writer.assume_pod(pod.clone()).unwrap();
        writer.publish();
        writer.apply(&Event::forget(&pod)).unwrap();
        writer.publish();
        let cost::Cost { bytes, counts, .. } = cost::take();
        (bytes, counts, ALLOCATOR.counts().allocated - before)
    });
    assert_eq!(costs[0], costs[1]);
}

/// Returns the costs of adding a pod to a node with this many pods, and of removing one.
fn placement_costs(pods: usize) -> [Cost; 2] {
    let mut bed = Bed::new(64);
    for n in 0..pods {
        let pod = bed.pod(format!("there-{n}"), 0);
        bed.writer.add_pod(pod).unwrap();
    }
    let mut costs = [const { Vec::new() }; 2];
    for n in 0..SAMPLES {
        let (new, old) =
            (bed.pod(format!("new-{n}"), 0), bed.pod(format!("there-{}", n * pods / SAMPLES), 0));
        costs[0].push(bed.cost(|writer| writer.add_pod(new)));
        costs[1].push(bed.cost(|writer| writer.remove_pod(&old)));
    }
    costs.map(|costs| ordinary(&costs))
}

#[test]
fn a_placement_costs_little_more_on_a_node_with_many_pods() {
    let few = placement_costs(SAMPLES);
    let many = placement_costs(if cfg!(debug_assertions) { 4_000 } else { 40_000 });
    println!("added and removed on a node with few pods: {few:?}, with many: {many:?}");
    for (few, many) in few.into_iter().zip(many) {
        assert!(many.copied < few.copied + 8_000, "{few:?} {many:?}");
        assert!(many.allocated < few.allocated + 8_000, "{few:?} {many:?}");
    }
}

/// Returns the most bytes that a single step of a long run allocates, and the index of that step.
fn costliest_step(steps: usize, mut step: impl FnMut(usize)) -> (u64, usize) {
    let mut costliest = (0, 0);
    for i in 0..steps {
        let before = ALLOCATOR.counts().allocated;
        step(i);
        costliest = costliest.max((ALLOCATOR.counts().allocated - before, i));
    }
    costliest
}

#[test]
fn each_step_of_filling_and_emptying_a_cluster_is_bounded() {
    const LIMIT: u64 = 256 << 10;
    let nodes = if cfg!(debug_assertions) { 50_000 } else { 300_000 };
    let config = Config::default();
    let (mut writer, _) = Engine::inline(config);
    let name = |n: usize| -> Arc<str> { format!("n{n}").into() };
    let own = |n: usize| {
        pod(format!("p{n}"))
            .label("own", &format!("{n}"))
            .claim(format!("c{n}"))
            .on(name(n))
            .build()
    };
    let steps = [
        (
            "add a node",
            costliest_step(nodes, |n| {
                writer.add_node(make_node(n)).unwrap();
                writer.publish();
            }),
        ),
        (
            "add a pod",
            costliest_step(nodes, |n| {
                writer.add_pod(own(n)).unwrap();
                writer.publish();
            }),
        ),
        (
            "remove a pod",
            costliest_step(nodes, |n| {
                writer.remove_pod(&own(n)).unwrap();
                writer.publish();
            }),
        ),
        (
            "remove a node",
            costliest_step(nodes, |n| {
                writer.remove_node(name(n)).unwrap();
                writer.publish();
            }),
        ),
    ];
    println!("bytes allocated by the costliest step, and its index: {steps:?}");
    for (step, (bytes, _)) in steps {
        assert!(bytes <= LIMIT, "{step}: {bytes} bytes in one step, limit {LIMIT}: {steps:?}");
    }
}

/// Returns the cost per pod of scheduling identical pods on 5,000 nodes, `batch` at a time.
fn scheduling(batch: usize) -> Cost {
    const PODS: usize = 2_048;
    let engine = Engine::shared(Config::default());
    for n in 0..5_000 {
        let node = node(format!("n{n}")).zone(format!("z{}", n % 3)).cpu(4_000).memory(32 << 30);
        engine.submit(Event::add_node(node.pods(110).build())).unwrap().wait().unwrap().unwrap();
    }
    let config = AlgorithmConfig::default();
    let algorithm = Algorithm::new(Framework::default_profile(), config, None);
    let mut scheduler = Scheduler::new(engine, Profiles::one(algorithm)).unwrap();
    let template = pod("p").cpu(100).memory(1 << 28).build();
    let uid = |n: usize| portolan::model::Uid::new(&format!("00000000-0000-0000-0000-{n:012}"));
    let all: Vec<Arc<Pod>> =
        (0..PODS).map(|n| Arc::new(Pod { uid: uid(n), ..template.clone() })).collect();
    let (first, rest) = all.split_at(PODS / 2);
    let mut place = |pods: &[Arc<Pod>]| {
        for pods in pods.chunks(batch) {
            for placed in scheduler.schedule_batch(pods, Timestamp(0)) {
                placed.unwrap().keep_assumed();
            }
        }
    };
    // The caches fill.
    place(first);
    cost::take();
    ALLOCATOR.take();
    place(rest);
    let (work, memory) = (cost::take(), ALLOCATOR.take());
    let per_pod = |sum: u64| sum / rest.len() as u64;
    Cost {
        copied: per_pod(work.bytes),
        counts: per_pod(work.counts),
        allocated: per_pod(memory.allocated),
    }
}

#[test]
fn a_batch_copies_and_allocates_less_than_its_pods_one_by_one() {
    let (alone, together) = (scheduling(1), scheduling(64));
    println!("one by one {alone:?}, in batches of 64 {together:?}");
    assert!(together.copied * 10 < alone.copied * 8, "{alone:?} {together:?}");
    assert!(together.counts * 2 < alone.counts, "{alone:?} {together:?}");
    assert!(together.allocated * 10 < alone.allocated * 8, "{alone:?} {together:?}");
}
