//! The fields of nodes and the other kinds that are read. See [`super::wire`].

use super::wire::{
    Amounts, LabelSelector, List, Metadata, QuantityText, Text, TextMap, Whole, objects, wire,
};
use super::wire_pod::{Empty, PodTemplate};

objects! {
    Node { spec: NodeSpec, status: NodeStatus }
    NmNode { spec: NmNodeSpec, status: NmNodeStatus }
    CustomNodeResource { status: CustomNodeResourceStatus }
    /// Namespace.
    Bare {}
    Service { spec: ServiceSpec }
    ReplicationController { spec: ReplicationControllerSpec }
    /// Deployment, ReplicaSet, StatefulSet, DaemonSet, Job.
    Controller { spec: ControllerSpec, status: ControllerStatus }
    /// CronJob.
    CronJob { spec: CronJobSpec }
    JobTemplate { spec: ControllerSpec }
    /// JobSet, of jobset.x-k8s.io.
    JobSet { spec: JobSetSpec, status: JobSetStatus }
    /// LeaderWorkerSet, of leaderworkerset.x-k8s.io.
    LeaderWorkerSet { spec: LeaderWorkerSetSpec }
    /// PodGroup, of all of its API groups.
    PodGroup { spec: PodGroupSpec, status: PodGroupStatus }
    Reservation { spec: ReservationSpec, status: ReservationStatus }
    PodDisruptionBudget { spec: PodDisruptionBudgetSpec, status: PodDisruptionBudgetStatus }
    Movement { spec: MovementSpec, status: MovementStatus }
    LimitRange { spec: LimitRangeSpec }
    ResourceQuota { spec: ResourceQuotaSpec }
}

