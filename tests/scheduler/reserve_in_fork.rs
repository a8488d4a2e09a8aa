//! What a plugin reserves in a store is seen by the next pods of a fork.

use std::sync::Arc;

use portolan::cache::{Cluster, Config, Engine, Event, Store};
use portolan::model::{CustomEvent, Generation, Name, Pod, Timestamp, node, pod};
use portolan::plugin::{
    Code, Cycle, Handle, Plugin, PluginInfo, Point, PreFilter, Status, default_plugins,
};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework, Profiles, Scheduler, WhatIf};

/// Tokens, of which each pod takes one.
#[derive(Clone)]
struct Tokens(usize);

struct Take;

impl Store for Tokens {
    type Event = Take;

    const NAME: &'static str = "Tokens";

    fn check(&self, _: &Take, _: &Cluster) -> Result<(), String> {
        if self.0 == 0 { Err("no token is left".to_owned()) } else { Ok(()) }
    }

    fn apply(&mut self, _: &Take, _: Generation) {
        self.0 -= 1;
    }
}

/// Rejects pods if no token is left. Careless plugins check nothing.
struct TokenPlugin {
    engine: Engine,
    is_careless: bool,
}

impl Plugin for TokenPlugin {
    fn info(&self) -> PluginInfo {
        PluginInfo::new("Tokens", &[Point::PreFilter, Point::Reserve])
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let tokens = cycle.cluster.store::<Tokens>();
        match tokens.is_ok_and(|tokens| tokens.0 > 0 || self.is_careless) {
            true => Ok(PreFilter::Skip),
            false => Err(Status::new(Code::Unschedulable, "Tokens", "no token is left")),
        }
    }

    fn reserve(&self, _: Cycle<'_>, _: &Name) -> Result<(), Status> {
        let taken = self.engine.submit(Event::custom::<Tokens>(Take)).unwrap().wait().unwrap();
        taken.map(drop).map_err(|why| Status::error("Tokens", why.to_string()))
    }

    fn reserve_in_fork(&self, cycle: Cycle<'_>, _: &Name) -> Result<Vec<CustomEvent>, Status> {
        assert_ne!(&*cycle.pod.name, "broken");
        Ok(vec![CustomEvent::new::<Tokens>(Take)])
    }
}

fn engine(tokens: usize) -> Engine {
    let engine = Engine::shared(Config::default().with_store(Tokens(tokens)));
    let node = node("n").cpu(4_000).memory(1 << 30).build();
    engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
    engine
}

fn framework(engine: &Engine, is_careless: bool) -> Framework {
    let plugin = TokenPlugin { engine: engine.clone(), is_careless };
    let mut plugins = default_plugins(&Handle::default());
    plugins.push((Box::new(plugin), 0));
    Framework::new(plugins).unwrap()
}

fn what_if(engine: &Engine, is_careless: bool) -> WhatIf {
    let framework = Arc::new(framework(engine, is_careless));
    let snapshot = engine.reader().unwrap().snapshot();
    WhatIf::new(&snapshot, framework, AlgorithmConfig::default())
}

fn pods() -> [Arc<Pod>; 2] {
    ["a", "b"].map(|name| Arc::new(pod(name).cpu(100).build()))
}

#[test]
fn members_of_a_gang_see_what_the_members_before_reserve() {
    for (tokens, fits) in [(1, false), (2, true)] {
        let engine = engine(tokens);
        let algorithm = Algorithm::new(framework(&engine, false), AlgorithmConfig::default(), None);
        let mut scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
        let placed = scheduler.schedule_gang(&pods(), 2, Timestamp::from_secs(1));
        match placed {
            Ok(gang) => {
                assert!(fits);
                gang.placed.into_iter().for_each(|placement| drop(placement.keep_assumed()));
            }
            Err(why) => assert!(matches!(why, Failure::TooFew { found: 1, .. }) && !fits, "{why}"),
        }
        let left = engine.reader().unwrap().snapshot().store::<Tokens>().unwrap().0;
        assert_eq!(left, if fits { 0 } else { 1 });
    }
}

#[test]
fn pods_of_a_what_if_question_see_what_the_pods_before_reserve() {
    let engine = engine(3);
    let mut what_if = what_if(&engine, false);
    assert_eq!(what_if.fit_more(&pods()[0], 10).into_values().sum::<usize>(), 3);
    assert_eq!(what_if.store::<Tokens>().unwrap().0, 3);
    what_if.schedule(&pods()[0]).unwrap();
    assert_eq!(what_if.store::<Tokens>().unwrap().0, 2);
    assert_eq!(engine.reader().unwrap().snapshot().store::<Tokens>().unwrap().0, 3);
}

#[test]
fn a_pod_whose_reservation_is_refused_or_panics_is_not_placed() {
    let engine = engine(1);
    let mut what_if = what_if(&engine, true);
    let broken = what_if.schedule(&pod("broken").cpu(100).build()).unwrap_err();
    assert!(broken.to_string().contains("panicked in ReserveInFork"), "{broken}");
    let [a, b] = pods();
    what_if.schedule(&a).unwrap();
    let refused = what_if.schedule(&b).unwrap_err();
    assert!(refused.to_string().contains("no token is left"), "{refused}");
    assert_eq!(what_if.pod_count(), 1);
}
