//! Compares a mirror and its engine with the server, object by object.

use std::collections::BTreeMap;
use std::fmt::Debug;

use portolan::cache::Engine;
use portolan::model::{LabelSelector, Node, ObjectKind};
use portolan_apiserver::ApiServer;
use portolan_dra::Devices;
use portolan_dra::model::{Metadata, read};
use portolan_k8s::{node_from_slice, object_from_slice, pod_from_slice};
use portolan_kube::mirror::Mirror;
use serde_json::Value;

/// Returns the differences of the mirrored kinds. They mean something only while nothing changes. An assumed pod is no
/// difference while the server has it without a node.
pub(crate) fn differences(server: &ApiServer, engine: &Engine, mirror: &Mirror) -> Vec<String> {
    let version = engine.reader().expect("open").snapshot();
    let devices = version.store::<Devices>().ok();
    let mut found = Vec::new();
    for figures in mirror.figures() {
        let kind = figures.kind;
        let objects = server.objects(kind);
        let name = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            format!("{}/{}", text("namespace"), text("name"))
        };
        let key = |of: &Metadata| format!("{}/{}", of.namespace, of.name);
        let json = |object: &Value| object.to_string().into_bytes();
        let device = |object: &Value| (name(object), object.clone());
        match kind {
            "Pod" => pods(&objects, engine, mirror, &mut found),
            "Node" => {
                // Updates that change no field that is read do not reach the engine.
                let same =
                    |node: Node| (format!("/{}", node.name), Node { resource_version: 0, ..node });
                let expected =
                    objects.iter().map(|node| same(node_from_slice(&json(node)).expect("a node")));
                let known = version.nodes().filter_map(|node| node.kubelet_node());
                compare(kind, expected, known.map(|node| same((**node).clone())), &mut found);
            }
            "DeviceClass" => {
                let known = devices.into_iter().flat_map(|devices| devices.classes().iter());
                let expected =
                    objects.iter().map(device).map(|(key, of)| (key, read(of).expect("a class")));
                compare(
                    kind,
                    expected,
                    known.map(|of| (key(&of.metadata), (**of).clone())),
                    &mut found,
                );
            }
            "ResourceSlice" => {
                let known = devices.into_iter().flat_map(|devices| devices.slices().iter());
                let expected =
                    objects.iter().map(device).map(|(key, of)| (key, read(of).expect("a slice")));
                compare(
                    kind,
                    expected,
                    known.map(|of| (key(&of.metadata), (**of).clone())),
                    &mut found,
                );
            }
            "ResourceClaim" => {
                let known = devices.into_iter().flat_map(|devices| devices.claims().iter());
                let expected =
                    objects.iter().map(device).map(|(key, of)| (key, read(of).expect("a claim")));
                compare(
                    kind,
                    expected,
                    known.map(|of| (key(&of.metadata), (**of).clone())),
                    &mut found,
                );
            }
            _ => {
                let of =
                    ObjectKind::ALL.into_iter().find(|of| of.as_str() == kind).expect("stored");
                let expected = objects.iter().map(|object| {
                    (name(object), object_from_slice(kind, &json(object)).expect("an object"))
                });
                let known = version.object_keys(of).into_iter().filter_map(|(namespace, name)| {
                    let object = version.object(of, &namespace, &name)?;
                    Some((format!("{namespace}/{name}"), object))
                });
                compare(kind, expected, known, &mut found);
            }
        }
    }
    found
}

/// Compares the pods that have not ended with those of the engine and of the index.
fn pods(objects: &[Value], engine: &Engine, mirror: &Mirror, found: &mut Vec<String>) {
    let version = engine.reader().expect("open").snapshot();
    let has_ended =
        |pod: &&Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let pods: Vec<_> = objects
        .iter()
        .filter(|pod| !has_ended(pod))
        .map(|pod| pod_from_slice(pod.to_string().as_bytes()).expect("a pod"))
        .collect();
    let placed = pods.iter().filter_map(|pod| {
        let node = pod.node_name.as_deref().filter(|node| !node.is_empty())?.to_owned();
        let rest = (node, pod.deletion_time, pod.start_time, pod.template.clone(), false);
        Some((pod.uid.to_string(), rest))
    });
    let everything = LabelSelector::everything();
    let is_waiting =
        |uid: &str| pods.iter().any(|pod| pod.uid.to_string() == uid && pod.node_name.is_none());
    let known = version.pods(&everything, |_| true).map(|pod| {
        let (node, is_assumed) = (pod.node().name().to_string(), pod.is_assumed());
        let rest =
            (node, pod.deletion_time(), pod.start_time(), pod.template().clone(), is_assumed);
        (pod.uid().to_string(), rest)
    });
    let known = known.filter(|(uid, rest)| !(rest.4 && is_waiting(uid)));
    compare("Pod", placed, known, found);
    let index = mirror.pods();
    for pod in &pods {
        let indexed =
            index.get(&pod.uid).map(|known| (known.resource_version, known.node, known.name));
        let node = pod.node_name.clone().filter(|node| !node.is_empty());
        let expected = (pod.resource_version, node, pod.name.clone());
        if indexed.as_ref() != Some(&expected) {
            found.push(format!("Pod {}: {expected:?}, indexed as {indexed:?}", pod.uid));
        }
    }
    if index.len() != pods.len() {
        found.push(format!("{} pods, {} in the index", pods.len(), index.len()));
    }
}

fn compare<T: PartialEq + Debug>(
    kind: &str,
    expected: impl Iterator<Item = (String, T)>,
    known: impl Iterator<Item = (String, T)>,
    found: &mut Vec<String>,
) {
    let mut expected: BTreeMap<String, T> = expected.collect();
    for (key, known) in known {
        let server = expected.remove(&key);
        if server.as_ref() != Some(&known) {
            found.push(format!("{kind} {key}: {server:?} on the server, {known:?} in the engine"));
        }
    }
    let missing = expected.keys().map(|key| format!("{kind} {key}: missing from the engine"));
    found.extend(missing);
}
