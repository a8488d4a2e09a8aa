//! Hollow kubelets: one task simulates the kubelets of many nodes. No containers run.
//!
//! The task writes the conditions of nodes and the status of their pods, and removes terminated pods. It accesses the
//! store directly, so faults and write delays do not affect it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use crate::clock::now;
use crate::delete;
use crate::follower::Follower;
use crate::patch::PatchKind;
use crate::resources::{self, Resource};
use crate::server::{ApiServer, Shared};
use crate::store::{Key, Store};
use crate::verbs::{self, Part, has_ended, is_deleted, is_ready};

/// Running kubelets. Dropping the value stops them.
#[derive(Debug)]
pub struct Kubelet {
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Starts kubelets on the server's threads.
    ///
    /// `stop_after` is the time that containers take to stop. They are killed at the end of the pod's grace period.
    pub fn start(server: &ApiServer, stop_after: Duration) -> Self {
        let hollow = Arc::new(Hollow { shared: server.shared().clone(), stop_after });
        Kubelet { task: server.handle().spawn(run(hollow)) }
    }

    /// Stops the kubelets, as dropping the value does. Afterwards they start or terminate no pod.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
        // The task ends at its next await.
        while !self.task.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[derive(Debug)]
struct Hollow {
    shared: Arc<Shared>,
    stop_after: Duration,
}

/// The next action on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Start,
    Stop { killed: bool },
}

/// The number of actions after which the task yields to the server's other tasks.
const AT_ONCE: usize = 32;

/// The longest time until an action: a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

async fn run(hollow: Arc<Hollow>) {
    let store = &hollow.shared.store;
    let mut nodes = Follower::new(store, resources::nodes());
    let mut pods = Follower::new(store, resources::pods());
    let mut agenda = BTreeSet::<(Instant, Key, String, Due)>::new();
    // The latest entry of the agenda for each pod.
    let mut planned = BTreeMap::<Key, (String, Due, Instant)>::new();
    loop {
        nodes.changed(store).iter().for_each(|key| hollow.tend_node(key));
        for key in pods.changed(store) {
            let Some((uid, due, after)) = hollow.plan(&key) else {
                planned.remove(&key);
                continue;
            };
            let at = Instant::now() + after.min(LONGEST);
            let news = planned.get(&key).is_none_or(|(known, before, when)| {
                // A second deletion may shorten the grace period.
                *known != uid || *before < due || (matches!(before, Due::Stop { .. }) && at < *when)
            });
            if news {
                planned.insert(key.clone(), (uid.clone(), due, at));
                agenda.insert((at, key, uid, due));
            }
        }
        let mut acted = 0;
        while let Some((at, ..)) = agenda.first()
            && *at <= Instant::now()
            && let Some((_, key, uid, due)) = agenda.pop_first()
        {
            hollow.act(&key, &uid, due);
            acted += 1;
            if acted % AT_ONCE == 0 {
                yield_now().await;
            }
        }
        let next = agenda.first().map_or(Instant::now() + LONGEST, |(at, ..)| *at);
        tokio::select! {
            () = nodes.wait() => {}
            () = pods.wait() => {}
            () = sleep(next.saturating_duration_since(Instant::now())) => {}
        }
    }
}

impl Hollow {
    fn store(&self) -> &Store {
        &self.shared.store
    }

    /// A refused patch needs no retry: the object has changed or was deleted, which causes another event.
    fn patch(&self, resource: &Resource, key: &Key, part: Part, patch: &Value) {
        let _ = verbs::patch(self.store(), resource, key, part, PatchKind::StrategicMerge, patch);
    }

    /// Makes a node ready: sets labels, conditions and capacity, and removes the taint `not-ready`. Existing
    /// allocatable resources are kept.
    fn tend_node(&self, key: &Key) {
        let nodes = resources::nodes();
        let Some(node) = self.store().of(nodes).get(key) else { return };
        let node = &*node.value;
        let mut labels = serde_json::Map::new();
        for (label, value) in [
            ("kubernetes.io/hostname", key.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ] {
            if node["metadata"]["labels"][label].is_null() {
                labels.insert(label.into(), value.into());
            }
        }
        let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_not_ready = |taint: &&Value| taint["key"] == "node.kubernetes.io/not-ready";
        if !labels.is_empty() || taints.iter().any(|taint| is_not_ready(&taint)) {
            let rest: Vec<&Value> = taints.iter().filter(|taint| !is_not_ready(taint)).collect();
            let mut patch = json!({"metadata": {"labels": labels}});
            if rest.len() < taints.len() {
                patch["spec"] = json!({"taints": rest});
            }
            self.patch(nodes, key, Part::Main, &patch);
        }
        let status = &node["status"];
        let ready = is_ready(node);
        let of_node = [&status["capacity"], &status["allocatable"]];
        let capacity = of_node.into_iter().find(|capacity| !capacity.is_null()).cloned();
        let capacity = capacity.unwrap_or_else(
            || json!({"cpu": "1", "memory": "3840Mi", "ephemeral-storage": "0", "pods": "110"}),
        );
        let mut patch = json!({});
        if status["capacity"].is_null() {
            patch["capacity"] = capacity.clone();
        }
        if status["allocatable"].is_null() {
            patch["allocatable"] = capacity;
        }
        if status["addresses"].is_null() {
            patch["addresses"] = json!([{"type": "Hostname", "address": key.name}]);
        }
        if !ready {
            let time = now();
            let condition = |kind: &str, status: &str, reason: &str| {
                json!({
                    "type": kind, "status": status, "reason": reason, "lastHeartbeatTime": time,
                    "lastTransitionTime": time,
                })
            };
            patch["conditions"] = json!([
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ]);
        }
        if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
            self.patch(nodes, key, Part::Status, &json!({"status": patch}));
        }
    }

