//! Whole schedulers on a real API server.
//!
//! The scheduler is the service account of `deploy/manifests`, with the roles of its `rbac.yaml` and no others. The
//! test acts as the kubelet, and as the volume controller that the scheduler waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use portolan_kube::api::{Connection, Limits};
use portolan_kube::process::{Election, ElectionConfig, LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::{ACCOUNT, Cluster, PATIENCE, User};
use crate::script::uid;

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The shortest waits that kube-scheduler allows.
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
";

/// Permissions of `deploy/verbs.txt` that these scenarios may not need.
const UNUSED: [&str; 17] = [
    // Sent by the HTTPS server, which does not run here.
    "configmaps get",
    "subjectaccessreviews.authorization.k8s.io create",
    "tokenreviews.authentication.k8s.io create",
    // Repeated events become a series, if they repeat within the test.
    "events.events.k8s.io patch",
    // A pod is read if the answer to a binding was lost, or before a victim is evicted.
    "pods get",
    // No pod has resource claims.
    "deviceclasses.resource.k8s.io list",
    "deviceclasses.resource.k8s.io watch",
    "resourceclaims.resource.k8s.io create",
    "resourceclaims.resource.k8s.io delete",
    "resourceclaims.resource.k8s.io get",
    "resourceclaims.resource.k8s.io list",
    "resourceclaims.resource.k8s.io patch",
    "resourceclaims.resource.k8s.io watch",
    "resourceclaims.resource.k8s.io/binding patch",
    "resourceclaims.resource.k8s.io/status patch",
    "resourceslices.resource.k8s.io list",
    "resourceslices.resource.k8s.io watch",
];

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).expect(path)
}

/// Starts a cluster with the scheduler's permissions, and with an account for pods that gets no token.
fn prepared() -> Option<Cluster> {
    let cluster = Cluster::start()?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
        "automountServiceAccountToken": false});
    cluster.create("/api/v1/namespaces/default/serviceaccounts", &account);
    for document in file("deploy/manifests/rbac.yaml").split("\n---\n") {
        let kind = document.lines().find_map(|line| line.strip_prefix("kind: ")).expect("a kind");
        let plural = format!("{}s", kind.to_lowercase());
        let group = "/apis/rbac.authorization.k8s.io/v1";
        let path = match kind {
            "ClusterRole" | "ClusterRoleBinding" => format!("{group}/{plural}"),
            _ => format!("{group}/namespaces/kube-system/{plural}"),
        };
        cluster.apply_yaml(&path, document);
    }
    Some(cluster)
}

/// A scheduler that is the leader, or about to become it.
struct Scheduler {
    live: LiveScheduler,
    fence: Fence,
    /// Renews the Lease.
    leads: JoinHandle<()>,
}

impl Scheduler {
    /// Starts a scheduler, waits until it holds the Lease, and lets it schedule.
    fn start(cluster: &Cluster, identity: &str) -> Scheduler {
        let runtime = cluster.runtime();
        let _within = runtime.enter();
        let mut connection = Connection::default();
        connection.kubeconfig = Some(cluster.kubeconfig(User::Scheduler));
        let mut limits = Limits::default();
        limits.timeout = Duration::from_secs(3);
        let api = runtime.block_on(connection.open(limits)).expect("a client");
        let mut config = LiveConfig::default();
        config.configuration = Some(CONFIGURATION.into());
        config.bindings = NonZeroUsize::new(8).expect("not 0");
        config.waiting_bindings = NonZeroUsize::new(2).expect("not 0");
        config.seed = Some(1);
        let fence = Fence::closed();
        let mut live = LiveScheduler::start(api.clone(), fence.clone(), config).expect("started");
        let mut lease = ElectionConfig::new(identity);
        lease.name = "portolan".to_owned();
        // Longer than a restart of the server.
        (lease.lease_duration, lease.renew_deadline) =
            (Duration::from_secs(15), Duration::from_secs(12));
        lease.retry_period = Duration::from_millis(500);
        let mut election = Election::new(api, lease, fence.clone()).expect("valid");
        runtime.block_on(async {
            let begun = async {
                live.mirror().synced().await.expect("synced");
                election.acquire().await;
                live.mirror().refresh().await.expect("refreshed");
            };
            tokio::time::timeout(PATIENCE, begun).await.expect("a leader in time");
        });
        live.begin().expect("begun");
        let leads = runtime.spawn(async move { election.keep().await });
        Scheduler { live, fence, leads }
    }

