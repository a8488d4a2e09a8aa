//! The cost law, without a clock: what a publish copies follows the change and
//! not the cluster.
//!
//! Three measures of one change and its publish: bytes of the tree copied and
//! reference counts bumped, as the tree itself counts them; and all bytes that
//! were allocated, as the allocator counts them, so that nothing which the
//! tree forgets to count goes unseen. Each has a bound that holds at every
//! size, and a bound on what a larger cluster may add: so much a level of
//! eight.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;

use portolan::model::{
    EventError, Generation, LabelSelector, Labels, Object, ObjectKind, Operator, Pod, PodAffinity,
    PodAffinityTerm, PodDisruptionBudget, Requirement, Template, Workload, node, pod,
};
use portolan::snapshot::cost;
use portolan::{Config, Engine, Writer};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that is ending has no counter any more.
    let _ = ALLOCATED.try_with(|sum| sum.set(sum.get() + bytes as u64));
}

// SAFETY: every call is passed on to the system's allocator as it came, whose
// contract is the same; counting touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What one change and its publish cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    copied: u64,
    counts: u64,
    allocated: u64,
}

impl Cost {
    fn max(self, other: Cost) -> Cost {
        Cost {
            copied: self.copied.max(other.copied),
            counts: self.counts.max(other.counts),
            allocated: self.allocated.max(other.allocated),
        }
    }
}

/// A debug build takes too long for the largest; `ci/cost.sh` runs them all.
const SIZES: &[usize] =
    if cfg!(debug_assertions) { &[5_000, 100_000] } else { &[5_000, 100_000, 1_000_000] };

const SAMPLES: usize = 64;

/// So many disruption budgets and owners of pods, all in one namespace: not in that of
/// the pods, of which each would have thousands.
const OBJECTS: usize = 10_000;
const SPACE: &str = "budgeted";

/// A cluster whose every version is published and nothing of it held.
struct Bed {
    writer: Writer,
    nodes: usize,
    template: Arc<Template>,
}

