//! Nothing is dropped silently: each object of an input is used, or named with the reason why it is not.

use serde_json::{Value, json};

use crate::common::{Run, file, portolan};

/// Two nodes with 4 cores and 8 GiB each.
const NODES: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1, disk: ssd}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {kubernetes.io/hostname: n2}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
";

fn cluster(test: &str, more: &str) -> String {
    file(test, "cluster.yaml", format!("{NODES}---\n{more}").as_bytes())
}

/// Adds the objects of `pods` to the nodes and the objects of `more`.
fn what_if(test: &str, more: &str, pods: &str, options: &[&str]) -> Run {
    let cluster = cluster(test, more);
    let pods = file(test, "pods.yaml", pods.as_bytes());
    let arguments = ["what-if", "--cluster", &cluster, "--pods", &pods];
    portolan(&[&arguments, options].concat())
}

/// The answer as JSON, whose exit status is 0 or 1.
fn answer(test: &str, more: &str, pods: &str) -> Value {
    let run = what_if(test, more, pods, &["--output", "json"]);
    assert!(run.code < 2, "{}", run.err);
    serde_json::from_str(&run.out).expect("JSON")
}

fn names(answer: &Value, list: &str) -> Vec<String> {
    let pods = answer[list].as_array().expect("a list").iter();
    let mut names: Vec<String> =
        pods.map(|pod| pod["pod"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

/// What is placed, without the namespace `default`.
fn placed(answer: &Value) -> Vec<String> {
    let names = names(answer, "placed").into_iter();
    names.map(|name| name.trim_start_matches("default/").to_owned()).collect()
}

fn warnings(answer: &Value) -> Vec<String> {
    let warnings = answer["input"]["warnings"].as_array().expect("a list").iter();
    warnings.map(|it| it["what"].as_str().expect("a text").to_owned()).collect()
}

fn ignored(answer: &Value) -> Vec<(String, u64, String)> {
    let ignored = answer["input"]["ignored"].as_array().expect("a list").iter();
    let text = |it: &Value| it.as_str().expect("a text").to_owned();
    let row =
        |it: &Value| (text(&it["kind"]), it["count"].as_u64().expect("a number"), text(&it["why"]));
    ignored.map(row).collect()
}

fn pod(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, \
         image: i}}]\n{spec}\n"
    )
}

fn controller(kind: &str, name: &str, fields: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: c, image: i}}]}}
{fields}"
    )
}

const CLASS: &str = "apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
";

/// A pod that fills a node.
fn big(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, \
         image: i, resources: {{requests: {{cpu: 4}}}}}}]\n{spec}\n"
    )
}

#[test]
fn what_was_read_and_ignored_is_one_line_on_standard_error() {
    let more = "apiVersion: v1
kind: ConfigMap
metadata: {name: c}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: c}
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec: {containers: [{name: c}]}
status: {phase: Succeeded}
---
apiVersion: v1
kind: Pod
metadata: {name: broken}
spec: {containers: [{name: c}]}
status: {phase: Failed}
";
    let run = what_if("line", more, &pod("a", ""), &[]);
    let line = "note: read 2 Node, 1 Pod; ignored 2 Pod (finished), 1 Certificate (kind not used), \
                1 ConfigMap (kind not used)\n";
    assert_eq!((run.code, &*run.err), (0, line));
    assert!(!run.out.contains("Certificate"), "{}", run.out);
}

#[test]
fn the_answer_as_json_has_the_same_and_standard_error_is_empty() {
    let run = what_if("field", "", &pod("a", "  foo: 1"), &["--output", "json"]);
    assert_eq!(run.err, "");
    let answer: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(answer["input"]["read"], serde_json::json!({ "Node": 2, "Pod": 1 }));
    assert_eq!(answer["input"]["ignored"], serde_json::json!([]));
    let warnings = warnings(&answer);
    assert!(warnings[0].ends_with("pods.yaml:6: Pod a: spec.foo: unknown field"), "{warnings:?}");
}

#[test]
fn kinds_that_do_not_exist_in_their_version_are_warnings() {
    let wrong = controller("Deployment", "web", "").replace("apps/v1", "v1");
    let pods = format!("{wrong}---\n{}", pod("a", "").replace("kind: Pod", "kind: pod"));
    let answer = answer("versions", "", &pods);
    let expected = [
        "pods.yaml:1: Deployment web: apiVersion: no matches for kind \"Deployment\" in version \"v1\": use apps/v1",
        "pods.yaml:11: pod a: kind: no matches for kind \"pod\" in version \"v1\": did you mean Pod?",
    ];
    let warnings = warnings(&answer);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.ends_with(expected), "{warning}");
    }
    let why = |kind: &str, why: &str| (kind.to_owned(), 1, why.to_owned());
    assert_eq!(
        ignored(&answer),
        [why("Deployment", "kind of another API group"), why("pod", "kind not used")]
    );
    let run = what_if("versions", "", &pods, &["--strict"]);
    let says = "use apps/v1 (1 more problem): correct the input, or omit --strict\n";
    assert!(run.code == 2 && run.err.ends_with(says), "{}", run.err);
}

