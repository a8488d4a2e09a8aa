//! `portolan-bench sched --check`, apart from decisions node by node: the decisions of batches equal those made one by
//! one, and the state after a measurement is the one that its outcomes describe.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{ChangedSince, Engine, NodeInfo, Snapshot};
use portolan::model::{Generation, Name, Pod, Timestamp, Uid};
use portolan::{Failure, Scheduler};

use portolan_cli::CommandError;
use portolan_cli::closed;

use super::cycles::{Outcome, kept, retry};
use super::measure::is_overcommitted;
use super::nofit::Changes;

/// The decisions that those of a measurement are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Those made node by node on the same snapshots.
    NodeByNode,
    /// Those for the same pods one by one, on another engine.
    OneByOne,
    /// None, only the final state is checked: decisions of several schedulers depend on time.
    StateOnly,
}

impl Comparison {
    pub(super) fn of(schedulers: usize, batch: u16) -> Comparison {
        match (schedulers, batch) {
            (1, 1) => Comparison::NodeByNode,
            (1, _) => Comparison::OneByOne,
            _ => Comparison::StateOnly,
        }
    }

    /// The name in results; `None` if nothing is compared.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Comparison::NodeByNode => Some("node by node"),
            Comparison::OneByOne => Some("one by one"),
            Comparison::StateOnly => None,
        }
    }
}

/// The nodes of all pods. Pods on two nodes have their last one.
fn places(snapshot: &Snapshot) -> HashMap<Uid, Name> {
    let of = |node: NodeInfo<'_>| {
        let name = node.name().clone();
        node.pods().map(|pod| (pod.uid(), name.clone())).collect::<Vec<_>>()
    };
    snapshot.nodes().flat_map(of).collect()
}

/// The state of an engine before the measured cycles.
pub(super) struct Before {
    generation: Generation,
    places: HashMap<Uid, Name>,
}

impl Before {
    pub(super) fn of(engine: &Engine) -> Result<Before, CommandError> {
        let snapshot = engine.reader().map_err(closed)?.snapshot();
        Ok(Before { generation: snapshot.generation(), places: places(&snapshot) })
    }
}

/// The reports of schedulers about their cycles.
pub(super) struct Report<'a> {
    /// The measured pods.
    pub(super) pods: &'a [Arc<Pod>],
    /// The outcomes of all schedulers.
    pub(super) outcomes: &'a [Outcome],
    /// The decisions that were made again because they no longer held.
    pub(super) conflicts: u64,
    /// Whether only the measured pods change the cluster: no victims, and no events between cycles.
    pub(super) alone: bool,
}

/// Compares the state of an engine with the reports of its schedulers: each pod has one outcome and is on that node
/// alone, or nowhere; other pods have stayed; no node is overcommitted; the newest version is that of the last event,
/// counts each event once, and reports each node with a new pod as changed; and all derived data is correct.
pub(super) fn state(
    engine: &Engine,
    before: &Before,
    report: &Report<'_>,
) -> Result<Vec<String>, CommandError> {
    let mut wrong = Vec::new();
    let figures = engine.figures().map_err(closed)?;
    let snapshot = engine.reader().map_err(closed)?.snapshot();
    let generation = snapshot.generation();
    if (figures.generation, figures.published) != (generation, generation) {
        wrong.push(format!(
            "the newest version has generation {}, the writer {} and its publisher {}",
            generation.0, figures.generation.0, figures.published.0
        ));
    }
    let found = places(&snapshot);
    let placed = outcomes(report, &found, &mut wrong);
    pods(report, (before, &found), &placed, &mut wrong);
    counts(&snapshot, found.len(), &mut wrong);
    for node in snapshot.nodes().filter(is_overcommitted) {
        wrong.push(format!("node {} is overcommitted", node.name()));
    }
    events(report, (before, generation), placed.len(), &mut wrong);
    changes(&snapshot, before, &placed, &mut wrong);
    wrong.extend(snapshot.audit().iter().map(ToString::to_string));
    Ok(wrong)
}

