//! `portolan perf sched`: scheduling cycles per second, measured in the same way as
//! kube-scheduler's: snapshot, PreFilter to Score, assume, Reserve, Permit, and preemption
//! if no node fits; without queue and binding.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};

use portolan::framework::{Algorithm, AlgorithmConfig, Evictor, Framework, Handle};
use portolan::log::Event;
use portolan::metrics::Metrics;
use portolan::model::{Pod, Timestamp};
use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{
    FilterCheck, InMemoryBinder, InMemoryEvictor, Profiles, Scheduler, SchedulingLoop,
};
use portolan::{Config, Engine};
use serde_json::{Value, json};

use crate::error::Failure;
use crate::metrics::{self, MetricsFile};
use crate::{Output, print};

use super::cache::make_node;
use super::check::{self, Before, Reference, Report};
use super::cycles::{Measured, Supply, Work, work};
use super::nofit::Changes;
use super::results::{compare, cycle_us, ratios, table};
use super::workload_files::{self, Place, Selection};
use super::workloads::{Pods, Shape};
use super::{nofit, processes, queued};

/// Measure scheduling cycles: snapshot, filter, score, assume, reserve, permit.
///
/// With --scheduler-perf, run Kubernetes' scheduler_perf workloads on an engine in this process instead, with a queue
/// and bindings, and measure their throughput. The exit status is then 1 if a workload failed or missed the threshold
/// of its file.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File of scheduler_perf workloads, or a folder: every performance-config.yaml in it. Repeatable.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "workload", "nodes", "init", "pods", "repeat", "processes", "percentage_of_nodes", "gang", "spawned",
            "queue", "check", "metrics_file",
        ],
    )]
    scheduler_perf: Vec<PathBuf>,
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
    /// affinity, 1 per node for preemption, and 1 per two nodes for antiaffinity and mixed.
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
    /// Each process has an engine, a cluster and a scheduler of its own, and measures as many pods as this one does. The
    /// row of the processes has the sum of their cycles per second; below the table is the ratio of the engine to them,
    /// with the last of several numbers of schedulers. Repeated measurements alternate between the two.
    #[arg(
        long,
        value_name = "COUNT",
        conflicts_with = "check",
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
    /// Number of pods per gang of the workload gang.
    ///
    /// A gang is decided in one cycle; cycles per second still count its pods.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    pub(super) gang: u32,
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
    /// Apply events on a dedicated thread instead of the schedulers' threads.
    #[arg(long)]
    spawned: bool,
    /// Pop pods from a scheduling queue, and bind them in memory after their cycles.
    #[arg(long, conflicts_with = "check")]
    queue: bool,
    /// Seed for uids, random pods and breaking ties.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Check decisions and the state after the measurement.
    ///
    /// With one scheduler, each decision is compared with one made node by node, and the measured times include both;
    /// with --batch, each is compared with the decision for the same pod on another engine, on which pods are scheduled
    /// one by one. With several schedulers, decisions depend on time and are not compared. In all cases each pod must be
    /// on the node that it was placed on and on no other, no node may be overcommitted, the generation must be the
    /// number of events, and data derived from pods and nodes must be correct. The exit status is 1 otherwise.
    ///
    /// Not available with --queue, --processes or the workload gang.
    #[arg(long)]
    check: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    metrics: MetricsFile,
    #[command(flatten)]
    selection: Selection,
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
        // All fields are named, so that a new argument is considered here.
        let Arguments {
            nodes,
            percentage_of_nodes,
            gang,
            batch,
            spawned,
            queue,
            seed,
            workload: _,
            init: _,
            pods: _,
            repeat: _,
            processes: _,
            wait: _,
            schedulers: _,
            check: _,
            output: _,
            metrics: _,
            scheduler_perf: _,
            selection: _,
        } = self;
        let values = [
            ("--workload", shape.name()),
            ("--nodes", nodes.to_string()),
            ("--init", self.init().to_string()),
            ("--pods", self.pods(shape).to_string()),
            ("--percentage-of-nodes", percentage_of_nodes.to_string()),
            ("--gang", gang.to_string()),
            ("--batch", batch.to_string()),
            ("--seed", seed.to_string()),
            ("--output", "json".to_owned()),
        ];
        let values = values.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let flags = [("--spawned", *spawned), ("--queue", *queue), ("--wait", true)];
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name.to_owned());
        let command = ["perf", "sched"].map(str::to_owned);
        command.into_iter().chain(values).chain(flags).map(OsString::from).collect()
    }
}

