//! Reads pods from their wire structs.
//!
//! Pods are read in two steps, because the priority and the overhead may come from objects further down in the input. A
//! [`PodDraft`] holds the data of the pod itself, and becomes a [`Pod`] once the priority and the overhead are known.

use std::collections::HashMap;

use super::admission::Limits;
use super::affinity::{Own, node_affinity, pod_affinity, toleration, topology_spread};
use super::defaults::{self, Rules};
use super::error::{Path, ReadError};
use super::godel;
use super::node::{labels, name, optional, resource_list, resource_version, timestamp};
use super::pod_group;
use super::storage::ClaimTemplate;
use super::volume;
use super::wire::{Annotations, Metadata};
use super::wire_pod as wire;
use portolan::model::{
    Container, ContainerKind, ContainerStatus, GeneratedClaims, HostPort, Launcher, Name,
    OwnerReference, Pod, PodAffinity, PodClass, PodResourceClaim, PodSpec, PreemptionPolicy,
    Protocol, Requests, Template, Timestamp, Toleration, Uid,
};

const RESIZE_PENDING: &str = "PodResizePending";
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The types of the conditions that are read.
pub(super) const READ_CONDITIONS: [&str; 2] = [RESIZE_PENDING, DISRUPTION_TARGET];

/// A pod whose priority and overhead may still be unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodDraft {
    pub(super) uid: String,
    pub(super) name: Name,
    /// The field `metadata.generateName` of a pod without a name.
    pub(super) generate_name: Option<Name>,
    pub(super) resource_version: u64,
    pub(super) node_name: Option<Name>,
    pub(super) nominated_node_name: Option<Name>,
    pub(super) creation_time: Option<Timestamp>,
    pub(super) start_time: Option<Timestamp>,
    pub(super) deletion_time: Option<Timestamp>,
    pub(super) spec: PodSpec,
    pub(super) requests: Requests,
    /// The limits, if the pod is read from a file.
    pub(super) limits: Limits,
    /// The names of the containers of `requests`, if the pod is read from a file.
    pub(super) container_names: Vec<Name>,
    /// Whether the pod has `activeDeadlineSeconds`.
    pub(super) has_deadline: bool,
    /// Whether a term of affinity names other namespaces.
    pub(super) crosses_namespaces: bool,
    pub(super) priority: Option<i32>,
    pub(super) priority_class: Option<Name>,
    pub(super) preemption_policy: Option<PreemptionPolicy>,
    pub(super) has_overhead: bool,
    pub(super) runtime_class: Option<Name>,
    pub(super) host_network: bool,
    pub(super) claim_statuses: Option<GeneratedClaims>,
    /// Whether the phase is Succeeded or Failed.
    pub(super) finished: bool,
    /// The claims of generic ephemeral volumes, if the pod is read from a file.
    pub(super) claims: Vec<ClaimTemplate>,
}

impl PodDraft {
    /// Completes the pod: computes its requests and hashes its template.
    pub(super) fn finish(mut self) -> Pod {
        self.spec.priority = self.priority.unwrap_or(0);
        self.spec.preemption_policy = self.preemption_policy.unwrap_or_default();
        self.spec.resources = self.requests.compute();
        self.spec.container_requests = self.requests.by_container();
        Pod {
            uid: Uid::new(&self.uid),
            name: self.name,
            template: Template::new(self.spec),
            resource_version: self.resource_version,
            node_name: self.node_name,
            nominated_node_name: self.nominated_node_name,
            creation_time: self.creation_time,
            start_time: self.start_time,
            deletion_time: self.deletion_time,
            claim_statuses: self.claim_statuses,
            finished: self.finished,
        }
    }
}

