//! The server's metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use portolan::metrics::encode_classic;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::api::App;
use crate::alloc::live_bytes;

/// The path of a request, and the status of its answer.
type Answered = Vec<(&'static str, String)>;

#[derive(Clone)]
struct Durations;

impl MetricConstructor<Histogram> for Durations {
    fn new_metric(&self) -> Histogram {
        // From 1 ms to 65 s.
        Histogram::new(exponential_buckets(0.001, 4.0, 9))
    }
}

pub(super) struct Figures {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<Answered, Histogram, Durations>,
    generation: Gauge,
    sessions: Gauge,
    heap: Gauge,
}

impl Default for Figures {
    fn default() -> Figures {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations = Family::new_with_constructor(Durations);
        let [generation, sessions, heap] = [(); 3].map(|()| Gauge::default());
        let help = "Requests by path and status of the answer";
        registry.register("portolan_serve_requests", help, requests.clone());
        let help = "Time until the head of an answer, by path";
        registry.register("portolan_serve_request_duration_seconds", help, durations.clone());
        let help = "Number of the current reading of the cluster";
        registry.register("portolan_serve_generation", help, generation.clone());
        registry.register("portolan_serve_sessions", "Sessions", sessions.clone());
        let help = "Bytes that are allocated and not freed";
        registry.register("portolan_serve_heap_bytes", help, heap.clone());
        Figures { registry, requests, durations, generation, sessions, heap }
    }
}

impl Figures {
    /// The metrics in Prometheus' text format.
    pub(super) fn text(&self, app: &App) -> String {
        self.generation.set(i64::try_from(app.generation()).unwrap_or(i64::MAX));
        self.sessions.set(i64::try_from(app.sessions.len()).unwrap_or(i64::MAX));
        self.heap.set(live_bytes());
        encode_classic(&self.registry)
    }
}

/// Counts a request and its time.
pub(super) async fn measure(
    State(app): State<Arc<App>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let response = next.run(request).await;
    let path = ("path", path.as_str().to_owned());
    let durations = app.figures.durations.get_or_create(&vec![path.clone()]);
    durations.observe(started.elapsed().as_secs_f64());
    let code = ("code", response.status().as_str().to_owned());
    app.figures.requests.get_or_create(&vec![path, code]).inc();
    response
}
