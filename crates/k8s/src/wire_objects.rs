//! The fields of nodes and the other kinds that are read. See [`super::wire`].

use super::wire::{
    Amounts, LabelSelector, List, Metadata, QuantityText, Text, TextMap, Whole, wire,
};
use super::wire_pod::{Empty, PodTemplate};

wire! {
    struct Node<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<NodeSpec<'a>>,
        status: Option<NodeStatus<'a>>,
    }
}

wire! {
    struct NodeSpec<'a> {
        taints: List<Taint<'a>>,
        unschedulable: Option<bool>,
    }
}

wire! {
    struct Taint<'a> {
        key: Text<'a>,
        value: Text<'a>,
        effect: Text<'a>,
    }
}

wire! {
    struct NodeStatus<'a> {
        allocatable: Amounts<'a>,
        capacity: Amounts<'a>,
        images: List<Image<'a>>,
        declared_features: List<Text<'a>>,
    }
}

wire! {
    struct NmNode<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<NmNodeSpec<'a>>,
        status: Option<NmNodeStatus<'a>>,
    }
}

wire! {
    struct NmNodeSpec<'a> {
        taints: List<Taint<'a>>,
    }
}

wire! {
    struct NmNodeStatus<'a> {
        resource_capacity: Amounts<'a>,
        resource_allocatable: Amounts<'a>,
    }
}

wire! {
    struct CustomNodeResource<'a> {
        metadata: Option<Metadata<'a>>,
        status: Option<CustomNodeResourceStatus<'a>>,
    }
}

wire! {
    struct CustomNodeResourceStatus<'a> {
        resources: Option<CustomResources<'a>>,
        topology_zone: List<SocketZone<'a>>,
        node_metric_status: Option<NodeMetricStatus<'a>>,
    }
}

wire! {
    struct NodeMetricStatus<'a> {
        update_time: Text<'a>,
        group_metric: List<GroupMetric<'a>>,
    }
}

wire! {
    struct GroupMetric<'a> {
        #[serde(rename = "QoSLevel", alias = "qosLevel")]
        qos_level: Text<'a>,
        generic_usage: Amounts<'a>,
        pod_list: List<Text<'a>>,
    }
}

wire! {
    struct SocketZone<'a> {
        #[serde(rename = "type")]
        kind: Text<'a>,
        name: Text<'a>,
        children: List<NumaZone<'a>>,
    }
}

wire! {
    struct NumaZone<'a> {
        #[serde(rename = "type")]
        kind: Text<'a>,
        name: Text<'a>,
        resources: Option<CustomResources<'a>>,
        allocations: List<NumaAllocation<'a>>,
    }
}

wire! {
    struct NumaAllocation<'a> {
        consumer: Text<'a>,
        requests: Amounts<'a>,
    }
}

wire! {
    struct CustomResources<'a> {
        allocatable: Amounts<'a>,
    }
}

wire! {
    struct Image<'a> {
        names: List<Text<'a>>,
        size_bytes: Whole<i64>,
    }
}

wire! {
    /// Namespace.
    struct Bare<'a> {
        metadata: Option<Metadata<'a>>,
    }
}

wire! {
    struct Service<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<ServiceSpec<'a>>,
    }
}

wire! {
    struct ServiceSpec<'a> {
        selector: TextMap<'a>,
    }
}

wire! {
    struct ReplicationController<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<ReplicationControllerSpec<'a>>,
    }
}

wire! {
    struct ReplicationControllerSpec<'a> {
        replicas: Whole<i64>,
        selector: TextMap<'a>,
        template: Option<PodTemplate<'a>>,
    }
}

wire! {
    /// Deployment, ReplicaSet, StatefulSet, DaemonSet, Job.
    struct Controller<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<ControllerSpec<'a>>,
        status: Option<ControllerStatus<'a>>,
    }
}

wire! {
    struct ControllerSpec<'a> {
        replicas: Whole<i64>,
        parallelism: Whole<i64>,
        completions: Whole<i64>,
        suspend: Option<bool>,
        selector: Option<LabelSelector<'a>>,
        template: Option<PodTemplate<'a>>,
        ordinals: Option<Ordinals<'a>>,
        pod_management_policy: Text<'a>,
        completion_mode: Text<'a>,
        manual_selector: Option<bool>,
        backoff_limit: Whole<i64>,
        backoff_limit_per_index: Whole<i64>,
        pod_failure_policy: Option<PodFailurePolicy<'a>>,
        paused: Option<bool>,
        /// Used by deployments.
        strategy: Option<UpdateStrategy<'a>>,
        /// Used by stateful sets and daemon sets.
        update_strategy: Option<UpdateStrategy<'a>>,
        volume_claim_templates: List<super::wire_storage::PersistentVolumeClaim<'a>>,
    }
}

