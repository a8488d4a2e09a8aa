//! Preemption: pods of lower priority are evicted for a pod that fits nowhere, and the pod is nominated.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use portolan::cache::Event;
use portolan::model::{LabelSelector, Pod, PodDisruptionBudget, PodSpec, Timestamp, Uid, node};
use portolan::plugin::{
    Code, Cycle, Diagnosis, Eviction, Handle, Nomination, Plugin, Status, default_plugins,
};
use portolan::scheduler::{PreemptError, SharedReader};
use portolan::{AlgorithmConfig, Evictor, Failure, Framework, Schedulers, WhatIf};
use portolan_testkit::plugin;

use super::cycles::{cpu, engine, now, scheduler, snapshot};

#[test]
fn a_pod_of_higher_priority_preempts_a_lower_one() {
    let (engine, handle) = engine(2, 1_000);
    let mut scheduler = scheduler(&engine, &handle, 1);
    for (name, priority) in [("low", 1), ("middle", 5)] {
        let pod = Arc::new(cpu(name, 800).priority(priority).build());
        scheduler.schedule(&pod, now()).unwrap().keep_assumed();
    }
    let high = Arc::new(cpu("high", 800).priority(9).build());
    let error = scheduler.schedule(&high, now()).unwrap_err();
    assert_eq!(error.fit().unwrap().post_filter, None, "{error}");
    let node = handle.nominator().node_of(&high.uid).expect("the pod is nominated");
    let after = snapshot(&engine);
    assert!(after.nodes().flat_map(|node| node.pods()).all(|pod| pod.name() != "low"));
    // Other pods yield to it until it is placed.
    let other = Arc::new(cpu("other", 800).priority(9).build());
    let late = scheduler.schedule(&other, now()).unwrap_err();
    assert!(late.to_string().contains("Insufficient cpu"), "{late}");
    let again = Pod { nominated_node_name: Some(node.clone()), ..Pod::clone(&high) };
    assert_eq!(*scheduler.schedule(&Arc::new(again), now()).unwrap().node(), node);
    assert_eq!(handle.nominator().node_of(&high.uid), None);
}

/// Pods of high priority that the engine refuses on every node.
fn refused_everywhere() -> [Pod; 3] {
    let high = || cpu("high", 800).priority(9);
    [
        Pod { uid: Uid::new(""), ..high().build() },
        high().memory(-5).build(),
        high().uid("u".repeat(70_000)).build(),
    ]
}

#[test]
fn no_pod_is_evicted_for_a_pod_that_is_refused_everywhere() {
    let (engine, handle) = engine(2, 1_000);
    let mut scheduler = scheduler(&engine, &handle, 1);
    let placed: Vec<Arc<Pod>> = [("low", 1), ("placed", 9)]
        .map(|(name, priority)| Arc::new(cpu(name, 800).priority(priority).build()))
        .into();
    for pod in &placed {
        scheduler.schedule(pod, now()).unwrap().keep_assumed();
    }
    let claims = |spec: &mut PodSpec| spec.resource_claims = [Default::default()].into();
    let with_claims = cpu("claims", 800).priority(9).spec(claims).build();
    let twice = Pod::clone(&placed[1]);
    for high in refused_everywhere().into_iter().chain([with_claims, twice]).map(Arc::new) {
        let alone = scheduler.schedule(&high, now()).unwrap_err();
        let in_batch = scheduler.schedule_batch(&[high.clone(), high.clone()], now());
        for error in in_batch.into_iter().map(Result::unwrap_err).chain([alone]) {
            assert!(error.to_string().contains("preemption: not eligible: "), "{error}");
        }
        assert_eq!(handle.nominator().node_of(&high.uid), None);
    }
    assert_eq!(snapshot(&engine).pod_count(), 2);
}

/// Its nomination would fail the cycles of other pods.
#[test]
fn a_pod_that_is_refused_everywhere_is_not_nominated() {
    let (engine, handle) = engine(1, 1_000);
    let mut scheduler = scheduler(&engine, &handle, 1);
    for high in refused_everywhere() {
        handle.nominator().add(high, "n0".into());
    }
    let small = Arc::new(cpu("small", 200).build());
    assert_eq!(&**scheduler.schedule(&small, now()).unwrap().node(), "n0");
}

#[test]
fn the_message_of_preemption_is_that_of_kube_scheduler() {
    let (engine, handle) = engine(2, 1_000);
    let mut scheduler = scheduler(&engine, &handle, 1);
    let error = scheduler.schedule(&Arc::new(cpu("a", 5_000).build()), now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 \
         Preemption is not helpful for scheduling."
    );
    for n in 0..2 {
        let pod = Arc::new(cpu(format!("p{n}"), 800).build());
        scheduler.schedule(&pod, now()).unwrap().keep_assumed();
    }
    let error = scheduler.schedule(&Arc::new(cpu("b", 900).build()), now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No \
         preemption victims found for incoming pod."
    );
}

