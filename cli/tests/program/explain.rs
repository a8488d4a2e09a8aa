//! An explanation contains kube-scheduler's message, the shortfall of each node, and
//! changes that make the pod fit.

use crate::common::{Run, file, portolan};
use serde_json::Value;

const CLUSTER: &[u8] = b"apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a1, labels: {disktype: ssd}}, status: {allocatable: {cpu: '4', memory: 16Gi, pods: '110'}}}
- {apiVersion: v1, kind: Node, metadata: {name: a2}, status: {allocatable: {cpu: '4', memory: 16Gi, pods: '110'}}}
- {apiVersion: v1, kind: Node, metadata: {name: t1, labels: {disktype: ssd}}, spec: {taints: [{key: gpu, value: 'yes', effect: NoSchedule}]}, status: {allocatable: {cpu: '32', memory: 64Gi, pods: '110'}}}
- {apiVersion: v1, kind: Pod, metadata: {name: p1, namespace: d}, spec: {nodeName: a1, containers: [{name: c, resources: {requests: {cpu: '3'}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: new, namespace: d}, spec: {nodeSelector: {disktype: ssd}, containers: [{name: c, resources: {requests: {cpu: '2'}}}]}}
";

fn explain(test: &str, arguments: &[&str]) -> Run {
    let cluster = file(test, "cluster.yaml", CLUSTER);
    portolan(&[&["explain", "--cluster", &cluster], arguments].concat())
}

fn json(test: &str, arguments: &[&str]) -> Value {
    let run = explain(test, &[arguments, &["--output", "json"]].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).expect("one JSON object")
}

#[test]
fn an_unschedulable_pod_gets_reasons_and_helpful_changes() {
    let found = json("nowhere", &["--pod", "d/new"]);
    assert_eq!(
        found["message"],
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node \
         affinity/selector, 1 node(s) had untolerated taint(s). no new claims to deallocate, \
         preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful \
         for scheduling."
    );
    assert_eq!(found["nodes"]["a1"]["rejections"][0]["reasons"][0], "Insufficient cpu");
    let groups = found["groups"].as_array().unwrap();
    assert!(groups.iter().any(|group| group["shortfall"]["least"] == 1000), "{found}");
    let changes: Vec<(&str, &str)> = found["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| &change["steps"][0])
        .map(|step| (step["kind"].as_str().unwrap(), step["what"].as_str().unwrap()))
        .collect();
    assert_eq!(
        changes,
        [
            ("toleration", "tolerate gpu=yes:NoSchedule"),
            ("label", "label node a2 disktype=ssd"),
            ("node-selector", "remove disktype=ssd from the nodeSelector"),
            ("request", "lower the cpu request from 2 to 1"),
            ("evict", "evict d/p1 from node a1"),
        ]
    );
}

#[test]
fn a_placed_pod_is_evaluated_as_if_it_were_pending() {
    let found = json("placed", &["--pod", "d/p1"]);
    assert_eq!(found["fits_on"], 2, "{found}");
    assert_eq!(found["message"], Value::Null);
    let scores = found["nodes"]["a1"]["scores"].as_array().unwrap();
    let fit = scores.iter().find(|score| score["plugin"] == "NodeResourcesFit").unwrap();
    // A quarter of the cpu and nearly all of the memory is free.
    assert_eq!(fit["raw"], (25 + 98) / 2);
    let first = "runs on node a1; as if it were pending: fits on 2 of 3 nodes";
    assert_eq!((&found["why"], &found["state"]), (&first.into(), &"placed".into()));
}

#[test]
fn csv_and_table_agree() {
    let csv = explain("rows", &["--pod", "d/new", "--output", "csv"]).out;
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("node,plugin,status,reasons,raw,normalized,weighted,total"));
    assert_eq!(lines.next(), Some("a1,NodeResourcesFit,Unschedulable,Insufficient cpu,,,,"));
    let table = explain("rows", &["--pod", "d/new", "--node", "t1"]).out;
    assert!(table.contains("pod d/new: fits on 0 of 1 node\n"), "{table}");
    let rejected = "t1: rejected by TaintToleration (UnschedulableAndUnresolvable): node(s) had \
                    untolerated taint(s)\n\nChanges that would make the pod fit:\n";
    assert!(table.contains(rejected), "{table}");
    assert!(table.contains("tolerate gpu=yes:NoSchedule (1 node)"), "{table}");
    assert!(!table.contains("evict d/p1"), "{table}");
}

#[test]
fn the_profile_selects_the_plugins() {
    let config = b"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {filter: {disabled: [{name: TaintToleration}]}}
";
    let config = file("profile", "config.yaml", config);
    let found = json("profile", &["--pod", "d/new", "--config", &config]);
    assert_eq!((&found["fits_on"], &found["nodes"]["t1"]["fits"]), (&1.into(), &true.into()));
    let bad = file(
        "profile",
        "bad.yaml",
        b"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: Nonesuch}]}}
",
    );
    let run = explain("profile", &["--pod", "d/new", "--config", &bad]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("bad.yaml:4:") && run.err.contains("Nonesuch"), "{}", run.err);
}

#[test]
fn extenders_are_named_and_not_called() {
    let config = b"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {urlPrefix: 'http://127.0.0.1:1/gpu', filterVerb: filter}
";
    let config = file("extenders", "config.yaml", config);
    let note = "the configuration's extenders are not called (http://127.0.0.1:1/gpu): nodes that \
                they would reject are feasible here";
    let ignore = "--ignore-extenders";
    let found = json("extenders", &["--pod", "d/new", "--config", &config, ignore]);
    assert_eq!(found["notes"][0], note);
    let cluster = file("extenders", "cluster.yaml", CLUSTER);
    let commands = [&["what-if", "--cluster", &*cluster][..], &["replay", "--first", "10"]];
    for command in commands {
        let run = portolan(&[command, &["--config", &config, ignore]].concat());
        assert!(run.out.contains(note), "{} {}", run.out, run.err);
        let refused = portolan(&[command, &["--config", &config]].concat());
        assert!(refused.code == 2 && refused.err.contains(ignore), "{}", refused.err);
    }
}

#[test]
fn a_missing_pod_or_node_is_an_error() {
    for (arguments, says) in [
        (
            &["--pod", "d/none"][..],
            "pod d/none does not exist in the cluster, and neither does a file of this name: pass \
             NAMESPACE/NAME, KIND/NAME or a file",
        ),
        (&["--pod", "d/new", "--node", "a9"][..], "node a9 does not exist: did you mean a1 or a2?"),
    ] {
        let run = explain("missing", arguments);
        assert_eq!((run.code, &*run.out), (2, ""));
        assert_eq!(run.err, format!("portolan: {says}\n"));
    }
}

#[test]
fn a_finished_pod_is_said_to_have_finished() {
    let done = "- {apiVersion: v1, kind: Pod, metadata: {name: done, namespace: d}, spec: {containers: [{name: \
                c}]}, status: {phase: Succeeded}}\n";
    let cluster = String::from_utf8_lossy(CLUSTER).into_owned() + done;
    let cluster = file("finished", "cluster.yaml", cluster.as_bytes());
    let pod = file("finished", "pod.yaml", done.as_bytes());
    for asked in ["d/done", &*pod] {
        let run = portolan(&["explain", "--cluster", &cluster, "--pod", asked]);
        let first = "pod d/done: has finished (Succeeded): it is not scheduled again\n";
        assert_eq!((run.code, &*run.out), (0, first), "{}", run.err);
    }
    let run = portolan(&["explain", "--cluster", &cluster, "--pod", "d/done", "--output", "csv"]);
    let header = "node,plugin,status,reasons,raw,normalized,weighted,total\n";
    assert_eq!((run.code, &*run.out), (0, header), "{}", run.err);
}

/// A controller of pods that request 2 cpu.
fn controller(kind: &str) -> String {
    format!(
        "- {{apiVersion: apps/v1, kind: {kind}, metadata: {{name: web, namespace: d}}, spec: {{selector: {{matchLabels: \
         {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, resources: \
         {{requests: {{cpu: '2'}}}}}}]}}}}}}}}\n"
    )
}

#[test]
fn a_controller_of_the_cluster_is_evaluated_with_one_more_replica() {
    for kind in ["Deployment", "StatefulSet"] {
        let cluster = String::from_utf8_lossy(CLUSTER).into_owned() + &controller(kind);
        let cluster = file(kind, "cluster.yaml", cluster.as_bytes());
        let pod = file(kind, "web.yaml", controller(kind).as_bytes());
        let asked = ["explain", "--cluster", &cluster, "--pod", &pod, "--output", "json"];
        let run = portolan(&asked);
        assert_eq!(run.code, 0, "{}", run.err);
        let found: Value = serde_json::from_str(&run.out).expect("one JSON object");
        assert_eq!((&found["pod"], &found["fits_on"]), (&"d/web-1".into(), &1.into()), "{found}");
        let note = format!(
            "the cluster has all pods of {kind} d/web: evaluated as if it had one more replica"
        );
        let notes = found["notes"].as_array().expect("notes");
        assert!(notes.iter().any(|it| *it == *note), "{found}");
    }
}

#[test]
fn a_daemon_set_of_the_cluster_is_refused_with_one_of_its_pods() {
    let cluster = String::from_utf8_lossy(CLUSTER).into_owned() + &controller("DaemonSet");
    let cluster = file("daemons", "cluster.yaml", cluster.as_bytes());
    let pod = file("daemons", "web.yaml", controller("DaemonSet").as_bytes());
    let run = portolan(&["explain", "--cluster", &cluster, "--pod", &pod]);
    let says =
        "the cluster has all pods of DaemonSet d/web: pass one of them, such as --pod d/web-";
    assert!(run.code == 2 && run.err.contains(says), "{}", run.err);
}

#[test]
fn the_first_line_names_what_a_pod_group_lacks() {
    let pod = |name: &str| {
        format!(
            "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: d, labels: \
             {{scheduling.x-k8s.io/pod-group: g}}}}, spec: {{containers: [{{name: c}}]}}}}\n"
        )
    };
    let group = "- {apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g, \
                 namespace: d}, spec: {minMember: 2}}\n";
    let message = |test: &str, pods: &[&str], group: &str| {
        let pods: String = pods.iter().map(|name| pod(name)).collect();
        let cluster = String::from_utf8_lossy(CLUSTER).into_owned() + &pods + group;
        let cluster = file(test, "cluster.yaml", cluster.as_bytes());
        let asked = ["explain", "--cluster", &cluster, "--pod", "d/m1", "--output", "json"];
        let run = portolan(&asked);
        assert_eq!(run.code, 0, "{}", run.err);
        let found: Value = serde_json::from_str(&run.out).expect("one JSON object");
        found["message"].as_str().map(|message| {
            assert_eq!(found["why"], format!("not scheduled: {message}"));
            message.to_owned()
        })
    };
    let unknown = message("group-unknown", &["m1"], "").expect("a message");
    assert!(unknown.contains("pod group \"g\" to appear"), "{unknown}");
    let few = message("group-few", &["m1"], group).expect("a message");
    assert!(few.contains("waiting for minCount pods"), "{few}");
    assert_eq!(message("group-complete", &["m1", "m2"], group), None);
}
