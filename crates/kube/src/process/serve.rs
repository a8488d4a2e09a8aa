//! What a scheduler answers over HTTP: whether it is alive and ready, its metrics, and its configuration.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/healthz` | 200 while the process can do its work; 500 after the lease was lost |
//! | `/readyz` | 200 when the first lists are applied and the process is not stopping |
//! | `/metrics` | kube-scheduler's metrics in Prometheus' text format |
//! | `/configz` | the configuration as it was given, unless it contains a private key |
//!
//! The server has neither encryption nor authentication. Bind it to an address that only probes and scrapers reach.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use portolan::metrics::Metrics;
use portolan::scheduler::Schedulers;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::LiveScheduler;
use crate::mirror::Readiness;
use crate::write::Fence;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    task: JoinHandle<()>,
}

struct Answers {
    fence: Fence,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    schedulers: Weak<Schedulers>,
    configuration: Arc<str>,
}

impl Served {
    /// Starts to answer. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// The address is in use or not allowed.
    pub async fn start(address: SocketAddr, scheduler: &LiveScheduler) -> std::io::Result<Served> {
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
        address: SocketAddr,
        scheduler: &LiveScheduler,
        further: Router,
    ) -> std::io::Result<Served> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let answers = Arc::new(Answers {
            fence: scheduler.writes().fence().clone(),
            readiness: scheduler.mirror().readiness(),
            metrics: scheduler.metrics().clone(),
            schedulers: Arc::downgrade(scheduler.schedulers()),
            configuration: scheduler.configuration().clone(),
        });
        let router = Router::new()
            .route("/livez", get(live))
            .route("/healthz", get(live))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/configz", get(configuration))
            .with_state(answers)
            .merge(further);
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "health and metrics are no longer served");
            }
        });
        Ok(Served { address, task })
    }

    /// The address, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn live(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    match answers.fence.is_lost() {
        false => (StatusCode::OK, "ok"),
        true => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the lease was lost, or the process is stopping")
        }
    }
}

async fn ready(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    if answers.fence.is_lost() {
        (StatusCode::INTERNAL_SERVER_ERROR, "the process is stopping")
    } else if !answers.readiness.is_synced() {
        (StatusCode::INTERNAL_SERVER_ERROR, "the first lists are not applied yet")
    } else {
        (StatusCode::OK, "ok")
    }
}

async fn metrics(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    // The engine's figures wait for its writer.
    let text = tokio::task::spawn_blocking(move || answers.metrics()).await;
    let format = "text/plain; version=0.0.4; charset=utf-8";
    match text {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, format)], text),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, format)], error.to_string())
        }
    }
}

impl Answers {
    fn metrics(&self) -> String {
        if let Some(schedulers) = self.schedulers.upgrade() {
            schedulers.queue().with(|queue, _| self.metrics.queue(queue));
            if let (Ok(reader), Ok(figures)) =
                (schedulers.engine().reader(), schedulers.engine().figures())
            {
                self.metrics.engine(&figures, &reader.snapshot());
            }
        }
        self.metrics.encode()
    }
}

async fn configuration(State(answers): State<Arc<Answers>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/yaml")], answers.configuration.to_string())
}
