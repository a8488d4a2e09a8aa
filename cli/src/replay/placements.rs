//! `--placements`: a row for each pod of the workload, in CSV.

use std::borrow::Cow;
use std::path::Path;

use portolan::model::Pod;

use crate::error::CommandError;
use crate::output;

use super::run::{Fate, Outcome};
use super::workload::Workload;

const COLUMNS: [&str; 10] = [
    "namespace",
    "pod",
    "uid",
    "arrived",
    "placed",
    "node",
    "waited",
    "ended",
    "placed_last",
    "why",
];

/// The outcome of a pod. Times are in seconds, and absent in fill mode; `placed` and `waited` are those of the first
/// placement.
struct Row<'a> {
    pod: &'a Pod,
    fate: &'a Fate,
}

/// A value of a column, or `None` if the column does not apply to the pod.
enum Cell<'a> {
    Text(Option<Cow<'a, str>>),
    Seconds(Option<f64>),
}

impl<'a> Row<'a> {
    fn cells(&self) -> [Cell<'a>; COLUMNS.len()] {
        let Row { pod, fate } = *self;
        let text = |text: Option<&'a str>| Cell::Text(text.map(Cow::Borrowed));
        let waited = fate.first_placed.zip(fate.arrived).map(|(placed, arrived)| placed - arrived);
        [
            text(Some(pod.namespace())),
            text(Some(&pod.name)),
            Cell::Text(Some(Cow::Owned(pod.uid.to_string()))),
            Cell::Seconds(fate.arrived),
            Cell::Seconds(fate.first_placed),
            text(fate.node.as_deref()),
            Cell::Seconds(waited),
            Cell::Seconds(fate.ended),
            Cell::Seconds(fate.placed),
            text(Some(&*fate.why).filter(|why| !why.is_empty())),
        ]
    }
}

/// Checks before the replay that the file can be written.
pub(super) fn check(file: &Path) -> Result<(), CommandError> {
    output::check(file)
}

/// Writes the file.
pub(super) fn write(
    file: &Path,
    workload: &Workload,
    outcome: &Outcome,
) -> Result<(), CommandError> {
    let pods = workload.arrivals.iter().map(|arrival| &arrival.pod);
    let rows = pods.zip(&outcome.fates).map(|(pod, fate)| Row { pod, fate });
    let bytes = csv(rows).map_err(|error| CommandError::Output(error.into()))?;
    output::write(file, bytes)
}

fn csv<'a>(rows: impl Iterator<Item = Row<'a>>) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for row in rows {
        let cells = row.cells().map(|cell| match cell {
            Cell::Text(text) => output::cell(&text.unwrap_or_default()).into_owned(),
            Cell::Seconds(seconds) => seconds.map(|it| it.to_string()).unwrap_or_default(),
        });
        writer.write_record(cells.each_ref().map(|cell| cell.as_bytes()))?;
    }
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}
