//! The rules that the queue and the schedulers follow for gangs, with one test per rule.

use super::*;

#[test]
fn pods_are_gated_until_their_group_exists_and_is_complete() {
    let bench = Bench::with_node(4_000);
    let mut scheduling = bench.scheduling(1);
    let asked = || bench.gated("g", 0);

    let mut uids = bench.members("g", 2, 100);
    let unknown = "waiting for pods's pod group \"g\" to appear in scheduling queue";
    assert_eq!((asked().as_str(), bench.state("g")), (unknown, PodGroupState::Unknown));
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 2]);

    bench.gang("g", 3);
    let few = "waiting for minCount pods from a gang to appear in scheduling queue";
    assert_eq!((asked().as_str(), bench.state("g")), (few, PodGroupState::Pending));
    assert!(bench.attempt(&mut scheduling).is_none());

    uids.push(bench.pending(member("g", 2, 100)));
    assert_eq!(asked(), "");
    assert_eq!(bench.places(&uids), [Some(Place::Active); 3]);
    let (placed, failed) = bench.gang_attempt(&mut scheduling);
    assert_eq!((placed.len(), failed.len()), (3, 0));
    assert!(placed.iter().all(|placement| !placement.waits));
    assert_eq!(bench.state("g"), PodGroupState::Scheduled);
    assert_eq!(bench.bind_all(&mut scheduling, &placed), 3);
    assert_eq!(bench.places(&uids), [None; 3]);
}

#[test]
fn a_group_that_appears_last_releases_its_pods() {
    let bench = Bench::with_node(4_000);
    let uids = bench.members("g", 3, 100);
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 3]);
    bench.gang("g", 3);
    assert_eq!(bench.places(&uids), [Some(Place::Active); 3]);
}

#[test]
fn a_group_may_become_complete_when_its_minimum_decreases() {
    let bench = Bench::new();
    bench.gang("g", 3);
    let uids = bench.members("g", 2, 100);
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 2]);
    bench.gang("g", 2);
    assert_eq!(bench.places(&uids), [Some(Place::Active); 2]);
}

#[test]
fn pods_on_nodes_count_for_their_group() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 3);
    assert!(bench.submit(Event::AddPod(Arc::new(member("g", 7, 100).on("n").build()))));
    let uids = bench.members("g", 1, 100);
    assert_eq!(bench.places(&uids), [Some(Place::Gated)]);
    // A bound pod completes the group as well.
    assert!(bench.submit(Event::AddPod(Arc::new(member("g", 8, 100).on("n").build()))));
    assert_eq!(bench.places(&uids), [Some(Place::Active)]);
    assert_eq!(bench.status("g").placed, 2);
    assert_eq!(bench.settle(&mut bench.scheduling(1)), 1);
}

#[test]
fn pods_without_a_gang_are_scheduled_individually() {
    let bench = Bench::with_node(4_000);
    bench.gang("basic", 0);
    bench.members("basic", 2, 100);
    bench.pending(pod("single").cpu(100));
    let mut scheduling = bench.scheduling(1);
    for _ in 0..3 {
        let attempt = bench.attempt(&mut scheduling);
        assert!(matches!(attempt, Some(Attempt::Placed(_))), "{attempt:?}");
    }
    assert!(bench.attempt(&mut scheduling).is_none());
}

#[test]
fn a_gang_that_does_not_fit_backs_off_together() {
    let bench = Bench::with_node(1_000);
    bench.gang("g", 3);
    let uids = bench.members("g", 3, 400);
    let mut scheduling = bench.scheduling(1);
    let (placed, failed) = bench.gang_attempt(&mut scheduling);
    assert!(placed.is_empty());
    let texts: Vec<String> = failed.iter().map(|failure| failure.error.to_string()).collect();
    let feasible = "pod group is unschedulable, waiting for minCount pods from a gang to be \
                    scheduled, one or more plugins asked to wait and no plugin rejected pod";
    assert_eq!(texts.iter().filter(|text| *text == feasible).count(), 2);
    let own = texts.iter().filter(|text| text.starts_with("0/1 nodes are available: 1 Insuff"));
    assert_eq!(own.count(), 1, "{texts:?}");
    assert_eq!(bench.placed("g"), 0);
    assert_eq!(bench.places(&uids), [Some(Place::ErrorBackoff); 3]);
    assert!(bench.attempt(&mut scheduling).is_none(), "no pod is popped before its backoff ends");

    // The gang is retried as a whole after one, two and four seconds.
    for seconds in [1, 2, 4] {
        bench.passes(seconds - 1);
        assert!(bench.attempt(&mut scheduling).is_none());
        bench.passes(2);
        let (_, failed) = bench.gang_attempt(&mut scheduling);
        assert_eq!(failed.len(), 3);
    }
    bench.node("large", 4_000);
    bench.passes(20);
    assert_eq!(bench.settle(&mut scheduling), 3);
}

