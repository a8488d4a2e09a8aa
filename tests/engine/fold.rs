//! The fold against the naive fold: equal at every generation, held snapshots and forks never change, and the audit
//! finds nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{
    ChangeKind, ChangedSince, Cluster, CommitPolicy, Config, Dump, Engine, GodelConfig, NodeChange,
    Snapshot,
};
use portolan::model::{Generation, LabelSelector, Name, Pod, Uid};
use portolan_testkit::events::{GroupSeed, NodeSeed, ObjectSeed, Op, PodSeed, apply_to_fork};
use portolan_testkit::naive::{Naive, comparable};
use proptest::prelude::*;

fn changed_by_dumps(before: &Dump, after: &Dump) -> Vec<String> {
    let live = |dump: &Dump, name: &String| dump.nodes.get(name).filter(|n| n.has_node).cloned();
    let names: std::collections::BTreeSet<&String> =
        before.nodes.keys().chain(after.nodes.keys()).collect();
    names.into_iter().filter(|n| live(before, n) != live(after, n)).cloned().collect()
}

/// Returns the nodes that are reported as changed although their objects and pods are equal in both versions.
fn equal_nodes<'a>(changes: &'a [NodeChange], before: &Cluster, after: &Cluster) -> Vec<&'a Name> {
    let contents = |cluster: &Cluster, name: &Name| {
        let node = cluster.node(name).unwrap();
        let pods = node.pods().map(|pod| (pod.uid(), (pod.to_pod(), pod.is_assumed())));
        let pods: BTreeMap<Uid, (Pod, bool)> = pods.collect();
        let custom = node.custom_node_resource().cloned();
        (node.kubelet_node().cloned(), node.nm_node().cloned(), custom, pods)
    };
    let changed = changes.iter().filter(|change| change.kind == ChangeKind::Changed);
    let names = changed.map(|change| &change.name);
    names.filter(|name| contents(before, name) == contents(after, name)).collect()
}

fn godel() -> GodelConfig {
    let reservations = Some(Duration::from_secs(40));
    GodelConfig {
        reservations,
        movements: true,
        preemption_marks: true,
        deletion_marks: true,
        unit_status: true,
        unfinished_ttl: Some(Duration::from_secs(70)),
        ..GodelConfig::new("godel")
    }
}

/// Returns whether each store whose contents changed since the generation `since` has a newer generation.
fn has_own_generation(before: &Dump, after: &Dump, cluster: &Cluster, since: Generation) -> bool {
    let moved = |dump: &Dump| (dump.suggestions.clone(), dump.evicted.clone());
    let is_new = |generation: Generation| since < generation && generation <= cluster.generation();
    (moved(before) == moved(after) || is_new(cluster.movements().unwrap().generation()))
        && (before.preemption_marks == after.preemption_marks
            || is_new(cluster.preemption_marks().unwrap().generation()))
        && (before.deletion_marks == after.deletion_marks
            || is_new(cluster.deletion_marks().unwrap().generation()))
}

/// Generates operations on pods with few uids on two nodes, so that victims mostly exist.
fn contended() -> impl Strategy<Value = Op> {
    let few = || 1_u8..9;
    let seed = || {
        let seed = (few(), 0_u8..2, any::<PodSeed>());
        seed.prop_map(|(uid, node, seed)| PodSeed { uid, node, ..seed })
    };
    let node = || (0_u8..2, any::<u8>());
    let node_seed = || {
        let seed = (0_u8..2, 0_u8..2, any::<NodeSeed>());
        seed.prop_map(|(name, zone, seed)| NodeSeed { name, zone, ..seed })
    };
    let part_seed = || {
        let seed = (0_u8..2, 0_u8..2, any::<u8>());
        seed.prop_map(|(name, zone, shape)| ObjectSeed { name, zone, shape })
    };
    prop_oneof![
        4 => seed().prop_map(Op::Add),
        3 => (seed(), prop::collection::vec(few(), 0..3)).prop_map(|(seed, victims)| Op::Preempt(seed, victims)),
        2 => (few(), few()).prop_map(|(a, b)| Op::MarkForDeletion(a, b)),
        1 => (few(), few()).prop_map(|(a, b)| Op::UnmarkForDeletion(a, b)),
        1 => (few(), seed()).prop_map(|(n, seed)| Op::Update(n, seed)),
        1 => seed().prop_map(Op::Pending),
        2 => (seed(), any::<bool>()).prop_map(|(seed, finished)| Op::Put(seed, finished, false)),
        1 => few().prop_map(|n| Op::Remove(n, None)),
        2 => (seed(), any::<bool>()).prop_map(|(seed, is_current)| Op::Assume(seed, is_current)),
        3 => few().prop_map(Op::Finish),
        1 => prop::collection::vec(seed(), 0..6).prop_map(Op::RelistPods),
        1 => Just(Op::Expire),
        1 => any::<GroupSeed>().prop_map(Op::PutGroup),
        1 => any::<(u8, u8)>().prop_map(|(n, to)| Op::SetGroupPhase(n, to)),
        1 => node_seed().prop_map(Op::UpdateNode),
        1 => part_seed().prop_map(Op::PutNmNode),
        1 => node().prop_map(|(node, to)| Op::AssignNode(node, to)),
        1 => node().prop_map(|(node, from)| Op::UnassignNode(node, from)),
    ]
}

