//! Pods in Gödel's four states, as observed in events.

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{CommitPolicy, Config, Engine, Event, GodelConfig, Relist, Writer};
use portolan::model::{
    EventError, Fact, GodelPod, Launcher, Pod, PodSpec, PodState, Template, Timestamp, Uid, pod,
};

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
    let nodes = writer.cluster().dump().nodes;
    nodes.get(node).map_or(0, |node| node.requested.cpu.0)
}

#[test]
fn a_pod_assumed_by_another_scheduler_counts_and_never_expires() {
    let mut writer = writer();
    let assumed = in_state("assumed", Some("n1"));
    writer.add_pod(assumed.clone()).unwrap();
    writer.apply(&Event::finish_binding(&assumed.uid, Timestamp::from_secs(0))).unwrap();
    assert_eq!(writer.expire(Timestamp::from_secs(1_000_000)), Ok(0));
    assert_eq!(requested(&writer, "n1"), 100);
    let known = writer.cluster().pod(&assumed.uid).unwrap();
    assert_eq!((known.state(), known.is_assumed()), (PodState::Assumed, false));
    assert!(matches!(writer.apply(&Event::forget(&assumed)), Err(EventError::NotAssumed { .. })));
}

#[test]
fn without_the_configuration_annotations_place_no_pods() {
    let (mut writer, _) = Engine::inline(Config::default());
    let refused = writer.add_pod(in_state("assumed", Some("n1")));
    assert!(matches!(refused, Err(EventError::NoNodeName { .. })));
}

#[test]
fn a_pod_of_other_schedulers_or_without_a_state_is_on_no_node() {
    let mut writer = writer();
    let mut other = in_state("assumed", Some("n1"));
    let mut spec = (**other.template).clone();
    spec.scheduler_name = Some("other".into());
    other.template = Template::new(spec);
    for pod in [other, in_state("pending", Some("n1")), in_state("assumed", None)] {
        assert!(matches!(writer.add_pod(pod), Err(EventError::NoNodeName { .. })));
    }
    assert_eq!(writer.cluster().pod_count(), 0);
}

#[test]
fn a_pod_with_an_unknown_launcher_or_class_counts_only_once_it_is_bound() {
    let unknown_launcher: fn(&mut PodSpec) = |spec| spec.launcher = Launcher::Unknown;
    let unknown_class: fn(&mut PodSpec) =
        |spec| spec.godel.get_or_insert_default().has_unknown_class = true;
    for change in [unknown_launcher, unknown_class] {
        let mut writer = writer();
        let legal = in_state("assumed", Some("n1"));
        let mut illegal = legal.clone();
        let mut spec = (**legal.template).clone();
        change(&mut spec);
        illegal.template = Template::new(spec);
        let refused = writer.add_pod(illegal.clone());
        assert!(matches!(refused, Err(EventError::NoNodeName { .. })), "{refused:?}");
        writer.add_pod(legal).unwrap();
        writer.update_pod(&illegal.uid, illegal.clone()).unwrap();
        assert_eq!((writer.cluster().pod_count(), requested(&writer, "n1")), (0, 0));
        writer.update_pod(&illegal.uid, illegal.clone().on("n2")).unwrap();
        assert_eq!(requested(&writer, "n2"), 100);
        assert_eq!(writer.cluster().pod(&illegal.uid).unwrap().state(), PodState::Bound);
    }
}

#[test]
fn the_binder_may_choose_another_node() {
    let mut writer = writer();
    let assumed = in_state("assumed", Some("n1"));
    writer.add_pod(assumed.clone()).unwrap();
    let bound = assumed.clone().on("n2");
    writer.update_pod(&assumed.uid, bound.clone()).unwrap();
    assert_eq!((requested(&writer, "n1"), requested(&writer, "n2")), (0, 100));
    assert_eq!(writer.cluster().pod(&bound.uid).unwrap().state(), PodState::Bound);
    // A bound pod cannot change its node.
    let refused = writer.update_pod(&bound.uid, assumed.on("n3"));
    assert!(matches!(refused, Err(EventError::OtherNode { .. })));
}

#[test]
fn a_pod_rejected_by_the_binder_leaves_its_node() {
    for as_pending in [false, true] {
        let mut writer = writer();
        let assumed = in_state("assumed", Some("n1"));
        writer.add_pod(assumed.clone()).unwrap();
        let rejected = in_state("dispatched", None);
        if as_pending {
            writer.apply(&Event::put_pending(rejected)).unwrap();
        } else {
            writer.update_pod(&assumed.uid, rejected).unwrap();
        }
        assert_eq!((requested(&writer, "n1"), writer.cluster().pod_count()), (0, 0));
    }
}

