//! Placing and removing pods.

use std::sync::Arc;

use crate::model::{
    EventError, Generation, Name, Pod, PodClass, PodResources, PodSpec, Template, Uid, hash_of,
    key_hash, pod_name_hash,
};

use super::super::chunk::{Chunk, NodeSlot, set};
use super::super::cluster::{Cluster, GroupKey, Rest, claim_key};
use super::super::custom::{PlacedPod, PodChange};
use super::super::lane::TemplateId;
use super::super::node_info::{NodeInfo, PodInfo, PodRef};
use super::super::table::Interned;
use super::Draft;

/// The maximum length of a name or uid that a lane can store.
const LONGEST: usize = u16::MAX as usize;

/// The amounts that a pod adds to its node.
pub(in crate::snapshot) struct Amounts<'a> {
    spec: &'a PodSpec,
    /// Scalar resources by number.
    scalars: Vec<(u32, i64)>,
    affinity: bool,
    required_anti_affinity: bool,
    claims: bool,
}

impl Draft {
    /// Checks that a pod can be assumed on the node that it names: it is unknown, names a node, needs no resource
    /// claims, and [can be placed](Draft::check_place) there. `expected` is a guess at the slot of the node. Returns
    /// the slot if the node is known.
    pub(crate) fn check_assume(
        &self,
        pod: &Pod,
        expected: Option<NodeSlot>,
    ) -> Result<Option<NodeSlot>, EventError> {
        let uid = &pod.uid;
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        if self.pod(uid).is_some() {
            return Err(EventError::AlreadyInCache { uid: uid.clone() });
        }
        let node = node_of(pod)?;
        check_supported(&self.cluster, pod)?;
        let known = self.cluster.any_node_at(expected, node);
        self.check_place_on(pod, known, None)
    }

    /// Checks that a pod could be placed on a node if the pod `leaving` was removed first. The node may be unknown.
    /// Returns its slot if it is known.
    pub(crate) fn check_place(
        &self,
        pod: &Pod,
        node: &str,
        leaving: Option<PodRef>,
    ) -> Result<Option<NodeSlot>, EventError> {
        self.check_place_on(pod, self.cluster.any_node(node), leaving)
    }

    /// Like [`Draft::check_place`], for a node that was looked up; `None` if it is unknown.
    fn check_place_on(
        &self,
        pod: &Pod,
        known: Option<NodeInfo<'_>>,
        leaving: Option<PodRef>,
    ) -> Result<Option<NodeSlot>, EventError> {
        check_pod(pod)?;
        if self.has_too_many_victims(&pod.template) {
            return Err(too_long(pod, "the list of victims"));
        }
        self.check_room()?;
        let Some(known) = known else { return Ok(None) };
        let spec = &**pod.template;
        let leaving = leaving
            .filter(|pod_ref| pod_ref.slot == known.slot())
            .and_then(|pod_ref| known.pod_at(pod_ref.index))
            .map(|pod| &***pod.template());
        if fits_in_64_bits(&self.cluster, known, leaving, spec) {
            Ok(Some(known.slot()))
        } else {
            Err(EventError::Overflow { uid: pod.uid.clone(), node: known.name().clone() })
        }
    }

    /// Places a pod that [`Draft::check_place`] has accepted and that is not on a node yet. An unknown node becomes a
    /// ghost. `known` is the node's slot, or `None` if it is unknown or if a pod was removed since it was looked up.
    /// Returns the slot and the number of the pod's template. O(log n), and
    /// O(log n + pods of the node) with Gödel's stores.
    pub(crate) fn place(
        &mut self,
        pod: &Pod,
        node: &Name,
        known: Option<NodeSlot>,
        assumed: bool,
    ) -> Option<(NodeSlot, TemplateId)> {
        let slot = known.or_else(|| self.slot_or_ghost(node))?;
        let template = self.acquire_template(&pod.template)?;
        let amounts = amounts(&self.cluster.rest.resources, &pod.template);
        self.change_lane(slot, |chunk, at, generation| {
            put_in_lane(chunk, at, generation, (pod, template, assumed), &amounts);
        });
        self.count_placed(pod, slot, assumed);
        self.notify_placed(pod);
        if self.cluster.godel.is_some() {
            self.take_place(pod, node);
            self.add_contribution(pod, node);
        }
        Some((slot, template))
    }

