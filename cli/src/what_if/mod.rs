//! `portolan what-if`: simulates changes of nodes and controllers, counts how many more copies
//! of a pod fit, and finds nodes that could be emptied.
//!
//! The cluster is simulated as `portolan replay` does it ([`crate::simulation`]): pods wait in the scheduling queue,
//! behind their gates, for their group, and preempt others. Pods that are pending in the cluster are tried first, without
//! the change. The same cluster is simulated once more without the change, and the answer is the difference
//! ([`difference`]).
//!
//! The parts of a change take place in a fixed order: controllers and pods are removed, nodes
//! join, controllers become smaller and larger, nodes fail, are drained and upgraded, and at the end new
//! pods arrive. Each part starts when the part before it has settled. When all have, pods that are being deleted end, and
//! failed nodes are deleted; the answer holds for both moments.

mod answer;
mod aside;
mod bound;
mod budgets;
mod claims;
mod consolidate;
mod daemons;
mod difference;
mod drain;
mod each;
mod fail;
#[cfg(test)]
mod failure_tests;
mod groups;
mod model;
mod nodes;
mod record;
mod report;
mod rollout;
mod rows;
mod scale;
mod start;
#[cfg(test)]
mod tests;
mod upgrade;
mod volumes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use portolan::log::Event;
use portolan::model::{Name, Node, Pod, Taint, TaintEffect, Template};
use portolan::scheduler::WhatIf;
use portolan::scheduler::drain::{DrainOptions, Stays};
use portolan::{Cluster, PodInfo, Snapshot};
use portolan_k8s::{IntOrPercent, PodController};

use crate::error::Failure;
use crate::metrics::{self, MetricsFile};
use crate::policy::{self, ConfigFile};
use crate::selection::{Nodes, Selection};
use crate::simulation::{Simulation, closed, event, refused};
use crate::targets::{self, Finder, Reference, Removal, Scale};
use crate::text::{count, first_names};
use crate::{Output, arguments, cluster, print, terminal};

use answer::{Answer, FitMore, Later};
use daemons::Daemons;
use difference::{Effects, Outcome};
use drain::Drains;
use each::Base;
use record::{End, Record};
use start::Start;
use upgrade::Upgrade;

