//! A scheduler with an extender, and portolan as an extender.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use portolan_apiserver::ApiServer;
use portolan_kube::extender::{ExtenderOptions, extender_routes};
use portolan_kube::process::Served;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::{self, ANY, Process, condition, limits, node, node_of, pod, runtime, until};

/// Starts a scheduler with an extender, which may write.
pub(crate) fn schedule(runtime: &Runtime, server: &ApiServer, configuration: &str) -> Process {
    let limits = limits(Duration::from_secs(10));
    let mut process = Process::configured(runtime, server, "scheduler", 7, limits, configuration);
    process.lead(runtime);
    process
}

pub(crate) fn stop(runtime: Runtime, process: Process) {
    process.fence.close();
    runtime.block_on(process.live.stop(Duration::ZERO));
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Tells whether a pod has a node or a reason why not.
pub(crate) fn is_tried(server: &ApiServer, name: &str) -> bool {
    node_of(server, name).is_some() || !condition(server, name).is_null()
}

/// Schedules one pod on a cluster of two nodes, and returns its node, or the reason and the message why it was not
/// scheduled.
pub(crate) fn outcome(configuration: &str) -> Result<String, (String, String)> {
    let (runtime, server) = (runtime(), support::server());
    for name in ["n1", "n2"] {
        server.create(&node(name, 1_000)).expect("created");
    }
    server.create(&pod("web", 100)).expect("created");
    let process = schedule(&runtime, &server, configuration);
    runtime.block_on(until("an outcome", || is_tried(&server, "web")));
    let outcome = node_of(&server, "web").ok_or_else(|| {
        let condition = condition(&server, "web");
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    });
    stop(runtime, process);
    outcome
}

/// Portolan's own service, with the process behind it.
pub(crate) fn portolan(
    runtime: &Runtime,
    server: &ApiServer,
    allow_bind: bool,
) -> (Process, Served) {
    let (process, served) = unready(runtime, server, allow_bind);
    runtime.block_on(process.live.mirror().synced()).expect("synced");
    (process, served)
}

/// Portolan's own service, whose mirror may not be synced yet.
pub(crate) fn unready(
    runtime: &Runtime,
    server: &ApiServer,
    allow_bind: bool,
) -> (Process, Served) {
    let limits = limits(Duration::from_secs(10));
    let process = Process::with(runtime, server, "extender", 1, limits);
    if allow_bind {
        process.fence.open();
    }
    let served = answering(runtime, &process, allow_bind, 1 << 20);
    (process, served)
}

/// A service of a process that accepts requests up to a size in bytes.
pub(crate) fn answering(
    runtime: &Runtime,
    process: &Process,
    allow_bind: bool,
    max_body: usize,
) -> Served {
    let mut options = ExtenderOptions::default();
    (options.allow_bind, options.max_body) = (allow_bind, max_body);
    let routes = extender_routes(&process.live, options).expect("routes");
    let routes = axum::Router::new().nest("/v", routes);
    runtime.block_on(Served::start_with(ANY, &process.live, routes)).expect("served")
}

/// Posts to a service as kube-scheduler does, and returns the whole answer.
pub(crate) fn post(address: SocketAddr, verb: &str, body: &str) -> String {
    let json = "Content-Type: application/json\r\n";
    post_with(address, verb, &format!("Host: {address}\r\n{json}"), body)
}

/// Posts to a service with these headers, and returns the whole answer.
pub(crate) fn post_with(address: SocketAddr, verb: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let length = body.len();
    let head = format!(
        "POST /v/{verb} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    // The server may answer before it has read everything.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

/// Posts JSON, and returns the JSON of the answer.
pub(crate) fn ask(address: SocketAddr, verb: &str, body: &Value) -> Value {
    let answer = post(address, verb, &body.to_string());
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).expect("JSON")
}
