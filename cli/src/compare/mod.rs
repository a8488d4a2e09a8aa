//! `portolan compare`: schedules one workload under several configurations with the same seed, and reports which one
//! packs better.

#[cfg(feature = "cluster")]
mod asked;
mod decision;
mod packing;
mod prices;
mod report;
mod shapes;
mod verdict;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use portolan::cache::{NodeInfo, Snapshot};
use portolan::metrics::Metrics;
use portolan::model::{Name, Resources};
use serde_json::Value;

use crate::error::CommandError;
use crate::html::{self, HtmlFile, Page, View};
use crate::metrics::{self, MetricsFile};
use crate::policy::{self, Reading};
use crate::replay::run::Outcome;
use crate::replay::{self, Progress, Settings, Workload};
use crate::{Output, print, terminal};

#[cfg(feature = "cluster")]
pub(crate) use asked::Contest;
use packing::Packing;
use shapes::{Left, Shapes};

/// The number of seeds.
const SEEDS: std::ops::RangeInclusive<i64> = 1..=1000;

/// Schedule one workload under several configurations, and report which one packs better.
///
/// The first line compares the nodes in use, their price and the placed pods. docs/cli.md defines the figures.
///
/// The exit status is 1 if a configuration exceeds --max-unschedulable. --metrics-file
/// writes one file per configuration, with a number before the extension, such as
/// metrics.1.prom.
///
/// Without files, the workload is a synthetic cluster generated from the seed. Input files are openb CSV (the Alibaba
/// GPU trace of 2023) or Kubernetes lists in JSON or YAML, optionally compressed with gzip or zstd.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// KubeSchedulerConfiguration files, each compared with the first; `default` means the default profile.
    #[arg(long = "config", required = true, num_args = 1.., value_name = "FILE")]
    configs: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// Number of seeds: each configuration is replayed with --seed and the seeds after it, on the
    /// same workload, and the spread of the results is reported.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(SEEDS))]
    seeds: u16,
    /// Largest number of unschedulable pods allowed for each configuration and seed.
    #[arg(long, value_name = "COUNT")]
    max_unschedulable: Option<usize>,
    #[command(flatten)]
    prices: prices::PriceOptions,
    #[command(flatten)]
    html: HtmlFile,
    #[command(flatten)]
    source: replay::Source,
    #[command(flatten)]
    metrics: MetricsFile,
}

/// The result of one configuration.
struct Run {
    name: String,
    outcome: Outcome,
    packing: Packing,
    /// The capacity that is left with the first seed.
    left: Option<Left>,
    /// Standard deviation, over nodes, of the requested share of cpu and of memory, in
    /// percent.
    imbalance: (f64, f64),
    /// The results with all seeds, if there are several.
    spread: Vec<Spread>,
    /// The scores of the first decision that differs from that of the first configuration, if they are known.
    scores: Option<Value>,
}

/// A configuration to be compared.
struct Entrant {
    name: String,
    config: policy::Text,
}

