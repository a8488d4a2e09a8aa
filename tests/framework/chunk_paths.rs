//! A plugin gives the same results for a chunk of 64 nodes as for each node, and the cycle chooses a node with the
//! highest total score.

use std::num::NonZeroU32;

use portolan::cache::{Cluster, Config, Engine, Event};
use portolan::model::{
    Name, NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, Pod, Requirement, Timestamp,
    node, pod,
};
use portolan::plugin::{Partition, SubCluster};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::checks::{
    chunk_and_node_calls_agree, decided_by_nodes, incremental_filters_equal_rebuilt,
    verdicts_are_consistent,
};
use portolan_testkit::draw::Draw;
use proptest::prelude::*;

/// Creates a cluster with gaps in its chunks, and pods on its nodes.
pub(super) fn cluster(draw: &mut Draw<'_>, nodes: usize) -> portolan::cache::Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..nodes {
        writer.add_node(draw.node(n)).unwrap();
    }
    for _ in 0..draw.below(24) {
        writer.put_object(draw.object()).unwrap();
    }
    if draw.one_in(2) {
        for _ in 0..nodes {
            // Parts of existing and of missing nodes.
            let n = draw.below(nodes as u64 + 3) as usize;
            writer.put_object(draw.part(n)).unwrap();
        }
    }
    for n in 0..nodes * 2 {
        let node = format!("n{}", draw.below(nodes as u64));
        let placed = draw.pod(n).on(node);
        // Pods whose sums exceed 64 bits are refused, and the others suffice.
        let _ = writer.add_pod(placed);
    }
    for n in 0..nodes {
        if draw.one_in(7) {
            writer.remove_node(format!("n{n}")).unwrap();
        }
    }
    writer
}

