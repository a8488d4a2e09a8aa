//! The reader on files of its own.

use std::time::Duration;

use super::cases::{self, Workload};
use super::steps::{Any, Churn, ChurnMode, CreatePods, Labels, Preparation, Stage, Step};
use super::tree::Why;

/// A file with one case, whose operations and workload settings are given as YAML in flow style.
fn file(operations: &[&str], workload: &str) -> String {
    let mut text = String::from("- name: Case\n  workloadTemplate:\n");
    operations.iter().for_each(|operation| text.push_str(&format!("  - {{{operation}}}\n")));
    text.push_str(&format!("  workloads:\n  - {{name: small, {workload}}}\n"));
    text
}

fn steps(operations: &[&str], workload: &str) -> Vec<Step> {
    let read = cases::read(&file(operations, workload));
    read.unwrap_or_else(|invalid| panic!("{invalid}")).remove(0).steps
}

/// The line, the path and the reason of an error.
fn error(operations: &[&str], workload: &str) -> (u64, String, Why) {
    let invalid = cases::read(&file(operations, workload)).expect_err("an invalid file");
    (invalid.line, invalid.path, invalid.why)
}

fn labels(name: &str, value: &str) -> Labels {
    [(name.to_owned(), value.to_owned())].into()
}

fn plain(count: usize) -> CreatePods {
    CreatePods {
        count,
        namespace: None,
        template: None,
        volumes: None,
        collects: false,
        waits: true,
        steady: None,
    }
}

#[test]
fn counts_are_fixed_or_parameters_of_the_workload() {
    let operations = [
        "opcode: createNodes, countParam: $nodes, labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}",
        "opcode: createNamespaces, prefix: ns, count: 2",
        "opcode: createPods, count: 5, countParam: $pods, collectMetrics: true, namespace: ns-0",
        "Opcode: createPods, Count: 1, skipWaitToCompletion: true",
    ];
    let found = steps(&operations, "params: {nodes: 3, pods: 7}");
    let key = "zone".to_owned();
    let preparation = Preparation::Label { key, values: vec!["a".into(), "b".into()] };
    let expected = [
        Step::CreateNodes { count: 3, template: None, preparation },
        Step::CreateNamespaces { prefix: "ns".to_owned(), count: 2, template: None },
        Step::CreatePods(CreatePods {
            namespace: Some("ns-0".to_owned()),
            collects: true,
            ..plain(7)
        }),
        Step::CreatePods(CreatePods { waits: false, ..plain(1) }),
    ];
    assert_eq!(found, expected);
}

#[test]
fn sets_of_pods_are_one_operation_per_namespace() {
    let set = "opcode: createPodSets, countParam: $sets, namespacePrefix: s, \
        createPodsOp: {opcode: createPods, count: 4}";
    let found =
        steps(&[set, "opcode: sleep, durationParam: $time"], "params: {sets: 2, time: 1m30s}");
    let pods = |namespace: &str| {
        Step::CreatePods(CreatePods { namespace: Some(namespace.to_owned()), ..plain(4) })
    };
    assert_eq!(found, [pods("s-0"), pods("s-1"), Step::Sleep(Duration::from_secs(90))]);
}

