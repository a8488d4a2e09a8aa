//! `portolan what-if`: failed nodes, removed and scaled controllers, upgrades, and budgets
//! without a status.

use crate::common::{file, portolan};
use serde_json::{Value, json};

fn node(name: &str) -> Value {
    let resources = json!({ "cpu": "1", "memory": "4Gi", "pods": "10" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "pool": "a" } },
        "status": { "capacity": resources, "allocatable": resources },
    })
}

/// A pod of the controller `KIND/NAME`, or without one. It is placed unless `on` is empty.
fn pod(name: &str, on: &str, cpu: &str, owner: &str) -> Value {
    let (kind, of) = owner.split_once('/').unwrap_or_default();
    let app = if of.is_empty() { name } else { of };
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "uid": name, "labels": { "app": app } },
        "spec": { "containers": [
            { "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } }
        ] },
    });
    if !owner.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "apps/v1", "kind": kind, "name": of, "uid": of, "controller": true }
        ]);
    }
    if !on.is_empty() {
        pod["spec"]["nodeName"] = json!(on);
    }
    pod
}

fn controller(kind: &str, name: &str, replicas: u32, cpu: &str) -> Value {
    let container =
        json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } });
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": "d" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } }, "spec": { "containers": [container] },
            },
        },
    })
}

fn budget(name: &str, limit: Value) -> Value {
    let mut spec = json!({ "selector": { "matchLabels": { "app": name } } });
    spec.as_object_mut().expect("a spec").extend(limit.as_object().expect("a limit").clone());
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": "d" }, "spec": spec,
    })
}

fn cluster(name: &str, items: &[Value]) -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    file(&format!("what-if-{name}"), "cluster.json", list.to_string().as_bytes())
}

fn ask(arguments: &[&str]) -> (i32, Value) {
    let all: Vec<&str> = ["what-if", "--output", "json"].iter().chain(arguments).copied().collect();
    let run = portolan(&all);
    let answer = serde_json::from_str(&run.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.out, run.err));
    (run.code, answer)
}

