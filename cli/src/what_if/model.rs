//! The model of new nodes: a node, with the objects that limit its volumes and those of its devices.
//!
//! A new node is like its model when that is in service. The cordon, and the taints of a node's condition, are left
//! out: they are the model's present state (cluster-autoscaler leaves out the same taints of its templates). Labels
//! that identify the model get the new node's name, so that volumes of the model are not accessible from the new node.

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{
    CsiNode, CsiStorageCapacity, HOSTNAME, InTreePlugin, LabelSelector, Labels, Name, Node,
    NodeLabels, Object, Operator, Pod, Requirement, Taint, VolumeSource,
};
use portolan_dra::Devices;
use portolan_dra::model::ResourceSlice;
use portolan_dra::store::PoolId;
use portolan_k8s::Objects;

use super::difference::Row;

/// The taints of a node that is not in service, or is about to be removed.
const CONDITIONS: [&str; 13] = [
    Taint::NOT_READY,
    Taint::UNREACHABLE,
    Taint::UNSCHEDULABLE,
    Taint::MEMORY_PRESSURE,
    Taint::DISK_PRESSURE,
    Taint::NETWORK_UNAVAILABLE,
    Taint::PID_PRESSURE,
    Taint::OUT_OF_SERVICE,
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    "cloud.google.com/impending-node-termination",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];

/// The labels of a topology that several nodes share.
const SHARED: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// A node that new nodes are copies of.
pub(super) struct Model {
    node: Node,
    csi_node: Option<Arc<CsiNode>>,
    /// The capacities of storage that only the node can access.
    capacities: Vec<Arc<CsiStorageCapacity>>,
    /// The devices of the node.
    slices: Vec<Arc<ResourceSlice>>,
}

/// A new node.
pub(super) struct New {
    pub(super) node: Node,
    pub(super) objects: Vec<Object>,
    pub(super) slices: Vec<ResourceSlice>,
    /// Whether the limits of its volumes are known: the model has a CSINode.
    pub(super) has_limits: bool,
}

impl Model {
    /// The model with its objects, of which those beside it take precedence over those of the cluster.
    pub(super) fn of(node: Node, beside: &Objects, cluster: &Cluster) -> Model {
        let slices = slices(&node.name, beside, cluster);
        let beside = &beside.objects;
        let csi_node = beside.iter().find_map(|object| match object {
            Object::CsiNode(it) if it.name == node.name => Some(it.clone()),
            _ => None,
        });
        let objects = cluster.objects();
        let csi_node = csi_node.or_else(|| objects.csi_nodes.get("", &node.name).cloned());
        let mut model = Model { node, csi_node, capacities: Vec::new(), slices };
        let of_file = beside.iter().filter_map(|object| match object {
            Object::CsiStorageCapacity(it) => Some(it),
            _ => None,
        });
        // A later object of the same name replaces an earlier one.
        let all = objects.csi_storage_capacities.iter().chain(of_file);
        model.capacities = all.filter(|it| model.is_alone_in(&it.nodes)).cloned().collect();
        model
    }

    /// Whether the model belongs to the segment because of a label that identifies it.
    fn is_alone_in(&self, nodes: &LabelSelector) -> bool {
        let LabelSelector::All(requirements) = nodes else { return false };
        nodes.matches(&self.node.labels) && requirements.iter().any(|it| self.identifies(it))
    }

    fn identifies(&self, it: &Requirement) -> bool {
        let is_own = self.node.labels.get(&it.key).is_some_and(|value| self.is_own(&it.key, value));
        it.operator == Operator::In && is_own
    }

    /// Whether a label identifies the model: its hostname, or its name as a key of a CSI driver's topology.
    fn is_own(&self, key: &str, value: &str) -> bool {
        let drivers = self.csi_node.iter().flat_map(|it| it.drivers.iter());
        let mut keys = drivers.flat_map(|driver| driver.topology_keys.iter());
        let is_name = || {
            value == &*self.node.name
                || self.node.labels.hostname().is_some_and(|it| **it == *value)
        };
        key == HOSTNAME || (!SHARED.contains(&key) && keys.any(|it| **it == *key) && is_name())
    }

