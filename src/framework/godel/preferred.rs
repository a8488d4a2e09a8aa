//! Nodes that are tried before all others: those with a reservation for the pod, and those on which a movement requests
//! it (Gödel: the unit plugins' preferred nodes).
//!
//! They also take precedence over a scheduler's own partition. The first feasible one is chosen without computing
//! scores; if none is feasible, all nodes are examined. Reservations come first, the oldest one before the others, and
//! then the nodes of movements, those that request the most pods of the owner first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Name, Pod, Template};
use crate::snapshot::{Cluster, NodeInfo};

use crate::framework::filters::Filters;
use crate::framework::{Cycle, Decision, Framework, Preferred, Status};

/// The maximum number of reservations tried for a pod. Each try costs a fork and a PreFilter.
const MAX_TRIED: usize = 32;

impl Decision {
    /// Returns the pod as it is to be assumed: on its node, and with the reservation or movement that it uses, if any.
    /// The caller that binds the pod must write these to the pod object
    /// ([`GodelPod::annotations`](crate::model::GodelPod::annotations)); otherwise they are lost when this process
    /// ends.
    #[must_use]
    pub fn place(&self, pod: Pod) -> Pod {
        let mut pod = pod.on(self.node.clone());
        let (place, movement) = match &self.preferred {
            Some(Preferred::Place(holder)) => (Some(holder), None),
            Some(Preferred::Movement(name)) => (None, Some(name)),
            None => (None, None),
        };
        let known = pod.template.godel.as_ref();
        let marks = known.map(|godel| (&godel.matched_placeholder, &godel.movement));
        if marks.map_or((None, None), |(place, movement)| (place.as_ref(), movement.as_ref()))
            != (place, movement)
        {
            let mut spec = (**pod.template).clone();
            let godel = spec.godel.get_or_insert_default();
            godel.matched_placeholder = place.cloned();
            godel.movement = movement.cloned();
            pod.template = Template::new(spec);
        }
        pod
    }
}

/// Returns the first preferred node that is feasible. O(reservations and nodes tried × PreFilter).
pub(in crate::framework) fn preferred(
    framework: &Framework,
    cycle: Cycle<'_>,
    filters: &Filters<'_>,
    is_within: impl Fn(&NodeInfo<'_>) -> bool,
) -> Result<Option<Decision>, Status> {
    if cycle.cluster.godel().is_none() {
        return Ok(None);
    }
    match reserved(framework, cycle, &is_within)? {
        Some(decision) => Ok(Some(decision)),
        None => requested(cycle, filters, is_within),
    }
}

/// Returns the oldest feasible reservation for the pod. Pods of groups never use reservations, since they are placed
/// together.
fn reserved(
    framework: &Framework,
    cycle: Cycle<'_>,
    is_within: impl Fn(&NodeInfo<'_>) -> bool,
) -> Result<Option<Decision>, Status> {
    let places = cycle.cluster.reservations().filter(|_| cycle.pod.group().is_none());
    let placeholder = cycle.pod.template.reservation_placeholder();
    let (Some(places), Some(placeholder)) = (places, placeholder) else { return Ok(None) };
    for place in places.available(cycle.pod.namespace(), placeholder).take(MAX_TRIED) {
        if !cycle.cluster.node(place.node()).is_some_and(|node| is_within(&node)) {
            continue;
        }
        // The pod sees the node without the pod that holds the reservation, which it replaces.
        let mut without = cycle.cluster.fork();
        if without.remove_pod(&place.pod.uid).is_err() {
            continue;
        }
        let Some(node) = without.node(place.node()) else { continue };
        let there = Cycle { cluster: &without, ..cycle };
        // An infeasible reservation must not leave data of plugins in the state, since other nodes are tried next.
        let trial = cycle.state.clone();
        if is_feasible(framework, Cycle { state: &trial, ..there }, node)? {
            is_feasible(framework, there, node)?;
            return Ok(Some(decision(node, Preferred::Place(place.pod.key()))));
        }
    }
    Ok(None)
}

/// Returns the first feasible node on which a movement requests a pod of the owner.
fn requested(
    cycle: Cycle<'_>,
    filters: &Filters<'_>,
    is_within: impl Fn(&NodeInfo<'_>) -> bool,
) -> Result<Option<Decision>, Status> {
    let owner = cycle.pod.template.owner_key();
    let (Some(movements), Some(owner)) = (cycle.cluster.movements(), owner) else {
        return Ok(None);
    };
    // By node: the number of requested pods, and the first movement that requests them.
    let mut nodes: BTreeMap<&Name, (u64, &Name)> = BTreeMap::new();
    for suggestion in movements.suggestions(&owner) {
        let waits_on = nodes_of_deleted(cycle.cluster, suggestion.movement);
        for (node, times) in
            suggestion.nodes.into_iter().filter(|(node, _)| !waits_on.contains(node))
        {
            let (sum, _) = nodes.entry(node).or_insert((0, suggestion.movement));
            *sum = sum.saturating_add(times);
        }
    }
    let mut nodes: Vec<(&Name, (u64, &Name))> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, (times, _))| Reverse(*times));
    for (name, (_, movement)) in nodes {
        let Some(node) = cycle.cluster.node(name).filter(&is_within) else { continue };
        if passes(filters, node)? {
            return Ok(Some(decision(node, Preferred::Movement(movement.clone()))));
        }
    }
    Ok(None)
}

/// Returns the nodes that still run pods which the movement deletes. The movement requests no pods there until these
/// are gone. O(deleted tasks × log n).
fn nodes_of_deleted<'c>(cluster: &'c Cluster, movement: &str) -> BTreeSet<&'c Name> {
    let movement = cluster.objects().movements.get("", movement);
    let deleted = movement.into_iter().flat_map(|movement| movement.deleted.iter());
    let there = deleted.filter_map(|task| cluster.pod(&task.uid));
    there.map(|pod| pod.node().name()).collect()
}

fn is_feasible(
    framework: &Framework,
    cycle: Cycle<'_>,
    node: NodeInfo<'_>,
) -> Result<bool, Status> {
    let filters = framework.pre_filter(cycle);
    Ok(filters.rejected().is_none() && passes(&filters, node)?)
}

fn passes(filters: &Filters<'_>, node: NodeInfo<'_>) -> Result<bool, Status> {
    match filters.filter_with_nominated(node) {
        None => Ok(true),
        Some(status) if status.code.is_rejection() => Ok(false),
        Some(status) => Err(status),
    }
}

fn decision(node: NodeInfo<'_>, preferred: Preferred) -> Decision {
    Decision { preferred: Some(preferred), ..Decision::of(node, 0, 1, 1) }
}
