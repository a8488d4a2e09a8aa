//! How much of a node is in use, as far as anybody knows.
//!
//! An agent measures what the pods of a node use, and says so now and then. Pods that
//! came since are in no measurement: of them counts what they request. Both are with
//! the node, one in its CustomNodeResource, one in its pods, so the load is made when
//! it is asked for. Writers do nothing for it, it changes with the node's generation
//! alone, and it cannot outlive the CustomNodeResource that it came from.

use crate::model::{Bytes, MilliCpu, PodClass, Timestamp, Usage};

use crate::snapshot::node_info::NodeInfo;

/// What the pods of one class take of a node (Gödel's `LoadAwareNodeUsage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// What those use that were measured.
    pub profiled: Usage,
    /// What those request that were not.
    pub requested: Usage,
    /// When it was measured; none where nothing was.
    pub updated: Option<Timestamp>,
}

impl NodeLoad {
    /// What is in use, measured or requested.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.profiled.plus(self.requested)
    }
}

impl NodeInfo<'_> {
    /// What those pods of a class use that were measured: [`NodeLoad::profiled`]. O(1).
    #[must_use]
    pub fn profiled(self, class: PodClass) -> Usage {
        let metrics = self.custom_node_resource().and_then(|custom| custom.metrics.as_deref());
        metrics.map(|metrics| metrics.of(class).usage).unwrap_or_default()
    }

    /// The load that pods of a class are: what its CustomNodeResource says they use,
    /// and what those of them request that it does not name (Gödel:
    /// load_aware_store `newPodMetricInfos`). A pod that holds a place for others
    /// counts as one that requests it; overhead counts as requested.
    ///
    /// O(pods of the node × log pods measured), and O(1) where no pod of the class was
    /// measured.
    ///
    /// ```
    /// use portolan::model::*;
    /// use portolan::{Config, Engine};
    ///
    /// let (mut writer, _) = Engine::inline(Config::default());
    /// writer.add_node(node("n").cpu(4_000).build()).unwrap();
    /// writer.add_pod(pod("measured").cpu(1_000).on("n").build()).unwrap();
    /// writer.add_pod(pod("new").cpu(500).on("n").build()).unwrap();
    /// let usage = Usage { cpu: MilliCpu(200), memory: Bytes(0) };
    /// let pods = vec!["default/measured".into()];
    /// let group = GroupMetric { class: PodClass::Guaranteed, usage, pods };
    /// let mut custom = CustomNodeResource::new("n", &ResourceList::default());
    /// custom.metrics = Some(Box::new(NodeMetrics::new(None, [group])));
    /// writer.put_object(custom).unwrap();
    /// let load = writer.cluster().node("n").unwrap().load(PodClass::Guaranteed);
    /// assert_eq!(load.total().cpu, MilliCpu(700));
    /// ```
    #[must_use]
    pub fn load(self, class: PodClass) -> NodeLoad {
        let metrics = self.custom_node_resource().and_then(|custom| custom.metrics.as_deref());
        let updated = metrics.and_then(|metrics| metrics.updated);
        let profile = metrics.map(|metrics| metrics.of(class));
        let profiled = self.profiled(class);
        let requested = match profile.filter(|profile| !profile.pods().is_empty()) {
            None => {
                let (chunk, at) = self.place();
                let account = chunk.account(class);
                let cpu = MilliCpu(account.requested_cpu()[at]);
                Usage { cpu, memory: Bytes(account.requested_memory()[at]) }
            }
            Some(profile) => {
                let of_class = self.pods().filter(|pod| pod.template().class == class);
                let new = of_class.filter(|pod| !profile.has(pod.namespace(), pod.name()));
                new.fold(Usage::default(), |sum, pod| {
                    let placed = &pod.template().resources.placed;
                    sum.plus(Usage { cpu: placed.cpu, memory: placed.memory })
                })
            }
        };
        NodeLoad { profiled, requested, updated }
    }
}
