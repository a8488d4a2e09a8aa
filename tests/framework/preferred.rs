//! Preferred nodes: reservations for a pod and recommendations of movements are tried before all other nodes.

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Config, Engine, Event, GodelConfig, Writer};
use portolan::model::{
    EventError, GodelPod, Movement, MovementOwner, MovementTask, OwnerKey, OwnerReference, Pod,
    PodBuilder, PodGroup, RecommendedNode, Timestamp, node, pod,
};
use portolan::plugin::{
    Cycle, CycleState, NodeResourcesFit, Nomination, Plugin, PreFilter, Preferred, Status,
};
use portolan::scheduler::FilterCheck;
use portolan::{
    Algorithm, AlgorithmConfig, Decision, Failure, Framework, Profiles, Scheduler, WhatIf,
};
use portolan_testkit::plugin;

const TTL: Duration = Duration::from_secs(60);

fn config() -> Config {
    let check = FilterCheck::new(Profiles::one(Arc::new(Framework::default_profile())));
    let godel =
        GodelConfig { reservations: Some(TTL), movements: true, ..GodelConfig::new("godel") };
    Config { godel: Some(godel), commit_check: check.into(), ..Config::default() }
}

/// Creates a writer with a medium node and two larger nodes, which would otherwise have higher scores.
fn writer() -> Writer {
    let mut writer = Engine::inline(config()).0;
    for (name, cpu) in [("n1", 1_000), ("n2", 64_000), ("n3", 64_000)] {
        writer.add_node(node(name).cpu(cpu).memory(64 << 30).build()).unwrap();
    }
    writer
}

fn scheduler() -> Algorithm {
    Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
}

fn web(name: &str) -> PodBuilder {
    pod(name).label("name", "web").cpu(700)
}

fn reserving(name: &str) -> PodBuilder {
    let godel = GodelPod { reserves: true, ..GodelPod::default() };
    web(name).spec(|spec| spec.godel = Some(Box::new(godel)))
}

/// Leaves a reservation of a pod on `n1`.
fn leave_reservation(writer: &mut Writer, name: &str) {
    let gone = reserving(name).on("n1").build();
    writer.add_pod(gone.clone()).unwrap();
    writer.remove_pod(&gone).unwrap();
}

/// Returns the decision, which is the same by chunks and by nodes.
fn decide(writer: &Writer, scheduler: &mut Algorithm, pod: &Pod) -> Decision {
    let state = CycleState::default();
    let cycle = Cycle::new(writer.cluster(), pod, &state);
    let by_nodes = scheduler.decide_by_nodes(cycle);
    let decided = scheduler.decide(cycle);
    assert_eq!(decided, by_nodes);
    decided.unwrap()
}

fn reservation_of(holder: &str) -> Option<Preferred> {
    Some(Preferred::Place(format!("default/{holder}-placeholder").into()))
}

#[test]
fn a_pod_consumes_the_oldest_reservation() {
    let mut writer = writer();
    writer.update_node(node("n1").cpu(2_000).memory(64 << 30).build()).unwrap();
    leave_reservation(&mut writer, "a");
    leave_reservation(&mut writer, "b");
    let mut scheduler = scheduler();
    for held in ["a", "b"] {
        let pod = web(&format!("next-{held}")).build();
        let decision = decide(&writer, &mut scheduler, &pod);
        assert_eq!((&*decision.node, &decision.preferred), ("n1", &reservation_of(held)));
        writer.assume_pod(decision.place(pod)).unwrap();
    }
    assert_eq!(writer.cluster().node("n1").unwrap().requested().cpu.0, 1_400);
    let third = decide(&writer, &mut scheduler, &web("third").build());
    assert!(&*third.node != "n1" && third.preferred.is_none(), "{third:?}");
    assert_eq!(writer.cluster().audit(), vec![]);
}

