//! Movements, end to end: the recommended number of pods of an owner per node, until they have been placed.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan::cache::{Cluster, Config, Engine, Event, GodelConfig, Relist, Writer};
use portolan::model::{
    GodelPod, Movement, MovementOwner, MovementTask, Name, ObjectKind, OwnerKey, OwnerReference,
    Pod, PodBuilder, RecommendedNode, Template, Timestamp, Uid, node, pod,
};

const TTL: Duration = Duration::from_secs(60);

fn config() -> Config {
    let godel = GodelConfig { movements: true, ..GodelConfig::new("godel") };
    Config { assumed_ttl: Some(TTL), godel: Some(godel), ..Config::default() }
}

fn writer() -> Writer {
    let mut writer = Engine::inline(config()).0;
    for name in ["n1", "n2"] {
        writer.add_node(node(name).cpu(1_000).build()).unwrap();
    }
    writer
}

fn owner() -> OwnerKey {
    OwnerKey {
        kind: "ReplicaSet".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "r".into(),
    }
}

fn group() -> OwnerKey {
    let uid = Name::default();
    OwnerKey { kind: "PodGroup".into(), name: "gang".into(), uid, ..owner() }
}

fn of_movement(name: &str, movement: &str) -> PodBuilder {
    let godel = GodelPod { movement: Some(movement.into()), ..GodelPod::default() };
    pod(name).cpu(100).spec(|spec| spec.godel = Some(Box::new(godel)))
}

/// Creates a pod of the replica set that follows a movement.
fn follower(name: &str, movement: &str, node: &str) -> Pod {
    let owner = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "web".into(),
        uid: "r".into(),
        controller: true,
    };
    of_movement(name, movement).spec(|spec| spec.owners = Box::new([owner])).on(node).build()
}

fn task(name: &str, node: &str) -> MovementTask {
    MovementTask {
        namespace: "default".into(),
        name: name.into(),
        uid: pod(name).build().uid,
        node: node.into(),
    }
}

/// Recommends a number of pods for a node, and lists the pods that are already placed there.
fn to(node: &str, desired: u64, came: &[&str]) -> RecommendedNode {
    let actual = came.iter().map(|name| task(name, node)).collect();
    RecommendedNode { node: node.into(), desired, actual }
}

fn movement<const N: usize>(name: &str, nodes: [RecommendedNode; N]) -> Movement {
    Movement {
        name: name.into(),
        creator: "BinPacking".into(),
        creation_time: Some(Timestamp::from_secs(7)),
        deleted: Box::new([task("old", "n9")]),
        owners: Box::new([MovementOwner { owner: owner(), nodes: nodes.into() }]),
        ..Movement::default()
    }
}

fn put(writer: &mut Writer, movement: Movement) {
    writer.put_object(movement).unwrap();
}

fn delete(writer: &mut Writer, name: &str) {
    writer.delete_object(ObjectKind::Movement, "", name).unwrap();
}

/// Returns the remaining recommendations, as `node times`.
fn available(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.movements().unwrap().available_nodes(&owner());
    nodes.into_iter().map(|(node, times)| format!("{node} {times}")).collect()
}

/// Returns the pods that follow `m` to a node.
fn followers(cluster: &Cluster, node: &str) -> Vec<String> {
    let suggestion = cluster.movements().unwrap().get("m", &owner(), node);
    suggestion.map_or(vec![], |found| found.assumed().iter().map(ToString::to_string).collect())
}

fn clean(writer: &Writer) {
    assert_eq!(writer.cluster().audit(), vec![]);
}

