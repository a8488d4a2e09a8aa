//! `portolan what-if`: drains and their rules, added nodes, room for more pods, and nodes
//! that can be emptied.

use crate::common::{file, portolan};
use serde_json::{Value, json};

fn node(name: &str) -> Value {
    let resources = json!({ "cpu": "1", "memory": "4Gi", "pods": "10" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "capacity": resources, "allocatable": resources },
    })
}

fn pod(name: &str, node: &str, cpu: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner
        .map(|kind| {
            json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name,
                "controller": true })
        })
        .into_iter()
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "uid": name, "labels": { "app": name },
            "ownerReferences": owners },
        "spec": { "nodeName": node, "containers": [
            { "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } }
        ] },
    })
}

fn daemon(name: &str, on: &str) -> Value {
    let mut pod = pod(name, on, "100m", Some("DaemonSet"));
    pod["metadata"]["ownerReferences"][0]["name"] = json!("agent");
    let term = json!({ "matchFields": [
        { "key": "metadata.name", "operator": "In", "values": [on] }
    ] });
    pod["spec"]["affinity"] = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] }
    } });
    pod
}

/// Two nodes. The first has a pod that can be evicted, a daemon set pod, a pod without a
/// controller, a pod with local data, and a pod whose disruption budget is used up.
fn cluster(directory: &str) -> String {
    let mut local = pod("local", "n0", "50m", Some("ReplicaSet"));
    local["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "keep", "namespace": "d" },
        "spec": { "selector": { "matchLabels": { "app": "kept" } } },
        "status": { "disruptionsAllowed": 0 },
    });
    let items = json!([
        node("n0"),
        node("n1"),
        budget,
        local,
        pod("web", "n0", "300m", Some("ReplicaSet")),
        pod("bare", "n0", "50m", None),
        pod("kept", "n0", "50m", Some("ReplicaSet")),
        daemon("agent-n0", "n0"),
        daemon("agent-n1", "n1"),
        pod("large", "n1", "500m", Some("ReplicaSet")),
    ]);
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    file(directory, "cluster.json", list.to_string().as_bytes())
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
fn a_drain_moves_evictable_pods_and_names_the_others() {
    let cluster = cluster("what-if-drain");
    let (code, answer) = ask(&["--cluster", &cluster, "--drain", "n0"]);
    assert_eq!((code, &answer["ok"]), (1, &json!(false)));
    assert_eq!(pods(&answer, "blocked"), ["d/bare", "d/kept", "d/local"]);
    assert_eq!(answer["placed"], json!([{ "pod": "d/web", "from": "n0", "to": "n1" }]));
    let forced = ["--cluster", &cluster, "--drain", "n0", "--force", "--delete-emptydir-data"];
    let (_, answer) = ask(&forced);
    assert_eq!(pods(&answer, "blocked"), ["d/kept"]);
    assert_eq!(pods(&answer, "placed"), ["d/local", "d/web"]);
    let lost = json!([{ "pod": "d/bare", "from": "n0", "why": "evicted, no controller" }]);
    assert_eq!(answer["lost"], lost);
}

#[test]
fn unschedulable_pods_have_kube_schedulers_message() {
    let cluster = cluster("what-if-full");
    let (code, answer) = ask(&["--cluster", &cluster, "--drain", "n1"]);
    assert_eq!(code, 1);
    let why = answer["unplaced"][0]["why"].as_str().expect("a reason");
    let text = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. \
                no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, \
                1 Preemption is not helpful for scheduling.";
    assert_eq!(why, text);
}

