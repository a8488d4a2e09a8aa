//! `dump` and `audit`, with and without Gödel semantics, and the reservations that `what-if`
//! and `replay` respect.

use crate::common::{file, portolan};
use serde_json::Value;

/// A machine with a kubelet, a node manager and reclaimed resources; a machine with a node
/// manager only; pods in every state; a reservation.
const CLUSTER: &str = r#"
apiVersion: v1
kind: Node
metadata:
  name: both
  annotations: { godel.bytedance.com/scheduler-name: ours }
status: { allocatable: { cpu: "4", memory: 8Gi, pods: "10" } }
---
apiVersion: node.godel.kubewharf.io/v1alpha1
kind: NMNode
metadata: { name: both }
status:
  resourceCapacity: { cpu: "4", memory: 8Gi }
  resourceAllocatable: { cpu: "3", memory: 8Gi }
---
apiVersion: node.godel.kubewharf.io/v1alpha1
kind: NMNode
metadata: { name: managed }
status: { resourceAllocatable: { cpu: "2", memory: 4Gi, pods: "10" } }
---
apiVersion: node.katalyst.kubewharf.io/v1alpha1
kind: CustomNodeResource
metadata: { name: both }
status: { resources: { allocatable: { cpu: "1", memory: 1Gi, pods: "5" } } }
---
apiVersion: v1
kind: Pod
metadata: { name: bound, namespace: d, uid: u-bound }
spec:
  nodeName: both
  containers: [{ name: c, image: i, resources: { requests: { cpu: "1" } } }]
---
apiVersion: v1
kind: Pod
metadata:
  name: reclaimed
  namespace: d
  uid: u-reclaimed
  annotations: { godel.bytedance.com/pod-resource-type: best-effort }
spec:
  nodeName: both
  containers: [{ name: c, image: i, resources: { requests: { cpu: 500m } } }]
---
apiVersion: v1
kind: Pod
metadata:
  name: assumed
  namespace: d
  uid: u-assumed
  annotations:
    godel.bytedance.com/pod-state: assumed
    godel.bytedance.com/selected-scheduler: ours
    godel.bytedance.com/assumed-node: both
spec:
  schedulerName: godel-scheduler
  containers: [{ name: c, image: i, resources: { requests: { cpu: "1" } } }]
---
apiVersion: v1
kind: Pod
metadata: { name: waiting, namespace: d, uid: u-waiting }
spec:
  containers: [{ name: c, image: i, resources: { requests: { cpu: 300m } } }]
---
apiVersion: scheduling.godel.kubewharf.io/v1alpha1
kind: Reservation
metadata:
  name: web-0
  namespace: d
  annotations: { godel.bytedance.com/reservation-index: web }
spec:
  nodename: both
  template:
    spec:
      containers: [{ name: c, resources: { requests: { cpu: 250m } } }]
status: { phase: Reserved }
---
apiVersion: scheduling.godel.kubewharf.io/v1alpha1
kind: Movement
metadata: { name: m }
status:
  owners:
  - owner: { type: ReplicaSet, namespace: d, name: rs, uid: r }
    recommendedNodes:
    - { node: both, desiredPodCount: 2 }
---
apiVersion: v1
kind: Pod
metadata:
  name: nominated
  namespace: d
  uid: u-nominated
  annotations:
    godel.bytedance.com/pod-state: assumed
    godel.bytedance.com/selected-scheduler: ours
    godel.bytedance.com/nominated-node:
      '{"node":"managed","victims":[{"name":"v","namespace":"d","uid":"u-victim"}]}'
    godel.bytedance.com/pod-launcher: node-manager
spec:
  containers: [{ name: c, image: i, resources: { requests: { cpu: "1" } } }]
"#;

const GODEL: [&str; 2] = ["--godel", "godel-scheduler"];

