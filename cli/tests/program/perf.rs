//! The figures of `perf sched` for gangs are consistent.

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