#[test]
fn members_beyond_the_minimum_fail_alone() {
    let bench = Bench::with_node(1_000);
    bench.gang("g", 2);
    let uids = bench.members("g", 3, 400);
    let mut scheduling = bench.scheduling(1);
    let (placed, failed) = bench.gang_attempt(&mut scheduling);
    assert_eq!((placed.len(), failed.len()), (2, 1));
    assert!(failed[0].error.fit().is_some());
    assert_eq!(failed[0].place, Some(Place::Unschedulable));
    bench.bind_all(&mut scheduling, &placed);
    let placed = bench.places(&uids).into_iter().filter(Option::is_none).count();
    assert_eq!(placed, 2);
    // Like any other pod, it waits for an event, and is scheduled individually.
    bench.node("more", 1_000);
    bench.passes(2);
    assert!(matches!(bench.attempt(&mut scheduling), Some(Attempt::Placed(_))));
}

#[test]
fn members_do_not_preempt_while_their_gang_is_incomplete() {
    let bench = Bench::new();
    bench.node("a", 1_000);
    bench.node("b", 1_000);
    let low = [bench.pending(pod("low-a").cpu(900)), bench.pending(pod("low-b").cpu(900))];
    let mut scheduling = bench.scheduling(1);
    assert_eq!(bench.settle(&mut scheduling), 2);
    bench.gang("g", 3);
    for n in 0..3 {
        bench.pending(member("g", n, 900).priority(9));
    }
    let (placed, failed) = bench.gang_attempt(&mut scheduling);
    assert!(placed.is_empty());
    assert!(
        failed.iter().all(|failure| bench.handle.nominator().node_of(&failure.pod.uid).is_none())
    );
    assert!(
        low.iter().all(|uid| bench.snapshot().pod(uid).is_some()),
        "no pod is preempted for nothing"
    );
    // Without a minimum left to reach, a member is scheduled like any other pod.
    bench.gang("g", 0);
    bench.passes(20);
    let attempt = bench.attempt(&mut scheduling);
    assert!(matches!(attempt, Some(Attempt::Failed(_))), "{attempt:?}");
    assert_eq!(low.iter().filter(|uid| bench.snapshot().pod(uid).is_none()).count(), 1);
}

#[test]
fn a_pod_added_during_an_attempt_of_its_gang_waits_for_it() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    bench.members("g", 2, 100);
    let popped = bench.queue.pop_together(None, bench.clock()).unwrap();
    assert_eq!(popped.siblings.len(), 1);
    let late = bench.pending(member("g", 2, 100));
    assert_eq!(bench.place(&late), Some(Place::Gated));
    assert_eq!(
        bench.gated("g", 2),
        "waiting for other pods of the pod group that are being scheduled"
    );
    assert_eq!(bench.status("g").in_flight, 2);
    for popped in popped.into_members() {
        bench.queue.with(|queue, _| queue.release(&popped.pod.uid));
    }
    bench.queue.tend(bench.clock());
    assert_eq!(bench.place(&late), Some(Place::Active));
}

#[test]
fn the_rank_of_a_gang_is_that_of_its_first_pod() {
    let bench = Bench::with_node(1_000);
    bench.gang("g", 2);
    bench.members("g", 1, 600);
    bench.passes(5);
    let single = bench.pending(pod("single").cpu(100));
    bench.passes(5);
    bench.pending(member("g", 1, 600));
    let mut scheduling = bench.scheduling(1);
    // The first pod of the gang is older than the single pod, and its second pod is younger.
    assert_eq!(bench.gang_attempt(&mut scheduling).1.len(), 2);
    bench.passes(5);
    let newer = bench.pending(pod("newer").cpu(100));
    bench.queue.tend(bench.clock());
    assert_eq!(bench.gang_attempt(&mut scheduling).1.len(), 2);
    // The gang does not block other pods while it backs off.
    assert_eq!(bench.settle(&mut scheduling), 2);
    assert!([single, newer].iter().all(|uid| bench.snapshot().pod(uid).is_some()));
}

