//! Findings about the input itself: objects that occur twice, and references to objects that do not exist.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use portolan::model::{Name, Object, OwnerReference, Pod, Timestamp};
use portolan_k8s::{ControllerKind, Missing, Objects};

use super::finding::{Findings, Kind};
use crate::cluster::Input;
use crate::text::{count, first_names};

/// Removes further copies of objects, and reports them. The first copy stays.
pub(super) fn take_duplicates(input: &mut Input, findings: &mut Findings) {
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut is_new = |kind: &'static str, namespace: &str, name: &str| {
        let is_new = seen.insert((kind, namespace.to_owned(), name.to_owned()));
        if !is_new {
            let key =
                if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            *copies.entry(format!("{} {key}", subject(kind))).or_insert(1) += 1;
        }
        is_new
    };
    let objects = input.objects_mut();
    objects.nodes.retain(|node| is_new("Node", "", &node.name));
    objects.pods.retain(|pod| is_new("Pod", pod.namespace(), &pod.name));
    // A workload is also a controller.
    let is_other = |object: &Object| !matches!(object, Object::Workload(_));
    objects.objects.retain(|object| {
        !is_other(object) || is_new(object.kind().as_str(), object.namespace(), object.name())
    });
    objects.priority_classes.retain(|class| is_new("PriorityClass", "", &class.name));
    objects.runtime_classes.retain(|class| is_new("RuntimeClass", "", &class.name));
    let controllers = input.controllers_mut();
    controllers.retain(|it| is_new(it.kind.as_str(), &it.namespace, &it.name));
    for (object, copies) in copies {
        findings.add(
            Kind::Duplicate,
            object,
            format!("the input has {copies} objects of this name"),
        );
    }
    let mut uids: HashMap<_, Name> = HashMap::new();
    input.objects_mut().pods.retain(|pod| {
        let first = uids.entry(pod.uid.clone()).or_insert_with(|| pod.key());
        if *first == pod.key() {
            return true;
        }
        let problem = format!("has the uid {} of pod {first}: it is not examined", pod.uid);
        findings.add(Kind::Duplicate, format!("pod {}", pod.key()), problem);
        false
    });
}

/// The word for an object of a kind in a sentence.
fn subject(kind: &str) -> &str {
    match kind {
        "Node" => "node",
        "Pod" => "pod",
        kind => kind,
    }
}

/// References to owners, classes, nodes and profiles.
pub(super) fn check(input: &Input, findings: &mut Findings) {
    check_owners(input, findings);
    check_classes(input, findings);
    let objects = input.objects();
    let names: HashSet<&Name> = objects.nodes.iter().map(|node| &node.name).collect();
    for pod in &objects.pods {
        if let (None, Some(node)) = (&pod.node_name, &pod.nominated_node_name)
            && !names.contains(node)
        {
            let problem =
                format!("nominated to node {node}, which does not exist: the scheduler ignores it");
            findings.add_pod(Kind::NominatedNode, pod, None, problem);
        }
    }
    let deleted = objects.deleted_nodes.iter();
    for node in deleted.filter(|node| names.contains(node)) {
        let is_on = |pod: &&Pod| pod.node_name.as_ref() == Some(node);
        let pods = objects.pods.iter().filter(is_on).count();
        if pods > 0 {
            let problem = format!("is being deleted with {}", count(pods, "pod"));
            findings.add(Kind::DeletedNode, format!("node {node}"), problem);
        }
    }
}

/// The objects that can own pods: kind, namespace, name and uid.
struct Owners<'o> {
    /// The kinds of which the input has objects, with their API groups.
    read: Vec<(&'static str, &'static str)>,
    uids: HashMap<(&'o str, &'o str, &'o str), &'o str>,
}

