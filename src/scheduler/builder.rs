//! Builds all parts of a scheduler in one expression.
//!
//! The parts refer to each other: the engine owns its commit check, the check calls the frameworks of the profiles, the
//! plugins of a framework use the binder, and the binder writes to the engine. The builder breaks this cycle with weak
//! handles, so that all parts are dropped with the last strong handle. Each profile has a single framework, so the
//! queue, all schedulers and the commit check share the state of its plugins.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::engine::{Config, Engine, WeakEngine};
use crate::framework::{
    Algorithm, AlgorithmConfig, Binder, Evictor, Extender, Framework, FrameworkError, Handle,
    Partition, Point, ShardSet, VolumeBinder,
};
use crate::log::Unavailable;
use crate::model::{DEFAULT_SCHEDULER, Name, Pod};
use crate::snapshot::{Cluster, NodeSlot, Recheck};
use crate::state::{CommitCheck, CommitPolicy, RoomCheck};

use super::queue::{QueueConfig, QueueError, QueueFront, SchedulingQueue};
use super::{
    BindingLoop, EngineLog, FilterCheck, InMemoryBinder, InMemoryEvictor, InMemoryVolumeBinder,
    Profiles, SchedulingLoop, SharedReader,
};

type MakeFramework = Box<dyn FnOnce(&Handle) -> Result<Framework, FrameworkError>>;
type Make<T> = Box<dyn FnOnce(&WeakEngine) -> Arc<T>>;

/// Builds an engine, its commit check, its queue, its profiles, its binders and its evictor; see
/// [`Schedulers::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct SchedulersBuilder {
    config: Config,
    queue: QueueConfig,
    algorithm: AlgorithmConfig,
    pool: Option<Arc<rayon::ThreadPool>>,
    profiles: Vec<(Name, MakeFramework)>,
    binder: Option<Make<dyn Binder>>,
    volume_binder: Option<Make<dyn VolumeBinder>>,
    evictor: Option<Make<dyn Evictor>>,
    extenders: Vec<Arc<dyn Extender>>,
    shards: Option<ShardSet>,
}

/// An engine with a queue and profiles. Any number of threads may each run a [`SchedulingLoop`] on it; the
/// [module](super) has an example.
///
/// Loops keep the engine and the queue alive, so dropping this value ends no thread: close the queue first
/// ([`QueueFront::close`]), and a loop that waits for a pod returns.
pub struct Schedulers {
    engine: Engine,
    queue: Arc<QueueFront>,
    profiles: Profiles<Arc<Framework>>,
    algorithm: AlgorithmConfig,
    pool: Option<Arc<rayon::ThreadPool>>,
    shards: Option<ShardSet>,
}

/// Why a scheduler could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A profile's plugins do not form a framework.
    #[error("profile {profile:?}: {error}")]
    Framework {
        /// The profile.
        profile: Name,
        /// Why its framework cannot be built.
        error: FrameworkError,
    },
    /// The profiles cannot share a queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Two profiles have the same name.
    #[error("profile {0:?} is given twice: rename one")]
    Duplicate(Name),
    /// A profile preempts pods, and the scheduler has a binder of its own but no evictor. The binder acts outside the
    /// engine, where an evictor that acts in the engine's memory would leave the victims running.
    #[error(
        "profile {0:?} preempts pods, but nothing evicts them where the binder binds: give the \
         builder an `evictor` (`InMemoryEvictor` if the engine is all there is), or disable the \
         profile's PostFilter plugins"
    )]
    NoEvictor(Name),
    /// The engine is unavailable.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The engine already has a scheduler, and its commit policy is `Unchecked`: the two would overcommit nodes.
    #[error(
        "the engine has another scheduler and checks no placements: set `Config::commit_check` to \
         `Room` or to a check"
    )]
    Unchecked,
}

