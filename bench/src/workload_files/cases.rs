//! Reads a file of scheduler_perf: a list of test cases, each with operations and the workloads that run them.

use std::collections::{BTreeMap, BTreeSet};

use portolan_k8s::yaml::At;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::steps::{self, Labels, Parameters, Step};

/// One workload of a test case, with all settings of its case.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) case: String,
    pub(super) name: String,
    /// The labels of the case and of the workload.
    pub(super) labels: BTreeSet<String>,
    pub(super) feature_gates: BTreeMap<String, bool>,
    pub(super) default_pod_template: Option<String>,
    pub(super) scheduler_config: Option<String>,
    pub(super) threshold: Threshold,
    pub(super) steps: Vec<Step>,
    /// A parameter that no operation refers to.
    pub(super) unused_parameter: Option<String>,
}

/// The value that a metric must exceed or, with `expects_lower`, stay below.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Threshold {
    values: Thresholds,
    pub(super) selector: Selector,
}

/// The value of a threshold, or one for each topic. 0: no threshold.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Thresholds {
    Value(f64),
    ByTopic(BTreeMap<String, f64>),
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds::Value(0.0)
    }
}

impl Threshold {
    /// Returns the threshold that applies to a topic.
    pub(super) fn of(&self, topic: &str) -> Option<f64> {
        let value = match &self.values {
            Thresholds::Value(value) => *value,
            Thresholds::ByTopic(topics) => topics.get(topic).copied().unwrap_or(0.0),
        };
        (value != 0.0).then_some(value)
    }
}

/// The metric that a threshold concerns.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Selector {
    #[serde(rename = "name")]
    pub(super) metric: String,
    #[serde(rename = "dataBucket")]
    pub(super) bucket: String,
    #[serde(default, rename = "expectLower")]
    pub(super) expects_lower: bool,
    #[serde(default)]
    pub(super) labels: Labels,
}

impl Default for Selector {
    fn default() -> Selector {
        Selector {
            metric: "SchedulingThroughput".to_owned(),
            bucket: "Average".to_owned(),
            expects_lower: false,
            labels: Labels::new(),
        }
    }
}

impl Workload {
    /// The name by which the command line and reports refer to the workload.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.case, self.name)
    }
}

/// An invalid part of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Invalid {
    /// The line, counted from 1, or 0 for the whole file.
    pub(super) line: u64,
    pub(super) what: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    name: At<String>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    default_pod_template_path: Option<String>,
    scheduler_config_path: Option<String>,
    #[serde(default)]
    default_threshold_metric_selector: Selector,
    /// Only the throughput is measured.
    #[serde(rename = "metricsCollectorConfig")]
    _metrics: Option<IgnoredAny>,
    workload_template: Vec<At<Map<String, Value>>>,
    workloads: Vec<WorkloadOfCase>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WorkloadOfCase {
    name: At<String>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    #[serde(default)]
    params: Map<String, Value>,
    #[serde(default)]
    threshold: Thresholds,
    threshold_metric_selector: Option<Selector>,
}

/// Reads all workloads of a file, in their order.
pub(super) fn read(text: &str) -> Result<Vec<Workload>, Invalid> {
    let cases: Vec<Case> = portolan_k8s::yaml::from_str(text).map_err(|error| {
        let what = match error.path() {
            "" => error.cause().to_string(),
            path => format!("{path}: {}", error.cause()),
        };
        Invalid { line: error.line().unwrap_or(0), what }
    })?;
    let (mut workloads, mut names) = (Vec::new(), BTreeSet::new());
    for case in cases {
        once(&case.name, &mut names)?;
        read_case(case, &mut workloads)?;
    }
    match workloads.is_empty() {
        true => Err(Invalid { line: 0, what: "the file has no workloads".to_owned() }),
        false => Ok(workloads),
    }
}

/// Adds a name, which must be new.
fn once(name: &At<String>, names: &mut BTreeSet<String>) -> Result<(), Invalid> {
    match names.insert(name.value.clone()) {
        true => Ok(()),
        false => Err(Invalid { line: name.line, what: format!("{:?} occurs twice", name.value) }),
    }
}

fn read_case(case: Case, into: &mut Vec<Workload>) -> Result<(), Invalid> {
    let mut names = BTreeSet::new();
    for workload in case.workloads {
        once(&workload.name, &mut names)?;
        let name = workload.name.value;
        let mut given = Parameters::new(workload.params);
        let mut steps = Vec::new();
        for At { line, value: operation } in &case.workload_template {
            let read = steps::read(operation, &mut given);
            let invalid =
                |what| Invalid { line: *line, what: format!("workload {name:?}: {what}") };
            steps.extend(read.map_err(invalid)?);
        }
        let selector = workload.threshold_metric_selector;
        let mut feature_gates = case.feature_gates.clone();
        feature_gates.extend(workload.feature_gates);
        into.push(Workload {
            case: case.name.value.clone(),
            labels: case.labels.iter().cloned().chain(workload.labels).collect(),
            feature_gates,
            default_pod_template: case.default_pod_template_path.clone(),
            scheduler_config: case.scheduler_config_path.clone(),
            threshold: Threshold {
                values: workload.threshold,
                selector: selector
                    .unwrap_or_else(|| case.default_threshold_metric_selector.clone()),
            },
            steps,
            unused_parameter: given.unused(),
            name,
        });
    }
    Ok(())
}
