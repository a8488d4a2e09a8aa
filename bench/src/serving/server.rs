//! The server that is measured: its process, its memory and its readings.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use portolan_cli::{CommandError, histogram};
use serde_json::{Value, json};

use super::cluster::taken;
use super::failed;

/// A running `portolan serve`, which ends with this.
pub(super) struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Serves the cluster of an API server.
    pub(super) fn start(cluster: &str) -> Result<Server, CommandError> {
        let program = std::env::current_exe().map_err(failed)?;
        let words = ["portolan", "serve", "--listen", "127.0.0.1:0", "--log", "error", "--master"];
        let mut child = Command::new(program)
            .args(words)
            .arg(cluster)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("the server could not start: {error}")))?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or_else(|| failed("the server has no standard output"))?;
        let mut server = Server { child, address: String::new() };
        BufReader::new(out).read_line(&mut line).map_err(failed)?;
        let address = line
            .split('/')
            .nth(2)
            .ok_or_else(|| failed("the server has ended: see its message above"))?;
        server.address = address.to_owned();
        Ok(server)
    }

    /// `127.0.0.1:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The server's memory now. The resident part is known on Linux only.
    pub(super) fn memory(&self, at: &str) -> Result<Value, CommandError> {
        let url = format!("http://{}/metrics", self.address);
        let metrics = ureq::get(url).call().map_err(failed)?.body_mut().read_to_string();
        let metrics = metrics.map_err(failed)?;
        let heap = metrics.lines().find_map(|line| line.strip_prefix("portolan_serve_heap_bytes "));
        let heap: f64 = heap
            .and_then(|bytes| bytes.parse().ok())
            .ok_or_else(|| failed("the server's metrics have no heap"))?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let resident = status.ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        });
        let round = |mib: f64| (mib * 10.0).round() / 10.0;
        Ok(json!({
            "at": at,
            "heap_mib": round(heap / f64::from(1 << 20)),
            "resident_mib": resident.map(|kib| round(kib / 1024.0)),
        }))
    }
}

/// A stream of a server's events.
pub(super) fn events(address: &str, patience: Duration) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    Ok(BufReader::new(stream))
}

/// The times between the readings of a server.
pub(super) struct Readings(Arc<Mutex<Histogram<u64>>>);

impl Readings {
    pub(super) fn follow(address: &str) -> Result<Readings, CommandError> {
        let intervals = Arc::new(Mutex::new(histogram()?));
        let stream = events(address, Duration::from_secs(3600)).map_err(failed)?;
        let figures = intervals.clone();
        thread::spawn(move || {
            let mut last: Option<Instant> = None;
            // The stream ends with the server.
            for line in stream.lines().map_while(Result::ok) {
                if line != "event: generation" {
                    continue;
                }
                if let Some(last) = last.replace(Instant::now()) {
                    let nanos = u64::try_from(last.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
                    figures.saturating_record(nanos);
                }
            }
        });
        Ok(Readings(intervals))
    }

    /// The nanoseconds between the readings since the last call.
    pub(super) fn take(&self) -> Histogram<u64> {
        taken(&self.0)
    }
}