impl Bed {
    /// `nodes` nodes in three zones; two pods on each, one on each of a million.
    fn new(nodes: usize) -> Bed {
        let config = Config::default();
        let (mut writer, _) = Engine::inline(config);
        let template = pod("t").cpu(100).label("app", "web").build().template;
        let per_node = if nodes > 200_000 { 1 } else { 2 };
        for n in 0..nodes {
            writer.add_node(make_node(n)).unwrap();
            for i in 0..per_node {
                let mut pod = pod(format!("p{n}-{i}")).on(format!("n{n}")).build();
                pod.template = template.clone();
                writer.add_pod(pod).unwrap();
            }
            if n % 512 == 0 {
                writer.publish();
            }
        }
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

    /// The `i`th node of a walk that is spread over all of them.
    fn spread(&self, i: usize) -> usize {
        (i * 7_919 + 13) % self.nodes
    }

    fn pod(&self, name: String, node: usize) -> Pod {
        let mut pod = pod(name).on(format!("n{node}")).build();
        pod.template = self.template.clone();
        pod
    }

    /// What `change` and its publish cost.
    fn cost(&mut self, change: impl FnOnce(&mut Writer) -> Result<Generation, EventError>) -> Cost {
        self.writer.publish();
        cost::take();
        let before = ALLOCATED.get();
        change(&mut self.writer).unwrap();
        self.writer.publish();
        let cost::Cost { bytes, counts, .. } = cost::take();
        Cost { copied: bytes, counts, allocated: ALLOCATED.get() - before }
    }
}

fn make_node(n: usize) -> portolan::model::Node {
    node(format!("n{n}")).hostname().zone(format!("z{}", n % 3)).cpu(64_000).build()
}

/// A budget that requires a label of its own, one that thousands require, or none in
/// particular; it is about none of the owners.
fn budget(i: usize, shape: usize) -> Object {
    let own = format!("app-{i}");
    let selector = match shape % 8 {
        0..4 => LabelSelector::from_labels([("own", &*own)]),
        4..7 => LabelSelector::from_labels([("shared", "yes")]),
        _ => LabelSelector::All([Requirement::new("shared", Operator::Exists, [""; 0])].into()),
    };
    Object::PodDisruptionBudget(PodDisruptionBudget {
        namespace: SPACE.into(),
        name: format!("b{i}").into(),
        selector,
        ..PodDisruptionBudget::default()
    })
}

fn owner(i: usize, app: &str) -> Object {
    Object::Workload(Workload {
        kind: ObjectKind::ReplicaSet,
        namespace: SPACE.into(),
        name: format!("r{i}").into(),
        labels: Labels::new([("app", app)]),
        selector: LabelSelector::from_labels([("app", app)]),
    })
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

/// A kind of change, with what it may cost at any size, and what a level of
/// eight more may add.
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

/// Bytes copied, counts bumped, bytes allocated: the limit, and what each
/// level may add.
const LAWS: &[Law] = &[
    law("pod assumed", [16_384, 256, 24_576], [1_024, 32, 1_536]),
    law("pod removed", [16_384, 256, 24_576], [1_024, 32, 1_536]),
    law("pod assumed, labels of its own", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("pod removed, labels of its own", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("affinity flip on", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("affinity flip off", [32_768, 512, 49_152], [2_048, 64, 3_072]),
    law("claim used", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("claim given up", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("first pod of a group placed", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("last pod of a group gone", [32_768, 512, 49_152], [3_072, 96, 4_096]),
    law("budget added", [16_384, 512, 24_576], [1_024, 32, 1_536]),
    law("budget with another selector", [16_384, 512, 24_576], [1_024, 32, 1_536]),
    law("budget removed", [16_384, 512, 24_576], [1_024, 32, 1_536]),
    law("owner added", [8_192, 256, 12_288], [1_024, 32, 1_536]),
    law("owner with other labels", [8_192, 256, 12_288], [1_024, 32, 1_536]),
    law("node added", [49_152, 768, 65_536], [3_072, 96, 4_096]),
    law("node updated", [49_152, 768, 65_536], [3_072, 96, 4_096]),
    law("node moved to another zone", [65_536, 1_024, 98_304], [4_096, 128, 6_144]),
    law("node made a ghost", [65_536, 1_024, 98_304], [4_096, 128, 6_144]),
    law("node removed", [131_072, 2_048, 196_608], [32_768, 1_024, 49_152]),
];

/// The worst of several samples of each kind of change, in the order of
/// [`LAWS`].
fn measure(nodes: usize) -> Vec<Cost> {
    let mut bed = Bed::new(nodes);
    let mut worst = vec![Cost::default(); LAWS.len()];
    let at = |name: &str| LAWS.iter().position(|law| law.name == name).expect(name);
    let mut note = |name: &str, cost: Cost| {
        let slot = &mut worst[at(name)];
        *slot = slot.max(cost);
    };
    for i in 0..SAMPLES {
        let n = bed.spread(i);
        let plain = bed.pod(format!("plain-{i}"), n);
        let own = pod(format!("own-{i}")).label("own", &format!("{i}")).on(format!("n{n}")).build();
        let affine = with_affinity(format!("affine-{i}"), n);
        let claiming = pod(format!("c-{i}")).claim(format!("c-{i}")).on(format!("n{n}")).build();
        let grouped = pod(format!("g-{i}")).group(format!("g-{i}")).on(format!("n{n}")).build();
        for (on, off, pod) in [
            ("pod assumed", "pod removed", plain),
            ("pod assumed, labels of its own", "pod removed, labels of its own", own),
            ("affinity flip on", "affinity flip off", affine),
            ("claim used", "claim given up", claiming),
            ("first pod of a group placed", "last pod of a group gone", grouped),
        ] {
            let coming = Arc::new(pod.clone());
            note(on, bed.cost(|writer| writer.assume_pod(coming)));
            note(off, bed.cost(|writer| writer.remove_pod(&pod)));
        }
        // Of each shape, and from each to each other.
        let (known, new) = (bed.spread(i) % OBJECTS, OBJECTS + i);
        note("budget added", bed.cost(|writer| writer.put_object(budget(new, i))));
        let changed = budget(known, known + 1 + i % 7);
        note("budget with another selector", bed.cost(|writer| writer.put_object(changed)));
        let kind = ObjectKind::PodDisruptionBudget;
        let name = format!("b{new}");
        note("budget removed", bed.cost(|writer| writer.delete_object(kind, SPACE, &name)));
        note("owner added", bed.cost(|writer| writer.put_object(owner(new, "web"))));
        note("owner with other labels", bed.cost(|writer| writer.put_object(owner(known, "db"))));
        let new = Arc::new(make_node(nodes + i));
        note("node added", bed.cost(|writer| writer.add_node(new)));
        let same = Arc::new(node(format!("n{n}")).zone(format!("z{}", n % 3)).cpu(1).build());
        note("node updated", bed.cost(|writer| writer.update_node(same)));
        let moved = Arc::new(node(format!("n{n}")).zone(format!("z{}", (n + 1) % 3)).build());
        let cost = bed.cost(|writer| writer.update_node(moved));
        note("node moved to another zone", cost);
        let name: Arc<str> = format!("n{n}").into();
        note("node made a ghost", bed.cost(|writer| writer.remove_node(name)));
    }
    // Neighbours in one zone, so that chunks become sparse and are joined.
    for i in 0..256 {
        let n = nodes / 2 / 3 * 3 + i * 3;
        let Some(info) = bed.writer.cluster().node(&format!("n{n}")) else { continue };
        let pods: Vec<Pod> = info.pods().map(|pod| pod.to_pod()).collect();
        for pod in &pods {
            bed.writer.remove_pod(pod).unwrap();
        }
        let name: Arc<str> = format!("n{n}").into();
        note("node removed", bed.cost(|writer| writer.remove_node(name)));
    }
    assert_eq!(bed.writer.cluster().audit().len(), 0);
    worst
}

#[test]
fn what_a_publish_copies_follows_the_change_and_not_the_cluster() {
    let costs: Vec<Vec<Cost>> = SIZES.iter().map(|nodes| measure(*nodes)).collect();
    let mut report = String::new();
    let mut broken: Vec<String> = Vec::new();
    for (i, Law { name, limit, level }) in LAWS.iter().enumerate() {
        for (nodes, costs_here) in SIZES.iter().zip(&costs) {
            // A larger cluster may begin one more level in each tree.
            let levels = (*nodes as f64 / SIZES[0] as f64).log(8.0).ceil() as u64;
            let (here, least) = (costs_here[i], costs[0][i]);
            for (what, cost, least, limit, level) in [
                ("bytes copied", here.copied, least.copied, limit.copied, level.copied),
                ("counts bumped", here.counts, least.counts, limit.counts, level.counts),
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
                    broken.push(format!("{name}, {nodes} nodes: {cost} {what}, at most {limit}"));
                }
                let grown = least + levels * level;
                if cost > grown {
                    let growth = format!("{least} and {levels} levels of {level}");
                    broken.push(format!("{name}, {nodes} nodes: {cost} {what}, at most {growth}"));
                }
            }
        }
    }
    println!("{report}");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// What the dearest single step of a long run allocates.
fn dearest_step(steps: usize, mut step: impl FnMut(usize)) -> (u64, usize) {
    let mut dearest = (0, 0);
    for i in 0..steps {
        let before = ALLOCATED.get();
        step(i);
        dearest = dearest.max((ALLOCATED.get() - before, i));
    }
    dearest
}

#[test]
fn no_step_of_filling_and_emptying_a_cluster_is_dear() {
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
            "a node comes",
            dearest_step(nodes, |n| {
                writer.add_node(make_node(n)).unwrap();
                writer.publish();
            }),
        ),
        (
            "a pod comes",
            dearest_step(nodes, |n| {
                writer.add_pod(own(n)).unwrap();
                writer.publish();
            }),
        ),
        (
            "a pod goes",
            dearest_step(nodes, |n| {
                writer.remove_pod(&own(n)).unwrap();
                writer.publish();
            }),
        ),
        (
            "a node goes",
            dearest_step(nodes, |n| {
                writer.remove_node(name(n)).unwrap();
                writer.publish();
            }),
        ),
    ];
    println!("bytes allocated by the dearest step, and which it was: {steps:?}");
    for (step, (bytes, _)) in steps {
        assert!(bytes <= LIMIT, "{step}: {bytes} bytes in one step, at most {LIMIT}: {steps:?}");
    }
}
