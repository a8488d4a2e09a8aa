//! Measures every kind of event of Gödel's cache, with 10,000 objects of its kind and 5,000 nodes: folding the event,
//! and folding it and publishing the result.
//!
//! `cargo bench --bench stores` prints two parts. The first is a table of percentiles in microseconds, with each event
//! timed alone. The second compares pods and nodes in an engine with all of Gödel's stores and in an engine without
//! them, alternating in one process: the ratio is the cost of the stores for users who do not need them, and the first
//! row compares two engines without stores to show the noise.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::cache::{CommitPolicy, Config, Engine, Event, GodelConfig, Writer};
use portolan::model::{
    CustomNodeResource, EventError, Generation, GodelPod, LabelSelector, Labels, Movement,
    MovementOwner, Name, NmNode, NominatedNode, Object, ObjectKind, OwnerKey, OwnerReference, Pod,
    PodDisruptionBudget, PodGroup, Quantity, RecommendedNode, Reservation, ResourceList, Victim,
    Workload, node, pod,
};
use portolan_testkit::measure::{Sorted, alternate, ratios};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 5_000;
const OBJECTS: usize = 10_000;
const EVENTS: usize = 4_000;
const TURNS: usize = 41;

type Folded = Result<Generation, EventError>;

fn node_name(n: usize) -> Name {
    format!("node-{:06}", n % NODES).into()
}

/// Spreads events over the nodes, as in a real cluster.
fn spread(n: usize) -> usize {
    n.wrapping_mul(2_654_435_761) % NODES
}

fn engine(godel: bool) -> Writer {
    let godel = godel.then(|| GodelConfig {
        reservations: Some(Duration::from_secs(60)),
        movements: true,
        preemption_marks: true,
        ..GodelConfig::new("godel-scheduler")
    });
    let (mut writer, _) = Engine::inline(Config {
        godel,
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    });
    for n in 0..NODES {
        writer.add_node(make_node(n, 64_000)).expect("the node is valid");
    }
    writer.publish();
    writer
}

fn make_node(n: usize, cpu: i64) -> portolan::model::Node {
    let zone = format!("zone-{}", n % 3);
    node(node_name(n)).hostname().zone(zone).cpu(cpu).memory(256 << 30).build()
}

fn plain(n: usize) -> Pod {
    pod(format!("pod-{n}"))
        .cpu(100)
        .memory(1 << 28)
        .label("app", "web")
        .on(node_name(spread(n)))
        .build()
}

fn annotated(name: String, node: usize, change: impl FnOnce(&mut GodelPod)) -> Pod {
    let mut godel = GodelPod::default();
    change(&mut godel);
    let pod = pod(name).cpu(100).label("name", "web");
    pod.spec(|spec| spec.godel = Some(Box::new(godel))).on(node_name(node)).build()
}

fn reserving(n: usize) -> Pod {
    annotated(format!("kept-{n}"), spread(n), |godel| godel.reserves = true)
}

fn successor(n: usize) -> Pod {
    let holder = format!("default/kept-{n}-placeholder");
    annotated(format!("next-{n}"), spread(n), |godel| {
        godel.matched_placeholder = Some(holder.into())
    })
}

fn owner(n: usize) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: format!("rs-{n}").into(),
        uid: format!("uid-{n}").into(),
        controller: true,
    }
}

fn moved(n: usize) -> Pod {
    let movement: Name = format!("movement-{}", n % OBJECTS).into();
    let mut spec =
        annotated(format!("moved-{n}"), spread(n), |godel| godel.movement = Some(movement));
    let mut template = (**spec.template).clone();
    template.owners = Box::new([owner(n)]);
    spec.template = portolan::model::Template::new(template);
    spec
}

fn nominated(n: usize) -> Pod {
    let victims = Box::new([Victim {
        namespace: "default".into(),
        name: format!("victim-{n}").into(),
        uid: format!("victim-{n}").into(),
    }]);
    let node = node_name(spread(n));
    annotated(format!("preemptor-{n}"), spread(n), |godel| {
        godel.nominated_node = Some(NominatedNode { node, victims });
    })
}

fn amounts(cpu: i64) -> ResourceList {
    ResourceList::new([
        ("cpu", Quantity::milli(cpu)),
        ("memory", Quantity::whole(64 << 30)),
        ("pods", Quantity::whole(50)),
    ])
}

/// Half of the names belong to existing nodes.
fn part_name(n: usize) -> Name {
    if n < NODES { node_name(n) } else { format!("machine-{n}").into() }
}

