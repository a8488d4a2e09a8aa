//! `live` runs files of workloads.

use serde_json::Value;

use crate::common::{file, portolan};

const FILE: &str = r"
- name: Basic
  defaultPodTemplatePath: ../templates/pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    nodeTemplatePath: ../templates/node.yaml
  - opcode: createPods
    countParam: $pods
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  workloads:
  - name: tiny
    labels: [performance, short]
    threshold: 0.001
    params: {nodes: 3, pods: 5}
  - name: unreachable
    labels: [short]
    threshold: {topic: 1000000000000}
    params: {nodes: 3, pods: 1}
  - name: gated
    labels: [short]
    featureGates: {SchedulerQueueingHints: false}
    params: {nodes: 3, pods: 1}
  - name: full
    params: {nodes: 1, pods: 30}
- name: Preempting
  workloadTemplate:
  - opcode: createNodes
    count: 2
  - opcode: createPods
    namespace: low
    count: 8
    podTemplatePath: ../templates/low.yaml
  - opcode: createPods
    namespace: high
    count: 2
    podTemplatePath: ../templates/high.yaml
    collectMetrics: true
  workloads:
  - {name: tiny, labels: [short]}
- name: Gates
  workloadTemplate:
  - opcode: createNodes
    count: 1
    nodeTemplatePath: ../templates/node.yaml
  - opcode: startCollectingMetrics
    name: opened
    namespaces: [gated]
  - opcode: createPods
    namespace: gated
    count: 3
    podTemplatePath: ../templates/gated.yaml
    skipWaitToCompletion: true
  - opcode: barrier
    stageRequirement: Attempted
  - opcode: updateAny
    namespace: gated
    count: 3
    templatePath: ../templates/opened.yaml
  - opcode: barrier
    namespaces: [gated]
  - opcode: stopCollectingMetrics
  - opcode: deletePods
    namespace: gated
  - opcode: createPods
    namespace: gated
    count: 2
    podTemplatePath: ../templates/pod.yaml
  workloads:
  - {name: tiny, labels: [short]}
- name: Volumes
  workloadTemplate:
  - opcode: createNodes
    count: 2
    nodeAllocatableStrategy:
      csiNodeAllocatable: {csi.example.com: {count: 3}}
  - opcode: churn
    mode: recreate
    number: 1
    intervalMilliseconds: 1
    templatePaths: [../templates/node.yaml]
  - opcode: createPods
    count: 6
    podTemplatePath: ../templates/pod.yaml
    persistentVolumeTemplatePath: ../templates/volume.yaml
    persistentVolumeClaimTemplatePath: ../templates/claim.yaml
    collectMetrics: true
  workloads:
  - {name: tiny, labels: [short]}
- name: Steady
  workloadTemplate:
  - opcode: createNodes
    count: 3
    labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}
  - opcode: createPods
    count: 2
    podTemplatePath: ../templates/pod.yaml
    steadyState: true
    durationParam: $time
    collectMetrics: true
  - opcode: sleep
    duration: 1ms
  - opcode: createAny
    templatePath: ../templates/pod.yaml
    namespace: any
    count: 2
  - opcode: barrier
  workloads:
  - {name: tiny, params: {time: 2s}}
- name: Claims
  workloadTemplate:
  - opcode: createResourceDriver
    driverName: gpu.example.com
  workloads:
  - {name: tiny, labels: [short]}
";

const TEMPLATES: [(&str, &str); 7] = [
    (
        "node.yaml",
        "apiVersion: v1\nkind: Node\nmetadata: {generateName: node-}\n\
         status: {capacity: {cpu: 2, memory: 8Gi, pods: 50}}\n",
    ),
    (
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {generateName: pod-, labels: {n: 'p{{ Mod .Index 2 }}'}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  \
         - {name: main, image: pause, resources: {requests: {cpu: 100m}}}\n",
    ),
    ("low.yaml", LOW),
    ("high.yaml", HIGH),
    (
        "gated.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 'gated-{{.Index}}'}\n\
         spec: {terminationGracePeriodSeconds: 0, schedulingGates: [{name: hold}], containers: [{name: main, image: pause}]}\n",
    ),
    (
        "opened.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 'gated-{{.Index}}'}\n\
         spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: pause}]}\n",
    ),
    (
        "volume.yaml",
        "apiVersion: v1\nkind: PersistentVolume\nspec:\n  accessModes: [ReadOnlyMany]\n  capacity: {storage: 1Gi}\n  \
         csi: {driver: csi.example.com}\n",
    ),
];

const LOW: &str = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: low-}\n\
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: pause, resources: {requests: {cpu: 900m}}}]}\n";
const HIGH: &str = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: high-}\n\
    spec: {priority: 10, containers: [{name: main, image: pause, resources: {requests: {cpu: 3}}}]}\n";
const CLAIM: &str = "apiVersion: v1\nkind: PersistentVolumeClaim\n\
    metadata: {annotations: {pv.kubernetes.io/bind-completed: 'true'}}\n\
    spec: {accessModes: [ReadOnlyMany], resources: {requests: {storage: 1Gi}}}\n";

/// Writes the file and its templates into folders of the test, and returns the file's path.
fn written(test: &str) -> String {
    for (name, text) in TEMPLATES {
        file(&format!("{test}/templates"), name, text.as_bytes());
    }
    file(&format!("{test}/templates"), "claim.yaml", CLAIM.as_bytes());
    file(&format!("{test}/topic"), "performance-config.yaml", FILE.as_bytes())
}

/// Runs the file, and returns the exit status and the result.
fn run(test: &str, arguments: &[&str]) -> (i32, Value) {
    let path = written(test);
    let common = ["live", "--write-delay", "0", "--scheduler-perf", &path, "--output", "json"];
    let run = portolan(&[&common, arguments].concat());
    let result = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{}", run.err));
    (run.code, result)
}

