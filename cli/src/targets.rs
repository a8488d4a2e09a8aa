//! Controllers and pods that an option names as kubectl does: `deployment/web`, `po/web-0`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portolan::cache::PodInfo;
use portolan::model::{Name, Pod, Template};
use portolan_k8s::{PodController, Scales};

use crate::error::CommandError;
use crate::names::similar;
use crate::selection::{Selection, is_selector};

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
pub(crate) struct Reference {
    pub(crate) kind: &'static str,
    /// kubectl's name of the kind, in the plural.
    resource: &'static str,
    pub(crate) name: Name,
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
    pub(crate) fn parse(text: &str) -> Result<Reference, String> {
        let (kind, name) = text
            .split_once('/')
            .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'))
            .ok_or("pass KIND/NAME, such as deployment/web")?;
        let (kind, resource) = known_kind(kind)?;
        Ok(Reference { kind, resource, name: name.into(), text: text.to_owned() })
    }

    /// Whether the reference names the controller, in its namespace or another.
    pub(crate) fn is_of(&self, controller: &PodController) -> bool {
        (self.kind, &self.name) == (controller.kind.as_str(), &controller.name)
    }

    pub(crate) fn is_same(&self, other: &Reference) -> bool {
        (self.kind, &self.name) == (other.kind, &other.name)
    }
}

