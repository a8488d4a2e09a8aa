//! The client against services that misbehave.

use std::collections::BTreeMap;
use std::net::TcpListener;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::stub::{Answer, Service, extender};
use super::world::{outcome, schedule, stop};
use crate::support::{self, create_class, find, high_pod, node, node_of, pod, runtime, until};

#[test]
fn names_or_whole_nodes_are_sent_and_failures_have_kube_schedulers_message() {
    for is_capable in [true, false] {
        let service = Service::start(|_, _| {
            Answer::Json(json!({
                "NodeNames": [], "Nodes": {"items": []}, "Error": "",
                "FailedNodes": {"n1": "no license"}, "FailedAndUnresolvableNodes": {"n2": "no slot"},
            }))
        });
        let fields = format!("filterVerb: filter, nodeCacheCapable: {is_capable}");
        let (reason, message) = outcome(&service.extender(&fields)).expect_err("rejected");
        assert_eq!(
            (&*reason, &*message),
            (
                "Unschedulable",
                "0/2 nodes are available: 1 no license, 1 no slot. no new claims to deallocate, preemption: 0/2 \
                 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not \
                 helpful for scheduling."
            )
        );
        let request = service.requests("filter").swap_remove(0);
        assert_eq!(request["Pod"]["metadata"]["name"], "web");
        assert_eq!(request["Pod"]["spec"]["containers"][0]["image"], "pause");
        let text = |value: &Value| value.as_str().expect("a name").to_owned();
        let names: Vec<String> = match is_capable {
            true => {
                assert_eq!(request["Nodes"], Value::Null);
                request["NodeNames"].as_array().expect("names").iter().map(text).collect()
            }
            false => {
                assert_eq!(request["NodeNames"], Value::Null);
                let nodes = request["Nodes"]["items"].as_array().expect("nodes");
                assert_eq!(nodes[0]["status"]["allocatable"]["memory"], "64Gi");
                nodes.iter().map(|node| text(&node["metadata"]["name"])).collect()
            }
        };
        assert_eq!(names, ["n1", "n2"]);
    }
}