    /// Notifies the custom stores that a pod was placed on the node that it names.
    pub(in crate::snapshot) fn notify_placed(&mut self, pod: &Pod) {
        if let (Some(_), Some(node)) = (&self.cluster.custom, &pod.node_name) {
            self.notify_stores(&PlacedPod::on(pod, node), PodChange::Placed);
        }
    }

    /// Adds a pod that is already in its lane to the index of pods and to the counts of pods, claims and groups.
    pub(in crate::snapshot) fn count_placed(&mut self, pod: &Pod, slot: NodeSlot, assumed: bool) {
        self.index_pod(pod, slot);
        self.cluster.counts.pods += 1;
        self.cluster.counts.assumed += usize::from(assumed);
        if pod.template.traits().claims && self.is_listed(slot) {
            self.use_claims(&pod.template);
        }
        self.join_group(&pod.template);
    }

    /// Adds a pod to the index of pods, by uid and, if the index has names, by name.
    pub(in crate::snapshot) fn index_pod(&mut self, pod: &Pod, slot: NodeSlot) {
        let Cluster { lookup, .. } = &mut self.cluster;
        lookup.insert(key_hash(pod.uid.key().0), slot.0, &mut self.departures);
        if lookup.has_names() {
            let hash = pod_name_hash(pod.namespace(), &pod.name);
            lookup.insert(hash, slot.0, &mut self.departures);
        }
    }

    /// Returns whether another object of a pod differs only in fields that change no sum and no index: both are on the
    /// same node and have the same name and template. O(size of the template).
    pub(crate) fn is_revision(&self, pod_ref: PodRef, pod: &Pod) -> bool {
        self.pod_at(pod_ref).is_some_and(|known| {
            pod.node_name.as_ref() == Some(known.node().name())
                && *known.name() == *pod.name
                && *known.template() == pod.template
        })
    }

    /// Replaces a pod in place by a [revision](Draft::is_revision) of it. Returns whether it did. Custom stores are not
    /// notified, because a [`PlacedPod`] contains nothing that differs. O(log n + pods of the node).
    pub(crate) fn revise(&mut self, pod_ref: PodRef, pod: &Pod, assumed: bool) -> bool {
        let Some(old) = self.pod_at(pod_ref) else { return false };
        let (was_assumed, number) = (old.is_assumed(), old.template_id());
        let mut revised = false;
        self.change_lane(pod_ref.slot, |chunk, at, generation| {
            revised = chunk.lane_mut(at).pods.revise(pod_ref.index, pod, number, assumed);
            chunk.requested_mut().generation[at] = generation;
        });
        if revised {
            self.cluster.counts.assumed += usize::from(assumed);
            self.cluster.counts.assumed -= usize::from(was_assumed);
            if let (Some(_), Some(node)) = (&self.cluster.godel, &pod.node_name) {
                self.take_place(pod, node);
            }
        }
        revised
    }

