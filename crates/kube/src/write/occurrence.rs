//! Occurrences, such as a binding or a failed attempt, and the bodies of the events that report them.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use portolan::model::{DEFAULT_SCHEDULER, Name, Pod, Uid};
use serde::Serialize;

use super::series::{Key, Series};
use super::{micros, prefix};

/// The longest note that the API server accepts, in bytes.
const LONGEST_NOTE: usize = 1_024;
const CUT: &str = " ...";
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The reason of the event that reports a binding.
pub(super) const SCHEDULED: &str = "Scheduled";

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    /// An expected occurrence.
    Normal,
    /// A failure.
    Warning,
}

/// The kind of the object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ObjectKind {
    Pod,
    Lease,
}

/// An occurrence that concerns a pod, or the leader's Lease. The first of several that are the same is recorded as an
/// event.
#[derive(Debug)]
pub struct Occurrence {
    pub(super) key: Arc<Key>,
    pub(super) note: Box<str>,
    pub(super) time: Timestamp,
}

impl Occurrence {
    fn new(
        pod: &Pod,
        controller: &str,
        (kind, reason, action): (Type, &'static str, &'static str),
        note: &str,
    ) -> Occurrence {
        let key = Key {
            kind,
            object: ObjectKind::Pod,
            action,
            reason,
            controller: controller.into(),
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            version: pod.resource_version,
        };
        Occurrence::of(key, note)
    }

    fn of(key: Key, note: &str) -> Occurrence {
        Occurrence { key: Arc::new(key), note: cut(note).into(), time: Timestamp::now() }
    }

    /// The holder of a Lease has become the leader, or has stopped leading (client-go `RecordEvent`). The two have
    /// different actions, so that one is not counted as a repetition of the other.
    pub(crate) fn of_leader(namespace: &str, lease: &str, holder: &str, leads: bool) -> Occurrence {
        let (action, what) = match leads {
            true => ("BecomeLeader", "became leader"),
            false => ("StopLeading", "stopped leading"),
        };
        let key = Key {
            kind: Type::Normal,
            object: ObjectKind::Lease,
            action,
            reason: "LeaderElection",
            controller: DEFAULT_SCHEDULER.into(),
            namespace: namespace.into(),
            name: lease.into(),
            uid: Uid::new(""),
            version: 0,
        };
        Occurrence::of(key, &format!("{holder} {what}"))
    }

    /// The pod was bound to the node.
    pub(crate) fn scheduled(pod: &Pod, node: &Name) -> Occurrence {
        let note = format!("Successfully assigned {}/{} to {node}", pod.namespace(), pod.name);
        let kind = (Type::Normal, SCHEDULED, "Binding");
        Occurrence::new(pod, pod.scheduler_name(), kind, &note)
    }

    /// An attempt to schedule the pod failed.
    pub(crate) fn failed_scheduling(pod: &Pod, message: &str) -> Occurrence {
        let kind = (Type::Warning, "FailedScheduling", "Scheduling");
        Occurrence::new(pod, pod.scheduler_name(), kind, message)
    }

    /// A plugin reports what a pod waits for.
    pub(super) fn by_plugin(pod: &Pod, reason: &'static str, message: &str) -> Occurrence {
        Occurrence::new(pod, pod.scheduler_name(), (Type::Normal, reason, "Scheduling"), message)
    }

    /// The victim was evicted from the node for the preemptor. Like kube-scheduler 1.36, the event names the preemptor
    /// in its note alone, and not as the related object.
    pub(crate) fn preempted(victim: &Pod, preemptor: &Pod, node: &Name) -> Occurrence {
        preempted(victim, preemptor, node, "")
    }

    /// The victim, which was not bound yet, was withdrawn from the node for the preemptor.
    pub(super) fn preempted_in_memory(victim: &Pod, preemptor: &Pod, node: &Name) -> Occurrence {
        preempted(victim, preemptor, node, " (in kube-scheduler memory).")
    }
}

fn preempted(victim: &Pod, preemptor: &Pod, node: &Name, end: &str) -> Occurrence {
    let note = format!("Preempted by pod {} on node {node}{end}", preemptor.uid);
    let kind = (Type::Normal, "Preempted", "Preempting");
    Occurrence::new(victim, preemptor.scheduler_name(), kind, &note)
}

/// Cuts a note that is too long, as kube-scheduler does.
fn cut(note: &str) -> Cow<'_, str> {
    if note.len() <= LONGEST_NOTE {
        return note.into();
    }
    format!("{}{CUT}", prefix(note, LONGEST_NOTE - CUT.len())).into()
}

