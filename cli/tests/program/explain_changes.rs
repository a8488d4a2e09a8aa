//! The changes that `explain` proposes: each makes the pod fit, on as many nodes as it says.

use crate::common::{Run, file, portolan};
use serde_json::{Value, json};

fn node(name: &str, cpu: &str, more: Value) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "allocatable": { "cpu": cpu, "memory": "16Gi", "pods": "110" } },
    });
    merge(&mut node, more);
    node
}

fn pod(name: &str, cpu: &str, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
    });
    merge(&mut pod, more);
    pod
}

fn on(node: &str, owner: &str) -> Value {
    let owners = match owner {
        "" => json!([]),
        kind => {
            json!([{ "apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": true }])
        }
    };
    json!({ "metadata": { "ownerReferences": owners }, "spec": { "nodeName": node } })
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn tainted(key: &str) -> Value {
    json!({ "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } })
}

fn run(test: &str, items: &[Value], more: &[&str]) -> Run {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let cluster = file(&format!("changes-{test}"), "cluster.json", list.to_string().as_bytes());
    portolan(&[&["explain", "--cluster", &cluster, "--pod", "d/new"], more].concat())
}

fn explain(test: &str, items: &[Value]) -> Value {
    let run = run(test, items, &["--output", "json", "--time-limit", "60"]);
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).expect("one JSON object")
}

/// What each change says, and on how many nodes it helps.
fn changes(found: &Value) -> Vec<(String, u64)> {
    let all = found["changes"].as_array().expect("changes").iter();
    all.map(|it| (it["what"].as_str().unwrap().to_owned(), it["nodes"].as_u64().unwrap())).collect()
}

fn named(changes: &[(&str, u64)]) -> Vec<(String, u64)> {
    changes.iter().map(|(what, nodes)| ((*what).to_owned(), *nodes)).collect()
}

#[test]
fn a_node_counts_for_every_plugin_that_rejects_it() {
    let found = explain(
        "all",
        &[
            node("a", "1", tainted("gpu")),
            node("b", "1", json!({})),
            node("c", "3", tainted("gpu")),
            pod("new", "4", json!({})),
        ],
    );
    let groups = found["groups"].as_array().unwrap();
    let of = |plugin: &str| groups.iter().find(|it| it["plugin"] == plugin).unwrap();
    assert_eq!(
        (&of("TaintToleration")["nodes"], &of("TaintToleration")["alone"]),
        (&json!(2), &json!(0))
    );
    let fit = of("NodeResourcesFit");
    assert_eq!((&fit["nodes"], &fit["alone"]), (&json!(3), &json!(1)));
    let short = json!({ "resource": "cpu", "least": 1000, "median": 3000, "most": 3000 });
    assert_eq!(fit["shortfall"], short);
    assert_eq!(found["nodes"]["a"]["rejections"].as_array().unwrap().len(), 2);
    assert_eq!(found["version"], 1);
}

#[test]
fn two_changes_are_proposed_together_if_none_helps_alone() {
    let items = [
        node("a", "3", tainted("gpu")),
        node("b", "1", tainted("gpu")),
        pod("new", "4", json!({})),
    ];
    let found = explain("pair", &items);
    // The reduction that makes the pod fit on half of the nodes, which is one node.
    let pair = ("tolerate gpu:NoSchedule; and lower the cpu request from 4 to 3", 1);
    assert_eq!(changes(&found), named(&[pair]));
    let kinds: Vec<&Value> =
        found["changes"][0]["steps"].as_array().unwrap().iter().map(|step| &step["kind"]).collect();
    assert_eq!(kinds, ["toleration", "request"]);
    let table = run("pair", &items, &["--time-limit", "60"]).out;
    let title = "No single change makes the pod fit, but two together would:\n  - tolerate";
    assert!(table.contains(title), "{table}");
    // The second name is an earlier one.
    for option in ["--time-limit", "--budget"] {
        let hurried = run("pair", &items, &[option, "0"]).out;
        let says = "not all pairs were tried within --time-limit";
        assert!(hurried.contains(says), "{hurried}");
    }
    let three = [
        node("a", "3", tainted("gpu")),
        pod(
            "new",
            "4",
            json!({
                "spec": { "nodeSelector": { "zone": "z" } },
            }),
        ),
    ];
    let none = run("three", &three, &["--time-limit", "60"]).out;
    assert!(none.contains("nor do two together"), "{none}");
}

#[test]
fn evictions_that_were_not_tried_in_time_are_mentioned() {
    let items = [
        node("a", "4", json!({})),
        pod("old", "3", on("a", "ReplicaSet")),
        pod("new", "2", json!({})),
    ];
    let lower = ("lower the cpu request from 2 to 1", 1);
    let says = "Not all evictions and pairs of changes were tried within --time-limit.";
    let hurried =
        |output: &str| run("late", &items, &["--time-limit", "0", "--output", output]).out;
    let found: Value = serde_json::from_str(&hurried("json")).expect("one JSON object");
    assert_eq!((changes(&found), &found["changes_complete"]), (named(&[lower]), &json!(false)));
    assert!(hurried("table").contains(says), "{}", hurried("table"));
    let found = explain("late", &items);
    assert_eq!((changes(&found).len(), &found["changes_complete"]), (2, &json!(true)), "{found}");
    assert!(!run("late", &items, &["--time-limit", "60"]).out.contains(says));
}

#[test]
fn the_smallest_change_comes_first() {
    let small = |name: &str| node(name, "2", json!({}));
    let found = explain(
        "group",
        &[
            node("t", "8", tainted("gpu")),
            small("s1"),
            small("s2"),
            small("s3"),
            node("s4", "3", json!({})),
            pod("new", "4", json!({})),
        ],
    );
    let expected = [
        ("tolerate gpu:NoSchedule", 1),
        ("lower the cpu request from 4 to 3", 1),
        ("lower the cpu request from 4 to 2", 4),
    ];
    assert_eq!(changes(&found), named(&expected));
    assert_eq!(found["changes"][2]["examples"], json!(["s1", "s2", "s3", "s4"]));
}

#[test]
fn cordoned_nodes_are_uncordoned_and_broken_ones_repaired() {
    let cordoned = json!({ "spec": { "unschedulable": true, "taints": [
        { "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" },
    ] } });
    let broken = tainted("node.kubernetes.io/disk-pressure");
    let items =
        [node("a", "8", cordoned.clone()), node("b", "8", broken), pod("new", "4", json!({}))];
    let mut all = changes(&explain("cordon", &items));
    all.sort();
    let each = [
        ("resolve the cause of the taint node.kubernetes.io/disk-pressure on node b", 1),
        ("uncordon node a", 1),
    ];
    assert_eq!(all, named(&each));
    let two =
        [node("a", "8", cordoned.clone()), node("b", "8", cordoned), pod("new", "4", json!({}))];
    // The reader uncordons one node, after which the pod fits on one.
    let found = explain("cordon-two", &two);
    assert_eq!(changes(&found), named(&[("uncordon node a", 1)]));
    assert_eq!(found["changes"][0]["other_nodes"], json!(["b"]));
}

#[test]
fn each_constraint_of_the_pod_is_tried() {
    let spec = |spec: Value| pod("new", "1", json!({ "spec": spec }));
    let labels = json!({ "matchLabels": { "app": "web" } });
    let web = pod("web", "1", on("a", "ReplicaSet"));
    let term = json!([{ "labelSelector": labels, "topologyKey": "kubernetes.io/hostname" }]);
    let required = |key: &str| json!({ "affinity": { key: { "requiredDuringSchedulingIgnoredDuringExecution": term } } });
    let anti = "remove the required pod anti-affinity to pods with app=web in the same kubernetes.io/hostname";
    let spread = json!({ "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": labels,
    }] });
    let port = json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
    let expression = |key: &str| json!({ "key": key, "operator": "In", "values": ["x", "y"] });
    let node_affinity = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [
            expression("disk"), { "key": "kubernetes.io/hostname", "operator": "Exists" },
        ] }],
    } } } });
    let cases = [
        (
            "anti",
            spec(required("podAntiAffinity")),
            web.clone(),
            &[(anti, 1), ("evict d/web from node a", 1)][..],
        ),
        (
            "affinity",
            spec(required("podAffinity")),
            pod("other", "1", on("a", "ReplicaSet")),
            &[(
                "remove the required pod affinity to pods with app=web in the same kubernetes.io/hostname",
                1,
            )],
        ),
        (
            "spread",
            spec(spread),
            web.clone(),
            &[(
                "set whenUnsatisfiable: ScheduleAnyway in the topology spread constraint for zone",
                1,
            )],
        ),
        (
            "port",
            spec(port.clone()),
            pod(
                "web",
                "1",
                json!({ "metadata": on("a", "ReplicaSet")["metadata"], "spec": {
                "nodeName": "a", "containers": port["containers"],
            } }),
            ),
            &[("use another host port than 80", 1), ("evict d/web from node a", 1)],
        ),
        (
            "expression",
            spec(node_affinity),
            web,
            &[
                ("label node a disk=x", 1),
                ("remove disk in (x, y) from the required node affinity", 1),
            ],
        ),
    ];
    for (test, new, other, expected) in cases {
        let found = explain(test, &[node("a", "8", json!({})), new, other]);
        assert_eq!(changes(&found), named(expected), "{test}: {found:#}");
    }
}

