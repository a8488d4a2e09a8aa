//! Hostile programs: callbacks that panic or never answer, placements that are used again, and caches that would be
//! stale.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use portolan::cache::{Cluster, Config, Engine, Event, GodelConfig, Writer};
use portolan::model::{
    EventError, Generation, LabelSelector, Labels, Launcher, Name, Pod, Service, Timestamp,
    TopologySpreadConstraint, Uid, UnsatisfiableAction, node, pod,
};
use portolan::plugin::{
    Cycle, Handle, Permit, Plugin, PodTopologySpread, Status, SubCluster, default_plugins,
};
use portolan::scheduler::queue::Place;
use portolan::scheduler::{Begun, BindError, InMemoryEvictor};
use portolan::{Binder, BinderError, Framework, Placement, Schedulers, SchedulingLoop};
use portolan_testkit::draw::Draw;
use portolan_testkit::plugin;
use proptest::prelude::*;

/// Counts its calls, panics for pods whose name begins with `panic`, and binds those whose name begins with `slow` when
/// the test lets it.
#[derive(Clone, Default)]
struct Hostile {
    calls: Arc<AtomicUsize>,
    may_end: Arc<AtomicBool>,
}

impl Binder for Hostile {
    fn bind(&self, pod: &Pod, _: &Name) -> Result<(), BinderError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!pod.name.starts_with("panic"), "expected");
        while pod.name.starts_with("slow") && !self.may_end.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn nominate(&self, pod: &Pod, _: &Name) -> Result<(), BinderError> {
        assert!(!pod.name.contains("nominate"), "expected");
        Ok(())
    }
}

struct Waits;

impl Plugin for Waits {
    plugin!("Waits", Permit);

    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        match cycle.pod.name.contains("wait") {
            true => Ok(Permit::Wait(Duration::MAX)),
            false => Ok(Permit::Allow),
        }
    }
}

