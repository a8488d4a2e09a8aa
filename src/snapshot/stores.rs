//! The stores of the objects beside pods and nodes.
//!
//! A store is a persistent map under the snapshot's root with a generation of
//! its own, so that whoever keeps something derived from it knows when to look
//! again. A new kind of object is a new store: its check, its apply, its view.

use std::sync::Arc;

use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, EventError, Generation, Movement, Namespace, Object,
    ObjectKind, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, PodGroup,
    Reservation, Service, StorageClass, VolumeAttachment, Workload, hash_of,
};

use super::budgets::Budgets;
use super::draft::PartCount;
use super::hash_index::HashIndex;
use super::table::Table;

/// What every store does with the events that are meant for it: check, without
/// a trace, then apply, which cannot fail; and the view that readers get, which
/// is the store itself, cheap to clone and immutable once published.
pub trait Store: Clone + Default {
    /// What it is told.
    type Event;

    /// Whether the event can be applied.
    ///
    /// # Errors
    ///
    /// Why it cannot; nothing has changed then.
    fn check(&self, event: &Self::Event) -> Result<(), EventError>;

    /// Applies an event that was checked against this very state.
    fn apply(&mut self, event: Self::Event, generation: Generation);

    /// When an event was last applied.
    fn generation(&self) -> Generation;
}

/// An object that is kept by namespace and name.
pub trait Keyed: Send + Sync + 'static {
    /// Its namespace; empty for an object of the cluster.
    fn namespace(&self) -> &str;
    /// Its name.
    fn name(&self) -> &str;
    /// Its kind, as Kubernetes writes it.
    fn kind(&self) -> &'static str;
}

impl Keyed for Namespace {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "Namespace"
    }
}

impl Keyed for Service {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "Service"
    }
}

impl Keyed for Workload {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        self.kind.as_str()
    }
}

impl Keyed for PersistentVolume {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::PersistentVolume.as_str()
    }
}

impl Keyed for PersistentVolumeClaim {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::PersistentVolumeClaim.as_str()
    }
}

impl Keyed for StorageClass {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::StorageClass.as_str()
    }
}

impl Keyed for CsiNode {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::CsiNode.as_str()
    }
}

impl Keyed for VolumeAttachment {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::VolumeAttachment.as_str()
    }
}

impl Keyed for CsiDriver {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::CsiDriver.as_str()
    }
}

impl Keyed for CsiStorageCapacity {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::CsiStorageCapacity.as_str()
    }
}

impl Keyed for PodDisruptionBudget {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::PodDisruptionBudget.as_str()
    }
}

impl Keyed for PodGroup {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::PodGroup.as_str()
    }
}

impl Keyed for Reservation {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::Reservation.as_str()
    }
}

impl Keyed for Movement {
    fn namespace(&self) -> &str {
        ""
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        ObjectKind::Movement.as_str()
    }
}

/// What an [`ObjectStore`] is told.
#[derive(Clone, Debug)]
pub enum ObjectEvent<T> {
    /// The object is new, or replaces the one of its name.
    Put(Arc<T>),
    /// The object with this kind, namespace and name is gone.
    Delete {
        /// Its kind, as Kubernetes writes it.
        kind: &'static str,
        /// Its namespace; empty for an object of the cluster.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Objects of one kind by namespace and name.
pub struct ObjectStore<T: Send + Sync + 'static> {
    objects: Table<Arc<T>>,
    index: HashIndex,
    next: u32,
    len: usize,
    generation: Generation,
}

impl<T: Send + Sync + 'static> Clone for ObjectStore<T> {
    fn clone(&self) -> Self {
        ObjectStore { objects: self.objects.clone(), index: self.index.clone(), ..*self }
    }
}

impl<T: Send + Sync + 'static> Default for ObjectStore<T> {
    fn default() -> Self {
        ObjectStore {
            objects: Table::default(),
            index: HashIndex::default(),
            next: 0,
            len: 0,
            generation: Generation::ZERO,
        }
    }
}

