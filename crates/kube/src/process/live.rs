//! The parts of a scheduler of a cluster, and their threads.
//!
//! ```text
//!            ┌─────────── engine ◀── mirror ◀── watches ──┐
//!            ▼                                            │
//! queue ──▶ scheduling threads ──▶ channel ──▶ binding threads ──▶ API server
//!            └── failures ──▶ status writer, events ──────────────▶   │
//! ```
//!
//! Binding threads block on the API server, so there are as many as bindings in flight. Pods whose claims have to be
//! bound first may wait for minutes, and have threads of their own.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender};
use portolan::framework::{
    AlgorithmConfig, ClusterEvent, Eviction, Evictor, Extender, Framework, FrameworkError,
    Handle as PluginHandle,
};
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};
use portolan::model::{Change, Diff, Name, Pod, Timestamp};
use portolan::plugins::DynamicResources;
use portolan::scheduler::queue::{PopError, QueueFront};
use portolan::scheduler::{
    BindingLoop, BuildError, NewSchedulerError, Placement, Schedulers, SchedulingLoop,
};
use portolan_k8s::config::{ConfigError, Configuration, ExtenderConfig, PluginArgs, Registry};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::api::Api;
use crate::extender::{HttpExtender, HttpExtenderError};
use crate::mirror::{self, Mirror, MirrorError, PodIndex, RawKinds, RawObjects};
use crate::write::{Failure, Fence, WriteOptions, Writes};

/// The settings of a [`LiveScheduler`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveConfig {
    /// The text of a `KubeSchedulerConfiguration`, or `None` for the default profile.
    pub configuration: Option<Arc<str>>,
    /// The threads that make decisions. One is fastest, unless decisions are expensive.
    pub scheduling_threads: NonZeroUsize,
    /// The bindings in flight at once.
    pub bindings: NonZeroUsize,
    /// The pods that wait for their volumes at once. They do not count as bindings in flight.
    pub volume_bindings: NonZeroUsize,
    /// The seed of random choices among nodes of equal scores, or `None` for a random one.
    pub seed: Option<u64>,
    /// What is mirrored and how. The schedulers' names are those of the profiles.
    pub mirror: mirror::Options,
    /// How bindings, conditions and events are written.
    pub writes: WriteOptions,
    /// Collect metrics ([`LiveScheduler::metrics`]).
    pub metrics: bool,
}

impl Default for LiveConfig {
    fn default() -> LiveConfig {
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        LiveConfig {
            configuration: None,
            scheduling_threads: NonZeroUsize::MIN,
            bindings: count(64),
            volume_bindings: count(64),
            seed: None,
            mirror: mirror::Options::new::<Name>([]),
            writes: WriteOptions::default(),
            metrics: true,
        }
    }
}

