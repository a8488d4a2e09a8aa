//! Reads a file of scheduler_perf: a list of test cases, each with operations and the workloads that run them.

use std::collections::{BTreeMap, BTreeSet};

use super::parameters::Parameters;
use super::steps::{self, Labels, Step};
use super::tree::{Fields, Invalid, Part, Why, parse};

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
    /// The line of the workload in its file.
    pub(super) line: u64,
}

/// The value that a metric must exceed or, with `expects_lower`, stay below.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Threshold {
    /// The value if the topic has none of its own. 0: no threshold.
    pub(super) value: f64,
    pub(super) by_topic: BTreeMap<String, f64>,
    pub(super) selector: Selector,
}

impl Threshold {
    /// Returns the threshold that applies to a topic.
    pub(super) fn of(&self, topic: &str) -> Option<f64> {
        let value = self.by_topic.get(topic).copied().unwrap_or(self.value);
        (value != 0.0).then_some(value)
    }
}

/// The metric that a threshold concerns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selector {
    pub(super) metric: String,
    pub(super) bucket: String,
    pub(super) expects_lower: bool,
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

    /// Whether the workload passes a filter as scheduler_perf's `-perf-scheduling-label-filter`: each label must be
    /// set, or not be set if it begins with `-`.
    pub(super) fn has_labels<'l>(&self, filter: impl IntoIterator<Item = &'l str>) -> bool {
        filter.into_iter().filter(|label| !label.is_empty()).all(|label| {
            match label.strip_prefix('-') {
                Some(label) => !self.labels.contains(label),
                None => self.labels.contains(label.strip_prefix('+').unwrap_or(label)),
            }
        })
    }
}

/// Reads all workloads of a file, in their order.
pub(super) fn read(text: &str) -> Result<Vec<Workload>, Invalid> {
    let tree = parse(text)?;
    let root = Part::root(&tree);
    let (mut workloads, mut names) = (Vec::new(), BTreeSet::new());
    for case in root.list()? {
        let name = read_case(&case, &mut workloads)?;
        if !names.insert(name.to_owned()) {
            return Err(case.invalid(Why::Twice(name.to_owned())));
        }
    }
    match workloads.is_empty() {
        true => Err(root.invalid(Why::Value("the file has no workloads".to_owned()))),
        false => Ok(workloads),
    }
}

fn read_case<'t>(part: &Part<'t>, into: &mut Vec<Workload>) -> Result<&'t str, Invalid> {
    let mut fields = part.fields()?;
    let case = fields.require("name")?.text()?;
    let labels = fields.texts("labels")?;
    let gates = gates(&mut fields)?;
    let default_pod_template = fields.text("defaultPodTemplatePath")?;
    let scheduler_config = fields.text("schedulerConfigPath")?;
    let selector = selector(fields.take("defaultThresholdMetricSelector"))?;
    // Only the throughput is measured.
    drop(fields.take("metricsCollectorConfig"));
    let operations = fields.require("workloadTemplate")?;
    let listed = fields.require("workloads")?;
    fields.finish()?;
    let operations = non_empty(&operations, "workloadTemplate")?;
    let mut names = BTreeSet::new();
    for part in non_empty(&listed, "workloads")? {
        let mut fields = part.fields()?;
        let name = fields.require("name")?.text()?;
        if !names.insert(name) {
            return Err(part.invalid(Why::Twice(name.to_owned())));
        }
        let given = Parameters::read(name, fields.take("params"))?;
        let mut workload = Workload {
            case: case.to_owned(),
            name: name.to_owned(),
            labels: labels.iter().cloned().chain(fields.texts("labels")?).collect(),
            feature_gates: gates.clone(),
            default_pod_template: default_pod_template.clone(),
            scheduler_config: scheduler_config.clone(),
            threshold: threshold(&mut fields, &selector)?,
            steps: Vec::new(),
            unused_parameter: None,
            line: part.line(),
        };
        workload.feature_gates.extend(self::gates(&mut fields)?);
        fields.finish()?;
        for operation in &operations {
            workload.steps.extend(steps::read(operation, &given)?);
        }
        workload.unused_parameter = given.unused();
        into.push(workload);
    }
    Ok(case)
}

fn non_empty<'t>(part: &Part<'t>, name: &'static str) -> Result<Vec<Part<'t>>, Invalid> {
    let list = part.list()?;
    if list.is_empty() { Err(part.invalid(Why::Missing(name))) } else { Ok(list) }
}

fn gates(fields: &mut Fields<'_>) -> Result<BTreeMap<String, bool>, Invalid> {
    let Some(part) = fields.take("featureGates") else { return Ok(BTreeMap::new()) };
    let gate = |(name, value): (&str, Part<'_>)| Ok((name.to_owned(), value.flag()?));
    part.entries()?.into_iter().map(gate).collect()
}

fn threshold(fields: &mut Fields<'_>, default: &Selector) -> Result<Threshold, Invalid> {
    let own = fields.take("thresholdMetricSelector");
    let selector = if own.is_some() { selector(own)? } else { default.clone() };
    let mut read = Threshold { value: 0.0, by_topic: BTreeMap::new(), selector };
    let Some(part) = fields.take("threshold") else { return Ok(read) };
    let positive = |part: &Part<'_>| match part.number()? {
        value if value >= 0.0 => Ok(value),
        _ => Err(part.invalid(Why::Type("a number that is not negative"))),
    };
    match part.entries() {
        Ok(topics) => {
            for (topic, value) in topics {
                read.by_topic.insert(topic.to_owned(), positive(&value)?);
            }
        }
        Err(_) => read.value = positive(&part)?,
    }
    Ok(read)
}

fn selector(part: Option<Part<'_>>) -> Result<Selector, Invalid> {
    let Some(part) = part else { return Ok(Selector::default()) };
    let mut fields = part.fields()?;
    let mut labels = Labels::new();
    if let Some(given) = fields.take("labels") {
        for (name, value) in given.entries()? {
            labels.insert(name.to_owned(), value.text()?.to_owned());
        }
    }
    let selector = Selector {
        metric: fields.require("name")?.text()?.to_owned(),
        bucket: fields.require("dataBucket")?.text()?.to_owned(),
        expects_lower: fields.flag("expectLower")?,
        labels,
    };
    fields.finish()?;
    Ok(selector)
}
