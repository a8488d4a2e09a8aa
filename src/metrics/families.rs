//! The metric families: names, types, labels and buckets.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::{Atomic, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::engine::Figures;
use crate::framework::Evaluations;
use crate::scheduler::CycleFigures;
use crate::scheduler::queue::SchedulingQueue;
use crate::snapshot::Cluster;

/// Label names and values.
pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Returns bucket bounds bit-identical to those of Go's client: each bound is the previous one times the factor.
fn bounds(first: f64, factor: f64, count: usize) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |bound| Some(bound * factor)).take(count)
}

fn attempt_histogram() -> Histogram {
    Histogram::new(bounds(0.001, 2.0, 15))
}

fn extension_point_histogram() -> Histogram {
    Histogram::new(bounds(0.0001, 2.0, 12))
}

fn plugin_histogram() -> Histogram {
    Histogram::new(bounds(0.00001, 1.5, 20))
}

fn wait_histogram() -> Histogram {
    Histogram::new(bounds(0.01, 2.0, 20))
}

pub(super) struct Families {
    pub(super) attempts: Counters<2>,
    pub(super) attempt_duration: Histograms<2>,
    pub(super) algorithm_duration: Histogram,
    pub(super) point_duration: Histograms<3>,
    pub(super) plugin_duration: Histograms<3>,
    pub(super) hint_duration: Histograms<3>,
    pub(super) event_duration: Histograms<1>,
    pub(super) permit_wait: Histograms<1>,
    pub(super) pod_attempts: Histogram,
    pub(super) pod_duration: Histograms<1>,
    pub(super) evaluations: Family<Labels<3>, Counter<u64, Evaluations>>,
    pub(super) after_flush: Counter,
    pub(super) preemption_attempts: Counter,
    pub(super) preemption_victims: Histogram,
    pending: Gauges<1>,
    incoming: Counters<2>,
    unschedulable: Gauges<2>,
    in_flight: Gauges<1>,
    cache: Gauges<1>,
    goroutines: Gauges<1>,
    cycles: Counters<2>,
    generation: Gauge,
    published: Gauge,
    oldest_held: Gauge,
    retired: Gauge,
    freed: Counter,
    rebuilds: Counter,
    trying: Gauge,
    backlog: Gauge,
    /// The gauges that have been set so far, so that they can be reset to zero.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    unschedulable: HashSet<Labels<2>>,
    in_flight: HashSet<Labels<1>>,
}

/// A framework's counter is a counter of a family.
impl Atomic<u64> for Evaluations {
    fn inc(&self) -> u64 {
        self.add(1)
    }

    fn inc_by(&self, count: u64) -> u64 {
        self.add(count)
    }

    fn get(&self) -> u64 {
        Evaluations::get(self)
    }
}

struct Registrar<'a>(&'a mut Registry);

impl Registrar<'_> {
    fn put<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: &M) {
        self.0.register(name, help, metric.clone());
    }
}

impl Families {
    pub(super) fn new() -> Families {
        Families {
            cache: Family::default(),
            attempts: Family::default(),
            attempt_duration: Family::new_with_constructor(attempt_histogram),
            algorithm_duration: attempt_histogram(),
            point_duration: Family::new_with_constructor(extension_point_histogram),
            plugin_duration: Family::new_with_constructor(plugin_histogram),
            hint_duration: Family::new_with_constructor(plugin_histogram),
            event_duration: Family::new_with_constructor(extension_point_histogram),
            permit_wait: Family::new_with_constructor(attempt_histogram),
            pod_attempts: Histogram::new(bounds(1.0, 2.0, 5)),
            pod_duration: Family::new_with_constructor(wait_histogram),
            evaluations: Family::default(),
            after_flush: Counter::default(),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(bounds(1.0, 2.0, 7)),
            pending: Family::default(),
            incoming: Family::default(),
            unschedulable: Family::default(),
            in_flight: Family::default(),
            goroutines: Family::default(),
            cycles: Family::default(),
            generation: Gauge::default(),
            published: Gauge::default(),
            oldest_held: Gauge::default(),
            retired: Gauge::default(),
            freed: Counter::default(),
            rebuilds: Counter::default(),
            trying: Gauge::default(),
            backlog: Gauge::default(),
            seen: Mutex::default(),
        }
    }