/// Why a scheduler cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The profiles do not form a scheduler.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An extender cannot be called.
    #[error(transparent)]
    Extender(#[from] HttpExtenderError),
    /// A scheduling thread cannot be created.
    #[error(transparent)]
    Scheduler(#[from] NewSchedulerError),
    /// The mirror cannot start.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// A thread cannot be started.
    #[error("a thread was not started: {0}")]
    Thread(#[from] std::io::Error),
    /// The engine was closed while the scheduler started.
    #[error("the engine is closed")]
    Closed,
}

/// Counts of a scheduler's work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveFigures {
    /// Pods that were placed, and whose binding began or waits for a thread.
    pub placed: u64,
    /// Attempts that found no node or failed.
    pub failed: u64,
    /// Pods that the API server bound.
    pub bound: u64,
    /// Pods that were placed and not bound.
    pub not_bound: u64,
}

/// Counted with relaxed orderings, which pair with nothing: no data depends on a count.
#[derive(Debug, Default)]
struct Counts {
    placed: AtomicU64,
    failed: AtomicU64,
    bound: AtomicU64,
    not_bound: AtomicU64,
}

/// A scheduler of a cluster. It mirrors from the start, and schedules after [`LiveScheduler::begin`].
pub struct LiveScheduler {
    config: LiveConfig,
    schedulers: Arc<Schedulers>,
    mirror: Mirror,
    writes: Writes,
    counts: Arc<Counts>,
    metrics: Arc<Metrics>,
    configuration: Arc<str>,
    /// Tells the threads to end. Relaxed: it guards no data, and each thread reads it again after `TICK` at the latest.
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The longest time for which a thread waits before it looks whether it should stop.
const TICK: Duration = Duration::from_millis(200);

impl LiveScheduler {
    /// Starts the mirror of a cluster. Call it within a tokio runtime. Nothing is written before the fence is open and
    /// [`LiveScheduler::begin`] was called.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(api: Api, fence: Fence, mut config: LiveConfig) -> Result<Self, StartError> {
        let runtime = Handle::try_current().map_err(|_| MirrorError::NoRuntime)?;
        let text: Arc<str> = config.configuration.clone().unwrap_or_else(|| DEFAULT.into());
        let registry = Arc::new(registry());
        let read = Configuration::read(&text, &registry, &PluginHandle::default())?;
        let pods = Arc::new(PodIndex::default());
        let writes =
            Writes::start(&runtime, api.clone(), pods.clone(), fence, config.writes.clone());
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let percentage_of_nodes = read.percentage_of_nodes;
        let metrics = Arc::new(Metrics::new());
        let recording = config.metrics.then(|| metrics.clone());
        let has_key =
            |of: &ExtenderConfig| of.tls.as_ref().is_some_and(|tls| tls.key_data.is_some());
        let shown = match read.extenders.iter().any(has_key) {
            true => "# not shown, because it contains a private key: use keyFile\n".into(),
            false => text.clone(),
        };
        let (extenders, objects) = extenders(read.extenders, &runtime, &writes)?;
        let (binder, volumes) = (writes.binder(), writes.clone());
        let evictor = Counted(metrics.evictor(Arc::new(writes.evictor())));
        let mut builder = Schedulers::builder()
            .spawned()
            .queue(read.queue)
            .algorithm(AlgorithmConfig { percentage_of_nodes, seed })
            .binder(|_| binder)
            .volume_binder(move |engine| volumes.volume_binder(engine))
            .evictor(|_| evictor)
            .extenders(extenders);
        let names: Arc<[Name]> =
            read.profiles.iter().map(|profile| profile.scheduler_name.as_str().into()).collect();
        for name in names.iter() {
            let (text, registry, wanted) = (text.clone(), registry.clone(), name.clone());
            let recording = recording.clone();
            let profile = move |handle: &PluginHandle| {
                let framework = framework(&text, &registry, handle, &wanted)?;
                Ok(match recording {
                    Some(to) => framework.with_recorder(to.recorder(&wanted), PLUGINS_ONE_IN),
                    None => framework,
                })
            };
            builder = builder.profile(name.clone(), profile);
        }
        let schedulers = Arc::new(builder.build()?);
        config.mirror.schedulers = names;
        config.mirror.raw = objects;
        let engine = schedulers.engine().clone();
        let mirror = Mirror::start(api, engine, pods, config.mirror.clone())?;
        let mut scheduler = LiveScheduler {
            config,
            schedulers,
            mirror,
            writes,
            counts: Arc::default(),
            metrics,
            configuration: shown,
            stops: Arc::default(),
            threads: Vec::new(),
        };
        scheduler.tend()?;
        Ok(scheduler)
    }

    /// The mirror of the cluster.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The engine, its queue and its profiles.
    #[must_use]
    pub fn schedulers(&self) -> &Arc<Schedulers> {
        &self.schedulers
    }

    /// The writers of bindings, conditions and events.
    #[must_use]
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// The metrics of kube-scheduler and of the engine. The caller sets the gauges that are derived from the state
    /// ([`Metrics::engine`], [`Metrics::queue`]).
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The configuration as it was given, or a comment in its place if it contains a private key (`keyData`).
    #[must_use]
    pub fn configuration(&self) -> &Arc<str> {
        &self.configuration
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn figures(&self) -> LiveFigures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { placed, failed, bound, not_bound } = &*self.counts;
        LiveFigures {
            placed: of(placed),
            failed: of(failed),
            bound: of(bound),
            not_bound: of(not_bound),
        }
    }

    /// Starts to schedule. Wait for [`Mirror::synced`] first, and after an election for [`Mirror::refresh`]: a decision
    /// on a part of the cluster may be wrong.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or the engine is closed.
    pub fn begin(&mut self) -> Result<(), StartError> {
        let (quick, placed) = crossbeam_channel::unbounded();
        let (slow, with_volumes) = crossbeam_channel::unbounded();
        for _ in 0..self.config.bindings.get() {
            self.binding_thread("bind", placed.clone())?;
        }
        for _ in 0..self.config.volume_bindings.get() {
            self.binding_thread("bind-volumes", with_volumes.clone())?;
        }
        for _ in 0..self.config.scheduling_threads.get() {
            let scheduling = self.schedulers.scheduling_loop()?;
            let worker = Worker {
                scheduling,
                quick: quick.clone(),
                slow: slow.clone(),
                writes: self.writes.clone(),
                counts: self.counts.clone(),
                stops: self.stops.clone(),
            };
            self.threads.push(spawn("schedule", move || worker.run())?);
        }
        Ok(())
    }

    fn binding_thread(
        &mut self,
        name: &str,
        placed: Receiver<Placement>,
    ) -> Result<(), StartError> {
        let binding = self.schedulers.binding_loop().map_err(|_| StartError::Closed)?;
        let binder = Binding {
            binding,
            placed,
            queue: self.schedulers.queue().clone(),
            writes: self.writes.clone(),
            counts: self.counts.clone(),
        };
        self.threads.push(spawn(name, move || binder.run())?);
        Ok(())
    }

    /// Lets the queue take events in while nobody pops pods, as in a standby, so that they do not pile up.
    fn tend(&mut self) -> Result<(), StartError> {
        let (queue, stops) = (self.schedulers.queue().clone(), self.stops.clone());
        self.threads.push(spawn("tend", move || {
            while !stops.load(Ordering::Relaxed) {
                queue.tend(now);
                thread::sleep(TICK);
            }
        })?);
        Ok(())
    }

    /// Stops scheduling, finishes the bindings in flight, and stops the mirror. Bindings that take longer than `grace`,
    /// for instance because a volume is being provisioned, are given up: the fence is closed.
    pub async fn stop(mut self, grace: Duration) {
        self.stops.store(true, Ordering::Relaxed);
        self.schedulers.queue().close();
        let threads = std::mem::take(&mut self.threads);
        let mut joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // A panic has been reported by the panic hook.
                let _ = thread.join();
            }
        });
        if timeout(grace, &mut joined).await.is_err() {
            self.writes.fence().close();
            // The only error is a runtime that shuts down.
            let _ = joined.await;
        }
        self.mirror.stop().await;
        self.schedulers.engine().close();
    }
}

