//! Verdicts on nodes that are combined or kept apply to nothing else: not to nodes that another filter rejected, not to
//! other templates, and not to pods that other nodes are named for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portolan::cache::{Chunk, Cluster, Config, Engine, LANES, NodeInfo, Writer};
use portolan::model::{Labels, node, pod};
use portolan::plugin::{Code, Cycle, Filter, Handle, Plugin, PreFilter, Status, default_plugins};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework};
use portolan_testkit::plugin;

fn algorithm(plugin: impl Plugin + 'static) -> Algorithm {
    let mut plugins = default_plugins(&Default::default());
    plugins.push((Box::new(plugin), 0));
    Algorithm::new(Framework::new(plugins).unwrap(), AlgorithmConfig::default(), None)
}

/// Rejects nothing, and answers for all nodes of a chunk, whatever it is asked.
struct WholeChunk;

impl Plugin for WholeChunk {
    plugin!("WholeChunk", PreFilter, Filter);
    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(WholeChunk)))
    }
}

impl Filter for WholeChunk {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        None
    }
    fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, _: u64) -> Result<u64, Status> {
        Ok(chunk.live())
    }
}

#[test]
fn a_node_that_one_filter_rejects_does_not_pass_because_of_another() {
    let (mut writer, reader) = Engine::inline(Config::default());
    writer.add_node(node("full").cpu(64_000).memory(1 << 40).pods(0).build()).unwrap();
    writer.add_node(node("free").cpu(1_000).memory(1 << 30).build()).unwrap();
    writer.publish();
    let snapshot = reader.snapshot();
    let mut algorithm = algorithm(WholeChunk);
    for cpu in [100, 200, 100] {
        let decision = algorithm.schedule(&snapshot, &pod("p").cpu(cpu).build()).unwrap();
        assert_eq!((&*decision.node, decision.feasible), ("free", 1));
    }
}

/// Names one node for each pod while `names` is set.
struct Names {
    names: Arc<AtomicBool>,
}

struct Pass;

impl Filter for Pass {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        None
    }
}

impl Plugin for Names {
    plugin!("Names", PreFilter, Filter; .local());
    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        // Relaxed: set and read by one thread.
        Ok(match self.names.load(Ordering::Relaxed) {
            true => PreFilter::Only(vec!["n1".into()], Box::new(Pass)),
            false => PreFilter::Skip,
        })
    }
}

#[test]
fn verdicts_on_named_nodes_are_not_kept_for_other_pods_of_the_template() {
    let (mut writer, reader) = Engine::inline(Config::default());
    for name in ["n1", "n2", "n3"] {
        writer.add_node(node(name).cpu(1_000).memory(1 << 30).build()).unwrap();
    }
    writer.publish();
    let snapshot = reader.snapshot();
    let names = Arc::new(AtomicBool::new(true));
    let mut algorithm = algorithm(Names { names: names.clone() });
    let mut feasible =
        |name: &str| algorithm.schedule(&snapshot, &pod(name).cpu(100).build()).unwrap().feasible;
    assert_eq!([feasible("a"), feasible("b"), feasible("c")], [1; 3]);
    names.store(false, Ordering::Relaxed);
    assert_eq!(feasible("d"), 3);
}

#[test]
fn verdicts_of_a_forgotten_template_are_not_used_for_another() {
    // More templates, and zones with a chunk each, than are remembered.
    const COUNT: usize = 200;
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..COUNT {
        let node = node(format!("n{n}")).hostname().zone(format!("z{n}"));
        writer.add_node(node.cpu(64_000).memory(1 << 40).build()).unwrap();
    }
    writer.publish();
    let snapshot = reader.snapshot();
    let config = AlgorithmConfig { percentage_of_nodes: 100, ..AlgorithmConfig::default() };
    let mut algorithm = Algorithm::new(Framework::default_profile(), config, None);
    for _ in 0..3 {
        for n in 0..COUNT {
            let name = format!("n{n}");
            let selector = Labels::new([("kubernetes.io/hostname", &*name)]);
            let pod = pod("p").cpu(100).node_selector(selector).build();
            for _ in 0..2 {
                assert_eq!(*algorithm.schedule(&snapshot, &pod).unwrap().node, *name);
            }
        }
    }
}

/// Rejects the nodes whose numbers are less than `least`, which is its version, and counts the chunks it is asked
/// about.
#[derive(Clone, Default)]
struct Versioned {
    least: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    has_no_version: Arc<AtomicBool>,
}

impl Plugin for Versioned {
    plugin!("Versioned", PreFilter, Filter);
    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(self.clone())))
    }
}