    /// The parts of the model's present state that new nodes lack, in words.
    pub(super) fn left_out(&self) -> Vec<String> {
        let cordon = self.node.unschedulable.then(|| "the cordon".to_owned());
        let keys = self.node.taints.iter().map(|taint| &*taint.key);
        let mut keys: Vec<&str> = keys.filter(|key| CONDITIONS.contains(key)).collect();
        keys.dedup();
        cordon.into_iter().chain(keys.iter().map(|key| format!("the taint {key}"))).collect()
    }

    /// A copy of the model with this name.
    pub(super) fn copy(&self, name: Name) -> New {
        let own = |(key, value)| (key, if self.is_own(key, value) { &*name } else { value });
        let labels: Labels = self.node.labels.iter().map(own).collect();
        let taints = self.node.taints.iter().filter(|it| !CONDITIONS.contains(&&*it.key));
        let node = Node {
            labels: NodeLabels::new(&labels, &name),
            taints: taints.cloned().collect(),
            unschedulable: false,
            name: name.clone(),
            ..self.node.clone()
        };
        let csi_node = self.csi_node.iter().map(|it| {
            let csi_node = CsiNode { name: name.clone(), ..CsiNode::clone(it) };
            Object::from(csi_node)
        });
        let capacities = self.capacities.iter().map(|it| {
            let nodes = self.of_copy(&it.nodes, &name);
            let name = format!("{}-{name}", it.name).into();
            Object::from(CsiStorageCapacity { name, nodes, ..CsiStorageCapacity::clone(it) })
        });
        let objects = csi_node.chain(capacities).collect();
        let slices = self.slices.iter().map(|it| self.slice(it, &name)).collect();
        New { node, objects, slices, has_limits: self.csi_node.is_some() }
    }

    /// A slice of the copy. Its pool has the slices of the model only, even if the model shares its pool.
    fn slice(&self, of: &ResourceSlice, name: &Name) -> ResourceSlice {
        let mut copy = of.clone();
        let pool = &of.spec.pool.name;
        let is_same = |it: &&Arc<ResourceSlice>| PoolId::of(it) == PoolId::of(of);
        let count = self.slices.iter().filter(is_same).count();
        copy.metadata.name = format!("{}-{name}", of.name()).into();
        copy.spec.node_name = Some(name.clone());
        copy.spec.pool.resource_slice_count = i64::try_from(count).unwrap_or(i64::MAX);
        copy.spec.pool.name = match *pool == self.node.name {
            true => name.clone(),
            false => format!("{pool}-{name}").into(),
        };
        copy
    }

    /// The selector of the copy's own segment.
    fn of_copy(&self, nodes: &LabelSelector, name: &Name) -> LabelSelector {
        let LabelSelector::All(requirements) = nodes else { return LabelSelector::Nothing };
        let own = requirements.iter().map(|it| match self.identifies(it) {
            true => Requirement::new(it.key.clone(), Operator::In, [name.clone()]),
            false => it.clone(),
        });
        LabelSelector::All(own.collect())
    }
}

/// The slices of a node, beside it or else in the cluster.
fn slices(node: &Name, beside: &Objects, cluster: &Cluster) -> Vec<Arc<ResourceSlice>> {
    let is_own = |slice: &&Arc<ResourceSlice>| slice.spec.node_name.as_ref() == Some(node);
    let own: Vec<_> = beside.devices.slices.iter().filter(is_own).cloned().collect();
    let Ok(devices) = cluster.store::<Devices>() else { return own };
    match own.is_empty() {
        true => {
            let pools = devices.slices().pools_for(node);
            pools.flat_map(|(_, pool)| pool.slices().iter().filter(is_own).cloned()).collect()
        }
        false => own,
    }
}