#[test]
fn added_nodes_get_daemon_set_pods() {
    let cluster = cluster("what-if-add");
    let more = file("what-if-add", "node.json", node("more").to_string().as_bytes());
    let like =
        file("what-if-add", "like.json", pod("like", "", "300m", None).to_string().as_bytes());
    let add = format!("2x{more}");
    let (code, answer) =
        ask(&["--cluster", &cluster, "--drain", "n1", "--add", &add, "--fit-more", &like]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!((&answer["nodes"], &answer["added"]), (&json!(4), &json!(2)));
    assert_eq!(answer["notes"], json!(["placed 2 daemon set pods on the added nodes"]));
    // The first node has 450m left. Each new node has 900m, and the moved pod takes 500m of
    // one of them.
    assert_eq!(answer["fit_more"], json!({ "pod": "like", "count": 1 + 1 + 3 }));
}

#[test]
fn daemon_set_pods_that_an_added_node_cannot_hold_are_unschedulable() {
    let items =
        [node("n0"), daemon("agent-n0", "n0"), pod("web", "n0", "100m", Some("ReplicaSet"))];
    let cluster = list("what-if-small-node", "cluster.json", &items);
    let mut small = node("small");
    small["status"]["allocatable"]["cpu"] = json!("50m");
    let small = file("what-if-small-node", "node.json", small.to_string().as_bytes());
    let (code, answer) = ask(&["--cluster", &cluster, "--add", &format!("1x{small}")]);
    assert_eq!((code, pods(&answer, "unplaced")), (1, vec!["d/agent-n0-small-1".to_owned()]));
    // A daemon set that does not run on the node creates no pod.
    let mut tainted = node("small");
    tainted["spec"] = json!({ "taints": [{ "key": "team", "effect": "NoSchedule" }] });
    let tainted = file("what-if-small-node", "tainted.json", tainted.to_string().as_bytes());
    let (code, answer) = ask(&["--cluster", &cluster, "--add", &format!("1x{tainted}")]);
    assert_eq!((code, &answer["notes"]), (0, &json!([])), "{answer}");
}

#[test]
fn names_of_added_nodes_are_free() {
    let cluster = list("what-if-free-names", "cluster.json", &[node("n0"), node("n0-1")]);
    let (code, answer) = ask(&["--cluster", &cluster, "--add", "2xn0", "1xnode/n0"]);
    assert_eq!((code, &answer["nodes"], &answer["added"]), (0, &json!(5), &json!(3)), "{answer}");
}

#[test]
fn invalid_nodes_and_counts_are_refused_with_the_remedy() {
    let cluster = cluster("what-if-errors");
    let run = portolan(&["what-if", "--cluster", &cluster, "--drain", "n9"]);
    assert_eq!(run.code, 2);
    let error = &run.err;
    assert!(error.starts_with("portolan: --drain n9: "), "{error}");
    assert!(error.ends_with(": did you mean n0 or n1?\n"), "{error}");
    let run = portolan(&["what-if", "--cluster", &cluster, "--add", "0xnode.json"]);
    assert_eq!(run.code, 2);
    let says = "COUNT must be 1 to 1000000: pass COUNTxFILE or COUNTxNODE, such as 3xnode.yaml";
    assert!(run.err.contains(says), "{}", run.err);
}

#[test]
fn the_report_names_blocked_pods_and_placements() {
    let cluster = cluster("what-if-report");
    let run = portolan(&["what-if", "--cluster", &cluster, "--drain", "n0", "--force"]);
    assert_eq!(run.code, 1, "{}", run.err);
    let start = "2 pods blocked, 1 pod lost\n\nnodes     2 (0 added)\ndrained   n0\n\
                 kubectl   drain needs --ignore-daemonsets --force --delete-emptydir-data\n\
                 moved     1 pod\nplaced    0 pods\n\nblocked:\n  - d/kept on n0: ";
    assert!(run.out.starts_with(start), "{}", run.out);
    let end =
        "lost:\n  - d/bare on n0: evicted, no controller\n\nplacements:\n  - d/web: n0 → n1\n";
    assert!(run.out.ends_with(end), "{}", run.out);
    let run = portolan(&["what-if", "--cluster", &cluster]);
    assert_eq!((run.code, run.out.lines().next()), (0, Some("all pods can be placed")));
}

/// A list of these objects in a file.
fn list(directory: &str, name: &str, items: &[Value]) -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    file(directory, name, list.to_string().as_bytes())
}

