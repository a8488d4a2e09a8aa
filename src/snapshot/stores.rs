//! The stores of the objects beside pods and nodes.
//!
//! A store is a persistent map under the snapshot's root with a generation of its own, so that a reader that keeps
//! something derived from it knows when to look again.

use std::sync::Arc;

use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, EventError, Generation, Movement, Namespace, Object,
    ObjectKind, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, PodGroup,
    Reservation, Service, StorageClass, VolumeAttachment, Workload,
};

use super::budgets::Budgets;
use super::draft::PartCount;
use super::object_store::{Keyed, ObjectStore, not_found};

/// What stores know of the types of objects.
macro_rules! keyed {
    ($($type:ident, $kind:expr $(, $namespace:ident)?;)*) => {$(
        impl Keyed for $type {
            const KIND: &'static str = $kind;
            $(
                fn namespace(&self) -> &str {
                    &self.$namespace
                }
            )?
            fn name(&self) -> &str {
                &self.name
            }
        }
    )*};
}

keyed! {
    Namespace, "Namespace";
    Service, "Service", namespace;
    Workload, "Workload", namespace;
    PersistentVolume, "PersistentVolume";
    PersistentVolumeClaim, "PersistentVolumeClaim", namespace;
    StorageClass, "StorageClass";
    CsiNode, "CSINode";
    VolumeAttachment, "VolumeAttachment";
    CsiDriver, "CSIDriver";
    CsiStorageCapacity, "CSIStorageCapacity", namespace;
    PodDisruptionBudget, "PodDisruptionBudget", namespace;
    PodGroup, "PodGroup", namespace;
    Reservation, "Reservation", namespace;
    Movement, "Movement";
}

/// All stores of objects beside pods and nodes.
#[derive(Clone, Default)]
pub struct Objects {
    /// Namespaces.
    pub namespaces: ObjectStore<Namespace>,
    /// Services.
    pub services: ObjectStore<Service>,
    /// Replication controllers.
    pub replication_controllers: ObjectStore<Workload>,
    /// Replica sets.
    pub replica_sets: ObjectStore<Workload>,
    /// Stateful sets.
    pub stateful_sets: ObjectStore<Workload>,
    /// Daemon sets: owners of pods, which no default spreading looks at.
    pub daemon_sets: ObjectStore<Workload>,
    /// PersistentVolumes.
    pub persistent_volumes: ObjectStore<PersistentVolume>,
    /// PersistentVolumeClaims.
    pub persistent_volume_claims: ObjectStore<PersistentVolumeClaim>,
    /// StorageClasses.
    pub storage_classes: ObjectStore<StorageClass>,
    /// CSINodes.
    pub csi_nodes: ObjectStore<CsiNode>,
    /// VolumeAttachments.
    pub volume_attachments: ObjectStore<VolumeAttachment>,
    /// CSIDrivers.
    pub csi_drivers: ObjectStore<CsiDriver>,
    /// CSIStorageCapacities.
    pub csi_storage_capacities: ObjectStore<CsiStorageCapacity>,
    /// PodDisruptionBudgets. Which are about a pod says
    /// [`Cluster::budgets_for`](super::Cluster::budgets_for).
    pub pod_disruption_budgets: ObjectStore<PodDisruptionBudget>,
    /// The same, by what they require of pods.
    pub(crate) budgets: Budgets,
    /// PodGroups. How many pods of one are placed says
    /// [`Cluster::placed_members`](super::Cluster::placed_members).
    pub pod_groups: ObjectStore<PodGroup>,
    /// NMNodes, counted: each is with its node
    /// ([`NodeInfo::nm_node`](super::NodeInfo::nm_node)).
    pub nm_nodes: PartCount,
    /// CustomNodeResources, counted: each is with its node
    /// ([`NodeInfo::custom_node_resource`](super::NodeInfo::custom_node_resource)).
    pub custom_node_resources: PartCount,
    /// Reservations. What places they hold says
    /// [`Cluster::reservations`](super::Cluster::reservations).
    pub reservations: ObjectStore<Reservation>,
    /// Movements. What they suggest says [`Cluster::movements`](super::Cluster::movements).
    pub movements: ObjectStore<Movement>,
}

impl Objects {
    pub(crate) fn workloads(&self, kind: ObjectKind) -> Option<&ObjectStore<Workload>> {
        match kind {
            ObjectKind::DaemonSet => Some(&self.daemon_sets),
            ObjectKind::ReplicationController => Some(&self.replication_controllers),
            ObjectKind::ReplicaSet => Some(&self.replica_sets),
            ObjectKind::StatefulSet => Some(&self.stateful_sets),
            _ => None,
        }
    }

