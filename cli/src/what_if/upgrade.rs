//! Upgrades nodes in steps, as managed node pools do.
//!
//! In each step, `--max-surge` nodes are replaced: a new node like the old one joins, the old
//! one is cordoned, drained and deleted. At the same time `--max-unavailable` nodes are
//! upgraded in place: they are cordoned, drained and return. Drains obey disruption budgets. A
//! real upgrade would hang in a step whose drains cannot end; the simulation ends there.

use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{Name, Node, Pod};
use portolan_k8s::{IntOrPercent, Objects};
use serde::Serialize;

use crate::error::CommandError;
use crate::text::count;

use super::Blocked;
use super::daemons::Daemons;
use super::drain::Drains;
use super::fail::remove_nodes;
use super::model::Model;
use super::world::World;
use crate::selection::Selection;

/// Parses a number of nodes or a percentage of them.
pub(super) fn amount(text: &str) -> Result<IntOrPercent, String> {
    IntOrPercent::parse(text).ok_or_else(|| "pass a number such as 2, or 25%".to_owned())
}

/// One step of an upgrade.
#[derive(Serialize)]
pub(super) struct Step {
    pub(super) nodes: Vec<Name>,
    /// How many of the nodes are replaced by new ones before they are drained.
    pub(super) surge: usize,
    pub(super) evicted: usize,
    pub(super) waits: usize,
    /// The pods that block a drain.
    pub(super) blocked: usize,
    /// Pods without a node while the nodes of the step are away.
    pub(super) pending: Vec<Name>,
}

/// An upgrade of nodes in the order of the cluster.
pub(super) struct Upgrade {
    nodes: Vec<Arc<Node>>,
    /// The numbers of nodes in a step that are replaced, and that are upgraded in place.
    size: (usize, usize),
    /// The number of nodes whose steps have ended.
    done: usize,
    pub(super) steps: Vec<Step>,
}

impl Upgrade {
    /// An upgrade that has not begun. Failed nodes are left out.
    pub(super) fn new(
        selection: &Selection,
        failed: &[String],
        (surge, unavailable): (IntOrPercent, IntOrPercent),
        cluster: &Cluster,
    ) -> Result<Upgrade, CommandError> {
        let mut nodes = selection.nodes(cluster, "--upgrade")?;
        nodes.retain(|node| !failed.iter().any(|failed| **failed == *node.name));
        // A percentage of a few nodes is at least one node, as in a rolling update.
        let total = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
        let number = |of: IntOrPercent, up| usize::try_from(of.of(total, up)).unwrap_or(0);
        let mut size = (number(surge, true), number(unavailable, false));
        if size == (0, 0) && !nodes.is_empty() {
            if !matches!(unavailable, IntOrPercent::Percent(1..)) {
                return Err(CommandError::Usage(
                    "--max-surge and --max-unavailable are both 0: raise one of them".to_owned(),
                ));
            }
            size.1 = 1;
        }
        Ok(Upgrade { nodes, size, done: 0, steps: Vec::new() })
    }

    /// The number of nodes to upgrade.
    pub(super) fn selected(&self) -> usize {
        self.nodes.len()
    }

    /// The step that cannot end, counted from 1.
    pub(super) fn failed(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.blocked > 0).map(|at| at + 1)
    }

    /// How far the upgrade gets.
    pub(super) fn headline(&self) -> String {
        let nodes = count(self.selected(), "node");
        match self.failed() {
            Some(step) => {
                format!("the upgrade hangs in step {step}, after {} of {nodes}", self.done)
            }
            None => format!("{nodes} upgraded in {}", count(self.steps.len(), "step")),
        }
    }

    /// Upgrades the nodes until all are upgraded, or a step is blocked. May be called again, when pods that were being
    /// deleted have ended. Returns the pods that block the step.
    pub(super) fn proceed(
        &mut self,
        daemons: &mut Daemons,
        drains: &mut Drains<'_>,
        world: &mut World,
    ) -> Result<Vec<Blocked>, CommandError> {
        let (surge, away) = self.size;
        while self.done < self.nodes.len() {
            let end = self.done.saturating_add(surge.saturating_add(away)).min(self.nodes.len());
            let batch = &self.nodes[self.done..end];
            let (replaced, in_place) = batch.split_at(surge.min(batch.len()));
            if self.failed().is_none() {
                begin(replaced, batch, daemons, world)?;
                self.steps.push(Step {
                    nodes: batch.iter().map(|node| node.name.clone()).collect(),
                    surge: replaced.len(),
                    evicted: 0,
                    waits: 0,
                    blocked: 0,
                    pending: Vec::new(),
                });
            }
            let Some(step) = self.steps.last_mut() else { break };
            let mut blocked = Vec::new();
            for node in batch {
                let done = drains.run(&node.name, world)?;
                step.evicted += done.evicted;
                step.waits += done.waits;
                let stay = done.blocked.into_iter();
                blocked.extend(stay.map(|(pod, why)| (pod, node.name.clone(), why)));
            }
            drains.end(world)?;
            step.blocked = blocked.len();
            step.pending = world.record.displaced().map(Pod::key).collect();
            if !blocked.is_empty() {
                return Ok(blocked);
            }
            let replaced: Vec<Name> = replaced.iter().map(|node| node.name.clone()).collect();
            remove_nodes(&replaced, world)?;
            for node in in_place {
                world.cordon(node, node.unschedulable)?;
            }
            world.settle()?;
            world.expire_permits()?;
            self.done = end;
        }
        Ok(Vec::new())
    }
}

/// Begins a step: the new nodes join, and the old ones are cordoned.
fn begin(
    replaced: &[Arc<Node>],
    batch: &[Arc<Node>],
    daemons: &mut Daemons,
    world: &mut World,
) -> Result<(), CommandError> {
    let mut reader = world.reader()?;
    for node in replaced {
        let name: Name = format!("{}-upgraded", node.name).into();
        if reader.refresh().node(&name).is_some() {
            return Err(CommandError::Usage(format!(
                "--upgrade: the new node would be named {name}, which exists: rename that node"
            )));
        }
        let model = Model::of(Node::clone(node), &Objects::default(), reader.refresh());
        daemons.join(model.copy(name), world)?;
    }
    world.schedule()?;
    batch.iter().try_for_each(|node| world.cordon(node, true))
}
