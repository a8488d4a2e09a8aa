//! Nodes that are tried before all others: where a place is held for the pod, and where
//! a movement wants it (Gödel: the unit plugins' preferred nodes).
//!
//! They come before a scheduler's own part of the nodes, too. It is a preference: where
//! none of them will do, all nodes are looked at. Of several the first one is taken,
//! without scores: the place that is held the longest, else the node on which the most
//! pods of the owner are wanted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{Name, Pod, Template};
use crate::snapshot::{Cluster, NodeInfo, ReservedPlace};

use crate::framework::filters::Filters;
use crate::framework::{Cycle, Decision, Framework, Preferred, Status};

/// So many places are tried for a pod: each takes a fork and a PreFilter.
const MOST_TRIED: usize = 32;

impl Decision {
    /// The pod as it is to be assumed: on its node, and saying which place or movement it
    /// goes by, if it does. Whoever binds the pod writes that to its object
    /// ([`GodelPod::annotations`](crate::model::GodelPod::annotations)), or it is forgotten
    /// with this process.
    #[must_use]
    pub fn place(&self, pod: Pod) -> Pod {
        let mut pod = pod.on(self.node.clone());
        let (place, movement) = match &self.preferred {
            Some(Preferred::Place(holder)) => (Some(holder), None),
            Some(Preferred::Movement(name)) => (None, Some(name)),
            None => (None, None),
        };
        let known = pod.template.godel.as_ref();
        let says = known.map(|godel| (&godel.matched_placeholder, &godel.movement));
        if says.map_or((None, None), |(place, movement)| (place.as_ref(), movement.as_ref()))
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

/// The first preferred node that will do. O(places and nodes tried × PreFilter).
pub(in crate::framework) fn preferred(
    framework: &Framework,
    cycle: Cycle<'_>,
    filters: &Filters<'_>,
    is_within: impl Fn(&NodeInfo<'_>) -> bool,
) -> Result<Option<Decision>, Status> {
    if cycle.cluster.godel().is_none() {
        return Ok(None);
    }
    match held(framework, cycle, &is_within)? {
        Some(decision) => Ok(Some(decision)),
        None => wanted(cycle, filters, is_within),
    }
}

/// A place that is held for the pod. Pods of groups have none: they are placed together.
fn held(
    framework: &Framework,
    cycle: Cycle<'_>,
    is_within: impl Fn(&NodeInfo<'_>) -> bool,
) -> Result<Option<Decision>, Status> {
    let places = cycle.cluster.reservations().filter(|_| cycle.pod.group().is_none());
    let placeholder = cycle.pod.template.reservation_placeholder();
    let (Some(places), Some(placeholder)) = (places, placeholder) else { return Ok(None) };
    let own = |place: &&Arc<ReservedPlace>| place.pod.namespace() == cycle.pod.namespace();
    for place in places.available(placeholder).filter(own).take(MOST_TRIED) {
        if !cycle.cluster.node(place.node()).is_some_and(|node| is_within(&node)) {
            continue;
        }
        // What the pod would find there: the one that holds it gives way.
        let mut without = cycle.cluster.fork();
        if without.remove_pod(&place.pod.uid).is_err() {
            continue;
        }
        let Some(node) = without.node(place.node()) else { continue };
        let there = Cycle { cluster: &without, ..cycle };
        // What plugins keep of a place that will not do is no other node's business.
        let trial = cycle.state.clone();
        if will_do(framework, Cycle { state: &trial, ..there }, node)? {
            will_do(framework, there, node)?;
            return Ok(Some(decision(node, Preferred::Place(place.pod.key()))));
        }
    }
    Ok(None)
}

/// A node on which a movement wants a pod of the owner.
fn wanted(
    cycle: Cycle<'_>,
    filters: &Filters<'_>,
    is_within: impl Fn(&NodeInfo<'_>) -> bool,
) -> Result<Option<Decision>, Status> {
    let owner = cycle.pod.template.owner_key();
    let (Some(movements), Some(owner)) = (cycle.cluster.movements(), owner) else {
        return Ok(None);
    };
    // By node: how many pods are wanted, and the first movement that wants them.
    let mut nodes: BTreeMap<&Name, (u64, &Name)> = BTreeMap::new();
    for of in movements.suggestions(&owner) {
        let waits_on = nodes_of_deleted(cycle.cluster, of.movement);
        for (node, times) in of.nodes.into_iter().filter(|(node, _)| !waits_on.contains(node)) {
            let (sum, _) = nodes.entry(node).or_insert((0, of.movement));
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

/// The nodes that pods which the movement deletes are still on. It wants nobody there
/// before they are gone. O(deleted tasks × log n).
fn nodes_of_deleted<'c>(cluster: &'c Cluster, movement: &str) -> BTreeSet<&'c Name> {
    let movement = cluster.objects().movements.get("", movement);
    let deleted = movement.into_iter().flat_map(|movement| movement.deleted.iter());
    let there = deleted.filter_map(|task| cluster.pod(&task.uid));
    there.map(|pod| pod.node().name()).collect()
}

fn will_do(framework: &Framework, cycle: Cycle<'_>, node: NodeInfo<'_>) -> Result<bool, Status> {
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
