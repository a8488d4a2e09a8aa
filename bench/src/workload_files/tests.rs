//! The reader on files of its own.

use std::time::Duration;

use super::cases::{self, Invalid, Workload};
use super::steps::{Churn, ChurnMode, CreateNodes, CreatePods, Stage, Step};

/// A file with one case, whose operations and workload settings are given as YAML in flow style.
fn file(operations: &[&str], workload: &str) -> String {
    let mut text = String::from("- name: Case\n  workloadTemplate:\n");
    operations.iter().for_each(|operation| text.push_str(&format!("  - {{{operation}}}\n")));
    text.push_str(&format!("  workloads:\n  - {{name: small, {workload}}}\n"));
    text
}

fn workloads(text: &str) -> Vec<Workload> {
    cases::read(text).unwrap_or_else(|invalid| panic!("{invalid:?}"))
}

fn steps(operations: &[&str], workload: &str) -> Vec<Step> {
    workloads(&file(operations, workload)).remove(0).steps
}

/// The line and the text of an error.
fn error(operations: &[&str], workload: &str) -> (u64, String) {
    let Invalid { line, what } =
        cases::read(&file(operations, workload)).expect_err("an invalid file");
    (line, what)
}

fn pods(count: usize, namespace: Option<&str>) -> CreatePods {
    CreatePods { count, namespace: namespace.map(str::to_owned), ..CreatePods::default() }
}

#[test]
fn counts_are_fixed_or_parameters_of_the_workload() {
    let operations = [
        "opcode: createNodes, countParam: $nodes",
        "opcode: createNamespaces, prefix: ns, count: 2, namespaceTemplatePath: null",
        "opcode: createPods, count: 5, countParam: $pods, collectMetrics: true, namespace: ns-0",
        "Opcode: createPods, Count: 1, skipWaitToCompletion: true",
        "opcode: createPodSets, countParam: $nodes, namespacePrefix: s, \
         createPodsOp: {opcode: createPods, countParam: $pods}",
        "opcode: sleep, durationParam: $time",
    ];
    let found = steps(&operations, "params: {nodes: 2, pods: 7, time: 1m30s}");
    let expected = [
        Step::CreateNodes(CreateNodes { count: 2, ..CreateNodes::default() }),
        Step::CreateNamespaces { prefix: "ns".to_owned(), count: 2, template: None },
        Step::CreatePods(CreatePods { collects: true, ..pods(7, Some("ns-0")) }),
        Step::CreatePods(CreatePods { is_in_background: true, ..pods(1, None) }),
        Step::CreatePods(pods(7, Some("s-0"))),
        Step::CreatePods(pods(7, Some("s-1"))),
        Step::Sleep { duration: Duration::from_secs(90) },
    ];
    assert_eq!(found, expected);
}

#[test]
fn churn_updates_and_barriers_have_their_defaults() {
    let operations = [
        "opcode: churn, mode: create, templatePaths: [a.yaml]",
        "opcode: createAny, templatePath: x, namespace: web",
        "opcode: barrier",
        "opcode: barrier, stageRequirement: Attempted",
        "opcode: createPods, count: 2, steadyStateParam: $steady, duration: 5s",
    ];
    let found = steps(&operations, "params: {steady: true}");
    let [Step::Churn(churn), Step::CreateAny(any), rest @ ..] = &found[..] else {
        panic!("{found:?}")
    };
    let Churn { mode: ChurnMode::Create, number: 0, .. } = churn else { panic!("{churn:?}") };
    assert_eq!((churn.interval(), any.count), (Duration::from_millis(500), 1));
    let barrier = |stage| Step::Barrier { namespaces: Vec::new(), labels: [].into(), stage };
    let duration = Duration::from_secs(5);
    let steady = CreatePods { is_steady: true, duration, ..pods(2, None) };
    let expected = [barrier(Stage::Scheduled), barrier(Stage::Attempted), Step::CreatePods(steady)];
    assert_eq!(rest, expected);
}