fn pods(answer: &Value, key: &str) -> Vec<String> {
    let list = answer[key].as_array().expect("a list");
    let mut names: Vec<String> =
        list.iter().map(|it| it["pod"].as_str().expect("a pod").to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_failed_node_loses_bare_pods_and_its_daemon_set_pods_end() {
    let items = [
        node("n0"),
        node("n1"),
        budget("web", json!({ "minAvailable": 1 })),
        pod("web-0", "n0", "200m", "ReplicaSet/web"),
        pod("db-0", "n0", "200m", "StatefulSet/db"),
        pod("agent-n0", "n0", "100m", "DaemonSet/agent"),
        pod("bare", "n0", "100m", ""),
        pod("kube-apiserver-n0", "n0", "100m", "Node/n0"),
    ];
    let from = cluster("fail", &items);
    let (code, answer) = ask(&["--cluster", &from, "--fail-node", "n0"]);
    // The budget allows no disruption, which a failure does not ask.
    assert_eq!((code, pods(&answer, "placed")), (1, vec!["d/db-0".into(), "d/web-0".into()]));
    let lost = json!([
        { "pod": "d/bare", "from": "n0", "why": "its node has failed, no controller" }
    ]);
    assert_eq!(answer["lost"], lost);
    assert_eq!((&answer["nodes"], &answer["failed"]), (&json!(1), &json!(["n0"])));
    // The object of the stateful set's pod must be gone first.
    assert_eq!(answer["later"], json!({ "terminating_pods": 0, "failed_nodes": 1 }));
    assert_eq!(pods(&answer, "waiting"), ["d/db-0"]);
    let why = answer["waiting"][0]["why"].as_str().expect("a reason");
    assert!(why.ends_with("node.kubernetes.io/out-of-service"), "{why}");
    let run = portolan(&["what-if", "--cluster", &from, "--fail-node", "n0", "--force"]);
    let first =
        "1 pod unschedulable, 1 pod lost during the outage; after the Node is deleted 1 pod lost";
    assert_eq!((run.code, run.out.lines().next()), (1, Some(first)));
    let without_set = cluster("fail-stateless", &[&items[..4], &items[5..]].concat());
    let (code, answer) = ask(&["--cluster", &without_set, "--fail-node", "n0", "--force"]);
    assert_eq!((code, &answer["waiting"]), (0, &json!([])), "{answer}");
}

/// gc_controller.go `gcTerminating`: the objects of all pods that are being deleted go, whatever the pods tolerate.
#[test]
fn a_failed_node_that_is_out_of_service_keeps_no_objects() {
    let out_of_service = |effect: &str| {
        let mut node = node("n0");
        let key = "node.kubernetes.io/out-of-service";
        node["spec"]["taints"] = json!([{ "key": key, "value": "x", "effect": effect }]);
        node
    };
    let deleted = |mut pod: Value| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod
    };
    let tolerant = |mut pod: Value| {
        let every = json!([{ "operator": "Exists" }]);
        pod["spec"]["tolerations"] = every;
        pod
    };
    let db = || pod("db-0", "n0", "200m", "StatefulSet/db");
    let ask_about = |node0: Value, pod: Value| {
        let from = cluster("out-of-service", &[node0, node("n1"), pod]);
        let (code, answer) = ask(&["--cluster", &from, "--fail-node", "n0"]);
        (code, pods(&answer, "placed"), pods(&answer, "waiting"))
    };
    let now = (0, vec!["d/db-0".to_owned()], vec![]);
    let later = (1, vec!["d/db-0".to_owned()], vec!["d/db-0".to_owned()]);
    assert_eq!(ask_about(out_of_service("NoExecute"), db()), now);
    assert_eq!(ask_about(node("n0"), db()), later);
    // Only NoExecute evicts pods; others are deleted after the time for which they tolerate the failure.
    assert_eq!(ask_about(out_of_service("NoSchedule"), db()), now);
    assert_eq!(ask_about(out_of_service("NoExecute"), deleted(tolerant(db()))), now);
    // A pod that tolerates everything forever is not deleted before the Node is.
    let (_, _, waiting) = ask_about(out_of_service("NoExecute"), tolerant(db()));
    assert_eq!(waiting, ["d/db-0"]);
}

#[test]
fn pods_of_a_failed_node_are_replaced_in_the_order_of_their_tolerations() {
    let tolerating = |name: &str, seconds: Value| {
        let mut pod = pod(name, "n0", "600m", &format!("ReplicaSet/{name}"));
        let mut toleration = json!({
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
        });
        if !seconds.is_null() {
            toleration["tolerationSeconds"] = seconds;
        }
        pod["spec"]["tolerations"] = json!([toleration]);
        pod
    };
    // One of them fits on the other node: that which is replaced first.
    let mut large = node("n0");
    large["status"]["allocatable"]["cpu"] = json!("4");
    let slow = [tolerating("a-forever", json!(null)), tolerating("b-slow", json!(300))];
    let items = [&[large.clone(), node("n1")], &slow[..]].concat();
    let (code, answer) = ask(&["--cluster", &cluster("order", &items), "--fail-node", "n0"]);
    assert_eq!((code, pods(&answer, "placed")), (1, vec!["d/b-slow".to_owned()]), "{answer}");
    let items = [&[large, node("n1")], &slow[..], &[tolerating("c-quick", json!(5))]].concat();
    let (_, answer) = ask(&["--cluster", &cluster("order", &items), "--fail-node", "n0"]);
    assert_eq!(pods(&answer, "placed"), ["d/c-quick"], "{answer}");
}

#[test]
fn a_failure_and_a_drain_combine_with_added_nodes() {
    let items = [
        node("n0"),
        node("n1"),
        node("n2"),
        pod("a", "n0", "800m", "ReplicaSet/a"),
        pod("b", "n1", "800m", "ReplicaSet/b"),
        pod("c", "n2", "800m", "ReplicaSet/c"),
    ];
    let from = cluster("combined", &items);
    let question = ["--cluster", &from, "--fail-node", "n0", "--drain", "n1"];
    let (code, answer) = ask(&question);
    assert_eq!((code, pods(&answer, "unplaced").len()), (1, 2), "{answer}");
    let more = file("what-if-combined", "node.json", node("more").to_string().as_bytes());
    let add = format!("2x{more}");
    let (code, answer) = ask(&[&question[..], &["--add", &add]].concat());
    assert_eq!((code, pods(&answer, "placed").len()), (0, 2), "{answer}");
}

#[test]
fn a_controller_that_becomes_smaller_loses_the_pods_that_kubernetes_would_delete() {
    let mut unready = pod("web-b", "n0", "100m", "ReplicaSet/web-5d");
    unready["status"] = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
    let mut cheap = pod("web-c", "n1", "100m", "ReplicaSet/web-5d");
    cheap["metadata"]["annotations"] =
        json!({ "controller.kubernetes.io/pod-deletion-cost": "-5" });
    let mut new = pod("web-e", "n0", "100m", "ReplicaSet/web-5d");
    new["status"] = json!({ "startTime": "2026-02-01T00:00:00Z" });
    let mut old = pod("web-d", "n0", "100m", "ReplicaSet/web-5d");
    old["status"] = json!({ "startTime": "2026-01-01T00:00:00Z" });
    let mut set = controller("ReplicaSet", "web-5d", 6, "100m");
    set["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true }
    ]);
    let items = [
        node("n0"),
        node("n1"),
        controller("Deployment", "web", 6, "100m"),
        set,
        unready,
        cheap,
        old,
        new,
        pod("web-f", "n1", "5", "ReplicaSet/web-5d"),
        pod("web-a", "", "5", "ReplicaSet/web-5d"),
    ];
    let from = cluster("smaller", &items);
    // In the order of `ActivePodsWithRanks`: pending, not ready, low cost, crowded node, new.
    let order = ["d/web-a", "d/web-b", "d/web-c", "d/web-e", "d/web-d", "d/web-f"];
    for left in 0..6 {
        let scale = format!("deploy/web={left}");
        let (code, answer) = ask(&["--cluster", &from, "--scale", &scale]);
        let mut wanted = order[..6 - left].to_vec();
        wanted.sort_unstable();
        assert_eq!(
            (code, pods(&answer, "removed")),
            (0, wanted.iter().map(|it| it.to_string()).collect())
        );
        let scaled = json!([{ "controller": "Deployment/d/web", "from": 6, "to": left }]);
        assert_eq!(answer["scaled"], scaled);
        assert_eq!(answer["pending"], json!([]));
    }
}

