//! Counts the claims that schedulers create, and the waits for binding conditions (pkg/scheduler/metrics/metrics.go).
//!
//! The counts are those of the whole process, as in kube-scheduler.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

type ByStatus = [(&'static str, &'static str); 1];
type ByDriver = [(&'static str, String); 3];

static COUNTS: LazyLock<Counts> = LazyLock::new(|| Counts {
    created: Family::default(),
    waits: Family::default(),
    waited: Family::new_with_constructor(durations),
});

struct Counts {
    created: Family<ByStatus, Counter>,
    waits: Family<ByDriver, Counter>,
    waited: Family<ByDriver, Histogram, fn() -> Histogram>,
}

/// From 0.1 s to 14 minutes.
fn durations() -> Histogram {
    Histogram::new((0..14).map(|power| 0.1 * f64::from(1 << power)))
}

/// Registers the metrics. Counters are registered without `_total`, which the format adds.
pub(crate) fn register_claims(registry: &mut Registry) {
    registry.register(
        "scheduler_resourceclaim_creates",
        "Number of ResourceClaims creation requests within scheduler",
        COUNTS.created.clone(),
    );
    registry.register(
        "scheduler_dra_bindingconditions_allocations",
        "Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
        COUNTS.waits.clone(),
    );
    registry.register(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "Time in seconds spent waiting for BindingConditions to be satisfied during PreBind",
        COUNTS.waited.clone(),
    );
}

/// Counts a request that creates a claim.
pub(super) fn count_creation(is_created: bool) {
    let status = if is_created { "success" } else { "failure" };
    COUNTS.created.get_or_create(&[("status", status)]).inc();
}

/// Counts the wait of a pod for the devices of a driver.
pub(super) fn count_wait(profile: &str, driver: &str, status: &str, waited: Duration) {
    let label = |name, value: &str| (name, value.to_owned());
    let labels = [label("profile", profile), label("driver", driver), label("status", status)];
    COUNTS.waits.get_or_create(&labels).inc();
    COUNTS.waited.get_or_create(&labels).observe(waited.as_secs_f64());
}
