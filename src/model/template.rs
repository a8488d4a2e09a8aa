//! The template that pods share: all the data that plugins read of a pod.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::{
    ContainerKind, Labels, Launcher, Name, NodeAffinity, PodAffinity, PodClass, PodResources,
    Toleration, TopologySpreadConstraint,
};
use crate::hash::hash_of;

/// The transport protocol of a host port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Returns the name used by Kubernetes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }
}

/// A port of the node that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct HostPort {
    /// The address; `0.0.0.0` means every address.
    pub ip: Name,
    /// The protocol.
    pub protocol: Protocol,
    /// The port number; never 0.
    pub port: u16,
}

impl HostPort {
    /// Returns `true` if both ports cannot be in use on one node (framework/types.go `HostPortInfo.CheckConflict`).
    #[must_use]
    pub fn conflicts(&self, other: &HostPort) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || &*self.ip == ANY || &*other.ip == ANY)
    }
}

/// The source of a volume, as far as the scheduler reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub enum VolumeSource {
    /// A persistent volume claim of the pod's namespace.
    PersistentVolumeClaim {
        /// The name of the claim.
        claim: Name,
        /// Whether the volume is mounted read-only.
        read_only: bool,
    },
    /// A generic ephemeral volume, whose claim is named `<pod>-<volume>`.
    Ephemeral {
        /// The name of the volume.
        volume: Name,
    },
    /// A GCE persistent disk.
    GcePersistentDisk {
        /// The name of the disk.
        disk: Name,
        /// The partition, or 0 for the whole disk.
        partition: i32,
        /// Whether the volume is mounted read-only.
        read_only: bool,
    },
    /// An AWS EBS volume.
    AwsElasticBlockStore {
        /// The volume id.
        volume: Name,
        /// Whether the volume is mounted read-only.
        read_only: bool,
    },
    /// A Ceph RBD image.
    Rbd {
        /// The monitors, sorted.
        #[cfg_attr(feature = "serde", serde(deserialize_with = "super::serialized::sorted"))]
        monitors: Box<[Name]>,
        /// The pool.
        pool: Name,
        /// The image.
        image: Name,
        /// Whether the volume is mounted read-only.
        read_only: bool,
    },
    /// An iSCSI target.
    Iscsi {
        /// The iSCSI qualified name.
        iqn: Name,
        /// Whether the volume is mounted read-only.
        read_only: bool,
    },
    /// An inline CSI volume.
    Csi {
        /// The CSI driver.
        driver: Name,
    },
    /// An OCI image or artifact mounted as a volume.
    Image {
        /// The image reference.
        reference: Name,
    },
    /// Any other volume: one of an in-tree plugin that is migrated to a CSI driver, or one that the scheduler does not
    /// read.
    Other {
        /// The name of the field in the Kubernetes API.
        kind: Name,
        /// The volume's handle in the driver; may be empty.
        handle: Name,
    },
}

impl VolumeSource {
    /// Returns the name of the claim that the volume of the named pod uses, if it uses one: the claim of a generic
    /// ephemeral volume is named `<pod>-<volume>`.
    #[must_use]
    pub fn claim(&self, pod: &str) -> Option<Name> {
        match self {
            VolumeSource::PersistentVolumeClaim { claim, .. } => Some(claim.clone()),
            VolumeSource::Ephemeral { volume } => Some(format!("{pod}-{volume}").into()),
            _ => None,
        }
    }
}

/// An entry of `spec.resourceClaims`, which names a claim or a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodResourceClaim {
    /// The name of the entry.
    pub name: Name,
    /// `resourceClaimName`.
    pub claim: Option<Name>,
    /// `resourceClaimTemplateName`.
    pub template: Option<Name>,
}

/// The claims that were generated from templates, by the name of the entry; `None` if none is needed.
pub type GeneratedClaims = Arc<[(Name, Option<Name>)]>;

/// The requests of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ContainerRequests {
    /// The name of the container.
    pub name: Name,
    /// The kind of the container.
    pub kind: ContainerKind,
    /// The requests in the order of their names, rounded up.
    pub requests: Box<[(Name, i64)]>,
}

/// A reference to a pod's owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OwnerReference {
    /// The API group and version.
    pub api_version: Name,
    /// The kind.
    pub kind: Name,
    /// The name.
    pub name: Name,
    /// The uid.
    pub uid: Name,
    /// Whether the owner is the managing controller.
    pub controller: bool,
}

/// Whether a pod may preempt pods of lower priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum PreemptionPolicy {
    /// The pod may preempt pods of lower priority.
    #[default]
    PreemptLowerPriority,
    /// The pod never preempts other pods.
    Never,
}

