//! Resource classes, which determine the account of a node that a pod is charged to, and launchers, which start pods
//! (Gödel: util/pod `GetPodResourceType` and `GetPodLauncher`).

/// The resource class of a pod. Every node has a separate account for each class, with its own allocatable and
/// requested resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PodClass {
    /// The pod uses the node's regular resources, as every Kubernetes pod does (QoS levels `dedicated_cores` and
    /// `shared_cores`).
    #[default]
    Guaranteed,
    /// The pod uses resources that other pods have requested but do not use (`reclaimed_cores`). The node's
    /// CustomNodeResource reports how much is available.
    BestEffort,
}

impl PodClass {
    /// Returns the class that a pod's annotations specify. The QoS level takes precedence over the resource type.
    /// Without a recognized value, the class is guaranteed, as in Gödel.
    #[must_use]
    pub fn of(qos_level: Option<&str>, resource_type: Option<&str>) -> PodClass {
        match (qos_level, resource_type) {
            (Some("dedicated_cores" | "shared_cores"), _) => PodClass::Guaranteed,
            (Some("reclaimed_cores"), _) | (_, Some("best-effort")) => PodClass::BestEffort,
            _ => PodClass::Guaranteed,
        }
    }

    /// Returns whether a pod's annotations specify a class or none at all. Gödel's schedulers are not responsible for a
    /// pod of an unknown class ([`Pod::is_for`](crate::model::Pod::is_for)); once it is bound, it is guaranteed.
    #[must_use]
    pub fn is_known(qos_level: Option<&str>, resource_type: Option<&str>) -> bool {
        matches!(qos_level, Some("dedicated_cores" | "shared_cores" | "reclaimed_cores"))
            || matches!(resource_type, None | Some("guaranteed" | "best-effort"))
    }

    /// Returns the value used in Gödel's annotation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PodClass::Guaranteed => "guaranteed",
            PodClass::BestEffort => "best-effort",
        }
    }
}

/// The agent that starts a pod on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Launcher {
    /// The kubelet, which requires a Node object.
    #[default]
    Kubelet,
    /// A node manager such as YARN's, which requires an NMNode object.
    NodeManager,
    /// The pod names an unknown launcher, which no node has.
    Unknown,
}

impl Launcher {
    /// Returns the launcher that a pod's annotation specifies; the default is the kubelet.
    #[must_use]
    pub fn of(annotation: Option<&str>) -> Launcher {
        match annotation {
            None | Some("kubelet") => Launcher::Kubelet,
            Some("node-manager") => Launcher::NodeManager,
            Some(_) => Launcher::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_qos_level_overrides_the_resource_type() {
        use PodClass::{BestEffort, Guaranteed};
        for (qos, resource_type, class) in [
            (None, None, Guaranteed),
            (Some("dedicated_cores"), Some("best-effort"), Guaranteed),
            (Some("shared_cores"), None, Guaranteed),
            (Some("reclaimed_cores"), Some("guaranteed"), BestEffort),
            (Some("system_cores"), Some("best-effort"), BestEffort),
            (None, Some("best-effort"), BestEffort),
            (None, Some("guaranteed"), Guaranteed),
        ] {
            assert_eq!(PodClass::of(qos, resource_type), class, "{qos:?} {resource_type:?}");
        }
    }

    #[test]
    fn an_unknown_class_is_guaranteed_and_an_unknown_launcher_is_unknown() {
        assert!(!PodClass::is_known(None, Some("y")) && !PodClass::is_known(Some("x"), Some("")));
        assert!(PodClass::is_known(None, None) && PodClass::is_known(Some("x"), None));
        assert!(PodClass::is_known(Some("shared_cores"), Some("y")));
        assert!(PodClass::is_known(None, Some("best-effort")));
        assert_eq!(PodClass::of(Some("x"), Some("y")), PodClass::Guaranteed);
        assert_eq!(Launcher::of(Some("docker")), Launcher::Unknown);
        assert_eq!(Launcher::of(None), Launcher::Kubelet);
        assert_eq!(Launcher::of(Some("node-manager")), Launcher::NodeManager);
    }
}
