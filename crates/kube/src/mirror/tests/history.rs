//! Random histories of pods: an engine that is fed by the rules equals the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use portolan::cache::{Config, Engine, Event};
use portolan::model::{self, LabelSelector, Pod, Timestamp, Uid};
use portolan_k8s::{Digest, pod_digest};

use crate::mirror::pod_rules::PodRules;
use crate::mirror::{PendingStatus, PodIndex};

/// A server with pods, a mirror of it, and a scheduler that assumes pods at random.
struct World {
    random: Rng,
    version: u64,
    pods: BTreeMap<Uid, Pod>,
    /// The changes that the mirror has not seen: a pod, and whether it was deleted.
    unseen: Vec<(Pod, bool)>,
    seen: Vec<Pod>,
    rules: PodRules,
    engine: Engine,
    /// The assumptions that the engine accepted.
    assumed: usize,
    /// The versions that were not passed on.
    dropped: usize,
}

/// Returns the digest of what changes about a pod.
fn digest(pod: &Pod) -> Option<Digest> {
    let (node, deletion) = (pod.node_name.as_deref().unwrap_or_default(), pod.deletion_time);
    let json = format!(
        r#"{{"metadata":{{"deletionTimestamp":"{deletion:?}"}},"spec":{{"nodeName":"{node}"}}}}"#
    );
    pod_digest(serde_json::from_str(&json).expect("JSON"))
}

impl World {
    fn new(seed: u64) -> World {
        let rules = PodRules::new(Arc::new(PodIndex::default()), ["ours".into()].into());
        let engine = Engine::shared(Config::default());
        for node in ["n0", "n1", "n2"] {
            let node = model::node(node).cpu(64_000).memory(1 << 40).pods(1_000).build();
            crate::testing::apply(&engine, Event::add_node(node));
        }
        let (random, pods, seen) = (Rng::with_seed(seed), BTreeMap::new(), Vec::new());
        World {
            random,
            version: 0,
            pods,
            unseen: Vec::new(),
            seen,
            rules,
            engine,
            assumed: 0,
            dropped: 0,
        }
    }

    fn any(&mut self) -> Option<Pod> {
        let at = self.random.usize(0..self.pods.len().max(1));
        self.pods.values().nth(at).cloned()
    }

    /// Changes the server.
    fn change(&mut self) {
        self.version += 1;
        let version = self.version;
        let node = format!("n{}", self.random.u32(0..3));
        let pod = match (self.random.u32(0..10), self.any()) {
            (0..3, _) | (_, None) => {
                let scheduler = if self.random.u32(0..4) == 0 { "other" } else { "ours" };
                let name = format!("pod-{}", self.random.u32(0..12));
                if self.pods.values().any(|pod| *pod.name == *name) {
                    return;
                }
                let pod = model::pod(name).uid(format!("uid-{version}")).cpu(10);
                pod.scheduler_name(scheduler).build()
            }
            (3..6, Some(pod)) if pod.node_name.is_none() && pod.deletion_time.is_none() => {
                // Mostly to the node on which the scheduler has assumed it.
                let snapshot = self.engine.reader().expect("open").snapshot();
                let assumed = snapshot.pod(&pod.uid).map(|pod| pod.node().name().to_string());
                pod.on(assumed.filter(|_| self.random.bool()).unwrap_or(node))
            }
            (6, Some(mut pod)) => {
                pod.deletion_time.get_or_insert(Timestamp::from_secs(version as i64));
                pod
            }
            (7..9, Some(mut pod)) => {
                pod.resource_version = version;
                self.pods.remove(&pod.uid);
                self.unseen.push((pod, true));
                return;
            }
            (_, Some(pod)) => pod,
        };
        let pod = Pod { resource_version: version, ..pod };
        self.pods.insert(pod.uid.clone(), pod.clone());
        self.unseen.push((pod, false));
    }