    /// The next action on a pod, and the time until then.
    fn plan(&self, key: &Key) -> Option<(String, Due, Duration)> {
        let pod = self.store().of(resources::pods()).get(key)?;
        let pod = &*pod.value;
        let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())?;
        // A pod on a node that does not exist has no kubelet.
        self.store().of(resources::nodes()).get(&Key::new("", node))?;
        let uid = pod["metadata"]["uid"].as_str()?.to_owned();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if is_deleted(pod) {
            let grace = Duration::from_secs(
                pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0),
            );
            let wanted = pre_stop(pod).saturating_add(self.stop_after);
            return Some((uid, Due::Stop { killed: wanted > grace }, wanted.min(grace)));
        }
        match phase {
            "Pending" => Some((uid, Due::Start, Duration::ZERO)),
            _ => None,
        }
    }

    fn act(&self, key: &Key, uid: &str, due: Due) {
        let pods = resources::pods();
        let Some(pod) =
            self.store().of(pods).get(key).filter(|pod| pod.value["metadata"]["uid"] == uid)
        else {
            return;
        };
        let pod = &*pod.value;
        match due {
            Due::Start => {
                // The pod may have been deleted in the meantime.
                if !is_deleted(pod) && pod["status"]["phase"] == "Pending" {
                    self.patch(pods, key, Part::Status, &running(pod));
                }
            }
            Due::Stop { killed } => {
                if !has_ended(pod) {
                    self.patch(pods, key, Part::Status, &ended(pod, killed));
                }
                let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
                // The pod may have been removed already.
                let _ = delete::delete(self.store(), pods, key, &options);
            }
        }
    }
}

/// The longest sleep of the containers' preStop hooks.
fn pre_stop(pod: &Value) -> Duration {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let seconds = containers
        .filter_map(|container| container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64());
    Duration::from_secs(seconds.max().unwrap_or(0))
}

/// An address derived from the uid.
fn address(uid: &str) -> String {
    let hash = uid.bytes().fold(0, |hash, byte| crate::random::mix(hash ^ u64::from(byte)));
    format!("10.{}.{}.{}", hash & 0xff, (hash >> 8) & 0xff, 1 + (hash >> 16) % 254)
}

fn condition(pod: &Value, kind: &str, status: &str, reason: Option<&str>) -> Value {
    let mut condition = json!({
        "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now(),
        "observedGeneration": pod["metadata"]["generation"],
    });
    if let Some(reason) = reason {
        condition["reason"] = reason.into();
    }
    condition
}

/// The condition that the binding set, of which a kubelet only adds the generation.
fn scheduled(pod: &Value) -> Value {
    let generation = &pod["metadata"]["generation"];
    json!({"type": "PodScheduled", "status": "True", "observedGeneration": generation})
}

fn containers(pod: &Value, field: &str, state: &Value, ready: bool) -> Value {
    let containers = pod["spec"][field].as_array().into_iter().flatten();
    let status = |container: &Value| {
        let mut status = json!({
            "name": container["name"], "image": container["image"], "imageID": container["image"], "restartCount": 0,
            "ready": ready, "started": ready, "state": state, "lastState": {},
        });
        if let Some(name) = container["name"].as_str() {
            status["containerID"] =
                format!("hollow://{}/{name}", pod["metadata"]["uid"].as_str().unwrap_or_default())
                    .into();
        }
        status
    };
    containers.map(status).collect()
}

/// The status patch of a started pod. It contains the uid, so that it cannot apply to another pod of the same name.
fn running(pod: &Value) -> Value {
    let is_true = |kind: &str| condition(pod, kind, "True", None);
    let address = address(pod["metadata"]["uid"].as_str().unwrap_or_default());
    let mut status = json!({
        "phase": "Running",
        "conditions": [
            is_true("PodReadyToStartContainers"), is_true("Initialized"), is_true("Ready"), is_true("ContainersReady"),
            scheduled(pod),
        ],
        "containerStatuses": containers(pod, "containers", &json!({"running": {"startedAt": now()}}), true),
        "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}], "podIP": address, "podIPs": [{"ip": address}],
        "startTime": now(), "observedGeneration": pod["metadata"]["generation"],
    });
    if pod["spec"]["initContainers"].is_array() {
        let time = now();
        let done =
            json!({"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time});
        let done = json!({"terminated": done});
        status["initContainerStatuses"] = containers(pod, "initContainers", &done, true);
    }
    json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status})
}

/// The status patch of an ended pod.
fn ended(pod: &Value, killed: bool) -> Value {
    let (phase, code, reason) =
        if killed { ("Failed", 137, "Error") } else { ("Succeeded", 0, "Completed") };
    let state = json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": pod["status"]["startTime"], "finishedAt": now(),
    }});
    let not_ready = if killed { "PodFailed" } else { "PodCompleted" };
    json!({
        "metadata": {"uid": pod["metadata"]["uid"]},
        "status": {
            "phase": phase,
            "conditions": [
                condition(pod, "PodReadyToStartContainers", "False", None),
                condition(pod, "Initialized", "True", Some(not_ready)),
                condition(pod, "Ready", "False", Some(not_ready)),
                condition(pod, "ContainersReady", "False", Some(not_ready)),
                scheduled(pod),
            ],
            "containerStatuses": containers(pod, "containers", &state, false),
            "observedGeneration": pod["metadata"]["generation"],
        },
    })
}

#[cfg(test)]
#[path = "kubelet_tests.rs"]
mod tests;
