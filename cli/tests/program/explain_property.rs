//! Property: each change that `explain` proposes, read from the printed text and made in the manifests by hand, lets the
//! pod fit on as many nodes as printed.
//!
//! The reader below knows only the texts and the manifests.

use crate::common::{file, portolan};
use portolan_testkit::random;
use serde_json::{Value, json};

struct Random(random::Random);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.0.index(of.len())]
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const APPS: [&str; 3] = ["x", "y", "z"];

fn node(random: &mut Random, name: &str) -> Value {
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if random.chance(85) {
        labels[ZONE] = json!(*random.pick(&["a", "b", "c"]));
    }
    if random.chance(70) {
        labels["disktype"] = json!(*random.pick(&["ssd", "hdd", "nvme-fast"]));
    }
    let mut taints = Vec::new();
    if random.chance(35) {
        let effect = random.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
        taints.push(
            json!({ "key": "gpu", "value": random.pick(&["", "a100", "h100"]), "effect": effect }),
        );
    }
    if random.chance(12) {
        taints.push(json!({ "key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule" }));
    }
    let is_cordoned = random.chance(15);
    if is_cordoned {
        taints.push(json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }));
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "spec": { "taints": taints, "unschedulable": is_cordoned },
        "status": { "allocatable": {
            "cpu": random.pick(&["1", "2", "3500m", "4"]),
            "memory": random.pick(&["2Gi", "4Gi", "3000Mi", "5000000000"]), "pods": "20",
        } },
    })
}

fn container(random: &mut Random, name: &str) -> Value {
    let mut requests = json!({ "cpu": random.pick(&["250m", "700m", "1", "1500m", "3"]) });
    if random.chance(60) {
        requests["memory"] = json!(*random.pick(&["512Mi", "1500M", "3Gi", "1234567890"]));
    }
    json!({ "name": name, "resources": { "requests": requests } })
}

/// The constraints of a pod's spec: usually of one kind, which the theme selects.
fn constraints(random: &mut Random, spec: &mut Value) {
    let theme = *random.pick(&[0, 1, 2, 3, 4, 4, 4, 5]);
    let has = |random: &mut Random, of: u64| random.chance(if of == theme { 80 } else { 6 });
    let labels = |app: &str| json!({ "matchLabels": { "app": app } });
    if has(random, 0) {
        let value = random.pick(&["ssd", "SSD", "nvme-fist", "tape"]);
        spec["nodeSelector"] = json!({ "disktype": value });
        if random.chance(30) {
            spec["nodeSelector"][ZONE] = json!(*random.pick(&["a", "b", "d"]));
        }
    }
    if has(random, 1) {
        let expressions = json!([
            { "key": "disktype", "operator": "In", "values": [random.pick(&["hdd", "HDD", "floppy"])] },
            { "key": ZONE, "operator": random.pick(&["Exists", "DoesNotExist"]) },
        ]);
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": expressions }] });
        spec["affinity"]["nodeAffinity"] =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms });
    }
    let hard = "requiredDuringSchedulingIgnoredDuringExecution";
    for (of, kind) in [(2, "podAffinity"), (3, "podAntiAffinity")] {
        if has(random, of) {
            let key = random.pick(&[ZONE, "kubernetes.io/hostname"]);
            let term =
                json!({ "labelSelector": labels(random.pick::<&str>(&APPS)), "topologyKey": key });
            spec["affinity"][kind] = json!({ hard: [term] });
        }
    }
    let number = if has(random, 4) { 1 + random.below(2) } else { 0 };
    let all: Vec<Value> = (0..number)
        .map(|_| {
            let mut constraint = json!({
                "maxSkew": 1 + random.below(2), "labelSelector": labels(random.pick::<&str>(&APPS)),
                "topologyKey": random.pick(&[ZONE, "kubernetes.io/hostname"]),
                "whenUnsatisfiable": random.pick(&["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            });
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" && random.chance(60) {
                constraint["minDomains"] = json!(2 + random.below(3));
            }
            constraint
        })
        .collect();
    if number > 0 {
        spec["topologySpreadConstraints"] = json!(all);
    }
}

fn pod(random: &mut Random, name: &str) -> Value {
    let mut containers = vec![container(random, "main")];
    if random.chance(40) {
        containers.push(container(random, "side"));
    }
    if random.chance(45) {
        containers[0]["ports"] = json!([{ "containerPort": 80, "hostPort": 8080 }]);
    }
    let mut spec = json!({ "containers": containers, "priority": random.below(3) * 10 });
    if random.chance(20) {
        spec["initContainers"] = json!([container(random, "init")]);
        if random.chance(40) {
            spec["initContainers"][0]["restartPolicy"] = json!("Always");
        }
    }
    if random.chance(25) {
        spec["runtimeClassName"] = json!("kata");
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "labels": { "app": random.pick(&APPS) } },
        "spec": spec,
    })
}

