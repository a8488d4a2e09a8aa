//! `portolan what-if`: simulates draining or adding nodes, counts how many more copies of
//! a pod fit, and finds nodes that could be emptied.
//!
//! The cluster is simulated as `portolan replay` does it ([`crate::simulation`]): pods wait
//! in the scheduling queue, behind their gates, for their group, and preempt others. Pods
//! that are pending in the cluster are tried first, without the change, so that only what
//! the change does decides about the answer.

mod consolidate;
mod drain;
mod nodes;
mod record;
mod report;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use portolan::framework::{Algorithm, AlgorithmConfig, Framework};
use portolan::log::Event;
use portolan::model::{Name, Pod};
use portolan::scheduler::drain::{DrainOptions, Stays};
use portolan::scheduler::{Profiles, WhatIf};

use crate::error::Failure;
use crate::intake::Intake;
use crate::metrics::{self, MetricsFile};
use crate::simulation::{Simulation, Stage, closed, event};
use crate::{Output, cluster, print};

use record::Record;

/// Simulate draining or adding nodes and show where pods would go.
///
/// The exit status is 1 if a pod is unschedulable or blocks a drain.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Nodes to cordon and drain, as `kubectl drain` does.
    #[arg(long, num_args = 1.., value_name = "NODE")]
    drain: Vec<String>,
    /// Also drain pods without a controller.
    #[arg(long)]
    force: bool,
    /// Also drain pods with local data, which would be lost.
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Add COUNT copies of the node in FILE, such as 3xnode.yaml.
    #[arg(long, value_parser = nodes::Copies::parse, num_args = 1.., value_name = "COUNTxFILE")]
    add: Vec<nodes::Copies>,
    /// Additional pods to schedule: files of pods or of their controllers.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pods: Vec<PathBuf>,
    /// Count how many copies of the pod in FILE still fit.
    #[arg(long, value_name = "FILE")]
    fit_more: Option<PathBuf>,
    /// Find nodes that could be emptied, each considered on its own.
    #[arg(long)]
    consolidate: bool,
    /// KubeSchedulerConfiguration; the default profile if absent.
    ///
    /// All nodes are evaluated for each pod, unless the configuration sets
    /// percentageOfNodesToScore.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    /// Pods that were preempted, and their nodes.
    preempted: Vec<(Pod, Option<Name>)>,
    /// Pods of the cluster that are pending without the change, too, and why.
    pending: Vec<(Pod, String)>,
    fit_more: Option<(Name, usize)>,
    consolidated: Option<consolidate::Consolidation>,
    notes: Vec<String>,
    /// What was read and ignored.
    intake: Intake,
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
        self.blocked.is_empty() && self.unplaced.is_empty()
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

fn answer(arguments: &Arguments) -> Result<Answer, Failure> {
    let sink = arguments.metrics.open()?;
    let (mut contents, added) =
        cluster::contents_with(&arguments.from, &arguments.godel, &arguments.pods)?;
    let stage = Stage::new(arguments.godel.config(), metrics::of(&sink));
    let put = stage.engine.with_writer(|writer| contents.put(writer, &arguments.godel));
    let pending = put.map_err(closed)??;
    let policies = cluster::policies(arguments.config.as_ref(), &stage.handle)?;
    let (queue, note) = (policies.queue, policies.note);
    let (notes, intake) = (contents.notes.clone(), contents.intake.clone());
    let mut answer = Answer { notes, intake, ..Answer::default() };
    answer.notes.extend(note);
    // Gödel's schedulers share the pods of one scheduler name.
    let is_for_all = arguments.godel.is_enabled() && policies.profiles.len() == 1;
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
    let mut simulation = stage.with_schedulers(schedulers.collect(), queue)?;
    let named = |(name, framework, config): &(Name, Arc<Framework>, AlgorithmConfig)| {
        (name.clone(), (framework.clone(), config.clone()))
    };
    let profiles = Profiles::by_name(profiles.iter().map(named));
    let mut record = Record::new(profiles);

    // What the cluster does without the change.
    arrive(&mut simulation, &mut record, &pending)?;
    record.end_of_baseline(&simulation.engine)?;

    for copies in &arguments.add {
        let notes = (&mut answer.notes, &mut answer.intake);
        answer.added += copies.add(&simulation.engine, contents.controllers(), notes)?;
    }
    let options =
        DrainOptions { force: arguments.force, delete_local_data: arguments.delete_emptydir_data };
    drain::drain(&arguments.drain, options, &mut simulation, &mut record, &mut answer)?;
    record.refuse_known(&added.pods, &simulation.engine)?;
    for object in added.objects {
        let name = format!("{} {}", object.kind().as_str(), object.name());
        let put = event(&simulation.engine, Event::put_object(object))?;
        put.map_err(|error| Failure::Refused { object: name, error })?;
    }
    arrive(&mut simulation, &mut record, &added.pods)?;

    let snapshot = simulation.engine.reader().map_err(closed)?.snapshot();
    record.finish(&snapshot, &mut answer);
    let profile_of = |pod: Option<&Pod>| {
        let of = pod.and_then(|pod| record.profiles.get(pod));
        of.or_else(|| record.profiles.iter().next()).cloned()
    };
    if let Some(file) = &arguments.fit_more {
        let pods = cluster::pods(std::slice::from_ref(file))?;
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
    if let Some((framework, config)) = profile_of(None).filter(|_| arguments.consolidate) {
        answer.consolidated = Some(consolidate::run(&snapshot, &framework, &config, options));
    }
    answer.nodes = snapshot.len();
    if let Some(sink) = &sink {
        sink.metrics.engine(&simulation.engine.figures().map_err(closed)?, &snapshot);
    }
    metrics::write(sink)?;
    Ok(answer)
}

/// Adds pods one after the other, as a replay does, and settles what they start.
fn arrive(simulation: &mut Simulation, record: &mut Record, pods: &[Pod]) -> Result<(), Failure> {
    for pod in pods {
        let pod = Pod { node_name: None, ..pod.clone() };
        if record.is_scheduled(&pod) {
            simulation.arrive(&pod)?;
        }
        record.arrives(pod, None);
        simulation.settle(record)?;
    }
    simulation.let_permits_end(record)
}
