//! Requests to one of two servers, and the record of their answers.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The longest time for a line of a watch.
const SILENCE: Duration = Duration::from_secs(10);

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The method and the path.
    pub(crate) request: String,
    /// The status code, the content type and the body, or the lines of a watch.
    pub(crate) answer: Value,
}

/// A series of requests to one server.
pub(crate) struct Script {
    runtime: Handle,
    client: kube::Client,
    /// The namespace that the series may use.
    pub(crate) namespace: &'static str,
    pub(crate) steps: Vec<Step>,
    /// Removes all former versions of objects.
    pub(crate) compact: Box<dyn Fn()>,
}

impl Script {
    pub(crate) fn new(
        runtime: Handle,
        mut config: kube::Config,
        namespace: &'static str,
        compact: Box<dyn Fn()>,
    ) -> Script {
        let _within = runtime.enter();
        config.default_retry = false;
        let client = kube::Client::try_from(config).expect("a configuration");
        Script { runtime: runtime.clone(), client, namespace, steps: Vec::new(), compact }
    }

    /// The path of a collection in the namespace: `pods` is that of the core group, `apps/v1/replicasets` of another.
    pub(crate) fn path(&self, collection: &str) -> String {
        let namespace = self.namespace;
        match collection.rsplit_once("/v1/") {
            Some((group, collection)) => {
                format!("/apis/{group}/v1/namespaces/{namespace}/{collection}")
            }
            None => format!("/api/v1/namespaces/{namespace}/{collection}"),
        }
    }

    /// Sends a request, records the answer, and returns its body.
    pub(crate) fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Value {
        let request = format!("{method} {path}");
        let runtime = self.runtime.clone();
        let (answer, body) = runtime.block_on(async {
            let response = self.begin(method, path, headers, body).await;
            let (code, content_type) = facts(&response);
            let encoding = header(&response, CONTENT_ENCODING.as_str());
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let body = match encoding.as_str() {
                "" => body.to_vec(),
                _ => unpack(&body),
            };
            let text = || String::from_utf8_lossy(&body).into_owned().into();
            let body: Value = serde_json::from_slice(&body).unwrap_or_else(|_| text());
            let mut answer = json!({"code": code, "contentType": content_type, "body": body});
            if !encoding.is_empty() {
                answer["encoding"] = encoding.into();
            }
            (answer, body)
        });
        self.steps.push(Step { request, answer });
        body
    }

    async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).expect("a request");
        let answer = timeout(SILENCE * 2, self.client.send(request)).await.expect("in time");
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Creates an object without comparing the answers.
    pub(crate) fn prepare(&mut self, path: &str, object: &Value) -> Value {
        let created = self.post(path, object);
        self.steps.pop();
        created
    }

    /// Waits until the server's cache has this version of a pod. A deletion that begins with an older one may take the
    /// grace period of a pod without a node.
    pub(crate) fn catch_up(&mut self, pod: &Value) {
        let (pods, version) = (self.path("pods"), version(pod));
        self.get(&format!("{pods}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
        self.steps.pop();
    }

    pub(crate) fn get(&mut self, path: &str) -> Value {
        self.send(Method::GET, path, &[(ACCEPT.as_str(), "application/json")], Vec::new())
    }

    fn write(&mut self, method: Method, path: &str, content_type: &str, body: &Value) -> Value {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let headers =
            [(ACCEPT.as_str(), "application/json"), (CONTENT_TYPE.as_str(), content_type)];
        self.send(method, path, &headers, body)
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Value {
        self.write(Method::POST, path, "application/json", body)
    }

    pub(crate) fn put(&mut self, path: &str, body: &Value) -> Value {
        self.write(Method::PUT, path, "application/json", body)
    }

    /// A strategic merge patch.
    pub(crate) fn patch(&mut self, path: &str, body: &Value) -> Value {
        self.write(Method::PATCH, path, "application/strategic-merge-patch+json", body)
    }

    /// A JSON merge patch.
    pub(crate) fn merge(&mut self, path: &str, body: &Value) -> Value {
        self.write(Method::PATCH, path, "application/merge-patch+json", body)
    }

    /// Deletes with options, or null.
    pub(crate) fn delete(&mut self, path: &str, options: &Value) -> Value {
        self.write(Method::DELETE, path, "application/json", options)
    }

    /// Watches until there are enough lines, or the server ends the watch. Records whether it did.
    pub(crate) fn watch(&mut self, path: &str, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let runtime = self.runtime.clone();
        let (code, content_type, lines, ended) = runtime.block_on(async {
            let accept = [(ACCEPT.as_str(), "application/json")];
            let response = self.begin(Method::GET, path, &accept, Vec::new()).await;
            let (code, content_type) = facts(&response);
            let mut body = response.into_body();
            let (mut lines, mut rest) = (Vec::new(), Vec::new());
            let ended = loop {
                if enough(&lines) {
                    break json!(false);
                }
                match timeout(SILENCE, body.frame()).await {
                    Err(_) => break "silent".into(),
                    Ok(None) => break true.into(),
                    Ok(Some(frame)) => {
                        let frame = frame.unwrap_or_else(|error| panic!("{path}: {error}"));
                        rest.extend_from_slice(frame.data_ref().unwrap_or(&Default::default()));
                    }
                }
                while !enough(&lines)
                    && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
                {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    lines.push(serde_json::from_slice(&line).expect("a line of JSON"));
                }
            };
            // An error is one object without an end of line.
            if ended == true && !rest.is_empty() {
                lines.push(serde_json::from_slice(&rest).expect("an error"));
            }
            (code, content_type, lines, ended)
        });
        let answer =
            json!({"code": code, "contentType": content_type, "lines": lines, "ended": ended});
        self.steps.push(Step { request: format!("WATCH {path}"), answer });
        lines
    }

    /// Removes all former versions of objects.
    pub(crate) fn forget(&mut self) {
        (self.compact)();
    }
}

fn header(response: &Response<Body>, name: &str) -> String {
    let value = response.headers().get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn facts(response: &Response<Body>) -> (u16, String) {
    (response.status().as_u16(), header(response, CONTENT_TYPE.as_str()))
}

fn unpack(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(body);
    std::io::Read::read_to_end(&mut decoder, &mut out).expect("gzip");
    out
}

/// Returns the uid of an object.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the resourceVersion of an object or a list.
pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}
