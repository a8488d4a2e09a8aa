//! The pod as callers submit it, and its builder.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::requests::Requests;
use super::{
    Container, ContainerKind, GeneratedClaims, HostPort, Labels, Name, NodeAffinity, PodAffinity,
    PodSpec, Quantity, ResourceList, Taint, TaintEffect, Template, Toleration, TolerationOperator,
    Uid, VolumeSource,
};

/// A point in time, in nanoseconds since the Unix epoch. Callers pass times in: no engine reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time `seconds` after the epoch, saturating.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Timestamp {
        Timestamp(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns the time `millis` milliseconds after the epoch, saturating.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis.saturating_mul(1_000_000))
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
}

impl From<SystemTime> for Timestamp {
    /// Converts a time of the system's clock, saturating. Times before the epoch are negative.
    fn from(time: SystemTime) -> Timestamp {
        let nanos = |since: Duration| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        Timestamp(match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => nanos(after),
            Err(before) => -nanos(before.duration()),
        })
    }
}

/// The scheduler of pods that name none (`corev1.DefaultSchedulerName`).
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A pod: its own identity and state, and the template that it shares with other pods.
///
/// A clone costs a few reference counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pod {
    /// The identifier of the pod. The engine refuses an empty uid in every operation.
    pub uid: Uid,
    /// The name within the namespace.
    pub name: Name,
    /// Everything else that plugins read of the pod.
    pub template: Arc<Template>,
    /// `metadata.resourceVersion`, or 0 if absent.
    pub resource_version: u64,
    /// The node that the pod is bound to or assumed on.
    pub node_name: Option<Name>,
    /// `status.nominatedNodeName`.
    pub nominated_node_name: Option<Name>,
    /// `metadata.creationTimestamp`.
    pub creation_time: Option<Timestamp>,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: if set, the pod is terminating.
    pub deletion_time: Option<Timestamp>,
    /// `status.resourceClaimStatuses`: the claims that were generated from templates. Not kept of placed pods.
    #[cfg_attr(feature = "serde", serde(default))]
    pub claim_statuses: Option<GeneratedClaims>,
    /// `status.phase` is Succeeded or Failed, or the pod was deleted. Read by
    /// [`Event::put_pod`](crate::cache::Event::put_pod) alone.
    pub finished: bool,
}

impl Pod {
    /// Returns the pod's namespace.
    #[must_use]
    pub fn namespace(&self) -> &Name {
        &self.template.namespace
    }

    /// Returns `namespace/name`.
    #[must_use]
    pub fn key(&self) -> Name {
        format!("{}/{}", self.namespace(), self.name).into()
    }

    /// Returns the name of the scheduler that is responsible for the pod: [`DEFAULT_SCHEDULER`] if the pod names none.
    #[must_use]
    pub fn scheduler_name(&self) -> &str {
        let named = self.template.scheduler_name.as_deref();
        named.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER)
    }

    /// Returns the namespace and name of the pod's group, or `None` if the pod belongs to no group.
    #[must_use]
    pub fn group(&self) -> Option<(&Name, &Name)> {
        self.template.group()
    }

    /// Returns the pod with its node set to `node`.
    #[must_use]
    pub fn on(mut self, node: impl Into<Name>) -> Pod {
        self.node_name = Some(node.into());
        self
    }
}

/// Builds a [`Pod`], see [`pod`].
#[derive(Clone, Debug)]
pub struct PodBuilder {
    pod: Pod,
    spec: PodSpec,
    requests: Requests,
    main: Option<ResourceList>,
}

/// Starts building a pod called `name` with one container. The namespace defaults to `default` and the uid to
/// `<namespace>/<name>`.
///
/// ```
/// use portolan::model::{MilliCpu, pod};
///
/// let pod = pod("web-0").namespace("shop").cpu(250).memory(1 << 30).label("app", "web").build();
/// assert_eq!(pod.uid.to_string(), "shop/web-0");
/// assert_eq!(pod.template.resources.incoming.cpu, MilliCpu(250));
/// ```
pub fn pod(name: impl Into<Name>) -> PodBuilder {
    PodBuilder {
        pod: Pod {
            uid: Uid::new(""),
            name: name.into(),
            template: Template::new(PodSpec::default()),
            resource_version: 0,
            node_name: None,
            nominated_node_name: None,
            creation_time: None,
            start_time: None,
            deletion_time: None,
            claim_statuses: None,
            finished: false,
        },
        spec: PodSpec { namespace: "default".into(), ..PodSpec::default() },
        requests: Requests::default(),
        main: None,
    }
}