#[test]
fn errors_name_the_line_and_the_field() {
    let sleep = "opcode: sleep, duration: 1s";
    let nodes = "opcode: createNodes, countParam: $nodes";
    let pods = "opcode: createPods, count: 1, collectMetrics: true, skipWaitToCompletion: true";
    let claim = "opcode: createPods, count: 1, persistentVolumeClaimTemplatePath: c";
    for (operation, parameters, expected) in [
        (nodes, "{node: 3}", "countParam: the parameter \"nodes\" is undefined"),
        (nodes, "{nodes: many}", "invalid type: string \"many\""),
        (
            "opcode: createNodes, countParam: nodes",
            "{}",
            "\"nodes\" is not a parameter: write $NAME",
        ),
        ("opcode: deleteNodes", "{}", "unknown variant `deleteNodes`"),
        ("opcode: createNodes, number: 1", "{}", "unknown field `number`"),
        ("count: 1", "{}", "missing field `opcode`"),
        ("opcode: createNodes, count: -1", "{}", "invalid value: integer `-1`"),
        ("opcode: churn, mode: recreate, templatePaths: [a]", "{}", "needs a number above 0"),
        (pods, "{}", "collectMetrics and skipWaitToCompletion exclude each other"),
        (claim, "{}", "a claim needs a persistentVolumeTemplatePath"),
    ] {
        let (line, what) = error(&[sleep, operation], &format!("params: {parameters}"));
        assert!(line == 4 && what.contains(expected), "{operation}: {line}: {what}");
    }
    let (line, what) = error(&[sleep], "label: [a]");
    assert!(line == 5 && what.contains("label"), "{line}: {what}");
    assert_eq!(cases::read("[]").expect_err("empty").what, "the file has no workloads");
    assert!(cases::read("- name: [").is_err());
}

#[test]
fn unused_parameters_are_known() {
    let unused = |operation: &str, parameters: &str| {
        let text = file(&[operation], &format!("params: {{{parameters}}}"));
        workloads(&text).remove(0).unused_parameter
    };
    let nodes = "opcode: createNodes, countParam: $nodes";
    assert_eq!(unused(nodes, "nodes: 1, node: 1"), Some("node".to_owned()));
    assert_eq!(unused(nodes, "nodes: 1"), None);
    let driver = "opcode: createResourceDriver, maxClaimsPerNodeParam: $max, nodes: n-*";
    assert_eq!(unused(driver, "max: 1"), None);
    assert_eq!(steps(&[driver], "params: {max: 1}"), [Step::CreateResourceDriver]);
}

#[test]
fn a_workload_adds_its_labels_gates_and_threshold_to_those_of_its_case() {
    let read = workloads(
        "- name: A\n  labels: [performance]\n  featureGates: {X: true, Y: true}\n  workloadTemplate:\n  \
         - {opcode: sleep, duration: 0s}\n  defaultThresholdMetricSelector: {name: m, dataBucket: Perc50}\n  \
         workloads:\n  - {name: one, labels: [short], featureGates: {Y: false}, threshold: 5}\n  \
         - {name: two, threshold: {misc: 7}, thresholdMetricSelector: {name: SchedulingThroughput, dataBucket: Average}}\n",
    );
    let [one, two] = &read[..] else { panic!("{} workloads", read.len()) };
    assert_eq!((one.full_name(), two.full_name()), ("A/one".to_owned(), "A/two".to_owned()));
    assert_eq!(one.feature_gates, [("X".to_owned(), true), ("Y".to_owned(), false)].into());
    assert_eq!((one.threshold.of("misc"), two.threshold.of("misc")), (Some(5.0), Some(7.0)));
    assert_eq!((&*one.threshold.selector.bucket, two.threshold.of("other")), ("Perc50", None));
    assert_eq!(two.threshold.selector.metric, "SchedulingThroughput");
    assert_eq!(one.labels, ["performance".to_owned(), "short".to_owned()].into());
    assert_eq!(two.labels, ["performance".to_owned()].into());
}

#[test]
fn names_must_be_unique() {
    let case = |name: &str, workloads: &str| {
        format!(
            "- name: {name}\n  workloadTemplate: [{{opcode: barrier}}]\n  workloads: [{workloads}]\n"
        )
    };
    let twice = |text: &str| cases::read(text).expect_err("a duplicate").what;
    let found = twice(&(case("A", "{name: x}") + &case("A", "{name: x}")));
    assert_eq!(found, "\"A\" occurs twice");
    assert_eq!(twice(&case("A", "{name: x}, {name: x}")), "\"x\" occurs twice");
}
