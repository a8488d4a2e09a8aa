//! A replay as the source: it is simulated at a pace, and its state is read once a step.
//!
//! The replay runs on a thread of its own, which is never more than a step ahead. A step in which nothing happens has no
//! reading. The readings are those of the workload's times, however long the simulation takes.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ArgGroup;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::cluster::{Contents, Loaded, PodLimit, Strict};
use crate::error::CommandError;
use crate::pod_list::PodList;
use crate::policy::Rules;
use crate::replay::run::run;
use crate::replay::{self, Follower, Mode, Progress, Settings, Source, State, WorkloadOptions};

/// The time in which the pods of a workload arrive, unless a speed is given. Short workloads take as long as they last.
const ARRIVALS: Duration = Duration::from_secs(300);

/// The options that need `--replay`.
const OPTIONS: [&str; 8] =
    ["speed", "nodes", "pods", "mode", "load", "qos_priorities", "percentage_of_nodes", "first"];

/// What is replayed, and how fast.
#[derive(clap::Args, Clone)]
#[command(
    next_help_heading = "Replay",
    group(ArgGroup::new("of_replay").args(OPTIONS).multiple(true).requires("replay"))
)]
pub(super) struct Replayed {
    /// Show the replay of a workload instead of a cluster: that of `portolan replay` with the same options.
    ///
    /// Pods arrive, are placed, wait and end in simulated time, of which each step is a reading. The last state stays.
    #[arg(long, conflicts_with_all = ["cluster", "kubeconfig", "context", "master"])]
    pub(super) replay: bool,
    /// Simulated seconds a second; in fill mode, arriving pods a second. By default, all pods arrive within 5 minutes.
    #[arg(long, value_name = "FACTOR", value_parser = replay::factor)]
    speed: Option<f64>,
    #[command(flatten)]
    options: WorkloadOptions,
}

/// The moment of a replay.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// Seconds since the first arrival, or the number of pods that have arrived.
    at: f64,
    is_timed: bool,
    /// The date of the first arrival, if the workload has dates.
    began: Option<Timestamp>,
    is_playing: bool,
}

impl Moment {
    pub(super) fn json(&self) -> Value {
        json!({
            "at": self.at,
            "unit": if self.is_timed { "seconds" } else { "pods" },
            "began": self.began.map(|began| began.to_string()),
            "is_playing": self.is_playing,
        })
    }
}

/// A replay that is played.
pub(super) struct Play {
    /// The workload's name.
    pub(super) name: String,
    shown: Mutex<Shown>,
    /// Notified when the first moment, or a failure before it, is there.
    first: Condvar,
    changes: Notify,
}

#[derive(Default)]
struct Shown {
    has_begun: bool,
    /// The newest moment that was not taken.
    newest: Option<(Loaded, Moment)>,
    failure: Option<CommandError>,
}

impl Play {
    /// Reads the workload and begins the replay.
    pub(super) fn start(
        replayed: &Replayed,
        strict: Strict,
        limit: PodLimit,
        step: Duration,
        rules: &Rules,
    ) -> Result<Arc<Play>, CommandError> {
        let options = replayed.options.clone();
        let (seed, godel) = (rules.seed, (*rules.godel).clone());
        let source = Source { strict, limit, ..Source::of(options, seed, godel) };
        let mut workload = replay::workload(&source)?;
        let span = workload.span(&source)?;
        let speed = replayed.speed.unwrap_or((span.length / ARRIVALS.as_secs_f64()).max(1.0));
        let play = Arc::new(Play {
            name: workload.name.clone(),
            shown: Mutex::default(),
            first: Condvar::new(),
            changes: Notify::new(),
        });
        let contents = workload.contents(&source);
        let player = Player {
            play: play.clone(),
            contents,
            is_timed: source.options.mode == Mode::Timed,
            began: span.began,
            speed,
            step: speed * step.as_secs_f64(),
            next: Cell::new(0.0),
            started: Cell::new(None),
            pending: Cell::default(),
        };
        let config = rules.config.clone();
        thread::spawn(move || {
            let replayed = catch_unwind(AssertUnwindSafe(|| {
                let settings = Settings {
                    config: &config,
                    arrivals: workload.arrivals.len(),
                    is_wanted: &Arc::new(AtomicBool::new(true)),
                    threads: 1,
                    progress: Progress::Hidden,
                    metrics: None,
                    keeps_samples: false,
                    seed,
                    follower: Some(&player),
                };
                run(&workload, &source, settings).map(drop)
            }));
            let replayed = replayed.unwrap_or(Err(CommandError::Panicked("the replay")));
            if let Err(error) = replayed {
                player.play.show(|shown| shown.failure = Some(error));
            }
        });
        Ok(play)
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut self.lock());
        self.first.notify_all();
        self.changes.notify_one();
    }

    /// The newest moment, unless it was taken. Waits for the first one.
    pub(super) fn take(&self) -> Result<Option<(Loaded, Moment)>, CommandError> {
        let is_early = |shown: &mut Shown| {
            !shown.has_begun && shown.newest.is_none() && shown.failure.is_none()
        };
        let shown = self.first.wait_while(self.lock(), is_early);
        let mut shown = shown.unwrap_or_else(PoisonError::into_inner);
        if !shown.has_begun
            && let Some(failure) = shown.failure.take()
        {
            return Err(failure);
        }
        shown.has_begun = true;
        Ok(shown.newest.take())
    }

    /// Waits for the next moment, for ever after the last one.
    pub(super) async fn changed(&self) {
        self.changes.notified().await;
    }

    /// Why the replay has ended too early, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.as_ref().map(CommandError::text)
    }
}

/// Takes the states of a replay at its pace.
struct Player {
    play: Arc<Play>,
    /// The contents at the start.
    contents: Contents,
    is_timed: bool,
    began: Option<Timestamp>,
    /// How much of the replay's time passes in a second.
    speed: f64,
    /// How much of it passes from one reading to the next.
    step: f64,
    /// The time of the next reading.
    next: Cell<f64>,
    /// The time of the first reading.
    started: Cell<Option<Instant>>,
    /// The pods of the last reading.
    pending: Cell<PodList>,
}

impl Follower for Player {
    fn lasts(
        &self,
        at: f64,
        until: Option<f64>,
        state: &dyn Fn() -> State,
    ) -> Result<(), CommandError> {
        let due = match (self.started.get(), until) {
            (None, _) | (_, None) => at,
            (_, Some(until)) if until <= self.next.get() => return Ok(()),
            (_, Some(_)) => self.next.get(),
        };
        match self.started.get() {
            None => self.started.set(Some(Instant::now())),
            Some(started) => {
                let passed = Duration::try_from_secs_f64(due / self.speed).unwrap_or(Duration::MAX);
                thread::sleep(passed.saturating_sub(started.elapsed()));
            }
        }
        let State { cluster, pending, claims, creation } = state();
        let contents = self.contents.during(&creation, &pending);
        let pending = PodList::of(pending, &self.pending.take());
        self.pending.set(pending.clone());
        let loaded = Loaded { contents, cluster, pending, claims };
        let Player { is_timed, began, .. } = *self;
        let moment = Moment { at: due, is_timed, began, is_playing: until.is_some() };
        self.play.show(|shown| shown.newest = Some((loaded, moment)));
        let steps = (until.unwrap_or(due).max(due) / self.step).ceil();
        self.next.set(self.step * steps.max(1.0));
        Ok(())
    }
}
