//! The metrics record the outcome of pods, under kube-scheduler's names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Event};
use portolan::metrics::Metrics;
use portolan::model::{Name, PodBuilder, Timestamp, node, pod};
use portolan::plugin::{Code, Cycle, Handle, Permit, Plugin, PreFilter, Status, default_plugin};
use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{InMemoryBinder, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Failure, Framework, Placement, Profiles, Scheduler,
    SchedulingLoop,
};
use portolan_testkit::plugin;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

const GI: i64 = 1 << 30;

/// A scheduler with a recorder that samples every cycle, including plugins.
struct Bench {
    engine: Engine,
    queue: Arc<QueueFront>,
    scheduling: SchedulingLoop,
    metrics: Metrics,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Framework::default_profile_with)
    }

    fn with(framework: impl FnOnce(&Handle) -> Framework) -> Bench {
        let (engine, metrics) = (Engine::shared(Config::default()), Metrics::new());
        let handle = Handle::default()
            .with_binder(Arc::new(InMemoryBinder::new(engine.clone())))
            .with_evictor(metrics.evictor(Arc::new(InMemoryEvictor::new(engine.clone()))));
        let recorder = metrics.recorder("default-scheduler");
        let framework = Arc::new(framework(&handle).with_recorder(recorder, 1));
        let queue = SchedulingQueue::new(framework.clone(), QueueConfig::default());
        let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        let scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
        let profiles = Profiles::one(scheduler);
        let scheduling = SchedulingLoop::new(engine.clone(), queue.clone(), profiles).unwrap();
        for name in ["n1", "n2"] {
            let node = node(name).hostname().cpu(1_000).memory(64 * GI).build();
            engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
        }
        Bench { engine, queue, scheduling, metrics }
    }

    fn pending(&self, pod: PodBuilder) {
        self.engine
            .submit(Event::put_pending(pod.memory(GI).build()))
            .unwrap()
            .wait()
            .unwrap()
            .unwrap();
    }

    /// Schedules until a pod is placed, and returns the placement if there is one. The clock is set to `seconds`.
    fn place(&mut self, seconds: i64) -> Option<Placement> {
        let clock = || Timestamp::from_secs(seconds);
        while let Ok(attempt) = self.scheduling.schedule_one(Some(Instant::now()), clock) {
            if let Attempt::Placed(placement) = attempt {
                return Some(placement);
            }
        }
        None
    }

    /// Places and binds all pods that fit.
    fn settle(&mut self, seconds: i64) {
        while let Some(placement) = self.place(seconds) {
            self.scheduling.bind(&placement, || Timestamp::from_secs(seconds)).unwrap();
        }
    }

    fn values(&self) -> BTreeMap<String, f64> {
        let snapshot = self.engine.reader().unwrap().snapshot();
        self.metrics.engine(&self.engine.figures().unwrap(), &snapshot);
        self.queue.with(|queue, _| self.metrics.queue(queue));
        self.metrics.cycles("0", self.scheduling.figures());
        let text = self.metrics.encode();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        samples.map(sample).collect()
    }
}

/// Checks values by name. A missing sample has no value.
fn check(values: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(values.get(*name), Some(value), "{name} in {values:#?}");
    }
}

const PROFILE: &str = "profile=\"default-scheduler\"";

#[test]
fn a_registry_of_the_program_has_its_families_and_ours_once() {
    let mut bench = Bench::new();
    let (mut registry, requests) = (Registry::default(), Counter::<u64>::default());
    registry.register("http_requests", "Requests", requests.clone());
    bench.metrics.register(&mut registry);
    bench.pending(pod("a").cpu(600));
    bench.settle(1);
    requests.inc();
    bench.values();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let families = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# TYPE ")).map(str::to_owned).collect()
    };
    let found = families(&text);
    assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "{text}");
    let mut expected = families(&bench.metrics.encode());
    expected.insert(0, "# TYPE http_requests counter".into());
    assert_eq!(found, expected);
    assert!(text.contains("\nhttp_requests_total 1\n"), "{text}");
    let scheduled =
        format!("scheduler_schedule_attempts_total{{result=\"scheduled\",{PROFILE}}} 1");
    assert!(text.contains(&scheduled), "{text}");
}

