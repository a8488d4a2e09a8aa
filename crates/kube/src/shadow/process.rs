//! The parts of a shadow, their start and their end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use portolan::cache::{Config, Engine};
use portolan::metrics::{Metrics, PLUGINS_ONE_IN};
use portolan::model::Name;
use portolan::plugin::Handle;
use portolan::{Algorithm, AlgorithmConfig, FrameworkError};
use portolan_dra::plugin::DryRunBackend;
use portolan_k8s::config::{ConfigError, Configuration};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::api::Api;
use crate::component_metrics::Scrape;
use crate::debug::debug_by;
use crate::mirror::{self, Mirror, MirrorError, PodIndex};
use crate::process::profiles::{framework, registry, shown};

use super::counts::{Counts, ShadowFigures};
use super::judge::{Judge, Observed};
use super::recorder::{Nominated, Recorder, statuses};
use super::verdict::Judgement;

/// The settings of a [`Shadow`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShadowConfig {
    /// The text of the observed scheduler's `KubeSchedulerConfiguration`, or `None` for the default profile.
    pub configuration: Option<Arc<str>>,
    /// The names of the profiles whose pods are judged, or an empty list for all of the configuration.
    pub profiles: Vec<Name>,
    /// Bindings that are seen within this time of each other count as concurrent. At most
    /// [`ShadowConfig::LONGEST_WINDOW`], because a version of the cluster is kept for each change within it.
    pub window: Duration,
    /// The options of the mirror. The schedulers' names are replaced by those of the profiles.
    pub mirror: mirror::Options,
}

impl ShadowConfig {
    /// The longest window.
    pub const LONGEST_WINDOW: Duration = Duration::from_secs(60);
}

impl Default for ShadowConfig {
    fn default() -> ShadowConfig {
        ShadowConfig {
            configuration: None,
            profiles: Vec::new(),
            window: Duration::from_secs(2),
            mirror: mirror::Options::new::<Name>([]),
        }
    }
}

/// Why a shadow cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShadowError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A profile cannot be built.
    #[error(transparent)]
    Framework(#[from] FrameworkError),
    /// The configuration does not have a profile.
    #[error("the configuration does not have the profile {name}: choose from {}", known.join(", "))]
    NoProfile {
        /// The name of the profile.
        name: Name,
        /// The profiles of the configuration.
        known: Vec<String>,
    },
    /// The configuration has extenders.
    #[error(
        "a shadow cannot ask extenders, whose answers may have changed since: remove `extenders` from the \
         configuration, and expect disagreements on the pods that they affect"
    )]
    Extenders,
    /// The window is too long.
    #[error(
        "the window of {} s is too long: choose at most {} s",
        .0.as_secs_f64(),
        ShadowConfig::LONGEST_WINDOW.as_secs()
    )]
    Window(Duration),
    /// The mirror cannot start.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// A thread cannot be started.
    #[error("a thread was not started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Observes a running scheduler and compares its decisions with portolan's. It only lists and watches.
pub struct Shadow {
    engine: Engine,
    mirror: Mirror,
    counts: Arc<Counts>,
    metrics: Arc<Metrics>,
    configuration: Arc<str>,
    schedulers: Arc<[Name]>,
    is_synced: Arc<AtomicBool>,
    judgements: UnboundedReceiver<Judgement>,
    judge: Option<thread::JoinHandle<()>>,
}

