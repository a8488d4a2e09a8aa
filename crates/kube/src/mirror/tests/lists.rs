//! Lists: streamed, paginated, and repeated.

use std::time::Duration;

use portolan::cache::Engine;

use super::server::*;
use crate::api::Resource;

const NODES: [Resource; 1] = [Resource::NODES];

fn names(engine: &Engine) -> Vec<String> {
    let version = engine.reader().expect("open").snapshot();
    let mut names: Vec<_> = version.nodes().map(|node| node.name().to_string()).collect();
    names.sort_unstable();
    names
}

/// The event that makes a mirror list again.
fn expired() -> String {
    event("ERROR", &status(410, "Expired", "too old resource version: 9 (30)"))
}

#[tokio::test]
async fn a_streamed_list_is_applied_at_its_end() {
    let (sender, reply) = open([added(&node("n1", 5, "4")), added(&node("n2", 3, "4"))]);
    let (_, mirror, engine) = mirrored_nodes([reply]).await;
    until("a line is read", || mirror.figures()[0].age.is_some()).await;
    assert!(!mirror.is_synced());
    assert_eq!(names(&engine), [""; 0]);
    sender.send(end(9)).expect("the stream is open");
    mirror.synced().await.expect("synced");
    assert_eq!(names(&engine), ["n1", "n2"]);
    let figures = &mirror.figures()[0];
    assert_eq!((figures.objects, figures.relists, figures.resource_version), (2, 1, 9));
}

