//! Serves the health, readiness, metrics and configuration of a scheduler or a shadow over HTTP.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/healthz` | 200; 500 after the lease was lost, or once a stopping process writes nothing more |
//! | `/readyz` | 200 when the first lists are applied and the process is not stopping |
//! | `/metrics` | kube-scheduler's metrics and portolan's own, in Prometheus' text format |
//! | `/configz` | the configuration as it was given, unless it contains a secret |
//!
//! [`Served::start`] has neither encryption nor authentication: bind it to an address that only probes and scrapers
//! reach, or to a Unix socket. [`Served::secure`] has both. [`Served::encrypted`] serves other routes over HTTPS. Each
//! server has up to 512 connections: for one more, one without an accepted request is closed. At most 448 have accepted
//! requests, so 64 are left for probes. A connection also ends if its client is slow: see [`connections::Bounds`].

pub(super) mod connection_state;
pub(super) mod connections;
mod host_check;
mod listen;
pub(super) mod refusals;
mod timed;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use portolan::Schedulers;
use portolan::metrics::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::task::JoinHandle;

pub use connection_state::ConnectionState;
use connections::{Bounds, serve};
use listen::Listener;
pub use listen::{ListenAddress, ListenError};
use refusals::Refusals;

use super::LiveScheduler;
use crate::component_metrics::Scrape;
use crate::mirror::Readiness;
use crate::shadow::Shadow;
use crate::write::{Fence, ShardGate, register_claims};

/// A running server. It ends when this is dropped, except that requests in progress are answered.
#[derive(Debug)]
pub struct Served {
    address: ListenAddress,
    tasks: Vec<JoinHandle<()>>,
}

pub(super) struct Answers {
    /// `None` for a shadow, which has no lease to lose.
    fence: Option<Fence>,
    /// Whether the process is stopping.
    stops: Arc<AtomicBool>,
    readiness: Readiness,
    metrics: Scrape,
    configuration: Arc<str>,
}

impl Answers {
    pub(super) fn of(scheduler: &LiveScheduler) -> Answers {
        let metrics = scheduler.metrics().clone();
        let schedulers = Arc::downgrade(scheduler.schedulers());
        let mut scrape = Scrape::new(move || refresh(&metrics, &schedulers));
        scheduler.metrics().register(scrape.registry());
        scheduler.refusals().register(scrape.registry());
        register_claims(scrape.registry());
        if let Some(gate) = scheduler.gate() {
            let shards = HeldShards(gate.clone());
            scrape.registry().register_collector(Box::new(shards));
        }
        Answers {
            fence: Some(scheduler.writes().fence().clone()),
            stops: scheduler.stops().clone(),
            readiness: scheduler.mirror().readiness(),
            metrics: scrape,
            configuration: scheduler.configuration().clone(),
        }
    }
}

impl Served {
    /// Starts the server.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub async fn start(
        address: impl Into<ListenAddress>,
        scheduler: &LiveScheduler,
    ) -> Result<Served, ListenError> {
        Served::start_with(address, scheduler, Router::new()).await
    }

    /// Like [`Served::start`], with further routes, such as those of an
    /// [extender](crate::extender::extender_routes).
    ///
    /// # Errors
    ///
    /// Those of [`Served::start`].
    ///
    /// # Panics
    ///
    /// If a further route has one of the paths above.
    pub async fn start_with(
        address: impl Into<ListenAddress>,
        scheduler: &LiveScheduler,
        further: Router,
    ) -> Result<Served, ListenError> {
        let router = routes(Answers::of(scheduler)).merge(further);
        Served::answer(address.into(), router, scheduler.refusals().clone()).await
    }

    /// Starts the server of a shadow, which is alive as long as it answers.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub async fn shadow(
        address: impl Into<ListenAddress>,
        shadow: &Shadow,
    ) -> Result<Served, ListenError> {
        let (refusals, mut scrape) = (Refusals::default(), shadow.scrape());
        refusals.register(scrape.registry());
        let answers = Answers {
            fence: None,
            stops: Arc::default(),
            readiness: shadow.mirror().readiness(),
            metrics: scrape,
            configuration: shadow.configuration().clone(),
        };
        Served::answer(address.into(), routes(answers), refusals).await
    }

    /// Starts a server of other routes, with the same bounds for its connections.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub async fn routes(
        address: impl Into<ListenAddress>,
        routes: Router,
    ) -> Result<Served, ListenError> {
        Served::answer(address.into(), routes, Refusals::default()).await
    }

    async fn answer(
        address: ListenAddress,
        router: Router,
        refusals: Refusals,
    ) -> Result<Served, ListenError> {
        let (listener, address) = Listener::bind(address).await?;
        let task = tokio::spawn(serve(listener, None, router, Bounds::default(), refusals));
        Ok(Served { address, tasks: vec![task] })
    }

    pub(super) fn new(address: ListenAddress, tasks: Vec<JoinHandle<()>>) -> Served {
        Served { address, tasks }
    }

    /// The address, with the port that was selected.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The paths and their handlers. A path that is added here is served with and without encryption.
