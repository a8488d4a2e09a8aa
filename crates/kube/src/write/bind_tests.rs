//! Every answer to a binding.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portolan::cache::Event;
use portolan::model::{Name, Pod, Timestamp, node, pod};
use portolan::plugin::ShardSet;
use portolan::scheduler::BindError;
use portolan::{Binder, BinderError, Schedulers};
use serde_json::{Value, json};

use super::bind::{ApiBinder, Waits};
use super::testing::{Answer, Seen, World, normalized, ok, refused};
use super::{FailureReport, Fence, ShardGate, WriteOptions};

const BIND: &str = "POST /api/v1/namespaces/shop/pods/web-0/binding";
const READ: &str = "GET /api/v1/namespaces/shop/pods/web-0";
const EVENT: &str = "POST /apis/events.k8s.io/v1/namespaces/shop/events";

fn web() -> Pod {
    Pod { resource_version: 7, ..pod("web-0").namespace("shop").uid("u-1").build() }
}

fn found(uid: &str, node: Option<&str>) -> Answer {
    Answer::Json(200, json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}}))
}

fn binder(world: &World) -> ApiBinder {
    let waits = Waits {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(4),
        asked: Duration::from_millis(8),
    };
    ApiBinder { waits, ..world.writes.binder() }
}

fn bind(world: &World) -> Result<(), BinderError> {
    binder(world).bind(&web(), &Name::from("n1"))
}

/// Binds with these answers to bindings and reads; a later one gets the last answer again.
fn with(bindings: Vec<Answer>, reads: Vec<Answer>) -> (World, Result<(), BinderError>) {
    let is_silent = matches!(bindings[0], Answer::Silence);
    let script = move |seen: &Seen, n: usize| match seen {
        _ if seen.is("POST", "/binding") => bindings[n.min(bindings.len() - 1)].clone(),
        _ if seen.is("GET", "/web-0") => reads[n.min(reads.len() - 1)].clone(),
        _ => ok(),
    };
    let timeout = Duration::from_millis(if is_silent { 200 } else { 20_000 });
    let world = World::with(script, WriteOptions::default(), timeout);
    let bound = bind(&world);
    (world, bound)
}

fn conflict(error: &Result<(), BinderError>) -> bool {
    matches!(error, Err(BinderError::Conflict(_)))
}

#[test]
fn a_binding_is_posted_with_its_uid_and_recorded_as_an_event() {
    let (world, bound) = with(vec![ok()], vec![]);
    bound.expect("bound");
    let seen = world.wait(2);
    assert_eq!(world.lines(), [BIND, EVENT]);
    let expected = json!({
        "kind": "Binding", "apiVersion": "v1",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1"},
        "target": {"kind": "Node", "name": "n1"},
    });
    assert_eq!(seen[0].body, expected);
    let expected = json!({
        "kind": "Event", "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": "web-0.<n>", "namespace": "shop"},
        "eventTime": "<time>",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-<host>",
        "action": "Binding", "reason": "Scheduled",
        "regarding": {
            "kind": "Pod", "namespace": "shop", "name": "web-0", "uid": "u-1",
            "apiVersion": "v1", "resourceVersion": "<rv>",
        },
        "note": "Successfully assigned shop/web-0 to n1", "type": "Normal",
        "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
    });
    assert_eq!(seen[1].body["regarding"]["resourceVersion"], "7");
    assert_eq!(normalized(seen[1].body.clone()), expected);
}

#[test]
fn a_pod_that_is_on_our_node_already_is_bound() {
    let already = |node: &str| {
        let message = "Operation cannot be fulfilled on pods/binding \"web-0\": pod web-0 is";
        refused(409, &format!("{message} already assigned to node \"{node}\""))
    };
    let (world, bound) = with(vec![already("n1")], vec![]);
    assert_eq!(bound, Ok(()));
    assert_eq!(world.wait(2)[1].line(), EVENT);
    assert!(conflict(&with(vec![already("n11")], vec![]).1));
    assert!(conflict(&with(vec![already("n")], vec![]).1));
}

#[test]
fn a_pod_that_has_changed_or_is_gone_is_a_conflict() {
    let uid = "Precondition failed: UID in precondition: u-1, UID in object meta: u-2";
    for answer in [refused(409, uid), refused(404, "pods \"web-0\" not found")] {
        let (world, bound) = with(vec![answer], vec![]);
        assert!(conflict(&bound), "{bound:?}");
        assert_eq!(world.lines(), [BIND]);
    }
}

#[test]
fn a_refusal_fails_with_the_servers_text() {
    let why = "pods \"web-0\" is forbidden: unable to create new content in namespace shop because it is being \
               terminated";
    let (_, bound) = with(vec![refused(403, why)], vec![]);
    assert_eq!(bound, Err(BinderError::Failed(why.to_owned())));
}

#[test]
fn a_server_that_asks_to_wait_is_asked_again() {
    let (world, bound) = with(vec![Answer::Later(429, 0), Answer::Later(429, 0), ok()], vec![]);
    assert_eq!(bound, Ok(()));
    assert_eq!(world.lines()[..3], [BIND, BIND, BIND]);
}

