//! The pods that controllers create, and references between several inputs.

use portolan_k8s::{Objects, Reader, read_yaml};

fn reader(text: &str) -> Reader {
    let mut reader = Reader::new();
    reader.read_yaml(text).expect("objects");
    reader
}

fn names(objects: &Objects) -> Vec<&str> {
    objects.pods.iter().map(|pod| &*pod.name).collect()
}

const SET: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  replicas: 2
  ordinals: {start: 5}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: fast, resources: {requests: {storage: 1Gi}}}
";

fn claims(objects: &Objects) -> Vec<String> {
    let claims = objects.objects.iter().filter(|it| it.kind().as_str() == "PersistentVolumeClaim");
    claims.map(|claim| format!("{}/{}", claim.namespace(), claim.name())).collect()
}

#[test]
fn claims_of_stateful_sets_have_the_names_of_template_set_and_ordinal() {
    let mut objects = read_yaml(SET).expect("objects");
    assert_eq!(objects.expand(), 2);
    assert_eq!(names(&objects), ["db-5", "db-6"]);
    assert_eq!(claims(&objects), ["shop/data-db-5", "shop/data-db-6"]);
    // Nothing is missing any more.
    assert_eq!(objects.expand(), 0);
    assert_eq!(claims(&objects).len(), 2);
}

#[test]
fn claims_and_pods_of_the_cluster_are_not_created_again() {
    let cluster = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-db-5, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: db-6, namespace: shop}
";
    let [cluster, mut added] = Reader::finish_together([reader(cluster), reader(SET)]);
    assert_eq!(added.expand_in(&cluster), 1);
    assert_eq!(names(&added), ["db-5"]);
    assert_eq!(claims(&added), ["shop/data-db-6"]);
}

const EPHEMERAL: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: ci, uid: uid-a}
spec:
  containers: [{name: c}]
  volumes:
  - name: work
    ephemeral:
      volumeClaimTemplate:
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: ci}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c}]
      volumes:
      - name: cache
        ephemeral:
          volumeClaimTemplate:
            spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: disk.example.com
";

fn claim(objects: &Objects, named: &str) -> portolan::model::PersistentVolumeClaim {
    let mut found = objects.objects.iter().filter_map(|object| match object {
        portolan::model::Object::PersistentVolumeClaim(claim) if &*claim.name == named => {
            Some((**claim).clone())
        }
        _ => None,
    });
    found.next().expect("a claim")
}

#[test]
fn claims_of_ephemeral_volumes_belong_to_their_pods() {
    let mut objects = read_yaml(EPHEMERAL).expect("objects");
    assert_eq!(objects.expand(), 1);
    assert_eq!(claims(&objects), ["ci/a-work", "ci/web-0-cache"]);
    let (of_a, of_web) = (claim(&objects, "a-work"), claim(&objects, "web-0-cache"));
    assert_eq!((&*of_a.owner, &*of_a.class, of_a.request), ("uid-a", "standard", 1 << 30));
    assert_eq!((&*of_web.owner, &*of_web.class, of_web.request), ("ci/web-0", "fast", 2 << 30));
}

#[test]
fn claims_of_ephemeral_volumes_are_not_created_twice_or_for_running_pods() {
    let known = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: a-work, namespace: ci}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: web-0-cache, namespace: ci}
";
    let [cluster, mut added] = Reader::finish_together([reader(known), reader(EPHEMERAL)]);
    added.expand_in(&cluster);
    assert_eq!(claims(&added), Vec::<String>::new());
    let running = EPHEMERAL.replace(
        "spec:\n  containers: [{name: c}]\n",
        "spec:\n  nodeName: n\n  containers: [{name: c}]\n",
    );
    let objects = read_yaml(&running).expect("objects");
    assert_eq!(claims(&objects), Vec::<String>::new());
}

#[test]
fn a_deployment_that_is_applied_again_lacks_the_replicas_beyond_its_sets() {
    let cluster = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-7c9
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, controller: true}]
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-7c9-a
  namespace: shop
  labels: {app: web}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-7c9, controller: true}]
spec: {nodeName: n}
";
    let deployment =
        cluster.split("---").next().expect("a document").replace("replicas: 2", "replicas: 5");
    let [mut old, mut added] = Reader::finish_together([reader(cluster), reader(&deployment)]);
    assert_eq!(old.expand(), 1, "the set lacks a pod");
    assert_eq!(added.expand_in(&old), 3);
    // A pod of the set that is added, too, counts once.
    let pod = cluster.split("---").last().expect("a document").replace("web-7c9-a", "web-7c9-b");
    let text = [deployment.as_str(), &pod].join("---");
    let [mut old, mut added] = Reader::finish_together([reader(cluster), reader(&text)]);
    old.expand();
    assert_eq!(added.expand_in(&old), 2);
}

