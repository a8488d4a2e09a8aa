//! What nodes are made of: Node, NMNode and CustomNodeResource of one name.
//!
//! A node is listed while it has a Node or an NMNode. A CustomNodeResource or pods
//! alone make a ghost, which goes with the last of them.

use std::sync::Arc;

use crate::model::{
    CustomNodeResource, EventError, Generation, Name, Node, Object, ObjectKind, Resources,
};

use super::super::chunk::NodeSlot;
use super::super::lane::Parts;
use super::Draft;

/// Most resources that a part may name.
const LONGEST: usize = u16::MAX as usize;

impl Draft {
    /// Adds a node, or replaces the Node of its name: a node that is new, or was a
    /// ghost, or has another zone than before, is at the end of its zone then.
    /// O(log n).
    pub(crate) fn put_node(&mut self, node: Arc<Node>) {
        let name = node.name.clone();
        let known = self.cluster.any_node(&name);
        let old = known.and_then(|info| info.kubelet_node().cloned());
        self.exchange_images(old.as_deref(), Some(&node));
        self.change_parts(&name, |parts| parts.node = Some(node));
    }

    /// Whether there is a Node of this name.
    pub(crate) fn check_remove_node(&self, name: &Name) -> Result<(), EventError> {
        match self.cluster.node(name).and_then(|info| info.kubelet_node()) {
            Some(_) => Ok(()),
            None => Err(EventError::NodeNotFound { name: name.clone() }),
        }
    }

    /// Removes a Node; its node is a ghost while pods or a CustomNodeResource
    /// remain, and listed while an NMNode does. O(log n).
    pub(crate) fn remove_node(&mut self, name: &Name) {
        let known = self.cluster.any_node(name);
        let Some(old) = known.and_then(|info| info.kubelet_node().cloned()) else { return };
        self.exchange_images(Some(&old), None);
        self.change_parts(name, |parts| parts.node = None);
    }

    /// Checks and applies: a part of a node is new, or replaces the one of its name.
    pub(crate) fn put_part(&mut self, part: &Object) -> Result<(), EventError> {
        let known = self.cluster.contains_object(part.kind(), "", part.name());
        match part {
            Object::NmNode(nm_node) => {
                self.check_part(&nm_node.name, nm_node.allocatable.len())?;
                self.change_parts(part.name(), |parts| parts.nm_node = Some(nm_node.clone()));
            }
            Object::CustomNodeResource(custom) => {
                self.check_part(&custom.name, custom.allocatable.resources.scalars.len())?;
                self.change_custom(part.name(), Some(custom.clone()));
            }
            _ => return Ok(()),
        }
        let generation = self.cluster.generation;
        self.objects().count_part(part.kind(), usize::from(!known), 0, generation);
        Ok(())
    }

    /// Checks and applies: a part of a node is gone.
    pub(crate) fn delete_part(&mut self, kind: ObjectKind, name: &str) -> Result<(), EventError> {
        let found = self.cluster.any_node(name).map(|info| info.name().clone());
        let Some(name) = found.filter(|name| self.cluster.contains_object(kind, "", name)) else {
            return Err(EventError::ObjectNotFound {
                kind: kind.as_str(),
                key: format!("/{name}"),
            });
        };
        match kind {
            ObjectKind::NmNode => self.change_parts(&name, |parts| parts.nm_node = None),
            _ => self.change_custom(&name, None),
        }
        let generation = self.cluster.generation;
        self.objects().count_part(kind, 0, 1, generation);
        Ok(())
    }

    fn check_part(&self, name: &Name, resources: usize) -> Result<(), EventError> {
        if resources > LONGEST {
            let name = name.chars().take(64).collect();
            return Err(EventError::TooLong { what: "a list in the status", name });
        }
        self.check_room()
    }

    /// Changes what a node is made of, and makes it anew from that.
    fn change_parts(&mut self, name: &Name, change: impl FnOnce(&mut Parts)) {
        let known = self.cluster.any_node(name);
        let mut parts = known.map(|info| info.identity().parts()).unwrap_or_default();
        change(&mut parts);
        let merged = parts.merged();
        let kept = parts.kept();
        match merged {
            Some(node) => self.list_node(node, kept),
            None => self.unlist_node(name, kept),
        }
    }

    /// Puts what best-effort pods may take of a node in the place of what they
    /// might before, or takes that away.
    fn change_custom(&mut self, name: &Name, custom: Option<Arc<CustomNodeResource>>) {
        let Some(slot) = self.slot_or_ghost(name) else { return };
        let Some(info) = self.cluster.at_slot(slot) else { return };
        let old = info.custom_node_resource().cloned();
        let none = Resources::default();
        let offered = custom.as_deref().map(|custom| &custom.allocatable);
        let (resources, pods) = offered.map_or((&none, 0), |of| (&of.resources, of.pods));
        self.acquire_resources(resources.scalars.iter().map(|(name, _)| name));
        let scalars = self.scalars_of(resources);
        let kept = custom.clone();
        self.change_lane(slot, |chunk, at, generation| {
            if let Some(identity) = chunk.identity_mut(at) {
                let parts = Parts { custom: kept, ..identity.parts() };
                identity.parts = parts.kept();
            }
            chunk.set_best_effort_allocatable(at, (resources, pods), &scalars);
            chunk.requested_mut().generation[at] = generation;
        });
        if let Some(old) = old {
            self.release_resources(old.allocatable.resources.scalars.iter().map(|(name, _)| name));
        }
        self.drop_if_nothing(slot);
    }

    /// Takes a ghost away that has neither pods nor a CustomNodeResource.
    fn drop_if_nothing(&mut self, slot: NodeSlot) {
        let Some(info) = self.cluster.at_slot(slot) else { return };
        if info.is_ghost() && info.pod_count() == 0 && info.identity().parts.is_none() {
            self.drop_ghost(slot);
        }
    }
}

/// How many parts of one kind nodes have, and when one last came, changed or went.
/// The objects themselves are with their nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartCount {
    len: usize,
    generation: Generation,
}

impl PartCount {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When an event was last applied.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn count(&mut self, come: usize, gone: usize, generation: Generation) {
        self.len = self.len + come - gone;
        self.generation = generation;
    }
}
