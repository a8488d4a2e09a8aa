//! Objects of any kind, wherever a version has them: in a store, or as a part of a node.

use crate::model::{Generation, Object, ObjectKind};

use super::cluster::Cluster;

impl Cluster {
    /// Whether there is an object of this kind, namespace and name, in a store or as
    /// a part of a node. O(log n).
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

    /// The object of this kind, namespace and name, in a store or as a part of a
    /// node. O(log n).
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

    /// When an object of a kind last came, changed or went; 0 where none ever did.
    #[must_use]
    pub fn generation_of(&self, kind: ObjectKind) -> Generation {
        self.objects().generation_of(kind)
    }

    /// The namespaces and names of all objects of a kind, in stores or as parts of
    /// nodes. O(objects), or O(nodes) for parts of nodes.
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

    use crate::log::Event;
    use crate::model::{NmNode, Object, ObjectKind, PodDisruptionBudget};
    use crate::{Config, Engine};

    #[test]
    fn a_stored_object_is_the_one_of_its_event() {
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
        // Nor is one copied on its way out.
        let Some(Object::NmNode(found)) = snapshot.object(ObjectKind::NmNode, "", "n") else {
            panic!("an NMNode")
        };
        assert!(Arc::ptr_eq(&found, &nm_node));
        let found = snapshot.object(ObjectKind::PodDisruptionBudget, "", "b");
        let Some(Object::PodDisruptionBudget(found)) = found else { panic!("a budget") };
        assert!(Arc::ptr_eq(&found, &budget));
    }
}