    fn workloads_mut(&mut self, kind: ObjectKind) -> Option<&mut ObjectStore<Workload>> {
        match kind {
            ObjectKind::DaemonSet => Some(&mut self.daemon_sets),
            ObjectKind::ReplicationController => Some(&mut self.replication_controllers),
            ObjectKind::ReplicaSet => Some(&mut self.replica_sets),
            ObjectKind::StatefulSet => Some(&mut self.stateful_sets),
            _ => None,
        }
    }

    pub(crate) fn count_part(
        &mut self,
        kind: ObjectKind,
        come: usize,
        gone: usize,
        generation: Generation,
    ) {
        match kind {
            ObjectKind::NmNode => self.nm_nodes.count(come, gone, generation),
            _ => self.custom_node_resources.count(come, gone, generation),
        }
    }

    /// The same objects in stores and indexes made anew, without the parts of nodes, which are with their nodes.
    /// O(n log n).
    pub(super) fn renewed(&self, g: Generation) -> Objects {
        let mut none = PartCount::default();
        none.count(0, 0, g);
        let budgets = self.pod_disruption_budgets.renewed(g);
        let mut by_requirement = Budgets::default();
        for budget in budgets.iter() {
            if let Some(number) = budgets.number(&budget.namespace, &budget.name) {
                by_requirement.exchange(number, None, Some(budget));
            }
        }
        Objects {
            namespaces: self.namespaces.renewed(g),
            services: self.services.renewed(g),
            replication_controllers: self.replication_controllers.renewed(g),
            replica_sets: self.replica_sets.renewed(g),
            stateful_sets: self.stateful_sets.renewed(g),
            daemon_sets: self.daemon_sets.renewed(g),
            persistent_volumes: self.persistent_volumes.renewed(g),
            persistent_volume_claims: self.persistent_volume_claims.renewed(g),
            storage_classes: self.storage_classes.renewed(g),
            csi_nodes: self.csi_nodes.renewed(g),
            volume_attachments: self.volume_attachments.renewed(g),
            csi_drivers: self.csi_drivers.renewed(g),
            csi_storage_capacities: self.csi_storage_capacities.renewed(g),
            pod_disruption_budgets: budgets,
            budgets: by_requirement,
            pod_groups: self.pod_groups.renewed(g),
            nm_nodes: none,
            custom_node_resources: none,
            reservations: self.reservations.renewed(g),
            movements: self.movements.renewed(g),
        }
    }

    /// Whether there is an object of this kind, namespace and name; parts of nodes
    /// are not among them
    /// ([`Cluster::contains_object`](super::Cluster::contains_object)).
    #[must_use]
    pub fn contains(&self, kind: ObjectKind, namespace: &str, name: &str) -> bool {
        match kind {
            ObjectKind::Namespace => self.namespaces.get("", name).is_some(),
            ObjectKind::Service => self.services.get(namespace, name).is_some(),
            ObjectKind::PersistentVolume => self.persistent_volumes.get("", name).is_some(),
            ObjectKind::PersistentVolumeClaim => {
                self.persistent_volume_claims.get(namespace, name).is_some()
            }
            ObjectKind::StorageClass => self.storage_classes.get("", name).is_some(),
            ObjectKind::CsiNode => self.csi_nodes.get("", name).is_some(),
            ObjectKind::VolumeAttachment => self.volume_attachments.get("", name).is_some(),
            ObjectKind::CsiDriver => self.csi_drivers.get("", name).is_some(),
            ObjectKind::CsiStorageCapacity => {
                self.csi_storage_capacities.get(namespace, name).is_some()
            }
            ObjectKind::PodDisruptionBudget => {
                self.pod_disruption_budgets.get(namespace, name).is_some()
            }
            ObjectKind::PodGroup => self.pod_groups.get(namespace, name).is_some(),
            ObjectKind::Reservation => self.reservations.get(namespace, name).is_some(),
            ObjectKind::Movement => self.movements.get("", name).is_some(),
            _ => self.workloads(kind).is_some_and(|store| store.get(namespace, name).is_some()),
        }
    }