#[test]
fn a_simulated_preemption_that_is_refused_changes_nothing() {
    let (engine, _) = engine(1, 1_000);
    let low = cpu("low", 800).priority(1).on("n0").build();
    engine.submit(Event::add_pod(low)).unwrap().wait().unwrap().unwrap();
    let framework = Arc::new(Framework::default_profile());
    let mut what_if = WhatIf::new(&snapshot(&engine), framework, AlgorithmConfig::default());
    let before = what_if.dump();
    let high = || cpu("high", 900).priority(5);
    let claims = |spec: &mut PodSpec| spec.resource_claims = [Default::default()].into();
    for refused in [
        Pod { uid: Uid::new(""), ..high().build() },
        high().memory(-1).build(),
        high().spec(claims).build(),
    ] {
        let error = what_if.preempt(&refused).unwrap_err();
        assert!(matches!(error, PreemptError::Failed(Failure::Refused(_))), "{error}");
        assert_eq!(what_if.dump(), before, "{error}");
    }
    assert_eq!(what_if.preempt(&high().build()).unwrap().victims.len(), 1);
}

#[test]
fn an_exhausted_budget_protects_its_pods_if_other_victims_exist() {
    let (engine, _) = engine(2, 1_000);
    for (name, node) in [("kept", "n0"), ("other", "n1")] {
        let pod = cpu(name, 800).priority(1).label("app", name).on(node).build();
        engine.submit(Event::add_pod(pod)).unwrap().wait().unwrap().unwrap();
    }
    let budget = PodDisruptionBudget {
        namespace: "default".into(),
        name: "b".into(),
        selector: LabelSelector::from_labels([("app", "kept")]),
        ..PodDisruptionBudget::default()
    };
    let put = portolan::cache::Event::PutObject(budget.into());
    engine.submit(put).unwrap().wait().unwrap().unwrap();
    let framework = Arc::new(Framework::default_profile());
    let mut what_if = WhatIf::new(&snapshot(&engine), framework, AlgorithmConfig::default());
    let candidate = what_if.preempt(&cpu("wants", 900).priority(5).build()).unwrap();
    assert_eq!((&*candidate.node, candidate.violations), ("n1", 0));
    // The next preemptor has no other choice.
    let candidate = what_if.preempt(&cpu("more", 900).priority(5).build()).unwrap();
    assert_eq!((&*candidate.node, candidate.violations), ("n0", 1));
}

/// Accepts every deletion, or none, and leaves the end of the victims to the test.
#[derive(Clone, Default)]
struct Deletions {
    accepted: Arc<Mutex<Vec<Uid>>>,
    are_refused: bool,
}

impl Evictor for Deletions {
    fn evict(&self, eviction: Eviction) {
        let evicted = eviction.run(|victim| match self.are_refused {
            true => Err("refused".to_owned()),
            false => {
                self.accepted.lock().unwrap().push(victim.uid.clone());
                Ok(())
            }
        });
        assert_eq!(evicted.is_err(), self.are_refused && !eviction.victims().is_empty());
    }
}

