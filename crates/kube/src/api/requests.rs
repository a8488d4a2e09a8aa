//! Counts the requests to API servers (component-base `metrics/prometheus/restclient/metrics.go`).
//!
//! The counts are those of the whole process, as in client-go: clients are opened for bindings, leases, events and
//! reviews, and their metrics differ by no label.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

type ByHost = [(&'static str, String); 2];
type Histograms = Family<ByHost, Histogram, fn() -> Histogram>;

/// The requests of this process.
static REQUESTS: LazyLock<Requests> = LazyLock::new(Requests::new);

struct Requests {
    answers: Family<[(&'static str, String); 3], Counter>,
    duration: Histograms,
    waits: Histograms,
    request_size: Histograms,
    response_size: Histograms,
}

fn durations() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

/// From 64 bytes to 16 MiB.
fn sizes() -> Histogram {
    let bounds = [64_u32, 256, 512, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
    Histogram::new(bounds.into_iter().chain([1 << 24]).map(f64::from))
}

impl Requests {
    fn new() -> Requests {
        Requests {
            answers: Family::default(),
            duration: Family::new_with_constructor(durations),
            waits: Family::new_with_constructor(durations),
            request_size: Family::new_with_constructor(sizes),
            response_size: Family::new_with_constructor(sizes),
        }
    }
}

/// Registers the metrics of all requests of this process. A retry is a request of its own, because clients do not
/// retry.
pub(crate) fn register_metrics(registry: &mut Registry) {
    let Requests { answers, duration, waits, request_size, response_size } = &*REQUESTS;
    registry.register(
        "rest_client_requests",
        "Number of HTTP requests, partitioned by status code, method, and host",
        answers.clone(),
    );
    for (name, help, family) in [
        (
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host",
            duration,
        ),
        (
            "rest_client_rate_limiter_duration_seconds",
            "Client side rate limiter latency in seconds. Broken down by verb, and host",
            waits,
        ),
        (
            "rest_client_request_size_bytes",
            "Request size in bytes. Broken down by verb and host",
            request_size,
        ),
        (
            "rest_client_response_size_bytes",
            "Response size in bytes. Broken down by verb and host",
            response_size,
        ),
    ] {
        registry.register(name, help, family.clone());
    }
}

/// Counts the requests of one client.
#[derive(Clone)]
pub(super) struct Meter {
    /// The server's host and port.
    host: Arc<str>,
}

/// A request whose duration is recorded when this is dropped, even if the request is abandoned.
pub(super) struct RequestTimer {
    started: Instant,
    labels: ByHost,
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        observe(&REQUESTS.duration, &self.labels, self.started.elapsed().as_secs_f64());
    }
}

fn observe(family: &Histograms, labels: &ByHost, value: f64) {
    family.get_or_create(labels).observe(value);
}

impl Meter {
    /// Creates the meter of a client of this server.
    pub(super) fn new(server: &http::Uri) -> Meter {
        let authority = server.authority().map_or("", |authority| authority.as_str());
        // A password is no label.
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Meter { host: host.into() }
    }

    fn labels(&self, method: &Method) -> ByHost {
        [("verb", method.to_string()), ("host", self.host.to_string())]
    }

    /// Begins to measure a request other than a watch.
    pub(super) fn time(&self, method: &Method) -> RequestTimer {
        RequestTimer { started: Instant::now(), labels: self.labels(method) }
    }

    /// Counts a sent request by the status of its answer, and as an error if it has none.
    pub(super) fn answered(&self, method: &Method, status: Option<StatusCode>) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.as_str().to_owned());
        let labels =
            [("code", code), ("method", method.to_string()), ("host", self.host.to_string())];
        REQUESTS.answers.get_or_create(&labels).inc();
    }

    /// Records how long the client's own limit has delayed a request.
    pub(super) fn waited(&self, method: &Method, took: Duration) {
        observe(&REQUESTS.waits, &self.labels(method), took.as_secs_f64());
    }

    /// Records the size of a request's body.
    pub(super) fn sent(&self, method: &Method, bytes: usize) {
        observe(&REQUESTS.request_size, &self.labels(method), bytes as f64);
    }

    /// Records the size of an answer's body.
    pub(super) fn received(&self, method: &Method, bytes: usize) {
        observe(&REQUESTS.response_size, &self.labels(method), bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_its_port_and_no_password() {
        for (server, host) in [
            ("https://10.0.0.1:6443/", "10.0.0.1:6443"),
            ("https://me:secret@api.example.com/k8s", "api.example.com"),
            ("http://[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(&*Meter::new(&server.parse().expect("an address")).host, host);
        }
    }
}
