//! Findings: their kinds, severities and remedies. Findings about pods of one controller that differ only in pod and
//! node are one finding.

use std::collections::{BTreeMap, BTreeSet};

use portolan::model::Pod;

use crate::text::{count, first_names};

/// The consequence of a finding. `docs/cli.md` defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Nothing follows for running pods.
    Info,
    /// Pods keep running, but a scheduler would not place them so again, or a later request is refused.
    Warning,
    /// A pod cannot run or will be deleted, or requests are refused now.
    Error,
}

impl Severity {
    pub(super) const ALL: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Info];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

macro_rules! kinds {
    ($($kind:ident $name:literal $severity:ident $remedy:literal;)*) => {
        /// What is wrong. Findings of one severity are listed in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind {
            $($kind,)*
        }

        impl Kind {
            #[cfg(test)]
            pub(super) const ALL: &[Kind] = &[$(Kind::$kind,)*];

            pub(super) fn as_str(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            pub(super) fn severity(self) -> Severity {
                match self { $(Kind::$kind => Severity::$severity,)* }
            }

            pub(super) fn remedy(self) -> &'static str {
                match self { $(Kind::$kind => $remedy,)* }
            }
        }
    };
}

kinds! {
    Duplicate "duplicate" Error "pass each object once";
    Overcommitted "overcommitted" Error "move pods to other nodes, or lower their requests";
    HostPort "host-port" Error "change the port, or move a pod to another node";
    MissingNode "missing-node" Error "delete its pods";
    MissingOwner "missing-owner" Error "remove or correct the owner reference";
    MissingClaim "missing-claim" Error "create the claim";
    MissingVolume "missing-volume" Error "restore the volume, or delete the claim";
    MissingStorageClass "missing-storage-class" Error "create the class, or correct its name";
    SharedVolume "shared-volume" Error "give each claim a volume of its own";
    SharedClaim "shared-claim" Error "delete all pods but one";
    UnreachableVolume "unreachable-volume" Error "delete the pod, so that it is placed near its volume";
    SharedDisk "shared-disk" Error "move a pod to another node";
    SharedDevice "shared-device" Error "delete all claims but one, with their pods";
    NoExecuteTaint "no-execute-taint" Error "add a toleration, or remove the taint";
    TwoBudgets "two-budgets" Error "change the selectors, so that one budget selects the pod";
    MissingPodGroup "missing-pod-group" Error "create the pod group";
    InvalidState "invalid-state" Error "correct the annotations";
    Engine "engine" Error "report a bug";
    DeletedNode "deleted-node" Warning "drain the node";
    NoAllocatable "no-allocatable" Warning "check the kubelet of the node";
    NodeAffinity "node-affinity" Warning "delete the pod, or correct the node's labels";
    PodAffinity "pod-affinity" Warning "delete the pod, so that it is placed again";
    PodAntiAffinity "pod-anti-affinity" Warning "delete the pod, so that it is placed again";
    TopologySpread "topology-spread" Warning "delete a pod of the largest domain, so that it is placed again";
    NoScheduleTaint "no-schedule-taint" Warning "add a toleration, or delete the pod";
    Terminating "terminating" Warning "check its finalizers and the kubelet of its node";
    NoProfile "no-profile" Warning "correct schedulerName, or run such a scheduler";
    MissingPriorityClass "missing-priority-class" Warning "create the class, or correct its name";
    MissingRuntimeClass "missing-runtime-class" Warning "create the class, or correct its name";
    EmptyBudget "empty-budget" Warning "correct the selector, or delete the budget";
    MissingReservedNode "missing-reserved-node" Warning "delete the object";
    ExcessMovement "excess-movement" Warning "correct the Movement";
    IncompletePool "incomplete-pool" Warning "check the driver of the pool";
    MissingDevice "missing-device" Warning "check the driver of the pool";
    MissingConsumer "missing-consumer" Warning "check that kube-controller-manager runs";
    NominatedNode "nominated-node" Info "none is needed";
    UnconfirmedReservation "unconfirmed-reservation" Info "none is needed";
}

/// A finding about an object, or about pods of one controller.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// The affected object, or the pod or the controller of the pods.
    subject: String,
    /// Whether pods are affected, and not the subject itself.
    is_about_pods: bool,
    pub(super) problem: String,
    /// The affected pods.
    pub(super) pods: BTreeSet<String>,
    /// The nodes of the affected pods.
    pub(super) nodes: BTreeSet<String>,
}

impl Finding {
    /// The affected object or pods, and their nodes.
    pub(super) fn object(&self) -> String {
        let object = match (self.is_about_pods, self.pods.first()) {
            (true, Some(pod)) if self.pods.len() == 1 => format!("pod {pod}"),
            (true, _) => format!("{} of {}", count(self.pods.len(), "pod"), self.subject),
            (false, _) => self.subject.clone(),
        };
        match self.nodes.len() {
            0 => object,
            1 => format!("{object} on node {}", first_names(&self.nodes)),
            _ => format!("{object} on nodes {}", first_names(&self.nodes)),
        }
    }
}

/// All findings.
#[derive(Default)]
pub(super) struct Findings(BTreeMap<(Kind, String, String), Finding>);

impl Findings {
    /// Adds a finding about an object, unless it is known.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        subject: impl Into<String>,
        problem: impl Into<String>,
    ) -> &mut Finding {
        let (subject, problem) = (subject.into(), problem.into());
        let known = self.0.entry((kind, subject.clone(), problem.clone()));
        known.or_insert_with(|| Finding {
            kind,
            subject,
            problem,
            is_about_pods: false,
            pods: BTreeSet::new(),
            nodes: BTreeSet::new(),
        })
    }

    /// Adds a finding about a pod, together with those of its controller.
    pub(super) fn add_pod(
        &mut self,
        kind: Kind,
        pod: &Pod,
        node: Option<&str>,
        problem: impl Into<String>,
    ) {
        let owner = pod.template.controller();
        let subject = match owner {
            Some(owner) => format!("{} {}/{}", owner.kind, pod.namespace(), owner.name),
            None => format!("pod {}", pod.key()),
        };
        let finding = self.add(kind, subject, problem);
        finding.is_about_pods = true;
        finding.pods.insert(pod.key().to_string());
        finding.nodes.extend(node.map(str::to_owned));
    }

    /// The findings, the most severe first.
    pub(super) fn sorted(&self) -> Vec<&Finding> {
        let mut sorted: Vec<&Finding> = self.0.values().collect();
        sorted.sort_by_key(|finding| std::cmp::Reverse(finding.kind.severity()));
        sorted
    }

    pub(super) fn count(&self, severity: Severity) -> usize {
        self.0.values().filter(|finding| finding.kind.severity() == severity).count()
    }
}
