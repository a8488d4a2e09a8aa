//! Reservations, end to end: a deleted pod leaves a reservation for its successor.

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Cluster, CommitCheck, Config, Engine, Event, GodelConfig, Writer};
use portolan::model::{
    EventError, GodelPod, Name, ObjectKind, Pod, PodBuilder, Quantity, Reservation,
    ReservationPhase, Timestamp, Uid, node, pod,
};

const TTL: Duration = Duration::from_secs(60);

fn config() -> Config {
    let godel = GodelConfig { reservations: Some(TTL), ..GodelConfig::new("godel") };
    Config { assumed_ttl: Some(TTL), godel: Some(godel), ..Config::default() }
}

fn writer() -> Writer {
    let mut writer = Engine::inline(config()).0;
    writer.add_node(node("n1").cpu(1_000).build()).unwrap();
    writer
}

fn web(name: &str) -> PodBuilder {
    pod(name).label("name", "web").cpu(700).host_port(80)
}

/// Creates a pod that leaves a reservation when it is deleted.
fn reserving(name: &str) -> Pod {
    let godel = GodelPod { reserves: true, ..GodelPod::default() };
    web(name).spec(|spec| spec.godel = Some(Box::new(godel))).on("n1").build()
}

/// Creates a pod that consumes the reservation of `old`.
fn successor(name: &str, old: &str) -> Pod {
    let holder: Name = format!("default/{old}-placeholder").into();
    let godel = GodelPod { matched_placeholder: Some(holder), ..GodelPod::default() };
    web(name).spec(|spec| spec.godel = Some(Box::new(godel))).on("n1").build()
}

fn put(writer: &mut Writer, reservation: Reservation) {
    writer.put_object(reservation).unwrap();
}

fn available(cluster: &Cluster) -> Vec<String> {
    let places = cluster.reservations().unwrap();
    places
        .available("default", "web")
        .map(|place| format!("{} {}", place.pod.key(), place.node()))
        .collect()
}

/// Returns the requests of the node's pods, and their names.
fn on_node(cluster: &Cluster) -> (i64, Vec<String>) {
    let mut names = Vec::new();
    let mut cpu = 0;
    for node in cluster.dump().nodes.values() {
        cpu += node.requested.cpu.0;
        names.extend(node.pods.keys().map(ToString::to_string));
    }
    (cpu, names)
}

fn held() -> (i64, Vec<String>) {
    (700, vec!["default/a-placeholder".into()])
}

fn clean(writer: &Writer) {
    assert_eq!(writer.cluster().audit(), vec![]);
}

/// Creates a writer with the reservation of `a`.
fn holding() -> Writer {
    let mut writer = writer();
    let gone = reserving("a");
    writer.add_pod(gone.clone()).unwrap();
    writer.remove_pod(&gone).unwrap();
    assert_eq!((on_node(writer.cluster()), available(writer.cluster()).len()), (held(), 1));
    clean(&writer);
    writer
}

#[test]
fn a_deleted_pod_leaves_a_reservation_of_its_resources_and_ports() {
    let writer = holding();
    let node = writer.cluster().node("n1").unwrap();
    assert_eq!((node.requested().cpu.0, node.used_ports().count()), (700, 1));
    assert_eq!(available(writer.cluster()), ["default/a-placeholder n1"]);
}

#[test]
fn an_unconfirmed_reservation_expires() {
    let mut writer = holding();
    // This is the first time in the log, so the clock starts here.
    assert_eq!(writer.expire(Timestamp::from_secs(1_000)), Ok(0));
    assert_eq!(writer.expire(Timestamp::from_secs(1_060)), Ok(0));
    assert_eq!(on_node(writer.cluster()), held());
    assert_eq!(writer.expire(Timestamp::from_secs(1_061)), Ok(1));
    assert_eq!((on_node(writer.cluster()), writer.cluster().pod_count()), ((0, vec![]), 0));
    assert!(writer.cluster().reservations().unwrap().is_empty());
    clean(&writer);
}

