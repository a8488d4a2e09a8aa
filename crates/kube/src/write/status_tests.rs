//! Reports of failures, as the API server receives them.

use std::sync::Arc;
use std::time::Instant;

use portolan::Binder;
use portolan::model::{Pod, pod};
use portolan::plugin::Nomination;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::failure::{FailureReport, Reason};
use super::testing::{Answer, Seen, World, normalized, ok, refused, until};
use super::{StatusLimits, WriteOptions};
use crate::mirror::{Condition, PendingStatus};
use crate::testing;

fn web(number: u32) -> Pod {
    let uid = format!("u-{number}");
    let pod = pod(format!("web-{number}")).namespace("shop").uid(uid).build();
    Pod { resource_version: 7, ..pod }
}

fn unschedulable(message: &str) -> FailureReport {
    FailureReport::new(Reason::Unschedulable, message, Nomination::Keep)
}

fn patches(seen: &[Seen]) -> Vec<Value> {
    let patches = seen.iter().filter(|seen| seen.is("PATCH", "/status"));
    patches.map(|seen| normalized(seen.body.clone())).collect()
}

fn condition(message: &str) -> Value {
    json!({
        "lastProbeTime": null, "lastTransitionTime": "<time>", "message": message,
        "observedGeneration": 1, "reason": "Unschedulable", "status": "False",
        "type": "PodScheduled",
    })
}

/// The answer to a patch: the pod with its new status.
fn patched(message: &str, version: u32) -> Answer {
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": "2026-11-22T18:57:01Z", "observedGeneration": 1,
    });
    let metadata = json!({"uid": "u-0", "resourceVersion": version.to_string()});
    Answer::Json(200, json!({"metadata": metadata, "status": {"conditions": [condition]}}))
}

#[test]
fn a_failure_is_an_event_and_a_condition() {
    let world = World::new(|_, _| ok());
    world.add(&web(0));
    world.writes.status().report_failure(&web(0), unschedulable("0/3 nodes are available."));
    let seen = world.wait(2);
    let event = seen.iter().find(|seen| seen.method == "POST").expect("an event");
    assert_eq!(event.body["reason"], "FailedScheduling");
    assert_eq!(event.body["type"], "Warning");
    assert_eq!(event.body["action"], "Scheduling");
    assert_eq!(event.body["note"], "0/3 nodes are available.");
    let patch = seen.iter().find(|seen| seen.method == "PATCH").expect("a patch");
    assert_eq!(patch.line(), "PATCH /api/v1/namespaces/shop/pods/web-0/status");
    assert_eq!(patch.format, "application/strategic-merge-patch+json");
    let expected = json!({
        "metadata": {"uid": "u-0"},
        "status": {"conditions": [condition("0/3 nodes are available.")]},
    });
    assert_eq!(normalized(patch.body.clone()), expected);
}

#[test]
fn a_long_message_is_cut_in_the_event_and_not_in_the_condition() {
    let world = World::new(|_, _| ok());
    world.add(&web(0));
    let message = "a".repeat(3_000);
    world.writes.status().report_failure(&web(0), unschedulable(&message));
    let seen = world.wait(2);
    let event = seen.iter().find(|seen| seen.method == "POST").expect("an event");
    assert_eq!(event.body["note"].as_str().map(str::len), Some(1_024));
    assert_eq!(patches(&seen)[0]["status"]["conditions"][0]["message"], message);
}

#[test]
fn only_changed_fields_of_a_known_condition_are_written() {
    let world = World::new(|_, _| ok());
    world.add(&web(0));
    let known = PendingStatus {
        nominated: Some("n1".into()),
        scheduled: Some(Condition {
            last_transition_time: Some("2026-11-22T18:57:01Z".into()),
            observed_generation: Some(1),
            ..testing::unschedulable("False", "no")
        }),
    };
    world.edit(&web(0), |pod| pod.pending = Some(Box::new(known)));
    let failure = FailureReport::new(Reason::SchedulerError, "broken", Nomination::Clear);
    world.writes.status().report_failure(&web(0), failure);
    let seen = world.wait(2);
    let expected = json!({
        "metadata": {"uid": "u-0"},
        "status": {
            "$setElementOrder/conditions": [{"type": "PodScheduled"}],
            "conditions": [{"message": "broken", "reason": "SchedulerError", "type": "PodScheduled"}],
            "nominatedNodeName": null,
        },
    });
    assert_eq!(patches(&seen), [expected]);
}

