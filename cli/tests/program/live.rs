//! `portolan run` against an API server in memory, as processes.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Effect, Fault};
use serde_json::{Value, json};

use crate::common::{file, portolan, portolan_with};
use crate::running::{self, Running, create_pod, is_bound, until};

pub(crate) const SHORT: [&str; 3] = [
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1s",
    "--leader-elect-retry-period=200ms",
];

/// Starts a scheduler, with these arguments too.
pub(crate) fn run(server: &ApiServer, arguments: &[&str]) -> Running {
    let url = server.url();
    let always = ["run", "--serve", "none", "--log", "error", "--master", &url];
    Running::start(&[&always, arguments].concat())
}

fn cluster() -> ApiServer {
    running::cluster(&[("n1", "8")])
}

fn create(server: &ApiServer, name: &str) {
    create_pod(server, name, "0", json!({}));
}

/// Returns the number of bindings that were done, once there are this many.
fn bindings(server: &ApiServer, least: usize) -> usize {
    let count = || {
        let writes = server.writes();
        writes.iter().filter(|write| write.resource == "pods/binding" && write.applied).count()
    };
    // A write is recorded after it is visible.
    until("recorded", || count() >= least);
    count()
}

fn holder(server: &ApiServer) -> String {
    holder_of(server, "kube-scheduler")
}

