//! Configurations as people write them: which are read, with which notes, and which are refused.

use crate::common::{Run, file, portolan};

const V1: &str = "kubescheduler.config.k8s.io/v1";

/// A configuration with this version and body.
fn of(version: &str, body: &str) -> String {
    format!("apiVersion: {version}\nkind: KubeSchedulerConfiguration\n{body}")
}

fn v1(body: &str) -> String {
    of(V1, body)
}

/// Asks what if a pod arrives under a configuration.
fn ask(name: &str, configuration: &str, more: &[&str]) -> Run {
    let file = |name: &str, text: &str| file("configurations", name, text.as_bytes());
    let config = file(name, configuration);
    let cluster = file(
        &format!("{name}.cluster.yaml"),
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 4, memory: \
         8Gi, pods: 110}}\n",
    );
    let pod = |scheduler: &str| {
        let scheduler = match scheduler {
            "" => String::new(),
            name => format!("schedulerName: {name}, "),
        };
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{{scheduler}containers: \
             [{{name: c, image: i}}]}}\n"
        )
    };
    let scheduler = more.iter().find_map(|word| word.strip_prefix("pod:")).unwrap_or_default();
    let pods = file(&format!("{name}.pod.yaml"), &pod(scheduler));
    let mut words = vec!["what-if", "--cluster", &cluster, "--pods", &pods, "--config", &config];
    words.extend(more.iter().filter(|word| !word.starts_with("pod:")));
    portolan(&words)
}

/// A configuration, the options, and what the output contains.
type Accepted<'a> = (&'a str, String, &'a [&'a str], &'a [&'a str]);