#[test]
fn an_infeasible_reservation_is_skipped() {
    let mut writer = writer();
    leave_reservation(&mut writer, "a");
    let mut scheduler = scheduler();
    let large = decide(&writer, &mut scheduler, &web("large").cpu(1_500).build());
    assert!(&*large.node != "n1" && large.preferred.is_none(), "{large:?}");
    let other = decide(&writer, &mut scheduler, &pod("other").label("name", "api").build());
    assert_eq!(other.preferred, None, "the reservation is for other pods");
    let member = decide(&writer, &mut scheduler, &web("member").group("gang").build());
    assert_eq!(member.preferred, None, "a group is placed together");
    let plain = decide(&writer, &mut scheduler, &web("web").build());
    assert_eq!(plain.preferred, reservation_of("a"));
}

fn owned(name: &str) -> PodBuilder {
    let owner = OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "api".into(),
        uid: "r".into(),
        controller: true,
    };
    pod(name).cpu(100).spec(|spec| spec.owners = Box::new([owner]))
}

fn movement(nodes: &[(&str, u64)]) -> Movement {
    let owner = OwnerKey {
        kind: "ReplicaSet".into(),
        namespace: "default".into(),
        name: "api".into(),
        uid: "r".into(),
    };
    let nodes = nodes.iter().map(|(node, desired)| RecommendedNode {
        node: (*node).into(),
        desired: *desired,
        actual: Box::default(),
    });
    let owners = Box::new([MovementOwner { owner, nodes: nodes.collect() }]);
    Movement { name: "m".into(), owners, ..Movement::default() }
}

#[test]
fn pods_follow_a_movement_until_its_recommendations_are_used() {
    let mut writer = writer();
    writer.put_object(movement(&[("n1", 2), ("n9", 5)])).unwrap();
    let mut scheduler = scheduler();
    let mut nodes = Vec::new();
    for n in 0..3 {
        let pod = owned(&format!("p{n}")).build();
        let decision = decide(&writer, &mut scheduler, &pod);
        nodes.push((decision.node.to_string() == "n1", decision.preferred.is_some()));
        let assumed = decision.place(pod);
        writer.assume_pod(assumed.clone()).unwrap();
        writer.add_pod(assumed).unwrap();
    }
    assert_eq!(nodes, [(true, true), (true, true), (false, false)]);
    // A removed pod makes its recommendation available again.
    writer.remove_pod(&owned("p0").on("n1").build()).unwrap();
    let again = decide(&writer, &mut scheduler, &owned("again").build());
    assert_eq!(again.preferred, Some(Preferred::Movement("m".into())));
    let others = decide(&writer, &mut scheduler, &pod("others").cpu(100).build());
    assert_eq!(others.preferred, None);
}

#[test]
fn an_infeasible_recommended_node_is_skipped() {
    let mut writer = writer();
    writer.put_object(movement(&[("n1", 2), ("n2", 1)])).unwrap();
    let mut scheduler = scheduler();
    writer.update_node(node("n1").cpu(1_000).unschedulable(true).build()).unwrap();
    let decision = decide(&writer, &mut scheduler, &owned("p").build());
    assert_eq!((&*decision.node, decision.preferred.is_some()), ("n2", true));
}

#[test]
fn schedulers_and_simulations_assign_the_reservation_to_the_successor() {
    let engine = Engine::shared(config());
    let wait = |event| engine.submit(event).unwrap().wait().unwrap().unwrap();
    for (name, cpu) in [("n1", 1_000), ("n2", 64_000)] {
        wait(Event::AddNode(Arc::new(node(name).cpu(cpu).memory(64 << 30).build())));
    }
    let gone = Arc::new(reserving("a").on("n1").build());
    wait(Event::AddPod(gone.clone()));
    wait(Event::RemovePod { uid: gone.uid.clone(), node: None });
    let version = engine.reader().unwrap().snapshot();
    let mut what_if =
        WhatIf::new(&version, Framework::default_profile().into(), AlgorithmConfig::default());
    assert_eq!(&*what_if.schedule(&web("b").build()).unwrap().node, "n1");
    assert_eq!(what_if.fork().reservations().unwrap().available("default", "web").count(), 0);

    let mut pods = Scheduler::new(engine.clone(), Profiles::one(scheduler())).unwrap();
    // The state has changed since the version of the decision, so the commit check runs.
    let placed = pods.schedule(&Arc::new(web("b").build()), Timestamp(1)).unwrap();
    assert_eq!(&**placed.node(), "n1");
    let version = engine.reader().unwrap().snapshot();
    assert_eq!(version.reservations().unwrap().available("default", "web").count(), 0);
    assert_eq!(version.node("n1").unwrap().requested().cpu.0, 700);
    // The placement is withdrawn, and the reservation is available again.
    wait(Event::ForgetPod { uid: placed.pod.uid.clone(), node: None });
    let version = engine.reader().unwrap().snapshot();
    assert_eq!(version.reservations().unwrap().available("default", "web").count(), 1);
    assert_eq!(version.audit(), vec![]);
}

