//! `portolan explain`: why a pod is pending, or how its nodes score.

mod changes;
mod claims;
mod evictions;
mod report;
mod requests;
mod steps;
mod trial;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use portolan::framework::preemption::DryRun;
use portolan::framework::{
    Cycle, CycleState, Diagnosis, Evaluation, FitError, Framework, Handle, Nomination,
};
use portolan::model::{Pod, Resources};
use portolan::{Cluster, NodeInfo};

use crate::error::Failure;
use crate::intake::Intake;
use crate::names::did_you_mean;
use crate::policy::ConfigFile;
use crate::text::count;
use crate::{arguments, cluster, creation, input, print};

use changes::Changes;
use trial::Trial;

/// Show why each node rejects a pod, by how much, and which changes would help.
///
/// If the pod fits, show the best nodes with their scores.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Pod of the cluster, or a file with a pod (- for standard input); a placed pod is
    /// evaluated as if it were pending.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pod: String,
    /// Namespace of the pod, if --pod is only a name.
    #[arg(long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    #[command(flatten)]
    config: ConfigFile,
    /// Report on this node only.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Time limit for trying evictions and pairs of changes, in seconds.
    ///
    /// Pairs are tried if no single change helps.
    #[arg(
        long,
        alias = "budget",
        value_name = "SECONDS",
        default_value_t = 0.2,
        value_parser = arguments::seconds,
    )]
    time_limit: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    output: Form,
    #[command(flatten)]
    godel: cluster::Godel,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Tables for people: nodes by reason.
    Table,
    /// One JSON object with every node and plugin.
    Json,
    /// A CSV row for each node and plugin.
    Csv,
}

/// The result, before it is printed.
struct Explained<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    evaluation: Evaluation,
    changes: changes::Changes,
    notes: Vec<String>,
    intake: Intake,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let file = Some(PathBuf::from(&arguments.pod))
        .filter(|file| file.is_file() || input::is_standard_input(file));
    let (loaded, pod) = match &file {
        Some(file) => {
            let (loaded, pod) = cluster::load_with(&arguments.from, &arguments.godel, file)?;
            (loaded, Some(pod))
        }
        None => (cluster::load(&arguments.from, &arguments.godel)?, None),
    };
    let cluster::Loaded { writer, pending, mut notes, intake } = loaded;
    let mut fork = writer.cluster().fork();
    let pod = match pod {
        Some(pod) => pod,
        None => self::pod(arguments, &fork, (&pending, &intake))?,
    };
    if fork.pod(&pod.uid).is_some() {
        let gone = fork.remove_pod(&pod.uid);
        gone.map_err(|error| Failure::Refused { object: pod.name.to_string(), error })?;
        notes.push("the pod is already placed: evaluated as if it were pending".to_owned());
    }
    if let Some(why) = pod.node_name.as_ref().and_then(|_| creation::unbound_claim(&pod, &fork)) {
        notes.push(format!("the pod {why}; the rest of the report ignores its node"));
    }
    // Evaluate the spec, not the current node.
    let pod = Pod { node_name: None, ..pod };
    if let Some(name) = &arguments.node
        && fork.node(name).is_none()
    {
        let near = did_you_mean(name, fork.nodes().map(|node| &**node.name()));
        return Err(Failure::Usage(format!("node {name} does not exist: {near}")));
    }
    if !pod.template.resource_claims.is_empty() {
        notes.push(format!(
            "resource claims are not supported: ignored {}; the engine would refuse to place the pod",
            pod.template.resource_claims.join(", ")
        ));
    }
    let source = arguments.config.source();
    let (framework, of_config) = source.framework(pod.scheduler_name(), &Handle::default())?;
    notes.extend(of_config);
    let waiting = pending.iter().chain([&pod]);
    framework.handle().pod_groups().fill(&fork, waiting);
    for other in pending.iter().filter(|other| other.uid != pod.uid) {
        if let Some(node) = &other.nominated_node_name {
            framework.handle().nominator().add(other.clone(), node.clone());
        }
    }
    if let Err(status) = framework.pre_enqueue(&pod) {
        notes.push(format!(
            "the pod cannot enter the scheduling queue yet: {status}; the rest of the report \
             ignores this"
        ));
    }
    let mut evaluation = framework.evaluate(&fork, &pod);
    if let Some(only) = &arguments.node {
        evaluation.nodes.retain(|name, _| **name == **only);
    }
    if let Some(error) = &mut evaluation.rejected {
        notes.extend(preempt(&framework, &fork, &pod, error));
    }
    notes.extend(claims::notes(&fork, &pod, &evaluation));
    let fits = evaluation.nodes.values().any(|verdict| verdict.status.is_none());
    let changes = match fits || evaluation.failed.is_some() {
        true => Changes::default(),
        false => {
            let only = arguments.node.as_deref();
            let trial = Trial { framework: &framework, cluster: &fork, pod: &pod, only };
            changes::find(trial, Instant::now() + Duration::from_secs_f64(arguments.time_limit))
        }
    };
    let explained = Explained { cluster: &fork, pod: &pod, evaluation, changes, notes, intake };
    print(&match arguments.output {
        Form::Table => report::table(&explained, arguments.node.is_some()),
        Form::Json => report::json(&explained).to_string(),
        Form::Csv => report::csv(&explained)?,
    })?;
    if arguments.output != Form::Json {
        explained.intake.print();
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the result of preemption to the error; returns a note if preemption would help.
fn preempt(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    error: &mut FitError,
) -> Option<String> {
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    let filters = framework.pre_filter(cycle);
    // The plugins' handle has no evictor: no pod is evicted.
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
        violations => {
            format!("; {} would violate a disruption budget", count(violations, "eviction"))
        }
    };
    let victims = victims.join(", ");
    Some(format!("preemption would evict {victims} from node {name}{budgets}"))
}