#[test]
fn pods_are_counted_by_outcome() {
    let mut bench = Bench::new();
    bench.pending(pod("a").cpu(600));
    bench.pending(pod("b").cpu(600));
    bench.settle(1);
    bench.pending(pod("c").cpu(600));
    bench.settle(2);
    let values = bench.values();
    check(
        &values,
        &[
            (&format!("scheduler_schedule_attempts_total{{result=\"scheduled\",{PROFILE}}}"), 2.0),
            (
                &format!("scheduler_schedule_attempts_total{{result=\"unschedulable\",{PROFILE}}}"),
                1.0,
            ),
            ("scheduler_scheduling_algorithm_duration_seconds_count", 3.0),
            ("scheduler_pod_scheduling_attempts_count", 2.0),
            ("scheduler_pod_scheduling_attempts_bucket{le=\"1.0\"}", 2.0),
            ("scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"1\"}", 2.0),
            ("scheduler_pending_pods{queue=\"unschedulable\"}", 1.0),
            ("scheduler_pending_pods{queue=\"active\"}", 0.0),
            (
                "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"UnscheduledPodAdd\"}",
                3.0,
            ),
            (
                &format!("scheduler_unschedulable_pods{{plugin=\"NodeResourcesFit\",{PROFILE}}}"),
                1.0,
            ),
            ("scheduler_cache_size{type=\"nodes\"}", 2.0),
            ("scheduler_cache_size{type=\"pods\"}", 2.0),
            ("scheduler_scheduler_cache_size{type=\"nodes\"}", 2.0),
            ("portolan_cycles_total{scheduler=\"0\",result=\"placed\"}", 2.0),
            ("scheduler_preemption_attempts_total", 1.0),
            ("scheduler_preemption_victims_count", 0.0),
        ],
    );
    let filter = "extension_point=\"Filter\",status=\"Success\"";
    let points =
        format!("scheduler_framework_extension_point_duration_seconds_count{{{filter},{PROFILE}}}");
    check(&values, &[(&points, 3.0)]);
    let plugin = "scheduler_plugin_execution_duration_seconds_count{plugin=\"NodeResourcesFit\"";
    assert!(values[&format!("{plugin},{filter}}}")] >= 1.0);
}

/// Creates a bench in which one of three pods waits until another one is removed.
fn with_a_wait() -> Bench {
    let mut bench = Bench::new();
    bench.pending(pod("a").cpu(600));
    bench.pending(pod("b").cpu(600));
    bench.settle(1);
    bench.pending(pod("c").cpu(600));
    bench.settle(2);
    bench.values();
    let gone = bench.engine.reader().unwrap().snapshot();
    let gone = gone.pods(&portolan::model::LabelSelector::everything(), |_| true).next().unwrap();
    bench.engine.submit(Event::remove_pod(&gone.to_pod())).unwrap().wait().unwrap().unwrap();
    bench.settle(30);
    bench
}

#[test]
fn a_pod_placed_after_a_wait_is_no_longer_unschedulable_and_its_wait_is_recorded() {
    let bench = with_a_wait();
    let hint = "plugin=\"NodeResourcesFit\",event=\"AssignedPodDelete\",hint=\"Queue\"";
    check(
        &bench.values(),
        &[
            (
                &format!("scheduler_unschedulable_pods{{plugin=\"NodeResourcesFit\",{PROFILE}}}"),
                0.0,
            ),
            ("scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"}", 28.0),
            ("scheduler_pod_scheduling_attempts_sum", 4.0),
            (&format!("scheduler_queueing_hint_execution_duration_seconds_count{{{hint}}}"), 1.0),
            ("scheduler_event_handling_duration_seconds_count{event=\"AssignedPodDelete\"}", 1.0),
        ],
    );
}

