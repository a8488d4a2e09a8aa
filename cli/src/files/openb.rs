//! Reads openb CSV files: nodes and pods of a real GPU cluster.
//!
//! A node's GPUs are a single amount in thousandths: two GPUs that are half free count as
//! one free GPU.

use portolan::model::{
    Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, Pod, Quantity, Requirement, node,
    pod,
};

use super::Wrong;
use super::unique::Unique;

/// The largest number in a column: its multiple by 1000 or by 1 MiB fits into 64 bits.
const MOST: i64 = i64::MAX / 4096 / 1024;

/// The thousandths of a GPU.
const WHOLE_GPU: i64 = 1000;

const GPU_COUNT: &str = "alibabacloud.com/gpu-count";
const GPU_MILLI: &str = "alibabacloud.com/gpu-milli";
const GPU_MODEL: &str = "alibabacloud.com/gpu-card-model";

/// A pod with its arrival.
pub(crate) struct Arrival {
    pub(crate) pod: Pod,
    /// Arrival and end in seconds, if the input has times.
    pub(crate) times: Option<(i64, i64)>,
}

/// The rows of a CSV file, with their column names.
struct Rows {
    columns: csv::StringRecord,
    records: Vec<csv::StringRecord>,
}

impl Rows {
    fn read(bytes: &[u8]) -> Result<Rows, Wrong> {
        let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
        let broken = |error: csv::Error| {
            let line = error.position().map_or(1, csv::Position::line);
            let what = match error.kind() {
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!(
                    "field count {len}, expected {expected_len} as in the header: correct the row"
                ),
                csv::ErrorKind::Utf8 { .. } => {
                    "the row is not UTF-8: save the file as UTF-8".to_owned()
                }
                _ => error.to_string(),
            };
            Wrong::at(line, what)
        };
        let columns = reader.headers().map_err(broken)?.clone();
        let names: Vec<&str> = columns.iter().map(str::trim).collect();
        if let Some((_, name)) =
            names.iter().enumerate().find(|(at, name)| names[..*at].contains(name))
        {
            return Err(Wrong::at(1, format!("column {name:?} is repeated: remove one of them")));
        }
        let records = reader.records().collect::<Result<_, _>>().map_err(broken)?;
        Ok(Rows { columns, records })
    }

    /// The index of a required column.
    fn column(&self, name: &str) -> Result<usize, Wrong> {
        self.optional(name).ok_or_else(|| {
            Wrong::at(1, format!("column {name:?} is missing: add it to the header"))
        })
    }

    fn optional(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.trim() == name)
    }

    fn number(&self, record: &csv::StringRecord, column: usize) -> Result<i64, Wrong> {
        self.number_within(record, column, (0, MOST))
    }

    fn number_within(
        &self,
        record: &csv::StringRecord,
        column: usize,
        (least, most): (i64, i64),
    ) -> Result<i64, Wrong> {
        let text = record.get(column).unwrap_or_default().trim();
        match text.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(Wrong::at(
                line(record),
                format!(
                    "{} is {text:?}: use a whole number from {least} to {most}",
                    self.columns.get(column).unwrap_or_default()
                ),
            )),
        }
    }

    fn text<'r>(&self, record: &'r csv::StringRecord, column: usize) -> Result<&'r str, Wrong> {
        match record.get(column).map(str::trim) {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(Wrong::at(
                line(record),
                format!("{} is empty: add a value", self.columns.get(column).unwrap_or_default()),
            )),
        }
    }
}

/// The line that a record starts on.
fn line(record: &csv::StringRecord) -> u64 {
    record.position().map_or(0, csv::Position::line)
}

