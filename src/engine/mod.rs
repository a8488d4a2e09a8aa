//! The engine: log, state and publication tied together.
//!
//! One writer folds events into the next version; any number of readers take
//! versions from it. Who the writer is, is the caller's choice:
//!
//! | | who writes | get it by |
//! |---|---|---|
//! | inline | the thread that has the [`Writer`] | [`Engine::inline`] |
//! | shared | whichever thread submits: it takes the writer token and folds what is in the log | [`Engine::shared`] |
//! | spawned | a thread that does nothing else | [`Engine::spawned`] |

mod reader;
mod shared;
mod weak;
mod writer;

use std::time::Duration;

pub use reader::{LivePod, ReadError, Reader};
pub use shared::Engine;
pub(crate) use shared::Registration;
pub use weak::WeakEngine;
pub use writer::{Figures, Rebuilt, Writer};

use crate::snapshot::{Cluster, CustomStores, GodelConfig, Store};
use crate::state::CommitPolicy;

/// How an engine is made.
#[derive(Default)]
pub struct Config {
    /// How long an assumed pod lives after its binding finished, unless it is
    /// confirmed; none (the default) or zero is for ever, as in kube-scheduler.
    pub assumed_ttl: Option<Duration>,
    /// Room in the log, in events, up to 2^20; none is 4,096. Whoever submits to a full
    /// log waits.
    pub log_capacity: Option<usize>,
    /// How often a spawned writer sweeps expired pods; none is once a second, and
    /// [`Duration::MAX`] never. Zero is refused.
    pub sweep_period: Option<Duration>,
    /// Keeps an index of pods beside the versions, from which
    /// [`Reader::get_pod`] answers without pinning one. Each placement takes half
    /// as long again, and a pod some 110 bytes more. For engines whose readers
    /// ask for single pods all the time.
    pub live_index: bool,
    /// Makes the engine one of Gödel's: pods count where their annotations say that a
    /// scheduler assumed them. None is kube-scheduler's cache, which knows of no such
    /// thing.
    pub godel: Option<GodelConfig>,
    /// Told with each sweep of expired pods how large the cluster is. The feature
    /// `metrics` has one that sets kube-scheduler's gauges.
    pub sweep_observer: Option<Box<dyn SweepObserver>>,
    /// What is checked of a placement before the pod is assumed, unless it was decided
    /// on the current version. By default the node's resources and host ports, so that
    /// schedulers that decide at once do not overcommit a node.
    pub commit_check: CommitPolicy,
    /// Stores of your own, see [`Store`] and [`Config::with_store`].
    pub stores: CustomStores,
}

impl Config {
    /// The same with a store of your own, as it is before the first event. One of the same type is replaced.
    ///
    /// ```
    /// use portolan::model::Name;
    /// use portolan::snapshot::{Keyed, ObjectStore};
    /// use portolan::{Config, Engine};
    ///
    /// struct Licence(Name);
    ///
    /// impl Keyed for Licence {
    ///     const KIND: &'static str = "Licence";
    ///
    ///     fn name(&self) -> &str {
    ///         &self.0
    ///     }
    /// }
    ///
    /// let config = Config::default().with_store(ObjectStore::<Licence>::default());
    /// let (writer, _) = Engine::inline(config);
    /// assert!(writer.cluster().store::<ObjectStore<Licence>>()?.is_empty());
    /// # Ok::<(), portolan::snapshot::StoreError>(())
    /// ```
    #[must_use]
    pub fn with_store<S: Store>(self, store: S) -> Config {
        Config { stores: self.stores.with(store), ..self }
    }
}

/// Told how the engine is with each sweep, by the thread that writes.
pub trait SweepObserver: Send {
    /// A sweep is over: pods that had expired are gone from `cluster`, the state as the
    /// writer has it. It holds up the writer, so it should take no longer than a few
    /// events.
    fn swept(&mut self, figures: &Figures, cluster: &Cluster);
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("assumed_ttl", &self.assumed_ttl)
            .field("log_capacity", &self.log_capacity)
            .field("sweep_period", &self.sweep_period)
            .field("live_index", &self.live_index)
            .field("godel", &self.godel)
            .field("commit_check", &self.commit_check)
            .field("stores", &self.stores)
            .finish()
    }
}

impl Engine {
    /// An engine that the caller's own thread writes: no queue, no hand-over.
    ///
    /// ```
    /// use portolan::{Config, Engine};
    /// use portolan::model::{node, pod};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// writer.add_node(node("n1").cpu(4_000).memory(16 << 30).build())?;
    /// writer.add_pod(pod("web-0").cpu(250).on("n1").build())?;
    /// writer.publish();
    ///
    /// let snapshot = reader.snapshot();
    /// assert_eq!(snapshot.node("n1").unwrap().requested().cpu.0, 250);
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    #[must_use]
    pub fn inline(config: Config) -> (Writer, Reader) {
        let writer = Writer::new(config);
        let reader = writer.reader();
        (writer, reader)
    }
}
