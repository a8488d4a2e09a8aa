//! A blocking HTTP client that also returns incomplete responses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.stream.get_ref().set_read_timeout(Some(timeout)).unwrap();
    }

    fn send(&mut self, method: &str, path: &str, content_type: &str, body: &str) -> io::Result<()> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: test\r\ncontent-type: {content_type}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let status = self.line()?;
        let code = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some((key, value)) => headers.push((key.to_lowercase(), value.to_owned())),
                None => return Ok((code, headers)),
            }
        }
    }

    /// The next piece of a chunked body; `None` at its end.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut piece = vec![0; size];
        self.stream.read_exact(&mut piece)?;
        self.line()?;
        Ok((size > 0).then_some(piece))
    }

    /// Sends a request and reads the response.
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> io::Result<Reply> {
        self.send(method, path, content_type, body)?;
        let (code, headers) = self.head()?;
        let length = headers
            .iter()
            .find(|(key, _)| key == "content-length")
            .map(|(_, value)| value.parse().unwrap());
        let mut bytes = Vec::new();
        match length {
            Some(length) => {
                bytes.resize(length, 0);
                self.stream.read_exact(&mut bytes)?;
            }
            None => {
                while let Some(piece) = self.chunk()? {
                    bytes.extend(piece);
                }
            }
        }
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        Ok(Reply { code, headers, body })
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.request("GET", path, "", "").unwrap()
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, "application/json", &body.to_string()).unwrap()
    }

    pub(crate) fn put(&mut self, path: &str, body: &Value) -> Reply {
        self.request("PUT", path, "application/json", &body.to_string()).unwrap()
    }

    /// A strategic merge patch.
    pub(crate) fn patch(&mut self, path: &str, body: &Value) -> Reply {
        self.request("PATCH", path, "application/strategic-merge-patch+json", &body.to_string())
            .unwrap()
    }

    pub(crate) fn merge(&mut self, path: &str, body: &Value) -> Reply {
        self.request("PATCH", path, "application/merge-patch+json", &body.to_string()).unwrap()
    }

    pub(crate) fn delete(&mut self, path: &str, options: &Value) -> Reply {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.request("DELETE", path, "application/json", &body).unwrap()
    }

    /// Starts a watch on this connection.
    pub(crate) fn watch(mut self, path: &str) -> Result<Stream, Reply> {
        self.send("GET", path, "", "").unwrap();
        let (code, headers) = self.head().unwrap();
        if code == 200 {
            return Ok(Stream { client: self, rest: Vec::new() });
        }
        let length =
            headers.iter().find(|(key, _)| key == "content-length").unwrap().1.parse().unwrap();
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        Err(Reply { code, headers, body: serde_json::from_slice(&bytes).unwrap() })
    }
}

/// A running watch.
pub(crate) struct Stream {
    pub(crate) client: Client,
    rest: Vec<u8>,
}

/// The next item of a stream.
#[derive(Debug)]
pub(crate) enum Next {
    Event(Value),
    /// The stream ended. The text is an incomplete line, or empty.
    End(String),
    Broken(io::ErrorKind),
}

impl Stream {
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Next::Event(serde_json::from_slice(&line).unwrap());
            }
            match self.client.chunk() {
                Ok(Some(piece)) => self.rest.extend(piece),
                Ok(None) => {
                    return Next::End(String::from_utf8(std::mem::take(&mut self.rest)).unwrap());
                }
                Err(error) => return Next::Broken(error.kind()),
            }
        }
    }

    pub(crate) fn event(&mut self) -> Value {
        match self.next() {
            Next::Event(event) => event,
            other => panic!("no event: {other:?}"),
        }
    }

    /// The type of the next event and the name of its object.
    pub(crate) fn brief(&mut self) -> (String, String) {
        let event = self.event();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

/// A server without controllers.
pub(crate) fn server() -> ApiServer {
    server_with(Options { controllers: false, ..Options::default() })
}

pub(crate) fn server_with(options: Options) -> ApiServer {
    ApiServer::start(options).unwrap()
}

pub(crate) fn client(server: &ApiServer) -> Client {
    Client::new(server.address())
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1",
            "resources": {"requests": {"cpu": "100m"}}}]}})
}

pub(crate) fn node(name: &str) -> Value {
    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": {"cpu": "1", "memory": "3840Mi", "pods": "110"}}})
}

pub(crate) fn binding(name: &str, uid: &str, node: &str) -> Value {
    json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default", "uid": uid},
        "target": {"kind": "Node", "name": node}})
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates a pod and binds it to this node.
pub(crate) fn create_on(server: &ApiServer, pod: &Value, node: &str) {
    server.create(pod).unwrap();
    server.bind("default", pod["metadata"]["name"].as_str().unwrap(), node).unwrap();
}

/// Waits until a condition holds that another thread brings about.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
