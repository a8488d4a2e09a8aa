//! Events, as the API server receives them.

use std::time::Duration;

use portolan::model::{Pod, pod};
use serde_json::json;

use super::testing::{Answer, Seen, World, normalized, ok, refused, until};
use super::{EventLimits, Occurrence, WriteOptions};

const EVENTS: &str = "POST /apis/events.k8s.io/v1/namespaces/shop/events";

fn web() -> Pod {
    Pod { resource_version: 7, ..pod("web-0").namespace("shop").uid("u-1").build() }
}

fn failed() -> Occurrence {
    Occurrence::failed_scheduling(&web(), "0/3 nodes are available.")
}

fn one_worker() -> WriteOptions {
    let event_limits = EventLimits {
        at_once: 1,
        at_once_when_idle: 1,
        retry: Duration::from_millis(1),
        ..EventLimits::default()
    };
    WriteOptions { event_limits, ..WriteOptions::default() }
}

fn world(script: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> World {
    World::with(script, one_worker(), Duration::from_secs(20))
}

#[test]
fn a_repeated_event_becomes_a_series_and_is_then_counted_silently() {
    let world = world(|_, _| ok());
    for _ in 0..5 {
        world.writes.events().record(failed());
    }
    world.writes.events().record(Occurrence::scheduled(&web(), &"n1".into()));
    let seen = world.wait(3);
    let name = seen[0].body["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("web-0."), "{name}");
    assert_eq!(seen[0].line(), EVENTS);
    let path = format!("PATCH /apis/events.k8s.io/v1/namespaces/shop/events/{name}");
    assert_eq!(seen[1].line(), path);
    assert_eq!(seen[1].format, "application/strategic-merge-patch+json");
    let series = json!({"series": {"count": 2, "lastObservedTime": "<time>"}});
    assert_eq!(normalized(seen[1].body.clone()), series);
    assert_eq!(seen[2].body["reason"], "Scheduled");
    let figures = world.writes.events().figures();
    assert_eq!((figures.counted, figures.dropped, figures.failed), (3, 0, 0));
    until(|| world.writes.events().open() == 0);
}

#[test]
fn a_series_whose_event_has_expired_is_created_with_its_count() {
    let world = world(|seen, _| match &*seen.method {
        "PATCH" => refused(404, "not found"),
        _ => ok(),
    });
    world.writes.events().record(failed());
    world.writes.events().record(failed());
    let seen = world.wait(3);
    assert_eq!(seen[2].line(), EVENTS);
    assert_eq!(seen[2].body["series"]["count"], 2);
    assert_eq!(seen[2].body["metadata"], seen[0].body["metadata"]);
    assert_eq!(seen[2].body["note"], "0/3 nodes are available.");
}

#[test]
fn an_event_that_does_not_arrive_is_sent_again_and_a_refused_one_is_dropped() {
    let answers = [Answer::Broken, Answer::Broken, Answer::Later(429, 0), ok()];
    let world = world(move |_, n| answers[n.min(3)].clone());
    world.writes.events().record(failed());
    let seen = world.wait(4);
    assert!(seen.iter().all(|other| other == &seen[0]));

    let world = self::world(|seen, _| match seen.body["reason"].as_str() {
        Some("FailedScheduling") => refused(403, "the namespace is being terminated"),
        _ => ok(),
    });
    world.writes.events().record(failed());
    world.writes.events().record(Occurrence::scheduled(&web(), &"n1".into()));
    let seen = world.wait(2);
    assert_eq!(seen[1].body["reason"], "Scheduled");
    until(|| world.writes.events().figures().failed == 1);
    assert_eq!(world.seen().len(), 2);
}

#[test]
fn an_event_is_tried_twelve_times_and_delays_no_other_one() {
    let world = world(|seen, _| match seen.body["reason"].as_str() {
        Some("FailedScheduling") => Answer::Broken,
        _ => ok(),
    });
    world.writes.events().record(failed());
    world.writes.events().record(Occurrence::scheduled(&web(), &"n1".into()));
    let seen = world.wait(13);
    let scheduled = seen.iter().position(|seen| seen.body["reason"] == "Scheduled").unwrap();
    assert!(scheduled < 12, "the other event waited for {scheduled} tries");
    until(|| world.writes.events().figures().failed == 1);
    assert_eq!(world.seen().len(), 13);
}

#[test]
fn a_full_queue_drops_occurrences() {
    let event_limits =
        EventLimits { at_once: 1, at_once_when_idle: 1, queue: 2, ..EventLimits::default() };
    let options = WriteOptions { event_limits, ..WriteOptions::default() };
    let (world, permits) = World::held(options, |_| true);
    let events = world.writes.events();
    events.record(failed());
    world.wait(1);
    for _ in 0..5 {
        events.record(Occurrence::scheduled(&web(), &"n1".into()));
    }
    // One of them may have left the queue to wait for its turn.
    let dropped = events.figures().dropped;
    assert!(matches!(dropped, 2 | 3), "{dropped}");
    permits.add_permits(9);
    world.wait(3);
    until(|| events.open() == 0);
}

#[test]
fn a_series_is_patched_if_its_event_was_created_after_the_patch_had_not_found_it() {
    let world = world(|seen, n| match (&*seen.method, n) {
        ("PATCH", 0) => refused(404, "not found"),
        ("POST", 1) => refused(409, "already exists"),
        _ => ok(),
    });
    world.writes.events().record(failed());
    world.writes.events().record(failed());
    let seen = world.wait(4);
    let methods: Vec<&str> = seen.iter().map(|seen| &*seen.method).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST", "PATCH"]);
    until(|| world.writes.events().figures().sent == 2);
}

#[test]
fn an_event_that_finds_no_place_among_the_retries_is_dropped() {
    let mut options = one_worker();
    options.event_limits.retries = 0;
    let world = World::with(|_, _| Answer::Broken, options, Duration::from_secs(20));
    world.writes.events().record(failed());
    until(|| world.writes.events().figures().failed == 1);
    assert_eq!(world.seen().len(), 1);
    assert_eq!(world.writes.events().open(), 0);
}

#[test]
fn an_event_is_not_sent_while_the_fence_is_closed() {
    let world = world(|_, _| ok());
    world.fence.open_until(std::time::Instant::now());
    world.writes.events().record(failed());
    until(|| world.writes.events().figures().failed == 1);
    assert_eq!(world.lines(), [""; 0]);
}

#[test]
fn flushing_ends_the_pause_before_the_next_try() {
    let mut options = one_worker();
    options.event_limits.retry = Duration::from_secs(600);
    let script = |_: &Seen, n| if n == 0 { Answer::Broken } else { ok() };
    let world = World::with(script, options, Duration::from_secs(20));
    world.writes.events().record(failed());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    // The first calls may come before the pause.
    let flush = || runtime.block_on(world.writes.flush(Duration::from_millis(50)));
    until(|| flush().is_ok());
    assert_eq!(world.writes.events().figures().sent, 1);
}
