//! With the scheduling queue, pods wait, are preempted and run for their durations; metrics
//! and charts agree with the result.

use std::fmt::Write;

use crate::common::{file, portolan};
use serde_json::Value;

const COLUMNS: &str =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time\n";

/// The files of one test: nodes with the given cpu, and pods.
struct Files {
    nodes: String,
    pods: String,
}

impl Files {
    fn new(test: &str, cpu: &[i64], pods: &str) -> Files {
        let mut nodes = String::from("sn,cpu_milli,memory_mib,gpu,model\n");
        for (at, cpu) in cpu.iter().enumerate() {
            let _ = writeln!(nodes, "n{at},{cpu},100000,0,");
        }
        let pods = format!("{COLUMNS}{pods}");
        Files {
            nodes: file(test, "nodes.csv", nodes.as_bytes()),
            pods: file(test, "pods.csv", pods.as_bytes()),
        }
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let files = ["replay", "--nodes", &self.nodes, "--pods", &self.pods, "--output", "json"];
        [&files[..], more].concat()
    }

    fn replay(&self, more: &[&str]) -> Value {
        let run = portolan(&self.arguments(more));
        assert_eq!(run.code, 0, "{}", run.err);
        serde_json::from_str(&run.out).expect("one JSON object")
    }

    fn refused(&self, more: &[&str], says: &[&str]) {
        let run = portolan(&self.arguments(more));
        assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
        for text in says {
            assert!(run.err.contains(text), "{:?} does not contain {text:?}", run.err);
        }
    }
}

/// A path in the test's own folder, without a file.
fn path(test: &str, name: &str) -> String {
    let path = file(test, name, b"");
    std::fs::remove_file(&path).expect("the file can be removed");
    path
}

#[test]
fn a_pod_of_higher_priority_preempts_one_of_lower_priority() {
    let files = Files::new("qos", &[1000], "low,800,100,0,0,BE,0,9\nhigh,800,100,0,0,LS,1,9\n");
    let alike = files.replay(&[]);
    assert_eq!((&alike["placed"], &alike["failed"]), (&1.into(), &1.into()), "{alike}");
    assert_eq!(alike["preempted"], Value::Null, "the queue is not needed: {alike}");
    let by_qos = files.replay(&["--qos-priorities"]);
    assert_eq!((&by_qos["placed"], &by_qos["failed"]), (&1.into(), &1.into()), "{by_qos}");
    assert_eq!(by_qos["preempted"], 1, "{by_qos}");
    assert_eq!(by_qos["reasons"]["Insufficient cpu"], 1, "{by_qos}");
    assert_ne!(alike["decision_hash"], by_qos["decision_hash"]);
}

#[test]
fn a_preempted_pod_runs_again_for_its_whole_duration() {
    // Low runs from 0 to 4, is preempted, and runs for all of its ten seconds from 10 on.
    // Last has the same priority and waits from 15 to 20.
    let pods = "low,800,100,0,0,BE,0,10\nhigh,800,100,0,0,LS,4,10\nlast,800,100,0,0,BE,15,16\n";
    let files = Files::new("again", &[1000], pods);
    let run = files.replay(&["--qos-priorities", "--mode", "timed"]);
    assert_eq!((&run["placed"], &run["failed"]), (&3.into(), &0.into()), "{run}");
    assert_eq!(run["preempted"], 1, "{run}");
    assert_eq!(run["utilization"]["cpu"]["requested"], 0, "all have ended: {run}");
    assert_eq!((&run["wait_seconds"]["p50"], &run["wait_seconds"]["p99"]), (&0.into(), &5.into()));
}

#[test]
fn a_pod_is_tried_again_only_when_a_node_has_room_for_it() {
    // Large waits until keep ends. The pods that end before leave too little room.
    let pods = "keep,600,100,0,0,LS,0,100\na,100,100,0,0,LS,0,10\nb,100,100,0,0,LS,0,20\n\
                c,100,100,0,0,LS,0,30\nlarge,700,100,0,0,LS,1,50\n";
    let files = Files::new("room", &[1000], pods);
    let run = files.replay(&["--mode", "timed"]);
    assert_eq!((&run["placed"], &run["cycles"]), (&5.into(), &6.into()), "{run}");
    assert_eq!(run["wait_seconds"]["max"], 99, "{run}");
}

