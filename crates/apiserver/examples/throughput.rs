//! Creates nodes and pods over HTTP, lists, watches and binds them, and prints how fast that went.
//!
//! ```text
//! cargo run --release -p portolan-apiserver --example throughput -- [NODES [PODS [CONNECTIONS [DELAY_MS]]]]
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Options};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

struct Client(BufReader<TcpStream>);

impl Client {
    async fn new(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}"
        );
        self.0.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await
    }

    /// The status code, and the length of the body unless the body is chunked.
    async fn head(&mut self) -> io::Result<(u16, Option<usize>)> {
        let (mut line, mut code, mut length) = (String::new(), 0, None);
        loop {
            line.clear();
            self.0.read_line(&mut line).await?;
            let text = line.trim_end().to_ascii_lowercase();
            if let Some(status) = text.strip_prefix("http/1.1 ") {
                code = status.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
            } else if let Some(value) = text.strip_prefix("content-length: ") {
                length = value.parse().ok();
            } else if text.is_empty() {
                return Ok((code, length));
            }
        }
    }

    async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<(u16, Vec<u8>)> {
        self.send(method, path, body).await?;
        let (code, length) = self.head().await?;
        let mut answer = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut answer).await?;
        Ok((code, answer))
    }

    /// Reads `count` events.
    async fn events(&mut self, path: &str, count: usize) -> io::Result<()> {
        self.send("GET", path, "").await?;
        self.head().await?;
        let (mut seen, mut line) = (0, Vec::new());
        while seen < count {
            line.clear();
            if self.0.read_until(b'\n', &mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            seen += usize::from(line.starts_with(b"{\"type\":"));
        }
        Ok(())
    }
}

/// Sends `count` requests over `connections` connections, and prints their rate.
async fn all<F>(
    what: &str,
    address: SocketAddr,
    connections: usize,
    count: usize,
    request: F,
) -> io::Result<()>
where
    F: Fn(usize) -> (String, String) + Send + Sync + 'static,
{
    let (next, request) = (Arc::new(AtomicUsize::new(0)), Arc::new(request));
    let start = Instant::now();
    let workers: Vec<_> = (0..connections)
        .map(|_| {
            let (next, request) = (next.clone(), request.clone());
            tokio::spawn(async move {
                let mut client = Client::new(address).await?;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return Ok::<_, io::Error>(());
                    }
                    let (path, body) = request(index);
                    let (code, answer) = client.request("POST", &path, &body).await?;
                    if code != 201 {
                        return Err(io::Error::other(
                            String::from_utf8_lossy(&answer).into_owned(),
                        ));
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(io::Error::other)??;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {count} in {seconds:.2} s, {:.0}/s", count as f64 / seconds);
    Ok(())
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let argument = |index: usize, default| arguments.get(index).copied().unwrap_or(default);
    let (nodes, pods) = (argument(0, 1000), argument(1, 10_000));
    let (connections, delay) = (argument(2, 128), argument(3, 10));
    let write_delay = Duration::from_millis(delay as u64);
    let server = ApiServer::start(Options { write_delay, ..Options::default() })?;
    let address = server.address();
    println!("{connections} connections, {delay} ms a write");

    all("create nodes", address, connections, nodes, |index| {
        let status = json!({"capacity": {"cpu": "64"}});
        let metadata = json!({"name": format!("n{index}")});
        let node =
            json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "status": status});
        ("/api/v1/nodes".into(), node.to_string())
    })
    .await?;
    let version = server.version();
    let watches: Vec<_> = (0..4)
        .map(|_| {
            let path = format!("/api/v1/pods?watch=1&resourceVersion={version}");
            tokio::spawn(async move { Client::new(address).await?.events(&path, 2 * pods).await })
        })
        .collect();
    all("create pods", address, connections, pods, |index| {
        let metadata = json!({"name": format!("p{index}"), "labels": {"app": "web"}});
        let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
        let spec =
            json!({"containers": [{"name": "c", "image": "pause:1", "resources": resources}]});
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec});
        ("/api/v1/namespaces/default/pods".into(), pod.to_string())
    })
    .await?;
    let start = Instant::now();
    let (_, list) = Client::new(address).await?.request("GET", "/api/v1/pods", "").await?;
    println!(
        "list pods: {:.1} MB in {:.3} s",
        list.len() as f64 / 1e6,
        start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    all("bind pods", address, connections, pods, move |index| {
        let name = format!("p{index}");
        let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
        let target = json!({"kind": "Node", "name": format!("n{}", index % nodes)});
        let body = json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}, "target": target});
        (path, body.to_string())
    })
    .await?;
    for watch in watches {
        watch.await.map_err(io::Error::other)??;
    }
    println!(
        "4 watches saw all {} events {:.2} s after the first binding",
        2 * pods,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