/// The outcomes by the names of the workloads.
fn outcomes(result: &Value) -> Vec<(String, &str)> {
    let workloads = result["workloads"].as_array().expect("workloads");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let outcome = |of: &'_ Value| format!("{}/{}", text(&of["case"]), text(&of["workload"]));
    workloads.iter().map(|of| (outcome(of), of["outcome"].as_str().expect("a text"))).collect()
}

#[test]
fn every_operation_runs() {
    let (code, result) = run("perf_files", &["--label", "short"]);
    let expected = [
        ("Basic/tiny", "ran"),
        ("Basic/unreachable", "ran"),
        ("Basic/gated", "skipped"),
        ("Preempting/tiny", "ran"),
        ("Gates/tiny", "ran"),
        ("Volumes/tiny", "ran"),
        ("Claims/tiny", "skipped"),
    ];
    assert_eq!(outcomes(&result), expected.map(|(name, how)| (name.to_owned(), how)), "{result}");
    let pods = |index: usize| result["workloads"][index]["measured"][0]["pods"].as_u64();
    assert_eq!([0, 1, 3, 4, 5].map(pods), [5, 1, 2, 3, 6].map(Some), "{result}");
    let verdict = |index: usize| &result["workloads"][index]["measured"][0]["threshold"];
    assert_eq!(
        (verdict(0)["reached"].as_bool(), verdict(1)["reached"].as_bool()),
        (Some(true), Some(false))
    );
    assert_eq!(
        (verdict(0)["bucket"].as_str(), code),
        (Some("Average"), 1),
        "a threshold is missed"
    );
    let reason = |index: usize| result["workloads"][index]["reason"].as_str().expect("a reason");
    assert_eq!(reason(2), "portolan supports only SchedulerQueueingHints=true");
    assert!(reason(6).contains("CreateResourceDriver"), "{}", reason(6));
}

#[test]
fn the_default_is_the_label_performance_and_a_name_selects_regardless_of_labels() {
    let (code, result) = run("perf_files_default", &[]);
    assert_eq!((outcomes(&result), code), (vec![("Basic/tiny".to_owned(), "ran")], 0));
    let named = ["--case", "Basic/gated", "--case", "Claims", "--any-feature-gates"];
    let (code, result) = run("perf_files_named", &named);
    let expected = vec![("Basic/gated".to_owned(), "ran"), ("Claims/tiny".to_owned(), "skipped")];
    assert_eq!((outcomes(&result), code), (expected, 0));
    assert_eq!(result["workloads"][0]["ignored_feature_gates"].as_array().map(Vec::len), Some(1));
    // A folder stands for the files in it.
    let folder = written("perf_files_folder");
    let folder = folder.rsplit_once("/topic/").expect("a path").0;
    let run = portolan(&["live", "--scheduler-perf", folder]);
    assert!(run.out.contains("Basic/tiny") && run.out.contains("1 workload ran"), "{}", run.out);
}

#[test]
fn a_steady_state_recreates_its_pods_until_the_time_is_over() {
    let (code, result) = run("perf_files_steady", &["--case", "Steady"]);
    assert_eq!((outcomes(&result)[0].1, code), ("ran", 0), "{result}");
    let pods = result["workloads"][0]["measured"][0]["pods"].as_u64();
    assert!(pods >= Some(2), "{result}");
}

#[test]
fn a_workload_that_cannot_finish_fails_and_names_a_pod() {
    let few = ["--case", "Basic/full", "--time-limit", "5"];
    let (code, result) = run("perf_files_full", &few);
    let reason = result["workloads"][0]["reason"].as_str().expect("a reason");
    assert_eq!((outcomes(&result)[0].1, code), ("failed", 1));
    // 2 cores hold 20 of the 30 pods.
    let start = "20 of 30 pods were scheduled after 5 s; namespace-1/pod-";
    assert!(reason.starts_with(start), "{reason}");
}

#[test]
fn errors_name_the_file_the_line_and_the_remedy() {
    let live = |path: &str, more: &[&str]| {
        let run = portolan(&[&["live", "--scheduler-perf", path], more].concat());
        assert_eq!(run.code, 2, "{}", run.err);
        run.err
    };
    let broken = FILE.replacen("countParam: $pods", "countParam: $many", 1);
    let path = file("perf_files_errors", "broken.yaml", broken.as_bytes());
    let says = format!(
        "portolan: {path}:9: workload \"tiny\": countParam: the parameter \"many\" is undefined\n"
    );
    assert_eq!(live(&path, &[]), says);
    let several = file("perf_files_errors", "several.yaml", b"- name: A\n---\n- name: B\n");
    let says = "the file has several YAML documents: write one file for each\n";
    assert_eq!(live(&several, &[]), format!("portolan: {several}:3: {says}"));
    let path = written("perf_files_errors");
    let says = live(&path, &["--label", "nonesuch"]);
    assert!(says.contains("the labels are ") && says.contains("performance"), "{says}");
    let says = live(&path, &["--case", "Basic", "--case", "Nonesuch"]);
    assert!(
        says.contains("--case Nonesuch: the test cases are ") && says.contains("Basic"),
        "{says}"
    );
    let pod = file("perf_files_errors/templates", "pod.yaml", b"kind: Pod\n{{ range .Index }}\n");
    let folder = pod.trim_end_matches("templates/pod.yaml");
    let says = live(&path, &[]);
    let place = format!(
        "{folder}topic/../templates/pod.yaml:2: the template expression {{{{range .Index}}}}"
    );
    assert!(says.contains(&place), "{says}");
}
