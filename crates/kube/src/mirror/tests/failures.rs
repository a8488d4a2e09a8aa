//! Watches that end, fail or contain objects that cannot be read.

use std::time::Duration;

use super::server::*;
use crate::api::Resource;
use crate::mirror::KindStatus;

const NODES: [Resource; 1] = [Resource::NODES];

#[tokio::test]
async fn a_watch_that_ends_is_resumed_from_the_last_event() {
    let (server, mirror, engine) = mirrored_nodes([
        lines([end(9), added(&node("n1", 12, "4"))]),
        held([added(&node("n2", 15, "4"))]),
    ])
    .await;
    until("the second watch", || mirror.figures()[0].resource_version == 15).await;
    let resumed = &server.requests()[1];
    assert_eq!((resumed.get("watch"), resumed.get("resourceVersion")), ("true", "12"));
    assert_eq!(resumed.get("allowWatchBookmarks"), "true");
    assert!(!resumed.is_streamed_list());
    until("both nodes", || engine.reader().is_ok_and(|r| r.snapshot().node_count() == 2)).await;
    let figures = &mirror.figures()[0];
    assert_eq!((figures.relists, figures.watch_errors), (1, 0));
}

#[tokio::test]
async fn a_bookmark_moves_the_version_from_which_a_watch_is_resumed() {
    let (server, _mirror, _engine) = mirrored_nodes([lines([end(9), bookmark(70)])]).await;
    until("the second watch", || server.requests().len() == 2).await;
    assert_eq!(server.requests()[1].get("resourceVersion"), "70");
}

#[tokio::test]
async fn every_410_and_a_version_that_is_too_large_list_again() {
    let expired = "too old resource version: 9 (30)";
    let too_large = "Too large resource version: 9, current: 3";
    for (case, reply) in [
        ("status", refusal(410, "Gone", expired)),
        ("reason", refusal(400, "Expired", expired)),
        ("line", lines([event("ERROR", &status(410, "Gone", expired))])),
        ("expired line", lines([event("ERROR", &status(500, "Expired", expired))])),
        ("too large", refusal(504, "Timeout", too_large)),
        ("too large line", lines([event("ERROR", &status(504, "Timeout", too_large))])),
    ] {
        let (server, mirror, engine) = mirrored_nodes([
            lines([added(&node("gone", 5, "4")), end(9), bookmark(9)]),
            reply,
            held([added(&node("n1", 31, "4")), end(33)]),
        ])
        .await;
        until(case, || mirror.figures()[0].relists == 2).await;
        let again = &server.requests()[2];
        assert!(again.is_streamed_list(), "{case}");
        assert_eq!(again.get("resourceVersion"), "", "{case}");
        let version = engine.reader().expect("open").snapshot();
        assert!(version.node("gone").is_none() && version.node("n1").is_some(), "{case}");
    }
}

#[tokio::test]
async fn a_failure_of_the_server_resumes_without_a_list() {
    for (case, reply) in [
        ("status", refusal(500, "InternalError", "etcd has no leader")),
        ("throttled", refusal(429, "TooManyRequests", "try again later")),
        ("line", lines([event("ERROR", &status(500, "InternalError", "etcd has no leader"))])),
        ("silence", lines([""; 0])),
    ] {
        let (server, mirror, _engine) = mirrored_nodes([
            lines([added(&node("n1", 5, "4")), end(9), bookmark(9)]),
            reply,
            held([added(&node("n2", 12, "4"))]),
        ])
        .await;
        until(case, || mirror.figures()[0].resource_version == 12).await;
        assert_eq!(server.requests()[2].get("resourceVersion"), "9", "{case}");
        let figures = &mirror.figures()[0];
        assert_eq!((figures.relists, figures.watch_errors), (1, 1), "{case}");
        assert!(figures.last_error.is_some(), "{case}");
    }
}

#[tokio::test]
async fn a_line_that_is_not_json_lists_again_at_least_as_new() {
    let (server, mirror, _engine) = mirrored_nodes([
        lines([end(9), bookmark(11), "{\"type\":\"ADDED\",\"object\":{".to_owned()]),
        held([added(&node("n1", 12, "4")), end(13)]),
    ])
    .await;
    until("the second list", || mirror.figures()[0].relists == 2).await;
    let again = &server.requests()[1];
    assert!(again.is_streamed_list());
    assert_eq!(again.get("resourceVersion"), "11");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_skipped_and_the_watch_goes_on() {
    let (_, mirror, engine) = mirrored_nodes([held([
        added(&node("n1", 5, "4")),
        end(9),
        modified(&node("n1", 10, "many")),
        added(&node("n2", 11, "4")),
    ])])
    .await;
    until("the last event", || mirror.figures()[0].resource_version == 11).await;
    until("both nodes", || engine.reader().is_ok_and(|r| r.snapshot().node_count() == 2)).await;
    let version = engine.reader().expect("open").snapshot();
    assert_eq!(version.node("n1").expect("kept").allocatable().cpu.0, 4_000);
    let figures = &mirror.figures()[0];
    assert_eq!((figures.skipped, figures.watch_errors, figures.relists), (1, 0, 1));
}

#[tokio::test]
async fn a_page_with_an_object_that_cannot_be_read_is_applied_without_it() {
    let (_, mirror, engine) = synced_nodes([
        refusal(422, "Invalid", "no"),
        page(40, "", &[node("n1", 5, "4"), node("n2", 6, "many"), node("n3", 7, "4")]),
    ])
    .await;
    assert_eq!(engine.reader().expect("open").snapshot().node_count(), 2);
    assert_eq!(mirror.figures()[0].skipped, 1);
}

#[tokio::test]
async fn a_kind_that_is_not_served_does_not_delay_readiness_and_is_asked_again() {
    let (server, mirror, _engine) = mirrored(
        &[Resource::CSI_STORAGE_CAPACITIES],
        [
            refusal(404, "NotFound", "the server could not find the requested resource"),
            refusal(404, "NotFound", "the server could not find the requested resource"),
        ],
    )
    .await;
    mirror.synced().await.expect("ready without the kind");
    assert_eq!(mirror.figures()[0].status, KindStatus::NotServed);
    server.then(lines([end(9)]));
    until("the kind", || mirror.figures()[0].status == KindStatus::Synced).await;
    assert!(server.requests()[2].is_streamed_list());
}

#[tokio::test]
async fn a_kind_that_is_forbidden_delays_readiness_until_it_is_allowed() {
    let message = "nodes is forbidden: User cannot watch";
    let server =
        Server::start([refusal(403, "Forbidden", message), refusal(403, "Forbidden", message)])
            .await;
    let mut options = options(&NODES);
    // Not as rarely as a kind that is not served.
    options.pauses.slow = Duration::from_secs(3600);
    let (mirror, _engine) = server.mirror_with(options);
    until("the second refusal", || mirror.figures()[0].watch_errors == 2).await;
    assert_eq!(mirror.figures()[0].status, KindStatus::Forbidden);
    assert!(!mirror.is_synced());
    assert_eq!(mirror.figures()[0].last_error.as_deref(), Some(message));
    server.then(lines([end(9)]));
    mirror.synced().await.expect("allowed");
}
