//! Inputs and questions that are refused: objects that an API server would reject, tables for a replay, and options of
//! `what-if`. `inputs` has further files, which cannot be parsed at all.

use crate::common::{Run, file, portolan};

/// A pod on five lines, and further fields of its spec from the sixth line on.
fn pod(fields: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers: [{{name: c, image: i}}]\n{fields}\n"
    )
}

/// A pod whose container has further fields on the fifth line.
fn container(fields: &str) -> String {
    pod("").replace("image: i", &format!("image: i, {fields}"))
}

/// A pod whose metadata has further fields on the third line.
fn named(metadata: &str) -> String {
    pod("").replace("{name: a}", &format!("{{{metadata}}}"))
}

/// A toleration, spread constraint or affinity on the seventh line.
fn toleration(fields: &str) -> String {
    pod(&format!("  tolerations:\n  - {{{fields}}}"))
}

fn spread(fields: &str) -> String {
    pod(&format!("  topologySpreadConstraints:\n  - {{topologyKey: zone, {fields}}}"))
}

fn affinity(fields: &str) -> String {
    pod(&format!("  affinity:\n    {fields}"))
}

fn node_affinity(expression: &str) -> String {
    affinity(&format!(
        "nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: \
         [{{{expression}}}]}}]}}}}"
    ))
}

fn pod_affinity(kind: &str, term: &str) -> String {
    affinity(&format!("{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{{term}}}]}}"))
}

/// An object whose fields begin on the fourth line.
fn object(version: &str, kind: &str, fields: &str) -> String {
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: o}}\n{fields}\n")
}

/// A controller with further fields of its spec on the fifth line.
fn controller(version: &str, kind: &str, fields: &str) -> String {
    object(
        version,
        kind,
        &format!(
            "spec:\n  {fields}\n  selector: {{matchLabels: {{app: o}}}}\n  template:\n    metadata: {{labels: {{app: \
             o}}}}\n    spec: {{containers: [{{name: c, image: i}}]}}"
        ),
    )
}

fn deployment(fields: &str) -> String {
    controller("apps/v1", "Deployment", fields)
}

fn claim(fields: &str) -> String {
    object("v1", "PersistentVolumeClaim", &format!("spec:\n  {fields}"))
}

fn budget(fields: &str) -> String {
    object("policy/v1", "PodDisruptionBudget", &format!("spec:\n  {fields}"))
}

