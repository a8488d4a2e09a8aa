//! `portolan what-if`: simulates changes of nodes and controllers, counts how many more copies
//! of a pod fit, and finds nodes that could be emptied.
//!
//! The cluster is simulated as `portolan replay` does it ([`crate::simulation`]): pods wait in the scheduling queue,
//! behind their gates, for their group, and preempt others. Pods that are pending in the cluster are tried first,
//! without the change, so that the answer depends on the change alone.
//!
//! The parts of a change take place in a fixed order: controllers and pods are removed, nodes
//! join, controllers become smaller, nodes fail, are drained and upgraded, and at the end new
//! pods arrive. Each part starts when the part before it has settled.

mod bound;
mod budgets;
mod claims;
mod consolidate;
mod drain;
mod fail;
mod nodes;
mod record;
mod report;
mod rows;
mod scale;
mod targets;
#[cfg(test)]
mod tests;
mod upgrade;
mod volumes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use portolan::framework::{Algorithm, AlgorithmConfig, Framework};
use portolan::log::Event;
use portolan::model::{Name, Pod};
use portolan::scheduler::drain::{DrainOptions, Stays};
use portolan::scheduler::{Profiles, WhatIf};
use portolan_k8s::{IntOrPercent, PodController, Scales};

use crate::error::Failure;
use crate::intake::Intake;
use crate::metrics::{self, MetricsFile};
use crate::policy::{self, ConfigFile};
use crate::simulation::{Simulation, Stage, closed, event};
use crate::text::count;
use crate::{Output, arguments, cluster, print, terminal};

use budgets::Limits;
use drain::{BudgetUse, Drains};
use nodes::Daemons;
use record::Record;
use targets::{Finder, Reference, Scale};
pub(crate) use upgrade::Selection;

/// Simulate changes of nodes and controllers and show where pods would go.
///
/// The changes can be combined. Controllers and pods are removed first; then nodes join,
/// controllers become smaller, nodes fail, are drained and upgraded; at the end new pods arrive.
///
/// The exit status is 1 if a pod is left without a node, is lost, or blocks a drain. Pods that are pending even without
/// the change do not count.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Nodes to cordon and drain, as `kubectl drain` does.
    #[arg(long, value_parser = targets::node, num_args = 1.., value_name = "NODE")]
    drain: Vec<String>,
    /// Cordon and drain the nodes with these labels instead, such as pool=a, as `kubectl drain
    /// --selector` does.
    #[arg(long, value_parser = upgrade::Selection::parse, conflicts_with = "drain")]
    selector: Option<upgrade::Selection>,
    /// Accepted for compatibility with kubectl: pods of daemon sets always stay on drained nodes.
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Nodes that fail at the same moment and do not return; budgets do not apply.
    ///
    /// Pods are replaced after the time for which they tolerate the failure. Pods without a
    /// controller are lost, which --force accepts.
    #[arg(long, value_parser = targets::node, num_args = 1.., value_name = "NODE")]
    fail_node: Vec<String>,
    /// Delete controllers with their pods, or single pods, such as deployment/web or pod/web-0.
    ///
    /// A pod that has a controller is recreated.
    #[arg(long, value_parser = Reference::parse, num_args = 1.., value_name = "KIND/NAME")]
    remove: Vec<Reference>,
    /// Change the number of pods of a controller, such as deployment/web=5.
    ///
    /// For a Job, this is the number of pods that run at once.
    #[arg(long, value_parser = Scale::parse, num_args = 1.., value_name = "KIND/NAME=N")]
    scale: Vec<Scale>,
    /// Namespace of the objects of --remove and --scale, if several namespaces have an object of this name.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Upgrade the nodes with these labels in steps, such as pool=a, or all.
    #[arg(long, value_parser = upgrade::Selection::parse, value_name = "SELECTOR")]
    upgrade: Option<upgrade::Selection>,
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
    /// Add COUNT copies of the node in FILE: 3xnode.yaml adds three copies of the node in node.yaml.
    ///
    /// The letter x separates the two, and COUNT is required, even for one copy: 1xnode.yaml. FILE is read like a file
    /// of --cluster; its first node is copied, and other objects are ignored. The copies of the node n are named n-1, n-2
    /// and so on.
    #[arg(long, value_parser = nodes::Copies::parse, num_args = 1.., value_name = "COUNTxFILE")]
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