wire! {
    struct UpdateStrategy<'a> {
        #[serde(rename = "type")]
        strategy_type: Text<'a>,
        rolling_update: Option<RollingUpdate<'a>>,
    }
}

wire! {
    struct RollingUpdate<'a> {
        max_surge: Option<QuantityText<'a>>,
        max_unavailable: Option<QuantityText<'a>>,
        partition: Whole<i64>,
    }
}

wire! {
    struct PodFailurePolicy<'a> {
        rules: List<PodFailureRule<'a>>,
    }
}

wire! {
    struct PodFailureRule<'a> {
        action: Text<'a>,
        on_pod_conditions: List<PodConditionPattern<'a>>,
    }
}

wire! {
    struct PodConditionPattern<'a> {
        #[serde(rename = "type")]
        condition_type: Text<'a>,
        status: Text<'a>,
    }
}

wire! {
    /// CronJob.
    struct CronJob<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<CronJobSpec<'a>>,
    }
}

wire! {
    struct CronJobSpec<'a> {
        suspend: Option<bool>,
        job_template: Option<JobTemplate<'a>>,
    }
}

wire! {
    struct JobTemplate<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<ControllerSpec<'a>>,
    }
}

wire! {
    /// JobSet, of jobset.x-k8s.io.
    struct JobSet<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<JobSetSpec<'a>>,
        status: Option<JobSetStatus<'a>>,
    }
}

wire! {
    struct JobSetSpec<'a> {
        suspend: Option<bool>,
        startup_policy: Option<StartupPolicy<'a>>,
        volume_claim_policies: List<Empty<'a>>,
        replicated_jobs: List<ReplicatedJob<'a>>,
    }
}

wire! {
    struct StartupPolicy<'a> {
        startup_policy_order: Text<'a>,
    }
}

wire! {
    struct DependsOn<'a> {
        name: Text<'a>,
        status: Text<'a>,
    }
}

wire! {
    struct ReplicatedJob<'a> {
        name: Text<'a>,
        group_name: Text<'a>,
        depends_on: List<DependsOn<'a>>,
        replicas: Whole<i64>,
        template: Option<JobTemplate<'a>>,
    }
}

wire! {
    struct JobSetStatus<'a> {
        terminal_state: Text<'a>,
        restarts: Whole<i64>,
        replicated_jobs_status: List<ReplicatedJobStatus<'a>>,
    }
}

wire! {
    struct ReplicatedJobStatus<'a> {
        name: Text<'a>,
        succeeded: Whole<i64>,
    }
}

wire! {
    /// LeaderWorkerSet, of leaderworkerset.x-k8s.io.
    struct LeaderWorkerSet<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<LeaderWorkerSetSpec<'a>>,
    }
}

wire! {
    struct LeaderWorkerSetSpec<'a> {
        replicas: Whole<i64>,
        startup_policy: Text<'a>,
        leader_worker_template: Option<LeaderWorkerTemplate<'a>>,
    }
}

wire! {
    struct LeaderWorkerTemplate<'a> {
        size: Whole<i64>,
        restart_policy: Text<'a>,
        sub_group_policy: Option<SubGroupPolicy<'a>>,
        volume_claim_templates: List<super::wire_storage::PersistentVolumeClaim<'a>>,
        leader_template: Option<PodTemplate<'a>>,
        worker_template: Option<PodTemplate<'a>>,
    }
}

wire! {
    struct SubGroupPolicy<'a> {
        #[serde(rename = "subGroupPolicyType", alias = "type")]
        policy_type: Text<'a>,
        sub_group_size: Whole<i64>,
    }
}

wire! {
    struct ControllerStatus<'a> {
        conditions: List<super::wire_pod::Condition<'a>>,
        succeeded: Whole<i64>,
        failed: Whole<i64>,
        completed_indexes: Text<'a>,
        failed_indexes: Text<'a>,
    }
}

wire! {
    struct Ordinals<'a> {
        start: Whole<i64>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }
}

wire! {
    struct PriorityClass<'a> {
        metadata: Option<Metadata<'a>>,
        value: Whole<i32>,
        global_default: Option<bool>,
        preemption_policy: Text<'a>,
    }
}

wire! {
    struct RuntimeClass<'a> {
        metadata: Option<Metadata<'a>>,
        overhead: Option<Overhead<'a>>,
        scheduling: Option<RuntimeScheduling<'a>>,
    }
}

wire! {
    struct Overhead<'a> {
        pod_fixed: Amounts<'a>,
    }
}

