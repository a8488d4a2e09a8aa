//! Runs a scenario step by step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use portolan::cache::{NodeInfo, Snapshot};
use portolan::model::{Name, Pod};
use portolan::plugin::{Code, Cycle, CycleState, Diagnosis, Feasible, Handle, Point, Status};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_dra::DynamicResources;
use portolan_dra::allocator::CelSelectors;
use portolan_dra::model::Amount;
use portolan_dra::plugin::{Backend, chosen_devices};
use portolan_dra::store::DeviceEvent;
use serde_json::{Map, Value, json};

use super::world::World;

struct Held {
    pod: Pod,
    state: CycleState,
    node: Name,
    snapshot: Arc<Snapshot>,
}

struct Run {
    world: Arc<World>,
    framework: Arc<Framework>,
    /// Decides a second time, 64 nodes at once and with caches that outlive a step.
    algorithm: Algorithm,
    held: HashMap<String, Held>,
    bound: HashMap<String, Pod>,
    shares: HashMap<String, String>,
    differences: Vec<String>,
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

/// Runs the steps up to the first one that differs. Returns the number of steps that passed, and the differences.
pub fn run(scenario: &Value) -> (usize, Vec<String>) {
    let world = Arc::new(World::new());
    let handle = Handle::default().with_snapshots(world.clone());
    let plugin = DynamicResources::new(&handle, world.clone(), Arc::new(CelSelectors::default()));
    let mut plugin = Some(plugin);
    let mut builder = Framework::builder_with(&handle);
    for (default, weight) in portolan::plugin::default_plugins(&handle) {
        let is_before = default.info().name() == "DefaultPreemption";
        if let Some(plugin) = plugin.take_if(|_| is_before) {
            builder = builder.plugin(Box::new(plugin), 2);
        }
        builder = builder.plugin(default, weight);
    }
    let framework = Arc::new(builder.build().unwrap());
    let config = AlgorithmConfig { percentage_of_nodes: 100, ..AlgorithmConfig::default() };
    let algorithm = Algorithm::new(framework.clone(), config, None);
    let mut run = Run {
        world,
        framework,
        algorithm,
        held: HashMap::new(),
        bound: HashMap::new(),
        shares: HashMap::new(),
        differences: Vec::new(),
    };
    for (list, kind) in [
        ("nodes", "Node"),
        ("deviceClasses", "DeviceClass"),
        ("resourceSlices", "ResourceSlice"),
        ("resourceClaims", "ResourceClaim"),
    ] {
        items(scenario, list).for_each(|object| run.apply(kind, object));
    }
    for pod in items(scenario, "pods") {
        let read = portolan_k8s::pod(pod).unwrap();
        run.bound.insert(read.key().to_string(), read.clone());
        run.world.writer().add_pod(read).unwrap();
    }
    let id = scenario["id"].as_str().unwrap_or_default();
    let snapshot = run.world.snapshot();
    let order: Vec<&str> = snapshot.nodes().map(|node| &**node.name()).collect();
    if json!(order) != scenario["snapshotOrder"] {
        return (0, vec![format!("{id}: snapshot order")]);
    }
    let mut passed = 0;
    for (at, step) in items(scenario, "steps").enumerate() {
        run.step(step);
        if !run.differences.is_empty() {
            let differences = run.differences.join("\n    ");
            return (passed, vec![format!("{id} step {at} {}:\n    {differences}", step["op"])]);
        }
        passed += 1;
        if step.get("anyOf").is_some_and(|any| !any.is_null()) {
            break;
        }
    }
    (passed, Vec::new())
}

impl Run {
    fn differ(&mut self, what: &str, expected: &Value, found: &Value) {
        if expected != found {
            self.differences.push(format!("{what}: expected {expected}, found {found}"));
        }
    }

    fn apply(&mut self, kind: &str, object: &Value) {
        let event = match kind {
            "Node" => {
                let node = portolan_k8s::node(object).unwrap();
                let mut writer = self.world.writer();
                let known = writer.cluster().node(&node.name).is_some();
                if known {
                    writer.update_node(node).unwrap()
                } else {
                    writer.add_node(node).unwrap()
                };
                return;
            }
            "ResourceClaim" => {
                let mut object = object.clone();
                rename_shares(&mut object, &self.shares);
                self.world.put_claim(serde_json::from_value(object).unwrap());
                return;
            }
            "DeviceClass" => {
                DeviceEvent::PutClass(Arc::new(serde_json::from_value(object.clone()).unwrap()))
            }
            "ResourceSlice" => {
                DeviceEvent::PutSlice(Arc::new(serde_json::from_value(object.clone()).unwrap()))
            }
            other => panic!("{other}"),
        };
        self.world.submit(event).unwrap();
    }

