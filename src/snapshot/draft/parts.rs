//! The objects that a node consists of: the Node, NMNode and CustomNodeResource of one name.
//!
//! A node is listed while it has a Node or an NMNode. A CustomNodeResource or pods alone form a ghost, which is removed
//! with the last of them.

use std::sync::Arc;

use crate::model::{
    CustomNodeResource, EventError, Generation, Name, Node, Object, ObjectKind, Resources,
};

use super::super::chunk::NodeSlot;
use super::super::lane::Parts;
use super::super::node_info::NodeInfo;
use super::Draft;
use super::pods::shorten;

/// Maximum number of resources that an object may name.
const LONGEST: usize = u16::MAX as usize;

impl Draft {
    /// Adds a node, or replaces the Node of its name. A node that is new, was a ghost or changed its zone is appended
    /// at the end of its zone. Returns whether there was a Node of its name. O(log n).
    pub(crate) fn put_node(&mut self, node: Arc<Node>) -> bool {
        let slot = self.slot_of(&node.name);
        let old = self.at(slot).and_then(|info| info.kubelet_node().cloned());
        self.exchange_images(old.as_deref(), Some(&node));
        self.change_parts(slot, |parts| parts.node = Some(node));
        old.is_some()
    }

    /// Checks that a node of this name exists and can be assigned to a scheduler.
    pub(crate) fn check_assign(&self, name: &Name) -> Result<(), EventError> {
        match self.cluster.node(name) {
            Some(_) => self.check_room(),
            None => Err(EventError::NodeNotFound { name: name.clone() }),
        }
    }

    /// Changes the scheduler that a node's Node and NMNode name. The change lasts until the respective object is put
    /// again. O(log n).
    pub(crate) fn assign_node(&mut self, name: &Name, change: impl Fn(&mut Option<Name>)) {
        let slot = self.slot_of(name);
        self.change_parts(slot, |parts| {
            if let Some(node) = &mut parts.node {
                change(&mut Arc::make_mut(node).scheduler);
            }
            if let Some(nm_node) = &mut parts.nm_node {
                change(&mut Arc::make_mut(nm_node).scheduler);
            }
        });
    }

    pub(crate) fn check_remove_node(&self, name: &Name) -> Result<(), EventError> {
        match self.cluster.node(name).and_then(|info| info.kubelet_node()) {
            Some(_) => Ok(()),
            None => Err(EventError::NodeNotFound { name: name.clone() }),
        }
    }

    /// Removes a Node. Its node becomes a ghost if only pods or a CustomNodeResource remain, and stays listed if it has
    /// an NMNode. O(log n).
    pub(crate) fn remove_node(&mut self, name: &Name) {
        let slot = self.slot_of(name);
        let Some(old) = self.at(slot).and_then(|info| info.kubelet_node().cloned()) else { return };
        self.exchange_images(Some(&old), None);
        self.change_parts(slot, |parts| parts.node = None);
    }

    /// Checks an NMNode or CustomNodeResource, and adds it or replaces the one of its name. Returns whether there was
    /// one.
    pub(crate) fn put_part(&mut self, part: &Object) -> Result<bool, EventError> {
        let known = match part {
            Object::NmNode(nm_node) => {
                let resources = nm_node.allocatable.len();
                self.check_part(part, resources, || nm_node.negative())?;
                let slot = self.slot_of(&nm_node.name);
                self.change_parts(slot, |parts| parts.nm_node.replace(nm_node.clone())).is_some()
            }
            Object::CustomNodeResource(custom) => {
                let resources = custom.allocatable.resources.scalars.len();
                self.check_part(part, resources, || custom.negative())?;
                let slot = self.slot_or_ghost(&custom.name);
                slot.is_some_and(|slot| self.change_custom(slot, Some(custom.clone())))
            }
            _ => return Ok(false),
        };
        let generation = self.cluster.generation;
        self.objects().count_part(part.kind(), usize::from(!known), 0, generation);
        Ok(known)
    }

