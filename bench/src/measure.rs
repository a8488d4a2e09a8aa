//! One measurement of `sched`: a new cluster, its schedulers, and their figures.

use std::sync::{Arc, Barrier};

use portolan::cache::{Config, Engine, Event, NodeInfo};
use portolan::model::{Pod, Timestamp};
use portolan::plugin::Handle;
use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{FilterCheck, InMemoryBinder, InMemoryEvictor};
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler, SchedulingLoop};
use serde_json::{Value, json};

use portolan_cli::CommandError;
use portolan_cli::closed;

use super::cache::make_node;
use super::cycles::{Measured, Supply, Work, work};
use super::nofit::Changes;
use super::results::cycle_us;
use super::sched::Arguments;
use super::workloads::{GANG, Pods, Shape};
use super::{nofit, processes, queued};

/// An engine, and the state shared by its schedulers.
pub(super) struct Bench {
    pub(super) engine: Engine,
    handle: Handle,
    config: AlgorithmConfig,
}

impl Bench {
    fn new(arguments: &Arguments) -> Bench {
        // The check has no evictor: otherwise engine and check would own each other.
        let shared = Handle::default();
        let framework = Arc::new(Framework::default_profile_with(&shared));
        let check = FilterCheck::new(Profiles::one(framework));
        let config = Config { commit_check: check.into(), ..Config::default() };
        let engine = Engine::shared(config);
        let handle = shared
            .with_evictor(Arc::new(InMemoryEvictor::new(engine.clone())))
            .with_binder(Arc::new(InMemoryBinder::new(engine.clone())));
        let Arguments { percentage_of_nodes, seed, .. } = *arguments;
        let config = AlgorithmConfig { percentage_of_nodes, seed };
        Bench { engine, handle, config }
    }

    fn framework(&self) -> Framework {
        Framework::default_profile_with(&self.handle)
    }

    fn decider(&self) -> Algorithm {
        Algorithm::new(self.framework(), self.config.clone(), None)
    }

    fn scheduler(&self) -> Result<Scheduler, CommandError> {
        Scheduler::new(self.engine.clone(), Profiles::one(self.decider())).map_err(closed)
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
struct Start {
    bench: Bench,
    /// The scheduler that placed the pods that are there.
    first: Scheduler,
    /// The pods to measure, in the order of their cycles.
    measured: Vec<Arc<Pod>>,
    pods: Pods,
}

impl Start {
    fn new(shape: Shape, arguments: &Arguments) -> Result<Start, CommandError> {
        let bench = Bench::new(arguments);
        let (engine, nodes) = (&bench.engine, arguments.nodes);
        let mut pods = Pods::new(arguments.seed);
        for n in 0..nodes {
            submit(engine, Event::add_node(make_node(&format!("node-{n:07}"), n)))?;
        }
        let mut first = bench.scheduler()?;
        nofit::fill(engine, shape, nodes, &mut pods)?;
        let init = if shape == Shape::Preemption { 0 } else { arguments.init() };
        for placed in 0..init {
            match first.schedule(&pods.make(Shape::Basic), Timestamp(0)) {
                Ok(placement) => drop(placement.keep_assumed()),
                // Where the measured pods fit nowhere, these may not fit either.
                Err(_) if !shape.fits() => {}
                Err(_) => {
                    return Err(CommandError::Usage(format!(
                        "--init {init}: only {placed} of these pods fit on {nodes} nodes"
                    )));
                }
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

/// Measures a shape once, on a new cluster.
pub(super) fn measure(
    (shape, schedulers): (Shape, u16),
    arguments: &Arguments,
) -> Result<Value, CommandError> {
    let Start { bench, first, measured: pods, pods: mut source } = Start::new(shape, arguments)?;
    if arguments.queue {
        // Otherwise it would count as one more scheduler of the engine.
        drop(first);
        return queued::measure(&bench, (shape, schedulers), arguments, pods);
    }
    let others: Result<Vec<Scheduler>, CommandError> =
        (1..schedulers).map(|_| bench.scheduler()).collect();
    let mut workers = vec![first];
    workers.extend(others?);
    let count = workers.len();
    let mut tasks: Vec<Work> = (0..count)
        .map(|index| Work {
            gang: (shape == Shape::Gang).then_some(GANG as usize),
            batch: arguments.batch.into(),
            changes: Changes::new(
                &bench.engine,
                shape,
                arguments.nodes,
                (index, count),
                &mut source,
            ),
        })
        .collect();
    if arguments.wait {
        processes::wait()?;
    }
    let all = place(&mut workers, &mut tasks, &Supply::new(&pods))?;
    let per_second = (pods.len() as f64 / all.spent.as_secs_f64().max(1e-9)).round();
    Ok(json!({
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
    }))
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

/// The number of nodes on which more is requested than allocatable.
pub(super) fn overcommitted(engine: &Engine) -> Result<usize, CommandError> {
    let snapshot = engine.reader().map_err(closed)?.snapshot();
    let is_overcommitted = |node: &NodeInfo<'_>| {
        let (has, takes) = (node.allocatable(), node.requested());
        takes.cpu > has.cpu
            || takes.memory > has.memory
            || node.pod_count() as i64 > node.allowed_pods()
    };
    Ok(snapshot.nodes().filter(is_overcommitted).count())
}

/// Submits an event and waits until it is applied.
pub(super) fn submit(engine: &Engine, event: Event) -> Result<(), CommandError> {
    let refused =
        |error| CommandError::Refused { object: "an object of the benchmark".to_owned(), error };
    portolan_cli::event(engine, event)?.map(drop).map_err(refused)
}
