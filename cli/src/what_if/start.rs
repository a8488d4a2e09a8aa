//! The cluster before the change, and simulations that begin with it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use portolan::cache::{Cluster, Engine, Snapshot};
use portolan::metrics::Metrics;
use portolan::model::{Name, Pod};
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles};
use portolan_k8s::Scales;

use crate::cluster::{Contents, Loaded};
use crate::creation::Creation;
use crate::error::CommandError;
use crate::metrics;
use crate::pod_list::PodList;
use crate::policy::{self, Rules};
use crate::replacement::{Replacement, Replacements, recreated};
#[cfg(feature = "cluster")]
use crate::replay::{Existing, Pods, Workload};
use crate::resource_claims::ClaimController;
use crate::simulation::Stage;

use super::answer::Answer;
use super::budgets::{Covered, Limits};
use super::difference::{Outcome, own};
use super::each::Harm;
use super::record::{End, Record};
use super::world::World;

/// The cluster with which simulations begin. They share all objects.
pub(crate) struct Checkpoint {
    pub(crate) cluster: Arc<Snapshot>,
    /// The pods without a node.
    pub(crate) pending: PodList,
    /// The pods that are being deleted, on their nodes.
    terminating: OnceLock<Vec<Pod>>,
    replacements: Replacements,
    creation: Creation,
    pub(crate) claims: Option<ClaimController>,
    without: OnceLock<Without>,
    /// The pods that its budgets cover.
    pub(super) covered: OnceLock<Covered>,
}

/// What becomes of the cluster without a change: now, and when the pods that are being deleted have ended.
pub(super) struct Without {
    pub(super) outcomes: [Outcome; 2],
    #[cfg(feature = "cluster")]
    pub(super) clusters: [Arc<Snapshot>; 2],
    #[cfg(feature = "cluster")]
    pub(super) profiles: Profiles<(Arc<Framework>, AlgorithmConfig)>,
}

/// What the simulations of a question have in common.
#[derive(Clone)]
pub(super) struct Base<'q> {
    pub(super) rules: &'q Rules,
    pub(super) contents: &'q Contents,
    pub(super) from: Arc<Checkpoint>,
    /// `false` once the answer is no longer needed.
    pub(super) is_wanted: Arc<AtomicBool>,
    /// Called with each simulated failure and the number of all.
    pub(super) on_failure: &'q (dyn Fn(&Harm, usize) + Sync),
}

/// A simulated cluster.
pub(super) struct Start {
    pub(super) world: World,
    /// The pods without a node.
    pending: Vec<Pod>,
    /// The pods that are being deleted, on their nodes.
    pub(super) terminating: Vec<Pod>,
    /// Notes about the configuration.
    pub(super) notes: Vec<String>,
    /// The names of the profiles, unless one profile is for all pods.
    profiles: Option<Vec<String>>,
}

impl Checkpoint {
    /// The cluster as it was loaded. O(controllers).
    pub(crate) fn of(loaded: &Loaded) -> Checkpoint {
        let Loaded { contents, cluster, pending, claims } = loaded;
        Checkpoint {
            cluster: cluster.clone(),
            pending: pending.clone(),
            terminating: OnceLock::new(),
            replacements: Replacements::new(contents.controllers(), contents.scales().clone()),
            creation: Creation::of(contents, cluster),
            claims: claims.clone(),
            without: OnceLock::new(),
            covered: OnceLock::new(),
        }
    }

    /// The cluster and its pods, to be scheduled. O(pods).
    #[cfg(feature = "cluster")]
    pub(crate) fn workload(&self, pods: Pods) -> Workload {
        let existing = Existing { cluster: self.cluster.clone(), claims: self.claims.clone() };
        Workload::of(existing, &self.pending, self.creation.restarted(), pods)
    }

    /// The cluster at this point of a simulation that began with another checkpoint. O(touched pods).
    pub(super) fn after(world: &World, from: &Checkpoint) -> Result<Checkpoint, CommandError> {
        let (cluster, record) = (world.cluster()?, &world.record);
        let pending = record.waiting().chain(record.uncreated()).cloned();
        Ok(Checkpoint {
            pending: PodList::of(pending.collect(), &from.pending),
            terminating: OnceLock::new(),
            replacements: record.replacements.clone(),
            creation: record.creation.restarted(),
            cluster,
            claims: world.simulation.claims.clone(),
            without: OnceLock::new(),
            covered: OnceLock::new(),
        })
    }

    /// The desired numbers of pods.
    pub(super) fn scales(&self) -> &Arc<Scales> {
        &self.replacements.scales
    }

    /// The pods that are being deleted. O(pods) for the first call.
    fn terminating(&self) -> &[Pod] {
        self.terminating.get_or_init(|| terminating(&self.cluster))
    }
}