#[test]
fn what_speaks_against_an_eviction_is_said() {
    let budget = |status: Value| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "kept", "namespace": "d" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
            "status": status,
        })
    };
    let notes = |test: &str, items: &[Value]| {
        let found = explain(test, items);
        let change = found["changes"].as_array().unwrap().last().expect("an eviction");
        (change["what"].as_str().unwrap().to_owned(), change["notes"].clone())
    };
    let big = || pod("new", "2", json!({ "spec": { "priority": 0 } }));
    let a = || node("a", "2", json!({}));
    let owned = |name: &str| pod(name, "2", on("a", "ReplicaSet"));
    let blocked = "d/web: disruption budget kept allows no eviction now";
    let evict = "evict d/web from node a".to_owned();
    for (test, status, says) in [
        ("no-status", Value::Null, json!([blocked])),
        ("none-allowed", json!({ "disruptionsAllowed": 0 }), json!([blocked])),
        ("one-allowed", json!({ "disruptionsAllowed": 1 }), json!([])),
    ] {
        let mut budget = budget(status.clone());
        if status.is_null() {
            budget.as_object_mut().unwrap().remove("status");
        }
        assert_eq!(
            notes(test, &[a(), owned("web"), big(), budget]),
            (evict.clone(), says),
            "{test}"
        );
    }
    // Of two pods one is ready, and one must be.
    let mut unready = pod("other", "2", on("b", "ReplicaSet"));
    unready["metadata"]["labels"]["app"] = json!("web");
    unready["status"] =
        json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] });
    let mut no_status = budget(Value::Null);
    no_status.as_object_mut().unwrap().remove("status");
    let items = [a(), node("b", "2", json!({})), owned("web"), unready, big(), no_status];
    let says = notes("unready", &items).1.to_string();
    assert!(says.contains("disruption budget kept allows no eviction now"), "{says}");
    // The scale of a job is not known, so a percentage or maxUnavailable allows nothing.
    let mut of_job = budget(Value::Null);
    of_job.as_object_mut().unwrap().remove("status");
    of_job["spec"] =
        json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } });
    let job = [a(), pod("web", "2", on("a", "Job")), big(), of_job];
    assert_eq!(notes("job", &job), (evict.clone(), json!([blocked])));
    let bare = [a(), pod("web", "2", on("a", "")), big()];
    let says = json!(["d/web has no controller: nothing recreates it"]);
    assert_eq!(notes("bare", &bare), (evict.clone(), says));
    let local = json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } });
    let mut web = owned("web");
    merge(&mut web, local);
    let says = json!(["d/web has local storage, which is lost"]);
    assert_eq!(notes("local", &[a(), web.clone(), big()]), (evict, says));
    // Another node whose pods can go is preferred, even if more must go.
    let b = node("b", "2", json!({}));
    let small = |name: &str| pod(name, "1", on("b", "ReplicaSet"));
    let mut first = small("s1");
    first["spec"]["priority"] = json!(1);
    let (what, says) = notes("other", &[a(), b, web, first, small("s2"), big()]);
    assert_eq!((&*what, says), ("evict d/s1, d/s2 from node b", json!([])));
}

