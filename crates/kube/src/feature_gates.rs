//! The feature gates of kube-scheduler 1.36, and the value of each that portolan implements.

/// The maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Off unless it is enabled.
    Alpha,
    /// Usually on.
    Beta,
    /// On, and usually locked.
    Stable,
}

impl Stage {
    /// Returns the stage's name in the metric `kubernetes_feature_enabled`, which is empty for stable features.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Stable => "",
        }
    }
}

/// A feature gate of kube-scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureGate {
    /// The name.
    pub name: &'static str,
    /// The stage in kube-scheduler 1.36.
    pub stage: Stage,
    /// Whether portolan implements the feature.
    pub is_enabled: bool,
}

const fn gate(name: &'static str, stage: Stage, is_enabled: bool) -> FeatureGate {
    FeatureGate { name, stage, is_enabled }
}

use Stage::{Alpha, Beta, Stable};

/// The gates that change kube-scheduler's decisions, writes or endpoints, by name.
pub const FEATURE_GATES: [FeatureGate; 38] = [
    gate("AllAlpha", Alpha, false),
    gate("AllBeta", Beta, false),
    gate("ComponentFlagz", Beta, false),
    gate("ComponentStatusz", Beta, false),
    gate("CoordinatedLeaderElection", Beta, false),
    gate("DRAAdminAccess", Stable, true),
    gate("DRAConsumableCapacity", Beta, true),
    gate("DRADeviceBindingConditions", Beta, true),
    gate("DRADeviceTaintRules", Beta, false),
    gate("DRADeviceTaints", Beta, true),
    gate("DRAExtendedResource", Beta, true),
    gate("DRAListTypeAttributes", Alpha, false),
    gate("DRANodeAllocatableResources", Alpha, false),
    gate("DRAPartitionableDevices", Beta, true),
    gate("DRAPrioritizedList", Stable, true),
    gate("DRAResourceClaimDeviceStatus", Beta, true),
    gate("DRASchedulerFilterTimeout", Beta, true),
    gate("DRAWorkloadResourceClaims", Alpha, false),
    gate("DynamicResourceAllocation", Stable, true),
    gate("GangScheduling", Alpha, false),
    gate("GenericWorkload", Alpha, false),
    gate("InPlacePodVerticalScaling", Stable, true),
    gate("MatchLabelKeysInPodTopologySpread", Beta, true),
    gate("NodeDeclaredFeatures", Beta, true),
    gate("NodeInclusionPolicyInPodTopologySpread", Stable, true),
    gate("NominatedNodeNameForExpectation", Beta, true),
    gate("OpportunisticBatching", Beta, true),
    gate("PodLevelResources", Beta, true),
    gate("SchedulerAsyncAPICalls", Beta, false),
    gate("SchedulerAsyncPreemption", Beta, true),
    gate("SchedulerPopFromBackoffQ", Beta, true),
    gate("SchedulerQueueingHints", Stable, true),
    gate("SidecarContainers", Stable, true),
    gate("StorageCapacityScoring", Alpha, false),
    gate("TaintTolerationComparisonOperators", Alpha, false),
    gate("TopologyAwareWorkloadScheduling", Alpha, false),
    gate("VolumeLimitScaling", Alpha, false),
    gate("WorkloadAwarePreemption", Alpha, false),
];
