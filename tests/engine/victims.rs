//! The index of potential victims against its definition: at every generation, in held snapshots and in forks.

use std::cmp::Reverse;
use std::sync::Arc;

use portolan::cache::{
    Cluster, CommitPolicy, Config, Engine, GodelConfig, NodeInfo, PodInfo, Snapshot, Victims,
};
use portolan::model::{
    CustomNodeResource, Generation, GodelPod, MilliCpu, Pod, PodClass, PodState, Quantity,
    ResourceList, Resources, Scalars, Timestamp, Uid, node, pod,
};
use portolan_testkit::events::{Op, apply_to_fork};
use proptest::prelude::*;

/// Returns the node's pods of these priorities by importance, according to the definition: pods that have not started
/// come last, in reverse list order.
fn expected<'a>(node: NodeInfo<'a>, keep: impl Fn(PodInfo<'_>) -> bool) -> Vec<PodInfo<'a>> {
    let mut pods: Vec<(usize, PodInfo<'a>)> =
        node.pods().enumerate().filter(|(_, pod)| keep(*pod)).collect();
    pods.sort_by_key(|(at, pod)| {
        let unstarted = pod.start_time().is_none().then_some(Reverse(*at));
        let start = pod.start_time().unwrap_or(Timestamp(i64::MAX));
        (Reverse(pod.template().priority), start, unstarted, *at)
    });
    pods.into_iter().map(|(_, pod)| pod).collect()
}

fn uids<'a>(pods: impl Iterator<Item = PodInfo<'a>>) -> Vec<Uid> {
    pods.map(|pod| pod.uid()).collect()
}

/// Sums the requests of the pods of a class one by one.
fn taken(pods: &[PodInfo<'_>], class: PodClass, amount: impl Fn(&Resources) -> i64) -> i64 {
    let of_class = pods.iter().filter(|pod| pod.template().class == class);
    of_class.map(|pod| amount(&pod.template().resources.placed)).sum()
}

fn check_node(cluster: &Cluster, node: NodeInfo<'_>, from: i32, to: i32) {
    // Gödel never preempts placeholders, and pods that are not bound.
    let godel = cluster.godel().is_some();
    let is_potential_victim = |pod: PodInfo<'_>| {
        !godel || (pod.state() == PodState::Bound && !pod.template().is_placeholder())
    };
    // Without a class the sums are those of guaranteed pods.
    check_victims(cluster, node.victims(), PodClass::Guaranteed, (from, to), is_potential_victim);
    for class in [PodClass::Guaranteed, PodClass::BestEffort] {
        let is_of = |pod: PodInfo<'_>| is_potential_victim(pod) && pod.template().class == class;
        check_victims(cluster, node.victims_of(class), class, (from, to), is_of);
    }
}

/// Checks that `victims` are the pods accepted by `is_potential_victim`, with the sums of `class`.
fn check_victims(
    cluster: &Cluster,
    victims: Victims<'_>,
    class: PodClass,
    (from, to): (i32, i32),
    is_potential_victim: impl Fn(PodInfo<'_>) -> bool,
) {
    let node = victims.node();
    assert_eq!(uids(victims.pods()), uids(expected(node, &is_potential_victim).into_iter()));
    let within = victims.within(from..to);
    let is_within = |pod: PodInfo<'_>| (from..to).contains(&pod.template().priority);
    let pods = expected(node, |pod| is_potential_victim(pod) && is_within(pod));
    assert_eq!(uids(within.pods()), uids(pods.iter().copied()), "{node:?} {from}..{to}");
    assert_eq!(uids(victims.below(to).within(from..).pods()), uids(within.pods()));
    assert_eq!((within.len(), within.is_empty()), (pods.len(), pods.is_empty()));
    let taken = |amount: &dyn Fn(&Resources) -> i64| taken(&pods, class, amount);
    let freed = within.freed();
    assert_eq!(freed.pods(), pods.len());
    assert_eq!(freed.cpu().0, taken(&|takes| takes.cpu.0));
    assert_eq!(freed.memory().0, taken(&|takes| takes.memory.0));
    assert_eq!(freed.ephemeral_storage().0, taken(&|takes| takes.ephemeral_storage.0));
    let (allocatable, requested) = (node.allocatable_of(class), node.requested_of(class));
    let scalar = |name: &str| taken(&|takes| takes.scalars.get(name).unwrap_or(0));
    for name in ["example.com/gpu", "hugepages-2Mi", "not.known/here"] {
        let resource = cluster.resource_id(name);
        assert_eq!(resource.map_or(0, |it| freed.scalar(it)), scalar(name), "{name}");
    }
    let left = within.occupiable();
    assert_eq!(left.cpu.0, allocatable.cpu.0 - requested.cpu.0 + freed.cpu().0);
    assert_eq!(left.memory.0, allocatable.memory.0 - requested.memory.0 + freed.memory().0);
    let scalars = allocatable.scalars.iter().map(|(name, has)| {
        (name.clone(), has - requested.scalars.get(name).unwrap_or(0) + scalar(name))
    });
    assert_eq!(left.scalars, Scalars::new(scalars));
    let others = node.pod_count() - pods.len();
    assert_eq!(within.occupiable_pods(), node.allowed_pods_of(class) - others as i64);
}

fn check(cluster: &Cluster, step: usize) {
    let from = step as i32 % 4 - 1;
    for node in cluster.nodes() {
        check_node(cluster, node, from, from + step as i32 % 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn potential_victims_equal_their_definition(
        ops in prop::collection::vec(any::<Op>(), 1..120),
        forked in prop::collection::vec(any::<Op>(), 1..40),
        every in 1..6_usize,
        is_godel in any::<bool>(),
    ) {
        let (mut writer, _reader) = Engine::inline(Config {
            commit_check: CommitPolicy::Unchecked,
            godel: is_godel.then(|| GodelConfig::new("godel")),
            ..Config::default()
        });
        let mut held: Vec<Arc<Snapshot>> = Vec::new();
        for (step, op) in ops.iter().enumerate() {
            let _ = writer.apply(&op.event(step as u64, Generation(step as u64)));
            // Between two checks one node changes, or many nodes.
            if step % every == 0 {
                check(writer.cluster(), step);
            }
            if step % 25 == 3 {
                writer.publish();
                held.push(writer.snapshot());
            }
        }
        writer.publish();
        let snapshot = writer.snapshot();
        let mut fork = snapshot.fork();
        for (step, op) in forked.iter().enumerate() {
            apply_to_fork(&mut fork, &op.event(1000 + step as u64, snapshot.generation()));
            if step % every == 0 {
                check(&fork, step);
            }
        }
        for (step, snapshot) in held.iter().enumerate() {
            check(snapshot, step);
        }
        check(&snapshot, 2);
    }
}

#[test]
fn godel_never_preempts_assumed_pods_or_placeholders() {
    let godel = Some(GodelConfig::new("godel"));
    let (mut writer, _) = Engine::inline(Config { godel, ..Config::default() });
    writer.add_node(node("n").cpu(4_000).build()).unwrap();
    let elsewhere = GodelPod {
        state: "assumed".into(),
        selected_scheduler: Some("s".into()),
        assumed_node: Some("n".into()),
        ..GodelPod::default()
    };
    let assumed = pod("assumed").cpu(100).on("n").build();
    writer.assume_pod(assumed.clone()).unwrap();
    let elsewhere = pod("elsewhere").cpu(200).spec(|spec| spec.godel = Some(elsewhere.into()));
    writer.add_pod(elsewhere.build()).unwrap();
    writer.add_pod(Pod { ..pod("held").cpu(400).on("n").build().to_placeholder() }).unwrap();
    writer.add_pod(pod("bound").cpu(800).on("n").build()).unwrap();
    let victims = |writer: &portolan::cache::Writer| {
        let victims = writer.cluster().node("n").unwrap().victims();
        let names: Vec<String> = victims.pods().map(|pod| pod.name().to_owned()).collect();
        (names, victims.freed().cpu(), victims.occupiable().cpu)
    };
    assert_eq!(victims(&writer), (vec!["bound".into()], MilliCpu(800), MilliCpu(3_300)));
    // The binder confirms the placement.
    writer.update_pod(&assumed.uid.clone(), assumed).unwrap();
    let names = ["bound", "assumed"].map(String::from).to_vec();
    let (found, cpu, occupiable) = victims(&writer);
    assert_eq!((found.len(), cpu, occupiable), (names.len(), MilliCpu(900), MilliCpu(3_400)));
}

#[test]
fn victims_of_a_class_are_summed_in_the_account_of_that_class() {
    let (mut writer, _) = Engine::inline(Config::default());
    writer.add_node(node("n").cpu(4_000).build()).unwrap();
    let offered = ResourceList::new([("cpu", Quantity::whole(2)), ("pods", Quantity::whole(9))]);
    writer.put_object(CustomNodeResource::new("n", &offered)).unwrap();
    let placed = |name: &str, class, priority, cpu| {
        pod(name).spec(|spec| spec.class = class).priority(priority).cpu(cpu).on("n").build()
    };
    writer.add_pod(placed("g", PodClass::Guaranteed, 1, 1_000)).unwrap();
    writer.add_pod(placed("b", PodClass::BestEffort, 1, 300)).unwrap();
    writer.add_pod(placed("high", PodClass::BestEffort, 9, 500)).unwrap();
    let node = writer.cluster().node("n").unwrap();
    let seen = |victims: Victims<'_>| {
        let pods: Vec<String> = victims.pods().map(|pod| pod.name().to_owned()).collect();
        (pods, victims.freed().cpu().0, victims.occupiable().cpu.0, victims.occupiable_pods())
    };
    let best_effort = node.victims_of(PodClass::BestEffort).below(9);
    assert_eq!(seen(best_effort), (vec!["b".into()], 300, 1_500, 7));
    let guaranteed = node.victims_of(PodClass::Guaranteed).below(9);
    assert_eq!(seen(guaranteed), (vec!["g".into()], 1_000, 4_000, node.allowed_pods() - 2));
}
