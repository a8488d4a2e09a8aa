//! Evictions, as the API server receives them.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portolan::cache::Event;
use portolan::model::{Pod, PodBuilder, Timestamp, node, pod};
use portolan::plugin::{Eviction, Handle, ShardSet};
use portolan::{Evictor, Schedulers};
use serde_json::{Value, json};

use super::testing::{Answer, Seen, World, normalized, ok, refused, until};
use super::{ApiEvictor, ShardGate, WriteOptions};

fn web(name: &str) -> Pod {
    let uid = format!("uid-{name}");
    Pod { resource_version: 7, ..pod(name).namespace("shop").uid(uid).build() }
}

/// Evicts the victims for the pod `high` on node n1.
fn evict(world: &World, victims: &[&str], cleared: &[&str]) {
    let (ended, end) = channel();
    let victims = victims.iter().map(|name| web(name).on("n1")).collect();
    let lower = |name: &&str| Pod { nominated_node_name: Some("n1".into()), ..web(name) };
    let cleared: Vec<Pod> = cleared.iter().map(lower).collect();
    cleared.iter().for_each(|pod| world.add(pod));
    let eviction =
        Eviction::new(&Handle::default(), web("high"), "n1".into(), victims, move || {
            ended.send(()).expect("the test waits");
        });
    let eviction = eviction.clearing(cleared);
    let evictor = world.writes.evictor();
    evictor.evict(eviction);
    // Before the last victim is evicted, when the eviction has its slot.
    end.recv_timeout(Duration::from_secs(20)).expect("the preemptor may be queued");
    until(|| evictor.is_idle());
}

fn victim(seen: &Seen) -> Answer {
    let name = seen.path.rsplit('/').next().expect("a name");
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    Answer::Json(
        200,
        json!({
            "metadata": {"uid": format!("uid-{name}"), "generation": 3},
            "spec": {"nodeName": "n1"},
            "status": {"conditions": [condition("Ready"), condition("PodScheduled")]},
        }),
    )
}

fn answers(seen: &Seen) -> Answer {
    if seen.method == "GET" { victim(seen) } else { ok() }
}

fn steps(world: &World) -> Vec<String> {
    let short = |line: String| line.replace("/api/v1/namespaces/shop/pods/", "");
    world.lines().into_iter().map(short).filter(|line| !line.starts_with("POST")).collect()
}

#[test]
fn a_victim_gets_its_condition_is_deleted_and_reported() {
    let world = World::new(|seen, _| answers(seen));
    evict(&world, &["low"], &[]);
    let seen = world.wait(4);
    assert_eq!(steps(&world), ["GET low", "PATCH low/status", "DELETE low"]);
    let expected = json!({
        "metadata": {"uid": "uid-low"},
        "status": {
            "$setElementOrder/conditions":
                [{"type": "Ready"}, {"type": "PodScheduled"}, {"type": "DisruptionTarget"}],
            "conditions": [{
                "lastProbeTime": null, "lastTransitionTime": "<time>",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
                "observedGeneration": 3, "reason": "PreemptionByScheduler", "status": "True",
                "type": "DisruptionTarget",
            }],
        },
    });
    assert_eq!(normalized(seen[1].body.clone()), expected);
    let expected = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "uid-low"},
    });
    assert_eq!(seen[2].body, expected);
    let event = &seen[3].body;
    assert_eq!(event["reason"], "Preempted");
    assert_eq!(event["action"], "Preempting");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["regarding"]["name"], "low");
    assert_eq!(event["note"], "Preempted by pod uid-high on node n1");
    assert_eq!(event["related"], Value::Null);
}

#[test]
fn nominations_are_cleared_first_and_the_last_victim_comes_last() {
    let world = World::new(|seen, _| answers(seen));
    evict(&world, &["a", "b"], &["nominated"]);
    let expected = [
        "PATCH nominated/status",
        "GET a",
        "PATCH a/status",
        "DELETE a",
        "GET b",
        "PATCH b/status",
        "DELETE b",
    ];
    assert_eq!(steps(&world), expected);
    let cleared =
        json!({"metadata": {"uid": "uid-nominated"}, "status": {"nominatedNodeName": null}});
    assert_eq!(world.seen()[0].body, cleared);
}

/// Begins the eviction of the victims for the pod `high`, and returns a receiver of the moment at which it is ungated.
fn begin(evictor: &ApiEvictor, victims: &[&str]) -> Receiver<()> {
    let (ended, end) = channel();
    let victims = victims.iter().map(|name| web(name).on("n1")).collect();
    let end_gate = move || ended.send(()).expect("the test waits");
    let handle = Handle::default();
    evictor.evict(Eviction::new(&handle, web("high"), "n1".into(), victims, end_gate));
    end
}