#[test]
fn configurations_are_read_with_notes_about_what_is_ignored() {
    const UNKNOWN: &str = "--ignore-unknown-plugins";
    let map = |text: &str| {
        let text = text.replace('\n', "\n    ");
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: scheduler-config, namespace: \
             kube-system}}\ndata:\n  scheduler-config.yaml: |\n    {text}\n"
        )
    };
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n";
    let cases: Vec<Accepted<'_>> = vec![
        ("empty", v1(""), &[], &[]),
        (
            "json",
            format!(r#"{{"apiVersion":"{V1}","kind":"KubeSchedulerConfiguration"}}"#),
            &[],
            &[],
        ),
        ("comments", format!("# ours\n\n---\n{}...\n", v1("profiles: []\n")), &[], &[]),
        (
            "windows",
            v1("profiles:\n- schedulerName: default-scheduler\n").replace('\n', "\r\n"),
            &[],
            &[],
        ),
        (
            "process",
            v1(
                "leaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: /etc/k.conf, \
                qps: 100, burst: 200, contentType: application/vnd.kubernetes.protobuf}\nparallelism: \
                32\nenableProfiling: false\nenableContentionProfiling: true\n",
            ),
            &[],
            &[],
        ),
        ("sampling", v1("percentageOfNodesToScore: 50\npodInitialBackoffSeconds: 2\n"), &[], &[]),
        (
            "bin-packing",
            v1("profiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n  - name: \
                NodeResourcesFit\n    args:\n      apiVersion: kubescheduler.config.k8s.io/v1\n      \
                kind: NodeResourcesFitArgs\n      scoringStrategy:\n        type: MostAllocated\n        \
                resources: [{name: cpu, weight: 1}, {name: nvidia.com/gpu, weight: 5}]\n"),
            &[],
            &[],
        ),
        (
            "ratio",
            v1("profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      \
                scoringStrategy:\n        type: RequestedToCapacityRatio\n        resources: [{name: cpu, \
                weight: 3}]\n        requestedToCapacityRatio:\n          shape: [{utilization: 0, score: \
                0}, {utilization: 100, score: 10}]\n"),
            &[],
            &[],
        ),
        (
            "spread",
            v1("profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      \
                defaultingType: List\n      defaultConstraints:\n      - {maxSkew: 1, topologyKey: \
                topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}\n"),
            &[],
            &[],
        ),
        (
            "affinity",
            v1("profiles:\n- pluginConfig:\n  - {name: InterPodAffinity, args: \
                {hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: true}}\n  - {name: \
                DefaultPreemption, args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: \
                50}}\n  - {name: VolumeBinding, args: {bindTimeoutSeconds: 300}}\n  - {name: \
                NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 1}]}}\n  - \
                {name: NodeAffinity, args: {addedAffinity: \
                {preferredDuringSchedulingIgnoredDuringExecution: []}}}\n"),
            &[],
            &[],
        ),
        (
            "weights",
            v1("profiles:\n- plugins:\n    score:\n      disabled: [{name: '*'}]\n      enabled: \
                [{name: NodeResourcesFit, weight: 10}, {name: ImageLocality, weight: 1}]\n"),
            &[],
            &[],
        ),
        (
            "multi-point",
            v1(
                "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: ImageLocality}]\n      \
                enabled: [{name: TaintToleration, weight: 9}]\n",
            ),
            &[],
            &[],
        ),
        (
            "no-preemption",
            v1("profiles:\n- plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}\n"),
            &[],
            &[],
        ),
        (
            "dynamic-resources",
            v1("profiles:\n- plugins: {multiPoint: {enabled: [{name: DynamicResources}]}}\n"),
            &[],
            &[],
        ),
        ("beta3", of("kubescheduler.config.k8s.io/v1beta3", ""), &[], &["v1beta3 is read as"]),
        (
            "beta2",
            of("kubescheduler.config.k8s.io/v1beta2", "metricsBindAddress: 0.0.0.0:10251\n"),
            &[],
            &["v1beta2 is read as", "metricsBindAddress is ignored"],
        ),
        (
            "beta1",
            of(
                "kubescheduler.config.k8s.io/v1beta1",
                "profiles:\n- plugins: {score: {disabled: [{name: NodePreferAvoidPods}]}}\n",
            ),
            &[],
            &["v1beta1 is read as"],
        ),
        (
            "rendered",
            format!("# Source: chart/sa.yaml\n{account}---\n# Source: c.yaml\n{}---\n", v1("")),
            &[],
            &["other documents are ignored: 1 ServiceAccount"],
        ),
        ("map", map(&v1("profiles: []\n")), &[], &["ConfigMap \"scheduler-config\", key"]),
        (
            "map-among-others",
            format!("{account}---\n{}---\n{account}", map(&v1(""))),
            &[],
            &["other documents are ignored: 2 ServiceAccount"],
        ),
        (
            "map-list",
            serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [{
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" },
                "data": { "config.yaml": v1("profiles:\n- schedulerName: default-scheduler\n") },
            }] })
            .to_string(),
            &[],
            &["ConfigMap \"m\""],
        ),
        (
            "coscheduling",
            v1(
                "profiles:\n- plugins:\n    queueSort: {enabled: [{name: Coscheduling}], disabled: \
                [{name: '*'}]}\n    multiPoint: {enabled: [{name: Coscheduling}]}\n  pluginConfig: \
                [{name: Coscheduling, args: {permitWaitingTimeSeconds: 60}}]\n",
            ),
            &[],
            &["GangScheduling replaces Coscheduling", "arguments of Coscheduling are ignored"],
        ),
        (
            "capacity",
            v1(
                "profiles:\n- plugins:\n    preFilter: {enabled: [{name: CapacityScheduling}]}\n    \
                postFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: '*'}]}\n    \
                reserve: {enabled: [{name: CapacityScheduling}]}\n",
            ),
            &[UNKNOWN],
            &["CapacityScheduling does not exist: ignored at PreFilter, PostFilter, Reserve"],
        ),
        (
            "trimaran",
            v1(
                "profiles:\n- schedulerName: default-scheduler\n  plugins:\n    score:\n      enabled: \
                [{name: TargetLoadPacking, weight: 5}, {name: LoadVariationRiskBalancing}]\n  \
                pluginConfig: [{name: TargetLoadPacking, args: {metricProvider: {type: \
                KubernetesMetricsServer}}}]\n",
            ),
            &[UNKNOWN],
            &["TargetLoadPacking does not exist", "LoadVariationRiskBalancing does not exist"],
        ),
        (
            "topology-match",
            v1(
                "profiles:\n- plugins: {filter: {enabled: [{name: NodeResourceTopologyMatch}]}}\n  \
                pluginConfig: [{name: NodeResourceTopologyMatch, args: {scoringStrategy: {type: \
                LeastAllocated}}}]\n",
            ),
            &[UNKNOWN],
            &["NodeResourceTopologyMatch does not exist: ignored at Filter"],
        ),
        (
            "own-queue-and-binder",
            v1(
                "profiles:\n- plugins:\n    queueSort: {enabled: [{name: Ours}], disabled: [{name: \
                '*'}]}\n    bind: {enabled: [{name: Ours}], disabled: [{name: '*'}]}\n",
            ),
            &[UNKNOWN],
            &["plugin Ours does not exist: ignored at QueueSort, Bind"],
        ),
        (
            "extender",
            v1(
                "extenders:\n- {urlPrefix: 'http://127.0.0.1:8888/', filterVerb: filter, weight: 1, \
                nodeCacheCapable: true, httpTimeout: 5s, managedResources: [{name: example.com/foo, \
                ignoredByScheduler: true}]}\n",
            ),
            &["--ignore-extenders"],
            &["extenders are not called (http://127.0.0.1:8888/)"],
        ),
        (
            "two-profiles",
            v1("profiles:\n- schedulerName: default-scheduler\n- schedulerName: packing\n"),
            &["pod:packing"],
            &["n1"],
        ),
        (
            "chosen-profile",
            v1("profiles:\n- schedulerName: spreading\n- schedulerName: packing\n"),
            &["--profile", "packing", "pod:another"],
            &["n1"],
        ),
        ("only-profile", v1("profiles: [{schedulerName: mine}]\n"), &["pod:mine"], &["n1"]),
    ];
    for (name, text, options, says) in cases {
        let ran = ask(name, &text, options);
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.out, ran.err);
        for says in says {
            assert!(
                ran.out.contains(says) || ran.err.contains(says),
                "{name}: {}{}",
                ran.out,
                ran.err
            );
        }
    }
}

