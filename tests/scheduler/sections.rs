//! Several schedulers on one engine: each begins its searches in a section of the nodes, and all of them place every pod
//! that fits somewhere.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan::cache::{Config, Engine, Event};
use portolan::model::{Labels, Pod, Timestamp, node, pod};
use portolan::plugin::{Cycle, CycleState, Partition};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework, Profiles, Scheduler};
use portolan_testkit::random::Random;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(0);
const HOSTNAME: &str = "kubernetes.io/hostname";

fn submit(engine: &Engine, event: Event) {
    engine.submit(event).unwrap().wait().unwrap().unwrap();
}

fn add_node(engine: &Engine, name: &str, zone: u64) {
    let built = node(name).zone(format!("z{zone}")).hostname().cpu(1_000).memory(1 << 30).pods(110);
    submit(engine, Event::add_node(built.build()));
}

fn algorithm(percentage_of_nodes: u8) -> Algorithm {
    let config = AlgorithmConfig { percentage_of_nodes, ..AlgorithmConfig::default() };
    Algorithm::new(Framework::default_profile(), config, None)
}

fn scheduler(engine: &Engine) -> Scheduler {
    Scheduler::new(engine.clone(), Profiles::one(algorithm(1))).unwrap()
}

/// Returns the number in a node's name.
fn position(name: &str) -> usize {
    name[1..].parse().unwrap()
}

#[test]
fn single_pods_and_gangs_are_placed_in_the_section_of_their_scheduler() {
    let engine = Engine::shared(Config::default());
    for n in 0..600 {
        let node = node(format!("n{n}")).cpu(1_000).memory(1 << 30).pods(110).build();
        submit(&engine, Event::add_node(node));
    }
    let mut schedulers = [scheduler(&engine), scheduler(&engine)];
    for (scheduler, section) in schedulers.iter_mut().zip([0..300, 300..600]) {
        // The first call of a scheduler is a gang's: it takes the section by itself.
        let pods = [0, 1, 2].map(|n| Arc::new(pod(format!("g{n}-{section:?}")).cpu(1_000).build()));
        let gang = scheduler.schedule_gang(&pods, 3, NOW).unwrap();
        for of in gang.placed {
            assert!(section.contains(&position(of.node())));
            of.keep_assumed();
        }
    }
    let [mut first, second] = schedulers;
    drop(second);
    let mut second = scheduler(&engine);
    for (scheduler, section) in [(&mut second, 300..600), (&mut first, 0..300)] {
        let pod = Arc::new(pod(format!("p-{section:?}")).cpu(1_000).build());
        let placed = scheduler.schedule(&pod, NOW).unwrap();
        assert!(section.contains(&position(placed.node())), "{}", placed.node());
    }
}

#[test]
fn the_decision_node_by_node_is_that_of_the_next_cycle() {
    let engine = Engine::shared(Config::default());
    for n in 0..600 {
        let node = node(format!("n{n}")).cpu(1_000 + n).memory(1 << 30).pods(110).build();
        submit(&engine, Event::add_node(node));
    }
    let (mut first, mut second) = (scheduler(&engine), scheduler(&engine));
    // A scheduler that joins changes the sections of the others.
    for round in 0..3 {
        for scheduler in [&mut second, &mut first] {
            let pod =
                Arc::new(pod(format!("p{}", engine.figures().unwrap().published)).cpu(900).build());
            let snapshot = scheduler.reader().snapshot();
            let state = CycleState::default();
            let by_nodes = scheduler.decide_by_nodes(Cycle::new(&snapshot, &pod, &state));
            let placed = scheduler.schedule(&pod, NOW).unwrap();
            assert_eq!(by_nodes, Some(Ok(placed.decision.clone())), "{round}");
            placed.keep_assumed();
        }
        std::mem::forget(scheduler(&engine));
    }
}