#[test]
fn a_controller_that_becomes_larger_gets_pods_of_its_template() {
    let items = [
        node("n0"),
        controller("StatefulSet", "db", 2, "300m"),
        pod("db-0", "n0", "300m", "StatefulSet/db"),
        pod("db-1", "n0", "300m", "StatefulSet/db"),
        pod("lone-x", "n0", "50m", "ReplicaSet/lone"),
    ];
    let from = cluster("larger", &items);
    let (code, answer) = ask(&["--cluster", &from, "--scale", "sts/db=3"]);
    assert_eq!((code, pods(&answer, "placed")), (0, vec!["d/db-2".to_owned()]), "{answer}");
    let (code, answer) = ask(&["--cluster", &from, "--scale", "statefulsets.apps/db=4"]);
    assert_eq!((code, pods(&answer, "unplaced")), (1, vec!["d/db-3".to_owned()]));
    // Without its controller in the input, the pods of a set are the template.
    let (code, answer) = ask(&["--cluster", &from, "--scale", "rs/lone=2"]);
    assert_eq!((code, pods(&answer, "placed")), (0, vec!["d/lone-0".to_owned()]), "{answer}");
    // The highest ordinals go first, and make room for others.
    let (code, answer) = ask(&["--cluster", &from, "--scale", "sts/db=1", "rs/lone=8"]);
    assert_eq!((code, pods(&answer, "removed")), (0, vec!["d/db-1".to_owned()]), "{answer}");
}

#[test]
fn removed_controllers_free_their_resources_and_removed_pods_are_recreated() {
    let items = [
        node("n0"),
        node("n1"),
        controller("Deployment", "web", 1, "600m"),
        pod("web-0", "n0", "600m", "ReplicaSet/web"),
        pod("waits", "", "900m", "ReplicaSet/waits"),
        pod("big", "n1", "900m", "ReplicaSet/big"),
    ];
    let from = cluster("remove", &items);
    let (code, answer) = ask(&["--cluster", &from, "--remove", "deployment/web"]);
    assert_eq!((code, pods(&answer, "removed")), (0, vec!["d/web-0".to_owned()]));
    assert_eq!(answer["placed"], json!([{ "pod": "d/waits", "from": null, "to": "n0" }]));
    // A deployment recreates its replica set.
    let mut owned = controller("ReplicaSet", "web", 1, "600m");
    owned["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true }
    ]);
    let with_set = cluster("remove-set", &[&items[..], &[owned]].concat());
    let (_, answer) = ask(&["--cluster", &with_set, "--remove", "rs/web"]);
    assert_eq!(answer["removed"], json!([]), "{answer}");
    let (code, answer) = ask(&["--cluster", &from, "--remove", "pod/big"]);
    assert_eq!((code, pods(&answer, "removed")), (0, vec![]));
    assert_eq!(pods(&answer, "placed"), ["d/big"], "{answer}");
}

#[test]
fn unknown_names_are_refused_with_similar_ones() {
    let items = [node("worker-1"), pod("web-0", "worker-1", "1m", "ReplicaSet/web")];
    let from = cluster("names", &items);
    for (option, value, says) in [
        ("--drain", "worker-l", "node worker-l does not exist: did you mean worker-1?"),
        ("--fail-node", "Worker-1", "node Worker-1 does not exist: did you mean worker-1?"),
        ("--scale", "rs/wen=3", "--scale rs/wen: not found: did you mean web?"),
        ("--remove", "po/web0", "--remove po/web0: not found: did you mean web-0?"),
        ("--remove", "po/api", "--remove po/api: not found: check the spelling"),
        ("--remove", "widget/a", "unknown kind \"widget\": pass one of pod, deployment"),
        ("--scale", "ds/agent=3", "a DaemonSet has no number of replicas"),
        ("--scale", "rs/web", "pass KIND/NAME=N, such as deployment/web=5"),
        ("--scale", "rs/web=many", "N must be a number"),
        ("--upgrade", "pool in x", "is not a label requirement"),
        ("--upgrade", "pool=b", "no node has these labels"),
    ] {
        let run = portolan(&["what-if", "--cluster", &from, option, value]);
        assert_eq!(run.code, 2, "{option} {value}: {}", run.out);
        assert!(run.err.contains(says), "{option} {value}: {}", run.err);
    }
    let both = ["--upgrade", "all", "--max-surge", "0"];
    let run = portolan(&[&["what-if", "--cluster", &from][..], &both].concat());
    assert_eq!(run.code, 2);
    assert!(run.err.contains("are both 0"), "{}", run.err);
}