fn clock() -> Timestamp {
    Timestamp::from_secs(1)
}

#[test]
fn the_preemptor_is_ungated_once_the_queue_has_processed_waiting_events() {
    let world = World::new(|seen, _| answers(seen));
    let schedulers = Schedulers::builder().build().expect("valid");
    let queue = schedulers.queue();
    let evictor = world.writes.evictor();
    evictor.set_queue(queue, clock);
    let event = Event::put_pending(web("waiting"));
    drop(schedulers.engine().submit(event).expect("open"));
    let is_queued = || queue.with(|queue, _| queue.get(&web("waiting").uid).is_some());
    assert!(!is_queued());
    let end = queue.with(|_, _| {
        let end = begin(&evictor, &["a", "b"]);
        world.wait_for(|seen| seen.iter().any(|seen| seen.is("PATCH", "/b/status")));
        let early = end.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "ungated while another thread held the queue");
        end
    });
    end.recv_timeout(Duration::from_secs(20)).expect("ungated");
    assert!(is_queued());
    until(|| evictor.is_idle());
    assert_eq!(steps(&world).last().expect("steps"), "DELETE b");
}

#[test]
fn a_queue_that_was_dropped_stops_no_eviction() {
    let world = World::new(|seen, _| answers(seen));
    let evictor = world.writes.evictor();
    let schedulers = Schedulers::builder().build().expect("valid");
    let queue = Arc::downgrade(schedulers.queue());
    evictor.set_queue(schedulers.queue(), clock);
    drop(schedulers);
    assert!(queue.upgrade().is_none(), "the evictor keeps the queue alive");
    begin(&evictor, &["a", "b"]).recv_timeout(Duration::from_secs(20)).expect("ungated");
    until(|| evictor.is_idle());
    assert_eq!(steps(&world).last().expect("steps"), "DELETE b");
}

#[test]
fn the_first_queue_counts_for_all_clones_of_an_evictor() {
    let world = World::new(|seen, _| answers(seen));
    let evictor = world.writes.evictor();
    let [first, second] = [(); 2].map(|()| Schedulers::builder().build().expect("valid"));
    evictor.clone().set_queue(first.queue(), clock);
    evictor.set_queue(second.queue(), clock);
    for schedulers in [&first, &second] {
        drop(schedulers.engine().submit(Event::put_pending(web("waiting"))).expect("open"));
    }
    begin(&evictor, &["b"]).recv_timeout(Duration::from_secs(20)).expect("ungated");
    let is_queued = |schedulers: &Schedulers| {
        schedulers.queue().with(|queue, _| queue.get(&web("waiting").uid).is_some())
    };
    assert!(is_queued(&first) && !is_queued(&second));
}

#[test]
fn a_victim_that_is_gone_is_evicted() {
    let gone = refused(404, "pods \"a\" not found");
    let other = Answer::Json(200, json!({"metadata": {"uid": "another"}}));
    for (method, answer) in [
        ("GET", gone.clone()),
        ("GET", other.clone()),
        ("PATCH", gone.clone()),
        ("PATCH", refused(422, "Pod \"a\" is invalid: metadata.uid: field is immutable")),
        ("DELETE", gone),
        ("DELETE", refused(409, "Precondition failed")),
    ] {
        let fails = move |seen: &Seen| seen.method == method && seen.path.contains("/pods/a");
        let is_replaced = matches!(answer, Answer::Json(409, _));
        let script = {
            let (answer, other) = (answer.clone(), other.clone());
            move |seen: &Seen, n| match seen {
                _ if fails(seen) => answer.clone(),
                _ if is_replaced && n > 0 && seen.is("GET", "/a") => other.clone(),
                _ => answers(seen),
            }
        };
        let world = World::new(script);
        evict(&world, &["a", "b"], &[]);
        let seen = world.wait_for(|seen| seen.iter().any(|seen| seen.method == "POST"));
        assert!(steps(&world).contains(&"DELETE b".to_owned()), "{method}: {:?}", steps(&world));
        // There is no event for a.
        let events: Vec<_> = seen.iter().filter(|seen| seen.method == "POST").collect();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].body["regarding"]["name"], "b");
    }
}

#[test]
fn a_conflict_over_a_victim_that_still_exists_is_an_error() {
    for method in ["PATCH", "DELETE"] {
        let world = World::new(move |seen, _| match () {
            () if seen.method == method && seen.path.contains("/pods/a") => {
                refused(409, "the object has been modified")
            }
            () => answers(seen),
        });
        evict(&world, &["a", "b"], &[]);
        assert!(!steps(&world).contains(&"DELETE b".to_owned()), "{method}: {:?}", steps(&world));
    }
}