#[test]
fn a_section_does_not_move_the_start_in_the_nodes_of_a_share() {
    let engine = Engine::shared(Config::default());
    for n in 0..900 {
        let node = node(format!("n{n}")).cpu(1_000 + n).memory(1 << 30).pods(110).build();
        submit(&engine, Event::add_node(node));
    }
    let of = NonZeroU32::new(2).unwrap();
    let share = || algorithm(1).with_partition(Partition::Share { index: 0, of });
    let (mut alone, mut beside) = (share(), share());
    beside.set_section(3, NonZeroU32::new(4).unwrap());
    let snapshot = engine.reader().unwrap().snapshot();
    for n in 0..8 {
        let pod = pod(format!("p{n}")).cpu(1_000).build();
        assert_eq!(alone.schedule(&snapshot, &pod), beside.schedule(&snapshot, &pod));
    }
}

#[test]
fn more_schedulers_than_seats_and_nodes_place_all_pods_that_fit() {
    for nodes in [1, 2, 69, 70, 71, 300] {
        let engine = Engine::shared(Config::default());
        let mut schedulers: Vec<Scheduler> = (0..70).map(|_| scheduler(&engine)).collect();
        let place = |scheduler: &mut Scheduler| {
            let name = format!("p{}", engine.figures().unwrap().published);
            scheduler.schedule(&Arc::new(pod(name).cpu(500).build()), NOW)
        };
        let empty = place(&mut schedulers[69]);
        assert!(matches!(empty, Err(Failure::NoNodes)), "{empty:?}");
        (0..nodes).for_each(|n| add_node(&engine, &format!("n{n}"), n % 3));
        for n in 0..2 * nodes as usize {
            // Schedulers with and without a seat end, and others take their places.
            if n % 5 == 0 {
                drop(schedulers.swap_remove(n * 31 % schedulers.len()));
            }
            if n % 7 == 0 {
                schedulers.push(scheduler(&engine));
            }
            let at = n * 13 % schedulers.len();
            place(&mut schedulers[at]).unwrap().keep_assumed();
        }
        for scheduler in &mut schedulers {
            assert!(place(scheduler).unwrap_err().fit().is_some());
        }
        let snapshot = engine.reader().unwrap().snapshot();
        assert!(snapshot.nodes().all(|node| node.requested().cpu.0 == 1_000));
    }
}