    /// Removes a pod. A ghost is removed with its last pod. O(log n + pods of the node).
    pub(crate) fn displace(&mut self, pod_ref: PodRef) {
        let slot = pod_ref.slot;
        let Some(node) = self.cluster.at_slot(slot) else { return };
        let Some(pod) = node.pod_at(pod_ref.index) else { return };
        let (template, number, was_assumed) =
            (pod.template().clone(), pod.template_id(), pod.is_assumed());
        let has_names = self.cluster.lookup.has_names();
        let name_hash = has_names.then(|| pod_name_hash(pod.namespace(), pod.name()));
        let contribution = self.contribution_of(&pod);
        let gone = self.cluster.custom.is_some().then(|| pod.to_pod());
        let amounts = amounts(&self.cluster.rest.resources, &template);
        let mut key = [0; 16];
        let mut empty_ghost = false;
        self.change_lane(slot, |chunk, at, generation| {
            let lane = chunk.lane_mut(at);
            key = lane.pods.swap_remove(pod_ref.index);
            let empty = lane.pods.is_empty();
            add(chunk, at, generation, &amounts, -1);
            if empty {
                chunk.drop_lane(at);
                let has_parts = chunk.identity(at).is_some_and(|id| id.parts.is_some());
                empty_ghost = chunk.is_ghosts() && !has_parts;
            }
        });
        let now = self.cluster.generation;
        for hash in [key_hash(key)].into_iter().chain(name_hash) {
            self.cluster.lookup.remove(hash, slot.0, now, &mut self.departures);
        }
        self.cluster.counts.pods -= 1;
        self.cluster.counts.assumed -= usize::from(was_assumed);
        if amounts.claims && self.is_listed(slot) {
            self.drop_claims(&template);
        }
        self.leave_group(&template);
        self.release_template(number);
        if empty_ghost {
            self.drop_ghost(slot);
        }
        if let Some(gone) = gone.as_ref().and_then(PlacedPod::of) {
            self.notify_stores(&gone, PodChange::Removed);
        }
        if let Some(contribution) = contribution {
            self.remove_contribution(&contribution);
        }
    }

    pub(crate) fn pod(&self, uid: &Uid) -> Option<PodInfo<'_>> {
        self.cluster.pod(uid)
    }

    /// Returns the pod to which a reference refers.
    pub(crate) fn pod_at(&self, pod_ref: PodRef) -> Option<PodInfo<'_>> {
        self.cluster.at_slot(pod_ref.slot)?.pod_at(pod_ref.index)
    }

    /// Changes the lane of a node. Its chunk is copied first if a version shares it.
    pub(super) fn change_lane(
        &mut self,
        slot: NodeSlot,
        change: impl FnOnce(&mut Chunk, usize, Generation),
    ) {
        let Some(place) = self.cluster.rest.places.get(slot.0).copied() else { return };
        let (chunk, lane) = (place.chunk, place.lane());
        let generation = self.cluster.generation;
        self.cluster.chunks.update(chunk, generation, |chunk| change(chunk, lane, generation));
    }

    /// Returns `true` if the node is listed, that is, not a ghost. Claims of a ghost's pods do not count as used,
    /// because kube-scheduler computes the used claims from its listed nodes.
    pub(in crate::snapshot) fn is_listed(&self, slot: NodeSlot) -> bool {
        self.cluster.node_by_slot(slot).is_some()
    }

    /// Counts the claims of all pods of a node as used, or no longer as used.
    pub(super) fn count_claims_of(&mut self, slot: NodeSlot, used: bool) {
        let Some(node) = self.cluster.at_slot(slot) else { return };
        if node.lane().with_claims == 0 {
            return;
        }
        let templates: Vec<_> = node.pods().map(|pod| pod.template().clone()).collect();
        for template in templates {
            if used {
                self.use_claims(&template);
            } else {
                self.drop_claims(&template);
            }
        }
    }

    /// Increments the number of placed pods of the pod's group, if it belongs to one.
    pub(super) fn join_group(&mut self, spec: &PodSpec) {
        let Some((namespace, name)) = spec.group() else { return };
        let key = GroupKey { namespace: namespace.clone(), name: name.clone() };
        let span = self.span();
        let rest = Rest::make_mut(&mut self.cluster.rest);
        rest.groups.acquire(&key, &mut self.numbers.groups, span);
    }

    /// Decrements the number of placed pods of the pod's group, if it belongs to one.
    fn leave_group(&mut self, spec: &PodSpec) {
        let Some((namespace, name)) = spec.group() else { return };
        let span = self.span();
        let is_same = |known: &GroupKey| known.namespace == *namespace && known.name == *name;
        let groups = &self.cluster.rest.groups;
        if let Some(number) = groups.find(GroupKey::hash_of(namespace, name), is_same) {
            let rest = Rest::make_mut(&mut self.cluster.rest);
            rest.groups.release(number, &mut self.numbers.groups, span);
        }
    }

    pub(super) fn use_claims(&mut self, spec: &PodSpec) {
        let span = self.span();
        for claim in spec.claims() {
            let key = claim_key(&spec.namespace, claim);
            let rest = Rest::make_mut(&mut self.cluster.rest);
            rest.claims.acquire(&key, &mut self.numbers.claims, span);
        }
    }

    fn drop_claims(&mut self, spec: &PodSpec) {
        let span = self.span();
        for claim in spec.claims() {
            let key = claim_key(&spec.namespace, claim);
            let rest = Rest::make_mut(&mut self.cluster.rest);
            let hash = crate::model::hash_of(&*key);
            if let Some(number) = rest.claims.find(hash, |known| *known == key) {
                rest.claims.release(number, &mut self.numbers.claims, span);
            }
        }
    }
}

