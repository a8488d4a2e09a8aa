//! The parts of a scheduler of a cluster, and their threads.
//!
//! ```text
//!            ┌─────────── engine ◀── mirror ◀── watches ──┐
//!            ▼                                            │
//! queue ──▶ scheduling threads ──▶ channel ──▶ binding threads ──▶ API server
//!            └── failures ──▶ status writer, events ──────────────▶   │
//! ```
//!
//! Binding threads block on the API server, so there are as many as bindings in flight. Pods that have claims or wait for
//! a permit may wait for minutes. They have threads of their own, which start when they are needed.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender};
use portolan::framework::{
    AlgorithmConfig, ClusterEvent, Eviction, Evictor, Extender, Handle as PluginHandle, ShardSet,
};
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};
use portolan::model::{Change, Diff, Name, Pod, Timestamp};
use portolan::scheduler::queue::{PopError, QueueFront};
use portolan::scheduler::{
    BindingLoop, BuildError, NewSchedulerError, Placement, Schedulers, SchedulingLoop,
};
use portolan_k8s::config::{ConfigError, Configuration, ExtenderConfig, ProcessSettings};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::Api;
use crate::extender::{HttpExtender, HttpExtenderError};
use crate::mirror::{self, Mirror, MirrorError, PodIndex, RawKinds, RawObjects};
use crate::write::{Failure, Fence, ShardGate, WriteOptions, Writes};

use super::profiles::{DEFAULT, framework, registry, shown};
use super::shards::HandOver;

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
    /// The pods at most that wait at once for a permit or for their volumes. They do not count as bindings in flight.
    /// Each has a thread.
    pub waiting_bindings: NonZeroUsize,
    /// The seed of random choices among nodes of equal scores, or `None` for a random one.
    pub seed: Option<u64>,
    /// What is mirrored and how. The schedulers' names are those of the profiles.
    pub mirror: mirror::Options,
    /// How bindings, conditions and events are written.
    pub writes: WriteOptions,
    /// Collect metrics ([`LiveScheduler::metrics`]).
    pub metrics: bool,
    /// Schedule only for the shards in this set, of which a [`ShardHolder`](super::ShardHolder) decides. It must be empty
    /// at first.
    pub shards: Option<ShardSet>,
}

