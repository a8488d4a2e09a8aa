//! Adding, updating and removing nodes, and maintaining their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{
    EventError, HOSTNAME, Name, Node, NodeLabels, NodeResources, Resources, hash_of,
};

use super::super::account::is_best_effort;
use super::super::chunk::{Chunk, Columns, LANES, NodeSlot, Place, SetId, ZoneId, lanes};
use super::super::cluster::{ImageEntry, Rest, TaintSet};
use super::super::lane::{Identity, Lane, Parts};
use super::super::node_info::NodeInfo;
use super::super::zones::GHOSTS;
use super::Draft;
use super::pods::shorten;

/// Two chunks are merged if together they have at most this many nodes. The limit is below [`LANES`], so that adding
/// and removing nodes does not repeatedly move others.
const MERGE: u32 = 48;

/// How the new object of a node differs from the one that is listed. Most updates differ in nothing here. For a new
/// node or a former ghost, everything but the schedulers counts as different.
struct Differs {
    zone: bool,
    labels: bool,
    /// The labels that only pods of a node manager see.
    managed_labels: bool,
    hostname: bool,
    /// The labels or the taints.
    sets: bool,
    /// The names of the extended resources.
    scalars: bool,
    /// The scheduler instances to which the node is assigned.
    schedulers: bool,
}

impl Differs {
    fn between(known: Option<NodeInfo<'_>>, new: &Node, parts: Option<&Parts>) -> Differs {
        let schedulers = known.is_some_and(|info| {
            let now = match parts {
                Some(parts) => parts.schedulers(),
                None => [new.scheduler.as_ref(), None],
            };
            !info.schedulers().eq(now.into_iter().flatten())
        });
        fn managed(parts: Option<&Parts>) -> Option<&NodeLabels> {
            Some(&parts?.managed.as_ref()?.labels)
        }
        let known_parts = known.and_then(|info| info.identity().parts.as_deref());
        let managed_labels = managed(known_parts) != managed(parts);
        let Some(old) = known.and_then(|info| info.node()) else {
            return Differs {
                managed_labels,
                zone: true,
                labels: true,
                hostname: true,
                sets: true,
                scalars: true,
                schedulers,
            };
        };
        fn names(node: &Node) -> impl Iterator<Item = &Name> {
            node.allocatable.scalars.iter().map(|(name, _)| name)
        }
        let labels = old.labels != new.labels;
        Differs {
            zone: old.zone != new.zone,
            labels,
            managed_labels,
            hostname: labels && old.labels.get(HOSTNAME) != new.labels.get(HOSTNAME),
            sets: labels || old.taints != new.taints,
            scalars: !names(old).eq(names(new)),
            schedulers,
        }
    }
}

impl Draft {
    /// Checks that a node can be added or updated.
    pub(crate) fn check_node(&self, node: &Node) -> Result<(), EventError> {
        if node.name.is_empty() {
            return Err(EventError::EmptyName { kind: "Node".into() });
        }
        if let Some(resource) = negative(node) {
            let object = format!("node {}", shorten(&node.name));
            return Err(EventError::Negative { resource, object });
        }
        const LONGEST: usize = u16::MAX as usize;
        let names: usize = node.images.iter().map(|image| image.names.len()).sum();
        if names > LONGEST || node.allocatable.scalars.len() > LONGEST {
            let name = shorten(&node.name);
            return Err(EventError::TooLong { what: "a list in the status".into(), name });
        }
        self.check_room()
    }

    /// Lists `node`, which consists of `parts`. It replaces the node or ghost in `slot`, or takes a new slot if `slot`
    /// is `None`.
    pub(super) fn list_node(
        &mut self,
        slot: Option<NodeSlot>,
        node: Arc<Node>,
        parts: Option<Arc<Parts>>,
    ) {
        let known = slot.and_then(|slot| self.cluster.at_slot(slot));
        let differs = Differs::between(known, &node, parts.as_deref());
        let sets = known.map(|info| info.sets()).filter(|_| !differs.sets);
        if differs.hostname {
            self.rest().hosts.forget();
        }
        if differs.labels || differs.managed_labels || differs.schedulers {
            self.rest().layout += 1;
        }
        // New numbers are acquired before old ones are released, so that a name in both objects keeps its number.
        if differs.scalars {
            self.acquire_resources(node.allocatable.scalars.iter().map(|(name, _)| name));
        }
        let sets = sets.unwrap_or_else(|| self.acquire_sets(&node));
        let slot = match slot {
            Some(slot) => {
                self.replace_listed(slot, &node, &differs);
                Some(slot)
            }
            None => self.append_node(&node),
        };
        if let Some(slot) = slot {
            self.write_node(slot, &node, parts, sets, differs.zone);
        }
    }