/// What all runs share.
struct Setting<'a> {
    workload: &'a Workload,
    source: &'a replay::Source,
    prices: Option<HashMap<Name, f64>>,
    pool_label: Option<&'a str>,
    seeds: u16,
    keeps_samples: bool,
    shapes: Shapes,
    bar: ProgressBar,
    /// `false` once the result is no longer needed.
    is_wanted: Arc<AtomicBool>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let source = &arguments.source;
    let mut workload = replay::workload(source)?;
    let prices = arguments.prices.of(&workload.nodes)?;
    arguments.html.check()?;
    let sinks = arguments.metrics.open_all(arguments.configs.len())?;
    let read = |file: &PathBuf| {
        let source = policy::Source {
            file: Some(&**file).filter(|file| *file != Path::new("default")),
            reading: &arguments.reading,
        };
        Ok(Entrant { name: file.display().to_string(), config: source.read()? })
    };
    let entrants: Vec<Entrant> =
        arguments.configs.iter().map(read).collect::<Result<_, CommandError>>()?;
    let shapes = Shapes::of(&workload);
    let replays = arguments.configs.len() as u64 * u64::from(arguments.seeds);
    let bar = terminal::progress("comparing", replays, terminal::Of::Items("replays"));
    let setting = Setting {
        workload: &workload,
        source,
        prices,
        pool_label: arguments.prices.pool_label.as_deref(),
        seeds: arguments.seeds,
        keeps_samples: arguments.html.is_wanted(),
        shapes,
        bar,
        is_wanted: Arc::new(AtomicBool::new(true)),
    };
    let outcomes: Vec<Result<Run, CommandError>> = std::thread::scope(|scope| {
        let threads = entrants.iter().zip(&sinks).map(|(entrant, sink)| {
            let setting = &setting;
            scope.spawn(move || setting.all_seeds(entrant, metrics::of(sink)))
        });
        let threads: Vec<_> = threads.collect();
        let broke = || CommandError::Panicked("a replay thread");
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(broke()))).collect()
    });
    let mut runs: Vec<Run> = outcomes.into_iter().collect::<Result<_, _>>()?;
    if source.output == Output::Json || arguments.html.is_wanted() {
        setting.score(&entrants, &mut runs)?;
    }
    let Setting { shapes, .. } = setting;
    for warning in runs.iter().filter_map(|run| run.outcome.warning.as_ref()) {
        workload.intake.warn(warning);
    }
    sinks.into_iter().try_for_each(metrics::write)?;
    let broken =
        |run: &&Run| arguments.max_unschedulable.is_some_and(|most| most_failed(run) > most);
    let broken: Vec<&str> = runs.iter().filter(broken).map(|run| &*run.name).collect();
    let report = report::Report { workload: &workload, shapes: &shapes, runs: &runs };
    arguments.html.write(arguments.html.is_wanted().then(|| page(&report, &broken)))?;
    print(&match source.output {
        Output::Json => report.json(&broken).to_string(),
        Output::Table => report.table(arguments.max_unschedulable),
    })?;
    if source.output == Output::Table {
        workload.intake.print();
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

const VIEW: View = View { id: "compare", module: "runs.js", name: "Comparison" };

/// The page of a comparison: its result, and the samples of each run.
fn page(report: &report::Report<'_>, broken: &[&str]) -> Page {
    let mut fields = report.json(broken);
    for (at, run) in report.runs.iter().enumerate() {
        fields["runs"][at]["series"] = run.outcome.series().into();
    }
    Page {
        headline: report.answer().lines().next().unwrap_or_default().to_owned(),
        view: VIEW,
        question: Value::Null,
        answers: vec![(html::asked("compare"), fields.to_string())],
    }
}

impl Setting<'_> {
    /// Replays the workload under one configuration, with all seeds.
    fn all_seeds(&self, entrant: &Entrant, metrics: Option<&Metrics>) -> Result<Run, CommandError> {
        let seed = self.source.seed;
        let mut first = self.one(entrant, metrics, seed)?;
        first.left = Some(self.shapes.left(&first.outcome.end)?);
        if self.seeds > 1 {
            let mut all = vec![figures(&first)];
            for n in 1..self.seeds {
                let seed = seed.wrapping_add(u64::from(n));
                all.push(figures(&self.one(entrant, None, seed)?));
            }
            first.spread = spread(&all);
        }
        Ok(first)
    }

    /// Replays the workload under one configuration, with one seed.
    fn one(
        &self,
        entrant: &Entrant,
        metrics: Option<&Metrics>,
        seed: u64,
    ) -> Result<Run, CommandError> {
        let outcome = self.outcome(entrant, metrics, seed, self.workload.arrivals.len())?;
        self.bar.inc(1);
        Ok(Run {
            name: entrant.name.clone(),
            packing: Packing::of(&outcome, self.prices.as_ref(), self.pool_label),
            left: None,
            imbalance: imbalance(&outcome.end),
            outcome,
            spread: Vec::new(),
            scores: None,
        })
    }

    /// Replays the first pods of the workload.
    fn outcome(
        &self,
        entrant: &Entrant,
        metrics: Option<&Metrics>,
        seed: u64,
        arrivals: usize,
    ) -> Result<Outcome, CommandError> {
        let settings = Settings {
            config: &entrant.config,
            arrivals,
            is_wanted: &self.is_wanted,
            threads: 1,
            progress: Progress::Hidden,
            metrics,
            keeps_samples: self.keeps_samples,
            seed,
            follower: None,
        };
        replay::run::run(self.workload, self.source, settings)
    }
}

