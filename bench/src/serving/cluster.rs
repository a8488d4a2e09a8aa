//! The cluster that is served, and the writer that changes it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use portolan_apiserver::{ApiError, ApiServer, Options};
use portolan_cli::{CommandError, histogram};
use serde_json::{Value, json};

use super::failed;

/// The number of pending pods.
pub(super) const PENDING: usize = 20;

/// The pods that the writer has created and not deleted.
const LIVING: usize = 500;

/// An API server in memory with nodes and pods.
pub(super) struct Cluster {
    server: ApiServer,
    nodes: usize,
}

/// The name of a node.
pub(super) fn node_name(n: usize) -> String {
    format!("node-{n:05}")
}

/// The name of a pending pod.
pub(super) fn pending_name(n: usize) -> String {
    format!("pending-{n:02}")
}

fn pod(name: &str, fields: &Value) -> Value {
    let requests = json!({ "cpu": "100m", "memory": "128Mi" });
    let container = json!({
        "name": "c", "image": "registry.example.com/pause:1", "resources": { "requests": requests },
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [container] },
    });
    if fields.get("nodeName").is_some() {
        pod["status"] = json!({ "phase": "Running" });
    }
    if let (Some(spec), Some(fields)) = (pod["spec"].as_object_mut(), fields.as_object()) {
        spec.extend(fields.clone());
    }
    pod
}

impl Cluster {
    pub(super) fn create(nodes: usize, pods: usize) -> Result<Cluster, CommandError> {
        let server = ApiServer::start(Options::default()).map_err(failed)?;
        let create = |object: Value| server.create(&object).map(drop).map_err(failed);
        for n in 0..nodes {
            let amounts = json!({ "cpu": "32", "memory": "128Gi", "pods": "110" });
            let zone = format!("zone-{}", n % 3);
            create(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {
                    "name": node_name(n),
                    "labels": { "topology.kubernetes.io/zone": zone, "pool": format!("pool-{}", n % 4) },
                },
                "status": { "capacity": amounts, "allocatable": amounts },
            }))?;
            for p in 0..pods {
                create(pod(&format!("pod-{n:05}-{p:02}"), &json!({ "nodeName": node_name(n) })))?;
            }
        }
        for n in 0..PENDING {
            create(pod(&pending_name(n), &json!({ "nodeSelector": { "disk": "none" } })))?;
        }
        Ok(Cluster { server, nodes })
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// Creates a pod, or deletes one that was created before.
    fn change(&self, step: u64, living: &mut VecDeque<String>) -> Result<(), ApiError> {
        if living.len() >= LIVING
            && let Some(oldest) = living.pop_front()
        {
            let now = json!({ "gracePeriodSeconds": 0 });
            return self.server.delete("Pod", "default", &oldest, &now).map(drop);
        }
        let (name, on) = (format!("written-{step:07}"), node_name(step as usize % self.nodes));
        self.server.create(&pod(&name, &json!({ "nodeName": on })))?;
        living.push_back(name);
        Ok(())
    }
}

/// Changes a cluster at a constant rate.
pub(super) struct Writer {
    steps: Arc<Mutex<Histogram<u64>>>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Option<ApiError>>,
}

impl Writer {
    pub(super) fn start(cluster: Cluster, rate: u32) -> Result<Writer, CommandError> {
        let steps = Arc::new(Mutex::new(histogram()?));
        let ends = Arc::new(AtomicBool::new(false));
        let (figures, is_end) = (steps.clone(), ends.clone());
        let thread = thread::spawn(move || {
            let (started, mut living) = (Instant::now(), VecDeque::new());
            for step in 0.. {
                // Relaxed: nothing else is passed by it.
                if is_end.load(Ordering::Relaxed) {
                    return None;
                }
                let due = Duration::from_secs_f64(step as f64 / f64::from(rate));
                thread::sleep(due.saturating_sub(started.elapsed()));
                if let Err(error) = cluster.change(step, &mut living) {
                    return Some(error);
                }
                let took = started.elapsed().saturating_sub(due).as_nanos();
                let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
                figures.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
            }
            None
        });
        Ok(Writer { steps, ends, thread })
    }

    /// The nanoseconds of the steps since the last call.
    pub(super) fn take(&self) -> Histogram<u64> {
        taken(&self.steps)
    }

    /// Ends the changes. Returns the error that has ended them before.
    pub(super) fn stop(self) -> Option<String> {
        self.ends.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(error) => error.map(|error| error.to_string()),
            Err(_) => Some("it panicked".to_owned()),
        }
    }
}

/// Takes the times out of a histogram.
pub(super) fn taken(of: &Mutex<Histogram<u64>>) -> Histogram<u64> {
    let mut of = of.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = of.clone();
    of.reset();
    taken
}