pub(super) fn closed(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}

/// An engine, and the state shared by its schedulers.
pub(super) struct Bench<'a> {
    pub(super) engine: Engine,
    handle: Handle,
    config: AlgorithmConfig,
    pub(super) metrics: Option<&'a Metrics>,
}

impl<'a> Bench<'a> {
    fn new(arguments: &Arguments, metrics: Option<&'a Metrics>) -> Result<Bench<'a>, Failure> {
        // The check has no evictor: otherwise engine and check would own each other.
        let shared = Handle::default();
        let framework = Arc::new(Framework::default_profile_with(&shared));
        let check = FilterCheck::new(Profiles::one(framework));
        let config = Config { commit_check: check.into(), ..Config::default() };
        let engine = match arguments.spawned {
            true => Engine::spawned(config).map_err(closed)?,
            false => Engine::shared(config),
        };
        let evictor: Arc<dyn Evictor> = Arc::new(InMemoryEvictor::new(engine.clone()));
        let evictor = match metrics {
            Some(metrics) => metrics.evictor(evictor),
            None => evictor,
        };
        let handle =
            shared.with_evictor(evictor).with_binder(Arc::new(InMemoryBinder::new(engine.clone())));
        let Arguments { percentage_of_nodes, seed, .. } = *arguments;
        let config = AlgorithmConfig { percentage_of_nodes, seed };
        Ok(Bench { engine, handle, config, metrics })
    }

    fn framework(&self) -> Framework {
        let framework = Framework::default_profile_with(&self.handle);
        metrics::record(framework, self.metrics, "default-scheduler")
    }

    fn decider(&self) -> Algorithm {
        Algorithm::new(self.framework(), self.config.clone(), None)
    }

    fn scheduler(&self) -> Result<Scheduler, Failure> {
        Scheduler::new(self.engine.clone(), Profiles::one(self.decider())).map_err(closed)
    }

    /// Records the engine's state in the metrics.
    pub(super) fn record_engine(&self) -> Result<(), Failure> {
        if let Some(metrics) = self.metrics {
            let cluster = self.engine.reader().map_err(closed)?.snapshot();
            metrics.engine(&self.engine.figures().map_err(closed)?, &cluster);
        }
        Ok(())
    }

    /// A queue that receives events from now on.
    pub(super) fn queue(&self) -> Result<Arc<QueueFront>, Failure> {
        let queue = SchedulingQueue::new(self.framework(), QueueConfig::default());
        let (follower, reader) = (self.engine.follow(), self.engine.reader());
        Ok(Arc::new(QueueFront::new(queue, follower.map_err(closed)?, reader.map_err(closed)?)))
    }

    pub(super) fn scheduling_loop(
        &self,
        queue: &Arc<QueueFront>,
    ) -> Result<SchedulingLoop, Failure> {
        let profiles = Profiles::one(self.decider());
        SchedulingLoop::new(self.engine.clone(), queue.clone(), profiles).map_err(closed)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !arguments.scheduler_perf.is_empty() {
        let Arguments { seed, output, .. } = *arguments;
        let [schedulers] = arguments.schedulers[..] else {
            let why = "--scheduler-perf runs with one number of schedulers: give --schedulers one";
            return Err(Failure::Usage(why.to_owned()));
        };
        let place = Place::InProcess { schedulers, seed };
        return workload_files::run(
            &arguments.scheduler_perf,
            &arguments.selection,
            &place,
            output,
        );
    }
    let (init, pods) = (arguments.init(), arguments.pods.unwrap_or(1));
    for (name, count) in [("nodes", arguments.nodes), ("init", init), ("pods", pods)] {
        if count > MOST || (count == 0 && name != "init") {
            let least = usize::from(name != "init");
            return Err(Failure::Usage(format!("--{name} must be {least} to {MOST}")));
        }
    }
    if arguments.check && arguments.workload.contains(&Shape::Gang) {
        let why = "--check does not support the workload gang: remove one of them";
        return Err(Failure::Usage(why.to_owned()));
    }
    if arguments.queue && arguments.workload.iter().any(|shape| !shape.fits()) {
        let why =
            "--queue does not retry pods that fit nowhere: remove it, or the workloads nofit-*";
        return Err(Failure::Usage(why.to_owned()));
    }
    let sink = arguments.metrics.open()?;
    let mut results = Vec::new();
    let mut differ = 0;
    for shape in &arguments.workload {
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
                    processes.push(processes::measure(count, &arguments.of_process(*shape))?);
                    continue;
                };
                let (result, differences) =
                    measure((*shape, *schedulers), arguments, metrics::of(&sink))?;
                for difference in differences.iter().take(5) {
                    eprintln!("{}: {difference}", shape.name());
                }
                differ += differences.len();
                engines[turn].push(result);
            }
        }
        for result in compare(engines, processes) {
            if arguments.output == Output::Json {
                print(&result.to_string())?;
            }
            results.push(result);
        }
    }
    metrics::write(sink)?;
    if arguments.output == Output::Table {
        print(&table(&results))?;
        let ratios = ratios(&results);
        if !ratios.is_empty() {
            print(&format!("\n{ratios}"))?;
        }
    }
    Ok(if differ == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Submits an event and waits until it is applied.
pub(super) fn submit(engine: &Engine, event: Event) -> Result<(), Failure> {
    let outcome = engine.submit(event).map_err(closed)?.wait().map_err(closed)?;
    outcome.map(drop).map_err(closed)
}

/// A cluster before the measurement.
struct Start<'a> {
    bench: Bench<'a>,
    /// The scheduler that placed the pods that are there.
    first: Scheduler,
    /// The pods to measure, in the order of their cycles.
    measured: Vec<Arc<Pod>>,
    pods: Pods,
}

