//! What pods of one template share: all that plugins read of a pod.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use super::{
    Labels, Launcher, MicroTopology, Name, NodeAffinity, PodAffinity, PodClass, PodResources,
    Toleration, TopologySpreadConstraint,
};
use crate::hash::hash_of;

/// Transport protocol of a host port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }
}

/// A port of the node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct HostPort {
    /// On this address; `0.0.0.0` is every address.
    pub ip: Name,
    /// Protocol.
    pub protocol: Protocol,
    /// Port, never 0.
    pub port: u16,
}

impl HostPort {
    /// Whether two ports cannot both be had on one node
    /// (framework/types.go `HostPortInfo.CheckConflict`).
    #[must_use]
    pub fn conflicts(&self, other: &HostPort) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || &*self.ip == ANY || &*other.ip == ANY)
    }

    /// The address, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.ip.parse().ok()
    }
}

/// What a volume is made of, as far as scheduling reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub enum VolumeSource {
    /// A claim of the pod's namespace.
    PersistentVolumeClaim {
        /// The claim's name.
        claim: Name,
        /// Mounted read-only.
        read_only: bool,
    },
    /// A generic ephemeral volume: its claim is called `<pod>-<volume>`.
    Ephemeral {
        /// The volume's name.
        volume: Name,
    },
    /// A GCE persistent disk.
    GcePersistentDisk {
        /// Disk name.
        disk: Name,
        /// Partition, 0 for all of it.
        partition: i32,
        /// Read-only.
        read_only: bool,
    },
    /// An AWS EBS volume.
    AwsElasticBlockStore {
        /// Volume id.
        volume: Name,
        /// Read-only.
        read_only: bool,
    },
    /// A Ceph RBD image.
    Rbd {
        /// Monitors, sorted.
        #[cfg_attr(feature = "serde", serde(deserialize_with = "super::serialized::sorted"))]
        monitors: Box<[Name]>,
        /// Pool.
        pool: Name,
        /// Image.
        image: Name,
        /// Read-only.
        read_only: bool,
    },
    /// An iSCSI target.
    Iscsi {
        /// Qualified name.
        iqn: Name,
        /// Read-only.
        read_only: bool,
    },
    /// An inline volume of a CSI driver.
    Csi {
        /// Driver.
        driver: Name,
    },
    /// An OCI image or artifact mounted as a volume.
    Image {
        /// Its reference.
        reference: Name,
    },
    /// Another in-tree volume that is migrated to a CSI driver, or one that
    /// scheduling does not read.
    Other {
        /// The field's name in the Kubernetes API.
        kind: Name,
        /// The volume's handle in it, maybe empty.
        handle: Name,
    },
}

/// A volume that scheduling reads.
pub type Volume = VolumeSource;

/// Who owns a pod, as its controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OwnerReference {
    /// Group and version.
    pub api_version: Name,
    /// Kind.
    pub kind: Name,
    /// Name.
    pub name: Name,
    /// Uid.
    pub uid: Name,
    /// Whether it is the managing controller.
    pub controller: bool,
}

/// Whether a pod may preempt others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PreemptionPolicy {
    /// It may.
    #[default]
    PreemptLowerPriority,
    /// It never does.
    Never,
}