    fn step(&mut self, step: &Value) {
        let text = |key: &str| step[key].as_str().unwrap_or_default().to_owned();
        let before = self.world.claims();
        *self.world.driver.lock().unwrap() = text("driver");
        *self.world.pod_status.lock().unwrap() = None;
        let key = format!("{}/{}", text("namespace"), text("name"));
        match &*text("op") {
            "apply" => return self.apply(&text("kind"), &step["object"]),
            "delete" => {
                match &*text("kind") {
                    "Pod" => {
                        let pod = self.bound.remove(&key).unwrap();
                        self.world.writer().remove_pod(&pod).unwrap();
                    }
                    "ResourceClaim" => self.world.delete_claim(&text("namespace"), &text("name")),
                    "ResourceSlice" => {
                        let event = DeviceEvent::DeleteSlice(text("name").into());
                        self.world.submit(event).unwrap();
                    }
                    other => panic!("{other}"),
                }
                return;
            }
            "schedule" => self.schedule(step),
            "bind" => {
                let held = self.held.remove(&key).unwrap();
                self.bind(step, held);
            }
            "unreserve" => {
                let held = self.held.remove(&key).unwrap();
                self.undo(&held);
            }
            other => panic!("{other}"),
        }
        if step.get("anyOf").is_some_and(|any| !any.is_null()) {
            return;
        }
        let (changed, deleted) = self.world.changes(&before);
        let mut expected: BTreeMap<String, Value> = BTreeMap::new();
        for claim in items(step, "claims") {
            let name = |of: &str| claim["metadata"][of].as_str().unwrap_or_default();
            expected.insert(format!("{}/{}", name("namespace"), name("name")), claim.clone());
        }
        let keys: BTreeSet<&String> = expected.keys().chain(changed.keys()).collect();
        for key in keys {
            let found = changed.get(key).map(|claim| serde_json::to_value(claim).unwrap());
            let found = found.unwrap_or_default();
            let wanted = expected.get(key).cloned().unwrap_or_default();
            learn_shares(&wanted, &found, &mut self.shares);
            self.differ(&format!("claim {key}"), &normal(wanted, ""), &normal(found, ""));
        }
        let wanted: BTreeSet<&str> = items(step, "deleted").filter_map(Value::as_str).collect();
        self.differ("deleted", &json!(wanted), &json!(deleted));
        let found = self.world.pod_status.lock().unwrap().clone().unwrap_or_default();
        self.differ("podStatus", &step["podStatus"], &found);
    }

    fn schedule(&mut self, step: &Value) {
        let pod = portolan_k8s::pod(&step["pod"]).unwrap();
        let gate = self.framework.pre_enqueue(&pod).err();
        self.differ("preEnqueue", &normal(step["preEnqueue"].clone(), ""), &status(gate.as_ref()));
        let snapshot = self.world.snapshot();
        let state = CycleState::default();
        let again = self.algorithm.state();
        let again = self.algorithm.decide_without_preemption(Cycle::new(&snapshot, &pod, &again));
        match again {
            Ok(decision) => {
                let is_best = items(step, "best").any(|name| *name == *decision.node);
                self.differ("a best node is chosen", &json!(true), &json!(is_best));
            }
            Err(failure) if step["message"].is_string() => {
                self.differ(
                    "message of the algorithm",
                    &step["message"],
                    &json!(failure.to_string()),
                );
            }
            // Which of several errors is reported depends on the order of the nodes.
            Err(_) => self.differ("the algorithm fails", &json!(null), &step["host"]),
        }
        let Some(node) = self.decide(step, &snapshot, &pod, &state) else { return };
        self.differ("host", &step["host"], &json!(&*node));
        if !self.differences.is_empty() {
            return;
        }
        self.world.writer().assume_pod(pod.clone().on(node.clone())).unwrap();
        let reserved = self.framework.reserve(Cycle::new(&snapshot, &pod, &state), &node);
        self.differ(
            "reserve",
            &normal(step["reserve"].clone(), ""),
            &status(reserved.as_ref().err()),
        );
        let held = Held { pod, state, node, snapshot };
        match (reserved, step["held"] == true) {
            (Err(_), _) => self.undo(&held),
            (Ok(()), true) => drop(self.held.insert(held.pod.key().to_string(), held)),
            (Ok(()), false) => self.bind(step, held),
        }
    }

