//! `portolan compare` reports differences, imbalance and fragmentation correctly.

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
    // Each node has 700m left, enough for two pods of 300m; the sum of both nodes holds
    // four of them.
    assert_eq!(spreads["fragmentation_percent"], 0.0);
    assert_eq!(packs["fragmentation_percent"], 0.0);
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
    let lines: Vec<&str> = run.out.lines().collect();
    let first = "packs.yaml: first difference: pod default/b: ";
    assert!(lines[3].contains(first) && lines[3].contains(" instead of "), "{}", run.out);
    assert_eq!(lines[4..], ["default: 1 unschedulable pod, limit 0"]);
}

#[test]
fn free_capacity_in_fragments_that_are_too_small_is_counted() {
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
        a,600,100,0,0,\nb,600,100,0,0,\n";
    let nodes = file("compare-pieces", "nodes.csv", NODES);
    let pods = file("compare-pieces", "pods.csv", pods);
    let arguments =
        ["compare", "--output", "json", "--config", "default", "--nodes", &nodes, "--pods", &pods];
    let run = portolan(&arguments);
    let answer: Value = serde_json::from_str(&run.out).expect("one JSON object");
    // 800m are free, enough for one more pod of 600m if they were on one node.
    assert_eq!(answer["runs"][0]["fragmentation_percent"], 100.0, "{answer}");
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
    assert_eq!(figure(1, "fragmentation, %")["differs"], false, "{answer}");
}
