//! `portolan-bench conformance`: compares recorded answers of kube-scheduler with portolan's.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::Wrong;
use crate::vectors::{self, Tally};
use crate::writes::{self, Recorded};
use portolan_cli::CommandError;
use portolan_cli::count;
use portolan_cli::{print, read};

/// Compare recorded answers of kube-scheduler with portolan's.
///
/// The exit status is 1 if any answer differs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Golden vectors: JSON lines, gzipped or not, one scenario per line.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Number of differences shown per file.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    show: usize,
    /// Compare stale affinity entries too.
    ///
    /// kube-scheduler keeps affinity entries of removed pods. By default they are ignored,
    /// and a separate line counts the states that match only without them.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let mut failed = false;
    for file in &arguments.files {
        let text = read(file)?;
        let wrong = |wrong| CommandError::wrong(file, wrong);
        let scenarios = vectors::scenarios(&text).map_err(wrong)?;
        let mut tally = Tally::default();
        let mut recorded = Vec::new();
        for scenario in &scenarios {
            // A recording of writes to an API server.
            if scenario.value.get("writes").is_some() {
                let read = Recorded::read(&scenario.value);
                recorded.push(read.map_err(|what| wrong(Wrong::at(scenario.line, what)))?);
            } else {
                scenario.run(arguments.strict, &mut tally).map_err(wrong)?;
            }
        }
        for (scenario, differences) in recorded.iter().zip(writes::run_all(&recorded)) {
            tally.case(&scenario.name(), &differences);
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
                "\n  {} matched only without stale affinity entries, which kube-scheduler keeps \
                 for removed pods (--strict counts them as failed)",
                count(tally.stale, "passed state")
            );
        }
        if !recorded.is_empty() {
            text += "\n  intended and random differences of writes:";
            for named in writes::NAMED {
                let _ = write!(text, "\n  - {named}");
            }
        }
        failed |= !tally.differences.is_empty();
        print(&text)?;
    }
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