#[test]
fn a_kind_that_the_input_lacks_is_named_with_the_command_that_saves_it() {
    let web = controller("Deployment", "web", 0, "1m");
    let items = [node("n0"), pod("db-0", "n0", "1m", "StatefulSet/db"), web];
    let from = cluster("kinds", &items);
    let lacks = |option: &str, kinds: &str, resource: &str| {
        format!(
            "{option}: not found: the input has no {kinds}. Check the spelling, or save the cluster's with `kubectl \
             get {resource} -A -o yaml > FILE` and add FILE to --cluster"
        )
    };
    let other = "not found: check the spelling";
    for (option, value, says) in [
        ("--scale", "sts/cache=3", lacks("--scale sts/cache", "StatefulSets", "statefulsets")),
        ("--scale", "job/once=3", lacks("--scale job/once", "Jobs", "jobs")),
        ("--remove", "rs/cache", lacks("--remove rs/cache", "ReplicaSets", "replicasets")),
        // The input has Deployments, and a pod of a StatefulSet with a similar name.
        ("--scale", "deploy/cache=3", format!("--scale deploy/cache: {other}")),
        ("--scale", "sts/dbs=3", "--scale sts/dbs: not found: did you mean db?".to_owned()),
    ] {
        let run = portolan(&["what-if", "--cluster", &from, option, value]);
        assert_eq!((run.code, run.err), (2, format!("portolan: {says}\n")), "{option} {value}");
    }
    // The saved objects are accepted as another file.
    let without = cluster("kinds-without", &[node("n0")]);
    let saved = cluster("kinds-saved", &[controller("Deployment", "web", 0, "1m")]);
    let (code, answer) = ask(&["--cluster", &without, &saved, "--scale", "deploy/web=2"]);
    assert_eq!((code, pods(&answer, "placed").len()), (0, 2), "{answer}");
}