fn make(kind: ObjectKind, n: usize, version: i64) -> Object {
    let name: Name = format!("{}-{n}", kind.as_str().to_lowercase()).into();
    let namespace: Name = "default".into();
    match kind {
        ObjectKind::NmNode => {
            let nm_node = NmNode::new(part_name(n));
            Object::from(nm_node.with_resources(amounts(64_000), amounts(60_000 + version)))
        }
        ObjectKind::CustomNodeResource => {
            let custom = CustomNodeResource::new(part_name(n), &amounts(8_000 + version));
            custom.into()
        }
        ObjectKind::PodGroup => Object::from(PodGroup::new(namespace, name, 3 + version as u32)),
        ObjectKind::PodDisruptionBudget => Object::from(PodDisruptionBudget {
            namespace,
            name,
            selector: LabelSelector::from_labels([("app", &*format!("app-{n}"))]),
            disruptions_allowed: version as i32,
            ..PodDisruptionBudget::default()
        }),
        ObjectKind::Movement => Object::from(Movement {
            name: format!("movement-{n}").into(),
            owners: Box::new([MovementOwner {
                owner: OwnerKey {
                    kind: "ReplicaSet".into(),
                    namespace,
                    name: format!("rs-{n}").into(),
                    uid: format!("uid-{n}").into(),
                },
                nodes: (0..3)
                    .map(|at| RecommendedNode {
                        node: node_name(spread(n + at)),
                        desired: 1 + version.unsigned_abs(),
                        actual: Box::default(),
                    })
                    .collect(),
            }]),
            ..Movement::default()
        }),
        ObjectKind::Reservation => {
            let mut reservation = Reservation::of(&reserving(OBJECTS + n));
            reservation.ttl = Some(Duration::from_secs(version.unsigned_abs()));
            reservation.into()
        }
        kind => Object::from(Workload {
            kind,
            namespace,
            name,
            labels: Labels::new([("app", format!("app-{n}")), ("version", version.to_string())]),
            selector: LabelSelector::from_labels([("app", &*format!("app-{n}"))]),
        }),
    }
}

/// The measurements of one kind of event.
struct Row {
    name: String,
    folded: Vec<u64>,
    shown: Vec<u64>,
}

impl Row {
    fn new(name: impl Into<String>) -> Row {
        Row { name: name.into(), folded: Vec::new(), shown: Vec::new() }
    }

    /// Measures folding an event, and publishing the result.
    fn note(&mut self, writer: &mut Writer, fold: impl FnOnce(&mut Writer) -> Folded) {
        let started = Instant::now();
        black_box(fold(writer).expect("the event is accepted"));
        let folded = started.elapsed();
        writer.publish();
        let shown = started.elapsed();
        self.folded.push(folded.as_nanos() as u64);
        self.shown.push(shown.as_nanos() as u64);
    }
}

fn print(rows: Vec<Row>) {
    println!("{:44} {:>21}   {:>21}", "", "fold, us", "fold and publish, us");
    println!("{:44} {:>10} {:>10}   {:>10} {:>10}", "event", "p50", "p99", "p50", "p99");
    for row in rows {
        let (folded, shown) = (Sorted::new(row.folded), Sorted::new(row.shown));
        let us = |ns: u64| ns as f64 / 1000.0;
        println!(
            "{:44} {:>10.2} {:>10.2}   {:>10.2} {:>10.2}",
            row.name,
            us(folded.quantile(0.5)),
            us(folded.quantile(0.99)),
            us(shown.quantile(0.5)),
            us(shown.quantile(0.99)),
        );
    }
}

/// Adds, replaces and deletes objects of one kind.
fn objects(writer: &mut Writer, kind: ObjectKind, rows: &mut Vec<Row>) {
    for n in 0..OBJECTS {
        writer.put_object(make(kind, n, 1)).expect("the object is valid");
    }
    writer.publish();
    let of = |what: &str| Row::new(format!("{} {what}", kind.as_str()));
    let (mut add, mut update, mut delete) = (of("added"), of("updated"), of("deleted"));
    for n in 0..EVENTS {
        let (new, other) = (OBJECTS + n, spread(n));
        let object = make(kind, new, 1);
        let key = (object.namespace().to_owned(), object.name().to_owned());
        add.note(writer, |writer| writer.put_object(object));
        let changed = make(kind, other, 2 + n as i64);
        update.note(writer, |writer| writer.put_object(changed));
        delete.note(writer, |writer| writer.delete_object(kind, &key.0, &key.1));
    }
    rows.extend([add, update, delete]);
}

/// Adds pods of one kind, and removes them again.
fn pods(writer: &mut Writer, [come, go]: [&str; 2], make: fn(usize) -> Pod, rows: &mut Vec<Row>) {
    for n in 0..OBJECTS {
        writer.add_pod(make(n)).expect("the pod is valid");
    }
    writer.publish();
    let (mut add, mut remove) = (Row::new(come), Row::new(go));
    for n in 0..EVENTS {
        let coming = Arc::new(make(OBJECTS + n));
        let going = coming.clone();
        add.note(writer, |writer| writer.add_pod(coming));
        remove.note(writer, |writer| writer.remove_pod(&going));
    }
    rows.extend([add, remove]);
}