/// The result of the simulation.
#[derive(Default)]
struct Answer {
    nodes: usize,
    added: usize,
    drained: Vec<Drained>,
    /// Pods that block a drain.
    blocked: Vec<(Pod, Name, Stays)>,
    /// Pods that are moved or newly placed: old node and new node.
    placed: Vec<(Pod, Option<Name>, Name)>,
    /// Pods that the change leaves without a node: old node and reason.
    unplaced: Vec<(Pod, Option<Name>, String)>,
    /// Pods without a controller that were on failed nodes.
    lost: Vec<(Pod, Name)>,
    /// Whether lost pods are accepted.
    is_loss_accepted: bool,
    /// Pods that the change deletes, and their nodes.
    removed: Vec<(Pod, Option<Name>)>,
    failed: Vec<String>,
    scaled: Vec<Scaled>,
    upgrade: Option<upgrade::Upgrade>,
    /// The budgets that drains waited for or were blocked by.
    budgets: std::collections::BTreeMap<String, BudgetUse>,
    /// The options that `kubectl drain` needs for the same drains.
    kubectl_flags: Vec<&'static str>,
    /// Pods that were preempted, and their nodes.
    preempted: Vec<(Pod, Option<Name>)>,
    /// Pods of the cluster that are also pending without the change, and why.
    pending: Vec<(Pod, String)>,
    fit_more: Option<(Name, usize)>,
    consolidated: Option<consolidate::Consolidation>,
    notes: Vec<String>,
    /// The objects that were read and ignored.
    intake: Intake,
}

/// A controller with another number of pods.
struct Scaled {
    /// Kind, namespace and name.
    controller: String,
    from: usize,
    to: usize,
}

/// A drained node.
struct Drained {
    node: String,
    /// How often the drain waited until replacements of evicted pods were placed, because a
    /// budget allowed no further eviction.
    waits: usize,
}

impl Answer {
    fn is_ok(&self) -> bool {
        let is_lossless = self.is_loss_accepted || self.lost.is_empty();
        self.blocked.is_empty() && self.unplaced.is_empty() && is_lossless
    }
}