#[test]
fn a_pod_of_higher_priority_precedes_a_gang() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    bench.members("g", 2, 100);
    bench.passes(5);
    bench.pending(pod("high").cpu(100).priority(1));
    let attempt = bench.attempt(&mut bench.scheduling(1));
    assert!(matches!(&attempt, Some(Attempt::Placed(placement)) if &*placement.pod.name == "high"));
}

#[test]
fn a_timed_out_group_waits_for_its_own_change_or_the_retry_period() {
    let bench = Bench::with_node(1_000);
    let timeout = Some(Duration::from_secs(60));
    bench.group(PodGroup { schedule_timeout: timeout, ..PodGroup::new("default", "g", 2) });
    let uids = bench.members("g", 2, 600);
    let mut scheduling = bench.scheduling(1);
    bench.gang_attempt(&mut scheduling);
    assert_eq!(bench.state("g"), PodGroupState::Pending);
    bench.passes(61);
    assert_eq!(bench.state("g"), PodGroupState::Timeout);
    // This is the last attempt before the group is held, whatever else happens.
    bench.gang_attempt(&mut scheduling);
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 2]);
    assert!(bench.status("g").held_until.is_some());
    assert_eq!(bench.gated("g", 0), "pod group \"g\" was not scheduled within 1m0s");
    bench.passes(20);
    bench.node("more", 1_000);
    assert!(bench.attempt(&mut scheduling).is_none());
    // The group is retried after the configured period.
    bench.passes(300);
    let (placed, _) = bench.gang_attempt(&mut scheduling);
    assert_eq!((placed.len(), bench.state("g")), (2, PodGroupState::Scheduled));
}

#[test]
fn a_timed_out_group_is_retried_when_it_gets_a_pod() {
    let bench = Bench::with_node(1_000);
    let timeout = Some(Duration::from_secs(60));
    bench.group(PodGroup { schedule_timeout: timeout, ..PodGroup::new("default", "g", 2) });
    let uids = bench.members("g", 2, 600);
    let mut scheduling = bench.scheduling(1);
    bench.passes(61);
    bench.gang_attempt(&mut scheduling);
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 2]);
    bench.pending(member("g", 2, 100));
    let (placed, failed) = bench.gang_attempt(&mut scheduling);
    assert_eq!((placed.len(), failed.len()), (2, 1));
}

fn in_phase(min_members: u32, phase: PodGroupPhase) -> PodGroup {
    PodGroup { phase: Some(phase), ..PodGroup::new("default", "g", min_members) }
}

#[test]
fn each_phase_maps_to_a_state() {
    use PodGroupPhase::{
        Failed, Finished, Pending, PreScheduling, Running, Scheduled, Timeout, Unknown,
    };
    let bench = Bench::new();
    for (phase, state) in [
        (Unknown, PodGroupState::Unknown),
        (Pending, PodGroupState::Pending),
        (PreScheduling, PodGroupState::Pending),
        (Scheduled, PodGroupState::Scheduled),
        (Running, PodGroupState::Scheduled),
        (Finished, PodGroupState::Scheduled),
        (Failed, PodGroupState::Scheduled),
        (Timeout, PodGroupState::Timeout),
    ] {
        bench.group(in_phase(2, phase));
        assert_eq!(bench.state("g"), state, "{phase:?}");
    }
}

