//! `portolan run` against an API server in memory, as processes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

use crate::common::portolan;

const SHORT: [&str; 3] = [
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1s",
    "--leader-elect-retry-period=200ms",
];

/// A scheduler. It is killed when the test ends early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(server: &ApiServer) -> Running {
    let child = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(["run", "--serve", "none", "--log", "error", "--master", &server.url()])
        .args(SHORT)
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    Running(child)
}

fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn cluster() -> ApiServer {
    let server = ApiServer::start(Options::default()).expect("a server");
    let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "100"});
    server
        .create(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"capacity": amounts, "allocatable": amounts},
        }))
        .expect("a node");
    server
}

fn create(server: &ApiServer, name: &str) {
    server
        .create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1"}]},
        }))
        .expect("a pod");
}

fn is_bound(server: &ApiServer, name: &str) -> bool {
    let pod = server.get("Pod", "default", name).expect("the pod");
    pod["spec"]["nodeName"].is_string()
}

fn holder(server: &ApiServer) -> String {
    let lease = server.get("Lease", "kube-system", "kube-scheduler").unwrap_or(Value::Null);
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[cfg(unix)]
#[test]
fn a_scheduler_that_is_asked_to_end_gives_its_lease_back() {
    let server = cluster();
    let mut running = start(&server);
    create(&server, "a");
    until("bound", || is_bound(&server, "a"));
    assert!(!holder(&server).is_empty());
    let ended = Command::new("kill").arg(running.0.id().to_string()).status().expect("kill");
    assert!(ended.success());
    let status = running.0.wait().expect("the program ends");
    assert_eq!((status.code(), holder(&server)), (Some(0), String::new()));
}

#[test]
fn the_standby_takes_over_from_a_leader_that_was_killed() {
    let server = cluster();
    let mut first = start(&server);
    until("the first leads", || !holder(&server).is_empty());
    let leader = holder(&server);
    let _second = start(&server);
    create(&server, "a");
    until("bound by the first", || is_bound(&server, "a"));
    first.0.kill().expect("killed");
    create(&server, "b");
    until("bound by the second", || is_bound(&server, "b"));
    assert_ne!(holder(&server), leader);
    let twice = server.writes().iter().filter(|write| write.resource == "pods/binding").count();
    assert_eq!(twice, 2, "each pod is bound once");
}

#[test]
fn an_address_where_nothing_listens_is_waited_for() {
    let server = cluster();
    let url = server.url();
    server.stop();
    let child = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(["run", "--serve", "none", "--leader-elect=false", "--master", &url])
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut running = Running(child);
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.0.try_wait().expect("known").is_none(), "it keeps trying");
}

#[test]
fn the_commands_for_files_read_a_running_cluster_too() {
    let server = cluster();
    create(&server, "fits");
    server
        .create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "large", "namespace": "default"},
            "spec": {"containers": [{
                "name": "c", "image": "registry.example.com/pause:1",
                "resources": {"requests": {"cpu": "9"}},
            }]},
        }))
        .expect("a pod");
    let url = server.url();
    let explained = portolan(&["explain", "--master", &url, "--pod", "default/large"]);
    assert!(explained.out.contains("Insufficient cpu"), "{}{}", explained.out, explained.err);
    let dumped = portolan(&["dump", "--master", &url]);
    assert!(dumped.code == 0 && dumped.out.contains("nodes"), "{}{}", dumped.out, dumped.err);
    let audited = portolan(&["audit", "--master", &url]);
    assert_eq!(audited.code, 0, "{}{}", audited.out, audited.err);
    let asked = portolan(&["what-if", "--master", &url, "--drain", "n1"]);
    assert!(asked.err.is_empty(), "{}", asked.err);

    let both = portolan(&["dump", "--master", &url, "--cluster", "cluster.yaml"]);
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{}", both.err);
    let neither = portolan(&["dump"]);
    assert!(neither.code == 2 && neither.err.contains("--cluster"), "{}", neither.err);
    server.stop();
    let unreachable = portolan(&["dump", "--master", &url]);
    assert!(
        unreachable.code == 2 && unreachable.err.contains("/api/v1/nodes"),
        "{}",
        unreachable.err
    );
}

/// Sends a request, and returns the answer.
fn ask(address: &str, request: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn an_extender_answers_and_a_scheduler_asks_it() {
    let server = cluster();
    let address = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("an address").to_string()
    };
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
        command.args(arguments).args(["--log", "error", "--master", &server.url()]);
        Running(command.stdout(Stdio::null()).spawn().expect("the program starts"))
    };
    let _extender = start(&["extender", "--serve", &address, "--allow-bind"]);
    let ready = "GET /readyz HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    until("the extender is ready", || {
        ask(&address, ready).is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    let config = crate::common::file(
        "extender",
        "config.yaml",
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n- urlPrefix: \
             http://{address}\n  filterVerb: filter\n  prioritizeVerb: prioritize\n  weight: 1\n  bindVerb: bind\n"
        )
        .as_bytes(),
    );
    create(&server, "web");
    let _scheduler =
        start(&["run", "--serve", "none", "--leader-elect=false", "--config", &config]);
    let node = || {
        let pods = server.objects("Pod");
        pods.first().and_then(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
    };
    until("the pod is bound", || node().is_some());
    assert_eq!(node().as_deref(), Some("n1"));
}
