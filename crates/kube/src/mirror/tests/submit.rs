//! Events that the engine refuses.

use std::sync::Arc;

use portolan::cache::{Config, Engine, Event};
use portolan::model::{self, Pod, Quantity};

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

/// A pod with a request that the engine refuses.
fn negative() -> Pod {
    let pod = model::pod("web-0").uid("u-1").resource_version(5);
    pod.request("cpu", Quantity::milli(-1)).on("n1").build()
}

#[tokio::test]
async fn a_pod_is_put_whatever_the_engine_knows_about_it() {
    let world = World::new();
    world.send(Event::put_pod(pod(5, "n1"))).await;
    assert_eq!(world.version_of("u-1"), Some(5));
    world.send(Event::RemovePod { uid: "u-1".into(), node: None }).await;
    for (version, node) in [(6, "n1"), (7, "n1"), (8, "n2")] {
        world.send(Event::put_pod(pod(version, node))).await;
        assert_eq!(world.version_of("u-1"), Some(version));
    }
    assert_eq!(world.refused(), 0);
}

#[tokio::test]
async fn a_pod_that_the_engine_refuses_is_counted_and_tried_again_by_the_next_list() {
    let world = World::new();
    world.index(negative());
    world.send(Event::put_pod(negative())).await;
    assert_eq!((world.version_of("u-1"), world.refused()), (None, 1));
    let mut events = Vec::new();
    world.rules.begin_list();
    world.rules.put(negative(), 1, None, PendingStatus::default, &mut events);
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn a_pod_that_the_engine_refuses_is_passed_on_again_although_its_digest_is_the_same() {
    let world = World::new();
    let digest = digest_of("{}");
    world.rules.put(negative(), 1, digest, PendingStatus::default, &mut Vec::new());
    assert!(world.rules.is_known(&"u-1".into(), 6, 1, digest), "not refused yet");
    world.send(Event::put_pod(negative())).await;
    assert_eq!(world.refused(), 1);
    assert!(!world.rules.is_known(&"u-1".into(), 7, 1, digest));
}

#[tokio::test]
async fn deletions_of_what_the_engine_does_not_have_are_no_refusals() {
    let world = World::new();
    for event in [
        Event::RemovePod { uid: "u-1".into(), node: None },
        Event::RemovePending("u-1".into()),
        Event::RemoveNode("n1".into()),
        Event::delete_object(model::ObjectKind::Service, "shop", "web"),
    ] {
        world.send(event).await;
    }
    assert_eq!(world.refused(), 0);
}