fn pending(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name, "", cpu, None);
    pod["spec"].as_object_mut().expect("a spec").remove("nodeName");
    pod
}

fn why(answer: &Value, key: &str) -> String {
    answer[key][0]["why"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn gated_pods_are_not_placed() {
    let cluster = list("what-if-gated", "cluster.json", &[node("n0")]);
    let mut gated = pending("gated", "100m");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    let more = list("what-if-gated", "more.json", &[gated]);
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more]);
    assert_eq!((code, pods(&answer, "placed")), (1, vec![]));
    let gated = "Scheduling is blocked due to non-empty scheduling gates";
    assert_eq!(why(&answer, "unplaced"), gated, "{answer}");
}

#[test]
fn added_pods_preempt_others() {
    let low = pod("low", "n0", "800m", Some("ReplicaSet"));
    let cluster = list("what-if-preempt", "cluster.json", &[node("n0"), low]);
    let mut high = pending("high", "900m");
    high["spec"]["priority"] = json!(1_000);
    let more = list("what-if-preempt", "more.json", &[high]);
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more]);
    assert_eq!((code, pods(&answer, "placed")), (1, vec!["d/high".to_owned()]));
    assert_eq!(answer["preempted"], json!([{ "pod": "d/low", "from": "n0", "by": "d/high" }]));
    assert_eq!(pods(&answer, "unplaced"), ["d/low"]);
    // With a second node, the victim finds another place.
    let (code, answer) = {
        let more_nodes = file("what-if-preempt", "node.json", node("more").to_string().as_bytes());
        let add = format!("1x{more_nodes}");
        ask(&["--cluster", &cluster, "--pods", &more, "--add", &add])
    };
    assert_eq!((code, pods(&answer, "placed")), (0, vec!["d/high".to_owned()]));
}

#[test]
fn a_group_is_placed_completely_or_not_at_all() {
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": { "name": "gang", "namespace": "d" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 3 } } },
    });
    let cluster = list("what-if-gang", "cluster.json", &[node("n0"), group]);
    let members: Vec<Value> = ["a", "b", "c"]
        .map(|name| {
            let mut pod = pending(name, "400m");
            pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "gang" });
            pod
        })
        .into();
    let more = list("what-if-gang", "more.json", &members);
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more]);
    assert_eq!((code, pods(&answer, "placed")), (1, vec![]), "{answer}");
    assert_eq!(pods(&answer, "unplaced"), ["d/a", "d/b", "d/c"]);
    let two = file("what-if-gang", "node.json", node("more").to_string().as_bytes());
    let add = format!("1x{two}");
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more, "--add", &add]);
    assert_eq!((code, pods(&answer, "placed").len()), (0, 3), "{answer}");
}

#[test]
fn a_drain_waits_for_replacements_if_a_budget_allows_one_eviction() {
    let web = |name: &str, on: &str| {
        let mut pod = pod(name, on, "100m", Some("ReplicaSet"));
        pod["metadata"]["labels"] = json!({ "app": "web" });
        pod
    };
    let budget = |allowed: i32| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "web", "namespace": "d" },
            "spec": { "selector": { "matchLabels": { "app": "web" } } },
            "status": { "disruptionsAllowed": allowed },
        })
    };
    let cluster = |name: &str, allowed| {
        let pods = [web("w0", "n0"), web("w1", "n0"), web("w2", "n0")];
        let rest = [node("n0"), node("n1"), budget(allowed)];
        list("what-if-rolling", name, &[&rest[..], &pods[..]].concat())
    };
    let (code, answer) = ask(&["--cluster", &cluster("one.json", 1), "--drain", "n0"]);
    assert_eq!((code, pods(&answer, "blocked")), (0, vec![]), "{answer}");
    assert_eq!(pods(&answer, "placed"), ["d/w0", "d/w1", "d/w2"]);
    assert_eq!(answer["budget_waits"], json!({ "n0": 2 }));
    let (code, answer) = ask(&["--cluster", &cluster("none.json", 0), "--drain", "n0"]);
    assert_eq!((code, pods(&answer, "blocked").len()), (1, 3), "{answer}");
    assert_eq!(answer["budget_waits"], json!({}));
    // Without room for replacements, only the first pod goes.
    let full = |pods: &[Value]| list("what-if-rolling", "full.json", pods);
    let large = pod("large", "n1", "1", Some("ReplicaSet"));
    let rest = [node("n0"), node("n1"), budget(1), large, web("w0", "n0"), web("w1", "n0")];
    let (code, answer) = ask(&["--cluster", &full(&rest), "--drain", "n0"]);
    assert_eq!((code, pods(&answer, "blocked")), (1, vec!["d/w1".to_owned()]), "{answer}");
    assert_eq!(pods(&answer, "unplaced"), ["d/w0"]);
}

