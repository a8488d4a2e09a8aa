//! A pod's requests, computed by kube-scheduler's full rule.
//!
//! The rule is component-helpers/resource/helpers.go `PodRequests`: the sum over containers and sidecars, or the peak
//! of the init containers if that is larger; pod-level requests replace this aggregate, and overhead is added on top.
//! For placed pods, the maximum with the resources that the kubelet reports during a resize is taken. Quantities are
//! summed exactly and rounded up once.

use std::collections::BTreeMap;

use super::resources::is_native;
use super::{Bytes, ContainerRequests, HostPort, MilliCpu, Name, Quantity, Resources, Scalars};

/// Quantities by resource name, as in `resources.requests`. A name that is present with quantity 0 differs from an
/// absent name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceList(BTreeMap<Name, Quantity>);

/// The Kubernetes default for a container that requests no cpu.
const DEFAULT_CPU: Quantity = Quantity::milli(100);
/// The Kubernetes default for a container that requests no memory.
const DEFAULT_MEMORY: Quantity = Quantity::whole(200 * 1024 * 1024);

impl ResourceList {
    /// Creates a list from `quantities`. If a name occurs several times, the last quantity wins.
    pub fn new<N: Into<Name>>(quantities: impl IntoIterator<Item = (N, Quantity)>) -> ResourceList {
        ResourceList(quantities.into_iter().map(|(name, q)| (name.into(), q)).collect())
    }

    /// Returns the quantity of `name`, or `None` if it is absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Sets the quantity of `name`.
    pub fn set(&mut self, name: impl Into<Name>, quantity: Quantity) {
        self.0.insert(name.into(), quantity);
    }

    /// Returns `true` if the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of quantities.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns an iterator over the quantities in name order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, Quantity)> {
        self.0.iter().map(|(name, q)| (name, *q))
    }

    fn add(&mut self, other: &ResourceList) {
        for (name, q) in other.iter() {
            // A name is cloned only if it is new.
            match self.0.get_mut(name) {
                Some(sum) => *sum = *sum + q,
                None => self.set(name.clone(), q),
            }
        }
    }

    fn max(&mut self, other: &ResourceList) {
        for (name, q) in other.iter() {
            match self.0.get_mut(name) {
                Some(most) => *most = q.max(*most),
                None => self.set(name.clone(), q),
            }
        }
    }

    /// Sets the quantity of `name` if it is absent.
    fn set_if_absent(&mut self, name: &str, quantity: Quantity) {
        if !self.0.contains_key(name) {
            self.set(name, quantity);
        }
    }

    /// Converts the quantities to integers of each resource's unit, rounded up. Every name other than cpu, memory,
    /// ephemeral-storage and pods becomes a scalar resource, whatever its form: kube-scheduler's rule about names is
    /// applied where Kubernetes objects are read. The "pods" quantity is left out; `ResourceList::pods` returns it.
    #[must_use]
    pub fn to_resources(&self) -> Resources {
        let amount = |name| self.get(name).map_or(0, Quantity::value);
        Resources {
            cpu: MilliCpu(self.get("cpu").map_or(0, Quantity::milli_value)),
            memory: Bytes(amount("memory")),
            ephemeral_storage: Bytes(amount("ephemeral-storage")),
            scalars: Scalars::new(
                self.iter()
                    .filter(|(name, _)| !is_native(name))
                    .map(|(name, q)| (name.clone(), q.value())),
            ),
        }
    }

    /// Returns the name of a resource with a negative quantity, or `None` if there is none.
    pub(crate) fn negative(&self) -> Option<Name> {
        self.iter().find(|(_, quantity)| quantity.is_negative()).map(|(name, _)| name.clone())
    }

    /// Returns the quantity of "pods", rounded up, or 0 if it is absent.
    #[must_use]
    pub(crate) fn pods(&self) -> i64 {
        self.get("pods").map_or(0, Quantity::value)
    }
}

/// The lifetime of a container within its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ContainerKind {
    /// A regular container, which runs as long as the pod.
    #[default]
    Main,
    /// An init container, which runs to completion before the regular containers start.
    Init,
    /// An init container with restart policy `Always`, which starts before the regular containers and keeps running
    /// beside them.
    Sidecar,
}

/// A container's resources as the kubelet reports them during a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ContainerStatus {
    /// `status.containerStatuses[].resources.requests`.
    pub requests: ResourceList,
    /// `status.containerStatuses[].allocatedResources`.
    pub allocated: ResourceList,
}

