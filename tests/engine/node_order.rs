//! The list order of nodes and the starting points of samples, compared with a plain model of kube-scheduler's node
//! tree (backend/cache/node_tree.go) and its `nextStartNodeIndex` (schedule_one.go), while nodes are added, updated and
//! removed. Also tests which lists include the pods of a ghost.

use portolan::cache::{Cluster, CommitPolicy, Config, Engine, NodeInfo, Writer};
use portolan::model::{LabelSelector, Node, Pod, PodAffinity, PodAffinityTerm, node, pod};
use portolan::plugin::num_feasible_nodes_to_find;
use portolan::{Algorithm, AlgorithmConfig, Framework};
use proptest::prelude::*;

/// The zones in order of first appearance, each with its nodes in order of arrival.
#[derive(Default)]
struct NodeTree(Vec<(u8, Vec<String>)>);

impl NodeTree {
    /// Adds the node, or replaces the node of the same name. A node whose zone changes moves to the end.
    fn put(&mut self, name: &str, zone: u8) {
        if self.0.iter().any(|(known_zone, nodes)| {
            *known_zone == zone && nodes.iter().any(|known| known == name)
        }) {
            return;
        }
        self.remove(name);
        match self.0.iter_mut().find(|(known_zone, _)| *known_zone == zone) {
            Some((_, nodes)) => nodes.push(name.to_owned()),
            None => self.0.push((zone, vec![name.to_owned()])),
        }
    }

    fn remove(&mut self, name: &str) {
        self.0.iter_mut().for_each(|(_, nodes)| nodes.retain(|known| known != name));
        // A zone without nodes is forgotten. If it appears again, it is the last one.
        self.0.retain(|(_, nodes)| !nodes.is_empty());
    }

    /// Round r contains the r-th node of each zone that has at least r nodes.
    fn list(&self) -> Vec<String> {
        let rounds = self.0.iter().map(|(_, nodes)| nodes.len()).max().unwrap_or(0);
        let round = |r: usize| self.0.iter().filter_map(move |(_, nodes)| nodes.get(r));
        (0..rounds).flat_map(round).cloned().collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8),
    PutMany(u8, u8),
    Remove(u8),
    RemoveMany(u8, u8),
    /// Adds a pod to a node, so that the node becomes a ghost when it is removed.
    Keep(u8),
    Free(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let zone = 0_u8..5;
    prop::collection::vec(
        prop_oneof![
            4 => (any::<u8>(), zone.clone()).prop_map(|(n, zone)| Op::Put(n, zone)),
            2 => (any::<u8>(), zone).prop_map(|(n, zone)| Op::PutMany(n, zone)),
            3 => any::<u8>().prop_map(Op::Remove),
            1 => (any::<u8>(), any::<u8>()).prop_map(|(n, step)| Op::RemoveMany(n, step)),
            3 => any::<u8>().prop_map(Op::Keep),
            1 => any::<u8>().prop_map(Op::Free),
        ],
        1..60,
    )
}

fn in_zone(name: &str, zone: u8) -> Node {
    node(name).hostname().zone(format!("z{zone}")).cpu(64_000).build()
}

/// Applies an operation to both a writer and the model.
fn apply(op: &Op, writer: &mut Writer, tree: &mut NodeTree) {
    let name = |n: u8| format!("n{n}");
    let mut put = |n: u8, zone: u8| {
        writer.add_node(in_zone(&name(n), zone)).unwrap();
        tree.put(&name(n), zone);
    };
    match *op {
        Op::Put(n, zone) => put(n, zone),
        // More nodes than a chunk holds, most of them in one zone.
        Op::PutMany(first, zone) => {
            (0..80).for_each(|n| put(first.wrapping_add(n), if n % 8 == 0 { n % 5 } else { zone }));
        }
        Op::Remove(n) => {
            let known = writer.remove_node(name(n)).is_ok();
            assert_eq!(known, tree.list().contains(&name(n)));
            tree.remove(&name(n));
        }
        Op::RemoveMany(first, step) => {
            for n in (0..60).map(|i: u8| first.wrapping_add(i.wrapping_mul(step))) {
                drop(writer.remove_node(name(n)));
                tree.remove(&name(n));
            }
        }
        Op::Keep(n) => drop(writer.add_pod(affine(n))),
        Op::Free(n) => drop(writer.remove_pod(&affine(n))),
    }
}

fn listed(cluster: &Cluster) -> Vec<String> {
    cluster.nodes().map(|node| node.name().to_string()).collect()
}

/// Asserts that the lists of nodes with affinity and with required anti-affinity are parts of the list of nodes.
fn assert_parts_of_list(cluster: &Cluster) {
    type Of = for<'a> fn(&NodeInfo<'a>) -> bool;
    let names = |is_one: Of| -> Vec<String> {
        cluster.nodes().filter(is_one).map(|node| node.name().to_string()).collect()
    };
    let with_affinity = cluster.nodes_with_affinity().map(|node| node.name().to_string());
    let with_anti_affinity = cluster.nodes_with_required_anti_affinity();
    let with_anti_affinity = with_anti_affinity.map(|node| node.name().to_string());
    assert_eq!(
        with_affinity.collect::<Vec<_>>(),
        names(|node| node.pods_with_affinity().next().is_some())
    );
    assert_eq!(
        with_anti_affinity.collect::<Vec<_>>(),
        names(|node| node.pods_with_required_anti_affinity().next().is_some())
    );
}

