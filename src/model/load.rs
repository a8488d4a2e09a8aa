//! What the pods of a node use, as an agent on it measured.

use super::{Bytes, MilliCpu, Name, PodClass, Timestamp};

/// An amount of what is measured: cpu and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Usage {
    /// Cpu.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
}

impl Usage {
    /// Both together, at most what there are numbers for.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            cpu: MilliCpu(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_add(other.memory.0)),
        }
    }
}

/// What was measured of the pods of one QoS level (`GroupMetricInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GroupMetric {
    /// The class that the level is of.
    pub class: PodClass,
    /// What the pods use together (`genericUsage`).
    pub usage: Usage,
    /// The pods, as `namespace/name` (`podList`).
    pub pods: Vec<Name>,
}

/// What was measured of the pods of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "super::serialized::Profile"))]
pub struct Profile {
    /// What they use together.
    pub usage: Usage,
    /// Which they are, as `namespace/name`, in order.
    pub(super) pods: Box<[Name]>,
}

impl Profile {
    /// The pods that were measured, as `namespace/name`.
    #[must_use]
    pub fn pods(&self) -> &[Name] {
        &self.pods
    }

    /// Whether a pod was among those measured. O(log pods); nothing is allocated.
    #[must_use]
    pub fn has(&self, namespace: &str, name: &str) -> bool {
        let wanted = || namespace.bytes().chain([b'/']).chain(name.bytes());
        self.pods.binary_search_by(|key| key.bytes().cmp(wanted())).is_ok()
    }
}

/// What an agent measured on a node (`status.nodeMetricStatus` of a
/// CustomNodeResource).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeMetrics {
    /// When it did.
    pub updated: Option<Timestamp>,
    guaranteed: Profile,
    best_effort: Profile,
}

impl NodeMetrics {
    /// What these groups make together, by class (Gödel: load_aware_store
    /// `newPodMetricInfos`). O(pods × log pods).
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

    /// What was measured of the pods of a class.
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