wire! {
    struct NodeSpec<'a> {
        taints: List<Taint<'a>>,
        unschedulable: Option<bool>,
    }

    struct Taint<'a> {
        key: Text<'a>,
        value: Text<'a>,
        effect: Text<'a>,
    }

    struct NodeStatus<'a> {
        allocatable: Amounts<'a>,
        capacity: Amounts<'a>,
        images: List<Image<'a>>,
        declared_features: List<Text<'a>>,
    }

    struct NmNodeSpec<'a> {
        taints: List<Taint<'a>>,
    }

    struct NmNodeStatus<'a> {
        resource_capacity: Amounts<'a>,
        resource_allocatable: Amounts<'a>,
    }

    struct CustomNodeResourceStatus<'a> {
        resources: Option<CustomResources<'a>>,
        node_metric_status: Option<NodeMetricStatus<'a>>,
    }

    struct NodeMetricStatus<'a> {
        update_time: Text<'a>,
        group_metric: List<GroupMetric<'a>>,
    }

    struct GroupMetric<'a> {
        #[serde(rename = "QoSLevel", alias = "qosLevel")]
        qos_level: Text<'a>,
        generic_usage: Amounts<'a>,
        pod_list: List<Text<'a>>,
    }

    struct CustomResources<'a> {
        allocatable: Amounts<'a>,
    }

    struct Image<'a> {
        names: List<Text<'a>>,
        size_bytes: Whole<i64>,
    }

    struct ServiceSpec<'a> {
        selector: TextMap<'a>,
    }

    struct ReplicationControllerSpec<'a> {
        replicas: Whole<i64>,
        selector: TextMap<'a>,
        template: Option<PodTemplate<'a>>,
    }

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

    struct UpdateStrategy<'a> {
        #[serde(rename = "type")]
        strategy_type: Text<'a>,
        rolling_update: Option<RollingUpdate<'a>>,
    }

    struct RollingUpdate<'a> {
        max_surge: Option<QuantityText<'a>>,
        max_unavailable: Option<QuantityText<'a>>,
        partition: Whole<i64>,
    }

    struct PodFailurePolicy<'a> {
        rules: List<PodFailureRule<'a>>,
    }

    struct PodFailureRule<'a> {
        action: Text<'a>,
        on_pod_conditions: List<PodConditionPattern<'a>>,
    }

    struct PodConditionPattern<'a> {
        #[serde(rename = "type")]
        condition_type: Text<'a>,
        status: Text<'a>,
    }

    struct CronJobSpec<'a> {
        suspend: Option<bool>,
        job_template: Option<JobTemplate<'a>>,
    }

    struct JobSetSpec<'a> {
        suspend: Option<bool>,
        startup_policy: Option<StartupPolicy<'a>>,
        volume_claim_policies: List<Empty<'a>>,
        replicated_jobs: List<ReplicatedJob<'a>>,
    }

    struct StartupPolicy<'a> {
        startup_policy_order: Text<'a>,
    }

    struct DependsOn<'a> {
        name: Text<'a>,
        status: Text<'a>,
    }

    struct ReplicatedJob<'a> {
        name: Text<'a>,
        group_name: Text<'a>,
        depends_on: List<DependsOn<'a>>,
        replicas: Whole<i64>,
        template: Option<JobTemplate<'a>>,
    }

    struct JobSetStatus<'a> {
        terminal_state: Text<'a>,
        restarts: Whole<i64>,
        replicated_jobs_status: List<ReplicatedJobStatus<'a>>,
    }

    struct ReplicatedJobStatus<'a> {
        name: Text<'a>,
        succeeded: Whole<i64>,
    }

    struct LeaderWorkerSetSpec<'a> {
        replicas: Whole<i64>,
        startup_policy: Text<'a>,
        leader_worker_template: Option<LeaderWorkerTemplate<'a>>,
    }

    struct LeaderWorkerTemplate<'a> {
        size: Whole<i64>,
        restart_policy: Text<'a>,
        sub_group_policy: Option<SubGroupPolicy<'a>>,
        volume_claim_templates: List<super::wire_storage::PersistentVolumeClaim<'a>>,
        leader_template: Option<PodTemplate<'a>>,
        worker_template: Option<PodTemplate<'a>>,
    }

    struct SubGroupPolicy<'a> {
        #[serde(rename = "subGroupPolicyType", alias = "type")]
        policy_type: Text<'a>,
        sub_group_size: Whole<i64>,
    }

    struct ControllerStatus<'a> {
        conditions: List<super::wire_pod::Condition<'a>>,
        succeeded: Whole<i64>,
        failed: Whole<i64>,
        completed_indexes: Text<'a>,
        failed_indexes: Text<'a>,
    }

    struct Ordinals<'a> {
        start: Whole<i64>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }

    struct PriorityClass<'a> {
        metadata: Option<Metadata<'a>>,
        value: Whole<i32>,
        global_default: Option<bool>,
        preemption_policy: Text<'a>,
    }

    struct RuntimeClass<'a> {
        metadata: Option<Metadata<'a>>,
        overhead: Option<Overhead<'a>>,
        scheduling: Option<RuntimeScheduling<'a>>,
    }

    struct Overhead<'a> {
        pod_fixed: Amounts<'a>,
    }

    struct RuntimeScheduling<'a> {
        node_selector: TextMap<'a>,
        tolerations: List<super::wire_pod::Toleration<'a>>,
    }

    struct PodGroupStatus<'a> {
        phase: Text<'a>,
    }

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

    struct SchedulingPolicy<'a> {
        gang: Option<GangPolicy<'a>>,
    }

    struct GangPolicy<'a> {
        min_count: Whole<i64>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }

    struct ReservationSpec<'a> {
        template: Option<ReservationTemplate<'a>>,
        nodename: Text<'a>,
        ttl: Whole<i64>,
    }

    struct ReservationTemplate<'a> {
        spec: Option<super::wire_pod::PodSpec<'a>>,
    }

    struct ReservationStatus<'a> {
        phase: Text<'a>,
        current_owners: Option<ReservationOwner<'a>>,
    }

    struct ReservationOwner<'a> {
        uid: Text<'a>,
    }

    struct PodDisruptionBudgetSpec<'a> {
        selector: Option<LabelSelector<'a>>,
        min_available: Option<QuantityText<'a>>,
        max_unavailable: Option<QuantityText<'a>>,
        unhealthy_pod_eviction_policy: Text<'a>,
    }

    struct PodDisruptionBudgetStatus<'a> {
        disruptions_allowed: Whole<i32>,
        disrupted_pods: TextMap<'a>,
    }

    struct MovementSpec<'a> {
        deleted_tasks: List<MovementTask<'a>>,
        creator: Text<'a>,
        generation: Whole<u64>,
    }

    struct MovementTask<'a> {
        name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
        node: Text<'a>,
    }

    struct MovementStatus<'a> {
        owners: List<MovementOwner<'a>>,
    }

    struct MovementOwner<'a> {
        owner: Option<MovementOwnerInfo<'a>>,
        recommended_nodes: List<RecommendedNode<'a>>,
    }

    struct MovementOwnerInfo<'a> {
        r#type: Text<'a>,
        name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
    }

    struct RecommendedNode<'a> {
        node: Text<'a>,
        desired_pod_count: Whole<i64>,
        actual_pods: List<MovementTask<'a>>,
    }

    struct LimitRangeSpec<'a> {
        limits: List<LimitRangeItem<'a>>,
    }

    struct LimitRangeItem<'a> {
        #[serde(rename = "type")]
        limit_type: Text<'a>,
        max: Amounts<'a>,
        min: Amounts<'a>,
        default: Amounts<'a>,
        default_request: Amounts<'a>,
        max_limit_request_ratio: Amounts<'a>,
    }

    struct ResourceQuotaSpec<'a> {
        hard: Amounts<'a>,
        scopes: List<Text<'a>>,
        scope_selector: Option<ScopeSelector<'a>>,
    }

    struct ScopeSelector<'a> {
        match_expressions: List<ScopeRequirement<'a>>,
    }

    struct ScopeRequirement<'a> {
        scope_name: Text<'a>,
        operator: Text<'a>,
        values: List<Text<'a>>,
    }
}