impl PodBuilder {
    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<Name>) -> Self {
        self.spec.namespace = namespace.into();
        self
    }

    /// Sets the uid.
    #[must_use]
    pub fn uid(mut self, uid: impl AsRef<str>) -> Self {
        self.pod.uid = Uid::new(uid.as_ref());
        self
    }

    /// Sets the resource version.
    #[must_use]
    pub fn resource_version(mut self, version: u64) -> Self {
        self.pod.resource_version = version;
        self
    }

    /// Sets the node that the pod is on.
    #[must_use]
    pub fn on(mut self, node: impl Into<Name>) -> Self {
        self.pod.node_name = Some(node.into());
        self
    }

    /// Requests cpu, in milli-cores, for the first container.
    #[must_use]
    pub fn cpu(self, milli: i64) -> Self {
        self.request("cpu", Quantity::milli(milli))
    }

    /// Requests memory, in bytes, for the first container.
    #[must_use]
    pub fn memory(self, bytes: i64) -> Self {
        self.request("memory", Quantity::whole(bytes))
    }

    /// Requests any resource for the first container.
    #[must_use]
    pub fn request(mut self, resource: impl Into<Name>, quantity: Quantity) -> Self {
        self.main.get_or_insert_default().set(resource, quantity);
        self
    }

    /// Adds a container. A pod without containers is built with one, which has the requests set by
    /// [`PodBuilder::request`].
    #[must_use]
    pub fn container(mut self, container: Container) -> Self {
        self.requests.containers.push(container);
        self
    }

    /// Replaces all the parts from which requests are computed.
    #[must_use]
    pub fn requests(mut self, requests: Requests) -> Self {
        self.requests = requests;
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let old = std::mem::take(&mut self.spec.labels);
        self.spec.labels = Labels::new(old.iter().chain([(key, value)]));
        self
    }

    /// Adds a TCP host port on every address.
    #[must_use]
    pub fn host_port(mut self, port: u16) -> Self {
        let taken = HostPort { ip: "0.0.0.0".into(), protocol: super::Protocol::Tcp, port };
        let mut ports = Vec::from(std::mem::take(&mut self.spec.host_ports));
        ports.push(taken);
        self.spec.host_ports = ports.into();
        self
    }

    /// Sets the node selector.
    #[must_use]
    pub fn node_selector(mut self, labels: Labels) -> Self {
        self.spec.node_selector = labels;
        self
    }

    /// Sets the node affinity.
    #[must_use]
    pub fn node_affinity(mut self, affinity: NodeAffinity) -> Self {
        self.spec.node_affinity = Some(Box::new(affinity));
        self
    }

    /// Sets the pod affinity.
    #[must_use]
    pub fn pod_affinity(mut self, affinity: PodAffinity) -> Self {
        self.spec.pod_affinity = Some(Box::new(affinity));
        self
    }

    /// Sets the pod anti-affinity.
    #[must_use]
    pub fn pod_anti_affinity(mut self, affinity: PodAffinity) -> Self {
        self.spec.pod_anti_affinity = Some(Box::new(affinity));
        self
    }

    /// Adds a toleration.
    #[must_use]
    pub fn toleration(mut self, toleration: Toleration) -> Self {
        let mut all = Vec::from(std::mem::take(&mut self.spec.tolerations));
        all.push(toleration);
        self.spec.tolerations = all.into();
        self
    }

    /// Tolerates every taint with this key, whatever its value and effect.
    #[must_use]
    pub fn tolerate(self, key: impl Into<Name>) -> Self {
        self.toleration(Toleration {
            key: Some(key.into()),
            operator: TolerationOperator::Exists,
            ..Toleration::default()
        })
    }

    /// Mounts a persistent volume claim of the pod's namespace.
    #[must_use]
    pub fn claim(self, claim: impl Into<Name>) -> Self {
        self.volume(VolumeSource::PersistentVolumeClaim { claim: claim.into(), read_only: false })
    }

    /// Adds a volume.
    #[must_use]
    pub fn volume(mut self, volume: VolumeSource) -> Self {
        let mut all = Vec::from(std::mem::take(&mut self.spec.volumes));
        all.push(volume);
        self.spec.volumes = all.into();
        self
    }

    /// Sets the scheduler that schedules the pod: the name of one of its profiles.
    #[must_use]
    pub fn scheduler_name(mut self, name: impl Into<Name>) -> Self {
        self.spec.scheduler_name = Some(name.into());
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.priority = priority;
        self
    }

    /// Adds the pod to a pod group of its namespace.
    #[must_use]
    pub fn group(mut self, name: impl Into<Name>) -> Self {
        self.spec.scheduling_group = Some(name.into());
        self
    }

    /// Sets the start time.
    #[must_use]
    pub fn started(mut self, at: Timestamp) -> Self {
        self.pod.start_time = Some(at);
        self
    }

    /// Marks the pod as terminating.
    #[must_use]
    pub fn deleted(mut self, at: Timestamp) -> Self {
        self.pod.deletion_time = Some(at);
        self
    }

    /// Marks the pod as finished.
    #[must_use]
    pub fn finished(mut self) -> Self {
        self.pod.finished = true;
        self
    }

    /// Changes any part of the spec, including parts without a method of their own.
    #[must_use]
    pub fn spec(mut self, change: impl FnOnce(&mut PodSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// Builds the pod: computes the requests, hashes the template, and adds the containers' host ports. The images and
    /// the number of containers are taken from the containers unless they were set explicitly.
    #[must_use]
    pub fn build(mut self) -> Pod {
        if let Some(requests) = self.main {
            match self.requests.containers.first_mut() {
                Some(first) => {
                    for (name, quantity) in requests.iter() {
                        first.requests.set(name.clone(), quantity);
                    }
                }
                None => {
                    self.requests.containers.push(Container { requests, ..Container::default() })
                }
            }
        } else if self.requests.containers.is_empty() {
            self.requests.containers.push(Container::default());
        }
        if self.pod.uid.is_empty() {
            self.pod.uid = Uid::new(&format!("{}/{}", self.spec.namespace, self.pod.name));
        }
        let containers = &self.requests.containers;
        if self.spec.container_count == 0 {
            self.spec.container_count = containers.len() as u32;
        }
        if self.spec.images.is_empty() {
            let containers_of =
                |init| containers.iter().filter(move |c| (c.kind == ContainerKind::Main) != init);
            self.spec.images = containers_of(true)
                .chain(containers_of(false))
                .filter_map(|c| c.image.clone())
                .collect();
        }
        let ports = std::mem::take(&mut self.spec.host_ports).into_vec();
        self.spec.host_ports =
            ports.into_iter().chain(self.requests.host_ports().cloned()).collect();
        self.spec.resources = self.requests.compute();
        self.spec.container_requests = self.requests.by_container();
        self.pod.template = Template::new(self.spec);
        self.pod
    }
}

impl Taint {
    /// Creates a taint, for example `Taint::new("dedicated", "gpu", TaintEffect::NoSchedule)`.
    pub fn new(key: impl Into<Name>, value: impl Into<Name>, effect: TaintEffect) -> Taint {
        Taint { key: key.into(), value: value.into(), effect }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_count_nanoseconds_from_the_epoch_in_both_directions() {
        let (epoch, time) = (SystemTime::UNIX_EPOCH, Duration::new(3, 5));
        assert_eq!(Timestamp::from(epoch + time), Timestamp(3_000_000_005));
        assert_eq!(Timestamp::from(epoch - time), Timestamp(-3_000_000_005));
        let far = Duration::from_secs(u64::from(u32::MAX) * 4);
        assert_eq!(Timestamp::from(epoch + far), Timestamp(i64::MAX));
    }

    #[test]
    fn a_pod_has_the_ports_and_images_of_its_containers() {
        let container = |kind, image: &str, port| Container {
            kind,
            image: Some(image.into()),
            host_ports: vec![HostPort { ip: "0.0.0.0".into(), protocol: Default::default(), port }],
            ..Container::default()
        };
        let pod = pod("a")
            .host_port(1)
            .container(container(ContainerKind::Main, "main", 2))
            .container(container(ContainerKind::Init, "init", 3))
            .container(container(ContainerKind::Sidecar, "sidecar", 4))
            .build();
        let ports: Vec<_> = pod.template.host_ports.iter().map(|p| p.port).collect();
        assert_eq!(ports, [1, 2, 4]);
        let images: Vec<_> = pod.template.images.iter().map(|i| &**i).collect();
        assert_eq!(images, ["init", "sidecar", "main"]);
        assert_eq!(pod.template.container_count, 3);
    }
}