/// A container, reduced to the parts from which requests are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Container {
    /// The name.
    #[cfg_attr(feature = "serde", serde(default))]
    pub name: Name,
    /// The kind of the container.
    pub kind: ContainerKind,
    /// The image.
    pub image: Option<Name>,
    /// `resources.requests`.
    pub requests: ResourceList,
    /// The host ports.
    pub host_ports: Vec<HostPort>,
    /// The resources that the kubelet reports, if it reports any.
    pub status: Option<ContainerStatus>,
}

/// The parts of a pod from which its requests are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Requests {
    /// The init containers and sidecars, in their order, and the regular containers.
    pub containers: Vec<Container>,
    /// `spec.resources.requests`, if the pod has them.
    pub pod_level: Option<ResourceList>,
    /// The pod-level resources that the kubelet reports.
    pub pod_level_status: Option<ContainerStatus>,
    /// `spec.overhead`.
    pub overhead: ResourceList,
    /// Whether the condition PodResizePending has reason Infeasible. The requests of the spec are then ignored if a
    /// status is present.
    pub resize_infeasible: bool,
}

/// The cpu and memory requests, with Kubernetes' defaults for those that are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NonZero {
    /// The cpu.
    pub cpu: MilliCpu,
    /// The memory.
    pub memory: Bytes,
}

/// A pod's total requests, in each of the variants that the cache, the filters and the scores use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "super::serialized::PodResources"))]
pub struct PodResources {
    /// The requests of the pod once placed, including the kubelet's status of a resize.
    pub placed: Resources,
    /// `placed`, with defaults for absent cpu and memory requests.
    pub placed_non_zero: NonZero,
    /// The requests of the pod while it is being scheduled: those of the spec alone.
    pub incoming: Resources,
    /// The requests that NodeResourcesFit scores with: those of the spec with defaults, without pod-level requests
    /// (kube-scheduler constructs the scorer without that flag).
    pub scored: Resources,
}

impl PodResources {
    /// Returns the name of a resource with a negative amount, or `None` if there is none. O(scalars).
    pub(crate) fn negative(&self) -> Option<Name> {
        let in_non_zero = || {
            let NonZero { cpu, memory } = self.placed_non_zero;
            let resources = Resources { cpu, memory, ..Resources::default() };
            resources.negative()
        };
        let sums = [&self.placed, &self.incoming, &self.scored];
        sums.into_iter().find_map(Resources::negative).or_else(in_non_zero)
    }
}

#[derive(Clone, Copy)]
struct Rule {
    with_status: bool,
    pod_level: bool,
    defaults: Defaults,
}

/// Which resources get a default request in containers that do not request them.
#[derive(Clone, Copy)]
struct Defaults {
    cpu: bool,
    memory: bool,
}

impl Defaults {
    const NONE: Defaults = Defaults { cpu: false, memory: false };
    const BOTH: Defaults = Defaults { cpu: true, memory: true };
}

impl Requests {
    /// Computes all variants of the pod's requests. If any part of a resource's request is negative, the resource is
    /// negative in [`PodResources::placed`], whatever the other parts are, so that the engine refuses the pod.
    /// O(containers × resources).
    #[must_use]
    pub fn compute(&self) -> PodResources {
        let sum = |with_status, pod_level, defaults| {
            self.sum(Rule { with_status, pod_level, defaults }).to_resources()
        };
        let mut without =
            self.sum(Rule { with_status: true, pod_level: true, defaults: Defaults::NONE });
        for (name, quantity) in self.lists().flat_map(ResourceList::iter) {
            if quantity.is_negative() {
                without.set(name.clone(), quantity);
            }
        }
        // With pod-level requests, only resources missing from the sum, overhead included, get a default
        // (`getNonMissingContainerRequests`).
        let defaults = match self.pod_level() {
            Some(_) => Defaults {
                cpu: without.get("cpu").is_none(),
                memory: without.get("memory").is_none(),
            },
            None => Defaults::BOTH,
        };
        let with = sum(true, true, defaults);
        PodResources {
            placed: without.to_resources(),
            placed_non_zero: NonZero { cpu: with.cpu, memory: with.memory },
            incoming: sum(false, true, Defaults::NONE),
            scored: sum(false, false, Defaults::BOTH),
        }
    }

    /// Returns every list that contributes to the requests.
    fn lists(&self) -> impl Iterator<Item = &ResourceList> {
        let statuses = self.containers.iter().filter_map(|container| container.status.as_ref());
        let statuses = statuses
            .chain(&self.pod_level_status)
            .flat_map(|status| [&status.requests, &status.allocated]);
        let requests = self.containers.iter().map(|container| &container.requests);
        requests.chain(&self.pod_level).chain([&self.overhead]).chain(statuses)
    }