impl Schedulers {
    /// Creates a builder. Its defaults are a shared engine, the default profile under the name `default-scheduler`, and
    /// a binder, a volume binder and an evictor that act in the engine's memory. With a
    /// [binder of your own](SchedulersBuilder::binder), the other two have no default.
    pub fn builder() -> SchedulersBuilder {
        SchedulersBuilder {
            config: Config::default(),
            queue: QueueConfig::default(),
            algorithm: AlgorithmConfig::default(),
            pool: None,
            profiles: Vec::new(),
            binder: None,
            volume_binder: None,
            evictor: None,
            extenders: Vec::new(),
            shards: None,
        }
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the queue, which is fed by the engine's log.
    #[must_use]
    pub fn queue(&self) -> &Arc<QueueFront> {
        &self.queue
    }

    /// Returns the frameworks of the profiles.
    #[must_use]
    pub fn profiles(&self) -> &Profiles<Arc<Framework>> {
        &self.profiles
    }

    /// Creates a scheduling loop for one thread. Any number of loops may run at once; each begins its searches in a
    /// section of the nodes of its own ([`Algorithm::set_section`]).
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is unavailable, or if its commit policy is [`CommitPolicy::Unchecked`] and it
    /// already has a scheduler.
    pub fn scheduling_loop(&self) -> Result<SchedulingLoop, BuildError> {
        let scheduler = |framework: &Arc<Framework>| {
            let algorithm =
                Algorithm::new(framework.clone(), self.algorithm.clone(), self.pool.clone());
            match &self.shards {
                Some(shards) => algorithm.with_partition(Partition::Shards(shards.clone())),
                None => algorithm,
            }
        };
        SchedulingLoop::new(self.engine.clone(), self.queue.clone(), self.profiles.map(scheduler))
    }

    /// Creates a loop for one thread that binds placed pods. Any number of loops may run at once.
    ///
    /// # Errors
    ///
    /// The engine is unavailable.
    pub fn binding_loop(&self) -> Result<BindingLoop, Unavailable> {
        BindingLoop::new(self.engine.clone(), self.queue.clone())
    }
}

impl SchedulersBuilder {
    /// Sets the engine's configuration. If its commit policy is [`CommitPolicy::Room`], the default, the filters of the
    /// pods' profiles check placements.
    pub fn config(self, config: Config) -> Self {
        SchedulersBuilder { config, ..self }
    }

    /// Sets the backoff and the timeouts of the queue.
    pub fn queue(self, queue: QueueConfig) -> Self {
        SchedulersBuilder { queue, ..self }
    }

    /// Sets the configuration of each loop's [`Algorithm`].
    pub fn algorithm(self, algorithm: AlgorithmConfig) -> Self {
        SchedulersBuilder { algorithm, ..self }
    }

    /// Sets a thread pool whose threads join the scheduling thread in long decisions; see [`Algorithm::new`].
    pub fn pool(self, pool: Arc<rayon::ThreadPool>) -> Self {
        SchedulersBuilder { pool: Some(pool), ..self }
    }

    /// Adds a profile for the pods that name this scheduler. The first call replaces the default profile. All profiles
    /// must use the same QueueSort plugin.
    pub fn profile(
        mut self,
        name: impl Into<Name>,
        make: impl FnOnce(&Handle) -> Result<Framework, FrameworkError> + 'static,
    ) -> Self {
        self.profiles.push((name.into(), Box::new(make)));
        self
    }

    /// Sets the binder of pods. `make` gets a weak handle, because the engine owns the binder through its commit check.
    ///
    /// A scheduler with a binder also needs an [evictor](SchedulersBuilder::evictor) if a profile has a PostFilter
    /// plugin, as the default profile has, and a [volume binder](SchedulersBuilder::volume_binder) for pods whose
    /// claims are not bound: those in memory would change the engine and not the cluster.
    ///
    /// ```
    /// use portolan::model::{Name, Pod};
    /// use portolan::scheduler::InMemoryEvictor;
    /// use portolan::{Binder, BinderError, BuildError, Schedulers};
    ///
    /// struct Prints;
    ///
    /// impl Binder for Prints {
    ///     fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
    ///         println!("kubectl bind {} {node}", pod.name);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let refused = Schedulers::builder().binder(|_| Prints).build();
    /// assert!(matches!(refused, Err(BuildError::NoEvictor(_))));
    /// let builder = Schedulers::builder().binder(|_| Prints);
    /// let schedulers = builder.evictor(|engine| InMemoryEvictor::from(engine)).build()?;
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn binder<B: Binder + 'static>(
        self,
        make: impl FnOnce(&WeakEngine) -> B + 'static,
    ) -> Self {
        let make = |engine: &WeakEngine| Arc::new(make(engine)) as Arc<dyn Binder>;
        SchedulersBuilder { binder: Some(Box::new(make)), ..self }
    }

