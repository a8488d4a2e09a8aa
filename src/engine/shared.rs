//! An engine that many threads write, through the log.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::log::{
    Attendant, Event, Fold, Follower, Log, Outcome, SpawnError, Ticket, TrySubmitError, Unavailable,
};
use crate::model::Timestamp;
use crate::state::CommitPolicy;
use crate::sync::{AtomicUsize, Ordering};

use super::reader::Reader;
use super::writer::Writer;
use super::{Config, Figures};

const LOG_CAPACITY: usize = 4096;
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// An engine that any number of threads write: cloned freely, each clone the
/// same engine. The last one to go folds what is in the log.
///
/// Whoever submits an event gets a [`Ticket`] for its outcome; an event that
/// has one is in what readers see.
///
/// ```
/// use portolan::{Config, Engine};
/// use portolan::log::Event;
/// use portolan::model::{node, pod};
///
/// let engine = Engine::shared(Config::default());
/// engine.submit(Event::add_node(node("node-7").cpu(4_000).build()))?;
/// let ticket = engine.submit(Event::assume(pod("web-0").cpu(250).build().on("node-7")))?;
/// let applied = ticket.wait()??;
///
/// let snapshot = engine.reader()?.at_least(applied.generation, None)?;
/// assert_eq!(snapshot.assumed_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(super) log: Arc<Log<Core>>,
    /// Where a thread of its own writes: joined when the last engine goes.
    pub(super) attendant: Option<Arc<Attendant<Core>>>,
    pub(super) schedulers: SchedulerCount,
}

/// The number of schedulers of an engine.
#[derive(Clone)]
pub(super) struct SchedulerCount {
    count: Arc<AtomicUsize>,
    /// Placements are not checked, so a second scheduler is refused.
    one_at_most: bool,
}

/// Counts a scheduler until it is dropped.
pub(crate) struct Registration(Arc<AtomicUsize>);

