//! Engines that begin with a version: what they take over besides nodes and pods, and when it expires. Their pods and
//! nodes are tested in `forks`.

use std::time::Duration;

use portolan::cache::{
    CommitPolicy, Config, Engine, Event, GodelConfig, Keyed, ObjectEvent, ObjectStore, Outcome,
};
use portolan::model::{EventError, GodelPod, Timestamp, Uid, node, pod};

const TTL: Duration = Duration::from_secs(60);

struct Licence(&'static str);

impl Keyed for Licence {
    const KIND: &'static str = "Licence";

    fn name(&self) -> &str {
        self.0
    }
}

type Licences = ObjectStore<Licence>;

fn apply(engine: &Engine, event: Event) -> Outcome {
    engine.submit(event).unwrap().wait().unwrap()
}

fn expired(engine: &Engine, seconds: i64) -> usize {
    apply(engine, Event::Expire(Timestamp::from_secs(seconds))).unwrap().removed
}

#[test]
fn an_engine_has_the_names_and_stores_of_its_version_and_its_own_checks() {
    let config = Config { pod_names: true, ..Config::default() }.with_store(Licences::default());
    let (mut writer, reader) = Engine::inline(config);
    writer.add_node(node("n").cpu(1_000).build()).unwrap();
    writer.add_pod(pod("added").cpu(600).on("n").build()).unwrap();
    writer.assume_pod(pod("assumed").cpu(100).on("n").build()).unwrap();
    writer.change::<Licences>(ObjectEvent::Put(Licence("one").into())).unwrap();
    writer.publish();
    let begun = |config| Engine::at(&reader.snapshot(), config);
    let engine = begun(Config::default());
    let snapshot = engine.reader().unwrap().snapshot();
    let pod_of = |name| snapshot.pod(&Uid::new(&format!("default/{name}")));
    let is_assumed = |name| pod_of(name).map(|pod| pod.is_assumed());
    assert_eq!(["added", "assumed", "none"].map(is_assumed), [Some(false), Some(true), None]);
    assert_eq!(snapshot.generation(), reader.snapshot().generation());
    assert!(snapshot.pod_named("default", "added").is_some());
    assert!(snapshot.store::<Licences>().unwrap().get("", "one").is_some());

    let large = || Event::assume(pod("large").cpu(500).on("n").build());
    assert!(matches!(apply(&engine, large()), Err(EventError::Conflict { .. })));
    let unchecked = Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
    assert!(apply(&begun(unchecked), large()).is_ok());
}

#[test]
fn what_a_version_has_assumed_expires_a_whole_time_to_live_later() {
    let godel = GodelConfig { reservations: Some(TTL), ..GodelConfig::new("godel") };
    let config = |godel| Config { assumed_ttl: Some(TTL), godel, ..Config::default() };
    let (mut writer, reader) = Engine::inline(config(Some(godel)));
    writer.add_node(node("n").cpu(1_000).build()).unwrap();
    let reserves = GodelPod { reserves: true, ..GodelPod::default() };
    let reserving = pod("reserving").label("name", "web");
    let reserving = reserving.spec(|spec| spec.godel = Some(Box::new(reserves))).on("n").build();
    writer.add_pod(reserving.clone()).unwrap();
    writer.remove_pod(&reserving).unwrap();
    let assumed = pod("assumed").on("n").build();
    writer.assume_pod(assumed.clone()).unwrap();
    writer.apply(&Event::finish_binding(&assumed.uid, Timestamp::from_secs(0))).unwrap();
    writer.publish();
    assert_eq!(writer.cluster().reservations().unwrap().len(), 1);

    let engine = Engine::at(&reader.snapshot(), config(None));
    assert_eq!((expired(&engine, 100), expired(&engine, 160), expired(&engine, 161)), (0, 0, 1));
    assert_eq!(engine.reader().unwrap().snapshot().reservations().unwrap().len(), 0);
    apply(&engine, Event::finish_binding(&assumed.uid, Timestamp::from_secs(200))).unwrap();
    let new = pod("new").on("n").build();
    apply(&engine, Event::assume(new.clone())).unwrap();
    apply(&engine, Event::finish_binding(&new.uid, Timestamp::from_secs(220))).unwrap();
    assert_eq!((expired(&engine, 260), expired(&engine, 261), expired(&engine, 281)), (0, 1, 1));
}
