//! `portolan-bench sched`: scheduling cycles per second, measured in the same way as
//! kube-scheduler's: snapshot, PreFilter to Score, assume, Reserve, Permit, and preemption
//! if no node fits; without queue and binding.

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::Value;

use portolan_cli::CommandError;
use portolan_cli::{Output, print};

use super::measure::measure;
use super::processes;
use super::results::{compare, note_of_short_runs, ratios, table};
use super::workloads::Shape;

/// Columns of the table.
const COLUMNS: &str = "\
Columns:
  cycles/s; min, median, max   measured pods per second of wall time, placed or not; over the runs of --repeat
  p50 µs, p99 µs, max µs       time of a cycle; batches: the batch's time divided by its pods; gangs: the group's time
  failed                       pods that were not placed; for nofit-*, attempts
  conflicts                    decisions that no longer held at the commit and were made again
  overcommitted                nodes with more requests than allocatable; anything but 0 is a bug";

/// Measure scheduling cycles: snapshot, filter, score, assume, reserve, permit.
#[derive(clap::Args)]
#[command(after_long_help = COLUMNS)]
pub(crate) struct Arguments {
    /// Shapes of the measured pods, separated by commas; each is measured on its own
    /// cluster.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "basic")]
    workload: Vec<Shape>,
    /// Number of nodes, each with 4 cpu, 32 Gi and 110 pods, in three zones.
    #[arg(long, value_name = "COUNT", default_value_t = 5000)]
    pub(super) nodes: usize,
    /// Number of pods placed before the measurement [default: 1000, but at most 10 per node].
    #[arg(long, value_name = "COUNT")]
    init: Option<usize>,
    /// Number of measured pods [default: 20000, or fewer if the nodes cannot hold them].
    ///
    /// The default is at most 15 per node, and for some workloads fewer: 25 per node of a third of the nodes for
    /// affinity, 1 per node for preemption, and 1 per two nodes for antiaffinity.
    #[arg(long, value_name = "COUNT")]
    pods: Option<usize>,
    /// Number of times that each workload is measured, each time on a new cluster.
    ///
    /// The table then has the smallest, median and largest number of cycles per second; the other columns are those of
    /// the median run, except for overcommitted nodes, which are the largest number of all runs.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1000),
    )]
    repeat: u16,
    /// Number of processes that measure at once, for comparison with the engine of this one.
    ///
    /// Each process has an engine, a cluster and a scheduler of its own, and measures as many pods as this one does.
    /// The row of the processes has the sum of their cycles per second; below the table are the ratios of the engine to
    /// that sum. Repeated measurements alternate between the two.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    processes: Option<u16>,
    /// Print a line when a cluster is set up, and measure when a line is read.
    #[arg(long, hide = true)]
    pub(super) wait: bool,
    /// Percentage of nodes at which the search for feasible nodes stops; 0 adapts to the
    /// number of nodes.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=100),
    )]
    pub(super) percentage_of_nodes: u8,
    /// Number of pods per batch: their decisions share a commit.
    ///
    /// The times of a cycle are then those of a batch divided by its pods.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    pub(super) batch: u16,
    /// Number of schedulers on one engine, each on its own thread; or several numbers to
    /// compare, separated by commas.
    ///
    /// Below the table are the ratios of the other numbers to the first one. Repeated measurements alternate between
    /// them.
    #[arg(
        long,
        value_name = "COUNT",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    schedulers: Vec<u16>,
    /// Pop pods from a scheduling queue, and bind them in memory after their cycles.
    #[arg(long)]
    pub(super) queue: bool,
    /// Seed for uids, random pods and breaking ties.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const MOST: usize = 10_000_000;

impl Arguments {
    /// The number of pods placed before the measurement.
    pub(super) fn init(&self) -> usize {
        self.init.unwrap_or_else(|| 1000.min(self.nodes.saturating_mul(10)))
    }

    /// The number of measured pods of this shape.
    pub(super) fn pods(&self, shape: Shape) -> usize {
        self.pods.unwrap_or_else(|| 20_000.min(shape.pods_that_fit(self.nodes)))
    }

    /// The arguments of a process that measures this shape once, with one scheduler.
    fn of_process(&self, shape: Shape) -> Vec<OsString> {
        let values = [
            ("--workload", shape.name()),
            ("--nodes", self.nodes.to_string()),
            ("--init", self.init().to_string()),
            ("--pods", self.pods(shape).to_string()),
            ("--percentage-of-nodes", self.percentage_of_nodes.to_string()),
            ("--batch", self.batch.to_string()),
            ("--seed", self.seed.to_string()),
            ("--output", "json".to_owned()),
        ];
        let values = values.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let flags = [("--queue", self.queue), ("--wait", true)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name.to_owned());
        let command = ["sched"].map(str::to_owned);
        command.into_iter().chain(values).chain(flags).map(OsString::from).collect()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    refuse_contradictions(arguments)?;
    let mut results = Vec::new();
    for shape in &arguments.workload {
        for result in measure_shape(*shape, arguments)? {
            if arguments.output == Output::Json {
                print(&result.to_string())?;
            }
            results.push(result);
        }
    }
    if arguments.output == Output::Table {
        print(&table(&results))?;
        let blocks = [ratios(&results), note_of_short_runs(&results).unwrap_or_default()];
        for block in blocks.iter().filter(|block| !block.is_empty()) {
            print(&format!("\n{block}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses numbers out of range, and options that contradict each other.
fn refuse_contradictions(arguments: &Arguments) -> Result<(), CommandError> {
    let (init, pods) = (arguments.init(), arguments.pods.unwrap_or(1));
    for (name, count) in [("nodes", arguments.nodes), ("init", init), ("pods", pods)] {
        let least = usize::from(name != "init");
        if !(least..=MOST).contains(&count) {
            return Err(CommandError::Usage(format!("--{name} must be {least} to {MOST}")));
        }
    }
    if arguments.queue && arguments.workload.iter().any(|shape| !shape.fits()) {
        let why =
            "--queue does not retry pods that fit nowhere: remove it, or the workloads nofit-*";
        return Err(CommandError::Usage(why.to_owned()));
    }
    Ok(())
}

/// Measures a shape with each number of schedulers, and in the processes of `--processes`. Returns a result for each.
fn measure_shape(shape: Shape, arguments: &Arguments) -> Result<Vec<Value>, CommandError> {
    let counts = &arguments.schedulers;
    let mut engines: Vec<Vec<Value>> = vec![Vec::new(); counts.len()];
    let mut processes = Vec::new();
    for repeat in 0..arguments.repeat {
        // One more than the engines if there are processes. The order alternates, so that a drift of the machine's
        // speed affects all of them.
        let mut turns: Vec<usize> =
            (0..counts.len() + usize::from(arguments.processes.is_some())).collect();
        if repeat % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let Some(schedulers) = counts.get(turn) else {
                let count = arguments.processes.unwrap_or_default();
                processes.push(processes::measure(count, &arguments.of_process(shape))?);
                continue;
            };
            engines[turn].push(measure((shape, *schedulers), arguments)?);
        }
    }
    Ok(compare(engines, processes))
}
