//! The synthetic workload: a cluster of 3,000 nodes generated from a seed, and 20,000 pods
//! of many shapes, a few of which fit on no node.

use portolan::model::{Labels, Node, NodeBuilder, Pod, Quantity, Taint, TaintEffect, node, pod};

use super::workload::Workload;
use crate::files::openb::Arrival;
use crate::random::Random;

const NODES: u64 = 3000;
const PODS: u64 = 20_000;
const GIB: i64 = 1 << 30;

pub(super) fn workload(seed: u64) -> Workload {
    let mut random = Random::new(seed);
    Workload {
        name: format!("synthetic, seed {seed}"),
        nodes: (0..NODES).map(|n| make_node(n, &mut random)).collect(),
        arrivals: (0..PODS)
            .map(|n| Arrival { pod: make_pod(n, &mut random), times: None })
            .collect(),
        ..Workload::default()
    }
}

fn make_node(n: u64, random: &mut Random) -> Node {
    let node: NodeBuilder =
        node(format!("node-{n:04}")).hostname().zone(format!("zone-{}", n % 3)).pods(110);
    match random.below(20) {
        0..10 => node.cpu(8_000).memory(32 * GIB).label("shape", "general"),
        10..15 => node.cpu(16_000).memory(32 * GIB).label("shape", "compute"),
        15..18 => node.cpu(8_000).memory(64 * GIB).label("shape", "memory"),
        18 => node
            .cpu(32_000)
            .memory(128 * GIB)
            .label("shape", "gpu")
            .resource("example.com/gpu", Quantity::whole(8))
            .taint(Taint::new("example.com/gpu", "", TaintEffect::NoSchedule)),
        _ => node.cpu(8_000).memory(32 * GIB).label("shape", "general").unschedulable(true),
    }
    .build()
}

fn make_pod(n: u64, random: &mut Random) -> Pod {
    let app = random.below(400);
    let pod =
        pod(format!("app-{app}-{n:05}")).namespace(format!("team-{}", app % 20)).spec(|spec| {
            spec.labels = Labels::new([("app", format!("app-{app}")), ("tier", "web".to_owned())])
        });
    let cpu = [100, 250, 500, 1_000, 2_000][random.below(5) as usize];
    let memory = [GIB / 4, GIB / 2, GIB, 2 * GIB, 4 * GIB][random.below(5) as usize];
    let pod = pod.cpu(cpu).memory(memory);
    match random.below(40) {
        0..3 => pod.node_selector(Labels::new([("shape", "memory")])),
        3..6 => pod.node_selector(Labels::new([("shape", "compute")])),
        6 => pod
            .request("example.com/gpu", Quantity::whole(1 + random.below(8) as i64))
            .tolerate("example.com/gpu"),
        7 => pod.host_port(8000 + random.below(4) as u16),
        // No node has this much cpu, or this label.
        8 if n.is_multiple_of(4) => pod.cpu(64_000),
        9 if n.is_multiple_of(8) => pod.node_selector(Labels::new([("shape", "quantum")])),
        _ => pod,
    }
    .build()
}