#[test]
fn a_group_that_was_scheduled_once_admits_single_pods() {
    let bench = Bench::with_node(1_000);
    bench.group(in_phase(3, PodGroupPhase::PreScheduling));
    let uids = bench.members("g", 1, 600);
    assert_eq!(bench.places(&uids), [Some(Place::Gated)]);
    bench.group(in_phase(3, PodGroupPhase::Scheduled));
    assert_eq!(bench.places(&uids), [Some(Place::Active)]);
    let mut scheduling = bench.scheduling(1);
    let attempt = bench.attempt(&mut scheduling).unwrap();
    let Attempt::Placed(placed) = attempt else { panic!("{attempt:?}") };
    assert!(!placed.waits);
    assert_eq!(bench.bind_all(&mut scheduling, &[placed]), 1);
    // One of them fits. The other waits for resources, not for its group.
    let more: Vec<Uid> = (1..3).map(|n| bench.pending(member("g", n, 300))).collect();
    assert_eq!(bench.settle(&mut scheduling), 1);
    let places = bench.places(&more);
    assert!(places.contains(&None) && !places.contains(&Some(Place::Gated)), "{places:?}");
}

#[test]
fn a_group_whose_phase_is_timeout_is_held() {
    let bench = Bench::with_node(4_000);
    bench.group(in_phase(2, PodGroupPhase::Timeout));
    let uids = bench.members("g", 3, 100);
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 3]);
    assert_eq!(bench.gated("g", 0), "pod group \"g\" was not scheduled within 5m0s");
    bench.group(in_phase(2, PodGroupPhase::Pending));
    assert_eq!(bench.settle(&mut bench.scheduling(1)), 3);
}

/// Gödel's binder keeps the state, so that a later group of the same name counts as scheduled.
#[test]
fn the_state_of_a_group_is_removed_with_it() {
    let bench = Bench::with_node(4_000);
    bench.group(in_phase(2, PodGroupPhase::Running));
    assert_eq!(bench.state("g"), PodGroupState::Scheduled);
    bench.delete_group("g");
    assert_eq!(bench.state("g"), PodGroupState::Unknown);
    bench.gang("g", 2);
    assert_eq!(bench.state("g"), PodGroupState::Pending);
    let uids = bench.members("g", 1, 100);
    assert_eq!(bench.places(&uids), [Some(Place::Gated)]);
}

#[test]
fn a_gang_of_several_schedulers_is_an_error() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    bench.pending(member("g", 0, 100));
    let other = member("g", 1, 100).scheduler_name("other");
    bench.pending(other);
    let (placed, failed) = bench.gang_attempt(&mut bench.scheduling(1));
    assert!(placed.is_empty());
    for failed in failed {
        let text = failed.error.to_string();
        assert!(
            text.starts_with("pod group is unschedulable, members name the schedulers"),
            "{text}"
        );
        assert_eq!(failed.place, Some(Place::ErrorBackoff));
    }
}

#[test]
fn pods_of_a_deleted_group_wait_for_it() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    let uids = bench.members("g", 2, 100);
    assert_eq!(bench.places(&uids), [Some(Place::Active); 2]);
    bench.delete_group("g");
    let mut scheduling = bench.scheduling(1);
    assert!(bench.attempt(&mut scheduling).is_none());
    assert_eq!(bench.places(&uids), [Some(Place::Gated); 2]);
    // Scheduling a member directly is rejected with the reason.
    let mut scheduler = Scheduler::new(bench.engine.clone(), bench.decider(1)).unwrap();
    let pod = Arc::new(member("g", 0, 100).build());
    let error = scheduler.schedule(&pod, bench.clock()()).unwrap_err();
    let fit = error.fit().expect("a rejection");
    assert_eq!(fit.unschedulable_plugins, ["GangScheduling"].into());
    assert_eq!(bench.placed("g"), 0);
    bench.gang("g", 2);
    assert_eq!(bench.settle(&mut scheduling), 2);
}

#[test]
fn a_gang_that_loses_a_pod_is_gated_again() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    let uids = bench.members("g", 2, 100);
    assert!(bench.submit(Event::RemovePending(uids[0].clone())));
    let mut scheduling = bench.scheduling(1);
    assert!(bench.attempt(&mut scheduling).is_none());
    assert_eq!(bench.places(&uids), [None, Some(Place::Gated)]);
    bench.pending(member("g", 2, 100));
    assert_eq!(bench.settle(&mut scheduling), 2);
}

#[test]
fn a_terminating_member_does_not_delay_the_others() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    bench.members("g", 2, 100);
    let going = bench.pending(member("g", 2, 100).deleted(Timestamp(1)));
    let (placed, failed) = bench.gang_attempt(&mut bench.scheduling(1));
    assert_eq!((placed.len(), failed.len()), (2, 0));
    assert_eq!(bench.place(&going), None);
}

