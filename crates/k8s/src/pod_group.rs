//! Reads the pod groups of all API groups that define them, and the group of a pod.

use std::time::Duration;

use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::node::{optional, timestamp};
use super::objects::named;
use super::wire::Metadata;
use super::wire_objects as wire;
use super::wire_pod;
use portolan::model::{Name, PodGroup, PodGroupPhase};

/// The API group that defines a pod group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// scheduling.k8s.io: has `schedulingPolicy`, and no timeout.
    Kubernetes,
    /// scheduling.x-k8s.io, of sigs.k8s.io/scheduler-plugins.
    Coscheduling,
    /// scheduling.godel.kubewharf.io.
    Godel,
}

/// Gödel's default for how long it tries to schedule a group.
const GODEL_TIMEOUT: Duration = Duration::from_secs(300);

/// Labels that name the group of a pod, in order of precedence: coscheduling's label, and its predecessor.
const LABELS: [&str; 2] = ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"];

/// Returns the group of a pod: its own field, else coscheduling's label, else Gödel's annotation.
pub(super) fn of_pod(meta: &Metadata<'_>, spec: &wire_pod::PodSpec<'_>) -> Option<Name> {
    let field = spec.scheduling_group.as_ref().and_then(|group| optional(&group.pod_group_name));
    let label = |wanted: &&str| {
        let mut labels = meta.labels.iter();
        labels.find(|(key, _)| **key == **wanted).and_then(|(_, value)| optional(value))
    };
    let annotation = || optional(&meta.annotations.as_ref()?.godel_pod_group);
    field.or_else(|| LABELS.iter().find_map(label)).or_else(annotation)
}

pub(super) fn read(
    kind: GroupKind,
    wire: &wire::PodGroup<'_>,
    path: &Path<'_>,
    rules: &Rules<'_>,
) -> Result<PodGroup, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let path_of = path.key("spec");
    let (path_of, wanted) = match kind {
        GroupKind::Kubernetes => {
            let gang = spec.scheduling_policy.as_ref().and_then(|policy| policy.gang.as_ref());
            let path_of = path_of.key("schedulingPolicy").key("gang").key("minCount").to_string();
            (path_of, gang.map(|gang| gang.min_count.unwrap_or_default()))
        }
        GroupKind::Coscheduling | GroupKind::Godel => {
            (path_of.key("minMember").to_string(), *spec.min_member)
        }
    };
    let min_members = wanted.map_or(Ok(0), |wanted| {
        // A basic policy has no minimum, so the group is not a gang. The minimum of a gang is at least 1.
        let minimum = u32::from(kind == GroupKind::Kubernetes);
        u32::try_from(wanted).ok().filter(|wanted| *wanted >= minimum).ok_or_else(|| {
            let path = Path::Key(&Path::Root, &path_of);
            ReadError::value(&path, &wanted.to_string(), "a number of pods")
        })
    })?;
    Ok(PodGroup {
        namespace: rules.namespace(&meta.namespace),
        name: named(&meta.name, path)?,
        min_members,
        schedule_timeout: timeout(kind, *spec.schedule_timeout_seconds, path)?,
        priority: *spec.priority,
        creation_time: timestamp(
            &meta.creation_timestamp,
            &path.key("metadata").key("creationTimestamp"),
        )?,
        phase: wire.status.as_ref().and_then(|status| phase(kind, &status.phase)),
    })
}

/// Parses the phase. Other components write the status, so an unknown phase is not an error.
fn phase(kind: GroupKind, text: &str) -> Option<PodGroupPhase> {
    if kind == GroupKind::Kubernetes || text.is_empty() {
        return None;
    }
    Some(match text {
        "Pending" => PodGroupPhase::Pending,
        "PreScheduling" | "Scheduling" => PodGroupPhase::PreScheduling,
        "Scheduled" => PodGroupPhase::Scheduled,
        "Running" => PodGroupPhase::Running,
        "Finished" => PodGroupPhase::Finished,
        "Failed" => PodGroupPhase::Failed,
        "Timeout" => PodGroupPhase::Timeout,
        _ => PodGroupPhase::Unknown,
    })
}

