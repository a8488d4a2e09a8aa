//! A replay makes the same decisions for the same input and seed with any number of
//! threads, and its figures are consistent.

use std::path::Path;

use serde_json::Value;

use crate::common::portolan;
use crate::running::Running;

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
    let mut program = Running::start(&["replay", "--first", "10", "--threads", "1"]);
    drop(program.0.stdout.take());
    let run = program.end();
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}