/// A pod with pod affinity on the node with its name. Every second one has required anti-affinity.
fn affine(n: u8) -> Pod {
    let term = PodAffinityTerm {
        topology_key: "zone".into(),
        selector: LabelSelector::from_labels([("app", "a")]),
        namespaces: ["default".into()].into(),
        namespace_selector: LabelSelector::Nothing,
    };
    let name = format!("n{n}");
    let pod = pod(&*name).pod_affinity(PodAffinity::default()).on(name);
    match n % 2 {
        0 => pod.build(),
        _ => {
            let required = Box::new([term]);
            pod.pod_anti_affinity(PodAffinity { required, ..PodAffinity::default() }).build()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_are_listed_in_the_order_of_a_node_tree(ops in ops()) {
        let (mut writer, reader) = Engine::inline(Config::default());
        let mut tree = NodeTree::default();
        let mut held = Vec::new();
        for op in &ops {
            apply(op, &mut writer, &mut tree);
            prop_assert_eq!(listed(writer.cluster()), tree.list(), "after {:?}", op);
            assert_parts_of_list(writer.cluster());
            writer.publish();
            held.push((reader.snapshot(), tree.list()));
        }
        let rebuilt = writer.rebuild();
        prop_assert_eq!(rebuilt.differences, vec![]);
        prop_assert_eq!(listed(writer.cluster()), tree.list());
        for (version, list) in held {
            prop_assert_eq!(listed(&version.fork()), list);
        }
    }

    /// Every cycle continues in the list where the previous one ended, modulo the number of nodes at that time. Added
    /// and removed nodes shift the list.
    #[test]
    fn samples_continue_where_the_previous_one_ended(
        changes in prop::collection::vec((ops(), 1_usize..4), 1..6),
    ) {
        let (mut writer, _) = Engine::inline(Config::default());
        let mut tree = NodeTree::default();
        for n in 0..160 {
            let name = format!("s{n}");
            // Every third node is unschedulable. The others all have different scores.
            let built = node(&*name).hostname().zone(format!("z{}", n % 5)).cpu(2_000 + 97 * n);
            writer.add_node(built.unschedulable(n % 3 == 0).build()).unwrap();
            tree.put(&name, (n % 5) as u8);
        }
        let config = AlgorithmConfig { percentage_of_nodes: 5, seed: 1 };
        let framework = std::sync::Arc::new(Framework::default_profile());
        let mut scheduler = Algorithm::new(framework.clone(), config, None);
        let wanted = pod("wanted").cpu(1_000).build();
        let mut start = 0;
        for (ops, cycles) in &changes {
            ops.iter().for_each(|op| apply(op, &mut writer, &mut tree));
            for _ in 0..*cycles {
                let list = tree.list();
                let found = framework.evaluate(writer.cluster(), &wanted);
                let begin = start % list.len();
                let enough = num_feasible_nodes_to_find(list.len(), 5);
                let (mut sample, mut looked_at) = (Vec::new(), 0);
                for name in list[begin..].iter().chain(&list[..begin]) {
                    if sample.len() == enough {
                        break;
                    }
                    looked_at += 1;
                    let verdict = &found.nodes[name.as_str()];
                    if verdict.status.is_none() {
                        sample.push(name);
                    }
                }
                let decision = scheduler.schedule(writer.cluster(), &wanted).unwrap();
                prop_assert_eq!((decision.feasible, decision.looked_at), (sample.len(), looked_at));
                prop_assert!(sample.iter().any(|name| **name == *decision.node), "from {}", begin);
                start = (begin + looked_at) % list.len();
            }
        }
    }
}

#[test]
fn pods_of_a_ghost_are_listed_but_its_node_is_not() {
    let commit_check = CommitPolicy::Unchecked;
    let (mut writer, reader) = Engine::inline(Config { commit_check, ..Config::default() });
    writer.add_node(in_zone("n1", 0)).unwrap();
    let built = |name: &str, app: &str, on: &str| {
        let affinity = PodAffinity::default();
        pod(name).label("app", app).claim(name).pod_affinity(affinity).on(on).build()
    };
    writer.add_pod(built("on-node", "a", "n1")).unwrap();
    writer.add_pod(built("on-ghost", "a", "gone")).unwrap();
    writer.assume_pod(built("assumed-on-ghost", "b", "gone")).unwrap();
    // A removed node leaves its pods on a ghost.
    writer.add_node(in_zone("n2", 1)).unwrap();
    writer.add_pod(built("left", "a", "n2")).unwrap();
    writer.remove_node("n2").unwrap();
    writer.publish();
    let version = reader.snapshot();
    let fork = version.fork();
    for cluster in [writer.cluster(), &version, &fork] {
        let pods = |selector: &LabelSelector, assumed: bool| {
            let found = cluster.pods(selector, |pod| !assumed || pod.is_assumed());
            let mut names: Vec<String> = found.map(|pod| pod.name().to_string()).collect();
            names.sort();
            names
        };
        let (all, app_a) =
            (LabelSelector::everything(), LabelSelector::from_labels([("app", "a")]));
        assert_eq!(pods(&all, false), ["assumed-on-ghost", "left", "on-ghost", "on-node"]);
        assert_eq!(pods(&app_a, false), ["left", "on-ghost", "on-node"]);
        assert_eq!(pods(&all, true), ["assumed-on-ghost"]);
        assert_eq!(pods(&LabelSelector::Nothing, false), [""; 0]);
        // The pods are found by uid and counted, and have a node that is in no list.
        let ghost = cluster.pod(&built("left", "a", "n2").uid).unwrap();
        assert_eq!(&**ghost.node().name(), "n2");
        assert_eq!((cluster.pod_count(), cluster.node_count(), cluster.len()), (4, 3, 1));
        assert_eq!(listed(cluster), ["n1"]);
        assert!(cluster.node("n2").is_none() && cluster.node("gone").is_none());
        assert_eq!(cluster.nodes_with_affinity().count(), 1);
        assert!(cluster.is_claim_used("default", "on-node"));
        assert!(!cluster.is_claim_used("default", "on-ghost"));
    }
    // The node is added again, and its pods are listed again.
    writer.add_node(in_zone("gone", 1)).unwrap();
    assert_eq!(writer.cluster().nodes_with_affinity().count(), 2);
    assert!(writer.cluster().is_claim_used("default", "on-ghost"));
}
