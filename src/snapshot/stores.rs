//! The stores of the objects beside pods and nodes.
//!
//! A store is a persistent map under the snapshot's root with a generation of its own, so that a reader that keeps
//! something derived from it knows when to look again. The stores follow from the table of kinds in
//! `src/model/objects.rs`; what is different about a kind is written out below it.

use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, EventError, Generation, Movement, Namespace, Object,
    ObjectKind, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget, PodGroup,
    Reservation, Service, StorageClass, VolumeAttachment, Workload, namespace_of, object_kinds,
};

use super::budgets::Budgets;
use super::draft::PartCount;
use super::object_store::{Keyed, ObjectStore, not_found};

/// The namespace to look in for an object.
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

        /// All stores of objects beside pods and nodes.
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
            /// The budgets by what they require of pods.
            pub(crate) budgets: Budgets,
            /// NMNodes, counted: each is with its node
            /// ([`NodeInfo::nm_node`](super::NodeInfo::nm_node)).
            pub nm_nodes: PartCount,
            /// CustomNodeResources, counted: each is with its node
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

            /// The same objects in stores and indexes made anew, without the parts of nodes, which are with their
            /// nodes. O(n log n).
            pub(super) fn renewed(&self, g: Generation) -> Objects {
                let mut none = PartCount::default();
                none.count(0, 0, g);
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

            /// Whether there is an object of this kind, namespace and name; parts of nodes
            /// are not among them
            /// ([`Cluster::contains_object`](super::Cluster::contains_object)).
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

            /// The object of this kind, namespace and name; parts of nodes are not among
            /// them ([`Cluster::object`](super::Cluster::object)).
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

            /// The namespaces and names of all objects of a kind; parts of nodes are not
            /// among them ([`Cluster::object_keys`](super::Cluster::object_keys)).
            #[must_use]
            pub fn keys(&self, kind: ObjectKind) -> Vec<(String, String)> {
                match kind {
                    $($(ObjectKind::$type => keys(&self.$field),)?)*
                    $($(ObjectKind::$kind => keys(&self.$workloads),)?)*
                    $($(ObjectKind::$part => Vec::new(),)?)*
                }
            }

            /// When an object of a kind last came, changed or went.
            pub(super) fn generation_of(&self, kind: ObjectKind) -> Generation {
                match kind {
                    $($(ObjectKind::$type => self.$field.generation(),)?)*
                    $($(ObjectKind::$kind => self.$workloads.generation(),)?)*
                    ObjectKind::NmNode => self.nm_nodes.generation(),
                    ObjectKind::CustomNodeResource => self.custom_node_resources.generation(),
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
                    // Kept with their nodes: these never come here.
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

    /// Checks and applies: the object is new, or replaces the one of its name; says
    /// whether there was one. What Reservations and Movements do beside that is not done here.
    pub(crate) fn put(&mut self, object: &Object, g: Generation) -> Result<bool, EventError> {
        let Object::PodDisruptionBudget(budget) = object else {
            return self.put_in_store(object, g);
        };
        self.pod_disruption_budgets.check_room()?;
        let (number, old) = self.pod_disruption_budgets.put(budget.clone(), g);
        self.budgets.exchange(number, old.as_deref(), Some(budget));
        Ok(old.is_some())
    }

    /// Checks and applies: the object is gone. What Reservations and Movements do beside that is not done here.
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