#[test]
fn a_replay_without_pods_names_the_wrong_version() {
    let nodes = file("no-pods", "nodes.yaml", NODES.as_bytes());
    let wrong = controller("Deployment", "web", "").replace("apps/v1", "app/v1");
    let pods = file("no-pods", "pods.yaml", wrong.as_bytes());
    let run = portolan(&["replay", "--nodes", &nodes, "--pods", &pods]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("in version \"app/v1\": use apps/v1\n"), "{}", run.err);
    assert!(run.err.contains("ignored 1 Deployment (kind of another API group)\n"), "{}", run.err);
}

#[test]
fn a_priority_class_of_either_side_counts() {
    let high = big("urgent", "  priorityClassName: high");
    // The nodes are full of pods without a priority.
    let full = format!("{}---\n{}", big("x", "  nodeName: n1"), big("z", "  nodeName: n2"));
    let orders = [
        (format!("{full}---\n{CLASS}"), high.clone()),
        (full.clone(), format!("{CLASS}---\n{high}")),
        (full.clone(), format!("{high}---\n{CLASS}")),
    ];
    for (more, pods) in orders {
        let answer = answer("classes", &more, &pods);
        assert!(placed(&answer).contains(&"urgent".to_owned()), "{answer}");
        assert_eq!(names(&answer, "preempted").len(), 1, "{answer}");
        assert!(warnings(&answer).is_empty(), "{answer}");
    }
}

#[test]
fn a_priority_class_of_the_added_file_also_counts_for_the_cluster() {
    // The placed pods have the priority of the added pod, which cannot preempt them.
    let more = ["n1", "n2"].map(|node| {
        big(&format!("p-{node}"), &format!("  nodeName: {node}\n  priorityClassName: high"))
    });
    let answer = answer(
        "classes-2",
        &more.join("---\n"),
        &format!("{CLASS}---\n{}", big("q", "  priorityClassName: high")),
    );
    assert_eq!(names(&answer, "preempted"), [""; 0], "{answer}");
    assert_eq!(names(&answer, "unplaced"), ["default/q"]);
}

#[test]
fn an_unknown_priority_class_is_a_warning() {
    let pods = format!(
        "{}---\n{}",
        pod("a", "  priorityClassName: lost"),
        pod("b", "  priorityClassName: lost")
    );
    let answer = answer("unknown-class", "", &pods);
    assert_eq!(placed(&answer), ["a", "b"]);
    let expected =
        "PriorityClass \"lost\" is not in the input: Pod default/a and 1 more object refer to it";
    assert_eq!(warnings(&answer), [expected]);
}

#[test]
fn system_priority_classes_need_no_object() {
    let answer = answer("system-class", "", &pod("a", "  priorityClassName: system-node-critical"));
    assert!(warnings(&answer).is_empty(), "{answer}");
}

const LOCAL: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
";

const VOLUME: &str = "apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: /mnt}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}
status: {phase: Available}
";

const CLAIM: &str = "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 5Gi}}
";

const CLAIMED: &str = "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]";

#[test]
fn a_claim_beside_its_pod_is_bound() {
    let pods = [LOCAL, VOLUME, CLAIM, &pod("a", CLAIMED)].join("---\n");
    let answer = answer("claim", "", &pods);
    assert_eq!(answer["placed"][0]["to"], "n1", "{answer}");
}

#[test]
fn new_immediate_claims_are_bound_as_a_cluster_would() {
    let class = LOCAL.replace("WaitForFirstConsumer", "Immediate");
    let provisioning = class.replace("kubernetes.io/no-provisioner", "csi.example.com");
    let volume = |name: &str, size: &str| {
        VOLUME
            .replace("pv-1", name)
            .replace("10Gi", size)
            .replace("status: {phase: Available}\n", "")
    };
    let new = |objects: &[&str]| {
        let pod = pod("a", CLAIMED);
        answer("immediate", "", &[objects, &[CLAIM, &pod]].concat().join("---\n"))
    };
    // A provisioner makes a volume.
    let made = new(&[&provisioning]);
    assert_eq!(placed(&made), ["a"], "{made}");
    assert_eq!(
        made["notes"],
        json!(["bound 1 new claim to volumes, as the cluster would at once"])
    );
    // Without one, a volume has to be there; its class need not exist.
    assert_eq!(placed(&new(&[&class])), Vec::<String>::new());
    let found = new(&[&volume("pv-1", "10Gi")]);
    assert_eq!(found["placed"][0]["to"], "n1", "{found}");
    assert_eq!(placed(&new(&[&volume("pv-1", "1Gi")])), Vec::<String>::new(), "too small");
    // The smallest one that fits is taken, although the pod could only use another.
    let elsewhere = volume("pv-2", "6Gi").replace("ssd", "none");
    let smallest = new(&[&volume("pv-1", "10Gi"), &elsewhere]);
    assert_eq!(placed(&smallest), Vec::<String>::new(), "{smallest}");
    // A volume is bound to one claim.
    let other = CLAIM.replace("name: data", "name: more");
    let both =
        [pod("a", CLAIMED), pod("b", &CLAIMED.replace("claimName: data", "claimName: more"))];
    let all = [CLAIM, &other, &volume("pv-1", "10Gi"), &both[0], &both[1]].join("---\n");
    assert_eq!(placed(&answer("immediate-two", "", &all)), ["a"]);
    // A claim of the cluster is pending because its provisioner has not made a volume yet.
    let known = [provisioning.as_str(), CLAIM].join("---\n");
    let waiting = answer("immediate-known", &known, &pod("a", CLAIMED));
    assert_eq!(names(&waiting, "unplaced"), ["default/a"]);
}