#[test]
fn churn_deletions_updates_and_barriers_have_their_defaults() {
    let operations = [
        "opcode: churn, mode: create, templatePaths: [a.yaml]",
        "opcode: churn, mode: recreate, number: 2, intervalMilliseconds: 50, namespace: c, templatePaths: [a, b]",
        "opcode: deletePods, namespace: web, deletePodsPerSecond: 50, skipWaitToCompletion: true, labelSelector: {a: b}",
        "opcode: createAny, templatePath: x, namespace: web",
        "opcode: updateAny, templatePath: x, countParam: $some, updatePerSecond: 9, subresources: [resize]",
        "opcode: barrier",
        "opcode: barrier, namespaces: [web], stageRequirement: Attempted, labelSelector: {a: b}",
        "opcode: createPods, count: 2, steadyStateParam: $steady, duration: 5s",
        "opcode: createPods, count: 2, persistentVolumeTemplatePath: v, persistentVolumeClaimTemplatePath: c",
    ];
    let found = steps(&operations, "params: {some: 3, steady: true}");
    let churn = |mode, milliseconds, namespace: Option<&str>, templates: &[&str]| {
        Step::Churn(Churn {
            mode,
            interval: Duration::from_millis(milliseconds),
            namespace: namespace.map(str::to_owned),
            templates: templates.iter().map(|path| (*path).to_owned()).collect(),
        })
    };
    let any = |namespace: Option<&str>, count| Any {
        namespace: namespace.map(str::to_owned),
        template: "x".to_owned(),
        count,
    };
    let expected = [
        churn(ChurnMode::Create(None), 500, None, &["a.yaml"]),
        churn(ChurnMode::Recreate(2), 50, Some("c"), &["a", "b"]),
        Step::DeletePods {
            namespace: "web".to_owned(),
            labels: labels("a", "b"),
            per_second: 50,
            waits: false,
        },
        Step::CreateAny(any(Some("web"), 1)),
        Step::UpdateAny {
            any: any(None, 3),
            per_second: 9,
            subresources: vec!["resize".to_owned()],
        },
        Step::Barrier { namespaces: Vec::new(), labels: Labels::new(), stage: Stage::Scheduled },
        Step::Barrier {
            namespaces: vec!["web".to_owned()],
            labels: labels("a", "b"),
            stage: Stage::Attempted,
        },
        Step::CreatePods(CreatePods { steady: Some(Duration::from_secs(5)), ..plain(2) }),
        Step::CreatePods(CreatePods { volumes: Some(("v".into(), "c".into())), ..plain(2) }),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_parameter_must_be_defined_and_of_its_type() {
    let nodes = "opcode: createNodes, countParam: $nodes";
    let path = "[0].workloadTemplate[0].countParam".to_owned();
    let small = || "small".to_owned();
    let undefined = Why::UndefinedParameter("nodes".to_owned(), small());
    assert_eq!(error(&[nodes], "labels: [a]"), (3, path.clone(), undefined));
    let wrong = Why::WrongParameter("nodes".to_owned(), small(), "a count");
    let value = "[0].workloads[0].params.nodes".to_owned();
    assert_eq!(error(&[nodes], "params: {nodes: many}"), (5, value, wrong));
    let none = Why::NoParameter("nodes".to_owned());
    assert_eq!(error(&["opcode: createNodes, countParam: nodes"], "labels: [a]"), (3, path, none));
}

#[test]
fn a_parameter_that_no_operation_uses_is_noted() {
    let unused = |parameters: &str| {
        let operation = "opcode: createNodes, countParam: $nodes";
        let read = cases::read(&file(&[operation], &format!("params: {{{parameters}}}")));
        read.unwrap_or_else(|invalid| panic!("{invalid}")).remove(0).unused_parameter
    };
    assert_eq!(unused("nodes: 1, node: 1"), Some("node".to_owned()));
    assert_eq!(unused("nodes: 1"), None);
}

#[test]
fn an_unknown_operation_or_field_is_an_error_at_its_line() {
    let sleep = "opcode: sleep, duration: 1s";
    let place = |field: &str| format!("[0].workloadTemplate[1]{field}");
    let opcode = Why::UnknownOpcode("deleteNodes".to_owned());
    let found = error(&[sleep, "opcode: deleteNodes"], "labels: [a]");
    assert_eq!(found, (4, place(".opcode"), opcode));
    let field = Why::UnknownField("number".to_owned());
    let found = error(&[sleep, "opcode: createNodes, number: 1"], "labels: [a]");
    assert_eq!(found, (4, place(""), field));
    let missing = error(&[sleep, "count: 1"], "labels: [a]");
    assert_eq!(missing, (4, place(""), Why::Missing("opcode")));
    let negative = error(&[sleep, "opcode: createNodes, count: -1"], "labels: [a]");
    assert_eq!(negative, (4, place(".count"), Why::Type("a count")));
    let mode = error(&[sleep, "opcode: churn, mode: recreate, templatePaths: [a]"], "labels: [a]");
    assert_eq!(mode.0, 4);
    let both = "opcode: createPods, count: 1, collectMetrics: true, skipWaitToCompletion: true";
    assert!(matches!(error(&[sleep, both], "labels: [a]"), (4, _, Why::Value(_))));
    let found = error(&[sleep], "label: [a]");
    assert_eq!(found.2, Why::UnknownField("label".to_owned()));
    assert_eq!(cases::read("[]").expect_err("empty").why.to_string(), "the file has no workloads");
    assert!(cases::read("- name: [").is_err());
}

#[test]
fn operations_of_resource_claims_are_known_and_use_their_parameters() {
    let found = steps(
        &["opcode: createResourceDriver, maxClaimsPerNodeParam: $max, nodes: n-*"],
        "params: {max: 1}",
    );
    assert_eq!(found, [Step::Unsupported("createResourceDriver".to_owned())]);
}

fn workloads(text: &str) -> Vec<Workload> {
    cases::read(text).unwrap_or_else(|invalid| panic!("{invalid}"))
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
    for (filter, expected) in [
        (&["performance"][..], [true, true]),
        (&["performance", "short"], [true, false]),
        (&["+performance", "-short"], [false, true]),
        (&["integration-test"], [false, false]),
        (&[""], [true, true]),
    ] {
        let found = [one, two].map(|workload| workload.has_labels(filter.iter().copied()));
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[test]
fn names_must_be_unique() {
    let case = |name: &str, workloads: &str| {
        format!(
            "- name: {name}\n  workloadTemplate: [{{opcode: barrier}}]\n  workloads: [{workloads}]\n"
        )
    };
    let twice = |text: &str| cases::read(text).expect_err("a duplicate").why;
    let found = twice(&(case("A", "{name: x}") + &case("A", "{name: x}")));
    assert_eq!(found, Why::Twice("A".to_owned()));
    assert_eq!(twice(&case("A", "{name: x}, {name: x}")), Why::Twice("x".to_owned()));
}