/// Everything about a pod that filters, scores and the cache read, except the data that differ between the pods of a
/// template (name, uid, times, node).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodSpec {
    /// The namespace.
    pub namespace: Name,
    /// The labels.
    pub labels: Labels,
    /// The requests, in each of the sums that the scheduler uses.
    pub resources: PodResources,
    /// The host ports that the pod uses.
    pub host_ports: Box<[HostPort]>,
    /// `spec.nodeSelector`.
    pub node_selector: Labels,
    /// The node affinity.
    pub node_affinity: Option<Box<NodeAffinity>>,
    /// The pod affinity; may be `Some` with empty lists.
    pub pod_affinity: Option<Box<PodAffinity>>,
    /// The pod anti-affinity; may be `Some` with empty lists.
    pub pod_anti_affinity: Option<Box<PodAffinity>>,
    /// The tolerations.
    pub tolerations: Box<[Toleration]>,
    /// The topology spread constraints.
    pub topology_spread: Box<[TopologySpreadConstraint]>,
    /// The volumes.
    pub volumes: Box<[VolumeSource]>,
    /// The images of the init containers, followed by those of the other containers.
    pub images: Box<[Name]>,
    /// The number of containers, including init containers, which bounds the score of ImageLocality.
    pub container_count: u32,
    /// The resolved priority.
    pub priority: i32,
    /// The preemption policy.
    pub preemption_policy: PreemptionPolicy,
    /// The name of the scheduler responsible for the pod.
    pub scheduler_name: Option<Name>,
    /// The owners.
    pub owners: Box<[OwnerReference]>,
    /// The scheduling gates that block the pod.
    pub scheduling_gates: Box<[Name]>,
    /// The pod's resource claims (DRA). Such a pod is counted on its node if it is bound, but this scheduler places it
    /// only if a store [allocates claims](crate::cache::Store::allocates_claims).
    pub resource_claims: Box<[PodResourceClaim]>,
    /// The requests of each container, init containers first, or none if no container requests a
    /// resource with a qualified name.
    #[cfg_attr(feature = "serde", serde(default))]
    pub container_requests: Box<[ContainerRequests]>,
    /// The pod group in the pod's namespace to which the pod belongs (`spec.schedulingGroup.podGroupName`).
    pub scheduling_group: Option<Name>,
    /// The features that the node must declare.
    pub required_node_features: Box<[Name]>,
    /// Whether a scheduler is preempting the pod: it has the condition `DisruptionTarget` with reason
    /// `PreemptionByScheduler`.
    pub is_preempted: bool,
    /// Whether the pod has an `emptyDir` volume, whose data is lost when the pod leaves its node.
    pub has_local_storage: bool,
    /// The class of node resources that the pod is charged to.
    pub class: PodClass,
    /// The agent that starts the pod.
    pub launcher: Launcher,
    /// The contents of Gödel's annotations, or `None` if the pod has none.
    pub godel: Option<Box<super::GodelPod>>,
}

/// A [`PodSpec`] with its hash, shared by all pods of one template.
#[derive(Clone, Debug)]
pub struct Template {
    spec: PodSpec,
    hash: u64,
    is_negative: bool,
}

/// Flags of a [`Template`] that inner loops test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) affinity: bool,
    pub(crate) required_anti_affinity: bool,
    pub(crate) claims: bool,
}

impl Template {
    /// Creates a template from `spec` and hashes it.
    #[must_use]
    pub fn new(spec: PodSpec) -> Arc<Template> {
        Arc::new(Template::of(spec))
    }

    pub(super) fn of(spec: PodSpec) -> Template {
        let hash = hash_of(&spec);
        let is_negative = spec.resources.negative().is_some();
        Template { spec, hash, is_negative }
    }

    /// Returns `true` if some resource amount is negative. O(1).
    pub(crate) fn is_negative(&self) -> bool {
        self.is_negative
    }

    /// Returns the hash of the spec, which differs between processes.
    pub(crate) fn hash64(&self) -> u64 {
        self.hash
    }

    pub(crate) fn traits(&self) -> Traits {
        Traits {
            affinity: self.pod_affinity.is_some() || self.pod_anti_affinity.is_some(),
            required_anti_affinity: self.required_anti_affinity().next().is_some(),
            claims: self.claims().next().is_some(),
        }
    }
}

impl PodSpec {
    /// Returns the namespace and name of the pod group, or `None` if the pod belongs to no group.
    #[must_use]
    pub fn group(&self) -> Option<(&Name, &Name)> {
        let name = self.scheduling_group.as_ref().filter(|name| !name.is_empty())?;
        Some((&self.namespace, name))
    }

    /// Returns the owner that manages the pods, or `None` if they have no controller. O(owners).
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Returns an iterator over the required terms of the pod anti-affinity.
    #[doc(hidden)]
    pub fn required_anti_affinity(&self) -> impl Iterator<Item = &super::PodAffinityTerm> {
        self.pod_anti_affinity.iter().flat_map(|affinity| affinity.required.iter())
    }

    /// Returns an iterator over the names of the persistent volume claims that the pod's volumes reference, one item
    /// per volume (kube-scheduler counts a claim once per volume and does not count generic ephemeral volumes).
    pub fn claims(&self) -> impl Iterator<Item = &Name> {
        self.volumes.iter().filter_map(|volume| match volume {
            VolumeSource::PersistentVolumeClaim { claim, .. } => Some(claim),
            _ => None,
        })
    }
}

impl Deref for Template {
    type Target = PodSpec;

    fn deref(&self) -> &PodSpec {
        &self.spec
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Template) -> bool {
        self.hash == other.hash && self.spec == other.spec
    }
}

impl Eq for Template {}

impl Hash for Template {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_conflict_if_addresses_are_equal_or_unspecified() {
        let port = |ip: &str, protocol, port| HostPort { ip: ip.into(), protocol, port };
        let any = port("0.0.0.0", Protocol::Tcp, 80);
        let one = port("10.0.0.1", Protocol::Tcp, 80);
        assert!(any.conflicts(&one) && one.conflicts(&any) && one.conflicts(&one));
        assert!(!one.conflicts(&port("10.0.0.2", Protocol::Tcp, 80)));
        assert!(!any.conflicts(&port("0.0.0.0", Protocol::Udp, 80)));
        assert!(!any.conflicts(&port("0.0.0.0", Protocol::Tcp, 81)));
    }
}