#[test]
fn a_claim_without_its_storage_class_is_named() {
    let answer = answer("no-class", "", &[CLAIM, &pod("a", CLAIMED)].join("---\n"));
    assert_eq!(names(&answer, "unplaced"), ["default/a"]);
    let expected = "StorageClass \"local\" is not in the input: PersistentVolumeClaim default/data \
                    refers to it";
    assert_eq!(warnings(&answer), [expected]);
}

#[test]
fn a_claim_without_a_class_gets_the_default_class() {
    let class = LOCAL.replace(
        "{name: local}",
        "{name: local, annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}}",
    );
    let claim = CLAIM.replace("  storageClassName: local\n", "");
    let pods = [VOLUME, &claim, &pod("a", CLAIMED)].join("---\n");
    let answer = answer("default-class", &class, &pods);
    assert_eq!(answer["placed"][0]["to"], "n1", "{answer}");
    // An empty class is not absent.
    let claim = CLAIM.replace("Name: local", "Name: \"\"");
    let pods = [VOLUME, &claim, &pod("a", CLAIMED)].join("---\n");
    let answer = self::answer("empty-class", &class, &pods);
    assert_eq!(names(&answer, "unplaced"), ["default/a"], "{answer}");
}

#[test]
fn a_budget_and_a_namespace_of_the_added_file_reach_the_engine() {
    let text = "apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b}
spec: {selector: {}, minAvailable: 1}
";
    let answer = answer("budget", "", &[text, &pod("a", "")].join("---\n"));
    let read = serde_json::json!({ "Namespace": 1, "Node": 2, "Pod": 1, "PodDisruptionBudget": 1 });
    assert_eq!(answer["input"]["read"], read);
    assert!(ignored(&answer).is_empty(), "{answer}");
}

#[test]
fn generated_names_are_distinct_and_reproducible() {
    let pod = pod("x", "").replace("{name: x}", "{generateName: job-}");
    let pods = [&*pod, &*pod, &*pod].join("---\n");
    let names = placed(&answer("generated", "", &pods));
    assert_eq!(names.len(), 3);
    let is_generated = |name: &String| {
        let suffix = name.strip_prefix("job-").unwrap_or_default();
        suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
    };
    assert!(names.iter().all(is_generated), "{names:?}");
    assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
    assert_eq!(placed(&answer("generated", "", &pods)), names);
}

#[test]
fn nodes_of_added_files_are_named() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n3}\n";
    let answer = answer("node", "", &[node, &pod("a", "")].join("---\n"));
    let why = "not in --cluster".to_owned();
    assert_eq!(ignored(&answer), [("Node".to_owned(), 1, why)]);
    assert_eq!(answer["nodes"], 2);
}

#[test]
fn the_other_objects_of_an_added_node_are_named() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus: {allocatable: {cpu: 1, pods: 10}}\n";
    let more = [node, node, "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"].join("---\n");
    let node = file("add", "node.yaml", more.as_bytes());
    let cluster = cluster("add", "");
    let add = format!("2x{node}");
    let run = portolan(&["what-if", "--cluster", &cluster, "--add", &add]);
    assert_eq!(run.code, 0, "{}", run.err);
    for text in
        ["1 Namespace (not used by --add)", "1 Node (--add copies the first node of a file)"]
    {
        assert!(run.err.contains(text), "{}", run.err);
    }
}

#[test]
fn deployments_and_replica_sets_create_their_replicas() {
    let pods = [
        controller("Deployment", "web", "  replicas: 3\n"),
        controller("ReplicaSet", "api", "  replicas: 1\n"),
    ];
    let answer = answer("replicas", "", &pods.join("---\n"));
    assert_eq!(placed(&answer), ["api-0", "web-0", "web-1", "web-2"]);
}

#[test]
fn replication_controllers_create_their_replicas() {
    let text = "apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: old}}
    spec: {containers: [{name: c, image: i}]}
";
    assert_eq!(placed(&answer("rc", "", text)), ["old-0", "old-1"]);
}

#[test]
fn stateful_sets_create_claims_and_start_at_their_ordinal() {
    let set = controller(
        "StatefulSet",
        "db",
        "  replicas: 2
  ordinals: {start: 3}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}
",
    );
    // One volume for two claims.
    let pods = [LOCAL, VOLUME, &set].join("---\n");
    let answer = answer("stateful", "", &pods);
    assert_eq!(placed(&answer), ["db-3"]);
    assert_eq!(answer["placed"][0]["to"], "n1", "{answer}");
    assert_eq!(names(&answer, "unplaced"), ["default/db-4"]);
    // A claim that exists is used instead of a new one.
    let bound = CLAIM.replace("{name: data}", "{name: data-db-4}");
    let pods = [
        LOCAL,
        VOLUME,
        &bound,
        &set.replace("start: 3", "start: 4").replace("replicas: 2", "replicas: 1"),
    ];
    assert_eq!(placed(&self::answer("stateful-2", "", &pods.join("---\n"))), ["db-4"]);
}