#[test]
fn a_server_that_asks_for_a_long_wait_is_asked_again_sooner() {
    let forever = Answer::Later(429, u32::MAX);
    let (world, bound) =
        with(vec![forever.clone(), Answer::Broken], vec![forever, found("u-1", Some("n1"))]);
    assert_eq!(bound, Ok(()));
    assert_eq!(world.lines()[..4], [BIND, BIND, READ, READ]);
}

#[test]
fn an_unknown_outcome_is_settled_by_reading_the_pod() {
    for open in [refused(500, "etcd"), Answer::Later(504, 0), Answer::Silence, Answer::Broken] {
        let (world, bound) = with(vec![open.clone()], vec![found("u-1", Some("n1"))]);
        assert_eq!(bound, Ok(()), "{open:?}");
        assert_eq!(world.lines()[..2], [BIND, READ]);
        assert_eq!(world.wait(3)[2].line(), EVENT);
        let (_, bound) = with(vec![open.clone()], vec![found("u-1", Some("n2"))]);
        assert!(conflict(&bound), "{bound:?}");
        let (_, bound) = with(vec![open.clone()], vec![found("u-2", Some("n1"))]);
        assert!(conflict(&bound), "{bound:?}");
        let (_, bound) = with(vec![open], vec![refused(404, "gone")]);
        assert!(conflict(&bound), "{bound:?}");
    }
    let terminating =
        json!({"metadata": {"uid": "u-1", "deletionTimestamp": "2026-11-22T18:57:01Z"}});
    let (_, bound) = with(vec![refused(500, "etcd")], vec![Answer::Json(200, terminating)]);
    assert!(conflict(&bound), "{bound:?}");
}

#[test]
fn a_pod_without_a_node_is_bound_again_twice_and_then_fails() {
    let failing = vec![refused(500, "etcd"), Answer::Broken, ok()];
    let (world, bound) = with(failing, vec![found("u-1", None)]);
    assert_eq!(bound, Ok(()));
    assert_eq!(world.lines()[..5], [BIND, READ, BIND, READ, BIND]);

    let (world, bound) = with(vec![refused(500, "etcd")], vec![found("u-1", Some(""))]);
    assert_eq!(bound, Err(BinderError::Failed("etcd".to_owned())));
    assert_eq!(world.lines(), [BIND, READ, BIND, READ, BIND, READ]);
}

#[test]
fn a_pod_is_read_until_it_can_be_read() {
    let reads =
        vec![refused(500, "etcd"), Answer::Broken, refused(429, "busy"), found("u-1", Some("n1"))];
    let (world, bound) = with(vec![Answer::Broken], reads);
    assert_eq!(bound, Ok(()));
    assert_eq!(world.lines()[..5], [BIND, READ, READ, READ, READ]);
}

#[test]
fn a_shard_is_not_drained_while_a_binding_may_still_be_applied() {
    let shards = ShardSet::new(NonZeroU32::MIN).expect("few");
    let gate = ShardGate::new(shards);
    gate.set_doubt(Duration::from_secs(3_600));
    gate.begin(0, HashSet::new());
    let script = |seen: &Seen, n: usize| match seen {
        _ if seen.is("POST", "/binding") && n > 1 => Answer::Broken,
        _ if seen.is("POST", "/binding") => [ok(), refused(404, "gone")][n].clone(),
        _ => found("u-1", None),
    };
    let options = WriteOptions { gate: Some(gate.clone()), ..WriteOptions::default() };
    let world = World::with(script, options, Duration::from_secs(20));
    bind(&world).expect("bound");
    assert!(conflict(&bind(&world)) && gate.is_drained(0));
    assert!(matches!(bind(&world), Err(BinderError::Failed(_))));
    assert!(!gate.is_drained(0));
}

#[test]
fn a_binding_to_a_node_of_another_shard_is_refused_and_not_reported() {
    let shards = ShardSet::new(NonZeroU32::MIN).expect("few");
    let options = WriteOptions { gate: Some(ShardGate::new(shards)), ..WriteOptions::default() };
    let world = World::with(|_, _| ok(), options, Duration::from_secs(20));
    let binder = binder(&world);
    let evictor = world.writes.evictor();
    let builder = Schedulers::builder().binder(|_| binder).evictor(|_| evictor);
    let schedulers = builder.build().expect("valid");
    let submit = |event| drop(schedulers.engine().submit(event).expect("open"));
    submit(Event::add_node(node("n1").cpu(1_000).build()));
    submit(Event::put_pending(web()));
    let now = || Timestamp::from_secs(1);
    let mut scheduling = schedulers.scheduling_loop().expect("a loop");
    let attempt = scheduling.schedule_one(None, now).expect("a pod");
    let (placed, _) = attempt.into_parts();
    let (error, _) = scheduling.bind(&placed[0], now).expect_err("the shard is not held");
    assert!(matches!(error, BindError::Refused(_)), "{error:?}");
    assert_eq!(FailureReport::of_bind(&error), None);
    assert_eq!(world.seen(), []);
}

