//! Properties of a whole scheduler on an API server with random faults.
//!
//! Each schedule starts with a seed, which determines the nodes, the pods, the changes and the faults, and ends without
//! faults. Once the scheduler is at rest:
//!
//! - Every pod that fits on a node, or that could preempt pods of lower priority, is bound: no pod is lost.
//! - A pod that was bound was never bound to another node afterwards, and it was sent to one only after a second try for
//!   the first: a request without an answer may be done after the scheduler has read the pod.
//! - No node was overcommitted after any of the writes.
//! - The mirror equals the server, and the engine assumes no pod that the server does not have on the node.
//! - Nothing was written before the fence was opened or after it was closed.
//!
//! A quarter of the schedules replaces the leader by a standby. The former leader continues without its fence.
//!
//! A third has pods of two priorities. `PORTOLAN_SCHEDULES` sets the number of schedules, and `PORTOLAN_SEED` runs one of
//! them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    self, Process, capacity, create_class, node, pod, request, runtime_of, seeds, server,
};
use fastrand::Rng;
use portolan::model::Uid;
use portolan_apiserver::{ApiServer, Effect, Fault};
use serde_json::{Value, json};

/// The number of schedules that run by default. `ci/nightly.sh` runs many more.
const SCHEDULES: u64 = 80;
/// The number of schedules that run at once. They wait most of the time.
const AT_ONCE: usize = 16;
/// The time between the end of a leader and the start of the next one, as the lease duration leaves it.
const VACANCY: Duration = Duration::from_secs(2);

/// One schedule.
struct Schedule {
    server: ApiServer,
    random: Rng,
    preempts: bool,
    pods: u32,
    /// The request of each pod that was created, by uid.
    requests: HashMap<String, u64>,
    /// The largest capacity of each node that was created.
    capacities: BTreeMap<String, u64>,
    /// The pods that the schedule deleted, and the number of writes before that.
    deleted: Vec<(String, usize)>,
    /// The pods that the schedule bound.
    taken: HashSet<String>,
}

impl Schedule {
    fn new(seed: u64) -> Schedule {
        let mut random = Rng::with_seed(seed);
        let server = server();
        create_class(&server, "high", 1_000);
        let mut capacities = BTreeMap::new();
        for n in 0..random.u32(10..=30) {
            let (name, capacity) = (format!("node-{n}"), random.u64(1..=4) * 1_000);
            server.create(&node(&name, capacity)).expect("created");
            capacities.insert(name, capacity);
        }
        let mut elsewhere = node("elsewhere", 1_000_000);
        elsewhere["spec"]["taints"] = json!([{"key": "other", "effect": "NoSchedule"}]);
        server.create(&elsewhere).expect("created");
        let (deleted, taken) = (Vec::new(), HashSet::new());
        let (pods, preempts, requests) = (0, seed.is_multiple_of(3), HashMap::new());
        Schedule { server, random, preempts, pods, requests, capacities, deleted, taken }
    }

    fn create_pod(&mut self) {
        self.pods += 1;
        self.create_pod_called(&format!("pod-{}", self.pods));
    }

    fn create_pod_called(&mut self, name: &str) {
        let mut pod = pod(name, self.random.u64(1..=9) * 100);
        if self.preempts && self.random.u32(0..4) == 0 {
            pod["spec"]["priorityClassName"] = json!("high");
        }
        let created = self.server.create(&pod).expect("created");
        self.requests.insert(uid(&created), request(&created));
    }

    /// Counts the writes that a client has sent.
    fn written_by(&self, agent: &str) -> usize {
        self.server.writes().iter().filter(|write| write.user_agent == agent).count()
    }

    /// Checks that the former leader wrote nothing after its fence was closed.
    fn check_former(&self) {
        let writes = self.server.writes();
        let end = writes.iter().position(|write| write.resource == "configmaps").expect("an end");
        // A request that was under way may arrive later, but long before the next leader begins.
        let last = writes[end].at + VACANCY;
        let late =
            writes[end..].iter().find(|write| write.user_agent == "first" && write.at > last);
        assert!(late.is_none(), "written without the lease: {late:?}");
    }

    fn some_pod(&mut self) -> Option<Value> {
        let name = format!("pod-{}", self.random.u32(1..=self.pods.max(1)));
        self.server.get("Pod", "default", &name).ok()
    }

    /// Deletes a pod, and perhaps creates another one of its name.
    fn delete_pod(&mut self) {
        let Some(found) = self.some_pod() else { return };
        self.deleted.push((uid(&found), self.server.write_count()));
        let name = text(&found["metadata"]["name"]);
        // A preemption may delete it first.
        let now = json!({"gracePeriodSeconds": 0});
        let _ = self.server.delete("Pod", "default", name, &now);
        if self.random.bool() {
            self.create_pod_called(name);
        }
    }

