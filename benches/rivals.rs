//! Compares a version of the engine with other ways to show readers one state of all nodes while a writer changes them.
//!
//! `cargo bench --bench rivals` prints tables in Markdown: the time until a pod that was placed on a node is visible to
//! readers, and the time of a reader to take a state and look at it; a hundred reads of less than 1 µs are one sample.
//! Candidates alternate in one process, and each turn of a rival yields one ratio to the engine in the same turn: above 1
//! the engine is faster. The second row is another engine; its deviation from 1 is noise. `-- --quick` makes few turns at
//! one size; their figures mean little.
//!
//! The rivals do less than the engine. A node of theirs is two sums and a list of numbers, they have no indexes of pods,
//! zones or affinity, they check nothing, and their keys are numbers instead of names. The engine also counts the bytes
//! that it copies (feature `cost`), which costs about 1 %.
//!
//! Left out: `im`, which is unmaintained (`imbl` is its fork); `left-right` itself, on which `evmap` is built.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use portolan::cache::{CommitPolicy, Config, Engine, Event, Reader, Writer};
use portolan::model::{Name, Pod, Template, Uid, node, pod};
use portolan_testkit::measure::{Sorted, ratios, rotate};
use portolan_testkit::random::Random;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PODS_PER_NODE: usize = 10;
/// Changes per turn. The figures of a turn are medians over them.
const CHANGES: usize = 16;
const CPU: i64 = 100;
const MEMORY: i64 = 500 << 20;

/// A store with one writer, whose readers see the state of all nodes.
trait Store {
    /// Places the pod on the node, and shows it to readers.
    fn place(&mut self, node: u32, pod: &Arc<Pod>);
    /// Undoes this, while the time is not measured.
    fn remove(&mut self, node: u32, pod: &Arc<Pod>);
    /// Takes a state of all nodes, and returns the number of nodes in it.
    fn read(&self) -> usize;
}

struct Ours {
    writer: Writer,
    reader: Reader,
}

fn name(node: u32) -> Name {
    format!("node-{node:07}").into()
}

impl Ours {
    fn new(nodes: u32, pods: &mut Pods) -> Ours {
        // The rivals check nothing either.
        let config = Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
        let (mut writer, reader) = Engine::inline(config);
        for n in 0..nodes {
            let node = node(name(n)).hostname().zone(format!("zone-{}", n % 3));
            writer.add_node(node.cpu(64_000).memory(256 << 30).build()).expect("the node is valid");
        }
        for i in 0..nodes * PODS_PER_NODE as u32 {
            writer.add_pod(pods.make(i % nodes)).expect("the pod is valid");
        }
        writer.publish();
        writer.reclaim();
        Ours { writer, reader }
    }
}

impl Store for Ours {
    fn place(&mut self, _: u32, pod: &Arc<Pod>) {
        self.writer.assume_pod(pod.clone()).expect("the pod is new");
        self.writer.publish();
    }

    fn remove(&mut self, _: u32, pod: &Arc<Pod>) {
        self.writer.apply(&Event::forget(pod)).expect("the pod is assumed");
        self.writer.publish();
    }

    fn read(&self) -> usize {
        self.reader.pin().node_count()
    }
}

/// Creates pods that share a template.
struct Pods {
    template: Arc<Template>,
    random: Random,
    made: u64,
}

impl Pods {
    fn make(&mut self, node: u32) -> Arc<Pod> {
        self.made += 1;
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        uid[8..].copy_from_slice(&self.made.to_le_bytes());
        let mut pod = pod("web").uid("-").on(name(node)).build();
        pod.uid = Uid::from_bytes(uid);
        pod.template = self.template.clone();
        Arc::new(pod)
    }
}

/// A node of the rivals: requested cpu and memory, and the numbers of its pods.
type NodeInfo = (i64, i64, Vec<u64>);

fn start() -> Arc<NodeInfo> {
    let pods = PODS_PER_NODE as i64;
    Arc::new((CPU * pods, MEMORY * pods, (0..pods as u64).collect()))
}

/// The node with a pod more or less.
fn changed(old: &NodeInfo, by: i64) -> Arc<NodeInfo> {
    let (cpu, memory, pods) = old;
    let mut pods = pods.clone();
    if by > 0 {
        pods.push(0);
    } else {
        pods.pop();
    }
    Arc::new((cpu + CPU * by, memory + MEMORY * by, pods))
}