/// Objects for `audit --strict --cluster`: the name of the file, its content, and parts of the error.
pub(crate) fn objects() -> Vec<(&'static str, String, Vec<&'static str>)> {
    const NUMBER: &str = "is not a number with an optional suffix such as m, k, Mi or e3";
    let of_labels = "is not one of In, NotIn, Exists, DoesNotExist";
    vec![
        // Quantities.
        (
            "cpu-unit.yaml",
            container("resources: {requests: {cpu: 2cores}}"),
            vec![":5: ", "requests.cpu", "\"2cores\"", NUMBER],
        ),
        (
            "memory-unit.yaml",
            container("resources: {requests: {memory: 4GB}}"),
            vec![":5: ", "\"4GB\"", NUMBER],
        ),
        (
            "memory-space.yaml",
            container("resources: {requests: {memory: 4 Gi}}"),
            vec![":5: ", "\"4 Gi\"", NUMBER],
        ),
        (
            "cpu-comma.yaml",
            container("resources: {requests: {cpu: '0,5'}}"),
            vec![":5: ", "\"0,5\"", NUMBER],
        ),
        (
            "cpu-negative.yaml",
            container("resources: {requests: {cpu: -1}}"),
            vec![":5: ", "\"-1\" is negative"],
        ),
        (
            "cpu-empty.yaml",
            container("resources: {requests: {cpu: ''}}"),
            vec![":5: ", "\"\"", NUMBER],
        ),
        (
            "cpu-list.yaml",
            container("resources: {requests: {cpu: [1]}}"),
            vec![":5: ", "quantities must match"],
        ),
        (
            "requests-list.yaml",
            container("resources: {requests: [cpu]}"),
            vec![":5: ", "cannot unmarshal array"],
        ),
        (
            "request-above-limit.yaml",
            container("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"),
            vec![":5: ", "requests.cpu", "must be less than or equal to cpu limit"],
        ),
        (
            "gpu-fraction.yaml",
            container("resources: {limits: {nvidia.com/gpu: 500m}}"),
            vec![":5: ", "limits.nvidia.com/gpu", "must be an integer"],
        ),
        (
            "overhead.yaml",
            pod("  overhead: {cpu: lots}"),
            vec![":6: ", "spec.overhead.cpu", "\"lots\""],
        ),
        (
            "pod-resources.yaml",
            pod("  resources: {requests: {memory: 1Qi}}"),
            vec![":6: ", "spec.resources.requests.memory", "\"1Qi\""],
        ),
        // Pods.
        (
            "port-text.yaml",
            container("ports: [{containerPort: http}]"),
            vec![":5: ", "ports.containerPort of type int32"],
        ),
        (
            "port-range.yaml",
            container("ports: [{containerPort: 80, hostPort: 70000}]"),
            vec![":5: ", "ports[0].hostPort: \"70000\" is not a port from 1 to 65535"],
        ),
        (
            "protocol.yaml",
            container("ports: [{containerPort: 80, hostPort: 80, protocol: HTTP}]"),
            vec![":5: ", "\"HTTP\" is not one of TCP, UDP, SCTP"],
        ),
        ("priority-text.yaml", pod("  priority: high"), vec![":6: ", "cannot unmarshal string"]),
        ("priority-range.yaml", pod("  priority: 9999999999"), vec![":6: ", "number 9999999999"]),
        (
            "preemption-policy.yaml",
            pod("  preemptionPolicy: Sometimes"),
            vec![":6: ", "\"Sometimes\" is not one of PreemptLowerPriority, Never"],
        ),
        (
            "restart-policy.yaml",
            pod("  restartPolicy: Sometimes"),
            vec![":6: ", "\"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\""],
        ),
        (
            "node-selector-number.yaml",
            pod("  nodeSelector: {zone: 3}"),
            vec![":6: ", "spec.nodeSelector.zone", "cannot unmarshal number"],
        ),
        (
            "node-selector-list.yaml",
            pod("  nodeSelector: [zone]"),
            vec![":6: ", "cannot unmarshal array"],
        ),
        (
            "gate-text.yaml",
            pod("  schedulingGates: [wait]"),
            vec![":6: ", "of type v1.PodSchedulingGate"],
        ),
        (
            "no-containers.yaml",
            pod("").replace("[{name: c, image: i}]", "[]"),
            vec![":5: ", "spec.containers: Required value"],
        ),
        (
            "containers-object.yaml",
            pod("").replace("[{name: c, image: i}]", "{name: c}"),
            vec![":5: ", "cannot unmarshal object"],
        ),
        (
            "unknown-field.yaml",
            pod("  priorityClass: high"),
            vec![":6: ", "spec.priorityClass: unknown field"],
        ),
        (
            "repeated-key.yaml",
            pod("  priority: 1\n  priority: 2"),
            vec![":7: ", "duplicate mapping key: priority: remove one of them"],
        ),
        (
            "upper-case-name.yaml",
            named("name: Web_1"),
            vec![":3: ", "must be a lowercase RFC 1123 subdomain"],
        ),
        (
            "label-value.yaml",
            named("name: a, labels: {app: a b}"),
            vec![":3: ", "metadata.labels.app", "must be a label value"],
        ),
        (
            "label-list.yaml",
            named("name: a, labels: [app]"),
            vec![":3: ", "cannot unmarshal array"],
        ),
        (
            "deletion-time.yaml",
            named("name: a, deletionTimestamp: yesterday"),
            vec![":3: ", "metadata.deletionTimestamp", "is not an RFC 3339 time"],
        ),
        (
            "claim-text.yaml",
            pod("  volumes: [{name: v, persistentVolumeClaim: data}]"),
            vec![":6: ", "cannot unmarshal string"],
        ),
        (
            "ephemeral-claim.yaml",
            pod(
                "  volumes:\n  - {name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1GiB}}}}}}",
            ),
            vec![":7: ", "spec.volumes[0].ephemeral.volumeClaimTemplate.spec", "\"1GiB\""],
        ),
        // Tolerations.
        (
            "toleration-operator.yaml",
            toleration("key: a, operator: Maybe"),
            vec![
                ":7: ",
                "spec.tolerations[0].operator",
                "\"Maybe\" is not one of Equal, Exists, Lt, Gt",
            ],
        ),
        (
            "toleration-effect.yaml",
            toleration("key: a, operator: Exists, effect: NoEntry"),
            vec![":7: ", "\"NoEntry\" is not one of NoSchedule, PreferNoSchedule, NoExecute"],
        ),
        (
            "toleration-value.yaml",
            toleration("key: a, operator: Exists, value: b"),
            vec![":7: ", "value must be empty when `operator` is 'Exists'"],
        ),
        (
            "toleration-key.yaml",
            toleration("operator: Equal, value: b"),
            vec![":7: ", "operator must be Exists when `key` is empty"],
        ),
        (
            "toleration-seconds.yaml",
            toleration("key: a, operator: Exists, tolerationSeconds: long"),
            vec![":7: ", "cannot unmarshal"],
        ),
        (
            "toleration-object.yaml",
            pod("  tolerations: {key: a}"),
            vec![":6: ", "cannot unmarshal"],
        ),
        // Topology spread constraints.
        (
            "spread-when.yaml",
            spread("maxSkew: 1, whenUnsatisfiable: Never"),
            vec![":7: ", "\"Never\" is not one of DoNotSchedule, ScheduleAnyway"],
        ),
        (
            "spread-skew.yaml",
            spread("maxSkew: 0, whenUnsatisfiable: DoNotSchedule"),
            vec![":7: ", "maxSkew", "must be greater than zero"],
        ),
        (
            "spread-skew-text.yaml",
            spread("maxSkew: one, whenUnsatisfiable: DoNotSchedule"),
            vec![":7: ", "cannot unmarshal"],
        ),
        (
            "spread-domains.yaml",
            spread("maxSkew: 1, minDomains: 0, whenUnsatisfiable: DoNotSchedule"),
            vec![":7: ", "minDomains", "must be greater than zero"],
        ),
        (
            "spread-key.yaml",
            spread("maxSkew: 1, whenUnsatisfiable: DoNotSchedule").replace("zone", "''"),
            vec![":7: ", "topologyKey: Required value"],
        ),
        (
            "spread-policy.yaml",
            spread("maxSkew: 1, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Obey"),
            vec![":7: ", "nodeTaintsPolicy", "\"Obey\" is not one of Honor, Ignore"],
        ),
        (
            "spread-selector.yaml",
            spread(
                "maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: a, operator: Has}]}",
            ),
            vec![":7: ", "\"Has\"", of_labels],
        ),
        // Affinities.
        (
            "affinity-operator.yaml",
            node_affinity("key: a, operator: Equals, values: [b]"),
            vec![":7: ", "\"Equals\": supported values: \"In\", \"NotIn\", \"Exists\""],
        ),
        (
            "affinity-values.yaml",
            node_affinity("key: a, operator: In"),
            vec![":7: ", "values: Required value"],
        ),
        (
            "affinity-exists.yaml",
            node_affinity("key: a, operator: Exists, values: [b]"),
            vec![":7: ", "values: Forbidden"],
        ),
        (
            "affinity-greater.yaml",
            node_affinity("key: a, operator: Gt, values: [five]"),
            vec![":7: ", "must be one integer"],
        ),
        (
            "affinity-key.yaml",
            node_affinity("key: a b, operator: Exists"),
            vec![":7: ", "must be a label key"],
        ),
        (
            "affinity-terms.yaml",
            affinity(
                "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}",
            ),
            vec![":7: ", "nodeSelectorTerms: Required value"],
        ),
        (
            "affinity-list.yaml",
            affinity(
                "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{matchExpressions: []}]}",
            ),
            vec![":7: ", "of type v1.NodeSelector"],
        ),
        (
            "affinity-weight.yaml",
            affinity(
                "nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}",
            ),
            vec![":7: ", "must be in the range 1-100"],
        ),
        (
            "pod-affinity-key.yaml",
            pod_affinity("podAffinity", "labelSelector: {}"),
            vec![":7: ", "topologyKey: Required value"],
        ),
        (
            "pod-affinity-operator.yaml",
            pod_affinity(
                "podAffinity",
                "topologyKey: z, labelSelector: {matchExpressions: [{key: a, operator: Like}]}",
            ),
            vec![":7: ", "\"Like\"", of_labels],
        ),
        (
            "anti-affinity-selector.yaml",
            pod_affinity("podAntiAffinity", "topologyKey: z, labelSelector: app=web"),
            vec![":7: ", "PodAffinityTerm"],
        ),
        (
            "anti-affinity-namespaces.yaml",
            pod_affinity("podAntiAffinity", "topologyKey: z, namespaces: shop"),
            vec![":7: ", "PodAffinityTerm"],
        ),
        // Nodes.
        (
            "node-quantity.yaml",
            object("v1", "Node", "status: {allocatable: {cpu: many}}"),
            vec![":4: ", "status.allocatable.cpu", "\"many\""],
        ),
        (
            "node-negative.yaml",
            object("v1", "Node", "status: {allocatable: {pods: -5}}"),
            vec![":4: ", "status.allocatable.pods", "is negative"],
        ),
        (
            "node-effect.yaml",
            object("v1", "Node", "spec: {taints: [{key: a, effect: Never}]}"),
            vec![":4: ", "\"Never\" is not one of NoSchedule, PreferNoSchedule, NoExecute"],
        ),
        (
            "node-taint.yaml",
            object("v1", "Node", "spec: {taints: [dedicated]}"),
            vec![":4: ", "cannot unmarshal"],
        ),
        (
            "node-cordon.yaml",
            object("v1", "Node", "spec: {unschedulable: perhaps}"),
            vec![":4: ", "cannot unmarshal"],
        ),
        // Controllers.
        ("replicas-text.yaml", deployment("replicas: three"), vec![":5: ", "cannot unmarshal"]),
        (
            "replicas-negative.yaml",
            deployment("replicas: -1"),
            vec![":5: ", "spec.replicas", "must be greater than or equal to 0"],
        ),
        (
            "replicas-many.yaml",
            deployment("replicas: 99999999999"),
            vec![":5: ", "is not a number of pods up to 10000000"],
        ),
        ("replicas-fraction.yaml", deployment("replicas: 1.5"), vec![":5: ", "cannot unmarshal"]),
        (
            "selector-operator.yaml",
            deployment("replicas: 1").replace(
                "{matchLabels: {app: o}}",
                "{matchExpressions: [{key: app, operator: is}]}",
            ),
            vec![":6: ", "\"is\"", of_labels],
        ),
        (
            "selector-mismatch.yaml",
            deployment("replicas: 1")
                .replace("labels: {app: o}}\n    spec", "labels: {app: x}}\n    spec"),
            vec![":8: ", "`selector` does not match template `labels`"],
        ),
        (
            "ordinals.yaml",
            controller("apps/v1", "StatefulSet", "ordinals: {start: -3}"),
            vec![":5: ", "spec.ordinals.start", "must be greater than or equal to 0"],
        ),
        (
            "claim-template.yaml",
            controller(
                "apps/v1",
                "StatefulSet",
                "volumeClaimTemplates: [{metadata: {name: d}, spec: {resources: {requests: {storage: ten}}}}]",
            ),
            vec![":5: ", "volumeClaimTemplates[0]", "\"ten\""],
        ),
        (
            "job-parallelism.yaml",
            controller("batch/v1", "Job", "parallelism: -2"),
            vec![":5: ", "spec.parallelism", "must be greater than or equal to 0"],
        ),
        (
            "job-completions.yaml",
            controller("batch/v1", "Job", "completions: all"),
            vec![":5: ", "cannot unmarshal"],
        ),
        (
            "job-restart.yaml",
            controller("batch/v1", "Job", "completions: 1"),
            vec![":9: ", "restartPolicy: Required value: valid values: OnFailure, Never"],
        ),
        (
            "cron-job-suspend.yaml",
            object("batch/v1", "CronJob", "spec:\n  suspend: later"),
            vec![":5: ", "cannot unmarshal"],
        ),
        (
            "cron-job-version.yaml",
            object("batch/v1beta1", "CronJob", ""),
            vec![":1: ", "no matches for kind \"CronJob\" in version \"batch/v1beta1\""],
        ),
        (
            "job-set.yaml",
            object(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                "spec:\n  replicatedJobs:\n  - {name: a, replicas: 1000000}",
            ),
            vec![":6: ", "\"1000000\" is not a number up to 100000"],
        ),
        (
            "leader-worker-set.yaml",
            object(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                "spec:\n  replicas: 100000\n  leaderWorkerTemplate:\n    size: 1000",
            ),
            vec![":7: ", "the set has up to 10000000 pods"],
        ),
        (
            "pod-group.yaml",
            object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "spec:\n  minMember: few"),
            vec![":5: ", "expected a whole number"],
        ),
        // Budgets.
        (
            "budget-both.yaml",
            budget("minAvailable: 1\n  maxUnavailable: 1"),
            vec![":4: ", "minAvailable and maxUnavailable cannot be both set"],
        ),
        (
            "budget-text.yaml",
            budget("minAvailable: half"),
            vec![":5: ", "\"half\" is not a number of pods such as 2, or a percentage such as 25%"],
        ),
        (
            "budget-negative.yaml",
            budget("maxUnavailable: -1"),
            vec![":5: ", "spec.maxUnavailable: \"-1\""],
        ),
        (
            "budget-policy.yaml",
            budget("unhealthyPodEvictionPolicy: Always"),
            vec![":5: ", "\"Always\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\""],
        ),
        (
            "budget-selector.yaml",
            budget("selector: {matchExpressions: [{key: a, operator: In, values: []}]}"),
            vec![":5: ", "\"In\" is not an operator that can be used without values"],
        ),
        (
            "budget-version.yaml",
            object("policy/v1beta1", "PodDisruptionBudget", ""),
            vec![":1: ", "no matches for kind \"PodDisruptionBudget\""],
        ),
        // Claims, volumes and classes.
        (
            "claim-mode.yaml",
            claim("accessModes: [ReadWriteAlways]"),
            vec![":5: ", "\"ReadWriteAlways\" is not an access mode"],
        ),
        (
            "claim-volume-mode.yaml",
            claim("volumeMode: Raw"),
            vec![":5: ", "\"Raw\" is not Filesystem or Block"],
        ),
        (
            "claim-size.yaml",
            claim("resources: {requests: {storage: 10 GB}}"),
            vec![":5: ", "\"10 GB\"", NUMBER],
        ),
        (
            "claim-selector.yaml",
            claim("selector: {matchExpressions: [{key: a, operator: Near}]}"),
            vec![":5: ", "\"Near\"", of_labels],
        ),
        (
            "volume-capacity.yaml",
            object("v1", "PersistentVolume", "spec:\n  capacity: {storage: big}"),
            vec![":5: ", "spec.capacity.storage", "\"big\""],
        ),
        (
            "volume-affinity.yaml",
            object(
                "v1",
                "PersistentVolume",
                "spec:\n  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: At}]}]}}",
            ),
            vec![":5: ", "\"At\": supported values"],
        ),
        (
            "class-mode.yaml",
            object("storage.k8s.io/v1", "StorageClass", "provisioner: p\nvolumeBindingMode: Lazy"),
            vec![":5: ", "\"Lazy\" is not Immediate or WaitForFirstConsumer"],
        ),
        (
            "class-topology.yaml",
            object(
                "storage.k8s.io/v1",
                "StorageClass",
                "provisioner: p\nallowedTopologies: zone-a",
            ),
            vec![":5: ", "cannot unmarshal"],
        ),
        (
            "csi-node-count.yaml",
            object(
                "storage.k8s.io/v1",
                "CSINode",
                "spec:\n  drivers: [{name: d, nodeID: n, allocatable: {count: many}}]",
            ),
            vec![":5: ", "cannot unmarshal"],
        ),
        // Other kinds.
        (
            "priority-class.yaml",
            object("scheduling.k8s.io/v1", "PriorityClass", "value: top"),
            vec![":4: ", "cannot unmarshal"],
        ),
        (
            "priority-class-policy.yaml",
            object("scheduling.k8s.io/v1", "PriorityClass", "value: 1\npreemptionPolicy: Always"),
            vec![":5: ", "\"Always\" is not one of PreemptLowerPriority, Never"],
        ),
        (
            "runtime-class.yaml",
            object(
                "node.k8s.io/v1",
                "RuntimeClass",
                "handler: h\noverhead:\n  podFixed: {memory: some}",
            ),
            vec![":6: ", "overhead.podFixed.memory", "\"some\""],
        ),
        (
            "service.yaml",
            object("v1", "Service", "spec:\n  selector: [app]"),
            vec![":5: ", "cannot unmarshal"],
        ),
    ]
}