#[test]
fn victims_are_counted_per_preemption() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c", "d"] {
        bench.pending(pod(name).cpu(500));
    }
    bench.settle(1);
    bench.pending(pod("high").cpu(1_000).priority(10));
    bench.settle(2);
    let values = bench.values();
    check(
        &values,
        &[
            ("scheduler_preemption_attempts_total", 1.0),
            ("scheduler_preemption_victims_count", 1.0),
            ("scheduler_preemption_victims_sum", 2.0),
            ("scheduler_preemption_victims_bucket{le=\"1.0\"}", 0.0),
            ("scheduler_preemption_victims_bucket{le=\"64.0\"}", 1.0),
        ],
    );
}

/// A plugin that lets each pod wait.
struct Waits;

impl Plugin for Waits {
    plugin!("Waits", Permit);

    fn permit(&self, _: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        Ok(Permit::Wait(Duration::from_secs(7)))
    }
}

#[test]
fn an_expired_permit_counts_as_a_wait_and_a_failed_attempt() {
    let waits = |handle: &Handle| {
        Framework::new(vec![(Box::new(Waits), 0)]).unwrap().with_handle(handle.clone())
    };
    let mut bench = Bench::with(waits);
    bench.pending(pod("a").cpu(100));
    let placement = bench.place(1).unwrap();
    assert!(bench.scheduling.bind(&placement, || Timestamp::from_secs(8)).is_err());
    check(
        &bench.values(),
        &[
            ("scheduler_permit_wait_duration_seconds_sum{result=\"Unschedulable\"}", 7.0),
            (
                &format!("scheduler_schedule_attempts_total{{result=\"unschedulable\",{PROFILE}}}"),
                1.0,
            ),
        ],
    );
}

#[test]
fn evaluations_are_counted_by_node_at_filter_and_score_and_by_pod_elsewhere() {
    let mut bench = Bench::new();
    let cordoned = node("n3").hostname().cpu(1_000).memory(64 * GI).unschedulable(true);
    bench.engine.submit(Event::add_node(cordoned.build())).unwrap().wait().unwrap().unwrap();
    let count = |bench: &Bench, plugin: &str| {
        let values = bench.values();
        ["PreFilter", "Filter", "PreScore", "Score"].map(|point| {
            let labels = format!("plugin=\"{plugin}\",extension_point=\"{point}\",{PROFILE}");
            values.get(&format!("scheduler_plugin_evaluation_total{{{labels}}}")).copied()
        })
    };
    assert_eq!(count(&bench, "NodeResourcesFit"), [Some(0.0); 4], "written from the start");
    bench.pending(pod("a").cpu(600));
    bench.settle(1);
    assert_eq!(count(&bench, "NodeUnschedulable"), [None, Some(3.0), None, None]);
    let fit = [Some(1.0), Some(2.0), Some(1.0), Some(2.0)];
    assert_eq!(count(&bench, "NodeResourcesFit"), fit, "the cordoned node has been rejected");
    let skipped = [Some(0.0); 4];
    assert_eq!(count(&bench, "InterPodAffinity"), skipped, "the pod has no terms");
    bench.pending(pod("b").cpu(600));
    bench.settle(2);
    let fit = [Some(2.0), Some(4.0), Some(1.0), Some(2.0)];
    assert_eq!(count(&bench, "NodeResourcesFit"), fit, "the only feasible node is not scored");
}

/// A plugin that rejects all pods until it opens.
#[derive(Clone, Default)]
struct Opens(Arc<AtomicBool>);

impl Plugin for Opens {
    plugin!("Opens", PreFilter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        match self.0.load(Ordering::Relaxed) {
            true => Ok(PreFilter::Skip),
            false => Err(Status::new(Code::Unschedulable, "", "closed")),
        }
    }
}