#[test]
fn pods_of_daemon_sets_are_not_evicted() {
    let daemon = |name: &str, cpu: &str| {
        let mut daemon = pod(name, cpu, on("a", "DaemonSet"));
        // The pod that preemption would choose first.
        daemon["spec"]["priority"] = json!(-10);
        daemon
    };
    let a = || node("a", "4", json!({}));
    let new = |cpu: &str| pod("new", cpu, json!({}));
    let items = [a(), daemon("agent", "2"), pod("web", "2", on("a", "ReplicaSet")), new("2")];
    let all = explain("daemon", &items);
    let last = changes(&all).pop().expect("an eviction");
    assert_eq!(last, ("evict d/web from node a".to_owned(), 1));
    let only = explain("daemon-only", &[a(), daemon("agent", "4"), new("2")]);
    let evictions = changes(&only).into_iter().filter(|(what, _)| what.contains("evict"));
    assert_eq!(evictions.count(), 0, "{only:#}");
}

#[test]
fn the_claims_behind_a_rejection_are_named() {
    let claim = |name: &str, spec: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": "d" }, "spec": spec,
        })
    };
    let volume =
        |claim: &str| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "resources": { "requests": { "storage": "1Gi" } } });
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": "slow" }, "provisioner": "example.com/disk", "volumeBindingMode": "Immediate" });
    let new = pod("new", "1", json!({ "spec": { "volumes": [volume("data"), volume("none")] } }));
    let a = node("a", "8", json!({}));
    let notes = |test: &str, items: &[Value]| -> Vec<String> {
        let found = explain(test, items);
        let notes = found["notes"].as_array().unwrap().iter().filter_map(|note| note.as_str());
        notes.filter(|note| note.starts_with("claim")).map(str::to_owned).collect()
    };
    let data = claim("data", spec.clone());
    assert_eq!(
        notes("claims", &[a.clone(), data, class.clone(), new]),
        [
            "claim d/data is not bound yet: storage class slow binds claims before pods are scheduled",
            "claim d/none does not exist",
        ]
    );
    let mut lost = claim("data", spec.clone());
    lost["spec"]["volumeName"] = json!("gone");
    lost["status"] = json!({ "phase": "Lost" });
    let new = pod("new", "1", json!({ "spec": { "volumes": [volume("data")] } }));
    assert_eq!(
        notes("claims-lost", &[a.clone(), lost, class.clone(), new]),
        ["claim d/data is lost: its volume gone no longer exists"]
    );
    let mut bound = claim("data", spec);
    bound["spec"]["volumeName"] = json!("pv");
    bound["metadata"]["annotations"] = json!({ "pv.kubernetes.io/bind-completed": "yes" });
    let pv = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
        "csi": { "driver": "example.com/disk", "volumeHandle": "h" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "zone", "operator": "In", "values": ["z2"] },
        ] }] } },
    } });
    let new = pod("new", "1", json!({ "spec": { "volumes": [volume("data")] } }));
    assert_eq!(
        notes("claims-bound", &[a, bound, class, pv, new]),
        ["claim d/data is bound to volume pv, only for nodes with zone in (z2)"]
    );
}