#[test]
fn bad_configurations_are_refused_with_their_line_and_the_way_out() {
    let score =
        |plugin: &str| v1(&format!("profiles:\n- plugins: {{score: {{enabled: [{plugin}]}}}}\n"));
    let extender = "extenders:\n- {urlPrefix: 'http://127.0.0.1:8888/', filterVerb: filter}\n";
    let cases: Vec<Accepted<'_>> = vec![
        ("bad-nothing", String::new(), &[], &[]),
        ("bad-kind", "apiVersion: v1\nkind: Pod\n".to_owned(), &[], &[":1:", "convert the file"]),
        ("bad-version", of("kubescheduler.config.k8s.io/v1alpha1", ""), &[], &[":1:", "convert"]),
        (
            "bad-policy",
            "apiVersion: v1\nkind: Policy\n".to_owned(),
            &[],
            &["removed the kind Policy"],
        ),
        ("bad-two", format!("{}---\n{}", v1(""), v1("")), &[], &[":4:", "2 configurations"]),
        (
            "bad-others",
            "apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Secret\n".to_owned(),
            &[],
            &["only 2 Secret"],
        ),
        ("bad-yaml", v1("profiles: [\n"), &[], &[":"]),
        ("bad-field", v1("profile: []\n"), &[], &[":3:", "unknown field `profile`"]),
        (
            "bad-beta-field",
            v1("healthzBindAddress: 0.0.0.0\n"),
            &[],
            &[":3:", "healthzBindAddress"],
        ),
        ("bad-plugin", score("{name: Nonesuch}"), &[], &[":4:", "--ignore-unknown-plugins"]),
        (
            "bad-template",
            "apiVersion: v1\ndata:\n  a: {{ .Values.a }}\n{{- end }}\n".to_owned(),
            &[],
            &[":3:", "render it first"],
        ),
        (
            "bad-repeated",
            v1("parallelism: 1\nparallelism: 2\n"),
            &[],
            &[":4:", "duplicate", "remove one of them"],
        ),
        ("bad-weight", score("{name: ImageLocality, weight: -1}"), &[], &[":4:", "negative"]),
        ("bad-point", score("{name: NodeName}"), &[], &[":4:", "does not extend"]),
        (
            "bad-args",
            v1(
                "profiles:\n- pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: \
                101}}]\n",
            ),
            &[],
            &[":4:", "hardPodAffinityWeight"],
        ),
        (
            "bad-twice",
            v1("profiles:\n- schedulerName: a\n- schedulerName: a\n"),
            &[],
            &[":5:", "used twice"],
        ),
        ("bad-percentage", v1("percentageOfNodesToScore: 101\n"), &[], &[":3:", "from 0 to 100"]),
        ("bad-extender", v1(extender), &[], &["--ignore-extenders"]),
        (
            "bad-profile",
            v1("profiles: [{schedulerName: a}, {schedulerName: b}]\n"),
            &["--profile", "c"],
            &["there is no profile \"c\": pass one of a, b"],
        ),
    ];
    for (name, text, options, says) in cases {
        let ran = ask(name, &text, options);
        assert_eq!(ran.code, 2, "{name}: {}{}", ran.out, ran.err);
        let line = ran.err.trim_end();
        assert!(line.lines().count() == 1 && line.len() < 300, "{name}: {line}");
        assert!(line.contains(name), "{name}: {line}");
        for says in says {
            assert!(line.contains(says), "{name}: {line}");
        }
    }
}

#[test]
fn pods_without_a_profile_are_a_warning_with_the_option_to_use() {
    let text = v1("profiles: [{schedulerName: a}, {schedulerName: b}]\n");
    let says = "b.yaml: no profile schedules 1 pod (the first: default/p, schedulerName \"default-scheduler\"): to \
                schedule all pods by one profile, pass --profile a or --profile b\n";
    let run = ask("a-b.yaml", &text, &[]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains(says), "{}", run.err);
    let run = ask("a-b.yaml", &text, &["--profile", "b"]);
    assert!(run.code == 0 && !run.err.contains("no profile"), "{}", run.err);
    let config = file("replay-profiles", "a-b.yaml", text.as_bytes());
    let nodes = file(
        "replay-profiles",
        "nodes.csv",
        b"sn,cpu_milli,memory_mib,gpu,model\nn,8000,1000,0,\n",
    );
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,100,100,0,0\n";
    let pods = file("replay-profiles", "pods.csv", pods);
    let input = ["--nodes", &nodes, "--pods", &pods];
    for command in [&["replay", "--config", &config][..], &["compare", "--config", &config]] {
        let run = portolan(&[command, &input].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.err.contains(says), "{}", run.err);
    }
}
