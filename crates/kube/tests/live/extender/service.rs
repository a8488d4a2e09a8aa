//! Portolan's own service.

use serde_json::{Value, json};

use super::world::{answering, ask, portolan, post, post_with, stop, unready};
use crate::support::{self, address, node, node_of, pod, runtime};

#[test]
fn the_service_answers_nothing_before_the_first_lists_are_applied() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    server.pause();
    let (own, served) = unready(&runtime, &server, true);
    let at = address(&served);
    let mut wanted = pod("web", 100);
    wanted["metadata"]["uid"] = json!("u");
    let names = json!({"Pod": wanted, "NodeNames": ["n1"]});
    for verb in ["filter", "prioritize", "preempt", "bind"] {
        let answer = post(at, verb, &names.to_string());
        assert!(answer.starts_with("HTTP/1.1 503 "), "{verb}: {answer}");
        assert!(answer.ends_with(r#"{"Error":"the first lists are not applied yet"}"#), "{answer}");
    }
    server.resume();
    runtime.block_on(own.live.mirror().synced()).expect("synced");
    assert_eq!(ask(at, "filter", &names)["NodeNames"], json!(["n1"]));
    drop(served);
    stop(runtime, own);
}

#[test]
fn web_pages_cannot_bind_pods() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    let uid = server.create(&pod("web", 100)).expect("created")["metadata"]["uid"].clone();
    let (own, served) = portolan(&runtime, &server, true);
    let at = address(&served);
    let binding = json!({"PodName": "web", "PodNamespace": "default", "PodUID": uid, "Node": "n1"});
    let (host, json) = ("Host: localhost\r\n", "Content-Type: application/json\r\n");
    for (headers, code) in [
        (format!("{host}Content-Type: text/plain\r\nOrigin: https://evil.example\r\n"), 403),
        (format!("{host}{json}Origin: https://evil.example\r\n"), 403),
        (format!("{host}{json}Origin: null\r\n"), 403),
        (format!("Host: evil.example\r\n{json}"), 403),
        (json.to_owned(), 403),
        (format!("{host}Content-Type: text/plain\r\n"), 415),
        (format!("{host}Content-Type: text/plain; application/json\r\n"), 415),
        (format!("{host}Content-Type: application/jsonx\r\n"), 415),
        (format!("{host}{json}Origin:\r\n"), 403),
        (host.to_owned(), 415),
    ] {
        for verb in ["filter", "prioritize", "preempt", "bind"] {
            let answer = post_with(at, verb, &headers, &binding.to_string());
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {code} ")),
                "{verb}, {headers}: {answer}"
            );
        }
    }
    assert_eq!(node_of(&server, "web"), None);
    let json = "Content-Type: Application/JSON ; charset=utf-8\r\n";
    let bound = post_with(at, "bind", &format!("{host}{json}"), &binding.to_string());
    assert!(bound.ends_with(r#"{"Error":""}"#), "{bound}");
    assert_eq!(node_of(&server, "web").as_deref(), Some("n1"));
    drop(served);
    stop(runtime, own);
}

#[test]
fn the_service_filters_scores_and_preempts_by_the_mirror() {
    let (runtime, server) = (runtime(), support::server());
    for (name, cpu) in [("n1", 1_000), ("n2", 2_000), ("n3", 50)] {
        server.create(&node(name, cpu)).expect("created");
    }
    let mut low = pod("low", 950);
    low["spec"]["nodeName"] = json!("n1");
    let low = server.create(&low).expect("created")["metadata"]["uid"].clone();
    let (own, served) = portolan(&runtime, &server, false);
    let at = address(&served);
    let mut wanted = pod("web", 100);
    wanted["metadata"]["uid"] = json!("u");
    wanted["spec"]["priority"] = json!(10);
    let names = json!({"Pod": wanted, "NodeNames": ["n1", "n2", "n3", "n9"]});
    let expected = json!({
        "NodeNames": ["n2"], "Nodes": null, "Error": "",
        "FailedNodes": {"n1": "Insufficient cpu"},
        "FailedAndUnresolvableNodes": {"n3": "Insufficient cpu", "n9": "node(s) unknown to the extender"},
    });
    assert_eq!(ask(at, "filter", &names), expected);
    let items =
        ["n2", "n3"].map(|name| json!({"metadata": {"name": name, "labels": {"kept": "as sent"}}}));
    let nodes = json!({"Pod": wanted, "Nodes": {"items": items}});
    let answer = ask(at, "filter", &nodes);
    assert_eq!(answer["Nodes"]["items"], json!([items[0]]));
    assert_eq!(&answer["NodeNames"], &Value::Null);
    let scores = ask(at, "prioritize", &names);
    let score = |at: usize| scores[at]["Score"].as_i64().expect("a score");
    assert_eq!(scores[1]["Host"], "n2");
    assert_eq!((score(1), score(3)), (10, 0), "{scores}");
    let victims = json!({"Pods": [{"UID": low}], "NumPDBViolations": 1});
    let nothing = json!({"Pods": [], "NumPDBViolations": 0});
    let asked = json!({"Pod": wanted, "NodeNameToMetaVictims": {"n1": victims, "n3": nothing, "n9": nothing}});
    assert_eq!(ask(at, "preempt", &asked), json!({"NodeNameToMetaVictims": {"n1": victims}}));
    let binding = json!({"PodName": "web", "PodNamespace": "default", "PodUID": "u", "Node": "n1"});
    let refused = "bindings are not allowed: start the extender with --allow-bind";
    assert_eq!(ask(at, "bind", &binding), json!({"Error": refused}));
    for (verb, body, code, why) in [
        ("filter", "{", 400, "EOF"),
        ("filter", "", 400, "EOF"),
        ("filter", "[1]", 400, "an object"),
        ("filter", r#"{"NodeNames":[]}"#, 400, "Pod is missing"),
        ("filter", r#"{"Pod":{"spec":{"overhead":{"cpu":"x"}}},"NodeNames":[]}"#, 400, "Pod: "),
        (
            "prioritize",
            r#"{"Pod":{"metadata":{"name":"p","uid":"u"}}}"#,
            400,
            "NodeNames or Nodes is missing",
        ),
        ("preempt", r#"{"Pod":{"metadata":{"name":"p","uid":"u"}}}"#, 400, "NodeNameToMetaVictims"),
        (
            "bind",
            r#"{"PodName":"../nodes","PodNamespace":"d","PodUID":"u","Node":"n"}"#,
            400,
            "PodName: ",
        ),
        ("bind", r#"{"PodName":"p","PodNamespace":"d","Node":"n"}"#, 400, "PodUID is missing"),
    ] {
        let answer = post(at, verb, body);
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        let error: Value = serde_json::from_str(body).expect("JSON");
        assert!(
            error["Error"].as_str().is_some_and(|error| error.contains(why)),
            "{why}: {answer}"
        );
    }
    let large = format!("{{\"Pod\":{{}},\"NodeNames\":[\"{}\"]}}", "n".repeat(2 << 20));
    // The connection may be reset before the answer is read, but not by a service that has read everything.
    post(at, "filter", &large);
    let strict = answering(&runtime, &own, false, 64);
    let answer = post(address(&strict), "filter", &names.to_string());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    drop(strict);
    assert_eq!(ask(at, "filter", &names), expected, "it still answers");
    drop(served);
    stop(runtime, own);
}