#[test]
fn similar_names_are_offered() {
    let items = [node("worker-1", "8", json!({})), pod("new", "1", json!({}))];
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let cluster = file("changes-names", "cluster.json", list.to_string().as_bytes());
    for (pod, node, says) in [
        ("d/nwe", "worker-1", "did you mean d/new?"),
        ("d/new", "worker-2", "did you mean worker-1?"),
        ("elsewhere/other", "worker-1", "pass NAMESPACE/NAME, KIND/NAME or a file"),
        ("new", "worker-1", "did you mean d/new?"),
    ] {
        let run = portolan(&["explain", "-f", &cluster, "--pod", pod, "--node", node]);
        assert_eq!(run.code, 2);
        assert!(run.err.contains(says), "{}", run.err);
    }
    for pod in
        [&["d/new"][..], &["pod/new", "-n", "d"], &["new", "--namespace", "d"], &["po/d/new"]]
    {
        let run = portolan(&[&["explain", "-f", &cluster, "--pod"], pod].concat());
        assert_eq!(run.code, 0, "{}", run.err);
    }
}

#[test]
fn a_pair_is_proposed_once() {
    let new = pod("new", "1", json!({ "spec": { "nodeSelector": { "zone": "z" } } }));
    let found = explain("pair-once", &[node("a", "4", tainted("gpu")), new]);
    let expected = [
        ("tolerate gpu:NoSchedule; and label node a zone=z", 1),
        ("tolerate gpu:NoSchedule; and remove zone=z from the nodeSelector", 1),
    ];
    assert_eq!(changes(&found), named(&expected));
}

