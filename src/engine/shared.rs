//! The engine that any number of threads write through the log.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::log::{Event, Fold, Follower, Log, Outcome, Ticket, TrySubmitError, Unavailable};
use crate::model::Timestamp;
use crate::snapshot::Cluster;
use crate::state::CommitPolicy;
use crate::sync::{AtomicU64, Ordering};

use super::reader::Reader;
use super::writer::Writer;
use super::{Config, Figures};

const LOG_CAPACITY: usize = 4096;
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// The shortest period of a shared engine, in which a waiting loop would otherwise sweep without pause.
const SHORTEST_SWEEP_PERIOD: Duration = Duration::from_millis(1);

/// An engine that any number of threads write through its log.
///
/// [`Engine::submit`] puts an [`Event`] in the log and returns a [`Ticket`]. The events are folded in log order, in
/// batches, and a version is published after each batch. The ticket is answered after that publish, so an event whose
/// outcome is known is visible to all readers. Take the snapshot after waiting for the ticket, or wait for the
/// generation of the outcome with [`Reader::at_least`]. A ticket that is dropped
/// hides the outcome, also a rejection, and does not withdraw the event.
///
/// If one thread does all the writing, [`Engine::inline`] is simpler and needs no log.
///
/// A clone is another handle to the same engine and costs a few reference counts. When the last handle is dropped, the
/// events that are still in the log are folded. Readers survive the engine and keep its last version.
///
/// ```
/// use portolan::cache::{Config, Engine, Event};
/// use portolan::model::{node, pod};
///
/// let engine = Engine::shared(Config::default());
/// engine.submit(Event::add_node(node("node-7").cpu(4_000).build()))?.wait()??;
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
    pub(super) schedulers: RegisteredSchedulers,
    /// The period at which the callers' clocks sweep expired pods, if there may be any.
    pub(super) sweep_period: Option<Duration>,
}

/// The schedulers of an engine.
#[derive(Clone)]
pub(super) struct RegisteredSchedulers {
    /// A bit for each of the first 64 schedulers.
    registered: Arc<AtomicU64>,
    /// Whether placements are not checked, so that a second scheduler is refused.
    one_at_most: bool,
}

/// Registers a scheduler until it is dropped.
pub(crate) struct Registration {
    registered: Arc<AtomicU64>,
    /// The scheduler's bit, or 0 if all were taken.
    bit: u64,
}

impl Registration {
    /// Returns the position of the scheduler among those registered now, counted from 0, and their number.
    pub(crate) fn position(&self) -> (u32, NonZeroU32) {
        // Relaxed suffices, here and below, because the bits guard no other data.
        let registered = self.registered.load(Ordering::Relaxed);
        let before = registered & self.bit.wrapping_sub(1);
        (before.count_ones(), NonZeroU32::new(registered.count_ones()).unwrap_or(NonZeroU32::MIN))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registered.fetch_and(!self.bit, Ordering::Relaxed);
    }
}

/// The writer as the log's fold.
pub(super) struct Core {
    writer: Writer,
    sweeps: Option<Sweeps>,
    #[cfg(feature = "tracing")]
    batch: Batch,
}

/// The sweeps of a shared engine, by the times that events carry.
struct Sweeps {
    period: Duration,
    last: Option<Timestamp>,
}

impl Sweeps {
    fn is_due(&mut self, now: Timestamp) -> bool {
        // A clock that went back starts a new period.
        let is_due = self.last.is_some_and(|last| now.since(last) >= self.period);
        if is_due || self.last.is_none_or(|last| now < last) {
            self.last = Some(now);
        }
        is_due
    }
}

/// The number of events folded since the last publish.
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
        let is_sweep = matches!(event, Event::Expire(_));
        let due = match (&mut self.sweeps, event.time()) {
            (Some(sweeps), Some(now)) => (sweeps.is_due(now) && !is_sweep).then_some(now),
            _ => None,
        };
        let outcome = self.writer.take(event);
        if let Some(now) = due {
            // `expire` never returns an error.
            let _ = self.writer.expire(now);
        }
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
        self.writer.make_current();
    }

    fn clean_up(&mut self) {
        self.writer.clean_up();
    }
}

impl RegisteredSchedulers {
    fn none(config: &Config) -> RegisteredSchedulers {
        let one_at_most = matches!(config.commit_check, CommitPolicy::Unchecked);
        RegisteredSchedulers { registered: Arc::new(AtomicU64::new(0)), one_at_most }
    }
}

