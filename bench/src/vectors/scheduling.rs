//! Scheduling vectors: for one pod, the verdict on each node (the first plugin that rejects
//! it with code and reasons, or all scores) and the message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan::Framework;
use portolan::cache::{Config, Engine, Snapshot};
use portolan::plugin::{Evaluation, Handle, Status};
use portolan_k8s::config::{Configuration, Registry};
use serde_json::Value;

use super::Tally;

/// The lists of objects other than pods and nodes, and their kinds.
const OBJECTS: [(&str, &str); 13] = [
    ("namespaces", "Namespace"),
    ("services", "Service"),
    ("replicationControllers", "ReplicationController"),
    ("replicaSets", "ReplicaSet"),
    ("statefulSets", "StatefulSet"),
    ("persistentVolumes", "PersistentVolume"),
    ("persistentVolumeClaims", "PersistentVolumeClaim"),
    ("storageClasses", "StorageClass"),
    ("csiNodes", "CSINode"),
    ("volumeAttachments", "VolumeAttachment"),
    ("csiDrivers", "CSIDriver"),
    ("csiStorageCapacities", "CSIStorageCapacity"),
    ("pdbs", "PodDisruptionBudget"),
];

/// A cluster and the framework of a scenario.
pub(super) struct Scene {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) framework: Framework,
}

impl Scene {
    pub(super) fn read(scenario: &Value) -> Result<Scene, String> {
        let lists = OBJECTS.iter().map(|(list, _)| *list).chain(["nodes", "pods", "cases"]);
        for list in lists {
            if !matches!(scenario[list], Value::Null | Value::Array(_)) {
                return Err(format!("{list:?} is not a list"));
            }
        }
        let (mut writer, reader) = Engine::inline(Config::default());
        for (list, kind) in OBJECTS {
            for value in items(scenario, list) {
                let object =
                    super::object(kind, value).map_err(|error| format!("{list}: {error}"))?;
                writer.put_object(object).map_err(|error| format!("{list}: {error}"))?;
            }
        }
        for value in items(scenario, "nodes") {
            let node = super::node(value).map_err(|error| format!("nodes: {error}"))?;
            writer.add_node(node).map_err(|error| format!("nodes: {error}"))?;
        }
        for value in items(scenario, "pods") {
            let pod = super::pod(value).map_err(|error| format!("pods: {error}"))?;
            writer.add_pod(pod).map_err(|error| format!("pods: {error}"))?;
        }
        writer.publish();
        let framework = match scenario["config"].as_str() {
            None => Framework::default_profile(),
            Some(config) => {
                let read = Configuration::read(config, &Registry::in_tree(), &Handle::default());
                let profiles = read.map_err(|error| format!("config: {error}"))?.profiles;
                profiles.into_iter().next().ok_or("config: no profile")?.framework
            }
        };
        Ok(Scene { snapshot: reader.snapshot(), framework })
    }
}

pub(super) fn run(scenario: &Value, tally: &mut Tally) -> Result<(), String> {
    let Scene { snapshot, framework } = Scene::read(scenario)?;
    let id = scenario["id"].as_str().unwrap_or_default();
    if let Some(order) = scenario.get("snapshotOrder") {
        let found: Vec<&str> = snapshot.nodes().map(|node| &**node.name()).collect();
        let found = serde_json::json!(found);
        let differences = match *order == found {
            true => Vec::new(),
            false => vec![format!("snapshotOrder: expected {order}, found {found}")],
        };
        if !differences.is_empty() {
            tally.case(&id, &differences);
        }
    }
    for (at, case) in items(scenario, "cases").enumerate() {
        let differences = compare(&framework, &snapshot, case)
            .map_err(|error| format!("case {at} of {id}: {error}"))?;
        tally.case(&format!("{id} case {at}"), &differences);
    }
    Ok(())
}

/// The items of a list; none if it is absent or null.
pub(super) fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

fn compare(
    framework: &Framework,
    snapshot: &Snapshot,
    case: &Value,
) -> Result<Vec<String>, String> {
    let pod = super::pod(&case["pod"]).map_err(|error| format!("pod: {error}"))?;
    let found = framework.evaluate(snapshot, &pod);
    let mut differences = Vec::new();
    let mut differ = |what: &str, expected: String, found: String| {
        if expected != found {
            differences.push(format!("{what}: expected {expected}, found {found}"));
        }
    };
    let pre_filter = found.rejected.as_ref().and_then(|error| error.pre_filter.as_ref());
    let expected = case.get("preFilter").filter(|status| !status.is_null());
    differ(
        "preFilter",
        expected.map(written).unwrap_or_default(),
        pre_filter.map(status_text).unwrap_or_default(),
    );
    let empty = serde_json::Map::new();
    let nodes = case["nodes"].as_object().unwrap_or(&empty);
    // If PreFilter rejects the pod, the vectors have no verdicts on nodes.
    let found_nodes = found.nodes.keys().filter(|_| pre_filter.is_none()).map(|name| &**name);
    let names: BTreeSet<&str> = nodes.keys().map(|name| &**name).chain(found_nodes).collect();
    for name in names {
        let expected = nodes.get(name).map(written).unwrap_or_default();
        differ(name, expected, verdict(&found, name));
    }
    let message = case["message"].as_str().unwrap_or_default();
    let error = found.rejected.as_ref().map(ToString::to_string).unwrap_or_default();
    differ("message", message.to_owned(), error);
    Ok(differences)
}

/// A status or scores in the format of the vectors.
fn written(value: &Value) -> String {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    if text("code") == "Success" {
        let scores: BTreeMap<&str, i64> = value["scores"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(plugin, _)| *plugin != "DynamicResources")
            .map(|(plugin, score)| (&**plugin, score.as_i64().unwrap_or(i64::MIN)))
            .collect();
        return format!("{scores:?} = {}", value["total"].as_i64().unwrap_or(0));
    }
    let reasons: BTreeSet<&str> = items(value, "reasons").filter_map(Value::as_str).collect();
    format!("{} by {:?}: {reasons:?}", text("code"), text("plugin"))
}

fn status_text(status: &Status) -> String {
    let reasons: BTreeSet<&str> = status.reasons.iter().map(|reason| &**reason).collect();
    format!("{} by {:?}: {reasons:?}", status.code.as_str(), status.plugin)
}

fn verdict(found: &Evaluation, name: &str) -> String {
    let Some(verdict) = found.nodes.get(name) else { return String::new() };
    match &verdict.status {
        Some(status) => status_text(status),
        None => {
            let scores: BTreeMap<&str, i64> =
                verdict.scores.iter().map(|s| (s.plugin, s.weighted)).collect();
            format!("{scores:?} = {}", verdict.total())
        }
    }
}
