//! Lookup of objects of any kind, whether they are in a store or part of a node.

use crate::model::{Generation, Object, ObjectKind};

use super::cluster::Cluster;

impl Cluster {
    /// Returns `true` if the object with this kind, namespace and name exists, in a store or as a part of a node. The
    /// namespace of a cluster-scoped object is ignored. O(log n).
    #[must_use]
    pub fn contains_object(&self, kind: ObjectKind, namespace: &str, name: &str) -> bool {
        match kind {
            ObjectKind::NmNode => self.any_node(name).is_some_and(|node| node.nm_node().is_some()),
            ObjectKind::CustomNodeResource => {
                self.any_node(name).is_some_and(|node| node.custom_node_resource().is_some())
            }
            _ => self.objects().contains(kind, namespace, name),
        }
    }

    /// Returns the object with this kind, namespace and name, in a store or as a part of a node, or `None` if it does
    /// not exist. The namespace of a cluster-scoped object is ignored. O(log n).
    #[must_use]
    pub fn object(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Object> {
        match kind {
            ObjectKind::NmNode => {
                let found = self.any_node(name)?.nm_node()?;
                Some(Object::NmNode(found.clone()))
            }
            ObjectKind::CustomNodeResource => {
                let found = self.any_node(name)?.custom_node_resource()?;
                Some(Object::CustomNodeResource(found.clone()))
            }
            _ => self.objects().get(kind, namespace, name),
        }
    }

    /// Returns the generation in which an object of a kind was last added, changed or removed, or 0 if that never
    /// happened. A cache of values derived from these objects is valid until the generation changes. O(1).
    #[must_use]
    pub fn generation_of(&self, kind: ObjectKind) -> Generation {
        self.objects().generation_of(kind)
    }

    /// Returns the namespaces and names of all objects of a kind, in arbitrary order. O(objects), or O(nodes) for parts
    /// of nodes.
    #[must_use]
    pub fn object_keys(&self, kind: ObjectKind) -> Vec<(String, String)> {
        if !kind.is_node_part() {
            return self.objects().keys(kind);
        }
        self.everything()
            .filter(|node| match kind {
                ObjectKind::NmNode => node.nm_node().is_some(),
                _ => node.custom_node_resource().is_some(),
            })
            .map(|node| (String::new(), node.name().to_string()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::cache::{Config, Engine};
    use crate::log::Event;
    use crate::model::{NmNode, Object, ObjectKind, PodDisruptionBudget};

    #[test]
    fn objects_are_stored_and_returned_without_a_copy() {
        let engine = Engine::shared(Config::default());
        let budget = Arc::new(PodDisruptionBudget { name: "b".into(), ..Default::default() });
        let nm_node = Arc::new(NmNode::new("n"));
        for object in [Object::from(budget.clone()), Object::from(nm_node.clone())] {
            engine.submit(Event::PutObject(object)).unwrap().wait().unwrap().unwrap();
        }
        let snapshot = engine.with_writer(|writer| writer.snapshot()).unwrap();
        let stored = snapshot.objects().pod_disruption_budgets.get("", "b").unwrap();
        assert!(Arc::ptr_eq(stored, &budget));
        let stored = snapshot.node("n").unwrap().nm_node().unwrap();
        assert!(Arc::ptr_eq(stored, &nm_node));
        // Looking up an object does not copy it, either.
        let Some(Object::NmNode(found)) = snapshot.object(ObjectKind::NmNode, "", "n") else {
            panic!("an NMNode")
        };
        assert!(Arc::ptr_eq(&found, &nm_node));
        let found = snapshot.object(ObjectKind::PodDisruptionBudget, "", "b");
        let Some(Object::PodDisruptionBudget(found)) = found else { panic!("a budget") };
        assert!(Arc::ptr_eq(&found, &budget));
    }
}
