//! `--metrics-file`: metrics of a run in Prometheus format.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use portolan::framework::Framework;
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};

use crate::error::Failure;
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
    pub(crate) fn open(&self) -> Result<Option<Sink>, Failure> {
        self.metrics_file.as_deref().map(Sink::create).transpose()
    }

    /// Opens one file per run, with a number from 1 before the extension; a single run
    /// uses the file name as it is.
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

    /// Writes all metrics.
    pub(crate) fn write(self) -> Result<(), Failure> {
        output::write(&self.path, classic(&self.metrics.encode()))
    }
}

/// Rewrites OpenMetrics as the classic text format of Prometheus (0.0.4), which the textfile collector and the
/// Pushgateway read.
///
/// In OpenMetrics, a counter's family has no suffix `_total`; in the classic format, the family has the name of its
/// samples, which would have no type and no help otherwise. The classic format lacks units, the end marker, exemplars,
/// and the types `info`, `stateset` and `gaugehistogram`.
fn classic(text: &str) -> String {
    let type_of = |line: &str| {
        let rest = line.strip_prefix("# TYPE ")?;
        rest.split_once(' ').map(|(name, kind)| (name.to_owned(), kind.to_owned()))
    };
    let types: HashMap<String, String> = text.lines().filter_map(type_of).collect();
    let mut classic = String::with_capacity(text.len());
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let comment = ["# HELP ", "# TYPE "].into_iter().find(|start| line.starts_with(start));
        let Some(start) = comment else {
            classic.push_str(without_exemplar(line));
            classic.push('\n');
            continue;
        };
        let rest = &line[start.len()..];
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = types.get(name).map(String::as_str).unwrap_or_default();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let rest = match (start, kind) {
            ("# TYPE ", "info" | "stateset") => "gauge",
            ("# TYPE ", "unknown" | "gaugehistogram") => "untyped",
            _ => rest,
        };
        classic.push_str(&format!("{start}{name}{suffix} {rest}\n"));
    }
    classic
}

/// The sample without its exemplar, which follows the value as ` # {…} …`. Label values can contain the same characters,
/// within quotes.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
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
pub(crate) fn write(sink: Option<Sink>) -> Result<(), Failure> {
    sink.map_or(Ok(()), Sink::write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_keep_their_type_in_the_classic_format() {
        let open = "# HELP a Pods.\n# TYPE a counter\n# UNIT a pods\na_total{b=\"x # {y} \\\" #\"} 1 # {c=\"d\"} 1.0\n\
                    # HELP i Facts.\n# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE u unknown\nu 2\n# EOF\n";
        let expected = "# HELP a_total Pods.\n# TYPE a_total counter\na_total{b=\"x # {y} \\\" #\"} 1\n\
                        # HELP i_info Facts.\n# TYPE i_info gauge\ni_info{v=\"1\"} 1\n# TYPE u untyped\nu 2\n";
        assert_eq!(classic(open), expected);
    }
}