impl<'o> Owners<'o> {
    fn of(input: &'o Input) -> Owners<'o> {
        use ControllerKind::{CronJob, DaemonSet, Deployment, Job, ReplicaSet};
        use ControllerKind::{ReplicationController, StatefulSet};
        let kinds =
            [ReplicationController, ReplicaSet, StatefulSet, Deployment, DaemonSet, Job, CronJob];
        let group = |kind| match kind {
            ReplicationController => "",
            Job | CronJob => "batch",
            _ => "apps",
        };
        let kinds =
            kinds.map(|kind| (kind.as_str(), group(kind))).into_iter().chain([("Node", "")]);
        let read = kinds
            .filter(|(kind, _)| input.objects().read.get(kind).is_some_and(|count| *count > 0));
        let controllers = input.contents.controllers().iter();
        let controllers =
            controllers.map(|it| ((it.kind.as_str(), &*it.namespace, &*it.name), &*it.uid));
        let nodes = input.objects().nodes.iter().map(|node| (("Node", "", &*node.name), ""));
        Owners { read: read.collect(), uids: controllers.chain(nodes).collect() }
    }

    /// Why the owner does not exist, or `None` if it exists or cannot be known.
    fn lacks(&self, namespace: &str, owner: &OwnerReference) -> Option<String> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = self.read.iter().find(|known| **known == (&*owner.kind, group))?.0;
        let namespace = if kind == "Node" { "" } else { namespace };
        let OwnerReference { kind, name, uid, .. } = owner;
        match self.uids.get(&(&**kind, namespace, &**name)) {
            None => Some(format!("{kind} {name}, its owner, does not exist")),
            Some(known) if !known.is_empty() && !uid.is_empty() && **uid != **known => {
                Some(format!("{kind} {name} exists, but not with the uid {uid} of its owner"))
            }
            Some(_) => None,
        }
    }
}

fn check_owners(input: &Input, findings: &mut Findings) {
    let owners = Owners::of(input);
    const DELETED: &str = "the garbage collector deletes it";
    for pod in &input.objects().pods {
        for what in pod.template.owners.iter().filter_map(|it| owners.lacks(pod.namespace(), it)) {
            let problem = format!("{what}: {DELETED}");
            findings.add_pod(Kind::MissingOwner, pod, pod.node_name.as_deref(), problem);
        }
    }
    for it in input.contents.controllers() {
        for what in it.owners.iter().filter_map(|owner| owners.lacks(&it.namespace, owner)) {
            let subject = format!("{} {}/{}", it.kind.as_str(), it.namespace, it.name);
            findings.add(Kind::MissingOwner, subject, format!("{what}: {DELETED}"));
        }
    }
}

/// The priority classes that every cluster has.
const SYSTEM_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Priority, runtime and storage classes that do not exist.
fn check_classes(input: &Input, findings: &mut Findings) {
    let objects = input.objects();
    let priority: HashSet<&Name> =
        objects.priority_classes.iter().map(|class| &class.name).collect();
    let runtime: HashSet<&Name> = objects.runtime_classes.iter().map(|class| &class.name).collect();
    // Without the class, the priority or overhead of a pod is unknown, or a claim is not bound.
    let mut reported = HashSet::new();
    for Missing { kind, name, first, count, .. } in &objects.missing {
        let more = if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        missing_class(kind, name, &format!("{first}{more}"), findings);
        reported.insert((*kind, name));
    }
    let keys: HashMap<_, Name> = objects.pods.iter().map(|pod| (&pod.uid, pod.key())).collect();
    for ((kind, class), pods) in input.contents.facts().classes() {
        let is_known = match *kind {
            "PriorityClass" => priority.contains(class) || SYSTEM_CLASSES.contains(&&**class),
            _ => runtime.contains(class),
        };
        let pods: Vec<String> =
            pods.iter().filter_map(|uid| keys.get(uid)).map(|key| format!("Pod {key}")).collect();
        let is_read = objects.read.contains_key(kind);
        if is_read && !is_known && !pods.is_empty() && !reported.contains(&(*kind, class)) {
            missing_class(kind, class, &first_names(&pods), findings);
        }
    }
}

fn missing_class(kind: &str, class: &str, users: &str, findings: &mut Findings) {
    let (of, what) = match kind {
        "PriorityClass" => (Kind::MissingPriorityClass, "new pods that name it are refused"),
        "RuntimeClass" => (Kind::MissingRuntimeClass, "new pods that name it are refused"),
        _ => (Kind::MissingStorageClass, "its claims are not bound"),
    };
    let problem = format!("does not exist, but is named by {users}: {what}");
    findings.add(of, format!("{kind} {class}"), problem);
}

/// How long a pod may exceed its grace period.
const OVERDUE: Duration = Duration::from_secs(600);

/// Pods whose grace period has ended long before `now`.
pub(super) fn check_terminating(
    objects: &Objects,
    now: Option<Timestamp>,
    findings: &mut Findings,
) {
    // The input is not older than its newest pod.
    let times = objects.pods.iter().flat_map(|pod| [pod.creation_time, pod.start_time]);
    let Some(now) = now.or_else(|| times.flatten().max()) else { return };
    let is_overdue = |pod: &&Pod| pod.deletion_time.is_some_and(|end| now.since(end) >= OVERDUE);
    for pod in objects.pods.iter().filter(is_overdue) {
        let problem = "is terminating, and its grace period ended more than 10 minutes ago";
        findings.add_pod(Kind::Terminating, pod, pod.node_name.as_deref(), problem);
    }
}
