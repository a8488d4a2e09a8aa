//! The load of a node, as far as it is known.
//!
//! An agent measures the usage of a node's pods and reports it from time to time. Pods placed since then are in no
//! measurement, so their requests count instead. Both sources belong to the node: the measurement is in its
//! CustomNodeResource, the requests are in its pods. The load is therefore computed by each query. Writers do no work
//! for it, it changes only with the node's generation, and it cannot outlive the CustomNodeResource that it is based
//! on.

use crate::model::{Bytes, MilliCpu, PodClass, Timestamp, Usage};

use crate::snapshot::node_info::NodeInfo;

/// The load that the pods of one class put on a node (Gödel's `LoadAwareNodeUsage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// The usage of the pods that were measured.
    pub profiled: Usage,
    /// The requests of the pods that were not measured.
    pub requested: Usage,
    /// The time of the measurement; `None` if there is none.
    pub updated: Option<Timestamp>,
}

impl NodeLoad {
    /// Returns the sum of the measured usage and the requests of unmeasured pods.
    #[doc(hidden)]
    #[must_use]
    pub fn total(&self) -> Usage {
        self.profiled.plus(self.requested)
    }
}

impl NodeInfo<'_> {
    /// Returns the measured usage of a class's pods, which is `NodeLoad::profiled`. O(1).
    #[must_use]
    pub(crate) fn profiled(self, class: PodClass) -> Usage {
        let metrics = self.custom_node_resource().and_then(|custom| custom.metrics.as_deref());
        metrics.map(|metrics| metrics.of(class).usage).unwrap_or_default()
    }

    /// Returns the load of a class's pods: the usage that the CustomNodeResource reports, and the requests of the pods
    /// that it does not name (Gödel: load_aware_store `newPodMetricInfos`). A placeholder pod counts with its requests;
    /// overhead counts as requested.
    ///
    /// O(pods of the node × log pods measured), and O(1) if no pod of the class was measured.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::*;
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