    /// Sets the binder of volumes.
    pub fn volume_binder<B: VolumeBinder + 'static>(
        self,
        make: impl FnOnce(&WeakEngine) -> B + 'static,
    ) -> Self {
        let make = |engine: &WeakEngine| Arc::new(make(engine)) as Arc<dyn VolumeBinder>;
        SchedulersBuilder { volume_binder: Some(Box::new(make)), ..self }
    }

    /// Sets the evictor of preemption's victims.
    pub fn evictor<E: Evictor + 'static>(
        self,
        make: impl FnOnce(&WeakEngine) -> E + 'static,
    ) -> Self {
        let make = |engine: &WeakEngine| Arc::new(make(engine)) as Arc<dyn Evictor>;
        SchedulersBuilder { evictor: Some(Box::new(make)), ..self }
    }

    /// Sets the extenders, which all profiles share.
    pub fn extenders(self, extenders: impl IntoIterator<Item = Arc<dyn Extender>>) -> Self {
        SchedulersBuilder { extenders: extenders.into_iter().collect(), ..self }
    }

    /// Restricts the schedulers to the pods of the shards in this set, and lets them try the nodes of these shards
    /// first. A pod may be placed on a node of another shard if it fits on no other, and the caller decides what
    /// becomes of it ([`BindingLoop::withdraw`]). After each change of the set, call
    /// [`SchedulingQueue::reassign`](super::queue::SchedulingQueue::reassign).
    pub fn shards(self, shards: ShardSet) -> Self {
        SchedulersBuilder { shards: Some(shards), ..self }
    }

    /// Builds all parts.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build(mut self) -> Result<Schedulers, BuildError> {
        if self.profiles.is_empty() {
            let default = |handle: &Handle| Ok(Framework::default_profile_with(handle));
            self = self.profile(DEFAULT_SCHEDULER, default);
        }
        let check = LateCheck::default();
        if matches!(self.config.commit_check, CommitPolicy::Room) {
            self.config.commit_check = check.clone().into();
        }
        let engine = Engine::shared(self.config);
        // These must exist before the `make` functions run: the queue must not miss a pod that such a function adds.
        let (follower, reader) = (engine.follow()?, engine.reader()?);
        let weak = engine.downgrade();
        if self.binder.is_none() {
            // These change only the engine, so they go together.
            let binder = InMemoryBinder::new(engine.clone());
            self.binder = Some(Box::new(|_| Arc::new(binder)));
            let volumes = |engine: &_| Arc::new(InMemoryVolumeBinder::from(engine)) as Arc<_>;
            self.volume_binder.get_or_insert_with(|| Box::new(volumes));
            let evicts = |engine: &_| Arc::new(InMemoryEvictor::from(engine)) as Arc<_>;
            self.evictor.get_or_insert_with(|| Box::new(evicts));
        }
        let mut handle = Handle::default()
            .with_extenders(self.extenders)
            .with_snapshots(Arc::new(SharedReader::new(engine.reader()?)))
            .with_log(Arc::new(EngineLog::new(&engine)));
        if let Some(make) = self.binder {
            handle = handle.with_binder(make(&weak));
        }
        if let Some(make) = self.volume_binder {
            handle = handle.with_volume_binder(make(&weak));
        }
        if let Some(make) = self.evictor {
            handle = handle.with_evictor(make(&weak));
        }
        let mut frameworks: Vec<(Name, Arc<Framework>)> = Vec::new();
        for (profile, make) in self.profiles {
            if frameworks.iter().any(|(name, _)| *name == profile) {
                return Err(BuildError::Duplicate(profile));
            }
            match make(&handle) {
                Ok(framework)
                    if handle.evictor().is_none()
                        && framework.has_plugins_at(Point::PostFilter) =>
                {
                    return Err(BuildError::NoEvictor(profile));
                }
                Ok(framework) => {
                    frameworks.push((profile, Arc::new(framework.with_handle(handle.clone()))))
                }
                Err(error) => return Err(BuildError::Framework { profile, error }),
            }
        }
        let mut queue = SchedulingQueue::with_profiles(frameworks.iter().cloned(), self.queue)?;
        if let Some(shards) = &self.shards {
            queue = queue.with_shards(shards.clone());
        }
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        let profiles = Profiles::by_name(frameworks);
        check.0.get_or_init(|| FilterCheck::new(profiles.clone()));
        let SchedulersBuilder { algorithm, pool, shards, .. } = self;
        Ok(Schedulers { engine, queue, profiles, algorithm, pool, shards })
    }
}

/// The commit check of the profiles, which are built after the engine that owns the check. Until then it checks only
/// resources, the number of pods and host ports.
#[derive(Clone, Default)]
struct LateCheck(Arc<OnceLock<FilterCheck>>);

impl LateCheck {
    fn get(&self) -> &dyn CommitCheck {
        match self.0.get() {
            Some(check) => check,
            None => &RoomCheck,
        }
    }
}

impl CommitCheck for LateCheck {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.get().check(cluster, pod, node)
    }

    fn check_again(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.get().check_again(cluster, pod, node)
    }

    fn check_unchanged(&self, cluster: &Cluster, pod: &Pod, nodes: &[NodeSlot]) -> Recheck {
        self.get().check_unchanged(cluster, pod, nodes)
    }
}

impl fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles = self.profiles.iter().count();
        f.debug_struct("Schedulers").field("profiles", &profiles).finish_non_exhaustive()
    }
}

impl fmt::Debug for SchedulersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles: Vec<&Name> = self.profiles.iter().map(|(name, _)| name).collect();
        f.debug_struct("SchedulersBuilder")
            .field("config", &self.config)
            .field("profiles", &profiles)
            .finish_non_exhaustive()
    }
}