#[test]
fn a_member_that_cannot_be_bound_is_retried_alone() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    let uids = bench.members("g", 2, 100);
    let mut scheduling = bench.scheduling(1);
    let (placed, _) = bench.gang_attempt(&mut scheduling);
    bench.fails.store(true, Ordering::Relaxed);
    assert_eq!(bench.bind_all(&mut scheduling, &placed[..1]), 0);
    bench.fails.store(false, Ordering::Relaxed);
    assert_eq!(bench.bind_all(&mut scheduling, &placed[1..]), 1);
    assert_eq!(bench.placed("g"), 1);
    bench.passes(3);
    assert_eq!(bench.settle(&mut scheduling), 1);
    assert!(uids.iter().all(|uid| bench.snapshot().pod(uid).is_some()));
}

#[test]
fn an_already_assumed_member_does_not_stop_the_others() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 3);
    let uids = bench.members("g", 3, 100);
    // Another scheduler assumes one member, of which the queue is not notified.
    let taken = member("g", 0, 100).on("n").build();
    assert!(bench.submit(Event::assume(taken)));
    let mut scheduling = bench.scheduling(1);
    let (placed, failed) = bench.gang_attempt(&mut scheduling);
    assert!(placed.is_empty());
    let (done, requeued): (Vec<_>, Vec<_>) =
        failed.iter().partition(|failure| failure.place.is_none());
    assert_eq!((done.len(), requeued.len()), (1, 2));
    let known = Failure::Refused(EventError::AlreadyInCache { uid: uids[0].clone() });
    assert_eq!(done[0].error, known);
    bench.passes(3);
    assert_eq!(bench.settle(&mut scheduling), 2);
    assert_eq!(bench.placed("g"), 3);
}

#[test]
fn members_placed_one_by_one_wait_for_each_other() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 3);
    let mut scheduler = Scheduler::new(bench.engine.clone(), bench.decider(1)).unwrap();
    let mut place = |n: usize| {
        let pod = Arc::new(member("g", n, 100).build());
        scheduler.schedule(&pod, bench.clock()()).unwrap()
    };
    let (first, second) = (place(0), place(1));
    assert!(first.waits && second.waits);
    let waiting = bench.handle.waiting_pods();
    let deadline = waiting.get(&first.pod.uid).and_then(|waiting| waiting.deadline());
    assert_eq!(deadline, Some(Timestamp::from_secs(1_300)), "the default is five minutes");
    let third = place(2);
    assert!(!third.waits);
    for placement in [first, second] {
        let outcome = waiting.get(&placement.pod.uid).unwrap().outcome(bench.clock()());
        assert_eq!(outcome, Some(Ok(())));
    }
}

#[test]
fn a_waiting_member_activates_its_siblings() {
    let bench = Bench::with_node(4_000);
    bench.gang("g", 2);
    bench.gang("h", 2);
    let uids = bench.members("g", 2, 100);
    // One member is popped individually, and fails with an error.
    let popped = bench.queue.pop(None, bench.clock()).unwrap().pod;
    let (sibling, popped) = (uids.iter().find(|uid| **uid != popped.uid).unwrap(), popped);
    let failed = |uid: &Uid| {
        let none = portolan::plugin::PluginSet::EMPTY;
        let now = bench.clock()();
        bench.queue.with(|queue, version| {
            queue.add_unschedulable_if_not_present(uid, none, none, version, now).unwrap()
        })
    };
    assert_eq!(failed(&popped.uid), Some(Place::ErrorBackoff));
    assert_eq!(bench.place(sibling), Some(Place::Active));
    let mut scheduler = Scheduler::new(bench.engine.clone(), bench.decider(1)).unwrap();
    let pod = Arc::new(member("g", 7, 100).build());
    assert!(scheduler.schedule(&pod, bench.clock()()).unwrap().waits);
    bench.queue.tend(bench.clock());
    assert_eq!(bench.place(&popped.uid), Some(Place::Active));
}