    /// Returns the aggregate of the containers' requests, without pod-level requests, overhead and status.
    #[must_use]
    pub fn aggregate(&self) -> ResourceList {
        self.containers_sum(Rule { with_status: false, pod_level: false, defaults: Defaults::NONE })
    }

    /// Returns the requests of each container if any requests a resource with a qualified name, and nothing
    /// otherwise.
    #[must_use]
    pub fn by_container(&self) -> Box<[ContainerRequests]> {
        let mut names = self.containers.iter().flat_map(|container| container.requests.iter());
        if !names.any(|(name, _)| name.contains('/')) {
            return Box::default();
        }
        let containers = self.containers.iter().map(|container| ContainerRequests {
            name: container.name.clone(),
            kind: container.kind,
            requests: container
                .requests
                .iter()
                .map(|(name, q)| (name.clone(), q.value()))
                .collect(),
        });
        containers.collect()
    }

    /// Returns the host ports of the regular containers, followed by those of the sidecars.
    pub fn host_ports(&self) -> impl Iterator<Item = &HostPort> {
        let ports_of = |kind| {
            let containers = self.containers.iter().filter(move |c| c.kind == kind);
            containers.flat_map(|c| c.host_ports.iter())
        };
        ports_of(ContainerKind::Main).chain(ports_of(ContainerKind::Sidecar))
    }

    /// Returns `true` if the resource can be requested at pod level.
    #[must_use]
    pub fn is_pod_level(name: &str) -> bool {
        matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
    }

    /// Returns the pod-level requests, or `None` unless at least one of them is of a resource that can be requested at
    /// pod level (`IsPodLevelRequestsSet`).
    fn pod_level(&self) -> Option<&ResourceList> {
        self.pod_level.as_ref().filter(|list| list.iter().any(|(name, _)| Self::is_pod_level(name)))
    }

    fn sum(&self, rule: Rule) -> ResourceList {
        let mut total = self.containers_sum(rule);
        if let Some(pod_level) = self.pod_level().filter(|_| rule.pod_level) {
            for (name, q) in pod_level.iter().filter(|(name, _)| Self::is_pod_level(name)) {
                total.set(name.clone(), self.pod_level_amount(name, q, rule));
            }
        }
        total.add(&self.overhead);
        total
    }

    fn containers_sum(&self, rule: Rule) -> ResourceList {
        let mut total = ResourceList::default();
        let mut sidecars = ResourceList::default();
        let mut peak = ResourceList::default();
        for container in &self.containers {
            let mut own = self.own(container, rule);
            if rule.defaults.cpu {
                own.set_if_absent("cpu", DEFAULT_CPU);
            }
            if rule.defaults.memory {
                own.set_if_absent("memory", DEFAULT_MEMORY);
            }
            match container.kind {
                ContainerKind::Main if total.is_empty() => total = own,
                ContainerKind::Main => total.add(&own),
                ContainerKind::Sidecar => {
                    total.add(&own);
                    sidecars.add(&own);
                    peak.max(&sidecars);
                }
                ContainerKind::Init => {
                    own.add(&sidecars);
                    peak.max(&own);
                }
            }
        }
        total.max(&peak);
        total
    }

    fn own(&self, container: &Container, rule: Rule) -> ResourceList {
        match &container.status {
            Some(status) if rule.with_status && container.kind != ContainerKind::Init => {
                let mut own = if self.resize_infeasible {
                    ResourceList::default()
                } else {
                    container.requests.clone()
                };
                own.max(&status.requests);
                own.max(&status.allocated);
                own
            }
            _ => container.requests.clone(),
        }
    }

