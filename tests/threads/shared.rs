//! Many threads on one engine: no event is lost, and each thread sees its own writes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::cache::{
    Cluster, CommitCheck, CommitPolicy, Config, Engine, Event, ReadError, Reader, TrySubmitError,
    Unavailable, Writer,
};
use portolan::model::{EventError, Generation, Pod, Timestamp, node, pod};

fn each_thread_sees_its_own_writes(engine: &Engine) {
    const THREADS: usize = 2;
    const PODS: usize = 400;
    for n in 0..8 {
        engine
            .submit(Event::add_node(node(format!("n{n}")).cpu(64_000).build()))
            .unwrap()
            .wait()
            .unwrap()
            .unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let reader = engine.reader().unwrap();
                let mut last = Generation::ZERO;
                for i in 0..PODS {
                    let pod =
                        pod(format!("p{thread}-{i}")).cpu(1).on(format!("n{}", i % 8)).build();
                    let uid = pod.uid.clone();
                    let applied =
                        engine.submit(Event::assume(pod.clone())).unwrap().wait().unwrap().unwrap();
                    assert!(applied.generation > last, "outcomes are in the order of the log");
                    last = applied.generation;
                    let snapshot = reader.snapshot();
                    assert!(snapshot.generation() >= applied.generation);
                    assert!(snapshot.pod(&uid).is_some_and(|pod| pod.is_assumed()));
                    if i % 2 == 0 {
                        engine.submit(Event::add_pod(pod)).unwrap().wait().unwrap().unwrap();
                    }
                }
            });
        }
    });
    let (pods, assumed, audit, generation) = engine
        .with_writer(|w| {
            let cluster = w.cluster();
            (cluster.pod_count(), cluster.assumed_count(), cluster.audit(), cluster.generation())
        })
        .unwrap();
    assert_eq!(pods, THREADS * PODS);
    assert_eq!(assumed, THREADS * PODS / 2);
    assert_eq!(audit, vec![]);
    assert_eq!(generation, Generation((8 + THREADS * PODS + THREADS * PODS / 2) as u64));
}

#[test]
fn two_threads_through_the_token_lose_nothing_and_see_their_own_writes() {
    each_thread_sees_its_own_writes(&Engine::shared(Config::default()));
}

#[test]
fn two_threads_through_a_tiny_log_lose_nothing() {
    let config = Config { log_capacity: Some(1), ..Config::default() };
    each_thread_sees_its_own_writes(&Engine::shared(config));
}