fn holder_of(server: &ApiServer, lease: &str) -> String {
    let lease = server.get("Lease", "kube-system", lease).unwrap_or(Value::Null);
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[cfg(unix)]
#[test]
fn a_scheduler_that_is_asked_to_end_gives_its_lease_back() {
    let server = cluster();
    let running = run(&server, &SHORT);
    create(&server, "a");
    until("bound", || is_bound(&server, "a"));
    assert!(!holder(&server).is_empty());
    running.signal("-TERM");
    assert_eq!((running.end().code, holder(&server)), (0, String::new()));
}

#[cfg(unix)]
#[test]
fn a_scheduler_that_loses_its_lease_while_it_ends_fails() {
    let server = cluster();
    let running = run(&server, &SHORT);
    until("it leads", || !holder(&server).is_empty());
    // The binding is in flight for so long that the process waits for it.
    let slow = Fault::new(Effect::Delay(Duration::from_secs(10)));
    server.set_faults(0, vec![slow.verb("create").resource("pods/binding")]);
    create(&server, "a");
    until("a binding", || server.faults_fired()[0] > 0);
    running.signal("-TERM");
    until("another holder", || {
        let mut stolen = server.get("Lease", "kube-system", "kube-scheduler").expect("a lease");
        stolen["spec"]["holderIdentity"] = json!("thief");
        // A renewal at the same moment wins.
        server.update(&stolen).is_ok()
    });
    assert_eq!((running.end().code, holder(&server)), (1, "thief".to_owned()));
}

#[test]
fn the_standby_takes_over_from_a_leader_that_was_killed() {
    let server = cluster();
    let first = run(&server, &SHORT);
    until("the first leads", || !holder(&server).is_empty());
    let leader = holder(&server);
    let _second = run(&server, &SHORT);
    create(&server, "a");
    until("bound by the first", || is_bound(&server, "a"));
    first.kill();
    create(&server, "b");
    until("bound by the second", || is_bound(&server, "b"));
    assert_ne!(holder(&server), leader);
    assert_eq!(bindings(&server, 2), 2, "each pod is bound once");
}

#[test]
fn two_replicas_share_the_shards_and_one_takes_over_from_one_that_was_killed() {
    let server = cluster();
    let start = || {
        let shards = ["--shards=2", "--leader-elect-lease-duration=4s"];
        let times = ["--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=200ms"];
        run(&server, &[shards, times].concat())
    };
    let holders = || {
        ["kube-scheduler-shard-0", "kube-scheduler-shard-1"].map(|name| holder_of(&server, name))
    };
    let both = |holders: &[String; 2]| {
        holders.iter().all(|holder| !holder.is_empty()) && holders[0] != holders[1]
    };
    let first = start();
    until("the first has both shards", || {
        let holders = holders();
        !holders[0].is_empty() && holders[0] == holders[1]
    });
    let of_first = holders()[0].clone();
    let _second = start();
    until("each has a shard", || both(&holders()));
    let pods = |from: u32| (from..from + 20).map(|n| format!("p{n}")).collect::<Vec<_>>();
    let all_bound = |names: &[String]| names.iter().all(|name| is_bound(&server, name));
    let before = pods(0);
    before.iter().for_each(|name| create(&server, name));
    until("bound by both", || all_bound(&before));
    first.kill();
    let after = pods(20);
    after.iter().for_each(|name| create(&server, name));
    until("bound by the second", || all_bound(&after));
    let holders = holders();
    assert!(holders[0] == holders[1] && holders[0] != of_first, "{holders:?}");
    assert_eq!(bindings(&server, 40), 40, "each pod is bound once");
}

#[cfg(unix)]
#[test]
fn a_leader_that_was_suspended_writes_nothing_when_it_resumes() {
    let server = cluster();
    let first = run(&server, &SHORT);
    until("the first leads", || !holder(&server).is_empty());
    let leader = holder(&server);
    let _second = run(&server, &SHORT);
    create(&server, "a");
    until("bound by the first", || is_bound(&server, "a"));
    first.signal("-STOP");
    // Otherwise the first may still read and bind pod b. Only Linux tells.
    let state = format!("/proc/{}/stat", first.0.id());
    until("the first is stopped", || {
        std::fs::read_to_string(&state).map_or(true, |state| state.contains(") T "))
    });
    create(&server, "b");
    until("bound by the second", || is_bound(&server, "b"));
    let successor = holder(&server);
    assert_ne!(successor, leader);
    // The first still knows pod b as pending when it resumes.
    first.signal("-CONT");
    assert_eq!((first.end().code, holder(&server)), (1, successor));
    let sent = server.writes().iter().filter(|write| write.resource == "pods/binding").count();
    assert_eq!(sent, 2, "each pod is bound once");
}

#[test]
fn a_standby_that_delays_its_cache_schedules_when_it_leads() {
    let server = cluster();
    let text = "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n\
                delayCacheUntilActive: true\nclientConnection: {qps: 100, burst: 50}\n\
                leaderElection: {resourceName: of-the-file}\n";
    let config = file("delayed", "config.yaml", text.as_bytes());
    let running = run(&server, &[&["--config", &config], &SHORT[..]].concat());
    create(&server, "a");
    until("bound", || is_bound(&server, "a"));
    assert!(server.get("Lease", "kube-system", "of-the-file").is_ok());
    let errors = running.kill();
    assert!(errors.contains("v1beta3 is read as"), "{errors}");
}

#[test]
fn flags_of_kube_scheduler_are_checked_before_the_start() {
    let version = portolan(&["run", "--version"]);
    assert!(
        version.code == 0 && version.out.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        version.out
    );
    for (flags, what) in [
        (&["--feature-gates", "GenericWorkload=true"][..], "supports only GenericWorkload=false"),
        (&["--feature-gates", "PodLevelResources=true,Nonesuch=true"], "unknown feature gate"),
        (&["--leader-elect-resource-lock", "endpoints"], "leases"),
        (&["--shards", "65"], "--shards"),
        (&["--shards", "2", "--leader-elect=false"], "needs leases"),
        (&["--tls-cert-file", "tls.crt"], "--tls-private-key-file"),
        (&["--show-hidden-metrics-for-version", "1.35"], "unexpected argument"),
        (&["--master", "http://127.0.0.1:1", "--serve", "here"], "--serve here"),
        (
            &["--master", "http://127.0.0.1:1", "--secure-port=1", "--client-ca-file=/none.crt"],
            "/none.crt",
        ),
    ] {
        let refused = portolan(&[&["run"], flags].concat());
        assert!(refused.code == 2 && refused.err.contains(what), "{flags:?}: {}", refused.err);
    }
}

#[test]
fn a_written_configuration_has_the_flags_and_can_be_read() {
    let paths = ["first.yaml", "second.yaml"].map(|name| file("written", name, b""));
    let paths = paths.each_ref().map(String::as_str);
    let flags = ["--leader-elect-resource-name=a", "--kube-api-qps=20", "-v=2"];
    let written = portolan(&[&["run", "--write-config-to", paths[0]], &flags[..]].concat());
    assert_eq!(written.code, 0, "{}", written.err);
    let text = std::fs::read_to_string(paths[0]).expect("written");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(found["leaderElection"]["resourceName"], "a");
    assert_eq!(found["clientConnection"]["qps"], 20.0);
    assert_eq!(found["profiles"], json!([{"schedulerName": "default-scheduler"}]));
    let again = portolan(&["run", "--config", paths[0], "--write-config-to", paths[1]]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(paths[1]).expect("written"), text);
}

#[test]
fn an_address_where_nothing_listens_is_waited_for() {
    let server = cluster();
    let url = server.url();
    server.stop();
    let address = ["--leader-elect=false", "--master", &url];
    let mut running = Running::start(&[&["run", "--serve", "none"], &address[..]].concat());
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.0.try_wait().expect("known").is_none(), "it keeps trying");
}

