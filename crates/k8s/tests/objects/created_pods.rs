//! What controllers, webhooks and admission add to the pods that they create.

use portolan::model::{LabelSelector, Object, Pod, PodAffinityTerm};
use portolan_k8s::{Objects, PodController, Prerequisite, Reader, read_yaml};

fn expanded(text: &str) -> Objects {
    let mut objects = read_yaml(text).expect("objects");
    objects.expand();
    objects
}

fn reader(text: &str) -> Reader {
    let mut reader = Reader::new();
    reader.read_yaml(text).expect("objects");
    reader
}

/// What must happen before the pod of this name is created.
fn prerequisite(objects: &Objects, name: &str) -> Option<Prerequisite> {
    let pod = objects.pods.iter().find(|pod| &*pod.name == name).expect("a pod");
    let owner = &pod.template.owners[0];
    let owns = |it: &&PodController| it.kind.as_str() == &*owner.kind && it.name == owner.name;
    objects.controllers.iter().find(owns).expect("a controller").prerequisite(pod)
}

fn label<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.template.labels.get(key)
}

/// The values that the first required term of anti-affinity names for a key.
fn values<'p>(pod: &'p Pod, key: &str) -> Vec<&'p str> {
    let affinity = pod.template.pod_anti_affinity.as_ref().expect("anti-affinity");
    let LabelSelector::All(requirements) = &affinity.required[0].selector else { return vec![] };
    let found = requirements.iter().filter(|it| &*it.key == key);
    found.flat_map(|it| it.values.iter().map(|value| &**value)).collect()
}

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: j, uid: u-1}
spec:
  parallelism: 3
  completions: 6
  completionMode: Indexed
  template:
    spec:
      containers: [{name: c}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: zone, labelSelector: {}, matchLabelKeys: [controller-uid]}
status: {completedIndexes: '0,2-3', succeeded: 3}
";

#[test]
fn pods_of_jobs_have_the_labels_of_the_job() {
    let objects = expanded(JOB);
    let pods: Vec<_> = objects.pods.iter().map(|pod| &*pod.name).collect();
    assert_eq!(pods, ["j-1", "j-4", "j-5"], "the indexes that are not complete");
    for (key, value) in [
        ("batch.kubernetes.io/job-name", "j"),
        ("job-name", "j"),
        ("batch.kubernetes.io/controller-uid", "u-1"),
        ("controller-uid", "u-1"),
        ("batch.kubernetes.io/job-completion-index", "4"),
    ] {
        assert_eq!(label(&objects.pods[1], key), Some(value), "{key}");
    }
    assert_eq!(values(&objects.pods[0], "controller-uid"), ["u-1"]);
}

#[test]
fn existing_indexes_are_not_created_again_and_manual_selectors_add_no_labels() {
    let pod = "---
apiVersion: v1
kind: Pod
metadata: {name: j-4-x7k2p, ownerReferences: [{kind: Job, name: j, controller: true}]}
";
    let objects = expanded(&format!("{JOB}{pod}"));
    let pods: Vec<_> = objects.pods.iter().map(|pod| &*pod.name).collect();
    assert_eq!(pods, ["j-4-x7k2p", "j-1", "j-5"]);
    let manual = JOB.replace("  parallelism: 3", "  manualSelector: true\n  parallelism: 3");
    assert_eq!(label(&expanded(&manual).pods[0], "job-name"), None);
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: 'web:1'}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: zone
            labelSelector: {matchLabels: {app: web}}
            matchLabelKeys: [pod-template-hash]
";

