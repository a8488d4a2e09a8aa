//! A scripted API server, and writers that use it.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portolan::model::Pod;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::{Fence, WriteOptions, Writes};
use crate::api::{Api, Limits};
use crate::mirror::{KnownPod, PendingStatus, PodIndex};

/// A request that the server received.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) format: String,
    pub(super) body: Value,
}

impl Seen {
    /// The method and path in one.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(super) fn is(&self, method: &str, end: &str) -> bool {
        self.method == method && self.path.ends_with(end)
    }
}

/// How the server answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Json(u16, Value),
    /// A refusal with `Retry-After` in seconds.
    Later(u16, u32),
    /// No answer, but the connection stays open.
    Silence,
    /// The connection is closed.
    Broken,
    /// Success, once a permit was added.
    Held(Arc<Semaphore>),
}

/// A refusal with this message.
pub(super) fn refused(code: u16, message: &str) -> Answer {
    Answer::Json(code, json!({"kind": "Status", "code": code, "reason": "", "message": message}))
}

pub(super) fn ok() -> Answer {
    Answer::Json(200, json!({"kind": "Status", "status": "Success"}))
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    changed: Condvar,
}

/// Decides an answer by the request and by how many requests of the same line came before.
type Script = dyn Fn(&Seen, usize) -> Answer + Send + Sync;

/// A server, and writers that use it.
pub(super) struct World {
    pub(super) pods: Arc<PodIndex>,
    pub(super) fence: Fence,
    pub(super) writes: Writes,
    log: Arc<Log>,
    /// Last, so that it outlives its tasks' users.
    _runtime: Runtime,
}

impl World {
    pub(super) fn new(script: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> World {
        World::with(script, WriteOptions::default(), Duration::from_secs(20))
    }

    pub(super) fn with(
        script: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
        options: WriteOptions,
        timeout: Duration,
    ) -> World {
        let (runtime, log) = (runtime(), Arc::new(Log::default()));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(serve(listener, Arc::new(script), log.clone()));
        World::at(address, runtime, log, options, timeout)
    }

    /// A world whose server does not exist.
    pub(super) fn unreachable() -> World {
        // The listener ends at once.
        let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
        World::of(address.expect("an address"), Duration::from_secs(20))
    }

    /// A world in which the answers to some requests wait for permits.
    pub(super) fn held(
        options: WriteOptions,
        is_held: fn(&Seen) -> bool,
    ) -> (World, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(0));
        let held = permits.clone();
        let script = move |seen: &Seen, _| match is_held(seen) {
            true => Answer::Held(held.clone()),
            false => ok(),
        };
        (World::with(script, options, Duration::from_secs(60)), permits)
    }

    /// A world with a server of its own, which is not scripted.
    pub(super) fn of(address: SocketAddr, timeout: Duration) -> World {
        World::at(address, runtime(), Arc::default(), WriteOptions::default(), timeout)
    }

    fn at(
        address: SocketAddr,
        runtime: Runtime,
        log: Arc<Log>,
        options: WriteOptions,
        timeout: Duration,
    ) -> World {
        let entered = runtime.enter();
        let limits = Limits { timeout, ..Limits::default() };
        let config = crate::testing::config(&format!("http://{address}"));
        let api = Api::new(config, limits).expect("a client");
        let (pods, fence) = (Arc::<PodIndex>::default(), Fence::opened());
        let options = WriteOptions { host: "<host>".to_owned(), ..options };
        let writes = Writes::start(runtime.handle(), api, pods.clone(), fence.clone(), options);
        drop(entered);
        World { pods, fence, writes, log, _runtime: runtime }
    }

    /// Adds a pending pod of generation 1 to those that the mirror knows.
    pub(super) fn add(&self, pod: &Pod) {
        self.pods.put(KnownPod {
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version,
            generation: 1,
            node: None,
            is_terminating: false,
            pending: Some(Box::new(PendingStatus {
                nominated: pod.nominated_node_name.clone(),
                scheduled: None,
            })),
        });
    }

    pub(super) fn edit(&self, pod: &Pod, edit: impl FnOnce(&mut KnownPod)) {
        let mut known = self.pods.get(&pod.uid).expect("known");
        edit(&mut known);
        self.pods.put(known);
    }

    /// The requests so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().expect("log").clone()
    }

    /// The method and path of each request so far.
    pub(super) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Seen::line).collect()
    }

    /// Waits until the requests are as expected, and returns them.
    pub(super) fn wait_for(&self, is_expected: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let (seen, limit) = (self.log.seen.lock().expect("log"), Duration::from_secs(20));
        let waited = self.log.changed.wait_timeout_while(seen, limit, |seen| !is_expected(seen));
        let (seen, waited) = waited.expect("log");
        assert!(!waited.timed_out(), "not what was expected: {seen:#?}");
        seen.clone()
    }

    /// Waits until this many requests arrived.
    pub(super) fn wait(&self, count: usize) -> Vec<Seen> {
        self.wait_for(|seen| seen.len() >= count)
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

async fn serve(listener: TcpListener, script: Arc<Script>, log: Arc<Log>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, script.clone(), log.clone()));
    }
}

/// Serves one connection until it is closed. Reads no more of HTTP than the client writes.
async fn connection(mut stream: TcpStream, script: Arc<Script>, log: Arc<Log>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let text = String::from_utf8(buffer.drain(..head).collect()).ok()?;
        let mut first = text.lines().next()?.split(' ');
        let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let header = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        let length = header("content-length").map_or(0, |length| length.parse().expect("length"));
        while buffer.len() < length {
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        }
        let body: Vec<u8> = buffer.drain(..length).collect();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let format = header("content-type").unwrap_or_default();
        let seen = Seen { method, path, format, body };
        let answer = {
            let mut all = log.seen.lock().expect("log");
            let before = all.iter().filter(|other| other.line() == seen.line()).count();
            let answer = script(&seen, before);
            all.push(seen);
            log.changed.notify_all();
            answer
        };
        let answer = match answer {
            Answer::Held(permits) => {
                permits.acquire().await.ok()?.forget();
                ok()
            }
            other => other,
        };
        let (code, body, extra) = match answer {
            Answer::Json(code, body) => (code, body, String::new()),
            Answer::Later(code, seconds) => {
                (code, Value::Null, format!("retry-after: {seconds}\r\n"))
            }
            Answer::Silence => std::future::pending().await,
            Answer::Broken | Answer::Held(_) => return None,
        };
        let body = body.to_string();
        let head = format!("HTTP/1.1 {code} x\r\n{extra}content-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.ok()?;
    }
}

/// Replaces values that differ between two runs, as in the recorded writes.
pub(super) fn normalized(mut body: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match (&**key, &value) {
                        (
                            "eventTime" | "lastTransitionTime" | "lastObservedTime",
                            Value::String(_),
                        ) => {
                            *value = "<time>".into();
                        }
                        ("resourceVersion", Value::String(_)) => *value = "<rv>".into(),
                        _ => walk(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut body);
    if body["kind"] == "Event" {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let pod = name.rsplit_once('.').map_or(name, |(pod, _)| pod);
        body["metadata"]["name"] = format!("{pod}.<n>").into();
    }
    body
}

pub(super) fn until(is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        assert!(Instant::now() < deadline, "not done in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}
