//! Reads and runs golden vectors, without paths or printing, so that the fuzzer can run
//! them too.

mod cache;
mod preemption;
mod scheduling;

use serde_json::Value;

use crate::Wrong;

/// The results of a file.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) differences: Vec<String>,
    /// Passed states that match only without the stale entries that kube-scheduler keeps.
    pub(crate) stale: usize,
}

impl Tally {
    /// Counts a case that passed, or records its differences.
    pub(crate) fn case(&mut self, place: &dyn std::fmt::Display, differences: &[String]) {
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
        let ran = if has("ops") {
            cache::run(&self.value, strict, tally)
        } else if has("pdbs") {
            preemption::run(&self.value, tally)
        } else if has("cases") {
            scheduling::run(&self.value, tally)
        } else {
            Err("unknown kind of vector: pass cache vectors (with \"ops\"), scheduling vectors \
                 (with \"cases\") or preemption vectors (with \"cases\" and \"pdbs\")"
                .to_owned())
        };
        ran.map_err(|what| Wrong::at(self.line, what))
    }
}
