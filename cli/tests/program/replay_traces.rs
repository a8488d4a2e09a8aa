//! Placements of a replay as CSV, Kubernetes traces with times, and pods that wait for others.

use crate::common::{file, portolan};
use serde_json::Value;

const NODE: &[u8] = b"apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: \
    {kubernetes.io/hostname: n}}\nstatus: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";

/// A pod with these metadata and this part of its spec.
fn pod(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: u-{name}, \
         {metadata}}}\nspec: {{{spec} containers: [{{name: c, resources: {{requests: {{cpu: \
         600m}}}}}}]}}\n"
    )
}

fn replay(test: &str, pods: &[String], more: &[&str]) -> (Value, Vec<Vec<String>>) {
    let nodes = file(test, "nodes.yaml", NODE);
    let pods = file(test, "pods.yaml", pods.concat().as_bytes());
    let rows = file(test, "placements.csv", b"");
    let arguments = ["replay", "--nodes", &nodes, "--pods", &pods, "--output", "json"];
    let run = portolan(&[&arguments[..], &["--placements", &rows], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let text = std::fs::read_to_string(rows).expect("placements");
    let split = |line: &str| line.split(',').map(str::to_owned).collect();
    (serde_json::from_str(&run.out).expect("one JSON object"), text.lines().map(split).collect())
}

#[test]
fn times_of_kubernetes_pods_are_their_arrivals_and_ends() {
    let time = |second: u32| format!("'1970-01-01T00:00:{second:02}Z'");
    let times =
        |from, to| format!("creationTimestamp: {}, deletionTimestamp: {}", time(from), time(to));
    let stays = format!("creationTimestamp: {}", time(20));
    let pods = [
        pod("b", &times(4, 9), ""),
        pod("a", &times(0, 10), ""),
        pod("c", &stays, ""),
        pod("d", &stays, ""),
    ];
    let (result, rows) = replay("trace", &pods, &["--mode", "timed"]);
    assert_eq!((&result["placed"], &result["failed"]), (&3.into(), &1.into()), "{result}");
    assert_eq!(
        rows[0].join(","),
        "namespace,pod,uid,arrived,placed,node,waited,ended,placed_last,why"
    );
    // Pod b waits for the end of a, and runs for its own five seconds.
    assert_eq!(rows[1].join(","), "d,b,u-b,4,10,n,6,15,10,");
    assert_eq!(rows[2].join(","), "d,a,u-a,0,0,n,0,10,0,");
    assert_eq!(rows[3].join(","), "d,c,u-c,20,20,n,0,,20,");
    assert!(rows[4].join(",").starts_with("d,d,u-d,20,,,,,,"), "{rows:?}");
    assert!(rows[4].join(",").contains("Insufficient cpu"), "{rows:?}");
}

#[test]
fn a_pod_that_needs_a_later_pod_is_placed_after_it() {
    let affinity = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                    [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: \
                    {app: b}}}]}},";
    let small = |pod: String| pod.replace("600m", "100m");
    let pods =
        [small(pod("a", "labels: {app: a}", affinity)), small(pod("b", "labels: {app: b}", ""))];
    let (result, rows) = replay("later", &pods, &[]);
    assert_eq!((&result["placed"], &result["failed"]), (&2.into(), &0.into()), "{result}");
    assert_eq!((&*rows[1][5], &*rows[2][5]), ("n", "n"), "{rows:?}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_its_feature() {
    let nodes = file("parquet", "nodes.yaml", NODE);
    let pods = file("parquet", "pods.yaml", pod("a", "", "").as_bytes());
    let run =
        portolan(&["replay", "--nodes", &nodes, "--pods", &pods, "--placements", "out.PARQUET"]);
    assert_eq!((run.code, &*run.out), (2, ""));
    let says = "portolan: out.PARQUET: this program was built without the feature parquet: pass a \
                .csv file, or build it with --features parquet\n";
    assert_eq!(run.err, says);
}
