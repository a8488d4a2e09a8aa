//! The upsert of a pod: every path of a pod through a watch.

use portolan::cache::{Applied, Config, Engine, Event, Follower, Writer};
use portolan::model::{EventError, Fact, Pod, PodBuilder, Timestamp, node, pod};

struct World {
    writer: Writer,
    follower: Follower,
}

impl World {
    fn new(pod_names: bool) -> World {
        let (mut writer, _) = Engine::inline(Config { pod_names, ..Config::default() });
        for name in ["n1", "n2"] {
            writer.add_node(node(name).cpu(1_000).pods(10).build()).unwrap();
        }
        writer.publish();
        let follower = writer.follow();
        World { writer, follower }
    }

    fn put(&mut self, pod: PodBuilder) -> Result<Applied, EventError> {
        self.writer.apply(&Event::put_pod(pod.build()))
    }

    /// Applies a pod, and returns how many were added, updated and removed.
    fn counts(&mut self, pod: PodBuilder) -> [usize; 3] {
        let applied = self.put(pod).unwrap();
        [applied.added, applied.updated, applied.removed]
    }

    /// The requests on both nodes.
    fn requested(&self) -> [i64; 2] {
        ["n1", "n2"].map(|name| self.writer.cluster().node(name).unwrap().requested().cpu.0)
    }

    /// The notes about pods that wait since the last call.
    fn waiting(&mut self) -> Vec<String> {
        self.writer.publish();
        let notes = std::iter::from_fn(|| self.follower.try_next().ok());
        let named = notes.filter_map(|note| match note.fact {
            Fact::Pending(pod) => Some(format!("pending {}", pod.uid)),
            Fact::Assumed(pod) => Some(format!("assumed {}", pod.uid)),
            Fact::NotPending(uid) => Some(format!("not pending {uid}")),
            _ => None,
        });
        named.collect()
    }
}

fn web(version: u64) -> PodBuilder {
    pod("web-0").uid("u1").cpu(100).resource_version(version)
}

fn terminating(pod: PodBuilder) -> PodBuilder {
    pod.deleted(Timestamp::from_secs(1))
}

#[test]
fn a_pod_is_pending_then_bound_then_finished() {
    for pod_names in [false, true] {
        let mut world = World::new(pod_names);
        assert_eq!(world.counts(web(1)), [0, 0, 0]);
        assert_eq!(world.waiting(), ["pending u1"]);
        assert_eq!(world.counts(web(2).on("n1")), [1, 0, 0]);
        assert_eq!(world.counts(web(3).cpu(200).on("n1")), [0, 1, 0]);
        assert_eq!(world.requested(), [200, 0]);
        assert_eq!(world.counts(web(3).cpu(200).on("n1")), [0, 0, 0], "an equal object");
        assert_eq!(world.counts(web(4).on("n1").finished()), [0, 0, 1]);
        assert_eq!((world.requested(), world.writer.cluster().pod_count()), ([0, 0], 0));
        assert_eq!(world.waiting(), [""; 0]);
        assert_eq!(world.writer.cluster().audit(), []);
    }
}

#[test]
fn an_older_object_is_refused_and_one_without_a_version_is_not() {
    let mut world = World::new(false);
    world.put(web(5).on("n1")).unwrap();
    let dump = world.writer.cluster().dump();
    for older in [web(4).on("n2"), web(4), web(4).finished(), terminating(web(4))] {
        let refused = world.put(older).unwrap_err();
        let stale = EventError::Stale { uid: "u1".into(), known: 5, given: 4 };
        assert_eq!(refused, stale);
        let why = "pod u1 is refused: its resource version 4 is older than the known 5";
        assert_eq!(refused.to_string(), why);
    }
    assert_eq!(world.writer.cluster().dump(), dump);
    assert_eq!(world.counts(web(0).on("n2")), [0, 1, 0]);
    assert_eq!(world.requested(), [0, 100]);
}

