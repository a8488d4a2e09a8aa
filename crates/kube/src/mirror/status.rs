//! Reads the part of a pod's status that a scheduler writes.

use std::borrow::Cow;

use portolan::model::Name;
use serde::Deserialize;

use super::pods::{Condition, PendingStatus};

#[derive(Deserialize)]
struct PodAnswer<'a> {
    #[serde(borrow)]
    status: Option<PodStatus<'a>>,
}

/// The status of a pod.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus<'a> {
    #[serde(borrow)]
    nominated_node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conditions: Option<Vec<ConditionAnswer<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConditionAnswer<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    last_transition_time: Option<Cow<'a, str>>,
    observed_generation: Option<i64>,
}

impl PodStatus<'_> {
    pub(crate) fn conditions(&self) -> &[ConditionAnswer<'_>] {
        self.conditions.as_deref().unwrap_or_default()
    }

    /// Returns the condition of this type.
    pub(crate) fn condition(&self, kind: &str) -> Option<Condition> {
        let found = self.conditions().iter().find(|condition| condition.kind == kind)?;
        Some(Condition {
            status: (*found.status).into(),
            reason: found.reason.as_deref().unwrap_or_default().into(),
            message: found.message.as_deref().unwrap_or_default().into(),
            last_transition_time: found.last_transition_time.as_deref().map(Into::into),
            observed_generation: found.observed_generation,
        })
    }

    pub(crate) fn pending(&self) -> PendingStatus {
        let nominated = self.nominated_node_name.as_deref().filter(|node| !node.is_empty());
        let scheduled = self.condition("PodScheduled");
        PendingStatus { nominated: nominated.map(Name::from), scheduled }
    }
}

/// Reads the status of a pod from its JSON. A status that cannot be read is treated as empty. It only saves requests:
/// without it, a scheduler writes values that the pod already has. O(length).
pub(super) fn pending_status(pod: &str) -> PendingStatus {
    let answer: Option<PodAnswer<'_>> = serde_json::from_str(pod).ok();
    answer.and_then(|answer| answer.status).unwrap_or_default().pending()
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