#[test]
fn a_node_is_recommended_until_it_has_enough_pods() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 2, &[])]));
    assert_eq!(available(writer.cluster()), ["n1 2"]);
    let first = follower("a", "m", "n1");
    writer.assume_pod(first.clone()).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    writer.add_pod(follower("b", "m", "n1")).unwrap();
    assert_eq!(available(writer.cluster()), Vec::<String>::new());
    clean(&writer);
    writer.remove_pod(&first).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn a_pod_that_is_listed_and_follows_counts_once() {
    let mut writer = writer();
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    put(&mut writer, movement("m", [to("n1", 3, &["a", "b"])]));
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    writer.add_pod(follower("b", "m", "n1")).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
    // The movement still lists them.
    writer.remove_pod(&follower("a", "m", "n1")).unwrap();
    writer.remove_pod(&follower("b", "m", "n1")).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn surplus_pods_leave_no_recommendation() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &["b", "c"]), to("n2", 1, &[])]));
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    assert_eq!(available(writer.cluster()), ["n2 1"]);
    clean(&writer);
}

#[test]
fn pods_may_come_before_their_movement() {
    let mut writer = writer();
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    assert_eq!(followers(writer.cluster(), "n1"), ["default/a"]);
    assert!(available(writer.cluster()).is_empty());
    put(&mut writer, movement("m", [to("n1", 2, &[])]));
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn a_recreated_movement_finds_its_pods() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 3, &["x"]), to("n2", 1, &[])]));
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    delete(&mut writer, "m");
    assert!(available(writer.cluster()).is_empty());
    assert_eq!(followers(writer.cluster(), "n1"), ["default/a"]);
    let movements = writer.cluster().movements().unwrap();
    assert_eq!(movements.len(), 1);
    clean(&writer);
    put(&mut writer, movement("m", [to("n1", 2, &[])]));
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn a_suggestion_is_dropped_with_its_movement_and_pods() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &["x"]), to("n2", 0, &[])]));
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    delete(&mut writer, "m");
    writer.remove_pod(&follower("a", "m", "n1")).unwrap();
    let movements = writer.cluster().movements().unwrap();
    assert!(movements.is_empty());
    assert_eq!(movements.owners().count(), 0);
    clean(&writer);
}

#[test]
fn an_updated_movement_replaces_its_recommendations() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[]), to("n2", 1, &[])]));
    put(&mut writer, movement("m", [to("n2", 5, &["x"])]));
    assert_eq!(available(writer.cluster()), ["n2 4"]);
    assert_eq!(writer.cluster().movements().unwrap().len(), 1);
    clean(&writer);
}

#[test]
fn a_pod_that_is_listed_twice_counts_once() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 3, &["x", "x"])]));
    assert_eq!(available(writer.cluster()), ["n1 2"]);
    clean(&writer);
}

#[test]
fn the_last_of_two_recommendations_of_a_node_counts() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 7, &["x"]), to("n1", 2, &[])]));
    assert_eq!(available(writer.cluster()), ["n1 2"]);
    put(&mut writer, movement("m", []));
    assert!(writer.cluster().movements().unwrap().is_empty());
    clean(&writer);
}

#[test]
fn recommendations_of_several_movements_are_summed_and_kept_apart() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[]), to("n2", u64::MAX, &[])]));
    put(&mut writer, movement("l", [to("n1", 2, &[]), to("n2", 1, &[])]));
    assert_eq!(available(writer.cluster()), ["n1 3", &format!("n2 {}", u64::MAX)]);
    writer.add_pod(follower("a", "l", "n2")).unwrap();
    let movements = writer.cluster().movements().unwrap();
    let found: Vec<(String, Vec<(&str, u64)>)> = movements
        .suggestions(&owner())
        .into_iter()
        .map(|suggested| {
            let nodes = suggested.nodes.iter().map(|(node, times)| (&***node, *times));
            (suggested.movement.to_string(), nodes.collect())
        })
        .collect();
    let expected =
        [("l".to_owned(), vec![("n1", 2)]), ("m".to_owned(), vec![("n1", 1), ("n2", u64::MAX)])];
    assert_eq!(found, expected);
    assert!(movements.suggestions(&group()).is_empty());
    clean(&writer);
}