/// Simulate changes of nodes and controllers and show where pods would go.
///
/// The changes can be combined. Controllers and pods are removed first; then nodes join,
/// controllers are scaled, nodes fail, are drained and upgraded; at the end new pods arrive.
///
/// The exit status is 1 if the change leaves a pod without a node, loses one, or is blocked, if a rollout hangs, and if a
/// failure of --each does so. What also happens without the change does not count.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Nodes to cordon and drain, as `kubectl drain` does.
    #[arg(long, value_parser = targets::node, num_args = 1.., value_name = "NODE")]
    drain: Vec<String>,
    /// Cordon and drain the nodes with these labels instead, such as pool=a, as `kubectl drain
    /// --selector` does.
    #[arg(long, value_parser = Selection::parse, conflicts_with = "drain")]
    selector: Option<Selection>,
    /// Accepted for compatibility with kubectl: pods of daemon sets always stay on drained nodes.
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Nodes that fail at the same moment and do not return, by name or by a label selector such as pool=a; budgets do
    /// not apply.
    ///
    /// Pods are replaced after the time for which they tolerate the failure. Pods without a
    /// controller are lost, which --force accepts.
    #[arg(long, value_parser = Nodes::parse, num_args = 1.., value_name = "NODE|SELECTOR")]
    fail_node: Vec<Nodes>,
    /// Zones whose nodes all fail, as with --fail-node.
    ///
    /// The zone of a node is its label topology.kubernetes.io/zone or failure-domain.beta.kubernetes.io/zone.
    #[arg(long, value_parser = Nodes::zone, num_args = 1.., value_name = "ZONE")]
    fail_zone: Vec<Nodes>,
    /// Let every node or zone fail in turn, each on its own, and list the worst failures.
    ///
    /// The failures begin with the cluster at the end of the other changes.
    #[arg(long, value_enum, conflicts_with_all = ["fail_node", "fail_zone"], value_name = "DOMAIN")]
    each: Option<each::Domain>,
    /// Delete controllers with their pods, or single pods, such as deployment/web, pod/web-0, or pods/app=web for the
    /// pods with this label.
    ///
    /// A pod that has a controller is recreated. Controllers are selected by their own labels.
    #[arg(long, value_parser = Removal::parse, num_args = 1.., value_name = "KIND/NAME|KIND/SELECTOR")]
    remove: Vec<Removal>,
    /// Change the number of pods of a controller, such as deployment/web=5.
    ///
    /// For a Job, this is the number of pods that run at once.
    #[arg(long, value_parser = Scale::parse, num_args = 1.., value_name = "KIND/NAME=N")]
    scale: Vec<Scale>,
    /// Namespace of the objects of --remove and --scale, if several namespaces have an object of this name.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Upgrade the nodes with these labels in steps, such as pool=a, or all.
    #[arg(long, value_parser = Selection::parse, value_name = "SELECTOR")]
    upgrade: Option<Selection>,
    /// Nodes per step that are replaced by new nodes, as a number or a percentage.
    #[arg(long, value_parser = upgrade::amount, default_value = "1", requires = "upgrade", value_name = "N|N%")]
    max_surge: IntOrPercent,
    /// Nodes per step that are upgraded in place, as a number or a percentage.
    #[arg(long, value_parser = upgrade::amount, default_value = "0", requires = "upgrade", value_name = "N|N%")]
    max_unavailable: IntOrPercent,
    /// Also drain pods without a controller, and accept that they are lost with failed nodes.
    #[arg(long)]
    force: bool,
    /// Also drain pods with local data, which would be lost.
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Add COUNT copies of a node in a file or in the cluster: 3xnode.yaml adds three copies of the node in node.yaml,
    /// and 3xn1 three copies of n1.
    ///
    /// The letter x separates the two, and COUNT is required, even for one copy: 1xnode.yaml. A file is read like one of
    /// --cluster; its first node is copied, with the CSINode of the same name. The copies of the node n are named n-1,
    /// n-2 and so on, and are not cordoned.
    #[arg(long, value_parser = nodes::Copies::parse, num_args = 1.., value_name = "COUNTxNODE")]
    add: Vec<nodes::Copies>,
    /// Additional pods to schedule: files or directories of pods or of their controllers, or
    /// - for standard input.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pods: Vec<PathBuf>,
    /// Count how many copies of the pod in FILE still fit.
    #[arg(long, value_name = "FILE")]
    fit_more: Option<PathBuf>,
    /// Find a small set of nodes on which all pods fit, and the nodes that can be removed.
    ///
    /// The scheduler decides where pods go, and its constraints and the disruption budgets are respected. A lower bound
    /// is printed beside the number of nodes that remain.
    #[arg(long)]
    consolidate: bool,
    /// Time limit of the search of --consolidate, in seconds.
    #[arg(
        long,
        alias = "budget",
        default_value_t = 10.0,
        requires = "consolidate",
        value_parser = arguments::seconds,
        value_name = "SECONDS",
    )]
    time_limit: f64,
    #[command(flatten)]
    config: ConfigFile,
    /// Seed for breaking ties.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    godel: cluster::Godel,
    #[command(flatten)]
    metrics: MetricsFile,
}

/// A pod that blocks a drain, its node, and why it stays.
type Blocked = (Pod, Name, Stays);