#[test]
fn a_reservation_object_confirms_the_placeholder_until_it_ends() {
    let mut writer = holding();
    put(&mut writer, Reservation::of(&reserving("a")));
    writer.expire(Timestamp::from_secs(0)).unwrap();
    writer.expire(Timestamp::from_secs(1_000_000)).unwrap();
    assert_eq!(on_node(writer.cluster()), held());
    writer.delete_object(ObjectKind::Reservation, "default", "a").unwrap();
    assert_eq!(on_node(writer.cluster()), (0, vec![]));
    clean(&writer);
}

#[test]
fn a_forgotten_successor_returns_the_reservation() {
    let mut writer = holding();
    let successor = successor("b", "a");
    writer.assume_pod(successor.clone()).unwrap();
    assert_eq!(on_node(writer.cluster()), (700, vec!["default/b".into()]));
    assert_eq!(available(writer.cluster()), Vec::<String>::new());
    clean(&writer);
    writer.apply(&Event::forget(&successor)).unwrap();
    assert_eq!((on_node(writer.cluster()), available(writer.cluster()).len()), (held(), 1));
    clean(&writer);
}

#[test]
fn an_expired_successor_returns_the_reservation() {
    let mut writer = holding();
    put(&mut writer, Reservation::of(&reserving("a")));
    let successor = successor("b", "a");
    writer.assume_pod(successor.clone()).unwrap();
    writer.apply(&Event::finish_binding(&successor.uid, Timestamp::from_secs(0))).unwrap();
    writer.expire(Timestamp::from_secs(61)).unwrap();
    assert_eq!(on_node(writer.cluster()), held());
    clean(&writer);
}

#[test]
fn a_successor_rejected_by_the_binder_returns_the_reservation() {
    let mut writer = holding();
    let mut assumed = successor("b", "a");
    let mut spec = (**assumed.template).clone();
    let godel = spec.godel.as_mut().unwrap();
    godel.state = "assumed".into();
    godel.selected_scheduler = Some("another".into());
    godel.assumed_node = assumed.node_name.take();
    assumed.template = portolan::model::Template::new(spec.clone());
    writer.add_pod(assumed.clone()).unwrap();
    assert_eq!(on_node(writer.cluster()), (700, vec!["default/b".into()]));
    spec.godel = None;
    let rejected = Pod { template: portolan::model::Template::new(spec), ..assumed.clone() };
    writer.update_pod(&assumed.uid, rejected).unwrap();
    assert_eq!(on_node(writer.cluster()), held());
    clean(&writer);
}

#[test]
fn a_bound_successor_keeps_the_reservation_and_leaves_its_own() {
    let mut writer = holding();
    put(&mut writer, Reservation::of(&reserving("a")));
    let mut next = successor("b", "a");
    let mut spec = (**next.template).clone();
    spec.godel.as_mut().unwrap().reserves = true;
    next.template = portolan::model::Template::new(spec);
    writer.assume_pod(next.clone()).unwrap();
    writer.add_pod(next.clone()).unwrap();
    let matched = Reservation {
        phase: ReservationPhase::Matched,
        owner: Some(next.uid.clone()),
        ..Reservation::of(&reserving("a"))
    };
    put(&mut writer, matched);
    writer.delete_object(ObjectKind::Reservation, "default", "a").unwrap();
    writer.remove_pod(&next).unwrap();
    assert_eq!(on_node(writer.cluster()), (700, vec!["default/b-placeholder".into()]));
    clean(&writer);
}