fn dumped(arguments: &[&str]) -> Value {
    let run = portolan(arguments);
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn a_dump_lists_the_size_of_each_store() {
    let cluster = file("dump", "cluster.yaml", CLUSTER.as_bytes());
    let run = portolan(&["dump", "--cluster", &cluster, GODEL[0], GODEL[1]]);
    assert_eq!(run.code, 0, "{}", run.err);
    let rows: Vec<Vec<&str>> =
        run.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| rows.iter().find(|row| row.first() == Some(&name)).expect(name);
    assert_eq!(row("nodes")[1], "2");
    assert_eq!(row("pods")[1], "5");
    assert_eq!((row("NMNode")[1], row("Reservation")[1], row("reservations")[1]), ("2", "1", "1"));
    assert!(run.out.contains("2 assumed, plus 1 pending"), "{}", run.out);
    assert!(run.out.contains("1 available, 0 matched"), "{}", run.out);
    assert!(run.out.contains("2 more pods suggested"), "{}", run.out);
    assert_eq!((row("movements")[1], row("marks")[1]), ("1", "1"));
}

#[test]
fn a_dump_contains_a_nodes_accounts_and_parts() {
    let cluster = file("dump-json", "cluster.yaml", CLUSTER.as_bytes());
    let arguments = ["dump", "--cluster", &cluster, GODEL[0], GODEL[1], "--output", "json"];
    let dump = dumped(&arguments);
    let node = &dump["nodes"]["both"];
    let of = |class: &str, what: &str| node[class][what]["cpu_milli"].as_i64().unwrap();
    assert_eq!(of("guaranteed", "allocatable"), 3000);
    // The bound pod, the assumed pod and the reservation.
    assert_eq!(of("guaranteed", "requested"), 2250);
    assert_eq!((of("best-effort", "allocatable"), of("best-effort", "requested")), (1000, 500));
    assert_eq!(node["parts"].as_array().unwrap().len(), 3);
    assert_eq!(node["schedulers"][0], "ours");
    assert_eq!(dump["reservations"][0]["placeholder"], "web");
    assert_eq!(dump["movements"][0]["more"], 2);
    assert_eq!(dump["marks"][0]["preemptors"][0], "u-nominated");
    assert_eq!(dump["pending"][0]["pod"], "d/waiting");
    // Without the option the annotations are ignored, with a note.
    let dump = dumped(&["dump", "--cluster", &cluster, "--output", "json"]);
    assert_eq!(dump["nodes"]["both"]["guaranteed"]["requested"]["cpu_milli"], 1000);
    assert_eq!(
        dump["notes"][0],
        "ignored 2 Gödel objects and 2 assumed pods: pass --godel SCHEDULER_TYPE to use them"
    );
}

#[test]
fn a_stores_rows_are_printed_and_an_unknown_store_is_refused() {
    let cluster = file("dump-rows", "cluster.yaml", CLUSTER.as_bytes());
    let rows = |store: &str| {
        portolan(&["dump", "--cluster", &cluster, GODEL[0], GODEL[1], "--store", store])
    };
    assert!(rows("pods").out.contains("d/assumed") && rows("pods").out.contains(" guaranteed"));
    // Gödel's classes are not the QoS classes of Kubernetes.
    for store in ["pods", "nodes"] {
        let out = portolan(&["dump", "--cluster", &cluster, "--store", store]).out;
        assert!(!out.contains("guaranteed") && !out.contains("best-effort"), "{out}");
    }
    let nodes = rows("nodes").out;
    let row = nodes.lines().find(|line| line.contains(" both ")).expect("the node");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..6], ["Node", "+", "NMNode", "+", "CustomNodeResource"]);
    // Pods, cores, GiB and best-effort cores.
    assert_eq!(cells[6..], ["4/10", "2.25/3", "0/8", "0.5/1"]);
    assert!(rows("reservations").out.contains("d/web-0-placeholder"));
    assert!(rows("movements").out.contains("ReplicaSet/d/rs/r"));
    assert!(rows("marks").out.contains("u-victim"));
    assert!(rows("NMNode").out.contains("managed"));
    let run = rows("nonsense");
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("store \"nonsense\" does not exist: choose nodes, pods, reservations"),
        "{}",
        run.err
    );
    let run = portolan(&["dump", "--cluster", &cluster, "--store", "reservations"]);
    let says = "this store needs Gödel semantics: pass --godel SCHEDULER_TYPE";
    assert_eq!((run.code, run.err), (2, format!("portolan: {says}\n")));
}

