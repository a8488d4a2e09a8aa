//! Loops on several threads take batches from one queue, while nodes, pods and the queue change.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portolan::cache::{Engine, Event, Snapshot};
use portolan::model::{
    LabelSelector, Object, Pod, PodAffinity, PodAffinityTerm, PodBuilder, PodGroup, Timestamp,
    TopologySpreadConstraint, UnsatisfiableAction, node, pod,
};
use portolan::scheduler::queue::PopError;
use portolan::{Attempt, Placement, Schedulers, SchedulingLoop};
use portolan_testkit::draw::Draw;

fn submit(engine: &Engine, event: Event) -> bool {
    engine.submit(event).unwrap().wait().unwrap().is_ok()
}

fn term(app: &str, key: &str) -> PodAffinity {
    let term = PodAffinityTerm {
        topology_key: key.into(),
        selector: LabelSelector::from_labels([("app", app)]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    PodAffinity { required: Box::new([term]), ..PodAffinity::default() }
}

fn spread(pod: PodBuilder, app: &str, skew: i32, key: &str) -> PodBuilder {
    let constraint = TopologySpreadConstraint {
        max_skew: skew,
        topology_key: key.into(),
        when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
        selector: LabelSelector::from_labels([("app", app)]),
        min_domains: None,
        honor_node_affinity: true,
        honor_node_taints: false,
        match_label_keys: Box::default(),
    };
    pod.label("app", app).spec(|spec| spec.topology_spread = Box::new([constraint.clone()]))
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn a_node(n: usize) -> portolan::model::Node {
    node(format!("n{n}"))
        .hostname()
        .zone(format!("z{}", n % 3))
        .cpu(2_000)
        .memory(8 << 30)
        .pods(1_000)
        .build()
}

fn make(kind: u64, n: usize) -> Pod {
    let new = pod(format!("p{n}")).cpu(100 + (n as i64 % 7)).memory(1 << 24);
    match kind {
        0 => spread(new, "spread", 1, ZONE).build(),
        1 => new.label("app", "lonely").pod_anti_affinity(term("lonely", HOST)).build(),
        2 => new.label("app", "herd").pod_affinity(term("herd", ZONE)).build(),
        3 => new.label("app", "guest").pod_affinity(term("seed", ZONE)).build(),
        4 => new.label("app", "wall").pod_anti_affinity(term("plain", HOST)).build(),
        5 => spread(new, "hosts", 2, HOST).build(),
        _ => new.label("app", "plain").build(),
    }
}

/// The pods of each app by zone or host.
fn by(cluster: &Snapshot, app: &str, host: bool) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for node in cluster.nodes() {
        let key = match host {
            true => node.name().to_string(),
            false => node.node().unwrap().labels.get(ZONE).unwrap().to_string(),
        };
        let count = node
            .pods()
            .filter(|p| p.template().labels.get("app").is_some_and(|it| it == app))
            .count();
        *found.entry(key).or_insert(0) += count;
    }
    found
}

/// Leaves the placed pods assumed, and returns their number.
fn kept(attempts: Vec<Attempt>) -> usize {
    let placed = attempts.into_iter().flat_map(|attempt| attempt.into_parts().0);
    placed.map(Placement::keep_assumed).collect::<Vec<_>>().len()
}

fn run(
    scheduling: &mut SchedulingLoop,
    most: usize,
    stop: &AtomicBool,
    bound: &Mutex<Vec<String>>,
    time: &(impl Fn() -> Timestamp + Sync),
) {
    let most = NonZeroUsize::new(most).unwrap();
    loop {
        let deadline = Instant::now() + Duration::from_millis(20);
        match scheduling.schedule_batch(most, Some(deadline), time) {
            Ok(attempts) => {
                for attempt in attempts {
                    for placement in attempt.into_parts().0 {
                        if scheduling.bind(&placement, time).is_ok() {
                            bound.lock().unwrap().push(placement.pod.uid.to_string());
                        }
                    }
                }
            }
            Err(PopError::Timeout) if stop.load(Ordering::SeqCst) => return,
            Err(PopError::Timeout) => {}
            Err(_) => return,
        }
    }
}

fn storm(bits: u64, threads: usize, churn: bool) {
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    let mut draw = Draw::from(bits);
    let nodes = [40, 300][bits as usize % 2];
    for n in 0..nodes {
        assert!(submit(engine, Event::add_node(a_node(n))));
    }
    for n in [0, 1] {
        assert!(submit(
            engine,
            Event::add_pod(
                pod(format!("seed{n}")).label("app", "seed").on(format!("n{n}")).build()
            )
        ));
    }
    let start = Instant::now();
    // Backoff of seconds passes in milliseconds.
    let time = || Timestamp(i64::try_from(start.elapsed().as_nanos()).unwrap() * 100);
    let (stop, bound) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mosts = [1, 7, 64, usize::MAX, 16, 33];
    const PODS: usize = 1500;
    let mut removed = BTreeSet::new();
    std::thread::scope(|scope| {
        for n in 0..threads {
            let mut scheduling = schedulers.scheduling_loop().unwrap();
            let (stop, bound, time) = (&stop, &bound, &time);
            let most = mosts[n % mosts.len()];
            std::thread::Builder::new()
                .name(format!("loop{n}"))
                .spawn_scoped(scope, move || run(&mut scheduling, most, stop, bound, time))
                .unwrap();
        }
        for n in 0..PODS {
            let kind = draw.below(9);
            assert!(submit(engine, Event::put_pending(make(kind, n))));
            if draw.one_in(4) {
                let at = draw.below(nodes as u64);
                let plain =
                    pod(format!("beside{n}")).label("app", "other").on(format!("n{at}")).build();
                submit(engine, Event::add_pod(plain));
            }
            if churn && draw.one_in(6) {
                let at = draw.below(nodes as u64) as usize;
                if draw.one_in(2) {
                    submit(engine, Event::RemoveNode(format!("n{at}").into()));
                } else {
                    submit(engine, Event::add_node(a_node(at)));
                }
            }
            if churn && draw.one_in(5) {
                let at = draw.below(n as u64 + 1) as usize;
                let uid = make(6, at).uid;
                removed.insert(uid.to_string());
                submit(engine, Event::RemovePending(uid.clone()));
                submit(engine, Event::RemovePod { uid, node: None });
            }
        }
        let until = Instant::now() + Duration::from_secs(if churn { 3 } else { 6 });
        let mut last = (0, Instant::now());
        while Instant::now() < until {
            let now = bound.lock().unwrap().len();
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > Duration::from_millis(800) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let cluster = engine.reader().unwrap().snapshot();
    assert_eq!(cluster.audit(), vec![]);
    assert_eq!(engine.with_writer(|writer| writer.rebuild().differences).unwrap(), vec![]);
    let bound = bound.into_inner().unwrap();
    let unique: BTreeSet<&String> = bound.iter().collect();
    assert_eq!(unique.len(), bound.len(), "bound twice");
    let mut on = BTreeMap::new();
    for node in cluster.nodes() {
        assert!(node.requested().cpu.0 <= 2_000 || churn, "{}", node.name());
        for pod in node.pods() {
            assert!(on.insert(pod.uid().to_string(), node.name().clone()).is_none());
        }
    }
    if churn {
        return;
    }
    for uid in &bound {
        assert!(on.contains_key(uid), "{uid} was lost");
    }
    let zones = by(&cluster, "spread", false);
    assert!(zones.values().max().unwrap() - zones.values().min().unwrap() <= 1, "{zones:?}");
    let hosts = by(&cluster, "hosts", true);
    assert!(hosts.values().max().unwrap() - hosts.values().min().unwrap() <= 2, "{hosts:?}");
    assert!(by(&cluster, "lonely", true).values().all(|count| *count <= 1));
    assert!(
        by(&cluster, "herd", false).values().filter(|count| **count > 0).count() <= 1,
        "{:?}",
        by(&cluster, "herd", false)
    );
    assert_eq!(by(&cluster, "guest", false)["z2"], 0);
    let (walls, plain) = (by(&cluster, "wall", true), by(&cluster, "plain", true));
    for (host, count) in &walls {
        assert!(*count == 0 || plain[host] == 0, "{host}");
    }
}

#[test]
fn storms_break_no_rule() {
    let rounds = std::env::var("STORMS").ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    for round in 0..rounds {
        storm(round * 7 + 1, 3 + (round as usize % 3) * 4, false);
    }
}

#[test]
fn storms_with_churn_keep_the_sums() {
    let rounds = std::env::var("STORMS").ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    for round in 0..rounds {
        storm(round * 11 + 3, 2 + (round as usize % 4) * 4, true);
    }
}

#[test]
fn a_queue_that_closes_while_a_batch_is_taken_loses_no_pod() {
    for close_at in 1..12 {
        let schedulers = Schedulers::builder().build().unwrap();
        let engine = schedulers.engine();
        submit(engine, Event::add_node(a_node(0)));
        for n in 0..100 {
            submit(engine, Event::put_pending(pod(format!("p{n}")).cpu(1).build()));
        }
        let calls = AtomicUsize::new(0);
        let queue = schedulers.queue().clone();
        let clock = || {
            if calls.fetch_add(1, Ordering::SeqCst) + 1 == close_at {
                // The clock is called with the queue held, so another thread closes it.
                let queue = queue.clone();
                std::thread::spawn(move || queue.close());
                std::thread::sleep(Duration::from_millis(2));
            }
            Timestamp::from_secs(1)
        };
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let mut placed = 0;
        let most = NonZeroUsize::new(64).unwrap();
        while let Ok(attempts) = scheduling.schedule_batch(most, Some(Instant::now()), clock) {
            placed += kept(attempts);
        }
        let cluster = engine.reader().unwrap().snapshot();
        assert_eq!(cluster.pod_count(), placed);
        assert_eq!(cluster.audit(), vec![]);
    }
}

#[test]
fn batches_of_any_size_take_every_pod_once() {
    for most in [1, 2, 15, 16, 17, 33, 1_000, usize::MAX] {
        let schedulers = Schedulers::builder().build().unwrap();
        let engine = schedulers.engine();
        for n in 0..10 {
            submit(engine, Event::add_node(a_node(n)));
        }
        for group in ["g", "h"] {
            let group = PodGroup::new("default", group, 3);
            assert!(submit(engine, Event::PutObject(Object::from(group))));
        }
        let mut all = 0;
        for n in 0..60 {
            submit(engine, Event::put_pending(pod(format!("p{n}")).cpu(1).build()));
            all += 1;
            if n % 10 < 3 && n < 20 {
                let group = if n < 10 { "g" } else { "h" };
                submit(
                    engine,
                    Event::put_pending(pod(format!("m{n}")).cpu(1).group(group).build()),
                );
                all += 1;
            }
        }
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let (mut placed, mut sizes) = (0, Vec::new());
        let clock = || Timestamp::from_secs(1);
        while let Ok(attempts) =
            scheduling.schedule_batch(NonZeroUsize::new(most).unwrap(), Some(Instant::now()), clock)
        {
            assert!(attempts.len() <= most);
            sizes.push(attempts.len());
            placed += kept(attempts);
        }
        assert_eq!(placed, all, "{most} {sizes:?}");
        assert_eq!(engine.reader().unwrap().snapshot().audit(), vec![]);
    }
}

/// A popping thread sleeps while another one takes in the notes that would have woken it.
#[test]
fn a_sleeping_thread_is_woken_for_pods_that_a_batch_leaves() {
    for round in 0..200 {
        let schedulers = Schedulers::builder().build().unwrap();
        let engine = schedulers.engine();
        for n in 0..10 {
            submit(engine, Event::add_node(a_node(n)));
        }
        let clock = || Timestamp::from_secs(1);
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..3)
                .map(|_| {
                    let mut scheduling = schedulers.scheduling_loop().unwrap();
                    scope.spawn(move || {
                        let (mut placed, until) = (0, Instant::now() + Duration::from_secs(20));
                        while let Ok(attempts) = scheduling.schedule_batch(
                            NonZeroUsize::new(3).unwrap(),
                            Some(until),
                            clock,
                        ) {
                            placed += kept(attempts);
                        }
                        placed
                    })
                })
                .collect();
            for n in 0..50 {
                submit(engine, Event::put_pending(pod(format!("p{n}")).cpu(1).build()));
            }
            let until = Instant::now() + Duration::from_secs(10);
            let mut reader = engine.reader().unwrap();
            while reader.refresh().pod_count() < 50 {
                assert!(
                    Instant::now() < until,
                    "round {round}: {} placed",
                    reader.refresh().pod_count()
                );
                std::thread::yield_now();
            }
            schedulers.queue().close();
            let placed: usize = all.into_iter().map(|it| it.join().unwrap()).sum();
            assert_eq!(placed, 50);
        });
    }
}
