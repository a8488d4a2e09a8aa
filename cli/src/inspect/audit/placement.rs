//! Findings about rules that placed pods violate on their nodes. Pods are allowed to drift: the rules hold when a pod
//! is scheduled, except that a taint with effect NoExecute evicts pods.
//!
//! Each pod is evaluated by the filters of its profile on its own node, in a fork without the pod. The forks are those
//! of a cluster with only the data that these filters read: the pods of a StatefulSet, which have labels and claims of
//! their own, are then equal, and equal pods share the counts from which a pod is subtracted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{Cluster, Config, Engine, NodeInfo, Writer};
use portolan::model::{
    LabelSelector, Name, Object, Pod, PodAffinityTerm, PodSpec, Taint, TaintEffect, Template,
    Workload,
};
use portolan::plugin::{Cycle, CycleState, Filter, Point, PreFilter, Status};

use super::finding::{Findings, Kind};
use super::nodes::Placed;
use crate::cluster::Godel;
use crate::pod_list::PodList;
use crate::policy::{Policies, Profile};

/// The rules of placed pods: the plugins of the profiles.
pub(super) struct Rules {
    profiles: Vec<Profile>,
    /// Whether the only profile applies to all pods.
    are_for_all: bool,
}

/// A plugin, and the parts of a pod that its filter reads; `None` if the pod has no such rules.
type Reading = (&'static str, fn(&PodSpec) -> Option<PodSpec>);

const PLUGINS: [Reading; 3] = [
    ("NodeAffinity", |of| {
        let is_anywhere = of.node_selector.is_empty() && of.node_affinity.is_none();
        (!is_anywhere).then(|| PodSpec {
            node_selector: of.node_selector.clone(),
            node_affinity: of.node_affinity.clone(),
            ..PodSpec::default()
        })
    }),
    ("InterPodAffinity", |of| {
        Some(PodSpec {
            namespace: of.namespace.clone(),
            labels: of.labels.clone(),
            pod_affinity: of.pod_affinity.clone(),
            pod_anti_affinity: of.pod_anti_affinity.clone(),
            ..PodSpec::default()
        })
    }),
    ("PodTopologySpread", |of| {
        Some(PodSpec {
            namespace: of.namespace.clone(),
            labels: of.labels.clone(),
            topology_spread: of.topology_spread.clone(),
            node_selector: of.node_selector.clone(),
            node_affinity: of.node_affinity.clone(),
            tolerations: of.tolerations.clone(),
            // For default constraints.
            owners: of.owners.clone(),
            ..PodSpec::default()
        })
    }),
];

impl Rules {
    pub(super) fn new(policies: Policies, godel: &Godel) -> Rules {
        let are_for_all = policies.are_for_all(godel);
        Rules { profiles: policies.profiles, are_for_all }
    }

    /// The profile of the pod; the first one for pods of other schedulers.
    fn profile(&self, pod: &Pod) -> Option<usize> {
        let profiles = &self.profiles;
        let own = profiles.iter().position(|it| it.scheduler_name == pod.scheduler_name());
        own.or_else(|| (!profiles.is_empty()).then_some(0))
    }

    /// Pending pods that no profile schedules.
    pub(super) fn check_profiles(&self, pending: &PodList, findings: &mut Findings) {
        let has = |pod: &Pod| {
            let mut profiles = self.profiles.iter();
            self.are_for_all || profiles.any(|it| it.scheduler_name == pod.scheduler_name())
        };
        for pod in pending.iter().filter(|pod| !has(pod)) {
            let name = pod.scheduler_name();
            let problem =
                format!("waits for the scheduler {name:?}, for which there is no profile");
            findings.add_pod(Kind::NoProfile, pod, None, problem);
        }
    }

    /// Rules that placed pods violate. O(pods), and O(equal pods) for each set of rules that counts pods.
    pub(super) fn check(&self, cluster: &Cluster, placed: &[Placed<'_>], findings: &mut Findings) {
        let (writer, stripped) = strip(cluster, placed);
        let cluster = writer.cluster();
        let mut groups: HashMap<(usize, &str, Arc<Template>), Vec<Stripped<'_>>> = HashMap::new();
        // A terminating pod is leaving, and a ghost has no labels or taints.
        let placed = placed.iter().zip(&stripped).filter_map(|((pod, _), stripped)| {
            let node = cluster.pod(&pod.uid)?.node();
            (pod.deletion_time.is_none() && node.node().is_some()).then_some((*pod, stripped, node))
        });
        for pods in by_template(placed, |(_, stripped, _)| &stripped.template) {
            pods.iter().for_each(|(pod, _, node)| check_taints(pod, *node, findings));
            let Some((_, first, _)) = pods.first() else { continue };
            let Some(profile) = self.profile(first) else { continue };
            for (plugin, read) in PLUGINS {
                if let Some(spec) = read(&first.template) {
                    let group = groups.entry((profile, plugin, Template::new(spec))).or_default();
                    group.extend(&pods);
                }
            }
        }
        for ((profile, plugin, template), pods) in groups {
            check_group(&self.profiles[profile], (plugin, template), cluster, &pods, findings);
        }
    }
}

/// A pod, its stripped copy, and its node in the stripped cluster.
type Stripped<'a> = (&'a Pod, &'a Pod, NodeInfo<'a>);

/// A cluster with only the data that the plugins read, and its pods in the same order.
fn strip(cluster: &Cluster, placed: &[Placed<'_>]) -> (Writer, Vec<Pod>) {
    let selected = selected_keys(cluster, placed.iter().map(|(pod, _)| &*pod.template));
    let mut known: HashMap<*const Template, Arc<Template>> = HashMap::new();
    let mut shared: HashSet<Arc<Template>> = HashSet::new();
    let pods = placed.iter().map(|(pod, info)| {
        let template = known.entry(Arc::as_ptr(&pod.template)).or_insert_with(|| {
            let of: &PodSpec = &pod.template;
            let labels = of.labels.iter().filter(|(key, _)| selected.contains(*key));
            let template = Template::new(PodSpec {
                namespace: of.namespace.clone(),
                labels: labels.collect(),
                node_selector: of.node_selector.clone(),
                node_affinity: of.node_affinity.clone(),
                pod_affinity: of.pod_affinity.clone(),
                pod_anti_affinity: of.pod_anti_affinity.clone(),
                tolerations: of.tolerations.clone(),
                topology_spread: of.topology_spread.clone(),
                owners: of.owners.clone(),
                scheduler_name: of.scheduler_name.clone(),
                ..PodSpec::default()
            });
            match shared.get(&template) {
                Some(known) => known.clone(),
                None => {
                    shared.insert(template.clone());
                    template
                }
            }
        });
        Pod { template: template.clone(), ..Pod::clone(pod) }.on(info.node().name().clone())
    });
    let pods: Vec<Pod> = pods.collect();
    let objects = cluster.objects();
    let objects = (objects.namespaces.iter().cloned().map(Object::from))
        .chain(objects.services.iter().cloned().map(Object::from))
        .chain(workloads(cluster).cloned().map(Object::from));
    let nodes = cluster.nodes().filter_map(|node| node.node().cloned());
    let (mut writer, _) = Engine::inline(Config::default());
    // The cluster has accepted these objects, so that none is refused.
    writer.load(objects, nodes, pods.iter().cloned());
    writer.publish();
    (writer, pods)
}

/// The workloads that own pods directly.
fn workloads(cluster: &Cluster) -> impl Iterator<Item = &Arc<Workload>> {
    let objects = cluster.objects();
    let sets = objects.replica_sets.iter().chain(objects.stateful_sets.iter());
    sets.chain(objects.replication_controllers.iter())
}

/// The label keys of pods that a selector reads: of pods, and for default spread constraints of services and workloads.
fn selected_keys<'t>(
    cluster: &Cluster,
    templates: impl Iterator<Item = &'t Template>,
) -> HashSet<String> {
    let mut seen: HashSet<*const Template> = HashSet::new();
    let templates = templates.filter(|template| seen.insert(std::ptr::from_ref(*template)));
    let mut keys = HashSet::new();
    let mut add = |selector: &LabelSelector| {
        if let LabelSelector::All(all) = selector {
            keys.extend(all.iter().map(|requirement| requirement.key.to_string()));
        }
    };
    let mut further: Vec<Name> = Vec::new();
    for template in templates {
        let rules = template.pod_affinity.iter().chain(&template.pod_anti_affinity);
        let terms = rules.flat_map(|affinity| affinity.required.iter());
        terms.for_each(|term: &PodAffinityTerm| add(&term.selector));
        for constraint in &template.topology_spread {
            add(&constraint.selector);
            further.extend(constraint.match_label_keys.iter().cloned());
        }
    }
    workloads(cluster).for_each(|workload| add(&workload.selector));
    keys.extend(further.iter().map(ToString::to_string));
    let services = cluster.objects().services.iter().flat_map(|service| service.selector.iter());
    keys.extend(services.map(|(key, _)| key.to_owned()));
    keys
}

/// Evaluates pods for which the plugin reads the same template.
fn check_group(
    profile: &Profile,
    (plugin, template): (&str, Arc<Template>),
    cluster: &Cluster,
    pods: &[Stripped<'_>],
    findings: &mut Findings,
) {
    let mut enabled = profile.framework.plugins_at(Point::Filter);
    let Some((plugin, _)) = enabled.find(|(enabled, _)| enabled.info().name() == plugin) else {
        return;
    };
    let Some((_, first, _)) = pods.first() else { return };
    let (like, state) = (Pod { template, ..Pod::clone(first) }, CycleState::default());
    let filter = match plugin.pre_filter(Cycle::new(cluster, &like, &state)) {
        Ok(PreFilter::Filter(filter) | PreFilter::Only(_, filter)) => filter,
        // The pods have no rules, or rules that the plugin does not support.
        Ok(PreFilter::Skip) | Err(_) => return,
    };
    for (pod, stripped, node) in pods {
        let status = match filter.extend() {
            Some(counts) => without_pod(counts, cluster, stripped, *node),
            None => filter.filter(*node),
        };
        if let Some(status) = status.filter(|status| status.code.is_rejection()) {
            report(&status, pod, *node, findings);
        }
    }
}

/// The verdict on the pod's node in a cluster without the pod.
fn without_pod(
    mut counts: Box<dyn Filter + '_>,
    cluster: &Cluster,
    pod: &Pod,
    node: NodeInfo<'_>,
) -> Option<Status> {
    let mut fork = cluster.fork();
    fork.remove_pod(&pod.uid).ok()?;
    let node = fork.node(node.name())?;
    match counts.remove_pod(pod, node) {
        Ok(()) => counts.filter(node),
        Err(status) => Some(status),
    }
}

/// Reports a rule that a filter found violated.
fn report(status: &Status, pod: &Pod, node: NodeInfo<'_>, findings: &mut Findings) {
    let reason = status.reasons.join(", ");
    let kind = match status.plugin {
        "NodeAffinity" => Kind::NodeAffinity,
        "PodTopologySpread" => Kind::TopologySpread,
        _ if reason.contains("anti-affinity") => Kind::PodAntiAffinity,
        _ => Kind::PodAffinity,
    };
    let problem = format!("a scheduler would not place it there again: {reason}");
    findings.add_pod(kind, pod, Some(node.name()), problem);
}

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
            // Pods stay on a cordoned node on purpose.
            TaintEffect::NoSchedule if *taint.key != *Taint::UNSCHEDULABLE => (
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