#[test]
fn an_object_in_several_namespaces_needs_a_namespace() {
    let mut other = pod("web-1", "n0", "1m", "ReplicaSet/web");
    other["metadata"]["namespace"] = json!("e");
    let items = [node("n0"), pod("web-0", "n0", "1m", "ReplicaSet/web"), other];
    let from = cluster("namespaces", &items);
    let run = portolan(&["what-if", "--cluster", &from, "--remove", "rs/web"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("found in the namespaces d, e: pass --namespace"), "{}", run.err);
    let (code, answer) = ask(&["--cluster", &from, "--remove", "rs/web", "-n", "e"]);
    assert_eq!((code, pods(&answer, "removed")), (0, vec!["e/web-1".to_owned()]));
}

#[test]
fn a_budget_without_a_status_allows_what_its_limit_does() {
    let web = |n: usize, on: &str| pod(&format!("web-{n}"), on, "100m", "ReplicaSet/web");
    let ask_with = |limit: Value, pods_ready: bool| {
        let mut third = web(2, "n1");
        if !pods_ready {
            third["status"] = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
        }
        let items =
            [node("n0"), node("n1"), budget("web", limit), web(0, "n0"), web(1, "n0"), third];
        ask(&["--cluster", &cluster("limits", &items), "--drain", "n0"])
    };
    // One pod at a time.
    let (code, answer) = ask_with(json!({ "minAvailable": "67%" }), true);
    assert_eq!((code, pods(&answer, "placed").len()), (1, 0), "67 % of 3 is 3: {answer}");
    let (code, answer) = ask_with(json!({ "minAvailable": "66%" }), true);
    assert_eq!((code, &answer["budget_waits"]), (0, &json!({ "n0": 1 })), "{answer}");
    assert_eq!(answer["budgets"][0]["budget"], "d/web");
    assert_eq!(
        (&answer["budgets"][0]["waits"], &answer["budgets"][0]["blocks"]),
        (&json!(1), &json!([]))
    );
    let (code, answer) = ask_with(json!({ "maxUnavailable": 2 }), true);
    assert_eq!((code, &answer["budgets"]), (0, &json!([])));
    // A pod that is not ready uses up what the budget allows.
    let (code, answer) = ask_with(json!({ "maxUnavailable": 1 }), false);
    assert_eq!((code, &answer["budgets"][0]["waits"]), (1, &json!(0)));
    assert_eq!(answer["budgets"][0]["blocks"], json!(["d/web-0", "d/web-1"]));
    let why = answer["budgets"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("it allows no disruption"), "{why}");
}

#[test]
fn budgets_follow_the_changes_of_the_question() {
    let web = |n: usize| pod(&format!("web-{n}"), "n0", "100m", "ReplicaSet/web");
    let mut kept = budget("web", json!({ "minAvailable": 2 }));
    kept["status"] = json!({ "disruptionsAllowed": 1 });
    let items = [node("n0"), node("n1"), kept, web(0), web(1), web(2)];
    let from = cluster("follow", &items);
    let (code, _) = ask(&["--cluster", &from, "--drain", "n0"]);
    assert_eq!(code, 0);
    let (code, answer) = ask(&["--cluster", &from, "--scale", "rs/web=2", "--drain", "n0"]);
    assert_eq!((code, pods(&answer, "blocked").len()), (1, 2), "{answer}");
}

#[test]
fn an_upgrade_names_its_steps_and_the_step_that_hangs() {
    let web = |n: usize, on: &str| pod(&format!("web-{n}"), on, "600m", "ReplicaSet/web");
    let nodes = [node("n0"), node("n1"), node("n2")];
    let pods_of = [web(0, "n0"), web(1, "n1"), web(2, "n2")];
    let limit = budget("web", json!({ "maxUnavailable": 1 }));
    let items = [&nodes[..], &pods_of, &[limit]].concat();
    let from = cluster("upgrade", &items);
    // With a new node in each step, every pod finds a place.
    let (code, answer) = ask(&["--cluster", &from, "--upgrade", "all"]);
    assert_eq!(code, 0, "{answer}");
    let steps = answer["upgrade"]["steps"].as_array().expect("steps");
    assert_eq!((steps.len(), &answer["upgrade"]["failed_step"]), (3, &Value::Null));
    assert_eq!((&steps[0]["nodes"], &steps[0]["surge"]), (&json!(["n0"]), &json!(1)));
    assert_eq!(
        (&answer["nodes"], steps[0]["pending"].as_array().map(Vec::len)),
        (&json!(3), Some(0))
    );
    // In place, the pod of each node waits until its node returns.
    let in_place = ["--upgrade", "pool=a", "--max-surge", "0", "--max-unavailable", "1"];
    let (code, answer) = ask(&[&["--cluster", &from][..], &in_place].concat());
    assert_eq!(
        (code, &answer["upgrade"]["steps"][0]["pending"]),
        (0, &json!(["d/web-0"])),
        "{answer}"
    );
    // Two nodes at once: the budget keeps the second pod on its node.
    let two = ["--upgrade", "all", "--max-surge", "0", "--max-unavailable", "67%"];
    let (code, answer) = ask(&[&["--cluster", &from][..], &two].concat());
    assert_eq!((code, &answer["upgrade"]["failed_step"]), (1, &json!(1)), "{answer}");
    assert_eq!(answer["budgets"][0]["blocks"], json!(["d/web-1"]));
    let why = answer["budgets"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("find no node"), "{why}");
    let run = portolan(&[&["what-if", "--cluster", &from][..], &two].concat());
    assert!(run.out.contains("the upgrade hangs in step 1, after 0 of 3 nodes"), "{}", run.out);
}

#[test]
fn daemon_sets_run_on_the_nodes_of_an_upgrade() {
    let mut set = controller("DaemonSet", "agent", 0, "300m");
    set["spec"].as_object_mut().expect("a spec").remove("replicas");
    let items = [
        node("n0"),
        set,
        pod("agent-n0", "n0", "300m", "DaemonSet/agent"),
        pod("web-0", "n0", "600m", "ReplicaSet/web"),
    ];
    let from = cluster("upgrade-daemons", &items);
    let like = file(
        "what-if-upgrade-daemons",
        "like.json",
        pod("like", "", "50m", "").to_string().as_bytes(),
    );
    let (code, answer) = ask(&["--cluster", &from, "--upgrade", "all", "--fit-more", &like]);
    assert_eq!((code, &answer["fit_more"]["count"]), (0, &json!(2)), "{answer}");
    assert_eq!(answer["placed"][0]["to"], "n0-upgraded");
}

#[test]
fn nominated_pods_keep_their_node() {
    // The node is reserved for a pod that waits until its victim has ended.
    let mut victim = pod("victim", "n0", "600m", "ReplicaSet/victim");
    victim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut preemptor = pod("preemptor", "", "900m", "ReplicaSet/preemptor");
    preemptor["spec"]["priority"] = json!(10);
    preemptor["status"] = json!({ "nominatedNodeName": "n0" });
    let more = file(
        "what-if-nominated",
        "more.json",
        pod("small", "", "300m", "ReplicaSet/small").to_string().as_bytes(),
    );
    let question =
        |items: &[Value]| ask(&["--cluster", &cluster("nominated", items), "--pods", &more]);
    let (code, answer) = question(&[node("n0"), victim.clone(), preemptor]);
    assert_eq!((code, pods(&answer, "unplaced")), (1, vec!["d/small".to_owned()]), "{answer}");
    let (code, _) = question(&[node("n0"), victim]);
    assert_eq!(code, 0);
}

#[test]
fn identical_pods_share_a_row() {
    let web = |n: usize| pod(&format!("web-{n}"), "n0", "100m", "ReplicaSet/web");
    let items = [node("n0"), node("n1"), web(0), web(1), web(2)];
    let from = cluster("rows", &items);
    let run = portolan(&["what-if", "--cluster", &from, "--drain", "n0"]);
    assert!(run.out.contains("\n  - d/web-0 and 2 more of ReplicaSet web: n0 → n1"), "{}", run.out);
    let two = [node("n0"), node("n1"), node("n2"), web(0), web(1), web(2)];
    let run = portolan(&["what-if", "--cluster", &cluster("rows-2", &two), "--drain", "n0"]);
    let rows = run.out.lines().filter(|row| row.contains("d/web-0 and 2 more"));
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() == 1 && rows[0].contains("n1 (") && rows[0].contains("n2 ("), "{}", run.out);
    let (_, answer) = ask(&["--cluster", &from, "--drain", "n0"]);
    assert_eq!((&answer["version"], pods(&answer, "placed").len()), (&json!(2), 3));
}