    /// Stops the scheduler without releasing the Lease.
    fn stop(self, cluster: &Cluster) {
        self.leads.abort();
        self.fence.close();
        cluster.runtime().block_on(self.live.stop(Duration::ZERO));
    }

    /// Waits until the mirror equals the server.
    fn settle(&self, cluster: &Cluster) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = cluster.runtime().block_on(self.live.mirror().compare()).expect("lists");
            if found.is_empty() {
                return;
            }
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(Instant::now() < deadline, "the mirror differs: {found:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Waits until something is found.
fn wait<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Creates a node of this pool that is ready, with this many CPUs in thousandths.
fn add_node(cluster: &Cluster, name: &str, pool: &str, cpu: u64) {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": "64Gi", "pods": "110"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": pool}},
        "status": {"capacity": amounts, "allocatable": amounts}});
    cluster.create("/api/v1/nodes", &node);
    // Admission taints new nodes, and a controller removes the taint from those that are ready.
    let ready = json!({"spec": {"taints": null}});
    let (code, body) = cluster.send(Method::PATCH, &format!("/api/v1/nodes/{name}"), &ready);
    assert_eq!(code, 200, "{body}");
}

/// A pod for nodes of this pool.
fn pod(name: &str, pool: &str, cpu: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeSelector": {"pool": pool}, "containers": [{"name": "c",
            "image": "registry.example.com/pause:1", "resources": {"requests": {"cpu": format!("{cpu}m")}}}]}})
}

fn get_pod(cluster: &Cluster, name: &str) -> Option<Value> {
    let (code, pod) = cluster.get(&format!("{PODS}/{name}"));
    (code == 200).then_some(pod)
}

fn node_of(pod: &Value) -> Option<String> {
    pod["spec"]["nodeName"].as_str().map(str::to_owned)
}

fn bound(cluster: &Cluster, name: &str) -> String {
    wait(&format!("a node of {name}"), || node_of(&get_pod(cluster, name)?))
}

fn condition(pod: &Value, kind: &str) -> Option<Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}

/// Waits for an event of a pod, and returns it.
fn event(cluster: &Cluster, pod: &str, reason: &str) -> Value {
    wait(&format!("{reason} of {pod}"), || {
        let (_, events) = cluster.get(EVENTS);
        let events = events["items"].as_array()?;
        let of = |event: &&Value| event["regarding"]["name"] == pod && event["reason"] == reason;
        events.iter().find(of).cloned()
    })
}

/// Creates pods for a pool.
fn add_backlog(cluster: &Cluster, prefix: &str, count: u64) {
    for n in 0..count {
        cluster.create(PODS, &pod(&format!("{prefix}-{n}"), "backlog", 100));
    }
}

/// Returns the pods of a backlog, and how many have a node.
fn backlog(cluster: &Cluster, prefix: &str) -> Option<(Vec<Value>, usize)> {
    let (code, list) = cluster.get(PODS);
    let items = list["items"].as_array().filter(|_| code == 200)?;
    let of = |pod: &&Value| {
        pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&format!("{prefix}-")))
    };
    let pods: Vec<Value> = items.iter().filter(of).cloned().collect();
    let placed = pods.iter().filter(|pod| node_of(pod).is_some()).count();
    Some((pods, placed))
}

/// Waits until all pods of a backlog are bound. Checks that no node is overcommitted and that no pod was bound twice.
fn all_bound(cluster: &Cluster, prefix: &str, count: usize, capacity: usize) {
    let pods = wait("all pods bound", || {
        let (pods, placed) = backlog(cluster, prefix)?;
        (placed == count).then_some(pods)
    });
    assert_eq!(pods.len(), count);
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for pod in &pods {
        *used.entry(node_of(pod).expect("a node")).or_default() += 1;
    }
    assert!(used.values().all(|pods| *pods <= capacity), "{used:?}");
    let mut bindings: BTreeMap<String, usize> = BTreeMap::new();
    for event in cluster.audited() {
        if event["objectRef"]["subresource"] == "binding" && event["responseStatus"]["code"] == 201
        {
            let name = event["objectRef"]["name"].as_str().unwrap_or_default();
            *bindings.entry(name.to_owned()).or_default() += 1;
        }
    }
    let twice: Vec<_> = bindings.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "bound twice: {twice:?}");
}

