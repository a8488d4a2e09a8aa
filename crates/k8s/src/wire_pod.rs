//! The fields of pods that are read. See [`super::wire`].

use super::wire::{
    Amounts, LabelSelector, List, Metadata, Named, Requirement, ResourceRequirements, Text,
    TextMap, Whole, objects, wire,
};

objects! {
    Pod { spec: PodSpec, status: PodStatus }
    PodTemplate { spec: PodSpec }
}

wire! {
    struct PodSpec<'a> {
        containers: List<Container<'a>>,
        init_containers: List<Container<'a>>,
        resources: Option<ResourceRequirements<'a>>,
        overhead: Option<Amounts<'a>>,
        /// Read of the pods of files, see [`super::admission`].
        active_deadline_seconds: Option<i64>,
        host_network: Option<bool>,
        host_users: Option<bool>,
        node_name: Text<'a>,
        node_selector: TextMap<'a>,
        affinity: Option<Affinity<'a>>,
        tolerations: List<Toleration<'a>>,
        topology_spread_constraints: List<TopologySpreadConstraint<'a>>,
        volumes: List<Volume<'a>>,
        priority: Whole<i32>,
        priority_class_name: Text<'a>,
        runtime_class_name: Text<'a>,
        preemption_policy: Text<'a>,
        scheduler_name: Text<'a>,
        scheduling_gates: List<Named<'a>>,
        scheduling_group: Option<SchedulingGroup<'a>>,
        resource_claims: List<PodResourceClaim<'a>>,
    }

    struct PodResourceClaim<'a> {
        name: Text<'a>,
        resource_claim_name: Text<'a>,
        resource_claim_template_name: Text<'a>,
    }

    struct SchedulingGroup<'a> {
        pod_group_name: Text<'a>,
    }

    struct Container<'a> {
        name: Text<'a>,
        image: Text<'a>,
        resources: Option<ResourceRequirements<'a>>,
        ports: List<ContainerPort<'a>>,
        restart_policy: Text<'a>,
        restart_policy_rules: List<RestartRule<'a>>,
    }

    struct RestartRule<'a> {
        action: Text<'a>,
    }

    struct ContainerPort<'a> {
        container_port: Whole<i64>,
        host_port: Whole<i64>,
        #[serde(rename = "hostIP")]
        host_ip: Text<'a>,
        protocol: Text<'a>,
    }

    struct Affinity<'a> {
        node_affinity: Option<NodeAffinity<'a>>,
        pod_affinity: Option<PodAffinity<'a>>,
        pod_anti_affinity: Option<PodAffinity<'a>>,
    }

    struct NodeAffinity<'a> {
        required_during_scheduling_ignored_during_execution: Option<NodeSelector<'a>>,
        preferred_during_scheduling_ignored_during_execution: List<PreferredSchedulingTerm<'a>>,
    }

    struct NodeSelector<'a> {
        node_selector_terms: List<NodeSelectorTerm<'a>>,
    }

    struct NodeSelectorTerm<'a> {
        match_expressions: List<Requirement<'a>>,
        match_fields: List<Requirement<'a>>,
    }

    struct PreferredSchedulingTerm<'a> {
        weight: Whole<i32>,
        preference: NodeSelectorTerm<'a>,
    }

    struct PodAffinity<'a> {
        required_during_scheduling_ignored_during_execution: List<PodAffinityTerm<'a>>,
        preferred_during_scheduling_ignored_during_execution: List<WeightedPodAffinityTerm<'a>>,
    }

    struct PodAffinityTerm<'a> {
        topology_key: Text<'a>,
        label_selector: Option<LabelSelector<'a>>,
        namespaces: List<Text<'a>>,
        namespace_selector: Option<LabelSelector<'a>>,
        match_label_keys: List<Text<'a>>,
        mismatch_label_keys: List<Text<'a>>,
    }

    struct WeightedPodAffinityTerm<'a> {
        weight: Whole<i32>,
        pod_affinity_term: PodAffinityTerm<'a>,
    }

    struct Toleration<'a> {
        key: Text<'a>,
        operator: Text<'a>,
        value: Text<'a>,
        effect: Text<'a>,
        /// Read of the pods of files, see [`super::budgets::PodFacts`].
        toleration_seconds: Whole<i64>,
    }

    struct TopologySpreadConstraint<'a> {
        max_skew: Whole<i32>,
        topology_key: Text<'a>,
        when_unsatisfiable: Text<'a>,
        label_selector: Option<LabelSelector<'a>>,
        min_domains: Whole<i32>,
        node_affinity_policy: Text<'a>,
        node_taints_policy: Text<'a>,
        match_label_keys: List<Text<'a>>,
    }

    struct Volume<'a> {
        name: Text<'a>,
        persistent_volume_claim: Option<ClaimVolume<'a>>,
        ephemeral: Option<EphemeralVolume<'a>>,
        empty_dir: Option<Empty<'a>>,
        gce_persistent_disk: Option<Gce<'a>>,
        aws_elastic_block_store: Option<Ebs<'a>>,
        rbd: Option<Rbd<'a>>,
        iscsi: Option<Iscsi<'a>>,
        csi: Option<Csi<'a>>,
        image: Option<ImageVolume<'a>>,
        azure_disk: Option<AzureDisk<'a>>,
        azure_file: Option<AzureFile<'a>>,
        cinder: Option<Cinder<'a>>,
        vsphere_volume: Option<Vsphere<'a>>,
        portworx_volume: Option<Portworx<'a>>,
    }

    /// An object of which only the presence matters.
    struct Empty<'a> {
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }

    struct EphemeralVolume<'a> {
        /// Read of the pods of files, whose claims are created, see [`super::storage::ClaimTemplate`].
        volume_claim_template: Option<super::wire_storage::PersistentVolumeClaim<'a>>,
    }

    struct ClaimVolume<'a> {
        claim_name: Text<'a>,
        read_only: Option<bool>,
    }

    struct Gce<'a> {
        pd_name: Text<'a>,
        partition: Whole<i32>,
        read_only: Option<bool>,
    }

    struct Ebs<'a> {
        #[serde(rename = "volumeID")]
        volume_id: Text<'a>,
        read_only: Option<bool>,
    }

    struct Rbd<'a> {
        monitors: List<Text<'a>>,
        pool: Text<'a>,
        image: Text<'a>,
        read_only: Option<bool>,
    }

    struct Iscsi<'a> {
        iqn: Text<'a>,
        read_only: Option<bool>,
    }

    struct Csi<'a> {
        driver: Text<'a>,
    }

    struct ImageVolume<'a> {
        reference: Text<'a>,
    }

    struct AzureDisk<'a> {
        #[serde(rename = "diskURI")]
        disk_uri: Text<'a>,
    }

    struct AzureFile<'a> {
        share_name: Text<'a>,
    }

    struct Cinder<'a> {
        #[serde(rename = "volumeID")]
        volume_id: Text<'a>,
    }

    struct Vsphere<'a> {
        volume_path: Text<'a>,
    }

    struct Portworx<'a> {
        #[serde(rename = "volumeID")]
        volume_id: Text<'a>,
    }

    struct PodStatus<'a> {
        phase: Text<'a>,
        start_time: Text<'a>,
        nominated_node_name: Text<'a>,
        conditions: List<Condition<'a>>,
        container_statuses: List<ContainerStatus<'a>>,
        init_container_statuses: List<ContainerStatus<'a>>,
        resources: Option<ResourceRequirements<'a>>,
        allocated_resources: Option<Amounts<'a>>,
        resource_claim_statuses: List<PodResourceClaimStatus<'a>>,
    }

    struct PodResourceClaimStatus<'a> {
        name: Text<'a>,
        resource_claim_name: Text<'a>,
    }

    struct Condition<'a> {
        #[serde(rename = "type")]
        condition_type: Text<'a>,
        status: Text<'a>,
        reason: Text<'a>,
    }

    struct ContainerStatus<'a> {
        name: Text<'a>,
        resources: Option<ResourceRequirements<'a>>,
        allocated_resources: Amounts<'a>,
    }
}
