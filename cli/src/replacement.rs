//! What becomes of a pod that ends: whether its controller creates another pod in its stead, and when.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use portolan::model::{Name, NonZero, Pod, PodResources, PodSpec, Template};
use portolan_k8s::{ControllerKind, Job, PodController, Scaled, Scales};

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
#[derive(Clone)]
pub(crate) struct Replacements {
    /// The desired numbers of pods.
    pub(crate) scales: Arc<Scales>,
    /// The ordinals of the stateful sets in the input, by namespace and name.
    ordinals: HashMap<(Name, Name), Range<usize>>,
    /// The controllers that were deleted.
    removed: HashSet<Scaled>,
    /// The jobs in the input, by namespace and name.
    jobs: HashMap<(Name, Name), RunningJob>,
    /// The jobs that have failed since [`Replacements::take_failed`].
    failed: Vec<(Name, Name)>,
}

/// A job, and how often its pods have failed.
#[derive(Clone)]
struct RunningJob {
    job: Job,
    has_failed: bool,
    of_index: HashMap<usize, u64>,
}

impl RunningJob {
    /// Counts a pod that was disrupted (job_controller.go `syncJob`). Returns why no other pod replaces it, if none
    /// does.
    fn disrupted(&mut self, index: Option<usize>) -> Option<&'static str> {
        if self.job.fails_on_disruption {
            self.has_failed = true;
            return Some("the Job fails: podFailurePolicy");
        }
        if self.job.ignores_disruptions {
            return None;
        }
        if let (Some(limit), Some(index)) = (self.job.backoff_limit_per_index, index) {
            let failed = self.of_index.entry(index).or_default();
            *failed += 1;
            if *failed > limit {
                return Some("the index of the Job fails: backoffLimitPerIndex is reached");
            }
        }
        self.job.failed += 1;
        self.has_failed = self.job.failed > self.job.backoff_limit;
        self.has_failed.then_some("the Job fails: backoffLimit is reached")
    }
}

impl Replacements {
    pub(crate) fn new(controllers: &[PodController], scales: Arc<Scales>) -> Replacements {
        let sets = controllers.iter().filter(|it| it.kind == ControllerKind::StatefulSet);
        let sets = sets.map(|it| ((it.namespace.clone(), it.name.clone()), it.ordinals()));
        let jobs = controllers.iter().filter(|it| it.kind == ControllerKind::Job);
        let jobs = jobs.filter_map(|it| {
            let job =
                RunningJob { job: it.job.clone()?, has_failed: false, of_index: HashMap::new() };
            Some(((it.namespace.clone(), it.name.clone()), job))
        });
        Replacements {
            scales,
            ordinals: sets.collect(),
            removed: HashSet::new(),
            jobs: jobs.collect(),
            failed: Vec::new(),
        }
    }

    /// Changes the number of pods of a controller.
    pub(crate) fn scale(&mut self, kind: &str, namespace: &Name, name: &Name, replicas: usize) {
        Arc::make_mut(&mut self.scales).set(kind, namespace, name, replicas);
        if kind == "StatefulSet" {
            let known = self.ordinals.entry((namespace.clone(), name.clone())).or_default();
            *known = known.start..known.start.saturating_add(replicas);
        }
    }

    /// Deletes a controller.
    pub(crate) fn remove(&mut self, kind: &str, namespace: &Name, name: &Name) {
        self.removed.insert((kind.into(), namespace.clone(), name.clone()));
    }

    /// Counts a pod that was disrupted as a failure of its job. Returns when the controller of the pod replaces it.
    pub(crate) fn disrupted(&mut self, pod: &Pod) -> Replacement {
        let replacement = self.of(pod);
        let owner = pod.template.controller();
        let Some(owner) = owner.filter(|owner| &*owner.kind == "Job") else { return replacement };
        let key = (pod.namespace().clone(), owner.name.clone());
        let Some(job) = self.jobs.get_mut(&key).filter(|_| replacement == Replacement::AtOnce)
        else {
            return replacement;
        };
        let index = pod.template.labels.get("batch.kubernetes.io/job-completion-index");
        let why = job.disrupted(index.and_then(|index| index.parse().ok()));
        if job.has_failed {
            self.failed.push(key);
        }
        why.map_or(replacement, Replacement::Never)
    }

    /// The jobs that have failed since the last call, by namespace and name.
    pub(crate) fn take_failed(&mut self) -> Vec<(Name, Name)> {
        std::mem::take(&mut self.failed)
    }

    /// When the controller of the pod replaces it.
    pub(crate) fn of(&self, pod: &Pod) -> Replacement {
        let template = &pod.template;
        let Some(owner) = template.controller() else {
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
            "Job" => match self.jobs.get(&(template.namespace.clone(), owner.name.clone())) {
                Some(job) if job.has_failed => Replacement::Never("its Job has failed"),
                Some(job) if job.job.remaining == 0 => {
                    Replacement::Never("its Job is suspended or has finished")
                }
                _ => Replacement::AtOnce,
            },
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
    pod.template.controller().is_none()
}

/// Whether the pod ends with its node: it is of a daemon set, or a mirror pod.
pub(crate) fn is_of_node(template: &Template) -> bool {
    let owner = template.controller();
    matches!(owner.map(|owner| &*owner.kind), Some("DaemonSet" | "Node"))
}

/// The pod as its controller creates it again.
pub(crate) fn recreated(pod: Pod) -> Pod {
    Pod {
        node_name: None,
        nominated_node_name: None,
        start_time: None,
        deletion_time: None,
        // The claims of the old pod are deleted with it.
        claim_statuses: None,
        template: not_resized(pod.template),
        ..pod
    }
}

/// The template without the status of a resize, which no new pod has.
fn not_resized(template: Arc<Template>) -> Arc<Template> {
    let PodResources { placed, incoming, scored, .. } = &template.resources;
    if placed == incoming {
        return template;
    }
    // The requests that are scored have the defaults, too, but none of the pod as a whole.
    let (cpu, memory) = (incoming.cpu.max(scored.cpu), incoming.memory.max(scored.memory));
    let mut spec = PodSpec::clone(&template);
    spec.resources.placed = incoming.clone();
    spec.resources.placed_non_zero = NonZero { cpu, memory };
    Template::new(spec)
}
