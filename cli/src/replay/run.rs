//! The parts of a replay that are the same with and without the scheduling queue.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use portolan::cache::{Cluster, Engine, Event, Figures, Reader, Snapshot};
use portolan::metrics::Metrics;
use portolan::model::{Name, Pod};
use portolan::plugin::{Cycle, CycleState};
use portolan::scheduler::queue::QueueConfig;
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles};
use serde_json::Value;

use crate::alloc::live_bytes;
use crate::error::CommandError;
use crate::policy;
use crate::simulation::{self, Stage, closed, refused};
use crate::text::shortened;
use crate::{histogram, metrics, terminal};

use super::follower::{Follower, State};
use super::meter::{Meter, Usage, Waiting, usage};
use super::samples::Samples;
use super::workload::Workload;
use super::{Mode, Progress, Source, plain, queued};

/// The result of a replay.
pub(crate) struct Outcome {
    /// The configuration, the profile and the seed.
    pub(crate) run: String,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) placed: usize,
    pub(crate) failed: usize,
    /// The number of failed pods per reason; a pod counts once for each of its reasons.
    pub(crate) reasons: BTreeMap<String, usize>,
    pub(crate) cycles: u64,
    /// Time in cycles: snapshot, filter, score, selection and assume; with the queue, pop, preemption and binding as
    /// well.
    pub(crate) in_cycles: Duration,
    pub(crate) wall: Duration,
    /// Nanoseconds of each cycle.
    pub(crate) cycle: Histogram<u64>,
    pub(crate) figures: Figures,
    /// The engine's live bytes at the end.
    pub(crate) bytes: i64,
    pub(crate) decision_hash: u64,
    pub(crate) usage: Vec<Usage>,
    pub(crate) threads: usize,
    pub(crate) notes: Vec<String>,
    /// A warning about the configuration.
    pub(crate) warning: Option<String>,
    /// The last run and the failure of each pod, in workload order.
    pub(crate) fates: Vec<Fate>,
    /// The first node of each pod, in workload order.
    pub(crate) placements: Vec<Option<Name>>,
    /// In timed mode, the seconds from the first arrival to the last event.
    pub(crate) duration: Option<f64>,
    /// In timed mode, the seconds from each pod's arrival to its first placement.
    pub(crate) waits: Option<Histogram<u64>>,
    /// The number of preempted pods; none without the queue.
    pub(crate) preempted: Option<usize>,
    /// In timed mode, the share of the time in which each node was in use; other nodes never were.
    pub(crate) busy: Option<HashMap<Name, f64>>,
    /// Samples over time, if they are kept.
    pub(crate) samples: Option<Samples>,
    /// The date of the first arrival, if the workload has dates.
    pub(crate) began: Option<jiff::Timestamp>,
    /// The cluster at the end.
    pub(crate) end: Arc<Snapshot>,
}

/// The outcome of a pod. Times are seconds on the clock of the workload, in timed mode only.
#[derive(Clone, Default)]
pub(crate) struct Fate {
    /// The node of the last placement, even if the pod has ended.
    pub(crate) node: Option<Name>,
    pub(crate) arrived: Option<f64>,
    /// When the pod was first placed.
    pub(crate) first_placed: Option<f64>,
    pub(crate) placed: Option<f64>,
    pub(crate) ended: Option<f64>,
    /// Why the pod has no node.
    pub(crate) why: String,
}

/// How a workload is replayed.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    pub(crate) config: &'a policy::Text,
    /// How many pods of the workload arrive.
    pub(crate) arrivals: usize,
    /// `false` once the result is no longer needed.
    pub(crate) is_wanted: &'a Arc<AtomicBool>,
    pub(crate) threads: u16,
    pub(crate) progress: Progress,
    pub(crate) metrics: Option<&'a Metrics>,
    /// Whether samples are kept for a page.
    pub(crate) keeps_samples: bool,
    /// The seed for breaking ties.
    pub(crate) seed: u64,
    pub(crate) follower: Option<&'a dyn Follower>,
}

