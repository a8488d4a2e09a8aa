//! Which of a node's two accounts a pod is charged to, and who starts it there
//! (Gödel: util/pod `GetPodResourceType` and `GetPodLauncher`).

/// The class of a pod's resources. Each class has an account of its own on every
/// node: what pods of it may take, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PodClass {
    /// It takes of what the node has (QoS levels `dedicated_cores` and
    /// `shared_cores`): what every pod of Kubernetes does.
    #[default]
    Guaranteed,
    /// It takes of what others have reserved and do not use (`reclaimed_cores`):
    /// how much that is says the node's CustomNodeResource.
    BestEffort,
}

impl PodClass {
    /// The class that a pod's annotations say: the QoS level first, then the
    /// resource type. What neither knows is guaranteed, as Gödel accounts it.
    #[must_use]
    pub fn of(qos_level: Option<&str>, resource_type: Option<&str>) -> PodClass {
        match (qos_level, resource_type) {
            (Some("dedicated_cores" | "shared_cores"), _) => PodClass::Guaranteed,
            (Some("reclaimed_cores"), _) | (_, Some("best-effort")) => PodClass::BestEffort,
            _ => PodClass::Guaranteed,
        }
    }

    /// As Gödel's annotation writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PodClass::Guaranteed => "guaranteed",
            PodClass::BestEffort => "best-effort",
        }
    }
}

/// Who starts a pod on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Launcher {
    /// The kubelet: there has to be a Node.
    #[default]
    Kubelet,
    /// A node manager, as of YARN: there has to be an NMNode.
    NodeManager,
    /// The pod names another one, which no node has.
    Unknown,
}

impl Launcher {
    /// The launcher that a pod's annotation says: the kubelet where there is none.
    #[must_use]
    pub fn of(annotation: Option<&str>) -> Launcher {
        match annotation {
            None | Some("kubelet") => Launcher::Kubelet,
            Some("node-manager") => Launcher::NodeManager,
            Some(_) => Launcher::Unknown,
        }
    }

    /// As Gödel's annotation writes it; empty for an unknown one.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Launcher::Kubelet => "kubelet",
            Launcher::NodeManager => "node-manager",
            Launcher::Unknown => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_qos_level_decides_before_the_resource_type() {
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
    fn an_illegal_class_is_guaranteed_and_an_illegal_launcher_is_none() {
        assert_eq!(PodClass::of(Some("x"), Some("y")), PodClass::Guaranteed);
        assert_eq!(Launcher::of(Some("docker")), Launcher::Unknown);
        assert_eq!(Launcher::of(None), Launcher::Kubelet);
        assert_eq!(Launcher::of(Some("node-manager")).as_str(), "node-manager");
    }
}
