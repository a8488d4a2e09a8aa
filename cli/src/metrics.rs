//! `--metrics-file`: metrics of a run in Prometheus format.

use std::path::{Path, PathBuf};

use portolan::Framework;
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};

use crate::error::CommandError;
use crate::output;

/// The file for the metrics of a run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MetricsFile {
    /// Output file for kube-scheduler's and the engine's metrics, in Prometheus format.
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
}

/// Metrics, and the file that they are written to at the end.
pub(crate) struct Sink {
    pub(crate) metrics: Metrics,
    path: PathBuf,
}

impl MetricsFile {
    /// Opens the file, if one is given; fails before the run if it cannot be written.
    pub(crate) fn open(&self) -> Result<Option<Sink>, CommandError> {
        self.metrics_file.as_deref().map(Sink::create).transpose()
    }

    /// Opens one file per run, with a number from 1 before the extension; a single run
    /// uses the file name as it is.
    pub(crate) fn open_all(&self, runs: usize) -> Result<Vec<Option<Sink>>, CommandError> {
        let Some(path) = &self.metrics_file else { return Ok((0..runs).map(|_| None).collect()) };
        let numbered = |run: usize| match runs {
            1 => path.clone(),
            _ => {
                let ending = path.extension().map(|ending| ending.to_string_lossy());
                let ending = ending.map_or_else(String::new, |ending| format!(".{ending}"));
                path.with_extension(format!("{run}{ending}"))
            }
        };
        (1..=runs).map(|run| Sink::create(&numbered(run)).map(Some)).collect()
    }
}

impl Sink {
    fn create(path: &Path) -> Result<Sink, CommandError> {
        output::check(path)?;
        Ok(Sink { metrics: Metrics::new(), path: path.to_owned() })
    }

    /// Writes all metrics.
    pub(crate) fn write(self) -> Result<(), CommandError> {
        output::write(&self.path, self.metrics.encode_classic())
    }
}

/// The framework, with a recorder if metrics are collected.
pub(crate) fn record(framework: Framework, metrics: Option<&Metrics>, profile: &str) -> Framework {
    match metrics {
        Some(metrics) => framework.with_recorder(metrics.recorder(profile), PLUGINS_ONE_IN),
        None => framework,
    }
}

/// The sink's metrics, if there is a sink.
pub(crate) fn of(sink: &Option<Sink>) -> Option<&Metrics> {
    sink.as_ref().map(|sink| &sink.metrics)
}

/// Writes the sink, if there is one.
pub(crate) fn write(sink: Option<Sink>) -> Result<(), CommandError> {
    sink.map_or(Ok(()), Sink::write)
}
