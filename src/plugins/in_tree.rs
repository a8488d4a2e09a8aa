//! The list of kube-scheduler's plugins, in their default order and with their default weights
//! (apis/config/v1/default_plugins.go).

use crate::framework::{Framework, Handle, Plugin};

/// A plugin of the default profile: its name, the weight of its scores (0 if it does not score), and its constructor
/// without arguments.
type Row = (&'static str, i64, fn(&Handle) -> Box<dyn Plugin>);

const PROFILE: [Row; 21] = [
    ("SchedulingGates", 0, |_| Box::new(super::SchedulingGates)),
    ("PrioritySort", 0, |_| Box::new(super::PrioritySort)),
    ("NodeUnschedulable", 0, |_| Box::new(super::NodeUnschedulable)),
    ("NodeName", 0, |_| Box::new(super::NodeName)),
    ("TaintToleration", 3, |_| Box::new(super::TaintToleration)),
    ("NodeAffinity", 2, |_| Box::new(super::NodeAffinity::default())),
    ("NodePorts", 0, |_| Box::new(super::NodePorts)),
    ("NodeResourcesFit", 1, |_| Box::new(super::NodeResourcesFit::default())),
    ("VolumeRestrictions", 0, |_| Box::new(super::VolumeRestrictions)),
    ("NodeVolumeLimits", 0, |_| Box::new(super::NodeVolumeLimits)),
    ("VolumeBinding", 0, |handle| Box::new(super::VolumeBinding::new(handle))),
    ("VolumeZone", 0, |_| Box::new(super::VolumeZone)),
    ("PodTopologySpread", 2, |_| Box::new(super::PodTopologySpread::default())),
    ("InterPodAffinity", 2, |_| Box::new(super::InterPodAffinity::default())),
    ("DefaultPreemption", 0, |handle| Box::new(super::DefaultPreemption::new(handle))),
    ("NodeResourcesBalancedAllocation", 1, |_| {
        Box::new(super::NodeResourcesBalancedAllocation::default())
    }),
    ("ImageLocality", 1, |_| Box::new(super::ImageLocality)),
    ("DefaultBinder", 0, |handle| Box::new(super::DefaultBinder::new(handle))),
    ("NodeDeclaredFeatures", 0, |_| Box::new(super::NodeDeclaredFeatures)),
    ("GangScheduling", 0, |handle| Box::new(super::GangScheduling::new(handle))),
    ("PodLauncher", 0, |_| Box::new(super::PodLauncher)),
];

/// Returns the plugins of the [default profile](Framework::default_profile) with their score weights. Pass them to
/// [`Framework::new`] to combine them with custom plugins.
#[must_use]
pub fn default_plugins(handle: &Handle) -> Vec<(Box<dyn Plugin>, i64)> {
    PROFILE.iter().map(|(_, weight, make)| (make(handle), *weight)).collect()
}

/// Returns the plugin of the default profile with this name, with its default arguments, or `None` if the profile has
/// no such plugin. O(plugins).
#[must_use]
pub fn default_plugin(name: &str, handle: &Handle) -> Option<Box<dyn Plugin>> {
    PROFILE.iter().find(|(known, ..)| *known == name).map(|(_, _, make)| make(handle))
}

impl Framework {
    /// Creates a framework with kube-scheduler's default profile, in its order and with its weights. It also contains
    /// GangScheduling, which kube-scheduler enables by a feature gate, and Gödel's PodLauncher, which has no effect if
    /// all nodes belong to kubelets.
    #[must_use]
    pub fn default_profile() -> Framework {
        Framework::default_profile_with(&Handle::default())
    }

    /// Like [`Framework::default_profile`], with this handle.
    #[must_use]
    pub fn default_profile_with(handle: &Handle) -> Framework {
        Framework::unchecked(default_plugins(handle)).with_handle(handle.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_match_the_table() {
        for (name, _, make) in PROFILE {
            assert_eq!(make(&Handle::default()).info().name(), name);
        }
    }
}
