//! The stores of objects other than pods and nodes.
//!
//! A store is a persistent map under the snapshot's root. Each store has its own generation, so that values derived
//! from it can be cached until it changes. A macro generates the stores from the table of kinds in
//! `src/model/objects.rs`; the rules of individual kinds follow it.

use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, EventError, Generation, Movement, Namespace, Object,
    ObjectKind, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, PodGroup,
    Reservation, Service, StorageClass, VolumeAttachment, Workload, namespace_of, object_kinds,
};

use super::budgets::Budgets;
use super::draft::PartCount;
use super::object_store::{Keyed, ObjectStore, not_found};

/// Returns the namespace in which to look up an object: empty for cluster-scoped kinds.
macro_rules! scoped {
    (cluster $namespace:ident) => {
        ""
    };
    (namespaced $namespace:ident) => {
        $namespace
    };
}

macro_rules! define_stores {
    ($(
        $kind:ident $name:literal $doc:literal
        $(object($scope:ident) $type:ident in $field:ident $stores:literal)?
        $(workload $workload:ident in $workloads:ident $kept:literal)?
        $(part $part:ident)?;
    )*) => {
        $($(
            impl Keyed for $type {
                const KIND: &'static str = $name;

                fn namespace(&self) -> &str {
                    let object = self;
                    namespace_of!($scope object)
                }

                fn name(&self) -> &str {
                    &self.name
                }
            }
        )?)*

        /// The stores of all objects other than pods and nodes.
        #[derive(Clone, Default)]
        pub struct Objects {
            $($(
                #[doc = $stores]
                pub $field: ObjectStore<$type>,
            )?)*
            $($(
                #[doc = $kept]
                pub $workloads: ObjectStore<$workload>,
            )?)*
            /// The index of budgets by their selectors.
            pub(crate) budgets: Budgets,
            /// The number of NMNodes. The objects are stored with their nodes
            /// ([`NodeInfo::nm_node`](super::NodeInfo::nm_node)).
            pub nm_nodes: PartCount,
            /// The number of CustomNodeResources. The objects are stored with their nodes
            /// ([`NodeInfo::custom_node_resource`](super::NodeInfo::custom_node_resource)).
            pub custom_node_resources: PartCount,
        }

        impl Objects {
            pub(crate) fn workloads(&self, kind: ObjectKind) -> Option<&ObjectStore<Workload>> {
                match kind {
                    $($(ObjectKind::$kind => Some(&self.$workloads),)?)*
                    _ => None,
                }
            }

            fn workloads_mut(&mut self, kind: ObjectKind) -> Option<&mut ObjectStore<Workload>> {
                match kind {
                    $($(ObjectKind::$kind => Some(&mut self.$workloads),)?)*
                    _ => None,
                }
            }

            /// Returns rebuilt stores and indexes with the same objects. The counts of node parts start at zero,
            /// because those objects are stored with their nodes. O(n log n).
            pub(super) fn renewed(&self, g: Generation) -> Objects {
                let none = PartCount { len: 0, generation: g };
                let mut renewed = Objects {
                    $($($field: self.$field.renewed(g),)?)*
                    $($($workloads: self.$workloads.renewed(g),)?)*
                    budgets: Budgets::default(),
                    nm_nodes: none,
                    custom_node_resources: none,
                };
                let Objects { pod_disruption_budgets, budgets, .. } = &mut renewed;
                for budget in pod_disruption_budgets.iter() {
                    let number = pod_disruption_budgets.number(&budget.namespace, &budget.name);
                    if let Some(number) = number {
                        budgets.exchange(number, None, Some(budget));
                    }
                }
                renewed
            }

            /// Returns `true` if a store contains the object with this kind, namespace and name. Node parts are not in
            /// a store: see [`Cluster::contains_object`](super::Cluster::contains_object). O(log n).
            #[must_use]
            pub fn contains(&self, kind: ObjectKind, namespace: &str, name: &str) -> bool {
                match kind {
                    $($(ObjectKind::$type => {
                        self.$field.number(scoped!($scope namespace), name).is_some()
                    })?)*
                    $($(ObjectKind::$kind => self.$workloads.number(namespace, name).is_some(),)?)*
                    $($(ObjectKind::$part => false,)?)*
                }
            }

            /// Returns the object with this kind, namespace and name, or `None` if no store contains it. Node parts are
            /// not in a store: see [`Cluster::object`](super::Cluster::object). O(log n).
            #[must_use]
            pub fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Object> {
                match kind {
                    $($(ObjectKind::$type => {
                        let found = self.$field.get(scoped!($scope namespace), name)?;
                        Some(Object::$type(found.clone()))
                    })?)*
                    $($(ObjectKind::$kind => {
                        let found = self.$workloads.get(namespace, name)?;
                        Some(Object::$workload(found.clone()))
                    })?)*
                    $($(ObjectKind::$part => None,)?)*
                }
            }

            /// Returns the namespaces and names of all objects of a kind. Node parts are not in a store: see
            /// [`Cluster::object_keys`](super::Cluster::object_keys). O(objects).
            #[must_use]
            pub fn keys(&self, kind: ObjectKind) -> Vec<(String, String)> {
                match kind {
                    $($(ObjectKind::$type => keys(&self.$field),)?)*
                    $($(ObjectKind::$kind => keys(&self.$workloads),)?)*
                    $($(ObjectKind::$part => Vec::new(),)?)*
                }
            }

            /// Returns the generation in which an object of a kind was last added, changed or removed.
            pub(super) fn generation_of(&self, kind: ObjectKind) -> Generation {
                match kind {
                    $($(ObjectKind::$type => self.$field.generation(),)?)*
                    $($(ObjectKind::$kind => self.$workloads.generation(),)?)*
                    ObjectKind::NmNode => self.nm_nodes.generation,
                    ObjectKind::CustomNodeResource => self.custom_node_resources.generation,
                }
            }

            fn put_in_store(&mut self, object: &Object, g: Generation) -> Result<bool, EventError> {
                match object {
                    $($(Object::$type(object) => {
                        self.$field.check_room()?;
                        Ok(self.$field.put(object.clone(), g).1.is_some())
                    })?)*
                    Object::Workload(workload) => {
                        let store = self.workloads_mut(workload.kind);
                        let store = store.ok_or_else(|| no_store(object))?;
                        store.check_room()?;
                        Ok(store.put(workload.clone(), g).1.is_some())
                    }
                    // Node parts are stored with their nodes, so callers never pass them here.
                    $($(Object::$part(_) => Err(no_store(object)),)?)*
                }
            }

            fn delete_from_store(
                &mut self,
                kind: ObjectKind,
                namespace: &str,
                name: &str,
                g: Generation,
            ) -> Result<(), EventError> {
                let text = kind.as_str();
                match kind {
                    $($(ObjectKind::$type => {
                        self.$field.remove((text, scoped!($scope namespace), name), g).map(drop)
                    })?)*
                    $($(ObjectKind::$kind => {
                        self.$workloads.remove((text, namespace, name), g).map(drop)
                    })?)*
                    $($(ObjectKind::$part => Err(not_found((text, namespace, name))),)?)*
                }
            }
        }
    };
}