/// Returns the permissions that the scheduler used, in the words of `deploy/verbs.txt`, after checking that it lacked
/// none.
fn used_permissions(cluster: &Cluster) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for event in cluster.audited().iter().filter(|event| event["user"]["username"] == ACCOUNT) {
        assert_ne!(event["responseStatus"]["code"], 403, "{event}");
        let text = |field: &str| event["objectRef"][field].as_str().unwrap_or_default();
        let mut resource = text("resource").to_owned();
        if !text("apiGroup").is_empty() {
            resource = format!("{resource}.{}", text("apiGroup"));
        }
        if !text("subresource").is_empty() {
            resource = format!("{resource}/{}", text("subresource"));
        }
        used.insert(format!("{resource} {}", event["verb"].as_str().unwrap_or_default()));
    }
    used
}

#[test]
fn a_scheduler_does_its_work_with_the_permissions_of_the_manifests() {
    let Some(cluster) = prepared() else { return };
    for n in 0..5 {
        add_node(&cluster, &format!("n{n}"), "backlog", 4_000);
    }
    add_backlog(&cluster, "early", 60);
    let scheduler = Scheduler::start(&cluster, "first");
    add_backlog(&cluster, "late", 60);
    all_bound(&cluster, "early", 60, 40);
    all_bound(&cluster, "late", 60, 40);
    event(&cluster, "early-0", "Scheduled");

    waits_for_a_node(&cluster);
    preempts(&cluster);
    binds_volumes(&cluster);
    scheduler.settle(&cluster);
    scheduler.stop(&cluster);

    let used = used_permissions(&cluster);
    let text = file("deploy/verbs.txt");
    let listed: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = used.difference(&listed).collect();
    assert!(missing.is_empty(), "used, and not in deploy/verbs.txt: {missing:?}");
    let unused: Vec<_> = listed.difference(&used).collect();
    println!("in deploy/verbs.txt, and not used: {unused:?}");
    let unexpected: Vec<_> =
        unused.iter().filter(|permission| !UNUSED.contains(&permission.as_str())).collect();
    assert!(unexpected.is_empty(), "in deploy/verbs.txt, and not used: {unexpected:?}");
}

/// A pod without a node gets a condition and an event, and is bound when a node arrives.
fn waits_for_a_node(cluster: &Cluster) {
    cluster.create(PODS, &pod("waiting", "arrives", 100));
    let reported = wait("a condition", || condition(&get_pod(cluster, "waiting")?, "PodScheduled"));
    assert_eq!(
        (&reported["status"], &reported["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    let failed = event(cluster, "waiting", "FailedScheduling");
    assert_eq!(failed["note"], reported["message"]);
    assert_eq!((&failed["type"], &failed["action"]), (&json!("Warning"), &json!("Scheduling")));
    add_node(cluster, "arrived", "arrives", 1_000);
    assert_eq!(bound(cluster, "waiting"), "arrived");
    let pod = get_pod(cluster, "waiting").expect("a pod");
    assert_eq!(condition(&pod, "PodScheduled").expect("a condition")["status"], "True");
    event(cluster, "waiting", "Scheduled");
}

/// A pod of higher priority evicts another one, whose kubelet is this test.
fn preempts(cluster: &Cluster) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 1000});
    cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    add_node(cluster, "small", "preempts", 1_000);
    cluster.create(PODS, &pod("victim", "preempts", 900));
    assert_eq!(bound(cluster, "victim"), "small");
    let mut high = pod("high", "preempts", 900);
    high["spec"]["priorityClassName"] = json!("high");
    cluster.create(PODS, &high);
    let victim = wait("a deletion", || {
        let victim = get_pod(cluster, "victim")?;
        (!victim["metadata"]["deletionTimestamp"].is_null()).then_some(victim)
    });
    let target = condition(&victim, "DisruptionTarget").expect("a condition");
    assert_eq!(
        (&target["status"], &target["reason"]),
        (&json!("True"), &json!("PreemptionByScheduler"))
    );
    assert_eq!(victim["metadata"]["deletionGracePeriodSeconds"], 30);
    event(cluster, "victim", "Preempted");
    let nominated = wait("a nomination", || {
        let pod = get_pod(cluster, "high")?;
        pod["status"]["nominatedNodeName"].as_str().map(str::to_owned)
    });
    assert_eq!(
        (nominated.as_str(), node_of(&get_pod(cluster, "high").expect("a pod"))),
        ("small", None)
    );
    let now = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid(&victim)}});
    let (code, body) = cluster.send(Method::DELETE, &format!("{PODS}/victim"), &now);
    assert_eq!(code, 200, "{body}");
    assert_eq!(bound(cluster, "high"), "small");
    assert!(get_pod(cluster, "high").expect("a pod")["status"]["nominatedNodeName"].is_null());
}