    /// Releases the sets and resources of the old object in a slot, and moves the slot to the zone of `node`.
    fn replace_listed(&mut self, slot: NodeSlot, node: &Node, differs: &Differs) {
        let known = self.cluster.at_slot(slot).and_then(|info| info.node().cloned());
        if let Some(old) = known {
            if differs.sets {
                self.release_sets(slot);
            }
            if differs.scalars {
                self.release_resources(old.allocatable.scalars.iter().map(|(name, _)| name));
            }
        } else {
            self.cluster.counts.ghosts -= 1;
            self.cluster.counts.nodes += 1;
            self.count_claims_of(slot, true);
        }
        if differs.zone
            && let Some(zone) = self.zone_of(node)
        {
            self.move_to_end(slot, zone, Some(node));
        }
    }

    /// Takes a slot for a new node, at the end of its zone.
    fn append_node(&mut self, node: &Node) -> Option<NodeSlot> {
        let zone = self.zone_of(node)?;
        let identity = Identity::new(node.name.clone(), self.cluster.generation);
        let slot = self.new_slot(&node.name)?;
        self.append(
            zone,
            slot,
            (triomphe::Arc::new(identity), None),
            &Columns::default().with_allocatable(Some(node)),
        );
        self.cluster.counts.nodes += 1;
        Some(slot)
    }

    /// Writes a node's object into its slot. `arrives` means that the node just joined its zone.
    fn write_node(
        &mut self,
        slot: NodeSlot,
        node: &Arc<Node>,
        parts: Option<Arc<Parts>>,
        (taints, labels): (SetId, SetId),
        arrives: bool,
    ) {
        let scalars: Vec<(u32, i64)> = self.scalars_of(&node.allocatable);
        self.change_lane(slot, |chunk, at, generation| {
            if let Some(identity) = chunk.identity_mut(at) {
                if identity.node.is_none() {
                    identity.added = generation;
                }
                if arrives {
                    identity.arrived = generation;
                }
                identity.node = Some(node.clone());
                identity.parts = parts;
            }
            for (resource, _) in allocatable_scalars(chunk, at) {
                if !scalars.iter().any(|(named, _)| *named == resource) {
                    chunk.set_allocatable_scalar(at, resource, 0);
                }
            }
            for (resource, amount) in &scalars {
                chunk.set_allocatable_scalar(at, *resource, *amount);
            }
            chunk.set_node(at, Some(node), taints, labels);
            chunk.requested_mut().generation[at] = generation;
        });
    }

    /// Removes a node from the list. It becomes a ghost if pods or `parts` remain.
    pub(super) fn unlist_node(&mut self, slot: NodeSlot, parts: Option<Arc<Parts>>) {
        let Some(info) = self.cluster.node_by_slot(slot) else { return };
        let empty = info.pod_count() == 0 && parts.is_none();
        let Some(node) = info.node().cloned() else { return };
        let removed = info.identity().clone();
        let generation = self.cluster.generation;
        self.count_claims_of(slot, false);
        self.release_sets(slot);
        let rest = self.rest();
        rest.hosts.forget();
        rest.removed.push(generation, slot, &removed);
        self.change_lane(slot, |chunk, at, generation| {
            if let Some(identity) = chunk.identity_mut(at) {
                identity.node = None;
                identity.parts = parts;
            }
            for (resource, _) in allocatable_scalars(chunk, at) {
                chunk.set_allocatable_scalar(at, resource, 0);
            }
            chunk.set_node(at, None, 0, 0);
            chunk.requested_mut().generation[at] = generation;
        });
        self.release_resources(node.allocatable.scalars.iter().map(|(name, _)| name));
        self.cluster.counts.nodes -= 1;
        self.cluster.counts.ghosts += 1;
        if empty {
            self.drop_ghost(slot);
        } else {
            let ghosts = self.rest().zones.ghosts();
            self.move_to_end(slot, ghosts, None);
        }
    }

