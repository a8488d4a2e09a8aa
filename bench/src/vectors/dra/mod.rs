//! Vectors of dynamic resource allocation: pods with claims that are scheduled, bound and undone step by step.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | runs the steps of a scenario |
//! | `attempt.rs` | compares one scheduling attempt |
//! | `world.rs` | the engine and the API server of a scenario |
//! | `normal.rs` | values without what differs by chance |

mod attempt;
mod normal;
mod world;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use portolan::cache::{Event, Snapshot};
use portolan::model::{Name, Pod};
use portolan::plugin::{Cycle, CycleState, Handle, Snapshots};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_dra::model::ResourceClaim;
use portolan_dra::plugin::Backend;
use portolan_dra::store::DeviceEvent;
use portolan_k8s::config::{Configuration, Registry};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Tally;
use super::scheduling::items;
use normal::{learn_shares, normal, rename_shares};
use world::World;

/// A pod that is assumed on a node, until it is bound or undone.
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
    /// The ids of shares here, by those of the vectors.
    shares: HashMap<String, String>,
    differences: Vec<String>,
}

/// Runs a scenario up to the first step that differs, or that has several right answers.
pub(super) fn run(scenario: &Value, tally: &mut Tally) -> Result<(), String> {
    let mut run = Run::new()?;
    for (list, kind) in [
        ("nodes", "Node"),
        ("deviceClasses", "DeviceClass"),
        ("resourceSlices", "ResourceSlice"),
        ("resourceClaims", "ResourceClaim"),
    ] {
        for object in items(scenario, list) {
            run.apply(kind, object).map_err(|error| format!("{list}: {error}"))?;
        }
    }
    for pod in items(scenario, "pods") {
        let read = super::pod(pod).map_err(|error| format!("pods: {error}"))?;
        run.bound.insert(read.key().to_string(), read.clone());
        run.world.write(|writer| writer.add_pod(read))?;
    }
    let id = scenario["id"].as_str().unwrap_or_default();
    let snapshot = run.world.snapshot();
    let order: Vec<&str> = snapshot.nodes().map(|node| &**node.name()).collect();
    run.differ("snapshotOrder", &scenario["snapshotOrder"], &json!(order));
    for (at, step) in items(scenario, "steps").enumerate() {
        let place = format!("{id} step {at} {}", step["op"]);
        run.step(step).map_err(|error| format!("{place}: {error}"))?;
        tally.case(&place, &run.differences);
        if !run.differences.is_empty() || has_several_answers(step) {
            break;
        }
    }
    Ok(())
}

fn has_several_answers(step: &Value) -> bool {
    step.get("anyOf").is_some_and(|any| !any.is_null())
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    T::deserialize(object).map_err(|error| error.to_string())
}

impl Run {
    fn new() -> Result<Run, String> {
        let world = Arc::new(World::new());
        let handle = Handle::default().with_snapshots(world.clone());
        let registry = Registry::of_cluster(world.clone());
        let read = Configuration::read(Configuration::DEFAULT, &registry, &handle);
        let profiles = read.map_err(|error| error.to_string())?.profiles;
        let profile = profiles.into_iter().next().ok_or("no profile")?;
        let framework = Arc::new(profile.framework);
        let config = AlgorithmConfig { percentage_of_nodes: 100, ..AlgorithmConfig::default() };
        Ok(Run {
            world,
            algorithm: Algorithm::new(framework.clone(), config, None),
            framework,
            held: HashMap::new(),
            bound: HashMap::new(),
            shares: HashMap::new(),
            differences: Vec::new(),
        })
    }

    fn differ(&mut self, what: &str, expected: &Value, found: &Value) {
        if expected != found {
            self.differences.push(format!("{what}: expected {expected}, found {found}"));
        }
    }

    fn apply(&mut self, kind: &str, object: &Value) -> Result<(), String> {
        match kind {
            "Node" => {
                let node = super::node(object)?;
                self.world.write(|writer| match writer.cluster().node(&node.name).is_some() {
                    true => writer.update_node(node).map(drop),
                    false => writer.add_node(node).map(drop),
                })
            }
            "ResourceClaim" => {
                let mut object = object.clone();
                rename_shares(&mut object, &self.shares);
                self.world.put_claim(read(&object)?).map(drop)
            }
            "DeviceClass" => self.world.submit(DeviceEvent::PutClass(read(object).map(Arc::new)?)),
            "ResourceSlice" => {
                self.world.submit(DeviceEvent::PutSlice(read(object).map(Arc::new)?))
            }
            other => Err(format!("unknown kind {other:?}")),
        }
    }

