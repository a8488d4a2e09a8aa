//! Custom stores that panic. A panic on an event refuses the event, and nothing changes. A panic on a pod does not
//! affect the pod, but the store counts as failed until a rebuild repairs it.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use portolan::cache::{Cluster, Config, Engine, PlacedPod, Store, StoreError, Writer};
use portolan::model::{CustomEvent, EventError, Generation, node, pod};

use super::stores_own::{Seats, licensed};

/// Panics on certain events, and on pods with certain names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Brittle {
    events: usize,
    pods: usize,
}

impl Store for Brittle {
    type Event = &'static str;

    const NAME: &'static str = "brittle";

    fn check(&self, event: &&'static str, _: &Cluster) -> Result<(), String> {
        assert!(*event != "check", "check panics");
        Ok(())
    }

    fn apply(&mut self, event: &&'static str, _: Generation) {
        self.events += 1;
        assert!(*event != "apply", "apply panics");
    }

    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        assert!(pod.name != "untracked", "tracks panics");
        true
    }

    fn pod_placed(&mut self, pod: &PlacedPod<'_>, _: Generation) {
        self.pods += 1;
        assert!(pod.name != "bad", "pod_placed panics");
    }

    fn pod_removed(&mut self, pod: &PlacedPod<'_>, _: Generation) {
        self.pods -= 1;
        assert!(pod.name != "sticky", "pod_removed panics");
    }

    fn without_pods(&self) -> Option<Self> {
        Some(Brittle { events: self.events, pods: 0 })
    }

    fn dump(&self) -> String {
        format!("{self:?}")
    }
}

fn brittle() -> Writer {
    let config = Config::default().with_store(Brittle::default()).with_store(Seats::default());
    let (mut writer, _) = Engine::inline(config);
    writer.add_node(node("n").build()).unwrap();
    writer.add_pod(pod("good").on("n").build()).unwrap();
    writer
}

#[test]
fn a_panic_on_an_event_refuses_the_event_and_changes_nothing() {
    let mut writer = brittle();
    for (event, text) in [("check", "check panics"), ("apply", "apply panics")] {
        let refused = writer.change::<Brittle>(event).unwrap_err();
        let text = text.into();
        assert_eq!(
            refused,
            EventError::StorePanicked { store: "brittle".into(), step: event.into(), text }
        );
        assert_eq!(writer.cluster().store::<Brittle>().unwrap(), &Brittle { events: 0, pods: 1 });
    }
    writer.change::<Brittle>("fine").unwrap();
    assert_eq!(writer.cluster().store::<Brittle>().unwrap().events, 1);
    assert_eq!(writer.cluster().failed_stores().count(), 0);
}

#[test]
fn a_panic_on_a_pod_fails_the_store_and_not_the_pod() {
    for (name, step, text) in [
        ("bad", "pod_placed", "pod_placed panics"),
        ("sticky", "pod_removed", "pod_removed panics"),
        ("untracked", "tracks", "tracks panics"),
    ] {
        let mut writer = brittle();
        let (pods, placed) = (writer.cluster().pod_count(), pod(name).on("n").build());
        let mut at = writer.add_pod(placed.clone()).unwrap();
        assert_eq!(writer.cluster().pod_count(), pods + 1);
        if step == "pod_removed" {
            at = writer.remove_pod(&placed).unwrap();
        }
        let cluster = writer.cluster();
        let failed: Vec<_> = cluster.failed_stores().collect();
        let [failure] = failed[..] else { panic!("{failed:?}") };
        assert_eq!((failure.store, failure.step, &*failure.text), ("brittle", step, text));
        assert_eq!(failure.generation, at);
        assert_eq!(cluster.store::<Brittle>().err(), Some(StoreError::Failed(failure.clone())));
        let differences: Vec<String> =
            cluster.audit().iter().map(|difference| difference.place.clone()).collect();
        assert_eq!(differences, ["store brittle"]);
        // Pods, other stores and forks are not affected.
        let refused = writer.change::<Brittle>("fine").unwrap_err();
        assert!(matches!(refused, EventError::StoreFailed { .. }), "{refused}");
        writer.add_pod(licensed("l").on("n").build()).unwrap();
        assert_eq!(writer.cluster().store::<Seats>().unwrap().used, 1);
        assert!(writer.cluster().fork().store::<Brittle>().is_err());
    }
}

