//! Hostnames are topology domains like any other label's values, although they are numbered in another way: nodes may
//! share one, lack it, bear another node's name, change it, or return after their removal.

use std::sync::Arc;

use portolan::cache::{Config, Engine, Event};
use portolan::model::{
    EventError, LabelSelector, Name, Node, Pod, PodAffinity, PodAffinityTerm, Timestamp,
    TopologySpreadConstraint, UnsatisfiableAction, WeightedPodAffinityTerm, node, pod,
};
use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
use portolan_testkit::random::Random;
use proptest::prelude::*;

const HOSTNAME: &str = "kubernetes.io/hostname";
/// A label with the same values as the hostname.
const RACK: &str = "rack";
const NODES: u64 = 90;

/// A scheduler of a cluster whose domains are the values of one label.
struct World {
    key: &'static str,
    engine: Engine,
    scheduler: Scheduler,
}

impl World {
    fn new(key: &'static str, percentage_of_nodes: u8) -> World {
        let engine = Engine::shared(Config::default());
        let config = AlgorithmConfig { percentage_of_nodes, seed: 7 };
        let algorithm = Algorithm::new(Framework::default_profile(), config, None);
        let scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
        World { key, engine, scheduler }
    }

    fn submit(&self, event: Event) -> Result<(), EventError> {
        self.engine.submit(event).unwrap().wait().unwrap().map(drop)
    }

    /// Returns a node, whose label has this value.
    fn node(&self, n: u64, zone: u64, value: Option<&str>) -> Node {
        let built = node(format!("n{n}")).zone(format!("z{zone}")).cpu(1_000).memory(1 << 30);
        match value {
            Some(value) => built.pods(5).label(self.key, value).build(),
            None => built.pods(5).build(),
        }
    }

    /// Returns a pod with one of a few rules about domains.
    fn pod(&self, name: &str, app: &str, rule: u64) -> Pod {
        let selector = LabelSelector::from_labels([("app", app)]);
        let term = || PodAffinityTerm {
            topology_key: self.key.into(),
            selector: selector.clone(),
            namespaces: Box::default(),
            namespace_selector: LabelSelector::Nothing,
        };
        let required = || PodAffinity { required: Box::new([term()]), ..PodAffinity::default() };
        let preferred = || PodAffinity {
            preferred: Box::new([WeightedPodAffinityTerm { weight: 50, term: term() }]),
            ..PodAffinity::default()
        };
        let built = pod(name).cpu(10).label("app", app);
        match rule {
            0 => built.pod_anti_affinity(required()),
            1 => built.pod_affinity(required()),
            2 => built.pod_anti_affinity(preferred()),
            3 => built.pod_affinity(preferred()),
            4 => {
                let spread = TopologySpreadConstraint {
                    max_skew: 1,
                    topology_key: self.key.into(),
                    when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
                    selector: selector.clone(),
                    min_domains: None,
                    honor_node_affinity: true,
                    honor_node_taints: false,
                    match_label_keys: Box::default(),
                };
                built.spec(|spec| spec.topology_spread = Box::new([spread]))
            }
            _ => built,
        }
        .build()
    }

    /// Schedules the pods and returns their nodes.
    fn schedule(&mut self, pods: &[Arc<Pod>], as_batch: bool) -> Vec<Option<Name>> {
        let now = Timestamp(0);
        let placed = match as_batch {
            true => self.scheduler.schedule_batch(pods, now),
            false => pods.iter().map(|pod| self.scheduler.schedule(pod, now)).collect(),
        };
        placed.into_iter().map(|placed| placed.ok()?.keep_assumed().node_name.clone()).collect()
    }
}

/// Returns the value of a node's label.
fn value(random: &mut Random, n: u64) -> Option<String> {
    match random.below(8) {
        0 => None,
        1 => Some("shared".to_owned()),
        2 | 3 => Some(format!("n{}", random.below(NODES))),
        _ => Some(format!("n{n}")),
    }
}

fn hostnames_are_like_other_labels(
    seed: u64,
    rounds: usize,
    percentage: u8,
) -> Result<(), TestCaseError> {
    let mut random = Random::new(seed);
    let mut worlds = [HOSTNAME, RACK].map(|key| World::new(key, percentage));
    let everywhere = |worlds: &[World; 2], event: &dyn Fn(&World) -> Event| {
        let [one, other] = worlds.each_ref().map(|world| world.submit(event(world)));
        assert_eq!(one, other);
    };
    let few = random.below(NODES) + 1;
    for n in 0..few {
        let (zone, value) = (random.below(2), value(&mut random, n));
        everywhere(&worlds, &|world| Event::add_node(world.node(n, zone, value.as_deref())));
    }
    let mut placed: Vec<(String, u64, Name)> = Vec::new();
    for round in 0..rounds {
        for _ in 0..random.below(4) {
            let n = random.below(few);
            let (zone, value) = (random.below(2), value(&mut random, n));
            let of = |world: &World| world.node(n, zone, value.as_deref());
            match random.below(4) {
                0 => everywhere(&worlds, &|_| Event::RemoveNode(format!("n{n}").into())),
                1 => everywhere(&worlds, &|world| Event::add_node(of(world))),
                _ => everywhere(&worlds, &|world| Event::update_node(of(world))),
            }
        }
        if !placed.is_empty() && random.below(2) == 0 {
            let at = random.below(placed.len() as u64) as usize;
            let (name, rule, node) = placed.swap_remove(at);
            let app = if rule % 2 == 0 { "a" } else { "b" };
            everywhere(&worlds, &|world| {
                Event::forget(&world.pod(&name, app, rule).on(node.clone()))
            });
        }
        let (rule, count) = (random.below(6), 1 + random.below(4));
        let app = if rule % 2 == 0 { "a" } else { "b" };
        let as_batch = random.below(2) == 0;
        let names: Vec<String> = (0..count).map(|n| format!("p{round}-{n}")).collect();
        let [one, other] = worlds.each_mut().map(|world| {
            let pods = names.iter().map(|name| Arc::new(world.pod(name, app, rule)));
            world.schedule(&pods.collect::<Vec<_>>(), as_batch)
        });
        prop_assert_eq!(&one, &other, "round {}, rule {}", round, rule);
        let kept = names.into_iter().zip(one).filter_map(|(name, at)| Some((name, rule, at?)));
        placed.extend(kept);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn pods_are_placed_by_hostname_as_by_a_label_with_the_same_values(
        seed in any::<u64>(),
        rounds in 1..50_usize,
        percentage in prop_oneof![Just(0_u8), Just(100)],
    ) {
        hostnames_are_like_other_labels(seed, rounds, percentage)?;
    }
}