    fn step(&mut self, step: &Value) -> Result<(), String> {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        let before = self.world.claims();
        self.world.begin(text("driver"));
        let key = format!("{}/{}", text("namespace"), text("name"));
        let held = |held: &mut HashMap<String, Held>| {
            held.remove(&key).ok_or_else(|| format!("pod {key} is not held"))
        };
        match text("op") {
            "apply" => return self.apply(text("kind"), &step["object"]),
            "delete" => return self.delete(step, &key),
            "schedule" => self.schedule(step)?,
            "bind" => {
                let held = held(&mut self.held)?;
                self.bind(step, held)?;
            }
            "unreserve" => {
                let held = held(&mut self.held)?;
                self.undo(&held)?;
            }
            other => return Err(format!("unknown op {other:?}")),
        }
        if !has_several_answers(step) {
            self.compare_claims(step, &before);
        }
        Ok(())
    }

    fn delete(&mut self, step: &Value, key: &str) -> Result<(), String> {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        match text("kind") {
            "Pod" => {
                let pod =
                    self.bound.remove(key).ok_or_else(|| format!("pod {key} is not bound"))?;
                self.world.write(|writer| writer.remove_pod(&pod).map(drop))
            }
            "ResourceClaim" => self.world.delete_claim(text("namespace"), text("name")),
            "ResourceSlice" => self.world.submit(DeviceEvent::DeleteSlice(text("name").into())),
            other => Err(format!("unknown kind {other:?}")),
        }
    }

    /// Compares the claims that the step has changed and deleted, and the status of the pod.
    fn compare_claims(&mut self, step: &Value, before: &BTreeMap<String, ResourceClaim>) {
        let (changed, deleted) = self.world.changes(before);
        let key = |claim: &Value| {
            let name = |of: &str| claim["metadata"][of].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", name("namespace"), name("name"))
        };
        let expected: BTreeMap<String, &Value> =
            items(step, "claims").map(|claim| (key(claim), claim)).collect();
        for key in expected.keys().chain(changed.keys()).collect::<BTreeSet<_>>() {
            let found = changed.get(key).and_then(|claim| serde_json::to_value(claim).ok());
            let (expected, found) = (expected.get(key), found.unwrap_or_default());
            let expected = expected.copied().cloned().unwrap_or_default();
            learn_shares(&expected, &found, &mut self.shares);
            self.differ(&format!("claim {key}"), &normal(&expected), &normal(&found));
        }
        let expected: BTreeSet<&str> = items(step, "deleted").filter_map(Value::as_str).collect();
        self.differ("deleted", &json!(expected), &json!(deleted));
        let found = self.world.pod_status();
        self.differ("podStatus", &step["podStatus"], &found);
    }

    fn bind(&mut self, step: &Value, held: Held) -> Result<(), String> {
        let cycle = Cycle::new(&held.snapshot, &held.pod, &held.state);
        let bound = self.framework.pre_bind(cycle, &held.node);
        let found = attempt::status(bound.as_ref().err());
        self.differ("preBind", &normal(&step["preBind"]), &found);
        self.differ("bound", &json!(step["bound"] == true), &json!(bound.is_ok()));
        if bound.is_err() {
            return self.undo(&held);
        }
        let pod = held.pod.on(held.node);
        self.world.write(|writer| writer.add_pod(pod.clone()))?;
        self.bound.insert(pod.key().to_string(), pod);
        Ok(())
    }

    fn undo(&mut self, held: &Held) -> Result<(), String> {
        let cycle = Cycle::new(&held.snapshot, &held.pod, &held.state);
        self.framework.unreserve(cycle, &held.node);
        let pod = held.pod.clone().on(held.node.clone());
        self.world.write(|writer| writer.apply(&Event::forget(&pod)).map(drop))
    }
}
