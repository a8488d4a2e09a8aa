//! Prometheus metrics of scheduling. kube-scheduler's metrics keep their names, types, labels and buckets
//! (pkg/scheduler/metrics/metrics.go, 1.36), so that its dashboards and alerts work; the engine's own metrics are named
//! `portolan_…`.
//!
//! Nothing on a pod's path queries this module: a [`Recorder`] receives the measurements, and counts that can be
//! derived from the state are derived when the text is encoded. Without a recorder, no clock is read. With one, each
//! step costs two clock readings and an uncontended lock, each plugin that is asked costs an atomic addition, and
//! plugins are timed for one pod in [`PLUGINS_ONE_IN`].
//!
//! ```
//! use std::sync::Arc;
//! use portolan::cache::{Config, Engine, Event};
//! use portolan::metrics::{Metrics, PLUGINS_ONE_IN};
//! use portolan::model::{Timestamp, node, pod};
//! use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
//!
//! let metrics = Metrics::new();
//! let recorder = metrics.recorder("default-scheduler");
//! let framework = Framework::default_profile().with_recorder(recorder, PLUGINS_ONE_IN);
//! let scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
//!
//! let engine = Engine::shared(Config::default());
//! engine.submit(Event::add_node(node("n1").cpu(4_000).build()))?.wait()??;
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
//! - `scheduler_cache_size` is also exported under its old name (`scheduler_scheduler_cache_size`), which existing
//!   dashboards query.
//! - `scheduler_preemption_attempts_total` counts calls of PostFilter, whichever plugin implements it.
//! - `scheduler_goroutines{operation="binding"}` counts pods whose binding is in progress, because there are no
//!   goroutines.
//! - `scheduler_event_handling_duration_seconds` covers only events that some plugin subscribes to.
//! - `scheduler_plugin_execution_duration_seconds` has one observation per call of a plugin. A Filter or Score call
//!   evaluates up to 64 nodes, whereas kube-scheduler's evaluates one node.
//! - The durations of Filter and Score include the calls of extenders.
//! - `scheduler_plugin_evaluation_total` counts each node at Filter and Score, as kube-scheduler's does, but not nodes
//!   whose verdict or score is cached, victims that preemption evaluates by their sums, and nodes at Score if a plugin
//!   gives all of them the same score.
//! - Metrics without samples are omitted from the text, as in Go's client.
//! - Waiting times of pods are measured by the clock that callers pass in.
//!
//! These metrics are not exported:
//!
//! - not measured: `rest_client_exec_plugin_*`, `rest_client_transport_*`, `rest_client_dns_resolution_duration_seconds`,
//!   `rest_client_request_retries_total` (a retry is a request of its own), `leader_election_slowpath_total`
//! - of parts that do not exist here: `scheduler_{batch,preemption_goroutines,volume,async_api_call,podgroup}_*`,
//!   `scheduler_get_node_hint_duration_seconds`, `scheduler_store_schedule_results_duration_seconds`,
//!   `scheduler_pending_async_api_calls`, `{workqueue,go,apiserver,authentication,authorization}_*`,
//!   `authenticated_user_requests`, and `*_metrics_total` of the registry
//! - of `/metrics/slis` and `/metrics/resources`, which are not served: `kubernetes_healthcheck*`, `kube_pod_resource_*`

mod classic;
mod families;
mod recorder;

use std::fmt;
use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::engine::Figures;
use crate::framework::{Eviction, Evictor, Recorder};
use crate::scheduler::CycleFigures;
use crate::scheduler::queue::SchedulingQueue;
use crate::snapshot::Cluster;

pub use classic::encode_classic;
use families::Families;
use recorder::ProfileRecorder;

/// The interval, in pods, at which plugin durations are recorded: one pod in 10 (`pluginMetricsSamplePercent`). To be
/// passed to [`Framework::with_recorder`](crate::Framework::with_recorder).
pub const PLUGINS_ONE_IN: u32 = 10;

/// The counters, gauges and histograms of one or more schedulers on an engine.
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
    /// Creates metrics with all values at zero.
    #[must_use]
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let families = Arc::new(Families::new());
        families.register(&mut registry);
        Metrics { registry, families }
    }

    /// Adds all families to a registry of the program's own, whose encoder then writes them next to the program's
    /// metrics. Samples are shared with [`Metrics::encode`], not copied. Call it once for each registry: a second call
    /// would write each family twice, which Prometheus rejects.
    ///
    /// ```
    /// use portolan::metrics::Metrics;
    /// use prometheus_client::registry::Registry;
    ///
    /// let (metrics, mut registry) = (Metrics::new(), Registry::default());
    /// metrics.register(&mut registry);
    /// ```
    ///
    /// Gauges of the engine and of the queue still change only with [`Metrics::engine`] and [`Metrics::queue`], so
    /// call these before each encoding.
    pub fn register(&self, registry: &mut Registry) {
        self.families.register(registry);
    }

    /// Returns a recorder for the cycles of one profile. `profile` is the value of the label `profile`, namely the
    /// scheduler name of the profile.
    #[must_use]
    pub fn recorder(&self, profile: &str) -> Arc<dyn Recorder> {
        Arc::new(ProfileRecorder::new(self.families.clone(), profile))
    }

    /// Wraps an evictor so that the victims of each preemption are counted.
    #[must_use]
    pub fn evictor(&self, evictor: Arc<dyn Evictor>) -> Arc<dyn Evictor> {
        Arc::new(CountingEvictor { evictor, families: self.families.clone() })
    }

    /// Sets the engine's gauges (`scheduler_cache_size`) to the current figures, for example before each answer to a
    /// scrape. O(1).
    pub fn engine(&self, figures: &Figures, cluster: &Cluster) {
        self.families.set_engine(figures, cluster);
    }

    /// Sets the gauges of the queue's waiting pods and of the reasons why they wait. O(pods that have ever been in the
    /// queue).
    pub fn queue(&self, queue: &SchedulingQueue) {
        self.families.set_queue(queue);
    }

    /// Sets the cycle counters of one scheduler, labelled `scheduler`.
    pub fn cycles(&self, scheduler: &str, figures: CycleFigures) {
        self.families.set_cycles(scheduler, figures);
    }

    /// Returns all metrics in the text format of OpenMetrics 1.0, which Prometheus reads.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// Returns all metrics in the classic text format ([`encode_classic`]).
    #[must_use]
    pub fn encode_classic(&self) -> String {
        encode_classic(&self.registry)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
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
