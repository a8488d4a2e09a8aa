//! A question about a cluster: its changes in their order, and the answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use portolan::cache::{Cluster, Snapshot};
use portolan::metrics::Metrics;
use portolan::model::Pod;
use portolan::scheduler::drain::DrainOptions;
use portolan::{AlgorithmConfig, Framework, Profiles, WhatIf};
use portolan_k8s::PodController;

use crate::error::CommandError;
use crate::intake::Intake;
use crate::policy::Rules;
use crate::replacement::recreated;
use crate::resource_claims::{ClaimController, fit_more};
use crate::simulation::closed;
use crate::targets::{Finder, Reference, Removal, Scale};
use crate::text::count;
use crate::{cluster, metrics, terminal};

use super::answer::{Answer, FitMore, Later};
use super::daemons::Daemons;
use super::difference::{Effects, Outcome};
use super::drain::{self, Drains};
use super::start::{Base, Checkpoint, Start};
use super::unsimulated::{self, unresponsive};
use super::upgrade::Upgrade;
use super::world::World;
use super::{Arguments, Change, MOST, bound, consolidate, fail, model, rollout, scale, volumes};

/// Reads the cluster and answers the question of the arguments. Returns the cluster before and after the change, too.
pub(super) fn answer(arguments: &Arguments) -> Result<(Answer, [Arc<Snapshot>; 2]), CommandError> {
    let sink = arguments.metrics.open()?;
    let Arguments { from, change, godel, seed, .. } = arguments;
    let (mut input, added) = cluster::read_with(from, godel, &arguments.pods)?;
    let mut intake = Intake::clone(&input.contents.intake);
    let like = arguments.fit_more.as_ref().map(|file| {
        let (pods, devices) = input.pods_beside(file, from.strict, &mut intake)?;
        let like = pods.into_iter().next().ok_or_else(|| CommandError::File {
            file: file.clone(),
            what: "no pods found: pass a file with a pod".to_owned(),
        })?;
        Ok::<_, CommandError>((like, devices))
    });
    let like = like.transpose()?;
    input.contents.intake = intake.into();
    let _bar = terminal::progress("simulating", 0, terminal::Of::Items("nodes"));
    let config = Arc::new(arguments.config.source().read()?);
    let loaded = input.load(godel, Vec::new())?;
    let rules = &Rules { config, godel: Arc::new(godel.clone()), seed: *seed };
    let (from, is_wanted) = (Arc::new(Checkpoint::of(&loaded)), Arc::new(AtomicBool::new(true)));
    let base = Base { rules, contents: &loaded.contents, from, is_wanted, on_failure: &|_, _| {} };
    let question = Question { base: &base, change, without: &base.without_change()?.outcomes };
    let like = like.map(|(pod, devices)| {
        let claims = loaded.claims.as_ref().map(|claims| claims.with_templates(&devices));
        Like { pod, claims, limit: MOST }
    });
    let Answered { answer, world, cluster } =
        question.answer(added, like.as_ref(), metrics::of(&sink))?;
    if let Some(sink) = &sink {
        let figures = world.simulation.engine.figures().map_err(closed)?;
        sink.metrics.engine(&figures, &cluster);
    }
    metrics::write(sink)?;
    Ok((answer, [loaded.cluster.clone(), cluster]))
}

/// A question about a cluster.
pub(super) struct Question<'q> {
    pub(super) base: &'q Base<'q>,
    pub(super) change: &'q Change,
    /// What becomes of the cluster without the change.
    pub(super) without: &'q [Outcome; 2],
}

/// An answer, and the simulation after the change.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) world: World,
    /// The cluster at the last moment.
    pub(super) cluster: Arc<Snapshot>,
}

/// The simulation after the change.
pub(super) struct Changed<'c> {
    pub(super) drains: Drains<'c>,
    /// The cluster at the two moments, which are the same if nothing was ending.
    now: Arc<Snapshot>,
    pub(super) later: Arc<Snapshot>,
}

