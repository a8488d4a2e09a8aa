//! The writer's checks of placements before it assumes pods, and the pods that count although the writer would not
//! place them.

use std::sync::Arc;

use portolan::cache::{CommitCheck, CommitPolicy, Config, Engine, Event, Prepared, Relist, Writer};
use portolan::model::{
    EventError, Generation, LabelSelector, Node, Pod, PodAffinity, PodAffinityTerm, PodBuilder,
    Quantity, Uid, node, pod,
};
use portolan::scheduler::FilterCheck;
use portolan::{Framework, Profiles};

fn writer(commit_check: CommitPolicy) -> Writer {
    let config = Config { commit_check, ..Config::default() };
    let mut writer = Engine::inline(config).0;
    let node = node("n").cpu(1_000).memory(1 << 30).pods(2).resource("gpu", Quantity::whole(1));
    writer.add_node(node.build()).unwrap();
    writer.add_pod(small("there").host_port(80).on("n").build()).unwrap();
    writer
}

fn small(name: &str) -> PodBuilder {
    pod(name).cpu(600)
}

fn is_conflict(outcome: &Result<Generation, EventError>) -> bool {
    matches!(outcome, Err(EventError::Conflict { .. }))
}

fn assume(
    writer: &mut Writer,
    pod: Pod,
    decided_on: Option<Generation>,
) -> Result<Generation, EventError> {
    let event = match decided_on {
        Some(version) => Event::assume(pod).decided_on(version),
        None => Event::assume(pod),
    };
    writer.apply(&event).map(|applied| applied.generation)
}

#[test]
fn by_default_no_assume_overcommits_a_node() {
    let mut writer = writer(CommitPolicy::default());
    let here = writer.publish();
    let stale = Generation(here.0 - 1);
    let tiny = |name: &str| pod(name).cpu(1).on("n");
    for decided_on in [None, Some(stale), Some(Generation(here.0 + 7))] {
        let before = writer.cluster().dump();
        let refused = [
            small("cpu").on("n").build(),
            tiny("memory").memory(2 << 30).build(),
            tiny("gpu").request("gpu", Quantity::whole(2)).build(),
            tiny("unknown").request("licence", Quantity::whole(1)).build(),
            tiny("port").host_port(80).build(),
            tiny("gone").on("m").build(),
        ];
        for pod in refused {
            let name = pod.name.clone();
            assert!(is_conflict(&assume(&mut writer, pod, decided_on)), "{name} {decided_on:?}");
        }
        assert_eq!(writer.cluster().dump(), before);
    }
    assume(&mut writer, tiny("fits").build(), None).unwrap();
    let full = assume(&mut writer, tiny("one too many").build(), None);
    assert!(full.unwrap_err().to_string().contains("Too many pods"));
    assert_eq!(writer.cluster().audit(), vec![]);
}

#[test]
fn pods_assumed_together_count_against_each_other() {
    let mut writer = writer(CommitPolicy::default());
    writer.add_node(node("m").cpu(1_000).build()).unwrap();
    let gang = |names: [&str; 2]| names.map(|name| small(name).on("m").build());
    let refused = writer.apply(&Event::assume_all(gang(["a", "b"]))).unwrap_err();
    assert!(
        matches!(&refused, EventError::Together(why) if matches!(**why, EventError::Conflict { .. }))
    );
    assert_eq!(writer.cluster().pod_count(), 1);
    writer.apply(&Event::assume_all([small("a").on("m").build()])).unwrap();
}

