//! `portolan explain`: why a pod is pending, or where it would go.

mod changes;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use portolan::framework::{
    Cycle, CycleState, Diagnosis, Evaluation, FitError, Framework, Handle, Nomination,
};
use portolan::model::{Pod, Resources};
use portolan::plugins::preemption::DryRun;
use portolan::{Cluster, NodeInfo};

use crate::error::Failure;
use crate::{cluster, print};

/// Says of every node what every plugin says of it for one pod, and what would
/// have to change for the pod to fit.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What `kubectl get nodes,pods,… -A -o json` (or yaml) printed.
    #[arg(long, required = true, num_args = 1..)]
    cluster: Vec<PathBuf>,
    /// A pod of the cluster, as NAMESPACE/NAME, or a file with one. A pod that is
    /// placed is taken away first.
    #[arg(long)]
    pod: String,
    /// A KubeSchedulerConfiguration; without one the default profile.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Only this node.
    #[arg(long)]
    node: Option<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    output: Form,
    #[command(flatten)]
    godel: cluster::Godel,
}

/// How an explanation is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people: nodes by reason.
    Table,
    /// For programs: one object with every node and plugin.
    Json,
    /// For spreadsheets: a row for each node and plugin.
    Csv,
}

/// All that there is to say.
struct Explained<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    evaluation: Evaluation,
    changes: Vec<changes::Change>,
    notes: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let cluster::Loaded { writer, pending, mut notes, .. } =
        cluster::load(&arguments.cluster, &arguments.godel)?;
    let mut fork = writer.cluster().fork();
    let pod = pod(arguments, &fork, &pending)?;
    if fork.pod(&pod.uid).is_some() {
        let gone = fork.remove_pod(&pod.uid);
        gone.map_err(|error| Failure::Refused { object: pod.name.to_string(), error })?;
        notes.push("the pod is placed: it was taken away before it was looked at".to_owned());
    }
    // What it would be placed by, not where it is.
    let pod = Pod { node_name: None, ..pod };
    if let Some(name) = &arguments.node
        && fork.node(name).is_none()
    {
        return Err(Failure::Usage(format!("there is no node {name}: see to its spelling")));
    }
    if !pod.template.resource_claims.is_empty() {
        notes.push(format!(
            "the pod has resource claims ({}), which are not supported: they are left out, and the \
             engine would refuse to place it",
            pod.template.resource_claims.join(", ")
        ));
    }
    let scheduler = pod.template.scheduler_name.as_deref();
    let framework =
        cluster::decides(arguments.config.as_ref(), scheduler, &Handle::default())?.framework;
    let waiting = pending.iter().chain([&pod]);
    framework.handle().pod_groups().fill(&fork, waiting);
    if let Err(status) = framework.pre_enqueue(&pod) {
        notes.push(format!("the pod does not queue: {status}; once it does:"));
    }
    let mut evaluation = framework.evaluate(&fork, &pod);
    if let Some(only) = &arguments.node {
        evaluation.nodes.retain(|name, _| **name == **only);
    }
    if let Some(error) = &mut evaluation.rejected {
        notes.extend(preempt(&framework, &fork, &pod, error));
    }
    let changes = match evaluation.nodes.values().all(|verdict| verdict.status.is_some()) {
        true => changes::find(&framework, &fork, &pod, &evaluation),
        false => Vec::new(),
    };
    let explained = Explained { cluster: &fork, pod: &pod, evaluation, changes, notes };
    print(&match arguments.output {
        Form::Table => report::table(&explained, arguments.node.is_some()),
        Form::Json => report::json(&explained).to_string(),
        Form::Csv => report::csv(&explained)?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Adds to the error what preemption would say; and tells what it would do.
fn preempt(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    error: &mut FitError,
) -> Option<String> {
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    let filters = framework.pre_filter(cycle);
    // Nobody is evicted: the plugins' handle has no evictor.
    let (nomination, status) = framework.post_filter(cycle, &Diagnosis::new(&filters));
    error.post_filter = status;
    error.nomination = nomination;
    let Nomination::Node(name) = &error.nomination else { return None };
    let candidate = DryRun::new(cycle, &filters).on(cluster.node(name)?).ok()?;
    let victims: Vec<String> = candidate
        .victims
        .iter()
        .map(|victim| format!("{}/{}", victim.namespace(), victim.name))
        .collect();
    let budgets = match candidate.violations {
        0 => String::new(),
        violations => format!(", {violations} of them against their disruption budgets"),
    };
    let victims = victims.join(", ");
    Some(format!("preemption would make room on {name}: {victims} would go{budgets}"))
}

/// The pod that is asked about.
fn pod(arguments: &Arguments, cluster: &Cluster, pending: &[Pod]) -> Result<Pod, Failure> {
    let asked = &arguments.pod;
    let file = PathBuf::from(asked);
    if file.is_file() {
        let objects = cluster::read(std::slice::from_ref(&file))?;
        return objects.pods.into_iter().next().ok_or_else(|| Failure::File {
            file,
            what: "there is no pod in it: give a file with one".to_owned(),
        });
    }
    let (namespace, name) = asked.split_once('/').unwrap_or(("default", asked));
    let is_meant = |pod: &&Pod| &**pod.namespace() == namespace && &*pod.name == name;
    if let Some(pod) = pending.iter().find(is_meant) {
        return Ok(pod.clone());
    }
    let all = portolan::model::LabelSelector::everything();
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let mut placed =
        cluster.pods(&all, move |pod| **pod.namespace() == *namespace && *pod.name() == *name);
    placed.next().map(|pod| pod.to_pod()).ok_or_else(|| {
        Failure::Usage(format!(
            "there is no pod {asked} in the cluster's files, and no such file: give NAMESPACE/NAME or a path"
        ))
    })
}

/// A resource by its name: what the pod asks for, what is allocatable on the
/// node, and what is left of it.
fn resource(name: &str, pod: &Pod, node: NodeInfo<'_>) -> (i64, i64, i64) {
    let wanted = of(&pod.template.resources.incoming, name);
    let class = pod.template.class;
    let (has, taken) = (of(&node.allocatable_of(class), name), of(&node.requested_of(class), name));
    (wanted, has, has.saturating_sub(taken))
}

/// One of several resources, by its name.
fn of(resources: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => resources.cpu.0,
        "memory" => resources.memory.0,
        "ephemeral-storage" => resources.ephemeral_storage.0,
        name => resources.scalars.get(name).unwrap_or(0),
    }
}

/// What a reason for a lack of some resource begins with.
const INSUFFICIENT: &str = "Insufficient ";

/// An amount of a resource, for people.
fn amount(name: &str, value: i64) -> String {
    match name {
        "cpu" if value % 1000 == 0 => (value / 1000).to_string(),
        "cpu" => format!("{value}m"),
        "memory" | "ephemeral-storage" => bytes(value),
        name if name.starts_with("hugepages-") => bytes(value),
        _ => value.to_string(),
    }
}

fn bytes(value: i64) -> String {
    for (unit, shift) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if value >= 1 << shift && value % (1 << shift) == 0 {
            return format!("{}{unit}", value >> shift);
        }
    }
    for (unit, shift) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if value >= 1 << shift {
            return format!("{:.1}{unit}", value as f64 / (1_i64 << shift) as f64);
        }
    }
    value.to_string()
}

/// Nodes by their first reason, with how many there are of it.
fn by_reason(evaluation: &Evaluation) -> BTreeMap<(String, &'static str, &'static str), Vec<&str>> {
    let mut groups: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for (name, verdict) in &evaluation.nodes {
        let Some(status) = &verdict.status else { continue };
        for reason in &status.reasons {
            let key = (reason.clone(), status.plugin, status.code.as_str());
            groups.entry(key).or_default().push(name);
        }
    }
    groups
}

/// Whether the pod would pass all filters on the node.
fn passes(framework: &Framework, cluster: &Cluster, pod: &Pod, node: &str) -> bool {
    cluster.node(node).is_some_and(|node| framework.filter(cluster, pod, node).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        assert_eq!(amount("cpu", 2000), "2");
        assert_eq!(amount("cpu", 250), "250m");
        assert_eq!(amount("memory", 3 << 30), "3Gi");
        assert_eq!(amount("memory", (1 << 30) + 1), "1.0Gi");
        assert_eq!(amount("example.com/gpu", 3), "3");
    }
}