impl<'q> Question<'q> {
    /// Simulates the change, with added objects, and counts how many more pods like this one fit then.
    pub(super) fn answer(
        &self,
        added: cluster::Added,
        like: Option<&Like>,
        recorder: Option<&Metrics>,
    ) -> Result<Answered, CommandError> {
        let Question { base, change, .. } = *self;
        let contents = base.contents;
        let mut start = base.start(recorder)?;
        let (notes, intake) = (contents.notes.clone(), Intake::clone(&contents.intake));
        let mut answer = Answer { notes, intake, ..Answer::default() };
        answer.notes.append(&mut start.notes);
        answer.unsimulated = unsimulated::controllers(contents.controllers());
        if like.is_some() {
            answer.unsimulated.extend(unsimulated::admission(contents.admission()));
        }
        let changed = self.change(&mut start, added, &mut answer)?;
        start.warn(&base.rules.config, &mut answer);
        let Changed { mut drains, now, later: cluster } = changed;
        let world = start.world;
        if let Some(like) = like {
            answer.unsimulated.extend(unsimulated::copies(&like.pod, &cluster));
            let now = if answer.later.is_some() { &now } else { &cluster };
            answer.fit_more = like.count(&world.record.profiles, [now, &cluster]);
        }
        if change.consolidate {
            answer.unsimulated.extend(unsimulated::moves(&cluster));
            let time = Duration::from_secs_f64(change.time_limit);
            let limits = (&mut drains.limits, &world.record);
            answer.consolidated =
                Some(consolidate::run(&cluster, limits, self.drain_options(), time));
        }
        answer.nodes = cluster.len();
        Ok(Answered { answer, world, cluster })
    }

    fn drain_options(&self) -> DrainOptions {
        let Change { force, delete_emptydir_data, .. } = *self.change;
        DrainOptions { force, delete_local_data: delete_emptydir_data }
    }

    /// Makes the changes of the question, in their order, and compares the cluster with the one without them.
    pub(super) fn change(
        &self,
        start: &mut Start,
        added: cluster::Added,
        answer: &mut Answer,
    ) -> Result<Changed<'q>, CommandError> {
        let Question { base, change, without } = *self;
        let contents = base.contents;
        let mut reader = start.world.reader()?;
        let facts = contents.facts();
        let mut limits = start.settle(base)?;
        start.world.record.begin_change();
        let world = &mut start.world;
        // The nodes of the cluster, not the added ones.
        let failing = self.failing(reader.refresh())?;
        check(change, &failing, contents.controllers())?;
        answer.unsimulated.extend(unresponsive(reader.refresh(), &failing));
        let drained = self.drained(reader.refresh(), &failing)?;
        let mut daemons = self.scale(world, answer)?;
        let mut failed = fail::fail(&failing, facts, world)?;
        answer.failed = failed.nodes.clone();
        answer.is_loss_accepted = change.force;
        limits.update(world)?;

        let mut drains = Drains::new(self.drain_options(), limits);
        let drained = drain::cordon_all(&drained, world)?;
        let mut blocked = drains.drain(&drained, world, answer)?;
        let upgraded = change.upgrade.as_ref();
        let most = (change.max_surge, change.max_unavailable);
        let upgraded = upgraded.map(|nodes| Upgrade::new(nodes, &failing, most, reader.refresh()));
        let mut upgraded = upgraded.transpose()?;
        if let Some(upgrade) = &mut upgraded {
            blocked.extend(upgrade.proceed(&mut daemons, &mut drains, world)?);
        }
        self.add(added, world, answer)?;
        failed.end_placed(world)?;
        let now = reader.snapshot();
        answer.now = Effects::between(&without[0], &world.record.outcome(&now));
        answer.now.blocked = blocked;
        answer.now.failed_jobs = world.record.failed_jobs.len();
        if let Some(domain) = change.each {
            let from = Arc::new(Checkpoint::after(world, &self.base.from)?);
            answer.each = Some(Base { from, ..base.clone() }.each(domain, change)?);
        }