#[test]
fn pods_assumed_together_exclude_each_other_from_a_zone() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    let check = FilterCheck::new(Profiles::one(Arc::new(Framework::default_profile())));
    let mut writer = writer(check.into());
    for (name, zone) in [("a", "y"), ("b", "z"), ("c", "z")] {
        let node = node(name).hostname().zone(zone).cpu(4_000).memory(1 << 30);
        writer.add_node(node.build()).unwrap();
    }
    let apart = |name: &str, node: &str| {
        let term = PodAffinityTerm {
            topology_key: ZONE.into(),
            selector: LabelSelector::from_labels([("app", "web")]),
            namespaces: Box::new(["default".into()]),
            namespace_selector: LabelSelector::Nothing,
        };
        let apart = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
        small(name).label("app", "web").pod_anti_affinity(apart).on(node).build()
    };
    // Each pod is checked on top of the pods before it, for which other nodes of the zone have to be examined.
    for nodes in [["a", "b", "c"], ["b", "a", "c"], ["b", "c", "a"], ["a", "b", "b"]] {
        let pods = ["p", "q", "r"];
        let pods: Vec<Pod> = (0..3).map(|n| apart(pods[n], nodes[n])).collect();
        let refused = writer.apply(&Event::assume_all(pods)).unwrap_err();
        assert!(refused.to_string().contains("anti-affinity"), "{refused}");
        assert_eq!(writer.cluster().pod_count(), 1);
    }
    writer.apply(&Event::assume_all([apart("p", "a"), apart("q", "b")])).unwrap();
}

#[test]
fn a_decision_on_the_highest_generation_is_checked() {
    let pod = || small("large").on("n").build();
    for event in
        [Event::assume(pod()), Event::assume_all([pod()]), Event::preempt(pod(), Vec::<Uid>::new())]
    {
        let mut writer = writer(CommitPolicy::default());
        let refused = match writer.apply(&event.decided_on(Generation(u64::MAX))).unwrap_err() {
            EventError::Together(why) => *why,
            why => why,
        };
        assert!(matches!(refused, EventError::Conflict { .. }), "{refused}");
    }
}

/// Nothing has changed since the decision, so it is still valid.
#[test]
fn a_decision_on_the_current_version_is_not_checked() {
    let mut writer = writer(CommitPolicy::default());
    let now = writer.publish();
    assume(&mut writer, small("a").on("n").build(), Some(now)).unwrap();
    assert!(is_conflict(&assume(&mut writer, small("b").on("n").build(), Some(now))));
}

#[test]
fn pods_after_a_rejected_one_are_checked_although_they_were_decided_on_the_current_version() {
    let mut writer = writer(Never.into());
    let names = ["first", "there", "last"].map(|name| Arc::new(pod(name).cpu(1).on("n").build()));
    let decided_on = Some(writer.publish());
    let event =
        Event::AssumeEach { pods: Arc::new(names), decided_on, prepared: Prepared::default() };
    let applied = writer.apply(&event).unwrap();
    // The last one was decided on with the second one in its place.
    let rejected: Vec<_> = applied.rejected.iter().map(|(uid, _)| uid.as_str()).collect();
    assert_eq!((applied.added, rejected), (1, vec!["default/there", "default/last"]));
    assert!(is_conflict(&Err(applied.rejected[1].1.clone())));
}

#[test]
fn an_unchecked_assume_is_always_accepted() {
    let mut writer = writer(CommitPolicy::Unchecked);
    let stale = Some(Generation(1));
    assume(&mut writer, small("a").on("n").build(), None).unwrap();
    assume(&mut writer, small("b").on("nowhere").build(), stale).unwrap();
    assert_eq!(writer.cluster().pod_count(), 3);
}

