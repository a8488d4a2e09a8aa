//! The mirror as a whole: several kinds, pods, refreshing and stopping.

use portolan::cache::{Config, Engine, Event};
use portolan::model::{Fact, Uid, node as build_node, pod as build_pod};

use super::server::*;
use crate::api::Resource;
use crate::mirror::{Mirror, MirrorError};
use crate::testing::apply;

const PODS: [Resource; 1] = [Resource::PODS];

/// A mirror is shared by the tasks of a process, which await its methods.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    fn spawned(_: impl Future + Send) {}
    shared::<Mirror>();
    let _ = |mirror: &Mirror| {
        spawned(mirror.synced());
        spawned(mirror.refresh());
        spawned(mirror.stop());
    };
};

#[tokio::test]
async fn pods_reach_the_engine_the_queue_and_the_index() {
    let gone = pod("u-3", "n1", 6);
    let server = Server::start([held([
        added(&pod("u-1", "n1", 5)),
        added(&pod_with("u-2", 7, r#""priority":3"#, r#""generation":4,"#)),
        added(&gone),
        end(9),
        deleted(&gone),
        modified(&pod("u-2", "n1", 11)),
    ])])
    .await;
    let engine = Engine::shared(Config::default());
    let follower = engine.follow().expect("open");
    let mirror = server.mirror_to(engine.clone(), &PODS);
    until("the last event", || mirror.figures()[0].resource_version == 11).await;
    until("both pods", || engine.reader().is_ok_and(|r| r.snapshot().pod_count() == 2)).await;
    let mut queued = Vec::new();
    while let Ok(note) = follower.try_next() {
        if let Fact::Pending(pod) = note.fact {
            queued.push((pod.uid.clone(), pod.template.priority));
        }
    }
    assert_eq!(queued, [("u-2".into(), 3)]);
    let known = mirror.pods().get(&"u-2".into()).expect("known");
    assert_eq!((known.node.as_deref(), known.resource_version), (Some("n1"), 11));
    assert_eq!(mirror.pods().get(&"u-3".into()), None);
    assert_eq!(mirror.figures()[0].objects, 2);
}

#[tokio::test]
async fn the_status_of_a_pending_pod_is_indexed() {
    let status = r#"{"status":{"nominatedNodeName":"n7","conditions":[{"type":"PodScheduled","status":"False"}]},
        "metadata":{"name":"a","namespace":"shop","uid":"u-1","generation":4,"resourceVersion":"7"},
        "spec":{"schedulerName":"default-scheduler","containers":[]}}"#;
    let (_, mirror, _engine) =
        synced_pods([lines([added(&status.replace('\n', "")), end(9)])]).await;
    let known = mirror.pods().get(&"u-1".into()).expect("known");
    assert_eq!(known.generation, 4);
    let pending = known.pending.expect("pending");
    assert_eq!(pending.nominated.as_deref(), Some("n7"));
    assert_eq!(&*pending.scheduled.expect("a condition").status, "False");
}

#[tokio::test]
async fn an_assumed_pod_is_confirmed_moved_and_removed() {
    let (sender, reply) = open([added(&pod("u-1", "", 5)), added(&pod("u-2", "", 6)), end(9)]);
    let (_, _mirror, engine) = synced_pods([reply]).await;
    let node = build_node("n1").cpu(4_000).memory(1 << 34).pods(110).build();
    apply(&engine, Event::add_node(node));
    for uid in ["u-1", "u-2"] {
        let pod = build_pod(format!("pod-{uid}")).namespace("shop").uid(uid).cpu(100).build();
        let event = Event::assume(pod.on("n1"));
        apply(&engine, event);
    }
    let assumed = || engine.reader().expect("open").snapshot().assumed_count();
    sender.send(modified(&pod_with("u-1", 10, r#""priority":1"#, ""))).expect("open");
    sender.send(modified(&pod("u-2", "n2", 11))).expect("open");
    until("the confirmation", || assumed() == 1).await;
    let version = engine.reader().expect("open").snapshot();
    assert_eq!(&**version.pod(&"u-2".into()).expect("added").node().name(), "n2");
    let terminating = r#""deletionTimestamp":"2026-01-02T03:04:05Z","#;
    sender.send(modified(&pod_with("u-1", 12, r#""priority":1"#, terminating))).expect("open");
    until("the end of the assumption", || assumed() == 0).await;
}

#[tokio::test]
async fn an_engine_that_was_filled_before_loses_pods_that_the_server_does_not_have() {
    let engine = Engine::shared(Config::default());
    for uid in ["u-1", "u-2"] {
        let pod = build_pod(format!("pod-{uid}")).namespace("shop").uid(uid).on("n1").build();
        apply(&engine, Event::add_pod(pod));
    }
    let server = Server::start([lines([added(&pod("u-1", "n1", 5)), end(9)])]).await;
    let mirror = server.mirror_to(engine.clone(), &PODS);
    mirror.synced().await.expect("synced");
    let version = engine.reader().expect("open").snapshot();
    assert_eq!(version.pod_count(), 1);
    // The engine had added the pod before, so the addition becomes an update.
    assert_eq!(version.pod(&"u-1".into()).map(|pod| pod.resource_version()), Some(5));
    assert_eq!(mirror.figures()[0].refused, 0);
}

#[tokio::test]
async fn an_update_of_a_pod_that_the_engine_has_lost_adds_it() {
    let (sender, reply) = open([added(&pod("u-1", "n1", 5)), end(9)]);
    let (_, mirror, engine) = synced_pods([reply]).await;
    let removal = Event::RemovePod { uid: Uid::new("u-1"), node: None };
    apply(&engine, removal);
    sender.send(modified(&pod("u-1", "n1", 10))).expect("open");
    sender.send(modified(&pod("u-1", "n1", 11))).expect("open");
    let version = || engine.reader().expect("open").snapshot();
    // The second version changes nothing, so it is dropped if the first is published by then.
    until("the pod", || version().pod(&"u-1".into()).is_some()).await;
    until("the last version", || mirror.figures()[0].resource_version == 11).await;
    assert_eq!(mirror.figures()[0].refused, 0);
}

#[tokio::test]
async fn readiness_waits_for_every_kind() {
    // The answers are in the order of the requests, which one kind at a time determines.
    let (sender, reply) = open([""; 0]);
    let (server, mirror, _engine) = mirrored(&[Resource::NODES, Resource::SERVICES], [reply]).await;
    until("both requests", || server.requests().len() == 2).await;
    sender.send(end(9)).expect("open");
    until("one kind", || mirror.figures().iter().any(|kind| kind.relists == 1)).await;
    assert!(!mirror.is_synced());
}

#[tokio::test]
async fn a_refresh_of_a_current_mirror_returns_at_once() {
    let (server, mirror, _engine) = synced_pods([held([end(9)])]).await;
    server.quorum(page(9, "more", &[]));
    assert_eq!(mirror.refresh().await.expect("current"), 9);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_refresh_waits_for_the_events_before_the_version_of_a_quorum_read() {
    let silent = held([end(9)]);
    let (server, mirror, engine) =
        synced_pods([silent, lines([added(&pod("u-1", "n1", 12))]), lines([bookmark(20)])]).await;
    server.quorum(page(17, "more", &[]));
    assert_eq!(mirror.refresh().await.expect("reached"), 20);
    assert_eq!(engine.reader().expect("open").snapshot().pod_count(), 1);
    let requests = server.requests();
    let asked = |i: usize| (requests[i].get("resourceVersion"), requests[i].get("timeoutSeconds"));
    assert_eq!([asked(1), asked(2)], [("9", "4"), ("12", "4")]);
}

#[tokio::test]
async fn a_refresh_without_bookmarks_lists_at_least_as_new() {
    let silent = held([end(9)]);
    let short = || lines([modified(&pod("u-1", "n1", 10))]);
    let (server, mirror, _engine) =
        synced_pods([silent, short(), short(), short(), lines([end(17)])]).await;
    server.quorum(page(17, "more", &[]));
    assert_eq!(mirror.refresh().await.expect("reached"), 17);
    let list = &server.requests()[4];
    assert!(list.is_streamed_list());
    assert_eq!(list.get("resourceVersion"), "17");
}

#[tokio::test]
async fn a_refresh_that_takes_too_long_is_an_error() {
    let silent = held([end(9)]);
    let server = Server::start([silent]).await;
    let mut options = options(&PODS);
    options.pauses.refresh = std::time::Duration::from_millis(30);
    let (mirror, _engine) = server.mirror_with(options);
    mirror.synced().await.expect("synced");
    server.quorum(page(17, "", &[]));
    let late = mirror.refresh().await;
    assert!(matches!(late, Err(MirrorError::Behind { seen: 9, wanted: 17 })), "{late:?}");
}

#[tokio::test]
async fn a_stopped_mirror_has_submitted_its_events_and_says_so() {
    let (_, mirror, engine) = synced_nodes([held([added(&node("n1", 5, "4")), end(9)])]).await;
    mirror.stop().await;
    assert_eq!(engine.reader().expect("open").snapshot().node_count(), 1);
    assert!(matches!(mirror.synced().await, Err(MirrorError::Stopped)));
    assert!(matches!(mirror.refresh().await, Err(MirrorError::Stopped)));
}

#[tokio::test]
async fn a_closed_engine_stops_the_mirror() {
    let (sender, reply) = open([added(&node("n1", 5, "4"))]);
    let (_, mirror, engine) = mirrored_nodes([reply]).await;
    engine.close();
    sender.send(end(9)).expect("open");
    assert!(matches!(mirror.synced().await, Err(MirrorError::Stopped)));
}

#[test]
fn a_mirror_needs_a_runtime_and_kinds_that_the_engine_stores() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let api = runtime.block_on(async { Server::start([]).await.api() });
    let start = |resources: &[Resource]| {
        Mirror::start(
            api.clone(),
            Engine::shared(Config::default()),
            std::sync::Arc::default(),
            options(resources),
        )
    };
    assert!(matches!(start(&PODS), Err(MirrorError::NoRuntime)));
    let _guard = runtime.enter();
    assert!(matches!(start(&[Resource::LEASES]), Err(MirrorError::UnknownKind("Lease"))));
}

#[tokio::test]
async fn heartbeats_do_not_reach_the_engine() {
    let node = |version: u32, beat: &str, cpu: u32| {
        format!(
            r#"{{"metadata":{{"name":"n1","uid":"u","resourceVersion":"{version}"}},"status":{{"allocatable":{{"cpu":"{cpu}"}},"conditions":[{{"type":"Ready","lastHeartbeatTime":"{beat}"}}]}}}}"#
        )
    };
    let pod = |version: u32, phase: &str, label: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","namespace":"shop","uid":"u-1","resourceVersion":"{version}","labels":{{"l":"{label}"}}}},"spec":{{"nodeName":"n1","containers":[]}},"status":{{"phase":"{phase}"}}}}"#
        )
    };
    for (resource, first, beat, change) in [
        (Resource::NODES, node(5, "1", 4), node(11, "2", 4), node(12, "2", 8)),
        (Resource::PODS, pod(5, "Pending", "x"), pod(11, "Running", "x"), pod(12, "Running", "y")),
    ] {
        let (server_end, reply) = open([added(&first), end(9)]);
        let (_, mirror, engine) = synced(&[resource], [reply]).await;
        let reader = engine.reader().expect("open");
        let generation = reader.snapshot().generation();
        server_end.send(modified(&beat)).expect("open");
        until("the heartbeat", || mirror.figures()[0].resource_version == 11).await;
        assert_eq!(mirror.figures()[0].unchanged, 1);
        mirror.stop().await;
        assert_eq!(reader.snapshot().generation(), generation, "{}", resource.kind);

        let replies = [added(&first), end(9), modified(&beat), modified(&change)];
        let (_, mirror, engine) = mirrored(&[resource], [held(replies)]).await;
        until("the change", || mirror.figures()[0].resource_version == 12).await;
        assert_eq!(mirror.figures()[0].unchanged, 1);
        mirror.stop().await;
        let snapshot = engine.reader().expect("open").snapshot();
        match snapshot.pod(&"u-1".into()) {
            Some(pod) => assert_eq!(pod.template().labels.get("l"), Some("y")),
            None => assert_eq!(snapshot.node("n1").expect("added").allocatable().cpu.0, 8_000),
        }
    }
}