        let later = Later { terminating: start.terminating.len(), failed: failed.nodes.len() };
        if later != Later::default() {
            failed.delete(world)?;
            start.end_terminating(&mut drains.limits)?;
            let world = &mut start.world;
            let mut blocked = drains.drain(&drained, world, answer)?;
            if let Some(upgrade) = &mut upgraded {
                blocked.extend(upgrade.proceed(&mut daemons, &mut drains, world)?);
            }
            let mut effects =
                Effects::between(&without[1], &world.record.outcome(reader.refresh()));
            effects.blocked = blocked;
            effects.failed_jobs = start.world.record.failed_jobs.len();
            answer.later = Some((later, effects));
        }
        answer.upgrade = upgraded;
        answer.kubectl_flags = drains.kubectl_flags();
        answer.budgets = drains.uses(&answer.last().blocked, reader.refresh(), &start.world.record);
        let later = reader.snapshot();
        let placed = &answer.last().placed;
        answer.unlimited = model::without_known_limits(placed, &daemons.without_limits, &later);
        Ok(Changed { drains, now, later })
    }

    /// The nodes that fail.
    fn failing(&self, cluster: &Cluster) -> Result<Vec<String>, CommandError> {
        let nodes = self.change.fail_node.iter().chain(&self.change.fail_zone);
        let names = nodes.map(|nodes| nodes.names(cluster)).collect::<Result<Vec<_>, _>>()?;
        Ok(drain::once(&names.concat()))
    }

    /// The nodes that are drained.
    fn drained(&self, cluster: &Cluster, failing: &[String]) -> Result<Vec<String>, CommandError> {
        let Change { selector, drain, .. } = self.change;
        let Some(selection) = selector else { return Ok(drain.clone()) };
        let nodes = selection.nodes(cluster, "--selector")?;
        let names = nodes.iter().map(|node| node.name.to_string());
        Ok(names.filter(|name| !failing.contains(name)).collect())
    }

    /// Deletes controllers and pods, adds nodes, and scales controllers. Returns the daemon sets that run on new nodes.
    fn scale(&self, world: &mut World, answer: &mut Answer) -> Result<Daemons, CommandError> {
        let (change, contents) = (self.change, self.base.contents);
        let namespace = change.namespace.as_deref();
        let (controllers, scales) = (contents.controllers(), contents.scales());
        let finder = Finder { controllers, scales, namespace };
        scale::remove(&change.remove, &finder, world, answer)?;
        let is_kept = |it: &&PodController| change.keeps(it);
        // Finding the daemon sets requires a pass over all pods.
        let adds_nodes = !change.add.is_empty() || change.upgrade.is_some();
        let mut daemons = match adds_nodes {
            true => {
                let kept = contents.controllers().iter().filter(is_kept);
                let cluster = world.cluster()?;
                Daemons::of(&cluster, kept.cloned())
            }
            false => Daemons::none(),
        };
        for copies in &change.add {
            copies.add(&mut daemons, world, answer)?;
        }
        world.schedule()?;
        let facts = contents.facts();
        let new = scale::scale(&change.scale, &finder, facts, world, answer)?;
        self.add_pods(new, world, answer)?;
        Ok(daemons)
    }

    /// Adds the objects and pods of files.
    fn add(
        &self,
        mut added: cluster::Added,
        world: &mut World,
        answer: &mut Answer,
    ) -> Result<(), CommandError> {
        let now = world.cluster()?;
        let bound = volumes::bind(&mut added.objects, &now);
        if bound > 0 {
            let claims = count(bound, "new claim");
            answer.notes.push(format!("bound {claims} to volumes, as the cluster would at once"));
        }
        for object in std::mem::take(&mut added.objects) {
            world.put(object)?;
        }
        rollout::run(self.base.contents, &mut added, world, answer)?;
        answer.is_idle = self.changes_nothing_else()
            && added.pods.is_empty()
            && answer.rollouts.is_empty()
            && !added.controllers.is_empty();
        self.add_pods(added.pods, world, answer)
    }

    /// Whether added files are the only change of the question.
    fn changes_nothing_else(&self) -> bool {
        let Change {
            drain, selector, fail_node, fail_zone, each, remove, scale, upgrade, add, ..
        } = self.change;
        drain.is_empty()
            && fail_node.is_empty()
            && fail_zone.is_empty()
            && (remove.is_empty() && scale.is_empty() && add.is_empty())
            && (selector.is_none() && upgrade.is_none() && each.is_none())
    }

    fn add_pods(
        &self,
        pods: Vec<Pod>,
        world: &mut World,
        answer: &mut Answer,
    ) -> Result<(), CommandError> {
        world.record.creation.expect(&pods);
        world.record.refuse_known(&pods, &self.base.contents.files(), &*world.cluster()?)?;
        let free = bound::add(pods, world, &mut answer.notes)?;
        world.arrive(&free)
    }
}

