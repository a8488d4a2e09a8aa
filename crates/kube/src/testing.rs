//! What the tests of several modules share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan::cache::{Engine, Event};
use portolan_apiserver::{ApiServer, Options};
use serde_json::json;

use crate::api::{Api, Limits};
use crate::mirror::Condition;

/// A folder that is removed at the end of a test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("portolan-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("created");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn server() -> ApiServer {
    ApiServer::start(Options::default()).expect("a server")
}

/// Creates the node n1.
pub(crate) fn create_node(server: &ApiServer) {
    let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
    let status = json!({"capacity": amounts, "allocatable": amounts});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status});
    server.create(&node).expect("created");
}

pub(crate) fn config(url: &str) -> kube::Config {
    kube::Config::new(url.parse().expect("a URL"))
}

/// Returns a client. Call it within a runtime.
pub(crate) fn api(url: &str) -> Api {
    Api::new(config(url), Limits::default()).expect("a client")
}

/// A pod's condition `PodScheduled` with the reason of an attempt that found no node.
pub(crate) fn unschedulable(status: &str, message: &str) -> Condition {
    Condition {
        status: status.into(),
        reason: "Unschedulable".into(),
        message: message.into(),
        last_transition_time: None,
        observed_generation: None,
    }
}

/// Applies an event, which the engine must accept.
pub(crate) fn apply(engine: &Engine, event: Event) {
    engine.submit(event).expect("open").wait().expect("open").expect("applied");
}

/// Waits without a time limit, which the caller has.
pub(crate) async fn until(is_done: impl Fn() -> bool) {
    while !is_done() {
        tokio::task::yield_now().await;
    }
}
