//! Golden vectors, read and run: no paths and no printing, so that the fuzzer
//! reaches them too.

mod cache;
mod preemption;
mod scheduling;

use serde_json::Value;

use crate::files::Wrong;

/// What came of a file.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) differences: Vec<String>,
    /// Of the passed: states that differ from what was written by entries that
    /// kube-scheduler left behind, and by nothing else.
    pub(crate) stale: usize,
}

impl Tally {
    /// One case: equal, or a difference to be shown.
    fn case(&mut self, place: &dyn std::fmt::Display, differences: &[String]) {
        if differences.is_empty() {
            self.passed += 1;
        } else {
            self.differences.push(format!("{place}\n    {}", differences.join("\n    ")));
        }
    }
}

/// One line of a file of vectors.
pub(crate) struct Scenario {
    line: u64,
    value: Value,
}

/// The scenarios of JSON lines; empty lines are skipped.
pub(crate) fn scenarios(text: &[u8]) -> Result<Vec<Scenario>, Wrong> {
    let mut scenarios = Vec::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = serde_json::from_slice(line).map_err(|error| {
            let column = error.column();
            let what = format!("column {column}: the line is no JSON: give one scenario a line");
            Wrong::at(at as u64 + 1, what)
        })?;
        scenarios.push(Scenario { line: at as u64 + 1, value });
    }
    Ok(scenarios)
}

impl Scenario {
    /// Runs it, and adds what came of it; see the program's `--strict`.
    pub(crate) fn run(&self, strict: bool, tally: &mut Tally) -> Result<(), Wrong> {
        let has = |key: &str| self.value.get(key).is_some();
        let ran = if has("ops") {
            cache::run(&self.value, strict, tally)
        } else if has("pdbs") {
            preemption::run(&self.value, tally)
        } else if has("cases") {
            scheduling::run(&self.value, tally)
        } else {
            Err("this kind of vector is not known here: give cache vectors (with \"ops\"), \
                 scheduling vectors (with \"cases\"), or preemption vectors (with \"pdbs\", too)"
                .to_owned())
        };
        ran.map_err(|what| Wrong::at(self.line, what))
    }
}