fn timeout(
    kind: GroupKind,
    seconds: Option<i64>,
    path: &Path<'_>,
) -> Result<Option<Duration>, ReadError> {
    let default = match kind {
        GroupKind::Kubernetes => return Ok(None),
        GroupKind::Coscheduling => None,
        GroupKind::Godel => Some(GODEL_TIMEOUT),
    };
    // Coscheduling and Gödel treat 0 as absent.
    let Some(seconds) = seconds.filter(|seconds| *seconds != 0) else { return Ok(default) };
    let read = u64::try_from(seconds).ok().map(Duration::from_secs).ok_or_else(|| {
        let path = path.key("spec");
        let path = path.key("scheduleTimeoutSeconds");
        ReadError::value(&path, &seconds.to_string(), "seconds, 0 or more")
    });
    read.map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{object, pod};
    use portolan::model::{Object, PodGroup, PodGroupPhase};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    fn group(version: &str, spec: Value) -> Result<Arc<PodGroup>, String> {
        let value = json!({
            "apiVersion": version, "kind": "PodGroup", "spec": spec,
            "metadata": { "name": "g", "namespace": "n", "creationTimestamp": "1970-01-01T00:00:07Z" },
        });
        match object("PodGroup", &value) {
            Ok(Object::PodGroup(group)) => Ok(group),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn size_and_timeout(version: &str, spec: Value) -> (u32, Option<u64>) {
        let group = group(version, spec).unwrap();
        (group.min_members, group.schedule_timeout.map(|timeout| timeout.as_secs()))
    }

    #[test]
    fn groups_of_each_kind_have_a_size_and_a_timeout() {
        let kubernetes = "scheduling.k8s.io/v1alpha2";
        let gang = json!({ "schedulingPolicy": { "gang": { "minCount": 4 } } });
        assert_eq!(size_and_timeout(kubernetes, gang), (4, None));
        let basic = json!({ "schedulingPolicy": { "basic": {} } });
        assert_eq!(size_and_timeout(kubernetes, basic), (0, None));
        let both = json!({ "minMember": 3, "scheduleTimeoutSeconds": 10 });
        assert_eq!(size_and_timeout("scheduling.x-k8s.io/v1alpha1", both.clone()), (3, Some(10)));
        assert_eq!(size_and_timeout("scheduling.godel.kubewharf.io/v1alpha1", both), (3, Some(10)));
        let bare = json!({ "minMember": 3 });
        assert_eq!(size_and_timeout("scheduling.x-k8s.io/v1alpha1", bare.clone()), (3, None));
        assert_eq!(
            size_and_timeout("scheduling.godel.kubewharf.io/v1alpha1", bare),
            (3, Some(300))
        );
    }

    #[test]
    fn a_group_has_its_creation_time() {
        let group = group("scheduling.x-k8s.io/v1alpha1", json!({})).unwrap();
        assert_eq!(group.creation_time.map(|at| at.0), Some(7_000_000_000));
        assert_eq!((&*group.namespace, &*group.name, group.min_members), ("n", "g", 0));
        assert_eq!(group.schedule_timeout, None::<Duration>);
    }

    #[test]
    fn the_phase_of_a_group_depends_on_its_kind() {
        let phase_in = |version: &str, status: Value| {
            let value = json!({
                "apiVersion": version, "kind": "PodGroup", "metadata": { "name": "g" },
                "status": status,
            });
            match object("PodGroup", &value) {
                Ok(Object::PodGroup(group)) => group.phase,
                other => panic!("{other:?}"),
            }
        };
        let godel = "scheduling.godel.kubewharf.io/v1alpha1";
        let phase_of = |phase: &str| phase_in(godel, json!({ "phase": phase }));
        assert_eq!((phase_of(""), phase_in(godel, Value::Null)), (None, None));
        assert_eq!(phase_of("Scheduled"), Some(PodGroupPhase::Scheduled));
        assert_eq!(phase_of("Timeout"), Some(PodGroupPhase::Timeout));
        assert_eq!(phase_of("of its own"), Some(PodGroupPhase::Unknown));
        let scheduling = phase_in("scheduling.x-k8s.io/v1alpha1", json!({ "phase": "Scheduling" }));
        assert_eq!(scheduling, Some(PodGroupPhase::PreScheduling));
        let kubernetes = phase_in("scheduling.k8s.io/v1alpha2", json!({ "phase": "Scheduled" }));
        assert_eq!(kubernetes, None, "the kind has no phase");
    }

    #[test]
    fn an_invalid_number_is_refused_with_its_path() {
        let gang = json!({ "schedulingPolicy": { "gang": { "minCount": 0 } } });
        let error = group("scheduling.k8s.io/v1alpha2", gang).unwrap_err();
        assert!(error.contains("spec.schedulingPolicy.gang.minCount"), "{error}");
        let error = group("scheduling.x-k8s.io/v1alpha1", json!({ "minMember": -1 })).unwrap_err();
        assert!(error.contains("spec.minMember"), "{error}");
        let spec = json!({ "scheduleTimeoutSeconds": -1 });
        let error = group("scheduling.x-k8s.io/v1alpha1", spec).unwrap_err();
        assert!(error.contains("spec.scheduleTimeoutSeconds"), "{error}");
    }

    #[test]
    fn a_pod_names_its_group_by_field_label_or_annotation() {
        let group_of = |metadata: Value, spec: Value| {
            let pod = pod(&json!({ "metadata": metadata, "spec": spec })).unwrap();
            pod.template.scheduling_group.as_deref().map(str::to_owned)
        };
        let field = json!({ "schedulingGroup": { "podGroupName": "field" } });
        let label = json!({ "scheduling.x-k8s.io/pod-group": "label" });
        let old = json!({ "pod-group.scheduling.sigs.k8s.io": "old" });
        let annotation = json!({
            "godel.bytedance.com/pod-group-name": "annotation", "other": "x"
        });
        let all = json!({ "name": "p", "labels": label, "annotations": annotation });
        assert_eq!(group_of(all.clone(), field).as_deref(), Some("field"));
        assert_eq!(group_of(all, json!({})).as_deref(), Some("label"));
        let of_meta =
            |key: &str, value: &Value| group_of(json!({ "name": "p", key: value }), json!({}));
        assert_eq!(of_meta("labels", &old).as_deref(), Some("old"));
        assert_eq!(of_meta("annotations", &annotation).as_deref(), Some("annotation"));
        assert_eq!(of_meta("annotations", &Value::Null), None);
    }
}