#[test]
fn pods_that_are_not_ready_are_evicted_if_enough_others_are_healthy() {
    let web = |n: usize, on: &str, state: Value| {
        let mut pod = pod(&format!("web-{n}"), on, "100m", "ReplicaSet/web");
        pod["status"] = state;
        pod
    };
    let ready = |is: &str| json!({ "conditions": [{ "type": "Ready", "status": is }] });
    let blocked = |limit: Value, state: Value, others: &str| {
        let others = (1..3).map(|n| web(n, "n1", ready(others)));
        let items = [node("n0"), node("n1"), budget("web", limit), web(0, "n0", state)];
        let items: Vec<Value> = items.into_iter().chain(others).collect();
        let (_, answer) = ask(&["--cluster", &cluster("unready", &items), "--drain", "n0"]);
        pods(&answer, "blocked")
    };
    let two = || json!({ "minAvailable": 2 });
    let none: Vec<String> = Vec::new();
    assert_eq!(blocked(two(), ready("False"), "True"), none);
    assert_eq!(blocked(two(), ready("True"), "True"), none);
    assert_eq!(blocked(two(), ready("False"), "False"), ["d/web-0"]);
    assert_eq!(blocked(json!({ "minAvailable": 3 }), ready("True"), "True"), ["d/web-0"]);
    let always = json!({ "minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow" });
    assert_eq!(blocked(always, ready("False"), "False"), none);
    // No budget protects a pod that has not started.
    assert_eq!(blocked(two(), json!({ "phase": "Pending" }), "False"), none);
}

#[test]
fn pods_of_several_budgets_cannot_be_evicted() {
    let mut second = budget("web", json!({ "minAvailable": 0 }));
    second["metadata"]["name"] = json!("second");
    let items = [
        node("n0"),
        node("n1"),
        budget("web", json!({ "minAvailable": 0 })),
        second,
        pod("web-0", "n0", "100m", "ReplicaSet/web"),
    ];
    let (code, answer) = ask(&["--cluster", &cluster("several", &items), "--drain", "n0"]);
    assert_eq!((code, pods(&answer, "blocked")), (1, vec!["d/web-0".to_owned()]));
    let why = answer["blocked"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("more than one PodDisruptionBudget"), "{why}");
}

#[test]
fn a_removed_daemon_set_runs_on_no_new_node() {
    let items = [node("n0"), pod("agent-n0", "n0", "600m", "DaemonSet/agent")];
    let from = cluster("remove-daemons", &items);
    let folder = "what-if-remove-daemons";
    let more = file(folder, "node.json", node("more").to_string().as_bytes());
    let like = file(folder, "like.json", pod("like", "", "500m", "").to_string().as_bytes());
    let add = format!("1x{more}");
    let question = ["--cluster", &from, "--add", &add, "--fit-more", &like];
    let (_, answer) = ask(&question);
    assert_eq!(answer["fit_more"]["count"], 0, "{answer}");
    let (code, answer) = ask(&[&question[..], &["--remove", "ds/agent"]].concat());
    assert_eq!((code, &answer["fit_more"]["count"]), (0, &json!(4)), "{answer}");
}

#[test]
fn fit_more_warns_about_unknown_fields_of_its_pod() {
    let from = cluster("fit-more-typo", &[node("n0")]);
    let mut like = pod("like", "", "500m", "");
    like["spec"]["nodeSelctor"] = json!({ "disk": "ssd" });
    let like = file("what-if-fit-more-typo", "like.json", like.to_string().as_bytes());
    let (_, answer) = ask(&["--cluster", &from, "--fit-more", &like]);
    let warnings = answer["input"]["warnings"].to_string();
    assert!(warnings.contains("spec.nodeSelctor: unknown field"), "{answer}");
    assert_eq!(answer["input"]["read"]["Pod"], 1, "{answer}");
}

#[test]
fn pods_that_are_placed_without_the_change_count_for_their_budget() {
    // Pods of a manifest: pending in the input, and placed before the drain.
    let web = |n: usize| pod(&format!("web-{n}"), "", "400m", "ReplicaSet/web");
    let items = [
        node("n0"),
        node("n1"),
        node("n2"),
        budget("web", json!({ "maxUnavailable": 1 })),
        controller("ReplicaSet", "web", 3, "400m"),
        web(0),
        web(1),
        web(2),
    ];
    let (code, answer) = ask(&["--cluster", &cluster("manifest", &items), "--drain", "n0"]);
    assert_eq!((code, pods(&answer, "blocked")), (0, vec![]), "{answer}");
    assert_eq!(pods(&answer, "placed"), ["d/web-0", "d/web-1", "d/web-2"]);
    let on_drained = answer["placed"].as_array().expect("a list").iter().any(|it| it["to"] == "n0");
    assert!(!on_drained, "{answer}");
}