#[test]
fn pods_that_are_being_deleted_are_replaced() {
    let text = "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec: {replicas: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-0
  deletionTimestamp: 2026-01-01T00:00:00Z
  ownerReferences: [{kind: ReplicaSet, name: web, controller: true}]
";
    let mut objects = read_yaml(text).expect("objects");
    assert_eq!(objects.expand(), 2);
    assert_eq!(names(&objects), ["web-0", "web-1", "web-2"]);
}

#[test]
fn references_are_resolved_between_readers_in_both_directions() {
    let class =
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priorityClassName: high}\n";
    for texts in [[class, pod], [pod, class]] {
        let objects = Reader::finish_together(texts.map(reader));
        let pods: Vec<_> = objects.iter().flat_map(|of| &of.pods).collect();
        assert_eq!(pods[0].template.priority, 7);
        assert!(objects.iter().all(|of| of.missing.is_empty()));
    }
    let objects = reader(pod).finish();
    let missing: Vec<String> = objects.missing.iter().map(ToString::to_string).collect();
    assert_eq!(missing, ["PriorityClass \"high\" is not in the input: Pod default/a refers to it"]);
}

#[test]
fn generated_names_skip_names_that_are_taken() {
    let pod = |name: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{{name}}}\n");
    let first = reader(&pod("generateName: a-")).finish();
    let taken = format!("name: {}", first.pods[0].name);
    let both = reader(&format!("{}---\n{}", pod("generateName: a-"), pod(&taken))).finish();
    assert_ne!(both.pods[0].name, both.pods[1].name);
    // A long base is cut, so that the name is a label value.
    let long = reader(&pod(&format!("generateName: {}", "x".repeat(80)))).finish();
    assert_eq!(long.pods[0].name.len(), 63);
    assert_eq!(&*long.pods[0].uid.to_string(), format!("default/{}", long.pods[0].name));
}

#[test]
fn a_controller_may_have_a_generated_name() {
    let text = "
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-}
spec: {parallelism: 2, template: {spec: {containers: [{name: c}]}}}
";
    let mut objects = read_yaml(text).expect("objects");
    assert_eq!(objects.expand(), 2);
    let job = objects.controllers[0].name.to_string();
    assert!(job.starts_with("train-") && job.len() == 11, "{job}");
    assert_eq!(names(&objects), [format!("{job}-0"), format!("{job}-1")]);
}

#[test]
fn read_objects_are_counted_by_kind() {
    let text = format!("{SET}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n");
    let objects = read_yaml(&text).expect("objects");
    assert_eq!(objects.read.into_iter().collect::<Vec<_>>(), [("StatefulSet", 1)]);
    assert_eq!(objects.skipped["ConfigMap"], 1);
}

#[test]
fn excessive_sets_are_refused() {
    let text = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: a}
spec: {replicatedJobs: [{name: w, replicas: 90000, template: {spec: {parallelism: 90000}}}]}
";
    let error = read_yaml(text).expect_err("too many pods");
    assert_eq!(error.path(), "spec.replicatedJobs[0].replicas");
    let text = "
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: a}
spec: {replicas: 900000000000, leaderWorkerTemplate: {size: 2}}
";
    assert_eq!(read_yaml(text).expect_err("too many groups").path(), "spec.replicas");
}

#[test]
fn the_newest_default_storage_class_is_used() {
    let class = |name: &str, created: &str| {
        format!(
            "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {name}
  creationTimestamp: {created}
  annotations: {{storageclass.kubernetes.io/is-default-class: 'true'}}
---
"
        )
    };
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {}\n";
    let classes = [class("old", "2025-01-01T00:00:00Z"), class("new", "2026-01-01T00:00:00Z")];
    let objects = reader(&format!("{}{claim}", classes.concat())).finish();
    let of_claims = objects.defaulted.iter().find(|it| it.field == "spec.storageClassName");
    assert_eq!(of_claims.map(|it| &*it.value), Some("new"));
}

#[test]
fn the_parts_of_a_set_have_its_generated_name() {
    let set = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {generateName: train-}
spec:
  replicatedJobs:
  - name: w
    template: {spec: {template: {spec: {containers: [{name: c}]}}}}
";
    let mut objects = read_yaml(&format!("{set}---{set}")).expect("objects");
    assert_eq!(objects.expand(), 2);
    let mut names: Vec<&str> = Vec::new();
    for pod in &objects.pods {
        let name = pod.name.strip_suffix("-w-0-0").expect("the name of a job's pod");
        assert!(name.starts_with("train-") && name.len() > "train-".len(), "{name}");
        assert_eq!(pod.template.labels.get("jobset.sigs.k8s.io/jobset-name"), Some(name));
        names.push(name);
    }
    assert_ne!(names[0], names[1]);
    let owners = objects.controllers.iter().map(|job| &*job.owners[0].name);
    assert_eq!(owners.collect::<Vec<_>>(), names);
}
