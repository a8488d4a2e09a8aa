//! Rules of watching.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

use crate::support::{Next, Stream, client, create_on, node, pod, server, server_with};

fn watch(server: &ApiServer, query: &str) -> Stream {
    client(server).watch(&format!("/api/v1/pods?watch=1&{query}")).unwrap()
}

fn brief(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[test]
fn a_watch_continues_after_its_version() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let version = server.version();
    server.bind("default", "a", "n").unwrap();
    server.create(&pod("b")).unwrap();
    server.create(&node("n")).unwrap();
    server.delete("Pod", "default", "b", &Value::Null).unwrap();
    let mut watch = watch(&server, &format!("resourceVersion={version}"));
    let bound = watch.event();
    assert_eq!(bound["type"], "MODIFIED");
    assert_eq!(bound["object"]["spec"]["nodeName"], "n");
    assert_eq!(bound["object"]["kind"], "Pod");
    assert_eq!(bound["object"]["apiVersion"], "v1");
    assert_eq!(bound["object"]["metadata"]["resourceVersion"], (version + 1).to_string());
    assert_eq!(watch.brief(), brief("ADDED", "b"));
    // The pod is marked as terminating first, in a version of its own.
    assert_eq!(watch.brief().0, "MODIFIED");
    let deleted = watch.event();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], server.version().to_string());
    server.create(&pod("c")).unwrap();
    assert_eq!(watch.brief(), brief("ADDED", "c"));
}

#[test]
fn a_watch_without_a_version_begins_with_all_objects() {
    let server = server();
    server.create(&pod("a")).unwrap();
    for query in ["", "resourceVersion=0"] {
        let mut watch = watch(&server, query);
        assert_eq!(watch.brief(), brief("ADDED", "a"));
        server.patch_status("Pod", "default", "a", &json!({"status": {"message": query}})).unwrap();
        assert_eq!(watch.brief(), brief("MODIFIED", "a"));
    }
}

#[test]
fn a_streaming_list_ends_with_a_bookmark() {
    let server = server();
    for name in ["a", "b"] {
        server.create(&pod(name)).unwrap();
    }
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = watch(&server, query);
    assert_eq!(watch.brief(), brief("ADDED", "a"));
    assert_eq!(watch.brief(), brief("ADDED", "b"));
    let bookmark = watch.event();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "Pod");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], server.version().to_string());
    server.create(&pod("c")).unwrap();
    assert_eq!(watch.brief(), brief("ADDED", "c"));
}

#[test]
fn invalid_parameters_of_a_streaming_list_are_refused() {
    let server = server();
    let code = |query: &str| {
        client(&server)
            .watch(&format!("/api/v1/pods?watch=1&{query}"))
            .err()
            .map(|reply| reply.code)
    };
    assert_eq!(code("sendInitialEvents=true"), Some(422));
    assert_eq!(code("resourceVersionMatch=NotOlderThan"), Some(422));
    assert_eq!(code("sendInitialEvents=true&resourceVersionMatch=Exact"), Some(422));
    assert_eq!(code("resourceVersion=x"), Some(400));
    assert_eq!(code("fieldSelector=x"), Some(400));
    let future = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1000000";
    // The response has begun by then, so the error is in the stream.
    assert_eq!(code(future), None);
}

#[test]
fn a_streaming_list_of_a_reached_version_begins_at_once() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let version = server.version();
    let query = format!(
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={version}"
    );
    assert_eq!(watch(&server, &query).brief(), brief("ADDED", "a"));
}

#[test]
fn objects_that_enter_or_leave_a_selection_are_added_or_deleted() {
    let server = server();
    let version = server.version();
    let mut unassigned =
        watch(&server, &format!("resourceVersion={version}&fieldSelector=spec.nodeName="));
    let mut active = watch(
        &server,
        &format!(
            "resourceVersion={version}&fieldSelector=status.phase!=Succeeded,status.phase!=Failed"
        ),
    );
    create_on(&server, &pod("a"), "n");
    let label = json!({"metadata": {"labels": {"app": "web"}}});
    server.patch("Pod", "default", "a", portolan_apiserver::PatchKind::Merge, &label).unwrap();
    server.patch_status("Pod", "default", "a", &json!({"status": {"phase": "Succeeded"}})).unwrap();
    let last = server.version().to_string();
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    server.create(&pod("b")).unwrap();

    assert_eq!(unassigned.brief(), brief("ADDED", "a"));
    let left = unassigned.event();
    assert_eq!(left["type"], "DELETED");
    // The object before the change, with the version of the change.
    assert_eq!(left["object"]["spec"].get("nodeName"), None);
    assert_eq!(left["object"]["metadata"]["resourceVersion"], (version + 2).to_string());
    assert_eq!(unassigned.brief(), brief("ADDED", "b"));

    assert_eq!(active.brief(), brief("ADDED", "a"));
    assert_eq!(active.brief(), brief("MODIFIED", "a"));
    assert_eq!(active.brief(), brief("MODIFIED", "a"));
    let ended = active.event();
    assert_eq!(ended["type"], "DELETED");
    assert_eq!(ended["object"]["metadata"]["resourceVersion"], json!(last));
    assert_eq!(ended["object"]["status"]["phase"], "Pending");
    assert_eq!(active.brief(), brief("ADDED", "b"));
}

#[test]
fn a_watch_of_a_namespace_sees_no_other() {
    let server = server();
    let version = server.version();
    let path = format!("/api/v1/namespaces/kube-system/pods?watch=1&resourceVersion={version}");
    let mut watch = client(&server).watch(&path).unwrap();
    server.create(&pod("a")).unwrap();
    let mut other = pod("b");
    other["metadata"]["namespace"] = "kube-system".into();
    server.create(&other).unwrap();
    assert_eq!(watch.brief(), brief("ADDED", "b"));
}