#[test]
fn pods_of_other_schedulers_are_not_placed() {
    let cluster = list("what-if-scheduler", "cluster.json", &[node("n0")]);
    let mut other = pending("other", "100m");
    other["spec"]["schedulerName"] = json!("batch");
    let more = list("what-if-scheduler", "more.json", &[other]);
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more]);
    assert_eq!((code, pods(&answer, "placed")), (1, vec![]));
    assert_eq!(
        why(&answer, "unplaced"),
        "no profile has schedulerName \"batch\": pass --profile, or --config with such a profile"
    );
    let config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                  profiles: [{ schedulerName: default-scheduler }, { schedulerName: batch }]\n";
    let config = file("what-if-scheduler", "config.yaml", config.as_bytes());
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more, "--config", &config]);
    assert_eq!((code, pods(&answer, "placed")), (0, vec!["d/other".to_owned()]));
}

#[test]
fn objects_that_occur_twice_are_refused() {
    let error = |items: &[Value], more: &[Value]| {
        let cluster = list("what-if-twice", "cluster.json", items);
        let more = list("what-if-twice", "more.json", more);
        let folder = cluster.trim_end_matches("cluster.json").to_owned();
        let run = portolan(&["what-if", "--cluster", &cluster, "--pods", &more]);
        assert_eq!(run.code, 2, "{}", run.out);
        run.err.replace(&folder, "")
    };
    let of = |object: &str, second: &str, first: &str| {
        format!(
            "portolan: {second}:1: {object} occurs twice, first at {first}:1: pass each object once\n"
        )
    };
    let (cluster, more) = ("cluster.json", "more.json");
    let placed = || pod("p", "n0", "100m", None);
    assert_eq!(error(&[node("n0"), node("n0")], &[]), of("node n0", cluster, cluster));
    let mut other = placed();
    other["metadata"]["uid"] = json!("another");
    assert_eq!(error(&[node("n0"), placed(), other], &[]), of("pod d/p", cluster, cluster));
    assert_eq!(error(&[node("n0"), placed()], &[pending("p", "1m")]), of("pod d/p", more, cluster));
    let mut same_uid = pod("r", "n0", "100m", None);
    same_uid["metadata"]["uid"] = placed()["metadata"]["uid"].clone();
    let text = error(&[node("n0"), placed(), same_uid], &[]);
    assert!(text.ends_with(" of another pod: pass each pod once\n"), "{text}");
    let new = [pending("q", "1m"), pending("q", "1m")];
    assert_eq!(error(&[node("n0")], &new), of("pod d/q", more, more));
}

#[test]
fn pods_that_are_pending_anyway_do_not_decide_the_answer() {
    let large = pending("large", "4");
    let cluster = list("what-if-pending", "cluster.json", &[node("n0"), large.clone()]);
    let more = list("what-if-pending", "more.json", &[pending("small", "100m")]);
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more]);
    assert_eq!((code, pods(&answer, "pending")), (0, vec!["d/large".to_owned()]), "{answer}");
    assert_eq!(pods(&answer, "placed"), ["d/small"]);
    // The same pod as part of the question is unschedulable because of the question.
    let cluster = list("what-if-pending", "empty.json", &[node("n0")]);
    let more = list("what-if-pending", "large.json", &[large]);
    let (code, answer) = ask(&["--cluster", &cluster, "--pods", &more]);
    assert_eq!((code, pods(&answer, "unplaced")), (1, vec!["d/large".to_owned()]));
}

