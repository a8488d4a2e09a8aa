//! Extended resources that device classes supply (`extendeddynamicresources.go`).
//!
//! A pod that requests such resources gets one claim for all of them, which is allocated after its other claims. Which
//! resources the claim covers depends on the node: a node that offers a resource itself supplies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::{ContainerKind, ContainerRequests, Node, Pod};

use crate::model::{
    DeviceClass, DeviceRequest, ExactRequest, IMPLICIT_PREFIX, Metadata, OwnerReference,
    ResourceClaim, ResourceClaimSpec,
};
use crate::store::Devices;

use super::backend::ContainerExtendedRequest;

/// The name of a claim that is not stored yet.
pub(super) const SPECIAL_NAME: &str = "<extended-resources>";

const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// The claim for the extended resources that a node does not offer.
pub(super) struct Special {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) mappings: Vec<ContainerExtendedRequest>,
}

/// Returns the extended resources that a pod requests.
fn requested(pod: &Pod) -> impl Iterator<Item = (&Arc<str>, i64)> {
    let scalars = pod.template.resources.incoming.scalars.iter();
    scalars.filter(|(name, amount)| *amount != 0 && is_extended(name))
}

fn is_extended(name: &str) -> bool {
    name.starts_with(IMPLICIT_PREFIX) || (name.contains('/') && !name.contains("kubernetes.io/"))
}

/// Returns the claim for a pod's extended resources if device classes supply any of them: the one of an earlier
/// attempt, or a new one without requests.
pub(super) fn special_claim(devices: &Devices, pod: &Pod) -> Option<Arc<ResourceClaim>> {
    requested(pod).find(|(name, _)| devices.classes().supplier(name).is_some())?;
    let mut earlier = devices.claims().of_namespace(pod.namespace()).filter(|claim| {
        let annotation = claim.metadata.annotations.get(ANNOTATION);
        annotation.is_some_and(|value| &**value == "true") && claim.metadata.is_controlled_by(pod)
    });
    if let Some(earlier) = earlier.next() {
        return Some(earlier.clone());
    }
    let metadata = Metadata {
        name: SPECIAL_NAME.into(),
        namespace: pod.namespace().clone(),
        uid: format!("{SPECIAL_NAME}/{}", pod.uid).into(),
        ..Metadata::default()
    };
    Some(Arc::new(ResourceClaim { metadata, ..ResourceClaim::default() }))
}

/// Returns the claim to create.
pub(super) fn new_claim(pod: &Pod, spec: ResourceClaimSpec) -> ResourceClaim {
    let metadata = Metadata {
        generate_name: format!("{}-extended-resources-", pod.name).into(),
        namespace: pod.namespace().clone(),
        annotations: [(ANNOTATION.into(), "true".into())].into(),
        owner_references: vec![OwnerReference::to_pod(pod)],
        ..Metadata::default()
    };
    ResourceClaim { metadata, spec, ..ResourceClaim::default() }
}

/// Returns the claim for a node, or `None` if nothing must be allocated there.
///
/// # Errors
///
/// Returns why the node is rejected.
pub(super) fn on_node(
    devices: &Devices,
    pod: &Pod,
    claim: &Arc<ResourceClaim>,
    node: &Node,
    has_user_claims: bool,
) -> Result<Option<Special>, &'static str> {
    if !claim.spec.devices.requests.is_empty() {
        return Err("cannot schedule extended resource claim");
    }
    let mut supplied: Vec<(&Arc<str>, &DeviceClass)> = Vec::new();
    for (name, _) in requested(pod) {
        let offered = node.allocatable.scalars.get(name);
        match devices.classes().supplier(name).filter(|_| offered.unwrap_or(0) == 0) {
            Some(class) => supplied.push((name, class)),
            None if offered.is_none() => return Err("cannot fit resource"),
            None => {}
        }
    }
    if supplied.is_empty() && !has_user_claims {
        return Ok(None);
    }
    let containers = &pod.template.container_requests;
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in supplied {
        add_requests(containers, resource, class, &mut requests, &mut mappings);
    }
    requests.sort_by(|a: &DeviceRequest, b| a.name.cmp(&b.name));
    let mut claim = ResourceClaim::clone(claim);
    claim.spec.devices.requests = requests;
    Ok(Some(Special { claim: claim.into(), mappings }))
}

/// Adds the requests of all containers for one resource, and which of them each container uses.
///
/// A container that runs as long as the pod has a request of its own. An init container uses the requests of later
/// containers, whose devices are idle until it ends. What these lack is one more request, which all init containers
/// share.
fn add_requests(
    containers: &[ContainerRequests],
    resource: &Arc<str>,
    class: &DeviceClass,
    requests: &mut Vec<DeviceRequest>,
    mappings: &mut Vec<ContainerExtendedRequest>,
) {
    let position = |container: &ContainerRequests| {
        container.requests.iter().position(|(name, _)| name == resource)
    };
    let amount = |container: &ContainerRequests| {
        position(container).map_or(0, |at| container.requests[at].1)
    };
    let request_name = |at: usize, container: &ContainerRequests| -> Arc<str> {
        let index = position(container).unwrap_or(0);
        format!("container-{at}-request-{index}").into()
    };
    let request = |name: &Arc<str>, count: i64| DeviceRequest {
        name: name.clone(),
        exactly: Some(ExactRequest {
            device_class_name: class.name().clone(),
            count: Some(count),
            ..ExactRequest::default()
        }),
        ..DeviceRequest::default()
    };
    let mapping = |container: &ContainerRequests, request: &Arc<str>| ContainerExtendedRequest {
        container_name: container.name.clone(),
        resource_name: resource.clone(),
        request_name: request.clone(),
    };
    let using = || containers.iter().enumerate().filter(|(_, of)| amount(of) > 0);
    // By the index of the container.
    let mut own: BTreeMap<usize, (Arc<str>, i64)> = BTreeMap::new();
    for (at, container) in using().filter(|(_, of)| of.kind != ContainerKind::Init) {
        let (name, count) = (request_name(at, container), amount(container));
        requests.push(request(&name, count));
        mappings.push(mapping(container, &name));
        own.insert(at, (name, count));
    }
    let mut largest: Option<(Arc<str>, i64)> = None;
    let mut of_init: Vec<(&ContainerRequests, Option<Arc<str>>)> = Vec::new();
    for (at, container) in using().filter(|(_, of)| of.kind == ContainerKind::Init) {
        let mut missing = amount(container);
        for (_, (name, count)) in own.range(at..) {
            if missing <= 0 {
                break;
            }
            of_init.push((container, Some(name.clone())));
            missing -= count;
        }
        if missing > 0 {
            of_init.push((container, None));
            if largest.as_ref().is_none_or(|(_, most)| missing > *most) {
                largest = Some((request_name(at, container), missing));
            }
        }
    }
    if let Some((name, count)) = &largest {
        requests.push(request(name, *count));
    }
    for (container, name) in of_init {
        let name = name.or_else(|| largest.as_ref().map(|(name, _)| name.clone()));
        mappings.extend(name.map(|name| mapping(container, &name)));
    }
}
