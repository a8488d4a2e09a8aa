//! The metrics that kube-scheduler's libraries add to its own: `process_*`, `rest_client_*`, `kubernetes_*` and
//! `leader_election_*`, with their names, types, labels and buckets (1.36), so that its dashboards work.
//!
//! Requests and leases are counted for the whole process, as client-go does, because its clients are opened in several
//! places. The other figures are read or computed when they are scraped.

mod build;
#[cfg(target_os = "linux")]
mod process;

use std::fmt;

use portolan::metrics::encode_classic;
use prometheus_client::registry::Registry;

use crate::{api, process as scheduler};

/// The answer to `/metrics`.
pub(crate) struct Scrape {
    registry: Registry,
    refresh: Box<dyn Fn() + Send + Sync>,
}

impl Scrape {
    /// Creates an answer with the metrics of this module. `refresh` is called before each answer, and sets the gauges
    /// that are derived from the state.
    pub(crate) fn new(refresh: impl Fn() + Send + Sync + 'static) -> Scrape {
        let mut registry = Registry::default();
        build::register_build(&mut registry);
        build::register_features(&mut registry);
        register_process(&mut registry);
        api::register_metrics(&mut registry);
        scheduler::register_leadership(&mut registry);
        Scrape { registry, refresh: Box::new(refresh) }
    }

    /// The registry, for further families.
    pub(crate) fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Returns the metrics in Prometheus' classic text format (0.0.4). May block: the engine's figures wait for its
    /// writer.
    pub(crate) fn text(&self) -> String {
        (self.refresh)();
        encode_classic(&self.registry)
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

fn register_process(registry: &mut Registry) {
    #[cfg(target_os = "linux")]
    registry.register_collector(Box::new(process::Process));
    #[cfg(not(target_os = "linux"))]
    let _ = registry;
}