    /// The object of this kind, namespace and name; parts of nodes are not among
    /// them ([`Cluster::object`](super::Cluster::object)).
    #[must_use]
    pub fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Object> {
        fn of<T: Keyed>(store: &ObjectStore<T>, namespace: &str, name: &str) -> Option<Arc<T>> {
            store.get(namespace, name).cloned()
        }
        match kind {
            ObjectKind::Namespace => of(&self.namespaces, "", name).map(Object::Namespace),
            ObjectKind::Service => of(&self.services, namespace, name).map(Object::Service),
            ObjectKind::PersistentVolume => {
                of(&self.persistent_volumes, "", name).map(Object::PersistentVolume)
            }
            ObjectKind::PersistentVolumeClaim => {
                let found = of(&self.persistent_volume_claims, namespace, name);
                found.map(Object::PersistentVolumeClaim)
            }
            ObjectKind::StorageClass => {
                of(&self.storage_classes, "", name).map(Object::StorageClass)
            }
            ObjectKind::CsiNode => of(&self.csi_nodes, "", name).map(Object::CsiNode),
            ObjectKind::VolumeAttachment => {
                of(&self.volume_attachments, "", name).map(Object::VolumeAttachment)
            }
            ObjectKind::CsiDriver => of(&self.csi_drivers, "", name).map(Object::CsiDriver),
            ObjectKind::CsiStorageCapacity => {
                let found = of(&self.csi_storage_capacities, namespace, name);
                found.map(Object::CsiStorageCapacity)
            }
            ObjectKind::PodDisruptionBudget => {
                of(&self.pod_disruption_budgets, namespace, name).map(Object::PodDisruptionBudget)
            }
            ObjectKind::PodGroup => of(&self.pod_groups, namespace, name).map(Object::PodGroup),
            ObjectKind::Reservation => {
                of(&self.reservations, namespace, name).map(Object::Reservation)
            }
            ObjectKind::Movement => of(&self.movements, "", name).map(Object::Movement),
            _ => self
                .workloads(kind)
                .and_then(|store| of(store, namespace, name))
                .map(Object::Workload),
        }
    }

    /// The namespaces and names of all objects of a kind; parts of nodes are not
    /// among them ([`Cluster::object_keys`](super::Cluster::object_keys)).
    #[must_use]
    pub fn keys(&self, kind: ObjectKind) -> Vec<(String, String)> {
        fn keys<T: Keyed>(store: &ObjectStore<T>) -> Vec<(String, String)> {
            store.iter().map(|o| (o.namespace().to_owned(), o.name().to_owned())).collect()
        }
        match kind {
            ObjectKind::Namespace => keys(&self.namespaces),
            ObjectKind::Service => keys(&self.services),
            ObjectKind::PersistentVolume => keys(&self.persistent_volumes),
            ObjectKind::PersistentVolumeClaim => keys(&self.persistent_volume_claims),
            ObjectKind::StorageClass => keys(&self.storage_classes),
            ObjectKind::CsiNode => keys(&self.csi_nodes),
            ObjectKind::VolumeAttachment => keys(&self.volume_attachments),
            ObjectKind::CsiDriver => keys(&self.csi_drivers),
            ObjectKind::CsiStorageCapacity => keys(&self.csi_storage_capacities),
            ObjectKind::PodDisruptionBudget => keys(&self.pod_disruption_budgets),
            ObjectKind::PodGroup => keys(&self.pod_groups),
            ObjectKind::Reservation => keys(&self.reservations),
            ObjectKind::Movement => keys(&self.movements),
            _ => self.workloads(kind).map(keys).unwrap_or_default(),
        }
    }

    /// When an object of a kind last came, changed or went.
    pub(super) fn generation_of(&self, kind: ObjectKind) -> Generation {
        match kind {
            ObjectKind::Namespace => self.namespaces.generation(),
            ObjectKind::Service => self.services.generation(),
            ObjectKind::PersistentVolume => self.persistent_volumes.generation(),
            ObjectKind::PersistentVolumeClaim => self.persistent_volume_claims.generation(),
            ObjectKind::StorageClass => self.storage_classes.generation(),
            ObjectKind::CsiNode => self.csi_nodes.generation(),
            ObjectKind::VolumeAttachment => self.volume_attachments.generation(),
            ObjectKind::CsiDriver => self.csi_drivers.generation(),
            ObjectKind::CsiStorageCapacity => self.csi_storage_capacities.generation(),
            ObjectKind::PodDisruptionBudget => self.pod_disruption_budgets.generation(),
            ObjectKind::PodGroup => self.pod_groups.generation(),
            ObjectKind::Reservation => self.reservations.generation(),
            ObjectKind::Movement => self.movements.generation(),
            ObjectKind::NmNode => self.nm_nodes.generation(),
            ObjectKind::CustomNodeResource => self.custom_node_resources.generation(),
            _ => self.workloads(kind).map_or(Generation::ZERO, ObjectStore::generation),
        }
    }