/// Returns the node that a pod names.
///
/// # Errors
///
/// Returns an error if the pod names none.
pub(crate) fn node_of(pod: &Pod) -> Result<&Name, EventError> {
    match &pod.node_name {
        Some(node) if !node.is_empty() => Ok(node),
        _ => Err(EventError::NoNodeName { uid: pod.uid.clone() }),
    }
}

/// Checks that this scheduler can place the pod. Without a store that allocates resource claims (DRA), a pod with claims
/// can only be placed by another scheduler, and is then counted on its node.
///
/// # Errors
///
/// Returns an error if the pod has resource claims and no store allocates them.
pub(crate) fn check_supported(cluster: &Cluster, pod: &Pod) -> Result<(), EventError> {
    match pod.template.resource_claims.is_empty() || cluster.allocates_claims() {
        true => Ok(()),
        false => Err(EventError::Unsupported { uid: pod.uid.clone() }),
    }
}

/// Checks that a pod can be placed on some node of some cluster: it has a uid, requests no negative amount, and is not
/// too long.
///
/// # Errors
///
/// Returns an error if the pod is refused on every node.
pub(crate) fn check_pod(pod: &Pod) -> Result<(), EventError> {
    if pod.uid.is_empty() {
        return Err(EventError::EmptyUid);
    }
    check_amounts(pod)?;
    if pod.name.len() > LONGEST {
        return Err(too_long(pod, "the name"));
    }
    if pod.uid.text_len() > LONGEST {
        return Err(too_long(pod, "the uid"));
    }
    let spec = &**pod.template;
    if spec.volumes.len() + spec.host_ports.len() > LONGEST
        || spec.resources.placed.scalars.len() > LONGEST
    {
        return Err(too_long(pod, "a list in the spec"));
    }
    Ok(())
}

fn too_long(pod: &Pod, what: &'static str) -> EventError {
    EventError::TooLong { what: what.into(), name: shorten(&pod.name) }
}

/// Checks that a pod requests no negative amount. O(1) for a valid pod.
///
/// # Errors
///
/// Returns an error with the resource of which the pod requests a negative amount.
pub(crate) fn check_amounts(pod: &Pod) -> Result<(), EventError> {
    match pod.template.is_negative().then(|| pod.template.resources.negative()).flatten() {
        None => Ok(()),
        Some(resource) => {
            let object = format!("pod {}/{}", shorten(pod.namespace()), shorten(&pod.name));
            Err(EventError::Negative { resource, object })
        }
    }
}

/// Returns `true` if all sums of a node stay within 64 bits when one pod is removed and another is added.
pub(in crate::snapshot) fn fits_in_64_bits(
    cluster: &Cluster,
    node: NodeInfo<'_>,
    leaving: Option<&PodSpec>,
    coming: &PodSpec,
) -> bool {
    let (chunk, at) = node.place();
    let zero = PodResources::default();
    // Each pod class has its own account, so a pod of the other class frees nothing in this one.
    let leaving = leaving.filter(|leaving| leaving.class == coming.class);
    let old = leaving.map_or(&zero, |leaving| &leaving.resources);
    let account = chunk.account(coming.class);
    account.has_room_in_64_bits(cluster, at, old, &coming.resources)
}

