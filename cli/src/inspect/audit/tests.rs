//! Clusters whose pods were placed by the scheduler have no findings, and each corruption has exactly its own.

use portolan_dra::plugin::DryRunBackend;
use std::collections::BTreeSet;
use std::sync::Arc;

use portolan::cache::{Config, Engine};
use portolan::{AlgorithmConfig, Framework, WhatIf};
use portolan_testkit::random::Random;

use super::finding::Kind;
use super::*;
use crate::policy::{ConfigFile, Policies};

fn examined(objects: &[Value]) -> Audit {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let objects = portolan_k8s::read(list.to_string().as_bytes()).expect("a valid list");
    let policies: Policies = ConfigFile::default()
        .source()
        .policies(&Handle::default(), Arc::new(DryRunBackend))
        .expect("the default profile");
    let godel = cluster::Godel::default();
    examine(Input::of(objects), policies, &godel, None).expect("a valid cluster")
}

fn object(api: &str, kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    merge(&mut object, more);
    object
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

fn node(at: usize) -> Value {
    let (name, zone) = (format!("n{at}"), ["a", "b", "c"][at % 3]);
    let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
    let amounts = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    object(
        "v1",
        "Node",
        &name,
        &json!({"metadata": {"labels": labels}, "status": {"allocatable": amounts}}),
    )
}

/// The rules of the apps: the spec of their pods, which have a label `app`.
fn apps() -> Vec<(&'static str, usize, Value)> {
    let term = |app: &str, key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let mut spread = term("spread", zone);
    merge(&mut spread, &json!({"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    let disk = json!({"name": "d", "persistentVolumeClaim": {"claimName": "c"}});
    vec![
        ("plain", 4, json!({})),
        ("spread", 4, json!({"topologySpreadConstraints": [spread]})),
        ("apart", 3, json!({"affinity": {"podAntiAffinity": required(term("apart", host))}})),
        ("near", 3, json!({"affinity": {"podAffinity": required(term("near", zone))}})),
        (
            "port",
            2,
            json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        ),
        ("chosen", 2, json!({"nodeSelector": {zone: "a"}})),
        ("disk", 1, json!({"volumes": [disk]})),
    ]
}

/// Objects other than nodes and pods.
fn others() -> Vec<Value> {
    let in_zone = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}});
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "fast", "claimRef": {"namespace": "default", "name": "c"}, "nodeAffinity": in_zone}});
    vec![
        object("storage.k8s.io/v1", "StorageClass", "fast", &json!({"provisioner": "p"})),
        object("scheduling.k8s.io/v1", "PriorityClass", "normal", &json!({"value": 5})),
        object("scheduling.k8s.io/v1", "PriorityClass", "other", &json!({"value": 6})),
        object("v1", "PersistentVolume", "v", &volume),
        claim("c", "v", "fast"),
    ]
}

fn claim(name: &str, volume: &str, class: &str) -> Value {
    let mut claim = json!({"metadata": {"namespace": "default"}, "spec": {"accessModes": ["ReadWriteOncePod"],
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class}});
    if !volume.is_empty() {
        let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound"}});
        merge(&mut claim, &bound);
    }
    object("v1", "PersistentVolumeClaim", name, &claim)
}

fn pod(app: &str, at: usize, spec: &Value) -> Value {
    let name = format!("{app}-{at}");
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true});
    let requests = json!({"requests": {"cpu": "100m"}});
    let mut pod = object(
        "v1",
        "Pod",
        &name,
        &json!({
            "metadata": {"namespace": "default", "uid": name, "labels": {"app": app}, "ownerReferences": [owner],
                "creationTimestamp": "2025-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "priority": 5, "priorityClassName": "normal"},
        }),
    );
    merge(&mut pod["spec"], spec);
    pod["spec"]["containers"][0]["resources"] = requests;
    pod
}