/// A rival that replaces one node.
trait Replace {
    fn replace(&mut self, node: u32, by: i64);
    fn count(&self) -> usize;
}

impl<R: Replace> Store for R {
    fn place(&mut self, node: u32, _: &Arc<Pod>) {
        self.replace(node, 1);
    }

    fn remove(&mut self, node: u32, _: &Arc<Pod>) {
        self.replace(node, -1);
    }

    fn read(&self) -> usize {
        self.count()
    }
}

/// `imbl`'s persistent hash map in an `ArcSwap`.
struct Imbl(ArcSwap<imbl::HashMap<u32, Arc<NodeInfo>>>);

impl Replace for Imbl {
    fn replace(&mut self, node: u32, by: i64) {
        // There is one writer, so nothing is lost between the two steps.
        let old = self.0.load();
        let next = old.update(node, changed(&old[&node], by));
        self.0.store(Arc::new(next));
    }

    fn count(&self) -> usize {
        self.0.load().len()
    }
}

/// `rpds`'s persistent hash map in an `ArcSwap`.
struct Rpds(ArcSwap<rpds::HashTrieMapSync<u32, Arc<NodeInfo>>>);

impl Replace for Rpds {
    fn replace(&mut self, node: u32, by: i64) {
        let old = self.0.load();
        let next = old.insert(node, changed(&old[&node], by));
        self.0.store(Arc::new(next));
    }

    fn count(&self) -> usize {
        self.0.load().size()
    }
}

/// A hash map behind a lock. A reader that needs one state clones it.
struct Locked(RwLock<HashMap<u32, Arc<NodeInfo>>>);

impl Replace for Locked {
    fn replace(&mut self, node: u32, by: i64) {
        let mut map = self.0.write().expect("no thread panicked");
        let next = changed(&map[&node], by);
        drop(map.insert(node, next));
    }

    fn count(&self) -> usize {
        black_box(self.0.read().expect("no thread panicked").clone()).len()
    }
}

/// Two copies of a map, one of which is read. A reader that keeps its state blocks the writer.
struct Evmap {
    writer: evmap::handles::WriteHandle<u32, Arc<NodeInfo>>,
    reader: evmap::handles::ReadHandle<u32, Arc<NodeInfo>>,
}

impl Replace for Evmap {
    fn replace(&mut self, node: u32, by: i64) {
        let next = self.reader.get_one(&node).map(|old| changed(&old, by));
        self.writer.update(node, next.expect("the node exists"));
        self.writer.publish();
    }

    fn count(&self) -> usize {
        self.reader.enter().map_or(0, |map| map.len())
    }
}

/// A concurrent hash map. It has no states: a reader collects the nodes while they change.
struct Papaya(papaya::HashMap<u32, Arc<NodeInfo>>);

impl Replace for Papaya {
    fn replace(&mut self, node: u32, by: i64) {
        self.0.pin().update(node, |old| changed(old, by));
    }

    fn count(&self) -> usize {
        let nodes: Vec<Arc<NodeInfo>> = self.0.pin().values().cloned().collect();
        black_box(nodes).len()
    }
}

/// A flat list, copied for each version.
struct Flat(ArcSwap<Vec<Arc<NodeInfo>>>);

impl Replace for Flat {
    fn replace(&mut self, node: u32, by: i64) {
        let mut next = Vec::clone(&self.0.load());
        let at = node as usize;
        next[at] = changed(&next[at], by);
        self.0.store(Arc::new(next));
    }

    fn count(&self) -> usize {
        self.0.load().len()
    }
}

fn evmap(nodes: u32) -> Evmap {
    let (mut writer, reader) = evmap::new();
    for n in 0..nodes {
        writer.insert(n, start());
    }
    // Both copies get all nodes.
    writer.publish();
    writer.publish();
    Evmap { writer, reader }
}