#[test]
fn a_reservation_survives_a_restart_in_any_list_order() {
    let reservation = || Reservation::of(&reserving("a"));
    let mut first = writer();
    first.put_object(reservation()).unwrap();
    assert_eq!(on_node(first.cluster()), held());
    first.add_pod(successor("b", "a")).unwrap();
    let mut last = writer();
    last.add_pod(successor("b", "a")).unwrap();
    last.put_object(reservation()).unwrap();
    assert_eq!(first.cluster().dump(), last.cluster().dump());
    assert_eq!(on_node(last.cluster()), (700, vec!["default/b".into()]));
    clean(&last);
}

#[test]
fn a_timed_out_reservation_reserves_nothing() {
    let mut writer = holding();
    put(&mut writer, Reservation::of(&reserving("a")));
    let over = Reservation { phase: ReservationPhase::TimeOut, ..Reservation::of(&reserving("a")) };
    put(&mut writer, over);
    assert_eq!(on_node(writer.cluster()), (0, vec![]));
    clean(&writer);
}

#[test]
fn a_reservation_with_an_unseen_owner_stays_reserved() {
    let mut writer = holding();
    put(&mut writer, Reservation::of(&reserving("a")));
    let matched = Reservation {
        phase: ReservationPhase::Matched,
        owner: Some(Uid::new("unknown")),
        ..Reservation::of(&reserving("a"))
    };
    put(&mut writer, matched);
    assert_eq!(on_node(writer.cluster()), held());
}

#[test]
fn a_reservation_that_ends_on_another_node_leaves_no_placeholder() {
    let mut writer = holding();
    let mut reservation = Reservation::of(&reserving("a"));
    put(&mut writer, reservation.clone());
    reservation.pod.node_name = Some("n2".into());
    reservation.phase = ReservationPhase::Matched;
    put(&mut writer, reservation.clone());
    writer.delete_object(ObjectKind::Reservation, "default", "a").unwrap();
    assert_eq!(on_node(writer.cluster()), (0, vec![]));
    assert!(writer.cluster().reservations().unwrap().is_empty());
    clean(&writer);
}

#[test]
fn an_older_reservation_object_does_not_affect_its_successor() {
    let mut writer = holding();
    put(&mut writer, Reservation::of(&reserving("a")));
    writer.assume_pod(successor("b", "a")).unwrap();
    let again = Reservation { ttl: Some(TTL), ..Reservation::of(&reserving("a")) };
    put(&mut writer, again);
    assert_eq!(on_node(writer.cluster()), (700, vec!["default/b".into()]));
    clean(&writer);
}

#[test]
fn forgotten_and_non_reserving_pods_leave_no_reservation() {
    let mut writer = writer();
    let assumed = reserving("a");
    writer.assume_pod(assumed.clone()).unwrap();
    writer.apply(&Event::forget(&assumed)).unwrap();
    let other = web("b").on("n1").build();
    writer.add_pod(other.clone()).unwrap();
    writer.remove_pod(&other).unwrap();
    assert_eq!((on_node(writer.cluster()), writer.cluster().pod_count()), ((0, vec![]), 0));
}

#[test]
fn placeholders_are_only_removed_with_their_reservation() {
    let mut writer = holding();
    let holder = reserving("a").to_placeholder();
    let refused = |outcome| matches!(outcome, Err(EventError::HoldsPlace { .. }));
    assert!(refused(writer.remove_pod(&holder)));
    assert!(refused(writer.update_pod(&holder.uid, holder.clone())));
    let applied = writer.relist(portolan::cache::Relist::Pods(vec![])).unwrap();
    assert_eq!(applied.removed, 0);
    let applied = writer.relist(portolan::cache::Relist::Pods(vec![holder])).unwrap();
    assert_eq!(applied.rejected.len(), 1);
    assert_eq!(on_node(writer.cluster()), held());
}

