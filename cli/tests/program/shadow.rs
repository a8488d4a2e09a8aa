//! `portolan shadow` against an API server in memory, as a process.

use portolan_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::common::{file, portolan};
use crate::live;
use crate::running::{self, Running, create_pod};

fn cluster() -> ApiServer {
    running::cluster(&[("large", "16"), ("small", "1")])
}

fn create(server: &ApiServer, name: &str) {
    create_pod(server, name, "500m", json!({}));
}

/// Starts a shadow and waits until it observes.
fn shadow(server: &ApiServer, arguments: &[&str]) -> Running {
    let url = server.url();
    let mut all = vec!["shadow", "--master", &url, "--window", "100ms"];
    all.extend(arguments);
    let mut running = Running::start(&all);
    running.wait_for("observing default-scheduler");
    running
}

#[test]
fn a_disagreement_is_printed_with_both_nodes_and_ends_with_status_1() {
    let server = cluster();
    let export = file("shadow", "pods.jsonl", b"old");
    let running = shadow(&server, &["--pods", "2", "--export", &export]);
    for (name, node) in [("good", "large"), ("bad", "small")] {
        create(&server, name);
        server.bind("default", name, node).expect("bound");
    }
    let run = running.end();
    assert_eq!(run.code, 1, "{}", run.out);
    for expected in [
        "pod default/bad, small by default-scheduler: disagreed",
        "2 of 2 nodes feasible, 1 with the highest score",
        "small (theirs)",
        "large (best)",
        "NodeResourcesFit",
        "shadow of default-scheduler: 2 pods in",
        "agreement            50.0 %, with explained 50.0 %",
        "pending to bound",
        "portolan's decision",
    ] {
        assert!(run.out.contains(expected), "{expected:?} is not in\n{}", run.out);
    }
    let lines = std::fs::read_to_string(export).expect("written");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "the old content is replaced");
    assert_eq!(
        (&lines[0]["pod"], &lines[0]["verdict"], &lines[0]["node"]),
        (&json!("default/good"), &json!("agreed"), &json!("large"))
    );
    assert_eq!((&lines[1]["verdict"], &lines[1]["feasible"]), (&json!("disagreed"), &json!(2)));
    let fit = |side: &str| lines[1][side]["plugins"]["NodeResourcesFit"]["weighted"].as_i64();
    assert!(fit("theirs").expect("scored") < fit("best").expect("scored"));
    let own = server.writes().iter().all(|write| write.user_agent == "direct");
    assert!(own, "the shadow writes nothing");
}

#[test]
fn decisions_of_portolan_run_agree() {
    let server = cluster();
    let running = shadow(&server, &["--pods", "20", "--output", "json"]);
    let scheduler = live::run(&server, &["--leader-elect=false"]);
    (0..20).for_each(|n| create(&server, &format!("pod-{n}")));
    let run = running.end();
    drop(scheduler);
    let summary: Value = serde_json::from_str(&run.out).expect("one JSON object");
    assert_eq!(run.code, 0, "{summary:#}");
    assert_eq!((&summary["pods"], &summary["explained"]), (&json!(20), &json!(1.0)), "{summary:#}");
    assert_eq!(summary["unexplained"], json!([]));
    assert!(summary["decision_us"]["p50"].as_f64().is_some_and(|time| time > 0.0), "{summary:#}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_shadow_with_its_summary() {
    let server = cluster();
    let running = shadow(&server, &[]);
    running.signal("-TERM");
    let run = running.end();
    assert!(run.code == 0 && run.out.contains("0 pods in"), "{} {}", run.code, run.out);
}

#[test]
fn a_shadow_ends_after_its_time() {
    let server = cluster();
    let run = shadow(&server, &["--for", "100ms"]).end();
    assert!(run.code == 0 && run.out.contains("0 pods in 0."), "{} {}", run.code, run.out);
}

#[test]
fn invalid_arguments_of_a_shadow_are_reported() {
    let server = cluster();
    let url = server.url();
    for (arguments, expected) in [
        (["--profile", "other"], "does not have the profile other: choose from default-scheduler"),
        (["--window", "2"], "write a duration such as 15s"),
        (["--serve", "here"], "write an address such as 127.0.0.1:10259"),
        (["--export", "/nonexistent/pods"], "check that the folder exists"),
        (["--pods", "0"], "invalid value '0'"),
    ] {
        let run = portolan(&[&["shadow", "--master", &url], &arguments[..]].concat());
        assert!(run.code == 2 && run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
}