#[test]
fn pods_of_a_group_are_placed_together_or_not_at_all() {
    let nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: \
                 {allocatable: {cpu: '2', memory: 1Gi, pods: '10'}}\n";
    let mut pods = String::new();
    for (group, members, least) in [("large", 3, 3), ("small", 2, 2), ("alone", 1, 2)] {
        let _ = write!(
            pods,
            "---\napiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\n\
             metadata: {{name: {group}}}\nspec: {{minMember: {least}}}\n"
        );
        for n in 0..members {
            let _ = write!(
                pods,
                "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {group}-{n}\n  \
                 labels: {{scheduling.x-k8s.io/pod-group: {group}}}\nspec:\n  containers:\n  \
                 - {{name: c, resources: {{requests: {{cpu: '1'}}}}}}\n"
            );
        }
    }
    let files = Files {
        nodes: file("gangs", "nodes.yaml", nodes.as_bytes()),
        pods: file("gangs", "pods.yaml", pods.as_bytes()),
    };
    let run = files.replay(&[]);
    // The large group does not fit, so that the small group is placed; the third group waits
    // for a member that never arrives.
    assert_eq!((&run["placed"], &run["failed"]), (&2.into(), &4.into()), "{run}");
    assert_eq!(run["utilization"]["cpu"]["requested"], 2000, "{run}");
    let reasons = run["reasons"].as_object().expect("reasons");
    let gathering = "waiting for minCount pods from a gang to appear in scheduling queue";
    assert!(reasons.keys().any(|reason| reason.contains(gathering)), "{run}");
    assert!(reasons.keys().any(|reason| reason.contains("Insufficient cpu")), "{run}");
}

/// The lines of a chart, as points on it.
fn polylines(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let lines = svg.split("<polyline ").skip(1);
    let points =
        lines.map(|line| line.split("points=\"").nth(1).unwrap().split('"').next().unwrap());
    let point = |text: &str| {
        let (x, y) = text.split_once(',').expect("x and y");
        (x.parse().expect("a number"), y.parse().expect("a number"))
    };
    let all = points.map(|points| points.split_whitespace().map(point).collect::<Vec<_>>());
    // Tick marks are lines of two points.
    all.filter(|points| points.len() > 2).collect()
}

#[test]
fn load_compresses_arrivals_and_keeps_run_times() {
    let pods = (0..10).fold(String::new(), |mut pods, n| {
        let _ = writeln!(pods, "p{n},1000,100,0,0,LS,{},{}", n * 10, n * 10 + 10);
        pods
    });
    let files = Files::new("load", &[1000], &pods);
    let calm = files.replay(&["--mode", "timed"]);
    assert_eq!((&calm["wait_seconds"]["p99"], &calm["failed"]), (&0.into(), &0.into()), "{calm}");
    // Pod n arrives at n and is placed at 10 n.
    let busy = files.replay(&["--mode", "timed", "--load", "10"]);
    assert_eq!(busy["wait_seconds"]["p50"], 36, "{busy}");
    assert_eq!(busy["wait_seconds"]["p99"], 81, "{busy}");
    assert_eq!((&busy["placed"], &busy["failed"]), (&10.into(), &0.into()), "{busy}");
    assert_eq!(busy["utilization"]["cpu"]["peak"], 1000, "{busy}");
    let idle = files.replay(&["--mode", "timed", "--load", "0.5"]);
    assert_eq!(idle["wait_seconds"]["p99"], 0, "{idle}");
}

#[test]
fn a_pod_that_never_fits_is_reported_as_failed() {
    let files = Files::new("never", &[1000], "a,2000,100,0,0,LS,0,9\nb,500,100,0,0,LS,5,9\n");
    let run = files.replay(&["--mode", "timed"]);
    assert_eq!((&run["placed"], &run["failed"]), (&1.into(), &1.into()), "{run}");
    assert_eq!(run["reasons"]["Insufficient cpu"], 1, "{run}");
}

