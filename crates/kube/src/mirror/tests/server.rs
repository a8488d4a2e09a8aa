//! A server whose answers are written down in advance.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::cache::{Config, Engine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::api::{Api, Limits, Resource};
use crate::mirror::{Mirror, Options};
use crate::testing::config;

/// A request, without its method, which is always GET.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
}

impl Request {
    /// Returns a parameter of the query, or an empty string.
    pub(super) fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_streamed_list(&self) -> bool {
        self.get("sendInitialEvents") == "true"
    }
}

pub(super) enum Reply {
    Json(u16, String),
    /// Lines, until the last sender is dropped, one of which may be in the answer.
    Lines(mpsc::UnboundedReceiver<String>, Option<mpsc::UnboundedSender<String>>),
}

/// Answers the requests in turn. A request without an answer waits for ever.
#[derive(Clone)]
pub(super) struct Server {
    url: String,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    /// The answers to lists of one pod, which have a turn of their own.
    quorum: Arc<Mutex<VecDeque<Reply>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let server = Server {
            url,
            replies: Arc::new(Mutex::new(replies.into_iter().collect())),
            quorum: Arc::default(),
            requests: Arc::default(),
        };
        let answering = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answering.clone().answer(stream));
            }
        });
        server
    }

    pub(super) fn then(&self, reply: Reply) {
        self.replies.lock().expect("no panic").push_back(reply);
    }

    /// Answers the next list of one pod.
    pub(super) fn quorum(&self, reply: Reply) {
        self.quorum.lock().expect("no panic").push_back(reply);
    }

    /// Returns the requests so far, without lists of one pod.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }

    pub(super) fn api(&self) -> Api {
        let limits = Limits { idle: Duration::from_secs(20), ..Limits::default() };
        Api::new(config(&self.url), limits).expect("a client")
    }

    /// Starts a mirror of these kinds with short pauses.
    pub(super) fn mirror(&self, resources: &[Resource]) -> (Mirror, Engine) {
        self.mirror_with(options(resources))
    }

    pub(super) fn mirror_with(&self, options: Options) -> (Mirror, Engine) {
        let engine = Engine::shared(Config::default());
        let mirror = Mirror::start(self.api(), engine.clone(), Arc::default(), options);
        (mirror.expect("a mirror"), engine)
    }

    pub(super) fn mirror_to(&self, engine: Engine, resources: &[Resource]) -> Mirror {
        Mirror::start(self.api(), engine, Arc::default(), options(resources)).expect("a mirror")
    }

    async fn answer(self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).expect("ASCII");
        let target = head.split(' ').nth(1).expect("a target");
        let url = format!("http://server{target}").parse::<http::Uri>().expect("a target");
        let query = url.query().unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let request = Request {
            path: url.path().to_owned(),
            query: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        };
        let replies = match request.get("limit") {
            "1" => &self.quorum,
            _ => {
                self.requests.lock().expect("no panic").push(request);
                &self.replies
            }
        };
        let reply = replies.lock().expect("no panic").pop_front();
        let _ = match reply {
            Some(Reply::Json(code, body)) => send_json(&mut stream, code, &body).await,
            Some(Reply::Lines(lines, _open)) => send_lines(&mut stream, lines).await,
            None => std::future::pending().await,
        };
    }
}