#[test]
fn the_commands_for_files_read_a_running_cluster_too() {
    let server = cluster();
    create(&server, "fits");
    create_pod(&server, "large", "9", json!({}));
    let url = server.url();
    let explained = portolan(&["explain", "--master", &url, "--pod", "default/large"]);
    assert!(explained.out.contains("Insufficient cpu"), "{}{}", explained.out, explained.err);
    let dumped = portolan(&["dump", "--master", &url]);
    assert!(dumped.code == 0 && dumped.out.contains("nodes"), "{}{}", dumped.out, dumped.err);
    let audited = portolan(&["audit", "--master", &url]);
    assert_eq!(audited.code, 0, "{}{}", audited.out, audited.err);
    let asked = portolan(&["what-if", "--master", &url, "--drain", "n1"]);
    assert!(asked.err.starts_with("note: read 4 Namespace, 1 Node"), "{}", asked.err);

    let both = portolan(&["dump", "--master", &url, "--cluster", "cluster.yaml"]);
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{}", both.err);
    let neither = portolan_with(&["dump"], &[("KUBECONFIG", "missing.yaml")]);
    assert!(neither.code == 2 && neither.err.contains("read files with -f"), "{}", neither.err);
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
    ask_on(std::net::TcpStream::connect(address).ok()?, request)
}

fn ask_on(mut stream: impl std::io::Read + std::io::Write, request: &str) -> Option<String> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// An API server's message that would forge a line of a log, and control a terminal.
const FORGED: &str =
    "no\n2026-01-01T00:00:00Z  INFO forged\r\u{1b}[2J\u{9b}31m\u{2028}\u{202e}\u{7f}";

/// A refusal with this message.
fn forged(code: u16) -> Effect {
    let mut refused = cluster().get("Pod", "default", "none").expect_err("no pod");
    (refused.code, refused.reason, refused.message) = (code, "Forbidden", FORGED.to_owned());
    Effect::Answer(refused)
}

fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')
}

#[test]
fn a_message_of_the_api_server_forges_no_line_of_the_log() {
    let server = cluster();
    server.set_faults(0, vec![Fault::new(forged(403)).resource("pods/binding")]);
    create(&server, "a");
    let url = server.url();
    let address = ["--leader-elect=false", "--master", &url];
    let running = Running::start(&[&["run", "--serve", "none"], &address[..]].concat());
    until("refused", || server.faults_fired()[0] > 0);
    std::thread::sleep(Duration::from_millis(500));
    let log = running.kill();
    assert!(log.contains(r"no\n2026-01-01T00:00:00Z  INFO forged\r"), "{log}");
    assert!(log.lines().all(|line| !line.contains(is_unsafe)), "{log:?}");
    assert!(log.lines().all(|line| !line.starts_with("2026-01-01T00:00:00Z")), "{log}");
}

#[test]
fn a_message_of_the_api_server_forges_no_line_of_an_error_or_a_note() {
    let server = cluster();
    for (code, resource, status) in [(403, "poddisruptionbudgets", 0), (400, "nodes", 2)] {
        let fault = Fault::new(forged(code)).verb("list").resource(resource);
        server.set_faults(0, vec![fault]);
        let run = portolan(&["audit", "--master", &server.url()]);
        assert_eq!(run.code, status, "{}", run.err);
        let all = run.err + &run.out;
        assert!(all.contains(r"no\n2026-01-01T00:00:00Z  INFO forged\r"), "{all}");
        assert!(all.lines().all(|line| !line.contains(is_unsafe)), "{all:?}");
    }
}