#[test]
fn a_status_that_the_pod_has_is_not_written_again() {
    let world = World::new(|seen, _| match &*seen.method {
        "PATCH" => patched("no", 8),
        _ => ok(),
    });
    world.add(&web(0));
    let status = world.writes.status();
    status.report_failure(&web(0), unschedulable("no"));
    world.wait(2);
    // The mirror shows version 7 still, but the answer showed version 8. A nomination alone is written alone.
    until(|| status.figures().sent == 1);
    status.report_failure(&web(0), unschedulable("no"));
    until(|| status.figures().unchanged == 1);
    let nominated = FailureReport::new(Reason::Unschedulable, "no", Nomination::Node("n1".into()));
    status.report_failure(&web(0), nominated);
    let seen = world.wait_for(|seen| patches(seen).len() == 2);
    assert_eq!(patches(&seen)[1]["status"], json!({"nominatedNodeName": "n1"}));
}

#[test]
fn pods_that_are_gone_or_have_a_node_are_not_patched() {
    let world = World::new(|_, _| ok());
    world.add(&web(1));
    world.edit(&web(1), |pod| (pod.node, pod.pending) = (Some("n1".into()), None));
    let status = world.writes.status();
    status.report_failure(&web(0), unschedulable("gone"));
    status.report_failure(&web(1), unschedulable("bound"));
    until(|| status.figures().unchanged == 2);
    // The events are recorded nevertheless, as by kube-scheduler.
    let seen = world.wait(2);
    assert!(patches(&seen).is_empty());
}

#[test]
fn failures_that_may_pass_are_retried_and_others_are_not() {
    for codes in [[409, 500, 503], [429, 502, 504]] {
        let world = World::new(move |seen, n| match &*seen.method {
            "PATCH" if n < 3 => refused(codes[n], "etcd"),
            _ => ok(),
        });
        world.add(&web(0));
        world.writes.status().report_failure(&web(0), unschedulable("no"));
        world.wait_for(|seen| patches(seen).len() == 4);
    }

    let world = World::new(|seen, _| match &*seen.method {
        "PATCH" => refused(422, "invalid"),
        _ => ok(),
    });
    world.add(&web(0));
    let status = world.writes.status();
    status.report_failure(&web(0), unschedulable("no"));
    until(|| status.figures().failed == 1);
    assert_eq!(patches(&world.seen()).len(), 1);
}

/// A world in which patches wait for permits.
fn held_up(status_limits: StatusLimits) -> (World, Arc<Semaphore>) {
    let options = WriteOptions { status_limits, ..WriteOptions::default() };
    World::held(options, |seen| seen.is("PATCH", "/status"))
}

#[test]
fn a_newer_report_replaces_the_one_that_waits_and_further_pods_are_dropped() {
    let (world, permits) = held_up(StatusLimits { in_flight: 1, waiting: 1 });
    for number in 0..3 {
        world.add(&web(number));
    }
    let status = world.writes.status();
    status.report_failure(&web(0), unschedulable("first"));
    until(|| status.figures().waiting == 0);
    status.report_failure(&web(1), unschedulable("older"));
    status.report_failure(&web(1), unschedulable("newer"));
    status.report_failure(&web(2), unschedulable("dropped"));
    let figures = status.figures();
    assert_eq!((figures.replaced, figures.dropped, figures.waiting), (1, 1, 1));
    permits.add_permits(9);
    let seen = world.wait_for(|seen| patches(seen).len() == 2);
    assert_eq!(patches(&seen)[1]["status"]["conditions"], json!([condition("newer")]));
}