    /// Checks and applies: the object is new, or replaces the one of its name; says
    /// whether there was one.
    pub(crate) fn put(&mut self, object: &Object, g: Generation) -> Result<bool, EventError> {
        fn run<T: Keyed>(
            store: &mut ObjectStore<T>,
            object: Arc<T>,
            g: Generation,
        ) -> Result<bool, EventError> {
            store.check_room()?;
            Ok(store.put(object, g).1.is_some())
        }
        match object {
            Object::Namespace(object) => run(&mut self.namespaces, object.clone(), g),
            Object::Service(object) => run(&mut self.services, object.clone(), g),
            Object::PersistentVolume(object) => {
                run(&mut self.persistent_volumes, object.clone(), g)
            }
            Object::PersistentVolumeClaim(object) => {
                run(&mut self.persistent_volume_claims, object.clone(), g)
            }
            Object::StorageClass(object) => run(&mut self.storage_classes, object.clone(), g),
            Object::CsiNode(object) => run(&mut self.csi_nodes, object.clone(), g),
            Object::VolumeAttachment(object) => {
                run(&mut self.volume_attachments, object.clone(), g)
            }
            Object::CsiDriver(object) => run(&mut self.csi_drivers, object.clone(), g),
            Object::CsiStorageCapacity(object) => {
                run(&mut self.csi_storage_capacities, object.clone(), g)
            }
            Object::PodDisruptionBudget(budget) => {
                self.pod_disruption_budgets.check_room()?;
                let (number, old) = self.pod_disruption_budgets.put(budget.clone(), g);
                self.budgets.exchange(number, old.as_deref(), Some(budget));
                Ok(old.is_some())
            }
            Object::PodGroup(object) => run(&mut self.pod_groups, object.clone(), g),
            Object::Workload(workload) => match self.workloads_mut(workload.kind) {
                Some(store) => run(store, workload.clone(), g),
                None => Err(no_store(object)),
            },
            // Kept with their nodes, or put by who keeps what they make of pods: these never
            // come here.
            Object::NmNode(_)
            | Object::CustomNodeResource(_)
            | Object::Reservation(_)
            | Object::Movement(_) => Err(no_store(object)),
        }
    }

    /// Checks and applies: the object is gone.
    pub(crate) fn delete(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        g: Generation,
    ) -> Result<(), EventError> {
        fn run<T: Keyed>(
            store: &mut ObjectStore<T>,
            (kind, namespace, name): (&'static str, &str, &str),
            g: Generation,
        ) -> Result<(), EventError> {
            store.remove((kind, namespace, name), g).map(drop)
        }
        let key = (kind.as_str(), namespace, name);
        match kind {
            ObjectKind::Namespace => run(&mut self.namespaces, (key.0, "", name), g),
            ObjectKind::Service => run(&mut self.services, key, g),
            ObjectKind::PersistentVolume => run(&mut self.persistent_volumes, (key.0, "", name), g),
            ObjectKind::PersistentVolumeClaim => run(&mut self.persistent_volume_claims, key, g),
            ObjectKind::StorageClass => run(&mut self.storage_classes, (key.0, "", name), g),
            ObjectKind::CsiNode => run(&mut self.csi_nodes, (key.0, "", name), g),
            ObjectKind::VolumeAttachment => run(&mut self.volume_attachments, (key.0, "", name), g),
            ObjectKind::CsiDriver => run(&mut self.csi_drivers, (key.0, "", name), g),
            ObjectKind::CsiStorageCapacity => run(&mut self.csi_storage_capacities, key, g),
            ObjectKind::PodDisruptionBudget => {
                let (number, old) = self.pod_disruption_budgets.remove(key, g)?;
                self.budgets.exchange(number, Some(&old), None);
                Ok(())
            }
            ObjectKind::PodGroup => run(&mut self.pod_groups, key, g),
            _ => match self.workloads_mut(kind) {
                Some(store) => run(store, key, g),
                None => Err(not_found(key)),
            },
        }
    }
}

fn no_store(object: &Object) -> EventError {
    not_found((object.kind().as_str(), object.namespace(), object.name()))
}