impl Base<'_> {
    /// A simulation that begins with the cluster and has not scheduled anything yet. O(pending and ending pods).
    pub(super) fn start(&self, recorder: Option<&Metrics>) -> Result<Start, CommandError> {
        let Base { rules: Rules { config, godel, seed }, from, .. } = self;
        let engine = Engine::at(&from.cluster, godel.config(None));
        let stage = Stage::new(engine, from.claims.clone(), recorder)?;
        let stage = stage.while_wanted(self.is_wanted.clone());
        let policies = config.policies(&stage.handle, stage.backend.clone())?;
        // Gödel's schedulers share the pods of one scheduler name.
        let is_for_all = policies.are_for_all(godel);
        let names = policies.profiles.iter().map(|profile| profile.scheduler_name.clone());
        let names: Option<Vec<String>> = (!is_for_all).then(|| names.collect());
        let each = policies.profiles.into_iter().map(|profile| {
            let name = if is_for_all { String::new() } else { profile.scheduler_name };
            let framework = metrics::record(profile.framework, recorder, &name);
            let percentage_of_nodes = profile.percentage_of_nodes.unwrap_or(100);
            let config = AlgorithmConfig { percentage_of_nodes, seed: *seed };
            (Name::from(name), Arc::new(framework), config)
        });
        let profiles: Vec<(Name, Arc<Framework>, AlgorithmConfig)> = each.collect();
        let schedulers = profiles.iter().map(|(name, framework, config)| {
            let algorithm = Algorithm::new(framework.clone(), config.clone(), None);
            (name.clone(), godel.partitioned(algorithm))
        });
        let simulation = stage.with_schedulers(schedulers.collect(), policies.queue)?;
        let named = |(name, framework, config): &(Name, Arc<Framework>, AlgorithmConfig)| {
            (name.clone(), (framework.clone(), config.clone()))
        };
        let (replacements, creation) = (from.replacements.clone(), from.creation.clone());
        let profiles_by_name = Profiles::by_name(profiles.iter().map(named));
        let record = Record::new(profiles_by_name, replacements, creation, godel);
        let world = World { simulation, record };
        let (pending, terminating) = (from.pending.to_vec(), from.terminating().to_vec());
        Ok(Start { world, pending, terminating, notes: policies.notes, profiles: names })
    }

    /// What becomes of the cluster without a change. It is simulated once.
    pub(super) fn without_change(&self) -> Result<&Without, CommandError> {
        if let Some(known) = self.from.without.get() {
            return Ok(known);
        }
        let mut start = self.start(None)?;
        let mut limits = start.settle(self)?;
        let now = (start.outcome()?, start.world.cluster()?);
        start.end_terminating(&mut limits)?;
        let later = (start.outcome()?, start.world.cluster()?);
        Ok(self.from.without.get_or_init(|| Without {
            outcomes: [now.0, later.0],
            #[cfg(feature = "cluster")]
            clusters: [now.1, later.1],
            #[cfg(feature = "cluster")]
            profiles: start.world.record.profiles,
        }))
    }
}

/// The placed pods that are being deleted, by namespace and name. O(pods).
fn terminating(cluster: &Cluster) -> Vec<Pod> {
    let placed = cluster.nodes().flat_map(|node| node.pods());
    let ending = placed.filter(|pod| pod.deletion_time().is_some());
    let mut ending: Vec<Pod> = ending.map(|pod| pod.to_pod()).collect();
    ending.sort_by(|a, b| (a.namespace(), &a.name).cmp(&(b.namespace(), &b.name)));
    ending
}

impl Start {
    /// Tries the pods that are pending in the cluster. Returns what its budgets allow then.
    pub(super) fn settle<'c>(&mut self, of: &Base<'c>) -> Result<Limits<'c>, CommandError> {
        let Base { contents, from, .. } = of;
        let record = &self.world.record;
        let mut limits = Limits::new(contents.budget_limits(), contents.facts(), from, record);
        self.world.arrive(&self.pending)?;
        limits.update(&mut self.world)?;
        Ok(limits)
    }

    /// Ends the pods that are being deleted. A controller has replaced them already, unless it waits until their
    /// objects are gone.
    pub(super) fn end_terminating(&mut self, limits: &mut Limits<'_>) -> Result<(), CommandError> {
        let Start { world, terminating, .. } = self;
        let now = world.cluster()?;
        // Those of deleted nodes are gone.
        let left = |pod: &&Pod| now.pod(&pod.uid).is_some_and(|pod| pod.deletion_time().is_some());
        let left: Vec<&Pod> = terminating.iter().filter(left).collect();
        for pod in &left {
            world.remove(pod)?;
        }
        // The scheduler is faster than a controller.
        world.schedule()?;
        for pod in left {
            let node = pod.node_name.as_ref();
            match world.record.replacements.of(pod) {
                Replacement::WhenGone => world.enter(&recreated(pod.clone()), node)?,
                _ => world.record.ends(pod, node, End::Deleted),
            }
        }
        world.settle()?;
        world.expire_permits()?;
        limits.update(world)
    }

    /// What has become of each pod by now.
    pub(super) fn outcome(&self) -> Result<Outcome, CommandError> {
        Ok(self.world.record.outcome(&*self.world.cluster()?))
    }

    /// Warns about pods that no profile of the configuration schedules.
    pub(super) fn warn(&self, config: &policy::Text, answer: &mut Answer) {
        let (Some(names), Some(file)) = (&self.profiles, config.file()) else {
            return;
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let effects = answer.last();
        let rows = effects.pending.iter().chain(own(&effects.unplaced));
        if let Some(warning) = policy::unscheduled(rows.map(|row| &row.pod), &names) {
            answer.intake.warn(&format!("{}: {warning}", file.display()));
        }
    }
}
