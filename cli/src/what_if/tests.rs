//! Questions about random clusters have the answers that replays of the same pods give.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use portolan::cache::Cluster;
use portolan::model::Pod;
use serde_json::{Value, json};

use crate::cluster::read_with;
use crate::policy;
use crate::replay::{self, Progress, Settings, Source};

use super::Arguments;
use super::answer::Answer;
use super::difference::{Effects, own};
use super::question::{Question as Asked, answer};
use super::start::{Base, Checkpoint};
use crate::policy::Rules;

#[derive(Parser)]
pub(super) struct Question {
    #[command(flatten)]
    pub(super) arguments: Arguments,
}

#[derive(Parser)]
struct Replayed {
    #[command(flatten)]
    source: Source,
}

/// The node of each pod.
type Placements = BTreeMap<String, String>;

pub(super) fn file(name: &str, items: &[Value]) -> PathBuf {
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
        let answer = answer(&question.arguments).expect("an answer").0;
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
        let config = policy::ConfigFile::default().source().read().expect("the default profile");
        let settings = Settings {
            config: &config,
            arrivals: workload.arrivals.len(),
            is_wanted: &Arc::new(AtomicBool::new(true)),
            threads: 1,
            progress: Progress::Hidden,
            metrics: None,
            keeps_samples: false,
            seed,
            follower: None,
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
            let found = answer(&Question::parse_from(question).arguments).expect("an answer").0;
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
            let found = answer(&Question::parse_from(question).arguments).expect("an answer").0;
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

/// A random cluster: pods with and without a controller, some of which share it, some pending, some being deleted.
fn cluster(random: &mut fastrand::Rng) -> Vec<Value> {
    let nodes: Vec<Value> = (0..random.usize(2..7)).map(|n| node(random, n)).collect();
    let like: Vec<Value> = (0..3).map(|_| pod(random, "like", None)).collect();
    let pods = (0..random.usize(5..25)).map(|n| {
        let name = format!("p-{n:02}");
        let on = (random.u32(0..3) > 0).then(|| format!("n{}", random.usize(0..nodes.len())));
        let mut pod = match random.usize(0..5) {
            kind @ 0..3 => {
                let mut pod = like[kind].clone();
                let owner = json!({ "kind": "ReplicaSet", "name": format!("set-{kind}"), "controller": true });
                pod["metadata"]["ownerReferences"] = json!([owner]);
                pod
            }
            3 => pod(random, &name, None),
            _ => {
                let mut pod = pod(random, &name, None);
                pod["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
                pod
            }
        };
        (pod["metadata"]["name"], pod["metadata"]["uid"]) = (json!(name), json!(name));
        if let Some(on) = on {
            pod["spec"]["nodeName"] = json!(on);
            pod["spec"].as_object_mut().expect("a spec").remove("schedulingGates");
        }
        if random.u32(0..6) == 0 {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        pod
    });
    let pods: Vec<Value> = pods.collect();
    [nodes, pods].concat()
}

/// The number of pods of each controller on each node.
type Counts = BTreeMap<(String, String), i64>;

fn owner(pod: &Pod) -> String {
    pod.template.owners.first().map_or_else(|| pod.name.to_string(), |owner| owner.name.to_string())
}

fn add(counts: &mut Counts, pod: &Pod, node: &str, by: i64) {
    let key = (owner(pod), node.to_owned());
    let count = counts.entry(key.clone()).or_default();
    *count += by;
    if *count == 0 {
        counts.remove(&key);
    }
}

/// The pods of a version by their names, and their counts.
fn placed(cluster: &Cluster) -> (BTreeMap<String, Pod>, Counts) {
    let mut counts = Counts::new();
    let pods = cluster.nodes().flat_map(|node| node.pods()).map(|info| {
        let pod = info.to_pod();
        add(&mut counts, &pod, info.node().name(), 1);
        (pod.name.to_string(), pod)
    });
    (pods.collect(), counts)
}

#[test]
fn nothing_is_an_effect_of_no_change() {
    let (mut placed, mut preempted, mut later) = (0, 0, 0);
    for seed in 300..400 {
        let items = cluster(&mut fastrand::Rng::with_seed(seed));
        let path = file(&format!("no-change-{seed}.json"), &items).display().to_string();
        let question = Question::parse_from(["x", "--cluster", &path]);
        let answer = answer(&question.arguments).expect("an answer").0;
        for effects in
            [Some(&answer.now), answer.later.as_ref().map(|(_, it)| it)].into_iter().flatten()
        {
            let lists = [&effects.placed, &effects.unplaced, &effects.lost, &effects.preempted];
            let own: Vec<_> = lists.into_iter().flat_map(|rows| own(rows)).collect();
            assert!(own.is_empty(), "seed {seed}: {own:?}");
        }
        assert!(answer.is_ok(), "seed {seed}");
        placed += answer.last().placed.len();
        preempted += answer.last().preempted.len();
        later += usize::from(answer.later.is_some());
    }
    assert!(placed > 100 && preempted > 20 && later > 50, "{placed} {preempted} {later}");
}

#[test]
fn the_effects_are_the_difference_between_two_simulations() {
    let (mut rows, mut lost) = (0, 0);
    for seed in 400..520 {
        let mut random = fastrand::Rng::with_seed(seed);
        let path =
            file(&format!("change-{seed}.json"), &cluster(&mut random)).display().to_string();
        let more = file(&format!("changed-{seed}.json"), &[pod(&mut random, "more", None)]);
        let new = file(&format!("new-{seed}.json"), &[node(&mut random, 9)]);
        let (more, new) = (more.display().to_string(), format!("2x{}", new.display()));
        let changes: [&[&str]; 5] = [
            &["--drain", "n0", "--force"],
            &["--pods", &more],
            &["--add", &new],
            &["--drain", "n1", "--add", &new, "--pods", &more],
            &["--fail-node", "n0"],
        ];
        let change = changes[random.usize(0..changes.len())];
        let question = Question::parse_from([&["x", "--cluster", &path], change].concat());
        let arguments = &question.arguments;
        let (input, added) =
            read_with(&arguments.from, &arguments.godel, &arguments.pods).expect("an input");
        let config = arguments.config.source().read().expect("a configuration");
        let loaded = input.load(&arguments.godel, Vec::new()).expect("a cluster");
        let Arguments { godel, seed, .. } = arguments;
        let rules = Rules { config: config.into(), godel: godel.clone().into(), seed: *seed };
        let (from, is_wanted) = (Arc::new(Checkpoint::of(&loaded)), Arc::default());
        let base = Base {
            rules: &rules,
            contents: &loaded.contents,
            from,
            is_wanted,
            on_failure: &|_, _| {},
        };
        base.is_wanted.store(true, Ordering::Relaxed);
        let mut baseline = base.start(None).expect("a simulation");
        let mut limits = baseline.settle(&base).expect("settled");
        baseline.end_terminating(&mut limits).expect("ended");
        limits.check(&baseline.world);
        let reader = baseline.world.simulation.engine.reader().expect("a reader");
        let (before, mut counts) = placed(&reader.snapshot());
        let without = &base.without_change().expect("outcomes").outcomes;
        let mut start = base.start(None).expect("a simulation");
        let mut answer = Answer::default();
        let question = Asked { base: &base, change: &arguments.change, without };
        let mut changed = question.change(&mut start, added, &mut answer).expect("a change");
        changed.drains.limits.check(&start.world);
        let effects = answer.last();
        for row in own(&effects.placed).chain(own(&effects.unplaced)) {
            row.from.iter().for_each(|from| add(&mut counts, &row.pod, from, -1));
            row.to.iter().for_each(|to| add(&mut counts, &row.pod, to, 1));
            rows += 1;
        }
        for row in own(&effects.lost) {
            if let Some(pod) = before.get(&*row.pod.name) {
                add(&mut counts, pod, pod.placed_on().expect("a node"), -1);
            }
            lost += 1;
        }
        assert_eq!(counts, placed(&changed.later).1, "seed {seed}: {change:?}");
    }
    assert!(rows > 100 && lost > 10, "{rows} {lost}");
}

/// The new nodes of pods.
fn placements(effects: &Effects) -> Placements {
    let rows = effects.placed.iter();
    rows.filter_map(|row| Some((row.pod.name.to_string(), row.to.as_ref()?.to_string()))).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
