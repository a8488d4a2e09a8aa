//! Pods. See [`super`].

use k8s_openapi::api::core::v1 as api;

use super::affinity::{affinity, toleration, topology_spread};
use super::meta::{
    amounts, list, metadata, optional, optional_amounts, resources, text, text_map, time,
};
use super::volume::volume;
use crate::error::ReadError;
use crate::wire::{Amounts, List, Named, ResourceRequirements, Whole};
use crate::wire_pod as wire;

pub(super) fn lend(pod: &api::Pod) -> Result<wire::Pod<'_>, ReadError> {
    Ok(wire::Pod {
        metadata: Some(metadata(&pod.metadata)?),
        spec: pod.spec.as_ref().map(spec),
        status: pod.status.as_ref().map(status),
    })
}

fn spec(spec: &api::PodSpec) -> wire::PodSpec<'_> {
    wire::PodSpec {
        containers: List(spec.containers.iter().map(container).collect()),
        init_containers: list(&spec.init_containers, container),
        resources: spec.resources.as_ref().map(resources),
        overhead: spec.overhead.as_ref().map(amounts),
        active_deadline_seconds: spec.active_deadline_seconds,
        host_network: spec.host_network,
        host_users: spec.host_users,
        node_name: optional(&spec.node_name),
        node_selector: text_map(&spec.node_selector),
        affinity: spec.affinity.as_ref().map(affinity),
        tolerations: list(&spec.tolerations, toleration),
        topology_spread_constraints: list(&spec.topology_spread_constraints, topology_spread),
        volumes: list(&spec.volumes, volume),
        priority: Whole(spec.priority),
        priority_class_name: optional(&spec.priority_class_name),
        runtime_class_name: optional(&spec.runtime_class_name),
        preemption_policy: optional(&spec.preemption_policy),
        scheduler_name: optional(&spec.scheduler_name),
        scheduling_gates: list(&spec.scheduling_gates, |gate| Named { name: text(&gate.name) }),
        scheduling_group: scheduling_group(spec),
        resource_claims: list(&spec.resource_claims, |claim| Named { name: text(&claim.name) }),
    }
}

fn container(container: &api::Container) -> wire::Container<'_> {
    wire::Container {
        name: text(&container.name),
        image: optional(&container.image),
        resources: container.resources.as_ref().map(resources),
        ports: list(&container.ports, |port| wire::ContainerPort {
            container_port: Whole(Some(port.container_port.into())),
            host_port: Whole(port.host_port.map(i64::from)),
            host_ip: optional(&port.host_ip),
            protocol: optional(&port.protocol),
        }),
        restart_policy: optional(&container.restart_policy),
        restart_policy_rules: restart_policy_rules(container),
    }
}

fn status(status: &api::PodStatus) -> wire::PodStatus<'_> {
    let (resources, allocated_resources) = pod_level(status);
    wire::PodStatus {
        phase: optional(&status.phase),
        start_time: time(&status.start_time),
        nominated_node_name: optional(&status.nominated_node_name),
        conditions: list(&status.conditions, |condition| wire::Condition {
            condition_type: text(&condition.type_),
            status: text(&condition.status),
            reason: optional(&condition.reason),
        }),
        container_statuses: list(&status.container_statuses, container_status),
        init_container_statuses: list(&status.init_container_statuses, container_status),
        resources,
        allocated_resources,
    }
}

fn container_status(status: &api::ContainerStatus) -> wire::ContainerStatus<'_> {
    wire::ContainerStatus {
        name: text(&status.name),
        resources: status.resources.as_ref().map(resources),
        allocated_resources: optional_amounts(&status.allocated_resources),
    }
}

/// The resources of the pod as a whole, and those that are allocated to it.
type PodLevel<'a> = (Option<ResourceRequirements<'a>>, Option<Amounts<'a>>);

k8s_openapi::k8s_if_ge_1_34! {
    fn restart_policy_rules(container: &api::Container) -> List<wire::RestartRule<'_>> {
        list(&container.restart_policy_rules, |rule| wire::RestartRule {
            action: text(&rule.action),
        })
    }
}

k8s_openapi::k8s_if_le_1_33! {
    fn restart_policy_rules(_: &api::Container) -> List<wire::RestartRule<'_>> {
        List::default()
    }
}

k8s_openapi::k8s_if_ge_1_35! {
    fn pod_level(status: &api::PodStatus) -> PodLevel<'_> {
        (status.resources.as_ref().map(resources), status.allocated_resources.as_ref().map(amounts))
    }
}

k8s_openapi::k8s_if_le_1_34! {
    fn pod_level(_: &api::PodStatus) -> PodLevel<'_> {
        (None, None)
    }
}

k8s_openapi::k8s_if_ge_1_36! {
    fn scheduling_group(spec: &api::PodSpec) -> Option<wire::SchedulingGroup<'_>> {
        spec.scheduling_group
            .as_ref()
            .map(|group| wire::SchedulingGroup { pod_group_name: optional(&group.pod_group_name) })
    }
}

k8s_openapi::k8s_if_le_1_35! {
    fn scheduling_group(_: &api::PodSpec) -> Option<wire::SchedulingGroup<'_>> {
        None
    }
}
