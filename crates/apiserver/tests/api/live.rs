//! Replays recorded scenarios: the writes of kube-scheduler to a real API server. The recording is not part of the
//! repository; the test reads `live.jsonl.gz` in the folder PORTOLAN_VECTORS, or else in ../shared/vectors.
//!
//! The recorded writes replace the scheduler. Every write must get the recorded status code, objects that the scheduler
//! had read must equal the stored ones, and the pods must end in the recorded state.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_apiserver::{ApiServer, Kubelet, Options};
use serde_json::{Value, json};

use crate::support::{Client, create_namespace, eventually};

fn recording() -> PathBuf {
    let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    std::env::var_os("PORTOLAN_VECTORS").map_or_else(shared, PathBuf::from).join("live.jsonl.gz")
}

/// A scenario under way, and the values of the recording's placeholders.
struct Play<'a> {
    server: &'a ApiServer,
    client: Client,
    namespace: String,
    /// Generated pod names: the recorded names, and ours.
    names: BTreeMap<String, String>,
    events: u64,
}

impl Play<'_> {
    fn our_name(&mut self, kind: &str, recorded: &str) -> String {
        if kind != "Pod"
            || self.server.get(kind, &self.namespace, recorded).is_ok()
            || !recorded.starts_with("web-")
        {
            return recorded.to_owned();
        }
        if !self.names.contains_key(recorded) {
            let wanted = self.names.len() + 1;
            eventually("another pod of the Deployment", || self.pods().len() >= wanted);
            let used: Vec<&String> = self.names.values().collect();
            let free = self.pods().into_iter().find(|name| !used.contains(&name)).unwrap();
            self.names.insert(recorded.to_owned(), free);
        }
        self.names[recorded].clone()
    }

    fn pods(&self) -> Vec<String> {
        let pods = self.server.objects("Pod");
        let ours =
            pods.iter().filter(|pod| pod["metadata"]["namespace"] == self.namespace.as_str());
        ours.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn object(&self, kind: &str, name: &str) -> Value {
        let namespace =
            if ["PersistentVolume", "Node"].contains(&kind) { "" } else { &self.namespace };
        self.server.get(kind, namespace, name).unwrap_or_default()
    }

    /// Fills in the uid and version of the object that a part of a body describes.
    fn refer(&mut self, part: &mut Value, kind: &str) {
        let name = self.our_name(kind, part["name"].as_str().unwrap_or_default());
        let object = self.object(kind, &name);
        part["name"] = name.into();
        for field in ["uid", "resourceVersion"] {
            if part.get(field).is_some() {
                part[field] = object["metadata"][field].as_str().unwrap_or("unknown").into();
            }
        }
        if part.get("namespace").is_some() {
            part["namespace"] = self.namespace.clone().into();
        }
    }

    /// Sends a recorded write, and checks the code.
    fn write(&mut self, write: &Value) {
        let resource = write["resource"].as_str().unwrap();
        let mut body = write["body"].clone();
        let mut name = write["name"].as_str().unwrap().to_owned();
        let namespace = self.namespace.clone();
        let core = format!("/api/v1/namespaces/{namespace}");
        let reply = match (write["verb"].as_str().unwrap(), resource) {
            ("create", "pods/binding") => {
                self.refer(&mut body["metadata"], "Pod");
                name = body["metadata"]["name"].as_str().unwrap().to_owned();
                self.client.post(&format!("{core}/pods/{name}/binding"), &body)
            }
            ("create", "events") => {
                self.events += 1;
                let kind = body["regarding"]["kind"].as_str().unwrap().to_owned();
                self.refer(&mut body["regarding"], &kind);
                body["metadata"] =
                    json!({"name": format!("event.{}", self.events), "namespace": namespace});
                // The recording has a placeholder.
                body["eventTime"] = "2026-11-22T12:00:00.000000Z".into();
                let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
                self.client.post(&path, &body)
            }
            ("patch", "pods/status") => {
                name = self.our_name("Pod", &name);
                for condition in body["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    if condition.get("lastTransitionTime").is_some() {
                        condition["lastTransitionTime"] = "2026-11-22T12:00:00Z".into();
                    }
                }
                self.client.patch(&format!("{core}/pods/{name}/status"), &body)
            }
            ("delete", "pods") => self.client.delete(&format!("{core}/pods/{name}"), &body),
            ("update", "persistentvolumes") => {
                self.compare_stored("PersistentVolume", &body, "/spec/claimRef");
                self.refer(&mut body["metadata"], "PersistentVolume");
                self.refer(&mut body["spec"]["claimRef"], "PersistentVolumeClaim");
                self.client.put(&format!("/api/v1/persistentvolumes/{name}"), &body)
            }
            ("update", "persistentvolumeclaims") => {
                self.compare_stored("PersistentVolumeClaim", &body, "/none");
                self.refer(&mut body["metadata"], "PersistentVolumeClaim");
                self.client.put(&format!("{core}/persistentvolumeclaims/{name}"), &body)
            }
            other => panic!("a write of a new kind: {other:?}"),
        };
        assert_eq!(u64::from(reply.code), write["code"], "{write}: {}", reply.body);
    }

    /// Compares an updated volume or claim with the stored object, except for the fields that the scheduler sets.
    fn compare_stored(&self, kind: &str, body: &Value, added: &str) {
        eventually("the object that the scheduler read", || {
            let mut stored = self.object(kind, body["metadata"]["name"].as_str().unwrap());
            let mut read = body.clone();
            for object in [&mut stored, &mut read] {
                let metadata = object["metadata"].as_object_mut().unwrap();
                for varying in
                    ["uid", "resourceVersion", "creationTimestamp", "namespace", "annotations"]
                {
                    metadata.remove(varying);
                }
                if let Some((parent, field)) = added.rsplit_once('/')
                    && let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut)
                {
                    parent.remove(field);
                }
                if let Some(time) = object.pointer_mut("/status/lastPhaseTransitionTime") {
                    *time = true.into();
                }
            }
            stored == read
        });
    }

    fn step(&mut self, step: &Value) {
        for object in step["apply"].as_array().into_iter().flatten() {
            let mut object = object.clone();
            object["metadata"]["namespace"] = self.namespace.clone().into();
            self.server.create(&object).unwrap();
        }
        if let Some([kind, name]) = step["delete"].as_array().map(Vec::as_slice) {
            assert_eq!(kind, "pod");
            let path =
                format!("/api/v1/namespaces/{}/pods/{}", self.namespace, name.as_str().unwrap());
            assert_eq!(self.client.delete(&path, &Value::Null).code, 200);
        }
        if let Some([kind, name, patch, namespaced]) = step["patch"].as_array().map(Vec::as_slice) {
            let place = if *namespaced == true {
                format!("namespaces/{}/", self.namespace)
            } else {
                String::new()
            };
            let path =
                format!("/api/v1/{place}{}s/{}", kind.as_str().unwrap(), name.as_str().unwrap());
            assert_eq!(self.client.merge(&path, patch).code, 200);
        }
    }

    /// The pods as the recording describes them.
    fn pods_end(&self) -> Vec<Value> {
        let recorded: BTreeMap<&String, &String> =
            self.names.iter().map(|(recorded, ours)| (ours, recorded)).collect();
        let mut pods: Vec<Value> = self
            .pods()
            .iter()
            .map(|name| {
                let pod = self.object("Pod", name);
                let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let scheduled = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
                let mut scheduled = scheduled.unwrap_or_default();
                if scheduled["lastTransitionTime"].is_string() {
                    scheduled["lastTransitionTime"] = "<time>".into();
                }
                json!({"name": recorded.get(name).unwrap_or(&name), "node": pod["spec"]["nodeName"],
                    "phase": pod["status"]["phase"], "nominated": pod["status"]["nominatedNodeName"],
                    "scheduled": scheduled})
            })
            .collect();
        pods.sort_by_key(|pod| pod["name"].as_str().unwrap().to_owned());
        pods
    }
}