    /// Assumes a pod that the mirror has announced, as a scheduler would, and forgets some.
    fn schedule(&mut self) {
        let Some(pod) = self.any() else { return };
        if pod.template.scheduler_name.as_deref() != Some("ours") {
            return;
        }
        let known = self.rules.index().get(&pod.uid);
        let node = format!("n{}", self.random.u32(0..3));
        let event = match self.random.u32(0..4) {
            0 => Event::ForgetPod { uid: pod.uid, node: None },
            _ if known.is_some_and(|known| known.node.is_none() && !known.is_terminating) => {
                Event::assume(Pod { node_name: None, ..pod }.on(node))
            }
            _ => return,
        };
        // A refusal is the engine's to decide.
        let outcome = self.engine.submit(event).expect("open").wait().expect("folded");
        self.assumed += outcome.map_or(0, |applied| applied.added);
    }

    fn submit(&self, events: Vec<Event>) {
        for event in events {
            let described = format!("{event:?}");
            let outcome = self.engine.submit(event).expect("open").wait().expect("folded");
            assert!(outcome.is_ok(), "{described}: {outcome:?}");
        }
    }

    fn put(&mut self, pod: Pod) {
        let digest = digest(&pod);
        if self.rules.is_known(&pod.uid, pod.resource_version, 0, digest) {
            self.dropped += 1;
            return;
        }
        let mut events = Vec::new();
        self.rules.put(pod, 0, digest, PendingStatus::default, &mut events);
        self.submit(events);
    }

    /// Shows the mirror the next change, and sometimes an old one again.
    fn watch(&mut self) {
        if self.unseen.is_empty() {
            return;
        }
        let (pod, is_deleted) = self.unseen.remove(0);
        if is_deleted {
            let mut events = Vec::new();
            self.rules.delete(&pod.uid, pod.resource_version, &mut events);
            self.submit(events);
            self.seen.retain(|seen| seen.uid != pod.uid);
        } else {
            self.seen.push(pod.clone());
            self.put(pod);
        }
        if let Some(old) = self.random.choice(&self.seen).cloned() {
            self.put(old);
        }
    }

    /// Loses all changes that the mirror has not seen, and lists.
    fn list(&mut self) {
        self.unseen.clear();
        self.seen.clear();
        self.rules.begin_list();
        self.pods.values().cloned().collect::<Vec<_>>().into_iter().for_each(|pod| self.put(pod));
        let mut events = Vec::new();
        self.rules.end_list(&mut events);
        self.submit(events);
    }

    /// Checks that the mirror equals the server, once it has seen everything.
    fn check(&self) {
        let snapshot = self.engine.reader().expect("open").snapshot();
        let everything = LabelSelector::everything();
        let mut placed = BTreeMap::new();
        for pod in snapshot.pods(&everything, |_| true) {
            let uid = pod.uid();
            if pod.is_assumed() {
                let server = self.pods.get(&uid);
                assert!(server.is_some_and(|pod| pod.node_name.is_none()), "{uid} stays assumed");
            } else {
                let known = self.rules.index().get(&uid).expect("listed");
                assert!(pod.resource_version() <= known.resource_version, "{uid}");
                placed.insert(uid, (pod.node().name().to_string(), pod.deletion_time()));
            }
        }
        let expected = self.pods.values().filter_map(|pod| {
            let place = (pod.node_name.as_ref()?.to_string(), pod.deletion_time);
            Some((pod.uid.clone(), place))
        });
        assert_eq!(placed, expected.collect());
        assert_eq!(self.rules.index().len(), self.pods.len());
        for pod in self.pods.values() {
            let known = self.rules.index().get(&pod.uid).expect("listed");
            assert_eq!(known.resource_version, pod.resource_version, "{}", pod.uid);
            assert_eq!(known.node, pod.node_name, "{}", pod.uid);
        }
    }
}

#[test]
fn a_mirror_that_has_seen_everything_equals_the_server() {
    let (mut assumed, mut dropped) = (0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for step in 0..400 {
            match world.random.u32(0..10) {
                0..4 => world.change(),
                4..8 => world.watch(),
                8 => world.schedule(),
                _ if step % 7 == 0 => world.list(),
                _ => {}
            }
            if world.unseen.is_empty() {
                world.check();
            }
        }
        while !world.unseen.is_empty() {
            world.watch();
        }
        world.check();
        assumed += world.assumed;
        dropped += world.dropped;
    }
    assert!(assumed > 100 && dropped > 100, "{assumed} assumptions, {dropped} dropped");
}