#[test]
fn a_watch_from_before_the_cache_gets_an_error_line() {
    let server = server_with(Options { watch_cache: 3, controllers: false, ..Options::default() });
    let version = server.version();
    for name in ["a", "b", "c", "d"] {
        server.create(&pod(name)).unwrap();
    }
    let mut expired = watch(&server, &format!("resourceVersion={version}"));
    let event = expired.event();
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(status["message"], format!("too old resource version: {version} ({})", version + 1));
    assert!(matches!(expired.next(), Next::End(rest) if rest.is_empty()));
    let mut late = watch(&server, &format!("resourceVersion={}", version + 1));
    assert_eq!(late.brief(), brief("ADDED", "b"));
    server.forget_events();
    let mut forgotten = watch(&server, &format!("resourceVersion={}", version + 1));
    assert_eq!(forgotten.event()["object"]["code"], 410);
}

#[test]
fn bookmarks_carry_the_version_of_the_store() {
    let bookmark_every = Duration::from_millis(20);
    let server = server_with(Options { bookmark_every, controllers: false, ..Options::default() });
    let query = format!("resourceVersion={}&allowWatchBookmarks=true", server.version());
    let mut watch = watch(&server, &query);
    server.create(&node("n")).unwrap();
    let version = server.version().to_string();
    let reached = (0..100).any(|_| {
        let event = watch.event();
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(event["object"]["metadata"].get("annotations"), None);
        event["object"]["metadata"]["resourceVersion"] == version
    });
    assert!(reached);
}

#[test]
fn a_watch_without_bookmarks_gets_none() {
    let bookmark_every = Duration::from_millis(5);
    let server = server_with(Options { bookmark_every, controllers: false, ..Options::default() });
    let mut watch = watch(&server, &format!("resourceVersion={}", server.version()));
    watch.client.set_timeout(Duration::from_millis(100));
    assert!(matches!(watch.next(), Next::Broken(std::io::ErrorKind::WouldBlock)));
}

#[test]
fn watches_see_concurrent_writes_once_and_in_order() {
    let server = server();
    for name in 0..20 {
        server.create(&pod(&format!("p{name}"))).unwrap();
    }
    let version = server.version();
    let mut watches: Vec<_> =
        (0..3).map(|_| watch(&server, &format!("resourceVersion={version}"))).collect();
    let writes = 50;
    std::thread::scope(|scope| {
        for name in 0..20 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..writes {
                    let patch = json!({"status": {"message": round.to_string()}});
                    server.patch_status("Pod", "default", &format!("p{name}"), &patch).unwrap();
                }
            });
        }
    });
    for watch in &mut watches {
        let versions: Vec<u64> = (0..20 * writes)
            .map(|_| {
                watch.event()["object"]["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        let expected: Vec<u64> = (version + 1..=server.version()).collect();
        assert_eq!(versions, expected);
    }
}

#[test]
fn a_stalled_cache_serves_old_versions_until_it_catches_up() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let mut running = watch(&server, &format!("resourceVersion={}", server.version()));
    server.stall_cache("Pod").unwrap();
    let then = server.version();
    server.create(&pod("b")).unwrap();
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    // Other kinds are not affected.
    let mut nodes =
        client(&server).watch(&format!("/api/v1/nodes?watch=1&resourceVersion={then}")).unwrap();
    server.create(&node("n")).unwrap();
    assert_eq!(nodes.brief(), brief("ADDED", "n"));

    let list = client(&server).get("/api/v1/pods").body;
    assert_eq!(list["metadata"]["resourceVersion"], server.version().to_string());
    assert_eq!(watch(&server, "resourceVersion=0").brief(), brief("ADDED", "a"));
    let mut ahead = watch(&server, &format!("resourceVersion={}", server.version() - 1));
    running.client.set_timeout(Duration::from_millis(50));
    assert!(matches!(running.next(), Next::Broken(std::io::ErrorKind::WouldBlock)));

    server.resume_cache("Pod").unwrap();
    running.client.set_timeout(Duration::from_secs(30));
    assert_eq!(running.brief(), brief("ADDED", "b"));
    assert_eq!(running.brief(), brief("MODIFIED", "a"));
    assert_eq!(running.brief(), brief("DELETED", "a"));
    server.create(&pod("c")).unwrap();
    assert_eq!(ahead.brief(), brief("ADDED", "c"));
    assert!(server.stall_cache("Widget").is_err());
}

#[test]
fn a_streaming_list_waits_for_a_stalled_cache() {
    let server = server();
    server.stall_cache("pods").unwrap();
    server.create(&pod("a")).unwrap();
    std::thread::scope(|scope| {
        let query =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let fresh = scope.spawn(|| watch(&server, query).brief());
        let any = watch(&server, &format!("{query}&resourceVersion=0")).brief();
        assert_eq!(any, brief("BOOKMARK", ""));
        server.resume_cache("pods").unwrap();
        assert_eq!(fresh.join().unwrap(), brief("ADDED", "a"));
    });
}

#[test]
fn a_watch_sends_a_bookmark_shortly_before_its_end() {
    let server = server_with(Options { controllers: false, ..Options::default() });
    let query = format!("resourceVersion={}&allowWatchBookmarks=true", server.version());
    let mut watch = watch(&server, &format!("{query}&timeoutSeconds=3"));
    server.create(&node("n")).unwrap();
    let event = watch.event();
    assert_eq!(event["type"], "BOOKMARK");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], server.version().to_string());
    assert!(matches!(watch.next(), Next::End(rest) if rest.is_empty()));
}