/// A pod whose copies are counted.
pub(super) struct Like {
    pub(super) pod: Pod,
    /// The controller of its claims.
    pub(super) claims: Option<ClaimController>,
    /// The most copies.
    pub(super) limit: usize,
}

impl Like {
    /// Counts the copies of the pod that fit at two moments, which may be the same. A configuration has at least one
    /// profile.
    pub(super) fn count(
        &self,
        profiles: &Profiles<(Arc<Framework>, AlgorithmConfig)>,
        [now, later]: [&Arc<Snapshot>; 2],
    ) -> Option<FitMore> {
        let pod = recreated(self.pod.clone());
        let (framework, config) = profiles.get(&pod).or_else(|| profiles.iter().next())?;
        let copies = |cluster: &Snapshot| {
            let mut what_if = WhatIf::new(cluster, framework.clone(), config.clone());
            fit_more(&mut what_if, self.claims.as_ref(), &pod, self.limit)
        };
        let nodes = copies(later);
        let is_same = now.generation() == later.generation();
        let now = if is_same { nodes.values().sum() } else { copies(now).values().sum() };
        Some(FitMore { pod: pod.name, now, nodes })
    }
}

/// Refuses options that contradict each other.
fn check(
    change: &Change,
    failing: &[String],
    controllers: &[PodController],
) -> Result<(), CommandError> {
    let contradicts = |object: &str, one: &str, other: &str| {
        CommandError::Usage(format!("{object} is in {one} and in {other}: name it in one of them"))
    };
    let Change { drain, remove, scale, .. } = change;
    if let Some(node) = drain.iter().find(|node| failing.contains(node)) {
        let fail = match (change.fail_node.is_empty(), change.fail_zone.is_empty()) {
            (_, true) => "--fail-node",
            (true, false) => "--fail-zone",
            (false, false) => "--fail-node or --fail-zone",
        };
        return Err(contradicts(&format!("node {node}"), "--drain", fail));
    }
    let is_removed = |of: &Reference| {
        let mut controllers = controllers.iter().filter(|it| of.is_of(it));
        let is_named = |it: &Removal| matches!(it, Removal::Named(it) if it.is_same(of));
        remove.iter().any(is_named)
            || controllers.any(|controller| remove.iter().any(|it| it.covers(controller)))
    };
    if let Some(Scale { of, .. }) = scale.iter().find(|scale| is_removed(&scale.of)) {
        return Err(contradicts(&format!("{}/{}", of.kind, of.name), "--remove", "--scale"));
    }
    let twice = |at: usize| scale[..at].iter().any(|it| it.of.is_same(&scale[at].of));
    match (0..scale.len()).find(|at| twice(*at)) {
        Some(at) => {
            let of = &scale[at].of;
            let what = format!("--scale names {}/{} twice: name it once", of.kind, of.name);
            Err(CommandError::Usage(what))
        }
        None => Ok(()),
    }
}