#[test]
fn an_error_spares_the_last_victim_and_ends_the_eviction() {
    let world = World::new(|seen, _| match () {
        () if seen.is("DELETE", "/a") => refused(500, "etcd"),
        () => answers(seen),
    });
    evict(&world, &["a", "b", "c"], &[]);
    // Victims are evicted at once, so their requests come in any order.
    let mut steps = steps(&world);
    steps.sort();
    // The failed deletion may have been done, so its victim is read.
    let expected =
        ["DELETE a", "DELETE b", "GET a", "GET a", "GET b", "PATCH a/status", "PATCH b/status"];
    assert_eq!(steps, expected);
}

#[test]
fn a_victim_that_cannot_be_read_after_its_deletion_ends_the_eviction() {
    let world = World::new(|seen, n| match () {
        () if seen.is("DELETE", "/a") => refused(500, "etcd"),
        () if seen.is("GET", "/a") && n > 0 => refused(403, "forbidden"),
        () => answers(seen),
    });
    evict(&world, &["a"], &[]);
    assert_eq!(steps(&world), ["GET a", "PATCH a/status", "DELETE a", "GET a"]);
}

#[test]
fn a_victim_is_read_until_the_outcome_of_its_deletion_is_known() {
    let terminating = |seen: &Seen| {
        let Answer::Json(code, mut pod) = victim(seen) else { unreachable!("an object") };
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        Answer::Json(code, pod)
    };
    for is_gone in [false, true] {
        let world = World::new(move |seen, n| match () {
            () if seen.is("DELETE", "/a") => refused(504, "etcd: timed out"),
            () if seen.is("GET", "/a") => match n {
                0 => victim(seen),
                1 => refused(500, "etcd"),
                _ if is_gone => refused(404, "pods \"a\" not found"),
                _ => terminating(seen),
            },
            () => answers(seen),
        });
        evict(&world, &["a"], &[]);
        let expected = ["GET a", "PATCH a/status", "DELETE a", "GET a", "GET a"];
        assert_eq!(steps(&world), expected);
        let is_event = |seen: &Seen| seen.method == "POST";
        match is_gone {
            false => drop(world.wait_for(|seen| seen.iter().any(is_event))),
            true => assert!(!world.lines().iter().any(|line| line.starts_with("POST"))),
        }
    }
}

#[test]
fn a_victim_gets_the_condition_unless_it_has_it() {
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": message,
    });
    for (conditions, expected) in [
        (json!([condition]), &["GET a", "DELETE a"][..]),
        (Value::Null, &["GET a", "PATCH a/status", "DELETE a"][..]),
    ] {
        let found = json!({"metadata": {"uid": "uid-a"}, "status": {"conditions": conditions}});
        let world = World::new(move |seen, _| match &*seen.method {
            "GET" => Answer::Json(200, found.clone()),
            _ => ok(),
        });
        evict(&world, &["a"], &[]);
        assert_eq!(steps(&world), expected);
        let seen = world.seen();
        for patch in seen.iter().filter(|seen| seen.method == "PATCH") {
            let status = &patch.body["status"];
            assert_eq!(status["$setElementOrder/conditions"], Value::Null, "its first one");
            assert_eq!(status["conditions"][0]["type"], "DisruptionTarget");
        }
    }
}

#[test]
fn a_preemptor_is_nominated_to_a_node_of_another_replica_once_its_victims_are_deleted() {
    for is_held in [false, true] {
        let gate = ShardGate::new(ShardSet::new(NonZeroU32::MIN).expect("few"));
        if is_held {
            gate.begin(0, HashSet::new());
        }
        let options = WriteOptions { gate: Some(gate), ..WriteOptions::default() };
        let world = World::with(|seen, _| answers(seen), options, Duration::from_secs(20));
        world.add(&web("high"));
        evict(&world, &["a"], &[]);
        let mut expected = vec!["GET a", "PATCH a/status", "DELETE a"];
        if !is_held {
            expected.push("PATCH high/status");
        }
        assert_eq!(steps(&world), expected);
        // It is not handed over again at once.
        evict(&world, &["b"], &[]);
        expected.extend(["GET b", "PATCH b/status", "DELETE b"]);
        assert_eq!(steps(&world), expected);
    }
}

