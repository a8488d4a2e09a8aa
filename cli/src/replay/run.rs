//! The replay itself.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use portolan::framework::{ScheduleError, Scheduler, SchedulerConfig};
use portolan::model::{EventError, Name, Pod};
use portolan::{Cluster, Engine, Figures, Reader};

use crate::alloc::live_bytes;
use crate::cluster;
use crate::error::Failure;
use crate::histogram;

use super::workload::Workload;
use super::{Mode, Progress, Source};

/// What came of a replay.
pub(crate) struct Outcome {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) placed: usize,
    pub(crate) failed: usize,
    /// How many failed pods met each reason on some node.
    pub(crate) reasons: BTreeMap<String, usize>,
    pub(crate) cycles: u64,
    /// Spent in cycles: version, filter, score, choice, assume.
    pub(crate) in_cycles: Duration,
    pub(crate) wall: Duration,
    /// Nanoseconds of each cycle.
    pub(crate) cycle: Histogram<u64>,
    pub(crate) figures: Figures,
    /// Live bytes of the engine at the end.
    pub(crate) bytes: i64,
    pub(crate) decision_hash: u64,
    pub(crate) usage: Vec<Usage>,
    pub(crate) threads: usize,
    pub(crate) notes: Vec<String>,
    /// Where each pod went first, by its place in the workload.
    pub(crate) placements: Vec<Option<Name>>,
    /// In timed mode, the seconds that pods which were placed waited.
    pub(crate) waits: Option<Histogram<u64>>,
    /// The cluster at the end.
    pub(crate) end: Arc<portolan::Snapshot>,
}

/// Requested and allocatable amounts of one resource.
pub(crate) struct Usage {
    pub(crate) resource: String,
    pub(crate) requested: i64,
    pub(crate) allocatable: i64,
    /// The most that was requested at any time.
    pub(crate) peak: i64,
}

struct Replay<'a> {
    engine: Engine,
    reader: Reader,
    scheduler: Scheduler,
    bar: ProgressBar,
    hash: DefaultHasher,
    outcome: Outcome,
    workload: &'a Workload,
    /// Where each pod is, by its place in the workload.
    on: Vec<Option<Name>>,
    cpu: i64,
    peak_cpu: i64,
}