/// Tables for `replay`: whether it is that of the nodes, its content, and parts of the error.
fn tables() -> Vec<(bool, &'static str, Vec<&'static str>)> {
    vec![
        (true, "", vec![": the file is empty"]),
        (
            true,
            "sn,cpu_milli,gpu,model\nn,1,0,\n",
            vec![":1: ", "column \"memory_mib\" is missing"],
        ),
        (
            true,
            "sn;cpu_milli;memory_mib;gpu;model\nn;1;1;0;\n",
            vec![":1: ", "column \"sn\" is missing"],
        ),
        (true, "sn,cpu_milli,memory_mib,gpu,model\n", vec!["no nodes found"]),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\nn,eight,1,0,\n",
            vec![":2: ", "cpu_milli is \"eight\""],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\nn,1.5,1,0,\n",
            vec![":2: ", "cpu_milli is \"1.5\""],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\nn,1,-1,0,\n",
            vec![":2: ", "memory_mib is \"-1\""],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\nn,1\n",
            vec![":2: ", "field count 2, expected 5"],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\nn,1,1,0,\n",
            vec![":3: ", "duplicate node \"n\", first on line 2"],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\n,1,1,0,\n",
            vec![":2: ", "sn is empty: add a value"],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,99999999999999999999,\n",
            vec![":2: ", "gpu is \"99999999999999999999\""],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,model\n\"n,1,1,0,\n",
            vec![":2: ", "field count 1, expected 5"],
        ),
        (false, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", vec!["no pods found"]),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu\np,1,1,0\n",
            vec![":1: ", "column \"gpu_milli\" is missing"],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1e3,1,0,0\n",
            vec![":2: ", "cpu_milli is \"1e3\""],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,many,0\n",
            vec![":2: ", "num_gpu is \"many\""],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0,7\n",
            vec![":2: ", "field count 6, expected 5"],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\np,1,1,0,0\n",
            vec![":3: ", "duplicate pod \"p\", first on line 2"],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np,1,1,0,0,5,x\n",
            vec![":2: ", "deletion_time is \"x\""],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np,1,1,0,0,5,4\n",
            vec![":2: ", "deletion_time is \"4\": use a whole number from 5 to"],
        ),
        (
            false,
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,1001\n",
            vec![":2: ", "gpu_milli is \"1001\": use a whole number from 0 to 1000"],
        ),
        (
            true,
            "sn,cpu_milli,memory_mib,gpu,cpu_milli ,model\nn,1,1,0,2,\n",
            vec![":1: ", "column \"cpu_milli\" is repeated: remove one of them"],
        ),
    ]
}