/// Parses the name of a node, which kubectl also accepts as `node/NAME`.
pub(crate) fn node(text: &str) -> Result<String, String> {
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
pub(crate) enum Removal {
    Named(Reference),
    Labeled(Labeled),
}

/// The objects of a kind with certain labels.
#[derive(Clone, Debug)]
pub(crate) struct Labeled {
    kind: &'static str,
    resource: &'static str,
    labels: Selection,
    text: String,
}

impl Removal {
    pub(crate) fn parse(text: &str) -> Result<Removal, String> {
        match text.split_once('/') {
            Some((kind, labels)) if !kind.is_empty() && is_selector(labels) => {
                let (kind, resource) = known_kind(kind)?;
                let (labels, text) = (Selection::parse(labels)?, text.to_owned());
                Ok(Removal::Labeled(Labeled { kind, resource, labels, text }))
            }
            _ => Reference::parse(text).map(Removal::Named),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Removal::Named(Reference { kind, .. }) | Removal::Labeled(Labeled { kind, .. }) => kind,
        }
    }

    /// Whether the controller is deleted, if its namespace is not excluded.
    pub(crate) fn covers(&self, controller: &PodController) -> bool {
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
pub(crate) struct Scale {
    pub(crate) of: Reference,
    pub(crate) replicas: usize,
}

impl Scale {
    pub(crate) fn parse(text: &str) -> Result<Scale, String> {
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
        let replicas = replicas.parse().ok().filter(|replicas| *replicas <= crate::what_if::MOST);
        let replicas = replicas.ok_or_else(|| {
            format!("N must be a number from 0 to {}: {FORM}", crate::what_if::MOST)
        })?;
        Ok(Scale { of, replicas })
    }
}

/// The objects of the cluster that a reference names.
pub(crate) struct Target<'c> {
    pub(crate) namespace: Name,
    pub(crate) name: Name,
    /// The controller itself, if it is in the input.
    pub(crate) controller: Option<&'c PodController>,
    /// The pods, with the nodes of those that are placed, in the order of their names.
    pub(crate) pods: Vec<Pod>,
}

/// A pod among which targets are found.
pub(crate) enum Candidate<'p> {
    Placed(PodInfo<'p>),
    Waiting(&'p Pod),
}

impl Candidate<'_> {
    fn template(&self) -> &Template {
        match self {
            Candidate::Placed(pod) => pod.template(),
            Candidate::Waiting(pod) => &pod.template,
        }
    }

    fn name(&self) -> &str {
        match self {
            Candidate::Placed(pod) => pod.name(),
            Candidate::Waiting(pod) => &pod.name,
        }
    }

    fn to_pod(&self) -> Pod {
        match self {
            Candidate::Placed(pod) => pod.to_pod(),
            Candidate::Waiting(pod) => Pod { node_name: None, ..Pod::clone(pod) },
        }
    }
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
) -> Result<(), CommandError> {
    let namespaces: Vec<&str> = namespaces.map(|it| &**it).collect();
    match namespaces.len() {
        0 | 1 => Ok(()),
        _ => Err(CommandError::Usage(format!(
            "{option} {text}: found in the namespaces {}: pass --namespace",
            namespaces.join(", ")
        ))),
    }
}

/// Finds targets in a cluster.
pub(crate) struct Finder<'c> {
    pub(crate) controllers: &'c [PodController],
    pub(crate) scales: &'c Scales,
    pub(crate) namespace: Option<&'c str>,
}

impl<'c> Finder<'c> {
    /// Finds the controller or pod with its pods. O(pods).
    pub(crate) fn find<'p>(
        &self,
        option: &str,
        reference: &Reference,
        pods: impl Iterator<Item = Candidate<'p>>,
    ) -> Result<Target<'c>, CommandError> {
        let mut found: BTreeMap<Name, Target<'c>> = BTreeMap::new();
        let named = self.of_kind(reference.kind).filter(|it| it.name == reference.name);
        found.extend(named.map(|it| (it.namespace.clone(), Target::of(it))));
        let names = self.each_pod(reference.kind, pods, |name, pod| {
            if *name == reference.name {
                let namespace = &pod.template().namespace;
                let target = found.entry(namespace.clone());
                target.or_insert_with(|| Target::called(namespace, name)).pods.push(pod.to_pod());
            }
        });
        refuse_several(option, &reference.text, found.keys())?;
        match found.pop_first() {
            Some((_, mut target)) => {
                target.pods.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(target)
            }
            None => Err(self.not_found(option, reference, names)),
        }
    }

    /// Finds the controllers or pods with certain labels, with their pods. O(pods).
    pub(crate) fn labeled<'p>(
        &self,
        option: &str,
        wanted: &Labeled,
        pods: impl Iterator<Item = Candidate<'p>>,
    ) -> Result<Vec<Target<'c>>, CommandError> {
        let Labeled { kind, labels, text, resource } = wanted;
        let mut found: BTreeMap<(Name, Name), Target<'c>> = BTreeMap::new();
        for controller in self.of_kind(kind).filter(|it| labels.selects_labels(&it.labels)) {
            let key = (controller.namespace.clone(), controller.name.clone());
            found.insert(key, Target::of(controller));
        }
        let _ = self.each_pod(kind, pods, |name, pod| {
            let template = pod.template();
            let key = (template.namespace.clone(), name.clone());
            if *kind == "Pod" && labels.selects_labels(&template.labels) {
                let pods = vec![pod.to_pod()];
                let target = Target { pods, ..Target::called(&template.namespace, &key.1) };
                found.insert(key, target);
            } else if let Some(target) = found.get_mut(&key) {
                target.pods.push(pod.to_pod());
            }
        });
        let namespaces: BTreeSet<&Name> = found.keys().map(|(namespace, _)| namespace).collect();
        refuse_several(option, text, namespaces.into_iter())?;
        if found.is_empty() {
            let what =
                format!("{option} {text}: no {resource} have these labels: check the selector");
            return Err(CommandError::Usage(what));
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

    /// Calls `consider` for each pod that is, or belongs to, an object of the kind, with the object's name. Returns the
    /// names.
    fn each_pod<'p>(
        &self,
        kind: &'static str,
        pods: impl Iterator<Item = Candidate<'p>>,
        mut consider: impl FnMut(&Name, &Candidate<'p>),
    ) -> BTreeSet<Name> {
        let mut names = BTreeSet::new();
        // By the addresses of templates, which many pods share.
        let mut controllers: HashMap<*const Template, Option<Name>> = HashMap::new();
        for pod in pods.filter(|pod| self.is_wanted(&pod.template().namespace)) {
            if kind == "Pod" {
                let name = pod.name().into();
                consider(&name, &pod);
                names.insert(name);
                continue;
            }
            let template = pod.template();
            let controller = controllers.entry(std::ptr::from_ref(template));
            if let Some(name) = controller.or_insert_with(|| self.controller(kind, template)) {
                consider(name, &pod);
            }
        }
        names.extend(controllers.into_values().flatten());
        names
    }

    /// The error for a reference to no object.
    fn not_found(
        &self,
        option: &str,
        reference: &Reference,
        mut names: BTreeSet<Name>,
    ) -> CommandError {
        let Reference { kind, resource, name, text } = reference;
        names.extend(self.of_kind(kind).map(|it| it.name.clone()));
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
        CommandError::Usage(format!("{option} {text}: not found{namespace}: {advice}"))
    }

    /// The name of the controller of this kind that the pods of a template belong to.
    fn controller(&self, kind: &str, template: &Template) -> Option<Name> {
        let owner = template.controller()?;
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