/// The objects of a cluster, with the pending pod d/new at the end.
fn cluster(seed: u64) -> Vec<Value> {
    let random = &mut Random(random::Random::new(seed));
    let nodes = 2 + random.below(5);
    let mut items: Vec<Value> = (0..nodes).map(|i| node(random, &format!("n{i}"))).collect();
    items.push(json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": "kata" },
        "handler": "kata", "overhead": { "podFixed": { "cpu": "250m", "memory": "128Mi" } } }));
    for i in 0..2 + random.below(2 * nodes) {
        let mut other = pod(random, &format!("p{i}"));
        let node = format!("n{}", random.below(nodes));
        match random.below(5) {
            // Nominated, beside the pods that are placed.
            0 => other["status"] = json!({ "phase": "Pending", "nominatedNodeName": node }),
            of => {
                other["spec"]["nodeName"] = json!(node);
                if of < 3 {
                    other["metadata"]["deletionTimestamp"] = json!("2026-11-27T00:00:00Z");
                }
            }
        }
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u", "controller": true,
            "name": format!("set-{}", random.below(3)) });
        other["metadata"]["ownerReferences"] = json!([owner]);
        items.push(other);
    }
    let mut new = pod(random, "new");
    constraints(random, &mut new["spec"]);
    items.push(new);
    items
}

fn explain(name: &str, items: &[Value], arguments: &[&str]) -> (String, Value) {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let cluster = file("property", name, list.to_string().as_bytes());
    let run = portolan(&[&["explain", "-q", "-f", &cluster, "--pod", "d/new"], arguments].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let json = serde_json::from_str(&run.out).unwrap_or_default();
    (run.out, json)
}

/// The changes of a report, each with its number of nodes.
fn proposals(report: &str) -> Vec<(&str, u64)> {
    let listed = report.lines().filter_map(|line| line.strip_prefix("  - "));
    let of = |line: &'_ str| {
        let (_, counted) = line.rsplit_once(" (").expect("a number of nodes");
        let what = &line[..line.len() - counted.len() - 2];
        let number = counted.split(' ').next().and_then(|number| number.parse().ok());
        (what.len(), number.expect("a number"))
    };
    listed.map(|line| (&line[..of(line).0], of(line).1)).collect()
}

/// The text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    text.strip_prefix(before)?.strip_suffix(after)
}

/// Makes a change in the manifests.
fn follow(items: &mut Vec<Value>, what: &str) {
    for step in what.split("; and ") {
        follow_step(items, step);
    }
}

fn named<'i>(items: &'i mut [Value], kind: &str, name: &str) -> &'i mut Value {
    let mut all = items.iter_mut();
    let found = all.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name} does not exist"))
}

fn pair(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or_else(|| panic!("{text} is no label"))
}

