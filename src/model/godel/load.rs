//! The measured resource usage of a node's pods.

use crate::model::{Bytes, MilliCpu, Name, PodClass, Timestamp};

/// A measured usage of cpu and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Usage {
    /// The cpu.
    pub cpu: MilliCpu,
    /// The memory.
    pub memory: Bytes,
}

impl Usage {
    /// Adds both usages, saturating.
    #[must_use]
    pub(crate) fn plus(self, other: Usage) -> Usage {
        Usage {
            cpu: MilliCpu(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_add(other.memory.0)),
        }
    }
}

/// The measurements for the pods of one QoS level (`GroupMetricInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GroupMetric {
    /// The class that the QoS level belongs to.
    pub class: PodClass,
    /// The total usage of the pods (`genericUsage`).
    pub usage: Usage,
    /// The pods, as `namespace/name` (`podList`).
    pub pods: Vec<Name>,
}

/// The measurements for the pods of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "crate::model::serialized::Profile"))]
pub struct Profile {
    /// The total usage of the pods.
    pub usage: Usage,
    /// The pods, as `namespace/name`, sorted.
    pub(in crate::model) pods: Box<[Name]>,
}

impl Profile {
    /// Returns the measured pods, as `namespace/name`.
    #[doc(hidden)]
    #[must_use]
    pub fn pods(&self) -> &[Name] {
        &self.pods
    }

    /// Returns `true` if the pod was measured. O(log pods); allocates nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn has(&self, namespace: &str, name: &str) -> bool {
        let wanted = || namespace.bytes().chain([b'/']).chain(name.bytes());
        self.pods.binary_search_by(|key| key.bytes().cmp(wanted())).is_ok()
    }
}

/// The measurements of a node's agent (`status.nodeMetricStatus` of a CustomNodeResource).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeMetrics {
    /// The time of the measurement.
    pub updated: Option<Timestamp>,
    guaranteed: Profile,
    best_effort: Profile,
}

impl NodeMetrics {
    /// Merges the groups of each class into a profile (Gödel: load_aware_store `newPodMetricInfos`). O(pods × log
    /// pods).
    #[must_use]
    pub fn new(
        updated: Option<Timestamp>,
        groups: impl IntoIterator<Item = GroupMetric>,
    ) -> NodeMetrics {
        let mut metrics = NodeMetrics { updated, ..NodeMetrics::default() };
        let mut pods: [Vec<Name>; 2] = Default::default();
        for group in groups {
            let (profile, pods) = match group.class {
                PodClass::Guaranteed => (&mut metrics.guaranteed, &mut pods[0]),
                PodClass::BestEffort => (&mut metrics.best_effort, &mut pods[1]),
            };
            profile.usage = profile.usage.plus(group.usage);
            pods.extend(group.pods);
        }
        let [guaranteed, best_effort] = pods.map(|mut pods| {
            pods.sort();
            pods.dedup();
            pods.into()
        });
        metrics.guaranteed.pods = guaranteed;
        metrics.best_effort.pods = best_effort;
        metrics
    }

    /// Returns the measurements for the pods of `class`.
    #[doc(hidden)]
    #[must_use]
    pub fn of(&self, class: PodClass) -> &Profile {
        match class {
            PodClass::Guaranteed => &self.guaranteed,
            PodClass::BestEffort => &self.best_effort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_class_are_one_profile() {
        let group = |class, cpu, pods: &[&str]| GroupMetric {
            class,
            usage: Usage { cpu: MilliCpu(cpu), memory: Bytes(cpu << 20) },
            pods: pods.iter().map(|pod| (*pod).into()).collect(),
        };
        let metrics = NodeMetrics::new(
            None,
            [
                group(PodClass::Guaranteed, 100, &["n/b", "n/a"]),
                group(PodClass::BestEffort, 7, &["n/c"]),
                group(PodClass::Guaranteed, 30, &["m-x/y", "n/a"]),
            ],
        );
        let guaranteed = metrics.of(PodClass::Guaranteed);
        assert_eq!((guaranteed.usage.cpu, guaranteed.pods().len()), (MilliCpu(130), 3));
        assert!(guaranteed.has("n", "a") && guaranteed.has("m-x", "y"));
        assert!(!guaranteed.has("n", "c") && !guaranteed.has("n", ""));
        assert!(metrics.of(PodClass::BestEffort).has("n", "c"));
    }
}
