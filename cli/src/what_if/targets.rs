//! Controllers and pods that an option names as kubectl does: `deployment/web`, `po/web-0`.

use std::collections::{BTreeMap, BTreeSet};

use portolan::Cluster;
use portolan::model::{Name, Pod, Template};
use portolan_k8s::{PodController, Scales};

use crate::error::Failure;
use crate::names::similar;

use super::record::Record;

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

impl Reference {
    pub(super) fn parse(text: &str) -> Result<Reference, String> {
        let (kind, name) = text
            .split_once('/')
            .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'))
            .ok_or("pass KIND/NAME, such as deployment/web")?;
        // kubectl also accepts a resource with its group, such as deployments.apps.
        let resource = kind.split('.').next().unwrap_or(kind).to_lowercase();
        let known = KINDS.iter().find(|(_, names)| names.contains(&&*resource));
        let Some((kind, [_, resource, ..])) = known else {
            let names: Vec<&str> = KINDS.iter().map(|(_, names)| names[0]).collect();
            return Err(format!("unknown kind {kind:?}: pass one of {}", names.join(", ")));
        };
        Ok(Reference { kind, resource, name: name.into(), text: text.to_owned() })
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
    match name.contains(',') {
        true => Err("separate the nodes with spaces".to_owned()),
        false => Ok(name.to_owned()),
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
    /// The controller itself, if it is in the input.
    pub(super) controller: Option<&'c PodController>,
    /// The pods, with the nodes of those that are placed, in the order of their names.
    pub(super) pods: Vec<Pod>,
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
        let mut found: BTreeMap<Name, (Option<&'c PodController>, Vec<Pod>)> = BTreeMap::new();
        let mut names: BTreeSet<Name> = BTreeSet::new();
        let is_wanted = |namespace: &Name| self.namespace.is_none_or(|it| it == &**namespace);
        for controller in self.controllers {
            if controller.kind.as_str() == reference.kind && is_wanted(&controller.namespace) {
                names.insert(controller.name.clone());
                if controller.name == reference.name {
                    found.entry(controller.namespace.clone()).or_default().0 = Some(controller);
                }
            }
        }
        let mut consider = |template: &Template, pod: &str, make: &dyn Fn() -> Pod| {
            if !is_wanted(&template.namespace) {
                return;
            }
            let Some(name) = self.name_of(reference.kind, template, pod) else { return };
            if *name == *reference.name {
                found.entry(template.namespace.clone()).or_default().1.push(make());
            }
            names.insert(name);
        };
        for info in cluster.nodes().flat_map(|node| node.pods()) {
            consider(info.template(), info.name(), &|| info.to_pod());
        }
        for pod in record.waiting().chain(record.uncreated()) {
            consider(&pod.template, &pod.name, &|| Pod { node_name: None, ..pod.clone() });
        }
        let text = &reference.text;
        if found.len() > 1 {
            let namespaces: Vec<&str> = found.keys().map(|namespace| &**namespace).collect();
            return Err(Failure::Usage(format!(
                "{option} {text}: found in the namespaces {}: pass --namespace",
                namespaces.join(", ")
            )));
        }
        match found.pop_first() {
            Some((namespace, (controller, mut pods))) => {
                pods.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(Target { namespace, controller, pods })
            }
            None => Err(self.not_found(option, reference, &names)),
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
