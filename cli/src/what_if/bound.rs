//! Added pods that name their node: the kubelet of the node runs them without a scheduler.

use portolan::cache::{Cluster, Event};
use portolan::model::{Name, Pod};
use portolan::plugin::{Cycle, CycleState};

use crate::error::CommandError;
use crate::text::count;

use crate::creation::unbound_claim;

use super::record::Record;
use super::world::World;

/// The plugins whose filters a kubelet applies to a pod before it runs it (`AdmissionCheck` in kube-scheduler's
/// scheduler.go).
const KUBELET: [&str; 3] = ["NodeResourcesFit", "NodeAffinity", "NodePorts"];

/// Places the pods that name a node of the cluster, and returns the others, which are scheduled. A note names the first
/// of those that name a node of another cluster.
pub(super) fn add(
    pods: Vec<Pod>,
    world: &mut World,
    notes: &mut Vec<String>,
) -> Result<Vec<Pod>, CommandError> {
    if pods.iter().all(|pod| node_of(pod).is_none()) {
        return Ok(pods);
    }
    let mut reader = world.reader()?;
    let mut free = Vec::new();
    let mut foreign = Vec::new();
    for pod in pods {
        let Some(node) = node_of(&pod) else {
            free.push(pod);
            continue;
        };
        let now = reader.refresh();
        if now.node(node).is_none() {
            foreign.push((pod.key(), node.clone()));
            free.push(pod);
            continue;
        }
        world.record.arrives(&pod, None);
        if let Some(why) = unbound_claim(&pod, now) {
            world.record.is_refused(&pod.uid, why);
            continue;
        }
        if let Some(why) = refused_by_kubelet(&pod, node, now, &world.record) {
            world.record.is_refused(&pod.uid, why);
            continue;
        }
        world.simulation.apply(&pod, Event::add_pod(pod.clone()))?;
        world.record.runs(&pod, node);
    }
    if let [(pod, node), others @ ..] = &*foreign {
        let others = match others.len() {
            0 => String::new(),
            more => format!(", as do {}", count(more, "other pod")),
        };
        notes.push(format!(
            "{pod} names a node that is not in the cluster ({node}){others}: nodeName is ignored"
        ));
    }
    Ok(free)
}

fn node_of(pod: &Pod) -> Option<&Name> {
    pod.node_name.as_ref().filter(|node| !node.is_empty())
}

/// Why the kubelet of the node would reject the pod.
fn refused_by_kubelet(pod: &Pod, node: &Name, now: &Cluster, record: &Record) -> Option<String> {
    let (framework, _) = record.profiles.get(pod).or_else(|| record.profiles.iter().next())?;
    let state = CycleState::default();
    let like = Pod { node_name: None, ..pod.clone() };
    let filters = framework.pre_filter(Cycle::new(now, &like, &state));
    let rejections = filters.filter_all(now.node(node)?).into_iter();
    let of_kubelet = rejections.filter(|status| KUBELET.contains(&status.plugin));
    let reasons: Vec<String> = of_kubelet.map(|status| status.message()).collect();
    (!reasons.is_empty())
        .then(|| format!("the kubelet of {node} would reject the pod: {}", reasons.join(", ")))
}
