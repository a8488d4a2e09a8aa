//! A plugin says the same of 64 nodes at once as of each of them, and the
//! cycle picks what its plugins, asked node by node, like best.

use std::collections::BTreeMap;

use portolan::framework::{
    Cycle, CycleState, Feasible, Filter, Framework, Plugin, PreFilter, PreScore, Reasons,
    ScheduleError, Scheduler, SchedulerConfig, Status,
};
use portolan::model::{
    LabelSelector, Labels, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, Pod,
    PodAffinity, PodAffinityTerm, PreferredSchedulingTerm, Quantity, Requirement, Taint,
    TaintEffect, TopologySpreadConstraint, UnsatisfiableAction, WeightedPodAffinityTerm, node, pod,
};
use portolan::plugins;
use portolan::{Cluster, Config, Engine};
use proptest::prelude::*;

const LARGE: i64 = 1 << 50;

/// Draws small numbers from bits that proptest chose.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        // Constants of a linear congruential generator (Knuth, MMIX).
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn taint(&mut self) -> Taint {
        let effect = self.of(&[
            TaintEffect::NoSchedule,
            TaintEffect::PreferNoSchedule,
            TaintEffect::PreferNoSchedule,
            TaintEffect::NoExecute,
        ]);
        Taint::new(self.of(&["a", "b", "c"]), self.of(&["", "v"]), effect)
    }

    fn node(&mut self, n: usize) -> Node {
        let cpu = self.of(&[0, 1, 4_000, 8_000, 8_000, 64_000, LARGE]);
        let memory = self.of(&[0, 1, 8 << 30, 16 << 30, 16 << 30, 100_000_000_007, LARGE]);
        let mut builder = node(format!("n{n}"))
            .hostname()
            .zone(self.of(&["x", "y", "z"]))
            .cpu(cpu)
            .memory(memory)
            .pods(self.of(&[0, 1, 3, 110, 110, 110]));
        for label in ["disk", "arch"] {
            if !self.one_in(3) {
                builder = builder.label(label, self.of(&["ssd", "hdd", "7", "40"]));
            }
        }
        if self.one_in(3) {
            builder = builder.resource("example.com/gpu", Quantity::whole(self.below(9) as i64));
        }
        for _ in 0..self.of(&[0, 0, 0, 1, 2]) {
            builder = builder.taint(self.taint());
        }
        builder.unschedulable(self.one_in(8)).build()
    }

    fn term(&mut self) -> NodeSelectorTerm {
        let key = self.of(&["disk", "arch", "kubernetes.io/hostname", "none"]);
        let values = [self.of(&["ssd", "hdd", "n3", "n70"]), self.of(&["7", "ssd", "n5"])];
        let requirement = match self.below(6) {
            0 => Requirement::new(key, Operator::NotIn, values),
            1 => Requirement::new::<&str>(key, Operator::Exists, []),
            2 => Requirement::new::<&str>(key, Operator::DoesNotExist, []),
            3 => Requirement::new(key, Operator::Gt, [self.of(&["6", "7", "39"])]),
            _ => Requirement::new(key, Operator::In, values),
        };
        let mut term = NodeSelectorTerm {
            match_expressions: Box::new([requirement]),
            ..NodeSelectorTerm::default()
        };
        if self.one_in(6) {
            let name = self.of(&["n1", "n20", "n64", "nowhere"]);
            term.match_fields = Box::new([Requirement::new("metadata.name", Operator::In, [name])]);
        }
        term
    }

    fn key(&mut self) -> &'static str {
        self.of(&["topology.kubernetes.io/zone", "kubernetes.io/hostname", "disk", "none"])
    }

    fn pod_term(&mut self) -> PodAffinityTerm {
        PodAffinityTerm {
            topology_key: self.key().into(),
            selector: LabelSelector::from_labels([("app", self.of(&["a", "b", "c"]))]),
            namespaces: Box::new(["default".into()]),
            namespace_selector: LabelSelector::Nothing,
        }
    }

    fn pod_affinity(&mut self) -> PodAffinity {
        PodAffinity {
            required: (0..self.of(&[0, 0, 1])).map(|_| self.pod_term()).collect(),
            preferred: (0..self.of(&[0, 1, 2]))
                .map(|_| WeightedPodAffinityTerm {
                    weight: self.of(&[1, 30, 100]),
                    term: self.pod_term(),
                })
                .collect(),
        }
    }

    fn constraint(&mut self) -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: self.of(&[1, 2, 5]),
            topology_key: self.key().into(),
            when_unsatisfiable: self
                .of(&[UnsatisfiableAction::DoNotSchedule, UnsatisfiableAction::ScheduleAnyway]),
            selector: LabelSelector::from_labels([("app", self.of(&["a", "b"]))]),
            min_domains: self.of(&[None, Some(2), Some(50)]),
            honor_node_affinity: !self.one_in(4),
            honor_node_taints: self.one_in(2),
            match_label_keys: Box::default(),
        }
    }

    fn pod(&mut self, n: usize) -> Pod {
        let mut builder = pod(format!("p{n}")).label("app", self.of(&["a", "b", "c"]));
        if self.one_in(4) {
            builder = builder.pod_affinity(self.pod_affinity());
        }
        if self.one_in(4) {
            builder = builder.pod_anti_affinity(self.pod_affinity());
        }
        if self.one_in(3) {
            let constraints = (0..2).map(|_| self.constraint()).collect();
            builder = builder.spec(|spec| spec.topology_spread = constraints);
        }
        if !self.one_in(5) {
            builder = builder
                .cpu(self.of(&[0, 1, 100, 500, 1_000, 4_000, LARGE]))
                .memory(self.of(&[0, 1, 1 << 30, 3 << 30, 12_345_678_901, LARGE]));
        }
        if self.one_in(3) {
            builder = builder.request("example.com/gpu", Quantity::whole(self.below(5) as i64));
        }
        if self.one_in(9) {
            builder = builder.request("example.com/unknown", Quantity::whole(1));
        }
        for _ in 0..self.of(&[0, 0, 1, 2]) {
            builder = builder.tolerate(self.of(&["a", "b", "c"]));
        }
        if self.one_in(3) {
            builder = builder.host_port(8000 + self.below(2) as u16);
        }
        if self.one_in(5) {
            builder = builder.node_selector(Labels::new([("disk", self.of(&["ssd", "hdd"]))]));
        }
        if self.one_in(3) {
            let mut affinity = NodeAffinity::default();
            if self.one_in(2) {
                let terms = (0..self.below(3)).map(|_| self.term()).collect();
                affinity.required = Some(NodeSelector { terms });
            }
            affinity.preferred = (0..self.below(3))
                .map(|_| PreferredSchedulingTerm {
                    weight: self.of(&[1, 10, 50, 100]),
                    preference: self.term(),
                })
                .collect();
            builder = builder.node_affinity(affinity);
        }
        if self.one_in(12) {
            builder = builder.on(format!("n{}", self.below(200)));
        }
        builder.build()
    }
}