    pub(super) fn slot_or_ghost(&mut self, name: &Name) -> Option<NodeSlot> {
        if let Some(info) = self.cluster.any_node(name) {
            return Some(info.slot());
        }
        let identity = Identity::new(name.clone(), self.cluster.generation);
        let ghosts = self.rest().zones.ghosts();
        let slot = self.new_slot(name)?;
        self.append(ghosts, slot, (triomphe::Arc::new(identity), None), &Columns::default());
        self.cluster.counts.ghosts += 1;
        Some(slot)
    }

    /// Removes a ghost without pods.
    pub(super) fn drop_ghost(&mut self, slot: NodeSlot) {
        let Some(info) = self.cluster.at_slot(slot) else { return };
        let hash = hash_of(&**info.name());
        let span = self.span();
        self.detach(slot);
        let rest = self.rest();
        rest.names.remove(hash, slot.0);
        rest.places.remove(slot.0);
        self.numbers.slots.release(slot.0, span);
        self.cluster.counts.ghosts -= 1;
    }

    pub(super) fn scalars_of(&self, resources: &Resources) -> Vec<(u32, i64)> {
        let scalars = resources.scalars.iter();
        scalars.filter_map(|(name, n)| Some((self.cluster.resource_id(name)?, n))).collect()
    }

    fn zone_of(&mut self, node: &Node) -> Option<ZoneId> {
        self.rest().zones.find_or_insert(&node.zone)
    }

    fn new_slot(&mut self, name: &Name) -> Option<NodeSlot> {
        let span = self.span();
        let mut next = self.cluster.rest.next_slot;
        let slot = self.numbers.slots.take(&mut next, span)?;
        let rest = self.rest();
        rest.next_slot = next;
        rest.names.insert(hash_of(&**name), slot);
        Some(NodeSlot(slot))
    }

    /// Adds one node to the users of these taints and labels, and returns their numbers.
    fn acquire_sets(&mut self, node: &Node) -> (SetId, SetId) {
        let span = self.span();
        let rest = Rest::make_mut(&mut self.cluster.rest);
        let taints = TaintSet(node.taints.clone().into());
        let taints = rest.taints.acquire(&taints, &mut self.numbers.taints, span);
        let labels = rest.labels.acquire(node.labels.shared(), &mut self.numbers.labels, span);
        (taints.unwrap_or_default(), labels.unwrap_or_default())
    }

    fn release_sets(&mut self, slot: NodeSlot) {
        let Some(info) = self.cluster.at_slot(slot) else { return };
        let (taints, labels) = info.sets();
        let span = self.span();
        let rest = Rest::make_mut(&mut self.cluster.rest);
        rest.taints.release(taints, &mut self.numbers.taints, span);
        rest.labels.release(labels, &mut self.numbers.labels, span);
    }

    /// Replaces the images of `old` by those of `new`, and touches only those that differ. The size of an image is the
    /// one that its first node reported, for as long as any node has the image.
    pub(super) fn exchange_images(&mut self, old: Option<&Node>, new: Option<&Node>) {
        fn by_name(node: Option<&Node>) -> BTreeMap<&Name, i64> {
            let mut images = BTreeMap::new();
            for image in node.iter().flat_map(|node| node.images.iter()) {
                for name in &image.names {
                    images.entry(name).or_insert(image.size);
                }
            }
            images
        }
        let (old, new) = (by_name(old), by_name(new));
        let span = self.span();
        let images = &self.cluster.rest.images;
        let find = |name: &Name| images.find(hash_of(&**name), |image| image.name == *name);
        // If this node is the only one with the image, its report replaces the size.
        let unchanged = |name: &Name, size: i64| {
            find(name).is_some_and(|id| {
                images.users(id) > 1 || images.get(id).is_some_and(|image| image.size == size)
            })
        };
        let gone: Vec<u32> = old
            .keys()
            .filter(|name| !new.get(*name).is_some_and(|size| unchanged(name, *size)))
            .filter_map(|name| find(name))
            .collect();
        let come: Vec<ImageEntry> = new
            .iter()
            .filter(|(name, size)| !(old.contains_key(*name) && unchanged(name, **size)))
            .map(|(name, size)| ImageEntry { name: (*name).clone(), size: *size })
            .collect();
        if gone.is_empty() && come.is_empty() {
            return;
        }
        let rest = Rest::make_mut(&mut self.cluster.rest);
        for id in gone {
            rest.images.release(id, &mut self.numbers.images, span);
        }
        for image in come {
            rest.images.acquire(&image, &mut self.numbers.images, span);
        }
    }