#[test]
fn a_service_that_misbehaves_fails_the_attempt_unless_it_is_ignorable() {
    type Act = fn(&str, &Value) -> Answer;
    let cases: [(Act, &str); 9] = [
        (
            |_, _| Answer::Text("500 Oops", String::new()),
            "failed filter with extender at URL {}, code 500",
        ),
        (
            |_, _| Answer::Text("302 Found", String::new()),
            "failed filter with extender at URL {}, code 302",
        ),
        (|_, _| Answer::Text("200 OK", "{\"NodeNames\":[\"n1\"".to_owned()), "unexpected EOF"),
        (|_, _| Answer::Break("{\"NodeNames\":["), "unexpected EOF"),
        (|_, _| Answer::Text("200 OK", "\n".to_owned()), "EOF"),
        (
            |_, _| Answer::Json(json!({"NodeNames": ["n1", "n9"]})),
            "extender \"PREFIX\" claims a filtered node \"n9\" which is not found in the input node list",
        ),
        (|_, _| Answer::Json(json!({"error": "out of licenses"})), "out of licenses"),
        (
            |_, _| Answer::Hang,
            "Post \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        ),
        (
            |_, _| Answer::Stall,
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
        ),
    ];
    for (act, expected) in cases {
        let service = Service::start(act);
        let prefix = format!("http://{}/v/", service.address);
        let expected =
            expected.replace("{}", &format!("{prefix}filter")).replace("PREFIX", &prefix);
        let fields = "filterVerb: filter, nodeCacheCapable: true";
        let (reason, message) = outcome(&service.extender(fields)).expect_err("failed");
        assert_eq!((&*reason, message), ("SchedulerError", expected));
    }
    for (act, what) in [cases[0], cases[7]] {
        let service = Service::start(act);
        let ignorable = service.extender("filterVerb: filter, ignorable: true");
        assert!(outcome(&ignorable).is_ok(), "{what}");
        assert_eq!(service.requests("filter").len(), 1);
    }
    // No service listens there.
    let unused =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let (_, message) = outcome(&extender(unused, "filterVerb: filter")).expect_err("failed");
    assert!(message.starts_with(&format!("Post \"http://{unused}/v/filter\": ")), "{message}");
    assert!(message.contains("refused"), "{message}");
}

#[test]
fn credentials_of_the_address_are_sent_and_not_shown() {
    let service = Service::start(|_, _| Answer::Text("403 Forbidden", String::new()));
    let configuration =
        service.extender("filterVerb: filter").replace("http://", "http://user:secret@");
    let (_, message) = outcome(&configuration).expect_err("failed");
    let url = format!("http://user:***@{}/v/filter", service.address);
    assert_eq!(message, format!("failed filter with extender at URL {url}, code 403"));
    // Headers are compared in lower case.
    let value = STANDARD.encode("user:secret").to_ascii_lowercase();
    assert_eq!(service.requests(&format!("filter basic {value}")).len(), 1);
}

#[test]
fn scores_decide_and_failures_are_left_out() {
    let scored = |score: i64| {
        let service = Service::start(move |_, _| {
            Answer::Json(json!([{"Host": "n2", "Score": score}, {"Host": "n9", "Score": 10}]))
        });
        outcome(
            &service.extender("prioritizeVerb: prioritize, weight: 100, nodeCacheCapable: true"),
        )
    };
    assert_eq!(scored(10).as_deref(), Ok("n2"));
    // Scores out of range are used unchanged.
    assert_eq!(scored(i64::MAX).as_deref(), Ok("n2"));
    assert_eq!(scored(-1).as_deref(), Ok("n1"));
    let service = Service::start(|_, _| Answer::Text("200 OK", "{}".to_owned()));
    assert!(outcome(&service.extender("prioritizeVerb: prioritize, weight: 1")).is_ok());
    assert_eq!(service.requests("prioritize").len(), 1);
}

#[test]
fn only_pods_with_a_managed_resource_are_sent() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    let service = Service::start(|_, body| Answer::Json(json!({"NodeNames": body["NodeNames"]})));
    let managed = "managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]";
    let fields = format!("filterVerb: filter, nodeCacheCapable: true, {managed}");
    let process = schedule(&runtime, &server, &service.extender(&fields));
    server.create(&pod("plain", 100)).expect("created");
    let mut wanting = pod("wanting", 100);
    // No node has the resource, but only the extender decides about it.
    wanting["spec"]["containers"][0]["resources"]["limits"] = json!({"example.com/gpu": "1"});
    wanting["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
    server.create(&wanting).expect("created");
    let is_bound = |name: &str| node_of(&server, name).is_some();
    runtime.block_on(until("both bound", || is_bound("plain") && is_bound("wanting")));
    let requests = service.requests("filter");
    assert!(requests.iter().all(|request| request["Pod"]["metadata"]["name"] == "wanting"));
    assert_eq!(requests.len(), 1);
    stop(runtime, process);
}

#[test]
fn an_extender_chooses_the_victims() {
    for is_capable in [true, false] {
        let (runtime, server) = (runtime(), support::server());
        create_class(&server, "middle", 10);
        create_class(&server, "high", 1_000);
        let mut uids = BTreeMap::new();
        for (at, name) in ["n1", "n2"].into_iter().enumerate() {
            server.create(&node(name, 1_000)).expect("created");
            let mut low = pod(&format!("low-{name}"), 1_000);
            low["spec"]["nodeName"] = json!(name);
            if at == 1 {
                low["spec"]["priorityClassName"] = json!("middle");
            }
            let created = server.create(&low).expect("created");
            uids.insert(name, created["metadata"]["uid"].clone());
        }
        let second = uids["n2"].clone();
        let service = Service::start(move |_, _| {
            let victims = json!({"Pods": [{"UID": second}], "NumPDBViolations": 0});
            Answer::Json(json!({"NodeNameToMetaVictims": {"n2": victims}}))
        });
        server.create(&high_pod("high", 500)).expect("created");
        let fields = format!("preemptVerb: preempt, nodeCacheCapable: {is_capable}");
        let process = schedule(&runtime, &server, &service.extender(&fields));
        runtime.block_on(until("preempted", || node_of(&server, "high").is_some()));
        // Without the extender, the victim would be the pod of the lowest priority, on n1.
        assert_eq!(node_of(&server, "high").as_deref(), Some("n2"));
        assert_eq!(find(&server, "low-n2"), Value::Null);
        let request = service.requests("preempt").swap_remove(0);
        let (meta, whole) = (&request["NodeNameToMetaVictims"], &request["NodeNameToVictims"]);
        match is_capable {
            true => {
                assert_eq!(
                    meta["n1"],
                    json!({"Pods": [{"UID": uids["n1"]}], "NumPDBViolations": 0})
                );
                assert_eq!(whole, &Value::Null);
            }
            false => {
                assert_eq!(whole["n1"]["Pods"][0]["metadata"]["name"], "low-n1");
                assert_eq!(meta, &Value::Null);
            }
        }
        stop(runtime, process);
    }
}

#[test]
fn a_binding_that_an_extender_refuses_fails() {
    let refusing = Service::start(|_, _| Answer::Json(json!({"Error": "not today"})));
    let (reason, message) = outcome(&refusing.extender("bindVerb: bind")).expect_err("refused");
    assert_eq!((&*reason, &*message), ("SchedulerError", "not today"));
    // If the extender is ignorable, the scheduler binds.
    let ignorable = refusing.extender("bindVerb: bind, ignorable: true");
    assert!(outcome(&ignorable).is_ok());
}
