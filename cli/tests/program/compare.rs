//! `portolan compare` says which configuration packs better, and reports differences and the capacity that is left.

use crate::common::{Run, file, portolan};
use serde_json::{Value, json};

/// Prefers the most allocated nodes.
const PACKS: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]
";

const NODES: &[u8] = b"sn,cpu_milli,memory_mib,gpu,model\nn1,1000,1000,0,\nn2,1000,1000,0,\n";
const PODS: &[u8] = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
    a,300,300,0,0,\nb,300,300,0,0,\nc,900,900,0,0,\n";

fn run(directory: &str, more: &[&str]) -> Run {
    let packs = file(directory, "packs.yaml", PACKS.as_bytes());
    let (nodes, pods) = (file(directory, "nodes.csv", NODES), file(directory, "pods.csv", PODS));
    let arguments = ["compare", "--config", "default", &packs, "--nodes", &nodes, "--pods", &pods];
    portolan(&[&arguments[..], more].concat())
}

fn compare(directory: &str, more: &[&str]) -> (i32, Value) {
    let run = run(directory, &[&["--output", "json"], more].concat());
    let answer = serde_json::from_str(&run.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.out, run.err));
    (run.code, answer)
}

#[test]
fn packing_places_a_large_pod_that_spreading_does_not() {
    let (code, answer) = compare("compare", &[]);
    assert_eq!(code, 0);
    let [spreads, packs] = &answer["runs"].as_array().expect("runs")[..] else {
        panic!("two runs: {answer}")
    };
    assert_eq!((&spreads["placed"], &spreads["unschedulable"]), (&json!(2), &json!(1)));
    assert_eq!((&packs["placed"], &packs["unschedulable"]), (&json!(3), &json!(0)));
    assert_eq!(spreads["different"], 0);
    // The second small pod joins the first, so that the large pod fits on the other node.
    assert_eq!(packs["different"], 2, "{answer}");
    assert_eq!(packs["first_difference"]["pod"], "default/b");
    // Spreading leaves 700m on each node: four more pods of 300m, and none of 900m. Packing leaves 400m and 100m.
    assert_eq!(spreads["left"]["more_copies"], json!([0, 4]), "{answer}");
    assert_eq!(packs["left"]["more_copies"], json!([0, 1]), "{answer}");
    assert_eq!(spreads["left"]["largest_pod_that_fits"], "cpu 0.3, memory 300Mi");
    assert_eq!(packs["left"]["stranded"]["cpu"]["amount"], 100);
    assert_eq!(answer["answers"][0]["packs"], "better");
    assert_eq!(spreads["imbalance_percent"]["cpu"], 0.0);
    assert!(packs["imbalance_percent"]["cpu"].as_f64() > Some(14.0), "{answer}");
}

#[test]
fn exceeding_the_limit_fails_and_names_the_configuration() {
    let (code, answer) = compare("compare-bound", &["--max-unschedulable", "0"]);
    assert_eq!((code, &answer["broken"]), (1, &json!(["default"])));
    let (code, answer) = compare("compare-held", &["--max-unschedulable", "1"]);
    assert_eq!((code, &answer["broken"]), (0, &json!([])));
}

#[test]
fn the_table_names_the_first_difference_and_the_exceeded_limit() {
    let run = run("compare-table", &["--max-unschedulable", "0"]);
    assert_eq!(run.code, 1, "{}", run.err);
    let answer =
        "packs.yaml packs better than default: 2 nodes used by both, 1 more pod placed\n\n";
    assert!(run.out.contains(answer), "{}", run.out);
    let first = "packs.yaml: first difference: pod default/b: ";
    let named = run.out.lines().any(|line| line.contains(first) && line.contains(" instead of "));
    assert!(named && run.out.ends_with("default: 1 unschedulable pod, limit 0\n"), "{}", run.out);
}

/// Runs the default profile against packing on these nodes and pods.
fn with(directory: &str, (nodes, pods): (&str, &str), more: &[&str]) -> Run {
    let packs = file(directory, "packs.yaml", PACKS.as_bytes());
    let nodes = file(directory, "nodes.csv", nodes.as_bytes());
    let pods = file(directory, "pods.csv", pods.as_bytes());
    let arguments = ["compare", "--config", "default", &packs, "--nodes", &nodes, "--pods", &pods];
    portolan(&[&arguments[..], more].concat())
}

const TWO_NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn1,1000,1000,0,\nn2,1000,1000,0,\n";
const SMALL_PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
    a,300,300,0,0,\nb,300,300,0,0,\n";

#[test]
fn fewer_nodes_and_their_price_are_the_answer() {
    let prices = file("compare-price", "prices.yaml", b"n1: 0.5\nn2: 0.5\n");
    let run = with("compare-price", (TWO_NODES, SMALL_PODS), &["--prices", &prices]);
    let first = run.out.lines().next().unwrap_or_default().to_owned();
    let says = "packs.yaml packs better than default: 1 node used instead of 2 (price 0.50 instead of 1.00 per hour), \
                same pods placed";
    assert!(first.ends_with(says), "{}{}", run.out, run.err);
    // The same configuration twice is a tie.
    let (nodes, pods) = (file("tie", "n.csv", NODES), file("tie", "p.csv", PODS));
    let run = portolan(&[
        "compare", "--config", "default", "default", "--nodes", &nodes, "--pods", &pods,
    ]);
    let says = "default packs like default: 2 nodes used by both, same pods placed\n";
    assert!(run.out.starts_with(says), "{}", run.out);
}

