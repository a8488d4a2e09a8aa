//! The index of who could go from a node against what it is an index of: at every
//! generation, in held snapshots and in forks.

mod events;

use std::cmp::Reverse;
use std::sync::Arc;

use events::{Op, event};
use portolan::model::{PodClass, Resources, Scalars, Timestamp, Uid};
use portolan::snapshot::{Cluster, NodeInfo, PodInfo, Snapshot};
use portolan::state::{CommitPolicy, State};
use proptest::prelude::*;

/// The node's pods of these priorities by importance, found by their definition: those
/// that have not started come last, and the later ones of them in the list first.
fn expected<'a>(node: NodeInfo<'a>, keep: impl Fn(i32) -> bool) -> Vec<PodInfo<'a>> {
    let mut pods: Vec<(usize, PodInfo<'a>)> =
        node.pods().enumerate().filter(|(_, pod)| keep(pod.template().priority)).collect();
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

/// What those of these pods take that are guaranteed, added up one by one.
fn taken(pods: &[PodInfo<'_>], of: impl Fn(&Resources) -> i64) -> i64 {
    let guaranteed = pods.iter().filter(|pod| pod.template().class == PodClass::Guaranteed);
    guaranteed.map(|pod| of(&pod.template().resources.placed)).sum()
}

fn check_node(cluster: &Cluster, node: NodeInfo<'_>, from: i32, to: i32) {
    let victims = node.victims();
    assert_eq!(uids(victims.pods()), uids(expected(node, |_| true).into_iter()));
    let within = victims.within(from..to);
    let pods = expected(node, |priority| (from..to).contains(&priority));
    assert_eq!(uids(within.pods()), uids(pods.iter().copied()), "{node:?} {from}..{to}");
    assert_eq!(uids(victims.below(to).within(from..).pods()), uids(within.pods()));
    assert_eq!((within.len(), within.is_empty()), (pods.len(), pods.is_empty()));
    let freed = within.freed();
    assert_eq!(freed.pods(), pods.len());
    assert_eq!(freed.cpu().0, taken(&pods, |takes| takes.cpu.0));
    assert_eq!(freed.memory().0, taken(&pods, |takes| takes.memory.0));
    assert_eq!(freed.ephemeral_storage().0, taken(&pods, |takes| takes.ephemeral_storage.0));
    let (allocatable, requested) = (node.allocatable(), node.requested());
    let scalar = |name: &str| taken(&pods, |takes| takes.scalars.get(name).unwrap_or(0));
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
    assert_eq!(within.occupiable_pods(), node.allowed_pods() - others as i64);
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
    fn who_could_go_is_who_is_there(
        ops in prop::collection::vec(any::<Op>(), 1..120),
        forked in prop::collection::vec(any::<Op>(), 1..40),
        every in 1..6_usize,
    ) {
        let mut state = State::new(None, CommitPolicy::Unchecked);
        let mut held: Vec<Arc<Snapshot>> = Vec::new();
        for (step, op) in ops.iter().enumerate() {
            let _ = state.apply(&event(op, step as u64), &mut ());
            // Between two questions one node changes, or many.
            if step % every == 0 {
                check(state.cluster(), step);
            }
            if step % 25 == 3 {
                held.push(Arc::new(state.freeze()));
                state.set_horizon(held[0].generation());
            }
        }
        let snapshot = state.freeze();
        let mut fork = snapshot.fork();
        for (step, op) in forked.iter().enumerate() {
            events::apply_to_fork(&mut fork, &event(op, 1000 + step as u64));
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
