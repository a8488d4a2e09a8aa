//! Questions about random clusters have the answers that replays of the same pods give.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Parser;
use serde_json::{Value, json};

use crate::policy;
use crate::replay::{self, Progress, Settings, Source};

use super::difference::Effects;
use super::{Arguments, answer};

#[derive(Parser)]
struct Question {
    #[command(flatten)]
    arguments: Arguments,
}

#[derive(Parser)]
struct Replayed {
    #[command(flatten)]
    source: Source,
}

/// The node of each pod.
type Placements = BTreeMap<String, String>;

fn file(name: &str, items: &[Value]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("portolan-what-if-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (path, list) =
        (folder.join(name), json!({ "kind": "List", "apiVersion": "v1", "items": items }));
    std::fs::write(&path, list.to_string()).expect("written");
    path
}

fn node(random: &mut fastrand::Rng, n: usize) -> Value {
    let resources = json!({
        "cpu": random.u32(1..5).to_string(), "memory": format!("{}Gi", random.u32(1..9)), "pods": "6",
    });
    let zone = format!("z{}", random.u32(0..3));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("n{n}"),
            "labels": { "kubernetes.io/hostname": format!("n{n}"), "topology.kubernetes.io/zone": zone },
        },
        "status": { "capacity": resources, "allocatable": resources },
    })
}

/// A pod that may be gated, may need or avoid others, and may preempt.
fn pod(random: &mut fastrand::Rng, name: &str, on: Option<String>) -> Value {
    let app = ["a", "b", "c"][random.usize(0..3)];
    let other = ["a", "b", "c"][random.usize(0..3)];
    let other = json!({ "matchLabels": { "app": other } });
    let requests = json!({
        "cpu": format!("{}m", random.u32(1..20) * 100), "memory": format!("{}Mi", random.u32(1..20) * 100),
    });
    let mut spec = json!({
        "priority": random.i32(0..3),
        "containers": [{ "name": "c", "image": "i", "resources": { "requests": requests } }],
    });
    let term = json!([{ "labelSelector": other, "topologyKey": "topology.kubernetes.io/zone" }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    match (&on, random.u32(0..8)) {
        (None, 0) => spec["schedulingGates"] = json!([{ "name": "example.com/gate" }]),
        (_, 1) => spec["affinity"] = json!({ "podAffinity": { required: term } }),
        (_, 2) => spec["affinity"] = json!({ "podAntiAffinity": { required: term } }),
        (_, 3) => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": app } },
            }]);
        }
        _ => {}
    }
    if let Some(on) = on {
        spec["nodeName"] = json!(on);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "uid": name, "labels": { "app": app },
            "ownerReferences": [{ "kind": "ReplicaSet", "name": name, "controller": true }] },
        "spec": spec,
    })
}

#[test]
fn adding_pods_has_the_outcome_of_their_replay() {
    let (mut placed, mut preempted, mut unplaced) = (0, 0, 0);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes: Vec<Value> = (0..random.usize(1..12)).map(|n| node(&mut random, n)).collect();
        let there: Vec<Value> = (0..random.usize(0..10))
            .map(|n| {
                let on = format!("n{}", random.usize(0..nodes.len()));
                pod(&mut random, &format!("there-{n}"), Some(on))
            })
            .collect();
        let more: Vec<Value> = (0..random.usize(1..25))
            .map(|n| pod(&mut random, &format!("more-{n}"), None))
            .collect();
        let cluster = file("cluster.json", &[&nodes[..], &there[..]].concat());
        let (only_nodes, added) = (file("nodes.json", &nodes), file("more.json", &more));
        let pods = file("pods.json", &[&there[..], &more[..]].concat());

        let text = |path: &PathBuf| path.display().to_string();
        let seeded = ["--seed".to_owned(), seed.to_string()];
        let question =
            ["x", "--cluster", &text(&cluster), "--pods", &text(&added)].map(str::to_owned);
        let question = Question::parse_from(question.iter().chain(&seeded));
        let answer = answer(&question.arguments).expect("an answer");
        let mut here: Placements = there
            .iter()
            .map(|pod| (text_of(&pod["metadata"]["name"]), text_of(&pod["spec"]["nodeName"])))
            .collect();
        let effects = answer.last();
        effects.unplaced.iter().for_each(|row| drop(here.remove(&*row.pod.name)));
        here.extend(placements(effects));

        let replayed =
            ["x", "--nodes", &text(&only_nodes), "--pods", &text(&pods)].map(str::to_owned);
        let percentage = ["--percentage-of-nodes".to_owned(), "100".to_owned()];
        let replayed = Replayed::parse_from(replayed.iter().chain(&seeded).chain(&percentage));
        let workload = replay::workload(&replayed.source).expect("a workload");
        let config = policy::ConfigFile::default();
        let settings = Settings {
            config: config.source(),
            threads: 1,
            progress: Progress::Hidden,
            metrics: None,
            draws_chart: false,
            seed,
        };
        let outcome = replay::run::run(&workload, &replayed.source, settings).expect("an outcome");
        let end = outcome.end.nodes().flat_map(|node| {
            node.pods().map(move |pod| (pod.name().to_string(), node.name().to_string()))
        });
        let end: Placements = end.collect();
        assert_eq!(here, end, "seed {seed}");
        placed += effects.placed.len();
        preempted += effects.preempted.len();
        unplaced += effects.unplaced.len();
    }
    assert!(placed > 100 && preempted > 10 && unplaced > 100, "{placed} {preempted} {unplaced}");
}