/// Ends the threads without waiting for them; [`LiveScheduler::stop`] waits.
impl Drop for LiveScheduler {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.schedulers.queue().close();
    }
}

impl fmt::Debug for LiveScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveScheduler")
            .field("figures", &self.figures())
            .field("mirror", &self.mirror)
            .finish_non_exhaustive()
    }
}

/// An evictor that counts the victims.
struct Counted(Arc<dyn Evictor>);

impl Evictor for Counted {
    fn evict(&self, eviction: Eviction) {
        self.0.evict(eviction);
    }
}

/// A scheduling thread.
struct Worker {
    scheduling: SchedulingLoop,
    quick: Sender<Placement>,
    slow: Sender<Placement>,
    writes: Writes,
    counts: Arc<Counts>,
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
            self.counts.placed.fetch_add(placed.len() as u64, Ordering::Relaxed);
            self.counts.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
            for placement in placed {
                let has_claims = placement.pod.template.claims().next().is_some();
                let channel = if has_claims || placement.waits { &self.slow } else { &self.quick };
                // The receivers live as long as this thread, unless theirs have panicked.
                let _ = channel.send(placement);
            }
            for unplaced in failed {
                if let Some(failure) = Failure::of_cycle(&unplaced.error) {
                    self.writes.status().report_failure(&unplaced.pod, failure);
                }
            }
        }
    }
}

/// A binding thread.
struct Binding {
    binding: BindingLoop,
    placed: Receiver<Placement>,
    queue: Arc<QueueFront>,
    writes: Writes,
    counts: Arc<Counts>,
}

