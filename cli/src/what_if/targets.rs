//! Controllers and pods that an option names as kubectl does: `deployment/web`, `po/web-0`.

use std::collections::{BTreeMap, BTreeSet};

use portolan::Cluster;
use portolan::model::{Name, Pod, Template};
use portolan_k8s::{PodController, Scales};

use crate::error::Failure;
use crate::names::similar;

use super::record::Record;
use super::selection::{Selection, is_selector};

/// The kinds that can be named, with the names that kubectl accepts for them: singular, plural, short.
const KINDS: [(&str, &[&str]); 7] = [
    ("Pod", &["pod", "pods", "po"]),
    ("Deployment", &["deployment", "deployments", "deploy"]),
    ("ReplicaSet", &["replicaset", "replicasets", "rs"]),
    ("StatefulSet", &["statefulset", "statefulsets", "sts"]),
    ("ReplicationController", &["replicationcontroller", "replicationcontrollers", "rc"]),
    ("DaemonSet", &["daemonset", "daemonsets", "ds"]),
    ("Job", &["job", "jobs"]),
];

/// A named controller or pod.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) kind: &'static str,
    /// kubectl's name of the kind, in the plural.
    resource: &'static str,
    pub(super) name: Name,
    /// The text of the option.
    text: String,
}

/// The kind and its name in the plural. kubectl also accepts a resource with its group, such as deployments.apps.
fn known_kind(text: &str) -> Result<(&'static str, &'static str), String> {
    let resource = text.split('.').next().unwrap_or(text).to_lowercase();
    match KINDS.iter().find(|(_, names)| names.contains(&&*resource)) {
        Some((kind, [_, resource, ..])) => Ok((kind, resource)),
        _ => {
            let names: Vec<&str> = KINDS.iter().map(|(_, names)| names[0]).collect();
            Err(format!("unknown kind {text:?}: pass one of {}", names.join(", ")))
        }
    }
}

impl Reference {
    pub(super) fn parse(text: &str) -> Result<Reference, String> {
        let (kind, name) = text
            .split_once('/')
            .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'))
            .ok_or("pass KIND/NAME, such as deployment/web")?;
        let (kind, resource) = known_kind(kind)?;
        Ok(Reference { kind, resource, name: name.into(), text: text.to_owned() })
    }

    /// Whether the reference names the controller, in its namespace or another.
    pub(super) fn is_of(&self, controller: &PodController) -> bool {
        (self.kind, &self.name) == (controller.kind.as_str(), &controller.name)
    }

    pub(super) fn is_same(&self, other: &Reference) -> bool {
        (self.kind, &self.name) == (other.kind, &other.name)
    }
}

/// Parses the name of a node, which kubectl also accepts as `node/NAME`.
pub(super) fn node(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        Some(("node" | "nodes" | "no", name)) => name,
        Some(_) => return Err("pass the name of a node, such as n1 or node/n1".to_owned()),
        None => text,
    };
    if is_selector(name) {
        return Err(format!(
            "not the name of a node: pass --selector {name:?} to drain nodes by label"
        ));
    }
    match name.contains(',') {
        true => Err("separate the nodes with spaces".to_owned()),
        false => Ok(name.to_owned()),
    }
}

/// Objects to delete.
#[derive(Clone, Debug)]
pub(super) enum Removal {
    Named(Reference),
    Labeled(Labeled),
}

/// The objects of a kind with certain labels.
#[derive(Clone, Debug)]
pub(super) struct Labeled {
    kind: &'static str,
    resource: &'static str,
    labels: Selection,
    text: String,
}

impl Removal {
    pub(super) fn parse(text: &str) -> Result<Removal, String> {
        match text.split_once('/') {
            Some((kind, labels)) if !kind.is_empty() && is_selector(labels) => {
                let (kind, resource) = known_kind(kind)?;
                let (labels, text) = (Selection::parse(labels)?, text.to_owned());
                Ok(Removal::Labeled(Labeled { kind, resource, labels, text }))
            }
            _ => Reference::parse(text).map(Removal::Named),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Removal::Named(Reference { kind, .. }) | Removal::Labeled(Labeled { kind, .. }) => kind,
        }
    }