const REPLICA_SET: &str = "---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-7c9, ownerReferences: [{kind: Deployment, name: web, controller: true}]}
spec:
  replicas: 2
  selector: {matchLabels: {app: web, pod-template-hash: 7c9}}
  template:
    metadata: {labels: {app: web, pod-template-hash: 7c9}}
    spec:
      containers: [{name: c, image: 'web:1'}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: zone
            labelSelector: {matchLabels: {app: web}}
            matchLabelKeys: [pod-template-hash]
";

#[test]
fn the_hash_of_a_template_is_that_of_its_replica_set() {
    let first = expanded(DEPLOYMENT).pods.remove(0);
    let hash = label(&first, "pod-template-hash").expect("a hash");
    assert_eq!(values(&first, "pod-template-hash"), [hash]);
    assert_ne!(hash, "7c9");
    let larger = DEPLOYMENT.replace("replicas: 2", "replicas: 3");
    let cluster = format!("{DEPLOYMENT}{REPLICA_SET}");
    let of_added = |deployment: &str| {
        let [mut cluster, mut added] =
            Reader::finish_together([reader(&cluster), reader(deployment)]);
        cluster.expand();
        added.expand_in(&cluster);
        added.pods.remove(0)
    };
    let pod = of_added(&larger);
    assert_eq!(label(&pod, "pod-template-hash"), Some("7c9"));
    assert_eq!(values(&pod, "pod-template-hash"), ["7c9"]);
    let other = of_added(&larger.replace("web:1", "web:2"));
    assert_ne!(label(&other, "pod-template-hash"), Some("7c9"));
}

#[test]
fn revisions_of_sets_are_labels_of_their_pods() {
    let set = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {replicas: 2, template: {spec: {containers: [{name: c}]}}}
";
    let objects = expanded(set);
    let revision = label(&objects.pods[1], "controller-revision-hash").expect("a revision");
    assert!(revision.starts_with("db-"), "{revision}");
    let pod = "---
apiVersion: v1
kind: Pod
metadata:
  name: db-0
  labels: {controller-revision-hash: db-5f6}
  ownerReferences: [{kind: StatefulSet, name: db, controller: true}]
";
    let objects = expanded(&format!("{set}{pod}"));
    assert_eq!(label(&objects.pods[1], "controller-revision-hash"), Some("db-5f6"));
    let one = "created only after pod db-0 runs (podManagementPolicy OrderedReady)";
    assert_eq!(prerequisite(&objects, "db-1").map(|it| it.to_string()).as_deref(), Some(one));
    assert_eq!(prerequisite(&objects, "db-0"), None);
    let parallel = set.replace("replicas: 2", "replicas: 2, podManagementPolicy: Parallel");
    assert_eq!(prerequisite(&expanded(&parallel), "db-1"), None);
}

#[test]
fn namespaces_have_the_label_of_their_name() {
    let written = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {team: x}}\n";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: b}\n";
    let objects = read_yaml(&format!("{written}{pod}")).expect("objects");
    let found = objects.objects.iter().filter_map(|object| match object {
        Object::Namespace(it) => Some((&*it.name, it.labels.get("kubernetes.io/metadata.name"))),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), [("a", Some("a")), ("b", Some("b"))]);
}

const JOB_SET: &str = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: js
  uid: u
  annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}
spec:
  replicatedJobs:
  - name: a
    replicas: 1
    template: {spec: {template: {spec: {containers: [{name: c}]}}}}
  - name: w
    replicas: 2
    template:
      spec: {parallelism: 2, completions: 2, template: {spec: {containers: [{name: c}]}}}
";

fn topologies(terms: &[PodAffinityTerm]) -> Vec<&str> {
    terms.iter().map(|term| &*term.topology_key).collect()
}

