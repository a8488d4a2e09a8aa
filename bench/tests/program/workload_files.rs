//! `live` runs files of workloads.

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
    labels: [performance]
    threshold: 0.001
    params: {nodes: 3, pods: 5}
  - name: unreachable
    threshold: {topic: 1000000000000}
    params: {nodes: 3, pods: 1}
  - name: gated
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
  - {name: tiny}
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
  - {name: tiny}
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
  - {name: tiny}
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
  - {name: tiny}
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

/// Runs the file, and returns the exit status and the report.
fn run(test: &str, arguments: &[&str]) -> (i32, String) {
    let path = written(test);
    let run = portolan(&[&["live", "--scheduler-perf", &path], arguments].concat());
    assert!(run.out.contains("pods per second"), "{}", run.err);
    (run.code, run.out)
}

/// The words of the row of a workload.
fn row<'r>(report: &'r str, workload: &str) -> Vec<&'r str> {
    let mut rows = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(&workload));
    row.unwrap_or_else(|| panic!("no {workload}: {report}"))
}

#[test]
fn every_operation_runs() {
    let named = [
        "Basic/tiny",
        "Basic/unreachable",
        "Basic/gated",
        "Preempting",
        "Gates",
        "Volumes",
        "Claims",
        "Steady",
    ];
    let named: Vec<&str> = named.iter().flat_map(|name| ["--case", name]).collect();
    let (code, report) = run("perf_files", &named);
    let pods = |workload: &str| row(&report, workload)[2];
    let ran = ["Basic/tiny", "Basic/unreachable", "Preempting/tiny", "Gates/tiny", "Volumes/tiny"];
    assert_eq!(ran.map(pods), ["5", "1", "2", "3", "6"], "{report}");
    let verdict = |workload: &str| row(&report, workload).last().copied();
    assert_eq!([verdict(ran[0]), verdict(ran[1])], [Some("yes"), Some("no")], "{report}");
    // A steady state recreates its pods until the time is over.
    assert!(pods("Steady/tiny").parse::<u32>().is_ok_and(|pods| pods >= 2), "{report}");
    for end in [
        "\nskipped Basic/gated: portolan supports only SchedulerQueueingHints=true\n",
        "\nskipped Claims/tiny: the operation CreateResourceDriver is not supported\n",
        "\n6 workloads ran, 2 skipped, 0 failed, 1 missed the threshold\n",
    ] {
        assert!(report.contains(end), "{report}");
    }
    assert_eq!(code, 1, "a threshold is missed");
}

#[test]
fn the_default_is_the_label_performance_in_all_files_of_a_folder() {
    let path = written("perf_files_folder");
    let folder = path.rsplit_once("/topic/").expect("a path").0;
    let run = portolan(&["live", "--scheduler-perf", folder]);
    assert!(run.out.contains("1 workload ran, 0 skipped") && run.code == 0, "{}", run.out);
    assert_eq!(row(&run.out, "Basic/tiny")[2], "5");
}

#[test]
fn a_workload_that_cannot_finish_fails_and_names_a_pod() {
    let few = ["--case", "Basic/full", "--time-limit", "5"];
    let (code, report) = run("perf_files_full", &few);
    // 2 cores hold 20 of the 30 pods.
    let reason = "failed Basic/full: 20 of 30 pods were scheduled after 5 s; namespace-1/pod-";
    assert!(report.contains(reason) && code == 1, "{report}");
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
        "portolan: {path}:8: workload \"tiny\": countParam: the parameter \"many\" is undefined\n"
    );
    assert_eq!(live(&path, &[]), says);
    let several = file("perf_files_errors", "several.yaml", b"- name: A\n---\n- name: B\n");
    let says = "the file has several YAML documents: write one file for each\n";
    assert_eq!(live(&several, &[]), format!("portolan: {several}:3: {says}"));
    let path = written("perf_files_errors");
    let unlabeled = FILE.replace("performance", "other");
    let unlabeled = file("perf_files_errors", "unlabeled.yaml", unlabeled.as_bytes());
    assert!(live(&unlabeled, &[]).contains("no workload has the label performance"));
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