#[test]
fn a_claim_template_replaces_the_volume_of_its_name() {
    let set = controller("StatefulSet", "db", "  replicas: 1\n  volumeClaimTemplates:\n  - metadata: {name: data}\n    spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}\n")
        .replace("image: i}]}", "image: i}], volumes: [{name: data, persistentVolumeClaim: {claimName: gone}}]}");
    let answer = answer("replaced", "", &[LOCAL, VOLUME, &set].join("---\n"));
    assert_eq!(placed(&answer), ["db-0"], "{answer}");
}

#[test]
fn daemon_sets_run_on_the_nodes_of_the_cluster_and_on_added_ones() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus: {allocatable: {cpu: 1, pods: 10}}\n";
    let node = file("daemons", "node.yaml", node.as_bytes());
    let set = controller("DaemonSet", "agent", "");
    let cluster = cluster("daemons", "");
    let pods = file("daemons", "pods.yaml", set.as_bytes());
    let add = format!("1x{node}");
    let run = portolan(&[
        "what-if",
        "--cluster",
        &cluster,
        "--pods",
        &pods,
        "--add",
        &add,
        "--output",
        "json",
    ]);
    let answer: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(placed(&answer), ["agent-n1", "agent-n2"]);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("placed 1 daemon set pod on the added nodes"), "{notes}");
}

#[test]
fn jobs_create_the_pods_that_run_at_once() {
    let job = |fields: &str| {
        format!(
            "apiVersion: batch/v1
kind: Job
metadata: {{name: job}}
spec:
  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}
{fields}"
        )
    };
    let placed = |fields: &str| placed(&answer("jobs", "", &job(fields))).len();
    assert_eq!(placed(""), 1);
    assert_eq!(placed("  parallelism: 3\n  completions: 9\n"), 3);
    assert_eq!(placed("  parallelism: 9\n  completions: 3\n"), 3);
    assert_eq!(placed("  parallelism: 3\n  completions: 3\nstatus: {succeeded: 2}\n"), 1);
    assert_eq!(placed("  parallelism: 3\n  suspend: true\n"), 0);
}

const CRON_JOB: &str = "apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: '0 1 * * *'
  jobTemplate:
    spec:
      parallelism: 2
      template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
";

#[test]
fn a_cron_job_stands_for_one_job() {
    assert_eq!(placed(&answer("cron", "", CRON_JOB)), ["nightly-0", "nightly-1"]);
    let suspended = CRON_JOB.replace("  schedule", "  suspend: true\n  schedule");
    assert_eq!(placed(&answer("cron", "", &suspended)), [""; 0]);
}

#[test]
fn a_cron_job_of_the_cluster_is_not_due() {
    let answer = answer("cron-2", CRON_JOB, &pod("a", ""));
    assert_eq!(placed(&answer), ["a"]);
    assert_eq!(ignored(&answer), [("CronJob".to_owned(), 1, "no job is due".to_owned())]);
}

#[test]
fn job_sets_create_the_pods_of_their_jobs() {
    let set = "apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: driver
    template:
      spec:
        template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 2
        completions: 2
        template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
";
    let expected = [
        "train-driver-0-0",
        "train-workers-0-0",
        "train-workers-0-1",
        "train-workers-1-0",
        "train-workers-1-1",
    ];
    assert_eq!(placed(&answer("job-set", "", set)), expected);
    // Its jobs exist, and one of them has a pod.
    let job = "apiVersion: batch/v1
kind: Job
metadata: {name: train-workers-0, ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: train, controller: true}]}
spec:
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train-workers-0-x, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train-workers-0, controller: true}]}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
";
    let answer = answer("job-set-2", job, set);
    let pods = placed(&answer);
    assert_eq!(
        pods.iter().filter(|pod| pod.starts_with("train-workers-0-")).count(),
        1,
        "{pods:?}"
    );
    assert_eq!(pods.len(), 4);
}

#[test]
fn sets_without_a_name_get_one() {
    let set = |kind: &str, spec: &str| {
        format!("apiVersion: {kind}\nmetadata: {{generateName: llm-}}\nspec: {spec}\n")
    };
    // The webhook of job sets sets the policy of restarts.
    let jobs = "{replicatedJobs: [{name: w, replicas: 2, template: {spec: {template: {spec: \
                {containers: [{name: c, image: i}]}}}}}]}";
    let group = "{leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c, image: i}]}}}}";
    let jobs = set("jobset.x-k8s.io/v1alpha2\nkind: JobSet", jobs);
    let groups = set("leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet", group);
    let run = what_if(
        "unnamed",
        "",
        &[&*jobs, &*jobs, &*groups].join("---\n"),
        &["--strict", "-o", "json"],
    );
    assert_eq!(run.code, 0, "{}", run.err);
    let answer: Value = serde_json::from_str(&run.out).expect("one JSON object");
    let mut pods = placed(&answer);
    assert!(pods.iter().all(|pod| pod.starts_with("llm-")), "{pods:?}");
    pods.dedup();
    // Two sets with two jobs each, a leader and a worker.
    assert_eq!(pods.len(), 6, "{pods:?}");
    assert_eq!(pods.iter().filter(|pod| pod.ends_with("-w-1-0")).count(), 2, "{pods:?}");
}

