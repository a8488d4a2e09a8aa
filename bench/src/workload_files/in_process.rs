//! A target in this process: an engine with its queue, scheduling threads, and the rules of an API server for objects
//! that scheduling depends on. There are no requests, so the scheduler alone is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portolan::model::{Pod, Timestamp};
use portolan::plugin::Handle;
use portolan::scheduler::queue::PopError;
use portolan::scheduler::{BindingLoop, InMemoryVolumeBinder};
use portolan::{AlgorithmConfig, Placement, Schedulers, SchedulingLoop};
use portolan_k8s::config::{Configuration, Registry};
use serde_json::Value;

use portolan_cli::CommandError;
use portolan_cli::live;

use super::board::Board;
use super::cluster::{Cluster, Writer};
use super::steps::Stage;
use super::target::{Prepared, Refused, Target, Update};

/// The longest time for which a thread waits before it checks whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// An engine with running scheduling threads, which end when it is dropped.
pub(super) struct InProcess {
    cluster: Arc<Cluster>,
    schedulers: Schedulers,
    /// Tells the threads to end. Relaxed: it guards no data, and each thread reads it again after `TICK` at the latest.
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl InProcess {
    /// Starts a number of scheduling threads with a configuration, or with the default profile.
    pub(super) fn start(
        configuration: Option<&str>,
        threads: u16,
        seed: u64,
    ) -> Result<InProcess, CommandError> {
        let cluster = Arc::new(Cluster::default());
        let (binds, evicts) = (cluster.clone(), cluster.clone());
        let mut builder = Schedulers::builder()
            .binder(move |engine| Writer { cluster: binds, engine: engine.clone() })
            .volume_binder(|engine| InMemoryVolumeBinder::from(engine))
            .evictor(move |engine| Writer { cluster: evicts, engine: engine.clone() });
        let mut algorithm = AlgorithmConfig { seed, ..AlgorithmConfig::default() };
        if let Some(text) = configuration {
            let registry = Arc::new(Registry::in_tree());
            let read = Configuration::read(text, &registry, &Handle::default()).map_err(live)?;
            if !read.extenders.is_empty() {
                return Err(CommandError::Usage("extenders are not called in process".to_owned()));
            }
            algorithm.percentage_of_nodes = read.percentage_of_nodes;
            builder = builder.queue(read.queue);
            for profile in read.profiles {
                let (text, registry) = (text.to_owned(), registry.clone());
                let name = profile.scheduler_name;
                let wanted = name.clone();
                builder = builder.profile(name, move |handle| {
                    use portolan::FrameworkError;
                    let read = Configuration::read(&text, &registry, handle)
                        .map_err(|error| FrameworkError::Other(error.to_string()))?;
                    let mut profiles = read.profiles.into_iter();
                    let found = profiles.find(|profile| profile.scheduler_name == wanted);
                    let found = found.ok_or(FrameworkError::NotFound(wanted))?;
                    Ok(found.framework.with_percentage_of_nodes(found.percentage_of_nodes))
                });
            }
        }
        let schedulers = builder.algorithm(algorithm).build().map_err(live)?;
        let stops = Arc::<AtomicBool>::default();
        let mut target = InProcess { cluster, schedulers, stops, threads: Vec::new() };
        for _ in 0..threads {
            target.spawn()?;
        }
        Ok(target)
    }

    /// Starts a scheduling thread, and one that binds the pods that wait for a permit.
    fn spawn(&mut self) -> Result<(), CommandError> {
        let (waiting, received) = mpsc::channel();
        let bound = Arc::new(Waiting { cluster: self.cluster.clone() });
        let mut binding = self.schedulers.binding_loop().map_err(live)?;
        self.thread("bind", move || {
            received.iter().for_each(|placement| bound.bind(&mut binding, &placement))
        })?;
        let worker = Worker {
            scheduling: self.schedulers.scheduling_loop().map_err(live)?,
            waiting,
            cluster: self.cluster.clone(),
            stops: self.stops.clone(),
        };
        self.thread("schedule", move || worker.run())
    }

    fn thread(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), CommandError> {
        let ends = Ends { cluster: self.cluster.clone(), stops: self.stops.clone() };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _ends = ends;
            work();
        });
        self.threads.push(thread.map_err(|error| CommandError::Threads(error.to_string()))?);
        Ok(())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.schedulers.queue().close();
        // A panic has been reported by the panic hook, and ended the workload.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Reports that a thread has ended, unless it was told to.
struct Ends {
    cluster: Arc<Cluster>,
    stops: Arc<AtomicBool>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.stops.load(Ordering::Relaxed) {
            self.cluster.board.fail("a thread has ended".to_owned());
        }
    }
}

/// A scheduling thread. It binds at once the pods that wait for nothing.
struct Worker {
    scheduling: SchedulingLoop,
    waiting: mpsc::Sender<Placement>,
    cluster: Arc<Cluster>,
    stops: Arc<AtomicBool>,
}

impl Worker {
    fn run(mut self) {
        while !self.stops.load(Ordering::Relaxed) {
            let attempt = match self.scheduling.schedule_one(Some(Instant::now() + TICK), now) {
                Ok(attempt) => attempt,
                Err(PopError::Timeout) => continue,
                Err(_) => return,
            };
            let (placed, failed) = attempt.into_parts();
            for placement in placed {
                if placement.waits {
                    // The receiver lives as long as this thread, unless it has panicked.
                    let _ = self.waiting.send(placement);
                } else if self.scheduling.bind(&placement, now).is_err() {
                    self.cluster.was_tried(&placement.pod);
                }
            }
            for unplaced in failed {
                self.cluster.was_tried(&unplaced.pod);
            }
        }
    }
}

struct Waiting {
    cluster: Arc<Cluster>,
}

impl Waiting {
    fn bind(&self, binding: &mut BindingLoop, placement: &Placement) {
        if binding.bind(placement, now).is_err() {
            self.cluster.was_tried(&placement.pod);
        }
    }
}

impl Cluster {
    fn was_tried(&self, pod: &Pod) {
        self.board.advance(pod.namespace(), &pod.name, Stage::Attempted);
    }
}

fn now() -> Timestamp {
    use std::time::{SystemTime, UNIX_EPOCH};
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

impl Target for InProcess {
    fn board(&self) -> &Board {
        &self.cluster.board
    }

    fn prepare(&self, objects: Vec<Value>) -> Result<Vec<Prepared>, Refused> {
        self.cluster.prepare(objects)
    }

    fn create(&self, object: Prepared) -> Result<(), Refused> {
        self.cluster.create(self.schedulers.engine(), object)
    }

    fn update(&self, object: Value, how: Update) -> Result<(), Refused> {
        self.cluster.update(self.schedulers.engine(), object, how)
    }

    fn delete(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Result<(), Refused> {
        self.cluster.delete(self.schedulers.engine(), kind, (namespace, name), grace)
    }
}