/// The pod to explain.
fn pod(
    arguments: &Arguments,
    cluster: &Cluster,
    (pending, intake): (&[Pod], &Intake),
) -> Result<Pod, Failure> {
    // kubectl's name of a pod: pod/web-0.
    let asked = &*arguments.pod;
    let kinds = ["pod/", "pods/", "po/"];
    let bare = kinds.iter().find_map(|kind| asked.strip_prefix(kind)).unwrap_or(asked);
    let (namespace, name) = bare.split_once('/').unwrap_or((&arguments.namespace, bare));
    let is_meant = |pod: &&Pod| &**pod.namespace() == namespace && &*pod.name == name;
    if let Some(pod) = pending.iter().find(is_meant) {
        return Ok(pod.clone());
    }
    let all = portolan::model::LabelSelector::everything();
    let (in_namespace, named) = (namespace.to_owned(), name.to_owned());
    let mut placed =
        cluster.pods(&all, move |pod| **pod.namespace() == *in_namespace && *pod.name() == *named);
    placed.next().map(|pod| pod.to_pod()).ok_or_else(|| {
        let of = |namespace: &str, name: &str| format!("{namespace}/{name}");
        let mut known: Vec<String> =
            pending.iter().map(|pod| of(pod.namespace(), &pod.name)).collect();
        let everywhere = cluster.nodes().flat_map(|node| node.pods());
        known.extend(everywhere.map(|pod| of(pod.namespace(), pod.name())));
        let has_name = |it: &&String| it.split_once('/').is_some_and(|(_, it)| it == name);
        let near = did_you_mean(&of(namespace, name), known.iter().map(|name| &**name));
        let near = match known.iter().find(has_name) {
            Some(elsewhere) => format!("did you mean {elsewhere}?"),
            None if near.starts_with("did") => near,
            None => "pass NAMESPACE/NAME or a file".to_owned(),
        };
        Failure::Usage(match intake.has_finished_pods() {
            true => format!(
                "pod {asked} is not in the cluster or has finished, and there is no file of this name: {near}"
            ),
            false => format!(
                "pod {asked} does not exist in the cluster, and neither does a file of this name: {near}"
            ),
        })
    })
}

/// The amounts of a resource: requested by the pod, allocatable on the node, and free.
fn resource(name: &str, pod: &Pod, node: NodeInfo<'_>) -> (i64, i64, i64) {
    let wanted = of(&pod.template.resources.incoming, name);
    let class = pod.template.class;
    let (has, taken) = (of(&node.allocatable_of(class), name), of(&node.requested_of(class), name));
    (wanted, has, has.saturating_sub(taken))
}

/// The amount of a resource by its name.
fn of(resources: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => resources.cpu.0,
        "memory" => resources.memory.0,
        "ephemeral-storage" => resources.ephemeral_storage.0,
        name => resources.scalars.get(name).unwrap_or(0),
    }
}

/// The prefix of reasons for an insufficient resource.
const INSUFFICIENT: &str = "Insufficient ";

/// The nodes that a plugin rejects for a reason.
#[derive(Debug, Default)]
struct Group<'e> {
    nodes: Vec<&'e str>,
    /// The number of nodes that no other plugin rejects.
    alone: usize,
}

/// The nodes by reason, plugin and code. A node is in the groups of all plugins that reject it.
fn by_reason(evaluation: &Evaluation) -> BTreeMap<(String, &'static str, &'static str), Group<'_>> {
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for (name, verdict) in &evaluation.nodes {
        for status in verdict.status.iter().chain(&verdict.further) {
            for reason in &status.reasons {
                let key = (reason.clone(), status.plugin, status.code.as_str());
                let group = groups.entry(key).or_default();
                group.nodes.push(name);
                group.alone += usize::from(verdict.further.is_empty());
            }
        }
    }
    groups
}
