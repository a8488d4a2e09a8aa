//! Scores of whole chunks: only the scores of feasible nodes count, and each chunk is scored once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan::cache::{Chunk, Cluster, Column, Config, Engine, LANES, NodeInfo, Snapshot};
use portolan::model::{Pod, node, pod};
use portolan::plugin::{Cycle, Feasible, Plugin, PluginInfo, Point, PreScore, Score, Status};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::in_tree;

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