impl Binding {
    fn run(mut self) {
        // Ends when the scheduling threads have ended and all that they placed is bound.
        while let Ok(placement) = self.placed.recv() {
            match self.binding.bind(&placement, now) {
                Ok(()) => drop(self.counts.bound.fetch_add(1, Ordering::Relaxed)),
                Err((error, _)) => {
                    self.counts.not_bound.fetch_add(1, Ordering::Relaxed);
                    if let Some(failure) = Failure::of_bind(&error) {
                        self.left(&placement.pod);
                        self.writes.status().report_failure(&placement.pod, failure);
                    }
                }
            }
            self.binding.release();
        }
    }

    /// Lets other pods try the node of a pod that was not bound to it (schedule_one.go `handleBindingCycleError`). The
    /// engine reports that a forgotten pod has left, but not that another scheduler has bound an assumed pod elsewhere.
    fn left(&self, pod: &Arc<Pod>) {
        let uid = pod.uid.clone();
        let change = Change::Pod(Diff { old: Some(pod.clone()), new: None });
        self.queue.with(|queue, version| {
            for event in ClusterEvent::of(&change) {
                let uid = uid.clone();
                let is_other = Box::new(move |pod: &Pod| pod.uid != uid);
                queue.move_all(&event, Some(is_other), version, now());
            }
        });
    }
}

/// The configuration that kube-scheduler has without one.
const DEFAULT: &str =
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

/// Returns the registry of a cluster's schedulers: the in-tree plugins, with kube-scheduler's default profile.
/// DynamicResources comes before DefaultPreemption. GangScheduling is behind a feature gate that is off there, and its
/// PodGroups are not mirrored; PodLauncher is Gödel's.
fn registry() -> Registry {
    let mut registry = Registry::in_tree();
    let make = |_: PluginArgs<'_>, _: &PluginHandle| {
        Ok(Box::new(DynamicResources) as Box<dyn portolan::framework::Plugin>)
    };
    // The name is free: the in-tree registry only leaves it out.
    if registry.register(NAME, make).is_ok() {
        let mut profile = registry.default_profile().to_vec();
        profile.retain(|(name, _)| name != "GangScheduling" && name != "PodLauncher");
        let before = profile.iter().position(|(name, _)| name == "DefaultPreemption");
        profile.insert(before.unwrap_or(profile.len()), (NAME.to_owned(), 0));
        registry.set_default_profile(profile);
    }
    registry
}

const NAME: &str = "DynamicResources";

/// Creates the extenders, and the store of the objects that they are sent.
#[expect(clippy::type_complexity, reason = "used once")]
fn extenders(
    configs: Vec<ExtenderConfig>,
    runtime: &Handle,
    writes: &Writes,
) -> Result<(Vec<Arc<dyn Extender>>, Option<Arc<RawObjects>>), HttpExtenderError> {
    if configs.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut kinds = RawKinds::default();
    for config in configs.iter().filter(|config| !config.node_cache_capable) {
        kinds.nodes = true;
        kinds.placed_pods |= !config.preempt_verb.is_empty();
    }
    let objects = Arc::new(RawObjects::new(kinds));
    let extenders = configs.into_iter().map(|config| {
        let made = HttpExtender::new(config, runtime, objects.clone(), writes.binder());
        made.map(|made| Arc::new(made) as Arc<dyn Extender>)
    });
    Ok((extenders.collect::<Result<_, _>>()?, Some(objects)))
}

/// Reads one profile with the handle of the scheduler.
fn framework(
    text: &str,
    registry: &Registry,
    handle: &PluginHandle,
    name: &Name,
) -> Result<Framework, FrameworkError> {
    let read = Configuration::read(text, registry, handle);
    let read = read.map_err(|error| FrameworkError::Other(error.to_string()))?;
    let mut profiles = read.profiles.into_iter();
    let found = profiles.find(|profile| *profile.scheduler_name == **name);
    let missing = || FrameworkError::NotFound(name.to_string());
    found.map(|profile| profile.framework).ok_or_else(missing)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    Ok(thread::Builder::new().name(name.to_owned()).spawn(work)?)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
