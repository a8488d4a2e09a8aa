//! `portolan replay`: a workload placed pod by pod.

mod report;
pub(crate) mod run;
mod synthetic;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::error::Failure;
use crate::{Output, print};

pub(crate) use workload::Workload;

/// Replays a workload event by event: through log, state, snapshot, framework
/// and assume, and confirms what was placed. Without files: an embedded,
/// seeded, synthetic cluster.
///
/// Files are openb CSV (the Alibaba GPU trace of 2023) or Kubernetes lists in
/// JSON or YAML, gzipped or not.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// A KubeSchedulerConfiguration; without one the default profile.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Threads that evaluate; the decisions are the same for any number.
    #[arg(
        long,
        default_value_t = default_threads(),
        value_parser = clap::value_parser!(u16).range(1..=1024),
    )]
    threads: u16,
}

/// What is replayed, and how.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// Nodes.
    #[arg(long, requires = "pods")]
    nodes: Option<PathBuf>,
    /// Pods, placed in the order of the file; those with a node are there
    /// before.
    #[arg(long, requires = "nodes")]
    pods: Option<PathBuf>,
    /// What happens when.
    #[arg(long, value_enum, default_value_t = Mode::Fill)]
    mode: Mode,
    /// How many nodes are enough to choose from, in percent; 0 is what the
    /// configuration says, or adapts to the number of nodes, as kube-scheduler
    /// does.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    percentage_of_nodes: u8,
    /// Breaks ties, and makes the synthetic cluster.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only so many pods arrive, the first ones.
    #[arg(long)]
    first: Option<usize>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// What happens when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Pods arrive in the order of the file and stay.
    Fill,
    /// Pods arrive and go at their times.
    Timed,
}

fn default_threads() -> u16 {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    threads.min(1024) as u16
}

/// The workload that arguments name.
pub(crate) fn workload(source: &Source) -> Result<Workload, Failure> {
    let mut workload = match (&source.nodes, &source.pods) {
        (Some(nodes), Some(pods)) => workload::load(nodes, pods)?,
        _ => synthetic::workload(source.seed),
    };
    if let Some(first) = source.first {
        workload.arrivals.truncate(first);
    }
    Ok(workload)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { source, config, threads } = arguments;
    let workload = workload(source)?;
    let outcome = run::run(&workload, source, config.as_ref(), (*threads, Progress::Shown))?;
    print(&match source.output {
        Output::Json => report::json(&workload, &outcome),
        Output::Table => report::table(&workload, &outcome),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a bar shows how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Shown,
    Hidden,
}
