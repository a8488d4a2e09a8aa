//! Reads movements (scheduling.godel.kubewharf.io/v1alpha1).

use super::error::{Cause, Path, ReadError};
use super::node::{name, timestamp};
use super::objects::named;
use super::wire_objects as wire;
use portolan::model::{
    Movement, MovementOwner, MovementTask, Object, OwnerKey, RecommendedNode, Uid,
};

/// Reads a movement, which a rescheduler writes and Gödel's controllers complete.
pub(super) fn read(wire: &wire::Movement<'_>, path: &Path<'_>) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let status = wire.status.clone().unwrap_or_default();
    let path_owners = path.key("status");
    let path_owners = path_owners.key("owners");
    let owners = status.owners.iter().enumerate();
    Ok(Object::from(Movement {
        name: named(&meta.name, path)?,
        creator: name(&spec.creator),
        creation_time: timestamp(
            &meta.creation_timestamp,
            &path.key("metadata").key("creationTimestamp"),
        )?,
        round: spec.generation.unwrap_or_default(),
        deleted: tasks(&spec.deleted_tasks),
        owners: owners
            .map(|(at, wire)| owner(wire, &path_owners.index(at)))
            .collect::<Result<_, _>>()?,
    }))
}

fn owner(wire: &wire::MovementOwner<'_>, path: &Path<'_>) -> Result<MovementOwner, ReadError> {
    let Some(owner) = &wire.owner else {
        return Err(ReadError::new(&path.key("owner"), Cause::Missing));
    };
    let owner = OwnerKey {
        kind: name(&owner.r#type),
        namespace: name(&owner.namespace),
        name: name(&owner.name),
        uid: name(&owner.uid),
    };
    let path = path.key("recommendedNodes");
    let nodes = wire.recommended_nodes.iter().enumerate();
    let nodes = nodes.map(|(at, wire)| recommended(wire, &path.index(at)));
    Ok(MovementOwner { owner, nodes: nodes.collect::<Result<_, _>>()? })
}

fn recommended(
    wire: &wire::RecommendedNode<'_>,
    path: &Path<'_>,
) -> Result<RecommendedNode, ReadError> {
    let count = wire.desired_pod_count.unwrap_or_default();
    let desired = u64::try_from(count).map_err(|_| {
        let path = path.key("desiredPodCount");
        ReadError::value(&path, &count.to_string(), "a number of pods, 0 or more")
    })?;
    Ok(RecommendedNode { node: name(&wire.node), desired, actual: tasks(&wire.actual_pods) })
}

fn tasks(wire: &[wire::MovementTask<'_>]) -> Box<[MovementTask]> {
    let task = |wire: &wire::MovementTask<'_>| MovementTask {
        namespace: name(&wire.namespace),
        name: name(&wire.name),
        uid: Uid::new(&wire.uid),
        node: name(&wire.node),
    };
    wire.iter().map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{read as read_text, testing::object};
    use portolan::model::{Movement, Object, Timestamp};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn read(status: Value) -> Result<Arc<Movement>, String> {
        let value = json!({
            "apiVersion": "scheduling.godel.kubewharf.io/v1alpha1", "kind": "Movement",
            "metadata": { "name": "m", "creationTimestamp": "1970-01-01T00:00:07Z" },
            "spec": {
                "creator": "BinPacking", "generation": 3,
                "deletedTasks": [{ "name": "old", "namespace": "n", "uid": "o", "node": "n9" }],
            },
            "status": status,
        });
        match object("Movement", &value) {
            Ok(Object::Movement(movement)) => Ok(movement),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn suggesting(nodes: Value) -> Value {
        let owner = json!({ "type": "ReplicaSet", "namespace": "n", "name": "rs", "uid": "r" });
        json!({ "owners": [{ "owner": owner, "recommendedNodes": nodes }] })
    }

    #[test]
    fn a_movement_names_pods_to_move_and_suggested_nodes() {
        let actual = json!([{ "name": "new", "namespace": "n", "uid": "a", "node": "n1" }]);
        let nodes = json!([{ "node": "n1", "desiredPodCount": 2, "actualPods": actual }]);
        let movement = read(suggesting(nodes)).unwrap();
        assert_eq!((&*movement.name, &*movement.creator, movement.round), ("m", "BinPacking", 3));
        assert_eq!(movement.creation_time, Some(Timestamp::from_secs(7)));
        let gone = &movement.deleted[0];
        assert_eq!((gone.uid.to_string(), &*gone.node), ("o".to_owned(), "n9"));
        let owner = &movement.owners[0];
        assert_eq!(owner.owner.to_string(), "ReplicaSet/n/rs/r");
        assert_eq!((&*owner.nodes[0].node, owner.nodes[0].desired), ("n1", 2));
        assert_eq!(owner.nodes[0].actual[0].uid.to_string(), "a");
    }

    #[test]
    fn movements_are_read_from_files() {
        let text = "
apiVersion: scheduling.godel.kubewharf.io/v1alpha1
kind: Movement
metadata: {name: m}
status:
  owners:
  - owner: {type: PodGroup, namespace: n, name: g, uid: ''}
    recommendedNodes:
    - {node: n1, desiredPodCount: 1}
";
        let objects = read_text(text.as_bytes()).unwrap().objects;
        let [Object::Movement(movement)] = &*objects else { panic!("{objects:?}") };
        assert_eq!(movement.owners[0].nodes[0].desired, 1);
    }

    #[test]
    fn a_movement_without_a_status_is_read() {
        let movement = read(Value::Null).unwrap();
        assert_eq!((movement.owners.len(), movement.deleted.len()), (0, 1));
    }

    #[test]
    fn invalid_values_are_refused_with_their_path() {
        let error = read(suggesting(json!([{ "node": "n1", "desiredPodCount": -1 }]))).unwrap_err();
        assert!(error.contains("owners[0].recommendedNodes[0].desiredPodCount"), "{error}");
        let error = read(json!({ "owners": [{}] })).unwrap_err();
        assert!(error.contains("status.owners[0].owner"), "{error}");
    }
}