    fn bind(&mut self, step: &Value, held: Held) {
        let bound = {
            let cycle = Cycle::new(&held.snapshot, &held.pod, &held.state);
            self.framework.pre_bind(cycle, &held.node)
        };
        self.differ("preBind", &normal(step["preBind"].clone(), ""), &status(bound.as_ref().err()));
        self.differ("bound", &json!(step["bound"] == true), &json!(bound.is_ok()));
        match bound {
            Err(_) => self.undo(&held),
            Ok(()) => {
                let pod = held.pod.on(held.node);
                self.world.writer().add_pod(pod.clone()).unwrap();
                self.bound.insert(pod.key().to_string(), pod);
            }
        }
    }

    fn undo(&mut self, held: &Held) {
        let cycle = Cycle::new(&held.snapshot, &held.pod, &held.state);
        self.framework.unreserve(cycle, &held.node);
        let pod = held.pod.clone().on(held.node.clone());
        self.world.writer().forget_pod(&pod).unwrap();
    }

    fn decide(
        &mut self,
        step: &Value,
        snapshot: &Snapshot,
        pod: &Pod,
        state: &CycleState,
    ) -> Option<Name> {
        let mut all = std::mem::take(&mut self.differences);
        let mut differ = |what: &str, expected: &Value, found: &Value| {
            if expected != found {
                all.push(format!("{what}: expected {expected}, found {found}"));
            }
        };
        let cycle = Cycle::new(snapshot, pod, state);
        let filters = self.framework.pre_filter(cycle);
        let rejected = filters.rejected().cloned();
        differ("preFilter", &normal(step["preFilter"].clone(), ""), &status(rejected.as_ref()));
        let mut nodes: Vec<NodeInfo<'_>> = Vec::new();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut error = None;
        if rejected.is_none() {
            for node in snapshot.nodes() {
                let expected = &step["nodes"][&**node.name()];
                let found = filters.filter(node);
                if let Some(found) = &found {
                    if found.code == Code::Error {
                        error.get_or_insert_with(|| found.message());
                    }
                    found
                        .reasons
                        .iter()
                        .for_each(|why| *reasons.entry(why.clone()).or_default() += 1);
                    differ(node.name(), &normal(expected.clone(), ""), &status(Some(found)));
                    continue;
                }
                nodes.push(node);
                let mut wanted = expected.clone();
                if let Some(wanted) = wanted.as_object_mut() {
                    wanted.remove("scores");
                    wanted.remove("total");
                }
                if let Some(devices) = wanted.get_mut("devices") {
                    let lines = devices.as_array().into_iter().flatten();
                    *devices =
                        lines.map(|line| normal_line(line.as_str().unwrap_or_default())).collect();
                }
                let mut found = json!({ "code": "Success" });
                let lines = devices(state, node.name());
                if !lines.is_empty() {
                    found["devices"] = json!(lines);
                }
                differ(node.name(), &normal(wanted, ""), &normal(found, ""));
            }
        }
        differ("error", &step["error"], &error.clone().map_or(Value::Null, |text| json!(text)));
        if error.is_some() || rejected.as_ref().is_some_and(|status| status.code == Code::Error) {
            self.differences = all;
            return None;
        }
        if nodes.is_empty() {
            let mut fit = portolan::FitError::new(snapshot.nodes().count());
            fit.reasons = reasons;
            fit.pre_filter = rejected;
            differ("message", &step["message"], &json!(fit.to_string()));
            let diagnosis = Diagnosis::new(&filters);
            let mut found: Option<Status> = None;
            for (plugin, _) in self.framework.plugins_at(Point::PostFilter) {
                let (_, status) = plugin.post_filter(cycle, &diagnosis);
                let Some(status) = status else { continue };
                match &mut found {
                    None => {
                        let plugin = plugin.info().name();
                        found = Some(Status { plugin, ..status });
                    }
                    Some(found) => found.reasons.extend(status.reasons),
                }
            }
            differ("postFilter", &normal(step["postFilter"].clone(), ""), &status(found.as_ref()));
            self.differences = all;
            return None;
        }
        let mut lanes = Vec::new();
        for node in &nodes {
            let (chunk, lane) = node.place();
            lanes.push((chunk, 1_u64 << lane));
        }
        let feasible = Feasible::new(snapshot, lanes);
        let scores = self.framework.pre_score(cycle, &feasible).unwrap().score(&nodes).unwrap();
        let mut totals = Vec::new();
        for (node, scores) in nodes.iter().zip(&scores) {
            let expected = &step["nodes"][&**node.name()];
            let mut found = Map::new();
            for score in scores {
                found.insert(score.plugin.to_owned(), json!(score.weighted));
            }
            differ(&format!("{} scores", node.name()), &expected["scores"], &Value::Object(found));
            let total: i64 = scores.iter().map(|score| score.weighted).sum();
            differ(&format!("{} total", node.name()), &expected["total"], &json!(total));
            totals.push(total);
        }
        let largest = totals.iter().max().copied().unwrap_or_default();
        let best: BTreeSet<&str> = nodes
            .iter()
            .zip(&totals)
            .filter(|(_, total)| **total == largest)
            .map(|(node, _)| &**node.name())
            .collect();
        let wanted: BTreeSet<&str> = items(step, "best").filter_map(Value::as_str).collect();
        differ("best", &json!(wanted), &json!(best));
        self.differences = all;
        let host = heap_root(&totals);
        Some(nodes[host].name().clone())
    }
}

/// The root of Go's heap over the scores.
fn heap_root(totals: &[i64]) -> usize {
    let mut heap: Vec<usize> = (0..totals.len()).collect();
    for start in (0..heap.len() / 2).rev() {
        let mut at = start;
        loop {
            let mut child = 2 * at + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && totals[heap[child + 1]] > totals[heap[child]] {
                child += 1;
            }
            if totals[heap[child]] <= totals[heap[at]] {
                break;
            }
            heap.swap(at, child);
            at = child;
        }
    }
    heap[0]
}

/// The devices that Filter chose, as the vectors write them.
fn devices(state: &CycleState, node: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    for of in chosen_devices(state, node).into_iter().flatten() {
        for result in of.devices {
            let mut line = format!(
                "{} {} {}/{}/{}",
                of.claim.name(),
                result.request,
                result.driver,
                result.pool,
                result.device
            );
            if result.admin_access == Some(true) {
                line += " admin";
            }
            if result.share_id.is_some() {
                let amounts = result.consumed_capacity.iter();
                let amounts: Vec<String> =
                    amounts.map(|(name, amount)| format!("{name}={}", amount.text())).collect();
                line += &format!(" shared {}", amounts.join(","));
            }
            lines.push(normal_line(&line));
        }
    }
    lines
}

/// A line with canonical quantities.
fn normal_line(line: &str) -> Value {
    let Some((head, amounts)) = line.split_once(" shared") else { return json!(line) };
    let mut amounts: Vec<String> = amounts
        .trim()
        .split(',')
        .filter(|text| !text.is_empty())
        .map(|text| {
            let (name, amount) = text.split_once('=').unwrap();
            format!("{name}={}", Amount::parse(amount).unwrap().quantity())
        })
        .collect();
    amounts.sort();
    json!(format!("{head} shared {}", amounts.join(",")))
}

fn status(status: Option<&Status>) -> Value {
    let Some(status) = status else { return Value::Null };
    let mut found = json!({ "code": status.code.as_str(), "reasons": status.reasons });
    if !status.plugin.is_empty() && status.code != Code::Error {
        found["plugin"] = json!(status.plugin);
    }
    normal(found, "")
}

/// A value without empty parts, with canonical quantities and without data that differ by chance.
fn normal(value: Value, key: &str) -> Value {
    match value {
        Value::Object(map) => {
            let mut out = Map::new();
            let is_error = map.get("code").is_some_and(|code| code == "Error");
            for (name, value) in map {
                if matches!(&*name, "resourceVersion" | "allocationTimestamp")
                    || (is_error && name == "plugin")
                {
                    continue;
                }
                let value = match &*name {
                    "shareID" => json!("share"),
                    _ if matches!(key, "consumedCapacity" | "capacity.requests") => {
                        let text = value.as_str().unwrap_or_default();
                        json!(Amount::parse(text).unwrap().quantity().to_string())
                    }
                    "requests" if key == "capacity" => normal(value, "capacity.requests"),
                    _ => normal(value, &name),
                };
                let is_empty = value.is_null()
                    || value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                if !is_empty {
                    out.insert(name, value);
                }
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        Value::Array(list) => {
            let mut list: Vec<Value> = list.into_iter().map(|value| normal(value, key)).collect();
            if key == "reasons" {
                list.sort_by_key(Value::to_string);
            }
            Value::Array(list)
        }
        other => other,
    }
}

/// Remembers which share of the vectors is which share here.
fn learn_shares(expected: &Value, found: &Value, shares: &mut HashMap<String, String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (name, value) in expected {
                let Some(other) = found.get(name) else { continue };
                match (&**name, value.as_str(), other.as_str()) {
                    ("shareID", Some(theirs), Some(own)) => {
                        shares.insert(theirs.to_owned(), own.to_owned());
                    }
                    _ => learn_shares(value, other, shares),
                }
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.iter().zip(found).for_each(|(a, b)| learn_shares(a, b, shares));
        }
        _ => {}
    }
}

fn rename_shares(value: &mut Value, shares: &HashMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match (&**name, value.as_str().and_then(|text| shares.get(text))) {
                    ("shareID", Some(own)) => *value = json!(own),
                    _ => rename_shares(value, shares),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename_shares(value, shares)),
        _ => {}
    }
}