/// Maximum number of pods that `--fit-more` tries.
pub(crate) const MOST: usize = 1_000_000;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let answer = answer(arguments)?;
    print(&match arguments.output {
        Output::Table => report::table(&answer),
        Output::Json => report::json(&answer).to_string(),
    })?;
    if arguments.output == Output::Table {
        answer.intake.print();
    }
    Ok(if answer.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Refuses options that contradict each other.
fn check(
    arguments: &Arguments,
    failing: &[String],
    controllers: &[PodController],
) -> Result<(), Failure> {
    let contradicts = |object: &str, one: &str, other: &str| {
        Failure::Usage(format!("{object} is in {one} and in {other}: name it in one of them"))
    };
    let Arguments { drain, remove, scale, .. } = arguments;
    if let Some(node) = drain.iter().find(|node| failing.contains(node)) {
        let fail = match (arguments.fail_node.is_empty(), arguments.fail_zone.is_empty()) {
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
            Err(Failure::Usage(what))
        }
        None => Ok(()),
    }
}

fn answer(arguments: &Arguments) -> Result<Answer, Failure> {
    let sink = arguments.metrics.open()?;
    let (contents, added) =
        cluster::contents_with(&arguments.from, &arguments.godel, &arguments.pods)?;
    let _bar = terminal::progress("simulating", 0, terminal::Of::Items("nodes"));
    let config = arguments.config.source().read()?;
    let without = without_change(arguments, &config, &contents)?;
    let mut start = Start::new(arguments, &config, &contents, metrics::of(&sink))?;
    let (notes, intake) = (contents.notes.clone(), contents.intake.clone());
    let mut answer = Answer { notes, intake, ..Answer::default() };
    answer.notes.append(&mut start.notes);
    answer.unsimulated = unsimulated(contents.controllers());
    if arguments.fit_more.is_some() && !contents.admission().is_empty() {
        answer.unsimulated.push("limit ranges and quotas of --fit-more".to_owned());
    }
    let question = Question { arguments, config: &config, contents: &contents, without: &without };
    let changed = question.change(&mut start, added, &mut answer)?;
    start.warn(arguments, &mut answer);
    question.count_more(&start, &changed, &mut answer)?;
    let Changed { mut drains, later: snapshot, .. } = changed;
    let Start { simulation, record, .. } = &start;
    if arguments.consolidate {
        let time = Duration::from_secs_f64(arguments.time_limit);
        let limits = (&mut drains.limits, record);
        answer.consolidated =
            Some(consolidate::run(&snapshot, limits, question.drain_options(), time));
    }
    answer.nodes = snapshot.len();
    if let Some(sink) = &sink {
        sink.metrics.engine(&simulation.engine.figures().map_err(closed)?, &snapshot);
    }
    metrics::write(sink)?;
    Ok(answer)
}

/// The fields that change the pods of these controllers and are not simulated.
fn unsimulated(controllers: &[PodController]) -> Vec<String> {
    let fields = controllers.iter().filter_map(|it| {
        let owner = it.owners.iter().find(|owner| owner.controller)?;
        Some(format!("{} of {} {}/{}", it.unsimulated?, owner.kind, it.namespace, owner.name))
    });
    fields.collect::<std::collections::BTreeSet<String>>().into_iter().collect()
}

/// The nodes whose kubelets do not respond, except those that fail in the simulation. Their pods are evicted, but do not
/// end.
fn unresponsive(cluster: &Cluster, failing: &[String]) -> Option<String> {
    let is_tainted = |node: &Node| {
        let mut taints = node.taints.iter().filter(|it| it.effect == TaintEffect::NoExecute);
        taints.any(|it| [Taint::NOT_READY, Taint::UNREACHABLE].contains(&&*it.key))
    };
    let is_evicted =
        |pod: &PodInfo<'_>| pod.deletion_time().is_none() && !fail::is_of_node(pod.template());
    let nodes = cluster.nodes().filter(|info| {
        info.node().is_some_and(|node| is_tainted(node))
            && !failing.iter().any(|failing| **failing == **info.name())
            && info.pods().any(|pod| is_evicted(&pod))
    });
    let names: Vec<String> = nodes.map(|info| info.name().to_string()).collect();
    (!names.is_empty()).then(|| {
        let noun = if names.len() == 1 { "node" } else { "nodes" };
        format!("the eviction of pods from {noun} {} without a kubelet", first_names(&names))
    })
}

/// What becomes of the cluster without the change: now, and when the pods that are being deleted have ended.
fn without_change(
    arguments: &Arguments,
    config: &policy::Text<'_>,
    contents: &cluster::Contents,
) -> Result<[Outcome; 2], Failure> {
    let mut start = Start::new(arguments, config, contents, None)?;
    let mut limits = start.limits(contents)?;
    start.settle(&mut limits)?;
    start.both_outcomes(&mut limits)
}

/// A question about a cluster.
struct Question<'q> {
    arguments: &'q Arguments,
    config: &'q policy::Text<'q>,
    contents: &'q cluster::Contents,
    /// What becomes of the cluster without the change.
    without: &'q [Outcome; 2],
}

/// The simulation after the change.
struct Changed<'c> {
    drains: Drains<'c>,
    /// The cluster at the two moments, which are the same if nothing was ending.
    now: std::sync::Arc<Snapshot>,
    later: std::sync::Arc<Snapshot>,
}

impl<'q> Question<'q> {
    fn drain_options(&self) -> DrainOptions {
        let Arguments { force, delete_emptydir_data, .. } = *self.arguments;
        DrainOptions { force, delete_local_data: delete_emptydir_data }
    }