#[test]
fn contradicting_options_are_refused() {
    let items = [node("n0"), node("n1"), pod("bare", "n0", "100m", "")];
    let cluster = cluster("contradict", &items);
    for (options, says) in [
        (&["--drain", "n0", "--fail-node", "n0"][..], "node n0 is in --drain and in --fail-node"),
        (
            &["--remove", "deploy/web", "--scale", "deployment/web=3"],
            "Deployment/web is in --remove",
        ),
        (&["--scale", "deploy/web=2", "deploy/web=3"], "--scale names Deployment/web twice"),
    ] {
        let run = portolan(&[&["what-if", "--cluster", &cluster], options].concat());
        assert_eq!((run.code, &*run.out), (2, ""), "{options:?}");
        assert!(run.err.contains(says), "{}", run.err);
    }
    let (code, found) = ask(&["--cluster", &cluster, "--force", "--drain", "n0", "n0"]);
    assert_eq!((code, &found["drained"]), (0, &json!(["n0"])), "{found:#}");
    let (code, found) = ask(&["--cluster", &cluster, "--force", "--fail-node", "n0", "n0"]);
    assert_eq!((code, &found["failed"]), (0, &json!(["n0"])), "{found:#}");
}

#[test]
fn created_pods_of_daemon_sets_end_with_their_node() {
    let mut set = controller("DaemonSet", "agent", 0, "100m");
    set["spec"].as_object_mut().expect("a spec").remove("replicas");
    let from = cluster("created-daemons", &[node("n0"), node("n1"), set]);
    let (code, answer) = ask(&["--cluster", &from, "--fail-node", "n0"]);
    assert_eq!((code, pods(&answer, "unplaced")), (0, Vec::<String>::new()), "{answer}");
    assert_eq!(pods(&answer, "placed"), ["d/agent-n1"]);
    let (code, answer) = ask(&["--cluster", &from, "--upgrade", "all"]);
    assert_eq!((code, pods(&answer, "unplaced")), (0, Vec::<String>::new()), "{answer}");
}

#[test]
fn nodes_are_named_and_selected_as_by_kubectl() {
    let mut other = node("n2");
    other["metadata"]["labels"]["pool"] = json!("b");
    let items = [node("n0"), node("n1"), other, pod("web-0", "n0", "200m", "ReplicaSet/web")];
    let from = cluster("kubectl-names", &items);
    for name in ["n0", "node/n0", "nodes/n0", "no/n0"] {
        let (code, answer) = ask(&["-f", &from, "--drain", name]);
        assert_eq!((code, &answer["drained"]), (0, &json!(["n0"])), "{name}");
        let (_, answer) = ask(&["-f", &from, "--fail-node", name]);
        assert_eq!(answer["failed"], json!(["n0"]), "{name}");
    }
    let (code, answer) = ask(&["-f", &from, "-l", "pool=a"]);
    assert_eq!((code, &answer["drained"]), (0, &json!(["n0", "n1"])), "{answer}");
    assert_eq!(answer["placed"][0]["to"], "n2");
    // Nodes that join are not drained, and nodes that fail cannot be.
    let like = file("what-if-names", "like.json", node("new").to_string().as_bytes());
    let add = format!("1x{like}");
    let (code, answer) = ask(&["-f", &from, "-l", "pool=a", "--add", &add, "--fail-node", "n1"]);
    assert_eq!((code, &answer["drained"]), (0, &json!(["n0"])), "{answer}");
    for (arguments, text) in [
        (&["--drain", "n0,n1"][..], "separate the nodes with spaces"),
        (&["--drain", "pod/n0"], "pass the name of a node, such as n1 or node/n1"),
        (&["-l", "pool=c"], "--selector pool=c: no node has these labels: check the selector"),
        (&["-l", "pool=a", "--drain", "n0"], "cannot be used with"),
    ] {
        let run = portolan(&[&["what-if", "-f", &from][..], arguments].concat());
        assert!(run.code == 2 && run.err.contains(text), "{text}: {}", run.err);
    }
}

