//! Extenders over real sockets: the client against services that misbehave, and against portolan's own.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_apiserver::ApiServer;
use portolan_kube::extender::{ExtenderOptions, extender_routes};
use portolan_kube::process::{LiveConfig, LiveScheduler, Served};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use support::{Process, applied, limits, node, pod, until};
use tokio::runtime::Runtime;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

/// What a service does with a request.
enum Answer {
    Json(Value),
    /// A status line, and a body.
    Text(&'static str, String),
    /// Closes the connection after a part of the answer.
    Break(&'static str),
    /// Sends a part of the answer, and the rest never.
    Stall,
    /// Answers after the client has given up.
    Hang,
}

/// Verbs and bodies. A request with the header `Authorization` has its value after the verb.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// An HTTP service that answers each request on its own connection.
struct Service {
    address: SocketAddr,
    requests: Requests,
}

impl Service {
    fn start(answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, answer) = (Requests::default(), Arc::new(answer));
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &kept, &*answer));
            }
        });
        Service { address, requests }
    }

    /// Returns the requests of a verb.
    fn requests(&self, verb: &str) -> Vec<Value> {
        let requests = self.requests.lock().expect("requests");
        requests.iter().filter(|(of, _)| of == verb).map(|(_, body)| body.clone()).collect()
    }

    /// Returns the configuration of one extender with these fields.
    fn extender(&self, fields: &str) -> String {
        extender(self.address, fields)
    }
}

fn extender(address: SocketAddr, fields: &str) -> String {
    format!("extenders:\n- {{urlPrefix: 'http://{address}/v/', httpTimeout: 500ms, {fields}}}\n")
}

/// Reads a request: the verb, and the body.
fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let verb = line.strip_prefix("POST /v/")?.split(' ').next()?.to_owned();
    let (mut length, mut is_json, mut authorization) = (0, false, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        match header.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("content-type", value)) => is_json = value == "application/json",
            Some(("authorization", value)) => authorization = format!(" {value}"),
            Some(_) => {}
            None => break,
        }
    }
    assert!(is_json, "the body is JSON");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((verb + &authorization, body))
}

