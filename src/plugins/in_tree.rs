//! All of kube-scheduler's plugins: which there are, in which order they run by
//! default, and with which weights (apis/config/v1/default_plugins.go).

use crate::framework::{Framework, Handle, Plugin};

/// A plugin of the default profile: its name, the weight of its scores (0 where it
/// has none), and how it is made without arguments.
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

/// The plugins of the [default profile](Framework::default_profile) with the weights of their scores, for
/// [`Framework::new`] with plugins of your own among them.
#[must_use]
pub fn default_plugins(handle: &Handle) -> Vec<(Box<dyn Plugin>, i64)> {
    PROFILE.iter().map(|(_, weight, make)| (make(handle), *weight)).collect()
}

impl Framework {
    /// The plugins of kube-scheduler's default profile, in its order and with
    /// its weights; GangScheduling, which it has there behind a feature gate; and Gödel's
    /// PodLauncher, which says nothing where all nodes are kubelets'.
    #[must_use]
    pub fn default_profile() -> Framework {
        Framework::default_profile_with(&Handle::default())
    }

    /// The same with this handle.
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

    /// In-tree plugins that a configuration may name, and that do nothing here: pods
    /// with resource claims are refused.
    const LEFT_OUT: [&str; 1] = ["DynamicResources"];

    impl Registry {
        /// Kube-scheduler's plugins and Gödel's PodLauncher, with the default profile; and
        /// Gödel's LoadAware, which is not in it.
        #[must_use]
        pub fn in_tree() -> Registry {
            let mut registry = Registry::default();
            for (name, _, make) in PROFILE {
                let made: Factory = match factory(name) {
                    Some(factory) => Box::new(factory),
                    None => Box::new(move |args, handle| none(args, make(handle))),
                };
                // No name is there twice.
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
    fn plugins_are_called_what_the_table_calls_them() {
        for (name, _, make) in PROFILE {
            assert_eq!(make(&Handle::default()).name(), name);
        }
    }
}
