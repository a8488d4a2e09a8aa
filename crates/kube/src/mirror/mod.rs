//! Keeps an engine equal to an API server.
//!
//! ```text
//! API server ──▶ reflector (a task per kind) ──▶ sink ──▶ events ──▶ thread ──▶ engine
//!                lists, watches, resumes         rules    bounded    tickets
//!                                                  └────▶ pod index
//! ```
//!
//! - Changes of one kind keep their order. Changes of different kinds are not ordered, as in Kubernetes: a pod may
//!   arrive before its node, which the engine allows.
//! - Objects are parsed from the bytes of the network, one at a time, without a tree of values. Only a list of a kind
//!   other than pods is collected before it is submitted.
//! - Backpressure: a slow engine slows down reading from the network.
//!
//! ```no_run
//! use portolan::cache::{Config, Engine};
//! use portolan_kube::api::{Api, Limits};
//! use portolan_kube::mirror::{Mirror, Options};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let api = Api::new(kube::Config::infer().await?, Limits::default())?;
//! let engine = Engine::shared(Config::default());
//! let pods = std::sync::Arc::default();
//! let mirror = Mirror::start(api, engine.clone(), pods, Options::new(["default-scheduler"]))?;
//! mirror.synced().await?;
//! assert!(engine.reader()?.snapshot().node_count() > 0, "a scheduler may start");
//! # Ok(())
//! # }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `reflector` | lists and watches one kind |
//! | `wire` | watch lines, pages and metadata |
//! | `sink`, `pod_sink`, `objects` | turn objects into events |
//! | `devices` | passes devices and claims to their store |
//! | `pod_rules` | kube-scheduler's rules for pods |
//! | `pods`, `table`, `status` | the index of pods |
//! | `raw` | objects as the server sent them, for extenders |
//! | `copies` | objects of any kinds beside an engine |
//! | `submit` | the thread that submits events |
//! | `figures`, `backoff`, `options` | figures, pauses, options |

mod backoff;
mod copies;
mod devices;
mod figures;
mod objects;
mod options;
mod pod_rules;
mod pod_sink;
mod pods;
mod raw;
mod reflector;
mod sink;
mod status;
mod submit;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::{Arc, Mutex};
use std::thread;

use portolan::cache::{Engine, Reader};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::api::{Api, ApiError, Resource};
use crate::debug::debug_by;
use crate::lock::lock;

pub use backoff::Pauses;
pub use copies::{Changes, Copies, Unread};
pub use figures::{KindFigures, KindStatus};
pub use options::Options;
pub use pods::{Condition, KnownPod, PendingStatus, PodIndex};
pub(crate) use raw::{RawKinds, RawObjects};
pub(crate) use status::PodStatus;

use devices::{DeviceKind, DeviceSink};
use figures::{Board, KindState, StopOnDrop};
use objects::{Nodes, ObjectSink, Objects};
use options::UNFINISHED;
use pod_rules::PodRules;
use pod_sink::PodSink;
use raw::{RawKind, RawSink};
use reflector::Reflector;
use sink::Sink;
pub(crate) use submit::Observer;
use submit::{Events, Stopped};
use wire::Page;

/// Why a mirror cannot start, or why an operation on it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// There is no tokio runtime to run the reflectors.
    #[error("start the mirror within a tokio runtime")]
    NoRuntime,
    /// The system could not start the thread that submits events.
    #[error("the mirror's thread was not started: {0}")]
    Thread(std::io::Error),
    /// The engine does not store objects of the kind.
    #[error("the engine does not store objects of kind {0}: leave it out of the resources")]
    UnknownKind(&'static str),
    /// The mirror does not read objects of the kind.
    #[error("objects of kind {0} are not mirrored")]
    NotMirrored(&'static str),
    /// The mirror was stopped, or the engine was closed.
    #[error("the mirror has stopped")]
    Stopped,
    /// A list or watch failed, and is repeated.
    #[error("{0}")]
    Failed(String),
    /// The server failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The mirror has not reached a version in time.
    #[error(
        "the mirror is at version {seen} of the pods and did not reach version {wanted} in time"
    )]
    Behind {
        /// The last version that the mirror has seen.
        seen: u64,
        /// The version of the server.
        wanted: u64,
    },
}

impl From<Stopped> for MirrorError {
    fn from(Stopped: Stopped) -> MirrorError {
        MirrorError::Stopped
    }
}

/// Keeps an engine equal to an API server, until it is stopped or dropped.
pub struct Mirror {
    api: Api,
    options: Options,
    pods: Arc<PodIndex>,
    board: Arc<Board>,
    running: Mutex<Running>,
    /// Whether the reflectors may read.
    may_read: watch::Sender<bool>,
}