#[test]
fn a_closed_engine_returns_the_event_after_answering_all_others() {
    let engine = Engine::shared(Config::default());
    let ticket = engine.submit(Event::add_node(node("n1").build())).unwrap();
    engine.close();
    assert!(ticket.wait().unwrap().is_ok());
    match engine.try_submit(Event::RemoveNode("n1".into())) {
        Err(TrySubmitError::Closed(Event::RemoveNode(name))) => assert_eq!(&*name, "n1"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shared_engine_sweeps_expired_pods_by_the_times_of_its_events() {
    let assumed_ttl = Some(Duration::from_secs(30));
    for (sweep_period, swept) in [(None, true), (Some(Duration::MAX), false)] {
        let commit_check = CommitPolicy::Unchecked;
        let config = Config { assumed_ttl, sweep_period, commit_check, ..Config::default() };
        let engine = Engine::shared(config);
        let assumed = ["p", "q"].map(|name| pod(name).on("n1").build());
        let events = assumed.iter().cloned().map(Event::assume);
        let times = [1, 40].map(Timestamp::from_secs);
        let finished = assumed.iter().zip(times);
        let finished = finished.map(|(pod, now)| Event::finish_binding(&pod.uid, now));
        for event in events.chain(finished) {
            engine.submit(event).unwrap().wait().unwrap().unwrap();
        }
        let left = engine.reader().unwrap().snapshot();
        assert_eq!(left.pod(&assumed[0].uid).is_none(), swept);
        assert!(left.pod(&assumed[1].uid).is_some());
    }
}

#[test]
fn a_thread_may_wait_for_an_inline_writer_that_it_has_given_away() {
    let (mut writer, reader) = Engine::inline(Config::default());
    let generation = writer.add_node(node("n1").build()).unwrap().generation();
    let (given, taken) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut writer: Writer = taken.recv().unwrap();
        writer.publish();
    });
    let past = Instant::now();
    assert_eq!(reader.at_least(generation, Some(past)).unwrap_err(), ReadError::Timeout);
    given.send(writer).unwrap();
    // The other thread may not have called the writer yet.
    assert_eq!(reader.at_least(generation, None).unwrap().len(), 1);
    other.join().unwrap();
    assert_eq!(reader.at_least(generation.next(), None).unwrap_err(), ReadError::Closed);
}

#[test]
fn an_inline_writer_that_was_dropped_is_closed_on_its_own_thread() {
    let (mut writer, reader) = Engine::inline(Config::default());
    let generation = writer.add_node(node("n1").build()).unwrap().generation();
    drop(writer);
    assert_eq!(reader.at_least(generation, None).unwrap_err(), ReadError::Closed);
}

#[test]
fn a_commit_check_that_waits_for_its_own_writer_is_refused() {
    /// Waits for the next version, and keeps the outcome.
    #[derive(Clone, Default)]
    struct Waits(Arc<Mutex<(Option<Reader>, Option<ReadError>)>>);

    impl CommitCheck for Waits {
        fn check(&self, _: &Cluster, _: &Pod, _: &str) -> Result<(), String> {
            let (reader, waited) = &mut *self.0.lock().unwrap();
            let reader = reader.as_ref().unwrap();
            *waited = reader.at_least(reader.generation().next(), None).err();
            Ok(())
        }
    }

    let waits = Waits::default();
    let config = || Config { commit_check: waits.clone().into(), ..Config::default() };
    let (mut writer, reader) = Engine::inline(config());
    waits.0.lock().unwrap().0 = Some(reader);
    writer.add_node(node("n1").build()).unwrap();
    writer.assume_pod(pod("p").on("n1").build()).unwrap();
    assert_eq!(waits.0.lock().unwrap().1.take(), Some(ReadError::OwnThread));

    let engine = Engine::shared(config());
    waits.0.lock().unwrap().0 = Some(engine.reader().unwrap());
    engine.submit(Event::add_node(node("n1").build())).unwrap().wait().unwrap().unwrap();
    let assume = Event::assume(pod("p").on("n1").build());
    engine.submit(assume).unwrap().wait().unwrap().unwrap();
    assert_eq!(waits.0.lock().unwrap().1.take(), Some(ReadError::OwnThread));
}

#[test]
fn assume_all_is_all_or_nothing() {
    let (mut writer, _) = Engine::inline(Config::default());
    writer.add_node(node("n1").build()).unwrap();
    writer.add_node(node("n2").build()).unwrap();
    writer.assume_pod(pod("known").on("n1").build()).unwrap();
    let before = writer.cluster().dump();
    let gang = |names: [&str; 3]| -> Arc<[_]> { names.map(|n| pod(n).on("n2").build()).into() };
    let refused = writer.apply(&Event::assume_all(gang(["a", "b", "known"]))).unwrap_err();
    assert!(matches!(refused, EventError::Together(_)), "{refused}");
    assert_eq!(writer.cluster().dump(), before);
    writer.apply(&Event::assume_all(gang(["a", "b", "c"]))).unwrap();
    assert_eq!(writer.cluster().assumed_count(), 4);
}

#[test]
fn waiting_for_the_writer_within_the_writer_is_refused() {
    let engine = Engine::shared(Config { log_capacity: Some(1), ..Config::default() });
    let reader = engine.reader().unwrap();
    let ticket = engine
        .with_writer(|writer| {
            writer.add_node(node("n0").build()).unwrap();
            assert_eq!(engine.figures(), Err(Unavailable::OwnThread(())));
            assert!(matches!(engine.reader(), Err(Unavailable::OwnThread(()))));
            assert!(matches!(engine.follow(), Err(Unavailable::OwnThread(()))));
            let late = reader.at_least(reader.generation().next(), None);
            assert_eq!(late.unwrap_err(), ReadError::OwnThread);
            let ticket =
                engine.submit(Event::add_node(node("n1").build())).expect("the log is not full");
            let full = engine.submit(Event::add_node(node("n2").build()));
            assert!(matches!(full, Err(Unavailable::OwnThread(Event::AddNode(_)))));
            ticket
        })
        .unwrap();
    ticket.wait().unwrap().unwrap();
    assert_eq!(engine.with_writer(|writer| writer.cluster().node_count()), Ok(2));
}