/// Each attempt has one outcome, and each placed pod is on the node of its outcome. Returns the nodes of placed pods.
fn outcomes<'r>(
    report: &Report<'r>,
    found: &HashMap<Uid, Name>,
    wrong: &mut Vec<String>,
) -> HashMap<&'r Uid, &'r Name> {
    let mut attempts: HashMap<&Uid, usize> = HashMap::new();
    report.pods.iter().for_each(|pod| *attempts.entry(&pod.uid).or_default() += 1);
    let mut placed = HashMap::new();
    for (pod, outcome) in report.outcomes {
        match attempts.get_mut(&pod.uid) {
            Some(left @ 1..) => *left -= 1,
            _ => wrong.push(format!("pod {} has more outcomes than cycles", pod.name)),
        }
        let Ok(decision) = outcome else { continue };
        if placed.insert(&pod.uid, &decision.node).is_some() {
            wrong.push(format!("pod {} was placed twice", pod.name));
        }
        if found.get(&pod.uid) != Some(&decision.node) {
            let place = found.get(&pod.uid).map_or("no node", |node| node);
            let expected = &decision.node;
            wrong.push(format!("pod {} is on {place}, but was placed on {expected}", pod.name));
        }
    }
    let missing = attempts.values().sum::<usize>();
    if missing > 0 {
        wrong.push(format!("cycles without an outcome: {missing}"));
    }
    placed
}

/// Measured pods are on nodes only if they were placed, and the other pods are where they were before.
fn pods(
    report: &Report<'_>,
    (before, found): (&Before, &HashMap<Uid, Name>),
    placed: &HashMap<&Uid, &Name>,
    wrong: &mut Vec<String>,
) {
    let measured: HashSet<&Uid> = report.pods.iter().map(|pod| &pod.uid).collect();
    for (uid, node) in found {
        let expected = match measured.contains(uid) {
            true => placed.contains_key(uid),
            false => !report.alone || before.places.get(uid) == Some(node),
        };
        if !expected {
            wrong.push(format!("pod {uid} is on {node}, where nothing placed it"));
        }
    }
    let stayed = |uid: &&Uid| !found.contains_key(uid);
    if let Some(lost) = before.places.keys().find(stayed).filter(|_| report.alone) {
        wrong.push(format!("pod {lost} is on no node, but was not removed"));
    }
}

/// Each pod is on one node, and the cluster counts it once.
fn counts(snapshot: &Snapshot, pods: usize, wrong: &mut Vec<String>) {
    let on_nodes: usize = snapshot.nodes().map(|node| node.pod_count()).sum();
    let count = snapshot.pod_count();
    if (on_nodes, count) != (pods, pods) {
        wrong.push(format!(
            "pods found on nodes: {pods}; sum of the nodes' pod counts: {on_nodes}; pod count of the cluster: {count}"
        ));
    }
}

/// The generation has counted one event for each placement and each conflict.
fn events(
    report: &Report<'_>,
    (before, now): (&Before, Generation),
    placed: usize,
    wrong: &mut Vec<String>,
) {
    let Report { outcomes, conflicts, alone, .. } = *report;
    let events = now.0.saturating_sub(before.generation.0);
    let decided = |outcome: &Outcome| !matches!(outcome.1, Err(Failure::Refused(_)));
    let expected = placed as u64 + conflicts;
    if alone && outcomes.iter().all(decided) && events != expected {
        wrong.push(format!(
            "{placed} pods were placed after {conflicts} conflicts, but {events} events happened"
        ));
    }
}