/// Returns whether a pod in this phase has ended and takes no resources.
pub(super) fn has_ended(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Reads a pod as it is stored, or with defaults if `rules` apply them.
pub(super) fn read(
    pod: &wire::Pod<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodDraft, ReadError> {
    let (no_meta, no_spec) = (Metadata::default(), wire::PodSpec::default());
    let meta = pod.metadata.as_ref().unwrap_or(&no_meta);
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let metadata = path.key("metadata");
    let namespace = rules.namespace(&meta.namespace);
    let called = if meta.name.is_empty() { &meta.generate_name } else { &meta.name };
    rules.about("Pod", &namespace, called);
    if meta.namespace.is_empty() {
        rules.note("metadata.namespace", &namespace);
    }
    let mut uid = meta.uid.to_string();
    if uid.is_empty() && rules.applies() && !meta.name.is_empty() {
        uid = format!("{namespace}/{}", &*meta.name);
        rules.note("metadata.uid", &uid);
    }
    let mut draft = template(meta, spec, namespace, path, rules)?;
    draft.uid = uid;
    draft.generate_name = optional(&meta.generate_name).filter(|_| meta.name.is_empty());
    draft.resource_version = resource_version(meta, &metadata)?;
    draft.creation_time = timestamp(&meta.creation_timestamp, &metadata.key("creationTimestamp"))?;
    draft.deletion_time = timestamp(&meta.deletion_timestamp, &metadata.key("deletionTimestamp"))?;
    if let Some(found) = &pod.status {
        status(&mut draft, found, spec, &path.key("status"))?;
    }
    Ok(draft)
}

/// Returns the affinity and the anti-affinity to other pods.
fn between_pods(
    affinity: &wire::Affinity<'_>,
    own: &Own<'_>,
    path: &Path<'_>,
) -> Result<[Option<Box<PodAffinity>>; 2], ReadError> {
    let path = path.key("affinity");
    let read = |found: &Option<wire::PodAffinity<'_>>, field: &str| {
        let read = |found| pod_affinity(found, own, &path.key(field)).map(Box::new);
        found.as_ref().map(read).transpose()
    };
    Ok([
        read(&affinity.pod_affinity, "podAffinity")?,
        read(&affinity.pod_anti_affinity, "podAntiAffinity")?,
    ])
}

fn tolerations(
    spec: &wire::PodSpec<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Vec<Toleration>, ReadError> {
    let path = path.key("tolerations");
    let mut tolerations = (spec.tolerations.iter().enumerate())
        .map(|(i, t)| toleration(t, &path.index(i)))
        .collect::<Result<Vec<_>, _>>()?;
    defaults::tolerations(&mut tolerations, rules);
    Ok(tolerations)
}

/// Returns the claims of ephemeral volumes, unless their controller has created them.
fn claims(
    spec: &wire::PodSpec<'_>,
    path: &Path<'_>,
    rules: &Rules<'_>,
) -> Result<Vec<ClaimTemplate>, ReadError> {
    if !rules.applies() {
        return Ok(Vec::new());
    }
    let path = path.key("volumes");
    (spec.volumes.iter().enumerate())
        .filter_map(|(i, volume)| ClaimTemplate::of_volume(volume, &path.index(i)))
        .collect()
}

/// Creates a pod of a template, without uid, resource version and status.
pub(super) fn template(
    meta: &Metadata<'_>,
    spec: &wire::PodSpec<'_>,
    namespace: Name,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodDraft, ReadError> {
    let spec_path = path.key("spec");
    let labels = labels(&meta.labels);
    let (requests, limits) = resources(spec, &spec_path, rules)?;
    let no_affinity = wire::Affinity::default();
    let affinity = spec.affinity.as_ref().unwrap_or(&no_affinity);
    let own = Own { namespace: &namespace, labels: &labels };
    let [pod_affinity, pod_anti_affinity] = between_pods(affinity, &own, &spec_path)?;
    let tolerations = tolerations(spec, &spec_path, rules)?;
    let spread_path = spec_path.key("topologySpreadConstraints");
    let topology_spread = (spec.topology_spread_constraints.iter().enumerate())
        .map(|(i, c)| topology_spread(c, &spread_path.index(i)))
        .collect::<Result<_, _>>()?;
    let claims = claims(spec, &spec_path, rules)?;
    let preemption_policy =
        preemption_policy(&spec.preemption_policy, &spec_path.key("preemptionPolicy"))?;
    let mut model = PodSpec {
        host_ports: requests.host_ports().cloned().collect(),
        node_selector: super::node::labels(&spec.node_selector),
        node_affinity: affinity.node_affinity.as_ref().map(|a| Box::new(node_affinity(a))),
        pod_affinity,
        pod_anti_affinity,
        tolerations: tolerations.into(),
        topology_spread,
        volumes: spec.volumes.iter().filter_map(volume::read).collect(),
        has_local_storage: spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
        images: containers(spec).map(|c| name(&c.image)).collect(),
        container_count: (spec.init_containers.len() + spec.containers.len()) as u32,
        scheduler_name: optional(&spec.scheduler_name),
        owners: owners_of_pod(meta, spec),
        scheduling_gates: spec.scheduling_gates.iter().map(|gate| name(&gate.name)).collect(),
        resource_claims: spec.resource_claims.iter().map(resource_claim).collect(),
        scheduling_group: pod_group::of_pod(meta, spec),
        godel: godel::of_pod(meta, !spec.node_name.is_empty(), path)?,
        required_node_features: required_features(spec),
        ..PodSpec::default()
    };
    if let Some(annotations) = &meta.annotations {
        read_annotations(annotations, &mut model);
    }
    model.namespace = namespace;
    model.labels = labels;
    if spec.scheduler_name.is_empty() && rules.applies() {
        model.scheduler_name = Some("default-scheduler".into());
        rules.note("spec.schedulerName", "default-scheduler");
    }
    Ok(PodDraft {
        name: name(&meta.name),
        node_name: optional(&spec.node_name),
        spec: model,
        requests,
        limits,
        container_names: match rules.applies() {
            true => containers(spec).map(|container| name(&container.name)).collect(),
            false => Vec::new(),
        },
        has_deadline: spec.active_deadline_seconds.is_some(),
        crosses_namespaces: crosses_namespaces(affinity),
        priority: *spec.priority,
        priority_class: optional(&spec.priority_class_name),
        preemption_policy,
        has_overhead: spec.overhead.is_some(),
        runtime_class: optional(&spec.runtime_class_name),
        host_network: spec.host_network.unwrap_or(false),
        claims,
        ..PodDraft::default()
    })
}

fn containers<'s, 'w>(
    spec: &'s wire::PodSpec<'w>,
) -> impl Iterator<Item = &'s wire::Container<'w>> {
    spec.init_containers.iter().chain(spec.containers.iter())
}

/// evaluator/core/pods.go `usesCrossNamespacePodAffinity`.
fn crosses_namespaces(affinity: &wire::Affinity<'_>) -> bool {
    let crosses = |term: &wire::PodAffinityTerm<'_>| {
        !term.namespaces.is_empty() || term.namespace_selector.is_some()
    };
    let both = [&affinity.pod_affinity, &affinity.pod_anti_affinity].into_iter().flatten();
    both.into_iter().any(|of| {
        of.required_during_scheduling_ignored_during_execution.iter().any(crosses)
            || (of.preferred_during_scheduling_ignored_during_execution.iter())
                .any(|weighted| crosses(&weighted.pod_affinity_term))
    })
}

/// Reads the annotations that set a pod's resource class and launcher.
fn read_annotations(annotations: &Annotations<'_>, model: &mut PodSpec) {
    let qos_level = annotations.qos_level.as_deref();
    model.class = PodClass::of(qos_level, annotations.resource_type.as_deref());
    model.launcher = Launcher::of(annotations.launcher.as_deref());
}

/// Parses a preemption policy. Returns `None` if the text is empty.
pub(super) fn preemption_policy(
    text: &str,
    path: &Path<'_>,
) -> Result<Option<PreemptionPolicy>, ReadError> {
    match text {
        "" => Ok(None),
        "Never" => Ok(Some(PreemptionPolicy::Never)),
        "PreemptLowerPriority" => Ok(Some(PreemptionPolicy::PreemptLowerPriority)),
        other => Err(ReadError::value(path, other, "one of PreemptLowerPriority, Never")),
    }
}

/// Reads the requests, and the limits if `rules` apply defaults.
fn resources(
    spec: &wire::PodSpec<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<(Requests, Limits), ReadError> {
    let mut limits = Limits::default();
    let mut containers = Vec::with_capacity(spec.init_containers.len() + spec.containers.len());
    for (field, list) in
        [("initContainers", &spec.init_containers), ("containers", &spec.containers)]
    {
        let list_path = path.key(field);
        for (i, container) in list.iter().enumerate() {
            let path = list_path.index(i);
            let kind = match (field, &*container.restart_policy) {
                ("containers", _) => ContainerKind::Main,
                (_, "Always") => ContainerKind::Sidecar,
                _ => ContainerKind::Init,
            };
            let label = if rules.applies() { format!("spec.{field}[{i}]") } else { String::new() };
            let resources = container.resources.as_ref();
            let (requests, of_container) =
                defaults::container_resources(resources, &label, &path, rules)?;
            if rules.applies() {
                limits.containers.push(of_container);
            }
            containers.push(Container {
                name: name(&container.name),
                kind,
                image: optional(&container.image),
                requests,
                host_ports: host_ports(container, spec, &label, &path.key("ports"), rules)?,
                status: None,
            });
        }
    }
    let resources = path.key("resources");
    let pod_level = |amounts, field| resource_list(amounts, &resources.key(field));
    let mut requests = Requests {
        containers,
        overhead: match &spec.overhead {
            Some(overhead) => resource_list(overhead, &path.key("overhead"))?,
            None => Default::default(),
        },
        pod_level: match &spec.resources {
            Some(found) => Some(pod_level(&found.requests, "requests")?),
            None => None,
        },
        ..Requests::default()
    };
    if let Some(found) = &spec.resources {
        limits.pod_level = pod_level(&found.limits, "limits")?;
        defaults::pod_level_requests(&mut requests, &limits.pod_level, rules);
    }
    Ok((requests, limits))
}

fn host_ports(
    container: &wire::Container<'_>,
    spec: &wire::PodSpec<'_>,
    field: &str,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Vec<HostPort>, ReadError> {
    let mut ports = Vec::new();
    for (i, port) in container.ports.iter().enumerate() {
        let path = path.index(i);
        let mut number = port.host_port.unwrap_or(0);
        if number == 0 && spec.host_network == Some(true) && rules.applies() {
            // SetDefaults_HostNetworkPorts.
            number = port.container_port.unwrap_or(0);
            if number != 0 {
                rules.note(format!("{field}.ports[{i}].hostPort"), number);
            }
        }
        if number == 0 {
            continue;
        }
        let number = u16::try_from(number).map_err(|_| {
            ReadError::value(&path.key("hostPort"), &number.to_string(), "a port from 1 to 65535")
        })?;
        let protocol = match &*port.protocol {
            "" => {
                rules.note(format_args!("{field}.ports[{i}].protocol").to_string(), "TCP");
                Protocol::Tcp
            }
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            other => {
                let expected = "one of TCP, UDP, SCTP";
                return Err(ReadError::value(&path.key("protocol"), other, expected));
            }
        };
        let ip = if port.host_ip.is_empty() { "0.0.0.0".into() } else { name(&port.host_ip) };
        ports.push(HostPort { ip, protocol, port: number });
    }
    Ok(ports)
}

/// The owners of a pod. The node owns a mirror pod, also if an old kubelet has not written that.
fn owners_of_pod(meta: &Metadata<'_>, spec: &wire::PodSpec<'_>) -> Box<[OwnerReference]> {
    let is_mirror = meta.annotations.as_ref().is_some_and(|known| !known.mirror.is_empty());
    let mut owners = owners(meta).into_vec();
    if is_mirror && !owners.iter().any(|owner| owner.controller) {
        owners.push(OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: name(&spec.node_name),
            uid: Name::default(),
            controller: true,
        });
    }
    owners.into()
}

pub(super) fn owners(meta: &Metadata<'_>) -> Box<[OwnerReference]> {
    meta.owner_references.iter().map(owner).collect()
}

fn owner(owner: &super::wire::OwnerReference<'_>) -> OwnerReference {
    OwnerReference {
        api_version: name(&owner.api_version),
        kind: name(&owner.kind),
        name: name(&owner.name),
        uid: name(&owner.uid),
        controller: owner.controller.unwrap_or(false),
    }
}

fn resource_claim(entry: &wire::PodResourceClaim<'_>) -> PodResourceClaim {
    PodResourceClaim {
        name: name(&entry.name),
        claim: optional(&entry.resource_claim_name),
        template: optional(&entry.resource_claim_template_name),
    }
}

/// component-helpers `nodedeclaredfeatures`: what a pod needs of the kubelet.
fn required_features(spec: &wire::PodSpec<'_>) -> Box<[Name]> {
    let mut features = Vec::new();
    let mut containers = spec.init_containers.iter().chain(spec.containers.iter());
    if containers
        .any(|c| c.restart_policy_rules.iter().any(|r| &*r.action == "RestartAllContainers"))
    {
        features.push("RestartAllContainersOnContainerExits".into());
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        features.push("UserNamespacesHostNetworkSupport".into());
    }
    features.into()
}

fn status(
    draft: &mut PodDraft,
    status: &wire::PodStatus<'_>,
    spec: &wire::PodSpec<'_>,
    path: &Path<'_>,
) -> Result<(), ReadError> {
    draft.finished = has_ended(&status.phase);
    draft.start_time = timestamp(&status.start_time, &path.key("startTime"))?;
    draft.nominated_node_name = optional(&status.nominated_node_name);
    if !status.resource_claim_statuses.is_empty() {
        let of = |found: &wire::PodResourceClaimStatus<'_>| {
            (name(&found.name), optional(&found.resource_claim_name))
        };
        draft.claim_statuses = Some(status.resource_claim_statuses.iter().map(of).collect());
    }
    // Only the first condition of the type counts (IsPodResizeInfeasible).
    let condition = |name| status.conditions.iter().find(|c| &*c.condition_type == name);
    draft.requests.resize_infeasible =
        condition(RESIZE_PENDING).is_some_and(|c| &*c.reason == "Infeasible");
    draft.spec.is_preempted = condition(DISRUPTION_TARGET)
        .is_some_and(|c| &*c.status == "True" && &*c.reason == "PreemptionByScheduler");
    let lists = [
        ("containerStatuses", &status.container_statuses),
        ("initContainerStatuses", &status.init_container_statuses),
    ];
    // Only the first status of a container name counts.
    let mut statuses: HashMap<&str, ContainerStatus> = HashMap::new();
    for (field, list) in lists {
        let list_path = path.key(field);
        for (i, found) in list.iter().enumerate() {
            let Some(resources) = &found.resources else { continue };
            let path = list_path.index(i);
            let read = ContainerStatus {
                requests: resource_list(
                    &resources.requests,
                    &path.key("resources").key("requests"),
                )?,
                allocated: resource_list(
                    &found.allocated_resources,
                    &path.key("allocatedResources"),
                )?,
            };
            statuses.entry(&found.name).or_insert(read);
        }
    }
    // The containers of the draft are in this order.
    let names = spec.init_containers.iter().chain(spec.containers.iter());
    for (container, wire) in draft.requests.containers.iter_mut().zip(names) {
        container.status = statuses.get(&*wire.name).cloned();
    }
    if let Some(resources) = &status.resources {
        let no_amounts = Default::default();
        let allocated = status.allocated_resources.as_ref().unwrap_or(&no_amounts);
        draft.requests.pod_level_status = Some(ContainerStatus {
            requests: resource_list(&resources.requests, &path.key("resources").key("requests"))?,
            allocated: resource_list(allocated, &path.key("allocatedResources"))?,
        });
    }
    Ok(())
}