async fn send_json(stream: &mut TcpStream, code: u16, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

async fn send_lines(
    stream: &mut TcpStream,
    mut lines: mpsc::UnboundedReceiver<String>,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    while let Some(line) = lines.recv().await {
        let chunk = format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
        stream.write_all(chunk.as_bytes()).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// Starts a mirror of these kinds beside a server with these replies.
pub(super) async fn mirrored(
    resources: &[Resource],
    replies: impl IntoIterator<Item = Reply>,
) -> (Server, Mirror, Engine) {
    let server = Server::start(replies).await;
    let (mirror, engine) = server.mirror(resources);
    (server, mirror, engine)
}

pub(super) async fn mirrored_nodes(
    replies: impl IntoIterator<Item = Reply>,
) -> (Server, Mirror, Engine) {
    mirrored(&[Resource::NODES], replies).await
}

/// Starts a mirror of nodes, and waits for its first list.
pub(super) async fn synced_nodes(
    replies: impl IntoIterator<Item = Reply>,
) -> (Server, Mirror, Engine) {
    synced(&[Resource::NODES], replies).await
}

pub(super) async fn synced_pods(
    replies: impl IntoIterator<Item = Reply>,
) -> (Server, Mirror, Engine) {
    synced(&[Resource::PODS], replies).await
}

/// Starts a mirror, and waits for its first lists.
pub(super) async fn synced(
    resources: &[Resource],
    replies: impl IntoIterator<Item = Reply>,
) -> (Server, Mirror, Engine) {
    let (server, mirror, engine) = mirrored(resources, replies).await;
    mirror.synced().await.expect("synced");
    (server, mirror, engine)
}

/// The options of a mirror with short pauses, for the scheduler `default-scheduler`.
pub(super) fn options(resources: &[Resource]) -> Options {
    let mut options = Options::new(["default-scheduler"]);
    options.resources = resources.to_vec();
    options.pauses.shortest = Duration::from_millis(1);
    options.pauses.longest = Duration::from_millis(4);
    options.pauses.slow = Duration::from_millis(20);
    // A busy machine is no slow server.
    options.pauses.short_watch = Duration::from_secs(15);
    options.pauses.refresh = Duration::from_secs(5);
    options
}

/// Lines and then the end of the stream.
pub(super) fn lines<L: Into<String>>(lines: impl IntoIterator<Item = L>) -> Reply {
    open(lines).1
}

/// Lines, and the end to which more can be sent. The stream ends when that is dropped.
pub(super) fn open<L: Into<String>>(
    lines: impl IntoIterator<Item = L>,
) -> (mpsc::UnboundedSender<String>, Reply) {
    let (sender, receiver) = mpsc::unbounded_channel();
    for line in lines {
        sender.send(line.into()).expect("the receiver lives");
    }
    (sender, Reply::Lines(receiver, None))
}

/// Lines, after which the stream stays open.
pub(super) fn held<L: Into<String>>(lines: impl IntoIterator<Item = L>) -> Reply {
    match open(lines) {
        (sender, Reply::Lines(receiver, None)) => Reply::Lines(receiver, Some(sender)),
        (_, reply) => reply,
    }
}

/// A page of a list.
pub(super) fn page(version: u64, next: &str, items: &[String]) -> Reply {
    let items = items.join(",");
    let meta = format!(r#"{{"resourceVersion":"{version}","continue":"{next}"}}"#);
    Reply::Json(200, format!(r#"{{"kind":"List","metadata":{meta},"items":[{items}]}}"#))
}

pub(super) fn refusal(code: u16, reason: &str, message: &str) -> Reply {
    Reply::Json(code, status(code, reason, message))
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

pub(super) fn added(object: &str) -> String {
    event("ADDED", object)
}

pub(super) fn modified(object: &str) -> String {
    event("MODIFIED", object)
}

pub(super) fn deleted(object: &str) -> String {
    event("DELETED", object)
}

pub(super) fn event(action: &str, object: &str) -> String {
    format!(r#"{{"type":"{action}","object":{object}}}"#)
}

pub(super) fn bookmark(version: u64) -> String {
    event("BOOKMARK", &format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#))
}

/// The bookmark that ends a streamed list.
pub(super) fn end(version: u64) -> String {
    let annotations = r#"{"k8s.io/initial-events-end":"true"}"#;
    let meta = format!(r#"{{"resourceVersion":"{version}","annotations":{annotations}}}"#);
    event("BOOKMARK", &format!(r#"{{"metadata":{meta}}}"#))
}

/// A pod called by its uid, on a node or on none (an empty string).
pub(super) fn pod(uid: &str, node: &str, version: u64) -> String {
    pod_with(uid, version, &format!(r#""nodeName":"{node}""#), "")
}

/// A pod with fields of the spec, and of the metadata, each followed by a comma.
pub(super) fn pod_with(uid: &str, version: u64, spec: &str, meta: &str) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{uid}","namespace":"shop","uid":"{uid}",{meta}
        "resourceVersion":"{version}"}},"spec":{{"schedulerName":"default-scheduler","containers":[{{"name":"c",
        "resources":{{"requests":{{"cpu":"100m"}}}}}}],{spec}}},"status":{{"phase":"Pending"}}}}"#
    )
    .replace('\n', " ")
}

pub(super) fn node(name: &str, version: u64, cpu: &str) -> String {
    format!(
        r#"{{"kind":"Node","apiVersion":"v1","metadata":{{"name":"{name}","uid":"uid-{name}",
        "resourceVersion":"{version}"}},
        "status":{{"allocatable":{{"cpu":"{cpu}","memory":"16Gi","pods":"110"}}}}}}"#
    )
    .replace('\n', " ")
}

/// Waits until a condition holds, at most 10 seconds.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