/// Everything about a pod that filters, scores and the cache read, except what
/// makes it this pod (name, uid, times, node).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodSpec {
    /// Namespace.
    pub namespace: Name,
    /// Labels.
    pub labels: Labels,
    /// Requests, in each of the ways that they are added up.
    pub resources: PodResources,
    /// Ports of the node that the pod takes.
    pub host_ports: Box<[HostPort]>,
    /// `spec.nodeSelector`.
    pub node_selector: Labels,
    /// Node affinity.
    pub node_affinity: Option<Box<NodeAffinity>>,
    /// Pod affinity; `Some` also where its lists are empty.
    pub pod_affinity: Option<Box<PodAffinity>>,
    /// Pod anti-affinity; `Some` also where its lists are empty.
    pub pod_anti_affinity: Option<Box<PodAffinity>>,
    /// Tolerations.
    pub tolerations: Box<[Toleration]>,
    /// Topology spread constraints.
    pub topology_spread: Box<[TopologySpreadConstraint]>,
    /// Volumes that scheduling reads.
    pub volumes: Box<[Volume]>,
    /// Images of the init containers, then of the containers.
    pub images: Box<[Name]>,
    /// How many of `images` are containers' (init containers included): the
    /// bound of ImageLocality.
    pub container_count: u32,
    /// Priority, resolved.
    pub priority: i32,
    /// Preemption policy.
    pub preemption_policy: PreemptionPolicy,
    /// Name of the scheduler that is to place the pod.
    pub scheduler_name: Option<Name>,
    /// Owners.
    pub owners: Box<[OwnerReference]>,
    /// Scheduling gates that hold the pod back.
    pub scheduling_gates: Box<[Name]>,
    /// Names of the pod's resource claims (DRA): such a pod is counted where it is, and
    /// not placed.
    pub resource_claims: Box<[Name]>,
    /// The pod group of its namespace that the pod belongs to
    /// (`spec.schedulingGroup.podGroupName`).
    pub scheduling_group: Option<Name>,
    /// Features that the node must declare.
    pub required_node_features: Box<[Name]>,
    /// Whether a scheduler has it terminated to make room: condition
    /// `DisruptionTarget` for reason `PreemptionByScheduler`.
    pub is_preempted: bool,
    /// Whether it has data on its node that goes with it: an `emptyDir`.
    pub has_local_storage: bool,
    /// Which account of its node it is charged to.
    pub class: PodClass,
    /// Whether it is bound to NUMA nodes, which it does not share with pods that are not
    /// (QoS level `dedicated_cores` with `numa_binding`).
    pub numa_binding: bool,
    /// Who starts it.
    pub launcher: Launcher,
    /// What a scheduler gave it of which NUMA nodes.
    pub micro_topology: Option<Box<MicroTopology>>,
    /// What Gödel's annotations say; none where there are none.
    pub godel: Option<Box<super::GodelPod>>,
}

/// A [`PodSpec`] with its hash: what pods of one template share.
#[derive(Clone, Debug)]
pub struct Template {
    spec: PodSpec,
    hash: u64,
    is_negative: bool,
}

/// Flags of a [`Template`] that the inner loops test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) affinity: bool,
    pub(crate) required_anti_affinity: bool,
    pub(crate) claims: bool,
}

impl Template {
    /// Hashes a spec, once.
    #[must_use]
    pub fn new(spec: PodSpec) -> Arc<Template> {
        Arc::new(Template::of(spec))
    }

    pub(super) fn of(spec: PodSpec) -> Template {
        let hash = hash_of(&spec);
        let is_negative = spec.negative().is_some();
        Template { spec, hash, is_negative }
    }

    /// Whether the pod takes less than nothing of a resource: see
    /// [`PodSpec::negative`], which says of which. O(1).
    pub(crate) fn is_negative(&self) -> bool {
        self.is_negative
    }

    /// The hash of the spec; another in each process.
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
    /// A resource of which the pod takes less than nothing, also of a NUMA node, if
    /// there is one. O(resources).
    pub(crate) fn negative(&self) -> Option<Name> {
        let given = self.micro_topology.iter().flat_map(|given| given.iter());
        let mut given = given.flat_map(|(_, amounts)| amounts);
        self.resources.negative().or_else(|| {
            given.find(|(_, amount)| amount.is_negative()).map(|(name, _)| name.clone())
        })
    }

    /// The namespace and name of the pod group, if there is one.
    #[must_use]
    pub fn group(&self) -> Option<(&Name, &Name)> {
        let name = self.scheduling_group.as_ref().filter(|name| !name.is_empty())?;
        Some((&self.namespace, name))
    }

    /// The required terms of pod anti-affinity.
    pub fn required_anti_affinity(&self) -> impl Iterator<Item = &super::PodAffinityTerm> {
        self.pod_anti_affinity.iter().flat_map(|affinity| affinity.required.iter())
    }

    /// The names of the persistent volume claims that the pod's volumes name,
    /// one per volume (kube-scheduler counts a claim once per volume; generic
    /// ephemeral volumes are not counted).
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
    fn host_ports_conflict_where_an_address_is_the_same_or_every_one() {
        let port = |ip: &str, protocol, port| HostPort { ip: ip.into(), protocol, port };
        let any = port("0.0.0.0", Protocol::Tcp, 80);
        let one = port("10.0.0.1", Protocol::Tcp, 80);
        assert!(any.conflicts(&one) && one.conflicts(&any) && one.conflicts(&one));
        assert!(!one.conflicts(&port("10.0.0.2", Protocol::Tcp, 80)));
        assert!(!any.conflicts(&port("0.0.0.0", Protocol::Udp, 80)));
        assert!(!any.conflicts(&port("0.0.0.0", Protocol::Tcp, 81)));
    }
}