#[test]
fn a_pod_that_is_bound_after_a_flush_is_counted_unless_the_attempt_fails() {
    let opens = Opens::default();
    let plugin = opens.clone();
    let mut bench = Bench::with(|handle| {
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(plugin), 0), (default_plugin("DefaultBinder", handle).unwrap(), 0)];
        Framework::new(plugins).unwrap().with_handle(handle.clone())
    });
    let name = "scheduler_pod_scheduled_after_flush_total";
    bench.pending(pod("a").cpu(100));
    bench.settle(1);
    bench.settle(400);
    opens.0.store(true, Ordering::Relaxed);
    bench.settle(500);
    check(&bench.values(), &[(name, 0.0), ("scheduler_pod_scheduling_attempts_count", 0.0)]);
    bench.settle(800);
    check(&bench.values(), &[(name, 1.0), ("scheduler_pod_scheduling_attempts_sum", 3.0)]);
}

#[test]
fn every_metric_has_the_type_and_labels_of_kube_scheduler() {
    let bench = with_a_wait();
    bench.values();
    let text = bench.metrics.encode();
    for (name, kind) in [
        ("schedule_attempts", "counter"),
        ("scheduling_attempt_duration_seconds", "histogram"),
        ("scheduling_algorithm_duration_seconds", "histogram"),
        ("framework_extension_point_duration_seconds", "histogram"),
        ("plugin_execution_duration_seconds", "histogram"),
        ("queueing_hint_execution_duration_seconds", "histogram"),
        ("event_handling_duration_seconds", "histogram"),
        ("pod_scheduling_attempts", "histogram"),
        ("pod_scheduling_sli_duration_seconds", "histogram"),
        ("pending_pods", "gauge"),
        ("queue_incoming_pods", "counter"),
        ("unschedulable_pods", "gauge"),
        ("preemption_attempts", "counter"),
        ("preemption_victims", "histogram"),
        ("plugin_evaluation", "counter"),
        ("pod_scheduled_after_flush", "counter"),
        ("cache_size", "gauge"),
        ("goroutines", "gauge"),
    ] {
        let line = format!("# TYPE scheduler_{name} {kind}\n");
        assert_eq!(text.matches(&line).count(), 1, "{line} in {text}");
    }
    // There are sixteen buckets, the last of which is unbounded.
    let buckets = "scheduler_scheduling_attempt_duration_seconds_bucket";
    let scheduled = format!("result=\"scheduled\",{PROFILE}}}");
    let of_scheduled = |line: &&str| line.starts_with(buckets) && line.contains(&scheduled);
    assert_eq!(text.lines().filter(of_scheduled).count(), 16, "{text}");
    let last = format!("{buckets}{{le=\"+Inf\",{scheduled} 3\n");
    assert!(text.contains(&last), "{text}");
}

#[test]
fn a_pod_of_a_batch_that_cannot_be_assumed_is_a_failed_attempt() {
    let engine = Engine::shared(Config::default());
    let node = node("n").cpu(1_000).memory(64 * GI).build();
    engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
    let metrics = Metrics::new();
    let recorder = metrics.recorder("default-scheduler");
    let framework = Framework::default_profile().with_recorder(recorder, 1);
    let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let mut scheduler = Scheduler::new(engine, Profiles::one(algorithm)).unwrap();
    let pods = ["a", "b", "a"].map(|name| Arc::new(pod(name).cpu(10).build()));
    let placed = scheduler.schedule_batch(&pods, Timestamp(0));
    assert!(matches!(&placed[..], [Ok(_), Ok(_), Err(Failure::Refused(_))]), "{placed:?}");
    let failed = format!("scheduler_schedule_attempts_total{{result=\"error\",{PROFILE}}} 1");
    assert!(metrics.encode().contains(&failed), "{}", metrics.encode());
}
