//! The node names that plugins see when they score or fail, and in sub-clusters.

use portolan::cache::{Config, Engine, NodeInfo};
use portolan::model::{Pod, node, pod};
use portolan::plugin::{
    Cycle, CycleState, Feasible, Filter, MAX_NODE_SCORE, MIN_NODE_SCORE, NodeResourcesFit, Plugin,
    Point, PreFilter, PreScore, Score, ScoredNodes, Status, SubCluster,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::plugin;

/// Scores a node by its name in `normalize`.
struct ByName;

impl Plugin for ByName {
    plugin!("ByName", Score);

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a Feasible<'a>) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(ByName)))
    }
}

impl Score for ByName {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(node.name()[1..].parse().unwrap())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, nodes: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        assert_eq!(nodes.iter().count(), scores.len());
        for (node, score) in nodes.iter().zip(scores) {
            assert_eq!(node.name()[1..].parse(), Ok(*score), "each score belongs to its node");
            *score = if &**node.name() == "n77" { MAX_NODE_SCORE } else { MIN_NODE_SCORE };
        }
        Ok(())
    }
}

#[test]
fn scores_are_normalized_with_the_names_of_their_nodes() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..200 {
        let node = node(format!("n{n}")).zone(format!("z{}", n % 3));
        // Some lanes of a chunk are not feasible.
        writer.add_node(node.cpu(if n % 5 == 0 { 50 } else { 1_000 }).build()).unwrap();
    }
    let framework = || {
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(NodeResourcesFit::default()), 1), (Box::new(ByName), 10)];
        Framework::new(plugins).unwrap()
    };
    let pod = pod("p").cpu(100).build();
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let mut scheduler = Algorithm::new(framework(), config, None);
    assert_eq!(&*scheduler.schedule(writer.cluster(), &pod).unwrap().node, "n77");
    let state = CycleState::default();
    let by_nodes = scheduler.decide_by_nodes(Cycle::new(writer.cluster(), &pod, &state)).unwrap();
    assert_eq!(&*by_nodes.node, "n77");
    assert_eq!(framework().evaluate(writer.cluster(), &pod).failed, None);
}

/// A filter that fails on each node with the node's name.
struct FailsOnEachNode;

impl Plugin for FailsOnEachNode {
    plugin!("FailsOnEachNode", Filter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(FailsOnEachNode)))
    }
}

impl Filter for FailsOnEachNode {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        Some(Status::error("FailsOnEachNode", format!("no verdict on {}", node.name())))
    }
}

#[test]
fn the_first_of_several_failures_in_list_order_is_reported() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..3 {
        let zone = format!("z{n}");
        writer.add_node(node(format!("n{n}")).zone(zone).cpu(1_000).build()).unwrap();
    }
    // Without scores one feasible node is enough, so the list is examined in order.
    let framework = Framework::new(vec![(Box::new(FailsOnEachNode) as Box<dyn Plugin>, 0)]);
    let mut algorithm = Algorithm::new(framework.unwrap(), AlgorithmConfig::default(), None);
    let error = algorithm.schedule(writer.cluster(), &pod("p").build()).unwrap_err();
    assert!(error.to_string().contains("no verdict on n0"), "{error}");
}

/// A plugin that allows only the nodes `red` and `blue`.
struct NamesBoth;

impl Plugin for NamesBoth {
    plugin!("NamesBoth", Filter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Only(vec!["blue".into(), "red".into()], Box::new(Anywhere)))
    }
}

struct Anywhere;

impl Filter for Anywhere {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        None
    }
}

/// Without NodeAffinity no filter repeats the restriction to the sub-cluster.
#[test]
fn nodes_outside_the_sub_cluster_are_not_chosen_even_if_named_or_nominated() {
    let (mut writer, _) = Engine::inline(Config::default());
    for region in ["blue", "red"] {
        writer.add_node(node(region).label("region", region).cpu(1_000).build()).unwrap();
    }
    let nominated = Pod { nominated_node_name: Some("blue".into()), ..pod("p").build() };
    let plugins: [Box<dyn Plugin>; 2] =
        [Box::new(NamesBoth), Box::new(NodeResourcesFit::default())];
    for (plugin, pod) in plugins.into_iter().zip([pod("p").build(), nominated]) {
        let framework = Framework::new(vec![(plugin, 1)]).unwrap();
        let mut red = Algorithm::new(framework, AlgorithmConfig::default(), None)
            .with_sub_cluster(SubCluster::new("region", "red"));
        let state = red.state();
        let cycle = Cycle::new(writer.cluster(), &pod, &state);
        let expected = red.decide_by_nodes(cycle).unwrap();
        assert_eq!((&*expected.node, expected.looked_at), ("red", 1));
        assert_eq!(red.decide(cycle).unwrap(), expected);
    }
}

#[test]
fn scores_are_listed_in_the_order_of_the_scoring_plugins() {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in ["a", "b"] {
        writer.add_node(node(name).cpu(1_000).memory(1 << 30).build()).unwrap();
    }
    let framework = Framework::default_profile();
    let names =
        framework.plugins_at(Point::PreScore).map(|(plugin, _)| plugin.info().name().to_owned());
    let mut names: Vec<String> = names.collect();
    names.reverse();
    let framework = framework.with_plugins_at(Point::PreScore, &names).unwrap();
    let order: Vec<&str> =
        framework.plugins_at(Point::Score).map(|(of, _)| of.info().name()).collect();
    let evaluation = framework.evaluate(writer.cluster(), &pod("p").cpu(100).build());
    for verdict in evaluation.nodes.values() {
        let position = |plugin: &str| order.iter().position(|other| *other == plugin);
        let positions: Vec<_> =
            verdict.scores.iter().map(|score| position(score.plugin).unwrap()).collect();
        assert!(positions.len() > 1 && positions.is_sorted(), "{positions:?}");
    }
}
