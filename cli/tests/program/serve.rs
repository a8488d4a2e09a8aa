//! `portolan serve`: every route answers as its OpenAPI document promises, and as the program does.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

use crate::common::{file, portolan};
use crate::compare::PACKS;

/// A server, which ends with this.
pub(crate) struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The first line that it prints.
    pub(crate) line: String,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::at("127.0.0.1:0", arguments)
    }

    pub(crate) fn at(listen: &str, arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
        command.args(["serve", "--listen", listen]).args(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.split('/').nth(2).expect("an address").to_owned();
        Server { child, address, line: line.trim_end().to_owned() }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = format!("http://{}{path}", self.address);
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let agent: ureq::Agent = config.into();
        let request = ureq::http::Request::builder().method(method).uri(url);
        let request = request.header("content-type", "application/json");
        let body = body.map_or_else(String::new, Value::to_string);
        let request = request.body(body).expect("a request");
        let mut response = agent.run(request).expect("an answer");
        let text = response.body_mut().read_to_string().expect("UTF-8");
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The status and the lines of an answer that is asked for in lines.
    fn lines(&self, path: &str, body: &Value) -> (u16, Vec<Value>) {
        let url = format!("http://{}{path}", self.address);
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let request = ureq::Agent::from(config).post(url).content_type("application/json");
        let request = request.header("accept", "text/html;q=0.1, application/x-ndjson;q=1");
        let mut response = request.send(body.to_string()).expect("an answer");
        let text = response.body_mut().read_to_string().expect("UTF-8");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        (response.status().as_u16(), lines.collect())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (code, answer) = self.request("GET", path, None);
        assert_eq!(code, 200, "{path}: {answer}");
        answer
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let (code, answer) = self.request("POST", path, Some(body));
        assert!(matches!(code, 200 | 201), "{path}: {answer}");
        answer
    }

    /// The error of a request, with its status.
    fn problem(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let (code, answer) = self.request(method, path, body);
        assert_matches("Problem", &answer);
        assert_eq!(answer["status"], code);
        (code, answer["detail"].as_str().expect("a text").to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The schemas of the document, which refuse fields that they do not list.
static SCHEMAS: LazyLock<Value> = LazyLock::new(|| {
    let document: Value =
        serde_json::from_str(include_str!("../../src/serve/openapi.json")).expect("JSON");
    let schemas = &document["components"]["schemas"];
    strict(schemas, schemas)
});

fn strict(schema: &Value, schemas: &Value) -> Value {
    match schema {
        Value::Object(of) if of.contains_key("allOf") => {
            // Each part allows the fields of the others.
            let parts = of["allOf"].as_array().expect("a list").iter();
            let parts = parts.map(|part| match part["$ref"].as_str() {
                Some(name) => &schemas[name.rsplit('/').next().expect("a name")],
                None => part,
            });
            json!({ "allOf": parts.collect::<Vec<_>>(), "unevaluatedProperties": false })
        }
        Value::Object(of) => {
            let mut all: serde_json::Map<String, Value> =
                of.iter().map(|(name, part)| (name.clone(), strict(part, schemas))).collect();
            if of.get("properties").is_some_and(Value::is_object) {
                all.entry("additionalProperties").or_insert(json!(false));
            }
            Value::Object(all)
        }
        Value::Array(parts) => parts.iter().map(|part| strict(part, schemas)).collect(),
        other => other.clone(),
    }
}

pub(crate) fn assert_matches(schema: &str, answer: &Value) {
    let root = json!({
        "$ref": format!("#/components/schemas/{schema}"),
        "components": { "schemas": *SCHEMAS },
    });
    let validator = jsonschema::validator_for(&root).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(answer).take(3).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{schema}: {errors:?}: {answer}");
}

const CLUSTER: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: a, pool: p, cost: "1"}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {topology.kubernetes.io/zone: b, pool: p, cost: "2"}}
spec: {taints: [{key: k, value: v, effect: PreferNoSchedule}]}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: shop, uid: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: c, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: shop}
spec: {containers: [{name: c, image: c, resources: {requests: {cpu: "6"}}}]}
"#;

/// The cluster, with a pod of `web` on n1 and two on n2.
pub(crate) fn cluster(test: &str) -> String {
    let pod = |n: usize, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-{n}, namespace: shop, labels: {{app: web}}, \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web, controller: true}}]}}\n\
             spec: {{nodeName: {node}, containers: [{{name: c, image: c, resources: {{requests: {{cpu: \"1\"}}}}}}]}}\n\
             status: {{phase: Running}}\n"
        )
    };
    let pods = [pod(1, "n1"), pod(2, "n2"), pod(3, "n2")].concat();
    file(test, "cluster.yaml", format!("{CLUSTER}{pods}").as_bytes())
}

/// What the program prints in JSON.
fn printed(arguments: &[&str]) -> Value {
    let run = portolan(&[arguments, &["--output", "json"]].concat());
    serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{}", run.err))
}

/// An answer without the fields that only the server adds.
fn without_additions(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().expect("an object");
    fields.remove("generation").expect("a generation");
    fields.remove("headline");
    answer
}

#[test]
fn every_route_matches_its_schema_and_the_program() {
    let cluster = cluster("serve");
    let server = Server::start(&["--cluster", &cluster]);
    let shows = " shows cluster.yaml: 2 nodes, 4 pods, 1 pending";
    assert!(server.line.ends_with(shows), "{}", server.line);

    let summary = server.get("/api/v1/summary");
    assert_matches("Summary", &summary);
    assert_eq!(
        summary["resources"][0],
        json!({"name": "cpu", "unit": "cores", "allocatable": 8.0, "requested": 3.0})
    );

    let nodes = server.get("/api/v1/nodes");
    assert_matches("Nodes", &nodes);
    assert_eq!(nodes["nodes"][1]["taints"], json!(["k=v:PreferNoSchedule"]));
    assert_eq!(nodes["pools"], json!([{"name": "p", "selector": "pool=p", "nodes": 2}]));
    let node = server.get("/api/v1/nodes/n2");
    assert_matches("NodeWithPods", &node);
    assert_eq!(node["list"][0]["of"], "ReplicaSet shop/web");
    assert_eq!(node["requested"][0], 2.0);

    let pending = server.get("/api/v1/pending");
    assert_matches("Pending", &pending);
    let same = printed(&["explain", "--pending", "--cluster", &cluster]);
    assert_eq!(without_additions(pending), same);

    let explained = server.post("/api/v1/explain", &json!({"pod": "shop/large"}));
    assert_matches("Explanation", &explained);
    let same = printed(&["explain", "--pod", "shop/large", "--cluster", &cluster]);
    assert_eq!(without_additions(explained), same);

    let named = json!({"pod": "large", "namespace": "shop"});
    assert_eq!(server.post("/api/v1/explain", &named)["pod"], "shop/large");

    let headroom = server.post("/api/v1/headroom", &json!({"pod": "shop/web-1"}));
    assert_matches("Headroom", &headroom);
    let by = json!([
        {"pool": "p", "zone": "a", "nodes": 1, "count": 3},
        {"pool": "p", "zone": "b", "nodes": 1, "count": 2},
    ]);
    assert_eq!((&headroom["count"], &headroom["by"]), (&json!(5), &by));
    let shape = json!({"requests": {"cpu": "1500m", "memory": 1 << 30}});
    assert_eq!(server.post("/api/v1/headroom", &shape)["count"], 3);

    let answer = server.post("/api/v1/what-if", &json!({"fail_node": ["n1"]}));
    assert_matches("Answer", &answer);
    let arguments = ["what-if", "--fail-node", "n1", "--cluster", &cluster];
    let table = portolan(&arguments).out;
    assert_eq!(answer["headline"], table.lines().next().expect("a line"));
    assert_eq!(without_additions(answer), printed(&arguments));

    for change in [
        json!({"each": "zone"}),
        json!({"consolidate": true}),
        json!({"upgrade": "all", "add": "1xn1", "scale": "rs/web=4"}),
        json!({"drain": "n1", "remove": "pod/large"}),
    ] {
        assert_matches("Answer", &server.post("/api/v1/what-if", &change));
    }
    let compared = server.post("/api/v1/compare", &json!({"configs": ["", PACKS]}));
    assert_matches("Comparison", &compared);
    assert_matches("Audit", &server.get("/api/v1/audit"));
    assert_eq!(server.get("/healthz"), "ok");
    let metrics = server.get("/metrics");
    let counted = "portolan_serve_requests_total{path=\"/api/v1/headroom\",code=\"200\"} 2";
    assert!(metrics.as_str().expect("a text").contains(counted), "{metrics}");
}

/// The texts between grave accents.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_document_has_the_methods_parameters_and_fields_that_are_accepted() {
    let server = Server::start(&["--cluster", &cluster("document")]);
    let document = server.get("/api/v1/openapi.json");
    let paths = document["paths"].as_object().expect("paths");
    for (template, operations) in paths {
        let path = template.replace("{name}", "n1").replace("{id}", "none");
        for method in ["get", "post", "delete"] {
            let upper = method.to_uppercase();
            let body = (method == "post").then(|| json!({}));
            let (code, answer) = server.request(&upper, &format!("{path}?none_=1"), body.as_ref());
            assert_eq!(code == 405, operations[method].is_null(), "{upper} {path}");
            let detail = answer["detail"].as_str().unwrap_or_default();
            let unknown = detail.split_once("unknown parameter `none_`");
            let accepted = unknown.map(|(_, names)| quoted(names)).unwrap_or_default();
            let parameters = operations[method]["parameters"].as_array();
            let parameters = parameters.into_iter().flatten();
            let of_query = parameters.filter(|parameter| parameter["in"] == "query");
            let named = of_query.map(|parameter| parameter["name"].as_str().expect("a name"));
            assert_eq!(accepted, named.collect(), "{upper} {path}: {detail}");
        }
    }
    let schemas = &document["components"]["schemas"];
    let fields = |schema: &str| -> BTreeSet<&str> {
        let fields = schemas[schema]["properties"].as_object().expect("fields");
        fields.keys().map(String::as_str).collect()
    };
    let none = json!({"none_": 1});
    let refused = server.problem("POST", "/api/v1/compare", Some(&none)).1;
    let (_, accepted) = refused.split_once("`none_`").expect("the field");
    assert_eq!(quoted(accepted), fields("CompareRequest"));
    // Changes have the options of the program.
    for asked in [
        json!({"drain": ["n1"], "force": true, "max_surge": 1, "upgrade": "pool=p"}),
        json!({"each": "node", "add": "1xn1"}),
        json!({"consolidate": true, "time_limit": 0.5}),
    ] {
        let root =
            json!({"$ref": "#/components/schemas/Change", "components": document["components"]});
        assert!(jsonschema::is_valid(&root, &asked), "{asked}");
        server.post("/api/v1/what-if", &asked);
    }
    assert!(fields("SessionRequest").is_superset(&fields("Change")));
    let text = document.to_string();
    let names = text.split("#/components/schemas/").skip(1);
    for name in names.filter_map(|rest| rest.split('"').next()) {
        assert!(schemas[name].is_object(), "{name}");
    }
}

#[test]
fn a_session_keeps_the_cluster_after_its_change_and_ends_with_its_parent() {
    let server = Server::start(&["--cluster", &cluster("sessions")]);
    let first = server.post("/api/v1/sessions", &json!({"scale": "rs/web=5"}));
    assert_matches("SessionWithAnswer", &first);
    let id = first["id"].as_str().expect("a text");
    let of = |path: &str, id: &str| format!("/api/v1/{path}?session={id}");
    let summary = server.get(&of("summary", id));
    assert_eq!((&summary["pods"], &summary["session"]), (&json!(6), &json!(id)));
    assert_eq!(server.get("/api/v1/summary")["pods"], 4);
    // The new pods exist: they are explained, and one more drain moves all of them.
    let new = first["answer"]["placed"][0]["pod"].as_str().expect("a pod");
    let explained = server.post(&of("explain", id), &json!({"pod": new}));
    assert_eq!(explained["state"], "placed");
    assert_eq!(server.problem("POST", "/api/v1/explain", Some(&json!({"pod": new}))).0, 422);

    let second = json!({"parent": id, "drain": "n2", "force": true});
    let second = server.post("/api/v1/sessions", &second);
    assert_eq!(second["answer"]["headline"], "1 pod unschedulable");
    let nested = second["id"].as_str().expect("a text");
    let (code, _) = server.problem("GET", &of("audit", id), None);
    assert_eq!(code, 422, "the objects of a session are not examined");
    let nodes = server.get(&of("nodes", nested));
    assert_eq!(nodes["nodes"][1]["is_cordoned"], true);
    assert_eq!(server.get(&of("nodes", id))["nodes"][1]["is_cordoned"], false);
    let pending = server.get(&of("pending", nested));
    assert_eq!(pending["pending"], 2, "{pending}");

    let listed = server.get("/api/v1/sessions");
    assert_matches("Sessions", &listed);
    assert_eq!(listed["sessions"].as_array().expect("a list").len(), 2);
    assert_eq!(server.get(&format!("/api/v1/sessions/{nested}"))["answer"], second["answer"]);
    assert_eq!(server.request("DELETE", &format!("/api/v1/sessions/{id}"), None).0, 204);
    for gone in [id, nested] {
        let (code, detail) = server.problem("GET", &of("nodes", gone), None);
        assert_eq!(
            (code, &*detail),
            (404, "there is no such session: it has ended, or was deleted")
        );
    }
}

#[test]
fn wrong_requests_have_problem_documents_and_change_nothing() {
    let server = Server::start(&["--cluster", &cluster("wrong")]);
    let secret = file("wrong", "node.yaml", CLUSTER.as_bytes());
    for (path, body, code, detail) in [
        ("explain", json!({"pod": "shop/none"}), 422, "does not exist"),
        ("explain", json!({"pod": secret}), 422, "does not exist"),
        ("explain", json!({"pods": "shop/web-1"}), 422, "must have the field \"pod\""),
        ("explain", json!({"pod": "web", "name": "x"}), 422, "the only other field"),
        ("explain", json!([1]), 400, "must be a JSON object"),
        ("explain", json!({"pod": "rs/none"}), 422, "pod rs/none: not found"),
        ("headroom", json!({"requests": {"cpu": "many"}}), 422, "requests.cpu: quantity \"many\""),
        ("headroom", json!({"requests": {"mem": "1Gi"}}), 422, "requests.mem: no such resource"),
        ("headroom", json!({"requests": 3}), 422, "requests: invalid type"),
        ("headroom", json!({"requests": null}), 422, "requests must be amounts"),
        ("headroom", json!({}), 422, "must have one field"),
        ("headroom", json!({"pod": "shop/web-1", "requests": {}}), 422, "must have one field"),
        ("what-if", json!({"drain": ["none"]}), 422, "drain none: node none does not exist"),
        ("what-if", json!({"fail_zone": "none"}), 422, "fail_zone none: no node is in this zone"),
        ("what-if", json!({"upgrade": "all", "max_surge": 0}), 422, "max_surge and max_unavail"),
        ("what-if", json!({"add": [format!("1x{secret}")]}), 422, "no node of the cluster"),
        ("what-if", json!({"add": ["1x-"]}), 422, "no node of the cluster"),
        ("what-if", json!({"add": ["/etc/passwd"]}), 422, "pass COUNTxNODE, such"),
        ("what-if", json!({"cluster": secret}), 422, "has no field \"cluster\""),
        ("what-if", json!({"drian": "n1"}), 422, "did you mean drain?"),
        ("sessions", json!({}), 422, "must have a change"),
        ("sessions", json!({"parent": "x", "drain": "n1"}), 404, "no such session"),
        ("sessions", json!({"parent": 1}), 422, "parent must be"),
    ] {
        let (status, text) = server.problem("POST", &format!("/api/v1/{path}"), Some(&body));
        assert!(status == code && text.contains(detail), "{path} {body}: {status} {text}");
        assert!(!text.contains("--"), "{text}");
    }
    let large = json!({"pod": "x".repeat(300 << 10)});
    assert_eq!(server.problem("POST", "/api/v1/explain", Some(&large)).0, 413);
    for (method, path, code) in [
        ("GET", "/api/v1/none", 404),
        ("GET", "/page/none.js", 404),
        ("GET", "/api/v1/nodes/none", 404),
        ("DELETE", "/api/v1/summary", 405),
        ("GET", "/api/v1/explain", 405),
        ("DELETE", "/api/v1/sessions/none", 404),
        ("GET", "/api/v1/nodes?session=none", 404),
    ] {
        assert_eq!(server.problem(method, path, None).0, code, "{method} {path}");
    }
    assert_eq!(server.get("/api/v1/sessions"), json!({"sessions": []}));
    assert_eq!(server.get("/api/v1/summary")["generation"], 1);
}

/// The head of an answer to a request as it is.
fn raw(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match stream.read(&mut buffer).expect("an answer") {
            0 => break,
            read => head.extend_from_slice(&buffer[..read]),
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn pages_of_other_origins_and_hosts_get_nothing() {
    let server = Server::start(&["--cluster", &cluster("origins")]);
    let post = |kind: &str| {
        format!(
            "POST /api/v1/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 2\r\n\r\n{{}}"
        )
    };
    assert!(raw(&server, &post("text/plain")).starts_with("HTTP/1.1 415"));
    assert!(raw(&server, &post("application/json; charset=utf-8")).starts_with("HTTP/1.1 200"));
    let rebound = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert!(raw(&server, rebound).starts_with("HTTP/1.1 403"));
    let from = |site: &str, path: &str| {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}\r\n\r\n");
        raw(&server, &head)
    };
    for site in ["cross-site", "same-site"] {
        assert!(from(site, "/api/v1/audit").starts_with("HTTP/1.1 403"));
        assert!(from(site, "/").starts_with("HTTP/1.1 200"), "links lead to the page");
    }
    for site in ["same-origin", "none"] {
        assert!(from(site, "/api/v1/audit").starts_with("HTTP/1.1 200"));
    }
    let page = raw(&server, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").to_ascii_lowercase();
    assert!(
        page.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{page}"
    );
    assert!(!page.contains("access-control-allow-origin"), "{page}");
}

#[test]
fn failures_come_in_lines_before_the_answer() {
    let server = Server::start(&["--cluster", &cluster("lines")]);
    let question = json!({"each": "node"});
    let plain = server.post("/api/v1/what-if", &question);
    let (code, mut lines) = server.lines("/api/v1/what-if", &question);
    assert_eq!(code, 200);
    lines.iter().for_each(|line| assert_matches("Line", line));
    assert_eq!(lines.pop().expect("a line")["answer"], plain);
    assert!(lines.iter().all(|line| line["of"] == 2), "{lines:?}");
    let name = |failure: &Value| failure["name"].to_string();
    let mut told: Vec<Value> = lines.iter().map(|line| line["failure"].clone()).collect();
    let mut all = plain["each"]["failures"].as_array().expect("a list").clone();
    told.sort_by_key(name);
    all.sort_by_key(name);
    assert_eq!(told, all);

    let change = json!({"drain": "n1"});
    let plain = server.post("/api/v1/what-if", &change);
    assert_eq!(server.lines("/api/v1/what-if", &change), (200, vec![json!({"answer": plain})]));
    let (code, problem) = server.lines("/api/v1/what-if", &json!({"fail_zone": "none"}));
    assert_eq!((code, &problem[0]["status"]), (422, &json!(422)));
}

/// Also if the label of one pool is on nodes of another one, whose label is looked for first.
#[test]
fn selectors_of_pools_select_their_nodes_only() {
    let labels = [
        "{pool: a}",
        "{pool: a, node.kubernetes.io/instance-type: large}",
        "{node.kubernetes.io/instance-type: large}",
        "{eks.amazonaws.com/nodegroup: a, pool: a, node.kubernetes.io/instance-type: large}",
        "{zone: a}",
    ];
    let node = |(n, labels): (usize, &&str)| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}, labels: {labels}}}\n\
             status: {{allocatable: {{cpu: \"4\", pods: \"110\"}}}}\n"
        )
    };
    let nodes: String = labels.iter().enumerate().map(node).collect();
    let path = file("pools", "cluster.yaml", nodes.as_bytes());
    let server = Server::start(&["--cluster", &path]);
    let pools = server.get("/api/v1/nodes")["pools"].clone();
    let (group, kind) = ("eks.amazonaws.com/nodegroup", "node.kubernetes.io/instance-type");
    let expected = json!([
        {"name": "a", "selector": format!("{group}=a"), "nodes": 1},
        {"name": "a", "selector": format!("pool=a,!{group}"), "nodes": 2},
        {"name": "large", "selector": format!("{kind}=large,!{group},!pool"), "nodes": 1},
    ]);
    assert_eq!(pools, expected);
    for pool in pools.as_array().expect("a list") {
        let answer = server.post("/api/v1/what-if", &json!({"upgrade": pool["selector"]}));
        assert_eq!(answer["upgrade"]["nodes"], pool["nodes"], "{pool}");
    }
}

#[test]
fn questions_at_once_have_the_answers_of_questions_one_by_one() {
    let server = Server::start(&[]);
    assert!(server.line.contains("an example cluster"), "{}", server.line);
    let nodes = server.get("/api/v1/nodes");
    let names = nodes["nodes"].as_array().expect("a list").iter().step_by(3);
    let changes: Vec<Value> = names.map(|node| json!({"drain": [node["name"]]})).collect();
    let ask = |change: &Value| server.post("/api/v1/what-if", change);
    let alone: Vec<Value> = changes.iter().map(ask).collect();
    let at_once: Vec<Value> = thread::scope(|scope| {
        let threads: Vec<_> = changes.iter().map(|change| scope.spawn(|| ask(change))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(alone, at_once);
    let headlines: BTreeSet<&str> =
        alone.iter().filter_map(|answer| answer["headline"].as_str()).collect();
    assert!(headlines.len() > 1, "the drains differ: {headlines:?}");
}

/// The cluster of `cluster`, and more, without the taint, because of which all pods would prefer n1.
fn untainted(test: &str, more: &str) -> String {
    let all = std::fs::read_to_string(cluster(test)).expect("the cluster");
    let taint = "spec: {taints: [{key: k, value: v, effect: PreferNoSchedule}]}\n";
    assert!(all.contains(taint));
    file(test, "untainted.yaml", format!("{}{more}", all.replace(taint, "")).as_bytes())
}

/// The runs of a comparison without what depends on time, on the names of configurations, or on the form of the input.
fn results(mut comparison: Value) -> Vec<Value> {
    let runs = comparison["runs"].as_array_mut().expect("a list");
    for run in runs.iter_mut() {
        let run = run.as_object_mut().expect("an object");
        run.remove("config").expect("a name");
        run.remove("cycles_per_second").expect("a speed");
    }
    std::mem::take(runs)
}

#[test]
fn a_comparison_is_that_of_the_program() {
    let pending = |n: usize, cpu: usize| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}, namespace: shop}}\n\
             spec: {{containers: [{{name: c, image: c, resources: {{requests: {{cpu: {cpu}00m}}}}}}]}}\n"
        )
    };
    let pods: String = (0..6).map(|n| pending(n, 1 + n)).collect();
    let path = untainted("compare", &pods);
    let packs = file("compare", "packs.yaml", PACKS.as_bytes());
    let server = Server::start(&["--cluster", &path]);
    let node_prices = file("compare", "nodes.csv", b"name,price\nn1,0.5\nn2,2\n");
    let pool_prices = file("compare", "pools.yaml", b"p: 1.5\nn2: 3\n");
    for (fields, options) in [
        (json!({"pool_label": "pool"}), &["--pool-label", "pool"][..]),
        (json!({"seeds": 3, "price_label": "cost"}), &["--seeds", "3", "--price-label", "cost"]),
        (json!({"prices": {"n1": 0.5, "n2": 2}}), &["--prices", &node_prices]),
        (
            json!({"prices": {"p": 1.5, "n2": 3}, "pool_label": "pool", "seeds": 2}),
            &["--prices", &pool_prices, "--pool-label", "pool", "--seeds", "2"],
        ),
    ] {
        let mut asked = json!({"configs": ["", PACKS]});
        asked.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("one"));
        assert_matches("CompareRequest", &asked);
        let compared = server.post("/api/v1/compare", &asked);
        assert_matches("Comparison", &compared);
        let arguments = ["compare", "--nodes", &path, "--pods", &path, "--config", "default"];
        let same = printed(&[&arguments[..], &[&packs], options].concat());
        assert_eq!(compared["answers"][0]["packs"], same["answers"][0]["packs"]);
        assert!(compared["runs"][1]["different"].as_u64() > Some(0), "the configurations differ");
        assert_eq!(results(compared), results(same), "{fields}");
    }
    let asked = json!({"configs": ["", PACKS], "prices": {"n1": 1}});
    let (code, detail) = server.problem("POST", "/api/v1/compare", Some(&asked));
    let missing = "prices: node n2 has no price: add its name, or the value of its label";
    assert!(code == 422 && detail.starts_with(missing), "{code} {detail}");
}

#[test]
fn all_pods_are_placed_anew_and_the_first_decision_that_differs_is_explained() {
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{allocatable: {{cpu: \"4\", memory: 8Gi, pods: \"9\"}}}}\n"
        )
    };
    let pod = |name: &str, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{nodeName: {node}, \
             containers: [{{name: c, image: c, resources: {{requests: {{cpu: \"1\", memory: 2Gi}}}}}}]}}\n"
        )
    };
    let all = [node("n1"), node("n2"), pod("a", "n1"), pod("b", "n2"), pod("c", "n2")].concat();
    let server = Server::start(&["--cluster", &file("duel", "cluster.yaml", all.as_bytes())]);
    let asked = json!({"configs": [" \n", PACKS, ""], "pods": "all"});
    let compared = server.post("/api/v1/compare", &asked);
    assert_matches("Comparison", &compared);
    let answer = &compared["answers"][0];
    assert_eq!(answer["packs"], "better", "{compared}");
    let names = (answer["config"].as_str(), answer["answer"].as_str().expect("a text"));
    assert_eq!(names.0, Some("configuration 2"));
    let sentence = "configuration 2 packs better than configuration 1: 1 node used instead of 2, same pods placed";
    assert_eq!(names.1, sentence);
    let runs = &compared["runs"];
    assert_eq!(runs[0]["fill_percent"]["cpu"], json!([50.0, 25.0]));
    assert_eq!(runs[1]["fill_percent"]["cpu"], json!([75.0, 0.0]));
    assert_eq!((&runs[1]["placed"], &runs[1]["unschedulable"]), (&json!(3), &json!(0)));
    assert_eq!(runs[2]["first_difference"], Value::Null, "equal configurations do not differ");

    let difference = &runs[1]["first_difference"];
    let scores = difference["scores"].as_array().expect("a list");
    let nodes: Vec<&Value> = scores.iter().map(|score| &score["node"]).collect();
    assert_eq!(nodes, [&difference["first"], &difference["here"]]);
    let total = |at: usize, of: &str| scores[at][of]["total"].as_i64().expect("a total");
    assert!(total(0, "first") > total(1, "first"), "{difference}");
    assert!(total(0, "here") < total(1, "here"), "{difference}");
    let of_plugins = |score: &Value| -> i64 {
        let each = score["scores"].as_array().expect("a list").iter();
        each.map(|score| score["weighted"].as_i64().expect("a score")).sum()
    };
    assert_eq!(of_plugins(&scores[1]["here"]), total(1, "here"));
    // The cluster itself does not change.
    assert_eq!(server.get("/api/v1/summary")["resources"][0]["requested"], 3.0);

    let session = server.post("/api/v1/sessions", &json!({"add": ["1xn1"]}));
    let path = format!("/api/v1/compare?session={}", session["id"].as_str().expect("a text"));
    let nodes = &server.post(&path, &asked)["runs"][1]["nodes"];
    assert_eq!((&nodes["all"], &nodes["used"]), (&json!(3), &json!(1.0)));
}

#[test]
fn an_invalid_configuration_is_named_with_its_line() {
    let server = Server::start(&["--cluster", &cluster("invalid")]);
    let unknown = format!("{PACKS}  plugins: {{filter: {{enabled: [{{name: Nonesuch}}]}}}}\n");
    let extenders = format!("{PACKS}extenders: [{{urlPrefix: 'http://127.0.0.1:1'}}]\n");
    for (config, what) in [
        (PACKS.replace("MostAllocated", "Most"), "configuration 2:"),
        ("kind: [".to_owned(), "configuration 2:"),
        (unknown, "or pass ignore_unknown_plugins"),
        (extenders, "pass ignore_extenders"),
    ] {
        let asked = json!({"configs": ["", config]});
        let (code, detail) = server.problem("POST", "/api/v1/compare", Some(&asked));
        assert!(code == 422 && detail.contains(what), "{code} {detail}");
    }
    let asked = json!({"configs": ["", PACKS], "price_label": "price"});
    let (code, detail) = server.problem("POST", "/api/v1/compare", Some(&asked));
    assert!(code == 422 && detail.contains("label price is missing"), "{code} {detail}");
}

/// The bytes that a server has allocated and not freed.
fn heap(server: &Server) -> u64 {
    let metrics = server.get("/metrics");
    let mut lines = metrics.as_str().expect("a text").lines();
    let value = lines.find_map(|line| line.strip_prefix("portolan_serve_heap_bytes "));
    value.expect("a gauge").parse().expect("a number")
}

#[test]
fn a_session_takes_little_memory_and_returns_it() {
    let server = Server::start(&[]);
    let change = json!({"drain": "general-01", "delete_emptydir_data": true});
    // The first questions fill caches, such as the cluster without a change.
    let first = server.post("/api/v1/sessions", &change);
    let before = heap(&server);
    let sessions = 64;
    let ids: Vec<Value> =
        (0..sessions).map(|_| server.post("/api/v1/sessions", &change)["id"].clone()).collect();
    for id in &ids {
        let id = id.as_str().expect("a text");
        server.get(&format!("/api/v1/pending?session={id}"));
    }
    let each = heap(&server).saturating_sub(before) / sessions;
    assert!(each < 1 << 20, "{each} bytes a session");
    for id in ids.iter().chain([&first["id"]]) {
        let path = format!("/api/v1/sessions/{}", id.as_str().expect("a text"));
        assert_eq!(server.request("DELETE", &path, None).0, 204);
    }
    let kept = heap(&server).saturating_sub(before);
    assert!(kept < 1 << 20, "{kept} bytes are kept");
}

#[test]
fn a_chain_of_sessions_ends_like_the_changes_at_once() {
    let agent = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent, namespace: shop, uid: agent}\n\
                 spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, \
                 spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 100m}}}]}}}\n";
    let all = std::fs::read_to_string(cluster("chain")).expect("the cluster");
    let path = file("chain", "all.yaml", format!("{all}{agent}").as_bytes());
    let server = Server::start(&["--cluster", &path]);
    let changes = [
        json!({"remove": "ds/agent"}),
        json!({"add": ["2xn1"]}),
        json!({"scale": "rs/web=6"}),
        json!({"fail_node": "n2"}),
    ];
    let mut parent = Value::Null;
    let mut together = serde_json::Map::new();
    for change in changes {
        let mut fields = change.as_object().expect("an object").clone();
        together.extend(fields.clone());
        fields.insert("parent".to_owned(), parent);
        parent = server.post("/api/v1/sessions", &Value::Object(fields))["id"].clone();
    }
    let at_once = server.post("/api/v1/sessions", &Value::Object(together));
    let of = |id: &Value| {
        let id = id.as_str().expect("a text");
        let mut nodes = server.get(&format!("/api/v1/nodes?session={id}"));
        let summary = server.get(&format!("/api/v1/summary?session={id}"));
        let requested = |node: &Value| (node["name"].clone(), node["requested"].clone());
        let nodes = nodes["nodes"].as_array_mut().expect("a list").iter().map(requested);
        (summary["pods"].clone(), summary["pending"].clone(), nodes.collect::<Vec<_>>())
    };
    assert_eq!(of(&parent), of(&at_once["id"]));
    // No daemon set is left whose pods the new nodes would run, and all 6 replicas and the large pod exist.
    assert_eq!(of(&parent).0, 7);
    let asked = json!({"pod": "ds/agent"});
    let id = parent.as_str().expect("a text");
    let path = format!("/api/v1/explain?session={id}");
    assert_eq!(server.problem("POST", &path, Some(&asked)).0, 422);
}

#[test]
fn headroom_is_what_is_left_after_the_pending_pods() {
    let all = std::fs::read_to_string(cluster("room")).expect("the cluster");
    let waiting = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: waits, namespace: shop}\n\
                   spec: {containers: [{name: c, image: c, resources: {requests: {cpu: \"2\"}}}]}\n";
    let path = file("room", "all.yaml", format!("{all}{waiting}").as_bytes());
    let server = Server::start(&["--cluster", &path]);
    let shape = "apiVersion: v1\nkind: Pod\nmetadata: {name: shape}\n\
                 spec: {containers: [{name: c, image: c, resources: {requests: {cpu: \"1\"}}}]}\n";
    let shape = file("room", "shape.yaml", shape.as_bytes());
    let printed = printed(&["what-if", "--fit-more", &shape, "--cluster", &path]);
    let asked = json!({"requests": {"cpu": "1"}});
    let count = &server.post("/api/v1/headroom", &asked)["count"];
    assert_eq!((count, &printed["fit_more"]["count"]), (&json!(3), &json!(3)));
}

#[test]
fn copies_are_new_pods_and_computed_numbers_are_complete() {
    let node = |name: &str, pods: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
             status: {{allocatable: {{cpu: \"4\", memory: 8Gi, pods: \"{pods}\"}}}}\n"
        )
    };
    // Its kubelet has not reduced the request of 3 yet.
    let resized = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: resized, namespace: shop, \
                   ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web, controller: true}]}\n\
                   spec: {nodeName: n1, containers: [{name: c, image: c, resources: {requests: {cpu: \"1\"}}}]}\n\
                   status: {phase: Running, containerStatuses: [{name: c, allocatedResources: {cpu: \"3\"}, \
                   resources: {requests: {cpu: \"3\"}}}]}\n";
    let ending = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: ending, namespace: shop, \
                  labels: {scheduling.x-k8s.io/pod-group: g}, deletionTimestamp: 2026-01-01T00:00:00Z}\n\
                  spec: {nodeName: n2, containers: [{name: c, image: c, resources: {requests: {cpu: \"2\"}}}]}\n\
                  ---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\n\
                  spec: {hard: {pods: \"9\"}}\n";
    let path = node("n1", "5001") + &node("n2", "5000") + resized + ending;
    let server = Server::start(&["--cluster", &file("copies", "resized.yaml", path.as_bytes())]);
    let headroom = |asked: &Value| server.post("/api/v1/headroom", asked);
    assert_eq!(headroom(&json!({"pod": "shop/resized"}))["count"], 5);
    let complete = headroom(&json!({"requests": {}}));
    assert_eq!((&complete["count"], &complete["is_complete"]), (&json!(10_000), &json!(true)));
    let of_group = headroom(&json!({"pod": "shop/ending"}));
    let unsimulated =
        json!(["limit ranges and quotas of --fit-more", "the pod group of --fit-more"]);
    let found = (&of_group["now"], &of_group["count"], &of_group["not_simulated"]);
    assert_eq!(found, (&json!(1), &json!(2), &unsimulated));
    let drained = server.post("/api/v1/sessions", &json!({"drain": "n1"}));
    let session = drained["id"].as_str().expect("a text");
    let nodes = server.get(&format!("/api/v1/nodes?session={session}"));
    assert_eq!(nodes["nodes"][1]["requested"][0], 1.0);

    let most = i64::MAX.to_string();
    let path = [node("n1", &most), node("n2", &most), node("n3", &most)].concat();
    let server = Server::start(&["--cluster", &file("copies", "large.yaml", path.as_bytes())]);
    let large = server.post("/api/v1/headroom", &json!({"requests": {}}));
    assert_eq!(large["count"], 3 * u64::from(u32::MAX));
}

#[test]
fn an_audit_examines_the_objects_as_read() {
    let all = std::fs::read_to_string(cluster("audit")).expect("the cluster");
    let lacking = all.replace("replicas: 3", "replicas: 5");
    let set = "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db, namespace: shop, uid: db}\n\
               spec:\n  replicas: 2\n  selector: {matchLabels: {app: db}}\n  template:\n    \
               metadata: {labels: {app: db}}\n    spec: {containers: [{name: c, image: c}]}\n  \
               volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], \
               resources: {requests: {storage: 1Gi}}}}]\n\
               ---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: db, namespace: shop}\n\
               spec: {maxUnavailable: 1, selector: {matchLabels: {app: db}}}\n";
    let path = file("audit", "lacking.yaml", format!("{lacking}{set}").as_bytes());
    let server = Server::start(&["--cluster", &path]);
    assert!(server.line.contains("8 pods"), "{}", server.line);
    let audited = without_additions(server.get("/api/v1/audit"));
    assert_eq!(audited, printed(&["audit", "--cluster", &path]));
    assert_eq!(audited["pods"], 4);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_server_while_it_computes() {
    let mut server = Server::start(&[]);
    let body = r#"{"each":"node"}"#;
    let mut stream = TcpStream::connect(&server.address).expect("connected");
    let head = "POST /api/v1/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("sent");
    let pid = server.child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    assert!(sent.success());
    assert_eq!(server.child.wait().expect("ended").code(), Some(0));
}

/// The events of a server: their names and data, without the time of the reading.
pub(crate) struct Events(std::io::Lines<BufReader<TcpStream>>);

impl Events {
    pub(crate) fn of(server: &Server, query: &str) -> Events {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        let request = format!("GET /api/v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        Events(BufReader::new(stream).lines())
    }

    fn next(&mut self) -> (String, Value) {
        let mut lines = self.0.by_ref().map(|line| line.expect("an event"));
        let name = lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned));
        let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let data = serde_json::from_str(&data.expect("data")).expect("JSON");
        (name.expect("a name"), data)
    }

    /// The generation of the next reading, and what changed.
    fn reading(&mut self) -> (Value, Value) {
        let data = self.named("generation");
        assert_matches("GenerationEvent", &data);
        (data["generation"].clone(), data["changed"].clone())
    }

    /// The data of the next event of this name.
    pub(crate) fn named(&mut self, name: &str) -> Value {
        loop {
            let (of, data) = self.next();
            if of == name {
                return data;
            }
        }
    }
}

/// Replaces a file at once: a server never reads a part of it.
fn replace(path: &str, text: &str) {
    let new = format!("{path}.new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(new, path).expect("renamed");
}

const MORE: &str = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: more}\nspec: {containers: [{name: c, image: c}]}\n";

#[test]
fn a_changed_file_is_read_again_and_clients_are_told() {
    let path = cluster("changes");
    let server = Server::start(&["--cluster", &path]);
    let mut events = Events::of(&server, "");
    assert_eq!(events.reading(), (json!(1), Value::Null));
    assert_eq!(events.next(), ("failure".to_owned(), json!({"error": null})));
    // A file that is being written is not shown.
    replace(&path, "kind: [");
    let failure = events.named("failure");
    assert!(failure["error"].as_str().expect("a text").contains("cluster.yaml"), "{failure}");
    let summary = server.get("/api/v1/summary");
    assert_eq!((&summary["pods"], &summary["error"]), (&json!(4), &failure["error"]));
    replace(&path, &format!("{CLUSTER}{MORE}"));
    let changed = json!({
        "nodes": {"added": 0, "removed": 0, "changed": 2},
        // The controller creates web-0 to web-2, none of which has a node.
        "pods": {"added": 2, "removed": 1, "moved": 2, "changed": 0},
        "budgets": {"added": 0, "removed": 0, "changed": 0},
    });
    assert_eq!(events.reading(), (json!(2), changed));
    assert_eq!(events.next(), ("failure".to_owned(), json!({"error": null})));
    let summary = server.get("/api/v1/summary");
    assert_eq!((&summary["pods"], &summary["generation"]), (&json!(5), &json!(2)));
    // A client that comes back receives what it has missed.
    assert_eq!(Events::of(&server, "?since=1").reading().0, 2);
}

#[test]
fn a_file_that_could_not_be_read_is_read_again() {
    let path = cluster("again");
    let text = std::fs::read_to_string(&path).expect("the cluster");
    let server = Server::start(&["--cluster", &path]);
    let mut events = Events::of(&server, "?since=1");
    assert_eq!(events.named("failure"), json!({"error": null}));
    // Neither its time nor its size shows that the file has changed again.
    let write = |text: &str| {
        let new = format!("{path}.new");
        std::fs::write(&new, text).expect("written");
        let file = std::fs::File::options().append(true).open(&new).expect("a file");
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(time).expect("a time");
        std::fs::rename(new, &path).expect("renamed");
    };
    let more = format!("{text}{MORE}");
    write(&format!("{:1$}", "kind: [", more.len()));
    let failure = events.named("failure");
    assert!(failure["error"].is_string(), "{failure}");
    write(&more);
    assert_eq!(events.reading().0, 2);
    assert_eq!(server.get("/api/v1/summary")["pods"], 5);
}

#[test]
fn a_file_that_is_written_again_without_a_change_is_no_new_reading() {
    let path = cluster("same");
    let text = std::fs::read_to_string(&path).expect("the cluster");
    let server = Server::start(&["--cluster", &path]);
    replace(&path, &format!("# The same objects.\n{text}"));
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(server.get("/api/v1/summary")["generation"], 1);
}

#[test]
fn older_readings_answer_every_question_as_before() {
    let path = cluster("history");
    let first = std::fs::read_to_string(&path).expect("the cluster");
    let server = Server::start(&["--cluster", &path]);
    let mut events = Events::of(&server, "");
    events.reading();
    let asked = |suffix: &str| {
        let of = |path: &str| format!("/api/v1/{path}{suffix}");
        let answers = [
            server.get(&of("nodes")),
            server.get(&of("nodes/n2")),
            server.get(&of("pending")),
            server.post(&of("explain"), &json!({"pod": "shop/large"})),
            server.post(&of("headroom"), &json!({"pod": "shop/web-1"})),
            server.post(&of("what-if"), &json!({"fail_node": ["n1"]})),
        ];
        let mut summary = server.get(&of("summary"));
        // It is that of the source now.
        summary.as_object_mut().expect("an object").remove("error");
        (answers, summary)
    };
    let before = asked("");
    let moved = first.replace("nodeName: n1", "nodeName: n2");
    replace(&path, &format!("{moved}{MORE}"));
    assert_eq!(events.reading().0, 2);
    assert_eq!(asked("?generation=1"), before);
    assert_ne!(asked(""), before);
    assert_eq!(asked(""), asked("?generation=2"));

    let list = server.get("/api/v1/generations");
    assert_matches("Generations", &list);
    let counts: Vec<[&Value; 3]> = list["generations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| ["generation", "pods", "pending"].map(|field| &it[field]))
        .collect();
    assert_eq!(counts, [[&json!(1), &json!(4), &json!(1)], [&json!(2), &json!(5), &json!(2)]]);

    let difference = server.get("/api/v1/diff?from=1&to=2");
    assert_matches("Difference", &difference);
    let changed = difference["nodes"]["changed"].as_array().expect("a list").iter();
    let changed: Vec<(&Value, &Value, &Value)> = changed
        .map(|it| (&it["name"], &it["before"]["requested"][0], &it["after"]["requested"][0]))
        .collect();
    let [n1, n2] = [json!("n1"), json!("n2")];
    assert_eq!(changed, [(&n1, &json!(1.0), &json!(0.0)), (&n2, &json!(2.0), &json!(3.0))]);
    assert_eq!(
        difference["pods"],
        json!({
            "added": [{"pod": "default/more", "from": null, "to": null}],
            "removed": [],
            "moved": [{"pod": "shop/web-1", "from": "n1", "to": "n2"}],
            "changed": [],
        })
    );
    let back = server.get("/api/v1/diff?from=2&to=1");
    assert_eq!(back["pods"]["removed"], json!([{"pod": "default/more", "from": null, "to": null}]));

    // A session can begin with an older reading.
    let session =
        server.post("/api/v1/sessions", &json!({"generation": 1, "drain": "n2", "force": true}));
    assert_eq!(session["generation"], 1);
    let id = session["id"].as_str().expect("a text");
    assert_eq!(server.get(&format!("/api/v1/summary?session={id}"))["pods"], 4);

    for (path, code, text) in [
        ("nodes?generation=7", 404, "generation 7 is not held: the newest is 2"),
        ("nodes?generation=0", 404, "generation 0 is not held: the oldest is 1"),
        ("nodes?generation=x", 400, "the query: generation: pass a number, such as 1"),
        ("nodes?x=1", 400, "unknown parameter `x`, expected `session` or `generation`"),
        ("diff?from=1", 400, "the query: missing parameter `to`"),
        ("diff?from=1&to=9", 404, "generation 9 is not held"),
        ("audit?generation=1", 422, "examines the newest reading only"),
        (&*format!("nodes?generation=1&session={id}"), 400, "exclude each other"),
    ] {
        let (status, detail) = server.problem("GET", &format!("/api/v1/{path}"), None);
        assert!(status == code && detail.contains(text), "{path}: {status} {detail}");
    }
    let both = json!({"generation": 1, "parent": id, "drain": "n1"});
    assert_eq!(server.problem("POST", "/api/v1/sessions", Some(&both)).0, 400);
    assert_matches("Audit", &server.get("/api/v1/audit?generation=2"));
}

#[test]
fn a_preemption_matches_its_schema() {
    let all = std::fs::read_to_string(cluster("preemption")).expect("the cluster");
    let class = "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 10\n";
    // The template of the replica set. Its pods have no priority.
    let all = all.replacen("spec: {containers", "spec: {priorityClassName: high, containers", 1);
    let path = file("preemption", "all.yaml", format!("{all}{class}").as_bytes());
    let server = Server::start(&["--cluster", &path]);
    // Only five more pods fit.
    let answer = server.post("/api/v1/what-if", &json!({"scale": "rs/web=9"}));
    assert_matches("Answer", &answer);
    let preempted = answer["preempted"].as_array().expect("a list");
    let preempted: Vec<Option<&str>> = preempted.iter().map(|it| it["by"].as_str()).collect();
    assert!(matches!(preempted[..], [Some(by)] if by.starts_with("shop/web-")), "{answer}");
}

#[test]
fn a_difference_names_the_fields_that_differ() {
    let budget = |name: &str, least: usize| {
        format!(
            "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{minAvailable: {least}, selector: {{matchLabels: {{app: web}}}}}}\n"
        )
    };
    let all = std::fs::read_to_string(cluster("fields")).expect("the cluster");
    let with = |all: &str, budgets: [String; 3]| format!("{all}{}", budgets.concat());
    let first = with(&all, [budget("a", 1), budget("b", 1), budget("kept", 2)]);
    let path = file("fields", "all.yaml", first.as_bytes());
    let server = Server::start(&["--cluster", &path]);
    let mut events = Events::of(&server, "");
    events.reading();
    let taint = "taints: [{key: k, value: v, effect: PreferNoSchedule}]";
    let changed = all.replace("cost: \"1\"", "cost: \"3\"").replace(taint, "unschedulable: true");
    // The pod web-3, the last one.
    let (before, pod) = changed.rsplit_once("cpu: \"1\"").expect("requests");
    let changed = format!("{before}cpu: \"2\"{pod}").replace("cpu: \"6\"", "cpu: \"7\"");
    replace(&path, &with(&changed, [budget("a", 2), budget("c", 3), budget("kept", 2)]));

    let counts = json!({
        "nodes": {"added": 0, "removed": 0, "changed": 2},
        "pods": {"added": 0, "removed": 0, "moved": 0, "changed": 2},
        "budgets": {"added": 1, "removed": 1, "changed": 1},
    });
    assert_eq!(events.reading(), (json!(2), counts.clone()));
    let difference = server.get("/api/v1/diff?from=1&to=2");
    assert_matches("Difference", &difference);
    assert_eq!(difference["summary"], counts);
    let nodes = difference["nodes"]["changed"].as_array().expect("a list").iter();
    let nodes: Vec<(&Value, &Value)> = nodes.map(|it| (&it["name"], &it["fields"])).collect();
    let fields = json!(["taints", "is_cordoned", "requested"]);
    assert_eq!(nodes, [(&json!("n1"), &json!(["labels"])), (&json!("n2"), &fields)]);
    let pods = json!([
        {"pod": "shop/large", "from": null, "to": null, "fields": ["requests"]},
        {"pod": "shop/web-3", "from": "n2", "to": "n2", "fields": ["requests"]},
    ]);
    assert_eq!(difference["pods"]["changed"], pods);
    let listed = |name: &str, allowed: i32| json!({"name": name, "disruptions_allowed": allowed});
    let budgets = json!({
        "added": [listed("shop/c", 0)],
        "removed": [listed("shop/b", 2)],
        "changed": [{
            "name": "shop/a",
            "fields": ["limit", "disruptions_allowed"],
            "before": listed("shop/a", 2),
            "after": listed("shop/a", 1),
        }],
    });
    assert_eq!(difference["budgets"], budgets);
}

/// A running cluster in memory with a node and a pod.
fn running() -> ApiServer {
    let server = ApiServer::start(Options::default()).expect("a server");
    create_node(&server, "n1");
    create_pod(&server, "p1", "n1");
    server
}

fn create_node(server: &ApiServer, name: &str) {
    let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "100"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    });
    server.create(&node).expect("a node");
}

fn create_pod(server: &ApiServer, name: &str, node: &str) {
    let containers = json!([{"name": "c", "image": "registry.example.com/pause:1"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": containers},
    });
    server.create(&pod).expect("a pod");
}

#[test]
fn a_running_cluster_is_listed_once_and_watched() {
    let cluster = running();
    let server = Server::start(&["--master", &cluster.url()]);
    assert!(
        server.line.contains("shows the running cluster: 1 node, 1 pod, 0 pending"),
        "{}",
        server.line
    );
    let mut events = Events::of(&server, "");
    assert_eq!(events.reading().0, 1);
    create_node(&cluster, "n2");
    create_pod(&cluster, "p2", "n2");
    // Both may be in one reading, or not.
    let mut newest = events.reading().0;
    while server.get("/api/v1/summary")["pods"] != 2 {
        newest = events.reading().0;
    }
    let nodes = server.get(&format!("/api/v1/nodes?generation={newest}"));
    assert_eq!(nodes["nodes"].as_array().expect("a list").len(), 2);
    let first = server.get("/api/v1/nodes?generation=1");
    assert_eq!(first["nodes"].as_array().expect("a list").len(), 1);
    cluster.delete("Node", "", "n2", &Value::Null).expect("deleted");
    while server.get("/api/v1/summary")["nodes"] != 1 {
        events.reading();
    }
    assert_matches("Audit", &server.get("/api/v1/audit"));
}

#[test]
fn a_lost_connection_is_reported_and_the_newest_reading_stays() {
    let cluster = running();
    let server = Server::start(&["--master", &cluster.url()]);
    let mut events = Events::of(&server, "");
    assert_eq!(events.named("failure"), json!({"error": null}));
    drop(cluster);
    let failure = events.named("failure");
    assert!(failure["error"].as_str().expect("a text").contains("/api"), "{failure}");
    let summary = server.get("/api/v1/summary");
    assert_eq!((&summary["pods"], &summary["error"]), (&json!(1), &failure["error"]));
}

#[test]
fn a_cluster_that_cannot_be_reached_ends_the_server_at_once() {
    let refused = portolan(&["serve", "--listen", "127.0.0.1:0", "--master", "http://127.0.0.1:1"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("cannot be reached"), "{}", refused.err);
}

#[test]
fn slow_and_leaving_clients_do_not_stop_the_others() {
    let server = Server::start(&[]);
    let mut slow: Vec<TcpStream> = Vec::new();
    for n in 0..64 {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        let body = r#"{"each":"node"}"#;
        let request = format!(
            "POST /api/v1/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        if n % 2 == 0 {
            // The body never arrives.
            stream.write_all(&body.as_bytes()[..3]).expect("sent");
        } else {
            stream.write_all(body.as_bytes()).expect("sent");
        }
        slow.push(stream);
    }
    drop(slow);
    let started = Instant::now();
    assert_eq!(server.get("/healthz"), "ok");
    assert_matches("Summary", &server.get("/api/v1/summary"));
    // All 32 failures of all nodes would take minutes.
    assert!(started.elapsed() < Duration::from_secs(60));
}
