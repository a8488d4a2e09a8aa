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
        Framework::assembled(default_plugins(handle)).with_handle(handle.clone())
    }
}

#[cfg(feature = "k8s")]
mod registry {
    use super::super::args::{factory, none};
    use super::PROFILE;
    use crate::framework::{Factory, Registry};

    /// In-tree plugins that a configuration may name but that have no effect here, because pods with resource claims
    /// are refused.
    const LEFT_OUT: [&str; 1] = ["DynamicResources"];

    impl Registry {
        /// Creates a registry of kube-scheduler's plugins, Gödel's PodLauncher, and Gödel's LoadAware, with the default
        /// profile. LoadAware is not part of that profile.
        #[must_use]
        pub fn in_tree() -> Registry {
            let mut registry = Registry::default();
            for (name, _, make) in PROFILE {
                let made: Factory = match factory(name) {
                    Some(factory) => Box::new(factory),
                    None => Box::new(move |args, handle| none(args, make(handle))),
                };
                // Registration cannot fail: names are unique.
                let _ = registry.register(name, made);
            }
            if let Some(factory) = factory("LoadAware") {
                let _ = registry.register("LoadAware", Box::new(factory));
            }
            let profile = PROFILE.iter().map(|(name, weight, _)| ((*name).to_owned(), *weight));
            registry.set_default_profile(profile.collect());
            LEFT_OUT.iter().for_each(|name| registry.leave_out(name));
            registry
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_match_the_table() {
        for (name, _, make) in PROFILE {
            assert_eq!(make(&Handle::default()).name(), name);
        }
    }
}