#[test]
fn without_the_configuration_nothing_is_reserved() {
    let godel = GodelConfig::new("godel");
    for godel in [None, Some(godel)] {
        let (mut writer, _) = Engine::inline(Config { godel, ..Config::default() });
        let gone = reserving("a");
        writer.add_pod(gone.clone()).unwrap();
        writer.remove_pod(&gone).unwrap();
        put(&mut writer, Reservation::of(&gone));
        assert_eq!(writer.cluster().pod_count(), 0);
        assert!(writer.cluster().reservations().is_none());
        assert!(writer.cluster().objects().contains(ObjectKind::Reservation, "default", "a"));
    }
}

#[test]
fn a_fork_handles_reservations_like_the_writer() {
    let mut writer = writer();
    writer.add_pod(reserving("a")).unwrap();
    let base = writer.cluster().fork();
    let mut fork = base.fork();
    fork.delete_pod(&reserving("a").uid).unwrap();
    assert_eq!(on_node(&fork), held());
    fork.add_pod(&successor("b", "a")).unwrap();
    assert_eq!(on_node(&fork), (700, vec!["default/b".into()]));
    assert_eq!(fork.audit(), vec![]);
    // A pod that is removed as if it never existed leaves no reservation.
    let mut without = base.fork();
    without.remove_pod(&reserving("a").uid).unwrap();
    assert_eq!(on_node(&without), (0, vec![]));
    assert_eq!(on_node(&base), (700, vec!["default/a".into()]));
    clean(&writer);
}

/// A check that refuses a node that has any pods.
struct Empty;

impl CommitCheck for Empty {
    fn check(&self, cluster: &Cluster, _pod: &Pod, node: &str) -> Result<(), String> {
        let pods = cluster.node(node).map_or(0, |node| node.pod_count());
        if pods == 0 { Ok(()) } else { Err(format!("the node has {pods} pods")) }
    }
}

#[test]
fn a_placeholder_does_not_conflict_with_its_successor() {
    let (mut writer, _) = Engine::inline(Config { commit_check: Empty.into(), ..config() });
    writer.add_node(node("n1").build()).unwrap();
    let gone = reserving("a");
    writer.add_pod(gone.clone()).unwrap();
    let decided_on = writer.remove_pod(&gone).unwrap();
    writer.add_node(node("n2").build()).unwrap();
    let assume = |pod: Pod| Event::assume(pod).decided_on(decided_on);
    let stranger = writer.apply(&assume(web("c").on("n1").build()));
    assert!(matches!(stranger, Err(EventError::Conflict { .. })));
    writer.apply(&assume(successor("b", "a"))).unwrap();
    clean(&writer);
}

#[test]
fn a_refused_gang_returns_all_reservations() {
    let mut writer = holding();
    let before = writer.cluster().dump();
    let placed = web("c").on("n2").build();
    writer.add_pod(placed.clone()).unwrap();
    let dump = writer.cluster().dump();
    let gang: Arc<[Pod]> = [successor("b", "a"), placed].into();
    let refused = writer.apply(&Event::AssumeAll { pods: gang, decided_on: None });
    assert!(matches!(refused, Err(EventError::Together(_))));
    assert_eq!(writer.cluster().dump(), dump);
    assert_eq!(writer.cluster().dump().reservations, before.reservations);
    clean(&writer);
}

#[test]
fn a_held_version_keeps_its_reservations_while_they_are_dropped_and_recreated() {
    let (mut writer, reader) = Engine::inline(config());
    let gone = reserving("a");
    writer.add_pod(gone.clone()).unwrap();
    writer.remove_pod(&gone).unwrap();
    writer.publish();
    let held_version = reader.snapshot();
    let generation = held_version.reservations().unwrap().generation();
    put(&mut writer, Reservation::of(&gone));
    writer.delete_object(ObjectKind::Reservation, "default", "a").unwrap();
    writer.add_pod(gone.clone()).unwrap();
    writer.remove_pod(&gone).unwrap();
    writer.publish();
    assert!(reader.snapshot().reservations().unwrap().generation() > generation);
    assert_eq!(reader.snapshot().dump().reservations, held_version.dump().reservations);
    assert_eq!(held_version.reservations().unwrap().generation(), generation);
    clean(&writer);
}

