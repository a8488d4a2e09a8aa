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

use portolan::model::{Name, Pod};
use portolan::scheduler::drain::Stays;
use portolan_k8s::IntOrPercent;

use crate::error::CommandError;
use crate::metrics::MetricsFile;
use crate::policy::ConfigFile;
use crate::selection::{Nodes, Selection};
use crate::targets::{self, Removal, Scale};
use crate::{Output, arguments, cluster, print};

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
    /// The letter x separates the two, and COUNT is required, even for one copy: 1xnode.yaml. A file is read like one
    /// of --cluster; its first node is copied, with the CSINode of the same name. The copies of the node n are named
    /// n-1, n-2 and so on, and are not cordoned.
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

/// Maximum number of pods or nodes that an option adds.
pub(crate) const MOST: usize = 1_000_000;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let answer = question::answer(arguments)?;
    print(&match arguments.output {
        Output::Table => report::table(&answer),
        Output::Json => report::json(&answer).to_string(),
    })?;
    if arguments.output == Output::Table {
        answer.intake.print();
    }
    Ok(if answer.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
