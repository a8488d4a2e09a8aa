//! Preemption storms: many preemptors on full nodes, through an API server that is slow, refuses requests and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Effect, Fault, Kubelet, Options, Write};
use serde_json::{Value, json};

use super::{LiveConfig, LiveScheduler};
use crate::write::Fence;

/// The longest time for which a storm may last.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the objects of the server are read, which copies all of them.
const POLL: Duration = Duration::from_millis(50);

/// The pods of one cpu on each node.
const SLOTS: usize = 4;

/// What the API server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Writes and watches are slow.
    Slow,
    /// Some reads, patches and deletions are refused as well.
    Refusing,
    /// The server restarts during the storm.
    Restarting,
}

impl Weather {
    fn faults(self) -> Vec<Fault> {
        let late = |ms| Fault::new(Effect::DelayEvent(Duration::from_millis(ms))).resource("pods");
        let slow = vec![late(30).verb("watch").probability(0.02)];
        let refused = |verb: &str, effect| Fault::new(effect).verb(verb).probability(0.1);
        match self {
            Weather::Slow | Weather::Restarting => slow,
            Weather::Refusing => [
                refused("get", Effect::unavailable()).resource("pods"),
                refused("patch", Effect::internal_error()).resource("pods/status"),
                refused("delete", Effect::internal_error()).resource("pods"),
            ]
            .into_iter()
            .chain(slow)
            .collect(),
        }
    }
}

fn pod(name: &str, storm: usize, cpu: usize, priority: i32, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "priority": priority, "nodeName": node, "nodeSelector": {"storm": storm.to_string()},
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "c", "image": "registry.example.com/pause:1",
                "resources": {"requests": {"cpu": cpu.to_string()}},
            }],
        },
    })
}

/// The storms of a cluster: the cpus that the preemptors of each need, and their names.
#[derive(Default)]
struct Storms {
    needed: BTreeMap<usize, usize>,
    preemptors: BTreeSet<String>,
}

/// Fills the nodes of each storm, and returns its preemptors. They need at most half of the cpus, so that two cpus can
/// be freed on some node until the end, wherever the others are.
fn fill(server: &ApiServer, random: &mut fastrand::Rng, storms: usize) -> (Storms, Vec<Value>) {
    let (mut all, mut preemptors) = (Storms::default(), Vec::new());
    for storm in 0..storms {
        let nodes = random.usize(1..6);
        for n in 0..nodes {
            let name = format!("s{storm}-n{n}");
            let amounts = json!({"cpu": SLOTS.to_string(), "memory": "8Gi", "pods": "110"});
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"storm": storm.to_string()}},
                "status": {"capacity": amounts, "allocatable": amounts},
            });
            server.create(&node).expect("created");
            for slot in 0..SLOTS {
                let low = format!("low-{storm}-{n}-{slot}");
                server.create(&pod(&low, storm, 1, 0, Some(&name))).expect("created");
            }
        }
        let mut left = nodes * SLOTS / 2;
        let mut needed = 0;
        while left > 0 && random.usize(..8) > 0 {
            let cpu = random.usize(1..=left.min(2));
            let name = format!("high-{storm}-{needed}");
            preemptors.push(pod(&name, storm, cpu, 1_000, None));
            all.preemptors.insert(name);
            (left, needed) = (left - cpu, needed + cpu);
        }
        all.needed.insert(storm, needed);
    }
    random.shuffle(&mut preemptors);
    (all, preemptors)
}

/// Waits until all preemptors are bound.
async fn bound(server: &ApiServer, storms: &Storms, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pods = server.objects("Pod");
        let is_left = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            storms.preemptors.contains(name) && pod["spec"]["nodeName"].is_null()
        };
        let left: Vec<&Value> = pods.iter().filter(is_left).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {} left, such as {:#}", left.len(), left[0]);
        tokio::time::sleep(POLL).await;
    }
}

