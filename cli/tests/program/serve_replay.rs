//! `portolan serve --replay`: the states of a replay are readings, and the last one is the result of `portolan replay`.

use serde_json::{Value, json};

use crate::common::{file, portolan};
use crate::serve::{Events, Server, assert_matches};

const NODES: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n\
                     status: {allocatable: {cpu: \"2\", memory: 8Gi, pods: \"110\"}}\n";

/// The files of a workload: `first` runs for a minute, `second` waits for it, and `large` fits nowhere.
fn workload(test: &str) -> [String; 2] {
    let pod = |name: &str, cpu: u8, created: &str, deleted: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, creationTimestamp: \"2026-01-01T00:00:{created}Z\"\
             {deleted}}}\nspec: {{containers: [{{name: c, image: c, resources: {{requests: {{cpu: \"{cpu}\"}}}}}}]}}\n"
        )
    };
    let pods = [
        pod("first", 2, "00", ", deletionTimestamp: \"2026-01-01T00:01:00Z\""),
        pod("second", 2, "10", ""),
        pod("large", 8, "20", ""),
    ];
    let nodes = file(test, "nodes.yaml", NODES.as_bytes());
    [nodes, file(test, "pods.yaml", pods.concat().as_bytes())]
}

/// The readings until the replay has ended, as events.
fn played(server: &Server) -> Vec<Value> {
    let mut events = Events::of(server, "?since=0");
    let mut all: Vec<Value> = Vec::new();
    loop {
        let reading = events.named("generation");
        assert_matches("GenerationEvent", &reading);
        let is_playing = reading["replay"]["is_playing"].as_bool().expect("a replay");
        all.push(reading);
        if !is_playing {
            return all;
        }
    }
}

#[test]
fn each_step_in_which_something_happens_is_a_reading() {
    let [nodes, pods] = workload("steps");
    let files = ["--replay", "--nodes", &nodes, "--pods", &pods, "--mode", "timed"];
    let server = Server::start(&[&files[..], &["--speed", "20"]].concat());
    let shows = " shows the replay of pods.yaml on nodes.yaml: 1 node, 0 pods, 0 pending";
    assert!(server.line.ends_with(shows), "{}", server.line);
    let readings = played(&server);
    let fields = |it: &Value| [&it["replay"]["at"], &it["pods"], &it["pending"]].map(Value::clone);
    let seen: Vec<[Value; 3]> = readings.iter().map(fields).collect();
    let numbers = [[0.0, 0.0, 0.0], [20.0, 3.0, 2.0], [60.0, 2.0, 1.0]];
    let is_equal = |seen: &[Value; 3], numbers: &[f64; 3]| {
        seen.iter().zip(numbers).all(|(seen, number)| seen.as_f64() == Some(*number))
    };
    assert!(
        seen.len() == 3 && seen.iter().zip(&numbers).all(|(a, b)| is_equal(a, b)),
        "{readings:?}"
    );
    let moment = json!({
        "at": 60.0, "unit": "seconds", "began": "2026-01-01T00:00:00Z", "is_playing": false,
    });
    assert_eq!(server.get("/api/v1/summary")["replay"], moment);
    assert_matches("Summary", &server.get("/api/v1/summary"));
    assert_matches("Generations", &server.get("/api/v1/generations"));
    assert_eq!(
        server.get("/api/v1/diff?from=2&to=3")["pods"],
        json!({
            "added": [],
            "removed": [{"pod": "default/first", "from": "n1", "to": null}],
            "moved": [{"pod": "default/second", "from": null, "to": "n1"}],
            "changed": [],
        })
    );
    // Every question can be asked about every reading.
    let pending = server.get("/api/v1/pending?generation=2");
    assert_matches("Pending", &pending);
    assert_eq!(pending["pending"], 2, "{pending}");
    let asked = json!({"pod": "second"});
    let explained = server.post("/api/v1/explain?generation=2", &asked);
    assert!(explained.to_string().contains("Insufficient cpu"), "{explained}");
    let failed = server.post("/api/v1/what-if", &json!({"fail_node": "n1"}));
    assert_matches("Answer", &failed);
    assert_matches("Audit", &server.get("/api/v1/audit"));
    let copies = json!({"requests": {"cpu": "1"}});
    assert_eq!(server.post("/api/v1/headroom?generation=1", &copies)["count"], 2);
}

#[test]
fn the_last_reading_is_the_result_of_the_replay() {
    let [nodes, pods] = workload("result");
    let timed = ["--nodes", &nodes, "--pods", &pods, "--mode", "timed"];
    for options in [&["--first", "2000"][..], &timed] {
        let server = Server::start(&[&["--replay", "--speed", "1e6"], options].concat());
        let readings = played(&server);
        let result = portolan(&[&["replay", "--output", "json"], options].concat());
        let result: Value = serde_json::from_str(&result.out).expect("JSON");
        let last = readings.last().expect("a reading");
        assert_eq!(last["pending"], result["failed"], "{last} {result}");
        let resources = server.get("/api/v1/summary")["resources"].clone();
        let cores = resources[0]["requested"].as_f64().expect("a number");
        let same = result["utilization"]["cpu"]["requested"].as_f64().expect("a number");
        assert!(cores > 0.0 && (cores * 1000.0).round() == same, "{cores} {result}");
    }
}

#[test]
fn a_wrong_replay_ends_the_program() {
    let [nodes, pods] = workload("wrong");
    for (arguments, what) in [
        (&["--replay", "--cluster", &nodes][..], "cannot be used with"),
        (&["--replay", "--context", "prod"], "cannot be used with"),
        (&["--nodes", &nodes, "--pods", &pods], "--replay"),
        (&["--speed", "2"], "--replay"),
        (&["--replay", "--nodes", &nodes], "--pods"),
        (&["--replay", "--speed", "0"], "use a number from"),
        (&["--replay", "--mode", "timed"], "has no creation time"),
        (&["--replay", "--nodes", &nodes, "--pods", "none.yaml"], "none.yaml"),
        (&["--replay", "--nodes", &nodes, "--pods", &nodes], "no pods found"),
    ] {
        let run = portolan(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(what), "{arguments:?}: {}", run.err);
    }
}
