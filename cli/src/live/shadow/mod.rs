//! `portolan shadow`: compares the decisions of a running scheduler with portolan's.

mod report;

use std::fs::File;
use std::future::pending;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use portolan::model::Name;
use portolan_kube::api::Limits;
use portolan_kube::process::Served;
use portolan_kube::shadow::{Judgement, Shadow, ShadowConfig};

use crate::error::CommandError;
use crate::output::failed;
use crate::{Output, arguments, print};

use super::log::log_to_stderr;
use super::run::{Signals, configuration, duration};
use super::serving::{address, not_served};
use super::{live, runtime, use_small_pages};
use crate::server::Server;

use report::Report;

/// Compare the decisions of a running scheduler with portolan's, and write nothing to the cluster.
///
/// Watches the cluster. For each pod that the scheduler binds, computes the scores of all nodes on the state right
/// before the binding, and reports whether the node is among the best ones. Prints a summary and exits on SIGTERM or
/// SIGINT, or after --for or --pods.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// KubeSchedulerConfiguration of the observed scheduler (default: kube-scheduler's default profile, for pods of
    /// default-scheduler).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Profile of the configuration whose pods are compared, by its schedulerName (default: all profiles).
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    #[command(flatten)]
    server: Server,
    /// Bindings that are seen within this time of each other count as concurrent (at most 60s).
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    window: Duration,
    /// Exit after this time, counted from the first complete lists.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
    /// Exit after this number of pods.
    #[arg(long, value_name = "COUNT", value_parser = arguments::at_least_one::<NonZeroU64>)]
    pods: Option<NonZeroU64>,
    /// Output file for one JSON object per pod, each on a line of its own.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Output format of the summary. With a table, disagreements are printed as they are found.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Listen address for /healthz, /livez, /readyz, /metrics and /configz without encryption or authentication, or
    /// unix:PATH for a Unix socket (default: none).
    #[arg(long, value_name = "ADDRESS", default_value = "none", hide_default_value = true)]
    serve: String,
    /// Lowest severity that is logged to standard error: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: tracing::Level,
}

/// The time between two lines about the progress.
const PROGRESS: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let mut config = ShadowConfig::default();
    config.configuration = configuration(arguments.config.as_deref())?;
    config.profiles = arguments.profile.iter().map(|name| Name::from(&**name)).collect();
    config.window = arguments.window;
    let export = arguments.export.as_deref().map(Export::create).transpose()?;
    log_to_stderr(arguments.log);
    use_small_pages();
    runtime()?.block_on(observe(arguments, config, export))
}

async fn observe(
    arguments: &Arguments,
    config: ShadowConfig,
    mut export: Option<Export<'_>>,
) -> Result<ExitCode, CommandError> {
    let api = arguments.server.connection().open(Limits::default()).await.map_err(live)?;
    let mut shadow = Shadow::start(api, config).map_err(live)?;
    let mut signals = Signals::new()?;
    let _served = match address(&arguments.serve)? {
        Some(address) => {
            let served = Served::shadow(address.clone(), &shadow).await;
            Some(served.map_err(|error| not_served("--serve", &address, &error))?)
        }
        None => None,
    };
    let mut report = Report::new(shadow.schedulers())?;
    let is_synced = tokio::select! {
        found = shadow.synced() => found.map(|()| true).map_err(live)?,
        () = signals.next() => false,
    };
    let begun = Instant::now();
    if is_synced {
        tracing::info!("observing {}", report.schedulers());
    }
    let mut progress = tokio::time::interval(PROGRESS);
    progress.tick().await;
    let end = async {
        match arguments.time {
            Some(time) => tokio::time::sleep(time).await,
            None => pending().await,
        }
    };
    tokio::pin!(end);
    let is_enough =
        |report: &Report| arguments.pods.is_some_and(|pods| report.judged() >= pods.get());
    while is_synced && !is_enough(&report) {
        tokio::select! {
            next = shadow.next() => match next {
                Some(judgement) => take(arguments, &mut report, &mut export, judgement)?,
                None => return Err(CommandError::Panicked("the shadow")),
            },
            _ = progress.tick() => tracing::info!("{}", report.progress()),
            () = &mut end => break,
            () = signals.next() => break,
        }
    }
    report.observed(begun.elapsed());
    shadow.stop().await;
    while !is_enough(&report)
        && let Some(judgement) = shadow.next().await
    {
        take(arguments, &mut report, &mut export, judgement)?;
    }
    report.not_judged(shadow.figures());
    print(&match arguments.output {
        Output::Table => report.table(),
        Output::Json => report.json().to_string(),
    })?;
    Ok(ExitCode::from(u8::from(report.has_unexplained() || report.is_void())))
}

fn take(
    arguments: &Arguments,
    report: &mut Report,
    export: &mut Option<Export<'_>>,
    judgement: Judgement,
) -> Result<(), CommandError> {
    if let Some(export) = export {
        export.write(&judgement)?;
    }
    if arguments.output == Output::Table && judgement.verdict.is_unexplained() {
        print(&report::comparison(&judgement))?;
    }
    report.add(judgement);
    Ok(())
}

/// A file with one JSON object per line. Each is written at once, so that the file can be followed.
struct Export<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Export<'a> {
    fn create(path: &'a Path) -> Result<Export<'a>, CommandError> {
        Ok(Export { path, file: File::create(path).map_err(failed(path))? })
    }

    fn write(&mut self, judgement: &Judgement) -> Result<(), CommandError> {
        let line = format!("{}\n", report::line(judgement));
        self.file.write_all(line.as_bytes()).map_err(failed(self.path))
    }
}