#[test]
fn a_movement_names_its_evicted_pods_and_creation_time() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[])]));
    let known = writer.cluster().objects().movements.get("", "m").unwrap();
    assert_eq!(*known.deleted, [task("old", "n9")]);
    assert_eq!(known.creation_time, Some(Timestamp::from_secs(7)));
}

#[test]
fn a_forgotten_or_expired_pod_returns_its_suggestion() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[])]));
    let follower = follower("a", "m", "n1");
    writer.assume_pod(follower.clone()).unwrap();
    writer.apply(&Event::forget(&follower)).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    writer.assume_pod(follower.clone()).unwrap();
    writer.apply(&Event::finish_binding(&follower.uid, Timestamp::from_secs(0))).unwrap();
    assert!(available(writer.cluster()).is_empty());
    writer.expire(Timestamp::from_secs(61)).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn a_pod_rejected_by_the_binder_returns_its_suggestion() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[])]));
    let mut assumed = follower("a", "m", "n1");
    let mut spec = (**assumed.template).clone();
    let godel = spec.godel.as_mut().unwrap();
    godel.state = "assumed".into();
    godel.selected_scheduler = Some("another".into());
    godel.assumed_node = assumed.node_name.take();
    assumed.template = Template::new(spec.clone());
    writer.add_pod(assumed.clone()).unwrap();
    assert!(available(writer.cluster()).is_empty());
    let godel = spec.godel.as_mut().unwrap();
    godel.state = "dispatched".into();
    godel.assumed_node = None;
    let rejected = Pod { template: Template::new(spec), ..assumed.clone() };
    writer.update_pod(&assumed.uid, rejected).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn a_pod_bound_to_another_node_follows_to_that_node() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[]), to("n2", 1, &[])]));
    writer.assume_pod(follower("a", "m", "n1")).unwrap();
    assert_eq!(available(writer.cluster()), ["n2 1"]);
    writer.add_pod(follower("a", "m", "n2")).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1"]);
    clean(&writer);
}

#[test]
fn a_pod_that_changes_its_movement_follows_the_new_one() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[])]));
    put(&mut writer, movement("l", [to("n2", 1, &[])]));
    let pod = follower("a", "m", "n1");
    writer.add_pod(pod.clone()).unwrap();
    writer.update_pod(&pod.uid, follower("a", "l", "n1")).unwrap();
    assert_eq!(available(writer.cluster()), ["n1 1", "n2 1"]);
    let movements = writer.cluster().movements().unwrap();
    assert_eq!(movements.get("l", &owner(), "n1").unwrap().assumed(), [pod.uid]);
    clean(&writer);
}

/// Gödel adds such a pod by its pod group, but removes pods only by workload or request template.
#[test]
fn a_pod_owned_only_by_a_pod_group_leaves_nothing() {
    let mut writer = writer();
    let mut wanted = movement("m", [to("n1", 1, &[])]);
    wanted.owners[0].owner = group();
    put(&mut writer, wanted);
    let member = of_movement("a", "m").group("gang").on("n1").build();
    let times = |writer: &Writer| {
        let movements = writer.cluster().movements().unwrap();
        movements.available_nodes(&group()).into_values().sum::<u64>()
    };
    writer.assume_pod(member.clone()).unwrap();
    assert_eq!(times(&writer), 0);
    writer.apply(&Event::forget(&member)).unwrap();
    assert_eq!(times(&writer), 1);
    delete(&mut writer, "m");
    assert!(writer.cluster().movements().unwrap().is_empty());
    clean(&writer);
}

#[test]
fn a_pod_without_an_owner_follows_nothing() {
    let mut writer = writer();
    writer.add_pod(of_movement("a", "m").on("n1").build()).unwrap();
    assert!(writer.cluster().movements().unwrap().is_empty());
    clean(&writer);
}