/// A running replay.
pub(super) struct Replay<'a> {
    pub(super) engine: Engine,
    pub(super) reader: Reader,
    pub(super) bar: ProgressBar,
    pub(super) outcome: Outcome,
    pub(super) workload: &'a Workload,
    pub(super) meter: Meter,
    pub(super) metrics: Option<&'a Metrics>,
    /// How many pods of the workload arrive.
    pub(super) arrivals: usize,
    follower: Option<&'a dyn Follower>,
    is_wanted: &'a AtomicBool,
    hash: DefaultHasher,
}

pub(crate) fn run(
    workload: &Workload,
    source: &Source,
    settings: Settings<'_>,
) -> Result<Outcome, CommandError> {
    let before = live_bytes();
    let claims = workload.claims();
    let engine = workload.engine(&source.godel, claims.as_ref(), settings.follower.is_some());
    let stage = Stage::new(engine.clone(), claims, settings.metrics)?;
    let stage = stage.while_wanted(settings.is_wanted.clone());
    let reader = engine.reader().map_err(closed)?;
    let Schedulers { of: schedulers, queue, notes, warning, run } =
        Schedulers::new(workload, source, settings, &stage)?;
    let outcome = Outcome {
        run,
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
        threads: usize::from(settings.threads),
        notes: workload.notes.iter().cloned().chain(notes).collect(),
        warning,
        fates: vec![Fate::default(); workload.arrivals.len()],
        placements: vec![None; workload.arrivals.len()],
        duration: None,
        waits: match source.options.mode {
            Mode::Fill => None,
            Mode::Timed => Some(histogram()?),
        },
        preempted: None,
        busy: None,
        samples: None,
        began: None,
        end: reader.snapshot(),
    };
    let mut replay = Replay {
        bar: bar(workload, settings.progress),
        hash: DefaultHasher::new(),
        meter: Meter::new(&reader.snapshot(), false),
        metrics: settings.metrics,
        arrivals: settings.arrivals.min(workload.arrivals.len()),
        follower: settings.follower,
        is_wanted: settings.is_wanted,
        outcome,
        workload,
        engine,
        reader,
    };
    let started = Instant::now();
    replay.load()?;
    replay.meter = Meter::new(&replay.reader.snapshot(), settings.keeps_samples);
    replay.meter.sample(0.0, Waiting::default);
    replay.lasts(0.0, Some(0.0), &|cluster| {
        let (claims, creation) = (stage.claims.clone(), workload.creation.clone());
        State { cluster, pending: Vec::new(), claims, creation }
    })?;
    place(&mut replay, stage, (schedulers, queue), source)?;
    replay.bar.finish_and_clear();
    replay.outcome.wall = started.elapsed();
    replay.finish(before)
}

/// Places the pods, without the scheduling queue if that makes no difference.
fn place(
    replay: &mut Replay<'_>,
    stage: Stage,
    (mut schedulers, queue): (Vec<(Name, Algorithm)>, QueueConfig),
    source: &Source,
) -> Result<(), CommandError> {
    let (workload, snapshot) = (replay.workload, replay.reader.snapshot());
    let plain = (source.options.mode == Mode::Fill && !workload.needs_queue())
        .then(|| schedulers.pop_if(|(name, _)| name.is_empty()))
        .flatten();
    match plain {
        Some((_, scheduler)) if are_local(scheduler.framework(), &snapshot, workload) => {
            plain::run(replay, scheduler)
        }
        other => {
            schedulers.extend(other);
            replay.outcome.preempted = Some(0);
            let framework = |(name, of): &(Name, Algorithm)| (name.clone(), of.framework().clone());
            let frameworks = Profiles::by_name(schedulers.iter().map(framework));
            let simulation = stage.with_schedulers(schedulers, queue)?;
            queued::run(replay, simulation, frameworks, source)
        }
    }
}

