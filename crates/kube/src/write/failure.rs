//! The report of a failed attempt in the pod's status (schedule_one.go `handleSchedulingFailure`).

use portolan::Failure;
use portolan::plugin::Nomination;
use portolan::scheduler::BindError;

/// Why a pod was not scheduled, as its condition `PodScheduled` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Plugins rejected the pod.
    Unschedulable,
    /// The attempt failed because of an error. The pod may fit.
    SchedulerError,
}

impl Reason {
    /// Returns the reason as the API writes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Reason::Unschedulable => "Unschedulable",
            Reason::SchedulerError => "SchedulerError",
        }
    }
}

/// The report of a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailureReport {
    /// The reason.
    pub(crate) reason: Reason,
    /// The message, not truncated.
    pub(crate) message: String,
    /// How the pod's nomination changes.
    pub(crate) nomination: Nomination,
}

impl FailureReport {
    /// Creates a report.
    pub(crate) fn new(
        reason: Reason,
        message: impl Into<String>,
        nomination: Nomination,
    ) -> FailureReport {
        FailureReport { reason, message: message.into(), nomination }
    }

    /// The report of a scheduling cycle that failed, or `None` if the pod is not this scheduler's, or if the engine is
    /// closed.
    ///
    /// Like kube-scheduler, every failure but [`Failure::Fit`] clears the nomination.
    pub(crate) fn of_cycle(error: &Failure) -> Option<FailureReport> {
        let mut nomination = Nomination::Clear;
        let reason = match error {
            Failure::Closed | Failure::OwnThread | Failure::NoProfile(_) => return None,
            Failure::Fit(fit) => {
                nomination = fit.nomination.clone();
                Reason::Unschedulable
            }
            Failure::Member { failure, .. } => return FailureReport::of_cycle(failure),
            Failure::NoNodes
            | Failure::PodGroup(_)
            | Failure::TooFew { .. }
            | Failure::Incomplete(..) => Reason::Unschedulable,
            _ => Reason::SchedulerError,
        };
        Some(FailureReport::new(reason, error.to_string(), nomination))
    }

    /// The report of a binding cycle that failed, or `None` if nothing was tried, as after a refusal by the gate of the
    /// shards, or if the pod may be bound. The nomination is cleared.
    pub(crate) fn of_bind(error: &BindError) -> Option<FailureReport> {
        let reason = match error {
            BindError::Closed
            | BindError::OwnThread
            | BindError::Unknown(_)
            | BindError::Refused(_) => return None,
            BindError::Rejected(_) => Reason::Unschedulable,
            _ => Reason::SchedulerError,
        };
        Some(FailureReport::new(reason, error.to_string(), Nomination::Clear))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::FitError;
    use portolan::plugin::Status;

    #[test]
    fn rejections_are_unschedulable_and_failures_are_errors_of_the_scheduler() {
        let mut fit = FitError::new(3);
        fit.nomination = Nomination::Node("n1".into());
        let failure = FailureReport::of_cycle(&Failure::Fit(Box::new(fit)));
        let expected = FailureReport::new(
            Reason::Unschedulable,
            "0/3 nodes are available:",
            Nomination::Node("n1".into()),
        );
        assert_eq!(failure, Some(expected));

        let failure = FailureReport::of_cycle(&Failure::NoNodes);
        let message = "no nodes available to schedule pods";
        let expected = FailureReport::new(Reason::Unschedulable, message, Nomination::Clear);
        assert_eq!(failure, Some(expected));

        let status = Status::error("DefaultBinder", "running Bind plugin \"DefaultBinder\": no");
        let message = status.to_string();
        let expected = FailureReport::new(Reason::SchedulerError, message, Nomination::Clear);
        assert_eq!(FailureReport::of_bind(&BindError::Failed(status)), Some(expected));
    }

    #[test]
    fn a_closed_engine_pods_of_others_refusals_of_the_gate_and_unknown_outcomes_are_not_reported() {
        assert_eq!(FailureReport::of_cycle(&Failure::Closed), None);
        let member = |failure: Failure| {
            let failure = Box::new(failure);
            FailureReport::of_cycle(&Failure::Member { position: 0, name: "a/b".into(), failure })
        };
        assert_eq!(member(Failure::Closed), None);
        assert_eq!(member(Failure::NoNodes), FailureReport::of_cycle(&Failure::NoNodes));
        let few = Failure::TooFew { found: 1, wanted: 2, first: None };
        for unplaced in [few, Failure::Incomplete(1, 2)] {
            let report = FailureReport::of_cycle(&unplaced);
            assert_eq!(report.map(|report| report.reason), Some(Reason::Unschedulable));
        }
        assert_eq!(FailureReport::of_cycle(&Failure::NoProfile("other".into())), None);
        assert_eq!(FailureReport::of_bind(&BindError::Closed), None);
        assert_eq!(FailureReport::of_bind(&BindError::Refused("another shard".into())), None);
        assert_eq!(FailureReport::of_bind(&BindError::Unknown("no answer".into())), None);
    }
}