/// Reads a list of nodes.
pub(crate) fn nodes(bytes: &[u8]) -> Result<Vec<Node>, Wrong> {
    let rows = Rows::read(bytes)?;
    let (name, cpu, memory, gpu, model) = (
        rows.column("sn")?,
        rows.column("cpu_milli")?,
        rows.column("memory_mib")?,
        rows.column("gpu")?,
        rows.column("model")?,
    );
    let mut unique = Unique::new("node");
    rows.records
        .iter()
        .map(|record| {
            let name = rows.text(record, name)?;
            unique.insert(name, line(record))?;
            let mut node = node(name)
                .hostname()
                .cpu(rows.number(record, cpu)?)
                .memory(rows.number(record, memory)? * 1024 * 1024)
                .pods(110);
            let gpus = rows.number(record, gpu)?;
            if gpus > 0 {
                node = node
                    .resource(GPU_COUNT, Quantity::whole(gpus))
                    .resource(GPU_MILLI, Quantity::whole(gpus * WHOLE_GPU));
            }
            let model = record.get(model).unwrap_or_default().trim();
            if !model.is_empty() {
                node = node.label(GPU_MODEL, model);
            }
            Ok(node.build())
        })
        .collect()
}

/// How pods get their priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priorities {
    /// All pods have the same priority.
    Alike,
    /// From the column `qos`.
    ByQos,
}

/// The priority of each `qos` of the trace.
const QOS: [(&str, i32); 4] = [("BE", 0), ("Burstable", 100), ("LS", 200), ("Guaranteed", 300)];

/// Reads a list of pods.
pub(crate) fn pods(bytes: &[u8], priorities: Priorities) -> Result<Vec<Arrival>, Wrong> {
    let rows = Rows::read(bytes)?;
    let (name, cpu, memory, gpus, milli) = (
        rows.column("name")?,
        rows.column("cpu_milli")?,
        rows.column("memory_mib")?,
        rows.column("num_gpu")?,
        rows.column("gpu_milli")?,
    );
    let spec = rows.optional("gpu_spec");
    let qos = match priorities {
        Priorities::Alike => None,
        Priorities::ByQos => Some(rows.column("qos")?),
    };
    let times = rows.optional("creation_time").zip(rows.optional("deletion_time"));
    let mut unique = Unique::new("pod");
    rows.records
        .iter()
        .map(|record| {
            let name = rows.text(record, name)?;
            unique.insert(name, line(record))?;
            let mut pod = pod(name)
                .cpu(rows.number(record, cpu)?)
                .memory(rows.number(record, memory)? * 1024 * 1024);
            let gpus = rows.number(record, gpus)?;
            let milli = rows.number_within(record, milli, (0, WHOLE_GPU))?;
            if gpus > 0 {
                let milli = milli.saturating_mul(gpus);
                pod = pod.request(GPU_MILLI, Quantity::whole(milli));
            }
            let models = spec.and_then(|spec| record.get(spec)).unwrap_or_default().trim();
            if !models.is_empty() {
                pod = pod.node_affinity(one_of(models));
            }
            if let Some(qos) = qos {
                pod = pod.priority(priority(rows.text(record, qos)?, line(record))?);
            }
            let pod: Pod = pod.build();
            let times = match times {
                Some((from, to)) => {
                    let created = rows.number(record, from)?;
                    Some((created, rows.number_within(record, to, (created, MOST))?))
                }
                None => None,
            };
            Ok(Arrival { pod, times })
        })
        .collect()
}

fn priority(qos: &str, line: u64) -> Result<i32, Wrong> {
    QOS.iter().find(|(known, _)| *known == qos).map(|(_, priority)| *priority).ok_or_else(|| {
        let known = QOS.map(|(known, _)| known).join(", ");
        Wrong::at(line, format!("qos is {qos:?}: use one of {known}"))
    })
}

/// Node affinity for one of these GPU models, such as `V100M16|V100M32`.
fn one_of(models: &str) -> NodeAffinity {
    let models = models.split('|').filter(|model| !model.is_empty());
    let term = NodeSelectorTerm {
        match_expressions: [Requirement::new(GPU_MODEL, Operator::In, models)].into(),
        ..NodeSelectorTerm::default()
    };
    NodeAffinity {
        required: Some(NodeSelector { terms: [term].into() }),
        ..NodeAffinity::default()
    }
}