/// Maximum number of pods that `--fit-more` tries.
const MOST: usize = 1_000_000;

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
fn check(arguments: &Arguments) -> Result<(), Failure> {
    let contradicts = |object: &str, one: &str, other: &str| {
        Failure::Usage(format!("{object} is in {one} and in {other}: name it in one of them"))
    };
    let Arguments { drain, fail_node, remove, scale, .. } = arguments;
    if let Some(node) = drain.iter().find(|node| fail_node.contains(node)) {
        return Err(contradicts(&format!("node {node}"), "--drain", "--fail-node"));
    }
    let is_removed = |of: &Reference| remove.iter().any(|it| it.is_same(of));
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
    check(arguments)?;
    let sink = arguments.metrics.open()?;
    let (mut contents, added) =
        cluster::contents_with(&arguments.from, &arguments.godel, &arguments.pods)?;
    let _bar = terminal::progress("simulating", 0, terminal::Of::Items("nodes"));
    let stage = Stage::new(arguments.godel.config(), metrics::of(&sink));
    let put = stage.engine.with_writer(|writer| contents.put(writer, &arguments.godel));
    let pending = put.map_err(closed)??;
    let policies = arguments.config.source().policies(&stage.handle)?;
    let (notes, intake) = (contents.notes.clone(), contents.intake.clone());
    let mut answer = Answer { notes, intake, ..Answer::default() };
    answer.notes.extend(policies.notes);
    // Gödel's schedulers share the pods of one scheduler name.
    let is_for_all =
        policies.is_for_all || arguments.godel.is_enabled() && policies.profiles.len() == 1;
    let names: Vec<String> =
        policies.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect();
    let each = policies.profiles.into_iter().map(|profile| {
        let name = if is_for_all { String::new() } else { profile.scheduler_name };
        let framework = metrics::record(profile.framework, metrics::of(&sink), &name);
        let percentage_of_nodes = profile.percentage_of_nodes.unwrap_or(100);
        let config = AlgorithmConfig { percentage_of_nodes, seed: arguments.seed };
        (Name::from(name), Arc::new(framework), config)
    });
    let profiles: Vec<(Name, Arc<Framework>, AlgorithmConfig)> = each.collect();
    let schedulers = profiles.iter().map(|(name, framework, config)| {
        (name.clone(), Algorithm::new(framework.clone(), config.clone(), None))
    });
    let mut simulation = stage.with_schedulers(schedulers.collect(), policies.queue)?;
    let named = |(name, framework, config): &(Name, Arc<Framework>, AlgorithmConfig)| {
        (name.clone(), (framework.clone(), config.clone()))
    };
    let profiles = Profiles::by_name(profiles.iter().map(named));
    let mut record = Record::new(profiles);

    // The baseline: the cluster without the change.
    arrive(&mut simulation, &mut record, &pending)?;
    record.end_of_baseline(&simulation.engine)?;

    let options =
        DrainOptions { force: arguments.force, delete_local_data: arguments.delete_emptydir_data };
    change(arguments, (&contents, added), options, &mut simulation, &mut record, &mut answer)?;

    let snapshot = simulation.engine.reader().map_err(closed)?.snapshot();
    record.finish(&snapshot, &mut answer);
    if !is_for_all && let Some(file) = arguments.config.source().file {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pending = answer.pending.iter().map(|(pod, _)| pod);
        let pods = pending.chain(answer.unplaced.iter().map(|(pod, ..)| pod));
        if let Some(warning) = policy::unscheduled(pods, &names) {
            answer.intake.warn(&format!("{}: {warning}", file.display()));
        }
    }
    let profile_of = |pod: Option<&Pod>| {
        let of = pod.and_then(|pod| record.profiles.get(pod));
        of.or_else(|| record.profiles.iter().next()).cloned()
    };
    if let Some(file) = &arguments.fit_more {
        let pods = cluster::pods(file, arguments.from.strict, &mut answer.intake)?;
        let like = pods.into_iter().next().ok_or_else(|| Failure::File {
            file: file.clone(),
            what: "no pods found: pass a file with a pod".to_owned(),
        })?;
        let like = Pod { node_name: None, ..like };
        if let Some((framework, config)) = profile_of(Some(&like)) {
            let most = WhatIf::new(&snapshot, framework, config).fit_more(&like, MOST);
            answer.fit_more = Some((like.name.clone(), most));
        }
    }
    if arguments.consolidate {
        let time = Duration::from_secs_f64(arguments.time_limit);
        answer.consolidated = Some(consolidate::run(&snapshot, &record.profiles, options, time));
    }
    answer.nodes = snapshot.len();
    if let Some(sink) = &sink {
        sink.metrics.engine(&simulation.engine.figures().map_err(closed)?, &snapshot);
    }
    metrics::write(sink)?;
    Ok(answer)
}