    /// Whether the controller is deleted, if its namespace is not excluded.
    pub(super) fn covers(&self, controller: &PodController) -> bool {
        match self {
            Removal::Named(reference) => reference.is_of(controller),
            Removal::Labeled(Labeled { kind, labels, .. }) => {
                *kind == controller.kind.as_str() && labels.selects_labels(&controller.labels)
            }
        }
    }
}

/// A controller and its new number of pods.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) of: Reference,
    pub(super) replicas: usize,
}

impl Scale {
    pub(super) fn parse(text: &str) -> Result<Scale, String> {
        const FORM: &str = "pass KIND/NAME=N, such as deployment/web=5";
        let (of, replicas) = text.split_once('=').ok_or(FORM)?;
        let of = Reference::parse(of)?;
        if matches!(of.kind, "Pod" | "DaemonSet") {
            return Err(format!(
                "a {} has no number of replicas: pass a Deployment, ReplicaSet, StatefulSet, \
                 ReplicationController or Job",
                of.kind
            ));
        }
        let replicas = replicas.parse().ok().filter(|replicas| *replicas <= super::MOST);
        let replicas = replicas
            .ok_or_else(|| format!("N must be a number from 0 to {}: {FORM}", super::MOST))?;
        Ok(Scale { of, replicas })
    }
}

/// The objects of the cluster that a reference names.
pub(super) struct Target<'c> {
    pub(super) namespace: Name,
    pub(super) name: Name,
    /// The controller itself, if it is in the input.
    pub(super) controller: Option<&'c PodController>,
    /// The pods, with the nodes of those that are placed, in the order of their names.
    pub(super) pods: Vec<Pod>,
}

impl<'c> Target<'c> {
    fn of(controller: &'c PodController) -> Target<'c> {
        let known = Target::called(&controller.namespace, &controller.name);
        Target { controller: Some(controller), ..known }
    }

    fn called(namespace: &Name, name: &Name) -> Target<'c> {
        let (namespace, name) = (namespace.clone(), name.clone());
        Target { namespace, name, controller: None, pods: Vec::new() }
    }
}

/// Refuses an object in several namespaces, if none is chosen.
fn refuse_several<'n>(
    option: &str,
    text: &str,
    namespaces: impl Iterator<Item = &'n Name>,
) -> Result<(), Failure> {
    let namespaces: Vec<&str> = namespaces.map(|it| &**it).collect();
    match namespaces.len() {
        0 | 1 => Ok(()),
        _ => Err(Failure::Usage(format!(
            "{option} {text}: found in the namespaces {}: pass --namespace",
            namespaces.join(", ")
        ))),
    }
}

/// Finds targets in a cluster.
pub(super) struct Finder<'c> {
    pub(super) controllers: &'c [PodController],
    pub(super) scales: &'c Scales,
    pub(super) namespace: Option<&'c str>,
}