#[test]
fn decisions_with_the_queue_do_not_depend_on_the_number_of_threads() {
    // Enough nodes to use the thread pool; few of them have GPUs.
    let mut nodes = String::from("sn,cpu_milli,memory_mib,gpu,model\n");
    for n in 0..4_400 {
        let _ = writeln!(nodes, "n{n},8000,100000,{},", u8::from(n % 440 == 0));
    }
    let qos = ["BE", "LS", "Burstable", "Guaranteed", "LS"];
    let pods = (0..40).fold(COLUMNS.to_owned(), |mut pods, n| {
        let (milli, from) = (300 + 100 * (n % 4), n * 2);
        let _ =
            writeln!(pods, "p{n},500,100,1,{milli},{},{from},{}", qos[n % 5], from + 60 + n % 7);
        pods
    });
    let files = Files {
        nodes: file("threads", "nodes.csv", nodes.as_bytes()),
        pods: file("threads", "pods.csv", pods.as_bytes()),
    };
    for mode in ["fill", "timed"] {
        let on = |threads| {
            files.replay(&["--qos-priorities", "--mode", mode, "--threads", threads, "--seed", "3"])
        };
        let (one, two) = (on("1"), on("2"));
        assert_eq!(one["decision_hash"], two["decision_hash"]);
        for same in ["placed", "preempted", "cycles", "reasons", "wait_seconds"] {
            assert_eq!(one[same], two[same], "{same}");
        }
        assert!(one["preempted"].as_u64() > Some(0), "{one}");
    }
}

#[test]
fn priority_classes_of_kubernetes_pods_are_used() {
    let nodes = b"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n\
        status: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";
    let pod = |name: &str, class: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d}}\n\
             spec: {{priorityClassName: {class}, containers: [{{name: c, resources: \
             {{requests: {{cpu: 600m}}}}}}]}}\n"
        )
    };
    let class = |name: &str, value: i32| {
        format!(
            "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: \
             {name}}}\nvalue: {value}\n"
        )
    };
    let pods = [class("low", 1), class("high", 9), pod("a", "low"), pod("b", "high")].concat();
    let files = Files {
        nodes: file("classes", "nodes.yaml", nodes),
        pods: file("classes", "pods.yaml", pods.as_bytes()),
    };
    let run = files.replay(&[]);
    assert_eq!((&run["placed"], &run["preempted"]), (&1.into(), &1.into()), "{run}");
    files.refused(&["--mode", "timed"], &["pods.yaml", "has no creation time", "--mode fill"]);
    files.refused(&["--qos-priorities"], &[&files.pods, "PriorityClass"]);
}

#[test]
fn a_chart_has_a_line_for_each_resource_and_for_waiting_pods() {
    let pods = "a,400,50000,0,0,LS,0,30\nb,600,0,0,0,LS,10,40\nc,900,0,0,0,LS,15,20\n";
    let files = Files::new("chart <&>", &[1000], pods);
    let (svg, html) = (path("chart <&>", "chart.svg"), path("chart <&>", "chart.html"));
    files.replay(&["--mode", "timed", "--chart", &svg]);
    files.replay(&["--mode", "timed", "--chart", &html]);
    let svg = std::fs::read_to_string(svg).expect("a chart");
    let lines = polylines(&svg);
    assert_eq!(lines.len(), 3, "cpu, memory, waiting pods: {svg}");
    for line in &lines {
        assert!(line.iter().all(|(x, y)| (0.0..=960.0).contains(x) && (0.0..=600.0).contains(y)));
        assert!(line.windows(2).all(|pair| pair[0].0 <= pair[1].0), "time increases: {line:?}");
        // Steps: only one coordinate changes.
        assert!(line.windows(2).all(|pair| pair[0].0 == pair[1].0 || pair[0].1 == pair[1].1));
    }
    // The peak of the cpu line (100 %) is above the peak of the memory line (50 %).
    let top = |line: &[(f64, f64)]| line.iter().map(|(_, y)| *y).fold(f64::MAX, f64::min);
    assert!(top(&lines[0]) < top(&lines[1]), "{lines:?}");
    for text in [
        "cpu, max 100.0 %",
        "memory, max 50.0 %",
        "waiting for a node, max 1",
        "requested, % of allocatable",
        "seconds since the first arrival",
        "pods.csv on nodes.csv",
        "prefers-color-scheme: dark",
    ] {
        assert!(svg.contains(text), "no {text:?} in {svg}");
    }
    let html = std::fs::read_to_string(html).expect("a page");
    assert!(
        html.starts_with("<!doctype html>") && html.contains("<svg ") && html.contains("<table>")
    );
    // The page loads no resources.
    assert!(!html.contains("src=") && !html.contains("href="), "{html}");
}

