//! Patches of pods' statuses.

use serde_json::{Value, json};

use super::pod;
use crate::script::{Script, uid, version};

/// The condition of a pod that was not placed, as a strategic merge patch.
fn unschedulable(uid: &str, message: &str) -> Value {
    json!({"metadata": {"uid": uid}, "status": {"conditions": [{
        "lastProbeTime": null, "lastTransitionTime": "2026-11-22T18:57:01Z", "message": message,
        "observedGeneration": 1, "reason": "Unschedulable", "status": "False", "type": "PodScheduled",
    }]}})
}

pub(super) fn run(to: &mut Script) {
    let pods = to.path("pods");
    let created = to.post(&pods, &pod("a"));
    let status = format!("{pods}/a/status");
    let first = unschedulable(uid(&created), "0/1 nodes are available");
    to.patch(&status, &first);
    to.get(&format!("{pods}/a"));
    // The same again: nothing changes, not even the version.
    let before = to.patch(&status, &first);
    let after = to.get(&format!("{pods}/a"));
    assert_eq!(version(&before), version(&after));
    // Another message, with the order of conditions, as kube-scheduler sends it.
    let change = json!({"metadata": {"uid": uid(&created)}, "status": {
        "$setElementOrder/conditions": [{"type": "PodScheduled"}],
        "conditions": [{"type": "PodScheduled", "message": "0/2 nodes are available"}],
    }});
    to.patch(&status, &change);
    // A second condition, in front of the first one and then behind it.
    for order in [["DisruptionTarget", "PodScheduled"], ["PodScheduled", "DisruptionTarget"]] {
        let order = order.map(|kind| json!({"type": kind}));
        let change = json!({"metadata": {"uid": uid(&created)}, "status": {
            "$setElementOrder/conditions": order,
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "preempting", "lastProbeTime": null, "lastTransitionTime": "2026-11-22T18:57:01Z",
                "observedGeneration": 1}],
        }});
        to.patch(&status, &change);
    }
    // An order that does not name a condition of the patch.
    let stray = json!({"status": {"$setElementOrder/conditions": [{"type": "PodScheduled"}],
        "conditions": [{"type": "Other", "status": "True"}]}});
    to.patch(&status, &stray);
    to.patch(&status, &json!({"status": {"conditions": [{"status": "True"}]}}));
    // Fields of a condition are removed by null.
    let without = json!({"status": {"conditions": [{"type": "PodScheduled", "message": null, "reason": null}]}});
    to.patch(&status, &without);

    // Nominations.
    let nominate = |node: Value| json!({"metadata": {"uid": uid(&created)}, "status": {"nominatedNodeName": node}});
    to.patch(&status, &nominate(json!("n1")));
    to.patch(&status, &nominate(json!("n2")));
    to.patch(&status, &nominate(Value::Null));
    to.patch(&status, &nominate(Value::Null));
    to.patch(&status, &nominate(json!("not a name")));

    // A patch of another pod.
    let other = "00000000-0000-0000-0000-000000000000";
    to.patch(&status, &unschedulable(other, "for another pod"));
    to.patch(&format!("{pods}/missing/status"), &unschedulable(uid(&created), "gone"));
    let mut stale = unschedulable(uid(&created), "stale");
    stale["metadata"]["resourceVersion"] = json!("1");
    to.patch(&status, &stale);
    // The status alone changes.
    let more = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
    to.patch(&status, &more);
    to.patch(&status, &json!({"metadata": {"name": "b"}, "status": {}}));
    to.merge(&status, &json!({"status": {"conditions": []}}));
    // Labels and annotations are not part of the specification.
    to.merge(
        &format!("{pods}/a"),
        &json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
    );
    to.merge(
        &format!("{pods}/a"),
        &json!({"spec": {"schedulingGates": [{"name": "example.com/late"}]}}),
    );

    // Gates that are removed one by one.
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] =
        json!([{"name": "example.com/a"}, {"name": "example.com/b"}]);
    to.post(&pods, &gated);
    let path = format!("{pods}/gated");
    to.merge(&path, &json!({"spec": {"schedulingGates": [{"name": "example.com/b"}]}}));
    to.patch(
        &path,
        &json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/b"}]}}),
    );
}
