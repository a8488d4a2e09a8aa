//! Parts of a cluster that are scheduled independently (Gödel's sub-clusters).
//!
//! A sub-cluster is the set of nodes with one value of a label. A pod that is scheduled in a sub-cluster gets the
//! corresponding node selector if it lacks it. Filters, topology domains, preemption and messages are then consistent
//! without special cases, and fewer nodes are examined. Gödel hides the other nodes instead, so that anti-affinity of
//! pods on these nodes has no effect there; here it does.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{HOSTNAME, Labels, Launcher, Name, Pod, Template};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use crate::framework::{each_lane, each_same};

/// The nodes whose label `key` has the value `value`, or all nodes if `value` is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubCluster {
    /// The label that distinguishes sub-clusters (`--sub-cluster-key`).
    pub key: Name,
    /// The label's value, or an empty string for the whole cluster.
    pub value: Name,
}

impl SubCluster {
    /// Creates the sub-cluster of the nodes whose label `key` has the value `value`.
    pub fn new(key: impl Into<Name>, value: impl Into<Name>) -> SubCluster {
        SubCluster { key: key.into(), value: value.into() }
    }

    /// Returns whether the node belongs to the sub-cluster, by the labels of its Node or of its NMNode.
    #[doc(hidden)]
    #[must_use]
    pub fn includes(&self, node: NodeInfo<'_>) -> bool {
        let by = |launcher| {
            node.node_for(launcher).is_some_and(|node| self.is(node.labels.get(&self.key)))
        };
        self.is_all() || by(Launcher::Kubelet) || by(Launcher::NodeManager)
    }

    /// Returns the sub-cluster's nodes in the order in which the version lists them: a view that copies nothing.
    /// O(nodes).
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::node;
    /// use portolan::plugin::SubCluster;
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// for (name, region) in [("n1", "red"), ("n2", "blue"), ("n3", "red")] {
    ///     writer.add_node(node(name).label("region", region).build())?;
    /// }
    /// writer.publish();
    /// let snapshot = reader.snapshot();
    /// let red = SubCluster::new("region", "red");
    /// let names: Vec<&str> = red.nodes(&snapshot).map(|node| &**node.name()).collect();
    /// assert_eq!(names, ["n1", "n3"]);
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    #[doc(hidden)]
    pub fn nodes<'a>(&self, cluster: &'a Cluster) -> impl Iterator<Item = NodeInfo<'a>> {
        cluster.nodes().filter(|node| self.includes(*node))
    }

    /// Returns whether the pod's node selector requests another sub-cluster.
    pub(in crate::framework) fn excludes(&self, pod: &Pod) -> bool {
        let asked = pod.template.node_selector.get(&self.key);
        !self.is_all() && asked.is_some() && !self.is(asked)
    }

    fn is_all(&self) -> bool {
        self.value.is_empty()
    }

    fn is(&self, value: Option<&str>) -> bool {
        value == Some(&*self.value)
    }

    /// Returns the pod with the sub-cluster's selector added, or `None` if the pod already has a selector for this
    /// label.
    pub(in crate::framework) fn admit(&self, pod: &Pod) -> Option<Pod> {
        if self.is_all() || pod.template.node_selector.get(&self.key).is_some() {
            return None;
        }
        let mut spec = (**pod.template).clone();
        let selector = spec.node_selector.iter().chain([(&*self.key, &*self.value)]);
        spec.node_selector = selector.collect::<Labels>();
        Some(Pod { template: Template::new(spec), ..pod.clone() })
    }

    /// Returns the lanes of `mask` whose nodes belong to the sub-cluster.
    pub(in crate::framework) fn lanes(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        if self.is_all() {
            return mask;
        }
        if *self.key == *HOSTNAME || !cluster.has_columns_for(Launcher::NodeManager) {
            return each_lane(mask, |lane| {
                cluster.node_in(chunk, lane).is_some_and(|node| self.includes(node))
            });
        }
        each_same(chunk.label_set(), mask, |lane, all| {
            let labels = cluster.label_set(chunk.label_set()[lane]);
            if self.is(labels.get(&self.key)) { all } else { 0 }
        })
    }
}

/// A sub-cluster, and a cache of recent templates with its selector added.
pub(in crate::framework) struct Admission {
    pub(in crate::framework) sub_cluster: SubCluster,
    /// Recent templates without the selector, each with its copy that has the selector.
    known: VecDeque<(Arc<Template>, Arc<Template>)>,
}

impl Admission {
    const KNOWN: usize = 16;

    pub(in crate::framework) fn new(sub_cluster: SubCluster) -> Admission {
        Admission { sub_cluster, known: VecDeque::new() }
    }

    /// Returns the same as [`SubCluster::admit`], but reuses templates.
    pub(in crate::framework) fn admit(&mut self, pod: &Pod) -> Option<Pod> {
        let known = self.known.iter().find(|(given, _)| Arc::ptr_eq(given, &pod.template));
        if let Some((_, template)) = known {
            return Some(Pod { template: template.clone(), ..pod.clone() });
        }
        let admitted = self.sub_cluster.admit(pod)?;
        self.known.truncate(Admission::KNOWN - 1);
        self.known.push_front((pod.template.clone(), admitted.template.clone()));
        Some(admitted)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::framework::{Algorithm, AlgorithmConfig, Failure, Framework, Partition};
    use crate::model::{NmNode, node, pod};

    const KEY: &str = "region";

    fn cluster() -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..200 {
            let region = ["red", "blue", "green"][n % 3];
            let built = node(format!("n{n}")).label(KEY, region).cpu(1000 + n as i64);
            writer.add_node(built.zone(format!("z{}", n % 2)).build()).unwrap();
        }
        writer
    }

