//! The metrics themselves: names, types, labels and buckets.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::engine::Figures;
use crate::scheduler::CycleFigures;
use crate::scheduler::queue::SchedulingQueue;
use crate::snapshot::Cluster;

/// Names and values.
pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Bounds as Go's client computes them: each the one before times the factor, to the bit.
fn bounds(first: f64, factor: f64, count: usize) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |bound| Some(bound * factor)).take(count)
}

fn of_attempts() -> Histogram {
    Histogram::new(bounds(0.001, 2.0, 15))
}

fn of_points() -> Histogram {
    Histogram::new(bounds(0.0001, 2.0, 12))
}

fn of_plugins() -> Histogram {
    Histogram::new(bounds(0.00001, 1.5, 20))
}

fn of_waits() -> Histogram {
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
    trying: Gauge,
    backlog: Gauge,
    /// Gauges that were not zero when they were looked at last.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    unschedulable: HashSet<Labels<2>>,
    in_flight: HashSet<Labels<1>>,
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
            attempt_duration: Family::new_with_constructor(of_attempts),
            algorithm_duration: of_attempts(),
            point_duration: Family::new_with_constructor(of_points),
            plugin_duration: Family::new_with_constructor(of_plugins),
            hint_duration: Family::new_with_constructor(of_plugins),
            event_duration: Family::new_with_constructor(of_points),
            permit_wait: Family::new_with_constructor(of_attempts),
            pod_attempts: Histogram::new(bounds(1.0, 2.0, 5)),
            pod_duration: Family::new_with_constructor(of_waits),
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
            trying: Gauge::default(),
            backlog: Gauge::default(),
            seen: Mutex::default(),
        }
    }

    /// Counters are registered without `_total`, which the format adds.
    pub(super) fn register(&self, registry: &mut Registry) {
        let mut to = Registrar(registry);
        to.put(
            "scheduler_cache_size",
            "Nodes, pods, and pods that are assumed and not confirmed",
            &self.cache,
        );
        to.put(
            "scheduler_scheduler_cache_size",
            "The same as scheduler_cache_size, by its old name",
            &self.cache,
        );
        to.put(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods by what came of them",
            &self.attempts,
        );
        to.put(
            "scheduler_scheduling_attempt_duration_seconds",
            "Attempts to schedule pods, from taking a pod up to binding it",
            &self.attempt_duration,
        );
        to.put(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Looking for a node, and for room where there was none",
            &self.algorithm_duration,
        );
        to.put(
            "scheduler_framework_extension_point_duration_seconds",
            "All plugins at an extension point",
            &self.point_duration,
        );
        to.put(
            "scheduler_plugin_execution_duration_seconds",
            "One plugin at an extension point, for one pod in ten",
            &self.plugin_duration,
        );
        to.put(
            "scheduler_queueing_hint_execution_duration_seconds",
            "A plugin saying whether an event helps a pod",
            &self.hint_duration,
        );
        to.put(
            "scheduler_event_handling_duration_seconds",
            "Acting on an event in the queue",
            &self.event_duration,
        );
        to.put(
            "scheduler_permit_wait_duration_seconds",
            "Pods waiting for their permit",
            &self.permit_wait,
        );
        to.put(
            "scheduler_pod_scheduling_attempts",
            "Attempts until a pod was bound",
            &self.pod_attempts,
        );
        to.put(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod being ready to be tried to its being bound, by attempts",
            &self.pod_duration,
        );
        to.put(
            "scheduler_preemption_attempts",
            "Attempts to make room for a pod",
            &self.preemption_attempts,
        );
        to.put(
            "scheduler_preemption_victims",
            "Victims of each preemption",
            &self.preemption_victims,
        );
        to.put("scheduler_pending_pods", "Pods that wait", &self.pending);
        to.put(
            "scheduler_queue_incoming_pods",
            "Pods that came to a queue, by what brought them",
            &self.incoming,
        );
        to.put(
            "scheduler_unschedulable_pods",
            "Pods that wait, by each plugin that rejected them",
            &self.unschedulable,
        );
        to.put(
            "scheduler_inflight_events",
            "Events kept for pods that are being tried",
            &self.in_flight,
        );
        to.put("scheduler_goroutines", "Pods on their way to their nodes", &self.goroutines);
        to.put(
            "portolan_cycles",
            "Scheduling cycles by what came of them; a conflict is decided on again",
            &self.cycles,
        );
        to.put("portolan_generation", "Events folded into the state", &self.generation);
        to.put("portolan_published_generation", "The generation that readers see", &self.published);
        to.put(
            "portolan_oldest_held_generation",
            "The oldest version that somebody may still look at",
            &self.oldest_held,
        );
        to.put("portolan_versions_retired", "Versions replaced and not freed", &self.retired);
        to.put("portolan_versions_freed", "Versions freed", &self.freed);
        to.put("portolan_pods_in_flight", "Pods being tried", &self.trying);
        to.put(
            "portolan_queue_backlog",
            "Events that the queue took in and has not acted on to the end",
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
            // Two of the places have one name.
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

/// Sets a counter to what was counted elsewhere.
fn store(counter: &Counter, count: u64) {
    // A count alone: nothing else is read by it.
    counter.inner().store(count, Ordering::Relaxed);
}

/// Sets gauges as they are now; those that are not there any more to zero.
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
    fn bounds_are_those_of_gos_client_to_the_bit() {
        // As a kube-scheduler prints them.
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