    /// Makes the changes of the question, in their order, and compares the cluster with the one without them.
    fn change(
        &self,
        start: &mut Start,
        added: cluster::Added,
        answer: &mut Answer,
    ) -> Result<Changed<'q>, Failure> {
        let Question { arguments, config, contents, without } = *self;
        let mut reader = start.simulation.engine.reader().map_err(closed)?;
        let facts = contents.facts();
        let mut limits = start.limits(contents)?;
        start.settle(&mut limits)?;
        start.record.begin_change();
        let (simulation, record) = (&mut start.simulation, &mut start.record);
        // The nodes of the cluster, not the added ones.
        let failing = self.failing(reader.refresh())?;
        check(arguments, &failing, contents.controllers())?;
        answer.unsimulated.extend(unresponsive(reader.refresh(), &failing));
        let drained = self.drained(reader.refresh(), &failing)?;
        let mut daemons = self.scale(simulation, record, answer)?;
        let mut failed = fail::fail(&failing, facts, simulation, record)?;
        answer.failed = failed.nodes.clone();
        answer.is_loss_accepted = arguments.force;
        limits.update(simulation, record)?;

        let mut drains = Drains::new(self.drain_options(), limits);
        let drained = drain::cordon_all(&drained, &simulation.engine)?;
        let mut blocked = drains.drain(&drained, simulation, record, answer)?;
        let upgraded = arguments.upgrade.as_ref();
        let most = (arguments.max_surge, arguments.max_unavailable);
        let upgraded = upgraded.map(|nodes| Upgrade::new(nodes, &failing, most, reader.refresh()));
        let mut upgraded = upgraded.transpose()?;
        if let Some(upgrade) = &mut upgraded {
            blocked.extend(upgrade.proceed(&mut daemons, &mut drains, simulation, record)?);
        }
        self.add(added, simulation, record, answer)?;
        failed.end_placed(simulation, record)?;
        let now = reader.snapshot();
        answer.now = Effects::between(&without[0], &record.outcome(&now));
        answer.now.blocked = blocked;
        answer.now.failed_jobs = record.failed_jobs.len();
        if let Some(domain) = arguments.each {
            let base = Base::new(arguments, config, contents, &now, record);
            answer.each = Some(base.each(domain)?);
        }