impl<'c> Finder<'c> {
    /// Finds the controller or pod with its pods. O(pods).
    pub(super) fn find(
        &self,
        option: &str,
        reference: &Reference,
        cluster: &Cluster,
        record: &Record,
    ) -> Result<Target<'c>, Failure> {
        let mut found: BTreeMap<Name, Target<'c>> = BTreeMap::new();
        let mut names: BTreeSet<Name> = BTreeSet::new();
        for controller in self.of_kind(reference.kind) {
            names.insert(controller.name.clone());
            if controller.name == reference.name {
                found.insert(controller.namespace.clone(), Target::of(controller));
            }
        }
        self.each_pod(reference.kind, cluster, record, |namespace, name, _, pod| {
            if *name == *reference.name {
                let target = found.entry(namespace.clone());
                target.or_insert_with(|| Target::called(namespace, &name)).pods.push(pod());
            }
            names.insert(name);
        });
        refuse_several(option, &reference.text, found.keys())?;
        match found.pop_first() {
            Some((_, mut target)) => {
                target.pods.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(target)
            }
            None => Err(self.not_found(option, reference, &names)),
        }
    }

    /// Finds the controllers or pods with certain labels, with their pods. O(pods).
    pub(super) fn labeled(
        &self,
        option: &str,
        wanted: &Labeled,
        cluster: &Cluster,
        record: &Record,
    ) -> Result<Vec<Target<'c>>, Failure> {
        let Labeled { kind, labels, text, resource } = wanted;
        let mut found: BTreeMap<(Name, Name), Target<'c>> = BTreeMap::new();
        for controller in self.of_kind(kind).filter(|it| labels.selects_labels(&it.labels)) {
            let key = (controller.namespace.clone(), controller.name.clone());
            found.insert(key, Target::of(controller));
        }
        self.each_pod(kind, cluster, record, |namespace, name, template, pod| {
            let key = (namespace.clone(), name);
            if *kind == "Pod" && labels.selects_labels(&template.labels) {
                let target = Target { pods: vec![pod()], ..Target::called(namespace, &key.1) };
                found.insert(key, target);
            } else if let Some(target) = found.get_mut(&key) {
                target.pods.push(pod());
            }
        });
        let namespaces: BTreeSet<&Name> = found.keys().map(|(namespace, _)| namespace).collect();
        refuse_several(option, text, namespaces.into_iter())?;
        if found.is_empty() {
            let what =
                format!("{option} {text}: no {resource} have these labels: check the selector");
            return Err(Failure::Usage(what));
        }
        Ok(found.into_values().collect())
    }

    fn is_wanted(&self, namespace: &Name) -> bool {
        self.namespace.is_none_or(|it| it == &**namespace)
    }

    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &'c PodController> {
        let of_kind = self.controllers.iter().filter(move |it| it.kind.as_str() == kind);
        of_kind.filter(|it| self.is_wanted(&it.namespace))
    }

    /// Calls `consider` for each pod that is, or belongs to, an object of the kind, with the object's namespace and name.
    fn each_pod(
        &self,
        kind: &'static str,
        cluster: &Cluster,
        record: &Record,
        mut consider: impl FnMut(&Name, Name, &Template, &dyn Fn() -> Pod),
    ) {
        let mut one = |template: &Template, pod: &str, make: &dyn Fn() -> Pod| {
            if self.is_wanted(&template.namespace)
                && let Some(name) = self.name_of(kind, template, pod)
            {
                consider(&template.namespace, name, template, make);
            }
        };
        for info in cluster.nodes().flat_map(|node| node.pods()) {
            one(info.template(), info.name(), &|| info.to_pod());
        }
        for pod in record.waiting() {
            one(&pod.template, &pod.name, &|| Pod { node_name: None, ..pod.clone() });
        }
    }

    /// The error for a reference to none of the names.
    fn not_found(&self, option: &str, reference: &Reference, names: &BTreeSet<Name>) -> Failure {
        let Reference { kind, resource, name, text } = reference;
        let is_of_kind = |it: &PodController| it.kind.as_str() == *kind;
        let is_kind_missing = *kind != "Pod" && !self.controllers.iter().any(is_of_kind);
        let advice = match similar(name, names.iter().map(|name| &**name)) {
            Some(names) => names,
            None if is_kind_missing => format!(
                "the input has no {kind}s. Check the spelling, or save the cluster's with `kubectl get {resource} -A -o \
                 yaml > FILE` and add FILE to --cluster"
            ),
            None => "check the spelling".to_owned(),
        };
        let namespace = self.namespace.map(|it| format!(" in namespace {it}")).unwrap_or_default();
        Failure::Usage(format!("{option} {text}: not found{namespace}: {advice}"))
    }

    /// The name of the object of this kind that a pod is, or belongs to.
    fn name_of(&self, kind: &str, template: &Template, pod: &str) -> Option<Name> {
        if kind == "Pod" {
            return Some(pod.into());
        }
        let owner = template.owners.iter().find(|owner| owner.controller)?;
        if &*owner.kind == kind {
            return Some(owner.name.clone());
        }
        if kind != "Deployment" || &*owner.kind != "ReplicaSet" {
            return None;
        }
        match self.scales.scaled(template) {
            Some((kind, _, name)) if &*kind == "Deployment" => Some(name),
            // Without its replica sets, the deployment is known from the names of its pods.
            _ => {
                let hash = template.labels.get("pod-template-hash")?;
                let name = owner.name.strip_suffix(hash)?.strip_suffix('-')?;
                Some(name.into())
            }
        }
    }
}
