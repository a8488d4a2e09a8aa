//! Golden vectors: the same questions, compared with kube-scheduler's answers.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::Failure;
use crate::vectors::{self, Tally};
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

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut failed = false;
    for file in &arguments.files {
        let text = input::read(file)?;
        let wrong = |wrong| Failure::wrong(file, wrong);
        let scenarios = vectors::scenarios(&text).map_err(wrong)?;
        let mut tally = Tally::default();
        for scenario in &scenarios {
            scenario.run(arguments.strict, &mut tally).map_err(wrong)?;
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
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