/// The writes of a storm.
fn log(writes: &[Write], storm: usize) -> String {
    let is_of_storm = |name: &str| {
        ["low", "high"].iter().any(|kind| name.starts_with(&format!("{kind}-{storm}-")))
    };
    let of_storm = writes.iter().filter(|write| is_of_storm(&write.name));
    let lines = of_storm.map(|write| {
        let Write { at, verb, resource, name, code, body, .. } = write;
        let node = [&body["status"]["nominatedNodeName"], &body["target"]["name"]];
        let nodes: Vec<String> =
            node.into_iter().filter(|node| !node.is_null()).map(Value::to_string).collect();
        format!("{} ms {verb} {resource} {name} {} {code}\n", at.as_millis(), nodes.join(""))
    });
    lines.collect()
}

/// Runs a cluster with several storms at once.
async fn run(seed: u64, weather: Weather, storms: usize) {
    let what = format!("seed {seed}, {weather:?}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = ApiServer::start(Options {
        controllers: false,
        write_delay: Duration::from_millis(random.u64(0..8)),
        admits_priorities: false,
        ..Options::default()
    });
    let server = server.expect("started");
    let (all, preemptors) = fill(&server, &mut random, storms);
    let stop_after = Duration::from_millis(random.u64(0..20));
    let _kubelets = Kubelet::start(&server, stop_after);
    // A pod that has not started is less important than others, and becomes more important when it starts.
    let has_started = |pod: &Value| !pod["status"]["startTime"].is_null();
    while !server.objects("Pod").iter().all(has_started) {
        tokio::time::sleep(POLL).await;
    }
    let api = crate::testing::api(&server.url());
    let live = LiveScheduler::start(api, Fence::opened(), LiveConfig::default());
    let mut live = live.expect("started");
    live.mirror().synced().await.expect("synced");
    live.begin().expect("begun");
    server.set_faults(seed, weather.faults());
    drop(server.take_writes());
    for (at, preemptor) in preemptors.iter().enumerate() {
        server.create(preemptor).expect("created");
        if weather == Weather::Restarting && at == preemptors.len() / 2 {
            tokio::time::sleep(Duration::from_millis(random.u64(0..30))).await;
            server.restart(Duration::from_millis(50)).expect("restarted");
        }
    }
    bound(&server, &all, &what).await;
    live.stop(Duration::from_secs(20)).await;
    server.set_faults(0, Vec::new());
    let writes = server.writes();
    let deletions =
        writes.iter().filter(|write| write.verb == "delete" && write.resource == "pods");
    // How often each victim was deleted by the scheduler, and how many deletions were refused for another reason.
    let mut deleted: BTreeMap<&str, usize> = BTreeMap::new();
    for write in deletions.filter(|write| write.user_agent != "direct") {
        let is_refused = weather != Weather::Slow && !write.applied;
        if !is_refused {
            *deleted.entry(&write.name).or_default() += 1;
        }
    }
    let twice: Vec<_> = deleted.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{what}: deleted twice {twice:?}");
    for (storm, needed) in &all.needed {
        let of_storm = format!("low-{storm}-");
        let victims = deleted.keys().filter(|name| name.starts_with(&of_storm)).count();
        let log = || log(&writes, *storm);
        assert!(
            victims == *needed,
            "{what}: {victims} of {needed} victims of storm {storm}:\n{}",
            log()
        );
    }
}

/// As many victims as the preemptors need, none deleted twice, no preemptor left. 8 clusters with 25 storms each;
/// `PORTOLAN_STORMS` sets the number of clusters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preemption_storms_evict_each_victim_once_and_no_more_than_needed() {
    let weathers = [Weather::Slow, Weather::Refusing, Weather::Restarting, Weather::Slow];
    let clusters = std::env::var("PORTOLAN_STORMS").ok().and_then(|number| number.parse().ok());
    for (seed, weather) in (0..clusters.unwrap_or(8)).zip(weathers.into_iter().cycle()) {
        run(seed, weather, 25).await;
    }
}
