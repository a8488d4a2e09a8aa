//! The scores of the first decision that differs between two configurations.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::cache::Snapshot;
use portolan::model::{Name, Pod};
use portolan::plugin::Handle;
use portolan_dra::plugin::DryRunBackend;
use serde_json::{Value, json};

use super::{Entrant, Run, Setting, differences};
use crate::error::CommandError;
use crate::explain::{Unchanging, verdict};
use crate::replay::Mode;

impl Setting<'_> {
    /// Adds the scores of the first decisions that differ from those of the first configuration: of both nodes, under
    /// both configurations, on the cluster as the first configuration has left it until then. In timed mode, pods are
    /// not decided on in the order of the workload, and nothing is added.
    pub(super) fn score(&self, entrants: &[Entrant], runs: &mut [Run]) -> Result<(), CommandError> {
        let (Some((first, others)), Some((first_entrant, other_entrants))) =
            (runs.split_first_mut(), entrants.split_first())
        else {
            return Ok(());
        };
        if self.source.options.mode != Mode::Fill {
            return Ok(());
        }
        let first: &Run = first;
        let mut clusters: BTreeMap<usize, Arc<Snapshot>> = BTreeMap::new();
        for (run, entrant) in others.iter_mut().zip(other_entrants) {
            let Some(at) = differences(first, run).1 else { continue };
            let pod = &self.workload.arrivals[at].pod;
            // The controller of claims would have to create them first.
            if !pod.template.resource_claims.is_empty() {
                continue;
            }
            let cluster = match clusters.get(&at) {
                Some(cluster) => cluster.clone(),
                None => {
                    let cluster = self.outcome(first_entrant, None, self.source.seed, at)?.end;
                    clusters.entry(at).or_insert(cluster).clone()
                }
            };
            let nodes = [first, &*run].map(|run| run.outcome.placements[at].clone());
            let nodes: Vec<Name> = nodes.into_iter().flatten().collect();
            let of = |entrant: &Entrant| verdicts(entrant, &cluster, pod, &nodes);
            let verdicts = of(first_entrant)?.into_iter().zip(of(entrant)?);
            let scores = nodes.iter().zip(verdicts).map(
                |(node, (first, here))| json!({ "node": &**node, "first": first, "here": here }),
            );
            run.scores = Some(scores.collect());
        }
        Ok(())
    }
}

/// The verdicts of a configuration on these nodes, `null` for a node that is not evaluated.
fn verdicts(
    entrant: &Entrant,
    cluster: &Arc<Snapshot>,
    pod: &Pod,
    nodes: &[Name],
) -> Result<Vec<Value>, CommandError> {
    let handle = Handle::default().with_snapshots(Arc::new(Unchanging(cluster.clone())));
    let policies = entrant.config.policies(&handle, Arc::new(DryRunBackend))?;
    let evaluation = policies.of(pod).map(|profile| profile.framework.evaluate(cluster, pod));
    let found = nodes.iter().map(|node| {
        let found = evaluation.as_ref().and_then(|evaluation| evaluation.nodes.get(node));
        found.map_or(Value::Null, |found| json!(verdict(found)))
    });
    Ok(found.collect())
}
