//! `portolan audit`: finds conflicts and dangling references in a cluster, and checks the
//! engine's sums and indexes.

use std::collections::BTreeSet;
use std::process::ExitCode;

use portolan::model::{AbnormalPodState, ObjectKind, PodClass, Resources};
use portolan::snapshot::{Dump, NodeDump};
use portolan::{Cluster, NodeInfo};
use serde_json::{Value, json};

use crate::cluster::{self, Loaded};
use crate::error::Failure;
use crate::table::{plain, row};
use crate::text::{Rounding, amounts, count, line};
use crate::{Output, print, terminal};

/// Find conflicts and dangling references in a cluster, and check the engine's sums and
/// indexes.
///
/// The exit status is 1 if a problem is found.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    godel: cluster::Godel,
}

/// A problem.
struct Finding {
    /// The kind of problem, in a word.
    kind: &'static str,
    /// The affected object.
    object: String,
    what: String,
}

/// All problems found.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, kind: &'static str, object: impl Into<String>, what: impl Into<String>) {
        self.0.push(Finding { kind, object: object.into(), what: what.into() });
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let loaded = cluster::load(&arguments.from, &arguments.godel)?;
    let cluster = loaded.writer.cluster();
    let bar = terminal::progress("auditing", 0, terminal::Of::Items("nodes"));
    let mut findings = Findings::default();
    for difference in cluster.audit() {
        let what = format!("found {}, expected {}", difference.found, difference.expected);
        findings.add("engine", difference.place, what);
    }
    let dump = cluster.dump();
    for (name, node) in &dump.nodes {
        check_node(cluster, (name, node), &mut findings);
    }
    check_pods(&loaded, &dump, &mut findings);
    check_reservations(cluster, &mut findings);
    check_movements(cluster, &mut findings);
    drop(bar);
    print(&match arguments.output {
        Output::Table => table(&loaded, &findings),
        Output::Json => json(&loaded, &findings).to_string(),
    })?;
    if arguments.output == Output::Table {
        loaded.intake.print();
    }
    Ok(ExitCode::from(u8::from(!findings.0.is_empty())))
}

fn check_node(cluster: &Cluster, (name, of): (&str, &NodeDump), findings: &mut Findings) {
    let Some(node) = cluster.node(name) else {
        let what = format!("the node does not exist, but has {}", count(of.pods.len(), "pod"));
        if !of.pods.is_empty() {
            findings.add("missing", format!("node {name}"), what);
        }
        return;
    };
    for class in [PodClass::Guaranteed, PodClass::BestEffort] {
        let counted = node.pods().filter(|pod| pod.template().class == class).count();
        if counted == 0 {
            continue;
        }
        for (resource, [takes, has]) in overcommitted(node, class) {
            let class = class.as_str();
            let what = format!("{resource}: {class} pods request {takes}, allocatable {has}");
            findings.add("overcommitted", format!("node {name}"), what);
        }
        let allowed = node.allowed_pods_of(class);
        if node.pod_count() as i64 > allowed {
            let what =
                format!("{}, limit {allowed} ({})", count(node.pod_count(), "pod"), class.as_str());
            findings.add("overcommitted", format!("node {name}"), what);
        }
    }
    let ports: Vec<_> = node.used_ports().collect();
    for (at, (port, users)) in ports.iter().enumerate() {
        let others = ports.iter().skip(at + 1).filter(|(other, _)| port.conflicts(other));
        let users = *users as usize + others.map(|(_, users)| *users as usize).sum::<usize>();
        if users > 1 {
            let what = format!("{users} pods use host port {} ({:?})", port.port, port.protocol);
            findings.add("conflict", format!("node {name}"), what);
        }
    }
}

/// The overcommitted resources of a pod class: name, requested and allocatable amounts.
fn overcommitted(node: NodeInfo<'_>, class: PodClass) -> Vec<(String, [String; 2])> {
    let (takes, has) = (node.requested_of(class), node.allocatable_of(class));
    let plain = |of: &Resources| [of.cpu.0, of.memory.0, of.ephemeral_storage.0];
    let mut found = Vec::new();
    let names = ["cpu", "memory", "ephemeral-storage"].into_iter();
    for ((name, takes), has) in names.zip(plain(&takes)).zip(plain(&has)) {
        if takes > has {
            found.push((name.to_owned(), amounts(name, [takes, has], Rounding::Down)));
        }
    }
    for (name, takes) in takes.scalars.iter() {
        let has = has.scalars.get(name).unwrap_or_default();
        if takes > has {
            found.push((name.to_string(), amounts(name, [takes, has], Rounding::Down)));
        }
    }
    found
}