/// Makes the changes of the question, in their order.
fn change(
    arguments: &Arguments,
    (contents, mut added): (&cluster::Contents, cluster::Added),
    options: DrainOptions,
    simulation: &mut Simulation,
    record: &mut Record,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    let mut scales = Scales::of(contents.controllers());
    let facts = contents.facts();
    let changes_pods = !record.is_empty()
        || !arguments.remove.is_empty()
        || !arguments.scale.is_empty()
        || !arguments.fail_node.is_empty();
    let limits = match changes_pods {
        true => Limits::of(contents.budget_limits(), facts, &scales, reader.refresh(), record),
        false => Limits::new(contents.budget_limits(), facts),
    };

    let namespace = arguments.namespace.as_deref();
    let initial = scales.clone();
    let finder = Finder { controllers: contents.controllers(), scales: &initial, namespace };
    scale::remove(&arguments.remove, &finder, simulation, record, answer)?;
    let is_kept = |it: &&PodController| {
        let is_removed = |of: &Reference| of.kind == it.kind.as_str() && of.name == it.name;
        !arguments.remove.iter().any(is_removed) || namespace.is_some_and(|of| of != &*it.namespace)
    };
    // The nodes of the cluster, not the added ones.
    let drained = match &arguments.selector {
        Some(selection) => {
            let nodes = selection.nodes(reader.refresh(), "--selector")?;
            let names = nodes.iter().map(|node| node.name.to_string());
            names.filter(|name| !arguments.fail_node.contains(name)).collect()
        }
        None => arguments.drain.clone(),
    };
    // Finding the daemon sets requires a pass over all pods.
    let adds_nodes = !arguments.add.is_empty() || arguments.upgrade.is_some();
    let controllers = contents.controllers().iter().filter(|_| adds_nodes);
    let kept: Vec<PodController> = controllers.filter(is_kept).cloned().collect();
    let mut daemons = match adds_nodes {
        true => Daemons::of(reader.refresh(), &kept),
        false => Daemons::none(),
    };
    for copies in &arguments.add {
        let told = (&mut answer.notes, &mut answer.intake);
        answer.added += copies.add(&simulation.engine, &mut daemons, told)?;
    }
    let scaled = &arguments.scale;
    let new = scale::scale(scaled, &finder, facts, &mut scales, simulation, record, answer)?;
    fail::fail(&arguments.fail_node, facts, simulation, record, answer)?;
    answer.is_loss_accepted = arguments.force;
    limits.update(&scales, simulation, record)?;

    let mut drains = Drains::new(reader.refresh(), options, &limits, &scales);
    drain::drain(&drained, &mut drains, simulation, record, answer)?;
    if let Some(selection) = &arguments.upgrade {
        let most = (arguments.max_surge, arguments.max_unavailable);
        let drains = &mut drains;
        upgrade::upgrade(selection, most, &mut daemons, drains, simulation, record, answer)?;
    }
    answer.kubectl_flags = drains.kubectl_flags();
    if drains.bare > 0 {
        let pods = count(drains.bare, "evicted pod");
        answer.notes.push(format!("no controller would recreate {pods}"));
    }
    answer.budgets = drains.uses;

    let bound = volumes::bind(&mut added.objects, reader.refresh());
    if bound > 0 {
        let claims = count(bound, "new claim");
        answer.notes.push(format!("bound {claims} to volumes, as the cluster would at once"));
    }
    for object in added.objects {
        let name = format!("{} {}", object.kind().as_str(), object.name());
        let put = event(&simulation.engine, Event::put_object(object))?;
        put.map_err(|error| Failure::Refused { object: name, error })?;
    }
    let mut more = added.pods;
    more.splice(0..0, new);
    record.refuse_known(&more, &contents.files(), &simulation.engine)?;
    let free = bound::add(more, simulation, record, &mut answer.notes)?;
    arrive(simulation, record, &free)
}

/// The namespace and name of a pod.
fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name)
}

/// Adds a pod that has left a node, or is new, to the queue, and settles its effects.
fn enter(
    simulation: &mut Simulation,
    record: &mut Record,
    pod: Pod,
    from: Option<Name>,
) -> Result<(), Failure> {
    if record.is_scheduled(&pod) {
        simulation.arrive(&pod)?;
    }
    record.arrives(pod, from);
    simulation.settle(record)
}

/// Adds pods one after the other, as a replay does, and settles their effects.
fn arrive(simulation: &mut Simulation, record: &mut Record, pods: &[Pod]) -> Result<(), Failure> {
    for pod in pods {
        enter(simulation, record, Pod { node_name: None, ..pod.clone() }, None)?;
    }
    simulation.expire_permits(record)
}
