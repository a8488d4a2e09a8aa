//! `--metrics-file`: what a run's schedulers did, for Prometheus.

use std::path::{Path, PathBuf};

use portolan::framework::Framework;
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};

use crate::error::Failure;
use crate::output;

/// Where the metrics of a run go.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MetricsFile {
    /// Writes kube-scheduler's metrics, and the engine's own, to this file at the end, as
    /// Prometheus reads them.
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
}

/// A file that metrics are written to at the end.
pub(crate) struct Sink {
    pub(crate) metrics: Metrics,
    path: PathBuf,
}

impl MetricsFile {
    /// The file, if one is wanted; one that cannot be written is told of before the run.
    pub(crate) fn open(&self) -> Result<Option<Sink>, Failure> {
        self.metrics_file.as_deref().map(Sink::create).transpose()
    }

    /// One file for each of several runs, numbered from 1 before the ending; the file
    /// itself for one run.
    pub(crate) fn open_all(&self, runs: usize) -> Result<Vec<Option<Sink>>, Failure> {
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
    fn create(path: &Path) -> Result<Sink, Failure> {
        output::check(path)?;
        Ok(Sink { metrics: Metrics::new(), path: path.to_owned() })
    }

    /// Writes all that was counted.
    pub(crate) fn write(self) -> Result<(), Failure> {
        output::write(&self.path, &self.metrics.encode())
    }
}

/// The framework, heard by the metrics where there are any.
pub(crate) fn heard(framework: Framework, metrics: Option<&Metrics>, profile: &str) -> Framework {
    match metrics {
        Some(metrics) => framework.with_recorder(metrics.recorder(profile), PLUGINS_ONE_IN),
        None => framework,
    }
}

/// The metrics of a sink, if there is one.
pub(crate) fn of(sink: &Option<Sink>) -> Option<&Metrics> {
    sink.as_ref().map(|sink| &sink.metrics)
}

/// Writes a sink, if there is one.
pub(crate) fn write(sink: Option<Sink>) -> Result<(), Failure> {
    sink.map_or(Ok(()), Sink::write)
}