fn check_pods(loaded: &Loaded, dump: &Dump, findings: &mut Findings) {
    let cluster = loaded.writer.cluster();
    for pod in &loaded.pending {
        if let Err(abnormal) = pod.state() {
            findings.add("state", format!("pod {}", pod.key()), invalid(&abnormal));
        }
    }
    let placed = dump.nodes.values().flat_map(|node| node.pods.keys());
    let placed = placed.filter_map(|uid| cluster.pod(uid)).map(|pod| pod.to_pod());
    for pod in placed.chain(loaded.pending.iter().cloned()) {
        if let Some((namespace, name)) = pod.group()
            && !cluster.contains_object(ObjectKind::PodGroup, namespace, name)
        {
            let what = format!("pod group {namespace}/{name} does not exist");
            findings.add("missing", format!("pod {}", pod.key()), what);
        }
        for claim in pod.template.claims() {
            let kind = ObjectKind::PersistentVolumeClaim;
            let is_known = cluster.contains_object(kind, pod.namespace(), claim);
            // The files may have been fetched without claims.
            if !is_known && !cluster.objects().persistent_volume_claims.is_empty() {
                let what =
                    format!("PersistentVolumeClaim {}/{claim} does not exist", pod.namespace());
                findings.add("missing", format!("pod {}", pod.key()), what);
            }
        }
    }
}

fn invalid(abnormal: &AbnormalPodState) -> String {
    format!("invalid state annotations: {abnormal}")
}

fn check_reservations(cluster: &Cluster, findings: &mut Findings) {
    for place in cluster.reservations().into_iter().flat_map(|places| places.iter()) {
        let object = format!("reservation of {}", place.pod.key());
        if cluster.node(place.node()).is_none() {
            findings.add("missing", object, format!("node {} does not exist", place.node()));
        } else if !place.confirmed {
            findings.add("state", object, "no Reservation object confirms it");
        }
    }
}

fn check_movements(cluster: &Cluster, findings: &mut Findings) {
    for of in cluster.movements().into_iter().flat_map(|movements| movements.iter()) {
        let object = || format!("movement {}", of.movement);
        if of.desired > 0 && cluster.node(&of.node).is_none() {
            let what = format!("node {} does not exist, but pods are suggested for it", of.node);
            findings.add("missing", object(), what);
        }
        let used = of.actual().iter().chain(of.assumed()).collect::<BTreeSet<_>>().len();
        if used as u64 > of.desired {
            let (owner, desired, pods) = (&of.owner, of.desired, count(used, "pod"));
            let what = format!("{pods} of {owner} on node {}, limit {desired}", of.node);
            findings.add("excess", object(), what);
        }
    }
}

fn table(loaded: &Loaded, findings: &Findings) -> String {
    let cluster = loaded.writer.cluster();
    let (nodes, pods) = (count(cluster.len(), "node"), count(cluster.pod_count(), "pod"));
    let mut text = match findings.0.len() {
        0 => format!("no problems found ({nodes}, {pods})"),
        some => format!("{} found ({nodes}, {pods})", count(some, "problem")),
    };
    if !findings.0.is_empty() {
        let mut table = plain(["kind", "object", "problem"]);
        for Finding { kind, object, what } in &findings.0 {
            table.add_row(row([*kind, object, what]));
        }
        text = format!("{text}\n\n{}", table.trim_fmt());
    }
    for note in &loaded.notes {
        text.push_str("\nnote: ");
        text.push_str(&line(note));
    }
    text
}

fn json(loaded: &Loaded, findings: &Findings) -> Value {
    let cluster = loaded.writer.cluster();
    let found = findings.0.iter().map(
        |finding| json!({ "found": finding.kind, "where": finding.object, "what": finding.what }),
    );
    json!({
        "ok": findings.0.is_empty(),
        "nodes": cluster.len(),
        "pods": cluster.pod_count(),
        "findings": found.collect::<Vec<_>>(),
        "notes": loaded.notes,
        "input": loaded.intake.json(),
    })
}
