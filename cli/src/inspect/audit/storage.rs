//! Findings about volumes, claims and disruption budgets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use portolan::Framework;
use portolan::cache::Cluster;
use portolan::model::{Name, PersistentVolumeClaim, Pod, PodSpec, Template, VolumeSource};
use portolan::plugin::{Cycle, CycleState, Point};
use portolan_k8s::BudgetLimit;

use super::finding::{Findings, Kind};
use super::nodes::Placed;
use super::placement::by_template;
use crate::error::CommandError;
use crate::text::first_names;

/// Claims and the volumes that they name. O(claims + volumes).
pub(super) fn check_claims(cluster: &Cluster, pods: &[Pod], findings: &mut Findings) {
    let objects = cluster.objects();
    let (claims, volumes) = (&objects.persistent_volume_claims, &objects.persistent_volumes);
    let mut users: BTreeMap<&Name, BTreeSet<String>> = BTreeMap::new();
    for claim in claims.iter() {
        let key = format!("{}/{}", claim.namespace, claim.name);
        // The files may have been fetched without volumes.
        let is_missing = !volumes.is_empty() && volumes.get("", &claim.volume).is_none();
        if !claim.volume.is_empty() && (is_missing || claim.is_lost) {
            let problem = format!(
                "names volume {}, which does not exist: its pods cannot start",
                claim.volume
            );
            findings.add(Kind::MissingVolume, format!("claim {key}"), problem);
        } else if !claim.volume.is_empty() {
            users.entry(&claim.volume).or_default().insert(key);
        }
    }
    for volume in volumes.iter() {
        if let (Some(of), Some(users)) = (&volume.claim, users.get_mut(&volume.name)) {
            users.insert(format!("{}/{}", of.namespace, of.name));
        }
    }
    for (volume, claims) in users.into_iter().filter(|(_, claims)| claims.len() > 1) {
        let problem = format!(
            "{} claims name it ({}): it is bound to one only",
            claims.len(),
            first_names(&claims)
        );
        findings.add(Kind::SharedVolume, format!("volume {volume}"), problem);
    }
    // The files may have been fetched without claims.
    for pod in pods.iter().filter(|_| !claims.is_empty()) {
        for claim in pod.template.claims().filter(|it| claims.get(pod.namespace(), it).is_none()) {
            let problem = format!("claim {claim} does not exist: the pod cannot start");
            findings.add_pod(Kind::MissingClaim, pod, pod.node_name.as_deref(), problem);
        }
    }
}

/// The plugins that check the volumes of a pod.
const PLUGINS: [&str; 3] = ["VolumeRestrictions", "VolumeBinding", "VolumeZone"];

/// The volumes of placed pods, each evaluated on the pod's node as if the pod were not there. O(volumes × log n).
pub(super) fn check_volumes(
    cluster: &Cluster,
    placed: &[Placed<'_>],
    findings: &mut Findings,
) -> Result<(), CommandError> {
    let framework = Framework::default_profile()
        .with_plugins_at(Point::PreFilter, &PLUGINS)
        .and_then(|framework| framework.with_plugins_at(Point::Filter, &PLUGINS))
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    let mut shared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (pod, info) in placed {
        let node = info.node().name();
        let on = |kind, problem: String, findings: &mut Findings| {
            findings.add_pod(kind, pod, Some(node), problem);
        };
        let volumes = pod.template.volumes.iter().filter(|_| info.node().node().is_some());
        for volume in volumes {
            let claim = volume.claim(&pod.name);
            let claim = claim.and_then(|it| {
                cluster.objects().persistent_volume_claims.get(pod.namespace(), &it)
            });
            for plugin in rejections(&framework, cluster, (pod, node), volume) {
                match (plugin, claim) {
                    ("VolumeRestrictions", None) => {
                        let problem =
                            "a disk of the pod is also mounted by another pod of the node";
                        on(Kind::SharedDisk, problem.to_owned(), findings);
                    }
                    ("VolumeRestrictions", Some(claim)) => {
                        let claim = format!("claim {}/{}", claim.namespace, claim.name);
                        shared.entry(claim).or_default().insert(pod.key().to_string());
                    }
                    // A claim that is not bound, or whose volume does not exist, has another finding.
                    (_, Some(claim)) if has_volume(cluster, claim) => {
                        let problem = format!(
                            "volume {} (claim {}) is not accessible from the node: the pod cannot start",
                            claim.volume, claim.name
                        );
                        on(Kind::UnreachableVolume, problem, findings);
                    }
                    _ => {}
                }
            }
        }
    }
    for (claim, pods) in shared {
        let problem = format!(
            "is ReadWriteOncePod, but {} pods use it ({}): only one can start",
            pods.len(),
            first_names(&pods)
        );
        findings.add(Kind::SharedClaim, claim, problem).pods = pods;
    }
    Ok(())
}

fn has_volume(cluster: &Cluster, claim: &PersistentVolumeClaim) -> bool {
    let volumes = &cluster.objects().persistent_volumes;
    claim.is_bound && volumes.get("", &claim.volume).is_some()
}

/// The plugins that reject the node for the pod with this volume only, in a cluster without the pod. None if PreFilter
/// rejects the pod, which does not depend on the node.
fn rejections(
    framework: &Framework,
    cluster: &Cluster,
    (pod, node): (&Pod, &Name),
    volume: &VolumeSource,
) -> Vec<&'static str> {
    let (namespace, volumes) = (pod.namespace().clone(), [volume.clone()].into());
    let spec = PodSpec { namespace, volumes, ..PodSpec::default() };
    let one = Pod { template: Template::new(spec), ..pod.clone() };
    let (mut fork, state) = (cluster.fork(), CycleState::default());
    if fork.remove_pod(&pod.uid).is_err() {
        return Vec::new();
    }
    let filters = framework.pre_filter(Cycle::new(&fork, &one, &state));
    let Some(node) = fork.node(node).filter(|_| filters.rejected().is_none()) else {
        return Vec::new();
    };
    filters.filter_all(node).into_iter().map(|status| status.plugin).collect()
}

/// Budgets that select the same pod, and those that select none. O(templates × budgets of their namespace).
pub(super) fn check_budgets(limits: &[BudgetLimit], pods: &[Pod], findings: &mut Findings) {
    let mut budgets: HashMap<&Name, Vec<(&BudgetLimit, bool)>> = HashMap::new();
    for limit in limits {
        budgets.entry(&limit.namespace).or_default().push((limit, false));
    }
    for pods in by_template(pods.iter(), |pod| &pod.template) {
        let Some(first) = pods.first() else { continue };
        let Some(budgets) = budgets.get_mut(first.namespace()) else { continue };
        let mut of_pods: BTreeSet<String> = BTreeSet::new();
        for (limit, is_used) in budgets {
            if limit.selector.matches(&first.template.labels) {
                *is_used = true;
                of_pods.insert(limit.name.to_string());
            }
        }
        if of_pods.len() > 1 {
            let problem = format!(
                "{} budgets select the pod ({}): the API server refuses its eviction",
                of_pods.len(),
                first_names(&of_pods)
            );
            for pod in pods.iter().filter(|pod| pod.node_name.is_some()) {
                findings.add_pod(Kind::TwoBudgets, pod, None, &*problem);
            }
        }
    }
    for (limit, _) in budgets.into_values().flatten().filter(|(_, is_used)| !is_used) {
        let subject = format!("budget {}/{}", limit.namespace, limit.name);
        findings.add(Kind::EmptyBudget, subject, "selects no pods, so it protects none");
    }
}
