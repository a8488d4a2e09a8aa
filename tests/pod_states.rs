//! Pods in Gödel's four states, as events tell of them.

use std::sync::Arc;
use std::time::Duration;

use portolan::log::Event;
use portolan::model::{EventError, GodelPod, Pod, PodState, Timestamp, Uid, pod};
use portolan::{CommitPolicy, Config, Engine, GodelConfig, Writer};

fn writer() -> Writer {
    let config = Config {
        assumed_ttl: Some(Duration::from_secs(30)),
        godel: Some(GodelConfig::new("godel-scheduler")),
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    };
    Engine::inline(config).0
}

fn in_state(state: &str, node: Option<&str>) -> Pod {
    let godel = GodelPod {
        state: state.into(),
        selected_scheduler: Some("another".into()),
        assumed_node: node.map(Into::into),
        ..GodelPod::default()
    };
    pod("p").cpu(100).spec(|spec| spec.godel = Some(Box::new(godel))).build()
}

fn requested(writer: &Writer, node: &str) -> i64 {
    let nodes = writer.dump().nodes;
    nodes.get(node).map_or(0, |node| node.requested.cpu.0)
}

#[test]
fn a_pod_that_another_scheduler_assumed_counts_and_never_expires() {
    let mut writer = writer();
    let assumed = in_state("assumed", Some("n1"));
    writer.add_pod(assumed.clone()).unwrap();
    writer.finish_binding(&assumed.uid, Timestamp::from_secs(0)).unwrap();
    assert_eq!(writer.expire(Timestamp::from_secs(1_000_000)), Ok(0));
    assert_eq!(requested(&writer, "n1"), 100);
    let known = writer.get_pod(&assumed.uid).unwrap();
    assert_eq!((known.state(), known.is_assumed()), (PodState::Assumed, false));
    assert!(matches!(writer.forget_pod(&assumed), Err(EventError::NotAssumed { .. })));
}

#[test]
fn without_the_configuration_annotations_place_nothing() {
    let (mut writer, _) = Engine::inline(Config::default());
    let refused = writer.add_pod(in_state("assumed", Some("n1")));
    assert!(matches!(refused, Err(EventError::NoNodeName { .. })));
}

#[test]
fn a_pod_for_other_schedulers_or_in_no_state_is_on_no_node() {
    let mut writer = writer();
    let mut other = in_state("assumed", Some("n1"));
    let mut spec = (**other.template).clone();
    spec.scheduler_name = Some("other".into());
    other.template = portolan::model::Template::new(spec);
    for pod in [other, in_state("pending", Some("n1")), in_state("assumed", None)] {
        assert!(matches!(writer.add_pod(pod), Err(EventError::NoNodeName { .. })));
    }
    assert_eq!(writer.pod_count(), 0);
}

#[test]
fn the_binder_may_bind_elsewhere_than_was_assumed() {
    let mut writer = writer();
    let assumed = in_state("assumed", Some("n1"));
    writer.add_pod(assumed.clone()).unwrap();
    let bound = assumed.clone().on("n2");
    writer.update_pod(&assumed.uid, bound.clone()).unwrap();
    assert_eq!((requested(&writer, "n1"), requested(&writer, "n2")), (0, 100));
    assert_eq!(writer.get_pod(&bound.uid).unwrap().state(), PodState::Bound);
    // From then on its node is what it is.
    let refused = writer.update_pod(&bound.uid, assumed.on("n3"));
    assert!(matches!(refused, Err(EventError::OtherNode { .. })));
}

#[test]
fn a_pod_that_the_binder_rejects_leaves_its_node() {
    for as_pending in [false, true] {
        let mut writer = writer();
        let assumed = in_state("assumed", Some("n1"));
        writer.add_pod(assumed.clone()).unwrap();
        let rejected = in_state("dispatched", None);
        if as_pending {
            writer.put_pending(rejected).unwrap();
        } else {
            writer.update_pod(&assumed.uid, rejected).unwrap();
        }
        assert_eq!((requested(&writer, "n1"), writer.pod_count()), (0, 0));
    }
}

#[test]
fn an_event_older_than_our_own_assume_is_ignored() {
    let mut writer = writer();
    let ours = pod("p").cpu(100).on("n1").build();
    writer.assume_pod(ours.clone()).unwrap();
    writer.update_pod(&ours.uid, in_state("dispatched", None)).unwrap();
    writer.put_pending(in_state("dispatched", None)).unwrap();
    assert!(writer.is_assumed_pod(&ours.uid));
    assert_eq!(requested(&writer, "n1"), 100);
}

#[test]
fn an_update_confirms_our_own_assume() {
    let mut writer = writer();
    let ours = pod("p").cpu(100).on("n1").build();
    writer.assume_pod(ours.clone()).unwrap();
    writer.finish_binding(&ours.uid, Timestamp::from_secs(0)).unwrap();
    writer.update_pod(&ours.uid, in_state("assumed", Some("n1"))).unwrap();
    assert_eq!(writer.expire(Timestamp::from_secs(1_000)), Ok(0));
    assert_eq!((writer.is_assumed_pod(&ours.uid), requested(&writer, "n1")), (false, 100));
}

#[test]
fn a_stale_event_takes_no_bound_pod_from_its_node() {
    let mut writer = writer();
    let bound = pod("p").cpu(100).on("n1").build();
    writer.add_pod(bound.clone()).unwrap();
    writer.update_pod(&bound.uid, in_state("dispatched", None)).unwrap();
    assert_eq!(requested(&writer, "n1"), 100);
}

#[test]
fn a_second_add_counts_nothing_twice() {
    let mut writer = writer();
    writer.add_pod(in_state("assumed", Some("n1"))).unwrap();
    let again = writer.add_pod(in_state("assumed", Some("n1")));
    assert!(matches!(again, Err(EventError::AlreadyAdded { .. })));
    assert_eq!((requested(&writer, "n1"), writer.pod_count()), (100, 1));
}

#[test]
fn a_delete_with_a_stale_object_takes_the_assumed_pod_away() {
    let mut writer = writer();
    writer.add_pod(in_state("assumed", Some("n1"))).unwrap();
    writer.remove_pod(&in_state("dispatched", None)).unwrap();
    assert_eq!((requested(&writer, "n1"), writer.pod_count()), (0, 0));
}

#[test]
fn a_gang_that_is_refused_leaves_nothing_assumed() {
    let mut writer = writer();
    let placed = in_state("assumed", Some("n1"));
    writer.add_pod(placed.clone()).unwrap();
    let before = writer.dump();
    let member = |name: &str| pod(name).cpu(10).on("n1").build();
    let gang: Arc<[Pod]> = [member("a"), member("b"), placed.on("n1"), member("c")].into();
    let refused = writer.apply(&Event::AssumeAll { pods: gang, decided_on: None });
    assert!(matches!(refused, Err(EventError::Together(_))));
    assert_eq!(writer.dump(), before);
    assert!(!writer.is_assumed_pod(&Uid::new("default/a")));
}
