//! Servers, clients and waits that the tests share.

// Each test crate uses a part of this module.
#![allow(dead_code, reason = "each test crate uses a part")]

use std::time::{Duration, Instant};

use http::HeaderValue;
use http::header::USER_AGENT;
use portolan_apiserver::{ApiServer, Options, Write};
use portolan_kube::api::{Api, Limits};
use serde_json::{Value, json};

/// The time after which a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a server whose watches get frequent bookmarks.
pub(crate) fn server() -> ApiServer {
    let bookmark_every = Duration::from_millis(100);
    ApiServer::start(Options { bookmark_every, controllers: false, ..Options::default() })
        .expect("a free port")
}

/// Returns a client whose writes the server records under this name. Call it within a runtime.
pub(crate) fn client(server: &ApiServer, name: &'static str, limits: Limits) -> Api {
    let mut config = kube::Config::new(server.url().parse().expect("a URL"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(name)));
    Api::new(config, limits).expect("a client")
}

/// Returns limits with this time-out.
pub(crate) fn limits(timeout: Duration) -> Limits {
    let mut limits = Limits::default();
    limits.timeout = timeout;
    limits
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the writes that a client did.
pub(crate) fn applied(server: &ApiServer, agent: &str) -> Vec<Write> {
    server.writes().into_iter().filter(|write| write.applied && write.user_agent == agent).collect()
}

/// A node with this many CPUs, in thousandths.
pub(crate) fn node(name: &str, cpu: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": format!("{cpu}m"), "memory": "64Gi", "pods": "110"}}})
}

/// A pod that requests this many thousandths of a CPU, and terminates at once when it is deleted.
pub(crate) fn pod(name: &str, cpu: u64) -> Value {
    let resources = json!({"requests": {"cpu": format!("{cpu}m")}});
    let container = json!({"name": "c", "image": "pause", "resources": resources});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}})
}
