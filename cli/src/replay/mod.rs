//! `portolan replay`: a workload placed pod by pod.

mod chart;
mod meter;
mod plain;
mod queued;
mod report;
pub(crate) mod run;
mod synthetic;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::cluster::Godel;
use crate::error::Failure;
use crate::files::openb::Priorities;
use crate::metrics::{self, MetricsFile};
use crate::{Output, print};

pub(crate) use run::How;
pub(crate) use workload::Workload;

/// Replays a workload event by event: through log, state, snapshot, framework
/// and assume, and confirms what was placed. Without files: an embedded,
/// seeded, synthetic cluster.
///
/// Files are openb CSV (the Alibaba GPU trace of 2023) or Kubernetes lists in
/// JSON or YAML, gzipped or not.
///
/// Where pods differ in priority or belong to pod groups, and in timed mode, they go
/// through the scheduling queue: they wait, are tried again when something helps them,
/// and make room for others; those of a group are placed together. Who made room queues
/// again.
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
    /// Draws how full the cluster was and who waited: SVG or HTML, by the file's ending.
    #[arg(long, value_name = "FILE", value_parser = chart::Target::parse)]
    chart: Option<chart::Target>,
    #[command(flatten)]
    metrics: MetricsFile,
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
    /// In timed mode: so many times as many pods arrive in the same time; how long each
    /// runs stays as it is.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    load: Option<f64>,
    /// Gives pods of openb files a priority by their column qos: Guaranteed 300, LS 200,
    /// Burstable 100, BE 0.
    #[arg(long, requires = "pods")]
    qos_priorities: bool,
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
    #[command(flatten)]
    godel: Godel,
}

/// What happens when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Pods arrive in the order of the file and stay.
    Fill,
    /// Pods arrive at their times, and go when they have run for as long as the file
    /// says, from when they found a place.
    Timed,
}

/// For clap: by how much arrivals are closer together.
fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.001..=1_000_000.0).contains(&factor) => Ok(factor),
        _ => Err("write a number from 0.001 to 1000000".to_owned()),
    }
}

fn default_threads() -> u16 {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    threads.min(1024) as u16
}

/// The workload that arguments name.
pub(crate) fn workload(source: &Source) -> Result<Workload, Failure> {
    if source.load.is_some() && source.mode != Mode::Timed {
        let what = "--load brings arrivals closer together, and in fill mode they have no times: \
                    add --mode timed";
        return Err(Failure::Usage(what.to_owned()));
    }
    let priorities = if source.qos_priorities { Priorities::ByQos } else { Priorities::Alike };
    let mut workload = match (&source.nodes, &source.pods) {
        (Some(nodes), Some(pods)) => workload::load(nodes, pods, priorities, &source.godel)?,
        _ => synthetic::workload(source.seed),
    };
    if let Some(first) = source.first {
        workload.arrivals.truncate(first);
    }
    Ok(workload)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { source, config, threads, chart, metrics } = arguments;
    let workload = workload(source)?;
    let sink = metrics.open()?;
    chart.as_ref().map_or(Ok(()), chart::Target::check)?;
    let how = How {
        config: config.as_ref(),
        threads: *threads,
        progress: Progress::Shown,
        metrics: metrics::of(&sink),
        is_drawn: chart.is_some(),
    };
    let outcome = run::run(&workload, source, how)?;
    if let Some(chart) = chart {
        chart.write(&workload, &outcome, source.mode)?;
    }
    metrics::write(sink)?;
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