#[test]
fn leaders_of_a_job_set_claim_a_domain_and_the_others_follow() {
    let objects = expanded(JOB_SET);
    let named = |name: &str| objects.pods.iter().find(|pod| &*pod.name == name).expect("a pod");
    let leader = named("js-w-1-0");
    for (key, value) in [
        ("jobset.sigs.k8s.io/jobset-name", "js"),
        ("jobset.sigs.k8s.io/jobset-uid", "u"),
        ("jobset.sigs.k8s.io/replicatedjob-name", "w"),
        ("jobset.sigs.k8s.io/replicatedjob-replicas", "2"),
        ("jobset.sigs.k8s.io/job-index", "1"),
        ("jobset.sigs.k8s.io/job-global-index", "2"),
        ("jobset.sigs.k8s.io/global-replicas", "3"),
        ("jobset.sigs.k8s.io/restart-attempt", "0"),
        // SHA-1 of default/js-w-1.
        ("jobset.sigs.k8s.io/job-key", "7c2f7dec9c9e27a2c52afd400be98d053137dcdf"),
        ("jobset.sigs.k8s.io/priority", "0"),
        ("job-name", "js-w-1"),
    ] {
        assert_eq!(label(leader, key), Some(value), "{key}");
    }
    let template = &leader.template;
    let affinity = template.pod_affinity.as_ref().expect("affinity");
    assert_eq!(topologies(&affinity.required), ["rack"]);
    assert_eq!(
        values(leader, "jobset.sigs.k8s.io/job-key"),
        ["7c2f7dec9c9e27a2c52afd400be98d053137dcdf"]
    );
    let follower = named("js-w-1-1");
    assert!(follower.template.pod_affinity.is_none());
    let prerequisite = prerequisite(&objects, "js-w-1-1").expect("a prerequisite");
    assert_eq!(prerequisite.topology.as_deref(), Some("rack"));
    assert_eq!(prerequisite.pods.iter().map(|it| &**it).collect::<Vec<_>>(), ["js-w-1-0"]);
}

#[test]
fn jobs_of_a_job_set_start_in_order_or_after_those_they_depend_on() {
    let wait = |set: &str| prerequisite(&expanded(set), "js-w-0-0").map(|it| it.to_string());
    assert_eq!(wait(JOB_SET), None);
    let ordered = JOB_SET
        .replace("spec:\n  rep", "spec:\n  startupPolicy: {startupPolicyOrder: InOrder}\n  rep");
    let expected = "created only after pod js-a-0-0 runs (startupPolicyOrder InOrder)";
    assert_eq!(wait(&ordered).as_deref(), Some(expected));
    let depends = "- name: w\n    dependsOn: [{name: a, status: Complete}]";
    let expected = "created only after pod js-a-0-0 completes (dependsOn)";
    assert_eq!(wait(&JOB_SET.replace("- name: w", depends)).as_deref(), Some(expected));
}

const GROUPS: &str = "
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: lws
  annotations:
    leaderworkerset.sigs.k8s.io/exclusive-topology: rack
    leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: switch
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    subGroupPolicy: {subGroupSize: 2}
    workerTemplate: {spec: {containers: [{name: c}]}}
";

#[test]
fn groups_of_a_leader_worker_set_claim_domains() {
    let objects = expanded(GROUPS);
    let named = |name: &str| objects.pods.iter().find(|pod| &*pod.name == name).expect("a pod");
    let leader = named("lws-1");
    let key = label(leader, "leaderworkerset.sigs.k8s.io/group-key").expect("a key");
    let required = &leader.template.pod_affinity.as_ref().expect("affinity").required;
    assert_eq!(topologies(required), ["rack", "switch"]);
    let worker = named("lws-1-3");
    for (name, value) in [
        ("name", "lws"),
        ("group-index", "1"),
        ("group-key", key),
        ("worker-index", "3"),
        ("subgroup-index", "1"),
    ] {
        let name = format!("leaderworkerset.sigs.k8s.io/{name}");
        assert_eq!(label(worker, &name), Some(value), "{name}");
    }
    let required = &worker.template.pod_affinity.as_ref().expect("affinity").required;
    assert_eq!(topologies(required), ["switch"]);
    let follows = prerequisite(&objects, "lws-1-3").expect("a prerequisite").to_string();
    let expected =
        "created only after pod lws-1 runs (leaderworkerset.sigs.k8s.io/exclusive-topology)";
    assert_eq!(follows, expected);
    assert!(objects.controllers[0].recreates_groups);
}
