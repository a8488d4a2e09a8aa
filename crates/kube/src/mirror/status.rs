//! Reads the part of a pending pod's status that a scheduler writes.

use std::borrow::Cow;

use portolan::model::Name;
use serde::Deserialize;

use super::pods::{Condition, PendingStatus};

#[derive(Deserialize)]
struct WirePod<'a> {
    #[serde(borrow)]
    status: Option<WireStatus<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus<'a> {
    #[serde(borrow)]
    nominated_node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conditions: Option<Vec<WireCondition<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition<'a> {
    #[serde(rename = "type", borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    last_transition_time: Option<Cow<'a, str>>,
    observed_generation: Option<i64>,
}

/// Reads the status of a pod from its JSON. A status that cannot be read is treated as empty. It only saves requests:
/// without it, a scheduler writes values that the pod already has. O(length).
pub(super) fn pending_status(pod: &str) -> PendingStatus {
    let Ok(WirePod { status: Some(status) }) = serde_json::from_str(pod) else {
        return PendingStatus::default();
    };
    let mut conditions = status.conditions.unwrap_or_default().into_iter();
    let nominated = status.nominated_node_name.filter(|name| !name.is_empty());
    PendingStatus {
        nominated: nominated.map(|name| Name::from(&*name)),
        scheduled: conditions.find(|condition| condition.name == "PodScheduled").map(|found| {
            Condition {
                status: found.status.into(),
                reason: found.reason.into(),
                message: found.message.into(),
                last_transition_time: found.last_transition_time.map(Into::into),
                observed_generation: found.observed_generation,
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_and_the_nomination_are_read() {
        let status = pending_status(
            r#"{"metadata":{"name":"a"},"status":{"phase":"Pending","nominatedNodeName":"n1","conditions":[
            {"type":"Ready","status":"False"},
            {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 \"nodes\"",
             "lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":2}]}}"#,
        );
        assert_eq!(status.nominated.as_deref(), Some("n1"));
        let scheduled = status.scheduled.expect("the condition");
        assert_eq!((&*scheduled.status, &*scheduled.reason), ("False", "Unschedulable"));
        assert_eq!(&*scheduled.message, "0/1 \"nodes\"");
        assert_eq!(scheduled.last_transition_time.as_deref(), Some("2026-01-02T03:04:05Z"));
        assert_eq!(scheduled.observed_generation, Some(2));
    }

    #[test]
    fn a_new_pod_has_an_empty_status() {
        assert_eq!(pending_status(r#"{"status":{"phase":"Pending"}}"#), PendingStatus::default());
        assert_eq!(
            pending_status(r#"{"status":{"nominatedNodeName":""}}"#),
            PendingStatus::default()
        );
    }
}