impl Filter for Versioned {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let number: u64 = node.name()[1..].parse().unwrap();
        let is_less = number < self.least.load(Ordering::Relaxed);
        is_less.then(|| Status::new(Code::Unschedulable, "Versioned", "less"))
    }
    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let lanes = (0..LANES).filter(|lane| mask >> lane & 1 == 1);
        let nodes = lanes.filter_map(|lane| Some((lane, cluster.node_in(chunk, lane)?)));
        let passed = nodes.filter(|(_, node)| self.filter(*node).is_none());
        Ok(passed.fold(0, |passed, (lane, _)| passed | 1 << lane))
    }
    fn version(&self) -> Option<u64> {
        let version = self.least.load(Ordering::Relaxed);
        assert_ne!(version, 1, "this version panics");
        (!self.has_no_version.load(Ordering::Relaxed)).then_some(version)
    }
}

#[test]
fn a_filter_is_asked_again_about_changed_nodes_and_if_its_version_changes() {
    let (mut writer, _) = Engine::inline(Config::default());
    // Two chunks, all of which are examined.
    for n in 0..100 {
        writer.add_node(node(format!("n{n}")).cpu(1_000).memory(1 << 30).build()).unwrap();
    }
    let plugin = Versioned::default();
    let mut algorithm = algorithm(plugin.clone());
    let pod = pod("p").cpu(100).build();
    let mut cycle = |writer: &portolan::cache::Writer| {
        let feasible = algorithm.schedule(writer.cluster(), &pod).map_or(0, |of| of.feasible);
        (feasible, plugin.asked.swap(0, Ordering::Relaxed))
    };
    // The verdicts of a template's first pod are not kept.
    assert_eq!(cycle(&writer), (100, 2));
    assert_eq!(cycle(&writer), (100, 2));
    assert_eq!([cycle(&writer), cycle(&writer)], [(100, 0), (100, 0)]);
    writer.update_node(node("n70").cpu(10).memory(1 << 30).build()).unwrap();
    assert_eq!([cycle(&writer), cycle(&writer)], [(99, 1), (99, 0)]);
    plugin.least.store(30, Ordering::Relaxed);
    assert_eq!([cycle(&writer), cycle(&writer)], [(69, 2), (69, 0)]);
    plugin.least.store(100, Ordering::Relaxed);
    assert_eq!(cycle(&writer).0, 0);
    // The error of a pod that fits nowhere asks again, to count the reasons.
    plugin.least.store(0, Ordering::Relaxed);
    assert_eq!([cycle(&writer), cycle(&writer)], [(99, 2), (99, 0)]);
    plugin.has_no_version.store(true, Ordering::Relaxed);
    assert_eq!([cycle(&writer), cycle(&writer)], [(99, 2), (99, 2)]);
    plugin.has_no_version.store(false, Ordering::Relaxed);
    assert_eq!([cycle(&writer), cycle(&writer)], [(99, 2), (99, 0)]);
    // A filter whose version panics is asked in every cycle.
    plugin.least.store(1, Ordering::Relaxed);
    assert_eq!([cycle(&writer), cycle(&writer)], [(98, 2), (98, 2)]);
}

/// A plugin with this name whose PreFilter returns a new filter, or skips.
struct Filtering<F>(&'static str, F);

impl<F: Fn() -> Option<Box<dyn Filter>> + Send + Sync> Plugin for Filtering<F> {
    plugin!(self => self.0, PreFilter, Filter);
    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok((self.1)().map_or(PreFilter::Skip, PreFilter::Filter))
    }
}

/// Rejects nodes with even numbers if its plugin is called A, and those with odd ones otherwise. Has a version.
struct ParityFilter(&'static str, u64);

impl Filter for ParityFilter {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let is_even = node.name().ends_with(['0', '2']);
        (is_even == (self.0 == "A")).then(|| Status::new(Code::Unschedulable, self.0, "no"))
    }
    fn version(&self) -> Option<u64> {
        Some(self.1)
    }
}

#[test]
fn equal_version_numbers_of_two_plugins_do_not_share_verdicts() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..4 {
        writer.add_node(node(format!("n{n}")).cpu(10_000).memory(1 << 30).build()).unwrap();
    }
    let versions = [1, 0].map(|version| Arc::new(AtomicU64::new(version)));
    let mut plugins = default_plugins(&Default::default());
    for (name, version) in ["A", "B"].into_iter().zip(&versions) {
        let version = version.clone();
        let filter = move || match version.load(Ordering::Relaxed) {
            0 => None,
            version => Some(Box::new(ParityFilter(name, version)) as Box<dyn Filter>),
        };
        plugins.push((Box::new(Filtering(name, filter)), 0));
    }
    let framework = Framework::new(plugins).unwrap();
    let mut algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    for round in 0..4 {
        for (version, is_active) in versions.iter().zip([round % 2 == 0, round % 2 == 1]) {
            version.store(u64::from(is_active), Ordering::Relaxed);
        }
        for _ in 0..3 {
            let decision =
                algorithm.schedule(writer.cluster(), &pod("p").cpu(100).build()).unwrap();
            let is_even = decision.node.ends_with(['0', '2']);
            assert_eq!((is_even, decision.feasible), (round % 2 == 1, 2), "round {round}");
        }
    }
}