#[test]
fn pods_that_leave_a_reservation_are_never_victims() {
    let mut writer = writer();
    for name in ["n2", "n3"] {
        writer.remove_node(name).unwrap();
    }
    writer.add_pod(reserving("kept").on("n1").build()).unwrap();
    let high = pod("high").cpu(700).priority(9).build();
    let error = scheduler().schedule(writer.cluster(), &high).unwrap_err();
    assert!(error.to_string().contains("No preemption victims found"), "{error}");
    // A pod that leaves no reservation is a victim.
    writer.remove_pod(&reserving("kept").on("n1").build()).unwrap();
    writer.expire(Timestamp::from_secs(1)).unwrap();
    writer.expire(Timestamp::from_secs(100)).unwrap();
    writer.add_pod(web("gone").on("n1").build()).unwrap();
    let error = scheduler().schedule(writer.cluster(), &high).unwrap_err();
    let Failure::Fit(error) = error else { panic!("{error}") };
    assert_eq!(error.nomination, Nomination::Node("n1".into()));
}

#[test]
fn the_second_of_two_decisions_for_one_reservation_conflicts() {
    let engine = Engine::shared(config());
    let wait = |event| engine.submit(event).unwrap().wait().unwrap();
    for (name, cpu) in [("n1", 2_000), ("n2", 64_000)] {
        wait(Event::AddNode(Arc::new(node(name).cpu(cpu).memory(64 << 30).build()))).unwrap();
    }
    let gone = Arc::new(reserving("a").on("n1").build());
    wait(Event::AddPod(gone.clone())).unwrap();
    wait(Event::RemovePod { uid: gone.uid.clone(), node: None }).unwrap();
    let version = engine.reader().unwrap().snapshot();
    let commit = |name: &str| {
        let pod = web(name).build();
        let decision = scheduler().schedule(&version, &pod).unwrap();
        assert_eq!(decision.preferred, reservation_of("a"));
        let pod = Arc::new(decision.place(pod));
        let submitted = Event::assume(pod).decided_on(version.generation());
        wait(submitted)
    };
    commit("first").unwrap();
    let refused = commit("second");
    assert!(matches!(refused, Err(EventError::Conflict { .. })), "{refused:?}");
}

#[test]
fn a_gang_does_not_exceed_the_recommendations() {
    let engine = Engine::shared(config());
    let wait = |event| engine.submit(event).unwrap().wait().unwrap();
    for (name, cpu) in [("n1", 1_000), ("n2", 64_000)] {
        wait(Event::AddNode(Arc::new(node(name).cpu(cpu).memory(64 << 30).build()))).unwrap();
    }
    wait(Event::PutObject(movement(&[("n1", 2)]).into())).unwrap();
    let group = PodGroup::new("default", "gang", 3);
    wait(Event::PutObject(group.into())).unwrap();
    let pods: Vec<Arc<Pod>> =
        (0..3).map(|n| Arc::new(owned(&format!("g{n}")).group("gang").build())).collect();
    let mut scheduler = Scheduler::new(engine.clone(), Profiles::one(scheduler())).unwrap();
    let placed = scheduler.schedule_gang(&pods, 3, Timestamp(1)).unwrap().placed;
    let mut nodes: Vec<String> =
        placed.iter().map(|placement| placement.node().to_string()).collect();
    nodes.sort();
    assert_eq!(nodes, ["n1", "n1", "n2"]);
    let version = engine.reader().unwrap().snapshot();
    assert_eq!(
        version.movements().unwrap().iter().map(|suggestion| suggestion.available()).sum::<u64>(),
        0
    );
}