#[test]
fn a_larger_controller_has_the_outcome_of_adding_its_pods() {
    let (mut placed, mut unplaced) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes: Vec<Value> = (0..random.usize(1..8)).map(|n| node(&mut random, n)).collect();
        let (old, new) = (random.usize(0..4), random.usize(4..12));
        let mut like = pod(&mut random, "like", None);
        like["spec"].as_object_mut().expect("a spec").remove("schedulingGates");
        let one = |n: usize| {
            let mut pod = like.clone();
            pod["metadata"]["name"] = json!(format!("web-{n}"));
            pod["metadata"]["uid"] = json!(format!("d/web-{n}"));
            pod["metadata"]["ownerReferences"] = json!([
                { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true }
            ]);
            pod
        };
        let there = (0..old).map(|n| {
            let mut pod = one(n);
            pod["spec"]["nodeName"] = json!(format!("n{}", random.usize(0..nodes.len())));
            pod
        });
        let there: Vec<Value> = there.collect();
        let template =
            json!({ "metadata": { "labels": like["metadata"]["labels"] }, "spec": like["spec"] });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web", "namespace": "d" },
            "spec": { "replicas": old, "selector": { "matchLabels": like["metadata"]["labels"] },
                "template": template },
        });
        let name = format!("scale-{seed}.json");
        let cluster = file(&name, &[&nodes[..], &there[..], &[set]].concat());
        let more: Vec<Value> = (old..new).map(one).collect();
        let more = file(&format!("scaled-{seed}.json"), &more);
        let ask = |option: &str, value: String| {
            let cluster = cluster.display().to_string();
            let question = ["x", "--cluster", &cluster, option, &value].map(str::to_owned);
            let found = answer(&Question::parse_from(question).arguments).expect("an answer");
            (placements(found.last()), found.last().unplaced.len())
        };
        let scaled = ask("--scale", format!("rs/web={new}"));
        assert_eq!(scaled, ask("--pods", more.display().to_string()), "seed {seed}");
        placed += scaled.0.len();
        unplaced += scaled.1;
    }
    assert!(placed > 50 && unplaced > 50, "{placed} {unplaced}");
}

#[test]
fn a_drain_without_budgets_has_the_outcome_of_adding_its_pods_elsewhere() {
    let (mut placed, mut unplaced) = (0, 0);
    for seed in 100..140 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut nodes: Vec<Value> = (0..random.usize(2..8)).map(|n| node(&mut random, n)).collect();
        let number = random.usize(1..20);
        let there = (0..number).map(|n| {
            let on = format!("n{}", random.usize(0..nodes.len()));
            pod(&mut random, &format!("there-{n:02}"), Some(on))
        });
        let there: Vec<Value> = there.collect();
        let (mut moved, stay): (Vec<Value>, Vec<Value>) =
            there.iter().cloned().partition(|pod| pod["spec"]["nodeName"] == "n0");
        let drained = file(&format!("drain-{seed}.json"), &[&nodes[..], &there[..]].concat());
        nodes[0]["spec"] = json!({ "unschedulable": true });
        let cordoned = file(&format!("cordoned-{seed}.json"), &[&nodes[..], &stay[..]].concat());
        for pod in &mut moved {
            pod["spec"].as_object_mut().expect("a spec").remove("nodeName");
        }
        let moved = file(&format!("moved-{seed}.json"), &moved);
        let ask = |question: &[&str]| {
            let question = ["x", "--cluster"].iter().chain(question).map(|text| (*text).to_owned());
            let found = answer(&Question::parse_from(question).arguments).expect("an answer");
            (placements(found.last()), found.last().unplaced.len())
        };
        let (drained, cordoned) = (drained.display().to_string(), cordoned.display().to_string());
        let one = ask(&[&drained, "--drain", "n0"]);
        let other = ask(&[&cordoned, "--pods", &moved.display().to_string()]);
        assert_eq!(one, other, "seed {seed}");
        placed += one.0.len();
        unplaced += one.1;
    }
    assert!(placed > 30 && unplaced > 30, "{placed} {unplaced}");
}

/// The new nodes of pods.
fn placements(effects: &Effects) -> Placements {
    let rows = effects.placed.iter();
    rows.filter_map(|row| Some((row.pod.name.to_string(), row.to.as_ref()?.to_string()))).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