    /// Counters are registered without `_total`, which the format adds.
    pub(super) fn register(&self, registry: &mut Registry) {
        let mut registrar = Registrar(registry);
        self.register_cycles(&mut registrar);
        self.register_pods(&mut registrar);
        self.register_queue(&mut registrar);
        self.register_own(&mut registrar);
    }

    /// Registers kube-scheduler's metrics of scheduling and binding cycles.
    fn register_cycles(&self, registrar: &mut Registrar<'_>) {
        registrar.put(
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed pods that are not confirmed yet",
            &self.cache,
        );
        registrar.put(
            "scheduler_scheduler_cache_size",
            "The former name of scheduler_cache_size",
            &self.cache,
        );
        registrar.put(
            "scheduler_schedule_attempts",
            "Number of attempts to schedule pods, by result",
            &self.attempts,
        );
        registrar.put(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of scheduling attempts, from dequeuing a pod to binding it",
            &self.attempt_duration,
        );
        registrar.put(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of the scheduling algorithm, including preemption",
            &self.algorithm_duration,
        );
        registrar.put(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of all plugins at an extension point",
            &self.point_duration,
        );
        registrar.put(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of one plugin at an extension point, for one pod in ten",
            &self.plugin_duration,
        );
        registrar.put(
            "scheduler_plugin_evaluation",
            "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, \
             Filter, PreScore, and Score)",
            &self.evaluations,
        );
        registrar.put(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of a plugin's queueing hint",
            &self.hint_duration,
        );
        registrar.put(
            "scheduler_event_handling_duration_seconds",
            "Duration of event handling in the queue",
            &self.event_duration,
        );
    }

    /// Registers kube-scheduler's metrics of pods after their cycles.
    fn register_pods(&self, registrar: &mut Registrar<'_>) {
        registrar.put(
            "scheduler_permit_wait_duration_seconds",
            "Time for which pods wait at Permit",
            &self.permit_wait,
        );
        registrar.put(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts until a pod is bound",
            &self.pod_attempts,
        );
        registrar.put(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod becoming ready for scheduling until it is bound, by attempts",
            &self.pod_duration,
        );
        registrar.put(
            "scheduler_pod_scheduled_after_flush",
            "Number of pods bound in an attempt that began because they had waited for an event for too long",
            &self.after_flush,
        );
        registrar.put(
            "scheduler_preemption_attempts",
            "Number of preemption attempts",
            &self.preemption_attempts,
        );
        registrar.put(
            "scheduler_preemption_victims",
            "Number of victims per preemption",
            &self.preemption_victims,
        );
    }

    /// Registers kube-scheduler's metrics of the queue.
    fn register_queue(&self, registrar: &mut Registrar<'_>) {
        registrar.put("scheduler_pending_pods", "Number of waiting pods, by queue", &self.pending);
        registrar.put(
            "scheduler_queue_incoming_pods",
            "Number of pods added to a queue, by event",
            &self.incoming,
        );
        registrar.put(
            "scheduler_unschedulable_pods",
            "Number of waiting pods, by each plugin that rejected them",
            &self.unschedulable,
        );
        registrar.put(
            "scheduler_inflight_events",
            "Number of events kept for pods that are being scheduled",
            &self.in_flight,
        );
        registrar.put(
            "scheduler_goroutines",
            "Number of pods whose binding is in progress",
            &self.goroutines,
        );
    }

    /// Registers the metrics that kube-scheduler does not have.
    fn register_own(&self, registrar: &mut Registrar<'_>) {
        registrar.put(
            "portolan_cycles",
            "Number of scheduling cycles, by result; a conflict is retried",
            &self.cycles,
        );
        registrar.put(
            "portolan_generation",
            "Number of events folded into the state",
            &self.generation,
        );
        registrar.put(
            "portolan_published_generation",
            "The generation that readers see",
            &self.published,
        );
        registrar.put(
            "portolan_oldest_held_generation",
            "The generation of the oldest version that a reader may still hold",
            &self.oldest_held,
        );
        registrar.put(
            "portolan_versions_retired",
            "Number of versions replaced but not freed yet",
            &self.retired,
        );
        registrar.put("portolan_versions_freed", "Number of versions freed", &self.freed);
        registrar.put(
            "portolan_rebuilds",
            "Number of rebuilds of an inconsistent state",
            &self.rebuilds,
        );
        registrar.put("portolan_pods_in_flight", "Number of pods being scheduled", &self.trying);
        registrar.put(
            "portolan_queue_backlog",
            "Number of events that the queue has received but not handled completely",
            &self.backlog,
        );
    }

