//! A replay makes the same decisions for the same input and seed with any number of
//! threads, and its figures are consistent.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{file, portolan};
use serde_json::Value;

fn replay(arguments: &[&str]) -> Value {
    let run = portolan(&[&["replay", "--output", "json"], arguments].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).expect("one JSON object")
}

#[test]
fn decisions_are_the_same_on_one_thread_and_on_two() {
    let on = |threads| replay(&["--first", "2000", "--threads", threads, "--seed", "7"]);
    let (one, two) = (on("1"), on("2"));
    assert_eq!(one["decision_hash"], two["decision_hash"]);
    assert_eq!(one["reasons"], two["reasons"]);
    let other = replay(&["--first", "2000", "--threads", "1", "--seed", "8"]);
    assert_ne!(one["decision_hash"], other["decision_hash"]);
}

#[test]
fn every_pod_is_placed_or_failed_with_reasons() {
    let result = replay(&["--first", "2000", "--threads", "1"]);
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("no {key}: {result}"));
    assert_eq!(number("pods"), 2000);
    assert_eq!(number("placed") + number("failed"), number("pods"));
    assert!(number("failed") > 0, "some pods are made to fit nowhere");
    assert!(result["reasons"].as_object().is_some_and(|reasons| reasons.len() > 1), "{result}");
    assert!(result["cycles_per_second"].as_f64() > Some(0.0));
    for key in ["p50", "p99", "max"] {
        assert!(result["cycle_us"][key].as_f64() > Some(0.0), "{key}");
    }
}

#[test]
fn the_report_is_in_cores_and_gib() {
    let nodes = b"sn,cpu_milli,memory_mib,gpu,model\nn1,1500,3072,0,\n";
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,250,1536,0,0\nb,9000,1,0,0\n";
    let (nodes, pods) = (file("report", "nodes.csv", nodes), file("report", "pods.csv", pods));
    let run = portolan(&["replay", "--nodes", &nodes, "--pods", &pods, "--threads", "1"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let rows: Vec<String> = run
        .out
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.starts_with(['\u{2500}', '\u{2550}']))
        .collect();
    let has = |row: &str| assert!(rows.iter().any(|found| found == row), "no {row:?} in {rows:#?}");
    has("pods.csv on nodes.csv");
    has("placed 1 (50.0 %)");
    has("resource requested allocatable used");
    has("cpu (cores) 0.25 1.5 16.7 %");
    has("memory (GiB) 1.5 3 50.0 %");
    has("Failed pods by reason (a pod can have several):");
    has("1 Insufficient cpu");
    let wall_time = |row: &&String| row.starts_with("wall time ");
    assert!(rows.iter().find(wall_time).is_some_and(|row| row.ends_with(" s on 1 thread")));
}

const NODES: &[u8] = b"sn,cpu_milli,memory_mib,gpu,model\nn1,1200,1000,0,\nn2,1000,1000,1,T4\n";

#[test]
fn a_full_cluster_rejects_pods_that_do_not_fit() {
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
        a,800,100,0,0,\nb,800,100,1,500,T4|V100\nc,800,100,0,0,\nd,100,100,1,600,\ne,1,1,1,1,A10\n";
    let (nodes, pods) = (file("full", "nodes.csv", NODES), file("full", "pods.csv", pods));
    let result = replay(&["--nodes", &nodes, "--pods", &pods, "--threads", "1"]);
    assert_eq!((&result["placed"], &result["failed"]), (&2.into(), &3.into()), "{result}");
    let reasons = &result["reasons"];
    assert_eq!(reasons["Insufficient cpu"], 1, "{reasons}");
    assert_eq!(reasons["Insufficient alibabacloud.com/gpu-milli"], 1, "{reasons}");
    assert_eq!(reasons["node(s) didn't match Pod's node affinity/selector"], 1, "{reasons}");
}

#[test]
fn in_timed_mode_a_pod_frees_its_node_when_it_ends() {
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n\
        a,800,100,0,0,0,10\nb,800,100,0,0,0,10\nc,800,100,0,0,5,20\nd,800,100,0,0,10,30\n";
    let (nodes, pods) = (file("timed", "nodes.csv", NODES), file("timed", "pods.csv", pods));
    let files = ["--nodes", &*nodes, "--pods", &*pods, "--threads", "1"];
    let fill = replay(&files);
    assert_eq!((&fill["placed"], &fill["failed"]), (&2.into(), &2.into()), "{fill}");
    let timed = replay(&[&files[..], &["--mode", "timed"]].concat());
    assert_eq!((&timed["placed"], &timed["failed"]), (&4.into(), &0.into()), "{timed}");
    assert_eq!(timed["utilization"]["cpu"]["requested"], 0, "all pods have ended: {timed}");
}

#[test]
fn kubernetes_lists_are_read() {
    let nodes = b"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n\
        status: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";
    let pods = br#"{"apiVersion":"v1","kind":"PodList","items":[
        {"metadata":{"name":"a","namespace":"d"},"spec":{"containers":[
            {"name":"c","resources":{"requests":{"cpu":"600m"}}}]}},
        {"metadata":{"name":"b","namespace":"d"},"spec":{"containers":[
            {"name":"c","resources":{"requests":{"cpu":"600m"}}}]}}]}"#;
    let (nodes, pods) = (file("k8s", "nodes.yaml", nodes), file("k8s", "pods.json", pods));
    let result = replay(&["--nodes", &nodes, "--pods", &pods, "--threads", "1"]);
    assert_eq!((&result["placed"], &result["failed"]), (&1.into(), &1.into()), "{result}");
}

#[test]
fn the_openb_trace_is_placed_as_kube_scheduler_places_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/openb");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (nodes, pods) = (path("openb_node_list_all_node.csv"), path("openb_pod_list_default.csv"));
    if !Path::new(&nodes).exists() {
        println!("SKIPPED: the openb trace is not at {}", folder.display());
        return;
    }
    if cfg!(debug_assertions) {
        println!("SKIPPED: the whole openb trace is replayed in release builds only");
        return;
    }
    let result = replay(&["--nodes", &nodes, "--pods", &pods, "--percentage-of-nodes", "100"]);
    let placed = result["placed"].as_u64().unwrap_or_default();
    assert!((8070..=8150).contains(&placed), "{placed} placed");
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(["replay", "--first", "10", "--threads", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(program.stdout.take());
    let done = program.wait_with_output().expect("the program exits");
    assert_eq!((done.status.code(), &*String::from_utf8_lossy(&done.stderr)), (Some(0), ""));
}