/// Whether the verdicts on a node depend on its own pods only. Rules that only the configuration sets, such as default
/// spread constraints, are considered. O(templates × plugins).
fn are_local(framework: &Framework, cluster: &Cluster, workload: &Workload) -> bool {
    let mut known = HashSet::new();
    let mut pods = workload.arrivals.iter().map(|arrival| &arrival.pod);
    pods.all(|pod| {
        let state = CycleState::default();
        !known.insert(Arc::as_ptr(&pod.template))
            || framework.pre_filter(Cycle::new(cluster, pod, &state)).are_local()
    })
}

/// The schedulers of a replay.
struct Schedulers {
    /// One without a name for all pods, or several, each for the pods that name it.
    of: Vec<(Name, Algorithm)>,
    queue: QueueConfig,
    notes: Vec<String>,
    warning: Option<String>,
    /// The configuration, the profiles and the seed.
    run: String,
}

impl Schedulers {
    fn new(
        workload: &Workload,
        source: &Source,
        settings: Settings<'_>,
        stage: &Stage,
    ) -> Result<Schedulers, CommandError> {
        let pool = match usize::from(settings.threads) {
            1 => None,
            threads => {
                // The scheduling thread is another one.
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads - 1).build();
                Some(Arc::new(pool.map_err(|error| CommandError::Threads(error.to_string()))?))
            }
        };
        let policies = settings.config.policies(&stage.handle, stage.backend.clone())?;
        let mut notes = policies.notes;
        let names: Vec<&str> =
            policies.profiles.iter().map(|profile| &*profile.scheduler_name).collect();
        let file = settings.config.file().map_or_else(
            || "default configuration".to_owned(),
            |file| format!("configuration {}", shortened(&file.display().to_string(), 60)),
        );
        let profiles = if names.len() == 1 { "profile" } else { "profiles" };
        let run = format!("{file}, {profiles} {}, seed {}", names.join(", "), settings.seed);
        let is_for_all = names.len() == 1;
        let pods = || workload.arrivals.iter().map(|arrival| &arrival.pod);
        notes.extend(source.godel.not_dispatched(pods()));
        let warning = match is_for_all {
            true => {
                notes.extend(workload.foreign(names[0]));
                None
            }
            false => policy::unscheduled(pods(), &names).map(|what| format!("{file}: {what}")),
        };
        let each = policies.profiles.into_iter().map(|profile| {
            let percentage_of_nodes = match source.options.percentage_of_nodes {
                0 => profile.percentage_of_nodes.unwrap_or(0),
                given => given,
            };
            let name = profile.scheduler_name;
            let framework = metrics::record(profile.framework, settings.metrics, &name);
            let config = AlgorithmConfig { percentage_of_nodes, seed: settings.seed };
            let name = if is_for_all { Name::default() } else { name.into() };
            let algorithm = Algorithm::new(framework, config, pool.clone());
            (name, source.godel.partitioned(algorithm))
        });
        // Without the check, thousands of attempts would fail again.
        let queue = QueueConfig { checks_left_nodes: true, ..policies.queue };
        Ok(Schedulers { of: each.collect(), queue, notes, warning, run })
    }
}

fn bar(workload: &Workload, progress: Progress) -> ProgressBar {
    match progress {
        Progress::Hidden => ProgressBar::hidden(),
        Progress::Shown => {
            let pods = workload.arrivals.len() as u64;
            terminal::progress("replaying", pods, terminal::Of::Items("pods"))
        }
    }
}

impl Outcome {
    /// The samples for a page.
    pub(crate) fn series(&self) -> Option<Value> {
        let is_timed = self.waits.is_some();
        self.samples.as_ref().map(|samples| samples.json(is_timed, self.began, self.duration))
    }
}

