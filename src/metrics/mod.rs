//! What became of pods and how long it took, for Prometheus: kube-scheduler's metrics
//! by their names, types, labels and buckets (pkg/scheduler/metrics/metrics.go, 1.36),
//! so that its dashboards and alerts work, and the engine's own as `portolan_…`.
//!
//! Nothing here is asked on the way of a pod: a [`Recorder`] hears of what is measured,
//! and what can be counted by looking is looked at when the text is wanted. Without a
//! recorder no clock is read, with one a step costs two readings and an uncontended
//! lock, and plugins are timed for one pod in [`PLUGINS_ONE_IN`].
//!
//! ```
//! use std::sync::Arc;
//! use portolan::framework::{Algorithm, AlgorithmConfig, Framework};
//! use portolan::metrics::{Metrics, PLUGINS_ONE_IN};
//! use portolan::log::Event;
//! use portolan::model::{Timestamp, node, pod};
//! use portolan::scheduler::{Scheduler, Profiles};
//! use portolan::{Config, Engine};
//!
//! let metrics = Metrics::new();
//! let recorder = metrics.recorder("default-scheduler");
//! let framework = Framework::default_profile().with_recorder(recorder, PLUGINS_ONE_IN);
//! let scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
//!
//! let engine = Engine::shared(Config::default());
//! engine.submit(Event::add_node(node("n1").cpu(4_000).build()))?;
//! let mut scheduler = Scheduler::new(engine.clone(), Profiles::one(scheduler))?;
//! let pod = Arc::new(pod("web-0").cpu(8_000).build());
//! assert!(scheduler.schedule(&pod, Timestamp(0)).is_err());
//!
//! metrics.engine(&engine.figures()?, &engine.reader()?.snapshot());
//! let text = metrics.encode();
//! assert!(text.contains(
//!     "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"default-scheduler\"} 1"
//! ));
//! assert!(text.contains("scheduler_cache_size{type=\"nodes\"} 1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Deviations
//!
//! - `scheduler_cache_size` has its old name, too (`scheduler_scheduler_cache_size`),
//!   which dashboards ask for.
//! - `scheduler_preemption_attempts_total` counts PostFilter, whichever plugin is there.
//! - `scheduler_goroutines{operation="binding"}` counts pods on their way to their nodes:
//!   there are no goroutines.
//! - `scheduler_event_handling_duration_seconds` is of events that some plugin wants to
//!   hear of; a filter or a score counts once in
//!   `scheduler_plugin_execution_duration_seconds` for each 64 nodes.
//! - `scheduler_plugin_evaluation_total` is not there: a count for each node and plugin
//!   would cost more than most filters. Nor are metrics of what does not exist here:
//!   asynchronous API calls, the goroutines of preemption, the cache of bound volumes.
//! - What has no sample yet is not in the text, as with Go's client.
//! - Durations that pods wait are those of the clock that is passed in.

mod families;
mod recorder;

use std::fmt;
use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::engine::{Figures, SweepObserver};
use crate::framework::{Eviction, Evictor, Recorder};
use crate::scheduler::CycleFigures;
use crate::scheduler::queue::SchedulingQueue;
use crate::snapshot::Cluster;

use families::Families;
use recorder::ProfileRecorder;

/// Of one pod in so many it is recorded how long each plugin takes
/// (`pluginMetricsSamplePercent`), for
/// [`Framework::with_recorder`](crate::framework::Framework::with_recorder).
pub const PLUGINS_ONE_IN: u32 = 10;

/// Counters, gauges and histograms of one or several schedulers on an engine.
pub struct Metrics {
    registry: Registry,
    families: Arc<Families>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let families = Arc::new(Families::registered(&mut registry));
        Metrics { registry, families }
    }

    /// Who hears of the cycles of one profile; the name is the label `profile`, which is
    /// that of its scheduler.
    #[must_use]
    pub fn recorder(&self, profile: &str) -> Arc<dyn Recorder> {
        Arc::new(ProfileRecorder::new(self.families.clone(), profile))
    }

    /// The evictor, with the victims of each preemption counted.
    #[must_use]
    pub fn evictor(&self, evictor: Arc<dyn Evictor>) -> Arc<dyn Evictor> {
        Arc::new(CountingEvictor { evictor, families: self.families.clone() })
    }

    /// Takes down how the engine is, as of now. O(1).
    pub fn engine(&self, figures: &Figures, cluster: &Cluster) {
        self.families.set_engine(figures, cluster);
    }

    /// Takes down how an engine is with each of its sweeps, as kube-scheduler does
    /// (`scheduler_cache_size`), for [`Config::sweep_observer`](crate::Config).
    #[must_use]
    pub fn sweep_observer(&self) -> Box<dyn SweepObserver> {
        Box::new(SweptEngine { families: self.families.clone() })
    }

    /// Takes down who waits in the queue, and why, as of now. O(pods that were ever in
    /// it).
    pub fn queue(&self, queue: &SchedulingQueue) {
        self.families.set_queue(queue);
    }

    /// Takes down what came of the cycles of one scheduler, which gets this label.
    pub fn cycles(&self, scheduler: &str, figures: CycleFigures) {
        self.families.set_cycles(scheduler, figures);
    }

    /// All of them in the text format of OpenMetrics 1.0, which Prometheus reads.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

struct SweptEngine {
    families: Arc<Families>,
}

impl SweepObserver for SweptEngine {
    fn swept(&mut self, figures: &Figures, cluster: &Cluster) {
        self.families.set_engine(figures, cluster);
    }
}

struct CountingEvictor {
    evictor: Arc<dyn Evictor>,
    families: Arc<Families>,
}

impl Evictor for CountingEvictor {
    fn evict(&self, eviction: Eviction) {
        self.families.preemption_victims.observe(eviction.victims().len() as f64);
        self.evictor.evict(eviction);
    }
}
