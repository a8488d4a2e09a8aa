//! One workload under several configurations.

mod common;

use common::{file, portolan};
use serde_json::{Value, json};

/// Packs: what is most allocated scores highest.
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

fn compare(directory: &str, more: &[&str]) -> (i32, Value) {
    let packs = file(directory, "packs.yaml", PACKS.as_bytes());
    let (nodes, pods) = (file(directory, "nodes.csv", NODES), file(directory, "pods.csv", PODS));
    let arguments = ["compare", "--output", "json", "--config", "default", &packs];
    let run = portolan(&[&arguments, &["--nodes", &nodes, "--pods", &pods][..], more].concat());
    let answer = serde_json::from_str(&run.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.out, run.err));
    (run.code, answer)
}

#[test]
fn what_packs_leaves_room_for_what_spreads_does_not() {
    let (code, answer) = compare("compare", &[]);
    assert_eq!(code, 0);
    let [spreads, packs] = &answer["runs"].as_array().expect("runs")[..] else {
        panic!("two runs: {answer}")
    };
    assert_eq!((&spreads["placed"], &spreads["unschedulable"]), (&json!(2), &json!(1)));
    assert_eq!((&packs["placed"], &packs["unschedulable"]), (&json!(3), &json!(0)));
    assert_eq!(spreads["different"], 0);
    // The second small pod joins the first, and so the large one has a place.
    assert_eq!(packs["different"], 2, "{answer}");
    assert_eq!(packs["first_difference"]["pod"], "default/b");
    // 700m are left on each node, of use to two of 300m each, where the pool of both
    // would hold four.
    assert_eq!(spreads["fragmentation_percent"], 0.0);
    assert_eq!(packs["fragmentation_percent"], 0.0);
    assert_eq!(spreads["imbalance_percent"]["cpu"], 0.0);
    assert!(packs["imbalance_percent"]["cpu"].as_f64() > Some(14.0), "{answer}");
}

#[test]
fn a_bound_that_is_broken_fails_and_names_the_configuration() {
    let (code, answer) = compare("compare-bound", &["--max-unschedulable", "0"]);
    assert_eq!((code, &answer["broken"]), (1, &json!(["default"])));
    let (code, answer) = compare("compare-held", &["--max-unschedulable", "1"]);
    assert_eq!((code, &answer["broken"]), (0, &json!([])));
}

#[test]
fn free_pieces_that_are_too_small_are_counted() {
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
        a,600,100,0,0,\nb,600,100,0,0,\n";
    let nodes = file("compare-pieces", "nodes.csv", NODES);
    let pods = file("compare-pieces", "pods.csv", pods);
    let arguments =
        ["compare", "--output", "json", "--config", "default", "--nodes", &nodes, "--pods", &pods];
    let run = portolan(&arguments);
    let answer: Value = serde_json::from_str(&run.out).expect("one JSON object");
    // Of 800m that are free, one more pod could have 600m, if they lay together.
    assert_eq!(answer["runs"][0]["fragmentation_percent"], 100.0, "{answer}");
}
