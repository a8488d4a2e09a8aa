//! What becomes of a pod that ends: whether its controller creates another pod in its stead, and when.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use portolan::model::{Name, Pod};
use portolan_k8s::{ControllerKind, PodController, Scaled, Scales};

/// When a pod that ends is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// As soon as the pod is being deleted.
    AtOnce,
    /// When the object of the pod is gone.
    WhenGone,
    /// Never, and why.
    Never(&'static str),
}

/// The controllers of a cluster, as far as they replace pods.
pub(crate) struct Replacements {
    /// The desired numbers of pods.
    pub(crate) scales: Scales,
    /// The ordinals of the stateful sets in the input, by namespace and name.
    ordinals: HashMap<(Name, Name), Range<usize>>,
    /// The controllers that were deleted.
    removed: HashSet<Scaled>,
}

impl Replacements {
    pub(crate) fn new(controllers: &[PodController]) -> Replacements {
        let sets = controllers.iter().filter(|it| it.kind == ControllerKind::StatefulSet);
        let sets = sets.map(|it| ((it.namespace.clone(), it.name.clone()), it.ordinals()));
        Replacements {
            scales: Scales::of(controllers),
            ordinals: sets.collect(),
            removed: HashSet::new(),
        }
    }

    /// Changes the number of pods of a controller.
    pub(crate) fn scale(&mut self, kind: &str, namespace: &Name, name: &Name, replicas: usize) {
        self.scales.set(kind, namespace, name, replicas);
        if kind == "StatefulSet" {
            let known = self.ordinals.entry((namespace.clone(), name.clone())).or_default();
            *known = known.start..known.start.saturating_add(replicas);
        }
    }

    /// Deletes a controller.
    pub(crate) fn remove(&mut self, kind: &str, namespace: &Name, name: &Name) {
        self.removed.insert((kind.into(), namespace.clone(), name.clone()));
    }

    /// When the controller of the pod replaces it.
    pub(crate) fn of(&self, pod: &Pod) -> Replacement {
        let template = &pod.template;
        let Some(owner) = template.owners.iter().find(|owner| owner.controller) else {
            return Replacement::Never("no controller");
        };
        if self.scales.scaled(template).is_some_and(|it| self.removed.contains(&it)) {
            return Replacement::Never("the controller is deleted");
        }
        match &*owner.kind {
            "Node" => Replacement::Never("a static pod runs on its own node only"),
            "StatefulSet" => {
                let ordinals = self.ordinals.get(&(template.namespace.clone(), owner.name.clone()));
                let is_one =
                    |of: &Range<usize>| ordinal(&pod.name).is_none_or(|it| of.contains(&it));
                match ordinals.is_none_or(is_one) {
                    true => Replacement::WhenGone,
                    false => Replacement::Never("the controller has fewer pods"),
                }
            }
            // The next pod has the name of the old one, or runs on its node.
            "DaemonSet" => Replacement::WhenGone,
            _ => Replacement::AtOnce,
        }
    }
}

/// The ordinal of a stateful set's pod.
pub(crate) fn ordinal(name: &str) -> Option<usize> {
    name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok())
}

/// Whether no controller would recreate the pod.
pub(crate) fn is_bare(pod: &Pod) -> bool {
    !pod.template.owners.iter().any(|owner| owner.controller)
}

/// The pod as its controller creates it again.
pub(crate) fn recreated(pod: Pod) -> Pod {
    Pod { node_name: None, nominated_node_name: None, start_time: None, deletion_time: None, ..pod }
}