#[test]
fn a_rebuild_repairs_a_failed_store_unless_a_pod_makes_it_fail_again() {
    let mut writer = brittle();
    writer.change::<Brittle>("fine").unwrap();
    let bad = pod("bad").on("n").build();
    writer.add_pod(bad.clone()).unwrap();
    assert_eq!(writer.rebuild().differences.len(), 1);
    assert_eq!(writer.cluster().failed_stores().count(), 1, "the pod still exists");
    writer.remove_pod(&bad).unwrap();
    writer.rebuild();
    assert_eq!(writer.cluster().store::<Brittle>().unwrap(), &Brittle { events: 1, pods: 1 });
    assert_eq!(writer.cluster().audit(), []);
}

#[test]
fn a_store_that_fails_in_a_fork_still_works_in_the_writer() {
    let mut writer = brittle();
    let mut fork = writer.cluster().fork();
    fork.add_pod(&pod("bad").on("n").build()).unwrap();
    assert_eq!(fork.failed_stores().count(), 1);
    assert!(matches!(fork.change::<Brittle>("fine"), Err(EventError::StoreFailed { .. })));
    assert_eq!(writer.cluster().store::<Brittle>().unwrap().pods, 1);
    writer.change::<Brittle>("fine").unwrap();
}

/// Counts placed pods and events, and ignores removed pods.
#[derive(Clone, Default)]
struct Forgetful(usize);

impl Store for Forgetful {
    type Event = ();

    const NAME: &'static str = "forgetful";

    fn check(&self, (): &(), _: &Cluster) -> Result<(), String> {
        Ok(())
    }

    fn apply(&mut self, (): &(), _: Generation) {
        self.0 += 1;
    }

    fn pod_placed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.0 += 1;
    }

    fn without_pods(&self) -> Option<Self> {
        Some(Forgetful(0))
    }

    fn dump(&self) -> String {
        self.0.to_string()
    }
}

#[test]
fn the_audit_finds_a_store_that_differs_from_its_rebuild() {
    let (mut writer, _) = Engine::inline(Config::default().with_store(Forgetful::default()));
    for name in ["a", "b"] {
        writer.add_pod(pod(name).on("n").build()).unwrap();
    }
    assert_eq!(writer.cluster().audit(), []);
    writer.change::<Forgetful>(()).unwrap();
    let found = writer.cluster().audit();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].to_string(), "store forgetful: found \"3\", expected \"2\"");
    assert_eq!(writer.rebuild().differences, found);
    assert_eq!(writer.cluster().store::<Forgetful>().unwrap().0, 2);
    assert_eq!(writer.cluster().dump().stores, [("forgetful", "2".to_owned())]);
}

/// Has the same name as [`Forgetful`], and panics on every pod.
#[derive(Clone, Default)]
struct Namesake;

impl Store for Namesake {
    type Event = ();

    const NAME: &'static str = Forgetful::NAME;

    fn check(&self, (): &(), _: &Cluster) -> Result<(), String> {
        Ok(())
    }

    fn apply(&mut self, (): &(), _: Generation) {}

    fn pod_placed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        panic!("pod_placed panics");
    }
}

#[test]
fn a_failed_store_does_not_hide_a_store_of_the_same_name_from_the_audit() {
    let config = Config::default().with_store(Namesake).with_store(Forgetful::default());
    let (mut writer, _) = Engine::inline(config);
    writer.add_pod(pod("a").on("n").build()).unwrap();
    writer.change::<Forgetful>(()).unwrap();
    let found: Vec<String> = writer.cluster().audit().iter().map(ToString::to_string).collect();
    let [failed, differs] = &found[..] else { panic!("{found:?}") };
    assert!(failed.contains("pod_placed panics"), "{failed}");
    assert_eq!(differs, "store forgetful: found \"2\", expected \"1\"");
}

/// A panic payload whose destructor panics with another such payload.
struct Bomb(u8);

impl Drop for Bomb {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            panic_any(Bomb(left));
        }
    }
}

