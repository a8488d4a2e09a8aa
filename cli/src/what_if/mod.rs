//! `portolan what-if`: simulates changes of nodes and controllers, counts how many more copies
//! of a pod fit, and finds nodes that could be emptied.
//!
//! The cluster is simulated as `portolan replay` does it ([`crate::simulation`]): pods wait in the scheduling queue,
//! behind their gates, for their group, and preempt others. Pods that are pending in the cluster are tried first,
//! without the change. The same cluster is simulated once more without the change, and the answer is the difference
//! ([`difference`]).
//!
//! The parts of a change take place in a fixed order: controllers and pods are removed, nodes join, controllers become
//! smaller and larger, nodes fail, are drained and upgraded, and at the end new pods arrive. Each part starts when the
//! part before it has settled. When all have, pods that are being deleted end, and failed nodes are deleted; the answer
//! holds for both moments.

mod answer;
mod aside;
#[cfg(feature = "cluster")]
mod asked;
mod bound;
mod budgets;
mod change;
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
mod question;
mod record;
mod report;
mod rollout;
mod rows;
mod scale;
mod start;
#[cfg(test)]
mod tests;
mod unsimulated;
mod upgrade;
mod volumes;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::columns::Columns;
use crate::error::CommandError;
use crate::html::{self, HtmlFile, Page, View};
use crate::metrics::MetricsFile;
use crate::policy::ConfigFile;
use crate::{Output, cluster, print};
use portolan::cache::Snapshot;
use portolan::model::{Name, Pod};
use portolan::scheduler::drain::Stays;
use serde_json::json;

#[cfg(feature = "cluster")]
pub(crate) use asked::{Asked, Room, by_fields};
pub(crate) use change::Change;
#[cfg(feature = "cluster")]
pub(crate) use start::Checkpoint;

/// Simulate changes of nodes and controllers and show where pods would go.
///
/// The changes can be combined. Controllers and pods are removed first; then nodes join,
/// controllers are scaled, nodes fail, are drained and upgraded; at the end new pods arrive.
///
/// The exit status is 1 if the change is blocked, leaves a pod without a node or loses one, if a rollout hangs, or if a
/// failure of --each leaves or loses a pod. What also happens without the change does not count.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    #[command(flatten)]
    change: Change,
    /// Additional pods to schedule: files or directories of pods or of their controllers, or
    /// - for standard input.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pods: Vec<PathBuf>,
    /// Count how many copies of the pod in FILE still fit.
    #[arg(long, value_name = "FILE")]
    fit_more: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
    /// Seed for breaking ties.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    html: HtmlFile,
    #[command(flatten)]
    godel: cluster::Godel,
    #[command(flatten)]
    metrics: MetricsFile,
}

/// A pod that blocks a drain, its node, and why it stays.
type Blocked = (Pod, Name, Stays);

/// Maximum number of pods or nodes that an option adds.
pub(crate) const MOST: usize = 1_000_000;

const VIEW: View = View { id: "what-if", module: "result.js", name: "Answer" };

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    arguments.html.check()?;
    let (answer, clusters) = question::answer(arguments)?;
    arguments
        .html
        .write(arguments.html.is_wanted().then(|| page(arguments, &answer, &clusters)))?;
    print(&match arguments.output {
        Output::Table => report::table(&answer),
        Output::Json => report::json(&answer).to_string(),
    })?;
    if arguments.output == Output::Table {
        answer.intake.print();
    }
    Ok(if answer.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The page of an answer, with the nodes before and after the change. O(nodes).
fn page(arguments: &Arguments, answer: &answer::Answer, clusters: &[Arc<Snapshot>; 2]) -> Page {
    // The only field that changes how an answer is shown.
    let question = match arguments.change.force {
        true => json!({ "force": true }),
        false => json!({}),
    };
    let nodes = |cluster: &Snapshot| Columns::of(cluster).nodes(cluster).to_string();
    let [before, after] = clusters;
    let mut fields = report::json(answer);
    fields["headline"] = json!(answer.headline());
    Page {
        headline: answer.headline(),
        view: VIEW,
        answers: vec![
            (html::posted("what-if", &question), fields.to_string()),
            (html::asked("nodes/before"), nodes(before)),
            (html::asked("nodes/after"), nodes(after)),
        ],
        question,
    }
}
