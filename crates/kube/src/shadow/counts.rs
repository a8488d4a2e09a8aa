//! The counters of a shadow, as figures and as metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::verdict::{Judgement, Verdict};

/// The counts of a shadow so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowFigures {
    /// Pods by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; Verdict::ALL.len()],
    /// Pods that first appeared with a node, which are not judged.
    pub appeared: u64,
    /// Bindings that were not judged because too many waited.
    pub skipped: u64,
}

impl ShadowFigures {
    /// Returns the number of pods with this verdict.
    #[must_use]
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.sum(|one| one == verdict)
    }

    /// Returns the number of pods that were judged, including the undecided ones.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.sum(|_| true)
    }

    /// Returns the number of pods with these verdicts.
    #[must_use]
    pub fn sum(&self, is_counted: impl Fn(Verdict) -> bool) -> u64 {
        let counted = Verdict::ALL.iter().zip(self.verdicts);
        counted.filter(|(verdict, _)| is_counted(**verdict)).map(|(_, count)| count).sum()
    }

    /// Returns the share of the decided pods that are counted, from 0 to 1. `None` without decided pods.
    fn share(&self, is_counted: impl Fn(Verdict) -> bool) -> Option<f64> {
        let decided = self.sum(|verdict| verdict != Verdict::Undecided);
        (decided > 0).then(|| self.sum(is_counted) as f64 / decided as f64)
    }

    /// Returns the share of the decided pods whose node is among the best ones on the state right before the binding,
    /// from 0 to 1. `None` without such pods.
    #[must_use]
    pub fn agreement(&self) -> Option<f64> {
        self.share(Verdict::is_agreement)
    }

    /// Returns the share of the decided pods that agree or are explained, from 0 to 1. `None` without such pods.
    #[must_use]
    pub fn explained(&self) -> Option<f64> {
        self.share(|verdict| !verdict.is_unexplained() && verdict != Verdict::Undecided)
    }
}

type ByVerdict = Family<[(&'static str, &'static str); 1], Counter>;

/// Counted with relaxed orderings, which pair with nothing: no data depends on a count.
#[derive(Debug)]
pub(super) struct Counts {
    verdicts: ByVerdict,
    decision: Histogram,
    waited: Histogram,
    appeared: AtomicU64,
    skipped: AtomicU64,
}

impl Counts {
    pub(super) fn new() -> Counts {
        let verdicts = ByVerdict::default();
        // Each class is written from the start, so that rates can be computed.
        Verdict::ALL.iter().for_each(|verdict| drop(verdicts.get_or_create(&label(*verdict))));
        Counts {
            verdicts,
            decision: Histogram::new(exponential_buckets(1e-6, 2.0, 20)),
            waited: Histogram::new(exponential_buckets(1e-3, 2.0, 20)),
            appeared: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let to = registry.sub_registry_with_prefix("portolan_shadow");
        let help = "Bindings of the observed scheduler by verdict";
        to.register("pods", help, self.verdicts.clone());
        let help = "Time of portolan's own decision";
        to.register_with_unit("decision_duration", help, Unit::Seconds, self.decision.clone());
        let help = "Time from the first sight of a pending pod to that of its binding";
        to.register_with_unit("pending_duration", help, Unit::Seconds, self.waited.clone());
    }

    pub(super) fn judged(&self, judgement: &Judgement) {
        self.verdicts.get_or_create(&label(judgement.verdict)).inc();
        self.decision.observe(judgement.decision.as_secs_f64());
        if let Some(waited) = judgement.waited {
            self.waited.observe(waited.as_secs_f64());
        }
    }

    pub(super) fn appeared(&self) {
        self.appeared.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn figures(&self) -> ShadowFigures {
        let count = |verdict| self.verdicts.get_or_create(&label(verdict)).get();
        ShadowFigures {
            verdicts: Verdict::ALL.map(count),
            appeared: self.appeared.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
        }
    }
}

fn label(verdict: Verdict) -> [(&'static str, &'static str); 1] {
    [("verdict", verdict.as_str())]
}
