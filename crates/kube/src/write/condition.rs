//! The difference between the current condition of a pod and the desired one (`podutil.UpdatePodCondition` and its
//! two-way merge patch).

use jiff::Timestamp;

use super::bodies::ConditionChange;
use crate::mirror::Condition;

/// Formats a time as `metav1.Time`: UTC, in seconds.
fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// The desired condition of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    /// The pod's generation, or 0 if it is unknown.
    pub(super) generation: i64,
}

/// The result of a comparison.
pub(super) struct Difference<'a> {
    /// The fields to write, or `None` if they are all equal.
    pub(super) change: Option<ConditionChange<'a>>,
    /// Whether the difference is worth a request of its own. The observed generation alone is not.
    pub(super) matters: bool,
    /// Whether the pod has the condition already.
    pub(super) is_known: bool,
}

impl<'a> Wanted<'a> {
    /// Compares the condition with the known one. The time of the last transition changes only if the status does.
    pub(super) fn compare(&self, known: Option<&Condition>, now: Timestamp) -> Difference<'a> {
        let generation = (self.generation != 0).then_some(self.generation);
        let Some(known) = known else {
            let change = ConditionChange {
                last_probe_time: Some(()),
                last_transition_time: Some(seconds(now)),
                message: Some(self.message).filter(|message| !message.is_empty()),
                observed_generation: generation,
                reason: Some(self.reason).filter(|reason| !reason.is_empty()),
                status: Some(self.status),
                kind: self.kind,
            };
            return Difference { change: Some(change), matters: true, is_known: false };
        };
        let is_transition = *known.status != *self.status;
        let change = ConditionChange {
            last_probe_time: None,
            last_transition_time: is_transition.then(|| seconds(now)),
            message: (*known.message != *self.message).then_some(self.message),
            observed_generation: generation.filter(|new| known.observed_generation != Some(*new)),
            reason: (*known.reason != *self.reason).then_some(self.reason),
            status: is_transition.then_some(self.status),
            kind: self.kind,
        };
        let matters = is_transition || change.message.is_some() || change.reason.is_some();
        let is_empty = !matters && change.observed_generation.is_none();
        Difference { change: (!is_empty).then_some(change), matters, is_known: true }
    }
}

#[cfg(test)]
mod tests {
    use super::super::micros;
    use super::*;
    use serde_json::json;

    fn known() -> Condition {
        Condition {
            status: "False".into(),
            reason: "Unschedulable".into(),
            message: "no".into(),
            last_transition_time: Some("2026-01-01T00:00:00Z".into()),
            observed_generation: Some(1),
        }
    }

    fn wanted(message: &str, generation: i64) -> Wanted<'_> {
        let (kind, status, reason) = ("PodScheduled", "False", "Unschedulable");
        Wanted { kind, status, reason, message, generation }
    }

    #[test]
    fn times_are_cut_and_not_rounded() {
        let time: Timestamp = "2026-11-22T18:57:01.9876549Z".parse().expect("a time");
        assert_eq!(seconds(time), "2026-11-22T18:57:01Z");
        assert_eq!(micros(time), "2026-11-22T18:57:01.987654Z");
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn an_equal_condition_is_not_written() {
        let same = wanted("no", 1);
        let difference = same.compare(Some(&known()), Timestamp::UNIX_EPOCH);
        assert!(difference.change.is_none() && !difference.matters);
    }

    #[test]
    fn the_observed_generation_is_written_along_but_is_no_reason_to_write() {
        let newer = wanted("no", 2);
        let difference = newer.compare(Some(&known()), Timestamp::UNIX_EPOCH);
        assert!(!difference.matters);
        let change = serde_json::to_value(difference.change).expect("json");
        assert_eq!(change, json!({"observedGeneration": 2, "type": "PodScheduled"}));
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let other = wanted("still no", 1);
        let change = other.compare(Some(&known()), Timestamp::UNIX_EPOCH).change;
        let expected = json!({"message": "still no", "type": "PodScheduled"});
        assert_eq!(serde_json::to_value(change).expect("json"), expected);
        let was_true = Condition { status: "True".into(), ..known() };
        let other = wanted("no", 1);
        let change = other.compare(Some(&was_true), Timestamp::UNIX_EPOCH).change;
        let expected = json!({
            "lastTransitionTime": "1970-01-01T00:00:00Z", "status": "False", "type": "PodScheduled",
        });
        assert_eq!(serde_json::to_value(change).expect("json"), expected);
    }
}