#[test]
fn an_outcome_that_is_unknown_when_the_fence_closes_stays_unknown() {
    let script = |seen: &Seen, _| match seen.method.as_str() {
        "POST" => Answer::Broken,
        _ => refused(500, "etcd"),
    };
    let world = World::new(script);
    let bound = std::thread::scope(|scope| {
        let binding = scope.spawn(|| bind(&world));
        world.wait_for(|seen| seen.iter().filter(|seen| seen.method == "GET").count() >= 3);
        world.fence.close();
        binding.join().expect("no panic")
    });
    assert!(matches!(bound, Err(BinderError::Unknown(_))), "{bound:?}");
}

#[test]
fn a_pod_that_was_found_without_a_node_is_given_up_when_the_lease_is_lost() {
    let fence: Arc<OnceLock<Fence>> = Arc::default();
    let closed = fence.clone();
    let world = World::new(move |seen, _| {
        if seen.method == "POST" {
            return Answer::Broken;
        }
        closed.get().expect("set").close();
        found("u-1", None)
    });
    fence.set(world.fence.clone()).expect("set once");
    let bound = bind(&world);
    assert!(matches!(bound, Err(BinderError::Failed(_))), "{bound:?}");
    assert_eq!(world.lines(), [BIND, READ]);
}

#[test]
fn nothing_is_sent_while_the_fence_is_closed() {
    let world = World::new(|_, _| ok());
    world.fence.close();
    assert!(matches!(bind(&world), Err(BinderError::Failed(_))));
    assert_eq!(world.seen(), []);
}

#[test]
fn a_binding_that_could_not_be_sent_is_not_in_doubt() {
    let world = World::unreachable();
    let day = Duration::from_secs(86_400);
    let binder =
        ApiBinder { waits: Waits { first: day, longest: day, asked: day }, ..binder(&world) };
    let bound = std::thread::scope(|scope| {
        let binding = scope.spawn(|| binder.bind(&web(), &Name::from("n1")));
        // The connection is refused at once. While it is being made, the outcome would be unknown.
        std::thread::sleep(Duration::from_secs(1));
        world.fence.close();
        binding.join().expect("no panic")
    });
    assert!(matches!(bound, Err(BinderError::Failed(_))), "{bound:?}");
}

#[test]
fn a_nomination_is_patched_once_and_is_not_critical() {
    let answer = |nominated: Value| {
        let metadata = json!({"uid": "u-1", "resourceVersion": "8"});
        Answer::Json(200, json!({"metadata": metadata, "status": {"nominatedNodeName": nominated}}))
    };
    let world = World::new(move |_, _| answer("n1".into()));
    world.add(&web());
    let binder = binder(&world);
    binder.nominate(&web(), &"n1".into()).expect("nominated");
    // The mirror does not show it yet, but the answer did.
    binder.nominate(&web(), &"n1".into()).expect("nothing to do");
    let seen = world.seen();
    assert_eq!(world.lines(), ["PATCH /api/v1/namespaces/shop/pods/web-0/status"]);
    assert_eq!(seen[0].format, "application/strategic-merge-patch+json");
    let expected = json!({"metadata": {"uid": "u-1"}, "status": {"nominatedNodeName": "n1"}});
    assert_eq!(seen[0].body, expected);

    let world = World::new(|_, _| refused(403, "no"));
    self::binder(&world).nominate(&web(), &"n1".into()).expect("not critical");
    let world = World::new(|_, _| refused(404, "gone"));
    let gone = self::binder(&world).nominate(&web(), &"n1".into());
    assert!(conflict(&gone), "{gone:?}");
}

#[test]
fn a_name_that_does_not_fit_in_a_path_fails_once() {
    let world = World::new(|_, _| ok());
    let pod = pod("web 0").namespace("shop").uid("u-1").build();
    let bound = binder(&world).bind(&pod, &Name::from("n1"));
    let Err(BinderError::Failed(why)) = bound else { panic!("{bound:?}") };
    assert!(why.contains("the request is invalid"), "{why}");
    assert_eq!(world.seen(), []);
}

#[test]
fn a_runtime_that_ends_leaves_the_outcome_of_a_binding_unknown() {
    let world = World::new(|_, _| Answer::Silence);
    let (binder, again) = (binder(&world), binder(&world));
    let binding = std::thread::spawn(move || binder.bind(&web(), &Name::from("n1")));
    world.wait(1);
    drop(world);
    let bound = binding.join().expect("no panic");
    assert!(matches!(bound, Err(BinderError::Unknown(_))), "{bound:?}");
    let bound = again.bind(&web(), &Name::from("n1"));
    assert!(matches!(bound, Err(BinderError::Failed(_))), "{bound:?}");
    let nominated = again.nominate(&web(), &Name::from("n1"));
    assert!(matches!(nominated, Err(BinderError::Failed(_))), "{nominated:?}");
}