#[test]
fn concurrent_decisions_fill_a_node_without_overcommitting_it() {
    let engine = Engine::shared(Config::default());
    engine.submit(Event::add_node(node("n").cpu(10_000).build())).unwrap().wait().unwrap().unwrap();
    let assumed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let engine = engine.clone();
                scope.spawn(move || {
                    let tries = (0..20).map(|n| {
                        let pod = pod(format!("p{thread}-{n}")).cpu(1_000).on("n").build();
                        engine.submit(Event::assume(pod)).unwrap().wait().unwrap().is_ok()
                    });
                    tries.filter(|ok| *ok).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(assumed, 10);
}

#[test]
fn a_pod_without_a_profile_is_checked_for_resources() {
    let framework = Arc::new(Framework::default_profile());
    let check = FilterCheck::new(Profiles::by_name([("mine", framework)]));
    let mut writer = writer(check.into());
    let small_pod_of = |scheduler: &str| {
        let scheduler = Some(scheduler.into());
        small(scheduler.as_deref().unwrap_or_default()).spec(|spec| spec.scheduler_name = scheduler)
    };
    for scheduler in ["mine", "theirs"] {
        let pod = small_pod_of(scheduler).on("n").build();
        assert!(is_conflict(&assume(&mut writer, pod, None)), "{scheduler}");
    }
}

struct Never;

impl CommitCheck for Never {
    fn check(&self, _: &portolan::cache::Cluster, _: &Pod, _: &str) -> Result<(), String> {
        Err("never".to_owned())
    }
}

#[test]
fn a_custom_check_runs_even_if_no_version_is_named() {
    let mut writer = writer(Never.into());
    let tiny = || pod("tiny").cpu(1).on("n").build();
    assert!(is_conflict(&assume(&mut writer, tiny(), None)));
    let now = writer.publish();
    assume(&mut writer, tiny(), Some(now)).unwrap();
}

fn claiming(name: &str) -> PodBuilder {
    pod(name).cpu(400).spec(|spec| spec.resource_claims = [Default::default()].into())
}

#[test]
fn pods_with_resource_claims_count_but_are_not_placed() {
    let mut writer = writer(CommitPolicy::Unchecked);
    let unsupported = |outcome: &Result<Generation, EventError>| {
        matches!(outcome, Err(EventError::Unsupported { .. }))
    };
    let placed = claiming("a").on("n").build();
    assert!(unsupported(&writer.assume_pod(placed.clone())));
    writer.add_pod(placed.clone()).unwrap();
    assert_eq!(writer.cluster().node("n").unwrap().requested().cpu.0, 1_000);
    let updated = Pod { resource_version: 2, ..placed };
    writer.update_pod(&updated.uid.clone(), updated).unwrap();
    writer.cluster().fork().add_pod(&claiming("b").on("n").build()).unwrap();
    assert_eq!(writer.cluster().audit(), vec![]);
}

fn relist(writer: &mut Writer, relist: Relist) -> (usize, usize) {
    let applied = writer.apply(&Event::Relist(Arc::new(relist))).unwrap();
    assert_eq!(writer.cluster().audit(), vec![]);
    (applied.rejected.len(), applied.removed)
}

/// Creates a pod that is refused for its content, whatever the state of the cluster.
fn bad(name: &str) -> Pod {
    pod(name).cpu(-1).on("n").build()
}

#[test]
fn a_refused_object_with_a_key_does_not_keep_unlisted_objects() {
    let mut writer = writer(CommitPolicy::default());
    writer.add_pod(pod("known").on("n").build()).unwrap();
    let mut update = bad("known");
    update.resource_version = 9;
    // Both are refused for their content. One of them is known, and stays as it was because it is listed.
    let list = vec![bad("new"), update];
    assert_eq!(relist(&mut writer, Relist::Pods(list)), (2, 1));
    assert!(writer.cluster().pod(&"default/known".into()).is_some());
    assert!(writer.cluster().pod(&"default/there".into()).is_none());
    let nodes: Vec<Arc<Node>> = vec![Arc::new(node("m").cpu(-1).build())];
    assert_eq!(relist(&mut writer, Relist::Nodes(nodes)), (1, 1));
}

#[test]
fn a_list_with_an_object_without_a_key_removes_nothing() {
    let mut writer = writer(CommitPolicy::default());
    let nameless = Pod { uid: "".into(), ..pod("a").on("n").build() };
    assert_eq!(relist(&mut writer, Relist::Pods(vec![nameless])), (1, 0));
    assert_eq!(relist(&mut writer, Relist::Nodes(vec![Arc::new(node("").build())])), (1, 0));
    assert_eq!((writer.cluster().pod_count(), writer.cluster().node_count()), (1, 1));
}