#[test]
fn invalid_tables_have_short_errors() {
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\nn,1000,1000,0,\n";
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n";
    for (at, (is_of_nodes, text, parts)) in tables().into_iter().enumerate() {
        let test = format!("invalid-table-{at}");
        let (of_nodes, of_pods) = if is_of_nodes { (text, pods) } else { (nodes, text) };
        let of_nodes = file(&test, "nodes.csv", of_nodes.as_bytes());
        let of_pods = file(&test, "pods.csv", of_pods.as_bytes());
        let Run { code, out, err } =
            portolan(&["replay", "--nodes", &of_nodes, "--pods", &of_pods]);
        assert_eq!((code, &*out), (2, ""), "{text}: {err}");
        assert!(err.chars().count() < 300 && err.lines().count() == 1, "{text}: {err}");
        let named = if is_of_nodes { of_nodes } else { of_pods };
        assert!(err.starts_with(&format!("portolan: {named}")), "{text}: {err}");
        assert!(parts.iter().all(|part| err.contains(part)), "{text}: {parts:?} in {err}");
    }
}

/// Options of `what-if` on a cluster with the node `n`, the Deployment `web` and a file of pods: the options, and parts
/// of the error.
fn questions() -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
    vec![
        (vec!["--drain", "nope"], vec!["--drain nope: node nope does not exist"]),
        (vec!["--drain"], vec!["--drain <NODE>..."]),
        (vec!["--fail-node", "nope"], vec!["--fail-node nope: node nope does not exist"]),
        (vec!["--remove", "web"], vec!["pass KIND/NAME, such as deployment/web"]),
        (vec!["--remove", "gadget/web"], vec!["unknown kind \"gadget\""]),
        (vec!["--remove", "deployment/nope"], vec!["--remove deployment/nope: not found"]),
        (vec!["--remove", "pod/nope"], vec!["--remove pod/nope: not found"]),
        (vec!["--scale", "deployment/web"], vec!["pass KIND/NAME=N"]),
        (vec!["--scale", "deployment/web=-1"], vec!["N must be a number from 0 to 1000000"]),
        (vec!["--scale", "deployment/web=many"], vec!["N must be a number from 0 to 1000000"]),
        (vec!["--scale", "daemonset/agent=2"], vec!["a DaemonSet has no number of replicas"]),
        (
            vec!["--scale", "deployment/web=2", "--namespace", "nope"],
            vec!["not found in namespace nope"],
        ),
        (vec!["--upgrade", "pool in"], vec!["is not a label requirement"]),
        (vec!["--upgrade", "pool=none"], vec!["no node has these labels"]),
        (vec!["--upgrade", "all", "--max-surge", "0"], vec!["are both 0: raise one of them"]),
        (vec!["--upgrade", "all", "--max-surge", "10x"], vec!["pass a number such as 2, or 25%"]),
        (vec!["--max-surge", "2"], vec!["--upgrade <SELECTOR>"]),
        (
            vec!["--add", "node.yaml"],
            vec!["pass COUNTxFILE, such as 3xnode.yaml for 3 copies of the node in node.yaml"],
        ),
        (vec!["--add", "node.yamlx3"], vec!["pass COUNTxFILE, such as 3xnode.yaml"]),
        (vec!["--add", "3x"], vec!["pass COUNTxFILE, such as 3xnode.yaml"]),
        (
            vec!["--add", "Cargo.toml"],
            vec!["COUNT is missing: pass 1xCargo.toml for one copy of the node in Cargo.toml"],
        ),
        (vec!["--add", "src/explain/mod.rs"], vec!["pass 1xsrc/explain/mod.rs for one copy"]),
        (vec!["--add", "0xnode.yaml"], vec!["COUNT must be 1 to 1000000: pass COUNTxFILE"]),
        (
            vec!["--add", "2xmissing.yaml"],
            vec![
                "portolan: missing.yaml: ",
                "check the path and its permissions; --add 2xmissing.yaml reads the node from this file",
            ],
        ),
        (
            vec!["--add", "2xexamples/pods.yaml"],
            vec!["pods.yaml: no nodes found: --add 2xFILE copies the first node of FILE"],
        ),
        (
            vec!["--pods", "missing.yaml"],
            vec!["missing.yaml: ", "check the path and its permissions"],
        ),
        (
            vec!["--fit-more", "missing.yaml"],
            vec!["missing.yaml: ", "check the path and its permissions"],
        ),
        (vec!["--time-limit", "soon"], vec!["pass a number of seconds from 0 to 86400"]),
        (
            vec!["--consolidate", "--time-limit", "-1"],
            vec![
                "invalid value '-1' for '--time-limit",
                "pass a number of seconds from 0 to 86400",
            ],
        ),
        (vec!["--time-limit", "3"], vec!["--consolidate"]),
        (vec!["--seed", "x"], vec!["--seed <SEED>"]),
        (vec!["--output", "xml"], vec!["[possible values: table, json]"]),
        (vec!["--config", "missing.yaml"], vec!["missing.yaml: "]),
        (
            vec!["--profile", "nope"],
            vec!["there is no profile \"nope\": pass one of default-scheduler"],
        ),
        (
            vec!["--metrics-file", "/nowhere/metrics"],
            vec!["/nowhere/metrics: ", "check that the folder exists"],
        ),
    ]
}

#[test]
fn invalid_questions_have_short_errors() {
    let all = [
        object("v1", "Node", "status: {allocatable: {cpu: 4, pods: 10}}"),
        deployment("replicas: 1").replace("{name: o}", "{name: web}"),
    ];
    let cluster = file("invalid-question", "cluster.yaml", all.join("---\n").as_bytes());
    for (options, parts) in questions() {
        let mut arguments = vec!["what-if", "--cluster", &cluster];
        arguments.extend(&options);
        let Run { code, out, err } = portolan(&arguments);
        assert_eq!((code, &*out), (2, ""), "{options:?}: {err}");
        assert!(err.chars().count() < 300, "{options:?}: {err}");
        assert!(parts.iter().all(|part| err.contains(part)), "{options:?}: {parts:?} in {err}");
    }
}