    pub(super) fn set_engine(&self, figures: &Figures, cluster: &Cluster) {
        for (what, count) in [
            ("nodes", cluster.len()),
            ("pods", cluster.pod_count()),
            ("assumed_pods", cluster.assumed_count()),
        ] {
            self.cache.get_or_create(&[("type", what.into())]).set(gauge(count));
        }
        self.generation.set(gauge(figures.generation.0));
        self.published.set(gauge(figures.published.0));
        self.oldest_held.set(gauge(figures.oldest_held.0));
        self.retired.set(gauge(figures.retired));
        store(&self.freed, figures.freed);
        store(&self.rebuilds, figures.rebuilds);
    }

    pub(super) fn set_queue(&self, queue: &SchedulingQueue) {
        let figures = queue.figures();
        for (place, count) in [
            ("active", figures.active),
            ("backoff", figures.backoff),
            ("unschedulable", figures.unschedulable),
            ("gated", figures.gated),
        ] {
            self.pending.get_or_create(&[("queue", place.into())]).set(gauge(count));
        }
        self.goroutines
            .get_or_create(&[("operation", "binding".into())])
            .set(gauge(figures.binding));
        self.trying.set(gauge(figures.in_flight));
        self.backlog.set(gauge(figures.backlog));
        let mut incoming = std::collections::BTreeMap::new();
        for (cause, place, count) in queue.incoming() {
            // Two of the sub-queues have the same name.
            *incoming.entry((place.as_str(), cause.to_string())).or_insert(0) += count;
        }
        for ((place, cause), count) in incoming {
            let labels = [("queue", place.into()), ("event", cause.into())];
            store(&self.incoming.get_or_create(&labels), count);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let rejections = queue.rejections().into_iter().map(|((profile, plugin), count)| {
            ([("plugin", plugin.into()), ("profile", profile.to_string().into())], count)
        });
        refresh(&self.unschedulable, &mut seen.unschedulable, rejections);
        let events = queue.events_in_flight().into_iter();
        let events = events.map(|(event, count)| ([("event", event.into())], count));
        refresh(&self.in_flight, &mut seen.in_flight, events);
    }

    pub(super) fn set_cycles(&self, scheduler: &str, figures: CycleFigures) {
        for (result, count) in [
            ("placed", figures.placed),
            ("failed", figures.failed),
            ("conflict", figures.conflicts),
        ] {
            let labels = [("scheduler", scheduler.to_owned().into()), ("result", result.into())];
            store(&self.cycles.get_or_create(&labels), count);
        }
    }
}

fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Sets a counter to a value that is counted elsewhere.
fn store(counter: &Counter, count: u64) {
    // Relaxed suffices: the counter does not publish other data.
    counter.inner().store(count, Ordering::Relaxed);
}

/// Sets gauges to their current values, and resets those without a current value to zero.
fn refresh<const N: usize>(
    gauges: &Gauges<N>,
    seen: &mut HashSet<Labels<N>>,
    now: impl Iterator<Item = (Labels<N>, usize)>,
) {
    for labels in seen.iter() {
        gauges.get_or_create(labels).set(0);
    }
    for (labels, count) in now {
        gauges.get_or_create(&labels).set(gauge(count));
        seen.insert(labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_bit_identical_to_those_of_gos_client() {
        // The bounds as kube-scheduler prints them.
        let plugins = [
            1e-05,
            1.5000000000000002e-05,
            2.2500000000000005e-05,
            3.375000000000001e-05,
            5.062500000000001e-05,
            7.593750000000002e-05,
            0.00011390625000000003,
            0.00017085937500000006,
            0.0002562890625000001,
            0.00038443359375000017,
            0.0005766503906250003,
            0.0008649755859375004,
            0.0012974633789062506,
            0.0019461950683593758,
            0.0029192926025390638,
            0.004378938903808595,
            0.006568408355712893,
            0.009852612533569338,
            0.014778918800354007,
            0.02216837820053101,
        ];
        assert_eq!(bounds(0.00001, 1.5, 20).collect::<Vec<_>>(), plugins);
        assert_eq!(bounds(0.001, 2.0, 15).last(), Some(16.384));
        assert_eq!(bounds(0.0001, 2.0, 12).last(), Some(0.2048));
        assert_eq!(bounds(0.01, 2.0, 20).last(), Some(5242.88));
    }
}
