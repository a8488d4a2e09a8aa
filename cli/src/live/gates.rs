//! The feature gates of kube-scheduler 1.36, and the value of each that portolan implements.

use crate::error::Failure;

/// The gates that change kube-scheduler's decisions, writes or endpoints.
const GATES: [(&str, bool); 30] = [
    ("AllAlpha", false),
    ("AllBeta", false),
    ("ComponentFlagz", false),
    ("ComponentStatusz", false),
    ("CoordinatedLeaderElection", false),
    ("DRAConsumableCapacity", false),
    ("DRADeviceTaints", false),
    ("DRAExtendedResource", false),
    ("DRAPartitionableDevices", false),
    ("DRAPrioritizedList", false),
    ("DRAResourceClaimDeviceStatus", false),
    ("DynamicResourceAllocation", false),
    ("GangScheduling", false),
    ("GenericWorkload", false),
    ("InPlacePodVerticalScaling", true),
    ("MatchLabelKeysInPodTopologySpread", true),
    ("NodeDeclaredFeatures", true),
    ("NodeInclusionPolicyInPodTopologySpread", true),
    ("NominatedNodeNameForExpectation", true),
    ("OpportunisticBatching", true),
    ("PodLevelResources", true),
    ("SchedulerAsyncPreemption", true),
    ("SchedulerPopFromBackoffQ", true),
    ("SchedulerQueueingHints", true),
    ("SidecarContainers", true),
    ("StorageCapacityScoring", false),
    ("TaintTolerationComparisonOperators", false),
    ("TopologyAwareWorkloadScheduling", false),
    ("VolumeLimitScaling", false),
    ("WorkloadAwarePreemption", false),
];

/// The gate that changes only how kube-scheduler sends its writes. Both values are accepted.
const WITHOUT_EFFECT: &str = "SchedulerAsyncAPICalls";

/// Checks gates as `--feature-gates` gives them, such as `SchedulerQueueingHints=true`.
pub(super) fn check(gates: &[String]) -> Result<(), Failure> {
    for gate in gates.iter().map(|gate| gate.trim()).filter(|gate| !gate.is_empty()) {
        let wrong = |what: String| Err(Failure::Usage(format!("--feature-gates {gate}: {what}")));
        let Some((name, value)) = gate.split_once('=') else {
            return wrong("write NAME=true or NAME=false".to_owned());
        };
        let value = match value.trim() {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
            "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
            other => return wrong(format!("{other:?} is neither true nor false")),
        };
        if let Some(why) = unimplemented(name.trim(), value) {
            return wrong(why);
        }
    }
    Ok(())
}

/// Returns why portolan does not implement this value of a gate, or `None` if it does.
pub(crate) fn unimplemented(name: &str, value: bool) -> Option<String> {
    match GATES.iter().find(|(known, _)| *known == name) {
        None if name == WITHOUT_EFFECT => None,
        None => {
            let known: Vec<&str> = GATES.iter().map(|(name, _)| *name).collect();
            Some(format!("unknown feature gate {name}; known are {}", known.join(", ")))
        }
        Some((name, implemented)) if *implemented != value => {
            Some(format!("portolan supports only {name}={implemented}"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_must_be_known_and_have_the_value_that_is_implemented() {
        let check = |gates: &[&str]| {
            let gates: Vec<String> = gates.iter().map(|gate| (*gate).to_owned()).collect();
            check(&gates).map_err(|failure| failure.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["SchedulerQueueingHints=true", " GenericWorkload=false", ""]), Ok(()));
        assert_eq!(
            check(&["SchedulerAsyncAPICalls=true"]),
            check(&["SchedulerAsyncAPICalls=false"])
        );
        for (gate, what) in [
            ("GenericWorkload=true", "supports only GenericWorkload=false"),
            ("SchedulerQueueingHints=false", "supports only SchedulerQueueingHints=true"),
            ("Nonesuch=true", "unknown feature gate"),
            ("SchedulerQueueingHints", "NAME=true"),
            ("SchedulerQueueingHints=yes", "neither true nor false"),
        ] {
            let error = check(&["PodLevelResources=true", gate]).expect_err(gate);
            assert!(error.contains(gate) && error.contains(what), "{error}");
        }
    }
}
