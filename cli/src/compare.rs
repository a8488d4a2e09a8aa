//! `portolan compare`: schedules one workload under several configurations with the same
//! seed, and reports differences, imbalance and fragmentation.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::ProgressBar;
use portolan::metrics::Metrics;
use portolan::model::{Pod, Resources};
use portolan::{NodeInfo, Snapshot};
use serde_json::{Value, json};

use crate::error::Failure;
use crate::metrics::{self, MetricsFile};
use crate::policy::{self, Reading};
use crate::replay::run::Outcome;
use crate::replay::{self, Progress, Settings, Workload};
use crate::table::{plain, row};
use crate::text::{count, line};
use crate::{Output, print, terminal};

/// Schedule one workload under several configurations and report the differences.
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
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,
    /// Largest number of unschedulable pods allowed for each configuration and seed.
    #[arg(long, value_name = "COUNT")]
    max_unschedulable: Option<usize>,
    #[command(flatten)]
    source: replay::Source,
    #[command(flatten)]
    metrics: MetricsFile,
}

/// The result of one configuration.
struct Run {
    name: String,
    outcome: Outcome,
    /// Standard deviation, over nodes, of the requested share of cpu and of memory, in
    /// percent.
    imbalance: (f64, f64),
    fragmentation: f64,
    /// The results with all seeds, if there are several.
    spread: Vec<Spread>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let source = &arguments.source;
    let mut workload = replay::workload(source)?;
    let sinks = arguments.metrics.open_all(arguments.configs.len())?;
    let typical = typical(&workload);
    let replays = arguments.configs.len() as u64 * u64::from(arguments.seeds);
    let bar = terminal::progress("comparing", replays, terminal::Of::Items("replays"));
    let outcomes: Vec<Result<Run, Failure>> = std::thread::scope(|scope| {
        let threads = arguments.configs.iter().zip(&sinks).map(|(config, sink)| {
            let (workload, typical, bar) = (&workload, typical.as_ref(), &bar);
            let file = Some(&**config).filter(|file| *file != Path::new("default"));
            let config = policy::Source { file, reading: &arguments.reading };
            let seeds = arguments.seeds;
            scope.spawn(move || {
                let first =
                    one(workload, source, (config, typical), (metrics::of(sink), source.seed))?;
                bar.inc(1);
                let spread = spread(workload, source, (config, typical), (&first, seeds), bar)?;
                Ok(Run { spread, ..first })
            })
        });
        let threads: Vec<_> = threads.collect();
        let broke = || Failure::Panicked("a replay thread");
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(broke()))).collect()
    });
    drop(bar);
    let runs: Vec<Run> = outcomes.into_iter().collect::<Result<_, _>>()?;
    for warning in runs.iter().filter_map(|run| run.outcome.warning.as_ref()) {
        workload.intake.warn(warning);
    }
    sinks.into_iter().try_for_each(metrics::write)?;
    let broken =
        |run: &&Run| arguments.max_unschedulable.is_some_and(|most| most_failed(run) > most);
    let broken: Vec<&str> = runs.iter().filter(broken).map(|run| &*run.name).collect();
    print(&match source.output {
        Output::Json => json_of(&workload, &runs, &broken).to_string(),
        Output::Table => table(&workload, &runs, arguments.max_unschedulable),
    })?;
    if source.output == Output::Table {
        workload.intake.print();
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Replays the workload under one configuration.
fn one(
    workload: &Workload,
    source: &replay::Source,
    (config, typical): (policy::Source<'_>, Option<&Pod>),
    (metrics, seed): (Option<&Metrics>, u64),
) -> Result<Run, Failure> {
    let settings = Settings {
        config,
        threads: 1,
        progress: Progress::Hidden,
        metrics,
        draws_chart: false,
        seed,
    };
    let outcome = replay::run::run(workload, source, settings)?;
    let imbalance = imbalance(&outcome.end);
    let fragmentation = typical.map_or(0.0, |pod| fragmentation(&outcome.end, pod));
    let name = config.file.unwrap_or(Path::new("default")).display().to_string();
    Ok(Run { name, outcome, imbalance, fragmentation, spread: Vec::new() })
}

const UNSCHEDULABLE: &str = "unschedulable";

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
fn figures(run: &Run) -> [(&'static str, f64); 5] {
    [
        ("placed", run.outcome.placed as f64),
        (UNSCHEDULABLE, run.outcome.failed as f64),
        ("cpu imbalance, %", run.imbalance.0),
        ("memory imbalance, %", run.imbalance.1),
        ("fragmentation, %", run.fragmentation),
    ]
}

/// The number of pods that failed, with the seed for which it is largest.
fn most_failed(run: &Run) -> usize {
    let over = run.spread.iter().find(|of| of.name == UNSCHEDULABLE);
    over.map_or(run.outcome.failed, |of| of.most as usize)
}

/// Replays the workload with the seeds after the first one.
fn spread(
    workload: &Workload,
    source: &replay::Source,
    of: (policy::Source<'_>, Option<&Pod>),
    (first, seeds): (&Run, u16),
    bar: &ProgressBar,
) -> Result<Vec<Spread>, Failure> {
    if seeds == 1 {
        return Ok(Vec::new());
    }
    let mut all = vec![figures(first)];
    for n in 1..seeds {
        let seed = source.seed.wrapping_add(u64::from(n));
        all.push(figures(&one(workload, source, of, (None, seed))?));
        bar.inc(1);
    }
    let of_figure = |(at, (name, _)): (usize, (&'static str, f64))| {
        let values = || all.iter().map(|figures| figures[at].1);
        Spread {
            name,
            mean: values().sum::<f64>() / all.len() as f64,
            least: values().fold(f64::INFINITY, f64::min),
            most: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    Ok(figures(first).into_iter().enumerate().map(of_figure).collect())
}

/// The pod with the median cpu request.
fn typical(workload: &Workload) -> Option<Pod> {
    let mut pods: Vec<&Pod> = workload.arrivals.iter().map(|arrival| &arrival.pod).collect();
    pods.sort_by_key(|pod| pod.template.resources.incoming.cpu);
    pods.get(pods.len() / 2).map(|pod| (*pod).clone())
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

/// The percentage of copies of this pod that the total free capacity could hold, but that
/// do not fit because the capacity is split over nodes.
fn fragmentation(end: &Snapshot, pod: &Pod) -> f64 {
    let wants = &pod.template.resources.incoming;
    let fits = |cpu: i64, memory: i64, places: i64| {
        let by = |free: i64, each: i64| if each > 0 { free.max(0) / each } else { i64::MAX };
        by(cpu, wants.cpu.0).min(by(memory, wants.memory.0)).min(places.max(0))
    };
    let (mut apart, mut pool) = (0_i64, (0_i64, 0_i64, 0_i64));
    for node in end.nodes() {
        let (has, takes) = (node.allocatable(), node.requested());
        let cpu = has.cpu.0.saturating_sub(takes.cpu.0).max(0);
        let memory = has.memory.0.saturating_sub(takes.memory.0).max(0);
        let places = node.allowed_pods().saturating_sub(node.pod_count() as i64).max(0);
        apart = apart.saturating_add(fits(cpu, memory, places));
        pool.0 = pool.0.saturating_add(cpu);
        pool.1 = pool.1.saturating_add(memory);
        pool.2 = pool.2.saturating_add(places);
    }
    match fits(pool.0, pool.1, pool.2) {
        0 => 0.0,
        together => 100.0 * (1.0 - apart as f64 / together as f64),
    }
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

fn json_of(workload: &Workload, runs: &[Run], broken: &[&str]) -> Value {
    let one = |run: &Run| {
        let (different, earliest) = differences(&runs[0], run);
        let earliest = earliest.map(|at| {
            let pod = &workload.arrivals[at].pod;
            json!({
                "pod": format!("{}/{}", pod.namespace(), pod.name),
                "first": runs[0].outcome.placements[at].as_deref(),
                "here": run.outcome.placements[at].as_deref(),
            })
        });
        json!({
            "config": run.name,
            "placed": run.outcome.placed,
            "unschedulable": run.outcome.failed,
            "different": different,
            "first_difference": earliest,
            "imbalance_percent": { "cpu": run.imbalance.0, "memory": run.imbalance.1 },
            "fragmentation_percent": run.fragmentation,
            "wait_seconds": { "p50": wait(&run.outcome, 0.5), "p99": wait(&run.outcome, 0.99) },
            "cycles_per_second": per_second(&run.outcome),
            "seeds": run.spread.iter().zip(&runs[0].spread).map(|(of, first)| json!({
                "figure": of.name, "mean": of.mean, "min": of.least, "max": of.most,
                "differs": of.is_apart(first),
            })).collect::<Vec<_>>(),
            "decision_hash": format!("{:016x}", run.outcome.decision_hash),
        })
    };
    let runs: Vec<Value> = runs.iter().map(one).collect();
    json!({ "version": 1, "runs": runs, "broken": broken, "input": workload.intake.json() })
}

fn table(workload: &Workload, runs: &[Run], limit: Option<usize>) -> String {
    let waits = runs.iter().any(|run| run.outcome.waits.is_some());
    let mut header = vec![
        "configuration",
        "placed",
        "unschedulable",
        "different",
        "cpu imbalance",
        "memory imbalance",
        "fragmentation",
        "cycles/s",
    ];
    if waits {
        header.push("wait p50 / p99");
    }
    let mut table = plain(header);
    for run in runs {
        let (different, _) = differences(&runs[0], run);
        let mut cells = vec![
            run.name.clone(),
            run.outcome.placed.to_string(),
            run.outcome.failed.to_string(),
            different.to_string(),
            format!("{:.1} %", run.imbalance.0),
            format!("{:.1} %", run.imbalance.1),
            format!("{:.1} %", run.fragmentation),
            format!("{:.0}", per_second(&run.outcome)),
        ];
        if let (Some(p50), Some(p99)) = (wait(&run.outcome, 0.5), wait(&run.outcome, 0.99)) {
            cells.push(format!("{p50} / {p99} s"));
        }
        table.add_row(row(cells));
    }
    let mut text = table.trim_fmt();
    for run in &runs[1..] {
        if let (_, Some(at)) = differences(&runs[0], run) {
            let pod = &workload.arrivals[at].pod;
            let on = |run: &Run| {
                run.outcome.placements[at].as_deref().unwrap_or("unschedulable").to_owned()
            };
            text.push_str(&format!(
                "\n{}: first difference: pod {}/{}: {} instead of {}",
                line(&run.name),
                line(pod.namespace()),
                line(&pod.name),
                line(&on(run)),
                line(&on(&runs[0]))
            ));
        }
    }
    for run in runs {
        for (of, first) in run.spread.iter().zip(&runs[0].spread) {
            let mark = if of.is_apart(first) { ", more than the spread" } else { "" };
            text.push_str(&format!(
                "\n{}: {}: mean {:.1}, min {:.1}, max {:.1}{mark}",
                line(&run.name),
                of.name,
                of.mean,
                of.least,
                of.most
            ));
        }
    }
    for run in runs {
        if let Some(limit) = limit.filter(|limit| most_failed(run) > *limit) {
            let pods = count(most_failed(run), "unschedulable pod");
            text.push_str(&format!("\n{}: {pods}, limit {limit}", line(&run.name)));
        }
    }
    text
}
