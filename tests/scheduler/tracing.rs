//! The spans and events of the engine and of schedulers, as a subscriber receives them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::subscriber::Interest;
use ::tracing::{Event, Level, Metadata, Subscriber};
use portolan::cache::{Config, Engine, Relist};
use portolan::model::{Pod, Timestamp, node, pod};
use portolan::{Algorithm, AlgorithmConfig, Attempt, Framework, Profiles, Scheduler, Schedulers};

/// A span or an event with its fields in order. The name of an event is its message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    name: String,
    level: Level,
    fields: Vec<(&'static str, String)>,
    /// The names of the enclosing spans, the outermost first.
    within: Vec<String>,
}

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.name = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
}

/// A subscriber that records all spans and events of one thread.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    heard: Vec<Heard>,
    /// Positions of the spans in the log, by id.
    spans: Vec<usize>,
    entered: Vec<usize>,
}

impl Log {
    fn hear(&mut self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Heard)) {
        let within = self.entered.iter().map(|at| self.heard[*at].name.clone()).collect();
        let (name, level) = (metadata.name().to_owned(), *metadata.level());
        let mut heard = Heard { name, level, fields: Vec::new(), within };
        record(&mut heard);
        self.heard.push(heard);
    }

    fn position(&self, span: &Id) -> usize {
        self.spans[span.into_u64() as usize - 1]
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("portolan")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut log = self.0.lock().unwrap();
        let at = log.heard.len();
        log.spans.push(at);
        log.hear(span.metadata(), |heard| span.record(heard));
        Id::from_u64(log.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut log = self.0.lock().unwrap();
        let at = log.position(span);
        values.record(&mut log.heard[at]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().hear(event.metadata(), |heard| event.record(heard));
    }

    fn enter(&self, span: &Id) {
        let mut log = self.0.lock().unwrap();
        let at = log.position(span);
        log.entered.push(at);
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

/// Ignores all spans and events, and keeps them enabled for others. Without it, a span that a thread without a
/// subscriber reaches first may be turned off for all threads.
struct Deaf;

impl Subscriber for Deaf {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns everything that `work` emits.
fn listen<R>(work: impl FnOnce() -> R) -> (R, Vec<Heard>) {
    static DEAF: Once = Once::new();
    DEAF.call_once(|| ::tracing::subscriber::set_global_default(Deaf).expect("the only one"));
    let listener = Listener::default();
    let result = ::tracing::subscriber::with_default(listener.clone(), work);
    let heard = std::mem::take(&mut listener.0.lock().unwrap().heard);
    (result, heard)
}

/// Returns only the debug spans and events.
fn at_debug(heard: Vec<Heard>) -> Vec<Heard> {
    heard.into_iter().filter(|heard| heard.level == Level::DEBUG).collect()
}

fn debug(name: &str, fields: &[(&'static str, &str)], within: &[&str]) -> Heard {
    let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let within = within.iter().map(|name| (*name).to_owned()).collect();
    Heard { name: name.to_owned(), level: Level::DEBUG, fields, within }
}

fn clock() -> Timestamp {
    Timestamp::from_secs(1)
}

fn schedulers(pods: impl IntoIterator<Item = Pod>) -> Schedulers {
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    engine
        .submit(portolan::cache::Event::add_node(node("n1").cpu(1_000).memory(1 << 40).build()))
        .unwrap()
        .wait()
        .unwrap()
        .unwrap();
    for pod in pods {
        engine.submit(portolan::cache::Event::put_pending(pod)).unwrap().wait().unwrap().unwrap();
    }
    schedulers
}

#[test]
fn a_cycle_is_a_span_with_its_decision_and_a_binding_is_another() {
    let schedulers = schedulers([pod("web-0").cpu(250).build()]);
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let (attempt, heard) = listen(|| scheduling.schedule_one(None, clock).unwrap());
    let Attempt::Placed(placement) = attempt else { panic!("{attempt:?}") };
    let attempt = [("pod", "default/web-0"), ("attempt", "1"), ("pods", "1")];
    let cycle = [("pod", "default/web-0"), ("uid", "default/web-0"), ("node", "n1")];
    let expected = [
        debug("scheduling_attempt", &attempt, &[]),
        debug("scheduling_cycle", &cycle, &["scheduling_attempt"]),
        debug("pod assumed", &[], &["scheduling_attempt", "scheduling_cycle"]),
    ];
    assert_eq!(at_debug(heard), expected);

    let (bound, heard) = listen(|| scheduling.bind(&placement, clock));
    assert!(bound.is_ok());
    let expected =
        [debug("binding_cycle", &cycle, &[]), debug("pod bound", &[], &["binding_cycle"])];
    assert_eq!(at_debug(heard), expected);
}

#[test]
fn a_failed_cycle_is_a_span_with_the_refusal() {
    let schedulers = schedulers([pod("big").cpu(2_000).build()]);
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let (_, heard) = listen(|| scheduling.schedule_one(None, clock).unwrap());
    let cycle = heard.iter().find(|heard| heard.name == "scheduling_cycle").unwrap();
    let (field, refusal) = cycle.fields.last().unwrap();
    assert_eq!(*field, "refusal");
    assert!(refusal.contains("Insufficient cpu"), "{refusal}");
    assert!(heard.iter().any(|heard| heard.name == "pod refused"));
}

#[test]
fn a_preemption_emits_its_victims() {
    let schedulers = schedulers([pod("high").cpu(800).priority(7).build()]);
    let low = pod("low").cpu(800).on("n1").build();
    schedulers
        .engine()
        .submit(portolan::cache::Event::add_pod(low))
        .unwrap()
        .wait()
        .unwrap()
        .unwrap();
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let (_, heard) = listen(|| scheduling.schedule_one(None, clock).unwrap());
    let evicted = [("preemptor", "default/high"), ("node", "n1"), ("victims", "1")];
    let within = ["scheduling_attempt", "scheduling_cycle"];
    assert!(heard.contains(&debug("victims evicted", &evicted, &within)), "{heard:#?}");
}

#[test]
fn a_gang_is_one_span() {
    let engine = Engine::shared(Config::default());
    engine
        .submit(portolan::cache::Event::add_node(node("n1").cpu(1_000).build()))
        .unwrap()
        .wait()
        .unwrap()
        .unwrap();
    let framework = Framework::default_profile();
    let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let mut scheduler = Scheduler::new(engine, Profiles::one(algorithm)).unwrap();
    let pods = ["a", "b"].map(|name| Arc::new(pod(name).cpu(100).build()));
    let (gang, heard) = listen(|| scheduler.schedule_gang(&pods, 2, clock()));
    assert_eq!(gang.unwrap().placed.len(), 2);
    let fields = [("first", "default/a"), ("members", "2"), ("placed", "2")];
    let expected = [debug("gang", &fields, &[]), debug("gang assumed", &[], &["gang"])];
    assert_eq!(at_debug(heard), expected);
}

#[test]
fn an_engine_emits_batches_versions_relists_and_its_end() {
    let ((), heard) = listen(|| {
        let engine = Engine::shared(Config::default());
        let refused = engine
            .submit(portolan::cache::Event::RemoveNode("unknown".into()))
            .unwrap()
            .wait()
            .unwrap();
        assert!(refused.is_err());
        let nodes = ["n1", "n2"].map(|name| Arc::new(node(name).build()));
        engine
            .with_writer(|writer| {
                writer.relist(Relist::Nodes(nodes.to_vec())).unwrap();
                writer.rebuild();
            })
            .unwrap();
        engine.close();
    });
    let names: Vec<&str> = heard.iter().map(|heard| &*heard.name).collect();
    let expected = [
        "shared engine opened",
        "batch folded",
        "version published",
        "relist applied",
        "version published",
        "state rebuilt",
        "engine closed",
        "engine dropped",
    ];
    assert_eq!(names, expected);
    let fields = |at: usize| -> Vec<(&str, &str)> {
        heard[at].fields.iter().map(|(name, value)| (*name, &**value)).collect()
    };
    assert_eq!(fields(1), [("events", "1"), ("refused", "1")]);
    assert_eq!(fields(2)[0], ("generation", "1"));
    let relist = [
        ("kind", "\"Node\""),
        ("added", "2"),
        ("updated", "0"),
        ("removed", "0"),
        ("rejected", "0"),
    ];
    assert_eq!(fields(3), relist);
    assert_eq!(fields(5), [("generation", "3"), ("differences", "0")]);
    assert_eq!((heard[1].level, heard[2].level), (Level::TRACE, Level::TRACE));
}