#[test]
fn pods_that_are_being_deleted_are_not_scheduled() {
    let mut ending = pending("ending", "100m");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let cluster = list("what-if-skipped", "cluster.json", &[node("n0"), ending]);
    let (code, answer) = ask(&["--cluster", &cluster]);
    assert_eq!((code, pods(&answer, "pending").len(), pods(&answer, "placed").len()), (0, 0, 0));
    assert_eq!(why(&answer, "skipped"), "skip schedule deleting pod: d/ending");
}

#[test]
fn a_terminating_pod_of_a_stateful_set_is_replaced_when_it_has_ended() {
    let ending = |name: &str, kind: &str| {
        let mut pod = pod(name, "n0", "800m", Some(kind));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod
    };
    let set = list("what-if-ending-set", "set.json", &[node("n0"), ending("db-0", "StatefulSet")]);
    let more = list("what-if-ending-set", "more.json", &[pending("more", "800m")]);
    // Its name is free then, and the replacement competes for the node.
    let (code, answer) = ask(&["--cluster", &set, "--pods", &more]);
    let nodes = |answer: &Value| answer["placed"].as_array().expect("a list").len();
    assert_eq!((code, pods(&answer, "placed"), nodes(&answer)), (1, vec!["d/more".into()], 1));
    assert_eq!(pods(&answer, "unplaced"), ["d/db-0"]);
    let of_set = ending("web", "ReplicaSet");
    let replaced = list("what-if-ending-set", "replaced.json", &[node("n0"), of_set]);
    let (code, answer) = ask(&["--cluster", &replaced, "--pods", &more]);
    assert_eq!((code, pods(&answer, "unplaced").len()), (0, 0), "{answer}");
    assert_eq!(pods(&answer, "waiting"), ["d/more"]);
    assert_eq!(answer["later"], json!({ "terminating_pods": 1, "failed_nodes": 0 }));
}

#[test]
fn a_drain_of_a_full_cluster_tries_each_pod_a_few_times() {
    let attempts = |nodes: usize| {
        let name = |n: usize| format!("n{n:02}");
        let mut items: Vec<Value> = (0..nodes).map(|n| node(&name(n))).collect();
        for n in 0..nodes {
            items.push(pod(&format!("a{n:02}"), &name(n), "500m", Some("ReplicaSet")));
            items.push(pod(&format!("b{n:02}"), &name(n), "500m", Some("ReplicaSet")));
        }
        let cluster = list("what-if-attempts", &format!("{nodes}.json"), &items);
        let metrics = cluster.replace(".json", ".txt");
        let all: Vec<String> = (0..nodes / 2).map(name).collect();
        let drained = all.iter().map(String::as_str);
        let options = ["what-if", "--cluster", &cluster, "--metrics-file", &metrics, "--drain"];
        let run = portolan(&options.into_iter().chain(drained).collect::<Vec<_>>());
        assert_eq!(
            run.out.lines().next(),
            Some(&*format!("{nodes} pods unschedulable")),
            "{}",
            run.err
        );
        let text = std::fs::read_to_string(&metrics).expect("metrics");
        let mut counts =
            text.lines().filter(|line| line.starts_with("scheduler_schedule_attempts_total{"));
        let count = counts.next().and_then(|line| line.rsplit_once(' ')).expect("a count").1;
        count.parse::<usize>().expect("a number")
    };
    // Each evicted pod is tried when it arrives, and those of all nodes but the last once more at the end.
    assert_eq!((attempts(10), attempts(40)), (10 + 8, 40 + 38));
}