    /// Moves a lane to the end of a zone, with the allocatable amounts of `node`.
    fn move_to_end(&mut self, slot: NodeSlot, zone: ZoneId, node: Option<&Node>) {
        if let Some((parts, columns)) = self.detach(slot) {
            self.append(zone, slot, parts, &columns.with_allocatable(node));
        }
    }

    /// Removes a node's lane from its chunk. A chunk or zone that becomes empty is removed, too.
    fn detach(&mut self, slot: NodeSlot) -> Option<(InLane, Columns)> {
        let place = *self.cluster.rest.places.get(slot.0)?;
        let chunk = self.cluster.chunks.get(place.chunk)?;
        let (zone, sequence) = (chunk.zone, chunk.sequence);
        let taken = (in_lane(chunk, place.lane())?, chunk.columns(place.lane()));
        let generation = self.cluster.generation;
        let left = self.cluster.chunks.update(place.chunk, generation, |chunk| {
            chunk.clear(place.lane());
            chunk.live
        });
        let rest = self.rest();
        rest.layout += 1;
        rest.zones.update(zone, |zone| zone.nodes -= 1);
        if left == Some(0) {
            self.drop_chunk(place.chunk, zone, sequence);
        } else {
            self.merge(place.chunk, zone, sequence);
        }
        if self.cluster.rest.zones.get(zone).is_some_and(|zone| zone.nodes == 0) && zone != GHOSTS {
            self.rest().zones.remove(zone);
        }
        Some(taken)
    }

    fn drop_chunk(&mut self, id: u32, zone: ZoneId, sequence: u32) {
        let generation = self.cluster.generation;
        let span = self.span();
        self.cluster.chunks.remove(id, generation);
        self.rest().zones.update(zone, |zone| zone.chunks.remove(sequence));
        self.numbers.chunks.release(id, span);
    }

    /// Merges a sparse chunk with a sparse neighbour in its zone, if there is one.
    fn merge(&mut self, id: u32, zone: ZoneId, sequence: u32) {
        let Some(chunks) = self.cluster.rest.zones.get(zone).map(|zone| &zone.chunks) else {
            return;
        };
        let neighbours = [chunks.before(sequence), chunks.after(sequence)];
        let live = |id| self.cluster.chunks.get(id).map_or(0, |chunk| chunk.live.count_ones());
        let sparse = neighbours
            .into_iter()
            .flatten()
            .map(|(position, other)| (position, *other))
            .find(|(_, other)| live(*other) + live(id) <= MERGE);
        let Some((position, other)) = sparse else { return };
        let (left, right, gone) =
            if position < sequence { (other, id, sequence) } else { (id, other, position) };
        self.compact(left);
        let Some(moving) = self.cluster.chunks.get(right).map(|chunk| chunk.live) else { return };
        for at in lanes(moving) {
            let from = Place::new(right, at);
            let end = self.cluster.chunks.get(left).and_then(Chunk::next_lane);
            if let Some(end) = end {
                self.move_lane(from, Place::new(left, end));
            }
        }
        self.drop_chunk(right, zone, gone);
    }

    /// Closes the gaps between the live lanes of a chunk.
    fn compact(&mut self, id: u32) {
        let Some(live) = self.cluster.chunks.get(id).map(|chunk| chunk.live) else { return };
        for (to, from) in lanes(live).enumerate() {
            if from != to {
                self.move_lane(Place::new(id, from), Place::new(id, to));
            }
        }
    }

