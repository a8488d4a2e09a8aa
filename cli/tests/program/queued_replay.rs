//! With the scheduling queue, metrics and pages agree with the result.

use std::fmt::Write;

use crate::common::{file, portolan};
use crate::pages::recorded;
use serde_json::{Value, json};

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
}

/// A path in the test's own folder, without a file.
fn path(test: &str, name: &str) -> String {
    let path = file(test, name, b"");
    std::fs::remove_file(&path).expect("the file can be removed");
    path
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
fn pages_have_the_requests_and_the_waiting_pods_of_a_replay() {
    let pods = "a,400,50000,0,0,LS,0,30\nb,600,0,0,0,LS,10,40\nc,900,0,0,0,LS,15,20\n";
    let files = Files::new("page <&>", &[1000], pods);
    let page = path("page <&>", "page.html");
    files.replay(&["--mode", "timed", "--html", &page]);
    let found = recorded(&page, "GET api/v1/replay");
    assert_eq!(found["workload"], "pods.csv on nodes.csv");
    let series = &found["series"];
    assert_eq!(series["clock"]["began"], Value::Null, "the times of openb are no dates");
    assert_eq!(series["at"], json!([0.0, 10.0, 15.0, 30.0, 40.0]));
    let requested = &series["pools"][0]["requested"];
    let line = |at: usize| (&requested[at]["resource"], &requested[at]["values"]);
    assert_eq!(line(0), (&json!("cpu"), &json!([40.0, 100.0, 100.0, 60.0, 90.0])));
    assert_eq!(line(1), (&json!("memory"), &json!([50.0, 50.0, 50.0, 0.0, 0.0])));
    let waiting = json!([{ "cause": "Insufficient cpu", "values": [0, 0, 1, 1, 0] }]);
    assert_eq!(series["waiting"], waiting);
}

#[test]
fn pages_of_long_replays_are_bounded() {
    let page = path("fill-page", "page.html");
    let run = portolan(&["replay", "--first", "3000", "--threads", "1", "--html", &page]);
    assert_eq!(run.code, 0, "{}", run.err);
    let series = recorded(&page, "GET api/v1/replay")["series"].take();
    assert_eq!(
        (&series["clock"]["unit"], &series["clock"]["end"]),
        (&json!("pods"), &json!(3000.0))
    );
    let points = series["at"].as_array().expect("moments").len();
    assert!((360..=1440).contains(&points), "{points}");
    for pool in series["pools"].as_array().expect("pools") {
        for line in pool["requested"].as_array().expect("lines") {
            assert_eq!(line["values"].as_array().expect("values").len(), points);
        }
    }
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