wire! {
    struct RuntimeScheduling<'a> {
        node_selector: TextMap<'a>,
        tolerations: List<super::wire_pod::Toleration<'a>>,
    }
}

wire! {
    /// PodGroup, of all of its API groups.
    struct PodGroup<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<PodGroupSpec<'a>>,
        status: Option<PodGroupStatus<'a>>,
    }
}

wire! {
    struct PodGroupStatus<'a> {
        phase: Text<'a>,
    }
}

wire! {
    struct PodGroupSpec<'a> {
        /// Used by scheduling.k8s.io.
        scheduling_policy: Option<SchedulingPolicy<'a>>,
        /// Used by coscheduling and Gödel.
        min_member: Whole<i64>,
        schedule_timeout_seconds: Whole<i64>,
        priority: Whole<i32>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }
}

wire! {
    struct SchedulingPolicy<'a> {
        gang: Option<GangPolicy<'a>>,
    }
}

wire! {
    struct GangPolicy<'a> {
        min_count: Whole<i64>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }
}

wire! {
    struct Reservation<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<ReservationSpec<'a>>,
        status: Option<ReservationStatus<'a>>,
    }
}

wire! {
    struct ReservationSpec<'a> {
        template: Option<ReservationTemplate<'a>>,
        nodename: Text<'a>,
        ttl: Whole<i64>,
    }
}

wire! {
    struct ReservationTemplate<'a> {
        spec: Option<super::wire_pod::PodSpec<'a>>,
    }
}

wire! {
    struct ReservationStatus<'a> {
        phase: Text<'a>,
        current_owners: Option<ReservationOwner<'a>>,
    }
}

wire! {
    struct ReservationOwner<'a> {
        uid: Text<'a>,
    }
}

wire! {
    struct PodDisruptionBudget<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<PodDisruptionBudgetSpec<'a>>,
        status: Option<PodDisruptionBudgetStatus<'a>>,
    }
}

wire! {
    struct PodDisruptionBudgetSpec<'a> {
        selector: Option<LabelSelector<'a>>,
        min_available: Option<QuantityText<'a>>,
        max_unavailable: Option<QuantityText<'a>>,
        unhealthy_pod_eviction_policy: Text<'a>,
    }
}

wire! {
    struct PodDisruptionBudgetStatus<'a> {
        disruptions_allowed: Whole<i32>,
        disrupted_pods: TextMap<'a>,
    }
}

wire! {
    struct Movement<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<MovementSpec<'a>>,
        status: Option<MovementStatus<'a>>,
    }
}

wire! {
    struct MovementSpec<'a> {
        deleted_tasks: List<MovementTask<'a>>,
        creator: Text<'a>,
        generation: Whole<u64>,
    }
}

wire! {
    struct MovementTask<'a> {
        name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
        node: Text<'a>,
    }
}

wire! {
    struct MovementStatus<'a> {
        owners: List<MovementOwner<'a>>,
    }
}

wire! {
    struct MovementOwner<'a> {
        owner: Option<MovementOwnerInfo<'a>>,
        recommended_nodes: List<RecommendedNode<'a>>,
    }
}

wire! {
    struct MovementOwnerInfo<'a> {
        r#type: Text<'a>,
        name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
    }
}

wire! {
    struct RecommendedNode<'a> {
        node: Text<'a>,
        desired_pod_count: Whole<i64>,
        actual_pods: List<MovementTask<'a>>,
    }
}

wire! {
    struct LimitRange<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<LimitRangeSpec<'a>>,
    }
}

wire! {
    struct LimitRangeSpec<'a> {
        limits: List<LimitRangeItem<'a>>,
    }
}

wire! {
    struct LimitRangeItem<'a> {
        #[serde(rename = "type")]
        limit_type: Text<'a>,
        max: Amounts<'a>,
        min: Amounts<'a>,
        default: Amounts<'a>,
        default_request: Amounts<'a>,
        max_limit_request_ratio: Amounts<'a>,
    }
}

wire! {
    struct ResourceQuota<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<ResourceQuotaSpec<'a>>,
    }
}

wire! {
    struct ResourceQuotaSpec<'a> {
        hard: Amounts<'a>,
        scopes: List<Text<'a>>,
        scope_selector: Option<ScopeSelector<'a>>,
    }
}

wire! {
    struct ScopeSelector<'a> {
        match_expressions: List<ScopeRequirement<'a>>,
    }
}

wire! {
    struct ScopeRequirement<'a> {
        scope_name: Text<'a>,
        operator: Text<'a>,
        values: List<Text<'a>>,
    }
}