#[test]
fn a_relist_replaces_the_known_movements() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 1, &[])]));
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    let listed = vec![movement("l", [to("n2", 1, &[])]).into()];
    writer.relist(Relist::Objects(ObjectKind::Movement, listed)).unwrap();
    assert_eq!(available(writer.cluster()), ["n2 1"]);
    assert_eq!(followers(writer.cluster(), "n1"), ["default/a"]);
    writer.relist(Relist::Pods(vec![])).unwrap();
    assert_eq!(writer.cluster().movements().unwrap().len(), 1);
    clean(&writer);
}

#[test]
fn a_fork_has_its_own_followers_and_suggestions() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 2, &[])]));
    let base = writer.cluster().fork();
    let mut fork = base.fork();
    fork.add_pod(&follower("a", "m", "n1")).unwrap();
    assert_eq!((available(&fork), available(&base)), (vec!["n1 1".into()], vec!["n1 2".into()]));
    fork.put_object(movement("l", [to("n2", 1, &[])])).unwrap();
    assert_eq!(available(&fork), ["n1 1", "n2 1"]);
    fork.delete_object(ObjectKind::Movement, "", "m").unwrap();
    fork.remove_pod(&Uid::new("default/a")).unwrap();
    assert_eq!(available(&fork), ["n2 1"]);
    assert_eq!((fork.audit(), base.audit()), (vec![], vec![]));
    assert_eq!(available(writer.cluster()), ["n1 2"]);
}

/// Gödel's snapshots miss this change: an inner store that is dropped and recreated restarts its generations.
#[test]
fn a_dropped_and_recreated_suggestion_changes_the_generation() {
    let (mut writer, reader) = Engine::inline(config());
    writer.add_node(node("n1").build()).unwrap();
    put(&mut writer, movement("m", [to("n1", 1, &["x"])]));
    writer.add_pod(follower("a", "m", "n1")).unwrap();
    writer.publish();
    let before = reader.snapshot();
    delete(&mut writer, "m");
    writer.remove_pod(&follower("a", "m", "n1")).unwrap();
    assert!(writer.cluster().movements().unwrap().is_empty());
    writer.add_pod(follower("b", "m", "n1")).unwrap();
    put(&mut writer, movement("m", [to("n1", 1, &["y"])]));
    writer.publish();
    let after = reader.snapshot();
    let tracked_pods = |cluster: &Cluster| {
        let dump = cluster.dump();
        dump.suggestions.into_values().next().map(|(_, actual, assumed)| [actual, assumed])
    };
    let uids = |actual: &str, assumed: &str| Some([actual, assumed].map(|uid| vec![uid.into()]));
    assert_eq!(tracked_pods(&before), uids("default/x", "default/a"));
    assert_eq!(tracked_pods(&after), uids("default/y", "default/b"));
    let generation = |cluster: &Cluster| cluster.movements().unwrap().generation();
    assert!(generation(&after) > generation(&before));
    clean(&writer);
}

#[test]
fn a_refused_gang_follows_nothing() {
    let mut writer = writer();
    put(&mut writer, movement("m", [to("n1", 2, &[])]));
    writer.add_pod(follower("b", "m", "n2")).unwrap();
    let before = writer.cluster().dump();
    let gang = [follower("a", "m", "n1"), follower("b", "m", "n1")].into();
    let refused = portolan::cache::Event::AssumeAll { pods: gang, decided_on: None };
    assert!(writer.apply(&refused).is_err());
    assert_eq!(writer.cluster().dump(), before);
}

#[test]
fn without_the_configuration_only_the_object_is_stored() {
    for godel in [None, Some(GodelConfig::new("godel"))] {
        let (mut writer, _) = Engine::inline(Config { godel, ..Config::default() });
        put(&mut writer, movement("m", [to("n1", 1, &[])]));
        writer.add_pod(follower("a", "m", "n1")).unwrap();
        assert!(writer.cluster().movements().is_none());
        assert_eq!(writer.cluster().dump().suggestions, BTreeMap::new());
        assert!(writer.cluster().objects().contains(ObjectKind::Movement, "", "m"));
        delete(&mut writer, "m");
        clean(&writer);
    }
}