/// Panics with a [`Bomb`] in the step that its event names, and in `dump` also with a message.
#[derive(Clone, Default)]
struct Spiteful(&'static str);

impl Spiteful {
    fn touch(&self, step: &str) {
        if self.0 == step {
            panic_any(Bomb(2));
        }
    }
}

impl Store for Spiteful {
    type Event = &'static str;

    const NAME: &'static str = "spiteful";

    fn check(&self, event: &&'static str, _: &Cluster) -> Result<(), String> {
        Spiteful(event).touch("check");
        Ok(())
    }

    fn apply(&mut self, event: &&'static str, _: Generation) {
        self.0 = event;
        self.touch("apply");
    }

    fn tracks(&self, _: &PlacedPod<'_>) -> bool {
        self.touch("tracks");
        true
    }

    fn pod_placed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.touch("pod_placed");
    }

    fn pod_removed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.touch("pod_removed");
    }

    fn without_pods(&self) -> Option<Self> {
        self.touch("without_pods");
        Some(self.clone())
    }

    fn dump(&self) -> String {
        self.touch("dump");
        assert!(self.0 != "message", "dump panics");
        String::new()
    }
}

fn spiteful() -> Writer {
    let (mut writer, _) = Engine::inline(Config::default().with_store(Spiteful::default()));
    writer.add_pod(pod("a").on("n").build()).unwrap();
    writer
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_does_not_leave_the_store() {
    let steps = ["check", "apply", "tracks", "pod_placed", "pod_removed", "without_pods", "dump"];
    for step in steps {
        let mut writer = spiteful();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let is_refused = writer.change::<Spiteful>(step).is_err();
            assert_eq!(is_refused, ["check", "apply"].contains(&step));
            writer.add_pod(pod("b").on("n").build()).unwrap();
            writer.remove_pod(&pod("a").on("n").build()).unwrap();
            assert_eq!(writer.cluster().audit().is_empty(), is_refused);
        }));
        // The payload may be a bomb.
        let is_caught = caught.map_err(std::mem::forget).is_ok();
        assert!(is_caught && writer.cluster().pod_count() == 1, "{step}");
    }
}

#[test]
fn a_rebuild_marks_a_store_as_failed_if_without_pods_panics() {
    let mut writer = spiteful();
    writer.change::<Spiteful>("without_pods").unwrap();
    assert_eq!(writer.cluster().failed_stores().count(), 0);
    writer.rebuild();
    let steps: Vec<&str> = writer.cluster().failed_stores().map(|failure| failure.step).collect();
    assert_eq!(steps, ["without_pods"]);
}

#[test]
fn the_audit_reports_a_store_whose_dump_always_panics() {
    let mut writer = spiteful();
    writer.change::<Spiteful>("message").unwrap();
    let found = writer.cluster().audit();
    let [difference] = &found[..] else { panic!("{found:?}") };
    assert_eq!(difference.place, "store spiteful");
    assert!(difference.found.contains("panicked in dump: dump panics"), "{difference}");
}

/// A store with the events of [`Brittle`] and nothing else. It does not depend on pods, so a rebuild keeps it.
#[derive(Clone, Default)]
struct Twin;

impl Store for Twin {
    type Event = &'static str;

    const NAME: &'static str = "twin";

    fn check(&self, _: &&'static str, _: &Cluster) -> Result<(), String> {
        Ok(())
    }
    fn apply(&mut self, _: &&'static str, _: Generation) {}
}

#[test]
fn the_first_failure_of_a_store_is_reported_whatever_follows() {
    let mut writer = brittle();
    let failed = writer.add_pod(pod("bad").on("n").build()).unwrap();
    let failure = |writer: &Writer| writer.cluster().failed_stores().next().unwrap().clone();
    let first = failure(&writer);
    for next in ["untracked", "fine"] {
        writer.add_pod(pod(next).on("n").build()).unwrap();
        assert_eq!(failure(&writer), first);
        assert_eq!(writer.cluster().store_generation::<Brittle>(), Some(failed));
    }
}

#[test]
fn a_failure_and_a_rebuild_change_the_generation_of_a_store() {
    let mut writer = brittle();
    let failed = writer.add_pod(pod("untracked").on("n").build()).unwrap();
    assert!(writer.cluster().store::<Brittle>().is_err());
    assert_eq!(writer.cluster().store_generation::<Brittle>(), Some(failed));

    let (mut writer, _) = Engine::inline(Config::default().with_store(Twin));
    writer.add_pod(pod("p").on("n").build()).unwrap();
    writer.rebuild();
    let generation = writer.cluster().store_generation::<Twin>();
    assert_eq!(generation, Some(writer.cluster().generation()));
}

#[test]
fn an_event_is_only_that_of_its_own_store() {
    let event = CustomEvent::new::<Brittle>("fine");
    assert_eq!((event.event::<Brittle>(), event.event::<Twin>()), (Some(&"fine"), None));
}