impl<T: Keyed> ObjectStore<T> {
    /// The object of this namespace (empty for an object of the cluster) and
    /// name. O(log n).
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(self.number(namespace, name)?)
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.iter().map(|(_, object)| object)
    }

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

    /// The object with this number, by which one keeps track of it while it is there.
    pub(crate) fn at(&self, number: u32) -> Option<&Arc<T>> {
        self.objects.get(number)
    }

    pub(crate) fn number(&self, namespace: &str, name: &str) -> Option<u32> {
        self.index.find(hash_of(&(namespace, name)), |number| {
            self.objects
                .get(number)
                .is_some_and(|object| object.namespace() == namespace && object.name() == name)
        })
    }

    /// The same objects in a store and an index made anew. O(n log n).
    fn renewed(&self, generation: Generation) -> ObjectStore<T> {
        let mut renewed = ObjectStore { generation, ..ObjectStore::default() };
        for object in self.iter() {
            renewed.put(object.clone(), generation);
        }
        renewed
    }

    /// Loses the index, for tests.
    #[cfg(test)]
    pub(crate) fn damage_index(&mut self) {
        self.index = HashIndex::default();
    }

    pub(super) fn check_room(&self) -> Result<(), EventError> {
        if self.next == u32::MAX { Err(EventError::Full) } else { Ok(()) }
    }

    /// Puts an object in: its number, and the one that it replaces.
    pub(super) fn put(&mut self, object: Arc<T>, generation: Generation) -> (u32, Option<Arc<T>>) {
        self.generation = generation;
        if let Some(number) = self.number(object.namespace(), object.name()) {
            let old = self.objects.get(number).cloned();
            self.objects.set(number, object);
            return (number, old);
        }
        let number = self.next;
        self.next += 1;
        self.len += 1;
        self.index.insert(hash_of(&(object.namespace(), object.name())), number);
        self.objects.set(number, object);
        (number, None)
    }

    /// Takes the object of this kind, namespace and name out: its number, and itself.
    pub(super) fn remove(
        &mut self,
        key: (&'static str, &str, &str),
        generation: Generation,
    ) -> Result<(u32, Arc<T>), EventError> {
        let known = self.number(key.1, key.2);
        let known = known.and_then(|number| Some((number, self.objects.get(number)?.clone())));
        let (number, object) = known.ok_or_else(|| not_found(key))?;
        self.generation = generation;
        self.index.remove(hash_of(&(key.1, key.2)), number);
        self.objects.remove(number);
        self.len -= 1;
        Ok((number, object))
    }
}

impl<T: Keyed> Store for ObjectStore<T> {
    type Event = ObjectEvent<T>;

    fn check(&self, event: &ObjectEvent<T>) -> Result<(), EventError> {
        match event {
            ObjectEvent::Put(_) => self.check_room(),
            ObjectEvent::Delete { kind, namespace, name } => match self.number(namespace, name) {
                Some(_) => Ok(()),
                None => Err(not_found((kind, namespace, name))),
            },
        }
    }

    fn apply(&mut self, event: ObjectEvent<T>, generation: Generation) {
        self.generation = generation;
        match event {
            ObjectEvent::Put(object) => drop(self.put(object, generation)),
            ObjectEvent::Delete { kind, namespace, name } => {
                // That it is there was checked.
                let _ = self.remove((kind, &namespace, &name), generation);
            }
        }
    }

    fn generation(&self) -> Generation {
        self.generation
    }
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
            _ => self.workloads(kind).map_or(Generation::ZERO, Store::generation),
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

fn not_found((kind, namespace, name): (&'static str, &str, &str)) -> EventError {
    EventError::ObjectNotFound { kind: kind.into(), key: format!("{namespace}/{name}") }
}

fn no_store(object: &Object) -> EventError {
    not_found((object.kind().as_str(), object.namespace(), object.name()))
}