fn follow_step(items: &mut Vec<Value>, step: &str) {
    if let Some(taints) = step.strip_prefix("tolerate ") {
        let spec = &mut named(items, "Pod", "new")["spec"];
        let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
        all.extend(taints.split(" and ").map(|taint| {
            let (label, effect) = taint.rsplit_once(':').expect("an effect");
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            json!({ "key": key, "operator": "Equal", "value": value, "effect": effect })
        }));
        spec["tolerations"] = json!(all);
    } else if let Some(node) = step.strip_prefix("uncordon node ") {
        untaint(named(items, "Node", node), "node.kubernetes.io/unschedulable");
        named(items, "Node", node)["spec"]["unschedulable"] = json!(false);
    } else if let Some(rest) = step.strip_prefix("resolve the cause of the taint ") {
        let (key, node) = rest.split_once(" on node ").expect("a node");
        untaint(named(items, "Node", node), key);
    } else if let Some(rest) = step.strip_prefix("label node ") {
        let (node, label) = rest.split_once(' ').expect("a label");
        let (key, value) = pair(label.split(" instead of ").next().unwrap_or(label));
        assert_ne!(key, ZONE, "a zone is not a user's label");
        named(items, "Node", node)["metadata"]["labels"][key] = json!(value);
    } else if step.starts_with("evict ") || step.starts_with("wait: ") {
        leave(items, step);
    } else if let Some(all) = step.strip_prefix("lower ") {
        all.split(" and ").for_each(|text| lower(named(items, "Pod", "new"), text));
    } else {
        edit(&mut named(items, "Pod", "new")["spec"], step);
    }
}

fn untaint(node: &mut Value, key: &str) {
    node["spec"]["taints"].as_array_mut().expect("taints").retain(|taint| taint["key"] != key);
}

/// Removes the pods that a change evicts or waits for.
fn leave(items: &mut Vec<Value>, step: &str) {
    let words = step.split([' ', ',']).filter_map(|word| word.strip_prefix("d/"));
    let names: Vec<String> = words.map(str::to_owned).collect();
    assert!(!names.is_empty(), "{step}");
    items.retain(|it| {
        it["kind"] != "Pod" || !names.iter().any(|name| it["metadata"]["name"] == **name)
    });
}

fn lower(pod: &mut Value, text: &str) {
    let text = text.strip_prefix("the ").expect("an article");
    let (resource, rest) = text.split_once(" request").expect("a resource");
    let (of, amounts) = rest.split_once("from ").expect("an amount");
    let (_, to) = amounts.split_once(" to ").expect("a lower amount");
    let of = of.trim().strip_prefix("of ").unwrap_or("container main");
    let (list, name) = match of.strip_prefix("init container ") {
        Some(name) => ("initContainers", name),
        None => ("containers", of.strip_prefix("container ").expect("a container")),
    };
    let all = pod["spec"][list].as_array_mut().expect("containers");
    let container = all.iter_mut().find(|it| it["name"] == name).expect("the container");
    container["resources"]["requests"][resource] = json!(to);
}

/// An expression as it is printed, as a manifest has it.
fn expression(text: &str) -> Value {
    if let Some((key, values)) = text.split_once(" in (") {
        let values: Vec<&str> = values.trim_end_matches(')').split(", ").collect();
        return json!({ "key": key, "operator": "In", "values": values });
    }
    match text.strip_prefix('!') {
        Some(key) => json!({ "key": key, "operator": "DoesNotExist" }),
        None => json!({ "key": text, "operator": "Exists" }),
    }
}

