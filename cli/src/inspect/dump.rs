//! `portolan dump`: the cluster as the engine sees it, store by store.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use clap::ValueEnum;
use portolan::cache::{
    AccountDump, Cluster, Movements, NodeDump, PreemptionMark, PreemptionMarks, Suggestion,
};
use portolan::model::{Name, NodeResources, NonZero, ObjectKind, Pod, PodClass, Resources, Uid};
use portolan_dra::model::{ResourceClaim, ResourceClaimTemplate};
use portolan_k8s::DeviceObjects;
use serde_json::{Map, Value, json};

use crate::cluster::{self, Loaded};
use crate::columns::taint;
use crate::error::CommandError;
use crate::names::did_you_mean;
use crate::print;
use crate::selection::Selection;
use crate::table::{plain, right, row};
use crate::text::{cores, count, gib, line};

/// Print the cluster as the engine sees it, store by store.
///
/// Without --store, print the size of each store.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Store whose rows are printed: nodes, pods, reservations, movements, marks, or a kind of object such as
    /// PersistentVolume. kubectl's short names are accepted: po, pv, pdb.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Only pods and objects of this namespace (needs --store).
    #[arg(long, value_name = "NAMESPACE", requires = "store")]
    namespace: Option<String>,
    /// Accepted for compatibility with kubectl: without --namespace, the pods and objects of all namespaces are
    /// printed.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only nodes or pods with these labels, such as pool=a,zone!=b (needs --store).
    #[arg(long, value_name = "SELECTOR", requires = "store", value_parser = Selection::parse)]
    selector: Option<Selection>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    output: Form,
    #[command(flatten)]
    godel: cluster::Godel,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Tables for people.
    Table,
    /// Tables with labels, taints and uids.
    Wide,
    /// One KIND/NAME per line (needs --store).
    Name,
    /// One JSON object with all stores.
    Json,
}

/// Which rows are printed, and how.
struct Shown<'a> {
    namespace: Option<&'a str>,
    selector: Option<&'a Selection>,
    form: Form,
}

