//! `portolan-bench live`: the workloads of Kubernetes' scheduler_perf (test/integration/scheduler_perf), read from its
//! files.
//!
//! A file is a list of test cases. A case has operations, such as `createNodes` and `createPods`, and workloads, which
//! give the operations their parameters. The operations run on an API server in memory with a live scheduler.
//!
//! | file | contents |
//! |---|---|
//! | `cases.rs`, `steps.rs` | the reader |
//! | `sources.rs`, `template.rs`, `objects.rs` | templates, and the objects made of them |
//! | `plan.rs` | finds workloads that cannot run |
//! | `execute.rs`, `churn.rs`, `stop.rs` | the operations |
//! | `board.rs`, `throughput.rs` | the stages of pods, and the rate of scheduling |
//! | `target.rs` | the API server and the scheduler |
//! | `report.rs` | the results |

mod board;
mod cases;
mod churn;
mod execute;
mod objects;
mod plan;
mod report;
mod sources;
mod steps;
mod stop;
mod target;
mod template;
#[cfg(test)]
mod tests;
mod throughput;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use portolan_cli::{CommandError, at_least_one, line, print, read};

use cases::Workload;
use execute::execute;
use report::{Outcome, Row};
use sources::Sources;

/// Run Kubernetes' scheduler_perf workloads through an API server in this process.
///
/// Each workload gets an API server in memory and the scheduler of `portolan run`, which reads and binds over HTTP. The
/// objects of the workload are created inside the server. The exit status is 1 if a workload failed or missed the
/// threshold of its file.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File of workloads, or a folder: every performance-config.yaml in it. Repeatable.
    #[arg(long, value_name = "FILE", required = true)]
    scheduler_perf: Vec<PathBuf>,
    /// Run only this test case, or this workload of it, instead of those labeled performance. Repeatable.
    #[arg(long, value_name = "CASE[/WORKLOAD]")]
    case: Vec<String>,
    /// Time limit of each operation that waits for pods, in seconds. The workload fails if it runs out.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = at_least_one::<NonZeroU64>)]
    time_limit: NonZeroU64,
}

/// The name of the files of scheduler_perf.
const NAME: &str = "performance-config.yaml";
/// The label of the workloads that run unless others are named, as in scheduler_perf.
const LABEL: &str = "performance";

/// Runs the selected workloads of files, or of all files of folders. The exit status is 1 if one failed or missed its
/// threshold, or if all were skipped.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let mut files = Vec::new();
    for path in &arguments.scheduler_perf {
        find(path, &mut files)?;
    }
    let mut read = Vec::new();
    for file in files {
        let workloads = read_file(&file)?;
        read.push((file, workloads));
    }
    arguments.check(read.iter().flat_map(|(_, workloads)| workloads))?;
    let mut rows = Vec::new();
    for (file, workloads) in &read {
        let mut sources = Sources::of(file);
        for workload in workloads.iter().filter(|workload| arguments.selects(workload)) {
            let outcome = run_workload(workload, &mut sources, arguments)?;
            let name = workload.full_name();
            let end = match &outcome {
                Outcome::Ran(_) => format!("{name} ran"),
                Outcome::Skipped(why) => format!("{name} is skipped: {why}"),
                Outcome::Failed(why) => format!("{name} failed: {why}"),
            };
            eprintln!("portolan: {}", line(&end));
            rows.push(Row { topic: topic(file), workload, outcome });
        }
    }
    print(&report::text(&rows))?;
    let has_run = rows.iter().any(|row| !matches!(row.outcome, Outcome::Skipped(_)));
    let is_good = has_run && rows.iter().all(Row::is_good);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Arguments {
    fn selects(&self, workload: &Workload) -> bool {
        let full = workload.full_name();
        match &*self.case {
            [] => workload.labels.contains(LABEL),
            names => names.iter().any(|name| *name == workload.case || *name == full),
        }
    }

    /// Checks that each name exists, and that a workload is selected.
    fn check<'w>(
        &self,
        workloads: impl Iterator<Item = &'w Workload> + Clone,
    ) -> Result<(), CommandError> {
        if workloads.clone().next().is_none() {
            return Err(CommandError::Usage(format!("--scheduler-perf: no {NAME} with workloads")));
        }
        let exists = |name: &&String| {
            let mut all = workloads.clone();
            all.any(|workload| workload.case == **name || workload.full_name() == **name)
        };
        if let Some(name) = self.case.iter().find(|name| !exists(name)) {
            let cases: BTreeSet<&str> = workloads.map(|workload| &*workload.case).collect();
            let cases: Vec<&str> = cases.into_iter().collect();
            let why = format!("--case {name}: the test cases are {}", cases.join(", "));
            return Err(CommandError::Usage(why));
        }
        if !workloads.clone().any(|workload| self.selects(workload)) {
            let why = format!("no workload has the label {LABEL}: name others with --case");
            return Err(CommandError::Usage(why));
        }
        Ok(())
    }
}

/// Adds a file, or all files of a folder and the folders in it, in order.
fn find(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), CommandError> {
    let open = |error| CommandError::Open { file: path.to_owned(), error };
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = std::fs::read_dir(path).map_err(open)?.collect();
    let mut entries: Vec<PathBuf> =
        entries.map_err(open)?.into_iter().map(|entry| entry.path()).collect();
    entries.sort_unstable();
    for entry in entries {
        let is_file = entry.file_name().is_some_and(|name| name == NAME);
        if is_file || (entry.is_dir() && !entry.is_symlink()) {
            find(&entry, files)?;
        }
    }
    Ok(())
}

fn read_file(file: &Path) -> Result<Vec<Workload>, CommandError> {
    let wrong = |what: String| CommandError::File { file: file.to_owned(), what };
    let text = String::from_utf8(read(file)?);
    let text = text.map_err(|_| wrong("the text is not valid UTF-8".to_owned()))?;
    cases::read(&text).map_err(|invalid| match invalid.line {
        0 => wrong(invalid.what),
        line => CommandError::Line { file: file.to_owned(), line, what: invalid.what },
    })
}

/// The name of the folder of a file, which is a topic in scheduler_perf.
fn topic(file: &Path) -> String {
    let folder = file.parent().and_then(Path::file_name);
    folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn run_workload(
    workload: &Workload,
    sources: &mut Sources,
    arguments: &Arguments,
) -> Result<Outcome, CommandError> {
    if let Some(why) = plan::plan(workload, sources)? {
        return Ok(Outcome::Skipped(why));
    }
    let configuration = workload.scheduler_config.as_deref();
    let configuration =
        configuration.map(|path| portolan_cli::configuration(Some(&sources.file(path))));
    let configuration = configuration.transpose()?.flatten();
    let time_limit = Duration::from_secs(arguments.time_limit.get());
    let ran = target::with_target(configuration.as_deref(), |target| {
        execute(target, workload, sources, time_limit)
    })?;
    Ok(match ran {
        Ok(measured) => Outcome::Ran(measured),
        Err(trouble) => Outcome::Failed(trouble.to_string()),
    })
}
