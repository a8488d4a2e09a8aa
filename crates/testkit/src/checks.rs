//! Invariants that hold for every pod on every cluster: chunk and per-node calls of a plugin agree, the cycle's
//! decision follows from the plugins' verdicts on single nodes, and incremental filters equal rebuilt ones.

use std::collections::BTreeMap;

use portolan::cache::{Chunk, Cluster, Fork};
use portolan::model::Pod;
use portolan::plugin::{
    Code, Cycle, CycleState, Evaluation, Feasible, Filter, Handle, Nomination, Plugin, Point,
    PreFilter, PreScore, Reasons, Status, default_plugins,
};
use portolan::{Algorithm, Decision, Failure, FitError, Framework};

use crate::draw::Draw;

fn plugins() -> Vec<Box<dyn Plugin>> {
    default_plugins(&Handle::default()).into_iter().map(|(plugin, _)| plugin).collect()
}

fn chunks(cluster: &Cluster) -> impl Iterator<Item = &Chunk> {
    cluster.zones().flat_map(|zone| zone.chunks())
}

/// Asserts that the chunk and per-node calls of every plugin agree.
///
/// # Panics
///
/// Panics if the assertion fails.
pub fn chunk_and_node_calls_agree(cluster: &Cluster, pod: &Pod) {
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    for plugin in plugins() {
        if let Ok(PreFilter::Filter(filter) | PreFilter::Only(_, filter)) = plugin.pre_filter(cycle)
        {
            for chunk in chunks(cluster) {
                for mask in [chunk.live(), chunk.live() & 0x5555_5555_5555_5555] {
                    same_filter(plugin.info().name(), &*filter, (cluster, chunk), mask);
                }
            }
        }
        let feasible = Feasible::of(cluster, cluster.nodes());
        match plugin.pre_score(cycle, &feasible) {
            Ok(PreScore::Score(score)) => {
                for chunk in chunks(cluster) {
                    let mut scores = [0; 64];
                    let of_chunk = score.score_chunk(cluster, chunk, chunk.live(), &mut scores);
                    let nodes = (0..64).filter_map(|lane| {
                        (chunk.live() >> lane & 1 == 1).then(|| cluster.node_in(chunk, lane))?
                    });
                    let of_nodes: Result<Vec<i64>, Status> =
                        nodes.map(|node| score.score(node)).collect();
                    let lanes = (0..64).filter(|lane| chunk.live() >> lane & 1 == 1);
                    let of_chunk = of_chunk.map(|()| lanes.map(|lane| scores[lane]).collect());
                    assert_eq!(of_chunk, of_nodes, "{}", plugin.info().name());
                }
            }
            Ok(PreScore::All(all)) => assert!((0..=100).contains(&all)),
            Ok(PreScore::Skip) | Err(_) => {}
        }
    }
}

fn same_filter(name: &str, filter: &dyn Filter, (cluster, chunk): (&Cluster, &Chunk), mask: u64) {
    let mut expected = Ok(0_u64);
    let mut expected_reasons = BTreeMap::new();
    for lane in (0..64).filter(|lane| mask >> lane & 1 == 1) {
        let node = cluster.node_in(chunk, lane).expect("a live lane has a node");
        match (filter.filter(node), &mut expected) {
            (None, Ok(passed)) => *passed |= 1 << lane,
            (Some(status), Ok(_)) if !status.code.is_rejection() => expected = Err(status),
            (Some(status), _) => {
                assert!(!status.reasons.is_empty(), "{name} rejects without a reason");
                for reason in status.reasons {
                    *expected_reasons.entry(reason).or_insert(0) += 1;
                }
            }
            (None, Err(_)) => {}
        }
    }
    assert_eq!(filter.filter_chunk(cluster, chunk, mask), expected, "{name}");
    let mut reasons = Reasons::default();
    assert_eq!(filter.count_reasons(cluster, chunk, mask, &mut reasons), expected, "{name}");
    if let Ok(passed) = expected {
        assert_eq!(reasons.into_map(), expected_reasons, "{name}");
        let rejected = mask & !passed;
        let resolvable = (0..64).filter(|lane| rejected >> lane & 1 == 1).filter(|lane| {
            let status = cluster.node_in(chunk, *lane).and_then(|node| filter.filter(node));
            status.is_some_and(|status| status.code == Code::Unschedulable)
        });
        let resolvable = resolvable.fold(0, |lanes, lane| lanes | 1_u64 << lane);
        assert_eq!(filter.resolvable(cluster, chunk, rejected), resolvable, "{name}");
    }
}

/// Asserts that the verdicts of all plugins on all nodes are consistent: scores are from 0 to 100, totals are weighted
/// sums, and if no node is feasible, the error counts exactly the reasons that the nodes gave.
///
/// # Panics
///
/// Panics if the assertion fails.
pub fn verdicts_are_consistent(framework: &Framework, cluster: &Cluster, pod: &Pod) -> Evaluation {
    let found = framework.evaluate(cluster, pod);
    for (name, verdict) in &found.nodes {
        for score in &verdict.scores {
            assert!((0..=100).contains(&score.normalized), "{name} {score:?}");
            let weight =
                framework.plugins_at(Point::Score).find(|(p, _)| p.info().name() == score.plugin);
            let (_, weight) = weight.expect("only Score plugins give scores");
            assert_eq!(score.weighted, score.normalized * weight, "{name} {score:?}");
        }
        let total = verdict.scores.iter().map(|score| score.weighted).sum::<i64>();
        assert_eq!(total, verdict.total());
        assert!(verdict.status.is_none() || verdict.scores.is_empty(), "{name} scored, rejected");
    }
    if let Some(error) = &found.rejected {
        assert_eq!(error.nodes, cluster.len());
        if error.pre_filter.is_some() {
            assert!(error.reasons.values().all(|count| *count == cluster.len()));
        } else {
            assert_eq!(found.nodes.len(), cluster.len());
            let mut counts = BTreeMap::new();
            for (name, verdict) in &found.nodes {
                let status = verdict.status.as_ref().expect("no node is feasible");
                assert!(!status.reasons.is_empty(), "{name} is rejected without a reason");
                for reason in &status.reasons {
                    *counts.entry(reason.clone()).or_insert(0) += 1;
                }
            }
            assert_eq!(error.reasons, counts);
        }
    }
    found
}