/// Edits the spec of the pod.
fn edit(spec: &mut Value, step: &str) {
    let hard = "requiredDuringSchedulingIgnoredDuringExecution";
    let expressions = |spec: &mut Value, change: &dyn Fn(&mut Vec<Value>)| {
        let terms = &mut spec["affinity"]["nodeAffinity"][hard]["nodeSelectorTerms"];
        change(terms[0]["matchExpressions"].as_array_mut().expect("expressions"));
    };
    if let Some(rest) = step.strip_prefix("in the nodeSelector, change ") {
        let (from, to) = rest.split_once(" to ").expect("a label");
        let labels = spec["nodeSelector"].as_object_mut().expect("labels");
        assert_eq!(labels.remove(pair(from).0), Some(json!(pair(from).1)));
        labels.insert(pair(to).0.to_owned(), json!(pair(to).1));
    } else if let Some(rest) = step.strip_prefix("in the required node affinity, change ") {
        let (from, to) = rest.split_once(" to ").expect("an expression");
        expressions(spec, &|all| {
            let at = all.iter().position(|it| *it == expression(from)).expect("the expression");
            all[at] = expression(to);
        });
    } else if step == "remove the nodeSelector" {
        spec["nodeSelector"] = Value::Null;
    } else if let Some(rest) = step.strip_prefix("remove the nodeSelector and the required node ") {
        assert_eq!(rest, "affinity");
        spec["nodeSelector"] = Value::Null;
        spec["affinity"]["nodeAffinity"] = Value::Null;
    } else if step == "remove the required node affinity" {
        spec["affinity"]["nodeAffinity"] = Value::Null;
    } else if let Some(label) = between(step, "remove ", " from the nodeSelector") {
        let labels = spec["nodeSelector"].as_object_mut().expect("labels");
        assert_eq!(labels.remove(pair(label).0), Some(json!(pair(label).1)));
    } else if let Some(text) = between(step, "remove ", " from the required node affinity") {
        expressions(spec, &|all| all.retain(|it| *it != expression(text)));
    } else if let Some(rest) = step.strip_prefix("remove the required pod ") {
        let (kind, rest) = rest.split_once(" to pods with ").expect("a kind");
        let (labels, key) = rest.split_once(" in the same ").expect("a topology");
        let kind = if kind == "anti-affinity" { "podAntiAffinity" } else { "podAffinity" };
        let all = spec["affinity"][kind][hard].as_array_mut().expect("terms");
        let before = all.len();
        all.retain(|it| {
            let app = &it["labelSelector"]["matchLabels"]["app"];
            it["topologyKey"] != key || *app != pair(labels).1
        });
        assert_eq!(all.len() + 1, before);
    } else if let Some(port) = step.strip_prefix("use another host port than ") {
        assert_eq!(port, "8080");
        spec["containers"][0]["ports"][0]["hostPort"] = json!(65_000);
    } else {
        spread(spec, step);
    }
}

fn spread(spec: &mut Value, step: &str) {
    let (what, which) =
        step.split_once(" the topology spread constraint for ").unwrap_or_else(|| panic!("{step}"));
    let all = spec["topologySpreadConstraints"].as_array_mut().expect("constraints");
    let at = match which.split_once(" (topologySpreadConstraints[") {
        Some((_, at)) => at.trim_end_matches("])").parse().expect("a position"),
        None => {
            let matching = all.iter().filter(|it| it["topologyKey"] == which);
            assert_eq!(matching.count(), 1, "{step} is ambiguous");
            all.iter().position(|it| it["topologyKey"] == which).expect("the constraint")
        }
    };
    match what {
        "set whenUnsatisfiable: ScheduleAnyway in" => {
            all[at]["whenUnsatisfiable"] = json!("ScheduleAnyway");
            assert_eq!(all[at]["minDomains"], Value::Null);
        }
        "set whenUnsatisfiable: ScheduleAnyway, and remove minDomains, in" => {
            all[at]["whenUnsatisfiable"] = json!("ScheduleAnyway");
            all[at]["minDomains"] = Value::Null;
        }
        "set nodeTaintsPolicy: Honor in" => all[at]["nodeTaintsPolicy"] = json!("Honor"),
        "remove minDomains from" => all[at]["minDomains"] = Value::Null,
        other => panic!("{other} is not known"),
    }
}

#[test]
fn each_printed_change_has_the_printed_effect() {
    let mut kinds = std::collections::BTreeMap::new();
    for seed in 0..120 {
        let items = cluster(seed);
        let (report, _) = explain("before.json", &items, &["--time-limit", "60"]);
        for (what, nodes) in proposals(&report) {
            let mut changed = items.clone();
            follow(&mut changed, what);
            let (_, after) = explain("after.json", &changed, &["-o", "json"]);
            assert_eq!(after["fits_on"], nodes, "seed {seed}: {what}\n{report}");
            let first = what.split([' ', ':']).next().unwrap_or_default();
            *kinds.entry(first.to_owned()).or_insert(0) += 1;
        }
    }
    for kind in
        ["tolerate", "uncordon", "label", "lower", "evict", "wait", "in", "remove", "set", "use"]
    {
        assert!(kinds.contains_key(kind), "{kind} was not proposed: {kinds:?}");
    }
}