impl Drop for Registration {
    fn drop(&mut self) {
        // Relaxed, here and below: the count guards no other data.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The writer as the log feeds it.
pub(super) struct Core {
    writer: Writer,
    #[cfg(feature = "tracing")]
    batch: Batch,
}

/// What was folded since the last publish.
#[cfg(feature = "tracing")]
#[derive(Default)]
struct Batch {
    events: u64,
    refused: u64,
}

impl Fold for Core {
    type Event = Event;
    type Outcome = Outcome;

    fn fold(&mut self, event: Event) -> Outcome {
        let outcome = self.writer.apply(&event);
        #[cfg(feature = "tracing")]
        {
            self.batch.events += 1;
            self.batch.refused += u64::from(outcome.is_err());
        }
        outcome
    }

    fn publish(&mut self) {
        #[cfg(feature = "tracing")]
        {
            let Batch { events, refused } = std::mem::take(&mut self.batch);
            trace_event!(TRACE, events, refused, "batch folded");
        }
        self.writer.publish();
    }

    fn tick(&mut self) {
        // The one place where the engine reads a clock: nobody passes one in.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
        // Expiry refuses nothing.
        if self.writer.expire(now).is_ok_and(|expired| expired > 0) {
            self.writer.publish();
        }
    }
}

impl SchedulerCount {
    fn of(config: &Config) -> SchedulerCount {
        let one_at_most = matches!(config.commit_check, CommitPolicy::Unchecked);
        SchedulerCount { count: Arc::new(AtomicUsize::new(0)), one_at_most }
    }
}

impl Engine {
    /// An engine whose writing the submitting threads do by turns.
    #[must_use]
    pub fn shared(config: Config) -> Engine {
        trace_event!(DEBUG, ?config, "shared engine opened");
        let schedulers = SchedulerCount::of(&config);
        Engine { log: Arc::new(Engine::log(config)), attendant: None, schedulers }
    }

    /// An engine with a thread that does all the writing, and sweeps expired
    /// pods once a period by the system's clock.
    ///
    /// # Errors
    ///
    /// The sweep period is zero, or the thread could not be started.
    pub fn spawned(config: Config) -> Result<Engine, SpawnError> {
        let period = config.sweep_period.unwrap_or(SWEEP_PERIOD);
        trace_event!(DEBUG, ?config, ?period, "spawned engine opened");
        let schedulers = SchedulerCount::of(&config);
        let log = Arc::new(Engine::log(config));
        let attendant = Attendant::spawn(log.clone(), period)?;
        Ok(Engine { log, attendant: Some(Arc::new(attendant)), schedulers })
    }

    /// Counts a scheduler; `None` if the engine checks no placements and has one already.
    pub(crate) fn register_scheduler(&self) -> Option<Registration> {
        let SchedulerCount { count, one_at_most } = &self.schedulers;
        let registration = Registration(count.clone());
        let others = count.fetch_add(1, Ordering::Relaxed);
        (others == 0 || !one_at_most).then_some(registration)
    }

    fn log(config: Config) -> Log<Core> {
        let capacity = config.log_capacity.unwrap_or(LOG_CAPACITY);
        let mut writer = Writer::new(config);
        writer.is_shared();
        let core = Core {
            writer,
            #[cfg(feature = "tracing")]
            batch: Batch::default(),
        };
        Log::new(core, capacity)
    }

    /// Puts an event in the log, waiting for room, never for a reader. [`Event`] has a constructor for each kind of
    /// event, with the reasons to refuse it; the ticket has the outcome.
    ///
    /// # Errors
    ///
    /// The engine is closed, or there is no room and the calling thread is within
    /// [`Engine::with_writer`]; the event is given back.
    pub fn submit(&self, event: Event) -> Result<Ticket<Outcome>, Unavailable<Event>> {
        self.log.submit(event)
    }

    /// Puts an event in the log if there is room.
    ///
    /// # Errors
    ///
    /// There is no room, or the engine is closed; the event is given back.
    pub fn try_submit(&self, event: Event) -> Result<Ticket<Outcome>, TrySubmitError<Event>> {
        self.log.try_submit(event)
    }

    /// Runs `work` on the writer, under the writer token: dump, audit, figures,
    /// reclaim. Everything submitted before is folded first. `work` may submit
    /// events; they are folded after it, so it must not wait for them.
    ///
    /// # Errors
    ///
    /// The engine broke down: a panic left its state in doubt. Or the calling
    /// thread is within `with_writer` of this engine already. The methods below
    /// are made of this one, and have the same errors.
    pub fn with_writer<R>(&self, work: impl FnOnce(&mut Writer) -> R) -> Result<R, Unavailable> {
        self.log.with(|core| {
            let _within = core.writer.thread().enter();
            work(&mut core.writer)
        })
    }

    /// Whether the calling thread is within [`Engine::with_writer`] of this engine, and so
    /// cannot wait for the outcome of an event.
    #[must_use]
    pub fn is_within_writer(&self) -> bool {
        self.log.is_held_here()
    }

    /// Another reader. Waits for the writer token: make readers rarely, clone
    /// them, keep them.
    ///
    /// # Errors
    ///
    /// As for [`Engine::with_writer`].
    pub fn reader(&self) -> Result<Reader, Unavailable> {
        self.with_writer(|writer| writer.reader())
    }

    /// Somebody who is told what events do, of those folded from now on.
    ///
    /// # Errors
    ///
    /// As for [`Engine::with_writer`].
    pub fn follow(&self) -> Result<Follower, Unavailable> {
        self.with_writer(Writer::follow)
    }

    /// Follows with a limit, see [`Writer::follow_at_most`].
    ///
    /// # Errors
    ///
    /// As of [`Engine::follow`].
    pub fn follow_at_most(&self, notes: NonZeroUsize) -> Result<Follower, Unavailable> {
        self.with_writer(|writer| writer.follow_at_most(notes))
    }

    /// What is kept and published.
    ///
    /// # Errors
    ///
    /// As for [`Engine::with_writer`].
    pub fn figures(&self) -> Result<Figures, Unavailable> {
        self.with_writer(|writer| writer.figures())
    }

    /// Accepts nothing more, and answers every event that was accepted.
    pub fn close(&self) {
        self.log.close();
        trace_event!(DEBUG, "engine closed");
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("log", &self.log.len()).finish_non_exhaustive()
    }
}
