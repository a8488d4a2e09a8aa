//! Device classes, and the extended resources that they supply.

use std::sync::Arc;

use crate::model::{DeviceClass, IMPLICIT_PREFIX};

/// The device classes by name.
///
/// A class supplies the extended resource that it names, and an implicit one with the prefix `IMPLICIT_PREFIX`. If
/// several classes name the same resource, the newest class supplies it, and of classes of the same age the one whose
/// name is lowest. In kube-scheduler the result also depends on the order in which the classes arrive.
#[derive(Clone, Default)]
pub struct Classes {
    classes: imbl::OrdMap<Arc<str>, Arc<DeviceClass>>,
    suppliers: imbl::HashMap<Arc<str>, Arc<str>>,
}

impl Classes {
    /// Returns the class of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.classes.get(name)
    }

    /// Returns all classes, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<DeviceClass>> {
        self.classes.values()
    }

    /// Returns the class that supplies an extended resource.
    #[must_use]
    pub fn supplier(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        match resource.strip_prefix(IMPLICIT_PREFIX) {
            Some(class) => self.classes.get(class),
            None => self.classes.get(&**self.suppliers.get(resource)?),
        }
    }

    pub(super) fn put(&mut self, class: Arc<DeviceClass>) {
        let named = class.spec.extended_resource_name.clone();
        let old = self.classes.insert(class.name().clone(), class);
        let old = old.and_then(|old| old.spec.extended_resource_name.clone());
        [old, named].into_iter().flatten().for_each(|resource| self.resolve(&resource));
    }

    pub(super) fn delete(&mut self, name: &str) {
        let old = self.classes.remove(name);
        if let Some(resource) = old.and_then(|old| old.spec.extended_resource_name.clone()) {
            self.resolve(&resource);
        }
    }

    /// Chooses the supplier of an extended resource. O(classes).
    fn resolve(&mut self, resource: &Arc<str>) {
        let named = self
            .classes
            .values()
            .filter(|c| c.spec.extended_resource_name.as_ref() == Some(resource));
        // The first of equal maxima would be lost: `max_by` returns the last one.
        let newest = named.reduce(|best, class| {
            let (old, new) =
                (&best.metadata.creation_timestamp, &class.metadata.creation_timestamp);
            if new > old { class } else { best }
        });
        match newest.map(|class| class.name().clone()) {
            Some(class) => drop(self.suppliers.insert(resource.clone(), class)),
            None => drop(self.suppliers.remove(resource)),
        }
    }
}