#[test]
fn leader_worker_sets_create_leaders_and_workers() {
    let set = "apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: llm}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 3
    leaderTemplate: {spec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: i}]}}
    workerTemplate: {spec: {containers: [{name: c, image: i}]}}
";
    let answer = answer("lws", "", set);
    assert_eq!(placed(&answer), ["llm-0", "llm-0-1", "llm-0-2", "llm-1", "llm-1-1", "llm-1-2"]);
    let leaders = answer["placed"].as_array().expect("a list").iter();
    let mut leaders = leaders.filter(|pod| {
        ["default/llm-0", "default/llm-1"].contains(&pod["pod"].as_str().expect("a name"))
    });
    assert!(leaders.all(|pod| pod["to"] == "n1"), "{answer}");
}

#[test]
fn only_missing_replicas_are_pending() {
    let owned = |name: &str, kind: &str, owner: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}, ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {owner}, controller: true}}]}}
spec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}
"
        )
    };
    let web = controller("Deployment", "web", "  replicas: 3\n");
    // The replica set of the pods is not in the input.
    let more =
        [owned("web-abc-1", "ReplicaSet", "web-abc"), owned("web-abc-2", "ReplicaSet", "web-abc")];
    let answer = answer("missing", &more.join("---\n"), &web);
    assert_eq!(placed(&answer).len(), 1, "{answer}");
    // A set of another deployment, whose name only starts alike.
    let more = owned("website-1", "ReplicaSet", "website");
    assert_eq!(placed(&self::answer("missing-2", &more, &web)).len(), 3);
    // In the cluster itself.
    let set = controller("ReplicaSet", "web", "  replicas: 2\n");
    let more = [set, owned("web-1", "ReplicaSet", "web")].join("---\n");
    let answer = self::answer("missing-3", &more, &pod("a", ""));
    assert_eq!(placed(&answer), ["a", "web-0"], "{answer}");
    assert!(answer["notes"].to_string().contains("created 1 pod that controllers lack"));
    // A stateful set misses the ordinal that does not exist.
    let set = controller("StatefulSet", "web", "  replicas: 3\n");
    let more = [owned("web-0", "StatefulSet", "web"), owned("web-2", "StatefulSet", "web")];
    assert_eq!(placed(&self::answer("missing-4", &more.join("---\n"), &set)), ["web-1"]);
    // A daemon set misses the node that has no pod.
    let set = controller("DaemonSet", "web", "");
    let more = owned("web-x", "DaemonSet", "web");
    assert_eq!(placed(&self::answer("missing-5", &more, &set)), ["web-n2"]);
}

fn replay(test: &str, nodes: &str, pods: &str, options: &[&str]) -> Run {
    let nodes = file(test, "nodes.yaml", nodes.as_bytes());
    let pods = file(test, "pods.yaml", pods.as_bytes());
    let arguments = ["replay", "--nodes", &nodes, "--pods", &pods, "--threads", "1"];
    portolan(&[&arguments, options].concat())
}

#[test]
fn the_pods_of_all_controllers_are_limited() {
    let huge = controller("Deployment", "web", "  replicas: 10000000\n");
    let refused = |run: &Run, parts: &[&str]| {
        assert!(run.code == 2 && run.out.is_empty() && run.err.lines().count() == 1, "{}", run.err);
        assert!(parts.iter().all(|part| run.err.contains(part)), "{parts:?}: {}", run.err);
    };
    let parts = [
        "Deployment default/web has 10000000 pods: controllers would create more than 1000000 pods: ",
        "raise --max-pods",
    ];
    refused(&what_if("huge-pods", "", &huge, &[]), &parts);
    refused(&what_if("huge-cluster", &huge, &pod("b", ""), &[]), &parts);
    refused(&replay("huge-replay", NODES, &huge, &[]), &parts);
    refused(&portolan(&["dump", "--cluster", &cluster("huge-dump", &huge)]), &parts);
    // The pods of the cluster and those that are added count together; pods that exist do not.
    let web = [controller("Deployment", "web", "  replicas: 2\n"), pod("a", "")].join("---\n");
    let agents = controller("DaemonSet", "agent", "");
    let run = what_if("sum", &web, &agents, &["--max-pods", "3"]);
    refused(&run, &["DaemonSet default/agent has 2 pods: ", "more than 3 pods"]);
    let run = what_if("sum-raised", &web, &agents, &["--max-pods", "4"]);
    assert!(run.code < 2, "{}", run.err);
    let claims = "  replicas: 2
  volumeClaimTemplates:
  - {metadata: {name: a}, spec: {resources: {requests: {storage: 1Gi}}}}
  - {metadata: {name: b}, spec: {resources: {requests: {storage: 1Gi}}}}
";
    let run = what_if("claims", "", &controller("StatefulSet", "db", claims), &["--max-pods", "3"]);
    refused(&run, &["StatefulSet default/db has 2 pods: ", "more than 3 claims"]);
}

