//! `portolan-bench threads`: one decision on several threads, relative to the same decision on one.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, NodeInfo, Snapshot};
use portolan::plugin::{
    Cycle, Filter, Handle, Plugin, PluginInfo, Point, PreFilter, Status, default_plugins,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_cli::CommandError;
use portolan_cli::{closed, plain, print, right};

use super::cache::make_node;
use super::workloads::{Pods, Shape};

/// Measure one decision over all nodes on several threads, relative to one thread.
///
/// Each pod has a template of its own, so no verdict is cached. Runs of 40 decisions on one thread and on several
/// alternate. Ratios above 1 mean that several threads are faster. Rows with a filter add one to the default profile,
/// which takes this long per node and has no chunk call.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Numbers of nodes, separated by commas.
    #[arg(
        long,
        value_name = "COUNT",
        value_delimiter = ',',
        default_value = "100,500,1000,5000,20000,100000"
    )]
    nodes: Vec<usize>,
    /// Nanoseconds that the filter takes for each node, separated by commas; 0 for none.
    #[arg(long, value_name = "NANOSECONDS", value_delimiter = ',', default_value = "0,100")]
    filter: Vec<u64>,
    /// Number of threads.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=256))]
    threads: u16,
    /// Percentage of nodes at which the search for feasible nodes stops; 0 adapts to the number of nodes.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    percentage_of_nodes: u8,
    /// Number of pods, rounded up to a multiple of 40.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    pods: usize,
}

/// A filter that passes every node after this time.
struct Slow(Duration);

struct Wait(Duration);

impl Plugin for Slow {
    fn info(&self) -> PluginInfo {
        PluginInfo::new("Slow", &[Point::Filter])
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(Wait(self.0))))
    }
}

impl Filter for Wait {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        let started = Instant::now();
        while started.elapsed() < self.0 {
            std::hint::spin_loop();
        }
        None
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let others = usize::from(arguments.threads) - 1;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(others).build();
    let pool = Arc::new(pool.map_err(|error| CommandError::Threads(error.to_string()))?);
    let threads = format!("{} threads", arguments.threads);
    let mut table = plain(["nodes", "filter", "1 thread", &threads, "ratio", "lowest", "highest"]);
    for nodes in &arguments.nodes {
        let (mut writer, reader) = Engine::inline(Config::default());
        for n in 0..*nodes {
            writer.add_node(make_node(&format!("node-{n:07}"), n)).map_err(closed)?;
        }
        writer.publish();
        let snapshot = reader.snapshot();
        for filter in &arguments.filter {
            let times = measure(arguments, &snapshot, *filter, &pool)?;
            let [alone, shared] = times.each_ref().map(|times| median(times));
            let runs = times[0].chunks(RUN).zip(times[1].chunks(RUN));
            let mut ratios: Vec<f64> =
                runs.map(|(alone, shared)| median(alone) / median(shared)).collect();
            ratios.sort_by(f64::total_cmp);
            let [lowest, highest] = [ratios.first(), ratios.last()].map(|of| of.copied());
            let ratio = |ratio: f64| format!("{ratio:.2}");
            table.add_row([
                nodes.to_string(),
                format!("{filter} ns"),
                format!("{alone:.1} µs"),
                format!("{shared:.1} µs"),
                ratio(alone / shared),
                ratio(lowest.unwrap_or_default()),
                ratio(highest.unwrap_or_default()),
            ]);
        }
    }
    print(&right(table, &[0, 1, 2, 3, 4, 5, 6]).to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The number of consecutive decisions in a run. The table has the lowest and the highest ratio of a run.
const RUN: usize = 40;

/// Returns the median in microseconds.
fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// Returns the times of the decisions on one thread and on several.
fn measure(
    arguments: &Arguments,
    snapshot: &Snapshot,
    filter: u64,
    pool: &Arc<rayon::ThreadPool>,
) -> Result<[Vec<Duration>; 2], CommandError> {
    let algorithm = |pool| {
        let mut plugins = default_plugins(&Handle::default());
        if filter > 0 {
            plugins.push((Box::new(Slow(Duration::from_nanos(filter))), 0));
        }
        let framework = Framework::new(plugins).map_err(closed)?;
        let percentage_of_nodes = arguments.percentage_of_nodes;
        let config = AlgorithmConfig { percentage_of_nodes, seed: 1 };
        Ok::<_, CommandError>(Algorithm::new(framework, config, pool))
    };
    let mut algorithms = [algorithm(None)?, algorithm(Some(pool.clone()))?];
    let mut pods = Pods::new(1);
    let mut times = [const { Vec::new() }; 2];
    for run in 0..arguments.pods.div_ceil(RUN) {
        let pods: Vec<_> = (0..RUN).map(|_| pods.make(Shape::Distinct)).collect();
        let mut decisions = [const { Vec::new() }; 2];
        for at in [run % 2, 1 - run % 2] {
            for pod in &pods {
                let started = Instant::now();
                let decision = algorithms[at].schedule(snapshot, pod);
                times[at].push(started.elapsed());
                decisions[at].push(decision);
            }
        }
        let [alone, shared] = decisions;
        if alone != shared {
            let different = format!("the decisions of run {run} differ: {alone:?} and {shared:?}");
            return Err(CommandError::Usage(different));
        }
    }
    Ok(times)
}