#[test]
fn an_audit_finds_conflicts_and_dangling_references() {
    let cluster = file("audit", "cluster.yaml", CLUSTER.as_bytes());
    let run = portolan(&["audit", "--cluster", &cluster, GODEL[0], GODEL[1]]);
    assert_eq!((run.code, &*run.out), (0, "no problems found (2 nodes, 5 pods)\n"), "{}", run.err);
    let broken = CLUSTER
        // Overcommitted by the assumed pod.
        .replace("requests: { cpu: \"1\" }", "requests: { cpu: \"2\" }")
        // A missing node.
        .replace("nodename: both", "nodename: gone")
        .replace("node: both, desiredPodCount", "node: gone, desiredPodCount")
        // An invalid state.
        .replace(
            "{ name: waiting, namespace: d, uid: u-waiting }",
            "{ name: waiting, namespace: d, uid: u-waiting, annotations: \
             { godel.bytedance.com/pod-state: assumed, godel.bytedance.com/pod-group-name: g } }",
        );
    let cluster = file("audit", "broken.yaml", broken.as_bytes());
    let arguments = ["audit", "--cluster", &cluster, GODEL[0], GODEL[1], "--output", "json"];
    let run = portolan(&arguments);
    assert_eq!(run.code, 1, "{}", run.err);
    let audit: Value = serde_json::from_str(&run.out).unwrap();
    let found: Vec<String> = audit["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            let text = |key: &str| f[key].as_str().unwrap();
            format!("{}: {}: {}", text("kind"), text("object"), text("problem"))
        })
        .collect();
    assert_eq!(
        found,
        [
            "overcommitted: node both: guaranteed pods request 4 cpu, allocatable 3",
            "missing-pod-group: pod d/waiting: pod group g does not exist: the pod is not scheduled",
            "invalid-state: pod d/waiting: a pod in state assumed must have a selected-scheduler",
            "missing-reserved-node: movement m: node gone does not exist, but pods are suggested for it",
            "missing-reserved-node: reservation of d/web-0-placeholder: node gone does not exist",
        ]
    );
}

#[test]
fn what_if_and_replay_respect_assumed_pods_and_reservations() {
    let cluster = file("godel", "cluster.yaml", CLUSTER.as_bytes());
    let pod = file(
        "godel",
        "pod.yaml",
        b"apiVersion: v1
kind: Pod
metadata: { name: p, namespace: d, uid: p }
spec: { containers: [{ name: c, image: i, resources: { requests: { cpu: 250m } } }] }
",
    );
    let more = |godel: &[&str]| {
        let mut arguments =
            vec!["what-if", "--cluster", &cluster, "--fit-more", &pod, "--output", "json"];
        arguments.extend(godel);
        let run = portolan(&arguments);
        let value: Value = serde_json::from_str(&run.out).expect(&run.err);
        value["fit_more"]["count"].as_u64().unwrap()
    };
    // 2000m are free. Without Gödel semantics, a pending pod takes 300m of it, and the other
    // one belongs to a scheduler without a profile; with them, one pending pod takes 300m, and
    // the assumed pod and the reservation 1250m. The other machine has no kubelet.
    assert_eq!((more(&[]), more(&GODEL)), (6, 1));
    let nodes = file("godel", "nodes.yaml", CLUSTER.as_bytes());
    let run = portolan(&[
        "replay", "--nodes", &nodes, "--pods", &cluster, GODEL[0], GODEL[1], "--output", "json",
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    let replay: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&replay["pods"], &replay["placed"]), (&1.into(), &1.into()));
}

/// Two nodes of different schedulers, and a pod that is dispatched to each.
const SHARED: &str = r#"apiVersion: v1
kind: Node
metadata: { name: ours, annotations: { godel.bytedance.com/scheduler-name: s-1 } }
status: { allocatable: { cpu: "2", memory: 1Gi, pods: "10" } }
---
apiVersion: v1
kind: Node
metadata: { name: theirs, annotations: { godel.bytedance.com/scheduler-name: s-2 } }
status: { allocatable: { cpu: "8", memory: 8Gi, pods: "10" } }
"#;