#[test]
fn a_preemptor_is_not_nominated_to_a_node_of_another_replica_if_a_victim_stays() {
    let gate = ShardGate::new(ShardSet::new(NonZeroU32::MIN).expect("few"));
    let options = WriteOptions { gate: Some(gate), ..WriteOptions::default() };
    let script = |seen: &Seen, _| match seen.method.as_str() {
        "DELETE" => refused(500, "etcd"),
        _ => answers(seen),
    };
    let world = World::with(script, options, Duration::from_secs(20));
    world.add(&web("high"));
    evict(&world, &["a"], &[]);
    assert_eq!(steps(&world), ["GET a", "PATCH a/status", "DELETE a", "GET a"]);
}

#[test]
fn nothing_is_deleted_while_the_fence_is_closed() {
    let world = World::new(|seen, _| answers(seen));
    world.fence.close();
    evict(&world, &["a"], &[]);
    assert_eq!(steps(&world), ["GET a"]);
}

#[test]
fn a_victim_counts_as_terminating_once_its_deletion_was_accepted() {
    let gone = refused(404, "not found");
    for (answer, counts) in [(ok(), true), (gone, true), (refused(403, "no"), false)] {
        // The deletion of b fails, and with it the eviction.
        let world = World::new(move |seen, _| match () {
            () if seen.is("DELETE", "/a") => answer.clone(),
            () if seen.is("DELETE", "/b") => refused(403, "no"),
            () => answers(seen),
        });
        let (handle, evictor) = (Handle::default(), world.writes.evictor());
        let eviction = |victims: &[&str]| {
            let victims = victims.iter().map(|name| web(name).on("n1")).collect();
            Eviction::new(&handle, web("high"), "n1".into(), victims, || {})
        };
        evictor.evict(eviction(&["a", "b", "c"]));
        until(|| evictor.is_idle());
        let is_left_alone = |name: &str| eviction(&[name]).begin().is_none();
        assert_eq!(["a", "b", "c"].map(is_left_alone), [counts, false, false]);
    }
}

#[test]
fn evictions_beyond_the_limit_wait() {
    let (world, permits) = World::held(WriteOptions::default(), |seen| seen.method == "GET");
    let evictor = world.writes.evictor();
    let names: Vec<String> = (0..=ApiEvictor::AT_ONCE).map(|n| format!("v{n}")).collect();
    let ends: Vec<_> = names.iter().map(|name| begin(&evictor, &[name])).collect();
    world.wait(ApiEvictor::AT_ONCE);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(world.seen().len(), ApiEvictor::AT_ONCE);
    permits.add_permits(names.len());
    until(|| evictor.is_idle());
    drop(ends);
}

#[test]
fn the_victims_of_an_eviction_are_evicted_at_once() {
    let (world, permits) = World::held(WriteOptions::default(), |seen| seen.method == "GET");
    let evictor = world.writes.evictor();
    let end = begin(&evictor, &["a", "b", "c"]);
    // The last one waits for the others.
    let mut steps: Vec<String> = world.wait(2).iter().map(Seen::line).collect();
    steps.sort();
    assert!(steps[0].ends_with("/a") && steps[1].ends_with("/b"), "{steps:?}");
    permits.add_permits(9);
    until(|| evictor.is_idle());
    drop(end);
}

#[test]
fn the_last_victim_is_not_deleted_if_it_is_gone() {
    let world = World::new(|_, _| refused(404, "not found"));
    evict(&world, &["a"], &[]);
    assert_eq!(steps(&world), ["GET a"]);
}

#[test]
fn a_preemptor_is_retried_if_a_victim_was_gone_and_waits_for_its_deletion_otherwise() {
    for is_gone in [false, true] {
        let world = World::new(move |seen, _| match () {
            () if is_gone && seen.is("GET", "/low") => refused(404, "not found"),
            () => answers(seen),
        });
        let (evictor, own) = (world.writes.evictor(), world.writes.evictor());
        let schedulers = Schedulers::builder().evictor(move |_| own).build().expect("valid");
        let mut scheduling = schedulers.scheduling_loop().expect("a loop");
        let submit = |event| {
            let ticket = schedulers.engine().submit(event).expect("open");
            drop(ticket.wait().expect("open").expect("valid"));
        };
        let web = |name: &str| -> PodBuilder {
            pod(name).namespace("shop").uid(format!("uid-{name}")).cpu(800)
        };
        submit(Event::add_node(node("n1").cpu(1_000).memory(1 << 30).build()));
        submit(Event::add_pod(web("low").priority(1).on("n1").build()));
        submit(Event::put_pending(web("high").priority(9).build()));
        let mut attempt = |seconds| {
            let now = Timestamp::from_secs(seconds);
            schedulers.queue().tend(|| now);
            scheduling.schedule_one(Some(Instant::now()), || now).is_ok()
        };
        assert!(attempt(1));
        until(|| evictor.is_idle());
        // The eviction is dropped a moment later.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(attempt(60), is_gone);
    }
}