pub(crate) fn run(
    workload: &Workload,
    source: &Source,
    config: Option<&PathBuf>,
    (threads, progress): (u16, Progress),
) -> Result<Outcome, Failure> {
    let before = live_bytes();
    let threads = usize::from(threads);
    let pool = match threads {
        1 => None,
        threads => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            Some(Arc::new(pool.map_err(|error| Failure::Threads(error.to_string()))?))
        }
    };
    let engine = Engine::shared(portolan::Config::default());
    let reader = engine.reader().map_err(closed)?;
    let decides = cluster::decides(config, None)?;
    let percentage_of_nodes = match source.percentage_of_nodes {
        0 => decides.percentage_of_nodes.unwrap_or(0),
        given => given,
    };
    let config = SchedulerConfig { percentage_of_nodes, seed: source.seed };
    let bar = ProgressBar::new(workload.arrivals.len() as u64).with_style(
        ProgressStyle::with_template("{msg:<8} {wide_bar} {pos}/{len} pods {per_sec} eta {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message("replay");
    if progress == Progress::Hidden {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let mut replay = Replay {
        scheduler: Scheduler::new(decides.framework, config, pool),
        bar,
        hash: DefaultHasher::new(),
        outcome: Outcome {
            nodes: workload.nodes.len(),
            pods: workload.arrivals.len(),
            placed: 0,
            failed: 0,
            reasons: BTreeMap::new(),
            cycles: 0,
            in_cycles: Duration::ZERO,
            wall: Duration::ZERO,
            cycle: histogram()?,
            figures: engine.figures().map_err(closed)?,
            bytes: 0,
            decision_hash: 0,
            usage: Vec::new(),
            threads,
            notes: workload.notes.clone(),
            placements: vec![None; workload.arrivals.len()],
            waits: match source.mode {
                Mode::Fill => None,
                Mode::Timed => Some(histogram()?),
            },
            end: reader.snapshot(),
        },
        on: vec![None; workload.arrivals.len()],
        workload,
        engine,
        reader,
        cpu: 0,
        peak_cpu: 0,
    };
    let started = Instant::now();
    replay.load()?;
    match source.mode {
        Mode::Fill => replay.fill()?,
        Mode::Timed => replay.timed()?,
    }
    replay.bar.finish_and_clear();
    replay.outcome.wall = started.elapsed();
    replay.finish(before)
}

fn closed(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("the engine stopped: {error}"))
}

fn refused(pod: &Pod, error: EventError) -> Failure {
    Failure::Refused { object: format!("pod {}/{}", pod.namespace(), pod.name), error }
}

impl Replay<'_> {
    fn load(&mut self) -> Result<(), Failure> {
        for object in &self.workload.objects {
            self.event(portolan::log::Event::PutObject(Arc::new(object.clone())))?
                .map_err(|error| Failure::Refused { object: object.name().to_string(), error })?;
        }
        for node in &self.workload.nodes {
            self.event(portolan::log::Event::AddNode(Arc::new(node.clone())))?
                .map_err(|error| Failure::Refused { object: node.name.to_string(), error })?;
        }
        for pod in &self.workload.placed {
            self.event(portolan::log::Event::AddPod(Arc::new(pod.clone())))?
                .map_err(|error| refused(pod, error))?;
        }
        Ok(())
    }

    fn event(&self, event: portolan::log::Event) -> Result<portolan::log::Outcome, Failure> {
        self.engine.submit(event).map_err(|_| closed("it is closed"))?.wait().map_err(closed)
    }

    fn fill(&mut self) -> Result<(), Failure> {
        for at in 0..self.workload.arrivals.len() {
            if let Some(error) = self.place(at)? {
                self.fail(&error);
            }
            self.bar.inc(1);
        }
        Ok(())
    }

    /// One cycle; why the pod cannot be placed, if it cannot.
    fn place(&mut self, at: usize) -> Result<Option<ScheduleError>, Failure> {
        let pod = &self.workload.arrivals[at].pod;
        let started = Instant::now();
        let decided = match self.scheduler.framework().pre_enqueue(pod) {
            Ok(()) => self.scheduler.schedule(self.reader.refresh(), pod),
            // Nobody takes its gates away here.
            Err(status) => Err(status.into()),
        };
        let assumed = match &decided {
            Ok(decision) => {
                let pod = pod.clone().on(decision.node.clone());
                let assumed = self.engine.assume_pod(pod).map_err(|_| closed("it is closed"))?;
                Some(assumed.wait().map_err(closed)?)
            }
            Err(_) => None,
        };
        let took = started.elapsed();
        self.outcome.cycles += 1;
        self.outcome.in_cycles += took;
        self.outcome.cycle.saturating_record(took.as_nanos() as u64);
        (&*pod.name, decided.as_ref().ok().map(|d| &*d.node)).hash(&mut self.hash);
        match (decided, assumed) {
            (Ok(decision), Some(assumed)) => {
                assumed.map_err(|error| refused(pod, error))?;
                // What the API server would tell: the pod is bound.
                let bound = pod.clone().on(decision.node.clone());
                self.event(portolan::log::Event::AddPod(Arc::new(bound)))?
                    .map_err(|error| refused(pod, error))?;
                self.outcome.placed += 1;
                self.outcome.placements[at].get_or_insert_with(|| decision.node.clone());
                self.on[at] = Some(decision.node);
                self.cpu += pod.template.resources.placed.cpu.0;
                self.peak_cpu = self.peak_cpu.max(self.cpu);
                Ok(None)
            }
            (Err(error), _) => Ok(Some(error)),
            (Ok(_), None) => Ok(None),
        }
    }

    fn fail(&mut self, error: &ScheduleError) {
        self.outcome.failed += 1;
        match error {
            ScheduleError::Fit(fit) => {
                for reason in fit.reasons.keys() {
                    *self.outcome.reasons.entry(reason.clone()).or_insert(0) += 1;
                }
            }
            other => *self.outcome.reasons.entry(other.to_string()).or_insert(0) += 1,
        }
    }

    /// Arrivals and ends in the order of their times; who finds no place waits
    /// for the next end.
    fn timed(&mut self) -> Result<(), Failure> {
        let mut events = Vec::new();
        for (at, arrival) in self.workload.arrivals.iter().enumerate() {
            let (from, to) = arrival.times.ok_or_else(|| {
                Failure::Usage("the pods have no times: use --mode fill".to_owned())
            })?;
            events.push((from, 1, at));
            events.push((to.max(from), 0, at));
        }
        // Ends before arrivals of the same second, but a pod's own end last.
        events.sort_by_key(|(time, arrives, at)| {
            let (from, to) = self.workload.arrivals[*at].times.unwrap_or_default();
            (*time, if from == to { 1 + (1 - *arrives) } else { *arrives }, *at)
        });
        let mut waiting: VecDeque<usize> = VecDeque::new();
        for (now, arrives, at) in events {
            if arrives == 1 {
                match self.place(at)? {
                    Some(_) => waiting.push_back(at),
                    None => self.waited(at, now),
                }
                self.bar.inc(1);
                continue;
            }
            if let Some(position) = waiting.iter().position(|waits| *waits == at) {
                waiting.remove(position);
                match self.place(at)? {
                    Some(error) => self.fail(&error),
                    None => self.waited(at, now),
                }
            }
            let Some(node) = self.on[at].take() else { continue };
            let pod = self.workload.arrivals[at].pod.clone().on(node);
            self.cpu -= pod.template.resources.placed.cpu.0;
            let event = portolan::log::Event::RemovePod {
                uid: pod.uid.clone(),
                node: pod.node_name.clone(),
            };
            self.event(event)?.map_err(|error| refused(&pod, error))?;
            let mut still = VecDeque::new();
            while let Some(waits) = waiting.pop_front() {
                match self.place(waits)? {
                    Some(_) => still.push_back(waits),
                    None => self.waited(waits, now),
                }
            }
            waiting = still;
        }
        Ok(())
    }

    /// Notes how long a pod waited that was placed now.
    fn waited(&mut self, at: usize, now: i64) {
        let (from, _) = self.workload.arrivals[at].times.unwrap_or_default();
        if let Some(waits) = &mut self.outcome.waits {
            waits.saturating_record(now.saturating_sub(from).max(0).unsigned_abs());
        }
    }

    fn finish(mut self, before: i64) -> Result<Outcome, Failure> {
        self.engine.with_writer(|writer| writer.reclaim()).map_err(closed)?;
        let snapshot = self.reader.snapshot();
        self.outcome.usage = usage(&snapshot);
        self.outcome.end = snapshot;
        for usage in &mut self.outcome.usage {
            usage.peak = usage.requested;
            if usage.resource == "cpu" {
                usage.peak = usage.requested.max(self.peak_cpu);
                if usage.peak * 10 < usage.allocatable {
                    let share = usage.peak as f64 * 100.0 / usage.allocatable as f64;
                    self.outcome.notes.push(format!(
                        "the cluster stays nearly idle: at most {share:.1} % of its cpu is requested \
                         at any time; --mode fill shows it full"
                    ));
                }
            }
        }
        self.outcome.figures = self.engine.figures().map_err(closed)?;
        self.outcome.bytes = live_bytes() - before;
        self.outcome.decision_hash = self.hash.finish();
        Ok(self.outcome)
    }
}

fn usage(cluster: &Cluster) -> Vec<Usage> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut add = |name: &str, requested: i64, allocatable: i64| {
        let sum = sums.entry(name.to_owned()).or_default();
        sum.0 = sum.0.saturating_add(requested);
        sum.1 = sum.1.saturating_add(allocatable);
    };
    for node in cluster.nodes() {
        let (requested, allocatable) = (node.requested(), node.allocatable());
        add("cpu", requested.cpu.0, allocatable.cpu.0);
        add("memory", requested.memory.0, allocatable.memory.0);
        add("pods", node.pod_count() as i64, node.allowed_pods());
        for (name, amount) in allocatable.scalars.iter() {
            add(name, requested.scalars.get(name).unwrap_or(0), amount);
        }
    }
    sums.into_iter()
        .map(|(resource, (requested, allocatable))| Usage {
            resource,
            requested,
            allocatable,
            peak: requested,
        })
        .collect()
}