#[test]
fn a_bound_pod_may_move_and_lose_its_node() {
    let mut world = World::new(false);
    world.put(web(1).on("n1")).unwrap();
    assert_eq!(world.counts(web(2).on("n2")), [0, 1, 0]);
    assert_eq!(world.requested(), [0, 100]);
    assert_eq!(world.counts(web(3)), [0, 0, 1]);
    assert_eq!((world.requested(), world.waiting()), ([0, 0], vec!["pending u1".to_owned()]));
}

#[test]
fn an_assumed_pod_stays_until_it_is_bound_or_terminates() {
    for bound in [true, false] {
        let mut world = World::new(false);
        // The scheduler has read a newer object than the watch.
        world.writer.assume_pod(web(9).on("n1").build()).unwrap();
        assert_eq!(world.counts(web(2)), [0, 0, 0]);
        assert_eq!((world.requested(), world.waiting()), ([100, 0], vec!["assumed u1".to_owned()]));
        if bound {
            assert_eq!(world.counts(web(3).on("n2")), [0, 1, 0], "bound by another scheduler");
            assert!(!world.writer.cluster().pod(&"u1".into()).is_some_and(|pod| pod.is_assumed()));
            assert_eq!(world.requested(), [0, 100]);
        } else {
            assert_eq!(world.counts(terminating(web(3))), [0, 0, 1]);
            assert_eq!(world.requested(), [0, 0]);
            assert_eq!(world.waiting(), ["not pending u1"]);
        }
    }
}

#[test]
fn a_pending_pod_that_terminates_or_finishes_no_longer_waits() {
    let mut world = World::new(false);
    for gone in [terminating(web(2)), web(2).finished()] {
        world.put(web(1)).unwrap();
        assert_eq!(world.counts(gone), [0, 0, 0]);
        assert_eq!(world.waiting(), ["pending u1", "not pending u1"]);
    }
}

#[test]
fn a_pod_of_another_uid_replaces_its_namesake_if_pods_have_names() {
    let again = |version: u64| pod("web-0").uid("u2").cpu(10).resource_version(version);
    for (new, requested) in [(again(8).on("n1"), 10), (again(8), 0), (again(8).finished(), 0)] {
        let mut world = World::new(true);
        world.put(web(5).on("n1")).unwrap();
        world.put(pod("web-0").namespace("other").uid("u3").cpu(1).on("n2")).unwrap();
        let removed = world.put(new).unwrap().removed;
        assert_eq!((removed, world.requested()), (1, [requested, 1]));
        // The deletion of the earlier pod arrives late.
        world.put(web(7).on("n1").finished()).unwrap_or_default();
        assert_eq!(world.requested(), [requested, 1]);
    }
    let mut world = World::new(true);
    world.put(again(8).on("n1")).unwrap();
    let refused = world.put(web(5).on("n1")).unwrap_err();
    assert!(matches!(refused, EventError::Stale { known: 8, given: 5, .. }), "{refused}");
    let mut world = World::new(false);
    world.put(web(5).on("n1")).unwrap();
    world.put(again(8).on("n1")).unwrap();
    assert_eq!(world.requested(), [110, 0], "names are not compared");
}

#[test]
fn a_pod_that_cannot_be_placed_leaves_its_namesake() {
    let mut world = World::new(true);
    world.put(web(5).on("n1")).unwrap();
    let dump = world.writer.cluster().dump();
    let negative = pod("web-0").uid("u2").cpu(-1).resource_version(8);
    for refused in [negative.clone().on("n1"), negative] {
        let why = world.put(refused).unwrap_err();
        assert!(matches!(why, EventError::Negative { .. }), "{why}");
    }
    assert_eq!(world.put(pod("web-0").uid(" ")).map(|applied| applied.removed), Ok(1));
    assert_ne!(world.writer.cluster().dump(), dump);
    let unnamed = Pod { uid: "".into(), ..web(9).build() };
    assert_eq!(world.writer.apply(&Event::put_pod(unnamed)), Err(EventError::EmptyUid));
}
