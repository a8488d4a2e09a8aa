//! Rebuilding a writer's state from its objects, as observed by readers, schedulers and threads that submit events. The
//! unit tests of `state::rebuild`, which can damage an index, show the repairs.

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{ChangedSince, Config, Engine, Event, Writer};
use portolan::model::{Node, Taint, TaintEffect, Timestamp, node, pod};
use portolan::{Algorithm, AlgorithmConfig, Framework};

fn tainted(n: usize) -> Node {
    let mut builder = node(format!("n{n}")).hostname().zone(format!("z{}", n % 3)).cpu(4_000);
    builder = builder.label("disk", if n.is_multiple_of(2) { "ssd" } else { "hdd" });
    for key in ["a", "b", "c"].iter().take(n % 4) {
        builder = builder.taint(Taint::new(*key, "", TaintEffect::NoSchedule));
    }
    builder.build()
}

/// Adds nodes and pods and removes the first of them, so that a rebuild renumbers the rest.
fn with_gaps(writer: &mut Writer) {
    for n in 0..90 {
        writer.add_node(tainted(n)).unwrap();
        writer.add_pod(pod(format!("p{n}")).cpu(n as i64).on(format!("n{n}")).build()).unwrap();
    }
    for n in 0..40 {
        writer.remove_pod(&pod(format!("p{n}")).on(format!("n{n}")).build()).unwrap();
        writer.remove_node(format!("n{n}")).unwrap();
    }
}

#[test]
fn readers_follow_a_rebuild_and_held_versions_stay() {
    let (mut writer, mut reader) = Engine::inline(Config::default());
    with_gaps(&mut writer);
    let before = writer.publish();
    let (held, fork) = (reader.snapshot(), reader.snapshot().fork());
    let dump = held.dump();

    let rebuilt = writer.rebuild();
    assert_eq!((rebuilt.generation, rebuilt.differences), (before.next(), vec![]));
    let version = reader.refresh().clone();
    assert_eq!((version.generation(), version.dump()), (before.next(), dump.clone()));
    assert_eq!(version.changed_since(before), Ok(ChangedSince::Reset));
    assert_eq!(version.changed_since(before.next()), Ok(ChangedSince::Changes(vec![])));
    for n in 40..90 {
        let (name, uid) = (format!("n{n}"), pod(format!("p{n}")).build().uid);
        for version in [&version, &held] {
            assert_eq!(&**version.pod(&uid).unwrap().node().name(), &*name);
        }
    }
    // Pods are added and removed in the new state, which does not affect older versions.
    for n in 40..60 {
        writer.remove_pod(&pod(format!("p{n}")).on(format!("n{n}")).build()).unwrap();
        writer.add_pod(pod(format!("q{n}")).on(format!("n{n}")).build()).unwrap();
        writer.publish();
        writer.reclaim();
    }
    assert_eq!(writer.cluster().audit(), vec![]);
    assert_eq!((held.dump(), fork.dump()), (dump.clone(), dump));
    assert_eq!((held.audit(), fork.audit()), (vec![], vec![]));
}

#[test]
fn a_scheduler_drops_data_by_slot_after_a_rebuild() {
    let (mut writer, _) = Engine::inline(Config::default());
    with_gaps(&mut writer);
    let config = AlgorithmConfig { percentage_of_nodes: 100, ..AlgorithmConfig::default() };
    let framework = Arc::new(Framework::default_profile());
    let mut remembers = Algorithm::new(framework.clone(), config.clone(), None);
    for round in 0..4 {
        for kind in 0..3 {
            let wanted = pod(format!("wanted-{kind}")).cpu(100 * (kind + 1)).build();
            let ours = remembers.schedule(writer.cluster(), &wanted).unwrap();
            let fresh = Algorithm::new(framework.clone(), config.clone(), None)
                .schedule(writer.cluster(), &wanted)
                .unwrap();
            assert_eq!(
                (ours.score, ours.feasible),
                (fresh.score, fresh.feasible),
                "{round} {kind}"
            );
            assert_eq!(writer.cluster().node(&ours.node).unwrap().slot(), ours.slot);
        }
        // The number of nodes stays the same, but the nodes differ.
        writer.remove_node(format!("n{}", 40 + round)).unwrap();
        writer.add_node(tainted(round)).unwrap();
        writer.rebuild();
    }
}

#[test]
fn a_shared_engine_is_rebuilt_under_its_writer_token() {
    let ttl = Some(Duration::from_secs(30));
    let engine = Engine::shared(Config { assumed_ttl: ttl, ..Config::default() });
    let assumed = pod("a").on("n1").build();
    engine.submit(Event::add_node(node("n1").build())).unwrap().wait().unwrap().unwrap();
    engine.submit(Event::assume(assumed.clone())).unwrap().wait().unwrap().unwrap();
    let bound =
        engine.submit(Event::finish_binding(&assumed.uid, Timestamp::from_secs(1))).unwrap();
    let bound = bound.wait().unwrap().unwrap().generation;
    let rebuilt = engine.with_writer(Writer::rebuild).unwrap();
    assert_eq!((rebuilt.generation, rebuilt.differences), (bound.next(), vec![]));
    let version = engine.reader().unwrap().at_least(rebuilt.generation, None).unwrap();
    assert_eq!(version.assumed_count(), 1);
    // The deadline is kept, and has passed.
    let expired = engine.with_writer(|writer| writer.expire(Timestamp::from_secs(32))).unwrap();
    assert_eq!(expired, Ok(1));
    assert_eq!(engine.with_writer(|writer| writer.cluster().audit()).unwrap(), vec![]);
}