impl Default for LiveConfig {
    fn default() -> LiveConfig {
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        LiveConfig {
            configuration: None,
            scheduling_threads: NonZeroUsize::MIN,
            bindings: count(64),
            waiting_bindings: count(1_024),
            seed: None,
            mirror: mirror::Options::new::<Name>([]),
            writes: WriteOptions::default(),
            metrics: true,
            shards: None,
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
    /// Pods that were placed on a node of another replica's shard and handed over.
    pub handed_over: u64,
}

/// Counted with relaxed orderings, which pair with nothing: no data depends on a count.
#[derive(Debug, Default)]
struct Counts {
    placed: AtomicU64,
    failed: AtomicU64,
    bound: AtomicU64,
    not_bound: AtomicU64,
    handed_over: AtomicU64,
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
    /// The threads for pods that wait, which start when they are needed.
    waiting: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// Whether a thread has ended although nothing told it to.
    has_failed: watch::Sender<bool>,
    gate: Option<ShardGate>,
}

/// The longest time for which a thread waits before it looks whether it should stop.
const TICK: Duration = Duration::from_millis(200);

/// The time after which a thread for pods that wait ends if there is none.
const IDLE: Duration = Duration::from_secs(30);

/// The objects that are freed in a tick at most.
const FREED: usize = 512;

/// The longest time for which the last conditions and events are waited for.
const FLUSH: Duration = Duration::from_secs(2);

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
        let gate = config.shards.clone().map(ShardGate::new);
        config.writes.gate.clone_from(&gate);
        let writes =
            Writes::start(&runtime, api.clone(), pods.clone(), fence, config.writes.clone());
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let percentage_of_nodes = read.percentage_of_nodes;
        let metrics = Arc::new(Metrics::new());
        let recording = config.metrics.then(|| metrics.clone());
        let shown = shown(&text, &read.extenders);
        let (extenders, objects) = extenders(read.extenders, &runtime, &writes)?;
        let (binder, volumes) = (writes.binder(), writes.clone());
        let evictor = Counted(metrics.evictor(Arc::new(writes.evictor())));
        // A writing thread would be woken for each event, which costs more than the event at a cluster's rates.
        let mut builder = Schedulers::builder()
            .queue(read.queue)
            .algorithm(AlgorithmConfig { percentage_of_nodes, seed })
            .binder(|_| binder)
            .volume_binder(move |engine| volumes.volume_binder(engine))
            .evictor(|_| evictor)
            .extenders(extenders);
        if let Some(pool) = pool(&read.process)? {
            builder = builder.pool(pool);
        }
        if let Some(shards) = &config.shards {
            builder = builder.shards(shards.clone());
        }
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
            waiting: Arc::default(),
            has_failed: watch::Sender::new(false),
            gate,
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

    /// Limits bindings to the nodes of the held shards, if there are several shards.
    pub(super) fn gate(&self) -> Option<&ShardGate> {
        self.gate.as_ref()
    }

    /// Whether the scheduler is stopping.
    pub(super) fn stops(&self) -> &Arc<AtomicBool> {
        &self.stops
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
        let Counts { placed, failed, bound, not_bound, handed_over } = &*self.counts;
        LiveFigures {
            placed: of(placed),
            failed: of(failed),
            bound: of(bound),
            not_bound: of(not_bound),
            handed_over: of(handed_over),
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
        let (slow, waiting) = crossbeam_channel::unbounded();
        let binder = Binder {
            schedulers: self.schedulers.clone(),
            writes: self.writes.clone(),
            counts: self.counts.clone(),
            hand_over: self
                .gate
                .as_ref()
                .map(|gate| HandOver::new(gate.shards().clone(), self.writes.binder())),
        };
        for _ in 0..self.config.bindings.get() {
            let (mut binding, placed) = (binder.binding()?, placed.clone());
            self.spawn("bind", move || {
                placed.iter().for_each(|placement| binding.bind(&placement))
            })?;
        }
        for _ in 0..self.config.scheduling_threads.get() {
            let worker = Worker {
                scheduling: self.schedulers.scheduling_loop()?,
                quick: quick.clone(),
                slow: slow.clone(),
                waiting: Waiting {
                    binder: binder.clone(),
                    placed: waiting.clone(),
                    idle: Arc::default(),
                    most: self.config.waiting_bindings.get(),
                    threads: self.waiting.clone(),
                },
                writes: self.writes.clone(),
                counts: self.counts.clone(),
                stops: self.stops.clone(),
            };
            self.spawn("schedule", move || worker.run())?;
        }
        Ok(())
    }

    /// Starts a thread, whose end is noticed.
    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let ends = Ends { stops: self.stops.clone(), has_failed: self.has_failed.clone() };
        let thread = spawn(name, move || {
            let _ends = ends;
            work();
        });
        self.threads.push(thread?);
        Ok(())
    }

    /// Waits until the scheduler no longer works although nobody stopped it: a thread has panicked, the mirror has ended
    /// or the engine was closed. Another process should take over.
    pub async fn failed(&self) {
        let mut has_failed = self.has_failed.subscribe();
        tokio::select! {
            // The sender lives as long as `self`.
            _ = has_failed.wait_for(|has_failed| *has_failed) => {}
            () = self.mirror.ended() => {}
        }
    }

    /// Lets the queue take events in while nobody pops pods, as in a standby, so that they do not pile up. Frees what the
    /// engine's old versions held, if no event does. Notices that the engine was closed.
    fn tend(&mut self) -> Result<(), StartError> {
        let (queue, stops) = (self.schedulers.queue().clone(), self.stops.clone());
        let engine = self.schedulers.engine().clone();
        self.spawn("tend", move || {
            while !stops.load(Ordering::Relaxed) && !engine.is_closed() {
                queue.tend(now);
                // An engine that a panic has made unusable is closed, too.
                let _ = engine.with_writer(|writer| writer.reclaim_some(FREED));
                thread::sleep(TICK);
            }
        })
    }

    /// Stops scheduling, finishes the bindings in flight, writes the conditions and events that wait, and stops the
    /// mirror. Bindings that take longer than `grace`, for instance because a volume is being provisioned, are given up:
    /// the fence is closed. Conditions and events have what is left of `grace`, and 2 s at most.
    pub async fn stop(mut self, grace: Duration) {
        let began = Instant::now();
        self.stops.store(true, Ordering::Relaxed);
        self.schedulers.queue().close();
        let (threads, waiting) = (std::mem::take(&mut self.threads), self.waiting.clone());
        let mut joined = tokio::task::spawn_blocking(move || {
            // A panic has been reported by the panic hook.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            // No further thread starts, since the scheduling threads have ended.
            let waiting = std::mem::take(&mut *threads_of(&waiting));
            waiting.into_iter().for_each(|thread| drop(thread.join()));
        });
        if timeout(grace, &mut joined).await.is_err() {
            self.writes.fence().close();
            // The only error is a runtime that shuts down.
            let _ = joined.await;
        }
        let left = FLUSH.min(grace.saturating_sub(began.elapsed()));
        // A standby has nothing to write.
        let is_leader = !left.is_zero() && self.writes.fence().may_write();
        if is_leader && !self.writes.flush(left).await {
            tracing::warn!("conditions and events were lost: they could not be written in time");
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

/// Tells that a thread has ended, unless it was told to.
struct Ends {
    stops: Arc<AtomicBool>,
    has_failed: watch::Sender<bool>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.stops.load(Ordering::Relaxed) {
            self.has_failed.send_replace(true);
        }
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
    waiting: Waiting,
    writes: Writes,
    counts: Arc<Counts>,
    stops: Arc<AtomicBool>,
}

impl Worker {
    fn hand_over(&self) -> Option<&HandOver> {
        self.waiting.binder.hand_over.as_ref()
    }

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
                let waits = has_claims || placement.waits;
                let channel = if waits { &self.slow } else { &self.quick };
                // The receivers live as long as this thread, unless theirs have panicked.
                let _ = channel.send(placement);
                if waits {
                    self.waiting.grow();
                }
            }
            for unplaced in failed {
                // Its shard was given up during the attempt.
                if self.hand_over().is_some_and(|to| to.is_foreign_pod(&unplaced.pod)) {
                    continue;
                }
                if let Some(failure) = Failure::of_cycle(&unplaced.error) {
                    self.writes.status().report_failure(&unplaced.pod, failure);
                }
            }
        }
    }
}

/// Threads for pods that wait, each for minutes perhaps: for a permit, or until their volumes exist. A pod that waits
/// must not delay another one, so each gets a thread, up to a limit.
struct Waiting {
    binder: Binder,
    placed: Receiver<Placement>,
    /// The threads that wait for a pod. Relaxed: too high a count delays a pod, until the next one is placed.
    idle: Arc<AtomicUsize>,
    most: usize,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Waiting {
    /// Starts a thread if there are more pods than idle threads.
    fn grow(&self) {
        if self.placed.len() <= self.idle.load(Ordering::Relaxed) {
            return;
        }
        let mut threads = threads_of(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= self.most {
            return;
        }
        let Ok(mut binding) = self.binder.binding() else { return };
        let (placed, idle) = (self.placed.clone(), self.idle.clone());
        let work = move || loop {
            idle.fetch_add(1, Ordering::Relaxed);
            let placement = placed.recv_timeout(IDLE);
            idle.fetch_sub(1, Ordering::Relaxed);
            match placement {
                Ok(placement) => binding.bind(&placement),
                Err(_) => return,
            }
        };
        match spawn("bind-waiting", work) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::warn!(%error, "a pod waits for a thread"),
        }
    }
}

fn threads_of(threads: &Mutex<Vec<JoinHandle<()>>>) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
    // Every critical section leaves a valid list.
    threads.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the binding threads share.
#[derive(Clone)]
struct Binder {
    schedulers: Arc<Schedulers>,
    writes: Writes,
    counts: Arc<Counts>,
    /// Gives pods to other replicas, if there are several shards.
    hand_over: Option<HandOver>,
}

impl Binder {
    fn binding(&self) -> Result<Binding, StartError> {
        let Binder { schedulers, writes, counts, hand_over } = self.clone();
        let binding = schedulers.binding_loop().map_err(|_| StartError::Closed)?;
        Ok(Binding { binding, queue: schedulers.queue().clone(), writes, counts, hand_over })
    }
}

/// Runs binding cycles.
struct Binding {
    binding: BindingLoop,
    queue: Arc<QueueFront>,
    writes: Writes,
    counts: Arc<Counts>,
    hand_over: Option<HandOver>,
}

impl Binding {
    fn bind(&mut self, placement: &Placement) {
        let (pod, node) = (&placement.pod, placement.node());
        if let Some(to) = self.hand_over.as_ref().filter(|to| to.is_foreign(node)) {
            // While it is assumed, other pods are not placed in its room.
            to.nominate(pod, node);
            self.binding.withdraw(placement, now);
            self.counts.handed_over.fetch_add(1, Ordering::Relaxed);
            self.binding.release();
            return;
        }
        match self.binding.bind(placement, now) {
            Ok(()) => drop(self.counts.bound.fetch_add(1, Ordering::Relaxed)),
            // The shard was given up during the binding cycle.
            Err(_) if self.hand_over.as_ref().is_some_and(|to| to.is_foreign(node)) => {
                self.counts.handed_over.fetch_add(1, Ordering::Relaxed);
                self.hand_over.iter().for_each(|to| to.nominate(pod, node));
            }
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

/// Returns the threads on which a decision examines nodes (`parallelism`), or `None` for the scheduling thread alone,
/// which is fastest unless the cluster is very large. More threads than processors would not help.
fn pool(settings: &ProcessSettings) -> Result<Option<Arc<ThreadPool>>, StartError> {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let wanted = settings.parallelism.map_or(1, |wanted| usize::try_from(wanted).unwrap_or(1));
    let threads = wanted.min(processors);
    if threads < 2 {
        return Ok(None);
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    let pool = pool.thread_name(|n| format!("nodes-{n}")).build();
    pool.map(|pool| Some(Arc::new(pool))).map_err(|error| std::io::Error::other(error).into())
}

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

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    Ok(thread::Builder::new().name(name.to_owned()).spawn(work)?)
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::framework::Algorithm;
    use portolan::model::{node, pod};
    use portolan::{Config, Engine};

    #[test]
    fn a_profile_may_have_a_percentage_of_nodes_of_its_own() {
        let text = format!(
            "{DEFAULT}percentageOfNodesToScore: 100\nprofiles: [{{schedulerName: all}}, {{schedulerName: half, \
             percentageOfNodesToScore: 50}}]\n"
        );
        let (mut writer, reader) = Engine::inline(Config::default());
        for n in 0..400 {
            writer.add_node(node(format!("n{n}")).cpu(1_000).build()).expect("added");
        }
        writer.publish();
        let looked_at = |name: &str| {
            let handle = PluginHandle::default();
            let framework =
                framework(&text, &registry(), &handle, &name.into()).expect("a profile");
            let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
            let mut algorithm = Algorithm::new(framework, config, None);
            algorithm.schedule(&reader.snapshot(), &pod("p").build()).expect("a node").looked_at
        };
        assert_eq!((looked_at("all"), looked_at("half")), (400, 200));
    }

    #[test]
    fn a_pool_is_made_only_if_the_configuration_asks_for_threads() {
        let read = |text: &str| ProcessSettings::read(&format!("{DEFAULT}{text}")).expect("valid");
        let threads = |text: &str| {
            let pool = pool(&read(text)).expect("threads");
            pool.map_or(1, |pool| pool.current_num_threads())
        };
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!((threads(""), threads("parallelism: 1")), (1, 1));
        assert_eq!(threads("parallelism: 16"), processors.min(16));
        assert_eq!(threads("parallelism: 100000"), processors);
    }
}
