//! Starts and stops a cluster's scheduler, and connects its parts.
//!
//! ```text
//!            ┌─────────── engine ◀── mirror ◀── watches ──┐
//!            ▼                                            │
//! queue ──▶ scheduling threads ──▶ dispatch ──▶ bindings ──▶ API server
//!            └── failures ──▶ status writer, events ─────────▶   │
//! ```
//!
//! A binding that only waits for an answer is a task of the runtime. Other bindings block, and have threads.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use portolan::cache::Config;
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};
use portolan::model::Name;
use portolan::plugin::{Handle as PluginHandle, ShardSet};
use portolan::{AlgorithmConfig, BuildError, Schedulers};
use portolan_dra::Devices;
use portolan_dra::plugin::Backend;
use portolan_k8s::config::{ConfigError, Configuration, Registry};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::binding::{Dispatch, Outcomes};
use super::profiles::{extenders, framework, pool, registry, shown};
use super::scheduling::Worker;
use super::serve::refusals::Refusals;
use super::threads::{Alarm, Ends, Threads, now};
use crate::api::Api;
use crate::debug::debug_by;
use crate::extender::HttpExtenderError;
use crate::lock::lock;
use crate::mirror::{self, Mirror, MirrorError, PodIndex};
use crate::write::{ApiEvictor, Fence, ShardGate, Unwritten, WriteOptions, Writes};

/// The settings of a [`LiveScheduler`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveConfig {
    /// The text of a `KubeSchedulerConfiguration`, or `None` for the default profile.
    pub configuration: Option<Arc<str>>,
    /// The number of bindings in flight at once. Bindings by an extender or by a plugin other than DefaultBinder are
    /// counted separately, and each has a thread. When as many placed pods wait, no further pod is popped until half of
    /// them are gone.
    pub bindings: NonZeroUsize,
    /// The maximum number of pods that wait for a permit or for their volumes at once. They do not count as bindings in
    /// flight. Each has a thread.
    pub waiting_bindings: NonZeroUsize,
    /// The seed of random choices among nodes of equal scores, or `None` for a random one.
    pub seed: Option<u64>,
    /// The options of the mirror. The schedulers' names are replaced by those of the profiles.
    pub mirror: mirror::Options,
    /// The options of the writers of bindings, conditions and events.
    pub writes: WriteOptions,
    /// Schedule only for the shards in this set, which a [`ShardHolder`](super::ShardHolder) fills. It must be empty at
    /// first.
    pub shards: Option<ShardSet>,
}

