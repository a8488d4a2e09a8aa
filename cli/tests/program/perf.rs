//! The figures of `perf sched` are consistent.

use crate::common::portolan;
use serde_json::Value;

fn sched(arguments: &[&str]) -> Value {
    let common = ["perf", "sched", "--workload", "gang", "--output", "json", "--init", "0"];
    let run = portolan(&[&common, arguments].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).expect("one JSON object")
}

#[test]
fn gangs_are_placed_whole_with_a_queue_and_without() {
    // Four nodes of 4 cpu hold 160 pods of 100m: 22 gangs of 7, not 23.
    let cluster = ["--nodes", "4", "--pods", "168", "--gang", "7"];
    for with in [&[][..], &["--queue"][..]] {
        let found = sched(&[&cluster[..], with].concat());
        assert_eq!((found["gang"].as_u64(), found["pods"].as_u64()), (Some(7), Some(168)));
        assert_eq!(found["failed"].as_u64().map(|failed| failed % 7), Some(0), "{found}");
        assert!(found["failed"].as_u64() >= Some(14), "{found}");
        assert_eq!(found["overcommitted"].as_u64(), Some(0));
    }
}

#[test]
fn check_with_gangs_is_refused() {
    let run = portolan(&["perf", "sched", "--workload", "gang", "--check"]);
    assert_eq!(run.code, 2, "{}", run.err);
    let says = "--check does not support the workload gang: remove one of them";
    assert_eq!(run.err, format!("portolan: {says}\n"));
}

/// Runs `perf sched` and returns the JSON objects that it prints.
fn measure(arguments: &[&str]) -> Vec<Value> {
    let run = portolan(&[&["perf", "sched", "--output", "json"], arguments].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let object = |line| serde_json::from_str(line).expect("a JSON object per line");
    run.out.lines().map(object).collect()
}

fn refused(arguments: &[&str], says: &str) {
    let run = portolan(&[&["perf", "sched"], arguments].concat());
    assert_eq!(run.code, 2, "{arguments:?}: {}", run.out);
    assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
}

#[test]
fn the_default_number_of_pods_fits_on_few_nodes() {
    let shapes = "basic,distinct,nodeaffinity,spread,prefspread,affinity,antiaffinity,\
        prefaffinity,gang,preemption,mixed";
    let found = measure(&["--nodes", "12", "--workload", shapes]);
    assert_eq!(found.len(), 11);
    for of in found {
        assert_eq!(of["failed"].as_u64(), Some(0), "{of}");
        assert!(of["pods"].as_u64() >= Some(6), "{of}");
    }
}

#[test]
fn repeats_have_a_median_and_a_range() {
    let small = ["--nodes", "20", "--init", "10", "--pods", "50", "--workload", "basic,distinct"];
    let found = measure(&[&small[..], &["--repeat", "3"]].concat());
    assert_eq!(found.len(), 2, "one object for each workload");
    for of in found {
        let mut rates: Vec<f64> =
            of["repeats"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        rates.sort_by(f64::total_cmp);
        let figures = ["min", "cycles_per_second", "max"].map(|key| of[key].as_f64());
        assert_eq!(figures.to_vec(), rates.into_iter().map(Some).collect::<Vec<_>>(), "{of}");
        assert_eq!(of["pods"].as_u64(), Some(50));
    }
    let run = portolan(&[&["perf", "sched", "--repeat", "2"][..], &small].concat());
    let header: Vec<&str> = run.out.lines().next().expect("a header").split_whitespace().collect();
    assert_eq!(header[..4], ["workload", "min", "median", "max"]);
    assert!(run.out.contains("max µs") && run.out.contains("max/p50"), "{}", run.out);
}

#[test]
fn arguments_without_a_measurement_are_refused() {
    refused(&["--repeat", "0"], "--repeat");
    refused(&["--pods", "0"], "--pods must be 1 to 10000000");
    refused(&["--repeat", "2", "--scheduler-perf", "x.yaml"], "cannot be used with");
}