/// Creates a bound pod without the annotation, as its object may be after the successor was bound.
fn bound_without_annotation(name: &str, node: &str) -> Pod {
    web(name).on(node).build()
}

#[test]
fn a_successor_keeps_its_reservation_if_its_object_lacks_the_annotation() {
    let mut writer = writer();
    writer.add_pod(reserving("a")).unwrap();
    writer.remove_pod(&reserving("a")).unwrap();
    writer.assume_pod(successor("b", "a")).unwrap();
    // The API server's object lacks the annotation, and then the binder rejects the pod.
    let annotated = |change: fn(&mut GodelPod)| {
        let mut godel = GodelPod::default();
        change(&mut godel);
        let pod = web("b").spec(|spec| spec.godel = Some(Box::new(godel)));
        Pod { node_name: None, ..pod.build() }
    };
    let assumed = annotated(|godel| {
        godel.state = "assumed".into();
        godel.selected_scheduler = Some("ours".into());
        godel.assumed_node = Some("n1".into());
    });
    writer.update_pod(&assumed.uid, assumed.clone()).unwrap();
    assert_eq!(available(writer.cluster()).len(), 0);
    let rejected = annotated(|godel| {
        godel.state = "dispatched".into();
        godel.selected_scheduler = Some("ours".into());
    });
    writer.update_pod(&rejected.uid.clone(), rejected).unwrap();
    assert_eq!(on_node(writer.cluster()), held());
    clean(&writer);
}

#[test]
fn a_successor_bound_to_another_node_returns_the_reservation() {
    let mut writer = writer();
    writer.add_node(node("n2").cpu(1_000).build()).unwrap();
    writer.add_pod(reserving("a")).unwrap();
    writer.remove_pod(&reserving("a")).unwrap();
    writer.assume_pod(successor("b", "a")).unwrap();
    writer.add_pod(bound_without_annotation("b", "n2")).unwrap();
    assert_eq!(available(writer.cluster()), ["default/a-placeholder n1"]);
    assert_eq!(on_node(writer.cluster()).0, 1_400);
    clean(&writer);
}

#[test]
fn the_end_of_an_old_reservation_keeps_that_of_the_next_pod_of_its_name() {
    let mut writer = writer();
    let incarnation = |uid: &str| Pod { uid: Uid::new(uid), ..reserving("a") };
    let (first, second) = (incarnation("u1"), incarnation("u2"));
    writer.add_pod(first.clone()).unwrap();
    writer.remove_pod(&first).unwrap();
    put(&mut writer, Reservation::of(&first));
    let mut taken = successor("a", "a");
    taken.uid = second.uid.clone();
    writer.assume_pod(taken).unwrap();
    writer.add_pod(second.clone()).unwrap();
    let over = Reservation { phase: ReservationPhase::Matched, ..Reservation::of(&first) };
    put(&mut writer, over.clone());
    // The pod is deleted before its own Reservation arrives.
    writer.remove_pod(&second).unwrap();
    assert_eq!(available(writer.cluster()).len(), 1);
    let key = (ObjectKind::Reservation, &*over.namespace, &*over.name);
    writer.delete_object(key.0, key.1, key.2).unwrap();
    assert_eq!(available(writer.cluster()).len(), 1, "the reservation is that of the second pod");
    clean(&writer);
}