pub(super) fn routes(answers: Answers) -> Router {
    let table = [
        ("/livez", get(live)),
        ("/healthz", get(live)),
        ("/readyz", get(ready)),
        ("/metrics", get(metrics)),
        ("/configz", get(configuration)),
    ];
    let router = Router::<Arc<Answers>>::new();
    let router =
        table.into_iter().fold(router, |router, (path, handler)| router.route(path, handler));
    router.with_state(Arc::new(answers))
}

async fn live(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    match answers.is_lost() {
        false => (StatusCode::OK, "ok"),
        true => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the lease was lost, or the process is stopping")
        }
    }
}

async fn ready(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    // Relaxed: a probe that comes a moment later sees it.
    if answers.is_lost() || answers.stops.load(Ordering::Relaxed) {
        (StatusCode::INTERNAL_SERVER_ERROR, "the process is stopping")
    } else if !answers.readiness.is_synced() {
        (StatusCode::INTERNAL_SERVER_ERROR, "the first lists are not applied yet")
    } else {
        (StatusCode::OK, "ok")
    }
}

async fn metrics(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    let text = tokio::task::spawn_blocking(move || answers.metrics.text()).await;
    let format = "text/plain; version=0.0.4; charset=utf-8";
    match text {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, format)], text),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, format)], error.to_string())
        }
    }
}

impl Answers {
    fn is_lost(&self) -> bool {
        self.fence.as_ref().is_some_and(Fence::is_lost)
    }
}

/// Sets the gauges that are derived from the state.
fn refresh(metrics: &Metrics, schedulers: &Weak<Schedulers>) {
    if let Some(schedulers) = schedulers.upgrade() {
        schedulers.queue().with(|queue, _| metrics.queue(queue));
        if let (Ok(reader), Ok(figures)) =
            (schedulers.engine().reader(), schedulers.engine().figures())
        {
            metrics.engine(&figures, &reader.snapshot());
        }
    }
}

/// Exports the number of held shards.
struct HeldShards(ShardGate);

impl fmt::Debug for HeldShards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldShards").finish_non_exhaustive()
    }
}

impl Collector for HeldShards {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let held = ConstGauge::new(self.0.shards().held().count() as u64);
        let help = "Shards whose nodes and pods this replica schedules.";
        held.encode(encoder.encode_descriptor("portolan_shards", help, None, held.metric_type())?)
    }
}

async fn configuration(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/yaml")], answers.configuration.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::plugin::ShardSet;
    use std::num::NonZeroU32;

    #[test]
    fn metrics_have_the_number_of_held_shards() {
        let shards = NonZeroU32::new(8).and_then(ShardSet::new).expect("few");
        [2, 5].into_iter().for_each(|shard| shards.add(shard));
        let mut scrape = Scrape::new(|| ());
        scrape.registry().register_collector(Box::new(HeldShards(ShardGate::new(shards))));
        let text = scrape.text();
        assert!(text.contains("\n# TYPE portolan_shards gauge\nportolan_shards 2\n"), "{text}");
    }
}
