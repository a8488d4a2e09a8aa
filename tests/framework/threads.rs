//! Decisions that several threads share: the same decisions, errors and calls as on one thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, NodeInfo, Writer};
use portolan::model::{Pod, node, pod};
use portolan::plugin::{
    Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Score, Status,
};
use portolan::{Algorithm, AlgorithmConfig, Decision, Failure, Framework};

/// A plugin that takes time for each node, and what it has done.
#[derive(Clone, Default)]
struct Slow {
    time: Duration,
    is_local: bool,
    /// The version of the filter, if it has one.
    version: Option<u64>,
    /// The nodes for which the filter and the score fail.
    fails: Vec<&'static str>,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    inside: Arc<AtomicUsize>,
    most_inside: Arc<AtomicUsize>,
}

struct OfPod<'a>(&'a Slow, usize);

impl Plugin for Slow {
    fn info(&self) -> PluginInfo {
        let info = PluginInfo::new("Slow", &[Point::Filter, Point::Score]);
        if self.is_local { info.local() } else { info }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(OfPod(self, salt(cycle.pod, self)))))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(OfPod(self, salt(cycle.pod, self)))))
    }
}

/// Local verdicts must not depend on the pod's name.
fn salt(pod: &Pod, slow: &Slow) -> usize {
    if slow.is_local || slow.version.is_some() { 0 } else { sum(&pod.name) }
}

fn sum(text: &str) -> usize {
    text.bytes().map(usize::from).sum()
}

impl OfPod<'_> {
    fn number(&self, node: NodeInfo<'_>) -> Result<usize, Status> {
        let OfPod(slow, salt) = self;
        let inside = slow.inside.fetch_add(1, Ordering::Relaxed) + 1;
        slow.most_inside.fetch_max(inside, Ordering::Relaxed);
        let started = Instant::now();
        while started.elapsed() < slow.time {
            std::hint::spin_loop();
        }
        slow.inside.fetch_sub(1, Ordering::Relaxed);
        *slow.calls.lock().unwrap().entry(node.name().to_string()).or_default() += 1;
        match slow.fails.contains(&&**node.name()) {
            true => Err(Status::error("Slow", format!("{} fails", node.name()))),
            false => Ok(31 * sum(node.name()) + salt),
        }
    }
}

impl Filter for OfPod<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        match self.number(node) {
            Err(status) => Some(status),
            Ok(number) => number
                .is_multiple_of(3)
                .then(|| Status::new(Code::Unschedulable, "Slow", "not this one")),
        }
    }

    fn version(&self) -> Option<u64> {
        self.0.version
    }
}

impl Score for OfPod<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        self.number(node).map(|number| (number % 101) as i64)
    }
}

fn cluster(nodes: i64) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..nodes {
        let node = node(format!("n{n}")).zone(format!("z{}", n % 3)).cpu(1_000 + n % 7);
        writer.add_node(node.memory(1 << 34).build()).unwrap();
    }
    writer
}

/// Returns the decisions on six pods for each percentage. Between two pods, some nodes change.
fn decisions(slow: &Slow, threads: usize, percentages: &[u8]) -> Vec<Result<Decision, Failure>> {
    let mut writer = cluster(2_000);
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    let mut found = Vec::new();
    for percentage_of_nodes in percentages {
        let config = AlgorithmConfig { percentage_of_nodes: *percentage_of_nodes, seed: 7 };
        let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![(Box::new(slow.clone()), 1)];
        let framework = Framework::new(plugins).unwrap();
        let mut scheduler = Algorithm::new(framework, config, Some(pool.clone()));
        for n in 0..6 {
            found.push(scheduler.schedule(writer.cluster(), &pod(format!("p{n}")).build()));
            for changed in (n..2_000).step_by(331) {
                let other = pod(format!("other-{percentage_of_nodes}-{n}-{changed}"));
                writer.add_pod(other.cpu(1).on(format!("n{changed}")).build()).unwrap();
            }
        }
    }
    found
}

const LONG: Duration = Duration::from_micros(2);

#[test]
fn decisions_of_slow_plugins_do_not_depend_on_the_number_of_threads() {
    for (is_local, version) in [(false, None), (false, Some(1)), (true, None)] {
        let slow = |time| Slow { time, is_local, version, ..Slow::default() };
        let (quick, long) = (slow(Duration::ZERO), slow(LONG));
        let alone = decisions(&quick, 1, &[10, 60, 100]);
        assert!(alone.iter().flatten().any(|decision| decision.feasible < decision.looked_at));
        assert_eq!(decisions(&long, 3, &[10, 60, 100]), alone);
        assert_eq!(*long.calls.lock().unwrap(), *quick.calls.lock().unwrap(), "calls by node");
    }
}

#[test]
fn the_error_is_that_of_the_first_node_that_fails() {
    for is_local in [false, true] {
        for percentage in [10, 100] {
            let fails = vec!["n601", "n32", "n17", "n900", "n1999"];
            let slow = |time| Slow { time, is_local, fails: fails.clone(), ..Slow::default() };
            let alone = decisions(&slow(Duration::ZERO), 1, &[percentage]);
            assert!(alone.iter().any(Result::is_err), "{alone:?}");
            assert_eq!(decisions(&slow(LONG), 3, &[percentage]), alone);
        }
    }
}

#[test]
fn slow_plugins_run_on_several_threads() {
    for percentage in [10, 100] {
        let slow = Slow { time: Duration::from_micros(50), ..Slow::default() };
        let started = Instant::now();
        // The machine may be busy.
        while slow.most_inside.load(Ordering::Relaxed) < 2 {
            decisions(&slow, 2, &[percentage]);
            assert!(started.elapsed() < Duration::from_secs(60), "only one thread");
        }
    }
}
