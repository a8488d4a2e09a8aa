//! The figures of `sched` are consistent.

use crate::common::{portolan, portolan_with};
use serde_json::Value;

#[test]
fn freed_memory_is_kept() {
    // mimalloc would return freed memory at once, and it prints statistics.
    let run = portolan_with(
        &["sched", "--nodes", "200", "--pods", "500"],
        &[("MIMALLOC_ARENA_PURGE_MULT", "0"), ("MIMALLOC_SHOW_STATS", "1")],
    );
    let purges = run.err.lines().filter_map(|line| line.trim_start().strip_prefix("purges"));
    let purges: Vec<&str> = purges.map(|line| line.trim_matches([' ', ':'])).collect();
    assert_eq!(purges, ["0"], "{}", run.err);
}

/// Runs `sched` and returns the JSON objects that it prints.
fn measure(arguments: &[&str]) -> Vec<Value> {
    let run = portolan(&[&["sched", "--output", "json"], arguments].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let object = |line| serde_json::from_str(line).expect("a JSON object per line");
    run.out.lines().map(object).collect()
}

fn refused(arguments: &[&str], says: &str) {
    let run = portolan(&[&["sched"], arguments].concat());
    assert_eq!(run.code, 2, "{arguments:?}: {}", run.out);
    assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
}

#[test]
fn gangs_are_placed_whole_with_a_queue_and_without() {
    // Four nodes of 4 cpu hold 160 pods of 100m: 16 gangs of 10, not 17.
    let cluster = ["--workload", "gang", "--init", "0", "--nodes", "4", "--pods", "170"];
    for with in [&[][..], &["--queue"][..], &["--queue", "--batch", "5"][..]] {
        let found = &measure(&[&cluster[..], with].concat())[0];
        assert_eq!(found["pods"].as_u64(), Some(170));
        assert_eq!(found["failed"].as_u64().map(|failed| failed % 10), Some(0), "{found}");
        assert!(found["failed"].as_u64() >= Some(10), "{found}");
        assert_eq!(found["overcommitted"].as_u64(), Some(0));
    }
}

#[test]
fn the_default_number_of_pods_fits_on_few_nodes() {
    let shapes = "basic,distinct,nodeaffinity,spread,prefspread,affinity,antiaffinity,\
        prefaffinity,gang,preemption";
    let found = measure(&["--nodes", "12", "--workload", shapes]);
    assert_eq!(found.len(), 10);
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
    let run = portolan(&[&["sched", "--repeat", "2"][..], &small].concat());
    let header: Vec<&str> = run.out.lines().next().expect("a header").split_whitespace().collect();
    assert_eq!(header[..4], ["workload", "min", "median", "max"]);
    assert!(run.out.contains("max µs") && run.out.contains("max/p50"), "{}", run.out);
}

#[test]
fn pods_that_fit_nowhere_fail_in_each_cycle() {
    let shapes = "nofit-resources,nofit-taints,nofit-antiaffinity";
    let small = ["--nodes", "7", "--pods", "150", "--workload", shapes];
    let variants: [&[&str]; 3] = [&[], &["--batch", "4"], &["--schedulers", "2"]];
    for with in variants {
        let found = measure(&[&small[..], with].concat());
        assert_eq!(found.len(), 3);
        for of in found {
            assert_eq!((&of["failed"], &of["pods"]), (&150.into(), &150.into()), "{with:?}: {of}");
            let wrong = ["conflicts", "overcommitted"].map(|key| of[key].as_u64());
            assert_eq!(wrong, [Some(0), Some(0)], "{with:?}: {of}");
        }
    }
    refused(&["--queue", "--workload", "nofit-taints"], "--queue does not retry pods");
    refused(
        &["--nodes", "10", "--init", "1000"],
        "--init 1000: only 400 of these pods fit on 10 nodes",
    );
}

#[test]
fn a_row_names_the_options_that_change_its_figures() {
    let small = ["sched", "--nodes", "9", "--pods", "20"];
    let variants: [(&[&str], &[&str]); 3] = [
        (&["--batch", "4"], &["basic, batches of 4"]),
        (&["--queue", "--batch", "4"], &["basic, queued and bound, batches of 4"]),
        (&["--processes", "2"], &["basic", "basic, 2 processes"]),
    ];
    for (with, named) in variants {
        let run = portolan(&[&small[..], with].concat());
        let rows: Vec<&str> = run.out.lines().filter(|line| line.starts_with(" basic")).collect();
        assert_eq!(rows.len(), named.len(), "{}", run.out);
        for (row, named) in rows.into_iter().zip(named) {
            let name = row.split("  ").next().unwrap_or_default();
            assert_eq!(name.trim(), *named, "{}", run.out);
        }
        assert!(run.out.contains("\nnote: 20 pods are too few"), "{with:?}: {}", run.out);
    }
}

#[test]
fn processes_are_measured_beside_the_engine() {
    let small = ["--nodes", "20", "--init", "10", "--pods", "50", "--schedulers", "2"];
    let variants: [&[&str]; 4] =
        [&[], &["--queue"], &["--queue", "--batch", "8"], &["--batch", "8"]];
    for with in variants {
        let found = measure(&[&small[..], &["--processes", "2", "--repeat", "2"], with].concat());
        let [engine, processes] = &found[..] else { panic!("{found:?}") };
        assert_eq!(engine.get("processes"), None);
        assert_eq!((&processes["processes"], &processes["schedulers"]), (&2.into(), &1.into()));
        for key in ["workload", "nodes", "init", "pods", "failed"] {
            assert_eq!(engine[key], processes[key], "{key}");
        }
        let rates = |of: &Value| -> Vec<f64> {
            of["repeats"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect()
        };
        let mut ratios: Vec<f64> =
            rates(engine).iter().zip(rates(processes)).map(|(one, sum)| one / sum).collect();
        ratios.sort_by(f64::total_cmp);
        for (key, expected) in [("min", ratios[0]), ("max", ratios[1])] {
            let ratio = &engine["compared_with_processes"]["ratio"];
            let found = ratio[key].as_f64().expect("a ratio");
            // Numbers are rounded when they are printed and read.
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
    }
    let run = portolan(&[&["sched", "--processes", "2"][..], &small].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("\n basic, 2 processes "), "{}", run.out);
    let line =
        "\nbasic, cycles/s: 2 schedulers on one engine / 2 processes with 1 scheduler each = ";
    assert!(run.out.contains(line), "{}", run.out);
}

#[test]
fn several_numbers_of_schedulers_are_measured_beside_each_other() {
    let small = ["--nodes", "20", "--init", "10", "--pods", "50", "--schedulers", "1,3"];
    let found = measure(&[&small[..], &["--repeat", "3", "--processes", "1"]].concat());
    let [one, three, process] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&one["schedulers"], &three["schedulers"]), (&1.into(), &3.into()));
    assert_eq!((one.get("compared_with"), process.get("compared_with")), (None, None));
    assert_eq!(three["compared_with"]["schedulers"], 1);
    let with_processes = [one, three].map(|of| &of["compared_with_processes"]["processes"]);
    assert_eq!(with_processes, [1, 1]);
    assert_eq!(three["repeats"].as_array().map(Vec::len), Some(3));
    let run = portolan(&[&["sched"][..], &small].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let line = "\nbasic, cycles/s: 3 schedulers on one engine / 1 scheduler on one engine = ";
    assert!(run.out.contains(line), "{}", run.out);
}

#[test]
fn a_process_measures_when_it_reads_a_line() {
    // The standard input is empty.
    let run = portolan(&["sched", "--nodes", "5", "--pods", "5", "--wait"]);
    assert_eq!((run.code, run.out.as_str()), (2, "ready\n"), "{}", run.err);
    assert!(run.err.contains("--wait: the standard input ended"), "{}", run.err);
}

#[test]
fn arguments_without_a_measurement_are_refused() {
    refused(&["--repeat", "0"], "--repeat");
    refused(&["--processes", "0"], "--processes");
    refused(&["--pods", "0"], "--pods must be 1 to 10000000");
}

#[test]
fn cache_operations_have_a_median_a_p99_and_a_maximum() {
    let run = portolan(&["cache", "--nodes", "50", "--pods-per-node", "2", "--output", "json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let found: Value = serde_json::from_str(&run.out).expect("one JSON object");
    let operations = found.as_object().expect("an object").iter();
    let timed = |key: &str| key.ends_with("_us") || key.ends_with("_ns");
    let timed: Vec<_> = operations.filter(|(key, _)| timed(key)).collect();
    assert_eq!(timed.len(), 7, "{timed:?}");
    for (key, of) in timed {
        let [p50, p99, max] = ["p50", "p99", "max"].map(|at| of[at].as_f64());
        assert!(p50.is_some() && p50 <= p99 && p99 <= max, "{key}: {of}");
    }
}
