//! The metrics that kube-scheduler's libraries add to its own: `process_*`, `rest_client_*`, `kubernetes_*` and
//! `leader_election_*`, with their names, types, labels and buckets (1.36), so that its dashboards work.
//!
//! Requests and leases are counted for the whole process, as client-go does, because its clients are opened in several
//! places. The other figures are read or computed when they are scraped.

mod build;
mod classic;
#[cfg(target_os = "linux")]
mod process;

use std::fmt;

use portolan::metrics::Metrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::{api, process as scheduler};

/// Returns the metrics of a run in Prometheus' classic text format (0.0.4): those of its schedulers, of the process and
/// of the build. Nothing else of this module applies to a run without a cluster.
#[must_use]
pub fn of_run(metrics: &Metrics) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    build::register_build(&mut registry);
    register_process(&mut registry);
    text(&registry)
}

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
        text(&self.registry)
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    classic::classic(&text)
}

fn register_process(registry: &mut Registry) {
    #[cfg(target_os = "linux")]
    registry.register_collector(Box::new(process::Process));
    #[cfg(not(target_os = "linux"))]
    let _ = registry;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_metrics_of_its_schedulers_and_of_the_process() {
        let metrics = Metrics::new();
        let _ = metrics.recorder("p");
        let text = of_run(&metrics);
        for part in
            ["\n# TYPE scheduler_preemption_attempts_total counter\n", "\nkubernetes_build_info{"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(text.contains("\nprocess_open_fds "), cfg!(target_os = "linux"), "{text}");
        assert!(!text.contains("kubernetes_feature_enabled"), "{text}");
    }
}