#[test]
fn an_event_older_than_our_own_assume_is_ignored() {
    let mut writer = writer();
    let ours = pod("p").cpu(100).on("n1").build();
    writer.assume_pod(ours.clone()).unwrap();
    writer.update_pod(&ours.uid, in_state("dispatched", None)).unwrap();
    writer.apply(&Event::put_pending(in_state("dispatched", None))).unwrap();
    assert!(writer.cluster().pod(&ours.uid).is_some_and(|pod| pod.is_assumed()));
    assert_eq!(requested(&writer, "n1"), 100);
}

#[test]
fn an_update_confirms_our_own_assume() {
    let mut writer = writer();
    let ours = pod("p").cpu(100).on("n1").build();
    writer.assume_pod(ours.clone()).unwrap();
    writer.apply(&Event::finish_binding(&ours.uid, Timestamp::from_secs(0))).unwrap();
    writer.update_pod(&ours.uid, in_state("assumed", Some("n1"))).unwrap();
    assert_eq!(writer.expire(Timestamp::from_secs(1_000)), Ok(0));
    assert_eq!(
        (
            writer.cluster().pod(&ours.uid).is_some_and(|pod| pod.is_assumed()),
            requested(&writer, "n1")
        ),
        (false, 100)
    );
}

#[test]
fn a_stale_event_does_not_unbind_a_pod() {
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
    assert_eq!((requested(&writer, "n1"), writer.cluster().pod_count()), (100, 1));
}

#[test]
fn a_delete_with_a_stale_object_removes_the_assumed_pod() {
    let mut writer = writer();
    writer.add_pod(in_state("assumed", Some("n1"))).unwrap();
    writer.remove_pod(&in_state("dispatched", None)).unwrap();
    assert_eq!((requested(&writer, "n1"), writer.cluster().pod_count()), (0, 0));
}

#[test]
fn a_refused_gang_leaves_no_pod_assumed() {
    let mut writer = writer();
    let placed = in_state("assumed", Some("n1"));
    writer.add_pod(placed.clone()).unwrap();
    let before = writer.cluster().dump();
    let member = |name: &str| pod(name).cpu(10).on("n1").build();
    let gang: Arc<[Pod]> = [member("a"), member("b"), placed.on("n1"), member("c")].into();
    let refused = writer.apply(&Event::AssumeAll { pods: gang, decided_on: None });
    assert!(matches!(refused, Err(EventError::Together(_))));
    assert_eq!(writer.cluster().dump(), before);
    assert!(!writer.cluster().pod(&Uid::new("default/a")).is_some_and(|pod| pod.is_assumed()));
}

/// A path by which the object of an unplaced pod enters the engine.
type Path = fn(&mut Writer, Pod);

const PATHS: [(&str, Path); 3] = [
    ("update", |writer, pod| _ = writer.update_pod(&pod.uid.clone(), pod).unwrap()),
    ("put_pending", |writer, pod| _ = writer.apply(&Event::put_pending(pod)).unwrap()),
    ("relist", |writer, pod| {
        let applied = writer.relist(Relist::Pods(vec![pod])).unwrap();
        assert_eq!(applied.rejected, [], "a listed pod was refused");
    }),
];

/// Returns objects of a pod that is neither bound nor assumed by one of our schedulers.
fn unplaced() -> [Pod; 4] {
    let mut pending = in_state("", None);
    let mut spec = (**pending.template).clone();
    spec.godel = None;
    pending.template = Template::new(spec.clone());
    let mut of_another_type = in_state("assumed", Some("n1"));
    spec.godel = of_another_type.template.godel.clone();
    spec.scheduler_name = Some("other".into());
    of_another_type.template = Template::new(spec);
    let abnormal = in_state("nonsense", Some("n1"));
    [pending, in_state("dispatched", None), abnormal, of_another_type]
}

#[test]
fn a_listed_pod_without_a_node_is_treated_like_its_update() {
    let ours = pod("p").cpu(100).on("n1").build();
    for object in unplaced() {
        for (way, put) in PATHS {
            // The binder rejected the pod, which another scheduler had assumed.
            let mut rejected = writer();
            rejected.add_pod(in_state("assumed", Some("n1"))).unwrap();
            put(&mut rejected, object.clone());
            assert_eq!(rejected.cluster().pod_count(), 0, "{way} {object:?}");
            // The object is older than our own decision, or than the binding.
            let mut assumed = writer();
            assumed.assume_pod(ours.clone()).unwrap();
            put(&mut assumed, object.clone());
            assert!(
                assumed.cluster().pod(&ours.uid).is_some_and(|pod| pod.is_assumed()),
                "{way} {object:?}"
            );
            let mut bound = writer();
            bound.add_pod(ours.clone()).unwrap();
            put(&mut bound, object.clone());
            assert_eq!(requested(&bound, "n1"), 100, "{way} {object:?}");
            // The pod is unknown.
            let mut empty = writer();
            put(&mut empty, object.clone());
            assert_eq!(empty.cluster().pod_count(), 0, "{way} {object:?}");
        }
    }
}

