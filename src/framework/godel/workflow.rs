//! Parts of a cluster that are scheduled independently (Gödel's sub-clusters and switch types).
//!
//! A sub-cluster is the set of nodes with one value of a label. A pod that is scheduled in a sub-cluster gets the
//! corresponding node selector if it lacks it. Filters, topology domains, preemption and messages are then consistent
//! without special cases, and fewer nodes are examined. Gödel hides the other nodes instead, so that anti-affinity of
//! pods on these nodes has no effect there; here it does.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{HOSTNAME, Labels, Name, Pod, PodClass, Template};
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

    /// Returns the sub-cluster that a pod's node selector requests.
    #[must_use]
    pub fn of(pod: &Pod, key: &Name) -> SubCluster {
        let value = pod.template.node_selector.get(key).unwrap_or_default();
        SubCluster { key: key.clone(), value: value.into() }
    }

    /// Returns whether the node belongs to the sub-cluster.
    #[must_use]
    pub fn includes(&self, node: NodeInfo<'_>) -> bool {
        let label = || node.node().is_some_and(|node| self.is(node.labels.get(&self.key)));
        self.is_all() || label()
    }

    /// Returns the sub-cluster's nodes in the order of the version. O(nodes).
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
        if *self.key == *HOSTNAME {
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

/// A set of workflows as a bit mask: bit `i` stands for guaranteed pods in sub-cluster `i`, and bit `i + 31` for
/// best-effort pods there (framework/utils `SwitchType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchType(u64);

impl SwitchType {
    /// The maximum number of sub-clusters.
    pub const SUB_CLUSTERS: u32 = 31;
    /// The set of all workflows.
    pub const ALL: SwitchType = SwitchType((1 << (2 * SwitchType::SUB_CLUSTERS)) - 1);

    /// Returns the workflow of a class in the sub-cluster with this number, or `None` if the number is too large.
    #[must_use]
    pub fn new(class: PodClass, sub_cluster: u32) -> Option<SwitchType> {
        let first = match class {
            PodClass::Guaranteed => 0,
            PodClass::BestEffort => SwitchType::SUB_CLUSTERS,
        };
        (sub_cluster < SwitchType::SUB_CLUSTERS).then(|| SwitchType(1 << (first + sub_cluster)))
    }

    /// Returns the bit mask in Gödel's format.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether the set contains all workflows of `other`.
    #[must_use]
    pub fn contains(self, other: SwitchType) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for SwitchType {
    type Output = SwitchType;

    fn bitor(self, other: SwitchType) -> SwitchType {
        SwitchType(self.0 | other.0)
    }
}

/// The sub-clusters of a label, numbered so that a [`SwitchType`] can name their workflows (`GetOrCreateClusterIndex`).
/// Number 0 is the whole cluster, for pods that request no sub-cluster.
///
/// ```
/// use portolan::framework::{SubClusters, SwitchType};
/// use portolan::model::PodClass;
///
/// let mut sub_clusters = SubClusters::new("region");
/// let red = sub_clusters.assign("red").expect("one of 31 numbers is free");
/// let guaranteed = SwitchType::new(PodClass::Guaranteed, red).expect("a number below 31");
/// let workflows: Vec<_> = sub_clusters.workflows(guaranteed).collect();
/// assert_eq!(&*workflows[0].sub_cluster.value, "red");
/// assert_eq!(sub_clusters.switch_type(&workflows[0]), Some(guaranteed));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubClusters {
    key: Name,
    values: [Option<Name>; SwitchType::SUB_CLUSTERS as usize],
}

impl SubClusters {
    /// Creates the sub-clusters of this label, with only the whole cluster numbered.
    pub fn new(key: impl Into<Name>) -> SubClusters {
        let mut values = [const { None }; SwitchType::SUB_CLUSTERS as usize];
        values[0] = Some(Name::default());
        SubClusters { key: key.into(), values }
    }

    /// Returns the number of the sub-cluster with this value, if it has one.
    #[must_use]
    pub fn number(&self, value: &str) -> Option<u32> {
        let is_same = |known: &Option<Name>| known.as_deref() == Some(value);
        self.values.iter().position(is_same).map(|at| at as u32)
    }

    /// Returns the number of the sub-cluster with this value. If it has none, assigns the lowest free number. Returns
    /// `None` if all numbers are in use; one must then be released first.
    pub fn assign(&mut self, value: &str) -> Option<u32> {
        self.number(value).or_else(|| {
            let free = self.values.iter().position(Option::is_none)?;
            self.values[free] = Some(value.into());
            Some(free as u32)
        })
    }

    /// Frees the number of a sub-cluster that is no longer in use, and returns it. The whole cluster keeps its number.
    pub fn release(&mut self, value: &str) -> Option<u32> {
        let number = self.number(value).filter(|number| *number != 0)?;
        self.values[number as usize] = None;
        Some(number)
    }

    /// Returns the bit of a workflow, or `None` if its sub-cluster has no number or belongs to another label.
    #[must_use]
    pub fn switch_type(&self, workflow: &Workflow) -> Option<SwitchType> {
        let SubCluster { key, value } = &workflow.sub_cluster;
        let number = self.number(value).filter(|_| *key == self.key)?;
        SwitchType::new(workflow.class, number)
    }

    /// Returns the workflows in a set, guaranteed ones first, in the order of their numbers. Bits without a sub-cluster
    /// are ignored.
    pub fn workflows(&self, of: SwitchType) -> impl Iterator<Item = Workflow> {
        let classes = [PodClass::Guaranteed, PodClass::BestEffort].into_iter();
        classes.flat_map(move |class| {
            let known = (0..).zip(&self.values);
            known.filter_map(move |(number, value)| {
                let value = value.clone()?;
                let is_set = of.contains(SwitchType::new(class, number)?);
                let sub_cluster = SubCluster { key: self.key.clone(), value };
                is_set.then_some(Workflow { class, sub_cluster })
            })
        })
    }
}

/// The pods of one class in one sub-cluster. Each workflow has its own queue and scheduler, so workflows run
/// independently.
///
/// ```
/// use portolan::framework::{Algorithm, AlgorithmConfig, Framework, SubCluster, Workflow};
/// use portolan::model::{Labels, PodClass, node, pod};
/// use portolan::{Config, Engine};
///
/// let (mut writer, _) = Engine::inline(Config::default());
/// writer.add_node(node("a").label("region", "red").cpu(4_000).build())?;
/// writer.add_node(node("b").label("region", "blue").cpu(8_000).build())?;
///
/// let red = SubCluster::new("region", "red");
/// let workflow = Workflow { class: PodClass::Guaranteed, sub_cluster: red.clone() };
/// let pod = pod("p").cpu(100).node_selector(Labels::new([("region", "red")])).build();
/// assert!(workflow.serves(&pod));
///
/// let mut scheduler =
///     Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
///         .with_sub_cluster(red);
/// let decision = scheduler.schedule(writer.cluster(), &pod)?;
/// assert_eq!((&*decision.node, decision.looked_at), ("a", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workflow {
    /// The class of the pods.
    pub class: PodClass,
    /// The sub-cluster of the pods. An empty value stands for pods that request none and may run on any node.
    pub sub_cluster: SubCluster,
}

