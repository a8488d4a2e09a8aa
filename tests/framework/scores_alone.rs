//! Plugins that a configuration enables at Score but not at PreScore. As in kube-scheduler, `Score` finds no state of
//! PreScore.

use portolan::cache::{Config, Engine, Snapshot};
use portolan::model::{
    NodeAffinity, NodeSelectorTerm, Operator, Pod, PreferredSchedulingTerm, Requirement, node, pod,
};
use portolan::plugin::Point;
use portolan::{Algorithm, AlgorithmConfig, Framework};
use std::sync::Arc;

fn cluster() -> Arc<Snapshot> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for (name, cpu) in [("a", 4_000), ("b", 8_000)] {
        writer.add_node(node(name).label("disk", name).cpu(cpu).memory(8 << 30).build()).unwrap();
    }
    writer.publish();
    reader.snapshot()
}

/// Creates the default profile with one plugin at Score, which is not enabled at PreScore.
fn alone(plugin: &str) -> Framework {
    let none: [&str; 0] = [];
    let framework = Framework::default_profile().with_plugins_at(Point::PreScore, &none).unwrap();
    framework.with_plugins_at(Point::Score, &[plugin]).unwrap()
}

/// Returns the plugin's score of each node, or its error, checked by nodes and by chunks.
fn scores(plugin: &str, pod: &Pod) -> Result<Vec<(String, i64)>, String> {
    let cluster = cluster();
    let evaluation = alone(plugin).evaluate(&cluster, pod);
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let decision = Algorithm::new(alone(plugin), config, None).schedule(&cluster, pod);
    if let Some(failed) = evaluation.failed {
        assert!(decision.unwrap_err().to_string().contains(&failed.message()));
        return Err(failed.message());
    }
    let mut best = 0;
    let scores = evaluation.nodes.iter().map(|(name, verdict)| {
        assert_eq!(verdict.scores.len(), 1, "{plugin}");
        best = best.max(verdict.scores[0].weighted);
        (name.to_string(), verdict.scores[0].normalized)
    });
    let scores = scores.collect();
    assert_eq!(decision.unwrap().score, best);
    Ok(scores)
}

fn named(scores: [i64; 2]) -> Result<Vec<(String, i64)>, String> {
    Ok(vec![("a".to_owned(), scores[0]), ("b".to_owned(), scores[1])])
}

#[test]
fn without_preferred_terms_node_affinity_scores_zero() {
    assert_eq!(scores("NodeAffinity", &pod("p").build()), named([0, 0]));
}

#[test]
fn with_preferred_terms_node_affinity_parses_them_in_score() {
    let term = NodeSelectorTerm {
        match_expressions: [Requirement::new("disk", Operator::In, ["b"])].into(),
        ..NodeSelectorTerm::default()
    };
    let preferred = [PreferredSchedulingTerm { weight: 5, preference: term }].into();
    let affinity = NodeAffinity { preferred, ..NodeAffinity::default() };
    assert_eq!(scores("NodeAffinity", &pod("p").node_affinity(affinity).build()), named([0, 100]));
}

#[test]
fn resources_are_scored_in_score_and_balance_without_requests_is_zero() {
    assert_eq!(scores("NodeResourcesBalancedAllocation", &pod("p").build()), named([0, 0]));
    let asks = pod("p").cpu(1_000).memory(1 << 30).build();
    assert!(scores("NodeResourcesBalancedAllocation", &asks).unwrap()[0].1 > 0);
    let fit = scores("NodeResourcesFit", &asks).unwrap();
    assert!(fit[0].1 < fit[1].1, "the larger node has more left: {fit:?}");
}

#[test]
fn plugins_that_require_pre_score_fail_without_it() {
    for (plugin, why) in [
        ("TaintToleration", "failed to read \"PreScoreTaintToleration\""),
        ("InterPodAffinity", "failed to read \"PreScoreInterPodAffinity\""),
        ("PodTopologySpread", "error reading \"PreScorePodTopologySpread\""),
    ] {
        let expected = format!(
            "running Score plugins: plugin {plugin:?} failed with: {why} from cycleState: not found"
        );
        assert_eq!(scores(plugin, &pod("p").build()), Err(expected));
    }
}

#[test]
fn a_plugin_without_a_pre_score_scores_as_usual() {
    assert_eq!(scores("ImageLocality", &pod("p").build()), named([0, 0]));
}