#[test]
fn a_gang_returns_completely_if_another_took_its_resources() {
    let bench = Bench::new();
    for n in 0..4 {
        bench.node(&format!("n{n}"), 1_000);
    }
    for gang in ["a", "b"] {
        bench.gang(gang, 3);
        bench.members(gang, 3, 900);
    }
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let mut scheduling = bench.scheduling(seed);
            let bench = &bench;
            scope.spawn(move || bench.settle(&mut scheduling));
        }
    });
    let mut placed = [bench.placed("a"), bench.placed("b")];
    placed.sort_unstable();
    assert_eq!(placed, [0, 3]);
}

#[test]
fn loops_of_several_threads_never_split_a_gang() {
    let bench = Bench::new();
    for n in 0..8 {
        bench.node(&format!("n{n}"), 1_000);
    }
    for gang in 0..12 {
        let name = format!("g{gang}");
        bench.gang(&name, 5);
        bench.members(&name, 5, 100);
    }
    let bound: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|seed| {
                let mut scheduling = bench.scheduling(seed);
                let bench = &bench;
                scope.spawn(move || bench.settle(&mut scheduling))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(bound, 60);
}

/// The binder sets the status of a unit after binding its pods (`SetUnitSchedulingStatus`), before the controller does.
/// An update of the group's object replaces the status (unit_status_store.go `UpdatePodGroup`).
#[test]
fn a_status_set_by_the_binder_holds_until_the_group_is_updated() {
    let bench = Bench::with_node(4_000);
    let set = |name: &str| {
        bench.submit(Event::SetGroupPhase {
            namespace: "default".into(),
            name: name.into(),
            phase: PodGroupPhase::Scheduled,
        })
    };
    assert!(!set("g"), "the group does not exist");
    bench.group(in_phase(3, PodGroupPhase::PreScheduling));
    let uids = bench.members("g", 3, 100);
    let mut scheduling = bench.scheduling(1);
    assert_eq!(bench.settle(&mut scheduling), 3);
    for uid in &uids[1..] {
        bench.remove(uid);
    }
    assert_eq!(bench.state("g"), PodGroupState::Pending);
    let next = [bench.pending(member("g", 3, 100))];
    assert_eq!(bench.places(&next), [Some(Place::Gated)]);

    assert!(set("g"));
    assert_eq!(bench.state("g"), PodGroupState::Scheduled);
    assert_eq!(bench.settle(&mut scheduling), 1, "the group was scheduled once");
    assert_eq!(bench.placed("g"), 2);
    assert_eq!(bench.snapshot().audit(), vec![]);

    bench.group(in_phase(3, PodGroupPhase::PreScheduling));
    assert_eq!(bench.state("g"), PodGroupState::Pending);
}

/// The binder sets the status of a unit once its pods are bound. kube-scheduler has no such status.
#[test]
fn a_group_with_enough_bound_pods_stays_scheduled_until_it_is_updated() {
    for godel in [None, Some(GodelConfig { unit_status: true, ..GodelConfig::new("godel") })] {
        let sticks = godel.is_some();
        let mut writer = Engine::inline(Config { godel, ..Config::default() }).0;
        writer.add_node(node("n").cpu(4_000).memory(16 << 30).build()).unwrap();
        writer.put_object(in_phase(2, PodGroupPhase::PreScheduling)).unwrap();
        let members = [0, 1, 2].map(|n| member("g", n, 100).on("n").build());
        writer.apply(&Event::assume_all(members.clone())).unwrap();
        let phase = |writer: &Writer| {
            let group = writer.cluster().objects().pod_groups.get("default", "g").unwrap();
            group.phase
        };
        let early = Some(PodGroupPhase::PreScheduling);
        let now = Timestamp::from_secs(0);
        writer.apply(&Event::finish_binding(&members[0].uid, now)).unwrap();
        writer.apply(&Event::finish_binding(&members[0].uid, now)).unwrap();
        assert_eq!(phase(&writer), early, "one of two is bound");
        // This member is confirmed before its binding finishes, and counts as bound nevertheless.
        writer.add_pod(members[1].clone()).unwrap();
        writer.apply(&Event::finish_binding(&members[1].uid, now)).unwrap();
        assert_eq!(phase(&writer), if sticks { Some(PodGroupPhase::Scheduled) } else { early });
        for member in &members {
            writer.remove_pod(member).unwrap();
        }
        let state = |writer: &Writer| writer.cluster().group_state("default", "g");
        let stays = if sticks { PodGroupState::Scheduled } else { PodGroupState::Pending };
        assert_eq!(state(&writer), stays);
        assert_eq!(writer.cluster().audit(), vec![]);
        writer.put_object(in_phase(2, PodGroupPhase::PreScheduling)).unwrap();
        assert_eq!(state(&writer), PodGroupState::Pending);
    }
}

/// A writer that stores the statuses of units, with the pending group `g` of two pods.
fn godel_writer() -> Writer {
    let godel = Some(GodelConfig { unit_status: true, ..GodelConfig::new("godel") });
    let commit_check = CommitPolicy::Unchecked;
    let mut writer = Engine::inline(Config { godel, commit_check, ..Config::default() }).0;
    writer.put_object(in_phase(2, PodGroupPhase::Pending)).unwrap();
    writer
}

/// A member of `g` that another scheduler has assumed on `n`.
fn assumed_elsewhere(n: usize) -> Pod {
    let annotated = GodelPod {
        state: "assumed".into(),
        selected_scheduler: Some("s".into()),
        assumed_node: Some("n".into()),
        ..GodelPod::default()
    };
    member("g", n, 100).spec(|spec| spec.godel = Some(Box::new(annotated))).build()
}

/// This also holds if the pod was assumed here and its object does not say that it is bound.
#[test]
fn an_assumed_member_does_not_count_as_bound() {
    for here in [false, true] {
        let mut writer = godel_writer();
        let [bound, late] = [0, 1].map(|n| member("g", n, 100).on("n").build());
        let assumed = assumed_elsewhere(1);
        if here {
            writer.assume_pod(assumed.clone().on("n")).unwrap();
        }
        writer.add_pod(assumed).unwrap();
        writer.add_pod(bound.clone()).unwrap();
        let finish = |writer: &mut Writer| {
            writer.apply(&Event::finish_binding(&bound.uid, Timestamp::from_secs(0))).unwrap();
            writer.cluster().objects().pod_groups.get("default", "g").unwrap().phase
        };
        assert_eq!(finish(&mut writer), Some(PodGroupPhase::Pending));
        writer.update_pod(&late.uid, late.clone()).unwrap();
        assert_eq!(finish(&mut writer), Some(PodGroupPhase::Scheduled));
    }
}

#[test]
fn a_member_that_another_scheduler_assumed_is_still_unbound_after_a_rebuild() {
    let mut writer = godel_writer();
    writer.add_pod(assumed_elsewhere(0)).unwrap();
    let here = member("g", 1, 100).on("n").build();
    writer.assume_pod(here.clone()).unwrap();
    assert_eq!(writer.rebuild().differences, []);
    writer.apply(&Event::finish_binding(&here.uid, Timestamp::from_secs(0))).unwrap();
    let phase = writer.cluster().objects().pod_groups.get("default", "g").unwrap().phase;
    assert_eq!(phase, Some(PodGroupPhase::Pending), "one of two is bound");
}

#[test]
fn a_member_that_another_scheduler_assumed_is_still_unbound_in_an_engine_that_begins_with_a_version()
 {
    let mut writer = godel_writer();
    writer.add_pod(assumed_elsewhere(0)).unwrap();
    let commit_check = CommitPolicy::Unchecked;
    let engine = Engine::at(writer.cluster(), Config { commit_check, ..Config::default() });
    let here = member("g", 1, 100).on("n").build();
    let phase = |event: Event| {
        engine.submit(event).unwrap().wait().unwrap().unwrap();
        let snapshot = engine.reader().unwrap().snapshot();
        snapshot.objects().pod_groups.get("default", "g").unwrap().phase
    };
    phase(Event::assume(here.clone()));
    let finished = || Event::finish_binding(&here.uid, Timestamp::from_secs(0));
    assert_eq!(phase(finished()), Some(PodGroupPhase::Pending), "one of two is bound");
    phase(Event::update_pod(&assumed_elsewhere(0).uid, member("g", 0, 100).on("n").build()));
    assert_eq!(phase(finished()), Some(PodGroupPhase::Scheduled));
}