impl Workflow {
    /// Returns the workflow of a pod, with `key` as the label that distinguishes sub-clusters.
    #[must_use]
    pub fn of(pod: &Pod, key: &Name) -> Workflow {
        Workflow { class: pod.template.class, sub_cluster: SubCluster::of(pod, key) }
    }

    /// Returns whether the pod belongs to this workflow.
    #[must_use]
    pub fn serves(&self, pod: &Pod) -> bool {
        let value = pod.template.node_selector.get(&self.sub_cluster.key).unwrap_or_default();
        pod.template.class == self.class && *value == *self.sub_cluster.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::{Algorithm, AlgorithmConfig, Framework, Partition, ScheduleError};
    use crate::model::{LabelSelector, node, pod};
    use crate::{Config, Engine, Writer};

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
        let ScheduleError::Fit(error) = error else { panic!("{error}") };
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
            assert_eq!(red.decide_by_nodes(cycle), Err(ScheduleError::NoNodes));
            assert_eq!(red.decide(cycle), Err(ScheduleError::NoNodes));
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
        let partition = Partition::Labels(LabelSelector::from_labels([(KEY, "red")]));
        for mut scheduler in [new(), new().with_partition(partition)] {
            assert!(scheduler.schedule(writer.cluster(), &pod).is_ok());
            let mut restricted = scheduler.with_sub_cluster(SubCluster::new(KEY, "black"));
            let outcome = restricted.schedule(writer.cluster(), &pod);
            assert_eq!(outcome, Err(ScheduleError::NoNodes));
        }
    }

