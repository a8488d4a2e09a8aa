//! Pages of replays, and replays with the queue and without it.

use crate::common::{file, portolan};
use crate::pages::recorded;
use portolan_testkit::random::Random;
use serde_json::{Value, json};

const NODE: &str = "---\napiVersion: v1\nkind: Node\nmetadata: {name: NAME, labels: \
    {kubernetes.io/hostname: NAME}}\nstatus: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";

/// A pod with these metadata and this part of its spec.
fn pod(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: u-{name}, \
         {metadata}}}\nspec: {{{spec} containers: [{{name: c, resources: {{requests: {{cpu: \
         600m}}}}}}]}}\n"
    )
}

/// The answers in the page of a replay of these pods.
fn page(test: &str, pods: &[String], more: &[&str]) -> Value {
    let nodes = file(test, "nodes.yaml", NODE.replace("NAME", "n").as_bytes());
    let pods = file(test, "pods.yaml", pods.concat().as_bytes());
    let page = file(test, "page.html", b"<!doctype html>old");
    let arguments = ["replay", "--nodes", &nodes, "--pods", &pods, "--html", &page];
    let run = portolan(&[&arguments[..], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    recorded(&page, "GET api/v1/replay")
}

#[test]
fn pages_have_the_utilization_of_the_whole_replay() {
    let times = |from: u32, to: u32| {
        let time = |second: u32| format!("'1970-01-01T00:00:{second:02}Z'");
        format!("creationTimestamp: {}, deletionTimestamp: {}", time(from), time(to))
    };
    // Pod b waits for the end of a, and runs from 10 to 15; c runs from 20 to 40.
    let pods =
        [pod("a", &times(0, 10), ""), pod("b", &times(4, 9), ""), pod("c", &times(20, 40), "")];
    let page = page("utilization", &pods, &["--mode", "timed"]);
    assert_eq!(page["run"], "default configuration, profile default-scheduler, seed 1");
    assert_eq!(page["wait_seconds"]["max"], 6);
    let (cpu, series) = (&page["utilization"]["cpu"], &page["series"]);
    assert_eq!((&cpu["mean"], &cpu["peak"]), (&json!(450.0), &json!(600)));
    let clock = json!({ "unit": "seconds", "began": "1970-01-01T00:00:00Z", "end": 20.0, "duration": 40.0 });
    assert_eq!(series["clock"], clock, "no pod arrives or waits after 20 s");
    assert_eq!(series["at"], json!([0.0, 4.0, 10.0, 15.0, 20.0]));
    assert_eq!(series["nodes_used"], json!([1, 1, 1, 0, 1]));
    let requested = json!([{ "resource": "cpu", "values": [60.0, 60.0, 60.0, 0.0, 60.0] }]);
    assert_eq!(series["pools"], json!([{ "name": null, "nodes": 1, "requested": requested }]));
    let waiting = json!([{ "cause": "Insufficient cpu", "values": [0, 1, 0, 0, 0] }]);
    assert_eq!(series["waiting"], waiting);
}

#[test]
fn pages_have_the_reasons_of_failed_pods() {
    let page = page("reasons", &[pod("a", "", ""), pod("b", "", "")], &[]);
    assert_eq!(page["reasons"], json!({ "Insufficient cpu": 1 }));
    let waiting = json!([{ "cause": "Insufficient cpu", "values": [0, 0, 1] }]);
    assert_eq!(page["series"]["waiting"], waiting);
}

#[test]
fn replays_with_and_without_the_queue_are_equal_if_no_pod_needs_it() {
    for seed in 0..12 {
        let mut draws = Random::new(seed);
        let nodes: String = (0..3 + draws.below(12))
            .map(|n| {
                let taint = match draws.below(4) {
                    0 => "\nspec: {taints: [{key: gpu, effect: NoSchedule}]}",
                    _ => "",
                };
                let zone = draws.below(3);
                let labels = format!("{{kubernetes.io/hostname: n{n}, zone: z{zone}}}");
                NODE.replace("{kubernetes.io/hostname: NAME}", &labels)
                    .replace("NAME", &format!("n{n}"))
                    .replace("'1'", &(1 + draws.below(4)).to_string())
                    .replace("\nstatus", &format!("{taint}\nstatus"))
            })
            .collect();
        let pods: String = (0..60)
            .map(|n| {
                let at = format!("creationTimestamp: '1970-01-01T00:00:{n:02}Z'");
                let spec = match draws.below(4) {
                    0 => "tolerations: [{key: gpu, operator: Exists}],".to_owned(),
                    1 => format!("nodeSelector: {{zone: z{}}},", draws.below(4)),
                    _ => String::new(),
                };
                let cpu = format!("{}m", 100 + 100 * draws.below(9));
                pod(&format!("p{n}"), &at, &spec).replace("600m", &cpu)
            })
            .collect();
        let test = format!("equal-{seed}");
        let nodes = file(&test, "nodes.yaml", nodes.as_bytes());
        let pods = file(&test, "pods.yaml", pods.as_bytes());
        let placements = |mode: &str| {
            let rows = file(&test, "placements.csv", b"");
            let files = ["replay", "--nodes", &nodes, "--pods", &pods, "-o", "json"];
            let more = ["--mode", mode, "--placements", &rows, "--seed", "7"];
            let run = portolan(&[&files[..], &more].concat());
            assert_eq!(run.code, 0, "{}", run.err);
            let result: Value = serde_json::from_str(&run.out).expect("one JSON object");
            let is_queued = !result["preempted"].is_null();
            let text = std::fs::read_to_string(&rows).expect("placements");
            let nodes: Vec<String> =
                text.lines().map(|line| line.split(',').nth(5).unwrap().to_owned()).collect();
            (is_queued, nodes, result["placed"].clone(), result["decision_hash"].clone())
        };
        let (plain, queued) = (placements("fill"), placements("timed"));
        assert!(!plain.0 && queued.0, "seed {seed}");
        assert_eq!(plain.1, queued.1, "seed {seed}");
        assert_eq!((plain.2, plain.3), (queued.2, queued.3), "seed {seed}");
    }
}