/// Returns the amounts of a pod's template, with scalar resources by their numbers in `resources`.
pub(in crate::snapshot) fn amounts<'a>(
    resources: &Interned<Name>,
    spec: &'a Arc<Template>,
) -> Amounts<'a> {
    let traits = spec.traits();
    let number = |name: &Name| resources.find(hash_of(&**name), |known| known == name);
    let scalars = spec.resources.placed.scalars.iter();
    Amounts {
        scalars: scalars.filter_map(|(name, amount)| Some((number(name)?, amount))).collect(),
        spec,
        affinity: traits.affinity,
        required_anti_affinity: traits.required_anti_affinity,
        claims: traits.claims,
    }
}

impl Amounts<'_> {
    /// Returns the numbers of the pod's scalar resources, or `None` if one of them has no number.
    pub(in crate::snapshot) fn resources(&self) -> Option<Vec<u32>> {
        let named = self.spec.resources.placed.scalars.iter().count();
        (self.scalars.len() == named).then(|| self.scalars.iter().map(|(id, _)| *id).collect())
    }
}

/// Puts a pod on a lane of a chunk. `template` is the number of its template.
pub(in crate::snapshot) fn put_in_lane(
    chunk: &mut Chunk,
    at: usize,
    generation: Generation,
    (pod, template, assumed): (&Pod, TemplateId, bool),
    amounts: &Amounts<'_>,
) {
    chunk.lane_mut(at).pods.push(pod, template, assumed);
    add(chunk, at, generation, amounts, 1);
}

/// Adds a pod's amounts to a lane (`sign` 1) or subtracts them (`sign` -1). The sums cannot overflow, because
/// [`Draft::check_place`] has checked them.
pub(super) fn add(
    chunk: &mut Chunk,
    at: usize,
    generation: Generation,
    amounts: &Amounts<'_>,
    sign: i64,
) {
    let requested = chunk.requested_mut();
    requested.pods[at] = requested.pods[at].wrapping_add_signed(sign as i32);
    requested.generation[at] = generation;
    match amounts.spec.class {
        PodClass::Guaranteed => add_guaranteed(chunk, at, amounts, sign),
        PodClass::BestEffort => {
            chunk.add_best_effort(at, &amounts.spec.resources, &amounts.scalars, sign);
        }
    }
    if amounts.affinity
        || amounts.required_anti_affinity
        || amounts.claims
        || !amounts.spec.host_ports.is_empty()
    {
        let lane = chunk.lane_mut(at);
        let count = |count: &mut u32, has: bool| {
            *count = count.wrapping_add_signed(if has { sign as i32 } else { 0 });
        };
        count(&mut lane.with_affinity, amounts.affinity);
        count(&mut lane.with_required_anti_affinity, amounts.required_anti_affinity);
        count(&mut lane.with_claims, amounts.claims);
        if sign > 0 {
            lane.take_ports(&amounts.spec.host_ports);
        } else {
            lane.release_ports(&amounts.spec.host_ports);
        }
        let flags = [
            lane.with_affinity > 0,
            lane.with_required_anti_affinity > 0,
            lane.with_claims > 0,
            !lane.ports.is_empty(),
        ];
        set(&mut chunk.affinity, at, flags[0]);
        set(&mut chunk.required_anti_affinity, at, flags[1]);
        set(&mut chunk.claims, at, flags[2]);
        set(&mut chunk.ports, at, flags[3]);
    }
}

fn add_guaranteed(chunk: &mut Chunk, at: usize, amounts: &Amounts<'_>, sign: i64) {
    let PodResources { placed, placed_non_zero, .. } = &amounts.spec.resources;
    let requested = [
        placed.cpu.0,
        placed.memory.0,
        placed.ephemeral_storage.0,
        placed_non_zero.cpu.0,
        placed_non_zero.memory.0,
    ];
    chunk.add_requested(at, requested, sign);
    for (resource, amount) in &amounts.scalars {
        let has = chunk.requested_scalar(*resource).map_or(0, |column| column[at]);
        let sum = has.wrapping_add(amount.wrapping_mul(sign));
        chunk.set_requested_scalar(at, *resource, sum);
    }
}

/// Shortens a long text for a message.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}
