//! The effect of each fault on a client.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Effect, Fault, Options};
use serde_json::{Value, json};

use crate::support::{
    Client, Next, Stream, binding, client, eventually, node, pod, server, server_with, uid,
};

const PATH: &str = "/api/v1/namespaces/default/pods/a/binding";

fn with_fault(fault: Fault) -> ApiServer {
    let server = server();
    server.create(&pod("a")).unwrap();
    drop(server.take_writes());
    server.set_faults(0, vec![fault]);
    server
}

fn on_bind(effect: Effect) -> Fault {
    Fault::new(effect).verb("create").resource("pods/binding").nth(1)
}

fn bind(client: &mut Client, server: &ApiServer) -> std::io::Result<u16> {
    let body = binding("a", &uid(&server.get("Pod", "default", "a").unwrap()), "n").to_string();
    client.request("POST", PATH, "application/json", &body).map(|reply| reply.code)
}

fn is_bound(server: &ApiServer) -> bool {
    server.get("Pod", "default", "a").unwrap()["spec"]["nodeName"] == "n"
}

#[test]
fn an_error_replaces_a_write() {
    for (effect, code, reason) in [
        (Effect::too_many_requests(3), 429, "TooManyRequests"),
        (Effect::internal_error(), 500, "InternalError"),
        (Effect::unavailable(), 503, "ServiceUnavailable"),
        (Effect::conflict(), 409, "Conflict"),
        (Effect::gone(), 410, "Expired"),
    ] {
        let server = with_fault(on_bind(effect));
        let mut client = client(&server);
        let reply = client.post(PATH, &binding("a", "", "n"));
        assert_eq!((reply.code, &reply.body["reason"]), (code, &json!(reason)));
        assert_eq!(reply.header("retry-after"), (code == 429).then_some("3"));
        assert!(!is_bound(&server));
        let write = &server.writes()[0];
        assert_eq!((write.code, write.applied, write.answered), (code, false, true));
        assert_eq!(bind(&mut client, &server).unwrap(), 201);
        assert_eq!(server.faults_fired(), [1]);
    }
}

#[test]
fn an_error_is_returned_after_a_write_was_done() {
    for (effect, code) in [(Effect::timeout_after(), 504), (Effect::internal_error_after(), 500)] {
        let server = with_fault(on_bind(effect));
        let mut client = client(&server);
        assert_eq!(bind(&mut client, &server).unwrap(), code);
        assert!(is_bound(&server));
        let write = &server.writes()[0];
        assert_eq!((write.code, write.applied, write.answered), (code, true, true));
        assert_eq!(bind(&mut client, &server).unwrap(), 409);
    }
}

#[test]
fn a_response_is_withheld_before_or_after_the_write() {
    for (effect, done) in [(Effect::HangBefore, false), (Effect::HangAfter, true)] {
        let server = with_fault(on_bind(effect));
        let mut waiting = client(&server);
        waiting.set_timeout(Duration::from_millis(100));
        assert_eq!(bind(&mut waiting, &server).unwrap_err().kind(), ErrorKind::WouldBlock);
        eventually("the record", || server.write_count() == 1);
        assert_eq!(is_bound(&server), done);
        let write = &server.writes()[0];
        assert_eq!((write.applied, write.answered), (done, false));
        assert_eq!(bind(&mut client(&server), &server).unwrap(), if done { 409 } else { 201 });
    }
}