/// The nodes of placed pods are reported as changed.
fn changes(
    snapshot: &Snapshot,
    before: &Before,
    placed: &HashMap<&Uid, &Name>,
    wrong: &mut Vec<String>,
) {
    let Ok(ChangedSince::Changes(changes)) = snapshot.changed_since(before.generation) else {
        return;
    };
    let changed: HashSet<&str> = changes.iter().map(|change| &*change.name).collect();
    for (uid, node) in placed {
        if !changed.contains(&***node) {
            wrong.push(format!("node {node} did not change, but pod {uid} was placed there"));
        }
    }
}

/// The engine that batches are compared with: it has the same cluster, and its pods are scheduled one by one.
pub(super) struct Reference {
    pub(super) engine: Engine,
    pub(super) scheduler: Scheduler,
    pub(super) changes: Option<Changes>,
}

/// Schedules the pods of these outcomes on the reference, one by one, and compares outcomes and final states.
pub(super) fn one_by_one(
    reference: &mut Reference,
    batch: usize,
    outcomes: &[Outcome],
    engine: &Engine,
) -> Result<Vec<String>, CommandError> {
    let mut wrong = Vec::new();
    for outcomes in outcomes.chunks(batch) {
        if let Some(changes) = &mut reference.changes {
            changes.next()?;
        }
        let pods: Vec<Arc<Pod>> = outcomes.iter().map(|(pod, _)| pod.clone()).collect();
        let scheduler = &mut reference.scheduler;
        let placed = pods.iter().map(|pod| scheduler.schedule(pod, Timestamp(0))).collect();
        let placed = retry(scheduler, &pods, placed);
        for ((pod, found), alone) in outcomes.iter().zip(placed) {
            let expected = kept(alone);
            if *found != expected {
                let name = &pod.name;
                wrong.push(format!("pod {name}: decided {found:?} in a batch, alone {expected:?}"));
            }
        }
    }
    let [found, expected] = [engine, &reference.engine].map(|engine| engine.reader());
    let (found, expected) =
        (found.map_err(closed)?.snapshot(), expected.map_err(closed)?.snapshot());
    if found.generation() != expected.generation() {
        let (found, expected) = (found.generation().0, expected.generation().0);
        wrong.push(format!("generation {found} after batches, {expected} after single pods"));
    } else if wrong.is_empty() && found.dump() != expected.dump() {
        wrong.push("the states after batches and after single pods differ".to_owned());
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use portolan::cache::{Config, Event};
    use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles};

    use super::*;
    use crate::cache::make_node;
    use crate::cycles::{Supply, Work, work};
    use crate::measure::submit;
    use crate::workloads::{Pods, Shape};

    fn cluster(nodes: usize) -> (Engine, Scheduler) {
        let engine = Engine::shared(Config::default());
        for n in 0..nodes {
            submit(&engine, Event::add_node(make_node(&format!("node-{n:07}"), n))).unwrap();
        }
        let framework = Framework::default_profile();
        let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
        let scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
        (engine, scheduler)
    }

    const BATCH: usize = 4;

    /// Pods in batches on 4 nodes, after one that was there before.
    fn batches() -> (Engine, Before, Vec<Arc<Pod>>, Vec<Outcome>) {
        let (engine, mut scheduler) = cluster(4);
        let mut pods = Pods::new(1, 10);
        let first = Pod::clone(&pods.make(Shape::Basic)).on("node-0000000");
        submit(&engine, Event::add_pod(first)).unwrap();
        let before = Before::of(&engine).unwrap();
        // A pod with anti-affinity occupies a node, so the fifth one fails.
        let shapes = [Shape::Basic, Shape::AntiAffinity];
        let pods: Vec<Arc<Pod>> = (0..10).map(|n| pods.make(shapes[n % 2])).collect();
        let mut of = Work { gang: None, batch: BATCH, by_nodes: false, keep: true, changes: None };
        let supply = Supply::new(&pods);
        let outcomes = work(&mut scheduler, &supply, &mut of).unwrap().outcomes;
        assert_eq!(outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count(), 1);
        (engine, before, pods, outcomes)
    }

    fn report<'a>(pods: &'a [Arc<Pod>], outcomes: &'a [Outcome]) -> Report<'a> {
        Report { pods, outcomes, conflicts: 0, alone: true }
    }

    /// Expects a difference that has this text.
    fn has(found: &[String], text: &str) {
        assert!(found.iter().any(|difference| difference.contains(text)), "{text}: {found:?}");
    }

    #[test]
    fn batches_are_compared_with_single_pods() {
        let compare = |engine: &Engine, outcomes: &[Outcome]| {
            let (reference, scheduler) = cluster(4);
            let mut pods = Pods::new(1, 10);
            let first = Pod::clone(&pods.make(Shape::Basic)).on("node-0000000");
            submit(&reference, Event::add_pod(first)).unwrap();
            let mut reference = Reference { engine: reference, scheduler, changes: None };
            one_by_one(&mut reference, BATCH, outcomes, engine).unwrap()
        };
        let (engine, _, _, outcomes) = batches();
        assert_eq!(compare(&engine, &outcomes), Vec::<String>::new());
        // A decision differs.
        let mut other = outcomes.clone();
        let name = other[3].0.name.clone();
        other[3].1.as_mut().unwrap().node = "node-9".into();
        let found = compare(&engine, &other);
        assert_eq!(found.len(), 1, "{found:?}");
        has(&found, &format!("pod {name}: decided Ok(Decision {{ node: \"node-9\""));
        // The states differ, with as many events and without.
        let removed = outcomes[0].0.clone();
        submit(&engine, Event::forget(&removed)).unwrap();
        has(&compare(&engine, &outcomes), "generation");
        let (engine, ..) = cluster(0);
        has(&compare(&engine, &[]), "generation");
    }

    #[test]
    fn a_consistent_state_is_accepted_and_each_fault_is_named() {
        let (engine, before, pods, outcomes) = batches();
        let check = |report: &Report<'_>| state(&engine, &before, report).unwrap();
        assert_eq!(check(&report(&pods, &outcomes)), Vec::<String>::new());

        let mut wrong = outcomes.clone();
        wrong[0].1.as_mut().unwrap().node = "node-9".into();
        has(&check(&report(&pods, &wrong)), "but was placed on node-9");
        let mut wrong = outcomes.clone();
        let again = wrong[0].clone();
        wrong.push(again);
        let found = check(&report(&pods, &wrong));
        has(&found, "more outcomes than cycles");
        has(&found, "was placed twice");
        let found = check(&report(&pods, &outcomes[1..]));
        has(&found, "cycles without an outcome: 1");
        has(&found, "where nothing placed it");
        has(&found, "9 events happened");
        let conflicts = Report { conflicts: 3, ..report(&pods, &outcomes) };
        has(&check(&conflicts), "9 pods were placed after 3 conflicts, but 9 events happened");
        let later = Before::of(&engine).unwrap();
        let found = state(&engine, &later, &report(&pods, &outcomes)).unwrap();
        has(&found, "did not change");
    }

    #[test]
    fn lost_pods_and_overcommitted_nodes_are_found() {
        let (engine, before, pods, outcomes) = batches();
        for n in 0..40 {
            let pod = Pods::new(2 + n, 10).make(Shape::Basic);
            let pod = Pod::clone(&pod).on("node-0000001");
            submit(&engine, Event::add_pod(pod)).unwrap();
        }
        let (lost, node) = before.places.iter().next().unwrap();
        let first = Event::RemovePod { uid: lost.clone(), node: Some(node.clone()) };
        submit(&engine, first).unwrap();
        let found = state(&engine, &before, &report(&pods, &outcomes)).unwrap();
        has(&found, "node node-0000001 is overcommitted");
        has(&found, "is on no node, but was not removed");
        has(&found, "where nothing placed it");
        let beside = Report { alone: false, ..report(&pods, &outcomes) };
        let found = state(&engine, &before, &beside).unwrap();
        assert_eq!(found, ["node node-0000001 is overcommitted"]);
    }
}