#[test]
fn invalid_prices_are_named_with_their_line() {
    for (name, content, says) in [
        (
            "a.csv",
            "name,price\nn1,0.5\nn2,free\n",
            "a.csv:3: price is \"free\": use a price per hour",
        ),
        ("b.csv", "n1,0.5\n", "b.csv:1: the header is not name,price"),
        ("c.csv", "name,price\nn1,1\nn1,2\n", "c.csv:3: \"n1\" has two prices"),
        ("d.csv", "name,price\nn1,0.5\n", "d.csv: node n2 has no price: add its name"),
        ("e.yaml", "n1: 0.5\nn2: -1\n", "e.yaml:2: price of \"n2\" is -1: use a price per hour"),
        ("f.yaml", "n1: 0.5\nn2: free\n", "f.yaml:2: "),
    ] {
        let prices = file("compare-prices", name, content.as_bytes());
        let run = with("compare-prices", (TWO_NODES, SMALL_PODS), &["--prices", &prices]);
        assert!(run.code == 2 && run.err.contains(says), "{name}: {}", run.err);
    }
    let run = with("compare-prices", (TWO_NODES, SMALL_PODS), &["--price-label", "cost"]);
    assert!(run.code == 2 && run.err.contains("node n1: label cost is missing"), "{}", run.err);
}

#[test]
fn timed_runs_are_compared_by_means_and_drawn_together() {
    // Both pods run for 10 s, the second from second 10 to 20 on whatever node is preferred.
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n\
        a,300,300,0,0,,0,20\nb,300,300,0,0,,10,20\nc,300,300,0,0,,20,20\n";
    let chart = file("compare-timed", "chart.svg", b"");
    let more = ["--mode", "timed", "--chart", &chart, "--output", "json"];
    let run = with("compare-timed", (TWO_NODES, pods), &more);
    let answer: Value = serde_json::from_str(&run.out).expect(&run.err);
    let used = |at: usize| answer["runs"][at]["nodes"]["used"].as_f64().unwrap();
    // Spreading uses one node for 10 s and two for 10 s.
    assert_eq!((used(0), used(1)), (1.5, 1.0), "{answer}");
    let says = answer["answers"][0]["answer"].as_str().unwrap();
    assert!(
        says.contains("1.0 nodes used instead of 1.5") && says.contains("means over time"),
        "{says}"
    );
    let svg = std::fs::read_to_string(&chart).expect("a chart");
    let has = |text: &str| svg.contains(text);
    assert!(has("used nodes") && has("default, max 2") && has("packs.yaml, max 1"), "{svg}");
}

#[test]
fn pools_are_reported_apart() {
    let nodes = file(
        "pools",
        "nodes.yaml",
        b"apiVersion: v1
kind: Node
metadata: {name: n1, labels: {pool: a, cost: '2'}}
status: {allocatable: {cpu: 1, memory: 1Gi, pods: 9}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {cost: '3.5'}}
status: {allocatable: {cpu: 4, memory: 4Gi, pods: 9}}
",
    );
    let pods = file(
        "pools",
        "pods.yaml",
        b"apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}
",
    );
    let run = portolan(&[
        "compare",
        "--config",
        "default",
        "--nodes",
        &nodes,
        "--pods",
        &pods,
        "--pool-label",
        "pool",
        "--price-label",
        "cost",
        "-o",
        "json",
    ]);
    let answer: Value = serde_json::from_str(&run.out).expect(&run.err);
    let pools = &answer["runs"][0]["pools"];
    assert_eq!((&pools["a"]["used"], &pools[""]["used"]), (&json!(0.0), &json!(1.0)), "{answer}");
    assert_eq!(answer["runs"][0]["nodes"]["price_per_hour"], json!({"used": 3.5, "all": 5.5}));
}

#[test]
fn several_seeds_show_which_differences_are_larger_than_the_spread() {
    let (code, answer) = compare("compare-seeds", &["--seeds", "5"]);
    assert_eq!(code, 0);
    let figure = |run: usize, name: &str| {
        let seeds = answer["runs"][run]["seeds"].as_array().expect("figures");
        seeds.iter().find(|of| of["figure"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    // Spreading never places the large pod, packing always does.
    let (spreads, packs) = (figure(0, "placed"), figure(1, "placed"));
    assert_eq!((&spreads["min"], &spreads["max"]), (&json!(2.0), &json!(2.0)), "{answer}");
    assert_eq!((&packs["min"], &packs["mean"]), (&json!(3.0), &json!(3.0)), "{answer}");
    assert_eq!((&spreads["differs"], &packs["differs"]), (&json!(false), &json!(true)));
    assert_eq!(figure(1, "nodes used")["differs"], false, "{answer}");
}