    /// Moves a lane unchanged; the node's own generation does not change.
    fn move_lane(&mut self, from: Place, to: Place) {
        let Some(chunk) = self.cluster.chunks.get(from.chunk) else { return };
        let Some((identity, lane)) = in_lane(chunk, from.lane()) else { return };
        let (slot, columns) = (chunk.slot()[from.lane()], chunk.columns(from.lane()));
        let generation = self.cluster.generation;
        self.cluster.chunks.update(from.chunk, generation, |chunk| chunk.clear(from.lane()));
        self.cluster.chunks.update(to.chunk, generation, |chunk| {
            chunk.put(to.lane(), slot, identity, lane);
            chunk.set_columns(to.lane(), &columns);
        });
        let rest = self.rest();
        rest.layout += 1;
        rest.places.set(slot.0, to);
    }

    /// Appends a node's lane at the end of a zone.
    fn append(
        &mut self,
        zone: ZoneId,
        slot: NodeSlot,
        (identity, lane): InLane,
        columns: &Columns,
    ) {
        let Some(place) = self.end_of(zone) else { return };
        let generation = self.cluster.generation;
        self.cluster.chunks.update(place.chunk, generation, |chunk| {
            chunk.put(place.lane(), slot, identity, lane);
            chunk.set_columns(place.lane(), columns);
        });
        let rest = self.rest();
        rest.layout += 1;
        rest.zones.update(zone, |zone| zone.nodes += 1);
        rest.places.set(slot.0, place);
    }

    /// Returns a free lane after all nodes of a zone, and adds a chunk if necessary.
    fn end_of(&mut self, zone: ZoneId) -> Option<Place> {
        let (last, next) = {
            let zone = self.cluster.rest.zones.get(zone)?;
            (zone.chunks.before(zone.next).map(|(_, id)| *id), zone.next)
        };
        if let Some(last) = last {
            let chunk = self.cluster.chunks.get(last)?;
            if chunk.next_lane().is_none() && chunk.live.count_ones() <= MERGE {
                self.compact(last);
            }
            if let Some(lane) = self.cluster.chunks.get(last).and_then(Chunk::next_lane) {
                return Some(Place::new(last, lane));
            }
        }
        let generation = self.cluster.generation;
        let mut next_chunk = self.cluster.rest.next_chunk;
        let span = self.span();
        let id = self.numbers.chunks.take(&mut next_chunk, span)?;
        let chunks = &mut self.cluster.chunks;
        let like = match last {
            Some(last) => chunks.get(last),
            None => chunks.at_or_before(id).map(|(_, chunk)| chunk),
        };
        let chunk = Chunk::new(zone, next, like);
        chunks.insert(id, chunk, generation);
        let rest = self.rest();
        rest.next_chunk = next_chunk;
        rest.zones.update(zone, |zone| {
            zone.chunks.set(next, id);
            zone.next = next.saturating_add(1);
        });
        Some(Place::new(id, 0))
    }
}

/// Returns the name of a negative amount in the node's allocatable resources or capacity, if there is one. A negative
/// image size counts as such.
fn negative(node: &Node) -> Option<Name> {
    let pods = |pods: i64| (pods < 0).then(|| Name::from("pods"));
    let capacity = node.capacity.as_deref();
    let image = || node.images.iter().any(|image| image.size < 0);
    let from_capacity = || capacity.and_then(NodeResources::negative);
    (node.allocatable.negative().or_else(|| pods(node.allowed_pods)))
        .or_else(from_capacity)
        .or_else(|| image().then(|| "the size of an image".into()))
}

/// The contents of a lane other than its columns.
type InLane = (triomphe::Arc<Identity>, Option<triomphe::Arc<Lane>>);

fn in_lane(chunk: &Chunk, at: usize) -> Option<InLane> {
    Some((chunk.identity_ptr(at)?.clone(), chunk.lane_ptr(at).cloned()))
}

/// Returns the non-zero scalar amounts that are allocatable to guaranteed pods.
fn allocatable_scalars(chunk: &Chunk, at: usize) -> Vec<(u32, i64)> {
    let columns = chunk.fixed.scalars.iter().filter(|c| !is_best_effort(c.resource));
    columns.filter(|c| c.amount[at] != 0).map(|c| (c.resource, c.amount[at])).collect()
}

const _: () = assert!(MERGE as usize <= LANES);
