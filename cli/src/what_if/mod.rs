//! `portolan what-if`: simulates draining or adding nodes, counts how many more copies of
//! a pod fit, and finds nodes that could be emptied.

mod consolidate;
mod nodes;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use portolan::framework::{AlgorithmConfig, AttemptResult, Framework, Handle, ScheduleError};
use portolan::model::{Name, Pod};
use portolan::scheduler::WhatIf;
use portolan::scheduler::drain::{Budgets, DrainOptions, Stays};

use crate::error::Failure;
use crate::metrics::{self, MetricsFile};
use crate::{Output, cluster, print};

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
    drained: Vec<String>,
    /// Pods that block a drain.
    blocked: Vec<(Pod, Name, Stays)>,
    /// Pods that are moved or newly placed: old node and new node.
    placed: Vec<(Pod, Option<Name>, Name)>,
    /// Unschedulable pods: old node and reason.
    unplaced: Vec<(Pod, Option<Name>, String)>,
    fit_more: Option<(Name, usize)>,
    consolidated: Option<consolidate::Consolidation>,
    notes: Vec<String>,
}

impl Answer {
    fn is_ok(&self) -> bool {
        self.blocked.is_empty() && self.unplaced.is_empty()
    }
}

/// Maximum number of pods that `--fit-more` tries.
const MOST: usize = 1_000_000;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let loaded = cluster::load(&arguments.from, &arguments.godel)?;
    let policy = cluster::policy(arguments.config.as_ref(), None, &Handle::default())?;
    let config = AlgorithmConfig {
        percentage_of_nodes: policy.percentage_of_nodes.unwrap_or(100),
        seed: arguments.seed,
    };
    let sink = arguments.metrics.open()?;
    let framework = metrics::record(policy.framework, metrics::of(&sink), &policy.profile);
    let framework: Arc<Framework> = Arc::new(framework);
    let start = loaded.writer.snapshot();
    let mut what_if = WhatIf::new(&start, framework.clone(), config.clone());
    let mut answer = Answer { notes: loaded.notes.clone(), ..Answer::default() };
    answer.notes.extend(policy.note);
    for copies in &arguments.add {
        answer.added += copies.add(&mut what_if, &loaded.controllers, &mut answer.notes)?;
    }
    let options =
        DrainOptions { force: arguments.force, delete_local_data: arguments.delete_emptydir_data };
    let mut queue = drain(arguments, options, &mut what_if, &mut answer)?;
    let pending = loaded.pending.iter().cloned().map(|pod| (pod, None));
    queue.extend(pending);
    for pod in cluster::pods(&arguments.pods)? {
        queue.push((Pod { node_name: None, ..pod }, None));
    }
    // In queue order: by priority, then by arrival.
    queue.sort_by_key(|(pod, _)| std::cmp::Reverse(pod.template.priority));
    for (pod, from) in queue {
        let started = Instant::now();
        let decided = what_if.schedule(&pod);
        record(&framework, decided.as_ref().err(), started);
        match decided {
            Ok(decision) => answer.placed.push((pod, from, decision.node)),
            Err(error) => answer.unplaced.push((pod, from, error.to_string())),
        }
    }
    if let Some(file) = &arguments.fit_more {
        let pods = cluster::pods(std::slice::from_ref(file))?;
        let like = pods.into_iter().next().ok_or_else(|| Failure::File {
            file: file.clone(),
            what: "no pods found: pass a file with a pod".to_owned(),
        })?;
        let like = Pod { node_name: None, ..like };
        answer.fit_more = Some((like.name.clone(), what_if.fit_more(&like, MOST)));
    }
    if arguments.consolidate {
        answer.consolidated = Some(consolidate::run(&what_if, &framework, &config, options));
    }
    answer.nodes = what_if.len();
    if let Some(sink) = &sink {
        sink.metrics.engine(&loaded.writer.figures(), &what_if);
    }
    metrics::write(sink)?;
    print(&match arguments.output {
        Output::Table => report::table(&answer),
        Output::Json => report::json(&answer).to_string(),
    })?;
    Ok(if answer.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Records a scheduling attempt, if the framework has a recorder.
fn record(framework: &Framework, failed: Option<&ScheduleError>, started: Instant) {
    let Some(recorder) = framework.recorder() else { return };
    let result = match failed {
        None => AttemptResult::Scheduled,
        Some(ScheduleError::Fit(_) | ScheduleError::NoNodes) => AttemptResult::Unschedulable,
        Some(_) => AttemptResult::Error,
    };
    recorder.algorithm(started.elapsed());
    recorder.attempt(result, started.elapsed());
}

/// Cordons and drains the nodes; returns the evicted pods, each with its old node.
fn drain(
    arguments: &Arguments,
    options: DrainOptions,
    what_if: &mut WhatIf,
    answer: &mut Answer,
) -> Result<Vec<(Pod, Option<Name>)>, Failure> {
    let mut queue = Vec::new();
    let mut budgets = Budgets::of(what_if);
    for node in &arguments.drain {
        let name: Name = node.as_str().into();
        let drained = what_if.drain(node, &mut budgets, options).map_err(|error| {
            Failure::Usage(format!("--drain {node}: {error}: check the spelling"))
        })?;
        answer.drained.push(node.clone());
        let blocked = drained.stays.into_iter().filter(|(_, why)| why.is_in_the_way());
        answer.blocked.extend(blocked.map(|(pod, why)| (pod, name.clone(), why)));
        queue.extend(drained.evicted.into_iter().map(|pod| (pod, Some(name.clone()))));
    }
    Ok(queue)
}