#[tokio::test]
async fn the_first_request_asks_for_a_consistent_streamed_list() {
    let (server, _mirror, _engine) = synced_pods([lines([end(9)])]).await;
    let request = &server.requests()[0];
    assert_eq!(request.path, "/api/v1/pods");
    let seconds: u64 = request.get("timeoutSeconds").parse().expect("a number");
    assert!((242..=290).contains(&seconds), "{seconds}");
    for (name, value) in [
        ("watch", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", ""),
        ("fieldSelector", "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"),
    ] {
        assert_eq!(request.query.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_server_without_streamed_lists_is_asked_for_pages() {
    let (server, mirror, engine) = synced_nodes([
        refusal(422, "Invalid", "sendInitialEvents is forbidden for watch"),
        page(40, "token", &[node("n1", 5, "4")]),
        page(40, "", &[node("n2", 3, "4")]),
        held([modified(&node("n1", 41, "8"))]),
    ])
    .await;
    assert_eq!(names(&engine), ["n1", "n2"]);
    until("the watch", || mirror.figures()[0].resource_version == 41).await;
    let requests = server.requests();
    assert_eq!((requests[1].get("limit"), requests[1].get("continue")), ("500", ""));
    assert_eq!((requests[2].get("limit"), requests[2].get("continue")), ("500", "token"));
    assert_eq!((requests[3].get("watch"), requests[3].get("resourceVersion")), ("true", "40"));
    assert!(!requests[3].is_streamed_list());
}

#[tokio::test]
async fn an_expired_page_leads_to_a_list_of_one_page() {
    let (server, mirror, engine) = synced_nodes([
        refusal(400, "BadRequest", "unknown parameter"),
        page(40, "token", &[node("gone", 5, "4")]),
        refusal(410, "Expired", "The provided continue parameter is too old"),
        page(50, "", &[node("n1", 45, "4")]),
    ])
    .await;
    assert_eq!(names(&engine), ["n1"]);
    let requests = server.requests();
    assert_eq!((requests[3].get("limit"), requests[3].get("continue")), ("0", ""));
    assert_eq!(mirror.figures()[0].resource_version, 50);
}

#[tokio::test]
async fn a_streamed_list_that_never_ends_is_replaced_by_pages() {
    let silent = held([added(&node("n1", 5, "4"))]);
    let server = Server::start([silent, page(40, "", &[node("n2", 3, "4")])]).await;
    let mut options = options(&NODES);
    options.pauses.list_silence = Duration::from_millis(50);
    let (mirror, engine) = server.mirror_with(options);
    mirror.synced().await.expect("synced");
    assert_eq!(names(&engine), ["n2"]);
}

#[tokio::test]
async fn a_streamed_list_that_breaks_off_starts_anew() {
    let (_, mirror, engine) = synced_nodes([
        lines([added(&node("gone", 5, "4"))]),
        lines([added(&node("n1", 5, "4")), end(9)]),
    ])
    .await;
    assert_eq!(names(&engine), ["n1"]);
    let figures = &mirror.figures()[0];
    assert_eq!((figures.relists, figures.watch_errors), (1, 1));
}

#[tokio::test]
async fn changes_within_a_streamed_list_count() {
    let (_, _mirror, engine) = synced_nodes([lines([
        added(&node("n1", 5, "4")),
        added(&node("n2", 6, "4")),
        modified(&node("n1", 7, "8")),
        deleted(&node("n2", 8, "4")),
        end(9),
    ])])
    .await;
    assert_eq!(names(&engine), ["n1"]);
    let version = engine.reader().expect("open").snapshot();
    assert_eq!(version.node("n1").expect("listed").allocatable().cpu.0, 8_000);
}

#[tokio::test]
async fn a_relist_removes_what_is_gone_and_keeps_what_cannot_be_read() {
    let (_, mirror, engine) = mirrored_nodes([
        lines([
            added(&node("n1", 5, "4")),
            added(&node("n2", 6, "4")),
            added(&node("n3", 7, "4")),
            end(9),
            expired(),
        ]),
        held([added(&node("n1", 31, "8")), added(&node("n2", 32, "many")), end(33)]),
    ])
    .await;
    until("the second list", || mirror.figures()[0].relists == 2).await;
    assert_eq!(names(&engine), ["n1", "n2"]);
    let version = engine.reader().expect("open").snapshot();
    let cpu = |name| version.node(name).expect("listed").allocatable().cpu.0;
    assert_eq!((cpu("n1"), cpu("n2")), (8_000, 4_000));
    assert_eq!((mirror.figures()[0].skipped, mirror.figures()[0].objects), (1, 2));
}

#[tokio::test]
async fn an_empty_list_may_have_null_items() {
    let body = r#"{"kind":"NodeList","metadata":{"resourceVersion":"7"},"items":null}"#;
    let (_, _mirror, engine) =
        synced_nodes([refusal(422, "Invalid", "no"), Reply::Json(200, body.to_owned())]).await;
    assert_eq!(names(&engine), [""; 0]);
}

#[tokio::test]
async fn an_object_without_a_name_keeps_a_list_from_removing_others() {
    let nameless = r#"{"metadata":{"resourceVersion":"31"},"status":{"allocatable":{"cpu":"4"}}}"#;
    let unreadable =
        r#"{"metadata":{"resourceVersion":"32"},"status":{"allocatable":{"cpu":"many"}}}"#;
    for partial in [nameless, unreadable] {
        let (_, mirror, engine) = mirrored_nodes([
            lines([added(&node("n1", 5, "4")), end(9), expired()]),
            held([added(partial), added(&node("n2", 32, "4")), end(33)]),
        ])
        .await;
        until("the second list", || mirror.figures()[0].relists == 2).await;
        assert_eq!(names(&engine), ["n1", "n2"]);
        assert_eq!((mirror.figures()[0].skipped, mirror.figures()[0].objects), (1, 2));
    }
}

#[tokio::test]
async fn a_relist_of_pods_keeps_those_that_cannot_be_read() {
    let many = |uid: &str, version: u64| {
        pod_with(uid, version, r#""nodeName":"n1""#, "").replace("100m", "many")
    };
    let without_uid = pod("", "n1", 33);
    for (skipped, expected) in
        [(many("u-1", 32), ["u-1"].as_slice()), (without_uid, &["u-1", "u-2"])]
    {
        let (_, mirror, engine) = mirrored(
            &[Resource::PODS],
            [
                lines([
                    added(&pod("u-1", "n1", 5)),
                    added(&pod("u-2", "n1", 6)),
                    end(9),
                    expired(),
                ]),
                held([added(&skipped), end(40)]),
            ],
        )
        .await;
        until("the second list", || mirror.figures()[0].relists == 2).await;
        let version = engine.reader().expect("open").snapshot();
        let known = |uid: &&str| version.pod(&(**uid).into()).is_some();
        let found: Vec<&str> = ["u-1", "u-2", ""].into_iter().filter(known).collect();
        assert_eq!(found, expected);
        assert_eq!(mirror.figures()[0].skipped, 1);
        assert_eq!(mirror.pods().len(), expected.len());
    }
}