const UNSCHEDULABLE: &str = "unschedulable";
const PLACED: &str = "placed";
const NODES_USED: &str = "nodes used";
const PRICE: &str = "price per hour";

/// One figure over the seeds.
struct Spread {
    name: &'static str,
    mean: f64,
    least: f64,
    most: f64,
}

impl Spread {
    /// Whether the ranges of both do not overlap.
    fn is_apart(&self, other: &Spread) -> bool {
        self.most < other.least || other.most < self.least
    }
}

/// The figures that are compared over seeds.
fn figures(run: &Run) -> Vec<(&'static str, f64)> {
    let mut figures = vec![
        (PLACED, run.outcome.placed as f64),
        (UNSCHEDULABLE, run.outcome.failed as f64),
        (NODES_USED, run.packing.all.used),
        ("cpu imbalance, %", run.imbalance.0),
        ("memory imbalance, %", run.imbalance.1),
    ];
    figures.extend(run.packing.all.price.map(|price| (PRICE, price.used)));
    figures
}

/// The number of pods that failed, with the seed for which it is largest.
fn most_failed(run: &Run) -> usize {
    let over = run.spread.iter().find(|of| of.name == UNSCHEDULABLE);
    over.map_or(run.outcome.failed, |of| of.most as usize)
}

/// The spread of each figure over the seeds.
fn spread(all: &[Vec<(&'static str, f64)>]) -> Vec<Spread> {
    let of_figure = |(at, (name, _)): (usize, &(&'static str, f64))| {
        let values = || all.iter().map(|figures| figures[at].1);
        Spread {
            name,
            mean: values().sum::<f64>() / all.len() as f64,
            least: values().fold(f64::INFINITY, f64::min),
            most: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    all.first().into_iter().flatten().enumerate().map(of_figure).collect()
}

fn imbalance(end: &Snapshot) -> (f64, f64) {
    let deviation = |amount: fn(&Resources) -> i64| {
        let share = |node: NodeInfo<'_>| {
            let (has, takes) = (amount(&node.allocatable()), amount(&node.requested()));
            (has > 0).then(|| takes as f64 / has as f64)
        };
        let shares: Vec<f64> = end.nodes().filter_map(share).collect();
        let count = shares.len().max(1) as f64;
        let mean = shares.iter().sum::<f64>() / count;
        (shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / count).sqrt() * 100.0
    };
    (deviation(|of| of.cpu.0), deviation(|of| of.memory.0))
}

/// The number of pods placed on other nodes than under the first configuration, and the
/// first such pod.
fn differences(first: &Run, other: &Run) -> (usize, Option<usize>) {
    let both = first.outcome.placements.iter().zip(&other.outcome.placements);
    let mut differ = both.enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at);
    let earliest = differ.next();
    (differ.count() + usize::from(earliest.is_some()), earliest)
}

fn per_second(outcome: &Outcome) -> f64 {
    (outcome.cycles as f64 / outcome.in_cycles.as_secs_f64().max(1e-9)).round()
}

fn wait(outcome: &Outcome, quantile: f64) -> Option<u64> {
    outcome.waits.as_ref().map(|waits| waits.value_at_quantile(quantile))
}