/// Returns one of several partitions of the nodes, or none.
fn partition(which: u32) -> Option<Partition> {
    match which {
        0..3 => Some(Partition::Share { index: which, of: NonZeroU32::new(2)? }),
        3..5 => Some(Partition::Scheduler("own".into())),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn chunk_and_per_node_results_agree(bits in any::<u64>(), nodes in 1..220_usize) {
        let mut draw = Draw::from(bits);
        let writer = cluster(&mut draw, nodes);
        for n in 0..12 {
            chunk_and_node_calls_agree(writer.cluster(), &draw.pod(n));
        }
    }

    #[test]
    fn the_cycle_chooses_a_node_with_the_highest_score(
        bits in any::<u64>(),
        nodes in 1..220_usize,
        percentage in prop_oneof![Just(0_u8), Just(30), Just(100)],
        part in 0..6_u32,
    ) {
        let mut draw = Draw::from(bits);
        let mut writer = cluster(&mut draw, nodes);
        for n in (0..nodes).step_by(3) {
            // Removed nodes are not assigned.
            let _ = writer.apply(&Event::assign_node(format!("n{n}"), "own"));
        }
        let (cluster, framework) = (writer.cluster(), Framework::default_profile());
        let config = AlgorithmConfig { percentage_of_nodes: percentage, seed: bits };
        let mut scheduler = Algorithm::new(Framework::default_profile(), config, None);
        scheduler.set_section(part, NonZeroU32::new(1 + part / 2 * 3).unwrap());
        if let Some(part) = partition(part) {
            scheduler = scheduler.with_partition(part);
        }
        for n in 0..12 {
            let pod = draw.pod(n);
            verdicts_are_consistent(&framework, cluster, &pod);
            let _ = decided_by_nodes(&mut scheduler, cluster, &pod);
        }
    }

    #[test]
    fn a_cached_maximum_of_nodes_that_are_not_examined_is_not_used(
        rooms in prop::collection::vec(1_000_i64..2_000, 130..220),
        pods in 2..12_usize,
    ) {
        let (mut writer, _) = Engine::inline(Config::default());
        for (n, room) in rooms.iter().enumerate() {
            let node = node(format!("n{n}")).cpu(*room).memory(1 << 30).pods(110).build();
            writer.add_node(node).unwrap();
        }
        // 100 nodes are examined, so a search ends in the middle of a chunk.
        let config = AlgorithmConfig { percentage_of_nodes: 30, ..AlgorithmConfig::default() };
        let mut scheduler = Algorithm::new(Framework::default_profile(), config, None);
        for n in 0..pods {
            // Nearly every node has a score of its own.
            let pod = pod(format!("p{n}")).cpu(900).build();
            let decision = decided_by_nodes(&mut scheduler, writer.cluster(), &pod).unwrap();
            writer.assume_pod(pod.on(decision.node)).unwrap();
        }
    }

    #[test]
    fn each_scheduler_of_an_engine_begins_in_a_section_of_the_nodes_of_its_own(
        nodes in 800..1200_usize,
        of in 1..5_u32,
    ) {
        let (mut writer, _) = Engine::inline(Config::default());
        // Later nodes are larger, so each search chooses the last node that it examines.
        for n in 0..nodes {
            let cpu = 1_000_000 + 1_000 * n as i64;
            let node = node(format!("n{n}")).cpu(cpu).memory(1 << 30).pods(110).build();
            writer.add_node(node).unwrap();
        }
        let config = AlgorithmConfig { percentage_of_nodes: 1, ..AlgorithmConfig::default() };
        let pod = pod("p").cpu(1_000_000).build();
        let mut schedulers: Vec<Algorithm> = (0..of)
            .map(|_| Algorithm::new(Framework::default_profile(), config.clone(), None))
            .collect();
        let lasts = nodes.next_power_of_two() as u64;
        for _ in 0..of {
            let turn = (writer.cluster().generation().0 / lasts) as usize;
            let mut starts = Vec::new();
            for (index, scheduler) in schedulers.iter_mut().enumerate() {
                scheduler.set_section(index as u32, NonZeroU32::new(of).unwrap());
                let decision = decided_by_nodes(scheduler, writer.cluster(), &pod).unwrap();
                let chosen: usize = decision.node[1..].parse().unwrap();
                let section = (index + turn) % of as usize;
                let (start, end) =
                    (nodes * section / of as usize, nodes * (section + 1) / of as usize);
                prop_assert!((start..end).contains(&chosen), "{index} {turn}: {chosen}");
                starts.push(start);
            }
            starts.sort_unstable();
            starts.dedup();
            prop_assert_eq!(starts.len(), of as usize);
            // Sections change hands after as many events as there are nodes, rounded up to a power of two.
            for _ in 0..lasts {
                writer.expire(Timestamp::from_secs(1)).unwrap();
            }
        }
    }

    #[test]
    fn cached_results_do_not_change_decisions(
        bits in any::<u64>(),
        nodes in 1..220_usize,
        percentage in prop_oneof![Just(0_u8), Just(30), Just(100)],
    ) {
        let mut draw = Draw::from(bits);
        let mut writer = cluster(&mut draw, nodes);
        let scheduler = || {
            let config = AlgorithmConfig { percentage_of_nodes: percentage, seed: bits };
            Algorithm::new(Framework::default_profile(), config, None)
        };
        let (mut cached, mut uncached) = (scheduler(), scheduler());
        let templates: Vec<Pod> = (0..3).map(|n| draw.pod(n)).collect();
        for n in 0..60 {
            let pod = Pod {
                uid: portolan::model::Uid::new(&format!("default/new-{n}")),
                ..draw.of(&[&templates[0], &templates[1], &templates[2]]).clone()
            };
            let decided = cached.schedule(writer.cluster(), &pod);
            // A fork has a lineage of its own, for which nothing is cached.
            prop_assert_eq!(&decided, &uncached.schedule(&writer.cluster().fork(), &pod));
            if let Ok(decision) = decided {
                let _ = writer.assume_pod(pod.on(decision.node));
            }
            match draw.below(14) {
                12 | 13 => {
                    writer.put_object(draw.object()).unwrap();
                }
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

#[test]
fn verdicts_for_a_pod_that_names_its_node_are_not_kept_for_its_template() {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in ["n0", "n1"] {
        writer.add_node(node(name).cpu(1_000).memory(1 << 30).pods(110).build()).unwrap();
    }
    let config = AlgorithmConfig::default();
    let mut scheduler = Algorithm::new(Framework::default_profile(), config, None);
    let free = pod("p").cpu(100).build();
    let of = |node: &str| Pod { node_name: Some(node.into()), ..free.clone() };
    for _ in 0..2 {
        assert!(decided_by_nodes(&mut scheduler, writer.cluster(), &of("missing")).is_err());
        for name in ["n0", "n1"] {
            let decision = decided_by_nodes(&mut scheduler, writer.cluster(), &of(name)).unwrap();
            assert_eq!((&*decision.node, decision.feasible), (name, 1));
        }
    }
    let decision = decided_by_nodes(&mut scheduler, writer.cluster(), &free).unwrap();
    assert_eq!(decision.feasible, 2);
}

/// Nodes of two zones; of the first one, only the last nodes have the label.
#[test]
fn partitions_and_sub_clusters_are_listed_round_robin_over_their_own_zones() {
    let (mut writer, _) = Engine::inline(Config::default());
    let mut add = |name: String, zone: &str, is_own: bool| {
        let new = node(name).zone(zone).cpu(1_000).memory(1 << 30);
        let new = if is_own { new.label("own", "1").scheduler("own") } else { new };
        writer.add_node(new.build()).unwrap();
    };
    for n in 0..200 {
        add(format!("a{n}"), "a", n >= 100);
    }
    for n in 0..100 {
        add(format!("b{n}"), "b", true);
    }
    let new = || {
        let config = AlgorithmConfig { percentage_of_nodes: 1, ..AlgorithmConfig::default() };
        Algorithm::new(Framework::default_profile(), config, None)
    };
    for mut algorithm in [
        new().with_partition(Partition::Scheduler("own".into())),
        new().with_sub_cluster(SubCluster::new("own", "1")),
    ] {
        for n in 0..20 {
            let pod = pod(format!("p{n}")).cpu(100).build();
            let decision = decided_by_nodes(&mut algorithm, writer.cluster(), &pod).unwrap();
            assert_eq!((decision.feasible, decision.looked_at), (100, 100));
        }
    }
}

/// No node of the partition has enough cpu; the others are in two zones, and only some of them have enough.
#[test]
fn nodes_outside_a_partition_are_listed_round_robin_over_their_zones() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..600 {
        let (zone, is_own) = (if n < 350 { "a" } else { "b" }, n % 60 == 0);
        let new = node(format!("n{n}")).zone(zone).cpu(if n % 3 == 0 { 50 } else { 1_000 });
        let new = if is_own { new.scheduler("own") } else { new };
        writer.add_node(new.memory(1 << 30).build()).unwrap();
    }
    let config = AlgorithmConfig { percentage_of_nodes: 1, ..AlgorithmConfig::default() };
    let mut algorithm = Algorithm::new(Framework::default_profile(), config, None)
        .with_partition(Partition::Scheduler("own".into()));
    for n in 0..20 {
        let pod = pod(format!("p{n}")).cpu(100).build();
        let decision = decided_by_nodes(&mut algorithm, writer.cluster(), &pod).unwrap();
        assert_eq!(decision.feasible, 100);
    }
}

/// A chunk holds 64 nodes, so the named nodes of zone 1 are in two chunks. Names sort in the reverse order of the nodes.
#[test]
fn ties_among_named_nodes_of_several_chunks_are_broken_in_chunk_order() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in (0..100).rev() {
        let zone = if n >= 10 { "1" } else { "2" };
        writer
            .add_node(node(format!("n{n:02}")).zone(zone).cpu(1_000).memory(1 << 30).build())
            .unwrap();
    }
    ties_are_broken_as_by_nodes(writer.cluster(), &["n95", "n80", "n03", "n20", "n70", "n15"]);
}

/// Chunk order is z, y, a, b, and list order z, a, y, b. The pods name the nodes in a third order.
#[test]
fn ties_among_named_nodes_are_broken_in_chunk_order() {
    let (mut writer, _) = Engine::inline(Config::default());
    for (name, zone) in [("z", "1"), ("y", "1"), ("a", "2"), ("b", "2")] {
        writer.add_node(node(name).zone(zone).cpu(1_000).memory(1 << 30).build()).unwrap();
    }
    ties_are_broken_as_by_nodes(writer.cluster(), &["a", "y", "b", "z"]);
}

/// Compares decisions on pods with required affinity to these nodes, all of which are feasible.
fn ties_are_broken_as_by_nodes(cluster: &Cluster, names: &[&str]) {
    let named = |name: &&str| {
        let (key, values) = ("metadata.name".into(), Box::new([Name::from(*name)]));
        let named = Requirement { key, operator: Operator::In, values };
        NodeSelectorTerm { match_fields: Box::new([named]), ..NodeSelectorTerm::default() }
    };
    let terms = names.iter().map(named).collect();
    let affinity =
        NodeAffinity { required: Some(NodeSelector { terms }), preferred: Box::default() };
    let config = AlgorithmConfig::default();
    let mut algorithm = Algorithm::new(Framework::default_profile(), config, None);
    for n in 0..20 {
        let new = pod(format!("p{n}")).cpu(100);
        let pod = new.spec(|spec| spec.node_affinity = Some(affinity.clone().into())).build();
        let decision = decided_by_nodes(&mut algorithm, cluster, &pod).unwrap();
        assert_eq!(decision.feasible, names.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A filter that is updated when pods are added and removed equals one that is rebuilt.
    #[test]
    fn incrementally_updated_filters_equal_rebuilt_ones(
        bits in any::<u64>(),
        nodes in 1..90_usize,
    ) {
        let mut draw = Draw::from(bits);
        let writer = cluster(&mut draw, nodes);
        for n in 0..16 {
            let pod = draw.pod(n);
            incremental_filters_equal_rebuilt(&mut draw, writer.cluster(), &pod, 6);
        }
    }
}

/// Returns one of the placed pods, or a pod that does not exist.
fn pod_of(writer: &portolan::cache::Writer, n: u64) -> Pod {
    let uid = portolan::model::Uid::new(&format!("default/new-{n}"));
    writer.cluster().pod(&uid).map_or_else(|| pod("none").build(), |known| known.to_pod())
}
