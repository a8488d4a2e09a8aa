//! Scores of whole chunks: only the scores of feasible nodes count, and each chunk is scored once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portolan::cache::{Chunk, Cluster, Column, Config, Engine, LANES, NodeInfo, Snapshot, Writer};
use portolan::model::{Pod, node, pod};
use portolan::plugin::{
    Cycle, CycleState, Feasible, Plugin, PluginInfo, Point, PreScore, Score, Status,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::{in_tree, plugin};

const NODES: usize = 200;

/// Scores every node with this value, and all lanes without a feasible node with values that are out of range.
#[derive(Clone)]
struct Constant {
    score: i64,
    is_local: bool,
    calls: Arc<AtomicU64>,
}

impl Plugin for Constant {
    fn info(&self) -> PluginInfo {
        let info = PluginInfo::new("Constant", &[Point::PreScore, Point::Score]);
        if self.is_local { info.local() } else { info }
    }

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a Feasible<'a>) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(self.clone())))
    }
}

impl Score for Constant {
    fn score(&self, _: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(self.score)
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        _: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        *scores = [i64::MIN; LANES];
        (0..LANES).filter(|lane| mask >> lane & 1 == 1).for_each(|lane| scores[lane] = self.score);
        if self.score < 0 { Err(Status::error("Constant", "negative")) } else { Ok(()) }
    }
}

/// Creates nodes of which every third is cordoned.
fn cluster() -> Arc<Snapshot> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..NODES {
        let made = node(format!("n{n}")).cpu(4_000).memory(8 << 30).pods(110);
        writer.add_node(made.unschedulable(n % 3 == 0).build()).unwrap();
    }
    writer.publish();
    reader.snapshot()
}

/// Schedules a pod with this plugin as the only score, and returns the node's score or the error, and the number of
/// chunks that were scored.
fn scheduled(score: i64, is_local: bool) -> (Result<i64, String>, u64) {
    let plugin = Constant { score, is_local, calls: Arc::default() };
    let calls = plugin.calls.clone();
    let framework =
        Framework::new(vec![(in_tree("NodeUnschedulable"), 1), (Box::new(plugin), 3)]).unwrap();
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let decision = Algorithm::new(framework, config, None).schedule(&cluster(), &pod("p").build());
    let score = decision.map(|decision| decision.score).map_err(|failed| failed.to_string());
    (score, calls.load(Ordering::Relaxed))
}

#[test]
fn scores_of_other_lanes_are_ignored() {
    for is_local in [true, false] {
        assert_eq!(scheduled(7, is_local).0, Ok(21), "local: {is_local}");
        let failed = scheduled(101, is_local).0.unwrap_err();
        assert!(failed.contains("returns an invalid score 101"), "{failed}");
    }
}

#[test]
fn an_error_does_not_keep_other_chunks_from_being_scored() {
    let chunks = NODES.div_ceil(LANES) as u64;
    for is_local in [true, false] {
        let (failed, calls) = scheduled(-1, is_local);
        assert!(failed.unwrap_err().contains("negative"));
        assert_eq!(calls, chunks, "local: {is_local}");
    }
}

/// Prefers some nodes so much that the other plugins do not matter. Writes scores to all lanes.
#[derive(Clone, Default)]
struct Preferring {
    fails: Arc<AtomicBool>,
}

impl Plugin for Preferring {
    plugin!("Preferring", PreScore, Score; .local());

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a Feasible<'a>) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(self.clone())))
    }
}

impl Score for Preferring {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(if node.name().ends_with('7') { 90 } else { 0 })
    }

    fn score_chunk(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        *scores = [100; LANES];
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            scores[lane] = cluster.node_in(chunk, lane).map_or(Ok(0), |node| self.score(node))?;
        }
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Status::error("Preferring", "not now")),
            false => Ok(()),
        }
    }
}

/// One chunk of nodes, and an algorithm that has scored them for a template.
struct Scored {
    writer: Writer,
    algorithm: Algorithm,
    fails: Arc<AtomicBool>,
    made: usize,
}

impl Scored {
    fn new() -> Scored {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..LANES {
            let made = node(format!("n{n}")).cpu(8_000 + n as i64).memory(8 << 30).pods(110);
            writer.add_node(made.build()).unwrap();
        }
        let plugin = Preferring::default();
        let fails = plugin.fails.clone();
        let mut plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(plugin), 10), (in_tree("NodeUnschedulable"), 1)];
        plugins.push((in_tree("NodeResourcesFit"), 1));
        plugins.push((in_tree("NodeResourcesBalancedAllocation"), 1));
        let algorithm =
            Algorithm::new(Framework::new(plugins).unwrap(), AlgorithmConfig::default(), None);
        let mut scored = Scored { writer, algorithm, fails, made: 0 };
        // The results for a template are kept from its second pod on.
        (0..2).for_each(|_| scored.expect_decision_by_nodes());
        scored
    }

    fn pod(&mut self) -> Pod {
        self.made += 1;
        Pod { uid: format!("p{}", self.made).as_str().into(), ..pod("p").cpu(100).build() }
    }

    fn add_pods(&mut self, nodes: std::ops::Range<usize>) {
        for n in nodes {
            let pod = self.pod().on(format!("n{n}"));
            self.writer.add_pod(pod).unwrap();
        }
    }

    fn expect_decision_by_nodes(&mut self) {
        let (pod, state) = (self.pod(), CycleState::default());
        let decided = self.algorithm.schedule(self.writer.cluster(), &pod).unwrap();
        let cycle = Cycle::new(self.writer.cluster(), &pod, &state);
        let by_nodes = self.algorithm.decide_by_nodes(cycle).unwrap();
        assert_eq!((decided.node, decided.score), (by_nodes.node, by_nodes.score));
    }
}

#[test]
fn scores_that_a_plugin_writes_to_other_lanes_do_not_change_the_totals_of_unchanged_nodes() {
    let mut scored = Scored::new();
    for n in 0..LANES {
        scored.add_pods(n..(n + 3).min(LANES));
        scored.expect_decision_by_nodes();
    }
}

#[test]
fn totals_that_an_error_has_left_incomplete_are_computed_again() {
    let mut scored = Scored::new();
    scored.fails.store(true, Ordering::Relaxed);
    // Each time, few nodes change; together they are too many to be scored alone.
    for nodes in [0..4, 4..8] {
        scored.add_pods(nodes);
        let pod = scored.pod();
        assert!(scored.algorithm.schedule(scored.writer.cluster(), &pod).is_err());
    }
    scored.fails.store(false, Ordering::Relaxed);
    for n in 0..4 {
        let cordoned = node(format!("n{n}")).cpu(8_000).memory(8 << 30).pods(110);
        scored.writer.add_node(cordoned.unschedulable(true).build()).unwrap();
    }
    scored.expect_decision_by_nodes();
}