impl<'a> Start<'a> {
    fn new(
        shape: Shape,
        arguments: &Arguments,
        metrics: Option<&'a Metrics>,
    ) -> Result<Start<'a>, Failure> {
        let bench = Bench::new(arguments, metrics)?;
        let (engine, nodes) = (&bench.engine, arguments.nodes);
        let mut pods = Pods::new(arguments.seed, arguments.gang);
        for n in 0..nodes {
            submit(engine, Event::add_node(make_node(&format!("node-{n:07}"), n)))?;
        }
        let mut first = bench.scheduler()?;
        nofit::fill(engine, shape, nodes, &mut pods)?;
        for _ in (0..arguments.init()).filter(|_| shape != Shape::Preemption) {
            // If the cluster is too small, the remaining pods are left out.
            let _ = first.schedule(&pods.make(Shape::Basic), Timestamp(0));
        }
        nofit::taint(engine, shape, nodes)?;
        let count = arguments.pods(shape);
        let measured = if shape.fits() {
            (0..count).map(|_| pods.make(shape)).collect()
        } else {
            let some: Vec<_> = (0..count.min(nofit::RETRIED)).map(|_| pods.make(shape)).collect();
            some.iter().cycle().take(count).cloned().collect()
        };
        for group in pods.groups() {
            submit(engine, Event::PutObject(group.clone().into()))?;
        }
        Ok(Start { bench, first, measured, pods })
    }
}