#[test]
fn an_identical_reservation_changes_nothing() {
    let mut writer = writer();
    writer.add_pod(reserving("a")).unwrap();
    writer.remove_pod(&reserving("a")).unwrap();
    let mut reservation = Reservation::of(&reserving("a"));
    // The reservation as it is read, with lower requests than the pod's.
    reservation.pod = web("a-placeholder")
        .uid("default/a-placeholder")
        .cpu(600)
        .spec(|spec| {
            spec.godel = Some(Box::new(GodelPod {
                is_placeholder: true,
                reservation_index: Some("web".into()),
                ..GodelPod::default()
            }));
        })
        .on("n1")
        .build();
    for _ in 0..3 {
        put(&mut writer, reservation.clone());
        assert_eq!(on_node(writer.cluster()), held());
    }
    reservation.pod = {
        let mut spec = (**reservation.pod.template).clone();
        spec.labels = portolan::model::Labels::new([("changed", "yes")]);
        Pod { template: portolan::model::Template::new(spec), ..reservation.pod }
    };
    put(&mut writer, reservation);
    assert_eq!(on_node(writer.cluster()).0, 600, "the new requests count");
    clean(&writer);
}

#[test]
fn reservations_are_not_available_to_other_namespaces() {
    let mut writer = writer();
    writer.add_pod(reserving("a")).unwrap();
    writer.remove_pod(&reserving("a")).unwrap();
    writer.assume_pod(stranger("b", "a")).unwrap();
    assert_eq!(available(writer.cluster()).len(), 1);
    clean(&writer);
}

#[test]
fn available_reservations_are_those_of_one_namespace() {
    let mut writer = holding();
    // Both have the placeholder name `web`.
    let other = stranger("b", "a");
    put(&mut writer, Reservation::of(&other));
    let of = |cluster: &Cluster, namespace: &str, placeholder: &str| -> Vec<String> {
        let places = cluster.reservations().unwrap().available(namespace, placeholder);
        places.map(|place| place.pod.key().to_string()).collect()
    };
    let cluster = writer.cluster();
    assert_eq!(of(cluster, "default", "web"), ["default/a-placeholder"]);
    assert_eq!(of(cluster, "other", "web"), ["other/b-placeholder"]);
    assert_eq!(of(cluster, "none", "web"), [""; 0]);
    assert_eq!(of(cluster, "other", "w"), [""; 0]);
    clean(&writer);
}

/// Gödel's `PodOp` skips the reservation store when it adds and removes placeholder pods. Here the reason of a removal
/// is part of the call, and only a deletion reserves.
#[test]
fn only_the_deletion_of_a_pod_that_reserves_creates_a_reservation() {
    let reserved = |cluster: &Cluster| cluster.reservations().unwrap().len();
    let mut writer = writer();
    writer.assume_pod(reserving("forgotten")).unwrap();
    writer.apply(&Event::forget(&reserving("forgotten"))).unwrap();
    writer.add_pod(reserving("a")).unwrap();
    let base = writer.cluster().fork();
    let mut fork = base.fork();
    fork.remove_pod(&reserving("a").uid).unwrap();
    assert_eq!((reserved(writer.cluster()), reserved(&fork)), (0, 0));

    writer.remove_pod(&reserving("a")).unwrap();
    assert_eq!((reserved(writer.cluster()), on_node(writer.cluster())), (1, held()));
    // The placeholder pod is in all other stores like any pod, but leaves no reservation of its own.
    assert_eq!(writer.cluster().node("n1").unwrap().used_ports().count(), 1);
    writer.expire(Timestamp::from_secs(0)).unwrap();
    writer.expire(Timestamp::from_secs(61)).unwrap();
    assert_eq!((reserved(writer.cluster()), on_node(writer.cluster())), (0, (0, vec![])));
    clean(&writer);
}

/// Gödel asks `IsStoreEnabled` by name. Here each store is a field of the configuration, and a store that is disabled is
/// `None`.
#[test]
fn a_store_exists_if_its_field_enables_it() {
    let exist = |godel: Option<GodelConfig>| {
        let (writer, _) = Engine::inline(Config { godel, ..Config::default() });
        let cluster = writer.cluster();
        [
            cluster.reservations().is_some(),
            cluster.movements().is_some(),
            cluster.preemption_marks().is_some(),
            cluster.deletion_marks().is_some(),
        ]
    };
    let none = || GodelConfig::new("godel");
    assert_eq!(exist(None), [false; 4]);
    assert_eq!(exist(Some(none())), [false; 4]);
    let alone = [
        GodelConfig { reservations: Some(Duration::ZERO), ..none() },
        GodelConfig { movements: true, ..none() },
        GodelConfig { preemption_marks: true, ..none() },
        GodelConfig { deletion_marks: true, ..none() },
    ];
    for (at, config) in alone.into_iter().enumerate() {
        assert_eq!(exist(Some(config)), std::array::from_fn(|store| store == at));
    }
}