fn world(names: &[&str]) -> (Schedulers, SchedulingLoop, Hostile) {
    let hostile = Hostile::default();
    let binder = hostile.clone();
    let profile = |handle: &Handle| {
        let mut plugins = default_plugins(handle);
        plugins.push((Box::new(Waits), 0));
        Framework::new(plugins)
    };
    let builder = Schedulers::builder().profile("default-scheduler", profile);
    let builder = builder.binder(move |_| binder).evictor(|engine| InMemoryEvictor::from(engine));
    let schedulers = builder.build().unwrap();
    let scheduling = schedulers.scheduling_loop().unwrap();
    let submit = |event| schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap();
    submit(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
    for name in names {
        submit(Event::put_pending(pod(*name).cpu(100).build()));
    }
    (schedulers, scheduling, hostile)
}

fn placed(scheduling: &mut SchedulingLoop, seconds: i64) -> Vec<Placement> {
    let most = NonZeroUsize::new(16).unwrap();
    let now = Timestamp::from_secs(seconds);
    let attempts = scheduling.schedule_batch(most, Some(Instant::now()), || now).unwrap();
    attempts.into_iter().flat_map(|attempt| attempt.into_parts().0).collect()
}

fn place(schedulers: &Schedulers, name: &str) -> Option<Place> {
    schedulers.queue().tend(|| Timestamp::from_secs(1));
    schedulers.queue().with(|queue, _| queue.place(&Uid::new(&format!("default/{name}"))))
}

#[test]
fn beginning_an_ended_placement_leaves_the_new_attempt_alone() {
    let (schedulers, mut scheduling, _) = world(&["a"]);
    let old = placed(&mut scheduling, 1).remove(0);
    let mut binding = schedulers.binding_loop().unwrap();
    assert_eq!(binding.withdraw(&old, || Timestamp::from_secs(1)), Some(Place::ErrorBackoff));
    let _new = placed(&mut scheduling, 60).remove(0);
    assert_eq!(place(&schedulers, "a"), Some(Place::InFlight));
    let Begun::Blocks(old) = binding.begin(old) else { panic!("nothing is sent again") };
    assert_eq!(place(&schedulers, "a"), Some(Place::InFlight));
    drop(old);
    assert_eq!(place(&schedulers, "a"), Some(Place::InFlight));
}

#[test]
fn two_threads_bind_a_placement_once() {
    let (schedulers, mut scheduling, Hostile { calls, may_end }) = world(&["slow"]);
    let placement = placed(&mut scheduling, 1).remove(0);
    let barrier = Barrier::new(2);
    let bind = || {
        let mut binding = schedulers.binding_loop().unwrap();
        barrier.wait();
        binding.bind(&placement, || Timestamp::from_secs(1))
    };
    let bound = std::thread::scope(|scope| {
        let threads = [scope.spawn(bind), scope.spawn(bind)];
        // One thread is in the binder, and the other has returned.
        while !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::yield_now();
        }
        may_end.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1, "{bound:?}");
    assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
}

#[test]
fn a_placement_that_is_being_bound_is_not_withdrawn() {
    let (schedulers, mut scheduling, Hostile { calls, may_end }) = world(&["slow"]);
    let placement = placed(&mut scheduling, 1).remove(0);
    let mut binding = schedulers.binding_loop().unwrap();
    let now = || Timestamp::from_secs(1);
    let (bound, withdrawn) = std::thread::scope(|scope| {
        let bound = scope.spawn(|| scheduling.bind(&placement, now));
        while calls.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let withdrawn = binding.withdraw(&placement, now);
        may_end.store(true, Ordering::Relaxed);
        (bound.join().unwrap(), withdrawn)
    });
    assert_eq!((bound, withdrawn), (Ok(()), None));
    assert_eq!(schedulers.engine().reader().unwrap().snapshot().pod_count(), 1);
}

/// The drop that follows returns the pod to the queue.
#[test]
fn a_placement_that_the_writers_thread_withdraws_stays_as_it_is() {
    let (schedulers, mut scheduling, _) = world(&["a"]);
    let placement = placed(&mut scheduling, 1).remove(0);
    let mut binding = schedulers.binding_loop().unwrap();
    let withdrawn = schedulers.engine().with_writer(|_| {
        assert!(schedulers.engine().is_within_writer());
        binding.withdraw(&placement, || Timestamp::from_secs(1))
    });
    assert_eq!(withdrawn.ok(), Some(None));
    assert_eq!(place(&schedulers, "a"), Some(Place::InFlight));
    drop(placement);
    assert_eq!(place(&schedulers, "a"), Some(Place::ErrorBackoff));
}

#[test]
fn a_binder_that_panics_fails_its_pod_only() {
    let (schedulers, mut scheduling, _) = world(&["panic", "wait-nominate", "a"]);
    for placement in placed(&mut scheduling, 1) {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scheduling.bind(&placement, || Timestamp::from_secs(1))
        }));
        let is_a = &*placement.pod.name == "a";
        assert_eq!(matches!(caught, Ok(Ok(()))), is_a, "{caught:?}");
        drop(placement);
    }
    let back = |name: &str| place(&schedulers, name);
    assert_eq!(back("a"), None);
    assert_eq!([back("panic"), back("wait-nominate")], [Some(Place::ErrorBackoff); 2]);
    let figures = schedulers.queue().with(|queue, _| queue.figures());
    assert_eq!((figures.in_flight, figures.binding), (0, 0));
    assert!(!schedulers.engine().is_closed());
}

#[test]
fn closing_ends_permits_that_last_forever() {
    for closes_engine in [true, false] {
        let (schedulers, mut scheduling, _) = world(&["wait"]);
        let placement = placed(&mut scheduling, 1).remove(0);
        let mut binding = schedulers.binding_loop().unwrap();
        let bound = std::thread::scope(|scope| {
            let waits = scope.spawn(|| binding.bind(&placement, || Timestamp::from_secs(1)));
            while schedulers.queue().with(|queue, _| queue.figures()).binding == 0 {
                std::thread::yield_now();
            }
            match closes_engine {
                true => schedulers.engine().close(),
                false => schedulers.queue().close(),
            }
            waits.join().unwrap()
        });
        assert!(matches!(bound, Err((BindError::Closed, _))), "{closes_engine} {bound:?}");
    }
}

#[test]
fn extreme_durations_do_not_stop_an_engine() {
    let extremes = [None, Some(Duration::ZERO), Some(Duration::from_nanos(1)), Some(Duration::MAX)];
    for assumed_ttl in extremes {
        for sweep_period in extremes {
            let config = Config { assumed_ttl, sweep_period, ..Config::default() };
            let engine = Engine::shared(config);
            let submit = |event| engine.submit(event).unwrap().wait().unwrap();
            submit(Event::add_node(node("n").cpu(1_000).build())).unwrap();
            let assumed = pod("p").cpu(1).on("n").build();
            engine.with_writer(|writer| writer.assume_pod(assumed.clone())).unwrap().unwrap();
            submit(Event::finish_binding(&assumed.uid, Timestamp::from_secs(i64::MAX))).unwrap();
            for n in 0..50 {
                submit(Event::add_pod(pod(format!("p{n}")).on("n").build())).unwrap();
            }
            let _ = submit(Event::Expire(Timestamp::from_secs(i64::MAX)));
            assert!(!engine.is_closed());
        }
    }
}

