//! Findings about rules that placed pods violate on their nodes. Pods are allowed to drift: the rules hold when a pod is
//! scheduled, except that a taint with effect NoExecute evicts pods.
//!
//! Each pod is evaluated by the filters of its profile on its own node, as if it were not there. The pods of a template
//! share the counts of spread constraints and affinity: a pod is taken out of the counts and put back.

use std::collections::HashMap;
use std::sync::Arc;

use portolan::framework::{Cycle, CycleState, Filters, Framework, Point, Status};
use portolan::model::{Pod, TaintEffect, Template};
use portolan::{Cluster, NodeInfo};

use super::finding::{Findings, Kind};
use super::nodes::Placed;
use crate::error::Failure;
use crate::policy::{Policies, Profile};

/// The plugins whose rules pods may violate. NodeAffinity is last: its PreFilter may end the others.
const PLUGINS: [&str; 3] = ["PodTopologySpread", "InterPodAffinity", "NodeAffinity"];

/// The frameworks of the profiles, reduced to these plugins.
pub(super) struct Rules {
    profiles: Vec<(String, Framework)>,
    is_for_all: bool,
}

impl Rules {
    pub(super) fn new(policies: Policies) -> Result<Rules, Failure> {
        let reduced = |profile: Profile| {
            let Profile { framework, scheduler_name, .. } = profile;
            let enabled = framework.plugins_at(Point::Filter).map(|(plugin, _)| plugin.name());
            let enabled: Vec<&str> = enabled.collect();
            let plugins: Vec<&str> =
                PLUGINS.into_iter().filter(|plugin| enabled.contains(plugin)).collect();
            let framework = framework
                .with_plugins_at(Point::PreFilter, &plugins)
                .and_then(|framework| framework.with_plugins_at(Point::Filter, &plugins))
                .map_err(|error| Failure::Usage(error.to_string()))?;
            Ok((scheduler_name, framework))
        };
        let profiles =
            policies.profiles.into_iter().map(reduced).collect::<Result<_, Failure>>()?;
        Ok(Rules { profiles, is_for_all: policies.is_for_all })
    }

    /// Whether a profile schedules the pod.
    fn has(&self, pod: &Pod) -> bool {
        self.is_for_all || self.profiles.iter().any(|(name, _)| *name == pod.scheduler_name())
    }

    /// The framework of the pod's profile; that of the first profile for pods of other schedulers.
    fn framework(&self, pod: &Pod) -> Option<&Framework> {
        let own = self.profiles.iter().find(|(name, _)| *name == pod.scheduler_name());
        own.or(self.profiles.first()).map(|(_, framework)| framework)
    }

    /// Pending pods that no profile schedules.
    pub(super) fn check_profiles(&self, pending: &[Pod], findings: &mut Findings) {
        for pod in pending.iter().filter(|pod| !self.has(pod)) {
            let name = pod.scheduler_name();
            let problem =
                format!("waits for the scheduler {name:?}, for which there is no profile");
            findings.add_pod(Kind::NoProfile, pod, None, problem);
        }
    }

    /// Rules that placed pods violate. O(pods), plus O(nodes) for each template with such rules.
    pub(super) fn check(&self, cluster: &Cluster, placed: &[Placed<'_>], findings: &mut Findings) {
        // A terminating pod is leaving, and a ghost has no labels or taints.
        let stays =
            |(pod, info): &Placed<'_>| pod.deletion_time.is_none() && info.node().node().is_some();
        let stays = placed.iter().copied().filter(stays);
        for pods in by_template(stays, |(pod, _)| &pod.template) {
            let Some((first, _)) = pods.first() else { continue };
            let Some(framework) = self.framework(first) else { continue };
            let state = CycleState::default();
            let filters = framework.pre_filter(Cycle::new(cluster, first, &state));
            let mut without = filters.extend();
            for (pod, info) in &pods {
                let node = info.node();
                check_taints(pod, node, findings);
                let rejections = match filters.are_local() {
                    true => filters.filter_all(node),
                    false => without_pod(&mut without, cluster, pod, node),
                };
                let named =
                    filters.rejected().into_iter().filter(|status| status.code.is_rejection());
                for status in named.chain(&rejections) {
                    report(status, pod, node, findings);
                }
            }
        }
    }
}

/// The verdicts on the pod's node in a cluster without the pod.
fn without_pod(
    filters: &mut Filters<'_>,
    cluster: &Cluster,
    pod: &Pod,
    node: NodeInfo<'_>,
) -> Vec<Status> {
    let mut fork = cluster.fork();
    if fork.remove_pod(&pod.uid).is_err() {
        return Vec::new();
    }
    let Some(left) = fork.node(node.name()) else { return Vec::new() };
    let verdicts = filters.remove_pod(pod, left).map(|()| filters.filter_all(left));
    let restored = filters.add_pod(pod, left);
    restored.and(verdicts).unwrap_or_default()
}

/// Reports a rule that a filter found violated.
fn report(status: &Status, pod: &Pod, node: NodeInfo<'_>, findings: &mut Findings) {
    let reason = status.reasons.join(", ");
    let kind = match status.plugin {
        _ if !status.code.is_rejection() => return,
        "PodTopologySpread" => Kind::TopologySpread,
        "InterPodAffinity" if reason.contains("anti-affinity") => Kind::PodAntiAffinity,
        "InterPodAffinity" => Kind::PodAffinity,
        _ => Kind::NodeAffinity,
    };
    let problem = format!("a scheduler would not place it there again: {reason}");
    findings.add_pod(kind, pod, Some(node.name()), problem);
}

/// The taint of a cordoned node, on which pods stay on purpose.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

fn check_taints(pod: &Pod, node: NodeInfo<'_>, findings: &mut Findings) {
    let taints = node.node().map_or(&[][..], |node| &node.taints);
    for taint in taints {
        if pod.template.tolerations.iter().any(|it| it.tolerates(taint)) {
            continue;
        }
        let name = match &*taint.value {
            "" => taint.key.to_string(),
            value => format!("{}={value}", taint.key),
        };
        let (kind, problem) = match taint.effect {
            TaintEffect::NoExecute => (
                Kind::NoExecuteTaint,
                format!(
                    "taint {name}:NoExecute is not tolerated: the taint manager evicts the pod"
                ),
            ),
            TaintEffect::NoSchedule if *taint.key != *CORDONED => (
                Kind::NoScheduleTaint,
                format!(
                    "a scheduler would not place it there again: taint {name}:NoSchedule is not tolerated"
                ),
            ),
            _ => continue,
        };
        findings.add_pod(kind, pod, Some(node.name()), problem);
    }
}

/// The pods of each template.
pub(super) fn by_template<T>(
    pods: impl Iterator<Item = T>,
    template: impl Fn(&T) -> &Arc<Template>,
) -> impl Iterator<Item = Vec<T>> {
    let mut groups: HashMap<*const Template, Vec<T>> = HashMap::new();
    for pod in pods {
        groups.entry(Arc::as_ptr(template(&pod))).or_default().push(pod);
    }
    groups.into_values()
}
