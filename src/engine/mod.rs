//! The engine, which connects log, state and publication.
//!
//! A single writer folds events into the next version, and any number of readers take versions from it. The caller
//! chooses which thread writes:
//!
//! | mode | writing thread | constructor |
//! |---|---|---|
//! | inline | the thread that owns the [`Writer`] | [`Engine::inline`] |
//! | shared | the submitting thread, which takes the writer token and folds the pending events of the log | [`Engine::shared`], or [`Engine::at`] to begin with a version |

mod reader;
mod shared;
mod weak;
mod writer;

use std::time::Duration;

pub use reader::{ReadError, Reader};
pub use shared::Engine;
pub(crate) use shared::Registration;
pub use weak::WeakEngine;
pub use writer::{Figures, Rebuilt, Writer};

use crate::snapshot::{CustomStores, GodelConfig, Store};
use crate::state::CommitPolicy;

/// The configuration of an engine. The default configuration behaves like kube-scheduler's cache, with a commit check
/// that prevents concurrent schedulers from overcommitting nodes.
///
/// ```
/// use std::time::Duration;
/// use portolan::cache::{Config, Engine};
///
/// let config = Config { assumed_ttl: Some(Duration::from_secs(30)), ..Config::default() };
/// let (writer, reader) = Engine::inline(config);
/// # let _ = (writer, reader);
/// ```
#[derive(Default)]
pub struct Config {
    /// The time for which an assumed pod remains after its binding has finished, unless it is confirmed. `None` (the
    /// default) or zero means that it never expires, as in kube-scheduler. A sweep removes the pods that have expired:
    ///
    /// | engine | swept | clock |
    /// |---|---|---|
    /// | inline | by [`Writer::expire`] | the caller's |
    /// | shared | after an event that carries a time, and by each [`SchedulingLoop`](crate::SchedulingLoop) while it waits for a pod | the callers' |
    ///
    /// A shared engine without scheduling loops that gets no such events is swept by [`Event::Expire`].
    ///
    /// [`Event::Expire`]: crate::log::Event::Expire
    pub assumed_ttl: Option<Duration>,
    /// The capacity of the log in events, up to 2^20; the default is 4,096. A thread that submits to a full log waits.
    pub log_capacity: Option<usize>,
    /// The period between two sweeps of expired pods. The default is one second, and [`Duration::MAX`] disables sweeps.
    /// A shared engine measures the period by the times that events carry and sweeps at most once per millisecond. An
    /// inline engine ignores the period.
    pub sweep_period: Option<Duration>,
    /// Indexes pods by namespace and name in every version, so that
    /// [`Cluster::pod_named`](crate::cache::Cluster::pod_named) examines a single node instead of all pods. It makes
    /// each placement about a tenth slower and each pod about 15 bytes larger.
    pub pod_names: bool,
    /// Enables Gödel semantics: pods are counted on the node on which a scheduler has assumed them according to their
    /// annotations. By default the engine behaves like kube-scheduler's cache, which ignores these annotations.
    pub godel: Option<GodelConfig>,
    /// The check that a placement must pass before the pod is assumed, unless it was decided on the current version. By
    /// default the check covers the node's resources, number of pods and host ports, so that schedulers that decide
    /// concurrently do not overcommit a node.
    pub commit_check: CommitPolicy,
    /// Stores of your own, which every version contains: see [`Store`] and [`Config::with_store`]. Without any, they
    /// cost nothing.
    pub stores: CustomStores,
}

impl Config {
    /// Registers a store of your own with its initial state, which must not contain any pods. A store of the same type
    /// that was registered before is replaced.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine, Keyed, ObjectStore};
    /// use portolan::model::Name;
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
    /// # Ok::<(), portolan::cache::StoreError>(())
    /// ```
    #[must_use]
    pub fn with_store<S: Store>(self, store: S) -> Config {
        Config { stores: self.stores.with(store), ..self }
    }

    /// Returns whether a sweep may change something.
    fn needs_sweeps(&self) -> bool {
        // Zero means that nothing expires.
        let ends = |ttl: Option<Duration>| ttl.is_some_and(|ttl| !ttl.is_zero());
        let godel = self.godel.as_ref().is_some_and(|godel| {
            ends(godel.reservations) || ends(godel.unfinished_ttl) || godel.deletion_marks
        });
        ends(self.assumed_ttl) || godel
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("assumed_ttl", &self.assumed_ttl)
            .field("log_capacity", &self.log_capacity)
            .field("sweep_period", &self.sweep_period)
            .field("pod_names", &self.pod_names)
            .field("godel", &self.godel)
            .field("commit_check", &self.commit_check)
            .field("stores", &self.stores)
            .finish()
    }
}

impl Engine {
    /// Creates an engine that the caller's own thread writes, without a log or a handover between threads. An event is
    /// folded by the call that applies it, and readers see it after the next [`Writer::publish`]. The configuration's
    /// log capacity and sweep period are ignored: expired pods are removed by [`Writer::expire`].
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
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
        trace_event!(DEBUG, ?config, "inline engine opened");
        let writer = Writer::new(config);
        let reader = writer.reader();
        (writer, reader)
    }
}
