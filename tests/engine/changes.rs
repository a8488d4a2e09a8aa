//! Differences between versions: what counts as a change, and which generations can be asked for.

use portolan::cache::{
    ChangeKind, ChangedSince, Cluster, Config, Engine, FutureGeneration, Writer,
};
use portolan::model::{Generation, PodAffinity, node, pod};

fn writer() -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..3 {
        let name = format!("n{n}");
        writer.add_node(node(&*name).zone(format!("z{}", n % 2)).cpu(1_000).build()).unwrap();
        writer.add_pod(pod(format!("p{n}")).cpu(100).on(name).build()).unwrap();
    }
    writer.publish();
    writer
}

fn changes(after: &Cluster, before: &Cluster) -> Vec<(String, ChangeKind)> {
    after.diff(before).into_iter().map(|change| (change.name.to_string(), change.kind)).collect()
}

#[test]
fn nodes_that_changed_back_do_not_differ() {
    let mut writer = writer();
    let before = writer.snapshot();
    // The pods of a node are in another order afterwards, and the re-added node is in another place.
    for name in ["x", "y"] {
        writer.add_pod(pod(name).pod_affinity(PodAffinity::default()).on("n0").build()).unwrap();
    }
    writer.remove_pod(&pod("p0").on("n0").build()).unwrap();
    writer.add_pod(pod("p0").cpu(100).on("n0").build()).unwrap();
    for name in ["x", "y"] {
        writer.remove_pod(&pod(name).on("n0").build()).unwrap();
    }
    let same = node("n1").zone("z1").cpu(1_000).build();
    writer.remove_node("n1").unwrap();
    writer.add_node(same).unwrap();
    writer.update_node(node("n2").zone("z0").cpu(2_000).build()).unwrap();
    writer.update_node(node("n2").zone("z0").cpu(1_000).build()).unwrap();
    assert_eq!(changes(writer.cluster(), &before), []);
    let since = writer.cluster().changed_since(before.generation());
    let Ok(ChangedSince::Changes(since)) = since else { panic!("{since:?}") };
    assert_eq!(since.len(), 3, "all of them were touched: {since:?}");
}

#[test]
fn each_field_of_a_pod_and_of_a_node_is_a_difference() {
    let known = || pod("p0").cpu(100).on("n0");
    let different = [
        known().resource_version(7).build(),
        known().label("app", "a").build(),
        known().started(portolan::model::Timestamp::from_secs(1)).build(),
        known().deleted(portolan::model::Timestamp::from_secs(1)).build(),
    ];
    for pod in different {
        let mut writer = writer();
        let before = writer.snapshot();
        writer.update_pod(&pod.uid.clone(), pod).unwrap();
        assert_eq!(changes(writer.cluster(), &before), [("n0".to_owned(), ChangeKind::Changed)]);
    }
    let mut writer = writer();
    let before = writer.snapshot();
    writer.assume_pod(pod("p").on("n0").build()).unwrap();
    writer.update_node(node("n1").zone("z1").cpu(1_000).label("app", "a").build()).unwrap();
    writer.publish();
    let assumed = writer.snapshot();
    writer.add_pod(pod("p").on("n0").build()).unwrap();
    let changed = |name: &str| (name.to_owned(), ChangeKind::Changed);
    assert_eq!(changes(&assumed, &before), [changed("n0"), changed("n1")]);
    assert_eq!(changes(writer.cluster(), &assumed), [changed("n0")], "the pod was confirmed");
}

#[test]
fn versions_before_and_after_a_rebuild_do_not_differ() {
    let mut writer = writer();
    let before = writer.snapshot();
    assert_eq!(writer.rebuild().differences, []);
    assert_eq!(changes(writer.cluster(), &before), []);
}

#[test]
fn changes_since_a_future_generation_are_an_error() {
    let writer = writer();
    let (version, generation) = (writer.snapshot(), writer.cluster().generation());
    assert_eq!(version.changed_since(generation), Ok(ChangedSince::Changes(vec![])));
    let since = generation.next();
    let error = version.changed_since(since).unwrap_err();
    assert_eq!(error, FutureGeneration { since, generation });
    assert_eq!(
        error.to_string(),
        "generation 7 is newer than this version, 6: take a newer version"
    );
    assert_eq!(generation, Generation(6));
}