impl Engine {
    /// Creates an engine without a thread of its own: the submitting threads take turns at folding the events of the
    /// log, and their clocks decide when expired pods are removed ([`Config::assumed_ttl`]). The log is allocated at
    /// once ([`Config::log_capacity`]).
    #[must_use]
    pub fn shared(config: Config) -> Engine {
        Engine::open(config, Writer::new)
    }

    /// Creates a shared engine that begins with a version of another one, or with a fork, and goes on independently of
    /// it: any number of simulations can start at one cluster. They share all data that they do not change. O(1), or
    /// O(pods) with [`GodelConfig::unit_status`](crate::cache::GodelConfig::unit_status).
    ///
    /// The first generation is that of the version; later ones do not compare with those of the other engine. Stores,
    /// Gödel semantics and the index of pod names are those of the version, whatever the configuration says. An assumed
    /// pod of the version expires only after [`Event::finish_binding`], and a reservation at the earliest after its
    /// whole time to live; assumed members of pod groups count as bound.
    ///
    /// Like a [`Fork`](crate::cache::Fork), the engine holds the version in memory and never forgets a template, until
    /// [`Writer::rebuild`]. Before that, [`Writer::load`] adds pods one by one, and batches of a scheduler are committed
    /// pod by pod.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine, Event};
    /// use portolan::model::{node, pod};
    ///
    /// let engine = Engine::shared(Config::default());
    /// engine.submit(Event::add_node(node("n1").cpu(4_000).build()))?.wait()??;
    /// let trial = Engine::at(&engine.reader()?.snapshot(), Config::default());
    /// trial.submit(Event::assume(pod("p").cpu(100).build().on("n1")))?.wait()??;
    /// assert_eq!(trial.reader()?.snapshot().assumed_count(), 1);
    /// assert_eq!(engine.reader()?.snapshot().assumed_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn at(version: &Cluster, config: Config) -> Engine {
        let godel = version.godel().cloned();
        Engine::open(Config { godel, ..config }, |config| Writer::at(version, config))
    }

    fn open(config: Config, writer: impl FnOnce(Config) -> Writer) -> Engine {
        trace_event!(DEBUG, ?config, "shared engine opened");
        let schedulers = RegisteredSchedulers::none(&config);
        let period = config.sweep_period.unwrap_or(SWEEP_PERIOD).max(SHORTEST_SWEEP_PERIOD);
        let sweep_period = Some(period).filter(|_| period < Duration::MAX && config.needs_sweeps());
        let capacity = config.log_capacity.unwrap_or(LOG_CAPACITY);
        let core = Core {
            writer: writer(config),
            sweeps: sweep_period.map(|period| Sweeps { period, last: None }),
            #[cfg(feature = "tracing")]
            batch: Batch::default(),
        };
        Engine { log: Arc::new(Log::new(core, capacity)), schedulers, sweep_period }
    }

    /// Registers a scheduler. Returns `None` if the engine does not check placements and already has a scheduler.
    pub(crate) fn register_scheduler(&self) -> Option<Registration> {
        let RegisteredSchedulers { registered, one_at_most } = &self.schedulers;
        let with_next = |registered: u64| {
            let is_refused = *one_at_most && registered != 0;
            // The lowest bit that is 0, or none.
            (!is_refused).then_some(registered | registered.wrapping_add(1))
        };
        let before =
            registered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_next).ok()?;
        Some(Registration { registered: registered.clone(), bit: !before & before.wrapping_add(1) })
    }

    /// Returns the period at which callers with a clock should submit an [`Event::Expire`], or `None` if nothing
    /// expires.
    pub(crate) fn sweep_period(&self) -> Option<Duration> {
        self.sweep_period
    }

    /// Puts an event in the log, and returns a ticket for its outcome. Waits while the log is full, but never for a
    /// reader.
    ///
    /// [`Event`] and its constructors list the reasons for rejection. The ticket returns
    /// such an error; this method does not. The call may fold and publish events of this and other threads before it
    /// returns.
    ///
    /// # Errors
    ///
    /// Returns the event if the engine is closed, or if the log is full and the calling thread is inside
    /// [`Engine::with_writer`].
    ///
    /// # Panics
    ///
    /// A panic in a commit check or another callback that this call runs closes the engine and resumes here. The same
    /// applies to all methods that may fold events. A panic of a
    /// [`Store`](crate::cache::Store) does not.
    pub fn submit(&self, event: Event) -> Result<Ticket<Outcome>, Unavailable<Event>> {
        self.log.submit(event)
    }

    /// Puts an event in the log if the log is not full, and returns a ticket for its outcome.
    ///
    /// # Errors
    ///
    /// Returns the event if the log is full or the engine is closed.
    pub fn try_submit(&self, event: Event) -> Result<Ticket<Outcome>, TrySubmitError<Event>> {
        self.log.try_submit(event)
    }

    /// Runs `work` on the writer, for example to dump, audit or rebuild the state. Waits for the writer token, and
    /// blocks all other writing until `work` returns; readers are not blocked.
    ///
    /// The events in the log at the time of the call are folded first. Changes that `work` makes are visible to readers
    /// only after a publish, so call [`Writer::publish`] in `work` if necessary. `work` may submit events, but it must
    /// not wait for them, because they are folded after it has returned. This also works after [`Engine::close`].
    ///
    /// # Errors
    ///
    /// Returns an error if an earlier panic has made the state unusable, or if the calling thread is already inside
    /// `with_writer` of this engine.
    ///
    /// # Panics
    ///
    /// A panic in `work` closes the engine and resumes here.
    pub fn with_writer<R>(&self, work: impl FnOnce(&mut Writer) -> R) -> Result<R, Unavailable> {
        self.log.with(|core| {
            let thread = core.writer.thread().clone();
            let _within = thread.enter();
            work(&mut core.writer)
        })
    }

    /// Returns `true` if the engine accepts no more events: it was closed, by [`Engine::close`] or by a panic of its
    /// writer. A hint, since another thread may close it at any time.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.log.is_closed()
    }

    /// Returns `true` if the calling thread is inside [`Engine::with_writer`] of this engine, where it must not wait
    /// for the outcome of an event.
    #[doc(hidden)]
    #[must_use]
    pub fn is_within_writer(&self) -> bool {
        self.log.is_held_here()
    }

    /// Creates a reader. This waits for the writer token, so create readers rarely: keep one per thread, and clone it
    /// for others.
    ///
    /// # Errors
    ///
    /// Returns an error for the same reasons as [`Engine::with_writer`].
    pub fn reader(&self) -> Result<Reader, Unavailable> {
        self.with_writer(|writer| writer.reader())
    }

    /// Creates a follower, which receives the effects of all events that are folded from now on. Each effect is
    /// delivered after the version that contains it has been published.
    ///
    /// # Errors
    ///
    /// Returns an error for the same reasons as [`Engine::with_writer`].
    pub fn follow(&self) -> Result<Follower, Unavailable> {
        self.with_writer(Writer::follow)
    }

    /// Returns the generation of the engine, and the number of versions that are kept in memory.
    ///
    /// # Errors
    ///
    /// Returns an error for the same reasons as [`Engine::with_writer`].
    pub fn figures(&self) -> Result<Figures, Unavailable> {
        self.with_writer(|writer| writer.figures())
    }

    /// Closes the engine: later submissions are refused, and the events that were accepted before are folded. When this
    /// returns, their tickets have outcomes. If the calling thread is inside [`Engine::with_writer`], they are
    /// folded when `work` returns.
    ///
    /// A binding cycle that waits for a permit fails. Threads that wait for a version ([`Reader::at_least`]) or a note
    /// ([`Follower::next_until`]) without a deadline go on waiting until the last handle to the engine is dropped, and
    /// those that wait for a pod until the queue is closed
    /// ([`QueueFront::close`](crate::scheduler::queue::QueueFront::close)).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::GodelConfig;

    #[test]
    fn a_shared_engine_sweeps_if_a_sweep_can_change_something() {
        let sweeps = |config| Engine::shared(config).sweep_period().is_some();
        assert!(!sweeps(Config::default()));
        assert!(sweeps(Config { assumed_ttl: Some(Duration::from_secs(30)), ..Config::default() }));
        let godel = |change: fn(&mut GodelConfig)| {
            let mut godel = GodelConfig::new("godel-scheduler");
            change(&mut godel);
            sweeps(Config { godel: Some(godel), ..Config::default() })
        };
        assert!(!godel(|_| {}));
        assert!(!godel(|godel| godel.reservations = Some(Duration::ZERO)), "zero never ends");
        assert!(godel(|godel| godel.reservations = Some(Duration::from_secs(1))));
        assert!(godel(|godel| godel.unfinished_ttl = Some(Duration::from_secs(1))));
        assert!(godel(|godel| godel.deletion_marks = true));
        let never = Some(Duration::MAX);
        assert!(!sweeps(Config { assumed_ttl: never, sweep_period: never, ..Config::default() }));
    }
}