fn serve(mut stream: TcpStream, kept: &Requests, answer: &dyn Fn(&str, &Value) -> Answer) {
    let Some((verb, body)) = request(&stream) else { return };
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    kept.lock().expect("requests").push((verb.clone(), body.clone()));
    let whole = |status: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    let text = match answer(&verb, &body) {
        Answer::Json(value) => whole("200 OK", &value.to_string()),
        Answer::Text(status, body) => whole(status, &body),
        Answer::Break(body) => format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{body}"),
        Answer::Stall => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{");
            std::thread::sleep(Duration::from_secs(2));
            return;
        }
        Answer::Hang => {
            std::thread::sleep(Duration::from_secs(2));
            whole("200 OK", "{}")
        }
    };
    // The client may be gone.
    let _ = stream.write_all(text.as_bytes());
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Starts a scheduler with an extender, which may write.
fn schedule(runtime: &Runtime, server: &ApiServer, configuration: &str) -> Process {
    let limits = limits(Duration::from_secs(10));
    let mut process = Process::configured(runtime, server, "scheduler", 7, limits, configuration);
    process.fence.open();
    process.begin(runtime);
    process
}

fn stop(runtime: Runtime, process: Process) {
    process.fence.close();
    runtime.block_on(process.live.stop(Duration::ZERO));
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn find(server: &ApiServer, name: &str) -> Value {
    let mut pods = server.objects("Pod").into_iter();
    pods.find(|pod| pod["metadata"]["name"] == name).unwrap_or_default()
}

fn node_of(server: &ApiServer, name: &str) -> Option<String> {
    find(server, name)["spec"]["nodeName"].as_str().map(str::to_owned)
}

/// Returns the reason and the message of the condition `PodScheduled`.
fn condition(server: &ApiServer, name: &str) -> Option<(String, String)> {
    let pod = find(server, name);
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

/// Schedules one pod on a cluster of two nodes, and returns its node, or why it was not scheduled.
fn outcome(configuration: &str) -> Result<String, (String, String)> {
    let (runtime, server) = (runtime(), support::server());
    for name in ["n1", "n2"] {
        server.create(&node(name, 1_000)).expect("created");
    }
    server.create(&pod("web", 100)).expect("created");
    let process = schedule(&runtime, &server, configuration);
    let is_done = || node_of(&server, "web").is_some() || condition(&server, "web").is_some();
    runtime.block_on(until("an outcome", is_done));
    let found = node_of(&server, "web");
    let outcome = found.ok_or_else(|| condition(&server, "web").expect("a condition"));
    stop(runtime, process);
    outcome
}

#[test]
fn names_or_whole_nodes_are_sent_and_failures_have_kube_schedulers_message() {
    for is_capable in [true, false] {
        let service = Service::start(|_, _| {
            Answer::Json(json!({
                "NodeNames": [], "Nodes": {"items": []}, "Error": "",
                "FailedNodes": {"n1": "no license"}, "FailedAndUnresolvableNodes": {"n2": "no slot"},
            }))
        });
        let fields = format!("filterVerb: filter, nodeCacheCapable: {is_capable}");
        let (reason, message) = outcome(&service.extender(&fields)).expect_err("rejected");
        assert_eq!(
            (&*reason, &*message),
            (
                "Unschedulable",
                "0/2 nodes are available: 1 no license, 1 no slot. no new claims to deallocate, preemption: 0/2 \
                 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not \
                 helpful for scheduling."
            )
        );
        let request = service.requests("filter").swap_remove(0);
        assert_eq!(request["Pod"]["metadata"]["name"], "web");
        assert_eq!(request["Pod"]["spec"]["containers"][0]["image"], "pause");
        let text = |value: &Value| value.as_str().expect("a name").to_owned();
        let names: Vec<String> = match is_capable {
            true => {
                assert_eq!(request["Nodes"], Value::Null);
                request["NodeNames"].as_array().expect("names").iter().map(text).collect()
            }
            false => {
                assert_eq!(request["NodeNames"], Value::Null);
                let nodes = request["Nodes"]["items"].as_array().expect("nodes");
                assert_eq!(nodes[0]["status"]["allocatable"]["memory"], "64Gi");
                nodes.iter().map(|node| text(&node["metadata"]["name"])).collect()
            }
        };
        assert_eq!(names, ["n1", "n2"]);
    }
}

#[test]
fn a_service_that_misbehaves_fails_the_attempt_unless_it_is_ignorable() {
    type Act = fn(&str, &Value) -> Answer;
    let cases: [(Act, &str); 9] = [
        (
            |_, _| Answer::Text("500 Oops", String::new()),
            "failed filter with extender at URL {}, code 500",
        ),
        (
            |_, _| Answer::Text("302 Found", String::new()),
            "failed filter with extender at URL {}, code 302",
        ),
        (|_, _| Answer::Text("200 OK", "{\"NodeNames\":[\"n1\"".to_owned()), "unexpected EOF"),
        (|_, _| Answer::Break("{\"NodeNames\":["), "unexpected EOF"),
        (|_, _| Answer::Text("200 OK", "\n".to_owned()), "EOF"),
        (
            |_, _| Answer::Json(json!({"NodeNames": ["n1", "n9"]})),
            "extender \"PREFIX\" claims a filtered node \"n9\" which is not found in the input node list",
        ),
        (|_, _| Answer::Json(json!({"error": "out of licenses"})), "out of licenses"),
        (
            |_, _| Answer::Hang,
            "Post \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        ),
        (
            |_, _| Answer::Stall,
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
        ),
    ];
    for (act, expected) in cases {
        let service = Service::start(act);
        let prefix = format!("http://{}/v/", service.address);
        let expected =
            expected.replace("{}", &format!("{prefix}filter")).replace("PREFIX", &prefix);
        let fields = "filterVerb: filter, nodeCacheCapable: true";
        let (reason, message) = outcome(&service.extender(fields)).expect_err("failed");
        assert_eq!((&*reason, message), ("SchedulerError", expected));
    }
    for (act, what) in [cases[0], cases[7]] {
        let service = Service::start(act);
        let ignorable = service.extender("filterVerb: filter, ignorable: true");
        assert!(outcome(&ignorable).is_ok(), "{what}");
        assert_eq!(service.requests("filter").len(), 1);
    }
    // Nobody listens.
    let unused =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let (_, message) = outcome(&extender(unused, "filterVerb: filter")).expect_err("failed");
    assert!(message.starts_with(&format!("Post \"http://{unused}/v/filter\": ")), "{message}");
    assert!(message.contains("refused"), "{message}");
}

#[test]
fn credentials_of_the_address_are_sent_and_not_shown() {
    let service = Service::start(|_, _| Answer::Text("403 Forbidden", String::new()));
    let configuration =
        service.extender("filterVerb: filter").replace("http://", "http://user:secret@");
    let (_, message) = outcome(&configuration).expect_err("failed");
    let url = format!("http://user:***@{}/v/filter", service.address);
    assert_eq!(message, format!("failed filter with extender at URL {url}, code 403"));
    // Headers are compared in lower case.
    let value = STANDARD.encode("user:secret").to_ascii_lowercase();
    assert_eq!(service.requests(&format!("filter basic {value}")).len(), 1);
}

#[test]
fn scores_decide_and_failures_are_left_out() {
    let scored = |score: i64| {
        let service = Service::start(move |_, _| {
            Answer::Json(json!([{"Host": "n2", "Score": score}, {"Host": "n9", "Score": 10}]))
        });
        outcome(
            &service.extender("prioritizeVerb: prioritize, weight: 100, nodeCacheCapable: true"),
        )
    };
    assert_eq!(scored(10).as_deref(), Ok("n2"));
    // Scores out of the range count as they are.
    assert_eq!(scored(i64::MAX).as_deref(), Ok("n2"));
    assert_eq!(scored(-1).as_deref(), Ok("n1"));
    let service = Service::start(|_, _| Answer::Text("200 OK", "{}".to_owned()));
    assert!(outcome(&service.extender("prioritizeVerb: prioritize, weight: 1")).is_ok());
    assert_eq!(service.requests("prioritize").len(), 1);
}

#[test]
fn only_pods_with_a_managed_resource_are_sent() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    let service = Service::start(|_, body| Answer::Json(json!({"NodeNames": body["NodeNames"]})));
    let managed = "managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]";
    let fields = format!("filterVerb: filter, nodeCacheCapable: true, {managed}");
    let process = schedule(&runtime, &server, &service.extender(&fields));
    server.create(&pod("plain", 100)).expect("created");
    let mut wanting = pod("wanting", 100);
    // The node has none, but the resource is the extender's affair.
    wanting["spec"]["containers"][0]["resources"]["limits"] = json!({"example.com/gpu": "1"});
    wanting["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
    server.create(&wanting).expect("created");
    let is_bound = |name: &str| node_of(&server, name).is_some();
    runtime.block_on(until("both bound", || is_bound("plain") && is_bound("wanting")));
    let requests = service.requests("filter");
    assert!(requests.iter().all(|request| request["Pod"]["metadata"]["name"] == "wanting"));
    assert_eq!(requests.len(), 1);
    stop(runtime, process);
}

#[test]
fn an_extender_chooses_the_victims() {
    for is_capable in [true, false] {
        let (runtime, server) = (runtime(), support::server());
        for (name, value) in [("middle", 10), ("high", 1_000)] {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value});
            server.create(&class).expect("created");
        }
        let mut uids = BTreeMap::new();
        for (at, name) in ["n1", "n2"].into_iter().enumerate() {
            server.create(&node(name, 1_000)).expect("created");
            let mut low = pod(&format!("low-{name}"), 1_000);
            low["spec"]["nodeName"] = json!(name);
            if at == 1 {
                low["spec"]["priorityClassName"] = json!("middle");
            }
            let created = server.create(&low).expect("created");
            uids.insert(name, created["metadata"]["uid"].clone());
        }
        let second = uids["n2"].clone();
        let service = Service::start(move |_, _| {
            let victims = json!({"Pods": [{"UID": second}], "NumPDBViolations": 0});
            Answer::Json(json!({"NodeNameToMetaVictims": {"n2": victims}}))
        });
        let mut high = pod("high", 500);
        high["spec"]["priorityClassName"] = json!("high");
        server.create(&high).expect("created");
        let fields = format!("preemptVerb: preempt, nodeCacheCapable: {is_capable}");
        let process = schedule(&runtime, &server, &service.extender(&fields));
        runtime.block_on(until("preempted", || node_of(&server, "high").is_some()));
        // Without the extender, the victim would be the pod of the lowest priority, on n1.
        assert_eq!(node_of(&server, "high").as_deref(), Some("n2"));
        assert_eq!(find(&server, "low-n2"), Value::Null);
        let request = service.requests("preempt").swap_remove(0);
        let (meta, whole) = (&request["NodeNameToMetaVictims"], &request["NodeNameToVictims"]);
        match is_capable {
            true => {
                assert_eq!(
                    meta["n1"],
                    json!({"Pods": [{"UID": uids["n1"]}], "NumPDBViolations": 0})
                );
                assert_eq!(whole, &Value::Null);
            }
            false => {
                assert_eq!(whole["n1"]["Pods"][0]["metadata"]["name"], "low-n1");
                assert_eq!(meta, &Value::Null);
            }
        }
        stop(runtime, process);
    }
}

/// Portolan's own service, with the process behind it.
fn portolan(runtime: &Runtime, server: &ApiServer, allow_bind: bool) -> (Process, Served) {
    let (process, served) = unready(runtime, server, allow_bind);
    runtime.block_on(process.live.mirror().synced()).expect("synced");
    (process, served)
}

/// Portolan's own service, whose mirror may not be synced yet.
fn unready(runtime: &Runtime, server: &ApiServer, allow_bind: bool) -> (Process, Served) {
    let limits = limits(Duration::from_secs(10));
    let process = Process::with(runtime, server, "extender", 1, limits);
    if allow_bind {
        process.fence.open();
    }
    let mut options = ExtenderOptions::default();
    (options.allow_bind, options.max_body) = (allow_bind, 1 << 20);
    let routes = extender_routes(&process.live, options).expect("routes");
    let routes = axum::Router::new().nest("/v", routes);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let served = Served::start_with(any, &process.live, routes);
    let served = runtime.block_on(served).expect("served");
    (process, served)
}

fn backlog(server: &ApiServer) {
    for at in 0..5 {
        server.create(&node(&format!("n{at}"), 1_000 + 300 * at)).expect("created");
    }
    for at in 0..20 {
        server.create(&pod(&format!("p{at}"), 150 + 35 * (at % 7))).expect("created");
    }
}

/// Schedules the backlog, and returns the nodes of the pods.
fn placements(fields: Option<&str>) -> BTreeMap<String, Option<String>> {
    let (runtime, server) = (runtime(), support::server());
    backlog(&server);
    let own = fields.is_some().then(|| portolan(&runtime, &server, true));
    let configuration = match (&own, fields) {
        (Some((_, served)), Some(fields)) => extender(served.address(), fields),
        _ => String::new(),
    };
    let process = schedule(&runtime, &server, &configuration);
    let is_over = |at: u32| {
        let name = format!("p{at}");
        node_of(&server, &name).is_some() || condition(&server, &name).is_some()
    };
    runtime.block_on(until("all tried", || (0..20).all(is_over)));
    let placed = (0..20).map(|at| format!("p{at}"));
    let placed = placed.map(|name| (name.clone(), node_of(&server, &name))).collect();
    if fields.is_some_and(|fields| fields.contains("bindVerb")) {
        let bound = |agent: &str| {
            let writes = applied(&server, agent).into_iter();
            writes.filter(|write| write.resource == "pods/binding").count()
        };
        assert_eq!((bound("scheduler"), bound("extender")), (0, 20));
        let events = || {
            let events = server.objects("events.events.k8s.io");
            events.iter().filter(|event| event["reason"] == "Scheduled").count()
        };
        runtime.block_on(until("the events", || events() >= 20));
        assert_eq!(events(), 20, "the scheduler alone records them");
    }
    if let Some((other, served)) = own {
        drop(served);
        runtime.block_on(other.live.stop(Duration::ZERO));
    }
    stop(runtime, process);
    placed
}

#[test]
fn pods_are_placed_as_without_an_extender_that_passes_the_same_nodes() {
    let expected = placements(None);
    assert!(expected.values().all(Option::is_some), "{expected:?}");
    let filter = "filterVerb: filter, preemptVerb: preempt, nodeCacheCapable: true";
    assert_eq!(placements(Some(filter)), expected, "names");
    assert_eq!(placements(Some("filterVerb: filter")), expected, "whole nodes");
    let bind = "filterVerb: filter, bindVerb: bind, nodeCacheCapable: true";
    assert_eq!(placements(Some(bind)), expected, "bindings");
}

#[test]
fn the_outcome_of_a_binding_without_an_answer_is_looked_up() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    server.create(&pod("web", 100)).expect("created");
    let (own, served) = portolan(&runtime, &server, true);
    let behind = served.address();
    // Passes the request on, and drops the answer.
    let service = Service::start(move |verb, body| {
        let answer = post(behind, verb, &body.to_string());
        assert!(answer.contains(r#"{"Error":""}"#), "{answer}");
        Answer::Break("")
    });
    let process = schedule(&runtime, &server, &service.extender("bindVerb: bind"));
    runtime.block_on(until("bound", || process.live.figures().bound == 1));
    assert_eq!(process.live.figures().not_bound, 0);
    assert_eq!(service.requests("bind").len(), 1);
    runtime.block_on(own.live.stop(Duration::ZERO));
    stop(runtime, process);
}

#[test]
fn a_binding_that_an_extender_refuses_fails() {
    let refusing = Service::start(|_, _| Answer::Json(json!({"Error": "not today"})));
    let (reason, message) = outcome(&refusing.extender("bindVerb: bind")).expect_err("refused");
    assert_eq!((&*reason, &*message), ("SchedulerError", "not today"));
    // If the extender is ignorable, the scheduler binds.
    let ignorable = refusing.extender("bindVerb: bind, ignorable: true");
    assert!(outcome(&ignorable).is_ok());
}

/// Posts to a service, and returns the whole answer.
fn post(address: SocketAddr, verb: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let length = body.len();
    let head = format!(
        "POST /v/{verb} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    // The server may answer before it has read everything.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

/// Posts JSON, and returns the JSON of the answer.
fn ask(address: SocketAddr, verb: &str, body: &Value) -> Value {
    let answer = post(address, verb, &body.to_string());
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn the_service_answers_nothing_before_the_first_lists_are_applied() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    server.pause();
    let (own, served) = unready(&runtime, &server, true);
    let at = served.address();
    let mut wanted = pod("web", 100);
    wanted["metadata"]["uid"] = json!("u");
    let names = json!({"Pod": wanted, "NodeNames": ["n1"]});
    for verb in ["filter", "prioritize", "preempt", "bind"] {
        let answer = post(at, verb, &names.to_string());
        assert!(answer.starts_with("HTTP/1.1 503 "), "{verb}: {answer}");
        assert!(answer.ends_with(r#"{"Error":"the first lists are not applied yet"}"#), "{answer}");
    }
    server.resume();
    runtime.block_on(own.live.mirror().synced()).expect("synced");
    assert_eq!(ask(at, "filter", &names)["NodeNames"], json!(["n1"]));
    drop(served);
    stop(runtime, own);
}

#[test]
fn the_service_filters_scores_and_preempts_by_the_mirror() {
    let (runtime, server) = (runtime(), support::server());
    for (name, cpu) in [("n1", 1_000), ("n2", 2_000), ("n3", 50)] {
        server.create(&node(name, cpu)).expect("created");
    }
    let mut low = pod("low", 950);
    low["spec"]["nodeName"] = json!("n1");
    let low = server.create(&low).expect("created")["metadata"]["uid"].clone();
    let (own, served) = portolan(&runtime, &server, false);
    let at = served.address();
    let mut wanted = pod("web", 100);
    wanted["metadata"]["uid"] = json!("u");
    wanted["spec"]["priority"] = json!(10);
    let names = json!({"Pod": wanted, "NodeNames": ["n1", "n2", "n3", "n9"]});
    let expected = json!({
        "NodeNames": ["n2"], "Nodes": null, "Error": "",
        "FailedNodes": {"n1": "Insufficient cpu"},
        "FailedAndUnresolvableNodes": {"n3": "Insufficient cpu", "n9": "node(s) unknown to the extender"},
    });
    assert_eq!(ask(at, "filter", &names), expected);
    let items =
        ["n2", "n3"].map(|name| json!({"metadata": {"name": name, "labels": {"kept": "as sent"}}}));
    let nodes = json!({"Pod": wanted, "Nodes": {"items": items}});
    let answer = ask(at, "filter", &nodes);
    assert_eq!(
        (&answer["Nodes"]["items"], &answer["NodeNames"]),
        (&json!([items[0]]), &Value::Null)
    );
    let scores = ask(at, "prioritize", &names);
    let score = |at: usize| scores[at]["Score"].as_i64().expect("a score");
    assert_eq!(scores[1]["Host"], "n2");
    assert_eq!((score(1), score(3)), (10, 0), "{scores}");
    let victims = json!({"Pods": [{"UID": low}], "NumPDBViolations": 1});
    let nothing = json!({"Pods": [], "NumPDBViolations": 0});
    let asked = json!({"Pod": wanted, "NodeNameToMetaVictims": {"n1": victims, "n3": nothing, "n9": nothing}});
    assert_eq!(ask(at, "preempt", &asked), json!({"NodeNameToMetaVictims": {"n1": victims}}));
    let binding = json!({"PodName": "web", "PodNamespace": "default", "PodUID": "u", "Node": "n1"});
    let refused = "bindings are not allowed: start the extender with --allow-bind";
    assert_eq!(ask(at, "bind", &binding), json!({"Error": refused}));
    for (verb, body, code, why) in [
        ("filter", "{", 400, "EOF"),
        ("filter", "", 400, "EOF"),
        ("filter", "[1]", 400, "an object"),
        ("filter", r#"{"NodeNames":[]}"#, 400, "Pod is missing"),
        ("filter", r#"{"Pod":{"spec":{"overhead":{"cpu":"x"}}},"NodeNames":[]}"#, 400, "Pod: "),
        (
            "prioritize",
            r#"{"Pod":{"metadata":{"name":"p","uid":"u"}}}"#,
            400,
            "NodeNames or Nodes is missing",
        ),
        ("preempt", r#"{"Pod":{"metadata":{"name":"p","uid":"u"}}}"#, 400, "NodeNameToMetaVictims"),
        (
            "bind",
            r#"{"PodName":"../nodes","PodNamespace":"d","PodUID":"u","Node":"n"}"#,
            400,
            "PodName: ",
        ),
        ("bind", r#"{"PodName":"p","PodNamespace":"d","Node":"n"}"#, 400, "PodUID is missing"),
    ] {
        let answer = post(at, verb, body);
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        let error: Value = serde_json::from_str(body).expect("JSON");
        assert!(
            error["Error"].as_str().is_some_and(|error| error.contains(why)),
            "{why}: {answer}"
        );
    }
    let large = format!("{{\"Pod\":{{}},\"NodeNames\":[\"{}\"]}}", "n".repeat(2 << 20));
    // The connection may be reset before the answer is read.
    let answer = post(at, "filter", &large);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(ask(at, "filter", &names), expected, "it still answers");
    drop(served);
    stop(runtime, own);
}

/// A certificate for this name, with its key, both as PEM.
struct Identity {
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Identity {
    fn new(name: &str) -> Identity {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        Identity { certificate: made.cert, key: made.signing_key }
    }

    fn pem(&self) -> (String, String) {
        let encode = |pem: String| STANDARD.encode(pem);
        (encode(self.certificate.pem()), encode(self.key.serialize_pem()))
    }
}

/// Starts a service over TLS that passes node n2, and requires the client's certificate.
fn encrypted(server: &Identity, client: &Identity) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(client.certificate.der().clone()).expect("a root");
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let key = PrivateKeyDer::Pkcs8(server.key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![server.certificate.der().clone()], key)
        .expect("a configuration");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(connection) = rustls::ServerConnection::new(config.clone()) else { continue };
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut read = BufReader::new(&mut stream);
            let mut line = String::new();
            // Fails if the handshake does.
            while read.read_line(&mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            let body = r#"{"NodeNames":["n2"]}"#;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    address
}

#[test]
fn services_are_verified_as_configured() {
    let (server, client) = (Identity::new("gpu.example.com"), Identity::new("scheduler"));
    let address = encrypted(&server, &client);
    let ((ca, _), (certificate, key)) = (server.pem(), client.pem());
    let outcome = |tls: &str, further: &str| {
        let fields = format!(
            "filterVerb: filter, nodeCacheCapable: true, {further} tlsConfig: {{certData: {certificate}, \
             keyData: {key}, {tls}}}"
        );
        outcome(&extender(address, &fields).replace("http://", "https://"))
    };
    let named = "serverName: gpu.example.com";
    assert_eq!(outcome(&format!("caData: {ca}, {named}"), "").as_deref(), Ok("n2"));
    assert_eq!(outcome("insecure: true", "").as_deref(), Ok("n2"));
    assert_eq!(outcome("", "enableHTTPS: true,").as_deref(), Ok("n2"));
    // The certificate is not that of 127.0.0.1, that of another authority, or not known.
    let (other, _) = Identity::new("gpu.example.com").pem();
    for tls in [format!("caData: {ca}"), format!("caData: {other}, {named}"), named.to_owned()] {
        let (_, message) = outcome(&tls, "").expect_err("not verified");
        assert!(message.contains("certificate"), "{message}");
    }
    // The client has no certificate.
    let fields = format!("filterVerb: filter, tlsConfig: {{caData: {ca}, {named}}}");
    let anonymous = extender(address, &fields).replace("http://", "https://");
    assert!(self::outcome(&anonymous).is_err());
}

#[test]
fn a_private_key_is_not_shown_with_the_configuration() {
    let (runtime, server) = (runtime(), support::server());
    let (certificate, key) = Identity::new("scheduler").pem();
    let any = SocketAddr::from(([127, 0, 0, 1], 1));
    let shown = |fields: &str| {
        let (limits, text) = (limits(Duration::from_secs(1)), extender(any, fields));
        let process = Process::configured(&runtime, &server, "scheduler", 1, limits, &text);
        let shown = process.live.configuration().to_string();
        process.fence.close();
        runtime.block_on(process.live.stop(Duration::ZERO));
        shown
    };
    let secret = shown(&format!("tlsConfig: {{certData: {certificate}, keyData: {key}}}"));
    assert!(!secret.contains(&key) && secret.contains("use keyFile"), "{secret}");
    assert!(shown("filterVerb: filter").contains("filterVerb: filter"));
}

#[test]
fn an_extender_that_cannot_be_called_is_an_error_at_the_start() {
    let (runtime, server) = (runtime(), support::server());
    let _within = runtime.enter();
    let refused = |fields: &str| {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{{{fields}}}]"
        );
        let mut config = LiveConfig::default();
        config.configuration = Some(text.into());
        let api = support::client(&server, "scheduler", limits(Duration::from_secs(1)));
        let started = LiveScheduler::start(api, Fence::closed(), config);
        started.expect_err("refused").to_string()
    };
    let error = refused("urlPrefix: 'https://h', tlsConfig: {insecure: true, caFile: ca.pem}");
    assert_eq!(
        error,
        "couldn't build extenders: extender \"https://h\": specifying a root certificates file with the insecure \
         flag is not allowed"
    );
    for (fields, why) in [
        ("urlPrefix: 'localhost:8080'", "write an address"),
        ("urlPrefix: ''", "couldn't build extenders"),
        ("urlPrefix: 'ftp://u:secret@h'", "extender \"ftp://u:***@h\": write an address"),
        ("urlPrefix: 'https://h', tlsConfig: {caFile: /nonexistent}", "/nonexistent"),
        (
            "urlPrefix: 'https://h', tlsConfig: {certData: YQ==, keyData: YQ==}",
            "couldn't build extenders",
        ),
    ] {
        let error = refused(fields);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn an_extender_calls_no_extenders() {
    let (runtime, server) = (runtime(), support::server());
    let configuration = "extenders: [{urlPrefix: 'http://127.0.0.1:1', filterVerb: f}]\n";
    let limits = limits(Duration::from_secs(10));
    let process = Process::configured(&runtime, &server, "extender", 1, limits, configuration);
    let error = extender_routes(&process.live, ExtenderOptions::default()).expect_err("refused");
    assert!(error.to_string().contains("remove them"), "{error}");
    stop(runtime, process);
}