#[test]
fn a_connection_is_reset_before_or_after_the_write() {
    for (effect, done) in [(Effect::ResetBefore, false), (Effect::ResetAfter, true)] {
        let server = with_fault(on_bind(effect));
        assert_eq!(
            bind(&mut client(&server), &server).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(is_bound(&server), done);
        let write = &server.writes()[0];
        assert_eq!((write.applied, write.answered), (done, false));
    }
}

#[test]
fn a_request_is_delayed() {
    let delay = Duration::from_millis(80);
    let server = with_fault(on_bind(Effect::Delay(delay)));
    let mut client = client(&server);
    let start = Instant::now();
    assert_eq!(bind(&mut client, &server).unwrap(), 201);
    assert!(start.elapsed() >= delay);
}

#[test]
fn a_body_is_cut_off() {
    let server = with_fault(Fault::new(Effect::CutBody(100)).verb("list").nth(1));
    let error = client(&server).request("GET", "/api/v1/pods", "", "").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof),
        "{error}"
    );
    assert_eq!(server.faults_fired(), [1]);
}

fn watch(server: &ApiServer) -> Stream {
    client(server)
        .watch(&format!("/api/v1/pods?watch=1&resourceVersion={}", server.version()))
        .unwrap()
}

/// A watch that sees pods b, c and d, of which the fault affects the second event.
fn hit(effect: Effect) -> (ApiServer, Stream) {
    let server = with_fault(Fault::new(effect).verb("watch").resource("pods").nth(2));
    let mut watch = watch(&server);
    for name in ["b", "c", "d"] {
        server.create(&pod(name)).unwrap();
    }
    assert_eq!(watch.brief(), ("ADDED".into(), "b".into()));
    (server, watch)
}

#[test]
fn a_stream_ends_before_an_event() {
    let (_server, mut watch) = hit(Effect::EndStream);
    assert!(matches!(watch.next(), Next::End(rest) if rest.is_empty()));
}

#[test]
fn a_stream_is_reset_before_an_event() {
    let (_server, mut watch) = hit(Effect::ResetStream);
    assert!(matches!(watch.next(), Next::Broken(ErrorKind::ConnectionReset)));
}

#[test]
fn an_event_is_sent_twice() {
    let (_server, mut watch) = hit(Effect::DuplicateEvent);
    let names: Vec<String> = (0..3).map(|_| watch.brief().1).collect();
    assert_eq!(names, ["c", "c", "d"]);
}

#[test]
fn a_delayed_event_delays_all_later_events() {
    let delay = Duration::from_millis(80);
    let start = Instant::now();
    let (_server, mut watch) = hit(Effect::DelayEvent(delay));
    assert_eq!(watch.brief().1, "c");
    assert!(start.elapsed() >= delay);
    assert_eq!(watch.brief().1, "d");
}

#[test]
fn a_line_is_cut_in_half() {
    let (_server, mut watch) = hit(Effect::TruncateEvent);
    let Next::End(rest) = watch.next() else { panic!("the stream has not ended") };
    assert!(rest.starts_with("{\"type\":\"ADDED\",\"object\":{"), "{rest}");
    assert!(serde_json::from_str::<Value>(&rest).is_err());
}

#[test]
fn a_running_watch_expires() {
    let (_server, mut watch) = hit(Effect::gone_event());
    let event = watch.event();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(matches!(watch.next(), Next::End(rest) if rest.is_empty()));
}

#[test]
fn a_watch_is_refused_by_status_or_by_line() {
    let server = with_fault(Fault::new(Effect::gone()).verb("watch").nth(1));
    let refused = client(&server).watch("/api/v1/pods?watch=1&resourceVersion=1").err().unwrap();
    assert_eq!((refused.code, &refused.body["reason"]), (410, &json!("Expired")));
    server.set_faults(0, vec![Fault::new(Effect::gone_line()).verb("watch").nth(1)]);
    // The body is a single line.
    let line = client(&server).get("/api/v1/pods?watch=1&resourceVersion=1");
    assert_eq!(
        (line.code, &line.body["type"], &line.body["object"]["code"]),
        (200, &json!("ERROR"), &json!(410))
    );
    watch(&server);
    assert_eq!(server.faults_fired(), [1]);
}