#[test]
fn bound_pods_beside_the_nodes_of_a_replay_take_their_place() {
    let full = ["n1", "n2"].map(|node| big(&format!("p-{node}"), &format!("  nodeName: {node}")));
    let nodes = [NODES, &full[0], &full[1], &pod("waits", "")].join("---\n");
    let run = replay("bound", &nodes, &big("a", ""), &["--output", "json"]);
    let result: Value = serde_json::from_str(&run.out).expect(&run.err);
    assert_eq!((&result["placed"], &result["failed"]), (&0.into(), &1.into()), "{result}");
    let why = "pending, but not in the file of --pods".to_owned();
    assert_eq!(ignored(&result), [("Pod".to_owned(), 1, why)]);
    assert_eq!(result["input"]["read"]["Pod"], 3);
}

#[test]
fn one_file_may_have_the_nodes_and_the_pods_of_a_replay() {
    let both = file(
        "both",
        "both.yaml",
        [NODES, &pod("a", ""), &pod("b", "  nodeName: n1")].join("---\n").as_bytes(),
    );
    let run = portolan(&[
        "replay",
        "--nodes",
        &both,
        "--pods",
        &both,
        "--threads",
        "1",
        "--output",
        "json",
    ]);
    let result: Value = serde_json::from_str(&run.out).expect(&run.err);
    assert_eq!((&result["pods"], &result["placed"]), (&1.into(), &1.into()), "{result}");
    assert_eq!(result["input"]["read"], serde_json::json!({ "Node": 2, "Pod": 2 }));
}

#[test]
fn priority_classes_beside_the_nodes_of_a_replay_count() {
    let nodes = [NODES, CLASS].join("---\n");
    let pods = [big("low-1", ""), big("low-2", ""), big("high", "  priorityClassName: high")];
    let run = replay("replay-class", &nodes, &pods.join("---\n"), &["--output", "json"]);
    let result: Value = serde_json::from_str(&run.out).expect(&run.err);
    assert_eq!(result["input"]["warnings"], serde_json::json!([]));
    assert_eq!(result["preempted"], 1, "{result}");
}

#[test]
fn names_are_escaped_before_they_are_printed() {
    let nodes = r#"[{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n\u001b[31m\u009b2J"}},
        {"apiVersion": "v1", "kind": "Fo\u001b]0;x\u0007", "metadata": {"name": "x"}}]"#;
    let cluster = file("escaped", "cluster.json", nodes.as_bytes());
    let unsafe_in = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    for arguments in [
        &["--store", "nodes"][..],
        &[],
        &["--output", "json"],
        &["--strict"],
        &["--store", "\u{1b}x"],
    ] {
        let run = portolan(&[&["dump", "--cluster", &cluster], arguments].concat());
        assert!(!unsafe_in(&run.out) && !unsafe_in(&run.err), "{:?} {:?}", run.out, run.err);
    }
    let run = portolan(&["dump", "--cluster", &cluster, "--store", "nodes", "--output", "json"]);
    let nodes: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert!(nodes.to_string().contains("\u{9b}2J"), "{nodes}");
    let run = portolan(&["dump", "--cluster", &cluster, "--store", "nodes"]);
    assert!(run.out.contains(r"n\u001b[31m\u009b2J"), "{}", run.out);
    assert!(run.err.contains(r"1 Fo\u001b]0;x\u0007 (kind not used)"), "{}", run.err);
}

#[test]
fn names_add_no_lines_to_results() {
    let node = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, \
             status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}}}\n---\n"
        )
    };
    let pod = |name: &str, on: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: d, \
             ownerReferences: [{{kind: ReplicaSet, name: \"w\\nforged\", controller: true}}]}}, \
             spec: {{{on} containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n---\n"
        )
    };
    let cluster = [
        node("n1"),
        node("\"n2\\nforged\""),
        pod("\"a\\nforged\"", "nodeName: n1,"),
        pod("\"b\\tforged\"", "nodeName: n1,"),
    ];
    let cluster = file("lines", "cluster.yaml", cluster.concat().as_bytes());
    let big = file(
        "lines",
        "big.yaml",
        pod("\"big\\nforged\"", "").replace("cpu: 1", "cpu: 9").as_bytes(),
    );
    let small = file("lines", "small.yaml", pod("small", "").as_bytes());
    for (arguments, expected) in [
        (&["what-if", "-f", &cluster, "--drain", "n1"][..], r"d/a\nforged"),
        (&["what-if", "-f", &cluster, "--drain", "n2\nforged"], r"drained   n2\nforged"),
        (&["what-if", "-f", &cluster, "--fail-node", "n2\nforged"], r"failed    n2\nforged"),
        (
            &["what-if", "-f", &cluster, "--scale", "rs/w\nforged=0"],
            r"ReplicaSet/d/w\nforged from 2",
        ),
        (&["what-if", "-f", &cluster, "--pods", &big], r"d/big\nforged: 0/2"),
        (&["what-if", "-f", &cluster, "--fit-more", &big], r"like big\nforged"),
        (&["explain", "-f", &cluster, "--pod", &small], r"n2\nforged  "),
        (&["explain", "-f", &cluster, "--pod", &big], r"pod d/big\nforged: fits"),
        (&["dump", "-f", &cluster, "--store", "nodes"], r"n2\nforged  "),
        (&["dump", "-f", &cluster, "--store", "nodes", "-o", "name"], r"node/n2\nforged"),
        (&["dump", "-f", &cluster, "--store", "pods"], r"b\tforged"),
        (&["replay", "--nodes", &cluster, "--pods", &big], "Insufficient cpu"),
    ] {
        let run = portolan(arguments);
        assert!(run.out.contains(expected), "{arguments:?}: {}{}", run.out, run.err);
        let lines = run.out.lines().chain(run.err.lines());
        let forged: Vec<&str> = lines.filter(|line| line.starts_with("forged")).collect();
        assert!(forged.is_empty() && !run.out.contains('\t'), "{arguments:?}: {}", run.out);
    }
}