/// Asserts that each pod is found by name, and that of several pods the newest is.
fn assert_names(cluster: &Cluster) {
    let mut newest: BTreeMap<String, (u64, Uid)> = BTreeMap::new();
    for pod in cluster.pods(&LabelSelector::everything(), |_| true) {
        let rank = (pod.resource_version(), pod.uid());
        let known = newest.entry(pod.name().to_owned()).or_insert(rank.clone());
        *known = rank.max(known.clone());
    }
    for n in 0..16 {
        let name = format!("p{n}");
        let found = cluster.pod_named("default", &name);
        let found = found.map(|pod| (pod.resource_version(), pod.uid()));
        assert_eq!(found.as_ref(), newest.get(&name), "{name}");
    }
    assert!(cluster.pod_named("other", "p1").is_none());
}

fn check_held(held: &[(Arc<Snapshot>, Dump)]) {
    for (snapshot, dump) in held {
        assert_eq!(&snapshot.dump(), dump, "a held snapshot changed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_generation_equals_the_naive_fold(
        ops in prop::collection::vec(any::<Op>(), 1..160),
        is_godel in any::<bool>(),
        is_checked in any::<bool>(),
        has_names in any::<bool>(),
    ) {
        let ttl = Some(Duration::from_secs(30));
        let policy = if is_checked { CommitPolicy::Room } else { CommitPolicy::Unchecked };
        let (mut writer, _reader) = Engine::inline(Config {
            assumed_ttl: ttl,
            pod_names: has_names,
            commit_check: policy,
            godel: is_godel.then(godel),
            ..Config::default()
        });
        let mut naive = Naive::new(ttl);
        if !is_checked {
            naive = naive.unchecked();
        }
        if is_godel {
            naive = naive.with_godel(godel());
        }
        if has_names {
            naive = naive.with_pod_names();
        }
        let mut held: Vec<(Arc<Snapshot>, Dump)> = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            let event = op.event(i as u64, naive.generation());
            let (before, since) = (writer.cluster().dump(), naive.generation());
            let accepted = writer.apply(&event).is_ok();
            prop_assert_eq!(accepted, naive.apply(&event), "{:?}", &event);
            let after = writer.cluster().dump();
            if !accepted {
                prop_assert_eq!(&before, &after, "a rejected event left a trace: {:?}", &event);
            }
            prop_assert_eq!(comparable(after.clone()), naive.dump(), "after {:?}", &event);
            prop_assert!(has_own_generation(&before, &after, writer.cluster(), since), "{:?}", &event);
            prop_assert_eq!(writer.cluster().generation(), naive.generation());
            assert_names(writer.cluster());
            if i % 16 == 3 {
                writer.publish();
                held.push((writer.snapshot(), after));
            }
            if i % 40 == 39 {
                held.remove(0);
                writer.publish();
            }
        }
        check_held(&held);
        held.iter().for_each(|(snapshot, _)| assert_names(snapshot));
        prop_assert_eq!(writer.cluster().audit(), vec![]);
        let last = writer.cluster().dump();
        for (snapshot, dump) in &held {
            let changed = changed_by_dumps(dump, &last);
            let changes = writer.cluster().diff(snapshot);
            prop_assert_eq!(equal_nodes(&changes, snapshot, writer.cluster()), Vec::<&Name>::new());
            let diff: Vec<String> = changes.iter().map(|c| c.name.to_string()).collect();
            let Ok(ChangedSince::Changes(since)) =
                writer.cluster().changed_since(snapshot.generation())
            else { panic!("reset") };
            for name in changed {
                // An image on another node changes a count of this node without touching it.
                let same_but_images = {
                    let strip = |dump: &Dump| dump.nodes.get(&name).cloned().map(|mut n| {
                        n.images.clear();
                        n
                    });
                    strip(dump) == strip(&last)
                };
                if !same_but_images {
                    prop_assert!(diff.contains(&name), "diff lacks {}", name);
                    prop_assert!(since.iter().any(|c| *c.name == *name), "changes lack {}", name);
                }
            }
            for change in &since {
                let (had, has) = (snapshot.node(&change.name).is_some(),
                    writer.cluster().node(&change.name).is_some());
                match change.kind {
                    ChangeKind::Added => prop_assert!(has),
                    ChangeKind::Changed => prop_assert!(had && has),
                    ChangeKind::Removed => prop_assert!(had),
                }
            }
        }
    }

    #[test]
    fn preemptors_and_marks_on_few_nodes_equal_the_naive_fold(
        ops in prop::collection::vec(contended(), 1..120),
        is_godel in any::<bool>(),
    ) {
        let (mut writer, _reader) =
            Engine::inline(Config { godel: is_godel.then(godel), ..Config::default() });
        let mut naive = Naive::new(None);
        if is_godel {
            naive = naive.with_godel(godel());
        }
        for (i, op) in ops.iter().enumerate() {
            let event = op.event(i as u64, naive.generation());
            writer.publish();
            let (base, before) = (writer.snapshot(), writer.cluster().dump());
            let accepted = writer.apply(&event).is_ok();
            prop_assert_eq!(accepted, naive.apply(&event), "{:?}", &event);
            let after = writer.cluster().dump();
            if !accepted {
                prop_assert_eq!(&before, &after, "a rejected event left a trace: {:?}", &event);
            }
            prop_assert_eq!(comparable(after.clone()), naive.dump(), "after {:?}", &event);
            prop_assert!(has_own_generation(&before, &after, writer.cluster(), base.generation()), "{:?}", &event);
            prop_assert_eq!(base.dump(), before, "a held snapshot changed");
        }
        prop_assert_eq!(writer.cluster().audit(), vec![]);
    }

    #[test]
    fn forks_equal_the_naive_fold_and_do_not_change_their_base(
        base in prop::collection::vec(any::<Op>(), 1..60),
        ops in prop::collection::vec(any::<Op>(), 1..60),
        is_godel in any::<bool>(),
    ) {
        let (mut writer, _reader) = Engine::inline(Config {
            godel: is_godel.then(godel),
            pod_names: true,
            ..Config::default()
        });
        for (i, op) in base.iter().enumerate() {
            let _ = writer.apply(&op.event(i as u64, Generation(i as u64)));
        }
        writer.publish();
        let snapshot = writer.snapshot();
        let dump = snapshot.dump();
        let mut fork = snapshot.fork();
        let mut nested = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            apply_to_fork(&mut fork, &op.event(1000 + i as u64, snapshot.generation()));
            if i % 20 == 0 {
                nested.push((fork.fork(), fork.dump()));
            }
        }
        prop_assert_eq!(fork.audit(), vec![]);
        assert_names(&fork);
        prop_assert_eq!(snapshot.dump(), dump);
        for (fork, dump) in &nested {
            prop_assert_eq!(&fork.dump(), dump);
            assert_names(fork);
        }
        let changes = fork.diff(&snapshot);
        prop_assert_eq!(equal_nodes(&changes, &snapshot, &fork), Vec::<&Name>::new());
        for change in &changes {
            let (had, has) = (snapshot.node(&change.name), fork.node(&change.name));
            match change.kind {
                ChangeKind::Added => prop_assert!(had.is_none() && has.is_some()),
                ChangeKind::Changed => prop_assert!(had.is_some() && has.is_some()),
                ChangeKind::Removed => prop_assert!(had.is_some() && has.is_none()),
            }
        }
    }
}