fn measure(
    (shape, schedulers): (Shape, u16),
    arguments: &Arguments,
    metrics: Option<&Metrics>,
) -> Result<(Value, Vec<String>), Failure> {
    let Start { bench, first, measured: pods_to_place, mut pods } =
        Start::new(shape, arguments, metrics)?;
    if arguments.queue {
        // Otherwise it would count as one more scheduler of the engine.
        drop(first);
        let of = (shape, schedulers);
        return Ok((queued::measure(&bench, of, arguments, pods_to_place)?, Vec::new()));
    }
    let count = pods_to_place.len();
    let gang = (shape == Shape::Gang).then_some(arguments.gang as usize);
    let batch = usize::from(arguments.batch);
    let supply = Supply::new(&pods_to_place);
    let others: Vec<Scheduler> =
        (1..schedulers).map(|_| bench.scheduler()).collect::<Result<_, _>>()?;
    let schedulers = usize::from(schedulers);
    let work_of = |index| Work {
        gang,
        batch,
        by_nodes: arguments.check && schedulers == 1 && batch == 1,
        keep: arguments.check,
        changes: Changes::new(
            &bench.engine,
            shape,
            arguments.nodes,
            (index, schedulers),
            &mut pods,
        ),
    };
    let mut works: Vec<Work> = (0..schedulers).map(work_of).collect();
    let before = arguments.check.then(|| Before::of(&bench.engine)).transpose()?;
    let barrier = Barrier::new(schedulers);
    let mut workers: Vec<Scheduler> = std::iter::once(first).chain(others).collect();
    if arguments.wait {
        processes::wait()?;
    }
    let measured: Vec<Result<Measured, Failure>> = match &mut workers[..] {
        [one] => vec![work(one, &supply, &mut works[0])],
        all => std::thread::scope(|scope| {
            let (barrier, supply) = (&barrier, &supply);
            let run = |(scheduler, of)| {
                scope.spawn(move || {
                    barrier.wait();
                    work(scheduler, supply, of)
                })
            };
            let threads: Vec<_> = all.iter_mut().zip(&mut works).map(run).collect();
            let broke = || Failure::Panicked("a scheduler thread");
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(broke()))).collect()
        }),
    };
    let mut all: Option<Measured> = None;
    for one in measured {
        let one = one?;
        match &mut all {
            None => all = Some(one),
            Some(all) => {
                let _ = all.cycles.add(&one.cycles);
                all.failed += one.failed;
                all.conflicts += one.conflicts;
                all.spent = all.spent.max(one.spent);
                all.differences.extend(one.differences);
                all.outcomes.extend(one.outcomes);
            }
        }
    }
    let mut all = all.ok_or_else(|| closed("no scheduler was started"))?;
    if let Some(before) = before {
        if schedulers == 1 && batch > 1 {
            let Start { bench: other, first, mut pods, .. } = Start::new(shape, arguments, None)?;
            let engine = other.engine;
            let changes = Changes::new(&engine, shape, arguments.nodes, (0, 1), &mut pods);
            let mut reference = Reference { engine, scheduler: first, changes };
            let found = check::one_by_one(&mut reference, batch, &all.outcomes, &bench.engine)?;
            all.differences.extend(found);
        }
        let report = Report {
            pods: &pods_to_place,
            outcomes: &all.outcomes,
            conflicts: all.conflicts,
            alone: shape.fits() && shape != Shape::Preemption,
        };
        all.differences.extend(check::state(&bench.engine, &before, &report)?);
    }
    bench.record_engine()?;
    if let Some(metrics) = metrics {
        for (number, worker) in workers.iter().enumerate() {
            metrics.cycles(&number.to_string(), worker.figures());
        }
    }
    let overcommitted = overcommitted(&bench.engine)?;
    let per_second = (count as f64 / all.spent.as_secs_f64().max(1e-9)).round();
    let mut result = json!({
        "workload": shape.name(),
        "nodes": arguments.nodes,
        "init": arguments.init(),
        "pods": count,
        "schedulers": schedulers,
        "spawned": arguments.spawned,
        "percentage_of_nodes": arguments.percentage_of_nodes,
        "failed": all.failed,
        "cycles_per_second": per_second,
        "cycle_us": cycle_us(&all.cycles),
        "conflicts": all.conflicts,
        "overcommitted": overcommitted,
    });
    if shape == Shape::Gang {
        result["gang"] = json!(arguments.gang);
    }
    if arguments.check {
        result["checked"] = json!(count);
        result["different"] = json!(all.differences.len());
    }
    Ok((result, all.differences))
}

/// Whether more is requested on the node than allocatable.
pub(super) fn is_overcommitted(node: &portolan::NodeInfo<'_>) -> bool {
    let (has, takes) = (node.allocatable(), node.requested());
    takes.cpu > has.cpu
        || takes.memory > has.memory
        || node.pod_count() as i64 > node.allowed_pods()
}

/// The number of nodes on which more is requested than allocatable.
pub(super) fn overcommitted(engine: &Engine) -> Result<usize, Failure> {
    let snapshot = engine.reader().map_err(closed)?.snapshot();
    Ok(snapshot.nodes().filter(is_overcommitted).count())
}