#[test]
fn at_most_five_warnings_are_printed() {
    let fields: Vec<String> = (0..12).map(|i| format!("  field{i}: 1")).collect();
    let run = what_if("many", "", &pod("a", &fields.join("\n")), &[]);
    assert_eq!(run.code, 0);
    assert_eq!(run.err.matches("unknown field").count(), 5, "{}", run.err);
    assert!(run.err.ends_with("warning: and 7 more (--output json lists them)\n"), "{}", run.err);
}

#[test]
fn a_valid_input_passes_the_strict_check() {
    let pods = [
        CLASS,
        LOCAL,
        VOLUME,
        CLAIM,
        &pod("a", CLAIMED),
        &controller("Deployment", "web", "  replicas: 2\n"),
        CRON_JOB,
    ];
    let run = what_if("valid", "", &pods.join("---\n"), &["--strict"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!run.err.contains("warning"), "{}", run.err);
}

/// Replaces the containers of a deployment's template.
fn with_spec(fields: &str) -> String {
    controller("Deployment", "web", "").replace("image: i}]}", &format!("image: i}}], {fields}}}"))
}

fn with_affinity(fields: &str) -> String {
    pod("a", &format!("  affinity:\n    {fields}"))
}

/// Inputs that an API server rejects, with the line and a part of the message: errors with `--strict`, and otherwise
/// warnings.
fn rejected() -> Vec<(String, u64, &'static str)> {
    let required =
        "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [";
    let term = |expression: &str| {
        with_affinity(&format!("{required}{{matchExpressions: [{expression}]}}]}}}}"))
    };
    vec![
        (pod("a", "  tolerance: []"), 6, "spec.tolerance: unknown field"),
        (pod("a", "  nodeSelectors: {a: b}"), 6, "spec.nodeSelectors: unknown field"),
        (pod("a", "").replace("image: i", "imagine: i"), 5, "spec.containers[0].imagine: unknown field"),
        (pod("a", "").replace("{name: a}", "{name: a, label: {b: c}}"), 3, "metadata.label: unknown field"),
        (controller("Deployment", "web", "  replica: 3\n"), 9, "spec.replica: unknown field"),
        (controller("StatefulSet", "web", "  volumeClaimTemplate: []\n"), 9, "unknown field"),
        (with_spec("toleration: []"), 8, "unknown field"),
        (controller("Deployment", "web", "  replicas: -1\n"), 9, "must be greater than or equal to 0"),
        (controller("StatefulSet", "web", "  ordinals: {start: -1}\n"), 9, "must be greater than or equal to 0"),
        (CRON_JOB.replace("parallelism: 2", "parallelism: -2"), 8, "must be greater than or equal to 0"),
        (CRON_JOB.replace("Never", "Always"), 9, "supported values: \"OnFailure\", \"Never\""),
        (CRON_JOB.replace("restartPolicy: Never, ", ""), 9, "valid values: OnFailure, Never"),
        (pod("a", "").replace("  containers: [{name: c, image: i}]", "  containers: []"), 5, "spec.containers: Required value"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n".to_owned(), 1, "spec: Required value"),
        (controller("ReplicaSet", "web", "").replace("spec: {containers: [{name: c, image: i}]}", "spec: {}"), 8, "Required value"),
        (controller("ReplicaSet", "web", "").replace("labels: {app", "labels: {tier"), 7, "`selector` does not match template `labels`"),
        (term("{key: a, operator: Equals, values: [b]}"), 7, "Unsupported value: \"Equals\""),
        (term("{key: a, operator: In}"), 7, "must be specified when `operator` is 'In' or 'NotIn'"),
        (term("{key: a, operator: Exists, values: [b]}"), 7, "may not be specified"),
        (term("{key: a, operator: Gt, values: [b]}"), 7, "must be one integer"),
        (term("{key: 'a b', operator: Exists}"), 7, "must be a label key"),
        (with_affinity(&format!("{required}]}}}}")), 7, "nodeSelectorTerms: Required value"),
        (with_affinity("nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}"), 7, "must be in the range 1-100"),
        (with_affinity("podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}"), 7, "topologyKey: Required value"),
        (pod("a", "  tolerations: [{key: a, operator: Exists, value: b}]"), 6, "value must be empty"),
        (pod("a", "  tolerations: [{operator: Equal, value: b}]"), 6, "operator must be Exists when `key` is empty"),
        (pod("a", "  topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"), 6, "must be greater than zero"),
        (pod("a", "").replace("image: i", "resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), 5, "must be less than or equal to cpu limit"),
        (pod("Web_1", ""), 3, "must be a lowercase RFC 1123 subdomain"),
        (pod("a", "").replace("{name: a}", "{name: a, labels: {b: 'c d'}}"), 3, "must be a label value"),
        (pod("a", "  restartPolicy: 3"), 6, "cannot unmarshal number"),
        (pod("a", "").replace("containers: [{name: c, image: i}]", "containers: [{name: c, tty: maybe}]"), 5, "cannot unmarshal string"),
        ("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b}\nspec: {minAvailable: 1, maxUnavailable: 1}\n".to_owned(), 4, "cannot be both set"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: n3}\nspec: {taints: [{key: a, effect: Never}]}\n".to_owned(), 4, ""),
    ]
}

#[test]
fn inputs_that_an_api_server_rejects_are_errors_with_strict_and_warnings_without() {
    for (at, (text, line, says)) in rejected().into_iter().enumerate() {
        let test = format!("rejected-{at}");
        let run = what_if(&test, "", &text, &["--strict"]);
        assert_eq!((run.code, &*run.out), (2, ""), "{text}\n{}", run.err);
        assert!(run.err.contains(&format!("pods.yaml:{line}: ")), "{text}\n{}", run.err);
        assert!(run.err.contains(says), "{text}\n{}", run.err);
        assert!(run.err.chars().count() < 300, "{text}\n{}", run.err);
        // A value that cannot be interpreted is an error in any case.
        let run = what_if(&test, "", &text, &[]);
        let is_refused = run.code == 2 && run.err.starts_with("portolan: ");
        assert!(is_refused || run.err.contains("\nwarning: "), "{text}\n{}", run.err);
        assert!(run.err.contains(says), "{text}\n{}", run.err);
    }
}

#[test]
fn references_to_missing_objects_are_errors_with_strict() {
    for (text, says) in [
        (pod("a", "  priorityClassName: lost"), "PriorityClass \"lost\" is not in the input"),
        ([CLAIM, &pod("a", CLAIMED)].join("---\n"), "StorageClass \"local\" is not in the input"),
        (pod("a", "  runtimeClassName: gvisor"), "RuntimeClass \"gvisor\" is not in the input"),
    ] {
        let run = what_if("references", "", &text, &["--strict"]);
        assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
        assert!(run.err.contains(says), "{}", run.err);
        assert!(run.err.chars().count() < 300, "{}", run.err);
    }
}

#[test]
fn errors_name_the_line_of_their_field() {
    for (text, line) in [
        (pod("a", "  tolerations:\n  - {key: a, operator: Maybe}"), 7),
        (controller("Deployment", "web", "  replicas: 100000000\n"), 9),
        (pod("a", "  preemptionPolicy: Sometimes"), 6),
    ] {
        let run = what_if("lines", "", &text, &[]);
        assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
        assert!(run.err.contains(&format!("pods.yaml:{line}: ")), "{}", run.err);
        assert!(run.err.chars().count() < 300, "{}", run.err);
    }
}

#[test]
fn repeated_keys_of_json_are_found() {
    let text = r#"{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"b": "c", "b": "d"}},
        "spec": {"containers": [{"name": "c"}]}}"#;
    let run = what_if("repeated", "", text, &["--strict"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains(":2: Pod a: metadata.labels.b: duplicate field"), "{}", run.err);
}

#[test]
fn long_names_are_shortened_in_messages() {
    let name = "x".repeat(5000);
    for text in
        [pod(&name, &format!("  {name}: 1")), pod("a", &format!("  priorityClassName: {name}"))]
    {
        let run = what_if("long", "", &text, &["--strict"]);
        assert_eq!(run.code, 2);
        assert!(run.err.chars().count() < 300, "{}", run.err);
    }
}

#[test]
fn the_pod_of_a_file_is_explained_with_the_classes_of_the_cluster() {
    let full = ["n1", "n2"].map(|node| big(&format!("p-{node}"), &format!("  nodeName: {node}")));
    let cluster = cluster("explain", &[CLASS, &full[0], &full[1]].join("---\n"));
    let set = controller("Deployment", "web", "  replicas: 1\n").replace(
        "image: i}]}",
        "image: i, resources: {requests: {cpu: 4}}}], priorityClassName: high}",
    );
    for pod in [big("a", "  priorityClassName: high"), set] {
        let pod = file("explain", "pod.yaml", pod.as_bytes());
        let run = portolan(&["explain", "--cluster", &cluster, "--pod", &pod]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.out.contains("preemption would evict default/p-n"), "{}", run.out);
        assert!(!run.err.contains("warning"), "{}", run.err);
    }
}
