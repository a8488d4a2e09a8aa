//! What is in a cluster, store by store, and whether it holds together; as one of
//! Gödel's, and by the programs that place pods there.

mod common;

use common::{file, portolan};
use serde_json::Value;

/// A machine with a kubelet, a node manager and reclaimed resources; one of a node
/// manager alone; pods in every state; a place that is held.
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
fn a_dump_names_each_store_with_what_is_in_it() {
    let cluster = file("dump", "cluster.yaml", CLUSTER.as_bytes());
    let run = portolan(&["dump", "--cluster", &cluster, GODEL[0], GODEL[1]]);
    assert_eq!(run.code, 0, "{}", run.err);
    let rows: Vec<Vec<&str>> =
        run.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| rows.iter().find(|row| row.first() == Some(&name)).expect(name);
    assert_eq!(row("nodes")[1], "2");
    assert_eq!(row("pods")[1], "5");
    assert_eq!((row("NMNode")[1], row("Reservation")[1], row("reservations")[1]), ("2", "1", "1"));
    assert!(run.out.contains("2 assumed; 1 more are on no node"), "{}", run.out);
    assert!(run.out.contains("1 held, 0 taken"), "{}", run.out);
    assert!(run.out.contains("suggestions; 2 more pods are wanted"), "{}", run.out);
    assert_eq!((row("movements")[1], row("marks")[1]), ("1", "1"));
}

#[test]
fn a_dump_tells_a_nodes_accounts_and_parts() {
    let cluster = file("dump-json", "cluster.yaml", CLUSTER.as_bytes());
    let arguments = ["dump", "--cluster", &cluster, GODEL[0], GODEL[1], "--output", "json"];
    let dump = dumped(&arguments);
    let node = &dump["nodes"]["both"];
    let of = |class: &str, what: &str| node[class][what]["cpu_milli"].as_i64().unwrap();
    assert_eq!(of("guaranteed", "allocatable"), 3000);
    // Bound, assumed, and the place that is held.
    assert_eq!(of("guaranteed", "requested"), 2250);
    assert_eq!((of("best-effort", "allocatable"), of("best-effort", "requested")), (1000, 500));
    assert_eq!(node["parts"].as_array().unwrap().len(), 3);
    assert_eq!(node["schedulers"][0], "ours");
    assert_eq!(dump["reservations"][0]["placeholder"], "web");
    assert_eq!(dump["movements"][0]["more"], 2);
    assert_eq!(dump["marks"][0]["preemptors"][0], "u-nominated");
    assert_eq!(dump["pending"][0]["pod"], "d/waiting");
    // Without the setting the annotations place nothing, and that is said.
    let dump = dumped(&["dump", "--cluster", &cluster, "--output", "json"]);
    assert_eq!(dump["nodes"]["both"]["guaranteed"]["requested"]["cpu_milli"], 1000);
    assert!(dump["notes"][0].as_str().unwrap().contains("--godel"), "{}", dump["notes"]);
}

#[test]
fn the_rows_of_a_store_are_printed_and_an_unknown_one_is_refused() {
    let cluster = file("dump-rows", "cluster.yaml", CLUSTER.as_bytes());
    let rows = |store: &str| {
        portolan(&["dump", "--cluster", &cluster, GODEL[0], GODEL[1], "--store", store])
    };
    assert!(rows("pods").out.contains("d/assumed"));
    assert!(rows("nodes").out.contains("Node + NMNode + CustomNodeResource"));
    assert!(rows("reservations").out.contains("d/web-0-placeholder"));
    assert!(rows("movements").out.contains("ReplicaSet/d/rs/r"));
    assert!(rows("marks").out.contains("u-victim"));
    assert!(rows("NMNode").out.contains("managed"));
    let run = rows("nonsense");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("there is no store \"nonsense\": name nodes, pods"), "{}", run.err);
    let run = portolan(&["dump", "--cluster", &cluster, "--store", "reservations"]);
    assert!((run.code, run.err.contains("give --godel")) == (2, true), "{}", run.err);
}

#[test]
fn an_audit_finds_what_does_not_hold_together() {
    let cluster = file("audit", "cluster.yaml", CLUSTER.as_bytes());
    let run = portolan(&["audit", "--cluster", &cluster, GODEL[0], GODEL[1]]);
    assert_eq!((run.code, run.out.lines().count()), (0, 1), "{}{}", run.out, run.err);
    let broken = CLUSTER
        // More than there is, by what is assumed.
        .replace("requests: { cpu: \"1\" }", "requests: { cpu: \"2\" }")
        // On a node that is not there.
        .replace("nodename: both", "nodename: gone")
        .replace("node: both, desiredPodCount", "node: gone, desiredPodCount")
        // In no state.
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
            format!("{} {}: {}", text("found"), text("where"), text("what"))
        })
        .collect();
    assert_eq!(
        found,
        [
            "overcommitted node both: guaranteed pods take 4000m of 3000m cpu",
            "missing node gone: it is not there, and 1 pods are on it",
            "state pod d/waiting: its annotations are no state: a pod that is assumed has a \
             selected-scheduler",
            "missing pod d/waiting: its pod group d/g is not there",
            "missing reservation of d/web-0-placeholder: its node gone is not there",
            "missing movement m: it wants pods on node gone, which is not there",
        ]
    );
}

#[test]
fn what_if_and_replay_know_what_is_assumed_and_held() {
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
    // Of 2000m that are left 1300m go to the two that wait; or to the one, and 1250m to
    // what is assumed and the place. The other machine has no kubelet.
    assert_eq!((more(&[]), more(&GODEL)), (2, 1));
    let nodes = file("godel", "nodes.yaml", CLUSTER.as_bytes());
    let run = portolan(&[
        "replay", "--nodes", &nodes, "--pods", &cluster, GODEL[0], GODEL[1], "--output", "json",
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    let replay: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&replay["pods"], &replay["placed"]), (&1.into(), &1.into()));
}
