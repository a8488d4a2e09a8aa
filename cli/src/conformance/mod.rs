//! Golden vectors: the same questions, compared with kube-scheduler's answers.

mod cache;
mod scheduling;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use crate::error::Failure;
use crate::{input, print};

/// Runs golden vectors: gzipped JSON lines, one scenario a line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How many differences to show for each file.
    #[arg(long, default_value_t = 5)]
    show: usize,
    /// Compares states as they were written. Without this, affinity entries
    /// that kube-scheduler keeps for pods that are gone are left out, and the
    /// states that equal ours only then are counted in a line of their own.
    #[arg(long)]
    strict: bool,
}

/// What came of a file.
#[derive(Default)]
struct Tally {
    passed: usize,
    differences: Vec<String>,
    /// Of the passed: states that differ from what was written by entries that
    /// kube-scheduler left behind, and by nothing else.
    stale: usize,
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

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (mut failed, mut refused) = (false, false);
    for file in &arguments.files {
        let text = input::read(file)?;
        let mut scenarios = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let scenario: Value = serde_json::from_slice(line).map_err(|error| Failure::Line {
                file: file.clone(),
                line: at as u64 + 1,
                what: format!(
                    "column {}: the line is no JSON: give one scenario a line",
                    error.column()
                ),
            })?;
            scenarios.push((at as u64 + 1, scenario));
        }
        if scenarios.iter().any(|(_, scenario)| scenario.get("pdbs").is_some()) {
            print(&format!(
                "{}: not run: these are preemption vectors, and there is no preemption yet",
                file.display()
            ))?;
            refused = true;
            continue;
        }
        let mut tally = Tally::default();
        for (line, scenario) in &scenarios {
            let fail = |what: String| Failure::Line { file: file.clone(), line: *line, what };
            let has = |key: &str| scenario.get(key).is_some();
            if has("ops") {
                cache::run(scenario, arguments.strict, &mut tally).map_err(fail)?;
            } else if has("cases") {
                scheduling::run(scenario, &mut tally).map_err(fail)?;
            } else {
                return Err(fail(
                    "this kind of vector is not known here: give cache vectors (with \"ops\") or \
                     scheduling vectors (with \"cases\")"
                        .into(),
                ));
            }
        }
        let mut text = format!(
            "{}: {} passed, {} failed",
            file.display(),
            tally.passed,
            tally.differences.len()
        );
        for difference in tally.differences.iter().take(arguments.show) {
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {difference}");
        }
        if tally.stale > 0 {
            let _ = write!(
                text,
                "\n  {} of the passed are not as written: kube-scheduler keeps affinity entries for pods \
                 that are gone, which were left out (--strict counts these as failed)",
                tally.stale
            );
        }
        failed |= !tally.differences.is_empty();
        print(&text)?;
    }
    Ok(match (failed, refused) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
        (false, false) => ExitCode::SUCCESS,
    })
}
