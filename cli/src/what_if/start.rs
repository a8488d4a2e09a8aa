//! A cluster before the change.

use std::sync::Arc;

use portolan::cache::{Cluster, Writer};
use portolan::metrics::Metrics;
use portolan::model::{Name, Pod};
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles};

use crate::cluster::Contents;
use crate::creation::Creation;
use crate::error::CommandError;
use crate::replacement::{Replacement, Replacements, recreated};
use crate::resource_claims::ClaimController;
use crate::simulation::{Stage, closed};
use crate::{metrics, policy};

use super::Arguments;
use super::answer::Answer;
use super::budgets::Limits;
use super::difference::{Outcome, own};
use super::record::{End, Record};
use super::world::World;

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

impl Start {
    /// The cluster of the files. Nothing has been scheduled yet.
    pub(super) fn new(
        arguments: &Arguments,
        config: &policy::Text<'_>,
        contents: &Contents,
        recorder: Option<&Metrics>,
    ) -> Result<Start, CommandError> {
        let (mut loaded, claims) = (contents.clone(), contents.claims());
        let put = |writer: &mut Writer| loaded.put(writer, &arguments.godel);
        let controllers = |cluster: &Cluster| {
            (Replacements::new(contents.controllers()), Creation::of(contents, cluster))
        };
        Start::with(arguments, config, (controllers, claims), put, recorder)
    }

    /// The cluster that `put` loads, which returns the pods without a node, with its `controllers` and `claims`.
    pub(super) fn with(
        arguments: &Arguments,
        config: &policy::Text<'_>,
        (controllers, claims): (
            impl FnOnce(&Cluster) -> (Replacements, Creation),
            Option<ClaimController>,
        ),
        put: impl FnOnce(&mut Writer) -> Result<Vec<Pod>, CommandError>,
        recorder: Option<&Metrics>,
    ) -> Result<Start, CommandError> {
        let stage = Stage::new(&arguments.godel, claims, recorder)?;
        let pending = stage.engine.with_writer(put).map_err(closed)??;
        let cluster = stage.engine.reader().map_err(closed)?.snapshot();
        let placed = cluster.nodes().flat_map(|node| node.pods());
        let ending = placed.filter(|pod| pod.deletion_time().is_some());
        let mut terminating: Vec<Pod> = ending.map(|pod| pod.to_pod()).collect();
        terminating.sort_by(|a, b| (a.namespace(), &a.name).cmp(&(b.namespace(), &b.name)));
        let policies = config.policies(&stage.handle, stage.backend.clone())?;
        // Gödel's schedulers share the pods of one scheduler name.
        let is_for_all = policies.are_for_all(&arguments.godel);
        let names = policies.profiles.iter().map(|profile| profile.scheduler_name.clone());
        let names: Option<Vec<String>> = (!is_for_all).then(|| names.collect());
        let each = policies.profiles.into_iter().map(|profile| {
            let name = if is_for_all { String::new() } else { profile.scheduler_name };
            let framework = metrics::record(profile.framework, recorder, &name);
            let percentage_of_nodes = profile.percentage_of_nodes.unwrap_or(100);
            let config = AlgorithmConfig { percentage_of_nodes, seed: arguments.seed };
            (Name::from(name), Arc::new(framework), config)
        });
        let profiles: Vec<(Name, Arc<Framework>, AlgorithmConfig)> = each.collect();
        let schedulers = profiles.iter().map(|(name, framework, config)| {
            let algorithm = Algorithm::new(framework.clone(), config.clone(), None);
            (name.clone(), arguments.godel.partitioned(algorithm))
        });
        let simulation = stage.with_schedulers(schedulers.collect(), policies.queue)?;
        let named = |(name, framework, config): &(Name, Arc<Framework>, AlgorithmConfig)| {
            (name.clone(), (framework.clone(), config.clone()))
        };
        let (replacements, creation) = controllers(&cluster);
        let profiles_by_name = Profiles::by_name(profiles.iter().map(named));
        let record = Record::new(profiles_by_name, replacements, creation, &arguments.godel);
        let notes = policies.notes;
        let world = World { simulation, record };
        Ok(Start { world, pending, terminating, notes, profiles: names })
    }

    /// What the budgets of the cluster allow.
    pub(super) fn limits<'c>(&self, contents: &'c Contents) -> Result<Limits<'c>, CommandError> {
        let (cluster, record) = (self.world.cluster()?, &self.world.record);
        Ok(Limits::new(contents.budget_limits(), contents.facts(), &cluster, record))
    }

    /// Tries the pods that are pending in the cluster.
    pub(super) fn settle(&mut self, limits: &mut Limits<'_>) -> Result<(), CommandError> {
        self.world.arrive(&self.pending)?;
        limits.update(&mut self.world)
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

    /// What becomes of each pod without a change: now, and when the pods that are being deleted have ended.
    pub(super) fn both_outcomes(
        &mut self,
        limits: &mut Limits<'_>,
    ) -> Result<[Outcome; 2], CommandError> {
        let now = self.outcome()?;
        self.end_terminating(limits)?;
        Ok([now, self.outcome()?])
    }

    /// What has become of each pod by now.
    pub(super) fn outcome(&self) -> Result<Outcome, CommandError> {
        Ok(self.world.record.outcome(&*self.world.cluster()?))
    }

    /// Warns about pods that no profile of the configuration schedules.
    pub(super) fn warn(&self, arguments: &Arguments, answer: &mut Answer) {
        let (Some(names), Some(file)) = (&self.profiles, arguments.config.source().file) else {
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