    fn pod_level_amount(&self, name: &str, spec: Quantity, rule: Rule) -> Quantity {
        match &self.pod_level_status {
            Some(status) if rule.with_status => {
                let reported = status.requests.get(name).max(status.allocated.get(name));
                if self.resize_infeasible {
                    reported.unwrap_or_default()
                } else {
                    spec.max(reported.unwrap_or_default())
                }
            }
            _ => spec,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(kind: ContainerKind, cpu: i64) -> Container {
        Container {
            kind,
            requests: ResourceList::new([("cpu", Quantity::milli(cpu))]),
            ..Container::default()
        }
    }

    #[test]
    fn two_containers_without_requests_count_twice_the_default() {
        let requests = Requests {
            containers: vec![Container::default(), Container::default()],
            ..Requests::default()
        };
        let sums = requests.compute();
        assert!(sums.placed.is_zero());
        assert_eq!(sums.placed_non_zero, NonZero { cpu: MilliCpu(200), memory: Bytes(400 << 20) });
    }

    #[test]
    fn init_container_runs_beside_the_sidecars_before_it() {
        use ContainerKind::{Init, Main, Sidecar};
        let requests = Requests {
            containers: vec![
                container(Init, 50),
                container(Sidecar, 100),
                container(Init, 500),
                container(Main, 200),
            ],
            ..Requests::default()
        };
        assert_eq!(requests.compute().placed.cpu, MilliCpu(600));
    }

    #[test]
    fn pod_level_cpu_replaces_the_aggregate_and_scoring_ignores_it() {
        let requests = Requests {
            containers: vec![container(ContainerKind::Main, 700)],
            pod_level: Some(ResourceList::new([("cpu", Quantity::milli(300))])),
            overhead: ResourceList::new([("cpu", Quantity::milli(10))]),
            ..Requests::default()
        };
        let sums = requests.compute();
        assert_eq!(sums.incoming.cpu, MilliCpu(310));
        assert_eq!(sums.scored.cpu, MilliCpu(710));
        assert_eq!(sums.placed_non_zero.memory, Bytes(200 << 20));
    }

    #[test]
    fn a_resize_in_progress_counts_the_larger() {
        let mut resized = container(ContainerKind::Main, 100);
        resized.status = Some(ContainerStatus {
            requests: ResourceList::new([("cpu", Quantity::milli(400))]),
            allocated: ResourceList::default(),
        });
        let mut requests = Requests { containers: vec![resized], ..Requests::default() };
        assert_eq!(requests.compute().placed.cpu, MilliCpu(400));
        assert_eq!(requests.compute().incoming.cpu, MilliCpu(100));
        requests.containers[0].requests = ResourceList::new([("cpu", Quantity::milli(900))]);
        requests.resize_infeasible = true;
        assert_eq!(requests.compute().placed.cpu, MilliCpu(400));
    }

    fn memory(bytes: i64) -> ResourceList {
        ResourceList::new([("memory", Quantity::whole(bytes))])
    }

    #[test]
    fn an_explicit_zero_is_not_defaulted() {
        let zero = ResourceList::new([("cpu", Quantity::default())]);
        let containers = vec![Container { requests: zero, ..Container::default() }];
        let sums = Requests { containers, ..Requests::default() }.compute();
        assert_eq!(sums.placed_non_zero, NonZero { cpu: MilliCpu(0), memory: Bytes(200 << 20) });
        assert_eq!(sums.scored.cpu, MilliCpu(0));
    }

    #[test]
    fn init_containers_are_defaulted_too() {
        let containers = vec![
            container(ContainerKind::Sidecar, 1),
            container(ContainerKind::Init, 1),
            container(ContainerKind::Main, 1),
        ];
        let sums = Requests { containers, ..Requests::default() }.compute();
        // The sidecar runs with the main container, and before that with the init container: two defaults at a time.
        assert_eq!(sums.placed_non_zero.memory, Bytes(400 << 20));
        assert_eq!(sums.placed.memory, Bytes(0));
    }

    #[test]
    fn under_pod_level_requests_only_resources_missing_from_the_pod_are_defaulted() {
        let mut requests = Requests {
            containers: vec![Container::default(), Container::default()],
            pod_level: Some(ResourceList::new([("cpu", Quantity::milli(300))])),
            ..Requests::default()
        };
        let non_zero = NonZero { cpu: MilliCpu(300), memory: Bytes(400 << 20) };
        assert_eq!(requests.compute().placed_non_zero, non_zero);
        // The overhead names memory, so it is not missing.
        requests.overhead = memory(1);
        assert_eq!(requests.compute().placed_non_zero.memory, Bytes(1));
        // If one container requests memory, it is not missing either.
        requests.overhead = ResourceList::default();
        requests.containers[0].requests = memory(7);
        assert_eq!(requests.compute().placed_non_zero.memory, Bytes(7));
    }

    #[test]
    fn pod_level_requests_of_other_resources_do_not_count() {
        let requests = Requests {
            containers: vec![Container::default()],
            pod_level: Some(ResourceList::new([("example.com/gpu", Quantity::whole(1))])),
            ..Requests::default()
        };
        let sums = requests.compute();
        assert!(sums.incoming.scalars.is_empty());
        assert_eq!(sums.placed_non_zero.cpu, MilliCpu(100));
    }

    #[test]
    fn quantities_are_summed_before_they_are_rounded_up() {
        let half =
            ResourceList::new([("cpu", Quantity::milli(1)), ("memory", Quantity::milli(500))]);
        let container = Container { requests: half, ..Container::default() };
        let containers = vec![container.clone(), container];
        let sums = Requests { containers, ..Requests::default() }.compute();
        assert_eq!((sums.placed.cpu, sums.placed.memory), (MilliCpu(2), Bytes(1)));
    }
}
