//! Groups of leader-worker sets, whose pods are all created again when one of them ends.

use portolan::model::{Name, Pod, Template};

use crate::error::CommandError;

use super::world::World;

const SET: &str = "leaderworkerset.sigs.k8s.io/name";
const GROUP: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// The group of a pod: namespace, name of the set, and index.
fn group(template: &Template) -> Option<(&Name, &str, &str)> {
    Some((&template.namespace, template.labels.get(SET)?, template.labels.get(GROUP)?))
}

/// Removes the other pods of the groups of pods that have ended on a node, if the restart policy of their set requires
/// it. Returns all of them with their nodes, the leaders first: the workers are created after them.
pub(super) fn with_groups(ended: Vec<Pod>, world: &mut World) -> Result<Vec<Pod>, CommandError> {
    let groups = ended.iter().filter_map(|pod| group(&pod.template));
    let groups: Vec<_> = groups
        .filter(|(namespace, set, _)| world.record.creation.recreates_groups(namespace, set))
        .collect();
    if groups.is_empty() {
        return Ok(ended);
    }
    let now = world.cluster()?;
    let placed = now.nodes().flat_map(|node| node.pods());
    let others = placed.filter(|pod| group(pod.template()).is_some_and(|it| groups.contains(&it)));
    let others: Vec<Pod> = others.map(|pod| pod.to_pod()).collect();
    for pod in &others {
        world.remove(pod)?;
    }
    let mut all = [ended, others].concat();
    all.sort_by_key(|pod| pod.template.labels.get(WORKER).is_some_and(|index| index != "0"));
    Ok(all)
}