        let later = Later { terminating: start.terminating.len(), failed: failed.nodes.len() };
        if later != Later::default() {
            failed.delete(simulation, record)?;
            start.end_terminating(&mut drains.limits)?;
            let (simulation, record) = (&mut start.simulation, &mut start.record);
            let mut blocked = drains.drain(&drained, simulation, record, answer)?;
            if let Some(upgrade) = &mut upgraded {
                blocked.extend(upgrade.proceed(&mut daemons, &mut drains, simulation, record)?);
            }
            let mut effects = Effects::between(&without[1], &record.outcome(reader.refresh()));
            effects.blocked = blocked;
            effects.failed_jobs = start.record.failed_jobs.len();
            answer.later = Some((later, effects));
        }
        answer.upgrade = upgraded;
        answer.kubectl_flags = drains.kubectl_flags();
        answer.budgets = drains.uses(&answer.last().blocked, reader.refresh(), &start.record);
        let later = reader.snapshot();
        let placed = &answer.last().placed;
        answer.unlimited = model::without_known_limits(placed, &daemons.without_limits, &later);
        Ok(Changed { drains, now, later })
    }

    /// The nodes that fail.
    fn failing(&self, cluster: &Cluster) -> Result<Vec<String>, Failure> {
        let nodes = self.arguments.fail_node.iter().chain(&self.arguments.fail_zone);
        let names = nodes.map(|nodes| nodes.names(cluster)).collect::<Result<Vec<_>, _>>()?;
        Ok(drain::once(&names.concat()))
    }

    /// The nodes that are drained.
    fn drained(&self, cluster: &Cluster, failing: &[String]) -> Result<Vec<String>, Failure> {
        let Arguments { selector, drain, .. } = self.arguments;
        let Some(selection) = selector else { return Ok(drain.clone()) };
        let nodes = selection.nodes(cluster, "--selector")?;
        let names = nodes.iter().map(|node| node.name.to_string());
        Ok(names.filter(|name| !failing.contains(name)).collect())
    }

    /// Deletes controllers and pods, adds nodes, and scales controllers. Returns the daemon sets that run on new nodes.
    fn scale(
        &self,
        simulation: &mut Simulation,
        record: &mut Record,
        answer: &mut Answer,
    ) -> Result<Daemons, Failure> {
        let Question { arguments, contents, .. } = *self;
        let namespace = arguments.namespace.as_deref();
        let initial = portolan_k8s::Scales::of(contents.controllers());
        let finder = Finder { controllers: contents.controllers(), scales: &initial, namespace };
        scale::remove(&arguments.remove, &finder, simulation, record, answer)?;
        let is_kept = |it: &&PodController| {
            !arguments.remove.iter().any(|removal| removal.covers(it))
                || namespace.is_some_and(|of| of != &*it.namespace)
        };
        // Finding the daemon sets requires a pass over all pods.
        let adds_nodes = !arguments.add.is_empty() || arguments.upgrade.is_some();
        let mut daemons = match adds_nodes {
            true => {
                let kept = contents.controllers().iter().filter(is_kept);
                let cluster = simulation.engine.reader().map_err(closed)?.snapshot();
                Daemons::of(&cluster, kept.cloned())
            }
            false => Daemons::none(),
        };
        for copies in &arguments.add {
            copies.add(&mut daemons, simulation, record, answer)?;
        }
        simulation.settle(record)?;
        let facts = contents.facts();
        let new = scale::scale(&arguments.scale, &finder, facts, simulation, record, answer)?;
        self.add_pods(new, simulation, record, answer)?;
        Ok(daemons)
    }

    /// Adds the objects and pods of files.
    fn add(
        &self,
        mut added: cluster::Added,
        simulation: &mut Simulation,
        record: &mut Record,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let now = simulation.engine.reader().map_err(closed)?.snapshot();
        let bound = volumes::bind(&mut added.objects, &now);
        if bound > 0 {
            let claims = count(bound, "new claim");
            answer.notes.push(format!("bound {claims} to volumes, as the cluster would at once"));
        }
        for object in std::mem::take(&mut added.objects) {
            let name = format!("{} {}", object.kind().as_str(), object.name());
            let put = event(&simulation.engine, Event::put_object(object))?;
            put.map_err(|error| Failure::Refused { object: name, error })?;
        }
        rollout::run(self.contents, &mut added, simulation, record, answer)?;
        answer.is_idle = self.changes_nothing_else()
            && added.pods.is_empty()
            && answer.rollouts.is_empty()
            && !added.controllers.is_empty();
        self.add_pods(added.pods, simulation, record, answer)
    }

    /// Whether added files are the only change of the question.
    fn changes_nothing_else(&self) -> bool {
        let Arguments {
            drain,
            selector,
            fail_node,
            fail_zone,
            each,
            remove,
            scale,
            upgrade,
            add,
            ..
        } = self.arguments;
        drain.is_empty()
            && fail_node.is_empty()
            && fail_zone.is_empty()
            && (remove.is_empty() && scale.is_empty() && add.is_empty())
            && (selector.is_none() && upgrade.is_none() && each.is_none())
    }

    fn add_pods(
        &self,
        pods: Vec<Pod>,
        simulation: &mut Simulation,
        record: &mut Record,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        record.creation.expect(&pods);
        record.refuse_known(&pods, &self.contents.files(), &simulation.engine)?;
        let free = bound::add(pods, simulation, record, &mut answer.notes)?;
        arrive(simulation, record, &free)
    }

    /// Counts the copies of the pod of `--fit-more` that fit.
    fn count_more(
        &self,
        start: &Start,
        changed: &Changed<'_>,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let Some(file) = &self.arguments.fit_more else { return Ok(()) };
        let strict = self.arguments.from.strict;
        let pods = self.contents.pods_beside(file, strict, &mut answer.intake)?;
        let like = pods.into_iter().next().ok_or_else(|| Failure::File {
            file: file.clone(),
            what: "no pods found: pass a file with a pod".to_owned(),
        })?;
        answer.unsimulated.extend(unsimulated_copies(&like, &changed.later));
        let like = Pod { node_name: None, ..like };
        let profiles = &start.record.profiles;
        let Some((framework, config)) = profiles.get(&like).or_else(|| profiles.iter().next())
        else {
            return Ok(());
        };
        let count = |cluster: &Snapshot| {
            WhatIf::new(cluster, framework.clone(), config.clone()).fit_more(&like, MOST)
        };
        let later = count(&changed.later);
        let now = if answer.later.is_some() { count(&changed.now) } else { later };
        answer.fit_more = Some(FitMore { pod: like.name.clone(), now, later });
        Ok(())
    }
}

