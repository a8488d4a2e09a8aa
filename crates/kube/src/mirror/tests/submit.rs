//! Events that the engine refuses.

use std::sync::Arc;

use portolan::log::Event;
use portolan::model::{self, Pod, Quantity};
use portolan::{Config, Engine};

use super::digest_of;
use crate::api::Resource;
use crate::mirror::figures::Board;
use crate::mirror::pod_rules::PodRules;
use crate::mirror::submit::Events;
use crate::mirror::{PendingStatus, PodIndex};

struct World {
    engine: Engine,
    rules: PodRules,
    board: Arc<Board>,
    events: Events,
}

impl World {
    fn new() -> World {
        let engine = Engine::shared(Config::default());
        let index = Arc::new(PodIndex::default());
        let rules = PodRules::new(index.clone(), Arc::new([]));
        let board = Arc::new(Board::new(&[Resource::PODS]));
        let started = Events::start(engine.clone(), index, board.clone(), None);
        World { engine, rules, board, events: started.expect("a thread").0 }
    }

    /// Records a pod in the index alone.
    fn index(&self, pod: Pod) {
        self.rules.put(pod, 1, None, PendingStatus::default, &mut Vec::new());
    }

    async fn send(&self, event: Event) {
        let kind = &self.board.kinds()[0];
        self.events.send(kind, event).await.expect("running");
        self.events.flush().await.expect("running");
    }

    fn version_of(&self, uid: &str) -> Option<u64> {
        let snapshot = self.engine.reader().expect("open").snapshot();
        snapshot.pod(&uid.into()).map(|pod| pod.resource_version())
    }

    fn refused(&self) -> u64 {
        self.board.kinds()[0].figures().refused
    }
}

fn pod(version: u64, node: &str) -> Pod {
    model::pod("web-0").uid("u-1").resource_version(version).on(node).build()
}

#[tokio::test]
async fn an_update_of_an_unknown_pod_becomes_an_addition_and_the_reverse() {
    let world = World::new();
    world.index(pod(5, "n1"));
    world.send(Event::UpdatePod { old: "u-1".into(), pod: Arc::new(pod(5, "n1")) }).await;
    assert_eq!(world.version_of("u-1"), Some(5));
    world.index(pod(6, "n1"));
    world.send(Event::add_pod(pod(6, "n1"))).await;
    assert_eq!(world.version_of("u-1"), Some(6));
    world.index(pod(7, "n2"));
    world.send(Event::UpdatePod { old: "u-1".into(), pod: Arc::new(pod(7, "n2")) }).await;
    assert_eq!(world.version_of("u-1"), Some(7));
    assert_eq!(world.refused(), 0);
}

#[tokio::test]
async fn a_refused_event_of_a_pod_that_has_changed_again_is_not_repeated() {
    let world = World::new();
    world.send(Event::UpdatePod { old: "u-1".into(), pod: Arc::new(pod(5, "n1")) }).await;
    assert_eq!(world.version_of("u-1"), None, "deleted meanwhile");
    world.index(pod(6, "n1"));
    world.send(Event::UpdatePod { old: "u-1".into(), pod: Arc::new(pod(5, "n1")) }).await;
    assert_eq!(world.version_of("u-1"), None, "a later event follows");
    assert_eq!(world.refused(), 0);
}

#[tokio::test]
async fn a_pod_that_the_engine_refuses_is_counted_and_tried_again_by_the_next_list() {
    let world = World::new();
    let negative = model::pod("web-0").uid("u-1").resource_version(5);
    let negative = negative.request("cpu", Quantity::milli(-1)).on("n1").build();
    world.index(negative.clone());
    world.send(Event::add_pod(negative.clone())).await;
    assert_eq!((world.version_of("u-1"), world.refused()), (None, 1));
    let mut events = Vec::new();
    world.rules.begin_list();
    world.rules.put(negative, 1, None, PendingStatus::default, &mut events);
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn a_pod_that_the_engine_refuses_is_passed_on_again_although_its_digest_is_the_same() {
    let world = World::new();
    let negative = model::pod("web-0").uid("u-1").resource_version(5);
    let negative = negative.request("cpu", Quantity::milli(-1)).on("n1").build();
    let digest = digest_of("{}");
    world.rules.put(negative.clone(), 1, digest, PendingStatus::default, &mut Vec::new());
    assert!(world.rules.is_known(&"u-1".into(), 6, 1, digest), "not refused yet");
    world.send(Event::add_pod(negative)).await;
    assert_eq!(world.refused(), 1);
    assert!(!world.rules.is_known(&"u-1".into(), 7, 1, digest));
}

#[tokio::test]
async fn a_refused_event_is_repaired_although_later_versions_were_not_passed_on() {
    let world = World::new();
    let digest = digest_of("{}");
    world.rules.put(pod(5, "n1"), 1, digest, PendingStatus::default, &mut Vec::new());
    assert!(world.rules.is_known(&"u-1".into(), 6, 1, digest));
    world.send(Event::UpdatePod { old: "u-1".into(), pod: Arc::new(pod(5, "n1")) }).await;
    assert_eq!(world.version_of("u-1"), Some(5), "no other event follows");
    assert_eq!(world.refused(), 0);
}

#[tokio::test]
async fn deletions_of_what_the_engine_does_not_have_are_no_refusals() {
    let world = World::new();
    for event in [
        Event::RemovePod { uid: "u-1".into(), node: None },
        Event::remove_pending(&"u-1".into()),
        Event::remove_node("n1"),
        Event::delete_object(model::ObjectKind::Service, "shop", "web"),
    ] {
        world.send(event).await;
    }
    assert_eq!(world.refused(), 0);
}