/// Rejects all nodes if its version is even. Version 1 panics.
struct ToggledFilter(&'static str, u64);

impl Filter for ToggledFilter {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        self.1.is_multiple_of(2).then(|| Status::new(Code::Unschedulable, self.0, "no"))
    }
    fn version(&self) -> Option<u64> {
        assert_ne!(self.1, 1, "this version panics");
        Some(self.1)
    }
}

/// Returns two nodes, and an algorithm with the plugins A and B, whose filters have these versions.
fn with_toggled_filters(versions: &[Arc<AtomicU64>; 2], handle: &Handle) -> (Writer, Algorithm) {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in ["n0", "n1"] {
        writer.add_node(node(name).cpu(10_000).memory(1 << 30).build()).unwrap();
    }
    let mut plugins = default_plugins(handle);
    for (name, version) in ["A", "B"].into_iter().zip(versions) {
        let version = version.clone();
        let filter = move || {
            let version = version.load(Ordering::Relaxed);
            Some(Box::new(ToggledFilter(name, version)) as Box<dyn Filter>)
        };
        plugins.push((Box::new(Filtering(name, filter)), 0));
    }
    let framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
    (writer, Algorithm::new(framework, AlgorithmConfig::default(), None))
}

#[test]
fn the_version_of_each_filter_counts() {
    let versions = [3, 3].map(|version| Arc::new(AtomicU64::new(version)));
    let (writer, mut algorithm) = with_toggled_filters(&versions, &Handle::default());
    let pod = pod("p").cpu(100).build();
    for changed in &versions {
        for version in [3, 4, 3, 6, 5] {
            changed.store(version, Ordering::Relaxed);
            for _ in 0..3 {
                let feasible = algorithm.schedule(writer.cluster(), &pod).map(|of| of.feasible);
                assert_eq!(
                    feasible.ok(),
                    (!version.is_multiple_of(2)).then_some(2),
                    "version {version}"
                );
            }
        }
    }
}

#[test]
fn a_panic_of_a_version_names_its_plugin() {
    let versions = [3, 1].map(|version| Arc::new(AtomicU64::new(version)));
    let handle = Handle::default();
    let (writer, mut algorithm) = with_toggled_filters(&versions, &handle);
    let pod = pod("p").cpu(100).build();
    assert_eq!(algorithm.schedule(writer.cluster(), &pod).unwrap().feasible, 2);
    let plugins: Vec<&str> = handle.panics().latest().iter().map(|of| of.plugin).collect();
    assert_eq!(plugins, ["B"]);
}

#[test]
fn verdicts_with_nominated_pods_are_not_cached() {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in ["n0", "n1"] {
        writer.add_node(node(name).cpu(1_000).memory(1 << 30).build()).unwrap();
    }
    let handle = Handle::default();
    let framework = Framework::default_profile_with(&handle);
    let mut algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let (high, low) = (pod("high").priority(10).cpu(1_000).build(), pod("low").cpu(500).build());
    for (full, free) in [("n0", "n1"), ("n1", "n0"), ("n0", "n1")] {
        handle.nominator().add(high.clone(), full.into());
        for _ in 0..2 {
            let decision = algorithm.schedule(writer.cluster(), &low).unwrap();
            assert_eq!((&*decision.node, decision.feasible), (free, 1));
        }
        handle.nominator().remove(&high.uid);
        // Only after the second round, so that two nominated cycles also follow each other directly.
        if free == "n0" {
            assert_eq!(algorithm.schedule(writer.cluster(), &low).unwrap().feasible, 2);
        }
    }
}

/// Fails on node n5.
struct Fails;

impl Filter for Fails {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        (&**node.name() == "n5").then(|| Status::error("Fails", "no"))
    }
}

#[test]
fn an_error_of_a_filter_fails_the_cycle_even_if_enough_other_nodes_pass() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..300 {
        writer.add_node(node(format!("n{n}")).cpu(1_000).memory(1 << 30).build()).unwrap();
    }
    let mut plugins = default_plugins(&Default::default());
    plugins.push((Box::new(Filtering("Fails", || Some(Box::new(Fails) as Box<dyn Filter>))), 0));
    let config = AlgorithmConfig { percentage_of_nodes: 1, ..AlgorithmConfig::default() };
    let mut algorithm = Algorithm::new(Framework::new(plugins).unwrap(), config, None);
    let failed = algorithm.schedule(writer.cluster(), &pod("p").cpu(10).build()).unwrap_err();
    assert!(matches!(&failed, Failure::Plugin(status) if status.plugin == "Fails"), "{failed}");
}