#[test]
fn a_chart_in_fill_mode_counts_pods() {
    let chart = path("fill-chart", "chart.svg");
    let run = portolan(&["replay", "--first", "1500", "--threads", "1", "--chart", &chart]);
    assert_eq!(run.code, 0, "{}", run.err);
    let svg = std::fs::read_to_string(chart).expect("a chart");
    let lines = polylines(&svg);
    assert!(lines.iter().all(|line| line.len() <= 2 * 722), "only visible points");
    assert!(svg.contains("pods arrived") && svg.contains("example.com/gpu, max"), "{svg}");
}

#[test]
fn invalid_arguments_name_the_remedy() {
    let files = Files::new("usage", &[1000], "a,1,1,0,0,LS,0,1\nb,1,1,0,0,best,0,1\n");
    files.refused(&["--load", "2"], &["--load needs arrival times: add --mode timed"]);
    for load in ["0", "-1", "NaN", "inf", "much"] {
        files.refused(
            &["--mode", "timed", &format!("--load={load}")],
            &["use a number from 0.001 to 1000000"],
        );
    }
    let format = "unsupported chart format: use a file name that ends in .svg or .html";
    files.refused(&["--chart", "chart.png"], &[format]);
    let folder = "check that the folder exists and is writable";
    files.refused(&["--chart", "/nowhere/chart.svg"], &["/nowhere/chart.svg", folder]);
    files.refused(&["--metrics-file", "/nowhere/m.prom"], &["/nowhere/m.prom", folder]);
    let line = format!("{}:3: ", files.pods);
    files.refused(
        &["--qos-priorities"],
        &[&line, "qos is \"best\": use one of BE, Burstable, LS, Guaranteed"],
    );
}

fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("a number")
}

const SCHEDULED: &str =
    "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"}";

#[test]
fn metrics_of_a_replay_agree_with_its_result() {
    let files = Files::new("metrics", &[1000], "low,800,100,0,0,BE,0,9\nhigh,800,100,0,0,LS,1,9\n");
    let out = path("metrics", "m.prom");
    for (queued, attempts) in [(false, 1.0), (true, 2.0)] {
        let with: &[&str] = if queued { &["--qos-priorities"] } else { &[] };
        let run = files.replay(&[with, &["--metrics-file", &out]].concat());
        let text = std::fs::read_to_string(&out).expect("metrics");
        assert_eq!(metric(&text, SCHEDULED), attempts, "{run}");
        assert_eq!(metric(&text, "scheduler_cache_size{type=\"pods\"}"), 1.0);
        assert_eq!(metric(&text, "portolan_generation"), run["generation"].as_f64().unwrap());
        assert!(text.ends_with('\n') && !text.contains("# EOF"));
        let cycles = "scheduler_scheduling_algorithm_duration_seconds_count";
        assert_eq!(metric(&text, cycles), run["cycles"].as_f64().unwrap());
    }
    let text = std::fs::read_to_string(&out).expect("metrics");
    assert_eq!(metric(&text, "scheduler_preemption_victims_sum"), 1.0);
    assert_eq!(metric(&text, "scheduler_pending_pods{queue=\"unschedulable\"}"), 1.0);
}

#[test]
fn every_command_that_runs_a_scheduler_writes_metrics() {
    let out = path("commands", "m.prom");
    let compare = ["compare", "--config", "default", "default", "--first", "50"];
    let run = portolan(&[&compare[..], &["--metrics-file", &out]].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    for numbered in ["m.1.prom", "m.2.prom"] {
        let text = std::fs::read_to_string(out.replace("m.prom", numbered)).expect("metrics");
        assert!(metric(&text, SCHEDULED) > 40.0, "{numbered}");
    }
    let cluster = b"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n\
        status: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: d}\n\
        spec: {containers: [{name: c, resources: {requests: {cpu: 600m}}}]}\n";
    let cluster = file("commands", "cluster.yaml", cluster);
    let run = portolan(&["what-if", "--cluster", &cluster, "--metrics-file", &out]);
    assert_eq!(run.code, 0, "{}", run.err);
    let text = std::fs::read_to_string(&out).expect("metrics");
    assert_eq!(metric(&text, SCHEDULED), 1.0, "{text}");
}