fn stores(nodes: u32, pods: &mut Pods) -> Vec<(&'static str, Box<dyn Store>)> {
    let all = || (0..nodes).map(|n| (n, start()));
    vec![
        ("portolan", Box::new(Ours::new(nodes, pods))),
        ("portolan again (noise)", Box::new(Ours::new(nodes, pods))),
        ("`imbl::HashMap` in arc-swap", Box::new(Imbl(ArcSwap::from_pointee(all().collect())))),
        ("`rpds::HashTrieMap` in arc-swap", Box::new(Rpds(ArcSwap::from_pointee(all().collect())))),
        ("`RwLock<HashMap>`, cloned to read", Box::new(Locked(RwLock::new(all().collect())))),
        ("evmap, held while read", Box::new(evmap(nodes))),
        ("papaya, collected to read: no state", Box::new(Papaya(all().collect()))),
        (
            "`Vec<Arc<NodeInfo>>` in arc-swap, copied to write",
            Box::new(Flat(ArcSwap::from_pointee((0..nodes).map(|_| start()).collect()))),
        ),
    ]
}

/// The seconds of each change and of each read of one turn.
type Turn = [Vec<f64>; 2];

fn turn(store: &mut dyn Store, nodes: u32, pods: &mut Pods) -> Turn {
    let placed: Vec<(u32, Arc<Pod>)> = (0..CHANGES)
        .map(|_| {
            let node = pods.random.index(nodes as usize) as u32;
            (node, pods.make(node))
        })
        .collect();
    let time = |work: &mut dyn FnMut()| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64()
    };
    let places = placed.iter().map(|(node, pod)| time(&mut || store.place(*node, pod))).collect();
    let mut count = 0;
    let some = (0..4).map(|_| time(&mut || count = store.read()));
    // The clock is as slow as a fast read, so several of them are one sample.
    let each = if some.fold(1.0, f64::min) < 1e-6 { 100 } else { 1 };
    let mut some = || (0..each).for_each(|_| count = black_box(store.read()));
    let reads = (0..CHANGES).map(|_| time(&mut some) / f64::from(each)).collect();
    assert_eq!(count, nodes as usize, "a reader sees all nodes");
    for (node, pod) in &placed {
        store.remove(*node, pod);
    }
    [places, reads]
}

fn table(nodes: u32, turns: usize) {
    let template = pod("web").cpu(CPU).memory(MEMORY).label("app", "web").build().template;
    let mut pods = Pods { template, random: Random::new(1), made: 0 };
    let mut stores = stores(nodes, &mut pods);
    let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
    for (_, store) in &mut stores {
        turn(&mut **store, nodes, &mut pods);
    }
    let measured: Vec<Vec<Turn>> =
        rotate(turns, stores.len(), |which, _| turn(&mut *stores[which].1, nodes, &mut pods));
    let parts = [("place a pod and publish", "µs", 1e6), ("take a state", "ns", 1e9)];
    for (at, (what, unit, factor)) in parts.into_iter().enumerate() {
        println!(
            "\n| {what}, {nodes} nodes | p50 {unit} | p99 {unit} | max {unit} | ratio (p10 to p90) |"
        );
        println!("|---|---:|---:|---:|---:|");
        let median = |turn: &Turn| Sorted::new(turn[at].iter().copied()).quantile(0.5);
        let medians = |turns: &[Turn]| turns.iter().map(median).collect::<Vec<f64>>();
        let ours = medians(&measured[0]);
        for (name, turns) in names.iter().zip(&measured) {
            let all = Sorted::new(turns.iter().flat_map(|turn| turn[at].iter().copied()));
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| all.quantile(share) * factor);
            let [ratio, low, high] = ratios(&medians(turns), &ours).median_and_spread();
            println!(
                "| {name} | {p50:.2} | {p99:.2} | {max:.2} | {ratio:.2} ({low:.2} to {high:.2}) |"
            );
        }
    }
}

fn main() {
    let mut is_quick = false;
    for argument in std::env::args().skip(1) {
        match &*argument {
            // Cargo passes this.
            "--bench" => {}
            "--quick" => is_quick = true,
            other => panic!("unknown argument {other}: use --quick, or none"),
        }
    }
    let sizes: &[(u32, usize)] =
        if is_quick { &[(500, 5)] } else { &[(5_000, 101), (100_000, 41)] };
    for (nodes, turns) in sizes {
        table(*nodes, *turns);
    }
}