#[test]
fn a_delete_that_names_another_node_removes_the_pod() {
    let mut writer = writer();
    writer.add_pod(reserving("a")).unwrap();
    writer.remove_pod(&Pod { node_name: Some("n9".into()), ..reserving("a") }).unwrap();
    assert_eq!(on_node(writer.cluster()), held());
}

#[test]
fn a_reservation_expires_after_the_shorter_of_both_times() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    // The time to live of assumed pods and of reservations, and the time after which the reservation expired.
    for (assumed, reserved, held) in [
        (seconds(20), seconds(60), 20),
        (seconds(60), seconds(20), 20),
        (None, seconds(20), 20),
        (seconds(0), seconds(20), 20),
        (seconds(20), seconds(0), 20),
    ] {
        let godel = GodelConfig { reservations: reserved, ..GodelConfig::new("godel") };
        let config = Config { assumed_ttl: assumed, godel: Some(godel), ..Config::default() };
        let mut writer = Engine::inline(config).0;
        writer.add_node(node("n1").cpu(1_000).build()).unwrap();
        let gone = reserving("a");
        writer.add_pod(gone.clone()).unwrap();
        writer.remove_pod(&gone).unwrap();
        let mut expire = |at| writer.expire(Timestamp::from_secs(at)).unwrap();
        let times = [expire(100), expire(100 + held), expire(101 + held)];
        assert_eq!(times, [0, 0, 1], "{assumed:?} {reserved:?}");
    }
}

#[test]
fn requests_of_placeholders_are_summed_as_reserved() {
    let mut writer = holding();
    let reserved = |writer: &Writer| writer.cluster().node("n1").unwrap().reserved();
    writer.add_pod(pod("other").cpu(50).on("n1").build()).unwrap();
    assert_eq!(reserved(&writer).cpu.0, 700);
    let gpu = "example.com/gpu";
    let held = pod("b").label("name", "web").cpu(30).memory(1 << 20);
    let held = held.request(gpu, Quantity::whole(2)).on("n1").build();
    put(&mut writer, Reservation::of(&held));
    let sum = reserved(&writer);
    assert_eq!((sum.cpu.0, sum.memory.0, sum.scalars.get(gpu)), (730, 1 << 20, Some(2)));
    writer.assume_pod(successor("c", "a")).unwrap();
    assert_eq!(reserved(&writer).cpu.0, 30);
}

#[test]
fn a_fork_preempts_atomically() {
    let mut writer = writer();
    for name in ["v0", "v1"] {
        writer.add_pod(pod(name).cpu(300).on("n1").build()).unwrap();
    }
    let mut fork = writer.cluster().fork();
    let (before, generation) = (fork.dump(), fork.generation());
    let victims = ["v0", "v1"].map(|name| Uid::new(&format!("default/{name}")));
    let unknown = [victims[0].clone(), Uid::new("default/unknown")];
    let preemptor = pod("p").cpu(900).on("n1").build();
    let refused = fork.preempt(&preemptor, &unknown);
    assert_eq!(refused, Err(EventError::NotFound { uid: unknown[1].clone() }));
    let nowhere = fork.preempt(&pod("p").build(), &victims);
    assert!(matches!(nowhere, Err(EventError::NoNodeName { .. })));
    assert_eq!((fork.dump(), fork.generation()), (before, generation));
    fork.preempt(&preemptor, &victims).unwrap();
    assert_eq!(on_node(&fork), (900, vec!["default/p".into()]));
    assert_eq!(fork.generation().0, generation.0 + 1);
    assert_eq!(fork.audit(), vec![]);
}