/// A cluster with holes in its chunks, and pods on its nodes.
fn cluster(draw: &mut Draw, nodes: usize) -> portolan::Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..nodes {
        writer.add_node(draw.node(n)).unwrap();
    }
    for n in 0..nodes * 2 {
        let node = format!("n{}", draw.below(nodes as u64));
        let placed = draw.pod(n).on(node);
        // Sums of more than 64 bits are refused; the rest is enough.
        let _ = writer.add_pod(placed);
    }
    for n in 0..nodes {
        if draw.one_in(7) {
            writer.remove_node(format!("n{n}")).unwrap();
        }
    }
    writer
}

fn all_plugins() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(plugins::NodeUnschedulable),
        Box::new(plugins::NodeName),
        Box::new(plugins::TaintToleration),
        Box::new(plugins::NodeAffinity::default()),
        Box::new(plugins::NodePorts),
        Box::new(plugins::NodeResourcesFit::default()),
        Box::new(plugins::PodTopologySpread::default()),
        Box::new(plugins::InterPodAffinity::default()),
        Box::new(plugins::NodeResourcesBalancedAllocation::default()),
        Box::new(plugins::ImageLocality),
    ]
}

fn same_of_chunks_and_nodes(cluster: &Cluster, pod: &Pod) {
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    for plugin in all_plugins() {
        if let PreFilter::Filter(filter) | PreFilter::Only(_, filter) =
            plugin.pre_filter(cycle).unwrap()
        {
            for chunk in cluster.zones().flat_map(|zone| zone.chunks()) {
                for mask in [chunk.live(), chunk.live() & 0x5555_5555_5555_5555] {
                    let passed = filter.filter_chunk(cluster, chunk, mask).unwrap();
                    for at in 0..64 {
                        let alone = mask >> at & 1 == 1
                            && cluster
                                .node_in(chunk, at)
                                .is_some_and(|node| filter.filter(node).is_none());
                        assert_eq!(passed >> at & 1 == 1, alone, "{} lane {at}", plugin.name());
                    }
                    let mut reasons = Reasons::default();
                    let counted = filter.count_reasons(cluster, chunk, mask, &mut reasons);
                    assert_eq!(counted, Ok(passed));
                    let mut wanted = BTreeMap::new();
                    for at in (0..64).filter(|at| mask >> at & 1 == 1) {
                        let status = cluster.node_in(chunk, at).and_then(|n| filter.filter(n));
                        for reason in status.into_iter().flat_map(|status| status.reasons) {
                            *wanted.entry(reason).or_insert(0) += 1;
                        }
                    }
                    assert_eq!(reasons.into_map(), wanted, "{}", plugin.name());
                }
            }
        }
        let mut scores = [0; 64];
        let listed = cluster.zones().flat_map(|zone| zone.chunks());
        let feasible = Feasible::new(cluster, listed.map(|chunk| (chunk, chunk.live())).collect());
        match plugin.pre_score(cycle, &feasible).unwrap() {
            PreScore::Score(score) => {
                for chunk in cluster.zones().flat_map(|zone| zone.chunks()) {
                    score.score_chunk(cluster, chunk, chunk.live(), &mut scores).unwrap();
                    for (at, scored) in scores.iter().enumerate() {
                        if chunk.live() >> at & 1 == 1 {
                            let node = cluster.node_in(chunk, at).unwrap();
                            let name = plugin.name();
                            assert_eq!(Ok(*scored), score.score(node), "{name} {}", node.name());
                        }
                    }
                }
            }
            PreScore::All(all) => assert!((0..=100).contains(&all)),
            PreScore::Skip => {}
        }
    }
}