/// A claim gets a volume that exists, and another one a volume that is provisioned for its node.
fn binds_volumes(cluster: &Cluster) {
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let volumes = "/api/v1/persistentvolumes";
    add_node(cluster, "stores", "volumes", 1_000);
    for (class, provisioner) in
        [("present", "kubernetes.io/no-provisioner"), ("provisioned", "csi.example.com")]
    {
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"});
        cluster.create("/apis/storage.k8s.io/v1/storageclasses", &object);
    }
    // A driver without topology keys and without a limit, which the API server shows as null or not at all.
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "stores"},
        "spec": {"drivers": [{"name": "csi.example.com", "nodeID": "stores"}]}});
    cluster.create("/apis/storage.k8s.io/v1/csinodes", &csi_node);
    let volume = |name: &str, class: &str, claim: Value| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/tmp/volume"}, "claimRef": claim}})
    };
    cluster.create(volumes, &volume("pv-present", "present", Value::Null));
    let available = json!({"status": {"phase": "Available"}});
    cluster.send(Method::PATCH, &format!("{volumes}/pv-present/status"), &available);
    for class in ["present", "provisioned"] {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": class},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}}});
        cluster.create(claims, &claim);
        let mut pod = pod(&format!("with-{class}"), "volumes", 100);
        pod["spec"]["volumes"] =
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": class}}]);
        cluster.create(PODS, &pod);
        let pv = format!("pv-{class}");
        if class == "present" {
            let reserved = wait("a reserved volume", || {
                let (_, volume) = cluster.get(&format!("{volumes}/{pv}"));
                volume["spec"]["claimRef"]["name"].as_str().map(str::to_owned)
            });
            assert_eq!(reserved, class);
        } else {
            let claim = wait("a selected node", || {
                let (_, claim) = cluster.get(&format!("{claims}/{class}"));
                let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
                (node == "stores").then_some(claim)
            });
            let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                "name": class, "uid": uid(&claim)});
            cluster.create(volumes, &volume(&pv, class, reference));
        }
        // The controller's part.
        let change = |path: &str, change: Value| {
            let (code, body) = cluster.send(Method::PATCH, path, &change);
            assert_eq!(code, 200, "{body}");
        };
        let phase = json!({"status": {"phase": "Bound"}});
        change(&format!("{volumes}/{pv}/status"), phase.clone());
        let completed = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let named = json!({"metadata": {"annotations": completed}, "spec": {"volumeName": pv}});
        change(&format!("{claims}/{class}"), named);
        change(&format!("{claims}/{class}/status"), phase);
        assert_eq!(bound(cluster, &format!("with-{class}")), "stores");
    }
}

#[test]
fn a_backlog_survives_a_restart_of_the_server_and_another_scheduler() {
    const COUNT: u64 = 150;
    let Some(mut cluster) = prepared() else { return };
    for n in 0..5 {
        add_node(&cluster, &format!("n{n}"), "backlog", 6_500);
    }
    let first = Scheduler::start(&cluster, "first");
    add_backlog(&cluster, "a", COUNT);
    wait("a part of the backlog", || {
        let (_, placed) = backlog(&cluster, "a")?;
        (placed > 10).then_some(())
    });
    cluster.kill();
    // Long enough for requests to fail.
    std::thread::sleep(Duration::from_millis(500));
    cluster.revive();
    // On a busy machine, the Lease may have been lost meanwhile.
    let leader = match first.fence.may_write() {
        true => first,
        false => {
            first.stop(&cluster);
            Scheduler::start(&cluster, "first-again")
        }
    };
    add_backlog(&cluster, "b", COUNT / 2);
    wait("a part of the second backlog", || {
        let (_, placed) = backlog(&cluster, "b")?;
        (placed > 0).then_some(())
    });
    // The Lease is not released, so it has to expire.
    leader.stop(&cluster);
    let second = Scheduler::start(&cluster, "second");
    all_bound(&cluster, "a", COUNT as usize, 65);
    all_bound(&cluster, "b", COUNT as usize / 2, 65);
    second.settle(&cluster);
    let (_, lease) =
        cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/portolan");
    assert_eq!(lease["spec"]["holderIdentity"], "second");
    second.stop(&cluster);
}
