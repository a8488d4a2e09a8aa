//! Reads and runs golden vectors, without paths or printing, so that the fuzzer can run
//! them too.

mod cache;
mod cel;
mod dra;
mod preemption;
mod scheduling;

use std::fmt::Display;

use portolan::model::{Node, Object, Pod};
use portolan_dra::model::Device;
use serde_json::Value;

use crate::Wrong;

/// The results of a file.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) differences: Vec<String>,
    /// Passed states that match only without the stale entries that kube-scheduler keeps.
    pub(crate) stale: usize,
    /// The devices of the last line that lists some, for the expressions after it.
    devices: Vec<Device>,
}

impl Tally {
    /// Counts a case that passed, or records its differences.
    pub(crate) fn case(&mut self, place: &dyn Display, differences: &[String]) {
        if differences.is_empty() {
            self.passed += 1;
        } else {
            self.differences.push(format!("{place}\n    {}", differences.join("\n    ")));
        }
    }
}

/// One line of a vector file.
pub(crate) struct Scenario {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

/// Reads scenarios from JSON lines; empty lines are skipped.
pub(crate) fn scenarios(text: &[u8]) -> Result<Vec<Scenario>, Wrong> {
    let mut scenarios = Vec::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = serde_json::from_slice(line).map_err(|error| {
            let column = error.column();
            let what = format!("column {column}: invalid JSON: write one scenario per line");
            Wrong::at(at as u64 + 1, what)
        })?;
        scenarios.push(Scenario { line: at as u64 + 1, value });
    }
    Ok(scenarios)
}

impl Scenario {
    /// Runs the scenario and adds the results to the tally; `strict` is the option `--strict`.
    pub(crate) fn run(&self, strict: bool, tally: &mut Tally) -> Result<(), Wrong> {
        let has = |key: &str| self.value.get(key).is_some();
        let ran = if has("resourceSlices") {
            dra::run(&self.value, tally)
        } else if has("expression") {
            cel::run(&self.value, tally)
        } else if has("devices") {
            cel::devices(&self.value).map(|devices| tally.devices = devices)
        } else if has("ops") {
            cache::run(&self.value, strict, tally)
        } else if has("pdbs") {
            preemption::run(&self.value, tally)
        } else if has("cases") {
            scheduling::run(&self.value, tally)
        } else {
            Err("unknown kind of vector: pass cache vectors (with \"ops\"), scheduling vectors \
                 (with \"cases\"), preemption vectors (with \"cases\" and \"pdbs\"), vectors of \
                 claims (with \"resourceSlices\") or selectors (with \"devices\" or \"expression\")"
                .to_owned())
        };
        ran.map_err(|what| Wrong::at(self.line, what))
    }
}

fn pod(value: &Value) -> Result<Pod, String> {
    portolan_k8s::pod_from_slice(value.to_string().as_bytes()).map_err(|error| error.to_string())
}

fn node(value: &Value) -> Result<Node, String> {
    portolan_k8s::node_from_slice(value.to_string().as_bytes()).map_err(|error| error.to_string())
}

fn object(kind: &str, value: &Value) -> Result<Object, String> {
    let read = portolan_k8s::object_from_slice(kind, value.to_string().as_bytes());
    read.map_err(|error| error.to_string())
}