#[test]
fn a_soak_with_faults_loses_no_pod_and_is_flat() {
    let run = portolan(&[
        "demo",
        "--nodes=20",
        "--pods=200",
        "--rate=80",
        "--write-delay=1",
        "--for=20s",
        "--faults",
        "-ojson",
    ]);
    assert!(run.code < 2, "{}{}", run.out, run.err);
    let found: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&found["lost"], &found["bound_twice"]), (&json!(0), &json!(0)), "{found}");
    // On a busy machine, writes and retries lag behind for longer than this run.
    let late = ["pods in the queue", "unwritten conditions and events"];
    for growth in found["soak"]["growth"].as_array().expect("a list") {
        let is_flat = growth["last_quarter"].as_u64() <= growth["limit"].as_u64();
        assert!(is_flat || late.iter().any(|of| growth["of"] == **of), "{found}");
    }
    // 200 pods, and nine tenths of 1,600.
    assert_eq!(found["bound"], 1_640, "{found}");
    assert!(found["soak"]["faults"].as_u64() > Some(50), "{found}");
    let short = portolan(&["demo", "--for", "7s"]);
    assert!(short.code == 2 && short.err.contains("use 8s or more"), "{}", short.err);
}

#[test]
fn an_extender_binds_pods_for_other_hosts_only_on_request() {
    let refused = portolan(&["extender", "--serve", "0.0.0.0:0", "--allow-bind"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("or add --insecure-bind"), "{}", refused.err);
}

#[test]
fn an_extender_answers_and_a_scheduler_asks_it() {
    let server = cluster();
    let address = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("an address").to_string()
    };
    let url = server.url();
    let _extender =
        Running::start(&["extender", "--serve", &address, "--allow-bind", "--master", &url]);
    let ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    until("the extender is ready", || {
        ask(&address, ready).is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    let config = file(
        "extender",
        "config.yaml",
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n- urlPrefix: \
             http://{address}\n  filterVerb: filter\n  prioritizeVerb: prioritize\n  weight: 1\n  bindVerb: bind\n"
        )
        .as_bytes(),
    );
    create(&server, "web");
    let _scheduler = run(&server, &["--leader-elect=false", "--config", &config]);
    until("bound", || is_bound(&server, "web"));
}

#[cfg(unix)]
#[test]
fn an_extender_binds_pods_over_a_unix_socket() {
    let server = cluster();
    create(&server, "web");
    // The folder of the build may be too long for a socket.
    let name = format!("portolan-extender-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let serve = format!("--serve=unix:{}", path.display());
    let arguments = ["extender", &serve, "--allow-bind", "--log=error", "--master", &server.url()];
    let extender = Running::start(&arguments);
    let ask = |request: &str| {
        let stream = std::os::unix::net::UnixStream::connect(&path).ok()?;
        ask_on(stream, request)
    };
    until("the extender is ready", || {
        ask("GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    let second = portolan(&arguments);
    assert_eq!(second.code, 2, "{}", second.err);
    let refused = format!("unix:{}: another process serves this socket", path.display());
    assert!(second.err.contains(&refused), "{}", second.err);

    let pod = server.get("Pod", "default", "web").expect("the pod");
    let uid = &pod["metadata"]["uid"];
    let binding = json!({"PodName": "web", "PodNamespace": "default", "PodUID": uid, "Node": "n1"});
    let body = binding.to_string();
    let bind = |kind: &str| {
        let length = body.len();
        ask(&format!(
            "POST /bind HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        ))
        .expect("answered")
    };
    let refused = bind("text/plain");
    assert!(refused.starts_with("HTTP/1.1 415"), "{refused}");
    assert!(!is_bound(&server, "web"));
    let bound = bind("application/json");
    assert!(bound.ends_with(r#"{"Error":""}"#) && is_bound(&server, "web"), "{bound}");

    extender.signal("-TERM");
    assert_eq!(extender.end().code, 0);
    assert!(!path.exists(), "the file is removed");
}
