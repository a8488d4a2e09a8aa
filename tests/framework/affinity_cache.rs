//! Verdicts of pod affinity that are kept from one cycle to the next are those of a new scheduler.

use portolan::cache::{Config, Engine, Writer};
use portolan::model::{LabelSelector, Node, Pod, PodAffinity, PodAffinityTerm, Uid, node, pod};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::draw::Draw;
use proptest::prelude::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn scheduler() -> Algorithm {
    let config = AlgorithmConfig::default();
    Algorithm::new(Framework::default_profile(), config, None)
}

fn term(key: &str, app: &str) -> Box<[PodAffinityTerm]> {
    Box::new([PodAffinityTerm {
        topology_key: key.into(),
        selector: LabelSelector::from_labels([("app", app)]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    }])
}

fn with(app: &str, near: Option<(&str, &str)>, apart: Option<(&str, &str)>) -> Pod {
    let required = |of: Option<(&str, &str)>| PodAffinity {
        required: of.map_or_else(Box::default, |(key, app)| term(key, app)),
        ..PodAffinity::default()
    };
    let mut pod = pod("p").label("app", app).cpu(10).memory(1 << 20);
    if near.is_some() {
        pod = pod.pod_affinity(required(near));
    }
    if apart.is_some() {
        pod = pod.pod_anti_affinity(required(apart));
    }
    pod.build()
}

/// Pods that attract and exclude each other, by zone and by host.
fn templates() -> [Pod; 8] {
    [
        with("a", None, None),
        with("b", None, None),
        with("a", Some((ZONE, "a")), None),
        with("a", Some((HOSTNAME, "b")), None),
        with("b", None, Some((ZONE, "a"))),
        with("a", None, Some((HOSTNAME, "a"))),
        with("b", Some((HOSTNAME, "b")), Some((HOSTNAME, "a"))),
        with("b", Some((ZONE, "a")), Some((HOSTNAME, "b"))),
    ]
}

/// A node, in one of two zones, which have several chunks, or in none. Its hostname is its name, missing, or that of
/// another node.
fn draw_node(draw: &mut Draw<'_>, n: u64, nodes: u64) -> Node {
    let mut node = node(format!("n{n}")).cpu(4_000).memory(8 << 30).pods(20);
    node = match draw.below(16) {
        0 => node,
        1 => node.label(HOSTNAME, format!("n{}", draw.below(nodes))),
        2 => node.label(HOSTNAME, "shared"),
        _ => node.hostname(),
    };
    match draw.below(8) {
        0 => node.build(),
        _ => node.zone(format!("z{}", draw.below(2))).build(),
    }
}

/// Changes nothing, a node, one pod, or all pods of one kind.
fn change(draw: &mut Draw<'_>, writer: &mut Writer, nodes: u64) {
    let kind = draw.below(24);
    if kind == 0 {
        let n = draw.below(nodes);
        let _ = writer.update_node(draw_node(draw, n, nodes));
    }
    let leaves = |pod: &Pod| {
        let spec = &pod.template;
        match kind {
            1 => true,
            2 => spec.labels.get("app") == Some("a"),
            3 => spec.labels.get("app") == Some("b"),
            4 => spec.pod_anti_affinity.is_some(),
            _ => false,
        }
    };
    let nodes = writer.cluster().nodes();
    let pods = nodes.flat_map(|node| node.pods().map(|pod| pod.to_pod()));
    let leaving: Vec<Pod> = pods.filter(leaves).collect();
    let count = if kind == 1 { 1 } else { leaving.len() };
    for pod in leaving.iter().take(count) {
        writer.remove_pod(pod).unwrap();
    }
}

#[test]
fn a_zone_is_free_again_when_the_last_pod_with_anti_affinity_has_left() {
    let (mut writer, _) = Engine::inline(Config::default());
    // Two chunks, all of which are examined.
    for n in 0..100 {
        writer
            .add_node(node(format!("n{n}")).hostname().zone("z").cpu(4_000).memory(8 << 30).build())
            .unwrap();
    }
    let on = |name: &str, pod: &Pod| {
        Pod { uid: Uid::new(&format!("default/{name}")), ..pod.clone() }.on("n0")
    };
    writer.add_pod(on("companion", &with("c", None, None))).unwrap();
    let pod = with("a", Some((ZONE, "c")), None);
    let excludes = on("excludes", &with("b", None, Some((ZONE, "a"))));
    let mut scheduler = scheduler();
    let mut feasible = |writer: &Writer| {
        scheduler.schedule(writer.cluster(), &pod).map_or(0, |decision| decision.feasible)
    };
    for _ in 0..3 {
        assert_eq!([feasible(&writer), feasible(&writer)], [100, 100]);
        writer.add_pod(excludes.clone()).unwrap();
        assert_eq!([feasible(&writer), feasible(&writer)], [0, 0]);
        writer.remove_pod(&excludes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn kept_verdicts_of_pod_affinity_do_not_change_decisions(
        bits in any::<u64>(),
        nodes in 1..400_u64,
        are_hosts_single in any::<bool>(),
    ) {
        let mut draw = Draw::from(bits);
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..nodes {
            let mut node = draw_node(&mut draw, n, nodes);
            if are_hosts_single {
                let zone = format!("z{}", n % 2);
                node = self::node(format!("n{n}")).hostname().zone(zone).cpu(4_000).memory(8 << 30).build();
            }
            writer.add_node(node).unwrap();
        }
        let templates = templates();
        let (mut keeps, mut forgets) = (scheduler(), scheduler());
        for n in 0..120 {
            // Few templates at a time, so that pods of one template often follow each other.
            let of = draw.below(4) as usize + (n / 30) % 5;
            let uid = Uid::new(&format!("default/p{n}"));
            let pod = Pod { uid, ..templates[of].clone() };
            let decided = keeps.schedule(writer.cluster(), &pod);
            // A fork has a lineage of its own, for which nothing is kept.
            prop_assert_eq!(&decided, &forgets.schedule(&writer.cluster().fork(), &pod), "{}", n);
            if let Ok(decision) = decided {
                writer.assume_pod(pod.on(decision.node)).unwrap();
            }
            change(&mut draw, &mut writer, nodes);
        }
    }
}