#[test]
fn a_put_pod_is_stale_whatever_its_phase() {
    let (mut writer, _) = Engine::inline(Config { pod_names: true, ..Config::default() });
    writer.add_node(node("n").build()).unwrap();
    let version = |version| pod("p").resource_version(version);
    writer.apply(&Event::put_pod(version(7).on("n").build())).unwrap();
    let stale = writer.apply(&Event::put_pod(version(5).on("n").finished().build()));
    assert!(matches!(stale, Err(EventError::Stale { .. })), "{stale:?}");
    assert_eq!(writer.cluster().pod_count(), 1);
    writer.apply(&Event::put_pod(version(u64::MAX).on("n").build())).unwrap();
    let other = Pod { uid: Uid::new("other"), ..version(8).on("n").build() };
    let replaced = writer.apply(&Event::put_pod(other));
    assert!(matches!(replaced, Err(EventError::Stale { known: u64::MAX, .. })), "{replaced:?}");
    assert!(writer.cluster().pod_named("default", "p").is_some());
    assert!(writer.audit_and_rebuild().is_none());
}

#[test]
fn no_version_knows_the_future() {
    let (mut writer, reader) = Engine::inline(Config::default());
    writer.add_node(node("n").build()).unwrap();
    writer.publish();
    let snapshot = reader.snapshot();
    let next = Generation(snapshot.generation().0 + 1);
    assert!(snapshot.changed_since(next).is_err());
    assert!(snapshot.changed_since(Generation(u64::MAX)).is_err());
    assert!(snapshot.changed_since(Generation::ZERO).is_ok());
    let mut fork = snapshot.fork();
    fork.add_pod(&pod("p").on("n").build()).unwrap();
    assert_eq!(fork.diff(&snapshot).len(), 1);
    assert_eq!(snapshot.diff(&fork).len(), 1);
    let (other, _) = Engine::inline(Config::default());
    assert_eq!(snapshot.diff(other.cluster()).len(), 1);
}

#[test]
fn a_sub_cluster_of_a_deleted_node_object_follows_the_other_object() {
    use portolan::model::NmNode;
    let godel = Some(GodelConfig::new("godel-scheduler"));
    let (mut writer, _) = Engine::inline(Config { godel, ..Config::default() });
    writer.add_node(node("n").label("region", "red").build()).unwrap();
    let blue = NmNode::new("n").with_labels(&Labels::new([("region", "blue")]));
    writer.put_object(blue).unwrap();
    let count =
        |writer: &Writer, region| SubCluster::new("region", region).nodes(writer.cluster()).count();
    assert_eq!((count(&writer, "red"), count(&writer, "blue"), count(&writer, "")), (1, 1, 1));
    let includes =
        |region| SubCluster::new("region", region).includes(writer.cluster().node("n").unwrap());
    assert_eq!(["red", "blue", "green", ""].map(includes), [true, true, false, true]);
    writer.remove_node("n").unwrap();
    assert_eq!((count(&writer, "red"), count(&writer, "blue")), (0, 1));
    let n = writer.cluster().node("n").unwrap();
    let of = |launcher| n.node_for(launcher).unwrap().labels.get("region");
    assert_eq!([of(Launcher::Kubelet), of(Launcher::NodeManager)], [Some("blue"); 2]);
}

fn spread(key: &str, app: &str, hard: bool) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        when_unsatisfiable: match hard {
            true => UnsatisfiableAction::DoNotSchedule,
            false => UnsatisfiableAction::ScheduleAnyway,
        },
        selector: LabelSelector::from_labels([("app", app)]),
        min_domains: None,
        honor_node_affinity: true,
        honor_node_taints: false,
        match_label_keys: Box::default(),
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Pods of one template each: the cached values belong to these.
fn templates() -> Vec<Pod> {
    let mut all = Vec::new();
    for app in ["a", "b"] {
        all.push(pod("q").label("app", app).build());
        for key in [ZONE, HOSTNAME] {
            for hard in [true, false] {
                let of = pod("q").label("app", app);
                all.push(of.spec(|s| s.topology_spread = [spread(key, app, hard)].into()).build());
            }
        }
        let both = [spread(ZONE, app, false), spread(HOSTNAME, app, false)];
        all.push(pod("q").label("app", app).spec(|s| s.topology_spread = both.into()).build());
        let namespaced = pod("q").namespace("other").label("app", app);
        all.push(namespaced.spec(|s| s.topology_spread = [spread(ZONE, app, true)].into()).build());
    }
    all
}