impl Occurrence {
    /// The name of the event: the pod's name and the time in hexadecimal nanoseconds.
    pub(super) fn name(&self) -> String {
        let suffix = format!(".{:x}", self.time.as_nanosecond());
        let pod = prefix(&self.key.name, LONGEST_NAME.saturating_sub(suffix.len()));
        // A label of a name ends with a letter or digit.
        format!("{}{suffix}", pod.trim_end_matches(['-', '.']))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventBody<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: EventMetadata<'a>,
    event_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<&'a SeriesBody>,
    reporting_controller: &'a str,
    reporting_instance: String,
    action: &'static str,
    reason: &'static str,
    regarding: Regarding<'a>,
    note: &'a str,
    #[serde(rename = "type")]
    kind_of_event: &'static str,
    deprecated_source: Empty,
    deprecated_first_timestamp: (),
    deprecated_last_timestamp: (),
}

impl<'a> EventBody<'a> {
    pub(super) fn new(
        event: &'a Occurrence,
        name: &'a str,
        host: &str,
        series: Option<&'a SeriesBody>,
    ) -> EventBody<'a> {
        let key = &*event.key;
        EventBody {
            kind: "Event",
            api_version: "events.k8s.io/v1",
            metadata: EventMetadata { name, namespace: &key.namespace },
            event_time: micros(event.time),
            series,
            reporting_controller: &key.controller,
            reporting_instance: format!("{}-{host}", key.controller),
            action: key.action,
            reason: key.reason,
            regarding: Regarding {
                kind: match key.object {
                    ObjectKind::Pod => "Pod",
                    ObjectKind::Lease => "Lease",
                },
                namespace: &key.namespace,
                name: &key.name,
                uid: key.uid.to_string(),
                api_version: match key.object {
                    ObjectKind::Pod => "v1",
                    ObjectKind::Lease => "coordination.k8s.io/v1",
                },
                resource_version: (key.version != 0).then(|| key.version.to_string()),
            },
            note: &event.note,
            kind_of_event: match key.kind {
                Type::Normal => "Normal",
                Type::Warning => "Warning",
            },
            deprecated_source: Empty {},
            deprecated_first_timestamp: (),
            deprecated_last_timestamp: (),
        }
    }
}

#[derive(Serialize)]
struct EventMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Regarding<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    api_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
pub(super) struct SeriesPatch<'a> {
    pub(super) series: &'a SeriesBody,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeriesBody {
    count: u32,
    last_observed_time: String,
}

impl SeriesBody {
    pub(super) fn of(series: Series) -> SeriesBody {
        SeriesBody { count: series.count, last_observed_time: micros(series.last) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::EventCache;
    use super::*;
    use portolan::model::pod;

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut(&"a".repeat(1_024)).len(), 1_024);
        let note = cut(&"a".repeat(1_025)).into_owned();
        assert_eq!((note.len(), note.ends_with("a ...")), (1_024, true));
        let note = cut(&"é".repeat(600)).into_owned();
        assert_eq!((note.len(), note.ends_with("é ...")), (1_024, true));
        let note = cut(&format!("a{}", "é".repeat(600))).into_owned();
        assert_eq!((note.len(), note.ends_with("é ...")), (1_023, true));
    }

    #[test]
    fn an_event_of_a_leader_is_about_its_lease() {
        let of = Occurrence::of_leader("kube-system", "kube-scheduler", "host_1", true);
        let body = serde_json::to_value(EventBody::new(&of, "name", "host", None)).expect("JSON");
        let regarding = serde_json::json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "namespace": "kube-system",
            "name": "kube-scheduler",
        });
        assert_eq!(
            (&body["regarding"], &body["note"]),
            (&regarding, &"host_1 became leader".into())
        );
        assert_eq!((&body["reason"], &body["type"]), (&"LeaderElection".into(), &"Normal".into()));
        // The end soon after the beginning is an event of its own.
        let end = Occurrence::of_leader("kube-system", "kube-scheduler", "host_1", false);
        let cache = EventCache::new(9);
        for occurrence in [of, end] {
            let write = cache.observe(occurrence, Timestamp::now()).expect("a write");
            assert_eq!(write.series, None);
        }
    }

    #[test]
    fn an_event_is_named_by_its_pod_and_time() {
        let mut recorded = Occurrence::scheduled(&pod("web-0").build(), &"n1".into());
        recorded.time = Timestamp::from_nanosecond(0x18ab_cdef_0123_4567).expect("a time");
        assert_eq!(recorded.name(), "web-0.18abcdef01234567");
        let name = format!("{}-{}", "a".repeat(235), "b".repeat(17));
        let occurrence = Occurrence::scheduled(&pod(&*name).build(), &"n1".into());
        let name = occurrence.name();
        assert!(name.len() <= 253 && name.starts_with(&format!("{}.", "a".repeat(235))), "{name}");
    }
}