    #[test]
    fn sub_cluster_without_nodes_reports_no_nodes() {
        let writer = cluster();
        let error = scheduler("black").schedule(writer.cluster(), &pod("p").build()).unwrap_err();
        assert_eq!(error, ScheduleError::NoNodes);
    }

    #[test]
    fn pod_belongs_to_exactly_one_workflow() {
        let key: Name = KEY.into();
        let plain = pod("p").build();
        let red = pod("r").node_selector(Labels::new([(KEY, "red")]));
        let reclaimed = red.clone().spec(|spec| spec.class = PodClass::BestEffort).build();
        let pods = [plain, red.build(), reclaimed];
        for (n, one) in pods.iter().enumerate() {
            for (m, other) in pods.iter().enumerate() {
                assert_eq!(Workflow::of(one, &key).serves(other), n == m);
            }
        }
    }

    #[test]
    fn switch_type_has_one_bit_per_workflow() {
        let of = |class, n| SwitchType::new(class, n).unwrap();
        assert_eq!(of(PodClass::Guaranteed, 0).bits(), 1);
        assert_eq!(of(PodClass::BestEffort, 0).bits(), 1 << 31);
        assert_eq!(of(PodClass::BestEffort, 30).bits(), 1 << 61);
        assert_eq!(SwitchType::new(PodClass::Guaranteed, 31), None);
        let all =
            (0..31).flat_map(|n| [PodClass::Guaranteed, PodClass::BestEffort].map(|c| of(c, n)));
        let all = all.fold(SwitchType::default(), |all, one| {
            assert!(!all.contains(one));
            all | one
        });
        assert_eq!(all, SwitchType::ALL);
    }

    #[test]
    fn switch_type_bits_round_trip_through_workflows() {
        let mut sub_clusters = SubClusters::new(KEY);
        assert_eq!((sub_clusters.number(""), sub_clusters.release("")), (Some(0), None));
        let regions: Vec<String> = (1..31).map(|n| format!("r{n}")).collect();
        for (n, region) in (1..).zip(&regions) {
            assert_eq!(sub_clusters.number(region), None);
            assert_eq!((0..2).map(|_| sub_clusters.assign(region)).last(), Some(Some(n)));
        }
        assert_eq!(sub_clusters.assign("one more"), None, "31 numbers are in use");
        let all: Vec<Workflow> = sub_clusters.workflows(SwitchType::ALL).collect();
        assert_eq!(all.len(), 62);
        let bits = all.iter().map(|workflow| sub_clusters.switch_type(workflow).unwrap());
        assert!(bits.clone().map(SwitchType::bits).is_sorted(), "as Gödel numbers them");
        assert_eq!(bits.reduce(|all, one| all | one), Some(SwitchType::ALL));
        // The number of a released sub-cluster is assigned next.
        assert_eq!(sub_clusters.release("r7"), Some(7));
        assert_eq!(sub_clusters.workflows(SwitchType::ALL).count(), 60);
        assert_eq!(sub_clusters.switch_type(&all[7]), None);
        assert_eq!(sub_clusters.assign("one more"), Some(7));
        let other = SubCluster::new("other label", "r1");
        let other = Workflow { class: PodClass::Guaranteed, sub_cluster: other };
        assert_eq!(sub_clusters.switch_type(&other), None);
    }
}