fn drawn_pod(draw: &mut Draw<'_>, n: usize, nodes: u64) -> Pod {
    let app = draw.of(&["a", "b", "c"]);
    let serial = format!("s{}", draw.below(40));
    let made = pod(format!("p{n}")).label("app", app).label("serial", &serial);
    let made = if draw.below(4) == 0 { made.namespace("other") } else { made };
    made.on(format!("n{}", draw.below(nodes))).build()
}

fn service(name: &str, app: &str) -> Service {
    let selector = Labels::new([("app", app)]);
    Service { namespace: "default".into(), name: name.into(), selector }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_framework_that_was_used_before_answers_as_a_new_one(bits in any::<u64>(), nodes in 1..90_u64) {
        let mut draw = Draw::from(bits);
        let kept = Framework::default_profile();
        let templates = templates();
        let mut writers: Vec<Writer> = (0..2).map(|_| Engine::inline(Config::default()).0).collect();
        for writer in &mut writers {
            for n in 0..nodes {
                let node = node(format!("n{n}")).hostname().zone(format!("z{}", n % 3));
                writer.add_node(node.cpu(4_000).memory(1 << 30).pods(500).build()).unwrap();
            }
        }
        let mut pods: Vec<Vec<Pod>> = vec![Vec::new(); 2];
        let mut forks = Vec::new();
        for n in 0..60 {
            let of = draw.below(2) as usize;
            let writer = &mut writers[of];
            for _ in 0..draw.below(8) {
                let pod = drawn_pod(&mut draw, n * 10 + pods[of].len(), nodes);
                if writer.add_pod(pod.clone()).is_ok() {
                    pods[of].push(pod);
                }
            }
            for _ in 0..draw.below(8).min(pods[of].len() as u64) {
                let at = draw.below(pods[of].len() as u64) as usize;
                writer.remove_pod(&pods[of].swap_remove(at)).unwrap();
            }
            match draw.below(6) {
                0 => drop(writer.put_object(service("s", draw.of(&["a", "b", "c"])))),
                1 => drop(writer.publish()),
                2 => forks.push(writer.cluster().fork()),
                3 if !forks.is_empty() => {
                    let at = draw.below(forks.len() as u64) as usize;
                    forks.swap_remove(at);
                }
                _ => {}
            }
            for fork in &mut forks {
                if draw.below(2) == 0 {
                    let _ = fork.add_pod(&drawn_pod(&mut draw, 100_000 + n, nodes));
                }
                if draw.below(8) == 0 {
                    fork.put_object(service("s", draw.of(&["a", "b", "c"]))).unwrap();
                }
            }
            let template = &templates[draw.below(templates.len() as u64) as usize];
            let versions = writers.iter().map(Writer::cluster).chain(forks.iter().map(|f| -> &Cluster { f }));
            for (at, version) in versions.enumerate() {
                let (old, new) = (kept.evaluate(version, template), Framework::default_profile().evaluate(version, template));
                prop_assert_eq!(old.nodes, new.nodes, "{} {}", n, at);
            }
        }
    }
}

#[test]
fn label_sets_that_come_and_go_are_counted_in_the_version_that_has_them() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..4 {
        writer
            .add_node(
                node(format!("n{n}")).hostname().zone(format!("z{}", n % 2)).pods(9_999).build(),
            )
            .unwrap();
    }
    let build = || Framework::new(vec![(Box::new(PodTopologySpread::default()), 1)]).unwrap();
    let kept = build();
    let asked = pod("q")
        .label("app", "a")
        .spec(|s| s.topology_spread = [spread(ZONE, "a", true)].into())
        .build();
    let mut held = Vec::new();
    for round in 0..20_usize {
        let made = |n: usize| {
            let app = if (n + round).is_multiple_of(2) { "a" } else { "b" };
            let made = pod(format!("p{n}")).label("app", app).label("n", &n.to_string());
            made.on(format!("n{}", (n + round) % 4)).build()
        };
        for n in 0..200 {
            writer.add_pod(made(n)).unwrap();
        }
        held.push(writer.cluster().fork());
        if held.len() > 3 {
            held.remove(0);
        }
        for version in held.iter().map(|fork| -> &Cluster { fork }).chain([writer.cluster()]) {
            assert_eq!(
                kept.evaluate(version, &asked).nodes,
                build().evaluate(version, &asked).nodes
            );
        }
        for n in 0..200 {
            writer.remove_pod(&made(n)).unwrap();
        }
        assert_eq!(
            kept.evaluate(writer.cluster(), &asked).nodes,
            build().evaluate(writer.cluster(), &asked).nodes
        );
    }
}