fn play(scenario: &Value) {
    let server = ApiServer::start(Options::default()).unwrap();
    for index in 0..3 {
        let name = format!("hollow-{index}");
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{index}")});
        let metadata = json!({"name": name, "labels": labels});
        server.create(&json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata})).unwrap();
    }
    let _kubelet = Kubelet::start(&server, Duration::ZERO);
    let namespace = "scenario".to_owned();
    create_namespace(&server, &namespace);
    let client = Client::new(server.address());
    let mut play = Play { server: &server, client, namespace, names: BTreeMap::new(), events: 0 };
    let mut writes = scenario["writes"].as_array().unwrap().iter().peekable();
    let mut clock = 0.0;
    for step in scenario["steps"].as_array().unwrap() {
        play.step(step);
        clock += step["sleep"].as_f64().unwrap_or(0.0);
        while let Some(write) = writes.next_if(|write| write["at"].as_f64().unwrap() < clock) {
            play.write(write);
        }
    }
    let end = scenario["end"].as_array().unwrap();
    eventually(&format!("the end of {}", scenario["scenario"]), || play.pods_end() == *end);
    // The recording of one scenario continues while its namespace is deleted.
    for write in writes {
        assert!(write.to_string().contains("it is being terminated"), "{write}");
    }
}

#[test]
fn recorded_writes_are_answered_as_by_a_real_server() {
    let path = recording();
    if !path.exists() {
        println!("SKIPPED: the recorded scenarios are not at {}", path.display());
        return;
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let scenarios: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(scenarios.len(), 15);
    scenarios.iter().for_each(play);
}