impl Default for LiveConfig {
    fn default() -> LiveConfig {
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        LiveConfig {
            configuration: None,
            bindings: count(64),
            waiting_bindings: count(1_024),
            seed: None,
            mirror: mirror::Options::new::<Name>([]),
            writes: WriteOptions::default(),
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

/// A scheduler of a cluster. It mirrors from the start, and schedules after [`LiveScheduler::begin`].
pub struct LiveScheduler {
    config: LiveConfig,
    schedulers: Arc<Schedulers>,
    mirror: Mirror,
    writes: Writes,
    figures: Arc<Mutex<LiveFigures>>,
    metrics: Arc<Metrics>,
    refusals: Refusals,
    configuration: Arc<str>,
    runtime: Handle,
    threads: Threads,
    gate: Option<ShardGate>,
}

/// The longest time for which a thread waits before it checks whether to stop.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// The maximum number of objects that are freed per tick.
const FREED: usize = 512;

/// The longest time to wait for the last conditions and events.
const FLUSH: Duration = Duration::from_secs(10);

impl LiveScheduler {
    /// Starts the mirror of a cluster. Call it within a tokio runtime. Nothing is written before the fence is open and
    /// [`LiveScheduler::begin`] was called.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(api: Api, fence: Fence, config: LiveConfig) -> Result<Self, StartError> {
        LiveScheduler::with(api, fence, config, registry)
    }

    /// Starts the mirror, for profiles of these plugins.
    fn with(
        api: Api,
        fence: Fence,
        mut config: LiveConfig,
        registry: impl FnOnce(Arc<dyn Backend>) -> Registry,
    ) -> Result<Self, StartError> {
        let runtime = Handle::try_current().map_err(|_| MirrorError::NoRuntime)?;
        let text: Arc<str> =
            config.configuration.clone().unwrap_or_else(|| Configuration::DEFAULT.into());
        let pods = Arc::new(PodIndex::default());
        let gate = config.shards.clone().map(ShardGate::new);
        config.writes.gate.clone_from(&gate);
        let writes =
            Writes::start(&runtime, api.clone(), pods.clone(), fence, config.writes.clone());
        let claims = writes.claims();
        let registry = Arc::new(registry(Arc::new(claims.clone())));
        let read = Configuration::read(&text, &registry, &PluginHandle::default())?;
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let percentage_of_nodes = read.percentage_of_nodes;
        let metrics = Arc::new(Metrics::new());
        let shown = shown(&text, &read.extenders);
        let (extenders, objects) = extenders(read.extenders, &runtime, &writes)?;
        let (binder, volumes) = (writes.binder(), writes.clone());
        let api_evictor = writes.evictor();
        let evictor = metrics.evictor(Arc::new(api_evictor.clone()));
        let mut builder = Schedulers::builder()
            .config(Config::default().with_store(Devices::default()))
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
            let recorder = metrics.recorder(name);
            let profile = move |handle: &PluginHandle| {
                let framework = framework(&text, &registry, handle, &wanted)?;
                Ok(framework.with_recorder(recorder, PLUGINS_ONE_IN))
            };
            builder = builder.profile(name.clone(), profile);
        }
        let schedulers = Arc::new(builder.build()?);
        claims.set_engine(&schedulers.engine().downgrade());
        api_evictor.set_queue(schedulers.queue(), now);
        let threads = Threads::new(Alarm::new());
        let evictions = Mutex::new(threads.alarm().pressure().level(ApiEvictor::AT_ONCE));
        api_evictor.on_change(move |begun| lock(&evictions).set(begun));
        config.mirror.schedulers = names;
        config.mirror.raw = objects;
        let mirror = Mirror::start(api, schedulers.engine().clone(), pods, config.mirror.clone())?;
        let scheduler = LiveScheduler {
            config,
            schedulers,
            mirror,
            writes,
            figures: Arc::default(),
            metrics,
            refusals: Refusals::default(),
            configuration: shown,
            runtime,
            threads,
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

    /// The refusals of its servers.
    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The metrics of kube-scheduler and of the engine. The caller sets the gauges that are derived from the state.
    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Limits bindings to the nodes of the held shards, if there are several shards.
    pub(super) fn gate(&self) -> Option<&ShardGate> {
        self.gate.as_ref()
    }

    /// Whether the scheduler is stopping.
    pub(super) fn stops(&self) -> &Arc<AtomicBool> {
        self.threads.alarm().stops()
    }

    /// The configuration as it was given, or a comment in its place if it contains a private key (`keyData`).
    #[must_use]
    pub fn configuration(&self) -> &Arc<str> {
        &self.configuration
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn figures(&self) -> LiveFigures {
        *lock(&self.figures)
    }

    /// Starts to schedule. Wait for [`Mirror::synced`] first, and after an election for [`Mirror::refresh`]: a decision
    /// on a part of the cluster may be wrong.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or the engine is closed.
    pub fn begin(&mut self) -> Result<(), StartError> {
        let outcomes = Outcomes {
            queue: self.schedulers.queue().clone(),
            writes: self.writes.clone(),
            figures: self.figures.clone(),
        };
        let dispatch = Dispatch::start(
            &self.runtime,
            &self.threads,
            &self.config,
            &self.schedulers,
            &outcomes,
        );
        let worker = Worker {
            scheduling: self.schedulers.scheduling_loop()?,
            dispatch: dispatch?,
            writes: self.writes.clone(),
            figures: self.figures.clone(),
            alarm: self.threads.alarm().clone(),
        };
        Ok(self.threads.spawn("schedule", Ends::AtStop, move || worker.run())?)
    }

    /// Waits until the scheduler fails: a thread has panicked, the mirror has ended or the engine was closed. Another
    /// process should take over.
    pub async fn failed(&self) {
        tokio::select! {
            () = self.threads.alarm().sounded() => {}
            () = self.mirror.ended() => {}
        }
    }

    /// Lets the queue process events while nobody pops pods, as in a standby, so that events do not pile up. Frees the
    /// memory of old versions, which otherwise only events do. Detects that the engine was closed.
    fn tend(&self) -> Result<(), StartError> {
        let (queue, alarm) = (self.schedulers.queue().clone(), self.threads.alarm().clone());
        let engine = self.schedulers.engine().clone();
        let tend = move || {
            while !alarm.is_stopping() && !engine.is_closed() {
                queue.tend(now);
                // An engine that a panic has made unusable is closed, too.
                let _ = engine.with_writer(|writer| writer.reclaim_some(FREED));
                thread::sleep(TICK);
            }
        };
        Ok(self.threads.spawn("tend", Ends::AtStop, tend)?)
    }

    /// Stops scheduling, finishes the bindings in flight, writes the conditions and events that wait, and stops the
    /// mirror. Pods that wait for a permit are given up. Bindings that take longer than `grace`, for instance because a
    /// volume is being provisioned, are abandoned: the fence is closed. Conditions and events have the rest of `grace`,
    /// and 10 s at most.
    ///
    /// Returns whether all bindings ended in time. If not, a binding may still be applied, so the lease must not be
    /// given back.
    pub async fn stop(self, grace: Duration) -> bool {
        let began = Instant::now();
        self.threads.alarm().stop();
        self.schedulers.queue().close();
        // The scheduling threads end, then the bindings, and then their threads.
        let threads = self.threads.clone();
        let mut joined = tokio::task::spawn_blocking(move || threads.join());
        // The only error of the task is a runtime that shuts down.
        let is_in_time = timeout(grace, &mut joined).await.is_ok();
        if !is_in_time {
            self.writes.fence().close();
            let _ = joined.await;
        }
        let left = FLUSH.min(grace.saturating_sub(began.elapsed()));
        // A standby has nothing to write.
        let is_leader = !left.is_zero() && self.writes.fence().may_write();
        if is_leader && let Err(Unwritten { statuses, events, .. }) = self.writes.flush(left).await
        {
            tracing::warn!(
                conditions = statuses,
                events,
                "conditions and events were lost: they could not be written in time"
            );
        }
        self.mirror.stop().await;
        self.schedulers.engine().close();
        is_in_time
    }
}

/// Ends the threads without waiting for them; [`LiveScheduler::stop`] waits.
impl Drop for LiveScheduler {
    fn drop(&mut self) {
        self.threads.alarm().stop();
        self.schedulers.queue().close();
    }
}

debug_by!(LiveScheduler, it, figures: it.figures(), mirror: it.mirror);

#[cfg(test)]
#[path = "storm_tests.rs"]
mod storm_tests;
#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