object_kinds!(define_stores);

impl Keyed for Workload {
    const KIND: &'static str = "Workload";

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn keys<T: Keyed>(store: &ObjectStore<T>) -> Vec<(String, String)> {
    store.iter().map(|o| (o.namespace().to_owned(), o.name().to_owned())).collect()
}

impl Objects {
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

    /// Adds or replaces an object if there is room, and returns whether it replaced one. The caller applies the effects
    /// of Reservations and Movements.
    pub(crate) fn put(&mut self, object: &Object, g: Generation) -> Result<bool, EventError> {
        let Object::PodDisruptionBudget(budget) = object else {
            return self.put_in_store(object, g);
        };
        self.pod_disruption_budgets.check_room()?;
        let (number, old) = self.pod_disruption_budgets.put(budget.clone(), g);
        self.budgets.exchange(number, old.as_deref(), Some(budget));
        Ok(old.is_some())
    }

    /// Removes an object, if it exists. The caller applies the effects of Reservations and Movements.
    pub(crate) fn delete(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        g: Generation,
    ) -> Result<(), EventError> {
        if kind != ObjectKind::PodDisruptionBudget {
            return self.delete_from_store(kind, namespace, name, g);
        }
        let key = (kind.as_str(), namespace, name);
        let (number, old) = self.pod_disruption_budgets.remove(key, g)?;
        self.budgets.exchange(number, Some(&old), None);
        Ok(())
    }
}

fn no_store(object: &Object) -> EventError {
    not_found((object.kind().as_str(), object.namespace(), object.name()))
}