#[test]
fn a_new_decision_replaces_the_previous_preference() {
    let mut writer = writer();
    let mut scheduler = scheduler();
    let stale = owned("p").spec(|spec| {
        spec.godel = Some(Box::new(GodelPod {
            movement: Some("old".into()),
            matched_placeholder: Some("default/x".into()),
            ..GodelPod::default()
        }));
    });
    writer.put_object(movement(&[("n1", 1)])).unwrap();
    let stale = stale.build();
    let decision = decide(&writer, &mut scheduler, &stale);
    let placed = decision.place(stale);
    let godel = placed.template.godel.as_ref().unwrap();
    assert_eq!((godel.movement.as_deref(), &godel.matched_placeholder), (Some("m"), &None));
    let written: Vec<_> = godel.annotations().collect();
    assert_eq!(written, [("godel.bytedance.com/movement-name", "m")]);
}

/// A plugin that writes the number of pods in the version of the decision to the cycle state.
struct Counts;

impl Plugin for Counts {
    plugin!("Counts", Filter);

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        cycle.state.write("pods", cycle.cluster.pod_count());
        Ok(PreFilter::Skip)
    }
}

#[test]
fn cycle_state_is_that_of_the_version_of_the_decision() {
    let mut writer = writer();
    leave_reservation(&mut writer, "a");
    let mut scheduler = {
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(NodeResourcesFit::default()), 1), (Box::new(Counts), 0)];
        Algorithm::new(Framework::new(plugins).unwrap(), AlgorithmConfig::default(), None)
    };
    let mut kept = |cpu: i64| {
        let state = CycleState::default();
        let pod = web("next").cpu(cpu).build();
        let decision = scheduler.decide(Cycle::new(writer.cluster(), &pod, &state)).unwrap();
        (decision.preferred.is_some(), *state.read::<usize>("pods").unwrap())
    };
    assert_eq!(kept(700), (true, 0), "without the placeholder");
    assert_eq!(kept(1_500), (false, 1), "the reservation was tried and is infeasible");
}

#[test]
fn a_movement_waits_while_its_deleted_pods_are_on_the_node() {
    let mut writer = writer();
    let evicted = pod("evicted").cpu(10).on("n1").build();
    writer.add_pod(evicted.clone()).unwrap();
    let task = |node: &str| MovementTask {
        namespace: "default".into(),
        name: evicted.name.clone(),
        uid: evicted.uid.clone(),
        node: node.into(),
    };
    let waiting = Movement { deleted: Box::new([task("n1")]), ..movement(&[("n1", 2)]) };
    writer.put_object(waiting).unwrap();
    let mut scheduler = scheduler();
    let mut preferred = |writer: &Writer| {
        let decision = decide(writer, &mut scheduler, &owned("p").build());
        decision.preferred.map(|by| (decision.node.to_string(), by))
    };
    assert_eq!(preferred(&writer), None);
    // Another movement also recommends the node, and waits for no pod.
    let other = Movement { name: "other".into(), ..movement(&[("n1", 1)]) };
    writer.put_object(other).unwrap();
    let by = |name: &str| Some(("n1".to_owned(), Preferred::Movement(name.into())));
    assert_eq!(preferred(&writer), by("other"));
    // A pod on another node does not delay the movement, even if the movement saw it on this one.
    writer.remove_pod(&evicted).unwrap();
    writer.add_pod(evicted.on("n2")).unwrap();
    assert_eq!(preferred(&writer), by("m"));
}