/// Schedules the pod, and asserts that the decision equals the one computed node by node. Errors of plugins are not
/// compared, since a plugin may fail on a node that the per-node search does not examine.
///
/// # Panics
///
/// Panics if the assertion fails.
pub fn decided_by_nodes(
    scheduler: &mut Algorithm,
    cluster: &Cluster,
    pod: &Pod,
) -> Result<Decision, Failure> {
    let state = CycleState::default();
    let by_nodes = scheduler.decide_by_nodes(Cycle::new(cluster, pod, &state));
    let decided = scheduler.schedule(cluster, pod);
    let expected = match &decided {
        Err(Failure::Plugin(_)) => return decided,
        Err(Failure::Fit(error)) => {
            // The per-node search does not run preemption.
            let (post_filter, nomination) = (None, Nomination::Keep);
            let error = FitError { post_filter, nomination, ..FitError::clone(error) };
            Err(Failure::Fit(Box::new(error)))
        }
        other => other.clone(),
    };
    assert_eq!(by_nodes, expected, "node by node");
    decided
}

/// Returns whether a plugin's incremental updates deliberately differ from a rebuilt filter, as kube-scheduler's do.
/// VolumeRestrictions matches claims by name in any namespace, and PodTopologySpread counts pods although the selector
/// is empty.
fn differs_by_design(plugin: &str, pod: &Pod) -> bool {
    plugin == "VolumeRestrictions"
        || plugin == "PodTopologySpread"
            && pod.template.topology_spread.iter().any(|spread| spread.selector.is_empty())
}

/// Returns the status of each node of a version, in list order.
fn rejections(filter: &dyn Filter, cluster: &Cluster) -> Vec<Option<Status>> {
    cluster.nodes().map(|node| filter.filter(node)).collect()
}

/// Asserts that filters that are updated incrementally while pods are added to and removed from a fork equal filters
/// rebuilt on the fork, and that the original filters do not change. A filter that needs no updates is used unchanged.
///
/// # Panics
///
/// Panics if the assertion fails.
pub fn incremental_filters_equal_rebuilt(
    draw: &mut Draw<'_>,
    cluster: &Cluster,
    pod: &Pod,
    steps: usize,
) {
    let state = CycleState::default();
    for plugin in plugins().iter().filter(|plugin| !differs_by_design(plugin.info().name(), pod)) {
        let Ok(PreFilter::Filter(filter) | PreFilter::Only(_, filter)) =
            plugin.pre_filter(Cycle::new(cluster, pod, &state))
        else {
            continue;
        };
        let before = rejections(&*filter, cluster);
        let mut incremental = filter.extend();
        let mut fork = cluster.fork();
        for step in 0..steps {
            if !add_or_remove_pod(draw, &mut fork, incremental.as_deref_mut(), step) {
                break;
            }
            let rebuilt = match plugin.pre_filter(Cycle::new(&fork, pod, &state)) {
                Ok(PreFilter::Filter(rebuilt) | PreFilter::Only(_, rebuilt)) => {
                    rejections(&*rebuilt, &fork)
                }
                Ok(PreFilter::Skip) => vec![None; fork.len()],
                Err(_) => break,
            };
            let verdicts = rejections(
                incremental.as_deref().map_or(&*filter, |incremental| incremental),
                &fork,
            );
            assert_eq!(verdicts, rebuilt, "{}", plugin.info().name());
        }
        drop(incremental);
        assert_eq!(rejections(&*filter, cluster), before, "{}: the original", plugin.info().name());
    }
}

/// Adds a pod to a node of the fork or removes one, and updates the filter. Returns whether the fork has a node.
fn add_or_remove_pod<'a>(
    draw: &mut Draw<'_>,
    fork: &mut Fork,
    incremental: Option<&mut (dyn Filter + 'a)>,
    step: usize,
) -> bool {
    let at = draw.below(fork.len().max(1) as u64) as usize;
    let Some(node) = fork.nodes().nth(at) else { return false };
    let (name, present) = (node.name().clone(), node.pods().next().map(|pod| pod.to_pod()));
    match present.filter(|_| draw.one_in(2)) {
        Some(removed) => {
            fork.remove_pod(&removed.uid).unwrap();
            if let Some(incremental) = incremental {
                incremental.remove_pod(&removed, fork.node(&name).unwrap()).unwrap();
            }
        }
        None => {
            let added = draw.pod(1_000 + step).on(name.clone());
            // A sum that overflows 64 bits is refused.
            if fork.add_pod(&added).is_ok()
                && let Some(incremental) = incremental
            {
                incremental.add_pod(&added, fork.node(&name).unwrap()).unwrap();
            }
        }
    }
    true
}
