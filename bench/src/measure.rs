//! One measurement of `sched`: a new cluster, its schedulers, and their figures.

use std::sync::{Arc, Barrier};

use portolan::cache::{Config, Engine, Event};
use portolan::metrics::Metrics;
use portolan::model::{Pod, Timestamp};
use portolan::plugin::Handle;
use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{FilterCheck, InMemoryBinder, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Evictor, Framework, Profiles, Scheduler, SchedulingLoop,
};
use serde_json::{Value, json};

use portolan_cli::CommandError;
use portolan_cli::closed;
use portolan_cli::record;

use super::cache::make_node;
use super::check::{self, Before, Comparison, Reference, Report};
use super::cycles::{Measured, Outcome, Supply, Work, kept, work};
use super::nofit::Changes;
use super::results::cycle_us;
use super::sched::Arguments;
use super::workloads::{Pods, Shape};
use super::{nofit, processes, queued};

/// An engine, and the state shared by its schedulers.
pub(super) struct Bench<'a> {
    pub(super) engine: Engine,
    handle: Handle,
    config: AlgorithmConfig,
    pub(super) metrics: Option<&'a Metrics>,
}

impl<'a> Bench<'a> {
    fn new(arguments: &Arguments, metrics: Option<&'a Metrics>) -> Result<Bench<'a>, CommandError> {
        // The check has no evictor: otherwise engine and check would own each other.
        let shared = Handle::default();
        let framework = Arc::new(Framework::default_profile_with(&shared));
        let check = FilterCheck::new(Profiles::one(framework));
        let config = Config { commit_check: check.into(), ..Config::default() };
        let engine = Engine::shared(config);
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
        record(framework, self.metrics, "default-scheduler")
    }

    fn decider(&self) -> Algorithm {
        Algorithm::new(self.framework(), self.config.clone(), None)
    }

    fn scheduler(&self) -> Result<Scheduler, CommandError> {
        Scheduler::new(self.engine.clone(), Profiles::one(self.decider())).map_err(closed)
    }

    /// Records the engine's state in the metrics.
    pub(super) fn record_engine(&self) -> Result<(), CommandError> {
        if let Some(metrics) = self.metrics {
            let cluster = self.engine.reader().map_err(closed)?.snapshot();
            metrics.engine(&self.engine.figures().map_err(closed)?, &cluster);
        }
        Ok(())
    }

    /// A queue that receives events from now on.
    pub(super) fn queue(&self) -> Result<Arc<QueueFront>, CommandError> {
        let queue = SchedulingQueue::new(self.framework(), QueueConfig::default());
        let (follower, reader) = (self.engine.follow(), self.engine.reader());
        Ok(Arc::new(QueueFront::new(queue, follower.map_err(closed)?, reader.map_err(closed)?)))
    }

    pub(super) fn scheduling_loop(
        &self,
        queue: &Arc<QueueFront>,
    ) -> Result<SchedulingLoop, CommandError> {
        let profiles = Profiles::one(self.decider());
        SchedulingLoop::new(self.engine.clone(), queue.clone(), profiles).map_err(closed)
    }
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
    ) -> Result<Start<'a>, CommandError> {
        let bench = Bench::new(arguments, metrics)?;
        let (engine, nodes) = (&bench.engine, arguments.nodes);
        let mut pods = Pods::new(arguments.seed, arguments.gang());
        for n in 0..nodes {
            submit(engine, Event::add_node(make_node(&format!("node-{n:07}"), n)))?;
        }
        let mut first = bench.scheduler()?;
        nofit::fill(engine, shape, nodes, &mut pods)?;
        let init = if shape == Shape::Preemption { 0 } else { arguments.init() };
        for placed in 0..init {
            let is_placed = kept(first.schedule(&pods.make(Shape::Basic), Timestamp(0))).is_ok();
            // Where the measured pods fit nowhere, these may not fit either.
            if !is_placed && shape.fits() {
                return Err(CommandError::Usage(format!(
                    "--init {init}: only {placed} of these pods fit on {nodes} nodes"
                )));
            }
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

/// Measures a shape once, on a new cluster. Returns the result, and the differences that `--check` has found.
pub(super) fn measure(
    (shape, schedulers): (Shape, u16),
    arguments: &Arguments,
    metrics: Option<&Metrics>,
) -> Result<(Value, Vec<String>), CommandError> {
    let Start { bench, first, measured: pods, pods: mut source } =
        Start::new(shape, arguments, metrics)?;
    if arguments.queue {
        // Otherwise it would count as one more scheduler of the engine.
        drop(first);
        let result = queued::measure(&bench, (shape, schedulers), arguments, pods)?;
        return Ok((result, Vec::new()));
    }
    let others: Result<Vec<Scheduler>, CommandError> =
        (1..schedulers).map(|_| bench.scheduler()).collect();
    let mut workers = vec![first];
    workers.extend(others?);
    let compared = arguments.check.then(|| Comparison::of(workers.len(), arguments.batch));
    let mut tasks = tasks(workers.len(), (shape, compared), arguments, (&bench, &mut source));
    let before = arguments.check.then(|| Before::of(&bench.engine)).transpose()?;
    if arguments.wait {
        processes::wait()?;
    }
    let mut all = place(&mut workers, &mut tasks, &Supply::new(&pods))?;
    if let Some(before) = before {
        if compared == Some(Comparison::OneByOne) {
            all.differences.extend(one_by_one(shape, arguments, (&bench.engine, &all.outcomes))?);
        }
        let report = Report {
            pods: &pods,
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
    let per_second = (pods.len() as f64 / all.spent.as_secs_f64().max(1e-9)).round();
    let mut result = json!({
        "workload": shape.name(),
        "nodes": arguments.nodes,
        "init": arguments.init(),
        "pods": pods.len(),
        "schedulers": schedulers,
        "batch": arguments.batch,
        "seed": arguments.seed,
        "percentage_of_nodes": arguments.percentage_of_nodes,
        "failed": all.failed,
        "cycles_per_second": per_second,
        "cycle_us": cycle_us(&all.cycles),
        "conflicts": all.conflicts,
        "overcommitted": overcommitted(&bench.engine)?,
    });
    if shape == Shape::Gang {
        result["gang"] = json!(arguments.gang());
    }
    if let Some(compared) = compared {
        result["checked"] = json!(pods.len());
        result["compared"] = json!(compared.name());
        result["different"] = json!(all.differences.len());
    }
    Ok((result, all.differences))
}

/// The task of each scheduler.
fn tasks(
    schedulers: usize,
    (shape, compared): (Shape, Option<Comparison>),
    arguments: &Arguments,
    (bench, source): (&Bench<'_>, &mut Pods),
) -> Vec<Work> {
    let work_of = |index| Work {
        gang: (shape == Shape::Gang).then_some(arguments.gang() as usize),
        batch: arguments.batch.into(),
        by_nodes: compared == Some(Comparison::NodeByNode),
        keep: arguments.check,
        changes: Changes::new(&bench.engine, shape, arguments.nodes, (index, schedulers), source),
    };
    (0..schedulers).map(work_of).collect()
}

/// Places the pods with all schedulers at once, each on a thread of its own; a single one runs on this thread.
fn place(
    workers: &mut [Scheduler],
    tasks: &mut [Work],
    supply: &Supply<'_>,
) -> Result<Measured, CommandError> {
    let barrier = Barrier::new(workers.len());
    let measured: Vec<Result<Measured, CommandError>> = match (workers, tasks) {
        ([one], [of]) => vec![work(one, supply, of)],
        (workers, tasks) => std::thread::scope(|scope| {
            let barrier = &barrier;
            let run = |(scheduler, of)| {
                scope.spawn(move || {
                    barrier.wait();
                    work(scheduler, supply, of)
                })
            };
            let threads: Vec<_> = workers.iter_mut().zip(tasks).map(run).collect();
            let broke = || CommandError::Panicked("a scheduler thread");
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(broke()))).collect()
        }),
    };
    let mut measured = measured.into_iter();
    let mut all = measured.next().ok_or_else(|| closed("no scheduler was started"))??;
    for one in measured {
        all.add(one?);
    }
    Ok(all)
}

/// Compares the outcomes of batches on an engine with those of single pods on another one.
fn one_by_one(
    shape: Shape,
    arguments: &Arguments,
    (engine, outcomes): (&Engine, &[Outcome]),
) -> Result<Vec<String>, CommandError> {
    let Start { bench, first: scheduler, mut pods, .. } = Start::new(shape, arguments, None)?;
    let other = bench.engine;
    let changes = Changes::new(&other, shape, arguments.nodes, (0, 1), &mut pods);
    let mut reference = Reference { engine: other, scheduler, changes };
    check::one_by_one(&mut reference, arguments.batch.into(), outcomes, engine)
}

/// Whether more is requested on the node than allocatable.
pub(super) fn is_overcommitted(node: &portolan::cache::NodeInfo<'_>) -> bool {
    let (has, takes) = (node.allocatable(), node.requested());
    takes.cpu > has.cpu
        || takes.memory > has.memory
        || node.pod_count() as i64 > node.allowed_pods()
}

/// The number of nodes on which more is requested than allocatable.
pub(super) fn overcommitted(engine: &Engine) -> Result<usize, CommandError> {
    let snapshot = engine.reader().map_err(closed)?.snapshot();
    Ok(snapshot.nodes().filter(is_overcommitted).count())
}

/// Submits an event and waits until it is applied.
pub(super) fn submit(engine: &Engine, event: Event) -> Result<(), CommandError> {
    let refused =
        |error| CommandError::Refused { object: "an object of the benchmark".to_owned(), error };
    portolan_cli::event(engine, event)?.map(drop).map_err(refused)
}