#[test]
fn nodes_that_fail_are_selected_by_labels_or_zone() {
    let zoned = |name: &str, key: &str, zone: &str| {
        let mut node = node(name);
        node["metadata"]["labels"][key] = json!(zone);
        node
    };
    let (zone, legacy) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    let mut other = zoned("n2", zone, "z2");
    other["metadata"]["labels"]["pool"] = json!("b");
    let items = [zoned("n0", zone, "z1"), zoned("n1", legacy, "z1"), other];
    let from = cluster("fail-selected", &items);
    for (arguments, failed) in [
        (&["--fail-node", "pool=b"][..], &["n2"][..]),
        (&["--fail-node", "pool in (a,b),topology.kubernetes.io/zone!=z1"], &["n1", "n2"]),
        (&["--fail-node", "n0", "pool=b"], &["n0", "n2"]),
        (&["--fail-zone", "z1"], &["n0", "n1"]),
        (&["--fail-zone", "z1", "z2"], &["n0", "n1", "n2"]),
        (&["--fail-zone", "z2", "--fail-node", "n1"], &["n1", "n2"]),
    ] {
        let (code, answer) = ask(&[&["-f", &from][..], arguments].concat());
        let found = answer["failed"].as_array().expect("a list").iter();
        let mut found: Vec<&str> = found.filter_map(Value::as_str).collect();
        found.sort_unstable();
        assert_eq!((code, &found[..]), (0, failed), "{arguments:?}");
    }
    for (arguments, text) in [
        (&["--fail-node", "pool=c"][..], "--fail-node pool=c: no node has these labels"),
        (&["--fail-node", "pool=a=b"], "is not a label requirement"),
        (&["--fail-zone", "z3"], "--fail-zone z3: no node is in this zone: did you mean z1 or z2?"),
        (&["--drain", "pool=a"], "pass --selector \"pool=a\" to drain nodes by label"),
        (&["--drain", "n1", "--fail-node", "pool=a"], "node n1 is in --drain and in --fail-node"),
    ] {
        let run = portolan(&[&["what-if", "-f", &from][..], arguments].concat());
        assert!(run.code == 2 && run.err.contains(text), "{text}: {}", run.err);
    }
}

#[test]
fn objects_to_delete_are_selected_by_labels() {
    let mut labeled = controller("ReplicaSet", "web", 1, "100m");
    labeled["metadata"]["labels"] = json!({ "tier": "front" });
    let items = [
        node("n0"),
        labeled,
        controller("ReplicaSet", "api", 1, "100m"),
        pod("web-0", "n0", "100m", "ReplicaSet/web"),
        pod("api-0", "n0", "100m", "ReplicaSet/api"),
        pod("bare", "n0", "100m", ""),
    ];
    let from = cluster("remove-selected", &items);
    let removed = |arguments: &[&str]| {
        let (code, answer) = ask(&[&["-f", &from, "--remove"][..], arguments].concat());
        assert_eq!(code, 0, "{answer}");
        (pods(&answer, "removed"), pods(&answer, "placed"))
    };
    let all = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(removed(&["rs/tier=front"]), (all(&["d/web-0"]), all(&[])));
    assert_eq!(removed(&["pods/app=bare"]), (all(&["d/bare"]), all(&[])));
    assert_eq!(removed(&["po/app in (web,api)"]), (all(&[]), all(&["d/api-0", "d/web-0"])));
    // The pod of a set that is deleted too is not recreated.
    assert_eq!(removed(&["po/app=web", "rs/web"]), (all(&["d/web-0"]), all(&[])));
    let mut other = pod("web-0", "n0", "100m", "");
    other["metadata"]["namespace"] = json!("e");
    other["metadata"]["uid"] = json!("other");
    other["metadata"]["labels"]["app"] = json!("web");
    let both = cluster("remove-namespaces", &[&items[..], &[other]].concat());
    for (from, arguments, text) in [
        (&from, &["--remove", "rs/tier=back"][..], "no replicasets have these labels"),
        (&from, &["--remove", "web/"], "pass KIND/NAME"),
        (&both, &["--remove", "po/app=web"], "found in the namespaces d, e: pass --namespace"),
        (&from, &["--remove", "rs/tier=front", "--scale", "rs/web=2"], "ReplicaSet/web is in"),
    ] {
        let run = portolan(&[&["what-if", "-f", from][..], arguments].concat());
        assert!(run.code == 2 && run.err.contains(text), "{text}: {}", run.err);
    }
}

#[test]
fn the_first_line_counts_pods_that_are_pending_anyway() {
    let first = |pending: &[Value]| {
        let items =
            [&[node("n0"), node("n1"), pod("web-0", "n0", "200m", "ReplicaSet/web")], pending];
        let from = cluster("first-line", &items.concat());
        let run = portolan(&["what-if", "-f", &from, "--drain", "n0"]);
        assert_eq!(run.code, 0, "{}", run.err);
        run.out.lines().next().unwrap_or_default().to_owned()
    };
    let large = |name: &str| pod(name, "", "9", "ReplicaSet/large");
    assert_eq!(first(&[]), "all pods can be placed");
    let one = "all pods can be placed, except 1 pod that is also pending without the change";
    assert_eq!(first(&[large("a")]), one);
    let two = "all pods can be placed, except 2 pods that are also pending without the change";
    assert_eq!(first(&[large("a"), large("b")]), two);
}

#[test]
fn mirror_pods_stay_on_drained_nodes() {
    let mut mirror = pod("static-n0", "n0", "100m", "");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "0f3a" });
    let from = cluster("mirror", &[node("n0"), node("n1"), mirror]);
    let (code, answer) = ask(&["--cluster", &from, "--drain", "n0"]);
    assert_eq!((code, &answer["blocked"]), (0, &json!([])), "{answer}");
}