/// A cluster with pods in a random order, placed by the scheduler.
fn scheduled(random: &mut Random) -> Vec<Value> {
    let mut objects = others();
    objects.extend((0..6 + random.index(6)).map(node));
    let mut pods = Vec::new();
    for (app, most, spec) in apps() {
        pods.extend((0..most).map(|at| pod(app, at, &spec)));
        let selector = json!({"matchLabels": {"app": app}});
        let set = json!({"metadata": {"namespace": "default", "uid": app}, "spec": {"replicas": most,
            "selector": selector, "template": {"metadata": {"labels": {"app": app}}}}});
        objects.push(object("apps/v1", "ReplicaSet", app, &set));
        let budget = json!({"metadata": {"namespace": "default"}, "spec": {"maxUnavailable": 1, "selector": selector}});
        objects.push(object("policy/v1", "PodDisruptionBudget", app, &budget));
    }
    for at in (1..pods.len()).rev() {
        pods.swap(at, random.index(at + 1));
    }
    let items = [&objects[..], &pods[..]].concat();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let read = portolan_k8s::read(list.to_string().as_bytes()).expect("a valid list");
    let (mut writer, reader) = Engine::inline(Config::default());
    let loaded = writer.load(read.objects, read.nodes, Vec::<portolan::model::Pod>::new());
    assert!(loaded.rejected.is_empty());
    writer.publish();
    let framework = Arc::new(Framework::default_profile());
    let config = AlgorithmConfig { seed: random.next_u64(), ..AlgorithmConfig::default() };
    let mut what_if = WhatIf::new(&reader.snapshot(), framework, config);
    for (object, pod) in pods.iter_mut().zip(&read.pods) {
        let decision = what_if.schedule(pod).expect("a node");
        object["spec"]["nodeName"] = json!(*decision.node);
    }
    objects.extend(pods);
    objects
}

fn at<'o>(objects: &'o mut [Value], kind: &str, name: &str) -> &'o mut Value {
    let is_it = |object: &&mut Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter_mut().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn node_of(objects: &mut [Value], pod: &str) -> String {
    at(objects, "Pod", pod)["spec"]["nodeName"].as_str().expect("a placed pod").to_owned()
}

/// Moves a pod to a node.
fn move_to(objects: &mut [Value], pod: &str, node: &str) {
    at(objects, "Pod", pod)["spec"]["nodeName"] = json!(node);
}

/// A node in another zone than the pod's.
fn elsewhere(objects: &mut [Value], pod: &str) -> String {
    let at: usize = node_of(objects, pod)[1..].parse().expect("a number");
    format!("n{}", (at + 1) % 3)
}

fn taint(objects: &mut [Value], effect: &str) {
    let node = node_of(objects, "plain-0");
    at(objects, "Node", &node)["spec"]["taints"] =
        json!([{"key": "k", "value": "v", "effect": effect}]);
}

/// A pod that waits, with this change.
fn waiting(objects: &mut Vec<Value>, change: &Value) {
    let mut pod = pod("plain", 9, &json!({}));
    merge(&mut pod, change);
    objects.push(pod);
}

fn budget(objects: &mut Vec<Value>, app: &str) {
    let selector = json!({"matchLabels": {"app": app}});
    let budget = json!({"metadata": {"namespace": "default"}, "spec": {"maxUnavailable": 1, "selector": selector}});
    objects.push(object("policy/v1", "PodDisruptionBudget", "more", &budget));
}

type Corruption = (Kind, fn(&mut Vec<Value>));

const OF_PODS: [Corruption; 14] = [
    (Kind::MissingNode, |all| move_to(all, "plain-0", "gone")),
    (Kind::HostPort, |all| {
        let node = node_of(all, "port-0");
        move_to(all, "port-1", &node);
    }),
    (Kind::NodeAffinity, |all| move_to(all, "chosen-0", "n1")),
    (Kind::PodAntiAffinity, |all| {
        let node = node_of(all, "apart-0");
        move_to(all, "apart-1", &node);
    }),
    (Kind::PodAffinity, |all| {
        let node = elsewhere(all, "near-0");
        move_to(all, "near-0", &node);
    }),
    (Kind::TopologySpread, |all| {
        let node = node_of(all, "spread-0");
        (1..4).for_each(|at| move_to(all, &format!("spread-{at}"), &node));
    }),
    (Kind::NoExecuteTaint, |all| taint(all, "NoExecute")),
    (Kind::NoScheduleTaint, |all| taint(all, "NoSchedule")),
    (Kind::UnreachableVolume, |all| move_to(all, "disk-0", "n1")),
    (Kind::SharedClaim, |all| {
        let mut copy = at(all, "Pod", "disk-0").clone();
        merge(&mut copy, &json!({"metadata": {"name": "disk-9", "uid": "disk-9"}}));
        all.push(copy);
    }),
    (Kind::SharedDisk, |all| {
        let node = node_of(all, "plain-0");
        for pod in ["plain-0", "plain-1"] {
            let disk = json!([{"name": "d", "gcePersistentDisk": {"pdName": "p"}}]);
            merge(at(all, "Pod", pod), &json!({"spec": {"volumes": disk}}));
            move_to(all, pod, &node);
        }
    }),
    (Kind::Terminating, |all| {
        at(all, "Pod", "plain-0")["metadata"]["deletionTimestamp"] = json!("2024-12-31T23:50:00Z");
    }),
    (Kind::NominatedNode, |all| waiting(all, &json!({"status": {"nominatedNodeName": "gone"}}))),
    (Kind::NoProfile, |all| waiting(all, &json!({"spec": {"schedulerName": "other"}}))),
];