impl Shown<'_> {
    fn is_in(&self, namespace: &str) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace)
    }

    fn is_wide(&self) -> bool {
        self.form == Form::Wide
    }

    /// The names of objects, or their table.
    fn list(&self, kind: &str, names: &[String], table: String) -> String {
        match self.form {
            Form::Name => names
                .iter()
                .map(|name| format!("{kind}/{}", line(name)))
                .collect::<Vec<_>>()
                .join("\n"),
            _ => table,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let is_selected = arguments.namespace.is_some() || arguments.selector.is_some();
    if arguments.output == Form::Json && is_selected {
        let what = "-o json contains all stores: omit --namespace and --selector";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let mut loaded = cluster::load(&arguments.from, &arguments.godel)?;
    if let Some(namespace) = &arguments.namespace {
        let known = namespaces(&loaded);
        if !known.contains(&**namespace) {
            let near = did_you_mean(namespace, known.iter().map(|name| &**name));
            Arc::make_mut(&mut loaded.contents.intake)
                .warn(&format!("namespace {namespace} has no objects: {near}"));
        }
    }
    let shown = Shown {
        namespace: arguments.namespace.as_deref(),
        selector: arguments.selector.as_ref(),
        form: arguments.output,
    };
    let text = match (arguments.output, &arguments.store) {
        (Form::Json, _) => json(&loaded).to_string(),
        (Form::Name, None) => {
            return Err(CommandError::Usage("-o name needs --store: pass a store".to_owned()));
        }
        (_, None) => stores(&loaded),
        (_, Some(store)) => rows(&loaded, store, &shown)?,
    };
    // A selection may be empty.
    if !text.is_empty() {
        print(&text)?;
    }
    if arguments.output != Form::Json {
        loaded.contents.intake.print();
    }
    Ok(ExitCode::SUCCESS)
}

/// The namespaces that exist or have objects.
fn namespaces(loaded: &Loaded) -> BTreeSet<Name> {
    let cluster = &*loaded.cluster;
    // Every cluster has these.
    let initial = ["default", "kube-system", "kube-public", "kube-node-lease"].map(Name::from);
    let mut names = BTreeSet::from(initial);
    for kind in ObjectKind::ALL {
        names.extend(cluster.object_keys(kind).into_iter().map(|(namespace, name)| match kind {
            ObjectKind::Namespace => Name::from(name),
            _ => Name::from(namespace),
        }));
    }
    let placed = cluster.nodes().flat_map(|node| node.pods());
    names.extend(placed.map(|pod| pod.namespace().clone()));
    names.extend(loaded.pending.iter().map(|pod| pod.namespace().clone()));
    names
}

/// The size of each store, and the generation of its last change.
fn stores(loaded: &Loaded) -> String {
    let cluster = &*loaded.cluster;
    let mut table = plain(["store", "objects", "generation", "details"]);
    let mut add = |name: &str, objects: usize, generation: u64, details: String| {
        table.add_row([name.to_owned(), objects.to_string(), generation.to_string(), details]);
    };
    let now = cluster.generation().0;
    let ghosts = cluster.node_count() - cluster.len();
    let what = match ghosts {
        0 => String::new(),
        _ => format!("plus {} with pods", count(ghosts, "missing node")),
    };
    add("nodes", cluster.len(), now, what);
    let dump = cluster.dump();
    let what = match (dump.assumed_elsewhere.len(), loaded.pending.len()) {
        (0, 0) => String::new(),
        (0, pending) => format!("plus {pending} pending"),
        (assumed, 0) => format!("{assumed} assumed"),
        (assumed, pending) => format!("{assumed} assumed, plus {pending} pending"),
    };
    add("pods", cluster.pod_count(), now, what);
    for kind in ObjectKind::ALL {
        let objects = cluster.object_keys(kind).len();
        if objects > 0 {
            add(kind.as_str(), objects, cluster.generation_of(kind).0, String::new());
        }
    }
    for (kind, keys) in device_objects(loaded).into_iter().filter(|(_, keys)| !keys.is_empty()) {
        let allocated =
            loaded.contents.devices().claims.iter().filter(|it| it.status.allocation.is_some());
        let what = match kind {
            "ResourceClaim" => format!("{} allocated", allocated.count()),
            _ => String::new(),
        };
        // The engine starts with them.
        add(kind, keys.len(), 0, what);
    }
    if let Some(places) = cluster.reservations() {
        let available = places.iter().filter(|place| place.is_available()).count();
        let what = format!("{available} available, {} matched", places.len() - available);
        add("reservations", places.len(), places.generation().0, what);
    }
    if let Some(movements) = cluster.movements() {
        let wanted = movements.iter().fold(0_u64, |sum, of| sum.saturating_add(of.available()));
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let what = format!("{} suggested", count(wanted, "more pod"));
        add("movements", movements.len(), movements.generation().0, what);
    }
    if let Some(marks) = cluster.preemption_marks() {
        let what = "preemption victims".to_owned();
        add("marks", marks.len(), marks.generation().0, what);
    }
    let mut text = right(table, &[1, 2]).trim_fmt();
    for note in &loaded.contents.notes {
        text.push_str("\nnote: ");
        text.push_str(&line(note));
    }
    text
}

/// The kinds of dynamic resource allocation, with the namespaces and names of the objects.
fn device_objects(loaded: &Loaded) -> [(&'static str, BTreeSet<(Name, Name)>); 4] {
    let DeviceObjects { classes, slices, claims, templates, .. } = loaded.contents.devices();
    let cluster_scoped = |name: &Name| (Name::default(), name.clone());
    let of_claim = |of: &Arc<ResourceClaim>| (of.namespace().clone(), of.name().clone());
    let of_template = |of: &Arc<ResourceClaimTemplate>| (of.namespace().clone(), of.name().clone());
    [
        ("DeviceClass", classes.iter().map(|of| cluster_scoped(of.name())).collect()),
        ("ResourceSlice", slices.iter().map(|of| cluster_scoped(of.name())).collect()),
        ("ResourceClaim", claims.iter().map(of_claim).collect()),
        ("ResourceClaimTemplate", templates.iter().map(of_template).collect()),
    ]
}

/// kubectl's short names of kinds.
const SHORT: [(&str, &str); 12] = [
    ("no", "nodes"),
    ("po", "pods"),
    ("pv", "PersistentVolume"),
    ("pvc", "PersistentVolumeClaim"),
    ("sc", "StorageClass"),
    ("pdb", "PodDisruptionBudget"),
    ("svc", "Service"),
    ("rs", "ReplicaSet"),
    ("rc", "ReplicationController"),
    ("sts", "StatefulSet"),
    ("ds", "DaemonSet"),
    ("ns", "Namespace"),
];

/// Whether the text names the store, in any case, in the singular or the plural.
fn names(text: &str, store: &str) -> bool {
    let (text, store) = (text.to_lowercase(), store.to_lowercase());
    let singular = store.strip_suffix('s').filter(|it| matches!(*it, "node" | "pod"));
    let plural = match store.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if store.ends_with('s') => format!("{store}es"),
        None => format!("{store}s"),
    };
    text == store || text == plural || Some(&*text) == singular
}

/// The rows of one store.
fn rows(loaded: &Loaded, text: &str, shown: &Shown<'_>) -> Result<String, CommandError> {
    let cluster = &*loaded.cluster;
    let short = SHORT.iter().find(|(short, _)| short.eq_ignore_ascii_case(text));
    let store = short.map_or(text, |(_, store)| store);
    let stores = ["nodes", "pods", "reservations", "movements", "marks"];
    let of_engine = stores.into_iter().find(|of| names(store, of));
    if shown.selector.is_some() && !matches!(of_engine, Some("nodes" | "pods")) {
        return Err(CommandError::Usage("--selector selects nodes and pods: omit it".to_owned()));
    }
    let is_of_godel = matches!(of_engine, Some("reservations" | "movements" | "marks"));
    if is_of_godel && (shown.form == Form::Name || shown.namespace.is_some()) {
        let what =
            format!("{store} have neither names nor namespaces: omit -o name and --namespace");
        return Err(CommandError::Usage(what));
    }
    match of_engine {
        Some("nodes") => Ok(nodes(cluster, shown)),
        Some("pods") => Ok(pods(loaded, shown)),
        Some("reservations") => reservations(cluster),
        Some("movements") => movements(cluster),
        Some(_) => marks(cluster),
        None => match keys_of(loaded, store) {
            Some((kind, keys)) => Ok(objects(kind, keys, shown)),
            None => Err(CommandError::Usage(format!(
                "store {:?} does not exist: choose nodes, pods, reservations, movements, marks, or \
                 a kind of objects; without --store, the stores are listed",
                text.chars().take(60).collect::<String>()
            ))),
        },
    }
}

/// Labels as kubectl prints them.
fn labels<'l>(labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> String {
    let labels = labels.into_iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

fn nodes(cluster: &Cluster, shown: &Shown<'_>) -> String {
    let mut header =
        vec!["node", "objects", "pods", "cpu (cores)", "memory (GiB)", "other resources"];
    // Kubernetes has no second amount of resources for best-effort pods.
    let of_godel = cluster.reservations().is_some();
    if of_godel {
        header.push("best-effort cpu (cores)");
    }
    if shown.is_wide() {
        header.extend(["labels", "taints"]);
    }
    let (mut table, mut listed) = (plain(header), Vec::new());
    for (name, node) in &cluster.dump().nodes {
        let object = cluster.node(name).and_then(|info| info.node().cloned());
        if let Some(selector) = shown.selector
            && !object.as_ref().is_some_and(|node| selector.selects(node))
        {
            continue;
        }
        listed.push(name.clone());
        let of = match node.parts.is_empty() {
            true => "pods only".to_owned(),
            false => node.parts.join(" + "),
        };
        let (takes, has) = (&node.requested, &node.allocatable);
        let others = has.scalars.iter().map(|(name, amount)| {
            format!("{name} {}/{amount}", takes.scalars.get(name).unwrap_or_default())
        });
        let best_effort = &node.best_effort;
        let reclaimed = match best_effort.allocatable == Resources::default() {
            true => String::new(),
            false => cpu(&best_effort.requested, &best_effort.allocatable),
        };
        let mut cells = vec![
            name.clone(),
            of,
            format!("{}/{}", node.pods.len(), node.allowed_pods),
            cpu(takes, has),
            format!("{}/{}", gib(takes.memory.0), gib(has.memory.0)),
            others.collect::<Vec<_>>().join(", "),
        ];
        if of_godel {
            cells.push(reclaimed);
        }
        if let Some(object) = object.filter(|_| shown.is_wide()) {
            cells.push(labels(object.labels.iter()));
            cells.push(object.taints.iter().map(taint).collect::<Vec<_>>().join(","));
        }
        table.add_row(row(cells));
    }
    shown.list("node", &listed, right(table, &[2, 3, 4]).trim_fmt())
}

fn cpu(takes: &Resources, has: &Resources) -> String {
    format!("{}/{}", cores(takes.cpu.0), cores(has.cpu.0))
}

fn pods(loaded: &Loaded, shown: &Shown<'_>) -> String {
    let cluster = &*loaded.cluster;
    let mut header = vec!["pod", "state", "node", "priority", "cpu (cores)", "memory (GiB)"];
    // This is not the QoS class of Kubernetes.
    let of_godel = cluster.reservations().is_some();
    if of_godel {
        header.push("class");
    }
    if shown.is_wide() {
        header.extend(["uid", "labels"]);
    }
    let (mut table, mut listed) = (plain(header), Vec::new());
    let mut add = |pod: &Pod, state: &str, node: &str| {
        let is_selected = shown.selector.is_none_or(|it| it.selects_labels(&pod.template.labels));
        if !is_selected || !shown.is_in(pod.namespace()) {
            return;
        }
        listed.push(pod.name.to_string());
        let takes = &pod.template.resources.placed;
        let mut cells = vec![
            pod.key().to_string(),
            state.to_owned(),
            node.to_owned(),
            pod.template.priority.to_string(),
            cores(takes.cpu.0),
            gib(takes.memory.0),
        ];
        if of_godel {
            cells.push(pod.template.class.as_str().to_owned());
        }
        if shown.is_wide() {
            cells.push(pod.uid.to_string());
            cells.push(labels(pod.template.labels.iter()));
        }
        table.add_row(row(cells));
    };
    let uids = cluster.dump().nodes.into_values().flat_map(|node| node.pods.into_keys());
    let mut placed: Vec<_> = uids.filter_map(|uid| cluster.pod(&uid)).collect();
    placed.sort_by_key(|pod| (pod.namespace(), pod.name()));
    for pod in placed {
        add(&pod.to_pod(), pod.state().as_str(), pod.node().name());
    }
    for pod in loaded.pending.iter() {
        add(pod, &state(pod), "");
    }
    shown.list("pod", &listed, right(table, &[3, 4, 5]).trim_fmt())
}

fn state(pod: &Pod) -> String {
    pod.state().map_or_else(|abnormal| abnormal.to_string(), |state| state.as_str().to_owned())
}

fn reservations(cluster: &Cluster) -> Result<String, CommandError> {
    let places = cluster.reservations().ok_or_else(needs_godel)?;
    let mut table = plain(["placeholder", "placeholder pod", "node", "matched pod", "confirmed"]);
    for place in places.iter() {
        table.add_row(row([
            place.placeholder.to_string(),
            place.pod.key().to_string(),
            place.node().to_owned(),
            place.matched.as_ref().map(Uid::to_string).unwrap_or_default(),
            if place.confirmed { "yes" } else { "no" }.to_owned(),
        ]));
    }
    Ok(table.trim_fmt())
}

fn movements(cluster: &Cluster) -> Result<String, CommandError> {
    let movements = cluster.movements().ok_or_else(needs_godel)?;
    let header = ["movement", "owner", "node", "desired", "actual", "assumed", "available"];
    let mut table = plain(header);
    for of in by_place(movements) {
        table.add_row(row([
            of.movement.to_string(),
            of.owner.to_string(),
            of.node.to_string(),
            of.desired.to_string(),
            of.actual().len().to_string(),
            of.assumed().len().to_string(),
            of.available().to_string(),
        ]));
    }
    Ok(right(table, &[3, 4, 5, 6]).trim_fmt())
}

/// The suggestions, sorted by movement, owner and node.
fn by_place(movements: &Movements) -> Vec<&Suggestion> {
    let mut suggestions: Vec<&Suggestion> = movements.iter().map(|of| &**of).collect();
    suggestions.sort_by_key(|of| (&of.movement, &of.owner, &of.node));
    suggestions
}

fn marks(cluster: &Cluster) -> Result<String, CommandError> {
    let marks = cluster.preemption_marks().ok_or_else(needs_godel)?;
    let mut table = plain(["node", "victim", "preemptors"]);
    for (node, mark) in by_victim(marks) {
        let preemptors: Vec<String> = mark.preemptors().iter().map(Uid::to_string).collect();
        let cells = [node.to_string(), mark.victim.to_string(), preemptors.join(", ")];
        table.add_row(row(cells));
    }
    Ok(table.trim_fmt())
}

/// The marks, sorted by node and victim.
fn by_victim(marks: &PreemptionMarks) -> Vec<(&Name, &PreemptionMark)> {
    let mut marks: Vec<_> = marks.iter().collect();
    marks.sort_by_key(|(node, mark)| (*node, &mark.victim));
    marks
}

pub(super) fn needs_godel() -> CommandError {
    CommandError::Usage("this store needs Gödel semantics: pass --godel SCHEDULER_TYPE".to_owned())
}

/// The kind of objects that the text names, and their namespaces and names.
fn keys_of(loaded: &Loaded, text: &str) -> Option<(&'static str, Vec<(String, String)>)> {
    let mut kinds = ObjectKind::ALL.into_iter();
    if let Some(kind) = kinds.find(|kind| names(text, kind.as_str())) {
        let mut keys = loaded.cluster.object_keys(kind);
        keys.sort();
        return Some((kind.as_str(), keys));
    }
    let mut kinds = device_objects(loaded).into_iter();
    let (kind, keys) = kinds.find(|(kind, _)| names(text, kind))?;
    let text = |(namespace, name): (Name, Name)| (namespace.to_string(), name.to_string());
    Some((kind, keys.into_iter().map(text).collect()))
}

fn objects(kind: &str, keys: Vec<(String, String)>, shown: &Shown<'_>) -> String {
    let (mut table, mut listed) = (plain(["namespace", "name"]), Vec::new());
    for (namespace, name) in keys {
        if shown.is_in(&namespace) {
            listed.push(name.clone());
            table.add_row(row([namespace, name]));
        }
    }
    shown.list(&kind.to_lowercase(), &listed, table.trim_fmt())
}

/// All stores.
fn json(loaded: &Loaded) -> Value {
    let cluster = &*loaded.cluster;
    let dump = cluster.dump();
    let nodes: Map<String, Value> =
        dump.nodes.iter().map(|(name, of)| (name.clone(), node(cluster, of))).collect();
    let objects = ObjectKind::ALL.into_iter().filter_map(|kind| {
        let mut keys = cluster.object_keys(kind);
        keys.sort();
        let keys: Vec<Value> = keys
            .into_iter()
            .map(|(namespace, name)| json!({ "namespace": namespace, "name": name }))
            .collect();
        let generation = cluster.generation_of(kind).0;
        let of = json!({ "generation": generation, "objects": keys });
        (!keys.is_empty()).then(|| (kind.as_str().to_owned(), of))
    });
    let devices = device_objects(loaded).into_iter().filter(|(_, keys)| !keys.is_empty());
    let devices = devices.map(|(kind, keys)| {
        let keys =
            keys.iter().map(|(namespace, name)| json!({ "namespace": namespace, "name": name }));
        let of = json!({ "generation": 0, "objects": keys.collect::<Vec<_>>() });
        (kind.to_owned(), of)
    });
    let pending: Vec<Value> = loaded
        .pending
        .iter()
        .map(|pod| json!({ "pod": &*pod.key(), "uid": pod.uid.to_string(), "state": state(pod) }))
        .collect();
    let mut result = json!({
        "generation": cluster.generation().0,
        "order": dump.order,
        "nodes": nodes,
        "pending": pending,
        "used_claims": dump.used_claims,
        "images": dump.images,
        "group_members": dump.group_members,
        "objects": objects.chain(devices).collect::<Map<_, _>>(),
        "notes": loaded.contents.notes,
        "input": loaded.contents.intake.json(),
    });
    if let Some(places) = cluster.reservations() {
        let places: Vec<Value> = places
            .iter()
            .map(|place| {
                json!({
                    "placeholder": &*place.placeholder,
                    "pod": &*place.pod.key(),
                    "node": place.node(),
                    "matched": place.matched.as_ref().map(Uid::to_string),
                    "confirmed": place.confirmed,
                })
            })
            .collect();
        result["reservations"] = places.into();
    }
    if let Some(movements) = cluster.movements() {
        let suggestions: Vec<Value> = by_place(movements).into_iter().map(suggestion).collect();
        result["movements"] = suggestions.into();
    }
    if let Some(marks) = cluster.preemption_marks() {
        let marks: Vec<Value> = by_victim(marks)
            .into_iter()
            .map(|(node, mark)| {
                json!({
                    "node": &**node,
                    "victim": mark.victim.to_string(),
                    "preemptors": uids(mark.preemptors()),
                })
            })
            .collect();
        result["marks"] = marks.into();
    }
    result
}

fn uids(uids: &[Uid]) -> Vec<String> {
    uids.iter().map(Uid::to_string).collect()
}

fn suggestion(of: &Suggestion) -> Value {
    json!({
        "movement": &*of.movement,
        "owner": of.owner.to_string(),
        "node": &*of.node,
        "desired": of.desired,
        "actual": uids(of.actual()),
        "assumed": uids(of.assumed()),
        "more": of.available(),
    })
}

fn node(cluster: &Cluster, node: &NodeDump) -> Value {
    let pods: Vec<Value> = node
        .pods
        .keys()
        .filter_map(|uid| cluster.pod(uid))
        .map(|pod| {
            json!({
                "pod": format!("{}/{}", pod.namespace(), pod.name()),
                "uid": pod.uid().to_string(),
                "state": pod.state().as_str(),
                "class": pod.template().class.as_str(),
                "priority": pod.template().priority,
            })
        })
        .collect();
    json!({
        "listed": node.has_node,
        "parts": node.parts,
        "schedulers": node.schedulers.iter().map(|name| &**name).collect::<Vec<_>>(),
        "columns": node.columns,
        "capacity": with_pods(&node.capacity),
        PodClass::Guaranteed.as_str(): account(
            (&node.requested, node.non_zero_requested),
            (&node.allocatable, node.allowed_pods),
        ),
        PodClass::BestEffort.as_str(): of_account(&node.best_effort),
        "used_ports": node.used_ports,
        "claims": node.claims,
        "images": node.images,
        "pods": pods,
    })
}

fn of_account(of: &AccountDump) -> Value {
    account((&of.requested, of.non_zero_requested), (&of.allocatable, of.allowed_pods))
}

fn account(takes: (&Resources, NonZero), has: (&Resources, i64)) -> Value {
    json!({
        "requested": amounts(takes.0),
        "non_zero_requested": { "cpu_milli": takes.1.cpu.0, "memory_bytes": takes.1.memory.0 },
        "allocatable": amounts(has.0),
        "allowed_pods": has.1,
    })
}

fn with_pods(of: &NodeResources) -> Value {
    let mut value = amounts(&of.resources);
    value["pods"] = of.pods.into();
    value
}

fn amounts(of: &Resources) -> Value {
    let mut value = json!({
        "cpu_milli": of.cpu.0,
        "memory_bytes": of.memory.0,
        "ephemeral_storage_bytes": of.ephemeral_storage.0,
    });
    for (name, amount) in of.scalars.iter() {
        value[&**name] = amount.into();
    }
    value
}