#[test]
fn a_restart_resets_streams_and_forgets_versions() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let before = server.version();
    let mut running = watch(&server);
    server.create(&pod("b")).unwrap();
    assert_eq!(running.brief().1, "b");
    server.restart(Duration::from_millis(50)).unwrap();
    assert!(matches!(running.next(), Next::Broken(ErrorKind::ConnectionReset)));
    let mut resumed =
        client(&server).watch(&format!("/api/v1/pods?watch=1&resourceVersion={before}")).unwrap();
    assert_eq!(resumed.event()["object"]["code"], 410);
    let list = client(&server).get("/api/v1/pods").body;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let mut fresh = watch(&server);
    server.create(&pod("c")).unwrap();
    assert_eq!(fresh.brief().1, "c");
}

#[test]
fn a_server_that_restarts_refuses_connections() {
    let server = server();
    let address = server.address();
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart(Duration::from_millis(300)));
        eventually("a refused connection", || std::net::TcpStream::connect(address).is_err());
        restart.join().unwrap().unwrap();
    });
    assert_eq!(client(&server).get("/healthz").code, 200);
}

#[test]
fn a_paused_server_answers_after_it_resumes() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let mut running = watch(&server);
    server.pause();
    let mut waiting = client(&server);
    waiting.set_timeout(Duration::from_millis(50));
    assert_eq!(
        waiting.request("GET", "/healthz", "", "").unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    server.create(&pod("b")).unwrap();
    running.client.set_timeout(Duration::from_millis(50));
    assert!(matches!(running.next(), Next::Broken(ErrorKind::WouldBlock)));
    server.resume();
    running.client.set_timeout(Duration::from_secs(30));
    assert_eq!(running.brief().1, "b");
    assert_eq!(client(&server).get("/healthz").code, 200);
}

#[test]
fn too_many_concurrent_requests_are_refused() {
    let server =
        server_with(Options { max_in_flight: 1, controllers: false, ..Options::default() });
    server.set_faults(0, vec![Fault::new(Effect::HangBefore).verb("create")]);
    let mut hanging = client(&server);
    hanging.set_timeout(Duration::from_millis(1));
    let body = node("n").to_string();
    assert!(hanging.request("POST", "/api/v1/nodes", "application/json", &body).is_err());
    eventually("the request", || server.write_count() == 1);
    let refused = client(&server).get("/api/v1/pods");
    assert_eq!((refused.code, refused.header("retry-after")), (429, Some("1")));
    // A refused write is recorded, and watches do not count.
    assert_eq!(client(&server).post("/api/v1/nodes", &node("m")).code, 429);
    assert_eq!(server.writes()[1].code, 429);
    watch(&server);
    drop(hanging);
    eventually("an answer", || client(&server).get("/api/v1/pods").code == 200);
}

#[test]
fn concurrent_writes_are_delayed_in_parallel() {
    let write_delay = Duration::from_millis(300);
    let server = server_with(Options { write_delay, controllers: false, ..Options::default() });
    let address = server.address();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for name in 0..30 {
            scope.spawn(move || {
                assert_eq!(
                    Client::new(address).post("/api/v1/nodes", &node(&format!("n{name}"))).code,
                    201
                )
            });
        }
    });
    assert!(start.elapsed() >= write_delay);
    assert!(start.elapsed() < write_delay * 15, "{:?}", start.elapsed());
}

#[test]
fn stopping_ends_streams() {
    let server = server();
    let mut running = watch(&server);
    server.stop();
    assert!(matches!(running.next(), Next::Broken(_)));
    assert!(server.restart(Duration::ZERO).is_err());
    assert!(server.create(&pod("a")).is_ok());
}

#[test]
fn a_port_in_use_is_an_error() {
    let server = server();
    let port = server.address().port();
    let error = ApiServer::start(Options { port, ..Options::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    // Also in a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime
        .block_on(async { ApiServer::start(Options { port, ..Options::default() }).unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let other = runtime.block_on(async { ApiServer::start(Options::default()).unwrap() });
    runtime.block_on(async { drop(other) });
}