const OF_OTHERS: [Corruption; 14] = [
    (Kind::Duplicate, |all| all.push(node(0))),
    (Kind::Duplicate, |all| waiting(all, &json!({"metadata": {"uid": "plain-0"}}))),
    (Kind::Overcommitted, |all| {
        let node = node_of(all, "plain-0");
        at(all, "Node", &node)["status"]["allocatable"]["cpu"] = json!("50m");
    }),
    (Kind::NoAllocatable, |all| all.push(object("v1", "Node", "new", &json!({})))),
    (Kind::DeletedNode, |all| {
        let node = node_of(all, "plain-0");
        at(all, "Node", &node)["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    }),
    (Kind::MissingOwner, |all| {
        all.retain(|it| it["kind"] != "ReplicaSet" || it["metadata"]["name"] != "plain")
    }),
    (Kind::MissingClaim, |all| {
        let disk = &mut at(all, "Pod", "disk-0")["spec"]["volumes"][0];
        disk["persistentVolumeClaim"]["claimName"] = json!("none");
    }),
    (Kind::MissingVolume, |all| {
        at(all, "PersistentVolume", "v")["metadata"]["name"] = json!("w");
    }),
    (Kind::SharedVolume, |all| all.push(claim("d", "v", "fast"))),
    (Kind::MissingStorageClass, |all| all.push(claim("d", "", "none"))),
    (Kind::TwoBudgets, |all| budget(all, "plain")),
    (Kind::EmptyBudget, |all| budget(all, "none")),
    (Kind::MissingPriorityClass, |all| {
        at(all, "PriorityClass", "normal")["metadata"]["name"] = json!("renamed");
    }),
    (Kind::MissingRuntimeClass, |all| {
        at(all, "Pod", "plain-0")["spec"]["runtimeClassName"] = json!("none");
    }),
];

#[test]
fn each_corruption_of_a_scheduled_cluster_has_exactly_its_finding() {
    for seed in 0..6 {
        let cluster = scheduled(&mut Random::new(seed));
        let audit = examined(&cluster);
        assert!(audit.findings.sorted().is_empty(), "seed {seed}: {}", table(&audit));
        for (at, (kind, corrupt)) in OF_PODS.iter().chain(&OF_OTHERS).enumerate() {
            let mut corrupted = cluster.clone();
            corrupt(&mut corrupted);
            let audit = examined(&corrupted);
            let found: BTreeSet<Kind> = audit.findings.sorted().iter().map(|it| it.kind).collect();
            assert_eq!(found, BTreeSet::from([*kind]), "seed {seed}, {at}: {}", table(&audit));
        }
    }
}

#[test]
fn pods_of_a_controller_are_one_finding() {
    let mut cluster = scheduled(&mut Random::new(1));
    budget(&mut cluster, "near");
    let audit = examined(&cluster);
    let findings = audit.findings.sorted();
    let [finding] = findings.as_slice() else { panic!("{}", table(&audit)) };
    assert_eq!(finding.object(), "3 pods of ReplicaSet default/near");
    assert_eq!(summary(&audit), format!("1 error ({} nodes, 19 pods)", audit.loaded.cluster.len()));
}

#[test]
fn the_page_lists_each_kind_with_its_severity() {
    let page = include_str!("../../../../docs/cli.md");
    for kind in Kind::ALL {
        let (kind, severity) = (kind.as_str(), kind.severity().as_str());
        let row = page.lines().find(|line| line.starts_with(&format!("| {severity} |")));
        let row = row.unwrap_or_else(|| panic!("docs/cli.md has no row for {severity}"));
        assert!(row.contains(&format!("`{kind}`")), "docs/cli.md lacks {kind} in {row}");
    }
}