#[test]
fn evictions_come_last() {
    let web = |name: &str, on_node: &str| pod(name, "3", on(on_node, "ReplicaSet"));
    let found = explain(
        "evictions-last",
        &[
            node("a", "4", json!({})),
            node("b", "4", json!({})),
            node("t", "4", tainted("gpu")),
            web("w1", "a"),
            web("w2", "b"),
            pod("new", "4", json!({})),
        ],
    );
    let all = changes(&found);
    let evict = all.last().expect("an eviction");
    assert!(evict.0.starts_with("evict") && evict.1 == 1, "{all:?}");
    assert!(all.contains(&("tolerate gpu:NoSchedule".to_owned(), 1)), "{all:?}");
}

#[test]
fn room_for_a_nominated_pod_is_not_freed_by_an_eviction() {
    let nominated = json!({ "spec": { "priority": 10 }, "status": { "nominatedNodeName": "a" } });
    let web = pod("web", "2", on("a", "ReplicaSet"));
    let items = |nominated: Value| {
        let new = pod("new", "2", json!({ "spec": { "priority": 0 } }));
        [node("a", "2", json!({})), web.clone(), pod("first", "2", nominated), new]
    };
    let evictions =
        |found: &Value| changes(found).iter().filter(|(what, _)| what.starts_with("evict")).count();
    assert_eq!(evictions(&explain("nominated", &items(nominated))), 0);
    assert_eq!(evictions(&explain("not-nominated", &items(json!({})))), 1);
}

#[test]
fn of_evictable_pods_the_least_important_go() {
    let with = |mut pod: Value, priority: i64| {
        pod["spec"]["priority"] = json!(priority);
        pod
    };
    // Preemption would evict the daemon set's pod alone.
    let found = explain(
        "important",
        &[
            node("a", "4", json!({})),
            with(pod("agent", "1500m", on("a", "DaemonSet")), -10),
            with(pod("high", "1", on("a", "ReplicaSet")), 5),
            with(pod("low", "1", on("a", "ReplicaSet")), 0),
            pod("new", "1500m", json!({})),
        ],
    );
    let last = changes(&found).pop().expect("an eviction");
    assert_eq!(last.0, "evict d/low from node a", "{found:#}");
}

#[test]
fn only_what_rejects_the_pod_is_named() {
    let both = json!({ "spec": { "taints": [
        { "key": "gpu", "effect": "NoSchedule" }, { "key": "soft", "effect": "PreferNoSchedule" },
    ] } });
    let found = explain("soft", &[node("a", "4", both), pod("new", "1", json!({}))]);
    assert_eq!(changes(&found), named(&[("tolerate gpu:NoSchedule", 1)]));
    let affinity = json!({ "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "disk", "operator": "Exists" }] },
        ] },
    } } } });
    let found = explain("affinity", &[node("a", "4", json!({})), pod("new", "1", affinity)]);
    let expected = [("label node a disk=true", 1), ("remove the required node affinity", 1)];
    assert_eq!(changes(&found), named(&expected));
}

#[test]
fn a_reduction_for_half_of_the_nodes_covers_each_resource() {
    let sized = |name: &str, cpu: &str, memory: &str| {
        let mut node = node(name, cpu, json!({}));
        node["status"]["allocatable"]["memory"] = json!(memory);
        node
    };
    let mut new = pod("new", "4", json!({}));
    new["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("4Gi");
    // Two of the three nodes: one lacks more cpu, the other more memory.
    let nodes = [sized("a", "2", "3Gi"), sized("b", "3", "1Gi"), sized("c", "100m", "100Mi"), new];
    let found = explain("half", &nodes);
    let expected = [
        ("lower the cpu request from 4 to 2 and the memory request from 4Gi to 3Gi", 1),
        ("lower the cpu request from 4 to 2 and the memory request from 4Gi to 1Gi", 2),
    ];
    assert_eq!(changes(&found), named(&expected));
}

#[test]
fn the_amounts_of_a_sentence_have_one_unit() {
    let sized = |name: &str, cpu: &str, memory: &str| {
        let mut node = node(name, cpu, json!({}));
        node["status"]["allocatable"]["memory"] = json!(memory);
        node
    };
    let mut new = pod("new", "5500m", json!({}));
    new["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("10000Mi");
    let items = [sized("a", "4", "8Gi"), sized("b", "1750m", "1Gi"), new];
    let text = run("units", &items, &[]).out;
    for line in [
        "cpu short by at least 1.5, at most 3.75, median 3.75 ",
        "memory short by at least 1808Mi, at most 8976Mi, median 8976Mi ",
        "  - lower the cpu request from 5.5 to 4 and the memory request from 10000Mi to 8192Mi (1 node)\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