struct Running {
    tasks: Vec<JoinHandle<()>>,
    /// `None` after the mirror was stopped.
    events: Option<Events>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Mirror {
    /// Starts to list and watch all kinds, on the current tokio runtime and one thread. An engine must have at most one
    /// mirror, and nothing else may add or remove objects of the kinds that the mirror reads, except that schedulers
    /// assume and forget pods. The mirror fills `pods`, which must be empty. Waits for the engine's writer once.
    ///
    /// The rules for pods are kube-scheduler's, so leave [`Config::godel`](portolan::cache::Config::godel) unset.
    ///
    /// # Errors
    ///
    /// There is no runtime, the thread cannot be started, or the engine is closed or does not store one of the kinds.
    pub fn start(
        api: Api,
        engine: Engine,
        pods: Arc<PodIndex>,
        options: Options,
    ) -> Result<Mirror, MirrorError> {
        Mirror::observed(api, engine, pods, options, None)
    }

    /// Like [`Mirror::start`], with an observer of the events.
    pub(crate) fn observed(
        api: Api,
        engine: Engine,
        pods: Arc<PodIndex>,
        options: Options,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Mirror, MirrorError> {
        let runtime = Handle::try_current().map_err(|_| MirrorError::NoRuntime)?;
        let mut reader = engine.reader().map_err(|_| MirrorError::Stopped)?;
        let has_devices = devices::are_stored(&reader.snapshot());
        reader.release();
        let resources = options.with_devices(has_devices);
        let is_unknown = |resource: &&Resource| {
            !matches!(**resource, Resource::PODS | Resource::NODES)
                && options::object_kind(resource).is_none()
                && !(has_devices && DeviceKind::of(resource).is_some())
        };
        if let Some(unknown) = resources.iter().find(is_unknown) {
            return Err(MirrorError::UnknownKind(unknown.kind));
        }
        let board = Arc::new(Board::new(&resources));
        let (events, thread) = Events::start(engine, pods.clone(), board.clone(), observer)
            .map_err(MirrorError::Thread)?;
        let may_read = watch::Sender::new(!options.is_delayed);
        let start = Start {
            api: &api,
            options: &options,
            events: &events,
            reader: &reader,
            may_read: &may_read,
            board: &board,
        };
        let tasks = board.kinds().iter().map(|kind| start.kind(&runtime, kind, &pods)).collect();
        let running = Mutex::new(Running { tasks, events: Some(events), thread: Some(thread) });
        Ok(Mirror { api, options, pods, board, running, may_read })
    }

    /// Starts to read, if the mirror was delayed ([`Options::is_delayed`]).
    pub fn resume(&self) {
        self.may_read.send_replace(true);
    }

    /// Returns the index of pods.
    #[must_use]
    pub fn pods(&self) -> &Arc<PodIndex> {
        &self.pods
    }

    /// Returns whether the first list of every kind has been applied, except for kinds that the server does not serve.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.readiness().is_synced()
    }

    /// Returns a handle that reports whether the mirror is synced.
    pub(crate) fn readiness(&self) -> Readiness {
        Readiness(self.board.clone())
    }

    /// Waits until the first list of every kind is in the published version, except for kinds that the server does not
    /// serve. A kind that the server forbids to read delays this until reading it is allowed.
    ///
    /// # Errors
    ///
    /// The mirror has stopped.
    pub async fn synced(&self) -> Result<(), MirrorError> {
        self.board.wait_until(|| self.is_synced()).await;
        if self.board.is_stopped() { Err(MirrorError::Stopped) } else { Ok(()) }
    }

    /// Waits until the mirror no longer follows the server: it was stopped, a task has panicked, or the engine was
    /// closed.
    pub async fn ended(&self) {
        self.board.wait_until(|| false).await;
    }

    /// Returns the figures of each kind. O(kinds).
    #[must_use]
    pub fn figures(&self) -> Vec<KindFigures> {
        let figures = self.board.kinds().iter().map(|kind| {
            let mut figures = kind.figures();
            if *kind.resource() == Resource::PODS {
                figures.objects = self.pods.len();
            }
            figures
        });
        figures.collect()
    }

    /// Waits until the published version contains all pods that the server had when this was called, and returns their
    /// version. A scheduler must do this after it has become the leader and before it binds: the mirror may not have
    /// seen the last bindings of the previous leader.
    ///
    /// # Errors
    ///
    /// The server cannot be asked, the mirror has stopped or does not read pods, or the version is not reached within
    /// [`Pauses::refresh`].
    pub async fn refresh(&self) -> Result<u64, MirrorError> {
        let events = lock(&self.running).events.clone().ok_or(MirrorError::Stopped)?;
        let pods = self.board.kinds().iter().find(|kind| *kind.resource() == Resource::PODS);
        let pods = pods.ok_or(MirrorError::NotMirrored(Resource::PODS.kind))?;
        // A list without a resource version is as new as the server's store.
        let path = format!("{}?limit=1", Resource::PODS.collection(None));
        let body = self.api.get(&path).await?;
        let malformed = |why: String| ApiError::Malformed(format!("a list of pods: {why}"));
        let page: Page<'_> =
            serde_json::from_slice(&body).map_err(|error| malformed(error.to_string()))?;
        let wanted: u64 = page.metadata.resource_version.parse().map_err(|_| {
            malformed(format!("{:?} is not a version", page.metadata.resource_version))
        })?;
        if pods.version() < wanted {
            pods.hurry(wanted);
            let reached = self.board.wait_until(|| pods.version() >= wanted);
            // The version is compared below, even after a timeout.
            let _ = timeout(self.options.pauses.refresh, reached).await;
        }
        let seen = pods.version();
        if seen < wanted && !self.board.is_stopped() {
            return Err(MirrorError::Behind { seen, wanted });
        }
        events.flush().await?;
        Ok(seen)
    }

    /// Stops the reflectors, and waits until the events that they have passed on are submitted. The engine keeps the
    /// last state.
    pub async fn stop(&self) {
        let (tasks, thread) = {
            let mut running = lock(&self.running);
            running.events = None;
            (std::mem::take(&mut running.tasks), running.thread.take())
        };
        for task in tasks {
            task.abort();
            // The error says that it was aborted.
            let _ = task.await;
        }
        if let Some(thread) = thread {
            // A panic of the thread is reported by the panic hook.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// Reports whether a mirror is synced, without keeping the mirror alive.
#[derive(Clone)]
pub(crate) struct Readiness(Arc<Board>);

impl Readiness {
    /// Returns the same as [`Mirror::is_synced`].
    pub(crate) fn is_synced(&self) -> bool {
        self.0.kinds().iter().all(|kind| kind.is_ready())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // The thread ends by itself when the tasks have dropped their ends of the channel.
        lock(&self.running).tasks.iter().for_each(JoinHandle::abort);
    }
}

debug_by!(Mirror, it, figures: it.figures());

/// The state that the reflectors share.
struct Start<'a> {
    api: &'a Api,
    options: &'a Options,
    events: &'a Events,
    reader: &'a Reader,
    may_read: &'a watch::Sender<bool>,
    board: &'a Arc<Board>,
}

impl Start<'_> {
    fn kind(
        &self,
        runtime: &Handle,
        kind: &Arc<KindState>,
        pods: &Arc<PodIndex>,
    ) -> JoinHandle<()> {
        let (events, reader) = (self.events.clone(), self.reader.clone());
        match *kind.resource() {
            Resource::PODS => {
                let rules = PodRules::new(pods.clone(), self.options.schedulers.clone());
                let sink = PodSink::new(kind.clone(), rules, events, reader);
                let ours = RawKind::Pods(self.options.schedulers.clone());
                let sink = RawSink::new(sink, ours, self.options.raw.clone());
                self.spawn(runtime, kind, Some(UNFINISHED), sink)
            }
            resource => match (options::object_kind(&resource), DeviceKind::of(&resource)) {
                (Some(object), _) => {
                    let sink = ObjectSink::new(kind.clone(), Objects(object), events, reader);
                    self.spawn(runtime, kind, None, sink)
                }
                (None, Some(device)) => {
                    let sink = DeviceSink::new(kind.clone(), device, events, reader);
                    self.spawn(runtime, kind, None, sink)
                }
                (None, None) => {
                    let sink = ObjectSink::new(kind.clone(), Nodes, events, reader);
                    let sink = RawSink::new(sink, RawKind::Nodes, self.options.raw.clone());
                    self.spawn(runtime, kind, None, sink)
                }
            },
        }
    }

    fn spawn<S: Sink>(
        &self,
        runtime: &Handle,
        kind: &Arc<KindState>,
        selector: Option<&str>,
        sink: S,
    ) -> JoinHandle<()> {
        let pauses = &self.options.pauses;
        let reflector = Reflector::new(self.api.clone(), kind.clone(), selector, sink, pauses);
        let mut may_read = self.may_read.subscribe();
        // If a reflector ends, the engine no longer equals the server.
        let ends = StopOnDrop(self.board.clone());
        runtime.spawn(async move {
            let _ends = ends;
            // An error says that the mirror was dropped.
            let is_started = may_read.wait_for(|may_read| *may_read).await.is_ok();
            if is_started {
                reflector.run().await;
            }
        })
    }
}
