//! Placements of a replay as CSV, Kubernetes traces with times, and pods that wait for others.

use crate::common::{file, portolan};
use serde_json::Value;

const NODE_OF: &str = "---\napiVersion: v1\nkind: Node\nmetadata: {name: NAME, labels: \
    {kubernetes.io/hostname: NAME}}\nstatus: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";

const NODE: &[u8] = b"apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: \
    {kubernetes.io/hostname: n}}\nstatus: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";

/// A pod with these metadata and this part of its spec.
fn pod(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: u-{name}, \
         {metadata}}}\nspec: {{{spec} containers: [{{name: c, resources: {{requests: {{cpu: \
         600m}}}}}}]}}\n"
    )
}

fn replay(test: &str, pods: &[String], more: &[&str]) -> (Value, Vec<Vec<String>>) {
    let nodes = file(test, "nodes.yaml", NODE);
    let pods = file(test, "pods.yaml", pods.concat().as_bytes());
    let rows = file(test, "placements.csv", b"");
    let arguments = ["replay", "--nodes", &nodes, "--pods", &pods, "--output", "json"];
    let run = portolan(&[&arguments[..], &["--placements", &rows], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let text = std::fs::read_to_string(rows).expect("placements");
    let split = |line: &str| line.split(',').map(str::to_owned).collect();
    (serde_json::from_str(&run.out).expect("one JSON object"), text.lines().map(split).collect())
}

#[test]
fn utilization_is_that_of_the_whole_replay() {
    let time = |second: u32| format!("'1970-01-01T00:00:{second:02}Z'");
    let times =
        |from, to| format!("creationTimestamp: {}, deletionTimestamp: {}", time(from), time(to));
    // Pod b waits for the end of a, and runs from 10 to 15; c runs from 20 to 40.
    let pods =
        [pod("a", &times(0, 10), ""), pod("b", &times(4, 9), ""), pod("c", &times(20, 40), "")];
    let chart = file("utilization", "chart.html", b"");
    let (result, _) = replay("utilization", &pods, &["--mode", "timed", "--chart", &chart]);
    let cpu = &result["utilization"]["cpu"];
    assert_eq!((&cpu["requested"], &cpu["peak"]), (&0.into(), &600.into()), "{result}");
    // Until the last pod is placed at 20: 15 of 20 seconds.
    assert_eq!(cpu["mean"], 450.0, "{result}");
    assert_eq!(result["duration_s"], 40.0, "{result}");
    assert_eq!(result["wait_seconds"]["max"], 6, "{result}");
    assert_eq!(result["run"], "default configuration, profile default-scheduler, seed 1");
    let page = std::fs::read_to_string(chart).expect("a chart");
    for part in [
        "(cut: no pod arrives or waits; the last one ends at 40)",
        "default configuration, profile default-scheduler, seed 1",
        "max 6 s",
        "<td>45.0 %</td><td>60.0 %</td>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn pages_have_the_reasons_of_failed_pods() {
    let chart = file("reasons", "chart.html", b"");
    let (_, rows) = replay("reasons", &[pod("a", "", ""), pod("b", "", "")], &["--chart", &chart]);
    assert!(rows[2].join(",").contains("Insufficient cpu"), "{rows:?}");
    let page = std::fs::read_to_string(chart).expect("a chart");
    assert!(page.contains("<tr><td>Insufficient cpu</td><td>1</td></tr>"), "{page}");
}

/// Numbers from 0 to `below`, the same in each run of the tests.
struct Draws(u64);

impl Draws {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn replays_with_and_without_the_queue_are_equal_if_no_pod_needs_it() {
    for seed in 0..12 {
        let mut draws = Draws(seed);
        let nodes: String = (0..3 + draws.below(12))
            .map(|n| {
                let taint = match draws.below(4) {
                    0 => "\nspec: {taints: [{key: gpu, effect: NoSchedule}]}",
                    _ => "",
                };
                let zone = draws.below(3);
                let labels = format!("{{kubernetes.io/hostname: n{n}, zone: z{zone}}}");
                NODE_OF
                    .replace("{kubernetes.io/hostname: NAME}", &labels)
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
