//! `--placements`: a row in CSV for each pod of the workload.

use std::path::Path;

use crate::error::Failure;
use crate::output;

use super::run::Outcome;
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

/// Writes the file. Times are in seconds and empty in fill mode; `placed` and `waited` are
/// those of the first placement.
pub(super) fn write(file: &Path, workload: &Workload, outcome: &Outcome) -> Result<(), Failure> {
    let text = text(workload, outcome).map_err(|error| Failure::Output(error.into()))?;
    output::write(file, &text)
}

fn text(workload: &Workload, outcome: &Outcome) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    let seconds = |time: Option<f64>| time.map_or_else(String::new, |time| time.to_string());
    for (arrival, fate) in workload.arrivals.iter().zip(&outcome.fates) {
        let pod = &arrival.pod;
        let waited = fate.first_placed.zip(fate.arrived).map(|(placed, arrived)| placed - arrived);
        writer.write_record([
            &**pod.namespace(),
            &*pod.name,
            &pod.uid.to_string(),
            &seconds(fate.arrived),
            &seconds(fate.first_placed),
            fate.node.as_deref().unwrap_or(""),
            &seconds(waited),
            &seconds(fate.ended),
            &seconds(fate.placed),
            &fate.why,
        ])?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