    /// Binds a pod as another scheduler would, if this one has not bound it yet.
    fn take_pod(&mut self) {
        let Some(found) = self.some_pod() else { return };
        let name = text(&found["metadata"]["name"]);
        if self.server.bind("default", name, "elsewhere").is_ok() {
            self.taken.insert(uid(&found));
        }
    }

    /// Makes random changes of objects and of the server for a while.
    fn disturb(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.u32(0..100) {
                0..60 => (0..self.random.u32(1..=4)).for_each(|_| self.create_pod()),
                60..75 => self.delete_pod(),
                75..78 => self.take_pod(),
                78..81 => {
                    let name = format!("node-{}", self.random.u32(0..10));
                    // Its pods stay.
                    let _ = self.server.delete("Node", "", &name, &Value::Null);
                }
                81..84 => {
                    let name = format!("node-{}", self.random.u32(0..10));
                    // It may exist.
                    if self.server.create(&node(&name, 4_000)).is_ok() {
                        self.capacities.insert(name, 4_000);
                    }
                }
                84 => self.server.restart(Duration::from_millis(20)).expect("restarted"),
                85..88 => self.server.reset_connections(),
                88..90 => self.server.forget_events(),
                90 => self.server.stall_cache("Pod").expect("known"),
                91 => self.server.stall_cache("Node").expect("known"),
                92..96 => self.resume_caches(),
                _ => {}
            }
            // Gives the scheduler time to do something between two changes.
            std::thread::sleep(Duration::from_millis(self.random.u64(0..12)));
        }
    }

    fn set_faults(&mut self, seed: u64) {
        let requests = [
            Effect::internal_error(),
            Effect::unavailable(),
            Effect::too_many_requests(0),
            Effect::timeout_after(),
            Effect::internal_error_after(),
            Effect::conflict(),
            Effect::Delay(Duration::from_millis(40)),
            Effect::HangBefore,
            Effect::HangAfter,
            Effect::ResetBefore,
            Effect::ResetAfter,
            Effect::CutBody(20),
        ];
        let watches = [
            Effect::gone(),
            Effect::gone_line(),
            Effect::internal_error(),
            Effect::too_many_requests(0),
            Effect::HangBefore,
            Effect::ResetBefore,
        ];
        let events = [
            Effect::gone_event(),
            Effect::EndStream,
            Effect::ResetStream,
            Effect::TruncateEvent,
            Effect::DuplicateEvent,
            Effect::DelayEvent(Duration::from_millis(20)),
        ];
        let random = &mut self.random;
        let mut faults = Vec::new();
        let mut add = |effects: &[Effect], verb: &str, resource: &str, rarity: u64| {
            let effect = random.choice(effects).expect("effects").clone();
            // A streamed list that is interrupted starts again, so one event in nine must not interrupt every attempt.
            let limit = if rarity > 2 { 5 } else { u64::MAX };
            let fault = Fault::new(effect).verb(verb).resource(resource).limit(limit);
            let often = random.u64(2..=6) * rarity;
            faults.push(match random.bool() {
                true => fault.every(often),
                false => fault.probability(1.0 / often as f64),
            });
        };
        for _ in 0..3 {
            add(&requests, "create", "pods/binding", 1);
        }
        add(&requests, "patch", "pods/status", 1);
        add(&requests, "delete", "pods", 1);
        add(&requests, "get", "pods", 1);
        add(&requests, "create", "events", 2);
        let lists = [&requests[..3], &[Effect::gone(), Effect::HangBefore, Effect::CutBody(99)]];
        for kind in ["pods", "nodes"] {
            add(&lists.concat(), "list", kind, 1);
            add(&watches, "watch", kind, 1);
            add(&events, "watch", kind, 9);
            add(&events, "watch", kind, 9);
        }
        self.server.set_faults(seed, faults);
    }

    fn end_faults(&self) {
        self.server.set_faults(0, Vec::new());
        self.resume_caches();
    }

    fn resume_caches(&self) {
        self.server.resume_cache("Pod").expect("known");
        self.server.resume_cache("Node").expect("known");
    }

    /// The CPU that each present node can give to pods.
    fn present_capacities(&self) -> BTreeMap<String, u64> {
        let nodes = self.server.objects("Node").into_iter();
        let capacity = |node: Value| {
            let name = text(&node["metadata"]["name"]).to_owned();
            (name, capacity(&node))
        };
        nodes.map(capacity).filter(|(name, _)| name != "elsewhere").collect()
    }

    /// Returns the pods that are not bound although they could be.
    fn unsettled(&self) -> Vec<String> {
        let pods = self.server.objects("Pod");
        let mut waiting = Vec::new();
        let mut placed: HashMap<&str, Vec<(i64, u64)>> = HashMap::new();
        for pod in &pods {
            let claim = (pod["spec"]["priority"].as_i64().unwrap_or(0), request(pod));
            match pod["spec"]["nodeName"].as_str() {
                Some(node) => placed.entry(node).or_default().push(claim),
                None => waiting.push((pod, claim)),
            }
        }
        let capacities = self.present_capacities();
        let fits = |(priority, wanted): (i64, u64)| {
            capacities.iter().find(|(name, capacity)| {
                let others = placed.get(name.as_str()).into_iter().flatten();
                let used: u64 =
                    others.filter(|(other, _)| *other >= priority).map(|(_, cpu)| cpu).sum();
                used + wanted <= **capacity
            })
        };
        let unsettled = waiting.into_iter().filter_map(|(pod, claim)| {
            let (node, _) = fits(claim)?;
            Some(format!("{} fits on {node}: {}", pod["metadata"]["name"], pod["status"]))
        });
        unsettled.collect()
    }

    /// Waits until every pod that fits is bound and the mirror equals the server.
    fn settle(&self, process: &Process) {
        let deadline = Instant::now() + support::PATIENCE;
        let mut pause = Duration::from_millis(10);
        loop {
            let mut left = self.unsettled();
            if left.is_empty() {
                left.extend(process.differences(&self.server));
                left.extend(self.assumed(process));
            }
            if left.is_empty() {
                return;
            }
            let live = &process.live;
            assert!(
                Instant::now() < deadline,
                "not at rest: {left:#?}\n{live:#?}\n{}",
                self.engine_view(process)
            );
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Formats what the scheduler knows, for a schedule that does not come to rest.
    fn engine_view(&self, process: &Process) -> String {
        let schedulers = process.live.schedulers();
        let snapshot = schedulers.engine().reader().expect("open").snapshot();
        let mut lines = Vec::new();
        for node in snapshot.nodes() {
            let pods = node.pods().map(|pod| (pod.name().to_string(), pod.is_assumed()));
            let pods: Vec<_> = pods.collect();
            lines.push(format!("{}: requested {:?}, pods {pods:?}", node.name(), node.requested()));
        }
        schedulers.queue().with(|queue, _| {
            for pod in self.server.objects("Pod") {
                let uid = Uid::new(&uid(&pod));
                let nominated = queue.get(&uid).and_then(|it| it.pod.nominated_node_name.clone());
                if let Some(place) = queue.place(&uid) {
                    let name = text(&pod["metadata"]["name"]);
                    lines.push(format!("{name}: {place:?}, nominated to {nominated:?}"));
                }
            }
        });
        lines.join("\n")
    }

    /// Returns the pods that the engine assumes to be on a node although the server has them on none.
    fn assumed(&self, process: &Process) -> Vec<String> {
        let snapshot = process.live.schedulers().engine().reader().expect("open").snapshot();
        let pods = self.server.objects("Pod").into_iter();
        let waiting = pods.filter(|pod| pod["spec"]["nodeName"].as_str().is_none());
        let assumed = waiting.filter(|pod| snapshot.pod(&Uid::new(&uid(pod))).is_some());
        assumed.map(|pod| format!("{} is assumed", pod["metadata"]["name"])).collect()
    }

    /// Checks the record of writes, and that it agrees with the objects.
    fn check_writes(&self) {
        let mut deleted = self.deleted.iter().peekable();
        let mut ledger = Ledger::default();
        for (index, write) in self.server.writes().iter().enumerate() {
            while let Some((uid, _)) = deleted.next_if(|(_, before)| *before <= index) {
                ledger.free(uid, &self.requests);
            }
            let body = &write.body;
            if write.resource == "pods/status" && body.to_string().contains("DisruptionTarget") {
                // Precedes the deletion of a victim.
                ledger.free(text(&body["metadata"]["uid"]), &self.requests);
            }
            if write.resource != "pods/binding" || write.user_agent == "direct" {
                continue;
            }
            let (uid, node) = (text(&body["metadata"]["uid"]), text(&body["target"]["name"]));
            if let Some(before) = ledger.nodes.get(uid) {
                assert!(!write.applied, "{} was bound twice", write.name);
                let is_late = ledger.tries[&(uid.to_owned(), before.clone())] > 1;
                assert!(before == node || is_late, "{} was sent to another node", write.name);
            }
            *ledger.tries.entry((uid.to_owned(), node.to_owned())).or_default() += 1;
            if write.applied {
                let used = ledger.bind(uid, node, &self.requests);
                let capacity = self.capacities[node];
                assert!(used <= capacity, "{node} has {capacity}m, and {used}m are bound");
            }
        }
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        for pod in self.server.objects("Pod") {
            let uid = uid(&pod);
            let node = pod["spec"]["nodeName"].as_str().filter(|_| !self.taken.contains(&uid));
            let name = &pod["metadata"]["name"];
            assert_eq!(ledger.nodes.get(&uid).map(String::as_str), node, "{name}");
            *used.entry(node.unwrap_or_default().to_owned()).or_default() += request(&pod);
        }
        for (node, capacity) in self.present_capacities() {
            let used = used.get(&node).copied().unwrap_or(0);
            assert!(used <= capacity, "{node} has {capacity}m, and pods request {used}m");
        }
    }
}

/// The bindings after a part of the writes.
#[derive(Default)]
struct Ledger {
    nodes: HashMap<String, String>,
    /// How often each pod, by uid, was sent to each node.
    tries: HashMap<(String, String), u32>,
    gone: HashSet<String>,
    used: HashMap<String, u64>,
}

impl Ledger {
    /// Records that a pod is about to be deleted.
    fn free(&mut self, uid: &str, requests: &HashMap<String, u64>) {
        if self.gone.insert(uid.to_owned())
            && let Some(node) = self.nodes.get(uid)
            && let Some(used) = self.used.get_mut(node)
        {
            *used -= requests[uid];
        }
    }

    /// Records a binding, and returns the CPU that is bound on the node.
    fn bind(&mut self, uid: &str, node: &str, requests: &HashMap<String, u64>) -> u64 {
        self.nodes.insert(uid.to_owned(), node.to_owned());
        let used = self.used.entry(node.to_owned()).or_default();
        if !self.gone.contains(uid) {
            *used += requests[uid];
        }
        *used
    }
}

/// Runs one schedule.
fn run(seed: u64) {
    let runtime = runtime_of(1);
    let mut schedule = Schedule::new(seed);
    let early = schedule.random.u32(0..30);
    (0..early).for_each(|_| schedule.create_pod());
    let mut leader = Process::start(&runtime, &schedule.server, "first", seed);
    if seed % 4 == 1 {
        // The leader decides, but may not write.
        leader.begin(&runtime);
        schedule.create_pod();
        runtime.block_on(support::until("an attempt", || leader.live.figures().not_bound > 0));
        assert_eq!(schedule.written_by("first"), 0, "the fence was closed");
        leader.fence.open();
    } else {
        schedule.set_faults(seed);
        leader.lead(&runtime);
    }
    schedule.set_faults(seed);
    let steps = schedule.random.u32(20..=60);
    schedule.disturb(steps / 2);
    let mut former = None;
    if seed % 4 == 2 {
        let mut standby = Process::start(&runtime, &schedule.server, "second", seed);
        schedule.disturb(steps / 4);
        leader.fence.close();
        let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "end"}});
        schedule.server.create(&marker).expect("created");
        std::thread::sleep(VACANCY);
        let begin = async {
            let deadline = Instant::now() + support::PATIENCE;
            schedule.resume_caches();
            let synced = standby.live.mirror().synced();
            let synced = tokio::time::timeout(support::PATIENCE, synced).await;
            synced.expect("in time").expect("synced");
            // The server fails now and then, or its cache is stalled.
            while let Err(error) = standby.live.mirror().refresh().await {
                assert!(Instant::now() < deadline, "{error}");
                schedule.resume_caches();
            }
        };
        runtime.block_on(begin);
        standby.lead(&runtime);
        former = Some(std::mem::replace(&mut leader, standby));
    }
    schedule.disturb(steps / 2);
    schedule.end_faults();
    schedule.settle(&leader);
    // One more change, which the scheduler must receive through its current watches.
    schedule.create_pod();
    schedule.settle(&leader);
    schedule.check_writes();
    if let Some(former) = former {
        schedule.check_former();
        runtime.block_on(former.live.stop(Duration::ZERO));
    }
    leader.fence.close();
    runtime.block_on(leader.live.stop(Duration::ZERO));
    runtime.shutdown_timeout(Duration::from_secs(1));
}

#[test]
fn no_pod_is_lost_or_bound_twice_and_no_node_is_overcommitted() {
    let seeds = seeds(SCHEDULES);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| run(seed))).is_err() {
                println!("seed {seed} failed");
                failed.lock().expect("seeds").push(seed);
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().expect("seeds");
    assert!(failed.is_empty(), "failed: PORTOLAN_SEED in {failed:?}");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn uid(object: &Value) -> String {
    text(&object["metadata"]["uid"]).to_owned()
}