/// The parts of a pod that its copies of `--fit-more` are simulated without.
fn unsimulated_copies(like: &Pod, cluster: &Cluster) -> Option<String> {
    let known = &cluster.objects().persistent_volume_claims;
    let mut claims = like.template.volumes.iter().filter_map(|volume| volume.claim(&like.name));
    let is_new = claims.any(|claim| known.get(like.namespace(), &claim).is_none());
    let parts = [
        (is_new, "new claims"),
        (!like.template.scheduling_gates.is_empty(), "scheduling gates"),
        (like.node_name.is_some(), "nodeName"),
    ];
    let parts: Vec<&str> =
        parts.into_iter().filter_map(|(has, what)| has.then_some(what)).collect();
    (!parts.is_empty()).then(|| format!("{} of --fit-more", parts.join(", ")))
}

/// Creates a pod that is new, or has left a node, and settles its effects. A pod that is being deleted is not scheduled
/// (schedule_one.go `skipPodSchedule`).
fn enter(
    simulation: &mut Simulation,
    record: &mut Record,
    pod: &Pod,
    from: Option<&Name>,
) -> Result<(), Failure> {
    if pod.deletion_time.is_some() {
        record.ends(pod, None, End::Skipped);
        return Ok(());
    }
    create(simulation, record, pod, from)?;
    settle(simulation, record)
}

/// Adds a pod to the queue, unless its controller does not create it yet or the API server refuses it.
fn create(
    simulation: &mut Simulation,
    record: &mut Record,
    pod: &Pod,
    from: Option<&Name>,
) -> Result<(), Failure> {
    let reader = simulation.engine.reader().map_err(closed)?;
    match record.creation.create(pod, from.is_some(), || reader.snapshot()) {
        Ok(pod) => {
            record.arrives(&pod, from);
            if record.is_scheduled(&pod) {
                simulation.arrive(&pod)?;
            }
        }
        Err(why) => record.ends(pod, from, End::Uncreated(why)),
    }
    Ok(())
}

/// Schedules pods, ends the pods of jobs that have failed, and creates pods that waited for others, until nothing is left
/// to do at this moment.
fn settle(simulation: &mut Simulation, record: &mut Record) -> Result<(), Failure> {
    loop {
        simulation.settle(record)?;
        let failed = record.replacements.take_failed();
        let ready = record.creation.take_ready();
        if failed.is_empty() && ready.is_empty() {
            return Ok(());
        }
        for job in failed {
            end_job(&job, simulation, record)?;
            record.failed_jobs.push(job);
        }
        for pod in ready {
            create(simulation, record, &pod, None)?;
        }
    }
}

/// Ends the pods of a job that has failed, as its controller does.
fn end_job(
    (namespace, name): &(Name, Name),
    simulation: &mut Simulation,
    record: &mut Record,
) -> Result<(), Failure> {
    let is_of_job = |template: &Template| {
        let owner = template.controller();
        template.namespace == *namespace
            && owner.is_some_and(|owner| &*owner.kind == "Job" && owner.name == *name)
    };
    let now = simulation.engine.reader().map_err(closed)?.snapshot();
    let placed = now.nodes().flat_map(|node| node.pods()).filter(|it| is_of_job(it.template()));
    let placed: Vec<Pod> = placed.map(|pod| pod.to_pod()).collect();
    let others = record.waiting().chain(record.uncreated());
    let others: Vec<Pod> = others.filter(|pod| is_of_job(&pod.template)).cloned().collect();
    for pod in placed {
        let gone = event(&simulation.engine, Event::remove_pod(&pod))?;
        gone.map_err(|error| refused(&pod, error))?;
        let node = pod.node_name.clone().unwrap_or_default();
        record.ends(&pod, Some(&node), End::Lost(node.clone(), "its Job fails".to_owned()));
    }
    for pod in others {
        if simulation.queue.with(|queue, _| queue.get(&pod.uid).is_some()) {
            let gone = event(&simulation.engine, Event::RemovePending(pod.uid.clone()))?;
            gone.map_err(|error| refused(&pod, error))?;
        }
        record.ends(&pod, None, End::Deleted);
    }
    Ok(())
}

/// Adds pods one after the other, as a replay does, and settles their effects.
fn arrive(simulation: &mut Simulation, record: &mut Record, pods: &[Pod]) -> Result<(), Failure> {
    for pod in pods {
        enter(simulation, record, &Pod { node_name: None, ..pod.clone() }, None)?;
    }
    simulation.expire_permits(record)
}
