//! A plugin says the same of 64 nodes at once as of each of them, and the
//! cycle picks what its plugins, asked node by node, like best.

use std::num::NonZeroU32;

use portolan::framework::{Algorithm, AlgorithmConfig, Framework, Partition};
use portolan::model::{LabelSelector, Pod, pod};
use portolan::{Config, Engine};
use portolan_testkit::checks::{
    chunk_and_node_calls_agree, decided_by_nodes, incremental_filters_equal_rebuilt,
    verdicts_are_consistent,
};
use portolan_testkit::draw::Draw;
use proptest::prelude::*;

/// A cluster with holes in its chunks, and pods on its nodes.
fn cluster(draw: &mut Draw<'_>, nodes: usize) -> portolan::Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..nodes {
        writer.add_node(draw.node(n)).unwrap();
    }
    for _ in 0..draw.below(24) {
        writer.put_object(draw.object()).unwrap();
    }
    if draw.one_in(2) {
        for _ in 0..nodes {
            // Of some nodes that are there, and of some that are not.
            let n = draw.below(nodes as u64 + 3) as usize;
            writer.put_object(draw.part(n)).unwrap();
        }
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

/// Some of the ways to part nodes, and none.
fn partition(which: u32) -> Option<Partition> {
    let zone = || ("topology.kubernetes.io/zone", "z1");
    let host = || ("kubernetes.io/hostname", "n3");
    match which {
        0..3 => Some(Partition::Share { index: which, of: NonZeroU32::new(2)? }),
        3 => Some(Partition::Labels(LabelSelector::from_labels([zone()]))),
        4 => Some(Partition::Labels(LabelSelector::from_labels([zone(), host()]))),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn chunks_and_nodes_get_the_same_answers(bits in any::<u64>(), nodes in 1..220_usize) {
        let mut draw = Draw::from(bits);
        let writer = cluster(&mut draw, nodes);
        for n in 0..12 {
            chunk_and_node_calls_agree(writer.cluster(), &draw.pod(n));
        }
    }

    #[test]
    fn the_cycle_picks_a_node_that_its_plugins_like_best(
        bits in any::<u64>(),
        nodes in 1..220_usize,
        percentage in prop_oneof![Just(0_u8), Just(30), Just(100)],
        part in 0..6_u32,
    ) {
        let mut draw = Draw::from(bits);
        let writer = cluster(&mut draw, nodes);
        let (cluster, framework) = (writer.cluster(), Framework::default_profile());
        let config = AlgorithmConfig { percentage_of_nodes: percentage, seed: bits };
        let mut scheduler = Algorithm::new(Framework::default_profile(), config, None);
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
    fn what_a_scheduler_remembers_changes_none_of_its_decisions(
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A filter that is told of pods that come and go says what one says that is
    /// made anew where they came and went.
    #[test]
    fn pods_that_come_and_go_are_counted_as_if_looked_for(
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

/// One of the pods that were placed, or one that is not there.
fn pod_of(writer: &portolan::Writer, n: u64) -> Pod {
    let uid = portolan::model::Uid::new(&format!("default/new-{n}"));
    writer.get_pod(&uid).map_or_else(|| pod("none").build(), |known| known.to_pod())
}