#[test]
fn a_victim_counts_as_terminating_until_the_log_reports_its_end() {
    let deletions = Deletions::default();
    let evictor = deletions.clone();
    let schedulers = Schedulers::builder().evictor(move |_| evictor).build().unwrap();
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let submit = |event| drop(schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap());
    submit(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
    let low = cpu("low", 800).priority(1).on("n").build();
    submit(Event::add_pod(low.clone()));
    submit(Event::put_pending(cpu("high", 800).priority(9).build()));
    let mut seconds = 0;
    let mut attempt = || {
        seconds += 1_000;
        let now = Timestamp::from_secs(seconds);
        schedulers.queue().tend(|| now);
        let uid = cpu("high", 800).build().uid;
        schedulers.queue().with(|queue, _| queue.activate(&uid, now));
        let attempt = scheduling.schedule_one(Some(Instant::now()), || now).unwrap();
        let (_, failed) = attempt.into_parts();
        let error = failed.into_iter().next().unwrap().error.to_string();
        (deletions.accepted.lock().unwrap().len(), error)
    };
    assert_eq!(attempt().0, 1);
    // The log does not know of the deletion yet.
    let (deleted, error) = attempt();
    assert_eq!(deleted, 1);
    assert!(
        error.contains("not eligible due to a terminating pod on the nominated node."),
        "{error}"
    );
    // A pod with the uid of a victim that is gone is another pod.
    submit(Event::remove_pod(&low));
    submit(Event::add_pod(low.clone()));
    assert_eq!(attempt().0, 2);
    // The end of a victim that terminates slowly.
    let terminating = Pod { deletion_time: Some(Timestamp::from_secs(1)), ..low };
    submit(Event::update_pod(&terminating.uid, terminating.clone()));
    let (deleted, error) = attempt();
    assert_eq!(deleted, 2);
    assert!(!error.contains("not eligible"), "{error}");
}

#[test]
fn a_preemptor_backs_off_after_an_eviction_that_failed() {
    let evictor = Deletions { are_refused: true, ..Deletions::default() };
    let schedulers = Schedulers::builder().evictor(move |_| evictor).build().unwrap();
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let submit = |event| drop(schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap());
    submit(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
    submit(Event::add_pod(cpu("low", 800).priority(1).on("n").build()));
    submit(Event::put_pending(cpu("high", 800).priority(9).build()));
    let mut attempts = 0;
    for tenth in 0..100 {
        let now = Timestamp(1_000_000_000 + tenth * 100_000_000);
        schedulers.queue().tend(|| now);
        attempts += u32::from(scheduling.schedule_one(Some(Instant::now()), || now).is_ok());
    }
    // At 1, 3 and 6 s: backoffs end with a window of a second.
    assert_eq!(attempts, 3);
}

/// Holds evictions until the test drops them, which is a failure.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<Eviction>>>);

impl Evictor for Held {
    fn evict(&self, eviction: Eviction) {
        self.0.lock().unwrap().push(eviction);
    }
}

#[test]
fn a_pod_that_waits_for_another_preemptors_victim_is_retried_if_the_eviction_fails() {
    let held = Held::default();
    let evictor = held.clone();
    let schedulers = Schedulers::builder().evictor(move |_| evictor).build().unwrap();
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let submit = |event| drop(schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap());
    let mut attempt = || {
        let now = Timestamp::from_secs(1);
        schedulers.queue().tend(|| now);
        let (_, failed) = scheduling.schedule_one(Some(Instant::now()), || now).ok()?.into_parts();
        let failed = failed.into_iter().next().unwrap();
        Some((failed.pod.name.to_string(), failed.error.to_string()))
    };
    submit(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
    submit(Event::add_pod(cpu("low", 800).priority(1).on("n").build()));
    submit(Event::put_pending(cpu("first", 800).priority(8).build()));
    assert_eq!(attempt().expect("an attempt").0, "first");
    assert_eq!(held.0.lock().unwrap().len(), 1);
    let second = cpu("second", 800).priority(9).build();
    submit(Event::put_pending(Pod { nominated_node_name: Some("n".into()), ..second }));
    let (name, error) = attempt().expect("an attempt");
    assert_eq!(name, "second");
    assert!(error.contains("not eligible due to a terminating pod"), "{error}");
    assert_eq!(attempt(), None, "it waits for the victim's end");
    held.0.lock().unwrap().clear();
    assert_eq!(attempt().expect("an attempt").0, "second");
    assert_eq!(held.0.lock().unwrap().len(), 1, "it preempts the victim itself");
}

type Act = Box<dyn FnOnce() + Send>;

/// Does something between the filters of an attempt and its preemption.
#[derive(Clone, Default)]
struct Between(Arc<Mutex<Option<Act>>>);

impl Between {
    fn schedulers(&self, evictor: impl Evictor + 'static) -> Schedulers {
        let plugin = self.clone();
        let profile = move |handle: &Handle| {
            let mut plugins = default_plugins(handle);
            plugins.insert(0, (Box::new(plugin), 0));
            Framework::new(plugins)
        };
        let builder = Schedulers::builder().profile("default-scheduler", profile);
        builder.evictor(move |_| evictor).build().unwrap()
    }
}

impl Plugin for Between {
    plugin!("Between", PostFilter);

    fn post_filter(&self, _: Cycle<'_>, _: &Diagnosis<'_>) -> (Nomination, Option<Status>) {
        self.0.lock().unwrap().take().into_iter().for_each(|act| act());
        (Nomination::Keep, Some(Status::new(Code::Unschedulable, "Between", "no")))
    }
}

#[test]
fn a_victim_that_ends_during_the_decision_is_not_evicted_and_the_preemptor_is_retried() {
    for is_gone in [true, false] {
        let (held, between) = (Held::default(), Between::default());
        let schedulers = between.schedulers(held.clone());
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let engine = schedulers.engine().clone();
        let submit = move |event| drop(engine.submit(event).unwrap().wait().unwrap().unwrap());
        let mut attempt = || {
            let now = Timestamp::from_secs(1);
            schedulers.queue().tend(|| now);
            scheduling.schedule_one(Some(Instant::now()), || now).is_ok()
        };
        submit(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
        let low = cpu("low", 800).priority(1).on("n").build();
        submit(Event::add_pod(low.clone()));
        submit(Event::put_pending(cpu("high", 800).priority(9).build()));
        let terminating = Pod { deletion_time: Some(now()), ..low.clone() };
        let end = match is_gone {
            true => Event::remove_pod(&low),
            false => Event::update_pod(&low.uid, terminating),
        };
        *between.0.lock().unwrap() = Some(Box::new(move || submit(end)));
        assert!(attempt());
        let eviction = held.0.lock().unwrap().pop().expect("an eviction");
        assert!(eviction.begin().is_none(), "gone: {is_gone}");
        assert!(!attempt(), "the preemptor is gated");
        eviction.finish(Ok(()));
        drop(eviction);
        assert!(attempt(), "gone: {is_gone}");
    }
}

#[test]
fn a_pod_that_is_being_evicted_is_no_reason_to_evict_another_one() {
    let deletions = Deletions::default();
    let evictor = deletions.clone();
    let schedulers = Schedulers::builder().evictor(move |_| evictor).build().unwrap();
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let submit = |event| drop(schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap());
    let mut attempt = |name: &str, millis| {
        let pod = cpu(name, millis).priority(9).build();
        submit(Event::put_pending(pod.clone()));
        let now = Timestamp::from_secs(1);
        schedulers.queue().tend(|| now);
        assert!(scheduling.schedule_one(Some(Instant::now()), || now).is_ok());
        submit(Event::RemovePending(pod.uid.clone()));
        schedulers.queue().tend(|| now);
        deletions.accepted.lock().unwrap().len()
    };
    submit(Event::add_node(node("n").cpu(1_000).memory(8 << 30).build()));
    submit(Event::add_pod(cpu("leaving", 400).priority(2).on("n").build()));
    assert_eq!(attempt("first", 800), 1);
    submit(Event::add_pod(cpu("lower", 400).priority(1).on("n").build()));
    // It fits once the first victim has ended.
    assert_eq!(attempt("second", 400), 1);
}

#[test]
fn a_victim_that_ends_during_the_next_attempt_is_no_reason_to_preempt_on_another_node() {
    for is_gone in [true, false] {
        let (deletions, between) = (Deletions::default(), Between::default());
        let schedulers = between.schedulers(deletions.clone());
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let engine = schedulers.engine().clone();
        let submit = Arc::new(move |event| {
            engine.submit(event).unwrap().wait().unwrap().unwrap();
        });
        let mut seconds = 0;
        let mut attempt = || {
            seconds += 1_000;
            let now = Timestamp::from_secs(seconds);
            schedulers.queue().tend(|| now);
            schedulers.queue().with(|queue, _| queue.activate(&cpu("high", 800).build().uid, now));
            assert!(scheduling.schedule_one(Some(Instant::now()), || now).is_ok());
            deletions.accepted.lock().unwrap().len()
        };
        let add = |on: &'static str, low: &Pod| {
            submit(Event::add_node(node(on).cpu(1_000).memory(1 << 30).build()));
            submit(Event::add_pod(low.clone()));
        };
        let victim = || cpu("victim", 800).priority(1).on("n0");
        add("n0", &victim().build());
        submit(Event::put_pending(cpu("high", 800).priority(9).build()));
        assert_eq!(attempt(), 1);
        // A better victim.
        add("n1", &cpu("spared", 800).on("n1").build());
        let end = match is_gone {
            true => Event::remove_pod(&victim().build()),
            false => {
                let preempted = |spec: &mut PodSpec| spec.is_preempted = true;
                let terminating =
                    Pod { deletion_time: Some(now()), ..victim().spec(preempted).build() };
                Event::update_pod(&terminating.uid.clone(), terminating)
            }
        };
        let (queue, submit) = (schedulers.queue().clone(), submit.clone());
        let end = move || {
            submit(end);
            queue.tend(|| Timestamp::from_secs(2_000));
        };
        *between.0.lock().unwrap() = Some(Box::new(end));
        assert_eq!(attempt(), 1, "gone: {is_gone}");
    }
}

/// A pod that exists in the fork alone has not ended because the engine does not know it.
#[test]
fn a_simulated_preemption_compares_no_versions_of_the_engine() {
    let (engine, handle) = engine(1, 1_000);
    let handle = handle.with_snapshots(Arc::new(SharedReader::new(engine.reader().unwrap())));
    let framework = Arc::new(Framework::default_profile_with(&handle));
    let mut what_if = WhatIf::new(&snapshot(&engine), framework, AlgorithmConfig::default());
    what_if.fork().add_pod(&cpu("low", 800).on("n0").build()).unwrap();
    for n in 1..9 {
        let node = node(format!("n{n}")).cpu(100).memory(1 << 30).build();
        engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
    }
    let high = cpu("high", 800).priority(9).build();
    let high = Pod { nominated_node_name: Some("n0".into()), ..high };
    assert_eq!(what_if.preempt(&high).unwrap().victims.len(), 1);
}