impl Shadow {
    /// Starts the mirror of a cluster. Call it within a tokio runtime. Bindings are judged once
    /// [`Shadow::synced`] has returned.
    ///
    /// # Errors
    ///
    /// See [`ShadowError`].
    pub fn start(api: Api, mut config: ShadowConfig) -> Result<Shadow, ShadowError> {
        if config.window > ShadowConfig::LONGEST_WINDOW {
            return Err(ShadowError::Window(config.window));
        }
        let configuration: Arc<str> =
            config.configuration.clone().unwrap_or_else(|| Configuration::DEFAULT.into());
        let (registry, handle) = (registry(Arc::new(DryRunBackend)), Handle::default());
        let read = Configuration::read(&configuration, &registry, &handle)?;
        if !read.extenders.is_empty() {
            return Err(ShadowError::Extenders);
        }
        let known = || read.profiles.iter().map(|profile| profile.scheduler_name.clone());
        let is_known = |name: &&Name| known().any(|known| *known == ***name);
        if let Some(name) = config.profiles.iter().find(|name| !is_known(name)) {
            return Err(ShadowError::NoProfile { name: name.clone(), known: known().collect() });
        }
        let schedulers: Arc<[Name]> = match config.profiles.is_empty() {
            true => known().map(Name::from).collect(),
            false => config.profiles.iter().cloned().collect(),
        };
        let metrics = Arc::new(Metrics::new());
        let percentage_of_nodes = read.percentage_of_nodes;
        let mut observed = HashMap::new();
        for name in schedulers.iter() {
            let framework = framework(&configuration, &registry, &handle, name)?
                .with_handle(handle.clone())
                .with_recorder(metrics.recorder(name), PLUGINS_ONE_IN);
            let settings = AlgorithmConfig { percentage_of_nodes, seed: 0 };
            let algorithm = Algorithm::new(framework, settings, None);
            let profile = read.profiles.iter().find(|profile| *profile.scheduler_name == **name);
            let own = profile.and_then(|profile| profile.percentage_of_nodes);
            let percentage = own.unwrap_or(percentage_of_nodes);
            observed.insert(name.clone(), Observed { algorithm, percentage });
        }
        // The engine needs no thread: the mirror's thread folds each event when it submits it.
        let engine = Engine::shared(Config::default());
        let reader = engine.reader().map_err(|_| MirrorError::Stopped)?;
        let counts = Arc::new(Counts::new());
        let (sender, incoming) = crossbeam_channel::unbounded();
        let (reports, judgements) = unbounded_channel();
        let judge = Judge {
            schedulers: observed,
            window: config.window,
            handle,
            nominated: Nominated::default(),
            reader: reader.clone(),
            incoming,
            ahead: None,
            seen: VecDeque::new(),
            open: VecDeque::new(),
            counts: counts.clone(),
            judgements: reports,
        };
        let judge = thread::Builder::new().name("judge".to_owned()).spawn(move || judge.run());
        let is_synced = Arc::new(AtomicBool::new(false));
        let pods = Arc::new(PodIndex::default());
        let recorder = Recorder::new(
            reader,
            schedulers.clone(),
            statuses(pods.clone()),
            is_synced.clone(),
            sender,
            counts.clone(),
        );
        config.mirror.schedulers = schedulers.clone();
        let observer = Some(Box::new(recorder) as Box<_>);
        let mirror = Mirror::observed(api, engine.clone(), pods, config.mirror, observer)?;
        let (judge, configuration) = (Some(judge?), shown(&configuration, &read.extenders));
        Ok(Shadow {
            engine,
            mirror,
            counts,
            metrics,
            configuration,
            schedulers,
            is_synced,
            judgements,
            judge,
        })
    }

    /// Waits until the mirror is synced, and judges bindings from then on.
    ///
    /// # Errors
    ///
    /// The mirror has stopped.
    pub async fn synced(&self) -> Result<(), MirrorError> {
        self.mirror.synced().await?;
        self.is_synced.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the next judgement, or `None` after [`Shadow::stop`] if there are no more. Bindings that agree at once
    /// are reported at once, others at the end of their window. Dropping the future loses no judgement.
    pub async fn next(&mut self) -> Option<Judgement> {
        self.judgements.recv().await
    }

    /// Stops the mirror, and judges the bindings whose windows are not over with the changes so far.
    pub async fn stop(&mut self) {
        self.mirror.stop().await;
        if let Some(judge) = self.judge.take() {
            // A panic of the thread is reported by the panic hook.
            let _ = tokio::task::spawn_blocking(move || judge.join()).await;
        }
        self.engine.close();
    }

    /// The mirror of the cluster.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The names of the schedulers whose bindings are judged.
    #[must_use]
    pub fn schedulers(&self) -> &[Name] {
        &self.schedulers
    }

    /// The configuration as it was given, or a comment in its place if it contains a private key (`keyData`).
    #[must_use]
    pub fn configuration(&self) -> &Arc<str> {
        &self.configuration
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn figures(&self) -> ShadowFigures {
        self.counts.figures()
    }

    /// Returns the answer to `/metrics`: the metrics of the shadow, of its own decisions and of the engine.
    pub(crate) fn scrape(&self) -> Scrape {
        let (metrics, engine) = (self.metrics.clone(), self.engine.downgrade());
        let mut scrape = Scrape::new(move || {
            if let Some(engine) = engine.upgrade()
                && let (Ok(reader), Ok(figures)) = (engine.reader(), engine.figures())
            {
                metrics.engine(&figures, &reader.snapshot());
            }
        });
        self.counts.register(scrape.registry());
        self.metrics.register(scrape.registry());
        scrape
    }
}

debug_by!(Shadow, it, figures: it.figures(), mirror: it.mirror);