#[test]
fn a_binding_waits_for_the_status_in_flight_and_discards_the_one_that_waits() {
    let (world, permits) = held_up(StatusLimits::default());
    world.add(&web(0));
    let status = world.writes.status();
    status.report_failure(&web(0), unschedulable("in flight"));
    until(|| status.figures().waiting == 0);
    status.report_failure(&web(0), unschedulable("waits"));
    let is_binding = |seen: &Seen| seen.is("POST", "/binding");
    std::thread::scope(|scope| {
        let bound = scope.spawn(|| world.writes.binder().bind(&web(0), &"n1".into()));
        until(|| status.figures().waiting == 0);
        permits.add_permits(9);
        bound.join().expect("no panic").expect("bound");
    });
    let seen = world.seen();
    let at = |is: &dyn Fn(&Seen) -> bool| seen.iter().position(is).expect("sent");
    assert!(at(&|seen| seen.is("PATCH", "/status")) < at(&is_binding));
    assert_eq!(patches(&seen).len(), 1);
}

/// A world that writes one status at a time, and answers a patch of `web-1` only with a permit.
fn held_at_web_1() -> (World, Arc<Semaphore>) {
    let status_limits = StatusLimits { in_flight: 1, ..StatusLimits::default() };
    let options = WriteOptions { status_limits, ..WriteOptions::default() };
    World::held(options, |seen| seen.is("PATCH", "/web-1/status"))
}

#[test]
fn a_nomination_overrides_the_one_that_waits_and_keeps_its_condition() {
    let (world, permits) = held_at_web_1();
    world.add(&web(0));
    world.add(&web(1));
    let status = world.writes.status();
    status.report_failure(&web(1), unschedulable("in flight"));
    until(|| status.figures().waiting == 0);
    let older = FailureReport::new(Reason::Unschedulable, "waits", Nomination::Node("n1".into()));
    status.report_failure(&web(0), older);
    world.writes.binder().nominate(&web(0), &"n2".into()).expect("nominated");
    permits.add_permits(1);
    let seen = world.wait_for(|seen| patches(seen).len() == 3);
    let of_web = seen.iter().filter(|seen| seen.is("PATCH", "/web-0/status"));
    let statuses: Vec<Value> = of_web.map(|seen| normalized(seen.body["status"].clone())).collect();
    let nominated = json!({"nominatedNodeName": "n2"});
    assert_eq!(statuses, [nominated, json!({"conditions": [condition("waits")]})]);
}

#[test]
fn clearing_an_older_nomination_keeps_a_report_that_clears_any() {
    let (world, permits) = held_at_web_1();
    world.add(&Pod { nominated_node_name: Some("n2".into()), ..web(0) });
    world.add(&web(1));
    let status = world.writes.status();
    status.report_failure(&web(1), unschedulable("in flight"));
    until(|| status.figures().waiting == 0);
    let clears = FailureReport::new(Reason::Unschedulable, "waits", Nomination::Clear);
    status.report_failure(&web(0), clears);
    // A preemptor evicts pods from n1, to which the pod was nominated before.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let cleared = runtime.block_on(status.clear(&web(0), &"n1".into()));
    cleared.expect("the nomination to n2 stays");
    permits.add_permits(1);
    let seen = world.wait_for(|seen| patches(seen).len() == 2);
    let expected = json!({"conditions": [condition("waits")], "nominatedNodeName": null});
    assert_eq!(patches(&seen)[1]["status"], expected);
}

#[test]
fn nothing_is_written_after_the_deadline_of_the_fence() {
    let world = World::new(|_, _| ok());
    world.add(&web(0));
    world.fence.open_until(Instant::now());
    let status = world.writes.status();
    status.report_failure(&web(0), unschedulable("no"));
    until(|| status.figures().failed == 1);
    let bound = world.writes.binder().bind(&web(0), &"n1".into());
    assert_eq!(bound, Err("this scheduler does not hold its lease".into()));
    assert_eq!(world.seen(), []);
}