#[test]
fn a_list_with_a_rejected_pod_still_removes_unlisted_pods() {
    let mut writer = writer();
    let follower = writer.follow();
    writer.add_pod(in_state("assumed", Some("n1"))).unwrap();
    writer.add_pod(pod("gone").cpu(30).on("n1").build()).unwrap();
    let stays = pod("stays").cpu(7).on("n1").build();
    let listed = vec![in_state("dispatched", None), stays.clone()];
    let applied = writer.relist(Relist::Pods(listed)).unwrap();
    assert_eq!((applied.added, applied.updated, applied.removed), (1, 0, 2));
    assert_eq!(applied.rejected, []);
    assert_eq!((requested(&writer, "n1"), writer.cluster().pod_count()), (7, 1));
    assert_eq!(writer.cluster().audit(), []);
    // Queues are notified that the pod is pending again.
    writer.publish();
    let notes = std::iter::from_fn(|| follower.try_next().ok());
    let pending =
        notes.filter(|note| matches!(&note.fact, Fact::Pending(pod) if *pod.name == *"p"));
    assert_eq!(pending.count(), 1);
}

#[test]
fn an_update_with_another_uid_replaces_the_assumed_pod() {
    let ours = pod("p").cpu(100).on("n1").build();
    let renewed = |object: Pod| Pod { uid: Uid::new("new"), ..object };
    let known = [false, true];
    for (object, cpu) in unplaced().map(|object| (object, [0, 0])).into_iter().chain([
        (in_state("assumed", Some("n2")), [0, 100]),
        (pod("p").cpu(100).on("n2").build(), [0, 100]),
        (pod("p").cpu(100).on("n1").build(), [100, 0]),
    ]) {
        for assumed in known {
            let mut writer = writer();
            match assumed {
                true => writer.assume_pod(ours.clone()).unwrap(),
                false => writer.add_pod(ours.clone()).unwrap(),
            };
            let follower = writer.follow();
            writer.update_pod(&ours.uid, renewed(object.clone())).unwrap();
            assert!(writer.cluster().pod(&ours.uid).is_none(), "{object:?}");
            assert_eq!(["n1", "n2"].map(|node| requested(&writer, node)), cpu, "{object:?}");
            assert_eq!(writer.cluster().audit(), []);
            // A queue that knows the pod by its old uid drops it.
            writer.publish();
            let mut notes = std::iter::from_fn(|| follower.try_next().ok());
            let drops = |fact| matches!(fact, Fact::NotPending(uid) if uid == ours.uid);
            assert!(notes.any(|note| drops(note.fact)), "{object:?}");
        }
    }
}

#[test]
fn in_the_binder_assumed_pods_expire_from_their_assume() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let godel = GodelConfig { unfinished_ttl: seconds(900), ..GodelConfig::new("godel") };
    let config = Config {
        assumed_ttl: seconds(300),
        godel: Some(godel),
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    };
    let mut writer = Engine::inline(config).0;
    let at = Timestamp::from_secs;
    for name in ["lost", "bound", "forgotten", "slow", "a", "b"] {
        writer.assume_pod(pod(name).cpu(1).on("n1").build()).unwrap();
    }
    let gang: Arc<[Pod]> = [pod("g").cpu(1).on("n1").build()].into();
    writer.apply(&Event::AssumeAll { pods: gang, decided_on: None }).unwrap();
    let uid = |name: &str| Uid::new(&format!("default/{name}"));
    writer.add_pod(pod("bound").cpu(1).on("n1").build()).unwrap();
    writer.apply(&Event::forget(&pod("forgotten").on("n1").build())).unwrap();
    // The first time in the log.
    assert_eq!(writer.expire(at(1_000)), Ok(0));
    writer.apply(&Event::finish_binding(&uid("a"), at(1_100))).unwrap();
    writer.apply(&Event::finish_binding(&uid("slow"), at(1_899))).unwrap();
    assert_eq!(writer.expire(at(1_400)), Ok(0));
    assert_eq!(writer.expire(at(1_401)), Ok(1), "a's binding finished at 1,100");
    assert_eq!(writer.expire(at(1_900)), Ok(0));
    assert_eq!(writer.expire(at(1_901)), Ok(3), "lost, b and g");
    assert!(
        writer.cluster().pod(&uid("slow")).is_some_and(|pod| pod.is_assumed())
            && writer.cluster().pod(&uid("bound")).is_some()
    );
    assert_eq!(writer.expire(at(2_200)), Ok(1));
}

#[test]
fn without_an_unfinished_ttl_an_unfinished_binding_never_expires() {
    let mut writer = writer();
    writer.assume_pod(pod("p").on("n1").build()).unwrap();
    assert_eq!(writer.expire(Timestamp::from_secs(0)), Ok(0));
    assert_eq!(writer.expire(Timestamp::from_secs(1_000_000)), Ok(0));
}