/// What the cycle says, from plugins asked node by node.
fn best_by_nodes(framework: &Framework, cluster: &Cluster, pod: &Pod) -> Vec<(i64, String)> {
    let nodes = framework.evaluate(cluster, pod).nodes;
    let passed = nodes.into_iter().filter(|(_, verdict)| verdict.status.is_none());
    passed.map(|(name, verdict)| (verdict.total(), name.to_string())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn chunks_and_nodes_get_the_same_answers(bits in any::<u64>(), nodes in 1..220_usize) {
        let mut draw = Draw(bits);
        let writer = cluster(&mut draw, nodes);
        for n in 0..12 {
            same_of_chunks_and_nodes(writer.cluster(), &draw.pod(n));
        }
    }

    #[test]
    fn the_cycle_picks_a_node_that_its_plugins_like_best(
        bits in any::<u64>(),
        nodes in 1..220_usize,
    ) {
        let mut draw = Draw(bits);
        let writer = cluster(&mut draw, nodes);
        let (cluster, framework) = (writer.cluster(), Framework::default_profile());
        let config = SchedulerConfig { percentage_of_nodes: 100, seed: bits };
        let mut scheduler = Scheduler::new(Framework::default_profile(), config, None);
        for n in 0..12 {
            let pod = draw.pod(n);
            let by_nodes = best_by_nodes(&framework, cluster, &pod);
            match scheduler.schedule(cluster, &pod) {
                Ok(decision) => {
                    prop_assert_eq!(decision.feasible, by_nodes.len());
                    let best = by_nodes.iter().map(|(score, _)| *score).max().unwrap();
                    let (score, _) =
                        by_nodes.iter().find(|(_, name)| **name == *decision.node).unwrap();
                    prop_assert_eq!(*score, best);
                    // One feasible node is not scored.
                    prop_assert_eq!(decision.score, if by_nodes.len() == 1 { 0 } else { best });
                }
                Err(ScheduleError::NoNodes) => prop_assert!(cluster.is_empty()),
                Err(_) => prop_assert_eq!(by_nodes.len(), 0),
            }
        }
    }

    #[test]
    fn what_a_scheduler_remembers_changes_none_of_its_decisions(
        bits in any::<u64>(),
        nodes in 1..220_usize,
        percentage in prop_oneof![Just(0_u8), Just(30), Just(100)],
    ) {
        let mut draw = Draw(bits);
        let mut writer = cluster(&mut draw, nodes);
        let scheduler = || {
            let config = SchedulerConfig { percentage_of_nodes: percentage, seed: bits };
            Scheduler::new(Framework::default_profile(), config, None)
        };
        let (mut remembers, mut forgets) = (scheduler(), scheduler());
        let templates: Vec<Pod> = (0..3).map(|n| draw.pod(n)).collect();
        for n in 0..60 {
            let pod = Pod {
                uid: portolan::model::Uid::new(&format!("default/new-{n}")),
                ..draw.of(&[&templates[0], &templates[1], &templates[2]]).clone()
            };
            let decided = remembers.schedule(writer.cluster(), &pod);
            // A fork is a line of versions of its own, of which nothing is known.
            prop_assert_eq!(&decided, &forgets.schedule(&writer.cluster().fork(), &pod));
            if let Ok(decision) = decided {
                let _ = writer.assume_pod(pod.on(decision.node));
            }
            match draw.below(12) {
                0 => {
                    let changed = draw.below(nodes as u64) as usize;
                    let changed = draw.node(changed);
                    let _ = writer.update_node(changed);
                }
                1 => {
                    let _ = writer.remove_node(format!("n{}", draw.below(nodes as u64)));
                }
                2 => {
                    let _ = writer.remove_pod(&pod_of(&writer, draw.below(60)));
                }
                _ => {}
            }
        }
    }
}

/// Why each node of a version is rejected.
fn rejections(filter: &dyn Filter, cluster: &Cluster) -> Vec<Option<Status>> {
    cluster.nodes().map(|node| filter.filter(node)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A filter that is told of pods that come and go says what one says that is
    /// made anew where they came and went.
    #[test]
    fn pods_that_come_and_go_are_counted_as_if_looked_for(
        bits in any::<u64>(),
        nodes in 1..90_usize,
    ) {
        let mut draw = Draw(bits);
        let writer = cluster(&mut draw, nodes);
        let state = CycleState::default();
        let spread = plugins::PodTopologySpread::default();
        let affinity = plugins::InterPodAffinity::default();
        for n in 0..16 {
            let pod = draw.pod(n);
            let mut fork = writer.cluster().fork();
            for plugin in [&spread as &dyn Plugin, &affinity] {
                let cycle = Cycle::new(writer.cluster(), &pod, &state);
                let Ok(PreFilter::Filter(filter)) = plugin.pre_filter(cycle) else { continue };
                let before = rejections(&*filter, writer.cluster());
                let mut told = filter.extend().unwrap();
                for step in 0..6 {
                    let there: Vec<_> = fork.nodes().collect();
                    let Some(node) = there.get(draw.below(there.len().max(1) as u64) as usize)
                    else { break };
                    let (name, leaves) = (node.name().clone(), node.pods().next());
                    let leaves = leaves.map(|pod| pod.to_pod());
                    match leaves.filter(|_| draw.one_in(2)) {
                        Some(leaves) => {
                            fork.remove_pod(&leaves.uid).unwrap();
                            told.remove_pod(&leaves, fork.node(&name).unwrap()).unwrap();
                        }
                        None => {
                            let comes = draw.pod(1_000 + n * 10 + step).on(name.clone());
                            if fork.add_pod(&comes).is_ok() {
                                told.add_pod(&comes, fork.node(&name).unwrap()).unwrap();
                            }
                        }
                    }
                    let cycle = Cycle::new(&fork, &pod, &state);
                    let found = match plugin.pre_filter(cycle).unwrap() {
                        PreFilter::Filter(anew) => rejections(&*anew, &fork),
                        _ => vec![None; fork.len()],
                    };
                    prop_assert_eq!(rejections(&*told, &fork), found, "{}", plugin.name());
                }
                drop(told);
                // What a copy was told of is none of the original's.
                prop_assert_eq!(rejections(&*filter, writer.cluster()), before);
                fork = writer.cluster().fork();
            }
        }
    }
}

/// One of the pods that were placed, or one that is not there.
fn pod_of(writer: &portolan::Writer, n: u64) -> Pod {
    let uid = portolan::model::Uid::new(&format!("default/new-{n}"));
    writer.get_pod(&uid).map_or_else(|| pod("none").build(), |known| known.to_pod())
}