impl Replay<'_> {
    fn load(&mut self) -> Result<(), CommandError> {
        if let Some(existing) = &self.workload.existing {
            for arrival in &self.workload.arrivals {
                if let Some(placed) = existing.cluster.pod(&arrival.pod.uid) {
                    let placed = placed.to_pod();
                    self.event(Event::remove_pod(&placed))?
                        .map_err(|error| refused(&placed, error))?;
                }
            }
            return Ok(());
        }
        for object in &self.workload.objects {
            self.event(Event::PutObject(object.clone()))?.map_err(|error| {
                CommandError::Refused { object: object.name().to_string(), error }
            })?;
        }
        for node in &self.workload.nodes {
            self.event(Event::AddNode(Arc::new(node.clone())))?
                .map_err(|error| CommandError::Refused { object: node.name.to_string(), error })?;
        }
        for pod in &self.workload.placed {
            self.event(Event::AddPod(Arc::new(pod.clone())))?
                .map_err(|error| refused(pod, error))?;
        }
        Ok(())
    }

    pub(super) fn event(&self, event: Event) -> Result<portolan::cache::Outcome, CommandError> {
        simulation::event(&self.engine, event)
    }

    /// Reports how long a state lasts to the follower, if there is one.
    pub(super) fn lasts(
        &self,
        at: f64,
        until: Option<f64>,
        state: &dyn Fn(Arc<Snapshot>) -> State,
    ) -> Result<(), CommandError> {
        let Some(follower) = self.follower else { return Ok(()) };
        follower.lasts(at, until, &|| state(self.reader.snapshot()))
    }

    /// Fails if the result is no longer needed.
    pub(super) fn check_wanted(&self) -> Result<(), CommandError> {
        // Relaxed: a later pod sees it, and nothing else is passed by it.
        match self.is_wanted.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(CommandError::Withdrawn),
        }
    }

    /// Records the decision for a pod, and its duration.
    pub(super) fn note_cycle(&mut self, pod: &Pod, node: Option<&Name>, took: Duration) {
        self.outcome.cycles += 1;
        self.outcome.in_cycles += took;
        self.outcome.cycle.saturating_record(took.as_nanos() as u64);
        (&*pod.name, node.map(|node| &**node)).hash(&mut self.hash);
    }

    /// Records a failed pod with its reasons.
    fn note_failed(&mut self, reasons: impl IntoIterator<Item = String>) {
        self.outcome.failed += 1;
        for reason in reasons {
            *self.outcome.reasons.entry(reason).or_insert(0) += 1;
        }
    }

    /// Records a failed pod of the workload with its reasons.
    pub(super) fn note_failed_at(&mut self, at: usize, reasons: Vec<String>) {
        if let Some(fate) = self.outcome.fates.get_mut(at) {
            fate.node = None;
            fate.why = reasons.join("; ");
        }
        self.note_failed(reasons);
    }

    fn finish(mut self, before: i64) -> Result<Outcome, CommandError> {
        self.engine.with_writer(|writer| writer.reclaim()).map_err(closed)?;
        let snapshot = self.reader.snapshot();
        self.outcome.usage = usage(&snapshot);
        self.outcome.end = snapshot;
        let is_timed = self.outcome.waits.is_some();
        for usage in &mut self.outcome.usage {
            usage.peak = usage.requested.max(self.meter.peak(&usage.resource));
            usage.mean = self.meter.mean(&usage.resource);
            let is_idle = usage.peak.saturating_mul(10) < usage.allocatable;
            if is_timed && usage.resource == "cpu" && is_idle {
                let share = usage.peak as f64 * 100.0 / usage.allocatable as f64;
                self.outcome.notes.push(format!(
                    "the cluster is nearly idle: at most {share:.1} % of its cpu is requested at \
                     any time; use --mode fill, or --mode timed with a larger --load"
                ));
            }
        }
        self.outcome.figures = self.engine.figures().map_err(closed)?;
        if let Some(metrics) = self.metrics {
            metrics.engine(&self.outcome.figures, &self.outcome.end);
        }
        self.outcome.busy = self.meter.busy();
        self.outcome.samples = self.meter.into_samples();
        self.outcome.bytes = live_bytes() - before;
        self.outcome.decision_hash = self.hash.finish();
        Ok(self.outcome)
    }
}