/// Gives the reservations of removed pods to other pods.
fn reservations(writer: &mut Writer, rows: &mut Vec<Row>) {
    for n in 0..OBJECTS {
        writer.add_pod(reserving(n)).expect("the pod is valid");
        writer.remove_pod(&reserving(n)).expect("the pod exists");
    }
    writer.publish();
    let mut take = Row::new("pod assumed on a reservation");
    let mut restore = Row::new("pod forgotten, reservation restored");
    for n in 0..EVENTS {
        let pod = Arc::new(successor(n));
        let assumed = pod.clone();
        take.note(writer, |writer| writer.assume_pod(assumed));
        restore.note(writer, |writer| {
            writer.apply(&Event::forget(&pod)).map(|applied| applied.generation)
        });
    }
    rows.extend([take, restore]);
}

fn nodes(writer: &mut Writer, rows: &mut Vec<Row>) {
    let mut add = Row::new("Node added");
    let mut update = Row::new("Node updated");
    let mut remove = Row::new("Node removed");
    for n in 0..EVENTS {
        let name: Name = format!("new-{n}").into();
        let new = node(name.clone()).hostname().zone(format!("zone-{}", n % 3)).cpu(64_000).build();
        add.note(writer, |writer| writer.add_node(new).map(|node| node.generation()));
        let changed = make_node(spread(n), 64_000 + n as i64);
        update.note(writer, |writer| writer.update_node(changed).map(|node| node.generation()));
        remove.note(writer, |writer| writer.remove_node(name));
    }
    rows.extend([add, update, remove]);
}

/// Returns the ratio of the time of an engine with stores to that of an engine without them, or of two equal engines.
fn ratio(ours: &mut Writer, theirs: &mut Writer, turn: impl Fn(&mut Writer, usize)) -> [f64; 3] {
    let timed = |writer: &mut Writer, at: usize| {
        let started = Instant::now();
        turn(writer, at);
        started.elapsed().as_secs_f64()
    };
    let [ours, theirs] = alternate(TURNS, |at| timed(ours, at), |at| timed(theirs, at));
    ratios(&ours, &theirs).median_and_spread()
}

fn plain_pods(writer: &mut Writer, turn: usize) {
    for n in 0..512 {
        let pod = Arc::new(plain(turn * 512 + n));
        writer.assume_pod(pod.clone()).expect("the pod is valid");
        writer.publish();
        writer.remove_pod(&pod).expect("the pod exists");
        writer.publish();
    }
}

fn plain_nodes(writer: &mut Writer, turn: usize) {
    for n in 0..512 {
        writer
            .update_node(make_node(spread(turn * 512 + n), 1_000 + turn as i64))
            .expect("the node is valid");
        writer.publish();
    }
}

fn table() {
    println!("{NODES} nodes, {OBJECTS} objects of each kind, {EVENTS} events of each");
    let mut rows = Vec::new();
    nodes(&mut engine(true), &mut rows);
    let of = ["plain pod added", "plain pod removed"];
    pods(&mut engine(true), of, plain, &mut rows);
    let of = ["pod of a movement added", "removed"];
    pods(&mut engine(true), of, moved, &mut rows);
    let of = ["preemptor added", "removed"];
    pods(&mut engine(true), of, nominated, &mut rows);
    let of = ["reserving pod added", "removed, leaving a reservation"];
    pods(&mut engine(true), of, reserving, &mut rows);
    reservations(&mut engine(true), &mut rows);
    for kind in [
        ObjectKind::NmNode,
        ObjectKind::CustomNodeResource,
        ObjectKind::PodGroup,
        ObjectKind::PodDisruptionBudget,
        ObjectKind::ReplicaSet,
        ObjectKind::DaemonSet,
        ObjectKind::Movement,
        ObjectKind::Reservation,
    ] {
        objects(&mut engine(true), kind, &mut rows);
    }
    print(rows);
    println!("\n{:44} {:>10} {:>10} {:>10}", "with stores / without", "median", "p10", "p90");
    let (mut with, mut without, mut same) = (engine(true), engine(false), engine(false));
    let row = |name: &str, of: [f64; 3]| {
        println!("{name:44} {:>10.3} {:>10.3} {:>10.3}", of[0], of[1], of[2]);
    };
    row("pods, without / without", ratio(&mut same, &mut without, plain_pods));
    row("pods", ratio(&mut with, &mut without, plain_pods));
    row("nodes", ratio(&mut with, &mut without, plain_nodes));
}

fn main() {
    // Returns early in a run without measurements, such as a test run.
    if std::env::args().any(|argument| argument == "--bench") {
        table();
    }
}