fn dispatched(name: &str, scheduler: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{ name: {name}, namespace: d, uid: {name}, annotations: {{ \
         godel.bytedance.com/pod-state: dispatched, godel.bytedance.com/selected-scheduler: {scheduler} }} }}\n\
         spec: {{ schedulerName: godel-scheduler, containers: [{{ name: c, image: i, resources: \
         {{ requests: {{ cpu: \"1\" }} }} }}] }}\n"
    )
}

#[test]
fn a_component_schedules_its_pods_on_its_nodes_first() {
    let pods = dispatched("a", "s-1") + &dispatched("b", "s-2");
    let all = format!("{SHARED}{pods}");
    let (nodes, pods) = (SHARED.as_bytes(), pods.as_bytes());
    let [nodes, pods, all] = [("nodes", nodes), ("pods", pods), ("all", all.as_bytes())]
        .map(|(name, text)| file("component", &format!("{name}.yaml"), text));
    let placed = |godel: &str| {
        let arguments = ["what-if", "--cluster", &nodes, "--pods", &pods, "--output", "json"];
        let run = portolan(&[&arguments[..], &["--godel", godel]].concat());
        let answer: Value = serde_json::from_str(&run.out).expect(&run.err);
        let of = |list: &str| answer[list].as_array().unwrap().clone();
        let on = |pod: &Value| format!("{} {}", pod["pod"], pod["to"]).replace('"', "");
        (of("placed").iter().map(on).collect::<Vec<_>>(), of("unplaced"))
    };
    // The node of the other scheduler is emptier and gets the higher score.
    let (every, left) = placed("godel-scheduler");
    assert_eq!((every, left.len()), (vec!["d/a theirs".to_owned(), "d/b theirs".to_owned()], 0));
    let (own, left) = placed("godel-scheduler,component=s-1");
    assert_eq!((own, left.len()), (vec!["d/a ours".to_owned()], 1));
    let why = "the pod is not dispatched to s-1: omit component=s-1 to schedule it";
    assert!(left[0].to_string().contains(why), "{left:?}");

    let godel = "godel-scheduler,component=s-1";
    let run = portolan(&["explain", "--cluster", &all, "--godel", godel, "--pod", "d/b"]);
    assert!(run.out.contains(why), "{}{}", run.out, run.err);
    let run = portolan(&[
        "replay", "--nodes", &nodes, "--pods", &pods, "--godel", godel, "--output", "json",
    ]);
    let replay: Value = serde_json::from_str(&run.out).expect(&run.err);
    assert_eq!((&replay["pods"], &replay["placed"]), (&2.into(), &1.into()));
    let says = "1 pod not dispatched to s-1 (the first: d/b): omit component=s-1 to schedule all";
    assert!(replay["notes"].to_string().contains(says), "{replay}");
}

#[test]
fn a_group_with_a_unit_status_stays_scheduled() {
    let pod = |name: &str, created: u32, deleted: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{ name: {name}, namespace: d, uid: {name}, creationTimestamp: \
             \"2026-01-01T00:00:{created}Z\", {deleted} annotations: {{ godel.bytedance.com/pod-group-name: g }} }}\n\
             spec: {{ containers: [{{ name: c, image: i, resources: {{ requests: {{ cpu: \"1\" }} }} }}] }}\n"
        )
    };
    let group = "---\napiVersion: scheduling.godel.kubewharf.io/v1alpha1\nkind: PodGroup\n\
                 metadata: { name: g, namespace: d }\nspec: { minMember: 2 }\n";
    let ends = "deletionTimestamp: \"2026-01-01T00:00:20Z\",";
    let pods = pod("p1", 10, ends) + &pod("p2", 10, ends) + &pod("p3", 30, "");
    let all = file("units", "all.yaml", format!("{SHARED}{group}{pods}").as_bytes());
    let placed = |godel: &str| {
        let arguments = ["replay", "--nodes", &all, "--pods", &all, "--mode", "timed"];
        let run = portolan(&[&arguments[..], &["--output", "json", "--godel", godel]].concat());
        let replay: Value = serde_json::from_str(&run.out).expect(&run.err);
        replay["placed"].as_u64().unwrap()
    };
    assert_eq!(placed("godel-scheduler,unit-status=false"), 2, "the last pod waits for another");
    assert_eq!(placed("godel-scheduler,unit-status=true"), 3);
}

#[test]
fn an_invalid_part_of_the_godel_option_is_refused_with_the_way_out() {
    let settings = "pass component=NAME or unit-status=true|false";
    for (value, part, way_out) in [
        ("", "the first part \"\" is not a scheduler type", "begin with one"),
        ("component=s-1", "the first part \"component=s-1\" is not a scheduler type", "begin"),
        ("godel,component=", "part \"component=\" is not a setting", settings),
        ("godel,component=a,unit-status=yes", "part \"unit-status=yes\"", settings),
        ("godel,other=1", "part \"other=1\" is not a setting", settings),
        ("godel,", "part \"\" is not a setting", settings),
    ] {
        let run = portolan(&["dump", "--cluster", "none.yaml", "--godel", value]);
        assert_eq!(run.code, 2, "{value}");
        assert!(run.err.contains(part) && run.err.contains(way_out), "{value}: {}", run.err);
    }
}
