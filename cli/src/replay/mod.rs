//! `portolan replay`: schedules a workload pod by pod.

mod follower;
pub(crate) mod meter;
mod placements;
mod plain;
mod queued;
mod report;
pub(crate) mod run;
mod samples;
mod synthetic;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use serde_json::Value;

use crate::cluster::{Godel, PodLimit, Strict};
use crate::error::CommandError;
use crate::files::openb::Priorities;
use crate::html::{self, HtmlFile, Page, View};
use crate::metrics::{self, MetricsFile};
use crate::policy::ConfigFile;
use crate::{Output, print};

#[cfg(feature = "cluster")]
pub(crate) use follower::{Follower, State};
pub(crate) use run::Settings;
pub(crate) use workload::Workload;
#[cfg(feature = "cluster")]
pub(crate) use workload::{Existing, Pods};

/// Schedule a workload pod by pod.
///
/// Every event goes through the log and the cluster state; every pod is decided on a
/// snapshot, assumed and bound. Without files, the workload is a synthetic cluster
/// generated from the seed.
///
/// Input files are openb CSV (the Alibaba GPU trace of 2023) or Kubernetes lists in JSON or YAML, optionally compressed
/// with gzip or zstd. The GPUs of an openb node are a single amount: pods may share a node's GPUs in ways that its
/// devices do not allow.
///
/// Pods go through the scheduling queue, except in fill mode if all pods are simple
/// (docs/cli.md): they wait, are retried after events that may help, and preempt pods of
/// lower priority. Preempted pods are requeued. Pod groups are scheduled as gangs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    config: ConfigFile,
    /// Number of threads that evaluate nodes; it does not affect the decisions.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024),
    )]
    threads: u16,
    #[command(flatten)]
    html: HtmlFile,
    /// Output file with a row for each pod: its times, its last node, and why it has none.
    ///
    /// The file is in CSV.
    #[arg(long, value_name = "FILE")]
    placements: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsFile,
}

/// The workload, and how it is replayed.
#[derive(clap::Args)]
pub(crate) struct Source {
    #[command(flatten)]
    pub(crate) options: WorkloadOptions,
    /// Seed for breaking ties and for the synthetic cluster.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) strict: Strict,
    #[command(flatten)]
    pub(crate) limit: PodLimit,
    #[command(flatten)]
    pub(crate) godel: Godel,
}

/// The files of a workload, and when its pods arrive and end.
#[derive(clap::Args, Clone)]
pub(crate) struct WorkloadOptions {
    /// Nodes of the cluster: a file, a directory, or - for standard input. Pods of the cluster
    /// that have a node are placed before the replay.
    #[arg(long, requires = "pods", value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Pods in arrival order: a file, a directory, or - for standard input. Pods with a node are
    /// placed before the replay.
    #[arg(long, requires = "nodes", value_name = "FILE")]
    pods: Option<PathBuf>,
    /// Arrival and run times of pods.
    #[arg(long, value_enum, default_value_t = Mode::Fill)]
    pub(crate) mode: Mode,
    /// Factor on the arrival rate in timed mode; run times do not change.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    load: Option<f64>,
    /// Set the priorities of openb pods from the column qos: Guaranteed 300, LS 200,
    /// Burstable 100, BE 0.
    #[arg(long, requires = "pods")]
    qos_priorities: bool,
    /// Percentage of nodes at which the search for feasible nodes stops.
    ///
    /// 0 means the configuration's value if it is set; otherwise the percentage adapts to the number of nodes, as in
    /// kube-scheduler.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=100),
    )]
    percentage_of_nodes: u8,
    /// Number of pods to replay, from the start of the workload.
    #[arg(long, value_name = "COUNT")]
    first: Option<usize>,
}

impl Source {
    /// How the workload of a cluster is replayed.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_cluster(seed: u64, godel: Godel) -> Source {
        let options = WorkloadOptions {
            nodes: None,
            pods: None,
            mode: Mode::Fill,
            load: None,
            qos_priorities: false,
            percentage_of_nodes: 0,
            first: None,
        };
        Source::of(options, seed, godel)
    }

    /// How a workload with these options is replayed.
    #[cfg(feature = "cluster")]
    pub(crate) fn of(options: WorkloadOptions, seed: u64, godel: Godel) -> Source {
        let (strict, limit) = (Strict::default(), PodLimit::default());
        Source { options, seed, output: Output::Json, strict, limit, godel }
    }
}

/// Arrival and run times of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Pods arrive in file order and stay.
    Fill,
    /// Pods arrive at their recorded times and run for their recorded durations, counted
    /// from their placement. The times of a Kubernetes pod are its creationTimestamp and its
    /// deletionTimestamp; without the latter, it stays.
    Timed,
}

/// Parses the factor on the arrival rate.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.001..=1_000_000.0).contains(&factor) => Ok(factor),
        _ => Err("use a number from 0.001 to 1000000".to_owned()),
    }
}

/// The workload selected by the arguments.
pub(crate) fn workload(source: &Source) -> Result<Workload, CommandError> {
    let WorkloadOptions { nodes, pods, mode, load, qos_priorities, first, .. } = &source.options;
    if load.is_some() && *mode != Mode::Timed {
        let what = "--load needs arrival times: add --mode timed";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let priorities = if *qos_priorities { Priorities::ByQos } else { Priorities::Alike };
    let mut workload = match (nodes, pods) {
        (Some(nodes), Some(pods)) => workload::load(nodes, pods, priorities, source)?,
        _ => synthetic::workload(source.seed),
    };
    if let Some(first) = first {
        workload.arrivals.truncate(*first);
    }
    Ok(workload)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let Arguments { source, config, threads, html, placements, metrics } = arguments;
    let mut workload = workload(source)?;
    let sink = metrics.open()?;
    html.check()?;
    let config = config.source().read()?;
    let settings = Settings {
        config: &config,
        arrivals: workload.arrivals.len(),
        is_wanted: &Arc::new(AtomicBool::new(true)),
        threads: *threads,
        progress: Progress::Shown,
        metrics: metrics::of(&sink),
        keeps_samples: html.is_wanted(),
        seed: source.seed,
        follower: None,
    };
    placements.as_deref().map_or(Ok(()), placements::check)?;
    let outcome = run::run(&workload, source, settings)?;
    outcome.warning.iter().for_each(|warning| workload.intake.warn(warning));
    html.write(html.is_wanted().then(|| page(&workload, &outcome)))?;
    if let Some(file) = placements {
        placements::write(file, &workload, &outcome)?;
    }
    metrics::write(sink)?;
    print(&match source.output {
        Output::Json => report::json(&workload, &outcome).to_string(),
        Output::Table => report::table(&workload, &outcome),
    })?;
    if source.output == Output::Table {
        workload.intake.print();
    }
    Ok(ExitCode::SUCCESS)
}

const VIEW: View = View { id: "replay", module: "replay.js", name: "Replay" };

/// The page of a replay: its result, and its samples.
fn page(workload: &Workload, outcome: &run::Outcome) -> Page {
    let mut fields = report::json(workload, outcome);
    fields["series"] = outcome.series().into();
    Page {
        headline: report::summary(outcome),
        view: VIEW,
        question: Value::Null,
        answers: vec![(html::asked("replay"), fields.to_string())],
    }
}

/// Whether a progress bar is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Shown,
    Hidden,
}