/// The pods on new nodes without known limits that have a volume whose driver has a limit on other nodes.
/// O(placements).
pub(super) fn without_known_limits(
    placed: &[Row],
    nodes: &BTreeSet<Name>,
    cluster: &Cluster,
) -> Vec<Pod> {
    let is_on_such = |node: &Name| nodes.contains(node);
    let mut on = placed.iter().filter(|row| row.to.as_ref().is_some_and(is_on_such)).peekable();
    if on.peek().is_none() {
        return Vec::new();
    }
    let drivers = cluster.objects().csi_nodes.iter().flat_map(|it| it.drivers.iter());
    let limited: BTreeSet<&str> =
        drivers.filter(|driver| driver.limit.is_some()).map(|driver| &*driver.name).collect();
    let is_limited = |pod: &Pod| {
        let mut drivers = pod.template.volumes.iter().filter_map(|it| driver(it, pod, cluster));
        drivers.any(|driver| limited.contains(&*driver))
    };
    on.filter(|row| is_limited(&row.pod)).map(|row| row.pod.clone()).collect()
}

/// The CSI driver that attaches a volume of the pod.
fn driver(source: &VolumeSource, pod: &Pod, cluster: &Cluster) -> Option<Name> {
    let claim = source.claim(&pod.name)?;
    let objects = cluster.objects();
    let claim = objects.persistent_volume_claims.get(pod.namespace(), &claim)?;
    if let Some(volume) = objects.persistent_volumes.get("", &claim.volume) {
        return volume.csi.as_ref().map(|(driver, _)| driver.clone());
    }
    let provisioner = &objects.storage_classes.get("", &claim.class)?.provisioner;
    let migrated = InTreePlugin::of_name(provisioner).map(|plugin| plugin.driver.into());
    Some(migrated.unwrap_or_else(|| provisioner.clone()))
}

#[cfg(test)]
mod tests {
    use portolan::cache::Engine;
    use portolan::model::{CsiNodeDriver, node};

    use super::*;

    #[test]
    fn a_copy_has_a_segment_of_storage_of_its_own() {
        let (mut writer, _) = Engine::inline(portolan::cache::Config::default());
        let like = node("n1").hostname().zone("n1").label("topology.disk.example/node", "n1");
        let like = like.label("pool", "n1").build();
        let drivers = [CsiNodeDriver {
            name: "disk.example".into(),
            limit: Some(3),
            topology_keys: ["topology.disk.example/node", SHARED[0]].map(Name::from).into(),
        }];
        let csi_node = CsiNode { name: "n1".into(), drivers: drivers.into(), ..CsiNode::default() };
        let capacity = |name: &str, key: &str| CsiStorageCapacity {
            name: name.into(),
            nodes: LabelSelector::from_labels([(key, "n1")]),
            largest: Some(5),
            ..CsiStorageCapacity::default()
        };
        writer.put_object(csi_node).expect("accepted");
        writer.put_object(capacity("own", "topology.disk.example/node")).expect("accepted");
        writer.put_object(capacity("shared", SHARED[0])).expect("accepted");
        let model = Model::of(like, &Objects::default(), writer.cluster());
        let New { node, objects, has_limits, .. } = model.copy("n1-1".into());
        let labels = ["kubernetes.io/hostname", "topology.disk.example/node", SHARED[1], SHARED[0]];
        let values = labels.map(|key| node.labels.get(key).unwrap_or("none"));
        assert_eq!(values, ["n1-1", "n1-1", "none", "n1"]);
        assert_eq!(node.labels.get("pool"), Some("n1"));
        assert!(has_limits);
        let [Object::CsiNode(csi_node), Object::CsiStorageCapacity(own)] = &objects[..] else {
            panic!("{objects:?}")
        };
        assert_eq!((&*csi_node.name, csi_node.drivers[0].limit), ("n1-1", Some(3)));
        assert!(own.nodes.matches(&node.labels) && own.largest == Some(5), "{own:?}");
    }
}