#[test]
fn schedulers_that_come_and_go_on_threads_place_every_pod_that_fits() {
    const NODES: usize = 240;
    let engine = Engine::shared(Config::default());
    (0..NODES).for_each(|n| add_node(&engine, &format!("n{n}"), n as u64 % 3));
    let next = AtomicUsize::new(0);
    let failures = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (engine, next, failures) = (&engine, &next, &failures);
            scope.spawn(move || {
                let mut own = scheduler(engine);
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= 4 * NODES {
                        return;
                    }
                    if n % 11 == thread {
                        own = scheduler(engine);
                    }
                    // Half of the pods fit on one node only.
                    let mut built = pod(format!("p{n}")).cpu(250);
                    if n < 2 * NODES {
                        let only = format!("n{}", n % NODES);
                        built = built.node_selector(Labels::new([(HOSTNAME, only.as_str())]));
                    }
                    match own.schedule(&Arc::new(built.build()), NOW) {
                        Ok(placed) => drop(placed.keep_assumed()),
                        Err(_) => drop(failures.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    // A pod with a node of its own may come after others have filled that node.
    let snapshot = engine.reader().unwrap().snapshot();
    assert!(snapshot.nodes().all(|node| node.requested().cpu.0 <= 1_000));
    assert_eq!(snapshot.pod_count() + failures.load(Ordering::Relaxed), 4 * NODES);
    assert_eq!(engine.with_writer(|writer| writer.cluster().audit()).unwrap(), vec![]);
    // Every pod without a node of its own finds the free places.
    let free: i64 = snapshot.nodes().map(|node| 1_000 - node.requested().cpu.0).sum();
    let mut last = scheduler(&engine);
    let rest: Vec<Arc<Pod>> =
        (0..free / 250 + 1).map(|n| Arc::new(pod(format!("r{n}")).cpu(250).build())).collect();
    let placed = last.schedule_batch(&rest, NOW);
    assert_eq!(placed.iter().filter(|placed| placed.is_ok()).count() as i64, free / 250);
}

/// Nodes, pods and schedulers come and go. A pod that is not placed fits on no node, and each decision is the one that is
/// found node by node.
fn every_pod_that_fits_is_placed(seed: u64, most: u64) -> Result<(), TestCaseError> {
    let mut random = Random::new(seed);
    let engine = Engine::shared(Config::default());
    let mut schedulers = vec![scheduler(&engine)];
    let (mut nodes, mut placed): (Vec<u64>, Vec<Pod>) = (Vec::new(), Vec::new());
    for round in 0..60 {
        match random.below(6) {
            0 | 1 => {
                for _ in 0..random.below(most) + 1 {
                    let n = random.below(2 * most);
                    if !nodes.contains(&n) {
                        nodes.push(n);
                        add_node(&engine, &format!("n{n}"), random.below(3));
                    }
                }
            }
            2 if random.below(2) == 0 => {
                for _ in 0..random.below(most) + 1 {
                    if nodes.is_empty() {
                        break;
                    }
                    let gone = nodes.swap_remove(random.below(nodes.len() as u64) as usize);
                    submit(&engine, Event::RemoveNode(format!("n{gone}").into()));
                    let name = format!("n{gone}");
                    placed.retain(|pod| {
                        let stays = pod.node_name.as_deref() != Some(&*name);
                        if !stays {
                            submit(&engine, Event::forget(pod));
                        }
                        stays
                    });
                }
            }
            3 => schedulers.extend((0..random.below(4)).map(|_| scheduler(&engine))),
            4 if schedulers.len() > 1 => {
                let at = random.below(schedulers.len() as u64) as usize;
                drop(schedulers.swap_remove(at));
            }
            _ => {}
        }
        let at = random.below(schedulers.len() as u64) as usize;
        let own = &mut schedulers[at];
        let new = |n: u64, random: &mut Random| {
            let built =
                pod(format!("p{round}-{n}")).cpu([100, 500, 1_000][random.below(3) as usize]);
            match random.below(3) {
                0 => {
                    let only = format!("n{}", random.below(2 * most));
                    built.node_selector(Labels::new([(HOSTNAME, only.as_str())])).build()
                }
                _ => built.build(),
            }
        };
        let pods: Vec<Arc<Pod>> =
            (0..random.below(6) + 1).map(|n| Arc::new(new(n, &mut random))).collect();
        let fits = |pod: &Pod| {
            let snapshot = engine.reader().unwrap().snapshot();
            algorithm(100).schedule(&snapshot, pod).is_ok()
        };
        match random.below(3) {
            0 => {
                for pod in &pods {
                    let snapshot = own.reader().snapshot();
                    let state = CycleState::default();
                    let by_nodes = own.decide_by_nodes(Cycle::new(&snapshot, pod, &state)).unwrap();
                    match own.schedule(pod, NOW) {
                        Ok(of) => {
                            prop_assert_eq!(by_nodes, Ok(of.decision.clone()));
                            placed.push(Pod::clone(&of.keep_assumed()));
                        }
                        Err(error) => {
                            prop_assert!(!fits(pod), "{} {:?}", error, by_nodes);
                            prop_assert!(by_nodes.is_err());
                        }
                    }
                }
            }
            1 => {
                let results = own.schedule_batch(&pods, NOW);
                for (result, pod) in results.into_iter().zip(&pods) {
                    match result {
                        Ok(of) => placed.push(Pod::clone(&of.keep_assumed())),
                        Err(error) => prop_assert!(!fits(pod), "{}", error),
                    }
                }
            }
            _ => {
                let gang = own.schedule_gang(&pods, 1, NOW);
                match gang {
                    Ok(gang) => {
                        let kept = gang.placed.into_iter().map(|of| of.keep_assumed());
                        placed.extend(kept.map(|pod| Pod::clone(&pod)));
                        for (n, error) in &gang.left_over {
                            prop_assert!(!fits(&pods[*n]), "{}", error);
                        }
                    }
                    Err(error) => prop_assert!(pods.iter().all(|pod| !fits(pod)), "{}", error),
                }
            }
        }
        let snapshot = engine.reader().unwrap().snapshot();
        prop_assert!(snapshot.nodes().all(|node| node.requested().cpu.0 <= 1_000));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_pod_that_is_not_placed_fits_on_no_node(
        seed in any::<u64>(),
        most in prop_oneof![Just(1_u64), Just(2), Just(20), Just(150)],
    ) {
        every_pod_that_fits_is_placed(seed, most)?;
    }
}