    /// Checks that an NMNode or CustomNodeResource exists, and removes it.
    pub(crate) fn delete_part(&mut self, kind: ObjectKind, name: &str) -> Result<(), EventError> {
        let known = self.cluster.any_node(name).filter(|info| match kind {
            ObjectKind::NmNode => info.nm_node().is_some(),
            _ => info.custom_node_resource().is_some(),
        });
        let Some(slot) = known.map(|info| info.slot()) else {
            return Err(EventError::ObjectNotFound {
                kind: kind.as_str().into(),
                key: format!("/{name}"),
            });
        };
        match kind {
            ObjectKind::NmNode => self.change_parts(Some(slot), |parts| parts.nm_node = None),
            _ => drop(self.change_custom(slot, None)),
        }
        let generation = self.cluster.generation;
        self.objects().count_part(kind, 0, 1, generation);
        Ok(())
    }

    fn check_part(
        &self,
        part: &Object,
        resources: usize,
        negative: impl FnOnce() -> Option<Name>,
    ) -> Result<(), EventError> {
        let kind = part.kind().as_str();
        if part.name().is_empty() {
            return Err(EventError::EmptyName { kind: kind.into() });
        }
        if let Some(resource) = negative() {
            let object = format!("{kind} {}", shorten(part.name()));
            return Err(EventError::Negative { resource, object });
        }
        if resources > LONGEST {
            let name = shorten(part.name());
            return Err(EventError::TooLong { what: "a list in the status".into(), name });
        }
        self.check_room()
    }

    fn slot_of(&self, name: &str) -> Option<NodeSlot> {
        self.cluster.any_node(name).map(|info| info.slot())
    }

    fn at(&self, slot: Option<NodeSlot>) -> Option<NodeInfo<'_>> {
        self.cluster.at_slot(slot?)
    }

    /// Changes the parts of the node in `slot`, or of a new node, and rebuilds the node from them.
    fn change_parts<R>(
        &mut self,
        slot: Option<NodeSlot>,
        change: impl FnOnce(&mut Parts) -> R,
    ) -> R {
        let known = self.at(slot);
        let mut parts = known.map(|info| info.identity().parts()).unwrap_or_default();
        let changed = change(&mut parts);
        let merged = parts.merge();
        let kept = parts.stored();
        match (merged, slot) {
            (Some(node), slot) => self.list_node(slot, node, kept),
            (None, Some(slot)) => self.unlist_node(slot, kept),
            (None, None) => {}
        }
        changed
    }

    /// Replaces or removes the CustomNodeResource of a node, and with it the resources allocatable to best-effort pods.
    /// Returns whether there was one.
    fn change_custom(&mut self, slot: NodeSlot, custom: Option<Arc<CustomNodeResource>>) -> bool {
        let Some(info) = self.cluster.at_slot(slot) else { return false };
        let old = info.custom_node_resource().cloned();
        let none = Resources::default();
        let offered = custom.as_deref().map(|custom| &custom.allocatable);
        let (resources, pods) = offered.map_or((&none, 0), |offer| (&offer.resources, offer.pods));
        self.acquire_resources(resources.scalars.iter().map(|(name, _)| name));
        let scalars = self.scalars_of(resources);
        let kept = custom.clone();
        self.change_lane(slot, |chunk, at, generation| {
            if let Some(identity) = chunk.identity_mut(at) {
                let parts = Parts { custom: kept, ..identity.parts() };
                identity.parts = parts.stored();
            }
            chunk.set_best_effort_allocatable(at, (resources, pods), &scalars);
            chunk.requested_mut().generation[at] = generation;
        });
        if let Some(old) = &old {
            self.release_resources(old.allocatable.resources.scalars.iter().map(|(name, _)| name));
        }
        self.drop_empty_ghost(slot);
        old.is_some()
    }

    /// Removes a ghost that has neither pods nor a CustomNodeResource.
    fn drop_empty_ghost(&mut self, slot: NodeSlot) {
        let Some(info) = self.cluster.at_slot(slot) else { return };
        if info.is_ghost() && info.pod_count() == 0 && info.identity().parts.is_none() {
            self.drop_ghost(slot);
        }
    }
}

/// The number of objects of one kind that nodes have, and the generation in which that kind last changed. The objects
/// themselves are stored with their nodes.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartCount {
    /// The number of objects.
    pub len: usize,
    /// The generation of the last event that was applied.
    pub generation: Generation,
}

impl PartCount {
    pub(crate) fn count(&mut self, come: usize, gone: usize, generation: Generation) {
        self.len = self.len + come - gone;
        self.generation = generation;
    }
}
