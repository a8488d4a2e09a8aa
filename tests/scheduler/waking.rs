//! With the check of left nodes, pods are tried again only after events that help them, and after each such event.

use portolan::SchedulingLoop;
use portolan::cache::Event;
use portolan::model::{Labels, PodBuilder, Taint, TaintEffect, Uid, node};
use portolan::scheduler::queue::{Place, QueueConfig};
use proptest::prelude::*;

use super::scheduling_loop::{Bench, cpu};

fn bench() -> Bench {
    Bench::with(QueueConfig { checks_left_nodes: true, ..QueueConfig::default() })
}

fn remove(bench: &Bench, uid: &Uid) {
    let pod = bench.snapshot().pod(uid).expect("a placed pod").to_pod();
    bench.engine.submit(Event::remove_pod(&pod)).unwrap().wait().unwrap().unwrap();
    bench.queue.tend(bench.clock());
    bench.passes(11);
}

fn settled(bench: &Bench, scheduling: &mut SchedulingLoop, pod: PodBuilder) -> Uid {
    let uid = bench.pending(pod);
    bench.settle(scheduling);
    uid
}

#[test]
fn a_pod_that_leaves_wakes_only_pods_for_which_its_node_then_has_room() {
    let bench = bench();
    let mut scheduling = bench.scheduling(1);
    bench.node("n", 4_000);
    let [small, middle, large] = [("small", 500), ("middle", 1_500), ("large", 2_000)]
        .map(|(name, size)| settled(&bench, &mut scheduling, cpu(name, size)));
    let waits = settled(&bench, &mut scheduling, cpu("waits", 2_500));
    for gone in [small, middle] {
        remove(&bench, &gone);
        assert_eq!(bench.place(&waits), Some(Place::Unschedulable));
        assert!(bench.attempt(&mut scheduling).is_none());
    }
    remove(&bench, &large);
    assert_eq!(bench.settle(&mut scheduling), 1);
}

#[test]
fn a_pod_that_leaves_a_node_wakes_no_pod_that_the_node_rejects_anyway() {
    let bench = bench();
    let mut scheduling = bench.scheduling(1);
    bench.node("n", 1_000);
    let tainted = Taint::new("gpu", "", TaintEffect::NoSchedule);
    let tainted = node("t").hostname().cpu(1_000).memory(64 << 30).taint(tainted).build();
    bench.engine.submit(Event::add_node(tainted)).unwrap().wait().unwrap().unwrap();
    let on_t = Labels::new([("kubernetes.io/hostname", "t")]);
    let tolerant = cpu("tolerant", 1_000).tolerate("gpu").node_selector(on_t);
    let on_tainted = settled(&bench, &mut scheduling, tolerant);
    let on_other = settled(&bench, &mut scheduling, cpu("other", 1_000));
    let waits = settled(&bench, &mut scheduling, cpu("waits", 1_000));
    remove(&bench, &on_tainted);
    assert_eq!(bench.place(&waits), Some(Place::Unschedulable));
    remove(&bench, &on_other);
    assert_eq!(bench.settle(&mut scheduling), 1);
}

#[test]
fn a_pod_that_leaves_wakes_pods_that_can_preempt_the_others() {
    let bench = bench();
    let mut scheduling = bench.scheduling(1);
    bench.node("n", 4_000);
    let high = settled(&bench, &mut scheduling, cpu("high", 1_000).priority(9));
    let low = settled(&bench, &mut scheduling, cpu("low", 3_000));
    let waits = settled(&bench, &mut scheduling, cpu("waits", 4_000).priority(5));
    assert_eq!(bench.place(&waits), Some(Place::Unschedulable));
    remove(&bench, &high);
    for _ in 0..3 {
        bench.settle(&mut scheduling);
        bench.passes(11);
    }
    assert!(bench.snapshot().pod(&waits).is_some() && bench.snapshot().pod(&low).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// After any events, trying all waiting pods again places and evicts none.
    #[test]
    fn no_pod_misses_an_event_that_helps(
        steps in prop::collection::vec((0..8_u8, 0..8_usize, 0..4_usize), 1..60),
    ) {
        let bench = bench();
        let mut scheduling = bench.scheduling(1);
        let change = |name: &str, zone: &str, taint: bool, cordoned: bool| {
            let mut built = node(name).hostname().cpu(1_000).memory(64 << 30).zone(zone).unschedulable(cordoned);
            if taint {
                built = built.taint(Taint::new("gpu", "", TaintEffect::NoSchedule));
            }
            let event = Event::update_node(built.build());
            bench.engine.submit(event).unwrap().wait().unwrap().unwrap();
        };
        for name in ["n0", "n1", "n2"] {
            bench.node(name, 1_000);
            change(name, "z0", false, false);
        }
        let mut uids: Vec<Uid> = Vec::new();
        for (at, (step, with, other)) in steps.into_iter().enumerate() {
            match step {
                0..4 => {
                    let size = [100, 200, 300, 400, 500, 700, 900, 1_000][with];
                    let mut pod = cpu(format!("p{at}"), size).priority([0, 0, 5, 9][other]);
                    if with % 3 == 0 {
                        pod = pod.tolerate("gpu");
                    }
                    if with % 4 == 1 {
                        pod = pod.node_selector(Labels::new([("topology.kubernetes.io/zone", "z1")]));
                    }
                    uids.push(bench.pending(pod));
                }
                4 => change(["n0", "n1", "n2"][with % 3], ["z0", "z1"][other % 2], with > 5, other > 2),
                _ => {
                    let placed: Vec<_> = uids.iter().filter(|uid| bench.snapshot().pod(uid).is_some()).collect();
                    if let Some(uid) = placed.get(with) {
                        remove(&bench, uid);
                    }
                }
            }
            for _ in 0..4 {
                bench.passes(11);
                bench.settle(&mut scheduling);
            }
            let placed = |uids: &[Uid]| -> Vec<bool> {
                uids.iter().map(|uid| bench.snapshot().pod(uid).is_some()).collect()
            };
            let before = placed(&uids);
            for uid in &uids {
                bench.queue.with(|queue, _| queue.activate(uid, bench.clock()()));
            }
            bench.settle(&mut scheduling);
            prop_assert_eq!(before, placed(&uids), "step {}", at);
        }
    }
}