    fn scheduler(value: &str) -> Algorithm {
        let scheduler =
            Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
        scheduler.with_sub_cluster(SubCluster::new(KEY, value))
    }

    #[test]
    fn scheduler_of_a_sub_cluster_examines_only_its_nodes() {
        let mut writer = cluster();
        for (value, nodes) in [("red", 67), ("blue", 67), ("green", 66), ("", 200)] {
            let sub_cluster = SubCluster::new(KEY, value);
            assert_eq!(sub_cluster.nodes(writer.cluster()).count(), nodes);
            let decision = scheduler(value).schedule(writer.cluster(), &pod("p").build()).unwrap();
            let node = writer.cluster().node(&decision.node).unwrap();
            assert!(sub_cluster.includes(node) && decision.looked_at <= nodes, "{decision:?}");
        }
        // A node whose label changes moves to another sub-cluster.
        let mut red = scheduler("red");
        let pod = pod("p").cpu(1150).build();
        assert_eq!(red.schedule(writer.cluster(), &pod).unwrap().feasible, 17);
        writer.update_node(node("n198").label(KEY, "blue").cpu(1198).zone("z0").build()).unwrap();
        assert_eq!(red.schedule(writer.cluster(), &pod).unwrap().feasible, 16);
    }

    #[test]
    fn nodes_outside_the_sub_cluster_are_rejected_as_by_a_node_selector() {
        let writer = cluster();
        let all = pod("p").cpu(1199).build();
        assert_eq!(&*scheduler("blue").schedule(writer.cluster(), &all).unwrap().node, "n199");
        let error = scheduler("red").schedule(writer.cluster(), &all).unwrap_err();
        let Failure::Fit(error) = error else { panic!("{error}") };
        assert_eq!(
            error.to_string(),
            "0/200 nodes are available: 133 node(s) didn't match Pod's node affinity/selector, \
             67 Insufficient cpu. preemption: 0/200 nodes are available: \
             200 Preemption is not helpful for scheduling."
        );
    }

    #[test]
    fn pod_of_another_sub_cluster_is_rejected_even_if_nominated() {
        let writer = cluster();
        let blue = pod("p").node_selector(Labels::new([(KEY, "blue")]));
        let to_n1 = |pod: Pod| Pod { nominated_node_name: Some("n1".into()), ..pod };
        for pod in [blue.clone().build(), to_n1(blue.build())] {
            let state = crate::framework::CycleState::default();
            let cycle = crate::framework::Cycle::new(writer.cluster(), &pod, &state);
            let mut red = scheduler("red");
            assert_eq!(red.decide_by_nodes(cycle), Err(Failure::NoNodes));
            assert_eq!(red.decide(cycle), Err(Failure::NoNodes));
            assert!(scheduler("blue").decide(cycle).is_ok());
        }
        // A pod without a selector that is nominated to a node of another sub-cluster is not placed there, either.
        let pod = to_n1(pod("q").build());
        let decision = scheduler("red").schedule(writer.cluster(), &pod).unwrap();
        let node = writer.cluster().node(&decision.node).unwrap();
        assert!(SubCluster::new(KEY, "red").includes(node), "{decision:?}");
    }

    #[test]
    fn sub_cluster_that_is_set_after_a_cycle_applies_to_the_next_one() {
        let (writer, pod) = (cluster(), pod("p").build());
        let new = || Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
        let partition = Partition::Share { index: 0, of: NonZeroU32::MIN };
        for mut scheduler in [new(), new().with_partition(partition)] {
            assert!(scheduler.schedule(writer.cluster(), &pod).is_ok());
            let mut restricted = scheduler.with_sub_cluster(SubCluster::new(KEY, "black"));
            let outcome = restricted.schedule(writer.cluster(), &pod);
            assert_eq!(outcome, Err(Failure::NoNodes));
        }
    }

    #[test]
    fn nodes_of_a_sub_cluster_are_those_that_either_object_labels() {
        let mut writer = cluster();
        let labelled = |region| NmNode::new("n0").with_labels(&Labels::new([(KEY, region)]));
        let names = |cluster: &Cluster, region| -> Vec<String> {
            let sub_cluster = SubCluster::new(KEY, region);
            sub_cluster.nodes(cluster).map(|node| node.name().to_string()).collect()
        };
        let blue = names(writer.cluster(), "blue");
        let mut scheduler = scheduler("blue");
        let mut looked_at = |writer: &Writer| {
            let pod = pod("p").build();
            scheduler.schedule(writer.cluster(), &pod).unwrap().looked_at
        };
        assert_eq!(looked_at(&writer), blue.len());
        writer.put_object(labelled("red")).unwrap();
        assert_eq!(looked_at(&writer), blue.len());
        // The Node stays red. The lists of the scheduler are renewed although the listed node is the same.
        writer.put_object(labelled("blue")).unwrap();
        let held = writer.cluster().fork();
        let with_n0 = names(&held, "blue");
        assert_eq!(looked_at(&writer), with_n0.len());
        assert!(names(&held, "red").contains(&"n0".to_owned()));
        let listed = held.nodes().map(|node| node.name().to_string());
        let expected: Vec<String> =
            listed.filter(|name| name == "n0" || blue.contains(name)).collect();
        assert_eq!(with_n0, expected, "in the order of the list");
        writer.put_object(labelled("red")).unwrap();
        assert_eq!(names(writer.cluster(), "blue"), blue);
        assert_eq!(names(&held, "blue"), with_n0, "a version that is held does not change");
    }
}