/// Creates the reservation of a pod with this name on a node that is unknown, as a ghost.
fn on_ghost(name: &str) -> Reservation {
    let mut reservation =
        Reservation::of(&Pod { node_name: Some("ghost".into()), ..reserving(name) });
    reservation.name = "r".into();
    reservation
}

#[test]
fn a_reservation_object_replaces_the_last_placeholder_of_a_ghost() {
    let mut writer = writer();
    put(&mut writer, on_ghost("a"));
    put(&mut writer, on_ghost("b"));
    assert_eq!(available(writer.cluster()), ["default/b-placeholder ghost"]);
    assert_eq!(on_node(writer.cluster()), (700, vec!["default/b-placeholder".into()]));
    clean(&writer);
}

#[test]
fn a_confirmed_reservation_ends_with_its_object_even_if_the_uids_differ() {
    let mut writer = holding();
    let mut reservation = Reservation::of(&reserving("a"));
    reservation.pod.uid = Uid::new("of the object");
    put(&mut writer, reservation);
    assert_eq!(on_node(writer.cluster()), held());
    writer.delete_object(ObjectKind::Reservation, "default", "a").unwrap();
    assert_eq!(on_node(writer.cluster()), (0, vec![]));
    clean(&writer);
}

/// Creates a pod of another namespace that names the placeholder of `old`.
fn stranger(name: &str, old: &str) -> Pod {
    let pod = successor(name, old);
    let mut spec = (**pod.template).clone();
    spec.namespace = "other".into();
    spec.resources = Default::default();
    spec.host_ports = Default::default();
    Pod { template: portolan::model::Template::new(spec), ..pod }
}

#[test]
fn a_reservation_object_is_not_matched_to_a_pod_of_another_namespace() {
    let mut writer = writer();
    writer.add_pod(stranger("b", "a")).unwrap();
    put(&mut writer, Reservation::of(&reserving("a")));
    assert_eq!(available(writer.cluster()), ["default/a-placeholder n1"]);
    clean(&writer);
}

#[test]
fn the_successor_with_the_lower_uid_has_taken_the_reservation() {
    for order in [["b", "c"], ["c", "b"]] {
        let mut writer = writer();
        for name in order {
            writer.add_pod(successor(name, "a")).unwrap();
        }
        put(&mut writer, Reservation::of(&reserving("a")));
        let places = writer.cluster().reservations().unwrap();
        let takers: Vec<_> = places.iter().map(|place| place.matched.clone()).collect();
        assert_eq!(takers, [Some(successor("b", "a").uid)]);
    }
}

#[test]
fn an_old_reservation_object_that_times_out_keeps_the_next_unconfirmed_reservation() {
    let mut writer = writer();
    let incarnation = |uid: &str| Pod { uid: Uid::new(uid), ..reserving("a") };
    let (first, second) = (incarnation("u1"), incarnation("u2"));
    writer.add_pod(first.clone()).unwrap();
    writer.remove_pod(&first).unwrap();
    put(&mut writer, Reservation::of(&first));
    writer.assume_pod(Pod { uid: second.uid.clone(), ..successor("a", "a") }).unwrap();
    writer.add_pod(second.clone()).unwrap();
    // The pod is deleted before its own Reservation arrives, and holds the same reservation.
    writer.remove_pod(&second).unwrap();
    assert_eq!(available(writer.cluster()).len(), 1);
    let over = Reservation { phase: ReservationPhase::TimeOut, ..Reservation::of(&first) };
    put(&mut writer, over);
    assert_eq!(available(writer.cluster()), ["default/a-placeholder n1"]);
    clean(&writer);
}
